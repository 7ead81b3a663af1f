"""A fleet after somebody took something of it, or gave it back.

What may be taken is settled by the decision of every write
(:mod:`~resource_objects.providers.settle`), which asks a fleet here what a backend asks its rows.
What comes of it goes into copies of three columns of figures, and of the rows of the providers and
trees that are touched; all else belongs to both fleets. Both who keeps a picture fresh and who
tries something in a scenario come here.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from resource_objects.providers.disabled import FOREVER, Disabled, RemovedUnit
from resource_objects.providers.orders import Change, ConsumerOrder, ConsumerRecord, Key, Totals
from resource_objects.providers.settle import Place, Unit, keys_of, settle
from resource_objects.search.arrays import Overlay, frozen, integers, writable
from resource_objects.search.fleet import Fleet, with_figures
from resource_objects.search.views import Views

#: Stands for now, where nothing is kept.
NO_MOMENT = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


class Decided(NamedTuple):
    """What an order comes to."""

    #: the changes, each with the number of its inventory and the place of its provider
    uses: list[tuple[int, int, Change]]
    #: what the consumer holds then; None: nothing
    record: ConsumerRecord | None


def decided(
    fleet: Fleet, order: ConsumerOrder, kept: ConsumerRecord | None, limits: Totals
) -> Decided:
    """Return what an order comes to on a fleet with all its units, or raise.

    Server groups are not in a picture, and not judged.

    :param kept: what the consumer holds; None: nothing
    :param limits: the most that may be used of some inventories in all
    :raises LedgerError, CapacityException: as :func:`~resource_objects.providers.settle.settle`
    """
    held = {} if kept is None else {order.consumer: kept}
    numbers: dict[Key, int] = {}
    places, names = _places(fleet, keys_of([order], held), numbers)
    settled = settle(
        [order],
        held,
        places,
        names,
        NO_MOMENT,
        holders=partial(_holders, fleet),
        takers=partial(_takers, fleet),
        out_of_service=partial(_out_of_service, fleet),
        removed_units=partial(_removed_units, fleet),
        limits=limits,
    )
    (outcome,) = settled.consumers
    at = fleet.place_by_key
    uses = [(numbers[one.key], at[one.key[0]], one) for one in outcome.changes]
    return Decided(uses, None if outcome.is_gone else outcome.claim)


# --- what settle asks ---


def _places(
    fleet: Fleet, keys: Iterable[Key], numbers: dict[Key, int]
) -> tuple[dict[Key, Place], dict[str, str]]:
    """Return inventories as they are kept, with what they share, and the names of providers.

    :param numbers: filled with the numbers of these inventories
    """
    at = fleet.place_by_key
    disabled = fleet.providers_in_force().disabled
    places: dict[Key, Place] = {}
    names: dict[str, str] = {}
    waiting = list(keys)
    for key in waiting:  # grows while it is read: what they share
        uuid, name = key
        place = at.get(uuid)
        if place is None:
            continue
        names[uuid] = fleet.names[place]
        number = None if key in places else fleet.number(place, name)
        if number is not None:
            numbers[key] = number
            shares: tuple[tuple[Key, int], ...] = ()
            if fleet.shares:
                shares = tuple((_key(fleet, of), k) for of, k in fleet.shares.of(number))
                waiting += [of for of, _ in shares]
            found = places[key] = Place(names[uuid], fleet.record(number), shares)
            if disabled and any(one in disabled for one in fleet.upwards(place)):
                found.disabled_until = FOREVER
            if fleet.removed_units:
                found.removed_units = len(fleet.removed_units.get(place, ()))
    return places, names


def _key(fleet: Fleet, number: int) -> Key:
    return fleet.uuids[int(fleet.inventories.provider[number])], fleet.class_of(number)


def _holders(fleet: Fleet, keys: Collection[Key]) -> dict[Key, tuple[tuple[str, int], ...]]:
    found: dict[Key, tuple[tuple[str, int], ...]] = {}
    for key in keys:
        number = fleet.number(fleet.place_by_key[key[0]], key[1])
        found[key] = () if number is None else fleet.holders([number])
    return found


def _takers(fleet: Fleet, units: Collection[Unit]) -> dict[Unit, str]:
    return {
        (uuid, unit): who
        for uuid in {uuid for uuid, _ in units}
        for unit, _, who in fleet.units.of_provider(fleet.place_by_key[uuid])
        if (uuid, unit) in units
    }


def _out_of_service(fleet: Fleet, providers: Collection[str]) -> dict[str, Disabled]:
    disabled = fleet.providers_in_force().disabled
    every = (one for uuid in providers for one in fleet.upwards(fleet.place_by_key[uuid]))
    return {fleet.names[one]: disabled[one].facts for one in every if one in disabled}


def _removed_units(fleet: Fleet, providers: Collection[str]) -> dict[str, list[RemovedUnit]]:
    removed: dict[str, list[RemovedUnit]] = {}
    for uuid in providers:
        place = fleet.place_by_key[uuid]
        taken = {row[0] for row in fleet.units.of_provider(place)}
        classes = fleet.removed_units.get(place, {})
        removed[uuid] = [RemovedUnit(unit, of, unit not in taken) for unit, of in classes.items()]
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
    taken = {p: some for p, some in at.items() if any(use.taken or use.given for use in some)}
    new = with_figures(
        old,
        inventories if in_place else inventories.with_use(used, free, high),
        allocations=old.allocations.after(at),
        units=old.units.after(taken),
        views=_views_after(old, at),
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


def _views_after(old: Fleet, at: Mapping[int, tuple[Change, ...]]) -> Views:
    """Return what lies over trees after changes, by the places of their providers."""
    if not old.views:
        return old.views
    by_tree: dict[int, list[Change]] = {}
    for place, some in at.items():
        by_tree.setdefault(old.true_tree(place), []).extend(some)
    return old.views.after(by_tree)
