"""Plans: what a change would do, doing it, and looking for what is not as it should be."""

from __future__ import annotations

import dataclasses
import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from resource_objects import exceptions
from resource_objects.ledger.definitions import Definitions, check_roots
from resource_objects.ledger.store import Store, claim_of
from resource_objects.providers import Claim, Provider
from resource_objects.providers.audit import Audit, audit, spread
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderRemoval,
    diff,
    merge_changes,
)
from resource_objects.providers.dry_run import check_definitions, rehearse
from resource_objects.providers.given import ago
from resource_objects.providers.listing import MOST_ROWS, ConsumerFilter
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Key, Operation, Use
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Reshape
from resource_objects.providers.row_diff import holdings, kept_definitions
from resource_objects.providers.transfer import (
    Balances,
    Problems,
    ReshapeState,
    Transfer,
    assign,
    final_records,
    flows_of,
    sources_of,
)
from resource_objects.resources import resource
from resource_objects.resources.records import InventoryRecord

#: What tells that somebody was faster, so that a reshape is worked out again.
_FASTER = (
    exceptions.StaleDefinition,
    exceptions.StaleConsumer,
    exceptions.InventoryInUse,
    exceptions.ProviderInUse,
)


class Plans:
    """The plans of a ledger; :class:`~resource_objects.ledger.Ledger` says what each does."""

    def __init__(self, store: Store, definitions: Definitions) -> None:
        self._store = store
        self._definitions = definitions

    def diff(self, roots: Sequence[Provider]) -> Plan:
        check_roots(roots)
        found = self._definitions.compared(roots)
        changed = [one for one in found.changes if one]
        root = changed[0].root if len(changed) == 1 else f"{len(changed)} trees"
        plan = Plan(merge_changes(root, changed) if changed else None)
        if plan.definitions is not None:
            self._definitions.allowed(found.kept, plan.definitions)
        known = found.kept
        names = {uuid: known[uuid].definition.name for uuid in plan.places if uuid in known}
        return dataclasses.replace(plan, names=names)

    def apply(self, plan: Plan, dry_run: bool, operation: str | None) -> tuple[Claim, ...]:
        if not isinstance(plan, Plan):
            raise exceptions.InvalidField("apply", plan, "a Plan")
        if dry_run:
            claims = self._store.backend.held_by(plan.consumers)
            held = (one.provider_uuid for claim in claims.values() for one in claim.held)
            self._rehearse(plan, self._places(plan, held), claims)
            return ()
        doing, done = self._store.begin(operation, "apply", plan.subject)
        if done is not None:
            return tuple(map(claim_of, done.claims))
        if not plan:
            return ()
        columns = Columns()
        if plan.definitions is not None:
            columns = self._places(plan, (), allocations=False)
            check_definitions(plan.definitions, columns)
        return tuple(map(claim_of, self._carry_out(plan, columns, doing, "apply", plan.subject)))

    def reshape(self, reshape: Reshape, dry_run: bool, operation: str | None) -> Plan:
        if not isinstance(reshape, Reshape):
            raise exceptions.InvalidField("reshape", reshape, "a Reshape")
        if dry_run:
            return self._store.again(lambda: self._tried(reshape), *_FASTER)
        subject = reshape.subject
        doing, done = self._store.begin(operation, "reshape", subject)
        if done is not None:
            return Plan()

        def attempt() -> Plan:
            plan, columns, _ = self._compiled(reshape)
            if plan:
                self._carry_out(plan, columns, doing, "reshape", subject)
            return plan

        return self._store.again(attempt, *_FASTER)

    def audit(self, now: datetime.datetime | None, older_than: datetime.timedelta | None) -> Audit:
        at = self._store.now_or(now)
        if older_than is not None:
            ago("older_than", older_than, at)  # refused before everything is read
        over = ConsumerFilter(expires_before=at)
        pages = self._store.consumers(over, page=MOST_ROWS)
        claims = [record for records in pages for record in records]
        columns = self._store.backend.read()
        consumers = spread(columns)
        claims += self._store.backend.held_by(consumers).values() if consumers else ()
        return audit(columns, claims, now=at, older_than=older_than)

    # --- how they are done ---

    def _places(self, plan: Plan, held: Iterable[str], *, allocations: bool = True) -> Columns:
        """Return the trees that a plan is about, with those of providers of the names it wants.

        :param held: uuids of providers that are to be in it too
        """
        keys = dict.fromkeys((*plan.places, *held))
        if plan.definitions is not None:
            keys |= dict.fromkeys(created.name for created in plan.definitions.creates)
            keys |= dict.fromkeys(one.definition.name for one in plan.definitions.updates)
        return self._store.backend.read(*keys, allocations=allocations) if keys else Columns()

    def _rehearse(self, plan: Plan, columns: Columns, claims: Mapping[str, ConsumerRecord]) -> None:
        rehearse(plan, columns, claims)
        if plan.disabling:
            now = self._store.backend.now()
            for said in plan.disabling:
                said.carried_out(None, None, now)
        if plan.definitions is not None:
            self._definitions.allowed(kept_definitions(columns), plan.definitions, plan.orders)

    def _carry_out(
        self, plan: Plan, columns: Columns, doing: Operation, kind: str, subject: str
    ) -> tuple[ConsumerRecord, ...]:
        """Commit a plan, given the trees it changes as they are."""
        relied: tuple[tuple[str, int], ...] = ()
        if plan.definitions is not None:
            kept = kept_definitions(columns)
            relied = self._definitions.allowed(kept, plan.definitions, plan.orders)
        return self._store.backend.commit(plan.write(doing, kind, subject, unchanged=relied))

    def _tried(self, reshape: Reshape) -> Plan:
        plan, columns, claims = self._compiled(reshape)
        if not set(plan.places).issubset(columns.providers.uuid):
            columns = self._places(plan, reshape.providers)
        self._rehearse(plan, columns, claims)
        return plan

    def _compiled(self, reshape: Reshape) -> tuple[Plan, Columns, Mapping[str, ConsumerRecord]]:
        """Return the plan of a reshape, and what it was made from, of what is kept now."""
        keys = reshape.providers
        columns = self._store.backend.read(*keys) if keys else Columns()
        claims = self._store.backend.held_by(concerned(reshape, columns))
        return compile_reshape(reshape, columns, claims), columns, claims


# --- from a reshape to a plan ---------------------------------------------------------------------
#
# What it comes to on what is kept, or why it cannot be. Pure.
#
# 1. everything that is named is found, and what inventories become is worked out; 2. allocations
# are assigned (both in :mod:`~resource_objects.providers.transfer`); 3. the trees as they shall be
# are compared with the kept ones, and everything that each consumer then holds becomes its order;
# 4. what comes out is weighed against what was there, apart from how it was made (:func:`_weigh`).


def concerned(reshape: Reshape, columns: Columns) -> tuple[str, ...]:
    """Return who holds something where a reshape moves it away from, by name.

    :raises ProviderNotFound: if a provider of the reshape is neither kept nor created
    """
    return _concerned(reshape, ReshapeState(reshape, columns), holdings(columns))


def _concerned(
    reshape: Reshape, kept: ReshapeState, read: Mapping[str, Mapping[Key, Use]]
) -> tuple[str, ...]:
    sources = sources_of(reshape, kept)
    return tuple(sorted(name for name, held in read.items() if not sources.isdisjoint(held)))


def compile_reshape(
    reshape: Reshape, columns: Columns, claims: Mapping[str, ConsumerRecord]
) -> Plan:
    """Return the plan that a reshape comes to. Cost: linear in the trees and in who is concerned.

    :param columns: the trees of all :attr:`Reshape.providers`, with allocations
    :param claims: what :func:`concerned` consumers hold, by name
    :raises ProviderNotFound: if a provider is neither kept nor created
    :raises ProviderExists: if one to create is there already
    :raises InvalidPlan: if it would lose or invent an allocation or some of an inventory, does not
        say where one goes, or one fits nowhere
    :raises InvalidTree: if the providers would form no tree any more, or a share lead nowhere
    :raises StaleConsumer: if a consumer does not hold what the columns say: read both again
    """
    kept, problems = ReshapeState(reshape, columns), Problems()
    read = holdings(columns)
    _check_claims(_concerned(reshape, kept, read), claims, read)
    flows = flows_of(reshape, kept, problems)
    problems.refuse()
    final = final_records(flows, kept, problems)
    problems.refuse()
    transfers = assign(flows, claims, kept, Balances(kept, final), problems)
    problems.refuse()
    changes = _definitions(reshape, columns, kept, final)
    orders = tuple(_orders(transfers, claims))
    _weigh(reshape, orders, claims, {key for key, record in final.items() if record is None})
    plan = Plan(changes or None, orders)
    # what else its consumers hold, such as of a shared pool, is of trees that were not read
    held = (use for record in claims.values() for use in record.held)
    known = {**{use.provider_uuid: use.provider for use in held}, **kept.names}
    return dataclasses.replace(plan, names={uuid: known[uuid] for uuid in plan.places})


def _check_claims(
    consumers: Iterable[str],
    claims: Mapping[str, ConsumerRecord],
    read: Mapping[str, Mapping[Key, Use]],
) -> None:
    """Raise if claims and columns were read at different moments."""
    for name in consumers:
        held = {one.key: one.amount for one in claims[name].held} if name in claims else {}
        for key, delta in read[name].items():
            if held.get(key) != delta.amount:
                raise exceptions.StaleConsumer(name, "while it was read")


# --- definitions ---


def _definitions(
    reshape: Reshape,
    columns: Columns,
    kept: ReshapeState,
    final: Mapping[Key, InventoryRecord | None],
) -> DefinitionChanges:
    before, wanted = trees(columns), trees(columns)
    by_uuid = {one.uuid or "": one for root in wanted for one in root.walk()}
    roots = list(wanted)
    new_roots: list[Provider] = []
    added: dict[str, list[Provider]] = defaultdict(list)
    for new in reshape.create:
        made = by_uuid[new.uuid] = new.provider()
        (new_roots if new.parent is None else added[kept.uuid(new.parent)]).append(made)
    for (uuid, name), record in final.items():
        if (uuid, name) not in kept.stated:  # else it has it as stated, perhaps as part of a kind
            _put(by_uuid[uuid], name, record)
    gone = {kept.uuid(key) for key in reshape.remove}
    _regroup(by_uuid, added, gone)
    parts = [
        _removed(root) if now.uuid in gone else diff(root, now)
        for root, now in zip(before, roots, strict=True)
    ]
    parts += [diff(None, root) for root in new_roots]
    changed = [part for part in parts if part]
    names = [part.root for part in changed]
    return merge_changes(names[0] if len(names) == 1 else f"{len(names)} trees", changed)


def _put(provider: Provider, name: str, record: InventoryRecord | None) -> None:
    if record is not None:
        provider.inventories[name] = resource(name).inventory_from_records([record])
    elif name in provider.inventories:
        del provider.inventories[name]


def _regroup(
    by_uuid: Mapping[str, Provider], added: Mapping[str, list[Provider]], gone: set[str]
) -> None:
    """Give providers their new children and take away those that go."""
    for uuid, provider in reversed(list(by_uuid.items())):  # those below are ready before
        stays = [child for child in provider.children if child.uuid not in gone]
        if uuid in gone and (stays or added.get(uuid)):
            raise exceptions.InvalidPlan(
                "reshape", f"{provider.name} is to go, and there is something below it"
            )
        if uuid in added or len(stays) != len(provider.children):
            provider.update(children=(*stays, *added.get(uuid, ())))


def _removed(root: Provider) -> DefinitionChanges:
    return DefinitionChanges(
        root.name,
        removals=tuple(
            ProviderRemoval(one.uuid or "", one.name, one.generation or 0)
            for one in reversed(list(root.walk()))
        ),
    )


# --- orders ---


def _orders(
    transfers: Iterable[Transfer], claims: Mapping[str, ConsumerRecord]
) -> Iterator[ConsumerOrder]:
    by_consumer: dict[str, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        by_consumer[transfer.consumer].append(transfer)
    for name in sorted(by_consumer):
        claim = claims[name]
        deltas = tuple(_held_after(claim.held, by_consumer[name]))
        yield ConsumerOrder.replace(
            name, deltas, request=claim.request, generation=claim.generation
        )


def _held_after(held: Iterable[Use], transfers: Iterable[Transfer]) -> Iterator[Use]:
    amounts = {one.key: one.amount for one in held}
    units = {one.key: list(one.units) for one in held}
    for transfer in transfers:
        amounts[transfer.source] -= transfer.amount
        amounts[transfer.target] = amounts.get(transfer.target, 0) + transfer.amount
        units[transfer.source] = [u for u in units[transfer.source] if u not in transfer.units]
        units.setdefault(transfer.target, []).extend(transfer.units)
    for key, amount in amounts.items():
        if amount:
            yield Use(*key, amount, tuple(units[key]))


# --- weighed ---


def _weigh(
    reshape: Reshape,
    orders: Iterable[ConsumerOrder],
    claims: Mapping[str, ConsumerRecord],
    gone: set[Key],
) -> None:
    """Raise unless everybody holds what it held: each class and unit, wherever it is counted."""
    problems = Problems()
    group = _groups(reshape)
    after = {order.consumer: order.uses for order in orders}
    for name, claim in claims.items():
        then: Iterable[Use] = after.get(name, claim.held)
        if _sums(claim.held, group) != _sums(then, group):
            problems.add(f"{name} would not hold what it holds", name)
        if _units(claim.held) != _units(then):
            problems.add(f"{name} would not hold the units it holds", name)
        if any(one.key in gone for one in then):
            problems.add(f"{name} would hold something of an inventory that goes", name)
    problems.refuse()


def _units(held: Iterable[Use]) -> list[str]:
    return sorted(unit for one in held for unit in one.units)


def _groups(reshape: Reshape) -> dict[str, str]:
    """Map each class to the one it is counted as: a reshape may turn one class into another."""
    group: dict[str, str] = {}
    for move in reshape.moves:
        for part in move.to:
            old = group.get(move.resource_class, move.resource_class)
            new = part.resource_class or move.resource_class
            new = group.get(new, new)
            group = {name: new if one == old else one for name, one in group.items()}
            group[old] = group[move.resource_class] = new
    return group


def _sums(held: Iterable[Use], group: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for one in held:
        found[group.get(one.resource_class, one.resource_class)] += one.amount
    return dict(found)
