"""The resource ``NUMA_TOPOLOGY``: its amounts, inventories and text forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from resource_objects import base
from resource_objects.resources import abstract
from resource_objects.resources.abstract import on_class_or_instance
from resource_objects.resources.numa import build, host_text, kept, text
from resource_objects.resources.numa.amount import NUMATopologyAmount, given
from resource_objects.resources.numa.host import HostCell
from resource_objects.resources.numa.inventory import NUMATopologyInventory
from resource_objects.resources.numa.limit import NUMATopologyLimit
from resource_objects.resources.records import InventoryRecord, KeptPart


@base.register
class NUMATopologyResource(abstract.Resource):
    """CPUs and memory that are near each other: it says where, and adds nothing (D1).

    >>> NUMA_TOPOLOGY.make_amount(cells=2, dedicated=4).cpu_policy
    'dedicated'
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    amount_kind = NUMATopologyAmount
    limit_kind = NUMATopologyLimit
    inventory_kind = NUMATopologyInventory
    is_located = True

    @on_class_or_instance
    def make_amount(this: Any, /, *args: Any, **asked: Any) -> NUMATopologyAmount:  # noqa: N805
        """Return the amount that :func:`~resource_objects.resources.numa.build.numa` makes."""
        return build.numa(*args, **asked)

    @on_class_or_instance
    def make_inventory(
        this: Any,  # noqa: N805
        /,
        cells: Iterable[HostCell],
        **figures: Any,
    ) -> NUMATopologyInventory:
        """Return an inventory; ``figures`` as :class:`NUMATopologyInventory` has them."""
        label = None if isinstance(this, type) else this.name
        return NUMATopologyInventory(cells, **{"resource_class": label, **figures})

    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> NUMATopologyInventory:
        """Refuse: without its description a cell is not known."""
        return self.inventory_from_kept(records, None)

    def inventory_from_kept(
        self, records: Sequence[InventoryRecord], description: str | None
    ) -> NUMATopologyInventory:
        """Return the inventory of one cell; which CPUs are taken, :meth:`gather` knows.

        :raises InvalidInventory: if the description is none, or does not go with the records
        """
        return self.gather([KeptPart(tuple(records), description)])

    def gather(
        self, parts: Sequence[KeptPart], room: Mapping[str, int] | None = None
    ) -> NUMATopologyInventory:
        """Return the inventory over the cells as they are kept.

        :raises InvalidInventory: if a description is none, or does not go with its records
        """
        found = kept.gather(parts)
        return NUMATopologyInventory(**found._asdict(), room=room, resource_class=self.name)

    def parse_amount(self, text_form: str) -> NUMATopologyAmount:
        """Return the amount of ``CELLS[:option=value]...``."""
        return text.parse_amount(text_form)

    def format_amount(self, amount: abstract.Amount) -> str:
        """Return the text that :meth:`parse_amount` reads back."""
        return text.format_amount(given(amount))

    def parse_limit(self, text_form: str) -> NUMATopologyLimit:
        """Return the limit of ``vcpus=0>16+1>16:memory=0>4096``."""
        return host_text.parse_limit(text_form)

    def format_limit(self, limit: abstract.Amount) -> str:
        """Return the text that :meth:`parse_limit` reads back."""
        return host_text.format_limit(limit)

    def parse_inventory(self, text_form: str) -> NUMATopologyInventory:
        """Return the inventory of its text form."""
        return host_text.parse_inventory(text_form, self.name)

    def format_inventory(self, inventory: abstract.Inventory) -> str:
        """Return the text that :meth:`parse_inventory` reads back."""
        return host_text.format_inventory(inventory)


#: The resource of NUMA topologies.
NUMA_TOPOLOGY = NUMATopologyResource(
    "NUMA_TOPOLOGY", "processor", "cells", "CPUs and memory that are near each other"
)
