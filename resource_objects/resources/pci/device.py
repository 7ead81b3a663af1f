"""A PCI device: what it is, and as what it can be taken. And what is taken of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from resource_objects import base, exceptions, fields
from resource_objects.resources.pci import words

#: The highest id of a NUMA node.
MAX_NODE = 65535


@base.register
class Device(base.Value):
    """A PCI function that can be taken: each is one unit of its resource class.

    ===================  ===========================================================================
    ``address``          where it is plugged in: its identity, ``0000:3b:00.0``
    ``vendor_id``,       who made it and what it is, four hexadecimal digits
    ``product_id``
    ``type``             ``type-PCI``; ``type-PF`` (a physical function: it can be split);
                         ``type-VF`` (a virtual function: split off one); ``vdpa``
    ``resource_class``   what it is taken as; by default ``CUSTOM_PCI_<VENDOR>_<PRODUCT>``
    ``class_code``       what it is for, ``0302`` (a 3D controller); empty if not known
    ``parent``           the address of the physical function it was split off
    ``numa_node``        the host cell it is next to; None if the firmware does not say
    ``tags``             words that whoever offers it put on it, and that requests may ask for
    ``traits``           its qualities, as those of its provider
    ``remote_managed``   whether another machine (a SmartNIC) manages it: only for who asks for that
    ``live_migratable``  whether its user can move while it runs; None if nobody said
    ``one_time_use``     whether it is for one use, and spent then
    ``facts``            anything else that is known (a MAC address, say): carried, not read
    ===================  ===========================================================================

    >>> gpu = Device("3b:00.0", "10de", "2330", resource_class="PGPU", numa_node=1)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidAddress: PCI address: got '3b:00.0', expected DOMAIN:BUS:...
    >>> gpu = Device("0000:3b:00.0", "10de", "2330", numa_node=1)
    >>> gpu.resource_class, gpu.type, gpu.can_be_split
    ('CUSTOM_PCI_10DE_2330', 'type-PCI', False)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "address": words.AddressField(),
        "vendor_id": words.IdField(),
        "product_id": words.IdField(),
        "type": fields.ChoiceField(*words.TYPES, default=words.PCI),
        "resource_class": fields.ResourceClassField(),
        "class_code": words.ClassCodeField(default=""),
        "parent": words.AddressField(nullable=True, default=None),
        "numa_node": fields.IntegerField(0, MAX_NODE, nullable=True, default=None),
        "tags": words.TextsField(default=words.NO_TEXTS),
        "traits": fields.TraitsField(default=frozenset()),
        "remote_managed": fields.BooleanField(default=False),
        "live_migratable": fields.BooleanField(nullable=True, default=None),
        "one_time_use": fields.BooleanField(default=False),
        "facts": words.TextsField(default=words.NO_TEXTS),
    }
    address: str
    vendor_id: str
    product_id: str
    type: str
    resource_class: str
    class_code: str
    parent: str | None
    numa_node: int | None
    tags: Mapping[str, str]
    traits: frozenset[str]
    remote_managed: bool
    live_migratable: bool | None
    one_time_use: bool
    facts: Mapping[str, str]

    def __init__(
        self,
        address: str,
        vendor_id: str,
        product_id: str,
        type: str = words.PCI,
        *,
        resource_class: str | None = None,
        class_code: str = "",
        parent: str | None = None,
        numa_node: int | None = None,
        tags: Mapping[str, str] = words.NO_TEXTS,
        traits: Iterable[str] = (),
        remote_managed: bool = False,
        live_migratable: bool | None = None,
        one_time_use: bool = False,
        facts: Mapping[str, str] = words.NO_TEXTS,
    ) -> None:
        if resource_class is None and isinstance(vendor_id, str) and isinstance(product_id, str):
            resource_class = words.custom_class(vendor_id, product_id)
        super().__init__(
            address=address,
            vendor_id=vendor_id,
            product_id=product_id,
            type=type,
            resource_class=resource_class,
            class_code=class_code,
            parent=parent,
            numa_node=numa_node,
            tags=tags,
            traits=traits,
            remote_managed=remote_managed,
            live_migratable=live_migratable,
            one_time_use=one_time_use,
            facts=facts,
        )

    @property
    def can_be_split(self) -> bool:
        """Whether it is a physical function, which shares its fate with those split off it."""
        return self.type == words.PF

    @property
    def is_part(self) -> bool:
        """Whether it was split off a physical function."""
        return self.type in words.PARTS

    def _validate(self) -> None:
        if self.parent == self.address:
            raise exceptions.InvalidDevice("parent of a device", self.parent, "another address")
        if self.parent is not None and not self.is_part:
            what = f"parent of {self.address}, {self.type}"
            raise exceptions.InvalidDevice(what, self.parent, "none: only a part has a parent")
        if self.parent is None and self.is_part:
            what = f"parent of {self.address}, {self.type}"
            raise exceptions.InvalidDevice(what, None, "the physical function it was split off")
        if self.one_time_use and self.is_part:
            what = f"one_time_use of {self.address}"
            raise exceptions.InvalidDevice(what, self.type, "type-PCI or type-PF")

    def __str__(self) -> str:
        return f"{self.address} {self.vendor_id}:{self.product_id} {self.type}"


@base.register
class DeviceUse(base.Value):
    """What is taken of one device, and what waits until it is free.

    ``state`` is ``claimed`` or ``allocated``; ``spent`` of one that was for one use;
    ``unavailable`` of one that something else uses up (a partition of it, or who named no device).
    ``then`` is how the device is now that is used as it was; ``gone`` says that it is not there any
    more: both take effect when it is free.

    >>> DeviceUse("0000:3b:00.0", "claimed").is_held
    True
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "address": words.AddressField(),
        "state": fields.ChoiceField(words.CLAIMED, words.ALLOCATED, words.SPENT, words.UNAVAILABLE),
        "then": fields.ObjectField("Device", nullable=True, default=None),
        "gone": fields.BooleanField(default=False),
    }
    address: str
    state: str
    then: Device | None
    gone: bool

    def __init__(
        self, address: str, state: str, *, then: Device | None = None, gone: bool = False
    ) -> None:
        super().__init__(address=address, state=state, then=then, gone=gone)

    @property
    def is_held(self) -> bool:
        """Whether somebody has it by name."""
        return self.state in (words.CLAIMED, words.ALLOCATED)

    def _validate(self) -> None:
        if self.then is not None and self.then.address != self.address:
            raise exceptions.InvalidDevice(
                f"what {self.address} is then", self.then.address, "a device at that address"
            )
        if self.gone and self.then is not None:
            raise exceptions.InvalidDevice(
                f"what {self.address} is then", self.then, "nothing: it is gone"
            )
        if (self.gone or self.then is not None) and not self.is_held:
            raise exceptions.InvalidDevice(
                f"state of {self.address}", self.state, "claimed or allocated: else nothing waits"
            )
