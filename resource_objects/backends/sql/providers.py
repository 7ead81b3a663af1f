"""Providers as rows: found and locked, made, moved and removed.

Locks: the providers of a write and the roots of their trees, by number. So the changes of one tree
come one after the other.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import rows, schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.retry import Transient
from resource_objects.backends.sql.statements import moment
from resource_objects.providers.definition import ProviderDefinition

_providers = schema.resource_providers.c


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
    # on PostgreSQL FOR NO KEY UPDATE: not in the way of whoever refers to a provider
    .with_for_update(key_share=True)
)
_OWNERS = sa.select(_providers.uuid, _providers.name).where(_in(_providers.name, "names"))
_NUMBERS = sa.select(_providers.uuid, _providers.id).where(_in(_providers.uuid, "uuids"))
_IN_TREES = sa.select(
    _providers.id, _providers.uuid, _providers.name, _providers.parent_id, _providers.root_id
).where(_in(_providers.root_id, "roots"))
_CHILDREN = sa.select(_providers.parent_id, _providers.id).where(_in(_providers.parent_id, "ids"))
_IS_ROOT = (
    sa.update(schema.resource_providers)
    .where(_in(_providers.id, "ids"))
    .values(root_id=_providers.id)
)
_UNLINK = (
    sa.update(schema.resource_providers)
    .where(_in(_providers.id, "ids"))
    .values(parent_id=None, root_id=None)
)
_REMOVE = sa.delete(schema.resource_providers).where(_in(_providers.id, "ids"))
_WRITES = sa.select(_providers.id, _providers.allocation_writes).where(_in(_providers.id, "ids"))


class Providers:
    """The providers of one write: as they were, with numbers and roots, also of those it makes."""

    def __init__(self, connection: Connection, now: datetime.datetime) -> None:
        self._connection = connection
        self._now = moment(connection, now)
        self.kept: dict[str, Any] = {}
        self.numbers: dict[str, int] = {}
        self.roots: dict[str, int] = {}
        self.left: dict[str, int] = {}  #: the roots of those that are in another tree now

    def lock(self, uuids: Iterable[str]) -> None:
        """Lock the providers that are there, with the roots of their trees."""
        located = {
            number
            for part in chunks(sorted(set(uuids)))
            for row in self._connection.execute(_LOCATE, {"uuids": part})
            for number in row
        }
        for ids in chunks(sorted(located)):
            for row in self._connection.execute(_LOCK, {"ids": ids}):
                if row.root_id not in located:
                    raise Transient(exceptions.StaleDefinition(row.name, "it was moved"))
                self.kept[row.uuid] = row
        self.numbers = {uuid: row.id for uuid, row in self.kept.items()}
        self.roots = {uuid: row.root_id for uuid, row in self.kept.items()}

    def free_names(self, wanted: Mapping[str, str], gives_up: Collection[str]) -> None:
        """Refuse names that others have; take those away that are given up.

        :param wanted: ``{name: uuid}``
        :param gives_up: uuids of those that get another name or go
        """
        freed: list[dict[str, Any]] = []
        for part in chunks(list(wanted)):
            for uuid, name in self._connection.execute(_OWNERS, {"names": part}):
                if uuid not in gives_up:
                    raise exceptions.ProviderExists(name)
                if wanted[name] != uuid:
                    # no provider can be called that: names have no space at either end
                    freed.append({"id": self.numbers[uuid], "name": f" {uuid}"})
        rows.update(self._connection, schema.resource_providers, ["id"], freed)

    # --- coming and moving ---

    def make(self, creates: Sequence[ProviderDefinition]) -> None:
        """Make providers level by level, since a child needs its parent's number."""
        waiting = creates
        while waiting:
            level: list[ProviderDefinition] = []
            later: list[ProviderDefinition] = []
            for created in waiting:
                above = created.parent_uuid
                (level if above is None or above in self.numbers else later).append(created)
            if not level:
                raise exceptions.InvalidTree("tree", waiting[0].name, "parents before children")
            made = [self._new(created) for created in level]
            rows.insert(self._connection, schema.resource_providers, made)
            self._number(level)
            waiting = later

    def _new(self, created: ProviderDefinition) -> dict[str, Any]:
        above = created.parent_uuid
        return {
            "uuid": created.uuid,
            "name": created.name,
            "generation": 0,
            "root_id": None if above is None else self.roots[above],
            "parent_id": None if above is None else self.numbers[above],
            "created_at": self._now,
            "updated_at": self._now,
        }

    def _number(self, made: Sequence[ProviderDefinition]) -> None:
        """Learn the numbers of providers just made; a root learns that it is its own root."""
        for part in chunks([created.uuid for created in made]):
            for uuid, number in self._connection.execute(_NUMBERS, {"uuids": part}):
                self.numbers[uuid] = number
        roots: list[int] = []
        for created in made:
            number = self.numbers[created.uuid]
            above = created.parent_uuid
            self.roots[created.uuid] = number if above is None else self.roots[above]
            if above is None:
                roots.append(number)
        for ids in chunks(sorted(roots)):
            self._connection.execute(_IS_ROOT, {"ids": ids})

    def update(self, definitions: Sequence[ProviderDefinition]) -> None:
        """Write names and parents of kept providers, each at its next generation."""
        found = [
            {
                "id": self.numbers[definition.uuid],
                "name": definition.name,
                "parent_id": self._parent(definition),
                "generation": self.kept[definition.uuid].generation + 1,
                "updated_at": self._now,
            }
            for definition in definitions
        ]
        found.sort(key=lambda values: values["id"])
        rows.update(self._connection, schema.resource_providers, ["id"], found)
        if any(self._is_moved(definition) for definition in definitions):
            self._find_roots()

    def _parent(self, definition: ProviderDefinition) -> int | None:
        above = definition.parent_uuid
        return None if above is None else self.numbers[above]

    def _is_moved(self, definition: ProviderDefinition) -> bool:
        return bool(self._parent(definition) != self.kept[definition.uuid].parent_id)

    def _find_roots(self) -> None:
        """Write the roots of everybody below a provider that was moved."""
        found: dict[int, Any] = {}
        for part in chunks(sorted(set(self.roots.values()))):
            for row in self._connection.execute(_IN_TREES, {"roots": part}):
                found[row.id] = row
        moved: list[dict[str, int]] = []
        for number, top in _tops(found).items():
            row = found[number]
            if top != row.root_id:
                moved.append({"id": number, "root_id": top})
                self.numbers[row.uuid] = number
                self.roots[row.uuid] = top
                self.left[row.uuid] = row.root_id
        moved.sort(key=lambda values: values["id"])
        rows.update(self._connection, schema.resource_providers, ["id"], moved)

    # --- going ---

    def count_writes(self, writes: Mapping[int, int]) -> None:
        """Add writes of allocations at inventories that are gone, by provider."""
        found: list[dict[str, int]] = []
        for part in chunks(sorted(writes)):
            for number, before in self._connection.execute(_WRITES, {"ids": part}):
                found.append({"id": number, "allocation_writes": before + writes[number]})
        rows.update(self._connection, schema.resource_providers, ["id"], found)

    def remove(self, gone: Mapping[str, str]) -> None:
        """Delete providers, ``{uuid: name}``, of which no child may be left."""
        names = {self.numbers[uuid]: name for uuid, name in gone.items()}
        for part in chunks(sorted(names)):
            for above, child in self._connection.execute(_CHILDREN, {"ids": part}):
                if child not in names:
                    raise exceptions.StaleDefinition(
                        names[above], "it has a child that was not known"
                    )
        for statement in (_UNLINK, _REMOVE):
            for part in chunks(sorted(names)):
                self._connection.execute(statement, {"ids": part})


def _tops(found: Mapping[int, Any]) -> dict[int, int]:
    """Return the number of the provider at the top of each one's tree. Cost: linear."""
    tops: dict[int, int] = {}
    for number in found:
        path: dict[int, None] = {}
        at = number
        while at not in tops and found[at].parent_id is not None:
            if at in path:
                raise exceptions.StaleDefinition(found[at].name, "it was moved below itself")
            path[at] = None
            at = found[at].parent_id
        top = tops.setdefault(at, at)
        tops.update(dict.fromkeys(path, top))
    return tops
