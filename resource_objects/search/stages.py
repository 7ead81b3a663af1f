"""How many hosts each part of a request leaves: which of them emptied the set.

The stages follow the request: what is asked of the host itself, class by class what the unnamed
group asks, kind by kind the named groups, all groups together, and at last the exact decision. Each
looks at the hosts that the ones before it left, with the same flags as the search; so it is a pass
over the fleet for each, whatever the number of hosts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from resource_objects.exceptions import Rule
from resource_objects.search import at_least, necessary
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.fleet import ClassRows
from resource_objects.search.named import Kind, giving
from resource_objects.search.question import Ask, Question


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """What one part of a request leaves of the hosts.

    ``group`` are the suffixes it is about, ``""`` for the unnamed group, None for the host or all
    groups; ``rule`` says what fails, ``label`` the trait, aggregate or provider of a condition.
    ``asked`` is how much of ``resource``, ``most`` the largest amount that one provider of the
    hosts before has free of it; None where it is no question of amounts.
    """

    group: str | None
    rule: Rule
    before: int
    after: int
    resource: str | None = None
    label: str | None = None
    asked: int | None = None
    most: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**dataclasses.asdict(self), "rule": self.rule.value}

    def __str__(self) -> str:
        where = f"group {self.group}: " if self.group else ""
        told = " ".join(
            part for part in (self.rule.value.replace("_", " "), self.resource, self.label) if part
        )
        figures = "" if self.asked is None else f" (asked {self.asked}, most free {self.most})"
        return f"{where}{told}{figures}: {self.before} -> {self.after} hosts"


def stages(question: Question, refused: Integers) -> tuple[Stage, ...]:
    """Return the stages of a search, in order.

    :param refused: the trees that cannot hold the request, by whatever stage
    """
    return tuple(_Stages(question, refused).every())


class _Stages:
    def __init__(self, question: Question, refused: Integers) -> None:
        self._question = question
        self._fleet = question.fleet
        self._trees = len(question.is_told)
        self._refused = refused
        self._left: Booleans = question.is_told.copy()

    def every(self) -> Iterator[Stage]:
        for one in self._question.of_root:
            yield self._cut(one.own, None, one.rule, label=one.label)
        for ask in self._question.asks:
            yield from self._of_ask(ask)
        for located in self._question.located:
            found = at_least.enough(located, self._trees)
            name = located.resource_class
            yield self._cut(found, "", Rule.CAPACITY, resource=name)
        yield from self._of_traits()
        for kind in self._question.named.kinds:
            yield from self._of_kind(kind)
        if self._question.named:
            beside = {ask.resource_class: ask.amount for ask in self._question.asks}
            yield self._cut(self._question.named.possible(beside), None, Rule.GROUPS)
        decided = np.ones(self._trees, dtype=np.bool_)
        decided[self._refused] = False
        yield self._cut(decided, None, Rule.TOGETHER)

    def _cut(
        self,
        passing: Booleans,
        group: str | None,
        rule: Rule,
        *,
        resource: str | None = None,
        label: str | None = None,
        asked: int | None = None,
        most: int | None = None,
    ) -> Stage:
        """Leave the hosts that pass."""
        before = int(np.count_nonzero(self._left))
        self._left = self._left & passing
        after = int(np.count_nonzero(self._left))
        return Stage(group, rule, before, after, resource, label, asked, most)

    def _of_ask(self, ask: Ask) -> Iterator[Stage]:
        name, amount = ask.resource_class, ask.amount
        able = ~ask.rows.is_part
        pools = np.isin(ask.rows.provider, self._fleet.pools.providers)
        yield self._cut(self._trees_of(ask.rows, able, pools), "", Rule.NO_INVENTORY,
                        resource=name, asked=amount, most=self._most(ask.rows))  # fmt: skip
        pooled = np.flatnonzero(pools)
        of_pool = pools.copy()
        for number, (rule, label) in enumerate(ask.barriers):
            able = able & ~ask.own.is_barred[number]
            if ask.pooled is not None:
                of_pool[pooled] &= ~ask.pooled.is_barred[number]
            found = self._trees_of(ask.rows, able, of_pool)
            yield self._cut(found, "", rule, resource=name, label=label)
        most = self._most(ask.rows)
        found = necessary.enough(self._question, ask, None)
        yield self._cut(found, "", Rule.CAPACITY, resource=name, asked=amount, most=most)

    def _of_traits(self) -> Iterator[Stage]:
        """Yield what the traits leave that some class has to answer for."""
        for number, label in enumerate(self._question.required):
            found = necessary.answered(self._question, number)
            yield self._cut(found, "", Rule.TRAIT_MISSING, label=label)

    def _of_kind(self, kind: Kind) -> Iterator[Stage]:
        group = ", ".join(kind.suffixes)
        providers = len(self._fleet.names)
        own = np.ones(providers, dtype=np.bool_)
        for name, (rows, amount) in zip(kind.names, kind.classes, strict=True):
            pools = np.isin(rows.provider, self._fleet.pools.providers)
            found = self._trees_of(rows, ~rows.is_part, pools)
            most = self._most(rows)
            yield self._cut(found, group, Rule.NO_INVENTORY, resource=name, asked=amount, most=most)
            gives = giving(rows, amount)
            able = np.zeros(providers, dtype=np.bool_)
            able[rows.provider[gives]] = True
            own &= able
            found = self._of_providers(own, own)
            yield self._cut(found, group, Rule.CAPACITY, resource=name, asked=amount, most=most)
        pooled = own.copy()
        for one in kind.conditions:
            own, pooled = own & one.own, pooled & one.pooled
            found = self._of_providers(own, pooled)
            yield self._cut(found, group, one.rule, label=one.label)

    # --- trees ---

    def _trees_of(self, rows: ClassRows, own: Booleans, pooled: Booleans) -> Booleans:
        """Return the trees of some inventories of a class, and those linked to pools of others."""
        found = np.zeros(self._trees, dtype=np.bool_)
        found[rows.tree[own]] = True
        return found | self._linked(rows.provider[pooled])

    def _of_providers(self, own: Booleans, pooled: Booleans) -> Booleans:
        """Return the trees of some providers, and those linked to pools among others."""
        found = np.zeros(self._trees, dtype=np.bool_)
        found[self._fleet.tree[own]] = True
        pools = self._fleet.pools.providers
        return found | self._linked(pools[pooled[pools]])

    def _linked(self, pools: Integers) -> Booleans:
        if not len(pools):
            return np.zeros(self._trees, dtype=np.bool_)
        return self._fleet.pools.linked_to(pools, self._trees)

    def _most(self, rows: ClassRows) -> int:
        """Return the most that one provider of the hosts that are left, or a pool, has free."""
        here = self._left[rows.tree] | np.isin(rows.provider, self._fleet.pools.providers)
        return max(0, int(rows.free[here].max(initial=0)))


def emptied(every: Iterable[Stage]) -> Stage | None:
    """Return the stage after which no host was left, None if some was, or none there at all."""
    return next((one for one in every if one.before and not one.after), None)
