"""Device rules: which PCI devices of a machine are offered, and as which resource class.

A rule is one short text::

    VENDOR:PRODUCT[/CLASS][@ADDRESS-GLOB][&TYPE...]=[RESOURCE_CLASS][+TRAIT...][;WORD...]

    10de:*=PGPU                              all functions of a vendor (NVIDIA)
    10de:*/0302=PGPU                         its 3D controllers, without their audio functions
    10de:2330=PGPU+CUSTOM_H100               one model, with a trait
    10de:2330=                               as CUSTOM_PCI_10DE_2330, named after the device
    8086:*&type-VF=SRIOV_NET_VF              virtual functions only
    8086:154c@0000:60:*=SRIOV_NET_VF;physnet=net1
                                             those on one bus, tagged with their network
    1e0f:*=CUSTOM_NVME;one_time_use          for one use, until the device is reset
    10de:*=PGPU;halves                       whole, or as two halves, each a CUSTOM_PGPU_HALF

The part before ``=`` selects devices. VENDOR and PRODUCT are the four hexadecimal digits of
``lspci -nn``, or ``*``. CLASS is the first two, four or six digits of the class code. The glob may
contain ``*``, ``?`` and ``[...]`` (fnmatch). TYPE is ``type-PCI``, ``type-PF``, ``type-VF`` or
``vdpa``; several types are alternatives. The first rule that matches a device applies to it.

The part after ``=`` describes the selected devices. Each is one unit of RESOURCE_CLASS, by default
of ``CUSTOM_PCI_<VENDOR>_<PRODUCT>``. A WORD is a property, a tag or a partitioning:

====================  ==============================================================================
``one_time_use``      once used, the device is reserved until it is reset; not for VFs
``remote_managed``    another machine manages it (a SmartNIC): only for requests that ask for one;
                      not for PFs
``live_migratable``   its consumer can migrate while it runs; ``live_migratable=no`` if it cannot
``NAME=VALUE``        a tag, which requests can select by
``halves``            allocatable in halves too: two ``CUSTOM_<CLASS>_HALF``
``thousandths``       allocatable by any fraction: 1000 ``CUSTOM_<CLASS>_THOUSANDTHS``
``mig-h100-80gb``     MIG instances of an NVIDIA card, at the placements of each profile; also
                      ``mig-a100-40gb``, ``mig-a100-80gb`` and ``mig-h200-141gb``
``partitions=...``    partitions made of slices: ``SLICE*COUNT[+SLICE*COUNT...]``, then for each
                      partition ``/CLASS*COUNT[+COUNT...]``: the number of each slice that it uses
====================  ==============================================================================

The partitioning of a device follows :mod:`resource_objects.host.partitions`. Functions of one card
are not partitioned::

    10de:*=PGPU;partitions=CUSTOM_SLICE*7+CUSTOM_MEM*8/CUSTOM_MIG_1G*1+1/CUSTOM_MIG_3G*3+4

Rules may match a physical function and its virtual functions: then both are offered, and exclude
each other. :func:`machine_devices` skips devices that match a rule and cannot be offered.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import os_resource_classes

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import FrozenDict
from resource_objects.findings import Finding
from resource_objects.host import partitions
from resource_objects.host.machine import DeviceKind, Machine, PCIDevice
from resource_objects.providers import Provider
from resource_objects.resources import resource
from resource_objects.resources.catalog import is_device
from resource_objects.resources.pci import Device
from resource_objects.resources.pci.device import custom_class, parse_address
from resource_objects.resources.traits import checked_traits

__all__ = [
    "ANY",
    "DeviceRule",
    "MachineDevices",
    "machine_devices",
    "match_rules",
    "partition_device",
    "read_rules",
]

_T = TypeVar("_T")

#: Any vendor, any product.
ANY = "*"
#: Words for a flag of the device; names that are no words of a rule are tags.
FLAGS = ("one_time_use", "remote_managed", "live_migratable")
#: The first words of a partitioning.
PARTITIONINGS = ("halves", "thousandths", "partitions", *partitions.MIG_CARDS)
#: Those that are the whole word.
_WORDS = {*PARTITIONINGS} - {"partitions"}

_SYNTAX = (
    "VENDOR:PRODUCT[/CLASS][@ADDRESS-GLOB][&TYPE...]=[RESOURCE_CLASS][+TRAIT...][;WORD...], "
    "such as 10de:*=PGPU"
)
_PARTITIONING_SYNTAX = (
    f"halves, thousandths, {', '.join(partitions.MIG_CARDS)}, "
    "or partitions=SLICE*COUNT[+...]/CLASS*COUNT[+...][/...]"
)
_ID = re.compile(r"[0-9a-f]{4}|\*")
_CLASS = re.compile(r"(?:[0-9a-f]{2}){1,3}")
_GLOB = re.compile(r"[0-9a-f:.*?\[\]!-]{1,64}")
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_RULE = re.compile(
    r"(?P<vendor>[^:/@&=+;]+):(?P<product>[^:/@&=+;]+)"
    r"(?:/(?P<class>[^@&=+;]*))?(?:@(?P<glob>[^&=+;]*))?(?P<types>(?:&[^&=+;]*)*)"
    r"=(?P<resource>[^+=;]*)(?P<traits>(?:\+[^+=;]*)*)(?P<words>(?:;[^;]*)*)"
)
_PARTITIONS = re.compile(
    r"partitions=[A-Z0-9_]+\*[0-9]{1,9}(?:\+[A-Z0-9_]+\*[0-9]{1,9})*"
    r"(?:/[A-Z0-9_]+\*[0-9]{1,9}(?:\+[0-9]{1,9})*)*"
)
_YES_NO = {"": True, "yes": True, "no": False}
#: A PCI address with a domain of more than 16 bits, as Intel VMD creates them.
_LONG_DOMAIN = re.compile(r"[0-9a-f]{5,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceRule:
    """A rule that offers matching devices as one unit of ``resource_class`` each, with ``traits``.

    ``address`` is a glob and ``class_id`` a prefix of the class code; None matches all devices, and
    so does an empty ``types``. If ``resource_class`` is None, the class is named after the device.
    It may be any counted class of the catalog, plug-ins included; of the standard classes only
    those of devices, because others (``VCPU``, ``DISK_GB``) are inventories of the host.
    ``partitioning`` is the word for it, see :func:`partition_device`.

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
    partitioning: str | None = None

    def __post_init__(self) -> None:
        for part, value, form, expected in (
            ("vendor", self.vendor_id, _ID, "four hexadecimal digits, or *"),
            ("product", self.product_id, _ID, "four hexadecimal digits, or *"),
            ("class", self.class_id, _CLASS, "2, 4 or 6 hexadecimal digits"),
            ("address", self.address, _GLOB, "a glob such as 0000:3b:*"),
        ):
            if value is not None or form is _ID:
                _require(isinstance(value, str) and form.fullmatch(value), part, value, expected)
        if self.resource_class is not None:
            _check_resource_class(self.resource_class)
        _check_traits(self.traits)
        are_types = isinstance(self.types, tuple) and all(
            isinstance(kind, DeviceKind) for kind in self.types
        )
        _require(are_types, "type", self.types, "a tuple of DeviceKind")
        _check_unique("type", self.types)
        object.__setattr__(self, "tags", _checked_tags(self.tags))
        for name in FLAGS:
            value = getattr(self, name)
            if name != "live_migratable":
                _require(isinstance(value, bool), name, value, "True or False")
            elif value is not None:
                _require(isinstance(value, bool), name, value, "True or False, or None")
        if self.partitioning is not None:
            expected = "none: the device is for one use"
            _require(not self.one_time_use, "partitioning", self.partitioning, expected)
            try:
                if self.partitioning not in _WORDS:
                    partition_device(Provider("device", {"PGPU": 1}), self.partitioning, "PGPU")
            except InvalidInput as error:
                expected = error.expected if error.is_about("device rule") else str(error)
                raise _invalid("partitioning", self.partitioning, expected) from error

    @classmethod
    def parse(cls, text: str) -> DeviceRule:
        """Return the rule of a text; hexadecimal digits may be upper case.

        >>> DeviceRule.parse("10DE:2330=PGPU") == DeviceRule("10de", "2330", "PGPU")
        True
        >>> DeviceRule.parse("10de=PGPU")
        Traceback (most recent call last):
        resource_objects.exceptions.InvalidInput: device rule: got '10de=PGPU', expected VENDOR:...

        :raises InvalidInput: naming the invalid part and what is allowed
        """
        match = _RULE.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise InvalidInput("device rule", "device rule", text, _SYNTAX)
        types = []
        by_name = {kind.value.lower(): kind for kind in DeviceKind}
        for name in match["types"].split("&")[1:]:
            _require(name.lower() in by_name, "type", name, " or ".join(DeviceKind))
            types.append(by_name[name.lower()])
        return cls(
            vendor_id=match["vendor"].lower(),
            product_id=match["product"].lower(),
            resource_class=match["resource"] or None,
            traits=tuple(match["traits"].split("+")[1:]),
            address=match["glob"] and match["glob"].lower(),
            class_id=match["class"] and match["class"].lower(),
            types=tuple(types),
            **_parse_words(match["words"].split(";")[1:]),
        )

    def matches(self, device: PCIDevice) -> bool:
        """Return True if the rule selects a device, even if the device cannot be offered."""
        return (
            self.vendor_id in (ANY, device.vendor_id)
            and self.product_id in (ANY, device.product_id)
            and device.class_id.startswith(self.class_id or "")
            and (self.address is None or fnmatch.fnmatchcase(device.address, self.address))
            and (not self.types or device.kind in self.types)
        )

    def class_of(self, device: PCIDevice) -> str:
        """Return the resource class of a device that the rule selects."""
        return self.resource_class or custom_class(device.vendor_id, device.product_id)

    def __str__(self) -> str:
        class_id = "" if self.class_id is None else f"/{self.class_id}"
        address = "" if self.address is None else f"@{self.address}"
        types = "".join(f"&{kind.value}" for kind in self.types)
        result = "+".join((self.resource_class or "", *self.traits))
        words = [name for name in FLAGS if getattr(self, name)]
        if self.live_migratable is False:
            words.append("live_migratable=no")
        if self.partitioning is not None:
            words.append(self.partitioning)
        words += [f"{name}={value}" for name, value in self.tags.items()]
        selection = f"{self.vendor_id}:{self.product_id}{class_id}{address}{types}"
        return ";".join((f"{selection}={result}", *words))


def read_rules(rules: Any) -> tuple[DeviceRule, ...]:
    """Return device rules from rules or their texts.

    :raises InvalidInput: if it is not an iterable, or an item is not a rule
    """
    return tuple(
        rule if isinstance(rule, DeviceRule) else DeviceRule.parse(rule)
        for rule in _items(rules, object, "device rule")
    )


def match_rules(
    rules: Iterable[DeviceRule], devices: Iterable[PCIDevice]
) -> tuple[tuple[PCIDevice, DeviceRule], ...]:
    """Return the devices that rules select, in their order, each with its first matching rule.

    O(devices x rules). :func:`machine_devices` decides which of them can be offered.

    >>> gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
    >>> audio = PCIDevice("0000:3b:00.1", "10de", "10fa", "040300")
    >>> [device.address for device, rule in match_rules([DeviceRule.parse("10de:*/03=PGPU")],
    ...                                                 [gpu, audio])]
    ['0000:3b:00.0']

    :raises InvalidInput: for two devices with one address, or an item of another type
    """
    rules = _items(rules, DeviceRule, "device rule")
    matched: dict[str, tuple[PCIDevice, DeviceRule]] = {}
    addresses: set[str] = set()
    for device in _items(devices, PCIDevice, "device"):
        if device.address in addresses:
            raise InvalidInput("repetition", "PCI address", device.address, "each device once")
        addresses.add(device.address)
        rule = next((rule for rule in rules if rule.matches(device)), None)
        if rule is not None:
            matched[device.address] = device, rule
    return tuple(matched.values())


def _items(values: Any, kind: type, name: str) -> tuple[Any, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidInput("value", f"{name}s", values, f"a list of {name}s")
    items = tuple(values)
    for item in items:
        if not isinstance(item, kind):
            raise InvalidInput("value", name, item, f"a {kind.__name__}")
    return items


# --- the devices of a machine ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class MachineDevices:
    """The devices of a machine that are offered, and those that rules select in vain.

    ``skipped`` has a finding for each device that matches a rule and cannot be offered, by address;
    ``partitionings`` is ``{address: word}`` of the partitioned devices.
    """

    devices: tuple[Device, ...] = ()
    skipped: tuple[Finding, ...] = ()
    partitionings: Mapping[str, str] = dataclasses.field(default_factory=dict)


def machine_devices(machine: Machine, rules: Iterable[DeviceRule | str] = ()) -> MachineDevices:
    """Return the devices of a machine that rules offer, and those that are skipped. Pure.

    Cost: O(devices x rules). These are skipped:

    * an address with a domain of more than 16 bits (Intel VMD): nothing in the field can name it,
      and Nova skips that device too;
    * a virtual function whose physical function the machine does not report;
    * a virtual function for one use: its use is a use of the card;
    * a physical function that another machine manages (as in Nova);
    * a function of a card, physical or virtual, that a rule partitions;
    * a physical function of the class of its own virtual functions, which are offered: a count of
      one class could not tell the card from its parts.

    The facts of an offered device are those that its use does not change: its subsystem,
    revision, number of virtual functions, network interfaces with their MAC addresses, vDPA
    devices, types of mediated devices, and the UUID of a GPU. Its driver changes with its use.

    :param rules: rules or their texts; the first that matches a device applies
    :raises InvalidInput: if it is not a machine, ``rules`` is not a list, or a rule does not parse

    >>> from resource_objects.host.machine import Core
    >>> vmd = PCIDevice("10000:01:00.0", "144d", "a808", "010802")
    >>> disk = PCIDevice("0000:02:00.0", "144d", "a808", "010802", numa_node=1)
    >>> machine = Machine(cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0, devices=(disk, vmd))
    >>> found = machine_devices(machine, ["144d:*/0108=CUSTOM_NVME;one_time_use"])
    >>> for device in found.devices:
    ...     print(device, device.resource_class, device.numa_node, device.one_time_use)
    0000:02:00.0 144d:a808 type-PCI CUSTOM_NVME 1 True
    >>> print(*found.skipped)
    10000:01:00.0: skipped: its domain has more than 16 bits
    """
    if not isinstance(machine, Machine):
        raise InvalidInput("value", "machine", machine, "a Machine, as discover() returns")
    matched = match_rules(read_rules(rules), machine.devices)
    physical = {device.address for device in machine.devices if device.kind is DeviceKind.PF}
    reasons = {device.address: _skip_reason(device, rule, physical) for device, rule in matched}
    child_classes: dict[str | None, set[str]] = defaultdict(set)
    for device, rule in matched:
        if not reasons[device.address]:
            child_classes[device.parent_address].add(rule.class_of(device))
    devices: list[Device] = []
    skipped: list[Finding] = []
    partitionings: dict[str, str] = {}
    for device, rule in matched:
        address, name = device.address, rule.class_of(device)
        reason = reasons[address]
        if name in child_classes[address]:
            reason = f"its virtual functions are offered as {name} too"
        if reason:
            skipped.append(Finding(address, "skipped", reason))
            continue
        devices.append(_offered_device(device, rule))
        if rule.partitioning is not None:
            partitionings[address] = rule.partitioning
    return MachineDevices(tuple(devices), tuple(skipped), partitionings)


def _skip_reason(device: PCIDevice, rule: DeviceRule, physical: set[str]) -> str:
    try:
        parse_address(device.address)
    except InvalidInput as error:
        if not error.is_about("PCI address"):
            raise
        if _LONG_DOMAIN.fullmatch(device.address.lower()):
            return "its domain has more than 16 bits"
        return "its address is not of the form DOMAIN:BUS:SLOT.FUNCTION"
    if device.kind.is_part:
        if device.parent_address not in physical:
            return f"its physical function {device.parent_address} does not exist"
        if rule.one_time_use:
            return "only a whole device can be for one use"
    if rule.partitioning is not None and device.kind is not DeviceKind.PCI:
        return "functions of one card are not partitioned"
    if device.kind is DeviceKind.PF and rule.remote_managed:
        return "no other machine manages a physical function"
    return ""


def _offered_device(device: PCIDevice, rule: DeviceRule) -> Device:
    subsystem = device.subsystem_vendor_id, device.subsystem_product_id
    facts = {
        "interface": ",".join(interface.name for interface in device.interfaces),
        "mac": ",".join(interface.mac for interface in device.interfaces if interface.mac),
        "mediated_types": ",".join(kind.id for kind in device.mediated_types),
        "revision": device.revision,
        "sriov_totalvfs": device.sriov_totalvfs,
        "subsystem": None if None in subsystem else ":".join(map(str, subsystem)),
        "uuid": device.uuid,
        "vdpa": ",".join(device.vdpa),
    }
    return Device(
        device.address,
        device.vendor_id,
        device.product_id,
        device.kind.value,
        resource_class=rule.class_of(device),
        class_code=device.class_id,
        parent=device.parent_address,
        numa_node=device.numa_node,
        tags=rule.tags,
        traits=rule.traits,
        remote_managed=rule.remote_managed,
        live_migratable=rule.live_migratable,
        one_time_use=rule.one_time_use,
        facts={name: str(value) for name, value in facts.items() if value},
    )


# --- partitionings --------------------------------------------------------------------------------


def partition_device(device: Provider, word: object, device_class: str) -> None:
    """Make a device of a class allocatable whole or in parts, as a word of a rule describes.

    :raises InvalidInput: if the word does not parse, or the device cannot be partitioned so

    >>> gpu = Provider("gpu0", "PGPU=1")
    >>> partition_device(gpu, "partitions=CUSTOM_SLICE*7/CUSTOM_MIG*3", "PGPU")
    >>> print(gpu)
    gpu0: PGPU=1,CUSTOM_MIG=2,CUSTOM_SLICE=7
    """
    name = device_class.removeprefix(names.CUSTOM_PREFIX)
    slices: dict[str, int] = {}
    uses: dict[str, dict[str, int]] = {}
    if word == "halves":
        slices = {f"CUSTOM_{name}_HALF": 2}
    elif word == "thousandths":
        slices = {f"CUSTOM_{name}_THOUSANDTHS": 1000}
    elif isinstance(word, str) and word in partitions.MIG_CARDS:
        slices = partitions.mig_slices(word)
    else:
        text = word if isinstance(word, str) else ""
        _require(_PARTITIONS.fullmatch(text), "partitioning", word, _PARTITIONING_SYNTAX)
        first, *items = text.removeprefix("partitions=").split("/")
        slices = {slice_: int(n) for slice_, n in (part.split("*") for part in first.split("+"))}
        for item in items:
            partition, figures = item.split("*")
            counts = [int(count) for count in figures.split("+")]
            is_valid = partition not in uses and len(counts) == len(slices)
            _require(is_valid, "partitioning", word, _PARTITIONING_SYNTAX)
            uses[partition] = {slice_: n for slice_, n in zip(slices, counts, strict=True) if n}
    partitions.split(device, device_class, slices, uses)
    if word in partitions.MIG_CARDS:
        for placement, (partition, used) in partitions.mig_placements(str(word)).items():
            partitions.add_partition(device, f"{device.name}/{placement}", partition, used)


# --- words and checks -----------------------------------------------------------------------------


def _parse_words(words: Iterable[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    tags: dict[str, str] = {}
    for word in words:
        name, equals, value = (part.strip() for part in word.partition("="))
        if name in PARTITIONINGS:
            _require("partitioning" not in values, "word", word, "one partitioning")
            values["partitioning"] = word.strip()
            continue
        _require(name not in values and name not in tags, "word", word, "each once")
        if name in FLAGS:
            is_valid = value in _YES_NO and (value or not equals)
            _require(is_valid, "word", word, "yes or no after the =, or no =")
            values[name] = _YES_NO[value]
        else:
            allowed = ", ".join((*FLAGS, *PARTITIONINGS))
            _require(equals, "word", word, f"{allowed} or NAME=VALUE")
            tags[name] = value
    return {**values, "tags": tags}


def _require(condition: object, part: str, value: object, expected: str) -> None:
    if not condition:
        raise _invalid(part, value, expected)


def _invalid(part: str, value: object, expected: str) -> InvalidInput:
    return InvalidInput("device rule", f"{part} of a device rule", value, expected)


def _checked(part: str, check: Callable[[Any], _T], value: Any) -> _T:
    try:
        return check(value)
    except InvalidInput as error:
        raise _invalid(part, error.value, error.expected) from error


def _check_resource_class(name: object) -> None:
    if not isinstance(name, str):
        raise _invalid("resource class", name, "the name of a resource class such as PGPU")
    kind = _checked("resource class", resource, name)
    _require(not kind.is_placed, "resource class", name, "one that is counted, such as PGPU")
    # a request for CPUs or disk space of the host would otherwise get a device
    is_of_devices = name not in os_resource_classes.STANDARDS or is_device(name)
    expected = "one of devices, such as PGPU, or a CUSTOM_ class"
    _require(is_of_devices, "resource class", name, expected)


def _check_traits(traits: object) -> None:
    if not isinstance(traits, tuple):
        raise _invalid("trait", traits, "a tuple of trait names")
    _checked("trait", checked_traits, traits)
    _check_unique("trait", traits)


def _check_unique(part: str, values: tuple[Any, ...]) -> None:
    for index, value in enumerate(values):
        _require(value not in values[:index], part, value, "each once")


def _checked_tags(tags: object) -> FrozenDict:
    if not isinstance(tags, Mapping):
        raise _invalid("tags", tags, "a mapping of names to values")
    for name, value in tags.items():
        is_name = isinstance(name, str) and _TAG.fullmatch(name)
        _require(is_name, "tag", name, "a name such as physnet")
        is_free = name not in FLAGS and name not in PARTITIONINGS
        _require(is_free, "tag", name, "no name of a flag or partitioning")
        text = _checked(f"tag {name}", names.label, value)
        _require(";" not in text, f"tag {name}", value, "a value without ;")
    return FrozenDict(sorted(tags.items()))
