"""The resource ``NUMA_TOPOLOGY``: makes, keeps and reads its amounts and inventories."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from resource_objects import base
from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.resources import abstract
from resource_objects.resources.abstract import on_class_or_instance
from resource_objects.resources.numa import storage, weaker
from resource_objects.resources.numa.amount import (
    NUMATopologyAmount,
    NUMATopologyLimit,
    lower_bounds,
    numa,
    require_topology,
)
from resource_objects.resources.numa.cells import HostCell
from resource_objects.resources.numa.inventory import NUMATopologyInventory
from resource_objects.resources.records import InventoryRecord, StoredPart
from resource_objects.resources.relaxations import RelaxationLadder


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
    is_placed = True

    @on_class_or_instance
    def make_amount(this: Any, /, *args: Any, **words: Any) -> NUMATopologyAmount:  # noqa: N805
        """Return the amount that :func:`~resource_objects.resources.numa.amount.numa` makes."""
        return numa(*args, **words)

    @on_class_or_instance
    def make_inventory(
        this: Any,  # noqa: N805
        /,
        cells: Iterable[HostCell] = (),
        **figures: Any,
    ) -> NUMATopologyInventory:
        """Return an inventory; ``figures`` as :class:`NUMATopologyInventory` has them."""
        label = None if isinstance(this, type) else this.name
        return NUMATopologyInventory(cells, **{"resource_class": label, **figures})

    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> NUMATopologyInventory:
        """Refuse: without its description a cell is not known."""
        return self.inventory_from_storage(records, None)

    def inventory_from_storage(
        self, records: Sequence[InventoryRecord], description: str | None
    ) -> NUMATopologyInventory:
        """Return the inventory of one cell; which CPUs are taken, :meth:`from_parts` knows.

        :raises InvalidInventory: if the description is none, or does not go with the records
        """
        return self.inventory_from_parts([StoredPart(tuple(records), description)])

    def inventory_from_parts(
        self, parts: Sequence[StoredPart], room: Mapping[str, int] | None = None
    ) -> NUMATopologyInventory:
        """Return the inventory over the cells as they are kept.

        :raises InvalidInventory: if a description is none, or does not go with its records
        """
        found = storage.from_parts(parts)
        return NUMATopologyInventory(**found._asdict(), room=room, resource_class=self.name)

    def lower_bounds(
        self, amount: abstract.Amount, classes: Collection[str]
    ) -> tuple[Mapping[str, int], ...]:
        """Return what each guest cell needs of a host cell at least, by class."""
        return lower_bounds(require_topology(amount), classes)

    def relaxations(
        self, amount: abstract.Amount
    ) -> Iterator[RelaxationLadder[NUMATopologyAmount]]:
        """Yield how less could be asked (:mod:`.weaker`)."""
        return weaker.weaker(require_topology(amount))

    def cell_of_part(self, description: str) -> int | None:
        """Return the id of a cell."""
        return storage.cell_id(description)

    def parse_amount(self, text_form: str) -> NUMATopologyAmount:
        """Return the amount of ``CELLS[:option=value]...`` (:mod:`.text`)."""
        return NUMATopologyAmount.parse(text_form)

    def format_amount(self, amount: abstract.Amount) -> str:
        """Return the text of an amount; :meth:`parse_amount` reads that of a request back."""
        return str(require_topology(amount))

    def parse_limit(self, text_form: str) -> NUMATopologyLimit:
        """Return the limit of ``vcpus=0>16+1>16:memory=0>4096``."""
        return NUMATopologyLimit.parse(text_form)

    def format_limit(self, limit: abstract.Amount) -> str:
        """Return the text that :meth:`parse_limit` reads back.

        :raises InvalidInput: for another kind
        """
        if not isinstance(limit, NUMATopologyLimit):
            raise InvalidInput("kind of amount", "limit", limit, "a NUMATopologyLimit")
        return str(limit)

    def parse_inventory(self, text_form: str) -> NUMATopologyInventory:
        """Refuse: cells are made in Python, or read from a machine, and have no text form."""
        raise InvalidInput(
            "text",
            "inventory of NUMA cells",
            text_form,
            "one made of HostCell objects: it has no text form",
        )

    def format_inventory(self, inventory: abstract.Inventory) -> str:
        """Return what the cells have, for people: it is not read back."""
        if not isinstance(inventory, NUMATopologyInventory):
            raise InvalidInventory("inventory", inventory, "a NUMATopologyInventory")
        cells = inventory.cells
        counts = {
            "shared CPUs": sum(len(cell.shared) for cell in cells),
            "dedicated CPUs": sum(len(cell.dedicated) for cell in cells),
            "MiB": sum(cell.memory_mb for cell in cells),
        }
        said = " ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"cell {'+'.join(str(cell.id) for cell in cells)}: {said}"


#: The resource of NUMA topologies.
NUMA_TOPOLOGY = NUMATopologyResource(
    "NUMA_TOPOLOGY", "processor", "cells", "CPUs and memory that are near each other"
)
