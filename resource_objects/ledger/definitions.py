"""Writes of definitions (providers, inventories, traits, aggregates and shares), and plans.

Every write compares the wanted trees with the stored ones and writes the difference at the
generations that were read. It is repeated if another process wrote in between.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from resource_objects import collector, exceptions, names
from resource_objects.ledger.context import LedgerContext, claim_of
from resource_objects.providers import Claim, DefinitionChanges, Provider
from resource_objects.providers.arguments import ago, any_generation
from resource_objects.providers.audit import Audit, audit, consumers_of_several_trees
from resource_objects.providers.backend import Capability
from resource_objects.providers.columns import Columns, stored_definitions
from resource_objects.providers.consistency import (
    check_consistent,
    check_units_free,
    has_devices,
    renumbered,
)
from resource_objects.providers.definition import (
    StoredDefinition,
    StoredDefinitions,
    compare_tree,
    edited,
    merge_changes,
)
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.holders import describe_holders, unattributed
from resource_objects.providers.listing import (
    MOST_ROWS,
    ConsumerFilter,
    ListedProvider,
    ProviderFilter,
)
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Operation, Use, Write
from resource_objects.providers.plan import Plan
from resource_objects.providers.pools import SHARES, newly_counted
from resource_objects.providers.reshape import Move, Reshape, merge_moves
from resource_objects.providers.reshape_plan import ReshapePlanner
from resource_objects.store.columns import check_definitions, consumers_of, rehearse

#: A parent; ``...`` leaves the parent unchanged, None makes the provider a root.
Parent: TypeAlias = str | types.EllipsisType | None

#: From this number of trees on, a sync lets the process collect garbage less often. Its objects
#: stay, and the collector would go through all of them again and again: 40 % of a sync's time.
LARGE_SYNC = 100

#: Codes of the errors by which a write reports that another process wrote in between.
CONCURRENT_ERRORS = ("StaleDefinition", "StaleConsumer", "InventoryInUse", "ProviderInUse")


@dataclasses.dataclass(frozen=True, slots=True)
class SyncResult:
    """The numbers of providers that a write of definitions changed. True if any was changed.

    ``moved_consumers`` lists the consumers whose allocations moved to other providers. The
    repetition of an operation changes nothing.
    """

    created: int
    updated: int
    removed: int
    changes: tuple[DefinitionChanges, ...] = dataclasses.field(default=(), repr=False)
    disabled: int = 0  #: providers disabled by the write
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
        trees, disabling = tuple(changes), tuple(disabling)
        enabled = sum(order.reason is None for order in disabling)
        return cls(
            created=sum(len(tree.creates) for tree in trees),
            updated=sum(not update.children_changed for tree in trees for update in tree.updates),
            removed=sum(len(tree.removals) for tree in trees),
            changes=trees,
            disabled=len(disabling) - enabled,
            enabled=enabled,
            moved_consumers=tuple(order.consumer for order in orders),
        )

    def __bool__(self) -> bool:
        return any((self.created, self.updated, self.removed, self.disabled, self.enabled))

    def __str__(self) -> str:
        lines = [str(change) for change in self.changes if change]
        counts = ((self.disabled, "disabled"), (self.enabled, "enabled"))
        lines += [f"{count} {word}" for count, word in counts if count]
        if self.moved_consumers:
            lines.append(f"allocations of {len(self.moved_consumers)} moved")
        return "\n".join(lines) or "nothing changed"


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """The changes of a write of definitions, compared with the stored trees.

    ``unchanged``, ``reported``, ``disabling`` and ``orders`` are those of the write. ``orders``
    follow from ``moves``, which are set even if there are no orders yet: consumers that claim
    before the write are moved too. ``names`` maps the uuids of providers in orders to names, for
    providers that ``stored`` lacks. If it ``follows_use``, the changes depend on allocations: a
    refusal to remove what is in use is compared again, until the difference stays the same.
    """

    stored: StoredDefinitions
    changes: tuple[DefinitionChanges, ...]
    unchanged: tuple[tuple[str, int], ...] = ()
    reported: tuple[str, ...] = ()
    disabling: tuple[DisableOrder, ...] = ()
    orders: tuple[ConsumerOrder, ...] = ()
    moves: tuple[Move, ...] = ()
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    follows_use: bool = False


class Definitions:
    """The definitions of a ledger; :class:`~resource_objects.ledger.Ledger` describes each method.

    Packages that build on a ledger compare and write trees with the further methods.
    """

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

    def sync(
        self, roots: Sequence[Provider], operation: str | None, moves: Sequence[Move] = ()
    ) -> SyncResult:
        check_roots(roots)
        subject = subject_of_roots([root.name for root in roots])
        kind = "reshape" if moves else "define"
        is_large = len(roots) >= LARGE_SYNC
        with collector.fewer_collections() if is_large else contextlib.nullcontext():
            return self.write(kind, subject, operation, lambda: self.compare(roots, moves))

    def compare(self, roots: Sequence[Provider], moves: Iterable[Move] = ()) -> Difference:
        """Compare trees with the stored ones, and move allocations as ``ledger.sync`` does.

        Cost: one read, without allocations. If there are moves and definitions change, also one
        read with allocations and one of the consumers concerned.

        :raises InvalidPlan: as :func:`~resource_objects.providers.reshape_plan.ReshapePlanner.plan`
        """
        keys = [root.uuid or root.name for root in roots]
        read = self._context.backend.read
        difference = compare_trees(read(*keys, allocations=False) if keys else Columns(), roots)
        merged = merge_moves(moves)
        if not merged or not any(difference.changes):
            return difference
        return self.compare_moving(roots, merged)

    def compare_moving(self, roots: Sequence[Provider], moves: tuple[Move, ...]) -> Difference:
        """Compare trees with the stored ones and return the orders that move allocations.

        Cost: one read of the trees, with allocations, and one of the consumers concerned.

        :param moves: at most one from each inventory: see
            :func:`~resource_objects.providers.reshape.merge_moves`
        :raises Stale: if a tree was read and has changed since
        """
        keys = [root.uuid or root.name for root in roots]

        def attempt() -> Difference:
            columns = self._context.backend.read(*keys)
            difference = compare_trees(columns, roots)
            changes = merge_changes("", difference.changes)
            planner = ReshapePlanner(Reshape(moves), columns, changes)
            plan = planner.plan(self._context.backend.held_by(planner.consumers))
            updates = () if plan.definitions is None else plan.definitions.updates
            planned = {update.definition.uuid: update for update in updates}
            # planned updates state the expected use
            trees = tuple(
                dataclasses.replace(
                    tree, updates=tuple(planned.get(up.definition.uuid, up) for up in tree.updates)
                )
                for tree in difference.changes
            )
            return dataclasses.replace(
                difference, changes=trees, orders=plan.orders, moves=moves, names=plan.names
            )

        # an allocation that changes between the two reads; the write detects later changes
        return self._context.retries.retry(attempt, "StaleConsumer")

    def remove(self, name: str, operation: str | None) -> SyncResult:
        key = names.provider_key(name)

        def compare() -> Difference:
            stored = self.read(key)
            changes, _ = edited(stored, {}, find_stored(stored, key))
            return Difference(stored, (changes,))

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
        keys = [key]
        if parent is not None and parent is not ...:
            parent = names.provider_key(parent)
            keys.append(parent)

        def compare() -> Difference:
            stored = self.read(*keys)
            uuid, edit = find_stored(stored, key, read_at), dict(fields)
            if parent is not ...:
                edit["parent_uuid"] = parent and find_stored(stored, parent)
            changes, unchanged = edited(stored, {uuid: edit})
            return Difference(stored, (changes,), unchanged)

        kind = "define" if parent is ... else "reparent"
        return self.write("rename" if set(fields) == {"name"} else kind, key, operation, compare)

    # --- plans ---

    def diff(self, roots: Sequence[Provider], moves: Sequence[Move]) -> Plan:
        check_roots(roots)
        difference = self.compare(roots, moves)
        changed = [changes for changes in difference.changes if changes]
        root = changed[0].root if len(changed) == 1 else f"{len(changed)} trees"
        changes = merge_changes(root, changed)
        plan = Plan(changes or None, difference.orders)
        if changes:
            plan = self._with_renumbering(plan, difference.stored)
            self.check_allowed(difference.stored, changes, plan.orders)
        return plan.naming(difference.stored, difference.names)

    def apply(self, plan: Plan, dry_run: bool, operation: str | None) -> tuple[Claim, ...]:
        if not isinstance(plan, Plan):
            raise exceptions.InvalidInput("field", "apply", plan, "a Plan")
        backend = self._context.backend
        if (
            plan.ledger
            and Capability.FEED not in backend.unsupported
            and backend.cursor().epoch not in (plan.ledger, 0)
        ):
            raise exceptions.InvalidPlan("plan", "it was made of snapshots of another ledger")
        stored: StoredDefinitions = {}
        if dry_run:
            claims = self._context.backend.held_by(plan.consumers)
            plan = plan.as_held(claims)
            columns = self._read_plan(plan, _providers_of(claims))
            stored = stored_definitions(columns)
            plan = plan.compared_with(stored)
            order_count = len(plan.orders)
            plan = self._with_renumbering(plan, stored)
            if len(plan.orders) > order_count:
                claims = self._context.backend.held_by(plan.consumers)
                columns = self._read_plan(plan, _providers_of(claims))
            self._rehearse(plan, columns, claims)
            return ()
        recorded = self._context.recorded(operation, "apply", plan.subject)
        if recorded is not None:
            return tuple(map(claim_of, recorded.claims))
        if not plan:
            return ()
        subject, order_count = plan.subject, len(plan.orders)
        if plan.held:
            plan = plan.as_held(self._context.backend.held_by(plan.held))
        if plan.definitions is not None:
            columns = self._read_plan(plan, (), allocations=False)
            check_definitions(plan.definitions, columns)
            stored = stored_definitions(columns)
            plan = self._with_renumbering(plan.compared_with(stored), stored)
        started = self._context.operation(operation)
        records = self.commit_plan(plan, stored, started, "apply", subject)
        return tuple(map(claim_of, records[:order_count]))

    def reshape(self, reshape: Reshape, dry_run: bool, operation: str | None) -> Plan:
        if not isinstance(reshape, Reshape):
            raise exceptions.InvalidInput("field", "reshape", reshape, "a Reshape")
        retries, subject, keys = self._context.retries, reshape.subject, reshape.providers
        if not dry_run and self._context.recorded(operation, "reshape", subject) is not None:
            return Plan()
        started = self._context.operation(operation)

        def attempt() -> Plan:
            columns = self._context.backend.read(*keys) if keys else Columns()
            planner = ReshapePlanner(reshape, columns)
            claims = self._context.backend.held_by(planner.consumers)
            plan = planner.plan(claims)
            if dry_run:
                if not set(plan.places).issubset(columns.providers.uuid):
                    columns = self._read_plan(plan, keys)
                self._rehearse(plan, columns, claims)
            elif plan:
                stored = {} if plan.definitions is None else stored_definitions(columns)
                self.commit_plan(plan, stored, started, "reshape", subject)
            return plan

        # claims of moved inventories conflict too, and may be frequent
        tries = max(retries.definitions, retries.assignments)
        return retries.retry(attempt, *CONCURRENT_ERRORS, tries=tries)

    def audit(self, now: datetime.datetime | None, older_than: datetime.timedelta | None) -> Audit:
        at = self._context.now_or(now)
        if older_than is not None:
            ago("older_than", older_than, at)  # an invalid age is refused before the reads
        expired = ConsumerFilter(expires_before=at)
        pages = self._context.consumer_pages(expired, page=MOST_ROWS)
        claims = [record for records in pages for record in records]
        columns = self._context.backend.read()
        consumers = consumers_of_several_trees(columns)
        claims += self._context.backend.held_by(consumers).values() if consumers else ()
        return audit(columns, claims, now=at, older_than=older_than)

    # --- steps of each write ---

    def read(self, *keys: str) -> StoredDefinitions:
        """Return the stored definitions of the trees of some providers. Cost: one read."""
        return stored_definitions(self._context.backend.read(*keys, allocations=False))

    def write(
        self, kind: str, subject: str, operation: str | None, compare: Callable[[], Difference]
    ) -> SyncResult:
        """Compare and write; repeat both if the trees changed in between."""
        if self._context.recorded(operation, kind, subject) is not None:
            return SyncResult(0, 0, 0)
        started, retries = self._context.operation(operation), self._context.retries
        tries, previous = None, None
        while True:
            difference = compare()  # its errors concern the request: they are not tried again
            if tries is None:  # claims of moved inventories conflict too, and may be frequent
                tries = max(retries.definitions, retries.assignments if difference.moves else 0)
            changes = merge_changes(subject, difference.changes)
            if not changes and not difference.reported and not difference.disabling:
                return SyncResult.of(difference.changes)
            followed = self.renumbered(difference.stored, changes, difference.orders)
            orders = (*difference.orders, *self.rename_orders(difference), *followed)
            follows_use = difference.follows_use and difference != previous
            is_concurrent = difference.moves or orders or follows_use
            concurrent = CONCURRENT_ERRORS if is_concurrent else CONCURRENT_ERRORS[:1]
            previous = difference
            try:
                relied_on = self.check_allowed(difference.stored, changes, orders)
                self.commit(
                    Write(
                        started,
                        "reshape" if difference.orders else kind,
                        subject,
                        changes or None,
                        orders,
                        unchanged=tuple(dict.fromkeys((*difference.unchanged, *relied_on))),
                        reported=difference.reported,
                        disabling=difference.disabling,
                    ),
                    difference.stored,
                )
            except exceptions.LedgerError as error:
                if tries == 0 or not error.matches(*concurrent, "ProviderExists"):
                    raise
                tries -= 1
            else:
                moved = (*difference.orders, *followed)
                return SyncResult.of(difference.changes, difference.disabling, moved)

    def rename_orders(self, difference: Difference) -> tuple[ConsumerOrder, ...]:
        """Return the orders that rename the consumers of unattributed usage of renamed hosts.

        Consumers with another order in the same write are left out: that order decides. Cost:
        nothing if no host is renamed; else one read of consumers.
        """
        ordered = {order.consumer for order in difference.orders}
        renamed: dict[str, str] = {}
        for update in (update for tree in difference.changes for update in tree.updates):
            after = update.definition
            before = difference.stored[after.uuid].definition
            is_root = after.parent_uuid is None and before.parent_uuid is None
            pair = unattributed(before.name), unattributed(after.name)
            if is_root and after.name != before.name and ordered.isdisjoint(pair):
                renamed[pair[0]] = pair[1]
        if not renamed:
            return ()
        consumers = sorted({*renamed, *renamed.values()})
        stored = self._context.backend.held_by(consumers)
        uses_after: dict[str, list[Use]] = defaultdict(list)
        for name, claim in stored.items():
            uses_after[renamed.get(name, name)] += claim.held
        orders: list[ConsumerOrder] = []
        for name in consumers:
            uses, record = tuple(uses_after[name]), stored.get(name)
            if record is None and uses:
                orders.append(ConsumerOrder.claim(name, uses, aggregate=True, adopts=True))
            elif record is not None and not uses:
                orders.append(ConsumerOrder.release(name, record.generation))
            elif record is not None and uses != record.held:
                orders.append(_replacement(dataclasses.replace(record, request=None), uses))
        return tuple(orders)

    def renumbered(
        self,
        stored: StoredDefinitions,
        changes: DefinitionChanges,
        orders: Iterable[ConsumerOrder] = (),
    ) -> tuple[ConsumerOrder, ...]:
        """Return the orders by which allocations follow the CPUs of renumbered cells.

        Cost: nothing if each unit stays in its part; else one read of those trees with allocations,
        and one of the consumers.

        :param orders: the other orders of the same write, whose consumers are left out
        """
        follow: list[ConsumerOrder] = []
        ordered = {order.consumer for order in orders}
        for parts in renumbered(stored, changes):
            columns = self._context.backend.read(parts.root)
            uuids = columns.index.uuids
            changed_parts = parts.successors.keys() | parts.classes.keys()
            consumers = {
                consumer
                for number, _, consumer, _ in zip(*columns.allocations, strict=True)
                if uuids[number] in changed_parts and consumer not in ordered
            }
            claims = self._context.backend.held_by(consumers) if consumers else {}
            definitions = {uuid: entry.definition for uuid, entry in stored.items()}
            definitions |= {changed.uuid: changed for changed in changes.definitions}
            free = Counter(
                {
                    (uuid, record.resource_class): record.capacity
                    for uuid in parts.classes
                    if uuid in definitions
                    for record in definitions[uuid].inventories
                }
            )
            # consumers with units come first: their units decide the part; others fill the rest
            for claim in sorted(
                claims.values(),
                key=lambda record: (not any(use.units for use in record.held), record.consumer),
            ):
                uses = parts.held_after(claim.held, free)
                before, after = (
                    {(*use.key, use.amount, frozenset(use.units)) for use in allocated}
                    for allocated in (claim.held, uses)
                )
                if before != after:
                    follow.append(_replacement(claim, uses))
        return tuple(follow)

    def commit(
        self, write: Write, stored: StoredDefinitions = MappingProxyType({})
    ) -> tuple[ConsumerRecord, ...]:
        """Commit a write; a refusal to remove a used provider or inventory names the consumers.

        Cost: one read of the tree of the provider if the write is refused.

        :param stored: the definitions that are written; of a provider with devices that is used the
            error names the consumer of each device
        """
        try:
            return self._context.backend.commit(write)
        except exceptions.InUse as error:
            subject, detail = error.name, error.detail
            definitions = (entry.definition for entry in stored.values())
            columns = self._context.backend.read(subject)
            if error.code == "ProviderInUse" and any(
                has_devices(definition) for definition in definitions if definition.name == subject
            ):
                devices = "; ".join(describe_holders(columns, subject))
                if devices:
                    raise exceptions.InUse("provider", subject, devices) from error
            consumers = consumers_of(columns, subject, detail)
            raise exceptions.InUse(error.subject, subject, detail, consumers) from error

    def check_allowed(
        self,
        stored: StoredDefinitions,
        changes: DefinitionChanges,
        orders: Sequence[ConsumerOrder] = (),
    ) -> tuple[tuple[str, int], ...]:
        """Return the pools and hosts, ``(uuid, generation)``, that changes rely on, or raise.

        Allocations are read only if a unit would be allocated in another form, pools and hosts only
        if a provider counts more classes, or has more links, than before. A concurrent claim of
        that unit by name, or a concurrent write of the other end of a link, may be missed: an audit
        lists the result.

        :raises InvalidTree: if the parts of an inventory would contradict each other
        :raises InUse: if a unit that is allocated by name would be allocated in another form
        :raises Conflict: if a class would be counted at a pool and in a tree linked to it
        """
        for changed in check_consistent(stored, changes):
            check_units_free(changed, self._context.backend.read(changed.root), orders)
        counted = newly_counted(stored, changes)
        of_hosts, of_pools = (counted.aggregates(of_pools=of_pools) for of_pools in (False, True))
        linked: list[ListedProvider] = []
        if of_hosts:
            pools = ProviderFilter(aggregates=(of_hosts,), required=frozenset({SHARES}))
            linked += self._context.providers(pools, page=MOST_ROWS)
        if of_pools:
            hosts = ProviderFilter(aggregates=(of_pools,), forbidden=frozenset({SHARES}))
            members = self._context.providers(hosts, page=MOST_ROWS)
            roots = sorted({host.root_uuid for host in members})
            for start in range(0, len(roots), _TREES_PER_QUERY):
                trees = ProviderFilter(trees=frozenset(roots[start : start + _TREES_PER_QUERY]))
                linked += self._context.providers(trees, page=MOST_ROWS)
        return counted.unchanged(linked)

    # --- steps of plans ---

    def _with_renumbering(self, plan: Plan, stored: StoredDefinitions) -> Plan:
        """Return a plan with the orders by which allocations follow CPUs to other cells."""
        if plan.definitions is None:
            return plan
        orders = self.renumbered(stored, plan.definitions, plan.orders)
        return dataclasses.replace(plan, orders=(*plan.orders, *orders)) if orders else plan

    def _read_plan(self, plan: Plan, uuids: Iterable[str], *, allocations: bool = True) -> Columns:
        """Read the trees of a plan, also those of the names that it states.

        :param uuids: further providers to read
        """
        keys = dict.fromkeys((*plan.places, *uuids))
        if plan.definitions is not None:
            keys |= dict.fromkeys(definition.name for definition in plan.definitions.definitions)
        return self._context.backend.read(*keys, allocations=allocations) if keys else Columns()

    def _rehearse(self, plan: Plan, columns: Columns, claims: Mapping[str, ConsumerRecord]) -> None:
        self._context.backend.check(plan.write(Operation()))
        rehearse(plan, columns, claims, self._context.backend.now())
        if plan.definitions is not None:
            stored = stored_definitions(columns)
            self.check_allowed(stored, plan.definitions, plan.orders)

    def commit_plan(
        self,
        plan: Plan,
        stored: StoredDefinitions,
        started: Operation,
        kind: str,
        subject: str,
        unchanged: Iterable[tuple[str, int]] = (),
    ) -> tuple[ConsumerRecord, ...]:
        """Commit a plan and return a record per order.

        :param stored: the definitions of the trees that it changes
        :param unchanged: further definitions that the plan depends on, ``(uuid, generation)``
        """
        relied_on = tuple(unchanged)
        if plan.definitions is not None:
            relied_on += self.check_allowed(stored, plan.definitions, plan.orders)
        return self.commit(plan.write(started, kind, subject, unchanged=relied_on))


#: The maximal number of trees in one query of providers.
_TREES_PER_QUERY = 1000


def _replacement(record: ConsumerRecord, uses: tuple[Use, ...]) -> ConsumerOrder:
    """Return the order by which a consumer has other uses of the same units."""
    return ConsumerOrder.replace(
        record.consumer,
        uses,
        request=record.request,
        generation=record.generation,
        aggregate=True,
        adopts=True,
    )


def find_stored(stored: StoredDefinitions, key: str, generation: int | None = None) -> str:
    """Return the uuid of a provider, by name or uuid.

    :param generation: the generation at which it was read, None if it does not matter
    :raises NotFound: if the provider is not stored
    :raises Stale: if it has another generation
    """
    for uuid, entry in stored.items():
        if key in (uuid, entry.definition.name):
            if generation is not None and generation != entry.generation:
                raise exceptions.Stale(
                    "provider",
                    entry.definition.name,
                    f"read at generation {generation}, now {entry.generation}",
                )
            return uuid
    raise exceptions.NotFound("provider", key)


def compare_trees(columns: Columns, roots: Sequence[Provider]) -> Difference:
    """Compare trees, which :func:`check_roots` accepted, with the stored rows. Cost: linear.

    :raises AlreadyExists: if the name or uuid of a root is that of a provider below another root
    :raises InvalidTree: if two roots match the same stored one
    """
    stored = stored_definitions(columns)
    trees: dict[str, dict[str, StoredDefinition]] = defaultdict(dict)
    root_of: dict[str, str] = {}
    for uuid, entry in stored.items():
        trees[entry.root_uuid][uuid] = entry
        root_of[uuid] = entry.root_uuid
    root_of.update((entry.definition.name, entry.root_uuid) for entry in stored.values())
    changes: list[DefinitionChanges] = []
    matched: dict[str, str] = {}
    for target in roots:
        root = root_of.get(target.uuid or target.name)
        if root is not None:
            before = stored[root].definition
            if before.name != target.name and root != target.uuid:
                raise exceptions.AlreadyExists(
                    "provider", target.name, f"in the tree of {before.name}"
                )
            other = matched.setdefault(root, target.name)
            if other != target.name:
                raise exceptions.InvalidTree("sync", [other, target.name], "each tree once")
        changes.append(compare_tree({} if root is None else trees[root], target))
    return Difference(stored, tuple(changes))


def check_roots(roots: Sequence[Provider]) -> None:
    """Raise ``InvalidTree`` unless these are providers, each of them in one tree only."""
    for root in roots:
        if not isinstance(root, Provider):
            raise exceptions.InvalidTree("sync", root, "providers, each the root of a tree")
    root_names = [root.name for root in roots]
    if len(set(root_names)) != len(root_names):
        raise exceptions.InvalidTree("sync", root_names, "each root once")
    if len(roots) > 1:
        root_of: dict[str, str] = {}
        for root in roots:
            for provider in root.walk():
                for key in {provider.name, provider.uuid or provider.name}:
                    if root_of.setdefault(key, root.name) != root.name:
                        raise exceptions.InvalidTree("sync", key, "each provider in one tree")


def subject_of_roots(roots: Sequence[str]) -> str:
    """Return the subject of a sync of some roots, by name, in at most 255 characters."""
    if len(roots) == 1:
        return roots[0]
    digest = hashlib.sha256("\0".join(sorted(roots)).encode()).hexdigest()
    return f"{len(roots)} trees {digest[:32]}"


def _providers_of(claims: Mapping[str, ConsumerRecord]) -> list[str]:
    return [use.provider_uuid for claim in claims.values() for use in claim.held]
