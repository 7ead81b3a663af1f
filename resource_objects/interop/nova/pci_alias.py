"""``[pci] alias``: names for kinds of devices, which flavors ask for.

Several entries of one name are alternatives; they agree on ``numa_policy`` and ``device_type``.

What differs from Nova:

==================================  ================================================================
words                               Nova, and here
==================================  ================================================================
several entries, the first without  an error by accident; as with one: they agree, or not
``device_type``
``capability_type``                 nothing is ever found for it; says nothing, for it can only be
                                    ``pci``
==================================  ================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from oslo_utils import strutils

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import _pci_specs, _pci_words, _primitive, pci_errors
from resource_objects.resources.pci import words
from resource_objects.resources.pci.wish import DeviceSpec

__all__ = ["Alias", "parse_alias"]

_ROOT: Final = "alias"
#: The names an entry may say; all of them text.
_KNOWN: Final = (
    "name",
    "capability_type",
    "vendor_id",
    "product_id",
    "device_type",
    "numa_policy",
    "resource_class",
    "traits",
    "live_migratable",
)
#: Of some, all that they can be. No alias is for vDPA.
_CHOICES: Final = {
    "capability_type": ("pci",),
    "device_type": (words.PCI, words.PF, words.VF),
    "numa_policy": words.AFFINITIES,
}
_IDS: Final = ("vendor_id", "product_id")
#: What all entries of one name have to agree on.
_AGREE: Final = ("numa_policy", "device_type")
#: What an entry says that does not say it.
_DEFAULTS: Final = {"numa_policy": words.LEGACY}


@dataclasses.dataclass(frozen=True, slots=True)
class Alias:
    """A name for kinds of devices, each of which will do, and how near they have to be."""

    name: str
    specs: tuple[DeviceSpec, ...]
    affinity: str = words.LEGACY


def parse_alias(
    source: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]],
    *,
    pci_in_placement: bool = False,
) -> dict[str, Alias]:
    """Return the aliases of ``[pci] alias`` by name.

    :param source: JSON text, an object it stands for, or several of these, as the option has them
    :param pci_in_placement: ``[filter_scheduler] pci_in_placement``: then resource classes and
        traits are matched, and stand in for vendor and product; and every alias is of one entry
    :raises InvalidAlias: for an entry that cannot be read
    :raises AliasesDisagree: if entries of one name differ in ``numa_policy`` or ``device_type``
    :raises AliasWithoutIds: for one without vendor and product, or a class where that will do
    :raises AliasOfSeveralSpecs: for a name of several entries in Placement

    >>> aliases = parse_alias(['{"name": "gpu", "vendor_id": "10de", "product_id": "2330"}'])
    >>> aliases["gpu"].affinity, aliases["gpu"].specs[0].types
    ('legacy', ('type-PCI', 'type-VF'))
    """
    entries: dict[str, list[Mapping[str, str]]] = {}
    for place, given in enumerate(_objects(source)):
        name, entry = _entry(f"{_ROOT}[{place}]", given)
        entries.setdefault(name, []).append(entry)
    return {name: _alias(name, said, pci_in_placement) for name, said in entries.items()}


def _objects(source: object) -> list[Any]:
    """Return the entries of one text, object or list of these."""
    found = _parsed(source)
    if isinstance(found, Mapping):
        return [found]
    listed = words.listed(found)
    if not isinstance(listed, list):
        raise pci_errors.InvalidAlias(_ROOT, source, "an object of JSON")
    return [_parsed(one) for one in listed]


def _parsed(source: object) -> Any:
    try:
        return _primitive.parsed(source, _ROOT)
    except InvalidInput as error:
        raise pci_errors.InvalidAlias(_ROOT, error.value, error.expected) from None


def _entry(what: str, given: object) -> tuple[str, Mapping[str, str]]:
    """Return the name of an entry, and the rest of it."""
    if not isinstance(given, Mapping):
        raise pci_errors.InvalidAlias(what, given, "an object of JSON")
    found: dict[str, str] = {}
    for key, value in given.items():
        if key not in _KNOWN:
            raise pci_errors.InvalidAlias(f"{what}.{key}", value, f"one of {', '.join(_KNOWN)}")
        choices = _CHOICES.get(key)
        if not isinstance(value, str) or (choices is not None and value not in choices):
            expected = "text" if choices is None else f"one of {', '.join(choices)}"
            raise pci_errors.InvalidAlias(f"{what}.{key}", value, expected)
        found[key] = value
    if "live_migratable" in found:
        found["live_migratable"] = _flag(f"{what}.live_migratable", found["live_migratable"])
    try:
        name = names.label(found.pop("name", "").strip())
    except InvalidInput as error:
        raise pci_errors.InvalidAlias(f"{what}.name", given.get("name"), error.expected) from None
    return name, found


def _flag(what: str, said: str) -> str:
    try:
        return _pci_words.flag_text(strutils.bool_from_string(said, strict=True))
    except ValueError:
        raise pci_errors.InvalidAlias(what, said, "yes or no") from None


def _alias(name: str, said: Sequence[Mapping[str, str]], in_placement: bool) -> Alias:
    what = f"{_ROOT} {name}"
    for key in _AGREE:
        values = [entry.get(key) or _DEFAULTS.get(key) for entry in said]
        if len({*values}) > 1:
            raise pci_errors.AliasesDisagree(f"{what}: {key}", values, "the same in all entries")
    if in_placement and len(said) > 1:
        raise pci_errors.AliasOfSeveralSpecs(what, len(said), "one entry, for Placement")
    for entry in said:
        has_ids = all(id_ in entry for id_ in _IDS)
        if not has_ids and not (in_placement and "resource_class" in entry):
            expected = "vendor_id and product_id"
            expected += ", or resource_class" if in_placement else ""
            raise pci_errors.AliasWithoutIds(what, dict(entry), expected)
    try:
        specs = _pci_specs.read(
            [_spec(entry) for entry in said], placement=in_placement, providers=None
        )
    except InvalidInput as error:
        raise pci_errors.InvalidAlias(
            f"{what}: {error.what}", error.value, error.expected
        ) from None
    return Alias(name, specs, said[0].get("numa_policy") or words.LEGACY)


def _spec(entry: Mapping[str, str]) -> dict[str, str | None]:
    """Return an entry as the spec of a request."""
    kind = entry.get("device_type")
    said = {key: value for key, value in entry.items() if key not in _AGREE}
    return {**said, **({} if kind is None else {"dev_type": kind})}
