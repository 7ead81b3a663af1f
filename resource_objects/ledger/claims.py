"""Taking and giving back: what consumers hold."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from resource_objects import exceptions, names
from resource_objects.ledger.base import claim_of
from resource_objects.ledger.expiring import ExpireMethods
from resource_objects.ledger.found import Choice, Found, choices_of, deltas_of
from resource_objects.ledger.moving import MoveMethods
from resource_objects.ledger.picking import Picking
from resource_objects.ledger.taking import (
    Unchanged,
    described,
    lost_by,
    requested,
    write_of,
)
from resource_objects.providers import Allocation, Claim
from resource_objects.providers.given import any_generation, expiry
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    ClaimRecord,
    Release,
    Replacement,
    Write,
    subject_of,
)


class ClaimMethods(MoveMethods, ExpireMethods):
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
            ``{provider: amounts}``, providers by name or uuid, by whoever decides elsewhere
        :param project, user, consumer_type: of the consumer, for lists and totals
        :param expires_in, expires_at: when whoever cleans up may release it
            (:meth:`release_expired`); neither: never
        :param unchanged: True to take a candidate only if the definitions it was found at are as
            they were, or ``{provider: generation}``
        :raises NoCandidates: if the search found nothing
        :raises SearchLimitReached: if the search was cut short before it found anything
        :raises CapacityException: if it does not fit (any more), with who holds what
        :raises ConsumerExists: if the consumer holds something already
        :raises ProviderNotFound: if a provider named directly is not there
        :raises StaleDefinition: if a definition was changed that was to be unchanged
        """
        name = names.consumer_name(consumer)
        said = described(project, user, consumer_type)
        until = expiry(expires_in, expires_at)
        doing, done = self._begin(operation, "claim", name)
        if done is not None and done.claim is not None:
            return claim_of(done.claim)
        relied = self._relied(unchanged)

        def write(choice: Choice) -> Write:
            order = ClaimOrder(
                name, choice.deltas, request=requested(choice), expires_at=until, **said
            )
            return write_of(doing, "claim", name, [order], relied(choice))

        return claim_of(self._take(write, found, name, lost_by(unchanged))[0])

    def claim_all(
        self,
        found: Mapping[str, Found],
        *,
        project: str | None = None,
        user: str | None = None,
        consumer_type: str | None = None,
        expires_in: datetime.timedelta | None = None,
        expires_at: datetime.datetime | None = None,
        unchanged: Unchanged = False,
        operation: str | None = None,
    ) -> dict[str, Claim]:
        """Take for several consumers that hold nothing yet, all of them or none.

        Each takes the first of its candidates that is free beside what those before it take, in
        the order of the mapping; there is no fresh search. It is greedy: nobody takes a later
        candidate so that one after it finds room, and so a gang may be refused that some other
        choice would place; put those first who have few candidates. The other arguments are of all
        of them, as for :meth:`claim`. Cost: one write; if that is refused, one read of the trees
        that the candidates are of, and one more write for each place that fills up meanwhile.

        :param found: ``{consumer: what was found}``, each as for :meth:`claim`
        :raises InvalidAmount: if it is empty
        :raises NoCandidates: if nothing was found for one of them
        :raises CapacityException: if they do not fit together, with who holds what
        :raises ConsumerExists: if one of them holds something already
        """
        if not isinstance(found, Mapping) or not found:
            raise exceptions.InvalidAmount("claim_all", found, "{consumer: what was found}")
        wanted = {names.consumer_name(name): one for name, one in found.items()}
        said = described(project, user, consumer_type)
        until = expiry(expires_in, expires_at)
        subject = subject_of(wanted)
        doing, done = self._begin(operation, "claim", subject)
        if done is not None:
            return {record.consumer: claim_of(record) for record in done.claims}
        relied = self._relied(unchanged)

        def write(picked: Mapping[str, Choice]) -> Write:
            orders = [
                ClaimOrder(n, c.deltas, request=requested(c), expires_at=until, **said)
                for n, c in picked.items()
            ]
            guarded = dict.fromkeys(pair for choice in picked.values() for pair in relied(choice))
            return write_of(doing, "claim", subject, orders, guarded)

        choices = {
            name: list(choices_of(one, self._uuids, "claim")) for name, one in wanted.items()
        }
        for name, ways in choices.items():
            if not ways:
                raise exceptions.NoCandidates(f"no candidate for {name}")
        records = self._taken_together(write, choices, lost_by(unchanged))
        return {record.consumer: claim_of(record) for record in records}

    def _taken_together(
        self,
        write: Callable[[Mapping[str, Choice]], Write],
        choices: Mapping[str, Sequence[Choice]],
        lost_by: tuple[type[exceptions.ResourceObjectsError], ...],
    ) -> tuple[ClaimRecord, ...]:
        """Commit the first choices of several consumers that are free together."""
        picking = Picking(choices)
        lost: exceptions.ResourceObjectsError | None = None
        while picked := picking.pick():
            try:
                return self.backend.commit(write(picked))
            except lost_by as gone:
                if not picking.is_open:
                    raise
                if lost is None:
                    picking.look(self.backend.read(*picking.places, allocations=False))
                lost = gone
                if not picking.learn(gone):
                    break
        raise lost or exceptions.NoCandidates("no candidates for all of them together")

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

        :param changes: by provider, or allocations, which may say units
        :param generation: the one the consumer was read at; None demands none
        :raises CapacityException: if it does not fit, or gives back more than the consumer holds
        :raises ProviderNotFound: if a provider is not there
        :raises StaleConsumer: if the consumer is not at ``generation`` any more
        :raises UnitNotHeld: if a unit is given back that it does not hold
        """
        name, read_at = names.consumer_name(consumer), any_generation(generation)
        doing, done = self._begin(operation, "adjust", name)
        if done is not None and done.claim is not None:
            return claim_of(done.claim)
        deltas = deltas_of(changes, self._uuids, "adjust", give_back=True)
        order = Adjustment(name, deltas, aggregate=aggregate, generation=read_at)
        return claim_of(self.backend.adjust(doing, order))

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

        Its claim keeps its id, state and expiry; of the rest, what is not given stays.

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
        relied = self._relied(unchanged)

        def write(choice: Choice) -> Write:
            order = Replacement(
                name, choice.deltas, request=requested(choice), generation=read_at, **said
            )
            return write_of(doing, "replace", name, [order], relied(choice))

        return claim_of(self._take(write, found, name, lost_by(unchanged))[0])

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
