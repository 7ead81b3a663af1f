"""Matchings: each of some things has one of its own of others. Polynomial, and complete.

Guest cells on host cells, named groups at providers. Sets are masks. :class:`Matching` grows along
augmenting paths (Kuhn's algorithm), :func:`cheapest` is the Hungarian method.

A search asks again after each step, about nearly the same groups and providers; so what was found
is kept, and only those are placed anew whose provider is not theirs any more: mostly one.

Rejected: to match from nothing at each step, which is a pass over all groups for every thing tried;
and to count by Hall's condition, which is exact only if all subsets are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    """Who has which provider, kept from one step to the next.

    Groups are placed one by one, and a group that was placed keeps some provider for good: so the
    sets of groups that can be placed are independent in a matroid (the transversal matroid).
    """

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


# --- the sets that a matching uses, and what it costs ---------------------------------------------


def best(may: Sequence[int], ranking: Iterable[int], required: Iterable[int] = ()) -> list[int]:
    """Return the hosts that a largest matching of guests to hosts uses; required ones come first.

    Of all sets of hosts that hold as many guests, the one that is first when compared host by host
    in the ranking. Hosts are placed at guests here: taking the best host that still goes with those
    before finds the best set, and hosts that are required first are in it if any complete matching
    has them (Mendelsohn and Dulmage, 1958).

    :param may: the hosts of each guest, as masks

    >>> best([0b011, 0b001], ranking=[1, 0])
    [1, 0]
    """
    in_turn = dict.fromkeys((*required, *ranking))
    if may and may.count(may[0]) == len(may):  # the everyday case needs no paths
        return [host for host in in_turn if may[0] >> host & 1][: len(may)]
    guests = [0] * max((allowed.bit_length() for allowed in may), default=0)
    for guest, allowed in enumerate(may):
        for host in _bits(allowed):
            guests[host] |= 1 << guest
    known = Matching()
    known.start([(0, some) for some in guests])
    used: list[int] = []
    for host in in_turn:
        if len(used) == len(may):
            break
        if host < len(guests) and known.place((host, 0)):
            used.append(host)
    return used


def first_assignment(may: Sequence[int], hosts: int) -> list[int]:
    """Return a host of a set for each guest: of all ways the first, guest by guest.

    :param hosts: as many as there are guests, and some complete matching uses them all

    >>> first_assignment([0b110, 0b111, 0b011], 0b111)
    [1, 2, 0]
    """
    left = [allowed & hosts for allowed in may]
    if left.count(hosts) == len(left):
        return list(_bits(hosts))
    chosen: list[int] = []
    for guest in range(len(may)):
        for host in _bits(left[guest]):
            rest = [allowed & ~(1 << host) for allowed in left[guest + 1 :]]
            if is_complete(rest):
                chosen.append(host)
                left[guest + 1 :] = rest
                break
    return chosen


def is_complete(may: Sequence[int]) -> bool:
    """Return whether every guest can have a host of its own."""
    every = 0
    for allowed in may:
        every |= allowed
    if every.bit_count() < len(may) or may.count(every) == len(may):
        return every.bit_count() >= len(may)
    return can_match((1, allowed) for allowed in may)


def cheapest(costs: Sequence[Sequence[int | None]]) -> list[int] | None:
    """Return a host for each guest with the least cost in all, None if there is no way.

    :param costs: by guest and host; None where the guest cannot be there

    Source: Kuhn's Hungarian method with potentials. Cost: guests^2 * hosts.

    >>> cheapest([[4, 1], [2, None]])
    [1, 0]
    """
    hosts = len(costs[0])
    far = 1 + sum(max((c for c in row if c is not None), default=0) for row in costs)
    table = [[far * (len(costs) + 1) if c is None else c for c in row] for row in costs]
    owner = [-1] * (hosts + 1)
    of_guest, of_host = [0] * len(costs), [0] * (hosts + 1)
    for guest in range(len(costs)):
        _insert(table, guest, owner, of_guest, of_host)
    result = [-1] * len(costs)
    for host in range(hosts):
        if owner[host] >= 0:
            result[owner[host]] = host
    complete = all(h >= 0 and costs[g][h] is not None for g, h in enumerate(result))
    return result if complete else None


def _insert(
    table: Sequence[Sequence[int]],
    guest: int,
    owner: list[int],
    of_guest: list[int],
    of_host: list[int],
) -> None:
    """Add one guest to a cheapest matching, along the cheapest alternating path."""
    start = len(owner) - 1
    owner[start] = guest
    at = start
    least: list[float] = [float("inf")] * start
    came = [-1] * start
    done = [False] * len(owner)
    while owner[at] >= 0:
        done[at] = True
        here, step, then = owner[at], float("inf"), -1
        for host in range(start):
            if done[host]:
                continue
            cost = table[here][host] - of_guest[here] - of_host[host]
            if cost < least[host]:
                least[host], came[host] = cost, at
            if least[host] < step:
                step, then = least[host], host
        for host in range(len(owner)):
            if done[host]:
                of_guest[owner[host]] += int(step)
                of_host[host] -= int(step)
            elif host < start:
                least[host] -= step
        at = then
    while at != start:
        owner[at] = owner[came[at]]
        at = came[at]
    owner[start] = -1


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
