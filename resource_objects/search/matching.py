"""Whether groups that need a provider each can have one: a matching (Kuhn's algorithm)."""

from __future__ import annotations

from collections.abc import Iterable


def can_match(groups: Iterable[tuple[int, int]]) -> bool:
    """Return whether each of some groups can have a provider of its own.

    :param groups: how many are alike, and who may give one of them, as bits

    Cost: groups times providers, where it is easy; the product of that with the groups at most.

    >>> can_match([(2, 0b011), (1, 0b110)])
    True
    >>> can_match([(2, 0b011), (1, 0b011)])
    False
    """
    every = sorted(groups, key=lambda one: one[1].bit_count())
    total = sum(count for count, _ in every)
    if not every or every[0][1].bit_count() >= total:
        return True
    owner: dict[int, int] = {}  # by provider's bit, the number of the group
    masks = [mask for count, mask in every for _ in range(count)]
    return all(_place(number, masks, owner) for number in range(len(masks)))


def matched(groups: Iterable[tuple[int, int]]) -> int:
    """Return how many of some groups can have a provider of their own, at most.

    >>> matched([(2, 0b011), (1, 0b011)])
    2
    """
    owner: dict[int, int] = {}
    masks = [mask for count, mask in groups for _ in range(count)]
    return sum(_place(number, masks, owner) for number in range(len(masks)))


def _place(number: int, masks: list[int], owner: dict[int, int]) -> bool:
    """Give a group a provider, moving others where that helps: along an augmenting path."""
    seen = 0
    path: list[tuple[int, int]] = []  # (group, the providers it has still to try)
    came: dict[int, int] = {}  # by provider's bit, the group that wants it
    path.append((number, masks[number]))
    while path:
        group, rest = path.pop()
        rest &= ~seen
        if not rest:
            continue
        bit = rest & -rest
        seen |= bit
        came[bit] = group
        path.append((group, rest ^ bit))
        if bit not in owner:
            _move(bit, came, owner, number)
            return True
        path.append((owner[bit], masks[owner[bit]]))
    return False


def _move(bit: int, came: dict[int, int], owner: dict[int, int], number: int) -> None:
    """Give each provider on the way to whoever wanted it."""
    had = {group: provider for provider, group in owner.items()}
    while True:
        group = came[bit]
        before = had.get(group)
        owner[bit] = group
        if group == number or before is None:
            return
        bit = before
