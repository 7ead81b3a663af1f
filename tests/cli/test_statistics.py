"""The commands about statistics, and how long ago a host reported."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import clock
from resource_objects.providers.statistics import Statistic

LOAD = functools.partial(Statistic, "cpu.percent")
BUILDS = functools.partial(Statistic, "failed_builds")


@pytest.fixture
def url(sqlite_url: Callable[..., str]) -> str:
    return sqlite_url("lab.db")


@pytest.fixture
def lab(url: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """A lab of three hosts, and the command on it."""
    with ro.connect(url) as ledger:
        ledger.sync(*(ro.Provider(f"lab-{n}", "VCPU=8") for n in (1, 2, 10)))
        ledger.statistics.put(
            {
                "lab-10": [LOAD("12.5", since=ledger.now() - datetime.timedelta(minutes=3))],
                "lab-2": [LOAD(0.29), BUILDS(3)],
            }
        )
    return lambda *words: run("--database", url, *words)


@pytest.fixture
def reported(lab, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour ago lab-2 and lab-10 reported, just now lab-10 alone."""
    now = clock.now()
    with ro.connect(url) as ledger, monkeypatch.context() as patch:
        patch.setattr(clock, "now", lambda: now - datetime.timedelta(hours=1))
        ledger.statistics.put({}, reported=["lab-2", "lab-10"])
        patch.setattr(clock, "now", lambda: now)
        ledger.statistics.put({}, reported=["lab-10"])


def test_statistics_are_listed_with_since(lab) -> None:
    shown = lab("statistic", "list", "lab-10")
    assert shown.lines[1:4:2] == [
        "| host   | statistic   | value | since     | source |",
        "| lab-10 | cpu.percent | 12.5  | 3 min ago | agent  |",
    ]


def test_hosts_are_in_natural_order_and_values_exact_for_programs(lab) -> None:
    rows = json.loads(lab("statistic", "list", "-f", "json").out)
    assert [(row["host"], row["statistic"], row["value"]) for row in rows] == [
        ("lab-2", "cpu.percent", "0.29"),
        ("lab-2", "failed_builds", 3),
        ("lab-10", "cpu.percent", "12.5"),
    ]
    assert datetime.datetime.fromisoformat(rows[0]["since"]).tzinfo is not None
    item = lab("statistic", "list", "--name", "failed_builds", "-f", "value", "-c", "value")
    assert item.lines == ["3"]


def test_statistics_are_forgotten(lab) -> None:
    assert lab("statistic", "forget", "lab-10").out == "1 value forgotten\n"
    assert lab("statistic", "forget", "--name", "cpu.percent", "--name", "x").out == (
        "1 value forgotten\n"
    )
    assert lab("statistic", "list", "lab-10").out == "no host reports statistics\n"
    assert lab("statistic", "forget").status == 2


def test_what_is_not_there_is_one_line(lab) -> None:
    removed = lab("statistic", "list", "lab-7")
    assert (removed.status, removed.out) == (1, "")
    assert removed.err == "resource-objects: lab-7 is not a provider of this ledger\n"
    assert "name of a statistic" in lab("statistic", "list", "--name", "a b").err


def test_it_is_told_how_long_ago_a_host_reported(lab, reported) -> None:
    assert "1 h ago" in lab("provider", "show", "lab-2").out
    rows = json.loads(lab("provider", "list", "-f", "json").out)
    assert [row["reported"] is None for row in rows] == [True, False, False]
    late = lab("provider", "list", "--reported-before", "10m", "-f", "value", "-c", "provider")
    assert late.lines == ["lab-2"]
    complete = lab("provider", "list", "--reported-before", "now", "-f", "value", "-c", "provider")
    assert complete.lines == ["lab-2", "lab-10"]
    assert lab("provider", "list", "--reported-before", "soon").status == 2


def test_a_host_that_was_not_heard_of_is_told_where_people_look(lab, reported) -> None:
    assert lab("usage", "hosts").lines == [
        "lab-1                     CPU 0/8",
        "lab-2 (reported 1 h ago)  CPU 0/8",
        "lab-10                    CPU 0/8",
    ]
    lab("host", "disable", "lab-2", "--reason", "fan")
    [line] = lab("usage", "hosts", "lab-2").lines
    assert line.startswith("lab-2 (disabled, reported 1 h ago)  CPU 0/8")
    rows = json.loads(lab("usage", "hosts", "-f", "json").out)
    assert [row["reported"] is None for row in rows] == [True, False, False]


def test_nothing_is_told_where_nobody_reports(lab) -> None:
    assert lab("usage", "hosts").lines[0] == "lab-1   CPU 0/8"
    assert "ago" not in lab("provider", "list").out
