"""The text form of inventories of devices: the part after ``PCI_DEVICES=``.

Devices are joined by ``/``, each ``CLASS>ADDRESS!NODE&VENDOR.PRODUCT&option...``; the options are a
type, ``class=``, ``parent=``, ``tag=NAME>VALUE``, ``fact=NAME>VALUE``, ``trait=``,
``remote_managed=yes``, ``live_migratable=``, ``one_time_use=yes``, and the state of what is taken,
``is=claimed``. Pools are ``COUNT*CLASS>ADDRESS!NODE&...``; where nobody knows the address there is
none.

    PGPU>0000:3b:00.0!1&10de.2330&trait=CUSTOM_H100&is=claimed
    4*PGPU!1&10de.2330
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.resources import text
from resource_objects.resources.pci import pieces, words
from resource_objects.resources.pci.device import Device, DeviceUse
from resource_objects.resources.pci.pieces import WHAT
from resource_objects.resources.pci.pool import DevicePool

if TYPE_CHECKING:
    from resource_objects.resources.pci.inventory import PCIInventory

_FLAGS = ("remote_managed", "live_migratable", "one_time_use")
_EXPECTED = "CLASS>ADDRESS!NODE&VENDOR.PRODUCT, such as PGPU>0000:3b:00.0!1&10de.2330"
#: What an inventory of nothing is called.
_NONE = "none"


def parse_inventory(text_form: str, label: str | None = None) -> PCIInventory:
    """Return the inventory of its text form.

    :raises InvalidText: if it does not parse
    :raises InvalidInput: if what it says contradicts itself

    >>> parse_inventory("PGPU>0000:3b:00.0!1&10de.2330&is=claimed").free
    0
    """
    from resource_objects.resources.pci.inventory import PCIInventory

    if not isinstance(text_form, str) or len(text_form) > text.MAX_LENGTH:
        raise exceptions.InvalidText(WHAT, text_form, _EXPECTED)
    devices: list[Device] = []
    usage: list[DeviceUse] = []
    pools: list[DevicePool] = []
    for part in () if text_form == _NONE else text_form.split("/"):
        head, *items = part.split("&")
        count, times, where = head.rpartition("*")
        said = {**_where(where), **_items(items)}
        state = said.pop("state", None)
        if times:
            said.pop("parent", None)
            said["count"] = text.integer(count, f"{WHAT}, count")
            pools.append(DevicePool(**said))
            continue
        if "address" not in said:
            raise exceptions.InvalidText(f"{WHAT}, device", part, _EXPECTED)
        devices.append(Device(**said))
        if state is not None:
            usage.append(DeviceUse(devices[-1].address, *_state(state)))
            usage[-1] = _with_gone(usage[-1], state)
    return PCIInventory(devices, usage=usage, pools=pools, resource_class=label)


def _where(said: str) -> dict[str, Any]:
    kind, _, node = said.partition("!")
    kind, arrow, address = kind.partition(">")
    found: dict[str, Any] = {"resource_class": kind}
    if arrow:
        found["address"] = address
    if node:
        found["numa_node"] = text.integer(node, f"{WHAT}, node")
    return found


def _items(items: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"tags": {}, "facts": {}, "traits": []}
    for item in items:
        name, equals, value = item.partition("=")
        vendor, dot, product = item.partition(".")
        if name in ("tag", "fact") and equals:
            key, _, its = value.partition(">")
            found[f"{name}s"][pieces.unquoted(key)] = pieces.unquoted(its)
        elif name == "trait" and equals:
            found["traits"].append(value)
        elif item in words.TYPES:
            found["type"] = item
        elif name in _FLAGS and equals:
            found[name] = pieces.flag(value, name)
        elif name in ("class", "parent", "is") and equals:
            found[{"class": "class_code", "is": "state"}.get(name, name)] = value
        elif dot and not equals:
            found.update(vendor_id=vendor, product_id=product)
        else:
            raise exceptions.InvalidText(f"{WHAT}, device", item, _EXPECTED)
    if "vendor_id" not in found:
        raise exceptions.InvalidText(f"{WHAT}, device", "&".join(items), _EXPECTED)
    return found


def _state(said: str) -> tuple[str]:
    return (said.removesuffix("+gone"),)


def _with_gone(use: DeviceUse, said: str) -> DeviceUse:
    return use.replace(gone=True) if said.endswith("+gone") else use


def format_inventory(inventory: PCIInventory) -> str:
    """Return the text that :func:`parse_inventory` reads back.

    How a held device is by now, as :attr:`DeviceUse.then` knows, is not said: that waits for its
    end.
    """
    uses = {use.address: use for use in inventory.usage}
    said = [_said_device(device, uses.get(device.address)) for device in inventory.devices]
    said += [f"{pool.count}*{'&'.join(_said_items(pool))}" for pool in inventory.pools]
    return "/".join(said) or _NONE


def _said_device(device: Device, use: DeviceUse | None) -> str:
    items = [*_said_items(device)]
    if device.parent is not None:
        items.append(f"parent={device.parent}")
    if use is not None:
        items.append(f"is={use.state}{'+gone' if use.gone else ''}")
    return "&".join(items)


def _said_items(kind: Device | DevicePool) -> Iterator[str]:
    address = "" if kind.address is None else f">{kind.address}"
    node = "" if kind.numa_node is None else f"!{kind.numa_node}"
    yield f"{kind.resource_class}{address}{node}"
    yield f"{kind.vendor_id}.{kind.product_id}"
    if kind.type != words.PCI:
        yield kind.type
    if kind.class_code:
        yield f"class={kind.class_code}"
    yield from (f"trait={trait}" for trait in sorted(kind.traits))
    yield from _said_pairs("tag", kind.tags)
    yield from _said_pairs("fact", kind.facts)
    for name in _FLAGS:
        value = getattr(kind, name)
        if value or (name == "live_migratable" and value is False):
            yield f"{name}={'yes' if value else 'no'}"


def _said_pairs(what: str, pairs: Mapping[str, str]) -> Iterator[str]:
    for name, value in pairs.items():
        yield f"{what}={pieces.quoted(name)}>{pieces.quoted(value)}"
