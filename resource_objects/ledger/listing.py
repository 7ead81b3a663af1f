"""Lists: providers, consumers and totals by filters, a page at a time."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects.ledger.base import LedgerBase, consumer_of
from resource_objects.providers import Consumer
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.given import ago
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    ListedProvider,
    ProviderFilter,
    Total,
    check_limit,
)
from resource_objects.resources import Amounts
from resource_objects.resources.traits import known_traits

#: One name or several; a None among them stands for not given.
Names: TypeAlias = str | Iterable[str | None] | None


class ListMethods(LedgerBase):
    """The methods of a ledger that list."""

    def providers(
        self,
        *,
        name: Names = None,
        uuid: Names = None,
        tree: Names = None,
        aggregates: Iterable[str | Iterable[str]] = (),
        forbidden_aggregates: Iterable[str] = (),
        required: Iterable[str] = (),
        forbidden: Iterable[str] = (),
        any_of: Iterable[Iterable[str]] = (),
        room: Any = None,
        over_capacity: bool = False,
        page: int = 500,
    ) -> Iterator[ListedProvider]:
        """Yield the providers that match all that is given, in the order they were made.

        Those that one call made are in no order among themselves. Each is told by itself, without
        those below it (:meth:`trees` gives these). Cost: a few statements per page; who is made,
        removed or changed between two pages may be in it or not.

        :param name: its name is this, or one of these
        :param uuid: the same for its uuid
        :param tree: it is in the tree of this provider, or of one of these (names or uuids)
        :param aggregates: it is a member of each; where a set is given, of at least one of the set
        :param forbidden_aggregates: it is a member of none of these
        :param required: it has all of these traits, itself
        :param forbidden: it has none of these
        :param any_of: it has at least one of each of these sets
        :param room: amounts that it has free by itself, unit rules kept
        :param over_capacity: it uses more of something than its capacity
        :param page: how many are read at once
        :raises NegativeAmount: if ``room`` is less than nothing
        """
        wanted = ProviderFilter(
            names=_one_or_several(name, names.provider_name),
            uuids=_one_or_several(uuid, names.uuid_text),
            trees=_one_or_several(tree, names.provider_key),
            aggregates=tuple(
                _several([one] if isinstance(one, str) else one, names.aggregate_name)
                for one in _several_of("aggregates", aggregates)
            ),
            forbidden_aggregates=_several(forbidden_aggregates, names.aggregate_name),
            required=known_traits(required),
            forbidden=known_traits(forbidden),
            any_of=tuple(known_traits(some) for some in _several_of("any_of", any_of)),
            room=() if room is None else _room(room),
            over_capacity=over_capacity,
        )
        return self._listed(wanted, check_limit(page))

    def _listed(self, wanted: ProviderFilter, page: int) -> Iterator[ListedProvider]:
        for found in self._pages(wanted, page):
            yield from found

    def _pages(self, wanted: ProviderFilter, page: int) -> Iterator[tuple[ListedProvider, ...]]:
        after = 0
        while True:
            found = self.backend.list_providers(wanted, page, after)
            if found:
                yield found
            if len(found) < page:
                return
            after = found[-1].number

    def consumers(
        self,
        *,
        name: Names = None,
        project: Names = None,
        user: Names = None,
        consumer_type: Names = None,
        older_than: datetime.timedelta | None = None,
        younger_than: datetime.timedelta | None = None,
        state: Names = None,
        tree: str | None = None,
        provider: str | None = None,
        page: int = 500,
    ) -> Iterator[Consumer]:
        """Yield the consumers that match all that is given, with what they hold, by name.

        Cost: a few statements per page.

        :param name: its name is this, or one of these
        :param project: the same for its project; None among several stands for not given
        :param user: the same for its user
        :param consumer_type: the same for its type
        :param older_than: it took what it holds longer ago than this
        :param younger_than: it took it less long ago
        :param state: its claim is ``held`` or ``confirmed``
        :param tree: it holds something in the tree of this provider (name or uuid)
        :param provider: it holds something at this provider (name or uuid)
        :param page: how many are read at once
        """
        now = datetime.datetime.now(datetime.UTC)
        wanted = ConsumerFilter(
            names=_one_or_several(name, names.consumer_name),
            states=_one_or_several(state, _state),
            created_before=_ago("older_than", older_than, now),
            created_after=_ago("younger_than", younger_than, now),
            **_whose(project, user, consumer_type, tree, provider),
        )
        return self._consumers(wanted, check_limit(page))

    def _consumers(self, wanted: ConsumerFilter, page: int) -> Iterator[Consumer]:
        after: str | None = None
        while True:
            found = self.backend.list_consumers(wanted, page, after)
            yield from map(consumer_of, found)
            if len(found) < page:
                return
            after = found[-1].consumer

    def totals(
        self,
        by: str = By.RESOURCE_CLASS,
        *,
        project: Names = None,
        user: Names = None,
        consumer_type: Names = None,
        tree: str | None = None,
        provider: str | None = None,
    ) -> tuple[Total, ...]:
        """Return what consumers use, summed by class within each group.

        Cost: a few statements; the database sums.

        :param by: ``resource_class`` (no other group), ``provider``, ``project``, ``user`` or
            ``consumer_type``
        :param project: only what consumers of this project use, or of one of these; the rest as
            in :meth:`consumers`, but of ``tree`` and ``provider`` only what is used there
        """
        if by not in list(By):
            known = ", ".join(one.value for one in By)
            raise exceptions.InvalidField("totals by", by, f"one of {known}")
        wanted = ConsumerFilter(**_whose(project, user, consumer_type, tree, provider))
        return self.backend.totals(wanted, By(by))


def _whose(
    project: Names, user: Names, consumer_type: Names, tree: str | None, provider: str | None
) -> dict[str, Any]:
    """Return the conditions that lists of consumers and totals have in common."""
    return {
        "projects": _labels("project", project),
        "users": _labels("user", user),
        "types": _labels("consumer type", consumer_type),
        "tree": None if tree is None else names.provider_key(tree),
        "provider": None if provider is None else names.provider_key(provider),
    }


def _one_or_several(given: Names, check: Callable[[object], str]) -> frozenset[str] | None:
    if given is None:
        return None
    return _several([given] if isinstance(given, str) else given, check)


def _several(given: Any, check: Callable[[object], str]) -> frozenset[str]:
    return frozenset(check(one) for one in _several_of("names", given))


def _several_of(what: str, given: Any) -> Iterable[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise exceptions.InvalidField(what, given, "a list")
    return given


def _labels(what: str, given: Names) -> frozenset[str | None] | None:
    if given is None:
        return None
    several = [given] if isinstance(given, str) else _several_of(what, given)
    return frozenset(None if one is None else names.label(one, what) for one in several)


def _state(given: object) -> str:
    if given not in (HELD, CONFIRMED):  # who has released holds nothing, and is not kept
        raise exceptions.InvalidField("state", given, f"{HELD} or {CONFIRMED}")
    return str(given)


def _ago(
    what: str, age: datetime.timedelta | None, now: datetime.datetime
) -> datetime.datetime | None:
    return None if age is None else ago(what, age, now)


def _room(given: Any) -> tuple[tuple[str, int], ...]:
    asked = Amounts.of(given)
    for kind, amount in asked.by_name():
        if amount.is_negative:
            raise exceptions.NegativeAmount(kind, amount, "0 or more: what has room for less?")
    return tuple(
        (record.resource_class, record.amount)
        for kind, amount in asked.by_name()
        for record in amount.to_records(kind)
    )
