"""Each option of each command together with each other option: no crash, and no half of a write.

The pairs are generated from the parsers. A value that the ledger refuses is tried in the place of
one that it accepts, so a command that writes in two steps is found by the second step's refusal.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import itertools
import os
import pathlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import resource_objects as ro
from resource_objects.cli import main

UUID = "7f6f2d6c-5d3d-4c2c-9ad5-3f2c7b0f6b11"
STALE = "1"
SUCCESS, BROKEN = 0, 70


def build(ledger: ro.Ledger) -> None:
    """Store two hosts with GPUs, a pool, three consumers, one of them expired, and a group."""
    for number in range(2):
        host = ro.Provider(
            f"lab-{number}",
            "VCPU=8,MEMORY_MB=1024",
            traits=["CUSTOM_FAST"],
            aggregates=["rack-1"],
        )
        host.add(f"lab-{number}/gpu0", "PGPU=2,FPGA=1")
        ledger.sync(host)
    ledger.sync(ro.Provider("nfs", "DISK_GB=100"))
    ledger.names.aggregates.ensure("rack-1", "rack")
    ledger.names.aggregates.ensure("empty")
    ledger.names.traits.ensure("CUSTOM_SLOW")
    ledger.names.classes.ensure("CUSTOM_LICENSE")
    ledger.groups.ensure("pair", "anti-affinity")
    ledger.pools.share("nfs", hosts=["lab-0"])
    ledger.claim("job", {"lab-0": "VCPU=2", "lab-0/gpu0": "PGPU=1"}, user="ann", project="demo")
    ledger.claim("guest", {"lab-1": "VCPU=1"}, user="bob")
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    ledger.claim("late", {"lab-1": "VCPU=2"}, user="ann", expires_at=past)
    ledger.disable("lab-1/gpu0", reason="fan")


#: Values of options by name; with a command before it, of that command alone.
VALUES = {
    "--actor": "ann",
    "--aggregate": "rack-2",
    "--allocation": "lab-0,VCPU=3",
    "--also": "lab-1",
    "--alternates": "1",
    "--among": "2",
    "--at": "lab-0",
    "--at-least": "1",
    "--budget": "1000",
    "--bundle": "bundle.json",
    "usage total --by": "provider",
    "usage between --by": "user",
    "report --by": "rack",
    "--change": "disable lab-1",
    "--claim": "new",
    "--class": "PGPU",
    "--consumer": "job",
    "--consumer-type": "VM",
    "--count": "1",
    "--dedicated": "0",
    "--expires-in": "1h",
    "--extra-spec": "a=b",
    "--filter": "disabled",
    "--forbidden": "CUSTOM_SLOW",
    "schedule --force": "lab-0",
    "--from": "machine.json",
    "--gang": "gang.yaml",
    "--group": "_G",
    "--host": "lab-0",
    "--ignore": "lab-1",
    "--image-trait": "CUSTOM_FAST",
    "--in-tree": "lab-0",
    "--keep": "90d",
    "--lease": "1m",
    "--leaving": "guest",
    "--level": "room",
    "--limit": "3",
    "--limits": "lab-0:VCPU=20",
    "--max-per-host": "1",
    "--member-of": "rack-1",
    "--members": "job",
    "--mix": "gang.yaml",
    "--name": "other",
    "class set --name": "CUSTOM_SEAT",
    "trait set --name": "CUSTOM_QUICK",
    "--near": "numa",
    "--nearest": "2",
    "--numa": "lab-0",
    "--older-than": "0",
    "--only": "lab-0",
    "--operation": UUID,
    "--parent-provider": "lab-1",
    "--pci": "lab-0",
    "--per-host": "1",
    "--plan": "plan.json",
    "schedule --policy": "affinity",
    "--prefer": "CUSTOM_FAST",
    "--project": "demo",
    "--provider": "lab-0",
    "--query": "resources=VCPU:1",
    "--ratio": "VCPU=2.0",
    "--reason": "fan",
    "--relax": "1",
    "--reported-before": "2030-01-01",
    "--required": "CUSTOM_FAST",
    "--reserved": "VCPU=1",
    "--reserved-pages": "0:4:0",
    "--reset": "0000:00:00.0",
    "--resource": "MEMORY_MB=1",
    "--resource-class": "FPGA",
    "--room": "VCPU=1",
    "--root": "/",
    "--root-required": "CUSTOM_FAST",
    "--rule": "10de:*",
    "--same-subtree": "_G",
    "--script": "script.txt",
    "--seed": "1",
    "--server-group": "pair",
    "--settings": "settings.yaml",
    "--shared": "0",
    "--to": "lab-1",
    "--trait": "CUSTOM_FAST",
    "--tree": "lab-0",
    "--until": "8h",
    "--user": "ann",
    "--uuid": UUID,
    "--wait": "0.01",
    "--weigh": "free",
    "--weight": "VCPU=2",
    "--with": "lab-1",
    "--zone": "z",
}
#: Values that the ledger refuses, but not the parser.
REFUSED_VALUES = {
    "--aggregate": "",
    "--allocation": "nowhere,VCPU=1",
    "--at": "nowhere",
    "--generation": STALE,
    "--host": "nowhere",
    "--in-tree": "nowhere",
    "--name": "lab-0",
    "--parent-provider": "nowhere",
    "--resource-class": "PGPU",
    "--server-group": "nowhere",
    "--to": "nowhere",
    "--trait": "NOWHERE",
    "--until": "2020-01-01T00:00Z",
    "--with": "nowhere",
}
#: Values of positional arguments by destination; with a command before it, of that command alone.
ARGUMENTS = {
    "amounts": "VCPU=1",
    "consumer": "new",
    "allocation set consumer": "job",
    "allocation move consumer": "job",
    "allocation show consumer": "job",
    "consumers": "job",
    "device": "lab-0/gpu0",
    "file": "site.yaml",
    "first": "job",
    "second": "guest",
    "inventories": "PGPU=4",
    "pool report inventories": "DISK_GB=50",
    "name": "lab-0/gpu0",
    "provider create name": "fresh",
    "provider delete name": "lab-1/gpu0",
    "class create name": "CUSTOM_SEAT",
    "class set name": "CUSTOM_LICENSE",
    "class delete name": "CUSTOM_LICENSE",
    "trait create name": "CUSTOM_QUICK",
    "trait set name": "CUSTOM_SLOW",
    "trait delete name": "CUSTOM_SLOW",
    "aggregate create name": "room",
    "aggregate set name": "empty",
    "aggregate delete name": "empty",
    "server group create name": "trio",
    "server group show name": "pair",
    "server group delete name": "pair",
    "consumer show name": "job",
    "plan": "reshape.json",
    "policy": "anti-affinity",
    "pool": "nfs",
    "shell": "bash",
    "since": "2026-01-01",
}
FILES = {
    "gang.yaml": "members:\n- {name: a, request: VCPU=1}\n",
    "script.txt": "disable lab-1\n",
    "site.yaml": "machines:\n  lab-2: VCPU=8\n",
    "settings.yaml": "{}\n",
}
#: Started processes, random searches of a minute, and second names of commands.
LEFT_OUT = {
    *("serve", "tour", "simulate replay", "allocation candidate list"),
    *("allocation delete", "provider disable", "provider enable", "provider drain"),
}
COMMANDS = [name for name in main.BUILT_IN if name not in LEFT_OUT]
#: Commands with more options than this try each with the next alone, and all pairs with ``--long``.
FEW = 8
#: How often a command may write, where that is not once: a job allocates and releases.
WRITES = {"run": 2}
#: The release of the expired claim of :func:`build`, a write of its own. A command that releases
#: expired claims releases them first: a refusal of the command afterwards leaves them released.
EXPIRED = ("release", "late")
#: The options that release expired claims of others, and the command that does so without one.
RELEASING = {"run", "--release-expired", "--wait"}


class Options:
    """The options of one command, with values."""

    def __init__(self, command: str, generations: dict[str, int]) -> None:
        self.command = command
        self._generations = generations
        program = main.Program(io.StringIO(), io.StringIO())
        program.options = argparse.Namespace(database=None)
        factory, _, _ = program.command_manager.find_command(command.split())
        parser = factory(program, program.options, cmd_name=command).get_parser(command)
        cliffs = {
            id(action)
            for group in parser._action_groups
            if "format" in str(group.title)
            for action in group._group_actions
        }
        actions = [
            action
            for action in parser._actions
            if id(action) not in cliffs
            and not isinstance(action, argparse._HelpAction)
            and "--quote" not in action.option_strings
        ]
        self.optional = [action for action in actions if action.option_strings]
        self.required = [action for action in self.optional if action.required]
        self.positional = [
            value
            for action in actions
            if not action.option_strings and (value := self._of(ARGUMENTS, action.dest)) is not None
        ]

    def _of(self, values: dict[str, str], name: str) -> str | None:
        return values.get(f"{self.command} {name}", values.get(name))

    def words(self, action: argparse.Action, *, refused: bool = False) -> list[str]:
        """Return an option with its value, as it is typed."""
        name = action.option_strings[-1]
        if action.nargs == 0:
            return [name]
        if refused and name in REFUSED_VALUES:
            return [name, REFUSED_VALUES[name]]
        value = self._of(VALUES, name)
        if value is None and name == "--generation":
            kind = "job" if self.command.startswith("allocation") else "lab-0/gpu0"
            value = str(self._generations[kind])
        if value is None and action.choices:
            value = list(action.choices)[-1]
        return [name] if value is None else [name, value]

    def lines(self, *, all_pairs: bool) -> Iterator[list[str]]:
        """Yield the command with each option, and with pairs of options."""
        pairs: Any = itertools.combinations(self.optional, 2)
        if not all_pairs and len(self.optional) > FEW:
            pairs = itertools.pairwise(self.optional)
        for several in [(), *((item,) for item in self.optional), *pairs]:
            required = [item for item in self.required if item not in several]
            for refused in (None, *several):
                if refused is not None and refused.option_strings[-1] not in REFUSED_VALUES:
                    continue
                typed = [
                    word
                    for item in [*required, *several]
                    for word in self.words(item, refused=item is refused)
                ]
                program = ["--", "true"] if self.command == "run" else []
                yield [*self.command.split(), *self.positional, *typed, *program]


Stored = dict[str, list[tuple[Any, ...]]]


def stored(path: pathlib.Path) -> Stored:
    """Return the rows of all tables."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in names}


@pytest.fixture
def lab(
    sqlite_url: Callable[..., str],
    home: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> pathlib.Path:
    """The file of the ledger, and the files that options name in the working directory."""
    monkeypatch.setenv("RESOURCE_OBJECTS_DATABASE", sqlite_url("lab.db", build))
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path / "lab.db"


def run(argv: Sequence[str]) -> tuple[int, str]:
    """Run a command; return its status and what it says of errors."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return main.main(argv), err.getvalue()


def check(command: str, lab: pathlib.Path, *, all_pairs: bool) -> None:
    """Run a command with its options and compare the tables before and after."""
    with ro.connect(f"sqlite:///{lab}") as ledger:
        generations = {"lab-0/gpu0": ledger.provider("lab-0/gpu0").generation or 0}
        generations["job"] = ledger.get_claim("job").generation
    template = shutil.copy(lab, lab.with_name("template.db"))
    before = stored(lab)
    faults = []
    for argv in Options(command, generations).lines(all_pairs=all_pairs):
        status, content = run(argv)
        after = stored(lab)
        writes = [row[2:4] for row in after["operations"] if row not in before["operations"]]
        changed = [name for name, rows in after.items() if rows != before[name]]
        is_crash = status == BROKEN or "Traceback" in content or "object at 0x" in content
        is_released = EXPIRED in writes and not RELEASING.isdisjoint(argv)
        owned = len(writes) - is_released
        is_refused_in_part = status != SUCCESS and bool(owned or (changed and not is_released))
        is_partial = is_refused_in_part or owned > WRITES.get(command, 1)
        if is_crash or is_partial:
            faults.append((" ".join(argv), status, content, changed, writes))
        if changed:
            for name in lab.parent.glob("lab.db*"):
                os.unlink(name)
            shutil.copy(template, lab)
    assert not faults


@pytest.mark.parametrize("command", COMMANDS)
def test_options_work_together_and_a_refusal_changes_nothing(
    command: str, lab: pathlib.Path
) -> None:
    check(command, lab, all_pairs=False)


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_all_pairs_of_options_work_together(command: str, lab: pathlib.Path) -> None:
    check(command, lab, all_pairs=True)
