"""One amount in parts: how much each of some devices provides, by its unit rules.

A device provides nothing, or a multiple of its step from ``low`` to ``high``; the parts add up to
the amount. Two choices are separate:

* which devices take part. This matters only for *stiff* devices, whose ``low`` is above their step
  and below ``high``; equal devices are considered once, by the number that takes part;
* how much each provides. The devices of one step are one then: any multiple of the step up to their
  sum. The rest is an equation over the different steps, solved by remainders, so two different
  steps need no search at all.

If all steps are equal and no device is stiff, which is nearly always so, one trial decides. With
many different bounds the problem contains the subset sum problem, so a budget pays for each trial.
The search is complete: None means that no split exists.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from resource_objects.resources.backtracking import Budget, Solution, solutions

#: ``(low, high, step)`` of a device; low and high are multiples of step.
Device = tuple[int, int, int]
#: By step, the number of steps beyond the lows.
_Steps = tuple[int, ...]
#: By group of equal stiff devices, the number that takes part.
_Counts = tuple[int, ...]
#: The counts of the first groups, the sum of their lows, and the steps available beyond the lows.
_State = tuple[_Counts, int, _Steps]


def split(amount: int, devices: Sequence[Device], budget: Budget) -> list[tuple[int, int]] | None:
    """Return ``(device, part)`` pairs that add up to ``amount``, None if there are none.

    :raises SearchLimitReached: if the budget runs out first

    >>> split(5, [(1, 1, 1), (1, 4, 1), (2, 8, 2)], Budget(100))
    [(1, 1), (2, 4)]
    >>> split(5, [(2, 8, 2), (2, 8, 2)], Budget(100)) is None
    True
    """
    usable = {
        # a device that provides one part or nothing is one whose step is that part
        number: (low, low, low) if low == high else (low, high, step)
        for number, (low, high, step) in enumerate(devices)
        if 0 < low <= high
    }
    steps = sorted({step for _, _, step in usable.values()}, reverse=True)
    if sum(high for _, high, _ in usable.values()) < amount or amount % math.gcd(*steps):
        return None
    stiff = Counter(device for device in usable.values() if device[0] > device[2])
    groups = sorted(stiff.items(), key=lambda item: (-item[0][1], item[0]))
    highs = [high * count for (_, high, _), count in groups]
    #: by group, the most that it and those after it provide
    reach = list(itertools.accumulate(reversed(highs), initial=0))[::-1]

    def expand(state: _State) -> Iterator[_State | Solution[tuple[_Counts, _Steps]]]:
        counts, lows, room = state
        extra = sum(count * step for count, step in zip(room, steps, strict=True))
        if not lows <= amount <= lows + extra + reach[len(counts)]:
            return
        if len(counts) == len(groups):
            beyond = combine(amount - lows, steps, room, budget)
            if beyond is not None:
                yield Solution((counts, beyond))
            return
        (low, high, step), most = groups[len(counts)]
        place = steps.index(step)
        for count in range(most + 1):  # as few as possible
            wider = room[place] + count * (high - low) // step
            yield (*counts, count), lows + count * low, (*room[:place], wider, *room[place + 1 :])

    loose = [(high, step) for low, high, step in usable.values() if low == step]
    room = tuple(sum(high for high, unit in loose if unit == step) // step for step in steps)
    start: _State = (), 0, room
    result = solutions(start, expand, budget, lambda state: (len(state[0]), *state[1:]))
    for counts, beyond in result:
        taking = {device: count for (device, _), count in zip(groups, counts, strict=True)}
        return _parts(usable, taking, dict(zip(steps, beyond, strict=True)))
    return None


def _parts(
    devices: Mapping[int, Device], taking: dict[Device, int], beyond: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Return the parts: the lows of stiff devices, and the rest from those with the most.

    :param taking: how many of each stiff device take part
    :param beyond: by step, the number of steps beyond the lows
    """
    remaining = {step: count * step for step, count in beyond.items()}
    result: list[tuple[int, int]] = []
    order = sorted(devices, key=lambda n: (devices[n][0] <= devices[n][2], -devices[n][1], n))
    for number in order:
        low, high, step = device = devices[number]
        part = 0
        if low > step:
            if not taking[device]:
                continue
            taking[device] -= 1
            part = low
        extra = min(remaining[step], high - part)
        remaining[step] -= extra
        if part + extra:
            result.append((number, part + extra))
    return sorted(result)


def combine(
    amount: int, steps: Sequence[int], room: Sequence[int], budget: Budget
) -> _Steps | None:
    """Return counts of the steps, each within its room, that add up to an amount; None if none do.

    The greatest counts of the first steps are tried first. A step whose count does not leave what
    the later ones can divide is skipped, so that the last two are found without trial.

    >>> combine(13, [5, 3], [9, 9], Budget(10))
    (2, 1)
    >>> combine(7, [5, 3], [9, 9], Budget(10)) is None
    True
    """
    common = [math.gcd(*steps[place:]) for place in range(len(steps))]
    sums = [step * count for step, count in zip(steps, room, strict=True)]
    reach = list(itertools.accumulate(reversed(sums), initial=0))[::-1]

    def expand(state: tuple[int, _Steps]) -> Iterator[tuple[int, _Steps] | Solution[_Steps]]:
        missing, counts = state
        place = len(counts)
        if missing % common[place] or missing > reach[place]:
            return
        period = common[place + 1] if place + 1 < len(steps) else 1
        for count in _trials(missing, steps[place], room[place], reach[place + 1], period):
            chosen = (*counts, count)
            beyond = missing - steps[place] * count
            yield Solution(chosen) if len(chosen) == len(steps) else (beyond, chosen)

    start: tuple[int, _Steps] = amount, ()
    result = solutions(start, expand, budget, lambda state: (len(state[1]), state[0]))
    return next(result, None)


def _trials(missing: int, step: int, room: int, later: int, divisor: int) -> range:
    """Return the counts of a step, greatest first, that leave a multiple of ``divisor``.

    They leave ``later`` at most. ``missing`` is a multiple of gcd(step, divisor).
    """
    most = min(room, missing // step)
    least = max(0, -((later - missing) // step))
    common = math.gcd(step, divisor)
    period = divisor // common
    fitting = missing // common * pow(step // common, -1, period) % period
    return range(most - (most - fitting) % period, least - 1, -period)
