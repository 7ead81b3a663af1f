"""The audit: findings about the rows of a ledger, recomputed from the rows alone. Pure.

The audit derives from allocations and descriptions what a write maintains, so it finds damage that
the write itself would not notice. Some findings are no damage but open tasks of the operator: an
expired claim, a pool without recent reports, an allocation from a pool that is not linked any more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

from resource_objects import clock, exceptions
from resource_objects.providers import serialization
from resource_objects.providers.arguments import ago
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import roots_of
from resource_objects.providers.orders import ConsumerRecord
from resource_objects.providers.pools import SHARES
from resource_objects.providers.tree_shape import assembled
from resource_objects.resources import Amount, Inventory, placed, resource
from resource_objects.resources.placed import PlacedInventory
from resource_objects.resources.records import KindRecord, StoredPart

_T = TypeVar("_T")

#: (number of the provider, resource class): an inventory.
_Key: TypeAlias = tuple[int, str]
#: An inventory, a consumer, and the amount that is allocated to it.
_Allocation: TypeAlias = tuple[_Key, str, int]


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
        *(
            Finding(FindingKind.EXPIRED, consumer=name, at=claim.expires_at)
            for name, claim in records.items()
            if claim.expires_at is not None and claim.expires_at < at
        ),
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
    """The kind of a :class:`Finding`, with the sentence about one."""

    sentence: str

    def __new__(cls, value: str, sentence: str = "") -> Self:
        """Return a member; lookups are by ``value``."""
        member = str.__new__(cls, value)
        member._value_, member.sentence = value, sentence
        return member

    #: as after a shrink
    OVER_CAPACITY = "over_capacity", "{0.resource_class} has {0.figure} used of {0.expected}"
    #: ``used`` is not the sum of allocations times shares
    WRONG_USED = (
        "wrong_used",
        "{0.resource_class} is recorded with {0.figure} used, its allocations sum to {0.expected}",
    )
    UNIT_TWICE = "unit_twice", "{0.unit} is allocated to {0.other} and to {0.consumer}"
    UNIT_LOOSE = (
        "unit_loose",
        "{0.unit} is allocated to {0.consumer}, which has no {0.resource_class} allocated there",
    )
    #: such as a CPU that is offline
    UNIT_GONE = (
        "unit_gone",
        "{0.unit} is allocated to {0.consumer}, but there is no {0.resource_class} of that name",
    )
    UNIT_ELSEWHERE = (
        "unit_elsewhere",
        "{0.unit} of {0.resource_class} is allocated to {0.consumer}, "
        "but is now provided in another way",
    )
    UNIT_MISSING = (
        "unit_missing",
        "{0.consumer} has {0.expected} {0.resource_class} allocated, but {0.figure} units",
    )
    #: of the records of a structured inventory
    CONTRADICTION = "contradiction", "{0.resource_class} is inconsistent: {0.other}"
    UNDESCRIBED = "undescribed", "it is counted like {0.other}, but has no description"
    #: allocated from a pool that is not linked to the consumer's host
    UNSHARED = (
        "unshared",
        "{0.figure} {0.resource_class} are allocated to {0.consumer}, "
        "but are not provided to {0.other}",
    )
    COUNTED_TWICE = (
        "counted_twice",
        "{0.resource_class} is counted here and at the pool {0.other}",
    )
    EXPIRED = "expired", "{0.consumer}: its claim expired at {at}"
    STALE_POOL = "stale_pool", "the last report of the pool: {at}"
    #: a row that references a missing row
    ORPHANED = "orphaned", "orphaned {0.other}{about}"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    ``figure`` (``found`` in JSON) is the used amount, ``expected`` the capacity or the amount that
    should be used. ``at`` is the time at which a claim expired or a pool was reported last.
    ``other`` is a second provider or consumer, a kind of row, or the text of a contradiction.
    """

    kind: FindingKind
    provider: str | None = None
    resource_class: str | None = None
    consumer: str | None = None
    unit: str | None = None
    figure: int | None = None
    expected: int | None = None
    at: datetime.datetime | None = None
    other: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, without the fields that do not apply."""
        data = serialization.to_plain(self).items()
        plain = {"found" if key == "figure" else key: value for key, value in data}
        return {**plain, "text": str(self)}

    def __str__(self) -> str:
        at = "never" if self.at is None else self.at.isoformat(" ", "seconds")
        about = ", ".join(filter(None, (self.resource_class, self.consumer)))
        text = self.kind.sentence.format(self, at=at, about=f" ({about})" if about else "")
        return text if self.provider is None else f"{self.provider}: {text}"


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
        self.name = index.names.__getitem__
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
        self.shares: dict[_Key, list[tuple[_Key, int]]] = defaultdict(list)
        for number, (name, of, of_class, factor) in self._of_known("share", index.shares):
            sharer, target = (number, name), (of, of_class)
            if of not in index.names:
                self.orphans.append(_orphan("share", *self.at(sharer)))
            elif self._has_inventory("share", sharer) and self._has_inventory("share", target):
                self.shares[sharer].append((target, factor))
        self.allocations: list[_Allocation] = [
            ((number, name), consumer, amount)
            for number, (name, consumer, amount) in self._of_known("allocation", index.allocations)
            if self._has_inventory("allocation", (number, name), consumer)
        ]
        self.kinds = list(self._of_known("kind", index.kinds))
        self.units = [
            _Unit((number, resource_class), name, consumer)
            for number, (name, resource_class, consumer) in self._of_known("unit", index.units)
        ]

    def at(self, key: _Key) -> tuple[str, str]:
        """Return the name of the provider of an inventory, and the resource class."""
        return self.name(key[0]), key[1]

    def _of_known(
        self, table: str, rows_of: Mapping[int, Sequence[_T]]
    ) -> Iterator[tuple[int, _T]]:
        """Yield rows with the number of their provider, if that exists."""
        for number, rows in rows_of.items():
            if number in self.index.names:
                yield from ((number, row) for row in rows)
            else:
                self.orphans += [_orphan(table, f"provider {number}") for _ in rows]

    def _has_inventory(self, table: str, key: _Key, consumer: str | None = None) -> bool:
        if key not in self.inventories:
            self.orphans.append(_orphan(table, *self.at(key), consumer))
        return key in self.inventories


def _orphan(
    table: str, provider: str, resource_class: str | None = None, consumer: str | None = None
) -> Finding:
    return Finding(FindingKind.ORPHANED, provider, resource_class, consumer, other=table)


# --- usage, units and claims ----------------------------------------------------------------------


def _usage(rows: _Rows) -> Iterator[Finding]:
    """Yield inventories with a wrong usage, or one above the capacity."""
    sums: Counter[_Key] = Counter()
    for key, _, amount in rows.allocations:
        sums[key] += amount
        for target, factor in rows.shares.get(key, ()):
            sums[target] += amount * factor
    for key, record in rows.inventories.items():
        place, used = rows.at(key), record.used
        if used != sums[key]:
            yield Finding(FindingKind.WRONG_USED, *place, figure=used, expected=sums[key])
        if used > record.capacity:
            yield Finding(FindingKind.OVER_CAPACITY, *place, figure=used, expected=record.capacity)


def _allocated_units(rows: _Rows) -> Iterator[Finding]:
    """Yield units that are allocated twice, or without an allocation."""
    allocations = {(key, consumer) for key, consumer, _ in rows.allocations}
    consumers: dict[tuple[int, str], str] = {}
    for unit in rows.units:
        first = consumers.setdefault((unit.key[0], unit.name), unit.consumer)
        if first != unit.consumer:
            yield _of_unit(FindingKind.UNIT_TWICE, rows, unit, first)
        if (unit.key, unit.consumer) not in allocations:
            yield _of_unit(FindingKind.UNIT_LOOSE, rows, unit)


def _of_unit(kind: FindingKind, rows: _Rows, unit: _Unit, other: str | None = None) -> Finding:
    return Finding(kind, *rows.at(unit.key), unit.consumer, unit.name, other=other)


def _unshared(rows: _Rows, searched: Collection[str]) -> Iterator[Finding]:
    """Yield allocations from pools that are not linked to the host of the consumer.

    The host of a consumer is the tree from which it has most classes. Its allocations elsewhere are
    from pools, if the providers are pools now, or if a search chose them: then they were pools. A
    caller may also have allocated from several hosts on purpose.
    """
    linked_to: dict[int, set[str]] = defaultdict(set)  # aggregates by root
    for number, aggregates in rows.aggregates.items():
        linked_to[rows.roots[number]] |= aggregates
    by_consumer: dict[str, dict[int, list[_Allocation]]] = defaultdict(dict)
    for allocation in rows.allocations:
        (number, _), consumer, _ = allocation
        by_consumer[consumer].setdefault(rows.roots[number], []).append(allocation)
    for consumer, by_root in sorted(by_consumer.items()):
        classes = {
            root: {key[1] for key, _, _ in allocations}
            for root, allocations in by_root.items()
            if not all(key[0] in rows.pools for key, _, _ in allocations)
        }
        if len(by_root) < 2 or not classes:
            continue  # with allocations from pools alone, the host is unknown
        host = min(classes, key=lambda root: (-len(classes[root]), rows.index.uuids[root]))
        linked = frozenset().union(*(linked_to[root] for root in classes))
        for key, _, amount in (a for root in by_root if root != host for a in by_root[root]):
            is_pool = key[0] in rows.pools
            is_linked = is_pool and not rows.aggregates[key[0]].isdisjoint(linked)
            if (is_pool or consumer in searched) and not is_linked:
                at, kind = rows.at(key), FindingKind.UNSHARED
                yield Finding(kind, *at, consumer, figure=amount, other=rows.name(host))


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

    for key in rows.inventories:
        for pool in pools_of(rows.roots[key[0]]) if key[0] not in rows.pools else ():
            if (pool, key[1]) in rows.inventories:
                yield Finding(FindingKind.COUNTED_TWICE, *rows.at(key), other=rows.name(pool))


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


def _placed_resources(rows: _Rows) -> Iterator[Finding]:
    parts: dict[tuple[int, str], dict[int, KindRecord]] = defaultdict(dict)
    for number, kind in rows.kinds:
        with contextlib.suppress(exceptions.InvalidInput):  # of a plug-in that is not installed
            if resource(kind.resource_class).is_placed:
                parts[rows.roots[number], kind.resource_class][number] = kind
    units: dict[int, list[_Unit]] = defaultdict(list)
    for unit in rows.units if parts else ():
        units[unit.key[0]].append(unit)
    trees = [
        _PlacedResource(rows, root, name, kinds, [unit for n in kinds for unit in units[n]])
        for (root, name), kinds in parts.items()
    ]
    for tree in trees:
        yield from tree.contradictions()
        yield from tree.units_of_two_parts()
        if len(tree.inventories) == len(tree.parts):  # otherwise the existing units are unknown
            yield from tree.missing_units()
        yield from tree.unit_counts()
    yield from _undescribed(rows, trees)


@dataclasses.dataclass(frozen=True, slots=True)
class _PlacedResource:
    """The parts of one resource in a tree, and their allocated units, by number of the provider.

    ``inventories`` are of the parts that can be built.
    """

    rows: _Rows
    root: int
    name: str
    parts: Mapping[int, KindRecord]
    units: Sequence[_Unit]
    inventories: dict[int, PlacedInventory[Amount]] = dataclasses.field(default_factory=dict)

    def contradictions(self) -> Iterator[Finding]:
        """Build the inventories, and yield the parts that cannot be built."""
        units_of: dict[int, dict[str, tuple[str, ...]]] = defaultdict(dict)
        for (number, name), unit, _ in self.units:
            units_of[number][name] = (*units_of[number].get(name, ()), unit)
        built: list[StoredPart] = []
        for number, kind in self.parts.items():
            keys = [(number, name) for name in kind.classes]
            records = [self.rows.inventories[key] for key in keys if key in self.rows.inventories]
            part = StoredPart(tuple(records), kind.body or None, units_of[number])
            try:
                inventory = assembled(resource(self.name), [part])
                differing = self._differing(part, kind, inventory)
            except exceptions.InvalidInput as error:
                yield self._contradiction(number, str(error))
                continue
            if differing:
                text = f"the figures of {', '.join(sorted(differing))} are not as described"
                yield self._contradiction(number, text)
            self.inventories[number] = inventory
            built.append(part)
        try:
            if built:
                resource(self.name).inventory_from_parts(built)
        except exceptions.InvalidInput as error:
            yield self._contradiction(self.root, str(error))

    def _differing(self, part: StoredPart, kind: KindRecord, built: Inventory) -> set[str]:
        """Return the classes of a part with figures that are missing or not as described."""
        stored = {record.definition() for record in part.records}

        def differing(inventory: Inventory) -> set[str]:
            described = {record.definition() for record in inventory.to_records()}
            return {record.resource_class for record in stored ^ described}

        missing = set(kind.classes).difference(record.resource_class for record in stored)
        classes = missing | differing(built)
        if classes:  # reserved amounts may be subtracted before the ratio, or after it
            other = resource(self.name).inventory_from_storage(part.records, part.description)
            classes &= missing | differing(other)
        return classes

    def _contradiction(self, number: int, text: str) -> Finding:
        return Finding(FindingKind.CONTRADICTION, self.rows.name(number), self.name, other=text)

    def units_of_two_parts(self) -> Iterator[Finding]:
        """Yield units that are allocated from two parts."""
        is_of_devices = placed.has_named_units(self.name)
        first_of: dict[tuple[str, str], _Unit] = {}
        for unit in self.units:
            # a device is the same under every class that it can be allocated as
            name = "" if is_of_devices else unit.key[1]
            first = first_of.setdefault((name, unit.name), unit)
            if first.key[0] != unit.key[0]:
                other = f"{first.consumer} at {self.rows.name(first.key[0])}"
                yield _of_unit(FindingKind.UNIT_TWICE, self.rows, unit, other)

    def missing_units(self) -> Iterator[Finding]:
        """Yield allocated units that no part has."""
        inventories = self.inventories.values()
        existing = {
            name: [inventory.units(name) for inventory in inventories]
            for name in {unit.key[1] for unit in self.units}
        }
        dependent_of = {
            key: placed.dependent_units(self.inventories[key[0]], key[1])
            for key in {unit.key for unit in self.units}
        }
        dependent = {  # allocated together with the units of consumers
            unit._replace(name=name)
            for unit in self.units
            for name in dependent_of[unit.key].get(unit.name, ())
        }
        for unit in self.units:
            name = unit.key[1]
            exists = any(names is None or unit.name in names for names in existing[name])
            if exists or unit in dependent:
                continue
            is_elsewhere = any(unit.name in other.units_elsewhere(name) for other in inventories)
            kind = FindingKind.UNIT_ELSEWHERE if is_elsewhere else FindingKind.UNIT_GONE
            yield _of_unit(kind, self.rows, unit)

    def unit_counts(self) -> Iterator[Finding]:
        """Yield allocations with units, but not as many as their amount."""
        units_of: dict[tuple[_Key, str], list[str]] = defaultdict(list)
        for unit in self.units:
            units_of[unit.key, unit.consumer].append(unit.name)
        for number, inventory in self.inventories.items():
            for name, consumer, amount in self.rows.index.allocations.get(number, ()):
                key = number, name
                units = units_of[key, consumer]
                if not units or key not in self.rows.inventories or not inventory.units(name):
                    continue
                count = _amount_of(inventory, name, units)
                if count != amount:
                    at, kind = self.rows.at(key), FindingKind.UNIT_MISSING
                    yield Finding(kind, *at, consumer, figure=count, expected=amount)


def _amount_of(inventory: PlacedInventory[Amount], name: str, units: Collection[str]) -> int:
    """Return the amount of a class that units are; a unit that does not exist any more is one."""
    dependent = frozenset[str]().union(*placed.dependent_units(inventory, name).values())
    missing = set(units).difference(inventory.units(name) or (), dependent)
    return placed.unit_count(inventory, name, missing.symmetric_difference(units)) + len(missing)


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
