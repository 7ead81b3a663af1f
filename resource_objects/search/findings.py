"""What stands against one tree, as reasons: every class and trait that fails, with its figures.

The figures of a class are those :mod:`.shortage` finds, those of a located amount are its
inventory's (:mod:`.unplaced`); where several classes do not fit together
in what they all draw on, that inventory is named, with what they would use of it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from resource_objects.exceptions import Reason, Rule
from resource_objects.resources.catalog import is_device
from resource_objects.search.asked import Asked
from resource_objects.search.conditions import Condition
from resource_objects.search.group_findings import (
    all_at_once,
    of_groups_without_inventory,
    of_named,
)
from resource_objects.search.located import LocatedAsked
from resource_objects.search.question import Ask, Givers, Question
from resource_objects.search.shortage import Shortage, can, does_not_fit
from resource_objects.search.unplaced import Unplaced, barred, condition

#: The rules that leave nobody of whom one could ask for a trait.
_NOBODY = frozenset(
    {
        Rule.NO_INVENTORY,
        Rule.TRAIT_FORBIDDEN,
        Rule.UNIT_TAKEN,
        Rule.AGGREGATE_MISSING,
        Rule.AGGREGATE_FORBIDDEN,
        Rule.OTHER_TREE,
    }
)


class Findings:
    """Why trees cannot hold a request. Cost: some 50 microseconds per tree, when it is asked."""

    def __init__(self, question: Question) -> None:
        self._question = question

    def of_tree(self, tree: int) -> tuple[Reason, ...]:
        """Return every constraint of a refused tree that fails: classes first, then traits."""
        question = self._question
        host = question.fleet.hosts[tree]
        of_root = [one for one in question.of_root if not one.own[tree]]
        if of_root:
            return tuple(reason for one in of_root for reason in self._of_host(one, host))
        if not question.is_host[tree]:
            told = [_nothing(ask, host) for ask in question.asks]
            for one in question.located_of_tree(tree):
                told.append(Unplaced([one], host).made(Rule.NO_INVENTORY))
            return tuple(told) + of_groups_without_inventory(question.named, host)
        if not question.named:
            return _Tree(question, tree, self._blamed).reasons()
        found: tuple[Reason, ...] = ()
        if not can(question.of_tree(tree), question.located_of_tree(tree)):
            found = _Tree(question, tree, self._blamed).reasons()
        of_groups = of_named(question, tree)
        return found + of_groups or (all_at_once(question.named, host),)

    def _of_host(self, one: Condition, host: str) -> Iterator[Reason]:
        """Yield what a condition on the host itself says of what the unnamed group asks."""
        if one.rule in (Rule.ROOT_TRAIT_MISSING, Rule.ROOT_TRAIT_FORBIDDEN):
            yield condition(one.rule, one.label, 1, None, host)
            return
        for ask in self._question.asks:
            yield condition(one.rule, one.label, ask.amount, ask.resource_class, host)

    @functools.cached_property
    def _blamed(self) -> tuple[int, ...]:
        """By required trait, the class that is named where nobody in a tree has it."""
        return tuple(map(self._blame, self._question.required))

    def _blame(self, trait: str) -> int:
        """Choose a class whose givers have the trait elsewhere, else one of devices, else any."""
        question = self._question
        having = question.fleet.traits.get(trait)
        givers = [ask.rows.provider[~ask.rows.is_part] for ask in question.asks]
        givers += [ask.parts.provider for ask in question.located]
        for number, providers in enumerate(givers):
            if having is not None and bool(np.isin(providers, having).any()):
                return number
        for number, ask in enumerate(question.asks):
            if is_device(ask.resource_class) or bool(ask.is_device.any()):
                return number
        return 0


class _Tree:
    """The findings of one tree while they are made. Classes are counts, then what is located."""

    def __init__(self, question: Question, tree: int, blamed: Sequence[int]) -> None:
        self._question = question
        self._tree = tree
        self._host = question.fleet.hosts[tree]
        self._blamed = blamed
        self._asks = question.asks
        self._here = question.of_tree(tree)
        self._where = question.located_of_tree(tree)
        self._every: Sequence[Asked | LocatedAsked] = (*self._here, *self._where)

    def reasons(self) -> tuple[Reason, ...]:
        narrowed, missing = self._narrow()
        by_class = [self._of_class(number, givers) for number, givers in enumerate(narrowed)]
        found = [reason for reasons in by_class for reason in reasons]
        found += self._apart(narrowed, by_class) or self._crowded(by_class)
        for trait, number in missing:
            if not any(reason.rule in _NOBODY for reason in by_class[number]):
                found.append(self._missing(trait, number))
        found += self._of_traits([bool(reasons) for reasons in by_class])
        return tuple(dict.fromkeys(found or self._of_own(narrowed) or self._together()))

    def _of_own(self, narrowed: Sequence[int]) -> list[Reason]:
        """Return why nobody of the tree itself gives anything, if only pools could."""
        if self._where or not self._question.rules.host_gives or not self._question.fleet.pools:
            return []
        own = [(1 << asked.own) - 1 for asked in self._here]
        few = [self._of_class(n, some & own[n]) for n, some in enumerate(narrowed)]
        return [reason for reasons in few for reason in reasons] if all(few) else []

    def _narrow(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Leave, of each class, the givers with the traits that only this class can answer for.

        Also return the traits that nobody has, or nobody beside the others, and their class.
        """
        givers = [asked.allowed for asked in self._every]
        missing: list[tuple[int, int]] = []
        for trait in range(len(self._question.required)):
            owners = self._owners(trait)
            if not owners:
                missing.append((trait, self._blamed[trait]))
            elif len(owners) == 1:
                (number,) = owners
                left = givers[number] & self._every[number].with_trait[trait]
                if left:
                    givers[number] = left
                else:
                    missing.append((trait, number))
        return givers, missing

    def _owners(self, trait: int) -> list[int]:
        """Return the classes of which some giver has a trait."""
        return [
            number
            for number, asked in enumerate(self._every)
            if asked.allowed & asked.with_trait[trait]
        ]

    def _can(self, number: int, givers: int) -> bool:
        """Return whether some givers can give one class."""
        if number < len(self._here):
            return can([self._here[number].only(givers)])
        return can([], [self._where[number - len(self._here)].only(givers)])

    def _of_class(self, number: int, givers: int) -> list[Reason]:
        """Return what stands against one class, if only these may give."""
        if number >= len(self._here):
            return self._unplaced(number).reasons([givers])
        ask, asked = self._asks[number], self._here[number]
        if not asked.givers or (asked.allowed and not givers):
            return [_nothing(ask, self._host)]
        if not asked.allowed:
            return self._all_barred(ask) or self._all_taken(ask, asked)
        if can([asked.only(givers)]):
            return []
        return Shortage(self._question, self._host, ask, asked, givers).reasons()

    def _unplaced(self, number: int) -> Unplaced:
        asked = self._where[number - len(self._here)]
        return Unplaced([asked], self._host)

    def _apart(self, givers: Sequence[int], by_class: Sequence[Sequence[Reason]]) -> list[Reason]:
        """Name what is not near the rest, though each located amount could be had by itself."""
        first = len(self._here)
        if len(self._where) < 2 or any(by_class[first:]):
            return []
        every = Unplaced(self._where, self._host)
        return every.reasons(givers[first:])

    def _all_barred(self, ask: Ask) -> list[Reason]:
        """Name the conditions that nobody meets, or if there is none all that together exclude."""
        flags = [
            np.concatenate([givers.is_barred[number][here] for givers, here in self._givers(ask)])
            for number in range(len(ask.barriers))
        ]
        return barred(ask.barriers, flags, ask.amount, ask.resource_class, self._host)

    def _givers(self, ask: Ask) -> list[tuple[Givers, Any]]:
        return list(self._question.givers(ask, self._tree))

    def _all_taken(self, ask: Ask, asked: Asked) -> list[Reason]:
        """Name the units that are asked for and that somebody has."""
        fleet = self._question.fleet
        taken = fleet.units.taken(ask.units)
        found: dict[Reason, None] = {}
        for number in asked.numbers:
            place = int(fleet.inventories.provider[number])
            if place in taken:
                unit, consumer = taken[place]
                reason = Reason(
                    Rule.UNIT_TAKEN,
                    ask.amount,
                    bound=0,
                    used=1,
                    resource=ask.resource_class,
                    where=fleet.names[place],
                    holders=((consumer, 1),),
                    unit=unit,
                )
                found[reason] = None
        return list(found)

    def _missing(self, trait: int, number: int) -> Reason:
        name = self._question.required[trait]
        if number >= len(self._here):
            return self._unplaced(number).made(Rule.TRAIT_MISSING, name)
        ask = self._asks[number]
        return Reason(
            Rule.TRAIT_MISSING, ask.amount, 0, 0, ask.resource_class, self._host, trait=name
        )

    def _of_traits(self, is_short: Sequence[bool]) -> list[Reason]:
        """Return what stands against the traits that several classes could answer for.

        A class that is short whoever has the trait said so already.
        """
        found: dict[Reason, None] = {}
        for trait in range(len(self._question.required)):
            tries = [
                (number, self._every[number].allowed & self._every[number].with_trait[trait])
                for number in self._owners(trait)
            ]
            if not any(self._can(number, givers) for number, givers in tries):
                for number, givers in tries:
                    if not is_short[number]:
                        found.update(dict.fromkeys(self._of_class(number, givers)))
        return list(found)

    def _crowded(self, by_class: Sequence[Sequence[Reason]]) -> list[Reason]:
        """Name what is drawn on by classes that do not fit there together, though each does."""
        is_short = [bool(reasons) for reasons in by_class]
        fine = [
            a.with_traits(0) for a, short in zip(self._here, is_short, strict=False) if not short
        ]
        where = [
            one.with_traits(0)
            for one, short in zip(self._where, is_short[len(self._here) :], strict=True)
            if not short
        ]
        if not (where or any(asked.draws for asked in fine)) or can(fine, where):
            return []
        return does_not_fit(self._question, fine, where)

    def _together(self) -> list[Reason]:
        """Name the first trait that cannot be answered for together with those before it."""
        count = len(self._question.required)
        for trait in range(count):
            few = [one.with_traits(trait + 1) for one in self._where]
            if not can([asked.with_traits(trait + 1) for asked in self._here], few):
                return [self._not_beside(trait)]
        # it took too long to find out: what the easy way fails by
        anybody = [asked.with_traits(0) for asked in self._here]
        where = [one.with_traits(0) for one in self._where]
        found = does_not_fit(self._question, anybody, where)
        return found or ([self._not_beside(count - 1)] if count else list(self._unnamed()))

    def _unnamed(self) -> Iterator[Reason]:
        """Yield the classes of which there is enough by count, and not by name."""
        fleet = self._question.fleet
        provider = fleet.inventories.provider
        for ask, asked in zip(self._asks, self._here, strict=True):
            places = {int(provider[number]) for number in asked.numbers}
            if any(fleet.views.of_devices(place, ask.resource_class) for place in places):
                name = ask.resource_class
                yield Reason(Rule.INVALID, ask.amount, 0, 0, name, self._host)

    def _not_beside(self, trait: int) -> Reason:
        return self._missing(trait, (self._owners(trait) or [self._blamed[trait]])[0])


def _nothing(ask: Ask, host: str) -> Reason:
    return Reason(Rule.NO_INVENTORY, ask.amount, 0, 0, ask.resource_class, host)
