"""Declaring: what providers are there, and what they have."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects import exceptions, names
from resource_objects.ledger.defining import (
    Comparison,
    DefineMethods,
    SyncResult,
    at_generation,
    roots_of,
)
from resource_objects.ledger.reading import by_key, located
from resource_objects.providers import DefinitionChanges, Provider, diff
from resource_objects.providers.columns import trees
from resource_objects.providers.definition import ProviderRemoval
from resource_objects.providers.edits import edited, moved, without
from resource_objects.providers.given import any_generation
from resource_objects.resources import Inventories
from resource_objects.resources.traits import known_traits


class DeclareMethods(DefineMethods):
    """The methods of a ledger that declare."""

    def sync(self, *roots: Provider, operation: str | None = None) -> SyncResult:
        """Make the kept trees look like ``roots``, all in one transaction.

        What a tree does not have any more goes, unless it is used. What consumers hold is not
        touched: shrinking below use is allowed and shows as a negative ``free``. Cost: one read
        of these trees and one write; the number of statements does not grow with theirs.

        :raises InvalidTree: if a root or a provider is named twice, or what providers keep in
            parts contradicts itself, as two cells with one CPU would, or two with one device
        :raises StaleDefinition: if a provider was read at an older generation
        :raises ProviderExists: if a name or uuid belongs to another tree
        :raises ProviderInUse: if a provider that would go has allocations; of devices, with who
            holds which
        :raises InventoryInUse: if an inventory that would go has allocations, or a unit that is
            held by name would be given out in another way: a dedicated CPU as a shared one, a
            device as one of another class or provider
        :raises CountedTwice: if a class would be counted in a host's tree that a pool gives to it
        """
        check_roots(roots)
        subject = _subject([root.name for root in roots])
        doing, done = self._begin(operation, "define", subject)
        if done is not None or not roots:
            return SyncResult.of(DefinitionChanges(root.name) for root in roots)
        return self._define(doing, "define", subject, lambda: self._compared(roots))

    def _compared(self, roots: Sequence[Provider]) -> Comparison:
        """Compare trees with what is kept of them."""
        keys = [root.uuid or root.name for root in roots]
        kept = trees(self.backend.read(*keys, allocations=False)) if keys else []
        pairs = _matched(kept, roots)
        return Comparison(kept, tuple(diff(before, wanted) for before, wanted in pairs))

    def remove(self, name: str, *, operation: str | None = None) -> SyncResult:
        """Remove a provider (by name or uuid) and all below it, in one transaction.

        :raises ProviderNotFound: if it is not there
        :raises ProviderInUse: if it or one below has allocations
        :raises InvalidTree: if what stays of its tree has shares of it
        """

        def change(root: Provider, provider: Provider) -> DefinitionChanges:
            if provider is not root:
                return diff(root, without(root, provider))
            gone = (
                ProviderRemoval(one.uuid or "", one.name, one.generation or 0)
                for one in reversed(list(root.walk()))
            )
            return DefinitionChanges(root.name, removals=tuple(gone))

        return self._edit("define", name, change, None, operation)

    def rename(
        self, name: str, new: str, *, generation: int | None = None, operation: str | None = None
    ) -> SyncResult:
        """Give a provider (by name or uuid) another name. What is held of it stays held.

        :param generation: the one it was read at; None demands none
        :raises ProviderNotFound: if it is not there
        :raises ProviderExists: if the new name is another provider's
        :raises StaleDefinition: if it was changed since it was read at ``generation``
        """
        to = names.provider_name(new)

        def change(root: Provider, provider: Provider) -> DefinitionChanges:
            if any(one.name == to and one is not provider for one in root.walk()):
                raise exceptions.ProviderExists(to)
            return diff(root, edited(root, {provider.uuid or "": {"name": to}}))

        return self._edit("rename", name, change, generation, operation)

    def set_inventories(
        self,
        name: str,
        inventories: Any,
        *,
        generation: int | None = None,
        operation: str | None = None,
    ) -> SyncResult:
        """Replace all that a provider (by name or uuid) has; the rest of its tree stays.

        :param inventories: :class:`Inventories`, or what these are made from
        :param generation: the one it was read at; None demands none
        :raises ProviderNotFound: if it is not there
        :raises InventoryInUse: if one that would go is used
        :raises InvalidTree: if there are shares of one that would go
        :raises CountedTwice: if a pool gives a class to its tree that it would count
        :raises StaleDefinition: if it was changed since it was read at ``generation``
        """
        wanted = Inventories(inventories)
        return self._set(name, {"inventories": wanted}, generation, operation)

    def set_traits(
        self,
        name: str,
        traits: Iterable[str],
        *,
        generation: int | None = None,
        operation: str | None = None,
    ) -> SyncResult:
        """Replace the traits of a provider (by name or uuid); errors as :meth:`set_inventories`.

        :raises UnknownTrait: for a name that is neither standard nor custom
        """
        return self._set(name, {"traits": known_traits(traits)}, generation, operation)

    def set_aggregates(
        self,
        name: str,
        aggregates: Iterable[str],
        *,
        generation: int | None = None,
        operation: str | None = None,
    ) -> SyncResult:
        """Replace the aggregates that a provider is in; errors as :meth:`set_inventories`.

        An aggregate that is not there is made.
        """
        if isinstance(aggregates, str) or not isinstance(aggregates, Iterable):
            raise exceptions.InvalidField("aggregates", aggregates, "a list of names")
        wanted = frozenset(names.aggregate_name(one) for one in aggregates)
        return self._set(name, {"aggregates": wanted}, generation, operation)

    def reparent(
        self,
        name: str,
        parent: str | None,
        *,
        generation: int | None = None,
        operation: str | None = None,
    ) -> SyncResult:
        """Move a provider, with all below it, below another one; None makes it a root.

        What is held of them stays held.

        :param name: name or uuid
        :param parent: name or uuid of the new parent, in whichever tree
        :param generation: the one it was read at; None demands none
        :raises ProviderNotFound: if one of them is not there
        :raises InvalidTree: if the parent is below it, a share would cross trees, or the tree
            would be too deep
        :raises StaleDefinition: if it was changed since it was read at ``generation``
        """
        key, read_at = names.provider_key(name), any_generation(generation)
        above = None if parent is None else names.provider_key(parent)
        doing, done = self._begin(operation, "reparent", key)
        if done is not None:
            return SyncResult(0, 0, 0)

        def compare() -> Comparison:
            kept = self._kept([key] if above is None else [key, above])
            _, provider = at_generation(kept, key, read_at)
            below = None if above is None else located(kept, above)[1]
            roots = roots_of(kept)
            found = moved(roots, provider, below)
            return Comparison(roots, (found.changes,), found.unchanged)

        return self._define(doing, "reparent", key, compare)

    # --- how all of them are done ---

    def _set(
        self, name: str, fields: dict[str, Any], generation: int | None, operation: str | None
    ) -> SyncResult:
        """Give one provider other fields."""

        def change(root: Provider, provider: Provider) -> DefinitionChanges:
            return diff(root, edited(root, {provider.uuid or "": fields}))

        return self._edit("define", name, change, generation, operation)


def check_roots(roots: Sequence[Provider]) -> None:
    """Raise ``InvalidTree`` unless these are providers, none of them in two trees."""
    for root in roots:
        if not isinstance(root, Provider):
            raise exceptions.InvalidTree("sync", root, "providers, each the root of a tree")
    seen = [root.name for root in roots]
    if len(set(seen)) != len(seen):
        raise exceptions.InvalidTree("sync", seen, "each root once")
    if len(roots) > 1:
        places: dict[str, str] = {}
        for root in roots:
            for provider in root.walk():
                for key in {provider.name, provider.uuid or provider.name}:
                    if places.setdefault(key, root.name) != root.name:
                        raise exceptions.InvalidTree("sync", key, "each provider in one tree")


def _matched(
    kept: Sequence[Provider], roots: Sequence[Provider]
) -> list[tuple[Provider | None, Provider]]:
    """Return each wanted tree with the kept one it stands for.

    :raises ProviderExists: if a root's name or uuid is that of a provider below another root
    :raises InvalidTree: if two stand for the same one
    """
    places = by_key(list(kept))
    found: list[tuple[Provider | None, Provider]] = []
    taken: dict[str | None, str] = {}
    for wanted in roots:
        before = places.get(wanted.uuid or wanted.name, (None, None))[0]
        if before is not None:
            if wanted.name != before.name and wanted.uuid != before.uuid:
                raise exceptions.ProviderExists(wanted.name, f"in the tree of {before.name}")
            other = taken.setdefault(before.uuid, wanted.name)
            if other != wanted.name:
                raise exceptions.InvalidTree("sync", [other, wanted.name], "each tree once")
        found.append((before, wanted))
    return found


def _subject(roots: Sequence[str]) -> str:
    """Return what a sync is about, in at most 255 characters."""
    if len(roots) == 1:
        return roots[0]
    digest = hashlib.sha256("\0".join(sorted(roots)).encode()).hexdigest()
    return f"{len(roots)} trees {digest[:32]}"
