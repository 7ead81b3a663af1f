"""A PCI device: what it is, as what it can be taken, and what is taken of it.

:class:`Device` is one function at its address, :class:`DeviceUse` what is taken of it.
Types (what a function is to SR-IOV), affinity policies and states are constants of this module.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects import base, fields, names
from resource_objects.exceptions import InvalidInput

_invalid_pci_address = functools.partial(InvalidInput, "PCI address")
_invalid_device = functools.partial(InvalidInput, "device")

#: The highest id of a NUMA node.
MAX_NODE = 65535
#: A function that cannot be split; one that can; one that was split off; one for vDPA.
PCI, PF, VF, VDPA = "type-PCI", "type-PF", "type-VF", "vdpa"
TYPES = (PCI, PF, VF, VDPA)
#: Types that are split off a physical function.
PARTS = (VF, VDPA)

#: No machine has more devices, and nobody asks for more at once.
MAX_DEVICES = 65536

#: How near a device has to be to the host cells of who asks for it; see :func:`.fit.rings`.
LEGACY, PREFERRED, REQUIRED, SOCKET = "legacy", "preferred", "required", "socket"
AFFINITIES = (LEGACY, PREFERRED, REQUIRED, SOCKET)

#: What a tag that is not there is asked for as.
NOT_THERE = "null"

#: States of a device; the first six are Nova's, and the drawing is in the documentation.
AVAILABLE, CLAIMED, ALLOCATED = "available", "claimed", "allocated"
UNCLAIMABLE, UNAVAILABLE, REMOVED = "unclaimable", "unavailable", "removed"
#: Used up: it was for one use, and it has had it.
SPENT = "spent"
STATES = (AVAILABLE, CLAIMED, ALLOCATED, UNCLAIMABLE, UNAVAILABLE, REMOVED, SPENT)

#: The fact that says which provider of a foreign ledger a device is.
PROVIDER = "rp_uuid"
#: No text by name.
NO_TEXTS = fields.FrozenDict()
_ADDRESS = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-9a-f])\Z", re.ASCII)
_EXPECTED = "DOMAIN:BUS:SLOT.FUNCTION, such as 0000:3b:00.0"
#: The highest domain, bus, slot and function.
_MOST = (0xFFFF, 0xFF, 0x1F, 0x7)
_FOUR_DIGITS = re.compile(r"[0-9a-f]{4}\Z", re.ASCII)
_CLASS_CODE = re.compile(r"(?:[0-9a-f]{2}){0,3}\Z", re.ASCII)


def parse_address(value: object) -> str:
    """Return a PCI address as it is kept, ``dddd:bb:ss.f`` in lower case.

    :raises InvalidInput: if it is none, or its domain has more than 16 bits

    >>> parse_address("3:3B:0.1")
    '0003:3b:00.1'
    >>> parse_address("10000:00:02.0")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: PCI address: got '10000:00:02.0', expected a ...
    """
    found = _ADDRESS.match(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise _invalid_pci_address("PCI address", value, _EXPECTED)
    domain, bus, slot, function = (int(digits, 16) for digits in found.groups())
    if domain > _MOST[0]:
        raise _invalid_pci_address("PCI address", value, "a domain of at most ffff (16 bits)")
    if slot > _MOST[2] or function > _MOST[3]:
        raise _invalid_pci_address("PCI address", value, "slots to 1f and functions to 7")
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _four_digits(value: object) -> str:
    if not isinstance(value, str) or not _FOUR_DIGITS.match(value.lower()):
        raise ValueError(value)
    return value.lower()


def _class_code(value: object) -> str:
    if not isinstance(value, str) or not _CLASS_CODE.match(value.lower()):
        raise ValueError(value)
    return value.lower()


def custom_class(vendor_id: str, product_id: str) -> str:
    """Return the class of devices that are given no other.

    >>> custom_class("10de", "2330")
    'CUSTOM_PCI_10DE_2330'
    """
    return f"CUSTOM_PCI_{vendor_id.upper()}_{product_id.upper()}"


def class_of_ids(values: Mapping[str, Any]) -> str | None:
    """Return the default resource class of a device with these field values, None if unknown."""
    vendor, product = values.get("vendor_id"), values.get("product_id")
    if isinstance(vendor, str) and isinstance(product, str):
        return custom_class(vendor, product)
    return None  # which of them is wrong is for its field to say


def _type(value: object) -> str:
    if value not in TYPES:
        raise ValueError(value)
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


#: What fields of devices hold: a PCI address;
ADDRESS = fields.Checked(
    parse_address, "a PCI address", "^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f].[0-7]$"
)
#: the id of a vendor or product, in lower case;
ID = fields.Checked(_four_digits, "four hexadecimal digits", "^[0-9a-f]{4}$")
#: a class code, or the first digits of one;
CLASS_CODE = fields.Checked(_class_code, "0, 2, 4 or 6 hexadecimal digits", "^[0-9a-f]{0,6}$")
#: the type of a function;
TYPE = fields.Checked(_type, f"one of {', '.join(TYPES)}", "")
#: text by name: tags and facts.
TEXTS = fields.FrozenDictOf(names.label, fields.Checked(_text, "text", ""))


@base.register
class Device(base.ResourceObject, frozen=True):
    """A PCI function that can be taken: each is one unit of its resource class.

    ===================  ===========================================================================
    ``address``          where it is plugged in: its identity, ``0000:3b:00.0``
    ``vendor_id``,       who made it and what it is, four hexadecimal digits
    ``product_id``
    ``type``             ``type-PCI``; ``type-PF`` (a physical function: it can be split);
                         ``type-VF`` (a virtual function: split off one); ``vdpa``
    ``resource_class``   what it is taken as; by default ``CUSTOM_PCI_<VENDOR>_<PRODUCT>``
    ``class_code``       what it is for, ``0302`` (a 3D controller); empty if not known
    ``parent``           the address of the physical function it was split off
    ``numa_node``        the host cell it is next to; None if the firmware does not say
    ``tags``             words that whoever offers it put on it, and that requests may ask for
    ``traits``           its qualities, as those of its provider
    ``remote_managed``   whether another machine (a SmartNIC) manages it: only for who asks for that
    ``live_migratable``  whether its user can move while it runs; None if nobody said
    ``one_time_use``     whether it is for one use, and spent then
    ``facts``            anything else that is known (a MAC address, say): carried, not read
    ``withdrawn``        whether its host does not offer it any more, while somebody holds it
    ``writes_before``    of one for one use: how often its provider was written to before that
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
        """Whether it is a physical function, which shares its fate with those split off it."""
        return self.type == PF

    @property
    def is_part(self) -> bool:
        """Whether it was split off a physical function."""
        return self.type in PARTS

    def _validate(self) -> None:
        if self.parent == self.address:
            raise _invalid_device("parent of a device", self.parent, "another address")
        if self.parent is not None and not self.is_part:
            what = f"parent of {self.address}, {self.type}"
            raise _invalid_device(what, self.parent, "none: only a part has a parent")
        if self.parent is None and self.is_part:
            what = f"parent of {self.address}, {self.type}"
            raise _invalid_device(what, None, "the physical function it was split off")
        if self.one_time_use and self.is_part:
            what = f"one_time_use of {self.address}"
            raise _invalid_device(what, self.type, "type-PCI or type-PF")

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

    address: str = fields.field(ADDRESS, kw_only=False)
    state: str = fields.choice(CLAIMED, ALLOCATED, SPENT, UNAVAILABLE, kw_only=False)
    gone: bool = fields.boolean(default=False)

    @property
    def is_held(self) -> bool:
        """Whether somebody has it by name."""
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
    for what, addresses in (
        ("address", [device.address for device in devices]),
        ("address of a device in use", [use.address for use in usage]),
    ):
        repeated = sorted(at for at, count in Counter(addresses).items() if count > 1)
        if repeated:
            raise InvalidInput("repetition", what, repeated, "each device once")
    known = {device.address: device for device in devices}
    for use in usage:
        if use.address not in known:
            raise _invalid_device("device in use", use.address, "one of these devices")
    withdrawn = {use.address for use in usage if use.state == SPENT or use.gone}
    for device in devices:
        whole = known.get(device.parent or "")
        if whole is None or whole.type == PF or withdrawn & {device.address, whole.address}:
            continue
        raise _invalid_device(f"parent of {device.address}, {whole.address}", whole.type, PF)
    allocated = {use.address for use in usage if use.is_held}
    for address in sorted(allocated):
        parent = known[address].parent
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


def retain_allocated(  # one rule after the other
    found: Iterable[Device], stored: Iterable[Device], allocated: Collection[str]
) -> RetainedDevices:
    """Return the devices of a host after discovery: an allocated device stays as it is stored.

    Functions split off an allocated physical function count as allocated too. Of the other devices:

    - a function that is new below an allocated physical function waits until that is released;
    - a physical function that contradicts an allocated function of it stays as stored, or waits.

    Functions contradict each other if the physical one cannot be split, or both have one class.
    Facts, which no request matches, do not count as a difference. Source: Nova's ``PciDevTracker``.

    :param found: the discovered devices, which agree with each other
    :param stored: the devices as stored, which agree with each other
    :param allocated: addresses of stored devices

    >>> gpu = Device("0000:3b:00.0", "10de", "2330")
    >>> retained = retain_allocated([], [gpu], [gpu.address])
    >>> retained.devices[gpu.address].withdrawn, *retained.reasons.values()
    (True, 'no longer offered, reserved until its release')
    """
    new = {device.address: device for device in found}
    old = {device.address: device for device in stored}
    cards = {address for address in allocated if address in old and old[address].can_be_split}
    kept = {at for at, device in old.items() if at in allocated or device.parent in cards}
    devices, reasons = dict(new), dict[str, str]()
    for address in sorted(kept):
        devices[address] = old[address].replace(withdrawn=address not in new)
        if address not in new:
            reasons[address] = "no longer offered, reserved until its release"
        elif not _match_same_requests(old[address], new[address]):
            reasons[address] = "changed, stays as it was until its release"
    for address in sorted({old[at].parent or "" for at in kept} & devices.keys()):
        whole, before = devices[address], old.get(address)
        parts = (at for at in sorted(kept) if old[at].parent == address)
        blocking = next((at for at in parts if not _agree(old[at], whole)), None)
        if blocking is None:
            continue
        if before is None or _match_same_requests(before, whole):
            del devices[address]
            reasons[address] = f"left out until the release of {blocking}"
        else:
            devices[address] = before
            reasons[address] = f"stays as it was until the release of {blocking}"
    for part in new.values():
        above = devices.get(part.parent or "")
        if above is None or part.address in kept:
            continue
        if above.address in cards or not _agree(part, above):
            del devices[part.address]
            reasons[part.address] = f"left out until the release of {above.address}"
    return RetainedDevices(devices, reasons)


def _agree(part: Device, whole: Device) -> bool:
    return whole.can_be_split and part.resource_class != whole.resource_class


def _match_same_requests(one: Device, other: Device) -> bool:
    plain = {"facts": {}, "withdrawn": False, "writes_before": 0}
    return one.replace(**plain) == other.replace(**plain)


def tag_matches(has: str, wanted: str) -> bool:
    """Return whether a tag's value will do: case does not count, and a list contains a list.

    Source: Nova's ``pci_device_prop_match``.

    >>> tag_matches("PhysNet1", "physnet1"), tag_matches('["a", "B"]', '["b"]')
    (True, True)
    """
    if has.lower() == wanted.lower():
        return True
    if not (has.startswith("[") and wanted.startswith("[")):
        return False
    try:
        there, named = json.loads(has.lower()), json.loads(wanted.lower())
        return all(item in there for item in named)
    except (ValueError, RecursionError):  # no list, or one nested deeper than can be read
        return False


def listed(given: Any) -> Any:
    """Return what can be gone through as a list; what cannot stays, for its field to refuse.

    What is longer than anything a machine has, or never ends, stays too.
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        return given
    found = list(itertools.islice(given, MAX_DEVICES + 1))
    return found if len(found) <= MAX_DEVICES else given
