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
``traits``               :func:`~resource_objects.interop.nova.pci_tagging.tagged_device`
anything else            tags. A list is kept as JSON; null says that there is none
=======================  ===========================================================================

The first entry that is about a device wins. What differs from Nova:

=====================================  =============================================================
words                                  Nova, and here
=====================================  =============================================================
``{"address": {"bus": "1"}}``          matches buses 10 to 1f, for the beginning will do; none
``{"address": {"func": "0"}}``         ignored; refused (InvalidSpecAddress)
``remote_managed=maybe``               no; refused (InvalidSpecFlag)
a tag that is an object                fails when the pools are written; refused (InvalidSpecTag)
``resource_class=CUSTOM_A-B``          fails in Placement; refused (InvalidSpecClass)
a single address                       looked up in ``/sys`` when Nova starts; nothing is looked up:
                                       what was split off another device says so
=====================================  =============================================================
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from oslo_utils import strutils

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import FrozenDict
from resource_objects.interop.nova import _pci_words, _primitive, pci_address, pci_errors
from resource_objects.interop.nova.pci_address import AddressPattern
from resource_objects.resources.pci import words
from resource_objects.resources.pci.device import Device

__all__ = ["DeviceSpecEntry", "parse_device_spec"]

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
    :raises InvalidWords: of the type of the rule that is broken, see :mod:`.pci_errors`

    >>> (nic,) = parse_device_spec('{"address": "*:04:00.*", "physical_network": "red"}')
    >>> dict(nic.tags)
    {'physical_network': 'red'}
    >>> parse_device_spec('{"vendor_id": "10000"}')
    Traceback (most recent call last):
    resource_objects.interop.nova.pci_errors.InvalidSpecId: device_spec[0].vendor_id: got '10000'...
    """
    return tuple(
        _entry(f"{_ROOT}[{place}]", given, devnames, report_in_placement)
        for place, given in enumerate(_objects(source))
    )


def checked_entries(given: object) -> tuple[DeviceSpecEntry, ...]:
    """Return entries that were parsed.

    :raises InvalidDeviceSpec: if they were not
    """
    listed = words.listed(given)
    if not isinstance(listed, list) or not all(isinstance(one, DeviceSpecEntry) for one in listed):
        raise pci_errors.InvalidDeviceSpec(_ROOT, given, "entries as parse_device_spec() returns")
    return tuple(listed)


def _objects(source: object) -> list[Mapping[str, Any]]:
    """Return the entries of one text, object or list of these."""
    if isinstance(source, str):
        return _objects_of_text(source)
    if isinstance(source, Mapping):
        return [source]
    listed = words.listed(source)
    if not isinstance(listed, list):
        raise pci_errors.InvalidDeviceSpec(_ROOT, source, "an object of JSON, or a list")
    found: list[Mapping[str, Any]] = []
    for one in listed:
        found += _objects_of_text(one) if isinstance(one, str) else [_object(one)]
    return found


def _objects_of_text(text: str) -> list[Mapping[str, Any]]:
    try:
        found = _primitive.parsed(text, _ROOT)
    except InvalidInput as error:
        raise pci_errors.InvalidDeviceSpec(_ROOT, text, error.expected) from None
    return [_object(one) for one in found] if isinstance(found, list) else [_object(found)]


def _object(given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise pci_errors.InvalidDeviceSpec(_ROOT, given, "an object of JSON")
    return given


def _entry(
    what: str, given: Mapping[str, Any], devnames: Devnames | None, report: bool
) -> DeviceSpecEntry:
    flags = {name: _flag(f"{what}.{name}", given.get(name)) for name in _FLAGS}
    devname = given.get("devname") or None
    if devname is not None and not isinstance(devname, str):
        raise pci_errors.InvalidDeviceSpec(f"{what}.devname", devname, "the name of an interface")
    if devname is not None and given.get("address"):
        raise pci_errors.AddressAndDevname(f"{what}.devname", devname, "none beside an address")
    if devname is not None and report:
        expected = "none where devices are reported in Placement"
        raise pci_errors.DevnameInPlacement(f"{what}.devname", devname, expected)
    if flags["one_time_use"] and not report:
        expected = "no, unless devices are reported in Placement"
        raise pci_errors.OneTimeUseWithoutPlacement(f"{what}.one_time_use", True, expected)
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
        raise pci_errors.InvalidSpecId(what, said, "a hexadecimal number up to FFFF, or *")
    if int(digits, 16) > _MAX_ID:
        raise pci_errors.InvalidSpecId(what, said, "a hexadecimal number up to FFFF, or *")
    return f"{int(digits, 16):04x}"


def _flag(what: str, said: object) -> bool | None:
    if said is None:
        return None
    try:
        if not isinstance(said, str | bool):
            raise ValueError(said)
        return bool(strutils.bool_from_string(said, strict=True))
    except ValueError:
        raise pci_errors.InvalidSpecFlag(what, said, "yes or no") from None


def _address(
    given: Mapping[str, Any], devname: str | None, devnames: Devnames | None, is_remote: bool
) -> AddressPattern | None:
    """Return the pattern of an address, None for any or if only the name of its interface tells."""
    if devname is None:
        said = given.get("address")
        return pci_address.pattern(said) if said not in (None, "", {}) else None
    if devnames is None:
        return None
    found = devnames.get(devname) if isinstance(devnames, Mapping) else devnames(devname)
    if found is not None:
        return pci_address.glob(words.address(found))
    if is_remote:
        raise pci_errors.RemoteManagedNotPresent("devname", devname, "an interface of this host")
    return pci_address.NOWHERE


def _class(what: str, said: object) -> str | None:
    if said in (None, ""):
        return None
    try:
        return _pci_words.resource_class(_text(said))
    except InvalidInput as error:
        raise pci_errors.InvalidSpecClass(what, said, error.expected) from None


def _traits(what: str, said: object) -> frozenset[str]:
    if said is None:
        return frozenset()
    try:
        return _pci_words.traits(_text(said))
    except InvalidInput as error:
        expected = f"names with commas between them, each {error.expected}"
        raise pci_errors.InvalidSpecTraits(what, said, expected) from None


def _text(said: object) -> str:
    if not isinstance(said, str):
        raise InvalidInput("name", said, "text")
    return said


def _tags(what: str, given: Mapping[str, Any]) -> FrozenDict:
    found: dict[str, str] = {}
    for name, value in given.items():
        if name in _KNOWN or value is None:
            continue
        try:
            found[names.label(name)] = _tag(value)
        except InvalidInput as error:
            raise pci_errors.InvalidSpecTag(f"{what}.{name}", value, error.expected) from None
    if "managed" in found:
        flag = _flag(f"{what}.managed", given["managed"])
        found["managed"] = _pci_words.flag_text(bool(flag))
    return FrozenDict(found)


def _tag(value: object) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return json.dumps(value)
    return _pci_words.text(value, "tag") or ""
