"""What is to be taken, in the one form that the ledger places and writes: a :class:`Demand`.

It is made of what a search found, of what somebody decided elsewhere, or of amounts by provider.
What lies over a tree (a topology, devices) has no row yet: it is asked of a host and placed on
fresh rows (:mod:`.assign`). Counts beside it that it locates say the same and are left out (D1).
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

#: What methods that take accept: candidates of a search; one candidate (also with its request), or
#: some of which the first that is still free is meant; allocations (also those of a claim), with
#: units; or ``{provider: amounts}``.
Claimable: TypeAlias = (
    Candidates
    | Candidate
    | Chosen
    | Claim
    | Sequence[Candidate]
    | Sequence[Allocation]
    | Mapping[str, Any]
)
#: From names and uuids of providers to their uuids, in one look.
Resolve: TypeAlias = Callable[[Collection[str]], Mapping[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class LocatedDemand:
    """An amount that lies over a tree, asked of its host or (negative) given back there."""

    host: str  #: uuid
    resource_class: str
    amount: Amount

    @property
    def is_open(self) -> bool:
        """Whether it is still to be decided where it goes."""
        return not self.amount.is_assigned


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """One complete way to hold something: what to use of which provider.

    ``definitions`` are those it was decided on, ``(uuid, generation)``, where they are known;
    ``required`` are those without which it means something else, and so are demanded always: of
    the providers that keep the parts it was placed on. ``names`` are the providers of the uses by
    name, where they are known. ``located`` has to be placed before it can be written, near what of
    ``keeps`` is on the same host: what the consumer keeps, by provider.
    """

    uses: tuple[Use, ...]
    request: Request | None = None
    definitions: tuple[tuple[str, int], ...] = ()
    required: tuple[tuple[str, int], ...] = ()
    names: Mapping[str, str] = FrozenDict()
    host: str | None = None
    located: tuple[LocatedDemand, ...] = ()
    keeps: Mapping[str, Amounts] = FrozenDict()

    @property
    def is_open(self) -> bool:
        """Whether some of it is still to be decided where it goes."""
        return any(one.is_open for one in self.located)

    @property
    def names_units(self) -> bool:
        """Whether it takes something by unit."""
        return _name_units(self.uses)

    def requires(self, subject: str) -> bool:
        """Return whether a provider, by name or uuid, keeps a part it was placed on."""
        return any(subject in (uuid, self.names.get(uuid)) for uuid, _ in self.required)


def _name_units(uses: Iterable[Use]) -> bool:
    for use in uses:  # noqa: SIM110  # a generator costs more, on the way of every claim
        if use.units:
            return True
    return False


def demands_of(found: Any, resolve: Resolve, what: str) -> Iterator[Demand]:
    """Yield every way that something found says, in its order; of an empty search, none.

    :raises InvalidInput: if it is nothing that can be taken
    :raises SearchLimitReached: if the search was cut short before it found anything
    :raises NotFound: if a provider is named that is not there
    """
    if isinstance(found, Candidates):
        yield from _of_candidates(found, found.request, resolve)
    elif isinstance(found, Candidate):
        yield from _of_candidates([found], None, resolve)
    elif isinstance(found, Chosen):
        yield from _of_candidates([found.candidate], found.request, resolve)
    elif isinstance(found, Claim):
        yield _of_allocations(found.allocations, resolve, what, found.request)
    elif isinstance(found, list | tuple) and found and isinstance(found[0], Candidate):
        yield from _of_candidates(found, None, resolve)
    elif isinstance(found, list | tuple) and found:
        yield _of_allocations(found, resolve, what)
    else:
        yield demand_of(found, resolve, what)


def providers_in(found: Any) -> Iterator[str]:
    """Yield the providers that something found names, by name or uuid."""
    if isinstance(found, Mapping):
        yield from map(names.provider_key, found)
    elif isinstance(found, Claim | list | tuple):
        for one in found.allocations if isinstance(found, Claim) else found:
            if isinstance(one, Allocation):
                yield one.provider_uuid or one.provider


def _of_candidates(
    candidates: Iterable[Candidate], request: Request | None, resolve: Resolve
) -> Iterator[Demand]:
    for one in candidates:
        if not isinstance(one, Candidate):
            raise exceptions.InvalidInput("amount", "claim", one, "a candidate")
        yield _of_allocations(one.allocations, resolve, "claim", request or _request_of(one), one)


def _request_of(one: Candidate) -> Request | None:
    """Return what a candidate of one's own choice located, so that it can be assigned again."""
    located = {kind: amount.unassigned() for kind, amount in one.located.items()}
    return Request(located) if located else None


def _required(
    one: Candidate, uses: Collection[Use], known: Mapping[str, str]
) -> tuple[tuple[str, int], ...]:
    """Return the definitions of the parts a candidate was placed on: others are other parts."""
    if not one.located and not _name_units(uses):
        return ()
    given = {use.resource_class for use in uses}
    located: set[str] = set()
    for kind, amount in one.located.items():
        located.update(amount.located, *resource(kind).lower_bounds(amount, given))
    uuids = {
        use.provider_uuid
        for use in uses
        if use.units or (use.resource_class in located and known.get(use.provider_uuid) != one.host)
    }
    return tuple(pair for pair in one.generations if pair[0] in uuids)


def _of_allocations(
    allocations: Sequence[Any],
    resolve: Resolve,
    what: str,
    request: Request | None = None,
    candidate: Candidate | None = None,
) -> Demand:
    uses, implied, located = _parts(_of_list(allocations, what), resolve, what, allocations)
    known = {
        one.provider_uuid: one.provider for one in allocations if one.provider_uuid is not None
    }
    whole = request or implied
    if candidate is None:
        return Demand(uses, whole, names=known, located=located)
    required = _required(candidate, uses, known)
    return Demand(uses, whole, candidate.generations, required, known, candidate.host, located)


def demand_of(
    given: Any, resolve: Resolve, what: str, *, give_back: bool = False, aggregate: bool = False
) -> Demand:
    """Return what allocations or ``{provider: amounts}`` say, checked before anything is read.

    Its request is what is asked, if some of it lies over a tree; else none.

    :param give_back: whether amounts may be negative
    :param aggregate: whether it stands for many consumers, who may hold several of a kind
    :raises InvalidInput: if it is nothing of the kind, or nothing at all; if a count does not
        agree with what locates it; if something that lies over a tree is asked twice
    :raises InvalidInput: if it gives back where that is not meant
    :raises InvalidInput: if a provider is named twice
    """
    said = _of_mapping(given, what) if isinstance(given, Mapping) else _of_list(given, what)
    uses, asked, located = _parts(
        said, resolve, what, given, give_back=give_back, aggregate=aggregate
    )
    return Demand(uses, asked, located=located)


def _parts(
    every: Iterable[_Given],
    resolve: Resolve,
    what: str,
    given: Any,
    *,
    give_back: bool = False,
    aggregate: bool = False,
) -> tuple[tuple[Use, ...], Request | None, tuple[LocatedDemand, ...]]:
    """Return the uses, the request and what is located of amounts; see :func:`demand_of`."""
    said: list[_Given] = []
    located: list[_Given] = []
    for one in every:
        if one.amount.is_zero:
            continue
        if not give_back and one.amount.is_negative:
            raise exceptions.InvalidInput(
                "negative amount", one.resource_class, one.amount, "0 or more; give back by release"
            )
        said.append(one)
        if one.is_located:
            located.append(one)
    if not said:
        raise exceptions.InvalidInput("amount", what, given, "something to take or give back")
    counted = _not_located(said) if located else said
    if located and not aggregate:
        _check_once(located, what)
    uuids = resolve(list(dict.fromkeys([one.provider for one in said])))
    uses: list[Use] = []
    for one in counted:
        uses += one.uses(uuids[one.provider])
    if not located:
        return tuple(uses), None, ()
    demands = tuple(
        LocatedDemand(uuids[one.provider], one.resource_class, one.amount) for one in located
    )
    keys = [(one.host, one.resource_class) for one in demands]
    if len(set(keys)) != len(keys):  # by name and by uuid
        raise exceptions.InvalidInput("repetition", what, keys, "each provider once")
    return tuple(uses), _requested(located, counted), demands


class _Given(NamedTuple):
    """An amount as it was given, of a provider that is not looked up yet."""

    provider: str  # name or uuid
    resource_class: str
    amount: Any
    units: tuple[str, ...] = ()

    @property
    def is_located(self) -> bool:
        """Whether it lies over the tree of the provider."""
        return self.amount.locates and resource(self.resource_class).is_located

    def uses(self, uuid: str) -> list[Use]:
        """Return it as it is kept; a structured amount says its own units."""
        return [
            Use(uuid, record.resource_class, record.amount, record.units or self.units)
            for record in self.amount.to_records(self.resource_class)
        ]


def _of_list(given: Any, what: str) -> list[_Given]:
    """Return what allocations say."""
    found: list[_Given] = []
    for one in given if isinstance(given, list | tuple) else (None,):
        if not isinstance(one, Allocation):
            raise exceptions.InvalidInput(
                "amount",
                what,
                given,
                "candidates, allocations, or a mapping of provider names to amounts",
            )
        provider = one.provider_uuid or one.provider
        found.append(_Given(provider, one.resource_class, one.amount, one.units))
    return found


def _of_mapping(given: Mapping[Any, Any], what: str) -> Iterator[_Given]:
    seen: set[str] = set()
    for name, there in given.items():
        key = names.provider_key(name)
        if key in seen:
            raise exceptions.InvalidInput("repetition", what, name, "each provider once")
        seen.add(key)
        for kind, amount in Amounts.of(there).bare().by_name():
            yield _Given(key, kind, amount)


# --- what lies over a tree ---


def _not_located(said: Sequence[_Given]) -> list[_Given]:
    """Return the counts, less those that something beside them locates (D1)."""
    stated: set[tuple[str, str]] = set()
    for provider in dict.fromkeys(one.provider for one in said):
        here = {one.resource_class: one.amount for one in said if one.provider == provider}
        joint = amounts.split(Amounts(here))
        if joint is not None:
            stated.update((provider, name) for name in joint.stated)
    return [
        one
        for one in said
        if not one.is_located and (one.provider, one.resource_class) not in stated
    ]


def _check_once(located: Iterable[_Given], what: str) -> None:
    """Raise if a consumer would have two of a kind: nobody could tell them apart again."""
    hosts: dict[str, str] = {}
    for one in located:
        if not one.amount.is_negative and one.resource_class in hosts:
            raise exceptions.InvalidInput(
                "amount",
                f"{what}: {one.resource_class}",
                [hosts[one.resource_class], one.provider],
                "one host: what is on several is held by a consumer for each (claim_all)",
            )
        if not one.amount.is_negative:
            hosts[one.resource_class] = one.provider


def _requested(located: Iterable[_Given], counted: Iterable[_Given]) -> Request | None:
    """Return what is asked together with what lies over a tree, None if nothing of that is."""
    taken = {o.resource_class: o.amount for o in located if not o.amount.is_negative}
    if not taken:
        return None
    within = {name for amount in taken.values() for name in amount.located}
    for one in counted:
        if one.resource_class not in within and not one.amount.is_negative:
            before = taken.get(one.resource_class)
            taken[one.resource_class] = one.amount if before is None else before + one.amount
    return Request(taken)


def merged_request(before: Request | None, more: Request, goes: Collection[str] = ()) -> Request:
    """Return a request with what is asked besides, in place of what it says of the same kind.

    :param goes: resources of which nothing is asked any more, but for what is asked besides

    >>> print(merged_request(Request("DISK_GB=2,VCPU=1"), Request("DISK_GB=1,MEMORY_MB=5")))
    VCPU=1,MEMORY_MB=5,DISK_GB=3
    """
    if before is None:
        return more
    group, added = before.unnamed, more.unnamed.resources
    gone = {*goes, *(name for name, amount in added.by_name() if amount.locates)}
    counted = {name for amount in added.values() for name in amount.located}
    joint = amounts.split(group.resources)
    others = dict(group.resources.by_name()) if joint is None else {**joint.others, **joint.located}
    stays = Amounts({n: one for n, one in others.items() if n not in counted and n not in gone})
    resources = added + stays
    traits_of = tuple(one for one in group.traits_of if one[0] in resources.names())
    return before.with_unnamed(group.replace(resources=resources, traits_of=traits_of))
