"""Devices as providers keep them: read back beside what is counted, decided with cells, blamed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers.columns import Columns
from resource_objects.providers.composite import LocatedView, LocatedViews, fit_together
from resource_objects.providers.dry_run import held_in, with_taken, without_consumers
from resource_objects.providers.holders import Blocked, count_units_by_consumer
from resource_objects.providers.orders import Use
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Amount, placed
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.resources.pci import PCIInventory
from resource_objects.resources.records import StoredPart

DEVICES, TOPOLOGY = "DEVICES", "NUMA_TOPOLOGY"
CARD, FUNCTION = "CUSTOM_CARD", "SRIOV_NET_VF"
ONE, PARTS = "0000:01:00.0", tuple(f"0000:01:02.{number}" for number in range(3))


def gpu(bus: int, node: int | None = None) -> ro.Device:
    address = f"0000:{bus:02x}:00.0"
    return ro.Device(address, "10de", "2330", resource_class="PGPU", numa_node=node)


def card() -> list[ro.Device]:
    return [
        ro.Device(ONE, "8086", "1572", "type-PF", resource_class=CARD),
        *(
            ro.Device(part, "8086", "154c", "type-VF", resource_class=FUNCTION, parent=ONE)
            for part in PARTS
        ),
    ]


def lab() -> ro.Ledger:
    """Return a ledger with a host of two cells: a GPU near each, one anywhere, and a card."""
    host = ro.Provider("host0", "VCPU=4,PCPU=4")
    cells = [HostCell(n, dedicated=[2 * n, 2 * n + 1]) for n in (0, 1)]
    host.add_parts(TOPOLOGY, NUMATopologyInventory(cells))
    host.add_parts(DEVICES, PCIInventory([gpu(0x10, 0), gpu(0x20, 1), gpu(0x30), *card()]))
    ledger = ro.connect("memory://")
    ledger.sync(host)
    return ledger


def views_of(columns: Columns) -> dict[str, LocatedView]:
    views = LocatedViews(columns)
    [root] = views.trees(DEVICES)
    return views.of_host(root)


def near(count: int = 1, affinity: str = "required") -> dict[str, Amount]:
    return {
        TOPOLOGY: ro.numa(dedicated=1),
        DEVICES: ro.devices("PGPU", count, affinity=affinity),
    }


# --- decided together ---


@pytest.mark.law(5)
def test_views_are_decided_as_the_inventories_are() -> None:
    ledger = lab()
    found = fit_together(near(2, "legacy"), views_of(ledger.backend.read()))
    expected = ledger.inventories("host0").fit(near(2, "legacy")).as_requested()
    assert found == {name: expected[name] for name in found}


@pytest.mark.parametrize(
    "kind, places, cell, address",
    [(TOPOLOGY, [1], 1, "0000:20:00.0"), (DEVICES, [2, 3], 1, "0000:20:00.0")],
)
def test_parts_of_either_may_be_all_that_is_used(
    kind: str, places: list[int], cell: int, address: str
) -> None:
    found = fit_together(near(), views_of(lab().backend.read()), {kind: places})
    assert found[TOPOLOGY].host_cells == {cell}
    assert getattr(found[DEVICES], "addresses") == (address,)  # noqa: B009  # of the kind


def test_no_way_within_parts_is_refused_and_says_where() -> None:
    with pytest.raises(exceptions.CapacityException) as refused:
        fit_together(near(), views_of(lab().backend.read()), {TOPOLOGY: [0], DEVICES: [2, 3]})
    [reason] = refused.value.reasons
    assert (reason.rule, reason.where, reason.resource) == (Rule.AFFINITY, "host0", "PGPU")


@pytest.mark.law(5)
def test_nothing_changes_by_a_decision() -> None:
    views = views_of(lab().backend.read())
    before = {name: view.inventory.obj_clone() for name, view in views.items()}
    assigned = views[DEVICES].inventory.fit(ro.devices(CARD))
    fit_together(near(), views)
    views[DEVICES].inventory.consume(assigned)
    held = {DEVICES: assigned}
    taken = views[DEVICES].inventory.obj_clone()
    fit_together({TOPOLOGY: ro.numa(dedicated=1)}, views, retained=held)
    assert views[DEVICES].inventory == taken
    assert views[TOPOLOGY].inventory == before[TOPOLOGY]


def test_what_is_held_is_what_is_asked_is_near_to() -> None:
    views = views_of(lab().backend.read())
    cells = views[TOPOLOGY].inventory.consume(ro.numa(dedicated=2))
    asked = {DEVICES: ro.devices("PGPU", affinity="required")}
    [here] = cells.host_cells
    found = fit_together(asked, views, retained={TOPOLOGY: cells})[DEVICES]
    assert getattr(found, "addresses") == (f"0000:{here + 1}0:00.0",)  # noqa: B009
    with pytest.raises(exceptions.CapacityException, match="PGPU requested 2, at most 1 near"):
        fit_together(
            {DEVICES: ro.devices("PGPU", 2, affinity="required")}, views, retained={TOPOLOGY: cells}
        )


def test_a_device_for_one_use_is_held_by_who_asks_for_cells_near_it() -> None:
    once = gpu(0x10, 1).replace(one_time_use=True)
    host = ro.Provider("host0", "PCPU=4")
    cells = [HostCell(n, dedicated=[2 * n, 2 * n + 1]) for n in (0, 1)]
    host.add_parts(TOPOLOGY, NUMATopologyInventory(cells))
    host.add_parts(DEVICES, PCIInventory([once]))
    ledger = ro.connect("memory://")
    ledger.sync(host)
    ledger.claim("job", {"host0": {DEVICES: ro.devices("PGPU", affinity="required")}})
    ledger.adjust("job", {"host0": {TOPOLOGY: ro.numa(dedicated=1)}})
    assert ledger.assigned_amounts("job")["host0"][TOPOLOGY].host_cells == {1}


# --- read back beside what is counted ---


def read(units: Mapping[str, tuple[str, ...]], **used: int) -> PCIInventory:
    """Return the card of a provider of which so much is used, and these units are named."""
    (part,) = PCIInventory(card(), resource_class=DEVICES).parts()
    records = tuple(
        dataclasses.replace(one, used=used.get(one.resource_class, 0))
        for one in part.inventory.to_records()
    )
    share = {CARD: (3 - used.get(FUNCTION, 0)) // 3}
    return ro.DEVICES.inventory_from_parts(
        [StoredPart(records, part.inventory.describe(), units, None, share)]
    )


@pytest.mark.law(1, 4)
@pytest.mark.parametrize(
    "units, used, free",
    [
        ({}, {}, [ONE, *PARTS]),
        ({FUNCTION: PARTS[:1]}, {FUNCTION: 1}, PARTS[1:]),
        ({}, {FUNCTION: 1}, PARTS[:2]),
        ({FUNCTION: PARTS[2:]}, {FUNCTION: 2}, PARTS[:1]),
        ({FUNCTION: PARTS}, {FUNCTION: 3}, []),
        ({CARD: (ONE, *PARTS)}, {CARD: 1, FUNCTION: 3}, []),
        ({}, {CARD: 1, FUNCTION: 3}, []),
        ({}, {FUNCTION: 9}, []),
        ({CARD: PARTS[:1]}, {CARD: 1, FUNCTION: 3}, []),
    ],
    ids=["nothing", "one", "by number", "both", "all", "whole", "whole by number", "over", "odd"],
)
def test_what_is_free_is_never_more_than_the_counts_leave(
    units: dict[str, tuple[str, ...]], used: dict[str, int], free: list[str]
) -> None:
    inventory = read(units, **used)
    assert [one for one, state in inventory.states().items() if state == "available"] == [*free]


def test_a_device_is_taken_of_whichever_part_it_was_taken() -> None:
    """Firmware may call it otherwise: who has it has it."""
    first, second = PCIInventory([gpu(1), gpu(2)], resource_class=DEVICES).parts()
    kept = [
        StoredPart(first.inventory.to_records(), first.inventory.describe(), {}),
        StoredPart(
            second.inventory.to_records(),
            second.inventory.describe(),
            {"PGPU": ("0000:01:00.0",)},
        ),
    ]
    assert ro.DEVICES.inventory_from_parts(kept).state("0000:01:00.0") == "allocated"


def test_something_else_uses_up_a_device() -> None:
    (part,) = PCIInventory([gpu(1)], resource_class=DEVICES).parts()
    records, body = part.inventory.to_records(), part.inventory.describe()
    for left, state in ((0, "unavailable"), (1, "available")):
        kept = StoredPart(records, body, {}, None, {"PGPU": left})
        assert ro.DEVICES.inventory_from_parts([kept]).state("0000:01:00.0") == state


# --- supposed ---


@pytest.mark.law(5)
def test_devices_are_supposed_to_be_taken_or_not() -> None:
    ledger = lab()
    ledger.claim("job", {"host0": {DEVICES: ro.devices(CARD)}})
    columns = ledger.backend.read()
    [held] = held_in(columns, "job")
    assert held.units == (ONE, *PARTS)
    free = without_consumers(columns, "job")
    assert _states(free) == {}
    again = with_taken(free, [Use(*held.key, held.amount, held.units)])
    assert _states(again) == _states(columns) != {}


def _states(columns: Columns) -> dict[str, str]:
    inventory = views_of(columns)[DEVICES].inventory
    assert isinstance(inventory, PCIInventory)
    return {one: state for one, state in inventory.states().items() if state != "available"}


# --- who has them ---


def test_who_has_units_and_who_did_not_say_which() -> None:
    ledger = lab()
    ledger.claim("named", {"host0": {DEVICES: ro.devices(FUNCTION)}})
    ledger.claim("counted", {f"host0/{ONE}": {FUNCTION: 2}})
    columns = ledger.backend.read()
    number = dict(zip(columns.providers.name, columns.providers.provider_id, strict=True))
    where = number[f"host0/{ONE}"]

    def told(blocked: Blocked) -> dict[str, int]:
        rows = [zip(*table, strict=True) for table in (columns.units, columns.allocations)]
        return count_units_by_consumer(blocked, *rows, lambda place, name: 1)

    assert told({where: {one: {one} for one in PARTS}}) == {"named": 1, "counted": 2}
    assert told({where: {PARTS[0]: {PARTS[0]}}}) == {"named": 1}
    assert told({where: {ONE: {*PARTS}}}) == {"named": 1, "counted": 1}  # of the one card
    free = {number["host0/0000:10:00.0"]: {"0000:10:00.0": {"0000:10:00.0"}}}
    assert told(free) == {}


@pytest.mark.parametrize(
    "asked, rule, expected",
    [
        (ro.devices(FUNCTION), Rule.CAPACITY, {*PARTS}),
        (ro.devices(CARD), Rule.CAPACITY, {ONE}),
        (ro.devices("PGPU"), Rule.CAPACITY, set()),
        (ro.devices(FUNCTION), Rule.NO_INVENTORY, set()),
        (ro.devices("8086:154c") + ro.devices(CARD), Rule.AT_ONCE, {ONE, *PARTS}),
    ],
    ids=["functions", "the card", "a GPU", "none there", "at once"],
)
def test_which_devices_are_in_the_way(asked: Any, rule: Rule, expected: set[str]) -> None:
    inventory = PCIInventory([*card(), gpu(0x40)], resource_class=DEVICES)
    inventory.consume(ro.devices(CARD))
    name = DEVICES if rule is Rule.AT_ONCE else next(iter(asked.placed_counts))
    found = inventory.blocking_units(asked, Reason(rule, 1, 0, 0, name))
    assert _in_the_way(found) == expected


def test_what_another_request_of_the_same_amount_needs_is_not_in_the_way() -> None:
    """Functions are lacking; that the GPU is taken too is a reason of its own."""
    inventory = PCIInventory([*card(), gpu(0x40)], resource_class=DEVICES)
    inventory.consume(ro.devices(CARD) + ro.devices("PGPU"))
    asked = ro.devices(FUNCTION) + ro.devices("PGPU")
    for name, expected in [(FUNCTION, {*PARTS}), ("PGPU", {"0000:40:00.0"})]:
        found = inventory.blocking_units(asked, Reason(Rule.CAPACITY, 1, 0, 0, name))
        assert _in_the_way(found) == expected


def _in_the_way(found: Any) -> set[str]:
    return {unit for needed in found.values() for taken in needed.values() for unit in taken}


def test_a_card_is_one_device_however_many_functions_of_it_somebody_has() -> None:
    ledger = lab()
    ledger.claim("two", {"host0": {DEVICES: ro.devices(FUNCTION, 2)}})
    any_card = {"host0": {DEVICES: ro.devices("8086:1572", types=["type-PF"])}}
    reason = _refused(lambda: ledger.claim("one", any_card))
    assert (reason.requested, reason.bound, reason.used) == (1, 1, 1)
    assert reason.holders == (("two", 1),)
    request = ro.Request({DEVICES: ro.devices("8086:1572", types=["type-PF"])})
    [told] = ledger.snapshot().candidates(request).explain().reasons
    assert told == reason


def _refused(act: Callable[[], object]) -> Reason:
    with pytest.raises(exceptions.CapacityException) as refused:
        act()
    [reason] = refused.value.reasons
    return reason


# --- units ---


def test_how_many_of_a_class_some_units_are() -> None:
    inventory = PCIInventory([*card(), gpu(0x40)])
    assert inventory.unit_count(CARD, (ONE, *PARTS)) == 1
    assert inventory.unit_count(FUNCTION, PARTS[:2]) == 2
    assert inventory.dependent_units(CARD) == {ONE: frozenset(PARTS)}
    assert inventory.dependent_units(FUNCTION) == inventory.dependent_units("PGPU") == {}
    assert placed.unit_count(ro.IntegerInventory(4), "VCPU", ("a", "b")) == 2
    assert placed.dependent_units(ro.IntegerInventory(4), "VCPU") == {}


def test_some_units_that_are_free() -> None:
    inventory = PCIInventory([*card(), gpu(0x40)])
    assert inventory.select_units(0, FUNCTION, 2) == PARTS[:2]
    assert inventory.select_units(0, FUNCTION, 2, taken=PARTS[:1]) == PARTS[1:]
    assert inventory.select_units(0, FUNCTION, 4) is None
    assert inventory.select_units(0, CARD, 1) == (ONE, *PARTS)
    assert inventory.select_units(0, CARD, 1, taken=PARTS[2:]) is None
    assert inventory.select_units(1, "PGPU", 1) == ("0000:40:00.0",)
    inventory.consume(ro.devices(FUNCTION))
    assert inventory.select_units(0, CARD, 1) is None
    assert inventory.select_units(0, FUNCTION, 1) == (PARTS[1],)
