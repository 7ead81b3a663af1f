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
from collections.abc import Iterable, Sequence

import os_resource_classes

from resource_objects import names
from resource_objects.exceptions import DuplicateKey, InvalidInput, InvalidRule
from resource_objects.host.facts import PCIDevice

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

    ``address`` is a glob and ``class_id`` a prefix of the class code; None matches all.

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


def match_rules(
    rules: Sequence[DeviceRule], devices: Iterable[PCIDevice]
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
    """
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


def _require_form(form: re.Pattern[str], what: str, value: object, expected: str) -> None:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise InvalidRule(f"{what} of a device rule", value, expected)


def _require_resource_class(value: str) -> None:
    expected = "a standard resource class such as PGPU, or CUSTOM_ and A-Z, 0-9, _"
    try:
        name = names.resource_class_name(value)
    except InvalidInput:
        raise InvalidRule("resource class of a device rule", value, expected) from None
    if name not in os_resource_classes.STANDARDS and not name.startswith(names.CUSTOM_PREFIX):
        raise InvalidRule("resource class of a device rule", value, expected)


def _require_traits(traits: tuple[str, ...]) -> None:
    import os_traits  # imports its some thirty modules: not before a rule has a trait

    expected = "traits that are standard or CUSTOM_ and A-Z, 0-9, _, each once"
    for index, trait in enumerate(traits):
        try:
            names.trait_name(trait)
        except InvalidInput:
            raise InvalidRule("trait of a device rule", trait, expected) from None
        standard = os_traits.get_traits()  # type: ignore[no-untyped-call]  # it has no types
        known = trait.startswith(names.CUSTOM_PREFIX) or trait in standard
        if not known or trait in traits[:index]:
            raise InvalidRule("trait of a device rule", trait, expected)
