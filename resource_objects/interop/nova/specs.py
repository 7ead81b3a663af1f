"""``[pci] alias`` of Nova: names for kinds of devices.

Several entries of one name are alternatives; they have the same ``numa_policy`` and
``device_type``. Differences from Nova:

==================================  ================================================================
entry                               Nova, and this library
==================================  ================================================================
several entries, the first without  an error by accident; the same rule as with ``device_type``
``device_type``
``capability_type``                 matches no device; ignored, as ``pci`` is its only value
==================================  ================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from oslo_utils import strutils

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import pci_requests
from resource_objects.interop.nova.primitive import format_flag, parse_document
from resource_objects.interop.nova.rules import NovaRule
from resource_objects.resources.pci.amount import DeviceSpec
from resource_objects.resources.pci.device import AFFINITIES, LEGACY, PCI, PF, VF, listed

__all__ = ["Alias", "parse_alias"]

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
    try:
        return parse_document(source, "alias")
    except InvalidInput as error:
        raise NovaRule.INVALID_ALIAS.error("alias", error.value, error.expected) from None


def _alias_entry(what: str, entry: object) -> tuple[str, Mapping[str, str]]:
    """Return the name of an entry and its other values."""
    if not isinstance(entry, Mapping):
        raise NovaRule.INVALID_ALIAS.error(what, entry, "an object of JSON")
    values: dict[str, str] = {}
    for key, value in entry.items():
        key_name, choices = f"{what}.{key}", _ALIAS_KEYS.get(key)
        if key not in _ALIAS_KEYS:
            expected = f"one of {', '.join(_ALIAS_KEYS)}"
            raise NovaRule.INVALID_ALIAS.error(key_name, value, expected)
        if not isinstance(value, str) or (choices is not None and value not in choices):
            expected = "text" if choices is None else f"one of {', '.join(choices)}"
            raise NovaRule.INVALID_ALIAS.error(key_name, value, expected)
        values[key] = value
    if "live_migratable" in values:
        text = values["live_migratable"]
        try:
            values["live_migratable"] = format_flag(strutils.bool_from_string(text, strict=True))
        except ValueError:
            raise NovaRule.INVALID_ALIAS.error(
                f"{what}.live_migratable", text, "yes or no"
            ) from None
    try:
        name = names.label(values.pop("name", "").strip())
    except InvalidInput as error:
        raise NovaRule.INVALID_ALIAS.error(
            f"{what}.name", entry.get("name"), error.expected
        ) from None
    return name, values


def _alias(name: str, entries: list[Mapping[str, str]], in_placement: bool) -> Alias:
    what = f"alias {name}"
    policies = [entry.get("numa_policy") or LEGACY for entry in entries]
    types = [entry.get("device_type") for entry in entries]
    for key, values in (("numa_policy", policies), ("device_type", types)):
        if len({*values}) > 1:
            expected = "the same in all entries"
            raise NovaRule.ALIASES_DISAGREE.error(f"{what}: {key}", values, expected)
    if in_placement and len(entries) > 1:
        expected = "one entry, for Placement"
        raise NovaRule.ALIAS_OF_SEVERAL_SPECS.error(what, len(entries), expected)
    specs = []
    for entry in entries:
        has_ids = "vendor_id" in entry and "product_id" in entry
        if not has_ids and not (in_placement and "resource_class" in entry):
            expected = "vendor_id and product_id" + (", or resource_class" if in_placement else "")
            raise NovaRule.ALIAS_WITHOUT_IDS.error(what, dict(entry), expected)
        spec: dict[str, str | None] = {**entry}
        spec.pop("numa_policy", None)
        if "device_type" in spec:
            spec["dev_type"] = spec.pop("device_type")
        specs.append(spec)
    try:
        read = pci_requests.read_specs(specs, placement=in_placement, providers=None)
    except InvalidInput as error:
        raise NovaRule.INVALID_ALIAS.error(
            f"{what}: {error.what}", error.value, error.expected
        ) from None
    return Alias(name, read, policies[0])
