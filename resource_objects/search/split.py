"""One amount in parts: which devices give how much, when each part keeps the unit rules.

A device gives nothing, or a multiple of its step from ``low`` to ``high``. Asked is a set of parts
that adds up exactly. Two kinds of choices are kept apart:

* which devices take part at all. It only matters for those whose ``low`` is above their step
  (a real min_unit) and below ``high``; like devices are considered once, by how many of them;
* how much each gives. Once it is known who takes part, the devices of one step are one: any
  multiple of the step up to their sum. What is left is an equation over the different steps, which
  is solved by remainders, so two different steps need no search at all.

Where all steps agree and no ``low`` is above the step, which is nearly always, one trial decides.
With many different min_units or steps the problem contains the subset sum problem, so each trial
is paid for from a budget. The search is complete: None means that no split exists.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from resource_objects.resources.backtracking import Solution, solutions
from resource_objects.resources.budget import Budget

#: ``(low, high, step)`` of a device; low and high are multiples of step.
Device = tuple[int, int, int]
#: How many steps can be given beyond the lows, by step.
_Room = tuple[int, ...]
#: How many of each group take part.
_Counts = tuple[int, ...]
#: The counts of the first groups, the sum of their lows, and what can be given beyond the lows.
_Taking = tuple[_Counts, int, _Room]


def split(amount: int, devices: Sequence[Device], budget: Budget) -> list[tuple[int, int]] | None:
    """Return ``(device, part)`` pairs that add up to ``amount``, None if there are none.

    :raises SearchLimitReached: if the budget runs out first

    >>> split(5, [(1, 1, 1), (1, 4, 1), (2, 8, 2)], Budget(100))
    [(1, 1), (2, 4)]
    >>> split(5, [(2, 8, 2), (2, 8, 2)], Budget(100)) is None
    True
    """
    usable = [number for number, (low, high, _) in enumerate(devices) if 0 < low <= high]
    if not usable or sum(devices[number][1] for number in usable) < amount:
        return None
    problem = _Problem(amount, [_simplest(*devices[number]) for number in usable], budget)
    found = problem.solve()
    if found is None:
        return None
    return problem.hand_out(usable, *found)


def _simplest(low: int, high: int, step: int) -> Device:
    """Return a device that gives one part or nothing as one whose step is that part."""
    return (low, low, low) if low == high else (low, high, step)


class _Problem:
    """The parts of one amount, over usable devices."""

    def __init__(self, amount: int, devices: list[Device], budget: Budget) -> None:
        self._amount = amount
        self._steps = sorted({step for _, _, step in devices}, reverse=True)
        self._devices = devices
        self._budget = budget
        # devices with a real min_unit, like ones together: the ones that give most first
        stiff = Counter(device for device in devices if device[0] > device[2])
        self._groups = sorted(stiff.items(), key=lambda item: (-item[0][1], item[0]))
        self._reach = [0]  # the most that groups from here on give
        for (_, high, _), count in reversed(self._groups):
            self._reach.append(self._reach[-1] + high * count)
        self._reach.reverse()

    def solve(self) -> tuple[tuple[int, ...], _Room] | None:
        """Return how many of each group take part, and what is given beyond the lows, by step."""
        if self._amount % math.gcd(*self._steps):
            return None
        loose = tuple(
            sum(high for low, high, own in self._devices if own == step and low == step) // step
            for step in self._steps
        )
        start: _Taking = (), 0, loose
        found = solutions(
            start,
            self._expand,
            self._budget,
            lambda state: (len(state[0]), *state[1:]),
        )
        return next(found, None)

    def _expand(self, state: _Taking) -> Iterator[_Taking | Solution[tuple[_Counts, _Room]]]:
        counts, lows, room = state
        if not self._in_reach(len(counts), lows, room):
            return
        if len(counts) == len(self._groups):
            given = combine(self._amount - lows, self._steps, room, self._budget)
            if given is not None:
                yield Solution((counts, given))
            return
        (low, high, step), most = self._groups[len(counts)]
        place = self._steps.index(step)
        for count in range(most + 1):  # as few as can be
            wider = room[place] + count * (high - low) // step
            yield (*counts, count), lows + count * low, (*room[:place], wider, *room[place + 1 :])

    def _in_reach(self, group: int, lows: int, room: _Room) -> bool:
        """Return whether sums alone allow the amount, with the groups from ``group`` open."""
        extra = sum(count * step for count, step in zip(room, self._steps, strict=True))
        return lows <= self._amount <= lows + extra + self._reach[group]

    def hand_out(
        self, numbers: Sequence[int], counts: tuple[int, ...], given: _Room
    ) -> list[tuple[int, int]]:
        """Return the parts: the lows of who takes part, and the rest where most can be given."""
        taking = {group: count for (group, _), count in zip(self._groups, counts, strict=True)}
        left = {step: count * step for step, count in zip(self._steps, given, strict=True)}
        parts: list[tuple[int, int]] = []
        for place in sorted(range(len(numbers)), key=self._by_give):
            low, high, step = device = self._devices[place]
            part = 0
            if low > step:
                if not taking[device]:
                    continue
                taking[device] -= 1
                part = low
            extra = min(left[step], high - part)
            left[step] -= extra
            if part + extra:
                parts.append((numbers[place], part + extra))
        return sorted(parts)

    def _by_give(self, place: int) -> tuple[bool, int, int]:
        low, high, step = self._devices[place]
        return low <= step, -high, place


def combine(rest: int, steps: Sequence[int], room: Sequence[int], budget: Budget) -> _Room | None:
    """Return counts of the steps, each within its room, that add up to ``rest``; None if none do.

    The greatest counts of the first steps are tried first. A step whose count does not leave what
    the later ones can divide is skipped, so that the last two are found without trial.

    >>> combine(13, [5, 3], [9, 9], Budget(10))
    (2, 1)
    >>> combine(7, [5, 3], [9, 9], Budget(10)) is None
    True
    """
    common = [math.gcd(*steps[place:]) for place in range(len(steps))]
    reach = [0]
    for step, count in zip(reversed(steps), reversed(room), strict=True):
        reach.insert(0, reach[0] + step * count)

    def expand(state: tuple[int, _Room]) -> Iterator[tuple[int, _Room] | Solution[_Room]]:
        left, counts = state
        place = len(counts)
        if left % common[place] or left > reach[place]:
            return
        period = common[place + 1] if place + 1 < len(steps) else 1
        for count in _trials(left, steps[place], room[place], reach[place + 1], period):
            given = (*counts, count)
            rest = left - steps[place] * count
            yield Solution(given) if len(given) == len(steps) else (rest, given)

    start: tuple[int, _Room] = rest, ()
    found = solutions(start, expand, budget, lambda state: (len(state[1]), state[0]))
    return next(found, None)


def _trials(left: int, step: int, room: int, later: int, divisor: int) -> range:
    """Return the counts of a step, greatest first, that leave a multiple of ``divisor``.

    What they leave is not more than ``later``. ``left`` is a multiple of gcd(step, divisor).
    """
    most = min(room, left // step)
    least = max(0, -((later - left) // step))
    common = math.gcd(step, divisor)
    period = divisor // common
    fitting = left // common * pow(step // common, -1, period) % period
    return range(most - (most - fitting) % period, least - 1, -period)
