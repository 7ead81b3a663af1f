"""What stands against the named groups on one tree, as reasons.

First each kind of group by itself: is the class there, is there room at one provider, do those with
room meet the conditions. If each could be given, then what keeps them from it together: too few
providers for isolated groups, too little of a class for all of them, nobody above the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from resource_objects.exceptions import Reason, Rule
from resource_objects.search.arrays import Integers
from resource_objects.search.assigning import Assigning
from resource_objects.search.budget import Budget, Exhausted
from resource_objects.search.fleet import ClassRows
from resource_objects.search.matching import matched
from resource_objects.search.named import Kind, Named, giving, pools_of
from resource_objects.search.question import Question
from resource_objects.search.unplaced import barred

#: Steps that explaining may take to find out whether some groups can be given.
PATIENCE = 10_000


def of_named(question: Question, tree: int) -> tuple[Reason, ...]:
    """Return what stands against the named groups; nothing if they could be given by themselves.

    Cost: some 50 microseconds for each kind of group.
    """
    return tuple(_Tree(question, tree).reasons())


def all_at_once(named: Named, host: str) -> Reason:
    """Return the reason for groups that could be given, but not all at once."""
    count = sum(kind.count for kind in named.kinds)
    return Reason(Rule.GROUPS, count, 0, 0, where=host, group=_told(named.kinds))


def of_groups_without_inventory(named: Named, host: str) -> tuple[Reason, ...]:
    """Return the reasons for a tree that keeps nothing of what is asked."""
    return tuple(
        Reason(Rule.NO_INVENTORY, amount, 0, 0, name, host, group=_told([kind]))
        for kind in named.kinds
        for name, (_, amount) in zip(kind.names, kind.classes, strict=True)
    )


def _told(kinds: Sequence[Kind]) -> str:
    return ", ".join(suffix for kind in kinds for suffix in kind.suffixes)


class _Tree:
    """The findings of one tree while they are made."""

    def __init__(self, question: Question, tree: int) -> None:
        self._question = question
        self._named = question.named
        self._fleet = question.fleet
        self._tree = tree
        self._host = question.fleet.hosts[tree]
        own = question.fleet.of_tree(tree)
        self._providers = np.array(
            [*own, *pools_of(question.fleet, question.rules, tree)], dtype=np.int64
        )
        self._own = len(own)

    def reasons(self) -> list[Reason]:
        found = [reason for kind in self._named.kinds for reason in self._of_kind(kind)]
        return list(dict.fromkeys(found or self._of_all()))

    # --- one kind by itself ---

    def _of_kind(self, kind: Kind) -> Iterator[Reason]:
        if self._named.options(kind, self._tree):
            return
        group = _told([kind])
        for reason in self._of_classes(kind) or self._of_conditions(kind):
            yield dataclasses.replace(reason, group=group)

    def _of_classes(self, kind: Kind) -> list[Reason]:
        """Return what there is not enough of, or that nobody has enough of all."""
        found: list[Reason] = []
        gives = np.zeros(len(self._providers), dtype=np.int64)
        for name, (rows, amount) in zip(kind.names, kind.classes, strict=True):
            here = np.flatnonzero(np.isin(rows.provider, self._providers) & ~rows.is_part)
            able = here[giving(rows, amount)[here]]
            if not len(here):
                found.append(Reason(Rule.NO_INVENTORY, amount, 0, 0, name, self._host))
            elif not len(able):
                found.append(self._short(name, rows, amount, here))
            gives += np.isin(self._providers, rows.provider[able])
        most, count = int(gives.max(initial=0)), len(kind.classes)
        if not found and most < count:
            found.append(Reason(Rule.ONE_PROVIDER, count, most, 0, where=self._host))
        return found

    def _short(self, name: str, rows: ClassRows, amount: int, here: Integers) -> Reason:
        """Return why whoever has most of a class does not give so much."""
        entry = int(max(here.tolist(), key=lambda at: (int(rows.free[at]), -at)))
        where = self._fleet.names[int(rows.provider[entry])]
        capacity, used = int(rows.capacity[entry]), int(rows.used[entry])
        rules = (
            (int(rows.free[entry]) < amount, Rule.CAPACITY, capacity),
            (amount < rows.min_unit[entry], Rule.MIN_UNIT, int(rows.min_unit[entry])),
            (amount > rows.max_unit[entry], Rule.MAX_UNIT, int(rows.max_unit[entry])),
            (True, Rule.STEP_SIZE, int(rows.step_size[entry])),
        )
        rule, bound = next((rule, bound) for fails, rule, bound in rules if fails)
        holders: tuple[tuple[str, int], ...] = ()
        if rule is Rule.CAPACITY:
            holders = self._fleet.holders([rows.first + entry])
            used = max(used, capacity - int(rows.free[entry]))
        return Reason(rule, amount, bound, used, name, where, holders)

    def _of_conditions(self, kind: Kind) -> list[Reason]:
        """Return the conditions that those with room do not meet."""
        able = np.ones(len(self._providers), dtype=np.bool_)
        for rows, amount in kind.classes:
            able &= np.isin(self._providers, rows.provider[giving(rows, amount)])
        some = self._providers[able]
        is_own = np.flatnonzero(able) < self._own
        flags = [~np.where(is_own, one.own[some], one.pooled[some]) for one in kind.conditions]
        (_, amount), name = (kind.classes or ((None, 1),))[0], (kind.names or ("provider",))[0]
        barriers = [(one.rule, one.label) for one in kind.conditions]
        return barred(barriers, flags, amount, name, self._host)

    # --- all together ---

    def _of_all(self) -> list[Reason]:
        found = list(self._too_few())
        found += [] if found else list(self._too_little())
        return found or list(self._apart())

    def _too_few(self) -> Iterator[Reason]:
        """Yield that isolated groups have too few providers."""
        if not self._named.isolates:
            return
        kinds = self._named.kinds
        options = [self._named.options(kind, self._tree) for kind in kinds]
        place = {p: at for at, p in enumerate(sorted({p for some in options for p in some}))}
        masks = [sum(1 << place[p] for p in some) for some in options]
        counts = [kind.count for kind in kinds]
        most = matched(zip(counts, masks, strict=True))
        if most < sum(counts):
            group = _told(kinds)
            yield Reason(Rule.ISOLATED, sum(counts), most, 0, where=self._host, group=group)

    def _too_little(self) -> Iterator[Reason]:
        """Yield the classes of which there is too little for all groups, named or not."""
        asked = {ask.resource_class: ask.amount for ask in self._question.asks}
        kinds: dict[str, list[Kind]] = {}
        for kind in self._named.kinds:
            for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
                asked[name] = asked.get(name, 0) + amount * kind.count
                kinds.setdefault(name, []).append(kind)
        for name, some in kinds.items():
            rows = self._fleet.rows(name)
            here = np.isin(rows.provider, self._providers) & ~rows.is_part
            free = int(rows.free[here].clip(0).sum())
            if free < asked[name]:
                capacity = int(rows.capacity[here].sum())
                numbers = (np.flatnonzero(here) + rows.first).tolist()
                yield Reason(
                    Rule.CAPACITY,
                    asked[name],
                    capacity,
                    capacity - free,
                    name,
                    self._host,
                    self._fleet.holders(numbers),
                    group=_told(some),
                )
            elif any(self._slots(kind) < kind.count for kind in some):
                count = sum(kind.count for kind in some)
                group = _told(some)
                yield Reason(Rule.GROUPS, count, 0, 0, where=self._host, group=group)

    def _slots(self, kind: Kind) -> int:
        """Return how many groups of a kind could be given if there were no others."""
        options = self._named.options(kind, self._tree)
        total = 0
        for provider in options:
            times = [kind.count]
            for rows, amount in kind.classes:
                entry = int(rows.provider.searchsorted(provider))
                most = min(int(rows.free[entry]), int(rows.max_unit[entry]))
                times.append(max(0, most) // amount)
            total += min(times)
        return total

    def _apart(self) -> Iterator[Reason]:
        """Yield the sets of groups of which none is above the others."""
        for subtree in range(self._named.subtrees):
            kinds = tuple(
                dataclasses.replace(kind, subtrees=frozenset({0}))
                for kind in self._named.kinds
                if subtree in kind.subtrees
            )
            few = dataclasses.replace(self._named, kinds=kinds, isolates=False, subtrees=1)
            if not _can(few, self._tree):
                count = sum(kind.count for kind in kinds)
                yield Reason(Rule.SUBTREE, count, 0, 0, where=self._host, group=_told(kinds))


def _can(named: Named, tree: int) -> bool:
    """Return whether groups can be given, or whether that takes too long to find out."""
    try:
        return next(Assigning(named, tree, Budget(PATIENCE)).ways(), None) is not None
    except Exhausted:
        return True
