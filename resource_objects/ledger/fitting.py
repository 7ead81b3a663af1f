"""Where amounts go that lie over a tree: decided on rows that were just read. Pure.

What is assigned is taken as it is, if it is of that host; what is not, the inventories decide (D4),
of all that is asked of one host at once (D13). The outcome is a choice like any other: changes of
the providers that keep the parts.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.ledger.found import Ask, Choice
from resource_objects.providers import jointly
from resource_objects.providers.blame import with_holders
from resource_objects.providers.columns import Columns
from resource_objects.providers.decision import absent
from resource_objects.providers.located import Located, LocatedViews, Spot
from resource_objects.providers.orders import Delta, Key
from resource_objects.providers.supposing import held_in, with_taken, without
from resource_objects.resources import Amount, Amounts

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
        for asks in _by_host(choice.asks).values():
            views = {ask.resource_class: self._located(ask) for ask in asks}
            for ask in asks:
                self._check_apart(ask, views[ask.resource_class], choice)
            for name, amount in self._assigned(asks, views, choice, instead).items():
                changes = views[name].deltas(amount)
                self._check_elsewhere(views[name], changes)
                deltas += changes
                relied.update(self._relied(views[name].spots))
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

    # --- where it goes ---

    def _assigned(
        self,
        asks: Collection[Ask],
        views: Mapping[str, Located],
        choice: Choice,
        instead: str | None,
    ) -> dict[str, Amount]:
        """Return what is asked of a host, assigned, and let the views know that it is taken."""
        gives = {ask.resource_class: ask.amount for ask in asks if ask.amount.is_negative}
        for name, amount in gives.items():
            self._take_assigned(amount, views[name])
        asked = {ask.resource_class: ask.amount for ask in asks if not ask.amount.is_negative}
        if not asked:
            return gives
        every = self._over(asks, views, choice)
        held = _held(choice, every, {*gives, *asked})
        if all(amount.is_assigned for amount in asked.values()):
            if len(asked) + len(held) > 1:
                self._check_near(asked, every, held)
            for name, amount in asked.items():
                self._take_assigned(amount, views[name])
            return {**gives, **asked}
        found = self._fitted(asked, every, held, instead)
        for name, amount in found.items():
            views[name].inventory._take(amount)
        return {**gives, **found}

    def _over(
        self, asks: Collection[Ask], views: Mapping[str, Located], choice: Choice
    ) -> dict[str, Located]:
        """Return what lies over the host and matters: what is asked, and what is beside cells."""
        if not choice.beside and all(v.inventory.all_cells() is None for v in views.values()):
            return dict(views)
        root = next(self._numbers[ask.host] for ask in asks)
        return {**self._views.over(root), **views}

    def _fitted(
        self,
        asked: Mapping[str, Amount],
        views: Mapping[str, Located],
        held: Mapping[str, Amount],
        instead: str | None,
    ) -> dict[str, Amount]:
        """Return where it all goes; what the consumer has already stays, as far as it can."""
        stays = {} if instead is None else self._staying(asked, views, instead)
        for count in range(len(stays), 0, -1):  # the last ones, which are near something, go first
            some = {name: stays[name] for name in list(stays)[:count]}
            with contextlib.suppress(exceptions.CapacityException):
                return jointly.fit({**asked, **some}, views, held=held)
        try:
            return jointly.fit(asked, views, held=held)
        except exceptions.CapacityException as refusal:
            told = [views[name] for name in asked]
            raise with_holders(refusal, told, self._ground, asked) from refusal

    def _check_near(
        self, asked: Mapping[str, Amount], views: Mapping[str, Located], held: Mapping[str, Amount]
    ) -> None:
        """Refuse assigned amounts that are not near each other; who has them the write says."""
        try:
            jointly.fit(asked, views, held=held)
        except exceptions.ForeignAmount:
            return
        except exceptions.CapacityException as refusal:
            self._decided_here(refusal, [views[name] for name in asked], asked)

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
            self._decided_here(refusal, [located], {located.resource.name: amount})

    def _decided_here(
        self,
        refusal: exceptions.CapacityException,
        views: Collection[Located],
        asked: Mapping[str, Amount],
    ) -> None:
        """Raise a refusal unless it is one that the write decides."""
        if any(reason.rule not in _DECIDED_BY_THE_WRITE for reason in refusal.reasons):
            raise with_holders(refusal, views, self._ground, asked) from refusal

    def _staying(
        self, asked: Mapping[str, Amount], views: Mapping[str, Located], consumer: str
    ) -> dict[str, Amount]:
        """Return where a consumer has amounts already that can be there now."""
        held = list(held_in(self._kept, consumer))
        where = {name: amount for name, amount in asked.items() if amount.is_assigned}
        found: dict[str, Amount] = {}
        for name in jointly.cells_first(asked.keys() - where.keys(), views):
            near = jointly.near_to({**where, **found}, views)
            try:
                stays = views[name].placed(asked[name], held, near)
                if views[name].inventory.can_provide(stays):
                    found[name] = stays
            except exceptions.ForeignAmount:  # or a CPU of it is offline, or serves others
                continue
        return found

    def _relied(self, spots: Collection[Spot]) -> Iterator[tuple[str, int]]:
        for spot in spots:
            yield spot.uuid, self._generation[spot.number]


def _by_host(asks: Collection[Ask]) -> dict[str, list[Ask]]:
    found: dict[str, list[Ask]] = defaultdict(list)
    for ask in asks:
        found[ask.host].append(ask)
    return found


def _held(choice: Choice, views: Mapping[str, Located], but: Collection[str]) -> dict[str, Amount]:
    """Return what a consumer keeps of what lies over a host, assigned, but for some resources."""
    host = next(iter(views.values())).host
    kept = choice.beside.get(host, Amounts())
    return {
        name: amount
        for name, amount in kept.by_name()
        if name in views and name not in but and _is_there(amount, views[name])
    }


def _is_there(amount: Amount, located: Located) -> bool:
    """Return whether an amount is still held where it was told: else the write is refused."""
    try:
        located.inventory.fit(-amount)
    except (exceptions.CapacityException, exceptions.InvalidInput):
        return False
    return True
