"""Orders of consumers as Placement's requests: ``PUT /allocations`` for one, ``POST`` for several.

What orders come to is settled as everywhere (:func:`~resource_objects.store.decide.decide`),
with the inventories taken on trust: Placement decides whether they give it, in its one transaction.
If it refuses, the inventories are read and the same function says why, with who holds what.

A request names the generation of each consumer, so it happens once however often it is sent. One
that was sent and not answered is looked for: if the consumers hold what was asked, at the
generation after theirs, it was done; if they are as before, it is sent again. How often, and for
how long, is said by :class:`~resource_objects.backends.retries.Retries`.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from resource_objects import clock, exceptions
from resource_objects.backends.placement import absent, words
from resource_objects.backends.placement.client import CONSUMER_TYPES, Answer, Client
from resource_objects.backends.placement.picture import Picture, Read
from resource_objects.backends.retries import Transient
from resource_objects.exceptions import CapacityException
from resource_objects.fields import FrozenDict
from resource_objects.providers import decision
from resource_objects.providers.allocation import RELEASED
from resource_objects.providers.capabilities import Capability
from resource_objects.providers.definition import ProviderDefinition
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Expect, Key, Use
from resource_objects.reasons import UNIT_RULES, Reason, Rule
from resource_objects.resources.records import InventoryRecord
from resource_objects.store.decide import ConsumerEffect, Effects, OrderRows, decide, keys_of
from resource_objects.store.rows import InventoryRow

_NO_TYPE = CONSUMER_TYPES - 1
_TYPE = re.compile("[A-Z0-9_]{1,255}")

#: So many consumers are remembered by when they were made.
_REMEMBERED = 100_000

_TRUSTED = 2**62


@dataclasses.dataclass(frozen=True, slots=True)
class Settling:
    """Some orders, what their consumers hold, and what the orders come to.

    ``bodies`` is what a request says of each consumer, by uuid, by microversion 1.``minor``;
    ``defined`` are providers as the same write defines them, by uuid.
    """

    orders: tuple[ConsumerOrder, ...]
    kept: Mapping[str, ConsumerRecord]
    effects: Effects
    bodies: Mapping[str, dict[str, Any]]
    minor: int
    defined: Mapping[str, ProviderDefinition] = FrozenDict()

    @property
    def records(self) -> tuple[ConsumerRecord, ...]:
        """What the consumers are once it is written."""
        return tuple(
            one.claim
            if one.is_gone
            else dataclasses.replace(
                one.claim,
                held=words.in_order(one.claim.held),
                generation=(0 if one.kept is None else one.kept.generation) + 1,
                writes=(0 if one.kept is None else one.kept.generation) + 1,
                request=None,
            )
            for one in self.effects.consumers
        )

    @property
    def touched(self) -> set[str]:
        """The uuids of all providers that are concerned."""
        return {key[0] for key in keys_of(self.orders, self.kept)}


class Allocations:
    """What consumers of a Placement hold: read, and written."""

    def __init__(
        self,
        client: Client,
        picture: Picture,
        consumers: words.Names,
    ) -> None:
        self._client = client
        self._picture = picture
        self._consumers = consumers
        #: when consumers were made that this process made, and at which generation it left them
        self._made: OrderedDict[str, tuple[datetime.datetime, int]] = OrderedDict()
        self._lock = threading.Lock()

    # --- reading ---

    def held(self, consumer: str) -> ConsumerRecord | None:
        """Return what a consumer holds, None if nothing. A request, and one per unknown name."""
        uuid = self._consumers.uuid(consumer)
        path = f"/allocations/{uuid}"
        answer = self._client.read(path)
        found = self._client.parsed(path, answer, _heard_in)
        if found is None:
            with self._lock:
                self._made.pop(uuid, None)
            return None
        held, generation, project, user, kind = found
        return ConsumerRecord(
            uuid,
            consumer,
            self._made_at(uuid, generation, answer),
            words.in_order(
                Use(place, name, amount, (), self._picture.name(place) or place)
                for place, name, amount in held
            ),
            generation=generation,
            project=project,
            user=user,
            consumer_type=kind,
            writes=generation,
        )

    def _made_at(self, uuid: str, generation: int, answer: Answer) -> datetime.datetime:
        """Return when a consumer was made: of another process's, when it was written last."""
        with self._lock:
            known = self._made.get(uuid)
        if known is not None and known[1] <= generation:
            return known[0]
        return words.moment_of(answer.modified, clock.now())

    def _remember(self, settling: Settling) -> None:
        with self._lock:
            for record in settling.records:
                if record.state == RELEASED:
                    self._made.pop(record.uuid, None)
                elif record.generation == 1 or record.uuid in self._made:
                    self._made[record.uuid] = record.created_at, record.generation
            while len(self._made) > _REMEMBERED:
                self._made.popitem(last=False)

    def held_by(self, consumers: Iterable[str]) -> dict[str, ConsumerRecord]:
        """Return what several consumers hold, by name, in their order. A request for each."""
        some = list(dict.fromkeys(consumers))
        found = zip(some, self._client.each(self.held, some), strict=True)
        return {name: record for name, record in found if record is not None}

    # --- writing ---

    def check(self, orders: Iterable[ConsumerOrder]) -> None:
        """Raise for what orders say of consumers that cannot be kept. No request.

        :raises NotSupported: for the id of a claim, or a type
        """
        for order in orders:
            if order.uuid not in (None, self._consumers.uuid(order.consumer)):
                raise absent.refusal(Capability.CLAIM_IDS, order.consumer)
            kind = order.consumer_type
            if kind is not None and (
                not _TYPE.fullmatch(kind) or self._client.minor < CONSUMER_TYPES
            ):
                raise absent.refusal(Capability.CONSUMER_TYPES, kind)

    def settle(
        self,
        orders: Sequence[ConsumerOrder],
        defined: Mapping[str, ProviderDefinition] = FrozenDict(),
    ) -> Settling:
        """Return what orders come to, if there is room. A request for each that is no claim.

        :param defined: providers as the same write defines them, by uuid
        :raises NotSupported: if one gets a type where another one has none
        :raises InvalidInput: for an amount of more than 31 bits
        :raises ResourceObjectsError: as ``decide``, for what is not about room
        """
        named = tuple(
            dataclasses.replace(order, uuid=self._consumers.uuid(order.consumer))
            for order in orders
        )
        kept = self.held_by(one.consumer for one in named if not one.is_claim)
        keys = keys_of(named, kept)
        names = self._names({key[0] for key in keys} - defined.keys())
        names |= {uuid: one.name for uuid, one in defined.items()}
        trusted = {
            key: InventoryRow(InventoryRecord(key[1], *_TRUSTED_FIGURES))
            for key in keys
            if key[0] in names
        }
        effects = decide(_Rows(kept, trusted, names), named, clock.now())
        for use in (use for one in effects.consumers for use in one.claim.held):
            if use.amount > words.MOST:
                expected = f"at most {words.MOST}, for Placement"
                raise exceptions.InvalidInput(
                    "amount", f"use of {use.resource_class}", use.amount, expected
                )
        return Settling(named, kept, effects, *self._bodies(effects.consumers), defined)

    def carry_out(self, orders: Sequence[ConsumerOrder]) -> Settling:
        """Settle orders and write what they come to; again, if somebody wrote their consumers.

        Only an order that demands no generation is settled again. Errors are those of
        :meth:`settle` and :meth:`write`.
        """
        demands = {
            order.consumer
            for order in orders
            if order.expect is Expect.ABSENT or order.generation is not None
        }

        def attempt() -> Settling:
            settling = self.settle(orders)
            try:
                self.write(settling)
            except (exceptions.Stale, exceptions.AlreadyExists) as error:
                if error.name in demands or not error.is_about("consumer"):
                    raise
                said = f"{error.name} is written all the time"
                raise Transient(
                    exceptions.DatabaseError("busy", self._client.where, said)
                ) from error
            return settling

        return self._client.retries.run(attempt)

    def write(self, settling: Settling) -> None:
        """Write what orders come to: all of it, or nothing.

        :raises CapacityException: if it does not fit, with who holds what
        :raises AlreadyExists: if a consumer that must hold nothing holds something
        :raises Stale: if one was written meanwhile
        :raises DatabaseError: if others write the same providers all the time
        :raises LostConnection: if no answer came and none could be found
        """
        if len(settling.bodies) == 1:
            [(uuid, body)] = settling.bodies.items()
            self.send(settling, "PUT", f"/allocations/{uuid}", body)
        else:
            self.send(settling, "POST", "/allocations", settling.bodies)

    def _bodies(self, consumers: Sequence[ConsumerEffect]) -> tuple[dict[str, dict[str, Any]], int]:
        """Return what is said of each consumer, by uuid, and by which microversion.

        From 1.38 on a type has to be said of each, and none is no type; before, each keeps the one
        that it has.

        :raises NotSupported: if one gets a type and another one has none
        """
        found: dict[str, dict[str, Any]] = {}
        for one in consumers:
            claim, held = one.claim, {} if one.is_gone else _by_provider(one.claim.held)
            found[claim.uuid] = {
                "allocations": {uuid: {"resources": some} for uuid, some in held.items()},
                "consumer_generation": None if one.kept is None else one.kept.generation,
                "project_id": words.said(claim.project),
                "user_id": words.said(claim.user),
            }
        if all(
            one.claim.consumer_type == (one.kept and one.kept.consumer_type) for one in consumers
        ):
            return found, min(self._client.minor, _NO_TYPE)
        if any(one.claim.consumer_type is None for one in consumers):
            raise absent.refusal(Capability.CONSUMER_TYPES, "one gets a type, another one has none")
        for one in consumers:
            found[one.claim.uuid]["consumer_type"] = one.claim.consumer_type
        return found, self._client.minor

    def send(self, settling: Settling, method: str, path: str, body: Any) -> None:
        """Send a request about some consumers until it is known what became of it."""
        try:
            self._send(settling, method, path, body)
        finally:
            self._picture.doubt(settling.touched)
        self._remember(settling)

    def _send(self, settling: Settling, method: str, path: str, body: Any) -> None:
        lost: exceptions.LostConnection | None = None
        is_revived = False

        def attempt() -> None:
            nonlocal lost, is_revived
            try:
                answer = self._client.write(method, path, body, settling.minor)
            except exceptions.LostConnection as error:
                lost = error
                if self._is_written(settling, error):
                    return
                said = f"nothing was done: {error.detail}"
                raise Transient(exceptions.LostConnection(error.name, said)) from error
            if answer.is_done or (lost is not None and self._is_written(settling, lost)):
                return
            if _is_about_consumers(answer) and not is_revived:
                is_revived = True
                if self._revive(settling):
                    raise Transient(self._stale(settling, answer))
            if _is_overtaken(answer):
                said = f"others write the same providers: {answer.detail}"
                busy = exceptions.DatabaseError("busy", self._client.where, said)
                # a generation that was said is not another one later
                raise busy if "generation conflict" in answer.detail else Transient(busy)
            self._refuse(settling, answer)

        self._client.retries.run(attempt)

    def _is_written(self, settling: Settling, lost: exceptions.LostConnection) -> bool:
        """Return whether a write that was not answered was done.

        It is whole or not at all: where one of its consumers is as before, nothing was done.

        :raises LostConnection: if somebody else wrote all of them since, or that is not answered
            either: it may have been done, and must not be done again
        """
        try:
            now = self.held_by(one.claim.consumer for one in settling.effects.consumers)
        except exceptions.LedgerError as error:
            said = f"whether it was written is not known: {lost.detail}"
            raise exceptions.LostConnection(self._client.where, said) from error
        done = [_same(now.get(record.consumer), record) for record in settling.records]
        if all(done):
            return True
        for one in settling.effects.consumers:
            before, is_now = one.kept, now.get(one.claim.consumer)
            if (before and before.generation) == (is_now and is_now.generation):
                return False
        said = f"{', '.join(now)} was written since; whether by this is not known"
        raise exceptions.LostConnection(self._client.where, said) from lost

    def _revive(self, settling: Settling) -> bool:
        """Let the bodies say 0 for consumers that are there though nobody holds anything.

        Whoever wrote nothing for a consumer that held nothing leaves one behind at generation 0,
        which no reading shows and at which every claim is refused.
        """
        new = [one.claim for one in settling.effects.consumers if one.kept is None]
        now = self.held_by(one.consumer for one in new)
        left = [one.uuid for one in new if one.consumer not in now]
        for uuid in left:
            settling.bodies[uuid]["consumer_generation"] = 0  # in what is sent, too
        return bool(left)

    # --- why it is refused ---

    def _refuse(self, settling: Settling, answer: Answer) -> NoReturn:
        """Raise for what a write is refused.

        The places are read, and the function that decides everywhere says why. Where it finds no
        reason, somebody may have given back what was missing, or named a class anew: it may be
        asked once more. Then Placement's words are told.

        :raises Transient: if it may be asked once more
        """
        orders, kept = settling.orders, settling.kept
        if _is_about_consumers(answer):
            self._refuse_consumers(settling, answer)
        touched = settling.touched
        rows = self._picture.read_each(
            [one for one in self._picture.told_of(touched) if one.uuid in touched]
        )
        names = {one.told.uuid: one.told.name for one in rows}
        places = _places(rows, settling.defined)
        holders = {
            (one.told.uuid, name): [
                (self._consumers.name(uuid), held[name])
                for uuid, held in one.held.items()
                if name in held
            ]
            for one in rows
            for name in {name for held in one.held.values() for name in held}
        }
        decide(_Rows(kept, places, names, holders), orders, clock.now())
        if "constraints" in answer.detail:  # which bind there what does not grow, too
            reasons = [
                reason
                for one in settling.effects.consumers
                for use in one.claim.held
                if use.key in places and not one.is_gone
                for reason in _against_rules(places[use.key], use.amount, use.provider)
            ]
            if reasons:
                raise CapacityException(reasons)
        elif "capacity" in answer.detail and (over := list(_over_floats(settling, places, names))):
            raise CapacityException(over)
        refused = exceptions.LedgerError(
            "request", self._client.where, f"{answer.status}: {answer.detail}"
        )
        raise Transient(refused) if _may_pass(answer) else refused

    def _refuse_consumers(self, settling: Settling, answer: Answer) -> NoReturn:
        now = self.held_by(order.consumer for order in settling.orders)
        for one in settling.effects.consumers:
            name, is_now = one.claim.consumer, now.get(one.claim.consumer)
            if one.kept is None and is_now is not None:
                raise exceptions.AlreadyExists("consumer", name)
            if (one.kept and one.kept.generation) != (is_now and is_now.generation):
                raise exceptions.Stale("consumer", name, answer.detail)
        raise self._stale(settling, answer)

    @staticmethod
    def _stale(settling: Settling, answer: Answer) -> exceptions.Stale:
        return exceptions.Stale("consumer", settling.orders[0].consumer, answer.detail)

    def _names(self, uuids: Collection[str]) -> dict[str, str]:
        found = ((uuid, self._picture.name(uuid)) for uuid in sorted(uuids))
        return {uuid: name for uuid, name in found if name is not None}


#: Figures of an inventory after its class: room for anything, and no rules.
_TRUSTED_FIGURES = (_TRUSTED, 0, 1, None, 1, 1_000_000, _TRUSTED)


def _places(
    rows: Iterable[Read], defined: Mapping[str, ProviderDefinition]
) -> dict[Key, InventoryRow]:
    """Return the inventories of providers, as the same write defines them where it does.

    What it takes away is there until the orders are carried out.
    """
    found: dict[Key, InventoryRow] = {}
    for one in rows:
        told, own = one.told, defined.get(one.told.uuid)
        used = {record.resource_class: record.used for record in one.records}
        for record in (*one.records, *(() if own is None else own.inventories)):
            kept = record.using(used.get(record.resource_class, 0))
            found[told.uuid, record.resource_class] = InventoryRow(kept)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows(OrderRows):
    """The rows that orders are about; Placement has no units and no server groups."""

    kept: Mapping[str, ConsumerRecord]
    inventories: Mapping[Key, InventoryRow]
    names: Mapping[str, str]
    users: Mapping[Key, Iterable[tuple[str, int]]] = FrozenDict()

    def consumer(self, name: str) -> ConsumerRecord | None:
        """Return a consumer."""
        return self.kept.get(name)

    def inventory(self, key: Key) -> InventoryRow | None:
        """Return an inventory."""
        return self.inventories.get(key)

    def provider_name(self, uuid: str) -> str | None:
        """Return the name of a provider."""
        return self.names.get(uuid)

    def users_of(self, keys: Collection[Key]) -> Mapping[Key, Iterable[tuple[str, int]]]:
        """Return the consumers that use inventories, with their amounts."""
        return self.users


#: What a consumer holds of which provider, its generation, project, user and type.
_Heard: TypeAlias = tuple[list[tuple[str, str, int]], int, str | None, str | None, str | None]


def _heard_in(body: Any) -> _Heard | None:
    """Return what is told of a consumer, None if it holds nothing."""
    held = [
        (uuid, name, amount)
        for uuid, one in body["allocations"].items()
        for name, amount in one["resources"].items()
    ]
    if not held:
        return None
    kind = body.get("consumer_type", words.UNKNOWN_TYPE)
    return (
        held,
        int(body["consumer_generation"]),
        words.heard(body["project_id"]),
        words.heard(body["user_id"]),
        None if kind == words.UNKNOWN_TYPE else kind,
    )


def _by_provider(held: Iterable[Use]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for use in held:
        found.setdefault(use.provider_uuid, {})[use.resource_class] = use.amount
    return found


def _same(now: ConsumerRecord | None, wanted: ConsumerRecord) -> bool:
    """Return whether a consumer is as a write would leave it."""
    if now is None or wanted.state == RELEASED:
        return now is None and wanted.state == RELEASED
    return _known_by(now) == _known_by(wanted)


def _known_by(record: ConsumerRecord) -> tuple[Any, ...]:
    said = words.said(record.project), words.said(record.user), record.consumer_type
    return record.generation, _by_provider(record.held), *said


def _against_rules(row: InventoryRow, amount: int, where: str) -> Iterator[Reason]:
    for reason in decision.refusals(row.record.using(0), amount, where):
        if reason.rule in UNIT_RULES:
            yield reason


def _over_floats(
    settling: Settling, places: Mapping[Key, InventoryRow], names: Mapping[str, str]
) -> Iterator[Reason]:
    """Yield what is above a capacity as Placement counts it: as a product of floats.

    100 * 1.15 is 114.99999999999999 there, so the 115th is not to be had.
    """
    for key, net in settling.effects.nets.items():
        if key in places and net > 0:
            record = places[key].record
            ratio = record.ratio_millionths / 1_000_000
            capacity = int((record.total - record.reserved) * ratio)
            if record.used + net > capacity:
                yield Reason(
                    Rule.CAPACITY,
                    net,
                    capacity,
                    record.used,
                    resource=key[1],
                    where=names[key[0]],
                )


def _may_pass(answer: Answer) -> bool:
    """Return whether a refusal is about what others may have changed since."""
    return any(said in answer.detail for said in ("capacity", "resource class", "invalid"))


def _is_about_consumers(answer: Answer) -> bool:
    # both conflicts have one code; the words are what there is to tell them by. A consumer that
    # is forgotten between two steps of Placement's own is a 404
    is_conflict = answer.status == 409 and "consumer generation conflict" in answer.detail
    return is_conflict or (answer.status == 404 and "consumer" in answer.detail)


def _is_overtaken(answer: Answer) -> bool:
    """Return whether Placement gave up, as others wrote the same providers."""
    is_conflict = answer.status == 409 and answer.code == "placement.concurrent_update"
    return is_conflict and not _is_about_consumers(answer)
