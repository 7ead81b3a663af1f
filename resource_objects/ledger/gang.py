"""Which demand each of several consumers takes, when all take at once or none does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from resource_objects import exceptions
from resource_objects.exceptions import UNIT_RULES, Reason, Rule
from resource_objects.fields import MAX_AMOUNT
from resource_objects.ledger.demand import Demand
from resource_objects.providers import Backend
from resource_objects.providers.columns import Columns
from resource_objects.providers.dry_run import without_consumers
from resource_objects.providers.orders import UNLIMITED, Key, Totals
from resource_objects.providers.settle import Unit
from resource_objects.resources.records import InventoryRecord


class Gang:
    """The demands that are left to several consumers that take all at once, or none does.

    Each takes the first of its demands that is still free beside what the consumers before it take:
    greedily, nobody goes back and takes a later one to make room for those after it. What is free
    is read once, after the first refusal, with what an allocation also uses elsewhere; what
    somebody takes after that is learned from refusals. So a gang is placed after few refused
    writes, not after one for each combination.

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
        picked = self._pick()
        assert picked is not None, "each has one, and nothing is known to be taken"
        return picked

    def next(
        self, lost: exceptions.ResourceObjectsError, columns: Columns | None
    ) -> Mapping[str, Demand] | None:
        """Learn from a refusal; return what else may be taken together, None if nothing."""
        if not self.is_open:
            return None
        if columns is not None:
            self._look(columns)
        elif not self._looked:
            self._look(self._backend.read(*self.places, allocations=bool(self._leaving)))
        return self._pick() if self._learn(lost) else None

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
        """Return a demand for each consumer, None if somebody has none left."""
        taken: dict[Key, int] = defaultdict(int)
        units = set(self._gone)
        self._picked = {}
        for name, ways in self._left.items():
            for way in ways:
                uses, wanted = self._taken_by(way), _units(way) if self._looked else set()
                if units.isdisjoint(wanted) and all(
                    taken[key] + more <= self._free.get(key, more + taken[key])
                    for key, more in uses.items()
                ):
                    self._picked[name] = way
                    units |= wanted
                    for key, more in uses.items():
                        taken[key] += more
                    break
            else:
                return None
        return self._picked

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
            if any(holder in self._left for holder, _ in reason.holders):
                return True  # of one of them, who would hold it then: no two pick it any more
            self._gone.add((where, reason.unit))
            return any((where, reason.unit) in _units(way) for way in self._picked.values())
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


def _units(way: Demand) -> set[Unit]:
    return {(use.provider_uuid, unit) for use in way.uses for unit in use.units}


def _handles(way: Demand) -> set[str]:
    found = {use.provider_uuid for use in way.uses} | set(way.names.values())
    return found | {uuid for uuid, _ in way.definitions}
