"""``[pci] alias``: names for kinds of devices; and what a flavor and its image ask of devices.

Several entries of one name are alternatives; they agree on ``numa_policy`` and ``device_type``.
A flavor says ``pci_passthrough:alias=a:2,b:1``; the NUMA policy that it or its image says
(``hw:pci_numa_affinity_policy``) wins over that of the alias.

What differs from Nova:

==================================  ================================================================
words                               Nova, and here
==================================  ================================================================
several entries, the first without  an error by accident; as with one: they agree, or not
``device_type``
``capability_type``                 nothing is ever found for it; says nothing, for it can only be
                                    ``pci``
``pci_passthrough:alias=a``,        a bare ValueError; refused (INVALID_ALIAS_COUNT)
``=a:x``
``=a:0``, ``=a:-1``                 asks for nothing; refused (INVALID_ALIAS_COUNT)
==================================  ================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from oslo_utils import strutils

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import FrozenDict
from resource_objects.interop.nova import pci_requests, primitive
from resource_objects.interop.nova.flavor_words import text_of
from resource_objects.interop.nova.nova_objects import extra_specs_of, image_properties
from resource_objects.interop.nova.primitive import Document
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources.pci.amount import DeviceRequest, DeviceSpec, PCIAmount
from resource_objects.resources.pci.device import (
    AFFINITIES,
    LEGACY,
    MAX_DEVICES,
    PCI,
    PF,
    VF,
    listed,
)

__all__ = ["Alias", "alias_requests", "flavor_devices", "parse_alias", "pci_affinity"]

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
    "device_type": (PCI, PF, VF),
    "numa_policy": AFFINITIES,
}
_IDS: Final = ("vendor_id", "product_id")
#: What all entries of one name have to agree on.
_AGREE: Final = ("numa_policy", "device_type")
#: What an entry says that does not say it.
_DEFAULTS: Final = {"numa_policy": LEGACY}


@dataclasses.dataclass(frozen=True, slots=True)
class Alias:
    """A name for kinds of devices, each of which will do, and how near they have to be."""

    name: str
    specs: tuple[DeviceSpec, ...]
    affinity: str = LEGACY


def parse_alias(
    source: str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]],
    *,
    pci_in_placement: bool = False,
) -> dict[str, Alias]:
    """Return the aliases of ``[pci] alias`` by name.

    :param source: JSON text, an object it stands for, or several of these, as the option has them
    :param pci_in_placement: ``[filter_scheduler] pci_in_placement``: then resource classes and
        traits are matched, and stand in for vendor and product; and every alias is of one entry
    :raises InvalidNovaInput: ``INVALID_ALIAS`` for an invalid entry; ``ALIASES_DISAGREE``
        if entries of one name differ in ``numa_policy`` or ``device_type``; ``ALIAS_WITHOUT_IDS``
        for one without vendor and product, or a class where that will do;
        ``ALIAS_OF_SEVERAL_SPECS`` for a name of several entries in Placement

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
    entries = listed(found)
    if not isinstance(entries, list):
        raise InvalidNovaInput(NovaRule.INVALID_ALIAS, _ROOT, source, "an object of JSON")
    return [_parsed(one) for one in entries]


def _parsed(source: object) -> Any:
    try:
        return primitive.parsed(source, _ROOT)
    except InvalidInput as error:
        raise InvalidNovaInput(NovaRule.INVALID_ALIAS, _ROOT, error.value, error.expected) from None


def _entry(what: str, given: object) -> tuple[str, Mapping[str, str]]:
    """Return the name of an entry, and the rest of it."""
    if not isinstance(given, Mapping):
        raise InvalidNovaInput(NovaRule.INVALID_ALIAS, what, given, "an object of JSON")
    found: dict[str, str] = {}
    for key, value in given.items():
        if key not in _KNOWN:
            raise InvalidNovaInput(
                NovaRule.INVALID_ALIAS, f"{what}.{key}", value, f"one of {', '.join(_KNOWN)}"
            )
        choices = _CHOICES.get(key)
        if not isinstance(value, str) or (choices is not None and value not in choices):
            expected = "text" if choices is None else f"one of {', '.join(choices)}"
            raise InvalidNovaInput(NovaRule.INVALID_ALIAS, f"{what}.{key}", value, expected)
        found[key] = value
    if "live_migratable" in found:
        found["live_migratable"] = _flag(f"{what}.live_migratable", found["live_migratable"])
    try:
        name = names.label(found.pop("name", "").strip())
    except InvalidInput as error:
        raise InvalidNovaInput(
            NovaRule.INVALID_ALIAS, f"{what}.name", given.get("name"), error.expected
        ) from None
    return name, found


def _flag(what: str, said: str) -> str:
    try:
        return primitive.flag_text(strutils.bool_from_string(said, strict=True))
    except ValueError:
        raise InvalidNovaInput(NovaRule.INVALID_ALIAS, what, said, "yes or no") from None


def _alias(name: str, said: Sequence[Mapping[str, str]], in_placement: bool) -> Alias:
    what = f"{_ROOT} {name}"
    for key in _AGREE:
        values = [entry.get(key) or _DEFAULTS.get(key) for entry in said]
        if len({*values}) > 1:
            raise InvalidNovaInput(
                NovaRule.ALIASES_DISAGREE, f"{what}: {key}", values, "the same in all entries"
            )
    if in_placement and len(said) > 1:
        raise InvalidNovaInput(
            NovaRule.ALIAS_OF_SEVERAL_SPECS, what, len(said), "one entry, for Placement"
        )
    for entry in said:
        has_ids = all(id_ in entry for id_ in _IDS)
        if not has_ids and not (in_placement and "resource_class" in entry):
            expected = "vendor_id and product_id"
            expected += ", or resource_class" if in_placement else ""
            raise InvalidNovaInput(NovaRule.ALIAS_WITHOUT_IDS, what, dict(entry), expected)
    try:
        specs = pci_requests.read_specs(
            [_spec(entry) for entry in said], placement=in_placement, providers=None
        )
    except InvalidInput as error:
        raise InvalidNovaInput(
            NovaRule.INVALID_ALIAS, f"{what}: {error.what}", error.value, error.expected
        ) from None
    return Alias(name, specs, said[0].get("numa_policy") or LEGACY)


def _spec(entry: Mapping[str, str]) -> dict[str, str | None]:
    """Return an entry as the spec of a request."""
    kind = entry.get("device_type")
    said = {key: value for key, value in entry.items() if key not in _AGREE}
    return {**said, **({} if kind is None else {"dev_type": kind})}


# --- what a flavor and its image ask ---

_NOTHING: Final[Mapping[str, Any]] = FrozenDict()
#: Where a flavor names its aliases.
_ALIASES: Final = "pci_passthrough:alias"
_POLICY: Final = "pci_numa_affinity_policy"


def alias_requests(
    text: str,
    aliases: Mapping[str, Alias],
    *,
    affinity: str | None = None,
    request_id: Callable[[], str] | None = None,
) -> PCIAmount:
    """Return the devices that a flavor asks for by alias.

    :param text: ``pci_passthrough:alias`` of the flavor: ``a:2,b:1``
    :param aliases: as :func:`.parse_alias` returns them
    :param affinity: the NUMA policy of flavor and image, in place of those of the aliases
    :param request_id: what makes an id for each request, such as a new uuid; None for none
    :raises InvalidNovaInput: ``INVALID_ALIAS_COUNT`` if it is no list of names and counts from 1;
        ``UNKNOWN_ALIAS`` if there is no such alias; ``INVALID_ALIAS`` if the aliases were not
        parsed; ``INVALID_AFFINITY_POLICY`` for a policy that there is not

    >>> from resource_objects.interop.nova import parse_alias
    >>> aliases = parse_alias({"name": "gpu", "vendor_id": "10de", "product_id": "2330"})
    >>> asked = alias_requests("gpu:2", aliases, affinity="required")
    >>> asked.requests[0].count, asked.requests[0].alias, asked.requests[0].affinity
    (2, 'gpu', 'required')
    """
    if affinity is not None:
        _check_policy("affinity", affinity)
    if not isinstance(aliases, Mapping):
        raise InvalidNovaInput(
            NovaRule.INVALID_ALIAS, "aliases", aliases, "aliases as parse_alias() returns"
        )
    found = []
    for name, count in _counts(text):
        alias = aliases.get(name)
        if alias is None:
            raise InvalidNovaInput(
                NovaRule.UNKNOWN_ALIAS, _ALIASES, name, f"one of {', '.join(aliases) or 'none'}"
            )
        found.append(
            DeviceRequest(
                alias.specs,
                count,
                affinity or alias.affinity,
                alias=alias.name,
                request_id=None if request_id is None else request_id(),
            )
        )
    return PCIAmount(found)


def _counts(text: object) -> list[tuple[str, int]]:
    expected = f"name:count with commas between, counts from 1 to {MAX_DEVICES}"
    if not isinstance(text, str):
        raise InvalidNovaInput(NovaRule.INVALID_ALIAS_COUNT, _ALIASES, text, expected)
    found = []
    for one in text.split(","):
        name, _, digits = (part.strip() for part in one.partition(":"))
        is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
        count = int(digits) if is_number else 0
        if not name or not 1 <= count <= MAX_DEVICES:
            raise InvalidNovaInput(NovaRule.INVALID_ALIAS_COUNT, _ALIASES, text, expected)
        found.append((name, count))
    return found


def pci_affinity(extra_specs: Document = _NOTHING, image: Document = _NOTHING) -> str | None:
    """Return the NUMA policy of devices that a flavor or its image says, None if neither does.

    :param extra_specs: of the flavor, text by key, or Nova's own ``Flavor``
    :param image: the image's properties, text by key, or Nova's own ``ImageMeta``
    :raises InvalidNovaInput: ``INVALID_AFFINITY_POLICY`` for a policy that there is not;
        ``AFFINITY_POLICY_CONFLICT`` if they say different ones

    >>> pci_affinity({"hw:pci_numa_affinity_policy": "socket"})
    'socket'
    """
    said, properties = extra_specs_of(extra_specs), image_properties(image)
    for what, given in (("extra specs", said), ("image", properties)):
        if not isinstance(given, Mapping):
            raise InvalidNovaInput(NovaRule.NOT_WORDS, what, given, "a mapping of keys to text")
    ours, its = f"hw:{_POLICY}", f"hw_{_POLICY}"
    flavor, image_says = text_of(ours, said.get(ours)), text_of(its, properties.get(its))
    if flavor and image_says and flavor != image_says:
        raise InvalidNovaInput(
            NovaRule.AFFINITY_POLICY_CONFLICT, its, image_says, f"none, or {flavor} as the flavor"
        )
    found = flavor or image_says
    if not found:
        return None
    _check_policy(ours if flavor else its, found)
    return found


def _check_policy(what: str, policy: object) -> None:
    if policy not in AFFINITIES:
        expected = f"one of {', '.join(AFFINITIES)}"
        raise InvalidNovaInput(NovaRule.INVALID_AFFINITY_POLICY, what, policy, expected)


def flavor_devices(
    aliases: Mapping[str, Alias],
    extra_specs: Document = _NOTHING,
    image: Document = _NOTHING,
    *,
    request_id: Callable[[], str] | None = None,
) -> PCIAmount | None:
    """Return the devices that a flavor and its image ask for, None if they ask for none.

    :param aliases: as :func:`.parse_alias` returns them
    :param extra_specs: of the flavor, text by key, or Nova's own ``Flavor``; other keys are left
        alone
    :param image: the image's properties, text by key, or Nova's own ``ImageMeta``
    :param request_id: as in :func:`alias_requests`
    :raises InvalidNovaInput: by the first rule that is broken

    >>> from resource_objects.interop.nova import parse_alias
    >>> aliases = parse_alias({"name": "gpu", "vendor_id": "10de", "product_id": "2330"})
    >>> asked = flavor_devices(aliases, {"pci_passthrough:alias": "gpu:1"},
    ...     {"hw_pci_numa_affinity_policy": "preferred"})
    >>> asked.requests[0].affinity
    'preferred'
    """
    said = extra_specs_of(extra_specs)
    affinity = pci_affinity(said, image)
    text = text_of(_ALIASES, said.get(_ALIASES))
    if not text:
        return None
    return alias_requests(text, aliases, affinity=affinity, request_id=request_id)
