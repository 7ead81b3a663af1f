"""Whether what a plan says of definitions can be, given what is kept. Pure.

A plan that was compared with what is kept says only what can be; one from a file that somebody
edited may say anything. Here it is held to what :func:`~resource_objects.providers.definition.diff`
holds a tree to: changes lead to the definitions they say, providers form trees, and shares keep the
rules of :meth:`Provider.check_shares <resource_objects.providers.provider.Provider.check_shares>`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

from resource_objects import exceptions, names
from resource_objects.fields import MAX_FIGURE
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)
from resource_objects.providers.provider import MAX_DEPTH
from resource_objects.providers.sharing import check_shares
from resource_objects.resources.traits import known_traits

#: Definitions by uuid, whole trees of them.
Definitions: TypeAlias = Mapping[str, ProviderDefinition]


def check_plan(changes: DefinitionChanges, had: Definitions, wanted: Definitions) -> None:
    """Raise unless a plan leads to trees that can be. Cost: linear in them.

    :param had: what is kept of the trees concerned
    :param wanted: what is there when all is done, every parent among them
    :raises InvalidPlan: naming the provider, and what is wrong with it
    :raises InvalidInput: as :func:`check_readable`
    """
    for definition in (*changes.creates, *(update.definition for update in changes.updates)):
        check_readable(definition)
    for update in changes.updates:
        _check_update(update, had[update.definition.uuid])
    roots = _roots(wanted)
    _check_order(changes, had)
    _check_shares(wanted, roots)


def _check_order(changes: DefinitionChanges, had: Definitions) -> None:
    """Raise unless parents are made before what is below them, and go after it."""
    made = {created.uuid for created in changes.creates}
    for created in changes.creates:
        if created.parent_uuid in made and created.parent_uuid != created.uuid:
            raise exceptions.InvalidPlan(created.name, "its parent is made after it")
        made.discard(created.uuid)
    gone: set[str | None] = set()
    for removal in changes.removals:
        if had[removal.uuid].parent_uuid in gone:
            raise exceptions.InvalidPlan(removal.name, "its parent would go before it")
        gone.add(removal.uuid)


def check_readable(definition: ProviderDefinition) -> None:
    """Raise unless a provider can be read again once it is kept.

    :raises InvalidName: if its name is a uuid, and not its own
    :raises UnknownTrait: if a trait is neither standard nor custom
    :raises InvalidField: if the factor of a share is out of range
    """
    name = definition.name
    if names.is_uuid(name) and names.uuid_text(name) != definition.uuid:
        raise exceptions.InvalidName("provider name", name, "no uuid but its own")
    known_traits(definition.traits)
    for share in definition.shares:
        if type(share.factor) is not int or not 1 <= share.factor <= MAX_FIGURE:
            raise exceptions.InvalidField(
                f"share factor of {name}", share.factor, f"an integer from 1 to {MAX_FIGURE}"
            )


def _check_update(update: ProviderUpdate, had: ProviderDefinition) -> None:
    """Raise unless a change leads from what is kept to the definition it says."""
    wants = update.definition
    if wants.aggregates is None:
        wants = dataclasses.replace(wants, aggregates=had.aggregates)
    told = had
    if not update.only_children:
        kept = {record.resource_class: record for record in had.inventories}
        kept |= {record.resource_class: record for record in update.changed}
        told = dataclasses.replace(
            wants,
            inventories=tuple(kept[name] for name in kept if name not in update.removed),
            traits=had.traits - update.traits_removed | update.traits_added,
            aggregates=(had.aggregates or frozenset()) - update.aggregates_removed
            | update.aggregates_added,
            shares=wants.shares if update.shares_changed else had.shares,
            kinds=wants.kinds if update.kinds_changed else had.kinds,
        )
    if _unordered(told) != _unordered(wants):
        raise exceptions.InvalidPlan(
            wants.name, "what it says to change does not lead to what it says shall be"
        )


def _unordered(one: ProviderDefinition) -> tuple[object, ...]:
    lists = frozenset(one.inventories), frozenset(one.shares), frozenset(one.kinds)
    return one.uuid, one.name, one.parent_uuid, one.traits, one.aggregates, *lists


def _roots(wanted: Definitions) -> dict[str, str]:
    """Return the root of each provider, or raise if there is none, or it is too far up."""
    found: dict[str, tuple[str, int]] = {}  # with the levels above
    for uuid, definition in wanted.items():
        way: list[str] = []
        at: str | None = uuid
        seen: set[str] = set()
        while at is not None and at not in found:
            if at in seen:
                raise exceptions.InvalidPlan(definition.name, "it would be below itself")
            seen.add(at)
            way.append(at)
            at = wanted[at].parent_uuid
        root, depth = found[at] if at is not None else (way[-1], -1)
        for one in reversed(way):
            depth += 1
            found[one] = root, depth
        if depth > MAX_DEPTH:
            raise exceptions.InvalidPlan(
                definition.name, f"it would be {depth} levels deep, of at most {MAX_DEPTH}"
            )
    return {uuid: root for uuid, (root, _) in found.items()}


def _check_shares(wanted: Definitions, root_of: Mapping[str, str]) -> None:
    counted = {(uuid, one.resource_class) for uuid, d in wanted.items() for one in d.inventories}
    shares = [
        ((uuid, share.resource_class), (share.of_uuid, share.of_class))
        for uuid, definition in wanted.items()
        for share in definition.shares
    ]
    for sharer, target in shares:
        for place in (sharer, target):
            if place not in counted:
                raise exceptions.InvalidPlan(
                    wanted[sharer[0]].name, f"a share of {place[1]}, which is not counted there"
                )
    try:
        check_shares(shares, root_of, {uuid: one.name for uuid, one in wanted.items()})
    except exceptions.StaleDefinition as error:  # as a writer finds it; here the plan says so
        raise exceptions.InvalidPlan(error.subject, error.detail) from None
