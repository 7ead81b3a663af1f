"""Which devices of a machine can be taken, and as what.

A rule is one short argument::

    VENDOR:PRODUCT[/CLASS][@ADDRESS-GLOB]=RESOURCE_CLASS[+TRAIT...]

    10de:*=PGPU                              everything NVIDIA makes
    10de:*/0302=PGPU                         its 3D controllers, not the audio function beside them
    10de:2330=PGPU+CUSTOM_H100               one model, with a trait
    8086:154c@0000:60:*=SRIOV_NET_VF         the virtual functions on one bus

VENDOR and PRODUCT are the four hexadecimal digits of ``lspci -nn``, or ``*``. CLASS is the first
two, four or six digits of the class code. The glob has ``*``, ``?`` and ``[...]`` (fnmatch). The
first rule that matches a device decides.

**A physical function and its own virtual functions are never both takeable**, for a PF that is
given away takes its VFs with it. Where rules match both, the virtual functions stay and the
physical function does not: somebody made them to be given out one by one. To give out the PF
instead, write a rule that does not match its VFs (they have another product id).
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterable
from typing import Any

from resource_objects.exceptions import DuplicateKey, InvalidInput, InvalidRule
from resource_objects.host.facts import PCIDevice
from resource_objects.resources import resource
from resource_objects.resources.traits import known_traits

__all__ = ["ANY", "DeviceRule", "TakeableDevice", "match_rules"]

#: Any vendor, any product.
ANY = "*"
_SYNTAX = "VENDOR:PRODUCT[/CLASS][@ADDRESS-GLOB]=RESOURCE_CLASS[+TRAIT...], such as 10de:*=PGPU"
_ID = re.compile(r"[0-9a-f]{4}|\*")
_CLASS = re.compile(r"(?:[0-9a-f]{2}){1,3}")
_GLOB = re.compile(r"[0-9a-f:.*?\[\]!-]{1,64}")
_RULE = re.compile(
    r"(?P<vendor>[^:/@=+]+):(?P<product>[^:/@=+]+)(?:/(?P<class>[^@=+]*))?(?:@(?P<glob>[^=+]*))?"
    r"=(?P<resource>[^+=]*)(?P<traits>(?:\+[^+=]*)*)"
)


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceRule:
    """Devices that match can be taken as one unit of ``resource_class`` each, with ``traits``.

    ``address`` is a glob and ``class_id`` a prefix of the class code; None matches all. Resource
    classes are those of the catalog, plug-ins' included.

    >>> rule = DeviceRule.parse("10de:*/0302@0000:3b:*=PGPU+CUSTOM_H100")
    >>> rule.matches(PCIDevice("0000:3b:00.0", "10de", "2330", "030200"))
    True
    >>> print(rule)
    10de:*/0302@0000:3b:*=PGPU+CUSTOM_H100
    """

    vendor_id: str
    product_id: str
    resource_class: str
    traits: tuple[str, ...] = ()
    address: str | None = None
    class_id: str | None = None

    def __post_init__(self) -> None:
        _require_form(_ID, "vendor", self.vendor_id, "four hexadecimal digits, or *")
        _require_form(_ID, "product", self.product_id, "four hexadecimal digits, or *")
        if self.class_id is not None:
            _require_form(_CLASS, "class", self.class_id, "2, 4 or 6 hexadecimal digits")
        if self.address is not None:
            _require_form(_GLOB, "address", self.address, "a glob such as 0000:3b:*")
        _require_resource_class(self.resource_class)
        _require_traits(self.traits)

    @classmethod
    def parse(cls, text: str) -> DeviceRule:
        """Return the rule that ``text`` says; hexadecimal digits may be upper case.

        >>> DeviceRule.parse("10DE:2330=PGPU")
        ... # doctest: +NORMALIZE_WHITESPACE
        DeviceRule(vendor_id='10de', product_id='2330', resource_class='PGPU', traits=(),
                   address=None, class_id=None)
        >>> DeviceRule.parse("10de=PGPU")
        Traceback (most recent call last):
        resource_objects.exceptions.InvalidRule: device rule: got '10de=PGPU', expected VENDOR:...

        :raises InvalidRule: naming the part that is wrong and what was expected of it
        """
        match = _RULE.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise InvalidRule("device rule", text, _SYNTAX)
        glob, class_id = match["glob"], match["class"]
        return cls(
            vendor_id=match["vendor"].lower(),
            product_id=match["product"].lower(),
            resource_class=match["resource"],
            traits=tuple(match["traits"].split("+")[1:]),
            address=None if glob is None else glob.lower(),
            class_id=None if class_id is None else class_id.lower(),
        )

    def matches(self, device: PCIDevice) -> bool:
        """Tell whether the rule is about this device (not whether it may be taken)."""
        return (
            self.vendor_id in (ANY, device.vendor_id)
            and self.product_id in (ANY, device.product_id)
            and device.class_id.startswith(self.class_id or "")
            and (self.address is None or fnmatch.fnmatchcase(device.address, self.address))
        )

    def __str__(self) -> str:
        class_id = "" if self.class_id is None else f"/{self.class_id}"
        address = "" if self.address is None else f"@{self.address}"
        what = "+".join((self.resource_class, *self.traits))
        return f"{self.vendor_id}:{self.product_id}{class_id}{address}={what}"


@dataclasses.dataclass(frozen=True, slots=True)
class TakeableDevice:
    """A device and the rule that makes it takeable."""

    device: PCIDevice
    rule: DeviceRule

    @property
    def resource_class(self) -> str:
        """What the device is taken as."""
        return self.rule.resource_class

    @property
    def traits(self) -> tuple[str, ...]:
        """What the device is like."""
        return self.rule.traits


def read_rules(given: Any) -> tuple[DeviceRule, ...]:
    """Return rules, given as rules or their text.

    :raises InvalidInput: if it is no list
    :raises InvalidRule: if one of them is no rule
    """
    return tuple(
        each if isinstance(each, DeviceRule) else DeviceRule.parse(each)
        for each in _listed(given, object, "device rule")
    )


def match_rules(
    rules: Iterable[DeviceRule], devices: Iterable[PCIDevice]
) -> tuple[TakeableDevice, ...]:
    """Return the devices that can be taken, in the order given, each by its first rule.

    A physical function is left out if any of its virtual functions can be taken. O(devices x
    rules).

    >>> gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
    >>> audio = PCIDevice("0000:3b:00.1", "10de", "10fa", "040300")
    >>> [each.device.address for each in match_rules([DeviceRule.parse("10de:*/03=PGPU")],
    ...                                              [gpu, audio])]
    ['0000:3b:00.0']

    :raises DuplicateKey: if two devices have the same address
    :raises InvalidInput: if one of either list is something else
    """
    rules = _listed(rules, DeviceRule, "device rule")
    devices = _listed(devices, PCIDevice, "device")
    found: dict[str, TakeableDevice] = {}
    seen: set[str] = set()
    for device in devices:
        if device.address in seen:
            raise DuplicateKey("PCI address", device.address, "each device once")
        seen.add(device.address)
        rule = next((rule for rule in rules if rule.matches(device)), None)
        if rule is not None:
            found[device.address] = TakeableDevice(device, rule)
    split = {each.device.parent_address for each in found.values()}
    return tuple(each for address, each in found.items() if address not in split)


def _listed(given: Any, kind: type, what: str) -> tuple[Any, ...]:
    """Return a list as a tuple, refusing what is no list of things of a kind."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidInput(f"{what}s", given, f"a list of {what}s")
    found = tuple(given)
    for each in found:
        if not isinstance(each, kind):
            raise InvalidInput(what, each, f"a {kind.__name__}")
    return found


def _require_form(form: re.Pattern[str], what: str, value: object, expected: str) -> None:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise InvalidRule(f"{what} of a device rule", value, expected)


def _require_resource_class(name: object) -> None:
    what = "resource class of a device rule"
    if not isinstance(name, str):
        raise InvalidRule(what, name, "the name of a resource class such as PGPU")
    try:
        resource(name)
    except InvalidInput as error:
        raise InvalidRule(what, name, error.expected) from error


def _require_traits(traits: object) -> None:
    what = "trait of a device rule"
    if not isinstance(traits, tuple):
        raise InvalidRule(what, traits, "a tuple of trait names")
    try:
        known_traits(traits)
    except InvalidInput as error:
        raise InvalidRule(what, error.value, error.expected) from error
    for index, trait in enumerate(traits):
        if trait in traits[:index]:
            raise InvalidRule(what, trait, "each trait once")
