"""The request: what somebody asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from resource_objects import base, exceptions, fields
from resource_objects.requests import conditions
from resource_objects.requests.group import RequestGroup
from resource_objects.resources import Amounts

#: What may be said of the providers of named groups: nothing, or that no two are the same.
POLICIES = ("none", "isolate")
#: Whose rules a request may be read by.
COMPATIBILITIES = ("placement",)
#: No request has more groups than this: absurd ones are refused before anything is searched.
MAX_GROUPS = 1000


@base.register
class Request(base.Value):
    """What somebody asks for: groups of amounts, and the conditions on who gives them.

    Made from whatever :class:`~resource_objects.resources.Amounts` are made from: that is the group
    without a name, :attr:`unnamed`, whose classes may be given by several providers of one host
    and the pools it is linked to. Its conditions are those of
    :class:`~resource_objects.requests.RequestGroup`. A required trait is had by everybody who gives
    some class of the group, themselves or through a provider above them; a forbidden one by nobody
    who gives anything, nor by anybody above.

    Each of the :attr:`named` groups is given by one provider. Of them together:

    * ``group_policy="isolate"``: no two are given by the same provider;
    * ``same_subtree``: sets of suffixes; one of the providers of the groups of a set is above the
      others, or the same. Such a group may ask for nothing, and so stand for a provider by traits
      and aggregates alone.

    ``root_required`` and ``root_forbidden`` are traits of the host itself. ``compatibility`` says
    whose rules a request is read by: None for ours, ``"placement"`` for those of OpenStack's
    Placement (D14), which requests in its words have.

    :attr:`resources` is the sum over all groups. Cost: some 40 microseconds to make.

    >>> request = Request("VCPU=16,MEMORY_MB=65536,PGPU=3", required=["CUSTOM_H100"])
    >>> for resource, amount in request.resources.items():
    ...     print(resource, amount)
    VCPU 16
    MEMORY_MB 65536
    PGPU 3
    >>> print(request)
    VCPU=16,MEMORY_MB=65536,PGPU=3 required=CUSTOM_H100
    >>> print(request.with_group("_NIC", "SRIOV_NET_VF=1", required=["CUSTOM_FAST"]))
    VCPU=16,MEMORY_MB=65536,PGPU=3 required=CUSTOM_H100; _NIC: SRIOV_NET_VF=1 required=CUSTOM_FAST
    >>> Request("")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidRequest: request: got '', expected an amount of something
    """

    # Version 1.0: Initial version
    # Version 1.1: named groups; group_policy, same_subtree, root traits, compatibility
    VERSION = "1.1"

    CHILD_VERSIONS = {
        "resource_objects.RequestGroup": [("1.0", "1.0"), ("1.1", "1.1")],
    }

    fields = {
        "groups": fields.TupleOfObjectsField("RequestGroup"),
        "group_policy": fields.ChoiceField(*POLICIES, nullable=True, default=None),
        "same_subtree": fields.TupleOfLabelSetsField(default=()),
        "root_required": fields.TraitsField(default=frozenset()),
        "root_forbidden": fields.TraitsField(default=frozenset()),
        "compatibility": fields.ChoiceField(*COMPATIBILITIES, nullable=True, default=None),
    }
    groups: tuple[RequestGroup, ...]
    group_policy: str | None = None
    same_subtree: tuple[frozenset[str], ...] = ()
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    compatibility: str | None = None

    def __init__(
        self,
        resources: Any = "",
        /,
        *,
        groups: Iterable[RequestGroup] = (),
        group_policy: str | None = None,
        same_subtree: Iterable[Iterable[str]] = (),
        root_required: Iterable[str] = (),
        root_forbidden: Iterable[str] = (),
        compatibility: str | None = None,
        **of_unnamed: Any,
    ) -> None:
        """Make a request.

        :param groups: the named groups
        :param of_unnamed: conditions of the group without a name, as for
            :class:`~resource_objects.requests.RequestGroup`
        :raises InvalidRequest: for a request that contradicts itself
        :raises UnknownResourceClass: for a class that does not exist; so for other names
        """
        if "suffix" in of_unnamed:
            raise exceptions.InvalidRequest(
                "suffix", of_unnamed["suffix"], "none: other groups are given as groups"
            )
        super().__init__(
            groups=(RequestGroup(resources, **of_unnamed), *groups),
            group_policy=_choice("group_policy", group_policy, POLICIES),
            same_subtree=_subtrees(same_subtree),
            root_required=conditions.traits("root_required", root_required),
            root_forbidden=conditions.traits("root_forbidden", root_forbidden),
            compatibility=_choice("compatibility", compatibility, COMPATIBILITIES),
        )

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return ``given`` itself if it is one already, else one made from it."""
        return given if isinstance(given, cls) else cls(given)

    def with_group(self, suffix: str, resources: Any = "", /, **conditions: Any) -> Self:
        """Return a request that also asks for a named group.

        :param conditions: as for :class:`~resource_objects.requests.RequestGroup`

        >>> print(Request("VCPU=1").with_group("gpu", "PGPU=1", required=["CUSTOM_H100"]))
        VCPU=1; gpu: PGPU=1 required=CUSTOM_H100
        """
        group = RequestGroup(resources, suffix=suffix, **conditions)
        return self.replace(groups=(*self.groups, group))

    def with_unnamed(self, group: RequestGroup) -> Self:
        """Return a request with another group in place of the one without a name."""
        return self.replace(groups=(group, *self.named))

    @property
    def unnamed(self) -> RequestGroup:
        """The group without a name, which may ask for nothing where others ask."""
        return self.groups[0]

    @property
    def named(self) -> tuple[RequestGroup, ...]:
        """The groups with a name."""
        return self.groups[1:]

    @property
    def isolates(self) -> bool:
        """Whether no two named groups are given by the same provider."""
        return self.group_policy == "isolate"

    @property
    def resources(self) -> Amounts:
        """All that is asked, over all groups, for whoever takes one after the other.

        A structured amount says where; what it is counted in is in it too, stated or not, and as
        often as the host as a whole gives it (:meth:`Amounts.counted`).

        >>> for resource, amount in Request("NUMA_TOPOLOGY=2:shared=4").resources.items():
        ...     print(resource, amount)
        VCPU 4
        NUMA_TOPOLOGY 2:shared=4
        """
        total = self.groups[0].resources.counted()
        for group in self.groups[1:]:
            total = total + group.resources.counted()
        return total

    def _validate(self) -> None:
        suffixes = [group.suffix for group in self.groups]
        self._check_suffixes(suffixes)
        if not any(group.resources for group in self.groups):
            told = "; ".join(str(group) for group in self.named)
            raise exceptions.InvalidRequest("request", told, "an amount of something")
        if not self.unnamed.resources and self.unnamed.has_conditions:
            raise exceptions.InvalidRequest(
                "request", str(self.unnamed), "an amount in the group that has conditions"
            )
        self._check_subtrees(set(suffixes[1:]))
        self._check_sums()
        conditions.check_traits("root_", self.root_required, self.root_forbidden)

    def _check_suffixes(self, suffixes: list[str]) -> None:
        if not suffixes or suffixes[0] or "" in suffixes[1:]:
            raise exceptions.InvalidRequest(
                "groups", suffixes, "one group without a suffix, first, and others with one"
            )
        if len(set(suffixes)) < len(suffixes):
            twice = sorted({suffix for suffix in suffixes if suffixes.count(suffix) > 1})
            raise exceptions.InvalidRequest("groups", twice, "each suffix once")
        if len(suffixes) > MAX_GROUPS:
            raise exceptions.InvalidRequest("groups", len(suffixes), f"at most {MAX_GROUPS}")

    def _check_sums(self) -> None:
        try:
            if self.named:
                self.resources  # noqa: B018  (the sum is what is looked at)
        except exceptions.InvalidAmount as error:
            raise exceptions.InvalidRequest(error.what, error.value, error.expected) from error

    def _check_subtrees(self, suffixes: set[str]) -> None:
        for some in self.same_subtree:
            unknown = sorted(some - suffixes)
            if unknown or not some:
                raise exceptions.InvalidRequest(
                    "same_subtree", unknown, f"suffixes of groups, of {sorted(suffixes)}"
                )
        in_some = frozenset[str]().union(*self.same_subtree)
        for group in self.named:
            if not group.resources and group.suffix not in in_some:
                raise exceptions.InvalidRequest(
                    f"group {group.suffix}", "nothing", "an amount, or its suffix in same_subtree"
                )

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        """Leave out what version 1.0 does not know; refuse to lose what it cannot say."""
        if target_version == "1.0":
            known = {name: primitive.pop(name, None) for name in self.fields if name != "groups"}
            known["named groups"] = primitive["groups"][1:]
            for name, value in known.items():
                if value:
                    raise exceptions.CannotDowngrade(
                        self.obj_name(), target_version, f"it cannot say {name}"
                    )
        super().obj_make_compatible(primitive, target_version)

    def __str__(self) -> str:
        groups = self.groups if self.unnamed.resources else self.named
        return "; ".join([*map(str, groups), *(f"{name}={told}" for name, told in self._told())])

    def _told(self) -> Iterable[tuple[str, str]]:
        if self.group_policy is not None:
            yield "group_policy", self.group_policy
        for some in self.same_subtree:
            yield "same_subtree", ",".join(sorted(some))
        for name in ("root_required", "root_forbidden"):
            if getattr(self, name):
                yield name, ",".join(sorted(getattr(self, name)))
        if self.compatibility is not None:
            yield "compatibility", self.compatibility

    def __repr__(self) -> str:
        parts = [repr(str(self.unnamed.resources))] if self.unnamed.resources else []
        parts += [f"{name}={value!r}" for name, value in self.unnamed.arguments().items()]
        parts += [f"groups={list(self.named)!r}"] if self.named else []
        for name in ("group_policy", "compatibility"):
            parts += [f"{name}={getattr(self, name)!r}"] if getattr(self, name) else []
        if self.same_subtree:
            parts += [f"same_subtree={[sorted(some) for some in self.same_subtree]}"]
        for name in ("root_required", "root_forbidden"):
            parts += [f"{name}={sorted(getattr(self, name))}"] if getattr(self, name) else []
        return f"Request({', '.join(parts)})"


def _choice(what: str, value: object, known: tuple[str, ...]) -> Any:
    if value is not None and value not in known:
        raise exceptions.InvalidRequest(what, value, f"{' or '.join(map(repr, known))}, or None")
    return value


def _subtrees(given: object) -> tuple[frozenset[str], ...]:
    expected = "a list of lists of suffixes"
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise exceptions.InvalidRequest("same_subtree", given, expected)
    found: dict[frozenset[str], None] = {}
    for some in given:
        if isinstance(some, str | bytes) or not isinstance(some, Iterable):
            raise exceptions.InvalidRequest("same_subtree", some, expected)
        found[frozenset(map(str, some))] = None
    return tuple(sorted(found, key=sorted))
