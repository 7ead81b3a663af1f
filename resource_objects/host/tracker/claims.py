"""Claims on a host: planned, held, confirmed or reverted.

A planned claim is a decision, with nothing in the ledger. The other claims are those of the ledger:
every process reads the same claim, also after a crash of the process that made it.
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
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.moves import Moves, Records, Revertible
from resource_objects.host.tracker.placement import (
    OVERHEAD,
    HostRequest,
    Placer,
    add_overhead,
    page_sizes,
    search_host,
    unassigned,
)
from resource_objects.providers import Allocation, Claim
from resource_objects.providers import allocation as states
from resource_objects.providers.arguments import limits as checked_limits
from resource_objects.providers.arguments import tighter
from resource_objects.providers.orders import UNLIMITED
from resource_objects.resources import Amounts
from resource_objects.search import Candidate

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: Yields the ledger for a block that reads a host, or one in which the host is adopted already.
LedgerWith: TypeAlias = "Callable[[str], contextlib.AbstractContextManager[Ledger]]"

#: Errors by which another process released or changed a claim meanwhile.
_CHANGED = "ConsumerNotFound", "StaleConsumer"


class ClaimOptions(TypedDict, total=False):
    """The options of a claim on a host.

    ``limits`` are the maximum usage of the host itself after the claim, whatever its capacity, such
    as the totals ``"VCPU=48"`` of a scheduler. The others are those of ``ledger.claim``.
    """

    project: str | None
    user: str | None
    consumer_type: str | None
    expires_in: datetime.timedelta | None
    expires_at: datetime.datetime | None
    limits: Any  #: as ``Limits`` accepts them
    ignore_maintenance: bool


class ClaimState(enum.StrEnum):
    """The states of a claim on a host; only held and confirmed claims are in the ledger."""

    PLANNED = "planned"  #: a candidate was found; nothing is allocated
    HELD = "held"  #: allocated, not confirmed yet
    CONFIRMED = "confirmed"  #: the consumer runs, and the claim does not expire
    REVERTED = "reverted"  #: released


@dataclasses.dataclass
class HostClaim(Revertible):
    """A claim of a consumer on a host, with the state at its last read or write.

    ``claim`` is the claim of the ledger, None for a planned or reverted one. ``candidate`` is the
    placement of a planned one. In a ``with`` statement the claim is reverted if the block raises.

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
    _request: HostRequest | None = dataclasses.field(default=None, repr=False, compare=False)
    _limits: Any = dataclasses.field(default=None, repr=False, compare=False)  #: of the plan

    def __str__(self) -> str:
        return f"{self.consumer} on {self.host}: {self.state}, {self.amounts}"

    def allocate(self, **options: Unpack[ClaimOptions]) -> None:
        """Allocate the candidate of a planned claim. A repetition changes nothing.

        :param options: as for :meth:`.ResourceTracker.claim`; the limits of the plan apply too
        :raises CapacityException: if another process was faster, with the consumers
        """
        if self.state is ClaimState.PLANNED:
            options["limits"] = _tightest(self.host, self._limits, options.get("limits"))
            result = self._claims.claim(self.consumer, self.host, self._request, options)
            self.claim, self.amounts, self.state = result.claim, result.amounts, result.state

    def confirm(self) -> None:
        """Confirm that the consumer runs: the claim no longer expires. A repetition is allowed.

        :raises NotFound: if the claim is planned or reverted, or was released
        :raises Stale: if the consumer has another claim by now, or is on another host
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
        """Release the claim; a move to this host is reverted. A repetition is allowed.

        Nothing happens if it was released already, for example by a move to another host. Another
        claim of the consumer stays.

        :raises Conflict: if it is the source of a move, which decides about it
        :raises Stale: if another process confirmed it, or it is for another request by now
        """
        if self.claim is not None:
            is_confirmed = self.state is ClaimState.CONFIRMED
            self._claims.moves.release_claim(self.claim, is_confirmed=is_confirmed)
        self.claim, self.state = None, ClaimState.REVERTED


class HostClaims:
    """Plans, makes and reads the claims on hosts, as their driver admits them."""

    def __init__(
        self, ledger: Ledger, driver: Driver, ledger_with: LedgerWith, records: Records | None
    ) -> None:
        self._ledger = ledger
        self._ledger_with = ledger_with
        self._driver = driver
        self._asks_driver = type(driver).admit is not Driver.admit
        self._placer = Placer(ledger, driver)
        self.moves = Moves(ledger, self._placer, records)

    def plan(
        self, consumer: str, host: str, value: Any, ignore_maintenance: bool, limits: Any
    ) -> HostClaim:
        """Return a planned claim. Nothing is allocated.

        :param value: the request, in any form
        """
        name, request = names.consumer_name(consumer), self._placer.request(value)
        within = _tightest(host, limits)
        if request.candidate is None:
            options = {
                "ignore_maintenance": ignore_maintenance,
                "limits": None if within is None else {host: within},
            }
            with self._ledger_with(host) as ledger:
                candidate = search_host(name, request, ledger.snapshot(at=host), options)[0]
                if ledger is not self._ledger:  # the adoption creates providers of other uuids
                    allocations = (
                        allocation.replace(provider_uuid=None)
                        for allocation in candidate.allocations
                    )
                    candidate = candidate.replace(allocations=tuple(allocations), generations=())
            request = dataclasses.replace(request, candidate=candidate)
        chosen, state = request.chosen.candidate, ClaimState.PLANNED
        return HostClaim(
            self, host, name, chosen.amounts, state, None, chosen, _request=request, _limits=within
        )

    def claim(self, consumer: str, host: str, value: Any, options: ClaimOptions) -> HostClaim:
        """Allocate a request of a host, or return the claim that the consumer has for it."""
        name, request = names.consumer_name(consumer), self._placer.request(value)
        within = _tightest(host, options.get("limits"))
        limits = None if within is None else {host: within}
        checked: dict[str, Any] = {**options, "limits": limits}
        with self.moves.writing(name, host):
            attempt = functools.partial(self._claim, name, host, request, checked)
            return self._host_claim(host, self._ledger.retries.retry(attempt, *_CHANGED))

    def get_claim(self, consumer: str) -> HostClaim:
        """Return the claim of a consumer."""
        claim = self._ledger.get_claim(consumer)
        return self._host_claim(self.moves.host_of(claim), claim)

    def _host_claim(self, host: str, claim: Claim) -> HostClaim:
        state = ClaimState.CONFIRMED if claim.state == states.CONFIRMED else ClaimState.HELD
        return HostClaim(self, host, claim.consumer, claim.amounts, state, claim)

    def _claim(
        self, name: str, host: str, request: HostRequest, options: Mapping[str, Any]
    ) -> Claim:
        allocate = functools.partial(self._ledger.claim, name, **options)
        try:
            new = self._placer.place(name, host, request, allocate, options)
        except (exceptions.CapacityException, exceptions.AlreadyExists) as refusal:
            if not refusal.matches(exceptions.CapacityException, "ConsumerExists"):
                raise
            try:  # the consumer itself may use what is missing
                claim = self._existing(name, host, request, options)
            except exceptions.NotFound as error:
                if not error.is_about("consumer"):
                    raise
                if isinstance(refusal, exceptions.AlreadyExists):
                    raise  # it was released meanwhile
                raise refusal from refusal.__cause__
            return self._admit(host, claim, options)
        try:
            return self._admit_new(host, new, options)
        except BaseException:
            self.moves.release_claim(new)  # only allocations of this call are released
            raise

    def _existing(
        self, consumer: str, host: str, request: HostRequest, options: Mapping[str, Any]
    ) -> Claim:
        """Return the claim of a consumer for a request of a host, with the overhead added.

        :raises AlreadyExists: if the consumer has other allocations
        """
        claim = self._ledger.get_claim(consumer)
        current = self.moves.host_of(claim)
        if current == host and request.equals_claim(claim):
            return claim
        if current == host and request.lacks_overhead_in(claim):
            allocations = add_overhead(claim.allocations, host, request.overhead)
            stored = claim.request or request.without_overhead
            claim = claim.replace(request=stored.with_group(OVERHEAD, request.overhead))
            return self._replace(claim, allocations, options)
        raise exceptions.AlreadyExists(
            "consumer",
            consumer,
            f"{claim.request or claim.amounts} of {current}, not {request} of {host}",
        )

    def _admit_new(self, host: str, new: Claim, options: Mapping[str, Any]) -> Claim:
        """Return a new claim as the driver admits it.

        If another process released or moved it meanwhile, it is returned as it was made, and not
        made again.
        """
        try:
            return self._admit(host, new, options)
        except (exceptions.NotFound, exceptions.Stale) as error:
            if not error.matches(*_CHANGED):
                raise

            def admit(claim: Claim | None) -> Claim:
                if claim is None:
                    return new
                return self._admit(host, claim, options).replace(state=new.state)

            return self._ledger.retries.write(
                lambda: self.moves.current_claim(new), admit, *_CHANGED
            )

    def _admit(self, host: str, claim: Claim, options: Mapping[str, Any]) -> Claim:
        """Return a claim as the driver admits it: unchanged, or with other units.

        :raises HostRefused: if the driver refuses it
        """
        if not self._asks_driver:
            return claim
        assigned = self._ledger.assigned_amounts(claim.consumer)
        if self._ledger.get_claim(claim.consumer).generation != claim.generation:
            detail = "it was written before it was admitted"
            raise exceptions.Stale("consumer", claim.consumer, detail)
        admitted = self._driver.admit(host, claim.consumer, assigned)
        if admitted is None:
            return claim
        chosen = {provider: Amounts.from_value(amounts) for provider, amounts in admitted.items()}
        if unassigned(chosen) != unassigned(assigned) or page_sizes(chosen) != page_sizes(assigned):
            value, current = (
                ", ".join(f"{amounts} of {provider}" for provider, amounts in mapping.items())
                for mapping in (chosen, assigned)
            )
            raise exceptions.InvalidInput(
                "amount", f"admit of {claim.consumer}", value, f"other units of {current}"
            )
        allocations = [
            Allocation(provider=provider, resource_class=name, amount=amount)
            for provider, amounts in chosen.items()
            for name, amount in amounts.as_requested().by_name()
        ]
        try:
            return self._replace(claim, allocations, options)
        except exceptions.CapacityException as refusal:
            detail = "the units that its driver chose are allocated"
            raise exceptions.HostRefused(host, claim.consumer, detail, refusal.reasons) from refusal

    def _replace(
        self, claim: Claim, allocations: Iterable[Allocation], options: Mapping[str, Any]
    ) -> Claim:
        """Replace the allocations of a claim, if the consumer still has it as it was read."""
        bounds = {key: options[key] for key in ("limits", "ignore_maintenance") if key in options}
        return self._ledger.replace(
            claim.consumer,
            claim.replace(allocations=tuple(allocations)),
            generation=claim.generation,
            **bounds,
        )


def _tightest(host: str, *values: Any) -> dict[str, int] | None:
    """Return the limits of a host that satisfy all values; None without limits."""
    limits = (checked_limits({host: value}) for value in values if value is not None)
    totals = functools.reduce(tighter, limits, UNLIMITED)
    return {name: total for (_, name), total in totals.items()} or None
