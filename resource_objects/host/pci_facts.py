"""What a PCI function is: ids, place, SR-IOV, what the kernel has made of it. Facts only.

They are part of a :class:`~resource_objects.host.facts.Machine`, and say what a function is, never
whether it may be taken; which of them may, :mod:`resource_objects.host.rules` says.
"""

from __future__ import annotations

import dataclasses
import enum

from resource_objects.host._checks import (
    require,
    require_all,
    require_apart,
    require_integer,
    require_text,
)

__all__ = ["DeviceKind", "MediatedType", "NetworkInterface", "PCIDevice"]


class DeviceKind(enum.StrEnum):
    """What a PCI function is to SR-IOV, in Nova's words."""

    PCI = "type-PCI"  #: a function that cannot be split
    PF = "type-PF"  #: a physical function: it can have virtual functions, and may have none now
    VF = "type-VF"  #: a virtual function of the device at ``parent_address``
    VDPA = "vdpa"  #: a virtual function that serves as a vDPA device

    @property
    def is_part(self) -> bool:
        """Whether it is split off a physical function.

        >>> [kind.value for kind in DeviceKind if kind.is_part]
        ['type-VF', 'vdpa']
        """
        return self in (DeviceKind.VF, DeviceKind.VDPA)


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkInterface:
    """A network interface that the kernel has made of a function, with its MAC address if known.

    >>> NetworkInterface("enp96s0f0", "3c:ec:ef:01:02:03").name
    'enp96s0f0'
    """

    name: str
    mac: str | None = None

    def __post_init__(self) -> None:
        require_text("NetworkInterface.name", self.name)
        require_text("NetworkInterface.mac", self.mac, optional=True)


@dataclasses.dataclass(frozen=True, slots=True)
class MediatedType:
    """A type of mediated device (a vGPU) that the driver of a function can make.

    ``available`` is how many more of it could be made now; making one of another type may lower it.
    ``device_api`` is what the guest sees, ``vfio-pci``. What the driver does not say is None.

    >>> MediatedType("nvidia-256", name="GRID RTX6000-1Q", available=24).available
    24
    """

    id: str
    name: str | None = None
    available: int | None = None
    device_api: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        require_text("MediatedType.id", self.id)
        for name in ("name", "device_api", "description"):
            require_text(f"MediatedType.{name}", getattr(self, name), optional=True)
        require_integer("MediatedType.available", self.available, optional=True)


_TEXTS = ("address", "vendor_id", "product_id", "class_id")
_OPTIONAL_TEXTS = (
    "parent_address",
    "driver",
    "revision",
    "subsystem_vendor_id",
    "subsystem_product_id",
)


@dataclasses.dataclass(frozen=True, slots=True)
class PCIDevice:
    """A PCI function. Ids are lower-case hexadecimal without ``0x``, as ``lspci -n`` prints them.

    ``class_id`` has six digits: class, subclass, programming interface. ``numa_node`` is the id of
    a cell, None where the firmware does not say; ``parent_address`` is the physical function of a
    virtual one. ``sriov_totalvfs`` is how many virtual functions there could be and
    ``sriov_numvfs`` how many there are; None for a function without SR-IOV. ``interfaces`` are the
    network interfaces on it (of a switch also those that stand for its virtual functions),
    ``vdpa`` the vDPA devices made of it, both by name; ``mediated_types`` the types of mediated
    devices that it offers, by id.

    >>> PCIDevice("0000:3b:00.0", vendor_id="10de", product_id="2330", class_id="030200").kind
    <DeviceKind.PCI: 'type-PCI'>
    """

    address: str
    vendor_id: str
    product_id: str
    class_id: str
    numa_node: int | None = None
    kind: DeviceKind = DeviceKind.PCI
    parent_address: str | None = None
    sriov_totalvfs: int | None = None
    sriov_numvfs: int | None = None
    driver: str | None = None
    revision: str | None = None
    subsystem_vendor_id: str | None = None
    subsystem_product_id: str | None = None
    interfaces: tuple[NetworkInterface, ...] = ()
    vdpa: tuple[str, ...] = ()
    mediated_types: tuple[MediatedType, ...] = ()

    def __post_init__(self) -> None:
        for name in _TEXTS:
            require_text(f"PCIDevice.{name}", getattr(self, name))
        for name in _OPTIONAL_TEXTS:
            require_text(f"PCIDevice.{name}", getattr(self, name), optional=True)
        for name in ("numa_node", "sriov_totalvfs", "sriov_numvfs"):
            require_integer(f"PCIDevice.{name}", getattr(self, name), optional=True)
        is_kind = isinstance(self.kind, DeviceKind)
        require(is_kind, "PCIDevice.kind", self.kind, "a DeviceKind")
        has_parent = self.parent_address not in (None, self.address)
        good = has_parent if self.kind.is_part else self.parent_address is None
        expected = "another address for a VF, None for any other"
        require(good, "PCIDevice.parent_address", self.parent_address, expected)
        self._check_made_of_it()

    def _check_made_of_it(self) -> None:
        require_all("PCIDevice.interfaces", self.interfaces, NetworkInterface)
        require_all("PCIDevice.mediated_types", self.mediated_types, MediatedType)
        require_all("PCIDevice.vdpa", self.vdpa, str)
        names = ([each.name] for each in self.interfaces)
        require_apart("interface of PCIDevice.interfaces", names)
        ids = ([each.id] for each in self.mediated_types)
        require_apart("id of PCIDevice.mediated_types", ids)
