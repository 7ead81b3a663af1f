"""What is asked of PCI devices, and which they are: the amount of the kind.

:func:`devices` makes a :class:`PCIAmount` from plain words. It has requests
(:class:`DeviceRequest`): so many devices of any of some kinds (:class:`DeviceSpec`); assigned, a
:class:`PlacedDevice` for each device that is taken.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Self

from resource_objects import base, fields
from resource_objects.exceptions import InvalidInput
from resource_objects.resources import abstract
from resource_objects.resources.pci import device, text
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
    tag_matches,
)
from resource_objects.resources.records import AmountRecord

_invalid_amount = functools.partial(InvalidInput, "amount")
_invalid_unassigned_amount = functools.partial(InvalidInput, "unassigned amount")

#: Nobody asks for more kinds of devices at once.
MAX_REQUESTS = 1024


@base.register
class PlacedDevice(base.ResourceObject, frozen=True):
    """A device that is taken: for which request (its place in the amount), and as what.

    ``parts`` are the functions split off it, which nobody else can have meanwhile.

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
        """Everything that nobody else can have: itself, then its parts."""
        return (self.address, *self.parts)


@base.register
class PCIAmount(abstract.Amount):
    """Device requests; assigned, also the devices that meet them, by address.

    It locates and adds nothing (D1): ``PGPU=2`` and a request of 2 devices of that class ask for 2.

    ==============  ================================================================================
    ``requests``    what is asked for, all of it at once
    ``placed``      assigned: the devices, by request and address; else empty
    ``gives_back``  whether they are given back (the negative of an assigned amount)
    ==============  ================================================================================

    >>> from resource_objects.resources.pci import devices
    >>> asked = devices("PGPU", 2, affinity="required")
    >>> print(asked, dict(asked.placed_counts), asked.is_assigned)
    2*PGPU@required {'PGPU': 2} False
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    requests: fields.TupleFrom[DeviceRequest] = fields.tuple_of("DeviceRequest", kw_only=False)
    placed: fields.TupleFrom[PlacedDevice] = fields.tuple_of("PlacedDevice", default=())
    gives_back: bool = fields.boolean(default=False)

    # --- what is asked ---

    @property
    def count(self) -> int:
        """How many devices, over all requests."""
        return sum(request.count for request in self.requests)

    @property
    def is_placed(self) -> bool:
        """True: it says which devices."""
        return True

    @functools.cached_property  # asked again and again while it is decided
    def placed_counts(self) -> Mapping[str, int]:
        """The counts that it stands for, by class, as far as the class is known."""
        if self.placed:
            return fields.FrozenDict(Counter(device.resource_class for device in self.placed))
        counts: Counter[str] = Counter()
        for request in self.requests:
            if request.resource_class is not None:
                counts[request.resource_class] += request.count
        return fields.FrozenDict(counts)

    @property
    def item_count(self) -> int:
        """How many devices, over all requests."""
        return self.count

    @property
    def parts_usage(self) -> Mapping[str, int]:
        """The same counts: whichever parts give them, together they have so many."""
        return self.placed_counts

    # --- which they are ---

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the devices, request by request; assigned.

        :raises InvalidInput: if it does not say
        """
        if not self.placed:
            raise _invalid_unassigned_amount("devices", self, "assigned ones, as fit() returns")
        return tuple(device.address for device in self.placed)

    def of(self, request: int | str) -> tuple[str, ...]:
        """Return the addresses for one request: by its place, or by its requester, alias or id."""
        chosen = {
            number
            for number, one in enumerate(self.requests)
            if request is not None and request in (number, one.requester, one.alias, one.request_id)
        }
        if not chosen:
            raise InvalidInput("value", "request", request, "the place or name of one of these")
        self.addresses  # noqa: B018  # raises if there are none
        return tuple(device.address for device in self.placed if device.request in chosen)

    # --- being an amount ---

    @property
    def is_zero(self) -> bool:
        """False: there is at least one request, of at least one device."""
        return False

    @property
    def is_negative(self) -> bool:
        """Whether this is given back."""
        return self.gives_back

    @property
    def is_assigned(self) -> bool:
        """Whether it says which devices."""
        return bool(self.placed)

    @property
    def has_affinity(self) -> bool:
        """Whether some request has another affinity than ``legacy``, which stands for none said."""
        return any(request.affinity != LEGACY for request in self.requests)

    def __neg__(self) -> Self:
        if not self.placed:
            raise _invalid_unassigned_amount(
                "devices", "ones that are not assigned", "assigned ones: these are given back"
            )
        return self._evolve(gives_back=not self.gives_back)

    def __add__(self, other: object) -> PCIAmount:
        """Return the requests of both, none of which is assigned."""
        if not isinstance(other, PCIAmount):
            return NotImplemented
        if self.placed or other.placed:
            raise _invalid_amount("devices", other, "amounts that are not assigned, to add")
        return PCIAmount((*self.requests, *other.requests))

    def unassigned(self) -> Self:
        """Return what was asked, without which devices."""
        return self.replace(placed=(), gives_back=False)

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return what it stands for in counts; where they are kept, its inventory knows."""
        sign = -1 if self.gives_back else 1
        return tuple(AmountRecord(name, sign * count) for name, count in self.placed_counts.items())

    def _validate(self) -> None:
        if not 1 <= len(self.requests) <= MAX_REQUESTS:
            raise _invalid_amount("device requests", len(self.requests), f"1 to {MAX_REQUESTS}")
        if self.placed:
            self._check_placed()
        elif self.gives_back:
            raise _invalid_unassigned_amount(
                "devices", "ones that are not assigned", "assigned ones: these are given back"
            )

    def _check_placed(self) -> None:
        counts = Counter(device.request for device in self.placed)
        requested = {number: request.count for number, request in enumerate(self.requests)}
        if counts != requested:
            raise _invalid_amount(
                "devices by request", dict(counts), f"as many as asked: {requested}"
            )
        units = Counter(unit for device in self.placed for unit in device.units)
        twice = sorted(unit for unit, count in units.items() if count > 1)
        if twice:
            raise _invalid_amount("devices", twice, "each once")
        order = tuple(sorted(self.placed, key=lambda device: (device.request, device.address)))
        if order != self.placed:
            self._store("placed", order)

    def __repr__(self) -> str:
        if self.placed:
            return f"<PCIAmount {self}>"
        return f"PCIAmount.parse({str(self)!r})"

    def __str__(self) -> str:
        requests = "/".join(map(str, self.requests))
        if not self.placed:
            return requests
        return f"{'-' if self.gives_back else ''}{requests}@on={'+'.join(self.addresses)}"

    @classmethod
    def parse(cls, text_form: str) -> PCIAmount:
        """Return the amount of its text form; :func:`str` of one that is not assigned.

        :raises InvalidInput: if it does not parse; if what it says contradicts itself

        >>> PCIAmount.parse("2*PGPU@required").requests[0].affinity
        'required'
        """
        said = text.read_requests(text_form)
        return cls(
            DeviceRequest([DeviceSpec(**spec) for spec in one.pop("specs")], **one) for one in said
        )


def given(value: Any) -> PCIAmount:
    """Return an amount of devices as it is, refusing other kinds.

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
    **also: Any,
) -> PCIAmount:
    """Return the amount of so many devices of a kind.

    Amounts add up: ``devices(...) + devices(...)``.

    :param kind: a resource class, ``"10de:2330"`` (``"10de:*"`` for all of a vendor), a
        :class:`DeviceSpec`, or several of them: each device is of any
    :param count: how many
    :param affinity: ``legacy``, ``preferred``, ``required`` or ``socket``: see
        :class:`DeviceRequest`
    :param requester: who asks, as it calls itself; so ``alias`` and ``request_id``
    :param also: what else each kind says, as :class:`DeviceSpec` has it: ``traits``, ``tags``,
        ``types``, ``address`` ...
    :raises InvalidInput: for a count that is none, or no kind at all; for a kind that cannot be
        read; for what a kind says and ``also`` does too

    >>> print(devices("PGPU", 2, affinity="required") + devices("8086:154c", types=["type-VF"]))
    2*PGPU@required/8086.154c&type-VF
    >>> devices("PGPU", 0)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: count of devices: got 0, expected an integer from ...
    """
    if type(count) is not int or not 1 <= count <= MAX_DEVICES:
        raise _invalid_amount("count of devices", count, f"an integer from 1 to {MAX_DEVICES}")
    request = DeviceRequest(
        [_spec(one, also) for one in _kinds(kind)],
        count,
        affinity,
        requester=requester,
        alias=alias,
        request_id=request_id,
    )
    return PCIAmount([request])


def _kinds(kind: object) -> list[Any]:
    if isinstance(kind, str | DeviceSpec):
        return [kind]
    found = device.listed(kind)
    if not isinstance(found, list):
        raise _invalid_amount("kind of devices", kind, "a resource class such as PGPU")
    return found


def _spec(kind: object, also: Mapping[str, Any]) -> DeviceSpec:
    if isinstance(kind, DeviceSpec):
        return kind.replace(**also) if also else kind
    if not isinstance(kind, str):
        raise _invalid_amount("kind of devices", kind, "a resource class such as PGPU")
    said = _said(kind)
    for name in said.keys() & also.keys():
        raise InvalidInput("repetition", f"{name} of devices", also[name], f"none beside {kind}")
    try:
        spec = DeviceSpec(**said)
    except InvalidInput as error:
        if not error.is_about("field"):
            raise
        raise InvalidInput(
            "text",
            "kind of devices",
            kind,
            "VENDOR:PRODUCT in hexadecimal digits, such as 10de:2330",
        ) from error
    return spec.replace(**also) if also else spec


def _said(kind: str) -> dict[str, Any]:
    vendor, colon, product = kind.partition(":")
    if not colon:
        return {"resource_class": kind}
    ids = {"vendor_id": vendor, "product_id": product}
    return {name: id_ for name, id_ in ids.items() if id_ != "*"}


# --- what is asked --------------------------------------------------------------------------------


#: No request has more alternatives.
MAX_SPECS = 256


@base.register
class DeviceSpec(base.ResourceObject, frozen=True):
    """A kind of device: everything that is said has to hold; what is not said is all the same.

    ===================  ===========================================================================
    ``resource_class``   what it is taken as
    ``vendor_id``,       who made it and what it is
    ``product_id``
    ``types``            what it is to SR-IOV, any of these. None said: a physical function or a
                         vDPA device only if the resource class is said, for then somebody offers it
                         as that; else ``type-PCI`` and ``type-VF``
    ``class_code``       first digits of its class code
    ``address``          this very device
    ``traits``           all of these: its own, not those of a provider above it
    ``tags``             all of these; case does not count, a value that is a list (in JSON) has to
                         be contained, and ``null`` (in JSON) is a tag that is not there
    ``remote_managed``   True: only such devices; else never such
    ``live_migratable``  True or False: only devices of which that is said
    ``facts``            other words of who asks: carried, not read
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

    def __str__(self) -> str:
        return text.format_spec(_fields_of(self))

    @property
    def wanted_types(self) -> tuple[str, ...]:
        """The types that will do."""
        if self.types:
            return self.types
        return (PCI, VF) if self.resource_class is None else TYPES

    def matches(self, device: Device) -> bool:
        """Return whether a device is of this kind; whether it is free is another matter."""
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

    def _validate(self) -> None:
        if len(set(self.types)) != len(self.types):
            raise _invalid_amount("types of a device", self.types, "each once")


def _fields_of(value: DeviceSpec | DeviceRequest) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.fields}


def _has_tag(tags: Mapping[str, str], name: str, value: str) -> bool:
    has = tags.get(name)
    if has is None:
        return value == NOT_THERE
    return has == value or tag_matches(has, value)


@base.register
class DeviceRequest(base.ResourceObject, frozen=True):
    """So many devices of one kind, or of another: the alternatives may be mixed.

    ``affinity`` is how near the host cells of whoever asks they have to be; it counts only where
    cells are asked for too. ``required``: in these cells. ``legacy``: there, or where the firmware
    does not say. ``preferred``: there if possible. ``socket``: in the sockets of these cells.
    ``requester``, ``alias`` and ``request_id`` are names that its maker gives it; ``providers`` the
    uuids of providers it was given already, one for each device, or none.

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

    @property
    def kinds(self) -> str:
        """The text of its kinds of devices, joined by ``|``."""
        return "|".join(map(str, self.specs))

    def __str__(self) -> str:
        return text.format_request(_fields_of(self), self.kinds)

    @property
    def resource_class(self) -> str | None:
        """The class that all alternatives are of; None if they differ, or one does not say."""
        classes = {spec.resource_class for spec in self.specs}
        return classes.pop() if len(classes) == 1 else None

    def matches(self, device: Device) -> bool:
        """Return whether a device is of any of the kinds."""
        return any(spec.matches(device) for spec in self.specs)

    def _validate(self) -> None:
        if not 1 <= len(self.specs) <= MAX_SPECS:
            raise _invalid_amount(
                "alternatives of a device request", len(self.specs), f"1 to {MAX_SPECS}"
            )
        addresses = {spec.address for spec in self.specs}
        if None not in addresses and len(addresses) < self.count:
            raise _invalid_amount(
                "count of a device request", self.count, f"at most {len(addresses)}, as it names"
            )
        if self.providers and len(self.providers) != self.count:
            raise _invalid_amount(
                "providers of a device request", self.providers, f"one for each of {self.count}"
            )
