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
        if not colon or ":" in said:
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
        raise errors.bad(
            f"Invalid resource class in resources parameter: No such resource class {unknown[0]}."
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Traits:
    """Traits that are asked for: all of some, none of others, one of each set."""

    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    any_of: tuple[frozenset[str], ...] = ()

    def all(self) -> frozenset[str]:
        """Return all of them."""
        return self.required.union(self.forbidden, *self.any_of)

    def conflicts(self) -> list[list[str]]:
        """Return the required traits and sets of them that are forbidden, too."""
        required = [*({trait} for trait in self.required), *self.any_of]
        return [sorted(traits) for traits in required if traits <= self.forbidden]


def traits(asked: Asked, given: Iterable[str], sets: bool = True) -> Traits:
    """Return the traits of ``T1,!T2`` and ``in:T1,T2``; before 1.39 only the last value counts.

    Errors name the parameter ``required`` in each group, as those of Placement do.

    :param sets: whether ``in:`` is allowed at all
    """
    values = list(given)
    if not asked.since(39):
        values = values[-1:]
    form = "HW_CPU_X86_VMX,CUSTOM_MAGIC"
    expected = f"{_INVALID}: Expected 'required' parameter value of the form: "
    required: set[str] = set()
    forbidden: set[str] = set()
    any_of: list[frozenset[str]] = []
    for text in values:
        is_set = text.startswith("in:")
        if is_set and not (asked.since(39) and sets):
            raise errors.bad(
                f"{_INVALID}: The format 'in:{form}' only supported since microversion 1.39. "
                f"Got: {text}"
            )
        items = [item.strip() for item in text.removeprefix("in:").split(",")]
        if not all(item.lstrip("!") for item in items):
            example = f"in:{form}" if is_set else form
            if not is_set and asked.since(22):
                example = "HW_CPU_X86_VMX,!CUSTOM_MAGIC"
            raise errors.bad(f"{expected}{example}. Got an empty trait in: {text}")
        unwanted = {item.lstrip("!") for item in items if item.startswith("!")}
        if unwanted and is_set:
            raise errors.bad(
                f"{_INVALID}: The format 'in:{form}' does not support forbidden traits. Got: {text}"
            )
        if unwanted and not asked.since(22):
            raise errors.bad(f"{expected}{form}. Got: {text}")
        if is_set:
            any_of.append(frozenset(items))
            continue
        forbidden |= unwanted
        required |= {item for item in items if not item.startswith("!")}
    return Traits(frozenset(required), frozenset(forbidden), tuple(any_of))


def check_traits(ledger: Ledger, given: Iterable[str], cannot: str = "") -> None:
    """Reject traits that do not exist.

    :param cannot: how the text of the error begins
    """
    unknown = kept.unknown_traits(ledger, given)
    if unknown:
        raise errors.bad(f"{cannot}No such trait(s): {', '.join(unknown)}.")


@dataclasses.dataclass(frozen=True, slots=True)
class Aggregates:
    """Aggregates that are asked for: a member of one of each set, and of none of some."""

    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()


def aggregates(asked: Asked, given: Iterable[str], suffix: str = "") -> Aggregates:
    """Return the aggregates of ``a``, ``in:a,b``, ``!a`` and ``!in:a,b``.

    :param suffix: of the group; some of the errors name it, as those of Placement do
    """
    values = list(given)
    if len(values) > 1 and not asked.since(24):
        raise errors.bad(f"Multiple member_of{suffix} parameters are not supported")
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for text in values:
        is_forbidden = text.startswith("!")
        if is_forbidden and not asked.since(32):
            raise errors.bad(
                f"Forbidden member_of{suffix} parameters are not supported in the specified "
                "microversion"
            )
        rest = text.removeprefix("!")
        is_list = rest.startswith("in:")
        items = rest.removeprefix("in:").split(",")
        if len(items) > 1 and not is_list:
            raise errors.bad(
                f"Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' "
                f"keyword using the valid microversion. Got: {text}"
            )
        bad = next((item for item in items if not is_uuid(item)), None)
        if bad is not None:
            raise errors.bad(
                f"{_INVALID}: Expected 'member_of' parameter to contain valid UUID(s). Got: {bad}"
            )
        uuids = frozenset(uuid_text(item) for item in items)
        if is_forbidden:
            forbidden |= uuids
        else:
            required.append(uuids)
    return Aggregates(tuple(required), frozenset(forbidden))


def tree(text: str) -> str:
    """Return the uuid of a provider of a tree."""
    if not is_uuid(text.strip()):
        raise errors.bad(
            f"{_INVALID}: Expected 'in_tree' parameter to be a format of uuid. Got: {text}"
        )
    return uuid_text(text.strip())
