"""Which demand each of several consumers takes, when all take at once or none does."""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

from resource_objects import exceptions
from resource_objects.exceptions import UNIT_RULES, Reason, Rule
from resource_objects.fields import MAX_AMOUNT
from resource_objects.ledger.demand import Demand
from resource_objects.providers import Backend
from resource_objects.providers.columns import Columns
from resource_objects.providers.dry_run import without_consumers
from resource_objects.providers.orders import UNLIMITED, Key, Totals
from resource_objects.providers.settle import Unit
from resource_objects.resources.backtracking import solutions
from resource_objects.resources.budget import Budget
from resource_objects.resources.records import InventoryRecord
from resource_objects.search.dealing import Place, Portion, deal, largest

#: Steps that one choice among all demands may take: about a second.
STEPS = 100_000

#: What each demand uses of each inventory, by the identity of the demand.
_Uses: TypeAlias = Mapping[int, Mapping[Key, int]]


class AllOrNone:
    """The demands that are left to several consumers that take all at once, or none does.

    Each takes the first of its demands that is still free beside what the consumers before it take.
    Where somebody finds none that way, all choices are searched, so what the demands allow is
    found: a consumer takes a later one to make room for those after it. What is free is read once,
    after the first refusal, with what an allocation also uses elsewhere; what somebody takes after
    that is learned from refusals. So a gang is placed after few refused writes, not after one for
    each combination.

    Consumers that are ``leaving`` are in nobody's way: who takes releases them in the same write.
    ``limits`` are those of the write: what is left under one is free, no more.
    """

    learns = True

    def __init__(
        self,
        ways: Mapping[str, Sequence[Demand]],
        backend: Backend,
        leaving: Collection[str] = (),
        limits: Totals = UNLIMITED,
    ) -> None:
        self._left = {name: list(some) for name, some in ways.items()}
        self._backend = backend
        self._leaving = leaving
        self._limits = limits
        self._free: dict[Key, int] = {}
        self._given_back: dict[Key, int] = defaultdict(int)  # by those who leave, of that
        self._shares: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        self._gone: set[Unit] = set()  # units that others have
        self._looked = False
        self._uuids: dict[str, str] = {}  # by name
        self._picked: dict[str, Demand] = {}

    @property
    def places(self) -> tuple[str, ...]:
        """The uuids of all providers that a demand takes from."""
        ways = (way for ways in self._left.values() for way in ways)
        return tuple(dict.fromkeys(d.provider_uuid for way in ways for d in way.uses))

    @property
    def is_open(self) -> bool:
        """Whether somebody has more than one demand."""
        return any(len(ways) > 1 for ways in self._left.values())

    def first(self) -> Mapping[str, Demand]:
        """Return the first demand of each: if these cannot be, the ledger says why."""
        self._picked = {name: ways[0] for name, ways in self._left.items()}
        return self._picked

    def next(
        self, lost: exceptions.ResourceObjectsError, columns: Columns | None
    ) -> Mapping[str, Demand] | None:
        """Learn from a refusal; return what else may be taken together, None if nothing."""
        if not self.is_open:
            return None
        if not self._looked:  # once: what refusals teach after that is not to be forgotten
            if columns is None:
                columns = self._backend.read(*self.places, allocations=bool(self._leaving))
            self._look(columns)
        before = self._picked
        picked = self._pick() if self._learn(lost) else None
        if picked is None or all(picked[name] is way for name, way in before.items()):
            return None  # the same again would be refused again
        return picked

    def _look(self, columns: Columns) -> None:
        """Note what is free, and what uses what, of the trees of all :attr:`places`."""
        self._looked = True
        uuid = dict(zip(columns.providers.provider_id, columns.providers.uuid, strict=True))
        self._uuids = dict(zip(columns.providers.name, columns.providers.uuid, strict=True))
        for number, *figures in zip(*columns.inventories, strict=True):
            record = InventoryRecord(*figures)
            key = uuid[number], record.resource_class
            self._free[key] = min(record.capacity, self._limits.get(key, MAX_AMOUNT)) - record.used
        if self._leaving:
            then = without_consumers(columns, *self._leaving).inventories
            before = columns.inventories.used
            rows = zip(then.provider_id, then.resource_class, before, then.used, strict=True)
            for number, name, used, less in rows:
                self._given_back[uuid[number], name] = used - less
                self._free[uuid[number], name] += used - less
        self._shares.clear()
        for number, kind, of_id, of_class, factor in zip(*columns.shares, strict=True):
            self._shares[uuid[number], kind].append(((uuid[of_id], of_class), factor))

    def _pick(self) -> dict[str, Demand] | None:
        """Return a demand for each consumer, None if they cannot all have one.

        :raises SearchLimitReached: if that takes too long to find out
        """
        taken = _Taken(self._free, self._gone)
        uses = {id(w): self._taken_by(w) for ways in self._left.values() for w in ways}
        picked = self._in_turn(taken, uses) or self._searched(taken, uses)
        if picked is not None:
            self._picked = picked
        return picked

    def _in_turn(self, taken: _Taken, uses: _Uses) -> dict[str, Demand] | None:
        """Return the first that is free of each, one after the other; None if that fails."""
        picked: dict[str, Demand] = {}
        for name, ways in self._left.items():
            way = next((way for way in ways if taken.has_room(way, uses[id(way)])), None)
            if way is None:
                break
            taken.add(way, uses[id(way)])
            picked[name] = way
        for way in picked.values():
            taken.remove(way, uses[id(way)])
        return picked if len(picked) == len(self._left) else None

    def _searched(self, taken: _Taken, uses: _Uses) -> dict[str, Demand] | None:
        """Return a choice among all choices, None if there is none.

        Consumers with the same demands are one kind, of which only the number matters. Demands that
        use nothing of each other stand apart, mostly those of each host: what each such part can
        hold is decided by itself, and dealt out then.
        """
        # what is still to be placed uses nothing yet: who places it says whether it fits
        picked = {
            name: way
            for name, ways in self._left.items()
            for way in reversed(ways)
            if not uses[id(way)] and not _units(way)
        }
        kinds: dict[Hashable, list[str]] = {}
        for name, ways in self._left.items():
            if name not in picked:
                kinds.setdefault(tuple((way.uses, way.located) for way in ways), []).append(name)
        every = [self._left[names[0]] for names in kinds.values()]
        need = tuple(map(len, kinds.values()))
        if _too_many(every, need, taken, uses):
            return None
        budget = Budget(STEPS)
        parts = [_Part(some, need, taken, uses, budget) for some in _apart(every, uses)]
        root = Place("", below=tuple(Place(str(n), part.largest) for n, part in enumerate(parts)))
        dealt = deal(root, need, budget)
        if dealt is None:
            return None
        waiting = [iter(names) for names in kinds.values()]
        for number, portion in dealt.items():
            for kind, way in parts[int(number)].holding(portion):
                picked[next(waiting[kind])] = way
        return {name: picked[name] for name in self._left}

    def _learn(self, refusal: exceptions.ResourceObjectsError) -> bool:
        """Note why the chosen demands were refused; return whether others are left to try."""
        if isinstance(refusal, exceptions.CapacityException):
            learned = [self._learn_from(reason) for reason in refusal.reasons]
            return any(learned) or self._drop_of(refusal.reasons)
        subject = getattr(refusal, "subject", None)
        return self._drop({subject, self._uuids.get(str(subject))})

    def _learn_from(self, reason: Reason) -> bool:
        """Note what a reason says of a provider; return whether it concerns a chosen demand."""
        where = self._uuids.get(reason.where or "")
        if where is None or reason.resource is None:
            return False
        if reason.rule is Rule.UNIT_TAKEN and reason.unit is not None:
            naming = sum((where, reason.unit) in _units(way) for way in self._picked.values())
            if any(holder in self._left for holder, _ in reason.holders):
                return naming > 1  # of one of them: no two pick it any more, where ways name it
            self._gone.add((where, reason.unit))
            return naming > 0
        key = where, reason.resource
        if reason.rule in UNIT_RULES:
            return self._drop_amounts(key, reason.requested)
        requested = sum(self._taken_by(way).get(key, 0) for way in self._picked.values())
        free = reason.free + self._given_back[key]
        is_full = reason.rule in (Rule.CAPACITY, Rule.LIMIT, Rule.NO_INVENTORY)
        if not is_full or requested <= free:
            return False
        self._free[key] = free
        return True

    def _drop_amounts(self, key: Key, amount: int) -> bool:
        """Drop every demand for exactly this amount of an inventory, whose unit rules refuse it."""
        return self._keep(lambda way: all(d.key != key or d.amount != amount for d in way.uses))

    def _drop_of(self, reasons: Sequence[Reason]) -> bool:
        """Drop the demand of the last consumer that a reason concerns."""
        places = {self._uuids.get(reason.where or "") for reason in reasons}
        involved = [
            name
            for name, way in self._picked.items()
            if not places.isdisjoint(uuid for uuid, _ in self._taken_by(way))
        ]
        for name in reversed(involved or list(self._picked)):
            if len(self._left[name]) > 1:
                self._left[name].remove(self._picked[name])
                return True
        return False

    def _drop(self, subjects: set[object]) -> bool:
        """Drop every demand that uses or names a provider, given by name or uuid."""
        return self._keep(lambda way: subjects.isdisjoint(_handles(way)))

    def _keep(self, wanted: Callable[[Demand], bool]) -> bool:
        """Drop every demand that is not wanted; return whether there was one."""
        before = sum(map(len, self._left.values()))
        self._left = {name: [w for w in ways if wanted(w)] for name, ways in self._left.items()}
        return sum(map(len, self._left.values())) < before

    def _taken_by(self, way: Demand) -> dict[Key, int]:
        """Return what a demand uses of each inventory, through shares too."""
        found: dict[Key, int] = defaultdict(int)
        for use in way.uses:
            found[use.key] += use.amount
            for target, factor in self._shares.get(use.key, ()):
                found[target] += use.amount * factor
        return found


class _Taken:
    """What is taken while demands are chosen, of what is free."""

    def __init__(self, free: Mapping[Key, int], gone: Collection[Unit]) -> None:
        self._free = free
        self._amounts: dict[Key, int] = defaultdict(int)
        self._units: set[Unit] = set(gone)

    def has_room(self, way: Demand, uses: Mapping[Key, int]) -> bool:
        """Return whether a demand is free beside what is taken."""
        return self._units.isdisjoint(_units(way)) and self.is_free(uses)

    def is_free(self, uses: Mapping[Key, int]) -> bool:
        """Return whether amounts are free beside what is taken; what is not known is free."""
        amounts, free = self._amounts, self._free
        return all(amounts[key] + more <= free.get(key, MAX_AMOUNT) for key, more in uses.items())

    def times(self, way: Demand, uses: Mapping[Key, int]) -> int:
        """Return how often a demand is free."""
        if not self.has_room(way, uses):
            return 0
        amounts, free = self._amounts, self._free
        most = min((free.get(key, MAX_AMOUNT) - amounts[key]) // n for key, n in uses.items())
        return 1 if _units(way) else most

    def add(self, way: Demand, uses: Mapping[Key, int]) -> None:
        self._units |= _units(way)
        for key, more in uses.items():
            self._amounts[key] += more

    def remove(self, way: Demand, uses: Mapping[Key, int]) -> None:
        self._units -= _units(way)
        for key, more in uses.items():
            self._amounts[key] -= more


class _Part:
    """Demands of which each uses what another uses, and what of them can be held at once."""

    def __init__(
        self,
        ways: Sequence[tuple[int, Demand]],
        need: Portion,
        taken: _Taken,
        uses: _Uses,
        budget: Budget,
    ) -> None:
        """:param ways: with the number of the kind that may take each, the preferred first"""
        self._held: dict[Portion, list[tuple[int, Demand]]] = {}
        held: list[tuple[int, Demand]] = []
        count = [0] * len(need)

        def expand(at: int) -> Iterator[int]:
            """Take the demand at a place, as often as that goes, or go on to the next."""
            budget.spend()
            self._held.setdefault(tuple(count), list(held))
            for place in range(at, len(ways)):
                kind, way = ways[place]
                if count[kind] < need[kind] and taken.has_room(way, uses[id(way)]):
                    taken.add(way, uses[id(way)])
                    held.append((kind, way))
                    count[kind] += 1
                    yield place
                    count[kind] -= 1
                    held.pop()
                    taken.remove(way, uses[id(way)])

        for _ in solutions(0, expand, budget, cost=0):
            pass
        self.largest = largest(self._held)

    def holding(self, portion: Portion) -> list[tuple[int, Demand]]:
        """Return demands that make a portion, with the kind of each."""
        left, found = list(portion), []
        whole = next(p for p in self.largest if all(map(operator.ge, p, portion)))
        for kind, way in self._held[whole]:
            if left[kind]:
                left[kind] -= 1
                found.append((kind, way))
        return found


def _apart(every: Sequence[Sequence[Demand]], uses: _Uses) -> list[list[tuple[int, Demand]]]:
    """Return demands by what they use: those of one list use nothing that those of another use.

    :param every: the demands of each kind
    """
    other: dict[Hashable, Hashable] = {}  # of what is used: something else of the same part

    def part_of(used: Hashable) -> Hashable:
        while (nearer := other.setdefault(used, used)) != used:
            other[used] = other[nearer]
            used = nearer
        return used

    parts: dict[Hashable, list[tuple[int, Demand]]] = {}
    for way in itertools.chain.from_iterable(every):
        together: list[Hashable] = [*uses[id(way)], *_units(way)]
        for used in together[1:]:
            other[part_of(used)] = part_of(together[0])
    for kind, ways in enumerate(every):
        for way in ways:
            parts.setdefault(part_of(next(iter(uses[id(way)]))), []).append((kind, way))
    return list(parts.values())


def _too_many(every: Sequence[Sequence[Demand]], need: Portion, taken: _Taken, uses: _Uses) -> bool:
    """Return whether a kind alone is too many, or what all demands use is too much. Both are sure.

    :param every: the demands of each kind
    """
    at_least: dict[Key, int] = defaultdict(int)
    for ways, count in zip(every, need, strict=True):
        if sum(taken.times(way, uses[id(way)]) for way in ways) < count:
            return True
        for key in set.intersection(*(set(uses[id(way)]) for way in ways)):
            at_least[key] += count * min(uses[id(way)][key] for way in ways)
    return not taken.is_free(at_least)


def _units(way: Demand) -> set[Unit]:
    return {(use.provider_uuid, unit) for use in way.uses for unit in use.units}


def _handles(way: Demand) -> set[str]:
    found = {use.provider_uuid for use in way.uses} | set(way.names.values())
    return found | {uuid for uuid, _ in way.definitions}
