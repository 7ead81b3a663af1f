"""An interrupted write leaves nothing behind, on every kind of database."""

from __future__ import annotations

import functools
import itertools
import sys
import uuid as uuids
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from resource_objects.backends import memory
from resource_objects.backends.memory import MemoryBackend
from resource_objects.backends.sql import claim as claim_module
from resource_objects.backends.sql import consumers, places
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Backend, Provider
from resource_objects.providers.backend import Adjustment, ClaimOrder, Operation
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.resources import Inventories
from resource_objects.testing import checker
from resource_objects.testing.conformance.base import (
    changes_to,
    claim,
    define,
    deltas,
    host,
    kept,
    picture,
)


@pytest.mark.law(2)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(
    ("module", "step"),
    [
        (claim_module, "decide"),
        (places, "change"),
        (consumers, "make"),
        (consumers, "make_claim"),
        (consumers, "make_allocations"),
    ],
    ids=["decide", "change", "make", "make_claim", "make_allocations"],
)
def test_an_interrupt_at_any_step_changes_nothing(
    ledger: SQLBackend,
    ledger_url: str,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    step: str,
    kind: type[BaseException],
) -> None:
    names = define(ledger, host())
    claim(ledger, "other", {names["host0"]: "VCPU=1"})
    before = picture(ledger)

    def interrupt(*_: Any) -> None:
        raise kind

    monkeypatch.setattr(module, step, interrupt)
    operation = Operation()
    order = ClaimOrder("job", deltas({names["host0"]: "VCPU=1,MEMORY_MB=1"}))
    with pytest.raises(kind):
        ledger.claim(operation, order)
    monkeypatch.undo()
    assert picture(ledger) == before
    assert ledger.claim(operation, order) == ledger.held("job")
    assert checker.problems(ledger_url) == []


# --- in memory: at every instruction ---

_HERE, _THERE = (str(uuids.uuid4()) for _ in range(2))
_CHILDREN = {name: str(uuids.uuid4()) for name in ("a", "b", "gone")}
_OPERATION = Operation()


def _small_ledger() -> MemoryBackend:
    ledger = MemoryBackend.open(memory.URL)
    root = Provider("host0", "VCPU=8,DISK_GB=8", uuid=_HERE)
    for name, uuid in _CHILDREN.items():
        root.add(name, "PGPU=1", uuid=uuid)
    define(ledger, root, Provider("host1", "VCPU=8", uuid=_THERE))
    claim(ledger, "held", {_HERE: "VCPU=2,DISK_GB=1", _THERE: "VCPU=1"})
    return ledger


def _claim(ledger: Backend) -> Any:
    amounts = {_HERE: "VCPU=2,DISK_GB=1", _THERE: "VCPU=1"}
    return ledger.claim(_OPERATION, ClaimOrder("job", deltas(amounts)))


def _adjust(ledger: Backend) -> Any:
    amounts = {_HERE: "VCPU=-2,DISK_GB=1", _THERE: "VCPU=1"}
    return ledger.adjust(_OPERATION, Adjustment("held", deltas(amounts)))


def _give_back_all(ledger: Backend) -> Any:
    amounts = {_HERE: "VCPU=-2,DISK_GB=-1", _THERE: "VCPU=-1"}
    return ledger.adjust(_OPERATION, Adjustment("held", deltas(amounts)))


def _release(ledger: Backend) -> Any:
    return ledger.release(_OPERATION, "held")


@functools.cache
def _changes() -> DefinitionChanges:
    ledger = _small_ledger()
    wanted = kept(ledger, "host0")
    a, b, gone = (wanted.find(name) for name in ("a", "b", "gone"))
    a.update(name="b", inventories=Inventories("PGPU=2"))
    b.update(name="a", children=(a,))
    wanted.update(children=tuple(c for c in wanted.children if c not in (a, gone)))
    wanted.add("new", "PGPU=1")
    return changes_to(ledger, wanted)


def _define(ledger: Backend) -> Any:
    ledger.define(_OPERATION, _changes())


def _interrupted(work: Callable[[], Any], instruction: int) -> bool:
    """Run ``work``; raise at so many instructions of the memory backend. Return whether it was."""
    left = itertools.count(instruction, -1)
    fired = False

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal fired
        if frame.f_code.co_filename != memory.__file__ or fired:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(left) == 0:
            fired = True
            raise KeyboardInterrupt
        return trace

    tracer = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(tracer)
    return fired


@pytest.mark.law(2)
@pytest.mark.parametrize("write", [_claim, _adjust, _give_back_all, _release, _define])
def test_an_interrupt_at_any_instruction_in_memory_is_whole_or_nothing(
    write: Callable[[Backend], Any],
) -> None:
    ledger = _small_ledger()
    before = picture(ledger)
    write(ledger)
    after = picture(ledger)
    assert after != before
    seen = []
    for instruction in itertools.count():
        ledger = _small_ledger()
        if not _interrupted(functools.partial(write, ledger), instruction):
            break
        found = picture(ledger)  # which checks that what is used is what is held
        assert found in (before, after)
        seen.append(found == after)
        holds = {}
        for consumer in ("held", "job"):
            record = ledger.held(consumer)
            for held in record.held if record is not None else ():
                holds[consumer, held.provider, held.resource_class] = held.amount
        assert holds == found.allocations
        outcome = write(ledger)
        assert picture(ledger) == after and write(ledger) == outcome
        names = {name: kept.uuid for name, kept in after.providers.items()}
        assert ledger.uuids([*before.providers, *after.providers]) == names
    assert seen == sorted(seen) and {*seen} == {False, True}
