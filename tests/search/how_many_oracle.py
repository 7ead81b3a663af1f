"""How many fit, by trying everything: all candidates of the enumerator, one after the other.

For small worlds only: each state of what is used is looked at once, and there may be many.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from resource_objects.providers.columns import Columns
from resource_objects.requests import Request
from tests.support.enumerator import candidates

#: (provider's uuid, resource class, amount)
Taken = frozenset[tuple[str, str, int]]


#: So many choices of providers are tried for one candidate.
MOST_WAYS = 3000


class TooManyStates(Exception):
    """The world is too large to try everything."""


def after(columns: Columns, taken: Taken) -> Columns:
    """Return columns in which something is taken, also of what it is used of elsewhere."""
    number = dict(zip(columns.providers.uuid, columns.providers.provider_id, strict=True))
    more: dict[tuple[int, str], int] = {}
    shares = list(zip(*columns.shares, strict=True))
    for uuid, name, amount in taken:
        place = number[uuid], name
        more[place] = more.get(place, 0) + amount
        for source, of, target, of_name, factor in shares:
            if (source, of) == place:
                more[target, of_name] = more.get((target, of_name), 0) + amount * factor
    table = columns.inventories
    used = [
        had + more.get(place, 0)
        for place, had in zip(
            zip(table.provider_id, table.resource_class, strict=True), table.used, strict=True
        )
    ]
    return dataclasses.replace(columns, inventories=table._replace(used=used))


def most(
    columns: Columns, requests: Sequence[Request], states: int = 4000, on: str | None = None
) -> int:
    """Return how many times all of some requests fit at once.

    :param on: on this host alone; None: on all
    :raises TooManyStates: if there are more than so many, or too many ways to look at in each
    """
    providers = len(columns.providers.uuid)
    for one in requests:
        choices = len(list(one.named)) + len(list(one.unnamed.resources.by_name()))
        if providers**choices > MOST_WAYS:
            raise TooManyStates
    return _most(columns, tuple(requests), 0, {}, states, on)


def _most(
    columns: Columns,
    requests: tuple[Request, ...],
    turn: int,
    known: dict[tuple[int, tuple[int, ...]], int],
    states: int,
    on: str | None,
) -> int:
    key = turn, tuple(columns.inventories.used)
    if key not in known:
        if len(known) >= states:
            raise TooManyStates
        known[key] = 0
        every = candidates(columns, requests[turn])
        ways = {found[1] for found in every if on in (None, found[0])}
        then = (turn + 1) % len(requests)
        done = 0 if then else 1
        best = 0 if then or not ways else 1
        for taken in ways:
            rest = _most(after(columns, taken), requests, then, known, states, on)
            best = max(best, rest + done)
        known[key] = best
    return known[key]
