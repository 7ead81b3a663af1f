"""Demands: what a claim allocates, in the one form that the ledger assigns and writes.

A :class:`Demand` is made of candidates, of allocations or of amounts by provider. A placed amount
(a topology, devices) is requested of its host and assigned later, on rows that were just read
(:mod:`.assign`). Counts that a placed amount next to them locates are stated twice, and left out.

:class:`ClaimOptions` are the other arguments of the methods that allocate, checked.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from resource_objects import exceptions, names
from resource_objects._dataclass import fast_init
from resource_objects.fields import FrozenDict
from resource_objects.providers import Allocation, Claim
from resource_objects.providers.arguments import expiry, generation
from resource_objects.providers.arguments import limits as checked_limits
from resource_objects.providers.disabled import TRAIT
from resource_objects.providers.orders import UNLIMITED, StoredRequest, Use, UseLimits
from resource_objects.requests import Request
from resource_objects.resources import Amounts, amounts, resource
from resource_objects.search.candidate import Candidate, Chosen
from resource_objects.search.candidates import Candidates

#: The values that a method that allocates accepts: candidates of a search; one candidate, also with
#: its request; several candidates, of which the first free one is meant; allocations with their
#: units, also those of a claim; or ``{provider: amounts}``.
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


class RequestedAmount(NamedTuple):
    """An amount requested of a provider or, if it is negative, released there."""

    provider: str  #: uuid; until it is looked up also a name
    resource_class: str
    amount: Any
    units: tuple[str, ...] = ()

    @property
    def is_placed(self) -> bool:
        """Whether it is a placed amount."""
        return self.amount.is_placed and resource(self.resource_class).is_placed


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """One complete way to meet a request: what to use of which provider.

    ``definitions`` are those on which a search decided, ``(provider's uuid, generation)``.
    ``required`` are the definitions of the providers whose parts it was placed on: without these it
    means other parts, so every write requires them. ``names`` are provider names by uuid, as far as
    they are known. ``located`` are placed amounts of hosts that must be assigned before the demand
    can be written, near the ``retained`` amounts of the consumer (by provider name) on the same
    host.
    """

    uses: tuple[Use, ...]
    request: Request | None = None
    definitions: tuple[tuple[str, int], ...] = ()
    required: tuple[tuple[str, int], ...] = ()
    names: Mapping[str, str] = FrozenDict()
    host: str | None = None
    located: tuple[RequestedAmount, ...] = ()
    retained: Mapping[str, Amounts] = FrozenDict()

    @property
    def is_open(self) -> bool:
        """Whether a placed amount is still to be assigned."""
        return any(not located.amount.is_assigned for located in self.located)

    @property
    def names_units(self) -> bool:
        """Whether a use names units."""
        for use in self.uses:  # noqa: SIM110  # a generator costs more, on the way of every claim
            if use.units:
                return True
        return False

    def named_units(self) -> tuple[Use, ...]:
        """Return the uses that name units of providers whose definition is not known yet."""
        required = {uuid for uuid, _ in self.required}
        return tuple(
            use
            for use in self.uses
            if use.units and use.amount > 0 and use.provider_uuid not in required
        )

    def requires(self, subject: str) -> bool:
        """Return whether a required definition is that of a provider, by name or uuid."""
        return any(subject in (uuid, self.names.get(uuid)) for uuid, _ in self.required)


#: Demands by consumer.
Demands: TypeAlias = Mapping[str, Demand]


def providers_to_read(demands: Iterable[Demand]) -> Collection[str]:
    """Return the uuids of the providers whose trees are needed to assign demands, each once."""
    keys: dict[str, None] = {}
    for demand in demands:  # most need none: a plain loop, as every claim comes through here
        for located in demand.located:
            keys[located.provider] = None
        for use in demand.named_units() if demand.names_units else ():
            keys[use.provider_uuid] = None
    return keys


def demands_of(candidates: Any, resolve: Resolve, method: str) -> Iterator[Demand]:
    """Yield the demand of each candidate, in their order; none for an empty search.

    :param method: the method that allocates, for errors
    :raises InvalidInput: if the candidates are not :data:`Claimable`
    :raises SearchLimitReached: if the search was cut short before it found a candidate
    :raises NotFound: if a named provider does not exist
    """
    # of Candidates, of a Chosen or of a Claim; the others state no request
    request: Request | None = getattr(candidates, "request", None)
    if isinstance(candidates, Candidate):
        candidates = [candidates]
    elif isinstance(candidates, Chosen):
        candidates = [candidates.candidate]
    if isinstance(candidates, Claim):
        demand = demand_of(candidates.allocations, resolve, method)
        yield dataclasses.replace(demand, request=request or demand.request)
    elif isinstance(candidates, Candidates) or (
        isinstance(candidates, list | tuple) and candidates and isinstance(candidates[0], Candidate)
    ):
        for candidate in candidates:
            yield _demand_of_candidate(candidate, request, resolve)
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


def _demand_of_candidate(candidate: Any, request: Request | None, resolve: Resolve) -> Demand:
    if not isinstance(candidate, Candidate):
        raise exceptions.InvalidInput("amount", "claim", candidate, "a candidate")
    placed = candidate.located
    if request is None and placed:  # so that it can be assigned again
        request = Request({kind: amount.unassigned() for kind, amount in placed.items()})
    demand = demand_of(candidate.allocations, resolve, "claim")
    return Demand(
        demand.uses,
        request or demand.request,
        candidate.generations,
        _required(candidate, demand) if placed or demand.names_units else (),
        demand.names,
        candidate.host,
        demand.located,
    )


def _required(candidate: Candidate, demand: Demand) -> tuple[tuple[str, int], ...]:
    """Return the definitions of the providers whose parts a candidate was placed on."""
    counted = {use.resource_class for use in demand.uses}
    located: set[str] = set()
    for kind, amount in candidate.located.items():
        located.update(amount.placed_counts, *resource(kind).lower_bounds(amount, counted))
    uuids = {
        use.provider_uuid
        for use in demand.uses
        if use.units
        or (use.resource_class in located and demand.names.get(use.provider_uuid) != candidate.host)
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
    name_of: Mapping[str, str] = {}
    if isinstance(allocations, Mapping):
        requested = _of_mapping(allocations, method)
    else:
        requested = _of_list(allocations, method)
        name_of = {part.provider_uuid: part.provider for part in allocations if part.provider_uuid}
    parts = [part for part in requested if not part.amount.is_zero]
    for part in parts:
        if part.amount.is_negative and not give_back:
            expected = "0 or more; give back by release"
            raise exceptions.InvalidInput(
                "negative amount", part.resource_class, part.amount, expected
            )
    if not parts:
        raise exceptions.InvalidInput(
            "amount", method, allocations, "an amount to allocate or to release"
        )
    placed = [part for part in parts if part.is_placed]
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
        return Demand(tuple(uses), names=name_of)
    located = tuple(part._replace(provider=uuids[part.provider]) for part in placed)
    keys = [(part.provider, part.resource_class) for part in located]
    if len(set(keys)) != len(keys):  # by name and by uuid
        raise exceptions.InvalidInput("repetition", method, keys, "each provider once")
    return Demand(tuple(uses), _request(placed, counted), names=name_of, located=located)


def _of_list(allocations: Any, method: str) -> list[RequestedAmount]:
    requested: list[RequestedAmount] = []
    for part in allocations if isinstance(allocations, list | tuple) else (None,):
        if not isinstance(part, Allocation):
            raise exceptions.InvalidInput("amount", method, allocations, _CLAIMABLE)
        provider = part.provider_uuid or part.provider
        requested.append(RequestedAmount(provider, part.resource_class, part.amount, part.units))
    return requested


def _of_mapping(by_provider: Mapping[Any, Any], method: str) -> list[RequestedAmount]:
    requested: list[RequestedAmount] = []
    seen: set[str] = set()
    for name, texts in by_provider.items():
        key = names.provider_key(name)
        if key in seen:
            raise exceptions.InvalidInput("repetition", method, name, "each provider once")
        seen.add(key)
        for kind, amount in Amounts.from_value(texts).as_requested().by_name():
            requested.append(RequestedAmount(key, kind, amount))
    return requested


def _request(
    placed: Iterable[RequestedAmount], counted: Iterable[RequestedAmount]
) -> Request | None:
    """Return the request of placed amounts and the counts next to them.

    Return None if all placed amounts are released.
    """
    requested = {part.resource_class: part.amount for part in placed if not part.amount.is_negative}
    if not requested:
        return None
    located = {name for amount in requested.values() for name in amount.placed_counts}
    for part in counted:
        name = part.resource_class
        if name not in located and not part.amount.is_negative:
            before = requested.get(name)
            requested[name] = part.amount if before is None else before + part.amount
    return Request(requested)


def _without_located(parts: Sequence[RequestedAmount]) -> list[RequestedAmount]:
    """Return the counts without those that a placed amount next to them locates."""
    located: set[tuple[str, str]] = set()
    for provider in dict.fromkeys(part.provider for part in parts):
        here = {part.resource_class: part.amount for part in parts if part.provider == provider}
        joint = amounts.split_placed(Amounts(here))
        if joint is not None:
            located.update((provider, name) for name in joint.stated_classes)
    return [
        part
        for part in parts
        if not part.is_placed and (part.provider, part.resource_class) not in located
    ]


def _check_one_of_a_class(placed: Iterable[RequestedAmount], method: str) -> None:
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
    replaced = {*released, *(name for name, amount in added.by_name() if amount.is_placed)}
    located = {name for amount in added.values() for name in amount.placed_counts}
    joint = amounts.split_placed(group.resources)
    if joint is None:
        previous = dict(group.resources.by_name())
    else:
        previous = {**joint.unplaced, **joint.placed}
    resources = added + Amounts(
        {
            name: amount
            for name, amount in previous.items()
            if name not in located and name not in replaced
        }
    )
    traits_of = tuple(pair for pair in group.traits_of if pair[0] in resources.names())
    return before.with_unnamed(group.replace(resources=resources, traits_of=traits_of))


# --- options --------------------------------------------------------------------------------------

#: Which definitions must be unchanged: those at which the candidates were found (True), or those
#: of ``{provider: generation}``.
IfGeneration: TypeAlias = bool | Mapping[str, int]

#: Definitions as ``(provider's uuid, generation)``.
RequiredDefinitions: TypeAlias = tuple[tuple[str, int], ...]


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class ClaimOptions:
    """The options of a method that allocates, as :func:`claim_options` checks them.

    :meth:`Ledger.claim <resource_objects.ledger.Ledger.claim>` documents each. ``definitions`` are
    those that ``if_generation`` requires; None: those at which the demands were found.
    """

    project: str | None = None
    user: str | None = None
    consumer_type: str | None = None
    group: str | None = None
    expires_at: datetime.datetime | None = None
    expires_in: datetime.timedelta | None = None
    if_generation: IfGeneration = False
    generation: int | None = None
    limits: UseLimits = UNLIMITED  #: by name or uuid of the provider
    ignore_maintenance: bool = False
    wait: datetime.timedelta | None = None
    operation: str | None = None
    definitions: RequiredDefinitions | None = ()

    @property
    def description(self) -> dict[str, Any]:
        """The labels and the expiry of the consumer, as fields of its order."""
        return {  # written out: every claim comes through here
            "project": self.project,
            "user": self.user,
            "consumer_type": self.consumer_type,
            "group": self.group,
            "expires_at": self.expires_at,
            "expires_in": self.expires_in,
        }


#: The labels of a consumer among the options, and their names in errors.
_LABELS = {
    "project": "project",
    "user": "user",
    "consumer_type": "consumer type",
    "group": "server group",
}


def claim_options(
    *, expires_in: object = None, expires_at: object = None, limits: object = None, **options: Any
) -> ClaimOptions:
    """Return the checked options of a method that allocates; see :class:`ClaimOptions`.

    :raises InvalidInput: for an option that is invalid independently of the ledger
    """
    for field, description in _LABELS.items():
        if options.get(field) is not None:
            names.label(options[field], description)
    ignores_maintenance = options.get("ignore_maintenance", False)
    if type(ignores_maintenance) is not bool:
        expected = "True or False"
        raise exceptions.InvalidInput("field", "ignore_maintenance", ignores_maintenance, expected)
    wait = options.get("wait")
    if wait is not None and (
        not isinstance(wait, datetime.timedelta) or wait <= datetime.timedelta(0)
    ):
        raise exceptions.InvalidInput("field", "wait", wait, "a timedelta above 0, or None")
    if options.get("generation") is not None:
        generation(options["generation"])
    if limits is not None:
        options["limits"] = checked_limits(limits)
    if expires_in is not None or expires_at is not None:
        options |= expiry(expires_in, expires_at)
    return ClaimOptions(**options)


def stored_request(
    request: Request | None, ignores_maintenance: bool = False
) -> StoredRequest | None:
    """Return a request as it is stored: without the trait of disabled providers."""
    if request is None:
        return None
    if ignores_maintenance:
        groups = (group.replace(required=group.required - {TRAIT}) for group in request.groups)
        required = request.root_required - {TRAIT}
        request = request.replace(groups=tuple(groups), root_required=required)
    return StoredRequest(request)
