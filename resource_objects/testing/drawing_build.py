"""What is drawn, made in a ledger, whatever the ledger would refuse to have come about.

Two things can be in a ledger and not be asked of it in one step: more held than there is (after a
shrink), and a class that is counted in a tree and by a pool it is linked to (by two writes at the
same moment, see :meth:`Ledger.sync <resource_objects.ledger.Ledger.sync>`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from resource_objects import exceptions
from resource_objects.fields import MAX_FIGURE
from resource_objects.providers import Provider, diff
from resource_objects.providers.columns import trees
from resource_objects.providers.definition import together
from resource_objects.providers.orders import Operation, Write
from resource_objects.resources import IntegerInventory, Inventories, Inventory
from resource_objects.testing.drawing_words import Held

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


def build(ledger: Ledger, roots: Iterable[Provider], held: Iterable[Held]) -> None:
    """Make trees, and let consumers hold what they hold."""
    wanted = list(roots)
    uses = list(held)
    if not wanted:
        return
    roomy = [_roomy(root) for root in wanted] if uses else wanted
    _sync(ledger, roomy)
    by_consumer: dict[str, dict[str, dict[str, int]]] = {}
    for one in uses:
        taken = by_consumer.setdefault(one.consumer, {}).setdefault(one.provider, {})
        taken[one.resource_class] = taken.get(one.resource_class, 0) + one.amount
    for consumer, amounts in by_consumer.items():
        ledger.claim(consumer, amounts)
    if roomy != wanted:
        _sync(ledger, wanted)


def _sync(ledger: Ledger, roots: list[Provider]) -> None:
    try:
        ledger.sync(*roots)
    except exceptions.CountedTwice:
        kept = {
            root.name: root for root in trees(ledger.backend.read(*(one.name for one in roots)))
        }
        changes = together("drawing", (diff(kept.get(one.name), one) for one in roots))
        ledger.backend.commit(Write(Operation(), "define", "drawing", changes))


def _roomy(provider: Provider) -> Provider:
    """Return a tree like this one of which anything may be claimed."""
    copied = provider.obj_clone()
    copied.update(
        inventories=Inventories({n: _most(one) for n, one in provider.inventories.by_name()}),
        children=[_roomy(one) for one in provider.children],
    )
    return copied


def _most(inventory: Inventory) -> Inventory:
    if not isinstance(inventory, IntegerInventory):
        return inventory
    return IntegerInventory(MAX_FIGURE, resource_class=inventory.resource_class)
