"""Requests of one host: their forms, and where their amounts are placed.

Text, amounts and requests are equivalent. A candidate or a claim also has allocations. The
*overhead* of the host for each consumer is a separate group of the claimed request,
:data:`OVERHEAD`. So it can be told from the consumer's request, and a move does not repeat it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from resource_objects import exceptions
from resource_objects.host.tracker.driver import Driver
from resource_objects.ledger.feed import snapshot_in_place
from resource_objects.providers import Allocation, Claim
from resource_objects.providers.disabled import TRAIT
from resource_objects.reasons import Rule
from resource_objects.requests import Request
from resource_objects.resources import Amount, Amounts
from resource_objects.resources.numa import NUMATopologyAmount
from resource_objects.resources.numa.cells import ANY, LARGE
from resource_objects.search import Candidates, Snapshot
from resource_objects.search.candidate import Candidate, Chosen

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: Returns the overhead of a host for the requested amounts, which it does not include.
Overhead: TypeAlias = Callable[[Amounts], Any]

#: The group of a request that has the overhead.
OVERHEAD = "overhead"

_NOTHING = Amounts()

#: The number of guesses of the amounts that an overhead was added to.
_GUESSES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class HostRequest:
    """The amounts and conditions that a consumer requests of a host, and the overhead.

    ``request`` is None if it consists of amounts only. ``candidate`` is the result of an earlier
    search.

    >>> request = HostRequest.of("VCPU=2,MEMORY_MB=4096", lambda amounts: "MEMORY_MB=128")
    >>> print(request)
    VCPU=2,MEMORY_MB=4096; overhead: MEMORY_MB=128
    >>> print(HostRequest.of(Request("VCPU=2", required=["CUSTOM_SSD"])))
    VCPU=2 required=CUSTOM_SSD
    """

    amounts: Amounts
    request: Request | None = None
    overhead: Amounts = _NOTHING
    candidate: Candidate | None = None

    @classmethod
    def of(cls, value: Any, overhead: Overhead | None = None) -> Self:
        """Return the request of text, amounts, a request, a candidate or a claim.

        :param overhead: returns the overhead of the host for the requested amounts, as amounts in
            any form; None: without overhead. The overhead in a claim is replaced
        :raises InvalidInput: for another value, or an empty request
        """
        candidate = None
        if isinstance(value, Claim):
            value = value.amounts if value.request is None else _without_overhead(value.request)
        elif isinstance(value, Candidate):
            candidate, value = value, _requested_by(value, overhead)
        request = None
        if not isinstance(value, Request):
            amounts = Amounts.from_value(value)
        elif _has_conditions(value):
            amounts, request = value.resources, value
        else:
            amounts = value.unnamed.resources
        if not amounts:
            Request(amounts)  # raises the error for an empty request
        more = _NOTHING if overhead is None else Amounts.from_value(overhead(amounts))
        return cls(amounts, request, more, candidate)

    def __str__(self) -> str:
        return str(self.with_overhead)

    @property
    def chosen(self) -> Chosen:
        """The candidate with the overhead, which the search may have left out."""
        candidate = self.candidate
        assert candidate is not None, "the result of a search"
        if self.overhead and OVERHEAD not in candidate.mappings:
            host = candidate.host
            candidate = candidate.replace(
                allocations=add_overhead(candidate.allocations, host, self.overhead),
                mappings={**candidate.mappings, OVERHEAD: (host,)},
            )
        return Chosen(candidate, self.with_overhead)

    @property
    def without_overhead(self) -> Request:
        """The request of the consumer."""
        return Request(self.amounts) if self.request is None else self.request

    @property
    def with_overhead(self) -> Request:
        """The request to claim, with the overhead."""
        request = self.without_overhead
        return request.with_group(OVERHEAD, self.overhead) if self.overhead else request

    def equals_claim(self, claim: Claim) -> bool:
        """Return True if a claim has exactly this request.

        If either has no conditions, only amounts are compared. An open page size equals the one
        that the claim chose.
        """
        return _equals_claim(self.with_overhead, claim, self.request is not None)

    def lacks_overhead_in(self, claim: Claim) -> bool:
        """Return True if a claim has this request without the overhead: another program made it."""
        return bool(self.overhead) and _equals_claim(
            self.without_overhead, claim, self.request is not None
        )

    def with_page_sizes(self, assigned: Iterable[Amount]) -> Self:
        """Return the request with the page sizes of a consumer, which a live migration retains.

        :param assigned: the assigned amounts of the consumer
        :raises InvalidInput: if the request has another page size
        """
        sizes = {size for amount in assigned for size in _page_sizes(amount)}
        topology = _topology(self.without_overhead)
        if topology is None or not sizes:
            return self
        text = "+".join(sorted(sizes))
        if len(sizes) == 1 and topology.page_size in (LARGE, ANY):
            topology = topology.replace(page_size=text)
            request = _with_topology(self.without_overhead, topology)
            if self.request is None:
                return dataclasses.replace(self, amounts=request.unnamed.resources)
            return dataclasses.replace(self, amounts=request.resources, request=request)
        if {topology.page_size if topology.page_size.isdigit() else ""} != sizes:
            expected = f"pages of {text} KiB" if text else "ordinary memory"
            raise exceptions.InvalidInput(
                "move", "page size", topology.page_size, f"{expected}, as the consumer has"
            )
        return self


class Placer:
    """Decides where requests of a host are placed, and allocates them there."""

    def __init__(self, ledger: Ledger, driver: Driver) -> None:
        self._ledger = ledger
        self._driver = driver

    def request(self, value: Any) -> HostRequest:
        """Return a value as the request of a host, with the overhead that the driver reports."""
        return (
            value
            if isinstance(value, HostRequest)
            else HostRequest.of(value, self._driver.overhead)
        )

    def place(
        self,
        consumer: str,
        host: str,
        request: HostRequest,
        allocate: Callable[[Any], Claim],
        options: Mapping[str, Any],
        *,
        in_place: bool = False,
        moves: bool = False,
    ) -> Claim:
        """Allocate a request on a host, completely or not at all.

        Amounts without conditions are first requested of the host itself, which the ledger decides
        as it writes. If it refuses, the tree of the host is searched: children may have them, and
        otherwise the search has the reasons.

        :param allocate: allocates a choice: amounts by provider, or the result of a search
        :param options: ``limits``, ``{host: limits}`` or None, and ``ignore_maintenance``
        :param in_place: whether the consumer releases its allocations in the same write
        :param moves: whether the amounts of pools of both hosts are counted once
        """

        def search() -> Candidates:
            if in_place or moves:
                backend = self._ledger.backend
                snapshot = snapshot_in_place(backend, consumer, host, pools_only=not in_place)
            else:
                snapshot = self._ledger.snapshot(at=host)
            return search_host(consumer, request, snapshot, options)

        if request.candidate is not None:
            if request.candidate.host != host:
                raise exceptions.InvalidInput(
                    "amount", "candidate", request.candidate, f"one of {host}"
                )
            return allocate(request.chosen)
        if request.request is None and not request.overhead:
            try:
                return allocate({host: request.amounts})
            except (exceptions.CapacityException, exceptions.InvalidInput) as refusal:
                if not refusal.matches(exceptions.CapacityException, "InvalidAmount"):
                    raise
                try:
                    candidates = search()
                except exceptions.NoCandidates as explained:
                    raise explained from refusal
                return allocate(candidates)
        return allocate(search())


def search_host(
    consumer: str, request: HostRequest, snapshot: Snapshot, options: Mapping[str, Any]
) -> Candidates:
    """Return the candidates of a request in a snapshot of a host.

    :param options: as for :meth:`Placer.place`
    :raises NoCandidates: if there are none, with the reasons
    """
    limits = options.get("limits")
    candidates = snapshot.candidates(request.with_overhead, limits=limits)
    if candidates:
        return candidates
    explanation = candidates.explain()
    is_disabled = any(reason.rule is Rule.DISABLED for reason in explanation.reasons)
    if options.get("ignore_maintenance") and is_disabled:
        disabled = request.with_overhead
        groups = tuple(
            group.replace(required={*group.required, TRAIT}) for group in disabled.groups
        )
        candidates = snapshot.candidates(disabled.replace(groups=groups), limits=limits)
        if candidates:
            return candidates
        explanation = candidates.explain()
    raise exceptions.NoCandidates(f"no room for {consumer}", explanation)


def add_overhead(
    allocations: Iterable[Allocation], host: str, overhead: Amounts
) -> tuple[Allocation, ...]:
    """Return allocations with the overhead, which is allocated from the host itself."""
    missing = dict(overhead.by_name())
    total: list[Allocation] = []
    for allocation in allocations:
        if allocation.provider == host and allocation.resource_class in missing:
            more: Any = missing.pop(allocation.resource_class)
            allocation = allocation.replace(amount=allocation.amount + more)
        total.append(allocation)
    for name, amount in missing.items():
        total.append(Allocation(provider=host, resource_class=name, amount=amount))
    return tuple(total)


def unassigned(assigned: Mapping[str, Amounts]) -> Amounts:
    """Return the sum of the amounts of all providers, without their placement."""
    total = _NOTHING
    for amounts in assigned.values():
        total += Amounts({name: amount.unassigned() for name, amount in amounts.by_name()})
    return total


def page_sizes(assigned: Mapping[str, Amounts]) -> list[str]:
    """Return the page sizes of each guest cell in KiB; "" for ordinary memory."""
    amounts = (amount for amounts in assigned.values() for amount in amounts.values())
    return [size for amount in amounts for size in _page_sizes(amount)]


def _page_sizes(amount: Amount) -> list[str]:
    if not isinstance(amount, NUMATopologyAmount):
        return []
    pairs = zip(amount.cells, amount.placed, strict=bool(amount.placed))
    return [str(placed.page_size_kib or "") for cell, placed in pairs if cell.memory_mb]


def _has_conditions(request: Request) -> bool:
    return bool(
        request.named
        or request.unnamed.has_conditions
        or request.root_required
        or request.root_forbidden
        or request.compatibility
        or request.near
    )


def _without_overhead(request: Request) -> Request:
    groups = tuple(group for group in request.groups if group.suffix != OVERHEAD)
    return request if len(groups) == len(request.groups) else request.replace(groups=groups)


def _requested_by(candidate: Candidate, overhead: Overhead | None) -> Amounts:
    """Return the amounts of a candidate, without the overhead if the search included it.

    :raises InvalidInput: if the candidate has another overhead
    """
    placed = {name: amount.unassigned() for name, amount in candidate.located.items()}
    total = (
        Amounts({**dict(candidate.amounts.by_name()), **placed}) if placed else candidate.amounts
    )
    if overhead is None or OVERHEAD not in candidate.mappings:
        return total
    amounts = total
    for _ in range(_GUESSES):  # the overhead may depend on the amounts it is added to
        more = Amounts.from_value(overhead(amounts))
        if amounts + more == total:
            return amounts
        amounts = total - more
    raise exceptions.InvalidInput(
        "amount", "candidate", candidate, "one with the overhead of its host"
    )


def _equals_claim(request: Request, claim: Claim, has_conditions: bool) -> bool:
    stored = claim.request
    if stored is None:
        return claim.amounts == request.resources
    topology, chosen = _topology(request), _topology(stored)
    if topology is not None and chosen is not None and topology.page_size in (LARGE, ANY):
        request = _with_topology(request, topology.replace(page_size=chosen.page_size))
    if not has_conditions:
        return stored.resources == request.resources
    return _with_counts_only(stored) == _with_counts_only(request)


def _with_counts_only(request: Request) -> Request:
    """Return a request in the one form of all requests with the same counts."""
    group = request.unnamed
    return request.with_unnamed(
        group.replace(resources=group.resources.with_implied_counts().as_requested())
    )


def _topology(request: Request) -> NUMATopologyAmount | None:
    for _, amount in request.unnamed.resources.by_name():
        if isinstance(amount, NUMATopologyAmount):
            return amount
    return None


def _with_topology(request: Request, topology: NUMATopologyAmount) -> Request:
    group = request.unnamed
    amounts = Amounts({**dict(group.resources.as_requested().by_name()), "NUMA_TOPOLOGY": topology})
    return request.with_unnamed(group.replace(resources=amounts))
