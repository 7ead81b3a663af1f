"""How a view writes the definition of its host: figure by figure, merged into what is there now.

The definition is not handed to ``ledger.sync``: sync makes the kept tree look like the one it is
given, so a child that somebody adds between our reading and our writing would go. Instead the tree
is read, the merge computed, and exactly that one change written at the generation that was read.
"""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException, Reason, Rule
from resource_objects.host._compute_ledger import (
    Binding,
    Host,
    Pending,
    counted_inventories,
    kept_count,
    refuse_other_uuid,
)
from resource_objects.host._compute_live import follow_total
from resource_objects.host._compute_located import CPUS, NUMA, gives_back_first, taken_of_host
from resource_objects.host._compute_pci import PCI
from resource_objects.host._compute_record import units
from resource_objects.providers import DefinitionChanges, Provider, decision, diff
from resource_objects.providers.blame import with_holders
from resource_objects.providers.columns import Columns
from resource_objects.providers.located import add_parts
from resource_objects.providers.plan import Plan
from resource_objects.providers.usage import usage_of
from resource_objects.resources import Amount, IntegerInventory, Inventories
from resource_objects.resources.numa import NUMATopologyInventory
from resource_objects.resources.pci import PCIInventory

#: The figures of a definition that a compute node has a word for.
FIGURES = ("total", "reserved", "allocation_ratio")


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """What a view wants of its host: what it changed, and what is pending on top.

    ``cells`` and ``devices`` are made with the host, if it is made.
    """

    edits: Mapping[str, Edit]
    pending: Pending
    cells: NUMATopologyInventory | None = None
    devices: PCIInventory | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """How a view changed one resource: ``{figure: (before, after)}``, and what it is now."""

    figures: Mapping[str, tuple[Any, Any]]
    before: IntegerInventory | None
    now: IntegerInventory | None


def edits_of(kept: Provider | None, now: Mapping[str, IntegerInventory | None]) -> dict[str, Edit]:
    """Return how the inventories ``now`` differ from the host as it was read. Pure."""
    found: dict[str, Edit] = {}
    for name, inventory in now.items():
        before = counted_inventories(kept).get(name)
        figures = {
            figure: pair
            for figure in FIGURES
            if (pair := (getattr(before, figure, None), getattr(inventory, figure, None)))
            and pair[0] != pair[1]
        }
        if figures:
            found[name] = Edit(figures, before, inventory)
    return found


def merge(host: Provider, edits: Mapping[str, Edit]) -> Inventories:
    """Return what the host has with the edits of a view. Pure; other classes stay as they are.

    :raises StaleDefinition: if a figure was changed here and by somebody else
    """
    merged = Inventories(dict(host.inventories))
    for name, edit in edits.items():
        current = counted_inventories(host).get(name)
        _refuse_conflict(host.name, name, edit, current)
        if edit.now is None:
            if current is not None:
                del merged[name]
        elif current is None:
            merged[name] = edit.now
            merged[name].update(used=0)
        else:
            after = {figure: pair[1] for figure, pair in edit.figures.items()}
            total = after.get("total", current.total)
            most = follow_total(current.max_unit, current.total, total)
            merged[name].update(**after, max_unit=most)
    return merged


def _refuse_conflict(host: str, name: str, edit: Edit, current: IntegerInventory | None) -> None:
    for figure, (before, after) in edit.figures.items():
        found = getattr(current, figure, None)
        if found not in (before, after):
            raise exceptions.StaleDefinition(
                host, f"{name} {figure} was {before}, is {found} now, and was to be {after}"
            )


def save_definition(
    binding: Binding, wanted: Wanted, uuid: str | None
) -> tuple[DefinitionChanges, str]:
    """Write the edits of a view, making the host if it was not there; return the host's uuid too.

    :raises ProviderExists: if the host was not there, and its name is another machine's now
    :raises StaleDefinition: if a figure was changed here and by somebody else
    :raises ProviderNotFound: if the host is gone
    :raises CountedTwice: if a pool gives the host a class that would be counted there too
    :raises CapacityException: if what is pending would not fit afterwards; nothing was written
    :raises InvalidInventory: for cells that a ledger cannot keep
    """
    tries = binding.ledger.retries.definitions
    while True:
        changes, host_uuid = _definition_changes(binding, wanted, uuid)
        try:
            if changes:
                binding.ledger.apply(Plan(definitions=changes))
            return changes, host_uuid
        except (exceptions.StaleDefinition, exceptions.ProviderExists):
            tries -= 1
            if tries <= 0:
                raise


def _definition_changes(
    binding: Binding, wanted: Wanted, uuid: str | None
) -> tuple[DefinitionChanges, str]:
    found = binding.read()
    if found is None:
        made_uuid = uuid or str(uuids.uuid4())
        made = Provider(binding.provider, {}, uuid=made_uuid)
        made.inventories = merge(made, wanted.edits)
        if wanted.cells is not None:
            _add_cells(made, wanted.cells)
        if wanted.devices is not None:
            add_parts(made, PCI, wanted.devices)
        decide(binding, made, Columns(), wanted)
        return diff(None, made), made_uuid
    if binding.kept is None:
        refuse_other_uuid(found.provider, uuid)
    tree = found.tree.obj_clone()
    host = tree.find(found.provider.name)
    host.inventories = merge(host, wanted.edits)
    decide(binding, host, found.columns, wanted)
    if wanted.pending.devices:
        decide_located(found, PCI, wanted.pending.devices)
    return diff(found.tree, tree), found.provider.uuid or ""


def _add_cells(host: Provider, cells: NUMATopologyInventory) -> None:
    """Give a host that is made its cells, and the dedicated CPUs that they have together."""
    dedicated = sum(len(cell.dedicated) for cell in cells.cells)
    if dedicated:
        cpus = IntegerInventory(dedicated, max_unit=dedicated)
        host.inventories = Inventories({**dict(host.inventories), CPUS: cpus})
    add_parts(host, NUMA, cells)


def decide(binding: Binding, host: Provider, columns: Columns, wanted: Wanted) -> None:
    """Refuse what would not fit once the host looks like this.

    :raises CapacityException: with every reason
    """
    reasons = list(_reasons(binding, host, columns, wanted))
    if reasons:
        raise CapacityException.of(reasons)


def _reasons(
    binding: Binding, host: Provider, columns: Columns, wanted: Wanted
) -> Iterator[Reason]:
    amounts = wanted.pending.amounts
    for name in amounts.names():
        asked = units(amounts, name)
        in_cells = taken_of_host(wanted.pending.topologies, name)
        holders = _holders(columns, host.name, name)
        holds = dict(holders).get(binding.consumer, 0)
        inventory = kept_count(host, name)
        if holds + asked - in_cells < 0:
            yield decision.not_held(name, asked - in_cells, holds, host.name)
        elif inventory is None:
            yield decision.absent(name, asked, host.name)
        else:
            (record,) = inventory.to_records()
            # unit rules bind what is held at one place: not what cells give together with the host
            aggregate = binding.aggregate or bool(in_cells)
            for reason in decision.refusals(record, asked, host.name, holds, aggregate=aggregate):
                yield decision.held_by(reason, holders)


def decide_located(found: Host, kind: str, pending: Iterable[Amount]) -> None:
    """Refuse what lies over the tree of a host and would not fit there now.

    :raises CapacityException: with who holds what
    :raises ForeignAmount: if something is assigned to what is not there any more
    """
    located = found.located().get(kind)
    for amount in gives_back_first(pending):
        if located is None:
            absent = Reason(Rule.NO_INVENTORY, 1, 0, 0, kind, where=found.provider.name)
            raise CapacityException.of([absent])
        try:
            located.inventory.consume(amount)
        except CapacityException as refusal:
            raise with_holders(refusal, located, found.columns, {kind: amount}) from refusal


def _holders(columns: Columns, host: str, name: str) -> tuple[tuple[str, int], ...]:
    for use in usage_of(columns):
        if (use.provider, use.resource_class) == (host, name):
            return use.holders
    return ()
