"""What stands against a located amount on one tree: what its inventory says, and who holds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.search.fleet import Fleet
from resource_objects.search.located import LocatedAsked
from resource_objects.search.placing import Placing

#: The rules that fail because others hold something.
_BY_OTHERS = frozenset(
    {Rule.CAPACITY, Rule.LIMIT, Rule.PHYSICAL, Rule.THREADS, Rule.EMULATOR, Rule.UNIT_TAKEN}
)


class Unplaced:
    """Why located amounts, one or several that are decided together, are nowhere on a tree."""

    def __init__(self, asked: Sequence[LocatedAsked], host: str, forbidden: Iterable[str]) -> None:
        self._every = asked
        self._asked = asked[0]
        self._ask = asked[0].ask
        self._fleet: Fleet = asked[0].ask.fleet
        self._host = host
        self._forbidden = tuple(forbidden)

    def reasons(self, within: Sequence[int]) -> list[Reason]:
        """Return what stands against them, each on some of its parts; nothing if they fit there."""
        if not self._asked.places:
            return [self.made(Rule.NO_INVENTORY)]
        if not self._asked.allowed:
            return self._all_forbidden()
        try:
            Placing(self._every).try_fit(within)
        except exceptions.CapacityException as refusal:
            return [self._told(reason) for reason in refusal.reasons]
        except exceptions.ForeignAmount:
            return [self.made(Rule.FOREIGN)]
        except exceptions.InvalidInventory:
            return [self.made(Rule.INVALID)]
        except exceptions.SearchLimitReached:
            return []
        return []

    def made(self, rule: Rule, trait: str | None = None) -> Reason:
        """Return a reason about all of it."""
        name = self._ask.resource_class
        return Reason(rule, self._ask.count, 0, 0, name, self._host, trait=trait)

    def _all_forbidden(self) -> list[Reason]:
        """Name the traits that all parts have, or if there is none all that together exclude."""
        here = self._ask.parts.of_tree(self._asked.tree)
        flags = [
            (trait, has[here])
            for trait, has in zip(self._forbidden, self._ask.has_forbidden, strict=True)
        ]
        named = [trait for trait, has in flags if has.all()]
        named = named or [trait for trait, has in flags if has.any()]
        return [self.made(Rule.TRAIT_FORBIDDEN, trait) for trait in named]

    def _told(self, reason: Reason) -> Reason:
        """Return a reason with who holds what is missing."""
        if reason.resource is None:
            return reason
        asked = next((one for one in self._every if _is_about(one, reason)), self._asked)
        view = asked.view
        units = view.located.in_the_way(asked.ask.amount, reason)
        if units:
            place = dict(zip(view.located.spots, view.places, strict=True))
            found = self._fleet.who_has({place[spot]: some for spot, some in units.items()})
            return dataclasses.replace(reason, holders=found)
        if reason.rule not in _BY_OTHERS:
            return reason
        spot = view.located.spot_of(reason)
        if spot is None:
            return self._of_host(asked, reason, reason.resource)
        provider = view.places[view.located.spots.index(spot)]
        if reason.rule is Rule.UNIT_TAKEN and reason.unit is not None:
            taken = self._fleet.units.taken([reason.unit]).get(provider)
            return dataclasses.replace(reason, holders=((taken[1], 1),) if taken else ())
        number = self._fleet.number(provider, reason.resource)
        holders = () if number is None else self._fleet.holders([number])
        return dataclasses.replace(reason, holders=holders)

    def _of_host(self, asked: LocatedAsked, reason: Reason, name: str) -> Reason:
        """Return what the host as a whole has left, with its own figures."""
        fleet, shares = self._fleet, self._fleet.shares
        numbers = [fleet.number(place, name) for place in asked.view.places]
        links = [link for n in numbers if n is not None for link in shares.between(n, n + 1)]
        targets = sorted({target for _, target, factor in links if factor == 1})
        if reason.rule is not Rule.CAPACITY or not targets:
            return reason
        target = min(targets, key=fleet.left)
        if fleet.left(target) != reason.free:
            return reason
        rows = fleet.inventories
        return dataclasses.replace(
            reason,
            bound=int(rows.capacity[target]),
            used=int(rows.used[target]),
            holders=fleet.holders([target]),
        )


def _is_about(asked: LocatedAsked, reason: Reason) -> bool:
    return bool(asked.places) and asked.view.located.is_about(reason)
