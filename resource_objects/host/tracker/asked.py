"""What is asked of one host, in whichever form: how it is searched, and whether it is held already.

Text, amounts and a request all say the same; a candidate or a claim says also where. What the host
takes besides for each consumer (its *overhead*) is a group of its own, :data:`OVERHEAD`, of what is
claimed: so it is told apart from what the consumer asked for, and a move leaves it behind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeAlias

from resource_objects.exceptions import InvalidInput
from resource_objects.providers import Allocation, Claim
from resource_objects.requests import Request
from resource_objects.resources import Amount, Amounts
from resource_objects.resources.numa import NUMATopologyAmount
from resource_objects.resources.numa.cells import ANY, LARGE
from resource_objects.search.candidate import Candidate, Chosen

#: The overhead of a host for a consumer, in addition to the requested amounts.
Overhead: TypeAlias = Callable[[Amounts], Any]

#: The group of a request that asks for the overhead.
OVERHEAD = "overhead"

_NOTHING = Amounts()

#: How often it is guessed what an overhead was added to.
_ROUNDS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What a consumer asks of a host.

    ``request`` is what it asks under conditions; None if amounts are all that it says. ``found`` is
    where a search would put it, if somebody searched already.

    >>> asked = Asked.of("VCPU=2,MEMORY_MB=4096", lambda amounts: "MEMORY_MB=128")
    >>> print(asked)
    VCPU=2,MEMORY_MB=4096; overhead: MEMORY_MB=128
    >>> print(Asked.of(Request("VCPU=2", required=["CUSTOM_SSD"])))
    VCPU=2 required=CUSTOM_SSD
    """

    amounts: Amounts
    request: Request | None = None
    overhead: Amounts = _NOTHING
    found: Candidate | None = None

    @classmethod
    def of(cls, given: Any, overhead: Overhead | None = None) -> Self:
        """Return what is asked by text, amounts, a request, a candidate or a claim.

        :raises InvalidInput: if it is nothing of the kind, or asks for nothing
        """
        found = None
        if isinstance(given, Claim):
            given = given.amounts if given.request is None else _without_overhead(given.request)
        elif isinstance(given, Candidate):
            found, given = given, _own_of(given, overhead)
        if isinstance(given, Request):
            amounts = given.resources
            request = None if _is_plain(given) else given
            if request is None:
                amounts = given.unnamed.resources
        else:
            amounts, request = Amounts.from_value(given), None
        if not amounts:
            Request(amounts)  # raises: it asks for nothing
        besides = _NOTHING if overhead is None else Amounts.from_value(overhead(amounts))
        return cls(amounts, request, besides, found)

    def __str__(self) -> str:
        return str(self.whole)

    @property
    def chosen(self) -> Chosen:
        """What was found, with the overhead: who searched may not have known of it."""
        found = self.found
        assert found is not None, "somebody searched"
        if self.overhead and OVERHEAD not in found.mappings:
            found = found.replace(
                allocations=with_overhead(found.allocations, found.host, self.overhead),
                mappings={**found.mappings, OVERHEAD: (found.host,)},
            )
        return Chosen(found, self.whole)

    @property
    def own(self) -> Request:
        """The amounts that the consumer requests, without the overhead."""
        return Request(self.amounts) if self.request is None else self.request

    @property
    def whole(self) -> Request:
        """The claimed amounts, with the overhead."""
        return self.own.with_group(OVERHEAD, self.overhead) if self.overhead else self.own

    @property
    def is_plain(self) -> bool:
        """Whether amounts say it all, so that the ledger decides where they go."""
        return self.request is None and not self.overhead and self.found is None

    def is_held_as(self, claim: Claim) -> bool:
        """Return whether a claim is for just this.

        Where one side only says amounts, these are compared. A size of pages that was left open is
        whichever the claim settled for.
        """
        return _is_same(self.whole, claim, self.request is not None)

    def is_held_alone(self, claim: Claim) -> bool:
        """Return whether a claim is for this without the overhead: somebody else made it."""
        return bool(self.overhead) and _is_same(self.own, claim, self.request is not None)

    def is_of(self, claim: Claim) -> bool:
        """Return whether a claim is for this, with the overhead or not yet."""
        return self.is_held_as(claim) or self.is_held_alone(claim)

    def with_page_sizes(self, held: Iterable[Amount]) -> Self:
        """Return this with the pages that a consumer has: memory can be copied into no others.

        :param held: the assigned amounts that it has
        :raises InvalidInput: if it asks for other pages
        """
        sizes = {size for amount in held for size in _page_sizes(amount)}
        topology = _topology(self.own)
        if topology is None or not sizes:
            return self
        text = "+".join(sorted(sizes))
        if len(sizes) == 1 and topology.page_size in (LARGE, ANY):
            return self._with_topology(topology.replace(page_size=text))
        if {topology.page_size if topology.page_size.isdigit() else ""} != sizes:
            shown = f"pages of {text} KiB" if text else "ordinary memory"
            raise InvalidInput("move", "page size", topology.page_size, f"{shown}, as it has")
        return self

    def _with_topology(self, topology: NUMATopologyAmount) -> Self:
        request = _with_topology(self.own, topology)
        if self.request is None:
            return dataclasses.replace(self, amounts=request.unnamed.resources)
        return dataclasses.replace(self, amounts=request.resources, request=request)


def with_overhead(
    allocations: Iterable[Allocation], host: str, overhead: Amounts
) -> tuple[Allocation, ...]:
    """Return allocations with what a host takes besides, at the host itself."""
    missing = dict(overhead.by_name())
    held: list[Allocation] = []
    for one in allocations:
        if one.provider == host and one.resource_class in missing:
            more: Any = missing.pop(one.resource_class)
            one = one.replace(amount=one.amount + more)
        held.append(one)
    for kind, amount in missing.items():
        held.append(Allocation(provider=host, resource_class=kind, amount=amount))
    return tuple(held)


def unassigned(held: Mapping[str, Amounts]) -> Amounts:
    """Return what is held over the providers of a host, summed, and without where it is."""
    total = _NOTHING
    for amounts in held.values():
        total += Amounts({kind: amount.unassigned() for kind, amount in amounts.by_name()})
    return total


def page_sizes(held: Mapping[str, Amounts]) -> list[str]:
    """Return the sizes of the pages that are held, of each guest cell, in KiB; "" for ordinary."""
    every = (amount for amounts in held.values() for amount in amounts.values())
    return [size for amount in every for size in _page_sizes(amount)]


def _page_sizes(amount: Amount) -> list[str]:
    if not isinstance(amount, NUMATopologyAmount):
        return []
    pairs = zip(amount.cells, amount.placed, strict=bool(amount.placed))
    return [str(on.page_size_kib or "") for cell, on in pairs if cell.memory_mb]


def _is_plain(request: Request) -> bool:
    """Return whether a request says no more than amounts."""
    return not (
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


def _own_of(found: Candidate, overhead: Overhead | None) -> Amounts:
    """Return what a candidate takes, without the overhead if whoever searched knew of it.

    :raises InvalidInput: if that is another overhead than is known here
    """
    whole = _located_of(found)
    if overhead is None or OVERHEAD not in found.mappings:
        return whole
    own = whole
    for _ in range(_ROUNDS):  # it may depend on the amounts that it is added to
        besides = Amounts.from_value(overhead(own))
        if own + besides == whole:
            return own
        own = whole - besides
    raise InvalidInput("amount", "candidate", found, "one with the overhead that its host takes")


def _located_of(found: Candidate) -> Amounts:
    """Return what a candidate takes: what is located as it is, counts summed."""
    counts = found.amounts
    located = {kind: amount.unassigned() for kind, amount in found.located.items()}
    return counts if not located else Amounts({**dict(counts.by_name()), **located})


def _is_same(asked: Request, claim: Claim, has_conditions: bool) -> bool:
    """Return whether a claim is for a request."""
    if claim.request is None:
        return claim.amounts == asked.resources
    held = claim.request
    asked = _as_specific(asked, held)
    if not has_conditions:
        return held.resources == asked.resources
    return _counted(held) == _counted(asked)


def _counted(request: Request) -> Request:
    """Return a request in the one form of all that say the same counts."""
    group = request.unnamed
    return request.with_unnamed(
        group.replace(resources=group.resources.with_implied_counts().as_requested())
    )


def _as_specific(asked: Request, held: Request) -> Request:
    """Return a request with the size of pages of one that is held, if it left that open."""
    mine, theirs = _topology(asked), _topology(held)
    if mine is None or theirs is None or mine.page_size not in (LARGE, ANY):
        return asked
    return _with_topology(asked, mine.replace(page_size=theirs.page_size))


def _topology(request: Request) -> NUMATopologyAmount | None:
    for _, amount in request.unnamed.resources.by_name():
        if isinstance(amount, NUMATopologyAmount):
            return amount
    return None


def _with_topology(request: Request, topology: NUMATopologyAmount) -> Request:
    group = request.unnamed
    amounts = Amounts({**dict(group.resources.as_requested().by_name()), "NUMA_TOPOLOGY": topology})
    return request.with_unnamed(group.replace(resources=amounts))
