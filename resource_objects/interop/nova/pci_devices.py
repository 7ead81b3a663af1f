"""The table ``pci_devices`` and the column ``compute_nodes.pci_stats`` of Nova, read and written.

``pci_devices``: the devices of a host and their consumers
----------------------------------------------------------

Rows of the table are read as mappings by column, objects ``PciDevice`` 1.0 to 1.7, or a
``PciDeviceList``. Rows are written, or objects of the newest version.

======================================  ===========================================================
Nova                                    here
======================================  ===========================================================
``address``, ``vendor_id``,             the same
``product_id``, ``numa_node``
``dev_type``                            ``type``
``parent_addr``                         ``parent``; before 1.4 ``phys_function`` in ``extra_info``
``status`` claimed or allocated,        ``usage``, and ``consumers``
``instance_uuid``, ``request_id``
``status`` available, unclaimable,      not read: the allocations decide. A contradiction is one of
unavailable                             the ``findings``
``status`` removed, deleted; a deleted  left out: in ``skipped``
row
``live_migratable`` in ``extra_info``   the same, if it is ``true`` or ``false``
``parent_ifname``, ``managed`` in it    tags, which requests can select by
other keys of ``extra_info``            ``facts``; a value that is not text is JSON
``id``, ``uuid``, ``compute_node_id``,  ``rows``: the columns that a device does not have
``dev_id``, ``label``, times
======================================  ===========================================================

A row does not have the tags, class and traits of its entry in ``[pci] device_spec``, nor whether
the device is remotely managed or for one use. A device that is loaded with ``specs`` has these;
they are not written. Nova has no state for a device whose one use is over.

``pci_stats``: pools, the numbers of free devices by kind
---------------------------------------------------------

A ``PciDevicePoolList`` (1.0 and 1.1, since Juno) is read, or the older list of dicts. The newest
version is written. A pool has no addresses of devices: pools are for display, and make no
inventory.

==============================  ===================================================================
Nova                            here
==============================  ===================================================================
``vendor_id``, ``product_id``,  the same; ids in lower case
``numa_node``, ``count``
``dev_type``                    ``type``; absent (before Juno) it is ``type-PCI``
``address``                     ``address`` of the device, or of the physical function of its parts
``remote_managed``              the same; unknown text is no. Written for physical functions and
                                their parts, and for other devices only if it is yes, as in Nova
``live_migratable``,            the same, if they are ``true`` or ``false``; other text is a tag
``one_time_use``
``rp_uuid``                     the fact ``rp_uuid``: the provider in Placement
``resource_class``, ``traits``  the same. Nova does not store them; written if the class is not that
                                of the ids
other names                     a tag; null is no tag
==============================  ===================================================================

Pools that are read and written again are unchanged: ``facts`` store the text that no field has.
But numbers among the tags of the older list become text, as in Nova, and ``rp_uuid`` that is null
is not written. Nova has no field for ``class_code``.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from resource_objects import base, fields
from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.fields import MAX_FIGURE, FrozenDict
from resource_objects.findings import Finding
from resource_objects.interop.nova.primitive import (
    DEVICE,
    DEVICES,
    POOL,
    POOLS,
    PROVIDER,
    YES,
    Document,
    NovaObject,
    Texts,
    format_flag,
    inexpressible,
    invalid,
    is_wrapped,
    lower,
    normalized_class,
    normalized_traits,
    null_names,
    optional_names,
    parse_document,
    parse_flag,
    parse_lenient_flag,
    preserve,
    read_list,
    reject_unknown,
    require_int,
    require_label,
    require_object,
    require_texts,
    restore,
    unknown_facts,
    wrap,
)
from resource_objects.interop.nova.specs import PARENT_IFNAME, NovaDeviceRule, tagged_device
from resource_objects.resources.pci.device import (
    ADDRESS,
    ALLOCATED,
    AVAILABLE,
    CLAIMED,
    CLASS_CODE,
    ID,
    MAX_DEVICES,
    MAX_NODE,
    NO_TEXTS,
    PARTS,
    PCI,
    PF,
    SPENT,
    TEXTS,
    TYPES,
    UNAVAILABLE,
    UNCLAIMABLE,
    Device,
    DeviceUse,
    class_of_ids,
    custom_class,
    listed,
    parse_address,
)
from resource_objects.resources.pci.device_index import DeviceIndex
from resource_objects.resources.pci.inventory import PCIInventory

__all__ = [
    "DeviceConsumer",
    "DevicePool",
    "NovaDevices",
    "device_pools",
    "dump_pci_devices",
    "dump_pci_pools",
    "load_pci_devices",
    "load_pci_pools",
]


class DeviceConsumer(NamedTuple):
    """The consumer of a device, and its request of devices; uuids as in Nova."""

    instance_uuid: str | None = None
    request_id: str | None = None


class NovaDevices(NamedTuple):
    """The devices of a host and their allocations.

    ``devices`` and ``usage`` are those of a :class:`~resource_objects.resources.pci.PCIInventory`.
    ``consumers`` has the consumer of each allocated device, by address. ``skipped`` are the rows
    that are left out, and ``findings`` the rows that contradict others. ``rows`` are the columns
    that a device does not have, by address.
    """

    devices: tuple[Device, ...]
    usage: tuple[DeviceUse, ...] = ()
    consumers: Mapping[str, DeviceConsumer] = FrozenDict()
    skipped: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()
    rows: Mapping[str, Mapping[str, Any]] = FrozenDict()


_ROOT: Final = "pci_devices"
#: Columns that a device does not have; they are stored as they are.
_ROW: Final = (
    "id", "uuid", "compute_node_id", "dev_id", "label", "created_at", "updated_at", "deleted_at",
    "deleted",
)  # fmt: skip
_COLUMNS: Final = frozenset({
    *_ROW, "address", "vendor_id", "product_id", "dev_type", "status", "instance_uuid",
    "request_id", "extra_info", "numa_node", "parent_addr",
})  # fmt: skip
_REMOVED: Final = ("removed", "deleted")
_HELD: Final = (CLAIMED, ALLOCATED)
#: States that follow from the allocation of a relative. After a release Nova may have either.
_BLOCKED: Final = (UNCLAIMABLE, UNAVAILABLE)
_STATUS: Final = (AVAILABLE, *_HELD, *_BLOCKED, *_REMOVED)
#: Keys of ``extra_info`` that Nova matches.
_INFO_TAGS: Final = (PARENT_IFNAME, "managed")
_LIVE: Final = "live_migratable"


# --- devices: reading -----------------------------------------------------------------------------


class _Row(NamedTuple):
    """A row: its device, or the reason why it is left out."""

    address: str
    device: Device | None
    status: str
    consumer: DeviceConsumer
    columns: Mapping[str, Any]
    reason: str = ""


def load_pci_devices(
    source: Document | Iterable[Mapping[str, Any] | NovaObject] | None,
    *,
    specs: Sequence[NovaDeviceRule] | None = None,
) -> NovaDevices:
    """Return the devices of a host and their allocations.

    A device without a valid address, or with a domain of more than 16 bits, is left out. So is,
    with ``specs``, a free device that no entry matches; an allocated one is withdrawn: it is
    removed after its release.

    :param source: rows as mappings, an object ``PciDeviceList``, several objects ``PciDevice``,
        the primitives of these, or JSON text of them
    :param specs: ``[pci] device_spec`` of the host, as :func:`.parse_device_spec` returns it; None
        for devices as in the rows
    :raises InvalidInput: if an entry is not such a row; if the rows are of several hosts, or of one
        device twice
    :raises InvalidNovaInput: if ``specs`` contradict a device

    Cost: 80 microseconds for each device, half as much more with ``specs``.

    >>> row = {"address": "0000:04:00.0", "vendor_id": "8086", "product_id": "1563",
    ...     "dev_type": "type-PF", "status": "unavailable"}
    >>> result = load_pci_devices([row, {**row, "address": "0000:04:10.0", "dev_type": "type-VF",
    ...     "parent_addr": "0000:04:00.0", "status": "allocated", "instance_uuid": "a-guest"}])
    >>> print(*result.usage, result.findings)
    DeviceUse(address='0000:04:10.0', state='allocated', gone=False) ()
    """
    rows = read_list(
        source, _ROOT, (DEVICES, "objects", {"objects"}), DEVICE, lambda data, _: _read_row(data)
    )
    skipped = [Finding(row.address, "skipped", row.reason) for row in rows if row.device is None]
    rows = [row for row in rows if row.device is not None]
    nodes = {row.columns.get("compute_node_id") for row in rows} - {None}
    if len(nodes) > 1:
        shown = sorted(map(str, nodes))
        raise invalid(f"{_ROOT}.compute_node_id", shown, "the devices of one host")
    counts = Counter(row.address for row in rows)
    repeated = sorted(address for address, count in counts.items() if count > 1)
    if repeated:
        raise invalid(f"{_ROOT}.address", repeated, "each device once")
    stored: dict[str, tuple[_Row, Device]] = {}
    usage = []
    types = {row.address: row.device.type for row in rows if row.device is not None}
    for row in rows:
        device, reason = _tagged(row, types, specs)
        if row.status in _HELD:
            usage.append(DeviceUse(row.address, row.status, gone=bool(reason)))
        elif reason:
            skipped.append(Finding(row.address, "skipped", reason))
            continue
        stored[row.address] = row, device
    devices = DeviceIndex([device for _, device in stored.values()], usage)
    return NovaDevices(
        tuple(devices.devices.values()),
        tuple(usage),
        FrozenDict({use.address: stored[use.address][0].consumer for use in usage}),
        tuple(skipped),
        tuple(
            Finding(row.address, "contradiction", detail)
            for row, device in stored.values()
            for detail in _contradictions(row, device, devices)
        ),
        FrozenDict({address: row.columns for address, (row, _) in stored.items()}),
    )


def _read_row(data: Mapping[Any, Any]) -> _Row:
    reject_unknown(data, _COLUMNS)
    status = data.get("status")
    if status not in _STATUS:
        raise invalid("status", status, f"one of {', '.join(_STATUS)}")
    text = _require_non_null_label(data, "address")
    consumer = DeviceConsumer(
        require_label(data.get("instance_uuid"), "instance_uuid"),
        require_label(data.get("request_id"), "request_id"),
    )
    columns = {name: data[name] for name in _ROW if name in data}
    for name in ("id", "compute_node_id"):
        if columns.get(name) is not None:
            require_int(columns[name], name, 0, MAX_FIGURE)
    if status in _REMOVED or data.get("deleted"):
        reason = "removed" if status in _REMOVED else "deleted"
        return _Row(text, None, status, consumer, columns, reason)
    try:
        device = _read_device(data, parse_address(text))
    except InvalidInput as error:
        if not error.is_about("PCI address"):
            raise
        return _Row(text, None, status, consumer, columns, str(error))
    if status in _BLOCKED:
        columns["status"] = status
    return _Row(device.address, device, status, consumer, FrozenDict(columns))


def _read_device(data: Mapping[Any, Any], address: str) -> Device:
    info: dict[str, str] = {}
    document = parse_document(data.get("extra_info"), "extra_info")
    for name, value in require_object({} if document is None else document, "extra_info").items():
        try:
            info[name] = value if isinstance(value, str) else json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            raise invalid(f"extra_info.{name}", value, "text, or a value of JSON") from None
    node = data.get("numa_node")
    parent = require_label(data.get("parent_addr"), "parent_addr")
    kind = _require_non_null_label(data, "dev_type")
    if parent is None and kind in PARTS:
        parent = info.pop("phys_function", None)  # before 1.4
    live = parse_flag(info.get(_LIVE))
    if live is not None:
        del info[_LIVE]
    return Device(
        address,
        _require_non_null_label(data, "vendor_id").lower(),
        _require_non_null_label(data, "product_id").lower(),
        kind,
        parent=None if parent is None else parse_address(parent),
        numa_node=None if node is None else require_int(node, "numa_node", 0, MAX_NODE),
        tags={name: info.pop(name) for name in _INFO_TAGS if name in info},
        live_migratable=live,
        facts=info,
    )


def _require_non_null_label(data: Mapping[Any, Any], name: str) -> str:
    label = require_label(data.get(name), name)
    if label is None:
        raise invalid(name, None, "text")
    return label


def _tagged(
    row: _Row, types: Mapping[str, str], specs: Sequence[NovaDeviceRule] | None
) -> tuple[Device, str]:
    """Return the device of a row, and the reason why it is not offered."""
    device: Any = row.device
    tagged = device if specs is None else tagged_device(device, specs)
    if tagged is None:
        return device, "no entry of device_spec matches it"
    parent_type = types.get(device.parent)
    if parent_type not in (None, PF):
        return tagged, f"its parent {device.parent} is {parent_type}"
    return tagged, ""


def _contradictions(row: _Row, device: Device, devices: DeviceIndex) -> Iterator[str]:
    """Yield the contradictions between the status of a row and the other rows."""
    status, consumer = row.status, row.consumer.instance_uuid
    if status in _HELD:
        relatives = [device.parent, *sorted(devices.functions.get(row.address, ()))]
        allocated = [address for address in relatives if address in devices.uses]
        if allocated:
            yield f"{status}, expected not: {allocated[0]} is allocated too"
        if consumer is None:
            yield f"{status} without a consumer, expected a consumer"
        return
    state = devices.state(row.address)
    if (status in _BLOCKED) != (state in _BLOCKED):
        yield f"{status}, expected {state}"
    if consumer is not None:
        yield f"{status} with the consumer {consumer}, expected no consumer"


# --- devices: writing -----------------------------------------------------------------------------


def dump_pci_devices(
    devices: NovaDevices,
    *,
    versioned: bool = False,
    leave_out: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return devices as rows of ``pci_devices``, or as objects of Nova in wire form.

    The status of each follows from the allocations. Other columns come from ``rows``, if they are
    there; ``dev_id`` and ``label`` are made as Nova's driver does.

    :param versioned: whether to write the objects that Nova sends, or rows
    :param leave_out: values to omit, as Nova has no state for it: ``spent``, which is written
        as available
    :raises CannotDowngrade: for a device whose one use is over
    :raises InvalidInventory: if these are not devices
    :raises InvalidInput: for another name in ``leave_out``

    >>> gpu = Device("0000:3b:00.0", "10de", "2330", numa_node=1)
    >>> (row,) = dump_pci_devices(NovaDevices((gpu,)))
    >>> row["status"], row["label"], load_pci_devices([row]).devices == (gpu,)
    ('available', 'label_10de_2330', True)
    """
    if not isinstance(devices, NovaDevices):
        raise InvalidInventory("devices", devices, "NovaDevices")
    omitted = optional_names(leave_out, ("spent",))
    states = DeviceIndex(devices.devices, devices.usage)
    rows = []
    for device in devices.devices:
        columns = devices.rows.get(device.address, {})
        status = states.state(device.address)
        if status in _BLOCKED:
            status = columns.get("status", status)
        if status == SPENT:
            if "spent" not in omitted:
                raise inexpressible(DEVICE, f"{device.address} has the status {status}")
            status = AVAILABLE
        consumer = devices.consumers.get(device.address, DeviceConsumer())
        tags = {name: device.tags[name] for name in _INFO_TAGS if name in device.tags}
        info = {**device.facts, **tags}
        if device.live_migratable is not None:
            info[_LIVE] = format_flag(device.live_migratable)
        row: dict[str, Any] = {
            "dev_id": f"pci_{device.address}".replace(":", "_").replace(".", "_"),
            "label": f"label_{device.vendor_id}_{device.product_id}",
            **{name: value for name, value in columns.items() if name in _ROW},
            "address": device.address,
            "vendor_id": device.vendor_id,
            "product_id": device.product_id,
            "dev_type": device.type,
            "status": status,
            "instance_uuid": consumer.instance_uuid,
            "request_id": consumer.request_id,
            "numa_node": device.numa_node,
            "parent_addr": device.parent,
            "extra_info": info if versioned else json.dumps(info),
        }
        if versioned:
            for name, value in row.items():
                if isinstance(value, datetime.datetime):
                    row[name] = value.strftime("%Y-%m-%dT%H:%M:%SZ")
            row = wrap(DEVICE, row)
        rows.append(row)
    return rows


# --- pools ----------------------------------------------------------------------------------------

#: Fields of Nova's object in addition to its tags.
_POOL_FIELDS: Final = ("vendor_id", "product_id", "numa_node", "count")
#: Ids and tags of Nova that are fields here.
_POOL_KEYS: Final = (
    "vendor_id", "product_id", "dev_type", "address", "remote_managed", "live_migratable",
    "one_time_use", "resource_class", "traits",
)  # fmt: skip


@base.register
class DevicePool(base.ResourceObject, frozen=True):
    """A count of free devices that are equal except for their addresses.

    The other fields are as in :class:`~resource_objects.resources.pci.Device`. ``address`` is that
    of the physical function of the devices, or that of a single device; None for several cards.
    ``facts`` stores text of Nova that no field has.

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

    Functions of one card have a pool of their own, with its address. Of the facts of its devices, a
    pool has the uuid of their provider in Placement (``rp_uuid``).

    :param per_device: whether every other device has a pool of its own too, with its address, as
        Nova writes ``pci_stats``

    >>> lab = PCIInventory([Device(f"0000:0{n}:00.0", "10de", "2330") for n in (1, 2)])
    >>> [(pool.product_id, pool.count) for pool in device_pools(lab)]
    [('2330', 2)]
    """
    pools: list[DevicePool] = []
    for group, free in inventory.free_groups():
        if per_device and group.card is None:
            pools += [_device_pool(group.device, address, 1) for address in free]
        elif free:
            pools.append(_device_pool(group.device, group.card, len(free)))
    return tuple(sorted(pools, key=lambda pool: len(pool.tags)))


#: Fields that a pool has from its devices.
_OF_DEVICE: Final = (
    "type", "resource_class", "class_code", "numa_node", "tags", "traits", "remote_managed",
    "live_migratable", "one_time_use",
)  # fmt: skip


def _device_pool(device: Device, address: str | None, count: int) -> DevicePool:
    return DevicePool(
        device.vendor_id,
        device.product_id,
        count,
        address=address,
        facts={PROVIDER: device.facts[PROVIDER]} if PROVIDER in device.facts else {},
        **{name: getattr(device, name) for name in _OF_DEVICE},
    )


def load_pci_pools(
    source: Document | Iterable[Mapping[str, Any] | NovaObject] | None,
) -> tuple[DevicePool, ...]:
    """Return the pools of a host, in their order.

    :param source: JSON text as in ``compute_nodes.pci_stats``, the value of that text, an object
        ``PciDevicePoolList`` or several ``PciDevicePool``; None for none
    :raises InvalidInput: if it is neither such objects of a known version, nor a list of dicts

    Cost: 50 microseconds for each pool.

    >>> column = '''[{"vendor_id": "8086", "product_id": "154c", "count": 6, "numa_node": 0,
    ...     "dev_type": "type-VF", "address": "0000:04:00.0", "physical_network": "red"}]'''
    >>> (pool,) = load_pci_pools(column)
    >>> pool.type, pool.count, dict(pool.tags)
    ('type-VF', 6, {'physical_network': 'red'})
    """
    document = parse_document(source, "pci_stats")
    if isinstance(document, Mapping) and not is_wrapped(document):
        document = [document] if document else []  # a list of one, as in Nova
    wrapper = (POOLS, "objects", {"objects"})
    return tuple(read_list(document, "pci_stats", wrapper, POOL, _read_pool))


def _read_pool(data: Mapping[Any, Any], is_object: bool) -> DevicePool:
    if is_object:
        reject_unknown(data, {*_POOL_FIELDS, "tags"})
        tags = require_texts(data.get("tags", {}), "tags")
        for name in _POOL_FIELDS:
            if name in tags:
                raise invalid(f"tags.{name}", tags[name], "no tag of that name")
    else:
        plain = {name: value for name, value in data.items() if name not in _POOL_FIELDS}
        tags = require_texts(plain, "tags")
    ids = {name: require_label(data.get(name), name) for name in ("vendor_id", "product_id")}
    texts = {**ids, **tags}
    provider = texts.pop(PROVIDER, None)
    node = data.get("numa_node")
    pool = DevicePool(
        **_pool_fields(texts),
        count=require_int(data.get("count"), "count", 0, MAX_DEVICES),
        numa_node=None if node is None else require_int(node, "numa_node", 0, MAX_NODE),
        facts={} if provider is None else {PROVIDER: provider},
    )
    nulls = {name for name, text in texts.items() if text is None}
    facts = preserve(texts, _written_texts(pool), {*_POOL_KEYS} | nulls)
    return pool.replace(facts={**pool.facts, **facts}) if facts else pool


def _pool_fields(texts: Texts) -> dict[str, Any]:
    get = texts.get
    name, live = get("resource_class"), parse_flag(get("live_migratable"))
    one_time_use = parse_flag(get("one_time_use"))
    ids = {key: lower(get(key)) for key in ("vendor_id", "product_id")}
    keys = {*_POOL_KEYS}
    keys -= {"live_migratable"} if live is None else set()
    keys -= {"one_time_use"} if one_time_use is None else set()
    return {
        **ids,
        "type": get("dev_type") or PCI,
        "address": get("address"),
        "remote_managed": parse_lenient_flag(get("remote_managed")),
        "live_migratable": live,
        "one_time_use": bool(one_time_use),
        "resource_class": normalized_class(name) if name else class_of_ids(ids),
        "traits": normalized_traits(get("traits") or ""),
        "tags": {key: text for key, text in texts.items() if text is not None and key not in keys},
    }


def dump_pci_pools(pools: Iterable[DevicePool], *, leave_out: Collection[str] = ()) -> str:
    """Return pools as text of ``compute_nodes.pci_stats``.

    :param leave_out: values to omit, as Nova has no field for it: ``class_code``, ``facts`` of
        other names than Nova's
    :raises CannotDowngrade: for a value that Nova cannot express
    :raises InvalidInventory: if these are not pools
    :raises InvalidInput: for another name in ``leave_out``

    >>> pools = [DevicePool("10de", "2330", 4, numa_node=1, tags={"trusted": "true"})]
    >>> load_pci_pools(dump_pci_pools(pools)) == tuple(pools)
    True
    >>> dump_pci_pools([DevicePool("10de", "2330", 4, class_code="0302")])
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: PciDevicePool cannot be expressed in ...
    """
    omitted = optional_names(leave_out, ("class_code", "facts"))
    items = listed(pools)
    if not isinstance(items, list) or not all(isinstance(pool, DevicePool) for pool in items):
        raise InvalidInventory("pools", pools, "DevicePools")
    documents = []
    for index, pool in enumerate(items):
        if pool.class_code and "class_code" not in omitted:
            raise inexpressible(POOL, f"pool {index} has a class code, {pool.class_code}")
        facts = unknown_facts(pool.facts, (*_POOL_KEYS, PROVIDER))
        if facts and "facts" not in omitted:
            reason = f"pool {index} has facts that Nova does not have: {', '.join(facts)}"
            raise inexpressible(POOL, reason)
        tags = _texts_as_read(pool)
        data: dict[str, Any] = {name: tags.pop(name) for name in ("vendor_id", "product_id")}
        data |= {"numa_node": pool.numa_node, "count": pool.count, "tags": tags}
        documents.append(wrap(POOL, data))
    return json.dumps(wrap(POOLS, {"objects": documents}))


def _texts_as_read(pool: DevicePool) -> dict[str, Any]:
    """Return the ids and tags of a pool as they were read, if its fields did not change since."""
    written = _written_texts(pool)
    names = pool.facts.keys() & ({*_POOL_KEYS} | null_names(pool.facts)) - {PROVIDER}
    if not names:
        return written
    restored = restore(written, pool.facts, names)
    texts = {name: text for name, text in restored.items() if name != PROVIDER}
    try:
        again = pool.replace(**_pool_fields(texts))
    except InvalidInput:
        return written
    return restored if again == pool else written


def _written_texts(pool: DevicePool) -> dict[str, Any]:
    """Return the ids and tags of a pool as Nova writes them today."""
    texts: dict[str, Any] = {
        "vendor_id": pool.vendor_id,
        "product_id": pool.product_id,
        "dev_type": pool.type,
        "address": pool.address,
        "one_time_use": YES if pool.one_time_use else None,
        "traits": ",".join(sorted(pool.traits)) or None,
        PROVIDER: pool.facts.get(PROVIDER),
    }
    if pool.type != PCI or pool.remote_managed:
        texts["remote_managed"] = format_flag(pool.remote_managed)
    if pool.live_migratable is not None:
        texts["live_migratable"] = format_flag(pool.live_migratable)
    if pool.resource_class != custom_class(pool.vendor_id, pool.product_id):
        texts["resource_class"] = pool.resource_class
    return {name: text for name, text in {**texts, **pool.tags}.items() if text is not None}
