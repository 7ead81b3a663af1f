"""Definitions of providers as records, and the changes that lead from one definition to another.

A tree that is synced is compared with the stored definitions. The result is typed and printable. A
backend applies it in one transaction, each change only if the provider still has the generation
that was compared.
"""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from resource_objects import exceptions, names
from resource_objects.providers.disabled import refuse_trait
from resource_objects.providers.provider import (
    MAX_DEPTH,
    BrokenShare,
    Provider,
    broken_share,
)
from resource_objects.resources import Inventories, Inventory, resource
from resource_objects.resources.records import InventoryRecord, KindRecord
from resource_objects.resources.traits import known_traits

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


@dataclasses.dataclass(frozen=True, slots=True)
class StoredDefinition:
    """The stored definition of a provider, with its generation and the root of its tree."""

    definition: ProviderDefinition
    generation: int
    root_uuid: str


#: The stored providers of some trees by uuid, parents before children.
StoredDefinitions: TypeAlias = Mapping[str, StoredDefinition]


@dataclasses.dataclass(frozen=True, slots=True)
class ExpectedUse:
    """The amount of an inventory that was used when a change was worked out."""

    resource_class: str
    amount: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderUpdate:
    """A change of a stored provider: what differs between ``before`` and ``definition`` is written.

    Everything else stays as it is stored, and so does the usage of each inventory. ``before`` is
    the definition at ``generation``; it is None only in a plan that was read from a file of an
    older version, and then everything differs.

    ``children_changed`` marks a provider that changes only because children are added to it or
    removed from it: its generation rises, so that a tree that was read before is refused.
    ``expected_use`` lists inventories that must still be used as much as when the change was worked
    out. ``counts`` is the number of writes in Placement's count
    (``ListedProvider.definition_writes``).
    """

    definition: ProviderDefinition
    generation: int
    before: ProviderDefinition | None = None
    children_changed: bool = False
    expected_use: tuple[ExpectedUse, ...] = ()
    counts: int = 1

    @property
    def writes(self) -> int:
        """The number of writes in Placement's count: 0 where only the children change."""
        return 0 if self.children_changed else self.counts

    @property
    def changed(self) -> tuple[InventoryRecord, ...]:
        """The inventories to insert or overwrite, without their usage."""
        if self.before is None:
            return self.definition.inventories
        if self.before.inventories == self.definition.inventories:
            return ()
        before = set(self.before.inventories)
        return tuple(record for record in self.definition.inventories if record not in before)

    @property
    def removed(self) -> tuple[str, ...]:
        """The resource classes of the inventories to remove, sorted."""
        if self.before is None or self.before.inventories == self.definition.inventories:
            return ()
        stays = {record.resource_class for record in self.definition.inventories}
        before = {record.resource_class for record in self.before.inventories}
        return tuple(sorted(before - stays))

    @property
    def traits_added(self) -> frozenset[str]:
        """The traits that the provider gets."""
        before = _NO_NAMES if self.before is None else self.before.traits
        return self.definition.traits - before

    @property
    def traits_removed(self) -> frozenset[str]:
        """The traits that the provider loses."""
        before = _NO_NAMES if self.before is None else self.before.traits
        return before - self.definition.traits

    @property
    def aggregates_added(self) -> frozenset[str]:
        """The aggregates that the provider becomes a member of."""
        before, after = self._aggregates
        return after - before

    @property
    def aggregates_removed(self) -> frozenset[str]:
        """The aggregates that the provider leaves."""
        before, after = self._aggregates
        return before - after

    @property
    def _aggregates(self) -> tuple[frozenset[str], frozenset[str]]:
        before = (None if self.before is None else self.before.aggregates) or _NO_NAMES
        after = self.definition.aggregates
        return before, before if after is None else after

    @property
    def shares_changed(self) -> bool:
        """True if the shares of the definition replace the stored ones."""
        return self.definition.shares != (() if self.before is None else self.before.shares)

    @property
    def kinds_changed(self) -> bool:
        """True if the structured inventories of the definition replace the stored ones."""
        before = () if self.before is None else self.before.kinds
        return self.definition.kinds != before and set(self.definition.kinds) != set(before)

    def check_expected_use(self, resource_class: str, used: int) -> None:
        """Raise if a locked inventory is used otherwise than expected.

        :param used: the amount that is used now
        :raises Stale: naming the expected and the present amount
        """
        for expected in self.expected_use:
            if expected.resource_class == resource_class and expected.amount != used:
                raise exceptions.Stale(
                    "provider",
                    self.definition.name,
                    f"{expected.amount} of {resource_class} was used, now it is {used}",
                )


_NO_NAMES = frozenset[str]()


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderRemoval:
    """The removal of a stored provider, which must be unused."""

    uuid: str
    name: str
    generation: int


@dataclasses.dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """The changes of some trees: create top down, update, remove bottom up. False if empty.

    ``root`` is the name of the tree, by which a repeated operation is recognised.
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
    parts += ["shares"] * update.shares_changed + ["kinds"] * update.kinds_changed
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
        inventories[kind.resource_class] = resource(kind.resource_class).inventory_from_kept(
            parts, kind.body or None
        )
    for name, record in by_class.items():
        inventories[name] = resource(name).inventory_from_records([record])
    return Inventories.owning(inventories)


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
        standard nor custom; for ``COMPUTE_STATUS_DISABLED``, which is never stored
    """
    name = definition.name
    if names.is_uuid(name) and names.uuid_text(name) != definition.uuid:
        raise exceptions.InvalidInput("name", "provider name", name, "no uuid but its own")
    known_traits(definition.traits)
    refuse_trait(definition.traits, f"traits of {name}")


# --- comparison -----------------------------------------------------------------------------------


def diff(stored: Provider | None, target: Provider) -> DefinitionChanges:
    """Return the changes that turn a stored tree into the target one.

    Providers are matched by uuid where the target one has one, else by name. Neither tree is
    changed. Cost: linear in the providers.

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
    _check_shares(definitions)
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
    root: str, stored: StoredDefinitions, target: Iterable[ProviderDefinition]
) -> DefinitionChanges:
    """Return the changes that turn some stored trees into the target ones. Cost: linear.

    A stored provider that is not target is removed.

    :param root: the name of the changes
    :param target: all providers of the target trees, parents before children

    >>> uuid = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
    >>> host = ProviderDefinition(uuid, "host0", None, (), frozenset())
    >>> print(changes_between("host0", {}, [host]))
    + host0
    """
    creates: list[ProviderDefinition] = []
    updates: list[ProviderUpdate] = []
    stays: set[str] = set()
    for definition in target:
        before = stored.get(definition.uuid)
        if before is None:
            creates.append(definition)
            continue
        stays.add(definition.uuid)
        if definition.aggregates is None:
            aggregates = before.definition.aggregates
            definition = dataclasses.replace(definition, aggregates=aggregates)
        if not _is_equal(before.definition, definition):
            updates.append(ProviderUpdate(definition, before.generation, before.definition))
    removed = [uuid for uuid in stored if uuid not in stays] if len(stays) < len(stored) else []
    updates += _parents_of_changed_children(stored, creates, updates, removed)
    return DefinitionChanges(
        root,
        tuple(creates),
        tuple(updates),
        tuple(
            ProviderRemoval(uuid, stored[uuid].definition.name, stored[uuid].generation)
            for uuid in reversed(removed)
        ),
    )


def _is_equal(before: ProviderDefinition, after: ProviderDefinition) -> bool:
    """Return True if two definitions are equal but for the order of inventories and kinds."""
    return before == after or (
        (before.name, before.parent_uuid, before.traits, before.aggregates, before.shares)
        == (after.name, after.parent_uuid, after.traits, after.aggregates, after.shares)
        and set(before.inventories) == set(after.inventories)
        and set(before.kinds) == set(after.kinds)
    )


def _parents_of_changed_children(
    stored: StoredDefinitions,
    creates: Iterable[ProviderDefinition],
    updates: Iterable[ProviderUpdate],
    removed: Iterable[str],
) -> Iterator[ProviderUpdate]:
    """Yield an update for each unchanged parent whose children are added or removed.

    It raises the parent's generation, so that a tree that was read before is refused.
    """
    parents = {definition.parent_uuid for definition in creates}
    for update in updates:
        above = stored[update.definition.uuid].definition.parent_uuid
        if above != update.definition.parent_uuid:
            parents |= {update.definition.parent_uuid, above}
    parents |= {stored[uuid].definition.parent_uuid for uuid in removed}
    parents -= {*removed, *(update.definition.uuid for update in updates)}
    if not parents.isdisjoint(stored):
        for uuid, entry in stored.items():
            if uuid in parents:
                yield ProviderUpdate(entry.definition, entry.generation, entry.definition, True)


# --- changes of single providers ------------------------------------------------------------------


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
        fields["traits"] = known_traits(traits)
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


def with_changes(
    tree: StoredDefinitions, edits: Mapping[str, Mapping[str, Any]]
) -> DefinitionChanges:
    """Return the changes that give some providers of a tree other fields. Cost: linear.

    :param tree: all providers of the tree
    :param edits: the fields of a definition that change, as ``{uuid: {field: value}}``
    :raises AlreadyExists: if a name would be that of another provider of the tree
    :raises InvalidTree: if a share would break a rule
    """
    target: list[ProviderDefinition] = []
    for uuid, entry in tree.items():
        fields = edits.get(uuid)
        target.append(
            dataclasses.replace(entry.definition, **fields) if fields else entry.definition
        )
        if fields:
            check_readable(target[-1])
    called: dict[str, str] = {}
    for definition in target:
        if called.setdefault(definition.name, definition.uuid) != definition.uuid:
            raise exceptions.AlreadyExists("provider", definition.name)
    _check_shares(target)
    return changes_between(target[0].name, tree, target)


def removed(tree: StoredDefinitions, uuid: str) -> DefinitionChanges:
    """Return the changes that remove a provider of a tree, and all providers below it.

    :raises InvalidTree: if a share of a provider that stays leads to a removed one
    """
    below = subtree(tree, uuid)
    target = [entry.definition for key, entry in tree.items() if key not in below]
    _check_shares(target)
    return changes_between(next(iter(tree.values())).definition.name, tree, target)


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


def check_trees(definitions: Collection[ProviderDefinition]) -> None:
    """Raise unless definitions, parents before children, are trees. Cost: linear.

    :raises InvalidTree: if a tree is deeper than 100 levels, or a share breaks a rule
    """
    depths: dict[str | None, int] = {None: -1}
    roots: dict[str, str] = {}
    for definition in definitions:
        uuid, parent = definition.uuid, definition.parent_uuid
        depths[uuid] = depths[parent] + 1
        roots[uuid] = uuid if parent is None else roots[parent]
        if depths[uuid] > MAX_DEPTH:
            raise exceptions.InvalidTree(
                "parent of a provider", definition.name, f"at most {MAX_DEPTH} levels"
            )
    _check_shares(list(definitions), roots)


def _check_shares(
    definitions: Sequence[ProviderDefinition], root_of: Mapping[str, str] | None = None
) -> None:
    broken = share_problem(definitions, root_of)
    if broken is None:
        return
    (sharer, resource_class), (target, of_class) = broken.sharer, broken.target
    by_uuid = {definition.uuid: definition for definition in definitions}
    of = by_uuid.get(target)
    classes = {record.resource_class for record in of.inventories} if of is not None else set()
    if of is None or of_class in classes:
        raise exceptions.InvalidTree(
            f"shares of {by_uuid[sharer].name}",
            f"{resource_class} uses {of_class} of {target if of is None else of.name}",
            f"shares that {broken.rule}",
        )
    missing = {
        share.of_class: definition.name
        for definition in definitions
        for share in definition.shares
        if share.of_uuid == target and share.of_class not in classes
    }
    raise exceptions.InvalidTree(
        f"inventories of {of.name}",
        str(inventories_of(of.inventories, of.kinds)),
        f"{', '.join(missing)} as well, since parts such as {next(iter(missing.values()))} "
        "are counted in it",
    )


def share_problem(
    target: Iterable[ProviderDefinition], root_of: Mapping[str, str] | None = None
) -> BrokenShare | None:
    """Return a share that breaks a rule, by uuid, or None. Cost: linear.

    :param root_of: the root of each provider by uuid; None if all are of one tree
    """
    definitions = list(target)
    shares = [
        ((definition.uuid, share.resource_class), (share.of_uuid, share.of_class))
        for definition in definitions
        for share in definition.shares
    ]
    if not shares:
        return None
    counted = {
        (definition.uuid, record.resource_class)
        for definition in definitions
        for record in definition.inventories
    }
    if root_of is None:
        root_of = dict.fromkeys((uuid for uuid, _ in counted), "")
    return broken_share(shares, root_of, counted)


@dataclasses.dataclass(frozen=True, slots=True)
class Reparenting:
    """The changes that reparent a provider, and the generations that they rely on."""

    changes: DefinitionChanges
    unchanged: tuple[tuple[str, int], ...] = ()


def reparented(stored: StoredDefinitions, uuid: str, parent_uuid: str | None) -> Reparenting:
    """Return the changes that make a provider a child of another one, or a root.

    All providers below it move too; their generations rise if they move to another tree. The
    providers above the new parent must be unchanged when the changes are applied, or two moves at
    once could form a ring.

    :param stored: the trees of both
    :raises InvalidTree: if the parent is the provider or below it, a share would lead to another
        tree, or the tree would be too deep
    """
    provider = stored[uuid].definition
    if parent_uuid == provider.parent_uuid:
        return Reparenting(DefinitionChanges(provider.name))
    above = _path(stored, parent_uuid)
    below = subtree(stored, uuid)
    if parent_uuid is not None and parent_uuid in below:
        raise exceptions.InvalidTree(
            f"parent of {provider.name}",
            stored[parent_uuid].definition.name,
            "a provider not below it",
        )
    depth = len(above) + max(len(_path(stored, key)) for key in below) - len(_path(stored, uuid))
    if depth > MAX_DEPTH:
        raise exceptions.InvalidTree(
            f"place of {provider.name}", f"{depth} levels deep", f"at most {MAX_DEPTH} levels"
        )
    touched = [key for key in (provider.parent_uuid, parent_uuid) if key is not None]
    if not above or above[-1] != stored[uuid].root_uuid:
        _check_shares_within(tree_of(stored, uuid), below, provider.name)
        touched = [*(key for key in stored if key in below and key != uuid), *touched]
    moved = dataclasses.replace(provider, parent_uuid=parent_uuid)
    updates = [ProviderUpdate(moved, stored[uuid].generation, provider)]
    updates += [
        ProviderUpdate(entry.definition, entry.generation, entry.definition, True)
        for entry in map(stored.__getitem__, touched)
    ]
    return Reparenting(
        DefinitionChanges(provider.name, updates=tuple(updates)),
        tuple((key, stored[key].generation) for key in above if key not in {uuid, *touched}),
    )


def _path(stored: StoredDefinitions, uuid: str | None) -> list[str]:
    """Return the uuids from a provider up to its root."""
    path: list[str] = []
    while uuid is not None:
        path.append(uuid)
        uuid = stored[uuid].definition.parent_uuid
    return path


def _check_shares_within(tree: StoredDefinitions, below: set[str], name: str) -> None:
    for uuid, entry in tree.items():
        for share in entry.definition.shares:
            if (uuid in below) != (share.of_uuid in below):
                raise exceptions.InvalidTree(
                    f"shares of {entry.definition.name}",
                    f"{share.resource_class} uses {share.factor} {share.of_class} of "
                    f"{tree[share.of_uuid].definition.name}",
                    f"none across the move of {name}",
                )


def with_reparenting(changes: DefinitionChanges, move: Reparenting) -> DefinitionChanges:
    """Return the changes of a provider together with those that reparent it."""
    updates = {update.definition.uuid: update for update in move.changes.updates}
    for update in changes.updates:
        uuid = update.definition.uuid
        if uuid in updates:
            parent = updates[uuid].definition.parent_uuid
            definition = dataclasses.replace(update.definition, parent_uuid=parent)
            update = dataclasses.replace(update, definition=definition)
        updates[uuid] = update
    return dataclasses.replace(move.changes, updates=tuple(updates.values()))
