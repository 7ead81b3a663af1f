"""Gangs placed: where all members fit at once is claimed, in one transaction.

The search is :mod:`resource_objects.search.gangs`; here stand the filters of a scheduler, the
alternatives in their order, and what follows when somebody was faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException, NoCandidates
from resource_objects.ledger import Ledger
from resource_objects.requests import Gang
from resource_objects.search.snapshot import DEFAULT_BUDGET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from resource_objects.providers import Claim
    from resource_objects.search import Order, Snapshot
    from resource_objects.search.conditions.base import LaysFilter
    from resource_objects.search.gangs import GangFit

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedGang:
    """A gang that was placed: which of the alternatives, and what its members hold.

    ``claims`` are by the name of the member, and empty in a dry run.
    """

    fit: GangFit
    alternative: int  #: its number among those that were asked for, from 0
    claims: Mapping[str, Claim]

    def __str__(self) -> str:
        if not self.claims:
            return str(self.fit)
        return "\n".join(map(str, self.claims.values()))


def levels_of(ledger: Ledger) -> dict[str, list[str]]:
    """Return the aggregates of each level that the ledger keeps. Cost: the list of aggregates."""
    found: dict[str, list[str]] = {}
    for one in ledger.names.aggregates.list():
        if one.level is not None:
            found.setdefault(one.level, []).append(one.name)
    return found


def place_gang(
    ledger: Ledger,
    gangs: Gang | Sequence[Gang],
    consumers: str | None = None,
    *,
    order: Order | str = "name",
    seed: int | None = None,
    budget: int = DEFAULT_BUDGET,
    filters: Iterable[LaysFilter] = (),
    **said: Any,
) -> PlacedGang:
    """Place a gang, or the first of several alternatives that fits, and claim it.

    All or nothing: members are claimed in one transaction. If somebody was faster, it is fitted
    anew on a fresh picture, as the ledger's :class:`~resource_objects.ledger.RetryPolicy` says.

    :param gangs: a gang, or several in the order of preference
    :param consumers: what the consumers are called: this, a ``/`` and the name of the member; None:
        nothing is claimed (a dry run)
    :param order: which hosts are taken first, as for ``snapshot.candidates``
    :param filters: what hosts have to meet besides, as there
    :param said: of all claims, as for ``ledger.claim_all``: project, user, expires_in
    :raises NoCandidates: if none of them fits, with what each lacks
    :raises SearchLimitReached: if the budget ends before it is known whether one fits
    :raises ConsumerExists: if one of the consumers holds something already
    :raises InvalidRequest: for no gang, and for levels that are none

    >>> import resource_objects as ro
    >>> from resource_objects.requests import Member
    >>> big, small = (Gang([Member("worker", "VCPU=4", count=count)]) for count in (4, 2))
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(ro.Provider("host0", "VCPU=12"))
    ...     placed = place_gang(ledger, [big, small], "train-7")
    >>> placed.alternative
    1
    >>> print(placed)
    train-7/worker-0 holds VCPU=4 of host0
    train-7/worker-1 holds VCPU=4 of host0
    """
    wanted = [gangs] if isinstance(gangs, Gang) else list(gangs)
    if not wanted:
        raise exceptions.InvalidRequest("gangs", gangs, "at least one gang")
    levels = levels_of(ledger) if any(one.levels for one in wanted) else {}
    picked = tuple(filters)

    def fitted(snapshot: Snapshot) -> tuple[int, GangFit]:
        lacking: list[GangFit] = []
        for number, gang in enumerate(wanted):
            fit = snapshot.fit_gang(
                gang, levels=levels, order=order, seed=seed, budget=budget, filters=picked
            )
            if fit:
                return number, fit
            lacking.append(fit)
        raise NoCandidates("no place for the gang:\n" + "\n".join(map(str, lacking)))

    if consumers is None:
        number, fit = fitted(ledger.snapshot())
        return PlacedGang(fit, number, {})

    def claimed(snapshot: Snapshot) -> PlacedGang:
        number, fit = fitted(snapshot)
        found = {f"{consumers}/{name}": one for name, one in fit.candidates.items()}
        claims = ledger.claim_all(found, unchanged=bool(picked), **said)
        return PlacedGang(fit, number, dict(zip(fit.candidates, claims, strict=True)))

    return retried(ledger, claimed)


def retried(ledger: Ledger, claimed: Callable[[Snapshot], T]) -> T:
    """Return what comes of claiming by a fresh picture; again after a lost race.

    :param claimed: searches a picture and claims, all in one write
    """
    policy = ledger.retries
    until, tried = policy.clock() + policy.seconds, 0
    while True:
        snapshot = ledger.snapshot()
        try:
            return claimed(snapshot)
        except NoCandidates:
            raise
        except (CapacityException, exceptions.StaleDefinition, exceptions.ProviderNotFound):
            tried += 1
            is_over = tried > policy.searches or policy.clock() >= until
            if is_over or ledger.feed.is_fresh(snapshot):  # nobody was faster
                raise
            policy.pause(tried)
