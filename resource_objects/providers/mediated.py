"""Mediated devices: the types a device may be divided into, from how many there may be of each.

A driver says, for each type, how many a device offers while it has no other. It does not say what
may exist beside what, and that differs: some devices hold one type at a time, some several.

Several at a time are parts of one measure, see :func:`mediated`.

One type at a time is what shares cannot say. Let there be a of type A or b of type B, any number of
one, but never both. Shares are linear: so much here uses so much there, and each inventory has a
bound. What they allow is therefore convex. With a and b of 2 or more, one A beside one B lies
between "a of A" and "b of B", for 1/a + 1/b <= 1; so shares that allow these two allow that too.
With a = 1 or b = 1 the measure does it: the single one uses all of it. So types are taken as they
are if of all but one there is a single one at most. Otherwise one of them has to be chosen, as Nova
does in its configuration; to choose another, sync the device anew, which the ledger refuses while
something of the first is held.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import os_resource_classes

from resource_objects import exceptions, fields, names
from resource_objects.providers.partitions import number, split
from resource_objects.providers.provider import Provider


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
