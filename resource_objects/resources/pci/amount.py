"""Amounts of PCI devices: what is requested, and the devices that are assigned.

:func:`devices` makes a :class:`PCIAmount`. It has requests (:class:`DeviceRequest`), each for a
number of devices of any of some kinds (:class:`DeviceSpec`). An assigned amount has a
:class:`PlacedDevice` for each device.

The text form, after ``DEVICES=``, joins requests by ``/``, each ``COUNT*KIND@option...``. A KIND is
a resource class, ``VENDOR.PRODUCT``, a type, or ``address=``, ``class=``, ``tag=NAME>VALUE``,
``trait=``, joined by ``&``; alternatives are joined by ``|``. The options are the affinity by its
name, and ``requester=``, ``alias=``, ``id=``, ``providers=``::

    2*PGPU@required
    PGPU/8086.154c&type-VF@requester=port-1
    10de.2330|10de.any&trait=CUSTOM_H100@alias=gpu
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Self

from resource_objects import base, fields
from resource_objects.exceptions import InvalidInput
from resource_objects.resources import abstract, text
from resource_objects.resources.pci.device import (
    ADDRESS,
    AFFINITIES,
    CLASS_CODE,
    ID,
    LEGACY,
    MAX_DEVICES,
    MAX_NODE,
    NO_TEXTS,
    NOT_THERE,
    PCI,
    TEXTS,
    TYPE,
    TYPES,
    VF,
    Device,
    listed,
    tag_matches,
)
from resource_objects.resources.records import AmountRecord

_invalid_amount = functools.partial(InvalidInput, "amount")
_invalid_unassigned_amount = functools.partial(InvalidInput, "unassigned amount")
_invalid_text = functools.partial(InvalidInput, "text")

#: The maximum number of requests in an amount, and of alternative kinds in a request.
MAX_REQUESTS = 1024
MAX_SPECS = 256

#: The subject of errors about texts, and the options of a request by field.
_DEVICES = "PCI devices"
_OPTIONS = {"requester": "requester", "alias": "alias", "id": "request_id"}
#: Characters with a meaning in this text form, in addition to those of all text forms.
_MARKS = "@&* "


# --- requests -------------------------------------------------------------------------------------


@base.register
class DeviceSpec(base.ResourceObject, frozen=True):
    """A kind of device: a device matches if it has every property that is specified.

    ===================  ===========================================================================
    ``resource_class``   its resource class
    ``vendor_id``,       its vendor and product
    ``product_id``
    ``types``            its SR-IOV type, any of these. By default ``type-PCI`` and ``type-VF``, or
                         any type if a resource class is specified, because the operator offers
                         devices as that class
    ``class_code``       the first digits of its class code
    ``address``          its address
    ``traits``           all of these traits, of the device and not of a provider above it
    ``tags``             all of these tags, without regard to case; a list (in JSON) is contained in
                         the tag, and ``null`` (in JSON) is the absence of the tag
    ``remote_managed``   True: only remote-managed devices; else only other devices
    ``live_migratable``  True or False: only devices with the same value
    ``facts``            other properties from the caller: stored, not matched
    ===================  ===========================================================================

    >>> spec = DeviceSpec(vendor_id="10de", traits=["CUSTOM_H100"])
    >>> spec.matches(Device("0000:3b:00.0", "10de", "2330", traits=["CUSTOM_H100"]))
    True
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    resource_class: str | None = fields.resource_class(default=None)
    vendor_id: str | None = fields.field(ID, default=None)
    product_id: str | None = fields.field(ID, default=None)
    types: fields.TupleFrom[str] = fields.tuple_of(TYPE, default=())
    class_code: str = fields.field(CLASS_CODE, default="")
    address: str | None = fields.field(ADDRESS, default=None)
    traits: fields.Names = fields.traits(default=frozenset())
    tags: Mapping[str, str] = fields.field(TEXTS, default=NO_TEXTS)
    remote_managed: bool = fields.boolean(default=False)
    live_migratable: bool | None = fields.boolean(default=None)
    facts: Mapping[str, str] = fields.field(TEXTS, default=NO_TEXTS)

    def _validate(self) -> None:
        if len(set(self.types)) != len(self.types):
            raise _invalid_amount("types of a device", self.types, "each once")

    @property
    def wanted_types(self) -> tuple[str, ...]:
        """The SR-IOV types of matching devices."""
        if self.types:
            return self.types
        return (PCI, VF) if self.resource_class is None else TYPES

    def matches(self, device: Device) -> bool:
        """Return whether a device is of this kind, free or not."""
        return (
            (self.resource_class is None or self.resource_class == device.resource_class)
            and (self.vendor_id is None or self.vendor_id == device.vendor_id)
            and (self.product_id is None or self.product_id == device.product_id)
            and device.type in self.wanted_types
            and device.class_code.startswith(self.class_code)
            and (self.address is None or self.address == device.address)
            and self.traits <= device.traits
            and self.remote_managed == device.remote_managed
            and (self.live_migratable is None or self.live_migratable is device.live_migratable)
            and all(_has_tag(device.tags, name, value) for name, value in self.tags.items())
        )

    def __str__(self) -> str:
        return "&".join(self._text_items()) or "any"

    def _text_items(self) -> Iterator[str]:
        if self.resource_class is not None:
            yield self.resource_class
        if self.vendor_id is not None or self.product_id is not None:
            yield f"{self.vendor_id or 'any'}.{self.product_id or 'any'}"
        yield from self.types
        if self.class_code:
            yield f"class={self.class_code}"
        if self.address is not None:
            yield f"address={self.address}"
        yield from (f"trait={trait}" for trait in sorted(self.traits))
        yield from (f"tag={_quoted(name)}>{_quoted(value)}" for name, value in self.tags.items())
        if self.remote_managed:
            yield "remote_managed=yes"
        if self.live_migratable is not None:
            yield f"live_migratable={'yes' if self.live_migratable else 'no'}"
        yield from (f"fact={_quoted(name)}>{_quoted(value)}" for name, value in self.facts.items())


def _has_tag(tags: Mapping[str, str], name: str, requested: str) -> bool:
    value = tags.get(name)
    if value is None:
        return requested == NOT_THERE
    return value == requested or tag_matches(value, requested)


@base.register
class DeviceRequest(base.ResourceObject, frozen=True):
    """A number of devices, each of any of the alternative kinds.

    ``affinity`` is their distance to the host cells of the same request; without host cells it has
    no meaning. ``required``: at these cells. ``legacy``: there, or of unknown location.
    ``preferred``: there if possible. ``socket``: in the sockets of these cells. ``requester``,
    ``alias`` and ``request_id`` are names from the caller. ``providers`` are the uuids of the
    providers that are assigned already, one for each device, or none.

    >>> DeviceRequest([DeviceSpec(vendor_id="10de")], count=2, affinity="required").count
    2
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    specs: fields.TupleFrom[DeviceSpec] = fields.tuple_of("DeviceSpec", kw_only=False)
    count: int = fields.integer(1, MAX_DEVICES, default=1, kw_only=False)
    affinity: str = fields.choice(*AFFINITIES, default=LEGACY, kw_only=False)
    requester: str | None = fields.label(default=None)
    alias: str | None = fields.label(default=None)
    request_id: str | None = fields.label(default=None)
    providers: fields.TupleFrom[str] = fields.tuple_of(fields.LABEL, default=())

    def _validate(self) -> None:
        if not 1 <= len(self.specs) <= MAX_SPECS:
            raise _invalid_amount(
                "alternatives of a device request", len(self.specs), f"1 to {MAX_SPECS}"
            )
        addresses = {spec.address for spec in self.specs}
        if None not in addresses and len(addresses) < self.count:
            raise _invalid_amount(
                "count of a device request", self.count, f"at most {len(addresses)}, the addresses"
            )
        if self.providers and len(self.providers) != self.count:
            raise _invalid_amount(
                "providers of a device request", self.providers, f"one for each of {self.count}"
            )

    @property
    def kinds(self) -> str:
        """The text of its kinds of devices, joined by ``|``."""
        return "|".join(map(str, self.specs))

    @property
    def resource_class(self) -> str | None:
        """The resource class of all alternatives; None if they differ, or one has none."""
        classes = {spec.resource_class for spec in self.specs}
        return classes.pop() if len(classes) == 1 else None

    def matches(self, device: Device) -> bool:
        """Return whether a device is of any of the kinds."""
        return any(spec.matches(device) for spec in self.specs)

    def __str__(self) -> str:
        options = [] if self.affinity == LEGACY else [self.affinity]
        for option, name in _OPTIONS.items():
            if getattr(self, name) is not None:
                options.append(f"{option}={_quoted(getattr(self, name))}")
        if self.providers:
            options.append(f"providers={'+'.join(map(_quoted, self.providers))}")
        times = f"{self.count}*" if self.count != 1 else ""
        return "@".join((f"{times}{self.kinds}", *options))


# --- amounts --------------------------------------------------------------------------------------


@base.register
class PlacedDevice(base.ResourceObject, frozen=True):
    """An assigned device: the number of its request in the amount, its address and its class.

    ``parts`` are the functions split off it, which its allocation excludes.

    >>> PlacedDevice(0, "0000:3b:00.0", "PGPU").units
    ('0000:3b:00.0',)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    request: int = fields.integer(0, MAX_REQUESTS - 1, kw_only=False)
    address: str = fields.field(ADDRESS, kw_only=False)
    resource_class: str = fields.resource_class(kw_only=False)
    numa_node: int | None = fields.integer(0, MAX_NODE, default=None)
    parts: fields.TupleFrom[str] = fields.tuple_of(ADDRESS, default=())

    @property
    def units(self) -> tuple[str, ...]:
        """The units of its allocation: itself, then its parts."""
        return (self.address, *self.parts)


@base.register
class PCIAmount(abstract.Amount):
    """Device requests; assigned, also the devices that meet them.

    It adds nothing to counts: ``PGPU=2`` and a request of 2 devices of that class together
    request 2 devices.

    ==============  ================================================================================
    ``requests``    the requests, to be met at once
    ``placed``      the devices of an assigned amount, by request and address; else empty
    ``gives_back``  whether the devices are released: the negative of an assigned amount
    ==============  ================================================================================

    >>> from resource_objects.resources.pci import devices
    >>> amount = devices("PGPU", 2, affinity="required")
    >>> print(amount, dict(amount.placed_counts), amount.is_assigned)
    2*PGPU@required {'PGPU': 2} False
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    requests: fields.TupleFrom[DeviceRequest] = fields.tuple_of("DeviceRequest", kw_only=False)
    placed: fields.TupleFrom[PlacedDevice] = fields.tuple_of("PlacedDevice", default=())
    gives_back: bool = fields.boolean(default=False)

    def _validate(self) -> None:
        if not 1 <= len(self.requests) <= MAX_REQUESTS:
            raise _invalid_amount("device requests", len(self.requests), f"1 to {MAX_REQUESTS}")
        if not self.placed:
            if self.gives_back:
                raise _unassigned_release()
            return
        counts = Counter(device.request for device in self.placed)
        requested = {number: request.count for number, request in enumerate(self.requests)}
        if counts != requested:
            raise _invalid_amount("devices by request", dict(counts), f"as requested: {requested}")
        units = Counter(unit for device in self.placed for unit in device.units)
        repeated = sorted(unit for unit, count in units.items() if count > 1)
        if repeated:
            raise _invalid_amount("devices", repeated, "each once")
        order = tuple(sorted(self.placed, key=lambda device: (device.request, device.address)))
        if order != self.placed:
            self._store("placed", order)

    # --- figures ---

    @property
    def count(self) -> int:
        """The number of devices of all requests."""
        return sum(request.count for request in self.requests)

    item_count = count

    @property
    def is_zero(self) -> bool:
        """False: it requests one device at least."""
        return False

    @property
    def is_negative(self) -> bool:
        """Whether the devices are released."""
        return self.gives_back

    @property
    def is_placed(self) -> bool:
        """True: it is of a placed resource."""
        return True

    @property
    def is_assigned(self) -> bool:
        """Whether it has the devices."""
        return bool(self.placed)

    @property
    def has_affinity(self) -> bool:
        """Whether a request has another affinity than ``legacy``, the default."""
        return any(request.affinity != LEGACY for request in self.requests)

    @functools.cached_property
    def has_addresses(self) -> bool:
        """Whether a request names the address of a device."""
        return any(spec.address for request in self.requests for spec in request.specs)

    @functools.cached_property  # read several times in each decision
    def placed_counts(self) -> Mapping[str, int]:
        """The number of devices by class, as far as the requests specify the class."""
        if self.placed:
            return fields.FrozenDict(Counter(device.resource_class for device in self.placed))
        counts: Counter[str] = Counter()
        for request in self.requests:
            if request.resource_class is not None:
                counts[request.resource_class] += request.count
        return fields.FrozenDict(counts)

    @property
    def parts_usage(self) -> Mapping[str, int]:
        """The number of devices by class: all of them are of parts."""
        return self.placed_counts

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return its counts; the inventory knows the parts that have the devices."""
        sign = -1 if self.gives_back else 1
        return tuple(AmountRecord(name, sign * count) for name, count in self.placed_counts.items())

    # --- assigned devices ---

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the assigned devices, request by request.

        :raises InvalidInput: if it is not assigned
        """
        if not self.placed:
            raise _invalid_unassigned_amount("devices", self, "assigned ones, as fit() returns")
        return tuple(device.address for device in self.placed)

    def of(self, request: int | str) -> tuple[str, ...]:
        """Return the addresses of a request: of its number, or its requester, alias or id."""
        numbers = {
            number
            for number, r in enumerate(self.requests)
            if request is not None and request in (number, r.requester, r.alias, r.request_id)
        }
        if not numbers:
            raise InvalidInput("value", "request", request, "the number or name of a request")
        pairs = zip(self.addresses, self.placed, strict=True)
        return tuple(address for address, device in pairs if device.request in numbers)

    def with_only(self, addresses: Collection[str]) -> PCIAmount:
        """Return an assigned amount of some of its devices, as if only these were requested."""
        if len(addresses) == len(self.placed):
            return self
        requests: list[DeviceRequest] = []
        placed: list[PlacedDevice] = []
        for number, request in enumerate(self.requests):
            selected = [d for d in self.placed if d.request == number and d.address in addresses]
            if selected:
                placed += [device.replace(request=len(requests)) for device in selected]
                providers = request.providers if len(selected) == request.count else ()
                requests.append(request.replace(count=len(selected), providers=providers))
        return PCIAmount(requests, placed=placed, gives_back=self.gives_back)

    def unassigned(self) -> Self:
        """Return the requests, without devices."""
        return self.replace(placed=(), gives_back=False)

    # --- arithmetic and text ---

    def __neg__(self) -> Self:
        if not self.placed:
            raise _unassigned_release()
        return self._evolve(gives_back=not self.gives_back)

    def __add__(self, other: object) -> PCIAmount:
        """Return the requests of both amounts, neither of which may be assigned."""
        if not isinstance(other, PCIAmount):
            return NotImplemented
        if self.placed or other.placed:
            raise _invalid_amount("devices", other, "amounts that are not assigned, to add")
        return PCIAmount((*self.requests, *other.requests))

    def __repr__(self) -> str:
        return f"<PCIAmount {self}>" if self.placed else f"PCIAmount.parse({str(self)!r})"

    def __str__(self) -> str:
        requests = "/".join(map(str, self.requests))
        if not self.placed:
            return requests
        return f"{'-' if self.gives_back else ''}{requests}@on={'+'.join(self.addresses)}"

    @classmethod
    def parse(cls, text_form: str) -> PCIAmount:
        """Return the amount of a text form: the inverse of :func:`str`, if it is not assigned.

        :raises InvalidInput: if it does not parse; if the requests are contradictory

        >>> PCIAmount.parse("2*PGPU@required").requests[0].affinity
        'required'
        """
        if not isinstance(text_form, str) or len(text_form) > text.MAX_LENGTH:
            raise _invalid_text(_DEVICES, text_form, "text such as 2*PGPU@required")
        return cls(map(_parse_request, text_form.split("/")))


def _unassigned_release() -> InvalidInput:
    return _invalid_unassigned_amount(
        "devices", "ones that are not assigned", "assigned ones, to release them"
    )


def require_devices(value: Any) -> PCIAmount:
    """Return an amount of devices unchanged.

    :raises InvalidInput: for an amount of another kind
    """
    if not isinstance(value, PCIAmount):
        raise InvalidInput("kind of amount", "amount", value, "a PCIAmount")
    return value


def devices(
    kind: str | DeviceSpec | Iterable[str | DeviceSpec],
    count: int = 1,
    *,
    affinity: str = LEGACY,
    requester: str | None = None,
    alias: str | None = None,
    request_id: str | None = None,
    **properties: Any,
) -> PCIAmount:
    """Return the amount of a number of devices of a kind.

    Amounts can be added: ``devices(...) + devices(...)``.

    :param kind: a resource class, ``"10de:2330"`` (``"10de:*"`` for all of a vendor), a
        :class:`DeviceSpec`, or several of them as alternatives
    :param count: the number of devices
    :param affinity: ``legacy``, ``preferred``, ``required`` or ``socket``: see
        :class:`DeviceRequest`
    :param requester: the name of the requester; ``alias`` and ``request_id`` are names too
    :param properties: further properties of each kind, as in :class:`DeviceSpec`: ``traits``,
        ``tags``, ``types``, ``address`` ...
    :raises InvalidInput: for an invalid count; without a kind; for a kind that cannot be read; for
        a property that the kind has already

    >>> print(devices("PGPU", 2, affinity="required") + devices("8086:154c", types=["type-VF"]))
    2*PGPU@required/8086.154c&type-VF
    >>> devices("PGPU", 0)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: count of devices: got 0, expected an integer from ...
    """
    if type(count) is not int or not 1 <= count <= MAX_DEVICES:
        raise _invalid_amount("count of devices", count, f"an integer from 1 to {MAX_DEVICES}")
    kinds = [kind] if isinstance(kind, str | DeviceSpec) else listed(kind)
    if not isinstance(kinds, list):
        raise _invalid_amount("kind of devices", kind, "a resource class such as PGPU")
    request = DeviceRequest(
        [_spec_of(item, properties) for item in kinds],
        count,
        affinity,
        requester=requester,
        alias=alias,
        request_id=request_id,
    )
    return PCIAmount([request])


def _spec_of(kind: object, properties: Mapping[str, Any]) -> DeviceSpec:
    if isinstance(kind, DeviceSpec):
        return kind.replace(**properties) if properties else kind
    if not isinstance(kind, str):
        raise _invalid_amount("kind of devices", kind, "a resource class such as PGPU")
    vendor, colon, product = kind.partition(":")
    values: dict[str, Any] = {"resource_class": kind}
    if colon:
        ids = {"vendor_id": vendor, "product_id": product}
        values = {name: id_ for name, id_ in ids.items() if id_ != "*"}
    for name in values.keys() & properties.keys():
        raise InvalidInput(
            "repetition", f"{name} of devices", properties[name], f"none: {kind} specifies it"
        )
    try:
        spec = DeviceSpec(**values)
    except InvalidInput as error:
        if not error.is_about("field"):
            raise
        raise _invalid_text(
            "kind of devices", kind, "VENDOR:PRODUCT in hexadecimal digits, such as 10de:2330"
        ) from error
    return spec.replace(**properties) if properties else spec


# --- text -----------------------------------------------------------------------------------------


def _parse_request(text_form: str) -> DeviceRequest:
    head, *options = text_form.split("@")
    count = 1
    if head[:1].isdigit() and "*" in head:
        number, _, head = head.rpartition("*")
        count = text.integer(number, f"{_DEVICES}, count")
    specs = [_parse_spec(kind) for kind in head.split("|")]
    values: dict[str, Any] = {}
    for option in options:
        name, equals, value = option.partition("=")
        parsed: str | list[str] = option
        if not equals and option in AFFINITIES:
            name = "affinity"
        elif equals and name == "providers":
            parsed = [_unquoted(provider) for provider in value.split("+") if provider]
        elif equals and name in _OPTIONS:
            name, parsed = _OPTIONS[name], _unquoted(value)
        else:
            names = (*AFFINITIES, *(f"{option}=" for option in (*_OPTIONS, "providers")))
            raise _invalid_text(f"{_DEVICES}, option", option, f"one of {', '.join(names)}")
        _set_once(values, name, parsed, f"{_DEVICES}, option")
    return DeviceRequest(specs, count, **values)


def _parse_spec(text_form: str) -> DeviceSpec:
    values: dict[str, Any] = {"types": [], "traits": [], "tags": {}, "facts": {}}
    for item in () if text_form == "any" else text_form.split("&"):
        name, equals, value = item.partition("=")
        if equals and name == "trait":
            values["traits"].append(value)
        elif equals and name in ("tag", "fact"):
            key, _, content = value.partition(">")
            values[f"{name}s"][_unquoted(key)] = _unquoted(content)
        elif item in TYPES:
            values["types"].append(item)
        else:
            for key, single in _parse_single(item, name, equals, value).items():
                _set_once(values, key, single, f"{_DEVICES}, kind")
    return DeviceSpec(**values)


def _parse_single(item: str, name: str, equals: str, value: str) -> Mapping[str, object]:
    """Return the fields of an item that a kind has once."""
    if equals and name in ("class", "address"):
        return {"class_code" if name == "class" else name: value}
    if equals and name in ("remote_managed", "live_migratable"):
        return {name: text.flag(value, f"{_DEVICES}, {name}")}
    vendor, dot, product = item.partition(".")
    if dot:
        ids = {"vendor_id": vendor, "product_id": product}
        return {key: id_ for key, id_ in ids.items() if id_ not in ("any", "*")}
    if equals or not item:
        expected = "a class, VENDOR.PRODUCT, a type, or address=, tag=, trait= ..."
        raise _invalid_text(f"{_DEVICES}, kind", item, expected)
    return {"resource_class": item}


def _set_once(values: dict[str, Any], name: str, value: object, subject: str) -> None:
    if name in values:
        raise InvalidInput("repetition", subject, value, f"{name} once")
    values[name] = value


def _quoted(name: str) -> str:
    return text.quoted(name, _MARKS)


def _unquoted(text_form: str) -> str:
    return text.unquoted(text_form, f"{_DEVICES}, name")
