"""``instance_extra.pci_requests``: the devices that a guest asks for, read and written.

Read are the list of dicts that the column holds and the objects that Nova sends,
``InstancePCIRequests`` with requests of 1.0 to 1.4; both are written. What Nova leaves to the rules
of its pools is said here, so that the rules of this library answer as Nova's do:

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

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from resource_objects.exceptions import CannotDowngrade, InvalidInput, InvalidPrimitive
from resource_objects.interop.nova import _pci_specs, _pci_words, _primitive
from resource_objects.interop.nova._versions import REQUEST, REQUESTS, request_versions
from resource_objects.names import uuid_text
from resource_objects.resources.pci import words
from resource_objects.resources.pci.amount import PCIAmount, given
from resource_objects.resources.pci.wish import DeviceRequest

__all__ = ["dump_pci_requests", "load_pci_requests"]

_ROOT: Final = "pci_requests"
_FIELDS: Final = frozenset(
    {"count", "spec", "alias_name", "is_new", "numa_policy", "request_id", "requester_id"}
)
#: What may be left unsaid, for no version or not the one that is asked for has a word for it.
_OPTIONAL: Final = (*_pci_specs.OPTIONAL, "request_id", "affinity", "requester")
#: First version of a request that says each.
_ID, _POLICY, _REQUESTER, _SOCKET = 1, 2, 3, 4
_NEWEST: Final = 4


# --- reading --------------------------------------------------------------------------------------


def load_pci_requests(
    source: str | bytes | Mapping[str, Any] | Iterable[Mapping[str, Any]] | None,
    *,
    placement: bool = False,
) -> PCIAmount | None:
    """Return the devices that a guest asks for, None if it asks for none.

    :param source: JSON text as in ``instance_extra.pci_requests``, or what it stands for
    :param placement: whether aliases match resource classes and traits, as with
        ``[filter_scheduler] pci_in_placement``
    :raises InvalidPrimitive: if it is neither a list of requests nor such an object, in any version

    Cost: 70 microseconds for each request.

    >>> column = '''[{"count": 2, "spec": [{"vendor_id": "8086", "product_id": "154c"}],
    ...     "alias_name": "nic", "numa_policy": "required", "request_id": "r1"}]'''
    >>> asked = load_pci_requests(column)
    >>> asked.requests[0].affinity, asked.requests[0].specs[0].types
    ('required', ('type-PCI', 'type-VF'))
    """
    document = _primitive.parsed(source, _ROOT)
    if document is None:
        return None
    is_versioned = isinstance(document, Mapping)
    found = []
    for place, one in enumerate(_requests_of(document) if is_versioned else _listed(document)):
        try:
            data = _primitive.opened(one, "", REQUEST)[0] if is_versioned else one
            found.append(_request(_primitive.mapping(data, ""), placement))
        except InvalidInput as error:
            _primitive.at(f"{_ROOT}[{place}]", error)
    try:
        return PCIAmount(found) if found else None
    except InvalidInput as error:
        _primitive.at(_ROOT, error)


def _listed(document: object) -> Iterable[Any]:
    return _primitive.sequence(words.listed(document), _ROOT)


def _requests_of(document: Any) -> Iterable[Any]:
    data = _primitive.opened(document, _ROOT, REQUESTS)[0]
    _primitive.only(data, {"instance_uuid", "requests"}, f"{_ROOT}.")
    return _primitive.sequence(data.get("requests"), f"{_ROOT}.requests")


def _request(data: Mapping[Any, Any], placement: bool) -> DeviceRequest:
    _primitive.only(data, _FIELDS)
    names = {
        name: _pci_words.label(data.get(name), name)
        for name in ("alias_name", "requester_id", "request_id")
    }
    specs = [
        _pci_words.texts(spec, f"spec[{place}]")
        for place, spec in enumerate(_primitive.sequence(data.get("spec"), "spec"))
    ]
    alias = names["alias_name"]
    count = _primitive.number(data.get("count"), "count", 1, words.MAX_DEVICES)
    chosen = specs[0].get(_pci_specs.PROVIDERS) if specs and alias is not None else None
    chosen = chosen or None
    return DeviceRequest(
        _pci_specs.read(specs, placement=placement and alias is not None, providers=chosen),
        count,
        _affinity(data.get("numa_policy")),
        alias=alias,
        requester=names["requester_id"],
        request_id=names["request_id"],
        providers=chosen.split(",") if chosen else (),
    )


def _affinity(policy: object) -> str:
    if policy is None:
        return words.LEGACY
    if isinstance(policy, str) and policy in words.AFFINITIES:
        return policy
    raise InvalidPrimitive("numa_policy", policy, f"one of {', '.join(words.AFFINITIES)}, or null")


# --- writing --------------------------------------------------------------------------------------


def dump_pci_requests(
    amount: PCIAmount | None,
    version: str | Mapping[str, str] | None = None,
    *,
    instance_uuid: str | None = None,
    leave_out: Collection[str] = (),
) -> str:
    """Return what a guest asks for as ``instance_extra.pci_requests`` has it.

    Of an assigned amount, what was asked for: which devices it has is in ``pci_devices``.

    :param version: of ``InstancePCIRequest``, such as ``"1.4"``, or what a receiver reads, ``{name:
        version}``: then as the object that Nova sends. None: as the list that the column holds
    :param instance_uuid: the uuid of the guest, which such an object has
    :param leave_out: what may be left unsaid where there is no word for it: ``class_code``,
        ``facts`` that are not Nova's; of old versions ``request_id``, ``affinity``, ``requester``
    :raises CannotDowngrade: if it cannot be said
    :raises UnsupportedVersion: if there is no such version
    :raises WrongAmountKind: if it is no such amount
    :raises InvalidField: if something else is to be left out
    :raises InvalidName: for a uuid that is none

    >>> from resource_objects.resources.pci.build import devices
    >>> print(dump_pci_requests(devices("10de:2330", alias="gpu", types=["type-PCI"])))
    [{"count": 1, "spec": [{"vendor_id": "10de", "product_id": "2330", "dev_type": "type-PCI"}], ...
    >>> dump_pci_requests(devices("10de:2330", affinity="socket"), "1.3")
    Traceback (most recent call last):
    resource_objects.exceptions.CannotDowngrade: InstancePCIRequest cannot be said in version 1...
    """
    versions = None if version is None else request_versions(version)
    minor = _NEWEST if versions is None else versions[REQUEST]
    allowed = _primitive.left_out(leave_out, _OPTIONAL)
    found = []
    for place, request in enumerate([] if amount is None else given(amount).requests):
        chosen = ",".join(request.providers) or None
        specs = _pci_specs.as_read(request.specs, chosen)
        reasons = [*_unsaid(request, minor), *([] if specs else _pci_specs.unsaid(request.specs))]
        for name, reason in reasons:
            if name not in allowed:
                raise CannotDowngrade(REQUEST, f"1.{minor}", f"request {place} has {reason}")
        said = specs or [*_pci_specs.explicit(request.specs, chosen)]
        found.append(_written(request, said, minor))
    if versions is None:
        return _primitive.written(found)
    data: dict[str, Any] = {
        "requests": [_primitive.enveloped(REQUEST, minor, one) for one in found]
    }
    if instance_uuid is not None:
        data["instance_uuid"] = uuid_text(instance_uuid)
    return _primitive.written(_primitive.enveloped(REQUESTS, versions[REQUESTS], data))


def _unsaid(request: DeviceRequest, minor: int) -> Iterator[tuple[str, str]]:
    """Yield what there is no word for, and why."""
    if minor < _ID and request.request_id is not None:
        yield "request_id", f"an id, {request.request_id}"
    if minor < _REQUESTER and request.requester is not None:
        yield "requester", f"a requester, {request.requester}"
    least = {words.LEGACY: 0, words.SOCKET: _SOCKET}.get(request.affinity, _POLICY)
    if minor < least:
        yield "affinity", f"the affinity {request.affinity}"
    if request.providers and request.alias is None:
        yield "", "providers, and no alias: Nova has none for ports"


def _written(request: DeviceRequest, specs: list[Any], minor: int) -> dict[str, Any]:
    is_default = request.alias is None and request.affinity == words.LEGACY
    said: dict[str, Any] = {
        "count": request.count,
        "spec": specs,
        "alias_name": request.alias,
        "is_new": False,
    }
    if minor >= _POLICY and not (request.affinity == words.SOCKET and minor < _SOCKET):
        said["numa_policy"] = None if is_default else request.affinity
    if minor >= _ID:
        said["request_id"] = request.request_id
    if minor >= _REQUESTER:
        said["requester_id"] = request.requester
    return said
