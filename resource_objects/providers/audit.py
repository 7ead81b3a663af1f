"""The audit: findings about the rows of a ledger, recomputed from the rows alone. Pure.

The audit derives from allocations and descriptions what a write maintains, so it finds damage that
the write itself would not notice. Some findings are no damage but open tasks of the operator: an
expired claim, a pool without recent reports, an allocation from a pool that is not linked any more.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from resource_objects import clock, exceptions
from resource_objects.providers.arguments import ago
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import roots_of
from resource_objects.providers.orders import ConsumerRecord
from resource_objects.providers.pools import SHARES
from resource_objects.resources import Amount, resource
from resource_objects.resources.located import Identified, Located, dependent_units, unit_count
from resource_objects.resources.records import InventoryRecord, KeptPart, KindRecord

__all__ = [
    "Audit",
    "Finding",
    "FindingKind",
    "audit",
    "consumers_of_several_trees",
]

_T = TypeVar("_T")

#: (number of the provider, resource class): an inventory.
_Key: TypeAlias = tuple[int, str]


def audit(
    columns: Columns,
    claims: Iterable[ConsumerRecord] = (),
    *,
    now: datetime.datetime | None = None,
    older_than: datetime.timedelta | None = None,
) -> Audit:
    """Return the findings about all rows of a ledger, by kind.

    Cost: linear in the rows, plus building each placed resource (NUMA topology, devices).

    >>> print(audit(Columns()))
    nothing found

    :param columns: all trees, with allocations
    :param claims: the claims of :func:`consumers_of_several_trees`, and those that may have expired
    :param now: the time to compare with; None: the clock of this machine
    :param older_than: the age at which the last report of a pool is a finding; None: never
    """
    rows, at = _Rows(columns), now or clock.now()
    records = {claim.consumer: claim for claim in claims}
    searched = {name for name, claim in records.items() if claim.request is not None}
    findings = [
        *rows.orphans,
        *_usage(rows),
        *_allocated_units(rows),
        *_placed_resources(rows),
        *_unshared(rows, searched),
        *_counted_twice(rows),
        *_expired(records.values(), at),
        *(() if older_than is None else _stale_pools(rows, ago("older_than", older_than, at))),
    ]
    order = list(FindingKind)
    return Audit(tuple(sorted(findings, key=lambda finding: order.index(finding.kind))))


def consumers_of_several_trees(columns: Columns) -> tuple[str, ...]:
    """Return the consumers with allocations in several trees, sorted.

    The audit needs their claims: an allocation outside the host is from a pool if a search chose
    it.
    """
    roots = roots_of(columns.index.parents)
    trees_of: dict[str, set[int]] = defaultdict(set)
    for number, allocations in columns.index.allocations.items():
        for _, consumer, _ in allocations if number in roots else ():
            trees_of[consumer].add(roots[number])
    return tuple(sorted(name for name, trees in trees_of.items() if len(trees) > 1))


# --- findings -------------------------------------------------------------------------------------


class FindingKind(enum.StrEnum):
    """The kind of a :class:`Finding`."""

    OVER_CAPACITY = "over_capacity"  #: more is used than the capacity, as after a shrink
    WRONG_USED = "wrong_used"  #: ``used`` is not the sum of allocations times shares
    UNIT_TWICE = "unit_twice"  #: a unit is allocated to two consumers
    UNIT_LOOSE = "unit_loose"  #: a unit is allocated to a consumer without an allocation there
    UNIT_GONE = "unit_gone"  #: an allocated unit does not exist, such as a CPU that is offline
    UNIT_ELSEWHERE = "unit_elsewhere"  #: an allocated unit is now provided in another way
    UNIT_MISSING = "unit_missing"  #: a consumer has more or fewer units than its amount
    CONTRADICTION = "contradiction"  #: the records of a structured inventory are inconsistent
    UNDESCRIBED = "undescribed"  #: a provider counts like a part of a resource without being one
    UNSHARED = "unshared"  #: allocated from a pool that is not linked to the consumer's host
    COUNTED_TWICE = "counted_twice"  #: a class is counted in the tree of a host and at its pool
    EXPIRED = "expired"  #: a claim that expired and still has allocations
    STALE_POOL = "stale_pool"  #: a pool without a recent report
    ORPHANED = "orphaned"  #: a row that references a missing row


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    ``found`` and ``expected`` are figures: the amount that is used, and the capacity or the amount
    that should be used. ``at`` is the time at which a claim expired or a pool was reported last.
    ``other`` is a second provider or consumer, a kind of row, or the text of a contradiction.
    """

    kind: FindingKind
    provider: str | None = None
    resource_class: str | None = None
    consumer: str | None = None
    unit: str | None = None
    found: int | None = None
    expected: int | None = None
    at: datetime.datetime | None = None
    other: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, without the fields that do not apply."""
        data = {
            name: value for name, value in dataclasses.asdict(self).items() if value is not None
        }
        if self.at is not None:
            data["at"] = self.at.isoformat()
        return {**data, "kind": self.kind.value, "text": str(self)}

    def __str__(self) -> str:
        at = "never" if self.at is None else self.at.isoformat(" ", "seconds")
        about = ", ".join(filter(None, (self.resource_class, self.consumer)))
        text = _SENTENCES[self.kind].format(self, at=at, about=f" ({about})" if about else "")
        return text if self.provider is None else f"{self.provider}: {text}"


_SENTENCES = {
    FindingKind.OVER_CAPACITY: "{0.resource_class} has {0.found} used of {0.expected}",
    FindingKind.WRONG_USED: (
        "{0.resource_class} is recorded with {0.found} used, its allocations sum to {0.expected}"
    ),
    FindingKind.UNIT_TWICE: "{0.unit} is allocated to {0.other} and to {0.consumer}",
    FindingKind.UNIT_LOOSE: (
        "{0.unit} is allocated to {0.consumer}, which has no {0.resource_class} allocated there"
    ),
    FindingKind.UNIT_GONE: (
        "{0.unit} is allocated to {0.consumer}, but there is no {0.resource_class} of that name"
    ),
    FindingKind.UNIT_ELSEWHERE: (
        "{0.unit} of {0.resource_class} is allocated to {0.consumer}, "
        "but is now provided in another way"
    ),
    FindingKind.UNIT_MISSING: (
        "{0.consumer} has {0.expected} {0.resource_class} allocated, but {0.found} units"
    ),
    FindingKind.CONTRADICTION: "{0.resource_class} is inconsistent: {0.other}",
    FindingKind.UNDESCRIBED: "it is counted like {0.other}, but has no description",
    FindingKind.UNSHARED: (
        "{0.found} {0.resource_class} are allocated to {0.consumer}, "
        "but are not provided to {0.other}"
    ),
    FindingKind.COUNTED_TWICE: "{0.resource_class} is counted here and at the pool {0.other}",
    FindingKind.EXPIRED: "{0.consumer}: its claim expired at {at}",
    FindingKind.STALE_POOL: "the last report of the pool: {at}",
    FindingKind.ORPHANED: "orphaned {0.other}{about}",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Audit:
    """The findings of an audit, as a sequence: empty if there are none.

    >>> print(Audit())
    nothing found
    """

    findings: tuple[Finding, ...] = ()

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def of(self, kind: FindingKind | str) -> tuple[Finding, ...]:
        """Return the findings of one kind."""
        wanted_kind = FindingKind(kind)
        return tuple(finding for finding in self.findings if finding.kind is wanted_kind)

    def counts(self) -> dict[str, int]:
        """Return the number of findings of each kind that occurs."""
        return dict(Counter(finding.kind.value for finding in self.findings))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "counts": self.counts(),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "nothing found"


# --- rows -----------------------------------------------------------------------------------------


class _Allocation(NamedTuple):
    key: _Key
    consumer: str
    amount: int


class _Unit(NamedTuple):
    key: _Key
    name: str
    consumer: str


class _Rows:
    """The rows of columns by the number of their provider.

    A row may reference a provider or an inventory that does not exist: ``orphans`` are findings
    about such rows, and the other attributes do not contain them.
    """

    def __init__(self, columns: Columns) -> None:
        index = self.index = columns.index
        self.roots = roots_of(index.parents)
        self.orphans = [
            _orphan("child", index.names[number])
            for number, parent in index.parents.items()
            if parent is not None and parent not in index.parents
        ]
        self.inventories = {
            (number, record.resource_class): record
            for number, record in self._of_known("inventory", index.inventories)
        }
        traits = self._of_known("trait", index.traits)
        self.pools = {number for number, trait in traits if trait == SHARES}
        self.aggregates: dict[int, set[str]] = defaultdict(set)
        for number, aggregate in self._of_known("membership", index.aggregates):
            self.aggregates[number].add(aggregate)
        self.aggregates_of_tree: dict[int, set[str]] = defaultdict(set)
        for number, aggregates in self.aggregates.items():
            self.aggregates_of_tree[self.roots[number]] |= aggregates
        self.shares = self._shares()
        self.allocations = [
            _Allocation((number, name), consumer, amount)
            for number, (name, consumer, amount) in self._of_known("allocation", index.allocations)
            if self._has_inventory("allocation", number, name, consumer)
        ]
        self.kinds = list(self._of_known("kind", index.kinds))
        self.units = [
            _Unit((number, resource_class), name, consumer)
            for number, (name, resource_class, consumer) in self._of_known("unit", index.units)
        ]

    def name(self, number: int) -> str:
        """Return the name of a provider."""
        return self.index.names[number]

    def by_consumer(self) -> dict[str, dict[int, list[_Allocation]]]:
        """Return the allocations of each consumer by the root of the tree, consumers sorted."""
        by_consumer: dict[str, dict[int, list[_Allocation]]] = defaultdict(dict)
        for allocation in self.allocations:
            root = self.roots[allocation.key[0]]
            by_consumer[allocation.consumer].setdefault(root, []).append(allocation)
        return dict(sorted(by_consumer.items()))

    def _of_known(
        self, table: str, rows_of: Mapping[int, Sequence[_T]]
    ) -> Iterator[tuple[int, _T]]:
        """Yield rows with the number of their provider, if that exists."""
        for number, rows in rows_of.items():
            if number in self.index.names:
                yield from ((number, row) for row in rows)
            else:
                self.orphans += [_orphan(table, f"provider {number}") for _ in rows]

    def _has_inventory(
        self, table: str, number: int, resource_class: str, consumer: str | None = None
    ) -> bool:
        if (number, resource_class) in self.inventories:
            return True
        self.orphans.append(_orphan(table, self.name(number), resource_class, consumer))
        return False

    def _shares(self) -> dict[_Key, list[tuple[_Key, int]]]:
        shares: dict[_Key, list[tuple[_Key, int]]] = defaultdict(list)
        for number, (name, target, target_class, factor) in self._of_known(
            "share", self.index.shares
        ):
            if target not in self.index.names:
                self.orphans.append(_orphan("share", self.name(number), name))
            elif self._has_inventory("share", number, name) and self._has_inventory(
                "share", target, target_class
            ):
                shares[number, name].append(((target, target_class), factor))
        return shares


def _orphan(
    table: str, provider: str, resource_class: str | None = None, consumer: str | None = None
) -> Finding:
    return Finding(FindingKind.ORPHANED, provider, resource_class, consumer, other=table)


# --- usage, units and claims ----------------------------------------------------------------------


def _usage(rows: _Rows) -> Iterator[Finding]:
    """Yield inventories with a wrong usage, or one above the capacity."""
    sums: dict[_Key, int] = defaultdict(int)
    for allocation in rows.allocations:
        sums[allocation.key] += allocation.amount
        for target, factor in rows.shares.get(allocation.key, ()):
            sums[target] += allocation.amount * factor
    for key, record in rows.inventories.items():
        place, used = (rows.name(key[0]), key[1]), record.used
        if used != sums[key]:
            yield Finding(FindingKind.WRONG_USED, *place, found=used, expected=sums[key])
        if used > record.capacity:
            yield Finding(FindingKind.OVER_CAPACITY, *place, found=used, expected=record.capacity)


def _allocated_units(rows: _Rows) -> Iterator[Finding]:
    """Yield units that are allocated twice, or without an allocation."""
    allocations = {(allocation.key, allocation.consumer) for allocation in rows.allocations}
    consumers: dict[tuple[int, str], str] = {}
    for unit in rows.units:
        first = consumers.setdefault((unit.key[0], unit.name), unit.consumer)
        if first != unit.consumer:
            yield _of_unit(FindingKind.UNIT_TWICE, rows, unit, first)
        if (unit.key, unit.consumer) not in allocations:
            yield _of_unit(FindingKind.UNIT_LOOSE, rows, unit)


def _of_unit(kind: FindingKind, rows: _Rows, unit: _Unit, other: str | None = None) -> Finding:
    number, resource_class = unit.key
    return Finding(kind, rows.name(number), resource_class, unit.consumer, unit.name, other=other)


def _unshared(rows: _Rows, searched: Collection[str]) -> Iterator[Finding]:
    """Yield allocations from pools that are not linked to the host of the consumer.

    The host of a consumer is the tree from which it has most classes. Its allocations elsewhere are
    from pools, if the providers are pools now, or if a search chose them: then they were pools. A
    caller may also have allocated from several hosts on purpose.
    """
    for consumer, by_tree in rows.by_consumer().items():
        hosts = [
            root
            for root, allocations in by_tree.items()
            if not all(allocation.key[0] in rows.pools for allocation in allocations)
        ]
        if len(by_tree) < 2 or not hosts:
            continue  # with allocations from pools alone, the host is unknown
        classes = {root: {allocation.key[1] for allocation in by_tree[root]} for root in hosts}
        host = min(hosts, key=lambda root: (-len(classes[root]), rows.index.uuids[root]))
        linked = frozenset().union(*(rows.aggregates_of_tree[root] for root in hosts))
        for root, allocations in by_tree.items():
            for (number, resource_class), _, amount in allocations if root != host else ():
                is_pool = number in rows.pools
                is_linked = is_pool and not rows.aggregates[number].isdisjoint(linked)
                if (is_pool or consumer in searched) and not is_linked:
                    yield Finding(
                        FindingKind.UNSHARED,
                        rows.name(number),
                        resource_class,
                        consumer,
                        found=amount,
                        other=rows.name(host),
                    )


def _counted_twice(rows: _Rows) -> Iterator[Finding]:
    """Yield classes that are counted at a pool and in a tree that the pool is linked to.

    A search allocates a class from a tree as a whole, or from a pool that the tree is linked to.
    """
    members: dict[int, set[str]] = defaultdict(set)  # aggregates of the other providers, by root
    for number, aggregates in rows.aggregates.items():
        if number not in rows.pools:
            members[rows.roots[number]] |= aggregates
    pools = sorted(rows.pools, key=rows.name)

    @functools.cache
    def pools_of(root: int) -> list[int]:
        return [pool for pool in pools if not rows.aggregates[pool].isdisjoint(members[root])]

    for number, resource_class in rows.inventories:
        for pool in pools_of(rows.roots[number]) if number not in rows.pools else ():
            if (pool, resource_class) in rows.inventories:
                yield Finding(
                    FindingKind.COUNTED_TWICE,
                    rows.name(number),
                    resource_class,
                    other=rows.name(pool),
                )


def _expired(claims: Iterable[ConsumerRecord], now: datetime.datetime) -> Iterator[Finding]:
    for claim in claims:
        if claim.expires_at is not None and claim.expires_at < now:
            yield Finding(FindingKind.EXPIRED, consumer=claim.consumer, at=claim.expires_at)


def _stale_pools(rows: _Rows, before: datetime.datetime) -> Iterator[Finding]:
    for pool in sorted(rows.pools, key=rows.name):
        reported_at = rows.index.reported_at[pool]
        if reported_at is None or reported_at < before:
            yield Finding(FindingKind.STALE_POOL, rows.name(pool), at=reported_at)


# --- placed resources (NUMA topology, devices) ----------------------------------------------------
#
# Each provider of a tree stores one part. Each part is built alone, then all parts of a tree
# together. Then the allocated units are compared with the units that exist. A unit may be of
# another part than the one it was allocated from: firmware may number cells anew.


@dataclasses.dataclass(frozen=True, slots=True)
class _PlacedResource:
    """The parts of one resource in a tree; ``inventories`` are of the parts that can be built."""

    root: int
    name: str
    parts: dict[int, KindRecord] = dataclasses.field(default_factory=dict)
    inventories: dict[int, Located[Amount]] = dataclasses.field(default_factory=dict)


def _placed_resources(rows: _Rows) -> Iterator[Finding]:
    placed: dict[_Key, _PlacedResource] = {}
    for number, kind in rows.kinds:
        if _is_placed(kind.resource_class):
            key = rows.roots[number], kind.resource_class
            placed.setdefault(key, _PlacedResource(*key)).parts[number] = kind
    units: dict[int, list[_Unit]] = defaultdict(list)
    for unit in rows.units if placed else ():
        units[unit.key[0]].append(unit)
    allocations: dict[int, list[_Allocation]] = defaultdict(list)
    for allocation in rows.allocations if placed else ():
        allocations[allocation.key[0]].append(allocation)
    for tree in placed.values():
        units_of_tree = [unit for number in tree.parts for unit in units[number]]
        yield from _contradictions(rows, tree, units_of_tree)
        yield from _units_of_two_parts(rows, tree, units_of_tree)
        if len(tree.inventories) == len(tree.parts):  # otherwise the existing units are unknown
            yield from _missing_units(rows, tree, units_of_tree)
        for number in tree.parts:
            yield from _unit_counts(rows, tree, units[number], allocations[number])
    yield from _undescribed(rows, placed.values())


def _is_placed(resource_class: str) -> bool:
    try:
        return resource(resource_class).is_located
    except exceptions.InvalidInput:  # of a plug-in that is not installed
        return False


def _contradictions(
    rows: _Rows, tree: _PlacedResource, units: Iterable[_Unit]
) -> Iterator[Finding]:
    """Build the inventories of a tree, and yield the parts that cannot be built."""
    placed = resource(tree.name)
    units_of: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for unit in units:
        units_of[unit.key[0]][unit.key[1]].append(unit.name)
    built: list[KeptPart] = []
    for number, kind in tree.parts.items():
        keys = [(number, name) for name in kind.classes if (number, name) in rows.inventories]
        records = tuple(rows.inventories[key] for key in keys)
        part = KeptPart(
            records,
            kind.body or None,
            {name: tuple(units) for name, units in units_of[number].items()},
        )
        try:
            inventory = placed.from_parts([part])
            if not isinstance(inventory, Located):
                raise exceptions.InvalidInventory(
                    tree.name, inventory, "an inventory with parts (Located)"
                )
            missing = set(kind.classes).difference(record.resource_class for record in records)
            differing = missing | _differing(records, inventory.to_records())
            if differing:  # reserved amounts may be subtracted before the ratio, or after it
                stored = placed.inventory_from_kept(records, part.description)
                differing &= missing | _differing(records, stored.to_records())
        except exceptions.InvalidInput as error:
            yield _contradiction(rows.name(number), tree, str(error))
            continue
        if differing:
            text = f"the figures of {', '.join(sorted(differing))} are not as described"
            yield _contradiction(rows.name(number), tree, text)
        tree.inventories[number] = inventory
        built.append(part)
    try:
        placed.from_parts(built) if built else None
    except exceptions.InvalidInput as error:
        yield _contradiction(rows.name(tree.root), tree, str(error))


def _differing(stored: Iterable[InventoryRecord], described: Iterable[InventoryRecord]) -> set[str]:
    """Return the classes with stored figures that are not those described."""
    stored_figures = {record.definition() for record in stored}
    described_figures = {record.definition() for record in described}
    return {record.resource_class for record in stored_figures ^ described_figures}


def _contradiction(provider: str, tree: _PlacedResource, text: str) -> Finding:
    return Finding(FindingKind.CONTRADICTION, provider, tree.name, other=text)


def _undescribed(rows: _Rows, trees: Iterable[_PlacedResource]) -> Iterator[Finding]:
    """Yield providers with the classes and shares of parts of their tree, but no description."""
    by_root = {tree.root: tree for tree in trees}
    described = {number for number, _ in rows.kinds}
    classes_of: dict[int, set[str]] = defaultdict(set)
    for number, name in rows.inventories if by_root else ():
        classes_of[number].add(name)

    def targets(number: int, classes: Iterable[str]) -> set[_Key]:
        return {to for name in classes for to, _ in rows.shares.get((number, name), ())}

    for number, classes in classes_of.items():
        tree = by_root.get(rows.roots[number])
        if tree is None or number in described or number == tree.root:
            continue
        parts = tree.parts.items()
        counted = {name for _, kind in parts for name in kind.classes}
        shared = {key for part, kind in parts for key in targets(part, kind.classes)}
        own_targets = targets(number, classes)
        if own_targets and own_targets <= shared and classes <= counted:
            part_name = rows.name(min(tree.parts, key=rows.name))
            yield Finding(FindingKind.UNDESCRIBED, rows.name(number), tree.name, other=part_name)


def _units_of_two_parts(
    rows: _Rows, tree: _PlacedResource, units: Iterable[_Unit]
) -> Iterator[Finding]:
    """Yield units that are allocated from two parts of one tree."""
    is_of_devices = issubclass(resource(tree.name).inventory_kind, Identified)
    first_of: dict[tuple[str, str], _Unit] = {}
    for unit in units:
        # a device is the same under every class that it can be allocated as
        name = "" if is_of_devices else unit.key[1]
        first = first_of.setdefault((name, unit.name), unit)
        if first.key[0] != unit.key[0]:
            other = f"{first.consumer} at {rows.name(first.key[0])}"
            yield _of_unit(FindingKind.UNIT_TWICE, rows, unit, other)


def _missing_units(rows: _Rows, tree: _PlacedResource, units: Sequence[_Unit]) -> Iterator[Finding]:
    """Yield allocated units that no part of the tree has."""
    inventories = tree.inventories.values()
    existing = {
        name: [inventory.units(name) for inventory in inventories]
        for name in {unit.key[1] for unit in units}
    }
    dependent = set(_dependent(tree, units))
    for unit in units:
        name = unit.key[1]
        if any(names is None or unit.name in names for names in existing[name]):
            continue
        if unit in dependent:
            continue
        is_elsewhere = any(
            unit.name in inventory.units_elsewhere(name) for inventory in inventories
        )
        kind = FindingKind.UNIT_ELSEWHERE if is_elsewhere else FindingKind.UNIT_GONE
        yield _of_unit(kind, rows, unit)


def _dependent(tree: _PlacedResource, units: Iterable[_Unit]) -> Iterator[_Unit]:
    """Yield the units that are allocated together with the units of consumers."""
    dependent_of: dict[_Key, Mapping[str, frozenset[str]]] = {}
    for unit in units:
        if unit.key not in dependent_of:
            dependent_of[unit.key] = dependent_units(tree.inventories[unit.key[0]], unit.key[1])
        for name in dependent_of[unit.key].get(unit.name, ()):
            yield _Unit(unit.key, name, unit.consumer)


def _unit_counts(
    rows: _Rows,
    tree: _PlacedResource,
    units: Iterable[_Unit],
    allocations: Iterable[_Allocation],
) -> Iterator[Finding]:
    """Yield allocations with units, but not as many as their amount."""
    units_of: dict[tuple[_Key, str], list[str]] = defaultdict(list)
    for unit in units:
        units_of[unit.key, unit.consumer].append(unit.name)
    for key, consumer, amount in allocations:
        names, inventory = units_of[key, consumer], tree.inventories.get(key[0])
        if not names or inventory is None or not inventory.units(key[1]):
            continue
        count = _amount_of(inventory, key[1], names)
        if count != amount:
            yield Finding(
                FindingKind.UNIT_MISSING,
                rows.name(key[0]),
                key[1],
                consumer,
                found=count,
                expected=amount,
            )


def _amount_of(inventory: Located[Amount], name: str, units: Collection[str]) -> int:
    """Return the amount of a class that units are; a unit that does not exist any more is one."""
    dependent = frozenset[str]().union(*dependent_units(inventory, name).values())
    missing = set(units).difference(inventory.units(name) or (), dependent)
    return unit_count(inventory, name, missing.symmetric_difference(units)) + len(missing)
