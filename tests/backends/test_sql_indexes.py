"""Every index serves a statement of the library, or the check of a foreign key."""

from __future__ import annotations

import contextlib
import datetime
import functools
import re
import sqlite3
from collections.abc import Callable

import pytest
import sqlalchemy

from resource_objects import exceptions
from resource_objects.backends.sql import tables
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Provider, Share
from resource_objects.providers.listing import By, ConsumerFilter, ProviderFilter
from resource_objects.providers.orders import (
    ConsumerOrder,
    NameAction,
    NameChange,
    NameKind,
    Operation,
    Use,
    Write,
)
from resource_objects.providers.statistics import Statistic, StatisticFilter, StatisticsOrder
from resource_objects.providers.waiting import Awaited
from resource_objects.testing.conformance.suite import adjust, claim, define, release
from resource_objects.testing.conformance.waiting import enter

NOW = datetime.datetime.now(datetime.UTC)
#: The database searches for the children of a provider before it deletes the provider. SQLite does
#: not show the index in the plan of the DELETE.
OF_FOREIGN_KEYS = {"ix_resource_providers_parent_id"}


def use_everything(backend: SQLBackend) -> None:
    """Do what a ledger does, at least once."""
    names = define(backend, *(_tree(number) for number in range(3)))
    order = ConsumerOrder.claim(
        "a", (Use(names["cell0"], "VCPU", 2, ("cpu0", "cpu1")),), project="p", user="u"
    )
    backend.claim(Operation(), order)
    claim(backend, "b", {names["host0"]: "VCPU=1,CUSTOM_A=1", names["host1"]: "VCPU=1"})
    with contextlib.suppress(exceptions.CapacityException):
        claim(backend, "c", {names["host0"]: "VCPU=50"})
    backend.commit(Write(Operation(), "release", "a", orders=(ConsumerOrder.release("a"),)))
    backend.read("host1")
    nobody: frozenset[str] = frozenset(["nobody"])
    for wanted in (
        ProviderFilter(trees=frozenset(["host1"])),
        ProviderFilter(required=frozenset(["CUSTOM_T"])),
        ProviderFilter(aggregates=(frozenset(["rack"]),)),
        ProviderFilter(room=(("CUSTOM_A", 1),)),
    ):
        assert backend.list_providers(wanted, 10)
    for whom in (
        ConsumerFilter(projects=nobody),
        ConsumerFilter(users=nobody),
        ConsumerFilter(types=nobody),
        ConsumerFilter(groups=nobody),
        ConsumerFilter(created_before=NOW),
        ConsumerFilter(expires_before=NOW),
        ConsumerFilter(tree="host1"),
        ConsumerFilter(provider="host1"),
    ):
        backend.list_consumers(whom, 10)
        backend.totals(whom, By.PROJECT)
    for kind, name in (
        (NameKind.RESOURCE_CLASS, "CUSTOM_A"),
        (NameKind.TRAIT, "CUSTOM_T"),
        (NameKind.AGGREGATE, "rack"),
    ):
        with pytest.raises(exceptions.LedgerError):
            change = NameChange(kind, NameAction.DELETE, name)
            backend.commit(Write(Operation(), "name", name, names=(change,)))
    backend.leave(enter(backend, "c", Awaited("VCPU", 50)).entry)
    release(backend, "b")
    define(backend, Provider("host0", "VCPU=8"))
    backend.prune(NOW + datetime.timedelta(days=1))
    adjust(backend, "c", {names["host1"]: "VCPU=1"})
    adjust(backend, "c", {names["host1"]: "VCPU=1"})
    release(backend, "c")
    load = functools.partial(Statistic, "cpu.percent")
    backend.put_statistics(StatisticsOrder({names["host1"]: (load(1),)}))
    backend.forget_statistics(StatisticFilter(None, frozenset(["cpu.percent"])))


def _tree(number: int) -> Provider:
    root = Provider(f"host{number}", "VCPU=8,CUSTOM_A=2", traits=["CUSTOM_T"], aggregates=["rack"])
    shared = Share(resource_class="VCPU", of=root.name, of_class="VCPU")
    root.add(f"cell{number}", "VCPU=8", shares=[shared])
    return root


def test_every_index_is_used(sqlite_url: Callable[[str], str]) -> None:
    url = sqlite_url("ledger.db")
    backend = SQLBackend.open(url)
    texts: dict[str, None] = {}

    def listen(connection: sqlite3.Connection, *_: object) -> None:
        connection.set_trace_callback(lambda text: texts.setdefault(text, None))

    sqlalchemy.event.listen(backend._database._engine, "connect", listen)
    backend._database._engine.dispose()  # those made from now on are listened to
    use_everything(backend)
    backend.close()
    used: set[str] = set()
    plain = sqlite3.connect(sqlalchemy.make_url(url).database or "")
    for text in texts:
        if text.split()[0] in ("SELECT", "UPDATE", "DELETE"):
            for *_, step in plain.execute(f"EXPLAIN QUERY PLAN {text}"):
                used.update(re.findall(r"USING (?:COVERING )?INDEX (\w+)", step))
    plain.close()
    wanted = {index.name for table in tables.metadata.tables.values() for index in table.indexes}
    assert wanted - used == OF_FOREIGN_KEYS
