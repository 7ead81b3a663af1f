"""Whose allocations go where in a reshape. Pure.

An allocation follows its units; else it goes where the reshape says; else, if it may be filled in,
where there is room, the largest first. What nothing is said about stays, as long as there is
something left for it to be at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from resource_objects.providers.books import Books, Transfer
from resource_objects.providers.orders import ClaimRecord, Held, Key
from resource_objects.providers.reckoning import Flow, Kept, Problems


def assign(
    flows: Sequence[Flow],
    claims: Mapping[str, ClaimRecord],
    kept: Kept,
    books: Books,
    problems: Problems,
) -> list[Transfer]:
    """Return what goes where, noting what cannot.

    First all that is told by units and by name, of all flows; then what is filled in.
    """
    for claim in claims.values():
        for held in claim.held:
            books.holds(claim.consumer, held)
    holders = _holders({flow.source for flow in flows}, claims)
    found: list[Transfer] = []
    left: list[_Left] = []
    for flow in flows:
        told = _Told(flow, kept, problems)
        told.check_named(consumer for consumer, _ in holders[flow.source])
        for consumer, held in holders[flow.source]:
            transfers = told.transfers(consumer, held)
            books.carry_out(transfers)
            found += transfers
            left += _rest(flow, consumer, held, transfers)
    left.sort(key=lambda one: (-one.held.amount, one.consumer))
    found += _fill(left, kept, books, problems)
    books.note_overfull(problems)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Left:
    """What nothing is said about of an allocation."""

    flow: Flow
    consumer: str
    held: Held


def _holders(
    sources: Collection[Key], claims: Mapping[str, ClaimRecord]
) -> dict[Key, list[tuple[str, Held]]]:
    """Return who holds what at each source, by consumer."""
    found: dict[Key, list[tuple[str, Held]]] = {source: [] for source in sources}
    for name in sorted(claims):
        for held in claims[name].held:
            if held.key in found:
                found[held.key].append((name, held))
    return found


def _rest(flow: Flow, consumer: str, held: Held, transfers: Sequence[Transfer]) -> Iterator[_Left]:
    if not transfers:
        yield _Left(flow, consumer, held)
        return
    amount = held.amount - sum(transfer.amount for transfer in transfers)
    gone = {unit for transfer in transfers for unit in transfer.units}
    units = tuple(unit for unit in held.units if unit not in gone)
    if amount > 0:
        yield _Left(flow, consumer, dataclasses.replace(held, amount=amount, units=units))


class _Told:
    """What a move says of allocations, by their units and by the names of consumers."""

    def __init__(self, flow: Flow, kept: Kept, problems: Problems) -> None:
        self._flow = flow
        self._kept = kept
        self._problems = problems
        self._owner: dict[str, int] = {}  # which target has a unit, by its place among them
        self._named: dict[str, dict[int, int]] = {}  # {consumer: {place: amount}}
        for place, target in enumerate(flow.targets):
            self._owner.update(dict.fromkeys(target.part.units, place))
            for consumer, amount in target.part.consumers.items():
                self._named.setdefault(consumer, {})[place] = amount

    def check_named(self, holding: Iterable[str]) -> None:
        """Note consumers that are named and hold nothing there."""
        for consumer in sorted(self._named.keys() - set(holding)) if self._named else ():
            where = self._kept.said(self._flow.source)
            self._problems.add(f"{consumer} holds no {where}", consumer)

    def transfers(self, consumer: str, held: Held) -> list[Transfer]:
        """Return what goes where; what is not said is not in it."""
        named = self._named.get(consumer, {})
        owned = self._owned(held)
        amounts = {
            place: self._amount(consumer, held, place, named.get(place, 0), owned.get(place, ()))
            for place in sorted({*named, *owned})
        }
        if sum(amounts.values()) > held.amount:
            self._note(consumer, f"holds {held.amount}, not {sum(amounts.values())}")
            return []
        return [
            Transfer(
                consumer,
                self._flow.source,
                self._flow.targets[place].key,
                amount,
                owned.get(place) or self._units(consumer, held, place, amount),
            )
            for place, amount in amounts.items()
        ]

    def _owned(self, held: Held) -> dict[int, tuple[str, ...]]:
        """Return the units of an allocation that targets have."""
        found: dict[int, tuple[str, ...]] = {}
        for unit in held.units:
            if unit in self._owner:
                place = self._owner[unit]
                found[place] = (*found.get(place, ()), unit)
        return found

    def _amount(
        self, consumer: str, held: Held, place: int, named: int, units: tuple[str, ...]
    ) -> int:
        """Return how much of an allocation goes to a target, as far as it is said."""
        if not units:
            return named
        if len(held.units) == held.amount:  # each unit is one of the amount
            if named not in (0, len(units)):
                where = self._said(place)
                self._note(consumer, f"gives {named} to {where}, which has {len(units)} units")
            return len(units)
        if not named and len(units) < len(held.units):
            where = self._said(place)
            self._note(consumer, f"with units in several places: how much is at {where}?")
        return named or held.amount

    def _units(self, consumer: str, held: Held, place: int, amount: int) -> tuple[str, ...]:
        """Return the units that go along where a target has none of them: all with the whole."""
        if held.units and amount != held.amount:
            where = self._said(place)
            self._note(consumer, f"with units in several places: which are at {where}?")
        return held.units

    def _said(self, place: int) -> str:
        return self._kept.said(self._flow.targets[place].key)

    def _note(self, consumer: str, text: str) -> None:
        where = self._kept.said(self._flow.source)
        self._problems.add(f"{consumer}, {where}: {text}", consumer)


# --- what nothing is said about ---


def _fill(
    left: Iterable[_Left], kept: Kept, books: Books, problems: Problems
) -> Iterator[Transfer]:
    """Yield where what nothing is said about goes."""
    going: list[_Left] = []
    for one in left:
        if _goes(one.flow, books):
            books.give_back(one.consumer, one.flow.source, one.held.amount)
            going.append(one)
        elif one.flow.source not in books.final:
            where = kept.said(one.flow.source)
            problems.add(
                f"where {one.held.amount} {where} that {one.consumer} holds go is not said",
                one.consumer,
            )
    for one in going:  # one may have room where another was
        yield from _placed(one, kept, books, problems)


def _goes(flow: Flow, books: Books) -> bool:
    """Return whether allocations go that nothing is said about."""
    return flow.move.fill or _is_all(flow, books)


def _is_all(flow: Flow, books: Books) -> bool:
    """Return whether nothing is left of the inventory, and there is but one place for it."""
    return flow.source not in books.final and len(flow.targets) == 1


def _placed(one: _Left, kept: Kept, books: Books, problems: Problems) -> list[Transfer]:
    """Return where it goes; nothing if it stays."""
    found = _whole(one, books)
    if not found and one.flow.move.split:
        found = _pieces(one, books)
    left = one.held.amount - sum(transfer.amount for transfer in found)
    if left and one.flow.source in books.final:
        books.take(one.consumer, one.flow.source, left)
    elif left:
        where = kept.said(one.flow.source)
        problems.add(f"{left} {where} that {one.consumer} holds fit nowhere", one.consumer)
    return found


def _whole(one: _Left, books: Books) -> list[Transfer]:
    """Return it in the first place that has room; in the only one the write itself decides."""
    held, source = one.held, one.flow.source
    for target in one.flow.targets:
        if _is_all(one.flow, books) or books.fits(one.consumer, target.key, held.amount):
            books.take(one.consumer, target.key, held.amount)
            return [Transfer(one.consumer, source, target.key, held.amount, held.units)]
    return []


def _pieces(one: _Left, books: Books) -> list[Transfer]:
    """Return as much as fits into each target, in their order."""
    left, units = one.held.amount, one.held.units
    if units and len(units) != left:
        return []  # nobody knows how much goes with which
    found: list[Transfer] = []
    for target in one.flow.targets:
        amount = books.room(one.consumer, target.key, left)
        if amount:
            books.take(one.consumer, target.key, amount)
            transfer = Transfer(one.consumer, one.flow.source, target.key, amount, units[:amount])
            found.append(transfer)
            left, units = left - amount, units[amount:]
    return found
