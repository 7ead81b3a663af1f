"""A flavor that asks for what a request asks: :mod:`.extra_specs` the other way round."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from resource_objects.fields import MAX_FIGURE, FrozenDict
from resource_objects.interop.nova import extra_spec_words as words
from resource_objects.interop.nova import request_errors
from resource_objects.interop.nova.extra_specs import flavor_request
from resource_objects.requests import Request
from resource_objects.resources import Amounts, IntegerAmount
from resource_objects.resources.numa.cpus import MAX_ID

__all__ = ["FlavorSpecs", "request_flavor"]


@dataclasses.dataclass(frozen=True, slots=True)
class FlavorSpecs:
    """A flavor: vCPUs, memory (MiB), disks (GiB, swap MiB), and extra specs."""

    vcpus: int
    memory_mb: int
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: Mapping[str, str] = FrozenDict()

    @property
    def request(self) -> Request:
        """What it asks for."""
        return flavor_request(
            self.vcpus,
            self.memory_mb,
            root_gb=self.root_gb,
            ephemeral_gb=self.ephemeral_gb,
            swap_mb=self.swap_mb,
            extra_specs=self.extra_specs,
        )


def request_flavor(request: Request) -> FlavorSpecs:
    """Return a flavor that asks for what a request asks; its ``request`` is that again.

    It has as many vCPUs, as much memory and as large a root disk as the request asks for in all,
    at least one vCPU and 1 MiB, as a flavor must; its extra specs say what they do not. What comes
    back has Placement's semantics, whichever the request has.

    :raises NotOfFlavor: for what no flavor can say: where something goes, other conditions than
        required and forbidden traits, ``same_subtree`` and traits of the root, several named groups
        without a policy

    >>> from resource_objects.interop.nova import flavor_request
    >>> asked = flavor_request(4, 2048, extra_specs={"resources1:PCPU": "4"})
    >>> flavor = request_flavor(asked)
    >>> flavor.vcpus, flavor.memory_mb, dict(flavor.extra_specs)
    (4, 2048, {'resources1:PCPU': '4'})
    >>> flavor.request == asked
    True
    """
    _check_sayable(request)
    fields = {
        "VCPU": _within(_total(request, "VCPU") + _total(request, "PCPU"), 1, MAX_ID + 1),
        "MEMORY_MB": _within(_total(request, "MEMORY_MB"), 1, MAX_FIGURE),
        "DISK_GB": _within(_total(request, "DISK_GB"), 0, MAX_FIGURE),
    }
    specs: dict[str, str] = {}
    for group in request.groups:
        for name, amount in group.resources.by_name():
            specs[f"resources{group.suffix}:{name}"] = str(amount)
        for trait in sorted(group.required):
            specs[f"trait{group.suffix}:{trait}"] = "required"
        for trait in sorted(group.forbidden):
            specs[f"trait{group.suffix}:{trait}"] = "forbidden"
    if request.group_policy is not None:
        specs[words.POLICY] = request.group_policy
    specs = _without_defaults(specs, fields, request)
    vcpus, memory_mb, root_gb = fields.values()
    return FlavorSpecs(vcpus, memory_mb, root_gb, extra_specs=FrozenDict(specs))


def _total(request: Request, name: str) -> int:
    return sum(_count(group.resources, name) for group in request.groups)


def _count(amounts: Amounts, name: str) -> int:
    return next((int(str(amount)) for kind, amount in amounts.by_name() if kind == name), 0)


def _within(wanted: int, least: int, most: int) -> int:
    return min(max(wanted, least), most)


def _without_defaults(
    specs: dict[str, str], fields: Mapping[str, int], request: Request
) -> dict[str, str]:
    """Return extra specs that say of the flavor's own classes only what the flavor does not."""
    named = {name for group in request.named for name, _ in group.resources.by_name()}
    said_pcpu = "PCPU" in named or "PCPU" in request.unnamed.resources
    for name, field in fields.items():
        key, wanted = f"resources:{name}", _count(request.unnamed.resources, name)
        has_default = name not in named and not (name == "VCPU" and said_pcpu)
        if has_default and wanted == field:
            specs.pop(key, None)
        elif has_default and not wanted:
            specs[key] = "0"
    return specs


def _check_sayable(request: Request) -> None:
    if not isinstance(request, Request):
        raise request_errors.NotOfFlavor("request", request, "a Request")
    for what in ("same_subtree", "root_required", "root_forbidden"):
        _refuse_if(what, getattr(request, what))
    for group in request.groups:
        for what in ("any_of", "member_of", "not_member_of", "in_tree", "traits_of"):
            _refuse_if(f"{what}{group.suffix}", getattr(group, what))
        for kind, amount in group.resources.items():
            if type(amount) is not IntegerAmount:
                raise request_errors.NotOfFlavor(kind.name, str(amount), "a count")
    if len(request.named) > 1 and request.group_policy is None:
        raise request_errors.NotOfFlavor(
            words.POLICY, None, "none or isolate, for there are several named groups"
        )


def _refuse_if(what: str, said: object) -> None:
    if said:
        raise request_errors.NotOfFlavor(what, said, "nothing: a flavor cannot say it")
