"""Shell completion: by the protocol of the shells, and by the shells themselves."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

import resource_objects as ro
from resource_objects.backends.sql.completion import MOST, names_beginning
from resource_objects.cli import completion
from resource_objects.cli.main import Program
from resource_objects.ledger import backend_for
from resource_objects.providers.statistics import Statistic
from tests.cli.conftest import ROOT


def fill(ledger: ro.Ledger) -> None:
    """Store some names of each kind."""
    for number in (1, 2, 10):
        host = ro.Provider(f"lab-{number}", "VCPU=8,CUSTOM_FPGA=2", aggregates=["rack-1"])
        host.add(f"lab-{number}/gpu0", "PGPU=1", traits=["CUSTOM_H100"])
        ledger.sync(host)
    ledger.sync(ro.Provider("Lab-x", "VCPU=1"), ro.Provider("lab_%", "VCPU=1"))
    for name in ("job-1", "job-2", "two words", "a:b", "gone"):
        ledger.claim(name, {"lab-1": "VCPU=1"})
    ledger.release("gone")
    ledger.statistics.put({"lab-1": [Statistic("cpu.percent", 1)]})


@pytest.fixture
def lab(home, sqlite_url, monkeypatch) -> str:
    """The URL of a ledger with some names, which the environment says."""
    url = sqlite_url("lab.db", fill)
    monkeypatch.setenv("RESOURCE_OBJECTS_DATABASE", url)
    return url


@pytest.fixture
def complete(home, monkeypatch):
    """Ask what a line may become, as the code does that a shell runs."""

    def ask(line: str) -> list[str]:
        said = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1"}
        breaks = "_ARGCOMPLETE_COMP_WORDBREAKS"
        for name, value in {**said, breaks: " \t\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}.items():
            monkeypatch.setenv(name, value)
        out = io.StringIO()
        finder = completion.Finder(Program(io.StringIO(), io.StringIO()))
        monkeypatch.setattr(finder, "_init_debug_stream", lambda: None)
        program = finder._program
        finder(
            program.parser,
            always_complete_options=False,
            exit_method=lambda status: None,
            output_stream=out,
        )
        return out.getvalue().split("\013") if out.getvalue() else []

    return ask


# --- what a line may become -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # commands, word by word; those of osc-placement too
        ("us", ["usage"]),
        ("host d", ["disable", "drain"]),
        ("resource provider sh", ["show"]),
        ("frobnicate ", []),
        # options, once a hyphen is typed
        ("--data", ["--database"]),
        ("usage hosts --mi", ["--mine"]),
        ("usage -f js", ["json"]),
        ("complete ", ["bash", "fish", "zsh"]),
        # providers, and of them hosts
        ("provider show lab-1/", ["lab-1/gpu0"]),
        ("usage hosts lab-", ["lab-1", "lab-10", "lab-2"]),
        ("usage hosts lab-1 lab-2", ["lab-2"]),
        ("provider list --in-tree lab-2", ["lab-2", "lab-2/gpu0"]),
        ("claim new PGPU=1 --at=lab-1/", ["--at=lab-1/gpu0"]),
        # consumers
        ("release ", ["a:b", "job-1", "job-2", "two\\ words"]),
        ("release job-1 j", ["job-1", "job-2"]),
        ("allocation swap job-1 job-", ["job-1", "job-2"]),
        # classes, in amounts too; traits; aggregates
        ("class delete CUSTOM_", ["CUSTOM_FPGA"]),
        ("claim new CUS", ["CUSTOM_FPGA="]),
        ("claim new VCPU=1,PG", ["VCPU=1,PGPU="]),
        ("claim new VCPU=1", []),
        ("candidates --resource VCPU=1,CUS", ["VCPU=1,CUSTOM_FPGA="]),
        ("claim new VCPU=1 --limits lab-2", ["lab-2/gpu0:", "lab-2:"]),
        ("claim new VCPU=1 --limits=lab-1:PG", ["--limits=lab-1:PGPU="]),
        ("candidates VCPU=1 --required CUSTOM_", ["CUSTOM_H100"]),
        ("candidates VCPU=1 --required !CUSTOM_", ["\\!CUSTOM_H100"]),
        ("provider list --member-of rack", ["rack-1"]),
        ("statistic list lab-1 --name cpu", ["cpu.percent"]),
        # a new name, a number, the program of a job
        ("provider create lab", []),
        ("candidates VCPU=1 --limit ", []),
        ("run PGPU=1 --at lab-1", ["lab-1", "lab-1/gpu0", "lab-10", "lab-10/gpu0"]),
        ("run PGPU=1 -- prog --", []),
    ],
)
def test_what_a_line_may_become(lab, complete, line, expected):
    assert sorted(complete(f"resource-objects {line}")) == expected


def test_after_a_command_come_the_longer_ones_and_its_arguments(lab, complete):
    result = complete("resource-objects usage ")
    assert {"hosts", "total"} < set(result[: result.index("Lab-x")])
    assert result[result.index("Lab-x") + 1] == "lab-1"


#: Consumers, as a shell is told them.
ODD = ["\\#job", "\\=job", "a:b", "a\\#b", "job-1", "job-2", "two\\ words"]


@pytest.fixture
def odd(lab) -> str:
    """Names that shells and the parser of arguments take for something else."""
    with ro.connect(lab) as ledger:
        ledger.sync(ro.Provider("-lab", "VCPU=9"), ro.Provider("#lab", "VCPU=9"))
        for name in ("-job", "--at", "#job", "=job", "a#b"):
            ledger.claim(name, {"lab-2": "VCPU=1"})
    return lab


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # a hyphen begins an option, but for what follows -- or stands behind =
        ("release --a", ["--actor"]),
        ("release -j", []),
        ("release -- -", ["--at", "-job"]),
        ("release -- --", ["--at"]),
        ("release -- -job j", ["job-1", "job-2"]),
        ("release job-1 -- j", ["job-1", "job-2"]),
        ("release -- ", ["--at", "-job", *ODD]),
        ("release ", [*ODD]),
        ("release --database x -- ", []),
        ("usage hosts -- -", ["-lab"]),
        ("usage hosts -l", []),
        ("claim new VCPU=1 --at=-", ["--at=-lab"]),
        ("claim new VCPU=1 --at -l", []),
        ("claim -- new VC", ["VCPU="]),
        ("claim -- new VCPU=1,PG", ["VCPU=1,PGPU="]),
        # a number sign begins a comment
        ("release \\#", ["\\#job"]),
        ("release '#", ["#job"]),
        ("release a\\#b \\#j", ["\\#job"]),
        ("claim new VCPU=1 --at=\\#", ["--at=\\#lab"]),
        ("claim new VCPU=1 --at \\#", ["\\#lab"]),
    ],
)
def test_names_that_look_like_something_else(odd, complete, line, expected):
    assert sorted(complete(f"resource-objects {line}")) == expected


def test_a_hyphen_is_completed_to_options_alone(odd, complete):
    result = complete("resource-objects release -")
    assert {"--actor", "--user"} < set(result)
    assert not {"-job", "--at"} & set(result)


def test_the_database_of_the_line_comes_first(lab, complete, sqlite_url):
    other = sqlite_url("other.db")
    with ro.connect(other) as ledger:
        ledger.sync(ro.Provider("elsewhere", "VCPU=1"))
    assert complete(f"resource-objects --database {other} usage hosts ") == ["elsewhere"]
    assert complete("resource-objects --database ") == []


def test_files_where_a_file_is_meant(lab, complete, tmp_path):
    (tmp_path / "site.yaml").touch()
    assert complete(f"resource-objects apply {tmp_path}/si") == [f"{tmp_path}/site.yaml"]


@pytest.mark.parametrize("content", [None, b"", b"no database at all, but a text"])
def test_a_database_that_cannot_be_read_completes_nothing(complete, monkeypatch, tmp_path, content):
    """Silently; and none is made."""
    path = tmp_path / "some.db"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("RESOURCE_OBJECTS_DATABASE", f"sqlite:///{path}")
    assert complete("resource-objects release ") == []
    assert (path.read_bytes() if path.exists() else None) == content


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "nonsense",
        "lab://x",
        "postgresql+psycopg://nobody@127.0.0.1:1/none",
        "mysql+pymysql://nobody@127.0.0.1:1/none",
    ],
)
def test_nor_does_one_that_is_not_there(complete, url):
    assert complete(f"resource-objects --database {url} release ") == []


def test_the_default_ledger_is_not_made(complete, home, default_ledger):
    assert complete("resource-objects release ") == []
    assert list(home.iterdir()) == []


def test_reading_names_leaves_nothing_beside_a_file(lab, complete):
    before = sorted(os.listdir(os.path.dirname(lab.removeprefix("sqlite:///"))))
    assert complete("resource-objects release job-1") == ["job-1"]
    assert sorted(os.listdir(os.path.dirname(lab.removeprefix("sqlite:///")))) == before


def test_what_is_not_yet_in_the_file_itself_is_seen(lab, complete):
    with ro.connect(lab) as ledger:
        ledger.claim("just-now", {"lab-2": "VCPU=1"})
        assert complete("resource-objects release just") == ["just-now"]


# --- names by their beginning ---------------------------------------------------------------------


def test_names_by_their_beginning_in_every_database(database_url):
    if not database_url.startswith("sqlite"):
        backend_for(database_url).upgrade_database(database_url)
    with ro.connect(database_url) as ledger:
        fill(ledger)
    for kind, prefix, expected in (
        ("provider", "lab-1", ["lab-1", "lab-1/gpu0", "lab-10", "lab-10/gpu0"]),
        ("provider", "lab_", ["lab_%"]),
        ("provider", "L", ["Lab-x"]),
        ("provider", "%", []),
        ("host", "lab-1", ["lab-1", "lab-10"]),
        ("consumer", "", ["a:b", "job-1", "job-2", "two words"]),
        ("consumer", "gone", []),
        ("class", "CUSTOM_", ["CUSTOM_FPGA"]),
        ("class", "VCP", ["VCPU"]),
        ("trait", "CUSTOM_", ["CUSTOM_H100"]),
        ("aggregate", "r", ["rack-1"]),
    ):
        assert names_beginning(database_url, kind, prefix) == expected, (kind, prefix)
    assert len(names_beginning(database_url, "trait", "")) == MOST


# --- the shells themselves ------------------------------------------------------------------------


@pytest.fixture
def path(home, monkeypatch) -> pathlib.Path:
    """A directory on the path that has the command."""
    place = home / "bin"
    place.mkdir()
    program = place / "resource-objects"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m resource_objects "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return place


def need(shell: str) -> None:
    """Skip the test where a shell is missing; with ``CI=true`` that is a failure."""
    if shutil.which(shell) is None:
        said = f"no {shell} here; what it calls is tested above"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(said)


def in_shell(shell: str, script: str, *arguments: str) -> list[str]:
    """Run a script in a shell, with what makes it complete, and return its lines."""
    need(shell)
    code = completion.shellcode(["resource-objects"], shell=shell)
    done = subprocess.run(
        [shell, *arguments, "-c", f"{script.replace('REGISTER', code)}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_each_shell_is_told_how(run):
    for shell in completion.SHELLS:
        done = run("complete", shell)
        assert (done.status, done.err) == (0, "")
        assert "_ARGCOMPLETE" in done.out and "resource-objects" in done.out
    assert "choose from" in run("complete", "tcsh").err


def test_bash_completes_names(lab, path):
    script = """REGISTER
    ask() {
        COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9
        _python_argcomplete resource-objects
        printf '%s|' "${COMPREPLY[@]}"; echo
    }
    ask 'resource-objects release job'
    # bash begins a new word after = and :
    ask 'resource-objects claim new VCPU=1,PG'
    ask 'resource-objects release a:'
    ask 'resource-objects --database sqlite:///none.db release job'
    """
    assert in_shell("bash", script) == ["job-1|job-2|", "1,PGPU=|", "b |", "|"]


def test_bash_is_given_what_it_takes_for_the_name(odd, path):
    script = """REGISTER
    ask() {
        COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9
        _python_argcomplete resource-objects
        eval "set -- ${COMPREPLY[*]}"; printf '%s|' "$@"; echo
    }
    ask 'resource-objects release \\#'
    ask 'resource-objects release a\\#'
    ask 'resource-objects release -- -'
    ask 'resource-objects release -j'
    """
    assert in_shell("bash", script) == ["#job|", "a#b|", "--at|-job|", "|"]


def test_fish_is_given_what_it_takes_for_the_name(odd, path):
    script = """REGISTER
    complete -C 'resource-objects release \\#'
    complete -C 'resource-objects release -- -'
    complete -C 'resource-objects release -j'
    """
    result = in_shell("fish", script, "--no-config")
    assert sorted(line.partition("\t")[0] for line in result) == ["#job", "--at", "-job"]


def test_fish_completes_names(lab, path):
    script = """REGISTER
    complete -C 'resource-objects release job'
    complete -C 'resource-objects claim new VCPU=1,PG'
    """
    result = in_shell("fish", script, "--no-config")
    assert sorted(line.partition("\t")[0] for line in result) == ["VCPU=1,PGPU=", "job-1", "job-2"]


def test_zsh_completes_names(lab, path):
    with zsh() as terminal:
        os.write(terminal, b"resource-objects release job-\t")
        seen = read_until(terminal, "job-2")
        assert "job-1" in seen


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("\\#", ["#job"]),
        ("\\=", ["=job"]),
        ("a\\#", ["a#b"]),
        ("tw", ["two words"]),
        ("-- -j", ["--", "-job"]),
        ("-j", ["-j"]),
    ],
)
def test_zsh_is_given_what_it_takes_for_the_name(odd, path, typed, said):
    with zsh() as terminal:
        os.write(terminal, f"resource-objects release {typed}\t".encode())
        os.write(terminal, b"\x01print -rl -- \nprint en''d\n")  # at the beginning of the line
        words = read_until(terminal, "end").splitlines()
        assert words[words.index("release") + 1 :][: len(said)] == said


@contextlib.contextmanager
def zsh() -> Iterator[int]:
    """Start zsh at a terminal, for it completes only for a person who types."""
    need("zsh")
    child, terminal = pty.fork()
    if not child:  # pragma: no cover
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb", "COLUMNS": "80"})
    try:
        for line in (
            "unsetopt zle_bracketed_paste; setopt no_beep; autoload -Uz compinit; compinit -u -D",
            'eval "$(resource-objects complete zsh)"; echo be""gun',
        ):
            os.write(terminal, f"{line}\n".encode())
        read_until(terminal, "begun")
        yield terminal
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def read_until(terminal: int, text: str) -> str:
    """Read the output of a terminal until it contains a text; at most for a minute."""
    seen = ""
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"nothing more came after {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen
