"""What is kept, as the judge wants it: read through a backend, or by plain SQL."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from typing import Any

from resource_objects.providers import Backend
from resource_objects.providers.feed import SHARDS, Cursor
from resource_objects.providers.orders import Key, Operation
from resource_objects.testing import checker
from resource_objects.testing.kill.diary import Holds, said


@dataclasses.dataclass
class Recorded:
    """An operation that is recorded, with its number and what it says of each consumer."""

    number: int
    kind: str
    subject: str
    claims: list[list[Any]]  #: as a diary says them


@dataclasses.dataclass
class Told:
    """A change of the feed."""

    shard: int
    number: int
    operation: str
    providers: frozenset[str]
    consumers: frozenset[str]


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
    changes = _changes(backend)
    operations = {}
    for id in {change.operation for change in changes}:
        outcome = backend.outcome(Operation(id))
        if outcome is not None:
            claims = [said(claim) for claim in outcome.claims]
            number = outcome.claims[0].generation if claims else 0
            operations[id] = Recorded(number, outcome.kind, outcome.subject, claims)
    units: dict[tuple[str, Key], set[str]] = defaultdict(set)
    for number, unit, name, consumer in zip(*columns.units, strict=True):
        units[consumer, (uuid[number], name)].add(unit)
    holds: dict[str, Holds] = defaultdict(dict)
    for number, name, consumer, amount in zip(*columns.allocations, strict=True):
        key = uuid[number], name
        holds[consumer][key] = amount, frozenset(units.pop((consumer, key), ()))
    assert not units, f"units of nobody: {units}"
    consumers = {
        name: (record.consumer_uuid, record.generation)
        for name, record in backend.held_by(list(holds)).items()
    }
    structured = frozenset(
        (uuid[number], name)
        for number, _, classes, _ in zip(*columns.kinds, strict=True)
        for name in classes
    )
    return Evidence(
        operations, changes, inventories, dict(shares), consumers, dict(holds), structured
    )


def _changes(backend: Backend) -> list[Told]:
    found = []
    cursor = Cursor((0,) * SHARDS)
    while page := backend.changes(cursor, 1000):
        cursor = cursor.moved(page)
        found += [
            Told(
                one.shard,
                one.number,
                one.operation,
                frozenset(one.providers),
                frozenset(one.consumers),
            )
            for one in page
        ]
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
    return Evidence(
        {
            id: Recorded(
                number,
                kind,
                subject,
                [_said(claim, number) for claim in checker.claims_of(outcome)],
            )
            for number, id, kind, subject, outcome in tables["operations"]
        },
        [
            Told(shard, number, operation, *(frozenset(names) for names in json.loads(touched)))
            for shard, number, operation, touched in tables["changes"]
        ],
        {key(row[0], row[1]): (row[8], row[9]) for row in tables["inventories"]},
        dict(shares),
        {row[1]: (row[3], row[2]) for row in tables["consumers"]},
        {name: dict(holds) for name, holds in checker.holdings(tables).items()},
        frozenset(
            (uuid[provider], name)
            for provider, _, classes in tables["kinds"]
            for name in classes.split(",")
        ),
    )


def _said(claim: dict[str, Any], number: int) -> list[Any]:
    held = [
        [one[0], one[2], one[3], sorted(one[4]) if len(one) > 4 else []] for one in claim["held"]
    ]
    return [claim["consumer"], claim["consumer_uuid"], number, claim["state"], sorted(held)]
