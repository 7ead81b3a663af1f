"""Who gives one class, as if it were the only one."""

from __future__ import annotations

from resource_objects.search.asked import Asked, Parts
from resource_objects.search.budget import Budget
from resource_objects.search.split import split

#: How many givers are looked through for one step of the budget.
_GIVERS_PER_STEP = 16


def plan(asked: Asked, givers: int, budget: Budget) -> Parts | None:
    """Return who of a set of givers gives how much of a class, None if they cannot.

    The first that gives all by itself does; else the devices among them share, the ones that give
    most first. Complete: None means that there is no way. Cost: linear in the givers where their
    steps agree and no min_unit is above the step.
    """
    budget.spend(1 + len(asked.givers) // _GIVERS_PER_STEP)
    for place in members(asked, givers):
        if asked.givers[place].gives(asked.amount):
            return ((place, asked.amount),)
    return shared(asked, givers, asked.amount, budget)


def shared(asked: Asked, givers: int, amount: int, budget: Budget) -> Parts | None:
    """Return how the devices of a set of givers share an amount, None if they cannot."""
    devices = [place for place in members(asked, givers) if asked.givers[place].is_device]
    found = split(amount, [asked.givers[place][:3] for place in devices], budget)
    if found is None:
        return None
    return tuple((devices[number], part) for number, part in found)


def members(asked: Asked, givers: int) -> list[int]:
    """Return the places of a set of givers."""
    return [place for place in range(len(asked.givers)) if givers >> place & 1]
