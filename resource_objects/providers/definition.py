"""What changes when a tree is synced: a pure comparison of what is kept with what is wanted.

The result is typed and printable; a backend applies it in one transaction, each change only if the
provider's generation is still the one that was compared with.
"""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects.providers.disabled import refuse_trait
from resource_objects.providers.provider import MAX_DEPTH, Provider, Share
from resource_objects.resources import Inventories, resource
from resource_objects.resources.records import InventoryRecord, KindRecord
from resource_objects.resources.traits import known_traits


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class ShareRecord:
    """A share as kept: each unit of a class taken here takes ``factor`` of another elsewhere."""

    resource_class: str
    of_uuid: str
    of_class: str
    factor: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderDefinition:
    """Everything a provider's generation stands for, as records.

    ``aggregates`` are None where nothing is said about them: of one that is created, that it is in
    none. ``shares`` are sorted.
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
class KeptDefinition:
    """A provider as kept: its definition, at a generation, in the tree of a root."""

    definition: ProviderDefinition
    generation: int
    root_uuid: str


#: Providers of some trees as kept, by uuid, parents before children.
KeptDefinitions: TypeAlias = Mapping[str, KeptDefinition]


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
        :raises StaleDefinition: naming the expected and the present amount
        """
        for expected in self.expected_use:
            if expected.resource_class == resource_class and expected.amount != used:
                raise exceptions.StaleDefinition(
                    self.definition.name,
                    f"{expected.amount} of {resource_class} was used, now it is {used}",
                )


_NO_NAMES = frozenset[str]()


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderRemoval:
    """A provider that is kept and shall go, which only an unused one may."""

    uuid: str
    name: str
    generation: int


@dataclasses.dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """What to do to a tree: create top down, update, remove bottom up. False when nothing.

    ``root`` is the name of the tree, by which a repeated operation is recognised.
    """

    root: str
    creates: tuple[ProviderDefinition, ...] = ()
    updates: tuple[ProviderUpdate, ...] = ()
    removals: tuple[ProviderRemoval, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.creates or self.updates or self.removals)

    def __str__(self) -> str:
        lines = [f"+ {created.name}" for created in self.creates]
        lines += [f"~ {_said(update)}" for update in self.updates if not update.children_changed]
        lines += [f"- {removal.name}" for removal in self.removals]
        return "\n".join(lines) or "nothing changed"


def merge_changes(root: str, parts: Iterable[DefinitionChanges]) -> DefinitionChanges:
    """Return the changes of several trees as one, to be made in one transaction."""
    found = list(parts)
    return DefinitionChanges(
        root,
        tuple(one for part in found for one in part.creates),
        tuple(one for part in found for one in part.updates),
        tuple(one for part in found for one in part.removals),
    )


def diff(kept: Provider | None, wanted: Provider) -> DefinitionChanges:
    """Return what turns the kept tree into the wanted one.

    Providers are matched by uuid where the wanted one has one, else by name. Pure: neither tree
    changes. Cost: linear in the providers.

    :param kept: the tree as read from the ledger, with uuids and generations; None if there is none
    :raises InvalidTree: if a name or uuid is in the wanted tree twice, or a share refers to what
        is not in it
    :raises StaleDefinition: if a wanted provider was read at another generation, or was read and
        is gone

    >>> host = Provider("host0", "VCPU=8")
    >>> print(diff(None, host))
    + host0
    """
    wanted.check()
    wanted.check_shares()
    before = {} if kept is None else kept_of([kept])
    uuid_of = _match(before, wanted)
    names = {provider.name: uuid_of[id(provider)] for provider in wanted.walk()}
    wants: list[ProviderDefinition] = []
    for provider, parent in wanted.parents():
        uuid = uuid_of[id(provider)]
        if uuid in before:
            _check_generation(before[uuid], provider)
        above = None if parent is None else uuid_of[id(parent)]
        wants.append(definition_of(provider, uuid, above, names))
    return changes_between(wanted.name, before, wants)


def kept_of(roots: Iterable[Provider]) -> dict[str, KeptDefinition]:
    """Return the providers of trees that were read as they are kept. Cost: linear."""
    found: dict[str, KeptDefinition] = {}
    for root in roots:
        names = {provider.name: provider.uuid or "" for provider in root.walk()}
        for one, parent in root.parents():
            above = None if parent is None else parent.uuid
            definition = definition_of(one, one.uuid or "", above, names)
            found[definition.uuid] = KeptDefinition(
                definition, one.generation or 0, root.uuid or ""
            )
    return found


def _match(before: KeptDefinitions, wanted: Provider) -> dict[int, str]:
    """Return the uuid of each wanted provider: its own, that of its name, or a new one.

    A name stands for a kept provider only if no wanted one claims that by its uuid.
    """
    claimed = {provider.uuid for provider in wanted.walk()}
    by_name = {kept.definition.name: uuid for uuid, kept in before.items() if uuid not in claimed}
    found: dict[int, str] = {}
    for provider in wanted.walk():
        known = provider.uuid if provider.uuid is not None else by_name.get(provider.name)
        found[id(provider)] = known or str(uuids.uuid4())
        if provider.generation is not None and known not in before:
            raise exceptions.StaleDefinition(provider.name, "it was read, and is gone")
    return found


def _check_generation(kept: KeptDefinition, wanted: Provider) -> None:
    if wanted.generation not in (None, kept.generation):
        raise exceptions.StaleDefinition(
            kept.definition.name, f"read at generation {wanted.generation}, now {kept.generation}"
        )


def changes_between(
    root: str, kept: KeptDefinitions, wanted: Iterable[ProviderDefinition]
) -> DefinitionChanges:
    """Return what turns some trees into others: what is not wanted goes. Cost: linear.

    :param root: what the changes are called
    :param wanted: all of the trees, parents before children

    >>> uuid = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
    >>> host = ProviderDefinition(uuid, "host0", None, (), frozenset())
    >>> print(changes_between("host0", {}, [host]))
    + host0
    """
    creates: list[ProviderDefinition] = []
    updates: list[ProviderUpdate] = []
    stays: set[str] = set()
    for one in wanted:
        before = kept.get(one.uuid)
        if before is None:
            creates.append(one)
            continue
        stays.add(one.uuid)
        if one is not before.definition:
            updates += _update(before, one)
    gone = [uuid for uuid in kept if uuid not in stays] if len(stays) < len(kept) else []
    updates += _parents_of_changed_children(kept, creates, updates, gone)
    removals = ((kept[uuid].definition, kept[uuid].generation) for uuid in reversed(gone))
    return DefinitionChanges(
        root,
        tuple(creates),
        tuple(updates),
        tuple(ProviderRemoval(one.uuid, one.name, generation) for one, generation in removals),
    )


def _parents_of_changed_children(
    kept: KeptDefinitions,
    creates: Iterable[ProviderDefinition],
    updates: Iterable[ProviderUpdate],
    gone: Iterable[str],
) -> Iterator[ProviderUpdate]:
    """Yield an update for each parent whose children come or go and that stays as it is.

    It raises the parent's generation, so that a tree read before is noticed to be old.
    """
    moved = {definition.parent_uuid for definition in creates}
    for update in updates:
        above = kept[update.definition.uuid].definition.parent_uuid
        if above != update.definition.parent_uuid:
            moved |= {update.definition.parent_uuid, above}
    moved |= {kept[uuid].definition.parent_uuid for uuid in gone}
    moved -= {*gone, *(update.definition.uuid for update in updates)}
    if moved.isdisjoint(kept):
        return
    for uuid, before in kept.items():
        if uuid in moved:
            yield ProviderUpdate(before.definition, before.generation, before.definition, True)


def definition_of(
    provider: Provider, uuid: str, parent_uuid: str | None, names: Mapping[str, str]
) -> ProviderDefinition:
    """Return a provider as records; ``names`` are those of its tree, for what its shares name."""
    records, kinds = to_records(provider.inventories)
    shares = (
        ShareRecord(share.resource_class, names[share.of], share.of_class, share.factor)
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


def to_records(
    inventories: Inventories,
) -> tuple[tuple[InventoryRecord, ...], tuple[KindRecord, ...]]:
    """Return inventories as they are stored, without usage: figures, and the records of kinds.

    An inventory whose total became 0 is not stored.

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


def _update(before: KeptDefinition, wants: ProviderDefinition) -> list[ProviderUpdate]:
    """Return what turns one kept provider into the wanted one, nothing if it is that."""
    has = before.definition
    if wants.aggregates is None:
        wants = dataclasses.replace(wants, aggregates=has.aggregates)
    return [] if has == wants else [ProviderUpdate(wants, before.generation, has)]


def _said(update: ProviderUpdate) -> str:
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


# --- changes of single providers ------------------------------------------------------------------
#
# Changes of single providers of a kept tree: the tree as it is wanted, or the changes. Pure.


def edited(root: Provider, edits: Mapping[str, Mapping[str, Any]]) -> Provider:
    """Return a tree like a kept one, with other fields at some providers; it is not changed.

    Shares follow a provider that gets another name. Cost: linear in the tree.

    :param edits: ``{uuid: {field: value}}``

    >>> host = Provider("host0", "VCPU=8", uuid="1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33")
    >>> print(edited(host, {host.uuid: {"inventories": "VCPU=16"}}))
    host0: VCPU=16
    """
    renamed = {
        provider.name: changes["name"]
        for provider in root.walk()
        if "name" in (changes := edits.get(provider.uuid or "", {}))
    }
    made: dict[int, Provider] = {}
    for provider in reversed(list(root.walk())):  # children before parents
        children = [made.pop(id(child)) for child in provider.children]
        made[id(provider)] = _rebuilt(
            provider, children, edits.get(provider.uuid or "", {}), renamed
        )
    return made[id(root)]


def _rebuilt(
    provider: Provider,
    children: list[Provider],
    changes: Mapping[str, Any],
    renamed: Mapping[str, str],
) -> Provider:
    """Return a provider with changes, or the one given where nothing of it changes."""
    shares = [_renamed(share, renamed) for share in provider.shares]
    same = all(now is before for now, before in zip(children, provider.children, strict=True))
    if same and not changes and all(s is b for s, b in zip(shares, provider.shares, strict=True)):
        return provider
    fields = {
        name: getattr(provider, name)
        for name in ("name", "inventories", "traits", "uuid", "generation", "aggregates")
    }
    return Provider(**{**fields, "children": children, "shares": shares, **changes})


def _renamed(share: Share, renamed: Mapping[str, str]) -> Share:
    return share.replace(of=renamed[share.of]) if share.of in renamed else share


def changed_fields(
    name: str | None,
    inventories: Any,
    traits: Iterable[str] | None,
    aggregates: Iterable[str] | None,
) -> dict[str, Any]:
    """Return the fields that a change of a provider gives, checked; None leaves one."""
    found: dict[str, Any] = {}
    if name is not None:
        found["name"] = names.provider_name(name)
    if inventories is not None:
        found["inventories"] = Inventories(inventories)
    if traits is not None:
        found["traits"] = known_traits(traits)
        refuse_trait(found["traits"], "traits")
    if aggregates is not None:
        if isinstance(aggregates, str) or not isinstance(aggregates, Iterable):
            raise exceptions.InvalidField("aggregates", aggregates, "a list of names")
        found["aggregates"] = frozenset(names.aggregate_name(one) for one in aggregates)
    return found


def changed_provider(
    root: Provider, provider: Provider, fields: Mapping[str, Any]
) -> DefinitionChanges:
    """Return what gives one provider of a tree other fields."""
    if not fields:
        return DefinitionChanges(root.name)
    to = str(fields.get("name"))
    if "name" in fields and any(one.name == to and one is not provider for one in root.walk()):
        raise exceptions.ProviderExists(to)
    return diff(root, edited(root, {provider.uuid or "": fields}))


def with_move(changes: DefinitionChanges, move: Moved) -> DefinitionChanges:
    """Return changes of a provider with those that move it."""
    updates = {update.definition.uuid: update for update in move.changes.updates}
    for update in changes.updates:
        uuid = update.definition.uuid
        if uuid in updates:
            parent = updates[uuid].definition.parent_uuid
            definition = dataclasses.replace(update.definition, parent_uuid=parent)
            update = dataclasses.replace(update, definition=definition)
        updates[uuid] = update
    return dataclasses.replace(move.changes, updates=tuple(updates.values()))


def removed(root: Provider, provider: Provider) -> DefinitionChanges:
    """Return what takes a provider, and all below it, out of a tree."""
    if provider is not root:
        return diff(root, without_provider(root, provider))
    gone = (
        ProviderRemoval(one.uuid or "", one.name, one.generation or 0)
        for one in reversed(list(root.walk()))
    )
    return DefinitionChanges(root.name, removals=tuple(gone))


def without_provider(root: Provider, gone: Provider) -> Provider:
    """Return a tree like a kept one without one provider (not the root) and all below it."""
    for provider in root.walk():
        if any(child is gone for child in provider.children):
            left = [child for child in provider.children if child is not gone]
            return edited(root, {provider.uuid or "": {"children": left}})
    return root


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """What moves a provider: the changes, and what must not have changed meanwhile."""

    changes: DefinitionChanges
    unchanged: tuple[tuple[str, int], ...] = ()


def moved(roots: Iterable[Provider], provider: Provider, parent: Provider | None) -> Moved:
    """Return what makes a provider of some kept trees a child of another one, or a root.

    Everything below goes with it, and so its generation rises too where the tree is another one.
    Of those above the new parent nobody may move meanwhile, or the way up would have no end.

    :raises InvalidTree: if the parent is the provider or below it, a share would cross trees, or
        the tree would be too deep
    """
    above = {id(one): up for root in roots for one, up in root.parents()}
    before = above[id(provider)]
    if parent is before:
        return Moved(DefinitionChanges(provider.name))
    way, way_before = list(_upwards(parent, above)), list(_upwards(provider, above))
    if any(one is provider for one in way):
        raise exceptions.InvalidTree(
            f"parent of {provider.name}", parent and parent.name, "a provider not below it"
        )
    _check_depth(provider, len(way))
    is_other_tree = not way or way[-1] is not way_before[-1]
    if is_other_tree:
        _check_shares(way_before[-1], provider)
    below = [one for one in provider.walk() if one is not provider] if is_other_tree else []
    touched = [*below, *(one for one in (before, parent) if one is not None)]
    uuids = {one.name: one.uuid or "" for root in roots for one in root.walk()}
    updates = [_moved_update(provider, before, parent, uuids)]
    updates += [_moved_update(one, above[id(one)], above[id(one)], uuids) for one in touched]
    guarded = {update.definition.uuid for update in updates}
    return Moved(
        DefinitionChanges(provider.name, updates=tuple(updates)),
        tuple((one.uuid or "", one.generation or 0) for one in way if one.uuid not in guarded),
    )


def _upwards(provider: Provider | None, above: Mapping[int, Provider | None]) -> Iterator[Provider]:
    while provider is not None:
        yield provider
        provider = above[id(provider)]


def _moved_update(
    provider: Provider,
    before: Provider | None,
    parent: Provider | None,
    uuids: Mapping[str, str],
) -> ProviderUpdate:
    """Return the update from one parent to another; only the children change if it is the same."""
    above, wanted_above = (None if one is None else one.uuid for one in (before, parent))
    had = definition_of(provider, provider.uuid or "", above, uuids)
    wanted = dataclasses.replace(had, parent_uuid=wanted_above)
    return ProviderUpdate(wanted, provider.generation or 0, had, parent is before)


def _check_shares(root: Provider, leaving: Provider) -> None:
    """Raise if a share of a tree would lead out of what leaves it, or into that."""
    names = {one.name for one in leaving.walk()}
    for one in root.walk():
        for share in one.shares:
            if (one.name in names) != (share.of in names):
                raise exceptions.InvalidTree(
                    f"shares of {one.name}", str(share), f"none across the move of {leaving.name}"
                )


def _check_depth(provider: Provider, above: int) -> None:
    """Raise if a subtree would be too deep below so many providers."""
    level, depth = [provider], above - 1
    while level:
        level, depth = [child for one in level for child in one.children], depth + 1
    if depth > MAX_DEPTH:
        raise exceptions.InvalidTree(
            f"place of {provider.name}", f"{depth} levels deep", f"at most {MAX_DEPTH} levels"
        )
