"""Every reader beside the real Nova: its objects read as what it keeps of them.

Nova itself makes each object, and writes the column or the JSON that we have always read.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import InvalidInput
from resource_objects.host.compute_node import ComputeNode
from resource_objects.interop import nova as words
from resource_objects.interop.nova.rules import InvalidNovaInput

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other libraries' own, at import
    import nova.conf
    from nova import objects

    objects.register_all()

pytestmark = pytest.mark.filterwarnings("ignore")

UUID = "7f5c3b7e-3a4b-4c59-9d0e-0d6f1a2b3c4d"


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Let nova read no configuration file."""
    nova.conf.CONF([], project="nova", default_config_files=[])


def host() -> Any:
    """Return a host's topology of Nova's."""
    cells = [
        objects.NUMACell(
            id=n,
            cpuset={8 * n, 8 * n + 1},
            pcpuset={8 * n + 2, 8 * n + 3},
            memory=4096,
            cpu_usage=1,
            memory_usage=512,
            pinned_cpus={8 * n + 2},
            siblings=[{8 * n, 8 * n + 1}, {8 * n + 2, 8 * n + 3}],
            mempages=[objects.NUMAPagesTopology(size_kb=4, total=1048576, used=0, reserved=0)],
            network_metadata=objects.NetworkMetadata(physnets={"red"}, tunneled=True),
            socket=n,
        )
        for n in range(2)
    ]
    return objects.NUMATopology(cells=cells)


def guest() -> Any:
    """Return a guest's topology of Nova's, pinned."""
    cell = objects.InstanceNUMACell(
        id=1,
        cpuset=set(),
        pcpuset={0, 1},
        memory=1024,
        pagesize=2048,
        cpu_pinning={0: 10, 1: 11},
        cpu_policy="dedicated",
    )
    return objects.InstanceNUMATopology(instance_uuid=UUID, cells=[cell])


def pools() -> Any:
    """Return a host's pools of Nova's."""
    kept = {"dev_type": "type-VF", "physical_network": "red", "parent_ifname": "enp4s0"}
    ids = {"vendor_id": "8086", "product_id": "154c", "numa_node": 0}
    return objects.PciDevicePoolList(objects=[objects.PciDevicePool(count=6, tags=kept, **ids)])


def device(number: int = 0) -> Any:
    """Return a device of Nova's."""
    made = objects.PciDevice.create(
        None,
        {
            "compute_node_id": 1,
            "address": f"0000:0{number}:00.0",
            "vendor_id": "10de",
            "product_id": "2330",
            "dev_type": "type-PCI",
            "numa_node": 0,
            "status": "available",
            "capabilities": {"vpd": {"card_serial_number": "7"}},
        },
    )
    made.instance_uuid, made.status = UUID, "allocated"
    return made


def requests() -> Any:
    """Return what a guest of Nova's asks of devices."""
    asked = objects.InstancePCIRequest(
        count=2,
        spec=[{"vendor_id": "10de", "product_id": "2330"}],
        alias_name="gpu",
        numa_policy="required",
        request_id=UUID,
    )
    return objects.InstancePCIRequests(instance_uuid=UUID, requests=[asked])


def flavor(specs: Mapping[str, str]) -> Any:
    """Return a flavor of Nova's."""
    return objects.Flavor(
        name="f", vcpus=4, memory_mb=2048, root_gb=20, ephemeral_gb=1, swap=512, extra_specs=specs
    )


def written(thing: Any) -> str:
    """Return an object as Nova writes it."""
    return json.dumps(thing.obj_to_primitive())


@pytest.mark.parametrize(
    ("read", "thing", "column"),
    [
        (words.load_host_numa_topology, host, lambda one: one._to_json()),
        (words.load_instance_numa_topology, guest, lambda one: one._to_json()),
        (words.load_pci_pools, pools, written),
        (words.load_pci_requests, requests, lambda one: one.to_json()),
        (words.load_pci_devices, lambda: objects.PciDeviceList(objects=[device()]), written),
    ],
    ids=["host", "guest", "pools", "requests", "devices"],
)
def test_an_object_reads_as_what_nova_keeps_of_it(read: Any, thing: Any, column: Any) -> None:
    given_ = thing()
    found = read(column(given_))
    assert found and read(given_) == found
    assert read(given_.obj_to_primitive()) == found


def test_several_objects_read_as_their_list() -> None:
    cards = [device(n) for n in range(3)]
    found = words.load_pci_devices(cards)
    assert found == words.load_pci_devices(objects.PciDeviceList(objects=cards))
    assert [use.address for use in found.usage] == [card.address for card in cards]
    assert words.load_pci_pools(pools().objects) == words.load_pci_pools(pools())
    assert words.load_pci_requests(requests().requests) == words.load_pci_requests(requests())


#: Properties that Nova's fields take, some as numbers, flags and lists.
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "hw_cpu_policy": st.sampled_from(["dedicated", "shared", "mixed"]),
        "hw_cpu_thread_policy": st.sampled_from(["prefer", "isolate", "require"]),
        "hw_cpu_realtime_mask": st.just("^0"),
        "hw_mem_page_size": st.sampled_from(["2048", "large", "1GB"]),
        "hw_numa_nodes": st.sampled_from(["1", "2"]),
        "hw_locked_memory": st.sampled_from(["true", "false"]),
        "hw_pci_numa_affinity_policy": st.sampled_from(["required", "socket"]),
        "hw_disk_bus": st.just("virtio"),
        "hw_boot_menu": st.sampled_from(["true", "false"]),
        "hw_tpm_version": st.just("2.0"),
        "hw_tpm_model": st.just("tpm-crb"),
        "img_hv_type": st.just("kvm"),
        "os_secure_boot": st.just("required"),
        "os_distro": st.just("debian"),
        "trait:CUSTOM_A": st.just("required"),
        "trait:HW_CPU_X86_AVX2": st.just("required"),
    },
)
CELLS = st.sampled_from(
    [
        {},
        {"hw_numa_nodes": "2"}
        | {f"hw_numa_cpus.{n}": f"{2 * n}-{2 * n + 1}" for n in range(2)}
        | {f"hw_numa_mem.{n}": "1024" for n in range(2)},
    ]
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "hw:cpu_policy": st.sampled_from(["dedicated", "mixed"]),
        "hw:cpu_dedicated_mask": st.just("2-3"),
        "hw:mem_page_size": st.sampled_from(["large", "any"]),
        "hw:numa_nodes": st.just("2"),
        "resources:PGPU": st.just("1"),
        "trait:CUSTOM_B": st.just("required"),
    },
)


def outcome(call: Any) -> Any:
    """Return what a call returns, or the rule and the key that it fails by."""
    try:
        return call()
    except InvalidNovaInput as error:
        return error.rule, error.what
    except InvalidInput as error:
        return type(error), error.what


@given(PROPERTIES, CELLS, SPECS)
def test_an_image_and_a_flavor_ask_what_their_keys_ask(
    properties: dict[str, str], cells: dict[str, str], specs: dict[str, str]
) -> None:
    keys = {**properties, **cells}
    image = objects.ImageMeta.from_dict({"name": "i", "properties": keys})
    assert words.image_properties(image) == keys
    ours = words.Flavor(4, 2048, 20, 1, 512, specs)
    assert words.load_flavor(flavor(specs)) == ours
    for strict in (True, False):
        of_objects = outcome(
            lambda strict=strict: words.request(flavor(specs), image, refuse_ignored=strict)
        )
        of_keys = outcome(lambda strict=strict: words.request(ours, keys, refuse_ignored=strict))
        if isinstance(of_keys, words.NovaRequest):  # the order of keys is Nova's own
            assert of_objects.request == of_keys.request
            assert of_objects.topology == of_keys.topology
            assert {*of_objects.ignored_keys} == {*of_keys.ignored_keys}
        else:
            assert of_objects == of_keys


def test_names_from_before_are_those_of_today() -> None:
    image = objects.ImageMeta.from_dict({"properties": {"vm_mode": "hvm", "architecture": "i686"}})
    found = words.image_properties(image)
    assert found == {"hw_vm_mode": "hvm", "hw_architecture": "i686"}
    asked = words.request(flavor({}), image, refuse_ignored=False)
    assert {*asked.ignored_keys} == {"hw_vm_mode of the image", "hw_architecture of the image"}


def test_a_flavor_without_its_extra_specs_is_refused() -> None:
    bare = objects.Flavor(vcpus=1, memory_mb=1, root_gb=0, ephemeral_gb=0, swap=0)
    with pytest.raises(InvalidNovaInput, match="not loaded"):
        words.load_flavor(bare)


def test_what_nova_keeps_of_a_server_is_read() -> None:
    three = {"cur": flavor({"hw:numa_nodes": "2"}).obj_to_primitive(), "old": None, "new": None}
    found = words.load_flavor(json.dumps(three))
    assert found == words.load_flavor(flavor({"hw:numa_nodes": "2"}))


def test_a_compute_node_of_the_wire_is_that_of_the_object() -> None:
    node = objects.ComputeNode(
        id=7,
        uuid=UUID,
        host="host0",
        host_ip="192.0.2.7",
        vcpus=8,
        vcpus_used=3,
        memory_mb=16384,
        memory_mb_used=1536,
        cpu_allocation_ratio=2.0,
        numa_topology=host()._to_json(),
        stats={"num_instances": "2"},
        supported_hv_specs=[objects.HVSpec(arch="x86_64", hv_type="kvm", vm_mode="hvm")],
        pci_device_pools=pools(),
    )
    of_object = ComputeNode.read(node)
    for source in (node.obj_to_primitive(), written(node)):
        of_wire = ComputeNode.read(source)
        assert of_wire.to_row() == of_object.to_row()
        assert of_wire.inventories == of_object.inventories
