"""What is asked of PCI devices, and which they are: the amount of the kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Self

from resource_objects import base, exceptions, fields
from resource_objects.resources import abstract
from resource_objects.resources.pci import words
from resource_objects.resources.pci.device import MAX_NODE
from resource_objects.resources.pci.wish import DeviceRequest
from resource_objects.resources.records import AmountRecord

#: Nobody asks for more kinds of devices at once.
MAX_REQUESTS = 1024


@base.register
class PlacedDevice(base.Value):
    """A device that is taken: for which request (its place in the amount), and as what.

    ``parts`` are the functions split off it, which nobody else can have meanwhile.

    >>> PlacedDevice(0, "0000:3b:00.0", "PGPU").units
    ('0000:3b:00.0',)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "request": fields.IntegerField(0, MAX_REQUESTS - 1),
        "address": words.AddressField(),
        "resource_class": fields.ResourceClassField(),
        "numa_node": fields.IntegerField(0, MAX_NODE, nullable=True, default=None),
        "parts": words.AddressesField(default=()),
    }
    request: int
    address: str
    resource_class: str
    numa_node: int | None
    parts: tuple[str, ...]

    def __init__(
        self,
        request: int,
        address: str,
        resource_class: str,
        *,
        numa_node: int | None = None,
        parts: Iterable[str] = (),
    ) -> None:
        super().__init__(
            request=request,
            address=address,
            resource_class=resource_class,
            numa_node=numa_node,
            parts=words.listed(parts),
        )

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
    >>> print(asked, dict(asked.located), asked.is_assigned)
    2*PGPU@required {'PGPU': 2} False
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "requests": fields.TupleOfObjectsField("DeviceRequest"),
        "placed": fields.TupleOfObjectsField("PlacedDevice", default=()),
        "gives_back": fields.BooleanField(default=False),
    }
    requests: tuple[DeviceRequest, ...]
    placed: tuple[PlacedDevice, ...]
    gives_back: bool

    def __init__(
        self,
        requests: Iterable[DeviceRequest],
        *,
        placed: Iterable[PlacedDevice] = (),
        gives_back: bool = False,
    ) -> None:
        super().__init__(
            requests=words.listed(requests), placed=words.listed(placed), gives_back=gives_back
        )

    # --- what is asked ---

    @property
    def count(self) -> int:
        """How many devices, over all requests."""
        return sum(request.count for request in self.requests)

    @property
    def locates(self) -> bool:
        """True: it says which devices."""
        return True

    @property
    def located(self) -> Mapping[str, int]:
        """The counts that it stands for, by class, as far as the class is known."""
        if self.placed:
            return Counter(device.resource_class for device in self.placed)
        counts: Counter[str] = Counter()
        for request in self.requests:
            if request.resource_class is not None:
                counts[request.resource_class] += request.count
        return counts

    @property
    def pieces(self) -> int:
        """How many devices, over all requests."""
        return self.count

    @property
    def of_parts(self) -> Mapping[str, int]:
        """The same counts: whichever parts give them, together they have so many."""
        return self.located

    # --- which they are ---

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the devices, request by request; assigned.

        :raises NotAssigned: if it does not say
        """
        if not self.placed:
            raise exceptions.NotAssigned("devices", self, "assigned ones, as fit() returns")
        return tuple(device.address for device in self.placed)

    def of(self, request: int | str) -> tuple[str, ...]:
        """Return the addresses for one request: by its place, or by its requester, alias or id."""
        chosen = {
            number
            for number, one in enumerate(self.requests)
            if request is not None and request in (number, one.requester, one.alias, one.request_id)
        }
        if not chosen:
            raise exceptions.InvalidInput("request", request, "the place or name of one of these")
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

    def __neg__(self) -> Self:
        if not self.placed:
            raise exceptions.NotAssigned(
                "devices", "ones that are not assigned", "assigned ones: these are given back"
            )
        return self._altered(gives_back=not self.gives_back)

    def __add__(self, other: object) -> PCIAmount:
        """Return the requests of both, none of which is assigned."""
        if not isinstance(other, PCIAmount):
            return NotImplemented
        if self.placed or other.placed:
            raise exceptions.InvalidAmount(
                "devices", other, "amounts that are not assigned, to add"
            )
        return PCIAmount((*self.requests, *other.requests))

    def unassigned(self) -> Self:
        """Return what was asked, without which devices."""
        return self.replace(placed=(), gives_back=False)

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return what it stands for in counts; where they are kept, its inventory knows."""
        sign = -1 if self.gives_back else 1
        return tuple(AmountRecord(name, sign * count) for name, count in self.located.items())

    def _validate(self) -> None:
        if not 1 <= len(self.requests) <= MAX_REQUESTS:
            raise exceptions.InvalidAmount(
                "device requests", len(self.requests), f"1 to {MAX_REQUESTS}"
            )
        if self.placed:
            self._check_placed()
        elif self.gives_back:
            raise exceptions.NotAssigned(
                "devices", "ones that are not assigned", "assigned ones: these are given back"
            )

    def _check_placed(self) -> None:
        counts = Counter(device.request for device in self.placed)
        asked = {number: request.count for number, request in enumerate(self.requests)}
        if counts != asked:
            raise exceptions.InvalidAmount(
                "devices by request", dict(counts), f"as many as asked: {asked}"
            )
        units = Counter(unit for device in self.placed for unit in device.units)
        twice = sorted(unit for unit, count in units.items() if count > 1)
        if twice:
            raise exceptions.InvalidAmount("devices", twice, "each once")
        order = tuple(sorted(self.placed, key=lambda device: (device.request, device.address)))
        if order != self.placed:
            self._store("placed", order)

    def __repr__(self) -> str:
        return f"PCIAmount.parse({str(self)!r})"

    def __str__(self) -> str:
        from resource_objects.resources.pci.text import format_amount

        return format_amount(self)

    @classmethod
    def parse(cls, text: str) -> PCIAmount:
        """Return the amount of its text form; :func:`str` gives it back."""
        from resource_objects.resources.pci.text import parse_amount

        return parse_amount(text)


def given(value: Any) -> PCIAmount:
    """Return an amount of devices as it is, refusing other kinds.

    :raises WrongAmountKind: for an amount of another kind
    """
    if not isinstance(value, PCIAmount):
        raise exceptions.WrongAmountKind("amount", value, "a PCIAmount")
    return value
