"""The program: its help, its options, and how errors and ends are said."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

import resource_objects
from resource_objects import exceptions, plugins
from resource_objects.cli import main as program
from resource_objects.cli.base import Command
from tests.support.lengths import some
from tests.support.patience import until

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAVY = {
    "numpy", "sqlalchemy", "alembic", "oslo_db", "oslo_versionedobjects", "psutil", "cmd2", "yaml",
    "prettytable", "os_traits",
}  # fmt: skip


# --- help and version ---------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_the_help_lists_every_command(run, argv):
    done = run(*argv)
    assert (done.status, done.err) == (0, "")
    assert done.lines[0] == "usage: resource-objects [options] COMMAND [arguments]"
    listed = done.out.partition("Commands:\n")[2]
    for name in program.BUILT_IN:
        assert f"  {name} " in listed
    assert re.search(r"^  tour +Show the library in a minute, on this machine$", listed, re.M)


@pytest.mark.parametrize(
    "argv",
    [
        ["claim", "--help"],
        ["--help", "claim"],
        ["help", "claim"],
        ["claim", "job-1", "-f", "json", "--help"],
    ],
)
def test_the_help_of_a_command_tells_its_arguments(run, argv):
    done = run(*argv)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("usage: resource-objects claim [-h]")
    assert "Allocate resources for a consumer on a host with enough of them." in done.out
    assert "--required TRAIT" in done.out


def test_every_command_has_a_help_of_its_own(run):
    for name in program.BUILT_IN:
        done = run(*name.split(), "--help")
        assert (done.status, done.err) == (0, "")
        assert done.out.startswith(f"usage: resource-objects {name} ")


def test_the_version_is_the_library_s(run):
    done = run("--version")
    assert (done.status, done.err) == (0, "")
    assert done.out == f"resource-objects {resource_objects.__version__}\n"


@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["claim", "--nonsense"]])
def test_help_and_version_import_nothing_heavy(shell, home, argv):
    code = (
        "import sys; from resource_objects.cli.main import main; main(sys.argv[1:]); "
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        cwd=home,
    )
    assert done.returncode == 0
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    formatters = {"prettytable"} if argv[0] == "claim" else set()
    assert loaded & HEAVY == formatters


# --- which commands there are -------------------------------------------------------------------


def test_the_table_names_declared_commands():
    for path in program.BUILT_IN.values():
        module, _, name = path.partition(":")
        assert issubclass(getattr(importlib.import_module(module), name), Command)


@pytest.mark.long
def test_commands_work_from_a_checkout_that_is_not_installed(home, tmp_path):
    """Only the sources are there, and what they depend on: no entry points of ours."""
    sources, other_paths = tmp_path / "sources", tmp_path / "others"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "resource_objects", sources / "resource_objects", ignore=ignored)
    other_paths.mkdir()
    for path in filter(os.path.isdir, sys.path):
        if path.endswith("-packages"):
            for item in pathlib.Path(path).iterdir():
                if "resource_objects" not in item.name and not (other_paths / item.name).exists():
                    (other_paths / item.name).symlink_to(item)

    def run_copy(*argv: str) -> str:
        done = subprocess.run(
            [sys.executable, "-S", "-W", "error", "-m", "resource_objects", *argv],
            env={**os.environ, "PYTHONPATH": f"{sources}{os.pathsep}{other_paths}"},
            capture_output=True,
            text=True,
            cwd=home,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    place = subprocess.run(
        [sys.executable, "-S", "-c", "import resource_objects as ro; print(ro.__file__)"],
        env={**os.environ, "PYTHONPATH": str(sources)},
        capture_output=True,
        text=True,
        cwd=home,
    )
    assert place.stdout.startswith(str(sources))
    assert run_copy("host", "sync", "--name", "box") == "+ box\n"
    assert json.loads(run_copy("provider", "list", "-f", "json"))[0]["provider"] == "box"
    assert "host sync" in run_copy("--help")


@pytest.fixture
def plugin(monkeypatch):
    """Declare commands of another distribution."""

    def declare(**entries: str) -> None:
        real = plugins._entry_points
        monkeypatch.setattr(
            plugins,
            "_entry_points",
            lambda namespace: (
                {
                    **real(namespace),
                    **{name: (path,) for name, path in entries.items()},
                }
                if namespace == program.NAMESPACE
                else real(namespace)
            ),
        )

    return declare


def test_a_plug_in_adds_a_command(run, plugin):
    plugin(lab_report="resource_objects.cli.provider:draw_providers")
    assert run("lab", "report").out == "nothing is kept\n"
    assert "  lab report " in run("--help").out


def test_a_plug_in_that_fails_to_load_is_named_with_its_reason(run, plugin):
    plugin(lab_report="no_such_module:Report")
    reason = (
        "plug-in 'lab_report' of resource_objects.cli cannot be used: "
        "ModuleNotFoundError: No module named 'no_such_module'"
    )
    done = run("lab", "report")
    assert (done.status, done.out, done.err) == (70, "", f"resource-objects: {reason}\n")
    assert reason in " ".join(run("--help").out.split())
    assert run("provider", "tree").status == 0


@pytest.mark.parametrize("condition", exceptions.DatabaseError.CASES)
def test_what_is_wrong_with_the_database_is_told_from_a_refusal(run, monkeypatch, condition):
    def connect(*_: object, **__: object) -> None:
        raise exceptions.DatabaseError(condition, "lab.db")

    monkeypatch.setattr("resource_objects.ledger.ledger.backend_for", connect)
    done = run("provider", "tree")
    assert (done.status, done.out) == (70, "") and "lab.db" in done.err


def test_a_plug_in_does_not_replace_a_command_of_ours(run, plugin):
    plugin(provider_tree="no_such_module:Tree")
    assert run("provider", "tree").out == "nothing is kept\n"


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (
            ["host"],
            "'host' is no command; there is host show, host sync, "
            "host disable, host enable, host drain",
        ),
        (["clam", "x"], "'clam x' is no command; there is claim"),
        (["clam", "-f", "json"], "'clam' is no command; there is claim"),
        (["frobnicate"], "'frobnicate' is no command; see resource-objects --help"),
        (
            ["help", "host"],
            "'host' is no command; there is host show, host sync, "
            "host disable, host enable, host drain",
        ),
        (["help", "zzz"], "'zzz' is no command; see resource-objects --help"),
    ],
)
def test_what_is_no_command_is_said_in_one_line_with_what_is_near(run, argv, line):
    done = run(*argv)
    assert (done.status, done.out, done.err) == (2, "", f"resource-objects: {line}\n")


@pytest.mark.parametrize(
    "argv",
    [
        ["--nonsense"],
        ["claim"],
        ["usage", "--nonsense"],
        ["usage", "-f", "nonsense"],
        ["host", "show", "--numa", "--pci"],
        ["db", "upgrade", "now"],
        ["--database"],
    ],
)
def test_bad_arguments_end_with_status_2_and_nothing_on_the_output(run, argv):
    done = run(*argv)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("usage: resource-objects")
    assert "error: " in done.err.splitlines()[-1]


# --- errors -------------------------------------------------------------------------------------


def test_an_error_is_one_line_and_status_1(run):
    done = run("release", "job-1")
    assert (done.status, done.out) == (1, "")
    assert done.err == "resource-objects: job-1 has no allocations in this ledger\n"


@pytest.mark.parametrize("argv", [["--debug", "release", "job-1"], ["release", "job-1", "--debug"]])
def test_debug_shows_where_an_error_comes_from_and_then_the_line(run, argv):
    done = run(*argv)
    assert done.status == 1
    assert done.err.startswith("Traceback (most recent call last):\n")
    assert done.err.splitlines()[-1] == "resource-objects: job-1 has no allocations in this ledger"


def test_an_unexpected_error_is_one_line_that_names_its_type(run, monkeypatch):
    def broken(*arguments, **options):
        raise KeyError("lost\nkey")

    monkeypatch.setattr("resource_objects.ledger.connect", broken)
    done = run("usage")
    assert (done.status, done.out) == (70, "")
    assert done.err == (
        "resource-objects: KeyError: 'lost\\nkey' (unexpected; --debug shows where)\n"
    )


def test_an_error_of_several_lines_is_said_in_one(run, monkeypatch):
    def broken(*arguments, **options):
        raise exceptions.DatabaseError("unavailable", "lab.db", "first\n  second\n")

    monkeypatch.setattr("resource_objects.ledger.connect", broken)
    done = run("usage")
    assert done.err == "resource-objects: lab.db cannot be opened: first; second\n"


def test_an_unknown_column_is_one_line(run):
    done = run("usage", "-c", "nonsense")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("resource-objects: No recognized column names in ['nonsense'].")
    assert len(done.err.splitlines()) == 1


@pytest.mark.long
def test_what_libraries_log_is_shown_only_when_asked(shell):
    assert shell("provider", "list").err == ""
    assert "alembic" in shell("-v", "db", "upgrade", "--database", "sqlite:///new.db").err


# --- how it ends --------------------------------------------------------------------------------


def test_an_interrupt_is_one_line(run, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("resource_objects.ledger.connect", interrupted)
    done = run("usage")
    assert (done.status, done.out, done.err) == (130, "", "resource-objects: interrupted\n")


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_an_interrupt_that_an_import_turned_into_another_error_is_one_line(run, monkeypatch, link):
    def interrupted(*arguments, **options):
        error = RuntimeError("Error calling __set_name__")
        setattr(error, link, KeyboardInterrupt())
        raise error

    monkeypatch.setattr("resource_objects.ledger.connect", interrupted)
    done = run("usage")
    assert (done.status, done.out, done.err) == (130, "", "resource-objects: interrupted\n")


@pytest.mark.parametrize("module", ["resource_objects.cli.main", "cliff.app", "sqlalchemy"])
def test_ctrl_c_while_modules_are_imported_is_one_line(home, module):
    code = (
        "import os, runpy, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *arguments):\n"
        f"        if name == {module!r}:\n"
        "            sys.meta_path.remove(self)\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['resource-objects', 'usage']\n"
        "runpy.run_module('resource_objects', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        cwd=home,
    )
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr == b"resource-objects: interrupted\n"


def test_ctrl_c_in_a_process_is_one_line(home):
    code = (
        "import itertools, signal, sys, time, resource_objects.ledger as front\n"
        "from resource_objects.cli import main\n"
        # tests run in the background of a shell inherit that it is ignored
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        # no read: one that begins when the signal is there sees the end of the input before it
        "def wait(url, **options):\n"
        "    print('inside', flush=True)\n"
        "    for _ in itertools.count():\n"
        "        time.sleep(0.01)\n"
        "front.connect = wait\n"
        "sys.exit(main.main(['usage']))"
    )
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=home,
    )
    assert child.stdout.readline() == b"inside\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (130, b"", b"resource-objects: interrupted\n")


@pytest.mark.parametrize("size", [500, 5_000, 50_000_000])
def test_ctrl_c_while_nobody_reads_the_output_is_one_line(home, size):
    """A pipe takes 64 KiB; what is left waits in the last flush, or already in the command."""
    code = (
        "import signal, sys\n"
        "from resource_objects.cli import main, base\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Large(base.Command):\n"
        "    def take_action(self, parsed_args):\n"
        "        print('begun', file=sys.__stderr__, flush=True)\n"
        f"        print('x' * {size})\n"
        "main.Commands.find_command = lambda self, argv: (Large, 'large', argv[1:])\n"
        "sys.exit(main.main(['large']))"
    )
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = os.write(writer, b"f" * 1_000_000)  # as much as it takes
    os.set_blocking(writer, True)
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=home,
    )
    os.close(writer)
    try:
        assert child.stderr.readline() == b"begun\n"
        seen = []
        until(lambda: seen.append(state(child.pid)) or seen[-9:] == ["S"] * 9)  # it sleeps
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
        assert (child.returncode, err) == (130, b"resource-objects: interrupted\n")
        assert os.read(reader, 1_000_000) == b"f" * filled and os.read(reader, 1) == b""
    finally:
        os.close(reader)


def state(pid: int) -> str:
    """Return the state of a process as the kernel reports it: R running, S sleeping."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.mark.parametrize(
    "argv", some([["provider", "list"], ["--help"], ["tour"], ["host", "show"]])
)
def test_a_closed_pipe_is_silent(home, argv):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "resource_objects", *argv],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=closed,
            stderr=subprocess.PIPE,
            cwd=home,
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_full_disk_is_one_line(home):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "resource_objects", "host", "show"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=home,
        )
    assert done.returncode == 1
    assert done.stderr == "resource-objects: [Errno 28] No space left on device\n"


def test_a_closed_output_is_no_error(home):
    done = subprocess.run(
        f"{sys.executable} -W error -m resource_objects host show >&-",
        shell=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        cwd=home,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.long
def test_text_that_the_output_cannot_say_is_escaped(shell):
    ledger = "sqlite:///lab.db"
    assert shell("host", "sync", "--name", "höst", "--database", ledger).out == "+ höst\n"
    done = shell("usage", "--tree", "--database", ledger, PYTHONIOENCODING="ascii")
    assert (done.status, done.err) == (0, "")
    assert done.lines[0] == "h\\xf6st"
    assert done.lines[1].startswith("|- VCPU ")
    assert program.PROGRAM == "resource-objects"
