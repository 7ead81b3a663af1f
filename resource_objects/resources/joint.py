"""Counts and what says where they are, asked for together (D1).

A structured amount locates; it adds nothing. Of ``VCPU=4`` and a topology of 4 shared vCPUs, four
CPUs are asked for. The counts have to agree with what locates them, or are implied by it; and they
are taken once: of the cells, and through them of the host as a whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.resources.abstract import Amount
from resource_objects.resources.integer import IntegerAmount

if TYPE_CHECKING:
    from resource_objects.resources.amounts import Amounts


@dataclasses.dataclass(frozen=True, slots=True)
class Joint:
    """Amounts, sorted by who decides about them."""

    located: Mapping[str, Amount]  #: what says where
    stated: frozenset[str]  #: classes that it locates and that are stated as counts besides
    others: Mapping[str, Amount]  #: everything else


def split(amounts: Amounts) -> Joint | None:
    """Return amounts, sorted; None if nothing says where anything is.

    :raises InvalidAmount: if a count does not agree with what locates it
    """
    located = {name: amount for name, amount in amounts.by_name() if amount.locates}
    if not located:
        return None
    counts: dict[str, tuple[str, set[int]]] = {}
    for name, amount in located.items():
        for kind, possible in _possible(amount).items():
            if kind in counts:
                raise exceptions.InvalidAmount(kind, name, "to be located by one amount only")
            counts[kind] = name, possible
    others: dict[str, Amount] = {}
    for name, amount in amounts.by_name():
        if name in counts:
            _check(name, amount, *counts[name])
        elif name not in located:
            others[name] = amount
    return Joint(located, frozenset(counts).intersection(amounts.names()), others)


def _possible(amount: Amount) -> dict[str, set[int]]:
    """Return which counts agree with a located amount: as asked, or as taken of the host."""
    sign = -1 if amount.is_negative else 1
    found = {kind: {sign * count} for kind, count in amount.located.items()}
    if amount.is_assigned:
        for kind in found:
            found[kind].add(sign * amount.of_host.get(kind, 0))
    return found


def _check(name: str, amount: Amount, by: str, possible: set[int]) -> None:
    if not isinstance(amount, IntegerAmount) or int(amount) not in possible:
        expected = " or ".join(map(str, sorted(possible - {0} or possible)))
        raise exceptions.InvalidAmount(name, amount, f"{expected}, as {by} says")


def of_host(joint: Joint) -> Iterator[tuple[str, Amount]]:
    """Yield what located amounts take of the host as a whole, as far as that is known."""
    for amount in joint.located.values():
        yield from counts_of(amount)


def counts_of(amount: Amount) -> Iterator[tuple[str, Amount]]:
    """Yield what one located amount takes of the host as a whole; negative if it gives back."""
    for name, count in amount.of_host.items():
        yield name, IntegerAmount(-count if amount.is_negative else count)


def absent(name: str, amount: Amount) -> Reason:
    """Return why an amount does not fit where there is no inventory of its class."""
    asked = int(amount) if hasattr(amount, "__int__") else 1
    if amount.is_negative:
        return Reason(Rule.USED_BELOW_ZERO, asked, bound=0, used=0, resource=name)
    return Reason(Rule.NO_INVENTORY, asked, bound=0, used=0, resource=name)
