"""The words that the queries of lists and of candidates share: resources, traits, aggregates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from resource_objects.ledger import Ledger
from resource_objects.rest import errors, kept, schemas
from resource_objects.rest.asked import Asked, is_uuid, uuid_text

_INVALID = "Invalid query string parameters"
#: No amount that is asked for is larger, and nobody gives so much at once.
_MOST = schemas.MOST + 1


def resources(text: str) -> dict[str, int]:
    """Return the amounts of ``VCPU:1,MEMORY_MB:512``; of a class named twice the last counts."""
    form = (
        "Badly formed resources parameter. Expected resources query string parameter in form: "
        "?resources=VCPU:2,MEMORY_MB:1024. Got: "
    )
    if not text.strip():
        raise errors.bad(f"{form}empty string.")
    found: dict[str, int] = {}
    for item in text.split(","):
        name, colon, said = item.partition(":")
        if not colon:
            raise errors.bad(f"{form}{item}.")
        try:
            amount = int(said)
        except ValueError as error:
            raise errors.bad(
                f"Requested resource {name} expected positive integer amount. Got: {said}."
            ) from error
        if amount < 1:
            raise errors.bad(f"Requested resource {name} requires amount >= 1. Got: {amount}.")
        found[name] = min(amount, _MOST)
    return found


def is_too_much(amounts: Mapping[str, int]) -> bool:
    """Return whether some amount is more than anybody gives at once, whatever there is."""
    return any(amount > schemas.MOST for amount in amounts.values())


def check_classes(ledger: Ledger, given: Iterable[str]) -> None:
    """Refuse resource classes that there are not."""
    unknown = kept.unknown_classes(ledger, given)
    if unknown:
        raise errors.bad(f"Invalid resource class in resources parameter: {', '.join(unknown)}")


@dataclasses.dataclass(frozen=True, slots=True)
class Traits:
    """Traits that are asked for: all of some, none of others, one of each set."""

    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    any_of: tuple[frozenset[str], ...] = ()

    def all(self) -> frozenset[str]:
        """Return all of them."""
        return self.required.union(self.forbidden, *self.any_of)


def traits(asked: Asked, key: str, given: Iterable[str], sets: bool = True) -> Traits:
    """Return the traits of ``T1,!T2`` and ``in:T1,T2``; before 1.39 only the last value counts."""
    values = list(given)
    if not asked.since(39):
        values = values[-1:]
    example = "HW_CPU_X86_VMX,!CUSTOM_MAGIC" if asked.since(22) else "HW_CPU_X86_VMX,CUSTOM_MAGIC"
    required: set[str] = set()
    forbidden: set[str] = set()
    any_of: list[frozenset[str]] = []
    for text in values:
        refused = errors.bad(
            f"{_INVALID}: Expected '{key}' parameter value of the form: {example}. Got: {text}"
        )
        is_set = text.startswith("in:")
        if is_set and not asked.since(39):
            raise errors.bad(
                f"{_INVALID}: The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since "
                "microversion 1.39."
            )
        if is_set and not sets:
            raise refused
        items = [item.strip() for item in text.removeprefix("in:").split(",")]
        for item in items:
            is_forbidden = item.startswith("!")
            if not item.lstrip("!") or (is_forbidden and (is_set or not asked.since(22))):
                raise refused
        if is_set:
            any_of.append(frozenset(items))
            continue
        forbidden |= {item.lstrip("!") for item in items if item.startswith("!")}
        required |= {item for item in items if not item.startswith("!")}
    return Traits(frozenset(required), frozenset(forbidden), tuple(any_of))


def check_traits(ledger: Ledger, given: Iterable[str]) -> None:
    """Refuse traits that there are not."""
    unknown = kept.unknown_traits(ledger, given)
    if unknown:
        raise errors.bad(f"No such trait(s): {', '.join(unknown)}.")


@dataclasses.dataclass(frozen=True, slots=True)
class Aggregates:
    """Aggregates that are asked for: a member of one of each set, and of none of some."""

    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()


def aggregates(asked: Asked, key: str, given: Iterable[str]) -> Aggregates:
    """Return the aggregates of ``a``, ``in:a,b``, ``!a`` and ``!in:a,b``."""
    values = list(given)
    if len(values) > 1 and not asked.since(24):
        raise errors.bad("Multiple member_of parameters are not supported")
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for text in values:
        is_forbidden = text.startswith("!")
        if is_forbidden and not asked.since(32):
            raise errors.bad(
                f"Forbidden {key} parameters are not supported in the specified microversion"
            )
        rest = text.removeprefix("!")
        is_list = rest.startswith("in:")
        items = rest.removeprefix("in:").split(",")
        if len(items) > 1 and not is_list:
            raise errors.bad(
                f"Multiple values for '{key}' must be prefixed with the 'in:' or '!in:' keyword "
                "using the valid microversion."
            )
        if not all(is_uuid(item) for item in items):
            raise errors.bad(
                f"{_INVALID}: Expected '{key}' parameter to contain valid UUID(s). Got: {text}"
            )
        uuids = frozenset(uuid_text(item) for item in items)
        if is_forbidden:
            forbidden |= uuids
        else:
            required.append(uuids)
    return Aggregates(tuple(required), frozenset(forbidden))


def tree(key: str, said: str) -> str:
    """Return the uuid of a provider of a tree."""
    text = said.strip()
    if not is_uuid(text):
        raise errors.bad(f"Expected '{key}' parameter to be a format of uuid. Got: {text}")
    return uuid_text(text)
