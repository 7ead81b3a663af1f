"""The view that filters and weighers have of a snapshot and of the reports of agents."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from resource_objects.exceptions import InvalidInput
from resource_objects.ledger import Ledger
from resource_objects.providers.definition import inventories_of
from resource_objects.providers.statistics import Statistic, StatisticsByProvider
from resource_objects.resources import Inventories, Inventory
from resource_objects.resources.catalog import is_device
from resource_objects.resources.records import InventoryRecord
from resource_objects.search.arrays import Booleans, Figures, Integers, frozen, sums_by
from resource_objects.search.demands import view_of
from resource_objects.search.fleet import ClassRows, Fleet

#: Later than every report.
_END_OF_TIME = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)


class HostStates(Mapping[str, "HostState"]):
    """The hosts of a snapshot: a mapping by name, and arrays with an entry for each host.

    Arrays are in the order of :attr:`hosts` and must not be modified. They are computed when they
    are first read, then cached. A figure of a host is the sum over all its providers.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     plan = ledger.sync(ro.Provider("a", "VCPU=8"), ro.Provider("b", "VCPU=4"))
    ...     claim = ledger.claim("job-1", {"a": "VCPU=6"})
    ...     states = HostStates(ledger.snapshot().fleet)
    >>> states.free("VCPU").tolist()
    [2, 4]
    >>> request = ro.Request("VCPU=3")
    >>> for name, state in states.items():
    ...     for resource, amount in request.resources.items():
    ...         if state.inventories[resource].can_provide(amount):
    ...             print(name, state.inventories[resource].consume(amount))
    b 3
    """

    def __init__(self, fleet: Fleet, reports: Reports | None = None) -> None:
        """:param reports: the reports of agents; None: there are none"""
        self.fleet = fleet
        self.reports = reports or Reports()
        self._states: dict[int, HostState] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts, in order; the roots of trees of pools are among them."""
        return self.fleet.hosts

    @functools.cached_property
    def number(self) -> Mapping[str, int]:
        """The position of each host in the arrays, by name."""
        return {name: tree for tree, name in enumerate(self.fleet.hosts)}

    def __getitem__(self, name: str) -> HostState:
        return self.at(self.number[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.fleet.hosts)

    def __len__(self) -> int:
        return len(self.fleet.hosts)

    def at(self, tree: int) -> HostState:
        """Return the host at a position of the arrays."""
        if tree not in self._states:
            self._states[tree] = HostState(self, tree)
        return self._states[tree]

    # --- all hosts at once ---

    def all(self) -> Booleans:
        """Return a new array with True for each host."""
        return np.ones(len(self), dtype=np.bool_)

    def named(self, names: Iterable[str]) -> Booleans:
        """Return which hosts have one of some names. Cost: linear in the names."""
        fleet, mask = self.fleet, np.zeros(len(self), dtype=np.bool_)
        providers = {name: fleet.place_by_key[name] for name in names if name in fleet.place_by_key}
        trees = fleet.tree[np.array(list(providers.values()), dtype=np.intp)].tolist()
        pairs = zip(trees, providers, strict=True)
        mask[[tree for tree, name in pairs if fleet.hosts[tree] == name]] = True
        return mask

    def physical(self, resource_class: str) -> Integers:
        """Return the total minus reserved amount of a class at each host, without any ratio."""
        rows = self.fleet.rows(resource_class)
        counts = ~rows.is_part
        return sums_by((rows.total - rows.reserved)[counts], rows.tree[counts], len(self))

    def capacity(self, resource_class: str) -> Integers:
        """Return the capacity of a class at each host."""
        return self.fleet.totals(resource_class)[0]

    def free(self, resource_class: str) -> Integers:
        """Return the free amount of a class at each host."""
        return self.fleet.totals(resource_class)[2]

    def used(self, resource_class: str) -> Integers:
        """Return the usage of a class at each host, with what is not free because of shares."""
        return self.fleet.totals(resource_class)[1]

    def having(self, *traits: str) -> Booleans:
        """Return which hosts have one of some traits, at any provider."""
        return self._by_tree(self.fleet.having(self.fleet.traits, traits))

    def members(self, *aggregates: str) -> Booleans:
        """Return which hosts are in one of some aggregates, with any provider."""
        return self._by_tree(self.fleet.having(self.fleet.aggregates, aggregates))

    def holding(self, consumers: Iterable[str]) -> Integers:
        """Return the number of some consumers with allocations at each host, without pools."""
        counts, pools = np.zeros(len(self), dtype=np.int64), self.fleet.pools.places
        for consumer in consumers:
            providers = set(self.fleet.places_of_holders.get(consumer) or ()) - pools
            counts[sorted({int(self.fleet.tree[provider]) for provider in providers})] += 1
        return counts

    def statistic(self, name: str) -> Figures:
        """Return a statistic of each host as a number; NaN for a text, and if not reported."""
        return self.reports.figures(name, self.hosts)

    def statistic_meets(
        self, name: str, is_met: Callable[[str], bool], unreported: bool
    ) -> Booleans:
        """Return which hosts report a statistic whose text meets a condition.

        :param unreported: the result for hosts that do not report it
        """
        reports, is_met = self.reports.of(name), functools.cache(is_met)
        meeting = self.named(host for host, report in reports.items() if is_met(report.text))
        return meeting | ~self.named(reports) if unreported else meeting

    def seconds_since_report(self) -> Figures:
        """Return the age of the last report of each host in seconds; NaN without a report."""
        ages = self.reports.seconds_since_report
        return np.array([ages.get(host, np.nan) for host in self.hosts], dtype=np.float64)

    def _by_tree(self, by_provider: Booleans) -> Booleans:
        mask = np.zeros(len(self), dtype=np.bool_)
        mask[self.fleet.tree[by_provider]] = True
        return mask


class HostState:
    """One host of a snapshot.

    ``inventories`` are a private copy: consuming from them changes nothing else. Place several
    consumers in a scenario (``snapshot.fork()``) instead.
    """

    def __init__(self, hosts: HostStates, tree: int) -> None:
        self.hosts = hosts  #: all hosts
        self.tree = tree  #: its position in the arrays
        self.name = hosts.fleet.hosts[tree]
        self._fleet = hosts.fleet

    @functools.cached_property
    def traits(self) -> frozenset[str]:
        """The traits of the host and of all providers below it."""
        return self._names_of(self._fleet.traits)

    @functools.cached_property
    def aggregates(self) -> frozenset[str]:
        """The aggregates of the host and of all providers below it."""
        return self._names_of(self._fleet.aggregates)

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        """The statistics that its agent reports, each with ``value``, ``type`` and ``since``."""
        return self.hosts.reports.statistics.get(self.name, {})

    def statistic(self, name: str) -> Statistic | None:
        """Return one statistic, None if it is not reported; read for all hosts at once."""
        return self.hosts.reports.of(name).get(self.name)

    @functools.cached_property
    def consumers(self) -> frozenset[str]:
        """The consumers with allocations at any provider of the host."""
        providers = self._fleet.of_tree(self.tree)
        return frozenset(row[2] for row in self._fleet.allocations.of(providers))

    def capacity(self, resource_class: str) -> int:
        """Return the capacity of a class."""
        return int(self.hosts.capacity(resource_class)[self.tree])

    def free(self, resource_class: str) -> int:
        """Return the free amount of a class."""
        return int(self.hosts.free(resource_class)[self.tree])

    def used(self, resource_class: str) -> int:
        """Return the usage of a class, with what is not free because of shares."""
        return int(self.hosts.used(resource_class)[self.tree])

    @functools.cached_property
    def inventories(self) -> Inventories:
        """One inventory for each resource, over all providers; cells and devices individually.

        If several providers have a class, one claim may allocate what the search would: the free
        amount of one of them, or of devices together. Cost: some 10 microseconds for a class, more
        for a topology.
        """
        fleet = self._fleet
        records = (self._record(name, rows) for name, rows in fleet.classes.items())
        by_name: dict[str, Inventory] = dict(inventories_of(filter(None, records)).by_name())
        for kind in fleet.parts:
            view = view_of(fleet, kind, self.tree)
            if view is not None:
                by_name[kind] = view.located.inventory
        return Inventories(by_name)

    def _record(self, name: str, rows: ClassRows) -> InventoryRecord | None:
        """Return the inventories of a class as one; None if the host has none."""
        here = rows.of_tree(self.tree)
        entries = [entry for entry in range(here.start, here.stop) if not rows.is_part[entry]]
        records = [self._fleet.record(rows.first + entry) for entry in entries]
        if len(records) < 2:
            return records[0] if records else None
        highs = [max(0, high) for high in rows.high[entries].tolist()]  # of one allocation
        shared = (rows.is_below if is_device(name) else rows.is_single)[entries].tolist()
        together = sum(high for high, is_shared in zip(highs, shared, strict=True) if is_shared)
        usable = [record for record, high in zip(records, highs, strict=True) if high] or records
        # without a common step, the unit rules are those of the provider with the largest amount
        if len({record.step_size for record in usable}) > 1:
            usable = [records[highs.index(max(highs))]]
        capacity = sum(record.capacity for record in records)
        return InventoryRecord(
            name,
            capacity,
            0,
            min(record.min_unit for record in usable),
            max(1, together, *highs),
            usable[0].step_size,
            1_000_000,
            capacity,
            sum(record.used for record in records),
        )

    def _names_of(self, table: Mapping[str, Integers]) -> frozenset[str]:
        providers = self._fleet.of_tree(self.tree)
        first, end = providers.start, providers.stop
        return frozenset(
            name
            for name, members in table.items()
            if (at := int(members.searchsorted(first))) < len(members) and members[at] < end
        )

    def __repr__(self) -> str:
        return f"<HostState: {self.name}>"


# --- reports --------------------------------------------------------------------------------------


class Reports:
    """The reports of all agents, read from the ledger when they are first needed, then cached.

    Hosts that reported nothing are absent. Without a ledger there are no reports.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger
        self._by_name: dict[str, dict[str, Statistic]] = {}
        self._figures: dict[str, tuple[tuple[str, ...], Figures]] = {}

    def of(self, name: str) -> Mapping[str, Statistic]:
        """Return a statistic by host. Cost: one query for each name."""
        if name not in self._by_name:
            by_host: StatisticsByProvider = {}
            if self._ledger is not None:
                by_host = self._ledger.statistics.read(names=[name])
            self._by_name[name] = {host: values[name] for host, values in by_host.items()}
        return self._by_name[name]

    def figures(self, name: str, hosts: tuple[str, ...]) -> Figures:
        """Return a statistic of hosts as numbers; NaN for a text, and if it is not reported."""
        cached = self._figures.get(name)
        if cached is None or cached[0] is not hosts:
            statistics = self.of(name)
            values = [_number(statistics.get(host)) for host in hosts]
            cached = self._figures[name] = hosts, frozen(np.array(values, dtype=np.float64))
        return cached[1]

    @functools.cached_property
    def statistics(self) -> StatisticsByProvider:
        """Every statistic of every host. Cost: one query."""
        return {} if self._ledger is None else self._ledger.statistics.read()

    def require_reported(self, name: str) -> None:
        """Raise unless some host reports a statistic: a name that no host reports is misspelled.

        :raises InvalidInput: if no host reports it
        """
        if not self.of(name):
            reported = ", ".join(sorted(set().union(*self.statistics.values())))
            expected = f"one that a host reports: {reported or 'none'}"
            raise InvalidInput("field", "statistic", name, expected)

    @functools.cached_property
    def seconds_since_report(self) -> Mapping[str, float]:
        """The age of the last report by host, by the clock of the ledger.

        Cost: a list of all hosts that ever reported.
        """
        if self._ledger is None:
            return {}
        now = self._ledger.now()
        return {
            provider.name: (now - provider.reported_at).total_seconds()
            for provider in self._ledger.providers(reported_before=_END_OF_TIME)
            if provider.reported_at is not None and provider.parent is None
        }


def _number(statistic: Statistic | None) -> float:
    if statistic is None or isinstance(statistic.value, str):
        return float("nan")
    return float(statistic.value)
