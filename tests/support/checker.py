"""A checker of SQL ledgers that shares nothing with the code it judges.

It reads the tables by plain SQL, at one moment, on a connection of its own, and recomputes in
Python what the library computes elsewhere. A deliberately broken backend makes it speak up; a test
sees to that.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy
from sqlalchemy.pool import NullPool

#: ``table: query`` of everything that is checked
_QUERIES = {
    "providers": "SELECT id, name, root_id, parent_id, uuid FROM resource_providers",
    "disabled": "SELECT id, disabled_reason, disabled_until FROM resource_providers",
    "out_of_service": "SELECT provider_id, class_id, disabled_until FROM inventories",
    "bodies": "SELECT provider_id, body FROM structures",
    "removed_units": "SELECT provider_id, class_id, removed_units FROM inventories",
    "inventories": "SELECT provider_id, class_id, total, reserved, min_unit, max_unit, step_size,"
    " ratio_millionths, capacity, used, writes, shares FROM inventories",
    "allocations": "SELECT consumer_id, provider_id, class_id, used FROM allocations",
    "units": "SELECT provider_id, unit, consumer_id, class_id FROM allocation_units",
    "shares": "SELECT provider_id, class_id, of_provider_id, of_class_id, factor FROM shares",
    "kinds": "SELECT provider_id, name, classes FROM structures",
    "consumers": "SELECT id, name, generation, uuid, state, gone FROM consumers",
    "classes": "SELECT id, name FROM resource_classes",
    "traits": "SELECT id, name FROM traits",
    "provider_traits": "SELECT provider_id, trait_id FROM resource_provider_traits",
    "aggregates": "SELECT id, name FROM aggregates",
    "members": "SELECT provider_id, aggregate_id FROM resource_provider_aggregates",
    "operations": "SELECT id, uuid, kind, subject, created_at FROM operations",
    "heads": "SELECT shard, head, operation_id FROM change_heads",
    "statistics": "SELECT provider_id, name, value, source FROM statistics",
    "server_groups": "SELECT name, policy, max_per_host FROM server_groups",
    "in_groups": "SELECT name, gone, server_group FROM consumers",
    "changes": "SELECT shard, number, part, operation_id, what, consumer_id, provider_uuid,"
    " resource_class, used_before, used_after, taken, given FROM changes"
    " ORDER BY shard, number, part",
}

#: the kind whose parts are the cells of a host: what is taken of one by name is taken of them all
_TOPOLOGY = "NUMA_TOPOLOGY"

#: how many shards the change feed has
_SHARDS = 64

Row = tuple[Any, ...]
Tables = dict[str, list[Row]]
#: ``{(provider's uuid, class): (amount, units)}``
Holdings = dict[tuple[str, str], tuple[int, frozenset[str]]]


def loaded(value: Any) -> list[Any]:
    """Return a list that is kept as JSON, which some drivers parse; nothing is an empty one."""
    found: list[Any] = json.loads(value) if isinstance(value, str) else value or []
    return found


def read_tables(url: str) -> Tables:
    """Return the rows of a ledger's tables as plain tuples, all of one moment."""
    parsed = sqlalchemy.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        with contextlib.closing(sqlite3.connect(str(parsed.database))) as file:
            file.execute("BEGIN")  # the driver begins only when something is written
            return _read(file.cursor())
    with _engine(url).connect() as connection:
        found = _read(connection.connection.cursor())
    if parsed.get_backend_name() == "postgresql":
        return {table: [tuple(map(_plain, row)) for row in rows] for table, rows in found.items()}
    return found


def _read(cursor: Any) -> Tables:
    found: Tables = {}
    for table, query in _QUERIES.items():
        cursor.execute(query)
        found[table] = list(cursor.fetchall())
    return found


@functools.lru_cache
def _engine(url: str) -> sqlalchemy.Engine:
    """Return what connects, which keeps no connection: it asks a server what it is only once."""
    return sqlalchemy.create_engine(url, poolclass=NullPool, isolation_level="REPEATABLE READ")


def _plain(value: Any) -> Any:
    """Return a value as most databases have it; uuids are of PostgreSQL's own type there."""
    return str(value) if isinstance(value, uuid.UUID) else value


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
    for _, provider, class_, used in tables["allocations"]:
        found[provider, class_] += used
        for of_provider, of_class, factor in targets[provider, class_]:
            found[of_provider, of_class] += used * factor
    return found


def _sums(tables: Tables) -> Iterator[str]:
    """Used is the sum of the allocations, there and where it is shared."""
    for consumer, provider, class_, used in tables["allocations"]:
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
    there = {row[:3] for row in tables["allocations"]}
    for provider, unit, consumer, class_ in tables["units"]:
        if (consumer, provider, class_) not in there:
            yield f"unit {unit!r} of provider {provider} is of no allocation of {consumer}"
    for (provider, unit), count in Counter(row[:2] for row in tables["units"]).items():
        if count > 1:
            yield f"unit {unit!r} of provider {provider} is taken {count} times"


def _cpus(tables: Tables) -> Iterator[str]:
    """A CPU of a host has one owner: its unit is taken once in all cells of the tree."""
    roots = {row[0]: row[2] for row in tables["providers"]}
    cells = {row[0] for row in tables["kinds"] if row[1] == _TOPOLOGY}
    taken = Counter(
        (roots.get(provider), class_, unit)
        for provider, unit, _, class_ in tables["units"]
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
    for consumer, provider, class_, _ in tables["allocations"]:
        if consumer not in there["consumers"] or (provider, class_) not in inventories:
            yield f"allocation of consumer {consumer} at {provider}, {class_} refers to nothing"
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
    said = [(provider, one) for provider, _, names in tables["kinds"] for one in loaded(names)]
    for provider, name in said:
        if (provider, name) not in has:
            yield f"a kind of provider {provider} counts {name}, of which there is no inventory"
    for key, count in Counter(said).items():
        if count > 1:
            yield f"{count} kinds count {key}"


def _consumers(tables: Tables) -> Iterator[str]:
    """A consumer holds something, one that is gone nothing; who wrote it is told or forgotten."""
    holding = {row[0] for row in tables["allocations"]}
    for number, name, _, _, state, gone in tables["consumers"]:
        if (number in holding) != (gone == 0):
            yield f"consumer {name!r} is gone and holds something, or holds nothing"
        if state not in ("held", "confirmed"):
            yield f"the claim of {name!r} is {state}"


def _once(tables: Tables) -> Iterator[str]:
    """What is unique is there once."""
    if len({row[:3] for row in tables["allocations"]}) != len(tables["allocations"]):
        yield "a consumer has two allocations of one inventory"
    named = {table: [row[1] for row in tables[table]] for table in _NAMED}
    named["consumers"] = [row[1] for row in tables["consumers"] if row[5] == 0]
    named["uuids of consumers"] = [row[3] for row in tables["consumers"]]
    for table, names in named.items():
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{count} {table} are called {name!r}"


_NAMED = ("providers", "classes", "traits", "aggregates", "operations")


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


def _disabled(tables: Tables) -> Iterator[str]:
    """Inventories are out of service as long as their providers, or those above them."""
    parents = {row[0]: row[3] for row in tables["providers"]}
    ends = {
        number: "9999-12-31 00:00:00" if until is None else str(until)[:19]
        for number, reason, until in tables["disabled"]
        if reason is not None
    }
    for provider, class_, until in tables["out_of_service"]:
        above: dict[int | None, None] = {}
        at: int | None = provider
        while at is not None and at not in above:
            above[at] = None
            at = parents.get(at)
        expected = max((ends[one] for one in above if one in ends), default=None)
        found = None if until is None else str(until)[:19]
        if found != expected:
            where = f"class {class_} of provider {provider}"
            yield f"{where} is out of service until {found}, its providers until {expected}"


def _removed_units(tables: Tables) -> Iterator[str]:
    """Inventories count the units of their providers that were removed while allocated."""
    counts: Counter[int] = Counter()
    for provider, body in tables["bodies"]:
        text = body if isinstance(body, str) else json.dumps(body)  # psycopg reads JSON
        counts[provider] += text.count('"withheld": "gone"')
    for provider, class_, count in tables["removed_units"]:
        if count != counts[provider]:
            where = f"class {class_} of provider {provider}"
            yield f"{where} tells of {count} removed units, there are {counts[provider]}"


def _recorded(tables: Tables) -> Iterator[str]:
    """What the feed says that a consumer uses since, it uses: as far as nobody changed it later.

    It calls classes as they were called then: where some may have been renamed since, as the feed
    tells or has forgotten, they are not compared.
    """
    held = {consumer: dict(holds) for consumer, holds in holdings(tables).items()}
    names = {row[0]: row[1] for row in tables["consumers"] if row[5] == 0}
    last = {row[0]: row[2] for row in tables["consumers"] if row[5] == 0}
    classes = {row[1] for row in tables["classes"]}
    renamed = is_forgotten(tables) or any(row[4] == "names" for row in tables["changes"])
    for row in () if renamed else tables["changes"]:
        operation, _, consumer, uuid, kind, _, after, taken, _ = row[3:]
        if last.get(consumer) == operation and uuid is not None and kind in classes:
            there = held.get(names[consumer], {}).get((uuid, kind), (0, frozenset()))
            if there[0] != after:
                yield f"{names[consumer]!r} holds {there[0]} of {kind} of {uuid}, told is {after}"
            if not set(loaded(taken)) <= there[1]:
                yield f"{names[consumer]!r} was told to take {taken} of {uuid}, it has {there[1]}"


def is_forgotten(tables: Tables) -> bool:
    """Return whether the feed has forgotten something."""
    told = Counter(shard for shard, _ in {row[:2] for row in tables["changes"]})
    return any(told[shard] < head for shard, head, _ in tables["heads"])


def holdings(tables: Tables) -> dict[str, Holdings]:
    """Return what each consumer holds, by name."""
    names = {row[0]: row[1] for row in tables["consumers"]}
    classes = {row[0]: row[1] for row in tables["classes"]}
    uuids = {row[0]: row[4] for row in tables["providers"]}
    units: dict[Row, set[str]] = defaultdict(set)
    for provider, unit, consumer, class_ in tables["units"]:
        units[consumer, provider, class_].add(unit)
    found: dict[str, Holdings] = defaultdict(dict)
    for consumer, provider, class_, used in tables["allocations"]:
        if consumer in names and provider in uuids and class_ in classes:
            key = uuids[provider], classes[class_]
            found[names[consumer]][key] = used, frozenset(units[consumer, provider, class_])
    return found


def _feed(tables: Tables) -> Iterator[str]:
    """No number is told beyond the head of a shard, and none by two operations."""
    heads = {shard: (head, operation) for shard, head, operation in tables["heads"]}
    if sorted(heads) != list(range(_SHARDS)):
        yield f"the feed has the shards {sorted(heads)}"
    writers: dict[tuple[int, int], set[int]] = defaultdict(set)
    told: dict[tuple[int, int], set[int]] = defaultdict(set)
    for shard, number, _, operation, *_ in tables["changes"]:
        writers[shard, number].add(operation)
        told[shard, operation].add(number)
    for (shard, number), operations in writers.items():
        head, last = heads.get(shard, (0, 0))
        if number > head or len(operations) > 1 or (number == head and operations != {last}):
            yield f"change {number} of shard {shard}, at {head}, is of {operations}, last {last}"
    for (shard, operation), numbers in told.items():
        if len(numbers) > 1:
            yield f"operation {operation} is told {len(numbers)} times in shard {shard}"


def _told(tables: Tables) -> Iterator[str]:
    """Every operation is told, and nothing is told of one that is not recorded."""
    told = {row[3] for row in tables["changes"]}
    recorded = {number for number, *_ in tables["operations"]}
    for number in recorded ^ told:
        yield f"operation {number} is {'not told' if number in recorded else 'told, not recorded'}"


def _statistics(tables: Tables) -> Iterator[str]:
    """A statistic has one value, which is JSON, a source, and a provider that exists."""
    providers = {row[0] for row in tables["providers"]}
    for (provider, name), count in Counter(row[:2] for row in tables["statistics"]).items():
        if count > 1:
            yield f"provider {provider} has statistic {name} {count} times"
    for provider, name, value, source in tables["statistics"]:
        if provider not in providers:
            yield f"statistic {name} of provider {provider}: it is not there"
        try:
            is_value = isinstance(json.loads(value), int | float | str)
        except ValueError:
            is_value = False
        if not is_value:
            yield f"statistic {name} of provider {provider}: {value} is no value"
        if not source:
            yield f"statistic {name} of provider {provider} has no source"


def _server_groups(tables: Tables) -> Iterator[str]:
    """Who is there is in a server group that is there; each asks what one can ask."""
    names = {row[0] for row in tables["server_groups"]}
    for name, gone, group in tables["in_groups"]:
        if not gone and group is not None and group not in names:
            yield f"consumer {name} is in server group {group}, which is not there"
    for name, policy, most in tables["server_groups"]:
        kinds = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")
        if policy not in kinds or most < 1 or (most > 1 and policy != "anti-affinity"):
            yield f"server group {name} asks {policy}, {most} on a host"


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
    _disabled,
    _removed_units,
    _recorded,
    _feed,
    _told,
    _statistics,
    _server_groups,
)
