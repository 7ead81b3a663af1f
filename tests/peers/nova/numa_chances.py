"""Random pairs of a guest cell and a host cell, a number each."""

from __future__ import annotations

import random

from tests.peers.nova.numa_sides import Case, Guest, Host, Pool, cores

BASE, TWO_MB, ONE_GB = 4, 2048, 1048576

_RATIOS = ["1", "1", "1", "1", "2", "2", "16", "0.5", "1.15"]
_POLICIES = [None, "prefer", "require", "require", "isolate", "isolate"]
_SIZES = ["small", "large", "any", str(BASE), str(TWO_MB), str(ONE_GB)]

#: Where another guest cell goes, for the first host cell is far too small for it.
ROOMY = Host(
    id=1,
    shared=frozenset(range(1000, 1100)),
    dedicated=frozenset(range(2000, 2100)),
    siblings=cores(range(1000, 1100), 2) + cores(range(2000, 2100), 2),
)
LARGE = Guest(shared=30, dedicated=30)


def once_in(chance: random.Random, count: int) -> bool:
    """Return True once in so many times."""
    return chance.randrange(count) == 0


def host_cell(chance: random.Random) -> Host:
    """Return a host cell as libvirt's driver makes them, and now and then a stranger one."""
    threads = chance.choice([1, 2, 2, 2, 3, 4])
    cpus = list(range(chance.randint(1, 6) * threads))
    siblings = list(cores(cpus, threads))
    if once_in(chance, 4) and threads > 1:  # hybrid: the threads of some core are cores
        siblings[-1:] = [frozenset({cpu}) for cpu in sorted(siblings[-1])]
    shared, dedicated = _sets(chance, siblings)
    if once_in(chance, 20):
        siblings = chance.choice([[], siblings[:1]])
    pools = _pools(chance)
    memory = sum(pool.mb for pool in pools) or chance.choice([0, 100, 1024])
    ordinary = pools[0].mb if pools else memory
    return Host(
        shared=shared,
        dedicated=dedicated,
        siblings=tuple(siblings),
        memory_mb=memory,
        pools=tuple(pools),
        shared_used=chance.choice([0, 0, 0, 0, 1, 2, len(shared)]),
        pinned=frozenset(cpu for cpu in sorted(dedicated) if once_in(chance, 4)),
        used_mb=chance.choice([0, 0, 0, 0, 15, ordinary // 2, ordinary]),
    )


def _sets(
    chance: random.Random, siblings: list[frozenset[int]]
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the shared and the dedicated CPUs: all of them both, or some of each."""
    every = frozenset().union(*siblings)
    if once_in(chance, 3):
        return every, every
    if once_in(chance, 2):  # whole cores go to one set
        shared = frozenset().union(*(core for core in siblings if once_in(chance, 2)))
    else:
        shared = frozenset(cpu for cpu in sorted(every) if once_in(chance, 2))
    kept = {0} if once_in(chance, 10) else set()  # by the host for itself
    return shared - kept, every - shared - kept


def _pools(chance: random.Random) -> list[Pool]:
    """Return pages of up to three sizes, or none."""
    if once_in(chance, 4):
        return []
    size = chance.choice([BASE, BASE, BASE, 64])
    ordinary, reserved = chance.choice([100, 512, 1024]), chance.choice([0, 0, 0, 64])
    pools = [Pool(size, ordinary * 1024 // size, reserved * 1024 // size)]
    for size, most in ((TWO_MB, 512), (ONE_GB, 2)):
        if once_in(chance, 2):
            total = chance.randint(0, most)
            reserved = chance.randint(0, total) if once_in(chance, 3) else 0
            used = chance.randint(0, total - reserved) if once_in(chance, 3) else 0
            pools.append(Pool(size, total, reserved, used))
    return pools


def pair(number: int) -> Case:
    """Return a guest cell and a host cell, figures of the one near to those of the other."""
    chance = random.Random(number)
    host = host_cell(chance)
    free = len(host.dedicated - host.pinned)
    policy = chance.choice(_policies(chance, free, len(host.shared)))
    has_threads = policy != "shared"
    threads = chance.choice(_POLICIES) if has_threads else None
    most = free // host.threads if threads == "isolate" else free
    return Case(
        (host,),
        (
            Guest(
                shared=0 if policy == "dedicated" else _near(chance, len(host.shared)),
                dedicated=_near(chance, most) if has_threads else 0,
                memory_mb=_memory(chance, host),
            ),
        ),
        page_size="" if once_in(chance, 2) else _size(chance, host),
        thread_policy=threads,
        has_emulator=has_threads and once_in(chance, 4),
        cpu_ratio=chance.choice(_RATIOS),
        memory_ratio=chance.choice(_RATIOS),
    )


def _policies(chance: random.Random, dedicated: int, shared: int) -> list[str]:
    """Return CPU policies, mostly those that a host cell has CPUs for."""
    if once_in(chance, 10) or not dedicated + shared:
        return ["shared", "dedicated", "mixed"]
    found = ["dedicated"] * bool(dedicated) + ["shared"] * bool(shared)
    return found + ["mixed"] * (len(found) == 2)


def lone_share(number: int) -> Case:
    """Return a pair whose guest cell has no dedicated vCPU, in a request that has some."""
    chance = random.Random(number)
    host = host_cell(chance)
    return Case(
        (host, ROOMY),
        (Guest(_near(chance, len(host.shared)), 0, _memory(chance, host)), LARGE),
        thread_policy=chance.choice(_POLICIES),
        has_emulator=once_in(chance, 2),
        memory_ratio=chance.choice(_RATIOS),
    )


def _near(chance: random.Random, figure: int) -> int:
    """Return a count of vCPUs up to what there is, seldom one more."""
    most = max(1, figure)
    return figure + 1 if once_in(chance, 10) else chance.choice([most, chance.randint(1, most)])


def _size(chance: random.Random, host: Host) -> str:
    """Return a page size, mostly one that the host cell may have."""
    if once_in(chance, 4):
        return chance.choice(_SIZES)
    if not host.pools:
        return ""
    return chance.choice(["small", "any", "large", *(str(pool.size_kib) for pool in host.pools)])


def _memory(chance: random.Random, host: Host) -> int:
    """Return MiB near to what is free of some size, seldom nothing."""
    if once_in(chance, 40):
        return 0
    ordinary = host.pools[0].mb if host.pools else host.memory_mb
    left = ordinary - host.used_mb
    huge = [pool.size_kib // 1024 for pool in host.pools[1:]]
    return max(1, chance.choice([2, 2, min(64, left), left, *huge, *huge, 3, ordinary]))
