"""The capacity report: what there is, what is used, what is free, and what of that is of no use.

By class, for all of a fleet, for each host and pool, and for the places of levels (racks, rooms).
Where a mix of requests is said, what is usual here, each line also tells how many of each fit, what
is stranded, and how fragmented what is free is.

*Stranded* is what is free of a class on hosts that can hold no request of the mix which asks for
that class: nobody who usually comes can use it there. Of a pool it is stranded where that is so of
all hosts that it serves.

The *fragment* of a class on a host, for one request m, is after Q. Weng et al., "Beware of
Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC
2023, section 3::

    F(host, m) = sum of free(i) over all i         if the host cannot hold m, or m asks for none
    F(host, m) = sum of free(i) with free(i) < e   otherwise
    F(host)    = sum of p(m) * F(host, m)

where i are the inventories of the class on the host (its devices), e what one request takes of one
of them at least, and p(m) how usual m is, its count in the mix as a part of all. The paper says it
of GPUs; here it is said of any class. Fractions are exact.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from resource_objects.fields import FrozenDict
from resource_objects.names import resource_class_order
from resource_objects.requests import Gang
from resource_objects.resources.catalog import is_device
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.counting import sharing_conflicts
from resource_objects.search.fleet import Fleet
from resource_objects.search.gang_problem import domains_of_level
from resource_objects.search.how_many import Count, HowMany
from resource_objects.search.problem import Problem, lay

#: So many amounts are tried of devices that draw on one inventory, the largest first.
MOST_TRIED = 64


@dataclasses.dataclass(frozen=True, slots=True)
class ClassCapacity:
    """What there is of one class, somewhere.

    ``capacity`` is ``used`` and ``free`` and ``disabled``, where nothing is used beyond its
    capacity, and nothing is used elsewhere too (a device of which others have a part is not free).

    >>> one = ClassCapacity("VCPU", 64, 4, 240, 100, 140, 0, 60, 60)
    >>> one.overcommit
    180
    """

    resource_class: str
    total: int
    reserved: int
    capacity: int  #: (total - reserved) * allocation ratio
    used: int
    free: int  #: can be taken now
    disabled: int  #: would be free, but is out of service
    largest: int  #: so much can one request be given that asks for nothing else
    largest_at_most: int  #: no more can be; the same, but where that is not known
    stranded: int | None = None  #: of what is free; None: no mix was said
    fragment: Fraction | None = None  #: of what is free, by FGD; None: no mix was said

    @property
    def overcommit(self) -> int:
        """How much of the capacity is there by an allocation ratio alone."""
        return max(0, self.capacity - (self.total - self.reserved))

    @property
    def fragmentation(self) -> Fraction | None:
        """Which part of what is free is a fragment: 0 to 1; None: no mix was said."""
        if self.fragment is None:
            return None
        return self.fragment / self.free if self.free else Fraction(0)

    def __str__(self) -> str:
        largest = Count(self.largest, self.largest_at_most)
        told = f"{self.resource_class} {self.free} free of {self.capacity}, {self.used} used"
        if self.disabled:
            told += f", {self.disabled} out of service"
        told += f", {largest} for one request"
        return told if self.stranded is None else f"{told}, {self.stranded} stranded"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, fractions as decimal numbers."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        found["overcommit"] = self.overcommit
        for name in ("fragment", "fragmentation"):
            told = getattr(self, name)
            found[name] = None if told is None else float(told)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """What there is somewhere, by class, and how many of each member of the mix fit there."""

    classes: Mapping[str, ClassCapacity]
    #: by member; of a host if all pools were its own, of a place the sum of its hosts
    fits: Mapping[str, Count] = FrozenDict()

    def __str__(self) -> str:
        fits = (f"{name}: {count} fit" for name, count in self.fits.items())
        return "\n".join([*map(str, self.classes.values()), *fits])

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "classes": {name: one.to_dict() for name, one in self.classes.items()},
            "fits": {
                name: {"at_least": one.at_least, "at_most": one.at_most}
                for name, one in self.fits.items()
            },
        }


class CapacityReport:
    """What a fleet has, uses and has free, and what of that a mix of requests cannot use.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(ro.Provider("host0", "VCPU=8,PGPU=2"))
    ...     done = ledger.sync(ro.Provider("host1", "VCPU=8"))
    ...     done = ledger.claim("job-1", {"host0": "VCPU=7"})
    ...     report = ledger.snapshot().report("VCPU=4,PGPU=1")
    >>> gpus, cpus = report.whole.classes["PGPU"], report.whole.classes["VCPU"]
    >>> gpus.free, gpus.stranded  # two GPUs are free, and no CPUs beside them
    (2, 2)
    >>> cpus.capacity, cpus.used, cpus.free, cpus.largest
    (16, 7, 9, 8)
    >>> print(report.whole.fits["request"])
    0
    >>> report.hosts["host0"].classes["PGPU"].fragmentation
    Fraction(1, 1)
    >>> print(report)
    VCPU 9 free of 16, 7 used, 8 for one request, 9 stranded
    PGPU 2 free of 2, 0 used, 2 for one request, 2 stranded
    request: 0 fit
    """

    def __init__(
        self,
        fleet: Fleet,
        kept: Fleet,
        mix: Gang | None,
        fits: Mapping[str, HowMany],
        levels: Mapping[str, Collection[str]],
        can: Callable[[str, str, int], bool | None],
    ) -> None:
        """:param fleet: as it is in force

        :param kept: the same with the units that are out of service alone
        :param fits: by member of the mix, how many fit
        :param can: whether a host can give so much of a class; None: the budget ended before that
        """
        self.mix, self._can = mix, can
        self._fleet, self._fits = fleet, fits
        self._places = {level: domains_of_level(levels, level, fleet) for level in levels}
        self._names = sorted(fleet.classes, key=resource_class_order)
        out = fleet.out_of_service()
        self._is_out = np.zeros(len(fleet.names), dtype=np.bool_) if out is None else out
        self._of_class = {name: _OfClass(fleet, kept, name, self._is_out) for name in self._names}
        self._kinds = (
            []
            if mix is None
            else [(one.name, one.count, lay(one.request, fleet)) for one in mix.members]
        )
        self._known: dict[tuple[str, int], Count] = {}  # the largest of trees that were tried
        #: by member and tree: may hold one
        self._holds = {name: self._holding(name) for name, _, _ in self._kinds}

    @functools.cached_property
    def whole(self) -> Capacity:
        """All of it, pools too."""
        every = np.arange(len(self._fleet.hosts))
        return self._of(every, {name: one.total for name, one in self._fits.items()})

    @functools.cached_property
    def hosts(self) -> Mapping[str, Capacity]:
        """Each host, by name, with the classes that it has."""
        fleet = self._fleet
        return FrozenDict(
            {
                name: self._of_host(tree)
                for tree, name in enumerate(fleet.hosts)
                if tree not in fleet.pools.trees and fleet.is_within(tree)
            }
        )

    @functools.cached_property
    def levels(self) -> Mapping[str, Mapping[str, Capacity]]:
        """Each place of each level, by name; pools are in none."""
        found = {}
        for level, places in self._places.items():
            found[level] = FrozenDict(
                {name: self._of(trees, self._fits_on(trees)) for name, trees in places.items()}
            )
        return FrozenDict(found)

    def __str__(self) -> str:
        return str(self.whole)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "mix": None if self.mix is None else str(self.mix),
            "whole": self.whole.to_dict(),
            "hosts": {name: one.to_dict() for name, one in self.hosts.items()},
            "levels": {
                level: {name: one.to_dict() for name, one in places.items()}
                for level, places in self.levels.items()
            },
        }

    # --- lines ---

    def _of_host(self, tree: int) -> Capacity:
        return self._of(np.array([tree]), self._fits_on([tree]))

    def _fits_on(self, trees: Integers | Sequence[int]) -> dict[str, Count]:
        names = [self._fleet.hosts[int(tree)] for tree in trees]
        found = {}
        for member, fits in self._fits.items():
            some = [fits.by_host[name] for name in names if name in fits.by_host]
            found[member] = Count(
                sum(one.at_least for one in some), sum(one.at_most for one in some)
            )
        return found

    def _of(self, trees: Integers, fits: Mapping[str, Count]) -> Capacity:
        found = {}
        for name in self._names:
            one = self._of_class[name]
            if not one.has[trees].any():
                continue
            figures = {key: int(column[trees].sum()) for key, column in one.sums.items()}
            stranded = fragment = None
            if self._kinds:
                stranded = int(self._stranded[name][trees].sum())
                weights = sum(count for _, count, _ in self._kinds)
                parts = self._fragments[name][trees].tolist()
                fragment = Fraction(sum(parts), weights)
            largest = self._largest(one, trees)
            found[name] = ClassCapacity(
                name,
                **figures,
                largest=largest.at_least,
                largest_at_most=largest.at_most,
                stranded=stranded,
                fragment=fragment,
            )
        return Capacity(FrozenDict(found), FrozenDict(fits))

    def _largest(self, one: _OfClass, trees: Integers) -> Count:
        """Return the largest amount that one request can be given on some trees."""
        least = most = int(one.alone[trees].max())
        for tree in trees[np.argsort(-one.largest[trees], kind="stable")].tolist():
            if one.largest[tree] <= least:
                break
            here = self._tried(one, tree)
            least, most = max(least, here.at_least), max(most, here.at_most)
        return Count(least, most)

    def _tried(self, one: _OfClass, tree: int) -> Count:
        """Return the largest amount of a tree that its devices give together.

        Where they draw on one inventory, which has less than they have, the largest are tried.
        """
        most, least = int(one.largest[tree]), int(one.alone[tree])
        if not one.is_met[tree]:
            return Count(most, most)
        key = one.name, tree
        if key not in self._known:
            amounts = range(most, least, -1)
            unknown = amounts[MOST_TRIED:][:1]
            found = Count(least, max(unknown, default=least))
            for amount in amounts[:MOST_TRIED]:
                can = self._can(self._fleet.hosts[tree], one.name, amount)
                if can is None:
                    found = Count(least, max(amount, found.at_most))
                elif can:
                    found = Count(amount, max(amount, found.at_most))
                    break
            self._known[key] = found
        return self._known[key]

    # --- what the mix cannot use ---

    def _holding(self, member: str) -> Booleans:
        """Return by tree whether it may hold one of a member; of pools, whether they are used."""
        fleet, found = self._fleet, np.zeros(len(self._fleet.hosts), dtype=np.bool_)
        by_host = self._fits[member].by_host
        for tree, name in enumerate(fleet.hosts):
            found[tree] = name in by_host and by_host[name].at_most > 0
        hosts = found.copy()
        for pool in fleet.pools.providers.tolist():
            linked = fleet.pools.linked_to(np.array([pool]), len(found))
            if fleet.tree[pool] in fleet.pools.trees and (linked & hosts).any():
                found[fleet.tree[pool]] = True
        return found

    @functools.cached_property
    def _stranded(self) -> dict[str, Integers]:
        found = {}
        for name, one in self._of_class.items():
            is_of_use = np.zeros(len(self._fleet.hosts), dtype=np.bool_)
            for member, _, problem in self._kinds:
                if _least(problem, name) is not None:
                    is_of_use |= self._holds[member]
            found[name] = np.where(is_of_use, 0, one.sums["free"])
        return found

    @functools.cached_property
    def _fragments(self) -> dict[str, Integers]:
        """The fragments of each class by tree, each request as often as it is in the mix."""
        found = {}
        for name, one in self._of_class.items():
            total = np.zeros(len(self._fleet.hosts), dtype=np.int64)
            for member, count, problem in self._kinds:
                least = _least(problem, name)
                lost = one.sums["free"]
                if least is not None:
                    lost = np.where(self._holds[member], one.below(least), lost)
                total += count * lost
            found[name] = total
        return found


class _OfClass:
    """One class over a fleet: sums by tree."""

    def __init__(self, fleet: Fleet, kept: Fleet, name: str, is_out: Booleans) -> None:
        rows = fleet.rows(name)
        self.name, self._rows, trees = name, rows, len(fleet.hosts)
        some = fleet.counted(rows)
        if fleet.within is not None:
            some = some & (rows.tree == fleet.within)
        self._some = some
        out = is_out[rows.provider]
        before = kept.rows(name)
        self._free = fleet.free(rows)
        disabled = np.where(out, rows.capacity - rows.used, 0).clip(0)
        disabled = disabled + (before.capacity - rows.capacity)  # units that are out alone
        self.sums = {
            "total": self._sum(rows.total, some, trees),
            "reserved": self._sum(rows.reserved, some, trees),
            "capacity": self._sum(before.capacity, some, trees),
            "used": self._sum(rows.used, some, trees),
            "free": self._sum(self._free, some, trees),
            "disabled": self._sum(disabled, some, trees),
        }
        self.has = np.zeros(trees, dtype=np.bool_)
        self.has[rows.tree[some]] = True
        able = ~rows.is_part & ~out & (rows.low <= rows.high) & (rows.high > 0)
        #: the most that one inventory gives
        self.alone = np.zeros(trees, dtype=np.int64)
        np.maximum.at(self.alone, rows.tree[able], rows.high[able])
        parts = able & (rows.is_below if is_device(name) else rows.is_single)
        together = np.zeros(trees, dtype=np.int64)
        np.add.at(together, rows.tree[parts], rows.high[parts])
        #: the same where devices give all that they have, each within its rules
        self.largest = np.maximum(self.alone, together)
        #: where they may not, for they draw on what others draw on
        self.is_met = sharing_conflicts(fleet, np.flatnonzero(parts) + rows.first)

    def below(self, least: int | None) -> Integers:
        """Return by tree what is free of inventories that have less than ``least`` free.

        :param least: 0 for what keeps the unit rules of each inventory
        """
        rows = self._rows
        need = rows.min_unit if not least else np.full(len(rows.free), least)
        return self._sum(np.where(self._free < need, self._free, 0), self._some, len(self.has))

    def _sum(self, column: Integers, some: Booleans, trees: int) -> Integers:
        found = np.zeros(trees, dtype=np.int64)
        np.add.at(found, self._rows.tree[some], column[some])
        return found


def _least(problem: Problem, name: str) -> int | None:
    """Return what a request takes of one inventory of a class at least; None if it asks for none.

    0 stands for what the unit rules of each inventory allow, where devices give parts.
    """
    found: list[int] = []
    for ask in problem.demands:
        if ask.resource_class == name:
            found.append(0 if ask.is_split else ask.amount)
    for kind in problem.named.kinds:
        for other, (_, amount) in zip(kind.names, kind.classes, strict=True):
            if other == name:
                found.append(amount)
    for where in problem.located:
        if name in where.demand.classes:
            found.append(0)
    return min(found, default=None)
