"""The decision: which devices meet an amount, all or nothing. Pure; the inputs do not change."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.backtracking import Solution, solutions
from resource_objects.resources.budget import DECISION, Budget
from resource_objects.resources.context import ChosenCells
from resource_objects.resources.pci.amount import DeviceRequest, DeviceSpec, PCIAmount, PlacedDevice
from resource_objects.resources.pci.device import LEGACY, PF, PREFERRED, REQUIRED, SOCKET, Device
from resource_objects.resources.pci.device_groups import Bound, DeviceGroups, Devices


def place(
    shelf: Devices, amount: PCIAmount, where: ChosenCells | None, within: Collection[str] | None
) -> PCIAmount:
    """Return the amount, assigned.

    :param within: addresses that may be used, None for all
    :raises CapacityException: if it cannot be met
    :raises SearchLimitReached: if the budget ran out before it was known
    """
    if names_addresses(amount):
        shelf = (
            shelf.apart()
        )  # who asks for one by its address may not be given another of its kind
    demands = demands_of(shelf, amount)
    problem = lay(shelf, demands, where, within)
    given = divide(problem)
    if given is None:
        raise CapacityException(reasons(problem, where))
    chosen = _chosen(shelf, problem, given)
    if len(amount.requests) == 1:
        return with_devices(shelf, amount, ((0, device) for device in chosen))
    return with_devices(shelf, amount, assigned(shelf, amount, chosen, where))


def may_meet_all(
    shelf: Devices, requested: Iterable[tuple[PCIAmount, Collection[str], int]]
) -> bool:
    """Return False if several amounts cannot be met at once, wherever their host cells are.

    :param requested: each amount, the addresses that it may use, and how many times it is requested
    """
    shelf = shelf.apart()
    demands: list[DeviceDemand] = []
    within: list[Collection[str]] = []
    for amount, addresses, count in requested:
        for demand in demands_of(shelf, amount):
            demands.append(demand._replace(needed=demand.needed * count))
            within.append(addresses)
    problem = lay(shelf, demands, None)
    may = [list(groups) for groups in problem.may]
    for number, addresses in enumerate(within):  # devices that a limit leaves free come after these
        may[number] = [group for group in may[number] if problem.free[group][0] in addresses]
    try:
        return divide(problem._replace(may=may)) is not None
    except exceptions.SearchLimitReached:
        return True


def names_addresses(amount: PCIAmount) -> bool:
    """Return whether an amount asks for a device by its address."""
    return any(spec.address for request in amount.requests for spec in request.specs)


def _chosen(shelf: Devices, problem: DeviceProblem, given: Given) -> list[Device]:
    """Return the devices that are taken, by address: of each group the first ones."""
    counts: dict[int, int] = {}
    for demand, has in zip(problem.demands, given, strict=True):
        for group, count in has.items() if demand.request != _NOBODY else ():
            counts[group] = counts.get(group, 0) + count
    found: list[str] = []
    for group, count in counts.items():
        found += problem.free[group][:count]
    return [shelf.devices[address] for address in sorted(found)]


def assigned(
    shelf: Devices, amount: PCIAmount, chosen: Sequence[Device], where: ChosenCells | None
) -> list[tuple[int, Device]]:
    """Return which request has which of the chosen devices.

    It follows from the amount, the devices and the host cells alone, whatever else is on the shelf
    or taken of it: a ledger that keeps which devices somebody has can tell it again.

    :param chosen: by address, as many as the amount asks for
    :raises ForeignAmount: if they do not meet it
    """
    if names_addresses(amount):
        shelf = Devices(chosen, (), apart=True)
    groups = [shelf.group_of[device.address] for device in chosen]
    demands = demands_of(shelf, amount)
    counts = [demand.needed for demand in demands]
    may = [_in_order(shelf, demand, groups, where) for demand in demands]
    flow = Flow(counts, may, dict.fromkeys(range(len(chosen)), 1))
    if not flow.is_complete or sum(counts) != len(chosen):
        shown = [device.address for device in chosen]
        raise exceptions.ForeignAmount("devices", shown, f"what {amount.unassigned()} takes")
    found = [
        (demand.request, place)
        for demand, has in zip(demands, flow.given, strict=True)
        for place in has
    ]
    return [(request, chosen[place]) for request, place in sorted(found)]


def _in_order(
    shelf: Devices, demand: DeviceDemand, groups: Sequence[int], where: ChosenCells | None
) -> list[int]:
    """Return the places of the devices that a demand may have, the nearest and plainest first.

    :param groups: the group of each device
    """
    far = rings(demand.wanted.affinity, where)
    keys = {
        group: (distance, shelf.groups[group].cost)
        for group in set(groups).intersection(demand.serving)
        if (distance := far(shelf.groups[group].node)) is not None
    }
    places = [place for place, group in enumerate(groups) if group in keys]
    return sorted(places, key=lambda place: keys[groups[place]])


def with_devices(
    shelf: Devices, amount: PCIAmount, ours: Iterable[tuple[int, Device]]
) -> PCIAmount:
    """Return an amount that says which devices it has, by request."""
    placed = (
        PlacedDevice._construct(
            request=request,
            address=device.address,
            resource_class=device.resource_class,
            numa_node=device.numa_node,
            parts=shelf.parts_of(device.address) if device.type == PF else (),
        )
        for request, device in ours
    )
    return amount._evolve(placed=tuple(placed), gives_back=False)


# --- an amount laid over device groups ------------------------------------------------------------


class DeviceDemand(NamedTuple):
    """What one request needs of the shelf."""

    request: int  #: its place in the amount
    wanted: DeviceRequest
    needed: int  #: how many devices
    serving: tuple[int, ...]  #: groups of which it may have some, wherever they are


#: In the place of a request: devices that a limit leaves free are demanded by nobody.
_NOBODY = -1
#: How near they have to be.
_ANYWHERE = DeviceRequest([DeviceSpec()], affinity=PREFERRED)


class DeviceProblem(NamedTuple):
    """Demands laid over a shelf; groups are by their number."""

    shelf: DeviceGroups
    demands: Sequence[DeviceDemand]
    free: Mapping[int, Sequence[Any]]  #: devices that may be had, by group
    may: Sequence[Sequence[int]]  #: the groups of each demand, the best first
    within: Collection[str] | None = None  #: addresses that may be used, None for all

    @property
    def counts(self) -> list[int]:
        """How many devices each demand asks for."""
        return [demand.needed for demand in self.demands]


def demands_of(shelf: DeviceGroups, amount: PCIAmount) -> list[DeviceDemand]:
    """Return the demands of an amount: one for each request, or each provider that it names."""
    found: list[DeviceDemand] = []
    for place, request in enumerate(amount.requests):
        if not request.providers:
            found.append(DeviceDemand(place, request, request.count, shelf.serving(request)))
            continue
        for provider, count in sorted(Counter(request.providers).items()):
            found.append(DeviceDemand(place, request, count, shelf.serving(request, provider)))
    return found


def lay(
    shelf: DeviceGroups,
    demands: Sequence[DeviceDemand],
    where: ChosenCells | None,
    within: Collection[str] | None = None,
) -> DeviceProblem:
    """Return demands laid over a shelf; what a limit leaves free of it is demanded too, last.

    :param where: the host cells there are, and those that are chosen; None if nobody asks for any
    :param within: addresses that may be used, None for all
    """
    bounds = shelf.bounds()
    if bounds:
        return _lay_bounded(shelf, demands, where, within, bounds)
    return _lay(shelf, demands, where, within, within)


def _lay_bounded(
    shelf: DeviceGroups,
    demands: Sequence[DeviceDemand],
    where: ChosenCells | None,
    within: Collection[str] | None,
    bounds: Sequence[Bound],
) -> DeviceProblem:
    """Return demands laid over a shelf under limits.

    Where none of some devices may be taken they are not there; else nobody demands so many of them
    as have to stay free, and so has those that are of least use to the others.
    """
    every = {address for some in shelf.free for address in some}
    usable = every if within is None else every.intersection(within)
    found = list(demands)
    for bound in bounds:
        if bound.most <= 0:
            usable = usable - bound.free
        elif bound.most < len(bound.free) and not usable.isdisjoint(bound.free):
            groups = [n for n, free in enumerate(shelf.free) if not bound.free.isdisjoint(free)]
            spare = len(bound.free) - bound.most  # so many have to stay free, whichever
            found.append(DeviceDemand(_NOBODY, _ANYWHERE, spare, tuple(groups)))
    return _lay(shelf, found, where, usable, within)


def _lay(
    shelf: DeviceGroups,
    demands: Sequence[DeviceDemand],
    where: ChosenCells | None,
    usable: Collection[str] | None,
    within: Collection[str] | None,
) -> DeviceProblem:
    wanted = {group for demand in demands for group in demand.serving}
    free: dict[int, Sequence[Any]] = {group: shelf.free[group] for group in wanted}
    if usable is not None:
        free = {
            group: [address for address in some if address in usable]
            for group, some in free.items()
        }
    may = [_ranked(shelf, demand, free, where) for demand in demands]
    return DeviceProblem(shelf, demands, free, may, within)


def _ranked(
    shelf: DeviceGroups,
    demand: DeviceDemand,
    free: Mapping[int, Sequence[Any]],
    where: ChosenCells | None,
) -> list[int]:
    """Return the groups of a demand that have a device near enough, the best first.

    By ring and distance (:mod:`.near`), then plain devices before those with tags, then those that
    break no physical function that is whole, then the group with the fewest that will do, else the
    one with the most, so that the fewest functions are broken; then by address.
    """
    far = rings(demand.wanted.affinity, where)
    keyed: list[tuple[Any, ...]] = []
    for group in demand.serving:
        some = free[group]
        if not some:
            continue
        distance = far(shelf.groups[group].node)
        if distance is not None:
            cost = shelf.groups[group].cost
            keyed.append(
                (distance, cost, *_breaks(shelf, group, len(some), demand.needed), some[0], group)
            )
    if len(keyed) > 1:
        keyed.sort()
    return [key[-1] for key in keyed]


def _breaks(shelf: DeviceGroups, group: int, count: int, wanted: int) -> tuple[int, int, int]:
    """Return what it breaks to take devices of a group, to sort by."""
    whole = shelf.whole.get(group)
    if whole is not None:
        if not shelf.free[whole]:
            return 0, 0, 0
        return (1, 0, count) if count >= wanted else (1, 1, -count)
    parts = shelf.parts.get(group)
    if parts is None:
        return 0, 0, 0
    return 1, 0, sum(len(shelf.free[part]) for part in parts)


# --- which demand has what where functions exclude each other -------------------------------------


#: A way is looked at by a flow, which costs as many steps as it has so many edges.
_EDGES_OF_A_STEP = 256

#: What each demand has, by group.
Given = Sequence[dict[int, int]]


def divide(problem: DeviceProblem, budget: Budget | None = None) -> Given | None:
    """Return how many of which group each demand has, None if they cannot be met at once.

    A physical function and those split off it exclude each other. Where no request could have a
    function whole while another could have parts of it, that does not matter, and this is a flow
    (:class:`Flow`): polynomial. Where both are asked for, it is hard in general (which functions
    stay whole is a packing), and decided exactly within a budget:

    1. every demand in turn takes its best; that mostly does;
    2. else demands are met as if nothing excluded anything, which is necessary: if that is
       impossible, the answer is no;
    3. a function that is taken whole and in parts is decided, parts first, so that few are given
       away whole. Functions with one symmetry key stand for each other: of these the first ones
       are taken whole. So there are as many ways as counts by kind of function: polynomial for any
       fixed number of kinds.

    :raises SearchLimitReached: if the budget ran out before it was known
    """
    found = _best_first(problem)
    if found is not None:
        return found
    conflicts = list(_conflicts(problem))
    if not conflicts:
        flow = relaxed(problem)
        return flow.given if flow.is_complete else None
    return _exactly(problem, conflicts, budget or Budget(DECISION))


def relaxed(problem: DeviceProblem) -> Flow:
    """Return demands met as far as possible, as if no device excluded another."""
    capacity = {group: len(some) for group, some in problem.free.items()}
    return Flow(problem.counts, problem.may, capacity)


def _best_first(problem: DeviceProblem) -> Given | None:
    """Let every demand in turn take its best; None if one is left short."""
    whole, parts = problem.shelf.whole, problem.shelf.parts
    taken: dict[int, int] = {}
    given: list[dict[int, int]] = []
    for demand, may in zip(problem.demands, problem.may, strict=True):
        missing = demand.needed
        has: dict[int, int] = {}
        for group in may:
            count = min(missing, len(problem.free[group]) - taken.get(group, 0))
            if count <= 0 or taken.get(whole.get(group, -1)):
                continue  # none is left, or the function that it was split off is taken whole
            if any(taken.get(part) for part in parts.get(group, ())):
                continue
            has[group] = count
            taken[group] = taken.get(group, 0) + count
            missing -= count
            if not missing:
                break
        if missing:
            return None
        given.append(has)
    return given


def _conflicts(problem: DeviceProblem) -> Iterator[int]:
    """Yield the functions that may be had whole by one demand and in parts by another."""
    wanted = {group for may in problem.may for group in may}
    for group, parts in problem.shelf.parts.items():
        if group in wanted and any(part in wanted for part in parts):
            yield group


#: Functions that are taken whole alone, and those that are taken in parts alone.
_Decided: TypeAlias = tuple[frozenset[int], frozenset[int]]


def _exactly(problem: DeviceProblem, conflicts: Sequence[int], budget: Budget) -> Given | None:
    shelf = problem.shelf
    alike: dict[Hashable, list[int]] = {}
    for group in conflicts:
        alike.setdefault(_kind(problem, group), []).append(group)
    mates = {group: same for same in alike.values() for group in same}
    free = {group: len(some) for group, some in problem.free.items()}

    def following(decided: _Decided) -> Iterator[_Decided | Solution[Given]]:
        whole, split = decided
        capacity = {**free, **dict.fromkeys(split, 0)}
        capacity.update((part, 0) for group in whole for part in shelf.parts[group])
        flow = Flow(problem.counts, problem.may, capacity)
        if not flow.is_complete:
            return  # as if the others excluded nothing: what does not fit so never does
        taken = {group for has in flow.given for group in has}
        both = [g for g in conflicts if g in taken and taken.intersection(shelf.parts[g])]
        if not both:
            yield Solution(flow.given)
            return
        open_ = [g for g in mates[both[0]] if g not in whole and g not in split]
        yield whole, split.union(open_)  # parts first, so that few are given away whole
        yield whole | {open_[0]}, split

    each = 1 + sum(map(len, problem.may)) // _EDGES_OF_A_STEP
    start = frozenset[int](), frozenset[int]()
    return next(solutions(start, following, budget, cost=each), None)


def _kind(problem: DeviceProblem, group: int) -> Hashable:
    """Return what functions have in common that can stand for each other."""
    shelf = problem.shelf

    def seen(number: int) -> tuple[Hashable, ...]:
        served = tuple(n for n, may in enumerate(problem.may) if number in may)
        return (len(problem.free.get(number, ())), served)

    return (seen(group), tuple(sorted(map(seen, shelf.parts[group]))))


# --- demands met from groups, polynomial and complete ---------------------------------------------


class Flow:
    """Demands met from groups, as far as that is possible.

    A demand asks for a number of devices, each of any of some groups; a group has a number of them.
    Where taking the best first does not do, devices are passed on along the shortest chain of
    demands that can do with others (Ford and Fulkerson; Edmonds and Karp).

    ``given[d][g]`` is how many of group ``g`` demand ``d`` has.

    >>> Flow([1, 3], [[0, 1], [1]], {0: 1, 1: 3}).given
    [{0: 1}, {1: 3}]
    >>> Flow([1, 3], [[1, 0], [1]], {0: 1, 1: 3}).given    # the first has to take what is left
    [{0: 1}, {1: 3}]
    """

    def __init__(
        self, counts: Sequence[int], may: Sequence[Sequence[int]], capacity: Mapping[int, int]
    ) -> None:
        """Meet demands.

        :param counts: how many each asks for
        :param may: the groups of each, the best first
        :param capacity: how many there are of each group
        """
        self._may = may
        self._spare = dict(capacity)
        self._holders: dict[int, set[int]] = defaultdict(set)  #: demands, by group
        self.given: list[dict[int, int]] = [{} for _ in counts]
        self.missing = list(counts)
        for demand in range(len(counts)):
            self._take_first(demand)
            while self.missing[demand] and self._pass_on(demand):
                pass

    @property
    def is_complete(self) -> bool:
        """Whether every demand is met."""
        return not any(self.missing)

    def _take_first(self, demand: int) -> None:
        for group in self._may[demand]:
            if not self.missing[demand]:
                return
            count = min(self.missing[demand], self._spare.get(group, 0))
            if count > 0:
                self._move(demand, group, count)
                self._spare[group] -= count
                self.missing[demand] -= count

    def _pass_on(self, start: int) -> bool:
        """Let others do with something else, along a shortest chain; return whether they can."""
        came: dict[int, tuple[int, int]] = {}  # demand: (the one before it, the group it gives up)
        seen: set[int] = set()
        waiting = deque([start])
        while waiting:
            demand = waiting.popleft()
            for group in self._may[demand]:
                if group in seen:
                    continue
                if self._spare.get(group, 0) > 0:
                    self._along(start, demand, group, came)
                    return True
                seen.add(group)
                for other in sorted(self._holders[group]):  # a set has no order to rely on
                    if other != start and other not in came:
                        came[other] = demand, group
                        waiting.append(other)
        return False

    def _along(
        self, start: int, demand: int, group: int, came: Mapping[int, tuple[int, int]]
    ) -> None:
        count, at = min(self.missing[start], self._spare[group]), demand
        while at != start:
            before, given_up = came[at]
            count, at = min(count, self.given[at][given_up]), before
        self._spare[group] -= count
        self.missing[start] -= count
        self._move(demand, group, count)
        while demand != start:
            before, given_up = came[demand]
            self._move(demand, given_up, -count)
            self._move(before, given_up, count)
            demand = before

    def _move(self, demand: int, group: int, count: int) -> None:
        has = self.given[demand]
        has[group] = has.get(group, 0) + count
        if has[group]:
            self._holders[group].add(demand)
        else:
            del has[group]
            self._holders[group].discard(demand)

    def short(self) -> list[frozenset[int]]:
        """Return sets of demands that are short together: only more for one of them could help.

        One for each that is not met: itself, and those who have what it could use (a violator of
        Hall's condition); none if all are met.
        """
        return [self._beside(demand) for demand, count in enumerate(self.missing) if count]

    def _beside(self, start: int) -> frozenset[int]:
        found = {start}
        waiting = [start]
        while waiting:
            for group in self._may[waiting.pop()]:
                waiting += self._holders[group] - found
                found |= self._holders[group]
        return frozenset(found)


# --- how near devices are to host cells -----------------------------------------------------------


#: A device that is nowhere near: farther than any distance.
_FAR = 1 << 32


def rings(
    affinity: str, where: ChosenCells | None
) -> Callable[[int | None], tuple[int, int] | None]:
    """Return what says how far a device of a node is: (ring, distance), None for too far.

    ================  ==============================================================================
    ``required``      devices of the chosen host cells alone
    ``legacy``        these, then devices of which the firmware does not say where they are
    ``preferred``     these, then devices of which it does not say, then any, the nearest first
    ``socket``        these, then devices of other cells in the same sockets; if the socket of any
                      host cell is not known, these alone
    ================  ==============================================================================

    Where no cells are asked for, any device will do. A wider ring is only used for what the
    narrower ones do not have, device by device. Source: Nova's ``hw:pci_numa_affinity_policy``,
    which widens for a whole request at once.
    """
    if where is None:
        return lambda node: (0, 0)
    chosen = where.ids

    def required(node: int | None) -> tuple[int, int] | None:
        return (0, 0) if node in chosen else None

    def legacy(node: int | None) -> tuple[int, int] | None:
        return (1, 0) if node is None else required(node)

    def preferred(node: int | None) -> tuple[int, int]:
        return legacy(node) or (2, _distance(where, node))

    def socket(node: int | None) -> tuple[int, int] | None:
        beside = node is not None and where.cells.sockets.get(node) in where.sockets
        return required(node) or ((1, _distance(where, node)) if beside else None)

    found: Mapping[str, Callable[[int | None], tuple[int, int] | None]] = {
        REQUIRED: required,
        LEGACY: legacy,
        PREFERRED: preferred,
        SOCKET: socket,
    }
    return found[affinity]


def _distance(where: ChosenCells, node: int | None) -> int:
    """Return the distance from the nearest chosen cell."""
    table = where.cells.distances
    return min((table.get(cell, {}).get(node, _FAR) for cell in where.ids), default=_FAR)  # type: ignore[arg-type]  # None is in no table


# --- why devices cannot be had --------------------------------------------------------------------


#: What the reasons are about, where requests do not say a class.
ANY_CLASS = "DEVICES"


def reasons(problem: DeviceProblem, where: ChosenCells | None) -> tuple[Reason, ...]:
    """Return what stands against an amount that cannot be met."""
    asked = [demand for demand in problem.demands if demand.request != _NOBODY]
    found = [reason for demand in asked for reason in _alone(problem, demand, where)]
    found = found or list(_beyond_limits(problem, asked))
    if found:
        return tuple(dict.fromkeys(found))
    flow = relaxed(problem)
    requested = sum(demand.needed for demand in asked)
    most = requested - sum(flow.missing) - flow.is_complete
    at_once = Reason(Rule.AT_ONCE, requested, most, 0, ANY_CLASS)
    return (at_once, *_limits_between(problem, asked, where))


def _limits_between(
    problem: DeviceProblem, asked: Sequence[DeviceDemand], where: ChosenCells | None
) -> Iterator[Reason]:
    """Yield the limits without which requests could have their devices at once, if that is so.

    Those of what one of them could have, or would use up with a function that it has whole.
    """
    shelf = problem.shelf
    bounds = [one for one in shelf.bounds() if not one.is_shared]
    if not bounds:
        return
    try:
        unlimited = divide(_lay(shelf, asked, where, problem.within, problem.within))
    except exceptions.SearchLimitReached:  # nobody knows; what is told already is true
        return
    if unlimited is None:
        return
    for bound in bounds:
        wanted = sum(_wanted(problem, demand, bound) for demand in asked)
        needed = min(wanted, len(bound.free))
        if needed > max(0, bound.most):
            yield Reason(Rule.LIMIT, needed, bound.limit, bound.used, bound.resource_class)


def _wanted(problem: DeviceProblem, demand: DeviceDemand, bound: Bound) -> int:
    shelf = problem.shelf
    if any(not bound.free.isdisjoint(_free(problem, group)) for group in demand.serving):
        return demand.needed
    parts = (part for group in demand.serving for part in shelf.parts.get(group, ()))
    return sum(bound.open_of(_free(problem, part)) for part in parts)


def _beyond_limits(problem: DeviceProblem, asked: Iterable[DeviceDemand]) -> Iterator[Reason]:
    """Yield limits on devices of which requests that can do with no others ask for too many."""
    for bound in problem.shelf.bounds():
        needed = sum(
            demand.needed
            for demand in asked
            if all(bound.free.issuperset(_free(problem, group)) for group in demand.serving)
        )
        if needed > max(0, bound.most):
            yield Reason(Rule.LIMIT, needed, bound.limit, bound.used, bound.resource_class)


def _alone(
    problem: DeviceProblem, demand: DeviceDemand, where: ChosenCells | None
) -> Iterator[Reason]:
    """Yield what stands against one request, if it were alone."""
    name = demand.wanted.resource_class or ANY_CLASS
    kind: str | None = demand.wanted.kinds
    kind = None if kind == name else kind
    shelf = problem.shelf
    if not any(map(shelf.size, demand.serving)):
        yield Reason(Rule.NO_INVENTORY, demand.needed, 0, 0, name, unit=kind)
        return
    free = [one for group in demand.serving for one in _free(problem, group)]
    tight = [(bound, bound.open_of(free)) for bound in shelf.bounds()]
    tight = [(bound, some) for bound, some in tight if some > max(0, bound.most)]
    left = len(free) - sum(some - max(0, bound.most) for bound, some in tight)
    if left < demand.needed:
        limits = [(bound, some) for bound, some in tight if not bound.is_shared]
        every = shelf.usable(demand.serving, problem.within)
        if limits:
            lost = sum(some - max(0, bound.most) for bound, some in tight if bound.is_shared)
            yield from _limits(problem, demand, limits, (every - lost, every - len(free)), kind)
        else:
            yield Reason(Rule.CAPACITY, demand.needed, every, every - left, name, unit=kind)
        return
    far = rings(demand.wanted.affinity, where)
    near = sum(
        len(problem.free[group])
        for group in demand.serving
        if far(shelf.groups[group].node) is not None
    )
    if near < demand.needed:
        yield Reason(Rule.AFFINITY, demand.needed, near, 0, name, unit=kind)


def _limits(
    problem: DeviceProblem,
    demand: DeviceDemand,
    limits: Iterable[tuple[Bound, int]],
    figures: tuple[int, int],
    kind: str | None,
) -> Iterator[Reason]:
    """Yield the limits that leave too few devices, by class, with all that they bind.

    :param limits: each with how many it binds of those that are free and would do
    :param figures: how many devices would do, but for those that a limit of what they use up holds
        back, and how many are used
    """
    by_class: dict[str, tuple[int, int]] = {}
    for bound, some in limits:
        name, own, open_ = bound.resource_class, 0, 0
        most, used = by_class.get(name, (0, 0))
        if demand.wanted.resource_class == name:  # the others of the class are told with it
            most, used = by_class.get(name, figures)
            usable = problem.within
            every = bound.every if usable is None else bound.every.intersection(usable)
            own, open_ = problem.shelf.usable(demand.serving, every), some
        by_class[name] = most + bound.limit - own, used + bound.used - (own - open_)
    for name, (most, used) in by_class.items():
        yield Reason(Rule.LIMIT, demand.needed, most, used, name, unit=kind)


def _free(problem: DeviceProblem, group: int) -> Sequence[Any]:
    some, within = problem.shelf.free[group], problem.within
    return some if within is None else [one for one in some if one in within]
