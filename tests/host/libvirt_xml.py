"""The XML that libvirt would show of a machine, and a connection that shows it.

Written after libvirt's own examples: indented, single quotes, cells with their caches between what
matters, node devices of other kinds among those of PCI.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from resource_objects.host.machine import Core, DeviceKind, Machine, NUMACell, PCIDevice
from resource_objects.resources.numa.cpuset import CPUSet


def told(machine: Machine) -> Machine:
    """Return the facts of a machine that libvirt reports."""
    return dataclasses.replace(
        machine,
        memory_bytes=sum(cell.memory_bytes for cell in machine.cells),
        cells=tuple(
            dataclasses.replace(
                cell, pages=tuple(dataclasses.replace(page, free=None) for page in cell.pages)
            )
            for cell in machine.cells
        ),
        huge_pages=tuple(dataclasses.replace(page, free=None) for page in machine.huge_pages),
        devices=tuple(map(_told, machine.devices)),
    )


def _told(device: PCIDevice) -> PCIDevice:
    types = (dataclasses.replace(item, description=None) for item in device.mediated_types)
    return dataclasses.replace(
        device,
        revision=None,
        subsystem_vendor_id=None,
        subsystem_product_id=None,
        uuid=None,
        mediated_types=tuple(types),
    )


def capabilities(machine: Machine) -> str:
    """Return the XML of its capabilities."""
    offline = list(machine.offline_cpus)
    cells = "".join(
        _cell(machine, cell, offline if number == 0 else [])
        for number, cell in enumerate(machine.cells)
    )
    return f"""<capabilities>

  <host>
    <uuid>4c4c4544-0035-4b10-8053-b4c04f4b4c32</uuid>
    <cpu>
      <arch>{machine.architecture}</arch>
      <model>Cascadelake-Server-noTSX</model>
      <topology sockets='1' dies='1' cores='4' threads='2'/>
      <pages unit='KiB' size='4'/>
    </cpu>
    <topology>
      <cells num='{len(machine.cells)}'>
{cells}      </cells>
{_interconnects(machine)}    </topology>
    <secmodel>
      <model>apparmor</model>
      <doi>0</doi>
    </secmodel>
  </host>

  <guest>
    <os_type>hvm</os_type>
    <arch name='x86_64'/>
  </guest>

</capabilities>
"""


def _cell(machine: Machine, cell: NUMACell, offline: list[int]) -> str:
    pages = "".join(
        f"          <pages unit='KiB' size='{page.size_bytes // 1024}'>{page.total}</pages>\n"
        for page in cell.pages
    )
    pairs = zip(machine.cells, cell.distances, strict=False)
    siblings = "".join(f"            <sibling id='{o.id}' value='{d}'/>\n" for o, d in pairs)
    distances = f"          <distances>\n{siblings}          </distances>\n" if siblings else ""
    core_of = {cpu: core for core in machine.cores for cpu in core.cpus}
    cpus = "".join(_cpu(cpu, core_of[cpu]) for cpu in cell.cpus)
    cpus += "".join(f"            <cpu id='{cpu}'/>\n" for cpu in offline)
    kib = cell.memory_bytes // 1024
    memory = f"          <memory unit='KiB'>{kib}</memory>\n" if kib else ""
    return f"""        <cell id='{cell.id}'>
{memory}{pages}{distances}          <cache level='1' associativity='direct' policy='writeback'>
            <size value='10' unit='KiB'/>
            <line value='8' unit='B'/>
          </cache>
          <cpus num='{len(cell.cpus) + len(offline)}'>
{cpus}          </cpus>
        </cell>
"""


def _cpu(cpu: int, core: Core) -> str:
    return (
        f"            <cpu id='{cpu}' socket_id='{core.package_id}' die_id='0' cluster_id='0' "
        f"core_id='{core.core_id}' siblings='{CPUSet(core.cpus)}'/>\n"
    )


def _interconnects(machine: Machine) -> str:
    near = {
        initiator for cell in machine.cells for initiator in cell.initiators
    }  # maybe all CPUs offline
    with_cpus = [cell.id for cell in machine.cells if cell.cpus or cell.id in near]
    lines = "".join(
        f"        <latency initiator='{cpu}' target='{cell.id}' type='{kind}' value='{value}'/>\n"
        for cell in machine.cells
        if cell.initiators
        for cpu in with_cpus
        for kind, value in (("read", 7 if cpu in cell.initiators else 20), ("write", 3))
    )
    return f"      <interconnects>\n{lines}      </interconnects>\n" if lines else ""


def devices(machine: Machine) -> Iterator[str]:
    """Yield the XML of its node devices: the root, PCI devices and what is made of them, a disk."""
    yield "<device>\n  <name>computer</name>\n  <capability type='system'/>\n</device>\n"
    for device in machine.devices:
        yield _pci(machine, device)
        name = _name(device.address)
        for interface in device.interfaces:
            address = f"    <address>{interface.mac}</address>\n" if interface.mac else ""
            suffix = (interface.mac or "").replace(":", "_")
            yield (
                f"<device>\n  <name>net_{interface.name}_{suffix}</name>\n"
                f"  <parent>{name}</parent>\n  <capability type='net'>\n"
                f"    <interface>{interface.name}</interface>\n{address}"
                "    <capability type='80203'/>\n  </capability>\n</device>\n"
            )
        for interface in device.vdpa:
            yield (
                f"<device>\n  <name>vdpa_{interface}</name>\n  <parent>{name}</parent>\n"
                "  <driver>\n    <name>vhost_vdpa</name>\n  </driver>\n"
                "  <capability type='vdpa'>\n    <chardev>/dev/vhost-vdpa-0</chardev>\n"
                "  </capability>\n</device>\n"
            )
    yield "<device>\n  <name>block_sda</name>\n  <capability type='storage'/>\n</device>\n"


def _name(address: str) -> str:
    return f"pci_{address.replace(':', '_').replace('.', '_')}"


def _at(address: str) -> tuple[int, int, int, int]:
    domain, bus, remainder = address.split(":")
    slot, function = remainder.split(".")
    return int(domain, 16), int(bus, 16), int(slot, 16), int(function, 16)


def _address(address: str) -> str:
    domain, bus, slot, function = _at(address)
    return (
        f"      <address domain='0x{domain:04x}' bus='0x{bus:02x}' slot='0x{slot:02x}' "
        f"function='0x{function:x}'/>\n"
    )


def _pci(machine: Machine, device: PCIDevice) -> str:
    domain, bus, slot, function = _at(device.address)
    driver = f"  <driver>\n    <name>{device.driver}</name>\n  </driver>\n"
    numa = "" if device.numa_node is None else f"    <numa node='{device.numa_node}'/>\n"
    return f"""<device>
  <name>{_name(device.address)}</name>
  <path>/sys/devices/pci0000:00/{device.address}</path>
  <parent>pci_0000_00_01_0</parent>
{driver if device.driver else ""}  <capability type='pci'>
    <class>0x{device.class_id}</class>
    <domain>{domain}</domain>
    <bus>{bus}</bus>
    <slot>{slot}</slot>
    <function>{function}</function>
    <product id='0x{device.product_id}'>Something &amp; Co.</product>
    <vendor id='0x{device.vendor_id}'>Some Corporation</vendor>
{_sriov(machine, device)}{_mediated(device)}    <iommuGroup number='31'>
{_address(device.address)}    </iommuGroup>
{numa}    <pci-express>
      <link validity='cap' port='0' speed='2.5' width='4'/>
      <link validity='sta' width='0'/>
    </pci-express>
  </capability>
</device>
"""


def _sriov(machine: Machine, device: PCIDevice) -> str:
    if device.parent_address is not None:
        kind, addresses = "phys_function", _address(device.parent_address)
        return f"    <capability type='{kind}'>\n{addresses}    </capability>\n"
    if device.kind is not DeviceKind.PF:
        return ""
    functions = [
        function for function in machine.devices if function.parent_address == device.address
    ]
    addresses = "".join(_address(function.address) for function in functions)
    most = f" maxCount='{device.sriov_totalvfs}'"
    if not addresses:
        return f"    <capability type='virt_functions'{most}/>\n"
    return f"    <capability type='virt_functions'{most}>\n{addresses}    </capability>\n"


def _mediated(device: PCIDevice) -> str:
    if not device.mediated_types:
        return ""
    types = ""
    for item in device.mediated_types:
        values = (
            ("name", item.name),
            ("deviceAPI", item.device_api),
            ("availableInstances", item.available),
        )
        lines = "".join(
            f"        <{tag}>{escape(str(text))}</{tag}>\n"
            for tag, text in values
            if text is not None
        )
        types += f"      <type id={quoteattr(item.id)}>\n{lines}      </type>\n"
    return f"    <capability type='mdev_types'>\n{types}    </capability>\n"


@dataclasses.dataclass
class NodeDevice:
    """A ``virNodeDevice``."""

    text: str | Exception

    def name(self) -> str:
        return "pci_0000_99_00_0"

    def XMLDesc(self, flags: int) -> str:  # noqa: N802
        if isinstance(self.text, Exception):
            raise self.text
        return self.text


@dataclasses.dataclass
class Connection:
    """A ``virConnect`` to a machine; ``broken`` is an error that its capabilities raise."""

    machine: Machine
    broken: Exception | None = None
    more: tuple[str | Exception, ...] = ()

    def getCapabilities(self) -> str:  # noqa: N802
        if self.broken is not None:
            raise self.broken
        return capabilities(self.machine)

    def getHostname(self) -> str:  # noqa: N802
        return self.machine.hostname or "compute"

    def listAllDevices(self, flags: int = 0) -> list[NodeDevice]:  # noqa: N802
        return [NodeDevice(text) for text in (*devices(self.machine), *self.more)]
