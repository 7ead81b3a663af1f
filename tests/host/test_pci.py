"""PCI functions as a machine shows them: SR-IOV, vDPA, interfaces, mediated devices."""

from __future__ import annotations

import dataclasses
import os
import pathlib

import pytest

from resource_objects.exceptions import DiscoveryError, InvalidInput
from resource_objects.host.linux import read_devices, read_machine
from resource_objects.host.machine import (
    DeviceKind,
    Machine,
    MediatedType,
    NetworkInterface,
    PCIDevice,
)
from resource_objects.host.sysfs import Tree

DEVICES = "sys/devices/pci0000:00"
PF, VF = "0000:60:00.0", "0000:60:02.0"


def devices(root: pathlib.Path) -> dict[str, PCIDevice]:
    return {device.address: device for device in read_devices(Tree(root))}


@pytest.fixture
def card(tmp_path, trees) -> pathlib.Path:
    """A machine with a network card of 8 functions, 4 made, 2 of which are vDPA devices."""
    function = trees.Function(
        bus=0x60,
        node=0,
        totalvfs=8,
        vfs=4,
        vdpa=2,
        interfaces=(NetworkInterface("enp96s0", "3c:ec:ef:01:02:03"),),
    )
    trees.write(tmp_path, trees.Shape(functions=(function,)))
    return tmp_path


# --- SR-IOV -------------------------------------------------------------------------------------


def test_a_physical_function_says_how_many_functions_there_are_and_could_be(card):
    request = devices(card)
    assert request[PF].kind is DeviceKind.PF
    assert (request[PF].sriov_numvfs, request[PF].sriov_totalvfs) == (4, 8)
    assert sum(item.parent_address == PF for item in request.values()) == 4
    assert {item.parent_address for item in request.values() if item is not request[PF]} == {PF}


def test_a_function_that_others_are_split_off_is_a_physical_one_whatever_it_says_itself(card):
    (card / DEVICES / PF / "sriov_totalvfs").unlink()
    assert devices(card)[PF].kind is DeviceKind.PF


def test_a_function_that_could_be_split_is_a_physical_one_though_it_is_not(tmp_path, trees):
    trees.write(tmp_path, trees.Shape(functions=(trees.Function(bus=0x60, totalvfs=8),)))
    assert devices(tmp_path)[PF].kind is DeviceKind.PF
    assert devices(tmp_path)[PF].sriov_numvfs == 0


# --- vDPA ---------------------------------------------------------------------------------------


def test_a_virtual_function_with_a_vdpa_device_far_below_it_is_of_that_type(card):
    """Row c.1 (dev_type vdpa): only what is below a virtual function counts, as in Nova."""
    request = devices(card)
    kinds = [request[f"0000:60:02.{index}"].kind for index in range(4)]
    assert kinds == [DeviceKind.VDPA, DeviceKind.VDPA, DeviceKind.VF, DeviceKind.VF]
    assert request[VF].vdpa == (f"vdpa{16 * 0x60}",)


def test_a_vdpa_device_right_below_its_function_needs_no_bus_to_be_found(card):
    (card / DEVICES / "0000:60:02.3" / "vdpa7").mkdir()
    result = devices(card)["0000:60:02.3"]
    assert (result.kind, result.vdpa) == (DeviceKind.VDPA, ("vdpa7",))


def test_a_vdpa_device_of_a_physical_function_does_not_make_that_one_of_the_type(card):
    os.symlink(
        f"../../../../{DEVICES}/{PF}/mlx5_core.sf.2/vdpa9", card / "sys/bus/vdpa/devices/vdpa9"
    )
    result = devices(card)[PF]
    assert (result.kind, result.vdpa) == (DeviceKind.PF, ("vdpa9",))


def test_what_is_no_vdpa_device_of_a_function_is_left_out(card):
    place = card / "sys/bus/vdpa/devices"
    os.symlink("../../../devices/vdpasim/vdpa3", place / "vdpa3")  # of software alone
    os.symlink("loop", place / "loop")
    assert sum(len(device.vdpa) for device in devices(card).values()) == 2


# --- interfaces ---------------------------------------------------------------------------------


def test_the_interfaces_of_a_function_are_identified_by_name_with_their_addresses(card):
    assert devices(card)[PF].interfaces == (NetworkInterface("enp96s0", "3c:ec:ef:01:02:03"),)
    other = card / DEVICES / PF / "net/enp96s0d1"
    other.mkdir()
    assert devices(card)[PF].interfaces[1] == NetworkInterface("enp96s0d1", None)


def test_interfaces_of_virtio_are_found_below_the_device_of_its_bus(card):
    place = card / DEVICES / "0000:60:02.2" / "virtio2/net/eth0"
    place.mkdir(parents=True)
    (place / "address").write_text("02:fc:00:00:00:01\n")
    result = devices(card)["0000:60:02.2"].interfaces
    assert result == (NetworkInterface("eth0", "02:fc:00:00:00:01"),)


def test_an_address_of_twenty_bytes_is_one(card):
    address = ":".join(["80", "00"] * 10)
    (card / DEVICES / PF / "net/enp96s0/address").write_text(f"{address}\n")
    assert devices(card)[PF].interfaces[0].mac == address


@pytest.mark.parametrize("text", ["none", "3C:EC", "3cecef010203", "00:", "-"])
def test_an_address_that_is_none_is_refused_and_named(card, text):
    (card / DEVICES / PF / "net/enp96s0/address").write_text(text)
    with pytest.raises(DiscoveryError, match="expected a MAC address") as refused:
        devices(card)
    assert refused.value.name.endswith("net/enp96s0/address")


# --- mediated devices ---------------------------------------------------------------------------


@pytest.fixture
def gpu(tmp_path, trees) -> pathlib.Path:
    types = (MediatedType("nvidia-256", "GRID RTX6000-1Q", 24, "vfio-pci", "num_heads=4"),)
    function = trees.Function(bus=0x3B, vendor="10de", mediated_types=types)
    trees.write(tmp_path, trees.Shape(functions=(function,)))
    return tmp_path / DEVICES / "0000:3b:00.0/mdev_supported_types"


def test_the_types_of_mediated_devices_are_reported_with_how_many_there_could_be(gpu, tmp_path):
    (result,) = devices(tmp_path).values()
    assert result.mediated_types == (
        MediatedType("nvidia-256", "GRID RTX6000-1Q", 24, "vfio-pci", "num_heads=4"),
    )


def test_what_a_driver_does_not_say_of_a_type_is_not_known(gpu, tmp_path):
    for name in ("name", "available_instances", "device_api", "description"):
        (gpu / "nvidia-256" / name).unlink()
    (result,) = devices(tmp_path).values()
    assert result.mediated_types == (MediatedType("nvidia-256"),)


def test_a_description_of_several_lines_is_reported_on_one(gpu, tmp_path):
    (gpu / "nvidia-256/description").write_text("num_heads=4,\n max_instance=24\n")
    (result,) = devices(tmp_path).values()
    assert result.mediated_types[0].description == "num_heads=4, max_instance=24"


@pytest.mark.parametrize("text", ["-1", "many"])
def test_a_count_that_is_none_is_refused_and_named(gpu, tmp_path, text):
    (gpu / "nvidia-256/available_instances").write_text(text)
    with pytest.raises(DiscoveryError, match="available_instances"):
        devices(tmp_path)


# --- GPUs ---------------------------------------------------------------------------------------

UUID = "GPU-8d1f3c52-5f0c-9c0e-4ad8-0b5f1a2c3d4e"


def test_a_gpu_is_known_by_its_uuid(trees, tmp_path):
    functions = (
        trees.Function(bus=0x3B, vendor="10de", class_id="030200", uuid=UUID),
        trees.Function(bus=0x86, vendor="10de", class_id="030200"),
    )
    trees.write(tmp_path, trees.Shape(functions=functions))
    assert [device.uuid for device in devices(tmp_path).values()] == [UUID, None]


@pytest.mark.parametrize("message", [UUID.replace("8", "?"), "GPU-8d1f", "", f"{UUID}0", "MIG-1"])
def test_a_uuid_that_is_not_reported_is_not_known(trees, tmp_path, message):
    function = trees.Function(bus=0x3B, vendor="10de", uuid=UUID)
    trees.write(tmp_path, trees.Shape(functions=(function,)))
    path = tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0/information"
    path.write_text(f"Model: H100\nGPU UUID: \t {message}\n")
    (result,) = devices(tmp_path).values()
    assert result.uuid is None


# --- places that cannot be named -----------------------------------------------------------------


def test_a_domain_of_more_than_16_bits_is_a_fact_like_any_other(card):
    """Row c.2 (discovery): such an address costs that device only, where it would be taken."""
    source, target = card / DEVICES / PF, card / DEVICES / "10000:01:00.0"
    target.mkdir()
    for name in ("vendor", "device", "class"):
        (target / name).write_text((source / name).read_text())
    os.symlink(f"../../../../{DEVICES}/10000:01:00.0", card / "sys/bus/pci/devices/10000:01:00.0")
    assert list(devices(card))[-1] == "10000:01:00.0"
    assert len(devices(card)) == 6


# --- facts by hand ------------------------------------------------------------------------------

FUNCTION = PCIDevice(PF, "8086", "37d2", "020000")
ETH0 = NetworkInterface("eth0")


@pytest.mark.parametrize(
    ("subject", "facts"),
    [
        ("PCIDevice.interfaces", {"interfaces": ("eth0",)}),
        ("PCIDevice.interfaces", {"interfaces": [ETH0]}),
        ("interface of PCIDevice.interfaces", {"interfaces": (ETH0, ETH0)}),
        ("PCIDevice.mediated_types", {"mediated_types": ("nvidia-35",)}),
        ("id of PCIDevice.mediated_types", {"mediated_types": (MediatedType("a"),) * 2}),
        ("PCIDevice.vdpa", {"vdpa": (7,)}),
        ("PCIDevice.uuid", {"uuid": ""}),
        ("PCIDevice.parent_address", {"kind": DeviceKind.VDPA}),
        ("PCIDevice.parent_address", {"kind": DeviceKind.VDPA, "parent_address": PF}),
        ("PCIDevice.parent_address", {"parent_address": VF}),
    ],
)
def test_facts_that_are_none_are_refused(subject, facts):
    with pytest.raises(InvalidInput) as refused:
        dataclasses.replace(FUNCTION, **facts)
    assert refused.value.what == subject


@pytest.mark.parametrize(
    ("subject", "make"),
    [
        ("NetworkInterface.name", lambda: NetworkInterface("")),
        ("NetworkInterface.mac", lambda: NetworkInterface("eth0", 5)),
        ("MediatedType.id", lambda: MediatedType(5)),
        ("MediatedType.name", lambda: MediatedType("a", name="")),
        ("MediatedType.available", lambda: MediatedType("a", available=-1)),
        ("MediatedType.device_api", lambda: MediatedType("a", device_api=5)),
    ],
)
def test_parts_of_facts_that_are_none_are_refused(subject, make):
    with pytest.raises(InvalidInput) as refused:
        make()
    assert refused.value.what == subject


def test_facts_are_plain_data():
    function = dataclasses.replace(
        FUNCTION, interfaces=(ETH0,), mediated_types=(MediatedType("nvidia-35", available=4),)
    )
    machine = read_machine_with(function)
    (values,) = machine.to_dict()["devices"]
    assert values["interfaces"] == [{"name": "eth0", "mac": None}]
    assert values["mediated_types"][0]["available"] == 4
    assert values["kind"] == "type-PCI"


def read_machine_with(function: PCIDevice) -> Machine:
    from resource_objects.host.machine import Core

    return Machine(cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0, devices=(function,))


# --- captured machines, and this one ------------------------------------------------------------


def test_a_captured_machine_shows_its_interfaces(captured):
    result = {
        device.address: device for device in read_machine(captured("32intel64-2p8co2t+8ve")).devices
    }
    ports = [result["0000:60:00.0"], result["0000:60:00.1"]]
    assert [(device.kind, device.sriov_totalvfs, device.sriov_numvfs) for device in ports] == [
        (DeviceKind.PF, 64, 0)
    ] * 2
    assert [device.interfaces for device in ports] == [
        (NetworkInterface("enp96s0f0", "ac:1f:6b:8a:5f:c8"),),
        (NetworkInterface("enp96s0f1", "ac:1f:6b:8a:5f:c9"),),
    ]


def test_a_capture_without_links_to_physical_functions_has_no_virtual_ones(captured):
    machine = read_machine(captured("linux-amd64-8581cf3a529e5d8b97ea876eade2f60d"))
    drivers = {device.kind for device in machine.devices if device.driver == "igbvf"}
    assert drivers == {DeviceKind.PCI}  # nothing in it identifies them


@pytest.mark.skipif(
    not pathlib.Path("/sys/bus/pci/devices").is_dir(), reason="this machine shows no PCI devices"
)
def test_the_functions_of_this_machine_are_those_that_the_kernel_lists():
    result = {read_device.address for read_device in read_devices(Tree("/"))}
    assert result == set(os.listdir("/sys/bus/pci/devices"))
