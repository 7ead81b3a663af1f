"""The specs of a device request in Nova's words, read and written.

What means what is told in :mod:`~resource_objects.interop.nova.pci_requests`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from resource_objects.exceptions import InvalidInput, InvalidPrimitive
from resource_objects.interop.nova import _pci_words, _primitive
from resource_objects.resources.pci import words
from resource_objects.resources.pci.wish import DeviceSpec

#: One spec as Nova says it.
Spec = Mapping[str, str | None]

#: Types that are given only to requests in which some spec asks for them.
_ASKED_FOR: Final = (words.PF, words.VDPA)
#: Where the providers that Placement chose are named: a list in text.
PROVIDERS: Final = "rp_uuids"
#: Names that Nova's pools match, and that are fields here.
_MATCHED: Final = (
    "vendor_id",
    "product_id",
    "dev_type",
    "address",
    "remote_managed",
    "live_migratable",
)
#: Names whose words facts keep; any other name is a tag.
_KNOWN: Final = (
    *_MATCHED,
    "resource_class",
    "traits",
    "capability_type",
    PROVIDERS,
)
#: What may be left unsaid, for Nova has no word for it.
OPTIONAL: Final = ("class_code", "facts")


# --- reading --------------------------------------------------------------------------------------


def read(
    given: Sequence[Spec], *, placement: bool, providers: str | None
) -> tuple[DeviceSpec, ...]:
    """Return the alternatives that specs of one request say.

    :param placement: whether classes and traits have to match; else they are facts
    :param providers: what Placement chose, as text: said of the request, not of these
    :raises InvalidInput: if a spec says what none says
    """
    types = _open_types({spec.get("dev_type") for spec in given})
    is_remote = any(_pci_words.loose_flag(spec.get("remote_managed")) for spec in given)
    found: list[DeviceSpec] = []
    for place, spec in enumerate(given):
        try:
            values = _values(spec, types, placement)
            either = is_remote and "remote_managed" not in spec
            for remote in (False, True) if either else (values["remote_managed"],):
                made = DeviceSpec(**{**values, "remote_managed": remote})
                kept = _pci_words.remembered(spec, _plain(made, placement, providers), _KNOWN)
                found.append(made.replace(facts=kept) if kept else made)
        except InvalidInput as error:
            _primitive.at(f"spec[{place}]", error)
    return tuple(found)


def _open_types(asked: Collection[str | None]) -> tuple[str, ...]:
    """Return the types that do for a spec that says none, beside specs that say these."""
    return tuple(kind for kind in words.TYPES if kind not in _ASKED_FOR or kind in asked)


def _values(spec: Spec, types: Sequence[str], placement: bool) -> dict[str, Any]:
    """Return what a spec says, by field.

    :param types: those that do if it says none
    """
    for name in _MATCHED:
        if spec.get(name, "") is None:
            raise InvalidPrimitive(name, None, "text, or no such name: nothing has it as null")
    get = spec.get
    flag = _pci_words.flag(get("live_migratable"))
    known = {*_KNOWN} - ({"live_migratable"} if flag is None else set())
    values: dict[str, Any] = {
        "vendor_id": _pci_words.lower(get("vendor_id")),
        "product_id": _pci_words.lower(get("product_id")),
        "types": _types(spec, types),
        "address": get("address"),
        "remote_managed": _pci_words.loose_flag(get("remote_managed")),
        "live_migratable": flag,
        "tags": {name: _tag(value) for name, value in spec.items() if name not in known},
    }
    if values["address"] is not None and {*values["types"]} & {*words.PARTS}:
        expected = "none where functions will do that were split off others"
        raise InvalidPrimitive("address", values["address"], expected)
    return {**values, **(_of_placement(spec, values) if placement else {})}


def _types(spec: Spec, types: Sequence[str]) -> Sequence[str]:
    kind, remote = spec.get("dev_type"), spec.get("remote_managed")
    if kind is not None:
        return (kind,)
    if remote is None or _pci_words.loose_flag(remote):
        return types
    # Nova has the tag on functions that can be split and on those that are, and on no other
    return [name for name in types if name != words.PCI]


def _tag(value: str | None) -> str:
    return words.NOT_THERE if value is None else value


def _of_placement(spec: Spec, ids: Mapping[str, str | None]) -> dict[str, Any]:
    said, traits = spec.get("resource_class"), spec.get("traits")
    vendor_id, product_id = ids["vendor_id"], ids["product_id"]
    name = _pci_words.resource_class(said) if said else None
    if name is None and vendor_id is not None and product_id is not None:
        name = words.custom_class(vendor_id, product_id)
    return {"resource_class": name, "traits": _pci_words.traits(traits or "")}


# --- writing --------------------------------------------------------------------------------------


def as_read(
    specs: Sequence[DeviceSpec], providers: str | None
) -> list[dict[str, str | None]] | None:
    """Return specs as Nova said them, if they were read from that; else None.

    :param providers: what Placement chose, as text
    """
    placement = _is_of_placement(specs)
    said = [
        _pci_words.recalled(_plain(spec, placement, providers), spec.facts, _KNOWN)
        for spec in specs
    ]
    found = [spec for place, spec in enumerate(said) if not _is_other_half(specs, said, place)]
    try:
        again = read(found, placement=placement, providers=providers)
    except InvalidInput:
        return None
    return found if again == tuple(specs) else None


def _is_of_placement(specs: Sequence[DeviceSpec]) -> bool:
    return any(spec.resource_class or spec.traits for spec in specs)


def _is_other_half(specs: Sequence[DeviceSpec], said: Sequence[Spec], place: int) -> bool:
    """Return whether one spec of Nova's was read as this one and the one before it."""
    return (
        place > 0
        and specs[place].remote_managed
        and not specs[place - 1].remote_managed
        and "remote_managed" not in said[place]
        and said[place] == said[place - 1]
    )


def explicit(specs: Sequence[DeviceSpec], providers: str | None) -> Iterator[dict[str, str | None]]:
    """Yield specs of Nova's that leave nothing to its defaults that is not so."""
    placement = _is_of_placement(specs)
    for spec, kinds in zip(specs, _types_to_say(specs), strict=True):
        for kind in kinds:
            types = () if kind is None else (kind,)
            yield _plain(spec.replace(types=types), placement, providers)


def _types_to_say(specs: Sequence[DeviceSpec]) -> list[tuple[str | None, ...]]:
    """Return, for each spec, the types that have to be said one by one; None for what is open.

    What is said opens types for specs that say none: so more of them have to say theirs, perhaps.
    """
    saying: set[int] = set()
    while True:
        asked = {kind for place in saying for kind in specs[place].wanted_types}
        open_types = {*_open_types(asked)}
        more = {n for n, spec in enumerate(specs) if {*spec.wanted_types} != open_types}
        if more <= saying:
            return [spec.wanted_types if n in saying else (None,) for n, spec in enumerate(specs)]
        saying |= more


def _plain(spec: DeviceSpec, placement: bool, providers: str | None) -> dict[str, str | None]:
    """Return one spec as Nova writes it, each word as it is written today."""
    said: dict[str, str | None] = {
        "vendor_id": spec.vendor_id,
        "product_id": spec.product_id,
        "dev_type": spec.types[0] if len(spec.types) == 1 else None,
        "address": spec.address,
        "remote_managed": "True" if spec.remote_managed else None,
        "resource_class": spec.resource_class,
        "traits": ",".join(sorted(spec.traits)) or None,
        PROVIDERS: providers,
    }
    if placement and spec.resource_class == _implied(spec):
        said["resource_class"] = None
    if spec.live_migratable is not None:
        said["live_migratable"] = _pci_words.flag_text(spec.live_migratable)
    found = {name: value for name, value in said.items() if value is not None}
    return {**found, **{name: _untag(value) for name, value in spec.tags.items()}}


def _implied(spec: DeviceSpec) -> str | None:
    """Return the class that Placement has for who says none."""
    if spec.vendor_id is None or spec.product_id is None:
        return None
    return words.custom_class(spec.vendor_id, spec.product_id)


def _untag(value: str) -> str | None:
    return None if value == words.NOT_THERE else value


def unsaid(specs: Sequence[DeviceSpec]) -> Iterator[tuple[str, str]]:
    """Yield what Nova has no word for, and why; ``""`` is what cannot be left out."""
    remote = {spec.replace(facts={}) for spec in specs if spec.remote_managed}
    for spec in specs:
        if spec.class_code:
            yield "class_code", f"a class code, {spec.class_code}"
        facts = _pci_words.unknown(spec.facts, _KNOWN)
        if facts:
            yield "facts", f"facts that are no words of Nova's: {', '.join(facts)}"
        if spec.address is not None and {*spec.wanted_types} & {*words.PARTS}:
            yield "", f"the address {spec.address}, of any function that was split off another too"
        tags = spec.tags.keys() & {*_KNOWN}
        if tags - ({"live_migratable"} if spec.live_migratable is None else set()):
            yield "", f"tags that mean something else: {', '.join(sorted(tags))}"
        if remote and spec.replace(remote_managed=True, facts={}) not in remote:
            yield "", "some devices that others manage, and some that must not be"
