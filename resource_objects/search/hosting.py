"""The candidates of one tree, one after the other, each once.

Who gives the named groups comes first (:mod:`.assigning`); for each way the unnamed group is given
of what is left (:mod:`.ways`). Ways that differ in who of equal providers gives what, or in which
of the groups that are alike is given by whom, are one candidate.

Rejected: the unnamed group first. It has the most ways, by far, and knows nothing of what the named
groups need; they have few, and what they take is then simply used.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from resource_objects.search.asked import Decision
from resource_objects.search.assigning import Assigning, Assignment
from resource_objects.search.budget import Budget
from resource_objects.search.building import FewUnits, candidate
from resource_objects.search.candidates import Candidate
from resource_objects.search.preference import Preference
from resource_objects.search.question import Question
from resource_objects.search.ways import Unnamed


class Found(NamedTuple):
    """A candidate of a tree."""

    candidate: Candidate
    key: Hashable  #: what it has in common with those that are the same but for equal providers
    is_of_pools: bool  #: whether pools give all of it, so that other trees may find it too


class Hosting:
    """The search on one tree; it may be left and taken up again."""

    def __init__(self, question: Question, tree: int, preference: Preference) -> None:
        self._question = question
        self._tree = tree
        self._preference = preference
        self._purse = Budget(0)
        self._ways = self._every()

    def next(self, budget: Budget, most: int) -> Found | None:
        """Return the next candidate, None if there is none.

        :param most: steps that it may take of the budget
        :raises Exhausted: if that is not enough; then there is nothing more to be had of this one
        """
        with budget.lend(self._purse, most):
            return next(self._ways, None)

    def _every(self) -> Iterator[Found]:
        question = self._question
        asks = question.of_tree(self._tree, self._preference)
        located = question.located_of_tree(self._tree)
        self._unnamed = Unnamed(question.fleet, asks, located, self._purse)
        seen: set[Hashable] = set()
        for given in self._assignments():
            found = False
            for one in self._of(given):
                found = True
                if one.key not in seen:
                    seen.add(one.key)
                    yield one
            if not found and self._is_hopeless(given):
                return

    def _is_hopeless(self, given: Assignment) -> bool:
        """Return whether what could not be given beside this way cannot be given beside another."""
        return self._unnamed.reach.isdisjoint(given.used) and not self._needs_own(given)

    def _assignments(self) -> Iterator[Assignment]:
        """Yield the ways to give the named groups, if the unnamed one can be given at all."""
        if not self._question.named:
            yield Assignment((), {}, {})
        elif self._unnamed.first({}, {}, False) is not None:
            named = self._question.named
            yield from Assigning(named, self._tree, self._purse, self._preference).ways()

    def _needs_own(self, given: Assignment) -> bool:
        """Return whether the unnamed group has to be given by the tree itself, at least in part."""
        question = self._question
        if not question.rules.host_gives or not question.fleet.pools:
            return False
        return not any(self._is_own(provider) for _, provider in given.given)

    def _is_own(self, provider: int) -> bool:
        return int(self._question.fleet.tree[provider]) == self._tree

    def _of(self, given: Assignment) -> Iterator[Found]:
        """Yield the candidates beside a way to give the named groups."""
        needs_own = self._needs_own(given)
        first = self._first(given, needs_own)
        if first is None:
            return
        yield first
        states: dict[int, Hashable] = {}
        for number, provider in given.given:
            states[provider] = (*states.get(provider, ()), number)  # type: ignore[misc]
        for found in self._unnamed.others(given.used, given.own, needs_own, states):
            try:
                yield self._built(given, found)
            except FewUnits:
                continue

    def _first(self, given: Assignment, needs_own: bool) -> Found | None:
        """Return the first candidate, again with less where units are fewer than counted.

        What is too much beside this way may be had beside another.
        """
        unnamed = self._unnamed
        while True:
            found = unnamed.first(given.used, given.own, needs_own)
            if found is None:
                return None
            try:
                return self._built(given, found)
            except FewUnits as few:
                if few.ask < 0:
                    return None
                self._purse.spend()
                unnamed = unnamed.with_less(few.ask, few.giver, few.amount - 1)

    def _built(self, given: Assignment, found: Decision) -> Found:
        question, unnamed = self._question, self._unnamed
        made = candidate(question, self._tree, unnamed.asks, unnamed.located, found, given.given)
        providers = [
            *(provider for _, provider in given.given),
            *(provider for _, provider, _ in self._parts(found)),
        ]
        pools = question.fleet.pools.every
        is_of_pools = not unnamed.located and pools.issuperset(providers)
        return Found(made, self._key(given, found), is_of_pools)

    def _parts(self, found: Decision) -> Iterator[tuple[int, int, int]]:
        """Yield (class, provider, amount) of the unnamed group."""
        provider = self._question.fleet.inventories.provider
        for number, (asked, parts) in enumerate(zip(self._unnamed.asks, found.plans, strict=True)):
            for giver, part in parts:
                yield number, int(provider[asked.numbers[giver]]), part

    def _key(self, given: Assignment, found: Decision) -> Hashable:
        fleet = self._question.fleet
        holding: dict[int, list[tuple[int, int, int]]] = {}
        for number, provider in given.given:
            holding.setdefault(provider, []).append((0, number, 1))
        for number, provider, part in self._parts(found):
            holding.setdefault(provider, []).append((1, number, part))
        every: dict[Hashable, int] = {}
        for provider, held in holding.items():
            one = fleet.kin.of(fleet, provider), tuple(sorted(held))
            every[one] = every.get(one, 0) + 1
        return frozenset(every.items()), found.assigned
