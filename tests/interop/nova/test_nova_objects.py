"""Every reader takes what Nova has: its object, the primitive of it, and JSON text of that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from resource_objects.host.compute_node import ComputeNode
from resource_objects.interop import nova as words
from resource_objects.interop.nova.flavors import flavor_request
from resource_objects.interop.nova.rules import NovaRule
from resource_objects.resources.numa import HostCell
from resource_objects.testing.refusals import raises_code
from tests.interop.nova import documents, pci_documents, stand_ins
from tests.interop.nova.documents import nova
from tests.interop.nova.refusals import breaks

CARD = {"vendor_id": "8086", "product_id": "154c"}
ALIASES = words.parse_alias([json.dumps({"name": "card", **CARD})])
LARGE = {"hw:mem_page_size": "large"}
SPECS = {
    **LARGE,
    "hw:cpu_policy": "dedicated",
    "pci_passthrough:alias": "card:2",
    "resources:PGPU": "1",
}
KEYS = {
    "hw_mem_page_size": "2MB",
    "hw_numa_nodes": "2",
    "hw_numa_cpus.0": "0-1",
    "hw_numa_cpus.1": "2-3",
    "hw_numa_mem.0": "512",
    "hw_numa_mem.1": "1536",
    "hw_pci_numa_affinity_policy": "required",
    "hw_vif_multiqueue_enabled": "true",
    "os_distro": "debian",
    "trait:CUSTOM_A": "required",
}


def flavor(**changed: Any) -> dict[str, Any]:
    """Return a flavor of Nova's; ``...`` leaves a field out."""
    data = {
        "id": 3,
        "name": "two-cells",
        "vcpus": 4,
        "memory_mb": 2048,
        "root_gb": 20,
        "ephemeral_gb": 1,
        "swap": 512,
        "is_public": True,
        "extra_specs": SPECS,
        **changed,
    }
    return nova("Flavor", "1.2", **{name: item for name, item in data.items() if item is not ...})


def properties(**changed: Any) -> dict[str, Any]:
    """Return the properties of an image as Nova's object."""
    data = {
        "hw_mem_page_size": "2MB",
        "hw_numa_nodes": 2,
        "hw_numa_cpus": [[0, 1], [2, 3]],
        "hw_numa_mem": [512, 1536],
        "hw_pci_numa_affinity_policy": "required",
        "hw_vif_multiqueue_enabled": True,
        "os_distro": "debian",
        "traits_required": ["CUSTOM_A"],
        **changed,
    }
    return nova("ImageMetaProps", "1.44", **data)


def image(**changed: Any) -> dict[str, Any]:
    """Return an image of Nova's."""
    return nova("ImageMeta", "1.8", name="debian", min_ram=0, properties=properties(**changed))


def node() -> dict[str, Any]:
    """Return a compute node of Nova's."""
    return nova(
        "ComputeNode",
        "1.19",
        id=7,
        uuid=documents.UUID,
        host="host0",
        host_ip="192.0.2.7",
        vcpus=8,
        vcpus_used=3,
        memory_mb=16384,
        memory_mb_used=1536,
        cpu_allocation_ratio=2.0,
        numa_topology=json.dumps(documents.HOSTS["1.5"]),
        stats={"num_instances": "2"},
        supported_hv_specs=[nova("HVSpec", "1.2", arch="x86_64", hv_type="kvm", vm_mode="hvm")],
        pci_device_pools=pci_documents.pools(pci_documents.pool()),
        created_at="2024-02-29T12:30:15Z",
        updated_at=None,
    )


#: ``{reader: (what reads, a primitive)}``
READERS: Mapping[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "host topology": (words.load_host_numa_topology, documents.HOSTS["1.5"]),
    "guest topology": (words.load_instance_numa_topology, documents.GUESTS["1.5"]),
    "pools": (words.load_pci_pools, pci_documents.pools(pci_documents.pool())),
    "devices": (
        words.load_pci_devices,
        nova(
            "PciDeviceList",
            "1.3",
            objects=[
                pci_documents.device(
                    7, pci_documents.row("0000:04:00.0", "allocated", deleted=False)
                )
            ],
        ),
    ),
    "requests": (
        words.load_pci_requests,
        pci_documents.sent("1.4", pci_documents.request(CARD), pci_documents.port(CARD)),
    ),
    "flavor": (words.load_flavor, flavor()),
    "image": (words.image_properties, image()),
    "properties": (words.image_properties, properties()),
    "request of a flavor": (lambda source: words.request(source, aliases=ALIASES), flavor()),
    "request of an image": (
        lambda source: words.request(flavor(), source, aliases=ALIASES),
        image(),
    ),
    "topology of a flavor": (
        lambda source: words.flavor_topology(4, 2048, extra_specs=source),
        flavor(),
    ),
    "topology of an image": (
        lambda source: words.flavor_topology(4, 2048, extra_specs=LARGE, image=source),
        image(),
    ),
    "amounts of a flavor": (lambda source: flavor_request(4, 2048, extra_specs=source), flavor()),
    "amounts of an image": (lambda source: flavor_request(4, 2048, image=source), image()),
    "devices of a flavor": (lambda source: words.flavor_devices(ALIASES, source), flavor()),
    "policy of an image": (lambda source: words.pci_affinity({}, source), image()),
    "compute node": (ComputeNode.read, node()),
    "compute node of Nova": (ComputeNode.from_nova, node()),
}


@pytest.mark.parametrize("selected", READERS)
def test_a_reader_takes_the_object_its_primitive_and_the_text_of_that(selected: str) -> None:
    read, primitive = READERS[selected]
    thing = stand_ins.made(primitive)
    of_primitive = read(primitive)
    assert of_primitive  # else all of them could read nothing
    assert read(thing) == of_primitive
    assert read(json.dumps(primitive)) == of_primitive
    assert read(json.dumps(thing.obj_to_primitive(), default=list).encode()) == of_primitive


def test_the_host_of_an_object_is_that_of_its_column() -> None:
    column = json.dumps(documents.HOSTS["1.5"])
    result = words.load_host_numa_topology(stand_ins.made(documents.HOSTS["1.5"]))
    assert result == words.load_host_numa_topology(column)
    assert [cell.id for cell in result.cells] == [0]


def test_several_objects_are_read_as_the_list_of_them() -> None:
    pool = pci_documents.pool()
    assert words.load_pci_pools([stand_ins.made(pool)]) == words.load_pci_pools([pool])
    assert words.load_pci_pools(iter([stand_ins.made(pool)])) == words.load_pci_pools(
        pci_documents.pools(pool)
    )
    rows = [pci_documents.row(f"0000:0{n}:00.0", deleted=False) for n in range(3)]
    devices = [stand_ins.made(pci_documents.device(7, row)) for row in rows]
    result = words.load_pci_devices(iter(devices))
    assert [device.address for device in result.devices] == [row["address"] for row in rows]
    assert result.devices == words.load_pci_devices(rows).devices
    sent = pci_documents.sent("1.4", pci_documents.request(CARD), pci_documents.port(CARD))
    assert words.load_pci_requests(stand_ins.made(sent).requests) == words.load_pci_requests(sent)


def test_an_image_returns_as_the_keys_that_it_was_made_of() -> None:
    assert words.image_properties(stand_ins.made(image())) == KEYS


def test_a_flavor_and_its_image_ask_what_their_words_ask() -> None:
    ours = words.Flavor(4, 2048, 20, 1, 512, SPECS)
    assert words.load_flavor(stand_ins.made(flavor())) == ours
    request = words.request(stand_ins.made(flavor()), stand_ins.made(image()), aliases=ALIASES)
    assert request == words.request(ours, KEYS, aliases=ALIASES)


def test_the_flavor_of_a_server_is_read_from_the_column_that_has_three() -> None:
    column = {"cur": flavor(), "old": flavor(vcpus=1), "new": None}
    assert words.load_flavor(json.dumps(column)) == words.load_flavor(flavor())


def test_lists_that_no_reader_of_resources_knows_are_text() -> None:
    mapped = [{"virtual": "ami", "device": "sda1"}]
    assert json.loads(words.image_properties(image(img_mappings=mapped))["img_mappings"]) == mapped


def test_a_compute_node_of_the_wire_is_that_of_its_row() -> None:
    result = ComputeNode.read(stand_ins.made(node()))
    assert (result.vcpus, result.host, result.host_ip) == (8, "host0", "192.0.2.7")
    assert result.supported_instances == '[["x86_64", "kvm", "hvm"]]'
    assert json.loads(result.stats) == {"num_instances": "2"}
    assert result.created_at.isoformat() == "2024-02-29T12:30:15+00:00"
    row = {"vcpus": 8, "vcpus_used": 3}
    assert ComputeNode.read(json.dumps(row)) == ComputeNode.read(row)


# --- what cannot be read --------------------------------------------------------------------------


class Unwritable:
    """An object whose primitive cannot be made."""

    def obj_to_primitive(self) -> Any:
        """Fail in its own way."""
        raise RuntimeError("no host_ip")


TOPOLOGIES = [words.load_host_numa_topology, words.load_instance_numa_topology]
PCI = [words.load_pci_pools, words.load_pci_devices, words.load_pci_requests]
OTHERS: list[Any] = [
    stand_ins.made(image()),
    Unwritable(),
    HostCell(0, shared=[0], memory_mb=1),
    stand_ins.NovaObject,
]


@pytest.mark.parametrize("other", OTHERS, ids=["another", "unwritable", "ours", "a class"])
@pytest.mark.parametrize("read", [*TOPOLOGIES, *PCI], ids=lambda read: read.__name__)
def test_another_object_is_refused_by_readers_of_json(read: Any, other: Any) -> None:
    with raises_code("InvalidPrimitive"):
        read(other)
    if read in PCI:
        with raises_code("InvalidPrimitive"):
            read([other])


def test_what_fails_in_an_object_is_reported() -> None:
    with raises_code("InvalidPrimitive", match=r"numa_topology: .*with a primitive: no host_ip"):
        words.load_host_numa_topology(Unwritable())
    with raises_code("InvalidPrimitive", match=r"pci_stats\[0\]: .*with a primitive: no host_ip"):
        words.load_pci_pools([Unwritable()])


@pytest.mark.parametrize("other", OTHERS, ids=["another", "unwritable", "ours", "a class"])
def test_another_object_is_refused_by_readers_of_words(other: Any) -> None:
    with breaks(NovaRule.NOT_WORDS):
        words.load_flavor(other)
    with breaks(NovaRule.NOT_WORDS):
        words.flavor_topology(1, 1, extra_specs=other)
    if other is not OTHERS[0]:
        with breaks(NovaRule.NOT_WORDS):
            words.request(words.Flavor(1, 1), other)
    with raises_code("InvalidRow"):
        ComputeNode.from_nova(other)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (flavor(extra_specs=...), "flavor.extra_specs: .*not loaded"),
        (flavor(vcpus=...), "flavor.vcpus: got None"),
        (flavor(extra_specs=["x"]), "flavor.extra_specs: .*an object"),
        ({**flavor(), "nova_object.version": "1.99"}, "a known version"),
        ({"vcpus": 4}, "flavor: .*a Flavor, or one of Nova's"),
        ('{"vcpus": ', "flavor: .*JSON"),
        (4, "flavor: got 4"),
    ],
)
def test_a_flavor_that_cannot_be_read_is_named(value: Any, message: str) -> None:
    with breaks(NovaRule.NOT_WORDS, match=message):
        words.request(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (nova("ImageMeta", "1.8", name="bare"), "image.properties: got None"),
        (image(hw_numa_cpus=[[0], ["x"]]), r"image.properties.hw_numa_cpus\[1\]"),
        (image(hw_numa_mem=5), "image.properties.hw_numa_mem: got 5"),
        (properties(traits_required="CUSTOM_A"), "image.traits_required"),
        (properties(os_distro=2**80), "image.os_distro"),
        ('{"nova_object.name": ', "image: .*JSON"),
    ],
)
def test_an_image_that_cannot_be_read_is_named(value: Any, message: str) -> None:
    with breaks(NovaRule.NOT_WORDS, match=message):
        words.flavor_topology(4, 2048, image=value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"created_at": "yesterday"}, "got 'yesterday'"),
        ({"supported_hv_specs": [{}]}, r"supported_hv_specs\[0\]"),
        ({"supported_hv_specs": 5}, "supported_hv_specs: got 5"),
        ({"vcpus": "8"}, "vcpus: got '8'"),
    ],
)
def test_a_node_that_cannot_be_read_is_named(changed: dict[str, Any], message: str) -> None:
    value = node()
    value["nova_object.data"] |= changed
    with raises_code("InvalidRow", match=message):
        ComputeNode.read(value)
    with raises_code("InvalidRow", match=message):
        ComputeNode.from_nova(json.dumps(value))
