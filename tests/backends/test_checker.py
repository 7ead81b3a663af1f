"""Who checks the checkers: broken ledgers and broken backends are found out."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.pool import NullPool

from resource_objects.backends.memory import MemoryBackend
from resource_objects.backends.sql import places, schema
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.backends.sql.statements import Sized, chosen, listed
from resource_objects.providers import Backend, decision
from resource_objects.providers.backend import Adjustment, ClaimOrder, ClaimRecord, Operation
from resource_objects.testing import checker
from resource_objects.testing.conformance import BackendConformance
from resource_objects.testing.conformance.base import (
    Kit,
    adjust,
    claim,
    define,
    host,
    release,
)
from resource_objects.testing.conformance.claims import ClaimRules

# --- the checker of tables ---


@pytest.fixture
def sound(sqlite_url: Callable[[str], str]) -> str:
    """The URL of a ledger in which all is well and every table has rows."""
    url = sqlite_url("ledger.db")
    backend = SQLBackend.open(url)
    root = host("host0")
    root.add("host0/gpu0", "PGPU=1", traits=["CUSTOM_H100"])
    names = define(backend, root, host("host1"))
    claim(backend, "job-1", {names["host0"]: "VCPU=2", names["host0/gpu0"]: "PGPU=1"})
    claim(backend, "job-2", {names["host0"]: "VCPU=3"})
    adjust(backend, "job-2", {names["host0"]: "VCPU=-1,MEMORY_MB=5"})
    claim(backend, "job-3", {names["host1"]: "VCPU=1"})
    release(backend, "job-3")
    backend.close()
    assert checker.problems(url) == []
    return url


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE inventories SET used = used + 1 WHERE id = 1", "held"),
        ("UPDATE inventories SET used = 0 WHERE id = 1", "held"),
        ("UPDATE allocations SET used = used + 1 WHERE id = 1", "held"),
        ("DELETE FROM allocations WHERE id = 1", "held"),
        ("UPDATE allocations SET used = 0", "holds 0"),
        ("UPDATE inventories SET capacity = capacity + 1", "does not follow"),
        ("UPDATE inventories SET total = 1, capacity = 1 WHERE id = 1", "of a capacity of 1"),
        ("UPDATE inventories SET step_size = 0", "out of range"),
        ("UPDATE inventories SET max_unit = 100000", "max_unit"),
        ("DELETE FROM inventories WHERE id = 1", "refers to nothing"),
        ("DELETE FROM consumers WHERE name = 'job-1'", "of nobody"),
        ("DELETE FROM claims WHERE id = 1", "0 claims"),
        ("UPDATE consumers SET generation = 1", "generation"),
        ("UPDATE consumers SET name = 'job-1'", "are called"),
        ("DELETE FROM traits", "trait"),
        ("DELETE FROM resource_classes WHERE id = 1", "not there"),
        ("UPDATE resource_providers SET root_id = 3", "has the root 3"),
        ("UPDATE resource_providers SET parent_id = 2 WHERE id = 1", "has the root"),
        ("INSERT INTO allocations SELECT * FROM allocations WHERE id = 1", "two allocations"),
        (
            "UPDATE allocations SET used = used - 1 WHERE consumer_id = 2 AND used > 2;"
            "UPDATE inventories SET used = used - 1 WHERE used > 4",
            "operation 5 says",
        ),
    ],
)
def test_the_checker_finds_what_is_wrong(sound: str, damage: str, said: str) -> None:
    engine = sqlalchemy.create_engine(sound, poolclass=NullPool)
    with engine.begin() as connection:
        for table in schema.metadata.tables:  # a copy has none of the constraints
            connection.exec_driver_sql(f"CREATE TABLE copied AS SELECT * FROM {table}")
            connection.exec_driver_sql(f"DROP TABLE {table}")
            connection.exec_driver_sql(f"ALTER TABLE copied RENAME TO {table}")
    assert checker.problems(sound) == []
    with engine.begin() as connection:
        for statement in damage.split(";"):
            connection.exec_driver_sql(statement)
    assert said in "\n".join(checker.problems(sound))


# --- the kit ---


class _Kit(BackendConformance):
    """The conformance kit, called by hand."""

    backend_class = MemoryBackend
    backend_name = "broken"


def _failures(open_backend: Callable[[], Backend], of: type[Kit] = _Kit) -> set[str]:
    """Return the names of the kit's tests that a backend fails, of those that ask only for it."""
    failed = set()
    for name, test in inspect.getmembers(_Kit(), inspect.ismethod):
        if list(inspect.signature(test).parameters) != ["backend"] or not hasattr(of, name):
            continue
        backend = open_backend()
        try:
            test(backend)
        except (Exception, pytest.fail.Exception):  # what is broken may break in any way
            failed.add(name)
        finally:
            backend.close()
    return failed


class _Forgetful(MemoryBackend):
    """Forgets operations."""

    def _done(self, *_: Any) -> bool:
        return False


class _Careless(MemoryBackend):
    """Writes before it looks."""

    def claim(self, operation: Operation, order: ClaimOrder) -> ClaimRecord:
        self.adjust(Operation(), Adjustment(order.consumer, order.deltas[:1]))
        self.release(Operation(), order.consumer)
        for delta in order.deltas:
            self.adjust(Operation(), Adjustment(order.consumer, (delta,)))
        held = self.held(order.consumer)
        assert held is not None
        return held


class _Trusting(MemoryBackend):
    """Does not look at generations."""

    def _at_generation(self, uuid: str, name: str, generation: int) -> Any:
        return self._providers[uuid]


class _Generous(MemoryBackend):
    """Lets anybody have anything."""

    def _refusals(self, *_: Any) -> Any:
        return []


@pytest.mark.parametrize(
    ("broken", "found_by"),
    [
        (_Forgetful, "test_a_repeated_claim_returns_the_first_outcome"),
        (_Careless, "test_a_refused_claim_changes_nothing"),
        (_Trusting, "test_a_stale_change_changes_nothing"),
        (_Generous, "test_the_last_unit_can_be_had_and_no_more"),
    ],
)
def test_the_kit_finds_what_is_broken(broken: type[MemoryBackend], found_by: str) -> None:
    sound = _failures(lambda: MemoryBackend.open("memory://"))
    assert found_by in _failures(lambda: broken.open("memory://")) - sound


@pytest.mark.parametrize("broken", ["used is not changed", "the decision is always yes"])
def test_kit_and_checker_find_a_broken_sql_backend(
    sqlite_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    if broken == "used is not changed":
        monkeypatch.setattr(places, "change", lambda connection, nets: None)
    else:
        monkeypatch.setattr(decision, "refusals", lambda *_, **__: ())
        monkeypatch.setattr(places, "_CHANGE", Sized(_unguarded))
    numbers = itertools.count()
    assert _failures(lambda: SQLBackend.open(sqlite_url(f"{next(numbers)}.db")), ClaimRules)
    url = sqlite_url("judged.db")
    backend = SQLBackend.open(url)
    names = define(backend, host("host0", "VCPU=2"))
    for consumer in ("job-1", "job-2"):
        claim(backend, consumer, {names["host0"]: "VCPU=2"})
    backend.close()
    assert checker.problems(url) != []


def _unguarded(ids: int, nets: int) -> sqlalchemy.Update:
    inventories = schema.inventories.c
    return (
        sqlalchemy.update(schema.inventories)
        .where(listed(inventories.id, "ids", ids))
        .values(used=inventories.used + chosen(inventories.id, "ids", "nets", nets))
    )
