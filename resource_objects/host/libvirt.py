"""Read a machine from libvirt: the XML of a connection's capabilities and of its node devices.

An agent next to libvirt has two kinds of text: ``virConnectGetCapabilities`` describes the host,
and ``virNodeDeviceGetXMLDesc`` each device. :func:`parse_machine` reads the texts,
:func:`read_machine` requests them from a connection. libvirt itself is not imported: a connection
is any object with the methods of libvirt-python.

======================  ===========================================================================
text                    facts in it
======================  ===========================================================================
capabilities            architecture; cells with their memory, pages, distances and CPUs; of each
                        CPU its socket, core and siblings; the cells that reach a memory best
PCI devices             ids, class, NUMA node, driver, SR-IOV, types of mediated devices
other devices           the network interfaces and vDPA devices of PCI devices
======================  ===========================================================================

libvirt does not report free pages, revisions and subsystems of devices, and UUIDs of GPUs. A device
without a class, as in older versions, has the class ``000000`` (unclassified). A CPU without
siblings is offline. The memory of the machine is that of its cells.

One bad fact does not cost the machine. ``<cells>`` and an online CPU are required. A cell without
``<memory>`` has none (libvirt leaves the element out), and one without ``<cpus>`` has no CPUs.
Pages above the memory of their cell, distances that are not one per cell, and a device without ids
or that was removed meanwhile are left out, and a :class:`~resource_objects.findings.Finding` names
each.

The XML comes from another process: a document type, and so every entity, is refused.

Sources: libvirt, *Driver capabilities XML format* and *Node devices XML format*; for the devices
that are requested, ``nova/virt/libvirt/host.py``.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol
from xml.etree.ElementTree import Element, ParseError
from xml.parsers import expat

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser
from oslo_utils import units

from resource_objects.exceptions import DiscoveryError, InvalidInput
from resource_objects.findings import Finding
from resource_objects.host.linux import read_disk
from resource_objects.host.machine import (
    Core,
    Disk,
    Machine,
    MediatedType,
    NetworkInterface,
    NUMACell,
    Pages,
    PCIDevice,
    device_kind,
    order_devices,
    sum_huge_pages,
)
from resource_objects.resources.numa.cpuset import CPUSet

__all__ = ["Connection", "parse_machine", "read_machine"]

#: The maximum number of characters, far above that of 1,000 CPUs; and of nested elements.
MAX_LENGTH = 32 * units.Mi
MAX_DEPTH = 64

#: ``virConnectListAllNodeDevicesFlags``: PCI devices, network interfaces, vDPA devices.
_DEVICE_FLAGS = 1 << 1 | 1 << 4 | 1 << 17
_UNITS = {"b": 1, "bytes": 1, "KiB": units.Ki, "MiB": units.Mi, "GiB": units.Gi}
_UNCLASSIFIED = "000000"
_NODE_DEVICE = "node device"
_CAPABILITIES = "libvirt capabilities"
_ADDRESS = ("domain", "bus", "slot", "function")
#: The name of a PCI device.
_PCI_NAME = re.compile(r"pci_[0-9a-f]{4,8}_[0-9a-f]{2}_[0-9a-f]{2}_[0-7]$")


class Connection(Protocol):
    """The methods that a connection needs: those of a ``virConnect`` of libvirt-python."""

    def getCapabilities(self) -> str: ...  # noqa: N802  # libvirt's names

    def getHostname(self) -> str: ...  # noqa: N802

    def listAllDevices(self, flags: int = 0) -> Iterable[Any]:  # noqa: N802
        """Return node devices, each with ``name()`` and ``XMLDesc(flags)``."""
        ...


def read_machine(
    connection: Connection, *, hostname: str | None = None, disk_path: str | None = None
) -> Machine:
    """Return the machine that a connection of libvirt leads to.

    Cost: a call for the capabilities and one for each device.

    :param connection: an open ``virConnect``, or any object with these methods
    :param hostname: by default that of the connection
    :param disk_path: a path on the disk of the guests, on this machine; without it the disk is not
        known
    :raises DiscoveryError: if libvirt does not answer, or as :func:`parse_machine`
    :raises InvalidInput: if it is not a connection
    """
    for method in ("getCapabilities", "listAllDevices"):
        if not callable(getattr(connection, method, None)):
            raise InvalidInput(
                "value", "libvirt connection", connection, f"an object with {method}()"
            )
    try:
        capabilities = connection.getCapabilities()
        hostname = connection.getHostname() if hostname is None else hostname
        devices = list(connection.listAllDevices(_DEVICE_FLAGS))
    except Exception as error:  # libvirt's own errors cannot be imported
        raise DiscoveryError("libvirt", f"{type(error).__name__}: {error}") from error
    texts: list[str] = []
    removed: list[Finding] = []
    disk = None if disk_path is None else read_disk(disk_path)
    for device in devices:
        try:
            texts.append(device.XMLDesc(0))
        except Exception as error:  # it was removed since it was listed, or has no description
            get_name = getattr(device, "name", None)
            subject = str(get_name()) if callable(get_name) else _NODE_DEVICE
            removed.append(Finding(subject, detail=f"{type(error).__name__}: {error}"))
    machine = parse_machine(capabilities, texts, hostname=hostname, disk=disk)
    return dataclasses.replace(machine, findings=(*removed, *machine.findings))


def parse_machine(
    capabilities: str,
    devices: Iterable[str] = (),
    *,
    hostname: str | None = None,
    disk: Disk | None = None,
) -> Machine:
    """Return the machine that texts of libvirt describe. Pure; O(length).

    :param capabilities: the text that ``virConnectGetCapabilities`` returns
    :param devices: the texts that ``virNodeDeviceGetXMLDesc`` returns; devices other than PCI
        devices, network interfaces and vDPA devices are ignored
    :raises DiscoveryError: if the capabilities are no such XML, or a required element is missing

    >>> machine = parse_machine('''
    ...   <capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells num="1"><cell id="0">
    ...     <memory unit="KiB">1048576</memory>
    ...     <cpus num="2"><cpu id="0" socket_id="0" core_id="0" siblings="0-1"/>
    ...                   <cpu id="1" socket_id="0" core_id="0" siblings="0-1"/></cpus>
    ...   </cell></cells></topology></host></capabilities>''', ['''
    ...   <device><name>pci_0000_3b_00_0</name><capability type="pci"><class>0x030200</class>
    ...     <domain>0</domain><bus>59</bus><slot>0</slot><function>0</function>
    ...     <product id="0x2330"/><vendor id="0x10de"/><numa node="0"/></capability></device>'''])
    >>> machine.cores[0].cpus, machine.memory_mb, machine.devices[0].address
    ((0, 1), 1024, '0000:3b:00.0')
    >>> parse_machine("<capabilities/>")
    Traceback (most recent call last):
    resource_objects.exceptions.DiscoveryError: libvirt capabilities cannot be read: no <host> ...
    """
    host = _parse(_CAPABILITIES, capabilities, "capabilities").child("host")
    findings: list[Finding] = []
    topology = host.child("topology")
    elements = _cell_elements(topology)
    cpus = {number: tuple(_read_cpus(element)) for number, element in elements.items()}
    all_cpus = sorted((cpu for of_cell in cpus.values() for cpu in of_cell), key=lambda cpu: cpu.id)
    if not any(cpu.siblings for cpu in all_cpus):
        raise DiscoveryError(_CAPABILITIES, "no <cpu> with siblings; expected one CPU online")
    nearest = _read_initiators(topology)
    cells = tuple(
        _read_cell(number, element, cpus[number], tuple(elements), nearest, findings)
        for number, element in elements.items()
    )
    try:
        return Machine(
            cpus=tuple(cpu.id for cpu in all_cpus if cpu.siblings),
            offline_cpus=tuple(cpu.id for cpu in all_cpus if not cpu.siblings),
            cores=tuple(_cores(all_cpus, findings)),
            cells=cells,
            memory_bytes=sum(cell.memory_bytes for cell in cells),
            huge_pages=sum_huge_pages(cells),
            architecture=host.text("cpu/arch"),
            hostname=hostname,
            disk=disk,
            devices=_read_devices(devices, findings),
            findings=tuple(findings),
        )
    except InvalidInput as error:  # the elements are well-formed and contradict each other
        raise DiscoveryError(_CAPABILITIES, str(error)) from error


# --- XML ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Node:
    """An XML element, with the subject that its errors name."""

    subject: str
    element: Element

    def child(self, tag: str) -> _Node:
        child = self.element.find(tag)
        if child is None:
            raise DiscoveryError(self.subject, f"no <{tag}> in <{self.element.tag}>")
        return _Node(self.subject, child)

    def all(self, path: str) -> list[_Node]:
        return [_Node(self.subject, element) for element in self.element.findall(path)]

    def capability(self, kind: str) -> _Node | None:
        return next((n for n in self.all("capability") if n.element.get("type") == kind), None)

    def text(self, path: str) -> str | None:
        return (self.element.findtext(path) or "").strip() or None

    def number(self, text: str | None, name: str, base: int = 10) -> int:
        form = r"0[xX][0-9a-fA-F]{1,8}|[0-9]{1,18}" if base == 0 else r"[0-9]{1,18}"
        if text is None or not re.fullmatch(form, text.strip()):
            raise DiscoveryError(self.subject, f"{name} is {text!r}; expected a number")
        text = text.strip()
        return int(text, 16) if text[:2] in ("0x", "0X") else int(text)

    def attribute(self, name: str, base: int = 10) -> int:
        return self.number(self.element.get(name), f"{name} of <{self.element.tag}>", base)

    def optional_attribute(self, name: str) -> int | None:
        return None if self.element.get(name) is None else self.attribute(name)

    def size(self, count: str | None, name: str) -> int:
        """Return a size in bytes; the element has its unit."""
        unit = self.element.get("unit", "KiB")
        if unit not in _UNITS:
            detail = f"unit of {name} is {unit!r}; one of {', '.join(_UNITS)}"
            raise DiscoveryError(self.subject, detail)
        return self.number(count, name) * _UNITS[unit]


def _parse(subject: str, text: object, root: str) -> _Node:
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise DiscoveryError(subject, f"expected XML text of at most {MAX_LENGTH} characters")
    parser = DefusedXMLParser(forbid_dtd=True)
    try:
        parser.feed(text)
        element: Element = parser.close()
    except DefusedXmlException:
        line = parser.parser.CurrentLineNumber
        detail = f"line {line}: no document type and no entities are expected"
        raise DiscoveryError(subject, detail) from None
    except ParseError as error:
        reason = expat.ErrorString(error.code)
        raise DiscoveryError(subject, f"line {error.position[0]}: {reason}; expected XML") from None
    except UnicodeEncodeError as error:
        letter = error.object[error.start : error.end]
        raise DiscoveryError(subject, f"{letter!r} is no character; expected XML") from None
    level = [element]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in parent]
    if level:
        raise DiscoveryError(subject, f"expected at most {MAX_DEPTH} levels")
    if element.tag != root:
        raise DiscoveryError(subject, f"the root is <{element.tag}>; expected <{root}>")
    return _Node(subject, element)


# --- cells and CPUs -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _CPU:
    """A CPU of a cell; offline if it has no siblings."""

    id: int
    package_id: int | None
    core_id: int | None
    siblings: tuple[int, ...]


def _cell_elements(topology: _Node) -> dict[int, _Node]:
    cells = topology.child("cells").all("cell")
    by_id = {cell.attribute("id"): cell.element for cell in cells}
    if len(by_id) < len(cells):
        raise DiscoveryError(_CAPABILITIES, "a <cell> comes twice")
    return {
        number: _Node(f"{_CAPABILITIES}: cell {number}", by_id[number]) for number in sorted(by_id)
    }


def _read_cpus(cell: _Node) -> Iterator[_CPU]:
    for cpu in cell.all("cpus/cpu"):
        number, text = cpu.attribute("id"), cpu.element.get("siblings")
        try:
            siblings = () if text is None else CPUSet.parse(text, "siblings")
        except InvalidInput as error:
            raise DiscoveryError(f"{cell.subject}: CPU {number}", str(error)) from error
        package = cpu.optional_attribute("socket_id")
        yield _CPU(number, package, cpu.optional_attribute("core_id"), siblings)


def _cores(cpus: Iterable[_CPU], findings: list[Finding]) -> Iterator[Core]:
    """Yield the cores of the online CPUs, in the order of their first CPU."""
    online = {cpu.id: cpu for cpu in cpus if cpu.siblings}
    assigned: set[int] = set()
    for number, cpu in online.items():
        if number in assigned:
            continue
        core = tuple(n for n in cpu.siblings if n in online and n not in assigned)
        if number not in core:
            detail = "it is not among its own siblings; taken as a core"
            findings.append(Finding(f"{_CAPABILITIES}: CPU {number}", detail=detail))
            core = (number,)
        assigned.update(core)
        yield Core(cpu.package_id, cpu.core_id, core)


def _read_cell(
    number: int,
    cell: _Node,
    cpus: tuple[_CPU, ...],
    ids: tuple[int, ...],
    nearest: Mapping[int, tuple[int, ...]],
    findings: list[Finding],
) -> NUMACell:
    # libvirt leaves the memory out if a node has none
    size = sum(memory.size(memory.element.text, "memory") for memory in cell.all("memory")[:1])
    counts = {
        pages.size(pages.element.get("size"), "size of <pages>"): pages.number(
            pages.element.text, "count of <pages>"
        )
        for pages in cell.all("pages")
    }
    pages = tuple(Pages(size, counts[size]) for size in sorted(counts) if size)
    surplus = sum(of_size.memory_bytes for of_size in pages) - size
    if surplus > 0:
        subject = f"{_CAPABILITIES}: pages of cell {number}"
        detail = f"{surplus} bytes more than its memory; left out"
        findings.append(Finding(subject, detail=detail))
        pages = ()
    distances = {
        sibling.attribute("id"): sibling.attribute("value")
        for sibling in cell.all("distances/sibling")
    }
    if distances and set(distances) != set(ids):
        subject = f"{_CAPABILITIES}: distances of cell {number}"
        findings.append(Finding(subject, detail="not one for each cell; left out"))
        distances = {}
    online = [cpu for cpu in cpus if cpu.siblings]
    packages = {cpu.package_id for cpu in online}
    return NUMACell(
        number,
        tuple(sorted(cpu.id for cpu in online)),
        size,
        pages=pages,
        package_id=packages.pop() if len(packages) == 1 else None,
        distances=tuple(distances[cell_id] for cell_id in ids if distances),
        initiators=() if online else nearest.get(number, ()),
    )


def _read_initiators(topology: _Node) -> dict[int, tuple[int, ...]]:
    """Return, by cell, the cells that reach its memory best: with the lowest latency.

    Without latencies, those with the highest bandwidth. Only figures of reads or of any access
    count.
    """
    figures: dict[int, dict[int, int]] = defaultdict(dict)
    for tag, sign in (("latency", 1), ("bandwidth", -1)):
        for access in topology.all(f"interconnects/{tag}"):
            kind, cache = access.element.get("type"), access.element.get("cache")
            if kind in ("read", "access") and cache is None:
                target, initiator = access.attribute("target"), access.attribute("initiator")
                figures[target].setdefault(initiator, sign * access.attribute("value"))
        if figures:
            break
    return {
        target: tuple(sorted(n for n in values if values[n] == min(values.values())))
        for target, values in figures.items()
    }


# --- devices --------------------------------------------------------------------------------------


def _read_devices(texts: Iterable[str], findings: list[Finding]) -> tuple[PCIDevice, ...]:
    """Return the PCI devices by address, with their interfaces and vDPA devices."""
    nodes: list[_Node] = []
    for text in texts:
        try:
            node = _parse(_NODE_DEVICE, text, "device")
        except DiscoveryError as error:
            findings.append(Finding(error.name, detail=error.detail))
        else:
            name = node.text("name") or f"{_NODE_DEVICE} {len(nodes)}"
            nodes.append(_Node(name, node.element))
    interfaces, vdpa = _read_children(nodes)
    devices: dict[str, PCIDevice] = {}
    for node in nodes:
        if node.capability("pci") is None:
            continue
        name = node.subject
        try:
            device = _read_device(node, interfaces[name], vdpa[name])
        except DiscoveryError as error:
            findings.append(Finding(error.name, detail=error.detail))
        except InvalidInput as error:
            findings.append(Finding(name, detail=str(error)))
        else:
            devices[device.address] = device
    return order_devices(devices.values())


def _read_children(
    nodes: Iterable[_Node],
) -> tuple[Mapping[str, list[NetworkInterface]], Mapping[str, list[str]]]:
    """Return the network interfaces and the vDPA devices, by the name of their PCI device."""
    by_name = {node.subject: node for node in nodes}
    interfaces: dict[str, list[NetworkInterface]] = defaultdict(list)
    vdpa: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        net = node.capability("net")
        interface = None if net is None else net.text("interface")
        if net is not None and interface is not None:
            device = NetworkInterface(interface, net.text("address"))
            interfaces[_pci_ancestor(node, by_name)].append(device)
        if node.capability("vdpa") is not None:
            vdpa[_pci_ancestor(node, by_name)].append(node.subject.removeprefix("vdpa_"))
    return interfaces, vdpa


def _pci_ancestor(node: _Node, by_name: Mapping[str, _Node]) -> str:
    """Return the name of the PCI device that a device is below, however far; "" if none."""
    visited: set[str] = set()
    name = node.text("parent") or ""
    while name in by_name and name not in visited and by_name[name].capability("pci") is None:
        visited.add(name)
        name = by_name[name].text("parent") or ""
    if name not in by_name and (match := _PCI_NAME.match(name)):
        return match[0]
    return name


def _read_device(node: _Node, interfaces: Iterable[NetworkInterface], vdpa: list[str]) -> PCIDevice:
    pci = node.capability("pci")
    assert pci is not None, "its caller checked that"
    address = _format_address(pci.number(pci.text(part), f"<{part}>", base=0) for part in _ADDRESS)
    parent = None
    if (capability := pci.capability("phys_function")) is not None:
        function = capability.child("address")
        parent = _format_address(function.attribute(part, base=0) for part in _ADDRESS)
    total = count = None
    if (capability := pci.capability("virt_functions")) is not None:
        count = len(capability.all("address"))
        maximum = capability.element.get("maxCount")
        total = count if maximum is None else capability.number(maximum, "maxCount")
    numa = pci.element.find("numa")
    numa_node = None
    if numa is not None and numa.get("node") != "-1":
        numa_node = pci.number(numa.get("node"), "node of <numa>")
    class_id = pci.text("class")
    if class_id is not None and not re.fullmatch(r"0x[0-9a-fA-F]{1,6}", class_id):
        raise DiscoveryError(pci.subject, f"<class> is {class_id!r}; expected 0x and six digits")
    return PCIDevice(
        address,
        vendor_id=_read_id(pci, "vendor"),
        product_id=_read_id(pci, "product"),
        class_id=_UNCLASSIFIED if class_id is None else f"{int(class_id, 16):06x}",
        numa_node=numa_node,
        kind=device_kind(parent, vdpa, total or count),
        parent_address=parent,
        sriov_totalvfs=total,
        sriov_numvfs=count,
        driver=node.text("driver/name"),
        interfaces=tuple(sorted(interfaces, key=lambda interface: interface.name)),
        vdpa=tuple(sorted(vdpa, key=lambda name: (len(name), name))),
        mediated_types=tuple(_read_mediated_types(pci)),
    )


def _format_address(parts: Iterable[int]) -> str:
    domain, bus, slot, function = parts
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _read_id(pci: _Node, tag: str) -> str:
    text = pci.child(tag).element.get("id") or ""
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,4}", text):
        raise DiscoveryError(pci.subject, f"id of <{tag}> is {text!r}; expected 0x and digits")
    return f"{int(text, 16):04x}"


def _read_mediated_types(pci: _Node) -> Iterator[MediatedType]:
    capability = pci.capability("mdev_types")
    for kind in () if capability is None else capability.all("type"):
        count = kind.text("availableInstances")
        available = None if count is None else kind.number(count, "<availableInstances>")
        yield MediatedType(
            id=kind.element.get("id") or "",
            name=kind.text("name"),
            available=available,
            device_api=kind.text("deviceAPI"),
        )
