"""The checker of tables and the conformance kit find broken ledgers and broken backends."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import inspect
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.pool import NullPool

from resource_objects import exceptions
from resource_objects.backends.memory import MemoryBackend
from resource_objects.backends.sql import orders, tables
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.backends.sql.statements import SQL
from resource_objects.providers import Backend
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.feed import SHARDS, Cursor
from resource_objects.providers.listing import ListedProvider, ProviderFilter, Pruned
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Key,
    Operation,
    Use,
    Write,
)
from resource_objects.providers.provider import Share
from resource_objects.providers.statistics import StatisticsOrder
from resource_objects.resources import Resource
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.resources.records import KindRecord
from resource_objects.store import decide, write
from resource_objects.store.rows import InventoryRow, Rows
from resource_objects.testing.conformance import BackendConformance
from resource_objects.testing.conformance.statistics import LOAD, STATE, UP
from resource_objects.testing.conformance.suite import (
    CLASS,
    adjust,
    change_names,
    claim,
    define,
    host,
    host_of,
    order,
    release,
    rename,
    updated,
)
from tests.support.checker import problems

# --- the checker of tables ---


@pytest.fixture
def sound(template: Path, tmp_path: Path) -> str:
    """The URL of a ledger in which all is well and every table has rows."""
    return f"sqlite:///{shutil.copy(template, tmp_path / 'ledger.db')}"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of that, to be copied."""
    path = tmp_path_factory.mktemp("sound") / "ledger.db"
    url = f"sqlite:///{path}"
    backend = SQLBackend.open(url)
    root = host("host0")
    root.update(aggregates={"rack"})
    share = Share(resource_class="PGPU", of="host0", of_class="VCPU", factor=2)
    root.add("host0/gpu0", "PGPU=2", traits=["CUSTOM_H100"], shares=[share])
    names = define(backend, root, host("host1"))
    here, gpu = names["host0"], names["host0/gpu0"]
    order(
        backend,
        ConsumerOrder.claim("job-1", (Use(here, "VCPU", 2), Use(gpu, "PGPU", 1, ("gpu0",)))),
        ConsumerOrder.claim("job-2", (Use(here, "VCPU", 3),)),
    )
    adjust(backend, "job-2", {here: "VCPU=-1,MEMORY_MB=5"})
    claim(backend, "job-3", {names["host1"]: "VCPU=1"})
    release(backend, "job-3")
    backend.define(Operation(), _with_a_kind(backend, names["host1"]))
    for number, name in enumerate(("host0/gpu0", "host1")):
        until = backend.now() + datetime.timedelta(days=1) if number else None
        said = (DisableOrder(names[name], "fan", until),)
        backend.commit(Write(Operation(), "disable", name, disabling=said))
    backend.put_statistics(StatisticsOrder({here: (LOAD(3), STATE("on"), UP(True))}))
    backend.close()
    assert problems(url) == []
    assert [found.name for found in path.parent.iterdir()] == ["ledger.db"]
    return path


def _with_a_kind(backend: Backend, uuid: str) -> DefinitionChanges:
    """Return the change that makes one structured inventory of what a host has."""
    [row] = backend.list_providers(ProviderFilter(uuids=frozenset({uuid})), 1)
    kind = KindRecord("CUSTOM_BOARD", ("VCPU", "MEMORY_MB"), "")
    update = updated(backend, row.name, kinds=(kind,))
    return DefinitionChanges(row.name, updates=(update,))


GROUP = "INSERT INTO server_groups (uuid, name, policy, max_per_host, generation)"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE inventories SET used = used + 1 WHERE id = 1", "held"),
        ("UPDATE inventories SET used = 0 WHERE id = 1", "held"),
        ("UPDATE allocations SET used = used + 1 WHERE position = 1", "held"),
        ("DELETE FROM allocations WHERE position = 1", "held"),
        ("UPDATE allocations SET used = 0", "holds 0"),
        ("UPDATE inventories SET capacity = capacity + 1", "does not follow"),
        ("UPDATE inventories SET total = 1, capacity = 1 WHERE id = 1", "of a capacity of 1"),
        ("UPDATE inventories SET step_size = 0", "out of range"),
        ("UPDATE inventories SET max_unit = 100000", "max_unit"),
        ("UPDATE inventories SET writes = -1", "-1 times"),
        ("DELETE FROM inventories WHERE id = 1", "refers to nothing"),
        ("DELETE FROM consumers WHERE name = 'job-1'", "refers to nothing"),
        ("UPDATE consumers SET state = 'released'", "is released"),
        ("UPDATE consumers SET server_group = 'no' WHERE gone = 0", "in server group no"),
        (f"{GROUP} VALUES ('u', 'db', 'apart', 1, 1)", "asks apart"),
        (f"{GROUP} VALUES ('u', 'db', 'affinity', 2, 1)", "asks affinity, 2 on a host"),
        ("UPDATE consumers SET gone = 7", "gone and holds"),
        ("UPDATE consumers SET gone = 0", "holds nothing"),
        ("UPDATE consumers SET uuid = 'another'", "are called"),
        ("UPDATE consumers SET name = 'job-1'", "are called"),
        ("UPDATE operations SET uuid = 'the same'", "are called"),
        ("DELETE FROM traits", "of traits"),
        ("DELETE FROM aggregates", "of aggregates"),
        ("DELETE FROM resource_classes", "not there"),
        ("UPDATE resource_providers SET root_id = 3", "has the root 3"),
        ("UPDATE resource_providers SET parent_id = 2 WHERE id = 1", "has the root"),
        ("INSERT INTO allocations SELECT * FROM allocations WHERE position = 1", "two allocations"),
        (
            "UPDATE allocations SET used = used + 1; UPDATE inventories SET used = used + 1",
            "told is",
        ),
        ("UPDATE shares SET factor = 3", "held"),
        ("UPDATE shares SET of_class_id = 99", "refers to nothing"),
        ("UPDATE shares SET of_provider_id = provider_id, of_class_id = class_id", "itself"),
        ("UPDATE inventories SET shares = 1 WHERE id = 1", "counts 1 shares"),
        ("UPDATE inventories SET shares = 0", "counts 0 shares"),
        ("UPDATE resource_providers SET root_id = 2 WHERE id = 2", "leaves the tree"),
        ("UPDATE inventories SET disabled_until = NULL", "out of service until None"),
        ("UPDATE inventories SET removed_units = 1", "tells of 1 removed units, there are 0"),
        ("UPDATE inventories SET disabled_until = '9999-12-31 00:00:00'", "until None"),
        ("UPDATE resource_providers SET disabled_reason = NULL", "its providers until None"),
        ("UPDATE resource_providers SET disabled_reason = 'fan' WHERE id = 1", "until 9999-12-31"),
        ("UPDATE allocation_units SET consumer_id = 99", "of no allocation"),
        ("UPDATE allocation_units SET provider_id = 1", "of no allocation"),
        ("INSERT INTO allocation_units SELECT * FROM allocation_units", "taken 2 times"),
        ("UPDATE allocation_units SET unit = 'gpu7'", "was told to take"),
        ('UPDATE structures SET classes = \'["VCPU","DISK_GB"]\'', "there is no inventory"),
        ("INSERT INTO structures SELECT * FROM structures", "2 kinds"),
        ("UPDATE statistics SET value = 'on'", "on is no value"),
        ("UPDATE statistics SET value = '[]'", "[] is no value"),
        ("UPDATE statistics SET provider_id = 99", "it is not there"),
        ("INSERT INTO statistics SELECT * FROM statistics", "2 times"),
        ("UPDATE statistics SET source = ''", "has no source"),
        ("DELETE FROM changes WHERE number = 2", "not told"),
        ("UPDATE change_heads SET head = head - 1", "of shard"),
        ("DELETE FROM change_heads WHERE shard = 7", "the feed has the shards"),
        ("UPDATE changes SET operation_id = 99", "not told"),
        ("UPDATE changes SET operation_id = (SELECT MAX(id) FROM operations)", "times in shard"),
    ],
)
def test_the_checker_finds_what_is_wrong(sound: str, damage: str, said: str) -> None:
    engine = sqlalchemy.create_engine(sound, poolclass=NullPool)
    with engine.begin() as connection:
        for table in tables.metadata.tables:  # a copy has none of the constraints
            connection.exec_driver_sql(f"CREATE TABLE copied AS SELECT * FROM {table}")
            connection.exec_driver_sql(f"DROP TABLE {table}")
            connection.exec_driver_sql(f"ALTER TABLE copied RENAME TO {table}")
    assert problems(sound) == []
    with engine.begin() as connection:
        for statement in damage.split(";"):
            connection.exec_driver_sql(statement)
    assert said in "\n".join(problems(sound))


@pytest.mark.law(4)
def test_the_checker_finds_a_cpu_that_is_taken_of_two_cells(
    sqlite_url: Callable[[str], str],
) -> None:
    url = sqlite_url("cells.db")
    backend = SQLBackend.open(url)
    cells = [HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=64) for n in (0, 1)]
    names = define(backend, host_of("host0", NUMATopologyInventory(cells)))
    # a backend keeps what it is told: which CPUs a cell has, it does not know
    for consumer, cell, unit in (("job-1", 0, "cpu2"), ("job-2", 1, "cpu4")):
        taken = Use(names[f"host0/numa{cell}"], "PCPU", 1, (unit,))
        order(backend, ConsumerOrder.claim(consumer, (taken,)))
    assert problems(url) == []
    release(backend, "job-2")
    again = Use(names["host0/numa1"], "PCPU", 1, ("cpu2",))
    order(backend, ConsumerOrder.claim("job-2", (again,)))
    backend.close()
    [problem] = problems(url)
    assert "unit 'cpu2'" in problem and "2 owners" in problem


def test_units_of_one_name_may_be_of_several_devices(sqlite_url: Callable[[str], str]) -> None:
    url = sqlite_url("devices.db")
    backend = SQLBackend.open(url)
    root = host("host0")
    for number in (0, 1):
        root.add(f"host0/gpu{number}", "PGPU=2")
    names = define(backend, root)
    deltas = (Use(names[f"host0/gpu{number}"], "PGPU", 1, ("slice0",)) for number in (0, 1))
    order(backend, ConsumerOrder.claim("job", tuple(deltas)))
    backend.close()
    assert problems(url) == []


def test_the_checker_allows_for_what_was_renamed_and_what_was_forgotten(
    sqlite_url: Callable[[str], str],
) -> None:
    url = sqlite_url("ledger.db")
    backend = SQLBackend.open(url)
    names = define(backend, host("host0", "CUSTOM_A=2,CUSTOM_B=2"))
    claim(backend, "job", {names["host0"]: "CUSTOM_A=1"})
    for old, new in (("A", "C"), ("B", "A"), ("C", "B")):
        change_names(backend, rename(CLASS, f"CUSTOM_{old}", f"CUSTOM_{new}"))
    assert problems(url) == []
    backend.prune(datetime.datetime.now(datetime.UTC))
    backend.close()
    assert problems(url) == []


# --- the kit ---


class _Kit(BackendConformance):
    """The conformance kit, called by hand."""

    backend_class = MemoryBackend
    backend_name = "broken"


def _fails(open_backend: Callable[[], Backend], name: str) -> bool:
    """Return whether a backend fails one of the kit's tests, one that asks only for it."""
    test = getattr(_Kit(), name)
    assert list(inspect.signature(test).parameters) == ["backend"]
    backend = open_backend()
    try:
        test(backend)
    except (Exception, pytest.fail.Exception):  # what is broken may break in any way
        return True
    finally:
        backend.close()
    return False


class _Forgetful(MemoryBackend):
    """Forgets operations."""

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        return super().commit(dataclasses.replace(write, operation=Operation()))


class _Piecemeal(MemoryBackend):
    """Carries orders out one by one."""

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        if len(write.orders) < 2:
            return super().commit(write)
        parts = (Write(Operation(), "part", one.consumer, orders=(one,)) for one in write.orders)
        return tuple([MemoryBackend.commit(self, part)[0] for part in parts])


class _Repeating(MemoryBackend):
    """Gives generations out again."""

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        return tuple(dataclasses.replace(claim, generation=1) for claim in super().commit(write))


class _Thorough(MemoryBackend):
    """Forgets more than it may."""

    def prune(self, before: datetime.datetime) -> Pruned:
        pruned = super().prune(before)
        self._rows.operations.rows.clear()
        return pruned


class _Late(MemoryBackend):
    """Reads the cursor of another moment."""

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        columns = super().read(*trees, allocations=allocations)
        return dataclasses.replace(columns, cursor=Cursor((0,) * SHARDS))


class _Endless(MemoryBackend):
    """Does not end its pages."""

    def list_providers(
        self, wanted: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        return super().list_providers(wanted, 1000, after)


class _Blurred(MemoryBackend):
    """Lists who has no room too."""

    def list_providers(
        self, wanted: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        return super().list_providers(dataclasses.replace(wanted, room=()), limit, after)


class _Unlimited(MemoryBackend):
    """Looks at no limits."""

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        return super().commit(dataclasses.replace(write, limits={}))


@pytest.mark.parametrize(
    ("broken", "found_by"),
    [
        (_Forgetful, "test_a_repeated_claim_returns_the_first_outcome"),
        (_Forgetful, "test_every_kind_of_write_happens_once"),
        (_Piecemeal, "test_two_consumers_exchange_full_providers"),
        (_Piecemeal, "test_a_unit_passes_from_one_consumer_to_another_in_one_write"),
        (_Repeating, "test_a_generation_never_repeats_also_of_a_consumer_that_is_created_again"),
        (_Thorough, "test_pruning_removes_operations_and_no_state"),
        (_Late, "test_a_reader_that_continues_from_a_snapshot_misses_nothing"),
        (_Endless, "test_pages_continue_while_rows_are_added_and_removed"),
        (_Blurred, "test_one_unit_uses_several_of_several_inventories"),
        (_Unlimited, "test_a_limit_refuses_more_than_it_allows"),
        (_Unlimited, "test_a_limit_below_the_use_refuses_only_an_increase"),
        (_Unlimited, "test_a_limit_bounds_several_orders_together"),
    ],
)
def test_the_kit_finds_what_is_broken(broken: type[MemoryBackend], found_by: str) -> None:
    assert not _fails(lambda: MemoryBackend.open("memory://"), found_by)
    # a race that is won once may be lost on a busy machine
    assert any(_fails(lambda: broken.open("memory://"), found_by) for _ in range(4))


def _without_shares(rows: Rows, key: Key) -> InventoryRow | None:
    row = rows.inventories.get(key)
    return None if row is None else dataclasses.replace(row, shares=())


@pytest.mark.parametrize(
    ("module", "name", "instead", "found_by"),
    [
        (
            decide,
            "_group_violations",
            lambda *_: [],
            "test_members_of_an_anti_affinity_group_are_at_different_hosts",
        ),
        (
            decide,
            "_group_violations",
            lambda *_: [],
            "test_members_of_an_affinity_group_are_at_one_host",
        ),
        (
            Resource,
            "refusals",
            lambda *_, **__: (),
            "test_the_last_unit_can_be_allocated_and_no_more",
        ),
        (
            Rows,
            "unit_consumers",
            lambda *_: {},
            "test_a_unit_is_allocated_to_one_consumer_whatever_its_class",
        ),
        (Rows, "inventory", _without_shares, "test_a_full_target_refuses"),
        (
            write,
            "check_generation",
            lambda *_: None,
            "test_a_stale_change_changes_nothing",
        ),
        (write, "_append_to_feed", lambda *_: None, "test_an_entry_names_the_changed_providers"),
        (write, "changed", lambda *_: ({}, []), "test_every_value_is_read_as_it_was_written"),
        (
            write,
            "disable",
            lambda *_: None,
            "test_a_share_of_a_disabled_provider_refuses",
        ),
    ],
)
def test_the_kit_finds_a_part_that_is_broken(
    module: Any, name: str, instead: Any, found_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, instead)
    assert _fails(lambda: MemoryBackend.open("memory://"), found_by)


@pytest.mark.parametrize(
    ("module", "name", "found_by"),
    [
        (orders, "change_used", "test_the_last_unit_can_be_allocated_and_no_more"),
        (orders, "_add_shares", "test_an_allocation_is_used_at_the_target_of_a_share_too"),
        (
            orders,
            "write_allocations",
            "test_an_adjustment_releases_and_allocates_single_units",
        ),
        (Resource, "refusals", "test_a_claim_may_be_large"),
    ],
)
def test_kit_and_checker_find_a_broken_sql_backend(
    module: Any,
    name: str,
    found_by: str,
    sqlite_url: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if module is Resource:
        monkeypatch.setattr(orders, "_CHANGE_USED", _UNGUARDED)
        found_by = "test_the_last_unit_can_be_allocated_and_no_more"
    numbers = itertools.count()

    def fresh() -> SQLBackend:
        return SQLBackend.open(sqlite_url(f"{next(numbers)}.db"))

    assert not _fails(fresh, found_by) or module is Resource
    monkeypatch.setattr(module, name, lambda *_, **__: ())
    assert _fails(fresh, found_by)
    url = sqlite_url("judged.db")
    backend = SQLBackend.open(url)
    root = host("host0", "VCPU=2")
    share = Share(resource_class="PCPU", of="host0", of_class="VCPU")
    root.add("cell0", "PCPU=2", shares=[share])
    names = define(backend, root)
    for consumer in ("job-1", "job-2"):
        unit = Use(names["cell0"], "PCPU", 1, (consumer,))
        with contextlib.suppress(exceptions.CapacityException):
            order(backend, ConsumerOrder.claim(consumer, (Use(names["host0"], "VCPU", 1), unit)))
    backend.close()
    assert problems(url) != []


_UNGUARDED = SQL("""
    UPDATE inventories SET used = used + CASE id WHEN :ids THEN :nets* END,
    writes = writes + CASE id WHEN :ids THEN :counts* END WHERE id IN :ids*""")
