"""A view that was made of the one before it is the view that is made of the rows (law 5)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers.columns import Columns
from resource_objects.providers.composite import LocatedViews, ShapeCache, fit_together
from resource_objects.providers.tree_shape import NO_EXCLUSIONS, Exclusions, TreeShape
from resource_objects.resources import Amount, resource
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, placement
from resource_objects.resources.numa.cells import CellState
from resource_objects.resources.pci import DeviceUse, PCIInventory
from resource_objects.resources.placed import PlacedInventory
from resource_objects.resources.records import StoredPart
from tests.ledger.device_hosts import CARD, DEVICES, FUNCTION, TOPOLOGY, card, gpu, host_of

#: What is asked of the views, alone and together.
ASKED: list[dict[str, Amount]] = [
    {TOPOLOGY: ro.numa(dedicated=2, memory_mb=16)},
    {TOPOLOGY: ro.numa(cells=2, dedicated=4)},
    {DEVICES: ro.devices("PGPU", 2)},
    {DEVICES: ro.devices(FUNCTION, 2)},
    {DEVICES: ro.devices(CARD)},
    {TOPOLOGY: ro.numa(dedicated=1), DEVICES: ro.devices("PGPU", affinity="required")},
]
#: What a consumer holds by count, or by unit, of providers of parts and of the host.
COUNTED: list[dict[str, str]] = [
    {"host0": "PCPU=1"},
    {"host0": "DISK_GB=5"},
    {"host0/numa1": "MEMORY_MB=8"},
    {"host0/0000:50:00.0": f"{FUNCTION}=1"},
    {"host0/0000:50:00.0": f"{CARD}=1"},
    {"host0/0000:10:00.0": "PGPU=1"},
]
NAMED = [
    ("host0/numa0", "PCPU", "cpu1"),
    ("host0/0000:50:00.0", FUNCTION, "0000:50:02.1"),
    ("host0/0000:20:00.0", "PGPU", "0000:20:00.0"),
]
MEMORY = st.sampled_from([64, 96])


def lab(
    memory: int = 64, traits: Iterable[str] = (), more: Iterable[ro.Device] = ()
) -> ro.Provider:
    devices = [gpu(0x10, 0, traits=traits), gpu(0x20, 1), gpu(0x30, 1), *card(0x50, node=1), *more]
    host = host_of(devices, cells=2)
    host.inventories["DISK_GB"].update(total=100 + memory)
    return host


def named(provider: str, kind: str, unit: str) -> list[ro.Allocation]:
    return [ro.Allocation(provider=provider, resource_class=kind, amount=1, units=(unit,))]


def answer(views: LocatedViews, root: int, asked: dict[str, Amount]) -> Any:
    """Return what is decided, or why it is refused."""
    over = views.of_host(root)
    try:
        found = fit_together(asked, over)
    except exceptions.CapacityException as refusal:
        return refusal.reasons
    return {name: (amount, over[name].deltas(amount)) for name, amount in found.items()}


def told(views: LocatedViews, root: int) -> dict[str, Any]:
    """Return all that the views say."""
    found: dict[str, Any] = {}
    for kind, view in views.of_host(root).items():
        inventory: Any = view.inventory
        own = inventory.states() if isinstance(inventory, PCIInventory) else inventory.room
        shelf = inventory._index.free if isinstance(inventory, PCIInventory) else ()
        found[kind] = (
            (view.host, view.parts, view.shape.classes),
            (view.shape.positions, view.shape.generations),
            inventory._key(),
            inventory.in_use(),
            dict(own),
            [tuple(free) for free in shelf],
        )
    return found


def check_same(kept: ShapeCache, columns: Columns) -> None:
    """Check views of the cache against fresh ones, and apply amounts to the returned copies."""
    [root] = {*columns.providers.root_id}
    first, fresh = kept.views(columns), LocatedViews(columns)
    assert told(first, root) == told(fresh, root)
    for kind in first.kinds():
        shape, other = (views.shape.resource_parts(root, kind) for views in (first, fresh))
        parts = other.all_parts(fresh._usage, NO_EXCLUSIONS)
        assert shape.cached is not None and list(shape.cached[1]) == parts
    for asked in ASKED:
        views = kept.views(columns)
        found = answer(views, root, asked)
        assert found == answer(LocatedViews(columns), root, asked)
        over = views.of_host(root)
        for name, amount in found.items() if isinstance(found, dict) else ():
            over[name].inventory.apply(amount[0])


OPERATIONS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(ASKED)),
    st.tuples(st.just("count"), st.sampled_from(COUNTED)),
    st.tuples(st.just("name"), st.sampled_from(NAMED)),
    st.tuples(st.just("release"), st.integers(0, 9)),
    st.tuples(st.just("sync"), st.tuples(MEMORY, st.booleans(), st.booleans())),
)


@pytest.mark.law(5)
@given(st.lists(OPERATIONS, max_size=12))
def test_a_kept_view_decides_just_like_a_fresh_one(operations: list[tuple[str, Any]]) -> None:
    kept = ShapeCache()
    with ro.connect("memory://") as ledger:
        ledger.sync(lab())
        check_same(kept, ledger.backend.read("host0"))
        for number, (what, said) in enumerate(operations):
            with contextlib.suppress(exceptions.ResourceObjectsError):
                if what in ("ask", "count"):
                    ledger.claim(f"c{number}", {"host0": said} if what == "ask" else said)
                elif what == "name":
                    ledger.claim(f"c{number}", named(*said))
                elif what == "release":
                    ledger.release(f"c{said}")
                else:
                    memory, has_trait, has_more = said
                    traits = ["CUSTOM_FAST"] if has_trait else []
                    ledger.sync(lab(memory, traits, [gpu(0x40, 0)] if has_more else []))
            check_same(kept, ledger.backend.read("host0"))


# --- what a kind makes of parts ---


CELLS = NUMATopologyInventory(
    [HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=64) for n in (0, 1)]
)
MADE = PCIInventory([gpu(0x10, 0), gpu(0x20, 1), *card(0x50, node=1)])


@st.composite
def uses(draw: st.DrawFn, located: Any, names: Sequence[str]) -> list[StoredPart]:
    """Return the parts of an inventory, any units of the tree counted at any of them.

    That is how it is when devices or CPUs become those of another part while they are held.
    """
    found: list[StoredPart] = []
    for part in located.parts():
        records = part.inventory.to_records()
        used = [one.using(draw(st.integers(0, one.capacity))) for one in records]
        units = {
            one.resource_class: tuple(
                draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
            )
            for one in records
        }
        traits = None if located is CELLS else part.traits
        found.append(StoredPart(tuple(used), part.inventory.describe(), units, traits))
    return found


@pytest.mark.law(5)
@pytest.mark.parametrize(
    "kind, located, names",
    [
        (TOPOLOGY, CELLS, [f"cpu{n}" for n in range(8)]),
        (DEVICES, MADE, [*MADE.states(), "0000:99:00.0"]),
    ],
)
@given(data=st.data())
def test_a_kind_makes_of_parts_what_it_makes_of_them_anew(
    kind: str, located: Any, names: list[str], data: st.DataObject
) -> None:
    before, after = (data.draw(uses(located, names)) for _ in range(2))
    keep = data.draw(st.sets(st.integers(0, len(before) - 1)))
    parts = [
        was if n in keep else now for n, (was, now) in enumerate(zip(before, after, strict=True))
    ]
    room = data.draw(st.sampled_from([{}, {"PCPU": 3}, {"PCPU": 5, "MEMORY_MB": 7}]))
    made = resource(kind)
    try:
        fresh: Any = made.inventory_from_parts(parts, room)
        first: Any = made.inventory_from_parts(before)
    except exceptions.InvalidInventory:
        assume(False)
    shown = first._key()
    changed = first.with_use(before, parts, room)
    if kind == TOPOLOGY:
        assert changed is not None
    if changed is not None:
        assert changed._key() == fresh._key()
        assert state_of(changed) == state_of(fresh)
        again = changed.with_use(parts, parts, room)
        assert again is not changed and again._key() == fresh._key()
    assert first._key() == shown and state_of(first) == state_of(made.inventory_from_parts(before))


def state_of(inventory: Any) -> Any:
    """Return what decisions read of an inventory."""
    if isinstance(inventory, PCIInventory):
        shelf = inventory._index
        return [tuple(free) for free in shelf.free], shelf.uses
    said = [name for name in CellState.__slots__ if name != "choices"]
    return [tuple(getattr(cell, name) for name in said) for cell in inventory._states]


def test_devices_are_made_of_the_changed_part_where_a_unit_is_one_of_it() -> None:
    """Else the test above would hold for a kind that makes nothing."""
    parts = [
        StoredPart(one.inventory.to_records(), one.inventory.describe(), traits=one.traits)
        for one in MADE.parts()
    ]
    taken = dataclasses.replace(
        parts[0],
        records=(parts[0].records[0].using(1),),
        units={"PGPU": ("0000:10:00.0",)},
    )
    first: Any = resource(DEVICES).inventory_from_parts(parts)
    made = first.with_use(parts, [taken, *parts[1:]], {})
    assert made.states()["0000:10:00.0"] == "allocated" and first.free == made.free + 1
    elsewhere = dataclasses.replace(taken, units={"PGPU": ("0000:20:00.0",)})
    assert first.with_use(parts, [elsewhere, *parts[1:]], {}) is None


def test_devices_that_do_not_go_together_any_more_are_refused_as_they_are_anew() -> None:
    """A part of what cannot be split: as long as that is spent, nobody can have it."""
    whole = gpu(0x10, one_time_use=True)
    part = ro.Device(
        *("0000:10:02.0", "10de", "2331", "type-VF"),
        resource_class=FUNCTION,
        parent=whole.address,
    )
    [one] = PCIInventory([whole, part], usage=[DeviceUse(whole.address, "spent")]).parts()
    figures = one.inventory.to_records()
    spent = StoredPart(figures, one.inventory.describe(), traits=one.traits)
    taken = dataclasses.replace(spent, records=(*figures,), units={"PGPU": (whole.address,)})
    first: Any = resource(DEVICES).inventory_from_parts([spent])
    assert first.with_use([spent], [taken], {}) is None
    with pytest.raises(exceptions.InvalidInventory, match="agree with each other"):
        resource(DEVICES).inventory_from_parts([taken])


# --- what is taken over ---


def test_a_view_shares_what_nothing_else_is_used_of() -> None:
    kept = ShapeCache()
    with ro.connect("memory://") as ledger:
        ledger.sync(lab())
        first = kept.views(ledger.backend.read("host0"))
        ledger.claim("one", {"host0": ASKED[0]})
        after = kept.views(ledger.backend.read("host0"))
    assert first.shape is after.shape
    [root] = first.trees(TOPOLOGY)
    before, now = (views.of_host(root)[TOPOLOGY].inventory for views in (first, after))
    assert isinstance(before, NUMATopologyInventory) and isinstance(now, NUMATopologyInventory)
    assert before.cells is now.cells
    assert [one is other for one, other in zip(before.usage, now.usage, strict=True)] == [
        False,
        True,
    ]


def test_a_kind_that_makes_nothing_of_the_one_before_is_gathered_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NUMATopologyInventory, "with_use", PlacedInventory.with_use)
    kept = ShapeCache()
    with ro.connect("memory://") as ledger:
        ledger.sync(lab())
        for number in range(3):
            columns = ledger.backend.read("host0")
            [root] = {*columns.providers.root_id}
            assert told(kept.views(columns), root) == told(LocatedViews(columns), root)
            ledger.claim(f"c{number}", {"host0": ASKED[0]})
        shape = kept.views(columns).shape
    assert shape.resource_parts(root, TOPOLOGY).cached is None
    assert shape.resource_parts(root, DEVICES).cached is not None


def test_host_cells_remember_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MAX_REMEMBERED", 2)
    parts = [
        StoredPart(one.inventory.to_records(), one.inventory.describe()) for one in CELLS.parts()
    ]
    first: Any = resource(TOPOLOGY).inventory_from_parts(parts)
    kept = first.with_use(parts, parts, {})
    for count in (1, 2, 3, 4, 1):
        asked = ro.numa(dedicated=count)
        assert kept.fit(asked) == CELLS.fit(asked)
        assert all(len(cell.choices) <= 2 for cell in kept._states)


def test_another_definition_is_laid_out_anew() -> None:
    kept = ShapeCache()
    with ro.connect("memory://") as ledger:
        ledger.sync(lab())
        first = kept.views(ledger.backend.read("host0"))
        ledger.sync(lab(traits=["CUSTOM_FAST"]))
        assert kept.views(ledger.backend.read("host0")).shape is not first.shape


@pytest.mark.parametrize(
    "table, column, value",
    [
        ("providers", "generation", 77),
        ("providers", "name", "another"),
        ("inventories", "total", 9),
        ("inventories", "capacity", 9),
        ("traits", "trait", "CUSTOM_OTHER"),
        ("shares", "factor", 2),
        ("kinds", "body", "{}"),
    ],
)
def test_it_is_compared_what_is_said_whatever_the_generation(
    table: str, column: str, value: Any
) -> None:
    """So also a database that was restored, and went on in another way, is not mistaken."""
    with ro.connect("memory://") as ledger:
        ledger.sync(lab(traits=["CUSTOM_FAST"]))
        columns = ledger.backend.read("host0")
    shape = TreeShape(columns)
    rows = getattr(columns, table)
    other = rows._replace(**{column: [value, *getattr(rows, column)[1:]]})
    assert shape.defines(columns)
    assert not shape.defines(dataclasses.replace(columns, **{table: other}))


def test_a_view_of_a_disabled_unit_leaves_the_kept_one_as_it_was() -> None:
    kept = ShapeCache()
    with ro.connect("memory://") as ledger:
        ledger.sync(lab())
        columns = ledger.backend.read("host0")
        [root] = {*columns.providers.root_id}
        [number] = [
            n
            for n, name in zip(columns.providers.provider_id, columns.providers.name, strict=True)
            if name.endswith("10:00.0")
        ]
        disabled = Exclusions({(number, "PGPU"): 1}, {number: ["0000:10:00.0"]})
        whole = kept.views(columns).of_host(root)
        part = kept.views(columns, disabled).of_host(root)
        again = kept.views(columns).of_host(root)
    counts = [
        one[DEVICES].inventory.free  # type: ignore[attr-defined]
        for one in (whole, part, again)
    ]
    assert counts == [counts[0], counts[0] - 1, counts[0]]


def test_so_many_providers_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ShapeCache()
    with ro.connect("memory://") as ledger:
        for number in range(4):
            ledger.sync(host_of([gpu(0x10)], f"host{number}"))
        monkeypatch.setattr(ShapeCache, "MOST", 4)  # two hosts and their devices
        for number in (0, 1, 2, 3, 0):
            kept.views(ledger.backend.read(f"host{number}"))
            uuids = ledger.backend.uuids([f"host{number}"]).values()
            columns = kept.columns(uuids)
            assert columns is not None and len(columns.providers.uuid) == 2
            assert len(kept._shapes) <= 2


def test_what_is_kept_is_the_definition_alone() -> None:
    with ro.connect("memory://") as ledger:
        ledger.sync(lab())
        ledger.claim("one", {"host0": ASKED[0]})
        kept = ShapeCache()
        columns = ledger.backend.read("host0")
        shape = kept.views(columns).shape
        assert not shape.columns.allocations.consumer and not shape.columns.units.unit
        assert shape.defines(columns)
