"""The view under a compute node: a record bound to a host of a ledger.

What belongs to the ledger's side of it, pure merging and reading, is in ``_compute_ledger``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from resource_objects import exceptions, names
from resource_objects.exceptions import CapacityException, Reason, Rule
from resource_objects.host import _compute_ledger as ledgers
from resource_objects.host._compute_columns import KINDS, Kind
from resource_objects.host._compute_ledger import Binding, Sent, unattributed
from resource_objects.host._compute_live import follow_total
from resource_objects.host._compute_record import Record, units
from resource_objects.host.ratios import stated_ratio
from resource_objects.providers import Claim, DefinitionChanges, Provider
from resource_objects.resources import Amounts, IntegerInventory

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


class View(Record):
    """A record that may belong to a ledger; the public half is ``ComputeNode``."""

    _bound: Binding | None = None

    def _unit_rules(self, kind: Kind, total: int) -> dict[str, Any]:
        """Return the rules that the ledger has, else those that Nova reports."""
        kept = None if self._bound is None else self._bound.kept_inventory(kind.resource_class)
        if kept is None:
            return super()._unit_rules(kind, total)
        most = follow_total(kept.max_unit, kept.total, total)
        return {"min_unit": kept.min_unit, "max_unit": most, "step_size": kept.step_size}

    def _claimed_with(self, resource_class: str) -> int:
        """Return what the consumer holds after a save: unit rules bind all of it."""
        if self._bound is None or self._bound.aggregate:
            return 0
        return self._bound.holds.get(resource_class, 0) + units(self.pending, resource_class)

    # --- whose view it is ---

    def _host_name(self) -> str:
        for name in ("hypervisor_hostname", "host"):
            found: str | None = self._value(name, None)
            if found is not None:
                return found
        raise exceptions.InvalidName("provider name", None, "hypervisor_hostname or host to be set")

    def _provider_uuid(self) -> str | None:
        uuid = self._value("uuid", None)
        return None if uuid is None else names.uuid_text(uuid)

    def _binding(self) -> Binding:
        if self._bound is None:
            host = self._value("hypervisor_hostname", None) or self._value("host", None)
            raise exceptions.NotBound(host or "compute node")
        return self._bound

    def _attach(
        self, ledger: Ledger, name: str, consumer: str | None, found: ledgers.Host | None
    ) -> None:
        holder = names.consumer_name(unattributed(name) if consumer is None else consumer)
        was, made = self._bound, Binding(ledger, name, holder, aggregate=consumer is None).at(found)
        if was is not None and was.writes_where(made):
            made = dataclasses.replace(made, sent=was.sent)
        self._bound = made
        self._context = ledger

    def _stated(self) -> dict[str, dict[str, Any]]:
        """Return the figures that this node states and does not only assume."""
        found: dict[str, dict[str, Any]] = {name: {} for name in KINDS}
        for name, kind in KINDS.items():
            if self._has(kind.total):
                found[name]["total"] = self._value(kind.total)
            if self._has("reserved"):
                found[name]["reserved"] = self._reserved_of(kind)
            if name in self.ratios or stated_ratio(kind.ratio, self._value(kind.ratio, None)):
                found[name]["allocation_ratio"] = self._ratio_of(kind)
        return found

    def _adopt_ratios(self, stated: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over the ledger's ratios where this node states none; no column is changed."""
        kept = ledgers.counted_inventories(self._binding().kept)
        adopted = {
            name: inventory.allocation_ratio
            for name, inventory in kept.items()
            if "allocation_ratio" not in stated[name]
        }
        self._set("ratios", {**self.ratios, **adopted})

    # --- counting from the ledger ---

    def _rebase(
        self, kept: Provider | None, pending: Amounts, stated: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Count from what the ledger has, but for what is stated here, with pending on top."""
        inventories = ledgers.counted_inventories(kept)
        with self._all_or_nothing():
            for name, kind in KINDS.items():
                has = inventories.get(name)
                says = stated.get(name, {})
                used = 0 if has is None else has.used
                change = units(pending, name)
                if used + change < 0:
                    raise CapacityException([_gives_back_too_much(name, change, used, kept)])
                if kept is not None or "total" in says:
                    self._rebase_one(kind, has, says, used + change)
            self._set("pending", pending)

    def _rebase_one(
        self, kind: Kind, has: IntegerInventory | None, says: Mapping[str, Any], used: int
    ) -> None:
        reserved = says.get("reserved", 0 if has is None else has.reserved)
        self._set(kind.total, says.get("total", 0 if has is None else has.total))
        self._set_reserved(kind, reserved)
        self._set(kind.used, used + reserved)
        if has is not None and "allocation_ratio" not in says:
            self._state_ratio_if_other(kind, has)

    def _state_ratio_if_other(self, kind: Kind, has: IntegerInventory) -> None:
        if has.allocation_ratio != self._ratio_of(kind):
            self._state_ratio(kind, has.allocation_ratio)

    def _read_again(self, uuid: str | None = None) -> Binding:
        """Return the binding with the host as it is now; ``uuid`` of one that was just made."""
        binding = self._binding()
        found = (
            binding.read()
            if uuid is None
            else ledgers.read_host(binding.ledger, binding.provider, uuid)
        )
        if found is None:
            raise exceptions.ProviderNotFound(binding.provider)
        return binding.at(found)

    # --- writing ---

    def _save_definition(self) -> DefinitionChanges | None:
        binding = self._binding()
        now: dict[str, IntegerInventory | None] = {
            name: None for name, kind in KINDS.items() if self._has(kind.total)
        }
        now.update({figures.resource_class or "": figures for figures in self._figures()})
        edits = ledgers.edits_of(binding.kept, now)
        if not edits and binding.kept is not None:
            return None
        changes, uuid = ledgers.save_definition(binding, edits, self.pending, self._provider_uuid())
        fresh = self._read_again(uuid)
        self._rebase(fresh.kept, self.pending, {})
        self._bound = fresh
        self._refresh()
        return changes

    def _send_again(self, doing: str | None) -> Claim | None:
        """Ask for the outcome of what was sent when the connection was lost."""
        sent = self._binding().sent
        if sent is None:
            return None
        if doing == sent.operation and self.pending != sent.amounts:
            raise exceptions.OperationConflict(doing, "it was sent for a smaller change")
        return self._send(sent)

    def _send(self, sent: Sent) -> Claim:
        """Adjust what the consumer holds; remember what was sent until the outcome is known."""
        binding = self._binding()
        self._bound = dataclasses.replace(binding, sent=sent)
        try:
            claim = binding.ledger.adjust(
                binding.consumer,
                {binding.uuid or binding.provider: sent.amounts},
                aggregate=binding.aggregate,
                operation=sent.operation,
            )
        except exceptions.LostConnection:
            raise
        except exceptions.ProviderNotFound as error:  # it names the uuid, people the host
            self._bound = dataclasses.replace(binding, sent=None)
            raise exceptions.ProviderNotFound(binding.provider) from error
        except exceptions.ResourceObjectsError:
            self._bound = dataclasses.replace(binding, sent=None)
            raise
        self._bound = dataclasses.replace(binding, sent=None)
        self._set("pending", self.pending - sent.amounts)
        return claim

    # --- copies ---

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the record; the copy is a view of the same ledger."""
        twin = super().__deepcopy__(memo)
        twin._bound = self._bound
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the record, without the ledger."""
        return {**super().__getstate__(), "_bound": None}


def _gives_back_too_much(name: str, change: int, used: int, kept: Provider | None) -> Reason:
    where = None if kept is None else kept.name
    return Reason(Rule.USED_BELOW_ZERO, change, bound=0, used=used, resource=name, where=where)
