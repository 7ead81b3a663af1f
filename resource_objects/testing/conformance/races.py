"""Tests of concurrency: no interleaving of threads or processes breaks an invariant.

Of several writers of the same thing one succeeds, and no writer blocks for ever. Processes run
functions of modules, which a new process can import.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from resource_objects import exceptions
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
from resource_objects.reasons import Rule
from resource_objects.resources import Inventories
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.requirements import Requirement, requires
from resource_objects.testing.refusals import is_one_of

T = TypeVar("T")
_P = ParamSpec("_P")

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
_WORKERS = 6


# --- threads and processes ---


def together(work: Callable[[int], T], workers: int = _WORKERS) -> list[T | BaseException]:
    """Run ``work(0) ... work(n - 1)`` at the same moment; return results or exceptions."""
    gate = threading.Barrier(workers)

    def wait_and_work(number: int) -> T:
        gate.wait()
        return work(number)

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(wait_and_work, number) for number in range(workers)]
    return [future.exception() or future.result() for future in futures]


def in_threads(work: Callable[[int], T], workers: int = _WORKERS) -> list[T]:
    """Run ``work(0) ... work(n - 1)`` at the same moment; return the results, or raise."""
    results = []
    for outcome in together(work, workers):
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results


def read_during(writers: Iterable[Callable[[], T]], read: Callable[[], object]) -> list[T]:
    """Run writers in threads, and ``read`` until they end and once after that."""
    done = threading.Event()

    def read_all() -> None:
        while not done.is_set():
            read()
        read()

    with ThreadPoolExecutor() as pool:
        reading = pool.submit(read_all)
        try:
            results = [future.result() for future in [pool.submit(write) for write in writers]]
        finally:
            done.set()
        reading.result()
    return results


def processes() -> multiprocessing.context.ForkServerContext:
    """Return the context of test processes: a fork server that has imported the library."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def on_backend(
    work: Callable[..., T], backend_class: type[Backend], url: str, *arguments: Any
) -> T:
    """Open a ledger and return ``work(backend, *arguments)``: for another process."""
    with contextlib.closing(backend_class.open(url)) as backend:
        return work(backend, *arguments)


@requires(Requirement.PROCESSES)
def in_processes(
    backend_class: type[Backend], url: str, work: Callable[..., T], *calls: tuple[Any, ...]
) -> list[T]:
    """Run ``work(backend, *call)`` for each call in a process of its own; return the results."""
    with ProcessPoolExecutor(len(calls), mp_context=processes()) as pool:
        futures = [pool.submit(on_backend, work, backend_class, url, *call) for call in calls]
    return [future.result() for future in futures]


def unless_refused(
    refusals: type[Exception] | str | Sequence[type[Exception] | str],
    work: Callable[_P, T],
    *arguments: _P.args,
    **options: _P.kwargs,
) -> T | None:
    """Return ``work(*arguments, **options)``, or None if it raises one of some types or codes."""
    kinds = [refusals] if isinstance(refusals, str | type) else refusals
    try:
        return work(*arguments, **options)
    except Exception as error:
        if not is_one_of(error, *kinds):
            raise
        return None


class ConcurrentKit(kit.Kit):
    """The fixture of tests that run in threads and, if the backend supports it, in processes."""

    @pytest.fixture(params=["threads", "processes"])
    def at_once(
        self, request: pytest.FixtureRequest, backend: Backend, url: str
    ) -> Callable[..., list[Any]]:
        """Return ``f(work, *calls)``, which runs ``work(backend, *call)`` for all calls at once."""
        if request.param == "processes":
            self.skip_unless_supported(in_processes)
            return functools.partial(in_processes, self.backend_class, url)
        return lambda work, *calls: in_threads(lambda n: work(backend, *calls[n]), len(calls))


# --- work of threads and processes ---


#: (consumer, provider, resource class): amount
Holdings = dict[tuple[str, str, str], int]


def define_and_claim(backend: Backend, number: int) -> None:
    """Define the host of a process and claim there."""
    names = kit.define(backend, kit.host(f"host{number}"))
    kit.claim(backend, f"job{number}", {names[f"host{number}"]: "VCPU=1"})


def hammer(backend: Backend, uuid: str, worker: str, tries: int) -> Holdings:
    """Claim, adjust and release at random; return the allocations that the worker expects."""
    chance = random.Random(worker)
    holds: Holdings = {}
    for number in range(tries):
        consumer = f"{worker}-{number}"
        amounts = {name: chance.randint(1, 3) for name in ("VCPU", "MEMORY_MB")}
        refusal = exceptions.CapacityException
        if unless_refused(refusal, kit.claim, backend, consumer, {uuid: amounts}):
            holds.update({(consumer, "hot", name): amount for name, amount in amounts.items()})
        elif holds:
            _release_some(backend, uuid, holds, chance)
    return holds


def _release_some(backend: Backend, uuid: str, holds: Holdings, chance: random.Random) -> None:
    """Release or shrink one allocation, so that other workers can continue."""
    key = chance.choice(sorted(holds))
    if holds[key] > 1 and chance.random() < 0.5:
        kit.adjust(backend, key[0], {uuid: {key[2]: -1}})
        holds[key] -= 1
        return
    kit.release(backend, key[0])
    for name in ("VCPU", "MEMORY_MB"):
        holds.pop((key[0], "hot", name), None)


def claim_within(backend: Backend, uuid: str, consumer: str, limit: int) -> int:
    """Claim single CPUs until the limit refuses one; return the number of claimed CPUs."""
    limits = {(uuid, "VCPU"): limit}
    number = 0
    while True:
        item = ConsumerOrder.claim(f"{consumer}-{number}", (Use(uuid, "VCPU", 1),))
        try:
            kit.order(backend, item, limits=limits)
        except exceptions.CapacityException as refusal:
            assert {reason.rule for reason in refusal.reasons} == {Rule.LIMIT}
            return number
        number += 1


def claim_until_killed(
    backend: Backend, uuids: Sequence[str], consumer: str, log_file: str
) -> None:
    """Claim and release until killed; write acknowledged claims and releases into a file.

    Lines are ``NAME claimed``, ``NAME releasing`` (sent, unanswered) and ``NAME released``.
    """
    with open(log_file, "ab", buffering=0) as file:
        number = 0
        while True:
            name = f"{consumer}-{os.getpid()}-{number}"
            number += 1
            kit.claim(backend, name, dict.fromkeys(uuids, "VCPU=1,MEMORY_MB=3"))
            file.write(f"{name} claimed\n".encode())
            if number % 2 == 0:
                file.write(f"{name} releasing\n".encode())
                kit.release(backend, name)
                file.write(f"{name} released\n".encode())


def _kill_at_random(
    backend_class: type[Backend], url: str, uuids: list[str], log_files: list[Path]
) -> None:
    """Start processes that claim, and kill each at a random moment."""
    context = processes()
    started = []
    for log_file in log_files:
        call = claim_until_killed, backend_class, url, uuids, log_file.name, str(log_file)
        started.append(context.Process(target=on_backend, args=call))
    try:
        for process in started:
            process.start()
        patience = time.monotonic() + 60
        while not all(path.exists() and path.stat().st_size > 300 for path in log_files):
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


def _consumers_in(log_file: Path) -> dict[str, set[str]]:
    """Return the consumers of a file by their last complete line: ``{"claimed": {names}}``."""
    last: dict[str, str] = {}
    for line in log_file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):  # an incomplete line: the process was killed during the write
            name, last[name] = line.split()
    words = ("claimed", "releasing", "released")
    return {word: {name for name in last if last[name] == word} for word in words}


def _claim_in_turn(backend: Backend, places: dict[str, str], worker: str) -> set[str]:
    """Claim one unit of some inventories in turn; return the consumers that are not released."""
    host0, cell0 = places["host0"], places["cell0"]
    moving = (host0, "CUSTOM_MOVES"), (cell0, "CUSTOM_MOVES")
    inventories = [((cell0, "VCPU"),), ((host0, "CUSTOM_A"), (host0, "CUSTOM_B")), moving]
    claimed: set[str] = set()
    for turn in range(12):
        name = f"{worker}-{turn}"
        requests = ({uuid: {kind: 1}} for uuid, kind in inventories[turn % 3])
        if any(unless_refused("InventoryNotFound", kit.claim, backend, name, r) for r in requests):
            claimed.add(name)
            if turn % 4 == 0:
                kit.release(backend, name)
                claimed.remove(name)
        kit.ledger_state(backend)  # checks the sums
    return claimed


def _rename_class(backend: Backend, turn: int) -> None:
    old, new = ("CUSTOM_A", "CUSTOM_B")[:: 1 if turn % 2 == 0 else -1]
    kit.change_names(backend, kit.rename(kit.CLASS, old, new))


def _change_shares(backend: Backend, turn: int) -> None:
    tree = kit.stored_tree(backend, "host0")
    shares = [kit.share("VCPU", "host0", factor=1 + turn % 3)] if turn % 4 else []
    tree.find("cell0").update(shares=shares)
    kit.define(backend, tree)


def _move_inventory(backend: Backend, turn: int) -> None:
    """Move an inventory with its allocations from a host to its cell, or back."""
    columns, tree = backend.read("host0"), kit.stored_tree(backend, "host0")
    source, target = tree, tree.children[0]
    if "CUSTOM_MOVES" not in source.inventories:
        source, target = target, source
    remaining, moved = dict(source.inventories.by_name()), dict(target.inventories.by_name())
    moved["CUSTOM_MOVES"] = remaining.pop("CUSTOM_MOVES")
    source.update(inventories=Inventories(remaining))
    target.update(inventories=Inventories(moved))
    allocations = zip(columns.allocations.consumer, columns.allocations.resource_class, strict=True)
    consumers = {consumer for consumer, kind in allocations if kind == "CUSTOM_MOVES"}
    uses = (Use(target.uuid or "", "CUSTOM_MOVES", 1),)
    moves = tuple(
        ConsumerOrder.replace(name, uses, generation=record.generation)
        for name, record in backend.held_by(consumers).items()
    )
    changes = kit.changes_to(backend, tree)
    backend.commit(Write(Operation(), "reshape", "host0", changes, moves))


#: Writes of one thread during the claims of the others; called with the number of the turn.
_WRITES: dict[str, Callable[[Backend, int], object]] = {
    "a class is renamed": _rename_class,
    "shares change": _change_shares,
    "an inventory moves": _move_inventory,
    "entries are pruned": lambda backend, turn: backend.prune(kit.now()),
}


# --- tests ---


def _union(holdings: list[Holdings]) -> Holdings:
    return {key: amount for holds in holdings for key, amount in holds.items()}


class ConcurrencyRules(ConcurrentKit):
    """Threads and processes on one ledger."""

    @kit.law(1, 4)
    def test_claims_at_once_never_exceed_the_capacity(
        self, backend: Backend, at_once: Callable[..., list[Holdings]]
    ) -> None:
        [uuid] = kit.define(backend, Provider("hot", "VCPU=20,MEMORY_MB=20")).values()

        def read() -> None:  # ledger_state() checks that the use is the sum of the allocations
            assert kit.ledger_state(backend).used("hot", "VCPU") <= 20

        calls = [(uuid, f"worker{number}", 30) for number in range(4)]
        [holdings] = read_during([lambda: at_once(hammer, *calls)], read)
        assert kit.ledger_state(backend).allocations == _union(holdings)

    @kit.law(4)
    def test_claims_at_once_never_exceed_a_limit(
        self, backend: Backend, at_once: Callable[..., list[int]]
    ) -> None:
        [uuid] = kit.define(backend, Provider("hot", "VCPU=40")).values()
        assert sum(at_once(claim_within, *((uuid, name, 13) for name in "abc"))) == 13
        assert kit.ledger_state(backend).used("hot", "VCPU") == 13

    @kit.law(2, 4)
    @requires(Requirement.PROCESSES)
    def test_a_kill_at_any_instruction_loses_nothing_acknowledged(
        self, backend: Backend, url: str, tmp_path: Path
    ) -> None:
        figures = "VCPU=1000000,MEMORY_MB=3000000"
        uuids = list(kit.define(backend, Provider("a", figures), Provider("b", figures)).values())
        log_files = [tmp_path / f"log_file{number}" for number in range(4)]
        for pair in (log_files[:2], log_files[2:]):
            _kill_at_random(self.backend_class, url, uuids, pair)
        state = kit.ledger_state(backend)  # also checks the sums
        stored = {consumer for consumer, _, _ in state.allocations}
        for log_file in log_files:
            consumers = _consumers_in(log_file)
            assert consumers["claimed"], "killed before anything was acknowledged"
            assert consumers["claimed"] <= stored
            assert not stored & consumers["released"]
        assert len(state.allocations) == 4 * len(stored)  # each claim is complete or absent
        assert set(state.allocations.values()) == {1, 3}
        assert state.used("a", "VCPU") == state.used("b", "VCPU") == len(stored)
        # the killed processes left no lock
        kit.claim(backend, "next", {uuids[0]: "VCPU=1"})

    @requires(Requirement.PROCESSES)
    def test_one_of_many_first_processes_creates_the_ledger(self, new_url: str) -> None:
        calls = [(number,) for number in range(5)]
        assert in_processes(self.backend_class, new_url, define_and_claim, *calls) == [None] * 5
        state = on_backend(kit.ledger_state, self.backend_class, new_url)
        assert len(state.allocations) == 5

    @kit.law(4)
    def test_a_write_repeated_at_the_same_moment_happens_once(self, backend: Backend) -> None:
        [uuid] = kit.define(backend, Provider("hot", "VCPU=8")).values()
        first, item = Operation(), ConsumerOrder.claim("job", kit.deltas({uuid: "VCPU=8"}))
        assert set(in_threads(lambda _: backend.claim(first, item))) == {backend.consumer("job")}
        second, less = Operation(), ConsumerOrder.adjust("job", kit.deltas({uuid: "VCPU=-2"}))
        assert set(in_threads(lambda _: backend.adjust(second, less))) == {backend.consumer("job")}
        assert kit.ledger_state(backend).used("hot", "VCPU") == 6
        last = Operation()
        assert len(set(in_threads(lambda _: backend.release(last, "job")))) == 1

    @kit.law(4)
    def test_one_consumer_claims_once(self, backend: Backend) -> None:
        names = kit.define(backend, *(kit.host(f"host{n}") for n in range(_WORKERS)))
        outcomes = in_threads(
            lambda n: unless_refused(
                "ConsumerExists", kit.claim, backend, "job", {names[f"host{n}"]: "VCPU=1"}
            )
        )
        assert [outcome for outcome in outcomes if outcome] == [backend.consumer("job")]
        assert len(kit.ledger_state(backend).allocations) == 1

    def test_claims_in_opposite_orders_do_not_deadlock(self, backend: Backend) -> None:
        uuids = list(kit.define(backend, kit.host("host0"), kit.host("host1")).values())

        def work(number: int) -> None:
            uses = tuple(Use(uuid, "VCPU", 1) for uuid in uuids[:: 1 if number % 2 else -1])
            for turn in range(8):
                kit.order(backend, ConsumerOrder.claim(f"job-{number}-{turn}", uses))
                kit.release(backend, f"job-{number}-{turn}")

        in_threads(work)
        assert kit.ledger_state(backend).allocations == {}

    def test_one_of_many_threads_creates_a_tree(self, backend: Backend) -> None:
        def work(number: int) -> object:
            root = Provider("host0", {f"CUSTOM_{number}": 1, "CUSTOM_SAME": 1})
            root.add("host0/gpu0", traits=[f"CUSTOM_{number}", "CUSTOM_SAME"])
            return unless_refused(("ProviderExists", "StaleDefinition"), kit.define, backend, root)

        assert any(in_threads(work))
        assert set(kit.ledger_state(backend).providers) == {"host0", "host0/gpu0"}

    def test_a_thread_that_compares_again_loses_no_change(self, backend: Backend) -> None:
        kit.define(backend, Provider("host0"))

        def work(number: int) -> None:
            changes = None
            while not changes:
                tree = kit.stored_tree(backend, "host0")
                tree.add(f"host0/{number}", {f"CUSTOM_{number % 2}": 1})
                tree.update(traits={*tree.traits, f"CUSTOM_{number}"})
                changes = unless_refused("StaleDefinition", kit.define, backend, tree)

        in_threads(work)
        providers = kit.ledger_state(backend).providers
        assert len(providers) == 1 + _WORKERS
        assert len(providers["host0"].traits) == _WORKERS

    @kit.law(1, 4)
    def test_definitions_and_claims_do_not_disturb_each_other(self, backend: Backend) -> None:
        [uuid] = kit.define(backend, Provider("hot", "VCPU=20,MEMORY_MB=20")).values()

        def work(number: int) -> Holdings:
            if number:
                return hammer(backend, uuid, f"worker{number}", 12)
            for turn in range(12):
                kit.define(backend, Provider("hot", f"VCPU={10 + turn % 2 * 10},MEMORY_MB=20"))
            return {}

        holdings = in_threads(work, 4)
        state = kit.ledger_state(backend)
        assert state.allocations == _union(holdings)
        assert state.used("hot", "VCPU") <= 20

    # --- threads that write the same things ---

    @kit.law(4)
    def test_a_unit_is_allocated_to_one_of_many_threads(self, backend: Backend) -> None:
        [uuid] = kit.define(backend, kit.host("host0", "PCPU=20")).values()

        def work(number: int) -> list[str]:
            won: list[str] = []
            units = [f"cpu{cpu}" for cpu in random.Random(number).sample(range(10), 10)]
            for pair in zip(units[::2], units[1::2], strict=True):
                item = ConsumerOrder.claim(f"job-{number}-{pair}", (Use(uuid, "PCPU", 2, pair),))
                if unless_refused("UnitTaken", kit.order, backend, item):
                    won += pair
            return won

        won = [unit for units in in_threads(work) for unit in units]
        assert sorted(unit for _, unit in kit.ledger_state(backend).units) == sorted(won) != []

    @kit.law(1, 4)
    def test_threads_never_exceed_the_target_of_shares(self, backend: Backend) -> None:
        root = Provider("host0", "VCPU=30,MEMORY_MB=9")
        for number in range(_WORKERS):
            root.add(f"cell{number}", "VCPU=20", shares=[kit.share("VCPU", "host0", factor=2)])
        names = kit.define(backend, root)

        def work(number: int) -> int:
            for turn in range(20):
                name, request = f"job-{number}-{turn}", {names[f"cell{number}"]: "VCPU=1"}
                if not unless_refused(
                    exceptions.CapacityException, kit.claim, backend, name, request
                ):
                    return turn
                assert kit.ledger_state(backend).used("host0", "VCPU") <= 30
            return 20

        assert sum(in_threads(work)) == 15
        assert kit.ledger_state(backend).used("host0", "VCPU") == 30

    @kit.law(4)
    def test_one_of_the_writers_with_the_same_generation_succeeds(self, backend: Backend) -> None:
        names = kit.define(backend, *(kit.host(f"host{n}") for n in range(_WORKERS)))
        first = kit.claim(backend, "job", {names["host0"]: "VCPU=1"})

        def work(number: int) -> Sequence[ConsumerRecord] | None:
            uses = kit.deltas({names[f"host{number}"]: "VCPU=2"})
            item = ConsumerOrder.replace("job", uses, generation=first.generation)
            return unless_refused("StaleConsumer", kit.order, backend, item)

        assert [won for won in in_threads(work) if won] == [(backend.consumer("job"),)]

    @kit.law(2, 4)
    def test_exchanges_in_opposite_orders_do_not_deadlock(self, backend: Backend) -> None:
        names = kit.define(backend, *(kit.host(f"host{n}", "VCPU=4") for n in range(3)))
        for number, uuid in enumerate(names.values()):
            kit.claim(backend, f"job-{number}", {uuid: "VCPU=4"})

        def work(number: int) -> None:
            chance = random.Random(number)
            for _ in range(8):
                pair = chance.sample(["job-0", "job-1", "job-2"], 2)
                records = backend.held_by(pair)
                moves = [
                    ConsumerOrder.replace(
                        consumer,
                        tuple(Use(*use.key, use.amount) for use in records[other].held),
                        generation=records[consumer].generation,
                    )
                    for consumer, other in (pair, pair[::-1])
                ]
                unless_refused("StaleConsumer", kit.order, backend, *moves)

        in_threads(work)
        state = kit.ledger_state(backend)
        assert {key[1] for key in state.allocations} == set(names)
        assert {state.used(name, "VCPU") for name in names} == {4}

    @kit.law(2)
    def test_writes_of_many_consumers_meet_in_any_order(self, backend: Backend) -> None:
        names = kit.define(backend, *(kit.host(f"host{n}", "VCPU=99,DISK_GB=99") for n in range(4)))
        uuids = list(names.values())
        jobs = [f"job-{n}" for n in range(6)]

        def work(number: int) -> None:
            chance = random.Random(number)
            for _ in range(6):
                sample = chance.sample(jobs, 3)
                uses = [kit.deltas({chance.choice(uuids): "VCPU=1,DISK_GB=1"}) for _ in sample]
                kit.order(backend, *map(ConsumerOrder.adjust, sample, uses))

        in_threads(work)
        records = backend.held_by(jobs)
        counted = sum(use.amount for record in records.values() for use in record.held)
        assert counted == _WORKERS * 6 * 3 * 2
        kit.ledger_state(backend)

    def test_many_threads_create_one_name(self, backend: Backend) -> None:
        created = [f"CUSTOM_{turn}" for turn in range(4)]

        def work(number: int) -> None:
            for name in created:
                if number % 2:
                    kit.change_names(backend, NameChange(kit.CLASS, NameAction.ENSURE, name))
                else:
                    kit.define(backend, Provider(f"host{number}", {name: 1}, aggregates=["rack"]))

        in_threads(work)
        names = kit.names_of(backend, kit.CLASS)
        assert len(names) == len(set(names))
        assert set(created) <= set(names)
        assert kit.names_of(backend, kit.AGGREGATE) == ["rack"]

    def test_a_name_is_deleted_while_it_is_used(self, backend: Backend) -> None:
        def work(number: int) -> None:
            for _ in range(6):
                if number % 2:
                    kit.define(
                        backend, Provider(f"host{number}", {"CUSTOM_A": 1}, traits=["CUSTOM_A"])
                    )
                    kit.define(backend, Provider(f"host{number}"))
                    continue
                kit.change_names(backend, NameChange(kit.CLASS, NameAction.ENSURE, "CUSTOM_A"))
                deletion = NameChange(kit.CLASS, NameAction.DELETE, "CUSTOM_A")
                unless_refused(("ClassInUse", "ClassNotFound"), kit.change_names, backend, deletion)

        in_threads(work)
        kit.define(backend, Provider("last", {"CUSTOM_A": 1}))
        assert kit.names_of(backend, kit.CLASS).count("CUSTOM_A") == 1

    @kit.law(1, 2)
    @pytest.mark.parametrize("write", _WRITES)
    def test_claims_are_complete_during_another_write(self, backend: Backend, write: str) -> None:
        root = Provider("host0", {"VCPU": 9999, "CUSTOM_A": 999, "CUSTOM_MOVES": 99})
        root.add("cell0", "VCPU=9999")
        places = kit.define(backend, root)

        def work(number: int) -> set[str]:
            if number:
                return _claim_in_turn(backend, places, f"job-{number}")
            for turn in range(16):
                # a refusal: another thread wrote in between
                unless_refused((exceptions.InUse, exceptions.Stale), _WRITES[write], backend, turn)
            return set()

        claimed = set[str]().union(*in_threads(work))
        state = kit.ledger_state(backend)  # checks the sums
        assert {consumer for consumer, _, _ in state.allocations} == claimed != set()
        assert set(state.allocations.values()) == {1} and len(state.allocations) == len(claimed)
        for consumer, record in backend.held_by(claimed).items():
            kit.order(backend, ConsumerOrder.release(consumer, generation=record.generation))
        assert kit.ledger_state(backend).allocations == {}
