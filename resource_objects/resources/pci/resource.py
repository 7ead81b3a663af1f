"""The resource ``PCI_DEVICES``: its amounts, inventories and text forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from resource_objects import base, exceptions
from resource_objects.resources import abstract
from resource_objects.resources.abstract import on_class_or_instance
from resource_objects.resources.pci import build, host_text, kept, text
from resource_objects.resources.pci.amount import PCIAmount, given
from resource_objects.resources.pci.device import Device
from resource_objects.resources.pci.inventory import PCIInventory
from resource_objects.resources.pci.inventory import given as given_inventory
from resource_objects.resources.records import InventoryRecord, KeptPart


@base.register
class PCIResource(abstract.Resource):
    """PCI devices, each with an identity: it says which, and adds nothing to their counts (D1).

    The class ``PCI_DEVICE`` of the field is another thing: a plain count of devices.

    >>> print(PCI_DEVICES.make_amount("PGPU", 2))
    2*PGPU
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    amount_kind = PCIAmount
    inventory_kind = PCIInventory
    is_located = True

    @on_class_or_instance
    def make_amount(this: Any, /, *args: Any, **asked: Any) -> PCIAmount:  # noqa: N805
        """Return the amount that :func:`~resource_objects.resources.pci.build.devices` makes."""
        return build.devices(*args, **asked)

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
        return self.inventory_from_kept(records, None)

    def inventory_from_kept(
        self, records: Sequence[InventoryRecord], description: str | None
    ) -> PCIInventory:
        """Return the inventory of one provider; which devices are taken, :meth:`gather` knows.

        :raises InvalidInventory: if the description is none, or does not go with the records
        """
        return self.gather([KeptPart(tuple(records), description)])

    def gather(
        self, parts: Sequence[KeptPart], room: Mapping[str, int] | None = None
    ) -> PCIInventory:
        """Return the inventory over the devices as they are kept.

        :raises InvalidInventory: if a description is none, or does not go with its records
        """
        found = kept.gather(parts)
        try:
            return PCIInventory(found.devices, usage=found.usage, resource_class=self.name)
        except exceptions.InvalidInput as error:
            names = sorted(kept.by_part(found.devices))
            raise exceptions.InvalidInventory(
                "devices of providers", names, f"such as go together ({error})"
            ) from error

    def parse_amount(self, text_form: str) -> PCIAmount:
        """Return the amount of ``COUNT*KIND[@option]...``, joined by ``/``."""
        return text.parse_amount(text_form)

    def format_amount(self, amount: abstract.Amount) -> str:
        """Return the text that :meth:`parse_amount` reads back."""
        return text.format_amount(given(amount))

    def parse_inventory(self, text_form: str) -> PCIInventory:
        """Return the inventory of its text form."""
        return host_text.parse_inventory(text_form, self.name)

    def format_inventory(self, inventory: abstract.Inventory) -> str:
        """Return the text that :meth:`parse_inventory` reads back."""
        return host_text.format_inventory(given_inventory(inventory))


#: The resource of PCI devices by address.
PCI_DEVICES = PCIResource("PCI_DEVICES", "device", "devices", "PCI devices, each by its address")
