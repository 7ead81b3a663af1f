"""Trees in the place of others: exactly what reading everything gives, whatever differs."""

from __future__ import annotations

import dataclasses
import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import resource_objects as ro
from resource_objects.providers.columns import (
    Columns,
    InventoryColumns,
    ProviderColumns,
    TraitColumns,
    trees,
)
from resource_objects.providers.provider import Share
from resource_objects.search import Snapshot, fleet_build
from resource_objects.search.refresh import Following, patched, replaced
from resource_objects.search.snapshot import Refresh
from resource_objects.search.views import _of_providers
from tests.ledger.device_hosts import gpu, host_of
from tests.ledger.fleet_pictures import picture_of

Rows = list[list[Any]]


def lab() -> Columns:
    """Return columns of three hosts: with shares, with devices, and with neither."""
    with ro.connect("memory://") as ledger:
        host = ro.Provider("host0", "VCPU=8,MEMORY_MB=64", traits=["CUSTOM_A"], aggregates=["r0"])
        share = Share(resource_class="VCPU", of="host0", of_class="VCPU", factor=2)
        host.add("host0/part", "VCPU=4", traits=["CUSTOM_B"], shares=[share])
        plain = ro.Provider("host2", "VCPU=4", traits=["CUSTOM_B"], aggregates=["r1"])
        ledger.sync(host, host_of([gpu(1), gpu(2)], "host1"), plain)
        ledger.claim("job-1", {"host0/part": "VCPU=1", "host2": "VCPU=2"})
        ledger.claim("job-2", {"host1": "DEVICES=PGPU"})
        return ledger.backend.read()


def changed(columns: Columns, table: str, change: Callable[[Rows], None]) -> Columns:
    """Return columns with the rows of one table changed."""
    given = getattr(columns, table)
    rows = [list(row) for row in zip(*given, strict=True)]
    change(rows)
    return dataclasses.replace(columns, **{table: type(given)(*zip(*rows, strict=True))})


def of_tree(columns: Columns, host: str) -> Columns:
    """Return the rows of the tree of a host."""
    given = columns.providers
    root = given.provider_id[list(given.name).index(host)]
    ids = [n for n, top in zip(given.provider_id, given.root_id, strict=True) if top == root]
    return _of_providers(columns, frozenset(ids))


def shown(fleet: Any) -> dict[str, Any]:
    return picture_of(Snapshot._of(fleet, None, Refresh(0, 0, "read")))


def put(place: int, value: Any) -> Callable[[Rows], None]:
    """Return what changes a value of the first row."""

    def change(rows: Rows) -> None:
        rows[0][place] = value

    return change


#: Each changes one thing of host0, or of host1 (devices).
DIFFERENT: dict[str, tuple[str, str, Callable[[Rows], None]]] = {
    "generation": ("host0", "providers", put(5, 99)),
    "uuid": ("host0", "providers", put(1, "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33")),
    "name": ("host0", "providers", put(2, "host00")),
    "a trait more": ("host0", "traits", lambda rows: rows.append([rows[0][0], "CUSTOM_Z"])),
    "a trait less": ("host0", "traits", lambda rows: rows.pop(0)),
    "another trait": ("host0", "traits", put(1, "CUSTOM_B")),
    "a trait nobody had": ("host0", "traits", put(1, "CUSTOM_NEW")),
    "another aggregate": ("host0", "aggregates", put(1, "r1")),
    "an aggregate less": ("host0", "aggregates", lambda rows: rows.pop(0)),
    "factor": ("host0", "shares", put(4, 1)),
    "a share less": ("host0", "shares", lambda rows: rows.pop(0)),
    "capacity": ("host0", "inventories", put(8, 80)),
    "step": ("host0", "inventories", put(6, 2)),
    "another class": ("host0", "inventories", put(1, "CUSTOM_OTHER")),
    "kinds": ("host1", "kinds", put(2, ("PGPU", "CUSTOM_X"))),
    "a kind less": ("host1", "kinds", lambda rows: rows.pop(0)),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_definition_that_differs_is_not_patched(what: str) -> None:
    """At the same generation too: a provider may have been removed and made again."""
    before = lab()
    host, table, change = DIFFERENT[what]
    if what == "another class":  # nobody shares what goes
        before = changed(before, "shares", lambda rows: rows.clear())
    after = changed(before, table, change)
    old = fleet_build.read(before)
    new = fleet_build.read(of_tree(after, "host00" if what == "name" else host))
    tree = old.hosts.index(host)
    assert patched(old, new, np.array([tree])) is None
    gone = np.arange(len(old.hosts)) == tree
    assert shown(replaced(old, new, gone)) == shown(fleet_build.read(after))


@pytest.mark.parametrize("host", ["host0", "host1", "host2"])
def test_a_tree_that_is_the_same_may_be_patched_or_replaced(host: str) -> None:
    columns = lab()
    old, new = fleet_build.read(columns), fleet_build.read(of_tree(columns, host))
    tree = old.hosts.index(host)
    same = patched(old, new, np.array([tree]))
    assert same is not None and same.inventories is old.inventories
    again = replaced(old, new, np.arange(len(old.hosts)) == tree)
    assert shown(same) == shown(again) == shown(old)


def test_everything_may_go_and_come() -> None:
    columns = lab()
    fleet, nothing = fleet_build.read(columns), fleet_build.read(Columns())
    every, none = np.ones(3, dtype=np.bool_), np.zeros(0, dtype=np.bool_)
    assert shown(replaced(fleet, nothing, every)) == shown(nothing)
    assert shown(replaced(nothing, fleet, none)) == shown(fleet)
    assert shown(replaced(fleet, fleet, every)) == shown(fleet)


def test_a_snapshot_says_how_it_came_to_be() -> None:
    columns = lab()
    assert Snapshot(columns).refreshed == Refresh(0, len(trees(columns)), "read")
    assert str(Refresh(3, 2, "patched")) == "3 changes absorbed, 2 trees read, patched"
    assert [Refresh(0, 0, way).is_full for way in ("patched", "replaced", "read")] == [0, 0, 1]


# --- memory ---------------------------------------------------------------------------------------


def many(hosts: int, size: int) -> Columns:
    """Return columns of trees of providers with three classes each."""
    ids = range(hosts * size)
    roots = [i - i % size for i in ids]
    classes, count = ("DISK_GB", "MEMORY_MB", "VCPU"), 3 * hosts * size
    return Columns(
        ProviderColumns(
            list(ids),
            [f"{i:08x}-8a38-4bb3-8a37-7b5d4a6f6f33" for i in ids],
            [f"host{i // size:06}/p{i % size}" for i in ids],
            [root if root < i else None for i, root in zip(ids, roots, strict=True)],
            roots,
            [0 for _ in ids],
        ),
        InventoryColumns(
            [i for i in ids for _ in classes],
            [f"{name}" for _ in ids for name in classes],
            *([number + 1 for number in range(count)] for _ in range(3)),
            [None] * count,
            *([number + 1 for number in range(count)] for _ in range(4)),
        ),
        TraitColumns(list(ids), ["CUSTOM_A" for _ in ids]),
    )


@pytest.mark.parametrize(("hosts", "size"), [(20_000, 1), (2_000, 10)], ids=["flat", "trees"])
def test_a_snapshot_holds_less_than_two_kilobytes_per_provider(hosts: int, size: int) -> None:
    """Of three classes; 100,000 of them are 200 MB at that, and are a fraction of it in fact."""
    tracemalloc.start()
    try:
        columns = many(hosts, size)
        kept = Following.begin(columns)
        del columns
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        assert len(kept.snapshot._fleet.inventories.tree) == 3 * hosts * size
    finally:
        tracemalloc.stop()
    assert held < 2_000 * hosts * size
