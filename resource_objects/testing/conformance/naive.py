"""A naive model of a ledger: dicts, loops, and the rules written down once more.

Nothing of the library's decisions is used here, so that the state machine compares two accounts of
the same rules.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, TypeAlias

from resource_objects import exceptions

#: (provider, resource class), by name.
Key: TypeAlias = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Step:
    """One order, in words: what a consumer is to do.

    ``what`` is claim, adjust, replace, renew or release, ``amounts`` ``{key: (amount, units)}``;
    ``at`` is the generation demanded: ``"now"``, ``"old"`` (a wrong one) or None.
    """

    what: str
    consumer: str
    amounts: dict[Key, tuple[int, tuple[str, ...]]]
    at: str | None = None
    said: str | None = None  #: a project, or a state for a renewal


@dataclasses.dataclass
class Holder:
    """What a consumer holds: ``{key: amount}`` and ``{key: units}``."""

    holds: dict[Key, int] = dataclasses.field(default_factory=dict)
    units: dict[Key, set[str]] = dataclasses.field(default_factory=dict)
    project: str | None = None
    state: str = "held"


class Refused(Exception):
    """The model refuses, as the ledger must: with this error, naming these places."""

    def __init__(self, error: type[Exception], culprits: set[Key] | None = None) -> None:
        super().__init__(error, culprits)
        self.error = error
        self.culprits = culprits


class Model:
    """What a ledger should hold."""

    def __init__(self) -> None:
        self.places: dict[str, dict[str, dict[str, Any]]] = {}  #: {provider: {class: figures}}
        self.shares: dict[Key, dict[Key, int]] = {}
        self.consumers: dict[str, Holder] = {}

    # --- what follows from what is held ---

    def capacity(self, key: Key) -> int:
        """Return how much of an inventory may be used."""
        figures = self.places[key[0]][key[1]]
        left: int = figures["total"] - figures["reserved"]
        return math.floor(left * Fraction(figures["allocation_ratio"]))

    def held(self, key: Key) -> int:
        """Return what is held of an inventory itself."""
        return sum(holder.holds.get(key, 0) for holder in self.consumers.values())

    def used(self, key: Key) -> int:
        """Return what is used of an inventory, through shares too."""
        through = (
            self.held(source) * targets[key]
            for source, targets in self.shares.items()
            if key in targets
        )
        return self.held(key) + sum(through)

    def allocations(self) -> dict[tuple[str, str, str], int]:
        """Return ``{(consumer, provider, class): amount}``."""
        return {
            (consumer, *key): amount
            for consumer, holder in self.consumers.items()
            for key, amount in holder.holds.items()
        }

    def units(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Return ``{(provider, unit): (class, consumer)}``."""
        return {
            (key[0], unit): (key[1], consumer)
            for consumer, holder in self.consumers.items()
            for key, units in holder.units.items()
            for unit in units
        }

    # --- what changes ---

    def define(
        self,
        tree: dict[str, dict[str, dict[str, Any]]],
        gone: set[str],
        shares: dict[Key, dict[Key, int]],
    ) -> None:
        """Give the providers of a tree other inventories and shares.

        :param gone: providers that go
        """
        for name in gone & set(self.places):
            if any(self.held((name, kind)) for kind in self.places[name]):
                raise Refused(exceptions.ProviderInUse)
        for name, inventories in tree.items():
            for kind in set(self.places.get(name, {})) - set(inventories):
                if self.held((name, kind)):
                    raise Refused(exceptions.InventoryInUse)
        for name in gone:
            self.places.pop(name, None)
        self.places.update(tree)
        here = set(tree) | gone
        kept = {source: of for source, of in self.shares.items() if source[0] not in here}
        self.shares = {**kept, **shares}

    def rename(self, old: str, new: str) -> None:
        """Give a resource class another name."""

        def to(key: Key) -> Key:
            return (key[0], new) if key[1] == old else key

        for name, inventories in self.places.items():
            self.places[name] = {to((name, kind))[1]: one for kind, one in inventories.items()}
        self.shares = {
            to(source): {to(target): factor for target, factor in targets.items()}
            for source, targets in self.shares.items()
        }
        for holder in self.consumers.values():
            holder.holds = {to(key): amount for key, amount in holder.holds.items()}
            holder.units = {to(key): units for key, units in holder.units.items()}

    def write(self, steps: list[Step]) -> None:
        """Carry out some steps together, or raise :class:`Refused` and change nothing."""
        before = copy.deepcopy(self.consumers)
        used = {key: self.used(key) for key in self._keys()}
        try:
            changes = [change for step in steps for change in self._carry_out(step)]
            self._check_capacity(changes, used)
            self._check_units(steps, before)
        except Refused:
            self.consumers = before
            raise
        for step in steps:
            holder = self.consumers[step.consumer]
            holder.holds = {key: amount for key, amount in holder.holds.items() if amount}
            holder.units = {key: holder.units.get(key, set()) for key in holder.holds}
            if not holder.holds:
                del self.consumers[step.consumer]

    def _keys(self) -> Iterator[Key]:
        for name, inventories in self.places.items():
            for kind in inventories:
                yield name, kind

    def _carry_out(self, step: Step) -> Iterator[tuple[str, Key, int, int]]:
        """Yield (consumer, key, before, after) of what one step changes."""
        holder = self._holder(step)
        before = dict(holder.holds)
        if step.what in ("replace", "release"):
            after = dict.fromkeys(before, 0)
            units: dict[Key, set[str]] = {}
        else:
            after, units = dict(before), copy.deepcopy(holder.units)
        for key, (amount, named) in step.amounts.items():
            after[key] = after.get(key, 0) + amount
            has = units.setdefault(key, set())
            if amount < 0:
                if not set(named) <= has:
                    raise Refused(exceptions.UnitNotHeld)
                if has and after[key] > 0 and not named:
                    raise Refused(exceptions.InvalidAmount)
                has -= set(named)
            else:
                has |= set(named)
        holder.holds, holder.units = after, units
        if step.what == "renew":
            holder.state = step.said or "held"
        elif step.said is not None and step.what in ("claim", "replace"):
            holder.project = step.said
        for key, amount in after.items():
            if amount != before.get(key, 0):
                yield step.consumer, key, before.get(key, 0), amount

    def _holder(self, step: Step) -> Holder:
        known = self.consumers.get(step.consumer)
        if step.what == "claim" and known is not None:
            raise Refused(exceptions.ConsumerExists)
        if step.what in ("renew", "release") and known is None:
            raise Refused(exceptions.ConsumerNotFound)
        if step.at == "old" or (step.at == "now" and known is None):
            raise Refused(exceptions.StaleConsumer)
        return self.consumers.setdefault(step.consumer, Holder())

    def _check_capacity(
        self, changes: list[tuple[str, Key, int, int]], before: dict[Key, int]
    ) -> None:
        for _, key, _, _ in changes:
            if key[0] not in self.places:
                raise Refused(exceptions.ProviderNotFound)
        culprits = set()
        for _, key, had, has in changes:
            if has < 0 or (has > had and not self._keeps_unit_rules(key, has)):
                culprits.add(key)
        for key, used in before.items():
            if self.used(key) > max(used, self.capacity(key)):
                culprits.add(key)
        if culprits:
            raise Refused(exceptions.CapacityException, culprits)

    def _keeps_unit_rules(self, key: Key, amount: int) -> bool:
        figures = self.places[key[0]].get(key[1])
        return figures is not None and amount % figures["step_size"] == 0

    def _check_units(self, steps: list[Step], before: dict[str, Holder]) -> None:
        """Check that no unit is somebody else's, or taken anew by who has it."""
        owners: dict[tuple[str, str], str] = {}
        for consumer, holder in self.consumers.items():
            for key, units in holder.units.items():
                for unit in units if holder.holds.get(key) else ():
                    if (
                        owners.setdefault((key[0], unit), f"{consumer} {key}")
                        != f"{consumer} {key}"
                    ):
                        raise Refused(exceptions.UnitTaken)
        for step in steps:
            if step.what != "adjust" or step.consumer not in before:
                continue
            had = before[step.consumer].units
            for key, (amount, named) in step.amounts.items():
                if amount > 0 and set(named) & had.get(key, set()):
                    raise Refused(exceptions.UnitTaken)
