"""CPUs in Nova's words: lists of them, and the policies of vCPUs and of the emulator's threads.

Lists are ``0-3,^2,8``: items stand in any order and exclusions always win; an item may be empty,
and so may be what is left. Source: ``parse_cpu_spec`` and ``format_cpu_spec`` of Nova 34. Python's
own ways of writing numbers (``+1``, ``1_0``), which Nova reads by accident, are refused.

Policies have keys of their own, or are implied:

* ``resources:PCPU`` implies dedicated and ``resources:VCPU`` shared. They may stand in any group
  (``resources1:``, ``resources_A:``) and are added up; Nova reads here only numbered groups,
  so that a flavor of ``resources_A:PCPU=4`` takes four CPUs in placement and pins none.
* ``trait:HW_CPU_HYPERTHREADING=forbidden`` asks of Nova for a host without hyperthreads, and here
  for the policy that gives the same to the guest, isolate; on a host without them both are alike.
  What Nova ignores (another value than required or forbidden, a second key that says the opposite,
  an image that forbids) is refused.

Masks say which vCPUs are real-time, and which are dedicated under the policy mixed. A mask is a
list of vCPUs; one that begins with an exclusion (``^0-1``) means all but those.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from resource_objects import exceptions
from resource_objects.interop.nova.flavor_words import FlavorWords, flag_of, text_of
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources.numa.amount import (
    DEDICATED,
    EMULATOR_POLICIES,
    ISOLATE,
    MIXED,
    PREFER,
    REQUIRE,
    SHARED,
    THREAD_POLICIES,
)
from resource_objects.resources.numa.cpuset import CPUSet

_AROUND = re.compile(r"\s*([-^])\s*")


def format_cpu_spec(cpus: Iterable[int]) -> str:
    """Return CPUs as a list, which :func:`parse_cpu_spec` reads."""
    return str(CPUSet(cpus))


def parse_cpu_spec(text: str, what: str = "CPU list") -> tuple[int, ...]:
    """Return the CPUs of a list, ascending; none, if the exclusions leave none.

    :param what: what the list is for, to name it in an error
    :raises InvalidNovaInput: ``INVALID_CPU_LIST`` if it is no such list

    >>> parse_cpu_spec("1-4,^3,6")
    (1, 2, 4, 6)
    >>> parse_cpu_spec("^1,,0-1,^0")
    ()
    >>> parse_cpu_spec("4-1")
    Traceback (most recent call last):
    resource_objects.interop.nova.rules.InvalidNovaInput: CPU list: got '4-1', expected a list ...
    """
    if not isinstance(text, str):
        raise InvalidNovaInput(
            NovaRule.INVALID_CPU_LIST, what, text, "a list of CPUs such as 0-3,8 or 0-7,^2"
        )
    items = [_AROUND.sub(r"\1", item.strip()) for item in text.split(",")]
    wanted = [item for item in items if item and not item.startswith("^")]
    excluded = [item[1:] for item in items if item.startswith("^")]
    try:
        left = set(_without_exclusions(wanted)).difference(_without_exclusions(excluded))
    except exceptions.InvalidInput as error:
        if not error.is_about("text"):
            raise
        raise InvalidNovaInput(NovaRule.INVALID_CPU_LIST, what, text, error.expected) from error
    return tuple(sorted(left))


def _without_exclusions(items: list[str]) -> tuple[int, ...]:
    """Return the CPUs of items without exclusions."""
    if any(item in ("", "^") or item.startswith("^") for item in items):
        raise exceptions.InvalidInput(
            "text", "CPU list", items, "a list of CPUs such as 0-3,8 or 0-7,^2"
        )
    return CPUSet.parse(",".join(items)) if items else ()


_CPU_POLICIES = (SHARED, DEDICATED, MIXED)
#: ``{policy of the flavor: policies an image may not ask for}``; under dedicated it may ask for any
#: and has no say.
_FORBIDDEN = {SHARED: (DEDICATED, MIXED), MIXED: (DEDICATED,), DEDICATED: ()}


def _check_policy(rule: NovaRule, key: str, policy: str, known: Collection[str]) -> None:
    """Refuse a word that is no policy; none is said by ``""``."""
    if policy and policy not in known:
        raise InvalidNovaInput(rule, key, policy, f"one of {', '.join(known)}")


def cpu_policy(words: FlavorWords) -> str:
    """Return the policy that ``cpu_policy`` says, ``""`` for none.

    The flavor's wins; an image may say what does not give it more than the flavor.

    :raises InvalidNovaInput: ``INVALID_CPU_POLICY`` for a word that is no policy;
        ``CPU_POLICY_CONFLICT`` if the image asks for what the flavor's forbids

    >>> cpu_policy(FlavorWords(4, 512, {}, {"hw_cpu_policy": "dedicated"}))
    'dedicated'
    """
    flavor, image = words.flavor("cpu_policy"), words.image("cpu_policy")
    for key, policy in (("hw:cpu_policy", flavor), ("hw_cpu_policy", image)):
        _check_policy(NovaRule.INVALID_CPU_POLICY, key, policy, _CPU_POLICIES)
    if image in _FORBIDDEN.get(flavor, ()):
        raise InvalidNovaInput(
            NovaRule.CPU_POLICY_CONFLICT,
            "hw_cpu_policy",
            image,
            f"none or {flavor}, for the flavor says hw:cpu_policy={flavor}",
        )
    return flavor or image


def emulator_policy(words: FlavorWords) -> str | None:
    """Return where the emulator's threads run, None if nothing is said; images have no say.

    :raises InvalidNovaInput: ``INVALID_EMULATOR_POLICY`` for a word that is no policy

    >>> emulator_policy(FlavorWords(4, 512, {"hw:emulator_threads_policy": "isolate"}, {}))
    'isolate'
    """
    policy = words.flavor("emulator_threads_policy")
    key = "hw:emulator_threads_policy"
    _check_policy(NovaRule.INVALID_EMULATOR_POLICY, key, policy, EMULATOR_POLICIES)
    return policy or None


def check_emulator_policy(policy: str, emulator: str | None) -> None:
    """Refuse a CPU of the emulator's own where no vCPU has one.

    :raises InvalidNovaInput: ``EMULATOR_POLICY_WITHOUT_PINNING`` if the policy is shared, or none
    """
    if emulator == ISOLATE and policy in ("", SHARED):
        raise InvalidNovaInput(
            NovaRule.EMULATOR_POLICY_WITHOUT_PINNING,
            "hw:emulator_threads_policy",
            emulator,
            "share or none, for no vCPU is dedicated",
        )


_RESOURCES = re.compile(r"resources(?:[A-Za-z0-9_-]{1,64})?:(VCPU|PCPU)\Z")
_COUNT = re.compile(r"[0-9]{1,10}\Z", re.ASCII)


def policy_with_resources(words: FlavorWords, policy: str, emulator: str | None) -> str:
    """Return the CPU policy: what the amounts imply, else ``policy``.

    PCPU implies dedicated, VCPU shared; an amount of 0 implies nothing. How much VCPU it is does
    not matter, as in Nova: the flavor's vCPUs count.

    :raises InvalidNovaInput: ``INVALID_RESOURCE_COUNT`` for an amount that is no whole number;
        ``RESOURCES_WITH_POLICY`` if there is a policy too; ``RESOURCES_OF_BOTH_KINDS`` if there are
        both; ``PCPU_COUNT_MISMATCH`` if PCPU is not the vCPUs, and one more for an isolated
        emulator

    >>> policy_with_resources(FlavorWords(4, 512, {"resources:PCPU": "4"}, {}), "", None)
    'dedicated'
    """
    counts = _resource_counts(words)
    requested = {name: count for name, count in counts.items() if count}
    if not requested:
        return policy
    shown = ", ".join(f"{name}={count}" for name, count in requested.items())
    if policy:
        raise InvalidNovaInput(
            NovaRule.RESOURCES_WITH_POLICY,
            "resources:VCPU, resources:PCPU",
            shown,
            f"none, for cpu_policy says {policy}",
        )
    if len(requested) > 1:
        raise InvalidNovaInput(
            NovaRule.RESOURCES_OF_BOTH_KINDS, "resources:VCPU, resources:PCPU", shown, "one of them"
        )
    if "VCPU" in requested:
        return SHARED
    _check_pcpus(words.vcpus, requested["PCPU"], emulator)
    return DEDICATED


def _check_pcpus(vcpus: int, requested: int, emulator: str | None) -> None:
    extra = emulator == ISOLATE
    if requested != vcpus + extra:
        why = f"{vcpus} of the flavor" + (" and 1 for the emulator" if extra else "")
        raise InvalidNovaInput(
            NovaRule.PCPU_COUNT_MISMATCH, "resources:PCPU", requested, f"{vcpus + extra}: {why}"
        )


def _resource_counts(words: FlavorWords) -> dict[str, int]:
    counts = {"VCPU": 0, "PCPU": 0}
    for key, value in words.extra_specs.items():
        result = _RESOURCES.match(key) if isinstance(key, str) else None
        text = text_of(key, value) if result else ""
        if result is None or not text:
            continue
        if not _COUNT.match(text):
            raise InvalidNovaInput(
                NovaRule.INVALID_RESOURCE_COUNT, key, text, "a whole number from 0"
            )
        counts[result[1]] += int(text)
    return counts


_TRAIT = "trait:HW_CPU_HYPERTHREADING"
_TRAIT_KEY = re.compile(r"trait(?:[A-Za-z0-9_-]{1,64})?:HW_CPU_HYPERTHREADING\Z")
_IMPLIED = {"forbidden": ISOLATE, "required": REQUIRE}


def thread_policy(words: FlavorWords) -> str | None:
    """Return the policy that ``cpu_thread_policy`` says, None for none.

    An image chooses where the flavor says nothing. Under a flavor's prefer it may say anything and
    has no say, as in Nova.

    :raises InvalidNovaInput: ``INVALID_THREAD_POLICY`` for a word that is no policy;
        ``THREAD_POLICY_CONFLICT`` if flavor and image disagree

    >>> thread_policy(FlavorWords(4, 512, {}, {"hw_cpu_thread_policy": "isolate"}))
    'isolate'
    """
    flavor, image = words.flavor("cpu_thread_policy"), words.image("cpu_thread_policy")
    for key, policy in (("hw:cpu_thread_policy", flavor), ("hw_cpu_thread_policy", image)):
        _check_policy(NovaRule.INVALID_THREAD_POLICY, key, policy, THREAD_POLICIES)
    if flavor in ("", PREFER):
        return flavor or image or None
    if image and image != flavor:
        raise InvalidNovaInput(
            NovaRule.THREAD_POLICY_CONFLICT,
            "hw_cpu_thread_policy",
            image,
            f"none or {flavor}, for the flavor says hw:cpu_thread_policy={flavor}",
        )
    return flavor


def policy_with_trait(words: FlavorWords, policy: str | None) -> str | None:
    """Return the thread policy: what the trait implies, else ``policy``.

    :raises InvalidNovaInput: ``INVALID_HYPERTHREADING_TRAIT`` for a value that a trait cannot have
        there; ``HYPERTHREADING_TRAIT_CONFLICT`` if it is required and forbidden;
        ``HYPERTHREADING_TRAIT_WITH_POLICY`` if there is a policy too

    >>> image = {"trait:HW_CPU_HYPERTHREADING": "required"}
    >>> policy_with_trait(FlavorWords(4, 512, {}, image), None)
    'require'
    """
    said = {value: key for key, value in _traits_said(words)}
    if not said:
        return policy
    if len(said) > 1:
        raise InvalidNovaInput(
            NovaRule.HYPERTHREADING_TRAIT_CONFLICT, _TRAIT, sorted(said), "one of them"
        )
    ((value, key),) = said.items()
    if policy:
        raise InvalidNovaInput(
            NovaRule.HYPERTHREADING_TRAIT_WITH_POLICY,
            key,
            value,
            f"none, for cpu_thread_policy says {policy}",
        )
    return _IMPLIED[value]


def check_thread_policy(policy: str, threads: str | None) -> None:
    """Refuse a thread policy where no vCPU is dedicated.

    :raises InvalidNovaInput: ``THREAD_POLICY_WITHOUT_PINNING`` if the CPU policy is shared, or none
    """
    if threads and policy in ("", SHARED):
        raise InvalidNovaInput(
            NovaRule.THREAD_POLICY_WITHOUT_PINNING,
            "cpu_thread_policy",
            threads,
            "none, for no vCPU is dedicated",
        )


def _traits_said(words: FlavorWords) -> Iterator[tuple[str, str]]:
    """Yield (key, value) wherever the trait is said."""
    for key, value in words.extra_specs.items():
        if isinstance(key, str) and _TRAIT_KEY.match(key) and (text := text_of(key, value)):
            if text not in _IMPLIED:
                raise InvalidNovaInput(
                    NovaRule.INVALID_HYPERTHREADING_TRAIT, key, text, "required or forbidden"
                )
            yield key, text
    if text := text_of(_TRAIT, words.properties.get(_TRAIT)):
        if text != "required":
            raise InvalidNovaInput(
                NovaRule.INVALID_HYPERTHREADING_TRAIT, f"{_TRAIT} of the image", text, "required"
            )
        yield f"{_TRAIT} of the image", text


_RT, _MASK = "hw:cpu_realtime", "hw:cpu_dedicated_mask"


def realtime_vcpus(words: FlavorWords) -> tuple[int, ...]:
    """Return the real-time vCPUs, ascending; none unless the flavor says ``hw:cpu_realtime``.

    The image's mask goes before the flavor's; without any, all vCPUs are real-time. Then the
    emulator needs a policy, for it has no vCPU left to run beside.

    :raises InvalidNovaInput: ``INVALID_FLAG`` if ``hw:cpu_realtime`` is neither yes nor no;
        ``INVALID_CPU_LIST`` for a mask that is no list; ``REALTIME_MASK_EMPTY`` if the mask leaves
        none; ``INVALID_EMULATOR_POLICY`` for a policy of the emulator that there is not;
        ``REALTIME_WITHOUT_REST`` if it is all of them, and the emulator has no policy;
        ``REALTIME_MASK_OUT_OF_RANGE`` if it names vCPUs that the flavor does not have

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
        raise InvalidNovaInput(
            NovaRule.REALTIME_MASK_EMPTY, key, mask, "a mask that leaves at least one vCPU"
        )
    emulator = emulator_policy(words)
    if len(chosen) == words.vcpus > chosen[-1] and not emulator:
        raise InvalidNovaInput(
            NovaRule.REALTIME_WITHOUT_REST,
            key,
            mask,
            "fewer than all vCPUs, or hw:emulator_threads_policy",
        )
    if chosen[-1] >= words.vcpus:
        raise InvalidNovaInput(
            NovaRule.REALTIME_MASK_OUT_OF_RANGE, key, mask, f"vCPUs below {words.vcpus}"
        )
    return chosen


def dedicated_mask(words: FlavorWords) -> tuple[int, ...]:
    """Return the vCPUs of ``hw:cpu_dedicated_mask``, ascending; none without it.

    :raises InvalidNovaInput: ``INVALID_CPU_LIST`` for a mask that is no list;
        ``DEDICATED_MASK_IMPROPER`` if it leaves none, or is all of them;
        ``DEDICATED_MASK_OUT_OF_RANGE`` if it names vCPUs that the flavor does not have

    >>> dedicated_mask(FlavorWords(4, 512, {"hw:cpu_dedicated_mask": "^0"}, {}))
    (1, 2, 3)
    """
    mask = words.flavor("cpu_dedicated_mask")
    if not mask:
        return ()
    chosen = _masked(words.vcpus, _MASK, mask)
    if not chosen or not set(range(words.vcpus)).difference(chosen):
        raise InvalidNovaInput(
            NovaRule.DEDICATED_MASK_IMPROPER, _MASK, mask, "some of the vCPUs, and not all"
        )
    if chosen[-1] >= words.vcpus:
        raise InvalidNovaInput(
            NovaRule.DEDICATED_MASK_OUT_OF_RANGE, _MASK, mask, f"vCPUs below {words.vcpus}"
        )
    return chosen


def dedicated_vcpus(
    words: FlavorWords, policy: str, realtime: tuple[int, ...], masked: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the vCPUs that have a CPU each, under a CPU policy (``""``: none is said).

    Under mixed, they are those of the one mask there is.

    :raises InvalidNovaInput: ``DEDICATED_MASK_WITHOUT_MIXED`` if there is that mask under another
        policy; ``REALTIME_WITHOUT_PINNING`` if there are real-time vCPUs and no dedicated ones;
        ``MIXED_WITHOUT_MASK`` if the policy is mixed, and no mask says which;
        ``MIXED_WITH_TWO_MASKS`` if two do

    >>> dedicated_vcpus(FlavorWords(4, 512, {}, {}), "mixed", (2, 3), ())
    (2, 3)
    """
    if policy == MIXED:
        return _of_mixed(words, realtime, masked)
    if masked:
        raise InvalidNovaInput(
            NovaRule.DEDICATED_MASK_WITHOUT_MIXED,
            _MASK,
            format_cpu_spec(masked),
            f"none, for the policy is {policy or SHARED}, not mixed",
        )
    if policy == DEDICATED:
        return tuple(range(words.vcpus))
    if realtime:
        raise InvalidNovaInput(
            NovaRule.REALTIME_WITHOUT_PINNING,
            _RT,
            words.flavor("cpu_realtime"),
            "no, for no vCPU is dedicated",
        )
    return ()


def _of_mixed(
    words: FlavorWords, realtime: tuple[int, ...], masked: tuple[int, ...]
) -> tuple[int, ...]:
    if masked and realtime:
        raise InvalidNovaInput(
            NovaRule.MIXED_WITH_TWO_MASKS,
            _MASK,
            format_cpu_spec(masked),
            f"none, for {_RT} says which vCPUs are dedicated",
        )
    if not masked and not realtime:
        raise InvalidNovaInput(
            NovaRule.MIXED_WITHOUT_MASK,
            _MASK,
            words.flavor("cpu_dedicated_mask"),
            f"a mask, or {_RT}, for the policy is mixed",
        )
    return masked or realtime


def _masked(vcpus: int, key: str, mask: str) -> tuple[int, ...]:
    """Return the vCPUs of a mask."""
    return parse_cpu_spec(f"0-{vcpus - 1},{mask}" if mask.strip().startswith("^") else mask, key)
