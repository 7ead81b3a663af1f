"""Demands: what a claim allocates, in the one form that the ledger assigns and writes.

A :class:`Demand` is made of candidates, of allocations or of amounts by provider. A placed amount
(a topology, devices) is requested of its host and assigned later, on rows that were just read
(:mod:`.assign`). Counts that a placed amount next to them locates are stated twice, and left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from resource_objects import exceptions, names
from resource_objects._fast import set_directly
from resource_objects.fields import FrozenDict
from resource_objects.providers import Allocation, Claim
from resource_objects.providers.orders import Use
from resource_objects.requests import Request
from resource_objects.resources import Amount, Amounts, amounts, resource
from resource_objects.search.candidates import Candidate, Candidates, Chosen

#: What a method that allocates accepts: candidates of a search; one candidate, also with its
#: request; several candidates, of which the first free one is meant; allocations with their units,
#: also those of a claim; or ``{provider: amounts}``.
Claimable: TypeAlias = (
    Candidates
    | Candidate
    | Chosen
    | Claim
    | Sequence[Candidate]
    | Sequence[Allocation]
    | Mapping[str, Any]
)
#: From names and uuids of providers to their uuids, read at once.
Resolve: TypeAlias = Callable[[Collection[str]], Mapping[str, str]]

_CLAIMABLE = "candidates, allocations, or a mapping of provider names to amounts"


@dataclasses.dataclass(frozen=True, slots=True)
class LocatedDemand:
    """A placed amount, requested of its host or, if it is negative, released there."""

    host: str  #: uuid
    resource_class: str
    amount: Amount

    @property
    def is_open(self) -> bool:
        """Whether the amount is still to be assigned."""
        return not self.amount.is_assigned


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """One complete way to meet a request: what to use of which provider.

    ``definitions`` are those on which a search decided, ``(provider's uuid, generation)``.
    ``required`` are the definitions of the providers whose parts it was placed on: without these it
    means other parts, so every write requires them. ``names`` are provider names by uuid, as far as
    they are known. ``located`` are placed amounts that must be assigned before the demand can be
    written, near the ``retained`` amounts of the consumer (by provider name) on the same host.
    """

    uses: tuple[Use, ...]
    request: Request | None = None
    definitions: tuple[tuple[str, int], ...] = ()
    required: tuple[tuple[str, int], ...] = ()
    names: Mapping[str, str] = FrozenDict()
    host: str | None = None
    located: tuple[LocatedDemand, ...] = ()
    retained: Mapping[str, Amounts] = FrozenDict()

    @property
    def is_open(self) -> bool:
        """Whether a placed amount is still to be assigned."""
        return any(located.is_open for located in self.located)

    @property
    def names_units(self) -> bool:
        """Whether a use names units."""
        return _name_units(self.uses)

    def requires(self, subject: str) -> bool:
        """Return whether a required definition is that of a provider, by name or uuid."""
        return any(subject in (uuid, self.names.get(uuid)) for uuid, _ in self.required)


def _name_units(uses: Iterable[Use]) -> bool:
    for use in uses:  # noqa: SIM110  # a generator costs more, on the way of every claim
        if use.units:
            return True
    return False


def demands_of(candidates: Any, resolve: Resolve, method: str) -> Iterator[Demand]:
    """Yield the demand of each candidate, in their order; none for an empty search.

    :param method: the method that allocates, for errors
    :raises InvalidInput: if the candidates are not :data:`Claimable`
    :raises SearchLimitReached: if the search was cut short before it found a candidate
    :raises NotFound: if a named provider does not exist
    """
    if isinstance(candidates, Candidates):
        yield from _of_candidates(candidates, candidates.request, resolve)
    elif isinstance(candidates, Candidate):
        yield from _of_candidates([candidates], None, resolve)
    elif isinstance(candidates, Chosen):
        yield from _of_candidates([candidates.candidate], candidates.request, resolve)
    elif isinstance(candidates, Claim):
        yield _of_allocations(candidates.allocations, resolve, method, candidates.request)
    elif isinstance(candidates, list | tuple) and candidates:
        if isinstance(candidates[0], Candidate):
            yield from _of_candidates(candidates, None, resolve)
        else:
            yield _of_allocations(candidates, resolve, method)
    else:
        yield demand_of(candidates, resolve, method)


def providers_in(candidates: Any) -> Iterator[str]:
    """Yield the providers that candidates name, by name or uuid."""
    if isinstance(candidates, Mapping):
        yield from map(names.provider_key, candidates)
    elif isinstance(candidates, Claim | list | tuple):
        parts = candidates.allocations if isinstance(candidates, Claim) else candidates
        for allocation in parts:
            if isinstance(allocation, Allocation):
                yield allocation.provider_uuid or allocation.provider


def _of_candidates(
    candidates: Iterable[Candidate], request: Request | None, resolve: Resolve
) -> Iterator[Demand]:
    for candidate in candidates:
        if not isinstance(candidate, Candidate):
            raise exceptions.InvalidInput("amount", "claim", candidate, "a candidate")
        whole = request
        if request is None and candidate.located:  # so that it can be assigned again
            whole = Request(
                {kind: amount.unassigned() for kind, amount in candidate.located.items()}
            )
        yield _of_allocations(candidate.allocations, resolve, "claim", whole, candidate)


def _of_allocations(
    allocations: Sequence[Any],
    resolve: Resolve,
    method: str,
    request: Request | None = None,
    candidate: Candidate | None = None,
) -> Demand:
    demand = _demand(_of_list(allocations, method), resolve, method, allocations)
    uses, request = demand.uses, request or demand.request
    known = {
        part.provider_uuid: part.provider for part in allocations if part.provider_uuid is not None
    }
    if candidate is None:
        return Demand(uses, request, names=known, located=demand.located)
    required = _required(candidate, uses, known)
    return Demand(
        uses, request, candidate.generations, required, known, candidate.host, demand.located
    )


def _required(
    candidate: Candidate, uses: Collection[Use], known: Mapping[str, str]
) -> tuple[tuple[str, int], ...]:
    """Return the definitions of the providers whose parts a candidate was placed on."""
    if not candidate.located and not _name_units(uses):
        return ()
    counted = {use.resource_class for use in uses}
    located: set[str] = set()
    for kind, amount in candidate.located.items():
        located.update(amount.located, *resource(kind).lower_bounds(amount, counted))
    uuids = {
        use.provider_uuid
        for use in uses
        if use.units
        or (use.resource_class in located and known.get(use.provider_uuid) != candidate.host)
    }
    return tuple(pair for pair in candidate.generations if pair[0] in uuids)


def demand_of(
    allocations: Any,
    resolve: Resolve,
    method: str,
    *,
    give_back: bool = False,
    aggregate: bool = False,
) -> Demand:
    """Return the demand of allocations or of ``{provider: amounts}``, checked before any read.

    It has a request if there is a placed amount; else none.

    :param give_back: whether amounts may be negative
    :param aggregate: whether the consumer stands for many, which may hold several placed amounts
        of a class
    :raises InvalidInput: for another type, or without any amount; for a negative amount without
        ``give_back``; for a count that contradicts the amount that locates it; for two placed
        amounts of a class, or a provider that is named twice
    """
    read = _of_mapping if isinstance(allocations, Mapping) else _of_list
    return _demand(read(allocations, method), resolve, method, allocations, give_back, aggregate)


class _Requested(NamedTuple):
    """An amount of a provider that is not looked up yet."""

    provider: str  # name or uuid
    resource_class: str
    amount: Any
    units: tuple[str, ...] = ()

    @property
    def is_located(self) -> bool:
        return self.amount.locates and resource(self.resource_class).is_located


def _of_list(allocations: Any, method: str) -> Iterator[_Requested]:
    for part in allocations if isinstance(allocations, list | tuple) else (None,):
        if not isinstance(part, Allocation):
            raise exceptions.InvalidInput("amount", method, allocations, _CLAIMABLE)
        provider = part.provider_uuid or part.provider
        yield _Requested(provider, part.resource_class, part.amount, part.units)


def _of_mapping(by_provider: Mapping[Any, Any], method: str) -> Iterator[_Requested]:
    seen: set[str] = set()
    for name, texts in by_provider.items():
        key = names.provider_key(name)
        if key in seen:
            raise exceptions.InvalidInput("repetition", method, name, "each provider once")
        seen.add(key)
        for kind, amount in Amounts.of(texts).bare().by_name():
            yield _Requested(key, kind, amount)


def _demand(
    requested: Iterable[_Requested],
    resolve: Resolve,
    method: str,
    allocations: Any,
    give_back: bool = False,
    aggregate: bool = False,
) -> Demand:
    """Return the demand of requested amounts; see :func:`demand_of`.

    :param allocations: as they were passed, for errors
    """
    parts = [part for part in requested if not part.amount.is_zero]
    if not give_back:
        _check_not_negative(parts)
    placed = [part for part in parts if part.is_located]
    if not parts:
        raise exceptions.InvalidInput(
            "amount", method, allocations, "something to take or give back"
        )
    if placed and not aggregate:
        _check_one_of_a_class(placed, method)
    counted = _without_located(parts) if placed else parts
    uuids = resolve(list(dict.fromkeys([part.provider for part in parts])))
    uses: list[Use] = []
    for part in counted:
        for record in part.amount.to_records(part.resource_class):
            units = record.units or part.units  # a structured amount names its units itself
            uses.append(Use(uuids[part.provider], record.resource_class, record.amount, units))
    if not placed:
        return Demand(tuple(uses))
    located = tuple(
        LocatedDemand(uuids[part.provider], part.resource_class, part.amount) for part in placed
    )
    keys = [(demand.host, demand.resource_class) for demand in located]
    if len(set(keys)) != len(keys):  # by name and by uuid
        raise exceptions.InvalidInput("repetition", method, keys, "each provider once")
    return Demand(tuple(uses), _request(placed, counted), located=located)


def _check_not_negative(parts: Iterable[_Requested]) -> None:
    for part in parts:
        if part.amount.is_negative:
            raise exceptions.InvalidInput(
                "negative amount",
                part.resource_class,
                part.amount,
                "0 or more; give back by release",
            )


def _request(placed: Iterable[_Requested], counted: Iterable[_Requested]) -> Request | None:
    """Return the request of placed amounts and the counts next to them.

    Return None if all placed amounts are released.
    """
    requested = {part.resource_class: part.amount for part in placed if not part.amount.is_negative}
    if not requested:
        return None
    located = {name for amount in requested.values() for name in amount.located}
    for part in counted:
        name = part.resource_class
        if name not in located and not part.amount.is_negative:
            before = requested.get(name)
            requested[name] = part.amount if before is None else before + part.amount
    return Request(requested)


def _without_located(parts: Sequence[_Requested]) -> list[_Requested]:
    """Return the counts without those that a placed amount next to them locates."""
    located: set[tuple[str, str]] = set()
    for provider in dict.fromkeys(part.provider for part in parts):
        here = {part.resource_class: part.amount for part in parts if part.provider == provider}
        joint = amounts.split(Amounts(here))
        if joint is not None:
            located.update((provider, name) for name in joint.stated)
    return [
        part
        for part in parts
        if not part.is_located and (part.provider, part.resource_class) not in located
    ]


def _check_one_of_a_class(placed: Iterable[_Requested], method: str) -> None:
    """Raise for two placed amounts of a class: their units could not be told apart later."""
    hosts: dict[str, str] = {}
    for part in placed:
        if part.amount.is_negative:
            continue
        if part.resource_class in hosts:
            raise exceptions.InvalidInput(
                "amount",
                f"{method}: {part.resource_class}",
                [hosts[part.resource_class], part.provider],
                "one host: what is on several is held by a consumer for each (claim_all)",
            )
        hosts[part.resource_class] = part.provider


def merged_request(
    before: Request | None, more: Request, released: Collection[str] = ()
) -> Request:
    """Return a request with further amounts, in place of placed amounts of the same class.

    :param released: classes of which nothing is requested any more, apart from ``more``

    >>> print(merged_request(Request("DISK_GB=2,VCPU=1"), Request("DISK_GB=1,MEMORY_MB=5")))
    VCPU=1,MEMORY_MB=5,DISK_GB=3
    """
    if before is None:
        return more
    group, added = before.unnamed, more.unnamed.resources
    replaced = {*released, *(name for name, amount in added.by_name() if amount.locates)}
    located = {name for amount in added.values() for name in amount.located}
    joint = amounts.split(group.resources)
    if joint is None:
        previous = dict(group.resources.by_name())
    else:
        previous = {**joint.others, **joint.located}
    resources = added + Amounts(
        {
            name: amount
            for name, amount in previous.items()
            if name not in located and name not in replaced
        }
    )
    traits_of = tuple(pair for pair in group.traits_of if pair[0] in resources.names())
    return before.with_unnamed(group.replace(resources=resources, traits_of=traits_of))
