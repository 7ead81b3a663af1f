"""The resource ``DEVICES``: makes, keeps and reads its amounts and inventories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from resource_objects import base
from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.resources import abstract
from resource_objects.resources.abstract import on_class_or_instance
from resource_objects.resources.pci import storage, weaker
from resource_objects.resources.pci.amount import PCIAmount, devices, given
from resource_objects.resources.pci.device import ALLOCATED, Device, DeviceUse
from resource_objects.resources.pci.device_groups import NOTHING_WITHHELD
from resource_objects.resources.pci.inventory import PCIInventory, given_inventory
from resource_objects.resources.records import InventoryRecord, StoredPart
from resource_objects.resources.relaxations import RelaxationLadder


@base.register
class PCIResource(abstract.Resource):
    """PCI devices, each with an identity: it says which, and adds nothing to their counts (D1).

    The class ``PCI_DEVICE`` of the field is another thing: a plain count of devices.

    >>> print(DEVICES.make_amount("PGPU", 2))
    2*PGPU
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    amount_kind = PCIAmount
    inventory_kind = PCIInventory
    is_placed = True

    @on_class_or_instance
    def make_amount(this: Any, /, *args: Any, **words: Any) -> PCIAmount:  # noqa: N805
        """Return the amount that :func:`~resource_objects.resources.pci.amount.devices` makes."""
        return devices(*args, **words)

    @on_class_or_instance
    def make_inventory(
        this: Any,  # noqa: N805
        /,
        devices: Iterable[Device] = (),
        **figures: Any,
    ) -> PCIInventory:
        """Return an inventory; ``figures`` as :class:`PCIInventory` has them."""
        label = None if isinstance(this, type) else this.name
        return PCIInventory(devices, **{"resource_class": label, **figures})

    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> PCIInventory:
        """Refuse: without its description a device is not known."""
        return self.inventory_from_storage(records, None)

    def inventory_from_storage(
        self, records: Sequence[InventoryRecord], description: str | None
    ) -> PCIInventory:
        """Return the inventory of one provider; which devices are taken, :meth:`from_parts` knows.

        :raises InvalidInventory: if the description is none, or does not go with the records
        """
        made = self.inventory_from_parts([StoredPart(tuple(records), description)])
        removed = storage.removed_of(description or "")
        if removed:  # allocations are not known here: as it was stored, so that nothing changes
            kept = [use for use in made.usage if use.address not in removed]
            gone = [DeviceUse(address, ALLOCATED, gone=True) for address in sorted(removed)]
            made.update(usage=[*kept, *gone])
        return made

    def relaxations(self, amount: abstract.Amount) -> Iterator[RelaxationLadder[PCIAmount]]:
        """Yield how less could be asked (:mod:`.weaker`)."""
        return weaker.weaker(given(amount))

    def cell_of_part(self, description: str) -> int | None:
        """Return the host cell that a device, or a card with its functions, is next to."""
        return storage.node_of(description)

    def inventory_from_parts(
        self, parts: Sequence[StoredPart], room: Mapping[str, int] | None = None
    ) -> PCIInventory:
        """Return the inventory over the devices as they are storage.

        :raises InvalidInventory: if a description is none, or does not go with its records
        """
        found = storage.from_parts(parts)
        try:
            made = PCIInventory(found.devices, usage=found.usage, resource_class=self.name)
        except InvalidInput as error:
            names = sorted(storage.by_part(found.devices))
            raise InvalidInventory(
                "devices of providers", names, f"such as go together ({error})"
            ) from error
        if found.withheld != NOTHING_WITHHELD:
            made.withhold(found.withheld)
        return made

    def parse_amount(self, text_form: str) -> PCIAmount:
        """Return the amount of ``COUNT*KIND[@option]...``, joined by ``/`` (:mod:`.text`)."""
        return PCIAmount.parse(text_form)

    def format_amount(self, amount: abstract.Amount) -> str:
        """Return the text of an amount; :meth:`parse_amount` reads that of a request back."""
        return str(given(amount))

    def parse_inventory(self, text_form: str) -> PCIInventory:
        """Refuse: devices are made in Python, or read from a machine, and have no text form."""
        raise InvalidInput(
            "text",
            "inventory of devices",
            text_form,
            "one made of Device objects: it has no text form",
        )

    def format_inventory(self, inventory: abstract.Inventory) -> str:
        """Return how many devices there are of each class, for people: it is not read back."""
        known = given_inventory(inventory)
        counts = Counter(device.resource_class for device in known.devices)
        return "+".join(f"{count}*{name}" for name, count in counts.items()) or "none"


#: The resource of PCI devices by address.
DEVICES = PCIResource("DEVICES", "device", "devices", "PCI devices, each by its address")
