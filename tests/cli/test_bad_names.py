"""Names that belong to nobody: one line that says which, the right status, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro
from resource_objects.host import partitions
from tests.cli.forked import Program
from tests.support.patience import until

REFUSED, MISUSED, BROKEN, BUSY = 1, 2, 70, 75
OPERATION = "7f6f2d6c-5d3d-4c2c-9ad5-3f2c7b0f6b11"

#: ``{command: what it says}`` of a name that nobody has.
NOBODY = {
    "claim x VCPU=1 --at nowhere": "nowhere is not a provider",
    "claim x VCPU=1 --in-tree nowhere": "nowhere is not a provider",
    "candidates VCPU=1 --at nowhere": "nowhere is not a provider",
    "run --at nowhere VCPU=1 -- true": "nowhere is not a provider",
    "release nowhere": "nowhere has no allocations",
    "release job nowhere": "nowhere has no allocations",
    "consumer show nowhere": "nowhere has no allocations",
    "consumer show nowhere --env": "nowhere has no allocations",
    "consumer show job --env --host nowhere": "nowhere is not a provider",
    "allocation show nowhere": "nowhere has no allocations",
    "allocation list nowhere": "nowhere is not a provider",
    "allocation move nowhere --to lab-0": "nowhere has no allocations",
    "allocation move job --to nowhere": "nowhere is not a provider",
    "allocation swap job nowhere": "nowhere has no allocations",
    "allocation swap nowhere job": "nowhere has no allocations",
    "allocation delete nowhere": "nowhere has no allocations",
    "allocation set x --allocation nowhere,VCPU=1": "nowhere is not a provider",
    "allocation set x --allocation lab-0,NOWHERE=1": "'NOWHERE'",
    "host disable nowhere --reason fan": "nowhere is not a provider",
    "host enable nowhere": "nowhere is not a provider",
    "host drain nowhere --reason fan": "nowhere is not a provider",
    "device list nowhere": "nowhere is not a provider",
    "device disable lab-0/nowhere --reason fan": "'nowhere'",
    "usage nowhere": "nowhere is not a provider",
    "usage hosts nowhere": "nowhere is not a provider",
    "provider show nowhere": "nowhere is not a provider",
    "provider tree nowhere": "nowhere is not a provider",
    "provider delete nowhere": "nowhere is not a provider",
    "provider inventory set nowhere VCPU=1": "nowhere is not a provider",
    "provider trait set lab-0 --trait NOWHERE": "'NOWHERE'",
    "class delete CUSTOM_NOWHERE": "CUSTOM_NOWHERE is not a resource class",
    "trait delete CUSTOM_NOWHERE": "CUSTOM_NOWHERE is not a trait",
    "pool share nowhere --with lab-0": "nowhere is not a provider",
    "export nowhere": "nowhere is not a provider",
    "changes --after nowhere": "'nowhere'",
}


def build(ledger: ro.Ledger) -> None:
    """Keep two machines with a GPU each, one of which somebody has."""
    for number in range(2):
        host = ro.Provider(f"lab-{number}", "VCPU=8")
        partitions.thousandths(host.add(f"lab-{number}/gpu0", "PGPU=1"))
        ledger.sync(host)
    ledger.claim("job", {"lab-0": "VCPU=2", "lab-0/gpu0": "PGPU=1"}, user="ann")


@pytest.fixture
def url(sqlite_url) -> str:
    """A ledger of them."""
    return sqlite_url("lab.db", build)


@pytest.fixture
def lab(run, url, monkeypatch: pytest.MonkeyPatch):
    """Run a command on that ledger, as the user ann."""
    monkeypatch.setenv("RESOURCE_OBJECTS_DATABASE", url)
    monkeypatch.setenv("LOGNAME", "ann")
    return run


def stored(url: str) -> tuple[object, ...]:
    """Return the content of the ledger and of its feed, which a refusal must not change."""
    with ro.connect(url) as ledger:
        trees = [str(tree) for tree in ledger.trees()]
        claims = [str(item.claim) for item in ledger.consumers()]
        return trees, claims, str(ledger.feed.cursor()), [str(item) for item in ledger.providers()]


@pytest.mark.parametrize("command", NOBODY)
def test_a_name_that_nobody_has_is_said_in_one_line(lab, url: str, command: str) -> None:
    before = stored(url)
    done = lab(*command.split())
    assert (done.status, done.out) == (REFUSED, "")
    (line,) = done.err.splitlines()
    assert line.startswith("resource-objects: ")
    assert NOBODY[command] in line
    assert stored(url) == before


@pytest.mark.parametrize("command", ["claim x PGUP=1", "candidates PGUP=1", "run PGUP=1 -- true"])
def test_a_class_that_nobody_has_is_a_mistake_in_the_arguments(lab, url: str, command: str) -> None:
    before = stored(url)
    done = lab(*command.split())
    assert (done.status, done.out) == (MISUSED, "")
    (line,) = done.err.splitlines()
    assert "'PGUP'" in line and "such as PGPU" in line
    assert stored(url) == before


CLOSE = {
    "candidates VCPU=1 --required H100": "such as CUSTOM_H100",
    "candidates VCPU=1 --root-required H100": "such as CUSTOM_H100",
    "provider trait set lab-0 --trait H100": "such as CUSTOM_H100",
    "provider list --required H100": "such as CUSTOM_H100",
    "trait create H100": "such as CUSTOM_H100",
    "class create H100": "such as CUSTOM_H100",
    "claim x H100=1": "such as CUSTOM_H100",
    "usage --database postgres://db/lab": "did you mean postgresql?",
    "usage --database sqllite:///lab.db": "did you mean sqlite?",
    "schedule VCPU=1 --filter capabilites": "did you mean capabilities?",
    "schedule VCPU=1 --weigh fre": "did you mean free?",
    "candidates VCPU=1 --requird CUSTOM_A": "did you mean --required?",
    "claim x VCPU=1 --expire-in=1h": "did you mean --expires-in?",
    "run --at lab-0 VCPU=1 --projct a -- true": "did you mean --project?",
}


@pytest.mark.parametrize("command", CLOSE)
def test_a_misspelled_name_is_answered_with_the_one_that_is_close(
    lab, url: str, command: str
) -> None:
    before = stored(url)
    done = lab(*command.split())
    assert done.status in (REFUSED, MISUSED, BROKEN)
    assert CLOSE[command] in done.err
    assert stored(url) == before


def test_a_claim_without_its_consumer_or_its_request_is_told_what_is_missing(lab) -> None:
    expected = "expected CONSUMER and what it requests, such as job-1 VCPU=2"
    for single in ("PGPU=1", "job-1"):
        done = lab("claim", single)
        assert (done.status, done.err) == (
            MISUSED,
            f"resource-objects: got {single!r} alone, {expected}\n",
        )
    for command in ("candidates", "explain", "when", "how-many", "run -- true"):
        done = lab(*command.split())
        assert done.status == MISUSED
        assert "no request: expected AMOUNTS such as VCPU=2, --resource or --query" in done.err


def test_what_is_in_use_is_refused_with_its_consumers(lab) -> None:
    for command in ("provider delete lab-0", "provider delete lab-0/gpu0"):
        done = lab(*command.split())
        assert done.status == REFUSED
        assert done.err.endswith("has allocations and cannot be removed; used by: job\n")
    for command in ("inventory delete lab-0", "inventory set lab-0 DISK_GB=1"):
        done = lab("provider", *command.split())
        assert done.err == (
            "resource-objects: lab-0 has allocations and its inventory cannot be removed: VCPU; "
            "used by: job\n"
        )
    assert "a has no allocations in this ledger: neither does b nor c" in lab("release", *"abc").err
    assert (
        lab("release", "a", "job").err == "resource-objects: a has no allocations in this ledger\n"
    )


# --- a job that is claimed twice, with different requests ---


def test_an_operation_is_not_said_again_for_something_else(lab, url: str) -> None:
    assert lab("claim", "x", "VCPU=1", "--operation", OPERATION).status == 0
    before = stored(url)
    done = lab("claim", "x", "VCPU=2", "--operation", OPERATION, "--env")
    assert (done.status, done.out) == (REFUSED, "")
    text = f"{OPERATION} is the id of another operation: claim of x, VCPU=1"
    assert done.err == f"resource-objects: {text}\n"
    other = lab("claim", "y", "VCPU=1", "--operation", OPERATION)
    assert (other.status, other.out) == (REFUSED, "")
    assert "is the id of another operation: claim of x" in other.err
    assert stored(url) == before


def test_an_operation_whose_claim_is_given_back_gives_nothing(lab, url: str) -> None:
    lab("claim", "x", "VCPU=1", "--operation", OPERATION)
    lab("release", "x")
    done = lab("claim", "x", "VCPU=1", "--operation", OPERATION, "--env")
    assert (done.status, done.out) == (REFUSED, "")
    text = f"x has no allocations in this ledger: it gave back what {OPERATION} claimed"
    assert done.err == f"resource-objects: {text}\n"
    lab("claim", "x", "VCPU=1")  # a later one of that name is another claim
    assert lab("claim", "x", "VCPU=1", "--operation", OPERATION).status == REFUSED


@pytest.fixture
def start(url: str, home) -> Iterator[Callable[..., Program]]:
    """Start a command in a process of its own, as it is started at a prompt."""
    environ = {**os.environ, "RESOURCE_OBJECTS_DATABASE": url, "LOGNAME": "ann"}
    with contextlib.ExitStack() as started:

        def start_it(*argv: str) -> Program:
            return started.enter_context(
                contextlib.closing(Program(argv, environ, str(home), interruptible=True))
            )

        yield start_it


def test_two_prologues_of_one_job_at_once_get_one_claim(start, url: str) -> None:
    wants = ["VCPU=1", "VCPU=2"]
    children = [start("claim", "x", amount, "--at", "lab-1") for amount in wants]
    ends = [(*child.communicate(timeout=60), child.returncode) for child in children]
    won = [amount for amount, end in zip(wants, ends, strict=True) if end[2] == 0]
    (lost,) = [end for end in ends if end[2] != 0]
    assert lost == (
        "",
        "resource-objects: x has allocations already; release them first\n",
        REFUSED,
    )
    with ro.connect(url) as ledger:
        assert [str(ledger.get_claim("x").amounts)] == won


# --- an interrupted wait ---


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_claim_that_waits_and_is_interrupted_leaves_nothing(start, url: str, name: str) -> None:
    with ro.connect(url) as ledger:
        ledger.claim("big", {"lab-0": "VCPU=6", "lab-1": "VCPU=8"})
    child = start("-vv", "claim", "x", "VCPU=1", "--wait", "10m", "--env")
    with ro.connect(url) as ledger:
        until(lambda: list(ledger.queue()))
    child.send_signal(signal.Signals[name])
    out, err = child.communicate(timeout=60)
    assert (out, "Traceback" in err) == ("", False)
    assert child.returncode in (128 + signal.Signals[name], -signal.Signals[name])
    with ro.connect(url) as ledger:
        assert [item.name for item in ledger.consumers()] == ["big", "job"]


def test_an_operation_that_is_no_uuid_is_a_mistake_in_the_arguments(run) -> None:
    done = run("claim", "job", "VCPU=1", "--operation", "op1")
    text = "resource-objects: --operation: got 'op1', expected a uuid\n"
    assert (done.status, done.out, done.err) == (2, "", text)
