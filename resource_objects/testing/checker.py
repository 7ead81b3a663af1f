"""A checker of SQL ledgers that shares nothing with the code it judges.

It reads the tables by plain SQL, at one moment, on a connection of its own, and recomputes in
Python what the library computes elsewhere. A deliberately broken backend makes it speak up; a test
sees to that.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy
from sqlalchemy.pool import NullPool

#: ``table: query`` of everything that is checked
_QUERIES = {
    "providers": "SELECT id, name, root_id, parent_id, uuid FROM resource_providers",
    "inventories": "SELECT provider_id, class_id, total, reserved, min_unit, max_unit, step_size,"
    " ratio_millionths, capacity, used, writes, shares FROM inventories",
    "allocations": "SELECT id, consumer_id, provider_id, class_id, used FROM allocations",
    "units": "SELECT provider_id, unit, allocation_id FROM allocation_units",
    "shares": "SELECT provider_id, class_id, of_provider_id, of_class_id, factor FROM shares",
    "kinds": "SELECT provider_id, name, classes FROM kind_records",
    "consumers": "SELECT id, name, generation, uuid FROM consumers",
    "claims": "SELECT consumer_id, uuid, state FROM claims",
    "classes": "SELECT id, name FROM resource_classes",
    "traits": "SELECT id, name FROM traits",
    "provider_traits": "SELECT provider_id, trait_id FROM resource_provider_traits",
    "aggregates": "SELECT id, name FROM aggregates",
    "members": "SELECT provider_id, aggregate_id FROM resource_provider_aggregates",
    "operations": "SELECT id, uuid, kind, subject, outcome FROM operations",
    "heads": "SELECT shard, head, oldest FROM change_heads",
    "changes": "SELECT shard, number, operation, touched FROM changes",
}

#: the kind whose parts are the cells of a host: what is taken of one by name is taken of them all
_TOPOLOGY = "NUMA_TOPOLOGY"

#: how many shards the change feed has
_SHARDS = 64

Row = tuple[Any, ...]
Tables = dict[str, list[Row]]
#: ``{(provider's uuid, class): (amount, units)}``
Holdings = dict[tuple[str, str], tuple[int, frozenset[str]]]


def read_tables(url: str) -> Tables:
    """Return the rows of a ledger's tables as plain tuples, all of one moment."""
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    level = "SERIALIZABLE" if engine.dialect.name == "sqlite" else "REPEATABLE READ"
    with engine.execution_options(isolation_level=level).connect() as connection:
        if engine.dialect.name == "sqlite":  # whose driver begins only when something is written
            connection.exec_driver_sql("BEGIN")
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
    return problems_in(read_tables(url), shrunk=shrunk)


def problems_in(tables: Tables, *, shrunk: bool = False) -> list[str]:
    """Return what is wrong with the rows of a ledger's tables."""
    found = [problem for check in _CHECKS for problem in check(tables)]
    if not shrunk:
        found += _over_full(tables)
    return found


def sums(tables: Tables) -> dict[Row, int]:
    """Return what is used of each ``(provider, class)``: allocations there, and times shares."""
    targets: dict[Row, list[Row]] = defaultdict(list)
    for provider, class_, of_provider, of_class, factor in tables["shares"]:
        targets[provider, class_].append((of_provider, of_class, factor))
    found: dict[Row, int] = defaultdict(int)
    for _, _, provider, class_, used in tables["allocations"]:
        found[provider, class_] += used
        for of_provider, of_class, factor in targets[provider, class_]:
            found[of_provider, of_class] += used * factor
    return found


def _sums(tables: Tables) -> Iterator[str]:
    """Used is the sum of the allocations, there and where it is shared."""
    for _, consumer, provider, class_, used in tables["allocations"]:
        if used < 1:
            yield f"consumer {consumer} holds {used} of class {class_} of provider {provider}"
    expected = sums(tables)
    for row in tables["inventories"]:
        if row[9] != expected[row[0], row[1]]:
            held = expected[row[0], row[1]]
            yield f"class {row[1]} of provider {row[0]}: used {row[9]}, held {held}"


def _figures(tables: Tables) -> Iterator[str]:
    """Figures are in their ranges, and the capacity follows from them."""
    for row in tables["inventories"]:
        provider, class_, total, reserved, least, most, step, millionths, capacity, used, *_ = row
        where = f"class {class_} of provider {provider}"
        if not (1 <= total < 2**31 and 0 <= reserved <= total and least >= 1 and step >= 1):
            yield f"{where}: figures out of range: {row}"
        if most is not None and not least <= most <= total:
            yield f"{where}: max_unit {most} out of range"
        if capacity != (total - reserved) * millionths // 1_000_000:
            yield f"{where}: capacity {capacity} does not follow from {row}"
        if used < 0 or row[10] < 0:
            yield f"{where}: used {used}, written {row[10]} times"


def _over_full(tables: Tables) -> Iterator[str]:
    """Nothing is used beyond its capacity."""
    for provider, class_, *_, capacity, used, _, _ in tables["inventories"]:
        if used > capacity:
            yield f"class {class_} of provider {provider}: used {used} of a capacity of {capacity}"


def _shares(tables: Tables) -> Iterator[str]:
    """Shares lead from inventory to inventory of one tree, and each inventory counts its own."""
    roots = {row[0]: row[2] for row in tables["providers"]}
    inventories = {row[:2] for row in tables["inventories"]}
    stated: dict[Row, set[Row]] = defaultdict(set)
    for provider, class_, of_provider, of_class, factor in tables["shares"]:
        source, target = (provider, class_), (of_provider, of_class)
        if source not in inventories or target not in inventories or source == target:
            yield f"the share of {source} in {target} refers to nothing, or to itself"
        if roots.get(provider) != roots.get(of_provider) or factor < 1:
            yield f"the share of {source} in {target} leaves the tree, or takes {factor}"
        stated[source].add(target)
    for source, targets in list(stated.items()):
        for target in targets:
            if not stated.get(target, set()) <= targets:
                yield f"{source} shares {target}, and not all that this shares in turn"
    for row in tables["inventories"]:
        if row[11] != len(stated.get(row[:2], ())):
            yield f"class {row[1]} of provider {row[0]} counts {row[11]} shares"


def _units(tables: Tables) -> Iterator[str]:
    """A unit belongs to one allocation, which is there, and of its provider."""
    owner = {row[0]: row[2] for row in tables["allocations"]}
    for provider, unit, allocation in tables["units"]:
        if owner.get(allocation) != provider:
            yield f"unit {unit!r} of provider {provider} is of no allocation there: {allocation}"
    for (provider, unit), count in Counter(row[:2] for row in tables["units"]).items():
        if count > 1:
            yield f"unit {unit!r} of provider {provider} is taken {count} times"


def _cpus(tables: Tables) -> Iterator[str]:
    """A CPU of a host has one owner: its unit is taken once in all cells of the tree."""
    roots = {row[0]: row[2] for row in tables["providers"]}
    class_of = {row[0]: row[3] for row in tables["allocations"]}
    cells = {row[0] for row in tables["kinds"] if row[1] == _TOPOLOGY}
    taken = Counter(
        (roots.get(provider), class_of.get(allocation), unit)
        for provider, unit, allocation in tables["units"]
        if provider in cells
    )
    for (root, class_, unit), count in taken.items():
        if count > 1:
            yield f"unit {unit!r} of class {class_} has {count} owners in the tree of {root}"


def _orphans(tables: Tables) -> Iterator[str]:
    """Whatever a row refers to is there."""
    there = {
        name: {row[0] for row in tables[name]}
        for name in ("providers", "consumers", "classes", "traits", "aggregates")
    }
    inventories = {row[:2] for row in tables["inventories"]}
    for _, consumer, provider, class_, _ in tables["allocations"]:
        if consumer not in there["consumers"] or (provider, class_) not in inventories:
            yield f"allocation of consumer {consumer} at {provider}, {class_} refers to nothing"
    for consumer, uuid, _ in tables["claims"]:
        if consumer not in there["consumers"]:
            yield f"claim {uuid} of nobody"
    for table, other in (
        ("inventories", "classes"),
        ("provider_traits", "traits"),
        ("members", "aggregates"),
    ):
        for provider, number, *_ in tables[table]:
            if provider not in there["providers"] or number not in there[other]:
                yield f"{table}: {number} of {other}, provider {provider}: one is not there"


def _kinds(tables: Tables) -> Iterator[str]:
    """A structured inventory has the records it says, and no record is of two."""
    classes = {row[0]: row[1] for row in tables["classes"]}
    has = {(row[0], classes.get(row[1])) for row in tables["inventories"]}
    said = [
        (provider, one) for provider, _, names in tables["kinds"] for one in names.split(",") if one
    ]
    for provider, name in said:
        if (provider, name) not in has:
            yield f"a kind of provider {provider} counts {name}, of which there is no inventory"
    for key, count in Counter(said).items():
        if count > 1:
            yield f"{count} kinds count {key}"


def _consumers(tables: Tables) -> Iterator[str]:
    """A consumer has one claim, holds something, and was written by an operation that is kept."""
    claims = Counter(row[0] for row in tables["claims"])
    holding = {row[1] for row in tables["allocations"]}
    operations = {row[0] for row in tables["operations"]}
    for number, name, generation, _ in tables["consumers"]:
        if claims[number] != 1:
            yield f"consumer {name!r} has {claims[number]} claims"
        if number not in holding:
            yield f"consumer {name!r} holds nothing"
        if generation not in operations:
            yield f"consumer {name!r} has the generation {generation} of no operation"
    for _, uuid, state in tables["claims"]:
        if state not in ("held", "confirmed"):
            yield f"claim {uuid} is {state}"


def _once(tables: Tables) -> Iterator[str]:
    """What is unique is there once."""
    if len({row[1:4] for row in tables["allocations"]}) != len(tables["allocations"]):
        yield "a consumer has two allocations of one inventory"
    names = ("consumers", "providers", "classes", "traits", "aggregates", "operations", "claims")
    for table in names:
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
    """What the last operation of a consumer says it holds is what it holds.

    It calls classes as they were called then: where some may have been renamed since, as the feed
    tells or has forgotten, they are not compared.
    """
    held = holdings(tables)
    generations = {row[1]: row[2] for row in tables["consumers"]}
    ids = {row[1]: row[3] for row in tables["consumers"]}
    names = {row[1] for row in tables["classes"]}
    renamed = any(oldest for _, _, oldest in tables["heads"])
    renamed |= any(json.loads(touched) == [[], []] for *_, touched in tables["changes"])
    for number, _, _, _, outcome in tables["operations"]:
        for claim in claims_of(outcome):
            name = claim["consumer"]
            if generations.get(name) != number:
                continue
            if claim["consumer_uuid"] != ids[name]:
                yield f"operation {number} made another {name!r} than is kept"
            said: Holdings = {
                (one[0], one[2]): (one[3], frozenset(one[4] if len(one) > 4 else ()))
                for one in claim["held"]
            }
            gone = any(class_ not in names for _, class_ in said)
            if said != held[name] and not ((gone or renamed) and _alike(said, held[name])):
                yield f"operation {number} says that {name!r} holds {said}, not {held[name]}"


def _alike(said: Holdings, held: Holdings) -> bool:
    """Return whether two holdings differ in the names of their classes only."""
    return Counter((key[0], value) for key, value in said.items()) == Counter(
        (key[0], value) for key, value in held.items()
    )


def claims_of(outcome: str | None) -> list[dict[str, Any]]:
    """Return the claims that a recorded outcome tells.

    One is told as an object, several as a list, or as an object that has the list as ``claims``.
    """
    said = None if outcome is None else json.loads(outcome)
    if isinstance(said, dict):
        said = said.get("claims", [said])
    return said or []


def holdings(tables: Tables) -> dict[str, Holdings]:
    """Return what each consumer holds, by name."""
    names = {row[0]: row[1] for row in tables["consumers"]}
    classes = {row[0]: row[1] for row in tables["classes"]}
    uuids = {row[0]: row[4] for row in tables["providers"]}
    units: dict[int, set[str]] = defaultdict(set)
    for _, unit, allocation in tables["units"]:
        units[allocation].add(unit)
    found: dict[str, Holdings] = defaultdict(dict)
    for number, consumer, provider, class_, used in tables["allocations"]:
        if consumer in names and provider in uuids and class_ in classes:
            key = uuids[provider], classes[class_]
            found[names[consumer]][key] = used, frozenset(units[number])
    return found


def _feed(tables: Tables) -> Iterator[str]:
    """Each shard has every change from the oldest kept to its head, each operation once."""
    heads = {shard: (head, oldest) for shard, head, oldest in tables["heads"]}
    if sorted(heads) != list(range(_SHARDS)):
        yield f"the feed has the shards {sorted(heads)}"
    numbers: dict[int, set[int]] = defaultdict(set)
    told: Counter[tuple[int, str]] = Counter()
    for shard, number, operation, _ in tables["changes"]:
        numbers[shard].add(number)
        told[shard, operation] += 1
    for shard, (head, oldest) in heads.items():
        if numbers[shard] != set(range(oldest + 1, head + 1)):
            yield f"shard {shard} of the feed: from {oldest} to {head} there are {numbers[shard]}"
    for (shard, operation), count in told.items():
        if count > 1:
            yield f"operation {operation} is told {count} times in shard {shard}"


def _told(tables: Tables) -> Iterator[str]:
    """Every operation is told, and each of its consumers, unless the feed has forgotten some."""
    if any(oldest for _, _, oldest in tables["heads"]):
        return
    told: dict[str, set[str]] = defaultdict(set)
    for _, _, operation, touched in tables["changes"]:
        told[operation] |= set(json.loads(touched)[1])
    recorded = {uuid for _, uuid, *_ in tables["operations"]}
    for uuid in recorded ^ set(told):
        yield f"operation {uuid} is {'not told' if uuid in recorded else 'told, not recorded'}"
    for _, uuid, _, _, outcome in tables["operations"]:
        missing = {claim["consumer"] for claim in claims_of(outcome)} ^ told[uuid]
        if missing:
            yield f"operation {uuid} is told of {told[uuid]}, wrong are {missing}"


_CHECKS: tuple[Callable[[Tables], Iterator[str]], ...] = (
    _sums,
    _figures,
    _shares,
    _units,
    _cpus,
    _orphans,
    _kinds,
    _consumers,
    _once,
    _trees,
    _recorded,
    _feed,
    _told,
)
