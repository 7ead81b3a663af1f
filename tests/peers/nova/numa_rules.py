"""The rules of one guest cell on one host cell, restated, with nova's deviations as switches.

Without a deviation the answer is ours, with all of them it is nova's. So every difference between
the two is one that has a name here, and nothing else differs.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Collection
from fractions import Fraction

from tests.peers.nova.numa_sides import Case, Guest, Host, Pool

YES, NO, ERROR = "yes", "no", "ValueError"


class Deviation(enum.Enum):
    """What nova does otherwise."""

    ISOLATE_WITH_SMT = "isolate never fits a host with SMT whose sets of CPUs are separate"
    ISOLATE_HYBRID = "isolate passes by cores that have fewer threads than the largest"
    EMULATOR_ON_HALF_A_CORE = "beside isolated vCPUs the emulator goes on a core that is half used"
    CPUS_WITHOUT_CORE = "a CPU that no sibling set names is not given; without any set: ValueError"
    RATIO_SKIPPED = "the RAM ratio is skipped for dedicated"
    RATIO_OF_ALL = "the RAM ratio bounds memory in pages of all sizes together"
    RATIO_IS_FLOAT = "ratios are floats"
    RESERVED_SERVES = "pages reserved for the host count for whoever shares"
    EITHER_WAY = "a pinned CPU still serves shared vCPUs, where a CPU serves either way"
    NOTHING_NEEDS_PAGES = "no memory needs pages of the size, and room, all the same"
    NO_VCPU_NEEDS_THREADS = "a guest cell without dedicated vCPUs of a mixed request needs threads"


NOVA = frozenset(Deviation)
OURS: frozenset[Deviation] = frozenset()


def answer(case: Case, deviations: Collection[Deviation], guest: int = 0, host: int = 0) -> str:
    """Return whether a guest cell fits a host cell, by the rules with some deviations."""
    return _Pair(case, case.guests[guest], case.hosts[host], guest == 0, deviations).answer()


def told_by(case: Case) -> tuple[Deviation, ...]:
    """Return the fewest deviations that make our answer nova's; none where they are the same."""
    theirs = answer(case, NOVA)
    for count in range(len(Deviation) + 1):
        for some in itertools.combinations(Deviation, count):
            if answer(case, some) == theirs:
                return some
    raise AssertionError("all of them together are nova's")


class _Pair:
    def __init__(
        self, case: Case, guest: Guest, host: Host, is_first: bool, does: Collection[Deviation]
    ) -> None:
        self.case, self.guest, self.host, self.does = case, guest, host, does
        self.emulator = int(case.has_emulator and is_first)
        self.dedicated = guest.dedicated + self.emulator
        self.free = host.dedicated - host.pinned

    def answer(self) -> str:
        fits, pool = self._memory()
        if not fits or not self._counts():
            return NO
        found = self._cores()
        if found != YES:
            return found
        return YES if self._vcpu_ratio() and self._memory_ratio(pool) else NO

    # --- memory ---

    def _asks_memory(self) -> bool:
        return bool(self.guest.memory_mb) or Deviation.NOTHING_NEEDS_PAGES in self.does

    def _memory(self) -> tuple[bool, Pool | None]:
        """Return whether there is physical memory, and of which pool it is."""
        host, asked = self.host, self.guest.memory_mb
        may_overcommit = self.case.policy == "shared" and not self.case.page_size
        if not self._asks_memory():
            return True, None
        if self.case.page_size:
            able = [pool for pool in self._wanted() if self._holds(pool, self._left(pool))]
            return bool(able), able[0] if able else None
        if not host.pools:
            return asked <= host.memory_mb - (0 if may_overcommit else host.used_mb), None
        smallest = host.pools[0]
        if not may_overcommit:
            return self._holds(smallest, self._left(smallest)), smallest
        serves_reserved = Deviation.RESERVED_SERVES in self.does
        left = smallest.total - (0 if serves_reserved else smallest.reserved)
        return self._holds(smallest, left), smallest

    def _wanted(self) -> tuple[Pool, ...]:
        """Return the pools that will do, in the order they are tried."""
        pools, size = self.host.pools, self.case.page_size
        words = {"small": pools[:1], "large": pools[:0:-1], "any": pools[::-1]}
        return words[size] if size in words else tuple(p for p in pools if str(p.size_kib) == size)

    def _left(self, pool: Pool) -> int:
        is_smallest = pool is self.host.pools[0]
        used = self.host.used_mb * 1024 // pool.size_kib if is_smallest else pool.used
        return pool.total - pool.reserved - used

    def _holds(self, pool: Pool, pages: int) -> bool:
        kib = self.guest.memory_mb * 1024
        return kib <= pages * pool.size_kib and kib % pool.size_kib == 0

    def _memory_ratio(self, pool: Pool | None) -> bool:
        host, asked = self.host, self.guest.memory_mb
        if self.case.policy == "dedicated" and Deviation.RATIO_SKIPPED in self.does:
            return True
        if not self._asks_memory():
            return True
        if Deviation.RATIO_OF_ALL in self.does:
            return self._within(host.all_used_mb + asked, host.memory_mb, self.case.memory_ratio)
        if pool is not None and pool is not host.pools[0]:
            return True
        ordinary = (
            host.memory_mb if pool is None else pool.mb - pool.reserved * pool.size_kib // 1024
        )
        return self._within(host.used_mb + asked, ordinary, self.case.memory_ratio)

    def _within(self, used: int, total: int, ratio: str) -> bool:
        if Deviation.RATIO_IS_FLOAT in self.does:
            return used <= total * float(ratio)
        return used <= total * Fraction(ratio)

    # --- CPUs ---

    def _counts(self) -> bool:
        if self.dedicated and self.dedicated > len(self.free):
            return False
        return self.guest.shared <= len(self.host.shared)

    def _asks_threads(self) -> bool:
        if self.case.policy == "shared":
            return False
        return bool(self.dedicated) or Deviation.NO_VCPU_NEEDS_THREADS in self.does

    def _cores(self) -> str:
        """Return whether the thread policy finds CPUs."""
        if not self._asks_threads():
            return YES
        cores = [core & self.free for core in self.host.siblings]
        if Deviation.CPUS_WITHOUT_CORE not in self.does:
            known = frozenset().union(*self.host.siblings)
            cores += [frozenset({cpu}) for cpu in self.free - known]
        elif not cores:
            return ERROR
        if Deviation.NO_VCPU_NEEDS_THREADS in self.does and self._has_no_pinning():
            return NO
        policies = {"isolate": self._isolate, "require": self._require}
        able = policies.get(self.case.thread_policy or "", self._prefer)
        return YES if able(cores) else NO

    def _has_no_pinning(self) -> bool:
        """Return whether nova finds no pinning because there is nothing to pin."""
        return not self.guest.dedicated and bool(
            self.emulator or self.case.thread_policy == "isolate"
        )

    def _isolate(self, cores: list[frozenset[int]]) -> bool:
        host = self.host
        is_separate = host.shared != host.dedicated
        if Deviation.ISOLATE_WITH_SMT in self.does and host.threads > 1 and is_separate:
            return False
        whole = len(self._whole(cores))
        if Deviation.EMULATOR_ON_HALF_A_CORE not in self.does:
            return self.dedicated <= whole
        used = sum(1 for core in cores if core)
        return self.guest.dedicated <= whole and self.dedicated <= used

    def _whole(self, cores: list[frozenset[int]]) -> list[frozenset[int]]:
        """Return the cores of which every thread is free, the smallest first."""
        if Deviation.ISOLATE_HYBRID in self.does:
            return [core for core in cores if len(core) == self.host.threads]
        whole = {core for core in self.host.siblings if core & self.host.dedicated}
        known = frozenset().union(*self.host.siblings)
        return sorted((c for c in cores if c and (c in whole or not c & known)), key=len)

    def _require(self, cores: list[frozenset[int]]) -> bool:
        count = self.guest.dedicated
        if not count and Deviation.NO_VCPU_NEEDS_THREADS not in self.does:
            return self._prefer(cores)
        levels = range(2, max(map(len, cores), default=1) + 1)
        able = [sum(1 for core in cores if len(core) >= level) for level in levels]
        fits = any(level * some >= count for level, some in zip(levels, able, strict=True))
        return fits and self._prefer(cores)

    def _prefer(self, cores: list[frozenset[int]]) -> bool:
        return sum(map(len, cores)) >= self.dedicated

    def _vcpu_ratio(self) -> bool:
        host, asked = self.host, self.guest.shared
        if Deviation.EITHER_WAY in self.does:
            is_asked = self.case.policy != "dedicated" and (
                asked or Deviation.NO_VCPU_NEEDS_THREADS in self.does
            )
            used, left = host.shared_used + asked, len(host.shared)
            return not is_asked or self._within(used, left, self.case.cpu_ratio)
        both = host.shared & host.dedicated
        taken = self._taken() if both else 0
        if not asked and not taken:
            return True
        left = len(host.shared - host.pinned) - taken
        if asked > left:
            return False
        return self._within(host.shared_used + asked, left, self.case.cpu_ratio)

    def _taken(self) -> int:
        """Return how many CPUs are taken; host cells serve either way with all CPUs, or none."""
        if self.case.thread_policy != "isolate":
            return self.dedicated
        cores = [core & self.free for core in self.host.siblings]
        known = frozenset().union(*self.host.siblings)
        cores += [frozenset({cpu}) for cpu in self.free - known]
        return sum(map(len, self._whole(cores)[: self.dedicated]))
