"""The tree of a machine of a site file, as objects: a slow and simple reference for ``Pattern``."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from resource_objects.providers import Provider
from resource_objects.providers.definition import inventories_of
from resource_objects.providers.pools import SHARES
from resource_objects.providers.provider import Share
from resource_objects.site.parts import ITSELF, MACHINE, PARENT, SitePart
from resource_objects.site.ranges import expand
from resource_objects.site.site import SiteMachine


def tree_of(machine: SiteMachine, stored: Provider | None, prune: bool) -> Provider:
    """Return the tree that a machine shall have, next to what is stored of it."""
    available = {} if stored is None else {item.name: item for item in stored.walk()}
    named = {machine.name, *_names_below(machine.part, machine.name)}

    def provider(part: SitePart, name: str, parent: str) -> Provider:
        before = available.get(name)
        saved = None if prune else before
        definition = part.definition()
        targets = {ITSELF: name, MACHINE: machine.name, PARENT: parent}
        inventories = inventories_of(definition.inventories, definition.kinds)
        shares: Iterable[Share] = [
            Share(
                resource_class=share.resource_class,
                of=targets.get(share.of_uuid) or next(expand(share.of_uuid, machine.name)),
                of_class=share.of_class,
                factor=share.factor,
            )
            for share in definition.shares
        ]
        traits, aggregates = definition.traits, definition.aggregates
        if saved is not None:
            if not part.has_inventories:
                inventories = saved.inventories
                shares = saved.shares if part.shares is None else shares
            traits = saved.traits if part.traits is None else traits
        if part is machine.part and machine.is_pool:
            traits |= {SHARES}
        if aggregates is None and prune:
            aggregates = frozenset()
        children = [
            provider(child, below, name)
            for child in part.providers_below
            for below in expand(child.name, name)
        ]
        if saved is not None:
            children += [_rest(item, named) for item in saved.children if item.name not in named]
        return Provider(
            name,
            inventories,
            traits=traits,
            uuid=None if before is None else before.uuid,
            generation=None if before is None else before.generation,
            children=children,
            aggregates=aggregates,
            shares=shares,
        )

    return provider(machine.part, machine.name, "")


def _rest(stored: Provider, named: Collection[str]) -> Provider:
    """Return a stored provider that the file does not name, without those that it does."""
    return Provider(
        stored.name,
        stored.inventories,
        traits=stored.traits,
        uuid=stored.uuid,
        generation=stored.generation,
        children=[_rest(item, named) for item in stored.children if item.name not in named],
        aggregates=stored.aggregates,
        shares=stored.shares,
    )


def _names_below(part: SitePart, name: str) -> Iterable[str]:
    for child in part.providers_below:
        for below in expand(child.name, name):
            yield below
            yield from _names_below(child, below)
