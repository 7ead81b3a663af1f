"""Relaxations: the smallest single changes after which a candidate exists.

Of the request: less of an amount, without a trait, an aggregate, a group, a policy; what says where
it goes is less in the ways that its kind says (:meth:`.Resource.weaker`). Of the ledger:
without a consumer, after the end of a claim, with a larger ratio, with a provider in service again,
with one more host like one that is there, which is the question of an autoscaler.

Each is tried in a scenario before it is told. What is tried is sorted out by arrays first: who
leaves too little room behind (:mod:`.leaving`), which ratio is not enough, which hosts are alike.
A trial looks at one tree and the pools that give to it, for no candidate is of more.

Smallest is by cost: the weight of its kind (:data:`COSTS`) times its size. Of one kind and one
subject the smallest is looked for: the largest amount that fits, the least ratio that will do.
"""

from __future__ import annotations

import dataclasses
import datetime
import heapq
import operator
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.providers.disabled import TRAIT
from resource_objects.ratio import MAX_RATIO, MILLION, from_millionths
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources import Amounts, resource
from resource_objects.resources.catalog import is_device
from resource_objects.search import fleet_build
from resource_objects.search.arrays import Booleans, frozen
from resource_objects.search.candidate import Candidate
from resource_objects.search.fleet import ClassRows, Fleet, with_figures
from resource_objects.search.fleet_columns import columns_of
from resource_objects.search.leaving import if_unheld, leavers
from resource_objects.search.problem import lay, possible
from resource_objects.search.relaxed_request import largest, lesser, located, mildest, weaker
from resource_objects.search.scenario import Scenario
from resource_objects.search.script import Change, free_name
from resource_objects.search.snapshot import Snapshot

#: What one change of each kind and of size 1 costs, unless told otherwise.
COSTS: Mapping[str, Fraction] = {
    "amount": Fraction(1),  # size: the part of the amount that is given up
    "near": Fraction(1, 2),  # these have the size 1
    "policy": Fraction(1, 2),
    "trait": Fraction(1),
    "aggregate": Fraction(1),
    "tree": Fraction(1),
    "subtree": Fraction(1),
    "topology": Fraction(1),
    "group": Fraction(2),
    "enable": Fraction(2),
    "wait": Fraction(1, 4),  # size: hours until the claim ends
    "ratio": Fraction(2),  # size: by which part the ratio grows
    "release": Fraction(3),  # size: 1 + priority, times what it holds of what is asked, in parts
    "add": Fraction(5),
}
#: So many searches are made, unless told otherwise.
DEFAULT_TRIES = 2000


@dataclasses.dataclass(frozen=True, slots=True)
class Relaxation:
    """One change after which a candidate exists, with that candidate.

    ``request`` is what is asked then; ``change`` what is changed of the ledger, None for nothing.
    ``is_smallest`` is False where a smaller one of its kind and subject may exist: amounts of which
    providers have different unit rules are not all tried.
    """

    kind: str
    subject: str  #: the class, trait, consumer or provider that it is about
    told: str
    cost: Fraction
    request: Request
    change: Change | None
    candidate: Candidate
    is_smallest: bool = True

    def apply(self, scenario: Scenario) -> Request:
        """Make the change in a scenario; return what is to be asked then."""
        if self.change is not None:
            self.change.apply(scenario)
        return self.request

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "told": self.told,
            "cost": float(self.cost),
            "request": str(self.request),
            "change": None if self.change is None else str(self.change),
            "candidate": str(self.candidate),
            "is_smallest": self.is_smallest,
        }

    def __str__(self) -> str:
        return f"{self.told}: {self.candidate}"


class Relaxations(Sequence[Relaxation]):
    """The relaxations that were found, the smallest first.

    ``fits`` says that there are candidates as it is, so that nothing has to change. ``cut_short``
    that the tries ended, or a search did: there may be others, and smaller ones. If none was found
    and it was cut short, each look raises ``SearchLimitReached``: it is no no.
    """

    def __init__(
        self, found: Iterable[Relaxation], *, fits: bool, cut_short: bool, tries: int
    ) -> None:
        self._found = tuple(found)
        self.fits = fits
        self.cut_short = cut_short
        #: how many searches were made
        self.tries = tries

    def _look(self) -> tuple[Relaxation, ...]:
        if not self._found and self.cut_short:
            raise SearchLimitReached(self.tries)
        return self._found

    def __len__(self) -> int:
        return len(self._look())

    def __getitem__(self, index: Any) -> Any:
        return self._look()[index]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "fits": self.fits,
            "cut_short": self.cut_short,
            "relaxations": [one.to_dict() for one in self._found],
        }

    def __str__(self) -> str:
        if self.fits:
            return "it fits as it is"
        lines = [str(one) for one in self._found]
        if self.cut_short:
            lines.append(f"cut short after {self.tries} tries: there may be others")
        return "\n".join(lines) or "no single change helps"


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What is looked for, beside the request: see :meth:`.Snapshot.relaxations`."""

    count: int
    costs: Mapping[str, Fraction]
    priorities: Mapping[str, int]
    protected: frozenset[str]
    ends: Mapping[str, datetime.datetime]
    now: datetime.datetime
    kinds: frozenset[str]
    budget: int
    tries: int


def asked_of(
    k: object,
    costs: Mapping[str, Any] | None,
    priorities: Mapping[str, int],
    protected: Collection[str],
    ends: Mapping[str, datetime.datetime],
    now: datetime.datetime,
    kinds: Collection[str] | None,
    budget: int,
    tries: object,
) -> Asked:
    """Return what is looked for, checked.

    :raises InvalidInput: naming what cannot be
    """
    for what, value in (("k", k), ("tries", tries)):
        if type(value) is not int or value < 1:
            raise exceptions.InvalidInput("request", what, value, "an integer of 1 or more")
    weights = _weights(costs or {})
    for kind in kinds or ():
        if kind not in COSTS:
            raise exceptions.InvalidInput("request", "kinds", kind, f"some of {', '.join(COSTS)}")
    for name, priority in priorities.items():
        if type(priority) is not int or priority < 0:
            raise exceptions.InvalidInput(
                "request", f"priority of {name}", priority, "an integer >= 0"
            )
    if isinstance(protected, str):
        raise exceptions.InvalidInput("request", "protected", protected, "a list of names")
    return Asked(
        k,  # type: ignore[arg-type]
        weights,
        priorities,
        frozenset(protected),
        ends,
        now,
        frozenset(COSTS if kinds is None else kinds),
        budget,
        tries,  # type: ignore[arg-type]
    )


def _weights(costs: Mapping[str, Any]) -> Mapping[str, Fraction]:
    weights = dict(COSTS)
    for kind, cost in costs.items():
        if kind not in COSTS:
            raise exceptions.InvalidInput("request", "costs", kind, f"kinds of {', '.join(COSTS)}")
        if isinstance(cost, bool) or not isinstance(cost, int | Fraction) or cost <= 0:
            raise exceptions.InvalidInput(
                "request", f"cost of {kind}", cost, "an integer or fraction > 0"
            )
        weights[kind] = Fraction(cost)
    return weights


def relaxations(snapshot: Snapshot, request: Request, asked: Asked) -> Relaxations:
    """Return the smallest changes after which a fleet has a candidate."""
    looking = _Looking(snapshot, request, asked)
    if looking.found(looking.whole, request) is not None:
        return Relaxations((), fits=True, cut_short=False, tries=looking.tried)
    if looking.is_cut_short:
        raise SearchLimitReached(asked.budget)
    every = [
        one for kind, relaxed in _KINDS.items() if kind & asked.kinds for one in relaxed(looking)
    ]
    best = heapq.nsmallest(asked.count, every, key=lambda one: (one.cost, one.kind, one.subject))
    return Relaxations(best, fits=False, cut_short=looking.is_cut_short, tries=looking.tried)


#: A relaxation that is to be tried: what it costs, and what tells whether it helps.
_Trial: TypeAlias = tuple[Fraction, str, str, Callable[[], "Relaxation | None"]]


class _Looking:
    """One look for relaxations, and what it has found out so far."""

    def __init__(self, snapshot: Snapshot, request: Request, asked: Asked) -> None:
        fleet = snapshot._fleet
        self.snapshot, self.fleet, self.request, self.asked = snapshot, fleet, request, asked
        self.whole = snapshot.fork()
        self.tried = 0
        self.is_cut_short = False
        #: what is asked without saying where it goes; of what arrays say whether a host could
        self.counts = counted(request)
        self.is_located = any(
            resource(name).is_located or amount.locates
            for group in request.groups
            for name, amount in group.resources.by_name()
        )
        #: the classes of which amounts say where they are
        self.located = frozenset(
            one
            for group in request.groups
            for _, amount in group.resources.by_name()
            for one in amount.located
        )
        #: what is asked, at whatever place: of that arrays say which trees may hold it
        self.anywhere = request.replace(near=None, near_policy=None)
        #: trees that groups are to be of: who asks for one of which there is nothing is refused
        self.asked_trees = {
            fleet.true_tree(place)
            for group in request.groups
            if group.in_tree is not None and (place := fleet.place_of(group.in_tree)) is not None
        }
        #: trees that have a pool
        self.pool_trees = {int(tree) for tree in fleet.tree[fleet.pools.providers].tolist()}
        #: consumers without whom there is a candidate
        self.gone: set[str] = set()
        self._parts: dict[tuple[int, ...], Fleet] = {}
        #: the costs of the best that were found, so that dearer ones need not be tried
        self._best: list[Fraction] = []

    def found(self, scenario: Scenario, request: Request) -> Candidate | None:
        """Return a candidate, None if there is none, or none was found before the end of tries."""
        if self.tried >= self.asked.tries:
            self.is_cut_short = True
            return None
        self.tried += 1
        found = scenario.candidates(request, limit=1, budget=self.asked.budget)
        try:
            return found[0] if found else None
        except SearchLimitReached:
            self.is_cut_short = True
            return None

    def of_trees(self, trees: Collection[int], others: Collection[int] = ()) -> Fleet:
        """Return a fleet of some trees, the pools that give to them, and others that are needed."""
        fleet = self.fleet
        if fleet.within is not None:
            return fleet
        pools = {int(fleet.tree[place]) for one in trees for place in fleet.pools.of_tree(one)}
        key = tuple(sorted({*trees, *pools, *self.asked_trees, *others}))
        if key not in self._parts:
            if len(self._parts) > 256:
                self._parts.clear()
            self._parts[key] = fleet_build.read(columns_of(fleet, key))
        return self._parts[key]

    def part(self, tree: int, *others: int) -> Scenario:
        """Return a scenario of one tree, the pools that give to it, and others that are needed."""
        return self.snapshot._with_fleet(self.of_trees([tree], others)).fork()

    def around(self, place: int) -> Scenario:
        """Return a scenario of all trees that a change of one provider is of use to."""
        tree = int(self.fleet.tree[place])
        if tree in self.pool_trees:
            return self.snapshot.fork()
        return self.part(tree)

    def is_worth(self, cost: Fraction) -> bool:
        """Return whether something of a cost could be among the smallest."""
        return len(self._best) < self.asked.count or cost < -self._best[0]

    def note(self, cost: Fraction) -> None:
        """Remember the cost of something that was found."""
        heapq.heappush(self._best, -cost)
        if len(self._best) > self.asked.count:
            heapq.heappop(self._best)

    def of_request(
        self,
        kind: str,
        subject: str,
        told: str,
        size: Fraction | int,
        request: Request,
        candidate: Candidate,
        is_smallest: bool = True,
    ) -> Relaxation:
        """Return what helps of asking for less, and remember what it costs."""
        cost = self.asked.costs[kind] * size
        self.note(cost)
        return Relaxation(
            kind, subject, told, cost, request, None, candidate, is_smallest=is_smallest
        )

    def best_of(self, trials: Iterable[_Trial]) -> Iterator[Relaxation]:
        """Yield what helps of some trials, the cheapest first, as far as it is worth trying."""
        heap = [
            (cost, subject, number, trial)
            for number, (cost, _, subject, trial) in enumerate(trials)
        ]
        heapq.heapify(heap)
        while heap and self.is_worth(heap[0][0]):
            if self.tried >= self.asked.tries:
                self.is_cut_short = True
                return
            _, _, _, trial = heapq.heappop(heap)
            found = trial()
            if found is not None:
                self.note(found.cost)
                yield found

    # --- what arrays rule out ---

    def could(self, rows: ClassRows) -> Booleans:
        """Return which trees may hold what is asked, with other figures."""
        found = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        asked = self.anywhere if self.is_located else self.counts
        if asked is None:
            return ~found
        found[possible(lay(asked, with_figures(self.fleet.in_force(), rows)))] = True
        return found


def counted(request: Request) -> Request | None:
    """Return a request for the counts alone: who cannot hold these cannot hold it.

    Where amounts go, and what is near what, is left out. None where nothing is left.
    """
    groups = []
    for group in request.groups:
        counts = {
            name: amount
            for name, amount in group.resources.counted().by_name()
            if not resource(name).is_located and not amount.locates
        }
        kept = {name: amount.with_beside(()) for name, amount in counts.items()}
        traits_of = tuple(one for one in group.traits_of if one[0] in kept)
        groups.append(group.replace(resources=Amounts(kept), traits_of=traits_of))
    if not groups[0].resources:  # without conditions, which are on an amount
        groups[0] = RequestGroup()
    named = tuple(group for group in groups[1:] if group.resources)
    if not named and not groups[0].resources:
        return None
    return request.replace(groups=(groups[0], *named), same_subtree=(), near=None, near_policy=None)


# --- of the request -------------------------------------------------------------------------------


def _of_request(looking: _Looking) -> Iterator[Relaxation]:
    """Yield what helps of dropping one condition."""
    for kind, subject, told, made in weaker(looking.request):
        if kind not in looking.asked.kinds or not looking.is_worth(looking.asked.costs[kind]):
            continue
        try:
            asked = made()
            found = looking.found(looking.whole, asked)
        except exceptions.InvalidInput:  # what is left asks for nothing, or contradicts itself
            continue
        if found is not None:
            yield looking.of_request(kind, subject, told, 1, asked, found)
    yield from _of_located(looking, looking.asked.kinds - {"amount"})


def _of_located(looking: _Looking, kinds: Collection[str]) -> Iterator[Relaxation]:
    """Yield what helps of asking less of what says where, the first step of each way."""
    for one in located(looking.request):
        kind, subject = one.way.kind, one.way.subject
        if kind not in kinds:
            continue
        if not looking.is_worth(looking.asked.costs[kind] * one.way.step(1).size):
            continue
        best = mildest(one, partial(looking.found, looking.whole))
        if best is not None:
            yield looking.of_request(kind, subject, best.step.told, best.step.size, *best[1:])


def _of_amounts(looking: _Looking) -> Iterator[Relaxation]:
    """Yield the largest amount of each thing that fits, everything else as it is asked."""
    yield from _of_located(looking, ["amount"])
    for less in lesser(looking.request):
        rows = looking.fleet.rows(less.subject)
        rules = {*zip(rows.step_size.tolist(), rows.low.tolist(), strict=True)}
        best = largest(less, rules, partial(looking.found, looking.whole))
        if best is None:
            continue
        told, size = less.told(best.amount), Fraction(less.asked - best.amount, less.asked)
        yield looking.of_request("amount", less.subject, told, size, *best[1:])


# --- of the ledger --------------------------------------------------------------------------------


def _enabled(looking: _Looking) -> Iterator[Relaxation]:
    fleet, cost = looking.fleet.providers_in_force(), looking.asked.costs["enable"]

    def trial(place: int) -> _Trial:
        name = fleet.names[place]

        def tried() -> Relaxation | None:
            scenario = looking.around(place)
            change = Change("enable", (name,))
            change.apply(scenario)
            found = looking.found(scenario, looking.request)
            told = f"{name} in service again ({fleet.disabled[place].facts.reason})"
            return _proven(looking, "enable", name, told, cost, change, found)

        return cost, "enable", name, tried

    yield from looking.best_of(map(trial, sorted(fleet.disabled)))


def _proven(
    looking: _Looking,
    kind: str,
    subject: str,
    told: str,
    cost: Fraction,
    change: Change,
    found: Candidate | None,
) -> Relaxation | None:
    if found is None:
        return None
    return Relaxation(kind, subject, told, cost, looking.request, change, found)


def _released(looking: _Looking) -> Iterator[Relaxation]:
    """Yield who may leave so that there is room: released, or at the end of its claim."""
    yield from looking.best_of(_leaving(looking))


def _leaving(looking: _Looking) -> Iterator[_Trial]:
    counts = _counts(looking.request)
    sizes: dict[tuple[int, ...], Fraction] = {}

    def size(held: Mapping[int, Mapping[str, int]]) -> Fraction:
        """Return how much is held of what is asked, in parts, the largest of all classes."""
        some = tuple([sum([own.get(name, 0) for own in held.values()]) for name in counts])
        if some not in sizes:
            parts = map(Fraction, some, counts.values())
            sizes[some] = max(parts, default=Fraction(1))
        return sizes[some]

    for consumer, held, trees in leavers(
        looking.fleet, looking.anywhere, looking.pool_trees, looking.of_trees
    ):
        leaving = _cost_of_leaving(looking.asked, consumer, size(held))
        if leaving is not None:
            kind, cost = leaving
            for tree in trees:
                yield cost, kind, consumer, _leave(looking, kind, consumer, cost, tree, held)


def _leave(
    looking: _Looking,
    kind: str,
    consumer: str,
    cost: Fraction,
    tree: int,
    by_tree: Collection[int],
) -> Callable[[], Relaxation | None]:
    """Return what tries whether a tree has room without a consumer."""

    def tried() -> Relaxation | None:
        if consumer in looking.gone:
            return None  # it helps already, on another host
        scenario = looking.part(tree, *by_tree)
        change = Change("release", (consumer,))
        change.apply(scenario)
        found = looking.found(scenario, looking.request)
        if found is not None:
            looking.gone.add(consumer)
        end = looking.asked.ends.get(consumer)
        told = f"{consumer} released" if kind == "release" else f"{consumer} ends at {end:%F %R}"
        return _proven(looking, kind, consumer, told, cost, change, found)

    return tried


def _cost_of_leaving(asked: Asked, consumer: str, size: Fraction) -> tuple[str, Fraction] | None:
    found: list[tuple[Fraction, str]] = []
    if "wait" in asked.kinds and consumer in asked.ends:
        left = (asked.ends[consumer] - asked.now) // datetime.timedelta(seconds=1)
        found.append((asked.costs["wait"] * Fraction(max(left, 0), 3600), "wait"))
    if "release" in asked.kinds and consumer not in asked.protected:
        important = 1 + asked.priorities.get(consumer, 0)
        found.append((asked.costs["release"] * size * important, "release"))
    if not found:
        return None
    cost, kind = min(found)
    return kind, cost


def _counts(request: Request | None) -> dict[str, int]:
    """Return how much is asked of each class, over all groups."""
    counts: dict[str, int] = {}
    for group in () if request is None else request.groups:
        for name, amount in group.resources.by_name():
            some = amount.located or {
                record.resource_class: record.amount for record in amount.to_records(name)
            }
            for kind, count in some.items():
                counts[kind] = counts.get(kind, 0) + count
    return counts


def _ratios(looking: _Looking) -> Iterator[Relaxation]:
    """Yield which ratio of one inventory would do, the least of each; never one of devices."""
    yield from looking.best_of(_raised(looking))


def _raised(looking: _Looking) -> Iterator[_Trial]:
    fleet = looking.fleet.in_force()
    rows, weight = fleet.inventories, looking.asked.costs["ratio"]
    of_kinds = _of_kinds(fleet)
    counts = _counts(looking.counts)
    for name, count in counts.items():
        some = fleet.classes.get(name)
        if some is None or is_device(name):  # a device exists once
            continue
        here = slice(some.first, some.first + len(some.tree))
        capacity = rows.capacity.copy()
        capacity[here] = np.maximum(capacity[here], 0) + MAX_AMOUNT // 4
        free = fleet.shares.left(capacity - rows.used)
        high = np.minimum(free, rows.max_unit) // rows.step_size * rows.step_size
        could = looking.could(
            dataclasses.replace(
                rows, capacity=frozen(capacity), free=frozen(free), high=frozen(high)
            )
        )
        if could.any():
            could[list(looking.pool_trees)] = True
        base = some.total - some.reserved
        least = 1 if name in looking.located else _least(looking.counts, name)
        for entry in np.flatnonzero(
            could[some.tree] & (base > 0) & ~some.is_part & ~some.is_single
        ).tolist():
            place = int(some.provider[entry])
            if (place, name) in of_kinds:
                continue  # devices and cells are what they are, nor are there two of one
            # at least one more must be had: what is left of it now is not enough
            need = int(some.used[entry]) + (1 if some.is_below[entry] else least)
            now = int(some.capacity[entry])
            if need <= now:
                need = now + 1
            at, most = int(base[entry]), int(some.used[entry]) + count
            if fleet.shares:  # what else is asked may draw on it, too
                most += _drawn(fleet, some.first + entry, counts)
            cost = weight * (Fraction(_millionths(need, at), int(some.ratio[entry])) - 1)
            if cost <= 0:
                continue
            subject = f"{name} of {fleet.names[place]}"
            trial = _raise(looking, place, name, (need, max(most, need)), at)
            yield cost, "ratio", subject, trial


def _drawn(fleet: Fleet, number: int, counts: Mapping[str, int]) -> int:
    """Return the most of an inventory that other inventories draw if all that is asked is taken."""
    factors: dict[str, int] = {}
    for source, factor in fleet.shares.into(number):
        name = fleet.class_of(source)
        factors[name] = max(factor, factors.get(name, 0))
    return sum(factor * counts.get(name, 0) for name, factor in factors.items())


def _least(counts: Request | None, name: str) -> int:
    """Return the least amount of a class that one group asks for."""
    return min(
        record.amount
        for group in (() if counts is None else counts.groups)
        for kind, amount in group.resources.by_name()
        for record in amount.to_records(kind)
        if record.resource_class == name
    )


def _of_kinds(fleet: Fleet) -> set[tuple[int, str]]:
    """Return the (place, class) of what is kept as parts of something that lies over a tree."""
    found: set[tuple[int, str]] = set()
    for parts in fleet.parts.values():
        for place, shape in zip(parts.provider.tolist(), parts.shape.tolist(), strict=True):
            found.update((place, name) for name in parts.shapes[shape])
    return found


def _millionths(capacity: int, base: int) -> int:
    """Return the least ratio by which so many can be had of what there is, in millionths."""
    return -(-capacity * MILLION // base)


def _raise(
    looking: _Looking, place: int, name: str, span: tuple[int, int], base: int
) -> Callable[[], Relaxation | None]:
    """Return what looks for the least ratio of an inventory that will do.

    :param span: the least and the most that there would have to be of it
    """
    fleet = looking.fleet
    provider = fleet.names[place]

    def with_capacity(capacity: int) -> tuple[Change, Candidate | None] | None:
        millionths = _millionths(capacity, base)
        if millionths > MAX_RATIO * MILLION:
            return None
        scenario = looking.around(place)
        own = next(one for one in scenario.tree(provider).walk() if one.name == provider)
        kept: Any = own.inventories[name]
        fields = {field: getattr(kept, field) for field in kept.fields if field != "used"}
        kind = resource(name)
        raised = type(kept)(**{**fields, "allocation_ratio": from_millionths(millionths)})
        change = Change("resize", (provider, f"{name}={kind.format_inventory(raised)}"))
        change.apply(scenario)
        return change, looking.found(scenario, looking.request)

    def tried() -> Relaxation | None:
        low, high = span
        best = with_capacity(high)
        if best is None or best[1] is None:
            return None
        while low < high:
            middle = (low + high) // 2
            one = with_capacity(middle)
            if one is None or one[1] is None:
                low = middle + 1
            else:
                high, best = middle, one
        number = fleet.number(place, name)
        assert number is not None, "it was found"
        now = int(fleet.inventories.ratio[number])
        millionths = _millionths(high, base)
        cost = looking.asked.costs["ratio"] * (Fraction(millionths, now) - 1)
        ratio = from_millionths(millionths)
        told = f"{name} of {provider} at a ratio of {ratio} instead of {from_millionths(now)}"
        return _proven(looking, "ratio", f"{name} of {provider}", told, cost, best[0], best[1])

    return tried


def _added(looking: _Looking) -> Iterator[Relaxation]:
    """Yield which host would do if there were one more like it, in service."""
    fleet, cost = looking.fleet, looking.asked.costs["add"]
    could = if_unheld(fleet, looking.anywhere, in_force=False)
    out = fleet.out_of_service()
    if out is not None:
        could[fleet.tree[out]] = True
    could[list(fleet.pools.trees)] = False
    some = np.flatnonzero(could)
    if out is not None:  # of those that are alike one that is in service
        some = some[np.argsort(out[fleet.roots[some]], kind="stable")]
    _, first = np.unique(_shapes(fleet)[some], return_index=True)
    trees = sorted(some[first].tolist())

    def trial(tree: int) -> _Trial:
        host = fleet.hosts[tree]

        def tried() -> Relaxation | None:
            # what a new host is given, or gives, depends on all pools
            scenario = looking.snapshot.fork() if fleet.pools else looking.part(tree)
            name = next(free_name(fleet.hosts, host))
            change = Change("add", (name, "like", host))
            try:
                change.apply(scenario)
            except exceptions.Conflict as error:  # it would be given what the other one's pool has
                if not error.is_about("pool"):
                    raise
                return None
            found = looking.found(scenario, looking.request)
            told = f"one more host like {host}"
            return _proven(looking, "add", host, told, cost, change, found)

        return cost, "add", host, tried

    yield from looking.best_of(map(trial, trees))


def _shapes(fleet: Fleet) -> Any:
    """Return a number for each tree, the same for those that have the same things (nearly surely).

    Who is told apart needlessly is tried once more; who is not, by a collision of 64 bits, is not.
    """
    with np.errstate(over="ignore"):
        own = _contents(fleet)
        is_top = fleet.parent == np.arange(len(fleet.parent))
        found, before = _mixed(own), None
        while before is None or not np.array_equal(found, before):  # once for each level
            before = found
            found = np.where(is_top, found, _mixed(own + found[fleet.parent]))
        shapes = np.zeros(len(fleet.hosts), dtype=np.uint64)
        np.add.at(shapes, fleet.tree, _mixed(found))
    return shapes


def _contents(fleet: Fleet) -> Any:
    """Return a number for what each provider has itself."""
    found = np.zeros(len(fleet.parent), dtype=np.uint64)
    rows, shares = fleet.inventories, fleet.shares
    for number, (_, some) in enumerate(sorted(fleet.classes.items()), 1):
        mixed = np.full(len(some.tree), number, dtype=np.uint64)
        figures = (some.total, some.reserved, some.ratio, some.max_unit, some.low, some.step_size)
        for column in figures:
            mixed = _mixed(mixed ^ column.astype(np.uint64))
        np.add.at(found, some.provider, mixed)
    words = [*fleet.traits.items(), *fleet.aggregates.items()]
    for number, (name, places) in enumerate(sorted(words, key=operator.itemgetter(0)), 1):
        if name != TRAIT:
            np.add.at(found, places, _mixed(np.full(len(places), number << 32, dtype=np.uint64)))
    if shares:
        source, target = (rows.provider[column] for column in (shares.source, shares.target))
        far = (target - source).astype(np.uint64) ^ (shares.factor.astype(np.uint64) << 32)
        np.add.at(found, source, _mixed(_mixed(far)))
    for parts in fleet.parts.values():
        for place, text in parts.described():
            found[place] += _mixed(np.uint64(zlib.crc32(text.encode())) << np.uint64(16))
    return found


def _mixed(values: Any) -> Any:
    """Return 64 bits that depend on all 64 bits (splitmix64: Steele, Lea, Flood, 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


#: What is looked for, in an order in which what is likely to be cheap comes first.
_KINDS: Mapping[frozenset[str], Callable[[_Looking], Iterator[Relaxation]]] = FrozenDict(
    {
        frozenset(
            ["near", "policy", "trait", "aggregate", "tree", "subtree", "topology", "group"]
        ): _of_request,
        frozenset(["amount"]): _of_amounts,
        frozenset(["enable"]): _enabled,
        frozenset(["add"]): _added,
        frozenset(["release", "wait"]): _released,
        frozenset(["ratio"]): _ratios,
    }
)
