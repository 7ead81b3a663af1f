"""The conditions of one decision besides the inventory: values, independent of kinds.

An inventory alone decides whether an amount fits. More conditions apply if several inventories, or
a tree of providers, are decided at once: the free counts of the whole host, the parts that may be
used, the chosen host cells, the amounts that have to be near them. A frozen :class:`Context` has
them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from resource_objects import fields
from resource_objects.exceptions import InvalidInput

_invalid_value = functools.partial(InvalidInput, "value")

_NOTHING: Any = fields.FrozenDict()


class CellMap(NamedTuple):
    """The host cells of a host, their sockets and the distances between them."""

    sockets: Mapping[int, int | None]  #: socket by cell id
    distances: Mapping[int, Mapping[int, int]]  #: by cell id, then cell id


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenCells:
    """The host cells of a host, and the ids of those chosen for a request."""

    cells: CellMap
    ids: frozenset[int]

    def __init__(self, cells: CellMap, ids: Iterable[int] = ()) -> None:
        if not isinstance(cells, CellMap):
            raise _invalid_value("host cells", cells, "a CellMap")
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "ids", _id_set("chosen", ids))

    @property
    def sockets(self) -> frozenset[int | None]:
        """The sockets of the chosen cells; none if the socket of any host cell is unknown."""
        socket_of = self.cells.sockets
        if None in socket_of.values():
            return frozenset()
        return frozenset(socket_of[cell] for cell in self.ids if cell in socket_of)


class AffinityConstraint(Protocol):
    """A condition of an amount on the host cells chosen for another amount.

    It is monotone: further chosen cells never violate it. Optional: ``needed(cells, among)`` is a
    lower bound on the cells of ``among`` to choose in addition, larger than their number if none
    suffice. It only makes the search faster.
    """

    @property
    def counts(self) -> Mapping[int, int]:
        """The number of matching devices by the id of their host cell; more are preferred."""

    def is_met(self, cells: Collection[int]) -> bool:
        """Return True if the amount fits near these cells."""

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        """Return cells of which each larger set that satisfies the condition has at least one.

        The argument does not satisfy it. An empty result: no larger set does.
        """

    def symmetry_key(self, cell: int) -> Hashable:
        """Return a key that is equal for cells that are interchangeable."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Context:
    """The further conditions of one decision of :meth:`~.abstract.Inventory.fit`.

    ============  ==================================================================================
    ``room``      the free counts of the whole host, by class; an absent class is unbounded
    ``allowed``   ids of the parts that may be used (:meth:`~.placed.PlacedInventory.part_ids`),
                  None for all; they bind an assigned amount too
    ``near``      constraints that the chosen host cells have to satisfy
    ``chosen``    the chosen host cells, for an amount that has to be near them; None if there are
                  none, and affinity has no meaning
    ``spare``     free devices by host cell that are not requested: cells with few come first
    ``pack``      True to prefer host cells with the least free, and not those with the most.
                  Source: Nova's ``packing_host_numa_cells_allocation_strategy``
    ``in_part``   True for a part of a claim: capacity and limit bind it, the rules of one
                  claim (min_unit, max_unit, step_size) do not
    ============  ==================================================================================

    :raises InvalidInput: for allowed parts or chosen cells that are no ids

    >>> Context(allowed=[0, 1]).allowed
    frozenset({0, 1})
    """

    room: Mapping[str, int] = _NOTHING
    allowed: Collection[int] | None = None
    near: tuple[AffinityConstraint, ...] = ()
    chosen: ChosenCells | None = None
    spare: Mapping[int, int] = _NOTHING
    pack: bool = False
    in_part: bool = False

    def __post_init__(self) -> None:
        if self.allowed is not None:
            object.__setattr__(self, "allowed", _id_set("allowed", self.allowed))


#: No further conditions.
ANYWHERE = Context()
#: The context of a part of a claim.
IN_PART = Context(in_part=True)


def _id_set(label: str, ids: Any) -> frozenset[int]:
    """Return ids as a set; text, mappings and iterators, which may be infinite, are rejected."""
    if isinstance(ids, frozenset):
        return ids
    is_collection = isinstance(ids, Collection) and not isinstance(ids, str | bytes | Mapping)
    if is_collection and all(type(number) is int for number in ids):
        return frozenset(ids)
    raise _invalid_value(label, ids, "a collection of ids")
