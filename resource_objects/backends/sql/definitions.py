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
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql import disabled, names, statements, tables
from resource_objects.backends.sql.names import Catalogue, NameNumbers
from resource_objects.backends.sql.statements import Sized, chunks, listed, moment
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
    ShareRecord,
)
from resource_objects.providers.located import classes_of_units, removed_units
from resource_objects.providers.provider import check_shares
from resource_objects.resources.records import InventoryRecord


class Definition:
    """One run of changes: :meth:`lock`, :meth:`apply`, the orders of the write, :meth:`remove`.

    :param now: when, in UTC
    """

    def __init__(
        self,
        connection: Connection,
        catalogue: Catalogue,
        changes: DefinitionChanges,
        number: int,
        now: datetime.datetime,
    ) -> None:
        self._connection = connection
        self._catalogue = catalogue
        self._changes = changes
        self._providers = Providers(connection, number, now)
        self._figures = Figures(connection)
        self._shares = ShareChanges(connection)

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
        self._providers.update(self._changes.updates)
        self._set_inventories(others)
        self._set_members()
        self._set_kinds()
        if self._may_inherit():
            self._inherit()

    def remove(self) -> None:
        """Remove inventories and providers that go, which nobody may use (see the contract)."""
        self._shares.remove(self._figures.going())
        writes = self._figures.remove()
        gone = {removal.uuid: removal.name for removal in self._changes.removals}
        numbers = sorted(self._providers.numbers[uuid] for uuid in gone)
        staying = {number: count for number, count in writes.items() if number not in set(numbers)}
        self._providers.count_writes(staying)
        if gone:
            of, roots = self._providers.numbers, self._providers.roots
            left = {of[uuid]: (roots[uuid], name) for uuid, name in gone.items()}
            if disabled.keep(self._connection, left):
                self._inherit()
            forget_members(self._connection, numbers)
            names.drop_kinds(self._connection, numbers)
            self._providers.remove(gone)
        check_trees(self._connection, self._reshared())

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
        roots, left = providers.roots, providers.left
        if not left:
            return {uuid: {roots[uuid]} for uuid in named}
        return {uuid: {roots[uuid], left.get(uuid, roots[uuid])} for uuid in named}

    # --- looking ---

    def _definitions(self) -> Iterable[ProviderDefinition]:
        yield from self._changes.creates
        for update in self._changes.updates:
            yield update.definition

    def _wanted_shares(self) -> Iterable[tuple[ProviderDefinition, ShareRecord]]:
        """Yield what is shared by providers whose shares are said."""
        said = [created for created in self._changes.creates if created.shares]
        said += [one.definition for one in self._changes.updates if one.shares_changed]
        for definition in said:
            for share in definition.shares:
                yield definition, share

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
            if share.of_uuid not in numbers:
                raise _no_target(definition.name, share.of_class)
            sharer = numbers[definition.uuid], classes[share.resource_class]
            of = numbers[share.of_uuid], classes[share.of_class]
            self._shares.want(sharer, of, share.factor, definition.name, share.of_class)
        changed = [update for update in self._changes.updates if update.shares_changed]
        self._shares.find([numbers[update.definition.uuid] for update in changed])
        made = [numbers[created.uuid] for created in self._changes.creates]
        self._figures.lock(self._shares.ends(), made, others)
        for update in self._changes.updates:
            for one in update.expected_use:
                key = numbers[update.definition.uuid], classes[one.resource_class]
                update.check_expected_use(one.resource_class, self._figures.used(key))
        self._shares.check(self._figures)
        self._figures.write(self._shares.counts())
        self._shares.write(self._figures)

    def _may_inherit(self) -> bool:
        """Return whether inventories may be below others than before, or be new."""
        if self._changes.creates:
            return True
        if any(update.changed or update.kinds_changed for update in self._changes.updates):
            return True
        return any(self._providers.is_moved(u.definition) for u in self._changes.updates)

    def _inherit(self) -> None:
        """Give what came, or is elsewhere now, what is out of service of it or above it."""
        providers, changes = self._providers, self._changes
        numbers, roots = providers.numbers, providers.roots
        changed = [one.definition for one in changes.updates if one.kinds_changed]
        made = {numbers[one.uuid]: (roots[one.uuid], one.name) for one in changes.creates}
        devices = {
            numbers[one.uuid]: (roots[one.uuid], units)
            for one in (*changes.creates, *changed)
            if (units := classes_of_units((kind.resource_class, kind.body) for kind in one.kinds))
        }
        removed = {
            roots[one.uuid]
            for one in (*changes.creates, *changed)
            if removed_units((kind.resource_class, kind.body) for kind in one.kinds)
        }
        disabled.inherit(self._connection, roots.values(), made, devices, removed)

    def _set_members(self) -> None:
        numbers, changes = self._providers.numbers, self._changes
        set_traits(self._connection, self._catalogue.traits, changes, numbers)
        set_aggregates(self._connection, self._catalogue.aggregates, changes, numbers)

    def _set_kinds(self) -> None:
        numbers = self._providers.numbers
        changed = [u.definition for u in self._changes.updates if u.kinds_changed]
        names.drop_kinds(
            self._connection, sorted(numbers[definition.uuid] for definition in changed)
        )
        wanted = {numbers[d.uuid]: d.kinds for d in (*self._changes.creates, *changed)}
        names.insert_kinds(self._connection, wanted)


# --- providers ------------------------------------------------------------------------------------
#
# Providers as rows: found and locked, made, moved and removed.
#
# Locks: the providers of a write and the roots of their trees, by number. So the changes of one
# tree come one after the other.


_providers = tables.resource_providers.c


def _in(column: sa.Column[Any], name: str) -> sa.ColumnElement[bool]:
    return column.in_(sa.bindparam(name, expanding=True))


_LOCATE = Sized(
    lambda uuids: sa.select(_providers.id, _providers.root_id).where(
        listed(_providers.uuid, "uuids", uuids)
    )
)
_LOCK = Sized(
    lambda ids: (
        sa.select(
            _providers.id,
            _providers.uuid,
            _providers.name,
            _providers.generation,
            _providers.parent_id,
            _providers.root_id,
            _providers.definition_writes,
        )
        .where(listed(_providers.id, "ids", ids))
        .order_by(_providers.id)
        # on PostgreSQL FOR NO KEY UPDATE: not in the way of whoever refers to a provider
        .with_for_update(key_share=True)
    )
)
_OWNERS = Sized(
    lambda names: sa.select(_providers.uuid, _providers.name).where(
        listed(_providers.name, "names", names)
    )
)
#: The columns of a provider that is made.
_MADE = ("uuid", "name", "generation", "root_id", "parent_id", "created_at", "updated_at")
_NUMBERS = Sized(
    lambda uuids: sa.select(_providers.uuid, _providers.id).where(
        listed(_providers.uuid, "uuids", uuids)
    )
)
_IN_TREES = sa.select(
    _providers.id, _providers.uuid, _providers.name, _providers.parent_id, _providers.root_id
).where(_in(_providers.root_id, "roots"))
_CHILDREN = sa.select(_providers.parent_id, _providers.id).where(_in(_providers.parent_id, "ids"))
_IS_ROOT = (
    sa.update(tables.resource_providers)
    .where(_in(_providers.id, "ids"))
    .values(root_id=_providers.id)
)
_UNLINK = (
    sa.update(tables.resource_providers)
    .where(_in(_providers.id, "ids"))
    .values(parent_id=None, root_id=None)
)
_REMOVE = sa.delete(tables.resource_providers).where(_in(_providers.id, "ids"))
_WRITES = sa.select(_providers.id, _providers.allocation_writes).where(_in(_providers.id, "ids"))


class _LockedProvider(NamedTuple):
    """A locked provider as kept."""

    id: int
    uuid: str
    name: str
    generation: int
    parent_id: int | None
    root_id: int
    definition_writes: int


class Providers:
    """The providers of one write: as they were, with numbers and roots, also of those it makes."""

    def __init__(self, connection: Connection, number: int, now: datetime.datetime) -> None:
        self._operation = number
        self._connection = connection
        self._now = moment(connection, now)
        self.kept: dict[str, _LockedProvider] = {}
        self.numbers: dict[str, int] = {}
        self.roots: dict[str, int] = {}
        self.left: dict[str, int] = {}  #: the roots of those that are in another tree now

    def lock(self, uuids: Iterable[str]) -> None:
        """Lock the providers that are there, with the roots of their trees."""
        located = {
            number
            for part in chunks(sorted(set(uuids)))
            for row in _LOCATE.rows(self._connection, uuids=part)
            for number in row
        }
        for ids in chunks(sorted(located)):
            for row in map(_LockedProvider._make, _LOCK.rows(self._connection, ids=ids)):
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
            for uuid, name in _OWNERS.rows(self._connection, names=part):
                if uuid not in gives_up:
                    raise exceptions.ProviderExists(name)
                if wanted[name] != uuid:
                    freed.append({"id": self.numbers[uuid], "name": f"{tables.GIVEN_UP}{name}"})
        statements.update(self._connection, tables.resource_providers, ["id"], freed)

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
            statements.insert_tuples(self._connection, tables.resource_providers, _MADE, made)
            self._number(level)
            waiting = later

    def _new(self, created: ProviderDefinition) -> tuple[Any, ...]:
        """Return the values of the columns ``_MADE``."""
        above = created.parent_uuid
        root, parent = (None, None) if above is None else (self.roots[above], self.numbers[above])
        return created.uuid, created.name, self._operation, root, parent, self._now, self._now

    def _number(self, made: Sequence[ProviderDefinition]) -> None:
        """Learn the numbers of providers just made; a root learns that it is its own root."""
        for part in chunks([created.uuid for created in made]):
            for uuid, number in _NUMBERS.rows(self._connection, uuids=part):
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

    def update(self, updates: Sequence[ProviderUpdate]) -> None:
        """Write names and parents of kept providers, at the generation of this operation."""
        definitions = [update.definition for update in updates]
        writes = [self.kept[one.definition.uuid].definition_writes + one.writes for one in updates]
        found = [
            {
                "id": self.numbers[definition.uuid],
                "name": definition.name,
                "parent_id": self._parent(definition),
                "generation": self._operation,
                "updated_at": self._now,
                "definition_writes": written,
            }
            for definition, written in zip(definitions, writes, strict=True)
        ]
        found.sort(key=lambda values: values["id"])
        statements.update(self._connection, tables.resource_providers, ["id"], found)
        if any(self.is_moved(definition) for definition in definitions):
            self._find_roots()

    def _parent(self, definition: ProviderDefinition) -> int | None:
        above = definition.parent_uuid
        return None if above is None else self.numbers[above]

    def is_moved(self, definition: ProviderDefinition) -> bool:
        """Return whether a kept provider gets another parent."""
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
        statements.update(self._connection, tables.resource_providers, ["id"], moved)

    # --- going ---

    def count_writes(self, writes: Mapping[int, int]) -> None:
        """Add writes of allocations at inventories that are gone, by provider."""
        found: list[dict[str, int]] = []
        for part in chunks(sorted(writes)):
            for number, before in self._connection.execute(_WRITES, {"ids": part}):
                found.append({"id": number, "allocation_writes": before + writes[number]})
        statements.update(self._connection, tables.resource_providers, ["id"], found)

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


# --- figures --------------------------------------------------------------------------------------
#
# The figures of inventories: put, changed and dropped, never what is used of them.


#: (provider's number, class's number)
NumberKey: TypeAlias = tuple[int, int]

_inventories = tables.inventories.c
_NAMES = (
    *("total", "reserved", "min_unit", "max_unit", "step_size"),
    *("ratio_millionths", "capacity"),
)
_FIND_INVENTORIES = sa.select(
    _inventories.provider_id,
    _inventories.class_id,
    _inventories.id,
    _inventories.used,
    _inventories.shares,
    _inventories.writes,
).where(_in(_inventories.provider_id, "providers"))
# by primary key, so that InnoDB, which locks rows as it meets them, meets them in this order
_LOCK_INVENTORIES = (
    sa.select(_inventories.id, _inventories.used, _inventories.shares)
    .where(_in(_inventories.id, "numbers"))
    .order_by(_inventories.id)
    .with_for_update()
)
_DROP = sa.delete(tables.inventories).where(_in(_inventories.id, "numbers"))


class Figures:
    """What happens to the inventories of a definition, collected, then done by few statements."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._put: dict[NumberKey, InventoryRecord] = {}
        self._drop: dict[NumberKey, exceptions.LedgerError] = {}
        self._drop_all: dict[int, exceptions.LedgerError] = {}
        self._numbers: dict[NumberKey, int] = {}
        self._used: dict[int, int] = {}
        self._shares: dict[int, int] = {}

    # --- what shall happen ---

    def put(self, provider: int, class_: int, record: InventoryRecord) -> None:
        """Make an inventory, or give the one that is there these figures."""
        self._put[provider, class_] = record

    def drop(self, provider: int, class_: int, in_use: exceptions.LedgerError) -> None:
        """Drop an inventory at the end, or raise ``in_use``."""
        self._drop[provider, class_] = in_use

    def drop_all(self, provider: int, in_use: exceptions.LedgerError) -> None:
        """Drop all inventories of a provider at the end, or raise ``in_use``."""
        self._drop_all[provider] = in_use

    # --- looking ---

    def lock(
        self, others: Iterable[NumberKey], made: Iterable[int], numbers: Collection[int] = ()
    ) -> None:
        """Find and lock the inventories concerned, and others, in the order that claims do.

        :param made: numbers of providers that were just made, which have none
        :param numbers: of further inventories, which the orders of the same write are about
        """
        wanted = {*self._put, *self._drop, *others}
        providers = {*self._drop_all, *(key[0] for key in wanted)} - set(made)
        self._numbers = {
            key: number
            for key, number, *_ in self._find(providers)
            if key in wanted or key[0] in self._drop_all
        }
        locked = {*self._numbers.values(), *numbers}
        for part in chunks(sorted(locked)):
            for number, used, shares in self._connection.execute(
                _LOCK_INVENTORIES, {"numbers": part}
            ):
                self._used[number] = used
                self._shares[number] = shares
        if len(self._used) != len(locked):
            raise Transient(exceptions.DatabaseBusy("inventory", "it was removed in between"))

    def _find(self, providers: Iterable[int]) -> Iterable[tuple[NumberKey, int, int, int, int]]:
        """Yield ``(key, number, used, shares, writes)`` of every inventory of some providers."""
        for part in chunks(sorted(providers)):
            for provider, class_, *rest in self._connection.execute(
                _FIND_INVENTORIES, {"providers": part}
            ):
                yield (provider, class_), *rest

    def is_there(self, key: NumberKey) -> bool:
        """Return whether an inventory is there, or will be."""
        return key in self._numbers or key in self._put

    def used(self, key: NumberKey) -> int:
        """Return how much is used of a locked inventory; 0 of one that is not there."""
        return self._used.get(self._numbers.get(key, 0), 0)

    # --- writing ---

    def write(self, shares: Mapping[NumberKey, int]) -> None:
        """Make and change inventories; ``shares`` are how many each of some has now."""
        figures = _SameFigures()
        new = self._put
        if self._numbers:
            new = {key: record for key, record in new.items() if key not in self._numbers}
        found = [(*key, 0, shares.get(key, 0), *figures.of(record)) for key, record in new.items()]
        columns = ("provider_id", "class_id", "used", "shares", *_NAMES)
        statements.insert_tuples(self._connection, tables.inventories, columns, found)
        changed = {
            self._numbers[key]: dict(zip(_NAMES, figures.of(record), strict=True))
            for key, record in self._put.items()
            if key in self._numbers
        }
        self._update(changed)
        self._update(
            {
                self._numbers[key]: {"shares": count}
                for key, count in shares.items()
                if key in self._numbers and self._shares[self._numbers[key]] != count
            }
        )

    def set_used(self, used: Mapping[NumberKey, int]) -> None:
        """Write what is used of inventories that are locked or were just made."""
        found = [
            {"used": amount, "provider_id": key[0], "class_id": key[1]}
            for key, amount in sorted(used.items())
        ]
        statements.update(self._connection, tables.inventories, ["provider_id", "class_id"], found)

    def _update(self, values: Mapping[int, Mapping[str, Any]]) -> None:
        found = [{**given, "id": number} for number, given in sorted(values.items())]
        statements.update(self._connection, tables.inventories, ["id"], found)

    # --- what goes ---

    def going(self) -> dict[NumberKey, exceptions.LedgerError]:
        """Return what goes, with what is raised if it is used, in the order of the contract."""
        rank = {provider: n for n, provider in enumerate(self._drop_all)}
        every = sorted((key for key in self._numbers if key[0] in rank), key=lambda k: rank[k[0]])
        named = {key: error for key, error in self._drop.items() if key in self._numbers}
        return {key: self._drop_all[key[0]] for key in every} | named

    def remove(self) -> dict[int, int]:
        """Drop what goes, if nobody uses it; return ``{provider: writes of allocations there}``."""
        going = self.going()
        numbers: list[int] = []
        in_use: set[NumberKey] = set()
        writes: dict[int, int] = {}
        for key, number, used, _, written in self._find({key[0] for key in going}):
            if key not in going:
                continue
            if used:
                in_use.add(key)
            numbers.append(number)
            if written:
                writes[key[0]] = writes.get(key[0], 0) + written
        for key, error in going.items():
            if key in in_use:
                raise error
        for part in chunks(sorted(numbers)):
            self._connection.execute(_DROP, {"numbers": part})
        return writes


class _SameFigures:
    """The figures of inventory records; many inventories have one and the same record."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[InventoryRecord, tuple[Any, ...]]] = {}

    def of(self, record: InventoryRecord) -> tuple[Any, ...]:
        """Return the values of the columns ``_NAMES``."""
        found = self._found.get(id(record))
        if found is None:  # with the record, whose id is used again if it goes
            found = record, tuple(getattr(record, name) for name in _NAMES)
            self._found[id(record)] = found
        return found[1]


# --- shares ---------------------------------------------------------------------------------------
#
# Shares as rows: what a definition says of them, and what allocations then use elsewhere (D2).
#
# ``used`` of an inventory is the sum of the allocations there and of those at its sharers, times
# their factors. Whoever allocates at a sharer locks what it shares too. So while a definition holds
# the lock of an inventory, nothing changes at any of its sharers, and the sum can be made anew.
#
# Whoever changes shares, or moves providers, has locked the roots of their trees and checks all
# shares of these as they are then (``provider.check_shares``): none is changed meanwhile.


#: (from, of): who shares what.
Pair: TypeAlias = tuple[NumberKey, NumberKey]
_PAIR = ("provider_id", "class_id", "of_provider_id", "of_class_id")

_shares = tables.shares.c
_allocations = tables.allocations.c
_ALL = (
    _shares.provider_id,
    _shares.class_id,
    _shares.of_provider_id,
    _shares.of_class_id,
    _shares.factor,
)


_FROM = sa.select(*_ALL).where(_in(_shares.provider_id, "providers"))
_OF = sa.select(*_ALL).where(_in(_shares.of_provider_id, "providers"))
_ALLOCATED = (
    sa.select(_allocations.provider_id, _allocations.class_id, sa.func.sum(_allocations.used))
    .where(_in(_allocations.provider_id, "providers"))
    .group_by(_allocations.provider_id, _allocations.class_id)
)


def _of_trees() -> sa.Select[*tuple[Any, ...]]:
    # SELECT shares.*, sharer.root_id, target.root_id, sharer.name FROM providers sharer
    #   JOIN shares JOIN providers target WHERE sharer.root_id IN (:roots)
    sharer = tables.resource_providers.alias()
    target = tables.resource_providers.alias()
    return (
        sa.select(*_ALL[:4], sharer.c.root_id, target.c.root_id, sharer.c.name)
        .join_from(sharer, tables.shares, sharer.c.id == _shares.provider_id)
        .join(target, target.c.id == _shares.of_provider_id)
        .where(_in(sharer.c.root_id, "roots"))
    )


_OF_TREES = _of_trees()


def check_trees(connection: Connection, roots: Iterable[int]) -> None:
    """Check all shares of some trees, by the numbers of their roots, which are locked.

    Cost: a statement, that reads every share of these trees.

    :raises StaleDefinition: if one is not as ``check_shares`` demands
    """
    for part in chunks(sorted(set(roots))):
        shares: list[Pair] = []
        root_of: dict[int, int] = {}
        name_of: dict[int, str] = {}
        for row in connection.execute(_OF_TREES, {"roots": part}).all():
            sharer, class_, of, of_class, root, of_root, name = row
            shares.append(((sharer, class_), (of, of_class)))
            root_of[sharer], root_of[of], name_of[sharer] = root, of_root, name
        check_shares(shares, root_of, name_of)


def _no_target(name: str, of_class: str) -> exceptions.StaleDefinition:
    return exceptions.StaleDefinition(name, f"{of_class} is gone")


class ShareChanges:
    """What becomes of the shares of some providers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._wanted: dict[Pair, int] = {}
        self._sharers: dict[int, str] = {}  # names, by number
        self._classes: dict[int, str] = {}
        self._kept: dict[Pair, int] = {}
        self._added: dict[Pair, int] = {}
        self._removed: dict[Pair, int] = {}
        self.recounted: set[int] = set()  #: providers of which more or less is used now

    def want(self, sharer: NumberKey, of: NumberKey, factor: int, name: str, of_class: str) -> None:
        """Say what a provider of a name shares, of which class."""
        if (sharer, of) in self._wanted:
            raise _no_target(name, of_class)
        self._wanted[sharer, of] = factor
        self._sharers[sharer[0]], self._classes[of[1]] = name, of_class

    def find(self, providers: Iterable[int]) -> None:
        """Find what some providers share, of which nothing stays but what is wanted.

        To be asked when all that is wanted was said.
        """
        self._kept = self._find(_FROM, providers)
        self._added = {pair: k for pair, k in self._wanted.items() if self._kept.get(pair) != k}
        self._removed = {pair: k for pair, k in self._kept.items() if self._wanted.get(pair) != k}

    def ends(self) -> set[NumberKey]:
        """Return every inventory whose shares change, or what is used of it with them."""
        return {key for some in (self._added, self._removed) for pair in some for key in pair}

    def counts(self) -> dict[NumberKey, int]:
        """Return how many shares each sharer has now, of those that change."""
        counted = Counter(sharer for sharer, _ in self._wanted)
        return {sharer: counted[sharer] for sharer, _ in {**self._wanted, **self._kept}}

    def check(self, figures: Figures) -> None:
        """Raise unless all that shares and is shared is there."""
        for pair in self._added:
            if not all(figures.is_there(key) for key in pair):
                (number, _), (_, class_) = pair
                raise _no_target(self._sharers[number], self._classes[class_])

    def write(self, figures: Figures) -> None:
        """Write the shares, and what is used with them."""
        statements.delete(self._connection, tables.shares, _rows(self._removed))
        added = self._added
        found = [(*sharer, *target, factor) for (sharer, target), factor in added.items()]
        statements.insert_tuples(self._connection, tables.shares, (*_PAIR, "factor"), found)
        changed = {**self._removed, **added}
        targets = {target for sharer, target in changed if figures.used(sharer)}
        used = self._used(targets)
        figures.set_used(used)
        self.recounted = {target[0] for target in used}

    def _used(self, targets: Collection[NumberKey]) -> dict[NumberKey, int]:
        """Return what is used of locked inventories, summed anew."""
        if not targets:
            return {}
        shared = self._find(_OF, {target[0] for target in targets})
        shared = {pair: factor for pair, factor in shared.items() if pair[1] in targets}
        allocated = self._allocated({key[0] for key in (*targets, *(s for s, _ in shared))})
        used: dict[NumberKey, int] = defaultdict(int)
        for target in targets:
            used[target] += allocated.get(target, 0)
        for (sharer, target), factor in shared.items():
            used[target] += allocated.get(sharer, 0) * factor
        for amount in used.values():
            if amount > MAX_AMOUNT:
                raise exceptions.InvalidAmount("used", amount, f"at most {MAX_AMOUNT}")
        return used

    def _allocated(self, providers: Iterable[int]) -> dict[NumberKey, int]:
        return {
            (provider, class_): int(amount)  # a Decimal on servers
            for part in chunks(sorted(providers))
            for provider, class_, amount in self._connection.execute(
                _ALLOCATED, {"providers": part}
            )
        }

    def _find(self, query: sa.Select[Any], providers: Iterable[int]) -> dict[Pair, int]:
        return {
            ((row[0], row[1]), (row[2], row[3])): row[4]
            for part in chunks(sorted(providers))
            for row in self._connection.execute(query, {"providers": part})
        }

    # --- what goes ---

    def remove(self, going: Mapping[NumberKey, exceptions.LedgerError]) -> None:
        """Delete the shares of inventories that go, and those in them.

        A sharer that stays uses what goes: the error of that one is raised.
        """
        providers = {key[0] for key in going}
        found = self._find(_FROM, providers) | self._find(_OF, providers)
        gone = [pair for pair in found if pair[0] in going or pair[1] in going]
        for sharer, target in gone:
            if sharer not in going:
                raise going[target]
        statements.delete(self._connection, tables.shares, _rows(gone))


def _rows(pairs: Iterable[Pair]) -> list[dict[str, int]]:
    return [dict(zip(_PAIR, (*sharer, *target), strict=True)) for sharer, target in pairs]


# --- members --------------------------------------------------------------------------------------
#
# Traits and aggregates of providers: which names each has.


#: Who has which names.
_Has: TypeAlias = list[tuple[ProviderDefinition, Iterable[str]]]

#: the tables of what providers have, and the column that refers to the name
_TABLES = (
    (tables.resource_provider_traits, "trait_id"),
    (tables.resource_provider_aggregates, "aggregate_id"),
)


def set_traits(
    connection: Connection,
    names: NameNumbers,
    changes: DefinitionChanges,
    numbers: Mapping[str, int],
) -> None:
    """Give providers the traits that changes say. ``numbers`` are the providers', by uuid."""
    _NameRows(connection, names, *_TABLES[0], numbers).set(
        changes,
        lambda created: created.traits,
        lambda update: update.traits_added,
        lambda update: update.traits_removed,
    )


def set_aggregates(
    connection: Connection,
    names: NameNumbers,
    changes: DefinitionChanges,
    numbers: Mapping[str, int],
) -> None:
    """Make providers members of the aggregates that changes say, which are made if need be."""
    _NameRows(connection, names, *_TABLES[1], numbers).set(
        changes,
        lambda created: created.aggregates or (),
        lambda update: update.aggregates_added,
        lambda update: update.aggregates_removed,
    )


def forget_members(connection: Connection, providers: Sequence[int]) -> None:
    """Delete what providers have, by number."""
    for table in (*(table for table, _ in _TABLES), tables.disabled_units):
        for part in chunks(providers):
            connection.execute(sa.delete(table).where(table.c.provider_id.in_(part)))


class _NameRows:
    """The rows of one table: (provider, name)."""

    def __init__(
        self,
        connection: Connection,
        names: NameNumbers,
        table: sa.Table,
        column: str,
        numbers: Mapping[str, int],
    ) -> None:
        self._connection = connection
        self._names = names
        self._table = table
        self._column = column
        self._providers = numbers

    def set(
        self,
        changes: DefinitionChanges,
        has: Callable[[ProviderDefinition], Iterable[str]],
        gets: Callable[[ProviderUpdate], Iterable[str]],
        loses: Callable[[ProviderUpdate], Iterable[str]],
    ) -> None:
        added: _Has = [(created, has(created)) for created in changes.creates]
        added += [(update.definition, gets(update)) for update in changes.updates]
        removed: _Has = [(update.definition, loses(update)) for update in changes.updates]
        gone = self._names.find(self._connection, _all(removed))
        columns = ("provider_id", self._column)
        dropped = [dict(zip(columns, row, strict=True)) for row in self._rows(removed, gone)]
        if statements.delete(self._connection, self._table, dropped) != len(dropped):
            raise exceptions.StaleDefinition(changes.root, "something it had is gone")
        numbers = self._names.ensure(self._connection, _all(added))
        rows = self._rows(added, numbers)
        statements.insert_tuples(self._connection, self._table, columns, rows)

    def _rows(self, found: _Has, numbers: Mapping[str, int]) -> list[tuple[int, int]]:
        """Return ``(provider, name)`` of who has which names, in one order for everybody."""
        made: list[tuple[int, int]] = []
        for definition, said in found:
            provider = self._providers[definition.uuid]
            for name in said:
                if name not in numbers:
                    raise exceptions.StaleDefinition(definition.name, f"{name} is gone")
                made.append((provider, numbers[name]))
        return sorted(made)


def _all(found: _Has) -> set[str]:
    return {name for _, said in found for name in said}
