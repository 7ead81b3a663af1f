"""What an operator sets of hosts besides what their drivers say: ratios and reserved amounts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Self

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers import Provider
from resource_objects.ratio import to_ratio
from resource_objects.resources import Amounts, IntegerInventory, Inventories, text
from resource_objects.resources.catalog import by_name
from resource_objects.resources.numa import NUMATopologyInventory

#: The ratios of cells, by the class of the host that they are about.
_OF_CELLS = {"VCPU": "cpu_ratio", "MEMORY_MB": "memory_ratio"}


@dataclasses.dataclass(frozen=True, slots=True)
class HostSettings:
    """What is set of every host, whatever its driver says; of the host itself and of its cells.

    =============  =================================================================================
    a ratio        counts in place of what the driver says
    None           keeps what the ledger has; a new inventory has the initial one
    an initial     counts when an inventory is new, and is kept from then on
    reserved       counts in place of what the driver says is reserved of the host
    not named      what the driver says
    =============  =================================================================================

    Source: Nova's *initial-allocation-ratios*. What is given out more often than it exists, one
    consumer cannot have more of than exists. A class that a host does not have is left out there.

    >>> settings = HostSettings.of("VCPU=16", None, "MEMORY_MB=512")
    >>> tree = Provider("box", "VCPU=8,MEMORY_MB=4096")
    >>> settings.apply(tree, None)
    ()
    >>> print(tree)
    box: VCPU=8:max_unit=8:allocation_ratio=16,MEMORY_MB=4096:reserved=512
    """

    ratios: Mapping[str, Decimal | None]
    initial_ratios: Mapping[str, Decimal]
    reserved: Mapping[str, int]

    @classmethod
    def of(cls, ratios: Any = None, initial_ratios: Any = None, reserved: Any = None) -> Self:
        """Return settings as a caller gives them.

        :param ratios: ``"VCPU=16"`` or ``{"VCPU": 16, "MEMORY_MB": None}``
        :param initial_ratios: the same, without None
        :param reserved: amounts
        :raises InvalidInput: if they are none
        """
        amounts = Amounts({} if reserved is None else reserved)
        records = [r for name, one in amounts.by_name() for r in one.to_records(name)]
        for record in records:
            if record.amount < 0:
                raise exceptions.InvalidInput(
                    "negative amount", "reserved", record.amount, "0 or more"
                )
        initial = _ratios("initial_ratios", initial_ratios)
        return cls(
            FrozenDict(_ratios("ratios", ratios)),
            FrozenDict({name: one for name, one in initial.items() if one is not None}),
            FrozenDict({record.resource_class: record.amount for record in records}),
        )

    def __bool__(self) -> bool:
        return bool(self.ratios or self.initial_ratios or self.reserved)

    def apply(self, tree: Provider, kept: Provider | None) -> tuple[exceptions.InvalidInput, ...]:
        """Set them in a tree; return the errors of inventories in which they are invalid.

        Such an inventory, of which more is reserved than there is, stays as it is stored; a new one
        is left out.

        :param kept: the stored tree, None of a new host
        """
        if not self:
            return ()
        before = {} if kept is None else {one.name: one for one in kept.walk()}
        errors = self._set_counts(tree, before.get(tree.name))
        for child in tree.children:
            self._set_cells(child, before.get(child.name))
        return tuple(errors)

    def _ratio(self, name: str, kept: Decimal | None, said: Decimal) -> Decimal:
        set_to = self.ratios.get(name)
        if set_to is not None:
            return set_to
        if name not in self.ratios and name not in self.initial_ratios:
            return said
        return self.initial_ratios.get(name, said) if kept is None else kept

    def _set_counts(self, host: Provider, kept: Provider | None) -> list[exceptions.InvalidInput]:
        found: dict[Any, Any] = dict(host.inventories.by_name())
        errors: list[exceptions.InvalidInput] = []
        for name in sorted({*self.ratios, *self.initial_ratios, *self.reserved} & {*found}):
            inventory = found[name]
            if not isinstance(inventory, IntegerInventory):
                continue
            before = None if kept is None else dict(kept.inventories.by_name()).get(name)
            was = before.allocation_ratio if isinstance(before, IntegerInventory) else None
            figures: dict[str, Any] = {
                "allocation_ratio": self._ratio(name, was, inventory.allocation_ratio),
                "reserved": self.reserved.get(name, inventory.reserved),
            }
            if figures["allocation_ratio"] > 1:
                most = inventory.max_unit
                figures["max_unit"] = min(inventory.total, most or inventory.total) or None
            found[name] = inventory.obj_clone()
            try:
                found[name].update(**figures)
            except exceptions.InvalidInput as error:
                errors.append(error)
                found[name] = before
        there = {name: inventory for name, inventory in found.items() if inventory is not None}
        host.update(inventories=Inventories(there))
        return errors

    def _set_cells(self, child: Provider, kept: Provider | None) -> None:
        for name, inventory in child.inventories.by_name():
            if not isinstance(inventory, NUMATopologyInventory):
                continue
            before = None if kept is None else dict(kept.inventories.by_name()).get(name)
            figures = {
                field: self._ratio(count, getattr(before, field, None), getattr(inventory, field))
                for count, field in _OF_CELLS.items()
            }
            found = inventory.obj_clone()
            if found.update(**figures):
                own = dict(child.inventories.by_name())
                child.update(inventories=Inventories({**own, name: found}))


def _ratios(what: str, given: Any) -> dict[str, Decimal | None]:
    if given is None:
        return {}
    pairs = given if isinstance(given, Mapping) else text.pairs(given, what)
    found = by_name(pairs, lambda _, ratio: None if ratio is None else to_ratio(ratio), what)
    if found.get("PCPU") not in (None, 1):
        raise exceptions.InvalidInventory(what, "PCPU", "none: a dedicated CPU is given out once")
    return found
