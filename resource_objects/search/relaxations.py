"""Relaxations: the smallest single changes after which a request has a candidate.

Changes of the request: a smaller amount, or one trait, aggregate, group or policy less; a placed
amount is reduced in the ways of its resource (:meth:`.Resource.relaxations`). Changes of the
ledger: a consumer released or its claim ended, a larger allocation ratio, a provider enabled, or
one more host like an existing one, which is the question of an autoscaler.

The cost of a change is the weight of its kind (:data:`COSTS`) times its size. The cheapest changes
are tried first, each in a scenario, until nothing cheaper than the best can follow. Arrays exclude
most of them before: consumers that release too little, ratios that are not enough, hosts that are
equal. A trial is about one tree and its pools, for no candidate spans more. Bisections find the
largest amount and the least ratio.
"""

from __future__ import annotations

import bisect
import dataclasses
import datetime
import functools
import operator
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.disabled import TRAIT
from resource_objects.ratio import MAX_RATIO, MILLION, from_millionths
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources import Amount, resource
from resource_objects.resources.catalog import is_device
from resource_objects.resources.relaxations import RelaxationLadder, RelaxationStep
from resource_objects.search import fleet_io
from resource_objects.search.arrays import Booleans, Integers, integers, sums_by
from resource_objects.search.candidate import Candidate
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.fleet_io import columns_of
from resource_objects.search.problem import compile_request, possible_trees
from resource_objects.search.relaxed_request import (
    amounts_of,
    dropped_conditions,
    placed_reductions,
    with_count,
)
from resource_objects.search.scenario import Scenario, State
from resource_objects.search.script import Change, free_name

_T = TypeVar("_T")

#: The default weight of each kind.
COSTS: dict[str, Fraction] = {
    "amount": Fraction(1),  # size: the fraction of the amount that is given up
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
    "ratio": Fraction(2),  # size: the fraction by which the ratio grows
    "release": Fraction(3),  # size: 1 + priority, times its part of the request
    "add": Fraction(5),
}
#: Amounts up to this one are tried one by one if bisection is not exact.
FEW_AMOUNTS = 64
#: The maximum number of different unit rules of a class for which its largest amount is searched.
MOST_RULES = 8
#: The number of consumers of one tree up to which arrays decide their release.
MAX_PASSES = 256


@dataclasses.dataclass(frozen=True, slots=True)
class Relaxation:
    """One change after which the request has a candidate, with that candidate.

    ``request`` is the request after the change; ``change`` the change of the ledger, None for none.
    ``is_smallest`` is False if a smaller change of its kind and subject may exist: not all amounts
    are tried where providers have different unit rules.
    """

    kind: str
    subject: str  #: the class, trait, consumer or provider that changes
    description: str
    cost: Fraction
    request: Request
    change: Change | None
    candidate: Candidate
    is_smallest: bool = True

    def apply(self, scenario: Scenario[State]) -> Request:
        """Make the change in a scenario; return the request after it."""
        if self.change is not None:
            self.change.apply(scenario)
        return self.request

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "told": self.description,
            "cost": float(self.cost),
            "request": str(self.request),
            "change": None if self.change is None else str(self.change),
            "candidate": str(self.candidate),
            "is_smallest": self.is_smallest,
        }

    def __str__(self) -> str:
        return f"{self.description}: {self.candidate}"


class Relaxations(Sequence[Relaxation]):
    """The relaxations of a request, the smallest first.

    ``fits`` is True if the request fits without a change. ``cut_short`` is True if the tries or the
    budget of a search were exhausted: there may be others, and smaller ones. If there are none and
    it was cut short, access to the sequence raises ``SearchLimitReached``.
    """

    def __init__(
        self, relaxations: Iterable[Relaxation], *, fits: bool, cut_short: bool, tries: int
    ) -> None:
        self._relaxations = tuple(relaxations)
        self.fits = fits
        self.cut_short = cut_short
        #: the number of searches
        self.tries = tries

    def _checked(self) -> tuple[Relaxation, ...]:
        if not self._relaxations and self.cut_short:
            raise SearchLimitReached(self.tries)
        return self._relaxations

    def __len__(self) -> int:
        return len(self._checked())

    def __getitem__(self, index: Any) -> Any:
        return self._checked()[index]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "fits": self.fits,
            "cut_short": self.cut_short,
            "relaxations": [relaxation.to_dict() for relaxation in self._relaxations],
        }

    def __str__(self) -> str:
        if self.fits:
            return "it fits as it is"
        lines = [str(relaxation) for relaxation in self._relaxations]
        if self.cut_short:
            lines.append(f"cut short after {self.tries} tries: there may be others")
        return "\n".join(lines) or "no single change helps"


class _Trial(NamedTuple):
    cost: Fraction  # a lower bound
    kind: str
    subject: str
    run: Callable[[], Relaxation | None]


@dataclasses.dataclass(eq=False)
class RelaxationSearch:
    """The search of :meth:`.Snapshot.relaxations`, with its arguments.

    :raises InvalidInput: for an invalid argument
    """

    snapshot: State
    request: Request
    k: int
    costs: Mapping[str, Fraction | int]
    priorities: Mapping[str, int]
    protected: Collection[str]
    ends: Mapping[str, datetime.datetime]
    now: datetime.datetime
    kinds: Collection[str]
    budget: int
    max_tries: int

    def __post_init__(self) -> None:
        self._check()
        self.fleet = fleet = self.snapshot._fleet
        self._weights = COSTS | {kind: Fraction(cost) for kind, cost in self.costs.items()}
        self.tries = 0
        self.is_cut_short = False
        #: the request without near: the arrays decide which trees might satisfy it
        self.anywhere = self.request.replace(near=None, near_policy=None)
        self._pool_trees = {int(tree) for tree in fleet.tree[fleet.pools.providers].tolist()}
        #: a search in the tree of an unknown provider is refused, so every part has these trees
        self._in_trees = {
            fleet.whole_tree(place)
            for group in self.request.groups
            if group.in_tree is not None
            and (place := fleet.place_by_key.get(group.in_tree)) is not None
        }
        self._released: set[str] = set()  # consumers after whose release there is a candidate
        self._parts: dict[tuple[int, ...], Fleet] = {}

    def _check(self) -> None:
        def check(field: str, value: object, is_valid: bool, expected: str) -> None:
            if not is_valid:
                raise exceptions.InvalidInput("request", field, value, expected)

        for field, number in (("k", self.k), ("tries", self.max_tries)):
            check(field, number, type(number) is int and number >= 1, "an integer of 1 or more")
        for field, kinds in (("costs", self.costs), ("kinds", self.kinds)):
            for kind in kinds:
                check(field, kind, kind in COSTS, f"some of {', '.join(COSTS)}")
        for kind, cost in self.costs.items():
            is_number = isinstance(cost, int | Fraction) and not isinstance(cost, bool)
            check(f"cost of {kind}", cost, is_number and cost > 0, "an integer or fraction > 0")
        for name, priority in self.priorities.items():
            is_valid = type(priority) is int and priority >= 0
            check(f"priority of {name}", priority, is_valid, "an integer >= 0")
        is_list = not isinstance(self.protected, str)
        check("protected", self.protected, is_list, "a list of names")

    def answer(self) -> Relaxations:
        """Return the smallest changes after which there is a candidate."""
        if self.candidate(self.snapshot, self.request) is not None:
            return Relaxations((), fits=True, cut_short=False, tries=self.tries)
        if self.is_cut_short:
            raise SearchLimitReached(self.budget)
        smallest: list[Relaxation] = []
        order = operator.attrgetter("cost", "kind", "subject")
        for trial in sorted(self._trials(), key=order):
            if len(smallest) == self.k and trial.cost >= smallest[-1].cost:
                break
            relaxation = trial.run()
            if relaxation is not None:
                bisect.insort(smallest, relaxation, key=order)
                del smallest[self.k :]
        return Relaxations(smallest, fits=False, cut_short=self.is_cut_short, tries=self.tries)

    def _trials(self) -> Iterator[_Trial]:
        """Yield all trials of the requested kinds."""
        dropped = dropped_conditions(self.request)
        yield from (self._trial(*change) for change in dropped if change.kind in self.kinds)
        yield from self._placed_reductions()
        if "amount" in self.kinds:
            yield from self._smaller_counts()
        if "enable" in self.kinds:
            yield from self._enabled()
        if "add" in self.kinds:
            yield from self._added()
        if "release" in self.kinds or "wait" in self.kinds:
            yield from self._released_consumers()
        if "ratio" in self.kinds:
            yield from self._larger_ratios()

    def cost(self, kind: str, size: Fraction | int) -> Fraction:
        """Return the cost of a change."""
        return self._weights[kind] * size

    def candidate(self, state: State | Scenario[State], request: Request) -> Candidate | None:
        """Return a candidate, None if there is none or the tries are exhausted."""
        if self.tries >= self.max_tries:
            self.is_cut_short = True
            return None
        self.tries += 1
        candidates = state.candidates(request, limit=1, budget=self.budget)
        try:
            return candidates[0] if candidates else None
        except SearchLimitReached:
            self.is_cut_short = True
            return None

    def _attempt(
        self,
        kind: str,
        subject: str,
        description: str,
        size: Fraction | int,
        make: Callable[[], Request] | None = None,
        *,
        change: Change | None = None,
        fork: Callable[[], Scenario[State]] | None = None,
        is_smallest: bool = True,
    ) -> Relaxation | None:
        """Return a relaxation if there is a candidate after a change.

        :param make: makes the request, None for the one as it is
        :param fork: makes the scenario for a change of the ledger
        """
        state: State | Scenario[State] = self.snapshot
        try:
            request = self.request if make is None else make()
            if change is not None and fork is not None:
                state = fork()
                change.apply(state)
            candidate = self.candidate(state, request)
        except exceptions.InvalidInput:  # the rest is not a request, or contradicts itself
            if make is None:
                raise
            return None
        except exceptions.Conflict as error:  # a pool would provide what a new host has itself
            if not error.is_about("pool"):
                raise
            return None
        if candidate is None:
            return None
        cost = self.cost(kind, size)
        return Relaxation(kind, subject, description, cost, request, change, candidate, is_smallest)

    def _trial(
        self, kind: str, subject: str, description: str, *make: Callable[[], Request], **change: Any
    ) -> _Trial:
        """Return a trial of a change of size 1."""
        run = partial(self._attempt, kind, subject, description, 1, *make, **change)
        return _Trial(self.cost(kind, 1), kind, subject, run)

    # --- changes of the request ---

    def _placed_reductions(self) -> Iterator[_Trial]:
        """Yield the reductions of placed amounts, of which the first step that fits counts."""
        for reduction, make in placed_reductions(self.request):
            if reduction.kind in self.kinds:
                cost = self.cost(reduction.kind, reduction.step(1).size)
                run = partial(first_step, reduction, partial(self._reduce, reduction, make))
                yield _Trial(cost, reduction.kind, reduction.subject, run)

    def _reduce(
        self,
        reduction: RelaxationLadder[Amount],
        make: Callable[[RelaxationStep[Amount]], Request],
        step: RelaxationStep[Amount],
    ) -> Relaxation | None:
        return self._attempt(
            reduction.kind,
            reduction.subject,
            step.description,
            step.size,
            partial(make, step),
            is_smallest=reduction.is_ordered or reduction.steps <= FEW_AMOUNTS,
        )

    def _smaller_counts(self) -> Iterator[_Trial]:
        for group in self.request.groups:
            implied = {name for amount in group.resources.values() for name in amount.placed_counts}
            for name, amount in group.resources.by_name():
                records = amount.to_records(name)
                if not amount.is_placed and name not in implied and len(records) == 1:
                    requested = records[0].amount
                    run = partial(self._largest_count, group, name, requested)
                    cost = self.cost("amount", Fraction(1, requested))
                    yield _Trial(cost, "amount", name, run)

    def _largest_count(self, group: RequestGroup, name: str, requested: int) -> Relaxation | None:
        """Return the largest smaller count of a class that fits, with all else as requested.

        Inventories with equal unit rules that can provide a count can provide every smaller one,
        down to the minimum: a bisection finds the largest. Else all counts are tried if there are
        few.
        """
        rows = self.fleet.rows(name)
        rules = {*zip(rows.step_size.tolist(), rows.low.tolist(), strict=True)}
        are_few = requested <= FEW_AMOUNTS
        suffix = f" of group {group.suffix}" if group.suffix else ""

        def attempt(count: int) -> Relaxation | None:
            return self._attempt(
                "amount",
                name,
                f"{name}={count} instead of {requested}{suffix}",
                Fraction(requested - count, requested),
                partial(with_count, self.request, group, name, count),
                is_smallest=are_few or len(rules) < 2,
            )

        if len(rules) > 1 and are_few:
            return next(filter(None, map(attempt, range(requested - 1, -1, -1))), None)

        def attempt_nth(counts: range, number: int) -> Relaxation | None:
            return attempt(counts[number])

        of_rules = []
        for step, minimum in sorted(rules)[:MOST_RULES]:
            counts = range((requested - 1) // step * step, max(minimum, 1) - 1, -step)
            if counts:
                of_rules.append(_least(0, len(counts) - 1, partial(attempt_nth, counts)))
        by_cost = operator.attrgetter("cost")
        return min(filter(None, of_rules), key=by_cost, default=None) or attempt(0)

    # --- changes of the ledger ---

    def _part(self, trees: Collection[int]) -> Fleet:
        """Return a fleet of some trees with the pools that serve them."""
        fleet = self.fleet
        if fleet.within is not None:
            return fleet
        pools = {int(fleet.tree[place]) for tree in trees for place in fleet.pools.of_tree(tree)}
        key = tuple(sorted({*trees, *pools, *self._in_trees}))
        if key not in self._parts:
            if len(self._parts) > 256:
                self._parts.clear()
            self._parts[key] = fleet_io.read(columns_of(fleet, key))
        return self._parts[key]

    def _fork(self, trees: Collection[int]) -> Scenario[State]:
        return self.snapshot._with_fleet(self._part(trees)).fork()

    def _fork_around(self, place: int) -> Scenario[State]:
        """Return a scenario of all trees that the provider may serve."""
        tree = int(self.fleet.tree[place])
        return self.snapshot.fork() if tree in self._pool_trees else self._fork([tree])

    def _enabled(self) -> Iterator[_Trial]:
        fleet = self.fleet.enabled_as_of_now()
        for place in fleet.disabled:
            name = fleet.names[place]
            description = f"{name} in service again ({fleet.disabled[place].facts.reason})"
            fork = partial(self._fork_around, place)
            yield self._trial(
                "enable", name, description, change=Change("enable", (name,)), fork=fork
            )

    def _released_consumers(self) -> Iterator[_Trial]:
        """Yield the release of each consumer, or the end of its claim if that is cheaper."""
        requested = amounts_of(self.request)
        for consumer, allocated, trees in release_candidates(
            self.fleet, self.anywhere, self._pool_trees
        ):
            sizes: dict[str, Fraction] = {}
            if "wait" in self.kinds and consumer in self.ends:
                seconds = (self.ends[consumer] - self.now) // datetime.timedelta(seconds=1)
                sizes["wait"] = Fraction(max(seconds, 0), 3600)
            if "release" in self.kinds and consumer not in self.protected:
                amounts = [sum(of.get(name, 0) for of in allocated.values()) for name in requested]
                fractions = map(_fraction, amounts, requested.values())
                part = max(fractions, default=Fraction(1))
                sizes["release"] = part * (1 + self.priorities.get(consumer, 0))
            if sizes:
                cost, kind = min((self.cost(kind, size), kind) for kind, size in sizes.items())
                for tree in trees:
                    run = partial(self._release, kind, consumer, sizes[kind], {tree, *allocated})
                    yield _Trial(cost, kind, consumer, run)

    def _release(
        self, kind: str, consumer: str, size: Fraction, trees: Collection[int]
    ) -> Relaxation | None:
        if consumer in self._released:  # it helps on another tree
            return None
        end = self.ends.get(consumer)
        relaxation = self._attempt(
            kind,
            consumer,
            f"{consumer} released" if kind == "release" else f"{consumer} ends at {end:%F %R}",
            size,
            change=Change("release", (consumer,)),
            fork=partial(self._fork, trees),
        )
        if relaxation is not None:
            self._released.add(consumer)
        return relaxation

    def _larger_ratios(self) -> Iterator[_Trial]:
        """Yield larger ratios, of which the least that fits counts; never of devices or cells."""
        fleet = self.fleet.as_of_now()
        amounts: dict[str, list[int]] = {}
        for group in self.request.groups:
            for name, amount in group.resources.with_implied_counts().by_name():
                if not resource(name).is_placed and not amount.is_placed:
                    for record in amount.to_records(name):
                        amounts.setdefault(record.resource_class, []).append(record.amount)
        requested = {name: sum(parts) for name, parts in amounts.items()}
        implied = {
            name
            for group in self.request.groups
            for amount in group.resources.values()
            for name in amount.placed_counts
        }
        parts = {
            (place, name)
            for table in fleet.parts.values()
            for place, shape in zip(table.provider.tolist(), table.shape.tolist(), strict=True)
            for name in table.shapes[shape]
        }
        for name, count in requested.items():
            rows = fleet.classes.get(name)
            if rows is None or is_device(name):  # a device exists once
                continue
            least = 1 if name in implied else min(amounts[name])
            bases = rows.total - rows.reserved
            is_open = (bases > 0) & ~rows.is_part & ~rows.is_single
            is_open &= self._possible_without_bound(rows)[rows.tree]
            for entry in np.flatnonzero(is_open).tolist():
                place, used = int(rows.provider[entry]), int(rows.used[entry])
                # the present capacity is not enough
                low = used + (1 if rows.is_below[entry] else least)
                low = max(low, int(rows.capacity[entry]) + 1)
                high = used + count
                if fleet.has_shares:  # other amounts of the request may use it, too
                    high += _shared_use(fleet, rows.first + entry, requested)
                base, ratio = int(bases[entry]), int(rows.ratio[entry])
                size = Fraction(_ratio_for(low, base), ratio) - 1
                if size > 0 and (place, name) not in parts:
                    attempt = partial(self._raise_ratio, place, name, base, ratio)
                    run = partial(_least, low, max(high, low), attempt)
                    subject = f"{name} of {fleet.names[place]}"
                    yield _Trial(self.cost("ratio", size), "ratio", subject, run)

    def _possible_without_bound(self, rows: ClassRows) -> Booleans:
        """Return which trees might satisfy the request if a class had unbounded capacity."""
        fleet = self.fleet.as_of_now()
        here = slice(rows.first, rows.first + len(rows.tree))
        capacity = fleet.inventories.capacity.copy()
        capacity[here] = np.maximum(capacity[here], 0) + MAX_AMOUNT // 4
        is_possible = may_hold(self.anywhere, fleet.with_figures(capacity=capacity))
        if is_possible.any():
            is_possible[list(self._pool_trees)] = True
        return is_possible

    def _raise_ratio(
        self, place: int, name: str, base: int, now: int, capacity: int
    ) -> Relaxation | None:
        millionths, provider = _ratio_for(capacity, base), self.fleet.names[place]
        if millionths > MAX_RATIO * MILLION:
            return None
        ratio, scenario = from_millionths(millionths), self._fork_around(place)
        stored: Any = scenario.tree(provider).find(provider).inventories[name]
        fields = {field: getattr(stored, field) for field in stored.fields if field != "used"}
        raised = type(stored)(**{**fields, "allocation_ratio": ratio})
        inventory = f"{name}={resource(name).format_inventory(raised)}"
        subject = f"{name} of {provider}"
        return self._attempt(
            "ratio",
            subject,
            f"{subject} at a ratio of {ratio} instead of {from_millionths(now)}",
            Fraction(millionths, now) - 1,
            change=Change("resize", (provider, inventory)),
            fork=lambda: scenario,
        )

    def _added(self) -> Iterator[_Trial]:
        """Yield one more host like each of those that could satisfy the request if released."""
        fleet = self.fleet
        is_possible = may_hold(self.anywhere, fleet.released)
        disabled = fleet.disabled_mask()
        if disabled is not None:
            is_possible[fleet.tree[disabled]] = True
        is_possible[list(fleet.pools.trees)] = False
        trees = np.flatnonzero(is_possible)
        if disabled is not None:  # an enabled host stands for those that are equal to it
            trees = trees[np.argsort(disabled[fleet.roots[trees]], kind="stable")]
        _, first = np.unique(_definition_codes(fleet)[trees], return_index=True)
        names = frozenset(fleet.hosts)
        for tree in trees[first].tolist():
            host = fleet.hosts[tree]
            # a new host may be served by pools, or serve others as one
            fork = self.snapshot.fork if fleet.has_pools else partial(self._fork, [tree])
            change = Change("add", (free_name(names, host), "like", host))
            yield self._trial("add", host, f"one more host like {host}", change=change, fork=fork)


def _ratio_for(capacity: int, base: int) -> int:
    """Return the least ratio for a capacity, in millionths."""
    return -(-capacity * MILLION // base)


def _shared_use(fleet: Fleet, number: int, requested: Mapping[str, int]) -> int:
    """Return the most that other inventories use of one if the whole request is allocated."""
    factors: dict[str, int] = {}
    for source, factor in fleet.shares.into(number):
        name = fleet.class_of(source)
        factors[name] = max(factor, factors.get(name, 0))
    return sum(factor * requested.get(name, 0) for name, factor in factors.items())


@functools.lru_cache(maxsize=1024)
def _fraction(part: int, whole: int) -> Fraction:
    return Fraction(part, whole)


# --- consumers whose release may make room --------------------------------------------------------


class ReleaseCandidate(NamedTuple):
    """A consumer whose release may make room for a request."""

    consumer: str
    allocated: Mapping[int, Mapping[str, int]]  #: its amounts by tree and resource class
    trees: Collection[int]  #: the trees that may have room without it


def may_hold(request: Request, fleet: Fleet) -> Booleans:
    """Return the trees that may hold a request: all that can, and perhaps others."""
    flags = np.zeros(len(fleet.hosts), dtype=np.bool_)
    flags[possible_trees(compile_request(request, fleet))] = True
    return flags


def release_candidates(
    fleet: Fleet, request: Request, pool_trees: Collection[int]
) -> Iterator[ReleaseCandidate]:
    """Yield the consumers whose release may make room; no such consumer is left out.

    Arrays decide about all trees in one pass, with one consumer of each tree released, whichever
    units it has. Cost: a pass for each consumer of the fullest tree, up to ``MAX_PASSES``, and some
    microseconds for each allocation.

    :param pool_trees: the trees with a pool: its consumers may make room on each host it serves
    """
    is_feasible = may_hold(request, fleet.released.as_of_now())
    is_feasible[list(pool_trees)] = True
    allocated: dict[str, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    uses: list[tuple[int, str, int, str, int]] = []
    tree_of, is_included = fleet.tree.tolist(), is_feasible.tolist()
    for place, (name, consumer, amount) in fleet.allocations.all():
        tree = tree_of[place]
        if is_included[tree]:
            amounts = allocated[consumer][tree]
            amounts[name] = amounts.get(name, 0) + amount
            uses.append((tree, consumer, place, name, amount))
    may_help = _feasible_after_release(fleet, request, uses)
    for consumer, by_tree in allocated.items():
        trees = {tree for tree in by_tree if (tree, consumer) in may_help}
        for tree in by_tree.keys() & pool_trees:
            trees.update(_served_by(fleet, tree))
        if trees:
            yield ReleaseCandidate(consumer, by_tree, sorted(trees))


def _feasible_after_release(
    fleet: Fleet, request: Request, uses: Sequence[tuple[int, str, int, str, int]]
) -> set[tuple[int, str]]:
    """Return the trees that may hold a request if one consumer is released, with the consumer.

    :param uses: the tree, the consumer, the place, the resource class and the amount of each use
    """
    if not uses:
        return set()
    consumers: dict[int, dict[str, int]] = defaultdict(dict)  # by tree, with their turns
    turns = [consumers[use[0]].setdefault(use[1], len(consumers[use[0]])) for use in uses]
    _, _, places, names, amounts = zip(*uses, strict=True)
    numbers = fleet.by_class.find(names, integers(places))
    turn_of, amount_of = integers(turns), integers(amounts)
    released, used, shares = fleet.as_of_now().released, fleet.inventories.used, fleet.shares
    possible: list[Booleans] = []
    for turn in range(min(MAX_PASSES, max(turns) + 1)):
        is_released = (turn_of == turn) & (numbers >= 0)
        releases = sums_by(amount_of[is_released], numbers[is_released], len(used))
        remaining = used - releases
        if shares:
            np.subtract.at(remaining, shares.target, releases[shares.source] * shares.factor)
        possible.append(may_hold(request, released.with_figures(used=remaining)))
    return {
        (tree, consumer)
        for tree, turns_of in consumers.items()
        for consumer, turn in turns_of.items()
        if turn >= MAX_PASSES or possible[turn][tree]
    }


def _served_by(fleet: Fleet, tree: int) -> Iterator[int]:
    """Yield the trees that the pools of a tree serve, and the tree itself."""
    here = fleet.of_tree(tree)
    pools = fleet.pools.providers
    inside = pools[(pools >= here.start) & (pools < here.stop)]
    yield tree
    yield from np.flatnonzero(fleet.pools.linked_to(inside, len(fleet.hosts))).tolist()


# --- bisections -----------------------------------------------------------------------------------


def _least(low: int, high: int, attempt: Callable[[int], _T | None]) -> _T | None:
    """Return the outcome of the least number for which an attempt succeeds, None if none does.

    If it succeeds for a number, it does so for every larger one.
    """
    best = attempt(high)
    while best is not None and low < high:
        middle = (low + high) // 2
        outcome = attempt(middle)
        if outcome is None:
            low = middle + 1
        else:
            high, best = middle, outcome
    return best


def first_step(
    reduction: RelaxationLadder[Amount], attempt: Callable[[RelaxationStep[Amount]], _T | None]
) -> _T | None:
    """Return the outcome of the first step of a reduction that succeeds, None if none does.

    If the steps are neither ordered nor few, the outcome may be that of a later step. (Unit rules
    of providers do not apply to placed amounts.)
    """

    def attempt_number(number: int) -> _T | None:
        return attempt(reduction.step(number))

    steps = reduction.steps
    if not reduction.is_ordered and steps <= FEW_AMOUNTS:
        return next(filter(None, map(attempt_number, range(1, steps + 1))), None)
    best = _least(1, steps, attempt_number)
    if best is None and steps > 1:  # the last step may leave nothing to request
        best = _least(1, steps - 1, attempt_number)
    return best


# --- hosts with equal definitions -----------------------------------------------------------------


def _definition_codes(fleet: Fleet) -> Any:
    """Return a code for each tree: trees with equal definitions have the same (a hash of 64 bits).

    Trees that differ in their codes needlessly are tried once more. A collision hides a host.
    """
    with np.errstate(over="ignore"):
        codes = _provider_codes(fleet)
        is_root = fleet.parent == np.arange(len(fleet.parent))
        below, before = _mixed(codes), None
        while before is None or not np.array_equal(below, before):  # once for each level
            before = below
            below = np.where(is_root, below, _mixed(codes + below[fleet.parent]))
        trees = np.zeros(len(fleet.hosts), dtype=np.uint64)
        np.add.at(trees, fleet.tree, _mixed(below))
    return trees


def _provider_codes(fleet: Fleet) -> Any:
    codes = np.zeros(len(fleet.parent), dtype=np.uint64)

    def add(places: Integers, *figures: Any) -> None:
        mixed = np.zeros(len(places), dtype=np.uint64)
        for figure in figures:
            mixed = _mixed(mixed ^ np.asarray(figure).astype(np.uint64))
        np.add.at(codes, places, mixed)

    for number, (_, rows) in enumerate(sorted(fleet.classes.items()), 1):
        limits = rows.ratio, rows.max_unit, rows.low, rows.step_size
        add(rows.provider, number, rows.total, rows.reserved, *limits)
    names = [*fleet.traits.items(), *fleet.aggregates.items()]
    for number, (name, places) in enumerate(sorted(names, key=operator.itemgetter(0)), 1):
        if name != TRAIT:
            add(places, number << 32)
    provider, shares = fleet.inventories.provider, fleet.shares
    source, target = provider[shares.source], provider[shares.target]
    add(source, target - source, shares.factor << 32)
    for parts in fleet.parts.values():
        add(parts.provider, [zlib.crc32(text.encode()) << 16 for text in parts.descriptions])
    return codes


def _mixed(values: Any) -> Any:
    """Return 64 bits that depend on all 64 bits (splitmix64: Steele, Lea, Flood, 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
