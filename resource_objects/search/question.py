"""One request laid over one fleet: what is asked of which inventories, under which conditions.

Made once per search, vectorised; both the conditions for whole fleets and the decision on one
tree read it, and so does the explanation, so that all of them speak of the same givers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from resource_objects import exceptions
from resource_objects.requests import Request
from resource_objects.resources import Amount
from resource_objects.resources.catalog import is_device
from resource_objects.search.fleet import Booleans, ClassRows, Fleet
from resource_objects.search.tree import Asked, Giver


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One class of a request over the fleet. Arrays are parallel to ``rows``."""

    resource_class: str
    whole: Amount  #: as it was asked
    amount: int  #: the same as a count
    rows: ClassRows
    is_device: Booleans  #: may give a part, while other devices give the rest
    has_forbidden: tuple[Booleans, ...]  #: by forbidden trait
    has_required: tuple[Booleans, ...]  #: by required trait
    allowed: Booleans  #: has none of the forbidden traits

    def of_tree(self, tree: int) -> Asked:
        """Return the ask of one tree, as plain data. Cost: some 10 microseconds."""
        here = self.rows.of_tree(tree)
        figures = (self.rows.low, self.rows.high, self.rows.step_size, self.is_device)
        return Asked(
            amount=self.amount,
            first=here.start,
            givers=tuple(map(Giver, *(column[here].tolist() for column in figures))),
            allowed=_bits(self.allowed[here]),
            with_trait=tuple(_bits(has[here]) for has in self.has_required),
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A request over a fleet; ``required`` and ``forbidden`` are in the order of the arrays."""

    fleet: Fleet
    request: Request
    required: tuple[str, ...]
    forbidden: tuple[str, ...]
    asks: tuple[Ask, ...]


def lay(request: Request, fleet: Fleet) -> Question:
    """Return a request laid over a fleet. Cost: one pass per class and trait, vectorised.

    :raises WrongAmountKind: for an amount that is not one count of its class
    """
    (group,) = request.groups
    required, forbidden = tuple(sorted(group.required)), tuple(sorted(group.forbidden))
    has = {trait: fleet.has_trait(trait) for trait in (*required, *forbidden)}
    asks = tuple(
        _ask(
            fleet,
            name,
            amount,
            [has[trait] for trait in required],
            [has[trait] for trait in forbidden],
        )
        for name, amount in group.resources.by_name()
    )
    return Question(fleet, request, required, forbidden, asks)


def _ask(
    fleet: Fleet, name: str, whole: Amount, required: list[Booleans], forbidden: list[Booleans]
) -> Ask:
    rows = fleet.rows(name)
    has_forbidden = tuple(has[rows.provider] for has in forbidden)
    allowed = np.ones(len(rows.provider), dtype=np.bool_)
    for has in has_forbidden:
        allowed &= ~has
    return Ask(
        resource_class=name,
        whole=whole,
        amount=_count(name, whole),
        rows=rows,
        is_device=rows.is_below if is_device(name) else rows.is_single,
        has_forbidden=has_forbidden,
        has_required=tuple(has[rows.provider] for has in required),
        allowed=allowed,
    )


def _count(name: str, amount: Amount) -> int:
    records = amount.to_records(name)
    if len(records) != 1 or records[0].resource_class != name:
        raise exceptions.WrongAmountKind(name, amount, "a count, which is all that is searched for")
    return records[0].amount


def _bits(flags: Iterable[bool]) -> int:
    """Return a number with bit i set where flag i is.

    >>> _bits([True, False, True])
    5
    """
    return sum(1 << place for place, flag in enumerate(flags) if flag)
