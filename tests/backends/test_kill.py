"""Never over, never lost: storms of writers that are killed, and who judges the judge."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resource_objects.backends.memory import MemoryBackend
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Backend
from resource_objects.providers.orders import ConsumerOrder, Operation, Use, Write
from resource_objects.testing.conformance.suite import changes_to
from tests import conftest, databases
from tests.backends import broken
from tests.support import diary, evidence, storm
from tests.support.diary import Asked
from tests.support.evidence import Evidence
from tests.support.judge import judge
from tests.support.writers import (
    DeviceWriter,
    Task,
    TopologyWriter,
    Writer,
    device_hosts,
    hot_hosts,
    numa_hosts,
)

#: Seconds of each storm on a database: short, and long; minutes are in ``long_kill.py``.
SHORT, LONG = 1.5, 25.0

#: Kinds of writes that a storm makes.
KINDS = 19

_each_database = pytest.mark.parametrize(
    "database_kind",
    [pytest.param(kind, marks=pytest.mark.backend(kind)) for kind in databases.KINDS],
    indirect=True,
)


def _storm(
    backend_class: type[Backend], url: str, folder: Path, seconds: float, **how: Any
) -> storm.Report:
    SQLBackend.upgrade_database(url)
    if not url.startswith("sqlite"):
        how.setdefault("cut", functools.partial(storm.cut_connections, url))
    return storm.storm(backend_class, url, folder / "diaries", seconds=seconds, sql=url, **how)


@pytest.mark.law(1, 2, 4)
@_each_database
def test_nothing_is_over_and_nothing_lost_in_a_short_storm(
    database_kind: str, database_url: str, tmp_path: Path
) -> None:
    report = _storm(SQLBackend, database_url, tmp_path, SHORT, kill_every=0.3)
    assert not report.problems, report
    assert report.killed and report.acknowledged, report


@pytest.mark.long
@pytest.mark.law(1, 2, 4)
@_each_database
def test_nothing_is_over_and_nothing_lost(
    database_kind: str, database_url: str, tmp_path: Path
) -> None:
    report = _storm(SQLBackend, database_url, tmp_path, LONG)
    print(report)  # which pytest -rP shows
    assert not report.problems, report
    assert report.killed > 5 and (report.cut > 5 or database_kind == "sqlite")
    # every kind of write got through, and what is fought over was refused
    assert len(report.acknowledged) >= KINDS - 2, report  # a rare one may not, if all is slow
    assert {"CapacityException", "UnitTaken"} <= set(report.refused), report


# --- what is broken is found ---


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "backend_class", "writer", "said"),
    [
        ("sqlite", broken.Forgetful, Writer, "lost: "),
        ("sqlite", broken.Late, Writer, "nothing gave it that"),
        ("postgresql", broken.Late, Writer, "nothing gave it that"),
        ("postgresql", broken.Blind, Writer, "over: "),
        ("mysql", broken.Blind, Writer, "over: "),
        ("postgresql", broken.Absolute, Writer, "held"),
        ("postgresql", broken.Careless, Writer, "twice: "),
        ("postgresql", broken.Careless, TopologyWriter, "twice: "),
        ("postgresql", broken.Careless, DeviceWriter, "twice: "),
    ],
)
def test_a_broken_backend_is_found_out(
    kind: str,
    backend_class: type[Backend],
    writer: type[Writer],
    said: str,
    scratch: databases.Scratch,
    tmp_path: Path,
) -> None:
    if kind != "sqlite":
        conftest.require_server(kind)
    for turn in range(1, 5):  # a race that is lost once may be won by who has more time for it
        url = scratch.create(kind)
        try:
            folder = tmp_path / str(turn)
            how: dict[str, Any] = {"kill_every": 0.5 * turn, "cut": lambda: 0, "crew": [writer]}
            report = _storm(backend_class, url, folder, 6 * turn, **how)
        finally:
            scratch.drop(url)
        if any(said in problem for problem in report.problems):
            return
    pytest.fail(f"not found out: {report}")


# --- the judge itself ---


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, dict[str, Asked]]:
    """What is kept and what was asked after a while of some writers that nobody disturbed."""
    backend = MemoryBackend.open("memory://")
    folder = tmp_path_factory.mktemp("day")
    path = folder / "one.diary"
    write = Write(
        Operation(),
        "define",
        "the hosts",
        changes_to(backend, *hot_hosts(), *numa_hosts(), *device_hosts()),
    )
    with diary.Diary(path) as book:
        book.asks(write)
        book.did(write.operation.id, backend.commit(write))
        for who, kind, steps in (
            ("w", Writer, 400),
            ("t", TopologyWriter, 150),
            ("d", DeviceWriter, 150),
        ):
            task = Task(MemoryBackend, "memory://", who, 7, str(path), str(folder / "stop"))
            writer = kind(task, backend, book)
            for _ in range(steps):
                writer.step()
    asked, died = diary.read([path])
    assert died == []
    return evidence.of_backend(backend), asked


@pytest.fixture
def calm(day: tuple[Evidence, dict[str, Asked]]) -> tuple[Evidence, dict[str, Asked]]:
    """That, to be damaged."""
    return copy.deepcopy(day)


def test_a_calm_day_has_no_problems(calm: tuple[Evidence, dict[str, Asked]]) -> None:
    kept, asked = calm
    assert judge(kept, asked) == []
    did = {one.kind for one in asked.values() if one.did is not None}
    assert len(did) == KINDS, did


def _forget_an_operation(kept: Evidence, asked: dict[str, Asked]) -> None:
    del kept.operations[_last(kept)]


def _take_more_than_there_is(kept: Evidence, asked: dict[str, Asked]) -> None:
    for one in asked.values():
        one.capacities = [
            (uuid, name, most and (1 if name == "VCPU" else most))
            for uuid, name, most in one.capacities
        ]


def _give_a_unit_twice(kept: Evidence, asked: dict[str, Asked]) -> None:
    """Let every unit be called the same, wherever something is said of units."""
    for recorded in kept.operations.values():
        for claim in recorded.claims:
            for held in claim[-1]:
                held[3] = ["cpu0"] if held[3] else []


def _lose_what_is_held(kept: Evidence, asked: dict[str, Asked]) -> None:
    kept.holds.popitem()


def _use_something_else(kept: Evidence, asked: dict[str, Asked]) -> None:
    key, (capacity, used) = kept.inventories.popitem()
    kept.inventories[key] = capacity, used + 1


def _take_a_cpu_by_number(kept: Evidence, asked: dict[str, Asked]) -> None:
    for holds in kept.holds.values():
        for key in kept.structured.intersection(holds):
            amount, units = holds[key]
            holds[key] = amount, frozenset(sorted(units)[:-1])


def _take_the_same_of_each_cell(kept: Evidence, asked: dict[str, Asked]) -> None:
    for holds in kept.holds.values():
        for key in kept.structured.intersection(holds):
            amount, units = holds[key]
            holds[key] = amount, frozenset(f"cpu{number}" for number in range(len(units)))


def _do_what_was_refused(kept: Evidence, asked: dict[str, Asked]) -> None:
    one = asked[_last(kept)]
    one.did, one.refused = None, "CapacityException"


def _tell_twice(kept: Evidence, asked: dict[str, Asked]) -> None:
    again = copy.copy(kept.changes[-1])
    again.number += 1
    kept.changes.append(again)


def _tell_not(kept: Evidence, asked: dict[str, Asked]) -> None:
    kept.changes = [one for one in kept.changes if one.operation != _last(kept)]


def _tell_of_nobody(kept: Evidence, asked: dict[str, Asked]) -> None:
    for change in kept.changes:
        change.consumers = frozenset()


def _write_half(kept: Evidence, asked: dict[str, Asked]) -> None:
    claim = kept.operations[_last(kept)].claims[0]
    claim[-1] = claim[-1][:-1]


def _live_on(kept: Evidence, asked: dict[str, Asked]) -> None:
    kept.consumers["somebody"] = "a uuid", 7


def _invent(kept: Evidence, asked: dict[str, Asked]) -> None:
    del asked[_last(kept)]


def _last(kept: Evidence) -> str:
    """Return the last operation that somebody holds something by."""
    return max(
        (id for id, one in kept.operations.items() if any(claim[-1] for claim in one.claims)),
        key=lambda id: kept.operations[id].number,
    )


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_forget_an_operation, "lost: "),
        (_take_more_than_there_is, "over: "),
        (_give_a_unit_twice, "twice: "),
        (_lose_what_is_held, "holds None"),
        (_use_something_else, "replayed it has"),
        (_take_a_cpu_by_number, "and the units"),
        (_take_the_same_of_each_cell, "has the owners"),
        (_do_what_was_refused, "was refused"),
        (_tell_twice, "told twice"),
        (_tell_not, "recorded or told, not both"),
        (_tell_of_nobody, "is told of"),
        (_write_half, "told "),
        (_live_on, "should not be"),
        (_invent, "nobody asked"),
    ],
)
def test_the_judge_finds_what_is_wrong(
    calm: tuple[Evidence, dict[str, Asked]],
    damage: Callable[[Evidence, dict[str, Asked]], None],
    said: str,
) -> None:
    kept, asked = calm
    damage(kept, asked)
    assert said in "\n".join(judge(kept, asked))


@pytest.mark.parametrize(
    ("table", "said"),
    [("operations", ["lost: ", "nothing gave it that"]), ("changes", ["asked for {'job'}"])],
)
def test_a_write_that_is_recorded_or_told_is_found_in_the_tables(
    table: str, said: list[str], tmp_path: Path
) -> None:
    url, path = f"sqlite:///{tmp_path / 'ledger'}", tmp_path / "one.diary"
    backend = SQLBackend.open(url)
    define = Write(Operation(), "define", "the hosts", changes_to(backend, *hot_hosts()))
    with diary.Diary(path) as book:
        book.asks(define)
        book.did(define.operation.id, backend.commit(define))
        host = backend.uuids(["hot0"])["hot0"]
        order = ConsumerOrder.claim("job", (Use(host, "VCPU", 1),))
        claim = Write(Operation(), "claim", "job", None, (order,))
        book.asks(claim)
        book.did(claim.operation.id, backend.commit(claim))
    asked, _ = diary.read([path])
    assert judge(evidence.through_sql(url), asked) == []
    last = {"operations": "id", "changes": "operation_id"}[table]
    backend._writing(
        lambda connection: connection.exec_driver_sql(
            f"DELETE FROM {table} WHERE {last} = (SELECT MAX(id) FROM operations)"
        )
    )
    backend.close()
    found = "\n".join(judge(evidence.through_sql(url), asked))
    assert [one for one in [*said, "recorded or told, not both"] if one not in found] == []


def test_a_line_that_was_cut_short_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "one.diary"
    with diary.Diary(path) as book:
        write = Write(Operation(), "claim", "job")
        book.asks(write)
    with open(path, "ab") as file:
        file.write(f'{{"did": "{write.operation.id}", "cla'.encode())
    asked, _ = diary.read([path])
    assert asked[write.operation.id].did is None
