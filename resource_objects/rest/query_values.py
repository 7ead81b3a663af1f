"""Query values that lists of providers and candidates share: resources, traits, aggregates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from resource_objects.ledger import Ledger
from resource_objects.rest import errors, schemas, translation
from resource_objects.rest.request import ClientRequest, is_uuid, uuid_text

_INVALID = "Invalid query string parameters"
#: Larger amounts are replaced by this one, which no inventory provides.
_LARGEST = schemas.MAX_INTEGER + 1


def parse_resources(text: str) -> dict[str, int]:
    """Return the amounts of ``VCPU:1,MEMORY_MB:512``; the last amount of a repeated class."""
    form = (
        "Badly formed resources parameter. Expected resources query string parameter in form: "
        "?resources=VCPU:2,MEMORY_MB:1024. Got: "
    )
    if not text.strip():
        raise errors.bad(f"{form}empty string.")
    amounts: dict[str, int] = {}
    for item in text.split(","):
        name, colon, number = item.partition(":")
        if not colon or ":" in number:
            raise errors.bad(f"{form}{item}.")
        try:
            amount = int(number)
        except ValueError as error:
            raise errors.bad(
                f"Requested resource {name} expected positive integer amount. Got: {number}."
            ) from error
        if amount < 1:
            raise errors.bad(f"Requested resource {name} requires amount >= 1. Got: {amount}.")
        amounts[name] = min(amount, _LARGEST)
    return amounts


def exceed_all_inventories(amounts: Mapping[str, int]) -> bool:
    """Return True if an amount is larger than any inventory can provide at once."""
    return any(amount > schemas.MAX_INTEGER for amount in amounts.values())


def check_classes(ledger: Ledger, classes: Iterable[str]) -> None:
    """Raise a 400 if a resource class does not exist."""
    unknown = translation.unknown_classes(ledger, classes)
    if unknown:
        raise errors.bad(
            f"Invalid resource class in resources parameter: No such resource class {unknown[0]}."
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Traits:
    """Requested traits: required ones, forbidden ones, and sets of which one trait is enough."""

    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    any_of: tuple[frozenset[str], ...] = ()

    def all(self) -> frozenset[str]:
        """Return all named traits."""
        return self.required.union(self.forbidden, *self.any_of)

    def conflicts(self) -> list[list[str]]:
        """Return the required traits, and sets of them, that are also forbidden."""
        required = [*({trait} for trait in self.required), *self.any_of]
        return [sorted(traits) for traits in required if traits <= self.forbidden]


def parse_traits(
    request: ClientRequest, texts: Iterable[str], *, allows_sets: bool = True
) -> Traits:
    """Return the traits of ``T1,!T2`` and ``in:T1,T2``; before 1.39 those of the last value.

    Errors name the parameter ``required`` for every group, as those of Placement do.

    :param allows_sets: whether ``in:`` is allowed at all
    """
    values = list(texts)
    if not request.since(39):
        values = values[-1:]
    form = "HW_CPU_X86_VMX,CUSTOM_MAGIC"
    expected = f"{_INVALID}: Expected 'required' parameter value of the form: "
    required: set[str] = set()
    forbidden: set[str] = set()
    any_of: list[frozenset[str]] = []
    for text in values:
        is_set = text.startswith("in:")
        if is_set and not (request.since(39) and allows_sets):
            raise errors.bad(
                f"{_INVALID}: The format 'in:{form}' only supported since microversion 1.39. "
                f"Got: {text}"
            )
        items = [item.strip() for item in text.removeprefix("in:").split(",")]
        if not all(item.lstrip("!") for item in items):
            example = f"in:{form}" if is_set else form
            if not is_set and request.since(22):
                example = "HW_CPU_X86_VMX,!CUSTOM_MAGIC"
            raise errors.bad(f"{expected}{example}. Got an empty trait in: {text}")
        excluded = {item.lstrip("!") for item in items if item.startswith("!")}
        if excluded and is_set:
            raise errors.bad(
                f"{_INVALID}: The format 'in:{form}' does not support forbidden traits. Got: {text}"
            )
        if excluded and not request.since(22):
            raise errors.bad(f"{expected}{form}. Got: {text}")
        if is_set:
            any_of.append(frozenset(items))
            continue
        forbidden |= excluded
        required |= {item for item in items if not item.startswith("!")}
    return Traits(frozenset(required), frozenset(forbidden), tuple(any_of))


def check_traits(ledger: Ledger, traits: Iterable[str], context: str = "") -> None:
    """Raise a 400 if a trait does not exist.

    :param context: the beginning of the message
    """
    unknown = translation.unknown_traits(ledger, traits)
    if unknown:
        raise errors.bad(f"{context}No such trait(s): {', '.join(unknown)}.")


@dataclasses.dataclass(frozen=True, slots=True)
class Aggregates:
    """Requested aggregates: one of each required set, and none of the forbidden ones."""

    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()


def parse_aggregates(request: ClientRequest, texts: Iterable[str], suffix: str = "") -> Aggregates:
    """Return the aggregates of ``a``, ``in:a,b``, ``!a`` and ``!in:a,b``.

    :param suffix: of the group; some errors contain it, as those of Placement do
    """
    values = list(texts)
    if len(values) > 1 and not request.since(24):
        raise errors.bad(f"Multiple member_of{suffix} parameters are not supported")
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for text in values:
        is_forbidden = text.startswith("!")
        if is_forbidden and not request.since(32):
            raise errors.bad(
                f"Forbidden member_of{suffix} parameters are not supported in the specified "
                "microversion"
            )
        value = text.removeprefix("!")
        is_list = value.startswith("in:")
        items = value.removeprefix("in:").split(",")
        if len(items) > 1 and not is_list:
            raise errors.bad(
                f"Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' "
                f"keyword using the valid microversion. Got: {text}"
            )
        invalid = next((item for item in items if not is_uuid(item)), None)
        if invalid is not None:
            raise errors.bad(
                f"{_INVALID}: Expected 'member_of' parameter to contain valid UUID(s). Got: "
                f"{invalid}"
            )
        uuids = frozenset(uuid_text(item) for item in items)
        if is_forbidden:
            forbidden |= uuids
        else:
            required.append(uuids)
    return Aggregates(tuple(required), frozenset(forbidden))


def parse_in_tree(text: str) -> str:
    """Return the uuid of the provider whose tree is requested."""
    if not is_uuid(text.strip()):
        raise errors.bad(
            f"{_INVALID}: Expected 'in_tree' parameter to be a format of uuid. Got: {text}"
        )
    return uuid_text(text.strip())
