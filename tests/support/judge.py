"""Whether what is kept is what the writers did, each write once and whole, and never too much.

Three accounts are compared: the diaries, which say what was asked and acknowledged; the recorded
operations, which say what each consumer held after each of its writes; and the change feed, which
says in which order the writes of a tree happened. Replayed in that order, no write may take an
inventory further beyond its capacity or a unit from its owner, and at the end the replay holds
what the tables hold. An operation that was not acknowledged is in all accounts, or in none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple

from resource_objects.providers.orders import Key
from tests.support.diary import Asked, Holds
from tests.support.evidence import Evidence, Told
from tests.support.writers import CARD, FUNCTION, FUNCTIONS, GPU

#: What one write changed for one consumer: what it held before and after.
Steps = dict[str, dict[str, tuple[Holds, Holds]]]


def judge(evidence: Evidence, asked: dict[str, Asked]) -> list[str]:
    """Return everything that does not agree, in words."""
    found = [*_recorded(evidence, asked)]
    steps: Steps = defaultdict(dict)
    found += _lives(evidence, asked, steps)
    found += _feed(evidence, steps)
    found += _Replay(evidence, asked, steps).problems()
    found += _named(evidence)
    found += _once(evidence)
    return found


#: Of what nobody takes one by number, how many units one is: a card is its functions too.
_UNITS_OF_ONE = {"PCPU": 1, GPU: 1, FUNCTION: 1, CARD: 1 + FUNCTIONS}


def _named(evidence: Evidence) -> Iterator[str]:
    """Each CPU and device that is taken of a part is a unit: nobody there takes one by number."""
    for consumer, holds in evidence.holds.items():
        for key, (amount, units) in holds.items():
            times = _UNITS_OF_ONE.get(key[1]) if key in evidence.structured else None
            if times is not None and amount * times != len(units):
                yield f"{consumer} holds {amount} of {key}, and the units {sorted(units)}"


def _once(evidence: Evidence) -> Iterator[str]:
    """A CPU of a host has one owner: it is taken of one cell, by one consumer. So has a device."""
    owners: dict[tuple[str, str], list[str]] = defaultdict(list)
    for consumer, holds in evidence.holds.items():
        for key, (_, units) in holds.items():
            for unit in units:
                owners[_whole(evidence, key), unit].append(consumer)
    for (where, unit), consumers in owners.items():
        if len(consumers) > 1:
            yield f"{unit} of {where} has the owners {sorted(consumers)}"


def _whole(evidence: Evidence, key: Key) -> str:
    """Return the host of a cell, with which it shares; of what is no cell, itself."""
    shared = evidence.shares.get(key, {}) if key in evidence.structured else {}
    return min(shared, default=key)[0]


def _recorded(evidence: Evidence, asked: dict[str, Asked]) -> Iterator[str]:
    """What was acknowledged is recorded as it was told, what was refused is not."""
    for id, one in asked.items():
        recorded = evidence.operations.get(id)
        if recorded is None:
            if one.did is not None:
                yield f"lost: {one.kind} {id} of {one.subject} was acknowledged"
            continue
        if one.refused is not None and one.did is None:
            yield f"{one.kind} {id} was refused ({one.refused}), and is recorded"
        if (recorded.kind, recorded.subject) != (one.kind, one.subject):
            yield f"{id} is recorded as {recorded.kind} of {recorded.subject}"
        if one.did is not None and _left(one.did) != _left(recorded.claims):
            yield f"{one.kind} {id}: told {one.did}, recorded {recorded.claims}"
        if {claim[0] for claim in recorded.claims} != set(one.orders):
            yield f"{one.kind} {id}: asked for {set(one.orders)}, recorded {recorded.claims}"
    for id in evidence.operations.keys() - asked.keys():
        yield f"nobody asked for {evidence.operations[id]}"


def _left(claims: Iterable[list[Any]]) -> list[list[Any]]:
    """Return what claims say is left: of one that is over, nothing."""
    return sorted([*claim[:4], claim[4] if claim[3] != "released" else []] for claim in claims)


# --- what each consumer held, one write after another ---


def _lives(evidence: Evidence, asked: dict[str, Asked], steps: Steps) -> Iterator[str]:
    """Each write of a consumer begins where the one before ended; the last is what is held."""
    lives: dict[tuple[str, str], list[_Claim]] = defaultdict(list)
    for id, recorded in evidence.operations.items():
        for consumer, uuid, number, state, held in recorded.claims:
            holds = {(where, name): (n, frozenset(units)) for where, name, n, units in held}
            lives[consumer, uuid].append(_Claim(number, id, consumer, state, holds))
    living: dict[str, tuple[str, int]] = {}
    for (consumer, uuid), life in lives.items():
        last = yield from _live(life, asked, steps)
        if last is None:
            continue
        if consumer in living:
            yield f"{consumer} lives twice"
        living[consumer] = uuid, life[-1].number
        if evidence.holds.get(consumer) != last:
            yield f"{consumer} holds {evidence.holds.get(consumer)}, not {last}"
    if living != evidence.consumers:
        wrong = dict(living.items() ^ evidence.consumers.items())
        yield f"consumers that are there and should not be, or the reverse: {wrong}"
    for consumer in evidence.holds.keys() - living.keys():
        yield f"{consumer} holds something, and nothing gave it that"


class _Claim(NamedTuple):
    """What an operation says of a consumer."""

    number: int
    id: str
    consumer: str
    state: str
    holds: Holds


def _live(
    life: list[_Claim], asked: dict[str, Asked], steps: Steps
) -> Generator[str, None, Holds | None]:
    """Follow one life of a consumer; return what it holds at the end, None if it is over."""
    before: Holds | None = None
    for claim in life:
        if claim.id not in asked or claim.consumer not in asked[claim.id].orders:
            continue  # told already
        what, deltas = asked[claim.id].orders[claim.consumer]
        gone = what == "release"
        after = before if gone else _after(what, before, deltas)
        emptied = not after and claim.holds == before  # told as what was given back
        if after is None or (claim.holds != after and not emptied):
            yield f"{what} {claim.id}: from {before} by {deltas} to {claim}"
        ends = gone or not after
        if ends != (claim.state == "released"):
            yield f"{what} {claim.id} says {claim}"
        steps[claim.id][claim.consumer] = before or {}, {} if ends else claim.holds
        before = None if ends else claim.holds
    return before


def _after(what: str, before: Holds | None, deltas: Holds) -> Holds | None:
    """Return what an order leaves, None if it cannot have been carried out."""
    if what == "claim":
        return deltas if before is None else None
    if what == "set":
        return deltas
    if what == "add":
        return _adjusted(before or {}, deltas)
    return before  # of a renewal


def _adjusted(before: Holds, deltas: Holds) -> Holds:
    after = dict(before)
    for key, (amount, units) in deltas.items():
        had, has = after.get(key, (0, frozenset[str]()))
        after[key] = had + amount, has | units if amount > 0 else has - units
    return {key: held for key, held in after.items() if held[0]}


# --- the feed ---


def _feed(evidence: Evidence, steps: Steps) -> Iterator[str]:
    """Every write is told, once in each shard, to the trees it touched; no number is missing."""
    numbers: dict[int, set[int]] = defaultdict(set)
    told: dict[str, list[Told]] = defaultdict(list)
    for change in evidence.changes:
        numbers[change.shard].add(change.number)
        told[change.operation].append(change)
    for shard, found in numbers.items():
        if found != set(range(1, len(found) + 1)):
            yield f"shard {shard} of the feed has a gap: {sorted(found)}"
    for id in evidence.operations.keys() ^ told.keys():
        yield f"{id} is recorded or told, not both"
    for id, changes in told.items():
        shards = Counter(change.shard for change in changes)
        if max(shards.values()) > 1:
            yield f"{id} is told twice in a shard: {shards}"
        providers = {key[0] for one in steps.get(id, {}).values() for key in _touched(one)}
        missing = providers - {uuid for change in changes for uuid in change.providers}
        if missing:
            yield f"{id} touched {missing}, of which the feed does not tell"
        consumers = {name for change in changes for name in change.consumers}
        if consumers != set(steps.get(id, {})):
            yield f"{id} is told of {consumers}, it wrote {set(steps.get(id, {}))}"


def _touched(step: tuple[Holds, Holds]) -> set[Key]:
    before, after = step
    return {key for key in {**before, **after} if before.get(key) != after.get(key)}


# --- replayed ---


class _Replay:
    """Every write once more, in the order the feed tells for each tree."""

    def __init__(self, evidence: Evidence, asked: dict[str, Asked], steps: Steps) -> None:
        self._evidence, self._asked, self._steps = evidence, asked, steps
        self._capacity: dict[Key, int] = {}
        self._used: dict[Key, int] = defaultdict(int)
        self._owner: dict[tuple[str, str], str] = {}
        self._shard: dict[str, int] = {}
        for change in evidence.changes:
            for uuid in change.providers:
                self._shard[uuid] = change.shard

    def problems(self) -> Iterator[str]:
        """Yield what should not have been possible, and how it ends otherwise than the tables."""
        for change in sorted(self._evidence.changes, key=lambda one: (one.shard, one.number)):
            yield from self._step(change)
        here = {key: used for key, used in self._used.items() if used or key in self._capacity}
        for key in here.keys() | self._evidence.inventories.keys():
            expected = self._capacity.get(key), here.get(key, 0)
            if self._evidence.inventories.get(key) != expected:
                found = self._evidence.inventories.get(key)
                yield f"{key} has (capacity, used) {found}, replayed it has {expected}"
        owners = {
            (_whole(self._evidence, key), unit): consumer
            for consumer, holds in self._evidence.holds.items()
            for key, (_, units) in holds.items()
            for unit in units
        }
        if owners != self._owner:
            yield f"units have other owners than replayed: {owners.items() ^ self._owner.items()}"

    def _step(self, change: Told) -> Iterator[str]:
        """Carry out what a write did to one tree: figures first, then orders, then removals."""
        asked = self._asked.get(change.operation)
        told = [one for one in asked.capacities if self._is_in(change, one[0])] if asked else []
        for uuid, name, capacity in told:
            if name is not None and capacity is not None:
                self._capacity[uuid, name] = capacity
        for key, net in self._nets(change).items():
            self._used[key] += net
            most = self._capacity.get(key, 0)
            used = self._used[key]
            if used < 0 or (net > 0 and used > most):
                yield f"over: {change.operation} took {net} of {key}: used {used} of {most}"
        yield from self._move_units(change)
        for uuid, name, capacity in told:
            if capacity is None:
                gone = [k for k in self._capacity if k[0] == uuid and name in (None, k[1])]
                for key in gone:
                    del self._capacity[key]
                    if self._used[key]:
                        yield f"{change.operation} removed {key}, used {self._used[key]}"

    def _is_in(self, change: Told, uuid: str) -> bool:
        return self._shard.get(uuid) == change.shard

    def _nets(self, change: Told) -> dict[Key, int]:
        nets: dict[Key, int] = defaultdict(int)
        for before, after in self._steps.get(change.operation, {}).values():
            for key in {**before, **after}:
                net = after.get(key, (0,))[0] - before.get(key, (0,))[0]
                if net and self._is_in(change, key[0]):
                    nets[key] += net
                    for target, factor in self._evidence.shares.get(key, {}).items():
                        nets[target] += net * factor
        return nets

    def _move_units(self, change: Told) -> Iterator[str]:
        """Take units from who had them, and give them to who has them then."""
        steps = self._steps.get(change.operation, {})
        for before, _ in steps.values():
            for unit in self._units(change, before):
                self._owner.pop(unit, None)
        for consumer, (_, after) in steps.items():
            for unit in self._units(change, after):
                owner = self._owner.setdefault(unit, consumer)
                if owner != consumer:
                    yield f"twice: {change.operation} gave {consumer} {unit}, which is {owner}'s"

    def _units(self, change: Told, holds: Holds) -> list[tuple[str, str]]:
        return [
            (_whole(self._evidence, key), unit)
            for key, (_, units) in holds.items()
            for unit in units
            if self._is_in(change, key[0])
        ]
