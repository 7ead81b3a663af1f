"""The conditions of a group on who gives, traits, aggregates, a tree: how they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from resource_objects import exceptions, fields, names
from resource_objects._ovo import fields as ovo_fields
from resource_objects.resources.traits import known_traits

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


class TreeField(fields.Field[str]):
    """A provider, by name or uuid, whose whole tree is meant."""

    def __init__(self, **kwargs: Any) -> None:
        check = fields.Checked(names.provider_key, "a provider name or uuid", "^.{1,200}$")
        super().__init__(check, **kwargs)


def traits(what: str, given: object) -> frozenset[str]:
    """Return traits, or raise for what is no list of known ones.

    >>> sorted(traits("required", ["CUSTOM_B", "CUSTOM_A"]))
    ['CUSTOM_A', 'CUSTOM_B']
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise exceptions.InvalidTrait(what, given, "a list of trait names")
    return known_traits(given)


def any_of(given: object) -> tuple[frozenset[str], ...]:
    """Return sets of traits of which one each is enough, each set once, in a fixed order.

    :raises InvalidRequest: for what is no list of lists, or a set of nothing
    """
    if not _is_list(given):
        raise exceptions.InvalidRequest("any_of", given, "a list of lists of traits")
    return _ordered(traits("any_of", some) for some in given)  # type: ignore[attr-defined]


def member_of(given: object) -> tuple[frozenset[str], ...]:
    """Return sets of aggregates of which one each is enough: names, or lists of names.

    >>> [sorted(some) for some in member_of(["rack1", ["fast", "large"]])]
    [['fast', 'large'], ['rack1']]
    """
    expected = "a list of aggregates, or of lists of those of which one is enough"
    if not _is_list(given):
        raise exceptions.InvalidRequest("member_of", given, expected)
    found = []
    for one in given:  # type: ignore[attr-defined]
        if not isinstance(one, str) and not _is_list(one):
            raise exceptions.InvalidRequest("member_of", one, expected)
        found.append(frozenset(map(names.aggregate_name, [one] if isinstance(one, str) else one)))
    return _ordered(found)


def aggregates(what: str, given: object) -> frozenset[str]:
    """Return aggregates, or raise for what is no list of them."""
    if not _is_list(given):
        raise exceptions.InvalidRequest(what, given, "a list of aggregates")
    return frozenset(map(names.aggregate_name, given))  # type: ignore[call-overload]


def traits_of(given: object) -> tuple[TraitsOf, ...]:
    """Return traits by class, from ``{class: [trait, "!forbidden trait"]}`` or as they are kept.

    >>> traits_of({"DISK_GB": ["CUSTOM_SSD", "!CUSTOM_SLOW"]})
    (('DISK_GB', frozenset({'CUSTOM_SSD'}), frozenset({'CUSTOM_SLOW'})),)
    """
    if given is None:
        return ()
    if isinstance(given, tuple):
        return given
    if not isinstance(given, Mapping):
        expected = "a mapping of resource classes to lists of traits"
        raise exceptions.InvalidRequest("traits_of", given, expected)
    return tuple(_of_class(name, some) for name, some in sorted(given.items()))


def _of_class(name: object, given: object) -> TraitsOf:
    if not _is_list(given) or not given:
        raise exceptions.InvalidRequest(f"traits_of {name}", given, "a list of traits")
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

    :raises InvalidRequest: naming those that are required and forbidden
    :raises UnknownTrait: naming one that is neither standard nor custom
    """
    for some in (required, forbidden, *any_of):
        known_traits(some)
    both = sorted(required & forbidden)
    if both:
        raise exceptions.InvalidRequest(
            f"{where}forbidden", both, "traits that are not required too"
        )
    for some in any_of:
        if not some - forbidden:
            raise exceptions.InvalidRequest(
                f"{where}any_of", sorted(some), "at least one trait that is not forbidden"
            )


def check_aggregates(
    where: str, member_of: Iterable[frozenset[str]], not_member_of: frozenset[str]
) -> None:
    """Raise for aggregates that contradict each other.

    :raises InvalidRequest: naming those that one has to be in and must not be in
    """
    for some in member_of:
        if not some - not_member_of:
            expected = "at least one aggregate that is not excluded"
            raise exceptions.InvalidRequest(f"{where}member_of", sorted(some), expected)


def _is_list(given: object) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)


def _ordered(given: Iterable[frozenset[str]]) -> tuple[frozenset[str], ...]:
    return tuple(sorted(dict.fromkeys(given), key=sorted))
