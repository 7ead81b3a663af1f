"""Traces: read, made, and replayed on a ledger by many processes, some of which die."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.scheduler import HostState, Pipeline, RequestSpec
from resource_objects.scheduler.replay import (
    CPU,
    GPU,
    GPU_PART,
    MEMORY,
    PARTS,
    Trace,
    plot_replays,
    put_hosts,
    replay,
    replay_by_processes,
)
from resource_objects.testing.conformance.races import processes
from resource_objects.testing.refusals import raises_code
from tests import databases
from tests.support.patience import until

_HOSTS = "sn,cpu_milli,memory_mib,gpu,model\n"
_JOBS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n"

# --- reading ------------------------------------------------------------------------------------


def read(tmp_path: Path, hosts: str, jobs: str) -> Trace:
    (tmp_path / "hosts.csv").write_text(_HOSTS + hosts)
    (tmp_path / "jobs.csv").write_text(_JOBS + jobs)
    return Trace.read(tmp_path / "hosts.csv", tmp_path / "jobs.csv")


def test_a_trace_is_hosts_with_gpus_and_jobs_with_requests(tmp_path: Path) -> None:
    trace = read(tmp_path, "a,4000,8192,2,T4\n", "j,2000,1024,1,500,5,9\nk,0,1,2,1000,,\n")
    (host,) = trace.hosts
    assert {str(one.name) for one in host.provider().children} == {"a/gpu0", "a/gpu1"}
    part, whole = trace.jobs
    assert part.request() == ro.Request({CPU: 2000, MEMORY: 1024, GPU_PART: 500})
    assert whole.request() == ro.Request({MEMORY: 1, GPU: 2})
    assert (part.created, part.deleted) == (5, 9)
    assert (whole.created, whole.deleted) == (0, None)
    assert trace.gpu_parts == 2 * PARTS


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ("j,2000,1024,1,500,5,9\nj,1,1,0,0,,\n", r"line 3.*'j', expected a name that line 2"),
        ("j,2k,1024,1,500,5,9\n", r"line 2: cpu_milli: got '2k'"),
        ("j,-1,1024,1,500,5,9\n", r"line 2: cpu_milli: got '-1'"),
        ("j,99999999999,1024,1,500,5,9\n", "line 2: cpu_milli"),
        ("j,1,1,1,1001,5,9\n", "line 2: gpu_milli"),
        ("j,1,1,2,500,5,9\n", r"line 2.*2 GPUs of 500 thousandths"),
        ("j,1,1,1,0,5,9\n", r"line 2.*1 GPUs of 0 thousandths"),
        ("j,1,1,1,500,9,5\n", r"line 2.*deletion_time from 9"),
        ("j,1,1,1,500,nan,5\n", r"line 2: creation_time: got 'nan'"),
        ("j,1,1,1,500\n", r"line 2.*7 values"),
        ("j,1,1,1,500,5,9,10\n", r"line 2.*7 values"),
        ('j,"1,1,1,500,5,9\n', r"line 2: got .unexpected end of data"),
    ],
)
def test_a_line_with_a_fault_is_named(tmp_path: Path, jobs: str, told: str) -> None:
    with raises_code("InvalidTrace", match=told):
        read(tmp_path, "a,4000,8192,2,T4\n", jobs)


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts.csv").write_text("sn,cpu_milli,gpu\n")
    with raises_code("InvalidTrace", match=r"line 1: got 'memory_mib'"):
        Trace.read(tmp_path / "hosts.csv", tmp_path / "hosts.csv")


# --- on a ledger --------------------------------------------------------------------------------


def _worker(url: str, trace: Trace, share: tuple[int, int], done: Any) -> None:
    with ro.connect(url) as ledger:
        found = replay(ledger, trace, order="random", share=share)
    done.put((share[0], found.placed, found.refused, found.lost_races))


def _play(url: str, trace: Trace, workers: int, kills: int) -> dict[int, tuple[int, ...]]:
    """Let workers share the jobs; kill some and begin them again; return what each tells."""
    context = processes()
    done = context.Queue()

    def begin(number: int) -> Any:
        made = context.Process(target=_worker, args=(url, trace, (number, workers), done))
        made.start()
        return made

    running = [begin(number) for number in range(workers)]
    chance = random.Random(1)
    with ro.connect(url) as ledger:
        for _ in range(kills):
            seen = len(list(ledger.consumers()))
            until(lambda seen=seen: len(list(ledger.consumers())) != seen or not done.empty())
            victim = chance.randrange(workers)
            if running[victim].is_alive():
                assert running[victim].pid is not None
                os.kill(running[victim].pid, signal.SIGKILL)
                running[victim].join()
                running[victim] = begin(victim)
            for provider in ledger.usage():
                assert provider.free >= 0, provider
    told = [done.get(timeout=120) for _ in range(workers)]
    for one in running:
        one.join()
    return {number: tuple(rest) for number, *rest in told}


def _check_deaths(url: str, jobs: int, workers: int, kills: int) -> int:
    """Play a trace with processes that die; return how many races were lost."""
    trace = Trace.generated(hosts=4, jobs=jobs, seed=6)
    with ro.connect(url) as ledger:
        put_hosts(ledger, trace)
        told = _play(url, trace, workers, kills)
        assert sum(placed + refused for placed, refused, _ in told.values()) == jobs
        assert not list(ledger.consumers())
        assert all(one.used == 0 for one in ledger.usage())
        assert not ledger.audit().findings
    return sum(lost for _, _, lost in told.values())


@pytest.mark.law(4)
def test_processes_that_die_lose_and_double_nothing(sqlite_url: Callable[[str], str]) -> None:
    _check_deaths(sqlite_url("trace.db"), jobs=24, workers=2, kills=1)


@pytest.mark.long
@pytest.mark.law(4)
@pytest.mark.parametrize(
    "database_kind",
    [pytest.param(kind, marks=pytest.mark.backend(kind)) for kind in databases.KINDS],
    indirect=True,
)
def test_processes_that_die_lose_and_double_nothing_on_any_database(
    database_kind: str, database_url: str
) -> None:
    SQLBackend.upgrade_database(database_url)
    _check_deaths(database_url, jobs=60, workers=3, kills=4)


@pytest.mark.long
def test_several_processes_share_a_trace(sqlite_url: Callable[[str], str]) -> None:
    url = sqlite_url("shared.db")
    trace = Trace.generated(hosts=3, jobs=20, seed=6)
    with ro.connect(url) as ledger:
        put_hosts(ledger, trace)
        done = replay_by_processes(url, trace, 2)
        assert [one.placed + one.refused for one in done] == [10, 10]
        assert not list(ledger.consumers())


class Kept:
    """Refuses one host."""

    def __init__(self, name: str) -> None:
        self.name = name

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        return "is kept" if host.name == self.name else None


def test_jobs_are_placed_by_the_filters_and_weighers_of_a_scheduler() -> None:
    made = Trace.generated(hosts=4, jobs=12, seed=5)
    trace = Trace(made.hosts, [dataclasses.replace(job, deleted=None) for job in made.jobs])
    kept = trace.hosts[1].name

    def used(pipeline: Pipeline) -> Counter[str]:
        with ro.connect("memory://") as ledger:
            put_hosts(ledger, trace)
            done = replay(ledger, trace, order="name", pipeline=pipeline)
            assert done.placed == 12
            roots = {one.provider.partition("/")[0]: None for one in ledger.usage() if one.used}
            return Counter(roots)

    assert kept not in used(Pipeline.of([Kept(kept)], ()))
    largest = max(trace.hosts, key=lambda host: host.cpu_milli).name
    assert largest in used(Pipeline.of((), {"free": {CPU: 1}}))
    assert largest not in used(Pipeline.of((), {"free": {CPU: -1}}))


def test_a_share_that_is_none_is_refused() -> None:
    trace = Trace.generated(hosts=1, jobs=1)
    with raises_code("InvalidField", match="processes"):
        replay_by_processes("memory://", trace, 0)
    with ro.connect() as ledger, raises_code("InvalidField", match="share"):
        replay(ledger, trace, share=(2, 2))


# --- pictures -----------------------------------------------------------------------------------


def test_a_replay_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace.generated(hosts=6, jobs=80, seed=3)
    with ro.connect("memory://") as ledger:
        put_hosts(ledger, trace)
        results = {"pack": replay(ledger, trace)}
    plot_replays(results, trace.gpu_parts, tmp_path / "held.png")
    assert (tmp_path / "held.png").read_bytes().startswith(b"\x89PNG")
    with raises_code("InvalidTrace", match="hosts with GPUs"):
        plot_replays(results, 0, tmp_path / "none.svg")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(exceptions.PluginError, match=r"resource_objects\[plot\]"):
        plot_replays(results, trace.gpu_parts, tmp_path / "none.svg")
