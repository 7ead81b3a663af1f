"""Which devices of a machine can be taken, and as what.

A rule is one short argument::

    VENDOR:PRODUCT[/CLASS][@ADDRESS-GLOB][&TYPE...]=[RESOURCE_CLASS][+TRAIT...][;WORD...]

    10de:*=PGPU                              everything NVIDIA makes
    10de:*/0302=PGPU                         its 3D controllers, not the audio function beside them
    10de:2330=PGPU+CUSTOM_H100               one model, with a trait
    10de:2330=                               as CUSTOM_PCI_10DE_2330, named after the device
    8086:*&type-VF=SRIOV_NET_VF              virtual functions, not the physical one
    8086:154c@0000:60:*=SRIOV_NET_VF;physnet=net1
                                             those on one bus, tagged with their network
    1e0f:*=CUSTOM_NVME;one_time_use          for one use, until somebody resets it
    10de:*=PGPU;halves                       whole, or in two halves, each a CUSTOM_PGPU_HALF

Before the ``=`` stands which devices. VENDOR and PRODUCT are the four hexadecimal digits of
``lspci -nn``, or ``*``. CLASS is the first two, four or six digits of the class code. The glob has
``*``, ``?`` and ``[...]`` (fnmatch). TYPE is ``type-PCI``, ``type-PF``, ``type-VF`` or ``vdpa``;
several are alternatives. The first rule that matches a device decides.

After it stands as what. A device is one unit of RESOURCE_CLASS; where that is left out, of
``CUSTOM_PCI_<VENDOR>_<PRODUCT>``. A WORD is a fact that holds of it, or a tag:

====================  ==============================================================================
``one_time_use``      once used it is spent, until it is reset; not of virtual functions
``remote_managed``    another machine manages it (a SmartNIC): only for who asks for that; not of
                      physical functions
``live_migratable``   its user can move while it runs; ``live_migratable=no`` if it cannot
``NAME=VALUE``        a tag, that requests may ask for
``halves``            it can be had in halves too: two ``CUSTOM_<CLASS>_HALF``
``thousandths``       any fraction of it: 1000 ``CUSTOM_<CLASS>_THOUSANDTHS``
``mig-h100-80gb``     MIG instances of an NVIDIA card, at the places where each profile may begin;
                      also ``mig-a100-40gb``, ``mig-a100-80gb`` and ``mig-h200-141gb``
``partitions=...``    partitions made of slices: ``SLICE*COUNT[+SLICE*COUNT...]``, then for each
                      partition ``/CLASS*COUNT[+COUNT...]``, how much of each slice one of it uses
====================  ==============================================================================

A device is split as :mod:`resource_objects.host.partitions` has it: whoever takes a part of it
leaves the rest, and nobody has it whole meanwhile. Functions of one card are not split::

    10de:*=PGPU;partitions=CUSTOM_SLICE*7+CUSTOM_MEM*8/CUSTOM_MIG_1G*1+1/CUSTOM_MIG_3G*3+4

Rules may match a physical function and its own virtual functions: both can be taken then, and they
exclude each other. What a rule matches and can nevertheless not be taken is said, with its reason,
by :mod:`resource_objects.host.devices`.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import os_resource_classes

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import FrozenDict
from resource_objects.host import partitions
from resource_objects.host.facts import DeviceKind, PCIDevice
from resource_objects.providers import Provider
from resource_objects.resources import resource
from resource_objects.resources.catalog import is_device
from resource_objects.resources.pci.device import custom_class
from resource_objects.resources.traits import known_traits

__all__ = [
    "ANY",
    "DeviceRule",
    "MatchedDevice",
    "match_rules",
]

#: Any vendor, any product.
ANY = "*"
_SYNTAX = (
    "VENDOR:PRODUCT[/CLASS][@ADDRESS-GLOB][&TYPE...]=[RESOURCE_CLASS][+TRAIT...][;WORD...], "
    "such as 10de:*=PGPU"
)
_ID = re.compile(r"[0-9a-f]{4}|\*")
_CLASS = re.compile(r"(?:[0-9a-f]{2}){1,3}")
_GLOB = re.compile(r"[0-9a-f:.*?\[\]!-]{1,64}")
_RULE = re.compile(
    r"(?P<vendor>[^:/@&=+;]+):(?P<product>[^:/@&=+;]+)"
    r"(?:/(?P<class>[^@&=+;]*))?(?:@(?P<glob>[^&=+;]*))?(?P<types>(?:&[^&=+;]*)*)"
    r"=(?P<resource>[^+=;]*)(?P<traits>(?:\+[^+=;]*)*)(?P<words>(?:;[^;]*)*)"
)
_TYPES = {kind.value.lower(): kind for kind in DeviceKind}
_YES_NO = {"": True, "yes": True, "no": False}


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceRule:
    """Devices that match can be taken as one unit of ``resource_class`` each, with ``traits``.

    ``address`` is a glob and ``class_id`` a prefix of the class code; None matches all, and so do
    no ``types``. A ``resource_class`` of None is one that is named after the device. Resource
    classes are those of the catalog, plug-ins' included, as far as they are counted; of the
    standard ones those of devices, for others (``VCPU``, ``DISK_GB``) are something of the host.

    >>> rule = DeviceRule.parse("10de:*/0302@0000:3b:*=PGPU+CUSTOM_H100;pool=lab")
    >>> device = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
    >>> rule.matches(device), rule.class_of(device), rule.tags["pool"]
    (True, 'PGPU', 'lab')
    >>> print(rule)
    10de:*/0302@0000:3b:*=PGPU+CUSTOM_H100;pool=lab
    """

    vendor_id: str
    product_id: str
    resource_class: str | None = None
    traits: tuple[str, ...] = ()
    address: str | None = None
    class_id: str | None = None
    types: tuple[DeviceKind, ...] = ()
    tags: Mapping[str, str] = dataclasses.field(default_factory=FrozenDict)
    one_time_use: bool = False
    remote_managed: bool = False
    live_migratable: bool | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        require_form(_ID, "vendor", self.vendor_id, "four hexadecimal digits, or *")
        require_form(_ID, "product", self.product_id, "four hexadecimal digits, or *")
        if self.class_id is not None:
            require_form(_CLASS, "class", self.class_id, "2, 4 or 6 hexadecimal digits")
        if self.address is not None:
            require_form(_GLOB, "address", self.address, "a glob such as 0000:3b:*")
        if self.resource_class is not None:
            require_resource_class(self.resource_class)
        require_traits(self.traits)
        require_types(self.types)
        object.__setattr__(self, "tags", checked_tags(self.tags))
        for name in FLAGS:
            require_flag(name, getattr(self, name), optional=name == "live_migratable")
        if self.split is not None:
            split_of(self.split, "PGPU")
            if self.one_time_use:
                raise InvalidInput(
                    "device rule", "split of a device rule", self.split, "none: it is for one use"
                )

    @classmethod
    def parse(cls, text: str) -> DeviceRule:
        """Return the rule that ``text`` says; hexadecimal digits may be upper case.

        >>> DeviceRule.parse("10DE:2330=PGPU") == DeviceRule("10de", "2330", "PGPU")
        True
        >>> DeviceRule.parse("10de=PGPU")
        Traceback (most recent call last):
        resource_objects.exceptions.InvalidInput: device rule: got '10de=PGPU', expected VENDOR:...

        :raises InvalidInput: naming the part that is wrong and what was expected of it
        """
        match = _RULE.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise InvalidInput("device rule", "device rule", text, _SYNTAX)
        glob, class_id = match["glob"], match["class"]
        return cls(
            vendor_id=match["vendor"].lower(),
            product_id=match["product"].lower(),
            resource_class=match["resource"] or None,
            traits=tuple(match["traits"].split("+")[1:]),
            address=None if glob is None else glob.lower(),
            class_id=None if class_id is None else class_id.lower(),
            types=tuple(map(_type, match["types"].split("&")[1:])),
            **_words(match["words"].split(";")[1:]),
        )

    def matches(self, device: PCIDevice) -> bool:
        """Tell whether the rule is about this device (not whether it may be taken)."""
        return (
            self.vendor_id in (ANY, device.vendor_id)
            and self.product_id in (ANY, device.product_id)
            and device.class_id.startswith(self.class_id or "")
            and (self.address is None or fnmatch.fnmatchcase(device.address, self.address))
            and (not self.types or device.kind in self.types)
        )

    def class_of(self, device: PCIDevice) -> str:
        """Return the resource class of a device that the rule matches."""
        return self.resource_class or custom_class(device.vendor_id, device.product_id)

    def __str__(self) -> str:
        class_id = "" if self.class_id is None else f"/{self.class_id}"
        address = "" if self.address is None else f"@{self.address}"
        which = "".join(f"&{kind.value}" for kind in self.types)
        what = "+".join((self.resource_class or "", *self.traits))
        said = "".join(f";{word}" for word in self._words())
        return f"{self.vendor_id}:{self.product_id}{class_id}{address}{which}={what}{said}"

    def _words(self) -> Iterator[str]:
        for name in FLAGS:
            value = getattr(self, name)
            if value:
                yield name
        if self.live_migratable is False:
            yield "live_migratable=no"
        if self.split is not None:
            yield self.split
        yield from (f"{name}={value}" for name, value in self.tags.items())


@dataclasses.dataclass(frozen=True, slots=True)
class MatchedDevice:
    """A device and the rule that is about it."""

    device: PCIDevice
    rule: DeviceRule

    @property
    def resource_class(self) -> str:
        """What the device is taken as."""
        return self.rule.class_of(self.device)

    @property
    def traits(self) -> tuple[str, ...]:
        """What the device is like."""
        return self.rule.traits


def read_rules(given: Any) -> tuple[DeviceRule, ...]:
    """Return rules, given as rules or their text.

    :raises InvalidInput: if it is no list; if one of them is no rule
    """
    return tuple(
        each if isinstance(each, DeviceRule) else DeviceRule.parse(each)
        for each in _listed(given, object, "device rule")
    )


def match_rules(
    rules: Iterable[DeviceRule], devices: Iterable[PCIDevice]
) -> tuple[MatchedDevice, ...]:
    """Return the devices that rules are about, in the order given, each with its first rule.

    O(devices x rules). Whether they can be taken too, :mod:`resource_objects.host.devices` says.

    >>> gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
    >>> audio = PCIDevice("0000:3b:00.1", "10de", "10fa", "040300")
    >>> [each.device.address for each in match_rules([DeviceRule.parse("10de:*/03=PGPU")],
    ...                                              [gpu, audio])]
    ['0000:3b:00.0']

    :raises InvalidInput: if two devices have the same address; if one of either list is something
        else
    """
    rules = _listed(rules, DeviceRule, "device rule")
    devices = _listed(devices, PCIDevice, "device")
    found: list[MatchedDevice] = []
    seen: set[str] = set()
    for device in devices:
        if device.address in seen:
            raise InvalidInput("repetition", "PCI address", device.address, "each device once")
        seen.add(device.address)
        rule = next((rule for rule in rules if rule.matches(device)), None)
        if rule is not None:
            found.append(MatchedDevice(device, rule))
    return tuple(found)


def _listed(given: Any, kind: type, what: str) -> tuple[Any, ...]:
    """Return a list as a tuple, refusing what is no list of things of a kind."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidInput("value", f"{what}s", given, f"a list of {what}s")
    found = tuple(given)
    for each in found:
        if not isinstance(each, kind):
            raise InvalidInput("value", what, each, f"a {kind.__name__}")
    return found


# --- the text -----------------------------------------------------------------------------------


def _type(text: str) -> DeviceKind:
    kind = _TYPES.get(text.lower())
    if kind is None:
        raise InvalidInput("device rule", "type of a device rule", text, " or ".join(DeviceKind))
    return kind


def _words(given: Iterable[str]) -> dict[str, Any]:
    """Return what the words after the class say: facts by name, and the tags."""
    found: dict[str, Any] = {}
    tags: dict[str, str] = {}
    for word in given:
        name, equals, value = (part.strip() for part in word.partition("="))
        if name in SPLITS:
            name, found_as = "split", word.strip()
            if name in found:
                raise InvalidInput(
                    "device rule", "word of a device rule", word, "one way to split it"
                )
            found[name] = found_as
            continue
        if name in found or name in tags:
            raise InvalidInput("device rule", "word of a device rule", word, "each once")
        if name in FLAGS:
            found[name] = _yes_or_no(word, value if equals else "")
        elif equals:
            tags[name] = value
        else:
            known = ", ".join((*FLAGS, *SPLITS))
            raise InvalidInput(
                "device rule", "word of a device rule", word, f"{known} or NAME=VALUE"
            )
    return {**found, "tags": tags}


def _yes_or_no(word: str, value: str) -> bool:
    if value not in _YES_NO or word.endswith("="):
        raise InvalidInput(
            "device rule", "word of a device rule", word, "yes or no after the =, or no ="
        )
    return _YES_NO[value]


# --- how a device is split ------------------------------------------------------------------------

#: Words of a rule that say how its devices are split.
SPLITS = ("halves", "thousandths", "partitions", *partitions.MIG_CARDS)
_SPLIT = (
    f"halves, thousandths, {', '.join(partitions.MIG_CARDS)}, "
    "or partitions=SLICE*COUNT[+...]/CLASS*COUNT[+...][/...]"
)
_PARTS = re.compile(r"([A-Z0-9_]+)\*([0-9]{1,9}(?:\+[0-9]{1,9})*)")
_SLICES = re.compile(r"[A-Z0-9_]+\*[0-9]{1,9}(?:\+[A-Z0-9_]+\*[0-9]{1,9})*")


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """The division of a device: its slices, and the amount of each that a partition uses.

    ``placements`` are partitions at a certain position, ``{position: (class, uses)}``; each is a
    provider below the provider of the device.
    """

    slices: Mapping[str, int]
    partitions: Mapping[str, Mapping[str, int]]
    placements: Mapping[str, tuple[str, Mapping[str, int]]] = FrozenDict()

    def apply(self, device: Provider, whole: str) -> None:
        """Let the provider of one device be had whole or in parts.

        :raises InvalidInput: as :func:`~resource_objects.host.partitions.split`
        """
        partitions.split(device, whole, self.slices, self.partitions)
        for place, (name, uses) in self.placements.items():
            partitions.add_partition(device, f"{device.name}/{place}", name, uses)


def split_of(word: object, whole: str) -> Split:
    """Return how a word of a rule splits devices of a class.

    :raises InvalidInput: if it is none, or says what cannot be

    >>> split_of("halves", "PGPU").slices
    {'CUSTOM_PGPU_HALF': 2}
    >>> split_of("partitions=CUSTOM_SLICE*7/CUSTOM_MIG*3", "PGPU").partitions
    {'CUSTOM_MIG': {'CUSTOM_SLICE': 3}}
    """
    name = whole.removeprefix(names.CUSTOM_PREFIX)
    if word == "halves":
        return Split({f"CUSTOM_{name}_HALF": 2}, {})
    if word == "thousandths":
        return Split({f"CUSTOM_{name}_THOUSANDTHS": 1000}, {})
    if isinstance(word, str) and word in partitions.MIG_CARDS:
        return Split(partitions.mig_slices(word), {}, partitions.mig_placements(word))
    kind, _, text = word.partition("=") if isinstance(word, str) else ("", "", "")
    first, *rest = text.split("/")
    if kind != "partitions" or not _SLICES.fullmatch(first):
        raise InvalidInput("device rule", "split of a device rule", word, _SPLIT)
    slices = {each: int(count) for each, count in (one.split("*") for one in first.split("+"))}
    found: dict[str, dict[str, int]] = {}
    for part in rest:
        match = _PARTS.fullmatch(part)
        counts = [int(count) for count in match[2].split("+")] if match else []
        if match is None or match[1] in found or len(counts) != len(slices):
            raise InvalidInput("device rule", "split of a device rule", word, _SPLIT)
        found[match[1]] = {each: n for each, n in zip(slices, counts, strict=True) if n}
    made = Split(slices, found)
    try:
        made.apply(Provider("device", {whole: 1}), whole)
    except InvalidInput as error:
        raise InvalidInput("device rule", "split of a device rule", word, str(error)) from error
    return made


# --- checking -------------------------------------------------------------------------------------
# Checks of device rules: the part that is wrong is named, with what was expected of it.

#: Words of a rule that are facts and no tags.
FLAGS = ("one_time_use", "remote_managed", "live_migratable")
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def require_form(form: re.Pattern[str], what: str, value: object, expected: str) -> None:
    """Refuse what is not of the form of a part."""
    if not isinstance(value, str) or not form.fullmatch(value):
        raise InvalidInput("device rule", f"{what} of a device rule", value, expected)


def require_resource_class(name: object) -> None:
    """Refuse what is no class that devices can be counted as."""
    what = "resource class of a device rule"
    if not isinstance(name, str):
        raise InvalidInput("device rule", what, name, "the name of a resource class such as PGPU")
    try:
        kind = resource(name)
    except InvalidInput as error:
        raise InvalidInput("device rule", what, name, error.expected) from error
    if kind.is_located:
        raise InvalidInput("device rule", what, name, "one that is counted, such as PGPU")
    if name in os_resource_classes.STANDARDS and not is_device(name):
        # who asks the host for CPUs or a disk's space would be given the device
        raise InvalidInput(
            "device rule", what, name, "one of devices, such as PGPU, or a CUSTOM_ class"
        )


def require_traits(traits: object) -> None:
    """Refuse what is no tuple of traits, each once."""
    what = "trait of a device rule"
    if not isinstance(traits, tuple):
        raise InvalidInput("device rule", what, traits, "a tuple of trait names")
    try:
        known_traits(traits)
    except InvalidInput as error:
        raise InvalidInput("device rule", what, error.value, error.expected) from error
    require_once(what, traits)


def require_types(types: object) -> None:
    """Refuse what is no tuple of kinds of devices, each once."""
    what = "type of a device rule"
    if not isinstance(types, tuple) or not all(isinstance(kind, DeviceKind) for kind in types):
        raise InvalidInput("device rule", what, types, "a tuple of DeviceKind")
    require_once(what, types)


def require_once(what: str, given: tuple[Any, ...]) -> None:
    """Refuse what is said twice."""
    for index, each in enumerate(given):
        if each in given[:index]:
            raise InvalidInput("device rule", what, each, "each once")


def require_flag(name: str, value: object, *, optional: bool) -> None:
    """Refuse what is neither yes nor no."""
    if not isinstance(value, bool) and not (optional and value is None):
        expected = "True or False, or None" if optional else "True or False"
        raise InvalidInput("device rule", f"{name} of a device rule", value, expected)


def checked_tags(tags: object) -> FrozenDict:
    """Return tags by name, in the order of their names."""
    if not isinstance(tags, Mapping):
        raise InvalidInput(
            "device rule", "tags of a device rule", tags, "a mapping of names to values"
        )
    for name, value in tags.items():
        require_form(_TAG, "tag", name, "a name such as physnet")
        if name in FLAGS or name in SPLITS:
            raise InvalidInput("device rule", "tag of a device rule", name, "no name of a fact")
        require_value(f"tag {name} of a device rule", value)
    return FrozenDict(sorted(tags.items()))


def require_value(what: str, value: object) -> None:
    """Refuse what is no value of a tag."""
    try:
        text = names.label(value)
    except InvalidInput as error:
        raise InvalidInput("device rule", what, value, error.expected) from error
    if ";" in text:
        raise InvalidInput("device rule", what, value, "a value without ;")
