"""PCI functions from ``/sys/bus/pci/devices``, SR-IOV included.

Source: the kernel's ``Documentation/ABI/testing/sysfs-bus-pci`` and
``Documentation/PCI/pci-iov-howto.rst``.
"""

from __future__ import annotations

import re

from resource_objects.host import _sysfs
from resource_objects.host._sysfs import Tree
from resource_objects.host.facts import DeviceKind, PCIDevice

DEVICES = "/sys/bus/pci/devices"

# Domains above ffff exist (Intel VMD makes 10000:...).
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")


def read_devices(tree: Tree) -> tuple[PCIDevice, ...]:
    """Return the PCI functions by address; none for a machine without PCI.

    Names that are no PCI address, and functions that went away since the directory was listed,
    are left out.

    :raises DiscoveryError: if a function does not say what it is
    """
    names = [name for name in tree.names(DEVICES) or () if _ADDRESS.fullmatch(name)]
    # A longer domain is a larger one.
    found = (_device(tree, name) for name in sorted(names, key=lambda name: (len(name), name)))
    return tuple(device for device in found if device is not None)


def _device(tree: Tree, address: str) -> PCIDevice | None:
    path = f"{DEVICES}/{address}"
    vendor = tree.optional(f"{path}/vendor")
    if vendor is None and tree.names(path) is None:  # unplugged since, or a dangling link
        return None
    parent = _physical_function(tree, f"{path}/physfn", address)
    totalvfs = _count(tree, f"{path}/sriov_totalvfs")
    return PCIDevice(
        address=address,
        vendor_id=_digits(tree, f"{path}/vendor", vendor or "", 4),
        product_id=_hexadecimal(tree, f"{path}/device", 4),
        class_id=_hexadecimal(tree, f"{path}/class", 6),
        numa_node=_numa_node(tree, f"{path}/numa_node"),
        kind=DeviceKind.VF if parent else DeviceKind.PF if totalvfs else DeviceKind.PCI,
        parent_address=parent,
        sriov_totalvfs=totalvfs,
        sriov_numvfs=None if totalvfs is None else _count(tree, f"{path}/sriov_numvfs"),
        driver=tree.link(f"{path}/driver"),
        revision=_optional_hexadecimal(tree, f"{path}/revision", 2),
        subsystem_vendor_id=_optional_hexadecimal(tree, f"{path}/subsystem_vendor", 4),
        subsystem_product_id=_optional_hexadecimal(tree, f"{path}/subsystem_device", 4),
    )


def _physical_function(tree: Tree, path: str, address: str) -> str | None:
    parent = tree.link(path)
    if parent is not None and (parent == address or not _ADDRESS.fullmatch(parent)):
        raise tree.garbled(path, parent, "a link to the physical function of this one")
    return parent


def _numa_node(tree: Tree, path: str) -> int | None:
    node = _sysfs.optional_integer(tree, path)
    return node if node is not None and node >= 0 else None  # -1: the firmware does not say


def _count(tree: Tree, path: str) -> int | None:
    count = _sysfs.optional_integer(tree, path)
    if count is not None and count < 0:
        raise tree.garbled(path, str(count), "a count of virtual functions")
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
