"""From a reshape to a plan: what it comes to on what is kept, or why it cannot be. Pure.

1. everything that is named is found, and what inventories become is worked out; 2. allocations
   are assigned (both in :mod:`~resource_objects.providers.transfer`); 3. the trees as they shall be
   are compared with the kept ones, and everything that each consumer then holds becomes its order;
   4. what comes out is weighed against what was there, apart from how it was made.

A reshape says what becomes of inventories by itself, or it goes with changes of definitions that
say it: trees that a caller states, of which its moves only say where allocations go.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set

from resource_objects import exceptions
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.definition import (
    DefinitionChanges,
    ExpectedUse,
    ProviderRemoval,
    ProviderUpdate,
    diff,
    merge_changes,
)
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Key, Use
from resource_objects.providers.plan import Plan
from resource_objects.providers.provider import Provider
from resource_objects.providers.reshape import Reshape
from resource_objects.providers.row_diff import holdings
from resource_objects.providers.transfer import (
    Balances,
    InventoryFlow,
    Problems,
    ReshapeState,
    Transfer,
    assign,
    final_records,
    flows_of,
    keeps_rules,
)
from resource_objects.resources import resource
from resource_objects.resources.records import InventoryRecord


def concerned(
    reshape: Reshape, columns: Columns, changes: DefinitionChanges | None = None
) -> tuple[str, ...]:
    """Return who holds something where a reshape moves it away from, by name.

    :param changes: as :func:`compile_reshape` takes them
    :raises NotFound: if a provider of the reshape is neither kept nor created
    """
    kept = ReshapeState(reshape, columns, changes)
    return _concerned(reshape, kept, holdings(columns))


def _concerned(
    reshape: Reshape, kept: ReshapeState, read: Mapping[str, Mapping[Key, Use]]
) -> tuple[str, ...]:
    sources = {flow.source for flow in flows_of(reshape, kept, Problems())}
    return tuple(sorted(name for name, held in read.items() if not sources.isdisjoint(held)))


def compile_reshape(
    reshape: Reshape,
    columns: Columns,
    claims: Mapping[str, ConsumerRecord],
    changes: DefinitionChanges | None = None,
) -> Plan:
    """Return the plan that a reshape comes to. Cost: linear in the trees and in who is concerned.

    :param columns: the trees of all :attr:`Reshape.providers`, with allocations
    :param claims: what :func:`concerned` consumers hold, by name
    :param changes: what becomes of definitions where a caller states it, worked out on the same
        columns. The reshape then creates and removes nothing itself, its moves say where
        allocations go (:func:`~resource_objects.providers.transfer.flows_of`), and what they
        say of totals is compared
    :raises NotFound: if a provider is neither kept nor created
    :raises AlreadyExists: if one to create is there already
    :raises InvalidPlan: if it would lose or invent an allocation or some of an inventory, does not
        say where one goes, or one fits nowhere
    :raises InvalidTree: if the providers would form no tree any more, or a share lead nowhere
    :raises Stale: if a consumer does not hold what the columns say: read both again
    """
    kept, problems = ReshapeState(reshape, columns, changes), Problems()
    read = holdings(columns)
    _check_claims(_concerned(reshape, kept, read), claims, read)
    flows, final = _flows(reshape, kept, problems)
    transfers = assign(flows, claims, kept, Balances(kept, final), problems)
    problems.refuse()
    if changes is None:
        changes = _definitions(reshape, columns, kept, final)
    orders = tuple(_orders(transfers, claims, kept))
    _weigh(reshape, orders, claims, {key for key, record in final.items() if record is None})
    changes = _as_used(changes, {flow.source for flow in flows}, kept)
    plan = Plan(changes or None, orders)
    # what else its consumers hold, such as of a shared pool, is of trees that were not read
    held = (use for record in claims.values() for use in record.held)
    known = {**{use.provider_uuid: use.provider for use in held}, **kept.names}
    return dataclasses.replace(plan, names={uuid: known[uuid] for uuid in plan.places})


def _flows(
    reshape: Reshape, kept: ReshapeState, problems: Problems
) -> tuple[list[InventoryFlow], Mapping[Key, InventoryRecord | None]]:
    """Return what goes where, and what becomes of the inventories that change."""
    flows = flows_of(reshape, kept, problems)
    problems.refuse()
    if kept.is_stated:
        return flows, kept.changed
    final = final_records(flows, kept, problems)
    problems.refuse()
    return flows, final


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
                raise exceptions.Stale("consumer", name, "while it was read")


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


def _as_used(
    changes: DefinitionChanges, sources: Set[Key], kept: ReshapeState
) -> DefinitionChanges:
    """Return changes that hold only while nobody else takes of what moves.

    What goes wholly is refused anyway while somebody holds of it. Who takes of what stays with
    less would be left there, with a unit of his, though it is counted elsewhere from then on.
    """

    def guarded(update: ProviderUpdate) -> ProviderUpdate:
        uuid = update.definition.uuid
        names = (record.resource_class for record in update.changed)
        used = [
            ExpectedUse(name, kept.records[uuid, name].used)
            for name in names
            if (uuid, name) in sources
        ]
        return dataclasses.replace(update, expected_use=tuple(used)) if used else update

    return dataclasses.replace(changes, updates=tuple(map(guarded, changes.updates)))


# --- orders ---


def _orders(
    transfers: Iterable[Transfer], claims: Mapping[str, ConsumerRecord], kept: ReshapeState
) -> Iterator[ConsumerOrder]:
    out = functools.cache(kept.is_out_of_service)

    @functools.cache  # most consumers hold as much as others
    def keeps(place: Key, amount: int) -> bool:
        return keeps_rules(kept.records[place], amount)

    by_consumer: dict[str, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        by_consumer[transfer.consumer].append(transfer)
    for name in sorted(by_consumer):
        claim, own = claims[name], by_consumer[name]
        deltas = tuple(_held_after(claim.held, own))
        # who holds what no single consumer may, for it stands for many or was adopted, still does;
        # and what is held of a host out of service is not taken anew
        sources = {one.source for one in own}
        stands_for_many = not all(
            keeps(one.key, one.amount) for one in claim.held if one.key in sources
        )
        was_out = any(out(one.source[0]) for one in own) and all(
            out(one.source[0]) for one in own if out(one.target[0])
        )
        yield ConsumerOrder.replace(
            name,
            deltas,
            request=claim.request,
            generation=claim.generation,
            aggregate=stands_for_many,
            overrides_disabled=was_out,
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
        if not _units(claim.held) <= _units(
            then
        ):  # one that had none may get names for what it has
            problems.add(f"{name} would not hold the units it holds", name)
        if any(one.key in gone for one in then):
            problems.add(f"{name} would hold something of an inventory that goes", name)
    problems.refuse()


def _units(held: Iterable[Use]) -> Counter[str]:
    return Counter(unit for one in held for unit in one.units)


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
