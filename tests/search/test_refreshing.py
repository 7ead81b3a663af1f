"""Trees in the place of others: exactly what reading everything gives, whatever differs."""

from __future__ import annotations

import dataclasses
import gc
import sys
import tracemalloc
from collections.abc import Callable, Collection
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import resource_objects as ro
from resource_objects.providers.columns import (
    Columns,
    InventoryColumns,
    ProviderColumns,
    TraitColumns,
    trees,
)
from resource_objects.providers.provider import Share
from resource_objects.search import Snapshot, arrays, fleet_io, splice
from resource_objects.search.demands import view_of
from resource_objects.search.refresh import RefreshableSnapshot
from resource_objects.search.snapshot import Refresh
from resource_objects.search.splice import with_trees
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


def _of_providers(columns: Columns, wanted: Collection[int]) -> Columns:
    """Return the rows of some providers."""
    tables: dict[str, Any] = {}
    for field in dataclasses.fields(Columns):
        table = getattr(columns, field.name)
        if field.name not in ("cursor", "now") and table[0]:
            rows = zip(*[column for column in table if column], strict=True)
            kept = [row for row in rows if row[0] in wanted]
            tables[field.name] = type(table)(*zip(*kept, strict=True))
    return Columns(**tables)


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
def test_a_tree_with_another_definition_is_replaced(what: str) -> None:
    before = lab()
    host, table, change = DIFFERENT[what]
    if what == "another class":  # nobody shares what goes
        before = changed(before, "shares", lambda rows: rows.clear())
    after = changed(before, table, change)
    old = fleet_io.read(before)
    new = fleet_io.read(of_tree(after, "host00" if what == "name" else host))
    tree = old.hosts.index(host)
    assert shown(with_trees(old, new, [tree])) == shown(fleet_io.read(after))


@pytest.mark.parametrize("host", ["host0", "host1", "host2"])
def test_a_tree_with_the_same_definition_may_be_replaced(host: str) -> None:
    columns = lab()
    old, new = fleet_io.read(columns), fleet_io.read(of_tree(columns, host))
    tree = old.hosts.index(host)
    assert shown(with_trees(old, new, [tree])) == shown(old)


def test_everything_may_go_and_come() -> None:
    columns = lab()
    fleet, nothing = fleet_io.read(columns), fleet_io.read(Columns())
    every, none = [0, 1, 2], list[int]()
    assert shown(with_trees(fleet, nothing, every)) == shown(nothing)
    assert shown(with_trees(nothing, fleet, none)) == shown(fleet)
    assert shown(with_trees(fleet, fleet, every)) == shown(fleet)


def test_a_snapshot_says_how_it_came_to_be() -> None:
    columns = lab()
    assert Snapshot(columns).refreshed == Refresh(0, len(trees(columns)), "read")
    assert str(Refresh(3, 2, "patched")) == "3 changes absorbed, 2 trees updated, patched"
    assert [Refresh(0, 0, way).is_full for way in ("patched", "replaced", "read")] == [0, 0, 1]


def test_the_views_of_a_fleet_do_not_depend_on_fleets_with_other_figures() -> None:
    def devices(one: Any) -> str:
        return str(view_of(one, "DEVICES", 1).located.inventory)

    columns = lab()
    fleet, first = fleet_io.read(columns), devices(fleet_io.read(columns))
    used, capacity = fleet.inventories.used, fleet.inventories.capacity
    assert devices(fleet.released) != first
    devices(fleet.with_figures(used=used * 0))
    devices(fleet.with_figures(capacity=capacity * 0))
    assert devices(fleet) == first


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


@pytest.mark.parametrize(("hosts", "size"), [(10_000, 1), (1_000, 10)], ids=["flat", "trees"])
def test_a_snapshot_holds_less_than_two_kilobytes_per_provider(hosts: int, size: int) -> None:
    """Of three classes; 100,000 of them are 200 MB at that, and are a fraction of it in fact."""
    tracemalloc.start()
    try:
        columns = many(hosts, size)
        kept = RefreshableSnapshot.of_columns(columns)
        del columns
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        assert len(kept.snapshot._fleet.inventories.tree) == 3 * hosts * size
    finally:
        tracemalloc.stop()
    assert held < 2_000 * hosts * size


# --- what is copied, and what is put off ----------------------------------------------------------


@given(st.data())
def test_a_splice_is_what_slices_of_a_list_are(data: st.DataObject) -> None:
    old, new = list(range(data.draw(st.integers(0, 12)))), list(range(100, 112))
    ends = sorted(data.draw(st.lists(st.integers(0, len(old)), max_size=8)))
    cuts, first = [], 0
    for start, stop in zip(ends[::2], ends[1::2], strict=False):
        end = data.draw(st.integers(first, len(new)))
        cuts.append((start, stop, first, end))
        first = end
    new = new[:first]
    expected = list(old)
    for start, stop, first, end in reversed(cuts):
        expected[start:stop] = new[first:end]
    spliced = splice.Splice(len(old), cuts)
    assert spliced.of(arrays.integers(old), arrays.integers(new)).tolist() == expected
    assert spliced.listed(old, new) == tuple(expected)
    positions = spliced.positions()
    stays = {now: old[was] for was, now in enumerate(positions[0].tolist()) if now >= 0}
    comes = dict(zip(positions[1].tolist(), new, strict=True))
    assert [({**stays, **comes})[place] for place in range(len(expected))] == expected


def test_many_trees_at_once_are_as_read_anew() -> None:
    before = lab()
    old = fleet_io.read(before)
    other = changed(before, "traits", lambda rows: rows.clear())
    other = changed(other, "inventories", lambda rows: rows[0].__setitem__(8, 99))
    for hosts in (["host0", "host2"], ["host1"], ["host0", "host1", "host2"]):
        some = fleet_io.read(_of_providers(other, frozenset(_ids(other, hosts))))
        after = with_trees(old, some, [old.hosts.index(host) for host in hosts])
        gone = with_trees(after, some, [after.hosts.index(host) for host in hosts])
        assert shown(after) == shown(gone)
        assert (
            shown(with_trees(after, old, [0, 1, 2])) == shown(old) == shown(fleet_io.read(before))
        )


def _ids(columns: Columns, hosts: list[str]) -> list[int]:
    """Return the numbers of the providers of some trees."""
    given = columns.providers
    name = dict(zip(given.provider_id, given.name, strict=True))
    pairs = zip(given.provider_id, given.root_id, strict=True)
    return [number for number, root in pairs if name[root] in hosts]


def test_the_changed_rows_of_a_provider_are_right_and_stay_bounded() -> None:
    """A claim costs what it changes, not the allocations at the same host."""
    with ro.connect("memory://") as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=1000"))
        for number in range(50):
            ledger.claim(f"old-{number}", {"host0": "VCPU=1"})
        ledger.snapshot()
        seen: list[Snapshot] = []
        for number in range(200):
            ledger.claim(f"new-{number}", {"host0": "VCPU=1"})
            if number % 2:
                ledger.release(f"new-{number}")
            seen.append(ledger.snapshot())
        for number, snapshot in enumerate(seen):
            assert _rows_of_host(snapshot) <= 50 + 200 // 2 + 70
            held = snapshot._fleet.holders([0])
            assert len(held) == 51 + number // 2
            assert ("new-0", 1) in held and ("new-1", 1) not in held


def _rows_of_host(snapshot: Snapshot) -> int:
    """Return the number of stored rows of the only host, with those of removed consumers."""
    changed = snapshot._fleet.allocations._changed.get(0)
    assert changed is not None
    return len(changed._below) + len(changed._above)


def test_a_refresh_looks_at_no_provider_but_those_it_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are copied in pieces; nothing goes through the fleet provider by provider."""
    columns = many(2_000, 1)
    old = fleet_io.read(columns)
    new = fleet_io.read(_of_providers_of(columns, [1_000]))
    calls = 0

    def counted(*_: object) -> None:
        nonlocal calls
        calls += 1

    with_trees(old, new, [1_000])  # what is imported the first time is not counted
    sys.setprofile(counted)
    try:
        with_trees(old, new, [1_000])
    finally:
        sys.setprofile(None)
    assert calls < 2_000


def _of_providers_of(columns: Columns, ids: list[int]) -> Columns:
    never = [0] * len(columns.providers.name)
    given = columns.providers._replace(reported_at=never, adopted_at=never)
    return _of_providers(dataclasses.replace(columns, providers=given), frozenset(ids))
