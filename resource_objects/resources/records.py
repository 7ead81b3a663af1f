"""How inventories and amounts are kept: flat records that every backend understands.

A kind turns itself into records and back, purely (``Inventory.to_records`` and ``describe``,
``Resource.inventory_from_storage``); the rooms above ask the kind and name none, so a plug-in's
kind is kept like ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from resource_objects._dataclass import fast_init


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class InventoryRecord:
    """The figures of one (provider, resource class), integers only.

    ``ratio_millionths`` is the allocation ratio times 1,000,000; ``capacity`` is
    floor((total - reserved) * ratio), stored because databases guard it.
    """

    resource_class: str
    total: int
    reserved: int
    min_unit: int
    max_unit: int | None
    step_size: int
    ratio_millionths: int
    capacity: int
    used: int = 0

    def definition(self) -> InventoryRecord:
        """Return the record without what is used: what a provider declares."""
        return self.using(0)

    def using(self, used: int) -> InventoryRecord:
        """Return the record with another figure of use; a claim makes one per inventory."""
        return InventoryRecord(
            self.resource_class,
            self.total,
            self.reserved,
            self.min_unit,
            self.max_unit,
            self.step_size,
            self.ratio_millionths,
            self.capacity,
            used,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class KindRecord:
    """What a structured inventory is, beside its figures.

    ``classes`` are the classes its inventory records are of, ``body`` is what its kind has to say
    (JSON; it only describes: figures and units are rows). A plain inventory, which is one record
    of its own class, has none.
    """

    resource_class: str
    classes: tuple[str, ...]
    body: str


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class AmountRecord:
    """A plain count of one resource class, with the units taken by name, if any."""

    resource_class: str
    amount: int
    units: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class InventoryPart:
    """One provider's part of an inventory that lies over several.

    ``name`` is what is added to the name of the provider above; ``inventory`` is the part, of the
    same resource; each unit of the classes in ``of_host`` is a unit of the provider above too.
    ``traits`` are those of the provider, and ``within`` says what uses up what else there:
    ``(class, factor, other class)``.
    """

    name: str
    inventory: Any
    host_classes: tuple[str, ...] = ()
    traits: frozenset[str] = frozenset()
    uses: tuple[tuple[str, int, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class StoredPart:
    """A part as it is kept: its figures with what is used, what was described, units taken.

    ``units`` are those taken, by class; ``traits`` those of its provider; ``left`` is what its
    shares leave, by its own class: less than one, and something else has used it up. ``out`` are
    units that are not to be given, though nobody has them; ``records`` count these as used.
    Under a limit ``records`` count what it holds back as used too, and ``left`` leaves it out:
    ``unlimited`` is the part without that, for who has units with an identity. A limit bounds how
    many are used, it does not say which.
    """

    records: tuple[InventoryRecord, ...]
    description: str | None
    units: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    traits: frozenset[str] | None = None
    left_by_shares: Mapping[str, int] = dataclasses.field(default_factory=dict)
    unavailable: frozenset[str] = frozenset()
    without_limit: StoredPart | None = None
