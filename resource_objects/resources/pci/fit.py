"""The decision: which devices meet an amount, all or nothing. Pure: no argument changes.

1. :func:`demands_of`: each request becomes a demand for a number of devices of some groups
   (:mod:`.device_index`).
2. :func:`build_problem` ranks the groups of each demand by their free devices. A limit becomes a
   demand too, for devices that stay free.
3. :func:`solve` lets each demand use its best groups. If one is short, :class:`MaxFlow` exchanges
   devices between demands. Only physical functions that are requested both whole and in parts need
   a search.
4. :func:`match_requests` assigns the devices to requests. It depends on these devices alone, so a
   ledger, which stores only the devices, can repeat it.
5. :func:`explain` returns the reasons of a refusal.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from resource_objects.exceptions import CapacityException, ForeignAmount, SearchLimitReached
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.backtracking import DECISION, Budget, Solution, solutions
from resource_objects.resources.context import ChosenCells
from resource_objects.resources.pci.amount import DeviceRequest, DeviceSpec, PCIAmount, PlacedDevice
from resource_objects.resources.pci.device import LEGACY, PREFERRED, SOCKET, Device
from resource_objects.resources.pci.device_index import DeviceIndex, DeviceLimit

#: The resource that a reason names if its request names no class.
ANY_CLASS = "DEVICES"
#: A demand for devices that a limit keeps free: its number, and a request that any device matches.
_STAYS_FREE = -1
_ANYWHERE = DeviceRequest([DeviceSpec()], affinity=PREFERRED)
#: One step of the budget is a flow of this many edges.
_EDGES_OF_A_STEP = 256
#: The distance of a device whose distance is not known: larger than any distance.
_FAR = 1 << 32


class DeviceDemand(NamedTuple):
    """A number of devices of some groups, for one request."""

    number: int  #: the number of the request in the amount
    request: DeviceRequest
    needed: int
    groups: tuple[int, ...]  #: groups whose devices match, at any distance


class DeviceProblem(NamedTuple):
    """Demands on the groups of an index; groups are by number."""

    devices: DeviceIndex
    demands: Sequence[DeviceDemand]
    free: Mapping[int, Sequence[str]]  #: devices that may be allocated, by group
    choices: Sequence[Sequence[int]]  #: the groups of each demand, the best first
    allowed: Collection[str] | None  #: addresses that may be used, None for all

    @property
    def counts(self) -> list[int]:
        """The number of devices that each demand needs."""
        return [demand.needed for demand in self.demands]

    def max_flow(self) -> MaxFlow:
        """Return the demands met as far as possible, as if no device excluded another."""
        capacity = {group: len(addresses) for group, addresses in self.free.items()}
        return MaxFlow(self.counts, self.choices, capacity)

    def free_and_allowed(self, group: int) -> Sequence[str]:
        """Return the free devices of a group, also devices that a limit keeps free."""
        free = self.devices.free[group]
        return free if self.allowed is None else [at for at in free if at in self.allowed]


#: The number of devices that each demand uses, by group.
DeviceChoice: TypeAlias = Sequence[dict[int, int]]


def assign_devices(
    index: DeviceIndex,
    amount: PCIAmount,
    cells: ChosenCells | None,
    allowed: Collection[str] | None,
) -> PCIAmount:
    """Return the amount, assigned.

    :param cells: the host cells, and the chosen ones; None if affinity has no meaning
    :param allowed: addresses that may be used, None for all
    :raises CapacityException: if it cannot be met
    :raises SearchLimitReached: if the budget ended before the answer was known
    """
    if amount.has_addresses:
        index = index.per_device()  # a device named by a request is not any device of its group
    problem = build_problem(index, demands_of(index, amount), cells, allowed)
    choice = solve(problem)
    if choice is None:
        raise CapacityException(explain(problem, cells))
    counts: dict[int, int] = {}
    for demand, groups in zip(problem.demands, choice, strict=True):
        if demand.number != _STAYS_FREE:
            for group, count in groups.items():
                counts[group] = counts.get(group, 0) + count
    chosen: list[str] = []
    for group, count in counts.items():
        chosen += problem.free[group][:count]
    devices = [index.devices[address] for address in sorted(chosen)]
    if len(amount.requests) == 1:
        return with_devices(index, amount, [(0, device) for device in devices])
    return with_devices(index, amount, match_requests(index, amount, devices, cells))


def may_meet_all(
    index: DeviceIndex, requested: Iterable[tuple[PCIAmount, Collection[str], int]]
) -> bool:
    """Return False if several amounts cannot be met at once, on any host cells; True: perhaps.

    :param requested: each amount, the addresses that it may use, and how often it is requested
    """
    index = index.per_device()
    demands: list[DeviceDemand] = []
    allowed: list[Collection[str]] = []
    for amount, addresses, count in requested:
        for demand in demands_of(index, amount):
            demands.append(demand._replace(needed=demand.needed * count))
            allowed.append(addresses)
    problem = build_problem(index, demands, None)
    choices = list(problem.choices)
    for number, addresses in enumerate(allowed):  # demands of limits come after these
        choices[number] = [n for n in choices[number] if problem.free[n][0] in addresses]
    try:
        return solve(problem._replace(choices=choices)) is not None
    except SearchLimitReached:
        return True


def match_requests(
    index: DeviceIndex, amount: PCIAmount, devices: Sequence[Device], cells: ChosenCells | None
) -> list[tuple[int, Device]]:
    """Return which request of an amount each device is assigned to.

    The result depends on the amount, the devices and the host cells alone, not on other devices. If
    there are more devices than requested, the first that meet the amount are used.

    :param devices: ascending by address
    :raises ForeignAmount: if they do not meet it
    """
    if amount.has_addresses:
        index = DeviceIndex(devices, (), per_device=True)
    groups = [index.group_of[device.address] for device in devices]
    demands = demands_of(index, amount)
    counts = [demand.needed for demand in demands]
    choices: list[list[int]] = []
    for demand in demands:
        affinity = demand.request.affinity
        keys = {
            group: (tier, index.groups[group].cost)
            for group in set(groups).intersection(demand.groups)
            if (tier := affinity_tier(affinity, index.groups[group].node, cells)) is not None
        }
        places = [place for place, group in enumerate(groups) if group in keys]
        choices.append(sorted(places, key=lambda place: keys[groups[place]]))
    flow = MaxFlow(counts, choices, dict.fromkeys(range(len(devices)), 1))
    if flow.is_complete and sum(counts) < len(devices):
        used = sorted({place for places in flow.used for place in places})
        return match_requests(index, amount, [devices[place] for place in used], cells)
    if not flow.is_complete or sum(counts) > len(devices):
        raise ForeignAmount(
            "devices",
            [device.address for device in devices],
            f"devices that meet {amount.unassigned()}",
        )
    pairs = [
        (demand.number, place)
        for demand, places in zip(demands, flow.used, strict=True)
        for place in places
    ]
    return [(request, devices[place]) for request, place in sorted(pairs)]


def with_devices(
    index: DeviceIndex, amount: PCIAmount, devices: Iterable[tuple[int, Device]]
) -> PCIAmount:
    """Return an amount assigned to devices, each with the number of its request."""
    placed = [
        PlacedDevice._construct(
            request=request,
            address=device.address,
            resource_class=device.resource_class,
            numa_node=device.numa_node,
            parts=index.functions_of(device),
        )
        for request, device in devices
    ]
    return amount._evolve(placed=tuple(placed), gives_back=False)


# --- demands on device groups ---------------------------------------------------------------------


def demands_of(index: DeviceIndex, amount: PCIAmount) -> list[DeviceDemand]:
    """Return the demands of an amount: one for each request, or for each provider it names."""
    demands: list[DeviceDemand] = []
    for number, request in enumerate(amount.requests):
        if not request.providers:
            groups = index.groups_matching(request, None)
            demands.append(DeviceDemand(number, request, request.count, groups))
            continue
        for provider, count in sorted(Counter(request.providers).items()):
            groups = index.groups_matching(request, provider)
            demands.append(DeviceDemand(number, request, count, groups))
    return demands


def build_problem(
    index: DeviceIndex,
    demands: Sequence[DeviceDemand],
    cells: ChosenCells | None,
    allowed: Collection[str] | None = None,
) -> DeviceProblem:
    """Return the problem of demands under the limits on devices.

    If a limit allows no further device, the devices of the limit are left out. Otherwise the
    devices of the limit that have to stay free are a demand after the requested ones. It uses the
    devices that are of least use to the requested demands.

    :param cells: the host cells, and the chosen ones; None if affinity has no meaning
    :param allowed: addresses that may be used, None for all
    """
    limits = index.limits()
    if not limits:
        return _problem(index, demands, cells, allowed, allowed)
    usable = {address for addresses in index.free for address in addresses}
    if allowed is not None:
        usable = usable.intersection(allowed)
    under_limits = list(demands)
    for limit in limits:
        if not limit.remaining:
            usable = usable - limit.free
        elif limit.remaining < len(limit.free) and not usable.isdisjoint(limit.free):
            groups = [n for n, free in enumerate(index.free) if not limit.free.isdisjoint(free)]
            spare = len(limit.free) - limit.remaining
            under_limits.append(DeviceDemand(_STAYS_FREE, _ANYWHERE, spare, tuple(groups)))
    return _problem(index, under_limits, cells, usable, allowed)


def _problem(
    index: DeviceIndex,
    demands: Sequence[DeviceDemand],
    cells: ChosenCells | None,
    usable: Collection[str] | None,
    allowed: Collection[str] | None,
) -> DeviceProblem:
    free: dict[int, Sequence[str]] = {}
    for demand in demands:
        for group in demand.groups:
            if group not in free:
                addresses = index.free[group]
                if usable is not None:
                    addresses = [at for at in addresses if at in usable]
                free[group] = addresses
    choices = [_rank_groups(index, demand, free, cells) for demand in demands]
    return DeviceProblem(index, demands, free, choices, allowed)


def _rank_groups(
    index: DeviceIndex,
    demand: DeviceDemand,
    free: Mapping[int, Sequence[str]],
    cells: ChosenCells | None,
) -> list[int]:
    """Return the groups with devices that are near enough, the best first.

    The order is: affinity tier and distance; the number of tags, plus 1 for a device for one use;
    devices that split no unsplit card; then whole cards with the fewest functions, and of cards
    that would be split the one with the fewest free functions that suffice, else the one with the
    most, so that few cards are split; the address.
    """
    affinity = demand.request.affinity
    ranked: list[tuple[Any, ...]] = []
    for number in demand.groups:
        addresses = free[number]
        if not addresses:
            continue
        group = index.groups[number]
        tier = (0, 0) if cells is None else affinity_tier(affinity, group.node, cells)
        if tier is None:
            continue
        split = 0, 0, 0
        if number in index.parts:  # an unsplit card: with the fewest functions first
            split = 1, 0, sum(len(index.free[part]) for part in index.parts[number])
        elif number in index.card_of and index.free[index.card_of[number]]:
            count = len(addresses)
            split = (1, 0, count) if count >= demand.needed else (1, 1, -count)
        ranked.append((tier, group.cost, *split, addresses[0], number))
    if len(ranked) > 1:
        ranked.sort()
    return [key[-1] for key in ranked]


# --- the assignment of groups to demands ----------------------------------------------------------


def solve(problem: DeviceProblem, budget: Budget | None = None) -> DeviceChoice | None:
    """Return the number of devices of each group that each demand uses, None if impossible.

    A physical function and the functions split off it exclude each other. Where no demand could use
    a function whole while another could use parts of it, this is a flow: polynomial. Where both are
    requested, it is hard in general (which functions stay whole is a packing). It is decided
    exactly within a budget:

    1. Each demand in turn uses its best groups. That mostly suffices.
    2. The flow that ignores exclusions is a necessary condition.
    3. A function that the flow uses both whole and in parts is decided: in parts first, so that few
       functions are allocated whole. Of functions with one symmetry key the first are used whole.
       So the number of cases is polynomial for any fixed number of kinds of functions.

    :raises SearchLimitReached: if the budget ended before the answer was known
    """
    choice = _best_groups(problem)
    if choice is not None:
        return choice
    usable = {group for groups in problem.choices for group in groups}
    conflicts = [
        group
        for group, parts in problem.devices.parts.items()
        if group in usable and not usable.isdisjoint(parts)
    ]
    if conflicts:
        return _search(problem, conflicts, budget or Budget(DECISION))
    flow = problem.max_flow()
    return flow.used if flow.is_complete else None


def _best_groups(problem: DeviceProblem) -> DeviceChoice | None:
    """Return the choice in which each demand in turn uses its best groups, None if one is short."""
    card_of, parts = problem.devices.card_of, problem.devices.parts
    used: dict[int, int] = {}
    choice: list[dict[int, int]] = []
    for demand, groups in zip(problem.demands, problem.choices, strict=True):
        missing = demand.needed
        counts: dict[int, int] = {}
        for group in groups:
            count = min(missing, len(problem.free[group]) - used.get(group, 0))
            if count <= 0 or used.get(card_of.get(group, -1)):
                continue  # no device is left, or the card is used whole
            if group in parts and any(used.get(part) for part in parts[group]):
                continue
            counts[group] = count
            used[group] = used.get(group, 0) + count
            missing -= count
            if not missing:
                break
        if missing:
            return None
        choice.append(counts)
    return choice


#: The groups that are only used whole, and those that are only used in parts.
_Decided: TypeAlias = tuple[frozenset[int], frozenset[int]]


def _search(
    problem: DeviceProblem, conflicts: Sequence[int], budget: Budget
) -> DeviceChoice | None:
    index = problem.devices
    free = {group: len(addresses) for group, addresses in problem.free.items()}

    def group_key(number: int) -> tuple[Hashable, ...]:
        users = tuple(n for n, groups in enumerate(problem.choices) if number in groups)
        return free.get(number, 0), users

    by_key: dict[Hashable, list[int]] = {}
    for group in conflicts:
        symmetry_key = group_key(group), tuple(sorted(map(group_key, index.parts[group])))
        by_key.setdefault(symmetry_key, []).append(group)
    equal_groups = {group: groups for groups in by_key.values() for group in groups}

    def expand(decided: _Decided) -> Iterator[_Decided | Solution[DeviceChoice]]:
        unsplit, split = decided
        capacity = {**free, **dict.fromkeys(split, 0)}
        capacity.update((part, 0) for group in unsplit for part in index.parts[group])
        flow = MaxFlow(problem.counts, problem.choices, capacity)
        if not flow.is_complete:
            return  # impossible even if the undecided groups exclude nothing
        used = {group for groups in flow.used for group in groups}
        violated = [n for n in conflicts if n in used and not used.isdisjoint(index.parts[n])]
        if not violated:
            yield Solution(flow.used)
            return
        undecided = [n for n in equal_groups[violated[0]] if n not in unsplit and n not in split]
        yield unsplit, split.union(undecided)
        yield unsplit | {undecided[0]}, split

    cost = 1 + sum(map(len, problem.choices)) // _EDGES_OF_A_STEP
    start = frozenset[int](), frozenset[int]()
    return next(solutions(start, expand, budget, cost=cost), None)


class MaxFlow:
    """A maximum flow of devices from groups to demands.

    Each demand first uses its best groups. Then devices are moved along the shortest chain of
    demands that can use other groups (Ford and Fulkerson; Edmonds and Karp).

    ``used[d][g]`` is how many devices of group ``g`` demand ``d`` uses, ``missing[d]`` how many it
    lacks.

    >>> MaxFlow([1, 3], [[0, 1], [1]], {0: 1, 1: 3}).used
    [{0: 1}, {1: 3}]
    >>> MaxFlow([1, 3], [[1, 0], [1]], {0: 1, 1: 3}).used  # the first demand uses another group
    [{0: 1}, {1: 3}]
    """

    def __init__(
        self, counts: Sequence[int], choices: Sequence[Sequence[int]], capacity: Mapping[int, int]
    ) -> None:
        """Find a maximum flow.

        :param counts: the number of devices that each demand needs
        :param choices: the groups of each demand, the best first
        :param capacity: the number of devices of each group
        """
        self._choices = choices
        self._spare = dict(capacity)
        self._users: dict[int, set[int]] = defaultdict(set)  #: demands, by group
        self.used: list[dict[int, int]] = [{} for _ in counts]
        self.missing = list(counts)
        for demand, groups in enumerate(choices):
            for group in groups:
                count = min(self.missing[demand], self._spare.get(group, 0))
                if count > 0:
                    self._move(demand, group, count)
                    self._spare[group] -= count
                    self.missing[demand] -= count
            while self.missing[demand] and self._augment(demand):
                pass

    @property
    def is_complete(self) -> bool:
        """Whether every demand is met."""
        return not any(self.missing)

    def short_demands(self) -> list[frozenset[int]]:
        """Return sets of demands that lack devices together: only further groups could help.

        There is one for each demand that is not met: it, and the demands that use the groups that
        it could use (a violator of Hall's condition).
        """
        sets: list[frozenset[int]] = []
        for start, missing in enumerate(self.missing):
            if not missing:
                continue
            reached, waiting = {start}, [start]
            while waiting:
                for group in self._choices[waiting.pop()]:
                    waiting += self._users[group] - reached
                    reached |= self._users[group]
            sets.append(frozenset(reached))
        return sets

    def _augment(self, start: int) -> bool:
        """Move devices along a shortest chain to a group with a spare device; False if none."""
        previous: dict[int, tuple[int, int]] = {}  # by demand: the demand before, a freed group
        visited: set[int] = set()
        waiting = deque([start])
        while waiting:
            demand = waiting.popleft()
            for group in self._choices[demand]:
                if group in visited:
                    continue
                if self._spare.get(group, 0) > 0:
                    self._move_along(start, demand, group, previous)
                    return True
                visited.add(group)
                for user in sorted(self._users[group]):  # a set has no order to rely on
                    if user != start and user not in previous:
                        previous[user] = demand, group
                        waiting.append(user)
        return False

    def _move_along(
        self, start: int, demand: int, group: int, previous: Mapping[int, tuple[int, int]]
    ) -> None:
        count, at = min(self.missing[start], self._spare[group]), demand
        while at != start:
            before, freed = previous[at]
            count, at = min(count, self.used[at][freed]), before
        self._spare[group] -= count
        self.missing[start] -= count
        self._move(demand, group, count)
        while demand != start:
            before, freed = previous[demand]
            self._move(demand, freed, -count)
            self._move(before, freed, count)
            demand = before

    def _move(self, demand: int, group: int, count: int) -> None:
        used = self.used[demand]
        used[group] = used.get(group, 0) + count
        if used[group]:
            self._users[group].add(demand)
        else:
            del used[group]
            self._users[group].discard(demand)


# --- affinity -------------------------------------------------------------------------------------


def affinity_tier(
    affinity: str, node: int | None, cells: ChosenCells | None
) -> tuple[int, int] | None:
    """Return the (tier, distance) of a device from host cells, None if it is too far.

    ================  ==============================================================================
    ``required``      devices of the chosen host cells alone
    ``legacy``        these, then devices whose node the firmware does not report
    ``preferred``     these, then devices of unknown node, then any device, the nearest first
    ``socket``        these, then devices of other cells in the same sockets; if the socket of any
                      host cell is not known, these alone
    ================  ==============================================================================

    Without host cells every device is near enough. A device of a farther tier is only used if the
    nearer tiers lack devices, device by device. Source: Nova's ``hw:pci_numa_affinity_policy``,
    which uses the next tier for a whole request at once.

    :param node: the host cell that the device is next to, None if unknown
    :param cells: the host cells, and the chosen ones; None if affinity has no meaning
    """
    if cells is None or node in cells.ids:
        return 0, 0
    if node is None:
        return (1, 0) if affinity in (LEGACY, PREFERRED) else None
    if affinity == PREFERRED:
        tier = 2
    elif affinity == SOCKET and cells.cells.sockets.get(node) in cells.sockets:
        tier = 1
    else:
        return None
    table = cells.cells.distances
    return tier, min((table.get(cell, {}).get(node, _FAR) for cell in cells.ids), default=_FAR)


# --- reasons --------------------------------------------------------------------------------------


def explain(problem: DeviceProblem, cells: ChosenCells | None) -> tuple[Reason, ...]:
    """Return the reasons why an amount cannot be met.

    First those of requests that cannot be met individually, then the limits on devices that
    requests have no alternative to. Else the requests cannot be met at once.
    """
    demands = [demand for demand in problem.demands if demand.number != _STAYS_FREE]
    reasons = [reason for demand in demands for reason in _explain_demand(problem, demand, cells)]
    if not reasons:
        for limit in problem.devices.limits():
            needed = sum(
                demand.needed
                for demand in demands
                if all(limit.free.issuperset(problem.free_and_allowed(n)) for n in demand.groups)
            )
            reasons += limit_reasons(limit, needed)
    if reasons:
        return tuple(dict.fromkeys(reasons))
    flow = problem.max_flow()
    needed = sum(demand.needed for demand in demands)
    met = needed - sum(flow.missing) - flow.is_complete
    combined = Reason(Rule.AT_ONCE, needed, met, 0, ANY_CLASS)
    return (combined, *_explain_by_limits(problem, demands, cells))


def limit_reasons(limit: DeviceLimit, needed: int) -> list[Reason]:
    """Return the reason why a limit allows fewer devices than needed, if it does."""
    if needed <= limit.remaining:
        return []
    return [Reason(Rule.LIMIT, needed, limit.limit, limit.used, limit.resource_class)]


def _explain_by_limits(
    problem: DeviceProblem, demands: Sequence[DeviceDemand], cells: ChosenCells | None
) -> Iterator[Reason]:
    """Yield the limits without which the demands could be met at once, if they could.

    A limit counts for a demand that could use its devices, or use them up with a whole function.
    """
    index = problem.devices
    limits = [limit for limit in index.limits() if not limit.is_shared]
    if not limits:
        return
    try:
        if solve(_problem(index, demands, cells, problem.allowed, problem.allowed)) is None:
            return
    except SearchLimitReached:  # unknown; the reason that is reported already is true
        return
    for limit in limits:
        needed = 0
        for demand in demands:
            free = [problem.free_and_allowed(group) for group in demand.groups]
            if any(not limit.free.isdisjoint(addresses) for addresses in free):
                needed += demand.needed
            else:
                parts = [part for group in demand.groups for part in index.parts.get(group, ())]
                needed += sum(limit.count_free(problem.free_and_allowed(n)) for n in parts)
        yield from limit_reasons(limit, min(needed, len(limit.free)))


def _explain_demand(
    problem: DeviceProblem, demand: DeviceDemand, cells: ChosenCells | None
) -> Iterator[Reason]:
    """Yield the reasons why one demand cannot be met individually."""
    index, needed = problem.devices, demand.needed
    name = demand.request.resource_class or ANY_CLASS
    kinds: str | None = demand.request.kinds
    kinds = None if kinds == name else kinds
    if not any(map(index.size, demand.groups)):
        yield Reason(Rule.NO_INVENTORY, needed, 0, 0, name, unit=kinds)
        return
    free = [at for group in demand.groups for at in problem.free_and_allowed(group)]
    tight: list[tuple[DeviceLimit, int]] = []  # with the number of free devices under the limit
    for limit in index.limits():
        count = limit.count_free(free)
        if count > limit.remaining:
            tight.append((limit, count))
    available = len(free) - sum(count - limit.remaining for limit, count in tight)
    if available < needed:
        usable = index.count_usable(demand.groups, problem.allowed)
        limits = [(limit, count) for limit, count in tight if not limit.is_shared]
        if not limits:
            yield Reason(Rule.CAPACITY, needed, usable, usable - available, name, unit=kinds)
            return
        lost = sum(count - limit.remaining for limit, count in tight if limit.is_shared)
        figures = usable - lost, usable - len(free)
        yield from _explain_limits(problem, demand, limits, figures, kinds)
        return
    affinity = demand.request.affinity
    near = sum(
        len(problem.free[group])
        for group in demand.groups
        if affinity_tier(affinity, index.groups[group].node, cells) is not None
    )
    if near < needed:
        yield Reason(Rule.AFFINITY, needed, near, 0, name, unit=kinds)


def _explain_limits(
    problem: DeviceProblem,
    demand: DeviceDemand,
    limits: Iterable[tuple[DeviceLimit, int]],
    figures: tuple[int, int],
    kinds: str | None,
) -> Iterator[Reason]:
    """Yield the limits that leave too few devices, by class, with all devices under them.

    :param limits: each with the number of free and matching devices under it
    :param figures: the number of matching devices, without those that a limit of a class that they
        use up keeps free, and how many of them are in use
    """
    by_class: dict[str, tuple[int, int]] = {}
    for limit, count in limits:
        name, own_usable, own_free = limit.resource_class, 0, 0
        bound, used = by_class.get(name, (0, 0))
        if demand.request.resource_class == name:  # includes devices of the class without a limit
            bound, used = by_class.get(name, figures)
            usable = limit.usable
            if problem.allowed is not None:
                usable = usable.intersection(problem.allowed)
            own_usable, own_free = problem.devices.count_usable(demand.groups, usable), count
        by_class[name] = bound + limit.limit - own_usable, used + limit.used - own_usable + own_free
    for name, (bound, used) in by_class.items():
        yield Reason(Rule.LIMIT, demand.needed, bound, used, name, unit=kinds)
