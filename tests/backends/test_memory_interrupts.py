"""An interrupted write to a ledger in memory is whole or nothing, wherever it was interrupted."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import os
import pickle
import sys
import uuid as uuids
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from resource_objects import store
from resource_objects.backends import memory
from resource_objects.backends.memory import MemoryBackend
from resource_objects.providers import Backend, Provider
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.listing import ProviderFilter, Pruned
from resource_objects.providers.orders import (
    ConsumerOrder,
    NameAction,
    NameChange,
    NameKind,
    Operation,
    Use,
    Write,
)
from resource_objects.providers.provider import Share
from resource_objects.providers.statistics import StatisticFilter, StatisticsOrder
from resource_objects.resources import Inventories
from resource_objects.testing.conformance.statistics import LOAD, UP
from resource_objects.testing.conformance.suite import (
    changes_to,
    claim,
    define,
    deltas,
    ledger_state,
    stored_tree,
)
from resource_objects.testing.refusals import raises_code
from tests.support.lengths import some

_HERE, _THERE = (str(uuids.uuid4()) for _ in range(2))
_CHILDREN = {name: str(uuids.uuid4()) for name in ("a", "b", "gone")}
_OPERATION = Operation()
#: where the code of the memory backend and of the core is
_PACKAGES = os.path.dirname(memory.__file__), os.path.dirname(store.__file__)


@functools.cache
def _small_state() -> bytes:
    ledger = MemoryBackend.open(memory.URL)
    root = Provider("host0", "VCPU=8,DISK_GB=8,PGPU=8", uuid=_HERE, aggregates=["rack"])
    for name, uuid in _CHILDREN.items():
        share = Share(resource_class="PGPU", of="host0", of_class="PGPU")
        root.add(name, "PGPU=1", uuid=uuid, shares=[share])
    define(ledger, root, Provider("host1", "VCPU=8", uuid=_THERE))
    claim(ledger, "held", {_HERE: "VCPU=2,DISK_GB=1", _THERE: "VCPU=1"})
    units = (Use(_CHILDREN["gone"], "PGPU", 1, ("card",)),)
    ledger.claim(Operation(), ConsumerOrder.claim("units", units))
    return pickle.dumps((ledger._rows, ledger.epoch))


def _small_ledger() -> MemoryBackend:
    ledger = MemoryBackend.open(memory.URL)
    ledger._rows, ledger.epoch = pickle.loads(_small_state())
    return ledger


def _claim(ledger: Backend) -> Any:
    amounts = {_HERE: "VCPU=2,DISK_GB=1", _THERE: "VCPU=1", _CHILDREN["a"]: "PGPU=1"}
    return ledger.claim(_OPERATION, ConsumerOrder.claim("job", deltas(amounts)))


def _adjust(ledger: Backend) -> Any:
    amounts = {_HERE: "VCPU=-2,DISK_GB=1", _THERE: "VCPU=1"}
    return ledger.adjust(_OPERATION, ConsumerOrder.adjust("held", deltas(amounts)))


def _give_back_all(ledger: Backend) -> Any:
    amounts = {_HERE: "VCPU=-2,DISK_GB=-1", _THERE: "VCPU=-1"}
    return ledger.adjust(_OPERATION, ConsumerOrder.adjust("held", deltas(amounts)))


def _release(ledger: Backend) -> Any:
    return ledger.release(_OPERATION, "held")


def _change_names(ledger: Backend) -> Any:
    changes = (
        NameChange(NameKind.AGGREGATE, NameAction.RENAME, "rack", "row"),
        NameChange(NameKind.AGGREGATE, NameAction.SET_LEVEL, "row", "room"),
        NameChange(NameKind.RESOURCE_CLASS, NameAction.ENSURE, "CUSTOM_NEW"),
    )
    return ledger.commit(Write(_OPERATION, "names", "names", names=changes))


@functools.cache
def _changes() -> DefinitionChanges:
    """Return changes that swap names, move one provider below another, add and remove some."""
    ledger = _small_ledger()
    wanted = stored_tree(ledger, "host0")
    a, b, gone = (wanted.find(name) for name in ("a", "b", "gone"))
    a.update(name="b", inventories=Inventories("PGPU=2"))
    b.update(name="a", children=(a,), shares=[])
    wanted.update(children=tuple(c for c in wanted.children if c not in (a, gone)))
    wanted.add("new", "PGPU=1", traits=["CUSTOM_NEW"], aggregates=["rack", "new"])
    return changes_to(ledger, wanted)


def _reshape(ledger: Backend) -> Any:
    """Define, move the units of what goes, and pass what one holds to another."""
    orders = (
        ConsumerOrder.replace("units", (Use(_CHILDREN["a"], "PGPU", 1, ("card",)),)),
        ConsumerOrder.release("held"),
        ConsumerOrder.claim("job", deltas({_THERE: "VCPU=8"})),
    )
    return ledger.commit(Write(_OPERATION, "reshape", "host0", _changes(), orders))


class _Interrupts:
    """Interrupts a write at one instruction of the memory backend."""

    def __init__(self, write: Callable[[Backend], Any]) -> None:
        self._write = write

    def ledger(self, instruction: int) -> MemoryBackend | None:
        """Return a ledger whose write was interrupted there, None if it was over before."""
        ledger = _small_ledger()
        left = itertools.count(instruction, -1)
        fired = False

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal fired
            if fired or not frame.f_code.co_filename.startswith(_PACKAGES):
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and next(left) == 0:
                fired = True
                raise KeyboardInterrupt
            return trace

        tracer = sys.gettrace()
        sys.settrace(trace)
        try:
            self._write(ledger)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(tracer)
        return ledger if fired else None

    def first(self, is_so: Callable[[MemoryBackend | None], bool]) -> int:
        """Return the first instruction from which on something is so, by halving."""
        low, high = 0, 1 << 15
        while low < high:
            middle = (low + high) // 2
            if is_so(self.ledger(middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def some(self, apart: int, near: int) -> Iterator[int]:
        """Yield instructions to try: all around the commit, some before, each one after it.

        :param apart: before the commit every so many-th one is tried
        :param near: so many before the commit and after it are tried each
        """
        before = ledger_state(_small_ledger())
        over = self.first(lambda ledger: ledger is None)
        commit = self.first(lambda ledger: ledger is None or ledger_state(ledger) != before)
        assert 100 < commit < over
        yield from range(0, commit - near, apart)
        yield from range(commit - near, min(commit + near, over))
        yield over - 1


@pytest.mark.law(2)
@pytest.mark.parametrize(("apart", "near"), some([(59, 8), (3, 30)]))
@pytest.mark.parametrize(
    "write", [_claim, _adjust, _give_back_all, _release, _change_names, _reshape]
)
def test_an_interrupt_at_any_instruction_is_whole_or_nothing(
    write: Callable[[Backend], Any], apart: int, near: int
) -> None:
    ledger = _small_ledger()
    before = _picture(ledger)
    write(ledger)
    after, told = _picture(ledger), ledger.cursor()
    names = {name: provider.uuid for name, provider in after.providers.items()}
    assert after != before
    interrupts, seen = _Interrupts(write), []
    for instruction in interrupts.some(apart, near):
        interrupted = interrupts.ledger(instruction)
        assert interrupted is not None
        found = _picture(interrupted)  # which checks that what is used is what is held
        assert found in (before, after)
        seen.append(found == after)
        assert _held(interrupted) == found.allocations
        outcome = write(interrupted)
        assert _picture(interrupted) == after and write(interrupted) == outcome
        assert interrupted.uuids([*before.providers, *after.providers]) == names
        assert interrupted.cursor().heads == told.heads
    assert seen == sorted(seen) and {*seen} == {False, True}


@pytest.mark.law(2)
@pytest.mark.parametrize("apart", some([59, 5]))
def test_an_interrupted_rollback_is_finished_by_the_next_method(apart: int) -> None:
    # An interrupt in an except clause leaves the refusal as the handled exception of its thread.
    # It would be the context of each exception of later tests.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(_interrupt_rollbacks, apart).result()


def _interrupt_rollbacks(apart: int) -> None:
    before = _picture(_small_ledger())
    refused: dict[str, Any] = {"match": "a claim of this id exists"}
    held = _small_ledger().consumer("held")
    assert held is not None
    order = ConsumerOrder.claim("job", deltas({_HERE: "VCPU=2", _THERE: "VCPU=1"}), uuid=held.uuid)

    def write(ledger: Backend) -> None:  # it is refused when much of it is done
        with raises_code("OperationConflict", **refused):
            ledger.claim(Operation(), order)

    interrupts = _Interrupts(write)
    over = interrupts.first(lambda ledger: ledger is None)
    for instruction in (*range(0, over, apart), *range(over - 200, over)):
        interrupted = interrupts.ledger(instruction)
        assert interrupted is not None and _picture(interrupted) == before
        write(interrupted)
        assert _picture(interrupted) == before


def _picture(ledger: Backend) -> Any:
    """Return a picture where a generation says whether it is new: each write has one of its own."""
    first = {one.generation for one in ledger_state(_small_ledger()).providers.values()}
    found = ledger_state(ledger)
    providers = {
        name: dataclasses.replace(one, generation=int(one.generation not in first))
        for name, one in found.providers.items()
    }
    return dataclasses.replace(found, providers=providers)


def _held(ledger: Backend) -> dict[tuple[str, str, str], int]:
    return {
        (consumer, held.provider, held.resource_class): held.amount
        for consumer, record in ledger.held_by(["held", "job", "units"]).items()
        for held in record.held
    }


@pytest.mark.law(2)
@pytest.mark.parametrize("apart", some([23, 3]))
def test_an_interrupted_purge_leaves_a_feed_without_gaps(apart: int) -> None:
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    interrupts = _Interrupts(lambda ledger: ledger.prune(later))
    start, whole = _small_ledger().cursor(), _small_ledger().prune(later)
    assert whole.operations and whole.changes
    over = interrupts.first(lambda ledger: ledger is None)
    for instruction in range(0, over, apart):
        ledger = interrupts.ledger(instruction)
        assert ledger is not None and ledger.cursor() == start
        assert ledger.prune(later) in (Pruned(0, 0), whole)
        assert ledger.changes(start, 10) == () and ledger.prune(later) == Pruned(0, 0)


@pytest.mark.law(2)
@pytest.mark.parametrize("apart", some([13, 2]))
def test_interrupted_statistics_are_told_whole_or_not(apart: int) -> None:
    there = frozenset(_small_ledger().uuids(["host0", "a"]).values())
    wanted = StatisticsOrder({uuid: (LOAD(3), UP(True)) for uuid in there}, reported=there)
    interrupts = _Interrupts(lambda ledger: ledger.put_statistics(wanted))

    def told(ledger: Backend) -> tuple[int, int]:
        values = [len(some) for some in ledger.read_statistics(StatisticFilter()).values()]
        listed = ledger.list_providers(ProviderFilter(), 100)
        reported = [one for one in listed if one.reported_at is not None]
        return sum(values), len(reported)

    over = interrupts.first(lambda ledger: ledger is None)
    seen = []
    for instruction in (*range(0, over, apart), over - 1):
        interrupted = interrupts.ledger(instruction)
        assert interrupted is not None
        found = told(interrupted)
        assert found in ((0, 0), (4, 2))
        seen.append(found)
        interrupted.put_statistics(wanted)
        assert told(interrupted) == (4, 2)
    assert seen == sorted(seen) and len({*seen}) == 2
