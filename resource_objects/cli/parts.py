"""What a command may change of a provider that keeps a part of something: a NUMA cell, a device.

A part is kept as several classes, of which it shares some with its host, and one may use up
another: a network card its virtual functions. Setting the inventories of one provider leaves these
shares as they are; so a part may change as long as its classes stay, and what they use up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from resource_objects import exceptions

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers import Provider
    from resource_objects.resources import Inventories, Inventory, Resource

_HOW = (
    "cells are changed by host sync --numa, devices by host sync, "
    "others by Ledger.sync of their tree"
)
#: A card may have many functions: no more letters of it are told.
_LONGEST = 200


def check_parts(
    ledger: Ledger, provider: Provider, wanted: Inventories, *, amend: bool = False
) -> None:
    """Raise unless the parts that a provider keeps can become what is wanted.

    :param amend: whether what is not wanted stays
    :raises InvalidInventory: for a class that is within a part, or for a part that would come, go,
        or have other classes of its host
    """
    kept, given = _parts(provider.inventories), _parts(wanted)
    for kind, part in (kept | given).items():
        _check_within(kind, part, provider, wanted)
    gone = [] if amend else sorted(kind.name for kind in kept.keys() - given.keys())
    if gone:
        raise exceptions.InvalidInventory(
            f"{gone[0]} of {provider.name}", None, f"one, for it is a part of its host: {_HOW}"
        )
    for kind, part in given.items():
        has = {share.resource_class for share in provider.shares if share.of != provider.name}
        what = f"what {kind.name} of {provider.name} shares with its host"
        _check_same(what, has, _of_host(ledger, provider, part))
        own = {_said(*share) for share in _within(provider)}
        uses = {_said(*one) for each in part.parts() for one in each.within}
        _check_same(f"what {kind.name} of {provider.name} uses up of itself", own, uses)


def _check_same(what: str, has: set[str], wants: set[str]) -> None:
    """Refuse other shares than there are: setting inventories would not change them."""
    if has != wants:
        raise exceptions.InvalidInventory(
            what,
            ", ".join(sorted(wants)),
            f"{', '.join(sorted(has)) or 'nothing'}, as now: {_HOW}",
        )


def _within(provider: Provider) -> Iterator[tuple[str, int, str]]:
    for share in provider.shares:
        if share.of == provider.name:
            yield share.resource_class, share.factor, share.of_class


def _said(name: str, factor: int, of: str) -> str:
    return f"{factor} {of} for each {name}"


def _check_within(kind: Resource, part: Inventory, provider: Provider, wanted: Inventories) -> None:
    """Refuse classes of their own that a part has within it."""
    within = {record.resource_class for record in part.to_records()}
    for other, one in wanted.items():
        if other.name in within:
            said = f"{kind.name}={kind.format_inventory(part)}"
            raise exceptions.InvalidInventory(
                f"{other.name} of {provider.name}",
                other.format_inventory(one),
                f"nothing: it is part of {_short(said)}, which is said as a whole; {_HOW}",
            )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _parts(inventories: Inventories) -> dict[Resource, Inventory]:
    """Return the inventories that are parts of one over a whole tree."""
    return {kind: one for kind, one in inventories.items() if kind.is_located}


def _of_host(ledger: Ledger, provider: Provider, given: Inventory) -> set[str]:
    """Return the classes that a part would share with its host, as far as that counts them."""
    listed = ledger.providers(tree=provider.name)
    host = next(one for one in listed if one.uuid == one.root_uuid)
    if host.uuid == provider.uuid:
        return set()
    counted = {record.resource_class for record in host.records}
    return {name for part in given.parts() for name in part.of_host if name in counted}
