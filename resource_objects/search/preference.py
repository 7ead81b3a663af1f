"""The order in which trees are looked at, and who of a tree comes first, by figures of a fleet."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from resource_objects.requests import Request
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.asked import Asked, bits
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Order

#: How full something is: from 0 to 1, more where there is less than asked for.
Fullness = npt.NDArray[np.float64]


class Preference:
    """An order, with a seed, over a fleet and for a request."""

    def __init__(self, fleet: Fleet, request: Request, order: Order, seed: int | None) -> None:
        self._fleet = fleet
        self._order = order
        self._seed = seed
        self._request = request
        self._worth = self._worths()

    @property
    def is_plain(self) -> bool:
        """Whether who stands first comes first."""
        return self._order.is_plain and self._seed is None

    def trees(self, possible: Integers) -> list[int]:
        """Return trees in the order in which they are looked at. Cost: a pass over the fleet."""
        if self.is_plain or not len(possible):
            return possible.tolist()  # type: ignore[no-any-return]
        rng = np.random.default_rng(self._seed or 0)
        keys: list[Any] = [possible]
        if self._order.by == "random":
            keys.append(rng.random(len(possible)))
        elif self._order.by != "name":
            keys.append(self._sign * self._fullness()[possible])
        if self._worth is not None:
            keys.append(-self._worth_of_trees()[possible])
        ordered = possible[np.lexsort(keys)]
        block = self._order.block(self._seed)
        if block > 1 and self._order.by != "random":
            places = np.arange(len(ordered)) // block
            ordered = ordered[np.lexsort((rng.random(len(ordered)), places))]
        return ordered.tolist()  # type: ignore[no-any-return]

    def of_givers(self, asked: Asked, tree: int) -> Asked:
        """Return the same asked with who is preferred first, of the tree itself before pools."""
        numbers = list(asked.numbers)
        rows = self._fleet.inventories
        capacity, free = rows.capacity[numbers].tolist(), rows.free[numbers].tolist()
        providers = rows.provider[numbers].tolist()
        luck = self._luck(tree, len(numbers))
        worth = [0.0 if self._worth is None else float(self._worth[p]) for p in providers]

        def key(place: int) -> tuple[Any, ...]:
            full = 1 - free[place] / capacity[place] if capacity[place] else 1.0
            return place >= asked.own, -worth[place], self._sign * full, luck[place], place

        order = sorted(range(len(numbers)), key=key)
        return permuted(asked, order)

    def of_providers(self, tree: int, providers: Sequence[int]) -> list[int]:
        """Return providers with who is preferred first, of the tree itself before pools."""
        if self.is_plain:
            return list(providers)
        full = self._by_provider
        luck = self._luck(tree, len(providers))

        def key(place: int) -> tuple[Any, ...]:
            provider = providers[place]
            worth = 0.0 if self._worth is None else float(self._worth[provider])
            is_pool = int(self._fleet.tree[provider]) != tree
            return is_pool, -worth, self._sign * full(provider), luck[place], place

        return [providers[place] for place in sorted(range(len(providers)), key=key)]

    @functools.cached_property
    def _asked(self) -> dict[str, int]:
        """What is asked for as counts, over all groups."""
        every: Any = self._request.resources.items()
        return {kind.name: int(amount) for kind, amount in every if not kind.is_located}

    @property
    def _sign(self) -> int:
        """What makes the smallest come first."""
        return {"pack": -1, "spread": 1}.get(self._order.by, 0)

    def _luck(self, tree: int, count: int) -> list[float]:
        """Return what decides between equal ones: a seed, or nothing."""
        if self._seed is None:
            return [0.0] * count
        rng = random.Random(self._seed * 1_000_003 + tree)
        return [rng.random() for _ in range(count)]

    def _weights(self) -> dict[str, float]:
        return {**dict.fromkeys(self._asked, 1.0), **self._order.weights}

    def _fullness(self) -> Fullness:
        """Return how full each tree would be with the request, over its classes by weight."""
        trees = len(self._fleet.hosts)
        total, weights = np.zeros(trees), self._weights()
        for name, weight in weights.items():
            rows = self._fleet.rows(name)
            counts = ~rows.is_part
            tree = rows.tree[counts]
            capacity = np.bincount(tree, weights=rows.capacity[counts], minlength=trees)
            # what is used elsewhere because of shares is not free here either
            free = np.bincount(tree, weights=rows.free[counts], minlength=trees)
            used = capacity - free + self._asked.get(name, 0)
            total += weight * np.divide(used, capacity, out=np.zeros(trees), where=capacity > 0)
        return total / (sum(weights.values()) or 1.0)

    def _by_provider(self, provider: int) -> float:
        """Return how full a provider is, over the classes that count."""
        rows, weights = self._fleet.inventories, self._weights()
        total = 0.0
        for number in self._fleet.kin.inventories(provider):
            weight = weights.get(self._fleet.class_of(number), 0.0)
            if weight and rows.capacity[number]:
                total += weight * (1 - float(rows.free[number]) / float(rows.capacity[number]))
        return total

    def _worths(self) -> Fullness | None:
        """Return what the traits of each provider are worth, None where none is preferred."""
        if not self._order.preferred:
            return None
        found = np.zeros(len(self._fleet.names))
        for trait, worth in self._order.preferred.items():
            found += worth * self._having(trait)
        return found

    def _worth_of_trees(self) -> Fullness:
        """Return what the traits that providers of each tree have are worth, each trait once."""
        found = np.zeros(len(self._fleet.hosts))
        for trait, worth in self._order.preferred.items():
            has = np.zeros(len(found), dtype=np.bool_)
            has[self._fleet.tree[self._having(trait)]] = True
            found += worth * has
        return found

    def _having(self, trait: str) -> Booleans:
        return self._fleet.having(self._fleet.traits, (trait,))


def permuted(asked: Asked, order: Sequence[int]) -> Asked:
    """Return the same asked with the givers in another order."""
    place = {before: now for now, before in enumerate(order)}

    def moved(some: int) -> int:
        return bits([bool(some >> before & 1) for before in order])

    return dataclasses.replace(
        asked,
        numbers=[asked.numbers[before] for before in order],
        givers=tuple(asked.givers[before] for before in order),
        allowed=moved(asked.allowed),
        with_trait=tuple(map(moved, asked.with_trait)),
        draws=tuple(draw._replace(giver=place[draw.giver]) for draw in asked.draws),
    )
