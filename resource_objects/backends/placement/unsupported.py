"""The parts of a write that Placement cannot store, refused before the first request."""

from __future__ import annotations

from collections.abc import Iterator

from resource_objects import exceptions
from resource_objects.providers.backend import Capability
from resource_objects.providers.orders import Mode, NameAction, NameKind, Write

#: The reason for each unsupported capability, in one line for users.
REASONS: dict[Capability, str] = {
    Capability.UNITS: "an allocation in Placement is a number",
    Capability.TOPOLOGIES: "an inventory in Placement has figures only",
    Capability.SHARES: "an allocation in Placement is counted in one inventory",
    Capability.EXPIRY: "an allocation in Placement has no end",
    Capability.CONFIRMING: "an allocation in Placement has no state",
    Capability.CLAIM_IDS: "a consumer in Placement is identified by its uuid",
    Capability.REQUESTS: "no write is refused: a claim that is read again has no request",
    Capability.LIMITS: "Placement checks an allocation against the capacity only",
    Capability.UNCHANGED: "Placement writes allocations without a check of definitions",
    Capability.AGGREGATES_ALONE: "an aggregate in Placement is a uuid that some provider has",
    Capability.LEVELS: "an aggregate in Placement is only a uuid",
    Capability.RENAMED_TRAITS: "Placement renames resource classes only",
    Capability.CONSUMER_TYPES: "a type in Placement is A-Z, 0-9 and _, from microversion 1.38 on",
    Capability.ADOPTING: "capacity and unit rules apply to every allocation in Placement",
    Capability.REPORTS: "a provider in Placement has no time of its last report",
    Capability.DISABLING: "a trait in Placement has no reason and no end, and blocks no claim",
    Capability.SERVER_GROUPS: "a consumer in Placement is in no group",
    Capability.FEED: "changes in Placement are found by reading the list of providers",
    Capability.WAITING: "Placement has no queue",
    Capability.STATISTICS: "a provider in Placement has inventories, traits and aggregates only",
    Capability.USE_OVER_TIME: "Placement stores no past use",
}

#: The capabilities that are unsupported with every microversion.
UNSUPPORTED = frozenset(REASONS)


def refusal(capability: Capability, subject: str = "") -> exceptions.NotSupported:
    """Return the refusal of a capability.

    :param subject: the consumer, provider or name that needs it

    >>> print(refusal(Capability.FEED))
    a change feed cannot be stored by this ledger's backend: changes in Placement are found by ...
    """
    reason = REASONS.get(capability, "the microversion of this Placement is too old")
    detail = f"{reason} ({subject})" if subject else reason
    return exceptions.NotSupported("capability", capability.value, detail)


def required_by(write: Write) -> Iterator[tuple[Capability, str]]:
    """Yield the unsupported capabilities that a write needs, with their subjects."""
    parts = (
        (Capability.DISABLING, write.disabling),
        (Capability.ADOPTING, write.adopted),
        (Capability.REPORTS, write.reported),
        (Capability.SERVER_GROUPS, write.groups),
        (Capability.LIMITS, write.limits),
        (Capability.UNCHANGED, write.unchanged if write.definitions is None else ()),
    )
    yield from ((capability, write.subject) for capability, part in parts if part)
    for change in write.names:
        if change.action is NameAction.SET_LEVEL:
            yield Capability.LEVELS, change.name
        elif change.kind is NameKind.AGGREGATE:
            yield Capability.AGGREGATES_ALONE, change.name
        elif change.action is NameAction.RENAME and change.kind is NameKind.TRAIT:
            yield Capability.RENAMED_TRAITS, change.name
    for definition in () if write.definitions is None else write.definitions.definitions:
        for kind in definition.kinds:
            yield Capability.TOPOLOGIES, f"{kind.resource_class} of {definition.name}"
        for share in definition.shares:
            yield Capability.SHARES, f"{share.resource_class} of {definition.name}"
    for order in write.orders:
        required = (
            (Capability.EXPIRY, order.expires_at is not None or order.expires_in is not None),
            (Capability.CONFIRMING, order.mode is Mode.KEEP),
            (Capability.ADOPTING, order.aggregate or order.adopts),
            (Capability.SERVER_GROUPS, order.group is not None),
            (Capability.UNITS, any(use.units or use.released for use in order.uses)),
        )
        yield from ((capability, order.consumer) for capability, needs in required if needs)
