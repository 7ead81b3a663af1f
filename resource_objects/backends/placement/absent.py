"""What a Placement has no words for, refused by name before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator

from resource_objects import exceptions
from resource_objects.providers.capabilities import Capability
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
WHY: dict[Capability, str] = {
    Capability.UNITS: "an allocation there is a number",
    Capability.TOPOLOGIES: "an inventory there is figures alone",
    Capability.SHARES: "nothing there counts in two places",
    Capability.EXPIRY: "an allocation there has no end",
    Capability.CONFIRMING: "an allocation there has no state",
    Capability.CLAIM_IDS: "a consumer there is its uuid",
    Capability.REQUESTS: "nothing is refused: a claim read again has no request",
    Capability.LIMITS: "an allocation is checked there against capacity alone",
    Capability.UNCHANGED: "allocations are written there without looking at definitions",
    Capability.AGGREGATES_ALONE: "an aggregate there is a uuid that some provider has",
    Capability.LEVELS: "an aggregate there is a uuid and nothing else",
    Capability.RENAMED_TRAITS: "only a resource class can get another name there",
    Capability.CONSUMER_TYPES: "a type there is A-Z, 0-9 and _, from microversion 1.38 on",
    Capability.ADOPTING: "capacity and unit rules bind every allocation there",
    Capability.REPORTS: "a provider there does not say when it was looked at",
    Capability.DISABLING: "a trait there says so, without a reason or an end, and binds no claim",
    Capability.SERVER_GROUPS: "a consumer there is in no group",
    Capability.FEED: "what changed is found there by reading the list of providers",
    Capability.WAITING: "nobody there waits",
    Capability.STATISTICS: "a provider there has inventories, traits and aggregates",
    Capability.USE_OVER_TIME: "nothing there is kept of the past",
}

#: What it lacks whichever microversion it speaks.
LACKS = frozenset(WHY)


def refusal(ability: Capability, what: str = "") -> exceptions.NotSupported:
    """Return the refusal of what a Placement cannot keep.

    >>> print(refusal(Capability.FEED))
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


def _asked(write: Write) -> Iterator[tuple[Capability, str]]:
    """Yield what a write needs that is not there."""
    yield from (
        (ability, write.subject)
        for ability, asked in (
            (Capability.DISABLING, write.disabling),
            (Capability.ADOPTING, write.adopted),
            (Capability.REPORTS, write.reported),
            (Capability.SERVER_GROUPS, write.groups),
            (Capability.LIMITS, write.limits),
            (Capability.UNCHANGED, write.unchanged if write.definitions is None else ()),
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


def _of_name(change: NameChange) -> Iterator[tuple[Capability, str]]:
    if change.action is NameAction.SET_LEVEL:
        yield Capability.LEVELS, change.name
    elif change.kind is NameKind.AGGREGATE:
        yield Capability.AGGREGATES_ALONE, change.name
    elif change.action is NameAction.RENAME and change.kind is NameKind.TRAIT:
        yield Capability.RENAMED_TRAITS, change.name


def _of_definition(one: ProviderDefinition) -> Iterator[tuple[Capability, str]]:
    if one.kinds:
        yield Capability.TOPOLOGIES, f"{one.kinds[0].resource_class} of {one.name}"
    if one.shares:
        yield Capability.SHARES, f"{one.shares[0].resource_class} of {one.name}"


def _of_order(order: ConsumerOrder) -> Iterator[tuple[Capability, str]]:
    name = order.consumer
    if order.expires_at is not None or order.expires_in is not None:
        yield Capability.EXPIRY, name
    if order.mode is Mode.KEEP:
        yield Capability.CONFIRMING, name
    if order.aggregate or order.adopts:
        yield Capability.ADOPTING, name
    if order.group is not None:
        yield Capability.SERVER_GROUPS, name
    if any(use.units or use.released for use in order.uses):
        yield Capability.UNITS, name
