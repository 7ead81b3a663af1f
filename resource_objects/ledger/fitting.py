"""Where amounts go that lie over a tree: decided on rows that were just read. Pure.

What is assigned is taken as it is, if it is of that host; what is not, the kind's own ``fit``
decides (D4). The outcome is a choice like any other: changes of the providers that keep the parts.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.ledger.found import Ask, Choice
from resource_objects.providers.blame import with_holders
from resource_objects.providers.columns import Columns
from resource_objects.providers.decision import absent
from resource_objects.providers.located import Located, LocatedViews, Spot
from resource_objects.providers.orders import Delta, Key
from resource_objects.providers.supposing import held_in, with_taken, without
from resource_objects.resources import Amount

#: What a write decides again on what is kept then, and tells with who has it.
_DECIDED_BY_THE_WRITE = frozenset(
    {Rule.CAPACITY, Rule.MAX_UNIT, Rule.UNIT_TAKEN, Rule.USED_BELOW_ZERO, Rule.NO_INVENTORY}
)


def hosts_of(choices: Collection[Choice]) -> tuple[str, ...]:
    """Return the uuids of the hosts whose trees have to be read to put choices somewhere."""
    return tuple(dict.fromkeys(ask.host for choice in choices for ask in choice.asks))


def fitted(choice: Choice, columns: Columns, instead: str | None = None) -> Choice:
    """Return a choice with all that it asks put somewhere.

    :param columns: the trees of its hosts
    :param instead: a consumer that gives back what it holds at the same time. If that is what is
        asked it stays where it is
    :raises CapacityException: if it does not fit, with who holds what
    :raises ForeignAmount: if it is assigned to what the host does not have
    :raises InvalidAmount: if it is asked of what is no host
    :raises ProviderNotFound: if the host is gone
    """
    return fitted_together({"": choice}, columns, {"": instead} if instead else {})[""]


def fitted_together(
    choices: Mapping[str, Choice],
    columns: Columns,
    instead: Mapping[str, str] | None = None,
    beside: Collection[Choice] = (),
) -> dict[str, Choice]:
    """Return several choices put somewhere, each beside those before it.

    :param instead: by key of the choice, who gives back what it holds, as for :func:`fitted`
    :param beside: what is taken besides
    """
    ground = columns
    for consumer in (instead or {}).values():
        ground = without(ground, consumer)
    ground = with_taken(ground, (delta for choice in beside for delta in choice.deltas))
    fitting = _Fitting(columns, ground)
    return {
        name: fitting.choice(choice, (instead or {}).get(name)) for name, choice in choices.items()
    }


def kept_as(columns: Columns) -> dict[str, set[Key]]:
    """Return, by structured resource, the inventories that its parts are kept as."""
    uuids = dict(zip(columns.providers.provider_id, columns.providers.uuid, strict=True))
    found: dict[str, set[Key]] = defaultdict(set)
    for number, kind, classes, _ in zip(*columns.kinds, strict=True):
        found[kind].update((uuids[number], name) for name in classes)
    return found


class _Fitting:
    """Puts amounts into trees, one after the other."""

    def __init__(self, kept: Columns, ground: Columns) -> None:
        self._kept = kept
        self._ground = ground
        self._views = LocatedViews(ground)
        given = kept.providers
        self._roots = dict(zip(given.provider_id, given.root_id, strict=True))
        self._names = dict(zip(given.provider_id, given.name, strict=True))
        self._numbers = dict(zip(given.uuid, given.provider_id, strict=True))
        self._generation = dict(zip(given.provider_id, given.generation, strict=True))
        self._kept_as = kept_as(kept)

    def choice(self, choice: Choice, instead: str | None) -> Choice:
        deltas = list(choice.deltas)
        relied = dict(choice.generations)
        for ask in choice.asks:
            located = self._located(ask)
            self._check_apart(ask, located, choice)
            assigned = self._assigned(ask.amount, located, instead)
            changes = located.deltas(assigned)
            self._check_elsewhere(located, changes)
            deltas += changes
            relied.update(self._relied(located.spots))
        return dataclasses.replace(
            choice, deltas=tuple(deltas), asks=(), generations=tuple(relied.items())
        )

    def _located(self, ask: Ask) -> Located:
        number = self._numbers.get(ask.host)
        if number is None:
            raise exceptions.ProviderNotFound(ask.host)
        if self._roots[number] != number:
            host = self._names[self._roots[number]]
            raise exceptions.InvalidAmount(
                f"{ask.resource_class} of {self._names[number]}",
                ask.amount,
                f"it to be asked of the host, {host}: its whole tree gives it",
            )
        located = self._views.of_tree(number, ask.resource_class)
        if located is None:
            sign = -1 if ask.amount.is_negative else 1
            reason = absent(ask.resource_class, sign, self._names[number])
            raise exceptions.CapacityException.of([reason])
        return located

    def _check_apart(self, ask: Ask, located: Located, choice: Choice) -> None:
        """Refuse a change of a part beside the amount that says what of the parts changes."""
        names = {spot.uuid: spot.name for spot in located.spots}
        for delta in choice.deltas:
            if delta.key in self._kept_as[ask.resource_class]:
                raise exceptions.InvalidAmount(
                    f"{delta.resource_class} of {names.get(delta.provider_uuid)}",
                    delta.amount,
                    f"nothing beside {ask.resource_class}, which says what of it is taken",
                )

    def _check_elsewhere(self, located: Located, deltas: Collection[Delta]) -> None:
        """Refuse a unit that somebody took of another part, before it became one of this part."""
        spots = {spot.number: spot.uuid for spot in located.spots}
        taken = {
            unit: (spots[number], who)
            for number, unit, _, who in zip(*self._ground.units, strict=True)
            if number in spots
        }
        reasons = [
            Reason(
                Rule.UNIT_TAKEN,
                delta.amount,
                bound=0,
                used=1,
                resource=delta.resource_class,
                where=located.host,
                holders=((taken[unit][1], 1),),
                unit=unit,
            )
            for delta in deltas
            for unit in delta.units
            if delta.amount > 0
            and taken.get(unit, (delta.provider_uuid, ""))[0] != delta.provider_uuid
        ]
        if reasons:
            raise exceptions.CapacityException.of(reasons)

    def _assigned(self, amount: Amount, located: Located, instead: str | None) -> Amount:
        """Return the amount assigned, and let the view know that it is taken."""
        if amount.is_assigned:
            self._take_assigned(amount, located)
            return amount
        stays = None if instead is None else self._stays(amount, located, instead)
        if stays is not None:
            amount = stays
        try:
            return located.inventory.consume(amount)
        except exceptions.CapacityException as refusal:
            raise with_holders(refusal, located, self._ground) from refusal

    def _take_assigned(self, amount: Amount, located: Located) -> None:
        """Let the view know that an assigned amount is taken.

        Whether it is free the write decides, which knows who has it; what the write does not look
        at, such as memory that is given out once, is decided here.
        """
        try:
            located.inventory.consume(amount)
        except exceptions.ForeignAmount:  # what is given back may have become something else
            return
        except exceptions.CapacityException as refusal:
            if any(reason.rule not in _DECIDED_BY_THE_WRITE for reason in refusal.reasons):
                raise with_holders(refusal, located, self._ground) from refusal

    def _stays(self, amount: Amount, located: Located, consumer: str) -> Amount | None:
        """Return where a consumer has the amount already, if it can be there now; else None."""
        try:
            stays = located.placed(amount, held_in(self._kept, consumer))
            return stays if located.inventory.can_provide(stays) else None
        except exceptions.ForeignAmount:  # or a CPU of it is offline, or serves others
            return None

    def _relied(self, spots: Collection[Spot]) -> Iterator[tuple[str, int]]:
        for spot in spots:
            yield spot.uuid, self._generation[spot.number]
