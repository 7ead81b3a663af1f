"""Patterns of PCI addresses, as ``[pci] device_spec`` has them.

Text is a glob, field by field: ``*:0a:00.*``. Fields that are missing on the left are any, and so
is a function that is missing: ``:00.`` is slot 00 of any bus. An object is of regular expressions
by field, each of which has to match the whole field; one that is missing is any.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

from resource_objects.interop.nova import pci_errors

__all__ = ["AddressPattern"]

_WHAT: Final = "device_spec address"
_ANY: Final = "*"
#: Fields of an address: how many digits each has, and the highest.
_FIELDS: Final = {"domain": (4, 0xFFFF), "bus": (2, 0xFF), "slot": (2, 0x1F), "function": (1, 0x7)}
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+\Z", re.ASCII)
_HIGHEST: Final = ", ".join(f"{name} {highest:x}" for name, (_, highest) in _FIELDS.items())
_GLOB: Final = f"DOMAIN:BUS:SLOT.FUNCTION of hexadecimal digits or *, up to {_HIGHEST}"
#: No expression of four characters needs to be longer.
_LONGEST: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class AddressPattern:
    """What an address has to look like: each field matches its expression.

    ``address`` is the only one that does, where there is only one: then functions that were split
    off the device there do too.

    >>> glob("*:0a:00.*").matches("0000:0a:00.3"), glob("0a:00").address
    (True, None)
    >>> glob("0000:3B:00.0").address
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
NOWHERE: Final = AddressPattern((re.compile(r"(?!)"),) * len(_FIELDS))


def pattern(given: object) -> AddressPattern:
    """Return the pattern of a glob or of regular expressions.

    :raises InvalidSpecAddress: if it is neither
    """
    if isinstance(given, str):
        return glob(given)
    if isinstance(given, Mapping):
        return expressions(given)
    raise pci_errors.InvalidSpecAddress(_WHAT, given, "text, or regular expressions by field")


def glob(text: str) -> AddressPattern:
    """Return the pattern of a glob.

    :raises InvalidSpecAddress: for more than four fields, or one that is no number and not ``*``

    >>> glob("0000:0a:20.0")
    Traceback (most recent call last):
    resource_objects.interop.nova.pci_errors.InvalidSpecAddress: device_spec address slot: got ...
    """
    left, _, function = text.partition(".")
    said = left.split(":")
    if len(said) > len(_FIELDS) - 1:
        raise pci_errors.InvalidSpecAddress(_WHAT, text, _GLOB)
    missing = [""] * (len(_FIELDS) - 1 - len(said))
    fields = [
        _field(name, field.strip())
        for name, field in zip(_FIELDS, [*missing, *said, function], strict=True)
    ]
    return _made_of(fields, [re.escape(field) if field != _ANY else ".*" for field in fields])


def _field(name: str, said: str) -> str:
    if said in ("", _ANY):
        return _ANY
    digits, highest = _FIELDS[name]
    value = int(said, 16) if _HEXADECIMAL.match(said) else highest + 1
    if value > highest:
        raise pci_errors.InvalidSpecAddress(f"{_WHAT} {name}", said, f"up to {highest:x}, or *")
    return f"{value:0{digits}x}"


def expressions(given: Mapping[Any, Any]) -> AddressPattern:
    """Return the pattern of regular expressions.

    :raises InvalidSpecAddress: for a field that there is not, or an expression that is none

    >>> slots = expressions({"bus": "0a", "slot": "0[1-3]"})
    >>> slots.matches("0000:0a:01.0"), slots.matches("0000:0a:11.0")
    (True, False)
    """
    unknown = sorted(str(name) for name in given if name not in _FIELDS)
    if unknown:
        raise pci_errors.InvalidSpecAddress(_WHAT, unknown[0], f"one of {', '.join(_FIELDS)}")
    said = [given.get(name, ".*") for name in _FIELDS]
    for name, expression in zip(_FIELDS, said, strict=True):
        if not isinstance(expression, str) or len(expression) > _LONGEST:
            expected = f"a regular expression of at most {_LONGEST} characters"
            raise pci_errors.InvalidSpecAddress(f"{_WHAT} {name}", expression, expected)
    return _made_of(said, said)


def _made_of(said: list[str], forms: list[str]) -> AddressPattern:
    try:
        fields = tuple(re.compile(form) for form in forms)
    except (re.error, RecursionError, OverflowError) as error:
        raise pci_errors.InvalidSpecAddress(_WHAT, forms, f"regular expressions: {error}") from None
    if all(_HEXADECIMAL.match(field) for field in said):
        domain, bus, slot, function = said
        return AddressPattern(fields, f"{domain}:{bus}:{slot}.{function}".lower())
    return AddressPattern(fields)
