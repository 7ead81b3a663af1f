"""Any question to an inventory of devices has an answer or an error; nothing changes."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.exceptions import (
    CapacityException,
    ForeignAmount,
    InvalidInput,
)
from resource_objects.interop.nova.pci_devices import DevicePool, device_pools
from resource_objects.resources import IntegerAmount, Inventories
from resource_objects.resources.context import ChosenCells, Context
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    DeviceUse,
    PCIAmount,
    PCIInventory,
    PlacedDevice,
    devices,
)
from resource_objects.testing.refusals import raises_code
from tests.resources.pci.hosts import PF, VFS, cells, gpu, host, nic, on_cells, part, physical, used

pytestmark = pytest.mark.law(8)

GPU = "0000:01:00.0"
FORM = "expected DOMAIN:BUS:SLOT.FUNCTION, such as 0000:3b:00.0"
#: A PF with two VFs, where :data:`HOST` has three.
ASSIGNED = host(nic(2)).fit(devices("8086:1572", types=["type-PF"]))

HOST = host(nic(3), gpu(numa_node=0), usage=used(vf2="allocated"))


def ask_by(method: str, *args: Any, **how: Any) -> Callable[[PCIInventory], object]:
    """Return a function that asks an inventory in one of its ways."""
    return lambda inventory: getattr(inventory, method)(*args, **how)


def unchanged(
    error: type[Exception] | tuple[type[Exception], ...],
    text: str,
    ask: Callable[[PCIInventory], object],
) -> None:
    """Check that a question raises an error with its cause, and that nothing changed."""
    request = copy.deepcopy(HOST)
    with raises_code(error) as refusal:
        ask(request)
    assert text in str(refusal.value)
    assert request == HOST and request.states() == HOST.states()
    assert device_pools(request) == device_pools(HOST)


ANY_VF = devices("8086:154c")


@pytest.mark.parametrize("other", [IntegerAmount(1), 1, None, "PGPU", {"PGPU": 1}], ids=repr)
def test_an_amount_of_another_kind_is_refused(other: Any) -> None:
    for method in ("fit", "consume", "can_provide"):
        unchanged("WrongAmountKind", "a PCIAmount", ask_by(method, other))


@pytest.mark.parametrize("limit", [IntegerAmount(1), 1, devices("PGPU")], ids=repr)
def test_devices_have_no_limit(limit: Any) -> None:
    for method in ("fit", "consume", "can_provide"):
        unchanged("WrongAmountKind", "devices have no limit", ask_by(method, ANY_VF, limit))


def test_inventories_of_several_resources_refuse_another_kind_at_the_door() -> None:
    with raises_code("WrongAmountKind"):
        Inventories({"DEVICES": HOST}).fit({"DEVICES": IntegerAmount(1)})
    with pytest.raises(InvalidInput):
        Inventories({"PGPU": HOST})
    with pytest.raises(InvalidInput):
        Inventories({"PCI_DEVICE": HOST})  # the plain count


@pytest.mark.parametrize(
    ("make", "text"),
    [
        pytest.param(lambda: Context(allowed=3), "allowed: got 3", id="a number"),  # type: ignore[arg-type]
        pytest.param(lambda: Context(allowed=VFS[0]), "allowed: got", id="text"),  # type: ignore[arg-type]
        pytest.param(lambda: Context(allowed={0: 1}), "allowed: got", id="a mapping"),
        pytest.param(lambda: Context(allowed=["0"]), "allowed: got", id="names"),  # type: ignore[list-item]
        pytest.param(lambda: ChosenCells(3, [0]), "cells: got 3", id="cells a number"),  # type: ignore[arg-type]
        pytest.param(lambda: ChosenCells(cells(2), 3), "chosen: got 3", id="chosen a number"),  # type: ignore[arg-type]
        pytest.param(lambda: ChosenCells(cells(2), "0"), "chosen: got '0'", id="chosen text"),  # type: ignore[arg-type]
    ],
)
def test_where_another_consumer_is_has_to_be_specified_so_that_it_has_a_meaning(
    make: Callable[[], object], text: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(text)):
        make()


GPU_HERE = PlacedDevice(0, GPU, "PGPU", numa_node=0)
ONE_GPU = devices("PGPU", affinity="required")


@pytest.mark.parametrize(
    ("foreign", "text"),
    [
        pytest.param(
            host(gpu(4)).fit(devices("PGPU")),
            "device: got '0000:05:00.0', expected one of these devices",
            id="a device that is not here",
        ),
        pytest.param(
            ONE_GPU.replace(placed=[GPU_HERE.replace(resource_class="VGPU")]),
            f"device {GPU}: got 'VGPU', expected PGPU",
            id="another class",
        ),
        pytest.param(
            ONE_GPU.replace(placed=[GPU_HERE.replace(numa_node=1)]), GPU, id="another node"
        ),
        pytest.param(
            devices("VGPU").replace(placed=[GPU_HERE]), GPU, id="not what the request asks for"
        ),
        pytest.param(
            ASSIGNED,
            f"functions split off {PF}: got ('{VFS[0]}', '{VFS[1]}'), expected ('{VFS[0]}', ",
            id="fewer parts",
        ),
        pytest.param(
            ONE_GPU.replace(placed=[GPU_HERE.replace(parts=[VFS[0]])]),
            f"functions split off {GPU}",
            id="parts of what has none",
        ),
    ],
)
def test_an_assigned_amount_of_another_host_is_foreign(foreign: PCIAmount, text: str) -> None:
    """For allocations and releases, with and without chosen cells."""
    for method in ("fit", "consume"):
        unchanged(ForeignAmount, text, ask_by(method, foreign))
        unchanged(
            ForeignAmount,
            text,
            ask_by(method, foreign, context=on_cells(cells(2), [1])),
        )
    unchanged((ForeignAmount, CapacityException), "", lambda it: it.consume(-foreign))


def test_what_is_released_is_what_was_taken() -> None:
    """The device is allocated; but the released amount is not the allocated one."""
    inventory = host(gpu())
    taken = inventory.consume(devices("PGPU"))
    before = copy.deepcopy(inventory)
    for other in (taken.placed[0].replace(resource_class="VGPU"), PlacedDevice(0, PF, "PGPU")):
        with pytest.raises(ForeignAmount, match=other.address):
            inventory.consume(-taken.replace(placed=[other]))
        assert inventory == before


def test_a_pf_is_released_whatever_became_of_its_vfs() -> None:
    """The consumer of a PF may change its VFs: the release restores the present ones."""
    inventory = host(nic(3))
    taken = inventory.consume(devices("8086:1572", types=["type-PF"]))
    inventory.update(devices=(physical(), part(1), part(2)))
    inventory.consume(-taken)
    assert inventory == host(physical(), part(1), part(2))


def test_an_amount_released_is_not_requested() -> None:
    mine = HOST.fit(ANY_VF)
    unchanged("NegativeAmount", "release by consume", lambda it: it.can_provide(-mine))
    unchanged(CapacityException, "releases", lambda it: it.consume(-mine))
    unchanged(CapacityException, "releases", lambda it: it.fit(-mine))


def test_what_is_not_assigned_is_not_released() -> None:
    unchanged("NotAssigned", "assigned ones", lambda it: it.consume(-ANY_VF))
    unchanged("NotAssigned", "", lambda it: it.to_allocations(ANY_VF))


def test_releasing_devices_of_which_one_is_not_allocated_releases_none() -> None:
    inventory = host(nic(3))
    taken = inventory.consume(devices("8086:154c", 2))
    other = host(nic(3), usage=used(vf0="claimed")).fit(devices("8086:154c", 2))
    assert set(taken.addresses) & set(other.addresses)
    before = copy.deepcopy(inventory)
    with pytest.raises(CapacityException, match="releases 1, only 0 used") as refusal:
        inventory.consume(-other)
    assert [reason.unit for reason in refusal.value.reasons] == [VFS[2]]
    assert inventory == before


@pytest.mark.parametrize("method", ["state", "device"])
@pytest.mark.parametrize(
    ("address", "error", "text"),
    [
        pytest.param("x", "InvalidAddress", f"got 'x', {FORM}", id="no address"),
        pytest.param(None, InvalidInput, "got None", id="nothing"),
        pytest.param("0000:05:00.0", "InvalidDevice", "0000:05:00.0", id="no device"),
    ],
)
def test_a_device_that_is_not_there_is_named(
    method: str, address: Any, error: type[Exception] | str, text: str
) -> None:
    unchanged(error, text, ask_by(method, address))


def test_addresses_are_requested_in_any_form() -> None:
    assert HOST.state("0:3B:0.0") == "unavailable"
    assert HOST.device("0:1:0.0") == gpu(numa_node=0)


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        pytest.param({"devices": [gpu()]}, "InvalidDevice", VFS[2], id="without what is taken"),
        pytest.param({"devices": [gpu(), gpu()]}, "DuplicateKey", GPU, id="a device twice"),
        pytest.param({"usage": used(pf="claimed", vf0="claimed")}, "InvalidDevice", PF, id="both"),
    ],
)
def test_an_update_that_contradicts_itself_changes_nothing(
    values: dict[str, Any], error: type[Exception] | str, text: str
) -> None:
    unchanged(error, text, lambda it: it.update(**values))


# --- anything at all ------------------------------------------------------------------------------


def endless() -> Iterator[Any]:
    """Yield more devices than any machine has, for an input without end."""
    yield from itertools.repeat(GPU, 200_000)
    raise AssertionError("it would be gone through for ever")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Device(GPU, "10de", "2330", traits=endless()),
        lambda: DeviceSpec(types=endless()),
        lambda: DeviceRequest(endless()),
        lambda: DeviceRequest([DeviceSpec()], providers=endless()),
        lambda: PlacedDevice(0, GPU, "PGPU", parts=endless()),
        lambda: PCIAmount(endless()),
        lambda: ANY_VF.replace(placed=endless()),
        lambda: devices(endless()),
        lambda: PCIInventory(endless()),
        lambda: PCIInventory([gpu()], usage=endless()),
        lambda: HOST.rediscover(endless()),
        lambda: Context(allowed=endless()),  # type: ignore[arg-type]
    ],
    ids=[
        "traits of a device",
        "types",
        "alternatives",
        "providers",
        "parts",
        "requests",
        "placed",
        "kinds",
        "devices",
        "usage",
        "a look",
        "within",
    ],
)
def test_what_never_ends_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput):
        make()


#: Values of every type, and those that are nearly right; input without end has its own test.
anything: st.SearchStrategy[Any] = st.one_of(
    st.from_type(type)
    .flatmap(st.from_type)
    .filter(lambda value: not isinstance(value, itertools.count | itertools.repeat)),
    st.sampled_from([None, True, 0, -1, 1.0, "0", GPU, [GPU], [[0]], {0: 1}, {"a": "b"}, 2**63]),
    st.sampled_from([gpu(), ASSIGNED, HOST, DeviceUse(PF, "claimed"), DeviceSpec(), ANY_VF]),
)


@pytest.mark.parametrize(
    ("kind", "first", "names"),
    [
        (Device, [GPU, "10de", "2330"], ["type", "parent", "numa_node", "tags", "traits", "facts"]),
        (DeviceUse, [GPU], ["state", "gone"]),
        (DeviceSpec, [], ["vendor_id", "types", "address", "tags", "traits", "live_migratable"]),
        (DeviceRequest, [[DeviceSpec()]], ["count", "affinity", "requester", "providers"]),
        (PlacedDevice, [0, GPU, "PGPU"], ["numa_node", "parts"]),
        (PCIAmount, [ANY_VF.requests], ["placed", "gives_back"]),
        (PCIInventory, [[gpu()]], ["usage", "resource_class"]),
        (PCIInventory, [], ["devices"]),
        (DevicePool, ["10de", "2330"], ["count", "type", "address", "numa_node", "tags"]),
        (devices, ["PGPU"], ["count", "affinity", "requester", "traits", "tags", "types"]),
        (devices, [], ["kind"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@given(data=st.data())
def test_anything_else_makes_a_valid_object_or_a_clear_error(
    kind: Callable[..., Any], first: list[Any], names: list[str], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    must = {DeviceUse: {"state"}, DevicePool: {"count"}}.get(kind, set())  # type: ignore[call-overload]
    must = must or ({"kind"} if names == ["kind"] else set())
    given_values = {name: data.draw(anything) for name in sorted({*chosen, *must})}
    try:
        created = kind(*first, **given_values)
    except exceptions.InvalidInput as error:
        assert error.what and error.expected
    else:
        assert type(created).obj_from_primitive(created.obj_to_primitive()) == created


@given(anything, anything, anything | st.just(cells(2)))
def test_anything_else_is_requested_in_vain_or_answered(
    within: Any, chosen: Any, existing: Any
) -> None:
    request = copy.deepcopy(HOST)
    for method in (request.fit, request.consume):
        try:
            context = Context(allowed=within, chosen=ChosenCells(existing, chosen))
            result = method(ONE_GPU, context=context)
        except (InvalidInput, CapacityException) as error:
            assert str(error) and request == HOST
        else:
            assert result.addresses == (GPU,)


@given(anything)
def test_a_look_at_anything_else_changes_nothing(now: object) -> None:
    request = copy.deepcopy(HOST)
    try:
        request.rediscover(now)  # type: ignore[arg-type]
    except InvalidInput as error:
        assert str(error) and request == HOST
    else:
        assert list(now) in ([], [gpu()])  # type: ignore[call-overload]
