"""What is kept, as the judge wants it: read through a backend, or by plain SQL."""

from __future__ import annotations

import dataclasses
import heapq
from collections import defaultdict
from typing import Any

from resource_objects.providers import Backend
from resource_objects.providers.feed import SHARDS, Cursor, FeedEntry
from resource_objects.providers.orders import Key, Operation
from tests.support import checker
from tests.support.diary import Holds


@dataclasses.dataclass
class Recorded:
    """An operation that is recorded, with its number and what it left of each consumer."""

    number: int
    kind: str
    subject: str
    claims: list[list[Any]] = dataclasses.field(default_factory=list)  #: as a diary says them


@dataclasses.dataclass
class Told:
    """A change of the feed. ``uses`` are ``(consumer's uuid, key, after, taken, given)``."""

    shard: int
    number: int
    operation: str
    at: Any  #: None where the operation is not recorded
    providers: frozenset[str]
    consumers: frozenset[str]
    uses: tuple[tuple[str, Key, int, tuple[str, ...], tuple[str, ...]], ...]
    claims: tuple[str, ...]  #: uuids of consumers whose claim changed


@dataclasses.dataclass
class Evidence:
    """Everything that is kept, after the storm."""

    operations: dict[str, Recorded]
    changes: list[Told]
    inventories: dict[Key, tuple[int, int]]  #: (capacity, used)
    shares: dict[Key, dict[Key, int]]
    consumers: dict[str, tuple[str, int]]  #: (uuid, generation)
    holds: dict[str, Holds]  #: by consumer
    structured: frozenset[Key] = frozenset()  #: inventories that are part of a structured one


def through_backend(backend_class: type[Backend], url: str) -> Evidence:
    """Read what is kept with a backend's own methods."""
    backend = backend_class.open(url)
    try:
        return of_backend(backend)
    finally:
        backend.close()


def of_backend(backend: Backend) -> Evidence:
    """Read what is kept, through a backend that is open."""
    columns = backend.read()
    uuid = dict(zip(columns.providers.provider_id, columns.providers.uuid, strict=True))
    inventories = {
        (uuid[number], name): (figures[-2], figures[-1])
        for number, name, *figures in zip(*columns.inventories, strict=True)
    }
    shares: dict[Key, dict[Key, int]] = defaultdict(dict)
    for number, name, of, of_class, factor in zip(*columns.shares, strict=True):
        shares[uuid[number], name][uuid[of], of_class] = factor
    outcomes = {}
    entries = _entries(backend)
    for id in {entry.operation for entry in entries}:
        outcome = backend.outcome(Operation(id))
        if outcome is not None:
            outcomes[id] = outcome
    names = {
        (id, claim.consumer): claim.uuid
        for id, outcome in outcomes.items()
        for claim in outcome.claims
    }

    def whose(operation: str, consumer: str) -> str:
        return names.get((operation, consumer), consumer)  # who is only told of has its name

    told = [
        Told(
            entry.shard,
            entry.number,
            entry.operation,
            entry.at,
            frozenset(entry.providers),
            frozenset(entry.consumers),
            tuple(
                (
                    whose(entry.operation, use.consumer),
                    use.key,
                    use.after,
                    use.allocated_units,
                    use.released_units,
                )
                for use in entry.uses
            ),
            tuple(whose(entry.operation, one) for one in entry.claims),
        )
        for entry in entries
    ]
    numbers = {entry.operation: entry.generation for entry in entries}
    recorded = {
        id: Recorded(numbers[id], outcome.kind, outcome.subject) for id, outcome in outcomes.items()
    }
    operations = _replayed(told, recorded, {uuid: name for (_, name), uuid in names.items()})
    units: dict[tuple[str, Key], set[str]] = defaultdict(set)
    for number, unit, name, consumer in zip(*columns.units, strict=True):
        units[consumer, (uuid[number], name)].add(unit)
    holds: dict[str, Holds] = defaultdict(dict)
    for number, name, consumer, amount in zip(*columns.allocations, strict=True):
        key = uuid[number], name
        holds[consumer][key] = amount, frozenset(units.pop((consumer, key), ()))
    assert not units, f"units of nobody: {units}"
    consumers = {
        name: (record.uuid, record.generation)
        for name, record in backend.held_by(list(holds)).items()
    }
    structured = frozenset(
        (uuid[number], name)
        for number, _, classes, _ in zip(*columns.kinds, strict=True)
        for name in classes
    )
    return Evidence(operations, told, inventories, dict(shares), consumers, dict(holds), structured)


def _entries(backend: Backend) -> list[FeedEntry]:
    found: list[FeedEntry] = []
    cursor = Cursor((0,) * SHARDS)
    while page := backend.changes(cursor, 1000):
        cursor = cursor.moved(page)
        found += page
    return found


def _replayed(
    told: list[Told], recorded: dict[str, Recorded], names: dict[str, str]
) -> dict[str, Recorded]:
    """Return operations in an order that every shard tells, with what each left of consumers.

    One that is told and not recorded is none of them; what it changed counts for those after it.
    One that is recorded and not told is the last, and left nothing.

    :param names: of consumers, by uuid
    """
    holds: dict[str, Holds] = defaultdict(dict)
    by_operation: dict[str, list[Told]] = defaultdict(list)
    for one in told:
        by_operation[one.operation].append(one)
    ordered: dict[str, Recorded] = {}
    for id in _in_order(told):
        before: dict[str, Holds] = {}
        for one in by_operation[id]:
            for uuid in one.claims:
                before.setdefault(uuid, dict(holds[uuid]))
            for uuid, key, after, taken, given in one.uses:
                before.setdefault(uuid, dict(holds[uuid]))
                units = (holds[uuid].get(key, (0, frozenset[str]()))[1] - set(given)) | set(taken)
                holds[uuid][key] = after, units
        if id not in recorded:
            continue
        entry = ordered[id] = recorded[id]
        for uuid, had in before.items():
            now = {key: held for key, held in holds[uuid].items() if held[0]}
            had = {key: held for key, held in had.items() if held[0]}
            left = [[*key, n, sorted(u)] for key, (n, u) in (now or had).items()]
            state = "held" if now else "released"
            entry.claims.append([names.get(uuid, uuid), uuid, entry.number, state, sorted(left)])
    return {**ordered, **{id: one for id, one in recorded.items() if id not in ordered}}


def _in_order(told: list[Told]) -> list[str]:
    """Return operations in an order that keeps that of every shard; by time where none tells."""

    def when(id: str) -> tuple[bool, Any]:
        return at[id] is not None, at[id]  # what is not recorded has no time: as soon as it can

    after: dict[str, set[str]] = defaultdict(set)
    waits: dict[str, int] = {}
    at = {one.operation: one.at for one in told}
    last: dict[int, str] = {}
    for one in sorted(told, key=lambda one: (one.shard, one.number)):
        waits.setdefault(one.operation, 0)
        before = last.get(one.shard)
        if before is not None and one.operation not in after[before]:
            after[before].add(one.operation)
            waits[one.operation] += 1
        last[one.shard] = one.operation
    ready = [(*when(id), id) for id, count in waits.items() if not count]
    heapq.heapify(ready)
    found: list[str] = []
    while ready:
        *_, id = heapq.heappop(ready)
        found.append(id)
        for then in after[id]:
            waits[then] -= 1
            if not waits[then]:
                heapq.heappush(ready, (*when(then), then))
    return found


def through_sql(url: str) -> Evidence:
    """Read what is kept by plain SQL: nothing of the library's backends is used."""
    tables = checker.read_tables(url)
    uuid = {row[0]: row[4] for row in tables["providers"]}
    classes = {row[0]: row[1] for row in tables["classes"]}

    def key(provider: int, class_: int) -> Key:
        return uuid[provider], classes[class_]

    shares: dict[Key, dict[Key, int]] = defaultdict(dict)
    for provider, class_, of_provider, of_class, factor in tables["shares"]:
        shares[key(provider, class_)][key(of_provider, of_class)] = factor
    uuids = {row[0]: row[3] for row in tables["consumers"]}
    names = {row[3]: row[1] for row in tables["consumers"]}
    ids = {row[0]: row[1] for row in tables["operations"]}
    times = {row[0]: row[4] for row in tables["operations"]}
    told: dict[tuple[int, int], Told] = {}
    for shard, number, _, operation, _, consumer, uuid_of, kind, _, after, taken, given in tables[
        "changes"
    ]:
        one = told.setdefault(
            (shard, number),
            Told(
                *(shard, number, ids.get(operation, f"number {operation}"), times.get(operation)),
                *(frozenset(), frozenset(), (), ()),
            ),
        )
        if uuid_of is not None:
            one.providers |= {uuid_of}
        if consumer is not None:
            one.consumers |= {names[uuids[consumer]]}
            units = tuple(tuple(checker.loaded(some)) for some in (taken, given))
            if uuid_of is None:
                one.claims += (uuids[consumer],)
            else:
                one.uses += ((uuids[consumer], (uuid_of, kind), after, *units),)
    recorded = {id: Recorded(number, kind, of) for number, id, kind, of, _ in tables["operations"]}
    return Evidence(
        _replayed(list(told.values()), recorded, names),
        list(told.values()),
        {key(row[0], row[1]): (row[8], row[9]) for row in tables["inventories"]},
        dict(shares),
        {row[1]: (row[3], row[2]) for row in tables["consumers"] if row[5] == 0},
        {name: dict(holds) for name, holds in checker.holdings(tables).items()},
        frozenset(
            (uuid[provider], name)
            for provider, _, classes in tables["kinds"]
            for name in checker.loaded(classes)
        ),
    )
