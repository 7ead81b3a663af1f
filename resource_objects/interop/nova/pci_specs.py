"""``[pci] device_spec``: which devices of a host are for guests, and what they are called.

An entry says which devices it is about, and the rest of it are tags:

=======================  ===========================================================================
``vendor_id``,           hexadecimal numbers up to FFFF, or ``*``, which is what is not said
``product_id``
``address``              text, a glob by field: ``*:0a:00.*``; or an object of regular expressions,
                         each of which has to match the whole field. A single address is that of a
                         physical function too, for all functions split off it
``devname``              the name of a network interface, in place of an address: of the device, or
                         of the physical function it was split off
``remote_managed``       whether it is managed from elsewhere. Such a device needs a card serial
                         number, else this entry is not about it; and is no physical function
``live_migratable``,     yes or no. Only what is no part of another device can be for one use
``one_time_use``
``managed``              yes or no: a tag, ``true`` or ``false``
``resource_class``,      what it is in Placement: see
``traits``               :func:`tagged_device`
anything else            tags. A list is kept as JSON; null says that there is none
=======================  ===========================================================================

In a glob, fields that are missing on the left are any, and so is a function that is missing:
``:00.`` is slot 00 of any bus. In an object, a field that is missing is any.

The first entry that is about a device wins. What differs from Nova:

=====================================  =============================================================
words                                  Nova, and here
=====================================  =============================================================
``{"address": {"bus": "1"}}``          matches buses 10 to 1f, for the beginning will do; none
``{"address": {"func": "0"}}``         ignored; refused (INVALID_SPEC_ADDRESS)
``remote_managed=maybe``               no; refused (INVALID_SPEC_FLAG)
a tag that is an object                fails when the pools are written; refused (INVALID_SPEC_TAG)
``resource_class=CUSTOM_A-B``          fails in Placement; refused (INVALID_SPEC_CLASS)
a single address                       looked up in ``/sys`` when Nova starts; nothing is looked up:
                                       what was split off another device says so
=====================================  =============================================================
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from oslo_utils import strutils

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import FrozenDict
from resource_objects.interop.nova import primitive
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources.pci.device import PF, Device, custom_class, listed, parse_address

__all__ = ["AddressPattern", "DeviceSpecEntry", "parse_device_spec", "tagged_device"]

_ROOT: Final = "device_spec"
#: The tag that Nova has of the network interface of a physical function.
PARENT_IFNAME: Final = "parent_ifname"
_MAX_ID: Final = 0xFFFF
_FLAGS: Final = ("remote_managed", "live_migratable", "one_time_use")
#: Names that are fields of an entry; any other name is a tag.
_KNOWN: Final = (
    "vendor_id",
    "product_id",
    "address",
    "devname",
    "resource_class",
    "traits",
    *_FLAGS,
)

#: How the address of a network interface is found: by name, or by asking. None if there is none.
Devnames = Mapping[str, str] | Callable[[str], str | None]


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceSpecEntry:
    """Which devices an entry is about, and what it makes of them; see the head of this module.

    ``vendor_id`` and ``product_id`` are None for any. ``address`` is None for any too, or where an
    interface is named and its address is not known: then ``devname`` tells.
    """

    vendor_id: str | None = None
    product_id: str | None = None
    address: AddressPattern | None = None
    devname: str | None = None
    resource_class: str | None = None
    traits: frozenset[str] = frozenset()
    remote_managed: bool = False
    live_migratable: bool | None = None
    one_time_use: bool | None = None
    tags: Mapping[str, str] = FrozenDict()

    def is_about(self, device: Device, ifname: str | None = None) -> bool:
        """Return whether this is about a device, serial numbers apart.

        :param ifname: the name of its network interface
        """
        return (
            self.vendor_id in (None, device.vendor_id)
            and self.product_id in (None, device.product_id)
            and self._is_at(device, ifname)
        )

    def _is_at(self, device: Device, ifname: str | None) -> bool:
        if self.address is not None:
            return self.address.matches(device.address, device.parent)
        own = {ifname, device.tags.get(PARENT_IFNAME)}
        return self.devname is None or self.devname in own


# --- reading --------------------------------------------------------------------------------------


def parse_device_spec(
    source: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]],
    *,
    devnames: Devnames | None = None,
    report_in_placement: bool = False,
) -> tuple[DeviceSpecEntry, ...]:
    """Return the entries of ``[pci] device_spec``, in their order.

    :param source: JSON text, an object it stands for, or several of these, as the option has them;
        each text is an object or a list of objects
    :param devnames: where a network interface is: its address by name, or what returns it, None if
        there is none. Without it a device has to say the name of its interface
    :param report_in_placement: ``[pci] report_in_placement`` of the host: without it nothing can be
        for one use, with it nothing can be named by its interface
    :raises InvalidNovaInput: by the rule that is broken

    >>> (nic,) = parse_device_spec('{"address": "*:04:00.*", "physical_network": "red"}')
    >>> dict(nic.tags)
    {'physical_network': 'red'}
    >>> parse_device_spec('{"vendor_id": "10000"}')
    Traceback (most recent call last):
    resource_objects.interop.nova.rules.InvalidNovaInput: device_spec[0].vendor_id: got '10000'...
    """
    return tuple(
        _entry(f"{_ROOT}[{place}]", given, devnames, report_in_placement)
        for place, given in enumerate(_objects(source))
    )


def _checked_entries(given: object) -> tuple[DeviceSpecEntry, ...]:
    """Return entries that were parsed.

    :raises InvalidNovaInput: ``INVALID_DEVICE_SPEC`` if they were not
    """
    entries = listed(given)
    if not isinstance(entries, list) or not all(
        isinstance(one, DeviceSpecEntry) for one in entries
    ):
        raise InvalidNovaInput(
            NovaRule.INVALID_DEVICE_SPEC, _ROOT, given, "entries as parse_device_spec() returns"
        )
    return tuple(entries)


def _objects(source: object) -> list[Mapping[str, Any]]:
    """Return the entries of one text, object or list of these."""
    if isinstance(source, str):
        return _objects_of_text(source)
    if isinstance(source, Mapping):
        return [source]
    entries = listed(source)
    if not isinstance(entries, list):
        raise InvalidNovaInput(
            NovaRule.INVALID_DEVICE_SPEC, _ROOT, source, "an object of JSON, or a list"
        )
    found: list[Mapping[str, Any]] = []
    for one in entries:
        found += _objects_of_text(one) if isinstance(one, str) else [_object(one)]
    return found


def _objects_of_text(text: str) -> list[Mapping[str, Any]]:
    try:
        found = primitive.parse_document(text, _ROOT)
    except InvalidInput as error:
        raise InvalidNovaInput(NovaRule.INVALID_DEVICE_SPEC, _ROOT, text, error.expected) from None
    return [_object(one) for one in found] if isinstance(found, list) else [_object(found)]


def _object(given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidNovaInput(NovaRule.INVALID_DEVICE_SPEC, _ROOT, given, "an object of JSON")
    return given


def _entry(
    what: str, given: Mapping[str, Any], devnames: Devnames | None, report: bool
) -> DeviceSpecEntry:
    flags = {name: _flag(f"{what}.{name}", given.get(name)) for name in _FLAGS}
    devname = given.get("devname") or None
    if devname is not None and not isinstance(devname, str):
        raise InvalidNovaInput(
            NovaRule.INVALID_DEVICE_SPEC, f"{what}.devname", devname, "the name of an interface"
        )
    if devname is not None and given.get("address"):
        raise InvalidNovaInput(
            NovaRule.ADDRESS_AND_DEVNAME, f"{what}.devname", devname, "none beside an address"
        )
    if devname is not None and report:
        expected = "none where devices are reported in Placement"
        raise InvalidNovaInput(NovaRule.DEVNAME_IN_PLACEMENT, f"{what}.devname", devname, expected)
    if flags["one_time_use"] and not report:
        expected = "no, unless devices are reported in Placement"
        raise InvalidNovaInput(
            NovaRule.ONE_TIME_USE_WITHOUT_PLACEMENT, f"{what}.one_time_use", True, expected
        )
    is_remote = bool(flags["remote_managed"])
    return DeviceSpecEntry(
        vendor_id=_id(f"{what}.vendor_id", given.get("vendor_id", "*")),
        product_id=_id(f"{what}.product_id", given.get("product_id", "*")),
        address=_address(given, devname, devnames, is_remote),
        devname=devname,
        resource_class=_class(f"{what}.resource_class", given.get("resource_class")),
        traits=_traits(f"{what}.traits", given.get("traits")),
        remote_managed=is_remote,
        live_migratable=flags["live_migratable"],
        one_time_use=flags["one_time_use"],
        tags=_tags(what, given),
    )


def _id(what: str, said: object) -> str | None:
    text = said.strip().lower() if isinstance(said, str) else ""
    if text == "*":
        return None
    digits = text.removeprefix("0x")
    if not digits or len(digits) > 64 or set(digits) - set("0123456789abcdef"):
        raise InvalidNovaInput(
            NovaRule.INVALID_SPEC_ID, what, said, "a hexadecimal number up to FFFF, or *"
        )
    if int(digits, 16) > _MAX_ID:
        raise InvalidNovaInput(
            NovaRule.INVALID_SPEC_ID, what, said, "a hexadecimal number up to FFFF, or *"
        )
    return f"{int(digits, 16):04x}"


def _flag(what: str, said: object) -> bool | None:
    if said is None:
        return None
    try:
        if not isinstance(said, str | bool):
            raise ValueError(said)
        return bool(strutils.bool_from_string(said, strict=True))
    except ValueError:
        raise InvalidNovaInput(NovaRule.INVALID_SPEC_FLAG, what, said, "yes or no") from None


def _address(
    given: Mapping[str, Any], devname: str | None, devnames: Devnames | None, is_remote: bool
) -> AddressPattern | None:
    """Return the pattern of an address, None for any or if only the name of its interface tells."""
    if devname is None:
        said = given.get("address")
        return _pattern(said) if said not in (None, "", {}) else None
    if devnames is None:
        return None
    found = devnames.get(devname) if isinstance(devnames, Mapping) else devnames(devname)
    if found is not None:
        return _glob(parse_address(found))
    if is_remote:
        raise InvalidNovaInput(
            NovaRule.REMOTE_MANAGED_NOT_PRESENT, "devname", devname, "an interface of this host"
        )
    return _NOWHERE


def _class(what: str, said: object) -> str | None:
    if said in (None, ""):
        return None
    try:
        return primitive.normalized_class(_text(said))
    except InvalidInput as error:
        raise InvalidNovaInput(NovaRule.INVALID_SPEC_CLASS, what, said, error.expected) from None


def _traits(what: str, said: object) -> frozenset[str]:
    if said is None:
        return frozenset()
    try:
        return primitive.normalized_traits(_text(said))
    except InvalidInput as error:
        expected = f"names with commas between them, each {error.expected}"
        raise InvalidNovaInput(NovaRule.INVALID_SPEC_TRAITS, what, said, expected) from None


def _text(said: object) -> str:
    if not isinstance(said, str):
        raise InvalidInput("value", "name", said, "text")
    return said


def _tags(what: str, given: Mapping[str, Any]) -> FrozenDict:
    found: dict[str, str] = {}
    for name, value in given.items():
        if name in _KNOWN or value is None:
            continue
        try:
            found[names.label(name)] = _tag(value)
        except InvalidInput as error:
            raise InvalidNovaInput(
                NovaRule.INVALID_SPEC_TAG, f"{what}.{name}", value, error.expected
            ) from None
    if "managed" in found:
        flag = _flag(f"{what}.managed", given["managed"])
        found["managed"] = primitive.format_flag(bool(flag))
    return FrozenDict(found)


def _tag(value: object) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return json.dumps(value)
    return primitive.require_text(value, "tag") or ""


# --- addresses ---

_ADDRESS: Final = "device_spec address"
_ANY: Final = "*"
#: Fields of an address: how many digits each has, and the highest.
_ADDRESS_FIELDS: Final = {
    "domain": (4, 0xFFFF),
    "bus": (2, 0xFF),
    "slot": (2, 0x1F),
    "function": (1, 0x7),
}
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+\Z", re.ASCII)
_HIGHEST: Final = ", ".join(f"{name} {highest:x}" for name, (_, highest) in _ADDRESS_FIELDS.items())
_GLOB: Final = f"DOMAIN:BUS:SLOT.FUNCTION of hexadecimal digits or *, up to {_HIGHEST}"
#: No expression of four characters needs to be longer.
_LONGEST: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class AddressPattern:
    """What an address has to look like: each field matches its expression.

    ``address`` is the only one that does, where there is only one: then functions that were split
    off the device there do too.

    >>> _glob("*:0a:00.*").matches("0000:0a:00.3"), _glob("0a:00").address
    (True, None)
    >>> _glob("0000:3B:00.0").address
    '0000:3b:00.0'
    """

    fields: tuple[re.Pattern[str], ...]
    address: str | None = None

    def matches(self, address: str, parent: str | None = None) -> bool:
        """Return whether a device does that is at an address, perhaps split off another."""
        return self._is(address) or (self.address is not None and parent == self.address)

    def _is(self, address: str) -> bool:
        said = re.split("[:.]", address)
        return all(form.fullmatch(text) for form, text in zip(self.fields, said, strict=True))


#: What no address matches: of an interface that there is not.
_NOWHERE: Final = AddressPattern((re.compile(r"(?!)"),) * len(_ADDRESS_FIELDS))


def _pattern(given: object) -> AddressPattern:
    """Return the pattern of a glob or of regular expressions.

    :raises InvalidNovaInput: ``INVALID_SPEC_ADDRESS`` if it is neither
    """
    if isinstance(given, str):
        return _glob(given)
    if isinstance(given, Mapping):
        return _expressions(given)
    raise InvalidNovaInput(
        NovaRule.INVALID_SPEC_ADDRESS, _ADDRESS, given, "text, or regular expressions by field"
    )


def _glob(text: str) -> AddressPattern:
    """Return the pattern of a glob.

    :raises InvalidNovaInput: ``INVALID_SPEC_ADDRESS`` for more than four fields, or one that is no
        number and not ``*``

    >>> _glob("0000:0a:20.0")
    Traceback (most recent call last):
    resource_objects.interop.nova.rules.InvalidNovaInput: device_spec address slot: got ...
    """
    left, _, function = text.partition(".")
    said = left.split(":")
    if len(said) > len(_ADDRESS_FIELDS) - 1:
        raise InvalidNovaInput(NovaRule.INVALID_SPEC_ADDRESS, _ADDRESS, text, _GLOB)
    missing = [""] * (len(_ADDRESS_FIELDS) - 1 - len(said))
    fields = [
        _address_field(name, field.strip())
        for name, field in zip(_ADDRESS_FIELDS, [*missing, *said, function], strict=True)
    ]
    return _made_of(fields, [re.escape(field) if field != _ANY else ".*" for field in fields])


def _address_field(name: str, said: str) -> str:
    if said in ("", _ANY):
        return _ANY
    digits, highest = _ADDRESS_FIELDS[name]
    value = int(said, 16) if _HEXADECIMAL.match(said) else highest + 1
    if value > highest:
        raise InvalidNovaInput(
            NovaRule.INVALID_SPEC_ADDRESS, f"{_ADDRESS} {name}", said, f"up to {highest:x}, or *"
        )
    return f"{value:0{digits}x}"


def _expressions(given: Mapping[Any, Any]) -> AddressPattern:
    """Return the pattern of regular expressions.

    :raises InvalidNovaInput: ``INVALID_SPEC_ADDRESS`` for an unknown field, or an invalid
        expression

    >>> slots = _expressions({"bus": "0a", "slot": "0[1-3]"})
    >>> slots.matches("0000:0a:01.0"), slots.matches("0000:0a:11.0")
    (True, False)
    """
    unknown = sorted(str(name) for name in given if name not in _ADDRESS_FIELDS)
    if unknown:
        raise InvalidNovaInput(
            NovaRule.INVALID_SPEC_ADDRESS,
            _ADDRESS,
            unknown[0],
            f"one of {', '.join(_ADDRESS_FIELDS)}",
        )
    said = [given.get(name, ".*") for name in _ADDRESS_FIELDS]
    for name, expression in zip(_ADDRESS_FIELDS, said, strict=True):
        if not isinstance(expression, str) or len(expression) > _LONGEST:
            expected = f"a regular expression of at most {_LONGEST} characters"
            raise InvalidNovaInput(
                NovaRule.INVALID_SPEC_ADDRESS, f"{_ADDRESS} {name}", expression, expected
            )
    return _made_of(said, said)


def _made_of(said: list[str], forms: list[str]) -> AddressPattern:
    try:
        fields = tuple(re.compile(form) for form in forms)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidNovaInput(
            NovaRule.INVALID_SPEC_ADDRESS, _ADDRESS, forms, f"regular expressions: {error}"
        ) from None
    if all(_HEXADECIMAL.match(field) for field in said):
        domain, bus, slot, function = said
        return AddressPattern(fields, f"{domain}:{bus}:{slot}.{function}".lower())
    return AddressPattern(fields)


# --- what an entry makes of a device ---


def tagged_device(
    device: Device,
    entries: Iterable[DeviceSpecEntry],
    *,
    ifname: str | None = None,
    serial_number: str | None = None,
) -> Device | None:
    """Return a device as the first entry that is about it calls it; None if none is.

    Its class and traits are those that Nova has in Placement: upper case, with ``CUSTOM_`` if they
    are no standard ones; the class of what says none is that of its ids. Of what it was called
    before, only the interface of its physical function stays.

    :param ifname: the name of its network interface, for entries that say ``devname``
    :param serial_number: of its card; by default as its ``capabilities`` say
    :raises InvalidInput: if it is no device
    :raises InvalidNovaInput: ``INVALID_DEVICE_SPEC`` if the entries are not those that
        :func:`.parse_device_spec` returns; ``ONE_TIME_USE_OF_PART`` if it was split off another,
        and is said to be for one use or not; ``REMOTE_MANAGED_FUNCTION`` if it is a physical
        function that is said, by its address, to be managed from elsewhere

    >>> from resource_objects.interop.nova import parse_device_spec
    >>> entries = parse_device_spec({"vendor_id": "10de", "resource_class": "gpu", "traits": "big"})
    >>> gpu = tagged_device(Device("0000:3b:00.0", "10de", "2330"), entries)
    >>> gpu.resource_class, sorted(gpu.traits)
    ('CUSTOM_GPU', ['CUSTOM_BIG'])
    >>> tagged_device(Device("0000:3c:00.0", "8086", "154c"), entries) is None
    True
    """
    if not isinstance(device, Device):
        raise InvalidInput("device", "device", device, "a Device")
    for entry in _checked_entries(entries):
        if not entry.is_about(device, ifname):
            continue
        if entry.remote_managed:
            _check_remote(entry, device)
            if not (serial_number or _serial_number_of(device)):
                continue
        return _tagged(entry, device)
    return None


def _check_remote(entry: DeviceSpecEntry, device: Device) -> None:
    is_named = entry.address is not None and entry.address.address == device.address
    if device.type == PF and is_named:
        expected = "no physical function: functions that are split off it can be"
        raise InvalidNovaInput(
            NovaRule.REMOTE_MANAGED_FUNCTION, "remote_managed", device.address, expected
        )


def _serial_number_of(device: Device) -> str | None:
    """Return the serial number of a device's card, as the fact ``capabilities`` says it."""
    try:
        said = json.loads(device.facts.get("capabilities", "{}"))
        found = said["vpd"]["card_serial_number"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def _tagged(entry: DeviceSpecEntry, device: Device) -> Device:
    if entry.one_time_use is not None and device.is_part:
        expected = "nothing of what was split off another device"
        raise InvalidNovaInput(
            NovaRule.ONE_TIME_USE_OF_PART, "one_time_use", device.address, expected
        )
    stays = {name: device.tags[name] for name in device.tags.keys() & {PARENT_IFNAME}}
    return device.replace(
        tags={**entry.tags, **stays},
        resource_class=entry.resource_class or custom_class(device.vendor_id, device.product_id),
        traits=device.traits | entry.traits,
        remote_managed=entry.remote_managed,
        live_migratable=entry.live_migratable,
        one_time_use=bool(entry.one_time_use),
    )
