"""The audit: what in a ledger is not as it should be, as data. Pure, and apart from who writes.

It recomputes from rows what other code keeps up to date, so it does not believe what it checks.
Some findings are no faults but open ends that somebody should close: an expired claim, a pool whose
owner is silent, what is held of a pool through a link that is gone.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from resource_objects import clock, exceptions
from resource_objects.providers.arguments import ago
from resource_objects.providers.columns import Columns
from resource_objects.providers.orders import ConsumerRecord, Key
from resource_objects.providers.pools import SHARES
from resource_objects.resources import Amount, resource
from resource_objects.resources.located import Identified, Located, dependent_units, unit_count
from resource_objects.resources.records import InventoryRecord, KeptPart

__all__ = [
    "Audit",
    "Finding",
    "FindingKind",
    "audit",
    "spread",
]


def audit(
    columns: Columns,
    claims: Iterable[ConsumerRecord] = (),
    *,
    now: datetime.datetime | None = None,
    older_than: datetime.timedelta | None = None,
) -> Audit:
    """Return what is not as it should be. Cost: linear in the rows, and gathering what is in parts.

    >>> print(audit(Columns()))
    nothing found

    :param columns: everything that is kept, with allocations
    :param claims: those of :func:`spread` consumers and those to look at for expiry; of any
    :param now: the moment to judge by; None: this one, by the clock of this machine
    :param older_than: how long the owner of a pool may be silent; None: for ever
    """
    rows, moment = RowsByProvider(columns), now or clock.now()
    kept = {claim.consumer: claim for claim in claims}
    searched = {name for name, claim in kept.items() if claim.request is not None}
    found = [
        *_orphaned(rows),
        *_use(rows),
        *_units(rows),
        *in_parts(rows),
        *_unshared(rows, searched),
        *_counted_twice(rows),
        *_expired(kept.values(), moment),
        *(() if older_than is None else _stale(rows, ago("older_than", older_than, moment))),
    ]
    order = list(FindingKind)
    return Audit(tuple(sorted(found, key=lambda finding: order.index(finding.kind))))


def spread(columns: Columns) -> tuple[str, ...]:
    """Return who holds something in several trees: where a search found it, of a pool."""
    by_consumer = RowsByProvider(columns).by_consumer()
    return tuple(consumer for consumer, by_tree in by_consumer.items() if len(by_tree) > 1)


def _use(rows: RowsByProvider) -> Iterator[Finding]:
    expected: dict[Key, int] = defaultdict(int)
    for one in rows.allocations:
        expected[one.key] += one.amount
        for target, factor in rows.shares.get(one.key, ()):
            expected[target] += one.amount * factor
    for key, record in rows.inventories.items():
        where = rows.name(key[0])
        if record.used != expected[key]:
            yield Finding(
                FindingKind.WRONG_USED,
                where,
                key[1],
                found=record.used,
                expected=expected[key],
            )
        if record.used > record.capacity:
            yield Finding(
                FindingKind.OVER_CAPACITY,
                where,
                key[1],
                found=record.used,
                expected=record.capacity,
            )


def _units(rows: RowsByProvider) -> Iterator[Finding]:
    held = {(one.key, one.consumer) for one in rows.allocations}
    owner: dict[tuple[str, str], str] = {}
    for unit in rows.units:
        place = rows.name(unit.key[0])
        first = owner.setdefault((unit.key[0], unit.unit), unit.consumer)
        if first != unit.consumer:
            yield Finding(
                FindingKind.UNIT_TWICE,
                place,
                unit.key[1],
                unit.consumer,
                unit.unit,
                other=first,
            )
        if (unit.key, unit.consumer) not in held:
            yield Finding(FindingKind.UNIT_LOOSE, place, unit.key[1], unit.consumer, unit.unit)


def _unshared(rows: RowsByProvider, searched: Collection[str]) -> Iterator[Finding]:
    """Yield what is held of pools that give nothing to the consumer's host.

    The host of a consumer is the tree in which it holds most classes. What it holds elsewhere is
    of a pool, if that is one, or if a search found it: then it was one. Others may hold something
    of several hosts on purpose.
    """
    for consumer, by_tree in rows.by_consumer().items():
        hosts = [tree for tree, held in by_tree.items() if not rows.are_of_pools(held)]
        if len(by_tree) < 2 or not hosts:
            continue  # of pools alone: nobody says for which host
        host = min(hosts, key=lambda tree: (-len({one.key[1] for one in by_tree[tree]}), tree))
        linked = frozenset().union(*(rows.aggregates_of_tree[tree] for tree in hosts))
        for tree, held in by_tree.items():
            for one in held if tree != host else ():
                is_of_pool = one.key[0] in rows.pools or consumer in searched
                if is_of_pool and not rows.is_given(one.key, linked):
                    yield Finding(
                        FindingKind.UNSHARED,
                        rows.name(one.key[0]),
                        one.key[1],
                        consumer,
                        found=one.amount,
                        other=rows.name(host),
                    )


def _counted_twice(rows: RowsByProvider) -> Iterator[Finding]:
    """Yield what is counted at a pool and in a tree that has it from there, wherever in the tree.

    A search takes a class from a tree as a whole, or from a pool that the tree is linked to.
    """
    pools: dict[str, list[str]] = defaultdict(list)
    for pool in sorted(rows.pools, key=rows.name):
        for aggregate in rows.aggregates[pool]:
            pools[aggregate].append(pool)
    for host, name in rows.inventories:
        if host in rows.pools:
            continue
        givers = {pool for aggregate in rows.links(host) for pool in pools[aggregate]}
        for pool in sorted(givers, key=rows.name):
            if (pool, name) in rows.inventories:
                where = rows.name(host)
                yield Finding(FindingKind.COUNTED_TWICE, where, name, other=rows.name(pool))


def _expired(claims: Iterable[ConsumerRecord], now: datetime.datetime) -> Iterator[Finding]:
    for claim in claims:
        if claim.expires_at is not None and claim.expires_at < now:
            yield Finding(FindingKind.EXPIRED, consumer=claim.consumer, at=claim.expires_at)


def _stale(rows: RowsByProvider, before: datetime.datetime) -> Iterator[Finding]:
    for pool in sorted(rows.pools, key=rows.name):
        reported = rows.reported_at[pool]
        if reported is None or reported < before:
            yield Finding(FindingKind.STALE_POOL, rows.name(pool), at=reported)


def _orphaned(rows: RowsByProvider) -> Iterator[Finding]:
    for orphan in rows.orphans:
        yield Finding(
            FindingKind.ORPHANED,
            orphan.provider,
            orphan.resource_class or None,
            orphan.consumer or None,
            other=orphan.table,
        )


# --- findings -------------------------------------------------------------------------------------
#
# What an audit found, as data: findings, each of a kind, with figures and names.


class FindingKind(enum.StrEnum):
    """What a :class:`Finding` is about."""

    OVER_CAPACITY = "over_capacity"  #: more is used than the capacity: after a shrink
    WRONG_USED = "wrong_used"  #: ``used`` is not the sum of allocations times shares
    UNIT_TWICE = "unit_twice"  #: a unit belongs to two consumers
    UNIT_LOOSE = "unit_loose"  #: a unit is taken by somebody with no allocation there
    UNIT_GONE = "unit_gone"  #: a unit is taken that is not there: lost, or a CPU that is offline
    UNIT_ELSEWHERE = "unit_elsewhere"  #: a unit is taken, and given out in another way too
    UNIT_MISSING = "unit_missing"  #: somebody has some units, and not as many as it holds
    CONTRADICTION = "contradiction"  #: what is kept in parts makes no inventory
    UNDESCRIBED = "undescribed"  #: a provider is counted like a part, and is described as none
    UNSHARED = "unshared"  #: held of a pool that does not give to the consumer's host any more
    COUNTED_TWICE = "counted_twice"  #: a class is counted in a host's tree and at a pool of it
    EXPIRED = "expired"  #: a claim whose time is over, and that is still held
    STALE_POOL = "stale_pool"  #: a pool whose owner did not report for long
    ORPHANED = "orphaned"  #: it belongs to something that is not there


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    ``found`` and ``expected`` are figures: what is used, and the capacity or what should be used.
    ``at`` is when a claim expired, or a pool was last heard of; ``other`` a second provider or
    consumer, the kind of row, or what contradicts.
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
        """Return plain data for JSON, without what does not apply."""
        said = {
            name: value for name, value in dataclasses.asdict(self).items() if value is not None
        }
        if self.at is not None:
            said["at"] = self.at.isoformat()
        return {**said, "kind": self.kind.value, "text": str(self)}

    def __str__(self) -> str:
        at = "never" if self.at is None else f"at {self.at.isoformat(' ', 'seconds')}"
        about = ", ".join(filter(None, (self.resource_class, self.consumer)))
        return _WORDS[self.kind].format(self, at=at, said=f" ({about})" if about else "")


_WORDS = {
    FindingKind.OVER_CAPACITY: (
        "{0.provider}: {0.resource_class} has {0.found} used of {0.expected}"
    ),
    FindingKind.WRONG_USED: (
        "{0.provider}: {0.resource_class} says {0.found} used, allocations come to {0.expected}"
    ),
    FindingKind.UNIT_TWICE: "{0.provider}: {0.unit} is taken by {0.other} and by {0.consumer}",
    FindingKind.UNIT_LOOSE: (
        "{0.provider}: {0.unit} is taken by {0.consumer}, who holds no {0.resource_class} there"
    ),
    FindingKind.UNIT_GONE: (
        "{0.provider}: {0.unit} is taken by {0.consumer}, and no {0.resource_class} is called that"
    ),
    FindingKind.UNIT_ELSEWHERE: (
        "{0.provider}: {0.unit} of {0.resource_class} is taken by {0.consumer}, "
        "and given out in another way"
    ),
    FindingKind.UNIT_MISSING: (
        "{0.provider}: {0.consumer} holds {0.expected} {0.resource_class}, and {0.found} units"
    ),
    FindingKind.CONTRADICTION: "{0.provider}: {0.resource_class} contradicts itself: {0.other}",
    FindingKind.UNDESCRIBED: "{0.provider}: it is counted like {0.other}, and is not described",
    FindingKind.UNSHARED: (
        "{0.provider}: {0.consumer} holds {0.found} {0.resource_class}, "
        "which is not given to {0.other}"
    ),
    FindingKind.COUNTED_TWICE: (
        "{0.provider}: {0.resource_class} is counted here and at the pool {0.other}"
    ),
    FindingKind.EXPIRED: "{0.consumer}: its claim expired {at}",
    FindingKind.STALE_POOL: "{0.provider}: the owner of the pool reported last {at}",
    FindingKind.ORPHANED: "{0.provider}: {0.other} without what it belongs to{said}",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found. A sequence of findings, empty where all is well.

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
        wanted = FindingKind(kind)
        return tuple(finding for finding in self.findings if finding.kind is wanted)

    def counts(self) -> dict[str, int]:
        """Return how many findings there are of each kind that was found."""
        return dict(Counter(finding.kind.value for finding in self.findings))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "counts": self.counts(),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "nothing found"


# --- rows, as an audit reads them -----------------------------------------------------------------
#
# Columns as an audit looks at them: rows that belong together, and those that belong to nothing.
#
# Nothing is taken for granted here: a row may be of a provider or an inventory that is not there.


class Allocated(NamedTuple):
    """One allocation."""

    key: Key
    consumer: str
    amount: int


class TakenUnit(NamedTuple):
    """One unit that is taken."""

    key: Key
    unit: str
    consumer: str


class KeptKind(NamedTuple):
    """What is kept of a structured inventory beside its figures."""

    uuid: str
    name: str
    classes: tuple[str, ...]
    body: str


@dataclasses.dataclass(frozen=True, slots=True)
class Orphan:
    """A row that belongs to something that is not there."""

    table: str
    provider: str
    resource_class: str = ""
    consumer: str = ""


class RowsByProvider:
    """The rows of columns, by uuid of their provider; ``orphans`` are left out of the others."""

    def __init__(self, columns: Columns) -> None:
        given = columns.providers
        self.orphans: list[Orphan] = []
        self._uuid = columns.index.uuids
        self._names = columns.index.names_by_uuid
        #: when the owner of each said last how it is
        self.reported_at: dict[str, datetime.datetime | None] = dict(
            zip(given.uuid, given.reported_at or [None] * len(given.uuid), strict=True)
        )
        self._tree = self._trees(columns)
        self.inventories: dict[Key, InventoryRecord] = {
            (uuid, figures[0]): InventoryRecord(*figures)
            for uuid, *figures in self._known("inventory", columns.inventories)
        }
        traits = self._grouped("trait", columns.traits)
        #: the providers that are pools
        self.pools = frozenset(uuid for uuid, own in traits.items() if SHARES in own)
        self.aggregates = self._grouped("membership", columns.aggregates)
        self.aggregates_of_tree: dict[str, set[str]] = defaultdict(set)
        self._links: dict[str, set[str]] = defaultdict(set)
        for uuid, own in self.aggregates.items():
            self.aggregates_of_tree[self._tree[uuid]] |= own
            if uuid not in self.pools:
                self._links[self._tree[uuid]] |= own
        self.shares = self._shares(columns)
        self.allocations = [
            Allocated((uuid, name), consumer, amount)
            for uuid, name, consumer, amount in self._known("allocation", columns.allocations)
            if self._has_inventory("allocation", uuid, name, consumer)
        ]
        self.kinds = [KeptKind(*row) for row in self._known("kind", columns.kinds)]
        self.units = [
            TakenUnit((uuid, name), unit, consumer)
            for uuid, unit, name, consumer in self._known("unit", columns.units)
        ]

    def name(self, uuid: str) -> str:
        """Return the name of a provider."""
        return self._names[uuid]

    def tree(self, uuid: str) -> str:
        """Return the uuid of the root of a provider."""
        return self._tree[uuid]

    def links(self, uuid: str) -> Iterable[str]:
        """Return the aggregates through which the tree of a provider has something from pools."""
        return self._links.get(self._tree[uuid], ())

    def by_consumer(self) -> dict[str, dict[str, list[Allocated]]]:
        """Return what each consumer holds, by tree (the uuid of the root)."""
        found: dict[str, dict[str, list[Allocated]]] = defaultdict(lambda: defaultdict(list))
        for one in self.allocations:
            found[one.consumer][self._tree[one.key[0]]].append(one)
        return {consumer: dict(by_tree) for consumer, by_tree in sorted(found.items())}

    def are_of_pools(self, held: Iterable[Allocated]) -> bool:
        """Return whether all of this is held of pools."""
        return all(one.key[0] in self.pools for one in held)

    def is_given(self, key: Key, aggregates: Iterable[str]) -> bool:
        """Return whether something is of a pool that gives to the members of aggregates."""
        return key[0] in self.pools and not self.aggregates[key[0]].isdisjoint(aggregates)

    # --- made ---

    def _known(self, table: str, rows: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table with the uuid of their provider instead of its number."""
        for number, *values in zip(*rows, strict=True):
            if number in self._uuid:
                yield (self._uuid[number], *values)
            else:
                self.orphans.append(Orphan(table, f"provider {number}"))

    def _grouped(self, table: str, rows: Any) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for uuid, value in self._known(table, rows):
            found[uuid].add(value)
        return found

    def _has_inventory(self, table: str, uuid: str, name: str, consumer: str = "") -> bool:
        if (uuid, name) in self.inventories:
            return True
        self.orphans.append(Orphan(table, self._names[uuid], name, consumer))
        return False

    def _trees(self, columns: Columns) -> dict[str, str]:
        """Return the uuid of the root of each provider; of one whose parent is gone, its own."""
        parents = columns.index.parents
        found: dict[str, str] = {}
        for number, parent in parents.items():
            if parent is not None and parent not in parents:
                self.orphans.append(Orphan("child", self._names[self._uuid[number]]))
            top, seen = number, {number}
            while (above := parents[top]) is not None and above in parents and above not in seen:
                top = above
                seen.add(above)
            found[self._uuid[number]] = self._uuid[top]
        return found

    def _shares(self, columns: Columns) -> dict[Key, list[tuple[Key, int]]]:
        found: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        for uuid, name, of_id, of_class, factor in self._known("share", columns.shares):
            of = self._uuid.get(of_id)
            if of is None:
                self.orphans.append(Orphan("share", self._names[uuid], name))
            elif self._has_inventory("share", uuid, name) and self._has_inventory(
                "share", of, of_class
            ):
                found[uuid, name].append(((of, of_class), factor))
        return found


# --- inventories that are kept in parts -----------------------------------------------------------
#
# What an audit finds where an inventory is kept in parts, each by a provider of a tree.
#
# Each part is read alone, then all of a tree together; then what is taken by name is compared
# with the units there are. A unit may be of another part than the one it was taken of: firmware
# may number cells anew. Kinds are asked, and none is named (D11).


@dataclasses.dataclass(frozen=True, slots=True)
class _LocatedTree:
    """The parts of one resource in a tree, by uuid; ``inventories`` are those that can be read."""

    root: str
    name: str
    parts: dict[str, KeptKind] = dataclasses.field(default_factory=dict)
    inventories: dict[str, Located[Amount]] = dataclasses.field(default_factory=dict)


def in_parts(rows: RowsByProvider) -> Iterator[Finding]:
    """Yield what is wrong with inventories that are kept in parts.

    Cost: linear in the rows, and gathering each tree that has parts.
    """
    trees = _trees(rows)
    taken: dict[str, list[TakenUnit]] = defaultdict(list)
    for unit in rows.units if trees else ():
        taken[unit.key[0]].append(unit)
    held: dict[str, list[Allocated]] = defaultdict(list)
    for one in rows.allocations if trees else ():
        held[one.key[0]].append(one)
    for tree in trees:
        units = [unit for uuid in tree.parts for unit in taken[uuid]]
        yield from _contradictions(rows, tree, units)
        yield from _twice(rows, tree, units)
        if len(tree.inventories) == len(tree.parts):  # else it is not known what there is
            yield from _not_there(rows, tree, units)
        yield from _missing(rows, tree, units, [one for uuid in tree.parts for one in held[uuid]])
    yield from _undescribed(rows, trees)


def _trees(rows: RowsByProvider) -> list[_LocatedTree]:
    found: dict[tuple[str, str], _LocatedTree] = {}
    for kind in rows.kinds:
        if _is_located(kind.name):
            key = rows.tree(kind.uuid), kind.name
            found.setdefault(key, _LocatedTree(*key)).parts[kind.uuid] = kind
    return list(found.values())


def _is_located(name: str) -> bool:
    try:
        return resource(name).is_located
    except exceptions.InvalidInput:  # of a plug-in that is not there
        return False


# --- what is described ---


def _contradictions(
    rows: RowsByProvider, tree: _LocatedTree, units: Iterable[TakenUnit]
) -> Iterator[Finding]:
    """Yield what cannot be read, alone or together; note what can."""
    kept: list[KeptPart] = []
    named: dict[Key, list[str]] = defaultdict(list)
    for unit in units:
        named[unit.key].append(unit.unit)
    for uuid, kind in tree.parts.items():
        there = [(uuid, name) for name in kind.classes if (uuid, name) in rows.inventories]
        records = tuple(rows.inventories[key] for key in there)
        taken = {key[1]: tuple(own) for key, own in named.items() if key[0] == uuid}
        part = KeptPart(records, kind.body or None, taken)
        try:
            made = resource(tree.name).from_parts([part])
            if not isinstance(made, Located):
                raise exceptions.InvalidInventory(tree.name, made, "one that has parts (Located)")
            lost = set(kind.classes).difference(record.resource_class for record in records)
            odd = lost.union(_differing(records, made.to_records()))
            if odd:  # what is withheld may be set aside before it is given back, or then
                stored = resource(tree.name).inventory_from_kept(records, part.description)
                odd &= lost.union(_differing(records, stored.to_records()))
        except exceptions.InvalidInput as error:
            yield _contradiction(rows.name(uuid), tree.name, str(error))
            continue
        if odd:
            said = f"figures of {', '.join(sorted(odd))} that are not as described"
            yield _contradiction(rows.name(uuid), tree.name, said)
        tree.inventories[uuid] = made
        kept.append(part)
    try:
        resource(tree.name).from_parts(kept) if kept else None
    except exceptions.InvalidInput as error:
        yield _contradiction(rows.name(tree.root), tree.name, str(error))


def _differing(kept: Iterable[InventoryRecord], said: Iterable[InventoryRecord]) -> set[str]:
    """Return the classes of which other figures are kept than those described."""
    mine = {record.definition() for record in kept}
    theirs = {record.definition() for record in said}
    return {record.resource_class for record in mine ^ theirs}


def _contradiction(where: str, name: str, said: str) -> Finding:
    return Finding(FindingKind.CONTRADICTION, where, name, other=said)


def _undescribed(rows: RowsByProvider, trees: Iterable[_LocatedTree]) -> Iterator[Finding]:
    """Yield providers that have and share what parts of their tree do, and are none of them."""
    by_tree = {tree.root: tree for tree in trees}
    own: dict[str, set[str]] = defaultdict(set)
    for uuid, name in rows.inventories if by_tree else ():
        own[uuid].add(name)
    described = {kind.uuid for kind in rows.kinds}
    for uuid, classes in own.items():
        tree = by_tree.get(rows.tree(uuid))
        if tree is None or uuid in described or uuid == tree.root:
            continue
        counted = {name for kind in tree.parts.values() for name in kind.classes}
        targets = {key for part, kind in tree.parts.items() for key in _shared(rows, part, kind)}
        shared = {to for name in classes for to, _ in rows.shares.get((uuid, name), ())}
        if shared and shared <= targets and classes <= counted:
            other = rows.name(min(tree.parts, key=rows.name))
            yield Finding(FindingKind.UNDESCRIBED, rows.name(uuid), tree.name, other=other)


def _shared(rows: RowsByProvider, uuid: str, kind: KeptKind) -> Iterator[Key]:
    for name in kind.classes:
        yield from (to for to, _ in rows.shares.get((uuid, name), ()))


# --- what is taken by name ---


def _twice(
    rows: RowsByProvider, tree: _LocatedTree, units: Iterable[TakenUnit]
) -> Iterator[Finding]:
    """Yield units that are taken at two parts of one tree."""
    of_devices = issubclass(resource(tree.name).inventory_kind, Identified)
    first: dict[tuple[str, str], TakenUnit] = {}
    for unit in units:
        name = "" if of_devices else unit.key[1]  # a device is one thing, whatever it is taken as
        one = first.setdefault((name, unit.unit), unit)
        if one.key[0] != unit.key[0]:
            other = f"{one.consumer} at {rows.name(one.key[0])}"
            yield _of_unit(FindingKind.UNIT_TWICE, rows, unit, other)


def _not_there(
    rows: RowsByProvider, tree: _LocatedTree, units: Iterable[TakenUnit]
) -> Iterator[Finding]:
    """Yield units that no part of the tree has."""
    units = list(units)
    inventories = tree.inventories.values()
    there = {
        name: [inventory.units(name) for inventory in inventories]
        for name in {unit.key[1] for unit in units}
    }
    along = set(_dependent(tree, units))
    for unit in units:
        name = unit.key[1]
        if any(own is None or unit.unit in own for own in there[name]):
            continue
        if (unit.key, unit.consumer, unit.unit) in along:
            continue
        is_elsewhere = any(unit.unit in one.units_elsewhere(name) for one in inventories)
        kind = FindingKind.UNIT_ELSEWHERE if is_elsewhere else FindingKind.UNIT_GONE
        yield _of_unit(kind, rows, unit)


def _dependent(tree: _LocatedTree, units: Iterable[TakenUnit]) -> Iterator[tuple[Key, str, str]]:
    """Yield what goes with the units that consumers have: ``(place, consumer, unit)``."""
    known: dict[Key, Mapping[str, frozenset[str]]] = {}
    for unit in units:
        if unit.key not in known:
            known[unit.key] = dependent_units(tree.inventories[unit.key[0]], unit.key[1])
        for other in known[unit.key].get(unit.unit, ()):
            yield unit.key, unit.consumer, other


def _missing(
    rows: RowsByProvider, tree: _LocatedTree, units: Iterable[TakenUnit], held: Iterable[Allocated]
) -> Iterator[Finding]:
    """Yield who has some units of what it holds, and another number of them than it holds."""
    by_holder: dict[tuple[Key, str], list[str]] = defaultdict(list)
    for unit in units:
        by_holder[unit.key, unit.consumer].append(unit.unit)
    for one in held:
        own, made = by_holder[one.key, one.consumer], tree.inventories.get(one.key[0])
        if not own or made is None or not made.units(one.key[1]):
            continue
        named = _count(made, one.key[1], own)
        if named == one.amount:
            continue
        yield Finding(
            FindingKind.UNIT_MISSING,
            rows.name(one.key[0]),
            one.key[1],
            one.consumer,
            found=named,
            expected=one.amount,
        )


def _count(inventory: Located[Amount], name: str, units: Collection[str]) -> int:
    """Return how much of a class some units are; one that is not there any more was one."""
    along = frozenset[str]().union(*dependent_units(inventory, name).values())
    gone = set(units).difference(inventory.units(name) or (), along)
    return unit_count(inventory, name, gone.symmetric_difference(units)) + len(gone)


def _of_unit(
    kind: FindingKind, rows: RowsByProvider, unit: TakenUnit, other: str | None = None
) -> Finding:
    where, name = unit.key
    return Finding(kind, rows.name(where), name, unit.consumer, unit.unit, other=other)
