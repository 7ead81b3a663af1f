"""How dedicated vCPUs use the threads of a core: ``cpu_thread_policy``, or a trait implying it.

``trait:HW_CPU_HYPERTHREADING=forbidden`` asks of Nova for a host without hyperthreads, and here for
the policy that gives the same to the guest, isolate; on a host without them both are alike. What
Nova ignores (another value than required or forbidden, a second key that says the opposite, an
image that forbids) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from resource_objects.interop.nova import errors
from resource_objects.interop.nova.flavor_words import FlavorWords, text_of
from resource_objects.resources.numa.words import ISOLATE, PREFER, REQUIRE, SHARED, THREAD_POLICIES

_TRAIT = "trait:HW_CPU_HYPERTHREADING"
_KEY = re.compile(r"trait(?:[A-Za-z0-9_-]{1,64})?:HW_CPU_HYPERTHREADING\Z")
_IMPLIED = {"forbidden": ISOLATE, "required": REQUIRE}


def thread_policy(words: FlavorWords) -> str | None:
    """Return the policy that ``cpu_thread_policy`` says, None for none.

    An image chooses where the flavor says nothing. Under a flavor's prefer it may say anything and
    has no say, as in Nova.

    :raises InvalidThreadPolicy: for a word that is no policy
    :raises ThreadPolicyConflict: if flavor and image disagree

    >>> thread_policy(FlavorWords(4, 512, {}, {"hw_cpu_thread_policy": "isolate"}))
    'isolate'
    """
    flavor, image = words.flavor("cpu_thread_policy"), words.image("cpu_thread_policy")
    for key, policy in (("hw:cpu_thread_policy", flavor), ("hw_cpu_thread_policy", image)):
        if policy and policy not in THREAD_POLICIES:
            raise errors.InvalidThreadPolicy(key, policy, f"one of {', '.join(THREAD_POLICIES)}")
    if flavor in ("", PREFER):
        return flavor or image or None
    if image and image != flavor:
        raise errors.ThreadPolicyConflict(
            "hw_cpu_thread_policy",
            image,
            f"none or {flavor}, for the flavor says hw:cpu_thread_policy={flavor}",
        )
    return flavor


def policy_with_trait(words: FlavorWords, policy: str | None) -> str | None:
    """Return the thread policy: what the trait implies, else ``policy``.

    :raises InvalidHyperthreadingTrait: for a value that a trait cannot have there
    :raises HyperthreadingTraitConflict: if it is required and forbidden
    :raises HyperthreadingTraitWithPolicy: if there is a policy too

    >>> image = {"trait:HW_CPU_HYPERTHREADING": "required"}
    >>> policy_with_trait(FlavorWords(4, 512, {}, image), None)
    'require'
    """
    said = {value: key for key, value in _said(words)}
    if not said:
        return policy
    if len(said) > 1:
        raise errors.HyperthreadingTraitConflict(_TRAIT, sorted(said), "one of them")
    ((value, key),) = said.items()
    if policy:
        raise errors.HyperthreadingTraitWithPolicy(
            key, value, f"none, for cpu_thread_policy says {policy}"
        )
    return _IMPLIED[value]


def check_thread_policy(policy: str, threads: str | None) -> None:
    """Refuse a thread policy where no vCPU is dedicated.

    :raises ThreadPolicyWithoutPinning: if the CPU policy is shared, or none
    """
    if threads and policy in ("", SHARED):
        raise errors.ThreadPolicyWithoutPinning(
            "cpu_thread_policy", threads, "none, for no vCPU is dedicated"
        )


def _said(words: FlavorWords) -> Iterator[tuple[str, str]]:
    """Yield (key, value) wherever the trait is said."""
    for key, value in words.extra_specs.items():
        if isinstance(key, str) and _KEY.match(key) and (text := text_of(key, value)):
            if text not in _IMPLIED:
                raise errors.InvalidHyperthreadingTrait(key, text, "required or forbidden")
            yield key, text
    if text := text_of(_TRAIT, words.properties.get(_TRAIT)):
        if text != "required":
            raise errors.InvalidHyperthreadingTrait(f"{_TRAIT} of the image", text, "required")
        yield f"{_TRAIT} of the image", text
