"""Necessary conditions on inventories that several givers draw on, over the whole fleet at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from resource_objects.search import at_least
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.fleet import ClassRows
from resource_objects.search.question import Ask, Givers, Question


def alone(ask: Ask, entries: Any) -> Booleans:
    """Return which of some entries of a class could give all of it by themselves."""
    rows = ask.rows
    fits = (rows.low[entries] <= ask.amount) & (ask.amount <= rows.high[entries])
    found: Booleans = fits & (ask.amount % rows.step_size[entries] == 0)
    return found


def having(givers: Givers, trait: int | None) -> Booleans:
    """Return which givers are allowed and have a trait, if one is asked for."""
    return givers.allowed if trait is None else givers.allowed & givers.has_required[trait]


def from_pools(question: Question, ask: Ask, trait: int | None = None) -> Booleans:
    """Return which trees are linked to a pool that gives all of a class."""
    if ask.pooled is None:
        return np.zeros(len(question.is_host), dtype=np.bool_)
    entries: Any = np.asarray(ask.pooled.numbers) - ask.rows.first
    able = having(ask.pooled, trait) & alone(ask, entries)
    pools = ask.rows.provider[entries][able]
    return question.fleet.pools.linked_to(pools, len(question.is_host))


def excess(question: Question, ask: Ask, parts: Integers) -> Integers:
    """Return, by tree, how much of a class its givers seem to have and cannot give together.

    ``parts`` is the most that each entry gives. What those that draw on one inventory give is at
    most what is left of it. A giver may draw on several: they are looked at one after the other,
    the first of each, then the second, and what finds the most counts.
    """
    kept, shares = question.fleet.inventories, question.fleet.shares
    worst = np.zeros(len(question.is_host), dtype=np.int64)
    first = ask.rows.first
    here = shares.entries(first, first + len(parts))
    source, target = shares.source[here] - first, shares.target[here]
    turn = np.arange(len(source)) - source.searchsorted(source)
    for number in range(int(turn.max()) + 1 if len(turn) else 0):
        now = turn == number
        order = np.argsort(target[now], kind="stable")
        on = target[now][order]
        begins = np.flatnonzero(np.diff(on, prepend=-1))
        given = np.add.reduceat(parts[source[now][order]], begins)
        factor = np.minimum.reduceat(shares.factor[here][now][order], begins)
        found = np.zeros_like(worst)
        over = np.maximum(given - _left(question, on[begins]).clip(0) // factor, 0)
        np.add.at(found, kept.tree[on[begins]], over)
        np.maximum(worst, found, out=worst)
    return worst


def crowded(question: Question) -> Booleans:
    """Return the trees in which classes that can only draw on one inventory do not fit there."""
    kept = question.fleet.inventories
    targets = question.fleet.shares.targets
    left = _left(question, targets).clip(0)
    needed = np.zeros(len(targets), dtype=np.int64)
    for amount, rows, able in _drawing(question):
        number, factor = _all_draw_on(question, rows, able, targets)
        room = left[number]
        # what does not fit by itself counts as one too much, which cannot overflow
        needed[number] += np.where(
            amount <= room // factor, np.minimum(amount, room // factor) * factor, room + 1
        )
    found = np.zeros(len(question.is_host), dtype=np.bool_)
    found[kept.tree[targets[needed > left]]] = True
    return found


def _drawing(question: Question) -> Iterator[tuple[int, ClassRows, Booleans]]:
    """Yield how much of a class is asked for, and who may give: which of its inventories."""
    for ask in question.asks:
        rows = ask.rows
        shares = ask.is_device & (rows.low <= rows.high)
        able = ask.own.allowed & (shares | alone(ask, slice(None)))
        yield ask.amount, rows, able & ~from_pools(question, ask)[rows.tree]
    for one in question.located:
        for name, (amount, able) in at_least.of_host(one).items():
            yield amount, question.fleet.rows(name), able


def _all_draw_on(
    question: Question, rows: ClassRows, able: Booleans, targets: Integers
) -> tuple[Integers, Integers]:
    """Return the targets on which all givers of a class in their tree draw, and least factors."""
    shares = question.fleet.shares
    here = shares.entries(rows.first, rows.first + len(able))
    drawing = able[shares.source[here] - rows.first]
    own = targets[slice(*targets.searchsorted((rows.first, rows.first + len(able))))]
    own = own[able[own - rows.first]]
    target = np.concatenate((shares.target[here][drawing], own))
    factor = np.concatenate((shares.factor[here][drawing], np.ones_like(own)))
    order = np.argsort(target, kind="stable")
    target, factor = target[order], factor[order]
    begins = np.flatnonzero(np.diff(target, prepend=-1))
    if not len(begins):
        return begins, begins
    givers = np.bincount(rows.tree[able], minlength=len(question.is_host))
    count = np.diff(begins, append=len(target))
    every = count == givers[question.fleet.inventories.tree[target[begins]]]
    least = np.minimum.reduceat(factor, begins)
    return targets.searchsorted(target[begins[every]]), least[every]


def _left(question: Question, inventories: Integers) -> Integers:
    """Return what is left of some inventories themselves."""
    kept = question.fleet.inventories
    found: Integers = kept.capacity[inventories] - kept.used[inventories]
    return found
