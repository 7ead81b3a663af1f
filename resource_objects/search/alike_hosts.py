"""Hosts in the same state: of a request they hold as many, in the same way, so one is decided.

A state is all that the search looks at: what may give, what is free of it, and, where units are
chosen, which there are and which of them are taken. Of what is asked for in one amount alone, and
given by one provider each time, it is how often it is there, no oftener than all of it fits: so a
host with 9 CPUs free is like one with 8 for who asks for 4. Providers stand for their places in the
tree, and those without any below them for each other, where nothing ties them. Hosts that a pool
serves are like no other.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.candidate import Candidate
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import ClassRows
from resource_objects.search.problem import Problem


class AlikeHosts:
    """The states of all hosts of a fleet, for some requests.

    Cost: a sort of the providers, and what is told of devices and cells, some 50 microseconds for
    each provider.
    """

    def __init__(self, problems: Sequence[Problem], most: Integers | None = None) -> None:
        """:param problems: requests over one fleet, of which all are to be held in the same way

        :param most: by tree, how many of all of them it can hold at most; None: nobody knows
        """
        self._fleet = fleet = problems[0].fleet
        self._most = np.full(len(fleet.tree), MAX_AMOUNT) if most is None else most[fleet.tree]
        nears = [one.near for one in problems if one.near is not None]
        self._places = [one.places.of for one in nears]
        self._demands = [ask for one in problems for ask in one.demands]
        self._demands += [one.demand for near in nears for one in near.classes]
        self._located = [one.demand for problem in problems for one in problem.located]
        self._kinds = [kind for one in problems for kind in one.named.kinds]
        self._rows = {one.resource_class: one.rows for one in self._demands}
        for kind in self._kinds:
            for name, (rows, _) in zip(kind.names, kind.classes, strict=True):
                self._rows[name] = rows
        self._is_told = bool(self._located) or any(
            not self._rows.keys().isdisjoint(shape)
            for parts in fleet.device_parts.values()
            for shape in parts.shapes
        )
        columns = np.stack(list(self._columns()), axis=1)
        _, code = np.unique(columns, axis=0, return_inverse=True)
        self._code = code.reshape(-1)
        self._order = np.arange(len(fleet.names))
        if not self._is_told and not fleet.shares and not nears:
            self._reorder()

    def of(self, tree: int) -> Hashable:
        """Return the state of a host; nobody who differs in it has the same."""
        fleet = self._fleet
        if fleet.pools and fleet.pools.of_tree(tree):
            return tree
        here = fleet.of_tree(tree)
        at = slice(here.start, here.stop)
        below = (fleet.parent[at] - here.start).tobytes()
        return self._code[self._order[at]].tobytes(), below, self._told(here)

    def moved(self, found: Candidate, old: int, new: int) -> Candidate:
        """Return a candidate of one host as one of another that is in the same state."""
        fleet, at = self._fleet, self._fleet.place_by_key
        here, there = (
            self._order[slice(o.start, o.stop)].tolist()
            for o in (fleet.of_tree(old), fleet.of_tree(new))
        )
        place = dict(zip(here, there, strict=True))
        return found.replace(
            host=fleet.hosts[new],
            allocations=tuple(
                one.replace(
                    provider=fleet.names[place[at[one.provider]]],
                    provider_uuid=fleet.uuids[place[at[one.provider]]],
                )
                for one in found.allocations
            ),
            generations=tuple(
                (fleet.uuids[place[at[uuid]]], int(fleet.generation[place[at[uuid]]]))
                for uuid, _ in found.generations
            ),
            mappings=FrozenDict(
                {
                    suffix: tuple(fleet.names[place[at[name]]] for name in names)
                    for suffix, names in found.mappings.items()
                }
            ),
        )

    def _reorder(self) -> None:
        """Let providers below one parent with nobody below them stand in the order of their state.

        Only where they are tied to each other by nothing else than their parent.
        """
        parent = self._fleet.parent
        is_leaf = np.ones(len(parent), dtype=np.bool_)
        is_leaf[parent] = False
        leaves = np.flatnonzero(is_leaf)
        now = np.lexsort((leaves, parent[leaves]))
        then = np.lexsort((self._code[leaves], parent[leaves]))
        self._order[leaves[now]] = leaves[then]

    def _columns(self) -> Iterator[Integers]:
        """Yield what is told of providers, an array each."""
        count = len(self._fleet.names)
        yield np.zeros(count, dtype=np.int64)
        for kind in self._kinds:
            yield kind.own.astype(np.int64)
        for ask in self._demands:
            flags = (ask.own.allowed, ask.gives_all, ask.is_device, *ask.own.has_required)
            for one in flags:
                yield self._spread(ask.rows, one)
        for name, rows in self._rows.items():
            amount = self._only_amount(name)
            if amount is None:
                yield self._spread(rows, rows.is_part)
                for figures in (rows.free, rows.min_unit, rows.max_unit, rows.step_size):
                    yield self._spread(rows, figures)
            else:
                times = rows.free.clip(0) // amount
                yield self._spread(rows, np.minimum(times, self._most[rows.provider]))
        for where in self._located:
            flags = (where.allowed, *where.has_required)  # its shape is told by its inventories
            for one in flags:
                found = np.full(count, -1)
                found[where.parts.provider] = one
                yield found
        for places in self._places:
            first = np.full(len(self._fleet.hosts), MAX_AMOUNT)
            some = np.flatnonzero(places >= 0)
            np.minimum.at(first, self._fleet.tree[some], places[some])
            yield np.where(places >= 0, places - first[self._fleet.tree], -1)

    def _spread(self, rows: ClassRows, values: Integers | Booleans) -> Integers:
        found = np.full(len(self._fleet.names), -1)
        found[rows.provider] = values
        return found

    def _only_amount(self, name: str) -> int | None:
        """Return in which amount alone a class is asked for, of one provider each time."""
        if self._places or self._is_told or self._fleet.shares:
            return None
        asking = [one for one in self._demands if one.resource_class == name]
        if any(one.is_split for one in asking):
            return None
        amounts = {one.amount for one in asking}
        for kind in self._kinds:
            for other, (_, amount) in zip(kind.names, kind.classes, strict=True):
                amounts |= {amount} if other == name else set()
        return amounts.pop() if len(amounts) == 1 else None

    # --- where units are chosen, or something is used elsewhere too ---

    def _told(self, here: range) -> Hashable:
        """Return all that is told of the providers of a tree: figures, shares and units."""
        fleet = self._fleet
        if not self._is_told and not fleet.shares:
            return None
        return tuple(self._told_of(provider, here.start) for provider in here)

    def _told_of(self, provider: int, first: int) -> Hashable:
        fleet, rows, equals = self._fleet, self._fleet.inventories, equivalence(self._fleet)
        figures = tuple(
            (
                fleet.class_of(n),
                *(int(column[n]) for column in (rows.capacity, rows.used, rows.free)),
                *(int(column[n]) for column in (rows.min_unit, rows.max_unit, rows.step_size)),
                tuple(
                    (int(rows.provider[of]) - first, fleet.class_of(of), factor)
                    for of, factor in fleet.shares.of(n)
                ),
            )
            for n in equals.inventories(provider)
        )
        if not self._is_told:
            return figures
        units = sorted((unit, name) for unit, name, _ in fleet.units.of_provider(provider))
        out = sorted(fleet.removed_units.get(provider, ()))
        told = self._descriptions.get(provider)
        return figures, tuple(units), tuple(out), told, equals.qualities(provider)

    @functools.cached_property
    def _descriptions(self) -> dict[int, tuple[tuple[str, str], ...]]:
        """How cells and devices describe themselves, by the place of their provider."""
        found: dict[int, tuple[tuple[str, str], ...]] = {}
        for kind, parts in self._fleet.parts.items():
            for provider, text in parts.described():
                found[provider] = (*found.get(provider, ()), (kind, text))
        return found
