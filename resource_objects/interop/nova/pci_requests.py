"""``instance_extra.pci_requests``: the devices that a guest asks for, read and written.

Read are the list of dicts that the column holds and the objects that Nova sends,
``InstancePCIRequests`` with requests of 1.0 to 1.4. The list is written, or the newest object. What
Nova leaves to the rules of its pools is said here, so that the rules of this library answer as
Nova's do:

======================================  ===========================================================
Nova                                    here
======================================  ===========================================================
``alias_name``, ``requester_id``,       ``alias``, ``requester``, ``request_id``
``request_id``
``numa_policy``                         ``affinity``; null is ``legacy``, and is written for that
                                        of a port (which has no alias)
``spec``, a list of dicts               ``specs``: each device is of any
``dev_type``                            ``types``. Without it: ``type-PCI`` and ``type-VF``;
                                        ``type-PF`` and ``vdpa`` only if another spec of the request
                                        asks for them
``remote_managed``                      the same. Said to be no: not of ``type-PCI``, for these are
                                        not tagged so. Not said: no; or either, as two alternatives,
                                        if another spec of the request asks for it
``live_migratable``                     the same; words other than ``true`` and ``false`` are a tag,
                                        which no device has
``vendor_id``, ``product_id``           the same; case does not count
``resource_class``, ``traits``          Nova's pools do not match them: facts. With
                                        ``placement=True`` they match, as Placement has them; the
                                        class of who says none is that of the ids
``rp_uuids`` of the first spec          ``providers``; of a request for a port, which never has any,
                                        a fact
``address``                             the same, of devices that were not split off others
``capability_type``                     a fact: an alias may say it, and Nova then finds no device
any other name                          a tag that a device must have; null for one that it must not
``is_new``                              not read: it is dead
======================================  ===========================================================

What is read and written again is what it was: ``facts`` of a spec keep the words that no field has.
Keys that a request did not have are written, and ``is_new`` is false.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import primitive
from resource_objects.interop.nova.primitive import REQUEST, REQUESTS, Document, NovaObject
from resource_objects.names import uuid_text
from resource_objects.resources.pci.amount import DeviceRequest, DeviceSpec, PCIAmount, given
from resource_objects.resources.pci.device import (
    AFFINITIES,
    LEGACY,
    MAX_DEVICES,
    NOT_THERE,
    PARTS,
    PCI,
    PF,
    TYPES,
    VDPA,
    custom_class,
)

__all__ = ["dump_pci_requests", "load_pci_requests", "read_specs"]

_ROOT: Final = "pci_requests"
_FIELDS: Final = frozenset(
    {"count", "spec", "alias_name", "is_new", "numa_policy", "request_id", "requester_id"}
)
#: What may be left unsaid, for Nova has no word for it.
_OPTIONAL: Final = ("class_code", "facts")


# --- reading --------------------------------------------------------------------------------------


def load_pci_requests(
    source: Document | Iterable[Mapping[str, Any] | NovaObject] | None,
    *,
    placement: bool = False,
) -> PCIAmount | None:
    """Return the devices that a guest asks for, None if it asks for none.

    :param source: JSON text as in ``instance_extra.pci_requests``, what it stands for, or an
        ``InstancePCIRequests`` or several ``InstancePCIRequest`` of Nova's
    :param placement: whether aliases match resource classes and traits, as with
        ``[filter_scheduler] pci_in_placement``
    :raises InvalidInput: if it is neither a list of requests nor such an object, in any version

    Cost: 70 microseconds for each request.

    >>> column = '''[{"count": 2, "spec": [{"vendor_id": "8086", "product_id": "154c"}],
    ...     "alias_name": "nic", "numa_policy": "required", "request_id": "r1"}]'''
    >>> asked = load_pci_requests(column)
    >>> asked.requests[0].affinity, asked.requests[0].specs[0].types
    ('required', ('type-PCI', 'type-VF'))
    """
    document = primitive.parse_document(source, _ROOT)
    if document is None:
        return None
    is_versioned = isinstance(document, Mapping)
    given = _requests_of(document) if is_versioned else primitive.parse_list(document, _ROOT)
    found = []
    for place, one in enumerate(given):
        try:
            data = primitive.require_object(one, "")
            if is_versioned or primitive.is_wrapped(data):
                data = primitive.unwrap(data, "", REQUEST)[0]
            found.append(_request(data, placement))
        except InvalidInput as error:
            primitive.reraise_at(f"{_ROOT}[{place}]", error)
    try:
        return PCIAmount(found) if found else None
    except InvalidInput as error:
        primitive.reraise_at(_ROOT, error)


def _requests_of(document: Any) -> Iterable[Any]:
    data = primitive.unwrap(document, _ROOT, REQUESTS)[0]
    primitive.reject_unknown(data, {"instance_uuid", "requests"}, f"{_ROOT}.")
    return primitive.require_list(data.get("requests"), f"{_ROOT}.requests")


def _request(data: Mapping[Any, Any], placement: bool) -> DeviceRequest:
    primitive.reject_unknown(data, _FIELDS)
    names = {
        name: primitive.require_label(data.get(name), name)
        for name in ("alias_name", "requester_id", "request_id")
    }
    specs = [
        primitive.require_texts(spec, f"spec[{place}]")
        for place, spec in enumerate(primitive.require_list(data.get("spec"), "spec"))
    ]
    alias = names["alias_name"]
    count = primitive.require_int(data.get("count"), "count", 1, MAX_DEVICES)
    chosen = specs[0].get(_PROVIDERS) if specs and alias is not None else None
    chosen = chosen or None
    return DeviceRequest(
        read_specs(specs, placement=placement and alias is not None, providers=chosen),
        count,
        _affinity(data.get("numa_policy")),
        alias=alias,
        requester=names["requester_id"],
        request_id=names["request_id"],
        providers=chosen.split(",") if chosen else (),
    )


def _affinity(policy: object) -> str:
    if policy is None:
        return LEGACY
    if isinstance(policy, str) and policy in AFFINITIES:
        return policy
    raise primitive.invalid("numa_policy", policy, f"one of {', '.join(AFFINITIES)}, or null")


# --- writing --------------------------------------------------------------------------------------


def dump_pci_requests(
    amount: PCIAmount | None,
    *,
    versioned: bool = False,
    instance_uuid: str | None = None,
    leave_out: Collection[str] = (),
) -> str:
    """Return what a guest asks for as ``instance_extra.pci_requests`` has it.

    Of an assigned amount, what was asked for: which devices it has is in ``pci_devices``.

    :param versioned: as the object that Nova sends, not as the list that the column holds
    :param instance_uuid: the uuid of the guest, which such an object has
    :param leave_out: what may be left unsaid, for Nova has no word for it: ``class_code``,
        ``facts`` that are not Nova's
    :raises CannotDowngrade: for what Nova has no word for
    :raises InvalidInput: if it is no such amount; if something else is to be left out; for a uuid
        that is none

    >>> from resource_objects.resources.pci import devices
    >>> print(dump_pci_requests(devices("10de:2330", alias="gpu", types=["type-PCI"])))
    [{"count": 1, "spec": [{"vendor_id": "10de", "product_id": "2330", "dev_type": "type-PCI"}], ...
    >>> dump_pci_requests(devices("10de:2330", class_code="0302"))
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: InstancePCIRequest cannot be expressed in ...
    """
    allowed = primitive.optional_names(leave_out, _OPTIONAL)
    found = []
    for place, request in enumerate([] if amount is None else given(amount).requests):
        chosen = ",".join(request.providers) or None
        specs = _as_read(request.specs, chosen)
        reasons = [*_unsaid(request), *([] if specs else _unsaid_specs(request.specs))]
        for name, reason in reasons:
            if name not in allowed:
                raise primitive.inexpressible(REQUEST, f"request {place} has {reason}")
        found.append(_written(request, specs or [*_explicit(request.specs, chosen)]))
    if not versioned:
        return json.dumps(found)
    data: dict[str, Any] = {"requests": [primitive.wrap(REQUEST, one) for one in found]}
    if instance_uuid is not None:
        data["instance_uuid"] = uuid_text(instance_uuid)
    return json.dumps(primitive.wrap(REQUESTS, data))


def _unsaid(request: DeviceRequest) -> Iterator[tuple[str, str]]:
    if request.providers and request.alias is None:
        yield "", "providers, and no alias: Nova has none for ports"


def _written(request: DeviceRequest, specs: list[Any]) -> dict[str, Any]:
    is_default = request.alias is None and request.affinity == LEGACY
    return {
        "count": request.count,
        "spec": specs,
        "alias_name": request.alias,
        "is_new": False,
        "numa_policy": None if is_default else request.affinity,
        "request_id": request.request_id,
        "requester_id": request.requester,
    }


#: One spec as Nova says it.
_Spec = Mapping[str, str | None]

#: Types that are given only to requests in which some spec asks for them.
_ASKED_FOR: Final = (PF, VDPA)
#: Where the providers that Placement chose are named: a list in text.
_PROVIDERS: Final = "rp_uuids"
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
    _PROVIDERS,
)


# --- reading --------------------------------------------------------------------------------------


def read_specs(
    given: Sequence[_Spec], *, placement: bool, providers: str | None
) -> tuple[DeviceSpec, ...]:
    """Return the alternatives that specs of one request say.

    :param placement: whether classes and traits have to match; else they are facts
    :param providers: what Placement chose, as text: said of the request, not of these
    :raises InvalidInput: if a spec says what none says
    """
    types = _open_types({spec.get("dev_type") for spec in given})
    is_remote = any(primitive.parse_lenient_flag(spec.get("remote_managed")) for spec in given)
    found: list[DeviceSpec] = []
    for place, spec in enumerate(given):
        try:
            values = _values(spec, types, placement)
            either = is_remote and "remote_managed" not in spec
            for remote in (False, True) if either else (values["remote_managed"],):
                made = DeviceSpec(**{**values, "remote_managed": remote})
                kept = primitive.preserve(spec, _plain(made, placement, providers), _KNOWN)
                found.append(made.replace(facts=kept) if kept else made)
        except InvalidInput as error:
            primitive.reraise_at(f"spec[{place}]", error)
    return tuple(found)


def _open_types(requested: Collection[str | None]) -> tuple[str, ...]:
    """Return the types that do for a spec that says none, beside specs that say these."""
    return tuple(kind for kind in TYPES if kind not in _ASKED_FOR or kind in requested)


def _values(spec: _Spec, types: Sequence[str], placement: bool) -> dict[str, Any]:
    """Return what a spec says, by field.

    :param types: those that do if it says none
    """
    for name in _MATCHED:
        if spec.get(name, "") is None:
            raise primitive.invalid(name, None, "text, or no such name: nothing has it as null")
    get = spec.get
    flag = primitive.parse_flag(get("live_migratable"))
    known = {*_KNOWN} - ({"live_migratable"} if flag is None else set())
    values: dict[str, Any] = {
        "vendor_id": primitive.lower(get("vendor_id")),
        "product_id": primitive.lower(get("product_id")),
        "types": _types(spec, types),
        "address": get("address"),
        "remote_managed": primitive.parse_lenient_flag(get("remote_managed")),
        "live_migratable": flag,
        "tags": {
            name: NOT_THERE if value is None else value
            for name, value in spec.items()
            if name not in known
        },
    }
    if values["address"] is not None and {*values["types"]} & {*PARTS}:
        expected = "none where functions will do that were split off others"
        raise primitive.invalid("address", values["address"], expected)
    return {**values, **(_of_placement(spec, values) if placement else {})}


def _types(spec: _Spec, types: Sequence[str]) -> Sequence[str]:
    kind, remote = spec.get("dev_type"), spec.get("remote_managed")
    if kind is not None:
        return (kind,)
    if remote is None or primitive.parse_lenient_flag(remote):
        return types
    # Nova has the tag on functions that can be split and on those that are, and on no other
    return [name for name in types if name != PCI]


def _of_placement(spec: _Spec, ids: Mapping[str, str | None]) -> dict[str, Any]:
    said, traits = spec.get("resource_class"), spec.get("traits")
    vendor_id, product_id = ids["vendor_id"], ids["product_id"]
    name = primitive.normalized_class(said) if said else None
    if name is None and vendor_id is not None and product_id is not None:
        name = custom_class(vendor_id, product_id)
    return {"resource_class": name, "traits": primitive.normalized_traits(traits or "")}


# --- writing --------------------------------------------------------------------------------------


def _as_read(
    specs: Sequence[DeviceSpec], providers: str | None
) -> list[dict[str, str | None]] | None:
    """Return specs as Nova said them, if they were read from that; else None.

    :param providers: what Placement chose, as text
    """
    placement = _is_of_placement(specs)
    said = [
        primitive.restore(_plain(spec, placement, providers), spec.facts, _KNOWN) for spec in specs
    ]
    found = [spec for place, spec in enumerate(said) if not _is_other_half(specs, said, place)]
    try:
        again = read_specs(found, placement=placement, providers=providers)
    except InvalidInput:
        return None
    return found if again == tuple(specs) else None


def _is_of_placement(specs: Sequence[DeviceSpec]) -> bool:
    return any(spec.resource_class or spec.traits for spec in specs)


def _is_other_half(specs: Sequence[DeviceSpec], said: Sequence[_Spec], place: int) -> bool:
    """Return whether one spec of Nova's was read as this one and the one before it."""
    return (
        place > 0
        and specs[place].remote_managed
        and not specs[place - 1].remote_managed
        and "remote_managed" not in said[place]
        and said[place] == said[place - 1]
    )


def _explicit(
    specs: Sequence[DeviceSpec], providers: str | None
) -> Iterator[dict[str, str | None]]:
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
        requested = {kind for place in saying for kind in specs[place].wanted_types}
        open_types = {*_open_types(requested)}
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
        _PROVIDERS: providers,
    }
    if placement and spec.resource_class == _implied(spec):
        said["resource_class"] = None
    if spec.live_migratable is not None:
        said["live_migratable"] = primitive.format_flag(spec.live_migratable)
    found = {name: value for name, value in said.items() if value is not None}
    return {
        **found,
        **{name: None if value == NOT_THERE else value for name, value in spec.tags.items()},
    }


def _implied(spec: DeviceSpec) -> str | None:
    if spec.vendor_id is None or spec.product_id is None:
        return None
    return custom_class(spec.vendor_id, spec.product_id)


def _unsaid_specs(specs: Sequence[DeviceSpec]) -> Iterator[tuple[str, str]]:
    remote = {spec.replace(facts={}) for spec in specs if spec.remote_managed}
    for spec in specs:
        if spec.class_code:
            yield "class_code", f"a class code, {spec.class_code}"
        facts = primitive.unknown_facts(spec.facts, _KNOWN)
        if facts:
            yield "facts", f"facts that are no words of Nova's: {', '.join(facts)}"
        if spec.address is not None and {*spec.wanted_types} & {*PARTS}:
            yield "", f"the address {spec.address}, of any function that was split off another too"
        tags = spec.tags.keys() & {*_KNOWN}
        if tags - ({"live_migratable"} if spec.live_migratable is None else set()):
            yield "", f"tags that mean something else: {', '.join(sorted(tags))}"
        if remote and spec.replace(remote_managed=True, facts={}) not in remote:
            yield "", "some devices that others manage, and some that must not be"
