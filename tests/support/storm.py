"""Starts writers, kills them, cuts their connections, and asks the judge."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path

import sqlalchemy
from sqlalchemy.pool import NullPool

from resource_objects.providers import Backend
from resource_objects.providers.orders import Operation, Write
from resource_objects.testing.conformance.races import processes
from resource_objects.testing.conformance.suite import changes_to
from tests.support.checker import problems
from tests.support.diary import Diary, read
from tests.support.evidence import Evidence, through_backend, through_sql
from tests.support.judge import judge
from tests.support.writers import (
    DeviceWriter,
    Task,
    TopologyWriter,
    Writer,
    device_hosts,
    hot_hosts,
    numa_hosts,
    work,
)

#: Who writes, in turn.
CREW: tuple[type[Writer], ...] = (Writer, TopologyWriter, Writer, DeviceWriter)
#: Seconds that writers may take to end when they are told to.
_PATIENCE = 120


@dataclasses.dataclass
class Report:
    """What a storm did, and what was wrong after it."""

    acknowledged: Counter[str] = dataclasses.field(default_factory=Counter)  #: by kind of write
    refused: Counter[str] = dataclasses.field(default_factory=Counter)  #: by error
    unsure: int = 0  #: asked, and never answered: whole or absent
    killed: int = 0
    cut: int = 0  #: connections
    problems: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"acknowledged {self.acknowledged.total()}: {dict(self.acknowledged)}",
            f"refused {self.refused.total()}: {dict(self.refused)}",
            f"unsure {self.unsure}, killed {self.killed}, connections cut {self.cut}",
            *self.problems[:20],
        ]
        return "\n".join(lines)


@dataclasses.dataclass
class _Storm:
    backend_class: type[Backend]
    url: str
    folder: Path
    seed: int
    crew: Sequence[type[Writer]] = CREW
    started: int = 0
    running: dict[str, BaseProcess] = dataclasses.field(default_factory=dict)

    @property
    def stop(self) -> Path:
        return self.folder / "stop"

    def start(self) -> None:
        """Start a writer."""
        who = f"w{self.started}"
        kind = self.crew[self.started % len(self.crew)]
        self.started += 1
        task = Task(
            self.backend_class,
            self.url,
            who,
            self.seed,
            str(self.folder / f"{who}.diary"),
            str(self.stop),
            kind,
        )
        process = processes().Process(target=work, args=(task,))
        process.start()
        self.running[who] = process

    def kill(self, who: str) -> None:
        """Kill a writer, wherever it is."""
        process = self.running.pop(who)
        process.kill()
        process.join()

    def ended(self) -> list[str]:
        """Return who ended by itself, which nobody should while the storm goes on."""
        gone = [who for who, process in self.running.items() if not process.is_alive()]
        return [f"{who} ended with {self.running.pop(who).exitcode}" for who in gone]


def storm(
    backend_class: type[Backend],
    url: str,
    folder: Path,
    *,
    seconds: float = 20.0,
    writers: int = 8,
    crew: Sequence[type[Writer]] = CREW,
    kill_every: float = 0.8,
    cut: Callable[[], int] | None = None,
    cut_every: float = 1.0,
    disaster: Callable[[], None] | None = None,
    disaster_every: float = 20.0,
    sql: str | None = None,
    seed: int | None = None,
) -> Report:
    """Let writers loose on an empty ledger, kill them at random, and judge what is left.

    :param folder: an empty directory for the diaries
    :param crew: the kinds of writers, in turn
    :param kill_every: seconds between two kills, on average; the one killed is replaced
    :param cut: cuts some connections to the ledger and returns how many
    :param disaster: brings down and up again what the ledger runs on; returns when it is up
    :param sql: the SQLAlchemy URL of a SQL ledger, whose tables are then judged by plain SQL;
        without it, it is read through the backend
    :param seed: of what happens; the order in which it does is the operating system's
    """
    folder.mkdir(parents=True, exist_ok=True)
    seed = random.randrange(2**32) if seed is None else seed
    this = _Storm(backend_class, url, folder, seed, crew)
    report = Report()
    # everything that opens the ledger is a process of its own, also the first and the last to do so
    with ProcessPoolExecutor(1, mp_context=processes()) as pool:
        pool.submit(_define, backend_class, url, str(folder / "setup.diary")).result()
    try:
        for _ in range(writers):
            this.start()
        _rage(this, report, seconds, kill_every, (cut, cut_every), (disaster, disaster_every))
        this.stop.touch()
        _wait(this, report)
    finally:
        for who in list(this.running):
            this.kill(who)
    with ProcessPoolExecutor(1, mp_context=processes()) as pool:
        return pool.submit(_judge, backend_class, url, sql, str(folder), report).result()


def _define(backend_class: type[Backend], url: str, path: str) -> None:
    """Make the hosts; the first diary tells of it."""
    backend = backend_class.open(url)
    try:
        changes = changes_to(backend, *hot_hosts(), *numa_hosts(), *device_hosts())
        write = Write(Operation(), "define", "the hosts", changes)
        with Diary(Path(path)) as diary:
            diary.asks(write)
            diary.did(write.operation.id, backend.commit(write))
    finally:
        backend.close()


def _rage(
    this: _Storm,
    report: Report,
    seconds: float,
    kill_every: float,
    cutting: tuple[Callable[[], int] | None, float],
    disasters: tuple[Callable[[], None] | None, float],
) -> None:
    chance = random.Random(this.seed)
    began = time.monotonic()

    def next_time(every: float) -> float:
        return time.monotonic() + chance.uniform(0.2, 1.8) * every

    (cut, cut_every), (disaster, disaster_every) = cutting, disasters
    kill_at, cut_at = next_time(kill_every), next_time(cut_every)
    disaster_at = next_time(disaster_every)
    while time.monotonic() - began < seconds:
        time.sleep(0.005)
        report.problems += this.ended()
        if report.problems:
            return
        if time.monotonic() >= kill_at:
            kill_at = next_time(kill_every)
            this.kill(chance.choice(sorted(this.running)))
            report.killed += 1
            this.start()
        if cut is not None and time.monotonic() >= cut_at:
            cut_at = next_time(cut_every)
            report.cut += cut()
        if disaster is not None and time.monotonic() >= disaster_at:
            disaster()
            disaster_at = next_time(disaster_every)


def _wait(this: _Storm, report: Report) -> None:
    """Wait until every writer has ended by itself."""
    patience = time.monotonic() + _PATIENCE
    for who, process in this.running.items():
        process.join(max(0.0, patience - time.monotonic()))
        if process.exitcode != 0:
            report.problems.append(f"{who} ended with {process.exitcode} (None: not at all)")


def _judge(
    backend_class: type[Backend], url: str, sql: str | None, folder: str, report: Report
) -> Report:
    """Complete a report; run in a process of its own, which has written nothing."""
    asked, died = read(sorted(Path(folder).glob("*.diary")))
    report.problems += died
    report.acknowledged = Counter(one.kind for one in asked.values() if one.did is not None)
    report.refused = Counter(
        one.refused for one in asked.values() if one.did is None and one.refused is not None
    )
    report.unsure = sum(one.did is None and one.refused is None for one in asked.values())
    evidence: Evidence
    if sql is None:
        evidence = through_backend(backend_class, url)
    else:
        report.problems += problems(sql, shrunk=True)
        evidence = through_sql(sql)
    report.problems += judge(evidence, asked)
    return report


def cut_connections(sql: str, most: int = 2) -> int:
    """Cut some connections of others to a PostgreSQL or MySQL database; return how many.

    :param sql: the SQLAlchemy URL of somebody who may
    """
    engine = sqlalchemy.create_engine(sql, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    postgresql = engine.dialect.name == "postgresql"
    query = (
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random()"
        if postgresql
        else "SELECT id FROM information_schema.processlist"
        " WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY RAND()"
    )
    count = 0
    with engine.connect() as connection:
        for (number,) in connection.exec_driver_sql(f"{query} LIMIT {most}").all():
            with contextlib.suppress(sqlalchemy.exc.OperationalError):  # it left by itself
                end = f"SELECT pg_terminate_backend({number})" if postgresql else f"KILL {number}"
                connection.exec_driver_sql(end)
                count += 1
    return count
