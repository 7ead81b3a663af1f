"""The view under a compute node: what is pending is written to the ledger.

What belongs to the ledger's side of it, pure merging and reading, is in ``_compute_ledger``,
``_compute_definition`` and ``_compute_sending``.
"""

from __future__ import annotations

import dataclasses

from resource_objects import exceptions
from resource_objects.host import _compute_definition as definitions
from resource_objects.host import _compute_sending as sending
from resource_objects.host._compute_bound import Bound
from resource_objects.host._compute_columns import KINDS
from resource_objects.host._compute_ledger import Binding, Pending, Sent
from resource_objects.host._compute_placed import with_devices, with_placed
from resource_objects.providers import Claim, DefinitionChanges
from resource_objects.providers.backend import Operation
from resource_objects.resources import IntegerInventory


class View(Bound):
    """A record that is saved to a ledger; the public half is ``ComputeNode``."""

    @property
    def _pending(self) -> Pending:
        return Pending(self.pending, self.pending_topologies, self.pending_devices)

    def _save_definition(self) -> DefinitionChanges | None:
        binding = self._binding()
        now: dict[str, IntegerInventory | None] = {
            name: None for name, kind in KINDS.items() if self._has(kind.total)
        }
        now.update({figures.resource_class or "": figures for figures in self._figures()})
        edits = definitions.edits_of(binding.kept, now)
        if not edits and binding.kept is not None:
            return None
        wanted = definitions.Wanted(edits, self._pending)
        if binding.kept is None:
            made = self._cells_there(), self._devices_there(binding)
            wanted = definitions.Wanted(edits, self._pending, *made)
        changes, uuid = definitions.save_definition(binding, wanted, self._provider_uuid())
        self._count_anew(self._read_again(uuid), self._pending)
        return changes

    def _count_anew(self, binding: Binding, pending: Pending) -> None:
        """Count from a host as it was just read; refused: nothing changed."""
        was, self._bound = self._bound, binding
        try:
            self._rebase(pending, {})
        except BaseException:
            self._bound = was
            raise
        self._refresh()

    def _send_again(self, doing: str | None) -> Claim | None:
        """Ask for the outcome of what was sent when the connection was lost."""
        sent = self._binding().sent
        if sent is None:
            return None
        if doing == sent.operation and sent.what != self._pending:
            raise exceptions.OperationConflict(doing, "it was sent for a smaller change")
        return self._send(sent)

    def _send_pending(self, operation: str) -> Claim | None:
        """Send what is pending, if anything is."""
        if not self._pending:
            return None
        steps = sending.steps_of(self._binding(), Sent(operation, self._pending))
        if len(steps) > 1:
            self._decide_first(steps[0].operation)
        claim: Claim | None = None
        for step in steps:
            claim = self._send(step) or claim
        return claim

    def _decide_first(self, first: str) -> None:
        """Refuse what would not fit if all were sent now, unless the first step is done already."""
        binding = self._binding()
        if binding.ledger.backend.outcome(Operation(first)) is not None:
            return
        found = binding.read()
        if found is None:
            raise exceptions.ProviderNotFound(binding.provider)
        wanted = definitions.Wanted({}, self._pending)
        definitions.decide(binding, found.provider, found.columns, wanted)
        for kind, amounts in self._pending.located():
            definitions.decide_located(found, kind, amounts)

    def _send(self, sent: Sent) -> Claim | None:
        """Adjust what the consumer holds; remember what was sent until the outcome is known.

        What is given back and taken again is nothing to send.
        """
        binding = self._binding()
        changes = sending.changes_of(binding, sent)
        if not changes:
            self._forget_sent(sent)
            return None
        self._bound = dataclasses.replace(binding, sent=sent)
        try:
            claim = binding.ledger.adjust(
                binding.consumer,
                changes,
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
        self._forget_sent(sent)
        return claim

    def _forget_sent(self, sent: Sent) -> None:
        self._set("pending", self.pending - sent.what.amounts)
        topologies, devices = self.pending_topologies, self.pending_devices
        for topology in sent.what.topologies:
            topologies = with_placed(topologies, -topology)
        for amount in sent.what.devices:
            devices = with_devices(devices, -amount)
        self._set("pending_topologies", topologies)
        self._set("pending_devices", devices)
