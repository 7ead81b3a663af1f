"""Intervals of use as they are kept: how many, which are open, and what can be asked of them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from resource_objects.backends.memory.backend import MemoryBackend
from resource_objects.backends.sql import tables, use_over_time
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Backend
from resource_objects.providers.orders import ConsumerOrder
from resource_objects.providers.use_over_time import UseBy, UseFilter
from resource_objects.store import use_over_time as stored_use
from resource_objects.testing.conformance.suite import (
    a_later_moment,
    claim,
    define,
    deltas,
    host,
    order,
    release,
)
from resource_objects.testing.refusals import raises_code

DAY = datetime.timedelta(days=1)


@pytest.fixture
def sqlite(sqlite_url: Callable[[str], str]) -> Iterator[SQLBackend]:
    backend = SQLBackend.open(sqlite_url("ledger.db"))
    yield backend
    backend.close()


def test_forgetting_keeps_up_with_gangs(
    sqlite: SQLBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = MemoryBackend.open("memory://")
    for module in (use_over_time, stored_use):  # two for each order, as 2000 are more than 30
        monkeypatch.setattr(module, "BATCH", 128)
    for backend in (sqlite, memory):
        here = define(backend, host("host0", "VCPU=999"))["host0"]
        backend.record_use(datetime.timedelta(0))
        gang = [f"job-{number}" for number in range(64)]
        for _ in range(10):
            order(backend, *(ConsumerOrder.claim(name, deltas({here: "VCPU=1"})) for name in gang))
            a_later_moment()
            order(backend, *(ConsumerOrder.release(name) for name in gang))
        assert _intervals_of(backend) <= 2 * len(gang)
    memory.close()


def _intervals_of(backend: Backend) -> int:
    """Return how many intervals are kept."""
    if isinstance(backend, MemoryBackend):
        return len(backend._open().ended_use)
    assert isinstance(backend, SQLBackend)
    count = sa.select(sa.func.count()).select_from(tables.use_intervals)
    return int(backend._reading(lambda connection: connection.execute(count).scalar_one()))


def test_switching_off_again_ends_what_one_who_was_stopped_left_open(sqlite: SQLBackend) -> None:
    here = define(sqlite, host("host0"))["host0"]
    sqlite.record_use(DAY)
    since = sqlite.now()
    claim(sqlite, "a", {here: "VCPU=1"})
    a_later_moment()
    sqlite._writing(use_over_time.switch_off)  # and was killed
    sqlite.record_use(None)
    is_open = tables.use_intervals.c.ended_at.is_(None)
    query = sa.select(sa.func.count()).select_from(tables.use_intervals).where(is_open)
    assert sqlite._reading(lambda connection: connection.execute(query).scalar_one()) == 0
    release(sqlite, "a")
    [row] = sqlite.use_between(since, None, UseFilter(), (UseBy.CONSUMER,))
    assert row.consumer == "a" and row.microseconds > 0


def test_a_filter_of_too_many_names_is_refused(sqlite: SQLBackend) -> None:
    here = define(sqlite, host("host0"))["host0"]
    sqlite.record_use(DAY)
    since = sqlite.now()
    claim(sqlite, "job-1", {here: "VCPU=1"})
    a_later_moment()
    many = [f"job-{number}" for number in range(30_000)]
    assert len(sqlite.use_between(since, None, UseFilter(consumers=frozenset(many)), ())) == 1
    wanted = UseFilter(consumers=frozenset([*many, "another"]))
    with raises_code("InvalidField", match="got 30001, expected at most 30000 names"):
        sqlite.use_between(since, None, wanted, ())
    classes = frozenset(f"CUSTOM_{number}" for number in range(30_000))
    with raises_code("ClassNotFound"):
        sqlite.use_between(since, None, UseFilter(classes=classes), ())
