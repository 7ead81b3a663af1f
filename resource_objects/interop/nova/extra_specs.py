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
``resources:CUSTOM_X=many``, ``=-1``,  ignored; refused (InvalidResourceAmount)
``=`` with nothing
``resources:VCPU=+2``, ``1_0``         read as Python does; refused (InvalidResourceAmount)
``resources:vcpu=2``                   ignored; refused (UnknownFlavorResource)
``resources$:VCPU``, ``resource1:X``   ignored; refused (InvalidRequestKey)
``resource:VCPU=2``                    ignored; read
``resource:VCPU=2`` and                the second counts; refused (ResourceSaidTwice)
``resources:VCPU=2``
``resources:NUMA_TOPOLOGY=1``          ignored; refused (ResourceNotCounted)
``trait:CUSTOM_X=maybe``               ignored; refused (InvalidTraitValue)
``trait:CUSTOM_A,CUSTOM_B=required``   two traits to Placement; refused (UnknownFlavorTrait)
``resources:CUSTOM_A:1,CUSTOM_B=2``    two classes to Placement; refused (UnknownFlavorResource)
``group_policy=apart``                 ignored; refused (InvalidGroupPolicy)
a trait nobody knows, forbidden and    no valid host; refused (UnknownFlavorTrait,
required, of a group without amounts   FlavorTraitConflict, GroupWithoutResources)
two named groups without a policy      no valid host; refused (GroupPolicyMissing)
everything suppressed                  no valid host; refused (NothingAsked)
=====================================  =============================================================

Not read here, as other keys are not: ``hw:``, of which :mod:`.flavor` makes a topology that
:func:`flavor_request` takes, and what Nova makes of traits by itself (secure boot, TPM, memory
encryption).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE, FrozenDict
from resource_objects.interop.nova import errors, request_errors
from resource_objects.interop.nova import extra_spec_words as words
from resource_objects.interop.nova.extra_spec_words import GroupWords
from resource_objects.interop.nova.flavor import FlavorTopology
from resource_objects.interop.nova.flavor_words import FlavorWords
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources import IntegerAmount

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
    extra_specs: Mapping[str, Any] = _NOTHING,
    image: Mapping[str, Any] = _NOTHING,
    topology: FlavorTopology | None = None,
) -> Request:
    """Return what a flavor and its image ask of placement.

    :param memory_mb: MiB
    :param root_gb: GiB; 0 for a server that boots from a volume
    :param ephemeral_gb: GiB
    :param swap_mb: MiB
    :param extra_specs: of the flavor, text by key; other keys are left alone
    :param image: the image's properties, text by key; other keys are left alone
    :param topology: what :func:`.flavor_topology` made of the same flavor; its CPUs and memory are
        those of the request, and say where they go
    :raises InvalidWords: of the type of the first rule that is broken, see :mod:`.request_errors`
    :returns: the request; O(keys)

    >>> print(flavor_request(4, 2048, root_gb=20, swap_mb=100, extra_specs={
    ...     "resources:VCPU": "0", "resources_GPU:PGPU": "1", "trait_GPU:CUSTOM_H100": "required"}))
    MEMORY_MB=2048,DISK_GB=21; _GPU: PGPU=1 required=CUSTOM_H100; compatibility=placement
    >>> flavor_request(4, 2048, extra_specs={"resources:CUSTOM_X": "many"})
    Traceback (most recent call last):
    resource_objects.interop.nova.request_errors.InvalidResourceAmount: resources:CUSTOM_X: got ...
    """
    FlavorWords(vcpus, memory_mb, extra_specs, image)
    disk_gb = _disk(root_gb, ephemeral_gb, swap_mb)
    groups = words.groups_of(extra_specs)
    unnamed = groups.setdefault("", GroupWords())
    words.add_image(unnamed, image)
    own = {"VCPU": vcpus, "MEMORY_MB": memory_mb, "DISK_GB": disk_gb}
    amounts: dict[str, Any] = {**_defaults(own, groups), **unnamed.amounts}
    _check_totals(groups)
    if topology is not None:
        amounts = _with_topology(amounts, topology, groups)
    _check_groups(groups, amounts)
    policy = words.policy_of(extra_specs)
    named = [suffix for suffix, group in groups.items() if suffix and group.amounts]
    if len(named) > 1 and policy is None:
        expected = f"none or isolate, for the groups {', '.join(named)}"
        raise request_errors.GroupPolicyMissing(words.POLICY, "nothing", expected)
    return Request(
        amounts,
        required=unnamed.required,
        forbidden=unnamed.forbidden,
        groups=[_group(suffix, groups[suffix]) for suffix in named],
        group_policy=policy,
        compatibility="placement",
    )


def _group(suffix: str, group: GroupWords) -> RequestGroup:
    return RequestGroup(
        group.amounts, suffix=suffix, required=group.required, forbidden=group.forbidden
    )


def _disk(root_gb: int, ephemeral_gb: int, swap_mb: int) -> int:
    """Return GiB of all disks together."""
    for what, size in (("root_gb", root_gb), ("ephemeral_gb", ephemeral_gb), ("swap_mb", swap_mb)):
        if type(size) is not int or not 0 <= size <= MAX_FIGURE:
            raise errors.InvalidFlavorSize(what, size, f"an integer from 0 to {MAX_FIGURE}")
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
    counted = {name: int(amount) for name, amount in topology.resources.counted().by_name()
               if isinstance(amount, IntegerAmount)}  # fmt: skip
    for suffix, group in groups.items():
        for name in sorted(group.said.intersection(_OF_TOPOLOGY)):
            amount = group.amounts.get(name, 0)
            if suffix or amount != counted.get(name, 0):
                expected = f"{counted.get(name, 0)} without a group, as the topology has it"
                key = f"resources{suffix}:{name}"
                raise request_errors.TopologyDisagrees(key, amount, expected)
    others = {name: amount for name, amount in amounts.items() if name not in _OF_TOPOLOGY}
    return {**others, **dict(topology.resources.by_name())}


def _check_groups(groups: Mapping[str, GroupWords], amounts: Mapping[str, Any]) -> None:
    """Raise for traits without amounts, and for a flavor that asks for nothing."""
    for suffix, group in groups.items():
        if not (group.amounts if suffix else amounts) and not group.is_empty:
            traits = sorted(group.required | group.forbidden)
            expected = f"resources{suffix}:CLASS above 0 beside traits of the group"
            raise request_errors.GroupWithoutResources(f"trait{suffix}", traits, expected)
    if not amounts and all(group.is_empty for group in groups.values()):
        raise request_errors.NothingAsked("extra specs", "all suppressed", "an amount of something")


def _check_totals(groups: Mapping[str, GroupWords]) -> None:
    """Raise for more of a class, over all groups, than there can be."""
    total: Counter[str] = Counter()
    for suffix, group in groups.items():
        total.update(group.amounts)
        for name, amount in group.amounts.items():
            if total[name] > MAX_AMOUNT:
                key, expected = f"resources{suffix}:{name}", f"at most {MAX_AMOUNT} over all groups"
                raise request_errors.InvalidResourceAmount(key, amount, expected)
