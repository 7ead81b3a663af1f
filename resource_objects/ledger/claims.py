"""Taking and giving back: what consumers hold."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, overload

from resource_objects import exceptions, names
from resource_objects.ledger.base import claim_of, request_text
from resource_objects.ledger.expiring import ExpireMethods
from resource_objects.ledger.found import Choice, Found, asked_beside, choice_of
from resource_objects.ledger.moving import MoveMethods
from resource_objects.ledger.taking import (
    Own,
    Taking,
    Unchanged,
    described,
    lost_by,
    patiently,
    requested,
    write_of,
)
from resource_objects.ledger.together import TogetherMethods
from resource_objects.providers import Allocation, Claim
from resource_objects.providers.given import any_generation, expiry
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    Order,
    Release,
    Replacement,
    subject_of,
)
from resource_objects.resources import Amounts


class ClaimMethods(TogetherMethods, MoveMethods, ExpireMethods):
    """The methods of a ledger that take and give back."""

    def claim(
        self,
        consumer: str,
        found: Found,
        *,
        project: str | None = None,
        user: str | None = None,
        consumer_type: str | None = None,
        expires_in: datetime.timedelta | None = None,
        expires_at: datetime.datetime | None = None,
        unchanged: Unchanged = False,
        operation: str | None = None,
    ) -> Claim:
        """Take what a search found for a consumer that holds nothing yet; all or nothing.

        :param found: candidates (the next one on a lost race, then a fresh search, as often as the
            ledger's :class:`RetryPolicy` says); one candidate, or several of one's own choice, of
            which the first that is still free is taken; allocations, with their units; or
            ``{provider: amounts}``, providers by name or uuid, by whoever decides elsewhere. An
            amount that lies over a tree (a NUMA topology, devices) is asked of the host: assigned
            it is taken as it is; else the ledger puts it somewhere on what is free at that moment,
            cells and devices together, again if somebody is faster (:attr:`RetryPolicy.fits`). A
            count of devices without their units, taken of their provider, names none: no tree is
            read for it, and it counts as the last ones that are free there
        :param project, user, consumer_type: of the consumer, for lists and totals
        :param expires_in, expires_at: when whoever cleans up may release it
            (:meth:`release_expired`); neither: never
        :param unchanged: True to take a candidate only if the definitions it was found at are as
            they were, or ``{provider: generation}``; those of the cells that a topology was found
            on have to be in any case
        :raises NoCandidates: if the search found nothing
        :raises SearchLimitReached: if the search was cut short before it found anything
        :raises CapacityException: if it does not fit (any more), with who holds what
        :raises ConsumerExists: if the consumer holds something already
        :raises ProviderNotFound: if a provider named directly is not there
        :raises StaleDefinition: if a definition was changed that was to be unchanged
        :raises InvalidAmount: if a count does not agree with the topology beside it, or a topology
            is asked of what is no host, or of two, or if units are not as many as the amount, or
            only some of those that go together (a physical function, and those split off it)
        :raises ForeignAmount: if it is assigned to what the host does not have
        :raises UnitNotFound: for a unit that a cell does not have, or a device of another provider
        """
        name = names.consumer_name(consumer)
        said = described(project, user, consumer_type)
        until = expiry(expires_in, expires_at)
        doing, done = self._begin(operation, "claim", name)
        if done is not None and done.claim is not None:
            return claim_of(done.claim)
        relied = self._demanded(unchanged)

        def orders(choice: Choice) -> list[Order]:
            asked = requested(choice)
            return [ClaimOrder(name, choice.deltas, request=asked, expires_at=until, **said)]

        taking = Taking(doing, "claim", name, name, Own.NONE, orders, relied)
        return claim_of(self._take(taking, found, lost_by(unchanged))[0])

    def adjust(
        self,
        consumer: str,
        changes: Mapping[str, Any] | Sequence[Allocation],
        *,
        aggregate: bool = False,
        generation: int | None = None,
        operation: str | None = None,
    ) -> Claim:
        """Change what a consumer holds by ``{provider name: amounts}``; negative gives back.

        All or nothing. A consumer that held nothing is made, one that holds nothing afterwards is
        forgotten. What others hold is never touched. Unit rules bind all that the consumer will
        hold, unless it is an ``aggregate``, which stands for many.

        A topology is given back assigned and negative, as :meth:`assigned` tells it; one that is
        taken is put somewhere as by :meth:`claim`, beside what the consumer holds: devices near the
        cells it has, and cells near its devices.

        :param changes: by provider, or allocations, which may say units
        :param generation: the one the consumer was read at; None demands none
        :raises CapacityException: if it does not fit, or gives back more than the consumer holds
        :raises ProviderNotFound: if a provider is not there
        :raises StaleConsumer: if the consumer is not at ``generation`` any more
        :raises UnitNotHeld: if a unit is given back that it does not hold
        :raises UnitNotFound: as :meth:`claim`
        :raises InvalidAmount: as :meth:`claim`, or for a second topology
        """
        name, read_at = names.consumer_name(consumer), any_generation(generation)
        doing, done = self._begin(operation, "adjust", name)
        if done is not None and done.claim is not None:
            return claim_of(done.claim)
        choice = choice_of(changes, self._uuids, "adjust", give_back=True, aggregate=aggregate)

        def attempt() -> Claim:
            asked, at, whole = None, None, choice
            if choice.request is not None and not aggregate:
                asked, at, beside = self._asked_beside(name, choice)
                whole = dataclasses.replace(choice, beside=beside)
            at = at if read_at is None else read_at

            def orders(way: Choice) -> list[Order]:
                return [
                    Adjustment(name, way.deltas, aggregate=aggregate, generation=at, request=asked)
                ]

            taking = Taking(doing, "adjust", name, name, Own.STAYS, orders)
            return claim_of(self._put(taking, whole)[0])

        tries = self.retries.definitions if read_at is None else 0
        return patiently(attempt, tries, exceptions.StaleConsumer)

    def _asked_beside(
        self, consumer: str, choice: Choice
    ) -> tuple[str | None, int | None, Mapping[str, Amounts]]:
        """Return the request of a consumer with what it asks besides, its generation, what it has.

        :raises InvalidAmount: if it holds something already of which it can have one
        """
        kept = self.backend.held(consumer)
        if kept is None:
            return requested(choice), None, {}
        told = self._told(kept)
        goes = {ask.resource_class for ask in choice.asks if ask.amount.is_negative}
        holds = {name for amounts in told.values() for name in amounts.names()}
        for ask in choice.asks:
            if ask.resource_class in holds - goes:
                raise exceptions.InvalidAmount(
                    f"adjust: {ask.resource_class}",
                    ask.amount,
                    f"none: {consumer} holds one already, which replace() exchanges",
                )
        assert choice.request is not None, "it asks something"
        asked = request_text(asked_beside(claim_of(kept).request, choice.request, goes))
        return asked, kept.generation, told

    def replace(
        self,
        consumer: str,
        found: Found,
        *,
        generation: int | None = None,
        project: str | None = None,
        user: str | None = None,
        consumer_type: str | None = None,
        unchanged: Unchanged = False,
        operation: str | None = None,
    ) -> Claim:
        """Let a consumer hold this and nothing else; all or nothing. It is made if need be.

        Its claim keeps its id, state and expiry; of the rest, what is not given stays. A topology
        stays where it is if the consumer has that one already.

        :param found: what it shall hold, as for :meth:`claim`
        :param generation: the one the consumer was read at; None demands none
        :raises CapacityException: if it does not fit, with who holds what
        :raises StaleConsumer: if the consumer is not at ``generation`` any more
        """
        name, read_at = names.consumer_name(consumer), any_generation(generation)
        said = described(project, user, consumer_type)
        doing, done = self._begin(operation, "replace", name)
        if done is not None and done.claim is not None:
            return claim_of(done.claim)
        relied = self._demanded(unchanged)

        def orders(choice: Choice) -> list[Order]:
            asked = requested(choice)
            return [Replacement(name, choice.deltas, request=asked, generation=read_at, **said)]

        taking = Taking(doing, "replace", name, name, Own.GOES, orders, relied)
        return claim_of(self._take(taking, found, lost_by(unchanged))[0])

    @overload
    def release(self, consumer: str, /, *, operation: str | None = None) -> Claim: ...

    @overload
    def release(
        self, consumer: str, another: str, /, *more: str, operation: str | None = None
    ) -> tuple[Claim, ...]: ...

    @overload
    def release(
        self, *consumers: str, operation: str | None = None
    ) -> Claim | tuple[Claim, ...]: ...

    def release(self, *consumers: str, operation: str | None = None) -> Claim | tuple[Claim, ...]:
        """Give back all that one consumer, or several together, hold; return what they held.

        Of one its claim is returned, of several a tuple of theirs.

        :raises ConsumerNotFound: if one holds nothing; then nobody gives back anything
        """
        wanted = [names.consumer_name(consumer) for consumer in consumers]
        if not wanted:
            raise exceptions.InvalidName("release", consumers, "a consumer, at least one")
        doing = self._operation(operation)
        orders = [Release(name) for name in wanted]
        records = self.backend.commit(write_of(doing, "release", subject_of(wanted), orders))
        claims = tuple(map(claim_of, records))
        return claims[0] if len(claims) == 1 else claims
