"""Bringing a database up to date, and which ledger a command opens."""

from __future__ import annotations

import os
import pathlib
import stat
from collections.abc import Callable, Iterator

import pytest

from resource_objects.cli.base import database_url, default_path
from resource_objects.cli.main import Commands
from resource_objects.testing.refusals import raises_code

_NOBODY = 65534


@pytest.fixture
def without_rights() -> Iterator[Callable[[], None]]:
    """A function after which, until the end of the test, this process is not root's."""
    before = os.geteuid()

    def become_nobody() -> None:
        if before == 0:  # root may write anywhere
            os.seteuid(_NOBODY)

    yield become_nobody
    os.seteuid(before)


# --- db upgrade ---------------------------------------------------------------------------------


def test_upgrade_makes_the_tables_once(run, tmp_path):
    url = f"sqlite:///{tmp_path}/lab.db"
    done = run("db", "upgrade", "--database", url)
    assert (done.status, done.err) == (0, "")
    assert done.lines[0].startswith("0001 ")
    assert run("db", "upgrade", "--database", url).out == "nothing to do\n"
    assert run("provider", "list", "--database", url, "-f", "json").out == "[]\n"


def test_upgrade_of_a_ledger_in_memory_has_nothing_to_do(run):
    assert run("db", "upgrade", "--database", "memory://").out == "nothing to do\n"


# --- which ledger -------------------------------------------------------------------------------


def test_the_default_ledger_is_a_file_in_a_directory_of_the_user_s_own(run, default_ledger):
    assert run("provider", "list").status == 0
    assert default_ledger.is_file()
    assert stat.S_IMODE(default_ledger.parent.stat().st_mode) == 0o700


def test_the_data_directory_of_the_user_is_heeded(run, monkeypatch, tmp_path, home):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert run("provider", "list").status == 0
    assert (tmp_path / "data" / "resource_objects" / "ledger.db").is_file()
    assert list(home.iterdir()) == []


def test_a_relative_data_directory_is_ignored_as_its_specification_says():
    environ = {"XDG_DATA_HOME": "data", "HOME": "/home/me"}
    expected = "/home/me/.local/share/resource_objects/ledger.db"
    assert str(default_path(environ)) == expected


def test_the_option_goes_before_the_environment_and_that_before_the_default(tmp_path):
    environ = {"RESOURCE_OBJECTS_DATABASE": "memory://", "HOME": str(tmp_path)}
    assert database_url("sqlite:///lab.db", environ) == "sqlite:///lab.db"
    assert database_url(None, environ) == "memory://"
    assert list(tmp_path.iterdir()) == []
    empty = {"RESOURCE_OBJECTS_DATABASE": "", "HOME": str(tmp_path)}
    path = tmp_path / ".local/share/resource_objects/ledger.db"
    assert database_url(None, empty) == f"sqlite:///{path}"


def test_a_ledger_named_by_the_environment_leaves_the_home_alone(run, monkeypatch, tmp_path, home):
    monkeypatch.setenv("RESOURCE_OBJECTS_DATABASE", f"sqlite:///{tmp_path}/lab.db")
    assert run("provider", "create", "host0").status == 0
    assert (tmp_path / "lab.db").is_file()
    assert list(home.iterdir()) == []


ARGUMENTS = {
    **dict.fromkeys(("provider show", "provider usage show", "export", "device list"), "lab-0"),
    **{f"provider {kind} list": "lab-0" for kind in ("inventory", "trait", "aggregate")},
    **dict.fromkeys(("candidates", "allocation candidate list", "explain", "what-if"), "VCPU=1"),
    **dict.fromkeys(("how-many", "when", "schedule"), "VCPU=1"),
    **dict.fromkeys(("consumer show", "allocation show"), "job"),
    "allocation list": "lab-0",
    "device show": "lab-0/0000:3b:00.0",
    "server group show": "pair",
    "host show": "--numa=lab-0",
    "usage between": "2026-01-01",
}


READING = [
    name
    for name, entry in Commands().commands.items()
    if name not in ("help", "complete") and entry.load().reads
]


@pytest.mark.parametrize("command", READING)
def test_a_command_that_reads_refuses_a_file_that_does_not_exist(run, tmp_path, command):
    path = tmp_path / "labb.db"
    more = [ARGUMENTS[command]] if command in ARGUMENTS else []
    done = run(*command.split(), *more, "--database", f"sqlite:///{path}")
    assert (done.status, done.out) == (70, "")
    reason = "there is no such file; `db upgrade` and commands that write create it"
    assert done.err == f"resource-objects: {path} cannot be opened: {reason}\n"
    assert not path.exists()


def test_a_command_that_writes_creates_the_file_if_it_writes(run, tmp_path):
    path = tmp_path / "lab.db"
    database = ("--database", f"sqlite:///{path}")
    for refused in (("claim", "job", "VCPU=1"), ("provider", "delete", "x")):
        assert run(*refused, *database).status == 1
        assert not path.exists()
    assert run("db", "status", *database).status == 0
    assert not path.exists()
    assert run("trait", "create", "CUSTOM_A", *database).status == 0
    assert run("provider", "list", *database).status == 0


def test_the_ledger_of_a_user_is_created_by_the_first_command(run, default_ledger):
    assert run("provider", "list").status == 0
    assert default_ledger.is_file()


def test_a_file_that_may_not_be_read_is_a_broken_ledger(run, tmp_path, monkeypatch):
    path = tmp_path / "lab.db"
    path.touch()
    may = os.access
    monkeypatch.setattr(
        os, "access", lambda name, mode, **more: name != path and may(name, mode, **more)
    )
    for command in (("provider", "list"), ("provider", "create", "host0"), ("db", "status")):
        done = run(*command, "--database", f"sqlite:///{path}")
        assert done.status == 70
        text = f"resource-objects: {path} cannot be opened: this process may not read it\n"
        assert done.err == text


def test_a_user_without_a_home_is_told_what_to_do(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(pathlib.Path, "home", homeless)
    with raises_code("DatabaseUnavailable") as refused:
        default_path({})
    assert str(refused.value) == (
        "the ledger of this user cannot be opened: no home; "
        "choose another ledger with --database or RESOURCE_OBJECTS_DATABASE"
    )


# --- ledgers that cannot be opened --------------------------------------------------------------


def test_a_home_that_is_no_directory_is_one_line(run, home):
    home.rmdir()
    home.write_text("")
    done = run("usage")
    directory = home / ".local/share/resource_objects"
    assert (done.status, done.out) == (70, "")
    assert done.err == (
        f"resource-objects: {directory} cannot be opened: Not a directory; "
        "choose another ledger with --database or RESOURCE_OBJECTS_DATABASE\n"
    )


def test_a_home_that_cannot_be_written_is_one_line(run, home, without_rights):
    assert run("usage", "--database", "memory://").status == 0  # nothing is left to import
    home.chmod(0o500)
    without_rights()
    done = run("usage")
    assert (done.status, done.out) == (70, "")
    assert "cannot be opened: Permission denied; choose another ledger" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_home_that_refuses_is_one_line_whoever_runs(run, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(pathlib.Path, "mkdir", refuse)
    done = run("db", "upgrade")
    assert (done.status, done.out) == (70, "")
    assert "cannot be opened: Read-only file system; choose another ledger" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("command", [["usage"], ["db", "upgrade"], ["release", "x"]])
@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("sqlite:////no/such/lab.db", "there is no directory /no/such"),
        ("lab.db", "ledger URL: got 'lab.db', expected a URL"),
        ("nosuch://lab", "nosuch is not a backend: installed: "),
        ("memory://x", "ledger URL: got 'memory://x'"),
    ],
)
def test_a_ledger_that_cannot_be_opened_is_one_line(run, command, url, line):
    done = run(*command, "--database", url)
    assert done.status == 70
    assert line in done.err
    assert done.err.startswith("resource-objects: ")
    assert len(done.err.splitlines()) == 1


def test_a_file_that_is_no_database_is_one_line(run, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database\n" * 100)
    done = run("usage", "--database", f"sqlite:///{path}")
    assert (done.status, done.out) == (70, "")
    assert done.err.startswith(f"resource-objects: {path} cannot be opened")
    assert len(done.err.splitlines()) == 1
    assert path.read_text() == "not a database\n" * 100


# --- the default file is its owner's ---


def mode_of(path: pathlib.Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_the_default_ledger_is_for_its_owner_alone(run, default_ledger) -> None:
    before = os.umask(0o022)
    try:
        assert run("provider", "create", "box", "VCPU=1").status == 0
    finally:
        os.umask(before)
    assert mode_of(default_ledger.parent) == "0o700"
    assert {path.name: mode_of(path) for path in default_ledger.parent.iterdir()} == {
        path.name: "0o600" for path in default_ledger.parent.iterdir()
    }


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_to_which_others_can_write_is_refused(run, default_ledger, mode: int) -> None:
    default_ledger.parent.mkdir(parents=True)
    default_ledger.parent.chmod(mode)
    done = run("provider", "list")
    assert done.status == 70
    assert f"{default_ledger.parent} cannot be opened: others can write to it; choose" in done.err
    assert not default_ledger.exists()


def test_a_link_in_its_place_is_refused(run, default_ledger, tmp_path) -> None:
    default_ledger.parent.mkdir(parents=True, mode=0o700)
    default_ledger.symlink_to(tmp_path / "planted.db")
    done = run("provider", "list")
    assert done.status == 70
    assert f"{default_ledger} cannot be opened: it is a link; choose" in done.err
    assert not (tmp_path / "planted.db").exists()


def test_a_pipe_in_its_place_is_refused_and_does_not_block(run, default_ledger) -> None:
    default_ledger.parent.mkdir(parents=True, mode=0o700)
    os.mkfifo(default_ledger)
    done = run("provider", "list")
    assert (done.status, f"{default_ledger} cannot be opened: no file" in done.err) == (70, True)


def test_the_help_says_who_sees_a_url_and_what_to_do(run) -> None:
    output = " ".join(run("--help").out.split())
    assert (
        "Others on this machine see it: a password belongs in $RESOURCE_OBJECTS_DATABASE" in output
    )
    assert "~/.pgpass" in output
