"""PCI functions from ``/sys/bus/pci/devices``: SR-IOV, interfaces, vDPA and mediated devices.

Source: the kernel's ``Documentation/ABI/testing/sysfs-bus-pci``, ``sysfs-bus-vdpa`` and
``sysfs-bus-vfio-mdev``, and ``Documentation/PCI/pci-iov-howto.rst``.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from resource_objects.host import _sysfs
from resource_objects.host._sysfs import Tree
from resource_objects.host.pci_facts import DeviceKind, MediatedType, NetworkInterface, PCIDevice

DEVICES = "/sys/bus/pci/devices"
VDPA = "/sys/bus/vdpa/devices"

# Domains above ffff exist (Intel VMD makes 10000:...).
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_VDPA = re.compile(r"vdpa[0-9]+")
#: What stands between a function and its interfaces where its driver is one of virtio.
_VIRTIO = re.compile(r"virtio[0-9]+")
#: 6 bytes of Ethernet, 20 of InfiniBand.
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){0,31}")


def read_devices(tree: Tree) -> tuple[PCIDevice, ...]:
    """Return the PCI functions by address; none for a machine without PCI.

    Names that are no PCI address, and functions that went away since the directory was listed,
    are left out.

    :raises DiscoveryError: if a function does not say what it is
    """
    names = [name for name in tree.names(DEVICES) or () if _ADDRESS.fullmatch(name)]
    vdpa = _vdpa(tree)
    # A longer domain is a larger one.
    in_order = sorted(names, key=lambda name: (len(name), name))
    found = (_device(tree, name, vdpa.get(name, ())) for name in in_order)
    devices = [device for device in found if device is not None]
    split = {device.parent_address for device in devices}
    return tuple(
        dataclasses.replace(device, kind=DeviceKind.PF)
        if device.kind is DeviceKind.PCI and device.address in split  # it does not say how many
        else device
        for device in devices
    )


def _device(tree: Tree, address: str, vdpa: Collection[str]) -> PCIDevice | None:
    path = f"{DEVICES}/{address}"
    vendor = tree.optional(f"{path}/vendor")
    within = tree.names(path)
    if vendor is None and within is None:  # unplugged since, or a dangling link
        return None
    parent = _physical_function(tree, f"{path}/physfn", address)
    totalvfs = _count(tree, f"{path}/sriov_totalvfs", "a count of virtual functions")
    made = {*vdpa, *(name for name in within or () if _VDPA.fullmatch(name))}
    return PCIDevice(
        address=address,
        vendor_id=_digits(tree, f"{path}/vendor", vendor or "", 4),
        product_id=_hexadecimal(tree, f"{path}/device", 4),
        class_id=_hexadecimal(tree, f"{path}/class", 6),
        numa_node=_numa_node(tree, f"{path}/numa_node"),
        kind=_kind(parent, totalvfs, made),
        parent_address=parent,
        sriov_totalvfs=totalvfs,
        sriov_numvfs=None if totalvfs is None else _numvfs(tree, path),
        driver=tree.link(f"{path}/driver"),
        revision=_optional_hexadecimal(tree, f"{path}/revision", 2),
        subsystem_vendor_id=_optional_hexadecimal(tree, f"{path}/subsystem_vendor", 4),
        subsystem_product_id=_optional_hexadecimal(tree, f"{path}/subsystem_device", 4),
        interfaces=tuple(_interfaces(tree, path, within or ())),
        vdpa=tuple(sorted(made, key=_by_number)),
        mediated_types=tuple(_mediated_types(tree, path, within or ())),
    )


# --- SR-IOV -------------------------------------------------------------------------------------


def _kind(parent: str | None, totalvfs: int | None, vdpa: Collection[str]) -> DeviceKind:
    if parent is not None:
        return DeviceKind.VDPA if vdpa else DeviceKind.VF
    return DeviceKind.PF if totalvfs else DeviceKind.PCI


def _physical_function(tree: Tree, path: str, address: str) -> str | None:
    parent = tree.link(path)
    if parent is not None and (parent == address or not _ADDRESS.fullmatch(parent)):
        raise tree.garbled(path, parent, "a link to the physical function of this one")
    return parent


def _numvfs(tree: Tree, path: str) -> int | None:
    return _count(tree, f"{path}/sriov_numvfs", "a count of virtual functions")


# --- what the kernel made of a function ---------------------------------------------------------


def _vdpa(tree: Tree) -> Mapping[str, list[str]]:
    """Return the vDPA devices by the function that they are made of, however far below it."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in tree.names(VDPA) or ():
        path = tree.resolved(f"{VDPA}/{name}").split("/")
        functions = [each for each in path if _ADDRESS.fullmatch(each)]
        if _VDPA.fullmatch(name) and functions:
            found[functions[-1]].append(name)
    return found


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


def _interfaces(tree: Tree, path: str, within: Collection[str]) -> Iterator[NetworkInterface]:
    places = [f"{path}/net"] if "net" in within else []
    places += [f"{path}/{name}/net" for name in sorted(within) if _VIRTIO.fullmatch(name)]
    for place in places:
        for name in sorted(tree.names(place) or ()):
            yield NetworkInterface(name, _mac(tree, f"{place}/{name}/address"))


def _mac(tree: Tree, path: str) -> str | None:
    text = (tree.optional(path) or "").strip()
    if text and not _MAC.fullmatch(text):
        raise tree.garbled(path, text, "a MAC address such as 3c:ec:ef:01:02:03")
    return text or None


def _mediated_types(tree: Tree, path: str, within: Collection[str]) -> Iterator[MediatedType]:
    place = f"{path}/mdev_supported_types"
    names = tree.names(place) if "mdev_supported_types" in within else None
    for name in sorted(names or ()):
        yield MediatedType(
            id=name,
            name=_said(tree, f"{place}/{name}/name"),
            available=_count(tree, f"{place}/{name}/available_instances", "a count, 0 or more"),
            device_api=_said(tree, f"{place}/{name}/device_api"),
            description=_said(tree, f"{place}/{name}/description"),
        )


def _said(tree: Tree, path: str) -> str | None:
    """Return what a driver says in its own words, on one line."""
    return " ".join((tree.optional(path) or "").split()) or None


# --- figures ------------------------------------------------------------------------------------


def _numa_node(tree: Tree, path: str) -> int | None:
    node = _sysfs.optional_integer(tree, path)
    return node if node is not None and node >= 0 else None  # -1: the firmware does not say


def _count(tree: Tree, path: str, expected: str) -> int | None:
    count = _sysfs.optional_integer(tree, path)
    if count is not None and count < 0:
        raise tree.garbled(path, str(count), expected)
    return count


def _hexadecimal(tree: Tree, path: str, digits: int) -> str:
    expected = f"0x and {digits} hexadecimal digits"
    return _digits(tree, path, tree.text(path, expected), digits)


def _optional_hexadecimal(tree: Tree, path: str, digits: int) -> str | None:
    text = tree.optional(path)
    return None if text is None else _digits(tree, path, text, digits)


def _digits(tree: Tree, path: str, text: str, digits: int) -> str:
    match = re.fullmatch(rf"0x([0-9a-f]{{{digits}}})", text.strip())
    if match is None:
        raise tree.garbled(path, text, f"0x and {digits} hexadecimal digits")
    return match[1]
