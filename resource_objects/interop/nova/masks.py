"""Which vCPUs are real-time, and which are dedicated under the policy mixed.

A mask is a list of vCPUs; one that begins with an exclusion (``^0-1``) means all but those.
"""

from __future__ import annotations

from resource_objects.interop.nova import errors
from resource_objects.interop.nova.cpu_policy import emulator_policy
from resource_objects.interop.nova.cpu_spec import format_cpu_spec, parse_cpu_spec
from resource_objects.interop.nova.flavor_words import FlavorWords, flag_of
from resource_objects.resources.numa.words import DEDICATED, MIXED, SHARED

_RT, _MASK = "hw:cpu_realtime", "hw:cpu_dedicated_mask"


def realtime_vcpus(words: FlavorWords) -> tuple[int, ...]:
    """Return the real-time vCPUs, ascending; none unless the flavor says ``hw:cpu_realtime``.

    The image's mask goes before the flavor's; without any, all vCPUs are real-time. Then the
    emulator needs a policy, for it has no vCPU left to run beside.

    :raises InvalidFlag: if ``hw:cpu_realtime`` is neither yes nor no
    :raises InvalidCPUList: for a mask that is no list
    :raises RealtimeMaskEmpty: if the mask leaves none
    :raises InvalidEmulatorPolicy: for a policy of the emulator that there is not
    :raises RealtimeWithoutRest: if it is all of them, and the emulator has no policy
    :raises RealtimeMaskOutOfRange: if it names vCPUs that the flavor does not have

    >>> realtime_vcpus(FlavorWords(4, 512, {"hw:cpu_realtime": "yes",
    ...                                     "hw:cpu_realtime_mask": "^0-1"}, {}))
    (2, 3)
    """
    if not flag_of(_RT, words.flavor("cpu_realtime")):
        return ()
    key, mask = "hw_cpu_realtime_mask", words.image("cpu_realtime_mask")
    if not mask:
        key, mask = "hw:cpu_realtime_mask", words.flavor("cpu_realtime_mask")
    chosen = _masked(words.vcpus, key, mask) if mask else tuple(range(words.vcpus))
    if not chosen:
        raise errors.RealtimeMaskEmpty(key, mask, "a mask that leaves at least one vCPU")
    emulator = emulator_policy(words)
    if len(chosen) == words.vcpus > chosen[-1] and not emulator:
        raise errors.RealtimeWithoutRest(
            key, mask, "fewer than all vCPUs, or hw:emulator_threads_policy"
        )
    if chosen[-1] >= words.vcpus:
        raise errors.RealtimeMaskOutOfRange(key, mask, f"vCPUs below {words.vcpus}")
    return chosen


def dedicated_mask(words: FlavorWords) -> tuple[int, ...]:
    """Return the vCPUs of ``hw:cpu_dedicated_mask``, ascending; none without it.

    :raises InvalidCPUList: for a mask that is no list
    :raises DedicatedMaskImproper: if it leaves none, or is all of them
    :raises DedicatedMaskOutOfRange: if it names vCPUs that the flavor does not have

    >>> dedicated_mask(FlavorWords(4, 512, {"hw:cpu_dedicated_mask": "^0"}, {}))
    (1, 2, 3)
    """
    mask = words.flavor("cpu_dedicated_mask")
    if not mask:
        return ()
    chosen = _masked(words.vcpus, _MASK, mask)
    if not chosen or not set(range(words.vcpus)).difference(chosen):
        raise errors.DedicatedMaskImproper(_MASK, mask, "some of the vCPUs, and not all")
    if chosen[-1] >= words.vcpus:
        raise errors.DedicatedMaskOutOfRange(_MASK, mask, f"vCPUs below {words.vcpus}")
    return chosen


def dedicated_vcpus(
    words: FlavorWords, policy: str, realtime: tuple[int, ...], masked: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the vCPUs that have a CPU each, under a CPU policy (``""``: none is said).

    Under mixed, they are those of the one mask there is.

    :raises DedicatedMaskWithoutMixed: if there is that mask under another policy
    :raises RealtimeWithoutPinning: if there are real-time vCPUs and no dedicated ones
    :raises MixedWithoutMask: if the policy is mixed, and no mask says which
    :raises MixedWithTwoMasks: if two do

    >>> dedicated_vcpus(FlavorWords(4, 512, {}, {}), "mixed", (2, 3), ())
    (2, 3)
    """
    if policy == MIXED:
        return _of_mixed(words, realtime, masked)
    if masked:
        raise errors.DedicatedMaskWithoutMixed(
            _MASK, format_cpu_spec(masked), f"none, for the policy is {policy or SHARED}, not mixed"
        )
    if policy == DEDICATED:
        return tuple(range(words.vcpus))
    if realtime:
        raise errors.RealtimeWithoutPinning(
            _RT, words.flavor("cpu_realtime"), "no, for no vCPU is dedicated"
        )
    return ()


def _of_mixed(
    words: FlavorWords, realtime: tuple[int, ...], masked: tuple[int, ...]
) -> tuple[int, ...]:
    if masked and realtime:
        raise errors.MixedWithTwoMasks(
            _MASK, format_cpu_spec(masked), f"none, for {_RT} says which vCPUs are dedicated"
        )
    if not masked and not realtime:
        raise errors.MixedWithoutMask(
            _MASK, words.flavor("cpu_dedicated_mask"), f"a mask, or {_RT}, for the policy is mixed"
        )
    return masked or realtime


def _masked(vcpus: int, key: str, mask: str) -> tuple[int, ...]:
    """Return the vCPUs of a mask."""
    return parse_cpu_spec(f"0-{vcpus - 1},{mask}" if mask.strip().startswith("^") else mask, key)
