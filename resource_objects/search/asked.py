"""What is asked of one tree, as plain data: no array is looked at from here on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from resource_objects.resources import Amount


class Giver(NamedTuple):
    """What one provider can give of a class in one part: a multiple of ``step`` in between."""

    low: int
    high: int
    step: int
    is_device: bool

    def gives(self, amount: int) -> bool:
        """Return whether it gives all of ``amount`` by itself."""
        return self.low <= amount <= self.high and amount % self.step == 0


class Draw(NamedTuple):
    """What a giver gives is used of another inventory too, of which ``room`` is left."""

    giver: int
    target: int  #: number of an inventory
    factor: int
    room: int


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """One class asked of one tree. Sets of givers are numbers with a bit for each."""

    amount: int
    numbers: Sequence[int]  #: the inventories of the givers
    givers: tuple[Giver, ...]
    allowed: int  #: the givers without a forbidden trait
    with_trait: tuple[int, ...]  #: by required trait, the givers that have it
    draws: tuple[Draw, ...] = ()
    own: int = 0  #: how many of the givers are of the tree itself: the others are pools

    def only(self, givers: int) -> Asked:
        """Return the same asked of some givers, whatever their traits."""
        return dataclasses.replace(self, allowed=givers, with_trait=())

    def within(self, count: int) -> Asked:
        """Return the same asked of the first givers alone."""
        return dataclasses.replace(self, allowed=self.allowed & ((1 << count) - 1))

    def with_traits(self, count: int) -> Asked:
        """Return the same with only the first required traits."""
        return dataclasses.replace(self, with_trait=self.with_trait[:count])

    def at_most(self, giver: int, amount: int) -> Asked:
        """Return the same where a giver gives no more than so much."""
        one = self.givers[giver]
        less = one._replace(high=min(one.high, amount // one.step * one.step))
        return dataclasses.replace(
            self, givers=(*self.givers[:giver], less, *self.givers[giver + 1 :])
        )

    def drawn(self, giver: int, part: int) -> Iterator[tuple[int, int]]:
        """Yield what a part that a giver gives uses of which inventories, its own first."""
        yield self.numbers[giver], part
        for draw in self.draws:
            if draw.giver == giver:
                yield draw.target, part * draw.factor


#: ``((giver, amount), ...)`` of one class
Parts: TypeAlias = tuple[tuple[int, int], ...]
#: A set of givers of each class.
Sets: TypeAlias = tuple[int, ...]


class Decision(NamedTuple):
    """Who gives what: counts as parts, and what says where it goes, assigned."""

    plans: tuple[Parts, ...]
    assigned: tuple[Amount, ...] = ()


def bits(flags: Iterable[bool]) -> int:
    """Return a number with bit i set where flag i is.

    >>> bits([True, False, True])
    5
    """
    return sum(1 << place for place, flag in enumerate(flags) if flag)
