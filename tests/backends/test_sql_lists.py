"""Lists on every kind of database: every filter is asked of a naive oracle too."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
import sqlalchemy
from sqlalchemy.pool import NullPool

from resource_objects import exceptions
from resource_objects.backends.sql import tables
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Provider, Share
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.listing import By, ConsumerFilter, ListedProvider, ProviderFilter
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    NameAction,
    NameChange,
    NameKind,
    Operation,
    Use,
    Write,
)
from resource_objects.testing.conformance.suite import claim, define
from resource_objects.testing.refusals import raises_code
from tests import databases
from tests.backends.conftest import ask
from tests.support.lengths import some

T = TypeVar("T")

TRAITS = ["CUSTOM_A", "CUSTOM_B", "CUSTOM_C", "HW_CPU_X86_AVX2"]
AGGREGATES = ["rack", "Rack", "room", "räck"]
CLASSES = ["VCPU", "MEMORY_MB", "CUSTOM_X"]
LETTERS = "aAéÉ_zZ\N{GRINNING FACE}"
PROJECTS = [None, "p", "P", "ü"]
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def hour(number: int) -> datetime.datetime:
    return START + datetime.timedelta(hours=number, microseconds=number)


# --- what is kept, and what the oracle knows of it ---


@dataclasses.dataclass
class Known:
    """A provider, as it was made."""

    name: str
    uuid: str
    parent: str | None
    root: str
    traits: frozenset[str]
    aggregates: frozenset[str]
    #: class: (capacity, min_unit, max_unit, step_size)
    rules: dict[str, tuple[int, int, int | None, int]]
    shares: list[tuple[str, str, str, int]]
    reported: datetime.datetime | None = None


@dataclasses.dataclass
class World:
    """Everything that was put into a ledger."""

    providers: dict[str, Known]
    consumers: dict[str, ConsumerRecord]

    def used(self) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = defaultdict(int)
        for record in self.consumers.values():
            for held in record.held:
                found[held.provider, held.resource_class] += held.amount
                for name, of, of_class, factor in self.providers[held.provider].shares:
                    if name == held.resource_class:
                        found[of, of_class] += held.amount * factor
        return found

    def tree(self, key: str) -> str | None:
        for one in self.providers.values():
            if key in (one.name, one.uuid):
                return one.root
        return None


def make_world(backend: SQLBackend, url: str, chance: random.Random) -> World:
    """Fill a ledger at random."""
    world = World({}, {})
    roots = [_random_tree(number, chance) for number in range(8)]
    uuids = define(backend, *roots)
    for root in roots:
        for provider, parent in root.parents():
            world.providers[provider.name] = Known(
                provider.name,
                uuids[provider.name],
                None if parent is None else parent.name,
                root.name,
                provider.traits,
                provider.aggregates or frozenset(),
                _rules(provider),
                [(s.resource_class, s.of, s.of_class, s.factor) for s in provider.shares],
            )
    for number in range(40):
        _claim_at_random(backend, world, f"{chance.choice(LETTERS)} {number}", chance)
    _set_times(backend, url, world, chance)
    for root in roots[:3]:
        _shrink(backend, world, root)
    return world


def _random_tree(number: int, chance: random.Random) -> Provider:
    def inventories() -> str:
        classes = chance.sample(CLASSES, chance.randint(0, 3))
        rules = ["", ":min_unit=2", ":max_unit=3", ":step_size=2", ":allocation_ratio=1.5"]
        return ",".join(f"{name}={chance.randint(4, 12)}{chance.choice(rules)}" for name in classes)

    def what() -> dict[str, Any]:
        return {
            "traits": chance.sample(TRAITS, chance.randint(0, 3)),
            "aggregates": chance.sample(AGGREGATES, chance.randint(0, 2)),
        }

    root = Provider(f"host{number}", inventories(), **what())
    for below in range(chance.randint(0, 3)):
        cell = root.add(f"host{number}/{below}", inventories(), **what())
        shares = [
            Share(
                resource_class=name,
                of=root.name,
                of_class=chance.choice([str(one) for one in root.inventories]),
                factor=chance.randint(1, 3),
            )
            for name in map(str, cell.inventories)
            if root.inventories and chance.random() < 0.7
        ]
        cell.update(shares=shares)
    return root


def _rules(provider: Provider) -> dict[str, tuple[int, int, int | None, int]]:
    return {
        record.resource_class: (
            record.capacity,
            record.min_unit,
            record.max_unit,
            record.step_size,
        )
        for _, inventory in provider.inventories.by_name()
        for record in inventory.to_records()
    }


def _claim_at_random(backend: SQLBackend, world: World, name: str, chance: random.Random) -> None:
    places = [
        (provider.uuid, resource_class)
        for provider in world.providers.values()
        for resource_class in provider.rules
    ]
    deltas = tuple(
        Use(*place, chance.randint(1, 3)) for place in chance.sample(places, chance.randint(1, 2))
    )
    order = ConsumerOrder.claim(
        name,
        deltas,
        project=chance.choice(PROJECTS),
        user=chance.choice(PROJECTS),
        consumer_type=chance.choice(PROJECTS),
    )
    with contextlib.suppress(exceptions.CapacityException):
        world.consumers[name] = backend.claim(Operation(), order)


def _set_times(backend: SQLBackend, url: str, world: World, chance: random.Random) -> None:
    """Spread ages, expiries and reports over some hours."""
    for name in world.consumers:
        if chance.random() < 0.6:
            state, expiry = chance.choice([HELD, CONFIRMED]), hour(chance.randint(0, 9))
            backend.commit(
                Write(
                    Operation(), "renew", name, orders=(ConsumerOrder.renew(name, expiry, state),)
                )
            )
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for name in world.consumers:
            connection.execute(
                sqlalchemy.update(tables.consumers)
                .where(tables.consumers.c.name == name)
                .values(created_at=hour(chance.randint(0, 9)).replace(tzinfo=None))
            )
        for provider in world.providers.values():
            if chance.random() < 0.5:
                provider.reported = hour(chance.randint(0, 9))
                connection.execute(
                    sqlalchemy.update(tables.resource_providers)
                    .where(tables.resource_providers.c.uuid == provider.uuid)
                    .values(reported_at=provider.reported.replace(tzinfo=None))
                )
    for name in world.consumers:
        held = backend.held(name)
        assert held is not None
        world.consumers[name] = held


def _shrink(backend: SQLBackend, world: World, root: Provider) -> None:
    """Shrink what is used of a tree below its use."""
    used = world.used()
    for provider in root.walk():
        for name in list(map(str, provider.inventories)):
            if used[provider.name, name] > 1:
                provider.inventories[name] = used[provider.name, name] - 1
    define(backend, root)
    for provider in root.walk():
        world.providers[provider.name].rules = _rules(provider)


# --- the oracle ---


def wanted_providers(world: World, wanted: ProviderFilter) -> set[str]:
    used = world.used()
    return {
        provider.name
        for provider in world.providers.values()
        if _is_wanted(world, provider, wanted, used)
    }


def _is_wanted(
    world: World, provider: Known, wanted: ProviderFilter, used: dict[tuple[str, str], int]
) -> bool:
    trees = None if wanted.trees is None else {world.tree(key) for key in wanted.trees}
    return all(
        [
            wanted.names is None or provider.name in wanted.names,
            wanted.uuids is None or provider.uuid in wanted.uuids,
            trees is None or provider.root in trees,
            all(provider.aggregates & some for some in wanted.aggregates),
            not provider.aggregates & wanted.forbidden_aggregates,
            wanted.required <= provider.traits,
            not provider.traits & wanted.forbidden,
            all(provider.traits & some for some in wanted.any_of),
            all(_has_room(world, provider, *room, used) for room in wanted.room),
            not wanted.over_capacity
            or any(used[provider.name, name] > rule[0] for name, rule in provider.rules.items()),
            not wanted.roots_only or provider.parent is None,
            wanted.reported_before is None
            or (provider.reported is not None and provider.reported < wanted.reported_before),
        ]
    )


def _has_room(
    world: World, provider: Known, name: str, amount: int, used: dict[tuple[str, str], int]
) -> bool:
    if name not in provider.rules:
        return False
    capacity, least, most, step = provider.rules[name]
    fits = (
        used[provider.name, name] + amount <= capacity
        and amount >= least
        and (most is None or amount <= most)
        and amount % step == 0
    )
    return (fits or amount == 0) and all(
        used[of, of_class] + amount * factor <= world.providers[of].rules[of_class][0]
        for sharer, of, of_class, factor in provider.shares
        if sharer == name
    )


def wanted_consumers(world: World, wanted: ConsumerFilter) -> list[str]:
    def is_wanted(record: ConsumerRecord) -> bool:
        return all(
            [
                wanted.names is None or record.consumer in wanted.names,
                wanted.projects is None or record.project in wanted.projects,
                wanted.users is None or record.user in wanted.users,
                wanted.types is None or record.consumer_type in wanted.types,
                wanted.states is None or record.state in wanted.states,
                wanted.created_before is None or record.created_at < wanted.created_before,
                wanted.created_after is None or record.created_at > wanted.created_after,
                wanted.expires_before is None
                or (record.expires_at is not None and record.expires_at < wanted.expires_before),
                any(_is_at(world, held.provider, wanted.provider) for held in record.held),
                any(_is_in(world, held.provider, wanted.tree) for held in record.held),
            ]
        )

    return sorted(name for name, record in world.consumers.items() if is_wanted(record))


def _is_at(world: World, name: str, key: str | None) -> bool:
    return key is None or key in (name, world.providers[name].uuid)


def _is_in(world: World, name: str, key: str | None) -> bool:
    return key is None or world.providers[name].root == world.tree(key)


def wanted_totals(world: World, wanted: ConsumerFilter, by: By) -> dict[Any, tuple[int, int]]:
    used: dict[Any, int] = defaultdict(int)
    who: dict[Any, set[str]] = defaultdict(set)
    for name in wanted_consumers(world, wanted):
        record = world.consumers[name]
        for held in record.held:
            if not _is_at(world, held.provider, wanted.provider):
                continue
            if not _is_in(world, held.provider, wanted.tree):
                continue
            group = {
                By.RESOURCE_CLASS: None,
                By.PROVIDER: held.provider,
                By.PROJECT: record.project,
                By.USER: record.user,
                By.CONSUMER_TYPE: record.consumer_type,
                By.GROUP: record.group,
            }[by]
            used[group, held.resource_class] += held.amount
            who[group, held.resource_class].add(name)
    return {key: (used[key], len(who[key])) for key in used}


# --- filters at random ---


def _some(chance: random.Random, given: Sequence[T], most: int = 3) -> frozenset[T]:
    return frozenset(chance.sample(list(given), chance.randint(1, min(most, len(given)))))


def random_provider_filter(world: World, chance: random.Random) -> ProviderFilter:
    names = [*world.providers, "nobody"]
    uuids = [provider.uuid for provider in world.providers.values()]
    parts: dict[str, Callable[[], Any]] = {
        "names": lambda: _some(chance, names, 20),
        "uuids": lambda: _some(chance, uuids, 20),
        "trees": lambda: _some(chance, [*names, *uuids]),
        "aggregates": lambda: (_some(chance, [*AGGREGATES, "none"]), _some(chance, AGGREGATES)),
        "forbidden_aggregates": lambda: _some(chance, [*AGGREGATES, "none"], 2),
        "required": lambda: _some(chance, TRAITS, 2),
        "forbidden": lambda: _some(chance, [*TRAITS, "CUSTOM_NONE"], 2),
        "any_of": lambda: (_some(chance, TRAITS), _some(chance, TRAITS)),
        "room": lambda: tuple(
            (name, chance.randint(0, 6)) for name in _some(chance, [*CLASSES, "CUSTOM_NONE"], 2)
        ),
        "over_capacity": lambda: True,
        "roots_only": lambda: True,
        "reported_before": lambda: hour(chance.randint(0, 10)),
    }
    chosen = chance.sample(list(parts), chance.choice([1, 1, 2, 2, 3]))
    return ProviderFilter(**{name: parts[name]() for name in chosen})


def random_consumer_filter(world: World, chance: random.Random) -> ConsumerFilter:
    keys = [*world.providers, *(provider.uuid for provider in world.providers.values()), "nobody"]
    parts: dict[str, Callable[[], Any]] = {
        "names": lambda: _some(chance, [*world.consumers, "nobody"], 20),
        "projects": lambda: _some(chance, PROJECTS),
        "users": lambda: _some(chance, PROJECTS),
        "types": lambda: _some(chance, PROJECTS),
        "states": lambda: _some(chance, [HELD, CONFIRMED, "lost"]),
        "tree": lambda: chance.choice(keys),
        "provider": lambda: chance.choice(keys),
        "created_before": lambda: hour(chance.randint(0, 10)),
        "created_after": lambda: hour(chance.randint(0, 10)),
        "expires_before": lambda: hour(chance.randint(0, 10)),
    }
    chosen = chance.sample(list(parts), chance.choice([1, 1, 2, 2, 3]))
    return ConsumerFilter(**{name: parts[name]() for name in chosen})


def all_providers(
    backend: SQLBackend, wanted: ProviderFilter, page: int = 1000
) -> list[ListedProvider]:
    found: list[ListedProvider] = []
    while rows := backend.list_providers(wanted, page, found[-1].number if found else 0):
        assert len(rows) <= page
        found += rows
    return found


def all_consumers(
    backend: SQLBackend, wanted: ConsumerFilter, page: int = 1000
) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while rows := backend.list_consumers(wanted, page, found[-1].consumer if found else None):
        assert len(rows) <= page
        found += rows
    return found


@pytest.fixture(params=some(range(3)))
def world(
    ledger: SQLBackend, ledger_url: str, request: pytest.FixtureRequest
) -> Iterator[tuple[World, random.Random]]:
    chance = random.Random(request.param)
    yield make_world(ledger, ledger_url, chance), chance


# --- the tests ---


def test_lists_are_what_an_oracle_says(
    ledger: SQLBackend, world: tuple[World, random.Random]
) -> None:
    made, chance = world
    for _ in range(60):
        wanted = random_provider_filter(made, chance)
        found = all_providers(ledger, wanted, chance.choice([1, 3, 1000]))
        assert {row.name for row in found} == wanted_providers(made, wanted), wanted
        assert [row.number for row in found] == sorted({row.number for row in found})
    for _ in range(60):
        whom = random_consumer_filter(made, chance)
        records = all_consumers(ledger, whom, chance.choice([1, 3, 1000]))
        assert [record.consumer for record in records] == wanted_consumers(made, whom), whom
        for by in By:
            totals = ledger.totals(whom, by)
            sums = {
                (record.group, record.resource_class): (record.used, record.consumers)
                for record in totals
            }
            assert sums == wanted_totals(made, whom, by), (whom, by)
            assert len(totals) == len(sums)


def test_a_list_tells_all_of_a_provider_and_of_a_consumer(
    ledger: SQLBackend, world: tuple[World, random.Random]
) -> None:
    made, _ = world
    used = made.used()
    listed = {row.name: row for row in all_providers(ledger, ProviderFilter(), 7)}
    assert set(listed) == set(made.providers)
    for name, known in made.providers.items():
        row = listed[name]
        assert (row.uuid, row.parent, row.root) == (known.uuid, known.parent, known.root)
        assert row.parent_uuid == (known.parent and made.providers[known.parent].uuid)
        assert row.root_uuid == made.providers[known.root].uuid
        assert (row.traits, row.aggregates) == (known.traits, known.aggregates)
        assert row.reported_at == known.reported
        rules = {
            record.resource_class: (
                record.capacity,
                record.min_unit,
                record.max_unit,
                record.step_size,
            )
            for record in row.records
        }
        assert rules == known.rules
        for record in row.records:
            assert record.used == used[name, record.resource_class]
    records = {one.consumer: one for one in all_consumers(ledger, ConsumerFilter(), 7)}
    assert records == made.consumers
    assert list(records) == sorted(made.consumers)


def test_what_names_nobody_lists_nobody(ledger: SQLBackend) -> None:
    define(ledger, Provider("host0", "VCPU=1", traits=["CUSTOM_A"], aggregates=["rack"]))
    nobody: frozenset[str] = frozenset()
    for wanted in (
        ProviderFilter(names=nobody),
        ProviderFilter(uuids=nobody),
        ProviderFilter(trees=nobody),
        ProviderFilter(aggregates=(frozenset({"rack"}), nobody)),
        ProviderFilter(any_of=(nobody,)),
    ):
        assert ledger.list_providers(wanted, 10) == ()
    for whom in (
        ConsumerFilter(names=nobody),
        ConsumerFilter(projects=nobody),
        ConsumerFilter(users=nobody),
        ConsumerFilter(types=nobody),
        ConsumerFilter(states=nobody),
    ):
        assert ledger.list_consumers(whom, 10) == ()
        assert ledger.totals(whom, By.PROJECT) == ()


@pytest.mark.parametrize("amount", [2**43, 2**63 - 1])
def test_room_for_more_than_anybody_has_is_nowhere(ledger: SQLBackend, amount: int) -> None:
    most = 2**31 - 1
    root = Provider("host0", f"VCPU={most}:allocation_ratio=4000")
    shared = Share(resource_class="VCPU", of="host0", of_class="VCPU", factor=most)
    root.add("cell", f"VCPU={most}:allocation_ratio=4000", shares=[shared])
    define(ledger, root)

    def having(room: int) -> list[str]:
        wanted = ProviderFilter(room=(("VCPU", room),))
        return [one.name for one in ledger.list_providers(wanted, 10)]

    assert having(1) == ["host0", "cell"]
    assert having(4000) == ["host0", "cell"]
    assert having(4001) == ["host0"]
    assert having(most) == ["host0"]
    assert having(amount) == []


def test_more_names_than_a_statement_takes_are_refused(ledger: SQLBackend) -> None:
    many = frozenset(map(str, range(40_000)))
    with raises_code("InvalidField", match="30000"):
        ledger.list_providers(ProviderFilter(names=many), 10)
    fewer = frozenset([*sorted(many)[:20_000], "host0"])
    define(ledger, Provider("host0", "VCPU=1"))
    assert len(ledger.list_providers(ProviderFilter(names=fewer, uuids=None), 10)) == 1


# --- the order of names, where the database has one of its own ---


def test_consumers_come_by_code_points_whatever_the_database_sorts_by(
    database_kind: str, scratch: databases.Scratch
) -> None:
    url = scratch.create(database_kind)
    if database_kind == "postgresql":
        url = _sorting_as_english(url)
    SQLBackend.upgrade_database(url)
    backend = SQLBackend.open(url)
    try:
        names = define(backend, Provider("host0", "VCPU=100"))
        wanted = ["b", "A", "a", "B", "_", "é", "e", "z", "-", "a b", "a-b", "ab", "Ab"]
        for name in wanted:
            claim(backend, name, {names["host0"]: "VCPU=1"})
            change = NameChange(NameKind.AGGREGATE, NameAction.ENSURE, name)
            backend.commit(Write(Operation(), "name", name, names=(change,)))
        found = all_consumers(backend, ConsumerFilter(), 2)
        assert [one.consumer for one in found] == sorted(wanted)
        listed = backend.list_names(NameKind.AGGREGATE, 100)
        assert [one.name for one in listed] == sorted(wanted)
        for kind in (NameKind.RESOURCE_CLASS, NameKind.TRAIT):
            page = [one.name for one in backend.list_names(kind, 1000)]
            assert page == sorted(page)
    finally:
        backend.close()
        scratch.drop(url)


def _sorting_as_english(url: str) -> str:
    """Make a database anew that sorts as people do, if the server knows how."""
    parsed = sqlalchemy.make_url(url)
    server = databases.find_server("postgresql")
    server.drop(parsed)
    how = "TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
    try:
        ask(str(server.admin), f"CREATE DATABASE {parsed.database} {how}")
    except sqlalchemy.exc.DBAPIError:
        pytest.skip("this PostgreSQL knows no ICU")
    assert ask(url, "SELECT 'a' < 'B'")[0][0]
    return url
