"""What filters and weighers see of a fleet: views over a snapshot, host by host or all at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from resource_objects.providers.definition import inventories_of
from resource_objects.providers.statistics import Statistic
from resource_objects.resources import Inventories, Inventory
from resource_objects.resources.catalog import is_device
from resource_objects.resources.records import InventoryRecord
from resource_objects.scheduler.reports import Reports
from resource_objects.search.arrays import Booleans, Figures, Integers
from resource_objects.search.fleet import Fleet


class HostStates(Mapping[str, "HostState"]):
    """The hosts of a snapshot: a mapping by name, and arrays with an entry for each host.

    Arrays are in the order of :attr:`hosts` and must not be written. Nothing is worked out before
    somebody asks; what was, is kept.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(ro.Provider("a", "VCPU=8"), ro.Provider("b", "VCPU=4"))
    ...     done = ledger.claim("job-1", {"a": "VCPU=6"})
    ...     states = HostStates(ledger.snapshot().fleet)
    >>> states.free("VCPU").tolist()
    [2, 4]
    >>> request_spec = ro.Request("VCPU=3")
    >>> for name, state in states.items():
    ...     for resource, amount in request_spec.resources.items():
    ...         if state.inventories[resource].can_provide(amount):
    ...             print(name, state.inventories[resource].consume(amount))
    b 3
    """

    def __init__(self, fleet: Fleet, reports: Reports | None = None) -> None:
        """:param reports: what agents told of their hosts; None: nothing"""
        self.fleet = fleet
        self.reports = reports or Reports()
        self._known: dict[str, HostState] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """Their names, in order; the root of a tree of pools is among them."""
        return self.fleet.hosts

    @functools.cached_property
    def number(self) -> Mapping[str, int]:
        """The place of each host in the arrays, by its name."""
        return {name: tree for tree, name in enumerate(self.fleet.hosts)}

    def __getitem__(self, name: str) -> HostState:
        if name not in self._known:
            self._known[name] = HostState(self, self.number[name])
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fleet.hosts)

    def __len__(self) -> int:
        return len(self.fleet.hosts)

    def at(self, tree: int) -> HostState:
        """Return the state of the host at a place of the arrays."""
        return self[self.fleet.hosts[tree]]

    # --- for all hosts at once ---

    def all(self) -> Booleans:
        """Return True for each host, in an array of its own."""
        return np.ones(len(self), dtype=np.bool_)

    def physical(self, resource_class: str) -> Integers:
        """Return how much of a class there is for consumers, before any ratio."""
        rows = self.fleet.rows(resource_class)
        counts = ~rows.is_part
        found = np.zeros(len(self), dtype=np.int64)
        np.add.at(found, rows.tree[counts], (rows.total - rows.reserved)[counts])
        return found

    def capacity(self, resource_class: str) -> Integers:
        """Return how much of a class each host has, over all its providers."""
        return self.fleet.totals(resource_class)[0]

    def free(self, resource_class: str) -> Integers:
        """Return how much of a class can be allocated of each host, over all its providers."""
        return self.fleet.totals(resource_class)[2]

    def used(self, resource_class: str) -> Integers:
        """Return how much of a class is used of each host, or not free because of shares."""
        return self.fleet.totals(resource_class)[1]

    def having(self, *traits: str) -> Booleans:
        """Return which hosts have one of some traits, themselves or by a provider below."""
        return self._of_trees(self.fleet.having(self.fleet.traits, traits))

    def members(self, *aggregates: str) -> Booleans:
        """Return which hosts are in one of some aggregates, themselves or by a provider below."""
        return self._of_trees(self.fleet.having(self.fleet.aggregates, aggregates))

    def holding(self, consumers: Iterable[str]) -> Integers:
        """Return how many of some consumers hold something of each host, pools left out."""
        found, pools = np.zeros(len(self), dtype=np.int64), self.fleet.pools.every
        for consumer in consumers:
            places = set(self.fleet.places_of_holders.get(consumer) or ()) - pools
            found[sorted({int(self.fleet.tree[place]) for place in places})] += 1
        return found

    def statistic(self, name: str) -> Figures:
        """Return a statistic of each host as a number; NaN where it has none, or no number."""
        return self.reports.figures(name, self.hosts)

    def telling(self, name: str, is_met: Callable[[str], bool], otherwise: bool) -> Booleans:
        """Return which hosts tell a statistic whose text meets something.

        :param otherwise: what is returned of those that do not tell it
        """
        found = np.full(len(self), otherwise)
        known: dict[str, bool] = {}
        for tree, told in self._told(name):
            text = told.text
            if text not in known:
                known[text] = is_met(text)
            found[tree] = known[text]
        return found

    def silence(self) -> Figures:
        """Return for how many seconds each host has not reported; NaN for one that never did."""
        found = np.full(len(self), np.nan)
        for host, seconds in self.reports.silence.items():
            if host in self.number:
                found[self.number[host]] = seconds
        return found

    def _told(self, name: str) -> Iterator[tuple[int, Statistic]]:
        number = self.number
        for host, told in self.reports.of(name).items():
            if host in number:
                yield number[host], told

    def _of_trees(self, of_providers: Booleans) -> Booleans:
        found = np.zeros(len(self), dtype=np.bool_)
        found[self.fleet.tree[of_providers]] = True
        return found


class HostState:
    """One host as a snapshot shows it.

    ``inventories`` are the host's own to count with: consuming from them changes nothing else. To
    place several consumers beside each other, take them in a scenario (``snapshot.fork()``).
    """

    def __init__(self, states: HostStates, tree: int) -> None:
        self.beside = states  #: all hosts, of which it is one
        self._fleet = states.fleet
        self.tree = tree  #: its place in the arrays
        self.name = states.fleet.hosts[tree]

    @functools.cached_property
    def traits(self) -> frozenset[str]:
        """The traits of the host and of all providers below it."""
        return self._of(self._fleet.traits)

    @functools.cached_property
    def aggregates(self) -> frozenset[str]:
        """The aggregates that the host or a provider below it is in."""
        return self._of(self._fleet.aggregates)

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        """What its agent told, by name; each has ``value``, ``type`` and ``since``."""
        return self.beside.reports.statistics.get(self.name, {})

    def statistic(self, name: str) -> Statistic | None:
        """Return one of them, None if it was not told; read for all hosts at once."""
        return self.beside.reports.of(name).get(self.name)

    @functools.cached_property
    def consumers(self) -> frozenset[str]:
        """Who holds something of it."""
        places = self._fleet.of_tree(self.tree)
        return frozenset(row[2] for row in self._fleet.allocations.of(places))

    def capacity(self, resource_class: str) -> int:
        """Return how much of a class it has, over all its providers."""
        return int(self.beside.capacity(resource_class)[self.tree])

    def free(self, resource_class: str) -> int:
        """Return how much of a class can be allocated of it."""
        return int(self.beside.free(resource_class)[self.tree])

    def used(self, resource_class: str) -> int:
        """Return how much of a class is used of it, or not free because of shares."""
        return int(self.beside.used(resource_class)[self.tree])

    @functools.cached_property
    def inventories(self) -> Inventories:
        """What there is of each resource, over all its providers; cells and devices as they are.

        Of a class that several providers have, one claim may take what the search would give it:
        what one of them has free, or devices together. Cost: some 10 microseconds for a class, more
        where a topology is gathered.
        """
        fleet = self._fleet
        records = []
        for name, rows in fleet.classes.items():
            here = rows.of_tree(self.tree)
            entries = [e for e in range(here.start, here.stop) if not rows.is_part[e]]
            if entries:
                each = [fleet.record(rows.first + entry) for entry in entries]
                shares = rows.is_below if is_device(name) else rows.is_single
                parts = [(int(rows.high[e]), bool(shares[e])) for e in entries]
                records.append(_together(each, parts))
        found: dict[str, Inventory] = dict(inventories_of(records).by_name())
        for kind in fleet.views.parts:
            view = fleet.views.of_tree(kind, self.tree)
            if view is not None:
                found[kind] = view.located.inventory
        return Inventories(found)

    def _of(self, table: Mapping[str, Integers]) -> frozenset[str]:
        places = self._fleet.of_tree(self.tree)
        first, end = places.start, places.stop
        return frozenset(
            name
            for name, some in table.items()
            if (at := int(some.searchsorted(first))) < len(some) and some[at] < end
        )

    def __repr__(self) -> str:
        return f"<HostState: {self.name}>"


def _together(records: list[InventoryRecord], parts: list[tuple[int, bool]]) -> InventoryRecord:
    """Return what several providers have of a class, as one.

    :param parts: of each the most that it gives in one part, and whether it may give a part
    """
    if len(records) == 1:
        return records[0]
    highs = [max(0, high) for high, _ in parts]
    alone = max(range(len(records)), key=lambda at: highs[at])
    of_parts = sum(high for high, (_, is_part) in zip(highs, parts, strict=True) if is_part)
    able = [one for one, high in zip(records, highs, strict=True) if high] or records
    steps = {one.step_size for one in able}
    # what no two of them give alike is that of who gives most
    rules = able if len(steps) == 1 else [records[alone]]
    capacity = sum(one.capacity for one in records)
    return InventoryRecord(
        records[0].resource_class,
        capacity,
        0,
        min(one.min_unit for one in rules),
        max(1, highs[alone], of_parts),
        rules[0].step_size,
        1_000_000,
        capacity,
        sum(one.used for one in records),
    )
