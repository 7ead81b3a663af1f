"""The CPU policy, and where the emulator's threads run."""

from __future__ import annotations

from resource_objects.interop.nova import errors
from resource_objects.interop.nova.flavor_words import FlavorWords
from resource_objects.resources.numa.words import (
    DEDICATED,
    EMULATOR_POLICIES,
    ISOLATE,
    MIXED,
    SHARED,
)

_POLICIES = (SHARED, DEDICATED, MIXED)
#: ``{policy of the flavor: policies an image may not ask for}``; under dedicated it may ask for any
#: and has no say.
_FORBIDDEN = {SHARED: (DEDICATED, MIXED), MIXED: (DEDICATED,), DEDICATED: ()}


def cpu_policy(words: FlavorWords) -> str:
    """Return the policy that ``cpu_policy`` says, ``""`` for none.

    The flavor's wins; an image may say what does not give it more than the flavor.

    :raises InvalidCPUPolicy: for a word that is no policy
    :raises CPUPolicyConflict: if the image asks for what the flavor's forbids

    >>> cpu_policy(FlavorWords(4, 512, {}, {"hw_cpu_policy": "dedicated"}))
    'dedicated'
    """
    flavor, image = words.flavor("cpu_policy"), words.image("cpu_policy")
    for key, policy in (("hw:cpu_policy", flavor), ("hw_cpu_policy", image)):
        if policy and policy not in _POLICIES:
            raise errors.InvalidCPUPolicy(key, policy, f"one of {', '.join(_POLICIES)}")
    if image in _FORBIDDEN.get(flavor, ()):
        raise errors.CPUPolicyConflict(
            "hw_cpu_policy", image, f"none or {flavor}, for the flavor says hw:cpu_policy={flavor}"
        )
    return flavor or image


def emulator_policy(words: FlavorWords) -> str | None:
    """Return where the emulator's threads run, None if nothing is said; images have no say.

    :raises InvalidEmulatorPolicy: for a word that is no policy

    >>> emulator_policy(FlavorWords(4, 512, {"hw:emulator_threads_policy": "isolate"}, {}))
    'isolate'
    """
    policy = words.flavor("emulator_threads_policy")
    if policy and policy not in EMULATOR_POLICIES:
        raise errors.InvalidEmulatorPolicy(
            "hw:emulator_threads_policy", policy, f"one of {', '.join(EMULATOR_POLICIES)}"
        )
    return policy or None


def check_emulator_policy(policy: str, emulator: str | None) -> None:
    """Refuse a CPU of the emulator's own where no vCPU has one.

    :raises EmulatorPolicyWithoutPinning: if the policy is shared, or none
    """
    if emulator == ISOLATE and policy in ("", SHARED):
        raise errors.EmulatorPolicyWithoutPinning(
            "hw:emulator_threads_policy", emulator, "share or none, for no vCPU is dedicated"
        )
