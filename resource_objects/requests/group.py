"""Amounts of a request that share their conditions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from resource_objects import base, exceptions, fields, names
from resource_objects.requests import conditions
from resource_objects.requests.conditions import TraitsOf
from resource_objects.resources import Amounts, resource

#: What a group may be called (Placement, microversion 1.33).
_SUFFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")


@base.register
class RequestGroup(base.Value):
    """Amounts that are asked under the same conditions.

    ``suffix`` is the name of the group inside its request, ``""`` for the one without a name. What
    a named group asks is given by one provider; what the other one asks may be given class by
    class. The conditions are on whoever gives:

    * ``required`` and ``forbidden`` are traits; of each set of ``any_of`` one is enough;
      ``traits_of`` says the same of who gives one class:
      ``{"DISK_GB": ["CUSTOM_SSD", "!CUSTOM_SLOW"]}``;
    * ``member_of`` are aggregates, or lists of those of which one is enough; ``not_member_of`` are
      those it must not be in;
    * ``in_tree`` is a provider, by name or uuid: all comes from its tree.

    Cost: some 20 microseconds to make.

    >>> group = RequestGroup("VCPU=2,PGPU=1", required=["CUSTOM_H100"])
    >>> print(group)
    VCPU=2,PGPU=1 required=CUSTOM_H100
    >>> print(RequestGroup("VCPU=2", suffix="_A", any_of=[["CUSTOM_A", "CUSTOM_B"]],
    ...                    member_of=["rack1"], in_tree="host0"))
    _A: VCPU=2 any_of=CUSTOM_A|CUSTOM_B member_of=rack1 in_tree=host0
    >>> RequestGroup("VCPU=2", required=["CUSTOM_A"], forbidden=["CUSTOM_A"])
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidRequest: forbidden: got ['CUSTOM_A'], expected traits ...
    """

    # Version 1.0: Initial version
    # Version 1.1: any_of, member_of, not_member_of, in_tree, traits_of
    VERSION = "1.1"

    fields = {
        "suffix": fields.TextField(default=""),
        "resources": fields.ObjectField("Amounts"),
        "required": fields.TraitsField(default=frozenset()),
        "forbidden": fields.TraitsField(default=frozenset()),
        "any_of": fields.TupleOfTraitsField(default=()),
        "member_of": fields.TupleOfAggregatesField(default=()),
        "not_member_of": fields.AggregatesField(default=frozenset()),
        "in_tree": conditions.TreeField(nullable=True, default=None),
        "traits_of": fields.Field(fields.TupleOf(conditions.TraitsOfClass()), default=()),
    }
    suffix: str
    resources: Amounts
    required: frozenset[str]
    forbidden: frozenset[str]
    any_of: tuple[frozenset[str], ...] = ()
    member_of: tuple[frozenset[str], ...] = ()
    not_member_of: frozenset[str] = frozenset()
    in_tree: str | None = None
    traits_of: tuple[TraitsOf, ...] = ()

    def __init__(
        self,
        resources: Any = "",
        /,
        *,
        suffix: str = "",
        required: Iterable[str] = (),
        forbidden: Iterable[str] = (),
        any_of: Iterable[Iterable[str]] = (),
        member_of: Iterable[str | Iterable[str]] = (),
        not_member_of: Iterable[str] = (),
        in_tree: str | None = None,
        traits_of: Mapping[str, Iterable[str]] | tuple[TraitsOf, ...] | None = None,
    ) -> None:
        super().__init__(
            resources=Amounts.of(resources),
            suffix=suffix,
            required=conditions.traits("required", required),
            forbidden=conditions.traits("forbidden", forbidden),
            any_of=conditions.any_of(any_of),
            member_of=conditions.member_of(member_of),
            not_member_of=conditions.aggregates("not_member_of", not_member_of),
            in_tree=None if in_tree is None else names.provider_key(in_tree),
            traits_of=conditions.traits_of(traits_of),
        )

    @property
    def has_conditions(self) -> bool:
        """Whether it says anything of who gives."""
        return any(
            getattr(self, name) for name in self.fields if name not in ("suffix", "resources")
        )

    def is_like(self, other: RequestGroup) -> bool:
        """Return whether another group asks for the same under the same conditions."""
        return self.replace(suffix="") == other.replace(suffix="")

    def _validate(self) -> None:
        if self.suffix and not _SUFFIX.fullmatch(self.suffix):
            raise exceptions.InvalidRequest(
                "suffix", self.suffix, "1 to 64 of A-Z, a-z, 0-9, _ and -, or nothing"
            )
        where = f"group {self.suffix}: " if self.suffix else ""
        self._check_amounts(where)
        conditions.check_traits(where, self.required, self.forbidden, self.any_of)
        conditions.check_aggregates(where, self.member_of, self.not_member_of)
        self._check_classes(where)

    def _check_amounts(self, where: str) -> None:
        for kind, amount in self.resources.items():
            if amount.is_negative:
                raise exceptions.InvalidRequest(f"{where}{kind.name}", amount, "an amount above 0")
            if self.suffix and (amount.locates or kind.is_located):
                raise exceptions.InvalidRequest(
                    f"{where}{kind.name}", amount, "a count: what says where it goes has no name"
                )
        try:
            self.resources.counted()
        except exceptions.InvalidAmount as error:
            raise exceptions.InvalidRequest(
                where + error.what, error.value, error.expected
            ) from error

    def _check_classes(self, where: str) -> None:
        asked = {name for name, _ in self.resources.by_name()}
        seen: set[str] = set()
        for name, required, forbidden in self.traits_of:
            if resource(name).name not in asked or name in seen:
                raise exceptions.InvalidRequest(
                    f"{where}traits_of", name, "classes that the group asks for, each once"
                )
            seen.add(name)
            conditions.check_traits(f"{where}{name}: ", required, forbidden)
            both = sorted(required & self.forbidden)
            if self.suffix:  # one provider gives all of it
                both += sorted(forbidden & self.required)
            if both:
                raise exceptions.InvalidRequest(
                    f"{where}traits_of {name}", both, "traits that do not contradict the group's"
                )

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        """Leave out what version 1.0 does not know; refuse to lose what it cannot say."""
        if target_version == "1.0":
            for name in ("any_of", "member_of", "not_member_of", "in_tree", "traits_of"):
                if primitive.pop(name, None):
                    raise exceptions.CannotDowngrade(
                        self.obj_name(), target_version, f"it cannot say {name}"
                    )
        super().obj_make_compatible(primitive, target_version)

    def __str__(self) -> str:
        name = f"{self.suffix}: " if self.suffix else ""
        return name + " ".join(
            [str(self.resources) or "nothing", *(f"{k}={v}" for k, v in self._told())]
        )

    def _told(self) -> Iterable[tuple[str, str]]:
        for name in ("required", "forbidden"):
            if getattr(self, name):
                yield name, ",".join(sorted(getattr(self, name)))
        for name in ("any_of", "member_of"):
            if getattr(self, name):
                yield name, ",".join("|".join(sorted(some)) for some in getattr(self, name))
        if self.not_member_of:
            yield "not_member_of", ",".join(sorted(self.not_member_of))
        if self.in_tree is not None:
            yield "in_tree", self.in_tree
        for kind, required, forbidden in self.traits_of:
            told = [*sorted(required), *(f"!{trait}" for trait in sorted(forbidden))]
            yield f"{kind} with", ",".join(told)

    def arguments(self) -> dict[str, Any]:
        """Return the conditions as arguments of the constructor, those that say something."""
        found: dict[str, Any] = {}
        for name in ("required", "forbidden", "not_member_of"):
            if getattr(self, name):
                found[name] = sorted(getattr(self, name))
        for name in ("any_of", "member_of"):
            if getattr(self, name):
                found[name] = [sorted(some) for some in getattr(self, name)]
        if self.in_tree is not None:
            found["in_tree"] = self.in_tree
        if self.traits_of:
            found["traits_of"] = {
                kind: [*sorted(required), *(f"!{trait}" for trait in sorted(forbidden))]
                for kind, required, forbidden in self.traits_of
            }
        return found

    def __repr__(self) -> str:
        parts = [repr(str(self.resources))] if self.resources else []
        parts += [f"suffix={self.suffix!r}"] if self.suffix else []
        parts += [f"{name}={value!r}" for name, value in self.arguments().items()]
        return f"RequestGroup({', '.join(parts)})"
