"""What is asked of devices: so many, of such a kind or such another, near or anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from resource_objects import base, exceptions, fields
from resource_objects.resources.pci import words
from resource_objects.resources.pci.device import Device
from resource_objects.resources.pci.pool import DevicePool

#: No request has more alternatives.
MAX_SPECS = 256


@base.register
class DeviceSpec(base.Value):
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

    fields = {
        "resource_class": fields.ResourceClassField(nullable=True, default=None),
        "vendor_id": words.IdField(nullable=True, default=None),
        "product_id": words.IdField(nullable=True, default=None),
        "types": words.TypesField(default=()),
        "class_code": words.ClassCodeField(default=""),
        "address": words.AddressField(nullable=True, default=None),
        "traits": fields.TraitsField(default=frozenset()),
        "tags": words.TextsField(default=words.NO_TEXTS),
        "remote_managed": fields.BooleanField(default=False),
        "live_migratable": fields.BooleanField(nullable=True, default=None),
        "facts": words.TextsField(default=words.NO_TEXTS),
    }
    resource_class: str | None
    vendor_id: str | None
    product_id: str | None
    types: tuple[str, ...]
    class_code: str
    address: str | None
    traits: frozenset[str]
    tags: Mapping[str, str]
    remote_managed: bool
    live_migratable: bool | None
    facts: Mapping[str, str]

    @property
    def wanted_types(self) -> tuple[str, ...]:
        """The types that will do."""
        if self.types:
            return self.types
        return (words.PCI, words.VF) if self.resource_class is None else words.TYPES

    def matches(self, device: Device | DevicePool) -> bool:
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
            raise exceptions.InvalidAmount("types of a device", self.types, "each once")


def _has_tag(tags: Mapping[str, str], name: str, value: str) -> bool:
    has = tags.get(name)
    if has is None:
        return value == words.NOT_THERE
    return has == value or words.tag_matches(has, value)


@base.register
class DeviceRequest(base.Value):
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

    fields = {
        "count": fields.IntegerField(1, words.MAX_DEVICES, default=1),
        "specs": fields.TupleOfObjectsField("DeviceSpec"),
        "affinity": fields.ChoiceField(*words.AFFINITIES, default=words.LEGACY),
        "requester": fields.LabelField(nullable=True, default=None),
        "alias": fields.LabelField(nullable=True, default=None),
        "request_id": fields.LabelField(nullable=True, default=None),
        "providers": fields.TupleOfLabelsField(default=()),
    }
    count: int
    specs: tuple[DeviceSpec, ...]
    affinity: str
    requester: str | None
    alias: str | None
    request_id: str | None
    providers: tuple[str, ...]

    def __init__(
        self,
        specs: Iterable[DeviceSpec],
        count: int = 1,
        affinity: str = words.LEGACY,
        *,
        requester: str | None = None,
        alias: str | None = None,
        request_id: str | None = None,
        providers: Iterable[str] = (),
    ) -> None:
        super().__init__(
            specs=words.listed(specs),
            count=count,
            affinity=affinity,
            requester=requester,
            alias=alias,
            request_id=request_id,
            providers=words.listed(providers),
        )

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
            raise exceptions.InvalidAmount(
                "alternatives of a device request", len(self.specs), f"1 to {MAX_SPECS}"
            )
        addresses = {spec.address for spec in self.specs}
        if None not in addresses and len(addresses) < self.count:
            raise exceptions.InvalidAmount(
                "count of a device request", self.count, f"at most {len(addresses)}, as it names"
            )
        if self.providers and len(self.providers) != self.count:
            raise exceptions.InvalidAmount(
                "providers of a device request", self.providers, f"one for each of {self.count}"
            )


def given(value: Any) -> DeviceRequest:
    """Return a device request as it is.

    :raises InvalidAmount: if it is something else
    """
    if not isinstance(value, DeviceRequest):
        raise exceptions.InvalidAmount("device request", value, "a DeviceRequest")
    return value
