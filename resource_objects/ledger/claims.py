"""Taking and giving back: what consumers hold.

Every method that takes says which demands it may write (a *selection*) and which orders a demand
becomes. One loop, :meth:`Claims._take`, places, writes, and decides by one table, :data:`_STEPS`,
what follows when somebody else was faster.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

from resource_objects import exceptions, names
from resource_objects.ledger.all_or_none import AllOrNone
from resource_objects.ledger.assign import Assigner
from resource_objects.ledger.demand import (
    Claimable,
    Demand,
    Resolve,
    demand_of,
    demands_of,
    merged_request,
    providers_in,
)
from resource_objects.ledger.feed import Snapshots, snapshot_in_place, snapshot_without
from resource_objects.ledger.queue import Queue
from resource_objects.ledger.store import Store, any_limit, claim_of, written_claim_of
from resource_objects.providers import Allocation, Claim
from resource_objects.providers.abilities import Ability
from resource_objects.providers.allocation import CONFIRMED
from resource_objects.providers.columns import AllocationColumns, Columns
from resource_objects.providers.decision import MOST_HOLDERS
from resource_objects.providers.disabled import TRAIT
from resource_objects.providers.given import (
    Expiry,
    any_generation,
    generation,
    of_uuids,
    tighter,
)
from resource_objects.providers.holders import unattributed
from resource_objects.providers.listing import ConsumerFilter, ProviderFilter
from resource_objects.providers.orders import (
    UNLIMITED,
    ConsumerOrder,
    ConsumerRecord,
    Operation,
    Outcome,
    StoredRequest,
    Totals,
    Use,
    Write,
    subject_of,
)
from resource_objects.providers.pools import SHARES
from resource_objects.requests import Request
from resource_objects.resources import Amount
from resource_objects.search.candidates import Candidates, Chosen
from resource_objects.search.in_place import kept_in_place

if TYPE_CHECKING:
    from resource_objects.search import Scenario, Snapshot

#: What a caller may not show: refusals (INFO), and races that were lost and run again (DEBUG).
LOG = logging.getLogger("resource_objects.ledger")

#: Demands that definitions are as they were: those that candidates were found at (True), or
#: ``{provider: generation}``.
IfGeneration: TypeAlias = bool | Mapping[str, int]

#: Definitions, ``(uuid, generation)``.
_Pairs: TypeAlias = tuple[tuple[str, int], ...]

_Errors: TypeAlias = tuple[type[exceptions.ResourceObjectsError], ...]

_UNCHANGED = "True for candidates of a snapshot, or {provider: generation}"


class _Step(enum.Enum):
    """What to try after a refused write."""

    READ_AGAIN = "read the consumer again, and begin anew"
    PLACE_AGAIN = "place the same demand on what is there now"
    NEXT = "take the next demand; after the last one of a search, search again"


#: What follows on a refusal: the first step that is open, else it is raised (give up). A gang,
#: which learns from refusals what else to take, tries these from the last to the first. Before any
#: of them expired claims are released that are in the way, if the claim may do that.
_STEPS: dict[type[exceptions.ResourceObjectsError], tuple[_Step, ...]] = {
    exceptions.StaleConsumer: (_Step.READ_AGAIN,),
    exceptions.CapacityException: (_Step.PLACE_AGAIN, _Step.NEXT),
    exceptions.StaleDefinition: (_Step.PLACE_AGAIN, _Step.NEXT),
    exceptions.ProviderNotFound: (_Step.PLACE_AGAIN, _Step.NEXT),
    exceptions.ConsumerNotFound: (),  # an expired claim that was to be released: see _releasing
}

#: Refusals about definitions that were changed in between, also of a demand that says all.
_STALE = (exceptions.StaleDefinition, exceptions.ProviderNotFound)


class _Described(TypedDict):
    """What an order says of its consumer; None leaves it."""

    project: str | None
    user: str | None
    consumer_type: str | None
    group: str | None


class _Selection(Protocol):
    """The demands that a write may take, of one or several consumers."""

    #: whether :meth:`next` learns from a refusal, so that it is asked before placing again
    learns: bool

    @property
    def places(self) -> Collection[str]:
        """Uuids of providers whose trees :meth:`next` wants to see."""

    def first(self) -> Mapping[str, Demand]:
        """Return a demand for each consumer."""

    def next(
        self, lost: exceptions.ResourceObjectsError, columns: Columns | None
    ) -> Mapping[str, Demand] | None:
        """Return other demands after a refusal, None if there are none."""


@dataclasses.dataclass(slots=True)  # one per claim, and a frozen one takes three times as long
class _Taking:
    """A write that takes: the demands it may take, and the orders that these become.

    ``new`` are consumers that must hold nothing, ``leaving`` those that give back what they hold
    in the same write; ``unchanged`` gives the definitions that are demanded with a demand besides
    those it requires. After ``lost_by`` another demand may do. ``reads`` says that the consumers
    were read for it. ``expired`` are consumers whose claims had expired when it began, which the
    same write releases where they are in the way. ``limits`` are totals that bind the write;
    ``overrides`` says that it may take of what is out of service.
    """

    operation: Operation
    kind: str
    subject: str
    selection: _Selection
    orders: Callable[[Mapping[str, Demand]], Iterable[ConsumerOrder]]
    new: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    unchanged: Callable[[Demand], _Pairs] = lambda demand: ()
    lost_by: _Errors = ()
    reads: bool = False
    expired: frozenset[str] = frozenset()
    limits: Totals = UNLIMITED
    overrides: bool = False

    def write(self, demands: Mapping[str, Demand], released: Iterable[ConsumerRecord]) -> Write:
        """Return the write of demands that are placed, and that releases some consumers."""
        pairs = [pair for one in demands.values() for pair in (*self.unchanged(one), *one.required)]
        return Write(
            self.operation,
            self.kind,
            self.subject,
            orders=(*self.orders(demands), *map(_release, released)),
            unchanged=tuple(dict.fromkeys(pairs)),
            limits=self.limits,
        )


@dataclasses.dataclass(slots=True)
class _Attempt:
    """Some demands that are placed and written.

    ``tried`` is how often they were placed again, ``before`` the columns on which that was done
    last and ``lost`` why it was refused; ``rereads`` is how often the consumers were read again.
    ``released`` are those with expired claims that are released with it, as they were read.
    """

    taking: _Taking
    demands: Mapping[str, Demand]
    tried: int = 0
    before: Columns | None = None
    lost: exceptions.ResourceObjectsError | None = None
    rereads: int = 0
    released: tuple[ConsumerRecord, ...] = ()


class Claims:
    """The claims of a ledger; :class:`~resource_objects.ledger.Ledger` says what each does."""

    def __init__(
        self, store: Store, assigner: Assigner, snapshots: Snapshots, queue: Queue
    ) -> None:
        self._store = store
        self._assigner = assigner
        self._snapshots = snapshots
        self._queue = queue

    # --- the verbs ---

    def claim(
        self,
        consumer: str,
        found: Claimable,
        said: _Described,
        until: Expiry,
        unchanged: IfGeneration,
        release_expired: bool,
        overrides: bool,
        operation: str | None,
        limits: Totals = UNLIMITED,
        wait: datetime.timedelta | None = None,
    ) -> Claim:
        if wait is not None:
            once = functools.partial(
                self._claim,
                *(consumer, said, until, unchanged, release_expired, overrides, operation, limits),
            )
            return self._queued("claim", consumer, found, wait, overrides, operation, limits, once)
        return self._claim(
            consumer, said, until, unchanged, release_expired, overrides, operation, limits, found
        )

    def _claim(
        self,
        consumer: str,
        said: _Described,
        until: Expiry,
        unchanged: IfGeneration,
        release_expired: bool,
        overrides: bool,
        operation: str | None,
        limits: Totals,
        found: Claimable,
    ) -> Claim:
        if overrides is not False:
            self._check_override(overrides)
        name = names.consumer_name(consumer)
        doing, done = self._store.begin(operation, "claim", name)
        if done is not None:
            return self._repeated(doing, done, {name: found}, overrides)[0]
        demanded, within = self._demanded(unchanged), self._within(limits, found)

        def begin(expired: frozenset[str]) -> _Taking:
            return _Taking(
                doing,
                "claim",
                name,
                self._in_turn(name, found, within, expired),
                functools.partial(_claim_orders, until, said, overrides),
                new=(name,),
                unchanged=demanded,
                lost_by=_lost_by(unchanged),
                expired=expired,
                limits=within,
                overrides=overrides,
            )

        return written_claim_of(self._take_or_release(begin, release_expired, name)[0])

    def claim_all(
        self,
        found: Mapping[str, Claimable],
        said: _Described,
        until: Expiry,
        unchanged: IfGeneration,
        release_expired: bool,
        overrides: bool,
        operation: str | None,
        limits: Totals = UNLIMITED,
    ) -> tuple[Claim, ...]:
        if overrides is not False:
            self._check_override(overrides)
        if not isinstance(found, Mapping) or not found:
            raise exceptions.InvalidAmount("claim_all", found, "{consumer: what was found}")
        wanted = {names.consumer_name(name): one for name, one in found.items()}
        subject = subject_of(wanted)
        doing, done = self._store.begin(operation, "claim", subject)
        if done is not None:
            return self._repeated(doing, done, wanted, overrides)
        demanded, within = self._demanded(unchanged), self._within(limits, *wanted.values())
        resolve = self._resolving(wanted.values())

        def begin(expired: frozenset[str]) -> _Taking:
            picture = functools.cache(functools.partial(self._picture, expired))
            ways: dict[str, list[Demand]] = {}
            for name, each in wanted.items():
                if expired and isinstance(each, Candidates):
                    each = picture(each.at).searched(each.request, each.options.within(within))
                demands = demands_of(each, resolve, "claim")
                ways[name] = [self._known(name, one, demanded) for one in demands]
                if not ways[name]:
                    raise exceptions.NoCandidates(f"no candidate for {name}")
            return _Taking(
                doing,
                "claim",
                subject,
                AllOrNone(ways, self._store.backend, leaving=expired, limits=within),
                functools.partial(_claim_orders, until, said, overrides),
                new=tuple(wanted),
                unchanged=demanded,
                lost_by=_lost_by(unchanged),
                expired=expired,
                limits=within,
                overrides=overrides,
            )

        taken = self._take_or_release(begin, release_expired, *wanted)
        return _in_order(taken, wanted, written_claim_of)

    def adjust(
        self,
        consumer: str,
        changes: Mapping[str, Any] | Sequence[Allocation],
        aggregate: bool,
        read_at: int | None,
        release_expired: bool,
        overrides: bool,
        operation: str | None,
        limits: Totals = UNLIMITED,
    ) -> Claim:
        name, read_at = names.consumer_name(consumer), any_generation(read_at)
        if overrides is not False:
            self._check_override(overrides)
        doing, done = self._store.begin(operation, "adjust", name)
        if done is not None:
            return _in_order(done.claims, [name])[0]
        within = self._within(limits)
        demand = demand_of(
            changes, self._store.uuids, "adjust", give_back=True, aggregate=aggregate
        )

        def begin(expired: frozenset[str]) -> _Taking:
            whole, at = demand, None
            if demand.request is not None and not aggregate:
                whole, at = self._with_kept(name, demand)

            def orders(demands: Mapping[str, Demand]) -> Iterator[ConsumerOrder]:
                for one in demands.values():
                    yield ConsumerOrder.adjust(
                        name,
                        one.uses,
                        aggregate=aggregate,
                        generation=at if read_at is None else read_at,
                        request=None if aggregate else _stored(one.request, overrides),
                        overrides_disabled=overrides,
                    )

            return _Taking(
                doing,
                "adjust",
                name,
                _InTurn(name, iter([whole])),
                orders,
                reads=read_at is None,
                expired=expired,
                limits=within,
                overrides=overrides,
            )

        return _in_order(self._take_or_release(begin, release_expired, name), [name])[0]

    def attribute(
        self,
        host: str,
        consumer: str,
        what: Mapping[str, Any] | Sequence[Allocation] | None,
        said: _Described,
        operation: str | None,
    ) -> Claim:
        name, source = names.consumer_name(consumer), unattributed(names.provider_name(host))
        subject = subject_of([name, source])
        doing, done = self._store.begin(operation, "attribute", subject)
        if done is not None:
            return next(claim_of(one) for one in done.claims if one.consumer == name)

        def begin() -> _Taking:
            (kept,) = self._store.held_by(source)
            demand, at = Demand(kept.uses), None
            if what is not None:
                demand = demand_of(what, self._store.uuids, "attribute")
                if demand.request is not None:
                    demand, at = self._with_kept(name, demand)

            def orders(demands: Mapping[str, Demand]) -> Iterator[ConsumerOrder]:
                for one in demands.values():
                    request, uses = _stored(one.request), _with_units_of(kept, one.uses)
                    yield ConsumerOrder.adjust(
                        name, uses, generation=at, request=request, adopts=True, **said
                    )
                    given = tuple(dataclasses.replace(use, amount=-use.amount) for use in uses)
                    yield ConsumerOrder.adjust(
                        source, given, generation=kept.generation, aggregate=True
                    )

            selection = _InTurn(name, iter([demand]))
            return _Taking(
                doing,
                "attribute",
                subject,
                selection,
                orders,
                leaving=(source,),
                reads=True,
                overrides=True,  # it is in use already
            )

        return claim_of(self._take(begin)[0])

    def replace(
        self,
        consumer: str,
        found: Claimable,
        said: _Described,
        read_at: int | None,
        unchanged: IfGeneration,
        release_expired: bool,
        overrides: bool,
        operation: str | None,
        limits: Totals = UNLIMITED,
        wait: datetime.timedelta | None = None,
    ) -> Claim:
        if wait is not None:
            once = functools.partial(
                self._replace,
                *(consumer, said, read_at, unchanged, release_expired, overrides, operation),
                limits,
            )
            return self._queued(
                "replace", consumer, found, wait, overrides, operation, limits, once
            )
        return self._replace(
            consumer, said, read_at, unchanged, release_expired, overrides, operation, limits, found
        )

    def _replace(
        self,
        consumer: str,
        said: _Described,
        read_at: int | None,
        unchanged: IfGeneration,
        release_expired: bool,
        overrides: bool,
        operation: str | None,
        limits: Totals,
        found: Claimable,
    ) -> Claim:
        if overrides is not False:
            self._check_override(overrides)
        name, read_at = names.consumer_name(consumer), any_generation(read_at)
        doing, done = self._store.begin(operation, "replace", name)
        if done is not None:
            return self._repeated(doing, done, {name: found}, overrides)[0]
        demanded, within = self._demanded(unchanged), self._within(limits, found)

        def orders(demands: Mapping[str, Demand]) -> Iterator[ConsumerOrder]:
            for one in demands.values():
                request = _stored(one.request, overrides)
                yield ConsumerOrder.replace(
                    name,
                    one.uses,
                    request=request,
                    generation=read_at,
                    overrides_disabled=overrides,
                    **said,
                )

        def begin(expired: frozenset[str]) -> _Taking:
            return _Taking(
                doing,
                "replace",
                name,
                self._in_turn(name, found, within, expired, kept=name),
                orders,
                leaving=(name,),
                unchanged=demanded,
                lost_by=_lost_by(unchanged),
                expired=expired,
                limits=within,
                overrides=overrides,
            )

        return _in_order(self._take_or_release(begin, release_expired, name), [name])[0]

    def move(
        self,
        consumer: str,
        found: Claimable,
        leaving: str | None,
        leaving_type: str | None,
        leaving_id: str | None,
        read_at: int | None,
        unchanged: IfGeneration,
        release_expired: bool,
        overrides: bool,
        operation: str | None,
        limits: Totals = UNLIMITED,
    ) -> Claim:
        if overrides is not False:
            self._check_override(overrides)
        name, read_at = names.consumer_name(consumer), any_generation(read_at)
        other = None if leaving is None else names.consumer_name(leaving)
        other_type = described(None, None, leaving_type)["consumer_type"]
        other_id = _claim_id(leaving_id)
        both = [name] if other is None else [name, other]
        subject = subject_of(both)
        doing, done = self._store.begin(operation, "move", subject)
        if done is not None:
            return _in_order(done.claims, [name])[0]
        demanded, within = self._demanded(unchanged), self._within(limits, found)

        def begin(expired: frozenset[str]) -> _Taking:
            (kept,) = self._store.held_by(name)

            def orders(demands: Mapping[str, Demand]) -> Iterator[ConsumerOrder]:
                for one in demands.values():
                    request = _stored(one.request, overrides)
                    yield ConsumerOrder.replace(
                        name,
                        one.uses,
                        request=request,
                        generation=kept.generation if read_at is None else read_at,
                        overrides_disabled=overrides,
                    )
                if other is not None:
                    yield ConsumerOrder.claim(
                        other,
                        **kept.left_by(one.uses, self._pools_of(kept, one.uses)),
                        project=kept.project,
                        user=kept.user,
                        consumer_type=other_type or kept.consumer_type,
                        uuid=other_id,
                        overrides_disabled=overrides,  # within a host both grow what is used
                    )

            return _Taking(
                doing,
                "move",
                subject,
                self._in_turn(name, found, within, expired, None if other is None else name),
                orders,
                leaving=(name,) if other is None else (),
                unchanged=demanded,
                lost_by=_lost_by(unchanged),
                reads=read_at is None,
                expired=expired,
                limits=within,
                overrides=overrides,
            )

        return _in_order(self._take_or_release(begin, release_expired, *both), [name])[0]

    def swap(self, consumer: str, other: str, operation: str | None) -> tuple[Claim, ...]:
        pair = [names.consumer_name(consumer), names.consumer_name(other)]
        if pair[0] == pair[1]:
            raise exceptions.DuplicateKey("swap", pair[0], "two consumers")
        subject = subject_of(pair)
        doing, done = self._store.begin(operation, "swap", subject)
        if done is not None:
            return _in_order(done.claims, pair)

        def begin() -> _Taking:
            one, two = self._store.held_by(*pair)
            orders = [_gets(one, two), _gets(two, one)]
            return _Taking(doing, "swap", subject, _NOTHING, lambda _: orders, reads=True)

        return tuple(map(claim_of, self._take(begin)))

    def confirm(
        self, consumer: str, claim: str | None, generation: int | None, operation: str | None
    ) -> Claim:
        name, read_at = names.consumer_name(consumer), any_generation(generation)
        order = ConsumerOrder.renew(
            name, state=CONFIRMED, uuid=_claim_id(claim), generation=read_at
        )
        doing = self._store.operation(operation)
        return claim_of(self._store.commit(doing, "confirm", name, [order])[0])

    def renew(
        self,
        consumer: str,
        until: Expiry,
        claim: str | None,
        operation: str | None,
    ) -> Claim:
        name, meant = names.consumer_name(consumer), _claim_id(claim)
        if not until:
            raise exceptions.InvalidField("renew", None, "expires_in or expires_at")
        doing, done = self._store.begin(operation, "renew", name)
        if done is not None and done.claim is not None:
            return claim_of(done.claim)

        def begin() -> _Taking:
            (kept,) = self._store.held_by(name)
            order = ConsumerOrder.renew(
                name, state=kept.state, uuid=meant, generation=kept.generation, **until
            )
            return _Taking(doing, "renew", name, _NOTHING, lambda _: [order], reads=True)

        return claim_of(self._take(begin)[0])

    def release(self, consumers: Sequence[str], operation: str | None) -> tuple[Claim, ...]:
        wanted = [names.consumer_name(consumer) for consumer in consumers]
        if not wanted:
            raise exceptions.InvalidName("release", consumers, "a consumer, at least one")
        doing = self._store.operation(operation)
        orders = [ConsumerOrder.release(name) for name in wanted]
        try:
            records = self._store.commit(doing, "release", subject_of(wanted), orders)
        except exceptions.ConsumerNotFound as error:
            kept = self._store.backend.held_by(wanted)
            others = [name for name in wanted if name not in kept and name != error.subject]
            if not others:
                raise
            told = f"neither does {' nor '.join(others)}"
            raise exceptions.ConsumerNotFound(error.subject, told) from error
        return tuple(map(written_claim_of, records))

    def expired(
        self,
        now: datetime.datetime | None,
        limit: int | None,
        after: str | None,
        reasons: Iterable[exceptions.Reason] | None = None,
    ) -> Iterator[Claim]:
        last = None if after is None else names.consumer_name(after)
        over, most = self._over_at(now), any_limit(limit)
        if reasons is None:
            pages = self._store.consumers(over, most, last)
            return (claim_of(record) for records in pages for record in records)
        given = list(reasons) if isinstance(reasons, Iterable) else [reasons]
        if not all(isinstance(reason, exceptions.Reason) for reason in given):
            raise exceptions.InvalidField("reasons", reasons, "the reasons of a refusal")
        can_expire = Ability.EXPIRY not in self._store.backend.lacks
        holders = self._holders(given, over) if can_expire else set()
        pages = self._store.consumers(over, None, last) if holders else iter(())
        every = (record for records in pages for record in records if record.consumer in holders)
        return map(claim_of, itertools.islice(every, most))

    def release_expired(
        self, now: datetime.datetime | None, limit: int | None
    ) -> tuple[Claim, ...]:
        released: list[Claim] = []
        pages = self._store.consumers(self._over_at(now), any_limit(limit))
        try:
            for records in pages:
                released += map(written_claim_of, self._released(records))
        except exceptions.ResourceObjectsError:
            if not released:
                raise
        return tuple(released)

    def _over_at(self, now: datetime.datetime | None) -> ConsumerFilter:
        return ConsumerFilter(expires_before=self._store.now_or(now))

    def _released(self, records: tuple[ConsumerRecord, ...]) -> tuple[ConsumerRecord, ...]:
        """Release those of some consumers that are as they were read."""
        left = {record.consumer: _release(record) for record in records}
        while left:
            doing = self._store.operation(None)
            try:
                return self._store.commit(doing, "release", subject_of(left), left.values())
            except (exceptions.StaleConsumer, exceptions.ConsumerNotFound) as changed:
                if left.pop(changed.subject, None) is None:
                    raise
        return ()

    def _check_override(self, overrides: bool) -> None:
        """Refuse to override what is out of service without saying who does."""
        if type(overrides) is not bool:
            raise exceptions.InvalidField("ignore_maintenance", overrides, "True or False")
        if overrides and self._store.actor is None:
            expected = "False, or a ledger opened with an actor: it is recorded who overrides"
            raise exceptions.InvalidField("ignore_maintenance", overrides, expected)

    # --- how all of them take ---

    def _queued(
        self,
        kind: str,
        consumer: str,
        found: Claimable,
        wait: datetime.timedelta,
        overrides: bool,
        operation: str | None,
        limits: Totals,
        once: Callable[[Claimable], Claim],
    ) -> Claim:
        """Take in turn with those who wait for the same, unless the operation was done before."""
        name = names.consumer_name(consumer)
        doing, done = self._store.begin(operation, kind, name)
        if done is not None:
            return self._repeated(doing, done, {name: found}, overrides)[0]
        leaving = name if kind == "replace" else None
        return self._queue.take(name, found, wait, once, leaving, self._within(limits))

    def _repeated(
        self, doing: Operation, done: Outcome, found: Mapping[str, Claimable], overrides: bool
    ) -> tuple[Claim, ...]:
        """Return the claims that an operation made earlier, in the order of those asked for.

        An operation keeps no request; its consumer does, until somebody else writes that. So it is
        compared what was asked, as long as the consumer is as the operation left it. Where it went
        is not: a repetition searches again, and finds another host.

        :raises OperationConflict: if it asked for something else
        """
        kept = self._store.backend.held_by(found)
        for record in done.claims:
            now = kept.get(record.consumer)
            if now is None or now.generation != record.generation:
                continue
            if not _is_asked(now, found[now.consumer], overrides):
                claim = claim_of(now)
                was = f"{done.kind} of {claim.consumer}, {claim.request or claim.amounts}"
                raise exceptions.OperationConflict(doing.id, was)
        return _in_order(done.claims, found)

    def _take_or_release(
        self, begin: Callable[[frozenset[str]], _Taking], release_expired: bool, *own: str
    ) -> tuple[ConsumerRecord, ...]:
        """Take; if there is no room, and that is wanted, where only expired claims are in the way.

        A write that releases is refused with what is left of an amount beside what it gives back;
        so where both ways are refused at places that were named, the first refusal is told.

        :param begin: of the consumers whose claims may be released
        :param own: the consumers that the orders are of, who are never released
        """
        try:
            return self._take(lambda: begin(frozenset()))
        except exceptions.CapacityException as refusal:
            first = refusal
            if not release_expired:
                raise
            expired = frozenset(one.consumer for one in self.expired(None, None, None)) - set(own)
            if not expired:
                raise
        try:
            return self._take(lambda: begin(expired))
        except exceptions.NoCandidates:
            raise
        except exceptions.CapacityException as refusal:
            if isinstance(first, exceptions.NoCandidates):
                raise
            raise first from refusal

    def _take(self, begin: Callable[[], _Taking]) -> tuple[ConsumerRecord, ...]:
        """Take, and log a refusal: whoever catches it may not say it.

        :param begin: reads the consumers, if they have to be read
        """
        try:
            return self._try(begin)
        except exceptions.CapacityException as refusal:
            LOG.info("refused: %s", refusal)
            raise

    def _try(self, begin: Callable[[], _Taking]) -> tuple[ConsumerRecord, ...]:
        """Place and write, until something is taken or no step is left; see :data:`_STEPS`.

        :param begin: reads the consumers, if they have to be read
        :returns: the records that were written, or that the same operation wrote before
        """
        taking = begin()
        attempt = _Attempt(taking, taking.selection.first())
        while True:
            taking, demands = attempt.taking, attempt.demands
            columns, is_written = None, False
            try:
                for demand in demands.values():
                    taking.unchanged(demand)  # raises, before anything is read
                leaving = taking.leaving
                if attempt.released:
                    leaving += tuple(one.consumer for one in attempt.released)
                columns = self._assigner.read(demands.values(), taking.selection.places, leaving)
                if attempt.lost is not None and _is_as(columns, attempt.before):
                    raise attempt.lost  # nobody was faster: it is about something else
                placed = self._assigner.assign(
                    demands, columns, leaving, taking.limits, taking.overrides
                )
                write = taking.write(placed, attempt.released)
                is_written = True
                return self._store.backend.commit(write)
            except tuple(_STEPS) as refusal:
                if not is_written and refusal is not attempt.lost:
                    done = self._done_before(taking, refusal)
                    if done is not None:
                        return done
                following = self._following(attempt, begin, refusal, columns, is_written)
                if following is None:
                    raise
                LOG.debug("%s of %s, tried again after: %s", taking.kind, taking.subject, refusal)
                attempt = following

    def _following(
        self,
        attempt: _Attempt,
        begin: Callable[[], _Taking],
        refusal: exceptions.ResourceObjectsError,
        columns: Columns | None,
        is_written: bool,
    ) -> _Attempt | None:
        """Return what is tried after a refusal, None if no step is open.

        :param columns: on which the demands were placed, if they had to be
        :param is_written: whether the write was refused, not the placing
        """
        retries, taking = self._store.retries, attempt.taking
        if taking.expired:
            following = self._releasing(attempt, refusal)
            if following is not None:
                return following
        steps = next(some for kind, some in _STEPS.items() if isinstance(refusal, kind))
        for step in reversed(steps) if taking.selection.learns else steps:
            if step is _Step.READ_AGAIN and taking.reads and attempt.rereads < retries.definitions:
                taking = begin()
                return _Attempt(taking, taking.selection.first(), rereads=attempt.rereads + 1)
            if step is _Step.NEXT and _is_lost(attempt, refusal):
                others = taking.selection.next(refusal, columns)
                if others is not None:
                    return _Attempt(taking, others, rereads=attempt.rereads)
            if step is _Step.PLACE_AGAIN and is_written and columns is not None:
                tried = attempt.tried + 1
                if tried <= retries.assignments and _may_go_elsewhere(attempt, refusal):
                    retries.pause(tried)
                    return dataclasses.replace(attempt, tried=tried, before=columns, lost=refusal)
        return None

    def _releasing(
        self, attempt: _Attempt, refusal: exceptions.ResourceObjectsError
    ) -> _Attempt | None:
        """Return the same demands with the release of expired claims that were in their way.

        None if there are none. If one of those was written meanwhile, who is in the way is asked
        again: it may have been renewed.
        """
        if isinstance(refusal, exceptions.CapacityException):
            released = (*attempt.released, *self._in_the_way(attempt, refusal))
            rereads = attempt.rereads
            if len(released) == len(attempt.released):
                return None
        else:
            changed = getattr(refusal, "subject", None)
            released, rereads = (), attempt.rereads + 1
            if rereads > self._store.retries.definitions or all(
                one.consumer != changed for one in attempt.released
            ):
                return None
        return dataclasses.replace(
            attempt, released=released, rereads=rereads, before=None, lost=None
        )

    def _in_the_way(
        self, attempt: _Attempt, refusal: exceptions.CapacityException
    ) -> tuple[ConsumerRecord, ...]:
        """Return those of a refusal's holders whose claims have expired and may be released."""
        backend = self._store.backend
        now = backend.now()
        holders = self._holders(refusal.reasons, ConsumerFilter(expires_before=now))
        holders &= attempt.taking.expired - {one.consumer for one in attempt.released}
        kept = backend.held_by(sorted(holders))
        return tuple(one for one in kept.values() if one.expires_at and one.expires_at < now)

    def _holders(self, reasons: Iterable[exceptions.Reason], over: ConsumerFilter) -> set[str]:
        """Return the consumers of a refusal.

        Where a reason names only the largest, those of its tree whose claims have expired are
        included.

        :param over: the consumers whose claims have expired
        """
        holders: set[str] = set()
        for reason in reasons:
            holders.update(name for name, _ in reason.holders)
            if len(reason.holders) >= MOST_HOLDERS:
                there = dataclasses.replace(over, tree=reason.where)
                holders |= {one.consumer for page in self._store.consumers(there) for one in page}
        return holders

    def _pools_of(self, kept: ConsumerRecord, uses: Iterable[Use]) -> frozenset[str]:
        """Return the uuids of the pools that a moving consumer uses before and after the move.

        Cost: a statement if it uses some provider before and after.
        """
        backend, before = self._store.backend, {use.key for use in kept.uses}
        both = frozenset(use.provider_uuid for use in uses if use.key in before)
        if not both or Ability.REQUESTS in backend.lacks:
            return frozenset()
        pools = ProviderFilter(uuids=both, required=frozenset({SHARES}))
        return frozenset(one.uuid for one in backend.list_providers(pools, len(both)))

    def _picture(
        self,
        expired: frozenset[str],
        at: str | None,
        *,
        moving: str | None = None,
        kept: str | None = None,
    ) -> Snapshot:
        """Return a snapshot without what expired, for a consumer that moves or is kept in place."""
        if kept is not None:
            return snapshot_in_place(self._store.backend, kept, at, expired)
        if expired or moving is not None:
            return snapshot_without(self._store.backend, at, expired, moving)
        return self._snapshots.snapshot(at)

    def _in_turn(
        self,
        consumer: str,
        found: Claimable,
        within: Totals,
        expired: frozenset[str] = frozenset(),
        moving: str | None = None,
        kept: str | None = None,
    ) -> _InTurn:
        """Return the demands of what was found; a search is done again after the last one.

        :param within: limits under which it is done again
        :param expired: consumers whom a search is to take for gone; it is then done before the
            first demand, too
        :param moving: a consumer whose allocations of pools do not count in a search, since a move
            counts them once; it is then done again if nothing was found
        :param kept: a consumer that is changed in place: it keeps the devices and CPUs that it can
        """
        picture = functools.partial(self._picture, expired, moving=moving, kept=kept)

        def demands() -> Iterator[Demand]:
            latest = found
            is_without = isinstance(latest, Candidates) and moving is not None and not latest
            if (expired or is_without) and isinstance(latest, Candidates):
                options = latest.options.within(within)
                latest = picture(latest.at).searched(latest.request, options)
            retries, read = self._store.retries, None
            afresh = retries.search_attempts()
            while True:
                if isinstance(latest, Candidates) and not latest:
                    what = f"no candidate for {consumer}"
                    raise exceptions.NoCandidates(what, latest.explain())
                if isinstance(latest, Candidates) and kept is not None:
                    for one in self._kept_in_place(kept, latest, expired):
                        yield from demands_of(one, self._store.uuids, "claim")
                yield from demands_of(latest, self._store.uuids, "claim")
                if not isinstance(latest, Candidates) or next(afresh, None) is None:
                    return
                snapshot = picture(latest.at)
                if snapshot.cursor is not None and snapshot.cursor == read:
                    return  # nobody was faster: it is about something else
                read = snapshot.cursor
                again = latest.options.again(int(retries.uniform(0, 2**32)))
                latest = snapshot.searched(latest.request, again.within(within))

        return _InTurn(consumer, demands())

    def _kept_in_place(
        self, consumer: str, found: Candidates, expired: frozenset[str]
    ) -> Iterator[Chosen]:
        """Yield a candidate with what the consumer uses of its host; see ``kept_in_place``."""
        record = self._store.backend.held(consumer)
        if record is None:
            return

        def without(host: str) -> Scenario[Any]:
            return self._picture(expired, found.at or host, kept=consumer).fork()

        def staying(host: str, amounts: Mapping[str, Amount]) -> Mapping[str, Amount]:
            return self._assigner.retained(consumer, self._store.uuids([host])[host], amounts)

        yield from kept_in_place(found, record.held, without, staying)

    def _done_before(
        self, taking: _Taking, refusal: exceptions.ResourceObjectsError
    ) -> tuple[ConsumerRecord, ...] | None:
        """Return what an operation did, if it is a repetition, although it would not fit now.

        What a backend refuses it looks at in the same way.

        :raises ConsumerExists: if a consumer that must hold nothing holds something
        """
        if not isinstance(refusal, exceptions.CapacityException):
            return None
        done = self._store.backend.outcome(taking.operation)
        if done is not None:
            done.require(taking.operation.id, taking.kind, taking.subject)
            return done.claims
        kept = self._store.backend.held_by(taking.new)
        for name in taking.new:
            if name in kept:
                raise exceptions.ConsumerExists(name) from refusal
        return None

    def _demanded(self, unchanged: IfGeneration) -> Callable[[Demand], _Pairs]:
        """Return a function: which definitions a demand must find unchanged, as the caller said."""
        if unchanged is False:
            return lambda demand: ()
        if unchanged is True:
            return _found_at
        if not isinstance(unchanged, Mapping):
            raise exceptions.InvalidField("if_generation", unchanged, _UNCHANGED)
        generations = {
            names.provider_key(name): generation(number, "if_generation")
            for name, number in unchanged.items()
        }
        uuids = self._store.uuids(generations)
        pairs = tuple((uuids[key], number) for key, number in generations.items())
        return lambda demand: pairs

    def _within(self, limits: Totals, *found: Claimable) -> Totals:
        """Return the limits of a write: those given, and those that candidates were found under.

        Cost: a statement if they name providers, none for uuids or if there are no limits.
        """
        within = of_uuids(limits, self._store.uuids) if limits else UNLIMITED
        for one in found:
            if isinstance(one, Candidates) and one.options.limits:
                within = tighter(within, one.options.limits)
        return within

    def _known(self, consumer: str, demand: Demand, demanded: Callable[[Demand], _Pairs]) -> Demand:
        """Return the demand of a consumer that holds nothing yet, checked before one is chosen."""
        demanded(demand)
        return self._assigner.with_units(demand, consumer)

    def _resolving(self, found: Iterable[Claimable]) -> Resolve:
        """Return a function that gives uuids, read at once for all providers that are named."""
        named = dict.fromkeys(key for one in found for key in providers_in(one))
        missing = [key for key in named if not names.is_uuid(key)]
        known = self._store.backend.uuids(missing) if missing else {}

        def resolve(keys: Collection[str]) -> dict[str, str]:
            uuids = {key: known[key] for key in keys if key in known}
            return uuids | self._store.uuids([key for key in keys if key not in known])

        return resolve

    def _with_kept(self, consumer: str, demand: Demand) -> tuple[Demand, int | None]:
        """Return a demand with what its consumer keeps, and the generation that was read.

        :raises InvalidAmount: if it holds something already of which it can have one
        """
        kept = self._store.backend.held(consumer)
        if kept is None:
            return demand, None
        keeps = self._assigner.assigned_amounts(kept)
        goes = {one.resource_class for one in demand.located if one.amount.is_negative}
        holds = {name for amounts in keeps.values() for name in amounts.names()}
        for one in demand.located:
            if one.resource_class in holds - goes:
                raise exceptions.InvalidAmount(
                    f"adjust: {one.resource_class}",
                    one.amount,
                    f"none: {consumer} holds one already, which replace() exchanges",
                )
        assert demand.request is not None, "it asks something"
        before = None if kept.request is None else kept.request.request
        request = merged_request(before, demand.request, goes)
        return dataclasses.replace(demand, keeps=keeps, request=request), kept.generation


def _lost_by(unchanged: IfGeneration) -> _Errors:
    """Return the errors after which another demand is tried.

    Definitions that are demanded by generation are the same ones for every demand.
    """
    lost = exceptions.CapacityException, exceptions.ProviderNotFound
    return lost if isinstance(unchanged, Mapping) else (*lost, exceptions.StaleDefinition)


def _is_as(columns: Columns | None, before: Columns | None) -> bool:
    """Return whether what is read is what was read before, as far as both tell it."""
    if columns is None or before is None or None not in (columns.cursor, before.cursor):
        return columns == before
    either = (
        dataclasses.replace(one, allocations=AllocationColumns()) for one in (columns, before)
    )
    return next(either) == next(either)


def _is_lost(attempt: _Attempt, refusal: exceptions.ResourceObjectsError) -> bool:
    """Return whether a refusal is about these demands, so that others are worth trying."""
    if isinstance(refusal, attempt.taking.lost_by):
        return True
    return isinstance(refusal, exceptions.StaleDefinition) and any(
        demand.requires(refusal.subject) for demand in attempt.demands.values()
    )


def _may_go_elsewhere(attempt: _Attempt, refusal: exceptions.ResourceObjectsError) -> bool:
    """Return whether the same demands are worth trying on the present state."""
    return isinstance(refusal, _STALE) or any(one.is_open for one in attempt.demands.values())


def _found_at(demand: Demand) -> _Pairs:
    if not demand.definitions or demand.host is None:  # no search found it
        raise exceptions.InvalidField("if_generation", True, _UNCHANGED)
    return demand.definitions


def _claim_orders(
    until: Expiry, said: _Described, overrides: bool, demands: Mapping[str, Demand]
) -> Iterator[ConsumerOrder]:
    for name, demand in demands.items():
        yield ConsumerOrder.claim(
            name,
            demand.uses,
            request=_stored(demand.request, overrides),
            overrides_disabled=overrides,
            **until,
            **said,
        )


def _in_order(
    records: Iterable[ConsumerRecord],
    consumers: Iterable[str],
    claim: Callable[[ConsumerRecord], Claim] = claim_of,
) -> tuple[Claim, ...]:
    """Return claims in the order of their consumers."""
    by_name = {record.consumer: record for record in records}
    return tuple(claim(by_name[name]) for name in consumers)


def _release(kept: ConsumerRecord) -> ConsumerOrder:
    return ConsumerOrder.release(kept.consumer, kept.generation)


def _stored(request: Request | None, overrides: bool = False) -> StoredRequest | None:
    """Return a request as it is kept: not that it was asked of what is out of service."""
    if request is None:
        return None
    if overrides:
        groups = (one.replace(required=one.required - {TRAIT}) for one in request.groups)
        required = request.root_required - {TRAIT}
        request = request.replace(groups=tuple(groups), root_required=required)
    return StoredRequest(request)


def _is_asked(kept: ConsumerRecord, found: Claimable, overrides: bool) -> bool:
    """Return whether what a consumer holds may be what was asked for.

    Of a search its request says so; else the counts do, by class. Located amounts take counts of
    classes that are not asked for, so these are not compared.
    """
    if isinstance(found, Candidates):
        asked = _stored(found.request, overrides)
        return None in (kept.request, asked) or kept.request == asked
    if isinstance(found, list | tuple) and not found:  # nothing is left of what was found once
        return True
    counts = _counted(kept.held)
    ways = demands_of(found, lambda some: {name: name for name in some}, "claim")
    return any(one.located or _counted(one.uses) == counts for one in ways)


def _counted(uses: Iterable[Use]) -> Counter[str]:
    found: Counter[str] = Counter()
    for use in uses:
        found[use.resource_class] += use.amount
    return found


def _gets(one: ConsumerRecord, other: ConsumerRecord) -> ConsumerOrder:
    """Return an order that gives a consumer what another one has, in exchange for its own.

    What a moving consumer holds of pools for both stays counted once.
    """
    shared = () if one.request is None else one.request.shared
    pools = {use.provider_uuid for use in shared}
    said = other.left_by(one.uses, pools)
    return ConsumerOrder.replace(one.consumer, generation=one.generation, **said)


def _with_units_of(kept: ConsumerRecord, uses: Iterable[Use]) -> tuple[Use, ...]:
    """Return uses with the units that a consumer has, where it gives back all it holds."""
    held = {one.key: one for one in kept.held}
    return tuple(
        dataclasses.replace(use, units=held[use.key].units)
        if not use.units and use.key in held and held[use.key].amount == use.amount
        else use
        for use in uses
    )


def _claim_id(claim: str | None) -> str | None:
    return None if claim is None else names.uuid_text(claim)


def described(
    project: str | None, user: str | None, consumer_type: str | None, group: str | None = None
) -> _Described:
    """Return what an order says of a consumer, checked."""
    return {
        "project": None if project is None else names.label(project, "project"),
        "user": None if user is None else names.label(user, "user"),
        "consumer_type": (
            None if consumer_type is None else names.label(consumer_type, "consumer type")
        ),
        "group": None if group is None else names.label(group, "server group"),
    }


# --- which demands are tried ----------------------------------------------------------------------


class _InTurn:
    """The demands of one consumer, one after the other."""

    learns = False
    places: Collection[str] = ()

    def __init__(self, consumer: str, demands: Iterator[Demand]) -> None:
        self._consumer = consumer
        self._demands = demands

    def first(self) -> Mapping[str, Demand]:
        return {self._consumer: next(self._demands)}

    def next(
        self, lost: exceptions.ResourceObjectsError, columns: Columns | None
    ) -> Mapping[str, Demand] | None:
        demand = next(self._demands, None)
        return None if demand is None else {self._consumer: demand}


class _Nothing:
    """No demand: the orders only exchange what is held already."""

    learns = False
    places: Collection[str] = ()

    def first(self) -> Mapping[str, Demand]:
        return {}

    def next(
        self, lost: exceptions.ResourceObjectsError, columns: Columns | None
    ) -> Mapping[str, Demand] | None:
        return None


_NOTHING = _Nothing()
