"""An abstract resource: slots, which stand for a policy and not for hardware.

Source: the *extensible resource tracking* design (Nova, Juno): "a provider may choose that only
one instance of a certain type should run on any compute node" must be expressible.
"""

from __future__ import annotations

from typing import Any

from resource_objects import base
from resource_objects.resources.abstract import on_class_or_instance
from resource_objects.resources.integer import IntegerAmount, IntegerInventory, IntegerResource


@base.register
class SlotResource(IntegerResource):
    """A resource that only limits how many consumers of a type one provider holds.

    A host that declares it has one slot unless told otherwise; a consumer of the type takes one.
    "At most one database per host" is a resource, an inventory on each host, and an amount in the
    request of each database:

    >>> database = SlotResource("CUSTOM_DATABASE_SLOT")
    >>> slots = database.make_inventory()
    >>> slots.consume(database.make_amount())
    IntegerAmount(1)
    >>> slots.can_provide(database.make_amount())
    False
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    def __init__(
        self, name: str, type: str = "abstract", units: str = "slots", description: str = ""
    ) -> None:
        super().__init__(name, type, units, description)

    @on_class_or_instance
    def make_amount(this: Any, /, value: int = 1) -> IntegerAmount:  # noqa: N805
        """Return the amount of one consumer: one slot."""
        return IntegerAmount(value)

    @on_class_or_instance
    def make_inventory(this: Any, /, total: int = 1, **figures: Any) -> IntegerInventory:  # noqa: N805
        """Return an inventory of one slot, of which a claim takes at most one."""
        label = None if isinstance(this, type) else this.name
        return IntegerInventory(total, **{"resource_class": label, "max_unit": 1, **figures})
