"""Output on terminals of any width, in a pipe, in ASCII, and during long commands."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

import resource_objects as ro
from resource_objects.cli import progress
from resource_objects.cli.main import BUILT_IN, main
from tests.cli.conftest import ROOT
from tests.cli.forked import Program
from tests.support.patience import until

HOST = "compute-rack0.example.org"
GPU = f"{HOST}/0000:3b:00.0"


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> str:
    """The URL of a ledger with long names; nobody writes to it."""
    url = f"sqlite:///{tmp_path_factory.mktemp('lab') / 'lab.db'}"
    with ro.connect(url) as ledger:
        for number in range(2):
            host = ro.Provider(
                f"compute-rack{number}.example.org",
                "VCPU=64:reserved=2:allocation_ratio=4,MEMORY_MB=515000,CUSTOM_FPGA_ALVEO=2",
                aggregates=["rack-1", "room-south"],
            )
            for gpu in range(3):
                traits = ["CUSTOM_H100", "HW_GPU_API_VULKAN"]
                host.add(f"{host.name}/0000:3b:00.{gpu}", "PGPU=1", traits=traits)
            ledger.sync(host)
        ledger.sync(ro.Provider("storage", "DISK_GB=100000"))
        ledger.pools.share("storage", hosts=[HOST])
        for number in range(4):
            request = ro.Request("VCPU=16,MEMORY_MB=65536,PGPU=1,CUSTOM_FPGA_ALVEO=1")
            result = ledger.snapshot().candidates(request)
            ledger.claim(f"training-run-{number}", result, user="ann", project="vision")
        ledger.disable("compute-rack1.example.org", reason="the fan is loud, somebody comes Monday")
    return url


#: Commands that list, show or draw, on that ledger.
SEEN = (
    "candidates VCPU=1",
    "candidates --group _A --resource VCPU=1",
    "consumer list",
    "consumer show training-run-0",
    "allocation show training-run-0",
    f"allocation list {HOST} --tree",
    "usage",
    "usage --tree",
    "usage hosts",
    "usage total --by provider",
    "mine --user ann",
    "provider list",
    f"provider show {HOST}",
    "provider tree",
    f"provider usage show {HOST}",
    f"provider inventory list {HOST}",
    f"provider trait list {GPU}",
    f"provider aggregate list {HOST}",
    "class list",
    "trait list --custom",
    "aggregate list",
    "pool list",
    "audit",
    "changes",
    "db status",
    "host show",
    "--help",
    "claim --help",
    "run --help",
    "usage total --help",
)


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self, encoding: str = "utf-8", *, is_seen: bool = True) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)
        self._is_seen = is_seen

    def isatty(self) -> bool:
        return self._is_seen

    @property
    def text(self) -> str:
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined]


@pytest.fixture
def see(home, monkeypatch):
    """Run a command on a terminal; return its status, its lines and its errors."""

    def run(
        command: str, url: str, columns: int, encoding: str = "utf-8", *, is_seen: bool = True
    ) -> tuple[int, list[str], str]:
        out, err = Terminal(encoding, is_seen=is_seen), Terminal(encoding)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        status = main(["--database", url, *command.split()])
        monkeypatch.undo()
        return status, out.text.splitlines(), err.text

    return run


# --- how wide -------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_wider_than_the_terminal(see, lab, columns):
    for command in SEEN:
        status, lines, _ = see(command, lab, columns)
        assert status == 0 and lines, command
        assert [line for line in lines if len(line) > columns] == [], command


def test_names_are_not_broken(see, lab):
    for columns in (20, 80, 120):
        for command, name in (("usage", GPU), ("provider list", GPU), ("mine --user ann", HOST)):
            lines = see(command, lab, columns)[1]
            assert any(name in line.split() for line in lines), (command, columns)


def test_a_terminal_of_twenty_columns_changes_no_status(see, lab):
    for command in SEEN:
        status, lines, err = see(command, lab, 20)
        assert (status, "Traceback" in err) == (0, False), command
        assert [line for line in lines if len(line) > 100] == [], command
    for command in ("usage nobody", "release nobody", "claim job PGPU=100"):
        wide, narrow = see(command, lab, 120), see(command, lab, 20)
        assert narrow == wide and narrow[0] == 1, command


def test_in_a_pipe_the_width_does_not_matter(see, lab):
    for command in SEEN:
        if "--help" not in command:
            narrow = see(command, lab, 20, is_seen=False)[1]
            wide = see(command, lab, 500, is_seen=False)[1]
            assert _ageless(narrow) == _ageless(wide), command


def _ageless(lines: list[str]) -> list[str]:
    """Return lines without how long something has been."""
    return [re.sub(r"\b\d+ (s|min)\b +", "", line) for line in lines]


def test_a_width_may_be_said(see, lab):
    lines = see("usage --max-width 60", lab, 500, is_seen=False)[1]
    assert max(map(len, lines)) <= 60


def test_no_colour_and_ascii_where_that_is_all_there_is(see, lab):
    for command in SEEN:
        status, lines, err = see(command, lab, 80, "ascii")
        assert status == 0, command
        assert not any("\x1b" in line or "\\u" in line for line in [*lines, err]), command


# --- what the help tells, and what is said of nothing ---------------------------------------------


def class_of(name: str) -> type:
    module, _, attribute = BUILT_IN[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def test_the_help_names_the_columns(see):
    for name in BUILT_IN:
        command = class_of(name)
        if hasattr(command, "produce_output"):
            assert command.columns, name
            output = " ".join(see(f"{name} --help", "memory://", 80)[1])
            for columns in (command.columns, *command.columns_with.values()):
                assert ", ".join(columns) in " ".join(output.split()), name


def test_the_columns_are_those_that_programs_get(see, lab):
    for command in SEEN:
        name = next(
            (item for item in sorted(BUILT_IN, reverse=True) if command.startswith(item)), ""
        )
        if not name or "--help" in command or not hasattr(class_of(name), "produce_output"):
            continue
        answer = json.loads("\n".join(see(f"{command.replace('--tree', '')} -f json", lab, 80)[1]))
        rows = answer if isinstance(answer, list) else [answer]
        columns = class_of(name).columns
        for row in rows:
            assert [item for item in columns if item in row] == list(row), command
            if name != "candidates":
                assert tuple(row) == columns, command


EMPTY = {
    "consumer list": "no consumer matches",
    "usage": "nothing is kept",
    "usage --user ann": "user ann holds nothing",
    "usage hosts": "the ledger has no hosts",
    "usage total": "nothing is used",
    "mine --user ann": "user ann holds nothing",
    "provider list": "no provider matches",
    "provider tree": "nothing is kept",
    "trait list --custom": "there are none",
    "aggregate list": "there are no aggregates",
    "pool list": "no pool matches",
    "device list": "no device matches",
    "audit": "nothing is wrong",
    "waiting": "nobody waits",
    "changes": "nothing was written since",
    "release --user nobody": "nothing was held",
}


def test_a_list_without_rows_is_a_sentence(see, sqlite_url):
    url = sqlite_url("empty.db")
    for command, sentence in EMPTY.items():
        assert see(command, url, 80)[:2] == (0, [sentence]), command


def test_for_programs_a_list_without_rows_is_one(see, sqlite_url):
    url = sqlite_url("empty.db")
    for command in ("consumer list", "provider list", "audit", "device list"):
        assert see(f"{command} -f json", url, 80)[1] == ["[]"]
        assert see(f"{command} -f value", url, 80)[1] in ([], [""])


# --- how far it is --------------------------------------------------------------------------------


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """The clock that bars look at."""
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.fixture
def terminal(monkeypatch) -> Terminal:
    """The terminal that progress bars are drawn on."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "__stderr__", terminal)
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return terminal


def test_what_is_done_within_two_seconds_shows_no_bar(clock, terminal, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)  # and imports nothing for one
    with progress.Bar("apply") as bar:
        bar.tell(0, 10)
        clock.now += 1.9
        bar.tell(10, 10)
    assert terminal.text == ""


def test_what_takes_longer_shows_a_bar_and_takes_it_away(clock, terminal):
    with progress.Bar("apply") as bar:
        bar.tell(0, 10)
        clock.now += 2.1
        bar.tell(5, 10)
        bar.tell(6, 10)
    assert "apply" in terminal.text and "%" in terminal.text
    assert "\x1b[?25h" in terminal.text  # the cursor is shown again
    assert terminal.text.endswith("\x1b[2K")  # and the line of the bar is empty
    shown = terminal.text
    bar.tell(7, 10)
    assert terminal.text == shown


def test_what_cannot_tell_how_far_it_is_shows_that_it_goes_on(terminal, monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    with progress.Bar("audit", is_told=False):
        until(lambda: "audit" in terminal.text)
    assert "%" not in terminal.text.replace("  0%", "") and "\x1b[?25h" in terminal.text
    shown = terminal.text
    monkeypatch.setattr(progress, "_PATIENCE", 60.0)
    with progress.Bar("audit", is_told=False) as bar:
        waiting = bar._timer
    waiting.join(60)  # it was taken back
    assert terminal.text == shown


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["audit"], ""),
        (["reshape"], "version: 1\nmoves: []"),
        (["db", "upgrade"], ""),
        (["usage"], ""),
        (["usage", "total"], ""),
        (["provider", "list"], ""),
        (["provider", "tree"], ""),
    ],
)
def test_commands_that_walk_all_that_is_kept_show_it(run, monkeypatch, tmp_path, words, text):
    seen = []
    monkeypatch.setattr(progress.Bar, "__enter__", lambda bar: seen.append(bar._word) or bar)
    if text:
        (tmp_path / "plan.yaml").write_text(text)
        words = [*words, str(tmp_path / "plan.yaml")]
    done = run(*words)
    assert done.status == 0, done.err
    assert seen == [" ".join(words[:2] if not text else words[:1])]


def test_a_bar_is_taken_away_by_an_error_too(clock, terminal):
    with pytest.raises(KeyboardInterrupt), progress.Bar("export") as bar:
        clock.now += 3
        bar.tell(1, 2)
        raise KeyboardInterrupt
    assert "\x1b[?25h" in terminal.text


@pytest.mark.parametrize("missing", ["terminal", "stream"])
def test_where_nobody_can_see_a_bar_there_is_none(clock, terminal, monkeypatch, missing):
    if missing == "terminal":
        terminal._is_seen = False
    else:
        monkeypatch.setattr(sys, "__stderr__", None)
    with progress.Bar("apply") as bar:
        clock.now += 3
        bar.tell(1, 2)
    assert (terminal.text, bar.done, bar.total) == ("", 1, 2)


def test_apply_tells_the_bar_how_far_it_is(run, clock, terminal, monkeypatch, tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text("machines:\n  lab-[0-9]:\n    inventories: VCPU=4\n")
    output = []
    monkeypatch.setattr(progress.Bar, "tell", lambda bar, done, total: output.append((done, total)))
    assert run("apply", str(path)).status == 0
    assert output[-1] == (10, 10)
    output.clear()
    monkeypatch.setattr("resource_objects.site.site.PROGRESS_STEP", 4)
    assert run("export").status == 0
    assert output == [(4, 10), (8, 10)]


# --- how it ends ----------------------------------------------------------------------------------


def start(home: pathlib.Path, code: str, *argv: str, **streams) -> subprocess.Popen:
    """Start the command in a process, after some code; Ctrl-C interrupts it."""
    interruptible = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    run = "\nimport sys; from resource_objects.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", interruptible + code + run, *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=home,
        text=True,
        **streams,
    )


def test_an_interrupted_wait_is_one_line_and_leaves_nothing(home, sqlite_url):
    url = sqlite_url("lab.db")
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("box", "VCPU=1"))
        ledger.claim("first", {"box": "VCPU=1"})
        argv = ("--database", url, "claim", "second", "VCPU=1", "--wait", "10m")
        with contextlib.closing(Program(argv, os.environ, str(home), interruptible=True)) as child:
            until(lambda: list(ledger.queue()))
            child.send_signal(signal.SIGINT)
            _, err = child.communicate()
        assert (child.returncode, err) == (130, "resource-objects: interrupted\n")
        assert [item.name for item in ledger.consumers()] == ["first"]
        ledger.release("first")
        ledger.claim("third", {"box": "VCPU=1"})


@pytest.mark.parametrize("command", ["apply", "export"])
def test_an_interrupted_site_is_one_line(home, sqlite_url, tmp_path, command):
    """Lots that are written stay; of the one that is not, nothing."""
    url, path = sqlite_url("lab.db"), tmp_path / "lab.yaml"
    path.write_text("machines:\n  lab-[0-9]:\n    inventories: VCPU=4\n")
    code = (
        "from resource_objects.cli import progress\n"
        "def tell(bar, done, total):\n"
        "    bar.done, bar.total = done, total\n"
        "    if done: print('inside', flush=True); input()\n"
        "progress.Bar.tell = tell\n"
        "import resource_objects.site as kept; kept.BATCH = kept.site.PROGRESS_STEP = 4"
    )
    if command == "export":
        with ro.connect(url) as ledger:
            ledger.sync(*(ro.Provider(f"lab-{number}", "VCPU=4") for number in range(4)))
    argv = ("--database", url, command, *([str(path)] if command == "apply" else []))
    with start(home, code, *argv, stdin=subprocess.PIPE) as child:
        assert child.stdout.readline() == "inside\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "resource-objects: interrupted"
    if command == "apply":
        assert "of 10 machines are written; then:" in err
    with ro.connect(url) as ledger:
        assert len(list(ledger.providers())) == 4


def test_who_reads_one_line_ends_the_rest_silently(home, lab):
    """As ``| head -1`` does, also of more than a pipe takes at once."""
    url = f"sqlite:///{home}/many.db"
    with ro.connect(url) as ledger:
        ledger.sync(*(ro.Provider(f"host-{number}" + "x" * 100, "VCPU=4") for number in range(500)))
    with start(home, "", "--database", url, "provider", "list", pipesize=4096) as child:
        assert child.stdout.readline()
        child.stdout.close()
        err = child.stderr.read()
        child.wait(timeout=60)
    assert (child.returncode, err) == (141, "")
