"""Devices that are allocated whole or in parts: slices, and partitions made of slices.

A *slice* is a unit into which a device is divided (a compute slice, a function, a unit of
bandwidth, a thousandth). A *partition* is a class of parts that use slices. All are inventories of
the device's provider, and shares within the provider define the slices that a partition and the
whole device use. So an allocation leaves the slices that it does not use, and a refusal names the
slices with their consumers.

==================  ===============================================================================
``split``           slices, partitions, the whole: GPU partitions, SR-IOV functions and bandwidth
``add_partition``   one partition as a provider of its own: with traits, or with a position
``thousandths``     any fraction of a device
``mig_placements``  the profiles of a known NVIDIA card, with the placements of each
``mediated``        mediated devices (vGPUs) of one type or several
==================  ===============================================================================

Counts of slices do not express two things. *Positions*: a partition that has to begin at certain
slices may find enough slices, but no start. Give each position a slice of its own, and each
placement of a partition a provider of its own (:func:`add_partition`). *A common device*: a request
for two classes may be satisfied by two devices. Amounts that must come from one device are one
class: a partition that uses both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import os_resource_classes

from resource_objects import exceptions, fields, names
from resource_objects.providers.provider import Provider, Share
from resource_objects.resources import Inventories, resource
from resource_objects.resources.catalog import is_device
from resource_objects.resources.integer import IntegerInventory

#: The number of each slice that one unit of a class uses.
Uses = Mapping[str, int]

_NONE: Mapping[str, Any] = MappingProxyType({})


def split(
    device: Provider,
    device_class: str | None,
    slices: Mapping[str, int],
    partitions: Mapping[str, Uses] = _NONE,
) -> Provider:
    """Make a device allocatable whole or in parts; return it.

    The device gets an inventory of each slice, of each partition (the maximum number that its
    slices allow) and of the whole, and shares: a partition uses its slices, the whole all of them.
    So partitions and the whole exclude each other.

    :param device_class: the class of the device itself; None if it is not allocated whole
    :param slices: ``{class: total}``
    :param partitions: ``{class: {slice: number that one partition uses}}``
    :raises InvalidInput: if a class is named twice, or the device has it already; for a number that
        is not from 1 to 2^31-1
    :raises InvalidInventory: if a partition uses no slice, an unknown one or more than the total;
        or if the device has an inventory of the whole that is not 1

    >>> gpu = Provider("host0/gpu0", "PGPU=1")
    >>> done = split(
    ...     gpu, "PGPU", {"CUSTOM_GPU_SLICE": 7, "CUSTOM_GPU_MEMORY_SLICE": 8},
    ...     {"CUSTOM_MIG_1G": {"CUSTOM_GPU_SLICE": 1, "CUSTOM_GPU_MEMORY_SLICE": 1},
    ...      "CUSTOM_MIG_3G": {"CUSTOM_GPU_SLICE": 3, "CUSTOM_GPU_MEMORY_SLICE": 4}})
    >>> print(gpu.inventories)
    PGPU=1,CUSTOM_GPU_MEMORY_SLICE=8,CUSTOM_GPU_SLICE=7,CUSTOM_MIG_1G=7,CUSTOM_MIG_3G=2
    >>> for share in gpu.shares:
    ...     print(share)
    PGPU uses 7 CUSTOM_GPU_SLICE of host0/gpu0
    PGPU uses 8 CUSTOM_GPU_MEMORY_SLICE of host0/gpu0
    CUSTOM_MIG_1G uses 1 CUSTOM_GPU_SLICE of host0/gpu0
    CUSTOM_MIG_1G uses 1 CUSTOM_GPU_MEMORY_SLICE of host0/gpu0
    CUSTOM_MIG_3G uses 3 CUSTOM_GPU_SLICE of host0/gpu0
    CUSTOM_MIG_3G uses 4 CUSTOM_GPU_MEMORY_SLICE of host0/gpu0
    """
    counted = _counted_classes(device, device_class)
    totals = _counts("slices", slices)
    if not totals:
        raise exceptions.InvalidInventory(f"slices of {device.name}", slices, "at least one")
    uses = {
        name: _uses(name, counts, totals)
        for name, counts in _by_class("partitions", partitions).items()
    }
    classes = [*totals, *uses, *([device_class] if device_class else [])]
    for number, name in enumerate(classes):
        if name in classes[:number] or name in counted - {device_class}:
            raise exceptions.InvalidInput(
                "repetition",
                f"classes of {device.name}",
                name,
                "each once: as the whole, a slice or a partition",
            )
    maxima = {name: min(totals[n] // k for n, k in counts.items()) for name, counts in uses.items()}
    device_itself = {} if device_class is None or device_class in counted else {device_class: 1}
    inventories = {**dict(device.inventories.by_name()), **device_itself, **totals, **maxima}
    users = uses if device_class is None else {device_class: totals, **uses}
    device.update(
        inventories=Inventories(inventories), shares=(*device.shares, *_shares(users, device))
    )
    return device


def add_partition(
    device: Provider,
    name: str,
    resource_class: str,
    uses: Uses,
    *,
    traits: Iterable[str] = (),
) -> Provider:
    """Add one partition of a device as a provider below the device; return the new provider.

    It has its own traits, such as those of a region of an FPGA, or a position. One request may get
    several of them at different devices, unlike partitions that are counted.

    :param device: a device with an inventory of each slice, as after :func:`split`
    :param resource_class: the class of the partition, of which it has one unit
    :param uses: ``{slice of the device: number that it uses}``
    :raises InvalidInventory: if it uses no slice, or more than the device has
    :raises InvalidTree: if the name exists in the device's subtree

    >>> card = split(Provider("host0/fpga0"), "CUSTOM_FPGA_CARD", {"CUSTOM_FPGA_REGION": 2})
    >>> region = add_partition(
    ...     card, "host0/fpga0/region0", "FPGA", {"CUSTOM_FPGA_REGION": 1},
    ...     traits=["CUSTOM_BITSTREAM_AES"])
    >>> print(region, *region.shares)
    host0/fpga0/region0: FPGA=1 FPGA uses 1 CUSTOM_FPGA_REGION of host0/fpga0
    """
    if not isinstance(device, Provider):
        raise exceptions.InvalidTree("device", device, "a provider")
    users = {_counted(resource_class): _uses(resource_class, uses, _capacities(device))}
    return device.add(name, {resource_class: 1}, traits=traits, shares=_shares(users, device))


def thousandths(
    device: Provider,
    *,
    device_class: str = "PGPU",
    fraction: str = "CUSTOM_PGPU_THOUSANDTHS",
    partitions: Mapping[str, int] = _NONE,
) -> Provider:
    """Make a device allocatable whole or by fractions, in thousandths; return it.

    Half a device is 500 of ``fraction``, always of one device.

    :param partitions: fractions with a class of their own: ``{class: thousandths}``
    :raises InvalidInventory: for a fraction above 1000; else as :func:`split`

    >>> gpu = thousandths(Provider("host0/gpu0", "PGPU=1"), partitions={"CUSTOM_HALF_GPU": 500})
    >>> print(gpu)
    host0/gpu0: PGPU=1,CUSTOM_HALF_GPU=2,CUSTOM_PGPU_THOUSANDTHS=1000
    >>> thousandths(Provider("host0/gpu1"), partitions={"CUSTOM_NO_GPU": 0})
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: CUSTOM_NO_GPU: got 0, expected an integer from 1 ...
    """
    counts = _counts("partitions", partitions)
    uses = {name: {fraction: count} for name, count in counts.items()}
    return split(device, device_class, {fraction: 1000}, uses)


# --- MIG --------------------------------------------------------------------------------------

#: The prefix of the eight memory slices of a card.
_MIG_AT = "CUSTOM_GPU_AT_"
#: The media extensions (JPEG and OFA engines), all allocated to one instance.
_MIG_MEDIA = "CUSTOM_GPU_MEDIA"
#: Cards, with the memory in GB in the names of profiles, by the memory slices of a profile.
#: To add a card, add a row here and one to ``MIG_PROFILES`` of ``tests/site/test_site.py``, and add
#: its name to the lists of cards in the documentation and in ``host/device_rules.py``. All cards
#: share ``_MIG_PROFILES``: a card with other slices or positions cannot be added as a row.
MIG_CARDS: Mapping[str, Mapping[int, int]] = {
    "mig-a100-40gb": {1: 5, 2: 10, 4: 20, 8: 40},
    "mig-a100-80gb": {1: 10, 2: 20, 4: 40, 8: 80},
    "mig-h100-80gb": {1: 10, 2: 20, 4: 40, 8: 80},
    "mig-h200-141gb": {1: 18, 2: 35, 4: 71, 8: 141},
}
#: For each profile: compute slices, memory slices, media extensions, and the memory slices at which
#: an instance may begin. Source: NVIDIA Multi-Instance GPU User Guide, ``nvidia-smi mig -lgipp``.
_MIG_PROFILES: tuple[tuple[int, int, bool, tuple[int, ...]], ...] = (
    (1, 1, False, (0, 1, 2, 3, 4, 5, 6)),
    (1, 1, True, (0, 1, 2, 3, 4, 5, 6)),
    (1, 2, False, (0, 2, 4, 6)),
    (2, 2, False, (0, 2, 4)),
    (3, 4, False, (0, 4)),
    (4, 4, False, (0,)),
    (7, 8, False, (0,)),
)
#: The end of the name of a placement's provider: the profile, and the first memory slice.
PLACEMENT = re.compile(r"/([0-9]g\.[0-9]+gb(?:\+me)?)-at-([0-9])$")


def mig_slices(card: str) -> dict[str, int]:
    """Return the slices of a card of :data:`MIG_CARDS`: compute, memory, media extensions.

    The class of compute slices has the name of the card: the profiles of some cards are the same.

    >>> mig_slices("mig-h100-80gb")["CUSTOM_H100_80GB_SLICE"]
    7
    """
    return {_compute(card): 7, **{f"{_MIG_AT}{at}": 1 for at in range(8)}, _MIG_MEDIA: 1}


def _compute(card: str) -> str:
    return f"CUSTOM_{card.removeprefix('mig-').upper().replace('-', '_')}_SLICE"


def mig_placements(card: str) -> dict[str, tuple[str, Uses]]:
    """Return the possible placements of MIG instances on a card: ``{placement: (class, uses)}``.

    A placement is the profile and the first memory slice, as ``nvidia-smi mig -cgi`` writes them,
    with ``-at-`` in place of the colon.

    >>> placements = mig_placements("mig-h100-80gb")
    >>> len(placements), placements["1g.10gb-at-6"]
    (25, ('CUSTOM_MIG_1G_10GB', {'CUSTOM_H100_80GB_SLICE': 1, 'CUSTOM_GPU_AT_6': 1}))
    """
    placements: dict[str, tuple[str, Uses]] = {}
    for compute, memory, has_media, starts in _MIG_PROFILES:
        profile = f"{compute}g.{MIG_CARDS[card][memory]}gb{'+me' if has_media else ''}"
        name = f"CUSTOM_MIG_{profile.upper().replace('.', '_').replace('+', '_')}"
        for start in starts:
            at = {f"{_MIG_AT}{number}": 1 for number in range(start, start + memory)}
            media = {_MIG_MEDIA: 1} if has_media else {}
            placements[f"{profile}-at-{start}"] = name, {_compute(card): compute, **at, **media}
    return placements


# --- mediated devices -----------------------------------------------------------------------------
#
# A driver reports, for each type, the number of devices that a device offers if it has no other
# type. It does not report which types exist at the same time: some devices have several, some have
# one. Several types at a time are parts of one measure, see :func:`mediated`.
#
# One type at a time cannot be expressed by shares. Suppose that a of type A or b of type B may
# exist, but never both. Shares are linear, and each inventory has a bound, so the set of
# combinations that they allow is convex. With a and b of 2 or more, one A with one B is between "a
# of A" and "b of B", as 1/a + 1/b <= 1; shares that allow these two allow that too. With a = 1 or b
# = 1 the measure is exact: the single one uses all of it. So types are accepted if all but one have
# a single device at most. Otherwise one of them has to be chosen, as in Nova's configuration. To
# choose another one, sync the device again; the ledger refuses this while devices of the first type
# are allocated.


def mediated(
    device: Provider,
    types: Mapping[str, int],
    *,
    device_class: str | None = None,
    only: str | None = None,
    mixed: bool = False,
    measure: str = "CUSTOM_MDEV_SHARE",
) -> Provider:
    """Make a device allocatable as mediated devices (vGPUs) of one type or several; return it.

    Each type is a class (:func:`type_class`). Its total is the number that the device offers if it
    has no other type (``available_instances`` in sysfs). All types are parts of one measure, the
    least common multiple of these numbers: one of n is 1/n of the device. That never allows more
    than the memory of the device. It may refuse a mixture that just fits: memory that remains
    because a type does not divide it counts as used by the type.

    :param types: ``{name of the type: number}``
    :param device_class: the class of the device itself; None if it is not allocated whole
    :param only: the one type that the device is configured for; the others do not exist
    :param mixed: whether the device can have several types at the same time. If it cannot, types
        that shares cannot separate (two with more than one device) are refused
    :param measure: the class of the measure, if there are several types
    :raises InvalidInventory: if the types cannot be separated, or ``only`` is none of them, or the
        measure would be too large; else as :func:`split`

    >>> counts = {"nvidia-35": 16, "nvidia-38": 4}
    >>> print(mediated(Provider("host0/gpu0"), counts, only="nvidia-35"))
    host0/gpu0: CUSTOM_NVIDIA_35=16
    >>> print(mediated(Provider("host0/gpu1"), counts, mixed=True))
    host0/gpu1: CUSTOM_MDEV_SHARE=16,CUSTOM_NVIDIA_35=16,CUSTOM_NVIDIA_38=4
    >>> mediated(Provider("host0/gpu2"), counts)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInventory: types: got {...}, expected at most one type ...
    """
    counts = _counts("types", types, type_class)
    if only is not None:
        chosen = type_class(only)
        if chosen not in counts:
            raise exceptions.InvalidInventory("only", only, f"one of {', '.join(types)}")
        return split(device, device_class, {chosen: counts[chosen]})
    if len(counts) < 2:
        return split(device, device_class, counts)
    if not mixed and sum(count > 1 for count in counts.values()) > 1:
        raise exceptions.InvalidInventory(
            "types",
            dict(types),
            "at most one type with several devices: shares cannot keep others apart; choose one "
            "with only=, or pass mixed=True for a device that can have several types at once",
        )
    parts = math.lcm(*counts.values())
    if parts > fields.MAX_FIGURE:
        raise exceptions.InvalidInventory(
            "types", dict(types), f"a least common multiple of at most {fields.MAX_FIGURE}"
        )
    uses = {name: {measure: parts // count} for name, count in counts.items()}
    return split(device, device_class, {measure: parts}, uses)


def type_class(name: str) -> str:
    """Return the class of a mediated type; one that is a class already is returned as it is.

    >>> type_class("nvidia-35"), type_class("i915-GVTg_V5_4"), type_class("CUSTOM_VGPU_8Q")
    ('CUSTOM_NVIDIA_35', 'CUSTOM_I915_GVTG_V5_4', 'CUSTOM_VGPU_8Q')
    """
    if not isinstance(name, str) or not name.strip():
        raise exceptions.InvalidInput("resource class", "type", name, "a name such as nvidia-35")
    if name.startswith(names.CUSTOM_PREFIX) or name in os_resource_classes.STANDARDS:
        return names.resource_class_name(name)
    normalized = os_resource_classes.normalize_name(name)  # type: ignore[no-untyped-call]
    return names.resource_class_name(normalized)


# --- checks ---------------------------------------------------------------------------------------


def _counted_classes(device: object, device_class: str | None) -> set[str]:
    """Return the classes of a provider, or raise unless it is one device of a class."""
    if not isinstance(device, Provider):
        raise exceptions.InvalidTree("device", device, "a provider")
    capacities = _capacities(device)
    if device_class is None:
        for name in filter(is_device, capacities):
            raise exceptions.InvalidInventory(
                f"whole of {device.name}", None, f"{name}, which it has already"
            )
    elif capacities.get(_counted(device_class), 1) != 1:
        raise exceptions.InvalidInventory(
            f"{device_class} of {device.name}", capacities[device_class], "1: the device itself"
        )
    return set(capacities)


def _capacities(device: Provider) -> dict[str, int]:
    return {
        record.resource_class: record.capacity
        for _, inventory in device.inventories.by_name()
        for record in inventory.to_records()
    }


def _counted(name: str) -> str:
    """Return the name of a resource class, or raise unless its units are counted."""
    kind = resource(name)
    if not issubclass(kind.inventory_kind, IntegerInventory):
        raise exceptions.InvalidInventory("resource class", name, "one that is counted")
    return kind.name


def _by_class(
    name: str, values: object, class_of: Callable[[str], str] = _counted
) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise exceptions.InvalidInventory(name, values, "a mapping by resource class")
    by_class: dict[str, Any] = {}
    for key, value in values.items():
        kind = class_of(key)
        if kind in by_class:
            raise exceptions.InvalidInput("repetition", name, kind, "each class once")
        by_class[kind] = value
    return by_class


def _counts(name: str, values: object, class_of: Callable[[str], str] = _counted) -> dict[str, int]:
    counts = _by_class(name, values, class_of)
    for kind, value in counts.items():
        if type(value) is not int or not 1 <= value <= fields.MAX_FIGURE:
            expected = f"an integer from 1 to {fields.MAX_FIGURE}"
            raise exceptions.InvalidInput("amount", kind, value, expected)
    return counts


def _uses(name: str, values: object, totals: Mapping[str, int]) -> dict[str, int]:
    subject = f"{_counted(name)} uses"
    uses = _counts(subject, values)
    if not uses:
        raise exceptions.InvalidInventory(subject, values, "at least one slice")
    for slice_, count in uses.items():
        if slice_ not in totals:
            slices = ", ".join(sorted(totals)) or "slices, and there are none"
            raise exceptions.InvalidInventory(subject, slice_, f"one of {slices}")
        if count > totals[slice_]:
            raise exceptions.InvalidInventory(
                subject, f"{slice_}={count}", f"at most the {totals[slice_]} there are"
            )
    return uses


def _shares(users: Mapping[str, Uses], device: Provider) -> tuple[Share, ...]:
    return tuple(
        Share(resource_class=name, of=device.name, of_class=slice_, factor=count)
        for name, uses in users.items()
        for slice_, count in uses.items()
    )
