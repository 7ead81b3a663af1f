"""Conditions that every host which can hold a request meets: over the whole fleet at once.

They are cheap and rule most hosts out; what remains is decided exactly, tree by tree. A host passes

* if it may be a host at all: it gives something of its own, and its root has the traits asked;
* if, for each class, one provider gives all by itself, or its devices together have enough, or a
  pool that it is linked to gives all;
* if there are enough providers for the named groups, and enough of each class (:mod:`.named`);
* if it has the parts that located amounts need at least (:mod:`.at_least`);
* if, for each required trait, that is so for some class among the providers that have it;
* if there is room where several classes draw on one inventory (:mod:`.crowd`).

Where no amount is split and no two traits meet this is the whole decision already.
"""

from __future__ import annotations

import numpy as np

from resource_objects.search import at_least, crowd
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.question import Ask, Question


def possible(question: Question) -> Integers:
    """Return the trees that may hold the request, in order. No tree that can is left out.

    Cost: one vectorised pass for each class, and each class and trait.
    """
    passing = question.is_host.copy()
    for ask in question.asks:
        passing &= enough(question, ask, None)
    for one in question.located:
        passing &= at_least.enough(one, len(passing))
    if question.named:
        passing &= question.named.possible(
            {ask.resource_class: ask.amount for ask in question.asks}
        )
    for number in range(len(question.required)):
        if passing.any():
            passing &= answered(question, number)
    is_tied = len(question.asks) > 1 or bool(question.located)
    if question.fleet.shares and is_tied and passing.any():
        passing &= ~crowd.crowded(question)
    return np.flatnonzero(passing)


def answered(question: Question, trait: int) -> Booleans:
    """Return, by tree, whether some class seems to be given by who has a required trait."""
    found = np.zeros(len(question.is_host), dtype=np.bool_)
    for ask in question.asks:
        found |= enough(question, ask, trait)
    for one in question.located:
        found |= at_least.enough(one, len(found), trait)
    return found


def enough(question: Question, ask: Ask, trait: int | None) -> Booleans:
    """Return, by tree, whether who may give seems to give all that is asked of a class.

    :param trait: number of a required trait that those who give must have, None for none
    """
    rows = ask.rows
    found = np.zeros(len(question.is_host), dtype=np.bool_)
    if not len(rows.tree):
        return found
    givers = crowd.having(ask.own, trait)
    found[rows.tree[givers & crowd.alone(ask, slice(None))]] = True
    shares = givers & ask.is_device & (rows.low <= rows.high)
    # exact in 64 bits: a capacity is below 2^43, so no sum over a tree comes near 2^63
    parts = np.where(shares, np.minimum(rows.high, ask.amount), 0)
    starts = np.flatnonzero(np.diff(rows.tree, prepend=-1))
    together = np.add.reduceat(parts, starts)
    if question.fleet.shares and shares.any():
        together -= crowd.excess(question, ask, parts)[rows.tree[starts]]
    found[rows.tree[starts[together >= ask.amount]]] = True
    if ask.pooled is not None:
        found |= crowd.from_pools(question, ask, trait)
    return found
