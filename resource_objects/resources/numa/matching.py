"""Complete matchings of guests to hosts: each guest on a host of its own.

Sets of hosts are masks. Everything here is polynomial: a set of hosts that some guests can be
matched to is independent in a matroid (the transversal matroid), so taking the best host that still
goes with those taken before finds the best set, and whatever single hosts are required first are in
it if any complete matching has them (Mendelsohn and Dulmage, 1958).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


class Matching:
    """A matching while it grows: ``host_of`` by guest, -1 for none.

    >>> two = Matching([0b11, 0b01])
    >>> [two.add(host) for host in (0, 1)], two.host_of
    ([True, True], [1, 0])
    """

    __slots__ = ("_guests_of", "_may", "host_of", "size")

    def __init__(self, may: Sequence[int]) -> None:
        """Begin with nobody matched; ``may`` is the hosts of each guest."""
        self._may = may
        self._guests_of: dict[int, list[int]] = {}
        self.host_of = [-1] * len(may)
        self.size = 0

    def add(self, host: int) -> bool:
        """Let a host be used beside those that are; return whether that can be."""
        if self.size < len(self._may) and self._augment(host, set()):
            self.size += 1
            return True
        return False

    def _augment(self, host: int, seen: set[int]) -> bool:
        wanted = self._wanted_by(host)
        for guest in wanted:
            if self.host_of[guest] < 0:
                self.host_of[guest] = host
                return True
        for guest in wanted:
            if guest in seen:
                continue
            seen.add(guest)
            if self._augment(self.host_of[guest], seen):
                self.host_of[guest] = host
                return True
        return False

    def _wanted_by(self, host: int) -> list[int]:
        if host not in self._guests_of:
            bit = 1 << host
            self._guests_of[host] = [g for g, may in enumerate(self._may) if may & bit]
        return self._guests_of[host]


def best(may: Sequence[int], ranking: Iterable[int], required: Iterable[int] = ()) -> Matching:
    """Return a largest matching that uses the best hosts; required ones come first.

    Of all sets of hosts that hold as many guests, the one that is first when compared host by host
    in the ranking is used.

    :param may: the hosts of each guest, as masks
    """
    found = Matching(may)
    for host in (*required, *ranking):
        if found.size == len(may):
            break
        if host not in found.host_of:
            found.add(host)
    return found


def first_assignment(may: Sequence[int], hosts: int) -> list[int]:
    """Return a host of a set for each guest: of all ways the first, guest by guest.

    :param hosts: as many as there are guests, and some complete matching uses them all

    >>> first_assignment([0b110, 0b111, 0b011], 0b111)
    [1, 2, 0]
    """
    left = [allowed & hosts for allowed in may]
    if all(allowed == hosts for allowed in left):
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
    if every.bit_count() < len(may) or all(allowed == every for allowed in may):
        return every.bit_count() >= len(may)
    return best(may, _bits(every)).size == len(may)


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
    found = [-1] * len(costs)
    for host in range(hosts):
        if owner[host] >= 0:
            found[owner[host]] = host
    complete = all(h >= 0 and costs[g][h] is not None for g, h in enumerate(found))
    return found if complete else None


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
