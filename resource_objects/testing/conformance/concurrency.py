"""Rules under concurrency: no interleaving of threads or processes breaks a law."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider
from resource_objects.providers.backend import Adjustment, ClaimOrder, ClaimRecord, Delta, Operation
from resource_objects.testing.conformance.base import (
    Kit,
    adjust,
    changes_to,
    claim,
    define,
    deltas,
    host,
    kept,
    law,
    picture,
    release,
)
from resource_objects.testing.conformance.workers import (
    Holdings,
    claim_until_killed,
    define_and_claim,
    hammer,
    hammer_elsewhere,
    processes,
)

T = TypeVar("T")

_WORKERS = 6


def together(work: Callable[[int], T], workers: int = _WORKERS) -> list[T | BaseException]:
    """Run ``work(0) ... work(n - 1)`` at the same moment; return results or what was raised."""
    gate = threading.Barrier(workers)

    def wait_and_work(number: int) -> T:
        gate.wait()
        return work(number)

    with ThreadPoolExecutor(workers) as pool:
        futures: list[Future[T]] = [pool.submit(wait_and_work, n) for n in range(workers)]
    return [future.exception() or future.result() for future in futures]


def _allocations(holdings: list[Any]) -> dict[tuple[str, str, str], int]:
    return {
        (consumer, "hot", resource_class): amount
        for holds in holdings
        for (consumer, resource_class), amount in holds.items()
    }


def _kill_at_random(
    backend_class: type[Backend], url: str, uuids: list[str], diaries: list[Path]
) -> None:
    """Let processes claim, and kill each at a random moment."""
    context = processes()
    started = [
        context.Process(
            target=claim_until_killed, args=(backend_class, url, uuids, diary.name, str(diary))
        )
        for diary in diaries
    ]
    try:
        for process in started:
            process.start()
        patience = time.monotonic() + 60
        while not all(diary.exists() and diary.stat().st_size > 300 for diary in diaries):
            assert time.monotonic() < patience, "nothing was acknowledged"
            assert all(process.is_alive() for process in started), "died by itself"
            time.sleep(0.01)
        for process in started:
            time.sleep(random.uniform(0, 0.2))
            process.kill()
    finally:
        for process in started:
            process.kill()
            process.join()


def _acknowledged(diary: str) -> tuple[set[str], set[str]]:
    """Return the claims that were acknowledged and not released, and those being released."""
    state: dict[str, str] = {}
    for line in diary.splitlines(keepends=True):
        if line.endswith("\n"):  # else it was killed while it wrote
            word, name = line.split()
            state[name] = word
    unsure = {name for name, word in state.items() if word == "releasing"}
    return {name for name, word in state.items() if word == "claimed"}, unsure


def _released(diary: str) -> set[str]:
    return {line.split()[1] for line in diary.splitlines() if line.startswith("released")}


class ConcurrencyRules(Kit):
    """Threads and processes on one ledger."""

    @law(1, 4)
    def test_threads_never_take_more_than_there_is(self, backend: Backend) -> None:
        [uuid] = define(backend, Provider("hot", "VCPU=20,MEMORY_MB=20")).values()
        done = threading.Event()

        def look() -> None:
            # every look is of one moment: picture() checks that what is used is what is held
            while not done.is_set():
                assert picture(backend).used("hot", "VCPU") <= 20

        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(look)
            try:
                holdings = together(lambda n: hammer(backend, uuid, f"worker{n}", 20))
            finally:
                done.set()
            looking.result()
        assert picture(backend).allocations == _allocations(holdings)

    @law(1, 4)
    def test_processes_never_take_more_than_there_is(self, backend: Backend, url: str) -> None:
        self.need("multi_process")
        [uuid] = define(backend, Provider("hot", "VCPU=20,MEMORY_MB=20")).values()
        with ProcessPoolExecutor(2, mp_context=processes()) as pool:
            futures = [
                pool.submit(hammer_elsewhere, self.backend_class, url, uuid, f"process{n}", 30)
                for n in range(2)
            ]
            here = hammer(backend, uuid, "here", 30)
            holdings = [here, *(future.result() for future in futures)]
        found = picture(backend)
        assert found.allocations == _allocations(holdings)
        assert found.used("hot", "VCPU") <= 20

    @law(2, 4)
    def test_a_kill_at_any_instruction_loses_nothing_acknowledged(
        self, backend: Backend, url: str, tmp_path: Path
    ) -> None:
        self.need("multi_process")
        names = define(
            backend, *(Provider(name, "VCPU=1000000,MEMORY_MB=3000000") for name in ("a", "b"))
        )
        uuids = list(names.values())
        diaries = [tmp_path / f"diary{number}" for number in range(4)]
        for pair in (diaries[:2], diaries[2:]):
            _kill_at_random(self.backend_class, url, uuids, pair)
        allocations = picture(backend).allocations  # which checks that it agrees with itself
        held = {consumer for consumer, _, _ in allocations}
        for diary in diaries:
            claimed, unsure = _acknowledged(diary.read_text())
            assert claimed <= held | unsure
            assert not held & _released(diary.read_text())
            assert claimed, "killed before anything was acknowledged"
        assert len(allocations) == 4 * len(held)  # each wholly, or not at all
        assert all(amount in (1, 3) for amount in allocations.values())
        for provider in ("a", "b"):
            assert picture(backend).used(provider, "VCPU") == len(held)
        # whoever comes next finds nothing locked
        claim(backend, "next", {uuids[0]: "VCPU=1"})

    def test_one_of_many_first_starts_makes_the_ledger(self, new_url: str) -> None:
        self.need("multi_process")
        context = processes()
        started = [
            context.Process(target=define_and_claim, args=(self.backend_class, new_url, number))
            for number in range(5)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join(60)
        assert [process.exitcode for process in started] == [0] * len(started)
        opened = self.backend_class.open(new_url)
        try:
            assert len(picture(opened).allocations) == len(started)
        finally:
            opened.close()

    @law(4)
    def test_a_write_repeated_at_the_same_moment_happens_once(self, backend: Backend) -> None:
        [uuid] = define(backend, Provider("hot", "VCPU=8")).values()
        operation, order = Operation(), ClaimOrder("job", deltas({uuid: "VCPU=8"}))
        outcomes = together(lambda _: backend.claim(operation, order))
        assert set(outcomes) == {backend.held("job")}
        again, more = Operation(), Adjustment("job", deltas({uuid: "VCPU=-2"}))
        outcomes = together(lambda _: backend.adjust(again, more))
        assert set(outcomes) == {backend.held("job")}
        assert picture(backend).used("hot", "VCPU") == 6
        last = Operation()
        assert len(set(together(lambda _: backend.release(last, "job")))) == 1

    @law(4)
    def test_one_consumer_claims_once(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}") for n in range(_WORKERS)))
        outcomes = together(lambda n: claim(backend, "job", {names[f"host{n}"]: "VCPU=1"}))
        [won] = [outcome for outcome in outcomes if isinstance(outcome, ClaimRecord)]
        lost = [outcome for outcome in outcomes if outcome is not won]
        assert all(isinstance(outcome, exceptions.ConsumerExists) for outcome in lost), lost
        assert backend.held("job") == won
        assert len(picture(backend).allocations) == 1

    @law(4)
    def test_changes_of_one_consumer_add_up(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}") for n in range(_WORKERS)))

        def work(number: int) -> None:
            for _ in range(4):
                adjust(backend, "job", {names[f"host{number}"]: "VCPU=1,MEMORY_MB=2"})
            adjust(backend, "job", {names[f"host{number}"]: "VCPU=-1"})

        assert together(work) == [None] * _WORKERS
        record = backend.held("job")
        assert record is not None and len(record.held) == 2 * _WORKERS
        assert {held.amount for held in record.held} == {3, 8}
        picture(backend)

    def test_claims_in_opposite_orders_do_not_stop_each_other(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        uuids = list(names.values())

        def work(number: int) -> None:
            ordered = uuids if number % 2 else uuids[::-1]
            for turn in range(8):
                wanted = tuple(Delta(uuid, "VCPU", 1) for uuid in ordered)
                backend.claim(Operation(), ClaimOrder(f"job-{number}-{turn}", wanted))
                release(backend, f"job-{number}-{turn}")

        assert together(work) == [None] * _WORKERS
        assert picture(backend).allocations == {}

    def test_one_of_many_makes_a_tree(self, backend: Backend) -> None:
        def work(number: int) -> None:
            root = Provider("host0", {f"CUSTOM_{number}": 1, "CUSTOM_SAME": 1})
            root.add("host0/gpu0", traits=[f"CUSTOM_{number}", "CUSTOM_SAME"])
            backend.define(Operation(), changes_to(backend, root))

        outcomes = together(work)
        assert None in outcomes
        refused = (exceptions.ProviderExists, exceptions.StaleDefinition)
        assert all(outcome is None or isinstance(outcome, refused) for outcome in outcomes), (
            outcomes
        )
        assert set(picture(backend).providers) == {"host0", "host0/gpu0"}

    def test_who_compares_again_loses_no_change(self, backend: Backend) -> None:
        define(backend, Provider("host0"))

        def work(number: int) -> None:
            while True:
                tree = kept(backend, "host0")
                tree.add(f"host0/{number}", {f"CUSTOM_{number % 2}": 1})
                tree.update(traits={*tree.traits, f"CUSTOM_{number}"})
                try:
                    backend.define(Operation(), changes_to(backend, tree))
                    return
                except exceptions.StaleDefinition:
                    continue

        assert together(work) == [None] * _WORKERS
        found = picture(backend).providers
        assert len(found) == 1 + _WORKERS
        assert len(found["host0"].traits) == _WORKERS

    @law(1, 4)
    def test_definitions_and_claims_do_not_disturb_each_other(self, backend: Backend) -> None:
        [uuid] = define(backend, Provider("hot", "VCPU=20,MEMORY_MB=20")).values()

        def work(number: int) -> Holdings:
            if number:
                return hammer(backend, uuid, f"worker{number}", 12)
            for turn in range(12):
                define(backend, Provider("hot", f"VCPU={10 + turn % 2 * 10},MEMORY_MB=20"))
            return {}

        holdings = together(work, 4)
        found = picture(backend)
        assert found.allocations == _allocations(holdings)
        assert found.used("hot", "VCPU") <= 20
