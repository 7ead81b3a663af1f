"""In which order hosts are looked at, and found."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers.arguments import tighter
from resource_objects.providers.orders import UNLIMITED, UseLimits
from resource_objects.requests import Request
from resource_objects.resources import resource
from resource_objects.resources.traits import known_traits
from resource_objects.search.arrays import Booleans, Figures, Integers
from resource_objects.search.conditions.base import LaysFilter
from resource_objects.search.demands import TreeDemand, bits
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import Fleet
from resource_objects.search.placements import least_exclusive

#: The orders there are.
ORDERS = ("name", "pack", "spread", "random")
#: What each of some hosts is worth to who places a request, as a scheduler's weighers say it.
Weigh: TypeAlias = "Callable[[Fleet, Request, Integers], Figures]"
#: How many of the best are shuffled where a seed is given and nothing else is said.
AMONG = 10
#: The greatest weight and worth: sums of these are exact enough, and never too large.
MOST = 1e12


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """In which order hosts are looked at, and found.

    :param by: ``name``; ``pack``: the fullest first, as they would be with the request; ``spread``:
        the emptiest first; ``random``: by the seed alone, 0 unless told
    :param weights: by resource class, how much its fullness counts (1 unless told); classes that
        are not asked for count too if they are named
    :param preferred: by trait, how much it is worth that the host has a provider with it: hosts are
        first in the order of these sums, then in that of ``by``; below 0 it is unwelcome
    :param weigh: what hosts are worth besides, by their trees: who is worth more comes first,
        after what is preferred and before what ``by`` says
    :param among: with a seed, so many of the best are shuffled, then the next so many, so that
        many who ask at once do not all take the same host

    :raises InvalidInput: for what is no such thing

    >>> Order("pack", weights={"VCPU": 2}, preferred={"CUSTOM_SSD": 1})
    Order(by='pack', weights={'VCPU': 2.0}, preferred={'CUSTOM_SSD': 1.0}, among=None)
    >>> Order("best")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: order: got 'best', expected one of name, pack, ...
    """

    by: str = "name"
    weights: Mapping[str, float] = FrozenDict()
    preferred: Mapping[str, float] = FrozenDict()
    among: int | None = None
    weigh: Weigh | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.by not in ORDERS:
            raise exceptions.InvalidInput(
                "request", "order", self.by, f"one of {', '.join(ORDERS)}"
            )
        object.__setattr__(self, "weights", _figures("weights", self.weights, 0))
        object.__setattr__(self, "preferred", _figures("preferred", self.preferred, -MOST))
        for name in self.weights:
            resource(name)
        if self.preferred:
            known_traits(list(self.preferred))
        if self.among is not None and (type(self.among) is not int or self.among < 1):
            raise exceptions.InvalidInput("request", "among", self.among, "an integer of 1 or more")

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return ``given`` itself if it is an order already, else the one of that name."""
        if isinstance(given, cls):
            return given
        kind: Any = cls  # classes hash
        return _orders(kind)[given] if isinstance(given, str) and given in ORDERS else cls(given)

    @property
    def is_plain(self) -> bool:
        """Whether it is the order of names, and who of a host comes first that of its tree."""
        return self.by == "name" and not self.preferred

    def block(self, seed: int | None) -> int:
        """Return how many of the best are shuffled: 1 for none."""
        if seed is None:
            return 1
        return AMONG if self.among is None else self.among


@functools.cache
def _orders(cls: type[Order]) -> dict[str, Any]:
    """Return the orders that a name alone says."""
    return {name: cls(name) for name in ORDERS}


def check_seed(seed: object) -> int | None:
    """Return a seed, or raise ``InvalidInput``."""
    if seed is not None and (type(seed) is not int or seed < 0):
        raise exceptions.InvalidInput("request", "seed", seed, "an integer of 0 or more, or None")
    return seed


def _figures(what: str, given: object, least: float) -> FrozenDict:
    if not isinstance(given, Mapping):
        raise exceptions.InvalidInput("request", what, given, "a mapping of names to numbers")
    for name, value in given.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= MOST:
            expected = f"a number from {least:.0f} to {MOST:.0f}"
            raise exceptions.InvalidInput("request", f"{what} {name}", value, expected)
    return FrozenDict({name: float(value) for name, value in given.items()})


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How a search is made, beside what is asked."""

    limit: int | None
    per_host: int | None
    order: Order
    seed: int | None
    budget: int
    #: the most that may be used of some inventories in all, by the uuids of their providers
    limits: UseLimits = UNLIMITED
    #: what else hosts have to meet, in the order in which it is told
    filters: tuple[LaysFilter, ...] = ()
    #: the uuids of providers that come first: a consumer uses them, and is changed in place
    keeps: frozenset[str] = frozenset()

    def within(self, limits: UseLimits) -> Options:
        """Return how the same is searched under limits besides."""
        if not limits:
            return self
        return dataclasses.replace(self, limits=tighter(self.limits, limits))

    def again(self, chance: int) -> Options:
        """Return how a search is made anew after others took all that it found.

        They search in the same order, so who looks again in that order meets them again. It is
        shuffled instead, among four times as many of the best each time.

        :param chance: the seed, if there was none; else the next one is taken
        """
        seed = chance if self.seed is None else self.seed + 1
        order = dataclasses.replace(self.order, among=4 * self.order.block(seed))
        return dataclasses.replace(self, seed=seed, order=order)


# --- preference ---------------------------------------------------------------------------------
# The order in which trees are looked at, and who of a tree comes first, by figures of a fleet.


class Preference:
    """An order, with a seed, over a fleet and for a request."""

    def __init__(
        self,
        fleet: Fleet,
        request: Request,
        order: Order,
        seed: int | None,
        keeps: Collection[str] = (),
    ) -> None:
        """:param keeps: the uuids of providers that come first within their tree"""
        places = map(fleet.place_by_key.get, keeps)
        self._keeps = frozenset(place for place in places if place is not None)
        self._fleet = fleet
        self._order = order
        self._seed = seed
        self._request = request
        self._worth = self._worths()

    @property
    def is_plain(self) -> bool:
        """Whether who of a host stands first comes first."""
        return self._order.is_plain and self._seed is None and not self._keeps

    def trees(self, possible: Integers) -> Sequence[int]:
        """Return trees in the order in which they are looked at.

        Cost: a pass over the fleet; all are only put in order if somebody looks beyond the first.
        """
        if (self.is_plain and self._order.weigh is None) or not len(possible):
            return Ranked(possible[:FIRST].tolist(), len(possible), possible.tolist)
        rng = np.random.default_rng(self._seed or 0)
        keys: list[Any] = [possible]
        if self._order.by == "random":
            keys.append(rng.random(len(possible)))
        elif self._order.by != "name":
            keys.append(self.sign * self._fullness()[possible])
        if self._order.weigh is not None:
            keys.append(-self._order.weigh(self._fleet, self._request, possible))
        if self._worth is not None:
            keys.append(-self._worth_of_trees()[possible])
        block = 1 if self._order.by == "random" else self._order.block(self._seed)
        luck = rng.random(len(possible)) if block > 1 else None

        def ordered(some: Any) -> list[int]:
            found = possible[some][np.lexsort([key[some] for key in keys])]
            if luck is not None:
                places = np.arange(len(found)) // min(block, len(possible))
                found = found[np.lexsort((luck[: len(found)], places))]
            return found.tolist()  # type: ignore[no-any-return]

        best = _first(keys, FIRST)
        # of the last block that is begun nobody knows yet who is in it
        count = len(best) // block * block
        return Ranked(ordered(best)[:count], len(possible), lambda: ordered(slice(None)))

    def of_sources(self, demand: TreeDemand, tree: int) -> TreeDemand:
        """Return the same demand with the preferred sources first, own ones before pools.

        Of placements those come first that exclude the fewest others.
        """
        if self.is_plain:
            return self._with_placements_in_order(demand)
        numbers = list(demand.numbers)
        rows = self._fleet.inventories
        capacity, free = rows.capacity[numbers].tolist(), rows.free[numbers].tolist()
        providers = rows.provider[numbers].tolist()
        luck = self._luck(tree, len(numbers))
        worth = [0.0 if self._worth is None else float(self._worth[p]) for p in providers]

        def key(place: int) -> tuple[Any, ...]:
            full = 1 - free[place] / capacity[place] if capacity[place] else 1.0
            is_new = providers[place] not in self._keeps
            return place >= demand.own, is_new, -worth[place], self.sign * full, luck[place], place

        order = sorted(range(len(numbers)), key=key)
        return self._with_placements_in_order(permuted(demand, order))

    def _with_placements_in_order(self, demand: TreeDemand) -> TreeDemand:
        if not demand.draws or len(demand.numbers) < 2:
            return demand
        order = least_exclusive(self._fleet, demand.numbers, demand.amount)
        return demand if order == sorted(order) else permuted(demand, order)

    def of_providers(self, tree: int, providers: Sequence[int]) -> list[int]:
        """Return providers with who is preferred first, of the tree itself before pools."""
        if self.is_plain:
            return self._placements_in_order(providers)
        full = self._by_provider
        luck = self._luck(tree, len(providers))

        def key(place: int) -> tuple[Any, ...]:
            provider = providers[place]
            worth = 0.0 if self._worth is None else float(self._worth[provider])
            is_pool = int(self._fleet.tree[provider]) != tree
            is_new = provider not in self._keeps
            return is_pool, is_new, -worth, self.sign * full(provider), luck[place], place

        return self._placements_in_order(
            [providers[place] for place in sorted(range(len(providers)), key=key)]
        )

    def _placements_in_order(self, providers: Sequence[int]) -> list[int]:
        """Return providers with placements that exclude the fewest others first."""
        if not self._fleet.shares:
            return list(providers)
        of = equivalence(self._fleet).inventories
        # a placement has one inventory; any other provider stays where it is
        numbers = [found[0] if len(found := of(one)) == 1 else None for one in providers]
        order = least_exclusive(self._fleet, numbers, len(providers))
        return [providers[place] for place in order]

    @functools.cached_property
    def _counts(self) -> dict[str, int]:
        """What is asked for as counts, over all groups."""
        every: Any = self._request.resources.items()
        return {kind.name: int(amount) for kind, amount in every if not kind.is_located}

    @property
    def sign(self) -> int:
        """By what fullness is multiplied so that the smallest comes first; 0: it is nothing."""
        return {"pack": -1, "spread": 1}.get(self._order.by, 0)

    def _luck(self, tree: int, count: int) -> list[float]:
        """Return what decides between equal ones: a seed, or nothing."""
        if self._seed is None:
            return [0.0] * count
        rng = random.Random(self._seed * 1_000_003 + tree)
        return [rng.random() for _ in range(count)]

    def _weights(self) -> dict[str, float]:
        return {**dict.fromkeys(self._counts, 1.0), **self._order.weights}

    def _fullness(self) -> Figures:
        """Return how full each tree would be with the request, over its classes by weight."""
        return self._fleet.fullness(self._weights(), self._counts)

    def _by_provider(self, provider: int) -> float:
        """Return how full a provider is, over the classes that count."""
        rows, weights = self._fleet.inventories, self._weights()
        total = 0.0
        for number in equivalence(self._fleet).inventories(provider):
            weight = weights.get(self._fleet.class_of(number), 0.0)
            if weight and rows.capacity[number]:
                total += weight * (1 - float(rows.free[number]) / float(rows.capacity[number]))
        return total

    def _worths(self) -> Figures | None:
        """Return what the traits of each provider are worth, None where none is preferred."""
        if not self._order.preferred:
            return None
        found = np.zeros(len(self._fleet.names))
        for trait, worth in self._order.preferred.items():
            found += worth * self._having(trait)
        return found

    def _worth_of_trees(self) -> Figures:
        """Return what the traits that providers of each tree have are worth, each trait once."""
        found = np.zeros(len(self._fleet.hosts))
        for trait, worth in self._order.preferred.items():
            has = np.zeros(len(found), dtype=np.bool_)
            has[self._fleet.tree[self._having(trait)]] = True
            found += worth * has
        return found

    def _having(self, trait: str) -> Booleans:
        return self._fleet.having(self._fleet.traits, (trait,))


#: So many trees are put in order at first; most searches end long before.
FIRST = 64


def _first(keys: Sequence[Any], count: int) -> Integers:
    """Return the places of so many lowest values, by several keys of which the last counts most.

    >>> from resource_objects.search.arrays import integers
    >>> _first([integers([3, 1, 2, 0]), integers([5, 5, 5, 9])], 2).tolist()
    [1, 2]
    """
    key, others = keys[-1], keys[:-1]
    if len(key) <= count:
        return np.arange(len(key))
    if not others:  # places of trees, mostly in order already
        is_sorted = bool((key[1:] >= key[:-1]).all())
        return np.arange(count) if is_sorted else np.argpartition(key, count)[:count]
    most = _lowest(key, count)
    lower, alike = np.flatnonzero(key < most), np.flatnonzero(key == most)
    return np.concatenate((lower, alike[_first([k[alike] for k in others], count - len(lower))]))


def _lowest(key: Any, count: int) -> Any:
    """Return the lowest value but so many, less one.

    Most hosts are often alike, and partitioning equal values takes longer than sorting them.
    """
    for _ in range(3):
        least = key.min()
        alike = int(np.count_nonzero(key == least))
        if alike >= count:
            return least
        key, count = key[key > least], count - alike
    return np.partition(key, count - 1)[count - 1]


class Ranked(Sequence[int]):
    """Trees in order, of which the first are known; the rest is, when somebody looks there.

    >>> list(Ranked([5, 3], 4, lambda: [5, 3, 9, 1])), Ranked([5], 2, lambda: [5, 4])[1:]
    ([5, 3, 9, 1], [4])
    """

    __slots__ = ("_all", "_count", "_known")

    def __init__(self, first: list[int], count: int, every: Callable[[], list[int]]) -> None:
        self._known = first
        self._count = count
        self._all = every

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return self._every()[index]

    def __iter__(self) -> Iterator[int]:
        first = self._known
        yield from first
        if len(first) < self._count:
            yield from self._every()[len(first) :]

    def _every(self) -> list[int]:
        if len(self._known) < self._count:  # two threads may both do it, alike
            self._known = self._all()
        return self._known


def permuted(demand: TreeDemand, order: Sequence[int]) -> TreeDemand:
    """Return the same asked with the sources in another order."""
    place = {before: now for now, before in enumerate(order)}

    def moved(some: int) -> int:
        return bits([bool(some >> before & 1) for before in order])

    return dataclasses.replace(
        demand,
        numbers=[demand.numbers[before] for before in order],
        sources=tuple(demand.sources[before] for before in order),
        allowed=moved(demand.allowed),
        with_trait=tuple(map(moved, demand.with_trait)),
        draws=tuple(draw._replace(source=place[draw.source]) for draw in demand.draws),
    )
