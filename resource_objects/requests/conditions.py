"""The conditions of requests and their groups: one table of how each is read and written.

A condition has four forms: the argument of a constructor, the stored value, plain data for JSON,
which is an argument as well, and text. :data:`GROUP` and :data:`REQUEST` have a row for each
condition, and the text is in their order. The form in Placement's query is in :mod:`.query`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypedDict

from resource_objects import names
from resource_objects._ovo import fields as ovo_fields
from resource_objects.exceptions import InvalidInput
from resource_objects.resources.traits import known_traits

_invalid_request = functools.partial(InvalidInput, "request")

#: Conditions on the providers of named groups: none, or no two the same.
POLICIES = ("none", "isolate")
#: The rules, next to those of this library, that a request can be read by.
COMPATIBILITIES = ("placement",)
#: Nearness is a preference or a condition.
NEAR_POLICIES = ("preferred", "required")
#: A resource class with the required and the forbidden traits of its providers.
TraitsOf: TypeAlias = tuple[str, frozenset[str], frozenset[str]]


class GroupConditions(TypedDict, total=False):
    """The conditions of a group, as arguments."""

    required: Iterable[str]
    forbidden: Iterable[str]
    any_of: Iterable[Iterable[str]]
    member_of: Iterable[str | Iterable[str]]
    not_member_of: Iterable[str]
    in_tree: str | None
    traits_of: Mapping[str, Iterable[str]] | tuple[TraitsOf, ...] | None


class RequestConditions(GroupConditions, total=False):
    """The conditions of a request and its unnamed group, as arguments."""

    group_policy: str | None
    same_subtree: Iterable[Iterable[str]]
    root_required: Iterable[str]
    root_forbidden: Iterable[str]
    compatibility: str | None
    near: str | None
    near_policy: str | None


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


# --- arguments ------------------------------------------------------------------------------------


def is_list(argument: object) -> bool:
    """Return True for an iterable other than text and mappings."""
    return isinstance(argument, Iterable) and not isinstance(argument, str | bytes | Mapping)


def _items(name: str, argument: Any, expected: str) -> Iterable[Any]:
    if not is_list(argument):
        raise _invalid_request(name, argument, expected)
    items: Iterable[Any] = argument
    return items


def _traits(name: str, argument: Any) -> frozenset[str]:
    if not is_list(argument):
        raise InvalidInput("trait", name, argument, "a list of trait names")
    return known_traits(argument)


def _aggregates(name: str, argument: Any) -> frozenset[str]:
    items = [argument] if isinstance(argument, str) else argument
    return frozenset(map(names.aggregate_name, _items(name, items, "a list of aggregates")))


def _excluded(name: str, argument: Any) -> frozenset[str]:
    return _aggregates(name, _items(name, argument, "a list of aggregates"))


def _suffixes(name: str, argument: Any) -> frozenset[str]:
    return frozenset(map(str, _items(name, argument, "a list of suffixes")))


def _sets(of: Callable[[str, Any], frozenset[str]], expected: str) -> Callable[[str, Any], Any]:
    """Return a function that reads sets in a fixed order, each once."""

    def read(name: str, argument: Any) -> tuple[frozenset[str], ...]:
        sets = (of(name, item) for item in _items(name, argument, expected))
        return tuple(sorted(dict.fromkeys(sets), key=sorted))

    return read


def _traits_of(name: str, argument: Any) -> tuple[TraitsOf, ...]:
    if argument is None or isinstance(argument, tuple):
        return argument or ()
    if not isinstance(argument, Mapping):
        expected = "a mapping of resource classes to lists of traits"
        raise _invalid_request(name, argument, expected)
    result = []
    for resource_class, traits in sorted(argument.items()):
        if not is_list(traits) or not traits:
            raise _invalid_request(f"{name} {resource_class}", traits, "a list of traits")
        listed = [str(trait) for trait in traits]
        required = known_traits(trait for trait in listed if not trait.startswith("!"))
        forbidden = known_traits(trait[1:] for trait in listed if trait.startswith("!"))
        result.append((names.resource_class_name(resource_class), required, forbidden))
    return tuple(result)


def _choice(*words: str) -> Callable[[str, Any], Any]:
    def read(name: str, argument: Any) -> Any:
        if argument is not None and argument not in words:
            raise _invalid_request(name, argument, f"{' or '.join(map(repr, words))}, or None")
        return argument

    return read


# --- plain data and text --------------------------------------------------------------------------


def signed(required: Iterable[str], forbidden: Iterable[str]) -> list[str]:
    """Return traits as a list, the forbidden ones with ``!`` before them.

    >>> signed(["CUSTOM_A"], ["CUSTOM_B"])
    ['CUSTOM_A', '!CUSTOM_B']
    """
    return [*sorted(required), *(f"!{trait}" for trait in sorted(forbidden))]


def _sorted_sets(sets: Iterable[Iterable[str]]) -> list[list[str]]:
    return [sorted(names) for names in sets]


def _plain_traits_of(traits_of: Iterable[TraitsOf]) -> dict[str, list[str]]:
    return {name: signed(required, forbidden) for name, required, forbidden in traits_of}


class Form(NamedTuple):
    """How a condition is read from an argument, and written as plain data and as text."""

    read: Callable[[str, Any], Any]
    plain: Callable[[Any], Any]
    #: the text of plain data, a line for each ``name=value``
    lines: Callable[[str, Any], list[str]]


def _line(name: str, plain: Any) -> list[str]:
    return [f"{name}={plain if isinstance(plain, str) else ','.join(plain)}"]


def _alternatives(name: str, plain: list[list[str]]) -> list[str]:
    return _line(name, ["|".join(names) for names in plain])


_TRAITS = Form(_traits, sorted, _line)


def _text(read: Callable[[str, Any], Any]) -> Form:
    return Form(read, str, _line)


#: The conditions of a group.
GROUP: dict[str, Form] = {
    "required": _TRAITS,
    "forbidden": _TRAITS,
    "any_of": Form(_sets(_traits, "a list of lists of traits"), _sorted_sets, _alternatives),
    "member_of": Form(
        _sets(_aggregates, "a list of aggregates, or of lists of those of which one is enough"),
        _sorted_sets,
        _alternatives,
    ),
    "not_member_of": Form(_excluded, sorted, _line),
    "in_tree": _text(lambda name, key: None if key is None else names.provider_key(key)),
    "traits_of": Form(
        _traits_of,
        _plain_traits_of,
        lambda name, plain: [f"{cls} with={','.join(traits)}" for cls, traits in plain.items()],
    ),
}
#: The conditions of a request as a whole.
REQUEST: dict[str, Form] = {
    "group_policy": _text(_choice(*POLICIES)),
    "same_subtree": Form(
        _sets(_suffixes, "a list of lists of suffixes"),
        _sorted_sets,
        lambda name, plain: [f"{name}={','.join(suffixes)}" for suffixes in plain],
    ),
    "root_required": _TRAITS,
    "root_forbidden": _TRAITS,
    "compatibility": _text(_choice(*COMPATIBILITIES)),
    "near": _text(lambda name, level: level),
    "near_policy": _text(_choice(*NEAR_POLICIES)),
}


def read(table: Mapping[str, Form], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored values of arguments.

    :raises InvalidInput: for an invalid value
    :raises TypeError: for an argument without a row in the table
    """
    for name in arguments:
        if name not in table:
            raise TypeError(f"unexpected keyword argument {name!r}, expected {', '.join(table)}")
    return {name: table[name].read(name, arguments[name]) for name in table if name in arguments}


def plain(table: Mapping[str, Form], owner: object) -> dict[str, Any]:
    """Return the conditions of a request or group as plain data, without those that are empty."""
    values = {name: getattr(owner, name) for name in table}
    return {name: table[name].plain(value) for name, value in values.items() if value}


def lines(table: Mapping[str, Form], owner: object) -> list[str]:
    """Return the conditions of a request or group as text."""
    return [
        line for name, data in plain(table, owner).items() for line in table[name].lines(name, data)
    ]


def characters(values: Iterable[Any]) -> int:
    """Return the number of characters in nested collections of names."""
    return sum(len(value) if isinstance(value, str) else characters(value) for value in values)


# --- contradictions -------------------------------------------------------------------------------


def check_traits(label: str, required: frozenset[str], forbidden: frozenset[str]) -> None:
    """Raise for an unknown trait, and for traits that are both required and forbidden."""
    known_traits(required)
    known_traits(forbidden)
    if both := sorted(required & forbidden):
        raise _invalid_request(f"{label}forbidden", both, "traits that are not required too")


def check_alternatives(
    name: str, sets: Iterable[frozenset[str]], excluded: frozenset[str], expected: str
) -> None:
    """Raise for alternatives that are all excluded."""
    for alternatives in sets:
        if not alternatives - excluded:
            raise _invalid_request(name, sorted(alternatives), f"at least one {expected}")


def refuse_as_request(label: str, error: InvalidInput) -> NoReturn:
    """Raise an error about an amount as an error about the request with that amount."""
    if not error.is_about("amount"):
        raise error
    raise _invalid_request(label + error.what, error.value, error.expected) from error
