"""Tests of concurrency: no interleaving of threads or processes breaks an invariant.

Of several writers of the same thing one succeeds, and no writer blocks for ever. Processes run
functions of this module, which a new process can import.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from resource_objects import exceptions
from resource_objects.ledger import Ledger
from resource_objects.providers import Backend, Provider
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    NameAction,
    NameChange,
    Operation,
    Use,
    Write,
)
from resource_objects.providers.provider import Share
from resource_objects.resources import Inventories
from resource_objects.resources.numa import numa
from resource_objects.resources.pci import devices
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.conformance.suite import (
    AGGREGATE,
    CLASS,
    Kit,
    adjust,
    change_names,
    changes_to,
    claim,
    define,
    deltas,
    host,
    law,
    ledger_state,
    names_of,
    now,
    order,
    release,
    rename,
    stored_tree,
)
from resource_objects.testing.refusals import is_one_of

#: Modules that are imported before processes fork; missing ones are ignored.
_PRELOADED = [
    __name__,
    "resource_objects.backends.sql.backend",
    "resource_objects.ledger",
    "resource_objects.search.search",
    "resource_objects.host.tracker",
    "alembic.migration",
    "alembic.operations",
    "alembic.script",
    "psycopg",
    "pymysql",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.mysql.pymysql",
]

#: (consumer, resource class): amount
Holdings = dict[tuple[str, str], int]


def processes() -> multiprocessing.context.ForkServerContext:
    """Return the context of test processes: a fork server that has imported the library."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def define_and_claim(backend_class: type[Backend], url: str, number: int) -> None:
    """Open a ledger, define the host of a process and claim there."""
    backend = backend_class.open(url)
    try:
        names = define(backend, host(f"host{number}"))
        claim(backend, f"job{number}", {names[f"host{number}"]: "VCPU=1"})
    finally:
        backend.close()


def hammer(backend: Backend, uuid: str, worker: str, tries: int) -> Holdings:
    """Claim, adjust and release at random; return the allocations that the worker expects."""
    chance = random.Random(worker)
    holds: Holdings = {}
    for number in range(tries):
        consumer = f"{worker}-{number}"
        amounts = {name: chance.randint(1, 3) for name in ("VCPU", "MEMORY_MB")}
        try:
            claim(backend, consumer, {uuid: amounts})
            holds.update({(consumer, name): amount for name, amount in amounts.items()})
        except exceptions.CapacityException:
            _give_back(backend, uuid, holds, chance)
    return holds


def _give_back(backend: Backend, uuid: str, holds: Holdings, chance: random.Random) -> None:
    """Release or shrink one allocation, so that other workers can continue."""
    if not holds:
        return
    consumer, resource_class = chance.choice(sorted(holds))
    amount = holds[consumer, resource_class]
    if amount > 1 and chance.random() < 0.5:
        adjust(backend, consumer, {uuid: {resource_class: -1}})
        holds[consumer, resource_class] = amount - 1
        return
    release(backend, consumer)
    for name in ("VCPU", "MEMORY_MB"):
        holds.pop((consumer, name), None)


def hammer_elsewhere(
    backend_class: type[Backend], url: str, uuid: str, worker: str, tries: int
) -> Holdings:
    """Open a ledger and :func:`hammer` it."""
    backend = backend_class.open(url)
    try:
        return hammer(backend, uuid, worker, tries)
    finally:
        backend.close()


def claim_topologies(
    backend_class: type[Backend], url: str, host: str, worker: str, tries: int
) -> dict[str, str]:
    """Claim and release topologies at random; return the CPUs of each remaining consumer."""
    ledger = Ledger(backend_class.open(url))
    chance = random.Random(worker)
    cpus: dict[str, str] = {}
    with ledger:
        for number in range(tries):
            name = f"{worker}-{number}"
            cells = chance.choice([1, 1, 2])
            amount = numa(cells, dedicated=cells * chance.randint(1, 2), shared=cells)
            try:
                ledger.claim(name, {host: {"NUMA_TOPOLOGY": amount}})
                cpus[name] = _dedicated(ledger, name, host)
            except exceptions.CapacityException:
                for cpu in list(cpus)[:2]:
                    ledger.release(cpu)
                    del cpus[cpu]
    return cpus


def _dedicated(ledger: Ledger, name: str, host: str) -> str:
    assigned: Any = ledger.assigned_amounts(name)[host]["NUMA_TOPOLOGY"]
    return ",".join(str(cpu) for placed in assigned.placed for _, cpu in placed.pins)


def claim_devices(
    backend_class: type[Backend], url: str, host: str, worker: str, tries: int
) -> dict[str, list[str]]:
    """Claim and release devices at random; return the units of each remaining consumer."""
    ledger = Ledger(backend_class.open(url))
    chance = random.Random(worker)
    claimed: dict[str, list[str]] = {}
    with ledger:
        for number in range(tries):
            name = f"{worker}-{number}"
            amount = devices(chance.choice(["SRIOV_NET_VF", "SRIOV_NET_VF", "CUSTOM_CARD"]))
            try:
                ledger.claim(name, {host: {"DEVICES": amount}})
                assigned: Any = ledger.assigned_amounts(name)[host]["DEVICES"]
                claimed[name] = [unit for item in assigned.placed for unit in item.units]
            except exceptions.CapacityException:
                for removed in list(claimed)[:2]:
                    ledger.release(removed)
                    del claimed[removed]
    return claimed


def claim_until_killed(
    backend_class: type[Backend], url: str, uuids: Sequence[str], consumer: str, log_file: str
) -> None:
    """Claim and release until killed; write acknowledged claims and releases into a file.

    Lines are ``claimed NAME``, ``releasing NAME`` (sent, unanswered) and ``released NAME``.
    """
    backend = backend_class.open(url)
    with open(log_file, "ab", buffering=0) as file:
        number = 0
        while True:
            name = f"{consumer}-{os.getpid()}-{number}"
            number += 1
            try:
                claim(backend, name, dict.fromkeys(uuids, "VCPU=1,MEMORY_MB=3"))
            except exceptions.CapacityException:
                continue
            file.write(f"claimed {name}\n".encode())
            if number % 2 == 0:
                file.write(f"releasing {name}\n".encode())
                release(backend, name)
                file.write(f"released {name}\n".encode())


# --- concurrent threads and processes ---


T = TypeVar("T")

_WORKERS = 6


def together(work: Callable[[int], T], workers: int = _WORKERS) -> list[T | BaseException]:
    """Run ``work(0) ... work(n - 1)`` at the same moment; return results or exceptions."""
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
    backend_class: type[Backend], url: str, uuids: list[str], log_files: list[Path]
) -> None:
    """Start processes that claim, and kill each at a random moment."""
    context = processes()
    started = [
        context.Process(
            target=claim_until_killed,
            args=(backend_class, url, uuids, log_file.name, str(log_file)),
        )
        for log_file in log_files
    ]
    try:
        for process in started:
            process.start()
        patience = time.monotonic() + 60
        while not all(
            log_file.exists() and log_file.stat().st_size > 300 for log_file in log_files
        ):
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


def _acknowledged(log_file: str) -> tuple[set[str], set[str]]:
    """Return the acknowledged claims without a release, and those being released."""
    state: dict[str, str] = {}
    for line in log_file.splitlines(keepends=True):
        if line.endswith("\n"):  # an incomplete line: the process was killed during the write
            word, name = line.split()
            state[name] = word
    unsure = {name for name, word in state.items() if word == "releasing"}
    return {name for name, word in state.items() if word == "claimed"}, unsure


def _released(log_file: str) -> set[str]:
    return {line.split()[1] for line in log_file.splitlines() if line.startswith("released")}


class ConcurrencyRules(Kit):
    """Threads and processes on one ledger."""

    @law(1, 4)
    def test_threads_never_exceed_the_capacity(self, backend: Backend) -> None:
        [uuid] = define(backend, Provider("hot", "VCPU=20,MEMORY_MB=20")).values()
        done = threading.Event()

        def look() -> None:
            # ledger_state() checks that the use is the sum of the allocations
            while not done.is_set():
                assert ledger_state(backend).used("hot", "VCPU") <= 20

        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(look)
            try:
                holdings = together(lambda n: hammer(backend, uuid, f"worker{n}", 20))
            finally:
                done.set()
            looking.result()
        assert ledger_state(backend).allocations == _allocations(holdings)

    @law(1, 4)
    @requires(Requirement.PROCESSES)
    def test_processes_never_exceed_the_capacity(self, backend: Backend, url: str) -> None:
        [uuid] = define(backend, Provider("hot", "VCPU=20,MEMORY_MB=20")).values()
        with ProcessPoolExecutor(2, mp_context=processes()) as pool:
            futures = [
                pool.submit(hammer_elsewhere, self.backend_class, url, uuid, f"process{n}", 30)
                for n in range(2)
            ]
            here = hammer(backend, uuid, "here", 30)
            holdings = [here, *(future.result() for future in futures)]
        state = ledger_state(backend)
        assert state.allocations == _allocations(holdings)
        assert state.used("hot", "VCPU") <= 20

    @law(2, 4)
    @requires(Requirement.PROCESSES)
    def test_a_kill_at_any_instruction_loses_nothing_acknowledged(
        self, backend: Backend, url: str, tmp_path: Path
    ) -> None:
        names = define(
            backend, *(Provider(name, "VCPU=1000000,MEMORY_MB=3000000") for name in ("a", "b"))
        )
        uuids = list(names.values())
        log_files = [tmp_path / f"log_file{number}" for number in range(4)]
        for pair in (log_files[:2], log_files[2:]):
            _kill_at_random(self.backend_class, url, uuids, pair)
        allocations = ledger_state(backend).allocations  # also checks the sums
        uses = {consumer for consumer, _, _ in allocations}
        for log_file in log_files:
            claimed, unsure = _acknowledged(log_file.read_text())
            assert claimed <= uses | unsure
            assert not uses & _released(log_file.read_text())
            assert claimed, "killed before anything was acknowledged"
        assert len(allocations) == 4 * len(uses)  # each claim is complete or absent
        assert all(amount in (1, 3) for amount in allocations.values())
        for provider in ("a", "b"):
            assert ledger_state(backend).used(provider, "VCPU") == len(uses)
        # the killed processes left no lock
        claim(backend, "next", {uuids[0]: "VCPU=1"})

    @requires(Requirement.PROCESSES)
    def test_one_of_many_first_processes_creates_the_ledger(self, new_url: str) -> None:
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
            assert len(ledger_state(opened).allocations) == len(started)
        finally:
            opened.close()

    @law(4)
    def test_a_write_repeated_at_the_same_moment_happens_once(self, backend: Backend) -> None:
        [uuid] = define(backend, Provider("hot", "VCPU=8")).values()
        operation, order = Operation(), ConsumerOrder.claim("job", deltas({uuid: "VCPU=8"}))
        outcomes = together(lambda _: backend.claim(operation, order))
        assert set(outcomes) == {backend.held("job")}
        again, more = Operation(), ConsumerOrder.adjust("job", deltas({uuid: "VCPU=-2"}))
        outcomes = together(lambda _: backend.adjust(again, more))
        assert set(outcomes) == {backend.held("job")}
        assert ledger_state(backend).used("hot", "VCPU") == 6
        last = Operation()
        assert len(set(together(lambda _: backend.release(last, "job")))) == 1

    @law(4)
    def test_one_consumer_claims_once(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}") for n in range(_WORKERS)))
        outcomes = together(lambda n: claim(backend, "job", {names[f"host{n}"]: "VCPU=1"}))
        [won] = [outcome for outcome in outcomes if isinstance(outcome, ConsumerRecord)]
        lost = [outcome for outcome in outcomes if outcome is not won]
        assert all(is_one_of(outcome, "ConsumerExists") for outcome in lost), lost
        assert backend.held("job") == won
        assert len(ledger_state(backend).allocations) == 1

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
        assert {uses.amount for uses in record.held} == {3, 8}
        ledger_state(backend)

    def test_claims_in_opposite_orders_do_not_deadlock(self, backend: Backend) -> None:
        names = define(backend, host("host0"), host("host1"))
        uuids = list(names.values())

        def work(number: int) -> None:
            ordered = uuids if number % 2 else uuids[::-1]
            for turn in range(8):
                expected = tuple(Use(uuid, "VCPU", 1) for uuid in ordered)
                backend.claim(Operation(), ConsumerOrder.claim(f"job-{number}-{turn}", expected))
                release(backend, f"job-{number}-{turn}")

        assert together(work) == [None] * _WORKERS
        assert ledger_state(backend).allocations == {}

    def test_one_of_many_threads_creates_a_tree(self, backend: Backend) -> None:
        def work(number: int) -> None:
            root = Provider("host0", {f"CUSTOM_{number}": 1, "CUSTOM_SAME": 1})
            root.add("host0/gpu0", traits=[f"CUSTOM_{number}", "CUSTOM_SAME"])
            backend.define(Operation(), changes_to(backend, root))

        outcomes = together(work)
        assert None in outcomes
        refused = ("ProviderExists", "StaleDefinition")
        assert all(outcome is None or is_one_of(outcome, *refused) for outcome in outcomes), (
            outcomes
        )
        assert set(ledger_state(backend).providers) == {"host0", "host0/gpu0"}

    def test_a_thread_that_compares_again_loses_no_change(self, backend: Backend) -> None:
        define(backend, Provider("host0"))

        def work(number: int) -> None:
            while True:
                tree = stored_tree(backend, "host0")
                tree.add(f"host0/{number}", {f"CUSTOM_{number % 2}": 1})
                tree.update(traits={*tree.traits, f"CUSTOM_{number}"})
                try:
                    backend.define(Operation(), changes_to(backend, tree))
                    return
                except exceptions.Stale as error:
                    if not error.is_about("provider"):
                        raise
                    continue

        assert together(work) == [None] * _WORKERS
        providers = ledger_state(backend).providers
        assert len(providers) == 1 + _WORKERS
        assert len(providers["host0"].traits) == _WORKERS

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
        state = ledger_state(backend)
        assert state.allocations == _allocations(holdings)
        assert state.used("hot", "VCPU") <= 20


# --- races of several writers ---


_RACERS = 6


def _raised(outcomes: list[Any], *kinds: type[Exception] | str) -> list[Any]:
    """Return the raised exceptions; check that each has one of the types or codes."""
    raised = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert all(is_one_of(outcome, *kinds) for outcome in raised), raised
    return raised


class RaceRules(Kit):
    """Threads that write the same things at the same moment."""

    @law(4)
    def test_a_unit_is_allocated_to_one_of_many_threads(self, backend: Backend) -> None:
        [here] = define(backend, host("host0", "PCPU=20")).values()

        def work(number: int) -> list[str]:
            chance, won = random.Random(number), []
            units = chance.sample(range(10), 10)
            for first, second in zip(units[::2], units[1::2], strict=True):
                use = Use(here, "PCPU", 2, (f"cpu{first}", f"cpu{second}"))
                consumer = f"job-{number}-{first}"
                try:
                    order(backend, ConsumerOrder.claim(consumer, (use,)))
                    won += list(use.units)
                except exceptions.CapacityException as error:
                    if error.code != "UnitTaken":
                        raise
                    continue
            return won

        outcomes = together(work)
        _raised(outcomes)
        won = [unit for outcome in outcomes for unit in outcome]  # type: ignore[union-attr]
        assert len(won) == len(set(won)) > 0
        state = ledger_state(backend)
        assert {unit for _, unit in state.units} == set(won)
        assert state.used("host0", "PCPU") == len(won)

    @law(1, 4)
    def test_threads_never_exceed_the_target_of_shares(self, backend: Backend) -> None:
        root = Provider("host0", "VCPU=30,MEMORY_MB=9")
        for number in range(_RACERS):
            share = Share(resource_class="VCPU", of="host0", of_class="VCPU", factor=2)
            root.add(f"cell{number}", "VCPU=20", shares=[share])
        names = define(backend, root)

        def work(number: int) -> int:
            for turn in range(20):
                try:
                    claim(backend, f"job-{number}-{turn}", {names[f"cell{number}"]: "VCPU=1"})
                except exceptions.CapacityException:
                    return turn
                assert ledger_state(backend).used("host0", "VCPU") <= 30
            return 20

        outcomes = together(work)
        _raised(outcomes)
        assert sum(outcomes) == 15  # type: ignore[arg-type]
        assert ledger_state(backend).used("host0", "VCPU") == 30

    @law(4)
    def test_one_of_the_writers_with_the_same_generation_succeeds(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}") for n in range(_RACERS)))
        first = claim(backend, "job", {names["host0"]: "VCPU=1"})

        def work(number: int) -> ConsumerRecord:
            uses = deltas({names[f"host{number}"]: "VCPU=2"})
            [record] = order(
                backend, ConsumerOrder.replace("job", uses, generation=first.generation)
            )
            return record

        outcomes = together(work)
        assert len(_raised(outcomes, "StaleConsumer")) == _RACERS - 1
        [won] = [outcome for outcome in outcomes if isinstance(outcome, ConsumerRecord)]
        assert backend.held("job") == won

    @law(2, 4)
    def test_exchanges_in_opposite_orders_do_not_deadlock(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=4") for n in range(3)))
        uuids = list(names.values())
        for number in range(3):
            claim(backend, f"job-{number}", {uuids[number]: "VCPU=4"})

        def work(number: int) -> None:
            chance = random.Random(number)
            for _ in range(8):
                here, destination = chance.sample(range(3), 2)
                pair = [f"job-{here}", f"job-{destination}"]
                records = backend.held_by(pair)
                moves = [
                    ConsumerOrder.replace(
                        item,
                        tuple(Use(h.provider_uuid, "VCPU", 4) for h in records[other].held),
                        generation=records[item].generation,
                    )
                    for item, other in (pair, pair[::-1])
                ]
                try:
                    order(backend, *moves)
                except exceptions.Stale as error:
                    if not error.is_about("consumer"):
                        raise
                    continue

        _raised(together(work))
        state = ledger_state(backend)
        assert {key[1] for key in state.allocations} == {"host0", "host1", "host2"}
        assert {state.used(name, "VCPU") for name in names} == {4}

    @law(2)
    def test_writes_of_many_consumers_meet_in_any_order(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=99,DISK_GB=99") for n in range(4)))
        uuids = list(names.values())
        jobs = [f"job-{n}" for n in range(6)]

        def work(number: int) -> None:
            chance = random.Random(number)
            for _ in range(6):
                sample = chance.sample(jobs, 3)
                expected = [
                    ConsumerOrder.adjust(job, deltas({chance.choice(uuids): "VCPU=1,DISK_GB=1"}))
                    for job in sample
                ]
                order(backend, *expected)

        assert together(work) == [None] * _RACERS
        records = backend.held_by(jobs)
        counted = sum(use.amount for record in records.values() for use in record.held)
        assert counted == _RACERS * 6 * 3 * 2
        ledger_state(backend)

    def test_many_threads_create_one_name(self, backend: Backend) -> None:
        def work(number: int) -> None:
            for turn in range(4):
                name = NameChange(CLASS, NameAction.ENSURE, f"CUSTOM_{turn}")
                if number % 2:
                    change_names(backend, name)
                else:
                    root = Provider(f"host{number}", {f"CUSTOM_{turn}": 1}, aggregates=["rack"])
                    define(backend, root)

        assert together(work) == [None] * _RACERS
        names = names_of(backend, CLASS)
        assert len(names) == len(set(names))
        assert {f"CUSTOM_{turn}" for turn in range(4)} <= set(names)
        assert names_of(backend, AGGREGATE) == ["rack"]

    @law(2)
    def test_a_class_is_renamed_during_claims(self, backend: Backend) -> None:
        names = define(backend, Provider("user", {"CUSTOM_A": 999}))
        here = names["user"]

        def work(number: int) -> int:
            if number == 0:
                for turn in range(8):
                    old, new = ("CUSTOM_A", "CUSTOM_B")[:: 1 if turn % 2 == 0 else -1]
                    change_names(backend, rename(CLASS, old, new))
                return 0
            won = 0
            for turn in range(12):
                try:
                    expected = {here: {("CUSTOM_A", "CUSTOM_B")[turn % 2]: 1}}
                    claim(backend, f"job-{number}-{turn}", expected)
                    won += 1
                except exceptions.CapacityException as error:
                    if error.code != "InventoryNotFound":
                        raise
                    continue
            return won

        outcomes = together(work)
        _raised(outcomes)
        state = ledger_state(backend)
        assert state.used("user", "CUSTOM_A") == sum(outcomes)  # type: ignore[arg-type]

    def test_a_name_is_deleted_while_it_is_used(self, backend: Backend) -> None:
        def work(number: int) -> None:
            for _ in range(6):
                if number % 2:
                    define(backend, Provider(f"host{number}", {"CUSTOM_A": 1}, traits=["CUSTOM_A"]))
                    define(backend, Provider(f"host{number}"))
                    continue
                change_names(backend, NameChange(CLASS, NameAction.ENSURE, "CUSTOM_A"))
                try:
                    change_names(backend, NameChange(CLASS, NameAction.DELETE, "CUSTOM_A"))
                except (exceptions.InUse, exceptions.NotFound):
                    continue

        assert together(work) == [None] * _RACERS
        define(backend, Provider("last", {"CUSTOM_A": 1}))
        assert names_of(backend, CLASS).count("CUSTOM_A") == 1

    @law(1)
    def test_shares_change_during_claims(self, backend: Backend) -> None:
        root = Provider("host0", "VCPU=9999")
        root.add("cell0", "VCPU=9999")
        names = define(backend, root)

        def work(number: int) -> None:
            if number == 0:
                for turn in range(12):
                    tree = stored_tree(backend, "host0")
                    share = Share(
                        resource_class="VCPU", of="host0", of_class="VCPU", factor=1 + turn % 3
                    )
                    tree.find("cell0").update(shares=(share,) if turn % 4 else ())
                    define(backend, tree)
                return
            for turn in range(12):
                claim(backend, f"job-{number}-{turn}", {names["cell0"]: "VCPU=1"})
                if turn % 3 == 0:
                    release(backend, f"job-{number}-{turn}")
                ledger_state(backend)  # checks the sums

        assert together(work) == [None] * _RACERS
        assert ledger_state(backend).used("cell0", "VCPU") == 8 * (_RACERS - 1)

    @law(1, 2)
    def test_an_inventory_moves_during_claims(self, backend: Backend) -> None:
        root = Provider("host0", "VCPU=99")
        root.add("cell0")
        names = define(backend, root)
        places = [names["host0"], names["cell0"]]

        def work(number: int) -> int:
            if number == 0:
                return sum(_move_inventory(backend, places) for _ in range(40))
            won = 0
            for turn in range(10):
                for place in places:
                    try:
                        claim(backend, f"job-{number}-{turn}", {place: "VCPU=1"})
                        won += 1
                        break
                    except exceptions.CapacityException as error:
                        if error.code != "InventoryNotFound":
                            raise
                        continue
            return won

        outcomes = together(work)
        _raised(outcomes)
        state = ledger_state(backend)
        assert len(state.allocations) == sum(outcomes[1:])  # type: ignore[arg-type]
        assert sum(_move_inventory(backend, places) for _ in range(2)) == 2
        assert len({key[1] for key in state.allocations}) <= 1

    @law(2)
    def test_pruning_does_not_disturb_claims(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n}", "VCPU=999") for n in range(3)))
        uuids = list(names.values())

        def work(number: int) -> None:
            for turn in range(10):
                if number == 0:
                    backend.prune(now())
                    continue
                consumer_order = ConsumerOrder.claim(
                    f"job-{number}-{turn}", deltas({uuids[number % 3]: "VCPU=1"})
                )
                backend.claim(Operation(), consumer_order)
                if turn % 2:
                    release(backend, consumer_order.consumer)

        assert together(work) == [None] * _RACERS
        state = ledger_state(backend)
        assert len(state.allocations) == 5 * (_RACERS - 1)
        for consumer, _, _ in state.allocations:
            record = backend.held(consumer)
            assert record is not None
            order(backend, ConsumerOrder.release(consumer, generation=record.generation))


def _move_inventory(backend: Backend, places: list[str]) -> int:
    """Move the CPUs with their allocations between two providers; return 1 if they moved."""
    columns = backend.read("host0")
    tree = stored_tree(backend, "host0")
    cell = tree.children[0]
    at = [item for item in (tree, cell) if len(item.inventories)]
    if len(at) != 1:
        return 0
    destination = places[1] if at[0] is tree else places[0]
    (tree if at[0] is tree else cell).update(inventories=Inventories())
    (cell if at[0] is tree else tree).update(inventories=Inventories("VCPU=99"))
    records = backend.held_by(set(columns.allocations.consumer))
    moves = tuple(
        ConsumerOrder.replace(name, (Use(destination, "VCPU", 1),), generation=record.generation)
        for name, record in records.items()
    )
    try:
        changes = changes_to(backend, tree)
        backend.commit(Write(Operation(), "reshape", "host0", changes, moves))
    except (exceptions.InUse, exceptions.Stale):
        return 0  # another thread wrote in between
    return 1
