"""What a flavor asks for in resource classes and traits, as a request.

A flavor asks for its vCPUs (``VCPU``), memory (``MEMORY_MB``, MiB) and disks (``DISK_GB``, GiB:
root, ephemeral, and swap rounded up), and says the rest in its extra specs:

====================================  ==============================================================
key                                   what it says
====================================  ==============================================================
``resources:CLASS=2``                 an amount, in place of the flavor's own of that class
``resources:CLASS=0``                 none of it: suppresses the flavor's own
``resourcesS:CLASS=2``                an amount of the group named ``S``, from one provider
``trait:NAME=required``, ``traitS:``  who gives it has the trait
``trait:NAME=forbidden``              who gives it has it not
``group_policy=none``, ``isolate``    whether named groups need different providers
``resource:CLASS=2``                  as ``resources:``, in the words of the first design
====================================  ==============================================================

The flavor's own amount of a class counts if the extra specs say that class nowhere, in no group;
``VCPU`` if they say neither ``VCPU`` nor ``PCPU``. An image may require traits
(``trait:NAME=required``), of the group without a name. A request that is read here has Placement's
semantics (``compatibility="placement"``, D14).

These rules are Nova's (34; ``ResourceRequest`` of its scheduler). What differs is what it ignores
with a warning, or hands to Placement, which refuses it; here it has an error of its own:

=====================================  =============================================================
words                                  Nova, and here
=====================================  =============================================================
``resources:CUSTOM_X=many``, ``=-1``,  ignored; refused (INVALID_RESOURCE_AMOUNT)
``=`` with nothing
``resources:VCPU=+2``, ``1_0``         read as Python does; refused (INVALID_RESOURCE_AMOUNT)
``resources:vcpu=2``                   ignored; refused (UNKNOWN_FLAVOR_RESOURCE)
``resources$:VCPU``, ``resource1:X``   ignored; refused (INVALID_REQUEST_KEY)
``resource:VCPU=2``                    ignored; read
``resource:VCPU=2`` and                the second counts; refused (RESOURCE_SAID_TWICE)
``resources:VCPU=2``
``resources:NUMA_TOPOLOGY=1``          ignored; refused (RESOURCE_NOT_COUNTED)
``trait:CUSTOM_X=maybe``               ignored; refused (INVALID_TRAIT_VALUE)
``trait:CUSTOM_A,CUSTOM_B=required``   two traits to Placement; refused (UNKNOWN_FLAVOR_TRAIT)
``resources:CUSTOM_A:1,CUSTOM_B=2``    two classes to Placement; refused (UNKNOWN_FLAVOR_RESOURCE)
``group_policy=apart``                 ignored; refused (INVALID_GROUP_POLICY)
a trait nobody knows, forbidden and    no valid host; refused (UNKNOWN_FLAVOR_TRAIT,
required, of a group without amounts   FLAVOR_TRAIT_CONFLICT, GROUP_WITHOUT_RESOURCES)
two named groups without a policy      no valid host; refused (GROUP_POLICY_MISSING)
everything suppressed                  no valid host; refused (NOTHING_ASKED)
=====================================  =============================================================

Not read here, as other keys are not: ``hw:``, of which :mod:`.flavor` makes a topology that
:func:`flavor_request` takes, and what Nova makes of traits by itself (secure boot, TPM, memory
encryption).
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE, FrozenDict
from resource_objects.interop.nova.flavor import FlavorTopology
from resource_objects.interop.nova.flavor_words import FlavorWords, text_of
from resource_objects.interop.nova.nova_objects import extra_specs_of, image_properties
from resource_objects.interop.nova.primitive import Document
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.requests import Request, RequestGroup
from resource_objects.requests.request import POLICIES
from resource_objects.resources import IntegerAmount, catalog
from resource_objects.resources.pci import DEVICES
from resource_objects.resources.pci.amount import PCIAmount
from resource_objects.resources.traits import known_traits

__all__ = ["flavor_request"]

_NOTHING: Final[Mapping[str, Any]] = FrozenDict()
#: What a topology says.
_OF_TOPOLOGY: Final = ("VCPU", "PCPU", "MEMORY_MB")


def flavor_request(
    vcpus: int,
    memory_mb: int,
    *,
    root_gb: int = 0,
    ephemeral_gb: int = 0,
    swap_mb: int = 0,
    extra_specs: Document = _NOTHING,
    image: Document = _NOTHING,
    topology: FlavorTopology | None = None,
    devices: PCIAmount | None = None,
) -> Request:
    """Return what a flavor and its image ask of placement, beside a topology and devices.

    :param memory_mb: MiB
    :param root_gb: GiB; 0 for a server that boots from a volume
    :param ephemeral_gb: GiB
    :param swap_mb: MiB
    :param extra_specs: of the flavor, text by key, or Nova's own ``Flavor``; other keys are left
        alone
    :param image: the image's properties, text by key, or Nova's own ``ImageMeta``; other keys are
        left alone
    :param topology: what :func:`.flavor_topology` made of the same flavor; its CPUs and memory are
        those of the request, and say where they go
    :param devices: what :func:`.flavor_devices` made of the same flavor
    :raises InvalidNovaInput: by the first rule that is broken
    :returns: the request; O(keys)

    >>> print(flavor_request(4, 2048, root_gb=20, swap_mb=100, extra_specs={
    ...     "resources:VCPU": "0", "resources_GPU:PGPU": "1", "trait_GPU:CUSTOM_H100": "required"}))
    MEMORY_MB=2048,DISK_GB=21; _GPU: PGPU=1 required=CUSTOM_H100; compatibility=placement
    >>> flavor_request(4, 2048, extra_specs={"resources:CUSTOM_X": "many"})
    Traceback (most recent call last):
    resource_objects.interop.nova.rules.InvalidNovaInput: resources:CUSTOM_X: got ...
    """
    said, properties = extra_specs_of(extra_specs), image_properties(image)
    FlavorWords(vcpus, memory_mb, said, properties)
    disk_gb = _disk(root_gb, ephemeral_gb, swap_mb)
    groups = groups_of(said)
    unnamed = groups.setdefault("", GroupWords())
    add_image(unnamed, properties)
    own = {"VCPU": vcpus, "MEMORY_MB": memory_mb, "DISK_GB": disk_gb}
    amounts: dict[str, Any] = {**_defaults(own, groups), **unnamed.amounts}
    _check_totals(groups)
    if topology is not None:
        amounts = _with_topology(amounts, topology, groups)
    if devices is not None:
        amounts[DEVICES.name] = devices
    _check_groups(groups, amounts)
    policy = policy_of(said)
    named = [suffix for suffix, group in groups.items() if suffix and group.amounts]
    if len(named) > 1 and policy is None:
        expected = f"none or isolate, for the groups {', '.join(named)}"
        raise InvalidNovaInput(NovaRule.GROUP_POLICY_MISSING, POLICY, "nothing", expected)
    return Request(
        amounts,
        required=unnamed.required,
        forbidden=unnamed.forbidden,
        groups=[_request_group(suffix, groups[suffix]) for suffix in named],
        group_policy=policy,
        compatibility="placement",
    )


def _request_group(suffix: str, group: GroupWords) -> RequestGroup:
    return RequestGroup(
        group.amounts, suffix=suffix, required=group.required, forbidden=group.forbidden
    )


def _disk(root_gb: int, ephemeral_gb: int, swap_mb: int) -> int:
    """Return GiB of all disks together."""
    for what, size in (("root_gb", root_gb), ("ephemeral_gb", ephemeral_gb), ("swap_mb", swap_mb)):
        if type(size) is not int or not 0 <= size <= MAX_FIGURE:
            raise InvalidNovaInput(
                NovaRule.INVALID_FLAVOR_SIZE, what, size, f"an integer from 0 to {MAX_FIGURE}"
            )
    return root_gb + ephemeral_gb + -(-swap_mb // 1024)


def _defaults(own: Mapping[str, int], groups: Mapping[str, GroupWords]) -> dict[str, int]:
    """Return the flavor's own amounts of the classes that no group says."""
    said = frozenset[str]().union(*(group.said for group in groups.values()))
    if "PCPU" in said:
        said |= {"VCPU"}
    return {name: amount for name, amount in own.items() if amount and name not in said}


def _with_topology(
    amounts: Mapping[str, Any], topology: FlavorTopology, groups: Mapping[str, GroupWords]
) -> dict[str, Any]:
    """Return amounts with a topology's CPUs and memory in place of the flavor's."""
    requested = topology.resources.with_implied_counts()
    counted = {
        name: int(amount)
        for name, amount in requested.by_name()
        if isinstance(amount, IntegerAmount)
    }
    for suffix, group in groups.items():
        for name in sorted(group.said.intersection(_OF_TOPOLOGY)):
            amount = group.amounts.get(name, 0)
            if suffix or amount != counted.get(name, 0):
                expected = f"{counted.get(name, 0)} without a group, as the topology has it"
                key = f"resources{suffix}:{name}"
                raise InvalidNovaInput(NovaRule.TOPOLOGY_DISAGREES, key, amount, expected)
    others = {name: amount for name, amount in amounts.items() if name not in _OF_TOPOLOGY}
    return {**others, **dict(topology.resources.by_name())}


def _check_groups(groups: Mapping[str, GroupWords], amounts: Mapping[str, Any]) -> None:
    """Raise for traits without amounts, and for a flavor that asks for nothing."""
    for suffix, group in groups.items():
        if not (group.amounts if suffix else amounts) and not group.is_empty:
            traits = sorted(group.required | group.forbidden)
            expected = f"resources{suffix}:CLASS above 0 beside traits of the group"
            raise InvalidNovaInput(
                NovaRule.GROUP_WITHOUT_RESOURCES, f"trait{suffix}", traits, expected
            )
    if not amounts and all(group.is_empty for group in groups.values()):
        raise InvalidNovaInput(
            NovaRule.NOTHING_ASKED, "extra specs", "all suppressed", "an amount of something"
        )


def _check_totals(groups: Mapping[str, GroupWords]) -> None:
    """Raise for more of a class, over all groups, than there can be."""
    total: Counter[str] = Counter()
    for suffix, group in groups.items():
        total.update(group.amounts)
        for name, amount in group.amounts.items():
            if total[name] > MAX_AMOUNT:
                key, expected = f"resources{suffix}:{name}", f"at most {MAX_AMOUNT} over all groups"
                raise InvalidNovaInput(NovaRule.INVALID_RESOURCE_AMOUNT, key, amount, expected)


# --- keys and values, by group ---

POLICY: Final = "group_policy"
_KEY = re.compile(r"(resources|trait)([A-Za-z0-9_-]{0,64}):(.*)", re.DOTALL)
_OLD: Final = "resource:"
_OURS: Final = ("resource", "trait")
#: Without a colon these are no key of ours, nor anybody's.
_BARE: Final = ("resource", "resources", "trait")
_EXPECTED: Final = (
    "resources:CLASS or trait:NAME, of a group with its suffix, 1 to 64 of A-Z, a-z, 0-9, _ and -, "
    "before the colon"
)
_DIGITS = re.compile(r"[0-9]{1,19}\Z", re.ASCII)


@dataclasses.dataclass(slots=True)
class GroupWords:
    """What is said of one group. Classes whose amount is 0 are in ``said`` alone."""

    amounts: dict[str, int] = dataclasses.field(default_factory=dict)
    said: set[str] = dataclasses.field(default_factory=set)
    required: set[str] = dataclasses.field(default_factory=set)
    forbidden: set[str] = dataclasses.field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to ask for."""
        return not (self.amounts or self.required or self.forbidden)


def groups_of(extra_specs: Mapping[Any, Any]) -> dict[str, GroupWords]:
    """Return what extra specs say, by suffix, in their order. Keys of others are left alone.

    :raises InvalidNovaInput: by the first rule that is broken

    >>> groups_of({"resources_A:PGPU": "2", "trait_A:CUSTOM_H100": "required", "hw:x": "y"})["_A"]
    GroupWords(amounts={'PGPU': 2}, said={'PGPU'}, required={'CUSTOM_H100'}, forbidden=set())
    """
    result: dict[str, GroupWords] = {}
    for key, value in extra_specs.items():
        if not isinstance(key, str):
            continue
        if not key.startswith(_OURS) or (":" not in key and key not in _BARE):
            continue
        prefix, suffix, name = _parts(key)
        words = result.setdefault(suffix, GroupWords())
        if prefix == "trait":
            _add_trait(words, key, name, text_of(key, value))
        else:
            _add_amount(words, key, name, text_of(key, value))
    return result


def _parts(key: str) -> tuple[str, str, str]:
    """Return the prefix, the suffix of the group, and the class or trait that a key names."""
    if key.startswith(_OLD):
        return "resources", "", key.removeprefix(_OLD)
    result = _KEY.fullmatch(key)
    if result is None:
        raise InvalidNovaInput(NovaRule.INVALID_REQUEST_KEY, "extra specs", key, _EXPECTED)
    return result[1], result[2], result[3]


def _add_amount(words: GroupWords, key: str, name: str, text: str) -> None:
    try:
        kind = catalog.resource(name)
    except exceptions.InvalidInput as error:
        raise InvalidNovaInput(
            NovaRule.UNKNOWN_FLAVOR_RESOURCE, key, name, error.expected
        ) from error
    if kind.amount_kind is not IntegerAmount:
        raise InvalidNovaInput(NovaRule.RESOURCE_NOT_COUNTED, key, text, "a class that is counted")
    amount = int(text) if _DIGITS.match(text) else -1
    if not 0 <= amount <= MAX_AMOUNT:
        expected = f"a whole number from 0 to {MAX_AMOUNT}"
        raise InvalidNovaInput(NovaRule.INVALID_RESOURCE_AMOUNT, key, text, expected)
    if kind.name in words.said:
        expected = f"resource:{name} or resources:{name}, not both"
        raise InvalidNovaInput(NovaRule.RESOURCE_SAID_TWICE, key, text, expected)
    words.said.add(kind.name)
    if amount:
        words.amounts[kind.name] = amount


def _add_trait(words: GroupWords, key: str, name: str, text: str) -> None:
    trait = _trait(key, name)
    if text not in ("required", "forbidden"):
        raise InvalidNovaInput(NovaRule.INVALID_TRAIT_VALUE, key, text, "required or forbidden")
    (words.required if text == "required" else words.forbidden).add(trait)


def _trait(key: str, name: str) -> str:
    try:
        (trait,) = known_traits([name])
    except exceptions.InvalidInput as error:
        raise InvalidNovaInput(NovaRule.UNKNOWN_FLAVOR_TRAIT, key, name, error.expected) from error
    return trait


def add_image(words: GroupWords, image: Mapping[Any, Any]) -> None:
    """Add the traits that an image requires, ``trait:NAME=required``.

    :raises InvalidNovaInput: ``UNKNOWN_FLAVOR_TRAIT`` for a trait that does not exist;
        ``INVALID_TRAIT_VALUE`` for anything but required; ``FLAVOR_TRAIT_CONFLICT`` for a trait
        that the flavor forbids
    """
    for key, value in image.items():
        if not isinstance(key, str) or not key.startswith("trait:"):
            continue
        where = f"{key} of the image"
        trait = _trait(where, key.removeprefix("trait:"))
        if text_of(where, value) != "required":
            raise InvalidNovaInput(NovaRule.INVALID_TRAIT_VALUE, where, value, "required")
        if trait in words.forbidden:
            raise InvalidNovaInput(
                NovaRule.FLAVOR_TRAIT_CONFLICT, where, value, "none: the flavor forbids it"
            )
        words.required.add(trait)


def policy_of(extra_specs: Mapping[Any, Any]) -> str | None:
    """Return the policy of named groups, None for none.

    :raises InvalidNovaInput: ``INVALID_GROUP_POLICY`` for a policy that there is not

    >>> policy_of({"group_policy": "isolate"})
    'isolate'
    """
    if POLICY not in extra_specs:
        return None
    text = text_of(POLICY, extra_specs[POLICY])
    if text not in POLICIES:
        raise InvalidNovaInput(NovaRule.INVALID_GROUP_POLICY, POLICY, text, " or ".join(POLICIES))
    return text
