"""Options of Nova about hosts and devices: aliases, device specs, CPU sets, reserved pages.

``[pci] alias``
---------------

Names for kinds of devices. Several entries of one name are alternatives; they have the same
``numa_policy`` and ``device_type``.

``[pci] device_spec``
---------------------

The devices that a host offers: device rules with the keys of Nova. The first entry that matches a
device applies.

=======================  ===========================================================================
``vendor_id``,           hexadecimal numbers up to FFFF, or ``*``, the default
``product_id``
``address``              a glob by field: ``*:0a:00.*``; or an object of regular expressions, which
                         match whole fields. A single address also matches the virtual functions of
                         the device there
``devname``              the name of a network interface, in place of an address: that of the
                         device, or of its physical function
``remote_managed``       whether another machine manages it. Then the entry matches only cards with
                         a serial number, and no physical function
``live_migratable``,     yes or no. ``one_time_use`` is for whole devices only
``one_time_use``
``managed``              yes or no: a tag, ``true`` or ``false``
``resource_class``,      the class and the traits in Placement, see :func:`tagged_device`
``traits``
another key              a tag. A list is stored as JSON; null is no tag
=======================  ===========================================================================

In a glob, missing fields on the left match all, and so does a missing function: ``:00.`` is slot 00
of any bus. In an object, a missing field matches all.

CPUs and pages
--------------

=======================  ===========================================================================
``cpu_shared_set``       CPUs for shared vCPUs
``cpu_dedicated_set``    CPUs that are allocated to one vCPU each; the two sets are disjoint
``vcpu_pin_set``         an older option: its CPUs are shared and dedicated
none of them             all CPUs are shared
``reserved_huge_pages``  ``node:0,size:2048,count:64``: pages of a cell that are not allocated
=======================  ===========================================================================

CPUs in no set are reserved for the host.

Differences from Nova 34
------------------------

=====================================  =============================================================
input                                  Nova, and this library
=====================================  =============================================================
alias entries, the first without       an error by accident; the same rule as with ``device_type``
``device_type``
alias with ``capability_type``         matches no device; ignored, as ``pci`` is its only value
``{"address": {"bus": "1"}}``          matches buses 10 to 1f, by their beginning; no bus
``{"address": {"func": "0"}}``         ignored; INVALID_SPEC_ADDRESS
``remote_managed=maybe``               no; INVALID_SPEC_FLAG
a tag that is an object                fails when pools are stored; INVALID_SPEC_TAG
``resource_class=CUSTOM_A-B``          fails in Placement; INVALID_SPEC_CLASS
a single address                       looked up in ``/sys`` when Nova starts; not looked up, as a
                                       virtual function has the address of its physical function
no CPU set                             pins on all CPUs, which Placement counts as shared; no
                                       dedicated CPUs. ``vcpu_pin_set`` allows both
pages reserved twice, too many, or     accepted; PAGES_RESERVED_TWICE, TOO_MANY_PAGES_RESERVED,
that do not exist                      RESERVED_PAGES_NOT_OF_HOST
=====================================  =============================================================
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import FrozenDict
from resource_objects.host.device_rules import ANY, DeviceRule
from resource_objects.host.machine import PCIDevice
from resource_objects.host.settings import HostSettings
from resource_objects.interop.nova import pci_requests
from resource_objects.interop.nova.primitive import (
    format_flag,
    normalized_class,
    normalized_traits,
    option_text,
    page_size_kib,
    parse_cpu_spec,
    parse_document,
    parse_yes_no,
    require_text,
)
from resource_objects.interop.nova.rules import NovaRule
from resource_objects.resources.numa.cells import HostCell
from resource_objects.resources.numa.cpuset import CPUSet
from resource_objects.resources.pci.amount import DeviceSpec
from resource_objects.resources.pci.device import (
    AFFINITIES,
    LEGACY,
    PCI,
    PF,
    VF,
    Device,
    listed,
    parse_address,
)

__all__ = [
    "Alias",
    "NovaDeviceRule",
    "configured_cells",
    "host_settings",
    "parse_alias",
    "parse_device_spec",
    "tagged_device",
]


# --- aliases --------------------------------------------------------------------------------------

#: The keys of an entry, and the values of some; no alias is for vDPA.
_ALIAS_KEYS: Final[Mapping[str, tuple[str, ...] | None]] = {
    "name": None,
    "capability_type": ("pci",),
    "vendor_id": None,
    "product_id": None,
    "device_type": (PCI, PF, VF),
    "numa_policy": AFFINITIES,
    "resource_class": None,
    "traits": None,
    "live_migratable": None,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Alias:
    """A name for kinds of devices, which are alternatives, and their NUMA policy."""

    name: str
    specs: tuple[DeviceSpec, ...]
    affinity: str = LEGACY


def parse_alias(
    source: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]],
    *,
    pci_in_placement: bool = False,
) -> dict[str, Alias]:
    """Return the aliases of ``[pci] alias`` by name.

    :param source: JSON text, the object of that text, or several of these
    :param pci_in_placement: ``[filter_scheduler] pci_in_placement``: resource classes and traits
        are matched, and a class replaces vendor and product; every alias has one entry
    :raises InvalidNovaInput: ``INVALID_ALIAS`` for an invalid entry; ``ALIASES_DISAGREE`` if
        entries of a name differ in ``numa_policy`` or ``device_type``; ``ALIAS_WITHOUT_IDS`` for
        an entry without vendor and product, and without a class where that replaces them;
        ``ALIAS_OF_SEVERAL_SPECS`` for a name of several entries in Placement

    >>> aliases = parse_alias(['{"name": "gpu", "vendor_id": "10de", "product_id": "2330"}'])
    >>> aliases["gpu"].affinity, aliases["gpu"].specs[0].types
    ('legacy', ('type-PCI', 'type-VF'))
    """
    document = _parse_alias_text(source)
    entries = [document] if isinstance(document, Mapping) else listed(document)
    if not isinstance(entries, list):
        raise NovaRule.INVALID_ALIAS.error("alias", source, "an object of JSON")
    by_name: dict[str, list[Mapping[str, str]]] = {}
    for index, entry in enumerate([_parse_alias_text(entry) for entry in entries]):
        name, values = _alias_entry(f"alias[{index}]", entry)
        by_name.setdefault(name, []).append(values)
    return {name: _alias(name, values, pci_in_placement) for name, values in by_name.items()}


def _parse_alias_text(source: object) -> Any:
    return NovaRule.INVALID_ALIAS.convert(
        "alias", source, lambda _: parse_document(source, "alias")
    )


def _alias_entry(path: str, entry: object) -> tuple[str, Mapping[str, str]]:
    """Return the name of an entry and its other values."""
    if not isinstance(entry, Mapping):
        raise NovaRule.INVALID_ALIAS.error(path, entry, "an object of JSON")
    values: dict[str, str] = {}
    for key, value in entry.items():
        key_name, choices = f"{path}.{key}", _ALIAS_KEYS.get(key)
        if key not in _ALIAS_KEYS:
            expected = f"one of {', '.join(_ALIAS_KEYS)}"
            raise NovaRule.INVALID_ALIAS.error(key_name, value, expected)
        if not isinstance(value, str) or (choices is not None and value not in choices):
            expected = "text" if choices is None else f"one of {', '.join(choices)}"
            raise NovaRule.INVALID_ALIAS.error(key_name, value, expected)
        values[key] = value
    if "live_migratable" in values:
        flag = parse_yes_no(values["live_migratable"])
        if flag is None:
            value = values["live_migratable"]
            raise NovaRule.INVALID_ALIAS.error(f"{path}.live_migratable", value, "yes or no")
        values["live_migratable"] = format_flag(flag)
    name = values.pop("name", "").strip()
    NovaRule.INVALID_ALIAS.convert(f"{path}.name", name, names.label)
    return name, values


def _alias(name: str, entries: list[Mapping[str, str]], in_placement: bool) -> Alias:
    path = f"alias {name}"
    policies = [entry.get("numa_policy") or LEGACY for entry in entries]
    types = [entry.get("device_type") for entry in entries]
    for key, values in (("numa_policy", policies), ("device_type", types)):
        if len({*values}) > 1:
            expected = "the same in all entries"
            raise NovaRule.ALIASES_DISAGREE.error(f"{path}: {key}", values, expected)
    if in_placement and len(entries) > 1:
        expected = "one entry, for Placement"
        raise NovaRule.ALIAS_OF_SEVERAL_SPECS.error(path, len(entries), expected)
    specs = []
    for entry in entries:
        has_ids = "vendor_id" in entry and "product_id" in entry
        if not has_ids and not (in_placement and "resource_class" in entry):
            expected = "vendor_id and product_id" + (", or resource_class" if in_placement else "")
            raise NovaRule.ALIAS_WITHOUT_IDS.error(path, dict(entry), expected)
        spec: dict[str, str | None] = {**entry}
        spec.pop("numa_policy", None)
        if "device_type" in spec:
            spec["dev_type"] = spec.pop("device_type")
        specs.append(spec)
    try:
        read = pci_requests.read_specs(specs, placement=in_placement, providers=None)
    except InvalidInput as error:
        raise NovaRule.INVALID_ALIAS.error(
            f"{path}: {error.what}", error.value, error.expected
        ) from None
    return Alias(name, read, policies[0])


# --- device specs ---------------------------------------------------------------------------------

#: The tag with the network interface of a physical function.
PARENT_IFNAME: Final = "parent_ifname"
_FLAGS: Final = ("remote_managed", "live_migratable", "one_time_use")
#: Keys of an entry that are not tags.
_SPEC_KEYS: Final = (
    "vendor_id", "product_id", "address", "devname", "resource_class", "traits", *_FLAGS,
)  # fmt: skip
#: Finds the address of a network interface: by name, or with a function; None if there is none.
Devnames = Mapping[str, str] | Callable[[str], str | None]


@dataclasses.dataclass(frozen=True, slots=True)
class NovaDeviceRule(DeviceRule):
    """An entry of ``[pci] device_spec`` as a device rule; :func:`parse_device_spec` returns it.

    ``address`` is a glob, or one address, which also selects the virtual functions of the device
    there. ``expressions`` are regular expressions of the fields of an address; ``devname`` is the
    name of an interface whose address is not known. ``has_one_time_use`` is True if the entry has
    that key.
    """

    expressions: tuple[re.Pattern[str], ...] = ()
    devname: str | None = None
    has_one_time_use: bool = False

    def __post_init__(self) -> None:
        """Accept the values: :func:`parse_device_spec` has checked them by the rules of Nova."""

    def matches(self, device: PCIDevice | Device, ifname: str | None = None) -> bool:
        """Return True if the entry selects a device; serial numbers are not read.

        :param ifname: the name of the network interface of the device
        """
        if self.vendor_id not in (ANY, device.vendor_id):
            return False
        if self.product_id not in (ANY, device.product_id):
            return False
        interfaces: set[str | None]
        if isinstance(device, Device):
            parent, interfaces = device.parent, {ifname, device.tags.get(PARENT_IFNAME)}
        else:
            parent = device.parent_address
            interfaces = {ifname, *(interface.name for interface in device.interfaces)}
        if self.devname is not None and self.address is None:
            return self.devname in interfaces
        if self.address is not None and parent == self.address:
            return True
        if self.expressions:
            parts = re.split("[:.]", device.address)
            pairs = zip(self.expressions, parts, strict=True)
            return all(expression.fullmatch(part) for expression, part in pairs)
        return self.address is None or fnmatch.fnmatchcase(device.address, self.address)


def parse_device_spec(
    source: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]],
    *,
    devnames: Devnames | None = None,
    report_in_placement: bool = False,
) -> tuple[NovaDeviceRule, ...]:
    """Return the entries of ``[pci] device_spec`` as device rules, in their order.

    :param source: JSON text, the object of that text, or several of these; a text may be a list of
        objects
    :param devnames: finds the address of a network interface: by name, or with a function, None if
        there is none. Without it, a device has to have the name of its interface
    :param report_in_placement: ``[pci] report_in_placement`` of the host. One-time use requires
        it; names of interfaces exclude it
    :raises InvalidNovaInput: for the first broken rule

    >>> (nic,) = parse_device_spec('{"address": "*:04:00.*", "physical_network": "red"}')
    >>> nic.address, dict(nic.tags)
    ('*:04:00.*', {'physical_network': 'red'})
    >>> parse_device_spec('{"vendor_id": "10000"}')
    Traceback (most recent call last):
    resource_objects.interop.nova.rules.InvalidNovaInput: device_spec[0].vendor_id: got '10000'...
    """
    document = _spec_entries(source) if isinstance(source, str | Mapping) else listed(source)
    if not isinstance(document, list):
        expected = "an object of JSON, or a list"
        raise NovaRule.INVALID_DEVICE_SPEC.error("device_spec", source, expected)
    entries = [entry for item in document for entry in _spec_entries(item)]
    return tuple(
        _device_rule(f"device_spec[{index}]", entry, devnames, report_in_placement)
        for index, entry in enumerate(entries)
    )


def _spec_entries(item: object) -> list[Any]:
    document: Any = item
    if isinstance(item, str):
        rule = NovaRule.INVALID_DEVICE_SPEC
        document = rule.convert(
            "device_spec", item, lambda text: parse_document(text, "device_spec")
        )
    entries = document if isinstance(item, str) and isinstance(document, list) else [document]
    for entry in entries:
        if not isinstance(entry, Mapping):
            expected = "an object of JSON"
            raise NovaRule.INVALID_DEVICE_SPEC.error("device_spec", entry, expected)
    return entries


def _device_rule(
    path: str, entry: Mapping[str, Any], devnames: Devnames | None, in_placement: bool
) -> NovaDeviceRule:
    flags = {name: _spec_flag(f"{path}.{name}", entry.get(name)) for name in _FLAGS}
    devname = _spec_devname(f"{path}.devname", entry, in_placement)
    if flags["one_time_use"] and not in_placement:
        key, expected = f"{path}.one_time_use", "no, unless devices are reported in Placement"
        raise NovaRule.ONE_TIME_USE_WITHOUT_PLACEMENT.error(key, True, expected)
    vendor_id = _spec_id(f"{path}.vendor_id", entry.get("vendor_id", ANY))
    product_id = _spec_id(f"{path}.product_id", entry.get("product_id", ANY))
    expressions: tuple[re.Pattern[str], ...] = ()
    if devname is None:
        pattern, address = entry.get("address"), None
        if isinstance(pattern, Mapping) and pattern:
            expressions, address = _expressions(pattern)
        elif pattern not in (None, "", {}):
            address = _glob(pattern)
    else:
        address = _interface_address(devname, devnames, bool(flags["remote_managed"]))
    class_text, resource_class = entry.get("resource_class"), None
    if class_text not in (None, ""):
        resource_class = NovaRule.INVALID_SPEC_CLASS.convert(
            f"{path}.resource_class",
            class_text,
            lambda value: normalized_class(_require_str(value)),
        )
    return NovaDeviceRule(
        vendor_id,
        product_id,
        resource_class,
        _spec_traits(f"{path}.traits", entry.get("traits")),
        address,
        tags=_spec_tags(path, entry),
        one_time_use=bool(flags["one_time_use"]),
        remote_managed=bool(flags["remote_managed"]),
        live_migratable=flags["live_migratable"],
        expressions=expressions,
        devname=devname,
        has_one_time_use=flags["one_time_use"] is not None,
    )


def _spec_devname(key: str, entry: Mapping[str, Any], in_placement: bool) -> str | None:
    devname = entry.get("devname") or None
    if devname is None:
        return None
    if not isinstance(devname, str):
        expected = "the name of an interface"
        raise NovaRule.INVALID_DEVICE_SPEC.error(key, devname, expected)
    if entry.get("address"):
        raise NovaRule.ADDRESS_AND_DEVNAME.error(key, devname, "none next to an address")
    if in_placement:
        expected = "none where devices are reported in Placement"
        raise NovaRule.DEVNAME_IN_PLACEMENT.error(key, devname, expected)
    return devname


def _spec_traits(path: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    try:
        return tuple(sorted(normalized_traits(_require_str(value))))
    except InvalidInput as error:
        expected = f"names with commas between them, each {error.expected}"
        raise NovaRule.INVALID_SPEC_TRAITS.error(path, value, expected) from None


def _spec_id(path: str, value: object) -> str:
    text = value.strip().lower() if isinstance(value, str) else ""
    if text == ANY:
        return ANY
    if not re.fullmatch(r"(0x)?[0-9a-f]{1,64}", text, re.ASCII) or int(text, 16) > 0xFFFF:
        expected = "a hexadecimal number up to FFFF, or *"
        raise NovaRule.INVALID_SPEC_ID.error(path, value, expected)
    return f"{int(text, 16):04x}"


def _spec_flag(path: str, value: object) -> bool | None:
    flag = None if value is None else parse_yes_no(value)
    if value is not None and flag is None:
        raise NovaRule.INVALID_SPEC_FLAG.error(path, value, "yes or no")
    return flag


def _require_str(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput("value", "name", value, "text")
    return value


def _spec_tags(path: str, entry: Mapping[str, Any]) -> FrozenDict:
    tags: dict[str, str] = {}
    for name, value in entry.items():
        if name in _SPEC_KEYS or value is None:
            continue
        rule, tag_path = NovaRule.INVALID_SPEC_TAG, f"{path}.{name}"
        is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
        rule.convert(tag_path, name, names.label)
        tags[name] = json.dumps(value) if is_list else rule.convert(tag_path, value, _tag_text)
    if "managed" in tags:
        tags["managed"] = format_flag(bool(_spec_flag(f"{path}.managed", entry["managed"])))
    return FrozenDict(tags)


def _tag_text(value: object) -> str:
    return require_text(value, "tag") or ""


#: The fields of an address: digits and highest value of each.
_ADDRESS_FIELDS: Final = {
    "domain": (4, 0xFFFF),
    "bus": (2, 0xFF),
    "slot": (2, 0x1F),
    "function": (1, 0x7),
}
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+\Z", re.ASCII)
_MAX_EXPRESSION: Final = 1000
#: The address of an interface that does not exist: it matches no device.
_NO_ADDRESS: Final = ""


def _interface_address(name: str, devnames: Devnames | None, is_remote: bool) -> str | None:
    """Return the address of an interface, None if addresses are not known."""
    if devnames is None:
        return None
    address = devnames.get(name) if isinstance(devnames, Mapping) else devnames(name)
    if address is not None:
        return parse_address(address)
    if is_remote:
        expected = "an interface of this host"
        raise NovaRule.REMOTE_MANAGED_NOT_PRESENT.error("devname", name, expected)
    return _NO_ADDRESS


def _glob(pattern: object) -> str:
    """Return a glob of four fields in normal form.

    >>> _glob(":0a:00.*"), _glob("0a:00"), _glob("0000:3B:00.0")
    ('*:0a:00.*', '*:0a:00.*', '0000:3b:00.0')
    """
    path = "device_spec address"
    if not isinstance(pattern, str):
        expected = "text, or regular expressions by field"
        raise NovaRule.INVALID_SPEC_ADDRESS.error(path, pattern, expected)
    left, _, function = pattern.partition(".")
    parts = left.split(":")
    if len(parts) > 3:
        highest = ", ".join(f"{name} {most:x}" for name, (_, most) in _ADDRESS_FIELDS.items())
        expected = f"DOMAIN:BUS:SLOT.FUNCTION of hexadecimal digits or *, up to {highest}"
        raise NovaRule.INVALID_SPEC_ADDRESS.error(path, pattern, expected)
    fields = []
    texts = [*[""] * (3 - len(parts)), *parts, function]
    for (name, (digits, most)), part in zip(_ADDRESS_FIELDS.items(), texts, strict=True):
        text = part.strip()
        if text in ("", "*"):
            fields.append("*")
            continue
        value = int(text, 16) if _HEXADECIMAL.match(text) else most + 1
        if value > most:
            expected = f"up to {most:x}, or *"
            raise NovaRule.INVALID_SPEC_ADDRESS.error(f"{path} {name}", text, expected)
        fields.append(f"{value:0{digits}x}")
    return "{}:{}:{}.{}".format(*fields)


def _expressions(
    pattern: Mapping[Any, Any],
) -> tuple[tuple[re.Pattern[str], ...], str | None]:
    """Return the regular expressions of an address, and the address if there is only one."""
    path = "device_spec address"
    unknown = sorted(str(name) for name in pattern if name not in _ADDRESS_FIELDS)
    if unknown:
        expected = f"one of {', '.join(_ADDRESS_FIELDS)}"
        raise NovaRule.INVALID_SPEC_ADDRESS.error(path, unknown[0], expected)
    texts = [pattern.get(name, ".*") for name in _ADDRESS_FIELDS]
    for name, text in zip(_ADDRESS_FIELDS, texts, strict=True):
        if not isinstance(text, str) or len(text) > _MAX_EXPRESSION:
            expected = f"a regular expression of at most {_MAX_EXPRESSION} characters"
            raise NovaRule.INVALID_SPEC_ADDRESS.error(f"{path} {name}", text, expected)
    try:
        expressions = tuple(re.compile(text) for text in texts)
    except (re.error, RecursionError, OverflowError) as error:
        expected = f"regular expressions: {error}"
        raise NovaRule.INVALID_SPEC_ADDRESS.error(path, texts, expected) from None
    is_single = all(_HEXADECIMAL.match(text) for text in texts)
    return expressions, "{}:{}:{}.{}".format(*texts).lower() if is_single else None


def tagged_device(
    device: Device,
    rules: Iterable[NovaDeviceRule],
    *,
    ifname: str | None = None,
    serial_number: str | None = None,
) -> Device | None:
    """Return a device with the tags, class and traits of the first matching entry; None if none.

    Class and traits are those of Nova in Placement: upper case, with ``CUSTOM_`` if they are not
    standard; the default class is that of the ids. Of the earlier tags of the device, only the
    interface of its physical function remains.

    :param rules: as :func:`parse_device_spec` returns them
    :param ifname: the name of its network interface, for entries with ``devname``
    :param serial_number: of its card; by default that of its fact ``capabilities``
    :raises InvalidInput: if it is not a device
    :raises InvalidNovaInput: ``INVALID_DEVICE_SPEC`` if the entries are not parsed;
        ``ONE_TIME_USE_OF_PART`` if the entry of a virtual function has ``one_time_use``;
        ``REMOTE_MANAGED_FUNCTION`` if the entry of the address of a physical function says that it
        is remotely managed

    >>> from resource_objects.interop.nova import parse_device_spec
    >>> rules = parse_device_spec({"vendor_id": "10de", "resource_class": "gpu", "traits": "big"})
    >>> gpu = tagged_device(Device("0000:3b:00.0", "10de", "2330"), rules)
    >>> gpu.resource_class, sorted(gpu.traits)
    ('CUSTOM_GPU', ['CUSTOM_BIG'])
    >>> tagged_device(Device("0000:3c:00.0", "8086", "154c"), rules) is None
    True
    """
    if not isinstance(device, Device):
        raise InvalidInput("device", "device", device, "a Device")
    entries = listed(rules)
    if not isinstance(entries, list) or not all(isinstance(e, NovaDeviceRule) for e in entries):
        expected = "entries as parse_device_spec() returns"
        raise NovaRule.INVALID_DEVICE_SPEC.error("device_spec", rules, expected)
    for rule in entries:
        if not rule.matches(device, ifname):
            continue
        if rule.remote_managed:
            if device.type == PF and rule.address == device.address:
                expected = "a virtual function, not a physical one"
                raise NovaRule.REMOTE_MANAGED_FUNCTION.error(
                    "remote_managed", device.address, expected
                )
            if not (serial_number or _serial_number(device)):
                continue
        if rule.has_one_time_use and device.is_part:
            expected = "a whole device"
            raise NovaRule.ONE_TIME_USE_OF_PART.error("one_time_use", device.address, expected)
        ifname_tag = {name: device.tags[name] for name in device.tags if name == PARENT_IFNAME}
        return device.replace(
            tags={**rule.tags, **ifname_tag},
            resource_class=rule.class_of(device),
            traits=device.traits.union(rule.traits),
            remote_managed=rule.remote_managed,
            live_migratable=rule.live_migratable,
            one_time_use=rule.one_time_use,
        )
    return None


def _serial_number(device: Device) -> str | None:
    try:
        capabilities = json.loads(device.facts.get("capabilities", "{}"))
        number = capabilities["vpd"]["card_serial_number"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return number if isinstance(number, str) else None


# --- CPU sets and reserved pages ------------------------------------------------------------------


def host_settings(
    *,
    cpu_shared_set: str | None = None,
    cpu_dedicated_set: str | None = None,
    vcpu_pin_set: str | None = None,
    reserved_huge_pages: Iterable[str | Mapping[str, Any]] = (),
) -> HostSettings:
    """Return the settings of a host from its options; None and ``""`` are not set.

    With ``vcpu_pin_set``, ``cpu_shared_set`` is only for emulator threads, and has no effect.

    :param reserved_huge_pages: entries as text, or as mappings of text as ``oslo.config`` reads
        them
    :raises InvalidNovaInput: ``INVALID_CPU_LIST`` or ``CPU_SET_EMPTY`` for a CPU set that is not a
        list, or has no CPU; ``CPU_SETS_OVERLAP``; ``PIN_SET_CONFLICT`` for ``vcpu_pin_set`` with
        ``cpu_dedicated_set``; ``INVALID_RESERVED_PAGES`` or ``PAGES_RESERVED_TWICE`` for an entry

    >>> settings = host_settings(cpu_shared_set="0-1", cpu_dedicated_set="2-7,^4",
    ...                          reserved_huge_pages=["node:1,size:1GB,count:1"])
    >>> settings.shared, settings.dedicated, settings.reserved_pages
    ((0, 1), (2, 3, 5, 6, 7), {1: {1048576: 1}})
    >>> host_settings(vcpu_pin_set="2-3").shared
    (2, 3)
    """
    pinned = _cpu_set("vcpu_pin_set", vcpu_pin_set)
    shared = _cpu_set("cpu_shared_set", cpu_shared_set)
    dedicated = _cpu_set("cpu_dedicated_set", cpu_dedicated_set)
    if pinned is not None:
        if dedicated is not None:
            expected = "none next to cpu_dedicated_set"
            raise NovaRule.PIN_SET_CONFLICT.error("vcpu_pin_set", vcpu_pin_set, expected)
        shared = dedicated = pinned
    elif shared is not None and dedicated is not None and (both := shared & dedicated):
        expected = "CPUs that are not in cpu_shared_set"
        raise NovaRule.CPU_SETS_OVERLAP.error("cpu_dedicated_set", str(both), expected)
    option, form = "reserved_huge_pages", "an entry such as node:0,size:2048,count:64"
    entries: object = reserved_huge_pages
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        raise NovaRule.NOT_WORDS.error(option, entries, f"a list, each {form}")
    pages: dict[int, dict[int | str, int]] = {}
    for entry in entries:
        try:
            cell, size, count = _reserved_pages(entry)
        except (ValueError, TypeError) as error:
            raise NovaRule.INVALID_RESERVED_PAGES.error(option, entry, form) from error
        if size in pages.setdefault(cell, {}):
            expected = f"one entry for pages of {size} KiB of cell {cell}"
            raise NovaRule.PAGES_RESERVED_TWICE.error(option, entry, expected)
        pages[cell][size] = count
    return HostSettings(shared=shared, dedicated=dedicated, reserved_pages=pages)


def _cpu_set(option: str, text: str | None) -> CPUSet | None:
    if text is None or text == "":
        return None
    cpus = parse_cpu_spec(text, option)
    if not cpus:
        expected = "a list with at least one CPU"
        raise NovaRule.CPU_SET_EMPTY.error(option, text, expected)
    return cpus


def _reserved_pages(entry: object) -> tuple[int, int, int]:
    """Return cell, size in KiB and count of an entry.

    :raises ValueError: if it is not an entry; InvalidNovaInput is one
    """
    pairs: list[Any] = []
    if isinstance(entry, Mapping):
        pairs = list(entry.items())
    elif isinstance(entry, str):
        pairs = [[part.strip() for part in item.split(":", 1)] for item in entry.split(",")]
    values = {key: option_text("reserved_huge_pages", value).strip() for key, value in pairs}
    if len(pairs) != len(values) or values.keys() != {"node", "size", "count"}:
        raise ValueError(pairs)
    cell, count = values["node"], values["count"]
    if not all(re.fullmatch(r"[0-9]{1,9}", number, re.ASCII) for number in (cell, count)):
        raise ValueError(pairs)
    return int(cell), page_size_kib("size", values["size"]), int(count)


def configured_cells(
    cells: Iterable[HostCell], settings: HostSettings | None = None
) -> tuple[HostCell, ...]:
    """Return the cells of a host with the CPU sets and the reserved pages of its settings.

    :param cells: the discovered cells; the CPUs of both of their sets are available
    :param settings: as :func:`host_settings` returns them; pages without an entry keep their
        reserved count
    :raises InvalidNovaInput: ``NOT_WORDS`` for arguments of other types; ``CPUS_NOT_OF_HOST`` for
        CPUs that no cell has; ``RESERVED_PAGES_NOT_OF_HOST`` for unknown cells or pages;
        ``TOO_MANY_PAGES_RESERVED`` for more pages than exist

    >>> from resource_objects.resources.numa import PagePool
    >>> discovered = HostCell(0, shared=range(4), memory_mb=1024,
    ...                       pages=[PagePool(size_kib=4, total=131072),
    ...                              PagePool(size_kib=2048, total=256)])
    >>> (cell,) = configured_cells([discovered], host_settings(
    ...     cpu_dedicated_set="2-3", reserved_huge_pages=["node:0,size:2MB,count:64"]))
    >>> cell.shared, cell.dedicated, cell.pages[1].reserved
    ((), (2, 3), 64)
    """
    host_cells: tuple[Any, ...] = tuple(cells) if isinstance(cells, Iterable) else (cells,)
    for cell in host_cells:
        if not isinstance(cell, HostCell):
            raise NovaRule.NOT_WORDS.error("cells", cell, "HostCells")
    if settings is None:
        settings = HostSettings()
    if not isinstance(settings, HostSettings):
        raise NovaRule.NOT_WORDS.error("settings", settings, "settings as host_settings() returns")
    available = CPUSet(cpu for cell in host_cells for cpu in (*cell.shared, *cell.dedicated))
    shared, dedicated = settings.shared, settings.dedicated
    for option, cpus in (("cpu_shared_set", shared), ("cpu_dedicated_set", dedicated)):
        if unknown := (cpus or CPUSet()) - available:
            expected = f"CPUs among {available}"
            raise NovaRule.CPUS_NOT_OF_HOST.error(option, str(unknown), expected)
    _check_reserved_pages(host_cells, settings)
    if shared is None and dedicated is None:
        shared = available
    configured = []
    for cell in host_cells:
        cell_cpus = CPUSet((*cell.shared, *cell.dedicated))
        reserved = settings.reserved_pages.get(cell.id, {})
        configured.append(
            cell.replace(
                shared=cell_cpus & (shared or CPUSet()),
                dedicated=cell_cpus & (dedicated or CPUSet()),
                pages=[
                    pool.replace(reserved=reserved.get(pool.size_kib, pool.reserved))
                    for pool in cell.pages
                ],
            )
        )
    return tuple(configured)


def _check_reserved_pages(cells: Iterable[HostCell], settings: HostSettings) -> None:
    totals = {(cell.id, pool.size_kib): pool.total for cell in cells for pool in cell.pages}
    for cell_id, sizes in settings.reserved_pages.items():
        for size, count in sizes.items():
            total, pages = totals.get((cell_id, size)), f"{size} KiB of cell {cell_id}"
            if total is None:
                expected = "pages that the host has"
                raise NovaRule.RESERVED_PAGES_NOT_OF_HOST.error(
                    "reserved_huge_pages", pages, expected
                )
            if count > total:
                expected = f"at most {total} of {pages}"
                raise NovaRule.TOO_MANY_PAGES_RESERVED.error("reserved_huge_pages", count, expected)
