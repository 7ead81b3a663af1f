"""A PCI device and its use.

:class:`Device` is one PCI function at its address, :class:`DeviceUse` its use. SR-IOV types,
affinity policies and states are constants of this module. :func:`retain_allocated` decides which
devices a host has after a discovery.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from resource_objects import base, fields, names
from resource_objects.exceptions import InvalidInput

_invalid_device = functools.partial(InvalidInput, "device")

#: The highest id of a NUMA node.
MAX_NODE = 65535
#: The maximum number of devices of a host, and of a request.
MAX_DEVICES = 65536

#: SR-IOV types: a function that cannot be split; a physical function, which can; a virtual
#: function, split off it; a virtual function for vDPA.
PCI, PF, VF, VDPA = "type-PCI", "type-PF", "type-VF", "vdpa"
TYPES = (PCI, PF, VF, VDPA)
#: Types that are split off a physical function.
PARTS = (VF, VDPA)

#: The distance of a device to the host cells of its request; see :func:`.fit.affinity_tier`.
LEGACY, PREFERRED, REQUIRED, SOCKET = "legacy", "preferred", "required", "socket"
AFFINITIES = (LEGACY, PREFERRED, REQUIRED, SOCKET)

#: The value of a requested tag that means its absence.
NOT_THERE = "null"

#: States of a device; the first six are those of Nova, and the documentation has a diagram.
AVAILABLE, CLAIMED, ALLOCATED = "available", "claimed", "allocated"
UNCLAIMABLE, UNAVAILABLE, REMOVED = "unclaimable", "unavailable", "removed"
#: Not allocatable after a release: it was for one use, or its host removed it.
SPENT = "spent"
STATES = (AVAILABLE, CLAIMED, ALLOCATED, UNCLAIMABLE, UNAVAILABLE, REMOVED, SPENT)

#: The fact with the uuid of the provider of a device in Placement.
PROVIDER = "rp_uuid"
#: An empty mapping of tags or facts.
NO_TEXTS = fields.FrozenDict()
_ADDRESS = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-9a-f])\Z", re.ASCII)


def parse_address(value: object) -> str:
    """Return a PCI address in its stored form, ``dddd:bb:ss.f`` in lower case.

    :raises InvalidInput: if it is not an address, or its domain has more than 16 bits

    >>> parse_address("3:3B:0.1")
    '0003:3b:00.1'
    >>> parse_address("10000:00:02.0")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: PCI address: got '10000:00:02.0', expected a ...
    """
    match = _ADDRESS.match(value.lower()) if isinstance(value, str) else None
    expected = "DOMAIN:BUS:SLOT.FUNCTION, such as 0000:3b:00.0"
    if match is not None:
        domain, bus, slot, function = (int(digits, 16) for digits in match.groups())
        if domain <= 0xFFFF and slot <= 0x1F and function <= 0x7:
            return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
        is_large = domain > 0xFFFF
        expected = (
            "a domain of at most ffff (16 bits)" if is_large else "slots to 1f and functions to 7"
        )
    raise InvalidInput("PCI address", "PCI address", value, expected)


# The names of these functions are in the fingerprints of the classes that use them.
def _four_digits(value: object) -> str:
    return _lower(value, r"[0-9a-f]{4}")


def _class_code(value: object) -> str:
    return _lower(value, r"(?:[0-9a-f]{2}){0,3}")


def _lower(value: object, pattern: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(pattern, value.lower(), re.ASCII):
        raise ValueError(value)
    return value.lower()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _type(value: object) -> str:
    if value not in TYPES:
        raise ValueError(value)
    return str(value)


def custom_class(vendor_id: str, product_id: str) -> str:
    """Return the default resource class of devices.

    >>> custom_class("10de", "2330")
    'CUSTOM_PCI_10DE_2330'
    """
    return f"CUSTOM_PCI_{vendor_id.upper()}_{product_id.upper()}"


def class_of_ids(values: Mapping[str, Any]) -> str | None:
    """Return the default resource class of a device with these field values, None if unknown."""
    vendor, product = values.get("vendor_id"), values.get("product_id")
    if isinstance(vendor, str) and isinstance(product, str):
        return custom_class(vendor, product)
    return None  # the field that is wrong raises


#: The fields of devices: a PCI address; a vendor or product id; a class code or its first digits;
#: an SR-IOV type; tags and facts.
ADDRESS = fields.Checked(
    parse_address, "a PCI address", "^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f].[0-7]$"
)
ID = fields.Checked(_four_digits, "four hexadecimal digits", "^[0-9a-f]{4}$")
CLASS_CODE = fields.Checked(_class_code, "0, 2, 4 or 6 hexadecimal digits", "^[0-9a-f]{0,6}$")
TYPE = fields.Checked(_type, f"one of {', '.join(TYPES)}", "")
TEXTS = fields.FrozenDictOf(names.label, fields.Checked(_text, "text", ""))


@base.register
class Device(base.ResourceObject, frozen=True):
    """A PCI function that can be allocated: one unit of its resource class.

    ===================  ===========================================================================
    ``address``          its identity, such as ``0000:3b:00.0``
    ``vendor_id``,       its vendor and product, four hexadecimal digits each
    ``product_id``
    ``type``             ``type-PCI``; ``type-PF`` (a physical function: it can be split);
                         ``type-VF`` (a virtual function, split off one); ``vdpa``
    ``resource_class``   its resource class, by default ``CUSTOM_PCI_<VENDOR>_<PRODUCT>``
    ``class_code``       its PCI class, ``0302`` (a 3D controller); empty if not known
    ``parent``           the address of the physical function that it was split off
    ``numa_node``        the host cell that it is next to; None if the firmware does not report it
    ``tags``             labels from the operator, which requests can match
    ``traits``           its traits, as those of its provider
    ``remote_managed``   whether another machine (a SmartNIC) manages it; only requests that specify
                         this match it
    ``live_migratable``  whether its consumer can migrate live; None if not specified
    ``one_time_use``     whether it is spent after one allocation
    ``facts``            other properties, such as a MAC address: stored, not matched
    ``withdrawn``        whether its host removed it while it was allocated
    ``writes_before``    for one-time use: the number of allocations written at its provider before
    ===================  ===========================================================================

    >>> gpu = Device("3b:00.0", "10de", "2330", resource_class="PGPU", numa_node=1)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: PCI address: got '3b:00.0', expected DOMAIN:BUS:...
    >>> gpu = Device("0000:3b:00.0", "10de", "2330", numa_node=1)
    >>> gpu.resource_class, gpu.type, gpu.can_be_split
    ('CUSTOM_PCI_10DE_2330', 'type-PCI', False)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    address: str = fields.field(ADDRESS, kw_only=False)
    vendor_id: str = fields.field(ID, kw_only=False)
    product_id: str = fields.field(ID, kw_only=False)
    type: str = fields.choice(*TYPES, default=PCI, kw_only=False)
    resource_class: fields.Coerced[str, str | None] = fields.resource_class(factory=class_of_ids)
    class_code: str = fields.field(CLASS_CODE, default="")
    parent: str | None = fields.field(ADDRESS, default=None)
    numa_node: int | None = fields.integer(0, MAX_NODE, default=None)
    tags: Mapping[str, str] = fields.field(TEXTS, default=NO_TEXTS)
    traits: fields.Names = fields.traits(default=frozenset())
    remote_managed: bool = fields.boolean(default=False)
    live_migratable: bool | None = fields.boolean(default=None)
    one_time_use: bool = fields.boolean(default=False)
    facts: Mapping[str, str] = fields.field(TEXTS, default=NO_TEXTS)
    withdrawn: bool = fields.boolean(default=False)
    writes_before: int = fields.integer(0, default=0)

    @property
    def can_be_split(self) -> bool:
        """Whether it is a physical function."""
        return self.type == PF

    @property
    def is_part(self) -> bool:
        """Whether it was split off a physical function."""
        return self.type in PARTS

    def _validate(self) -> None:
        if self.parent == self.address:
            raise _invalid_device("parent of a device", self.parent, "another address")
        if (self.parent is not None) != self.is_part:
            expected = "the physical function it was split off"
            if not self.is_part:
                expected = "none: only a part has a parent"
            raise _invalid_device(f"parent of {self.address}, {self.type}", self.parent, expected)
        if self.one_time_use and self.is_part:
            raise _invalid_device(
                f"one_time_use of {self.address}", self.type, "type-PCI or type-PF"
            )

    def __str__(self) -> str:
        return f"{self.address} {self.vendor_id}:{self.product_id} {self.type}"


@base.register
class DeviceUse(base.ResourceObject, frozen=True):
    """The use of one device.

    ``state`` is ``claimed`` or ``allocated``; ``spent`` if the device must not be allocated again;
    ``unavailable`` if something else uses it up: a partition of it, or a count that names no
    device. ``gone`` is True if it was removed from its host while allocated.

    >>> DeviceUse("0000:3b:00.0", "claimed").is_held
    True
    """

    # Version 1.0: Initial version
    VERSION = "1.0"
    REMOVED_FIELDS: ClassVar[Mapping[str, Any]] = {"then": None}

    address: str = fields.field(ADDRESS, kw_only=False)
    state: str = fields.choice(CLAIMED, ALLOCATED, SPENT, UNAVAILABLE, kw_only=False)
    gone: bool = fields.boolean(default=False)

    @property
    def is_held(self) -> bool:
        """Whether it is claimed or allocated by name."""
        return self.state in (CLAIMED, ALLOCATED)

    def _validate(self) -> None:
        if self.gone and not self.is_held:
            raise _invalid_device(
                f"state of {self.address}", self.state, "claimed or allocated, of a removed device"
            )


def check_devices(devices: Sequence[Device], usage: Sequence[DeviceUse]) -> None:
    """Raise unless devices and their use agree.

    :raises InvalidInput: for a repeated address; for a function split off a device that cannot be
        split, unless one of the two is removed or spent; for a use without its device; for a
        physical function that is allocated together with a function split off it
    """
    for subject, addresses in (
        ("address", [device.address for device in devices]),
        ("address of a device in use", [use.address for use in usage]),
    ):
        repeated = sorted(at for at, count in Counter(addresses).items() if count > 1)
        if repeated:
            raise InvalidInput("repetition", subject, repeated, "each device once")
    by_address = {device.address: device for device in devices}
    for use in usage:
        if use.address not in by_address:
            raise _invalid_device("device in use", use.address, "one of these devices")
    withdrawn = {use.address for use in usage if use.state == SPENT or use.gone}
    for device in devices:
        card = by_address.get(device.parent or "")
        if card is None or card.can_be_split or withdrawn & {device.address, card.address}:
            continue
        raise _invalid_device(f"parent of {device.address}, {card.address}", card.type, PF)
    allocated = {use.address for use in usage if use.is_held}
    for address in sorted(allocated):
        parent = by_address[address].parent
        if parent in allocated:
            raise _invalid_device(
                f"allocated functions of {parent}",
                address,
                "one of the two: they exclude each other",
            )


class RetainedDevices(NamedTuple):
    """The devices of a host after discovery, with allocated devices as they are stored."""

    devices: Mapping[str, Device]  #: by address
    reasons: Mapping[str, str]  #: why a device differs from the discovered one, by address


def retain_allocated(
    discovered: Iterable[Device], stored: Iterable[Device], allocated: Collection[str]
) -> RetainedDevices:
    """Return the devices of a host after discovery: an allocated device stays as it is stored.

    Functions split off an allocated physical function count as allocated too. Of the other devices:

    - a function that is new below an allocated physical function waits until that is released;
    - a physical function that contradicts an allocated function of it stays as stored, or waits.

    Functions contradict each other if the physical one cannot be split, or both have one class.
    Facts, which no request matches, do not count as a difference. Source: Nova's ``PciDevTracker``.

    :param discovered: the discovered devices, which agree with each other
    :param stored: the devices as stored, which agree with each other
    :param allocated: addresses of stored devices

    >>> gpu = Device("0000:3b:00.0", "10de", "2330")
    >>> retained = retain_allocated([], [gpu], [gpu.address])
    >>> retained.devices[gpu.address].withdrawn, *retained.reasons.values()
    (True, 'no longer offered, cannot be allocated again')
    """
    new = {device.address: device for device in discovered}
    old = {device.address: device for device in stored}
    cards = {address for address in allocated if address in old and old[address].can_be_split}
    retained = {at for at, device in old.items() if at in allocated or device.parent in cards}
    devices, reasons = dict(new), dict[str, str]()
    for address in sorted(retained):
        devices[address] = old[address].replace(withdrawn=address not in new)
        if address not in new:
            reasons[address] = "no longer offered, cannot be allocated again"
        elif not _match_same_requests(old[address], new[address]):
            reasons[address] = "changed, stays as it was until its release"
    for address in sorted({old[at].parent or "" for at in retained} & devices.keys()):
        card, before = devices[address], old.get(address)
        parts = (at for at in sorted(retained) if old[at].parent == address)
        blocking = next((at for at in parts if not _agree(old[at], card)), None)
        if blocking is None:
            continue
        if before is None or _match_same_requests(before, card):
            del devices[address]
            reasons[address] = f"left out until the release of {blocking}"
        else:
            devices[address] = before
            reasons[address] = f"stays as it was until the release of {blocking}"
    for part in new.values():
        above = devices.get(part.parent or "")
        if above is None or part.address in retained:
            continue
        if above.address in cards or not _agree(part, above):
            del devices[part.address]
            reasons[part.address] = f"left out until the release of {above.address}"
    return RetainedDevices(devices, reasons)


def _agree(part: Device, card: Device) -> bool:
    return card.can_be_split and part.resource_class != card.resource_class


def _match_same_requests(first: Device, second: Device) -> bool:
    plain = {"facts": {}, "withdrawn": False, "writes_before": 0}
    return first.replace(**plain) == second.replace(**plain)


def tag_matches(value: str, requested: str) -> bool:
    """Return whether a tag has a requested value: without regard to case; a list contains a list.

    Source: Nova's ``pci_device_prop_match``.

    >>> tag_matches("PhysNet1", "physnet1"), tag_matches('["a", "B"]', '["b"]')
    (True, True)
    """
    if value.lower() == requested.lower():
        return True
    if not (value.startswith("[") and requested.startswith("[")):
        return False
    try:
        items = json.loads(value.lower())
        return all(item in items for item in json.loads(requested.lower()))
    except (ValueError, RecursionError):  # not a list, or nested too deeply
        return False


def listed(value: Any) -> Any:
    """Return an iterable as a list; anything else unchanged, for its field to reject.

    An iterable of more than :data:`MAX_DEVICES` items, or without an end, is unchanged too.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        return value
    items = list(itertools.islice(value, MAX_DEVICES + 1))
    return items if len(items) <= MAX_DEVICES else value
