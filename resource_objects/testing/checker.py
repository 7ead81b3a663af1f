"""A checker of SQL ledgers that shares nothing with the code it judges.

It reads the tables by plain SQL, on a connection of its own, and recomputes in Python what the
library computes elsewhere. A deliberately broken backend makes it speak up; a test sees to that.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import sqlalchemy
from sqlalchemy.pool import NullPool

#: ``table: query`` of everything that is checked
_QUERIES = {
    "providers": "SELECT id, name, root_id, parent_id, uuid FROM resource_providers",
    "inventories": "SELECT provider_id, class_id, total, reserved, min_unit, max_unit, step_size,"
    " ratio_millionths, capacity, used FROM inventories",
    "allocations": "SELECT consumer_id, provider_id, class_id, used FROM allocations",
    "consumers": "SELECT id, name, generation FROM consumers",
    "claims": "SELECT consumer_id, uuid FROM claims",
    "classes": "SELECT id, name FROM resource_classes",
    "traits": "SELECT id, name FROM traits",
    "provider_traits": "SELECT provider_id, trait_id FROM resource_provider_traits",
    "operations": "SELECT id, uuid, kind, subject, outcome FROM operations",
}

Row = tuple[Any, ...]
Tables = dict[str, list[Row]]


def read_tables(url: str) -> Tables:
    """Return the rows of a ledger's tables as plain tuples."""
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    level = "SERIALIZABLE" if engine.dialect.name == "sqlite" else "REPEATABLE READ"
    with engine.execution_options(isolation_level=level).connect() as connection:
        return {
            table: [tuple(row) for row in connection.exec_driver_sql(query)]
            for table, query in _QUERIES.items()
        }


def problems(url: str, *, shrunk: bool = False) -> list[str]:
    """Return what is wrong with a SQL ledger, in words; nothing if all is well.

    :param url: an SQLAlchemy URL with its driver
    :param shrunk: whether inventories may have been shrunk below what is used; without, used above
        the capacity is a problem
    """
    tables = read_tables(url)
    return [
        *_sums(tables),
        *_figures(tables, shrunk),
        *_orphans(tables),
        *_consumers(tables),
        *_trees(tables),
        *_recorded(tables),
    ]


def _sums(tables: Tables) -> Iterator[str]:
    """Used is the sum of the allocations."""
    sums: dict[Row, int] = defaultdict(int)
    for consumer, provider, class_, used in tables["allocations"]:
        sums[provider, class_] += used
        if used < 1:
            yield f"consumer {consumer} holds {used} of class {class_} of provider {provider}"
    for row in tables["inventories"]:
        if row[9] != sums[row[0], row[1]]:
            yield f"class {row[1]} of provider {row[0]}: used {row[9]}, held {sums[row[0], row[1]]}"


def _figures(tables: Tables, shrunk: bool) -> Iterator[str]:
    """Figures are in their ranges, the capacity follows from them, and nothing is over-full."""
    for row in tables["inventories"]:
        provider, class_, total, reserved, least, most, step, millionths, capacity, used = row
        where = f"class {class_} of provider {provider}"
        if not (1 <= total < 2**31 and 0 <= reserved <= total and least >= 1 and step >= 1):
            yield f"{where}: figures out of range: {row}"
        if most is not None and not least <= most <= total:
            yield f"{where}: max_unit {most} out of range"
        if capacity != (total - reserved) * millionths // 1_000_000:
            yield f"{where}: capacity {capacity} does not follow from {row}"
        if used < 0 or (used > capacity and not shrunk):
            yield f"{where}: used {used} of a capacity of {capacity}"


def _orphans(tables: Tables) -> Iterator[str]:
    """Whatever a row refers to is there."""
    providers, consumers, classes, traits = (
        {row[0] for row in tables[name]} for name in ("providers", "consumers", "classes", "traits")
    )
    inventories = {row[:2] for row in tables["inventories"]}
    for provider, class_ in inventories:
        if provider not in providers or class_ not in classes:
            yield f"inventory of class {class_} of provider {provider}, one of which is not there"
    for consumer, provider, class_, _ in tables["allocations"]:
        if consumer not in consumers or (provider, class_) not in inventories:
            yield f"allocation of consumer {consumer} at {provider}, {class_} refers to nothing"
    for consumer, uuid in tables["claims"]:
        if consumer not in consumers:
            yield f"claim {uuid} of nobody"
    for provider, trait in tables["provider_traits"]:
        if provider not in providers or trait not in traits:
            yield f"trait {trait} of provider {provider}, one of which is not there"


def _consumers(tables: Tables) -> Iterator[str]:
    """A consumer has one claim, holds something, and a generation nobody else has."""
    claims = Counter(row[0] for row in tables["claims"])
    holding = {row[0] for row in tables["allocations"]}
    generations = Counter(row[2] for row in tables["consumers"])
    operations = {row[0] for row in tables["operations"]}
    for number, name, generation in tables["consumers"]:
        if claims[number] != 1:
            yield f"consumer {name!r} has {claims[number]} claims"
        if number not in holding:
            yield f"consumer {name!r} holds nothing"
        if generations[generation] != 1 or generation not in operations:
            yield f"consumer {name!r} has the generation {generation} of no operation of its own"
    if len({row[:3] for row in tables["allocations"]}) != len(tables["allocations"]):
        yield "a consumer has two allocations of one inventory"
    for table in ("consumers", "providers", "classes", "traits"):
        for name, count in Counter(row[1] for row in tables[table]).items():
            if count > 1:
                yield f"{count} {table} are called {name!r}"


def _trees(tables: Tables) -> Iterator[str]:
    """Every provider's root is at the top of its parents."""
    parents = {row[0]: row[3] for row in tables["providers"]}
    for number, name, root, _, _ in tables["providers"]:
        top, seen = number, {number}
        while parents.get(top) is not None and parents[top] not in seen:
            top = parents[top]
            seen.add(top)
        if top != root or parents.get(top) is not None:
            yield f"provider {name!r} has the root {root}, at the top is {top}"


def _recorded(tables: Tables) -> Iterator[str]:
    """What the last operation of a consumer says it holds is what it holds."""
    names = {row[0]: row[1] for row in tables["consumers"]}
    classes = {row[0]: row[1] for row in tables["classes"]}
    uuids = {row[0]: row[4] for row in tables["providers"]}
    held: dict[str, dict[Row, int]] = {name: {} for name in names.values()}
    for consumer, provider, class_, used in tables["allocations"]:
        if consumer in names:
            held[names[consumer]][uuids.get(provider), classes.get(class_)] = used
    generations = {row[1]: row[2] for row in tables["consumers"]}
    for number, _, kind, subject, outcome in tables["operations"]:
        if kind == "define" or generations.get(subject) != number:
            continue
        said = {(uuid, class_): amount for uuid, _, class_, amount in json.loads(outcome)["held"]}
        if said != held[subject]:
            yield f"operation {number} says that {subject!r} holds {said}, not {held[subject]}"
