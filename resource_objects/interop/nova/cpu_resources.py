"""``resources:PCPU`` and ``resources:VCPU``: CPUs asked of placement by name, which imply a policy.

They may stand in any group of the request (``resources1:PCPU``, ``resources_A:PCPU``) and are
added up. Nova reads here only groups that are numbers, so that a flavor of ``resources_A:PCPU=4``
takes four CPUs in placement and pins none.
"""

from __future__ import annotations

import re

from resource_objects.interop.nova import errors
from resource_objects.interop.nova.flavor_words import FlavorWords, text_of
from resource_objects.resources.numa.words import DEDICATED, ISOLATE, SHARED

_KEY = re.compile(r"resources(?:[A-Za-z0-9_-]{1,64})?:(VCPU|PCPU)\Z")
_COUNT = re.compile(r"[0-9]{1,10}\Z", re.ASCII)


def policy_with_resources(words: FlavorWords, policy: str, emulator: str | None) -> str:
    """Return the CPU policy: what the amounts imply, else ``policy``.

    PCPU implies dedicated, VCPU shared; an amount of 0 implies nothing. How much VCPU it is does
    not matter, as in Nova: the flavor's vCPUs count.

    :raises InvalidResourceCount: for an amount that is no whole number
    :raises ResourcesWithPolicy: if there is a policy too
    :raises ResourcesOfBothKinds: if there are both
    :raises PCPUCountMismatch: if PCPU is not the vCPUs, and one more for an isolated emulator

    >>> policy_with_resources(FlavorWords(4, 512, {"resources:PCPU": "4"}, {}), "", None)
    'dedicated'
    """
    counts = _counts(words)
    asked = {name: count for name, count in counts.items() if count}
    if not asked:
        return policy
    shown = ", ".join(f"{name}={count}" for name, count in asked.items())
    if policy:
        raise errors.ResourcesWithPolicy(
            "resources:VCPU, resources:PCPU", shown, f"none, for cpu_policy says {policy}"
        )
    if len(asked) > 1:
        raise errors.ResourcesOfBothKinds("resources:VCPU, resources:PCPU", shown, "one of them")
    if "VCPU" in asked:
        return SHARED
    _check_pcpus(words.vcpus, asked["PCPU"], emulator)
    return DEDICATED


def _check_pcpus(vcpus: int, asked: int, emulator: str | None) -> None:
    extra = emulator == ISOLATE
    if asked != vcpus + extra:
        why = f"{vcpus} of the flavor" + (" and 1 for the emulator" if extra else "")
        raise errors.PCPUCountMismatch("resources:PCPU", asked, f"{vcpus + extra}: {why}")


def _counts(words: FlavorWords) -> dict[str, int]:
    """Return how much of each class is asked for, over all groups."""
    counts = {"VCPU": 0, "PCPU": 0}
    for key, value in words.extra_specs.items():
        found = _KEY.match(key) if isinstance(key, str) else None
        text = text_of(key, value) if found else ""
        if found is None or not text:
            continue
        if not _COUNT.match(text):
            raise errors.InvalidResourceCount(key, text, "a whole number from 0")
        counts[found[1]] += int(text)
    return counts
