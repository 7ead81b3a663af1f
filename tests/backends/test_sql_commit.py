"""Writes to a SQL database: how many statements they take, and what rows they leave."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psycopg
import pymysql.cursors
import pytest
import sqlalchemy
from sqlalchemy import event

from resource_objects import exceptions
from resource_objects.backends.retries import RetryPolicy
from resource_objects.backends.sql import backend, feed, orders, tables
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.ledger import Ledger
from resource_objects.providers import Provider, Share
from resource_objects.providers.allocation import CONFIRMED, HELD, RELEASED
from resource_objects.providers.columns import trees
from resource_objects.providers.feed import SHARDS, Cursor, FeedEntry
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Operation,
    StoredRequest,
    Use,
    Write,
    subject_of,
)
from resource_objects.providers.statistics import Statistic, StatisticFilter, StatisticsOrder
from resource_objects.store.decide import decide
from resource_objects.testing.conformance.races import together
from resource_objects.testing.conformance.server_groups import make_group
from resource_objects.testing.conformance.suite import (
    changes_to,
    claim,
    define,
    host,
    host_of,
    ledger_state,
    release,
    stored_tree,
)
from resource_objects.testing.refusals import is_one_of, raises_code
from tests.ledger.numa_hosts import cells
from tests.support import checker

START = Cursor((0,) * SHARDS)
UNITS = tuple(f"cpu{n}" for n in range(4))


def write(ledger: SQLBackend, *orders: ConsumerOrder, **said: Any) -> tuple[ConsumerRecord, ...]:
    subject = subject_of(order.consumer for order in orders)
    return ledger.commit(Write(Operation(), "orders", subject, orders=orders, **said))


def rows(ledger: SQLBackend, table: sqlalchemy.Table, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of a table, in the order of its first."""
    wanted = [table.c[name] for name in columns]
    with ledger._database.reading() as connection:
        found = connection.execute(sqlalchemy.select(*wanted).order_by(wanted[0]))
        return [tuple(row) for row in found]


def shard(ledger: SQLBackend, name: str) -> int:
    """Return the shard of the tree of a provider."""
    return ledger.read(name).providers.root_id[0] % SHARDS


# --- how many statements ---


class Count:
    """How many statements the driver was asked to run; those of a transaction itself aside."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: object, times: int = 1) -> None:
        said = " ".join(str(text).split())
        is_ping = said in ("SELECT 1", ";")
        if said.split(" ")[0] not in ("BEGIN", "SET", "START", "PRAGMA") and not is_ping:
            self.texts += [said] * times

    def of(self, work: Callable[[], object]) -> int:
        """Return how many statements a piece of work takes."""
        self.texts.clear()
        work()
        return len(self.texts)


def _counting(base: type[Any], count: Count, rows_are_statements: bool) -> type[Any]:
    class Cursor(base):  # type: ignore[misc]
        def execute(self, text: Any, *args: Any, **options: Any) -> Any:
            count.add(text)
            return super().execute(text, *args, **options)

        def executemany(self, text: Any, many: Iterable[Any], *args: Any, **options: Any) -> Any:
            many = list(many)
            if rows_are_statements:
                count.add(text, len(many))
            return super().executemany(text, many, *args, **options)

    return Cursor


@pytest.fixture
def count(nobody_forgets: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Count]:
    """Count the statements of connections that are opened from now on."""
    count = Count()

    class SQLiteCursor(_counting(sqlite3.Cursor, count, False)):  # type: ignore[misc]
        def executemany(self, text: Any, many: Iterable[Any]) -> Any:
            count.add(text)  # one prepared statement, run in this process
            return super().executemany(text, many)

    class SQLiteConnection(sqlite3.Connection):
        def cursor(self, factory: Any = SQLiteCursor) -> Any:
            return super().cursor(factory)

    def connecting(dialect: Any, record: Any, args: Any, options: dict[str, Any]) -> None:
        if dialect.name == "sqlite":
            options["factory"] = SQLiteConnection
        elif dialect.name == "postgresql":
            options["cursor_factory"] = _counting(psycopg.Cursor, count, True)
        else:  # its executemany calls execute
            options["cursorclass"] = _counting(pymysql.cursors.Cursor, count, False)

    event.listen(sqlalchemy.Engine, "do_connect", connecting)
    yield count
    event.remove(sqlalchemy.Engine, "do_connect", connecting)


@pytest.fixture
def counted(count: Count, ledger_url: str) -> Iterator[SQLBackend]:
    """A ledger whose statements are counted."""
    with contextlib.closing(SQLBackend.open(ledger_url)) as ledger:
        yield ledger


def _many(ledger: SQLBackend, size: int) -> dict[str, Callable[[str], ConsumerOrder]]:
    """Return what may be ordered, for consumers named after hosts of their own."""
    names = define(ledger, *(host(f"host{n}", "VCPU=8,MEMORY_MB=64") for n in range(size + 1)))

    def deltas(consumer: str, amount: int, *units: str) -> tuple[Use, ...]:
        uuid = names[f"host{consumer}"]
        return Use(uuid, "VCPU", amount, units), Use(uuid, "MEMORY_MB", amount)

    other = names[f"host{size}"]
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    return {
        "claim": lambda name: ConsumerOrder.claim(name, deltas(name, 4, *UNITS)),
        "adjust": lambda name: ConsumerOrder.adjust(name, deltas(name, -1, "cpu0")[:1]),
        "replace": lambda name: ConsumerOrder.replace(
            name, (*deltas(name, 2, "cpu1", "cpu7"), Use(other, "MEMORY_MB", 1)), project="p"
        ),
        "renew": lambda name: ConsumerOrder.renew(name, later, CONFIRMED),
        "release": ConsumerOrder.release,
    }


def test_statements_do_not_grow_with_the_consumers(ledger_url: str, count: Count) -> None:
    found = {}
    for size in (1, 2, 50):
        with contextlib.closing(SQLBackend.open(ledger_url)) as ledger:
            orders = _many(ledger, size)
            names = [str(number) for number in range(size)]
            for kind, order in orders.items():
                wanted = [order(name) for name in names]
                found[kind, size] = count.of(lambda wanted=wanted: write(ledger, *wanted))
            assert ledger.read().allocations.amount == ()
    for kind in orders:
        assert 0 < found[kind, 1] <= found[kind, 2] == found[kind, 50] < 25, kind
    assert checker.problems(ledger_url) == []


def test_statements_do_not_grow_with_the_providers(counted: SQLBackend, count: Count) -> None:
    uuids = list(define(counted, *(host(f"host{n}") for n in range(60))).values())
    found = []
    for size in (2, 60):
        places = [(uuid, name) for uuid in uuids[:size] for name in ("VCPU", "MEMORY_MB")]
        some, more = (tuple(Use(*place, amount) for place in places) for amount in (1, 2))
        orders: list[ConsumerOrder] = [
            ConsumerOrder.claim("job", some),
            ConsumerOrder.replace("job", more),
            ConsumerOrder.release("job"),
        ]
        found.append([count.of(lambda order=order: write(counted, order)) for order in orders])
    assert found[0] == found[1] and min(found[0]) > 0


def test_statements_of_statistics_do_not_grow_with_the_providers(
    counted: SQLBackend, count: Count
) -> None:
    uuids = list(define(counted, *(host(f"host{n}") for n in range(60))).values())
    found = []
    for size in (1, 60):
        some = uuids[:size]

        def order(value: int, some: list[str] = some, names: int = 5) -> StatisticsOrder:
            said = tuple(Statistic(f"figure.{n}", value) for n in range(names))
            return StatisticsOrder(dict.fromkeys(some, said))

        wanted = StatisticFilter(frozenset(some))
        found.append(
            [
                count.of(lambda order=order: counted.put_statistics(order(1))),
                count.of(lambda order=order: counted.put_statistics(order(2))),
                count.of(lambda order=order: counted.put_statistics(order(2))),
                count.of(lambda order=order: counted.put_statistics(order(2, names=3))),
                count.of(
                    lambda some=some: counted.put_statistics(
                        StatisticsOrder(reported=frozenset(some))
                    )
                ),
                count.of(lambda wanted=wanted: counted.read_statistics(wanted)),
                count.of(lambda: counted.read_statistics(StatisticFilter())),
                count.of(lambda wanted=wanted: counted.forget_statistics(wanted)),
            ]
        )
        counted.forget_statistics(StatisticFilter())
    assert found[0] == found[1]
    assert found[0][2] == 2 and found[0][5:7] == [1, 1] and max(found[0]) < 14


def test_statements_of_a_gang_do_not_grow_with_it(counted: SQLBackend, count: Count) -> None:
    """The names of all hosts are looked up at once."""
    ledger, kinds = Ledger(counted), ("DISK_GB=1", "NUMA_TOPOLOGY=1:dedicated=1")
    for name in ("host0", "host1"):
        ledger.sync(host_of(name, cells(), DISK_GB=100))
    for kind in kinds:
        found = []
        for size in (2, 2, 6):
            wanted = {f"job-{n}": {f"host{n % 2}": kind} for n in range(size)}
            found.append(count.of(lambda wanted=wanted: ledger.claim_all(wanted)))
            ledger.release_all(wanted)
        first, *again = found  # the first look at hosts reads what they are too
        assert first >= again[0] == again[1], count.texts


def test_who_is_in_no_server_group_sends_nothing_of_groups(
    counted: SQLBackend, count: Count
) -> None:
    names = define(counted, host("host0"), host("host1"))
    here, there = names["host0"], names["host1"]
    make_group(counted, "db")

    def life(**said: Any) -> list[int]:
        """Return how many statements each write sends, and how many of them are about groups."""
        uses = [(Use(uuid, "VCPU", 1),) for uuid in (here, there)]
        some = [
            ConsumerOrder.claim("job", uses[0], **said),
            ConsumerOrder.adjust("job", (Use(here, "MEMORY_MB", 1),)),
            ConsumerOrder.replace("job", uses[1]),
            ConsumerOrder.release("job"),
        ]
        found = []
        for one in some:
            found.append(count.of(lambda one=one: write(counted, one)))  # type: ignore[misc]
            found.append(sum("server_groups" in text for text in count.texts))
        return found

    life()
    alone, grouped = life(), life(group="db")
    assert alone[1::2] == [0, 0, 0, 0]
    more = [with_ - without for with_, without in zip(grouped, alone, strict=True)]
    # a lock, where members are, where these providers are, and the count, which may go with others
    count_up = 1 if more[0] == 4 else 0
    assert more[::2] == [3 + count_up, 0, 4, 0], more
    assert grouped[1::2][1] == grouped[1::2][3] == 0


def test_a_claim_of_cells_reads_of_a_host_it_knows_what_is_used_alone(
    counted: SQLBackend, count: Count
) -> None:
    """What the host is was read once, and its definition stands; who holds what nobody asks."""
    ledger, another = Ledger(counted), Ledger(counted)
    ledger.sync(host_of("host0", cells(), DISK_GB=100))
    asked = {"host0": "NUMA_TOPOLOGY=1:dedicated=1"}
    defined = {"structures", "resource_provider_traits", "resource_provider_aggregates"}

    def read(claiming: Ledger) -> set[str]:
        """Return which of these tables a claim reads."""
        count.of(lambda: claiming.claim("job", asked))
        claiming.release("job")
        return {name for name in defined for text in count.texts if f"FROM {name}" in text}

    assert [read(ledger), read(ledger), read(another), read(another)] == [defined, set()] * 2
    count.of(lambda: ledger.claim("job", asked))
    assert not any("FROM allocations" in text for text in count.texts)
    another.sync(host_of("host0", cells(), DISK_GB=101))
    ledger.release("job")
    assert [read(ledger), read(ledger)] == [defined, set()]


def test_a_replacement_writes_that_there_is_no_request(ledger: SQLBackend, ledger_url: str) -> None:
    names = define(ledger, host())
    places = {n: (Use(names["host0"], "VCPU", n),) for n in (1, 2)}
    for name, asked in (("a", "{}"), ("b", "[]")):
        claim(ledger, name, {names["host0"]: "VCPU=1"}, request=StoredRequest(asked))
    write(
        ledger,
        ConsumerOrder.replace("a", places[2]),
        ConsumerOrder.replace("b", places[2], request=StoredRequest("[1]")),
    )
    kept_now = ledger.held_by(["a", "b"])
    assert kept_now["a"].request is None
    assert kept_now["b"].request == StoredRequest("[1]")
    write(ledger, ConsumerOrder.replace("a", places[1]), ConsumerOrder.replace("b", places[1]))
    assert [one.request for one in ledger.held_by(["a", "b"]).values()] == [None, None]
    assert checker.problems(ledger_url) == []


def test_a_claim_is_a_few_statements(counted: SQLBackend, count: Count, database_kind: str) -> None:
    ledger = counted
    names = define(ledger, host())
    claim(ledger, "first", {names["host0"]: "VCPU=1"})
    wanted = ConsumerOrder.claim("job", (Use(names["host0"], "VCPU", 1),))
    # PostgreSQL is not waited for after each change: see test_round_trips
    of_a_claim = {"sqlite": 7, "mysql": 8, "postgresql": 7}[database_kind]
    of_a_release = {"sqlite": 9, "mysql": 11, "postgresql": 10}[database_kind]
    assert count.of(lambda: ledger.claim(Operation(), wanted)) == of_a_claim, count.texts
    assert count.of(lambda: ledger.release(Operation(), "job")) == of_a_release, count.texts
    assert count.of(lambda: ledger.held_by(["first", "job"])) == 3
    assert count.of(ledger.cursor) == 1
    assert count.of(lambda: ledger.changes(START, 10)) == 2


def test_limits_take_no_statement_and_their_names_one(counted: SQLBackend, count: Count) -> None:
    names = define(counted, *(host(f"host{n}") for n in range(40)))
    claim(counted, "first", {names["host0"]: "VCPU=1"})
    ledger, asked = Ledger(counted), {names["host0"]: "VCPU=1"}
    named = dict.fromkeys(names, "VCPU=7,MEMORY_MB=9")
    known = dict.fromkeys(names.values(), "VCPU=7,MEMORY_MB=9")
    found = {}
    for said, limits in (("none", None), ("uuids", known), ("names", named)):
        found[said] = count.of(lambda n=said, some=limits: ledger.claim(n, asked, limits=some))
    assert found["uuids"] == found["none"] > 0, count.texts
    assert found["names"] == found["none"] + 1, count.texts
    many = dict.fromkeys(names.values(), "VCPU=1")
    for said, limits in (("many", None), ("within", known)):
        found[said] = count.of(lambda n=said, some=limits: ledger.claim(n, many, limits=some))
    assert found["many"] == found["within"], count.texts


@pytest.mark.law(4)
def test_the_update_itself_keeps_limits(
    ledger: SQLBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is decided above it: of 150 inventories one would be over."""
    names = define(ledger, *(host(f"host{n}", "VCPU=8") for n in range(150)))
    taken = tuple(Use(uuid, "VCPU", 3) for uuid in names.values())

    def unlimited(*args: Any, limits: Any, **more: Any) -> Any:
        return decide(*args, **more)

    monkeypatch.setattr("resource_objects.backends.sql.backend.decide", unlimited)
    monkeypatch.setattr(ledger, "_retries", RetryPolicy(tries=1))
    for name in ("host0", "host149"):
        limits = {(uuid, "VCPU"): 3 + (there != name) for there, uuid in names.items()}
        over = {**limits, (names[name], "VCPU"): 2}
        with raises_code("DatabaseBusy", match="1 inventories refused"):
            write(ledger, ConsumerOrder.claim("job", taken), limits=over)
        assert ledger_state(ledger).allocations == {}
    write(ledger, ConsumerOrder.claim("job", taken), limits=limits)
    write(ledger, ConsumerOrder.release("job"), limits=dict.fromkeys(limits, 0))


def test_orders_beside_a_definition_are_looked_for_only_where_somebody_may_write_meanwhile(
    counted: SQLBackend, count: Count, database_kind: str
) -> None:
    ledger = counted
    names = define(ledger, host())
    found = []
    for some_orders in ((), (ConsumerOrder.claim("job", (Use(names["host0"], "VCPU", 1),)),)):
        [wanted] = trees(ledger.read("host0"))
        wanted.update(traits=[f"CUSTOM_OF_{len(some_orders)}"])
        changes = changes_to(ledger, wanted)
        one = Write(Operation(), "step", "host0", changes, orders=some_orders)
        found.append(count.of(lambda one=one: ledger.commit(one)))
    statements = {"sqlite": [11, 17], "mysql": [13, 23], "postgresql": [13, 22]}
    assert found == statements[database_kind], count.texts


def test_changes_too_many_for_one_statement_are_sent_in_several(
    ledger: SQLBackend, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = define(ledger, *(host(f"host{n}") for n in range(9)))
    wanted = tuple(Use(uuid, "VCPU", 1, ("cpu0",)) for uuid in names.values())
    for most in (15, 30, 60, 90, 200):
        monkeypatch.setattr("resource_objects.backends.sql.statements.MOST", most)
        made = ledger.claim(Operation(), ConsumerOrder.claim("job", wanted))
        assert ledger.consumer("job") == made and len(made.held) == 9
        assert checker.problems(ledger_url) == []
        ledger.release(Operation(), "job")


# --- several together ---


def _two_full_hosts(ledger: SQLBackend) -> tuple[str, str]:
    names = define(ledger, host("host0", "VCPU=4"), host("host1", "VCPU=4"))
    here, there = names["host0"], names["host1"]
    write(
        ledger,
        ConsumerOrder.claim("a", (Use(here, "VCPU", 4, UNITS),)),
        ConsumerOrder.claim("b", (Use(there, "VCPU", 4, UNITS),)),
    )
    return here, there


def test_two_consumers_swap_full_places_with_their_units(
    ledger: SQLBackend, ledger_url: str
) -> None:
    here, there = _two_full_hosts(ledger)
    a, b = write(
        ledger,
        ConsumerOrder.replace("a", (Use(there, "VCPU", 4, UNITS),)),
        ConsumerOrder.replace("b", (Use(here, "VCPU", 4, UNITS),)),
    )
    assert a.held == (Use(there, "VCPU", 4, UNITS, "host1"),)
    assert b.held == (Use(here, "VCPU", 4, UNITS, "host0"),)
    assert ledger.held_by(["a", "b", "c"]) == {"a": a, "b": b}
    assert a.generation == b.generation
    assert [writes for _, writes in rows(ledger, tables.inventories, "id", "writes")] == [2, 2]
    assert checker.problems(ledger_url) == []


def test_two_consumers_at_one_place_swap_units(ledger: SQLBackend, ledger_url: str) -> None:
    [here] = define(ledger, host("host0", "VCPU=4")).values()
    write(
        ledger,
        ConsumerOrder.claim("a", (Use(here, "VCPU", 2, ("cpu0", "cpu1")),)),
        ConsumerOrder.claim("b", (Use(here, "VCPU", 2, ("cpu2", "cpu3")),)),
    )
    a, b = write(
        ledger,
        ConsumerOrder.replace("a", (Use(here, "VCPU", 2, ("cpu1", "cpu2")),)),
        ConsumerOrder.replace("b", (Use(here, "VCPU", 2, ("cpu0", "cpu3")),)),
    )
    found = ledger.held_by(["a", "b"])
    assert found["a"].held[0].units == ("cpu1", "cpu2") and found["a"].generation == a.generation
    assert found["b"].held[0].units == ("cpu0", "cpu3") and found["b"].generation == b.generation
    assert checker.problems(ledger_url) == []


def test_of_several_that_want_one_unit_one_gets_it(ledger: SQLBackend, ledger_url: str) -> None:
    names = define(ledger, host("host0", "VCPU=100,MEMORY_MB=100"))

    def take(number: int) -> ConsumerRecord:
        kind = ("VCPU", "MEMORY_MB")[number % 2]  # which are locked apart
        wanted = (Use(names["host0"], kind, 1, ("unit",)),)
        return ledger.claim(Operation(), ConsumerOrder.claim(f"job-{number}", wanted))

    outcomes = together(take)
    [won] = [outcome for outcome in outcomes if isinstance(outcome, ConsumerRecord)]
    for outcome in outcomes:
        assert outcome is won or is_one_of(outcome, "UnitTaken"), outcomes
    assert rows(ledger, tables.allocation_units, "unit") == [("unit",)]
    assert checker.problems(ledger_url) == []


def test_writes_in_all_directions_do_not_stop_each_other(
    ledger: SQLBackend, ledger_url: str
) -> None:
    uuids = list(define(ledger, *(host(f"host{n}", "VCPU=100") for n in range(6))).values())

    def work(number: int) -> None:
        for turn in range(5):
            ordered = uuids[turn:] + uuids[:turn]
            ordered = ordered[::-1] if number % 2 else ordered
            names = [f"job-{number}-{place}" for place in range(6)]
            write(
                ledger,
                *(
                    ConsumerOrder.claim(name, (Use(uuid, "VCPU", 1),))
                    for name, uuid in zip(names, ordered, strict=True)
                ),
            )
            write(ledger, *map(ConsumerOrder.release, names[::-1]))

    assert together(work) == [None] * 6
    assert ledger_state(ledger).allocations == {}
    changes = ledger.changes(START, 10_000)
    for number in {change.shard for change in changes}:
        told = [change.number for change in changes if change.shard == number]
        assert told == list(range(1, ledger.cursor().heads[number] + 1))
    assert checker.problems(ledger_url) == []


def test_one_operation_done_by_many_at_once_happens_once(ledger: SQLBackend) -> None:
    names = define(ledger, host("host0"))
    orders = tuple(
        ConsumerOrder.claim(f"job-{n}", (Use(names["host0"], "VCPU", 1),)) for n in range(3)
    )
    once = Write(Operation(), "gang", subject_of(order.consumer for order in orders), orders=orders)
    outcomes = together(lambda _: ledger.commit(once))
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert ledger.held_by(["job-0", "job-1", "job-2"]) == {
        record.consumer: record for record in outcomes[0]
    }
    outcome = ledger.outcome(once.operation)
    assert outcome is not None and outcome.claims == outcomes[0] and outcome.claim is None


# --- what is read without a lock ---


@pytest.fixture
def server_ledger(ledger: SQLBackend, database_kind: str) -> SQLBackend:
    """The ledger, where somebody else may write in the middle of a write."""
    if database_kind == "sqlite":
        pytest.skip("a writer is alone there")
    return ledger


def test_a_refusal_is_about_what_a_consumer_holds_now(
    server_ledger: SQLBackend, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, another = server_ledger, SQLBackend.open(ledger_url)
    names = define(ledger, host("host0"), host("host1"))
    here, there = names["host0"], names["host1"]
    claim(ledger, "job", {there: "VCPU=1"})
    find = orders.read_locked_inventories

    def find_late(*args: Any) -> None:
        monkeypatch.undo()
        write(another, ConsumerOrder.adjust("job", (Use(here, "VCPU", 8),)))  # now it is full
        find(*args)

    monkeypatch.setattr(orders, "read_locked_inventories", find_late)
    moved = write(
        ledger, ConsumerOrder.release("job"), ConsumerOrder.claim("new", (Use(here, "VCPU", 8),))
    )  # without what the first one holds by now there would be no room
    assert [record.state for record in moved] == [RELEASED, HELD]
    assert [held.provider for held in moved[0].held] == ["host1", "host0"]
    another.close()
    assert checker.problems(ledger_url) == []


@pytest.mark.parametrize("factor", [0, 3])
def test_shares_that_change_meanwhile_are_seen(
    database_kind: str,
    server_ledger: SQLBackend,
    ledger_url: str,
    monkeypatch: pytest.MonkeyPatch,
    factor: int,
) -> None:
    if database_kind == "postgresql":
        pytest.skip("it reads shares under the lock, where nobody can change them")
    ledger, another = server_ledger, SQLBackend.open(ledger_url)
    names = define(ledger, _shared(2))
    find = orders._add_shares

    def find_late(*args: Any) -> None:
        monkeypatch.undo()
        find(*args)
        define(another, _shared(factor))

    monkeypatch.setattr(orders, "_add_shares", find_late)
    claim(ledger, "job", {names["cell0"]: "VCPU=1"})
    assert ledger_state(ledger).used("host0", "VCPU") == factor
    another.close()
    assert checker.problems(ledger_url) == []


# --- shares ---


def _shared(factor: int = 1) -> Provider:
    """Return a host of 8 CPUs, used by its two cells too."""
    root = Provider("host0", "VCPU=8")
    for number in range(2):
        share = Share(resource_class="VCPU", of="host0", of_class="VCPU", factor=factor or 1)
        root.add(f"cell{number}", "VCPU=8", shares=[share] if factor else [])
    return root


def test_a_refusal_names_who_draws_through_shares(ledger: SQLBackend, ledger_url: str) -> None:
    names = define(ledger, _shared(2), host("host1", "VCPU=1"))
    claim(ledger, "both", {names["cell0"]: "VCPU=1", names["cell1"]: "VCPU=1"})
    claim(ledger, "direct", {names["host0"]: "VCPU=3", names["host1"]: "VCPU=1"})
    with pytest.raises(exceptions.CapacityException) as refused:
        claim(ledger, "job", {names["cell0"]: "VCPU=1", names["host1"]: "VCPU=1"})
    assert {(one.where, one.holders) for one in refused.value.reasons} == {
        ("host0", (("both", 4), ("direct", 3))),
        ("host1", (("direct", 1),)),
    }
    counted = {
        name: number
        for name, number in _used(ledger, "writes").items()
        if name in ("host0", "cell0", "cell1")
    }
    assert counted == {"host0": 2, "cell0": 1, "cell1": 1}
    assert _used(ledger, "used")["host0"] == 7
    release(ledger, "both")
    assert _used(ledger, "used")["host0"] == 3 and _used(ledger, "writes")["host0"] == 2
    assert checker.problems(ledger_url) == []


def _used(ledger: SQLBackend, column: str) -> dict[str, int]:
    """Return a figure of the VCPUs of each provider."""
    names = dict(rows(ledger, tables.resource_providers, "id", "name"))
    return {
        names[provider]: value
        for provider, value in rows(ledger, tables.inventories, "provider_id", column)
    }


# --- definitions that must be unchanged, and reports ---


def test_a_claim_may_demand_a_definition_and_many_may_at_once(ledger: SQLBackend) -> None:
    names = define(ledger, host("host0", "VCPU=100"))
    here = names["host0"]

    at = stored_tree(ledger, "host0").generation or 0

    def take(number: int) -> ConsumerRecord:
        order = ConsumerOrder.claim(f"job-{number}", (Use(here, "VCPU", 1),))
        return write(ledger, order, unchanged=((here, at),))[0]

    assert all(isinstance(outcome, ConsumerRecord) for outcome in together(take))
    define(ledger, host("host0", "VCPU=90"))
    with raises_code("StaleDefinition", match=rf"host0 .* generation {at}, now \d+"):
        take(99)
    assert ledger.consumer("job-99") is None


def test_a_report_is_kept_and_told(ledger: SQLBackend) -> None:
    names = define(ledger, host("host0"), host("host1"))
    before = datetime.datetime.now(datetime.UTC)
    cursor = ledger.cursor()
    ledger.commit(Write(Operation(actor="pool"), "report", "host1", reported=(names["host1"],)))
    at = dict(rows(ledger, tables.resource_providers, "name", "reported_at"))
    assert at["host0"] is None
    assert before <= at["host1"].replace(tzinfo=datetime.UTC)
    [change] = ledger.changes(cursor, 10)
    assert (change.kind, change.subject, change.actor) == ("report", "host1", "pool")
    assert (change.providers, change.consumers) == ((names["host1"],), ())
    with raises_code("ProviderNotFound"):
        ledger.commit(Write(Operation(), "report", "x", reported=(names["host0"][::-1],)))


# --- outcomes ---


def test_an_outcome_that_others_have_written_on_is_what_the_operation_did(
    ledger: SQLBackend,
) -> None:
    [here] = define(ledger, host("host0")).values()
    made, more, over = Operation(), Operation(), Operation()
    uses = (Use(here, "VCPU", 2, ("cpu0", "cpu1")), Use(here, "MEMORY_MB", 1))
    first = ledger.claim(made, ConsumerOrder.claim("job", uses, request=StoredRequest("{}")))
    ledger.adjust(more, ConsumerOrder.adjust("job", (Use(here, "VCPU", -1, ("cpu0",)),)))
    ledger.commit(Write(over, "release", "job", orders=(ConsumerOrder.release("job"),)))
    found = [ledger.outcome(operation) for operation in (made, more, over)]
    claims = [outcome.claims[0] for outcome in found if outcome is not None]
    assert dataclasses.replace(claims[0], generation=first.generation) == first
    assert [(use.resource_class, use.amount) for use in claims[1].held] == [("VCPU", 1)]
    assert {(use.resource_class, use.amount, use.units) for use in claims[2].held} == {
        ("VCPU", 1, ("cpu1",)),
        ("MEMORY_MB", 1, ()),
    }
    assert [claim.state for claim in claims] == [HELD, HELD, RELEASED]
    assert {claim.request for claim in claims} == {StoredRequest("{}")}


def test_outcomes_read_back_as_they_were(ledger: SQLBackend) -> None:
    [here] = define(ledger, host("host0")).values()
    later = datetime.datetime(2100, 1, 2, 3, 4, 5, 678901, datetime.UTC)
    order = ConsumerOrder.claim(
        "job",
        (Use(here, "VCPU", 1, ("cpu1",)), Use(here, "MEMORY_MB", 1)),
        request=StoredRequest("{}"),
        project="p",
        user="ü",
        consumer_type="INSTANCE",
        expires_at=later,
    )
    single, several, nothing = Operation(), Operation(), Operation()
    first = ledger.claim(single, order)
    second = ledger.commit(
        Write(
            several,
            "orders",
            "two",
            orders=(ConsumerOrder.release("job"), ConsumerOrder.claim("j", order.uses)),
        )
    )
    ledger.commit(Write(nothing, "names", "none"))
    for operation, records in ((single, (first,)), (several, second), (nothing, ())):
        outcome = ledger.outcome(operation)
        assert outcome is not None and outcome.claims == records


# --- the feed ---


def _put_changes(ledger: SQLBackend, times: dict[int, list[int]]) -> None:
    """Fill shards with changes that were made so many seconds after the start."""
    start = datetime.datetime(2030, 1, 1)
    places = [
        (number, place, second)
        for number, seconds in times.items()
        for place, second in enumerate(seconds, 1)
    ]
    operations = [
        {
            "id": id,
            "uuid": Operation().id,
            "kind": "claim",
            "subject": f"{number}-{place}",
            "created_at": start + datetime.timedelta(seconds=second),
        }
        for id, (number, place, second) in enumerate(places, 1)
    ]
    made = [
        {"shard": number, "number": place, "part": 0, "operation_id": id, "what": "names"}
        for id, (number, place, _) in enumerate(places, 1)
    ]

    def put(connection: sqlalchemy.Connection) -> None:
        connection.execute(sqlalchemy.insert(tables.operations), operations)
        connection.execute(sqlalchemy.insert(tables.changes), made)
        heads = tables.change_heads
        for number, seconds in times.items():
            update = sqlalchemy.update(heads).where(heads.c.shard == number)
            last = max(id for id, (shard, *_) in enumerate(places, 1) if shard == number)
            connection.execute(update.values(head=len(seconds), operation_id=last))

    ledger._writing(put)


def _pages(ledger: SQLBackend, limit: int) -> Iterator[tuple[FeedEntry, ...]]:
    cursor = START
    while page := ledger.changes(cursor, limit):
        yield page
        cursor = cursor.moved(page)


@pytest.mark.parametrize("limit", [1, 3, 50, 1000])
def test_pages_tell_each_change_once_whatever_the_clocks_said(
    ledger: SQLBackend, limit: int
) -> None:
    times = {number: [(n * 7 + number) % 11 for n in range(1 + number % 9)] for number in range(64)}
    times[5] = [n // 2 for n in range(150)]
    _put_changes(ledger, times)
    pages = list(_pages(ledger, limit))
    told = [(change.shard, change.number) for page in pages for change in page]
    assert sorted(told) == [(n, m + 1) for n, seconds in times.items() for m in range(len(seconds))]
    for number in times:
        assert [m for n, m in told if n == number] == sorted(m for n, m in told if n == number)
    assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)


def test_a_busy_tree_does_not_keep_the_others_waiting(ledger: SQLBackend) -> None:
    busy, quiet = list(range(500)), [250]
    _put_changes(ledger, {1: busy, 2: quiet, 3: [0, 1, 2]})
    first = next(_pages(ledger, 20))
    assert len(first) == 20
    assert [change.number for change in first if change.shard == 3] == [1, 2, 3]
    told = [change.shard for page in _pages(ledger, 20) for change in page]
    assert told.index(2) in range(250, 260)


def test_a_wrong_cursor_has_expired(ledger: SQLBackend) -> None:
    define(ledger, host("host0"))
    number = shard(ledger, "host0")
    head = ledger.cursor().heads[number]
    for wrong in (Cursor((0,) * 3), Cursor((*START.heads[:-1], 1))):
        with raises_code("CursorExpired"):
            ledger.changes(wrong, 10)
    assert head == 1 and len(ledger.changes(START, 10)) == 1


# --- forgetting ---


def test_pruning_works_in_small_steps(
    ledger: SQLBackend, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BATCH", 3)
    names = define(ledger, host("host0"), host("host1"))
    here, there = names["host0"], names["host1"]
    for number in range(10):
        claim(ledger, f"job-{number}", {(here, there)[number % 2]: "VCPU=1"})
    for number in range(0, 10, 3):
        release(ledger, f"job-{number}")
    before = datetime.datetime.now(datetime.UTC)
    cursor = ledger.cursor()
    operation = Operation()
    ledger.claim(operation, ConsumerOrder.claim("late", (Use(here, "VCPU", 1),)))
    pruned = ledger.prune(before)
    # 2 definitions, 10 claims, 4 releases; one of them is the last of a shard, one came late
    assert (pruned.operations, pruned.changes) == (15, 15)
    assert len(rows(ledger, tables.operations, "id")) == 2
    # those that are gone go with the operation that forgot them
    assert len(rows(ledger, tables.consumers, "id")) in (7, 8)
    with raises_code("CursorExpired", match="forgotten"):
        ledger.changes(START, 10)
    with raises_code("CursorExpired", match="forgotten"):
        ledger.changes(cursor, 10)
    assert ledger.prune(before) == type(pruned)(0, 0)
    assert checker.problems(ledger_url) == []


def test_writers_go_on_while_history_is_pruned(
    ledger: SQLBackend, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BATCH", 5)
    names = define(ledger, host("host0", "VCPU=100"))
    done = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            while not done.is_set():
                ledger.prune(datetime.datetime.now(datetime.UTC))
            return
        try:
            for turn in range(20):
                claim(ledger, f"job-{number}-{turn}", {names["host0"]: "VCPU=1"})
                if turn % 3:
                    release(ledger, f"job-{number}-{turn}")
        finally:
            if number == 1:
                done.set()

    assert together(work, 4) == [None] * 4
    assert checker.problems(ledger_url) == []
    assert ledger.changes(ledger.cursor(), 10) == ()


# --- opening ---


def test_what_every_ledger_has_is_made_when_it_is_opened(
    ledger: SQLBackend, ledger_url: str
) -> None:
    names = define(ledger, host("host0"))

    def spoil(connection: sqlalchemy.Connection) -> None:
        connection.execute(sqlalchemy.delete(tables.change_heads))
        connection.execute(
            sqlalchemy.delete(tables.traits).where(tables.traits.c.name.like("HW_CPU_X86%"))
        )

    ledger._writing(spoil)
    order = ConsumerOrder.claim("job", (Use(names["host0"], "VCPU", 1),))
    with raises_code("DatabaseUnavailable", match="no head"):
        ledger.claim(Operation(), order)
    assert ledger.consumer("job") is None and ledger.cursor() == START
    with contextlib.closing(SQLBackend.open(ledger_url)) as again:
        again.claim(Operation(), order)
        assert len(rows(again, tables.change_heads, "shard")) == SHARDS
        assert ("HW_CPU_X86_AVX2",) in rows(again, tables.traits, "name")


def test_a_failing_step_names_no_operation_as_done(
    ledger: SQLBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = define(ledger, host("host0"))
    monkeypatch.setattr(backend.feed, "append_entries", _refuse)
    operation = Operation()
    with pytest.raises(exceptions.LedgerError, match="no"):
        ledger.claim(operation, ConsumerOrder.claim("job", (Use(names["host0"], "VCPU", 1),)))
    assert ledger.outcome(operation) is None and ledger.consumer("job") is None


def _refuse(*_: Any) -> None:
    raise exceptions.LedgerError("ledger", "feed", "no")
