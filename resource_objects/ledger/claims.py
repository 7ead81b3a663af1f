"""Claims: allocate resources for consumers, and change, move and release allocations.

Every method that allocates makes a :class:`ClaimPlan`: the choices of demands that the write may
allocate, as a generator, and the orders that a choice becomes. :meth:`Claims._write_choice` assigns
a choice on rows that were just read, writes it, and after a refusal assigns it again or goes on to
the next choice. :meth:`Claims._write_once` plans again if the consumers were changed in between.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects._dataclass import fast_init
from resource_objects.ledger.assign import Assigner
from resource_objects.ledger.context import LedgerContext, claim_of, written_claim_of
from resource_objects.ledger.demand import (
    Claimable,
    ClaimOptions,
    Demand,
    Demands,
    IfGeneration,
    RequiredDefinitions,
    demand_of,
    demands_of,
    merged_request,
    providers_in,
    providers_to_read,
    stored_request,
)
from resource_objects.ledger.feed import Snapshots, snapshot_in_place
from resource_objects.ledger.gang_claim import Choices, gang_choices
from resource_objects.ledger.queue import Queue
from resource_objects.providers import Allocation, Claim
from resource_objects.providers.allocation import CONFIRMED
from resource_objects.providers.arguments import (
    Expiry,
    any_generation,
    generation,
    of_uuids,
    tighter,
)
from resource_objects.providers.backend import Capability
from resource_objects.providers.columns import AllocationColumns, Columns
from resource_objects.providers.holders import unattributed
from resource_objects.providers.listing import ProviderFilter
from resource_objects.providers.orders import (
    UNLIMITED,
    ConsumerOrder,
    ConsumerRecord,
    Outcome,
    Use,
    UseLimits,
    Write,
    subject_of,
)
from resource_objects.providers.pools import SHARES
from resource_objects.resources import Amount
from resource_objects.search.candidate import Chosen
from resource_objects.search.candidates import Candidates

if TYPE_CHECKING:
    from resource_objects.search import Snapshot

#: Logs what a caller may not report: refusals (INFO), and lost races with a retry (DEBUG).
LOG = logging.getLogger("resource_objects.ledger")

#: Returns the plan of requested candidates, by consumer, and of options by the uuids of providers.
_MakePlan: TypeAlias = "Callable[[Mapping[str, Any], ClaimOptions], ClaimPlan]"

#: Returns a snapshot, confined to a provider if there is one.
_NewSnapshot: TypeAlias = "Callable[[str | None], Snapshot]"

#: Refusals after which another assignment or another candidate may be possible.
_REFUSALS = (exceptions.CapacityException, "StaleDefinition", "ProviderNotFound")

#: Methods whose repetition must have the same request.
_COMPARED = ("claim", "replace")

_IF_GENERATION = "True for candidates of a snapshot, or {provider: generation}"


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class ClaimPlan:
    """A write that allocates: the choices of demands, and the orders that a choice becomes.

    ``choices`` yields demands by consumer; after a refusal it is sent the refusal and yields the
    next choice. If it ``learns``, the next choice is tried before the same demands are assigned
    again. ``order`` returns the order of each consumer of a choice, by name and fields, ``further``
    the other orders of the write after these. ``new`` are consumers that must have no allocations,
    ``releasing`` those that release their allocations in the same write. ``adopts`` reports that
    the amounts are in use already, so that they may be those of disabled providers.
    """

    choices: Choices
    order: Callable[..., ConsumerOrder] = ConsumerOrder.claim
    further: Callable[[Sequence[ConsumerOrder]], Iterable[ConsumerOrder]] = lambda _: ()
    new: tuple[str, ...] = ()
    releasing: tuple[str, ...] = ()
    learns: bool = False
    adopts: bool = False

    def write(
        self, header: Write, demands: Demands, options: ClaimOptions, required: RequiredDefinitions
    ) -> Write:
        """Return the write of demands whose placed amounts are assigned.

        :param header: the write without its orders
        :param required: the definitions that the caller requires
        """
        orders: list[ConsumerOrder] = []
        for name, demand in demands.items():
            order = self.order(
                name,
                uses=demand.uses,
                request=stored_request(demand.request, options.ignore_maintenance),
                overrides_disabled=options.ignore_maintenance,
                **options.description,
            )
            orders.append(order)
            required += demand.required
        return Write(
            header.operation,
            header.kind,
            header.subject,
            orders=(*orders, *self.further(orders)),
            unchanged=tuple(dict.fromkeys(required)),
            limits=header.limits,
        )

    def next_choice(
        self, demands: Demands, refusal: exceptions.ResourceObjectsError, options: ClaimOptions
    ) -> Demands | None:
        """Return the choice after the refusal of another one, None if there is none.

        If a definition that the caller requires was changed, no other choice meets it either.
        """
        if (
            options.definitions
            and isinstance(refusal, exceptions.Stale)
            and not any(demand.requires(refusal.name) for demand in demands.values())
        ):
            return None
        try:
            return self.choices.send(refusal)
        except StopIteration:
            return None


class Claims:
    """The claims of a ledger; :class:`~resource_objects.ledger.Ledger` documents the methods."""

    def __init__(
        self, context: LedgerContext, assigner: Assigner, snapshots: Snapshots, queue: Queue
    ) -> None:
        self._context = context
        self._assigner = assigner
        self._snapshots = snapshots
        self._queue = queue

    # --- allocating ---

    def claim(self, consumer: str, candidates: Claimable, options: ClaimOptions) -> Claim:
        requested = {names.consumer_name(consumer): candidates}
        return self._write_once("claim", requested, options, self._single_claim)[0]

    def _single_claim(self, requested: Mapping[str, Claimable], options: ClaimOptions) -> ClaimPlan:
        ((name, candidates),) = requested.items()
        snapshot = self._snapshots.snapshot
        choices = self._candidates_in_order(name, candidates, options, snapshot)
        return ClaimPlan(choices, new=(name,))

    def claim_all(
        self, candidates: Mapping[str, Claimable], options: ClaimOptions
    ) -> tuple[Claim, ...]:
        if not isinstance(candidates, Mapping) or not candidates:
            raise exceptions.InvalidInput(
                "amount", "claim_all", candidates, "{consumer: candidates}"
            )
        requested = {names.consumer_name(name): claimable for name, claimable in candidates.items()}
        return self._write_once("claim", requested, options, self._gang_claim)

    def _gang_claim(self, requested: Mapping[str, Claimable], options: ClaimOptions) -> ClaimPlan:
        """Return the plan of several claims; the providers of all are read at once."""
        keys = dict.fromkeys(
            key for claimable in requested.values() for key in providers_in(claimable)
        )
        uuids = self._context.uuids(keys)

        def resolve(keys: Collection[str]) -> Mapping[str, str]:
            return {**self._context.uuids([key for key in keys if key not in uuids]), **uuids}

        demands: dict[str, list[Demand]] = {}
        for name, claimable in requested.items():
            demands[name] = []
            for demand in demands_of(claimable, resolve, "claim"):
                _required({name: demand}, options.definitions)
                demands[name].append(self._assigner.with_units(demand, name))
            if not demands[name]:
                raise exceptions.NoCandidates(f"no candidate for {name}")
        choices = gang_choices(demands, self._context.backend, options.limits)
        return ClaimPlan(choices, new=tuple(requested), learns=True)

    def adjust(
        self,
        consumer: str,
        changes: Mapping[str, Any] | Sequence[Allocation],
        aggregate: bool,
        options: ClaimOptions,
    ) -> Claim:
        name = names.consumer_name(consumer)

        def plan(_: object, options: ClaimOptions) -> ClaimPlan:
            demand = demand_of(
                changes, self._context.uuids, "adjust", give_back=True, aggregate=aggregate
            )
            read_at = options.generation
            if aggregate:
                demand = dataclasses.replace(demand, request=None)
            elif demand.request is not None:
                demand, stored_generation = self._with_retained(name, demand)
                read_at = stored_generation if read_at is None else read_at
            order = functools.partial(ConsumerOrder.adjust, aggregate=aggregate, generation=read_at)
            return ClaimPlan(_only({name: demand}), order)

        return self._write_once("adjust", {name: None}, options, plan)[0]

    def attribute(
        self,
        host: str,
        consumer: str,
        allocations: Mapping[str, Any] | Sequence[Allocation] | None,
        options: ClaimOptions,
    ) -> Claim:
        name, source = names.consumer_name(consumer), unattributed(names.provider_name(host))

        def plan(*_: object) -> ClaimPlan:
            (record,) = self._context.held_by(source)
            demand, read_at = Demand(record.uses), None
            if allocations is not None:
                demand = demand_of(allocations, self._context.uuids, "attribute")
                if demand.request is not None:
                    demand, read_at = self._with_retained(name, demand)

            def adopt(consumer: str, uses: Iterable[Use], **fields: Any) -> ConsumerOrder:
                fields |= {"generation": read_at, "adopts": True}
                return ConsumerOrder.adjust(consumer, _with_units_of(record, uses), **fields)

            def release(orders: Sequence[ConsumerOrder]) -> Iterator[ConsumerOrder]:
                uses = tuple(dataclasses.replace(u, amount=-u.amount) for u in orders[0].uses)
                yield ConsumerOrder.adjust(
                    source, uses, generation=record.generation, aggregate=True
                )

            return ClaimPlan(
                _only({name: demand}), adopt, release, releasing=(source,), adopts=True
            )

        return self._write_once("attribute", {name: None, source: None}, options, plan)[0]

    def replace(self, consumer: str, candidates: Claimable, options: ClaimOptions) -> Claim:
        requested = {names.consumer_name(consumer): candidates}
        return self._write_once("replace", requested, options, self._replacement)[0]

    def _replacement(self, requested: Mapping[str, Claimable], options: ClaimOptions) -> ClaimPlan:
        ((name, candidates),) = requested.items()
        snapshot = functools.partial(snapshot_in_place, self._context.backend, name)
        choices = self._candidates_in_order(name, candidates, options, snapshot, is_in_place=True)
        order = functools.partial(ConsumerOrder.replace, generation=options.generation)
        return ClaimPlan(choices, order, releasing=(name,))

    def move(
        self,
        consumer: str,
        candidates: Claimable,
        source_consumer: str | None,
        source_consumer_type: str | None,
        source_consumer_id: str | None,
        options: ClaimOptions,
    ) -> Claim:
        name = names.consumer_name(consumer)
        source = None if source_consumer is None else names.consumer_name(source_consumer)
        if source_consumer_type is not None:
            names.label(source_consumer_type, "consumer type")
        source_id = _claim_id(source_consumer_id)

        def plan(_: object, options: ClaimOptions) -> ClaimPlan:
            (record,) = self._context.held_by(name)
            read_at = record.generation if options.generation is None else options.generation
            snapshot, latest = self._snapshots.snapshot, candidates
            if source is not None:  # pools are counted once, so a search ignores these
                snapshot = functools.partial(
                    snapshot_in_place, self._context.backend, name, pools_only=True
                )
                if isinstance(candidates, Candidates) and not candidates:
                    within = candidates.options.within(options.limits)
                    latest = snapshot(candidates.at).searched(candidates.request, within)

            def leave(orders: Sequence[ConsumerOrder]) -> Iterator[ConsumerOrder]:
                if source is not None:
                    yield ConsumerOrder.claim(
                        source,
                        **self._left_by(record, orders[0].uses),
                        project=record.project,
                        user=record.user,
                        consumer_type=source_consumer_type or record.consumer_type,
                        uuid=source_id,
                        # within a host the usage of both increases
                        overrides_disabled=options.ignore_maintenance,
                    )

            return ClaimPlan(
                self._candidates_in_order(name, latest, options, snapshot),
                functools.partial(ConsumerOrder.replace, generation=read_at),
                leave,
                releasing=(name,) if source is None else (),
            )

        requested = {name: candidates} if source is None else {name: candidates, source: None}
        return self._write_once("move", requested, options, plan)[0]

    def swap(self, consumer: str, other: str, operation: str | None) -> tuple[Claim, ...]:
        pair = [names.consumer_name(consumer), names.consumer_name(other)]
        if pair[0] == pair[1]:
            raise exceptions.InvalidInput("repetition", "swap", pair[0], "two consumers")

        def plan(*_: object) -> ClaimPlan:
            first, second = self._context.held_by(*pair)
            orders = _exchange_order(first, second), _exchange_order(second, first)
            return ClaimPlan(_only({}), further=lambda _: orders)

        return self._write_once(
            "swap", dict.fromkeys(pair), ClaimOptions(operation=operation), plan
        )

    def confirm(
        self, consumer: str, claim: str | None, generation: int | None, operation: str | None
    ) -> Claim:
        name, read_at = names.consumer_name(consumer), any_generation(generation)
        order = ConsumerOrder.renew(
            name, state=CONFIRMED, uuid=_claim_id(claim), generation=read_at
        )
        (record,) = self._context.backend.commit(
            Write(self._context.operation(operation), "confirm", name, orders=(order,))
        )
        return claim_of(record)

    def renew(
        self, consumer: str, until: Expiry, claim: str | None, operation: str | None
    ) -> Claim:
        name, claim_id = names.consumer_name(consumer), _claim_id(claim)
        if not until:
            raise exceptions.InvalidInput("field", "renew", None, "expires_in or expires_at")

        def plan(*_: object) -> ClaimPlan:
            (record,) = self._context.held_by(name)
            order = ConsumerOrder.renew(
                name, state=record.state, uuid=claim_id, generation=record.generation, **until
            )
            return ClaimPlan(_only({}), further=lambda _: (order,))

        return self._write_once("renew", {name: None}, ClaimOptions(operation=operation), plan)[0]

    def release(self, consumers: Sequence[str], operation: str | None) -> tuple[Claim, ...]:
        requested = [names.consumer_name(consumer) for consumer in consumers]
        if not requested:
            raise exceptions.InvalidInput("name", "release", consumers, "a consumer, at least one")
        write = Write(
            self._context.operation(operation),
            "release",
            subject_of(requested),
            orders=tuple(ConsumerOrder.release(name) for name in requested),
        )
        try:
            records = self._context.backend.commit(write)
        except exceptions.NotFound as error:
            if not error.is_about("consumer"):
                raise
            stored = self._context.backend.held_by(requested)
            missing = [name for name in requested if name not in stored and name != error.name]
            if not missing:
                raise
            detail = f"neither does {' nor '.join(missing)}"
            raise exceptions.NotFound("consumer", error.name, detail) from error
        return tuple(map(written_claim_of, records))

    # --- the loop ---

    def _write_once(
        self, kind: str, requested: Mapping[str, Any], options: ClaimOptions, make_plan: _MakePlan
    ) -> tuple[Claim, ...]:
        """Return the claims of consumers after a write, or after its operation if it is repeated.

        :param requested: by consumer, the candidates, or None
        :param make_plan: called again if a consumer was changed since it was read for the plan
        """
        if options.ignore_maintenance and self._context.actor is None:
            expected = "False, or a ledger opened with an actor, which is recorded"
            raise exceptions.InvalidInput("field", "ignore_maintenance", True, expected)
        recorded = self._context.recorded(options.operation, kind, subject_of(requested))
        if recorded is not None:
            if kind in _COMPARED:
                self._check_repetition(recorded, requested, options)
            return _in_order(recorded.claims, requested, claim_of)

        def attempt(latest: Mapping[str, Any]) -> tuple[Claim, ...]:
            at = self._resolved(options, latest)
            operation = self._context.operation(options.operation)
            header = Write(operation, kind, subject_of(latest), limits=at.limits)
            try:
                records = self._context.retries.retry(
                    lambda: self._write_choice(header, at, make_plan(latest, at)),
                    "StaleConsumer",
                    tries=None if options.generation is None else 0,
                )
            except exceptions.CapacityException as refusal:
                LOG.info("refused: %s", refusal)
                raise
            return _in_order(records, latest, written_claim_of)

        if options.wait is None:
            return attempt(requested)
        ((name, candidates),) = requested.items()
        claim = self._queue.claim(
            name,
            candidates,
            options.wait,
            lambda latest: attempt({name: latest})[0],
            is_replacement=kind == "replace",
            limits=self._limits(options),
        )
        return (claim,)

    def _check_repetition(
        self, outcome: Outcome, requested: Mapping[str, Any], options: ClaimOptions
    ) -> None:
        """Raise if an operation was for another request.

        An operation stores no request, but its consumer does until it is written again. So the
        requests are compared as long as the consumer is as the operation left it. The hosts are
        not compared: a repetition searches again and finds another host.

        :raises Conflict: if it was for another request
        """
        stored = self._context.backend.held_by(requested)
        for record in outcome.claims:
            now = stored.get(record.consumer)
            if now is None or now.generation != record.generation:
                continue
            if not _may_be_for(now, requested[now.consumer], options.ignore_maintenance):
                claim = claim_of(now)
                earlier = f"{outcome.kind} of {claim.consumer}, {claim.request or claim.amounts}"
                id = self._context.operation(options.operation).id
                raise exceptions.Conflict("operation", id, earlier)

    def _write_choice(
        self, header: Write, options: ClaimOptions, plan: ClaimPlan
    ) -> tuple[ConsumerRecord, ...]:
        """Assign and write a choice of a plan; after lost races, again or the next choice.

        :returns: the records that were written, or that the same operation wrote before
        """
        retries, overrides = self._context.retries, options.ignore_maintenance or plan.adopts
        demands = next(plan.choices)
        attempts, columns_before = 0, None
        lost: exceptions.ResourceObjectsError | None = None
        while True:
            columns, write = None, None
            try:
                required = _required(demands, options.definitions)  # raises before anything is read
                keys = providers_to_read(demands.values())
                columns = self._assigner.read(keys, plan.releasing) if keys else None
                if lost is not None and _is_unchanged(columns, columns_before):
                    raise lost  # no other process was faster: the refusal has another cause
                assigned = demands
                if columns is not None:
                    assigned = self._assigner.assign(
                        demands, columns, plan.releasing, header.limits, overrides
                    )
                write = plan.write(header, assigned, options, required)
                return self._context.backend.commit(write)
            except exceptions.ResourceObjectsError as refusal:
                if not refusal.matches(*_REFUSALS):
                    raise
                if write is None and refusal is not lost:
                    recorded = self._recorded(header, plan.new, refusal)
                    if recorded is not None:
                        return recorded
                may_assign_again = (
                    write is not None
                    and columns is not None
                    and attempts < retries.assignments
                    # the same demands may be assigned otherwise on the present rows
                    and (
                        any(demand.is_open for demand in demands.values())
                        or not isinstance(refusal, exceptions.CapacityException)
                    )
                )
                tries_next = plan.learns or not may_assign_again
                choice = plan.next_choice(demands, refusal, options) if tries_next else None
                if choice is not None:
                    demands, attempts, columns_before, lost = choice, 0, None, None
                elif may_assign_again:
                    attempts, columns_before, lost = attempts + 1, columns, refusal
                    retries.pause(attempts)
                else:
                    raise
                LOG.debug("%s of %s: tried again after: %s", header.kind, header.subject, refusal)

    def _recorded(
        self, header: Write, new: Collection[str], refusal: exceptions.ResourceObjectsError
    ) -> tuple[ConsumerRecord, ...] | None:
        """Return the recorded outcome of a repeated operation that does not fit any more.

        The backend looks up the outcome of a write that it refuses in the same way.

        :param new: the consumers that must have no allocations
        :raises AlreadyExists: if one of these has allocations
        """
        if not isinstance(refusal, exceptions.CapacityException):
            return None
        recorded = self._context.recorded(header.operation.id, header.kind, header.subject)
        if recorded is not None:
            return recorded.claims
        stored = self._context.backend.held_by(new)
        for name in new:
            if name in stored:
                raise exceptions.AlreadyExists("consumer", name) from refusal
        return None

    # --- choices ---

    def _candidates_in_order(
        self,
        consumer: str,
        candidates: Claimable,
        options: ClaimOptions,
        snapshot: _NewSnapshot,
        is_in_place: bool = False,
    ) -> Choices:
        """Yield the demands of candidates in their order, then those of further searches.

        :param snapshot: returns the snapshot of a further search, confined to a provider if any
        :param is_in_place: the consumer is changed in place: it retains the devices and CPUs of
            its host that the new request allows
        """
        if not isinstance(candidates, Candidates):
            for demand in demands_of(candidates, self._context.uuids, "claim"):
                yield {consumer: demand}
            return
        further = self._further_searches(candidates, options.limits, snapshot)
        for latest in itertools.chain([candidates], further):
            if not latest:
                raise exceptions.NoCandidates(f"no candidate for {consumer}", latest.explain())
            retaining = self._retaining(consumer, latest) if is_in_place else ()
            for claimable in itertools.chain(retaining, [latest]):
                for demand in demands_of(claimable, self._context.uuids, "claim"):
                    yield {consumer: demand}

    def _further_searches(
        self, candidates: Candidates, limits: UseLimits, snapshot: _NewSnapshot
    ) -> Iterator[Candidates]:
        """Yield the candidates of the same search, repeated while other processes write."""
        retries, cursor = self._context.retries, None
        for _ in retries.search_attempts():
            latest = snapshot(candidates.at)
            if latest.cursor is not None and latest.cursor == cursor:
                return  # no other process was faster: the refusal has another cause
            cursor = latest.cursor
            again = candidates.options.again(int(retries.uniform(0, 2**32)))
            candidates = latest.searched(candidates.request, again.within(limits))
            yield candidates

    def _retaining(self, consumer: str, candidates: Candidates) -> Iterator[Chosen]:
        """Yield candidates that retain what the consumer uses of its host."""
        from resource_objects.search.scenario import kept_in_place  # it loads NumPy

        record = self._context.backend.consumer(consumer)
        if record is None:
            return

        def without(host: str) -> Snapshot:
            return snapshot_in_place(self._context.backend, consumer, candidates.at or host)

        def retained(host: str, amounts: Mapping[str, Amount]) -> Mapping[str, Amount]:
            return self._assigner.retained(consumer, self._context.uuids([host])[host], amounts)

        yield from kept_in_place(candidates, record.held, without, retained)

    # --- what a plan is made of ---

    def _resolved(self, options: ClaimOptions, requested: Mapping[str, Any]) -> ClaimOptions:
        """Return options with the limits and the required definitions by uuids of providers."""
        limits = self._limits(options, *requested.values())
        definitions = self._definitions(options.if_generation)
        if not limits and definitions == ():
            return options
        return dataclasses.replace(options, limits=limits, definitions=definitions)

    def _definitions(self, if_generation: IfGeneration) -> RequiredDefinitions | None:
        """Return the definitions that a caller requires; None: those found by the search."""
        if type(if_generation) is bool:
            return None if if_generation else ()
        if not isinstance(if_generation, Mapping):
            raise exceptions.InvalidInput("field", "if_generation", if_generation, _IF_GENERATION)
        generations = {
            names.provider_key(name): generation(number, "if_generation")
            for name, number in if_generation.items()
        }
        uuids = self._context.uuids(generations)
        return tuple((uuids[key], number) for key, number in generations.items())

    def _limits(self, options: ClaimOptions, *candidates: Claimable) -> UseLimits:
        """Return the limits of the options and those under which candidates were found, by uuid.

        Cost: a statement if the options name providers; none for uuids or without limits.
        """
        limits = of_uuids(options.limits, self._context.uuids) if options.limits else UNLIMITED
        for claimable in candidates:
            if isinstance(claimable, Candidates) and claimable.options.limits:
                limits = tighter(limits, claimable.options.limits)
        return limits

    def _left_by(self, record: ConsumerRecord, uses: Iterable[Use]) -> dict[str, Any]:
        """Return ``record.left_by(uses)`` with the pools that a consumer uses before and after.

        Cost: a statement if the consumer uses a provider before and after.
        """
        backend, before = self._context.backend, {use.key for use in record.uses}
        both = frozenset(use.provider_uuid for use in uses if use.key in before)
        pools: set[str] = set()
        if both and Capability.REQUESTS not in backend.unsupported:
            shared = ProviderFilter(uuids=both, required=frozenset({SHARES}))
            pools = {listed.uuid for listed in backend.list_providers(shared, len(both))}
        return record.left_by(uses, pools)

    def _with_retained(self, consumer: str, demand: Demand) -> tuple[Demand, int | None]:
        """Return a demand with the retained amounts of its consumer, and the consumer's generation.

        :raises InvalidInput: if the consumer would hold two placed amounts of a class
        """
        record = self._context.backend.consumer(consumer)
        if record is None:
            return demand, None
        retained = self._assigner.assigned_amounts(record)
        released = {placed.resource_class for placed in demand.located if placed.amount.is_negative}
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


def _in_order(
    records: Iterable[ConsumerRecord],
    consumers: Iterable[str],
    claim: Callable[[ConsumerRecord], Claim],
) -> tuple[Claim, ...]:
    by_name = {record.consumer: record for record in records}
    return tuple([claim(by_name[name]) for name in consumers])


def _only(demands: Demands) -> Choices:
    yield demands


def _is_unchanged(columns: Columns | None, before: Columns | None) -> bool:
    """Return whether columns are equal to earlier ones, as far as both have allocations."""
    if columns is None or before is None or None not in (columns.cursor, before.cursor):
        return columns == before
    nothing = AllocationColumns()
    return dataclasses.replace(columns, allocations=nothing) == dataclasses.replace(
        before, allocations=nothing
    )


def _required(demands: Demands, definitions: RequiredDefinitions | None) -> RequiredDefinitions:
    """Return the definitions that a caller requires for demands; see :class:`ClaimOptions`."""
    if definitions is not None:
        return definitions
    required: RequiredDefinitions = ()
    for demand in demands.values():
        if not demand.definitions or demand.host is None:  # no search found it
            raise exceptions.InvalidInput("field", "if_generation", True, _IF_GENERATION)
        required += demand.definitions
    return required


def _may_be_for(record: ConsumerRecord, candidates: Claimable, ignores_maintenance: bool) -> bool:
    """Return whether the allocations of a consumer may be for these candidates.

    The requests are compared if there is one, else the counts by class. A placed amount uses counts
    of classes that are not requested, so demands with one are not compared.
    """
    if isinstance(candidates, Candidates):
        request = stored_request(candidates.request, ignores_maintenance)
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
