"""What to take: what a search found, or what somebody decided elsewhere, as changes of amounts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects.providers import Allocation, Claim
from resource_objects.providers.orders import Delta
from resource_objects.requests import Request
from resource_objects.resources import Amounts
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
class Choice:
    """One complete way to hold something.

    ``generations`` are those of the definitions it was decided on, ``(uuid, generation)``, where
    they are known; ``names`` are the providers of the deltas by name, where they are.
    """

    deltas: tuple[Delta, ...]
    request: Request | None = None
    generations: tuple[tuple[str, int], ...] = ()
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    host: str | None = None


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
        yield Choice(deltas_of(found, resolve, what, give_back=False))


def _of_candidates(
    candidates: Iterable[Candidate], request: Request | None, resolve: Resolve
) -> Iterator[Choice]:
    for one in candidates:
        if not isinstance(one, Candidate):
            raise exceptions.InvalidAmount("claim", one, "a candidate")
        way = _of_allocations(one.allocations, resolve, "claim", request)
        yield dataclasses.replace(way, generations=one.generations, host=one.host)


def _of_allocations(
    allocations: Sequence[Any], resolve: Resolve, what: str, request: Request | None = None
) -> Choice:
    deltas = deltas_of(allocations, resolve, what, give_back=False)
    known = {
        one.provider_uuid: one.provider for one in allocations if one.provider_uuid is not None
    }
    return Choice(deltas, request, names=known)


def deltas_of(given: Any, resolve: Resolve, what: str, *, give_back: bool) -> tuple[Delta, ...]:
    """Return what allocations or ``{provider: amounts}`` change, checked before anything is asked.

    :param give_back: whether amounts may be negative
    :raises InvalidAmount: if it is nothing of the kind, or nothing at all
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
    uuids = resolve(list(dict.fromkeys(change.provider for change in changes)))
    return tuple(delta for change in changes for delta in change.deltas(uuids))


@dataclasses.dataclass(frozen=True, slots=True)
class _Change:
    provider: str  # name or uuid
    resource_class: str
    amount: Any
    units: tuple[str, ...] = ()

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
