"""Any input is valid or one clear error, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import DevicePool
from resource_objects.resources.pci import (
    DEVICES,
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
from tests.resources.pci.hosts import PF, VFS, gpu, host, nic, part, physical, used

pytestmark = pytest.mark.law(8)

GPU = "0000:01:00.0"
FORM = "expected DOMAIN:BUS:SLOT.FUNCTION, such as 0000:3b:00.0"


def case(
    error: type[InvalidInput], make: Callable[[], object], text: str, name: str | None = None
) -> Any:
    """Return a case: a constructor that raises ``error`` with ``text``."""
    return pytest.param(error, make, text, id=name)


def at(address: object) -> Callable[[], Device]:
    """Return a constructor of a device at an address."""
    return lambda: Device(address, "10de", "2330")  # type: ignore[arg-type]


def like(**facts: Any) -> Callable[[], Device]:
    """Return a constructor of a plain device with changed fields."""
    return lambda: Device(**{"address": GPU, "vendor_id": "10de", "product_id": "2330", **facts})


ADDRESSES = [
    *(
        case("InvalidAddress", at(said), f"PCI address: got {said!r}, {FORM}", repr(said))
        for said in [
            "",
            "3b:00.0",
            "0000:3b:00",
            "0000:3b:00.",
            "0000:3b:00.00",
            "0000:3b:00.0 ",
            " 0000:3b:00.0",
            "0000:3b:00.0\n",
            "0000-3b-00.0",
            "0000:3b:00:0",
            "0000:3g:00.0",
            "0000:03b:00.0",
            "000000000:3b:00.0",
            "-001:3b:00.0",
            "*:3b:00.0",
            "\u0660000:3b:00.0",
            "pci@0000:3b:00.0",
        ]
    ),
    case(
        "InvalidAddress",
        at("10000:00:02.0"),
        "got '10000:00:02.0', expected a domain of at most ffff (16 bits)",
        "a domain of 32 bits",
    ),
    case("InvalidAddress", at("0000:00:20.0"), "slots to 1f and functions to 7", "slot"),
    case("InvalidAddress", at("0000:00:00.8"), "slots to 1f and functions to 7", "function"),
    case("InvalidField", at(None), "Device.address: got None, expected a PCI address", "nothing"),
    case("InvalidAddress", at(0x3B), f"PCI address: got 59, {FORM}", "a number"),
    case("InvalidAddress", at(b"0000:3b:00.0"), "PCI address: got b'0000:3b:00.0'", "bytes"),
    case("InvalidAddress", like(type="type-VF", parent="3b:00.0"), f"'3b:00.0', {FORM}", "parent"),
    case("InvalidAddress", lambda: DeviceUse("x", "claimed"), f"'x', {FORM}", "usage"),
    case("InvalidAddress", lambda: DeviceSpec(address="*:00.0"), f"'*:00.0', {FORM}", "spec"),
    case("InvalidAddress", lambda: PlacedDevice(0, "x", "PGPU"), f"'x', {FORM}", "placed"),
    case(
        "InvalidAddress", lambda: PlacedDevice(0, PF, "PGPU", parts=["x"]), f"'x', {FORM}", "a part"
    ),
]

BAD_DEVICES = [
    case(
        "InvalidField", like(vendor_id="10d"), "vendor_id: got '10d', expected four hex", "vendor"
    ),
    case("InvalidField", like(vendor_id=0x10DE), "vendor_id: got 4318", "a vendor by number"),
    case("InvalidField", like(product_id="23300"), "product_id: got '23300'", "product"),
    case("InvalidField", like(product_id="*"), "product_id: got '*'", "any product"),
    case(
        "InvalidField",
        like(type="type-XF"),
        "Device.type: got 'type-XF', expected one of type-PCI, type-PF, type-VF, vdpa",
        "an unknown type",
    ),
    case("InvalidField", like(type=None), "Device.type: got None", "no type"),
    case(
        "InvalidDevice",
        like(parent=PF),
        f"parent of {GPU}, type-PCI: got '{PF}', expected none: only a part has a parent",
        "a parent of what is no part",
    ),
    case(
        "InvalidDevice",
        like(type="type-PF", parent=PF),
        f"parent of {GPU}, type-PF: got '{PF}'",
        "a parent of a PF",
    ),
    case(
        "InvalidDevice",
        like(type="type-VF"),
        f"parent of {GPU}, type-VF: got None, expected the physical function",
        "a VF of nothing",
    ),
    case(
        "InvalidDevice",
        like(type="vdpa", parent=GPU),
        f"parent of a device: got '{GPU}', expected another address",
        "its own parent",
    ),
    case(
        "InvalidDevice",
        like(type="type-VF", parent=PF, one_time_use=True),
        f"one_time_use of {GPU}: got 'type-VF', expected type-PCI or type-PF",
        "a VF for one use",
    ),
    case("InvalidField", like(numa_node=-1), "numa_node: got -1", "a node below zero"),
    case("InvalidField", like(numa_node=65536), "numa_node: got 65536", "a node too high"),
    case("InvalidField", like(numa_node=True), "numa_node: got True", "a node that is a truth"),
    case("InvalidField", like(class_code="030"), "class_code: got '030'", "half a digit pair"),
    case("InvalidField", like(class_code="xx"), "class_code: got 'xx'", "no class code"),
    case("InvalidResourceClass", like(resource_class="gpu"), "got 'gpu'", "no class"),
    case("InvalidTrait", like(traits=["fast"]), "trait: got 'fast'", "no trait"),
    case("InvalidField", like(traits="CUSTOM_A"), "traits: got 'CUSTOM_A'", "traits as text"),
    case("InvalidField", like(tags={"a": 1}), "tags: got {'a': 1}", "a tag that is no text"),
    case("InvalidField", like(tags="a"), "tags: got 'a'", "tags as text"),
    case("InvalidName", like(facts={"": "x"}), "name: got ''", "a fact without name"),
    case("InvalidField", like(live_migratable="yes"), "live_migratable: got 'yes'", "yes as text"),
    case("InvalidField", like(remote_managed=None), "remote_managed: got None", "nobody knows who"),
]

USAGE = [
    case("InvalidField", lambda: DeviceUse(PF, "available"), "got 'available'", "nothing is taken"),
    case("InvalidField", lambda: DeviceUse(PF, "unclaimable"), "got 'unclaimable'", "what follows"),
    *(
        case(
            "InvalidDevice",
            lambda state=state: DeviceUse(PF, state, gone=True),  # type: ignore[misc]
            f"state of {PF}: got '{state}', expected claimed or allocated, of a removed device",
            f"gone and {state}",
        )
        for state in ("spent", "unavailable")
    ),
]

SPECS = [
    case("InvalidField", lambda: DeviceSpec(vendor_id="*"), "vendor_id: got '*'", "a glob"),
    case("InvalidField", lambda: DeviceSpec(types=["pf"]), "types: got ['pf']", "unknown type"),
    case("InvalidField", lambda: DeviceSpec(types="type-PF"), "types", "types as text"),
    case(
        "InvalidAmount",
        lambda: DeviceSpec(types=["type-PF", "type-PF"]),
        "types of a device: got ('type-PF', 'type-PF'), expected each once",
        "a type twice",
    ),
    case("InvalidField", lambda: DeviceSpec(tags=["red"]), "tags: got ['red']", "tags as a list"),
    case("UnknownField", lambda: DeviceSpec(colour="red"), "colour: got 'red'", "an unknown word"),
    case(
        "InvalidAmount",
        lambda: DeviceRequest([]),
        "alternatives of a device request: got 0, expected 1 to 256",
        "no alternative",
    ),
    case(
        "InvalidAmount", lambda: DeviceRequest([DeviceSpec()] * 257), "got 257", "too many of them"
    ),
    case("InvalidField", lambda: DeviceRequest(["PGPU"]), "specs", "alternatives as text"),  # type: ignore[list-item]
    case("InvalidField", lambda: DeviceRequest(DeviceSpec()), "specs", "a spec that is no list"),  # type: ignore[arg-type]
    *(
        case(
            "InvalidField",
            lambda count=count: DeviceRequest([DeviceSpec()], count),  # type: ignore[misc]
            f"count: got {count!r}, expected an integer from 1 to 65536",
            f"count {count!r}",
        )
        for count in (0, -1, 65537, True, 1.0, "1", None)
    ),
    case(
        "InvalidField",
        lambda: DeviceRequest([DeviceSpec()], affinity="near"),
        "affinity: got 'near', expected one of legacy, preferred, required, socket",
        "no policy",
    ),
    case(
        "InvalidAmount",
        lambda: DeviceRequest([DeviceSpec(address=PF)], 2),
        "count of a device request: got 2, expected at most 1, the addresses",
        "more than it names",
    ),
    case(
        "InvalidAmount",
        lambda: DeviceRequest([DeviceSpec()], 2, providers=["a"]),
        "providers of a device request: got ('a',), expected one for each of 2",
        "fewer providers than devices",
    ),
    case("InvalidName", lambda: DeviceRequest([DeviceSpec()], alias=" "), "' '", "a blank alias"),
]

AMOUNTS = [
    case(
        "InvalidAmount", lambda: PCIAmount([]), "device requests: got 0, expected 1 to 1024", "none"
    ),
    case("InvalidField", lambda: PCIAmount([DeviceSpec()]), "requests", "specs as requests"),  # type: ignore[list-item]
    *(
        case(
            "InvalidAmount",
            lambda count=count: devices("PGPU", count),  # type: ignore[misc]
            f"count of devices: got {count!r}, expected an integer from 1 to 65536",
            f"{count!r} devices",
        )
        for count in (0, -1, 65537, True, 1.0, "1", None)
    ),
    case("InvalidAmount", lambda: devices([]), "got 0", "no kind"),
    case("InvalidAmount", lambda: devices(None), "kind of devices: got None", "nothing"),  # type: ignore[arg-type]
    case("InvalidAmount", lambda: devices({"PGPU": 1}), "kind of devices: got {", "a mapping"),
    case("InvalidAmount", lambda: devices([3]), "kind of devices: got 3", "a number"),  # type: ignore[list-item]
    case("InvalidResourceClass", lambda: devices("pgpu"), "got 'pgpu'", "no class"),
    *(
        case(
            "InvalidText",
            lambda kind=kind: devices(kind),  # type: ignore[misc]
            f"kind of devices: got {kind!r}, expected VENDOR:PRODUCT in hexadecimal digits",
            f"kind {kind!r}",
        )
        for kind in ("10de:23300", "10de:", ":", ":2330", "nvidia:*", "10de:2330:00")
    ),
    case(
        "UnknownField", lambda: devices("PGPU", colour="red"), "colour: got 'red'", "unknown word"
    ),
    case(
        InvalidInput,
        lambda: devices("10de:2330", vendor_id="8086"),
        "8086",
        "another vendor beside it",
    ),
    case(
        InvalidInput, lambda: devices("PGPU", resource_class="VGPU"), "VGPU", "another class beside"
    ),
    case(
        "NotAssigned",
        lambda: -devices("PGPU"),
        "assigned ones, to release them",
        "giving back",
    ),
    case(
        "NotAssigned", lambda: devices("PGPU").addresses, "assigned ones, as fit() returns", "where"
    ),
    case("NotAssigned", lambda: devices("PGPU").of(0), "assigned ones", "where, by request"),
    case(
        "NotAssigned",
        lambda: PCIAmount(devices("PGPU").requests, gives_back=True),
        "assigned ones, to release them",
        "gives back what is nowhere",
    ),
]

ASSIGNED = host(nic(2), gpu()).fit(devices("8086:1572", types=["type-PF"]))
TWO = devices("PGPU") + devices("VGPU")

PLACED = [
    case(
        "InvalidAmount",
        lambda: TWO.replace(placed=[PlacedDevice(0, GPU, "PGPU")]),
        "devices by request: got {0: 1}, expected as requested: {0: 1, 1: 1}",
        "a request without devices",
    ),
    case(
        "InvalidAmount",
        lambda: devices("PGPU").replace(placed=[PlacedDevice(1, GPU, "PGPU")]),
        "devices by request: got {1: 1}",
        "a device of no request",
    ),
    case(
        "InvalidAmount",
        lambda: TWO.replace(placed=[PlacedDevice(0, GPU, "PGPU"), PlacedDevice(1, GPU, "VGPU")]),
        f"devices: got ['{GPU}'], expected each once",
        "a device for two requests",
    ),
    case(
        "InvalidAmount",
        lambda: TWO.replace(
            placed=[PlacedDevice(0, PF, "PGPU", parts=VFS), PlacedDevice(1, VFS[1], "VGPU")]
        ),
        f"devices: got ['{VFS[1]}'], expected each once",
        "a PF and a part of it",
    ),
    case(
        "InvalidAmount",
        lambda: devices("PGPU").replace(placed=[PlacedDevice(0, PF, "PGPU", parts=[PF])]),
        f"devices: got ['{PF}'], expected each once",
        "a part of itself",
    ),
    case("InvalidField", lambda: PlacedDevice(-1, GPU, "PGPU"), "request: got -1", "request"),
    case(
        "InvalidResourceClass",
        lambda: PlacedDevice(0, GPU, "gpu"),
        "got 'gpu'",
        "class of a device",
    ),
    case(InvalidInput, lambda: ASSIGNED.of("nobody"), "request: got 'nobody', expected the", "who"),
    case(
        "InvalidAmount",
        lambda: devices("PGPU") + ASSIGNED,
        "expected amounts that are not assigned, to add",
        "adding what is assigned",
    ),
]

INVENTORIES = [
    case(
        "DuplicateKey",
        lambda: host(gpu(), gpu(numa_node=1)),
        f"address: got ['{GPU}'], expected each device once",
        "an address twice",
    ),
    case(
        "DuplicateKey",
        lambda: host(gpu(), usage=[DeviceUse(GPU, "claimed"), DeviceUse(GPU, "allocated")]),
        f"address of a device in use: got ['{GPU}'], expected each device once",
        "usage twice",
    ),
    case(
        "InvalidDevice",
        lambda: host(Device(PF, "8086", "1572"), part(0)),
        f"parent of {VFS[0]}, {PF}: got 'type-PCI', expected type-PF",
        "a part of a plain device",
    ),
    case(
        "InvalidDevice",
        lambda: host(physical(), part(0), part(1, parent=VFS[0])),
        f"parent of {VFS[1]}, {VFS[0]}: got 'type-VF', expected type-PF",
        "a part of a part",
    ),
    case(
        "InvalidDevice",
        lambda: host(gpu(), usage=[DeviceUse(PF, "claimed")]),
        f"device in use: got '{PF}', expected one of these",
        "usage of what is not there",
    ),
    *(
        case(
            "InvalidDevice",
            lambda pf=pf, vf=vf: host(nic(2), usage=used(pf=pf, vf1=vf)),  # type: ignore[misc]
            f"allocated functions of {PF}: got '{VFS[1]}', expected one of the two",
            f"a PF that is {pf}, a VF that is {vf}",
        )
        for pf in ("claimed", "allocated")
        for vf in ("claimed", "allocated")
    ),
    case("InvalidField", lambda: PCIInventory(GPU), "devices: got '0000:01:00.0'", "text"),  # type: ignore[arg-type]
    case("InvalidField", lambda: PCIInventory([GPU]), "devices: got ['0000:01:00.0']", "addresses"),  # type: ignore[list-item]
    case("InvalidField", lambda: PCIInventory(None), "devices: got None", "no devices"),  # type: ignore[arg-type]
    case("InvalidField", lambda: host(gpu(), usage=[GPU]), "usage: got", "usage as addresses"),
    case("InvalidField", lambda: DevicePool("10de", "2330", -1), "count: got -1", "below nothing"),
    case("InvalidText", lambda: PCIAmount.parse(""), "PCI devices", "no amount"),
    case(InvalidInput, lambda: PCIAmount.parse("0*PGPU"), "got 0", "no devices, as text"),
    case("InvalidText", lambda: DEVICES.parse_inventory("x"), "Device objects", "no inventory"),
]


@pytest.mark.parametrize(
    ("error", "make", "text"),
    [*ADDRESSES, *BAD_DEVICES, *USAGE, *SPECS, *AMOUNTS, *PLACED, *INVENTORIES],
)
def test_what_cannot_be_is_refused_by_an_error_that_has_a_reason(
    error: type[InvalidInput], make: Callable[[], object], text: str
) -> None:
    with raises_code(error) as refusal:
        make()
    assert text in str(refusal.value)
    assert isinstance(refusal.value, ValueError)


def test_a_vf_whose_pf_is_not_offered_can_be_had() -> None:
    """The PF has another owner: without it the card cannot be allocated whole."""
    inventory = host(part(0), part(1))
    assert inventory.consume(devices("8086:154c", 2)).addresses == VFS[:2]
    with raises_code("InvalidDevice", match=PF):
        inventory.state(PF)
