"""Whether groups that need a provider each can have one: a matching (Kuhn's algorithm).

A search asks that again after each step, about nearly the same groups and providers; so what was
found is kept, and only those are placed anew whose provider is not theirs any more: mostly one.

Rejected: to match from nothing at each step, which is a pass over all groups for every thing tried;
and to count by Hall's condition, which is exact only if all subsets are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

#: A group: its kind, and its number among those that are alike.
_Group: TypeAlias = tuple[int, int]


def can_match(groups: Iterable[tuple[int, int]]) -> bool:
    """Return whether each of some groups can have a provider of its own.

    :param groups: how many are alike, and who may give one of them, as bits

    >>> can_match([(2, 0b011), (1, 0b110)])
    True
    >>> can_match([(2, 0b011), (1, 0b011)])
    False
    """
    return Matching().can(list(groups))


def matched(groups: Iterable[tuple[int, int]]) -> int:
    """Return how many of some groups can have a provider of their own, at most.

    >>> matched([(2, 0b011), (1, 0b011)])
    2
    """
    known = Matching()
    known.start(list(groups))
    return sum(known.place(group) for group in known.waiting)


class Matching:
    """Who could give which group, kept from one question to the next."""

    def __init__(self) -> None:
        self._has: dict[_Group, int] = {}  # by group, the provider's bit
        self._owner: dict[int, _Group] = {}  # the other way round
        self._masks: list[int] = []
        #: groups without a provider
        self.waiting: list[_Group] = []

    def can(self, groups: Sequence[tuple[int, int]]) -> bool:
        """Return whether each group can have a provider of its own.

        :param groups: by kind, how many there are of it, and who may give one of them, as bits

        Cost: a pass over the groups; for each whose provider is gone the product of that with the
        providers at most.
        """
        total = sum(count for count, _ in groups)
        if all(mask.bit_count() >= total for count, mask in groups if count):
            return True
        self.start(groups)
        return all(self.place(group) for group in self.waiting)

    def start(self, groups: Sequence[tuple[int, int]]) -> None:
        """Keep of what was found before what still holds of these."""
        had, self._has, self.waiting = self._has, {}, []
        self._masks = [mask for _, mask in groups]
        for kind, (count, mask) in enumerate(groups):
            for number in range(count):
                provider = had.get((kind, number), 0)
                if provider & mask:
                    self._has[kind, number] = provider
                else:
                    self.waiting.append((kind, number))
        self._owner = {provider: group for group, provider in self._has.items()}

    def place(self, group: _Group) -> bool:
        """Give a group a provider, moving others where that helps: along an augmenting path."""
        seen = 0
        came: dict[int, _Group] = {}  # by provider's bit, the group that wants it
        path = [(group, self._masks[group[0]])]  # the providers that each has still to try
        while path:
            wants, rest = path.pop()
            rest &= ~seen
            if not rest:
                continue
            provider = rest & -rest
            seen |= provider
            came[provider] = wants
            path.append((wants, rest ^ provider))
            owner = self._owner.get(provider)
            if owner is None:
                self._move(provider, came)
                return True
            path.append((owner, self._masks[owner[0]]))
        return False

    def _move(self, provider: int, came: dict[int, _Group]) -> None:
        """Give each provider on the way to whoever wanted it."""
        while provider:
            group = came[provider]
            before = self._has.get(group, 0)
            self._has[group], self._owner[provider] = provider, group
            provider = before
