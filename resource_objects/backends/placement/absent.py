"""What a Placement has no words for, refused by name before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator

from resource_objects import exceptions
from resource_objects.providers.abilities import Ability
from resource_objects.providers.definition import ProviderDefinition
from resource_objects.providers.orders import (
    ConsumerOrder,
    Mode,
    NameAction,
    NameChange,
    NameKind,
    Write,
)

#: Why, by what is lacking, in one line for people.
WHY: dict[Ability, str] = {
    Ability.UNITS: "an allocation there is a number",
    Ability.TOPOLOGIES: "an inventory there is figures alone",
    Ability.SHARES: "nothing there counts in two places",
    Ability.EXPIRY: "an allocation there has no end",
    Ability.CONFIRMING: "an allocation there has no state",
    Ability.CLAIM_IDS: "a consumer there is its uuid",
    Ability.REQUESTS: "nothing is refused: a claim read again has no request",
    Ability.LIMITS: "an allocation is checked there against capacity alone",
    Ability.UNCHANGED: "allocations are written there without looking at definitions",
    Ability.AGGREGATES_ALONE: "an aggregate there is a uuid that some provider has",
    Ability.LEVELS: "an aggregate there is a uuid and nothing else",
    Ability.RENAMED_TRAITS: "only a resource class can get another name there",
    Ability.CONSUMER_TYPES: "a type there is A-Z, 0-9 and _, from microversion 1.38 on",
    Ability.ADOPTING: "capacity and unit rules bind every allocation there",
    Ability.REPORTS: "a provider there does not say when it was looked at",
    Ability.DISABLING: "a trait there says so, without a reason or an end, and binds no claim",
    Ability.SERVER_GROUPS: "a consumer there is in no group",
    Ability.FEED: "what changed is found there by reading the list of providers",
    Ability.WAITING: "nobody there waits",
    Ability.STATISTICS: "a provider there has inventories, traits and aggregates",
    Ability.USE_OVER_TIME: "nothing there is kept of the past",
}

#: What it lacks whichever microversion it speaks.
LACKS = frozenset(WHY)


def refusal(ability: Ability, what: str = "") -> exceptions.NotSupported:
    """Return the refusal of what a Placement cannot keep.

    >>> print(refusal(Ability.FEED))
    a change feed cannot be kept by this ledger's backend: what changed is found there by ...
    """
    why = WHY.get(ability, "an older Placement")
    return exceptions.NotSupported("capability", ability.value, f"{why} ({what})" if what else why)


def check(write: Write) -> None:
    """Raise for what a write asks that cannot be kept.

    :raises NotSupported: naming it
    """
    for ability, what in _asked(write):
        raise refusal(ability, what)


def _asked(write: Write) -> Iterator[tuple[Ability, str]]:
    """Yield what a write needs that is not there."""
    yield from (
        (ability, write.subject)
        for ability, asked in (
            (Ability.DISABLING, write.disabling),
            (Ability.ADOPTING, write.adopted),
            (Ability.REPORTS, write.reported),
            (Ability.SERVER_GROUPS, write.groups),
            (Ability.LIMITS, write.limits),
            (Ability.UNCHANGED, write.unchanged if write.definitions is None else ()),
        )
        if asked
    )
    for change in write.names:
        yield from _of_name(change)
    changes = write.definitions
    if changes is not None:
        for one in (*changes.creates, *(update.definition for update in changes.updates)):
            yield from _of_definition(one)
    for order in write.orders:
        yield from _of_order(order)


def _of_name(change: NameChange) -> Iterator[tuple[Ability, str]]:
    if change.action is NameAction.SET_LEVEL:
        yield Ability.LEVELS, change.name
    elif change.kind is NameKind.AGGREGATE:
        yield Ability.AGGREGATES_ALONE, change.name
    elif change.action is NameAction.RENAME and change.kind is NameKind.TRAIT:
        yield Ability.RENAMED_TRAITS, change.name


def _of_definition(one: ProviderDefinition) -> Iterator[tuple[Ability, str]]:
    if one.kinds:
        yield Ability.TOPOLOGIES, f"{one.kinds[0].resource_class} of {one.name}"
    if one.shares:
        yield Ability.SHARES, f"{one.shares[0].resource_class} of {one.name}"


def _of_order(order: ConsumerOrder) -> Iterator[tuple[Ability, str]]:
    name = order.consumer
    if order.expires_at is not None or order.expires_in is not None:
        yield Ability.EXPIRY, name
    if order.mode is Mode.KEEP:
        yield Ability.CONFIRMING, name
    if order.aggregate or order.adopts:
        yield Ability.ADOPTING, name
    if order.group is not None:
        yield Ability.SERVER_GROUPS, name
    if any(use.units for use in order.uses):
        yield Ability.UNITS, name
