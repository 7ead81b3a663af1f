"""Agents that are killed at any point of a claim or a move, and those that go on after them."""

from __future__ import annotations

import functools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.tracker import MigrationKind, MigrationState, ResourceTracker
from resource_objects.testing.conformance.races import processes
from tests.support.killing import all_at_once, deaths
from tests.tracker.labs import WHOLE, declare, holdings, tracker, used

#: The fast tests kill before one in so many statements, and storm for so many seconds.
FAST_STEP, FAST_SECONDS, LONG_SECONDS = 9, 1.0, 20.0


@pytest.fixture
def shared_url(everywhere_url: str) -> str:
    """The URL of a ledger with both hosts that other processes can open."""
    if everywhere_url == "memory://":
        pytest.skip("what a process has in memory goes with it")
    with ro.connect(everywhere_url) as ledger:
        declare(ledger)
    return everywhere_url


# --- killed before each statement ---


def _claim(mine: ResourceTracker) -> None:
    mine.claim("vm", "box-0", WHOLE)


def _begin(mine: ResourceTracker) -> None:
    mine.move("vm", "box-1", kind=MigrationKind.LIVE_MIGRATION, migration="m")


def _confirm(mine: ResourceTracker) -> None:
    mine.confirm_move("vm", "m")


def _resize(mine: ResourceTracker) -> None:
    mine.move("vm", "box-1", WHOLE.replace("dedicated=2", "dedicated=1"), migration="n")


def _revert(mine: ResourceTracker) -> None:
    mine.revert_move("vm", "n")


def _rebuild(mine: ResourceTracker) -> None:
    mine.move("vm", "box-1", "VCPU=2", kind=MigrationKind.REBUILD, migration="o")


def _shelve(mine: ResourceTracker) -> None:
    mine.move("vm", None, kind=MigrationKind.SHELVE, migration="p")


def _unshelve(mine: ResourceTracker) -> None:
    mine.move("vm", "box-0", "VCPU=2", kind=MigrationKind.UNSHELVE, migration="q")


def _drop(mine: ResourceTracker) -> None:
    mine.revert_move("vm", "q")


#: What agents do in the life of a consumer, each step by another one.
STEPS = (_claim, _begin, _confirm, _resize, _revert, _rebuild, _shelve, _unshelve, _drop)


def _by_tracker(step: Callable[[ResourceTracker], None], ledger: ro.Ledger) -> None:
    step(tracker(ledger))


def _die_at_each_statement(
    url: str, steps: Sequence[Callable[[ResourceTracker], None]], every: int
) -> int:
    """Take steps, each killed again and again; return how often that was so."""
    killed = 0
    for step in steps:
        with ro.connect(url) as ledger:
            before = holdings(ledger)
        for is_done in deaths(url, functools.partial(_by_tracker, step), every):
            with ro.connect(url) as ledger:
                found = holdings(ledger)
                assert not ledger.audit()
                if found != before:  # it was done, though nobody was told: it is the same again
                    step(tracker(ledger))
                    assert holdings(ledger) == found
            assert found != before or not is_done, step
            killed += not is_done
    return killed


def test_who_is_killed_in_a_step_leaves_all_of_it_or_nothing(shared_url: str) -> None:
    assert _die_at_each_statement(shared_url, STEPS[:3], FAST_STEP) >= 3


@pytest.mark.long
@pytest.mark.law(2, 4)
def test_who_is_killed_before_any_statement_leaves_all_of_a_step_or_nothing(
    shared_url: str,
) -> None:
    assert _die_at_each_statement(shared_url, STEPS, 1) > 3 * len(STEPS)
    with ro.connect(shared_url) as ledger:
        assert not holdings(ledger) and not used(ledger)


# --- killed at random ---


def _agent(url: str, guests: list[str], seed: int, end: Path) -> None:
    """Claim and move guests until a file is there; first finish what is found begun."""
    chance = random.Random(seed)
    with ro.connect(url) as ledger:
        mine = tracker(ledger)
        for move in mine.moves():
            if move.consumer in guests:
                (move.confirm if chance.random() < 0.5 else move.revert)()
        while not end.exists():
            _live(mine, chance.choice(guests), chance)


def _live(mine: ResourceTracker, guest: str, chance: random.Random) -> None:
    """Do one thing to a guest, whatever it is up to; what does not fit is left."""
    host = chance.choice(["box-0", "box-1"])
    asked = chance.choice(["VCPU=1", "VCPU=2,CUSTOM_FPGA=1", WHOLE])
    try:
        at = mine.get_claim(guest).host
    except exceptions.NotFound as error:
        if not error.is_about("consumer"):
            raise
        at = None
    try:
        if at is None:
            mine.claim(guest, host, asked)
        elif chance.random() < 0.2:
            mine.release(guest)
        else:
            move = mine.move(guest, host, asked)
            assert move.state is MigrationState.MOVING
            (move.confirm if chance.random() < 0.5 else move.revert)()
    except exceptions.CapacityException:
        pass


def _storm(url: str, end: Path, seconds: float, agents: int = 3) -> int:
    """Let agents loose, kill them at random, each once or more, and start them again."""
    killed, chance = 0, random.Random(7)
    of = {n: [f"vm-{n}-{k}" for k in range(2)] for n in range(agents)}

    def started(number: int) -> object:
        process = processes().Process(
            target=_agent, args=(url, of[number], chance.randrange(2**32), end)
        )
        process.start()
        return process

    running = {number: started(number) for number in of}
    until = time.monotonic() + seconds
    while time.monotonic() < until or killed < agents:
        time.sleep(chance.uniform(0.1, 0.4))
        number = chance.choice(list(of))
        process = running[number]
        process.kill()  # type: ignore[attr-defined]
        process.join()  # type: ignore[attr-defined]
        killed += 1
        running[number] = started(number)
    end.touch()
    for process in running.values():
        process.join(60)  # type: ignore[attr-defined]
        assert process.exitcode == 0  # type: ignore[attr-defined]
    return killed


def _judge(url: str) -> None:
    """Look that nobody has a unit twice, that sums are right, and that all can be given back."""
    with ro.connect(url) as ledger:
        assert not ledger.audit()
        units = Counter(
            (one.provider, unit)
            for consumer in ledger.consumers()
            if consumer.claim is not None
            for one in consumer.claim.allocations
            for unit in one.units
        )
        assert not [unit for unit, times in units.items() if times > 1]
        mine = tracker(ledger)
        for move in mine.moves():
            move.confirm()
        for name in list(holdings(ledger)):
            mine.release(name)
        assert not holdings(ledger) and not used(ledger)


@pytest.mark.law(1, 2, 4)
def test_agents_that_are_killed_lose_and_double_nothing(shared_url: str, tmp_path: Path) -> None:
    assert _storm(shared_url, tmp_path / "end", FAST_SECONDS) >= 3
    _judge(shared_url)


@pytest.mark.long
@pytest.mark.law(1, 2, 4)
def test_agents_that_are_killed_for_long_lose_and_double_nothing(
    shared_url: str, tmp_path: Path
) -> None:
    assert _storm(shared_url, tmp_path / "end", LONG_SECONDS, agents=5) > 20
    _judge(shared_url)


# --- all at once ---


def _claim_all(ledger: ro.Ledger, number: int) -> None:
    """Claim as many as there are, of which half are also claimed by the neighbour."""
    mine = tracker(ledger)
    for k in range(8):
        asked = "VCPU=1" if k % 2 else "NUMA_TOPOLOGY=1:dedicated=2,DEVICES=PGPU"
        try:
            mine.claim(f"vm-{(number + k) % 8}-{k % 2}", "box-0", asked)
        except exceptions.CapacityException:
            continue


@pytest.mark.law(1, 2, 4)
def test_a_host_that_all_claim_of_is_full_and_no_more(shared_url: str) -> None:
    all_at_once(shared_url, _claim_all, 4)
    with ro.connect(shared_url) as ledger:
        taken = used(ledger)
    assert (taken["box-0", "VCPU"], taken["box-0", "PCPU"]) == (4, 4)
    assert taken["box-0/0000:10:00.0", "PGPU"] == taken["box-0/0000:20:00.0", "PGPU"] == 1
    _judge(shared_url)


def _same_move(ledger: ro.Ledger, number: int) -> None:
    for k in range(4):
        move = tracker(ledger).move(f"vm-{k}", "box-1", "VCPU=1", migration="m")
        assert move.state is not MigrationState.REVERTED
        assert move.confirm().state is MigrationState.CONFIRMED


@pytest.mark.law(4)
def test_a_move_that_several_make_is_made_once(shared_url: str) -> None:
    with ro.connect(shared_url) as ledger:
        for k in range(4):
            tracker(ledger).claim(f"vm-{k}", "box-0", "VCPU=1")
    all_at_once(shared_url, _same_move, 4)
    with ro.connect(shared_url) as ledger:
        assert holdings(ledger) == {f"vm-{k}": "VCPU=1 of box-1" for k in range(4)}
