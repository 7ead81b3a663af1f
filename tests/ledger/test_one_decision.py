"""Search and claim agree on small hosts, and a refusal tells what stood in the way (laws 5, 6).

What stands in the way is what could be had without: limits, what is out of service, what others
hold. Each is left out of a case in turn, and the whole is asked again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.testing.refusals import is_one_of
from tests import conftest, databases
from tests.ledger.device_hosts import CARD, DEVICES, FUNCTION, TOPOLOGY, card, gpu
from tests.support.lengths import examples, some

GPU, TRAIT = "PGPU", "CUSTOM_FAST"
#: The buses of cards and of GPUs, both of cell 0 and cell 1.
CARDS, GPUS = (1, 2), (8, 9, 10)
#: Rules that compare what all consumers use with what there may be.
TOTALS = (Rule.CAPACITY, Rule.LIMIT)


@dataclasses.dataclass(frozen=True)
class Case:
    """A host, what is asked of it, and what may stand in the way."""

    cells: int
    functions: tuple[int, ...]  #: of each card
    gpus: int
    asked: str
    required: str | None = None
    held: tuple[str, ...] = ()
    out: tuple[str, ...] = ()  #: disabled providers below the host
    limits: tuple[tuple[str, str, int], ...] = ()

    def host(self, name: str) -> ro.Provider:
        """Return the host as it is told to a ledger."""
        own = (
            f"VCPU=8,MEMORY_MB={64 * self.cells},PCPU={4 * self.cells}" if self.cells else "VCPU=8"
        )
        made = ro.Provider(name, own)
        if self.cells:
            cells = [
                HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=64)
                for n in range(self.cells)
            ]
            made.add_parts(TOPOLOGY, NUMATopologyInventory(cells))
        devices: list[ro.Device] = []
        for number, functions in enumerate(self.functions):
            devices += card(CARDS[number], functions, node=self.node(number))
        for number in range(self.gpus):
            fast = {"traits": [TRAIT]} if number else {}
            devices.append(gpu(GPUS[number], self.node(number), **fast))
        if devices:
            made.add_parts(DEVICES, ro.PCIInventory(devices))
        return made

    def node(self, number: int) -> int | None:
        """Return the cell that a device is next to."""
        return number % self.cells if self.cells else None


def places_of(cells: int, functions: tuple[int, ...], gpus: int) -> dict[str, list[str]]:
    """Return the providers below a host, each with the addresses of its devices."""
    found: dict[str, list[str]] = {f"numa{n}": [] for n in range(cells)}
    for number, count in enumerate(functions):
        whole, *parts = card(CARDS[number], count)
        found[whole.address] = [whole.address, *(one.address for one in parts)]
    for number in range(gpus):
        found[gpu(GPUS[number]).address] = [gpu(GPUS[number]).address]
    return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return a case."""
    cells, gpus = draw(st.sampled_from([0, 0, 1, 2])), draw(st.integers(0, 3))
    functions = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    below = places_of(cells, functions, gpus)
    addresses = [unit for units in below.values() for unit in units]
    parts = [one for one in addresses if not one.endswith("00.0")] or ["0000:01:02.0"]
    asks = st.one_of(
        st.builds("{}={}".format, st.sampled_from([FUNCTION, GPU]), st.integers(1, 4)),
        st.just(f"{CARD}=1"),
        st.builds("DEVICES={}*{}".format, st.integers(1, 4), st.sampled_from([FUNCTION, GPU])),
        st.just(f"DEVICES={CARD}"),
        st.builds("DEVICES=address={}".format, st.sampled_from(parts)),
        st.builds("DEVICES=address={}/{}".format, st.sampled_from(parts), st.just(FUNCTION)),
        st.just(f"DEVICES={FUNCTION}/{CARD}"),
    )
    if cells:
        dedicated = st.builds("NUMA_TOPOLOGY=1:dedicated={}".format, st.integers(1, 5))
        near = st.builds("{},DEVICES={}".format, dedicated, st.sampled_from([FUNCTION, GPU]))
        asks = st.one_of(asks, dedicated, near)
    where = list(below)
    bound = [("", "PCPU" if cells else "VCPU"), *((f"numa{n}", "PCPU") for n in range(cells))]
    for name, units in below.items():
        bound += [
            (name, kind) for kind in ((FUNCTION, CARD) if len(units) > 1 else (GPU,)) if units
        ]
    limits = st.tuples(st.sampled_from(bound), st.integers(0, 4))
    asked = draw(asks)
    return Case(
        cells,
        functions,
        gpus,
        asked,
        TRAIT if asked.startswith(f"{GPU}=") and draw(st.booleans()) else None,
        tuple(draw(st.lists(asks, max_size=3))),
        tuple(draw(st.lists(st.sampled_from(where), unique=True, max_size=3))) if where else (),
        tuple((name, kind, total) for (name, kind), total in draw(st.lists(limits, max_size=2))),
    )


class Tried:
    """A case on a host of its own, asked of a search and, as far as it can be, of a claim."""

    def __init__(self, ledger: ro.Ledger, name: str, case: Case) -> None:
        self.ledger, self.name, self.case = ledger, name, case
        ledger.sync(case.host(name))
        for number, held in enumerate(case.held):
            found = ledger.snapshot(at=name).candidates(held)
            if found:
                ledger.claim(f"{name}-{number}", found)
        for where in case.out:
            ledger.disable(f"{name}/{where}", reason="broken")
        asked = ro.Request(case.asked, required=[case.required] if case.required else [])
        self.candidates = ledger.snapshot(at=name).candidates(asked, limits=self.limits)

    @property
    def limits(self) -> Mapping[str, str]:
        """The limits of the case; of two that say the same the tighter one."""
        found: dict[str, dict[str, int]] = {}
        for where, kind, total in self.case.limits:
            there = found.setdefault(f"{self.name}/{where}" if where else self.name, {})
            there[kind] = min(total, there.get(kind, total))
        return {
            name: ",".join(f"{kind}={total}" for kind, total in there.items())
            for name, there in found.items()
        }

    @property
    def is_placed(self) -> bool:
        """Whether a claim can be asked of the host, and is placed there."""
        return "=" in self.case.asked and self.case.asked.split("=")[0] in (DEVICES, TOPOLOGY)

    def refusal(self) -> exceptions.CapacityException | None:
        """Return why a claim of it is refused, None if it is not."""
        what = {self.name: self.case.asked}
        try:
            self.ledger.claim("job", what, limits=self.limits)
        except exceptions.CapacityException as refused:
            return refused
        self.ledger.release("job")
        return None

    def close(self) -> None:
        """Give back what is held."""
        for one in list(self.ledger.consumers(tree=self.name)):
            self.ledger.release(one.name)


def check_figures(reasons: tuple[Reason, ...]) -> None:
    """Check that a refusal says no by its figures, and names whoever has what is used."""
    assert reasons
    for reason in reasons:
        if reason.rule in TOTALS:
            assert reason.requested > reason.free, reason
            if reason.resource != CARD:  # of which others have the functions
                assert sum(amount for _, amount in reason.holders) == reason.used, reason


def _names(reason: Reason) -> bool:
    """Return whether a reason names somebody who holds something."""
    return bool(reason.holders or reason.parts)


#: What may stand in the way, and which rule tells it; None: whichever names holders.
BLAMED = {"limits": Rule.LIMIT, "out": Rule.DISABLED, "held": None}


def check(case: Case, ledger: ro.Ledger, numbers: Iterator[int]) -> None:
    """Check that search and claim agree of a case, and what they tell of a refusal."""

    def tried(changed: Case) -> Tried:
        return Tried(ledger, f"host-{next(numbers)}", changed)

    one = tried(case)
    for candidate in one.candidates:
        ledger.claim("job", candidate, limits=one.limits)
        ledger.release("job")
    told = [] if one.candidates else [one.candidates.explain().reasons]
    refused = one.refusal() if one.is_placed else None
    assert one.is_placed is False or (refused is None) == bool(one.candidates)
    told += [] if refused is None else [refused.reasons]
    if not told:
        return
    guilty = {
        name
        for name in BLAMED
        if getattr(case, name) and tried(dataclasses.replace(case, **{name: ()})).candidates
    }
    for reasons in told:
        check_figures(reasons)
        for name in guilty:
            rule = BLAMED[name]
            assert any(_names(r) if rule is None else r.rule is rule for r in reasons), name
    if "held" in guilty:  # they may go
        assert not is_one_of(refused, "ProviderDisabled")


#: A card whole would use up the function that a limit keeps free; another gives the function.
SPENT_BY_ANOTHER = Case(
    0, (1, 1), 0, f"{DEVICES}={FUNCTION}/{CARD}", limits=(("0000:01:00.0", FUNCTION, 0),)
)
#: One card is disabled, the other one limited: either of them would do.
LIMITED_HERE_OUT_THERE = Case(
    *(0, (1, 1), 0, f"{DEVICES}={CARD}"),
    out=("0000:01:00.0",),
    limits=(("0000:02:00.0", FUNCTION, 0),),
)
#: One card is allocated, the other one disabled: either of them would do.
HELD_HERE_OUT_THERE = Case(
    *(0, (1, 1), 0, f"{CARD}=1"),
    held=(f"{CARD}=1",),
    out=("0000:02:00.0",),
)


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("kind", some(["memory", "sqlite", "postgresql", "mysql"]))
def test_search_and_claim_agree_and_tell_what_stood_in_the_way(
    kind: str, scratch: databases.Scratch
) -> None:
    numbers = itertools.count()
    with opened(kind, scratch) as ledger:

        @settings(max_examples=examples(200))
        @example(case=SPENT_BY_ANOTHER)
        @example(case=LIMITED_HERE_OUT_THERE)
        @example(case=HELD_HERE_OUT_THERE)
        @given(case=cases())
        def each(case: Case) -> None:
            check(case, ledger, numbers)

        each()


@contextlib.contextmanager
def opened(kind: str, scratch: databases.Scratch) -> Iterator[ro.Ledger]:
    """Open an empty ledger in a kind of database."""
    with contextlib.ExitStack() as lent:
        url = "memory://"
        if kind != "memory":
            if kind != "sqlite":
                conftest.require_server(kind)
            url = lent.enter_context(scratch.prepared(kind, SQLBackend.upgrade_database))
        yield lent.enter_context(ro.connect(url, actor="admin"))
