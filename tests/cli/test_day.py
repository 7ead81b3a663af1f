"""A lab's day: the commands and the script of the page, and people as processes, all at once."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator

import pytest
import sqlalchemy

import resource_objects as ro
from resource_objects.site import Site, apply_site
from tests.cli.conftest import ROOT
from tests.cli.forked import Program
from tests.cli.test_candidates_page import DOC, commands, undated
from tests.support import checker, lab_day

PAGE = DOC / "howto" / "day.rst"
FILES = DOC / "howto" / "day"
MACHINES = [f"lab-{number}" for number in range(6)]
#: What people want, in turn: together more than there is while a machine is out of service.
WANTS = ("PGPU=4,VCPU=16", "CUSTOM_PGPU_HALF=1,VCPU=4", "PGPU=3,VCPU=12", "CUSTOM_PGPU_HALF=1")
PEOPLE = {f"user-{n}": WANTS[n % len(WANTS)] for n in range(20)}
PROCESSES, ROUNDS, MOVES = 3, 1, 4


@pytest.fixture
def folder(home, tmp_path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder with the files of the page, where commands are run as admin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGNAME", "admin")
    for path in FILES.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    return tmp_path


@pytest.fixture
def url(database_url: str, folder, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty ledger, which commands use."""
    monkeypatch.setenv("RESOURCE_OBJECTS_DATABASE", database_url)
    assert lab_day.command("db", "upgrade")[0] == 0  # on a server its tables are made when asked
    return database_url


def test_twenty_commands_print_what_stands_below_them(run, url: str) -> None:
    page = list(commands(PAGE.read_text(encoding="utf-8")))
    assert sum(command.startswith("resource-objects ") for command, _ in page) == 20
    status = 0
    for command, printed in page:
        if command == "echo $?":
            assert printed == str(status)
            continue
        done = run(*shlex.split(command)[1:])
        status = done.status
        assert undated(done.out + done.err) == undated(printed), command
    assert checker.problems(url) == []


def test_twenty_lines_play_the_same_day(url: str, capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (FILES / "day.py").read_text(encoding="utf-8").splitlines()
    code = [line for line in script if line and not line.startswith(('"', "import ", "from "))]
    assert len(code) == 20
    program = ("sh", "-c", "echo computing on $CUDA_VISIBLE_DEVICES of $RESOURCE_OBJECTS_HOST")
    monkeypatch.setattr(sys, "argv", ["day.py", url, "lab.yaml", *program])
    played = runpy.run_path("day.py")
    played["lab"].close()
    printed = capfd.readouterr().out
    assert "computing on 0,1 of lab-5" in printed
    assert "lab-5: PGPU requested 8, free 6 of 8 (test holds 2)" in printed
    assert printed.count("disabled: fan") == 1 and "disabled: xid 79" not in printed
    with ro.connect(url) as ledger:
        remaining = {item.name for item in ledger.consumers()}
        assert {"test", "job-3"}.isdisjoint(remaining) and len(remaining) == 18
        assert not ledger.usage("lab-0").consumers
        assert [item.name for item in ledger.providers() if item.disabled] == ["lab-4"]
    assert checker.problems(url) == []


# --- people as processes --------------------------------------------------------------------------

_GPUS = sqlalchemy.text(
    "SELECT p.name, c.name, SUM(a.used) FROM allocations a"
    " JOIN resource_providers p ON p.id = a.provider_id"
    " JOIN resource_classes c ON c.id = a.class_id"
    " WHERE c.name IN ('PGPU', 'CUSTOM_PGPU_HALF') GROUP BY p.name, c.name"
)


def halves_given(url: str) -> dict[str, int]:
    """Return the number of allocated halves of each card, read from the tables directly."""
    engine = sqlalchemy.create_engine(url)
    with contextlib.closing(engine.connect()) as connection:
        rows = connection.execute(_GPUS).all()
    engine.dispose()
    argument: dict[str, int] = {}
    for name, kind, amount in rows:
        argument[name] = argument.get(name, 0) + int(amount) * (2 if kind == "PGPU" else 1)
    return argument


@contextlib.contextmanager
def people(folder: pathlib.Path) -> Iterator[list[Program]]:
    """Let all people live, in a few processes."""
    names = sorted(PEOPLE)
    with contextlib.ExitStack() as started:
        yield [
            started.enter_context(contextlib.closing(_play(folder, n, names[n::PROCESSES])))
            for n in range(PROCESSES)
        ]


def _play(folder: pathlib.Path, number: int, names: list[str]) -> Program:
    argv = [str(folder), str(number), str(ROUNDS), *(f"{name}={PEOPLE[name]}" for name in names)]
    return Program(argv, os.environ, str(ROOT), interruptible=False, main=lab_day.main)


def move_about(cards: lab_day.Cards, chance: random.Random) -> None:
    """Drain the machine that a service of the lab is on, move the service, enable the machine."""
    environment = lab_day.told(lab_day.command("consumer", "show", "lab-job", "--env")[1])
    here = environment["RESOURCE_OBJECTS_HOST"]
    status, lines = lab_day.command("host", "drain", here, "--reason", "fan", "-f", "value")
    assert status == 0, lines
    cards.leave("lab")  # a service that is moved is stopped before
    existing = chance.choice([name for name in MACHINES if name != here])
    status, lines = lab_day.command("allocation", "move", "lab-job", "--to", existing)
    assert status in (0, 1, lab_day.BUSY), lines
    cards.take("lab", lab_day.told(lab_day.command("consumer", "show", "lab-job", "--env")[1]))
    assert lab_day.command("host", "enable", here)[0] == 0


def test_no_card_is_given_twice_to_people_at_once(url: str, folder: pathlib.Path) -> None:
    with ro.connect(url) as ledger:
        apply_site(ledger, Site.parse((FILES / "lab.yaml").read_text(encoding="utf-8")))
    (folder / "cards").mkdir()
    cards, chance = lab_day.Cards(folder / "cards"), random.Random(7)
    assert lab_day.claim(cards, "lab", "PGPU=1,VCPU=1")
    served: list[str] = []
    with people(folder / "cards") as processes:
        for _ in range(MOVES):
            move_about(cards, chance)
            assert max(halves_given(url).values()) <= lab_day.HALVES
        for process in processes:
            printed, complaints = process.communicate()
            assert (process.returncode, complaints) == (0, "")
            served += printed.split()
    assert len(served) >= len(PEOPLE) // 2
    lab_day.release(cards, "lab")
    assert halves_given(url) == {}
    assert [*(folder / "cards").iterdir()] == []
    assert checker.problems(url) == []
    with ro.connect(url) as ledger:
        assert list(ledger.consumers()) == []
        assert all(line["PGPU"].free == 8 for line in ledger.snapshot().host_usage())
