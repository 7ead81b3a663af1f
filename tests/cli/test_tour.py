"""The tour: what it tells, and that it leaves everything as it was."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import threading

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.cli import tour
from resource_objects.cli.base import Command
from resource_objects.host.machine import MIB, Core, Disk
from resource_objects.ledger import Ledger
from tests.cli.forked import Program
from tests.support.lengths import some

TAG = re.compile(r"\b(ann|bob)-[0-9a-f]{4}\b")


@pytest.fixture(autouse=True)
def _on_machine(on_machine):
    """Every tour in this process is one of the machine of the fixture."""


@pytest.fixture
def url(tmp_path) -> str:
    """A ledger that is not there yet."""
    return f"sqlite:///{tmp_path}/lab.db"


def kept(url: str) -> dict[str, object]:
    """All that is kept in a ledger, in a form that compares."""
    with ro.connect(url) as ledger:
        return {
            "providers": list(ledger.trees()),
            "consumers": ledger.usage().consumers,
        }


# --- what it tells ------------------------------------------------------------------------------

STORY = """\
A tour of resource_objects on this machine. It gives back all that it takes.

1. See what there is.
     >>> machine = discover()
   box has 4 CPUs, 8192 MiB of memory and 100 GiB of disk.

2. Keep it in a ledger: in memory, in a file, or in a database for many machines.
     >>> ledger = connect("{url}")
     >>> ledger.sync(provider_tree(machine))
   + box

3. Two jobs request half of the free amount each. Both are placed.
     >>> half = Request("VCPU=2,MEMORY_MB=3584,DISK_GB=50")
     >>> ledger.claim("ann", ledger.snapshot().candidates(half))
   ann holds VCPU=2,MEMORY_MB=3584,DISK_GB=50 of box
   bob holds VCPU=2,MEMORY_MB=3584,DISK_GB=50 of box

4. See who uses what.
     >>> ledger.usage()
   box
   ├─ VCPU       ████████████████████        4 of 4  ann 2, bob 2
   ├─ MEMORY_MB  ████████████████████  7168 of 7168  ann 3584, bob 3584
   └─ DISK_GB    ████████████████████    100 of 100  ann 50, bob 50

5. A third job requests the same. It is refused, with the reasons.
     >>> print(ledger.snapshot().candidates(half).explain())
   box: VCPU requested 2, free 0 of 4 (ann holds 2, bob holds 2)
   box: MEMORY_MB requested 3584, free 0 of 7168 (ann holds 3584, bob holds 3584)
   box: DISK_GB requested 50, free 0 of 100 (ann holds 50, bob holds 50)

6. The jobs end. Their resources are free again.
     >>> ledger.release("ann")
   box
   ├─ VCPU       ░░░░░░░░░░░░░░░░░░░░     0 of 4
   ├─ MEMORY_MB  ░░░░░░░░░░░░░░░░░░░░  0 of 7168
   └─ DISK_GB    ░░░░░░░░░░░░░░░░░░░░   0 of 100

Now you: resource-objects host sync            keep this machine
         resource-objects claim job-1 VCPU=1   take a CPU
         resource-objects usage --tree         see who uses what
         resource-objects release job-1        give it back
"""


def test_the_tour_tells_the_whole_story(run, default_ledger):
    done = run("tour")
    assert (done.status, done.err) == (0, "")
    assert TAG.sub(r"\1", done.out) == STORY.format(url=f"sqlite:///{default_ledger}")
    assert len(done.lines) <= 45


@pytest.mark.long
def test_the_story_can_be_told_without_unicode(shell):
    done = shell("tour", PYTHONIOENCODING="ascii")
    assert (done.status, done.err) == (0, "")
    assert done.out.isascii()
    assert re.search(r"\n   (\|-|`-) [A-Z_]+ +#{15,20}\.* ", done.out)


def test_the_tour_shows_no_password():
    url = "postgresql+psycopg://me:secret@db/lab"
    assert tour._without_password(url) == "postgresql+psycopg://me:***@db/lab"
    assert tour._without_password("mysql://me:a:b@c@db/lab") == "mysql://me:***@db/lab"
    assert tour._without_password("sqlite:////home/me@work/lab.db") == (
        "sqlite:////home/me@work/lab.db"
    )


def test_the_calls_it_shows_are_the_ones_that_work(run, url):
    """The lines after >>> are run, as they stand, on a ledger in memory."""
    told = run("tour", "--database", "memory://")
    from resource_objects.host.discovery import discover
    from resource_objects.host.tree import provider_tree

    known = {
        "discover": discover,
        "provider_tree": provider_tree,
        "connect": ro.connect,
        "Request": ro.Request,
        "print": print,
    }
    calls = [line.strip().removeprefix(">>> ") for line in told.lines if ">>>" in line]
    assert len(calls) == 8
    for call in calls:
        exec(call, known)
    assert known["ledger"].usage().consumers == {}


# --- it leaves everything as it was -------------------------------------------------------------


def test_the_machine_stays_in_the_default_ledger_and_nothing_else(run, default_ledger):
    run("tour")
    left = kept(f"sqlite:///{default_ledger}")
    assert [root.name for root in left["providers"]] == ["box"]
    assert left["consumers"] == {}


def test_twice_in_a_row_is_the_same_but_for_the_keeping(run, default_ledger):
    first, second = run("tour"), run("tour")
    assert second.status == 0
    expected = TAG.sub("who", first.out).replace(
        "   + box\n", "   box is in the ledger already and is not changed.\n"
    )
    assert TAG.sub("who", second.out) == expected
    assert kept(f"sqlite:///{default_ledger}")["consumers"] == {}


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_ledger_that_was_named_is_left_as_it_was(run, url, how, monkeypatch):
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("other", "VCPU=640,MEMORY_MB=99999"))
        ledger.claim("job-1", {"other": "VCPU=7"})
    before = kept(url)
    if how == "environment":
        monkeypatch.setenv("RESOURCE_OBJECTS_DATABASE", url)
    done = run("tour", *(["--database", url] if how == "option" else []))
    assert (done.status, done.err) == (0, "")
    assert "ann-" in done.out and "+ box" in done.out and "other" not in done.out
    assert kept(url) == before


def test_a_machine_that_is_kept_in_another_form_stays_in_it(run, url):
    run("host", "sync", "--rule", "10de:*=PGPU", "--ratio", "VCPU=4", "--database", url)
    with ro.connect(url) as ledger:
        ledger.claim("job-1", {"box": "VCPU=3,MEMORY_MB=100", "box/0000:3b:00.0": "PGPU=1"})
    before = kept(url)
    done = run("tour", "--database", url)
    assert (done.status, done.err) == (0, "")
    assert '>>> half = Request("VCPU=4,MEMORY_MB=3534,DISK_GB=50")' in done.out
    assert "11 of 16  ann-" in done.out
    assert "job-1 3" in done.out
    assert "MEMORY_MB requested 3534, free " in done.out
    assert "PGPU" not in done.out
    assert len(done.lines) <= 45
    assert kept(url) == before


def test_a_machine_of_which_nearly_everything_is_used_is_toured_in_memory(run, url):
    run("host", "sync", "--database", url)
    with ro.connect(url) as ledger:
        ledger.claim("job-1", {"box": "VCPU=3,MEMORY_MB=7165,DISK_GB=97"})  # 1, 3 and 3 are left
    before = kept(url)
    done = run("tour", "--database", url)
    assert (done.status, done.err) == (0, "")
    assert "Too little of box is free there, so what follows happens in memory." in done.out
    assert "4 of 4  ann-" in done.out
    assert len(done.lines) <= 45
    assert kept(url) == before


def test_what_is_free_of_one_resource_is_enough(run, url):
    run("host", "sync", "--database", url)
    with ro.connect(url) as ledger:
        ledger.claim("job-1", {"box": "VCPU=4,MEMORY_MB=7168"})
    before = kept(url)
    done = run("tour", "--database", url)
    assert '>>> half = Request("DISK_GB=50")' in done.out
    assert kept(url) == before


def test_consumers_that_are_called_like_the_tour_s_are_left_alone(run, url, monkeypatch):
    tags = iter(["aaaa0000", "bbbb0000"])
    real = tour.uuids.uuid4

    class Tag:
        hex = property(lambda self: next(tags))

    run("host", "sync", "--database", url)
    with ro.connect(url) as ledger:
        ledger.claim("ann-aaaa", {"box": "VCPU=1"})
    before = kept(url)
    names = tour._free_names
    monkeypatch.setattr(
        tour,
        "_free_names",
        lambda ledger: (
            monkeypatch.setattr(tour.uuids, "uuid4", Tag),
            names(ledger),
            monkeypatch.setattr(tour.uuids, "uuid4", real),
        )[1],
    )
    done = run("tour", "--database", url)
    assert (done.status, done.err) == (0, "")
    assert "ann-bbbb holds" in done.out
    assert kept(url) == before


def test_a_consumer_that_took_the_name_in_between_is_not_released(run, url, monkeypatch):
    def taken(ledger: Ledger) -> tuple[str, str]:
        ledger.claim("ann-0000", {"box": "VCPU=1"})
        return "ann-0000", "bob-0000"

    run("host", "sync", "--database", url)
    monkeypatch.setattr(tour, "_free_names", taken)
    done = run("tour", "--database", url)
    assert done.status == 1
    assert done.err == "resource-objects: ann-0000 has allocations already; release them first\n"
    assert kept(url)["consumers"] == {"ann-0000": {"VCPU": 1}}


def test_a_tour_that_others_are_faster_than_gives_back_what_it_has(run, url, monkeypatch):
    real = tour.Guide._claim

    def claim(self, ledger, job, half, host):
        if job.startswith("bob"):
            ledger.claim("job-1", {"box": "VCPU=1"})
        return real(self, ledger, job, half, host)

    run("host", "sync", "--database", url)
    monkeypatch.setattr(tour.Guide, "_claim", claim)
    done = run("tour", "--database", url)
    assert done.status == 1
    assert done.err == (
        "resource-objects: another user allocated the free amount in the meantime; "
        "nothing of the tour is left, try again\n"
    )
    assert kept(url)["consumers"] == {"job-1": {"VCPU": 1}}


def test_a_machine_that_others_took_something_of_meanwhile_stays(run, url, monkeypatch):
    real = tour.Guide._give_back

    def give_back(self, ledger, host, jobs):
        real(self, ledger, host, jobs)
        ledger.claim("job-1", {"box": "VCPU=1"})

    monkeypatch.setattr(tour.Guide, "_give_back", give_back)
    done = run("tour", "--database", url)
    assert (done.status, done.err) == (0, "")
    assert "box stays in the ledger: another user has allocations of it." in done.out
    assert kept(url)["consumers"] == {"job-1": {"VCPU": 1}}


def test_a_machine_that_somebody_else_keeps_meanwhile_stays(run, url, monkeypatch):
    real = Ledger.provider

    def provider(self, name):
        monkeypatch.setattr(Ledger, "provider", real)
        self.sync(ro.Provider("box", "VCPU=8"))
        raise exceptions.NotFound("provider", name)  # as it was a moment ago

    monkeypatch.setattr(Ledger, "provider", provider)
    done = run("tour", "--database", url)
    assert (done.status, done.err) == (0, "")
    assert "box is in the ledger already" in done.out
    assert [str(root) for root in kept(url)["providers"]] == ["box: VCPU=8"]


# --- however it ends ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "line"),
    some(
        [
            (KeyboardInterrupt, 130, "interrupted"),
            (exceptions.DatabaseError("busy", "lab.db"), 70, "lab.db is busy"),
            (BrokenPipeError, 141, ""),
            (SystemExit(143), 143, ""),
            (RuntimeError("boom"), 70, "RuntimeError: boom (unexpected; --debug shows where)"),
        ],
    ),
)
def test_a_tour_that_ends_at_any_line_leaves_everything_as_it_was(
    run, url, monkeypatch, error, status, line
):
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("other", "VCPU=4"))
        ledger.claim("job-1", {"other": "VCPU=1"})
    before = kept(url)
    real = Command.say
    for last in range(99):
        count = iter(range(99))

        def say(self, text, count=count, last=last):
            if next(count) == last:
                raise error
            real(self, text)

        monkeypatch.setattr(Command, "say", say)
        done = run("tour", "--database", url)
        if done.status == 0:
            break
        assert done.status == status
        assert done.err == (f"resource-objects: {line}\n" if line else "")
        assert kept(url) == before
    assert last > 25  # every line was tried


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["sync", "claim", "release", "provider", "usage"])
def test_a_call_that_is_interrupted_before_or_after_it_is_done_leaves_no_trace(
    run, url, monkeypatch, method, when
):
    before = kept(url)
    real = getattr(Ledger, method)
    last = 0
    while True:
        calls: list[str] = []

        def interrupted(self, *arguments, calls=calls, last=last, **options):
            calls.append(method)
            reached = len(calls) == last + 1
            if reached and when == "before":
                raise KeyboardInterrupt
            done = real(self, *arguments, **options)
            if reached:
                raise KeyboardInterrupt
            return done

        monkeypatch.setattr(Ledger, method, interrupted)
        done = run("tour", "--database", url)
        monkeypatch.setattr(Ledger, method, real)
        assert kept(url) == before
        assert (done.status, done.err) in [
            (130, "resource-objects: interrupted\n"),
            (0, ""),
        ]
        if len(calls) <= last:
            break
        last += 1
    assert done.status == 0
    assert last >= 1


@pytest.mark.parametrize(
    ("number", "status"), some([("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
)
def test_a_process_that_is_stopped_gives_back_what_it_held(home, url, number, status):
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    argv = ["tour", "--database", url]
    with contextlib.closing(Program(argv, environ, str(home), interruptible=True)) as child:
        for line in child.stdout:
            if " holds " in line:  # the first job holds something now
                child.send_signal(getattr(signal, number))
                break
        _, err = child.communicate()
    told = "resource-objects: interrupted\n" if status == 130 else ""
    assert (child.returncode, err) in [(status, told), (0, "")]  # 0: it was through already
    assert kept(url) == {"providers": [], "consumers": {}}


def test_a_signal_stops_once_and_is_ignored_afterwards():
    tidied = []
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped, tour.stopped_once():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            tidied.append(True)
    assert (stopped.value.code, tidied) == (143, [True])
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_that_was_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with tour.stopped_once():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_of_the_main_thread_signals_are_left_alone():
    seen = []

    def work():
        with tour.stopped_once():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


# --- any machine --------------------------------------------------------------------------------


def cores(count: int) -> tuple[Core, ...]:
    return tuple(Core(0, number, (number,)) for number in range(count))


@pytest.mark.parametrize("cpus", [1, 2, 3, 5, 256])
@pytest.mark.parametrize("disk_gb", [None, 0, 1, 3, 100_000])
@pytest.mark.parametrize("memory_mb", [4, 512, 4_000_000])
def test_any_machine_can_be_toured(run, machine, on_machine, cpus, disk_gb, memory_mb):
    disk = None if disk_gb is None else Disk("/", disk_gb * 1024 * MIB, 0)
    on_machine(
        dataclasses.replace(
            machine,
            cpus=tuple(range(cpus)),
            cores=cores(cpus),
            memory_bytes=memory_mb * MIB,
            cells=(),
            huge_pages=(),
            devices=(),
            disk=disk,
        )
    )
    done = run("tour", "--database", "memory://")
    assert (done.status, done.err) == (0, "")
    assert "requested" in done.out
    assert len(done.lines) <= 45


def test_a_machine_that_is_too_small_to_be_shared_is_one_line(run, url, machine, on_machine):
    small = {"cpus": (0,), "cores": cores(1), "memory_bytes": 3 * MIB, "disk": None}
    on_machine(dataclasses.replace(machine, cells=(), huge_pages=(), devices=(), **small))
    done = run("tour", "--database", url)
    assert (done.status, done.err) == (1, "resource-objects: box is too small to be shared\n")
    assert kept(url) == {"providers": [], "consumers": {}}


def test_a_machine_with_one_cpu_says_so_in_the_singular(run, machine, on_machine):
    on_machine(
        dataclasses.replace(machine, cpus=(0,), cores=cores(1), cells=(), disk=None, devices=())
    )
    done = run("tour", "--database", "memory://")
    assert "   box has 1 CPU and 8192 MiB of memory.\n" in done.out
    assert '>>> half = Request("MEMORY_MB=3584")' in done.out


@pytest.mark.long
def test_this_machine_can_be_toured(shell):
    done = shell("tour")
    assert (done.status, done.err) == (0, "")
    assert " requested " in done.out
    assert len(done.lines) <= 45
