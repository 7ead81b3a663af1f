"""Declaring: what providers are there, and what they have.

Every write of definitions is done in one way: compare what is wanted with the trees as they are
kept, write the difference at the generations that were read, and again if somebody was faster.
"""

from __future__ import annotations

import dataclasses
import hashlib
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects.ledger.context import Store
from resource_objects.ledger.reading import Reader
from resource_objects.providers import DefinitionChanges, Provider
from resource_objects.providers.arguments import any_generation
from resource_objects.providers.columns import Columns
from resource_objects.providers.consistency import (
    check_consistent,
    conflicting_holders,
    has_devices,
    renumbered,
)
from resource_objects.providers.definition import (
    StoredDefinition,
    StoredDefinitions,
    compare_tree,
    merge_changes,
    removed,
    reparented,
    tree_of,
    with_changes,
    with_reparenting,
)
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.holders import describe_holders, unattributed
from resource_objects.providers.listing import (
    MOST_ROWS,
    ConsumerFilter,
    ListedProvider,
    ProviderFilter,
)
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Key,
    Operation,
    Write,
)
from resource_objects.providers.pools import SHARES, newly_counted
from resource_objects.providers.reshape import Move, Reshape, merge_moves
from resource_objects.providers.reshape_plan import ReshapePlanner
from resource_objects.providers.row_diff import stored_definitions

#: A parent that is not given, as None makes a provider a root.
Parent: TypeAlias = str | types.EllipsisType | None

#: What tells that somebody was faster, so that what moves allocations is worked out again.
FASTER = (
    "StaleDefinition",
    "StaleConsumer",
    "InventoryInUse",
    "ProviderInUse",
)


@dataclasses.dataclass(frozen=True, slots=True)
class SyncResult:
    """The numbers of providers that a write of definitions changed. True if any was changed.

    ``changes`` lists the changes, ``moved_consumers`` the consumers whose allocations moved to
    other providers. The repetition of an operation changes nothing.
    """

    created: int
    updated: int
    removed: int
    changes: tuple[DefinitionChanges, ...] = dataclasses.field(default=(), repr=False)
    disabled: int = 0  #: put out of service by it
    enabled: int = 0
    moved_consumers: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        changes: Iterable[DefinitionChanges],
        disabling: Iterable[DisableOrder] = (),
        orders: Iterable[ConsumerOrder] = (),
    ) -> SyncResult:
        """Return the result of some changes, one per tree."""
        done = tuple(changes)
        out = [one.reason is None for one in disabling]
        return cls(
            created=sum(len(one.creates) for one in done),
            updated=sum(not update.children_changed for one in done for update in one.updates),
            removed=sum(len(one.removals) for one in done),
            changes=done,
            disabled=len(out) - out.count(True),
            enabled=out.count(True),
            moved_consumers=tuple(order.consumer for order in orders),
        )

    def __bool__(self) -> bool:
        counts = self.created, self.updated, self.removed, self.disabled, self.enabled
        return any(counts)

    def __str__(self) -> str:
        said = [str(change) for change in self.changes if change]
        counts = ((self.disabled, "disabled"), (self.enabled, "enabled"))
        said += [f"{count} {word}" for count, word in counts if count]
        if self.moved_consumers:
            said.append(f"allocations of {len(self.moved_consumers)} moved")
        return "\n".join(said) or "nothing changed"


#: What a repetition did.
_NOTHING = SyncResult(0, 0, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """What a write of definitions would change, found by comparing with trees as they are kept.

    ``unchanged``, ``reported``, ``disabling`` and ``orders`` are those of the write. ``moves`` are
    those that the orders come of, also where none does: whoever claims meanwhile is to be moved
    too. ``names`` are those of providers by uuid that orders mention and ``kept`` has not.
    """

    kept: StoredDefinitions
    changes: tuple[DefinitionChanges, ...]
    unchanged: tuple[tuple[str, int], ...] = ()
    reported: tuple[str, ...] = ()
    disabling: tuple[DisableOrder, ...] = ()
    orders: tuple[ConsumerOrder, ...] = ()
    moves: tuple[Move, ...] = ()
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)


def _renamed(found: Difference) -> dict[str, str]:
    """Return who holds what nobody in particular uses of hosts that are renamed, by who held it.

    Who is moved by the same write is left out: that order says what becomes of it.
    """
    taken = {order.consumer for order in found.orders}
    pairs: dict[str, str] = {}
    for update in (one for change in found.changes for one in change.updates):
        now, before = update.definition, found.kept[update.definition.uuid].definition
        if now.parent_uuid is None and before.parent_uuid is None and now.name != before.name:
            old, new = unattributed(before.name), unattributed(now.name)
            if taken.isdisjoint((old, new)):
                pairs[old] = new
    return pairs


class Definitions:
    """The definitions of a ledger; :class:`~resource_objects.ledger.Ledger` says what each does."""

    def __init__(self, store: Store, reader: Reader) -> None:
        self._store = store
        self._reader = reader

    def sync(
        self, roots: Sequence[Provider], operation: str | None, moves: Sequence[Move] = ()
    ) -> SyncResult:
        check_roots(roots)
        subject = subject_of_roots([root.name for root in roots])
        kind = "reshape" if moves else "define"
        doing, done = self._store.begin(operation, kind, subject)
        if done is not None or not roots:
            return SyncResult.of(DefinitionChanges(root.name) for root in roots)
        return self._define(doing, kind, subject, lambda: self.compared(roots, moves))

    def compared(self, roots: Sequence[Provider], moves: Iterable[Move] = ()) -> Difference:
        """Compare trees with what is kept of them, and say which allocations go where.

        Cost: one read, without allocations. Where moves are given and definitions change, another
        one, with allocations, and one of the consumers that moves concern.

        :param moves: what of these trees is counted elsewhere from now on, as
            :func:`~resource_objects.providers.reshape_plan.inventory_moves` reads it
        :raises InvalidPlan: as :func:`~resource_objects.providers.reshape_plan.ReshapePlanner.plan`
        """
        keys = [root.uuid or root.name for root in roots]
        read = self._store.backend.read
        found = compared(read(*keys, allocations=False) if keys else Columns(), roots)
        asked = merge_moves(moves)
        if not asked or not any(found.changes):
            return found
        return self.moving(roots, asked)

    def moving(self, roots: Sequence[Provider], moves: tuple[Move, ...]) -> Difference:
        """Compare trees with what is kept of them and of allocations; say which of these go where.

        Cost: one read of the trees, with allocations, and one of the consumers concerned.

        :param moves: at most one from each place: see
            :func:`~resource_objects.providers.reshape.merge_moves`
        :raises Stale: if a tree was read and has changed since
        """
        reshape = Reshape(moves)
        keys = [root.uuid or root.name for root in roots]

        def attempt() -> Difference:
            columns = self._store.backend.read(*keys)
            found = compared(columns, roots)
            changes = merge_changes("", found.changes)
            planner = ReshapePlanner(reshape, columns, changes)
            plan = planner.plan(self._store.backend.held_by(planner.consumers))
            held_to = _as_planned(found.changes, plan.definitions)
            return dataclasses.replace(
                found, changes=held_to, orders=plan.orders, moves=moves, names=plan.names
            )

        # who changed what it holds between the two reads; who does so later, the write sees
        return self._store.retries.retry(attempt, "StaleConsumer")

    def remove(self, name: str, operation: str | None) -> SyncResult:
        key = names.provider_key(name)

        def compare() -> Difference:
            stored = self.read(key)
            uuid = find_stored(stored, key)
            tree = tree_of(stored, uuid)
            return Difference(tree, (removed(tree, uuid),))

        return self.write("define", key, operation, compare)

    def change(
        self,
        provider: str,
        fields: Mapping[str, Any],
        parent: Parent,
        generation: int | None,
        operation: str | None,
    ) -> SyncResult:
        key, read_at = names.provider_key(provider), any_generation(generation)
        above = parent if parent is None or parent is ... else names.provider_key(parent)
        keys = [key] if above is None or above is ... else [key, above]

        def compare() -> Difference:
            stored = self.read(*keys)
            uuid = find_stored(stored, key, read_at)
            tree = tree_of(stored, uuid)
            changes = with_changes(tree, {uuid: fields})
            if above is ...:
                return Difference(tree, (changes,))
            move = reparented(stored, uuid, above and find_stored(stored, above))
            return Difference(stored, (with_reparenting(changes, move),), move.unchanged)

        kind = "define" if above is ... else "reparent"
        return self.write("rename" if set(fields) == {"name"} else kind, key, operation, compare)

    # --- how all of them are done ---

    def read(self, *keys: str) -> StoredDefinitions:
        """Return the stored definitions of the trees of some providers. Cost: one read."""
        return stored_definitions(self._store.backend.read(*keys, allocations=False))

    def write(
        self, kind: str, subject: str, operation: str | None, compare: Callable[[], Difference]
    ) -> SyncResult:
        """Compare and write, again if somebody changed the trees in between."""
        doing, done = self._store.begin(operation, kind, subject)
        return _NOTHING if done is not None else self._define(doing, kind, subject, compare)

    def following(self, found: Difference) -> tuple[ConsumerOrder, ...]:
        """Return orders by which what nobody in particular uses of a host goes by its new name.

        Cost: nothing where no host is renamed; else one read of consumers.
        """
        renamed = _renamed(found)
        if not renamed:
            return ()
        kept = self._store.backend.held_by({*renamed, *renamed.values()})
        held = {name: list(one.held) for name, one in kept.items() if name not in renamed}
        for before, now in renamed.items():
            if before in kept:
                held.setdefault(now, []).extend(kept[before].held)
        orders: list[ConsumerOrder] = []
        for name in sorted({*renamed, *renamed.values()}):
            uses, at = tuple(held.get(name, ())), kept[name].generation if name in kept else None
            said: dict[str, Any] = {"aggregate": True, "adopts": True}
            if name in kept and uses == kept[name].held:
                continue
            if at is None and uses:
                orders.append(ConsumerOrder.claim(name, uses, **said))
            elif uses:
                orders.append(ConsumerOrder.replace(name, uses, generation=at, **said))
            elif at is not None:
                orders.append(ConsumerOrder.release(name, at))
        return tuple(orders)

    def _define(
        self, doing: Operation, kind: str, subject: str, compare: Callable[[], Difference]
    ) -> SyncResult:
        retries = self._store.retries
        tries = None
        while True:
            found = compare()
            if tries is None:  # who claims of what moves is faster, too, and may do so all the time
                tries = max(retries.definitions, retries.assignments if found.moves else 0)
            changes = merge_changes(subject, found.changes)
            if not changes and not found.reported and not found.disabling:
                return SyncResult.of(found.changes)
            # somebody changed a tree, or made it at the same moment, or took something of what
            # moves: look again. What the comparison itself raises is about what was asked, and is
            # not tried again
            followed = self.renumbered(found.kept, changes, found.orders)
            orders = (*self.following(found), *followed)
            faster = (*(FASTER if found.moves or orders else FASTER[:1]), "ProviderExists")
            try:
                write = self._write_of(doing, kind, subject, found, changes, orders)
                self.commit(write)
            except exceptions.LedgerError as error:
                if error.matches(*faster) and tries > 0:
                    tries -= 1
                elif error.code == "ProviderInUse" and (
                    said := self._device_holders(found.kept, error.name)
                ):
                    raise exceptions.InUse("provider", error.name, said) from error
                else:
                    raise
            else:
                moved = (*found.orders, *followed)
                return SyncResult.of(found.changes, found.disabling, moved)

    def renumbered(
        self,
        kept: StoredDefinitions,
        changes: DefinitionChanges,
        orders: Iterable[ConsumerOrder] = (),
    ) -> tuple[ConsumerOrder, ...]:
        """Return orders by which allocations follow the CPUs of cells that are numbered anew.

        Cost: nothing where no unit is of another part than before; else a read of those trees with
        allocations, and one of the consumers.

        :param orders: what the same write says of consumers already, which is left to it
        """
        found: list[ConsumerOrder] = []
        said = {order.consumer for order in orders}
        for parts in renumbered(kept, changes):
            columns = self._store.backend.read(parts.root)
            uuids = columns.index.uuids
            concerned_parts = parts.successors.keys() | parts.classes.keys()
            holders = {
                consumer
                for number, _, consumer, _ in zip(*columns.allocations, strict=True)
                if uuids[number] in concerned_parts and consumer not in said
            }
            claims = self._store.backend.held_by(holders) if holders else {}
            # the amounts of consumers with units go where these are; others go where room is left
            free = capacities_after(kept, changes, parts.classes)
            for name in sorted(claims, key=lambda one: (not _has_units(claims[one]), one)):
                claim = claims[name]
                uses = parts.held_after(claim.held, free)
                before = {(*use.key, use.amount, frozenset(use.units)) for use in claim.held}
                if {(*use.key, use.amount, frozenset(use.units)) for use in uses} != before:
                    order = ConsumerOrder.replace(
                        name,
                        uses,
                        request=claim.request,
                        generation=claim.generation,
                        aggregate=True,
                        adopts=True,
                    )
                    found.append(order)
        return tuple(found)

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        """Commit a write; a refusal to remove what is in use names the consumers.

        Cost: where it is refused, the consumers of a provider are read.
        """
        try:
            return self._store.backend.commit(write)
        except exceptions.InUse as error:
            subject, detail = error.name, error.detail
            uuid = self._store.backend.uuids([subject]).get(subject)
            pages = self._store.consumers(ConsumerFilter(provider=uuid)) if uuid else ()
            consumers = [
                record.consumer
                for records in pages
                for record in records
                if any(
                    use.provider_uuid == uuid and detail in ("", use.resource_class)
                    for use in record.held
                )
            ]
            raise exceptions.InUse(error.subject, subject, detail, consumers) from error

    def _write_of(
        self,
        doing: Operation,
        kind: str,
        subject: str,
        found: Difference,
        changes: DefinitionChanges,
        following: Sequence[ConsumerOrder],
    ) -> Write:
        """Return the write of what a comparison found."""
        orders = (*found.orders, *following)
        guarded = (*found.unchanged, *self.allowed(found.kept, changes, orders))
        return Write(
            doing,
            "reshape" if found.orders else kind,
            subject,
            changes if changes else None,
            orders,
            unchanged=tuple(dict.fromkeys(guarded)),
            reported=found.reported,
            disabling=found.disabling,
        )

    def _device_holders(self, kept: StoredDefinitions, name: str) -> str:
        """Return who holds the devices of a provider, as text; nothing if it keeps none.

        Cost: a read if it does.
        """
        found = (one.definition for one in kept.values())
        if any(one.name == name and has_devices(one) for one in found):
            return "; ".join(describe_holders(self._store.backend.read(name), name))
        return ""

    def allowed(
        self,
        kept: StoredDefinitions,
        changes: DefinitionChanges,
        orders: Sequence[ConsumerOrder] = (),
    ) -> tuple[tuple[str, int], ...]:
        """Return the providers, ``(uuid, generation)``, that changes rely on, or refuse them.

        What consumers hold is read only where a unit would be given out in another way. Who takes
        it by name at the same moment may be missed: an audit lists what comes of it.

        :raises InvalidTree: if the parts of an inventory would contradict each other
        :raises InUse: if a unit that is held by name would be given out in another way
        :raises Conflict: as :meth:`_counted_once`
        """
        for changed in check_consistent(kept, changes):
            for held in conflicting_holders(
                changed, self._store.backend.read(changed.root), orders
            ):
                where, name, unit, consumer = held
                said = f"{consumer} holds {unit} of {name}, which would be given out in another way"
                raise exceptions.InUse("inventory", where, said)
        return self._counted_once(kept, changes)

    def _counted_once(
        self, kept: StoredDefinitions, changes: DefinitionChanges
    ) -> tuple[tuple[str, int], ...]:
        """Return the pools and hosts, ``(uuid, generation)``, that changes rely on.

        Nothing is asked where nobody counts more, or has more links, than before. Of two writes
        at the same moment, one of which makes a pool give more, or a tree count more, while the
        other links that tree to the pool, each may miss the other: an audit lists what comes of it.

        :raises Conflict: if a class would be counted at a pool and in a tree that has it there
        """
        counted = newly_counted(kept, changes)
        of_hosts = counted.aggregates(of_pools=False)
        of_pools = counted.aggregates(of_pools=True)
        found: list[ListedProvider] = []
        if of_hosts:
            pools = ProviderFilter(aggregates=(of_hosts,), required=frozenset({SHARES}))
            found += self.listed(pools)
        if of_pools:
            hosts = ProviderFilter(aggregates=(of_pools,), forbidden=frozenset({SHARES}))
            found += self._whole_trees({one.root_uuid for one in self.listed(hosts)})
        return counted.unchanged(found)

    def _whole_trees(self, roots: Iterable[str]) -> Iterator[ListedProvider]:
        """Yield all providers of some trees. Cost: a few statements for each thousand trees."""
        left = sorted(roots)
        for start in range(0, len(left), 1000):
            yield from self.listed(ProviderFilter(trees=frozenset(left[start : start + 1000])))

    def listed(self, wanted: ProviderFilter) -> Iterator[ListedProvider]:
        """Yield the providers of a filter, in as few statements as can be."""
        for page in self._reader.pages(wanted, page=MOST_ROWS):
            yield from page


def capacities_after(
    kept: StoredDefinitions, changes: DefinitionChanges, parts: Collection[str]
) -> Counter[Key]:
    """Return the capacity of each inventory of some providers once changes are written."""
    after = {uuid: kept[uuid].definition for uuid in parts if uuid in kept}
    stated = (*changes.creates, *(update.definition for update in changes.updates))
    after |= {one.uuid: one for one in stated if one.uuid in parts}
    return Counter(
        {
            (uuid, record.resource_class): record.capacity
            for uuid, one in after.items()
            for record in one.inventories
        }
    )


def _has_units(claim: ConsumerRecord) -> bool:
    return any(use.units for use in claim.held)


def _as_planned(
    changes: tuple[DefinitionChanges, ...], planned: DefinitionChanges | None
) -> tuple[DefinitionChanges, ...]:
    """Return the changes of some trees with what a plan of them all says the updates rely on."""
    updates = {} if planned is None else {one.definition.uuid: one for one in planned.updates}
    return tuple(
        dataclasses.replace(
            one, updates=tuple(updates.get(u.definition.uuid, u) for u in one.updates)
        )
        for one in changes
    )


def find_stored(stored: StoredDefinitions, key: str, generation: int | None = None) -> str:
    """Return the uuid of a provider, by name or uuid.

    :param generation: the generation at which it was read, None if it does not matter
    :raises NotFound: if it is not there
    :raises Stale: if it has another generation
    """
    for uuid, one in stored.items():
        if key in (uuid, one.definition.name):
            if generation is not None and generation != one.generation:
                raise exceptions.Stale(
                    "provider",
                    one.definition.name,
                    f"read at generation {generation}, now {one.generation}",
                )
            return uuid
    raise exceptions.NotFound("provider", key)


def compared(columns: Columns, roots: Sequence[Provider]) -> Difference:
    """Compare trees, which :func:`check_roots` accepted, with the stored rows. Cost: linear.

    :raises AlreadyExists: if the name or uuid of a root is that of a provider below another root
    :raises InvalidTree: if two roots match the same stored one
    """
    stored = stored_definitions(columns)
    trees: dict[str, dict[str, StoredDefinition]] = defaultdict(dict)
    root_of: dict[str, str] = {}
    for uuid, one in stored.items():
        trees[one.root_uuid][uuid] = one
        root_of[uuid] = one.root_uuid
    root_of.update((one.definition.name, one.root_uuid) for one in stored.values())
    changes: list[DefinitionChanges] = []
    matched: dict[str, str] = {}
    for wanted in roots:
        root = root_of.get(wanted.uuid or wanted.name)
        if root is not None:
            before = stored[root].definition
            if before.name != wanted.name and root != wanted.uuid:
                raise exceptions.AlreadyExists(
                    "provider", wanted.name, f"in the tree of {before.name}"
                )
            other = matched.setdefault(root, wanted.name)
            if other != wanted.name:
                raise exceptions.InvalidTree("sync", [other, wanted.name], "each tree once")
        changes.append(compare_tree({} if root is None else trees[root], wanted))
    return Difference(stored, tuple(changes))


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


def subject_of_roots(roots: Sequence[str]) -> str:
    """Return what a sync is about, in at most 255 characters."""
    if len(roots) == 1:
        return roots[0]
    digest = hashlib.sha256("\0".join(sorted(roots)).encode()).hexdigest()
    return f"{len(roots)} trees {digest[:32]}"
