"""Taking over inventories that somebody states: checked first, then written all or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resource_objects import exceptions
from resource_objects.host._compute_columns import KINDS, Kind
from resource_objects.host._compute_located import CPUS, NUMA
from resource_objects.host._compute_pci import PCI
from resource_objects.host._compute_view import View
from resource_objects.host.ratios import counted_class
from resource_objects.resources import IntegerInventory, Inventories, Inventory, resource

_NOT_SAID: Any = object()


class Adapter(View):
    """A view whose inventories can be stated; the public half is ``ComputeNode``."""

    def _take_over(self, inventories: Mapping[Any, Inventory | None]) -> bool:
        """Write inventories into the columns; return whether anything changed."""
        wanted: dict[str, Any] = {}
        for key, given in inventories.items():
            name = resource(key).name
            if name in wanted:
                raise exceptions.DuplicateKey("inventories", name, "each resource once")
            wanted[name] = self._taken_over(name, given)
        before = self._counted()
        with self._all_or_nothing():
            if NUMA in wanted:
                self._write_cells(wanted.pop(NUMA))
            if PCI in wanted:
                self._write_devices(wanted.pop(PCI))
            cpus = wanted.pop(CPUS, _NOT_SAID)
            for name, given in wanted.items():
                if given is None:
                    self._set(KINDS[name].total, 0)
                else:
                    self._write_figures(KINDS[name], given)
            if cpus is not _NOT_SAID:
                self._state_cpus(cpus)
        self._refresh()
        return before != self._counted()

    def _taken_over(self, name: str, given: Any) -> Any:
        """Return what is given for a resource, checked and labelled; None stays None."""
        if name == CPUS:
            return given  # what it has to say, the cells know that are taken over with it
        if name == NUMA:
            return None if given is None else self._checked_cells(given)
        if name == PCI:
            return None if given is None else self._checked_devices(given)
        kind = KINDS[counted_class(name, "inventories of a compute node")]
        return None if given is None else self._checked(kind, given)

    def _checked(self, kind: Kind, given: Any) -> IntegerInventory:
        """Return a labelled copy of an inventory that the columns can say."""
        labelled = Inventories({kind.resource_class: given})[kind.resource_class]
        if not isinstance(given, Inventory) or not isinstance(labelled, IntegerInventory):
            raise exceptions.InvalidInventory(kind.resource_class, given, "an IntegerInventory")
        usual = self._unit_rules(kind, labelled.total)
        plain = {"min_unit": 1, "max_unit": None, "step_size": 1}
        for rule, value in usual.items():
            said = getattr(labelled, rule)
            if said not in (value, plain[rule]):
                raise exceptions.InvalidInventory(
                    f"{kind.resource_class} {rule}", said, f"{value}: no column says another"
                )
        self._coerce(kind.used, labelled.used + labelled.reserved)
        return labelled
