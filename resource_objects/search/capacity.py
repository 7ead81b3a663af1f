"""The capacity report: capacity, use and free amounts, and how much of these is of no use.

By resource class: for the whole fleet, for each host, and for the domains of levels (racks, rooms).
With a mix of usual requests, each line also has how many of each request fit, the stranded amount,
and the fragmentation.

*Stranded* is the free amount of a class on hosts that can hold no request of the mix for that
class. The free amount of a pool is stranded if this is true of all hosts that it serves.

The *fragment* of a class on a host, for one request m, is defined by Q. Weng et al., "Beware of
Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC
2023, section 3::

    F(host, m) = sum of free(i) over all i         if the host cannot hold m, or m requests none
    F(host, m) = sum of free(i) with free(i) < e   otherwise
    F(host)    = sum of p(m) * F(host, m)

where i are the inventories of the class on the host (its devices), e is the least amount that one
request uses of one of them, and p(m) is the frequency of m, its count divided by all counts of the
mix. The paper defines it for GPUs; here it is computed for every class. Fractions are exact.
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
from resource_objects.search.arrays import Booleans, Integers, sums_by
from resource_objects.search.fleet import Fleet
from resource_objects.search.gang_problem import domains_of_level
from resource_objects.search.how_many import Count, HowMany
from resource_objects.search.problem import Problem, compile_request, sharing_conflicts

#: The maximum number of amounts that are tried, the largest first, of devices that share one
#: inventory.
MOST_TRIED = 64


@dataclasses.dataclass(frozen=True, slots=True)
class ClassCapacity:
    """The amounts of one resource class.

    ``capacity`` is the sum of ``used``, ``free`` and ``disabled``, unless an inventory is over its
    capacity, or a free amount is used through shares (a partly allocated device is not free).

    >>> one = ClassCapacity("VCPU", 64, 4, 240, 100, 140, 0, 60, 60)
    >>> one.overcommit
    180
    """

    resource_class: str
    total: int
    reserved: int
    capacity: int  #: (total - reserved) * allocation ratio
    used: int
    free: int  #: can be allocated now
    disabled: int  #: would be free, but is disabled
    largest: int  #: the largest amount that a request of this class only can get
    largest_at_most: int  #: an upper bound of that; larger only if it is unknown
    stranded: int | None = None  #: of the free amount; None without a mix
    fragment: Fraction | None = None  #: of the free amount, by FGD; None without a mix

    @property
    def overcommit(self) -> int:
        """The part of the capacity that exceeds the hardware, by the allocation ratio."""
        return max(0, self.capacity - (self.total - self.reserved))

    @property
    def fragmentation(self) -> Fraction | None:
        """The fragment as a part of the free amount, 0 to 1; None without a mix."""
        if self.fragment is None:
            return None
        return self.fragment / self.free if self.free else Fraction(0)

    def __str__(self) -> str:
        largest = Count(self.largest, self.largest_at_most)
        text = f"{self.resource_class} {self.free} free of {self.capacity}, {self.used} used"
        if self.disabled:
            text += f", {self.disabled} out of service"
        text += f", {largest} for one request"
        return text if self.stranded is None else f"{text}, {self.stranded} stranded"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with fractions as floats."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["overcommit"] = self.overcommit
        for name in ("fragment", "fragmentation"):
            fraction = getattr(self, name)
            data[name] = None if fraction is None else float(fraction)
        return data


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """The amounts of each class, and how many of each member of the mix fit."""

    classes: Mapping[str, ClassCapacity]
    #: by member; for a host as if its pools served it only, for a domain the sum of its hosts
    fits: Mapping[str, Count] = FrozenDict()

    def __str__(self) -> str:
        fits = (f"{name}: {count} fit" for name, count in self.fits.items())
        return "\n".join([*map(str, self.classes.values()), *fits])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "classes": {name: line.to_dict() for name, line in self.classes.items()},
            "fits": {
                name: {"at_least": count.at_least, "at_most": count.at_most}
                for name, count in self.fits.items()
            },
        }


class CapacityReport:
    """The capacity, use and free amounts of a fleet, and how much a mix of requests cannot use.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(ro.Provider("host0", "VCPU=8,PGPU=2"))
    ...     done = ledger.sync(ro.Provider("host1", "VCPU=8"))
    ...     done = ledger.claim("job-1", {"host0": "VCPU=7"})
    ...     report = ledger.snapshot().report("VCPU=4,PGPU=1")
    >>> gpus, cpus = report.whole.classes["PGPU"], report.whole.classes["VCPU"]
    >>> gpus.free, gpus.stranded  # two GPUs are free, without CPUs on their host
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
        stored: Fleet,
        mix: Gang | None,
        fits: Mapping[str, HowMany],
        levels: Mapping[str, Collection[str]],
        can_hold: Callable[[str, str, int], bool | None],
    ) -> None:
        """:param fleet: with its disabled units and limits in force

        :param stored: the same fleet with all units
        :param fits: by member of the mix, how many fit
        :param can_hold: returns whether a host can hold an amount of a class; None: cut short
        """
        self.mix, self._can_hold = mix, can_hold
        self._fleet, self._fits = fleet, fits
        self._domains = {level: domains_of_level(levels, level, fleet) for level in levels}
        self._classes = {
            name: _ClassArrays(fleet, stored, name)
            for name in sorted(fleet.classes, key=resource_class_order)
        }
        self._problems = {
            m.name: compile_request(m.request, fleet) for m in (mix.members if mix else ())
        }
        #: by member and tree, whether it may hold one
        self._holds = {name: self._may_hold(name) for name in self._problems}
        self._searched: dict[tuple[str, int], Count] = {}  # the largest amounts by class and tree

    @functools.cached_property
    def whole(self) -> Capacity:
        """The whole fleet, pools included."""
        trees = np.arange(len(self._fleet.hosts))
        return self._capacity(trees, {name: answer.total for name, answer in self._fits.items()})

    @functools.cached_property
    def hosts(self) -> Mapping[str, Capacity]:
        """Each host, by name, with the classes that it has."""
        fleet = self._fleet
        return FrozenDict(
            {
                name: self._capacity(np.array([tree]), self._fits_on([tree]))
                for tree, name in enumerate(fleet.hosts)
                if tree not in fleet.pools.trees and fleet.is_within(tree)
            }
        )

    @functools.cached_property
    def levels(self) -> Mapping[str, Mapping[str, Capacity]]:
        """Each domain of each level, by name, without pools."""
        return FrozenDict(
            {
                level: FrozenDict(
                    {
                        name: self._capacity(trees, self._fits_on(trees.tolist()))
                        for name, trees in domains.items()
                    }
                )
                for level, domains in self._domains.items()
            }
        )

    def __str__(self) -> str:
        return str(self.whole)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "mix": None if self.mix is None else str(self.mix),
            "whole": self.whole.to_dict(),
            "hosts": {name: line.to_dict() for name, line in self.hosts.items()},
            "levels": {
                level: {name: line.to_dict() for name, line in domains.items()}
                for level, domains in self.levels.items()
            },
        }

    # --- lines ---

    def _fits_on(self, trees: Sequence[int]) -> dict[str, Count]:
        names = [self._fleet.hosts[tree] for tree in trees]
        fits = {}
        for member, answer in self._fits.items():
            counts = [answer.by_host[name] for name in names if name in answer.by_host]
            fits[member] = Count(
                sum(count.at_least for count in counts), sum(count.at_most for count in counts)
            )
        return fits

    def _capacity(self, trees: Integers, fits: Mapping[str, Count]) -> Capacity:
        classes = {}
        for name, arrays in self._classes.items():
            if not arrays.has[trees].any():
                continue
            stranded = fragment = None
            if self.mix is not None:
                of_class, fragments = self._unusable[name]
                stranded = int(of_class[trees].sum())
                fragment = Fraction(sum(fragments[trees].tolist()), self.mix.count)
            largest = self._largest(arrays, trees)
            classes[name] = ClassCapacity(
                name,
                **{key: int(column[trees].sum()) for key, column in arrays.sums.items()},
                largest=largest.at_least,
                largest_at_most=largest.at_most,
                stranded=stranded,
                fragment=fragment,
            )
        return Capacity(FrozenDict(classes), FrozenDict(fits))

    def _largest(self, arrays: _ClassArrays, trees: Integers) -> Count:
        """Return the largest amount that one request can get on some trees."""
        at_least = at_most = int(arrays.of_one[trees].max())
        for tree in trees[np.argsort(-arrays.together[trees], kind="stable")].tolist():
            if arrays.together[tree] <= at_least:
                break
            here = self._largest_on(arrays, tree)
            at_least, at_most = max(at_least, here.at_least), max(at_most, here.at_most)
        return Count(at_least, at_most)

    def _largest_on(self, arrays: _ClassArrays, tree: int) -> Count:
        """Return the largest amount that the devices of a tree provide together.

        If they share one inventory, which has less than all of them, amounts are searched.
        """
        most, least = int(arrays.together[tree]), int(arrays.of_one[tree])
        if not arrays.is_shared[tree]:
            return Count(most, most)
        key = arrays.name, tree
        if key not in self._searched:
            at_most = max(most - MOST_TRIED, least)
            self._searched[key] = Count(least, at_most)
            for amount in range(most, at_most, -1):
                can_hold = self._can_hold(self._fleet.hosts[tree], arrays.name, amount)
                if can_hold is not False:
                    at_most = max(amount, at_most)
                    self._searched[key] = Count(amount if can_hold else least, at_most)
                if can_hold:
                    break
        return self._searched[key]

    # --- amounts that the mix cannot use ---

    def _may_hold(self, member: str) -> Booleans:
        """Return by tree whether it may hold one of a member, or is a pool that serves such."""
        fleet, by_host = self._fleet, self._fits[member].by_host
        holds = np.array(
            [name in by_host and by_host[name].at_most > 0 for name in fleet.hosts], dtype=np.bool_
        )
        hosts = holds.copy()
        for pool in fleet.pools.providers.tolist():
            is_served = fleet.pools.linked_to(np.array([pool]), len(holds))
            if fleet.tree[pool] in fleet.pools.trees and (is_served & hosts).any():
                holds[fleet.tree[pool]] = True
        return holds

    @functools.cached_property
    def _unusable(self) -> dict[str, tuple[Integers, Integers]]:
        """By class and tree, what is stranded, and the fragments of all requests of the mix."""
        unusable = {}
        for name, arrays in self._classes.items():
            free = arrays.sums["free"]
            is_useful, fragments = np.zeros(len(free), dtype=np.bool_), np.zeros_like(free)
            for member in self.mix.members if self.mix else ():
                least, fragment = _least(self._problems[member.name], name), free
                if least is not None:
                    holds = self._holds[member.name]
                    is_useful |= holds
                    fragment = np.where(holds, arrays.free_below(least), free)
                fragments += member.count * fragment
            unusable[name] = np.where(is_useful, 0, free), fragments
        return unusable


class _ClassArrays:
    """One class over a fleet, by tree."""

    def __init__(self, fleet: Fleet, stored: Fleet, name: str) -> None:
        rows, rows_stored = fleet.rows(name), stored.rows(name)
        self.name, self._rows, self._trees = name, rows, len(fleet.hosts)
        self._is_counted = fleet.counted(rows)
        if fleet.within is not None:
            self._is_counted = self._is_counted & (rows.tree == fleet.within)
        out_of_service = fleet.disabled_mask()
        is_disabled = np.zeros_like(self._is_counted)
        if out_of_service is not None:
            is_disabled = out_of_service[rows.provider]
        self._free = fleet.free(rows)
        disabled = np.where(is_disabled, rows.capacity - rows.used, 0).clip(0)
        self.sums = {
            "total": self._sum(rows.total),
            "reserved": self._sum(rows.reserved),
            "capacity": self._sum(rows_stored.capacity),
            "used": self._sum(rows.used),
            "free": self._sum(self._free),
            # providers, and units of the other providers
            "disabled": self._sum(disabled + (rows_stored.capacity - rows.capacity)),
        }
        self.has = np.zeros(self._trees, dtype=np.bool_)
        self.has[rows.tree[self._is_counted]] = True
        able = ~rows.is_part & ~is_disabled & (rows.low <= rows.high) & (rows.high > 0)
        #: the most that one inventory provides
        self.of_one = np.zeros(self._trees, dtype=np.int64)
        np.maximum.at(self.of_one, rows.tree[able], rows.high[able])
        devices = able & (rows.is_below if is_device(name) else rows.is_single)
        together = sums_by(rows.high[devices], rows.tree[devices], self._trees)
        #: the most that several devices provide, each within its unit rules
        self.together = np.maximum(self.of_one, together)
        #: whether they may provide less, since they share an inventory
        self.is_shared = sharing_conflicts(fleet, np.flatnonzero(devices) + rows.first)

    def free_below(self, least: int) -> Integers:
        """Return by tree the free amount of inventories with less than ``least`` free.

        :param least: 0 for the min_unit of each inventory
        """
        rows = self._rows
        need = rows.min_unit if not least else np.full(len(rows.free), least)
        return self._sum(np.where(self._free < need, self._free, 0))

    def _sum(self, column: Integers) -> Integers:
        counted = self._is_counted
        return sums_by(column[counted], self._rows.tree[counted], self._trees)


def _least(problem: Problem, name: str) -> int | None:
    """Return the least amount of a class that a request uses of one inventory; None if it does not.

    0 stands for the min_unit of each inventory, if devices provide parts.
    """
    least = [0 if d.is_split else d.amount for d in problem.classes if d.resource_class == name]
    for kind in problem.named.kinds:
        least += [amount for other, _, amount in kind.amounts if other == name]
    least += [0 for condition in problem.located if name in condition.classes]
    return min(least, default=None)
