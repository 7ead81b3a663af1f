"""How everything that takes is written: one way after the other, again if somebody was faster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypedDict, TypeVar

from resource_objects import exceptions, names
from resource_objects.ledger.base import request_text
from resource_objects.ledger.found import Choice, choices_of
from resource_objects.ledger.reading import ReadMethods
from resource_objects.providers.given import generation
from resource_objects.providers.orders import ClaimRecord, Operation, Order, Write
from resource_objects.search.candidates import Candidates

_T = TypeVar("_T")

#: Demands that definitions are as they were: those that candidates were found at (True), or
#: ``{provider: generation}``.
Unchanged: TypeAlias = bool | Mapping[str, int]

_Errors: TypeAlias = tuple[type[exceptions.ResourceObjectsError], ...]


def lost_by(unchanged: Unchanged) -> _Errors:
    """Return what tells that one way is lost, and another one may do.

    Definitions that are demanded by generation are the same ones for every way.
    """
    lost = exceptions.CapacityException, exceptions.ProviderNotFound
    return lost if isinstance(unchanged, Mapping) else (*lost, exceptions.StaleDefinition)


def patiently(attempt: Callable[[], _T], tries: int, *faster: type[Exception]) -> _T:
    """Attempt something that reads and then writes, again if somebody wrote in between.

    :param tries: how often again
    :param faster: the errors that tell that somebody did
    """
    while True:
        try:
            return attempt()
        except faster:
            if tries <= 0:
                raise
            tries -= 1


class TakeMethods(ReadMethods):
    """What the methods that take have in common."""

    def _take(
        self,
        write: Callable[[Choice], Write],
        found: Any,
        consumer: str,
        lost_by: _Errors,
    ) -> tuple[ClaimRecord, ...]:
        """Commit the first way to take what was found for a consumer that is still free.

        When all of a search are gone it is searched afresh, as often as the retry policy says.
        """
        if not isinstance(found, Candidates):
            return self._first(write, choices_of(found, self._uuids, "claim"), lost_by)
        for searches_left in range(self.retries.searches, -1, -1):
            if not found:
                break
            try:
                return self._first(write, choices_of(found, self._uuids, "claim"), lost_by)
            except lost_by:
                if not searches_left:
                    raise
            limit = len(found)
            found = self.snapshot(found.at).candidates(
                found.request, limit=limit, budget=found.budget
            )
        raise exceptions.NoCandidates(f"no candidate for {consumer}: {found.explain()}")

    def _first(
        self, write: Callable[[Choice], Write], choices: Iterable[Choice], lost_by: _Errors
    ) -> tuple[ClaimRecord, ...]:
        """Commit the first that is still free, or raise why the last one is not."""
        lost: exceptions.ResourceObjectsError | None = None
        for choice in choices:
            try:
                return self.backend.commit(write(choice))
            except lost_by as gone:
                lost = gone
        assert lost is not None, "there is at least one choice"
        raise lost

    def _held_by(self, *consumers: str) -> tuple[ClaimRecord, ...]:
        """Return what consumers hold, in their order.

        :raises ConsumerNotFound: if one holds nothing
        """
        kept = self.backend.held_by(consumers)
        for name in consumers:
            if name not in kept:
                raise exceptions.ConsumerNotFound(name)
        return tuple(kept[name] for name in consumers)

    def _relied(self, unchanged: Unchanged) -> Callable[[Choice], tuple[tuple[str, int], ...]]:
        """Return what gives the definitions that a choice relies on, ``(uuid, generation)``."""
        if unchanged is False:
            return lambda choice: ()
        if unchanged is True:
            return _generations
        if not isinstance(unchanged, Mapping):
            raise exceptions.InvalidField("unchanged", unchanged, _UNCHANGED)
        asked = {
            names.provider_key(name): generation(number, "unchanged")
            for name, number in unchanged.items()
        }
        uuids = self._uuids(asked)
        pairs = tuple((uuids[key], number) for key, number in asked.items())
        return lambda choice: pairs


_UNCHANGED = "True for candidates of a snapshot, or {provider: generation}"


def _generations(choice: Choice) -> tuple[tuple[str, int], ...]:
    if not choice.generations:
        raise exceptions.InvalidField("unchanged", True, _UNCHANGED)
    return choice.generations


class Described(TypedDict):
    """What an order says of its consumer; None leaves it."""

    project: str | None
    user: str | None
    consumer_type: str | None


def described(project: str | None, user: str | None, consumer_type: str | None) -> Described:
    """Return what an order says of a consumer, checked."""
    return {
        "project": _label("project", project),
        "user": _label("user", user),
        "consumer_type": _label("consumer type", consumer_type),
    }


def _label(what: str, given: str | None) -> str | None:
    return None if given is None else names.label(given, what)


def write_of(
    doing: Operation,
    kind: str,
    subject: str,
    orders: Iterable[Order],
    unchanged: Iterable[tuple[str, int]] = (),
) -> Write:
    """Return a write of orders alone."""
    return Write(doing, kind, subject, orders=tuple(orders), unchanged=tuple(unchanged))


def requested(choice: Choice) -> str | None:
    """Return the request that a choice was found for, as it is kept."""
    return request_text(choice.request)
