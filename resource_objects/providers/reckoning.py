"""What inventories become by a reshape: what one loses, others get. Pure."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping

from resource_objects import exceptions
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import to_records
from resource_objects.providers.orders import Key
from resource_objects.providers.reshape import Move, NewProvider, Part, Reshape
from resource_objects.resources import resource
from resource_objects.resources.records import InventoryRecord

_FIGURES = ("min_unit", "max_unit", "step_size", "ratio_millionths")


class Problems:
    """What stands against a plan: texts, and the consumers they are about."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._consumers: dict[str, None] = {}

    def add(self, text: str, consumer: str | None = None) -> None:
        """Note one."""
        self._texts.append(text)
        if consumer is not None:
            self._consumers[consumer] = None

    def refuse(self) -> None:
        """Raise if there are any.

        :raises InvalidPlan: with all of them
        """
        if self._texts:
            raise exceptions.InvalidPlan(
                "reshape", "; ".join(self._texts), self._texts, self._consumers
            )


class Kept:
    """What is kept and what shall be created, to be looked up by name, uuid and place."""

    def __init__(self, reshape: Reshape, columns: Columns) -> None:
        given = columns.providers
        uuid = dict(zip(given.provider_id, given.uuid, strict=True))
        #: names by uuid, also of what is created
        self.names = dict(zip(given.uuid, given.name, strict=True))
        self._uuids = {name: own for own, name in self.names.items()}
        #: inventories as kept, with what is used
        self.records = {
            (uuid[number], figures[0]): InventoryRecord(*figures)
            for number, *figures in zip(*columns.inventories, strict=True)
        }
        self._structured = {
            (uuid[number], name)
            for number, _, classes, _ in zip(*columns.kinds, strict=True)
            for name in classes
        }
        #: what an allocation also uses elsewhere, and how much of it
        self.shares: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        for number, kind, of_id, of_class, factor in zip(*columns.shares, strict=True):
            self.shares[uuid[number], kind].append(((uuid[of_id], of_class), factor))
        #: inventories of what is created, as they are stated
        self.stated: dict[Key, InventoryRecord] = {}
        for new in reshape.create:
            self._create(new)
        for new in reshape.create:
            for share in new.shares:
                target = self.uuid(share.of), share.of_class
                self.shares[new.uuid, share.resource_class].append((target, share.factor))

    def _create(self, new: NewProvider) -> None:
        if new.name in self._uuids or new.uuid in self.names:
            raise exceptions.ProviderExists(new.name)
        if new.parent is not None:
            self.uuid(new.parent)  # kept, or created before it
        self.names[new.uuid] = new.name
        self._uuids[new.name] = new.uuid
        records, _ = to_records(new.provider().inventories)
        self.stated.update(((new.uuid, record.resource_class), record) for record in records)

    def uuid(self, key: str) -> str:
        """Return the uuid of a provider by name or uuid.

        :raises ProviderNotFound: if it is neither kept nor created
        """
        found = self._uuids.get(key, key)
        if found not in self.names:
            raise exceptions.ProviderNotFound(key)
        return found

    def is_structured(self, key: Key) -> bool:
        """Return whether a kept inventory is a part of a structured one."""
        return key in self._structured

    def said(self, key: Key) -> str:
        """Return a place in words."""
        return f"{key[1]} of {self.names[key[0]]}"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Where a part of a move goes, with how much of the figures."""

    key: Key
    part: Part
    total: int
    reserved: int


@dataclasses.dataclass(frozen=True, slots=True)
class Flow:
    """A move of what is kept: from where, how much, to where."""

    source: Key
    move: Move
    targets: tuple[Target, ...]
    out: int  #: what the total of the source loses

    @property
    def reserved(self) -> int:
        """What is reserved at the targets."""
        return sum(target.reserved for target in self.targets)


def flows_of(reshape: Reshape, kept: Kept, problems: Problems) -> list[Flow]:
    """Return the moves of a reshape, as far as they can be told."""
    found = [_flow(move, kept, problems) for move in reshape.moves]
    flows = [flow for flow in found if flow is not None]
    seen: set[Key] = set()
    for flow in flows:  # by uuid too: one may be named by its name and by its uuid
        _check_places(flow, kept, problems)
        if flow.source in seen:
            problems.add(f"{kept.said(flow.source)} is moved twice")
        seen.add(flow.source)
    return flows


def sources_of(reshape: Reshape, kept: Kept) -> set[Key]:
    """Return the places that something is moved away from."""
    return {(kept.uuid(move.from_), move.resource_class) for move in reshape.moves}


def _check_places(flow: Flow, kept: Kept, problems: Problems) -> None:
    keys = [target.key for target in flow.targets]
    if flow.source in keys or len(set(keys)) != len(keys):
        problems.add(f"{kept.said(flow.source)} is moved to itself, or to one place twice")
    for key in (flow.source, *keys):
        if kept.is_structured(key):
            problems.add(f"{kept.said(key)} is part of a structured inventory")


def _flow(move: Move, kept: Kept, problems: Problems) -> Flow | None:
    source = kept.uuid(move.from_), move.resource_class
    targets = [(kept.uuid(part.provider), part) for part in move.to]
    record = kept.records.get(source)
    if record is None:
        problems.add(f"there is no {kept.said(source)}")
        return None
    found = [_target(uuid, part, move, record, kept, problems) for uuid, part in targets]
    total = sum(target.total for target in found)
    out = total if move.total is None else move.total
    if out > record.total:
        problems.add(f"{kept.said(source)} would lose {out} of {record.total}")
    return Flow(source, move, tuple(found), out)


def _target(
    uuid: str, part: Part, move: Move, record: InventoryRecord, kept: Kept, problems: Problems
) -> Target:
    key = uuid, part.resource_class or move.resource_class
    stated = kept.stated.get(key)
    total, reserved = part.total, part.reserved
    if stated is not None:
        total, reserved = stated.total if total is None else total, stated.reserved
    elif total is None and len(move.to) == 1:
        total, reserved = record.total, reserved or record.reserved
    if total is None:
        problems.add(
            f"how much of {kept.said((kept.uuid(move.from_), move.resource_class))} goes "
            f"to {kept.names[uuid]} is not said"
        )
    return Target(key, part, total or 0, reserved)


def final_records(
    flows: Iterable[Flow], kept: Kept, problems: Problems
) -> dict[Key, InventoryRecord | None]:
    """Return the inventories that a reshape changes as they will be, None for one that goes."""
    totals: dict[Key, int] = defaultdict(int)
    reserved: dict[Key, int] = defaultdict(int)
    models: dict[Key, list[InventoryRecord]] = defaultdict(list)
    for flow in flows:
        totals[flow.source] -= flow.out
        if flow.out:
            reserved[flow.source] -= flow.reserved
        for target in flow.targets:
            totals[target.key] += target.total
            reserved[target.key] += target.reserved
            models[target.key].append(kept.records[flow.source])
    _check_reserved(flows, totals, kept, problems)
    return {
        key: _final(key, change, reserved[key], models[key], kept, problems)
        for key, change in totals.items()
    }


def _check_reserved(
    flows: Iterable[Flow], totals: Mapping[Key, int], kept: Kept, problems: Problems
) -> None:
    """Note what is reserved of an inventory that goes and nowhere afterwards."""
    for flow in flows:
        record = kept.records[flow.source]
        goes = record.total + totals[flow.source] == 0
        if goes and flow.move.total is None and flow.reserved != record.reserved:
            problems.add(
                f"{record.reserved} of {kept.said(flow.source)} are reserved, "
                f"{flow.reserved} of what becomes of it"
            )


def _final(
    key: Key,
    change: int,
    reserved: int,
    models: list[InventoryRecord],
    kept: Kept,
    problems: Problems,
) -> InventoryRecord | None:
    if key in kept.stated:
        stated = kept.stated[key]
        if stated.total != change:
            problems.add(f"{kept.said(key)} is stated as {stated.total} and gets {change}")
        return stated
    before = kept.records.get(key)
    if before is None:
        before = _like(key, models, kept, problems)
    total = before.total + change
    if total <= 0:
        return None
    try:
        return _with_figures(before, total, before.reserved + reserved)
    except exceptions.InvalidInput as error:
        problems.add(f"{kept.said(key)} cannot be: {error}")
        return before


def _like(
    key: Key, models: list[InventoryRecord], kept: Kept, problems: Problems
) -> InventoryRecord:
    """Return an inventory of nothing with the rules of those it is made of."""
    model = models[0]
    if any(getattr(one, name) != getattr(model, name) for one in models for name in _FIGURES):
        problems.add(f"{kept.said(key)} is made of inventories with different rules: state it")
    return dataclasses.replace(model, resource_class=key[1], total=0, reserved=0, used=0)


def _with_figures(record: InventoryRecord, total: int, reserved: int) -> InventoryRecord:
    """Return an inventory with another total, as its kind keeps it."""
    most = record.max_unit
    wanted = dataclasses.replace(
        record,
        total=total,
        reserved=reserved,
        max_unit=None if most is None else min(most, total),
        used=0,
    )
    (made,) = resource(record.resource_class).inventory_from_records((wanted,)).to_records()
    return made
