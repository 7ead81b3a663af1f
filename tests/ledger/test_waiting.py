"""Claims that wait: first come, first served, whatever becomes of those who wait."""

from __future__ import annotations

import contextlib
import datetime
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.ledger import RetryPolicy, new_operation
from resource_objects.ledger.queue import Queue
from resource_objects.providers.waiting import Awaited, Waiter, WaiterFilter, WaitOrder
from resource_objects.search.candidates import Candidates
from resource_objects.testing.conformance.races import processes
from resource_objects.testing.refusals import raises_code
from tests import databases
from tests.support.patience import PATIENCE, until

SECOND = datetime.timedelta(seconds=1)
HOUR = datetime.timedelta(hours=1)


class Time:
    """A clock that goes on when somebody sleeps, and what else happens then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.then: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.then()

    def policy(self, **more: float) -> RetryPolicy:
        return RetryPolicy(
            clock=lambda: self.now,
            sleep=self.sleep,
            uniform=lambda least, most: most,
            **more,  # type: ignore[arg-type]
        )


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def lab(url: str, clock: Time) -> Iterator[ro.Ledger]:
    """Two machines with four GPUs each, which nobody else opens."""
    with ro.connect(url, retries=clock.policy(), actor="ann") as ledger:
        ledger.sync(*(ro.Provider(f"lab-{n}", "VCPU=16,PGPU=4") for n in range(2)))
        yield ledger


def found(ledger: ro.Ledger, asked: str, at: str | None = None) -> Candidates:
    return ledger.snapshot(at).candidates(asked)


def fill(ledger: ro.Ledger, *hosts: str) -> None:
    for host in hosts or ("lab-0", "lab-1"):
        ledger.claim(f"all-of-{host}", {host: "PGPU=4"})


def stand(ledger: ro.Ledger, consumer: str, *awaits: Awaited) -> WaitOrder:
    """Put somebody into the queue who only stands there."""
    order = WaitOrder(consumer, awaits or (Awaited("PGPU", 1),), HOUR)
    ledger.backend.wait(order)
    return order


def waiting(ledger: ro.Ledger) -> list[str]:
    return [one.consumer for one in ledger.queue()]


# --- one who waits ---


def test_what_is_free_is_taken_at_once(lab: ro.Ledger, clock: Time) -> None:
    claim = lab.claim("job", found(lab, "PGPU=4"), wait=HOUR, user="ann")
    assert (claim.consumer, claim.user, clock.now) == ("job", "ann", 0)
    assert waiting(lab) == []


def test_who_waits_gets_what_is_given_back(lab: ro.Ledger, clock: Time) -> None:
    fill(lab)
    seen: list[list[str]] = []

    def then() -> None:
        seen.append(waiting(lab))
        if len(seen) == 3:
            lab.release("all-of-lab-1")

    clock.then = then
    claim = lab.claim("job", found(lab, "PGPU=2"), wait=HOUR)
    assert str(claim) == "job holds PGPU=2 of lab-1"
    assert seen == [["job"]] * 3
    assert waiting(lab) == []


def test_a_wait_that_is_over_tells_the_last_refusal_and_leaves_nothing(
    lab: ro.Ledger, clock: Time
) -> None:
    fill(lab)
    with pytest.raises(exceptions.WaitTimedOut) as refused:
        lab.claim("job", found(lab, "PGPU=2"), wait=10 * SECOND)
    told = refused.value
    assert (told.consumer, told.ahead) == ("job", ())
    assert isinstance(told.refusal, exceptions.NoCandidates)
    assert {name for reason in told.reasons for name, _ in reason.holders} == {
        "all-of-lab-0",
        "all-of-lab-1",
    }
    assert "all-of-lab-0 holds 4" in str(told)
    assert clock.now == pytest.approx(10)
    assert waiting(lab) == []
    assert {one.name for one in lab.consumers()} == {"all-of-lab-0", "all-of-lab-1"}


def test_who_stood_before_is_told(lab: ro.Ledger) -> None:
    stand(lab, "first")
    stand(lab, "second")
    with pytest.raises(exceptions.WaitTimedOut, match="first, second are before it") as refused:
        lab.claim("job", found(lab, "PGPU=1"), wait=SECOND)
    assert (refused.value.ahead, refused.value.refusal) == (("first", "second"), None)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
    assert waiting(lab) == ["first", "second"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_wait_that_is_interrupted_leaves_nothing(
    lab: ro.Ledger, clock: Time, error: type[BaseException]
) -> None:
    fill(lab)

    def then() -> None:
        assert waiting(lab) == ["job"]
        raise error

    clock.then = then
    with pytest.raises(error):
        lab.claim("job", found(lab, "PGPU=1"), wait=HOUR)
    assert waiting(lab) == []


def test_nobody_waits_for_what_can_never_be(lab: ro.Ledger, clock: Time) -> None:
    fill(lab)
    for asked in (found(lab, "PGPU=5"), {"lab-0": "PGPU=5"}, {"lab-0": "CUSTOM_A=1"}):
        with pytest.raises(exceptions.CapacityException) as refused:
            lab.claim("job", asked, wait=HOUR)
        assert not isinstance(refused.value, exceptions.WaitTimedOut)
    stand(lab, "first")
    with pytest.raises(exceptions.NoCandidates):
        lab.claim("job", found(lab, "PGPU=5"), wait=HOUR)
    assert clock.now == 0
    assert waiting(lab) == ["first"]


def test_what_can_never_be_is_refused_when_its_turn_comes(lab: ro.Ledger, clock: Time) -> None:
    first = stand(lab, "first")
    clock.then = lambda: lab.backend.leave(first.entry)
    with pytest.raises(exceptions.CapacityException) as refused:
        lab.claim("job", {"lab-0": "PGPU=5"}, wait=HOUR)
    assert not isinstance(refused.value, exceptions.WaitTimedOut)
    assert clock.now < 10
    assert waiting(lab) == []


@pytest.mark.parametrize("how", ["removed", "disabled", "shrunk"])
def test_what_can_never_be_any_more_is_refused_soon(lab: ro.Ledger, clock: Time, how: str) -> None:
    lab.sync(ro.Provider("lab-2", "VCPU=16,PGPU=8"))
    lab.claim("other", {"lab-2": "VCPU=1,PGPU=8"})
    asked = found(lab, "PGPU=6")
    steps = []

    def then() -> None:
        steps.append(clock.now)
        if len(steps) == 3:
            lab.release("other")
            if how == "removed":
                lab.remove("lab-2")
            elif how == "disabled":
                lab.disable("lab-2", reason="fan")
            else:
                lab.sync(ro.Provider("lab-2", "VCPU=16,PGPU=5"))

    clock.then = then
    with pytest.raises(exceptions.NoCandidates) as refused:
        lab.claim("job", asked, wait=HOUR)
    assert not isinstance(refused.value, exceptions.WaitTimedOut)
    assert clock.now < 15
    assert waiting(lab) == []


def test_who_waits_for_what_is_gone_does_not_hold_back_the_others(
    lab: ro.Ledger, clock: Time
) -> None:
    lab.claim("other", {"lab-1": "PGPU=4"})
    asked = found(lab, "PGPU=3", at="lab-1")
    clock.then = lambda: lab.release("other") and lab.remove("lab-1")
    with raises_code("ProviderNotFound", match="lab-1"):
        lab.claim("job", asked, wait=HOUR)
    assert clock.now < 10
    assert waiting(lab) == []


def test_whether_it_could_ever_be_is_not_asked_again_for_claims(
    lab: ro.Ledger, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lab)
    asked: list[float] = []
    satisfiable = Queue.is_satisfiable
    monkeypatch.setattr(
        Queue,
        "is_satisfiable",
        lambda self, *arguments: asked.append(clock.now) or satisfiable(self, *arguments),
    )

    def then() -> None:
        lab.claim("other", {"lab-0": "VCPU=1"})
        lab.release("other")
        if clock.now > 12 and len(asked) == 1:
            lab.sync(ro.Provider("lab-9", "VCPU=1"))

    clock.then = then
    with pytest.raises(exceptions.WaitTimedOut):
        lab.claim("job", found(lab, "PGPU=1"), wait=15 * SECOND)
    assert asked[0] == 0 and len(asked) == 2


def test_one_of_several_ways_that_can_never_be_does_not_end_a_wait(
    lab: ro.Ledger, clock: Time
) -> None:
    ways = list(found(lab, "PGPU=1"))
    fill(lab)
    lab.disable(ways[-1].host, reason="broken")
    clock.then = lambda: lab.release("all-of-" + ways[0].host)
    assert str(lab.claim("job", ways, wait=HOUR)) == f"job holds PGPU=1 of {ways[0].host}"


def test_several_ways_none_of_which_can_be_any_more_end_a_wait(lab: ro.Ledger, clock: Time) -> None:
    ways = list(lab.snapshot().candidates("PGPU=1", per_host=1, limit=None))
    assert len(ways) == 2
    fill(lab)
    disabled: list[float] = []

    def then() -> None:
        if clock.now > 3 * (len(disabled) + 1) and len(disabled) < 2:
            lab.disable(ways[len(disabled)].host, reason="broken")
            disabled.append(clock.now)

    clock.then = then
    with raises_code("ProviderDisabled"):
        lab.claim("job", ways, wait=HOUR)
    assert len(disabled) == 2 and clock.now < disabled[1] + 10
    assert waiting(lab) == []
    with raises_code("ProviderDisabled"):
        lab.claim("job", ways, wait=HOUR)
    assert clock.now < disabled[1] + 10


def test_busy_and_never_are_told_apart(lab: ro.Ledger) -> None:
    fill(lab)
    assert not found(lab, "PGPU=4") and lab.is_satisfiable(found(lab, "PGPU=4"))
    assert not lab.is_satisfiable(found(lab, "PGPU=5"))
    assert not lab.is_satisfiable(found(lab, "PGPU=5", at="lab-0"))
    with raises_code("InvalidField", match="is_satisfiable"):
        lab.is_satisfiable("PGPU=4")  # type: ignore[arg-type]


def test_who_holds_something_does_not_wait_to_claim(lab: ro.Ledger, clock: Time) -> None:
    fill(lab, "lab-0")
    stand(lab, "first")
    with raises_code("ConsumerExists"):
        lab.claim("all-of-lab-0", found(lab, "PGPU=1"), wait=HOUR)
    assert clock.now == 0


def test_a_claim_that_was_made_before_is_told_again(lab: ro.Ledger, clock: Time) -> None:
    operation = new_operation()
    done = lab.claim("job", found(lab, "PGPU=1"), wait=HOUR, operation=operation)
    stand(lab, "first")
    assert lab.claim("job", found(lab, "PGPU=1"), wait=HOUR, operation=operation) == done
    assert clock.now == 0


def test_who_replaces_waits_and_keeps_what_it_has(lab: ro.Ledger, clock: Time) -> None:
    fill(lab, "lab-1")
    lab.claim("job", {"lab-0": "PGPU=3"})

    def then() -> None:
        assert str(lab.get_claim("job")) == "job holds PGPU=3 of lab-0"
        lab.release("other")

    lab.claim("other", {"lab-0": "PGPU=1"})
    clock.then = then
    claim = lab.replace("job", found(lab, "PGPU=4"), wait=HOUR)
    assert str(claim) == "job holds PGPU=4 of lab-0"
    assert waiting(lab) == []


def test_the_first_sees_that_a_claim_expired(lab: ro.Ledger, clock: Time) -> None:
    soon = datetime.timedelta(seconds=0.1)
    for host in ("lab-0", "lab-1"):
        lab.claim(f"all-of-{host}", {host: "PGPU=4"}, expires_in=soon)
    clock.then = lambda: time.sleep(0.02)
    claim = lab.claim("job", found(lab, "PGPU=4"), wait=HOUR)
    assert claim.consumer == "job"


@pytest.mark.parametrize("wait", [datetime.timedelta(0), 10, "10m"])
def test_a_time_to_wait_is_a_time(lab: ro.Ledger, wait: object) -> None:
    with raises_code("InvalidField", match="wait"):
        lab.claim("job", found(lab, "PGPU=1"), wait=wait)  # type: ignore[arg-type]
    assert list(lab.consumers()) == []


@pytest.mark.parametrize("lease", [0, -1, float("nan"), "30", 10**9])
def test_a_lease_is_a_time(lease: object) -> None:
    with raises_code("InvalidField", match="lease"):
        RetryPolicy(lease=lease)  # type: ignore[arg-type]


# --- several ---


def test_who_came_later_waits_though_there_is_room(lab: ro.Ledger, clock: Time) -> None:
    fill(lab, "lab-0")
    big = stand(lab, "big", Awaited("PGPU", 8))
    looks: list[float] = []

    def then() -> None:
        looks.append(clock.now)
        if len(looks) == 4:
            lab.backend.leave(big.entry)

    clock.then = then
    assert lab.claim("small", found(lab, "PGPU=1"), wait=HOUR).consumer == "small"
    assert len(looks) == 4


def test_who_was_taken_out_is_not_the_one_that_has_its_number_now(
    lab: ro.Ledger, clock: Time
) -> None:
    fill(lab)

    def then() -> None:
        clock.then = lambda: None
        lab.backend.leave(stand(lab, "job").entry)  # as another call of the same consumer does
        stand(lab, "other")
        lab.release_all(["all-of-lab-0", "all-of-lab-1"])

    clock.then = then
    with pytest.raises(exceptions.WaitTimedOut, match="other is before it"):
        lab.claim("job", found(lab, "PGPU=1"), wait=10 * SECOND)
    assert waiting(lab) == ["other"]


def test_who_does_not_wait_overtakes(lab: ro.Ledger) -> None:
    stand(lab, "first")
    assert lab.claim("job", found(lab, "PGPU=1")).consumer == "job"


@pytest.mark.parametrize("asked", ["VCPU=1", {"lab-0": "VCPU=1"}])
def test_nobody_waits_for_who_waits_for_something_else(
    lab: ro.Ledger, clock: Time, asked: str | dict[str, str]
) -> None:
    stand(lab, "first")
    what = found(lab, asked) if isinstance(asked, str) else asked
    assert lab.claim("job", what, wait=HOUR).consumer == "job"
    assert clock.now == 0


def test_of_another_machine_nobody_stands_before(lab: ro.Ledger, clock: Time) -> None:
    fill(lab)
    clock.then = lambda: seen.extend(lab.queue())
    for asked in (found(lab, "PGPU=1", at="lab-0"), {"lab-0": "PGPU=1"}):
        seen: list[Waiter] = []
        with pytest.raises(exceptions.WaitTimedOut):
            lab.claim("job", asked, wait=SECOND)
        (there,) = {one.awaits for one in seen}
        (root,) = lab.backend.uuids(["lab-0"]).values()
        assert there == (Awaited("PGPU", 1, root),)
        assert {one.actor for one in seen} == {"ann"}
    stand(lab, "here", *there)
    lab.release("all-of-lab-1")
    before = clock.now
    assert lab.claim("job", found(lab, "PGPU=1", at="lab-1"), wait=HOUR).consumer == "job"
    assert clock.now == before


def test_a_topology_waits_for_the_counts_that_it_takes(numa_ledger: ro.Ledger) -> None:
    request = "NUMA_TOPOLOGY=1:dedicated=2,DISK_GB=1"
    seen: list[Waiter] = []
    policy = Time()
    policy.then = lambda: seen.extend(numa_ledger.queue())
    numa_ledger._context.retries = policy.policy()
    numa_ledger.backend.wait(WaitOrder("first", (Awaited("DISK_GB", 1),), HOUR))
    for asked in (numa_ledger.snapshot().candidates(request), {"host0": request}):
        with pytest.raises(exceptions.WaitTimedOut):
            numa_ledger.claim("job", asked, wait=SECOND)
    amounts = {str(one.amounts) for one in seen if one.consumer == "job"}
    assert amounts == {"DISK_GB=1,PCPU=2"}


def test_who_was_stopped_longer_than_its_lease_comes_last(url: str) -> None:
    late = Time()
    with ro.connect(url, retries=late.policy(lease=0.001)) as ledger:
        ledger.sync(ro.Provider("lab-0", "PGPU=1"))
        ledger.claim("holder", {"lab-0": "PGPU=1"})
        numbers: list[int] = []

        def then() -> None:
            time.sleep(0.002)  # by the clock of the ledger it is over
            numbers.append(stand_up())

        def stand_up() -> int:
            order = WaitOrder(f"other-{len(numbers)}", (Awaited("PGPU", 1),), HOUR)
            number = ledger.backend.wait(order).number
            ledger.backend.leave(order.entry)
            if len(numbers) == 5:
                ledger.release("holder")
            return number

        late.then = then
        claim = ledger.claim("job", ledger.snapshot().candidates("PGPU=1"), wait=HOUR)
        assert claim.consumer == "job"
        assert waiting(ledger) == []


def test_many_threads_are_served_in_the_order_of_arrival(url: str) -> None:
    policy = RetryPolicy(sleep=lambda seconds: time.sleep(min(seconds, 0.01)))
    with ro.connect(url, retries=policy) as ledger:
        ledger.sync(ro.Provider("lab-0", "PGPU=1"))
        ledger.claim("holder", {"lab-0": "PGPU=1"})
        began = ledger.feed.cursor()

        def work(name: str) -> None:
            ledger.claim(name, ledger.snapshot().candidates("PGPU=1"), wait=HOUR)
            ledger.release(name)

        names = [f"job-{number}" for number in range(5)]
        threads = []
        for name in names:
            threads.append(threading.Thread(target=work, args=(name,)))
            threads[-1].start()
            until(lambda name=name: name in waiting(ledger))
        assert waiting(ledger) == names
        ledger.release("holder")
        for thread in threads:
            thread.join(PATIENCE)
        told = [one.subject for one in ledger.feed.changes(began) if one.kind == "claim"]
        assert told == names
        assert waiting(ledger) == []


# --- several processes ---


@pytest.fixture
def shared(prepared_database: Callable[[databases.Prepare], str]) -> Iterator[ro.Ledger]:
    """A ledger of one GPU, which ``holder`` has, on each kind of database."""
    url = prepared_database(SQLBackend.upgrade_database)
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("lab-0", "PGPU=1"))
        ledger.claim("holder", {"lab-0": "PGPU=1"})
        yield ledger


@pytest.fixture
def start(shared: ro.Ledger) -> Iterator[Callable[..., BaseProcess]]:
    """Start a process that waits for the GPU, and return once it stands in the queue."""
    started: list[BaseProcess] = []

    def start_one(name: str, lease: float = 30.0) -> BaseProcess:
        url = shared.backend._database._engine.url  # type: ignore[attr-defined]
        text = url.render_as_string(hide_password=False)
        process = processes().Process(target=wait_and_release, args=(text, name, lease))
        process.start()
        started.append(process)
        until(lambda: name in waiting(shared))
        return process

    yield start_one
    for process in started:
        process.kill()
        process.join()


def wait_and_release(url: str, name: str, lease: float) -> None:
    """Wait for the GPU, and give it back."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    policy = RetryPolicy(sleep=lambda seconds: time.sleep(min(seconds, 0.02)), lease=lease)
    with contextlib.suppress(KeyboardInterrupt), ro.connect(url, retries=policy) as ledger:
        ledger.claim(name, ledger.snapshot().candidates("PGPU=1"), wait=HOUR)
        ledger.release(name)


@pytest.mark.law(4)
def test_processes_are_served_in_the_order_of_arrival_and_a_killed_one_drops_out(
    shared: ro.Ledger, start: Callable[..., BaseProcess]
) -> None:
    began = shared.feed.cursor()
    first, killed, last = start("job-2"), start("job-0", lease=1.0), start("job-1")
    assert waiting(shared) == ["job-2", "job-0", "job-1"]
    killed.kill()
    shared.release("holder")
    for process in (first, killed, last):
        process.join(PATIENCE)
    changes = shared.feed.changes(began)
    assert [one.subject for one in changes if one.kind == "claim"] == ["job-2", "job-1"]
    assert waiting(shared) == []


@pytest.mark.law(2)
def test_a_process_that_is_interrupted_leaves_nothing(
    shared: ro.Ledger, start: Callable[..., BaseProcess]
) -> None:
    process = start("job-1")
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join(PATIENCE)
    assert waiting(shared) == []
    assert shared.backend.list_waiters(WaiterFilter(), 10) == ()
    assert [one.name for one in shared.consumers()] == ["holder"]
