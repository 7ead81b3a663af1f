"""Definitions of providers as records, and the changes that lead from one definition to another.

A target, such as a tree that is synced or an edit, is compared with the stored definitions. The
result is typed and printable. A backend applies it in one transaction, each change only if the
provider still has the generation that was compared.
"""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from resource_objects import exceptions, names
from resource_objects.fields import MAX_FIGURE
from resource_objects.providers.disabled import refuse_trait
from resource_objects.providers.provider import MAX_DEPTH, Provider, broken_share
from resource_objects.resources import Inventories, Inventory, resource
from resource_objects.resources.records import AmountRecord, InventoryRecord, KindRecord
from resource_objects.resources.traits import checked_traits

#: The uuid or the number of a provider.
_Id = TypeVar("_Id", str, int)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class ShareRecord:
    """A stored share: each unit allocated here also uses ``factor`` of another inventory."""

    resource_class: str
    of_uuid: str
    of_class: str
    factor: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderDefinition:
    """Everything that the generation of a provider covers, as records.

    ``aggregates`` are None where the memberships are not stated: a new provider has none, and a
    stored one keeps its own. ``shares`` are sorted.
    """

    uuid: str
    name: str
    parent_uuid: str | None
    inventories: tuple[InventoryRecord, ...]
    traits: frozenset[str]
    aggregates: frozenset[str] | None = None
    shares: tuple[ShareRecord, ...] = ()
    kinds: tuple[KindRecord, ...] = ()


_EMPTY = ProviderDefinition("", "", None, (), frozenset(), frozenset())


@dataclasses.dataclass(frozen=True, slots=True)
class StoredDefinition:
    """The stored definition of a provider, with its generation and the root of its tree."""

    definition: ProviderDefinition
    generation: int
    root_uuid: str


#: The stored providers of some trees by uuid, parents before children.
StoredDefinitions: TypeAlias = Mapping[str, StoredDefinition]


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderUpdate:
    """A change of a stored provider: the difference between ``before`` and ``definition``.

    Everything else remains as it is stored, and so does the usage of each inventory. ``before`` is
    the definition at ``generation``; it is empty only in a plan of a file of an older version, and
    then everything differs.

    ``children_changed`` marks a provider that changes only because children are added to it or
    removed from it, or because it moves with a provider above it: its generation changes, so that a
    tree that was read before is refused. ``expected_use`` are amounts of inventories that were used
    when the change was worked out, and must still be. ``counts`` is the number of writes in
    Placement's count (``ListedProvider.definition_writes``).
    """

    definition: ProviderDefinition
    generation: int
    before: ProviderDefinition = _EMPTY
    children_changed: bool = False
    expected_use: tuple[AmountRecord, ...] = ()
    counts: int = 1

    @property
    def writes(self) -> int:
        """The number of writes in Placement's count: 0 where only the children change."""
        return 0 if self.children_changed else self.counts

    @property
    def changed(self) -> tuple[InventoryRecord, ...]:
        """The inventories to insert or overwrite, without their usage."""
        before = set(self.before.inventories)
        return tuple(record for record in self.definition.inventories if record not in before)

    @property
    def removed(self) -> tuple[str, ...]:
        """The resource classes of the inventories to remove, sorted."""
        before = {record.resource_class for record in self.before.inventories}
        remaining = {record.resource_class for record in self.definition.inventories}
        return tuple(sorted(before - remaining))

    @property
    def traits_added(self) -> frozenset[str]:
        """The traits that the provider gets."""
        return self.definition.traits - self.before.traits

    @property
    def traits_removed(self) -> frozenset[str]:
        """The traits that the provider loses."""
        return self.before.traits - self.definition.traits

    @property
    def aggregates_added(self) -> frozenset[str]:
        """The aggregates that the provider becomes a member of."""
        return (self.definition.aggregates or frozenset()) - (self.before.aggregates or frozenset())

    @property
    def aggregates_removed(self) -> frozenset[str]:
        """The aggregates that the provider leaves."""
        before, after = self.before.aggregates or frozenset(), self.definition.aggregates
        return frozenset() if after is None else before - after

    @property
    def shares_changed(self) -> bool:
        """True if the shares of the definition replace the stored ones."""
        return self.definition.shares != self.before.shares

    @property
    def kinds_changed(self) -> bool:
        """True if the structured inventories of the definition replace the stored ones."""
        before, after = self.before.kinds, self.definition.kinds
        return after != before and set(after) != set(before)


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderRemoval:
    """The removal of a stored provider, which must be unused."""

    uuid: str
    name: str
    generation: int


@dataclasses.dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """The changes of some trees: create top down, update, remove bottom up. False if empty.

    ``root`` names the tree, or the trees: the subject by which a repeated operation is recognised.
    """

    root: str
    creates: tuple[ProviderDefinition, ...] = ()
    updates: tuple[ProviderUpdate, ...] = ()
    removals: tuple[ProviderRemoval, ...] = ()

    @property
    def definitions(self) -> Iterator[ProviderDefinition]:
        """The definitions of the providers that are created or updated."""
        yield from self.creates
        for update in self.updates:
            yield update.definition

    @property
    def sharing(self) -> list[ProviderDefinition]:
        """The definitions of which the shares replace the stored ones."""
        updates = [update.definition for update in self.updates if update.shares_changed]
        return [*(created for created in self.creates if created.shares), *updates]

    def __bool__(self) -> bool:
        return bool(self.creates or self.updates or self.removals)

    def __str__(self) -> str:
        lines = [f"+ {created.name}" for created in self.creates]
        lines += [f"~ {_text(update)}" for update in self.updates if not update.children_changed]
        lines += [f"- {removal.name}" for removal in self.removals]
        return "\n".join(lines) or "nothing changed"


def _text(update: ProviderUpdate) -> str:
    parts = [
        f"{record.resource_class}={kind.format_inventory(kind.inventory_from_records([record]))}"
        for record in update.changed
        for kind in [resource(record.resource_class)]
    ]
    parts += [f"-{name}" for name in update.removed]
    parts += [f"+{trait}" for trait in sorted(update.traits_added)]
    parts += [f"-{trait}" for trait in sorted(update.traits_removed)]
    parts += [f"+aggregate {name}" for name in sorted(update.aggregates_added)]
    parts += [f"-aggregate {name}" for name in sorted(update.aggregates_removed)]
    parts += ["shares"] * update.shares_changed
    if update.kinds_changed:
        changed = {*update.definition.kinds} ^ {*update.before.kinds}
        parts += sorted({kind.resource_class for kind in changed})
    return f"{update.definition.name}: {' '.join(parts) or 'name or parent'}"


def merge_changes(root: str, changes: Iterable[DefinitionChanges]) -> DefinitionChanges:
    """Return the changes of several trees as one, to be applied in one transaction."""
    parts = list(changes)
    return DefinitionChanges(
        root,
        tuple(created for part in parts for created in part.creates),
        tuple(update for part in parts for update in part.updates),
        tuple(removal for part in parts for removal in part.removals),
    )


# --- providers as records -------------------------------------------------------------------------


def to_records(
    inventories: Inventories,
) -> tuple[tuple[InventoryRecord, ...], tuple[KindRecord, ...]]:
    """Return inventories as they are stored, without usage: figures, and the records of kinds.

    An inventory with total 0 is not stored.

    :raises InvalidInventory: if two of them are counted in one class
    """
    figures: dict[str, InventoryRecord] = {}
    kinds: list[KindRecord] = []
    for name, inventory in inventories.by_name():
        if inventory.is_empty:
            continue
        records = [record.definition() for record in inventory.to_records()]
        classes = tuple(record.resource_class for record in records)
        body = inventory.describe()
        if classes != (name,) or body is not None:
            kinds.append(KindRecord(name, classes, body or ""))
        for record in records:
            if figures.setdefault(record.resource_class, record) is not record:
                raise exceptions.InvalidInventory(
                    f"inventory of {name}", record.resource_class, "classes counted nowhere else"
                )
    return tuple(figures.values()), tuple(kinds)


def inventories_of(
    records: Iterable[InventoryRecord], kinds: Iterable[KindRecord] = ()
) -> Inventories:
    """Return the inventories that are stored as some records; each kind reads its own."""
    by_class = {record.resource_class: record for record in records}
    inventories: dict[str, Inventory] = {}
    for kind in kinds:
        parts = [by_class.pop(name) for name in kind.classes if name in by_class]
        inventories[kind.resource_class] = resource(kind.resource_class).inventory_from_storage(
            parts, kind.body or None
        )
    for name, record in by_class.items():
        inventories[name] = resource(name).inventory_from_records([record])
    return Inventories.from_owned(inventories)


def to_definition(
    provider: Provider, uuid: str, parent_uuid: str | None, uuid_of: Mapping[str, str]
) -> ProviderDefinition:
    """Return a provider as records.

    :param uuid_of: the uuid of each provider of the tree, by name; a share of a provider that is
        not in it keeps the name, and breaks a rule
    """
    records, kinds = to_records(provider.inventories)
    shares = (
        ShareRecord(
            share.resource_class, uuid_of.get(share.of, share.of), share.of_class, share.factor
        )
        for share in provider.shares
    )
    return ProviderDefinition(
        uuid,
        provider.name,
        parent_uuid,
        records,
        provider.traits,
        provider.aggregates,
        tuple(sorted(shares)),
        kinds,
    )


def definitions_of(roots: Iterable[Provider]) -> dict[str, StoredDefinition]:
    """Return the stored definitions of trees that were read as objects. Cost: linear."""
    stored: dict[str, StoredDefinition] = {}
    for root in roots:
        uuid_of = {provider.name: provider.uuid or "" for provider in root.walk()}
        for provider, parent in root.parents():
            above = None if parent is None else parent.uuid
            definition = to_definition(provider, provider.uuid or "", above, uuid_of)
            stored[definition.uuid] = StoredDefinition(
                definition, provider.generation or 0, root.uuid or ""
            )
    return stored


def check_readable(definition: ProviderDefinition) -> None:
    """Raise unless a provider can be read again once it is stored.

    :raises InvalidInput: if its name is the uuid of another provider; if a trait is neither
        standard nor custom; for ``COMPUTE_STATUS_DISABLED``, which is never stored; for a share
        factor that is no count
    """
    name = definition.name
    if names.is_uuid(name) and names.uuid_text(name) != definition.uuid:
        raise exceptions.InvalidInput("name", "provider name", name, "no uuid but its own")
    checked_traits(definition.traits)
    refuse_trait(definition.traits, f"traits of {name}")
    for share in definition.shares:
        if type(share.factor) is not int or not 1 <= share.factor <= MAX_FIGURE:
            expected = f"an integer from 1 to {MAX_FIGURE}"
            raise exceptions.InvalidInput(
                "field", f"share factor of {name}", share.factor, expected
            )


# --- comparison -----------------------------------------------------------------------------------


def diff(stored: Provider | None, target: Provider) -> DefinitionChanges:
    """Return the changes that turn a stored tree into the target one. Cost: linear.

    Providers are matched by uuid where the target one has one, else by name.

    :param stored: the tree as read from the ledger, with uuids and generations; None if new
    :raises InvalidTree: if a name or uuid occurs twice in the target tree, or a share breaks a rule
    :raises Stale: if a target provider was read at another generation, or was removed since it was
        read

    >>> host = Provider("host0", "VCPU=8")
    >>> print(diff(None, host))
    + host0
    """
    return compare_tree({} if stored is None else definitions_of([stored]), target)


def compare_tree(stored: StoredDefinitions, target: Provider) -> DefinitionChanges:
    """Return the changes that turn one stored tree into the target one, as :func:`diff`."""
    target.check()
    uuid_of = _match(stored, target)
    definitions: list[ProviderDefinition] = []
    for provider, parent in target.parents():
        uuid = uuid_of[provider.name]
        if uuid in stored and provider.generation not in (None, stored[uuid].generation):
            raise exceptions.Stale(
                "provider",
                stored[uuid].definition.name,
                f"read at generation {provider.generation}, now {stored[uuid].generation}",
            )
        above = None if parent is None else uuid_of[parent.name]
        definitions.append(to_definition(provider, uuid, above, uuid_of))
    check_definition_shares(definitions)
    return changes_between(target.name, stored, definitions)


def _match(stored: StoredDefinitions, target: Provider) -> dict[str, str]:
    """Return the uuid of each target provider, by name: its own, a stored one, or a new one.

    A stored provider is matched by its name only if no target one has its uuid.
    """
    stated = {provider.uuid for provider in target.walk()}
    by_name = {entry.definition.name: uuid for uuid, entry in stored.items() if uuid not in stated}
    uuid_of: dict[str, str] = {}
    for provider in target.walk():
        uuid = provider.uuid if provider.uuid is not None else by_name.get(provider.name)
        uuid_of[provider.name] = uuid or str(uuids.uuid4())
        if provider.generation is not None and uuid not in stored:
            raise exceptions.Stale("provider", provider.name, "it was removed since it was read")
    return uuid_of


def changes_between(
    root: str,
    stored: StoredDefinitions,
    target: Iterable[ProviderDefinition],
    moved: Collection[str] = (),
) -> DefinitionChanges:
    """Return the changes that turn some stored trees into the target ones. Cost: linear.

    A stored provider that is not in the target is removed. The generation of an unchanged provider
    rises if children are added to it or removed from it, so that a tree that was read before is
    refused.

    :param root: the name of the changes
    :param target: all providers of the target trees, parents before children
    :param moved: providers that move to another tree: their generation rises too

    >>> uuid = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
    >>> host = ProviderDefinition(uuid, "host0", None, (), frozenset())
    >>> print(changes_between("host0", {}, [host]))
    + host0
    """
    creates: list[ProviderDefinition] = []
    updates: dict[str, ProviderUpdate] = {}
    remaining: set[str] = set()
    touched: set[str | None] = set(moved)
    for definition in target:
        before = stored.get(definition.uuid)
        if before is None:
            creates.append(definition)
            touched.add(definition.parent_uuid)
            continue
        remaining.add(definition.uuid)
        update = _update_of(before, definition)
        if update is not None:
            updates[definition.uuid] = update
            if definition.parent_uuid != before.definition.parent_uuid:
                touched |= {definition.parent_uuid, before.definition.parent_uuid}
    removals: list[ProviderRemoval] = []
    if len(remaining) < len(stored):
        for uuid in reversed([uuid for uuid in stored if uuid not in remaining]):
            definition = stored[uuid].definition
            removals.append(ProviderRemoval(uuid, definition.name, stored[uuid].generation))
            touched.add(definition.parent_uuid)
    if not touched.isdisjoint(stored):
        for uuid, entry in stored.items():
            if uuid in touched and uuid in remaining and uuid not in updates:
                definition = entry.definition
                updates[uuid] = ProviderUpdate(definition, entry.generation, definition, True)
    return DefinitionChanges(root, tuple(creates), tuple(updates.values()), tuple(removals))


def _update_of(stored: StoredDefinition, after: ProviderDefinition) -> ProviderUpdate | None:
    before = stored.definition
    if after.aggregates is None:
        after = dataclasses.replace(after, aggregates=before.aggregates)
    # the order of inventories and kinds makes no difference
    is_equal = before == after or (
        (before.name, before.parent_uuid, before.traits, before.aggregates, before.shares)
        == (after.name, after.parent_uuid, after.traits, after.aggregates, after.shares)
        and set(before.inventories) == set(after.inventories)
        and set(before.kinds) == set(after.kinds)
    )
    return None if is_equal else ProviderUpdate(after, stored.generation, before)


# --- edits of single providers --------------------------------------------------------------------


def changed_fields(
    name: str | None,
    inventories: Any,
    traits: Iterable[str] | None,
    aggregates: Iterable[str] | None,
) -> dict[str, Any]:
    """Return the checked fields of a definition that a change states; None states nothing."""
    fields: dict[str, Any] = {}
    if name is not None:
        fields["name"] = names.provider_name(name)
    if inventories is not None:
        fields["inventories"], fields["kinds"] = to_records(Inventories(inventories))
    if traits is not None:
        fields["traits"] = checked_traits(traits)
        refuse_trait(fields["traits"], "traits")
    if aggregates is not None:
        if isinstance(aggregates, str) or not isinstance(aggregates, Iterable):
            raise exceptions.InvalidInput("field", "aggregates", aggregates, "a list of names")
        fields["aggregates"] = frozenset(map(names.aggregate_name, aggregates))
    return fields


def tree_of(stored: StoredDefinitions, uuid: str) -> dict[str, StoredDefinition]:
    """Return the providers of the tree of one provider. Cost: linear."""
    root = stored[uuid].root_uuid
    return {uuid: entry for uuid, entry in stored.items() if entry.root_uuid == root}


def edited(
    stored: StoredDefinitions, edits: Mapping[str, Mapping[str, Any]], removed: str | None = None
) -> tuple[DefinitionChanges, tuple[tuple[str, int], ...]]:
    """Return the changes that edit some providers, or remove one and all providers below it.

    An edit may set another ``parent_uuid``; all providers below the provider move with it. The
    providers above the new parent must be unchanged when the changes are applied, or two moves at
    once could form a ring: their ``(uuid, generation)`` are returned too. Cost: linear.

    :param stored: all providers of the trees concerned
    :param edits: ``{uuid: {field of the definition: value}}``; uuids of other trees are ignored
    :raises AlreadyExists: if a name would be that of another provider of the trees
    :raises InvalidTree: if a share would break a rule; if a new parent is the provider or below it,
        or the tree would be too deep
    """
    removed_uuids = set() if removed is None else subtree(stored, removed)
    target: list[ProviderDefinition] = []
    uuid_of: dict[str, str] = {}
    parents: list[str | None] = []
    for uuid, entry in stored.items():
        if uuid in removed_uuids:
            continue
        definition, fields = entry.definition, edits.get(uuid)
        if fields:
            definition = dataclasses.replace(definition, **fields)
            check_readable(definition)
            if definition.parent_uuid != entry.definition.parent_uuid:
                parents.append(definition.parent_uuid)
        if uuid_of.setdefault(definition.name, uuid) != uuid:
            raise exceptions.AlreadyExists("provider", definition.name)
        target.append(definition)
    moved: set[str] = set()
    if parents:
        roots = check_trees(target)
        moved = {uuid for uuid, root in roots.items() if root != stored[uuid].root_uuid}
    else:
        check_definition_shares(target)
    root = target[0].name if target else next(iter(stored.values())).definition.name
    changes = changes_between(root, stored, target, moved)
    updated = {update.definition.uuid for update in changes.updates}
    unchanged: dict[str, int] = {}
    for parent in parents:
        while parent is not None:
            if parent not in updated:
                unchanged[parent] = stored[parent].generation
            parent = stored[parent].definition.parent_uuid
    return changes, tuple(unchanged.items())


def subtree(stored: StoredDefinitions, uuid: str) -> set[str]:
    """Return the uuids of a provider and of all providers below it. Cost: linear."""
    below = {uuid}
    for key, entry in stored.items():  # parents before children
        if entry.definition.parent_uuid in below:
            below.add(key)
    return below


def roots_of(parents: Mapping[_Id, _Id | None]) -> dict[_Id, _Id]:
    """Return the root of each provider, by uuid or by number.

    The root of providers that form a ring is one of them. A parent that is no key is no provider.
    Cost: linear.

    >>> roots_of({"host": None, "cell": "host", "cpu": "cell"})
    {'host': 'host', 'cell': 'host', 'cpu': 'host'}
    """
    roots: dict[_Id, _Id] = {}
    for uuid, parent in parents.items():
        if parent in roots:  # parents come first, nearly always
            roots[uuid] = roots[parent]
            continue
        top, path = uuid, dict[_Id, None]()
        while top not in roots and top not in path:
            path[top] = None
            above = parents[top]
            if above is None or above not in parents:
                break
            top = above
        roots.update(dict.fromkeys(path, roots.get(top, top)))
    return roots


def check_trees(definitions: Collection[ProviderDefinition]) -> dict[str, str]:
    """Return the root of each provider, or raise unless definitions are trees. Cost: linear.

    :param definitions: of whole trees
    :raises InvalidTree: if a provider is below itself, a tree is deeper than 100 levels, or a share
        breaks a rule
    """
    by_uuid = {definition.uuid: definition for definition in definitions}
    parents = {definition.uuid: definition.parent_uuid for definition in definitions}
    roots = roots_of(parents)
    for definition in definitions:
        if parents[roots[definition.uuid]] is not None:  # only a ring has a root with a parent
            parent = by_uuid[definition.parent_uuid or ""].name
            raise exceptions.InvalidTree(
                f"parent of {definition.name}", parent, "a provider not below itself"
            )
        depth, ancestor = 0, definition.parent_uuid
        while ancestor is not None and depth <= MAX_DEPTH:
            depth, ancestor = depth + 1, parents[ancestor]
        if depth > MAX_DEPTH:
            raise exceptions.InvalidTree(
                f"place of {definition.name}", f"{depth} levels deep", f"at most {MAX_DEPTH} levels"
            )
    check_definition_shares(definitions, roots)
    return roots


def check_definition_shares(
    definitions: Collection[ProviderDefinition], root_of: Mapping[str, str] | None = None
) -> None:
    """Raise ``InvalidTree``, naming provider and share, for a :func:`~.provider.broken_share`.

    Cost: linear.

    :param root_of: the root of each provider by uuid; None if all are of one tree
    """
    by_uuid = {definition.uuid: definition for definition in definitions}
    shares = [
        ((definition.uuid, share.resource_class), (share.of_uuid, share.of_class))
        for definition in sorted((d for d in definitions if d.shares), key=lambda d: d.name)
        for share in definition.shares
    ]
    if not shares:
        return
    counted = {(d.uuid, record.resource_class) for d in definitions for record in d.inventories}
    broken = broken_share(shares, root_of or dict.fromkeys(by_uuid), counted)
    if broken is None:
        return
    (uuid, resource_class), target, rule = broken
    sharer, other = by_uuid[uuid].name, by_uuid.get(target[0])
    name = target[0] if other is None else other.name
    if other is not None and target not in counted:
        uncounted = {end[1] for _, end in shares if end[0] == other.uuid and end not in counted}
        missing, text = ", ".join(sorted(uncounted)), inventories_of(other.inventories, other.kinds)
        expected = f"{missing} as well, since parts such as {sharer} are counted in it"
        raise exceptions.InvalidTree(f"inventories of {name}", str(text), expected)
    use = f"{resource_class} uses {target[1]} of {name}"
    raise exceptions.InvalidTree(f"shares of {sharer}", use, f"shares that {rule}")
