"""What stands against a located amount on one tree: what its inventory says, and who holds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.search.arrays import Booleans
from resource_objects.search.fleet import Fleet
from resource_objects.search.located import LocatedAsked
from resource_objects.search.placing import Placing

#: The rules that fail because others hold something.
_BY_OTHERS = frozenset(
    {Rule.CAPACITY, Rule.LIMIT, Rule.PHYSICAL, Rule.THREADS, Rule.EMULATOR, Rule.UNIT_TAKEN}
)

#: The rules that are about a trait; what others are about is a name of another kind.
_OF_TRAITS = frozenset(
    {
        Rule.TRAIT_MISSING,
        Rule.TRAIT_FORBIDDEN,
        Rule.ROOT_TRAIT_MISSING,
        Rule.ROOT_TRAIT_FORBIDDEN,
    }
)


class Unplaced:
    """Why located amounts, one or several that are decided together, are nowhere on a tree."""

    def __init__(self, asked: Sequence[LocatedAsked], host: str) -> None:
        self._every = asked
        self._asked = asked[0]
        self._ask = asked[0].ask
        self._fleet: Fleet = asked[0].ask.fleet
        self._host = host

    def reasons(self, within: Sequence[int]) -> list[Reason]:
        """Return what stands against them, each on some of its parts; nothing if they fit there."""
        if not self._asked.places:
            return [self.made(Rule.NO_INVENTORY)]
        if not self._asked.allowed:
            return self._all_barred()
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

    def _all_barred(self) -> list[Reason]:
        """Name the conditions that no part meets, or if there is none all that together exclude."""
        ask = self._ask
        here = ask.parts.of_tree(self._asked.tree)
        flags = [flags[here] for flags in ask.is_barred]
        return barred(ask.barriers, flags, ask.count, ask.resource_class, self._host)

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


def barred(
    barriers: Sequence[tuple[Rule, str]],
    flags: Sequence[Booleans],
    amount: int,
    resource_class: str,
    host: str,
) -> list[Reason]:
    """Return reasons for the conditions that nobody meets, or else for all that exclude somebody.

    :param flags: by condition, who does not meet it
    """
    named = [one for one, some in zip(barriers, flags, strict=True) if some.all()]
    named = named or [one for one, some in zip(barriers, flags, strict=True) if some.any()]
    return [condition(rule, label, amount, resource_class, host) for rule, label in named]


def condition(rule: Rule, label: str, amount: int, resource_class: str | None, host: str) -> Reason:
    """Return a reason about a condition on who gives."""
    if rule in _OF_TRAITS:
        return Reason(rule, amount, 0, 0, resource_class, host, trait=label)
    return Reason(rule, amount, 0, 0, resource_class, host, unit=label)


def _is_about(asked: LocatedAsked, reason: Reason) -> bool:
    return bool(asked.places) and asked.view.located.is_about(reason)
