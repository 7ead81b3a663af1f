"""Replays of traces at the prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Result

Run = Callable[..., Result]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_replay_leaves_nothing_behind(run: Run, tmp_path: Path, processes: int) -> None:
    database = f"sqlite:///{tmp_path}/lab.db"
    text = ["--generate", "3,20", "--processes", str(processes), "-f", "json"]
    done = run("--database", database, "simulate", "replay", *text)
    assert done.status == 0, done.err
    rows = json.loads(done.out)
    assert len(rows) == processes
    assert sum(row["Placed"] + row["Refused"] for row in rows) == 20
    assert run("--database", database, "consumer", "list", "-f", "json").out.strip() in ("[]", "")


def test_a_replay_takes_the_filters_and_weighers_of_a_scheduler(run: Run, tmp_path: Path) -> None:
    settings, picture = tmp_path / "settings.yaml", tmp_path / "held.svg"
    settings.write_text("weighers: {free: {MEMORY_MB: 1}}\n")
    database = f"sqlite:///{tmp_path}/lab.db"
    text = ["simulate", "replay", "--generate", "3,10", "-f", "json"]
    more = ["--settings", str(settings), "--weigh", "devices=2", "--filter", "capabilities"]
    done = run("--database", database, *text, *more, "--plot", str(picture))
    assert done.status == 0, done.err
    (row,) = json.loads(done.out)
    assert (row["Placed"], row["Released"]) == (10, 10)
    assert "<svg" in picture.read_text()
    wrong = run("--database", database, *text, "--weigh", "nothing")
    assert (wrong.status, "nothing" in wrong.err) == (1, True)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ([], "say --hosts and --jobs, or --generate"),
        (["--generate", "10"], "expected HOSTS,JOBS"),
        (["--generate", "10,20", "--jobs", "x.csv"], "not both"),
        (["--hosts", "{bad}", "--jobs", "{bad}"], "line 1"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    run: Run, tmp_path: Path, text: list[str], output: str
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("sn,gpu\n")
    done = run("simulate", "replay", *(word.format(bad=bad) for word in text))
    assert done.status == 2
    assert output in done.err
    assert len(done.err.splitlines()) == 1


def test_a_file_that_is_not_there_is_named(run: Run) -> None:
    done = run("simulate", "replay", "--hosts", "none.csv", "--jobs", "none.csv")
    assert done.status != 0
    assert "none.csv" in done.err
    assert len(done.err.splitlines()) == 1
