"""``compute_nodes.pci_stats``: how many devices of each kind a host has free, read and written.

Both forms are read: ``PciDevicePoolList`` (1.0 and 1.1), which Nova has kept since Juno, and the
list of dicts from before. The newest is written. What is the same by another name:

==============================  ===================================================================
Nova                            here
==============================  ===================================================================
``vendor_id``, ``product_id``,  the same; hexadecimal digits in lower case
``numa_node``, ``count``
``dev_type``                    ``type``; a pool without one (before Juno) is of ``type-PCI``
``address``                     ``address``: that of the device, or of the physical function that
                                its devices were split off
``remote_managed``              the same. Written of physical functions and of those split off
                                them, of others only if it is so, as Nova does. Words that are
                                neither yes nor no are no
``live_migratable``,            the same, where they are ``true`` or ``false``; other words match no
``one_time_use``                request that Nova makes, and are tags
``rp_uuid``                     the fact ``rp_uuid``: the provider that they are in Placement
``resource_class``, ``traits``  the same. Nova keeps neither in its pools, and matches by neither:
                                written only where the class is not that of the ids
any other name                  a tag: ``physical_network``, ``parent_ifname``, ``trusted``,
                                ``managed`` ...; one that is null is not there, for no request can
                                tell
==============================  ===================================================================

What is read and written again is what it was: the ``facts`` keep what has no
field (in text, ``null`` for null and nothing for a name that is not there). In the list of dicts
numbers among the tags come out as text, which Nova makes of them too. A ``rp_uuid`` that is null is
not written.

Nova has no word for ``class_code``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from resource_objects import base, fields
from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.interop.nova import primitive
from resource_objects.interop.nova.primitive import POOL, POOLS, Document, NovaObject
from resource_objects.resources.pci.device import (
    ADDRESS,
    CLASS_CODE,
    ID,
    MAX_DEVICES,
    MAX_NODE,
    NO_TEXTS,
    PCI,
    PROVIDER,
    TEXTS,
    TYPES,
    Device,
    class_of_ids,
    custom_class,
    listed,
)
from resource_objects.resources.pci.inventory import PCIInventory

__all__ = ["DevicePool", "device_pools", "dump_pci_pools", "load_pci_pools"]

_ROOT: Final = "pci_stats"
#: Names that are fields in Nova too.
_IDS: Final = ("vendor_id", "product_id")
_FIELDS: Final = (*_IDS, "numa_node", "count")
#: Names that are fields here, in other words: facts keep the words.
_KNOWN: Final = (
    *_IDS,
    "dev_type",
    "address",
    "remote_managed",
    "live_migratable",
    "one_time_use",
    "resource_class",
    "traits",
)
#: What may be left unsaid, for Nova has no word for it.
_OPTIONAL: Final = ("class_code", "facts")


@base.register
class DevicePool(base.ResourceObject, frozen=True):
    """A count of free devices that are equal except for their addresses.

    The other fields are as in :class:`~resource_objects.resources.pci.Device`. ``address`` is that
    of the physical function that the devices were split off, or that of the single device; None if
    they are of several cards. ``facts`` keeps tags of Nova that have no field.

    >>> DevicePool("10de", "2330", 4, numa_node=0).count
    4
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    vendor_id: str = fields.field(ID, kw_only=False)
    product_id: str = fields.field(ID, kw_only=False)
    count: int = fields.integer(0, MAX_DEVICES, kw_only=False)
    type: str = fields.choice(*TYPES, default=PCI, kw_only=False)
    resource_class: fields.Coerced[str, str | None] = fields.resource_class(factory=class_of_ids)
    class_code: str = fields.field(CLASS_CODE, default="")
    address: str | None = fields.field(ADDRESS, default=None)
    numa_node: int | None = fields.integer(0, MAX_NODE, default=None)
    tags: Mapping[str, str] = fields.field(TEXTS, default=NO_TEXTS)
    traits: fields.Names = fields.traits(default=frozenset())
    remote_managed: bool = fields.boolean(default=False)
    live_migratable: bool | None = fields.boolean(default=None)
    one_time_use: bool = fields.boolean(default=False)
    facts: Mapping[str, str] = fields.field(TEXTS, default=NO_TEXTS)


def device_pools(inventory: PCIInventory, *, per_device: bool = False) -> tuple[DevicePool, ...]:
    """Return the free devices of an inventory as pools, those with the fewest tags first.

    Functions of one card are pools of their own, with its address. Of the facts of its devices, a
    pool has the uuid of their provider in Placement (``rp_uuid``).

    :param per_device: whether any other device is a pool of its own too, with its address, as Nova
        writes ``pci_stats``

    >>> lab = PCIInventory([Device(f"0000:0{n}:00.0", "10de", "2330") for n in (1, 2)])
    >>> [(pool.product_id, pool.count) for pool in device_pools(lab)]
    [('2330', 2)]
    """
    pools: list[DevicePool] = []
    for device, owner, free in inventory.free_groups():
        if per_device and owner is None:
            pools += [_device_pool(device, address, 1) for address in free]
        elif free:
            pools.append(_device_pool(device, owner, len(free)))
    return tuple(sorted(pools, key=lambda pool: len(pool.tags)))


def _device_pool(device: Device, address: str | None, count: int) -> DevicePool:
    provider = device.facts.get(PROVIDER)
    return DevicePool(
        device.vendor_id,
        device.product_id,
        count,
        device.type,
        resource_class=device.resource_class,
        class_code=device.class_code,
        address=address,
        numa_node=device.numa_node,
        tags=device.tags,
        traits=device.traits,
        remote_managed=device.remote_managed,
        live_migratable=device.live_migratable,
        one_time_use=device.one_time_use,
        facts={} if provider is None else {PROVIDER: provider},
    )


# --- reading --------------------------------------------------------------------------------------


def load_pci_pools(
    source: Document | Iterable[Mapping[str, Any] | NovaObject] | None,
) -> tuple[DevicePool, ...]:
    """Return the pools of a host, in their order.

    :param source: JSON text as in ``compute_nodes.pci_stats``, what it stands for, or a
        ``PciDevicePoolList`` or several ``PciDevicePool`` of Nova's; None for none
    :raises InvalidInput: if it is neither such a list of objects, in any version, nor a list of
        dicts

    Cost: 50 microseconds for each pool.

    >>> column = '''[{"vendor_id": "8086", "product_id": "154c", "count": 6, "numa_node": 0,
    ...     "dev_type": "type-VF", "address": "0000:04:00.0", "physical_network": "red"}]'''
    >>> (pool,) = load_pci_pools(column)
    >>> pool.type, pool.count, dict(pool.tags)
    ('type-VF', 6, {'physical_network': 'red'})
    """
    document = primitive.parse_document(source, _ROOT)
    if document is None:
        return ()
    is_versioned = isinstance(document, Mapping) and primitive.is_wrapped(document)
    found = []
    for place, given in enumerate(_pools_of(document, is_versioned)):
        try:
            found.append(
                _versioned(given)
                if is_versioned or (isinstance(given, Mapping) and primitive.is_wrapped(given))
                else _plain(given)
            )
        except InvalidInput as error:
            primitive.reraise_at(f"{_ROOT}[{place}]", error)
    return tuple(found)


def _pools_of(document: Any, is_versioned: bool) -> Iterable[Any]:
    if is_versioned:
        data = primitive.unwrap(document, _ROOT, POOLS)[0]
        primitive.reject_unknown(data, {"objects"}, f"{_ROOT}.")
        return primitive.require_list(data.get("objects"), f"{_ROOT}.objects")
    if isinstance(document, Mapping):  # a list of one, as Nova reads it
        return [document] if document else []
    return primitive.parse_list(document, _ROOT)


def _versioned(given: object) -> DevicePool:
    data, _ = primitive.unwrap(given, "", POOL)
    primitive.reject_unknown(data, {*_FIELDS, "tags"})
    tags = primitive.require_texts(data.get("tags", {}), "tags")
    for name in _FIELDS:
        if name in tags:
            raise InvalidInput("primitive", f"tags.{name}", tags[name], "no tag of that name")
    return _pool(data, tags)


def _plain(given: object) -> DevicePool:
    data = primitive.require_object(given, "")
    tags = {name: value for name, value in data.items() if name not in _FIELDS}
    return _pool(data, primitive.require_texts(tags, "tags"))


def _pool(data: Mapping[Any, Any], tags: dict[str, str | None]) -> DevicePool:
    node = data.get("numa_node")
    said = {**{name: primitive.require_label(data.get(name), name) for name in _IDS}, **tags}
    provider = said.pop(primitive.PROVIDER, None)
    pool = DevicePool(
        **_values(said),
        count=primitive.require_int(data.get("count"), "count", 0, MAX_DEVICES),
        numa_node=None if node is None else primitive.require_int(node, "numa_node", 0, MAX_NODE),
        facts={} if provider is None else {primitive.PROVIDER: provider},
    )
    null = {name for name, value in said.items() if value is None}
    kept = primitive.preserve(said, _written(pool), {*_KNOWN} | null)
    return pool.replace(facts={**pool.facts, **kept}) if kept else pool


def _values(said: Mapping[str, str | None]) -> dict[str, Any]:
    """Return what ids and tags of Nova's say, by field."""
    get = said.get
    vendor_id, product_id = (primitive.lower(get(name)) for name in _IDS)
    name, traits = get("resource_class"), get("traits")
    flags = {name: primitive.parse_flag(get(name)) for name in ("live_migratable", "one_time_use")}
    unread = {name for name, value in flags.items() if value is None}
    known = {*_KNOWN} - unread
    return {
        "vendor_id": vendor_id,
        "product_id": product_id,
        "type": get("dev_type") or PCI,
        "address": get("address"),
        "remote_managed": primitive.parse_lenient_flag(get("remote_managed")),
        "live_migratable": flags["live_migratable"],
        "one_time_use": bool(flags["one_time_use"]),
        "resource_class": primitive.normalized_class(name) if name else None,
        "traits": primitive.normalized_traits(traits or ""),
        "tags": {
            name: value for name, value in said.items() if value is not None and name not in known
        },
    }


# --- writing --------------------------------------------------------------------------------------


def dump_pci_pools(pools: Iterable[DevicePool], *, leave_out: Collection[str] = ()) -> str:
    """Return pools as ``compute_nodes.pci_stats`` has them.

    :param leave_out: what may be left unsaid, for Nova has no word for it: ``class_code``,
        ``facts`` that are not Nova's
    :raises CannotDowngrade: for what Nova has no word for
    :raises InvalidInventory: if these are no pools
    :raises InvalidInput: if something else is to be left out

    >>> pools = [DevicePool("10de", "2330", 4, numa_node=1, tags={"trusted": "true"})]
    >>> load_pci_pools(dump_pci_pools(pools)) == tuple(pools)
    True
    >>> dump_pci_pools([DevicePool("10de", "2330", 4, class_code="0302")])
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: PciDevicePool cannot be expressed in ...
    """
    allowed = primitive.optional_names(leave_out, _OPTIONAL)
    found = []
    for place, pool in enumerate(_listed(pools)):
        for name, reason in _unsaid(pool):
            if name not in allowed:
                raise primitive.inexpressible(POOL, f"pool {place} {reason}")
        found.append(_as_versioned(pool))
    return json.dumps(primitive.wrap(POOLS, {"objects": found}))


def _listed(pools: object) -> list[DevicePool]:
    found = listed(pools)
    if not isinstance(found, list) or not all(isinstance(one, DevicePool) for one in found):
        raise InvalidInventory("pools", pools, "DevicePools")
    return found


def _unsaid(pool: DevicePool) -> Iterator[tuple[str, str]]:
    """Yield what there is no word for, and why."""
    if pool.class_code:
        yield "class_code", f"has a class code, {pool.class_code}"
    facts = primitive.unknown_facts(pool.facts, (*_KNOWN, primitive.PROVIDER))
    if facts:
        yield "facts", f"has facts that are no words of Nova's: {', '.join(facts)}"


def _as_versioned(pool: DevicePool) -> dict[str, Any]:
    tags = _said(pool)
    data: dict[str, Any] = {name: tags.pop(name) for name in _IDS}
    data |= {"numa_node": pool.numa_node, "count": pool.count, "tags": tags}
    return primitive.wrap(POOL, data)


def _said(pool: DevicePool) -> dict[str, Any]:
    """Return the ids and tags of a pool: as they were read, if that is still true."""
    written = _written(pool)
    known = pool.facts.keys() & ({*_KNOWN} | primitive.null_names(pool.facts)) - {
        primitive.PROVIDER
    }
    if not known:
        return written
    recalled = primitive.restore(written, pool.facts, known)
    said = {name: value for name, value in recalled.items() if name != primitive.PROVIDER}
    try:
        is_true = pool == DevicePool(
            **_values(said), count=pool.count, numa_node=pool.numa_node, facts=pool.facts
        ).replace(class_code=pool.class_code)
    except InvalidInput:
        is_true = False
    return recalled if is_true else written


def _written(pool: DevicePool) -> dict[str, Any]:
    """Return the ids and tags of a pool as Nova writes them today."""
    said: dict[str, Any] = {
        "vendor_id": pool.vendor_id,
        "product_id": pool.product_id,
        "dev_type": pool.type,
        "address": pool.address,
        "one_time_use": primitive.YES if pool.one_time_use else None,
        "traits": ",".join(sorted(pool.traits)) or None,
        primitive.PROVIDER: pool.facts.get(primitive.PROVIDER),
    }
    if pool.type != PCI or pool.remote_managed:
        said["remote_managed"] = primitive.format_flag(pool.remote_managed)
    if pool.live_migratable is not None:
        said["live_migratable"] = primitive.format_flag(pool.live_migratable)
    if pool.resource_class != custom_class(pool.vendor_id, pool.product_id):
        said["resource_class"] = pool.resource_class
    return {name: value for name, value in {**said, **pool.tags}.items() if value is not None}
