"""Claims: allocate resources for consumers, and change, move and release allocations.

Every method that allocates makes a :class:`ClaimPlan`: the choices of demands that the write may
allocate, as a generator, and the orders that a choice becomes. One loop, :meth:`Claims._commit`,
assigns a choice on rows that were just read, writes it, and after a refusal assigns it again, goes
on to the next choice, or reads the consumers again.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects._fast import set_directly
from resource_objects.ledger.assign import Assigner
from resource_objects.ledger.context import Store, claim_of, written_claim_of
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
from resource_objects.ledger.gang_claim import Choices, gang_choices
from resource_objects.ledger.queue import Queue
from resource_objects.providers import Allocation, Claim
from resource_objects.providers.allocation import CONFIRMED
from resource_objects.providers.arguments import (
    Expiry,
    any_generation,
    expiry,
    generation,
    of_uuids,
    tighter,
)
from resource_objects.providers.arguments import limits as checked_limits
from resource_objects.providers.capabilities import Capability
from resource_objects.providers.columns import AllocationColumns, Columns
from resource_objects.providers.disabled import TRAIT
from resource_objects.providers.holders import unattributed
from resource_objects.providers.listing import ProviderFilter
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

#: Logs what a caller may not report: refusals (INFO), and lost races with a retry (DEBUG).
LOG = logging.getLogger("resource_objects.ledger")

#: Which definitions must be unchanged: those at which the candidates were found (True), or those
#: of ``{provider: generation}``.
IfGeneration: TypeAlias = bool | Mapping[str, int]

#: Definitions as ``(provider's uuid, generation)``.
_Definitions: TypeAlias = tuple[tuple[str, int], ...]

#: Refusals after which another assignment or another candidate may be possible.
_REFUSALS = (exceptions.CapacityException, "StaleDefinition", "ProviderNotFound")

_IF_GENERATION = "True for candidates of a snapshot, or {provider: generation}"


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class ClaimOptions:
    """The options of a method that allocates, as :func:`claim_options` checks them.

    :meth:`Ledger.claim <resource_objects.ledger.Ledger.claim>` documents each.
    """

    project: str | None = None
    user: str | None = None
    consumer_type: str | None = None
    group: str | None = None
    expires_at: datetime.datetime | None = None
    expires_in: datetime.timedelta | None = None
    if_generation: IfGeneration = False
    generation: int | None = None
    limits: Totals = UNLIMITED  #: by name or uuid of the provider
    ignore_maintenance: bool = False
    wait: datetime.timedelta | None = None
    operation: str | None = None

    def order_fields(self, demand: Demand) -> dict[str, Any]:
        """Return the fields of an order that a demand and the options determine."""
        return {
            "request": _stored(demand.request, self.ignore_maintenance),
            "overrides_disabled": self.ignore_maintenance,
        }

    @property
    def consumer_fields(self) -> dict[str, str | None]:
        """The fields of an order that describe its consumer; None keeps the stored value."""
        return {
            "project": self.project,
            "user": self.user,
            "consumer_type": self.consumer_type,
            "group": self.group,
        }


def claim_options(
    *,
    project: str | None = None,
    user: str | None = None,
    consumer_type: str | None = None,
    group: str | None = None,
    expires_in: object = None,
    expires_at: object = None,
    if_generation: IfGeneration = False,
    generation: int | None = None,
    limits: object = None,
    ignore_maintenance: bool = False,
    wait: datetime.timedelta | None = None,
    operation: str | None = None,
) -> ClaimOptions:
    """Return the checked options of a method that allocates.

    :raises InvalidInput: for an option that is invalid independently of the ledger
    """
    until = expiry(expires_in, expires_at)
    return ClaimOptions(
        None if project is None else names.label(project, "project"),
        None if user is None else names.label(user, "user"),
        None if consumer_type is None else names.label(consumer_type, "consumer type"),
        None if group is None else names.label(group, "server group"),
        until.get("expires_at"),
        until.get("expires_in"),
        if_generation,
        any_generation(generation),
        checked_limits(limits),
        ignore_maintenance,
        wait,
        operation,
    )


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class ClaimPlan:
    """A write that allocates: the choices of demands, and the orders that a choice becomes.

    ``choices`` yields demands by consumer; after a refusal it is sent the refusal and yields the
    next choice. If it ``learns``, it is asked before the same demands are assigned again. ``new``
    are consumers that must have no allocations, ``releasing`` those that release their allocations
    in the same write. ``definitions`` returns the definitions that a demand requires on behalf of
    the caller; if the caller named them, no other choice meets them either. ``reads`` reports that
    the consumers were read for the plan, so that it is made again when one of them was changed.
    """

    operation: Operation
    kind: str
    subject: str
    choices: Choices
    orders: Callable[[Mapping[str, Demand]], Iterable[ConsumerOrder]]
    options: ClaimOptions
    limits: Totals = UNLIMITED
    new: tuple[str, ...] = ()
    releasing: tuple[str, ...] = ()
    definitions: Callable[[Demand], _Definitions] = lambda demand: ()
    reads: bool = False
    learns: bool = False

    def write(self, demands: Mapping[str, Demand]) -> Write:
        """Return the write of demands whose placed amounts are assigned."""
        unchanged: _Definitions = ()
        for demand in demands.values():
            unchanged += self.definitions(demand) + demand.required
        return Write(
            self.operation,
            self.kind,
            self.subject,
            orders=tuple(self.orders(demands)),
            unchanged=tuple(dict.fromkeys(unchanged)) if unchanged else (),
            limits=self.limits,
        )

    def next_choice(
        self, demands: Mapping[str, Demand], refusal: exceptions.ResourceObjectsError
    ) -> Mapping[str, Demand] | None:
        """Return the choice after the refusal of another one, None if there is none."""
        if isinstance(refusal, exceptions.Stale) and isinstance(
            self.options.if_generation, Mapping
        ):
            provider = refusal.name
            if not any(demand.requires(provider) for demand in demands.values()):
                return None
        try:
            return self.choices.send(refusal)
        except StopIteration:
            return None


class Claims:
    """The claims of a ledger; :class:`~resource_objects.ledger.Ledger` documents the methods."""

    def __init__(
        self, store: Store, assigner: Assigner, snapshots: Snapshots, queue: Queue
    ) -> None:
        self._store = store
        self._assigner = assigner
        self._snapshots = snapshots
        self._queue = queue

    # --- allocating ---

    def claim(self, consumer: str, candidates: Claimable, options: ClaimOptions) -> Claim:
        if options.wait is not None:
            return self._queued("claim", consumer, candidates, options, self.claim)
        name = names.consumer_name(consumer)

        def choices(limits: Totals, _: Callable[[Demand], _Definitions]) -> Choices:
            return self._candidates_in_order(name, candidates, limits)

        return self._claim({name: candidates}, options, choices)[0]

    def claim_all(
        self, candidates: Mapping[str, Claimable], options: ClaimOptions
    ) -> tuple[Claim, ...]:
        if not isinstance(candidates, Mapping) or not candidates:
            raise exceptions.InvalidInput(
                "amount", "claim_all", candidates, "{consumer: candidates}"
            )
        requested = {names.consumer_name(name): claimable for name, claimable in candidates.items()}

        def choices(limits: Totals, definitions: Callable[[Demand], _Definitions]) -> Choices:
            resolve = self._resolver(requested.values())
            demands: dict[str, list[Demand]] = {}
            for name, claimable in requested.items():
                demands[name] = []
                for demand in demands_of(claimable, resolve, "claim"):
                    definitions(demand)
                    demands[name].append(self._assigner.with_units(demand, name))
                if not demands[name]:
                    raise exceptions.NoCandidates(f"no candidate for {name}")
            return gang_choices(demands, self._store.backend, limits)

        return self._claim(requested, options, choices, is_gang=True)

    def _claim(
        self,
        requested: Mapping[str, Claimable],
        options: ClaimOptions,
        choices: Callable[[Totals, Callable[[Demand], _Definitions]], Choices],
        is_gang: bool = False,
    ) -> tuple[Claim, ...]:
        self._check_override(options)
        subject = subject_of(requested)
        operation, outcome = self._store.begin(options.operation, "claim", subject)
        if outcome is not None:
            return self._repeated(operation, outcome, requested, options)
        definitions = self._definitions(options.if_generation)
        within = self._limits(options, *requested.values())

        def orders(demands: Mapping[str, Demand]) -> Iterator[ConsumerOrder]:
            for name, demand in demands.items():
                yield ConsumerOrder.claim(
                    name,
                    demand.uses,
                    **options.order_fields(demand),
                    expires_at=options.expires_at,
                    expires_in=options.expires_in,
                    **options.consumer_fields,
                )

        plan = ClaimPlan(
            operation,
            "claim",
            subject,
            choices(within, definitions),
            orders,
            options,
            within,
            new=tuple(requested),
            definitions=definitions,
            learns=is_gang,
        )
        return _in_order(self._commit(lambda: plan), requested, written_claim_of)

    def adjust(
        self,
        consumer: str,
        changes: Mapping[str, Any] | Sequence[Allocation],
        aggregate: bool,
        options: ClaimOptions,
    ) -> Claim:
        name = names.consumer_name(consumer)
        self._check_override(options)
        operation, outcome = self._store.begin(options.operation, "adjust", name)
        if outcome is not None:
            return _in_order(outcome.claims, [name])[0]
        within = self._limits(options)
        demand = demand_of(
            changes, self._store.uuids, "adjust", give_back=True, aggregate=aggregate
        )

        def plan() -> ClaimPlan:
            combined, read_at = demand, None
            if demand.request is not None and not aggregate:
                combined, read_at = self._with_retained(name, demand)

            def orders(demands: Mapping[str, Demand]) -> Iterator[ConsumerOrder]:
                yield ConsumerOrder.adjust(
                    name,
                    demands[name].uses,
                    aggregate=aggregate,
                    generation=read_at if options.generation is None else options.generation,
                    request=(
                        None
                        if aggregate
                        else _stored(demands[name].request, options.ignore_maintenance)
                    ),
                    overrides_disabled=options.ignore_maintenance,
                )

            return ClaimPlan(
                operation,
                "adjust",
                name,
                _only({name: combined}),
                orders,
                options,
                within,
                reads=options.generation is None,
            )

        return _in_order(self._commit(plan), [name])[0]

    def attribute(
        self,
        host: str,
        consumer: str,
        what: Mapping[str, Any] | Sequence[Allocation] | None,
        options: ClaimOptions,
    ) -> Claim:
        name, source = names.consumer_name(consumer), unattributed(names.provider_name(host))
        subject = subject_of([name, source])
        operation, outcome = self._store.begin(options.operation, "attribute", subject)
        if outcome is not None:
            return next(claim_of(record) for record in outcome.claims if record.consumer == name)

        def plan() -> ClaimPlan:
            (record,) = self._store.held_by(source)
            demand, read_at = Demand(record.uses), None
            if what is not None:
                demand = demand_of(what, self._store.uuids, "attribute")
                if demand.request is not None:
                    demand, read_at = self._with_retained(name, demand)

            def orders(demands: Mapping[str, Demand]) -> Iterator[ConsumerOrder]:
                uses = _with_units_of(record, demands[name].uses)
                yield ConsumerOrder.adjust(
                    name,
                    uses,
                    generation=read_at,
                    request=_stored(demands[name].request),
                    adopts=True,
                    **options.consumer_fields,
                )
                released = tuple(dataclasses.replace(use, amount=-use.amount) for use in uses)
                yield ConsumerOrder.adjust(
                    source, released, generation=record.generation, aggregate=True
                )

            return ClaimPlan(
                operation,
                "attribute",
                subject,
                _only({name: demand}),
                orders,
                dataclasses.replace(options, ignore_maintenance=True),  # it is in use already
                releasing=(source,),
                reads=True,
            )

        return claim_of(self._commit(plan)[0])

    def replace(self, consumer: str, candidates: Claimable, options: ClaimOptions) -> Claim:
        if options.wait is not None:
            return self._queued("replace", consumer, candidates, options, self.replace)
        self._check_override(options)
        name = names.consumer_name(consumer)
        operation, outcome = self._store.begin(options.operation, "replace", name)
        if outcome is not None:
            return self._repeated(operation, outcome, {name: candidates}, options)[0]
        plan = self._replacement(name, candidates, options, operation)
        return _in_order(self._commit(lambda: plan), [name])[0]

    def planned_replacement(
        self, consumer: str, candidates: Claimable, options: ClaimOptions
    ) -> Write:
        """Return the write of :meth:`replace` without committing it.

        Placed amounts and units are assigned on rows that are read now. The caller commits the
        write by ``ledger.backend.commit``, individually or as part of a larger write. If the commit
        is refused because another process was faster, the caller plans again.

        :raises ResourceObjectsError: as :meth:`replace`, except for refusals of the commit
        """
        name = names.consumer_name(consumer)
        self._check_override(options)
        operation = self._store.operation(options.operation)
        plan = self._replacement(name, candidates, options, operation)
        demands = next(plan.choices)
        return plan.write(self._assigned(plan, demands, self._read(plan, demands)))

    def _replacement(
        self, name: str, candidates: Claimable, options: ClaimOptions, operation: Operation
    ) -> ClaimPlan:
        definitions = self._definitions(options.if_generation)
        within = self._limits(options, candidates)

        def orders(demands: Mapping[str, Demand]) -> Iterator[ConsumerOrder]:
            yield ConsumerOrder.replace(
                name,
                demands[name].uses,
                generation=options.generation,
                **options.order_fields(demands[name]),
                **options.consumer_fields,
            )

        return ClaimPlan(
            operation,
            "replace",
            name,
            self._candidates_in_order(name, candidates, within, is_in_place=True),
            orders,
            options,
            within,
            releasing=(name,),
            definitions=definitions,
        )

    def move(
        self,
        consumer: str,
        candidates: Claimable,
        source_consumer: str | None,
        source_consumer_type: str | None,
        source_consumer_id: str | None,
        options: ClaimOptions,
    ) -> Claim:
        self._check_override(options)
        name = names.consumer_name(consumer)
        source = None if source_consumer is None else names.consumer_name(source_consumer)
        source_type = claim_options(consumer_type=source_consumer_type).consumer_type
        source_id = _claim_id(source_consumer_id)
        subject = subject_of([name] if source is None else [name, source])
        operation, outcome = self._store.begin(options.operation, "move", subject)
        if outcome is not None:
            return _in_order(outcome.claims, [name])[0]
        definitions = self._definitions(options.if_generation)
        within = self._limits(options, candidates)

        def plan() -> ClaimPlan:
            (record,) = self._store.held_by(name)

            def orders(demands: Mapping[str, Demand]) -> Iterator[ConsumerOrder]:
                uses = demands[name].uses
                yield ConsumerOrder.replace(
                    name,
                    uses,
                    generation=(
                        record.generation if options.generation is None else options.generation
                    ),
                    **options.order_fields(demands[name]),
                )
                if source is not None:
                    yield ConsumerOrder.claim(
                        source,
                        **record.left_by(uses, self._pools_of(record, uses)),
                        project=record.project,
                        user=record.user,
                        consumer_type=source_type or record.consumer_type,
                        uuid=source_id,
                        # within a host the usage of both increases
                        overrides_disabled=options.ignore_maintenance,
                    )

            return ClaimPlan(
                operation,
                "move",
                subject,
                self._candidates_in_order(
                    name, candidates, within, shares_pools=source is not None
                ),
                orders,
                options,
                within,
                releasing=(name,) if source is None else (),
                definitions=definitions,
                reads=options.generation is None,
            )

        return _in_order(self._commit(plan), [name])[0]

    def swap(self, consumer: str, other: str, operation_id: str | None) -> tuple[Claim, ...]:
        pair = [names.consumer_name(consumer), names.consumer_name(other)]
        if pair[0] == pair[1]:
            raise exceptions.InvalidInput("repetition", "swap", pair[0], "two consumers")
        subject = subject_of(pair)
        operation, outcome = self._store.begin(operation_id, "swap", subject)
        if outcome is not None:
            return _in_order(outcome.claims, pair)

        def orders() -> Iterator[ConsumerOrder]:
            first, second = self._store.held_by(*pair)
            yield _exchange_order(first, second)
            yield _exchange_order(second, first)

        return tuple(map(claim_of, self._commit_orders(operation, "swap", subject, orders)))

    def confirm(
        self, consumer: str, claim: str | None, generation: int | None, operation: str | None
    ) -> Claim:
        name, read_at = names.consumer_name(consumer), any_generation(generation)
        order = ConsumerOrder.renew(
            name, state=CONFIRMED, uuid=_claim_id(claim), generation=read_at
        )
        records = self._store.commit(self._store.operation(operation), "confirm", name, [order])
        return claim_of(records[0])

    def renew(
        self, consumer: str, until: Expiry, claim: str | None, operation_id: str | None
    ) -> Claim:
        name, claim_id = names.consumer_name(consumer), _claim_id(claim)
        if not until:
            raise exceptions.InvalidInput("field", "renew", None, "expires_in or expires_at")
        operation, outcome = self._store.begin(operation_id, "renew", name)
        if outcome is not None and outcome.claim is not None:
            return claim_of(outcome.claim)

        def orders() -> Iterator[ConsumerOrder]:
            (record,) = self._store.held_by(name)
            yield ConsumerOrder.renew(
                name, state=record.state, uuid=claim_id, generation=record.generation, **until
            )

        return claim_of(self._commit_orders(operation, "renew", name, orders)[0])

    def release(self, consumers: Sequence[str], operation: str | None) -> tuple[Claim, ...]:
        requested = [names.consumer_name(consumer) for consumer in consumers]
        if not requested:
            raise exceptions.InvalidInput("name", "release", consumers, "a consumer, at least one")
        orders = [ConsumerOrder.release(name) for name in requested]
        try:
            records = self._store.commit(
                self._store.operation(operation), "release", subject_of(requested), orders
            )
        except exceptions.NotFound as error:
            if not error.is_about("consumer"):
                raise
            stored = self._store.backend.held_by(requested)
            missing = [name for name in requested if name not in stored and name != error.name]
            if not missing:
                raise
            detail = f"neither does {' nor '.join(missing)}"
            raise exceptions.NotFound("consumer", error.name, detail) from error
        return tuple(map(written_claim_of, records))

    # --- the loop ---

    def _commit(self, make_plan: Callable[[], ClaimPlan]) -> tuple[ConsumerRecord, ...]:
        """Assign and write a choice of a plan; after lost races, again or the next choice.

        :param make_plan: called again if a consumer was changed since it was read for the plan
        :returns: the records that were written, or that the same operation wrote before
        """
        try:
            for repetition in itertools.count():
                plan = make_plan()
                try:
                    return self._commit_plan(plan)
                except exceptions.Stale as stale:
                    if not stale.is_about("consumer"):
                        raise
                    if not plan.reads or repetition >= self._store.retries.definitions:
                        raise
                    LOG.debug("%s of %s: read again after: %s", plan.kind, plan.subject, stale)
        except exceptions.CapacityException as refusal:
            LOG.info("refused: %s", refusal)
            raise
        raise AssertionError("the loop has no other end")

    def _commit_plan(self, plan: ClaimPlan) -> tuple[ConsumerRecord, ...]:
        retries = self._store.retries
        demands = next(plan.choices)
        attempts, columns_before = 0, None
        lost: exceptions.ResourceObjectsError | None = None
        while True:
            columns, is_assigned = None, False
            try:
                columns = self._read(plan, demands)
                if lost is not None and _is_unchanged(columns, columns_before):
                    raise lost  # no other process was faster: the refusal has another cause
                write = plan.write(self._assigned(plan, demands, columns))
                is_assigned = True
                return self._store.backend.commit(write)
            except exceptions.ResourceObjectsError as refusal:
                if not refusal.matches(*_REFUSALS):
                    raise
                if not is_assigned and refusal is not lost:
                    recorded = self._recorded(plan, refusal)
                    if recorded is not None:
                        return recorded
                may_assign_again = (
                    is_assigned
                    and columns is not None
                    and attempts < retries.assignments
                    and _depends_on_rows(demands, refusal)
                )
                choice = None
                if plan.learns or not may_assign_again:
                    choice = plan.next_choice(demands, refusal)
                if choice is not None:
                    demands, attempts, columns_before, lost = choice, 0, None, None
                elif may_assign_again:
                    attempts, columns_before, lost = attempts + 1, columns, refusal
                    retries.pause(attempts)
                else:
                    raise
                LOG.debug("%s of %s: tried again after: %s", plan.kind, plan.subject, refusal)

    def _read(self, plan: ClaimPlan, demands: Mapping[str, Demand]) -> Columns | None:
        for demand in demands.values():
            plan.definitions(demand)  # raises before anything is read
        return self._assigner.read(demands.values(), leaving=plan.releasing)

    def _assigned(
        self, plan: ClaimPlan, demands: Mapping[str, Demand], columns: Columns | None
    ) -> Mapping[str, Demand]:
        return self._assigner.assign(
            demands, columns, plan.releasing, plan.limits, plan.options.ignore_maintenance
        )

    def _commit_orders(
        self,
        operation: Operation,
        kind: str,
        subject: str,
        orders: Callable[[], Iterable[ConsumerOrder]],
    ) -> tuple[ConsumerRecord, ...]:
        """Write orders that are made of stored consumers; read these again if one was changed."""
        try:
            return self._store.retries.retry(
                lambda: self._store.commit(operation, kind, subject, orders()),
                "StaleConsumer",
            )
        except exceptions.CapacityException as refusal:
            LOG.info("refused: %s", refusal)
            raise

    def _queued(
        self,
        kind: str,
        consumer: str,
        candidates: Claimable,
        options: ClaimOptions,
        attempt: Callable[[str, Claimable, ClaimOptions], Claim],
    ) -> Claim:
        """Claim in the order of the queue, unless the operation was carried out before."""
        name = names.consumer_name(consumer)
        operation, outcome = self._store.begin(options.operation, kind, name)
        if outcome is not None:
            return self._repeated(operation, outcome, {name: candidates}, options)[0]
        at_once = dataclasses.replace(options, wait=None)
        assert options.wait is not None, "the caller waits"
        return self._queue.claim(
            name,
            candidates,
            options.wait,
            lambda latest: attempt(name, latest, at_once),
            is_replacement=kind == "replace",
            limits=self._limits(options),
        )

    def _repeated(
        self,
        operation: Operation,
        outcome: Outcome,
        candidates: Mapping[str, Claimable],
        options: ClaimOptions,
    ) -> tuple[Claim, ...]:
        """Return the claims that an operation made earlier, in the order of the candidates.

        An operation stores no request, but its consumer does until it is written again. So the
        requests are compared as long as the consumer is as the operation left it. The hosts are
        not compared: a repetition searches again and finds another host.

        :raises Conflict: if the operation was for another request
        """
        stored = self._store.backend.held_by(candidates)
        for record in outcome.claims:
            now = stored.get(record.consumer)
            if now is None or now.generation != record.generation:
                continue
            if not _may_be_for(now, candidates[now.consumer], options.ignore_maintenance):
                claim = claim_of(now)
                earlier = f"{outcome.kind} of {claim.consumer}, {claim.request or claim.amounts}"
                raise exceptions.Conflict("operation", operation.id, earlier)
        return _in_order(outcome.claims, candidates)

    def _recorded(
        self, plan: ClaimPlan, refusal: exceptions.ResourceObjectsError
    ) -> tuple[ConsumerRecord, ...] | None:
        """Return the recorded outcome of a repeated operation that does not fit any more.

        The backend looks up the outcome of a write that it refuses in the same way.

        :raises AlreadyExists: if a consumer that must hold nothing holds something
        """
        if not isinstance(refusal, exceptions.CapacityException):
            return None
        outcome = self._store.backend.outcome(plan.operation)
        if outcome is not None:
            outcome.require(plan.operation.id, plan.kind, plan.subject)
            return outcome.claims
        stored = self._store.backend.held_by(plan.new)
        for name in plan.new:
            if name in stored:
                raise exceptions.AlreadyExists("consumer", name) from refusal
        return None

    # --- choices ---

    def _candidates_in_order(
        self,
        consumer: str,
        candidates: Claimable,
        limits: Totals,
        *,
        is_in_place: bool = False,
        shares_pools: bool = False,
    ) -> Choices:
        """Yield the demands of candidates in their order, then those of further searches.

        :param limits: the limits of further searches
        :param is_in_place: the consumer is changed in place: it retains the devices and CPUs of
            its host that the new request allows
        :param shares_pools: the consumer moves and counts its allocations of pools once, so a
            search ignores these. If nothing was found before, it is searched again first
        """
        if not isinstance(candidates, Candidates):
            for demand in demands_of(candidates, self._store.uuids, "claim"):
                yield {consumer: demand}
            return

        kind = consumer if is_in_place else None, consumer if shares_pools else None
        if shares_pools and not candidates:
            options = candidates.options.within(limits)
            candidates = self._snapshot(candidates.at, *kind).searched(candidates.request, options)
        for latest in itertools.chain(
            [candidates], self._further_searches(candidates, limits, kind)
        ):
            if not latest:
                raise exceptions.NoCandidates(f"no candidate for {consumer}", latest.explain())
            retaining = self._retaining(consumer, latest) if is_in_place else ()
            for claimable in itertools.chain(retaining, [latest]):
                for demand in demands_of(claimable, self._store.uuids, "claim"):
                    yield {consumer: demand}

    def _further_searches(
        self, candidates: Candidates, limits: Totals, kind: tuple[str | None, str | None]
    ) -> Iterator[Candidates]:
        """Yield the candidates of the same search, repeated while other processes write."""
        retries, cursor = self._store.retries, None
        for _ in retries.search_attempts():
            latest = self._snapshot(candidates.at, *kind)
            if latest.cursor is not None and latest.cursor == cursor:
                return  # no other process was faster: the refusal has another cause
            cursor = latest.cursor
            again = candidates.options.again(int(retries.uniform(0, 2**32)))
            candidates = latest.searched(candidates.request, again.within(limits))
            yield candidates

    def _snapshot(self, at: str | None, in_place: str | None, moving: str | None) -> Snapshot:
        """Return a snapshot, for a consumer that is changed in place or that moves if named."""
        if in_place is not None:
            return snapshot_in_place(self._store.backend, in_place, at)
        if moving is not None:
            return snapshot_without(self._store.backend, at, (), moving)
        return self._snapshots.snapshot(at)

    def _retaining(self, consumer: str, candidates: Candidates) -> Iterator[Chosen]:
        """Yield candidates that retain what the consumer uses of its host."""
        record = self._store.backend.held(consumer)
        if record is None:
            return

        def without(host: str) -> Scenario[Any]:
            at = candidates.at or host
            return snapshot_in_place(self._store.backend, consumer, at).fork()

        def retained(host: str, amounts: Mapping[str, Amount]) -> Mapping[str, Amount]:
            return self._assigner.retained(consumer, self._store.uuids([host])[host], amounts)

        yield from kept_in_place(candidates, record.held, without, retained)

    # --- what a plan is made of ---

    def _check_override(self, options: ClaimOptions) -> None:
        """Refuse to ignore maintenance without an actor, who is recorded."""
        if type(options.ignore_maintenance) is not bool:
            raise exceptions.InvalidInput(
                "field", "ignore_maintenance", options.ignore_maintenance, "True or False"
            )
        if options.ignore_maintenance and self._store.actor is None:
            expected = "False, or a ledger opened with an actor: it is recorded who overrides"
            raise exceptions.InvalidInput("field", "ignore_maintenance", True, expected)

    def _definitions(self, if_generation: IfGeneration) -> Callable[[Demand], _Definitions]:
        """Return a function that returns the definitions that a demand requires."""
        if if_generation is False:
            return lambda demand: ()
        if if_generation is True:
            return _definitions_found_at
        if not isinstance(if_generation, Mapping):
            raise exceptions.InvalidInput("field", "if_generation", if_generation, _IF_GENERATION)
        generations = {
            names.provider_key(name): generation(number, "if_generation")
            for name, number in if_generation.items()
        }
        uuids = self._store.uuids(generations)
        pairs = tuple((uuids[key], number) for key, number in generations.items())
        return lambda demand: pairs

    def _limits(self, options: ClaimOptions, *candidates: Claimable) -> Totals:
        """Return the limits of the options and those under which candidates were found, by uuid.

        Cost: a statement if the options name providers; none for uuids or without limits.
        """
        limits = of_uuids(options.limits, self._store.uuids) if options.limits else UNLIMITED
        for claimable in candidates:
            if isinstance(claimable, Candidates) and claimable.options.limits:
                limits = tighter(limits, claimable.options.limits)
        return limits

    def _resolver(self, candidates: Iterable[Claimable]) -> Resolve:
        """Return a function from names to uuids, read at once for all providers in candidates."""
        named = dict.fromkeys(key for claimable in candidates for key in providers_in(claimable))
        missing = [key for key in named if not names.is_uuid(key)]
        uuids_by_name = self._store.backend.uuids(missing) if missing else {}

        def resolve(keys: Collection[str]) -> dict[str, str]:
            uuids = {key: uuids_by_name[key] for key in keys if key in uuids_by_name}
            return uuids | self._store.uuids([key for key in keys if key not in uuids_by_name])

        return resolve

    def _pools_of(self, record: ConsumerRecord, uses: Iterable[Use]) -> frozenset[str]:
        """Return the uuids of the pools that a moving consumer uses before and after the move.

        Cost: a statement if the consumer uses a provider before and after.
        """
        backend, before = self._store.backend, {use.key for use in record.uses}
        both = frozenset(use.provider_uuid for use in uses if use.key in before)
        if not both or Capability.REQUESTS in backend.unsupported:
            return frozenset()
        pools = ProviderFilter(uuids=both, required=frozenset({SHARES}))
        return frozenset(listed.uuid for listed in backend.list_providers(pools, len(both)))

    def _with_retained(self, consumer: str, demand: Demand) -> tuple[Demand, int | None]:
        """Return a demand with the retained amounts of its consumer, and the consumer's generation.

        :raises InvalidInput: if the consumer would hold two placed amounts of a class
        """
        record = self._store.backend.held(consumer)
        if record is None:
            return demand, None
        retained = self._assigner.assigned_amounts(record)
        released = {one.resource_class for one in demand.located if one.amount.is_negative}
        held_classes = {name for amounts in retained.values() for name in amounts.names()}
        for placed in demand.located:
            if placed.resource_class in held_classes - released:
                raise exceptions.InvalidInput(
                    "amount",
                    f"adjust: {placed.resource_class}",
                    placed.amount,
                    f"none: {consumer} holds one already, which replace() exchanges",
                )
        assert demand.request is not None, "a placed amount is requested"
        before = None if record.request is None else record.request.request
        request = merged_request(before, demand.request, released)
        return dataclasses.replace(demand, retained=retained, request=request), record.generation


def _only(demands: Mapping[str, Demand]) -> Choices:
    yield demands


def _is_unchanged(columns: Columns | None, before: Columns | None) -> bool:
    """Return whether columns are equal to earlier ones, as far as both have allocations."""
    if columns is None or before is None or None not in (columns.cursor, before.cursor):
        return columns == before
    nothing = AllocationColumns()
    return dataclasses.replace(columns, allocations=nothing) == dataclasses.replace(
        before, allocations=nothing
    )


def _depends_on_rows(
    demands: Mapping[str, Demand], refusal: exceptions.ResourceObjectsError
) -> bool:
    """Return whether the same demands may be assigned otherwise on the present rows."""
    return not isinstance(refusal, exceptions.CapacityException) or any(
        demand.is_open for demand in demands.values()
    )


def _definitions_found_at(demand: Demand) -> _Definitions:
    if not demand.definitions or demand.host is None:  # no search found it
        raise exceptions.InvalidInput("field", "if_generation", True, _IF_GENERATION)
    return demand.definitions


def _in_order(
    records: Iterable[ConsumerRecord],
    consumers: Iterable[str],
    claim: Callable[[ConsumerRecord], Claim] = claim_of,
) -> tuple[Claim, ...]:
    """Return claims in the order of their consumers."""
    by_name = {record.consumer: record for record in records}
    return tuple(claim(by_name[name]) for name in consumers)


def _stored(request: Request | None, ignores_maintenance: bool = False) -> StoredRequest | None:
    """Return a request as it is stored: without the trait of disabled providers."""
    if request is None:
        return None
    if ignores_maintenance:
        groups = (group.replace(required=group.required - {TRAIT}) for group in request.groups)
        required = request.root_required - {TRAIT}
        request = request.replace(groups=tuple(groups), root_required=required)
    return StoredRequest(request)


def _may_be_for(record: ConsumerRecord, candidates: Claimable, ignores_maintenance: bool) -> bool:
    """Return whether the allocations of a consumer may be for these candidates.

    The requests are compared if there is one, else the counts by class. A placed amount uses counts
    of classes that are not requested, so demands with one are not compared.
    """
    if isinstance(candidates, Candidates):
        request = _stored(candidates.request, ignores_maintenance)
        return None in (record.request, request) or record.request == request
    if isinstance(candidates, list | tuple) and not candidates:  # all of them are allocated by now
        return True
    counts = _counts(record.held)
    demands = demands_of(candidates, lambda keys: {key: key for key in keys}, "claim")
    return any(demand.located or _counts(demand.uses) == counts for demand in demands)


def _counts(uses: Iterable[Use]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for use in uses:
        counts[use.resource_class] += use.amount
    return counts


def _exchange_order(record: ConsumerRecord, other: ConsumerRecord) -> ConsumerOrder:
    """Return the order by which a consumer gets the allocations of another one for its own.

    The allocations of pools that a moving consumer holds for both stay counted once.
    """
    shared = () if record.request is None else record.request.shared
    pools = {use.provider_uuid for use in shared}
    return ConsumerOrder.replace(
        record.consumer, generation=record.generation, **other.left_by(record.uses, pools)
    )


def _with_units_of(record: ConsumerRecord, uses: Iterable[Use]) -> tuple[Use, ...]:
    """Return uses with the units of a consumer that releases all units of these."""
    stored = {use.key: use for use in record.held}
    return tuple(
        dataclasses.replace(use, units=stored[use.key].units)
        if not use.units and use.key in stored and stored[use.key].amount == use.amount
        else use
        for use in uses
    )


def _claim_id(claim: str | None) -> str | None:
    return None if claim is None else names.uuid_text(claim)
