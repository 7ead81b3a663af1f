"""Devices that are shared out in part: slices, partitions of them, and the whole (D2).

One mechanism for everything that is either had whole or in parts: a *slice* is what a device is
divided into (compute slices, memory slices, functions, bandwidth, thousandths), a *partition* a
class of things that are made of slices. All are inventories of the device's provider; shares
within it say that a partition, and the whole, use up slices. So whatever is taken first leaves
what it leaves, the ledger's counters guard it, and a refusal names the slices and who holds them.

==================  ===============================================================================
``split``           slices, partitions, the whole: GPU partitions, SR-IOV functions and bandwidth
``add_partition``   one partition as a provider of its own: with traits, or with a position
``thousandths``     any fraction of a device
``mig_placements``  the profiles of a known NVIDIA card, with the places of each
``mediated``        mediated devices (vGPUs) of one type or several
==================  ===============================================================================

Two things counts of slices do not say. *Positions*: a partition that has to begin at certain slices
may find enough of them and none where it could begin; give each position a slice of its own, and
each place of a partition a provider of its own (:func:`add_partition`), and it is exact. *Where it
comes from*: a request for two classes may get them of two devices; what has to come of one is one
class, a partition that uses both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import os_resource_classes

from resource_objects import exceptions, fields, names
from resource_objects.providers.provider import Provider, Share
from resource_objects.resources import Inventories, resource
from resource_objects.resources.catalog import is_device
from resource_objects.resources.integer import IntegerInventory

#: How much one unit of a class uses of each slice.
Uses = Mapping[str, int]

_NONE: Mapping[str, Any] = {}


def split(
    device: Provider,
    whole: str | None,
    slices: Mapping[str, int],
    partitions: Mapping[str, Uses] = _NONE,
) -> Provider:
    """Let a device be had whole or in parts; return it.

    It gets an inventory of each slice, of each partition (as many as could exist at most), and of
    the whole unless it has that; and shares by which a partition uses its slices and the whole
    uses all of them. So partitions exclude the whole and are excluded by it, and what fits beside
    each other is what the slices say.

    :param device: a provider that stands for one device
    :param whole: the class of the device itself; None if nobody may have it whole
    :param slices: ``{class: how many there are}``
    :param partitions: ``{class: {slice: how many one of it uses}}``
    :raises DuplicateKey: if a class is named twice, or the device has it already
    :raises InvalidInventory: if a partition uses no slice, or one that is not there, or more of it
        than there is; or if the device is there already and is not one thing
    :raises InvalidAmount: for a number that is none of 1 to 2^31-1

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
    kept = _check_device(device, whole)
    totals = _counts("slices", slices)
    if not totals:
        raise exceptions.InvalidInventory(f"slices of {device.name}", slices, "at least one")
    made = {
        name: _uses(name, uses, totals)
        for name, uses in _by_class("partitions", partitions).items()
    }
    _check_once(device, [*totals, *made, *([whole] if whole else [])], kept - {whole})
    ties = made if whole is None else {whole: totals, **made}
    most = {name: min(totals[one] // k for one, k in uses.items()) for name, uses in made.items()}
    itself = {} if whole is None or whole in kept else {whole: 1}
    device.update(
        inventories=Inventories({**dict(device.inventories.by_name()), **itself, **totals, **most}),
        shares=(*device.shares, *_shares(ties, device)),
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
    """Add one partition of a device as a provider below it, with a name of its own; return it.

    For what has traits of its own, such as a region of an FPGA, or a place of its own. A request
    may get several of them of different devices, which it cannot of a partition that is counted.

    :param device: one that is split, or has an inventory of each slice in another way
    :param resource_class: what it is counted as: one unit
    :param uses: ``{slice of the device: how many it uses}``
    :raises InvalidInventory: if it uses no slice, or more than there is
    :raises InvalidTree: if the name is in the device's subtree already

    >>> card = split(Provider("host0/fpga0"), "CUSTOM_FPGA_CARD", {"CUSTOM_FPGA_REGION": 2})
    >>> region = add_partition(
    ...     card, "host0/fpga0/region0", "FPGA", {"CUSTOM_FPGA_REGION": 1},
    ...     traits=["CUSTOM_BITSTREAM_AES"])
    >>> print(region, *region.shares)
    host0/fpga0/region0: FPGA=1 FPGA uses 1 CUSTOM_FPGA_REGION of host0/fpga0
    """
    if not isinstance(device, Provider):
        raise exceptions.InvalidTree("device", device, "a provider")
    made = {_counted(resource_class): _uses(resource_class, uses, dict(_there(device)))}
    return device.add(name, {resource_class: 1}, traits=traits, shares=_shares(made, device))


def thousandths(
    device: Provider,
    *,
    whole: str = "PGPU",
    fraction: str = "CUSTOM_PGPU_THOUSANDTHS",
    partitions: Mapping[str, int] = _NONE,
) -> Provider:
    """Let a device be had whole or by fractions, in thousandths; return it.

    Half a device is 500 of ``fraction``, always of one device.

    :param partitions: fractions with a class of their own: ``{class: thousandths}``
    :raises InvalidInventory: for a fraction above 1000; else as :func:`split`

    >>> gpu = thousandths(Provider("host0/gpu0", "PGPU=1"), partitions={"CUSTOM_HALF_GPU": 500})
    >>> print(gpu)
    host0/gpu0: PGPU=1,CUSTOM_HALF_GPU=2,CUSTOM_PGPU_THOUSANDTHS=1000
    >>> thousandths(Provider("host0/gpu1"), partitions={"CUSTOM_NO_GPU": 0})
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidAmount: CUSTOM_NO_GPU: got 0, expected an integer from 1 ...
    """
    named = _counts("partitions", partitions)
    return split(device, whole, {fraction: 1000}, {n: {fraction: k} for n, k in named.items()})


# --- MIG --------------------------------------------------------------------------------------

#: The prefix of the eight memory slices of a card.
_MIG_AT = "CUSTOM_GPU_AT_"
#: The media extensions (JPEG and OFA engines), of which one instance has all.
_MIG_MEDIA = "CUSTOM_GPU_MEDIA"
#: Cards, with the memory in GB in the names of profiles, by the memory slices of a profile.
#: To add a card, add a row here and one to ``MIG_PROFILES`` of ``tests/host/test_site.py``, and add
#: its name to the lists of cards in the documentation and in ``host/rules.py``. All cards share
#: ``_MIG_PROFILES``: a card with other slices or positions than those cannot be added as a row.
MIG_CARDS: Mapping[str, Mapping[int, int]] = {
    "mig-a100-40gb": {1: 5, 2: 10, 4: 20, 8: 40},
    "mig-a100-80gb": {1: 10, 2: 20, 4: 40, 8: 80},
    "mig-h100-80gb": {1: 10, 2: 20, 4: 40, 8: 80},
    "mig-h200-141gb": {1: 18, 2: 35, 4: 71, 8: 141},
}
#: Of each profile: compute slices, memory slices, media extensions, and the memory slices at which
#: it may begin. Source: NVIDIA Multi-Instance GPU User Guide, ``nvidia-smi mig -lgipp``.
_MIG_PROFILES: tuple[tuple[int, int, bool, tuple[int, ...]], ...] = (
    (1, 1, False, (0, 1, 2, 3, 4, 5, 6)),
    (1, 1, True, (0, 1, 2, 3, 4, 5, 6)),
    (1, 2, False, (0, 2, 4, 6)),
    (2, 2, False, (0, 2, 4)),
    (3, 4, False, (0, 4)),
    (4, 4, False, (0,)),
    (7, 8, False, (0,)),
)


#: What the name of the provider of a placement ends in: the profile, and where it begins.
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

    A placement is the profile and the memory slice at which it begins, as ``nvidia-smi mig -cgi``
    has them, with ``-at-`` in place of the colon.

    >>> found = mig_placements("mig-h100-80gb")
    >>> len(found), found["1g.10gb-at-6"]
    (25, ('CUSTOM_MIG_1G_10GB', {'CUSTOM_H100_80GB_SLICE': 1, 'CUSTOM_GPU_AT_6': 1}))
    """
    found: dict[str, tuple[str, Uses]] = {}
    for compute, memory, has_media, starts in _MIG_PROFILES:
        profile = f"{compute}g.{MIG_CARDS[card][memory]}gb{'+me' if has_media else ''}"
        name = f"CUSTOM_MIG_{profile.upper().replace('.', '_').replace('+', '_')}"
        for start in starts:
            at = {f"{_MIG_AT}{number}": 1 for number in range(start, start + memory)}
            media = {_MIG_MEDIA: 1} if has_media else {}
            found[f"{profile}-at-{start}"] = name, {_compute(card): compute, **at, **media}
    return found


# --- checks -----------------------------------------------------------------------------------


def _check_device(device: object, whole: str | None) -> set[str | None]:
    """Return the classes that a provider has, if it may be split as one device of ``whole``."""
    if not isinstance(device, Provider):
        raise exceptions.InvalidTree("device", device, "a provider")
    there = dict(_there(device))
    if whole is None:
        for name in filter(is_device, there):
            raise exceptions.InvalidInventory(
                f"whole of {device.name}", None, f"{name}, which it has already"
            )
    elif there.get(_counted(whole), 1) != 1:
        raise exceptions.InvalidInventory(
            f"{whole} of {device.name}", there[whole], "1: the device itself"
        )
    return set(there)


def _check_once(device: Provider, given: Sequence[str], there: Collection[str | None]) -> None:
    """Raise if a class is given twice, or is there already."""
    for place, name in enumerate(given):
        if name in given[:place] or name in there:
            raise exceptions.DuplicateKey(
                f"classes of {device.name}", name, "each once: as the whole, a slice or a partition"
            )


def _there(device: Provider) -> Iterator[tuple[str, int]]:
    """Yield what a device gives out: ``(class, capacity)``."""
    for _, inventory in device.inventories.by_name():
        for record in inventory.to_records():
            yield record.resource_class, record.capacity


def _counted(name: str) -> str:
    """Return a resource class of which units are counted."""
    kind = resource(name)
    if not issubclass(kind.inventory_kind, IntegerInventory):
        raise exceptions.InvalidInventory("resource class", name, "one that is counted")
    return kind.name


def number(what: str, given: object) -> int:
    """Return how many there are of something, if it is a number.

    :raises InvalidAmount: if it is none of 1 to 2^31-1
    """
    if type(given) is not int or not 1 <= given <= fields.MAX_FIGURE:
        raise exceptions.InvalidAmount(what, given, f"an integer from 1 to {fields.MAX_FIGURE}")
    return given


def _by_class(what: str, given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise exceptions.InvalidInventory(what, given, "a mapping by resource class")
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = _counted(key)
        if name in found:
            raise exceptions.DuplicateKey(what, name, "each class once")
        found[name] = value
    return found


def _counts(what: str, given: object) -> dict[str, int]:
    return {name: number(name, value) for name, value in _by_class(what, given).items()}


def _uses(name: str, given: object, there: Mapping[str, int]) -> dict[str, int]:
    """Return what one of a class uses, if that is there."""
    what = f"{_counted(name)} uses"
    uses = _counts(what, given)
    if not uses:
        raise exceptions.InvalidInventory(what, given, "at least one slice")
    for slice_, count in uses.items():
        if slice_ not in there:
            known = ", ".join(sorted(there)) or "slices, and there are none"
            raise exceptions.InvalidInventory(what, slice_, f"one of {known}")
        if count > there[slice_]:
            raise exceptions.InvalidInventory(
                what, f"{slice_}={count}", f"at most the {there[slice_]} there are"
            )
    return uses


def _shares(made: Mapping[str, Uses], device: Provider) -> tuple[Share, ...]:
    return tuple(
        Share(resource_class=name, of=device.name, of_class=slice_, factor=count)
        for name, uses in made.items()
        for slice_, count in uses.items()
    )


# --- mediated devices -----------------------------------------------------------------------------
#
# Mediated devices: the types a device may be divided into, from how many there may be of each.
#
# A driver says, for each type, how many a device offers while it has no other. It does not say
# what may exist beside what, and that differs: some devices hold one type at a time, some
# several.
#
# Several at a time are parts of one measure, see :func:`mediated`.
#
# One type at a time is what shares cannot say. Let there be a of type A or b of type B, any
# number of one, but never both. Shares are linear: so much here uses so much there, and each
# inventory has a bound. What they allow is therefore convex. With a and b of 2 or more, one A
# beside one B lies between "a of A" and "b of B", for 1/a + 1/b <= 1; so shares that allow these
# two allow that too. With a = 1 or b = 1 the measure does it: the single one uses all of it. So
# types are taken as they are if of all but one there is a single one at most. Otherwise one of
# them has to be chosen, as Nova does in its configuration; to choose another, sync the device
# anew, which the ledger refuses while something of the first is held.


def mediated(
    device: Provider,
    types: Mapping[str, int],
    *,
    whole: str | None = None,
    only: str | None = None,
    mixed: bool = False,
    measure: str = "CUSTOM_MDEV_SHARE",
) -> Provider:
    """Let a device be had as mediated devices (vGPUs) of one type or several; return it.

    Each type is a class (:func:`type_class`), of which there are as many as the device offers when
    it has no other (in sysfs ``mdev_supported_types/<type>/available_instances``). All of them are
    parts of one measure, the least common multiple of these numbers: one of n is 1/n of the device.
    That never allows more than fits into the device's memory. It may refuse a mixture that just
    would: what a type leaves over because it does not divide the memory is counted as its own.

    :param types: ``{name of the type: how many}``
    :param whole: the class of the device itself; None if nobody may have it whole
    :param only: the one type that the device is configured for; others are not there
    :param mixed: whether the device holds several types at the same time. If it does not, and they
        could not be kept apart (of two types there may be several), the call is refused
    :param measure: the class of the measure, where there are several types
    :raises InvalidInventory: if the types cannot be kept apart, or ``only`` is none of them, or
        the measure would be too large; else as :func:`split`

    >>> counts = {"nvidia-35": 16, "nvidia-38": 4}
    >>> print(mediated(Provider("host0/gpu0"), counts, only="nvidia-35"))
    host0/gpu0: CUSTOM_NVIDIA_35=16
    >>> print(mediated(Provider("host0/gpu1"), counts, mixed=True))
    host0/gpu1: CUSTOM_MDEV_SHARE=16,CUSTOM_NVIDIA_35=16,CUSTOM_NVIDIA_38=4
    >>> mediated(Provider("host0/gpu2"), counts)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInventory: types: got {...}, expected at most one type ...
    """
    counts = _typed(types)
    if only is not None:
        chosen = type_class(only)
        if chosen not in counts:
            raise exceptions.InvalidInventory("only", only, f"one of {', '.join(types)}")
        return split(device, whole, {chosen: counts[chosen]})
    if len(counts) < 2:
        return split(device, whole, counts)
    if not mixed and sum(count > 1 for count in counts.values()) > 1:
        raise exceptions.InvalidInventory(
            "types",
            dict(types),
            "at most one type of which there are several: shares cannot keep others apart; "
            "choose one with only=, or say mixed=True of a device that holds several types at once",
        )
    parts = math.lcm(*counts.values())
    if parts > fields.MAX_FIGURE:
        raise exceptions.InvalidInventory(
            "types", dict(types), f"a least common multiple of at most {fields.MAX_FIGURE}"
        )
    uses = {name: {measure: parts // count} for name, count in counts.items()}
    return split(device, whole, {measure: parts}, uses)


def type_class(name: str) -> str:
    """Return the class of a mediated type; one that is a class already is returned as it is.

    >>> type_class("nvidia-35"), type_class("i915-GVTg_V5_4"), type_class("CUSTOM_VGPU_8Q")
    ('CUSTOM_NVIDIA_35', 'CUSTOM_I915_GVTG_V5_4', 'CUSTOM_VGPU_8Q')
    """
    if not isinstance(name, str) or not name.strip():
        raise exceptions.InvalidResourceClass("type", name, "a name such as nvidia-35")
    if name.startswith(names.CUSTOM_PREFIX) or name in os_resource_classes.STANDARDS:
        return names.resource_class_name(name)
    normalized = os_resource_classes.normalize_name(name)  # type: ignore[no-untyped-call]
    return names.resource_class_name(normalized)


def _typed(types: object) -> dict[str, int]:
    """Return how many there may be of each type, by class."""
    found: dict[str, int] = {}
    for name, count in _items(types):
        kind = type_class(name)
        if kind in found:
            raise exceptions.DuplicateKey("types", name, f"no two types of the class {kind}")
        found[kind] = number(name, count)
    return found


def _items(types: object) -> Iterable[tuple[str, object]]:
    if not isinstance(types, Mapping):
        raise exceptions.InvalidInventory("types", types, "how many there may be, by type")
    return types.items()
