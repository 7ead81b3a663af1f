"""Who may leave so that there is room: of all who hold something, whom arrays do not rule out.

One by one they would be as many searches as there are consumers. So one consumer of each tree
leaves at a time, and what a request needs at least is looked for on all trees at once: as many
passes as the fullest tree has consumers, all but some of them over the trees alone that have so
many. What that leaves is for a search to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from resource_objects.requests import Request
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.fleet import Fleet, unheld, with_used
from resource_objects.search.problem import lay, possible

#: So many passes are made over a whole fleet.
FEW_TURNS = 32
#: So many consumers of a tree are looked at by arrays; the others may all be of use.
MOST_TURNS = 1024


class Leaver(NamedTuple):
    """A consumer, what it holds, and where there may be room without it."""

    consumer: str
    held: Mapping[int, Mapping[str, int]]  #: by tree and class
    trees: tuple[int, ...]


def if_unheld(fleet: Fleet, request: Request, *, in_force: bool = True) -> Booleans:
    """Return which trees may hold a request if nobody held anything.

    :param in_force: whether units that are out of service stay so
    """
    then = unheld(fleet)
    found = np.zeros(len(fleet.hosts), dtype=np.bool_)
    found[possible(lay(request, then.in_force() if in_force else then))] = True
    return found


def leavers(
    fleet: Fleet, request: Request, of_pools: Collection[int], part: Callable[..., Fleet]
) -> Iterator[Leaver]:
    """Yield who may make room by leaving: nobody who does is left out.

    Cost: a pass for each consumer of the fullest tree, and some microseconds for each allocation.

    :param of_pools: the trees that have a pool
    :param part: given trees, makes a fleet of these and of what gives to them
    """
    could = if_unheld(fleet, request)
    could[list(of_pools)] = True  # a pool's consumer makes room for each host that it gives to
    every = _Held(fleet, could)
    room = _room(fleet, request, every, FEW_TURNS)
    crowded = {tree for (_, tree), turn in every.turn_of.items() if turn >= FEW_TURNS}
    crowded.difference_update(of_pools)
    if crowded:
        room |= _room_of_some(fleet, part(crowded), request, crowded)
    for consumer, held in every.consumers.items():
        near: set[int] = set()
        for tree in held:
            if tree in of_pools:
                near.update(_linked(fleet, tree))
            elif (consumer, tree) in room:
                near.add(tree)
        if near:
            yield Leaver(consumer, held, tuple(sorted(near)))


def _room(
    fleet: Fleet, request: Request, every: _Held, turns: int, *, rest: bool = False
) -> set[tuple[str, int]]:
    """Return whose leaving may make room on which tree, of the first turns.

    :param rest: whether all others may, too
    """
    now = fleet.in_force()
    then = unheld(now)  # as far as units go, which are not told apart here, nobody has any
    used = now.inventories.used
    trees = [frozenset(_room_after(then, used, request, *one)) for one in every.turns[:turns]]
    return {
        (consumer, tree)
        for (consumer, tree), turn in every.turn_of.items()
        if (tree in trees[turn] if turn < turns else rest)
    }


def _room_of_some(
    fleet: Fleet, part: Fleet, request: Request, trees: Collection[int]
) -> set[tuple[str, int]]:
    """Return the same of some trees, of all turns, by a fleet that has these."""
    tree_of = {fleet.hosts[tree]: tree for tree in trees}
    wanted = np.array([host in tree_of for host in part.hosts], dtype=np.bool_)
    found = _room(part, request, _Held(part, wanted), MOST_TURNS, rest=True)
    return {(consumer, tree_of[part.hosts[tree]]) for consumer, tree in found}


class _Held:
    """What is held on some trees, and in which turn who leaves them."""

    def __init__(self, fleet: Fleet, some: Booleans) -> None:
        self.consumers: dict[str, dict[int, dict[str, int]]] = {}
        self.turn_of: dict[tuple[str, int], int] = {}
        #: by turn the inventories of which something is given back, and how much
        self.turns: list[tuple[list[int], list[int]]] = []
        trees, wanted = fleet.tree.tolist(), some.tolist()
        turns: dict[int, int] = {}
        for place, (name, consumer, amount) in fleet.allocations.all():
            tree = trees[place]
            if not wanted[tree]:
                continue
            own = self.consumers.setdefault(consumer, {}).setdefault(tree, {})
            own[name] = own.get(name, 0) + amount
            turn = self.turn_of.get((consumer, tree))
            if turn is None:
                turn = self.turn_of[consumer, tree] = turns.get(tree, 0)
                turns[tree] = turn + 1
                if turn == len(self.turns):
                    self.turns.append(([], []))
            number = fleet.number(place, name)
            if number is not None:
                self.turns[turn][0].append(number)
                self.turns[turn][1].append(amount)


def _room_after(
    fleet: Fleet,
    used: Integers,
    request: Request,
    numbers: Collection[int],
    amounts: Collection[int],
) -> list[int]:
    """Return the trees that may hold a request after something was given back of what is used."""
    shares = fleet.shares
    given = np.zeros_like(used)
    np.add.at(given, integers(numbers), integers(amounts))
    left = used - given
    if shares:
        np.subtract.at(left, shares.target, given[shares.source] * shares.factor)
    found: list[int] = possible(lay(request, with_used(fleet, left))).tolist()
    return found


def _linked(fleet: Fleet, tree: int) -> Iterator[int]:
    """Yield the trees that a pool's tree gives to, itself among them."""
    here = fleet.of_tree(tree)
    pools = fleet.pools.providers
    own = pools[(pools >= here.start) & (pools < here.stop)]
    yield tree
    yield from np.flatnonzero(fleet.pools.linked_to(own, len(fleet.hosts))).tolist()
