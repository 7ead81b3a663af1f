"""Definitions in: creates, updates and removes the providers of a tree in one transaction.

The order avoids every conflict that is only of the order's making: names that are given up are
freed first, since two providers may swap theirs; then parents are made before children, everybody
is moved, and what goes goes last.

Locks: the providers and the roots of their trees by number, then inventories as claims take them
(``places``). So the changes of one tree come one after the other, and a claim, which locks no
provider, never waits for one of them in a circle.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import figures, schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.classes import Catalogue
from resource_objects.backends.sql.operations import Write
from resource_objects.backends.sql.retry import Transient
from resource_objects.providers.definition import DefinitionChanges, ProviderDefinition

_providers = schema.resource_providers.c
_traits = schema.resource_provider_traits.c


def _in(column: sa.Column[Any], name: str) -> sa.ColumnElement[bool]:
    return column.in_(sa.bindparam(name, expanding=True))


_LOCATE = sa.select(_providers.id, _providers.root_id).where(_in(_providers.uuid, "uuids"))
_LOCK = (
    sa.select(
        _providers.id,
        _providers.uuid,
        _providers.name,
        _providers.generation,
        _providers.parent_id,
        _providers.root_id,
    )
    .where(_in(_providers.id, "ids"))
    .order_by(_providers.id)
    .with_for_update()
)
_OWNERS = sa.select(_providers.uuid, _providers.name).where(_in(_providers.name, "names"))
_NUMBERS = sa.select(_providers.uuid, _providers.id).where(_in(_providers.uuid, "uuids"))
_IN_TREES = sa.select(
    _providers.id, _providers.name, _providers.parent_id, _providers.root_id
).where(_in(_providers.root_id, "roots"))
_CHILDREN = sa.select(_providers.parent_id, _providers.id).where(_in(_providers.parent_id, "ids"))

_BY_NUMBER = _providers.id == sa.bindparam("number")
_MAKE = sa.insert(schema.resource_providers)
_RENAME = sa.update(schema.resource_providers).where(_BY_NUMBER).values(name=sa.bindparam("to"))
_SET_ROOT = (
    sa.update(schema.resource_providers).where(_BY_NUMBER).values(root_id=sa.bindparam("to"))
)
_UPDATE = (
    sa.update(schema.resource_providers)
    .where(_BY_NUMBER, _providers.generation == sa.bindparam("was"))
    .values(
        name=sa.bindparam("to_name"),
        parent_id=sa.bindparam("to_parent"),
        generation=sa.bindparam("was") + 1,
        updated_at=sa.bindparam("at"),
    )
)
_UNLINK = (
    sa.update(schema.resource_providers)
    .where(_in(_providers.id, "ids"))
    .values(parent_id=None, root_id=None)
)
_REMOVE = sa.delete(schema.resource_providers).where(_in(_providers.id, "ids"))

_ADD_TRAIT = sa.insert(schema.resource_provider_traits)
_DROP_TRAIT = sa.delete(schema.resource_provider_traits).where(
    _traits.provider_id == sa.bindparam("provider"), _traits.trait_id == sa.bindparam("trait")
)
_DROP_TRAITS = sa.delete(schema.resource_provider_traits).where(_in(_traits.provider_id, "ids"))


def define(
    connection: Connection, catalogue: Catalogue, write: Write, changes: DefinitionChanges
) -> None:
    """Apply changes of definitions, all or none (see the contract).

    Cost: a fixed number of statements and one for each level of providers that are made.
    """
    write.record(connection, None)
    _Definition(connection, catalogue, changes, write.now.replace(tzinfo=None)).apply()


class _Definition:
    """One run: the providers it is about, as locked, and the numbers of those it makes."""

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
        self._now = now
        self._kept: dict[str, Any] = {}
        self._numbers: dict[str, int] = {}
        self._roots: dict[str, int] = {}

    def apply(self) -> None:
        self._lock()
        self._check()
        self._free_names()
        self._create()
        self._update()
        self._find_roots()
        self._set_inventories()
        self._set_traits()
        self._remove()

    def _execute(self, statement: sa.UpdateBase, values: Sequence[dict[str, Any]]) -> None:
        if values:
            self._connection.execute(statement, values)

    def _definitions(self) -> Iterable[ProviderDefinition]:
        yield from self._changes.creates
        for update in self._changes.updates:
            yield update.definition

    # --- looking ---

    def _lock(self) -> None:
        """Lock every provider involved, with the roots of their trees."""
        uuids = {removal.uuid for removal in self._changes.removals}
        for definition in self._definitions():
            uuids |= {definition.uuid, definition.parent_uuid or definition.uuid}
        located = {
            number
            for part in chunks(sorted(uuids))
            for row in self._connection.execute(_LOCATE, {"uuids": part})
            for number in (row.id, row.root_id)
        }
        for ids in chunks(sorted(located)):
            for row in self._connection.execute(_LOCK, {"ids": ids}):
                if row.root_id not in located:
                    raise Transient(exceptions.StaleDefinition(row.name, "it was moved"))
                self._kept[row.uuid] = row
        self._numbers = {uuid: row.id for uuid, row in self._kept.items()}
        self._roots = {uuid: row.root_id for uuid, row in self._kept.items()}

    def _check(self) -> None:
        for update in self._changes.updates:
            self._check_kept(update.definition.uuid, update.definition.name, update.generation)
        for removal in self._changes.removals:
            self._check_kept(removal.uuid, removal.name, removal.generation)
        known = set(self._kept)
        for created in self._changes.creates:
            if created.uuid in known:
                raise exceptions.ProviderExists(created.uuid)
            known.add(created.uuid)
        for definition in self._definitions():
            if definition.parent_uuid is not None and definition.parent_uuid not in known:
                raise exceptions.StaleDefinition(definition.name, "its parent is gone")

    def _check_kept(self, uuid: str, name: str, generation: int) -> None:
        kept = self._kept.get(uuid)
        if kept is None:
            raise exceptions.StaleDefinition(name, "it is gone")
        if kept.generation != generation:
            raise exceptions.StaleDefinition(
                name, f"read at generation {generation}, now {kept.generation}"
            )

    # --- providers ---

    def _free_names(self) -> None:
        """Refuse names that others have; take those away that are given up."""
        wanted: dict[str, str] = {}
        for definition in self._definitions():
            if wanted.setdefault(definition.name, definition.uuid) != definition.uuid:
                raise exceptions.ProviderExists(definition.name)
        gives_up = {update.definition.uuid for update in self._changes.updates}
        gives_up |= {removal.uuid for removal in self._changes.removals}
        freed = []
        for part in chunks(list(wanted)):
            for uuid, name in self._connection.execute(_OWNERS, {"names": part}):
                if uuid not in gives_up:
                    raise exceptions.ProviderExists(name)
                if wanted[name] != uuid:
                    # no provider can be called that: names have no space at either end
                    freed.append({"number": self._numbers[uuid], "to": f" {uuid}"})
        self._execute(_RENAME, freed)

    def _create(self) -> None:
        """Make providers level by level, since a child needs its parent's number."""
        waiting = list(self._changes.creates)
        while waiting:
            level = [c for c in waiting if c.parent_uuid is None or c.parent_uuid in self._numbers]
            if not level:
                raise exceptions.InvalidTree("tree", waiting[0].name, "parents before children")
            self._execute(_MAKE, [self._new(created) for created in level])
            self._number([created.uuid for created in level])
            made = set(level)
            waiting = [created for created in waiting if created not in made]

    def _new(self, created: ProviderDefinition) -> dict[str, Any]:
        parent = created.parent_uuid
        return {
            "uuid": created.uuid,
            "name": created.name,
            "generation": 0,
            "root_id": None if parent is None else self._roots[parent],
            "parent_id": None if parent is None else self._numbers[parent],
            "created_at": self._now,
            "updated_at": self._now,
        }

    def _number(self, uuids: Sequence[str]) -> None:
        """Learn the numbers of providers just made; a root learns that it is its own root."""
        parents = {created.uuid: created.parent_uuid for created in self._changes.creates}
        roots = []
        for part in chunks(uuids):
            for uuid, number in self._connection.execute(_NUMBERS, {"uuids": part}):
                self._numbers[uuid] = number
                parent = parents[uuid]
                self._roots[uuid] = number if parent is None else self._roots[parent]
                if parent is None:
                    roots.append({"number": number, "to": number})
        self._execute(_SET_ROOT, roots)

    def _update(self) -> None:
        values = [
            {
                "number": self._numbers[update.definition.uuid],
                "was": update.generation,
                "to_name": update.definition.name,
                "to_parent": self._parent(update.definition),
                "at": self._now,
            }
            for update in self._changes.updates
        ]
        if values and self._connection.execute(_UPDATE, values).rowcount != len(values):
            raise Transient(exceptions.StaleDefinition(self._changes.root))

    def _parent(self, definition: ProviderDefinition) -> int | None:
        return None if definition.parent_uuid is None else self._numbers[definition.parent_uuid]

    def _find_roots(self) -> None:
        """Write the roots of everybody below a provider that was moved."""
        moved = [
            update.definition
            for update in self._changes.updates
            if self._parent(update.definition) != self._kept[update.definition.uuid].parent_id
        ]
        if not moved:
            return
        rows: dict[int, Any] = {}
        for part in chunks(sorted(set(self._roots.values()))):
            for row in self._connection.execute(_IN_TREES, {"roots": part}):
                rows[row.id] = row
        tops = {number: _top(rows, number) for number in rows}
        values = [
            {"number": number, "to": top}
            for number, top in tops.items()
            if top != rows[number].root_id
        ]
        self._execute(_SET_ROOT, values)

    # --- what they have ---

    def _set_inventories(self) -> None:
        names = {record.resource_class for d in self._definitions() for record in d.inventories}
        names |= {name for update in self._changes.updates for name in update.removed}
        classes = self._catalogue.classes.ensure(self._connection, names)
        work = figures.Work()
        for created in self._changes.creates:
            for record in created.inventories:
                work.put(self._numbers[created.uuid], classes[record.resource_class], record)
        for update in self._changes.updates:
            number = self._numbers[update.definition.uuid]
            for record in update.changed:
                work.put(number, classes[record.resource_class], record)
            for name in update.removed:
                in_use = exceptions.InventoryInUse(self._kept[update.definition.uuid].name, name)
                work.drop(number, classes[name], in_use)
        for removal in self._changes.removals:
            error = exceptions.ProviderInUse(self._kept[removal.uuid].name)
            work.drop_all(self._numbers[removal.uuid], error)
        work.run(self._connection)

    def _set_traits(self) -> None:
        names = {trait for created in self._changes.creates for trait in created.traits}
        for update in self._changes.updates:
            names |= update.traits_added | update.traits_removed
        numbers = self._catalogue.traits.ensure(self._connection, names)
        added = [
            (created.uuid, trait) for created in self._changes.creates for trait in created.traits
        ]
        removed = []
        for update in self._changes.updates:
            added += [(update.definition.uuid, trait) for trait in update.traits_added]
            removed += [(update.definition.uuid, trait) for trait in update.traits_removed]
        self._execute(
            _DROP_TRAIT,
            [{"provider": self._numbers[u], "trait": numbers[trait]} for u, trait in removed],
        )
        self._execute(
            _ADD_TRAIT,
            [{"provider_id": self._numbers[u], "trait_id": numbers[trait]} for u, trait in added],
        )

    def _remove(self) -> None:
        gone = {self._numbers[removal.uuid]: removal for removal in self._changes.removals}
        for part in chunks(sorted(gone)):
            for parent, child in self._connection.execute(_CHILDREN, {"ids": part}):
                if child not in gone:
                    raise exceptions.StaleDefinition(
                        gone[parent].name, "it has a child that was not known"
                    )
        for statement in (_DROP_TRAITS, _UNLINK, _REMOVE):
            for part in chunks(sorted(gone)):
                self._connection.execute(statement, {"ids": part})


def _top(rows: dict[int, Any], number: int) -> int:
    """Return the number of the provider at the top of another's tree."""
    seen = set()
    while rows[number].parent_id is not None:
        if number in seen:
            raise exceptions.StaleDefinition(rows[number].name, "it was moved below itself")
        seen.add(number)
        number = rows[number].parent_id
    return number
