"""How a compute node, as a view, meets the ledger: what it read, what it changes, what it sent.

A view never writes what it *has*, only what it *changed*. Two sorts of changes go two ways:

* **what is used** goes as deltas of one consumer, through ``ledger.adjust``, which is guarded
  (``_compute_sending``);
* **the definition** (totals, reserved, ratios) is merged, figure by figure, into the host as it is
  now: a figure that was changed here is written, one that was not stays what others made of it, and
  one that both changed is a conflict (``StaleDefinition``; ``_compute_definition``). Cells and
  devices are part of it only where the host is made: they are its children, and whoever knows the
  machine syncs them (``ledger.sync``).

The ledger has no write that does both sorts at once. So a save that has both first decides, purely
and on fresh figures, whether all of it fits, and writes nothing if it does not; then writes the
definition, then the claim. If somebody takes what was free between these two, the claim is refused
and the definition stays: it says what the host has, which is true whoever holds it. (Taking it back
could leave others with more than there is.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from resource_objects import exceptions
from resource_objects.host._compute_columns import KINDS
from resource_objects.host._compute_located import CPUS, NUMA
from resource_objects.host._compute_pci import PCI
from resource_objects.host._compute_record import NOTHING
from resource_objects.providers import Claim, DefinitionChanges, Provider
from resource_objects.providers.columns import Columns, find
from resource_objects.providers.located import Located, LocatedViews
from resource_objects.resources import Amount, Amounts, IntegerInventory
from resource_objects.resources.numa import NUMATopologyAmount
from resource_objects.resources.pci import PCIAmount

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


class Pending(NamedTuple):
    """What is used by a view and not saved: counts, and what says where something is, assigned.

    What the topologies take of the host is in the counts too, as far as the host counts it; what
    the devices are counted as is not the host's.
    """

    amounts: Amounts = NOTHING
    topologies: tuple[NUMATopologyAmount, ...] = ()
    devices: tuple[PCIAmount, ...] = ()

    def located(self) -> Iterator[tuple[str, tuple[Amount, ...]]]:
        """Yield what lies over the tree of the host, by resource; of what there is."""
        if self.topologies:
            yield NUMA, self.topologies
        if self.devices:
            yield PCI, self.devices

    def __bool__(self) -> bool:
        return bool(self.amounts or self.topologies or self.devices)


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """A change of usage that was sent, by the id of its operation."""

    operation: str
    what: Pending


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """Where a view writes to. ``kept`` is the host as last read, None if it was not there.

    A host that is there is known by its uuid, for names move: ``provider`` is only what it was
    called when it was read. ``holds`` is what the consumer held there then, by resource class.
    ``sent`` is a change whose outcome is not known: the connection was lost meanwhile. ``located``
    are its cells and its devices, by resource, if it has some; ``cells`` those that the consumer
    held something of, by id, if it has a name.
    """

    ledger: Ledger
    provider: str
    consumer: str
    kept: Provider | None = None
    holds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    sent: Sent | None = None
    aggregate: bool = False  # whether the consumer stands for many, of whom nothing is known
    located: Mapping[str, Located] = dataclasses.field(default_factory=dict)
    cells: frozenset[int] = frozenset()

    def at(self, found: Host | None) -> Binding:
        """Return the binding to a host as it was read, None if it was not there."""
        if found is None:
            return dataclasses.replace(self, kept=None, holds={}, located={}, cells=frozenset())
        located = found.located()
        own = (
            () if self.aggregate or NUMA not in located else found.cells_of(self.consumer, located)
        )
        return dataclasses.replace(
            self,
            provider=found.provider.name,
            kept=found.provider,
            holds=found.held_by(self.consumer),
            located=located,
            cells=frozenset(own),
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
        return kept_count(self.kept, resource_class)


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

    def located(self) -> dict[str, Located]:
        """Return the cells of the host and its devices, by resource, those that it has."""
        if self.provider.uuid != self.tree.uuid:
            return {}  # a provider within a tree: cells and devices are the whole tree's
        given = self.columns.providers
        root = dict(zip(given.uuid, given.provider_id, strict=True))[self.tree.uuid or ""]
        views = LocatedViews(self.columns)
        found = ((kind, views.of_tree(root, kind)) for kind in (NUMA, PCI))
        return {kind: located for kind, located in found if located is not None}

    def cells_of(self, consumer: str, located: Mapping[str, Located]) -> Iterator[int]:
        """Yield the cells that a consumer holds something of, by id."""
        cells = located[NUMA]
        ids = zip(cells.spots, cells.inventory.part_ids(), strict=True)
        known = {spot.number: cell for spot, cell in ids}
        for number, _, holder, _ in zip(*self.columns.allocations, strict=True):
            if holder == consumer and number in known:
                yield known[number]

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


def counted_inventories(provider: Provider | None) -> dict[str, IntegerInventory]:
    """Return the inventories of a host that a compute node has columns for, none for None."""
    kept = {} if provider is None else dict(provider.inventories.by_name())
    return {
        name: inventory
        for name, inventory in kept.items()
        if name in KINDS and isinstance(inventory, IntegerInventory)
    }


def kept_count(provider: Provider | None, resource_class: str) -> IntegerInventory | None:
    """Return what a host has of a resource that is counted, dedicated CPUs too; None if nothing."""
    if resource_class != CPUS:
        return counted_inventories(provider).get(resource_class)
    kept = None if provider is None else dict(provider.inventories.by_name()).get(CPUS)
    return kept if isinstance(kept, IntegerInventory) else None
