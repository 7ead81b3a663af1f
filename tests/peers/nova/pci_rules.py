"""The rules by which devices are had, restated, with nova's deviations as switches.

Without a deviation the answer is ours: everything is tried. With all of them it is nova's: of its
scheduler, which knows pools (:data:`~.pci_deviations.SCHEDULER`), or of its host, which knows
devices (:data:`~.pci_deviations.HOST`). So every difference between nova and us is one that has a
name there.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from resource_objects.resources.pci import Device, DeviceRequest, DeviceSpec
from tests.peers.nova.pci_deviations import Deviation, Pool, pools_of
from tests.peers.nova.pci_sides import ERROR, NO, YES, Case, Consumed


def answer(case: Case, does: Collection[Deviation]) -> str:
    """Return whether the requests can be met, by the rules with some deviations."""
    return consumed(case, does).said


def consumed(case: Case, does: Collection[Deviation]) -> Consumed:
    """Return the same, with what is in nova's pools afterwards where it goes in order."""
    rules = _Rules(case, does)
    return rules.in_order() if Deviation.IN_ORDER in does else rules.at_once()


def told_by(case: Case, theirs: Collection[Deviation]) -> tuple[Deviation, ...]:
    """Return the fewest deviations that make our answer nova's; none where they are the same."""
    said = answer(case, theirs)
    ordered = [one for one in Deviation if one in theirs]
    for count in range(len(ordered) + 1):
        for some in itertools.combinations(ordered, count):
            if answer(case, some) == said:
                return some
    raise AssertionError("all of them together are nova's")


class _Rules:
    def __init__(self, case: Case, does: Collection[Deviation]) -> None:
        self.case, self.does = case, does
        by_class = Deviation.CLASS_UNSEEN not in does
        self.pools = pools_of(case.devices, by_class=by_class)
        self.taken: list[tuple[int, Device]] = []

    # --- which devices would do ---

    def matches(self, request: DeviceRequest, device: Device, *, early: bool = False) -> bool:
        """Return whether a device would do.

        :param early: as far as nova has looked when it asks where devices are
        """
        for spec in request.specs:
            if not self._is_of(spec, device):
                continue
            opened = request.specs if Deviation.TYPES_FOR_ALL in self.does else (spec,)
            if early or self._is_open(opened, device):
                return True
        return False

    def _is_of(self, spec: DeviceSpec, device: Device) -> bool:
        ids = (spec.vendor_id, device.vendor_id), (spec.product_id, device.product_id)
        if any(asked is not None and asked != has for asked, has in ids):
            return False
        if Deviation.CLASS_UNSEEN not in self.does:
            is_same = spec.resource_class in (None, device.resource_class)
            if not is_same or not spec.traits <= device.traits:
                return False
        if spec.types and device.type not in spec.types:
            return False
        if spec.remote_managed and not device.remote_managed:
            return False
        if spec.live_migratable is not None and spec.live_migratable != device.live_migratable:
            return False
        return all(self._has(device.tags.get(name), value) for name, value in spec.tags.items())

    def _has(self, has: str | None, asked: str) -> bool:
        if has is None or has.lower() == asked.lower():
            return has is not None or asked == "null"
        if Deviation.LISTS_ARE_TEXT in self.does or not (has[0] == asked[0] == "["):
            return False
        return set(json.loads(asked.lower())) <= set(json.loads(has.lower()))

    def _is_open(self, specs: Sequence[DeviceSpec], device: Device) -> bool:
        """Return whether what nobody gets unasked is asked for."""
        if device.remote_managed and not any(spec.remote_managed for spec in specs):
            return False
        if device.type in ("type-PCI", "type-VF"):
            return True
        return any(device.type in spec.types or self._is_open_by_class(spec) for spec in specs)

    def _is_open_by_class(self, spec: DeviceSpec) -> bool:
        opens_nothing = Deviation.CLASS_OPENS_NOTHING in self.does
        return not opens_nothing and spec.resource_class is not None and not spec.types

    # --- which are near enough ---

    def usable(self, request: DeviceRequest, pools: Sequence[Pool]) -> list[Pool]:
        """Return the pools of which a request may have devices, the best first."""
        early = [pool for pool in pools if self.matches(request, pool.kind, early=True)]
        wanted: set[str | None] = {*request.providers} or {pool.provider for pool in early}
        full = [
            pool for pool in early if self.matches(request, pool.kind) and pool.provider in wanted
        ]
        if self.case.chosen is None:
            return full
        rings = list(self._rings(request.affinity))
        for ring in rings[:-1]:
            enough = self._count(full, ring) >= request.count
            if enough and Deviation.NEAR_ALONE in self.does:
                return [pool for pool in full if pool.kind.numa_node in ring]
            seems = not enough and self._count(early, ring) >= request.count
            if seems and Deviation.NEAR_TOO_EARLY in self.does:
                return []
        return self._sorted(request, [p for p in full if p.kind.numa_node in rings[-1]], rings)

    def _count(self, pools: Sequence[Pool], ring: Collection[int | None]) -> int:
        return sum(pool.count for pool in pools if pool.kind.numa_node in ring)

    def _sorted(
        self,
        request: DeviceRequest,
        pools: Sequence[Pool],
        rings: Sequence[Collection[int | None]],
    ) -> list[Pool]:
        if Deviation.NEAR_ALONE not in self.does:
            return sorted(pools, key=lambda p: [p.kind.numa_node in r for r in rings].index(True))
        if request.affinity == "preferred":
            return sorted(pools, key=lambda pool: pool.kind.numa_node not in rings[1])
        return list(pools)

    def _rings(self, affinity: str) -> Iterator[Collection[int | None]]:
        """Yield the nodes of devices that are near enough, the narrowest first."""
        case = self.case
        near: set[int | None] = {*(case.chosen or ())}
        yield near
        if affinity == "socket":
            known = None not in case.sockets.values()
            sockets = {case.sockets.get(cell) for cell in case.chosen or ()}
            beside = {cell for cell, socket in case.sockets.items() if socket in sockets}
            yield near | (beside if known else set())
        if affinity in ("legacy", "preferred"):
            yield near | {None}
        if affinity == "preferred":
            yield near | {None} | {device.numa_node for device in case.devices}

    # --- everything is tried ---

    def at_once(self) -> Consumed:
        """Return whether there is any choice of devices for all requests."""
        wishes: list[tuple[int, list[Device], int]] = []
        for number, request in enumerate(self.case.requests):
            some = self.usable(request, self.pools)
            if request.providers:
                if self._is_split(request, some):
                    return Consumed(NO, (), frozenset())
                some = self._of_providers(request, some)
                for provider, count in self._shares(request, some).items():
                    own = [d for p in some if p.provider == provider for d in p.members]
                    wishes.append((number, own, count))
            else:
                wishes.append((number, [d for p in some for d in p.members], request.count))
        if self._has_choice(wishes, within=True):
            return Consumed(YES, (), frozenset())
        doubles = Deviation.EXCLUDED_COUNT in self.does and self._has_choice(wishes, within=False)
        return Consumed(ERROR if doubles else NO, (), frozenset())

    def _has_choice(
        self,
        wishes: Sequence[tuple[int, list[Device], int]],
        *,
        within: bool,
        gone: frozenset[str] = frozenset(),
    ) -> bool:
        """Return whether there is a choice.

        :param within: whether devices of one request exclude each other too
        """
        if not wishes:
            return True
        number, some, count = wishes[0]
        left = [device for device in some if device.address not in gone]
        for chosen in itertools.combinations(left, count):
            addresses = {device.address for device in chosen}
            excluded = self._excluded(chosen)
            if within and excluded & addresses:
                continue
            beside = excluded if within or not wishes[1:] or wishes[1][0] != number else set()
            if self._has_choice(wishes[1:], within=within, gone=gone | addresses | beside):
                return True
        return False

    def _excluded(self, chosen: Collection[Device]) -> set[str]:
        if Deviation.EXCLUSION_UNKNOWN in self.does:
            return set()
        return {one.address for device in chosen for one in self._relatives(device)}

    def _relatives(self, device: Device) -> Iterator[Device]:
        for other in self.case.devices:
            if device.address == other.parent or other.address == device.parent:
                yield other

    # --- providers ---

    def _is_split(self, request: DeviceRequest, some: Sequence[Pool]) -> bool:
        """Return whether nova finds a provider with several pools, where it looks."""
        if Deviation.ONE_POOL not in self.does:
            return False
        looked = self.pools
        if Deviation.EXCLUSION_UNKNOWN not in self.does:
            looked = self._of_providers(request, some)
        counts = Counter(pool.provider for pool in looked if pool.provider is not None)
        return max(counts.values(), default=0) > 1

    def _of_providers(self, request: DeviceRequest, some: Sequence[Pool]) -> list[Pool]:
        """Return the pools of the providers that have what is wanted of them."""
        wanted = Counter(request.providers)
        by_pool = Deviation.ONE_POOL in self.does
        found: list[Pool] = []
        for pool in some:
            mates = [pool] if by_pool else [one for one in some if one.provider == pool.provider]
            if sum(one.count for one in mates) >= wanted[pool.provider or ""]:
                found.append(pool)
        return found

    def _shares(self, request: DeviceRequest, some: Sequence[Pool]) -> Counter[str]:
        """Return how many each provider is to give; more than there are if one may not be short."""
        wanted = Counter(request.providers)
        there = {pool.provider for pool in some}
        if Deviation.PROVIDER_SHORT not in self.does:
            return wanted
        if sum(pool.count for pool in some) < request.count:
            return wanted + Counter({next(iter(wanted)): 1 << 16})
        return Counter({name: count for name, count in wanted.items() if name in there})

    # --- in order ---

    def in_order(self) -> Consumed:
        """Return what becomes of requests that take what they find, one after another."""
        for number, request in enumerate(self.case.requests):
            some = self.usable(request, self.pools)
            if request.providers:
                if sum(pool.count for pool in self._of_providers(request, some)) < request.count:
                    return self._failed()
                if self._is_split(request, some):
                    return self._left(NO)
                said = self._take_of_providers(number, request, some)
            else:
                said = self._take(number, some, request.count)
            if said == ERROR:
                return self._left(ERROR)
            if said == NO:
                return self._failed()
        return self._left(YES)

    def _take_of_providers(self, number: int, request: DeviceRequest, some: list[Pool]) -> str:
        some = self._of_providers(request, some)
        for provider, count in self._shares(request, some).items():
            own = [pool for pool in some if pool.provider == provider]
            said = self._take(number, own, count)
            if said != YES:
                return said
        return YES

    def _take(self, number: int, some: Sequence[Pool], count: int) -> str:
        if sum(pool.count for pool in some) < count:
            return NO
        for pool in some:
            if Deviation.EXCLUDED_COUNT not in self.does:
                pool.count = len(pool.members)
            now = min(count, pool.count)
            count -= now
            pool.count -= now
            for _ in range(now):
                if not pool.members:
                    return ERROR
                self._take_last(number, pool)
            if not count:
                return YES
        return NO

    def _take_last(self, number: int, pool: Pool) -> None:
        device = pool.members.pop()
        self.taken.append((number, device))
        if not pool.members and Deviation.EXCLUSION_UNKNOWN in self.does:
            self.pools.remove(pool)
        if Deviation.EXCLUSION_UNKNOWN not in self.does:
            for other in self._relatives(device):
                self._remove(other)

    def _remove(self, device: Device) -> None:
        for pool in list(self.pools):
            if device in pool.members:
                pool.members.remove(device)
                if pool.count > 1:
                    pool.count -= 1
                else:
                    self.pools.remove(pool)

    def _left(self, said: str) -> Consumed:
        free = frozenset(device.address for pool in self.pools for device in pool.members)
        taken = sorted((number, device.address) for number, device in self.taken)
        return Consumed(said, tuple(taken) if said == YES else (), free)

    def _failed(self) -> Consumed:
        """Return what is left once devices that were taken are put back, not their relatives."""
        left = self._left(NO)
        return left._replace(free=left.free | {device.address for _, device in self.taken})
