"""From a reshape to a plan: what it comes to on what is kept, or why it cannot be. Pure.

1. everything that is named is found, and what inventories become is reckoned
   (:mod:`~resource_objects.providers.reckoning`);
2. allocations are assigned (:mod:`~resource_objects.providers.assignment`);
3. the trees as they shall be are compared with the kept ones, and everything that each consumer
   then holds becomes its order;
4. what comes out is weighed against what was there, apart from how it was made (:func:`_weigh`).
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from resource_objects import exceptions
from resource_objects.providers.assignment import assign
from resource_objects.providers.books import Books, Transfer
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderRemoval,
    diff,
    together,
)
from resource_objects.providers.orders import ClaimRecord, Delta, Held, Key, Replacement
from resource_objects.providers.plan import Plan
from resource_objects.providers.provider import Provider
from resource_objects.providers.reckoning import (
    Kept,
    Problems,
    final_records,
    flows_of,
    sources_of,
)
from resource_objects.providers.reshape import Reshape
from resource_objects.providers.row_diff import holdings
from resource_objects.resources import resource
from resource_objects.resources.records import InventoryRecord


def concerned(reshape: Reshape, columns: Columns) -> tuple[str, ...]:
    """Return who holds something where a reshape moves it away from, by name.

    :raises ProviderNotFound: if a provider of the reshape is neither kept nor created
    """
    return _concerned(reshape, Kept(reshape, columns), holdings(columns))


def _concerned(
    reshape: Reshape, kept: Kept, read: Mapping[str, Mapping[Key, Delta]]
) -> tuple[str, ...]:
    sources = sources_of(reshape, kept)
    return tuple(sorted(name for name, held in read.items() if not sources.isdisjoint(held)))


def compile_reshape(reshape: Reshape, columns: Columns, claims: Mapping[str, ClaimRecord]) -> Plan:
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
    kept, problems = Kept(reshape, columns), Problems()
    read = holdings(columns)
    _check_claims(_concerned(reshape, kept, read), claims, read)
    flows = flows_of(reshape, kept, problems)
    problems.refuse()
    final = final_records(flows, kept, problems)
    problems.refuse()
    transfers = assign(flows, claims, kept, Books(kept, final), problems)
    problems.refuse()
    changes = _definitions(reshape, columns, kept, final)
    orders = tuple(_orders(transfers, claims))
    _weigh(reshape, orders, claims, {key for key, record in final.items() if record is None})
    plan = Plan(changes or None, orders)
    return dataclasses.replace(plan, names={uuid: kept.names[uuid] for uuid in plan.places})


def _check_claims(
    consumers: Iterable[str],
    claims: Mapping[str, ClaimRecord],
    read: Mapping[str, Mapping[Key, Delta]],
) -> None:
    """Raise if what consumers hold was read before or after the columns."""
    for name in consumers:
        held = {one.key: one.amount for one in claims[name].held} if name in claims else {}
        for key, delta in read[name].items():
            if held.get(key) != delta.amount:
                raise exceptions.StaleConsumer(name, "while it was read")


# --- definitions ---


def _definitions(
    reshape: Reshape,
    columns: Columns,
    kept: Kept,
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
    return together(names[0] if len(names) == 1 else f"{len(names)} trees", changed)


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
    transfers: Iterable[Transfer], claims: Mapping[str, ClaimRecord]
) -> Iterator[Replacement]:
    by_consumer: dict[str, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        by_consumer[transfer.consumer].append(transfer)
    for name in sorted(by_consumer):
        claim = claims[name]
        deltas = tuple(_held_after(claim.held, by_consumer[name]))
        yield Replacement(
            name, deltas, claim.id, request=claim.request, generation=claim.generation
        )


def _held_after(held: Iterable[Held], transfers: Iterable[Transfer]) -> Iterator[Delta]:
    amounts = {one.key: one.amount for one in held}
    units = {one.key: list(one.units) for one in held}
    for transfer in transfers:
        amounts[transfer.source] -= transfer.amount
        amounts[transfer.target] = amounts.get(transfer.target, 0) + transfer.amount
        units[transfer.source] = [u for u in units[transfer.source] if u not in transfer.units]
        units.setdefault(transfer.target, []).extend(transfer.units)
    for key, amount in amounts.items():
        if amount:
            yield Delta(*key, amount, tuple(units[key]))


# --- weighed ---


def _weigh(
    reshape: Reshape,
    orders: Iterable[Replacement],
    claims: Mapping[str, ClaimRecord],
    gone: set[Key],
) -> None:
    """Raise unless everybody holds what it held: each class and unit, wherever it is counted."""
    problems = Problems()
    group = _groups(reshape)
    after = {order.consumer: order.deltas for order in orders}
    for name, claim in claims.items():
        then: Iterable[Held | Delta] = after.get(name, claim.held)
        if _sums(claim.held, group) != _sums(then, group):
            problems.add(f"{name} would not hold what it holds", name)
        if _units(claim.held) != _units(then):
            problems.add(f"{name} would not hold the units it holds", name)
        if any(one.key in gone for one in then):
            problems.add(f"{name} would hold something of an inventory that goes", name)
    problems.refuse()


def _units(held: Iterable[Held | Delta]) -> list[str]:
    return sorted(unit for one in held for unit in one.units)


def _groups(reshape: Reshape) -> dict[str, str]:
    """Return what each class is weighed as: classes that become each other are one."""
    group: dict[str, str] = {}
    for move in reshape.moves:
        for part in move.to:
            old = group.get(move.resource_class, move.resource_class)
            new = part.resource_class or move.resource_class
            new = group.get(new, new)
            group = {name: new if one == old else one for name, one in group.items()}
            group[old] = group[move.resource_class] = new
    return group


def _sums(held: Iterable[Held | Delta], group: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for one in held:
        found[group.get(one.resource_class, one.resource_class)] += one.amount
    return dict(found)
