"""Host cells, and what has to be near them, decided at once (D13). Pure; no kind is named (D11).

Some amounts say where something is. One kind of them is on host cells; others (devices) are near
some cells and far from others, and care. Each of these says in a :class:`Near` what it needs of
the cells that are chosen, whichever these are:

1. the kind with cells searches its own choices, narrowed by every :class:`Near`
   (:meth:`~resource_objects.resources.abstract.Inventory.fit_among`);
2. then each of the others decides, given the cells that were chosen (``fit_near``).

That is complete: what the search returns meets every :class:`Near`, and what meets one can be had.
Who asks for no cells is near to nothing, and everything is then decided alone. Who asks for cells
and nothing near them leaves those with devices to others.

What is assigned already is checked as it is: assigned cells are the only choice there is, assigned
devices need the cells that they are near to, and of both each is checked.

A refusal names what each would be refused for alone. If there is nothing of that kind, it names who
cannot be near: with the figures of the cells on which most of what would do can be had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from resource_objects import fields
from resource_objects.exceptions import (
    CapacityException,
    OnlyPoolsKnown,
    Reason,
    Rule,
    SearchLimitReached,
)
from resource_objects.resources.joint import absent

if TYPE_CHECKING:
    from resource_objects.resources.abstract import Amount, Inventory


class Cells(NamedTuple):
    """The host cells there are, for who has to be near some of them."""

    sockets: Mapping[int, int | None]  #: socket by cell id
    distances: Mapping[int, Mapping[int, int]]  #: by cell id, then cell id


class Near(Protocol):
    """What an amount needs of the host cells that are chosen for what is beside it.

    ``counts`` is how many devices that would do are at each host cell: these cells are used first.
    """

    @property
    def counts(self) -> Mapping[int, int]:
        """How many devices that would do are at each host cell, by its id."""

    def is_met(self, cells: Collection[int]) -> bool:
        """Return whether it can be had, were these cells chosen: more never make it false."""

    def helpful(self, cells: Collection[int]) -> frozenset[int]:
        """Return cells of which any larger set that meets it has at least one beside these.

        It is asked of cells that do not meet it. Empty: no set does.
        """

    def alike(self, cell: int) -> Hashable:
        """Return what is equal for cells that can stand for each other."""


class Counted(Near, Protocol):
    """A :class:`Near` that also tells how many cells it takes, which spares steps of a search."""

    def needed(self, cells: Collection[int], among: Collection[int]) -> int:
        """Return how many of ``among`` it takes at least beside cells that do not meet it.

        More than there are: no number will do.
        """


_NOTHING: Mapping[str, object] = fields.FrozenDict()
#: Neither yes nor no.
_UNKNOWN = (SearchLimitReached, OnlyPoolsKnown)


def fit(
    asked: Mapping[str, Amount],
    inventories: Mapping[str, Inventory],
    limits: Mapping[str, Amount] = _NOTHING,  # type: ignore[assignment]  # it is empty
    room: Mapping[str, int] = _NOTHING,  # type: ignore[assignment]
    within: Mapping[str, Collection[int]] = _NOTHING,  # type: ignore[assignment]
) -> dict[str, Amount]:
    """Return the assigned amounts: where all that is asked of one place would go. Nothing changes.

    :param asked: amounts that say where something is, by resource class
    :param inventories: what there is in the place, also of what is not asked for
    :param limits: totals set from outside for this one claim
    :param room: what the place as a whole has left, by class
    :param within: by resource class, ids of the parts that may be used; absent is all
    :raises ForeignAmount: if something is assigned to what is not here
    :raises CapacityException: with each reason
    :raises SearchLimitReached: if the budget ran out before it was known

    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
    >>> host = NUMATopologyInventory([HostCell(0, dedicated=[0, 1]), HostCell(1, dedicated=[2, 3])])
    >>> asked = {"NUMA_TOPOLOGY": numa(dedicated=2)}
    >>> fit(asked, {"NUMA_TOPOLOGY": host})["NUMA_TOPOLOGY"].host_cells
    frozenset({0})
    >>> fit(asked, {"NUMA_TOPOLOGY": host}, within={"NUMA_TOPOLOGY": [1]})["NUMA_TOPOLOGY"].cpuset
    '2-3'
    """
    place = _Place(inventories, limits, room, within)
    for name, amount in asked.items():
        cells = None if amount.is_negative else place.cells_of(name)
        if cells is not None and inventories.keys() >= asked.keys():
            return _Joint(place, asked, name, cells).fit()
    return place.fit_each(asked)


class _Place(NamedTuple):
    """What there is in a place, and how it may be used."""

    inventories: Mapping[str, Inventory]
    limits: Mapping[str, Amount]
    room: Mapping[str, int]
    within: Mapping[str, Collection[int]]

    def cells_of(self, name: str) -> Cells | None:
        inventory = self.inventories.get(name)
        return None if inventory is None else inventory.all_cells()

    def fit_each(self, asked: Mapping[str, Amount]) -> dict[str, Amount]:
        """Return amounts assigned that have nothing to do with each other."""
        found: dict[str, Amount] = {}
        answers = _Answers()
        for name, amount in asked.items():
            with answers:
                found[name] = self.fit_alone(name, amount)
        answers.check()
        return found

    def fit_alone(self, name: str, amount: Amount) -> Amount:
        if name not in self.inventories:
            raise CapacityException.of([absent(name, amount)])
        inventory, limit = self.inventories[name], self.limits.get(name)
        if name not in self.within:
            return inventory.fit_beside(amount, limit, self._room_of(amount))
        found = inventory.fit_within(amount, self.within[name])
        return found if limit is None else inventory.fit(found, limit)

    def fit_among(self, name: str, amount: Amount, nears: Iterable[Near]) -> Amount:
        """Return the assigned amount on host cells that meet all of these."""
        some = tuple(nears)
        return self.inventories[name].fit_among(
            amount,
            self.limits.get(name),
            self._room_of(amount),
            some,
            self.within.get(name),
            {} if some else _added(one.device_counts() for one in self.inventories.values()),
        )

    def near(self, name: str, amount: Amount, cells: Cells) -> Near | None:
        if amount.is_negative:
            return None
        return self.inventories[name].near_within(amount, cells, self.within.get(name))

    def fit_near(self, name: str, amount: Amount, cells: Cells, chosen: Collection[int]) -> Amount:
        limit, within = self.limits.get(name), self.within.get(name)
        return self.inventories[name].fit_near(amount, limit, cells, chosen, within)

    def _room_of(self, amount: Amount) -> dict[str, int]:
        return {name: self.room[name] for name in amount.located if name in self.room}


class _Joint(NamedTuple):
    """Amounts of which one is on host cells and the others may be near these."""

    place: _Place
    asked: Mapping[str, Amount]
    base: str  #: who is on host cells
    cells: Cells

    def fit(self) -> dict[str, Amount]:
        nears = {
            name: near
            for name, amount in self.asked.items()
            if name != self.base and (near := self.place.near(name, amount, self.cells)) is not None
        }
        try:
            found = self._among(nears.values())
        except CapacityException as refusal:
            raise CapacityException.of(self._reasons(nears, refusal)) from refusal
        except _UNKNOWN:
            self._check_each()
            raise
        return self._around(found, nears)

    def _around(self, found: Amount, nears: Collection[str]) -> dict[str, Amount]:
        """Return all amounts assigned, given the one on host cells."""
        every: dict[str, Amount] = {}
        answers = _Answers()
        for name, amount in self.asked.items():
            with answers:
                if name == self.base:
                    every[name] = found
                elif name in nears:
                    every[name] = self._near(name, found)
                else:
                    every[name] = self.place.fit_alone(name, amount)
        answers.check()
        return every

    def _among(self, nears: Iterable[Near]) -> Amount:
        return self.place.fit_among(self.base, self.asked[self.base], nears)

    def _near(self, name: str, found: Amount) -> Amount:
        return self.place.fit_near(name, self.asked[name], self.cells, found.host_cells)

    # --- why not ---

    def _check_each(self) -> None:
        """Raise if anything asked is refused even alone."""
        answers = _Answers()
        for name, amount in self.asked.items():
            with answers:
                self.place.fit_alone(name, amount)
        if answers.reasons:
            raise CapacityException.of(answers.reasons)

    def _reasons(self, nears: Mapping[str, Near], refusal: CapacityException) -> Sequence[Reason]:
        """Return what stands against each alone, or if there is nothing, who is not near."""
        answers = _Answers()
        is_joint = all(reason.rule is Rule.AFFINITY for reason in refusal.reasons)
        for name, amount in self.asked.items():
            if name != self.base:
                with answers:
                    self.place.fit_alone(name, amount)
            elif not is_joint:
                answers.reasons += refusal.reasons
        return answers.reasons or self._too_far(nears) or refusal.reasons

    def _too_far(self, nears: Mapping[str, Near]) -> Sequence[Reason]:
        """Return what those say who cannot be near, on the cells with most of what would do."""
        only = len(nears) == 1
        alone = [name for name, near in nears.items() if only or self._is_refused(near)]
        answers = _Answers()
        for name in alone or nears:
            counts = nears[name].counts if alone else _added(n.counts for n in nears.values())
            with answers:
                self._near(name, self._among([_Drawn(counts)]))
        return answers.reasons

    def _is_refused(self, near: Near) -> bool:
        try:
            self._among([near])
        except CapacityException:
            return True
        except _UNKNOWN:
            return False
        return False


class _Drawn(NamedTuple):
    """Something that is near to whatever is chosen, and draws it."""

    counts: Mapping[int, int]

    def is_met(self, cells: Collection[int]) -> bool:
        return True

    def helpful(self, cells: Collection[int]) -> frozenset[int]:
        return frozenset()

    def alike(self, cell: int) -> Hashable:
        return None


class _Answers:
    """What several decisions come to: a no of any is a no, also where another has no answer."""

    def __init__(self) -> None:
        self.reasons: list[Reason] = []
        self._unknown: Exception | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, where: object) -> bool:
        if isinstance(error, CapacityException):
            self.reasons += error.reasons
            return True
        if isinstance(error, _UNKNOWN):
            self._unknown = error
            return True
        return False

    def check(self) -> None:
        """Raise if there was a no, or no answer."""
        if self.reasons:
            raise CapacityException.of(self.reasons)
        if self._unknown is not None:
            raise self._unknown


def _added(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    found: Counter[int] = Counter()
    for some in counts:
        found.update(some)
    return found
