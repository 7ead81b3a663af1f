"""The life of claims and moves, in any order, against a naive account of who holds what."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from typing import Any, ClassVar

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.tracker import MigrationKind, MigrationState, ResourceTracker
from resource_objects.host.tracker.moves import migration_id, migration_of
from resource_objects.testing.refusals import is_one_of, raises_code
from tests.support.lengths import examples
from tests.tracker.labs import tracker

HOSTS = ("box-0", "box-1")
#: What each host of the lab has of what is counted here.
CAPACITY = {"VCPU": 4, "CUSTOM_FPGA": 2, "PCPU": 8, "PGPU": 2}
LEAVING = (
    MigrationKind.RESIZE,
    MigrationKind.COLD_MIGRATION,
    MigrationKind.LIVE_MIGRATION,
    MigrationKind.EVACUATION,
)

numbers = st.integers(1, 4)
hosts = st.sampled_from(HOSTS)
migrations = st.sampled_from(["m-1", "m-2", "m-3"])
kinds = st.sampled_from(LEAVING)

_LIVES = itertools.count()


@dataclasses.dataclass(frozen=True)
class Size:
    """What a consumer asks for."""

    cpus: int = 1
    fpgas: int = 0
    pinned: int = 0
    gpu: bool = False

    def __str__(self) -> str:
        said = {"VCPU": self.cpus, "CUSTOM_FPGA": self.fpgas}
        text = [f"{kind}={count}" for kind, count in said.items() if count]
        text += [f"NUMA_TOPOLOGY=1:dedicated={self.pinned}"] * bool(self.pinned)
        return ",".join([*text, *["DEVICES=PGPU"] * self.gpu])

    @property
    def counts(self) -> dict[str, int]:
        counts = {"VCPU": self.cpus, "CUSTOM_FPGA": self.fpgas, "PCPU": self.pinned}
        return {kind: n for kind, n in {**counts, "PGPU": int(self.gpu)}.items() if n}


# pinned CPUs come two at a time, which cells of four always have next to each other
sizes = st.builds(
    Size, st.integers(1, 3), st.integers(0, 1), st.sampled_from([0, 2]), st.booleans()
)


class Life(RuleBasedStateMachine):
    """What agents do, with a claim or a move that each of them may repeat."""

    ledger: ClassVar[ro.Ledger]

    def __init__(self) -> None:
        super().__init__()
        self.tracker: ResourceTracker = tracker(self.ledger)
        #: where each consumer is, and as what
        self.held: dict[str, tuple[str, Size]] = {}
        #: by consumer: its migration, and what it leaves
        self.leaving: dict[str, tuple[str, str, Size]] = {}
        #: as what each migration of a consumer began: its kind, where it went, and for what
        self.began: dict[tuple[str, str], tuple[MigrationKind, str, Size]] = {}
        #: how each of them ended
        self.ended: dict[tuple[str, str], MigrationState] = {}
        self.life = next(_LIVES)  # what a ledger knows of earlier ones is about other names

    def taken(self, host: str) -> Counter[str]:
        every = [*self.held.values(), *((at, size) for _, at, size in self.leaving.values())]
        total: Counter[str] = Counter()
        for at, size in every:
            if at == host:
                total.update(size.counts)
        return total

    def fits(self, host: str, size: Size) -> bool:
        """Return whether counts would fit; a pair of CPUs fits wherever there are two in a cell."""
        taken = self.taken(host)
        return all(taken[kind] + n <= CAPACITY[kind] for kind, n in size.counts.items())

    @rule(number=numbers, host=hosts, size=sizes)
    def claims(self, number: int, host: str, size: Size) -> None:
        name = f"vm-{number}-{self.life}"
        known = self.held.get(name)
        if known == (host, size):
            before = self.ledger.get_claim(name)
            assert self.tracker.claim(name, host, str(size)).claim == before
        elif known is not None:
            with raises_code("ConsumerExists"):
                self.tracker.claim(name, host, str(size))
        elif self.fits(host, size):
            self.tracker.claim(name, host, str(size))
            self.held[name] = host, size
        else:
            with pytest.raises(exceptions.NoCandidates):
                self.tracker.claim(name, host, str(size))

    @rule(number=numbers, host=hosts, size=sizes)
    def plans(self, number: int, host: str, size: Size) -> None:
        name = f"vm-{number}-{self.life}"
        try:
            self.tracker.plan(name, host, str(size))
            assert self.fits(host, size)
        except exceptions.NoCandidates:
            assert not self.fits(host, size)

    @rule(number=numbers, host=hosts, size=sizes, kind=kinds, migration=migrations)
    def moves(
        self, number: int, host: str, size: Size, kind: MigrationKind, migration: str
    ) -> None:
        name = f"vm-{number}-{self.life}"
        before, began = self.leaving.get(name), self.began.get((name, migration))
        if before is None and began is not None:  # of one that ended it is not known what was asked
            size = began[2]
        request = str(size) if kind is MigrationKind.RESIZE else None
        wanted = size if kind is MigrationKind.RESIZE else self.held.get(name, ("", size))[1]

        def move() -> Any:
            return self.tracker.move(name, host, request, kind=kind, migration=migration)

        if before is not None and before[0] != migration:
            self.refused("MoveInProgress", move)
        elif began is not None and began != (kind, host, wanted if before else began[2]):
            self.refused("InvalidMove", move)
        elif began is not None:
            assert move().state is self.ended.get((name, migration), MigrationState.MOVING)
        elif name not in self.held:
            self.refused("ConsumerNotFound", move)
        elif kind is not MigrationKind.RESIZE and self.held[name][0] == host:
            self.refused("InvalidMove", move)
        elif not self.fits(host, wanted):
            self.refused(exceptions.NoCandidates, move)
        else:
            assert move().state is MigrationState.MOVING
            self.leaving[name] = migration, *self.held[name]
            self.held[name] = host, wanted
            self.began[name, migration] = kind, host, wanted

    @rule(number=numbers, migration=migrations, confirms=st.booleans())
    def ends(self, number: int, migration: str, confirms: bool) -> None:
        name = f"vm-{number}-{self.life}"
        end = self.tracker.confirm_move if confirms else self.tracker.revert_move
        wanted = MigrationState.CONFIRMED if confirms else MigrationState.REVERTED
        error = "MoveReverted" if confirms else "MoveConfirmed"
        before = self.leaving.get(name)
        if before is not None and before[0] == migration:
            assert end(name, migration).state is wanted
            del self.leaving[name]
            self.ended[name, migration] = wanted
            if not confirms:
                self.held[name] = before[1:]
        elif (name, migration) not in self.ended:
            self.refused("MoveNotFound", lambda: end(name, migration))
        elif self.ended[name, migration] is wanted:
            assert end(name, migration).state is wanted
        else:
            self.refused(error, lambda: end(name, migration))

    @rule(number=numbers, size=sizes)
    def rebuilds(self, number: int, size: Size) -> None:
        name = f"vm-{number}-{self.life}"
        if name in self.held and name not in self.leaving:
            host, before = self.held.pop(name)
            if self.fits(host, size):
                move = self.tracker.move(name, host, str(size), kind=MigrationKind.REBUILD)
                assert move.state is MigrationState.CONFIRMED
                before = size
            self.held[name] = host, before

    @rule(number=numbers)
    def releases(self, number: int) -> None:
        name = f"vm-{number}-{self.life}"
        if name in self.held:
            self.tracker.release(name)
            del self.held[name]
            if name in self.leaving:
                self.ended[name, self.leaving.pop(name)[0]] = MigrationState.REVERTED
        else:
            self.refused("ConsumerNotFound", lambda: self.tracker.release(name))

    @rule()
    def restarts(self) -> None:
        """Another process goes on."""
        self.tracker = tracker(self.ledger)

    def refused(self, error: type[Exception] | str, what: Any) -> None:
        with raises_code(error) as refusal:
            what()
        assert is_one_of(refusal.value, error)

    @invariant()
    def everybody_holds_what_the_account_says(self) -> None:
        told = {
            one.name: Counter(dict(_counts(one.claim)))
            for one in self.ledger.consumers()
            if one.claim
        }
        account = {name: Counter(size.counts) for name, (_, size) in self.held.items()}
        left = {
            migration_of(name): Counter(size.counts) for name, (_, _, size) in self.leaving.items()
        }
        assert told == account | left

    @invariant()
    def moves_in_progress_are_told(self) -> None:
        for host in (*HOSTS, None):
            wanted = {
                (name, migration_id(name, migration), source, self.held[name][0])
                for name, (migration, source, _) in self.leaving.items()
                if host in (None, source, self.held[name][0])
            }
            found = self.tracker.moves(host)
            assert {(m.consumer, m.id, m.from_host, m.to_host) for m in found} == wanted

    def teardown(self) -> None:
        for name in {one.name for one in self.ledger.consumers()}:
            self.ledger.release(name)


def _counts(claim: ro.Claim) -> Any:
    return ((kind, int(amount)) for kind, amount in claim.amounts.by_name())  # type: ignore[call-overload]


@pytest.mark.law(1, 2, 3, 5)
@pytest.mark.drawn
def test_the_life_of_claims_and_moves(lab: ro.Ledger) -> None:
    run_state_machine_as_test(
        type("Life", (Life,), {"ledger": lab}),
        settings=hypothesis.settings(max_examples=examples(100), stateful_step_count=20),
    )
