"""Placements of partitions: the order in which they are used, and the reason that none is free.

A GPU partition begins at certain memory slices. Each such placement is a provider with one unit of
the profile, which shares the slices of the device that it occupies
(:func:`~resource_objects.host.partitions.add_partition`). Of the free placements of a profile
on one device, the one that excludes the fewest others is used first, so that large profiles still
fit later. Which device is used first is decided by the order of the search, as for any provider.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans, frozen
from resource_objects.search.fleet import Fleet


def placements(fleet: Fleet) -> Booleans:
    """Return which inventories are placements, by number. Computed once for a fleet.

    A placement is a single unit that uses at least one inventory of one unit of another provider: a
    position on a device, such as a memory slice of a GPU.
    """
    is_placement: Booleans | None = fleet.of_definitions.get("placements")
    if is_placement is None:
        rows, shares = fleet.inventories, fleet.shares
        occupies = rows.provider[shares.source] != rows.provider[shares.target]
        occupies &= rows.capacity[shares.target] == 1
        is_placement = np.zeros(len(rows.capacity), dtype=np.bool_)
        is_placement[shares.source[occupies]] = True
        is_placement &= rows.capacity == 1
        fleet.of_definitions["placements"] = frozen(is_placement)
    return is_placement


def device_of(fleet: Fleet, inventory: int) -> int | None:
    """Return the provider whose slices an inventory occupies, None if it is no placement."""
    if not placements(fleet)[inventory]:
        return None
    of = fleet.inventories.provider
    targets = (target for target, _ in fleet.shares.of(inventory))
    return next(int(of[target]) for target in targets if of[target] != of[inventory])


def least_exclusive(fleet: Fleet, inventories: Sequence[int | None], amount: int) -> list[int]:
    """Return indices into ``inventories`` in the order of use.

    Of the placements of one profile on one device, those that exclude the fewest others come first.
    Devices stay in the order of their first placement, and so do all other inventories. Equal
    placements stay in their order.

    :param inventories: numbers of inventories; None is no placement
    :param amount: the maximum number that a consumer uses: this many are chosen one after the
        other, each as if those before it were used
    """
    by_profile: dict[Hashable, list[int]] = {}
    for position, inventory in enumerate(inventories):
        key: Hashable = ~position
        if inventory is not None and (device := device_of(fleet, inventory)) is not None:
            key = device, fleet.class_of(inventory)
        by_profile.setdefault(key, []).append(position)
    order: list[int] = []
    for positions in by_profile.values():
        placements = {at: number for at in positions if (number := inventories[at]) is not None}
        order += _of_device(fleet, placements, amount) if positions[1:] else positions
    return order


def _of_device(fleet: Fleet, placements: Mapping[int, int], amount: int) -> list[int]:
    """Return the positions of the placements of one profile on a device, as they are chosen."""
    uses = {number: dict(fleet.shares.of(number)) for number in placements.values()}
    free = {target: fleet.left(target) for slices in uses.values() for target in slices}
    sources = {source for target in free for source, _ in fleet.shares.into(target)}
    uses |= {source: dict(fleet.shares.of(source)) for source in sources - uses.keys()}
    available = {number for number in uses if fleet.inventories.free[number] > 0}

    def excluded(number: int) -> set[int]:
        """Return the placements that cannot be used next to one more."""
        after = {target: free[target] - factor for target, factor in uses[number].items()}
        return {
            other
            for other in available
            if other == number
            or any(after[target] < uses[other].get(target, 0) for target in after)
        }

    chosen: list[int] = []
    for _ in range(min(amount, len(placements))):
        able = [position for position, number in placements.items() if number in available]
        if not able:
            break
        best = min(able, key=lambda position: len(excluded(placements[position])))
        chosen.append(best)
        available -= excluded(placements[best])
        for target, factor in uses[placements[best]].items():
            free[target] -= factor
    return chosen + [position for position in placements if position not in chosen]


# --- why no placement is free ---------------------------------------------------------------------


def no_placement(
    fleet: Fleet,
    host: str,
    amount: int,
    inventories: Sequence[int],
    free: int,
    requested: Iterable[tuple[str, int]] = (),
) -> Reason:
    """Return the reason that too few placements of a profile are free.

    :param inventories: the placements of the profile
    :param free: how many of them can be used together
    :param requested: the other requested profiles, with their amounts
    """
    devices = {device_of(fleet, inventory) for inventory in inventories}
    device = devices.pop() if len(devices) == 1 else None
    blocking = {
        source
        for inventory in inventories
        for target, _ in fleet.shares.of(inventory)
        for source, _ in fleet.shares.into(target)
    }
    profiles = " and ".join(f"{name}={count}" for name, count in requested)
    return Reason(
        Rule.CAPACITY,
        amount,
        bound=len(inventories),
        used=len(inventories) - free,
        resource=fleet.class_of(inventories[0]),
        where=host if device is None else fleet.names[device],
        holders=fleet.holders(sorted({*blocking, *inventories})),
        unit=f"next to {profiles}" if profiles else None,
    )
