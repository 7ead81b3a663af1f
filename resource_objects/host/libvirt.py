"""Reading a machine from libvirt: the XML of a connection's capabilities and of its node devices.

An agent beside libvirt has two kinds of text: what ``virConnectGetCapabilities`` says of the host,
and what ``virNodeDeviceGetXMLDesc`` says of each device. :func:`parse_machine` makes the facts of
them, :func:`read_machine` asks a connection for them. libvirt itself is not imported: a connection
is anything with the methods of libvirt-python.

======================  ===========================================================================
of the capabilities     architecture; cells with their memory, pages, distances and CPUs; of each
                        CPU its socket, core and siblings; which cells reach a memory best
of PCI devices          ids, class, NUMA node, driver, what they are to SR-IOV, types of mediated
                        devices
of other devices        the network interfaces and vDPA devices that are made of a PCI device
======================  ===========================================================================

What libvirt does not tell is unknown: free pages, revisions and subsystems of devices, uuids of
GPUs. A device whose class it does not tell, as older versions do not, has the class ``000000``: it
is unclassified. A CPU without siblings is offline. The machine's memory is that of its cells.

One bad fact does not cost the machine. Without ``<cells>`` and a CPU that is online there is no
machine. A cell without ``<memory>`` has none (libvirt leaves the element out), and one without
``<cpus>`` has no CPUs. Pages that are more than the memory of their cell, distances that are not
one per cell, and a device that does not describe itself or was removed meanwhile are left out, and
a :class:`~resource_objects.findings.Finding` names each.

XML comes from another process: a document type, and so every entity, is refused before anything
else of the text is read.

Sources: libvirt, *Driver capabilities XML format* and *Node devices XML format*; for which devices
are asked for, ``nova/virt/libvirt/host.py``.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from resource_objects.exceptions import DiscoveryError, InvalidInput
from resource_objects.findings import Finding
from resource_objects.host.linux import read_disk
from resource_objects.host.machine import (
    Core,
    DeviceKind,
    Disk,
    Machine,
    MediatedType,
    NetworkInterface,
    NUMACell,
    Pages,
    PCIDevice,
)
from resource_objects.resources.numa.cpuset import CPUSet

__all__ = ["Connection", "parse_machine", "read_machine"]

#: Characters of a text, far more than 1,000 CPUs take; and elements within elements.
MAX_LENGTH = 32 * 1024 * 1024
MAX_DEPTH = 64

#: ``virConnectListAllNodeDevicesFlags``: PCI devices, network interfaces, vDPA devices.
_KINDS_ASKED = 1 << 1 | 1 << 4 | 1 << 17
_UNITS = {"b": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_UNCLASSIFIED = "000000"
_NODE_DEVICE = "node device"
_CAPABILITIES = "libvirt capabilities"


class Connection(Protocol):
    """What is asked of a connection: a ``virConnect`` of libvirt-python has it."""

    def getCapabilities(self) -> str: ...  # noqa: N802  # libvirt's names

    def getHostname(self) -> str: ...  # noqa: N802

    def listAllDevices(self, flags: int = 0) -> Iterable[Any]:  # noqa: N802
        """Return node devices, each with ``name()`` and ``XMLDesc(flags)``."""
        ...


def read_machine(
    connection: Connection, *, hostname: str | None = None, disk_path: str | None = None
) -> Machine:
    """Return the machine that a connection of libvirt is to.

    Costs a call for the capabilities and one for each device.

    :param connection: an open ``virConnect``, or anything that has these methods
    :param hostname: by default what the connection says
    :param disk_path: where disks of guests go, on this machine; without it no disk is known
    :raises DiscoveryError: if libvirt does not answer, or as :func:`parse_machine`
    :raises InvalidInput: if it is no connection
    """
    for method in ("getCapabilities", "listAllDevices"):
        if not callable(getattr(connection, method, None)):
            raise InvalidInput(
                "value", "libvirt connection", connection, f"an object with {method}()"
            )
    try:
        capabilities = connection.getCapabilities()
        name = connection.getHostname() if hostname is None else hostname
        listed = list(connection.listAllDevices(_KINDS_ASKED))
    except Exception as error:  # libvirt's own errors cannot be imported; none is swallowed
        raise DiscoveryError("libvirt", f"{type(error).__name__}: {error}") from error
    texts: list[str] = []
    gone: list[Finding] = []
    for device in listed:
        try:
            texts.append(device.XMLDesc(0))
        except Exception as error:  # it went since it was listed, or has no description: told
            gone.append(Finding(_name_of(device), detail=f"{type(error).__name__}: {error}"))
    disk = None if disk_path is None else read_disk(disk_path)
    machine = parse_machine(capabilities, texts, hostname=name, disk=disk)
    return dataclasses.replace(machine, findings=(*gone, *machine.findings)) if gone else machine


def _name_of(device: Any) -> str:
    name = getattr(device, "name", None)
    return str(name()) if callable(name) else _NODE_DEVICE


def parse_machine(
    capabilities: str,
    devices: Iterable[str] = (),
    *,
    hostname: str | None = None,
    disk: Disk | None = None,
) -> Machine:
    """Return the machine that texts of libvirt describe. Pure; O(length).

    :param capabilities: as ``virConnectGetCapabilities`` returns it
    :param devices: as ``virNodeDeviceGetXMLDesc`` returns each; those that are no PCI devices,
        network interfaces or vDPA devices do not matter
    :raises DiscoveryError: if the capabilities are no such XML; what is missing is named

    >>> machine = parse_machine('''
    ...   <capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells num="1"><cell id="0">
    ...     <memory unit="KiB">1048576</memory>
    ...     <cpus num="2"><cpu id="0" socket_id="0" core_id="0" siblings="0-1"/>
    ...                   <cpu id="1" socket_id="0" core_id="0" siblings="0-1"/></cpus>
    ...   </cell></cells></topology></host></capabilities>''', ['''
    ...   <device><name>pci_0000_3b_00_0</name><capability type="pci"><class>0x030200</class>
    ...     <domain>0</domain><bus>59</bus><slot>0</slot><function>0</function>
    ...     <product id="0x2330"/><vendor id="0x10de"/><numa node="0"/></capability></device>'''])
    >>> machine.thread_siblings, machine.memory_mb, machine.devices[0].address
    (((0, 1),), 1024, '0000:3b:00.0')
    >>> parse_machine("<capabilities/>")
    Traceback (most recent call last):
    resource_objects.exceptions.DiscoveryError: libvirt capabilities cannot be read: no <host> ...
    """
    root = _parsed(_CAPABILITIES, capabilities, "capabilities")
    host = _child(_CAPABILITIES, root, "host")
    findings: list[Finding] = []
    cells = _Cells(_child(_CAPABILITIES, host, "topology"), findings)
    try:
        return Machine(
            cpus=cells.cpus,
            offline_cpus=cells.offline,
            cores=cells.cores,
            cells=cells.cells,
            memory_bytes=sum(cell.memory_bytes for cell in cells.cells),
            huge_pages=_huge_pages(cells.cells),
            architecture=_text(host, "cpu/arch"),
            hostname=hostname,
            disk=disk,
            devices=_devices(devices, findings),
            findings=tuple(findings),
        )
    except InvalidInput as error:  # elements that are well-formed each and contradict each other
        raise DiscoveryError(_CAPABILITIES, str(error)) from error


# --- XML of another process -----------------------------------------------------------------------


def _parsed(subject: str, text: object, root: str) -> Element:
    """Return the root of an XML text, which has to be of a name.

    :raises DiscoveryError: naming the line, if it is no XML or has a document type
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise DiscoveryError(subject, f"expected XML text of at most {MAX_LENGTH} characters")
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    depth = 0

    def refuse(*_: object) -> None:
        detail = f"line {parser.CurrentLineNumber}: no document type and no entities are expected"
        raise DiscoveryError(subject, detail)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            detail = f"line {parser.CurrentLineNumber}: expected at most {MAX_DEPTH} levels"
            raise DiscoveryError(subject, detail)
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.buffer_text = True
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        raise DiscoveryError(subject, f"line {error.lineno}: {what}; expected XML") from None
    except UnicodeEncodeError as error:
        letter = error.object[error.start : error.end]
        raise DiscoveryError(subject, f"{letter!r} is no character; expected XML") from None
    found = builder.close()
    if found.tag != root:
        raise DiscoveryError(subject, f"the root is <{found.tag}>; expected <{root}>")
    return found


def _child(subject: str, above: Element, tag: str) -> Element:
    found = above.find(tag)
    if found is None:
        raise DiscoveryError(subject, f"no <{tag}> in <{above.tag}>")
    return found


def _text(above: Element, path: str) -> str | None:
    """Return the text of an element, None if there is none."""
    return (above.findtext(path) or "").strip() or None


def _number(subject: str, text: str | None, what: str, base: int = 10) -> int:
    """Return a whole number that is written as libvirt writes them."""
    form = r"0[xX][0-9a-fA-F]{1,8}|[0-9]{1,18}" if base == 0 else r"[0-9]{1,18}"
    if text is None or not re.fullmatch(form, text.strip()):
        raise DiscoveryError(subject, f"{what} is {text!r}; expected a number")
    return int(text, 16) if text.strip()[:2] in ("0x", "0X") else int(text)


def _attribute(subject: str, element: Element, name: str) -> int:
    return _number(subject, element.get(name), f"{name} of <{element.tag}>")


def _size(subject: str, element: Element, count: str | None, what: str) -> int:
    """Return a size in bytes, of an element that has its unit."""
    unit = element.get("unit", "KiB")
    if unit not in _UNITS:
        raise DiscoveryError(subject, f"unit of {what} is {unit!r}; one of {', '.join(_UNITS)}")
    return _number(subject, count, what) * _UNITS[unit]


# --- cells and CPUs -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _CPU:
    """A CPU of a cell; without siblings it is offline."""

    id: int
    package_id: int | None
    core_id: int | None
    siblings: tuple[int, ...]


class _Cells:
    """The cells of a topology, and the cores of its CPUs."""

    def __init__(self, topology: Element, findings: list[Finding]) -> None:
        self._findings = findings
        elements = _child(_CAPABILITIES, topology, "cells").findall("cell")
        ids = [_attribute(_CAPABILITIES, one, "id") for one in elements]
        by_id = dict(sorted(zip(ids, elements, strict=True), key=lambda pair: pair[0]))
        if len(by_id) < len(ids):
            raise DiscoveryError(_CAPABILITIES, "a <cell> comes twice")
        cpus = {number: tuple(self._cpus(number, one)) for number, one in by_id.items()}
        every = sorted((cpu for some in cpus.values() for cpu in some), key=lambda cpu: cpu.id)
        self.cpus = tuple(cpu.id for cpu in every if cpu.siblings)
        self.offline = tuple(cpu.id for cpu in every if not cpu.siblings)
        if not self.cpus:
            raise DiscoveryError(_CAPABILITIES, "no <cpu> with siblings; expected one CPU online")
        self.cores = tuple(self._cores(every))
        near = _initiators(topology)
        self.cells = tuple(
            self._cell(number, one, cpus[number], tuple(by_id), near)
            for number, one in by_id.items()
        )

    def _cpus(self, number: int, cell: Element) -> Iterator[_CPU]:
        subject = f"{_CAPABILITIES}: cell {number}"
        for one in cell.findall("cpus/cpu"):
            cpu = _attribute(subject, one, "id")
            said = one.get("siblings")
            siblings: tuple[int, ...] = ()
            if said is not None:
                try:
                    siblings = CPUSet.parse(said, "siblings")
                except InvalidInput as error:
                    raise DiscoveryError(f"{subject}: CPU {cpu}", str(error)) from error
            package = (
                None if one.get("socket_id") is None else _attribute(subject, one, "socket_id")
            )
            core = None if one.get("core_id") is None else _attribute(subject, one, "core_id")
            yield _CPU(cpu, package, core, siblings)

    def _cores(self, every: Iterable[_CPU]) -> Iterator[Core]:
        """Yield the cores of the online CPUs, in the order of their first CPU."""
        online = set(self.cpus)
        seen: set[int] = set()
        for cpu in every:
            if not cpu.siblings or cpu.id in seen:
                continue
            core = tuple(each for each in cpu.siblings if each in online and each not in seen)
            if cpu.id not in core:
                self._note(f"CPU {cpu.id}", "it is not among its own siblings; taken as a core")
                core = (cpu.id,)
            seen.update(core)
            yield Core(cpu.package_id, cpu.core_id, core)

    def _cell(
        self,
        number: int,
        cell: Element,
        cpus: tuple[_CPU, ...],
        ids: tuple[int, ...],
        near: Mapping[int, tuple[int, ...]],
    ) -> NUMACell:
        subject = f"{_CAPABILITIES}: cell {number}"
        memory = cell.find("memory")  # libvirt leaves it out where a node has none
        size = 0 if memory is None else _size(subject, memory, memory.text, "memory")
        online = [cpu for cpu in cpus if cpu.siblings]
        packages = {cpu.package_id for cpu in online}
        return NUMACell(
            number,
            tuple(sorted(cpu.id for cpu in online)),
            size,
            pages=self._pages(number, cell, size),
            package_id=packages.pop() if len(packages) == 1 else None,
            distances=self._distances(number, cell, ids),
            initiators=() if online else near.get(number, ()),
        )

    def _pages(self, number: int, cell: Element, size: int) -> tuple[Pages, ...]:
        subject = f"{_CAPABILITIES}: cell {number}"
        found: dict[int, int] = {}
        for one in cell.findall("pages"):
            page = _size(subject, one, one.get("size"), "size of <pages>")
            found[page] = _number(subject, one.text, "count of <pages>")
        pages = tuple(Pages(page, found[page]) for page in sorted(found) if page)
        more = sum(one.memory_bytes for one in pages) - size
        if more > 0:
            self._note(f"pages of cell {number}", f"{more} bytes more than its memory; left out")
            return ()
        return pages

    def _distances(self, number: int, cell: Element, ids: tuple[int, ...]) -> tuple[int, ...]:
        subject = f"{_CAPABILITIES}: cell {number}"
        said = {
            _attribute(subject, one, "id"): _attribute(subject, one, "value")
            for one in cell.findall("distances/sibling")
        }
        if said and set(said) != set(ids):
            self._note(f"distances of cell {number}", "not one for each cell; left out")
            return ()
        return tuple(said[each] for each in ids if said)

    def _note(self, subject: str, detail: str) -> None:
        self._findings.append(Finding(f"{_CAPABILITIES}: {subject}", detail=detail))


def _initiators(topology: Element) -> dict[int, tuple[int, ...]]:
    """Return the cells that reach a memory best, by its cell: with the least latency.

    Where no latencies are said, those with the most bandwidth. Only what holds of reading counts,
    or of any access.
    """
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for tag, sign in (("latency", 1), ("bandwidth", -1)):
        for one in topology.findall(f"interconnects/{tag}"):
            if one.get("type") in ("read", "access") and one.get("cache") is None:
                target = _attribute(_CAPABILITIES, one, "target")
                initiator = _attribute(_CAPABILITIES, one, "initiator")
                value = sign * _attribute(_CAPABILITIES, one, "value")
                found[target].setdefault(initiator, value)
        if found:
            break
    return {
        target: tuple(sorted(one for one in values if values[one] == min(values.values())))
        for target, values in found.items()
    }


def _huge_pages(cells: Iterable[NUMACell]) -> tuple[Pages, ...]:
    totals: Counter[int] = Counter()
    for pages in (pages for cell in cells for pages in cell.huge_pages):
        totals[pages.size_bytes] += pages.total
    return tuple(Pages(size, totals[size]) for size in sorted(totals))


# --- devices --------------------------------------------------------------------------------------


def _devices(texts: Iterable[str], findings: list[Finding]) -> tuple[PCIDevice, ...]:
    """Return the PCI devices by address, with what is made of them."""
    every: list[tuple[str, Element]] = []
    for text in texts:
        try:
            root = _parsed(_NODE_DEVICE, text, "device")
        except DiscoveryError as error:
            findings.append(Finding(error.name, detail=error.detail))
        else:
            every.append((_text(root, "name") or f"{_NODE_DEVICE} {len(every)}", root))
    made = _Made(every)
    found: dict[str, PCIDevice] = {}
    for name, root in every:
        pci = _capability(root, "pci")
        if pci is None:
            continue
        try:
            device = _device(name, root, pci, made)
        except DiscoveryError as error:
            findings.append(Finding(error.name, detail=error.detail))
        except InvalidInput as error:
            findings.append(Finding(name, detail=str(error)))
        else:
            found[device.address] = device
    split = {device.parent_address for device in found.values()}
    return tuple(
        dataclasses.replace(found[address], kind=DeviceKind.PF)
        if address in split and found[address].kind is DeviceKind.PCI
        else found[address]
        # a longer domain is a larger one
        for address in sorted(found, key=lambda address: (len(address), address))
    )


def _capability(above: Element, kind: str) -> Element | None:
    return next((one for one in above.findall("capability") if one.get("type") == kind), None)


class _Made:
    """What the kernel made of PCI devices: interfaces and vDPA devices, by the device's name."""

    def __init__(self, every: Iterable[tuple[str, Element]]) -> None:
        called = dict(every)
        self.interfaces: dict[str, list[NetworkInterface]] = defaultdict(list)
        self.vdpa: dict[str, list[str]] = defaultdict(list)
        for name, root in every:
            net = _capability(root, "net")
            interface = None if net is None else _text(net, "interface")
            if net is not None and interface is not None:
                below = self.interfaces[_above(root, called)]
                below.append(NetworkInterface(interface, _text(net, "address")))
            if _capability(root, "vdpa") is not None:
                self.vdpa[_above(root, called)].append(name.removeprefix("vdpa_"))


def _above(root: Element, every: Mapping[str, Element]) -> str:
    """Return the name of the PCI device that something is below, however far; "" if of none."""
    seen: set[str] = set()
    name = _text(root, "parent") or ""
    while name in every and name not in seen and _capability(every[name], "pci") is None:
        seen.add(name)
        name = _text(every[name], "parent") or ""
    if name not in every and (found := re.match(_BELOW, name)):
        return found[0]
    return name


#: The name of a PCI device.
_BELOW = r"pci_[0-9a-f]{4,8}_[0-9a-f]{2}_[0-9a-f]{2}_[0-7]$"


def _device(name: str, root: Element, pci: Element, made: _Made) -> PCIDevice:
    address = _address(*(_number(name, _text(pci, part), f"<{part}>", 0) for part in _PARTS))
    parent = _physical_function(name, pci)
    functions = _capability(pci, "virt_functions")
    total, count = _functions(name, functions)
    vdpa = tuple(sorted(made.vdpa[name], key=lambda one: (len(one), one)))
    numa = pci.find("numa")
    if parent is not None:
        kind = DeviceKind.VDPA if vdpa else DeviceKind.VF
    else:
        kind = DeviceKind.PF if total or count else DeviceKind.PCI
    return PCIDevice(
        address,
        vendor_id=_id(name, pci, "vendor"),
        product_id=_id(name, pci, "product"),
        class_id=_class(name, pci),
        numa_node=None if numa is None else _node(name, numa),
        kind=kind,
        parent_address=parent,
        sriov_totalvfs=total,
        sriov_numvfs=count,
        driver=_text(root, "driver/name"),
        interfaces=tuple(sorted(made.interfaces[name], key=lambda one: one.name)),
        vdpa=vdpa,
        mediated_types=tuple(_mediated_types(name, pci)),
    )


_PARTS = ("domain", "bus", "slot", "function")


def _address(domain: int, bus: int, slot: int, function: int) -> str:
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _id(subject: str, pci: Element, tag: str) -> str:
    said = _child(subject, pci, tag).get("id") or ""
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,4}", said):
        raise DiscoveryError(subject, f"id of <{tag}> is {said!r}; expected 0x and digits")
    return f"{int(said, 16):04x}"


def _class(subject: str, pci: Element) -> str:
    said = _text(pci, "class")
    if said is None:
        return _UNCLASSIFIED
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,6}", said):
        raise DiscoveryError(subject, f"<class> is {said!r}; expected 0x and six digits")
    return f"{int(said, 16):06x}"


def _node(subject: str, numa: Element) -> int | None:
    said = numa.get("node")
    return None if said == "-1" else _number(subject, said, "node of <numa>")


def _physical_function(subject: str, pci: Element) -> str | None:
    """Return the address of the physical function of a virtual one, None of any other."""
    capability = _capability(pci, "phys_function")
    if capability is None:
        return None
    address = _child(subject, capability, "address")
    parts = (_number(subject, address.get(part), f"{part} of <address>", 0) for part in _PARTS)
    return _address(*parts)


def _functions(subject: str, capability: Element | None) -> tuple[int | None, int | None]:
    """Return how many virtual functions there could be, and are; None without SR-IOV."""
    if capability is None:
        return None, None
    count = len(capability.findall("address"))
    said = capability.get("maxCount")
    return count if said is None else _number(subject, said, "maxCount"), count


def _mediated_types(subject: str, pci: Element) -> Iterator[MediatedType]:
    capability = _capability(pci, "mdev_types")
    for one in () if capability is None else capability.findall("type"):
        left = _text(one, "availableInstances")
        yield MediatedType(
            id=one.get("id") or "",
            name=_text(one, "name"),
            available=None if left is None else _number(subject, left, "<availableInstances>"),
            device_api=_text(one, "deviceAPI"),
        )
