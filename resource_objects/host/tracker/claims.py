"""Claims on a host: planned, held, confirmed or reverted.

A planned one is a decision, and nothing in the ledger. The others are what the ledger has: a claim
is the same in every process that asks for it, also after a crash of who made it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from resource_objects import exceptions, names
from resource_objects.host.tracker.asked import (
    OVERHEAD,
    Asked,
    page_sizes,
    unassigned,
    with_overhead,
)
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.moves import Moves, Records, Revertible
from resource_objects.ledger.feed import snapshot_in_place
from resource_objects.providers import Allocation, Claim
from resource_objects.providers import allocation as states
from resource_objects.providers.arguments import limits as limits_of
from resource_objects.providers.arguments import tighter
from resource_objects.providers.disabled import TRAIT
from resource_objects.providers.orders import UNLIMITED
from resource_objects.reasons import Rule
from resource_objects.requests import Request
from resource_objects.resources import Amounts
from resource_objects.search import Candidate, Candidates

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.search import Snapshot


class ClaimOptions(TypedDict, total=False):
    """What may be said of a claim on a host, as :meth:`.ResourceTracker.claim` explains it."""

    project: str | None
    user: str | None
    consumer_type: str | None
    expires_in: datetime.timedelta | None
    expires_at: datetime.datetime | None
    limits: Any
    ignore_maintenance: bool


#: Yields the ledger that has a host: for a block that reads it, before the host was adopted.
Seen: TypeAlias = "Callable[[str], contextlib.AbstractContextManager[Ledger]]"

#: Takes what was found for a consumer.
_Take: TypeAlias = Callable[[Any], Claim]


class ClaimState(enum.StrEnum):
    """Where a claim on a host stands; only what is held or confirmed is in the ledger."""

    PLANNED = "planned"  #: it would fit; nothing is held
    HELD = "held"  #: nobody else can have it
    CONFIRMED = "confirmed"  #: the consumer runs, and the claim expires no more
    REVERTED = "reverted"  #: given back


@dataclasses.dataclass
class HostClaim(Revertible):
    """What a consumer holds of a host, or would, in the words of a tracker.

    ``claim`` is what the ledger has of it; None if planned or reverted. ``candidate`` is where
    a planned one would go. All say how it stood when this object was last asked to do something. In
    a ``with`` statement it is given back if the block raises.

    >>> import resource_objects as ro
    >>> from resource_objects.host.tracker import Driver, ResourceTracker
    >>> class Lab(Driver):
    ...     def hosts(self):
    ...         return ["box"]
    ...     def get_available_resource(self, host):
    ...         return "VCPU=8"
    >>> tracker = ResourceTracker(ro.connect("memory://"), Lab())
    >>> done = tracker.update_available_resource()
    >>> planned = tracker.plan("vm-1", "box", "VCPU=2")
    >>> print(planned)
    vm-1 on box: planned, VCPU=2
    >>> planned.allocate()
    >>> planned.confirm()
    >>> print(planned)
    vm-1 on box: confirmed, VCPU=2
    """

    _claims: HostClaims = dataclasses.field(repr=False, compare=False)
    host: str
    consumer: str
    amounts: Amounts
    state: ClaimState
    claim: Claim | None = None
    candidate: Candidate | None = None
    _asked: Asked | None = dataclasses.field(default=None, repr=False, compare=False)
    _limits: Any = dataclasses.field(default=None, repr=False, compare=False)  #: of a planned one

    def __str__(self) -> str:
        return f"{self.consumer} on {self.host}: {self.state}, {self.amounts}"

    def allocate(self, **said: Unpack[ClaimOptions]) -> None:
        """Take what was planned, just so. Once is enough.

        :param said: as for :meth:`.ResourceTracker.claim`; limits of the plan bind it besides
        :raises CapacityException: if somebody was faster, with who holds what
        """
        if self.state is ClaimState.PLANNED:
            said["limits"] = _within(self.host, self._limits, said.get("limits"))
            taken = self._claims.claim(self.consumer, self.host, self._asked, said)
            self.claim, self.amounts, self.state = taken.claim, taken.amounts, taken.state

    def confirm(self) -> None:
        """Say that the consumer runs: the claim is no more on trial. Once is enough.

        :raises NotFound: if it was not taken, or given back
        :raises Stale: if the consumer has another claim by now, or is elsewhere
        """
        if self.claim is None:
            raise exceptions.NotFound(
                "consumer", self.consumer, f"by this claim, which is {self.state}"
            )
        before, self.state = self.state, ClaimState.CONFIRMED  # also if the answer is lost
        try:
            self.claim = self._claims.moves.confirm_claim(self.claim)
        except (exceptions.NotFound, exceptions.Stale):
            self.state = before
            raise

    def revert(self) -> None:
        """Give back what is held here; if a move led here, it is reverted. Once is enough.

        What was given back already, as by a move to another host, stays given back; another claim
        of the consumer, or elsewhere, stays as it is.

        :raises Conflict: if a move leaves it: that decides what becomes of it
        :raises Stale: if somebody else confirmed it, or it is for something else by now
        """
        if self.claim is not None:
            is_confirmed = self.state is ClaimState.CONFIRMED
            self._claims.moves.give_back(self.claim, is_confirmed=is_confirmed)
        self.claim, self.state = None, ClaimState.REVERTED


class HostClaims:
    """How what is asked of a host is decided, taken, and read again."""

    def __init__(
        self, ledger: Ledger, driver: Driver, seen: Seen, records: Records | None = None
    ) -> None:
        self._ledger = ledger
        self._seen = seen
        self._driver = driver
        self._refits = type(driver).admit is not Driver.admit
        self.moves = Moves(ledger, self.asked, self.place, records)

    def asked(self, given: Any) -> Asked:
        """Return what is asked by text, amounts, a request, a candidate or a claim."""
        return given if isinstance(given, Asked) else Asked.of(given, self._driver.overhead)

    def plan(self, consumer: str, host: str, given: Any, overrides: bool, limits: Any) -> HostClaim:
        """Return where something would go on a host; nothing is taken."""
        name, asked = names.consumer_name(consumer), self.asked(given)
        found, within = asked.found, _within(host, limits)
        if found is None:
            with self._seen(host) as ledger:
                snapshot = ledger.snapshot(at=host)
                found = self._search(name, host, snapshot, asked, overrides, within)[0]
                if ledger is not self._ledger:
                    found = _by_name(found)  # who adopts the host makes its parts
            asked = dataclasses.replace(asked, found=found)
        planned = ClaimState.PLANNED
        chosen = asked.chosen.candidate
        amounts = chosen.amounts
        return HostClaim(
            self, host, name, amounts, planned, candidate=chosen, _asked=asked, _limits=within
        )

    def claim(self, consumer: str, host: str, given: Any, given_said: ClaimOptions) -> HostClaim:
        """Take what is asked of a host, or return the claim that the consumer has for just that."""
        name, asked = names.consumer_name(consumer), self.asked(given)
        said: dict[str, Any] = {**given_said}
        within = _within(host, said.get("limits"))
        said["limits"] = None if within is None else {host: within}
        faster = "ConsumerNotFound", "StaleConsumer"  # between two looks
        with self.moves.writing(name, host):
            claimed = functools.partial(self._claimed, name, host, asked, said)
            return self._made(host, self._ledger.retries.retry(claimed, *faster))

    def _claimed(self, name: str, host: str, asked: Asked, said: Mapping[str, Any]) -> Claim:
        take = functools.partial(self._ledger.claim, name, **said)
        bound = {"overrides": said.get("ignore_maintenance", False), "limits": said["limits"]}
        try:
            claim = self.place(name, host, asked, take, **bound)
        except (exceptions.CapacityException, exceptions.AlreadyExists) as refusal:
            if not refusal.matches(exceptions.CapacityException, "ConsumerExists"):
                raise
            try:  # what it holds may be all that is in its way
                held = self._held(name, host, asked, said)
            except exceptions.NotFound as error:
                if not error.is_about("consumer"):
                    raise
                if isinstance(refusal, exceptions.AlreadyExists):
                    raise  # it was released meanwhile
                raise refusal from refusal.__cause__
            return self._accepted(host, held, said)
        try:
            return self._accepted_as_made(host, claim, said)
        except BaseException:
            self.moves.give_back(claim)  # who took it gives it back
            raise

    def _accepted_as_made(self, host: str, made: Claim, said: Mapping[str, Any]) -> Claim:
        """Return a claim that was just made as the host accepts it.

        If another process released or moved it meanwhile, the claim is returned as it was made:
        it is not made again.
        """
        changed = "ConsumerNotFound", "StaleConsumer"
        try:
            return self._accepted(host, made, said)
        except (exceptions.NotFound, exceptions.Stale) as error:
            if not error.matches(*changed):
                raise

            def accept(now: Claim | None) -> Claim:
                if now is None:
                    return made
                return self._accepted(host, now, said).replace(state=made.state)

            return self._ledger.retries.write(
                lambda: self.moves.still_as_made(made), accept, *changed
            )

    def get_claim(self, consumer: str) -> HostClaim:
        """Return the claim that a consumer has."""
        claim = self._ledger.get_claim(consumer)
        return self._made(self.moves.host_of(claim), claim)

    # --- how it is decided ---

    def place(
        self,
        consumer: str,
        host: str,
        asked: Asked,
        take: _Take,
        *,
        replaces: bool = False,
        moves: bool = False,
        overrides: bool = False,
        limits: Any = None,
    ) -> Claim:
        """Take what is asked of a host, all together.

        Amounts that the host gives itself the ledger decides as it writes. What it refuses so is
        searched in the tree of the host: children may give it, and if not the search says why.

        :param replaces: whether the consumer gives back what it holds in the same write
        :param moves: whether what the consumer holds of pools is counted once for both places
        :param overrides: whether it may be of what is out of service
        :param limits: ``{host: limits}`` that bind what ``take`` takes, None for none
        """

        def search() -> Candidates:
            snapshot = (
                snapshot_in_place(self._ledger.backend, consumer, host, pools_only=not replaces)
                if replaces or moves
                else self._ledger.snapshot(at=host)
            )
            within = None if limits is None else limits[host]
            return self._search(consumer, host, snapshot, asked, overrides, within)

        if asked.found is not None:
            if asked.found.host != host:
                raise exceptions.InvalidInput("amount", "candidate", asked.found, f"one of {host}")
            return take(asked.chosen)
        if asked.is_plain:
            try:
                return take({host: asked.amounts})
            except (exceptions.CapacityException, exceptions.InvalidInput) as refusal:
                if not refusal.matches(exceptions.CapacityException, "InvalidAmount"):
                    raise
                try:
                    found = search()
                except exceptions.NoCandidates as told:
                    raise told from refusal
                return take(found)
        return take(search())

    def _search(
        self,
        consumer: str,
        host: str,
        snapshot: Snapshot,
        asked: Asked,
        overrides: bool,
        limits: Any,
    ) -> Candidates:
        """Return where it would go on a host, as a snapshot of it says.

        :raises NoCandidates: if it goes nowhere, with the reasons
        """
        within = None if limits is None else {host: limits}
        found = snapshot.candidates(asked.whole, limits=within)
        why = None if found else found.explain()
        if why is not None and overrides and any(one.rule is Rule.DISABLED for one in why.reasons):
            found = snapshot.candidates(_of_disabled(asked.whole), limits=within)
            why = None if found else found.explain()
        if why is not None:
            raise exceptions.NoCandidates(f"no room for {consumer}", why)
        return found

    # --- what somebody claimed already ---

    def _held(self, consumer: str, host: str, asked: Asked, said: Mapping[str, Any]) -> Claim:
        """Return what a consumer holds, if it is what is asked of this host.

        If whoever claimed it did not know what the host takes besides, that is added.

        :raises AlreadyExists: if it holds something else
        """
        claim = self._ledger.get_claim(consumer)
        here = self.moves.host_of(claim)
        if here == host:
            if asked.is_held_as(claim):
                return claim
            if asked.is_held_alone(claim):
                return self._with_overhead(host, asked, claim, said)
        raise exceptions.AlreadyExists(
            "consumer",
            consumer,
            f"{claim.request or claim.amounts} of {here}, not {asked} of {host}",
        )

    def _with_overhead(
        self, host: str, asked: Asked, claim: Claim, said: Mapping[str, Any]
    ) -> Claim:
        """Let a consumer hold what the host takes for it besides, at the host itself."""
        held = with_overhead(claim.allocations, host, asked.overhead)
        own = claim.request or asked.own
        request = own.with_group(OVERHEAD, asked.overhead)
        return self._replaced(claim.replace(request=request), held, said)

    def _accepted(self, host: str, claim: Claim, said: Mapping[str, Any]) -> Claim:
        """Return a claim as the host accepts it: as it is, or with other units.

        :raises HostRefused: if it does not
        """
        if not self._refits:
            return claim
        held = self._ledger.assigned_amounts(claim.consumer)
        if self._ledger.get_claim(claim.consumer).generation != claim.generation:
            raise exceptions.Stale(
                "consumer", claim.consumer, "it was written before it was accepted"
            )
        refitted = self._driver.admit(host, claim.consumer, held)
        if refitted is None:
            return claim
        wanted = {name: Amounts.from_value(amounts) for name, amounts in refitted.items()}
        if unassigned(wanted) != unassigned(held) or page_sizes(wanted) != page_sizes(held):
            raise exceptions.InvalidInput(
                "amount",
                f"accept of {claim.consumer}",
                _told(wanted),
                f"other units of {_told(held)}",
            )
        allocations = [
            Allocation(provider=name, resource_class=kind, amount=amount)
            for name, amounts in wanted.items()
            for kind, amount in amounts.as_requested().by_name()
        ]
        try:
            return self._replaced(claim, allocations, said)
        except exceptions.CapacityException as refusal:
            told = "the other units that it wants are taken"
            raise exceptions.HostRefused(host, claim.consumer, told, refusal.reasons) from refusal

    def _replaced(
        self, claim: Claim, allocations: Iterable[Allocation], said: Mapping[str, Any]
    ) -> Claim:
        """Let a consumer hold this for the same request, if it still has what was read."""
        found = claim.replace(allocations=tuple(allocations))
        bound = {key: said[key] for key in ("limits", "ignore_maintenance") if key in said}
        return self._ledger.replace(claim.consumer, found, generation=claim.generation, **bound)

    def _made(self, host: str, claim: Claim) -> HostClaim:
        state = ClaimState.CONFIRMED if claim.state == states.CONFIRMED else ClaimState.HELD
        return HostClaim(self, host, claim.consumer, claim.amounts, state, claim)


def _within(host: str, *given: Any) -> dict[str, int] | None:
    """Return the limits of a host that all of these say; None if they bound nothing."""
    every = (limits_of({host: one}) for one in given if one is not None)
    found = functools.reduce(tighter, every, UNLIMITED)
    return {name: total for (_, name), total in found.items()} or None


def _by_name(found: Candidate) -> Candidate:
    """Return a candidate of a host that is not made yet: of providers by their names alone."""
    allocations = tuple(one.replace(provider_uuid=None) for one in found.allocations)
    return found.replace(allocations=allocations, generations=())


def _of_disabled(request: Request) -> Request:
    """Return a request that asks for what is out of service."""
    groups = (one.replace(required={*one.required, TRAIT}) for one in request.groups)
    return request.replace(groups=tuple(groups))


def _told(held: Mapping[str, Amounts]) -> str:
    return ", ".join(f"{amounts} of {name}" for name, amounts in held.items())
