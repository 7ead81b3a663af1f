"""A fleet with other usage, or with limits.

The decision of every write (:mod:`~resource_objects.store.decide`) reads a fleet here as it reads
the rows of a backend. The resulting changes go into copies of three columns of figures, and into
the rows of the providers that change; the rest belongs to both fleets. A refresh of a snapshot and
a scenario apply changes in the same way.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.providers.disabled import FOREVER, Disabled, RemovedUnit
from resource_objects.providers.orders import Change, ConsumerOrder, ConsumerRecord, Key, UseLimits
from resource_objects.search.arrays import Integers, Overlay, frozen, integers, writable
from resource_objects.search.fleet import Fleet
from resource_objects.store.decide import OrderRows, Restrictions, Unit, decide
from resource_objects.store.rows import InventoryRow

#: The time of a write, where no times are recorded.
NO_MOMENT = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


#: The number of an inventory, the place of its provider, and a change of its usage.
InventoryChange: TypeAlias = tuple[int, int, Change]


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
                shares = fleet.shares.of(number) if fleet.shares else ()
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


# --- a fleet after changes ------------------------------------------------------------------------


def with_use(fleet: Fleet, changes: Sequence[InventoryChange], *, in_place: bool = False) -> Fleet:
    """Return a fleet after changes of usage, also of the targets of shares.

    Cost: three copies of a column of all inventories.

    :param in_place: write into the columns of the fleet, which must not be used after this
    """
    rows, shares = fleet.inventories, fleet.shares
    columns: dict[str, Any] = {
        name: writable(column) if in_place else column.copy()
        for name, column in (("used", rows.used), ("free", rows.free), ("high", rows.high))
    }
    used = columns["used"]
    affected: set[int] = set()
    by_place: dict[int, tuple[Change, ...]] = {}
    for number, place, change in changes:
        net = change.after - change.before
        for target, factor in ((number, 1), *(shares.of(number) if shares else ())):
            used[target] += net * factor
            affected.add(target)
        by_place[place] = (*by_place.get(place, ()), change)
    if shares:
        affected.update([source for number in affected for source, _ in shares.into(number)])
    numbers = integers(sorted(affected))
    columns["free"][numbers], columns["high"][numbers] = fleet.figures(rows.capacity, used, numbers)
    for column in columns.values():
        frozen(column)
    trees = set(rows.tree[numbers].tolist())
    units = {
        place: some
        for place, some in by_place.items()
        if any(change.allocated_units or change.released_units for change in some)
    }
    changed = fleet.evolved(
        inventories=rows if in_place else dataclasses.replace(rows, **columns),
        allocations=fleet.allocations.after(by_place),
        units=fleet.units.after(units),
        view_cache=fleet.view_cache.after(fleet.view_keys(trees)),
    )
    fleet.pass_sums_to(changed, trees)
    if "places_of_holders" in fleet.__dict__:
        changed.__dict__["places_of_holders"] = _places_of_holders(fleet, changed, by_place)
    return changed


def _places_of_holders(
    old: Fleet, new: Fleet, changes: Mapping[int, tuple[Change, ...]]
) -> Overlay[str, tuple[int, ...]]:
    """Return :attr:`.Fleet.places_of_holders` after changes at some places."""
    found: dict[str, tuple[int, ...] | None] = {}
    for place, some in changes.items():
        consumers = {row[1] for row in new.allocations.of_provider(place)}
        for consumer in {change.consumer for change in some}:
            before = found.get(consumer, old.places_of_holders.get(consumer)) or ()
            others = tuple([other for other in before if other != place])
            found[consumer] = ((*others, place) if consumer in consumers else others) or None
    return old.places_of_holders.with_(found)


# --- limits ---------------------------------------------------------------------------------------
# With limits, inventories have a lower capacity, so whatever decides by figures, over arrays or on
# one tree, respects them. Views count the difference as used. A refusal names the limit, not the
# capacity (Fleet.rule_of).


def uuids_in(fleet: Fleet, keys: Iterable[str]) -> dict[str, str]:
    """Return the uuids of providers by the name or uuid that the caller passes.

    :raises NotFound: if there is no such provider
    """
    uuids: dict[str, str] = {}
    for key in keys:
        place = fleet.place_by_key.get(key)
        if place is None:
            raise exceptions.NotFound("provider", key)
        uuids[key] = fleet.uuids[place]
    return uuids


def with_limits(fleet: Fleet, limits: UseLimits) -> Fleet:
    """Return a fleet with upper bounds of the usage of inventories.

    A limit of an inventory that does not exist has no effect. Cost: some passes over the
    inventories, and half a microsecond for each limit; nothing without limits.
    """
    if not limits:
        return fleet
    numbers, totals = _numbered(fleet, limits)
    lowered = fleet.inventories.capacity[numbers] - totals
    numbers, lowered = numbers[lowered > 0], lowered[lowered > 0]
    if not len(numbers):
        return fleet
    capacity = fleet.inventories.capacity.copy()
    capacity[numbers] -= lowered
    limited = dict(zip(numbers.tolist(), lowered.tolist(), strict=True))
    return fleet.with_figures(capacity=capacity, limited=limited)


def _numbered(fleet: Fleet, limits: UseLimits) -> tuple[Integers, Integers]:
    """Return the numbers of the inventories that limits are of, and the limits."""
    by_class: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for (uuid, name), total in limits.items():
        place = fleet.place_by_key.get(uuid)
        if place is not None:
            by_class[name][0].append(place)
            by_class[name][1].append(total)
    numbers, bounds = [integers(())], [integers(())]
    for name, (places, totals) in by_class.items():
        rows, wanted = fleet.rows(name), integers(places)
        if len(rows.provider):
            entries = np.minimum(rows.provider.searchsorted(wanted), len(rows.provider) - 1)
            exists = rows.provider[entries] == wanted
            numbers.append(entries[exists] + rows.first)
            bounds.append(integers(totals)[exists])
    return np.concatenate(numbers), np.concatenate(bounds)
