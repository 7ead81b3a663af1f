"""Fleets and requests that the benchmarks of candidates ask about, in Placement's words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import resource_objects as ro

LIMIT = 10
HAS = {"VCPU": 64, "MEMORY_MB": 262144, "DISK_GB": 2000}
ASKED = {"VCPU": 4, "MEMORY_MB": 8192, "DISK_GB": 40}
CLASSES = len(HAS)
TREES, GPUS = 1_000, 8
KINDS = ("CUSTOM_ONE", "CUSTOM_OTHER")
#: Seconds after which Placement is stopped.
PATIENCE = 10.0


class Case(NamedTuple):
    """A request of a fleet, what shall be found, and how fast."""

    name: str
    words: str
    under: float | None = None  #: milliseconds
    holds: bool = True
    capped: bool = True  #: whether Placement is also asked with its caps
    every: bool = False  #: whether each candidate is built, and its host and allocations are read
    times: float | None = None  #: at most so many times what Placement takes
    #: of a host with devices: how many, and of groups
    point: tuple[int, int] | None = None


class Fleet(NamedTuple):
    """Roots, and what is asked of them."""

    make: Callable[[], Iterable[ro.Provider]]
    cases: tuple[Case, ...]


# --- fleets ---------------------------------------------------------------------------------------


def flat(count: int) -> Iterator[ro.Provider]:
    """Yield hosts without anything below them."""
    for number in range(count):
        yield ro.Provider(f"host-{number:06}", HAS)


def trees(count: int) -> Iterator[ro.Provider]:
    """Yield hosts of eleven providers each: the root, two cells, four GPUs below each of these."""
    for number in range(count):
        name = f"host-{number:06}"
        root = ro.Provider(name, HAS)
        cells = [root.add(f"{name}/cell{cell}") for cell in range(2)]
        for gpu in range(GPUS):
            cells[gpu % 2].add(f"{name}/gpu{gpu}", "PGPU=1")
        yield root


def devices(count: int) -> Iterator[ro.Provider]:
    """Yield one host with so many equal devices."""
    yield _host({"PGPU": 1} for _ in range(count))


def stairs(count: int) -> Iterator[ro.Provider]:
    """Yield one host with so many devices of which no two are alike: each has one more."""
    yield _host({"PGPU": number + 1} for number in range(count))


def two_kinds(count: int) -> Iterator[ro.Provider]:
    """Yield one host with so many devices of each of two kinds."""
    root = _host({"PGPU": 1} for _ in range(2 * count))
    for number, device in enumerate(root.children):
        device.traits = [KINDS[number % 2]]
    yield root


def _host(has: Iterable[dict[str, int]]) -> ro.Provider:
    root = ro.Provider("host", HAS)
    for number, some in enumerate(has):
        root.add(f"host/device{number:03}", some)
    return root


# --- requests -------------------------------------------------------------------------------------


def words(*groups: tuple[int, str | None]) -> str:
    """Return a request of a host and of isolated groups: (GPUs of it, trait) each."""
    said = [f"resources={amounts()}"]
    for number, (count, trait) in enumerate(groups, 1):
        said.append(f"resources{number}=PGPU:{count}")
        said += [f"required{number}={trait}"] if trait else []
    said += ["group_policy=isolate"] if groups else []
    return "&".join([*said, f"limit={LIMIT}"])


def amounts() -> str:
    """Return what is asked of a host, in Placement's words."""
    return ",".join(f"{name}:{count}" for name, count in ASKED.items())


def equal(groups: int) -> str:
    """Return a request of so many groups of one GPU each."""
    return words(*[(1, None)] * groups)


def rising(count: int, groups: int, *, clash: bool = False) -> str:
    """Return a request of :func:`stairs` that fits in one way only: the largest devices, each.

    :param clash: two groups want the largest, and there is one
    """
    asked = list(range(count - groups + 1, count + 1))
    if clash:
        asked[0] = asked[-1]
    return words(*((each, None) for each in asked))


def of_kinds(one: int, other: int) -> str:
    """Return a request of so many GPUs of each kind, each in a group."""
    return words(*[(1, KINDS[0])] * one, *[(1, KINDS[1])] * other)


def _all_of_flat() -> Case:
    """Return the request of :func:`flat` that has a candidate for each host."""
    name = f"all 10,000 candidates of 10,000 providers of {CLASSES} classes"
    said = f"resources={amounts()}"
    return Case(name, said, capped=False, every=True, times=0.2)


def _alone(count: int, *groups: int, under: float | None = None) -> Iterator[Case]:
    for asked in groups:
        name = f"a host with {count} equal devices, {asked} isolated groups"
        yield Case(name, equal(asked), under, point=(count, asked))


#: What both sides are asked.
FLEETS = (
    Fleet(
        lambda: flat(10_000),
        (
            Case(f"10,000 providers of {CLASSES} classes", words(), 5, capped=False),
            _all_of_flat(),
        ),
    ),
    Fleet(
        lambda: trees(TREES),
        (Case(f"{TREES:,} trees of {GPUS + 3} providers, 2 isolated groups", equal(2), 5),),
    ),
    Fleet(lambda: devices(8), tuple(_alone(8, 2, 4, 5, 6, 7, 8, under=10))),
    Fleet(lambda: devices(16), tuple(_alone(16, 16))),
    Fleet(lambda: devices(32), tuple(_alone(32, 16, under=50))),
    Fleet(
        lambda: stairs(8),
        (
            Case("8 devices, no two alike, 8 isolated groups, in one way only", rising(8, 8)),
            Case(
                "8 devices, no two alike, 4 isolated groups, of which two want the largest",
                rising(8, 4, clash=True),
                holds=False,
            ),
        ),
    ),
    Fleet(
        lambda: two_kinds(10),
        (
            Case("10 + 10 devices of two kinds, 10 + 1 isolated groups", of_kinds(10, 1), 10),
            Case("11 + 1 groups, so impossible", of_kinds(11, 1), 10, holds=False),
        ),
    ),
)
