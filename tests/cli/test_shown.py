"""Output on terminals, in spreadsheets and for programs: names may come from other users."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import subprocess
import sys

import pytest

import resource_objects as ro
from resource_objects.cli import base
from resource_objects.cli.base import listed, optional
from resource_objects.cli.main import Printable

RED = "\x1b[31m"


def test_a_refused_name_does_not_reach_the_terminal_as_it_is(run) -> None:
    for words in (["provider", "show", f"{RED}x"], [f"{RED}x"], ["usage", f"--{RED}"]):
        result = run(*words)
        assert result.status != 0
        assert "\x1b" not in result.out + result.err
        assert "x1b[31m" in result.err


def test_a_path_does_not_either(run, tmp_path: pathlib.Path) -> None:
    result = run("reshape", str(tmp_path / f"{RED}plan"))
    assert result.status == 2
    assert "\x1b" not in result.err
    assert "\\x1b[31mplan" in result.err


@pytest.mark.parametrize(
    "written", ["\x1b]0;x\x07", "\x9b31m", "\r", "\x08", "\u202e", "\u2066", "\u2028"]
)
def test_what_a_terminal_obeys_is_shown(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    Printable(sys.stdout).write(f"a{written}b\tc\n")
    out = capsys.readouterr().out
    assert out.startswith("a\\") and out.endswith("b\tc\n")
    assert not set(written) - set("[]31m0;x") & set(out)


def test_a_name_cannot_begin_a_row_of_its_own() -> None:
    assert base.cells(["a\nb"], "table") == ("a\\nb",)
    assert base.cells(["a\nb"], "json") == ("a\nb",)


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@sum"])
def test_what_a_spreadsheet_would_calculate_is_text(formula: str) -> None:
    assert base.cells([formula, optional(formula)], "csv") == (f"'{formula}",) * 2
    assert base.cells([formula, -1], "value") == (formula, -1)
    assert base.cells([-1, 1.5], "csv") == (-1, 1.5)


@pytest.mark.parametrize("formatter", ["csv", "value", "shell"])
def test_what_is_not_set_is_empty_in_text(formatter: str) -> None:
    assert base.cells([optional(None), None], formatter) == ("", "")
    row = [optional(None), listed([1])]
    assert base.cells(row, "table") == tuple(row)


def test_a_consumer_without_a_project_has_no_project_called_none(run, tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/lab.db"
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("box", "VCPU=4"))
        ledger.claim("=cmd()", {"box": "VCPU=1"})
    listed = run("--database", url, "consumer", "list", "-f", "csv").out
    (row,) = csv.DictReader(listed.splitlines())
    assert (row["consumer"], row["project"], row["expires"]) == ("'=cmd()", "", "")
    output = json.loads(run("--database", url, "consumer", "list", "-f", "json").out)
    assert (output[0]["consumer"], output[0]["project"]) == ("=cmd()", None)


# --- files that are none ---


def test_a_device_without_an_end_is_no_plan(run) -> None:
    result = run("reshape", "/dev/zero")
    assert result.status == 2
    assert "no regular file" in result.err


@pytest.mark.parametrize("command", ["apply", "apply --dry-run", "reshape", "host sync --from"])
def test_a_file_that_is_not_there_is_named_in_one_line(
    run, default_ledger: pathlib.Path, command: str
) -> None:
    result = run(*command.split(), "nowhere.yaml")
    assert (result.status, result.out) == (2, "")
    content = "nowhere.yaml cannot be read: No such file or directory"
    assert result.err == f"resource-objects: {content}\n"
    assert not default_ledger.exists()


def test_a_file_below_a_file_or_of_too_long_a_name_cannot_be_read(run, tmp_path) -> None:
    (tmp_path / "lab.yaml").write_text("version: 1\n")
    for name, why in (
        (str(tmp_path / "lab.yaml" / "x"), "Not a directory"),
        ("x" * 5000, "File name too long"),
    ):
        result = run("apply", name)
        assert (result.status, result.err) == (
            2,
            f"resource-objects: {name} cannot be read: {why}\n",
        )


def test_a_pipe_into_which_nobody_writes_blocks_nobody(home, tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "plan")
    done = subprocess.run(
        [sys.executable, "-m", "resource_objects", "reshape", str(tmp_path / "plan")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "no regular file; pipe it into -" in done.stderr
