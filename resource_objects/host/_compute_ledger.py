"""How a compute node, as a view, meets the ledger: what it read, what it changes, what it sent.

A view never writes what it *has*, only what it *changed*. Two sorts of changes go two ways:

* **what is used** goes as deltas of one consumer, through ``ledger.adjust``, which is guarded;
* **the definition** (totals, reserved, ratios) is merged, figure by figure, into the host as it is
  now: a figure that was changed here is written, one that was not stays what others made of it, and
  one that both changed is a conflict (``StaleDefinition``).

The definition is not handed to ``ledger.sync``: sync makes the kept tree look like the one it is
given, so a child that somebody adds between our reading and our writing would go. Instead the tree
is read, the merge computed, and exactly that one change written at the generation that was read.

The ledger has no write that does both sorts at once. So a save that has both first decides, purely
and on fresh figures, whether all of it fits, and writes nothing if it does not; then writes the
definition, then the claim. If somebody takes what was free between these two, the claim is refused
and the definition stays: it says what the host has, which is true whoever holds it. (Taking it back
could leave others with more than there is.)
"""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException, Reason
from resource_objects.host._compute_columns import KINDS
from resource_objects.host._compute_live import follow_total
from resource_objects.providers import Claim, DefinitionChanges, Provider, decision, diff
from resource_objects.providers.columns import Columns, find
from resource_objects.providers.plan import Plan
from resource_objects.providers.usage import usage_of
from resource_objects.resources import Amounts, IntegerInventory, Inventories

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: The figures of a definition that a compute node has a word for.
FIGURES = ("total", "reserved", "allocation_ratio")


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """A change of usage that was sent, by the id of its operation."""

    operation: str
    amounts: Amounts


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """Where a view writes to. ``kept`` is the host as last read, None if it was not there.

    A host that is there is known by its uuid, for names move: ``provider`` is only what it was
    called when it was read. ``holds`` is what the consumer held there then, by resource class.
    ``sent`` is a change whose outcome is not known: the connection was lost meanwhile.
    """

    ledger: Ledger
    provider: str
    consumer: str
    kept: Provider | None = None
    holds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    sent: Sent | None = None
    aggregate: bool = False  # whether the consumer stands for many, of whom nothing is known

    def at(self, found: Host | None) -> Binding:
        """Return the binding to a host as it was read, None if it was not there."""
        if found is None:
            return dataclasses.replace(self, kept=None, holds={})
        return dataclasses.replace(
            self,
            provider=found.provider.name,
            kept=found.provider,
            holds=found.held_by(self.consumer),
        )

    @property
    def uuid(self) -> str | None:
        """The uuid of the host, None if it was not there."""
        return None if self.kept is None else self.kept.uuid

    def writes_where(self, other: Binding) -> bool:
        """Return whether both write to the same host as the same consumer."""
        host = self.uuid or self.provider, other.uuid or other.provider
        same = (self.ledger, self.consumer) == (other.ledger, other.consumer)
        return same and host[0] == host[1]

    def read(self) -> Host | None:
        """Return the host as it is now, None if it is not there.

        :raises ProviderNotFound: if it was there and is gone
        """
        found = read_host(self.ledger, self.provider, self.uuid)
        if found is None and self.kept is not None:
            raise exceptions.ProviderNotFound(self.provider)
        return found

    def kept_inventory(self, resource_class: str) -> IntegerInventory | None:
        """Return what the ledger had of a resource when it was last read."""
        return counted_inventories(self.kept).get(resource_class)


@dataclasses.dataclass(frozen=True, slots=True)
class SaveResult:
    """What a save wrote: the claim of its consumer, the definition of the host. True if anything.

    ``claim`` is all that the consumer holds now, None if nothing was taken or given back.
    """

    claim: Claim | None = None
    definition: DefinitionChanges | None = None

    def __bool__(self) -> bool:
        return self.claim is not None or bool(self.definition)

    def __str__(self) -> str:
        parts = [str(part) for part in (self.definition, self.claim) if part]
        return "\n".join(parts) or "nothing changed"


def unattributed(host: str) -> str:
    """Return the name of the consumer of a host that holds what nobody in particular uses.

    >>> unattributed("host0")
    'host0/unattributed'
    """
    return f"{host}/unattributed"


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """A host in its tree, read at one moment."""

    tree: Provider
    provider: Provider
    columns: Columns

    def held_by(self, consumer: str) -> dict[str, int]:
        """Return what a consumer holds of the host itself, by resource class."""
        ids = self.columns.providers.uuid, self.columns.providers.provider_id
        here = dict(zip(*ids, strict=True))[self.provider.uuid or ""]
        return {
            kind: amount
            for provider_id, kind, holder, amount in zip(*self.columns.allocations, strict=True)
            if (provider_id, holder) == (here, consumer)
        }


def require_ledger(given: object) -> None:
    """Refuse what is no ledger.

    :raises InvalidInput: if it is something else
    """
    from resource_objects.ledger import Ledger  # whoever has one has loaded it

    if not isinstance(given, Ledger):
        raise exceptions.InvalidInput("ledger", given, "a Ledger, as connect() returns")


def read_host(ledger: Ledger, name: str, uuid: str | None = None) -> Host | None:
    """Return the host of a name or uuid as it is now, None if it is not in the ledger.

    With a ``uuid``, only the host of that uuid will do, whatever it is called.
    """
    key = uuid or name
    columns = ledger.backend.read(key)
    found = find(columns, key)  # a uuid is nobody's name but its own provider's
    return None if found is None else Host(*found, columns)


def refuse_other_uuid(found: Provider, uuid: str | None) -> None:
    """Refuse a provider of the right name that is another machine.

    :raises ProviderExists: if it has another uuid
    """
    if uuid not in (None, found.uuid):
        raise exceptions.ProviderExists(found.name, f"with the uuid {found.uuid}, not {uuid}")


# --- the definition -------------------------------------------------------------------------------


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
    binding: Binding, edits: Mapping[str, Edit], pending: Amounts, uuid: str | None
) -> tuple[DefinitionChanges, str]:
    """Write the edits of a view, making the host if it was not there; return the host's uuid too.

    :raises ProviderExists: if the host was not there, and its name is another machine's now
    :raises StaleDefinition: if a figure was changed here and by somebody else
    :raises ProviderNotFound: if the host is gone
    :raises CountedTwice: if a pool gives the host a class that would be counted there too
    :raises CapacityException: if ``pending`` would not fit afterwards; nothing was written
    """
    tries = binding.ledger.retries.definitions
    while True:
        changes, host_uuid = _definition_changes(binding, edits, pending, uuid)
        try:
            if changes:
                binding.ledger.apply(Plan(definitions=changes))
            return changes, host_uuid
        except (exceptions.StaleDefinition, exceptions.ProviderExists):
            tries -= 1
            if tries <= 0:
                raise


def _definition_changes(
    binding: Binding, edits: Mapping[str, Edit], pending: Amounts, uuid: str | None
) -> tuple[DefinitionChanges, str]:
    found = binding.read()
    if found is None:
        made_uuid = uuid or str(uuids.uuid4())
        made = Provider(binding.provider, {}, uuid=made_uuid)
        made.inventories = merge(made, edits)
        _decide(binding, made, Columns(), pending)
        return diff(None, made), made_uuid
    if binding.kept is None:
        refuse_other_uuid(found.provider, uuid)
    wanted = found.tree.obj_clone()
    host = wanted.find(found.provider.name)
    host.inventories = merge(host, edits)
    _decide(binding, host, found.columns, pending)
    return diff(found.tree, wanted), found.provider.uuid or ""


def _decide(binding: Binding, host: Provider, columns: Columns, pending: Amounts) -> None:
    """Refuse what would not fit once the host looks like this."""
    reasons = list(_reasons(binding, host, columns, pending))
    if reasons:
        raise CapacityException.of(reasons)


def _reasons(
    binding: Binding, host: Provider, columns: Columns, pending: Amounts
) -> Iterator[Reason]:
    for name, amount in pending.by_name():
        asked = sum(record.amount for record in amount.to_records(name))
        holders = _holders(columns, host.name, name)
        holds = dict(holders).get(binding.consumer, 0)
        inventory = counted_inventories(host).get(name)
        if holds + asked < 0:
            yield decision.not_held(name, asked, holds, host.name)
        elif inventory is None:
            yield decision.absent(name, asked, host.name)
        else:
            (record,) = inventory.to_records()
            for reason in decision.refusals(
                record, asked, host.name, holds, aggregate=binding.aggregate
            ):
                yield decision.held_by(reason, holders)


def _holders(columns: Columns, host: str, name: str) -> tuple[tuple[str, int], ...]:
    for use in usage_of(columns):
        if (use.provider, use.resource_class) == (host, name):
            return use.holders
    return ()


def counted_inventories(provider: Provider | None) -> dict[str, IntegerInventory]:
    """Return the inventories of a host that a compute node has columns for, none for None."""
    kept = {} if provider is None else dict(provider.inventories.by_name())
    return {
        name: inventory
        for name, inventory in kept.items()
        if name in KINDS and isinstance(inventory, IntegerInventory)
    }
