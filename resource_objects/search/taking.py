"""A fleet after somebody took something of it, or gave it back.

What may be taken is settled by the decision of every write
(:mod:`~resource_objects.store.decide`), which asks a fleet here what a backend asks its rows.
What comes of it goes into copies of three columns of figures, and of the rows of the providers and
trees that are touched; all else belongs to both fleets. Both who keeps a picture fresh and who
tries something in a scenario come here.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resource_objects.providers.disabled import FOREVER, Disabled, RemovedUnit
from resource_objects.providers.orders import Change, ConsumerOrder, ConsumerRecord, Key, UseLimits
from resource_objects.search.arrays import Integers, Overlay, frozen, integers, writable
from resource_objects.search.fleet import Fleet, with_figures
from resource_objects.search.located_views import ViewCache
from resource_objects.store.decide import OrderRows, Restrictions, Unit, decide
from resource_objects.store.rows import InventoryRow

#: Stands for now, where nothing is kept.
NO_MOMENT = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


class Decided(NamedTuple):
    """What an order comes to."""

    #: the changes, each with the number of its inventory and the place of its provider
    uses: list[tuple[int, int, Change]]
    #: what the consumer holds then; None: nothing
    record: ConsumerRecord | None


def decided(
    fleet: Fleet, order: ConsumerOrder, kept: ConsumerRecord | None, limits: UseLimits
) -> Decided:
    """Return what an order comes to on a fleet with all its units, or raise.

    Server groups are not in a picture, and not judged.

    :param kept: what the consumer holds; None: nothing
    :param limits: the most that may be used of some inventories in all
    :raises LedgerError, CapacityException: as :func:`~resource_objects.store.decide.decide`
    """
    rows = _FleetRows(fleet, kept)
    effects = decide(rows, [order], NO_MOMENT, limits=limits)
    (effect,) = effects.consumers
    at = fleet.place_by_key
    uses = [(rows.numbers[one.key], at[one.key[0]], one) for one in effect.changes]
    return Decided(uses, None if effect.is_gone else effect.claim)


class _FleetRows(OrderRows):
    """The rows of a fleet that an order of one consumer is about. It has no server groups.

    :param kept: the record of the consumer; None: it does not exist
    """

    def __init__(self, fleet: Fleet, kept: ConsumerRecord | None) -> None:
        self._fleet = fleet
        self._kept = kept
        self._inventories: dict[Key, InventoryRow | None] = {}
        #: of the inventories that were read
        self.numbers: dict[Key, int] = {}

    def consumer(self, name: str) -> ConsumerRecord | None:
        """Return the consumer."""
        return self._kept

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
        disabled = fleet.providers_in_force().disabled
        removed = len(fleet.removed_units.get(place, ())) if fleet.removed_units else 0
        if disabled and any(one in disabled for one in fleet.upwards(place)):
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
        disabled = fleet.providers_in_force().disabled
        above = (one for uuid in uuids for one in fleet.upwards(fleet.place_by_key[uuid]))
        return {fleet.names[one]: disabled[one].facts for one in above if one in disabled}

    def removed_units_of(self, uuids: Collection[str]) -> dict[str, list[RemovedUnit]]:
        """Return the units that were removed while allocated, by provider."""
        fleet = self._fleet
        removed: dict[str, list[RemovedUnit]] = {}
        for uuid in uuids:
            place = fleet.place_by_key[uuid]
            taken = {row[0] for row in fleet.units.of_provider(place)}
            classes = fleet.removed_units.get(place, {})
            units = [RemovedUnit(unit, of, unit not in taken) for unit, of in classes.items()]
            removed[uuid] = units
        return removed


# --- a fleet after changes ---


def used_since(
    old: Fleet, uses: Sequence[tuple[int, int, Change]], *, in_place: bool = False
) -> Fleet:
    """Return a fleet after changes of what is used, each with its inventory and provider.

    What an inventory shares is used with it. Cost: three copies of a column of all inventories.

    :param in_place: write into the columns of the old one, which must be of no use to anybody then
    """
    inventories, shares = old.inventories, old.shares
    used, free, high = (
        writable(column) if in_place else column.copy()
        for column in (inventories.used, inventories.free, inventories.high)
    )
    touched: set[int] = set()
    at: dict[int, tuple[Change, ...]] = {}
    for entry, place, use in uses:
        net = use.after - use.before
        for number, factor in ((entry, 1), *(shares.of(entry) if shares else ())):
            used[number] += net * factor
            touched.add(number)
        at[place] = (*at.get(place, ()), use)
    if shares:
        touched.update([source for number in touched for source, _ in shares.into(number)])
    numbers = integers(sorted(touched))
    free[numbers] = shares.left_of(numbers, inventories.capacity, used)
    step = inventories.step_size[numbers]
    high[numbers] = np.minimum(free[numbers], inventories.max_unit[numbers]) // step * step
    taken = {p: s for p, s in at.items() if any(c.allocated_units or c.released_units for c in s)}
    new = with_figures(
        old,
        inventories if in_place else inventories.with_use(used, free, high),
        allocations=old.allocations.after(at),
        units=old.units.after(taken),
        view_cache=_view_cache_after(old, numbers),
    )
    if in_place:
        for column in (used, free, high):
            frozen(column)
    old.pass_on(new, numbers)
    if "places_of_holders" in old.__dict__:
        new.__dict__["places_of_holders"] = _holders_after(old, new, at)
    return new


def _holders_after(
    old: Fleet, new: Fleet, at: Mapping[int, tuple[Change, ...]]
) -> Overlay[str, tuple[int, ...]]:
    """Return of which providers consumers hold something, where changes were at some."""
    found: dict[str, tuple[int, ...] | None] = {}
    for place, some in at.items():
        holders = {row[1] for row in new.allocations.of_provider(place)}
        for consumer in {one.consumer for one in some}:
            before = found.get(consumer, old.places_of_holders.get(consumer)) or ()
            others = tuple(one for one in before if one != place)
            found[consumer] = ((*others, place) if consumer in holders else others) or None
    return old.places_of_holders.with_(found)


def _view_cache_after(old: Fleet, numbers: Integers) -> ViewCache:
    """Return the views that a fleet with other use of some inventories has too."""
    if not old.parts:
        return old.view_cache
    trees = set(old.inventories.tree[numbers].tolist())
    if old.above and old.within is not None:  # one view covers both parts of a tree
        trees.add(old.within)
    return old.view_cache.after(old.keys.at[old.roots[list(trees)]].tolist())
