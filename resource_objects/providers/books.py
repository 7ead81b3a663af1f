"""What is used where while a reshape moves allocations about. Pure."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping

from resource_objects.exceptions import Rule
from resource_objects.providers import decision
from resource_objects.providers.orders import Held, Key
from resource_objects.providers.reckoning import Kept, Problems
from resource_objects.resources.records import InventoryRecord


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """Some of what a consumer holds in one place goes to another."""

    consumer: str
    source: Key
    target: Key
    amount: int
    units: tuple[str, ...]


class Books:
    """What is used of each inventory while allocations are moved about."""

    def __init__(self, kept: Kept, final: Mapping[Key, InventoryRecord | None]) -> None:
        self._kept = kept
        stays = {key: record for key, record in kept.records.items() if key not in final}
        self.final: dict[Key, InventoryRecord] = {**stays, **kept.stated}
        self.final.update((key, record) for key, record in final.items() if record is not None)
        self._used: dict[Key, int] = defaultdict(int)
        self._used.update((key, record.used) for key, record in kept.records.items())
        self._held: dict[tuple[str, Key], int] = defaultdict(int)

    def holds(self, consumer: str, held: Held) -> None:
        """Note what a consumer holds already, for the unit rules."""
        self._held[consumer, held.key] = held.amount

    def give_back(self, consumer: str, key: Key, amount: int) -> None:
        """Take an allocation, or some of it, out of the books."""
        self._shift(consumer, key, -amount)

    def take(self, consumer: str, key: Key, amount: int) -> None:
        """Put an allocation into the books, whether there is room or not."""
        self._shift(consumer, key, amount)

    def carry_out(self, transfers: Iterable[Transfer]) -> None:
        """Move what some transfers say, whether there is room or not."""
        for one in transfers:
            self._shift(one.consumer, one.source, -one.amount)
            self._shift(one.consumer, one.target, one.amount)

    def _shift(self, consumer: str, key: Key, amount: int) -> None:
        self._held[consumer, key] += amount
        self._used[key] += amount
        for target, factor in self._kept.shares.get(key, ()):
            self._used[target] += amount * factor

    def fits(self, consumer: str, key: Key, amount: int) -> bool:
        """Return whether a consumer may take so much more in a place, and where that shares."""
        return amount <= self.room(consumer, key, amount)

    def room(self, consumer: str, key: Key, most: int) -> int:
        """Return how much up to ``most`` a consumer may take in a place, 0 for nothing."""
        record = self.final.get(key)
        if record is None:
            return 0
        most = min(most, record.capacity - self._used[key])
        for target, factor in self._kept.shares.get(key, ()):
            if target in self.final:
                most = min(most, (self.final[target].capacity - self._used[target]) // factor)
        held = self._held[consumer, key]
        if record.max_unit is not None:
            most = min(most, record.max_unit - held)
        most = (held + most) // record.step_size * record.step_size - held
        return most if most > 0 and self._keeps_rules(record, held + most) else 0

    def _keeps_rules(self, record: InventoryRecord, amount: int) -> bool:
        empty = dataclasses.replace(record, used=0)
        found = decision.refusals(empty, amount, "")
        return all(reason.rule is Rule.CAPACITY for reason in found)

    def note_overfull(self, problems: Problems) -> None:
        """Note every inventory that would be more over its capacity than it is.

        This is about what was read. Of a source that shrinks, a consumer may take more before the
        reshape is committed; then it is over-full like any inventory that somebody shrinks below
        its use: nothing is lost, and ``ledger.over_capacity()`` lists it.
        """
        for key, before in self._kept.records.items():
            after = self.final.get(key)
            if after is None or after.capacity >= before.capacity:
                continue  # of one that grows, the write itself decides
            over = self._used[key] - after.capacity
            if over > max(0, before.used - before.capacity):
                problems.add(
                    f"{self._kept.said(key)} would have {self._used[key]} used of {after.capacity}"
                )
