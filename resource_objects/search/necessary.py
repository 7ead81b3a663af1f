"""Conditions that every host which can hold a request meets: over the whole fleet at once.

They are cheap and rule most hosts out; what remains is decided exactly, tree by tree. A host passes

* if, for each class, one provider gives all by itself, or its devices together have enough;
* if, for each required trait, that is so for some class among the providers that have it.

Where no amount is split and no two traits meet this is the whole decision already.
"""

from __future__ import annotations

import numpy as np

from resource_objects.search.fleet import Booleans, Integers
from resource_objects.search.question import Ask, Question


def possible(question: Question) -> Integers:
    """Return the trees that may hold the request, in order. No tree that can is left out.

    Cost: one vectorised pass for each class, and each class and trait.
    """
    passing = np.ones(len(question.fleet.hosts), dtype=np.bool_)
    for ask in question.asks:
        passing &= _enough(ask, ask.allowed, len(passing))
    for number in range(len(question.required)):
        if passing.any():
            somewhere = np.zeros_like(passing)
            for ask in question.asks:
                somewhere |= _enough(ask, ask.allowed & ask.has_required[number], len(passing))
            passing &= somewhere
    return np.flatnonzero(passing)


def _enough(ask: Ask, givers: Booleans, trees: int) -> Booleans:
    """Return, by tree, whether some of ``givers`` seem to give all that is asked of the class."""
    rows = ask.rows
    found = np.zeros(trees, dtype=np.bool_)
    if not len(rows.tree):
        return found
    alone = givers & (rows.low <= ask.amount) & (ask.amount <= rows.high)
    alone &= ask.amount % rows.step_size == 0
    found[rows.tree[alone]] = True
    shares = givers & ask.is_device & (rows.low <= rows.high)
    # exact in 64 bits: a capacity is below 2^43, so no sum over a tree comes near 2^63
    parts = np.where(shares, np.minimum(rows.high, ask.amount), 0)
    starts = np.flatnonzero(np.diff(rows.tree, prepend=-1))
    together = np.add.reduceat(parts, starts)
    found[rows.tree[starts[together >= ask.amount]]] = True
    return found
