"""Which host cells have to be used, for what they are next to: networks, and devices.

A network that is asked for, and everything that is near some cells and far from others
(:class:`~resource_objects.resources.context.AffinityConstraint`), is a *condition* on the set of
host cells that are used. Conditions are monotone: more cells never break one. A placement is looked
for as a set R of required cells, which grows until it meets every condition by itself; whatever
cells a matching uses beside them then, it meets them too.

From a set that does not meet a condition, the condition tells cells of which every larger set that
meets it has at least one. Each of these is tried in the order of preference.

*Complete.* Let S be the cells of any placement that meets everything, and R some of them, as the
empty set is. If R meets everything, it is found. Else S is larger than R and meets what R does not,
so it has one of the cells that are told; that branch has R with this cell, again some of S, and is
not cut off: there is a matching that uses all of R, because one uses all of S. So every S is
reached, except where the answer is known already:

* A cell whose branch is done is left out of the branches after it: every S with it has been seen.
* So are cells that are *alike* one that is done: they may hold the same guest cells, at the same
  cost where that counts, are next to the same networks, and the conditions cannot tell them apart.
  Where S has such a cell and not the one that is done, swapping the two gives a placement too.
* Cells that are told are gathered until they meet everything, each time from all that were told
  before: these sets are apart, and S has one cell of each. More sets than there are guest cells
  left are a no; so is it if none is told. A condition that no cells meet is found out at once.
* A condition may know how many cells it takes at least (``Counted``).

*Polynomial* are: no condition that needs anything (nothing is required, one step); one guest cell
(one step for each host cell); cells of a constant number of kinds (alike or not: one step for each
way to take so many of each kind). In general it is a cover, which is hard: it is decided exactly
within the budget, and beyond it it is neither yes nor no.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple, Protocol

from resource_objects.resources import matching
from resource_objects.resources.backtracking import Solution, solutions
from resource_objects.resources.budget import Budget
from resource_objects.resources.context import AffinityConstraint
from resource_objects.resources.numa.cpuset import CPUSet
from resource_objects.resources.numa.problem import CellProblem


class CellCondition(Protocol):
    """What is asked of the places that are used; sets of places are masks."""

    def is_met(self, places: int) -> bool:
        """Return whether these places are enough."""

    def extensions(self, places: int) -> int:
        """Return places of which every larger set that is enough has one beside these."""

    def symmetry_key(self, place: int) -> Hashable:
        """Return what places have in common that can stand for each other."""

    def needed(self, places: int, among: int) -> int:
        """Return how many of some it takes at least beside those that are not enough."""


class _Network(NamedTuple):
    """A network, by the places next to it."""

    places: int

    def is_met(self, places: int) -> bool:
        return bool(places & self.places)

    def extensions(self, places: int) -> int:
        return self.places

    def symmetry_key(self, place: int) -> Hashable:
        return self.places >> place & 1

    def needed(self, places: int, among: int) -> int:
        return 1


class _NearCells:
    """What is near some cells, in places instead of ids."""

    def __init__(self, near: AffinityConstraint, ids: Sequence[int]) -> None:
        self._near = near
        self._ids = ids
        self._places = {ident: place for place, ident in enumerate(ids)}
        self._needed: Callable[..., int] | None = getattr(near, "needed", None)
        self._met: dict[int, bool] = {}

    def is_met(self, places: int) -> bool:
        if places not in self._met:
            self._met[places] = self._near.is_met(self._cells(places))
        return self._met[places]

    def extensions(self, places: int) -> int:
        told = self._near.extensions(self._cells(places))
        return sum(1 << self._places[ident] for ident in told if ident in self._places)

    def symmetry_key(self, place: int) -> Hashable:
        return self._near.symmetry_key(self._ids[place])

    def needed(self, places: int, among: int) -> int:
        if self._needed is None:
            return 1
        return self._needed(self._cells(places), self._cells(among))

    def _cells(self, places: int) -> frozenset[int]:
        return frozenset([self._ids[place] for place in CPUSet.from_mask(places)])


class _Node(NamedTuple):
    """Places that are required, and those that may be required too."""

    chosen: tuple[int, ...]
    mask: int
    open: int


class RequiredCells:
    """The sets of places that meet every condition and can all be used: first the best, in depth.

    Made for the places where each guest cell ``may`` be, which have a complete matching; all of
    them are in ``part``.
    """

    def __init__(
        self,
        problem: CellProblem,
        may: Sequence[int],
        part: int,
        ranking: Sequence[int],
        steps: Budget,
    ) -> None:
        self._problem = problem
        self._may = may
        self._ranking = ranking
        self._steps = steps
        wanted = sorted((places & part for places in problem.networks.values()), key=int.bit_count)
        ids = [cell.facts.id for cell in problem.cells]
        self._networks = [_Network(places) for places in wanted]
        self._devices = [_NearCells(near, ids) for near in problem.constraints]
        self._kinds: dict[int, Hashable] = {}
        self._is_easy = True  #: whether the best was good enough as yet

    def is_enough(self, places: int) -> bool:
        """Return whether these places meet every condition."""
        return not self._unmet(places)

    def found(self) -> Iterator[tuple[int, ...]]:
        """Return these sets as they are found, each as small as that.

        :raises SearchLimitReached: if the steps ran out
        """
        every = 0
        for places in self._may:
            every |= places
        if not self.is_enough(every):
            return iter(())  # no set of places meets what all of them do not
        return solutions(_Node((), 0, every), self._following, self._steps)

    def _following(self, node: _Node) -> Iterator[_Node | Solution[tuple[int, ...]]]:
        """Yield what follows on some places: they are enough, or one more of them is tried."""
        unmet = self._unmet(node.mask)
        if not unmet:
            yield Solution(node.chosen)
        elif helpful := self._helpful(node, unmet):
            yield from self._branches(node, helpful)
        else:
            self._is_easy = False  # from here on it pays to look further ahead, at each step

    def _unmet(self, mask: int) -> list[CellCondition]:
        """Return the conditions that are not met; of networks, the one with the fewest places."""
        network: list[CellCondition] = [one for one in self._networks if not one.is_met(mask)]
        return network[:1] + [one for one in self._devices if not one.is_met(mask)]

    def _helpful(self, node: _Node, unmet: Sequence[CellCondition]) -> int:
        """Return places of which one has to be required too; 0 if that leads nowhere."""
        left = len(self._may) - len(node.chosen)
        if any(one.needed(node.mask, node.open) > left for one in unmet):
            return 0
        first, gathered = 0, node.mask
        while unmet:
            outside = node.open & ~gathered
            told = min((one.extensions(gathered) & outside for one in unmet), key=int.bit_count)
            left -= 1
            if not told or left < 0:
                return 0
            first = first or told
            if node.chosen and self._is_easy:
                return (
                    first  # looking ahead costs more than it saves, until something leads nowhere
                )
            gathered |= told
            unmet = self._unmet(gathered)
        return first

    def _branches(self, node: _Node, helpful: int) -> Iterator[_Node]:
        """Yield the node with each of some places more; a branch leaves out what is done."""
        open_ = node.open
        for place in self._ranking:
            if not (helpful & open_) >> place & 1:
                continue
            more, bit = (*node.chosen, place), 1 << place
            if len(matching.best(self._may, (), more)) == len(more):
                yield _Node(more, node.mask | bit, open_ & ~bit)
            kind = self._kind(place)  # what this one cannot do, no other of its kind can
            open_ &= ~sum(1 << one for one in CPUSet.from_mask(open_) if self._kind(one) == kind)

    def _kind(self, place: int) -> Hashable:
        """Return what places have in common that can stand for each other."""
        if place not in self._kinds:
            problem = self._problem
            guests = sum(1 << guest for guest, may in enumerate(self._may) if may >> place & 1)
            needs = [need for guest, need in enumerate(problem.needs) if guests >> guest & 1]
            costs = tuple(problem.draw(need, place) for need in needs)
            conditions: list[CellCondition] = [*self._networks, *self._devices]
            self._kinds[place] = guests, costs, *(one.symmetry_key(place) for one in conditions)
        return self._kinds[place]
