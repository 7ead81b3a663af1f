"""How everything that takes is written: one way after the other, again if somebody was faster."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypedDict, TypeVar

from resource_objects import exceptions, names
from resource_objects.ledger.base import request_text
from resource_objects.ledger.fitting import fitted, hosts_of
from resource_objects.ledger.found import Choice, choices_of
from resource_objects.ledger.locating import LocateMethods
from resource_objects.ledger.units import named_units, with_units
from resource_objects.providers.columns import Columns
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


def is_stale(lost: Exception) -> bool:
    """Return whether a refusal is about definitions that were changed in between."""
    return isinstance(lost, exceptions.StaleDefinition | exceptions.ProviderNotFound)


class Own(enum.Enum):
    """What becomes of what a consumer holds when something is put somewhere for it."""

    NONE = "it must hold nothing"
    GOES = "it is given back in the same write"
    STAYS = "it stays taken"


@dataclasses.dataclass(frozen=True, slots=True)
class Taking:
    """A write that takes for one consumer: what it is recorded as, and how a choice becomes it."""

    doing: Operation
    kind: str
    subject: str
    consumer: str
    own: Own
    order: Callable[[Choice], Iterable[Order]]
    relied: Callable[[Choice], tuple[tuple[str, int], ...]] = lambda choice: ()

    def write(self, choice: Choice, *relied: tuple[str, int]) -> Write:
        """Return the write of a choice, which also relies on some definitions."""
        unchanged = dict.fromkeys((*self.relied(choice), *choice.relied, *relied))
        return write_of(self.doing, self.kind, self.subject, self.order(choice), unchanged)


class TakeMethods(LocateMethods):
    """What the methods that take have in common."""

    def _take(self, taking: Taking, found: Any, lost_by: _Errors) -> tuple[ClaimRecord, ...]:
        """Commit the first way to take what was found for a consumer that is still free.

        When all of a search are gone it is searched afresh, as often as the retry policy says.
        """
        searches_left = self.retries.searches if isinstance(found, Candidates) else 0
        while not isinstance(found, Candidates) or found:
            taken = self._first(taking, choices_of(found, self._uuids, "claim"), lost_by)
            if isinstance(taken, tuple):
                return taken
            if not searches_left:
                raise taken
            searches_left -= 1
            found = self.snapshot(found.at).searched(found.request, found.options.again())
        raise exceptions.NoCandidates(f"no candidate for {taking.consumer}: {found.explain()}")

    def _first(
        self, taking: Taking, choices: Iterable[Choice], lost_by: _Errors
    ) -> tuple[ClaimRecord, ...] | exceptions.ResourceObjectsError:
        """Commit the first that is still free, or return why the last one is not."""
        lost: exceptions.ResourceObjectsError | None = None
        for choice in choices:
            try:
                return self._put(taking, choice)
            except lost_by as gone:
                lost = gone
            except exceptions.StaleDefinition as gone:
                if not choice.relies_on(gone.subject):
                    raise
                lost = gone
        assert lost is not None, "there is at least one choice"
        return lost

    def _put(self, taking: Taking, choice: Choice) -> tuple[ClaimRecord, ...]:
        """Commit a choice, having put somewhere what it asks."""
        taking.relied(choice)  # raises, before anything is read
        if choice.asks:
            return self._fitted(taking, choice)
        leaving = taking.own is Own.GOES
        before: Choice | None = None
        for tries_left in range(self.retries.definitions, -1, -1):
            way = self._with_units(choice, taking.consumer, leaving)
            try:
                return self.backend.commit(taking.write(way))
            except exceptions.StaleDefinition:
                if way in (choice, before) or not tries_left:  # it is about something else
                    raise
                before = way
        raise AssertionError("the last try does not end")

    def _known(self, choice: Choice, consumer: str, relied: Callable[[Choice], object]) -> Choice:
        """Return a choice of one that holds nothing yet, checked before anything is fitted."""
        relied(choice)
        return self._with_units(choice, consumer)

    def _with_units(self, choice: Choice, consumer: str, leaving: bool = False) -> Choice:
        """Return a choice that relies on the definitions of the parts whose units it names.

        What was found by a search does already. Cost: one read of the trees of the others.

        :param leaving: whether the consumer gives back what it holds
        """
        named = named_units(choice)
        if not named:
            return choice
        places = dict.fromkeys(delta.provider_uuid for delta in named)
        return with_units(choice, self.backend.read(*places), consumer, leaving)

    def _fitted(self, taking: Taking, choice: Choice) -> tuple[ClaimRecord, ...]:
        """Put what a choice asks somewhere and commit it, again if somebody was faster (D4)."""
        instead = taking.consumer if taking.own is Own.GOES else None
        is_open = any(ask.is_open for ask in choice.asks)
        before: Columns | None = None
        lost: exceptions.ResourceObjectsError | None = None
        for tried in range(self.retries.fits + 1):
            if lost is not None:
                self.retries.pause(tried)
            columns = self.backend.read(*hosts_of([choice]))
            if columns == before:
                break  # nobody was faster: it is about something else
            way = self._with_units(choice, taking.consumer, instead is not None)
            try:
                placed = fitted(way, columns, instead)
            except exceptions.CapacityException as refusal:
                new = (taking.consumer,) if taking.own is Own.NONE else ()
                return self._done_before(taking.doing, taking.kind, taking.subject, new, refusal)
            try:
                return self.backend.commit(taking.write(placed, *placed.generations))
            except FASTER as gone:
                lost, before = gone, columns
                if not is_open and not is_stale(gone):
                    break  # it is taken where it is, or not at all
        assert lost is not None, "the first try does not break off"
        raise lost

    def _done_before(
        self,
        doing: Operation,
        kind: str,
        subject: str,
        new: Iterable[str],
        refusal: exceptions.ResourceObjectsError,
    ) -> tuple[ClaimRecord, ...]:
        """Return what an operation did, if it is a repetition; else raise why it is refused.

        What a backend refuses it looks at in the same way.

        :param new: consumers that must hold nothing
        """
        done = self.backend.outcome(doing)
        if done is not None:
            done.require(doing.id, kind, subject)
            return done.claims
        new = tuple(new)
        kept = self.backend.held_by(new)
        for name in new:
            if name in kept:
                raise exceptions.ConsumerExists(name) from refusal
        raise refusal

    def _held_by(self, *consumers: str) -> tuple[ClaimRecord, ...]:
        """Return what consumers hold, in their order.

        :raises ConsumerNotFound: if one holds nothing
        """
        kept = self.backend.held_by(consumers)
        for name in consumers:
            if name not in kept:
                raise exceptions.ConsumerNotFound(name)
        return tuple(kept[name] for name in consumers)

    def _demanded(self, unchanged: Unchanged) -> Callable[[Choice], tuple[tuple[str, int], ...]]:
        """Return what gives the definitions that a choice relies on, ``(uuid, generation)``."""
        if unchanged is False:
            return lambda choice: choice.relied
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
        return lambda choice: (*pairs, *choice.relied)


#: What tells that somebody was faster, so that it may have to be put elsewhere.
FASTER = (
    exceptions.CapacityException,
    exceptions.StaleDefinition,
    exceptions.ProviderNotFound,
)

_UNCHANGED = "True for candidates of a snapshot, or {provider: generation}"


def _generations(choice: Choice) -> tuple[tuple[str, int], ...]:
    if not choice.generations or choice.host is None:  # it was found by nobody
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
