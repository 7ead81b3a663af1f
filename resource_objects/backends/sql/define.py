"""Definitions in: creates, updates and removes the providers of trees in one transaction.

The order avoids every conflict that is only of the order's making: names that are given up are
freed first, since two providers may swap theirs; then parents are made before children, everybody
is moved, and what goes goes last, after the orders of the same write.

Locks: all providers of the write with the roots of their trees (``providers``), those that must be
unchanged or report included; then inventories (``figures``), those of its orders included. Each in
one statement, by number, and claims keep the same order. A provider or inventory that somebody adds
to what a write is about after its look is locked later, out of order: two who then wait for each
other in a circle are parted by the server, and one of them tries again (``retry``).

A thousand trees take as many statements as one: those of a level of their providers are made by
one, and what they have likewise.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import kinds, members, shares
from resource_objects.backends.sql.classes import Catalogue
from resource_objects.backends.sql.figures import Figures
from resource_objects.backends.sql.providers import Providers
from resource_objects.backends.sql.shares import Shares
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ShareRecord,
)


class Definition:
    """One run of changes: :meth:`lock`, :meth:`apply`, the orders of the write, :meth:`remove`.

    :param now: when, in UTC
    """

    def __init__(
        self,
        connection: Connection,
        catalogue: Catalogue,
        changes: DefinitionChanges,
        now: datetime.datetime,
    ) -> None:
        self._connection = connection
        self._catalogue = catalogue
        self._changes = changes
        self._providers = Providers(connection, now)
        self._figures = Figures(connection)
        self._shares = Shares(connection)

    def lock(self, others: Iterable[str] = ()) -> Mapping[str, Any]:
        """Lock every provider involved, and others, by uuid; return those that are there."""
        uuids = {*others, *(removal.uuid for removal in self._changes.removals)}
        for definition in self._definitions():
            uuids |= {definition.uuid, definition.parent_uuid or definition.uuid}
        uuids |= {share.of_uuid for _, share in self._wanted_shares()}
        self._providers.lock(uuids)
        return self._providers.kept

    def apply(self, others: Collection[int] = ()) -> None:
        """Create and update providers and inventories (see the contract).

        Cost: some 20 statements, and three for each level of providers that are made.

        :param others: numbers of inventories to lock with those of the definitions
        """
        self._check()
        self._check_names()
        self._providers.make(self._changes.creates)
        self._providers.update([update.definition for update in self._changes.updates])
        self._set_inventories(others)
        self._set_members()
        self._set_kinds()

    def remove(self) -> None:
        """Remove inventories and providers that go, which nobody may use (see the contract)."""
        self._shares.remove(self._figures.going())
        writes = self._figures.remove()
        gone = {removal.uuid: removal.name for removal in self._changes.removals}
        numbers = sorted(self._providers.numbers[uuid] for uuid in gone)
        staying = {number: count for number, count in writes.items() if number not in set(numbers)}
        self._providers.count_writes(staying)
        if gone:
            members.forget(self._connection, numbers)
            kinds.drop(self._connection, numbers)
            self._providers.remove(gone)
        shares.check_trees(self._connection, self._reshared())

    def touched(self) -> dict[str, set[int]]:
        """Return the providers that are changed, by uuid, with the roots of their trees.

        Of one that was moved to another tree both roots. To be asked after :meth:`apply`.
        """
        providers = self._providers
        named = {definition.uuid for definition in self._definitions()}
        named |= {removal.uuid for removal in self._changes.removals}
        named |= providers.left.keys()
        named |= {
            uuid for uuid, number in providers.numbers.items() if number in self._shares.recounted
        }
        return {
            uuid: {providers.roots[uuid], providers.left.get(uuid, providers.roots[uuid])}
            for uuid in named
        }

    # --- looking ---

    def _definitions(self) -> Iterable[ProviderDefinition]:
        yield from self._changes.creates
        for update in self._changes.updates:
            yield update.definition

    def _wanted_shares(self) -> Iterable[tuple[ProviderDefinition, ShareRecord]]:
        """Yield what is shared by providers whose shares are said."""
        for created in self._changes.creates:
            yield from ((created, share) for share in created.shares)
        for update in self._changes.updates:
            if update.shares_changed:
                yield from ((update.definition, share) for share in update.definition.shares)

    def _reshared(self) -> set[int]:
        """Return the roots of the trees whose shares change, or are torn from others."""
        providers = self._providers
        changed = {created.uuid for created in self._changes.creates if created.shares}
        changed |= {u.definition.uuid for u in self._changes.updates if u.shares_changed}
        found = {providers.roots[uuid] for uuid in changed | providers.left.keys()}
        return found | set(providers.left.values())

    def _check(self) -> None:
        """Refuse what is not as it was read, before the names that the same write changes."""
        for update in self._changes.updates:
            self._check_kept(update.definition.uuid, update.definition.name, update.generation)
        for removal in self._changes.removals:
            self._check_kept(removal.uuid, removal.name, removal.generation)
        known = set(self._providers.kept)
        for created in self._changes.creates:
            if created.uuid in known:
                raise exceptions.ProviderExists(created.uuid)
            known.add(created.uuid)
        for definition in self._definitions():
            if definition.parent_uuid is not None and definition.parent_uuid not in known:
                raise exceptions.StaleDefinition(definition.name, "its parent is gone")

    def _check_kept(self, uuid: str, name: str, generation: int) -> None:
        kept = self._providers.kept.get(uuid)
        if kept is None:
            raise exceptions.StaleDefinition(name, "it is gone")
        if kept.generation != generation:
            raise exceptions.StaleDefinition(
                name, f"read at generation {generation}, now {kept.generation}"
            )

    def _check_names(self) -> None:
        wanted: dict[str, str] = {}
        for definition in self._definitions():
            if wanted.setdefault(definition.name, definition.uuid) != definition.uuid:
                raise exceptions.ProviderExists(definition.name)
        gives_up = {update.definition.uuid for update in self._changes.updates}
        gives_up |= {removal.uuid for removal in self._changes.removals}
        self._providers.free_names(wanted, gives_up)

    # --- what they have ---

    def _set_inventories(self, others: Collection[int]) -> None:
        numbers = self._providers.numbers
        classes = self._number_classes()
        for created in self._changes.creates:
            for record in created.inventories:
                self._figures.put(numbers[created.uuid], classes[record.resource_class], record)
        for update in self._changes.updates:
            number, name = numbers[update.definition.uuid], self._name(update.definition.uuid)
            for record in update.changed:
                self._figures.put(number, classes[record.resource_class], record)
            for gone in update.removed:
                unless = exceptions.InventoryInUse(name, gone)
                self._figures.drop(number, classes[gone], unless)
        for removal in self._changes.removals:
            self._figures.drop_all(
                numbers[removal.uuid], exceptions.ProviderInUse(self._name(removal.uuid))
            )
        self._set_shares(classes, others)

    def _name(self, uuid: str) -> str:
        return str(self._providers.kept[uuid].name)

    def _number_classes(self) -> Mapping[str, int]:
        """Return the numbers of all classes involved; those of new inventories are made."""
        made = {record.resource_class for c in self._changes.creates for record in c.inventories}
        made |= {record.resource_class for u in self._changes.updates for record in u.changed}
        there = {name: u.definition.name for u in self._changes.updates for name in u.removed}
        for definition, share in self._wanted_shares():
            there.update(dict.fromkeys((share.resource_class, share.of_class), definition.name))
        found = self._catalogue.classes.ensure(self._connection, made)
        found |= self._catalogue.classes.find(self._connection, there.keys() - found.keys())
        for name, provider in there.items():
            if name not in found:
                raise exceptions.StaleDefinition(provider, f"{name} is gone")
        return found

    def _set_shares(self, classes: Mapping[str, int], others: Collection[int]) -> None:
        """Write inventories, with what is shared of them."""
        numbers = self._providers.numbers
        for definition, share in self._wanted_shares():
            stale = exceptions.StaleDefinition(definition.name, f"{share.of_class} is gone")
            if share.of_uuid not in numbers:
                raise stale
            self._shares.want(
                (numbers[definition.uuid], classes[share.resource_class]),
                (numbers[share.of_uuid], classes[share.of_class]),
                share.factor,
                stale,
            )
        changed = [update for update in self._changes.updates if update.shares_changed]
        self._shares.find([numbers[update.definition.uuid] for update in changed])
        made = [numbers[created.uuid] for created in self._changes.creates]
        self._figures.lock(self._shares.ends(), made, others)
        self._shares.check(self._figures)
        self._figures.write(self._shares.counts())
        self._shares.write(self._figures)

    def _set_members(self) -> None:
        numbers, changes = self._providers.numbers, self._changes
        members.set_traits(self._connection, self._catalogue.traits, changes, numbers)
        members.set_aggregates(self._connection, self._catalogue.aggregates, changes, numbers)

    def _set_kinds(self) -> None:
        numbers = self._providers.numbers
        changed = [u.definition for u in self._changes.updates if u.kinds_changed]
        kinds.drop(self._connection, sorted(numbers[definition.uuid] for definition in changed))
        wanted = {numbers[d.uuid]: d.kinds for d in (*self._changes.creates, *changed)}
        kinds.insert(self._connection, wanted)
