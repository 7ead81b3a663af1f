"""Requests for resources, and their groups."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeAlias, cast

from resource_objects import base, fields, names
from resource_objects._ovo import fields as ovo_fields
from resource_objects.exceptions import InvalidInput
from resource_objects.resources import Amount, Amounts, AmountsLike, resource
from resource_objects.resources.amounts import split_placed
from resource_objects.resources.catalog import generation
from resource_objects.resources.records import AmountRecord
from resource_objects.resources.traits import checked_traits

_invalid_request = functools.partial(InvalidInput, "request")

#: Conditions on the providers of named groups: none, or no two the same.
POLICIES = ("none", "isolate")
#: The rules, next to those of this library, that a request can be read by.
COMPATIBILITIES = ("placement",)
#: Nearness is a preference or a condition.
NEAR_POLICIES = ("preferred", "required")
#: The level of NUMA cells.
CELLS = "numa"
#: The maximum number of groups of a request, and of characters: in its names or as a query string.
MAX_GROUPS = 1000
MAX_LENGTH = 2**20
#: The maximum number of characters of a text whose request is cached.
MAX_CACHED = 512


@base.register
class Request(base.ResourceObject, frozen=True):
    """Groups of amounts, with conditions on the providers that supply them.

    The arguments are those of :class:`~resource_objects.resources.Amounts`: they form the unnamed
    group, and are read as ``request.unnamed.resources``, ``request.unnamed.required``. Its classes
    may come from several providers of one host and from the pools of the host. Its conditions are
    those of :class:`~resource_objects.requests.RequestGroup`. Each provider of the group has every
    required trait itself or through an ancestor, and neither it nor an ancestor has a forbidden
    one. Each :attr:`named` group comes from one provider:

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
        **arguments: Any,
    ) -> None:
        """Make a request.

        :param groups: the named groups
        :param arguments: conditions of the request, and of the unnamed group
        :raises InvalidInput: for a contradiction, an unknown name, more than 1000 groups, or more
            than 2**20 characters of names
        """
        of_request = {name: arguments.pop(name) for name in REQUEST if name in arguments}
        if "suffix" in arguments:
            expected = "none: other groups are given as groups"
            raise _invalid_request("suffix", arguments["suffix"], expected)
        super().__init__(
            groups=(RequestGroup(resources, **arguments), *groups),
            **_read(REQUEST, of_request),
        )

    @classmethod
    def of(cls, request: RequestLike) -> Self:
        """Return a request itself, or the request of amounts.

        Equal texts share one request, until ``catalog.forget()`` is called. Cost: then some 0.3
        microseconds.
        """
        if isinstance(request, cls):
            return request
        if type(request) is str and len(request) <= MAX_CACHED:
            return cast(Self, _of_text(cast(Any, cls), request, generation()))
        return cls(cast(AmountsLike, request))

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the request of plain data: of a text of amounts, or the result of :meth:`to_dict`.

        :raises InvalidInput: for anything else, and for unknown keys

        >>> data = {"resources": {"VCPU": 2}, "groups": [{"suffix": "_A", "resources": "PGPU=1"}]}
        >>> print(Request.from_dict(data))
        VCPU=2; _A: PGPU=1
        >>> Request.from_dict("VCPU=2") == Request("VCPU=2")
        True
        """
        if isinstance(data, str):
            return cls(Amounts.parse(data))
        arguments = read_keys("request", data, ("resources", *GROUP, "groups", *REQUEST))
        groups = arguments.pop("groups", ())
        if not _is_list(groups):
            raise _invalid_request("groups", groups, "a list of groups")
        amounts = _amounts(arguments.pop("resources", ""))
        return cls(amounts, groups=[RequestGroup.from_dict(group) for group in groups], **arguments)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: the arguments of the constructor that are not empty.

        >>> Request("VCPU=2,PGPU=1", required=["CUSTOM_H100"]).to_dict()
        {'resources': 'VCPU=2,PGPU=1', 'required': ['CUSTOM_H100']}
        """
        groups = {"groups": [group.to_dict() for group in self.named]} if self.named else {}
        return {**self.unnamed.to_dict(), **groups, **_plain(REQUEST, self)}

    def with_group(
        self,
        suffix: str,
        resources: AmountsLike = "",
        /,
        **arguments: Any,
    ) -> Self:
        """Return a request with a further named group.

        :param arguments: the conditions of the group

        >>> print(Request("VCPU=1").with_group("gpu", "PGPU=1", required=["CUSTOM_H100"]))
        VCPU=1; gpu: PGPU=1 required=CUSTOM_H100
        """
        group = RequestGroup(resources, suffix=suffix, **arguments)
        return self.replace(groups=(*self.groups, group))

    def with_unnamed(self, group: RequestGroup) -> Self:
        """Return a request with another unnamed group."""
        return self.replace(groups=(group, *self.named))

    @property
    def unnamed(self) -> RequestGroup:
        """The unnamed group, which may request nothing if named groups do."""
        return self.groups[0]

    @property
    def named(self) -> tuple[RequestGroup, ...]:
        """The named groups."""
        return self.groups[1:]

    @property
    def isolates(self) -> bool:
        """Whether no two named groups may come from the same provider."""
        return self.group_policy == "isolate"

    @property
    def must_be_near(self) -> bool:
        """Whether everything comes from one provider of the level :attr:`near`."""
        return self.near_policy == "required"

    @property
    def resources(self) -> Amounts:
        """The requested amounts of all groups, to be consumed one after the other.

        The counts that a placed amount implies are included, as often as the host as a whole
        provides them (:meth:`Amounts.with_implied_counts`).

        >>> for resource, amount in Request("NUMA_TOPOLOGY=2:shared=4").resources.items():
        ...     print(resource, amount)
        VCPU 4
        NUMA_TOPOLOGY 2:shared=4
        """
        total = self.groups[0].resources.with_implied_counts()
        for group in self.groups[1:]:
            total = total + group.resources.with_implied_counts()
        return total

    def _validate(self) -> None:
        self._check_size()
        self._check_groups()
        self._check_subtrees()
        if self.named:
            with _about_request():
                self.resources  # noqa: B018  # raises if the sum is too large
        _check_traits("root_", self.root_required, self.root_forbidden)
        self._check_near()

    def _check_size(self) -> None:
        if len(self.groups) > MAX_GROUPS:
            raise _invalid_request("groups", len(self.groups), f"at most {MAX_GROUPS}")
        of_request = (self.root_required, self.root_forbidden, self.same_subtree)
        length = sum(map(_characters, filter(None, of_request)))
        length += sum([group._length() for group in self.groups])
        if length > MAX_LENGTH:
            expected = f"at most {MAX_LENGTH} in all names"
            raise _invalid_request("request", f"{length} characters", expected)

    def _check_groups(self) -> None:
        suffixes = [group.suffix for group in self.groups]
        if not suffixes or suffixes[0] or "" in suffixes[1:]:
            expected = "one group without a suffix, first, and others with one"
            raise _invalid_request("groups", suffixes, expected)
        if len(set(suffixes)) < len(suffixes):
            repeated = sorted(suffix for suffix, count in Counter(suffixes).items() if count > 1)
            raise _invalid_request("groups", repeated, "each suffix once")
        if not any(group.resources for group in self.groups):
            text = "; ".join(map(str, self.named))
            raise _invalid_request("request", text, "an amount of something")
        if not self.unnamed.resources and self.unnamed.has_conditions:
            expected = "an amount in the group that has conditions"
            raise _invalid_request("request", str(self.unnamed), expected)

    def _check_subtrees(self) -> None:
        suffixes = {group.suffix for group in self.named}
        for linked in self.same_subtree:
            if not linked or not linked <= suffixes:
                expected = f"suffixes of groups, of {sorted(suffixes)}"
                raise _invalid_request("same_subtree", sorted(linked - suffixes), expected)
        in_subtree = frozenset[str]().union(*self.same_subtree)
        for group in self.named:
            if not group.resources and group.suffix not in in_subtree:
                expected = "an amount, or its suffix in same_subtree"
                raise _invalid_request(f"group {group.suffix}", "nothing", expected)

    def _check_near(self) -> None:
        if self.near is None:
            if self.near_policy is not None:
                expected = "a level beside it, such as near='numa'"
                raise _invalid_request("near_policy", self.near_policy, expected)
            return
        try:
            checked_traits([trait_of_level(self.near)])
        except InvalidInput as error:
            expected = "numa, or the trait of the providers of a level, such as CUSTOM_SOCKET"
            raise _invalid_request("near", self.near, expected) from error
        if self.compatibility is not None:
            expected = f"none by the rules of {self.compatibility}: same_subtree"
            raise _invalid_request("near", self.near, expected)

    def __str__(self) -> str:
        groups = self.groups if self.unnamed.resources else self.named
        return "; ".join([*map(str, groups), *_texts(REQUEST, self)])

    def __repr__(self) -> str:
        arguments = self.unnamed.arguments()
        if self.named:
            arguments["groups"] = list(self.named)
        arguments |= _plain(REQUEST, self)
        return _call("Request", self.unnamed.resources, arguments)


@functools.lru_cache(maxsize=512)  # texts come from outside: they must not pile up
def _of_text(cls: Any, text: str, generation: int) -> Request:
    """Return the request of a text; the generation of the catalog is only a part of the key."""
    return cast(Request, cls(text))


#: A request, or the argument of :class:`Request`.
RequestLike: TypeAlias = Request | AmountsLike


def trait_of_level(level: str) -> str:
    """Return the trait of the providers of a level.

    >>> trait_of_level("numa"), trait_of_level("CUSTOM_SOCKET")
    ('HW_NUMA_ROOT', 'CUSTOM_SOCKET')
    """
    return "HW_NUMA_ROOT" if level == CELLS else level


# --- groups ---------------------------------------------------------------------------------------

#: A resource class with the required and the forbidden traits of its providers.
TraitsOf: TypeAlias = tuple[str, frozenset[str], frozenset[str]]


class TraitsOfClass(ovo_fields.FieldType[TraitsOf]):
    """A resource class with required and forbidden traits."""

    def coerce(self, obj: Any, attr: str, value: Any) -> TraitsOf:
        if not isinstance(value, list | tuple) or len(value) != 3:
            raise ValueError(attr)
        required, forbidden = (checked_traits(traits) for traits in value[1:])
        return names.resource_class_name(value[0]), required, forbidden

    def from_primitive(self, obj: Any, attr: str, value: Any) -> TraitsOf:
        return self.coerce(obj, attr, value)

    def to_primitive(self, obj: Any, attr: str, value: TraitsOf) -> list[Any]:
        name, required, forbidden = value
        return [name, sorted(required), sorted(forbidden)]

    def describe(self) -> str:
        return "a resource class, a list of required traits and one of forbidden traits"


_SUFFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: The field of a provider, by name or uuid, whose whole tree is meant.
_TREE = fields.Checked(names.provider_key, "a provider name or uuid", "^.{1,200}$")


@dataclasses.dataclass(frozen=True, slots=True)
class RequestedCount:
    """A requested count of one class.

    ``requested`` is the amount itself; None if the count is a part of an amount of several classes.
    ``units`` are requested by name: then one provider provides all of it.
    """

    resource_class: str
    amount: int
    requested: Amount | None = None
    units: tuple[str, ...] = ()


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
        **arguments: Any,
    ) -> None:
        super().__init__(
            resources=Amounts.from_value(resources).as_requested(),
            suffix=suffix,
            **_read(GROUP, arguments),
        )

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the named group of plain data, as :meth:`to_dict` returns it.

        :raises InvalidInput: for anything else, and for unknown keys
        """
        arguments = read_keys("group", data, ("suffix", "resources", *GROUP))
        suffix = arguments.pop("suffix", "")
        if not isinstance(suffix, str) or not suffix:
            raise _invalid_request("suffix", suffix, "the name of the group")
        amounts = _amounts(arguments.pop("resources", ""))
        return cls(amounts, suffix=suffix, **arguments)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: the arguments of the constructor that are not empty."""
        data = {"suffix": self.suffix, "resources": str(self.resources), **self.arguments()}
        return {name: value for name, value in data.items() if value}

    @property
    def has_conditions(self) -> bool:
        """Whether it has a condition on its providers."""
        return any(_GROUP_VALUES(self))

    @property
    def definition(self) -> tuple[Any, ...]:
        """The amounts and conditions, which groups with different names can have in common."""
        return (self.resources, *_GROUP_VALUES(self))

    @functools.cached_property  # each search of the request reads it
    def placed(self) -> Mapping[str, Amount]:
        """The placed amounts, by class."""
        amounts = self.resources.by_name()
        return {name: amount for name, amount in amounts if resource(name).is_placed}

    @functools.cached_property  # each search of the request reads it
    def counts(self) -> tuple[RequestedCount, ...]:
        """Each class that is requested as a count, once, in order.

        Placed amounts, and the counts that they include, are left out. A count of a class and an
        amount that is stored in the same class at one provider request the same thing: they have to
        agree.

        :raises InvalidInput: for an amount that is not stored as counts above 0; if a count does
            not agree with the amount that includes it

        >>> [(count.resource_class, count.amount) for count in RequestGroup("VCPU=2,PGPU=1").counts]
        [('VCPU', 2), ('PGPU', 1)]
        """
        return _requested_counts(self.resources)

    def arguments(self) -> dict[str, Any]:
        """Return the conditions as arguments of the constructor, without those that are empty."""
        return _plain(GROUP, self)

    def _length(self) -> int:
        length = len(self.suffix) + sum(map(len, self.resources.names()))
        return length + sum(map(_characters, filter(None, _GROUP_VALUES(self))))

    def _validate(self) -> None:
        if self.suffix and not _SUFFIX.fullmatch(self.suffix):
            expected = "1 to 64 of A-Z, a-z, 0-9, _ and -, or nothing"
            raise _invalid_request("suffix", self.suffix, expected)
        label = f"group {self.suffix}: " if self.suffix else ""
        self._check_amounts(label)
        if not self.has_conditions:
            return
        checked_traits(frozenset().union(*self.any_of))
        _check_traits(label, self.required, self.forbidden)
        for name, excluded, expected in (
            ("any_of", self.forbidden, "trait that is not forbidden"),
            ("member_of", self.not_member_of, "aggregate that is not excluded"),
        ):
            for alternatives in getattr(self, name):
                if alternatives <= excluded:
                    expected = f"at least one {expected}"
                    raise _invalid_request(f"{label}{name}", sorted(alternatives), expected)
        self._check_classes(label)

    def _check_amounts(self, label: str) -> None:
        for kind, amount in self.resources.items():
            if amount.is_negative:
                raise _invalid_request(f"{label}{kind.name}", amount, "an amount above 0")
            if self.suffix and (amount.is_placed or kind.is_placed):
                expected = "a count: a placed amount belongs to the unnamed group"
                raise _invalid_request(f"{label}{kind.name}", amount, expected)
        with _about_request(label):
            self.resources.with_implied_counts()

    def _check_classes(self, label: str) -> None:
        classes = set(self.resources.names())
        for name, required, forbidden in self.traits_of:
            if resource(name).name not in classes:
                expected = "classes that the group requests, each once"
                raise _invalid_request(f"{label}traits_of", name, expected)
            classes.remove(name)
            _check_traits(f"{label}{name}: ", required, forbidden)
            both = sorted(required & self.forbidden)
            if self.suffix:  # one provider provides all of it
                both += sorted(forbidden & self.required)
            if both:
                expected = "traits that do not contradict the group's"
                raise _invalid_request(f"{label}traits_of {name}", both, expected)

    def __str__(self) -> str:
        name = f"{self.suffix}: " if self.suffix else ""
        amounts = str(self.resources) or "nothing"
        return name + " ".join([amounts, *_texts(GROUP, self)])

    def __repr__(self) -> str:
        suffix = {"suffix": self.suffix} if self.suffix else {}
        return _call("RequestGroup", self.resources, {**suffix, **self.arguments()})


def _requested_counts(requested: Amounts) -> tuple[RequestedCount, ...]:
    parts = split_placed(requested)
    amounts: Iterable[tuple[str, Amount]] = requested.by_name()
    if parts is not None:  # of counts, those that placed amounts do not include
        amounts = [*parts.unplaced.items(), *parts.placed.items()]
    counts: dict[str, RequestedCount] = {}
    included: dict[str, RequestedCount] = {}
    for name, amount in amounts:
        if resource(name).is_placed:
            continue
        records = amount.to_records(name)
        if not records or min([record.amount for record in records]) < 1:
            expected = "one that is stored as counts above 0"
            raise InvalidInput("kind of amount", name, amount, expected)
        if len(records) == 1 and records[0].resource_class == name:
            counts[name] = RequestedCount(name, records[0].amount, amount, records[0].units)
        else:
            for record in records:
                _include(included, record)
    for name, part in included.items():
        if name in counts and counts[name].amount != part.amount:
            expected = f"{part.amount}, as in the placed amount of the class"
            raise _invalid_request(name, counts[name].amount, expected)
    return tuple({**counts, **included}.values())


def _include(included: dict[str, RequestedCount], record: AmountRecord) -> None:
    name = record.resource_class
    before = included.get(name, RequestedCount(name, 0))
    amount = before.amount + record.amount
    if amount > fields.MAX_AMOUNT:
        raise _invalid_request(name, amount, f"at most {fields.MAX_AMOUNT}")
    units = (*before.units, *record.units)
    included[name] = dataclasses.replace(before, amount=amount, units=units)


def _call(name: str, amounts: Amounts, arguments: Mapping[str, Any]) -> str:
    """Return the text of a call."""
    parts = [repr(str(amounts))] if amounts else []
    parts += [f"{key}={value!r}" for key, value in arguments.items()]
    return f"{name}({', '.join(parts)})"


def read_keys(name: str, data: object, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return a mapping of plain data.

    :raises InvalidInput: for anything else, and for unknown keys
    """
    if not isinstance(data, Mapping):
        raise _invalid_request(name, data, f"a mapping with {', '.join(keys)}")
    for key in data:
        if key not in keys:
            raise _invalid_request(f"{name}: key", key, f"one of {', '.join(keys)}")
    return dict(data)


def _amounts(data: object) -> Amounts:
    """Return the amounts of text, or of a mapping to counts or text."""
    if isinstance(data, str):
        return Amounts.parse(data)
    if not isinstance(data, Mapping):
        raise _invalid_request("resources", data, "text such as VCPU=2, or {class: amount}")
    return Amounts(
        {
            cls: resource(cls).parse_amount(value) if isinstance(value, str) else value
            for cls, value in data.items()
        }
    )


# --- conditions -----------------------------------------------------------------------------------
# A condition is a field. Its name is the argument, the key of plain data and the word of the text.
# The type of its stored value decides the forms: a text, a set, or a tuple of sets.

#: The conditions of a group, and of a request as a whole.
GROUP = tuple(name for name in RequestGroup.fields if name not in ("suffix", "resources"))
REQUEST = tuple(name for name in Request.fields if name != "groups")
_GROUP_VALUES: Callable[[RequestGroup], tuple[Any, ...]] = operator.attrgetter(*GROUP)


def _is_list(argument: object) -> bool:
    """Return True for an iterable other than text and mappings."""
    return isinstance(argument, Iterable) and not isinstance(argument, str | bytes | Mapping)


@dataclasses.dataclass(frozen=True, slots=True)
class _Names:
    """A list of names as an argument; errors are about a subject."""

    check: Callable[[Iterable[Any]], frozenset[str]]  #: returns valid names
    expected: str
    subject: str = "request"

    def read(self, name: str, argument: Any) -> frozenset[str]:
        """Return the names of a list."""
        if not _is_list(argument):
            raise InvalidInput(self.subject, name, argument, self.expected)
        return self.check(argument)

    def read_sets(self, name: str, argument: Any) -> tuple[frozenset[str], ...]:
        """Return the sets of a list of lists, in a fixed order, each once."""
        if not _is_list(argument):
            raise _invalid_request(name, argument, f"a list of which each is {self.expected}")
        sets = dict.fromkeys(self.read(name, item) for item in argument)
        return tuple(sorted(sets, key=sorted))


_TRAITS = _Names(checked_traits, "a list of trait names", "trait")
_AGGREGATES = _Names(
    lambda items: frozenset(map(names.aggregate_name, items)), "a list of aggregates"
)
_SUFFIXES = _Names(lambda items: frozenset(map(str, items)), "a list of suffixes")


def _member_of(name: str, argument: Any) -> tuple[frozenset[str], ...]:
    """Return sets of aggregates; one aggregate is a set of its own."""
    if not _is_list(argument):
        expected = "a list of aggregates, or of lists of those of which one is enough"
        raise _invalid_request(name, argument, expected)
    sets = [[item] if isinstance(item, str) else item for item in argument]
    return _AGGREGATES.read_sets(name, sets)


def _traits_of(name: str, argument: Any) -> tuple[TraitsOf, ...]:
    if argument is None or isinstance(argument, tuple):
        return argument or ()
    if not isinstance(argument, Mapping):
        expected = "a mapping of resource classes to lists of traits"
        raise _invalid_request(name, argument, expected)
    result = []
    for resource_class, traits in sorted(argument.items()):
        if not _is_list(traits) or not traits:
            raise _invalid_request(f"{name} {resource_class}", traits, "a list of traits")
        required, forbidden = split_traits(map(str, traits))
        result.append((names.resource_class_name(resource_class), required, forbidden))
    return tuple(result)


def _choice(*words: str) -> Callable[[str, Any], Any]:
    def read(name: str, argument: Any) -> Any:
        if argument is not None and argument not in words:
            raise _invalid_request(name, argument, f"{' or '.join(map(repr, words))}, or None")
        return argument

    return read


#: Functions of (name, argument) that return the value of a field. A field without one takes the
#: argument as it is.
_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "required": _TRAITS.read,
    "forbidden": _TRAITS.read,
    "any_of": _TRAITS.read_sets,
    "member_of": _member_of,
    "not_member_of": _AGGREGATES.read,
    "traits_of": _traits_of,
    "group_policy": _choice(*POLICIES),
    "same_subtree": _SUFFIXES.read_sets,
    "root_required": _TRAITS.read,
    "root_forbidden": _TRAITS.read,
    "compatibility": _choice(*COMPATIBILITIES),
    "near_policy": _choice(*NEAR_POLICIES),
}


def _read(table: Iterable[str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of fields.

    :raises InvalidInput: for an invalid value
    :raises TypeError: for an argument that is not in the table
    """
    for name in arguments:
        if name not in table:
            raise TypeError(f"unexpected keyword argument {name!r}, expected {', '.join(table)}")
    return {
        name: _READERS[name](name, arguments[name]) if name in _READERS else arguments[name]
        for name in table
        if name in arguments
    }


def _plain(table: Iterable[str], owner: object) -> dict[str, Any]:
    """Return the conditions that are not empty as plain data, which are arguments as well."""
    values = {name: getattr(owner, name) for name in table}
    return {name: _plain_value(value) for name, value in values.items() if value}


def _plain_value(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value[0], frozenset):
        return [sorted(names) for names in value]
    return {name: signed(required, forbidden) for name, required, forbidden in value}


def _texts(table: Iterable[str], owner: object) -> Iterator[str]:
    """Yield the conditions that are not empty as text."""
    for name, data in _plain(table, owner).items():
        if name == "same_subtree":
            yield from (f"{name}={','.join(suffixes)}" for suffixes in data)
        elif isinstance(data, dict):
            yield from (f"{cls} with={','.join(traits)}" for cls, traits in data.items())
        elif isinstance(data, list):
            items = (item if isinstance(item, str) else "|".join(item) for item in data)
            yield f"{name}={','.join(items)}"
        else:
            yield f"{name}={data}"


def signed(required: Iterable[str], forbidden: Iterable[str]) -> list[str]:
    """Return traits as a list, the forbidden ones with ``!`` before them."""
    return [*sorted(required), *(f"!{trait}" for trait in sorted(forbidden))]


def split_traits(traits: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the required and the forbidden traits of a list, the forbidden ones with ``!``.

    :raises InvalidInput: for an unknown trait
    """
    listed = list(traits)
    required = checked_traits([trait for trait in listed if not trait.startswith("!")])
    return required, checked_traits([trait[1:] for trait in listed if trait.startswith("!")])


def _characters(values: str | Iterable[Any]) -> int:
    """Return the number of characters in nested collections of names."""
    if isinstance(values, str):
        return len(values)
    return sum(map(_characters, values))


def _check_traits(label: str, required: frozenset[str], forbidden: frozenset[str]) -> None:
    """Raise for an unknown trait, and for traits that are both required and forbidden."""
    checked_traits(required | forbidden)
    if both := sorted(required & forbidden):
        raise _invalid_request(f"{label}forbidden", both, "traits that are not required too")


@contextlib.contextmanager
def _about_request(label: str = "") -> Iterator[None]:
    """Raise an error about an amount as an error about the request with that amount."""
    try:
        yield
    except InvalidInput as error:
        if not error.is_about("amount"):
            raise
        raise _invalid_request(label + error.what, error.value, error.expected) from error
