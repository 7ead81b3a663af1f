"""Units that are asked for by name by who decides elsewhere: those that a part has. Pure.

A kind whose inventories lie over a tree says which units each part has; those of a part are taken
there, and not of the host that it shares them with. What it says holds for the definition that was
read, which the write therefore demands to be as it was. Units of other providers are named as one
likes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.ledger.found import Choice
from resource_objects.providers.columns import Columns, records_by_provider
from resource_objects.providers.orders import Delta
from resource_objects.resources import Inventory, resource

_SHOWN = 16


def named_units(choice: Choice) -> tuple[Delta, ...]:
    """Return what a choice takes by unit where it is not known yet which units there are."""
    known = {uuid for uuid, _ in choice.relied}
    return tuple(
        delta
        for delta in choice.deltas
        if delta.units and delta.amount > 0 and delta.provider_uuid not in known
    )


def with_units(choice: Choice, columns: Columns, consumer: str, leaving: bool = False) -> Choice:
    """Return a choice that relies on the definitions of the parts whose units it names.

    What the consumer holds there already it may name, whatever became of it. Who names a unit that
    others go with (a physical function, and those split off it) gets all of them.

    :param columns: the trees of :func:`named_units`
    :param leaving: whether the consumer gives back what it holds
    :raises UnitNotFound: for a name that is no unit of that class there
    :raises InvalidAmount: if the units are not as many as the amount, or only some of those that
        go together
    :raises UnitTaken: if somebody took it of another part, before it became one of this part
    """
    units = _Units(columns, consumer, leaving)
    relied = dict(choice.relied)
    named = {delta.key for delta in named_units(choice)}
    deltas: list[Delta] = []
    for delta in choice.deltas:
        if delta.key in named:
            relied.update(units.relied(delta))
            delta = units.completed(delta)
        deltas.append(delta)
    return dataclasses.replace(choice, deltas=tuple(deltas), relied=tuple(relied.items()))


class _Units:
    """The units of the parts of some trees."""

    def __init__(self, columns: Columns, consumer: str, leaving: bool) -> None:
        given = columns.providers
        self._columns = columns
        self._number = dict(zip(given.uuid, given.provider_id, strict=True))
        self._name = dict(zip(given.provider_id, given.name, strict=True))
        self._root = dict(zip(given.provider_id, given.root_id, strict=True))
        self._generation = dict(zip(given.provider_id, given.generation, strict=True))
        self._consumer = consumer
        self._leaving = leaving
        self._records = records_by_provider(columns.inventories)
        #: the inventories that parts are kept as, and those of them that say which units they have
        self._kept = dict(self._inventories())
        self._of_parts = {
            key: units
            for key, inventory in self._kept.items()
            if (units := inventory.units(key[1])) is not None
        }

    def _inventories(self) -> Iterator[tuple[tuple[int, str], Inventory]]:
        for number, kind, classes, body in zip(*self._columns.kinds, strict=True):
            own = [one for one in self._records.get(number, ()) if one.resource_class in classes]
            inventory = resource(kind).inventory_from_kept(own, body or None)
            yield from (((number, name), inventory) for name in classes)

    def _is_known(self, delta: Delta) -> bool:
        """Return whether it is of a part, or of what parts with units share theirs with."""
        number = self._number.get(delta.provider_uuid)
        if number is None:
            return False  # the write says that it is gone
        key = number, delta.resource_class
        return key in self._of_parts or self._is_of_parts(*key)

    def relied(self, delta: Delta) -> Iterator[tuple[str, int]]:
        """Yield the definition on which what is taken by unit relies, if any."""
        if self._is_known(delta):
            yield delta.provider_uuid, self._generation[self._number[delta.provider_uuid]]

    def completed(self, delta: Delta) -> Delta:
        """Return what is taken by unit, checked, with the units that go with those it names."""
        if not self._is_known(delta):
            return delta
        number = self._number[delta.provider_uuid]
        key = number, delta.resource_class
        mine = {
            unit
            for at, unit, kind, who in zip(*self._columns.units, strict=True)
            if (at, kind, who) == (*key, self._consumer)
        }
        together: Mapping[str, frozenset[str]] = {}
        if key in self._kept:
            together = self._kept[key].companions(delta.resource_class)
        delta = _with_companions(delta, together)
        new = [unit for unit in delta.units if unit not in mine]
        if new:
            self._check(delta, number, new, frozenset().union(*together.values()))
        return delta

    def _is_of_parts(self, number: int, name: str) -> bool:
        """Return whether parts that say which units they have share theirs with a provider."""
        table = self._columns.shares
        return any(
            (of, of_class) == (number, name) and (part, kind) in self._of_parts
            for part, kind, of, of_class, _ in zip(*table, strict=True)
        )

    def _check(
        self, delta: Delta, number: int, new: Collection[str], others: Collection[str]
    ) -> None:
        """Raise unless units can be taken.

        :param others: those that go with units of this class
        """
        name = delta.resource_class
        where = f"{name} at {self._name[number]}"
        there = self._of_parts.get((number, name))
        for unit in new:
            if there is None:
                raise exceptions.UnitNotFound(
                    unit, f"{where} has none, those it shares are of the providers below"
                )
            if unit not in there and unit not in others:
                raise exceptions.UnitNotFound(unit, f"{where} has {_shown(there)}")
        if self._count(number, delta) != delta.amount:
            raise exceptions.InvalidAmount(
                f"units of {where}", delta.units, f"{delta.amount}, as many as the amount"
            )
        reasons = [self._taken(delta, number, unit, who) for unit, who in self._others(number, new)]
        if reasons:
            raise exceptions.CapacityException.of(reasons)

    def _count(self, number: int, delta: Delta) -> int:
        inventory = self._kept.get((number, delta.resource_class))
        if inventory is None:
            return len(delta.units)
        return inventory.unit_count(delta.resource_class, delta.units)

    def _others(self, number: int, units: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield the units that somebody took of another part of the tree, and who."""
        for at, unit, kind, who in zip(*self._columns.units, strict=True):
            goes = self._leaving and who == self._consumer
            is_part = (at, kind) in self._of_parts and at != number
            if unit in units and is_part and self._root[at] == self._root[number] and not goes:
                yield unit, who

    def _taken(self, delta: Delta, number: int, unit: str, who: str) -> Reason:
        return Reason(
            Rule.UNIT_TAKEN,
            delta.amount,
            bound=0,
            used=1,
            resource=delta.resource_class,
            where=self._name[number],
            holders=((who, 1),),
            unit=unit,
        )


def _with_companions(delta: Delta, together: Mapping[str, frozenset[str]]) -> Delta:
    """Return a change with all units that go with those it names.

    :raises InvalidAmount: if it names some of them and not all
    """
    units = set(delta.units)
    for unit, others in together.items():
        if not units.isdisjoint(others) and not {unit, *others} <= units:
            raise exceptions.InvalidAmount(
                f"units of {delta.resource_class}",
                delta.units,
                f"{unit} alone, or with all that go with it: {_shown(others)}",
            )
        if unit in units:
            units |= others
    return dataclasses.replace(delta, units=tuple(sorted(units))) if together else delta


def _shown(units: Collection[str]) -> str:
    """Return the names of units, the first of them if there are many, shorter ones first."""
    named = sorted(units, key=lambda unit: (len(unit), unit))
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return f"{', '.join(named[:_SHOWN])}{more}" if named else "none"
