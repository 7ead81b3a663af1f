"""``instance_extra.pci_requests`` of Nova: the devices that a guest requests, read and written.

The list of dicts of the column is read, or objects ``InstancePCIRequests`` with requests of 1.0 to
1.4. The list is written, or the newest object. Defaults of Nova's pools become explicit, so the
same devices match here.

======================================  ===========================================================
Nova                                    here
======================================  ===========================================================
``alias_name``, ``requester_id``,       ``alias``, ``requester``, ``request_id``
``request_id``
``numa_policy``                         ``affinity``; null is ``legacy``, and ``legacy`` of a port
                                        (a request without an alias) is written as null
``spec``, a list of dicts               ``specs``: alternatives
``dev_type``                            ``types``. Absent: ``type-PCI`` and ``type-VF``, and
                                        ``type-PF`` or ``vdpa`` if another spec requests it
``remote_managed``                      the same. No: not ``type-PCI``, which Nova does not tag.
                                        Absent: no; or two alternatives, if another spec requests it
``live_migratable``                     the same; text other than ``true`` and ``false`` is a tag,
                                        which no device has
``vendor_id``, ``product_id``           the same in lower case
``resource_class``, ``traits``          facts, as Nova's pools do not match them. With
                                        ``placement=True`` they match as in Placement; the default
                                        class is that of the ids
``rp_uuids`` of the first spec          ``providers``; of a port, which never has any, a fact
``address``                             the same, of devices that are not parts of others
``capability_type``                     a fact: no device has it in Nova
other names                             a tag that a device must have; null: must not have
``is_new``                              not read: it has no meaning any more
======================================  ===========================================================

Requests that are read and written again are unchanged: ``facts`` of a spec store the text that no
field has. Absent keys of a request are written, and ``is_new`` is false. Nova has no field for
``class_code``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova.primitive import (
    REQUEST,
    REQUESTS,
    Document,
    NovaObject,
    Texts,
    format_flag,
    inexpressible,
    invalid,
    lower,
    normalized_class,
    normalized_traits,
    optional_names,
    parse_flag,
    parse_lenient_flag,
    preserve,
    read_list,
    reject_unknown,
    require_int,
    require_label,
    require_list,
    require_texts,
    reraise_at,
    restore,
    unknown_facts,
    wrap,
)
from resource_objects.names import uuid_text
from resource_objects.resources.pci.amount import (
    DeviceRequest,
    DeviceSpec,
    PCIAmount,
    require_devices,
)
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
    class_of_ids,
)

__all__ = ["dump_pci_requests", "load_pci_requests"]

_ROOT: Final = "pci_requests"
_FIELDS: Final = frozenset(
    {"count", "spec", "alias_name", "is_new", "numa_policy", "request_id", "requester_id"}
)
#: The key with the providers that Placement chose, separated by commas.
_PROVIDERS: Final = "rp_uuids"
#: Types that match only requests with a spec that names them.
_EXPLICIT_TYPES: Final = (PF, VDPA)
#: Keys that Nova's pools match and that are fields here; null matches no device.
_MATCHED: Final = (
    "vendor_id", "product_id", "dev_type", "address", "remote_managed", "live_migratable",
)  # fmt: skip
#: Keys that are not tags.
_KNOWN: Final = (*_MATCHED, "resource_class", "traits", "capability_type", _PROVIDERS)


# --- reading --------------------------------------------------------------------------------------


def load_pci_requests(
    source: Document | Iterable[Mapping[str, Any] | NovaObject] | None,
    *,
    placement: bool = False,
) -> PCIAmount | None:
    """Return the devices that a guest requests, None if it requests none.

    :param source: JSON text as in ``instance_extra.pci_requests``, the value of that text, an
        object ``InstancePCIRequests`` or several ``InstancePCIRequest``
    :param placement: whether aliases match resource classes and traits, as with
        ``[filter_scheduler] pci_in_placement``
    :raises InvalidInput: if it is neither a list of requests nor such an object of a known version

    Cost: 70 microseconds for each request.

    >>> column = '''[{"count": 2, "spec": [{"vendor_id": "8086", "product_id": "154c"}],
    ...     "alias_name": "nic", "numa_policy": "required", "request_id": "r1"}]'''
    >>> amount = load_pci_requests(column)
    >>> amount.requests[0].affinity, amount.requests[0].specs[0].types
    ('required', ('type-PCI', 'type-VF'))
    """
    requests = read_list(
        source,
        _ROOT,
        (REQUESTS, "requests", {"instance_uuid", "requests"}),
        REQUEST,
        lambda data, _: _read_request(data, placement),
    )
    try:
        return PCIAmount(requests) if requests else None
    except InvalidInput as error:
        reraise_at(_ROOT, error)


def _read_request(data: Mapping[Any, Any], placement: bool) -> DeviceRequest:
    reject_unknown(data, _FIELDS)
    alias, requester, request_id = (
        require_label(data.get(name), name) for name in ("alias_name", "requester_id", "request_id")
    )
    specs = [
        require_texts(spec, f"spec[{index}]")
        for index, spec in enumerate(require_list(data.get("spec"), "spec"))
    ]
    count = require_int(data.get("count"), "count", 1, MAX_DEVICES)
    providers = specs[0].get(_PROVIDERS) or None if specs and alias is not None else None
    read = read_specs(specs, placement=placement and alias is not None, providers=providers)
    policy = data.get("numa_policy")
    if policy is not None and policy not in AFFINITIES:
        raise invalid("numa_policy", policy, f"one of {', '.join(AFFINITIES)}, or null")
    return DeviceRequest(
        read,
        count,
        LEGACY if policy is None else policy,
        alias=alias,
        requester=requester,
        request_id=request_id,
        providers=providers.split(",") if providers else (),
    )


def read_specs(
    specs: Sequence[Texts], *, placement: bool, providers: str | None
) -> tuple[DeviceSpec, ...]:
    """Return the alternatives of the specs of one request.

    :param placement: whether classes and traits match; otherwise they are facts
    :param providers: the providers that Placement chose, as text; they belong to the request
    :raises InvalidInput: for a spec that no request has
    """
    types = _open_types({spec.get("dev_type") for spec in specs})
    is_remote = any(parse_lenient_flag(spec.get("remote_managed")) for spec in specs)
    alternatives: list[DeviceSpec] = []
    for index, spec in enumerate(specs):
        try:
            values = _spec_fields(spec, types, placement)
            has_both = is_remote and "remote_managed" not in spec
            for remote in (False, True) if has_both else (values["remote_managed"],):
                alternative = DeviceSpec(**{**values, "remote_managed": remote})
                facts = preserve(spec, _written_spec(alternative, placement, providers), _KNOWN)
                alternatives.append(alternative.replace(facts=facts) if facts else alternative)
        except InvalidInput as error:
            reraise_at(f"spec[{index}]", error)
    return tuple(alternatives)


def _open_types(requested: Collection[str | None]) -> tuple[str, ...]:
    """Return the types of a spec without ``dev_type``, next to specs with the requested types."""
    return tuple(kind for kind in TYPES if kind not in _EXPLICIT_TYPES or kind in requested)


def _spec_fields(spec: Texts, types: Sequence[str], placement: bool) -> dict[str, Any]:
    """Return the fields of a spec; ``types`` are the default."""
    for name in _MATCHED:
        if spec.get(name, "") is None:
            raise invalid(name, None, "text, or an absent name: no device has null")
    get = spec.get
    remote, kind = get("remote_managed"), get("dev_type")
    if kind is not None:
        types = (kind,)
    elif remote is not None and not parse_lenient_flag(remote):
        # Nova tags physical functions and their parts with it, and no other device
        types = [name for name in types if name != PCI]
    flag = parse_flag(get("live_migratable"))
    keys = {*_KNOWN} - ({"live_migratable"} if flag is None else set())
    values: dict[str, Any] = {
        "vendor_id": lower(get("vendor_id")),
        "product_id": lower(get("product_id")),
        "types": types,
        "address": get("address"),
        "remote_managed": parse_lenient_flag(remote),
        "live_migratable": flag,
        "tags": {n: NOT_THERE if spec[n] is None else spec[n] for n in spec if n not in keys},
    }
    if values["address"] is not None and {*types} & {*PARTS}:
        expected = "none for types that include parts of devices"
        raise invalid("address", values["address"], expected)
    if placement:
        text = get("resource_class")
        values["resource_class"] = normalized_class(text) if text else class_of_ids(values)
        values["traits"] = normalized_traits(get("traits") or "")
    return values


# --- writing --------------------------------------------------------------------------------------


def dump_pci_requests(
    amount: PCIAmount | None,
    *,
    versioned: bool = False,
    instance_uuid: str | None = None,
    leave_out: Collection[str] = (),
) -> str:
    """Return the devices that a guest requests as text of ``instance_extra.pci_requests``.

    Of an assigned amount, the request is written: the devices are in ``pci_devices``.

    :param versioned: whether to write the object that Nova sends, or the list of the column
    :param instance_uuid: the uuid of the guest, which such an object has
    :param leave_out: values to omit, as Nova has no field for it: ``class_code``, ``facts``
        of other names than Nova's
    :raises CannotDowngrade: for a value that Nova cannot express
    :raises InvalidInput: if it is not such an amount; for another name in ``leave_out``; for an
        invalid uuid

    >>> from resource_objects.resources.pci import devices
    >>> print(dump_pci_requests(devices("10de:2330", alias="gpu", types=["type-PCI"])))
    [{"count": 1, "spec": [{"vendor_id": "10de", "product_id": "2330", "dev_type": "type-PCI"}], ...
    >>> dump_pci_requests(devices("10de:2330", class_code="0302"))
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: InstancePCIRequest cannot be expressed in ...
    """
    omitted = optional_names(leave_out, ("class_code", "facts"))
    documents = []
    for index, request in enumerate([] if amount is None else require_devices(amount).requests):
        providers = ",".join(request.providers) or None
        specs: list[Any] | None = _specs_as_read(request.specs, providers)
        reasons = [] if specs else [*_inexpressible_specs(request.specs)]
        if request.providers and request.alias is None:
            reasons.insert(0, ("", "providers, and no alias: Nova has none for ports"))
        for name, reason in reasons:
            if name not in omitted:
                raise inexpressible(REQUEST, f"request {index} has {reason}")
        is_default = request.alias is None and request.affinity == LEGACY
        documents.append(
            {
                "count": request.count,
                "spec": specs or _explicit_specs(request.specs, providers),
                "alias_name": request.alias,
                "is_new": False,
                "numa_policy": None if is_default else request.affinity,
                "request_id": request.request_id,
                "requester_id": request.requester,
            }
        )
    if not versioned:
        return json.dumps(documents)
    data: dict[str, Any] = {"requests": [wrap(REQUEST, document) for document in documents]}
    if instance_uuid is not None:
        data["instance_uuid"] = uuid_text(instance_uuid)
    return json.dumps(wrap(REQUESTS, data))


def _specs_as_read(
    specs: Sequence[DeviceSpec], providers: str | None
) -> list[dict[str, str | None]] | None:
    """Return the specs of Nova from which alternatives were read, None if there are none."""
    placement = _uses_placement(specs)
    texts = [
        restore(_written_spec(spec, placement, providers), spec.facts, _KNOWN) for spec in specs
    ]
    documents = [
        text
        for index, text in enumerate(texts)
        if not (
            # the second alternative of a spec without remote_managed
            index > 0
            and specs[index].remote_managed
            and not specs[index - 1].remote_managed
            and "remote_managed" not in text
            and text == texts[index - 1]
        )
    ]
    try:
        again = read_specs(documents, placement=placement, providers=providers)
    except InvalidInput:
        return None
    return documents if again == tuple(specs) else None


def _uses_placement(specs: Sequence[DeviceSpec]) -> bool:
    return any(spec.resource_class or spec.traits for spec in specs)


def _explicit_specs(
    specs: Sequence[DeviceSpec], providers: str | None
) -> list[dict[str, str | None]]:
    """Return specs of Nova that do not depend on wrong defaults.

    Naming a type in one spec opens it for specs that name none, so more of them may have to name
    theirs: repeated until nothing changes.
    """
    explicit: set[int] = set()
    while True:
        requested = {kind for index in explicit for kind in specs[index].wanted_types}
        open_types = {*_open_types(requested)}
        wrong = {n for n, spec in enumerate(specs) if {*spec.wanted_types} != open_types}
        if wrong <= explicit:
            break
        explicit |= wrong
    placement = _uses_placement(specs)
    return [
        _written_spec(spec.replace(types=types), placement, providers)
        for index, spec in enumerate(specs)
        for types in ([(kind,) for kind in spec.wanted_types] if index in explicit else [()])
    ]


def _written_spec(
    spec: DeviceSpec, placement: bool, providers: str | None
) -> dict[str, str | None]:
    """Return a spec as Nova writes it today."""
    texts: dict[str, str | None] = {
        "vendor_id": spec.vendor_id,
        "product_id": spec.product_id,
        "dev_type": spec.types[0] if len(spec.types) == 1 else None,
        "address": spec.address,
        "remote_managed": "True" if spec.remote_managed else None,
        "resource_class": spec.resource_class,
        "traits": ",".join(sorted(spec.traits)) or None,
        _PROVIDERS: providers,
    }
    if placement and spec.resource_class == class_of_ids(texts):
        texts["resource_class"] = None
    if spec.live_migratable is not None:
        texts["live_migratable"] = format_flag(spec.live_migratable)
    texts = {name: text for name, text in texts.items() if text is not None}
    tags = {name: None if value == NOT_THERE else value for name, value in spec.tags.items()}
    return {**texts, **tags}


def _inexpressible_specs(specs: Sequence[DeviceSpec]) -> Iterator[tuple[str, str]]:
    """Yield the values that Nova cannot express: the name that allows to omit one, and why."""
    remote = {spec.replace(facts={}) for spec in specs if spec.remote_managed}
    for spec in specs:
        if spec.class_code:
            yield "class_code", f"a class code, {spec.class_code}"
        facts = unknown_facts(spec.facts, _KNOWN)
        if facts:
            yield "facts", f"facts that Nova does not have: {', '.join(facts)}"
        if spec.address is not None and {*spec.wanted_types} & {*PARTS}:
            yield "", f"the address {spec.address}, and types that include parts of devices"
        tags = spec.tags.keys() & {*_KNOWN}
        tags -= {"live_migratable"} if spec.live_migratable is None else set()
        if tags:
            yield "", f"tags with another meaning in Nova: {', '.join(sorted(tags))}"
        if remote and spec.replace(remote_managed=True, facts={}) not in remote:
            yield "", "some devices that are remotely managed, and some that must not be"
