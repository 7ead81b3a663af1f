"""Moves: a consumer holds where it goes, its migration where it comes from, until it is decided.

Who moves has one claim, at the destination. What it leaves is held by a consumer of its own
(:func:`migration_of`) of the type :data:`MIGRATION`, whose claim has the id of the migration. So
both places are taken, whoever asks can see it, and nobody can begin a second move of it. Confirmed,
the migration is released; reverted, the consumer gets back what the migration holds. Each of these
is one transaction, and an operation whose id follows from the migration's: whichever process
repeats it, after a crash or at the same moment, it happens once.

Nothing else is kept. Which moves there are is read from who holds what; how one ended is told for
as long as the ledger remembers operations.

(Source: Nova's migrations, which claim at the destination before anything is copied and drop the
claim at the right side afterwards; Placement holds the source by the migration's uuid.)
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from resource_objects import exceptions, names
from resource_objects.host.tracker.asked import Asked, unassigned
from resource_objects.providers import Claim
from resource_objects.providers.orders import ConsumerOrder, Operation, Outcome, StoredRequest, Use
from resource_objects.providers.plan import Plan
from resource_objects.providers.pools import SHARES

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: The type of the consumers that hold what is left.
MIGRATION = "MIGRATION"
_LEAVING = "/migration"

#: What ids of steps are made from, with the id of the migration.
_STEPS = uuid.UUID("8a6f3a52-5b0e-4c39-9d55-0f6a4e1c7b21")


class Place(Protocol):
    """Places what is asked of a host: what ``take`` took of what was found."""

    def __call__(
        self,
        consumer: str,
        host: str,
        asked: Asked,
        take: Callable[[Any], Claim],
        *,
        replaces: bool = False,
    ) -> Claim: ...


_Hosts: TypeAlias = Callable[[Claim], tuple[str, ...]]


class MigrationKind(enum.StrEnum):
    """Why a consumer moves. ``REBUILD`` and ``SHELVE`` are done in one step."""

    RESIZE = "resize"  #: another request, on any host: on the same one old and new both count
    COLD_MIGRATION = "cold migration"  #: to another host
    LIVE_MIGRATION = "live migration"  #: to another host, with pages of the same sizes
    EVACUATION = "evacuation"  #: to another host, from one that is dead
    REBUILD = "rebuild"  #: another request in place: the old one is gone
    SHELVE = "shelve"  #: to nowhere: it gives back all
    UNSHELVE = "unshelve"  #: from nowhere


@dataclasses.dataclass(frozen=True, slots=True)
class _Rules:
    """What a move of a kind needs. None: either will do."""

    other_host: bool | None = None  #: whether it goes to another host than it is on
    request: bool | None = None  #: whether a request is said; else it asks for what it has


_RULES = {
    MigrationKind.RESIZE: _Rules(request=True),
    MigrationKind.COLD_MIGRATION: _Rules(other_host=True),
    MigrationKind.LIVE_MIGRATION: _Rules(other_host=True),
    MigrationKind.EVACUATION: _Rules(other_host=True),
    MigrationKind.REBUILD: _Rules(other_host=False, request=True),
    MigrationKind.SHELVE: _Rules(request=False),
    MigrationKind.UNSHELVE: _Rules(request=True),
}


class MigrationState(enum.StrEnum):
    """Where a move stands."""

    MOVING = "moving"
    CONFIRMED = "confirmed"
    REVERTED = "reverted"


class Revertible(abc.ABC):
    """What a ``with`` statement reverts if its block raises."""

    __slots__ = ()

    @abc.abstractmethod
    def revert(self) -> object:
        """Give back what it took."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.revert()


@dataclasses.dataclass(frozen=True, slots=True)
class Migration(Revertible):
    """A move of a consumer: from where, to where, and how it stands.

    ``source`` is the claim that it leaves and ``destination`` the one that it takes, each None
    where there is none (shelved, unshelved) or nobody knows any more (of a move that ended);
    ``from_host`` and ``to_host`` are the hosts.

    In a ``with`` statement it is reverted if the block raises.
    """

    consumer: str
    id: str
    state: MigrationState
    source: Claim | None = None
    destination: Claim | None = None
    from_host: str | None = None
    to_host: str | None = None
    _moves: Moves | None = dataclasses.field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        where = f"{self.from_host or '-'} -> {self.to_host or '-'}"
        return f"{self.consumer}: {where}, {self.state}"

    def confirm(self) -> Migration:
        """End it at the destination; see :meth:`.ResourceTracker.confirm_move`."""
        assert self._moves is not None, "a tracker made it"
        return self._moves.confirm(self.consumer, self.id)

    def revert(self) -> Migration:
        """End it at the source; see :meth:`.ResourceTracker.revert_move`."""
        assert self._moves is not None, "a tracker made it"
        return self._moves.revert(self.consumer, self.id)


def migration_of(consumer: str) -> str:
    """Return the name of the consumer that holds what another one leaves, while that moves.

    >>> migration_of("vm-1")
    'vm-1/migration'
    """
    return names.consumer_name(f"{names.consumer_name(consumer)}{_LEAVING}")


def migration_id(consumer: str, migration: str | None) -> str:
    """Return the id of a migration: a uuid itself, or made of its name, or made up.

    >>> migration_id("vm-1", "6B7C0A9E0D0F4F839C0B0A4E8B7C1D2E")
    '6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e'
    >>> migration_id("vm-1", "m-7") == migration_id("vm-1", "m-7") != migration_id("vm-2", "m-7")
    True
    """
    if migration is None:
        return Operation().id
    if names.is_uuid(migration):
        return names.uuid_text(migration)
    return _derived(names.label(migration, "migration"), consumer)


def _derived(*said: str) -> str:
    return str(uuid.uuid5(_STEPS, "\0".join(said)))


class _Step(enum.StrEnum):
    """The steps of a move, each of which is an operation."""

    BEGIN = "begin"
    CONFIRM = "confirm"
    REVERT = "revert"


def _operation(migration: str, step: _Step) -> str:
    return _derived(migration, step)


class Moves:
    """The moves of a ledger: how they begin, how they end, and which there are.

    :param asked: what is asked of a host, of whatever a caller gives
    :param place: places what is asked of a host, by what it is given to take with
    """

    def __init__(self, ledger: Ledger, asked: Callable[[Any], Asked], place: Place) -> None:
        self._ledger = ledger
        self._asked = asked
        self._place = place

    # --- beginning ---

    def begin(
        self,
        consumer: str,
        host: str | None,
        request: Any,
        migration: str,
        kind: MigrationKind,
        said: Mapping[str, Any],
    ) -> Migration:
        """Begin a move, or return the one that this migration began."""
        _check(kind, host, request)
        asked = None if request is None else self._asked(request)
        begun = self._begun(consumer, migration, host, asked)
        if begun is not None:
            return begun
        kept = self._claims(consumer)
        source = kept.get(consumer)
        if kind is MigrationKind.UNSHELVE:
            if source is not None:
                raise exceptions.ConsumerExists(consumer, str(source))
            take = functools.partial(self._ledger.claim, consumer, **said)
            return self._taken(consumer, host, asked, migration, None, take)
        if source is None:
            raise exceptions.ConsumerNotFound(consumer)
        if kind is MigrationKind.SHELVE:
            released = [ConsumerOrder.release(consumer, source.generation)]
            self._apply(released, migration, _Step.BEGIN)
            return self._moved(consumer, migration, MigrationState.CONFIRMED, source, None)
        self._check_hosts(kind, source, host, is_same=asked is None)
        asked = self._wanted(source, asked, kind)
        if kind is MigrationKind.REBUILD:
            replace = functools.partial(
                self._ledger.replace, consumer, generation=source.generation, **said
            )
            confirmed = MigrationState.CONFIRMED
            return self._taken(consumer, host, asked, migration, source, replace, confirmed)
        move = functools.partial(
            self._ledger.move,
            consumer,
            leaving=migration_of(consumer),
            leaving_type=MIGRATION,
            leaving_id=migration,
            **said,
        )
        return self._taken(consumer, host, asked, migration, source, move)

    def _taken(
        self,
        consumer: str,
        host: str | None,
        asked: Asked | None,
        migration: str,
        source: Claim | None,
        take: Callable[..., Claim],
        state: MigrationState = MigrationState.MOVING,
    ) -> Migration:
        """Take the destination, and what else the first step does, in one transaction."""
        assert host is not None and asked is not None, "checked"
        operation = _operation(migration, _Step.BEGIN)
        try:
            claim = self._place(
                consumer,
                host,
                asked,
                lambda found: take(found=found, operation=operation),
                replaces=state is MigrationState.CONFIRMED,
            )
        except (
            exceptions.ConsumerExists,
            exceptions.ConsumerNotFound,
            exceptions.OperationConflict,
            exceptions.StaleConsumer,
        ):
            begun = self._begun(consumer, migration, host, asked)
            if begun is None:
                raise
            return begun  # another process was faster
        return self._moved(consumer, migration, state, source, claim)

    def _check_hosts(
        self, kind: MigrationKind, source: Claim, host: str | None, *, is_same: bool
    ) -> None:
        """Refuse a kind of move that cannot go there from where the consumer is."""
        here = self._hosts([source])(source)
        told, other = ", ".join(here), _RULES[kind].other_host
        if len(here) > 1 and is_same:
            raise exceptions.InvalidMove(
                kind, None, f"a request: {source.consumer} holds something of {told}"
            )
        if other is True and host in here:
            raise exceptions.InvalidMove(kind, host, f"another host than {source.consumer} is on")
        if other is False and (host,) != here:
            raise exceptions.InvalidMove(kind, host, f"{told}, which {source.consumer} is on")

    def _wanted(self, source: Claim, asked: Asked | None, kind: MigrationKind) -> Asked:
        """Return what is asked of the destination; by default what the consumer has."""
        keeps_pages = kind is MigrationKind.LIVE_MIGRATION
        if asked is not None and not keeps_pages:
            return asked
        if asked is None and source.request is not None:
            asked = self._asked(source)
        held = self._ledger.assigned(source.consumer) if asked is None or keeps_pages else {}
        if asked is None:
            asked = self._asked(unassigned(held))
        if not keeps_pages:
            return asked
        return asked.with_page_sizes(one for there in held.values() for one in there.values())

    def _begun(
        self, consumer: str, migration: str, host: str | None, asked: Asked | None
    ) -> Migration | None:
        """Return the move that a migration began already, if it did.

        :raises MoveInProgress: if the consumer moves by another one
        :raises InvalidMove: if the migration goes elsewhere, or for something else
        """
        kept = self._claims(consumer)
        leaving = kept.get(migration_of(consumer))
        if leaving is None:
            return self._ended(consumer, migration)
        if leaving.id != migration:
            raise exceptions.MoveInProgress(consumer, f"by the migration {leaving.id}")
        move = self._moved(consumer, migration, MigrationState.MOVING, leaving, kept.get(consumer))
        if host != move.to_host:
            raise exceptions.InvalidMove("move", host, f"{move.to_host}, where it goes already")
        claim = move.destination
        if asked is not None and claim is not None and not asked.is_of(claim):
            expected = f"what it moves for already: {claim.request or claim.amounts}"
            raise exceptions.InvalidMove("move", str(asked), expected)
        return move

    # --- ending ---

    def confirm(self, consumer: str, migration: str) -> Migration:
        """Give back the source, or return the move as it was confirmed."""

        def orders(leaving: Claim, claim: Claim | None) -> list[ConsumerOrder]:
            return [ConsumerOrder.release(leaving.consumer, leaving.generation)]

        move = self._end(consumer, migration, _Step.CONFIRM, orders)
        if move.state is MigrationState.REVERTED:
            raise exceptions.MoveReverted(consumer, f"migration {migration}")
        if move.state is MigrationState.MOVING and move.destination is not None:  # unshelved
            claim = self._ledger.confirm(
                consumer,
                claim=move.destination.id,
                operation=_operation(migration, _Step.CONFIRM),
            )
            return self._moved(consumer, migration, MigrationState.CONFIRMED, None, claim)
        return move

    def revert(self, consumer: str, migration: str) -> Migration:
        """Give back the destination, or return the move as it was reverted."""

        def orders(leaving: Claim, claim: Claim | None) -> list[ConsumerOrder]:
            if claim is None:
                raise exceptions.ConsumerNotFound(consumer, f"{leaving}, which confirms gives back")
            request = None if leaving.request is None else StoredRequest(leaving.request)
            uses = _uses(leaving)
            return [
                ConsumerOrder.replace(consumer, uses, request=request, generation=claim.generation),
                ConsumerOrder.release(leaving.consumer, leaving.generation),
            ]

        move = self._end(consumer, migration, _Step.REVERT, orders)
        if move.state is MigrationState.CONFIRMED:
            raise exceptions.MoveConfirmed(consumer, f"migration {migration}")
        if move.state is MigrationState.MOVING and move.destination is not None:  # unshelved
            self._give_back(consumer, move.destination.id, _operation(migration, _Step.REVERT))
            return self._moved(consumer, migration, MigrationState.REVERTED, None, None)
        return move

    def _end(
        self,
        consumer: str,
        migration: str,
        step: _Step,
        orders: Callable[[Claim, Claim | None], list[ConsumerOrder]],
    ) -> Migration:
        """Take a step that ends a move, or return the move that is over.

        The orders say at which generations they were made; they are made anew, as often as the
        ledger's :class:`RetryPolicy` says, if somebody wrote in between.

        :raises MoveNotFound: if nobody knows of the migration
        """
        tries = self._ledger.retries.definitions
        while True:
            kept = self._claims(consumer)
            leaving = kept.get(migration_of(consumer))
            if leaving is None or leaving.id != migration:
                ended = self._ended(consumer, migration)
                if ended is None:
                    told = "by any" if leaving is None else f"but by {leaving.id}"
                    raise exceptions.MoveNotFound(consumer, f"migration {migration}, {told}")
                return ended
            claim = kept.get(consumer)
            try:
                self._apply(orders(leaving, claim), migration, step)
            except (exceptions.StaleConsumer, exceptions.OperationConflict):
                if tries <= 0:
                    raise
                tries -= 1
                continue
            if step is _Step.CONFIRM:
                return self._moved(consumer, migration, MigrationState.CONFIRMED, leaving, claim)
            return self._moved(consumer, migration, MigrationState.REVERTED, leaving, claim)

    def _ended(self, consumer: str, migration: str) -> Migration | None:
        """Return a move of which nothing is left to be held, None if nobody knows of it.

        One from nowhere still moves: its claim waits for being confirmed.
        """
        begun = self._outcome(migration, _Step.BEGIN)
        if begun is None or all(one.consumer != consumer for one in begun.claims):
            return None
        state = MigrationState.CONFIRMED
        if self._outcome(migration, _Step.REVERT) is not None:
            state = MigrationState.REVERTED
        elif begun.kind == "claim" and self._outcome(migration, _Step.CONFIRM) is None:
            state = MigrationState.MOVING
        claim = self._claims(consumer).get(consumer)
        if claim is not None and all(one.uuid != claim.id for one in begun.claims):
            claim = None  # of another life
        is_back = state is MigrationState.REVERTED
        return self._moved(
            consumer, migration, state, *((claim, None) if is_back else (None, claim))
        )

    def _outcome(self, migration: str, step: _Step) -> Outcome | None:
        return self._ledger.backend.outcome(Operation(_operation(migration, step)))

    def _apply(self, orders: list[ConsumerOrder], migration: str, step: _Step) -> None:
        self._ledger.apply(Plan(orders=tuple(orders)), operation=_operation(migration, step))

    # --- giving back ---

    def give_back(self, consumer: str, claim: str) -> None:
        """Give back a claim, if the consumer still has that one; if it is moving, revert the move.

        :param claim: the id of the claim that is meant
        """
        held = self._claims(consumer)
        leaving, now = held.get(migration_of(consumer)), held.get(consumer)
        if now is not None and now.id != claim:
            return  # of another life
        if leaving is not None:
            self.revert(consumer, leaving.id)
        else:
            self._give_back(consumer, claim, None)

    def _give_back(self, consumer: str, claim: str, operation: str | None) -> None:
        tries = self._ledger.retries.definitions
        while True:
            held = self._claims(consumer).get(consumer)
            if held is None or held.id != claim:
                return
            order = ConsumerOrder.release(consumer, held.generation)
            try:
                self._ledger.apply(Plan(orders=(order,)), operation=operation)
                return
            except exceptions.StaleConsumer:
                if tries <= 0:
                    raise
                tries -= 1

    def release(self, consumer: str) -> Claim:
        """Give back all that a consumer holds, at both places if it is moving: reverted to nothing.

        :raises ConsumerNotFound: if it holds nothing
        """
        tries = self._ledger.retries.definitions
        while True:
            kept = self._claims(consumer)
            if not kept:
                raise exceptions.ConsumerNotFound(consumer)
            leaving = kept.get(migration_of(consumer))
            operation = None if leaving is None else _operation(leaving.id, _Step.REVERT)
            orders = [ConsumerOrder.release(name, one.generation) for name, one in kept.items()]
            try:
                claims = self._ledger.apply(Plan(orders=tuple(orders)), operation=operation)
                return next((one for one in claims if one.consumer == consumer), claims[0])
            except exceptions.StaleConsumer:
                if tries <= 0:
                    raise
                tries -= 1

    # --- reading ---

    def moving(self, consumer: str) -> Migration:
        """Return the move of a consumer that is in progress.

        :raises MoveNotFound: if it is not moving
        """
        kept = self._claims(consumer)
        leaving = kept.get(migration_of(consumer))
        if leaving is None:
            raise exceptions.MoveNotFound(consumer)
        return self._moved(consumer, leaving.id, MigrationState.MOVING, leaving, kept.get(consumer))

    def in_progress(self, host: str | None) -> tuple[Migration, ...]:
        """Return the moves in progress from or to a host, or all, by consumer."""
        if host is None:
            found = self._ledger.consumers(consumer_type=MIGRATION)
        else:
            found = self._ledger.consumers(tree=host)
        here = {one.name: one.claim for one in found if one.claim is not None}
        pairs = [
            (name.removesuffix(_LEAVING), name)
            if claim.consumer_type == MIGRATION and name.endswith(_LEAVING)
            else (name, f"{name}{_LEAVING}")
            for name, claim in here.items()
        ]
        missing = {name for pair in pairs for name in pair} - here.keys()
        others = self._ledger.consumers(name=sorted(missing)) if missing else ()
        here |= {one.name: one.claim for one in others if one.claim is not None}
        moving = [
            (here.get(consumer), here[leaving])
            for consumer, leaving in sorted(dict.fromkeys(pairs))
            if leaving in here and here[leaving].consumer_type == MIGRATION
        ]
        hosts = self._hosts([claim for pair in moving for claim in pair if claim is not None])
        return tuple(
            self._moved(
                leaving.consumer.removesuffix(_LEAVING),
                leaving.id,
                MigrationState.MOVING,
                leaving,
                claim,
                hosts,
            )
            for claim, leaving in moving
        )

    def host_of(self, claim: Claim) -> str:
        """Return the host that a claim is on; of several the first."""
        return self._hosts([claim])(claim)[0]

    def _claims(self, consumer: str) -> dict[str, Claim]:
        """Return what a consumer and its migration hold, by name."""
        found = self._ledger.consumers(name=[consumer, migration_of(consumer)])
        return {one.name: one.claim for one in found if one.claim is not None}

    def _hosts(self, claims: Iterable[Claim]) -> _Hosts:
        """Return a function: the hosts that one of these claims is on; a pool is none."""
        uuids = {one.provider_uuid or "" for claim in claims for one in claim.allocations}
        known = {one.uuid: one for one in self._ledger.providers(uuid=sorted(uuids))}

        def hosts(claim: Claim) -> tuple[str, ...]:
            at = [known[one.provider_uuid or ""] for one in claim.allocations]
            own = [one for one in at if SHARES not in one.traits] or at
            return tuple(dict.fromkeys(one.root for one in own))

        return hosts

    def _moved(
        self,
        consumer: str,
        migration: str,
        state: MigrationState,
        source: Claim | None,
        destination: Claim | None,
        hosts: _Hosts | None = None,
    ) -> Migration:
        hosts = hosts or self._hosts(one for one in (source, destination) if one is not None)
        return Migration(
            consumer,
            migration,
            state,
            source,
            destination,
            None if source is None else ", ".join(hosts(source)),
            None if destination is None else ", ".join(hosts(destination)),
            self,
        )


def _check(kind: MigrationKind, host: str | None, request: Any) -> None:
    """Refuse a move of which it is not said what its kind needs, or what it has no use for."""
    if not isinstance(kind, MigrationKind):
        raise exceptions.InvalidMove("kind", kind, f"one of {', '.join(MigrationKind)}")
    if kind is MigrationKind.SHELVE and host is not None:
        raise exceptions.InvalidMove(kind, host, "no host: it goes nowhere")
    if kind is not MigrationKind.SHELVE and host is None:
        raise exceptions.InvalidMove(kind, host, "the host where it goes")
    needs = _RULES[kind].request
    if needs is not None and needs is not (request is not None):
        expected = "a request" if needs else "no request: it gives back all"
        raise exceptions.InvalidMove(kind, request, expected)


def _uses(claim: Claim) -> tuple[Use, ...]:
    """Return what a claim holds, as it is ordered."""
    return tuple(
        Use(one.provider_uuid or "", one.resource_class, int(one.amount), one.units)  # type: ignore[call-overload]
        for one in claim.allocations
    )
