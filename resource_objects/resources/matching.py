"""Bipartite matchings: each item of one set is assigned an item of its own of another set.

Guest cells are matched to host cells, request groups to providers. Sets are bit masks. All
algorithms are exact and polynomial: :class:`Matching` uses augmenting paths (Kuhn's algorithm),
:func:`cheapest` the Hungarian method.

A search needs a matching after each step, of nearly the same groups and providers. Therefore a
:class:`Matching` stores its result and matches only those groups again whose provider is not
allowed any more, mostly one.

Rejected: to match from scratch at each step, which is a pass over all groups for each provider
tried; to count by Hall's condition, which is exact only if all subsets are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

#: A group: its kind, and its number among the groups of the kind.
_Group: TypeAlias = tuple[int, int]


def can_match(groups: Iterable[tuple[int, int]]) -> bool:
    """Return True if each group can have a provider for itself.

    :param groups: by kind, the number of groups and the mask of the allowed providers

    >>> can_match([(2, 0b011), (1, 0b110)])
    True
    >>> can_match([(2, 0b011), (1, 0b011)])
    False
    """
    return Matching().can_match(list(groups))


def matching_size(groups: Iterable[tuple[int, int]]) -> int:
    """Return the maximum number of groups that can have a provider for themselves.

    >>> matching_size([(2, 0b011), (1, 0b011)])
    2
    """
    matching = Matching()
    matching.start(list(groups))
    return sum(matching.match(group) for group in matching.unmatched)


class Matching:
    """A matching of groups to providers that each step of a search reuses.

    Groups are matched one by one, and a matched group remains matched, perhaps to another provider:
    the sets of groups that can be matched are independent in a matroid (the transversal matroid).
    """

    def __init__(self) -> None:
        self._provider_of: dict[_Group, int] = {}  # the provider's bit
        self._group_of: dict[int, _Group] = {}  # the inverse
        self._masks: list[int] = []
        #: groups without a provider
        self.unmatched: list[_Group] = []

    def can_match(self, groups: Sequence[tuple[int, int]]) -> bool:
        """Return True if each group can have a provider for itself.

        :param groups: by kind, the number of groups and the mask of the allowed providers

        Cost: a pass over the groups; for each group that lost its provider, at most the product of
        the numbers of groups and providers.
        """
        total = sum(count for count, _ in groups)
        if all(mask.bit_count() >= total for count, mask in groups if count):
            return True
        self.start(groups)
        return all(self.match(group) for group in self.unmatched)

    def start(self, groups: Sequence[tuple[int, int]]) -> None:
        """Keep the pairs of the previous matching that these groups still allow."""
        previous, self._provider_of, self.unmatched = self._provider_of, {}, []
        self._masks = [mask for _, mask in groups]
        for kind, (count, mask) in enumerate(groups):
            for number in range(count):
                provider = previous.get((kind, number), 0)
                if provider & mask:
                    self._provider_of[kind, number] = provider
                else:
                    self.unmatched.append((kind, number))
        self._group_of = {provider: group for group, provider in self._provider_of.items()}

    def match(self, group: _Group) -> bool:
        """Match a group along an augmenting path, which may move others; return False if none."""
        visited = 0
        reached_by: dict[int, _Group] = {}  # by the provider's bit
        path = [(group, self._masks[group[0]])]  # each group with the providers still to try
        while path:
            wanting, to_try = path.pop()
            to_try &= ~visited
            if not to_try:
                continue
            provider = to_try & -to_try
            visited |= provider
            reached_by[provider] = wanting
            path.append((wanting, to_try ^ provider))
            owner = self._group_of.get(provider)
            if owner is not None:
                path.append((owner, self._masks[owner[0]]))
                continue
            while provider:  # match each provider on the path to the group that reached it
                wanting = reached_by[provider]
                previous = self._provider_of.get(wanting, 0)
                self._provider_of[wanting], self._group_of[provider] = provider, wanting
                provider = previous
            return True
        return False


# --- guests and hosts -----------------------------------------------------------------------------


def best(allowed: Sequence[int], ranking: Iterable[int], required: Iterable[int] = ()) -> list[int]:
    """Return the hosts of a largest matching of guests; required hosts first, then by ranking.

    Of all sets of hosts for as many guests, the result is the first one, compared host by host in
    the ranking. A host is added if it can be matched together with all hosts added before, so
    required hosts are in the result if any complete matching uses them (Mendelsohn and Dulmage,
    1958).

    :param allowed: the allowed hosts of each guest, as masks

    >>> best([0b011, 0b001], ranking=[1, 0])
    [1, 0]
    """
    order = dict.fromkeys((*required, *ranking))
    if allowed and allowed.count(allowed[0]) == len(allowed):  # the frequent case: no paths
        return [host for host in order if allowed[0] >> host & 1][: len(allowed)]
    guests_of_host = [0] * max((mask.bit_length() for mask in allowed), default=0)
    for guest, mask in enumerate(allowed):
        for host in bits(mask):
            guests_of_host[host] |= 1 << guest
    matching = Matching()
    matching.start([(0, guests) for guests in guests_of_host])
    hosts: list[int] = []
    for host in order:
        if len(hosts) == len(allowed):
            break
        if host < len(guests_of_host) and matching.match((host, 0)):
            hosts.append(host)
    return hosts


def first_assignment(allowed: Sequence[int], hosts: int) -> list[int]:
    """Return a host for each guest: the lowest possible, guest by guest.

    :param allowed: the allowed hosts of each guest, as masks
    :param hosts: the mask of as many hosts as guests, all of which a complete matching uses

    >>> first_assignment([0b110, 0b111, 0b011], 0b111)
    [1, 2, 0]
    """
    remaining = [mask & hosts for mask in allowed]
    if remaining.count(hosts) == len(remaining):
        return list(bits(hosts))
    chosen: list[int] = []
    for guest in range(len(allowed)):
        for host in bits(remaining[guest]):
            later = [mask & ~(1 << host) for mask in remaining[guest + 1 :]]
            if is_complete(later):
                chosen.append(host)
                remaining[guest + 1 :] = later
                break
    return chosen


def is_complete(allowed: Sequence[int]) -> bool:
    """Return True if every guest can have a host for itself."""
    union = 0
    for mask in allowed:
        union |= mask
    if union.bit_count() < len(allowed) or allowed.count(union) == len(allowed):
        return union.bit_count() >= len(allowed)
    return can_match((1, mask) for mask in allowed)


def cheapest(costs: Sequence[Sequence[int | None]]) -> list[int] | None:
    """Return a host for each guest with the least total cost, None if there is no matching.

    :param costs: by guest and host; None if the host is not allowed

    Source: Kuhn's Hungarian method with potentials. Cost: guests^2 * hosts.

    >>> cheapest([[4, 1], [2, None]])
    [1, 0]
    """
    hosts = len(costs[0])
    high = 1 + sum(max((cost for cost in row if cost is not None), default=0) for row in costs)
    high *= len(costs) + 1
    table = [[high if cost is None else cost for cost in row] for row in costs]
    guest_of = [-1] * (hosts + 1)  # the last host is a virtual one, where each path starts
    guest_potential, host_potential = [0] * len(costs), [0] * (hosts + 1)
    for guest in range(len(costs)):
        _add_guest(guest, table, guest_of, guest_potential, host_potential)
    result = [-1] * len(costs)
    for host in range(hosts):
        if guest_of[host] >= 0:
            result[guest_of[host]] = host
    for guest, host in enumerate(result):
        if host < 0 or costs[guest][host] is None:
            return None
    return result


def _add_guest(
    guest: int,
    table: Sequence[Sequence[int]],
    guest_of: list[int],
    guest_potential: list[int],
    host_potential: list[int],
) -> None:
    """Match one more guest along the cheapest alternating path."""
    hosts = len(guest_of) - 1
    guest_of[hosts] = guest
    at = hosts
    least: list[float] = [float("inf")] * hosts
    came_from = [-1] * hosts
    done = [False] * len(guest_of)
    while guest_of[at] >= 0:
        done[at] = True
        here, step, nearest = guest_of[at], float("inf"), -1
        for host in range(hosts):
            if done[host]:
                continue
            cost = table[here][host] - guest_potential[here] - host_potential[host]
            if cost < least[host]:
                least[host], came_from[host] = cost, at
            if least[host] < step:
                step, nearest = least[host], host
        for host in range(len(guest_of)):
            if done[host]:
                guest_potential[guest_of[host]] += int(step)
                host_potential[host] -= int(step)
            elif host < hosts:
                least[host] -= step
        at = nearest
    while at != hosts:
        guest_of[at] = guest_of[came_from[at]]
        at = came_from[at]
    guest_of[hosts] = -1


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of a mask, ascending.

    >>> list(bits(0b1101))
    [0, 2, 3]
    """
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
