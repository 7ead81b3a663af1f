"""What a plan would come to: the decision of a write on what was read, without the write.

The same checks that a backend makes, on :class:`~resource_objects.providers.columns.Columns`, so a
dry run refuses what the real run would refuse on an unchanged ledger.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from resource_objects import exceptions
from resource_objects.providers.columns import (
    AggregateColumns,
    AllocationColumns,
    Columns,
    InventoryColumns,
    KindColumns,
    ProviderColumns,
    ShareColumns,
    TraitColumns,
    UnitColumns,
)
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    StoredDefinitions,
    definitions_of,
    inventories_of,
)
from resource_objects.providers.disabled import FOREVER, Disabled, DisableOrder, RemovedUnit
from resource_objects.providers.orders import Change, ConsumerRecord, Key, Use
from resource_objects.providers.plan import Plan, check_plan
from resource_objects.providers.provider import Provider, Share
from resource_objects.providers.removed_units import removed_of, removed_units
from resource_objects.providers.row_diff import holdings, stored_definitions
from resource_objects.providers.settle import Place, Settlement, Unit, settle

_Definitions: TypeAlias = Mapping[str, ProviderDefinition]
#: The disabled providers, by uuid.
_Out: TypeAlias = Mapping[str, Disabled]

#: Stands for now in a rehearsal, where nothing is kept.
_NO_MOMENT = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


def rehearse(
    plan: Plan, columns: Columns, claims: Mapping[str, ConsumerRecord], now: datetime.datetime
) -> Settlement:
    """Return what a plan's orders would come to on what was read, or raise what would be raised.

    As a write does, it judges them by what is in service when all is done.

    :param columns: the trees of all :attr:`Plan.places`, of what its consumers hold, and of
        providers of the names to create
    :param claims: what :attr:`Plan.consumers` hold, by name
    :param now: by the clock of the ledger
    :raises Stale: if a provider is not at the generation of the plan, or in service
        otherwise than it is expected to be
    :raises AlreadyExists: if a name or uuid to create is taken
    :raises InvalidPlan: as :func:`check_definitions`
    :raises InUse: if something to remove would still be used
    :raises NotFound: if what is adopted or put out of service is not there
    :raises ResourceObjectsError: whatever :func:`~resource_objects.providers.settle.settle` refuses
    """
    changes = plan.definitions or DefinitionChanges("")
    wanted = check_definitions(changes, columns)
    out = out_after(columns, plan.disabling, now)
    places = _places(wanted, columns, out)
    settlement = settle(
        plan.orders,
        claims,
        places,
        {uuid: one.name for uuid, one in wanted.items()},
        _NO_MOMENT,
        holders=lambda keys: _holders(columns, places, keys),
        takers=lambda units: _takers(columns, units),
        out_of_service=lambda uuids: _out_of_service(wanted, out, uuids),
        removed_units=lambda uuids: _removed_units(wanted, columns, uuids),
    )
    _check_removed(changes, places, settlement, columns)
    for uuid in (*plan.adopted, *(said.provider_uuid for said in plan.disabling)):
        if uuid not in wanted:
            raise exceptions.NotFound("provider", uuid)
    return settlement


# --- definitions ---


def check_definitions(
    changes: DefinitionChanges, columns: Columns
) -> dict[str, ProviderDefinition]:
    """Raise unless changes can be made to what was read; return what is there meanwhile.

    :param columns: as for :func:`rehearse`; allocations are not looked at
    :returns: the definitions by uuid while orders are carried out: what goes is still there
    :raises Stale: if a provider is not at the generation of the plan
    :raises AlreadyExists: if a name or uuid to create is taken
    :raises InvalidPlan: if what is to be are no trees, a share breaks a rule of shares, or changes
        do not lead to the definitions they say
    """
    kept = stored_definitions(columns)
    _check_generations(changes, kept)
    wanted = _wanted(changes, kept)
    _check_tree(changes, wanted)
    gone = {one.uuid for one in changes.removals}
    final = {uuid: one for uuid, one in wanted.items() if uuid not in gone}
    final.update((update.definition.uuid, update.definition) for update in changes.updates)
    check_plan(changes, {uuid: one.definition for uuid, one in kept.items()}, final)
    return wanted


def _check_generations(changes: DefinitionChanges, had: StoredDefinitions) -> None:
    read = [(one.definition.uuid, one.definition.name, one.generation) for one in changes.updates]
    read += [(one.uuid, one.name, one.generation) for one in changes.removals]
    for uuid, name, generation in read:
        if uuid not in had:
            raise exceptions.Stale("provider", name, "it is gone")
        if had[uuid].generation != generation:
            raise exceptions.Stale(
                "provider", name, f"read at generation {generation}, now {had[uuid].generation}"
            )
    for created in changes.creates:
        if created.uuid in had:
            raise exceptions.AlreadyExists("provider", created.uuid)


def _wanted(changes: DefinitionChanges, had: StoredDefinitions) -> dict[str, ProviderDefinition]:
    """Return the definitions while orders are carried out: what goes is still there."""
    wanted = {uuid: kept.definition for uuid, kept in had.items()}
    wanted.update((created.uuid, created) for created in changes.creates)
    for update in changes.updates:
        uuid = update.definition.uuid
        stays = [one for one in wanted[uuid].inventories if one.resource_class in update.removed]
        wanted[uuid] = dataclasses.replace(
            update.definition, inventories=(*update.definition.inventories, *stays)
        )
    return wanted


def _check_tree(changes: DefinitionChanges, wanted: _Definitions) -> None:
    """Raise if names or parents would not do when all is done."""
    gone = {one.uuid for one in changes.removals}
    seen: dict[str, str] = {}
    for uuid, definition in wanted.items():
        if uuid in gone:
            continue
        if seen.setdefault(definition.name, uuid) != uuid:
            raise exceptions.AlreadyExists("provider", definition.name)
        above = definition.parent_uuid
        if above is not None and (above in gone or above not in wanted):
            raise exceptions.Stale("provider", definition.name, "its parent is gone")


def _check_removed(
    changes: DefinitionChanges,
    places: Mapping[Key, Place],
    settlement: Settlement,
    columns: Columns,
) -> None:
    def is_used(key: Key) -> bool:
        return key in places and places[key].record.used + settlement.nets.get(key, 0) != 0

    def consumers(keys: Collection[Key]) -> list[str]:
        drawn = _holders(columns, places, keys).values()
        return sorted({name for some in drawn for name, _ in some})

    for removal in changes.removals:
        used = [key for key in places if key[0] == removal.uuid and is_used(key)]
        if used:
            raise exceptions.InUse("provider", removal.name, consumers=consumers(used))
    for update in changes.updates:
        for name in update.removed:
            key = update.definition.uuid, name
            if is_used(key):
                raise exceptions.InUse("inventory", update.definition.name, name, consumers([key]))


def trees_after(roots: Iterable[Provider], changes: DefinitionChanges | None) -> list[Provider]:
    """Return trees as changes would leave them, by name, without what is used. Cost: linear.

    :param roots: the trees that the changes are about, as they are kept

    >>> from resource_objects.providers.definition import diff
    >>> gpus = Provider("box", "VGPU=8", uuid="1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33", generation=0)
    >>> wanted = Provider("box", "VCPU=4", children=[Provider("box/gpu0", "VGPU=8")])
    >>> [box] = trees_after([gpus], diff(gpus, wanted))
    >>> print(box, *box.children, sep=", ")
    box: VCPU=4, box/gpu0: VGPU=8
    """
    final = {uuid: one.definition for uuid, one in definitions_of(roots).items()}
    if changes is not None:
        final.update((one.uuid, one) for one in changes.creates)
        final.update((one.definition.uuid, one.definition) for one in changes.updates)
        for removal in changes.removals:
            final.pop(removal.uuid, None)
    below: dict[str | None, list[ProviderDefinition]] = defaultdict(list)
    for one in sorted(final.values(), key=lambda one: one.name):
        below[one.parent_uuid].append(one)
    names = {uuid: one.name for uuid, one in final.items()}

    def made(one: ProviderDefinition) -> Provider:
        return Provider(
            one.name,
            inventories_of(one.inventories, one.kinds),
            traits=one.traits,
            uuid=one.uuid,
            aggregates=one.aggregates or (),
            shares=[
                Share(
                    resource_class=share.resource_class,
                    of=names[share.of_uuid],
                    of_class=share.of_class,
                    factor=share.factor,
                )
                for share in one.shares
            ],
            children=map(made, below[one.uuid]),
        )

    return list(map(made, below[None]))


# --- what settle asks ---


def _places(wanted: _Definitions, columns: Columns, out: _Out) -> dict[Key, Place]:
    shares: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
    for uuid, definition in wanted.items():
        for share in definition.shares:
            target = share.of_uuid, share.of_class
            shares[uuid, share.resource_class].append((target, share.factor))
    disabled = {uuid for uuid in (wanted if out else ()) if _out_of_service(wanted, out, [uuid])}
    used: dict[Key, int] = defaultdict(int)
    for held in holdings(columns).values():
        for key, delta in held.items():
            used[key] += delta.amount
            for target, factor in shares.get(key, ()):
                used[target] += delta.amount * factor
    return {
        (uuid, record.resource_class): Place(
            definition.name,
            dataclasses.replace(record, used=used[uuid, record.resource_class]),
            tuple(shares.get((uuid, record.resource_class), ())),
            FOREVER if uuid in disabled else None,
            len(removed_units((kind.resource_class, kind.body) for kind in definition.kinds)),
        )
        for uuid, definition in wanted.items()
        for record in definition.inventories
    }


def _holders(
    columns: Columns, places: Mapping[Key, Place], keys: Collection[Key]
) -> Mapping[Key, Iterable[tuple[str, int]]]:
    """Return who draws on some inventories, through shares too, and how much."""
    found: dict[Key, dict[str, int]] = {key: defaultdict(int) for key in keys}
    for consumer, held in holdings(columns).items():
        for key, delta in held.items():
            for target, factor in ((key, 1), *(places[key].shares if key in places else ())):
                if target in found:
                    found[target][consumer] += delta.amount * factor
    return {key: tuple(drawn.items()) for key, drawn in found.items()}


def _out_of_service(wanted: _Definitions, out: _Out, uuids: Iterable[str]) -> dict[str, Disabled]:
    """Return what is disabled at some providers or above them, by name."""
    found: dict[str, Disabled] = {}
    for uuid in uuids:
        at: str | None = uuid
        while at is not None:
            if at in out:
                found[wanted[at].name] = out[at]
            at = wanted[at].parent_uuid
    return found


def _removed_units(
    wanted: _Definitions, columns: Columns, uuids: Iterable[str]
) -> dict[str, tuple[RemovedUnit, ...]]:
    taken: dict[str, set[str]] = defaultdict(set)
    for (uuid, unit), _ in _taken(columns):
        taken[uuid].add(unit)
    return {
        uuid: removed_of(
            ((kind.resource_class, kind.body) for kind in wanted[uuid].kinds), taken[uuid]
        )
        for uuid in uuids
    }


def _takers(columns: Columns, units: Collection[Unit]) -> dict[Unit, str]:
    return {unit: consumer for unit, consumer in _taken(columns) if unit in units}


def _taken(columns: Columns) -> Iterator[tuple[Unit, str]]:
    uuid = columns.index.uuids
    for number, unit, _, consumer in zip(*columns.units, strict=True):
        yield (uuid[number], unit), consumer


# --- columns as they would be ---------------------------------------------------------------------
#
# Columns as they would be: with something taken, or without what a consumer holds. Pure.
#
# Who decides where several amounts go at once decides each beside those before it; who moves a
# consumer decides as if it held nothing. Neither changes what is kept.


_T = TypeVar("_T", bound=tuple[Any, ...])
_F = TypeVar("_F")

#: (provider's number, resource class)
_Place: TypeAlias = tuple[int, str]


def with_taken(columns: Columns, deltas: Iterable[Use], consumer: str = "") -> Columns:
    """Return columns as if ``deltas`` were taken, as far as they are of providers in them.

    Allocations are left as they are: it is for deciding, not for telling who holds what. Cost:
    linear in the rows, nothing where there are no deltas.

    :param consumer: who has their units then
    """
    deltas = list(deltas)
    if not deltas:
        return columns
    numbers = columns.index.numbers
    counts: dict[_Place, int] = defaultdict(int)
    more: list[tuple[int, str, str, str]] = []
    for delta in deltas:
        if delta.provider_uuid in numbers:
            number = numbers[delta.provider_uuid]
            counts[number, delta.resource_class] += delta.amount
            more += [(number, unit, delta.resource_class, consumer) for unit in delta.units]
    units = [*zip(*columns.units, strict=True), *more]
    return dataclasses.replace(_recounted(columns, counts), units=_table(UnitColumns, units))


def after(columns: Columns, changes: Iterable[Change]) -> Columns:
    """Return columns after changes of what consumers hold, as far as they are of providers in them.

    Cost: linear in the rows.
    """
    numbers = columns.index.numbers
    counts: dict[_Place, int] = defaultdict(int)
    given: set[tuple[int, str]] = set()
    taken: list[tuple[int, str, str, str]] = []
    held = {row[:3]: row[3] for row in zip(*columns.allocations, strict=True)}
    for one in changes:
        (uuid, name), who = one.key, one.consumer
        if uuid in numbers:
            number = numbers[uuid]
            counts[number, name] += one.after - one.before
            held[number, name, who] = one.after
            given.update((number, unit) for unit in one.given)
            taken += [(number, unit, name, who) for unit in one.taken]
    units = [row for row in zip(*columns.units, strict=True) if row[:2] not in given]
    return dataclasses.replace(
        _recounted(columns, counts),
        units=_table(UnitColumns, [*units, *taken]),
        allocations=_table(AllocationColumns, [(*key, n) for key, n in held.items() if n]),
    )


def without_consumers(
    columns: Columns, *consumers: str, only: Collection[int] | None = None
) -> Columns:
    """Return columns as if some consumers held nothing. Cost: linear in the rows.

    :param only: of these providers, by number; None: of all
    """
    gone = frozenset(consumers)
    counts: dict[_Place, int] = defaultdict(int)
    others: list[tuple[Any, ...]] = []
    for row in zip(*columns.allocations, strict=True):
        number, name, who, amount = row
        if who in gone and (only is None or number in only):
            counts[number, name] -= amount
        else:
            others.append(row)
    units = [
        row
        for row in zip(*columns.units, strict=True)
        if row[3] not in gone or not (only is None or row[0] in only)
    ]
    return dataclasses.replace(
        _recounted(columns, counts),
        units=_table(UnitColumns, units),
        allocations=_table(AllocationColumns, others),
    )


def in_place(columns: Columns, consumer: str, *, only: Collection[int] | None = None) -> Columns:
    """Return columns for a change in place: without a consumer, with capacity for its use.

    The unit rules of an inventory allow the amount that the consumer has allocated of it. Its
    capacity allows all that the consumer uses of it, through shares too. Both do so even if the
    inventory shrank below that since. Cost: linear in the rows.

    :param only: of these providers, by number; None: of all
    """
    amounts = {
        (number, name): n
        for number, name, who, n in zip(*columns.allocations, strict=True)
        if who == consumer and (only is None or number in only)
    }
    found = without_consumers(columns, consumer, only=only)
    table = found.inventories
    places = zip(table.provider_id, table.resource_class, strict=True)
    in_use = [amounts.get(place, 0) for place in places]

    def allowed(figures: Sequence[_F], allow: Callable[[_F, int], _F]) -> tuple[_F, ...]:
        pairs = zip(figures, in_use, strict=True)
        return tuple(allow(figure, amount) if amount else figure for figure, amount in pairs)

    rows = zip(table.capacity, columns.inventories.used, table.used, strict=True)  # shares too
    capacity = [max(most, before) if before > used else most for most, before, used in rows]
    relaxed = table._replace(
        min_unit=allowed(table.min_unit, min),
        max_unit=allowed(table.max_unit, lambda most, n: None if most is None else max(most, n)),
        step_size=allowed(table.step_size, math.gcd),
        capacity=tuple(capacity),
    )
    return dataclasses.replace(found, inventories=relaxed)


def held_in(columns: Columns, consumer: str) -> Iterator[Use]:
    """Yield what a consumer holds of the providers in columns. Cost: linear in the rows."""
    given = columns.providers
    rows = zip(given.provider_id, given.uuid, given.name, strict=True)
    keys = {number: (uuid, name) for number, uuid, name in rows}
    units: dict[_Place, list[str]] = defaultdict(list)
    for number, unit, kind, who in zip(*columns.units, strict=True):
        if who == consumer:
            units[number, kind].append(unit)
    for number, kind, who, amount in zip(*columns.allocations, strict=True):
        if who == consumer:
            yield Use(
                keys[number][0], kind, amount, tuple(units.get((number, kind), ())), keys[number][1]
            )


def _recounted(columns: Columns, counts: Mapping[_Place, int]) -> Columns:
    """Return columns in which so much more is used, through shares too."""
    changes = dict(counts)
    for number, name, of, of_class, factor in zip(*columns.shares, strict=True):
        more = counts.get((number, name), 0)
        if more:
            changes[of, of_class] = changes.get((of, of_class), 0) + more * factor
    table = columns.inventories
    rows = zip(table.provider_id, table.resource_class, table.used, strict=True)
    used = tuple(count + changes.get((number, name), 0) for number, name, count in rows)
    return dataclasses.replace(columns, inventories=table._replace(used=used))


def _table(kind: type[_T], rows: Iterable[tuple[Any, ...]]) -> _T:
    columns = list(zip(*rows, strict=True))
    return kind(*columns) if columns else kind()


def redefined(columns: Columns, plan: Plan, now: datetime.datetime) -> Columns:
    """Return columns with the definitions and the service that a plan says; its orders are not.

    What is used stays used, where it is shared by the shares that are now. A provider that changes
    gets the next generation. Whether all that may be is :func:`rehearse`'s to say.

    :param now: by the clock of the ledger: from when on something is out of service
    :returns: parents before children. Cost: linear in the rows
    """
    changes = plan.definitions or DefinitionChanges("")
    kept = stored_definitions(columns)
    gone = {one.uuid for one in changes.removals}
    final = {uuid: one.definition for uuid, one in kept.items() if uuid not in gone}
    final |= {one.uuid: one for one in changes.creates}
    final |= {one.definition.uuid: one.definition for one in changes.updates}
    changed = {one.definition.uuid for one in changes.updates}
    given = columns.providers
    number = dict(columns.index.numbers)
    free = max(given.provider_id, default=-1) + 1
    number |= {one.uuid: free + n for n, one in enumerate(changes.creates)}
    generation = {uuid: one.generation + (uuid in changed) for uuid, one in kept.items()}
    depth = _depths({uuid: one.parent_uuid for uuid, one in final.items()})
    ordered = sorted(final.values(), key=lambda one: (depth[one.uuid][0], one.name))
    out = out_after(columns, plan.disabling, now)
    ids = {number[one.uuid] for one in ordered}
    shares = [
        (number[one.uuid], each.resource_class, number[each.of_uuid], each.of_class, each.factor)
        for one in ordered
        for each in one.shares
    ]
    found = Columns(
        providers=ProviderColumns(
            [number[one.uuid] for one in ordered],
            [one.uuid for one in ordered],
            [one.name for one in ordered],
            [None if one.parent_uuid is None else number[one.parent_uuid] for one in ordered],
            [number[depth[one.uuid][1]] for one in ordered],
            [generation.get(one.uuid, 0) for one in ordered],
            [None] * len(ordered),
            [None] * len(ordered),
            [out.get(one.uuid) for one in ordered],
        ),
        inventories=_table(
            InventoryColumns,
            [
                (number[one.uuid], *dataclasses.astuple(record.definition()))
                for one in ordered
                for record in one.inventories
            ],
        ),
        traits=_table(
            TraitColumns, [(number[one.uuid], t) for one in ordered for t in sorted(one.traits)]
        ),
        allocations=_table(AllocationColumns, _within(columns.allocations, ids)),
        aggregates=_table(
            AggregateColumns,
            [(number[one.uuid], a) for one in ordered for a in sorted(one.aggregates or ())],
        ),
        shares=_table(ShareColumns, shares),
        kinds=_table(
            KindColumns,
            [
                (number[one.uuid], kind.resource_class, kind.classes, kind.body)
                for one in ordered
                for kind in one.kinds
            ],
        ),
        units=_table(UnitColumns, _within(columns.units, ids)),
        now=columns.now or now,
    )
    held: dict[_Place, int] = defaultdict(int)
    for at, name, _, amount in zip(*found.allocations, strict=True):
        held[at, name] += amount
    return _recounted(found, held)


def _depths(parents: Mapping[str, str | None]) -> dict[str, tuple[int, str]]:
    """Return how deep each provider is, and its root."""
    found: dict[str, tuple[int, str]] = {}
    for uuid in parents:
        way = [uuid]
        while way[-1] not in found and (above := parents[way[-1]]) is not None:
            way.append(above)
        depth, root = found.get(way[-1], (0, way[-1]))
        for steps, one in enumerate(reversed(way)):
            found[one] = depth + steps, root
    return found


def out_after(
    columns: Columns, disabling: Iterable[DisableOrder], now: datetime.datetime
) -> dict[str, Disabled]:
    """Return the disabled providers after orders, by uuid.

    :raises Stale: if something is not as it was expected to be
    :raises InvalidInput: if something would end before it begins
    """
    found: dict[str, Disabled] = {}
    uuid_of = columns.index.uuids
    for number, facts in columns.disabled.items():
        found[uuid_of[number]] = facts
    names = columns.index.names_by_uuid
    for said in disabling:
        where = names.get(said.provider_uuid, said.provider_uuid)
        after = said.carried_out(found.pop(said.provider_uuid, None), None, now, where)
        if after is not None:
            found[said.provider_uuid] = after
    return found


def _within(table: Any, numbers: Collection[int]) -> list[tuple[Any, ...]]:
    return [row for row in zip(*table, strict=True) if row[0] in numbers]
