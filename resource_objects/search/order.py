"""The order of hosts, and of the providers of a host."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers.arguments import tighter
from resource_objects.providers.orders import UNLIMITED, UseLimits
from resource_objects.requests import Request
from resource_objects.resources import resource
from resource_objects.resources.traits import checked_traits
from resource_objects.search.arrays import Booleans, Figures, Integers
from resource_objects.search.demands import TreeDemand, bits
from resource_objects.search.equivalence import equivalence
from resource_objects.search.findings import FilterFactory
from resource_objects.search.fleet import Fleet
from resource_objects.search.placements import least_exclusive

#: The values of ``Order.by``.
ORDERS = ("name", "pack", "spread", "random")
#: The worth of some hosts, by their trees, as the weighers of a scheduler compute it.
Weigh: TypeAlias = "Callable[[Fleet, Request, Integers], Figures]"
#: The number of best hosts that are shuffled by a seed, by default.
AMONG = 10
#: The number of trees that are sorted at first; most searches end long before.
FIRST_SORTED = 64
#: The greatest weight and worth: sums of these are exact enough, and never too large.
MOST = 1e12


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """The order in which hosts are searched and returned.

    :param by: ``name``; ``pack``: the fullest first, as they would be with the request; ``spread``:
        the emptiest first; ``random``: by the seed alone, by default 0
    :param weights: by resource class, the weight of its fullness, by default 1; classes that are
        not requested count too if they are named
    :param preferred: by trait, the worth of a host that has a provider with it: the hosts with the
        greatest sums come first, before ``by`` decides; a trait below 0 is unwelcome
    :param weigh: a function of the fleet, the request and an array of trees that returns the worth
        of each: hosts of greater worth come first, after ``preferred`` and before ``by``
    :param among: with a seed, this number of best hosts is shuffled, then the same number of next
        ones, so that simultaneous requests do not all take the same host

    :raises InvalidInput: for invalid arguments

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
            checked_traits(list(self.preferred))
        if self.among is not None and (type(self.among) is not int or self.among < 1):
            raise exceptions.InvalidInput("request", "among", self.among, "an integer of 1 or more")

    @classmethod
    def of(cls, order: Any) -> Order:
        """Return an order itself, or the order of a name."""
        if isinstance(order, cls):
            return order
        return _NAMED.get(order) or cls(order) if isinstance(order, str) else cls(order)

    @property
    def keeps_order(self) -> bool:
        """True for the order of names that leaves the providers of a host in their order."""
        return self.by == "name" and not self.preferred

    def block(self, seed: int | None) -> int:
        """Return the number of best hosts that are shuffled: 1 for none."""
        if seed is None:
            return 1
        return AMONG if self.among is None else self.among


def check_seed(seed: object) -> int | None:
    """Return a seed, or raise ``InvalidInput``."""
    if seed is not None and (type(seed) is not int or seed < 0):
        raise exceptions.InvalidInput("request", "seed", seed, "an integer of 0 or more, or None")
    return seed


def _figures(label: str, figures: object, least: float) -> FrozenDict:
    if not isinstance(figures, Mapping):
        raise exceptions.InvalidInput("request", label, figures, "a mapping of names to numbers")
    for name, value in figures.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= MOST:
            expected = f"a number from {least:.0f} to {MOST:.0f}"
            raise exceptions.InvalidInput("request", f"{label} {name}", value, expected)
    return FrozenDict({name: float(value) for name, value in figures.items()})


#: The orders that have a name only: making one takes longer than a small part of a search.
_NAMED = {name: Order(name) for name in ORDERS}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The options of a search."""

    limit: int | None
    per_host: int | None
    order: Order
    seed: int | None
    budget: int
    #: the maximum use of some inventories in total, by the uuids of their providers
    limits: UseLimits = UNLIMITED
    #: further conditions on hosts, in the order in which they are explained
    filters: tuple[FilterFactory, ...] = ()
    #: the uuids of providers that come first: those of a consumer that is changed in place
    keeps: frozenset[str] = frozenset()

    def within(self, limits: UseLimits) -> Options:
        """Return a copy of the options with further limits."""
        if not limits:
            return self
        return dataclasses.replace(self, limits=tighter(self.limits, limits))

    def again(self, chance: int) -> Options:
        """Return the options for another search after others allocated all that was found.

        Others search in the same order and would allocate the same again. So hosts are shuffled,
        among four times as many of the best each time.

        :param chance: the seed, if there was none; else the next one is used
        """
        seed = chance if self.seed is None else self.seed + 1
        order = dataclasses.replace(self.order, among=4 * self.order.block(seed))
        return dataclasses.replace(self, seed=seed, order=order)


# --- preference ---------------------------------------------------------------------------------


class Preference:
    """An order over the figures of a fleet: of its trees, and of the providers of a tree."""

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

    @property
    def keeps_order(self) -> bool:
        """True if the providers of a host remain in their order."""
        return self._order.keeps_order and self._seed is None and not self._keeps

    # --- trees ---

    def trees(self, possible: Integers) -> Iterator[int]:
        """Yield trees in order.

        Cost: a pass over the fleet for the first :data:`FIRST_SORTED`; then all are sorted.
        """
        for part in self.sorted_parts(possible):
            yield from part.tolist()

    def sorted_parts(self, possible: Integers) -> Iterator[Integers]:
        """Yield the trees in order, in two arrays.

        The first has about :data:`FIRST_SORTED`, whole blocks of a shuffle; the second has the
        rest, which is sorted only if it is read.
        """
        if (self.keeps_order and self._order.weigh is None) or not len(possible):
            yield possible[:FIRST_SORTED]
            yield possible[FIRST_SORTED:]
            return
        rng = np.random.default_rng(self._seed or 0)
        keys: list[Any] = [possible]
        if self._order.by == "random":
            keys.append(rng.random(len(possible)))
        elif self._order.by != "name":
            fullness = self._fleet.fullness(self._weights, self._counts)
            keys.append(self.sign * fullness[possible])
        if self._order.weigh is not None:
            keys.append(-self._order.weigh(self._fleet, self._request, possible))
        if self._order.preferred:
            keys.append(-self._worth_of_trees()[possible])
        block = 1 if self._order.by == "random" else self._order.block(self._seed)
        luck = rng.random(len(possible)) if block > 1 else None

        def ordered(places: Any) -> Integers:
            result: Integers = possible[places][np.lexsort([key[places] for key in keys])]
            if luck is not None:
                blocks = np.arange(len(result)) // min(block, len(possible))
                result = result[np.lexsort((luck[: len(result)], blocks))]
            return result

        best = _first(keys, FIRST_SORTED)
        count = len(best) // block * block  # the last block may lack some of its trees
        yield ordered(best)[:count]
        if count < len(possible):
            yield ordered(slice(None))[count:]

    def _worth_of_trees(self) -> Figures:
        """Return, by tree, the worth of the traits that its providers have, each trait once."""
        result = np.zeros(len(self._fleet.hosts))
        for trait, worth in self._order.preferred.items():
            has = np.zeros(len(result), dtype=np.bool_)
            has[self._fleet.tree[self._having(trait)]] = True
            result += worth * has
        return result

    # --- providers of a tree ---

    def of_sources(self, demand: TreeDemand, tree: int) -> TreeDemand:
        """Return a copy of the demand: preferred sources first, those of the tree before pools.

        Placements that exclude the fewest others come first.
        """
        if not self.keeps_order:
            rows, numbers = self._fleet.inventories, list(demand.numbers)
            figures = zip(rows.capacity[numbers].tolist(), rows.free[numbers].tolist(), strict=True)
            full = [1 - free / capacity if capacity else 1.0 for capacity, free in figures]
            demand = permuted(demand, self._ranked(tree, rows.provider[numbers].tolist(), full))
        if not demand.shared_uses or len(demand.numbers) < 2:
            return demand
        order = least_exclusive(self._fleet, demand.numbers, demand.amount)
        return demand if order == sorted(order) else permuted(demand, order)

    def of_providers(self, tree: int, providers: Sequence[int]) -> list[int]:
        """Return providers with the preferred first, those of the tree before pools.

        Placements that exclude the fewest others come first.
        """
        if not self.keeps_order:
            full = [self._fullness(provider) for provider in providers]
            providers = [providers[place] for place in self._ranked(tree, providers, full)]
        if not self._fleet.has_shares:
            return list(providers)
        # a placement has one inventory; any other provider keeps its position
        inventories = map(equivalence(self._fleet).inventories, providers)
        numbers = [numbers[0] if len(numbers) == 1 else None for numbers in inventories]
        order = least_exclusive(self._fleet, numbers, len(providers))
        return [providers[place] for place in order]

    def _ranked(self, tree: int, providers: Sequence[int], full: Sequence[float]) -> list[int]:
        """Return the places of providers in the order of preference.

        :param full: how full each is; ``pack`` and ``spread`` decide by it
        """
        luck = [0.0] * len(providers)
        if self._seed is not None:
            rng = random.Random(self._seed * 1_000_003 + tree)
            luck = [rng.random() for _ in providers]
        worth = self._worth

        def key(place: int) -> tuple[Any, ...]:
            provider = providers[place]
            return (
                int(self._fleet.tree[provider]) != tree,
                provider not in self._keeps,
                0.0 if worth is None else -float(worth[provider]),
                self.sign * full[place],
                luck[place],
            )

        return sorted(range(len(providers)), key=key)

    @property
    def sign(self) -> int:
        """The factor of fullness in a key that sorts ascending; 0 if fullness does not matter."""
        return {"pack": -1, "spread": 1}.get(self._order.by, 0)

    @functools.cached_property
    def _counts(self) -> dict[str, int]:
        """The requested counts, over all groups."""
        amounts: Any = self._request.resources.items()
        return {kind.name: int(amount) for kind, amount in amounts if not kind.is_placed}

    @functools.cached_property
    def _weights(self) -> dict[str, float]:
        return {**dict.fromkeys(self._counts, 1.0), **self._order.weights}

    def _fullness(self, provider: int) -> float:
        """Return the fullness of a provider, over its classes by weight."""
        rows, total = self._fleet.inventories, 0.0
        for number in equivalence(self._fleet).inventories(provider):
            weight = self._weights.get(self._fleet.class_of(number), 0.0)
            if weight and rows.capacity[number]:
                total += weight * (1 - float(rows.free[number]) / float(rows.capacity[number]))
        return total

    @functools.cached_property
    def _worth(self) -> Figures | None:
        """By provider, the worth of its traits; None if no trait is preferred."""
        if not self._order.preferred:
            return None
        result = np.zeros(len(self._fleet.names))
        for trait, worth in self._order.preferred.items():
            result += worth * self._having(trait)
        return result

    def _having(self, trait: str) -> Booleans:
        return self._fleet.having(self._fleet.traits, (trait,))


def _first(keys: Sequence[Any], count: int) -> Integers:
    """Return the places of the ``count`` lowest values by several keys, the last most significant.

    >>> from resource_objects.search.arrays import integers
    >>> _first([integers([3, 1, 2, 0]), integers([5, 5, 5, 9])], 2).tolist()
    [1, 2]
    """
    key, less_significant = keys[-1], keys[:-1]
    if len(key) <= count:
        return np.arange(len(key))
    if not less_significant:  # places of trees, mostly in order already
        is_sorted = bool((key[1:] >= key[:-1]).all())
        return np.arange(count) if is_sorted else np.argpartition(key, count)[:count]
    bound = _lowest(key, count)
    lower, equal = np.flatnonzero(key < bound), np.flatnonzero(key == bound)
    first = _first([key[equal] for key in less_significant], count - len(lower))
    return np.concatenate((lower, equal[first]))


def _lowest(key: Any, count: int) -> Any:
    """Return the greatest of the ``count`` lowest values of a key.

    Most hosts are often alike, and partitioning equal values takes longer than sorting them.
    """
    for _ in range(3):
        least = key.min()
        equal = int(np.count_nonzero(key == least))
        if equal >= count:
            return least
        key, count = key[key > least], count - equal
    return np.partition(key, count - 1)[count - 1]


def permuted(demand: TreeDemand, order: Sequence[int]) -> TreeDemand:
    """Return a copy of the demand with the sources in another order.

    :param order: by new place, the place before
    """
    place = {before: now for now, before in enumerate(order)}

    def moved(sources: int) -> int:
        return bits([bool(sources >> before & 1) for before in order])

    return dataclasses.replace(
        demand,
        numbers=[demand.numbers[before] for before in order],
        sources=tuple(demand.sources[before] for before in order),
        allowed=moved(demand.allowed),
        with_trait=tuple(map(moved, demand.with_trait)),
        shared_uses={place[source]: links for source, links in demand.shared_uses.items()},
    )
