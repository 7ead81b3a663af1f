"""The effects of orders and plans on a fleet, decided as a ledger decides them.

The decision of every write (:mod:`~resource_objects.store.decide`) reads a fleet here as it reads
the rows of a backend. A plan of definitions is rehearsed on the columns of the affected trees, as
on the columns of a backend. So a scenario refuses what a ledger refuses, in the same words.
"""

from __future__ import annotations

import bisect
import datetime
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from resource_objects import clock, exceptions
from resource_objects.providers.columns import Columns, stored_definitions
from resource_objects.providers.consistency import check_consistent, check_units_free
from resource_objects.providers.definition import DefinitionChanges, StoredDefinitions
from resource_objects.providers.disabled import FOREVER, Disabled, RemovedUnit
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Key, UseLimits
from resource_objects.providers.plan import Plan
from resource_objects.providers.pools import newly_counted
from resource_objects.search import fleet_io
from resource_objects.search.fleet import Fleet, InventoryChange
from resource_objects.search.splice import with_trees
from resource_objects.store.columns import redefined
from resource_objects.store.decide import OrderRows, Restrictions, Unit, decide
from resource_objects.store.rows import InventoryRow

#: The time of a write, where no times are recorded.
NO_MOMENT = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


# --- the decision about an order ------------------------------------------------------------------


class Settlement(NamedTuple):
    """The effects of an order."""

    changes: list[InventoryChange]
    record: ConsumerRecord | None  #: of the consumer after the order; None if it is removed


def settle(
    fleet: Fleet, order: ConsumerOrder, record: ConsumerRecord | None, limits: UseLimits
) -> Settlement:
    """Return the effects of an order on a fleet with all its units, or raise.

    Server groups are not in a fleet, and not checked.

    :param record: of the consumer before the order; None if it does not exist
    :param limits: upper bounds of the usage of inventories
    :raises LedgerError, CapacityException: as :func:`~resource_objects.store.decide.decide`
    """
    rows = _FleetRows(fleet, record)
    effects = decide(rows, [order], NO_MOMENT, limits=limits)
    (effect,) = effects.consumers
    place_of = fleet.place_by_key
    changes = [
        (rows.numbers[change.key], place_of[change.key[0]], change) for change in effect.changes
    ]
    return Settlement(changes, None if effect.is_gone else effect.claim)


class _FleetRows(OrderRows):
    """The rows of a fleet for an order of one consumer. It has no server groups."""

    def __init__(self, fleet: Fleet, record: ConsumerRecord | None) -> None:
        self._fleet = fleet
        self._record = record
        self._inventories: dict[Key, InventoryRow | None] = {}
        #: of the inventories that were read
        self.numbers: dict[Key, int] = {}

    def consumer(self, name: str) -> ConsumerRecord | None:
        """Return the consumer."""
        return self._record

    def inventory(self, key: Key) -> InventoryRow | None:
        """Return an inventory with its use and its shares."""
        if key not in self._inventories:
            fleet = self._fleet
            place = fleet.place_by_key.get(key[0])
            number = None if place is None else fleet.number(place, key[1])
            row = None
            if number is not None:
                self.numbers[key] = number
                shares = fleet.shares.of(number) if fleet.has_shares else ()
                targets = tuple((self._key(target), factor) for target, factor in shares)
                row = InventoryRow(fleet.record(number), shares=targets)
            self._inventories[key] = row
        return self._inventories[key]

    def _key(self, number: int) -> Key:
        fleet = self._fleet
        return fleet.uuids[int(fleet.inventories.provider[number])], fleet.class_of(number)

    def provider_name(self, uuid: str) -> str | None:
        """Return the name of a provider."""
        place = self._fleet.place_by_key.get(uuid)
        return None if place is None else self._fleet.names[place]

    def restrictions(self, uuid: str) -> Restrictions | None:
        """Return whether a provider is disabled, and how many of its units were removed."""
        fleet, place = self._fleet, self._fleet.place_by_key.get(uuid)
        if place is None:
            return None
        disabled = fleet.enabled_as_of_now().disabled
        removed = len(fleet.removed_units.get(place, ())) if fleet.removed_units else 0
        if disabled and any(above in disabled for above in fleet.upwards(place)):
            return Restrictions(FOREVER, removed)
        return Restrictions(None, removed) if removed else None

    def users_of(self, keys: Collection[Key]) -> dict[Key, tuple[tuple[str, int], ...]]:
        """Return the consumers that use inventories, with their amounts."""
        return {
            key: self._fleet.holders([self.numbers[key]]) for key in keys if key in self.numbers
        }

    def unit_consumers(self, units: Collection[Unit]) -> dict[Unit, str]:
        """Return the consumers of those units that are allocated."""
        fleet = self._fleet
        return {
            (uuid, unit): consumer
            for uuid in {uuid for uuid, _ in units}
            for unit, _, consumer in fleet.units.of_provider(fleet.place_by_key[uuid])
            if (uuid, unit) in units
        }

    def disabled_at(self, uuids: Collection[str], now: datetime.datetime) -> dict[str, Disabled]:
        """Return why providers or their ancestors are disabled, by name."""
        fleet = self._fleet
        disabled = fleet.enabled_as_of_now().disabled
        places = (place for uuid in uuids for place in fleet.upwards(fleet.place_by_key[uuid]))
        return {fleet.names[place]: disabled[place].facts for place in places if place in disabled}

    def removed_units_of(self, uuids: Collection[str]) -> dict[str, list[RemovedUnit]]:
        """Return the units that were removed while allocated, by provider."""
        fleet = self._fleet
        removed: dict[str, list[RemovedUnit]] = {}
        for uuid in uuids:
            place = fleet.place_by_key[uuid]
            allocated = {row[0] for row in fleet.units.of_provider(place)}
            removed[uuid] = [
                RemovedUnit(unit, resource_class, unit not in allocated)
                for unit, resource_class in fleet.removed_units.get(place, {}).items()
            ]
        return removed


# --- definitions ----------------------------------------------------------------------------------


class Redefinition(NamedTuple):
    """A fleet after changes of definitions, and what is needed to undo them."""

    fleet: Fleet
    before: Columns  #: the affected trees before the changes
    hosts: tuple[str, ...]  #: the roots of the affected trees after the changes


def with_definitions(fleet: Fleet, columns: Columns, plan: Plan) -> Redefinition:
    """Return a fleet after the changes of definitions, and of disabled providers, of a plan.

    Cost: linear in the affected trees, and copies of all columns: a few milliseconds for 10,000
    hosts.

    :param columns: of the fleet, the trees that the plan affects
    :raises AlreadyExists: if a name or uuid exists, in any tree
    :raises Conflict: if a pool provides a class to a tree that would count it
    :raises InUse, InvalidTree, InvalidPlan: as a ledger does
    """
    if plan.definitions is not None:
        _check_names(fleet, plan.definitions, columns)
        stored = stored_definitions(columns)
        for changed in check_consistent(stored, plan.definitions):
            check_units_free(changed, columns)
        _check_pools(fleet, stored, plan.definitions)
    after = redefined(columns, plan, columns.now or clock.now())
    return Redefinition(with_columns(fleet, _hosts(columns), after), columns, _hosts(after))


def with_columns(fleet: Fleet, hosts: Collection[str], columns: Columns) -> Fleet:
    """Return a fleet with the trees of columns in the place of the trees of some hosts."""
    if fleet.within is not None:  # one tree and its pools: the same part is cut out again
        return fleet_io.read(columns, fleet.uuids[int(fleet.roots[fleet.within])])
    removed = sorted(bisect.bisect_left(fleet.hosts, host) for host in hosts)
    return with_trees(fleet, fleet_io.read(columns), removed)


def columns_with(fleet: Fleet, places: Iterable[int]) -> Columns:
    """Return the columns of the trees of some providers; all trees of a confined fleet."""
    if fleet.within is not None:
        return fleet_io.columns_of(fleet)
    return fleet_io.columns_of(fleet, {int(fleet.tree[place]) for place in places})


def _hosts(columns: Columns) -> tuple[str, ...]:
    rows = zip(columns.providers.name, columns.providers.parent_id, strict=True)
    return tuple(sorted(name for name, parent in rows if parent is None))


def _check_names(fleet: Fleet, changes: DefinitionChanges, columns: Columns) -> None:
    """Raise AlreadyExists for a name or uuid in another tree; the affected trees are rehearsed."""
    affected = set(columns.providers.uuid)
    for definition in (*changes.creates, *(update.definition for update in changes.updates)):
        for key in (definition.name, definition.uuid):
            place = fleet.place_by_key.get(key)
            if place is not None and fleet.uuids[place] not in affected:
                raise exceptions.AlreadyExists("provider", key)


def _check_pools(fleet: Fleet, stored: StoredDefinitions, changes: DefinitionChanges) -> None:
    counted = newly_counted(stored, changes)
    trees: set[int] = set()
    of_pools = counted.aggregates(of_pools=True)
    for name in counted.aggregates(of_pools=False) | of_pools:
        if name in fleet.aggregates:
            places = fleet.aggregates[name]
            if name not in of_pools:
                places = places[fleet.is_pool[places]]
            trees.update(np.unique(fleet.tree[places]).tolist())
    changed = set(counted.after) | counted.changed
    linked = stored_definitions(fleet_io.columns_of(fleet, trees)) if trees else {}
    counted.check(provider for uuid, provider in linked.items() if uuid not in changed)
