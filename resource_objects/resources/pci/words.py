"""The words of PCI devices: what a function is to SR-IOV, policies of affinity, states."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from resource_objects import exceptions, fields, names

#: A function that cannot be split; one that can; one that was split off; one for vDPA.
PCI, PF, VF, VDPA = "type-PCI", "type-PF", "type-VF", "vdpa"
TYPES = (PCI, PF, VF, VDPA)
#: Types that are split off a physical function.
PARTS = (VF, VDPA)

#: No machine has more devices, and nobody asks for more at once.
MAX_DEVICES = 65536

#: How near a device has to be to the host cells of who asks for it; see :mod:`.near`.
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


def address(value: object) -> str:
    """Return a PCI address as it is kept, ``dddd:bb:ss.f`` in lower case.

    :raises InvalidAddress: if it is none, or its domain has more than 16 bits

    >>> address("3:3B:0.1")
    '0003:3b:00.1'
    >>> address("10000:00:02.0")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidAddress: PCI address: got '10000:00:02.0', expected a ...
    """
    found = _ADDRESS.match(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise exceptions.InvalidAddress("PCI address", value, _EXPECTED)
    domain, bus, slot, function = (int(digits, 16) for digits in found.groups())
    if domain > _MOST[0]:
        raise exceptions.InvalidAddress("PCI address", value, "a domain of at most ffff (16 bits)")
    if slot > _MOST[2] or function > _MOST[3]:
        raise exceptions.InvalidAddress("PCI address", value, "slots to 1f and functions to 7")
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


class AddressField(fields.Field[str]):
    """A PCI address."""

    def __init__(self, **kwargs: Any) -> None:
        check = fields.Checked(
            address, "a PCI address", "^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f].[0-7]$"
        )
        super().__init__(check, **kwargs)


class AddressesField(fields.Field[tuple[str, ...]]):
    """PCI addresses in an order."""

    def __init__(self, **kwargs: Any) -> None:
        check = fields.Checked(
            address, "a PCI address", "^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f].[0-7]$"
        )
        super().__init__(fields.TupleOf(check), **kwargs)


class IdField(fields.Field[str]):
    """The id of a vendor or product: four hexadecimal digits, in lower case."""

    def __init__(self, **kwargs: Any) -> None:
        check = fields.Checked(_four_digits, "four hexadecimal digits", "^[0-9a-f]{4}$")
        super().__init__(check, **kwargs)


class ClassCodeField(fields.Field[str]):
    """A class code, or the first digits of one: up to six hexadecimal digits, an even number."""

    def __init__(self, **kwargs: Any) -> None:
        check = fields.Checked(_class_code, "0, 2, 4 or 6 hexadecimal digits", "^[0-9a-f]{0,6}$")
        super().__init__(check, **kwargs)


class TypesField(fields.Field[tuple[str, ...]]):
    """Types of functions, each once."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            fields.TupleOf(fields.Checked(_type, f"one of {', '.join(TYPES)}", "")), **kwargs
        )


def _type(value: object) -> str:
    if value not in TYPES:
        raise ValueError(value)
    return str(value)


class TextsField(fields.Field[fields.FrozenDict]):
    """Text by name: tags and facts."""

    def __init__(self, **kwargs: Any) -> None:
        kind = fields.FrozenDictOf(names.label, fields.Checked(_text, "text", ""))
        super().__init__(kind, **kwargs)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


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
        there, asked = json.loads(has.lower()), json.loads(wanted.lower())
        return all(item in there for item in asked)
    except (ValueError, RecursionError):  # no list, or one nested deeper than can be read
        return False


def set_of(what: str, given: Any, expected: str) -> frozenset[Any]:
    """Return some things as a set.

    :raises InvalidInput: for what is no collection of such, or longer than any machine has

    >>> set_of("chosen", 3, "ids of host cells")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: chosen: got 3, expected ids of host cells
    """
    if isinstance(given, frozenset):
        return given
    found = listed(given)
    try:
        if isinstance(found, list):
            return frozenset(found)
    except TypeError:  # they cannot be in a set
        pass
    raise exceptions.InvalidInput(what, given, expected)


def listed(given: Any) -> Any:
    """Return what can be gone through as a list; what cannot stays, for its field to refuse.

    What is longer than anything a machine has, or never ends, stays too.
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        return given
    found = list(itertools.islice(given, MAX_DEVICES + 1))
    return found if len(found) <= MAX_DEVICES else given
