"""What a sync may say of devices that somebody holds, and what it may not; and what an audit says.

Source of the rules: Nova's ``PciDevTracker``, c.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger.definitions import Definitions
from resource_objects.ledger.feed import snapshot_in_place
from resource_objects.providers.audit import FindingKind
from resource_objects.reasons import Rule
from resource_objects.testing.refusals import raises_code
from tests.ledger.device_hosts import (
    CARD,
    DEVICES,
    FUNCTION,
    card,
    functions,
    gpu,
    host_of,
    raw,
    states,
    taken,
    told,
)

ONE = "0000:01:00.0"
GPU = "0000:3b:00.0"


def claimed(ledger: ro.Ledger) -> ro.Ledger:
    """Return a ledger with a card and a GPU, of which a function and the GPU are held."""
    ledger.sync(host_of([*card(1), gpu(0x3B)]))
    ledger.claim("port", {"host0": {DEVICES: ro.devices(FUNCTION)}})
    ledger.claim("job", {"host0": {DEVICES: ro.devices("PGPU")}})
    return ledger


def by_provider(**devices: list[ro.Device]) -> ro.Provider:
    """Return a host with devices at providers of these names."""
    host = ro.Provider("host0", "VCPU=8,DISK_GB=100")
    for name, own in devices.items():
        host.add(f"host0/{name}", {DEVICES: ro.PCIInventory(own)})
    return host


def kinds(ledger: ro.Ledger) -> list[FindingKind]:
    return [finding.kind for finding in ledger.audit()]


# --- what contradicts itself ---


@pytest.mark.law(8)
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: by_provider(one=[gpu(0x3B)], two=[gpu(0x3B)]),
        lambda: by_provider(card=[*card(1)][:1], parts=[*card(1)][1:]),
        lambda: by_provider(card=[*card(1)][:2], parts=[*card(1)][2:]),
    ],
    ids=["a device twice", "a card without its functions", "some of its functions"],
)
def test_parts_that_contradict_each_other_are_refused(
    ledger: ro.Ledger, wrong: Callable[[], ro.Provider]
) -> None:
    with pytest.raises(exceptions.InvalidTree, match="stored by one provider"):
        ledger.sync(wrong())
    assert list(ledger.trees()) == []


@pytest.mark.law(8)
def test_several_devices_of_one_provider_are_refused() -> None:
    with pytest.raises(exceptions.InvalidInventory, match="devices of one provider"):
        ro.connect("memory://").sync(by_provider(both=[gpu(1), gpu(2)]))


# --- what is held and would go ---


@pytest.mark.law(4)
@pytest.mark.parametrize("how", ["sync", "remove"])
def test_a_provider_whose_device_is_held_stays_and_the_holder_is_named(
    ledger: ro.Ledger, how: str
) -> None:
    claimed(ledger)
    with raises_code("ProviderInUse", match=f"removed: job holds {GPU}$"):
        if how == "sync":
            ledger.sync(host_of(card(1)))
        else:
            ledger.remove(f"host0/{GPU}")
    assert told(ledger, "job").addresses == (GPU,)
    ledger.release("job")
    assert ledger.sync(host_of(card(1))).removed == 1


def test_every_holder_of_a_card_is_named(ledger: ro.Ledger) -> None:
    claimed(ledger)
    ledger.claim("counted", {f"host0/{ONE}": {FUNCTION: 1}})
    said = f"port holds {functions(1)[0]}; counted holds 1 {FUNCTION}|counted .*; port"
    with raises_code("ProviderInUse", match=said):
        ledger.sync(host_of([gpu(0x3B)]))


def test_what_is_no_device_is_in_use_as_ever(ledger: ro.Ledger) -> None:
    host = host_of([gpu(0x3B)])
    host.add("host0/nvme", "CUSTOM_NVME=1")
    ledger.sync(host)
    ledger.claim("job", {"host0/nvme": "CUSTOM_NVME=1"})
    with raises_code("ProviderInUse") as refused:
        ledger.sync(host_of([gpu(0x3B)]))
    said = "host0/nvme has allocations and cannot be removed; used by: job"
    assert str(refused.value) == said


def test_what_nobody_holds_may_go_and_change(ledger: ro.Ledger) -> None:
    claimed(ledger)
    ledger.sync(host_of([*card(1, 2), *card(2), gpu(0x3B, node=1)]))
    assert told(ledger, "job").addresses == (GPU,)
    assert told(ledger, "port").addresses == (functions(1)[0],)
    assert list(ledger.audit()) == []


# --- what is held and would be given out in another way ---


def _gpu_of_another_class() -> ro.Provider:
    return host_of([*card(1), gpu(0x3B, resource_class="CUSTOM_GPU")])


def _function_of_another_class() -> ro.Provider:
    whole, first, *others = card(1)
    return host_of([whole, first.replace(resource_class="CUSTOM_VF"), *others, gpu(0x3B)])


def _gpu_of_another_provider() -> ro.Provider:
    host = by_provider(**{GPU: [gpu(0x5E)], "moved": [gpu(0x3B)]})
    host.add_parts(DEVICES, ro.PCIInventory(card(1)))
    return host


OTHERWISE = {
    _gpu_of_another_class: f"{GPU} of PGPU, allocated to job",
    _function_of_another_class: f"{functions(1)[0]} of {FUNCTION}, allocated to port",
    _gpu_of_another_provider: f"{GPU} of PGPU, allocated to job",
}


@pytest.mark.law(4)
@pytest.mark.parametrize("change", OTHERWISE, ids=lambda change: change.__name__[1:])
def test_what_is_held_is_not_given_out_in_another_way(
    ledger: ro.Ledger, change: Callable[[], ro.Provider]
) -> None:
    claimed(ledger)
    before = states(ledger)
    with raises_code("InventoryInUse", match=OTHERWISE[change]):
        ledger.sync(change())
    assert states(ledger) == before
    ledger.release_all(["job", "port"])
    ledger.sync(change())
    assert list(ledger.audit()) == []


@pytest.mark.law(4)
def test_a_card_that_is_held_keeps_its_functions_where_they_are(ledger: ro.Ledger) -> None:
    ledger.sync(host_of(card(1)))
    ledger.claim("job", {"host0": {DEVICES: ro.devices(CARD)}})
    whole, *parts = card(1)
    plain = [ro.Device(one.address, "8086", "154c", resource_class="CUSTOM_NIC") for one in parts]
    with raises_code("InventoryInUse", match=f"{functions(1)[0]} of {CARD}, allocated to job"):
        ledger.sync(host_of([whole, *plain]))


def test_a_sync_that_adds_devices_does_not_read_who_holds_some(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed(ledger)
    log: list[Any] = []
    read = ledger.backend.read

    def reading(*trees: str, **how: Any) -> Any:
        log.append(how.get("allocations", True))
        return read(*trees, **how)

    monkeypatch.setattr(ledger.backend, "read", reading)
    ledger.sync(host_of([*card(1), *card(2), gpu(0x3B), gpu(0x5E)]))
    ledger.sync(host_of([*card(1), *card(2), gpu(0x3B, node=0), gpu(0x5E)], "host1"))
    assert log == [False, False]
    with raises_code("InventoryInUse"):
        ledger.sync(_gpu_of_another_class())
    assert log == [False, False, False, True]


@pytest.mark.law(4)
def test_a_held_device_that_is_split_takes_its_functions_along(ledger: ro.Ledger) -> None:
    claimed(ledger)
    parts = [
        ro.Device(
            f"0000:3b:01.{number}",
            "10de",
            "2330",
            "type-VF",
            resource_class="CUSTOM_VGPU",
            parent=GPU,
        )
        for number in (0, 1)
    ]
    ledger.sync(host_of([*card(1), gpu(0x3B).replace(type="type-PF"), *parts]))
    assert states(ledger)[parts[0].address] == "unavailable"
    refused = ledger.snapshot().candidates("CUSTOM_VGPU=1")
    assert not refused and "job holds" in str(refused.explain())
    assert list(ledger.audit()) == []
    ledger.release("job")
    ledger.claim("job", ledger.snapshot().candidates("CUSTOM_VGPU=2"))
    assert not ledger.snapshot().candidates("PGPU=1")


# --- functions that come and go while others are held ---


@pytest.mark.law(4, 6)
def test_a_held_function_that_is_gone_is_counted_until_it_is_given_back(
    ledger: ro.Ledger,
) -> None:
    claimed(ledger)
    whole, _, *others = card(1)
    ledger.sync(host_of([whole, *others, gpu(0x3B)]))
    assert kinds(ledger) == [FindingKind.UNIT_GONE]
    assert ledger.snapshot().free(FUNCTION) == 1
    for asked in ("SRIOV_NET_VF=2", {DEVICES: ro.devices(FUNCTION, 2)}):
        assert not ledger.snapshot().candidates(asked)
    (found,) = ledger.snapshot().candidates({DEVICES: ro.devices(FUNCTION)})
    ledger.claim("other", found)
    ledger.release("port")
    assert kinds(ledger) == []
    assert ledger.snapshot().candidates({DEVICES: ro.devices(FUNCTION)})


@pytest.mark.law(4, 6)
def test_a_function_that_is_withheld_is_not_given_out(ledger: ro.Ledger) -> None:
    """c.2: one that is gone while somebody holds it is remembered, and not given to anybody."""
    claimed(ledger)
    inventory: Any = ledger.inventories("host0")[DEVICES]
    inventory.rediscover([d for d in inventory.devices if d.address != functions(1)[0]])
    host = ro.Provider("host0", "VCPU=8,DISK_GB=100")
    host.add_parts(DEVICES, inventory)
    ledger.sync(host)
    assert list(ledger.audit()) == []
    everywhere = ({DEVICES: ro.devices(FUNCTION, 2)}, {FUNCTION: 2})
    for gives_back in (True, False):
        for asked in everywhere:
            (found,) = ledger.snapshot().candidates(asked)
            claim = ledger.claim("new", found)
            assert claim.allocations[0].units == functions(1, 1, 2)
            ledger.release("new")
        assert not ledger.snapshot().candidates({DEVICES: ro.devices(FUNCTION, 3)})
        if gives_back:
            ledger.release("port")
    capacity, removed = ledger.snapshot().candidates({FUNCTION: 3}).explain().reasons
    assert (capacity.rule, capacity.requested, capacity.free) == (Rule.CAPACITY, 3, 2)
    assert (removed.rule, removed.unit) == (Rule.DISABLED, functions(1)[0])


# --- what only an audit finds: written past the door ---


@pytest.fixture
def unguarded(ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch) -> ro.Ledger:
    """A ledger that somebody changed while somebody else took devices: nobody looked."""
    claimed(ledger)
    monkeypatch.setattr(Definitions, "check_allowed", lambda *given: ())
    return ledger


@pytest.mark.law(4, 6)
def test_a_device_that_moved_while_it_was_held_is_still_held(unguarded: ro.Ledger) -> None:
    unguarded.sync(_gpu_of_another_provider())
    assert kinds(unguarded) == []  # a unit may be of another part than it was taken of
    assert states(unguarded)[GPU] == "allocated"
    for asked in ("PGPU=1", {DEVICES: ro.devices("PGPU")}):
        refused = unguarded.snapshot().candidates(asked)
        assert not refused
        assert refused.explain().reasons
    with raises_code("UnitTaken", match="job holds 1"):
        unguarded.claim("other", [raw("host0/moved", "PGPU", GPU)])
    unguarded.release("job")
    assert unguarded.snapshot().candidates("PGPU=2")


def test_a_device_of_another_class_now_is_found(unguarded: ro.Ledger) -> None:
    unguarded.sync(_function_of_another_class())
    assert kinds(unguarded) == [FindingKind.UNIT_ELSEWHERE]
    assert not unguarded.snapshot().candidates("CUSTOM_VF=1")


def test_a_device_that_two_hold_is_found(unguarded: ro.Ledger) -> None:
    unguarded.sync(_gpu_of_another_provider())
    where = unguarded.provider("host0/moved").uuid or ""
    from resource_objects.providers.orders import ConsumerOrder, Operation, Use, Write

    order = ConsumerOrder.claim("other", (Use(where, "PGPU", 1, (GPU,)),))
    unguarded.backend.commit(Write(Operation(), "claim", "other", orders=(order,)))
    assert FindingKind.UNIT_TWICE in kinds(unguarded)


@pytest.mark.parametrize(
    "units, expected",
    [
        ((ONE,), []),
        ((ONE, *functions(1)), []),
        ((functions(1)[0],), [FindingKind.UNIT_ELSEWHERE, FindingKind.UNIT_MISSING]),
        ((ONE, "0000:09:00.0"), [FindingKind.UNIT_GONE, FindingKind.UNIT_MISSING]),
    ],
    ids=["itself", "with its functions", "a function", "another"],
)
def test_which_units_of_a_card_an_audit_expects(
    ledger: ro.Ledger, units: tuple[str, ...], expected: list[FindingKind]
) -> None:
    from resource_objects.providers.orders import ConsumerOrder, Operation, Use, Write

    ledger.sync(host_of(card(1)))
    where = ledger.provider(f"host0/{ONE}").uuid or ""
    order = ConsumerOrder.claim("job", (Use(where, CARD, 1, units),))
    ledger.backend.commit(Write(Operation(), "claim", "job", orders=(order,)))
    assert kinds(ledger) == expected
    assert taken(ledger, "job")[f"host0/{ONE}", CARD][0] == 1


# --- changes in place ---


def _two_cells() -> ro.Provider:
    return host_of([gpu(number, number % 2) for number in (1, 2, 3, 4)], cells=2)


@pytest.mark.parametrize("is_searched", [True, False])
@pytest.mark.parametrize(
    ("host", "before", "held", "after"),
    [
        # the first consumer gets the first devices and CPUs, and is released
        (lambda: host_of([gpu(n) for n in (1, 2, 3)]), "PGPU", "PGPU", "PGPU"),
        (lambda: host_of([gpu(n) for n in (1, 2, 3)]), "PGPU", "2*PGPU", "PGPU"),
        (lambda: host_of([gpu(n) for n in (1, 2, 3)]), "2*PGPU", "PGPU", "2*PGPU"),
        (lambda: host_of([*card(1), *card(2)]), FUNCTION, FUNCTION, FUNCTION),
        (lambda: host_of([*card(1), *card(2)]), FUNCTION, f"2*{FUNCTION}", FUNCTION),
        (lambda: host_of([*card(1), *card(2)]), CARD, CARD, CARD),
    ],
)
def test_a_change_in_place_keeps_its_devices(
    ledger: ro.Ledger,
    host: Callable[[], ro.Provider],
    before: str,
    held: str,
    after: str,
    is_searched: bool,
) -> None:
    ledger.sync(host())
    ledger.claim("first", {"host0": f"{DEVICES}={before}"})
    ledger.claim("job", {"host0": f"VCPU=1,{DEVICES}={held}"})
    ledger.release("first")
    units = _units(ledger)
    request = f"VCPU=2,{DEVICES}={after}"
    found: Any = ledger.snapshot().candidates(request) if is_searched else {"host0": request}
    ledger.replace("job", found)
    assert units <= _units(ledger) or _units(ledger) <= units
    assert ledger.get_claim("job").by_provider()["host0"] == ro.Amounts("VCPU=2")


def _units(ledger: ro.Ledger) -> set[str]:
    return {unit for one in ledger.get_claim("job").allocations for unit in one.units}


@pytest.mark.parametrize("is_searched", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_change_in_place_keeps_its_cell_and_the_device_near_it(
    ledger: ro.Ledger, size: int, is_searched: bool
) -> None:
    ledger.sync(_two_cells())
    ledger.claim("first", {"host0": f"NUMA_TOPOLOGY=1:dedicated=3,{DEVICES}=PGPU"})
    ledger.claim("job", {"host0": f"NUMA_TOPOLOGY=1:dedicated=2,{DEVICES}=PGPU"})
    ledger.release("first")
    places, units = set(ledger.get_claim("job").by_provider()), _units(ledger)
    request = f"DISK_GB=1,NUMA_TOPOLOGY=1:dedicated={size},{DEVICES}=PGPU"
    found: Any = ledger.snapshot().candidates(request) if is_searched else {"host0": request}
    ledger.replace("job", found)
    assert set(ledger.get_claim("job").by_provider()) == places | {"host0"}
    assert units <= _units(ledger) or _units(ledger) <= units


@pytest.mark.parametrize("is_searched", [True, False])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("figures", ["VCPU=2", "VCPU=8:max_unit=2", "PCPU=1", "PCPU=8:max_unit=1"])
def test_on_a_host_that_shrank_a_change_in_place_keeps_its_cell_and_device(
    ledger: ro.Ledger, figures: str, size: int, is_searched: bool
) -> None:
    host = _two_cells()
    ledger.sync(host)
    ledger.claim("first", {"host0": f"NUMA_TOPOLOGY=1:dedicated=3,{DEVICES}=PGPU"})
    ledger.claim("job", {"host0": f"VCPU=4,NUMA_TOPOLOGY=1:dedicated=2,{DEVICES}=PGPU"})
    ledger.release("first")
    places, units = set(ledger.get_claim("job").by_provider()), _units(ledger)
    now = {**dict(host.inventories.by_name()), **dict(ro.Inventories(figures).by_name())}
    host.update(inventories=ro.Inventories(now))
    ledger.sync(host)
    request = f"VCPU=4,DISK_GB=1,NUMA_TOPOLOGY=1:dedicated={size},{DEVICES}=PGPU"
    found: Any = {"host0": request}
    if is_searched:
        found = snapshot_in_place(ledger.backend, "job").candidates(request)
        moved = ledger.snapshot().fork().move("job", found)
        assert {unit for one in moved for unit in one.units} <= units
    ledger.replace("job", found)
    assert set(ledger.get_claim("job").by_provider()) == places
    assert _units(ledger) <= units


def test_functions_are_kept_by_name_when_they_are_counted(ledger: ro.Ledger) -> None:
    ledger.sync(host_of([*card(1), *card(2)]))
    ledger.claim("first", ledger.snapshot().candidates(f"{FUNCTION}=1"))
    ledger.claim("job", ledger.snapshot().candidates(f"VCPU=1,{FUNCTION}=1"))
    ledger.release("first")
    units = _units(ledger)
    for count in (1, 2, 1):
        ledger.replace("job", ledger.snapshot().candidates(f"VCPU=2,{FUNCTION}={count}"))
        assert len(_units(ledger)) == count
        assert count == 1 or units <= _units(ledger)
