"""Orders of consumers as requests: ``PUT /allocations`` for one, ``POST`` for several.

The effects of orders are decided as in every backend
(:func:`~resource_objects.store.decide.decide`), but without a check of capacities and unit rules:
Placement checks those in its one transaction. If it refuses, the inventories are read, and the same
function finds the reasons, with the consumers of the inventories.

A request names the generation of each consumer, so it is carried out at most once. After a lost
answer the consumers are read. If their allocations and generations are those after the write, it
was carried out; if they are unchanged, it is sent again. The limits of the repetitions are those of
:class:`~resource_objects.backends.retries.RetryPolicy`.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from resource_objects import clock, exceptions
from resource_objects.backends.placement import codec, unsupported
from resource_objects.backends.placement.cache import ProviderCache
from resource_objects.backends.placement.client import CONSUMER_TYPES, Answer, Client
from resource_objects.backends.retries import Transient
from resource_objects.exceptions import CapacityException
from resource_objects.fields import FrozenDict
from resource_objects.providers.allocation import RELEASED
from resource_objects.providers.backend import Capability
from resource_objects.providers.definition import ProviderDefinition
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Expect, Use
from resource_objects.ratio import MILLION
from resource_objects.reasons import UNIT_RULES, Reason, Rule
from resource_objects.resources import resource
from resource_objects.resources.records import InventoryRecord
from resource_objects.store.decide import ConsumerEffect, Effects, decide, keys_of
from resource_objects.store.rows import InventoryRow, ProviderRow, Rows

_TYPE = re.compile("[A-Z0-9_]{1,255}")

#: The maximum number of consumers of which the time of creation is remembered.
_MAX_CREATED = 100_000

#: The figures of an inventory without limits, after its class.
_UNLIMITED_FIGURES = (2**62, 0, 1, None, 1, MILLION, 2**62)


@dataclasses.dataclass(frozen=True, slots=True)
class PendingWrite:
    """Orders with their effects, before they are sent.

    ``consumers`` are the records before the write, by name. ``bodies`` are the parts of the request
    by the uuid of the consumer, in microversion 1.``minor``. ``definitions`` are the providers that
    the same write defines, by uuid.
    """

    orders: tuple[ConsumerOrder, ...]
    consumers: Mapping[str, ConsumerRecord]
    effects: Effects
    bodies: Mapping[str, dict[str, Any]]
    minor: int
    definitions: Mapping[str, ProviderDefinition] = FrozenDict()

    @property
    def records(self) -> tuple[ConsumerRecord, ...]:
        """The consumers after the write."""
        return tuple(map(_after, self.effects.consumers))

    @property
    def providers(self) -> set[str]:
        """The uuids of the providers that the orders are about."""
        return {key[0] for key in keys_of(self.orders, self.consumers)}


class Allocations:
    """The consumers of a Placement: read and written."""

    def __init__(self, client: Client, cache: ProviderCache, consumers: codec.UuidNames) -> None:
        self.client = client
        self.cache = cache
        self.consumers = consumers
        #: (time of creation, generation after the last write) of consumers that this process
        #: created, by uuid
        self._created: OrderedDict[str, tuple[datetime.datetime, int]] = OrderedDict()
        self._lock = threading.Lock()

    # --- reading ---

    def consumer(self, consumer: str) -> ConsumerRecord | None:
        """Return a consumer, None if it has no allocations.

        Cost: one request, and one for each provider that is not cached.
        """
        uuid = self.consumers.uuid(consumer)
        path = f"/allocations/{uuid}"
        answer = self.client.read(path)
        record = self.client.parsed(
            path, answer, lambda body: self._record(uuid, consumer, body, answer.modified)
        )
        if record is None:
            with self._lock:
                self._created.pop(uuid, None)
        return record

    def _record(
        self, uuid: str, consumer: str, body: Any, modified: str | None
    ) -> ConsumerRecord | None:
        """Return a consumer, None if it has no allocations. Body and time are of an answer."""
        uses = [
            Use(provider, name, amount, (), self.cache.name_of(provider) or provider)
            for provider, allocation in body["allocations"].items()
            for name, amount in allocation["resources"].items()
        ]
        if not uses:
            return None
        generation = int(body["consumer_generation"])
        with self._lock:
            created_at, last = self._created.get(uuid, (codec.EPOCH, generation + 1))
        if last > generation:  # others created it: the time of its last write
            created_at = codec.time_from_header(modified, clock.now())
        consumer_type = body.get("consumer_type", codec.UNKNOWN_TYPE)
        return ConsumerRecord(
            uuid,
            consumer,
            created_at,
            codec.sorted_uses(uses),
            generation=generation,
            project=codec.from_placement(body["project_id"]),
            user=codec.from_placement(body["user_id"]),
            consumer_type=None if consumer_type == codec.UNKNOWN_TYPE else consumer_type,
            writes=generation,
        )

    def _remember(self, records: Iterable[ConsumerRecord]) -> None:
        with self._lock:
            for record in records:
                if record.state == RELEASED:
                    self._created.pop(record.uuid, None)
                elif record.generation == 1 or record.uuid in self._created:
                    self._created[record.uuid] = record.created_at, record.generation
            while len(self._created) > _MAX_CREATED:
                self._created.popitem(last=False)

    def held_by(self, consumers: Iterable[str]) -> dict[str, ConsumerRecord]:
        """Return those of some consumers that have allocations, by name. One request for each."""
        names = list(dict.fromkeys(consumers))
        records = zip(names, self.client.read_each(self.consumer, names), strict=True)
        return {name: record for name, record in records if record is not None}

    # --- writing ---

    def check(self, orders: Iterable[ConsumerOrder]) -> None:
        """Raise for attributes of consumers that Placement cannot store. No request.

        :raises NotSupported: for the id of a claim, or a type
        """
        has_types = self.client.minor >= CONSUMER_TYPES
        for order in orders:
            if order.uuid not in (None, self.consumers.uuid(order.consumer)):
                raise unsupported.refusal(Capability.CLAIM_IDS, order.consumer)
            name = order.consumer_type
            if name is not None and not (has_types and _TYPE.fullmatch(name)):
                raise unsupported.refusal(Capability.CONSUMER_TYPES, name)

    def prepare(
        self,
        orders: Sequence[ConsumerOrder],
        definitions: Mapping[str, ProviderDefinition] = FrozenDict(),
    ) -> PendingWrite:
        """Return the effects of orders if capacities allow them.

        Cost: one request for each order that is no claim.

        :param definitions: the providers that the same write defines, by uuid
        :raises NotSupported: if one consumer gets a type and another has none
        :raises InvalidInput: for an amount of more than 31 bits
        :raises ResourceObjectsError: as ``decide``, except for capacities and unit rules
        """
        orders = tuple(
            dataclasses.replace(order, uuid=self.consumers.uuid(order.consumer)) for order in orders
        )
        consumers = self.held_by(order.consumer for order in orders if not order.is_claim)
        keys = keys_of(orders, consumers)
        names = {uuid: definition.name for uuid, definition in definitions.items()}
        rows = _rows_of(consumers.values(), names)
        for uuid in sorted({key[0] for key in keys} - rows.providers.rows.keys()):
            name = self.cache.name_of(uuid)
            if name is not None:
                add_provider(rows, uuid, name)
        for key in keys:
            if key[0] in rows.providers:
                record = InventoryRecord(key[1], *_UNLIMITED_FIGURES)
                rows.inventories.put_unjournaled(key, None, InventoryRow(record))
        effects = decide(rows, orders, clock.now())
        for use in (use for effect in effects.consumers for use in effect.claim.held):
            if use.amount > codec.MAX_INTEGER:
                subject = f"use of {use.resource_class}"
                expected = f"at most {codec.MAX_INTEGER}, in Placement"
                raise exceptions.InvalidInput("amount", subject, use.amount, expected)
        return PendingWrite(
            orders, consumers, effects, *self._bodies(effects.consumers), definitions
        )

    def carry_out(self, orders: Sequence[ConsumerOrder]) -> PendingWrite:
        """Prepare and write orders; repeat both if others wrote their consumers meanwhile.

        An order that expects a generation or a new consumer is not repeated. Errors are those of
        :meth:`prepare` and :meth:`write`.
        """
        expecting = {
            order.consumer
            for order in orders
            if order.expect is Expect.ABSENT or order.generation is not None
        }

        def attempt() -> PendingWrite:
            pending = self.prepare(orders)
            try:
                self.write(pending)
            except (exceptions.Stale, exceptions.AlreadyExists) as error:
                if error.name in expecting or not error.is_about("consumer"):
                    raise
                detail = f"others write the consumer {error.name} all the time"
                busy = exceptions.DatabaseError("busy", self.client.service, detail)
                raise Transient(busy) from error
            return pending

        return self.client.retries.run(attempt)

    def write(self, pending: PendingWrite) -> None:
        """Write all effects of orders, or none.

        :raises CapacityException: if capacities do not allow them, with the consumers
        :raises AlreadyExists: if a consumer that must be new has allocations
        :raises Stale: if a consumer was written meanwhile
        :raises DatabaseError: if others write the same providers all the time; if the outcome is
            not known
        """
        if len(pending.bodies) == 1:
            [(uuid, body)] = pending.bodies.items()
            self.send(pending, "PUT", f"/allocations/{uuid}", body)
        else:
            self.send(pending, "POST", "/allocations", pending.bodies)

    def _bodies(self, effects: Sequence[ConsumerEffect]) -> tuple[dict[str, dict[str, Any]], int]:
        """Return the parts of a request by the uuid of the consumer, and its microversion.

        From 1.38 on a request names a type for each consumer, and there is no value for none.
        Before, each consumer keeps its type.

        :raises NotSupported: if one consumer gets a type and another has none
        """
        bodies: dict[str, dict[str, Any]] = {}
        for effect in effects:
            claim = effect.claim  # which lists the released allocations if it is released
            amounts = {} if effect.is_gone else _by_provider(claim.held)
            bodies[claim.uuid] = {
                "allocations": {uuid: {"resources": amounts[uuid]} for uuid in amounts},
                "consumer_generation": _generation(effect.stored),
                "project_id": codec.to_placement(claim.project),
                "user_id": codec.to_placement(claim.user),
            }
        types = [effect.claim.consumer_type for effect in effects]
        if types == [effect.stored and effect.stored.consumer_type for effect in effects]:
            return bodies, min(self.client.minor, CONSUMER_TYPES - 1)
        if None in types:
            detail = "one consumer gets a type, another has none"
            raise unsupported.refusal(Capability.CONSUMER_TYPES, detail)
        for effect in effects:
            bodies[effect.claim.uuid]["consumer_type"] = effect.claim.consumer_type
        return bodies, self.client.minor

    def send(self, pending: PendingWrite, method: str, path: str, body: Any) -> None:
        """Send a request about some consumers until its outcome is known."""
        sending = _Sending(self, pending, method, path, body)
        try:
            self.client.retries.run(sending.attempt)
        finally:
            self.cache.invalidate(pending.providers)
        self._remember(pending.records)


@dataclasses.dataclass(slots=True)
class _Sending:
    """A request that is sent until its outcome is known."""

    allocations: Allocations
    pending: PendingWrite
    method: str
    path: str
    body: Any
    lost: exceptions.DatabaseError | None = None  #: after which the outcome was not known
    has_reused: bool = False

    def attempt(self) -> None:
        """Send the request once.

        :raises Transient: if it was not carried out and may be sent again
        """
        client, pending = self.allocations.client, self.pending
        try:
            answer = client.write(self.method, self.path, self.body, pending.minor)
        except exceptions.DatabaseError as error:
            if not error.is_about("lost"):
                raise
            self.lost = error
            if self._is_written(error):
                return
            detail = f"nothing was written: {error.detail}"
            raise Transient(exceptions.DatabaseError("lost", error.name, detail)) from error
        if answer.is_done or (self.lost is not None and self._is_written(self.lost)):
            return
        if _is_about_consumers(answer) and not self.has_reused:
            self.has_reused = True
            if self._reuse_empty_consumers():
                raise Transient(self._stale(answer))
        is_conflict = answer.status == 409 and answer.code == "placement.concurrent_update"
        if is_conflict and not _is_about_consumers(answer):  # Placement gave up
            detail = f"others write the same providers: {answer.detail}"
            busy = exceptions.DatabaseError("busy", client.service, detail)
            # the generation of a provider in a body never becomes right again
            raise busy if "generation conflict" in answer.detail else Transient(busy)
        self._refuse(answer)

    def _is_written(self, lost: exceptions.DatabaseError) -> bool:
        """Return True if a write with a lost answer was carried out.

        All of it or nothing was written. So nothing was, if one of its consumers is unchanged.

        :raises DatabaseError: if others wrote all of them since, or no answer came again: the write
            may have been carried out, and must not be repeated
        """
        service, effects = self.allocations.client.service, self.pending.effects.consumers
        try:
            present = self.allocations.held_by(effect.claim.consumer for effect in effects)
        except exceptions.LedgerError as error:
            detail = f"it is not known whether it was written: {lost.detail}"
            raise exceptions.DatabaseError("lost", service, detail) from error
        if all(_is_same(present.get(after.consumer), after) for after in self.pending.records):
            return True
        if any(not _is_changed(effect, present) for effect in effects):
            return False
        detail = f"{', '.join(present)} was written since; whether by this write is not known"
        raise exceptions.DatabaseError("lost", service, detail) from lost

    def _reuse_empty_consumers(self) -> bool:
        """Expect generation 0 for new consumers that exist without allocations; True if any do.

        A request that writes no allocations for a new consumer leaves such a consumer behind.
        Placement does not show it, and refuses every claim that does not expect generation 0.
        """
        new = [e.claim for e in self.pending.effects.consumers if e.stored is None]
        present = self.allocations.held_by(claim.consumer for claim in new)
        empty = [claim.uuid for claim in new if claim.consumer not in present]
        for uuid in empty:
            self.pending.bodies[uuid]["consumer_generation"] = 0  # also in the body of the request
        return bool(empty)

    # --- reasons of a refusal ---

    def _refuse(self, answer: Answer) -> NoReturn:
        """Raise the reasons of a refusal.

        The inventories are read, and ``decide`` finds the reasons. If it finds none, others may
        have released the missing amount or created a class again, so the request may be sent again.
        After the last try the error has Placement's text.

        :raises Transient: if it may be sent again
        """
        if _is_about_consumers(answer):
            self._refuse_consumers(answer)
        rows = self._present_rows()
        decide(rows, self.pending.orders, clock.now())
        reasons: list[Reason] = []
        if "constraints" in answer.detail:
            reasons = list(_unit_reasons(self.pending, rows))
        elif "capacity" in answer.detail:
            reasons = list(_capacity_reasons(self.pending, rows))
        if reasons:
            raise CapacityException(reasons)
        detail = f"{answer.status}: {answer.detail}"
        refused = exceptions.LedgerError("request", self.allocations.client.service, detail)
        passing = ("capacity", "resource class", "invalid")
        raise Transient(refused) if any(text in answer.detail for text in passing) else refused

    def _present_rows(self) -> Rows:
        """Return the present rows of the providers, with the figures that the same write defines.

        The inventories that it removes exist until the orders are carried out.
        """
        pending, cache, uuids = self.pending, self.allocations.cache, self.pending.providers
        states = cache.read_states(
            entry for entry in cache.entries_of_trees(uuids) if entry.uuid in uuids
        )
        names = {state.entry.uuid: state.entry.name for state in states}
        rows = _rows_of(pending.consumers.values(), names)
        for state in states:
            uuid = state.entry.uuid
            used = {record.resource_class: record.used for record in state.records}
            defined = pending.definitions.get(uuid)
            for record in (*state.records, *(defined.inventories if defined else ())):
                key = uuid, record.resource_class
                record = record.using(used.get(record.resource_class, 0))
                rows.inventories.put_unjournaled(
                    key, rows.inventories.get(key), InventoryRow(record)
                )
            for consumer, amounts in state.allocations.items():
                name = self.allocations.consumers.name(consumer)
                for resource_class, amount in amounts.items():
                    allocation = uuid, resource_class, name
                    rows.allocations.put_unjournaled(allocation, None, amount)
        return rows

    def _refuse_consumers(self, answer: Answer) -> NoReturn:
        present = self.allocations.held_by(order.consumer for order in self.pending.orders)
        for effect in self.pending.effects.consumers:
            name = effect.claim.consumer
            if effect.stored is None and name in present:
                raise exceptions.AlreadyExists("consumer", name)
            if _is_changed(effect, present):
                raise exceptions.Stale("consumer", name, answer.detail)
        raise self._stale(answer)

    def _stale(self, answer: Answer) -> exceptions.Stale:
        return exceptions.Stale("consumer", self.pending.orders[0].consumer, answer.detail)


def _rows_of(consumers: Collection[ConsumerRecord], names: Mapping[str, str]) -> Rows:
    """Return rows of consumers and of their providers, and of other providers by uuid."""
    rows = Rows()
    rows.has_groups = False
    used = {use.provider_uuid: use.provider for record in consumers for use in record.held}
    for uuid, name in {**used, **names}.items():
        add_provider(rows, uuid, name)
    for record in consumers:
        rows.consumers.put_unjournaled(record.consumer, None, record)
    return rows


def add_provider(rows: Rows, uuid: str, name: str) -> None:
    """Add a provider of which only the name is known."""
    provider = ProviderRow(next(rows.provider_numbers), uuid, name)
    rows.providers.put_unjournaled(uuid, None, provider)


def _unit_reasons(pending: PendingWrite, rows: Rows) -> Iterator[Reason]:
    """Yield the violated unit rules: Placement applies them also to amounts that do not grow."""
    for effect in pending.effects.consumers:
        for use in effect.claim.held:
            row = rows.inventory(use.key)
            if row is not None and not effect.is_gone:
                refusals = resource(use.resource_class).refusals(
                    row.record.using(0), use.amount, use.provider
                )
                for reason in refusals:
                    if reason.rule in UNIT_RULES:
                        yield reason


def _capacity_reasons(pending: PendingWrite, rows: Rows) -> Iterator[Reason]:
    """Yield the exceeded capacities in Placement's arithmetic, which is a product of floats.

    100 * 1.15 is 114.99999999999999 there, so a 115th unit cannot be allocated.
    """
    for key, net in pending.effects.nets.items():
        row = rows.inventory(key)
        if row is not None and net > 0:
            record = row.record
            factor = record.ratio_millionths / MILLION
            capacity = int((record.total - record.reserved) * factor)
            if record.used + net > capacity:
                provider = rows.provider_name(key[0])
                figures = Rule.CAPACITY, net, capacity, record.used
                yield Reason(*figures, resource=key[1], where=provider)


def _after(effect: ConsumerEffect) -> ConsumerRecord:
    """Return a consumer after a write."""
    claim, generation = effect.claim, (_generation(effect.stored) or 0) + 1
    if effect.is_gone:
        return claim
    return dataclasses.replace(
        claim,
        held=codec.sorted_uses(claim.held),
        generation=generation,
        writes=generation,
        request=None,
    )


def _generation(record: ConsumerRecord | None) -> int | None:
    return None if record is None else record.generation


def _is_changed(effect: ConsumerEffect, present: Mapping[str, ConsumerRecord]) -> bool:
    """Return True if a consumer is not at its generation before the write."""
    return _generation(effect.stored) != _generation(present.get(effect.claim.consumer))


def _is_same(present: ConsumerRecord | None, after: ConsumerRecord) -> bool:
    """Return True if a consumer is as it would be after a write."""
    if present is None or after.state == RELEASED:
        return present is None and after.state == RELEASED
    return _attributes(present) == _attributes(after)


def _attributes(record: ConsumerRecord) -> tuple[Any, ...]:
    owner = codec.to_placement(record.project), codec.to_placement(record.user)
    return record.generation, _by_provider(record.held), owner, record.consumer_type


def _by_provider(uses: Iterable[Use]) -> dict[str, dict[str, int]]:
    amounts: dict[str, dict[str, int]] = {}
    for use in uses:
        amounts.setdefault(use.provider_uuid, {})[use.resource_class] = use.amount
    return amounts


def _is_about_consumers(answer: Answer) -> bool:
    # Conflicts of consumers and of providers have one code and differ in their texts only. A
    # consumer that Placement deletes between two steps of its own is a 404.
    is_conflict = answer.status == 409 and "consumer generation conflict" in answer.detail
    return is_conflict or (answer.status == 404 and "consumer" in answer.detail)
