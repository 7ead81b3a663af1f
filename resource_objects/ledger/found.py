"""What to take: what a search found, or what somebody decided elsewhere, as changes of amounts.

What lies over a tree (a topology) is not a change yet: it is asked of a host, and put somewhere on
fresh rows (:mod:`.fitting`). Counts beside it that it locates say the same and are left out (D1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects.providers import Allocation, Claim
from resource_objects.providers.orders import Delta
from resource_objects.requests import Request
from resource_objects.resources import Amount, Amounts, resource
from resource_objects.resources import joint as locating
from resource_objects.search.candidates import Candidate, Candidates

#: What methods that take accept: candidates of a search; one candidate, or some of which the first
#: that is still free is meant; allocations (also those of a claim), with units; or
#: ``{provider: amounts}``.
Found: TypeAlias = (
    Candidates | Candidate | Claim | Sequence[Candidate] | Sequence[Allocation] | Mapping[str, Any]
)
#: From names and uuids of providers to their uuids, in one look.
Resolve: TypeAlias = Callable[[Collection[str]], Mapping[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """An amount that lies over a tree, asked of its host or (negative) given back there."""

    host: str  #: uuid
    resource_class: str
    amount: Amount

    @property
    def is_open(self) -> bool:
        """Whether it is still to be decided where it goes."""
        return not self.amount.is_assigned


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """One complete way to hold something.

    ``generations`` are those of the definitions it was decided on, ``(uuid, generation)``, where
    they are known; ``relied`` are those without which it means something else, and so are demanded
    always: of the providers that keep the parts it was put on. ``names`` are the providers of the
    deltas by name, where they are. ``asks`` are put somewhere before it can be written; they have
    to be near what of ``beside`` is on the same host: what the consumer keeps, by provider.
    """

    deltas: tuple[Delta, ...]
    request: Request | None = None
    generations: tuple[tuple[str, int], ...] = ()
    relied: tuple[tuple[str, int], ...] = ()
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    host: str | None = None
    asks: tuple[Ask, ...] = ()
    beside: Mapping[str, Amounts] = dataclasses.field(default_factory=dict)

    def relies_on(self, subject: str) -> bool:
        """Return whether a provider, by name or uuid, keeps a part it was put on."""
        return any(subject in (uuid, self.names.get(uuid)) for uuid, _ in self.relied)


def choices_of(found: Any, resolve: Resolve, what: str) -> Iterator[Choice]:
    """Yield every way that something found says, in its order; of an empty search, none.

    :raises InvalidAmount: if it is nothing that can be taken
    :raises SearchLimitReached: if the search was cut short before it found anything
    :raises ProviderNotFound: if a provider is named that is not there
    """
    if isinstance(found, Candidates):
        yield from _of_candidates(found, found.request, resolve)
    elif isinstance(found, Candidate):
        yield from _of_candidates([found], None, resolve)
    elif isinstance(found, Claim):
        yield _of_allocations(found.allocations, resolve, what, found.request)
    elif isinstance(found, list | tuple) and found and isinstance(found[0], Candidate):
        yield from _of_candidates(found, None, resolve)
    elif isinstance(found, list | tuple) and found:
        yield _of_allocations(found, resolve, what)
    else:
        yield choice_of(found, resolve, what)


def _of_candidates(
    candidates: Iterable[Candidate], request: Request | None, resolve: Resolve
) -> Iterator[Choice]:
    for one in candidates:
        if not isinstance(one, Candidate):
            raise exceptions.InvalidAmount("claim", one, "a candidate")
        way = _of_allocations(one.allocations, resolve, "claim", request or _asked_by(one))
        yield dataclasses.replace(
            way, generations=one.generations, relied=_relied(one, way), host=one.host
        )


def _asked_by(one: Candidate) -> Request | None:
    """Return what a candidate of one's own choice located, so that it can be told again."""
    located = {kind: amount.unassigned() for kind, amount in one.located.items()}
    return Request(located) if located else None


def _relied(one: Candidate, way: Choice) -> tuple[tuple[str, int], ...]:
    """Return the definitions of the parts that a candidate was put on: others are other parts."""
    given = {delta.resource_class for delta in way.deltas}
    located: set[str] = set()
    for amount in one.located.values():
        located.update(amount.located, *amount.at_least(given))
    uuids = {
        delta.provider_uuid
        for delta in way.deltas
        if delta.units
        or (delta.resource_class in located and way.names.get(delta.provider_uuid) != one.host)
    }
    return tuple(pair for pair in one.generations if pair[0] in uuids)


def _of_allocations(
    allocations: Sequence[Any], resolve: Resolve, what: str, request: Request | None = None
) -> Choice:
    way = choice_of(allocations, resolve, what)
    known = {
        one.provider_uuid: one.provider for one in allocations if one.provider_uuid is not None
    }
    return dataclasses.replace(way, names=known, request=request or way.request)


def choice_of(
    given: Any, resolve: Resolve, what: str, *, give_back: bool = False, aggregate: bool = False
) -> Choice:
    """Return what allocations or ``{provider: amounts}`` say, checked before anything is asked.

    Its request is what is asked, if some of it lies over a tree; else none.

    :param give_back: whether amounts may be negative
    :param aggregate: whether it stands for many consumers, who may hold several of a kind
    :raises InvalidAmount: if it is nothing of the kind, or nothing at all; if a count does not
        agree with what locates it; if something that lies over a tree is asked twice
    :raises NegativeAmount: if it gives back where that is not meant
    :raises DuplicateKey: if a provider is named twice
    """
    if isinstance(given, Mapping):
        changes = list(_of_mapping(given, what))
    elif isinstance(given, list | tuple) and all(isinstance(one, Allocation) for one in given):
        changes = [_change(one) for one in given]
    else:
        raise exceptions.InvalidAmount(
            what, given, "candidates, allocations, or a mapping of provider names to amounts"
        )
    changes = [change for change in changes if not change.amount.is_zero]
    if not changes:
        raise exceptions.InvalidAmount(what, given, "something to take or give back")
    for change in changes:
        if change.amount.is_negative and not give_back:
            raise exceptions.NegativeAmount(
                change.resource_class, change.amount, "0 or more; give back by release"
            )
    located = [change for change in changes if change.is_located]
    plain = _without_located(changes) if located else changes
    if not aggregate:
        _check_once(located, what)
    uuids = resolve(list(dict.fromkeys(change.provider for change in changes)))
    asks = tuple(Ask(uuids[one.provider], one.resource_class, one.amount) for one in located)
    keys = [(ask.host, ask.resource_class) for ask in asks]
    if len(set(keys)) != len(keys):  # by name and by uuid
        raise exceptions.DuplicateKey(what, keys, "each provider once")
    deltas = tuple(delta for change in plain for delta in change.deltas(uuids))
    return Choice(deltas, _requested(located, plain), asks=asks)


@dataclasses.dataclass(frozen=True, slots=True)
class _Change:
    provider: str  # name or uuid
    resource_class: str
    amount: Any
    units: tuple[str, ...] = ()

    @property
    def is_located(self) -> bool:
        """Whether it lies over the tree of the provider."""
        return self.amount.locates and resource(self.resource_class).is_located

    def deltas(self, uuids: Mapping[str, str]) -> Iterator[Delta]:
        """Yield it as what is kept; a structured amount says its own units."""
        for record in self.amount.to_records(self.resource_class):
            units = record.units or self.units
            yield Delta(uuids[self.provider], record.resource_class, record.amount, units)


def _change(one: Allocation) -> _Change:
    return _Change(one.provider_uuid or one.provider, one.resource_class, one.amount, one.units)


def _of_mapping(given: Mapping[Any, Any], what: str) -> Iterator[_Change]:
    seen: set[str] = set()
    for name, asked in given.items():
        key = names.provider_key(name)
        if key in seen:
            raise exceptions.DuplicateKey(what, name, "each provider once")
        seen.add(key)
        for kind, amount in Amounts.of(asked).by_name():
            yield _Change(key, kind, amount)


# --- what lies over a tree ---


def _without_located(changes: Sequence[_Change]) -> list[_Change]:
    """Return the changes that are counts, less those that something beside them locates (D1)."""
    stated: set[tuple[str, str]] = set()
    for provider in dict.fromkeys(change.provider for change in changes):
        here = {one.resource_class: one.amount for one in changes if one.provider == provider}
        joint = locating.split(Amounts(here))
        if joint is not None:
            stated.update((provider, name) for name in joint.stated)
    return [
        change
        for change in changes
        if not change.is_located and (change.provider, change.resource_class) not in stated
    ]


def _check_once(located: Iterable[_Change], what: str) -> None:
    """Raise if a consumer would have two of a kind: nobody could tell them apart again."""
    hosts: dict[str, str] = {}
    for one in located:
        if not one.amount.is_negative and one.resource_class in hosts:
            raise exceptions.InvalidAmount(
                f"{what}: {one.resource_class}",
                [hosts[one.resource_class], one.provider],
                "one host: what is on several is held by a consumer for each (claim_all)",
            )
        if not one.amount.is_negative:
            hosts[one.resource_class] = one.provider


def _requested(located: Iterable[_Change], plain: Iterable[_Change]) -> Request | None:
    """Return what is asked together with what lies over a tree, None if nothing of that is."""
    asked = Amounts({o.resource_class: o.amount for o in located if not o.amount.is_negative})
    if not asked:
        return None
    counted = {name for amount in asked.values() for name in amount.located}
    for one in plain:
        if one.resource_class not in counted and not one.amount.is_negative:
            asked += Amounts({one.resource_class: one.amount})
    return Request(asked)


def asked_beside(before: Request | None, more: Request, goes: Collection[str] = ()) -> Request:
    """Return a request with what is asked besides, in place of what it says of the same kind.

    :param goes: resources of which nothing is asked any more, but for what is asked besides

    >>> print(asked_beside(Request("DISK_GB=2,VCPU=1"), Request("DISK_GB=1,MEMORY_MB=5")))
    VCPU=1,MEMORY_MB=5,DISK_GB=3
    """
    if before is None:
        return more
    group, asked = before.unnamed, more.unnamed.resources
    gone = {*goes, *(name for name, amount in asked.by_name() if amount.locates)}
    counted = {name for amount in asked.values() for name in amount.located}
    joint = locating.split(group.resources)
    others = dict(group.resources.by_name()) if joint is None else {**joint.others, **joint.located}
    stays = Amounts({n: one for n, one in others.items() if n not in counted and n not in gone})
    resources = asked + stays
    traits_of = tuple(one for one in group.traits_of if one[0] in resources.names())
    return before.with_unnamed(group.replace(resources=resources, traits_of=traits_of))
