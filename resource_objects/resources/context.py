"""What a decision about one amount has to respect besides the inventory: values, no kinds.

An inventory alone says whether an amount fits. Where several inventories are decided at once, or
over a tree of providers, more is known: what the host as a whole has left, which parts may be used,
which host cells were chosen, what has to be near them. All of that is one frozen :class:`Context`.
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
    """The host cells there are, and how far apart they are."""

    sockets: Mapping[int, int | None]  #: socket by cell id
    distances: Mapping[int, Mapping[int, int]]  #: by cell id, then cell id


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenCells:
    """The host cells there are, and the ids of those that were chosen for who asks."""

    cells: CellMap
    ids: frozenset[int]

    def __init__(self, cells: CellMap, ids: Iterable[int] = ()) -> None:
        if not isinstance(cells, CellMap):
            raise _invalid_value("host cells", cells, "a CellMap")
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "ids", _ids("chosen", ids))

    @property
    def sockets(self) -> frozenset[int | None]:
        """The sockets of the chosen cells; none if the socket of any host cell is not known."""
        known = self.cells.sockets
        if None in known.values():
            return frozenset()
        return frozenset(known[cell] for cell in self.ids if cell in known)


class AffinityConstraint(Protocol):
    """What an amount needs of the host cells that are chosen for what is decided with it.

    It is monotone: choosing more cells never breaks it.
    """

    @property
    def counts(self) -> Mapping[int, int]:
        """How many devices that would do are at each host cell, by its id: used first."""

    def is_met(self, cells: Collection[int]) -> bool:
        """Return whether it can be had, were these cells chosen: more never make it false."""

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        """Return cells of which any larger set that meets it has at least one beside these.

        It is asked of cells that do not meet it. Empty: no set does.
        """

    def symmetry_key(self, cell: int) -> Hashable:
        """Return what is equal for cells that can stand for each other."""


class CountedConstraint(AffinityConstraint, Protocol):
    """An :class:`AffinityConstraint` that tells how many cells it takes: spares search steps."""

    def needed(self, cells: Collection[int], among: Collection[int]) -> int:
        """Return how many of ``among`` it takes at least beside cells that do not meet it.

        More than there are: no number will do.
        """


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What else binds one decision of :meth:`~.abstract.Inventory.fit`; each kind reads its part.

    ============  ==================================================================================
    ``room``      units that the host as a whole has left, by class; absent: unbounded here
    ``allowed``   ids of the parts that may be used (:meth:`~.placed.PlacedInventory.part_ids`),
                  None for all; an assigned amount is checked as it is
    ``near``      constraints that the chosen host cells have to meet
    ``chosen``    the host cells that were chosen, for what has to be near them; None: there are
                  none, and affinity has no meaning
    ``spare``     free devices by host cell that are not asked for, to be left to others
    ``pack``      whether host cells with the least free that will do are taken first, and not those
                  with the most. Source: Nova's ``packing_host_numa_cells_allocation_strategy``
    ``in_part``   whether only a part of a claim is counted here (D2): capacity and limit bind it,
                  the rules of one claim (min_unit, max_unit, step_size) do not
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
            object.__setattr__(self, "allowed", _ids("allowed", self.allowed))


#: Nothing else binds: the inventory alone decides.
ANYWHERE = Context()
#: Only a part of a claim is counted here.
IN_PART = Context(in_part=True)


def _ids(what: str, given: Any) -> frozenset[int]:
    """Return ids as a set, refusing what is none: text, mappings, what may never end."""
    if isinstance(given, frozenset):
        return given
    is_plain = isinstance(given, Collection) and not isinstance(given, str | bytes | Mapping)
    if is_plain and all(type(one) is int for one in given):
        return frozenset(given)
    raise _invalid_value(what, given, "a collection of ids")
