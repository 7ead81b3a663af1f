"""A machine read from the XML of libvirt: its facts, omissions and refusals."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import DiscoveryError, InvalidInput
from resource_objects.host import discover, provider_tree
from resource_objects.host.libvirt import parse_machine, read_machine
from resource_objects.host.machine import (
    MIB,
    Core,
    DeviceKind,
    Machine,
    MediatedType,
    NetworkInterface,
    NUMACell,
    Pages,
    PCIDevice,
)
from resource_objects.host.settings import HostSettings
from tests.host import libvirt_xml, trees
from tests.host.libvirt_xml import Connection, capabilities, devices

NIC = PCIDevice(
    "0000:60:00.0",
    "15b3",
    "101d",
    "020000",
    numa_node=1,
    kind=DeviceKind.PF,
    sriov_totalvfs=4,
    sriov_numvfs=2,
    driver="mlx5_core",
    interfaces=(NetworkInterface("enp96s0f0np0", "3c:ec:ef:01:02:03"),),
)
FUNCTION = PCIDevice(
    "0000:60:00.1",
    "15b3",
    "101e",
    "020000",
    numa_node=1,
    kind=DeviceKind.VF,
    parent_address="0000:60:00.0",
)
VDPA = dataclasses.replace(
    FUNCTION, address="0000:60:00.2", kind=DeviceKind.VDPA, vdpa=("vdpa0",), driver="mlx5_core"
)
GPU = PCIDevice(
    "10000:81:00.0",
    "10de",
    "1eb8",
    "030200",
    driver="nvidia",
    mediated_types=(
        MediatedType("nvidia-222", name="GRID T4-1B", available=16, device_api="vfio-pci"),
        MediatedType("nvidia-223", name="GRID T4-2B <beta> & more", available=8),
    ),
)
PAGES = (Pages(4096, 65536), Pages(2 * MIB, 128), Pages(1024 * MIB, 0))
HOST = Machine(
    hostname="compute-0",
    architecture="x86_64",
    cpus=(0, 1, 2, 4, 5, 6),
    offline_cpus=(3, 7),
    cores=(Core(0, 0, (0, 4)), Core(0, 1, (1, 5)), Core(1, 0, (2, 6))),
    memory_bytes=1280 * MIB,
    huge_pages=(Pages(2 * MIB, 256), Pages(1024 * MIB, 0)),
    cells=(
        NUMACell(0, (0, 1, 4, 5), 512 * MIB, PAGES, package_id=0, distances=(10, 21, 17)),
        NUMACell(1, (2, 6), 512 * MIB, PAGES, package_id=1, distances=(21, 10, 28)),
        NUMACell(4, (), 256 * MIB, distances=(17, 28, 10), initiators=(0,)),
    ),
    devices=(NIC, FUNCTION, VDPA, GPU),
)


def test_a_compute_host_is_read_as_it_is() -> None:
    assert parse_machine(capabilities(HOST), devices(HOST), hostname="compute-0") == HOST


@given(trees.shapes())
def test_what_libvirt_tells_of_any_machine_is_read_back(shape: trees.Shape) -> None:
    machine = dataclasses.replace(trees.expected(shape), architecture="aarch64")
    result = parse_machine(capabilities(machine), devices(machine), hostname=machine.hostname)
    assert result == libvirt_xml.told(machine)


def test_a_connection_is_requested_all_of_it() -> None:
    assert discover("libvirt", connection=Connection(HOST)) == HOST
    assert read_machine(Connection(HOST), hostname="other").hostname == "other"
    disk = read_machine(Connection(HOST), disk_path="/").disk
    assert disk is not None and disk.total_bytes > 0


def test_what_is_offered_of_it_is_as_of_a_machine_that_is_read_from_its_files() -> None:
    tree = provider_tree(
        HOST,
        HostSettings(device_rules=["15b3:101e=SRIOV_NET_VF;physnet=a", "10de:*=VGPU"]),
        numa=True,
    )
    assert [str(item).partition(": ")[0] for item in tree.walk()] == [
        "compute-0",
        "compute-0/0000:60:00.0",
        "compute-0/numa0",
        "compute-0/numa1",
        "compute-0/numa4",
    ]


BARE_CELLS = """<capabilities><host><topology><cells>
  <cell id='0'><memory unit='KiB'>1048576</memory>
    <pages unit='KiB' size='4'>262144</pages>
    <cpus><cpu id='0' siblings='0'/><cpu id='1' siblings='1'/></cpus></cell>
  <cell id='1'>{memory}<cpus><cpu id='2' siblings='2'/></cpus></cell>
  <cell id='2'>{memory}</cell>
</cells></topology></host></capabilities>"""


@pytest.mark.parametrize("memory", ["", "<memory unit='KiB'>0</memory>"])
def test_a_cell_without_memory_has_0_mib(memory: str) -> None:
    machine = parse_machine(BARE_CELLS.format(memory=memory), hostname="compute-0")
    assert machine.memory_mb == 1024
    assert [(cell.id, cell.cpus, cell.memory_bytes) for cell in machine.cells] == [
        (0, (0, 1), 1024 * MIB),
        (1, (2,), 0),
        (2, (), 0),
    ]
    assert machine.findings == ()
    assert list(map(str, provider_tree(machine, numa=True).walk())) == [
        "compute-0: VCPU=3,MEMORY_MB=1024",
        "compute-0/numa0: NUMA_TOPOLOGY=cell 0: 2 shared CPUs 1024 MiB",
        "compute-0/numa1: NUMA_TOPOLOGY=cell 1: 1 shared CPUs",
        "compute-0/numa2: NUMA_TOPOLOGY=cell 2: ",
    ]


def test_pages_of_a_cell_without_memory_are_left_out() -> None:
    pages = "<pages unit='KiB' size='4'>1</pages>"
    machine = parse_machine(BARE_CELLS.format(memory=pages))
    assert [cell.pages for cell in machine.cells] == [(Pages(4096, 262144),), (), ()]
    assert len(machine.findings) == 2


# --- omitted and reported facts ---


def nodes(*changed: tuple[str, str]) -> list[str]:
    """Return the XML of the devices, each text replaced by another."""
    texts = list(devices(HOST))
    for old, new in changed:
        texts = [text.replace(old, new) for text in texts]
    return texts


LEFT_OUT = {
    "no vendor": (("<vendor id='0x10de'>Some Corporation</vendor>", ""), "no <vendor>"),
    "no bus": (("<bus>129</bus>", ""), "<bus> is None; expected a number"),
    "ids that are none": (("'0x10de'", "'NVIDIA'"), "id of <vendor> is 'NVIDIA'"),
    "class that is none": (("0x030200", "display"), "<class> is 'display'"),
    "no XML": (("<device>\n  <name>pci_10000", "<device><name>pci_10000<"), "line 1"),
    "cut off": (("</device>\n", ""), "no element found"),
    "parent of itself": (
        (
            "<capability type='mdev_types'>",
            "<capability type='phys_function'><address"
            " domain='0x10000' bus='0x81' slot='0x0' function='0x0'/></capability>"
            "<capability type='mdev_types'>",
        ),
        "PCIDevice.parent_address",
    ),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_a_device_that_does_not_say_what_it_is_is_left_out_and_reported(case: str) -> None:
    change, values = LEFT_OUT[case]
    texts = [text for text in nodes(change) if "pci_10000" in text]
    result = parse_machine(capabilities(HOST), [*nodes()[:3], *texts])
    assert GPU.address not in {device.address for device in result.devices}
    assert [values in str(finding) for finding in result.findings] == [True]
    assert NIC.address in {device.address for device in result.devices}


def test_a_device_that_went_away_meanwhile_is_identified_by_its_name() -> None:
    error = RuntimeError("Node device not found")
    machine = read_machine(Connection(HOST, more=(error,)))
    assert list(map(str, machine.findings)) == [
        "pci_0000_99_00_0: RuntimeError: Node device not found"
    ]
    assert dataclasses.replace(machine, findings=()) == HOST


def test_a_device_without_a_class_is_unclassified_and_without_a_count_counted() -> None:
    texts = nodes(("    <class>0x020000</class>\n", ""), (" maxCount='4'", ""))
    device = parse_machine(capabilities(HOST), texts).devices[0]
    assert (device.class_id, device.kind) == ("000000", DeviceKind.PF)
    assert (device.sriov_totalvfs, device.sriov_numvfs) == (2, 2)


def test_a_card_of_which_only_the_functions_tell_is_a_physical_function() -> None:
    card = next(text for text in devices(HOST) if "<name>pci_0000_60_00_0<" in text)
    start, end = card.index("    <capability type='virt"), card.index("    <iommuGroup")
    texts = [card[:start] + card[end:], *(item for item in devices(HOST) if item != card)]
    device = parse_machine(capabilities(HOST), texts).devices[0]
    assert (device.kind, device.sriov_totalvfs) == (DeviceKind.PF, None)


def test_an_interface_below_another_device_of_the_card_is_the_cards() -> None:
    texts = [
        *nodes(("<parent>pci_0000_60_00_0</parent>", "<parent>virtio0</parent>")),
        "<device><name>virtio0</name><parent>pci_0000_60_00_0</parent></device>",
    ]
    assert parse_machine(capabilities(HOST), texts).devices[0].interfaces == NIC.interfaces


TOLD = {
    "pages beyond the memory": (
        ("<pages unit='KiB' size='1048576'>0<", "<pages unit='KiB' size='1048576'>7<"),
        "pages of cell 0: 7516192768 bytes more than its memory; left out",
    ),
    "a distance too few": (
        ("<sibling id='4' value='17'/>", ""),
        "distances of cell 0: not one for each cell; left out",
    ),
    "siblings of others": (
        ("core_id='0' siblings='0,4'", "core_id='0' siblings='1,5'"),
        "CPU 0: it is not among its own siblings; taken as a core",
    ),
}


@pytest.mark.parametrize("case", TOLD)
def test_a_fact_of_a_cell_that_cannot_be_is_left_out_and_reported(case: str) -> None:
    (old, new), values = TOLD[case]
    result = parse_machine(capabilities(HOST).replace(old, new, 1))
    assert result.cpus == HOST.cpus
    assert f"libvirt capabilities: {values}" in map(str, result.findings)


def test_bandwidth_says_who_is_near_where_no_latency_does() -> None:
    text = capabilities(HOST).replace("latency", "bandwidth").replace("value='20'", "value='2'")
    assert parse_machine(text).cells[2].initiators == (0,)


# --- what is refused ---

BOMB = """<?xml version='1.0'?>
<!DOCTYPE capabilities [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<capabilities><host>&b;</host></capabilities>"""
EXTERNAL = """<!DOCTYPE capabilities SYSTEM "file:///etc/passwd"><capabilities/>"""
GOOD = capabilities(HOST)
REFUSED = {
    "nothing": ("", "line 1: no element found"),
    "no text": (None, "expected XML text"),
    "bytes": (b"<capabilities/>", "expected XML text"),
    "no XML": ("{}", "line 1: not well-formed"),
    "half a character": ("<capabilities>\ud800</capabilities>", r"'\\ud800' is no character"),
    "an entity bomb": (BOMB, "line 2: no document type"),
    "an external entity": (EXTERNAL, "line 1: no document type"),
    "a known entity that is none": ("<capabilities>&x;</capabilities>", "line 1: undefined entity"),
    "levels": ("<a>" * 70 + "</a>" * 70, "at most 64 levels"),
    "another document": ("<domainCapabilities/>", "the root is <domainCapabilities>"),
    "no host": ("<capabilities/>", "no <host> in <capabilities>"),
    "no topology": ("<capabilities><host/></capabilities>", "no <topology> in <host>"),
    "no cells": (GOOD.replace("cells", "rooms"), "no <cells> in <topology>"),
    "no CPUs": (GOOD.replace("<cpu id=", "<gpu id="), "no <cpu> with siblings"),
    "all offline": (GOOD.replace(" siblings=", " was="), "no <cpu> with siblings"),
    "a CPU without an id": (GOOD.replace("<cpu id='2'", "<cpu"), "id of <cpu> is None"),
    "a CPU twice": (GOOD.replace("<cpu id='2'", "<cpu id='1'"), "Core.cpus|Machine.cpus"),
    "a cell twice": (GOOD.replace("<cell id='4'", "<cell id='1'"), "a <cell> comes twice"),
    "a cell without an id": (GOOD.replace("<cell id='4'", "<cell"), "id of <cell> is None"),
    "memory that is none": (GOOD.replace(">524288<", ">much<"), "memory is 'much'"),
    "a negative memory": (GOOD.replace(">524288<", ">-1<"), "memory is '-1'"),
    "a strange unit": (GOOD.replace("unit='KiB'>5", "unit='pounds'>5"), "'pounds'; one of b,"),
    "siblings that are none": (GOOD.replace("siblings='0,4'", "siblings='a'"), "CPU 0.*siblings"),
    "a long number": (GOOD.replace(">524288<", f">{'9' * 4000}<"), "expected a number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_capabilities_that_are_none_are_refused_in_one_line_that_names_what_is_missing(
    case: str,
) -> None:
    text, values = REFUSED[case]
    with pytest.raises(DiscoveryError, match=values) as raised:
        parse_machine(text)  # type: ignore[arg-type]
    assert str(raised.value).startswith("libvirt capabilities")
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 5000


def test_a_libvirt_that_does_not_answer_is_named() -> None:
    with pytest.raises(DiscoveryError, match="libvirt cannot be read: OSError: broken pipe"):
        read_machine(Connection(HOST, broken=OSError("broken pipe")))


def test_what_is_no_connection_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"libvirt connection: got 'qemu:///system'"):
        read_machine("qemu:///system")  # type: ignore[arg-type]


#: Text that may occur anywhere in a document.
BITS = [
    "",
    "<",
    ">",
    "'",
    "0",
    "-1",
    "9" * 30,
    "\0",
    "é",
    "\ud800",
    "<cell id='0'/>",
    "&lt;",
    "]]>",
]


@given(
    text=st.sampled_from([GOOD, *devices(HOST)]),
    changes=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 40), st.sampled_from(BITS))),
)
def test_damaged_text_is_a_machine_or_one_error(
    text: str, changes: list[tuple[int, int, str]]
) -> None:
    for place, length, bit in changes:
        at = place % (len(text) + 1)
        text = text[:at] + bit + text[at + length :]
    assert parse_machine(GOOD, [text]).cpus == HOST.cpus
    with contextlib.suppress(DiscoveryError):
        assert parse_machine(text).cpus
