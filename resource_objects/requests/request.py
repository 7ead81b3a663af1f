"""Requests for resources, and their groups."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeAlias, cast

from resource_objects import base, fields, names
from resource_objects._ovo import fields as ovo_fields
from resource_objects.exceptions import InvalidInput
from resource_objects.resources import Amounts, AmountsLike, resource
from resource_objects.resources.traits import known_traits

_invalid_request = functools.partial(InvalidInput, "request")

#: Conditions on the providers of named groups: none, or no two the same.
POLICIES = ("none", "isolate")
#: The rules, next to those of this library, that a request can be read by.
COMPATIBILITIES = ("placement",)
#: The level of NUMA cells.
CELLS = "numa"
#: Nearness is a preference or a condition.
NEAR_POLICIES = ("preferred", "required")
#: The maximum number of groups of a request, and of characters: in its names or as a query string.
MAX_GROUPS = 1000
MAX_LENGTH = 2**20

#: What plain data may say of a group, and of a request besides.
_OF_GROUP = (
    *("required", "forbidden", "any_of", "member_of", "not_member_of"),
    *("in_tree", "traits_of"),
)
_OF_REQUEST = (
    *("group_policy", "same_subtree", "root_required", "root_forbidden"),
    *("compatibility", "near", "near_policy"),
)


@base.register
class Request(base.ResourceObject, frozen=True):
    """Groups of amounts, with conditions on the providers that supply them.

    The arguments are those of :class:`~resource_objects.resources.Amounts`: they form the unnamed
    group, :attr:`unnamed`. Its classes may come from several providers of one host and from the
    pools of the host. Its conditions are those of :class:`~resource_objects.requests.RequestGroup`.
    Each provider of the group has every required trait itself or through an ancestor, and neither
    it nor an ancestor has a forbidden one. Each :attr:`named` group comes from one provider:

    * ``group_policy="isolate"``: no two groups come from the same provider;
    * ``same_subtree``: sets of suffixes; the provider of one group of a set is an ancestor of the
      others, or the same. Such a group may request nothing, only traits and aggregates.

    ``root_required`` and ``root_forbidden`` are traits of the host. ``compatibility`` selects the
    rules: None for those of this library, ``"placement"`` for those of OpenStack's Placement.

    ``near`` is a level: ``"numa"`` for NUMA cells, or a trait that the providers of the level have.
    Resources below that level come from as few of these providers as possible. Resources of the
    host as a whole (its disk, CPUs outside of cells) are not concerned, nor are CPUs and memory of
    a named group on a host with discovered cells. ``near_policy="required"`` demands one provider;
    ``"preferred"``, the default, orders the hosts by their number and refuses none.

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
    resource_objects.exceptions.InvalidInput: request: got '', expected an amount of something
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    groups: tuple[RequestGroup, ...] = fields.tuple_of("RequestGroup")
    group_policy: str | None = fields.choice(*POLICIES, default=None)
    same_subtree: tuple[frozenset[str], ...] = fields.tuple_of(fields.LABELS, default=())
    root_required: frozenset[str] = fields.traits(default=frozenset())
    root_forbidden: frozenset[str] = fields.traits(default=frozenset())
    compatibility: str | None = fields.choice(*COMPATIBILITIES, default=None)
    near: str | None = fields.text(nullable=True, default=None)
    near_policy: str | None = fields.choice(*NEAR_POLICIES, default=None)

    def __init__(
        self,
        resources: AmountsLike = "",
        /,
        *,
        groups: Iterable[RequestGroup] = (),
        group_policy: str | None = None,
        same_subtree: Iterable[Iterable[str]] = (),
        root_required: Iterable[str] = (),
        root_forbidden: Iterable[str] = (),
        compatibility: str | None = None,
        near: str | None = None,
        near_policy: str | None = None,
        **of_unnamed: Any,
    ) -> None:
        """Make a request.

        :param groups: the named groups
        :param of_unnamed: conditions of the unnamed group, those of :class:`RequestGroup`
        :raises InvalidInput: for a contradiction, an unknown name, more than 1000 groups, or more
            than 2**20 characters of names
        """
        if "suffix" in of_unnamed:
            raise _invalid_request(
                "suffix", of_unnamed["suffix"], "none: other groups are given as groups"
            )
        super().__init__(
            groups=(RequestGroup(resources, **of_unnamed), *groups),
            group_policy=_choice("group_policy", group_policy, POLICIES),
            same_subtree=_subtrees(same_subtree),
            root_required=read_traits("root_required", root_required),
            root_forbidden=read_traits("root_forbidden", root_forbidden),
            compatibility=_choice("compatibility", compatibility, COMPATIBILITIES),
            near=near,
            near_policy=_choice("near_policy", near_policy, NEAR_POLICIES),
        )

    @classmethod
    def of(cls, given: RequestLike) -> Self:
        """Return ``given`` itself if it is one already, else one made from it."""
        return given if isinstance(given, cls) else cls(cast(AmountsLike, given))

    @classmethod
    def from_dict(cls, given: Any) -> Self:
        """Return the request that plain data says: text of amounts, or what :meth:`to_dict` gives.

        :raises InvalidInput: for what is no such thing, also keys that mean nothing; else as the
            constructor

        >>> asked = {"resources": {"VCPU": 2}, "groups": [{"suffix": "_A", "resources": "PGPU=1"}]}
        >>> print(Request.from_dict(asked))
        VCPU=2; _A: PGPU=1
        >>> Request.from_dict("VCPU=2") == Request("VCPU=2")
        True
        """
        if isinstance(given, str):
            return cls(Amounts.parse(given))
        known = read_keys("request", given, ("resources", *_OF_GROUP, "groups", *_OF_REQUEST))
        groups = known.pop("groups", ())
        if not _is_list(groups):
            raise _invalid_request("groups", groups, "a list of groups")
        amounts = amounts_of("resources", known.pop("resources", ""))
        return cls(amounts, groups=[RequestGroup.from_dict(one) for one in groups], **known)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: arguments of the constructor, those that say something.

        >>> Request("VCPU=2,PGPU=1", required=["CUSTOM_H100"]).to_dict()
        {'resources': 'VCPU=2,PGPU=1', 'required': ['CUSTOM_H100']}
        """
        found = self.unnamed.to_dict()
        if self.named:
            found["groups"] = [group.to_dict() for group in self.named]
        for name in ("group_policy", "compatibility", "near", "near_policy"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if self.same_subtree:
            found["same_subtree"] = [sorted(some) for some in self.same_subtree]
        for name in ("root_required", "root_forbidden"):
            if getattr(self, name):
                found[name] = sorted(getattr(self, name))
        return found

    def with_group(self, suffix: str, resources: AmountsLike = "", /, **conditions: Any) -> Self:
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
    def must_be_near(self) -> bool:
        """Whether all of it comes from one place of the level :attr:`near`."""
        return self.near_policy == "required"

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
        self._check_size()
        suffixes = [group.suffix for group in self.groups]
        self._check_suffixes(suffixes)
        if not any(group.resources for group in self.groups):
            told = "; ".join(str(group) for group in self.named)
            raise _invalid_request("request", told, "an amount of something")
        if not self.unnamed.resources and self.unnamed.has_conditions:
            raise _invalid_request(
                "request", str(self.unnamed), "an amount in the group that has conditions"
            )
        self._check_subtrees(set(suffixes[1:]))
        self._check_sums()
        check_traits("root_", self.root_required, self.root_forbidden)
        self._check_near()

    def _check_near(self) -> None:
        if self.near is None:
            if self.near_policy is not None:
                raise _invalid_request(
                    "near_policy", self.near_policy, "a level beside it, such as near='numa'"
                )
            return
        check_level("near", self.near)
        if self.compatibility is not None:
            raise _invalid_request(
                "near", self.near, f"none by the rules of {self.compatibility}: same_subtree"
            )

    def _check_size(self) -> None:
        if len(self.groups) > MAX_GROUPS:
            raise _invalid_request("groups", len(self.groups), f"at most {MAX_GROUPS}")
        length = sum([group._length() for group in self.groups])
        said = itertools.chain(self.root_required, self.root_forbidden, *self.same_subtree)
        length += sum(map(len, said))
        if length > MAX_LENGTH:
            raise _invalid_request(
                "request", f"{length} characters", f"at most {MAX_LENGTH} in all names"
            )

    def _check_suffixes(self, suffixes: list[str]) -> None:
        if not suffixes or suffixes[0] or "" in suffixes[1:]:
            raise _invalid_request(
                "groups", suffixes, "one group without a suffix, first, and others with one"
            )
        if len(set(suffixes)) < len(suffixes):
            twice = sorted({suffix for suffix in suffixes if suffixes.count(suffix) > 1})
            raise _invalid_request("groups", twice, "each suffix once")

    def _check_sums(self) -> None:
        try:
            if self.named:
                self.resources  # noqa: B018  (the sum is what is looked at)
        except InvalidInput as error:
            if not error.is_about("amount"):
                raise
            raise _invalid_request(error.what, error.value, error.expected) from error

    def _check_subtrees(self, suffixes: set[str]) -> None:
        for some in self.same_subtree:
            unknown = sorted(some - suffixes)
            if unknown or not some:
                raise _invalid_request(
                    "same_subtree", unknown, f"suffixes of groups, of {sorted(suffixes)}"
                )
        in_some = frozenset[str]().union(*self.same_subtree)
        for group in self.named:
            if not group.resources and group.suffix not in in_some:
                raise _invalid_request(
                    f"group {group.suffix}", "nothing", "an amount, or its suffix in same_subtree"
                )

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
        for name in ("compatibility", "near", "near_policy"):
            if getattr(self, name) is not None:
                yield name, getattr(self, name)

    def __repr__(self) -> str:
        parts = [repr(str(self.unnamed.resources))] if self.unnamed.resources else []
        parts += [f"{name}={value!r}" for name, value in self.unnamed.arguments().items()]
        parts += [f"groups={list(self.named)!r}"] if self.named else []
        for name in ("group_policy", "compatibility", "near", "near_policy"):
            parts += [f"{name}={getattr(self, name)!r}"] if getattr(self, name) else []
        if self.same_subtree:
            parts += [f"same_subtree={[sorted(some) for some in self.same_subtree]}"]
        for name in ("root_required", "root_forbidden"):
            parts += [f"{name}={sorted(getattr(self, name))}"] if getattr(self, name) else []
        return f"Request({', '.join(parts)})"


#: A request, or what the constructor of :class:`Request` makes one of.
RequestLike: TypeAlias = Request | AmountsLike


def trait_of_level(level: str) -> str:
    """Return the trait of the providers that stand for the places of a level.

    >>> trait_of_level("numa"), trait_of_level("CUSTOM_SOCKET")
    ('HW_NUMA_ROOT', 'CUSTOM_SOCKET')
    """
    return "HW_NUMA_ROOT" if level == CELLS else level


def check_level(what: str, given: object) -> None:
    """Raise for what is no level.

    :raises InvalidInput: for what is neither ``numa`` nor a trait that there is

    >>> check_level("near", "socket")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: near: got 'socket', expected numa, or the trait ...
    """
    try:
        known_traits([trait_of_level(given)] if isinstance(given, str) else given)  # type: ignore
    except InvalidInput as error:
        expected = "numa, or the trait of who stands for such a place, such as CUSTOM_SOCKET"
        raise _invalid_request(what, given, expected) from error


def _choice(what: str, value: object, known: tuple[str, ...]) -> Any:
    if value is not None and value not in known:
        raise _invalid_request(what, value, f"{' or '.join(map(repr, known))}, or None")
    return value


def _subtrees(given: object) -> tuple[frozenset[str], ...]:
    expected = "a list of lists of suffixes"
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise _invalid_request("same_subtree", given, expected)
    result: dict[frozenset[str], None] = {}
    for some in given:
        if isinstance(some, str | bytes) or not isinstance(some, Iterable):
            raise _invalid_request("same_subtree", some, expected)
        result[frozenset(map(str, some))] = None
    return tuple(sorted(result, key=sorted))


# --- what a condition is kept as ------------------------------------------------------------------

#: A resource class with the traits that who gives it must have, and must not have.
TraitsOf: TypeAlias = tuple[str, frozenset[str], frozenset[str]]


class TraitsOfClass(ovo_fields.FieldType[TraitsOf]):
    """A resource class with required and forbidden traits."""

    TAKES_NONE = False
    HOLDS_OBJECTS = False

    def coerce(self, obj: Any, attr: str, value: Any) -> TraitsOf:
        if not isinstance(value, list | tuple) or len(value) != 3:
            raise ValueError(attr)
        required, forbidden = (known_traits(traits) for traits in value[1:])
        return names.resource_class_name(value[0]), required, forbidden

    def from_primitive(self, obj: Any, attr: str, value: Any) -> TraitsOf:
        return self.coerce(obj, attr, value)

    def to_primitive(self, obj: Any, attr: str, value: TraitsOf) -> list[Any]:
        name, required, forbidden = value
        return [name, sorted(required), sorted(forbidden)]

    def describe(self) -> str:
        return "a resource class, a list of required traits and one of forbidden traits"

    def get_schema(self) -> dict[str, Any]:
        return {"type": ["array"], "minItems": 3, "maxItems": 3}


#: A provider, by name or uuid, whose whole tree is meant.
_TREE = fields.Checked(names.provider_key, "a provider name or uuid", "^.{1,200}$")


# --- groups ---------------------------------------------------------------------------------------

_SUFFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")


@base.register
class RequestGroup(base.ResourceObject, frozen=True):
    """Amounts that are requested under the same conditions on their providers.

    ``suffix`` is the name of the group in its request, ``""`` for the unnamed one. A named group
    comes from one provider, the classes of the unnamed one may come from several.

    * ``required`` and ``forbidden`` are traits, ``any_of`` sets of which one trait suffices;
      ``traits_of`` are traits of the providers of a class: ``{"DISK_GB": ["!CUSTOM_SLOW"]}``;
    * ``member_of`` are aggregates, or lists of which one suffices; ``not_member_of`` the opposite;
    * ``in_tree`` is a provider, by name or uuid, whose tree supplies everything.

    Cost: some 20 microseconds to make.

    >>> group = RequestGroup("VCPU=2,PGPU=1", required=["CUSTOM_H100"])
    >>> print(group)
    VCPU=2,PGPU=1 required=CUSTOM_H100
    >>> print(RequestGroup("VCPU=2", suffix="_A", any_of=[["CUSTOM_A", "CUSTOM_B"]],
    ...                    member_of=["rack1"], in_tree="host0"))
    _A: VCPU=2 any_of=CUSTOM_A|CUSTOM_B member_of=rack1 in_tree=host0
    >>> RequestGroup("VCPU=2", required=["CUSTOM_A"], forbidden=["CUSTOM_A"])
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: forbidden: got ['CUSTOM_A'], expected traits ...
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    suffix: str = fields.text(default="")
    resources: Amounts = fields.nested("Amounts")
    required: frozenset[str] = fields.traits(default=frozenset())
    forbidden: frozenset[str] = fields.traits(default=frozenset())
    any_of: tuple[frozenset[str], ...] = fields.tuple_of(fields.TRAITS, default=())
    member_of: tuple[frozenset[str], ...] = fields.tuple_of(fields.AGGREGATES, default=())
    not_member_of: frozenset[str] = fields.aggregates(default=frozenset())
    in_tree: str | None = fields.field(_TREE, default=None)
    traits_of: tuple[TraitsOf, ...] = fields.tuple_of(TraitsOfClass(), default=())

    def __init__(
        self,
        resources: AmountsLike = "",
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
            resources=Amounts.of(resources).bare(),
            suffix=suffix,
            required=read_traits("required", required),
            forbidden=read_traits("forbidden", forbidden),
            any_of=read_any_of(any_of),
            member_of=read_member_of(member_of),
            not_member_of=read_aggregates("not_member_of", not_member_of),
            in_tree=None if in_tree is None else names.provider_key(in_tree),
            traits_of=read_traits_of(traits_of),
        )

    @classmethod
    def from_dict(cls, given: Any) -> Self:
        """Return the named group that plain data says, as :meth:`to_dict` gives it.

        :raises InvalidInput: for what is no such thing, also keys that mean nothing
        """
        known = read_keys("group", given, ("suffix", "resources", *_OF_GROUP))
        suffix = known.pop("suffix", "")
        if not isinstance(suffix, str) or not suffix:
            raise _invalid_request("suffix", suffix, "the name of the group")
        return cls(amounts_of("resources", known.pop("resources", "")), suffix=suffix, **known)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: arguments of the constructor, those that say something."""
        found: dict[str, Any] = {"suffix": self.suffix} if self.suffix else {}
        if self.resources:
            found["resources"] = str(self.resources)
        return {**found, **self.arguments()}

    @property
    def has_conditions(self) -> bool:
        """Whether it says anything of who gives."""
        return any(
            getattr(self, name) for name in self.fields if name not in ("suffix", "resources")
        )

    def _length(self) -> int:
        said = itertools.chain(
            [self.suffix, self.in_tree or ""],
            [name for name, _ in self.resources.by_name()],
            *(self.required, self.forbidden, self.not_member_of, *self.any_of, *self.member_of),
            *((name, *required, *forbidden) for name, required, forbidden in self.traits_of),
        )
        return sum(map(len, said))

    def _validate(self) -> None:
        if self.suffix and not _SUFFIX.fullmatch(self.suffix):
            raise _invalid_request(
                "suffix", self.suffix, "1 to 64 of A-Z, a-z, 0-9, _ and -, or nothing"
            )
        where = f"group {self.suffix}: " if self.suffix else ""
        self._check_amounts(where)
        check_traits(where, self.required, self.forbidden, self.any_of)
        check_aggregates(where, self.member_of, self.not_member_of)
        self._check_classes(where)

    def _check_amounts(self, where: str) -> None:
        for kind, amount in self.resources.items():
            if amount.is_negative:
                raise _invalid_request(f"{where}{kind.name}", amount, "an amount above 0")
            if self.suffix and (amount.locates or kind.is_located):
                raise _invalid_request(
                    f"{where}{kind.name}", amount, "a count: what says where it goes has no name"
                )
        try:
            self.resources.counted()
        except InvalidInput as error:
            if not error.is_about("amount"):
                raise
            raise _invalid_request(where + error.what, error.value, error.expected) from error

    def _check_classes(self, where: str) -> None:
        classes = {name for name, _ in self.resources.by_name()}
        seen: set[str] = set()
        for name, required, forbidden in self.traits_of:
            if resource(name).name not in classes or name in seen:
                raise _invalid_request(
                    f"{where}traits_of", name, "classes that the group asks for, each once"
                )
            seen.add(name)
            check_traits(f"{where}{name}: ", required, forbidden)
            both = sorted(required & self.forbidden)
            if self.suffix:  # one provider gives all of it
                both += sorted(forbidden & self.required)
            if both:
                raise _invalid_request(
                    f"{where}traits_of {name}", both, "traits that do not contradict the group's"
                )

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


# --- reading conditions ---------------------------------------------------------------------------


def read_keys(what: str, given: object, known: tuple[str, ...]) -> dict[str, Any]:
    """Return a mapping of plain data, or raise for what is none or says what means nothing."""
    if not isinstance(given, Mapping):
        raise _invalid_request(what, given, f"a mapping with {', '.join(known)}")
    for key in given:
        if key not in known:
            raise _invalid_request(f"{what}: key", key, f"one of {', '.join(known)}")
    return dict(given)


def amounts_of(what: str, given: object) -> Amounts:
    """Return amounts of text, or of a mapping whose values are counts or text."""
    if isinstance(given, str):
        return Amounts.parse(given)
    if not isinstance(given, Mapping):
        raise _invalid_request(what, given, "text such as VCPU=2, or {class: amount}")
    return Amounts(
        {
            name: resource(name).parse_amount(value) if isinstance(value, str) else value
            for name, value in given.items()
        }
    )


def read_traits(what: str, given: object) -> frozenset[str]:
    """Return traits, or raise for what is no list of known ones.

    >>> sorted(read_traits("required", ["CUSTOM_B", "CUSTOM_A"]))
    ['CUSTOM_A', 'CUSTOM_B']
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise InvalidInput("trait", what, given, "a list of trait names")
    return known_traits(given)


def read_any_of(given: object) -> tuple[frozenset[str], ...]:
    """Return sets of traits of which one each is enough, each set once, in a fixed order.

    :raises InvalidInput: for what is no list of lists, or a set of nothing
    """
    if not _is_list(given):
        raise _invalid_request("any_of", given, "a list of lists of traits")
    return _ordered(read_traits("any_of", some) for some in given)  # type: ignore[attr-defined]


def read_member_of(given: object) -> tuple[frozenset[str], ...]:
    """Return sets of aggregates of which one each is enough: names, or lists of names.

    >>> [sorted(some) for some in read_member_of(["rack1", ["fast", "large"]])]
    [['fast', 'large'], ['rack1']]
    """
    expected = "a list of aggregates, or of lists of those of which one is enough"
    if not _is_list(given):
        raise _invalid_request("member_of", given, expected)
    result = []
    for one in given:  # type: ignore[attr-defined]
        if not isinstance(one, str) and not _is_list(one):
            raise _invalid_request("member_of", one, expected)
        result.append(frozenset(map(names.aggregate_name, [one] if isinstance(one, str) else one)))
    return _ordered(result)


def read_aggregates(what: str, given: object) -> frozenset[str]:
    """Return aggregates, or raise for what is no list of them."""
    if not _is_list(given):
        raise _invalid_request(what, given, "a list of aggregates")
    return frozenset(map(names.aggregate_name, given))  # type: ignore[call-overload]


def read_traits_of(given: object) -> tuple[TraitsOf, ...]:
    """Return traits by class, from ``{class: [trait, "!forbidden trait"]}`` or as they are kept.

    >>> read_traits_of({"DISK_GB": ["CUSTOM_SSD", "!CUSTOM_SLOW"]})
    (('DISK_GB', frozenset({'CUSTOM_SSD'}), frozenset({'CUSTOM_SLOW'})),)
    """
    if given is None:
        return ()
    if isinstance(given, tuple):
        return given
    if not isinstance(given, Mapping):
        expected = "a mapping of resource classes to lists of traits"
        raise _invalid_request("traits_of", given, expected)
    return tuple(_of_class(name, some) for name, some in sorted(given.items()))


def _of_class(name: object, given: object) -> TraitsOf:
    if not _is_list(given) or not given:
        raise _invalid_request(f"traits_of {name}", given, "a list of traits")
    told = [str(trait) for trait in given]  # type: ignore[attr-defined]
    required = [trait for trait in told if not trait.startswith("!")]
    forbidden = [trait[1:] for trait in told if trait.startswith("!")]
    return names.resource_class_name(name), known_traits(required), known_traits(forbidden)


def check_traits(
    where: str,
    required: frozenset[str],
    forbidden: frozenset[str],
    any_of: Iterable[frozenset[str]] = (),
) -> None:
    """Raise for traits that contradict each other, or that do not exist.

    :raises InvalidInput: naming those that are required and forbidden; naming one that is neither
        standard nor custom
    """
    for some in (required, forbidden, *any_of):
        known_traits(some)
    both = sorted(required & forbidden)
    if both:
        raise _invalid_request(f"{where}forbidden", both, "traits that are not required too")
    for some in any_of:
        if not some - forbidden:
            raise _invalid_request(
                f"{where}any_of", sorted(some), "at least one trait that is not forbidden"
            )


def check_aggregates(
    where: str, member_of: Iterable[frozenset[str]], not_member_of: frozenset[str]
) -> None:
    """Raise for aggregates that contradict each other.

    :raises InvalidInput: naming those that one has to be in and must not be in
    """
    for some in member_of:
        if not some - not_member_of:
            expected = "at least one aggregate that is not excluded"
            raise _invalid_request(f"{where}member_of", sorted(some), expected)


def _is_list(given: object) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)


def _ordered(given: Iterable[frozenset[str]]) -> tuple[frozenset[str], ...]:
    return tuple(sorted(dict.fromkeys(given), key=sorted))
