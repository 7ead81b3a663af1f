"""Claiming for a job, running it, releasing: what a batch system, or a person, calls."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro
from resource_objects.providers.waiting import Awaited, WaitOrder
from tests.cli.forked import Program
from tests.support.patience import until

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = os.uname().nodename


@pytest.fixture
def url(sqlite_url) -> str:
    """A ledger of this machine and another one, two GPUs each."""
    url = sqlite_url("lab.db")
    with ro.connect(url) as ledger:
        machines(ledger)
    return url


def machines(ledger: ro.Ledger) -> None:
    """Make this machine and another one."""
    for name in (HERE, "other"):
        host = ro.Provider(name, "VCPU=8,MEMORY_MB=8192")
        for number in range(2):
            host.add(f"{name}/gpu{number}", "PGPU=1")
        ledger.sync(host)


@pytest.fixture
def lab(run, url, monkeypatch):
    """Run a command on that ledger, as the user ann."""
    monkeypatch.setenv("RESOURCE_OBJECTS_DATABASE", url)
    monkeypatch.setenv("LOGNAME", "ann")
    return run


@pytest.fixture
def ledger(url) -> Iterator[ro.Ledger]:
    with ro.connect(url) as ledger:
        yield ledger


def holders(ledger: ro.Ledger) -> list[str]:
    return [item.name for item in ledger.consumers()]


# --- claim ---


def test_a_claim_prints_the_environment_for_a_shell(lab):
    done = lab("claim", "job's", "VCPU=2,PGPU=1", "--at", "other", "--env")
    assert (done.status, done.err) == (0, "")
    shell = f'{done.out}printf \'%s|\' "$CUDA_VISIBLE_DEVICES" "$RESOURCE_OBJECTS_CONSUMER"'
    assert subprocess.check_output(["sh", "-ceu", shell], text=True) == "0|job's|"
    assert lab("consumer", "show", "job's", "--env").out == done.out
    none = lab("claim", "job-2", "VCPU=1", "--env")
    assert "export CUDA_VISIBLE_DEVICES=''" in none.lines


@pytest.mark.parametrize(
    ("split", "request_text", "instance"),
    [
        ("mig-h100-80gb", "CUSTOM_MIG_7G_80GB=1", "0:7g.80gb:0"),
        ("partitions=CUSTOM_SLICE*7/CUSTOM_MIG_3G*3", "CUSTOM_MIG_3G=1", "0:CUSTOM_MIG_3G"),
    ],
)
def test_a_program_is_told_its_mig_instance(lab, tmp_path, split, request_text, instance):
    site, seen = tmp_path / "mig.yaml", tmp_path / "seen"
    gpu = f"{{inventories: PGPU=1, split: {split}}}"
    site.write_text(f"machines: {{mig-0: {{children: {{/gpu0: {gpu}}}}}}}")
    assert lab("apply", str(site)).status == 0
    shell = f'echo "$RESOURCE_OBJECTS_MIG $CUDA_VISIBLE_DEVICES" > {seen}'
    done = lab("run", request_text, "--at", "mig-0", "--", "sh", "-c", shell)
    assert (done.status, done.err) == (0, "")
    assert seen.read_text() == f"{instance} \n"


def test_a_claim_whose_devices_cannot_be_told_is_taken_back(lab, ledger):
    ledger.sync(ro.Provider("counted", "PGPU=4"))
    done = lab("claim", "job-1", "PGPU=3", "--at", "counted", "--env")
    assert (done.status, done.out) == (1, "")
    assert "GPU is not determined" in done.err
    assert holders(ledger) == []


OPERATION = "7f6f2d6c-5d3d-4c2c-9ad5-3f2c7b0f6b11"


@pytest.mark.parametrize("option", [(), ("--replace",), ("--operation", OPERATION)])
def test_an_unknown_host_of_the_environment_is_refused_before_the_claim(lab, ledger, option):
    done = lab("claim", "job-1", "VCPU=1", "--env", "--host", "nowhere", *option)
    assert (done.status, done.out) == (1, "")
    assert done.err == "resource-objects: nowhere is not a provider of this ledger\n"
    assert holders(ledger) == []


def test_a_claim_that_stays_although_its_environment_is_unknown_is_reported(lab, ledger):
    ledger.sync(ro.Provider("counted", "PGPU=4"))
    request = ("claim", "job-1", "PGPU=3", "--at", "counted", "--env")
    done = lab(*request, "--operation", OPERATION)
    assert (done.status, done.out) == (1, "")
    claimed, why = done.err.splitlines()
    assert claimed.startswith(
        "resource-objects: claimed all the same: job-1 holds PGPU=3 of counted"
    )
    assert "GPU is not determined" in why
    assert holders(ledger) == ["job-1"]


def test_one_claim_says_groups_owner_project_and_expiry(lab, ledger):
    done = lab(
        *("claim", "job-1", "VCPU=2", "--group", "_GPU", "--resource", "PGPU=1"),
        *("--at", "other", "--project", "vision", "--expires-in", "2h"),
    )
    assert (done.status, done.err) == (0, "")
    (stored,) = ledger.consumers()
    assert (stored.user, stored.project) == ("ann", "vision")
    remaining = stored.expires_at - ledger.backend.now()
    assert datetime.timedelta(hours=1) < remaining <= datetime.timedelta(hours=2)
    assert [group.suffix for group in stored.request.groups] == ["", "_GPU"]


def test_who_claims_stands_in_the_feed(lab):
    lab("claim", "job-1", "VCPU=1")
    lab("claim", "job-2", "VCPU=1", "--actor", "prologue")
    rows = json.loads(lab("changes", "-f", "json").out)
    output = {row["subject"]: row["actor"] for row in rows if row["kind"] == "claim"}
    assert output == {"job-1": "ann", "job-2": "prologue"}


def test_busy_refused_and_broken_are_told_apart(lab, ledger):
    ledger.claim("big", {"other": "VCPU=8", HERE: "VCPU=8"})
    busy = lab("claim", "job-1", "VCPU=1")
    assert (busy.status, busy.out) == (75, "")
    assert "big holds 8" in busy.err
    assert lab("claim", "job-1", "VCPU=9").status == 1
    assert lab("claim", "big", "MEMORY_MB=1").status == 1
    assert lab("claim", "job-1", "VCPU=1", "--database", "sqlite:////no/such/lab.db").status == 70
    assert holders(ledger) == ["big"]


def test_a_limit_is_kept_and_named(lab, ledger):
    ledger.claim("big", {"other": "VCPU=3"})
    content = ("--limits", "other:VCPU=4", "--limits", f"{HERE}:VCPU=0")
    full = lab("claim", "job-1", "VCPU=2", *content)
    assert (full.status, full.out) == (75, "")
    assert "other: VCPU requested 2, free 1 under the limit of 4 (big holds 3)" in full.err
    assert lab("claim", "job-1", "VCPU=5", *content).status == 1  # whoever gave back
    assert lab("claim", "job-1", "VCPU=1", *content).status == 0
    assert list(ledger.get_claim("job-1").by_provider()) == ["other"]
    assert lab("claim", "job-1", "VCPU=2", "--replace", *content).status == 75
    lost = lab("claim", "job-2", "VCPU=1", "--limits", "nobody:VCPU=1")
    assert lost.status == 1 and "nobody is not a provider" in lost.err


def test_an_operation_that_is_said_again_happens_once(lab, ledger):
    operation = "7f6f2d6c-5d3d-4c2c-9ad5-3f2c7b0f6b11"
    first = lab("claim", "job-1", "PGPU=2", "--operation", operation, "--at", "other")
    again = lab("claim", "job-1", "PGPU=2", "--operation", operation, "--at", "other")
    assert (again.status, again.out) == (0, first.out)
    assert lab("claim", "job-1", "PGPU=2", "--operation", "x").status != 0


def test_a_job_is_claimed_again_by_its_name(lab, ledger):
    claim = ("claim", "job-1", "PGPU=2", "--replace", "--expires-in", "1h", "--at", "other")
    first = lab(*claim)
    before = ledger.get_claim("job-1")
    assert first.status == 0
    again = lab(*claim)
    assert (again.status, again.out) == (0, first.out)
    assert ledger.get_claim("job-1").id == before.id
    assert ledger.get_claim("job-1").expires_at > before.expires_at


def test_a_name_that_is_claimed_again_for_something_else(lab, ledger):
    lab("claim", "job-1", "PGPU=2,VCPU=8", "--at", "other")
    refused = lab("claim", "job-1", "PGPU=1", "--at", "other")
    assert (refused.status, refused.out) == (1, "")
    assert lab("claim", "job-1", "VCPU=8", "--replace", "--at", "other").status == 0
    assert str(ledger.get_claim("job-1")) == "job-1 holds VCPU=8 of other"


def test_a_replaced_claim_keeps_its_devices(lab, ledger):
    lab("claim", "first", "PGPU=1", "--at", "other")
    lab("claim", "job-1", "VCPU=2,PGPU=1", "--at", "other")
    lab("release", "first")
    assert lab("claim", "job-1", "VCPU=4,PGPU=1", "--replace", "--at", "other").status == 0
    assert set(ledger.get_claim("job-1").by_provider()) == {"other", "other/gpu1"}


@pytest.mark.parametrize("time", ["", "0", "-1m", "1x", "m", "99999d", "1" * 40])
def test_a_time_that_is_none_is_a_mistake_in_the_arguments(lab, ledger, time):
    done = lab("claim", "job-1", "VCPU=1", f"--expires-in={time}")
    assert (done.status, done.out) == (2, "")
    assert f"got {time!r}, expected a time above 0" in done.err
    assert holders(ledger) == []


# --- wait ---


def test_who_waits_gets_what_is_given_back(lab, url, ledger):
    ledger.claim("big", {"other": "PGPU=0,VCPU=8", HERE: "VCPU=8"})
    later = threading.Timer(0.5, lambda: ledger.release("big"))
    later.start()
    try:
        assert lab("claim", "job-1", "VCPU=1", "--wait", "1m").status == 0
    finally:
        later.join()
    assert holders(ledger) == ["job-1"]


def test_a_wait_that_is_over_is_busy_and_leaves_nothing(lab, ledger):
    ledger.claim("big", {"other": "VCPU=8", HERE: "VCPU=8"})
    assert lab("claim", "job-1", "VCPU=1", "--wait", "0.4s").status == 75
    assert holders(ledger) == ["big"]


def test_who_waits_is_listed_and_told_to_those_behind(lab, ledger):
    ledger.claim("big", {"other": "VCPU=8", HERE: "VCPU=8"})
    (root,) = ledger.backend.uuids(["other"]).values()
    for name, awaits in (("a", (Awaited("VCPU", 4, root), Awaited("PGPU", 1))), ("b", ())):
        order = WaitOrder(name, awaits or (Awaited("VCPU", 1),), actor="ann")
        ledger.backend.wait(order)
    rows = json.loads(lab("waiting", "-f", "json").out)
    assert [row.pop("since")[:2] for row in rows] == ["20", "20"]
    assert rows == [
        {
            "#": 1,
            "consumer": "a",
            "waits for": "VCPU=4,PGPU=1",
            "of": ["other"],
            "actor": "ann",
        },
        {"#": 2, "consumer": "b", "waits for": "VCPU=1", "of": [], "actor": "ann"},
    ]
    shown = lab("waiting", "-f", "value", "-c", "consumer", "-c", "waits for", "--limit", "1")
    assert shown.lines == ["a VCPU=4,PGPU=1"]
    assert "VCPU=4,PGPU=1" in lab("waiting").out
    assert lab("waiting", "--limit", "0").status == 2
    done = lab("claim", "job-1", "VCPU=1", "--wait", "0.2s")
    assert (done.status, done.out) == (75, "")
    assert done.err.splitlines() == [
        "resource-objects: job-1 waited in vain for VCPU=1:",
        "  before it in the queue: a, b",
        *done.err.splitlines()[2:],
    ]
    assert [item.consumer for item in ledger.queue()] == ["a", "b"]


def test_nobody_waits_for_what_can_never_be(lab):
    started = time.monotonic()
    assert lab("claim", "job-1", "VCPU=9", "--wait", "10m").status == 1
    assert time.monotonic() - started < 300


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_wait_that_is_interrupted_leaves_nothing(start, ledger, number, status):
    ledger.claim("big", {HERE: "VCPU=8"})
    child = start("VCPU=1", "--wait", "10m", "--", "true", interruptible=True)
    until(lambda: next(ledger.queue(), None))
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    output = "resource-objects: interrupted\n" if number == signal.SIGINT else ""
    assert (child.returncode, err) == (status, output)
    assert holders(ledger) == ["big"]
    assert list(ledger.queue()) == []


def test_a_claim_that_nobody_is_told_of_is_given_back(home, url, ledger):
    read, write = os.pipe()
    os.close(read)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RESOURCE_OBJECTS_DATABASE": url}
    claim = ["claim", "job-1", "VCPU=1", "--env"]
    done = subprocess.run(
        [sys.executable, "-m", "resource_objects", *claim],
        env=env,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")
    assert holders(ledger) == []


# --- release ---


def test_several_are_released_at_once_or_none(lab, ledger):
    for name in ("job-1", "job-2"):
        lab("claim", name, "VCPU=1")
    done = lab("release", "job-1", "job-3", "job-2")
    assert (done.status, done.out) == (1, "")
    assert holders(ledger) == ["job-1", "job-2"]
    done = lab("release", "job-1", "job-2", "-c", "consumer", "-f", "value")
    assert (done.status, done.lines) == (0, ["job-1", "job-2"])
    assert holders(ledger) == []


def test_all_of_a_user_are_released(lab, ledger):
    for name, user in (("a", "ann"), ("b", "bob"), ("c", "ann")):
        lab("claim", name, "VCPU=1", "--user", user)
    assert lab("release", "--user", "ann").status == 0
    assert holders(ledger) == ["b"]
    again = lab("release", "--user", "ann", "-f", "value")
    assert (again.status, again.out.strip()) == (0, "")


def test_what_has_expired_is_released_whoever_it_is_of(lab, ledger):
    for name, user, time_left in (("a", "ann", "0.001"), ("b", "bob", "0.001"), ("c", "ann", "1h")):
        lab("claim", name, "VCPU=1", "--user", user, "--expires-in", time_left)
    lab("claim", "d", "VCPU=1")
    time.sleep(0.01)
    done = lab("release", "--expired", "-c", "consumer", "-f", "value")
    assert (done.status, done.lines) == (0, ["a", "b"])
    assert holders(ledger) == ["c", "d"]
    assert lab("release", "--expired", "-f", "value").status == 0


def test_every_command_that_writes_tells_who_it_was(lab):
    lab("provider", "create", "new", "VCPU=4")
    lab("allocation", "set", "job-1", "--allocation", "rp=new,VCPU=2")
    lab("claim", "job-2", "VCPU=1")
    lab("allocation", "swap", "job-1", "job-2")
    lab("allocation", "move", "job-2", "--to", "other", "--actor", "me")
    lab("allocation", "set", "job-3", "--allocation", "rp=new,VCPU=1", "--actor", "you")
    rows = json.loads(lab("changes", "-f", "json").out)
    assert rows[-1]["actor"] == "you"
    output = {row["kind"]: row["actor"] for row in rows[:-1] if row["actor"]}
    assert (output.pop("move"), {*output.values()}) == ("me", {"ann"})
    assert {"define", "replace", "claim", "swap"} <= {*output}


@pytest.mark.parametrize("argv", [["b"], ["b", "own"], ["--user", "bob"]])
def test_what_is_of_another_user_is_released_by_force(lab, ledger, argv):
    lab("claim", "b", "VCPU=1", "--user", "bob")
    lab("claim", "own", "VCPU=1")
    done = lab("release", *argv)
    assert (done.status, done.out) == (1, "")
    assert done.err.splitlines()[1:] == ["  b is of bob"]
    assert holders(ledger) == ["b", "own"]
    assert lab("release", *argv, "--force").status == 0
    assert "b" not in holders(ledger)


@pytest.mark.parametrize("argv", [[], ["a", "--user", "ann"], ["a", "--expired"]])
def test_names_or_a_user_are_released(lab, argv):
    done = lab("release", *argv)
    assert (done.status, done.out) == (2, "")
    words = {"a": "names of consumers", "--user": "--user", "--expired": "--expired"}
    got = " and ".join(words[word] for word in argv if word in words)
    expected = "expected one of names of consumers, --user, --expired"
    assert done.err == f"resource-objects: {expected}{f', got {got}' if got else ''}\n"


# --- run ---


@pytest.fixture
def start(home, url) -> Iterator[Callable[..., Program]]:
    """Start ``resource-objects run`` in a process of its own."""
    started = []

    def start_run(*argv: str, interruptible: bool = False) -> Program:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "RESOURCE_OBJECTS_DATABASE": url}
        # tests run in the background of a shell inherit that Ctrl-C is ignored
        child = Program(["run", *argv], env, str(home), interruptible)
        started.append(child)
        return child

    yield start_run
    for child in started:
        child.close()


def python(code: str) -> tuple[str, ...]:
    return "--", sys.executable, "-c", code


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
        stat = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


WAITS = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


def test_a_program_runs_with_its_environment_and_everything_is_released(start, ledger):
    code = (
        "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['RESOURCE_OBJECTS_HOST'])"
    )
    ledger.claim("other", {f"{HERE}/gpu0": "PGPU=1"})
    child = start("PGPU=1", *python(code))
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, f"1 {HERE}\n", "")
    assert holders(ledger) == ["other"]


def test_a_program_sees_who_holds_for_it_while_it_runs(start, ledger):
    child = start("VCPU=1", "--name", "job-1", "--project", "vision", *python(WAITS))
    child.stdout.readline()
    (stored,) = ledger.consumers()
    assert (stored.name, stored.project, str(stored)) == (
        "job-1",
        "vision",
        f"job-1 holds VCPU=1 of {HERE}",
    )
    assert stored.expires_at is not None


@pytest.mark.parametrize("status", [0, 1, 3, 75, 255])
def test_the_status_is_the_programs(start, ledger, status):
    child = start("VCPU=1", *python(f"raise SystemExit({status})"))
    assert child.wait(60) == status
    assert holders(ledger) == []


@pytest.mark.parametrize(
    ("program", "status"), [("no-such-program", 127), ("/", 126), ("/etc/passwd", 126)]
)
def test_a_program_that_cannot_be_run_is_one_line(start, ledger, program, status):
    child = start("VCPU=1", "--", program)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (status, "")
    assert err.startswith(f"resource-objects: {program}: ")
    assert len(err.splitlines()) == 1
    assert holders(ledger) == []


def test_arguments_behind_the_dashes_are_the_programs(start):
    child = start("VCPU=1", *python("import sys; print(sys.argv[1:])"), "--debug", "--", "-v", "-h")
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, "['--debug', '--', '-v', '-h']\n", "")


def test_the_input_and_the_output_are_the_programs(start, lab, shell, url):
    done = subprocess.run(
        [sys.executable, "-m", "resource_objects", "run", "VCPU=1", "--", "cat"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=b"a\x1b\xff\n",
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a\x1b\xff\n", b"")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT"])
def test_signals_go_on_to_the_program(start, ledger, name):
    code = (
        "import signal, sys, time\n"
        f"signal.signal(signal.{name}, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    child = start("VCPU=1", *python(code))
    child.stdout.readline()
    child.send_signal(signal.Signals[name])
    assert child.wait(60) == 7
    assert holders(ledger) == []


def test_the_end_is_seen_where_another_thread_is_given_the_signal(lab, ledger):
    over = threading.Event()
    other_paths = [threading.Thread(target=over.wait) for _ in range(4)]
    for other in other_paths:
        other.start()
    try:
        for _ in range(3):
            assert lab("run", "PGPU=1", "--at", HERE, "--", "true").status == 0
    finally:
        over.set()
        for other in other_paths:
            other.join()
    assert list(ledger.consumers()) == []


def test_a_signal_that_ends_the_program_is_its_status(start, ledger):
    child = start("VCPU=1", *python(WAITS))
    child.stdout.readline()
    child.terminate()
    assert child.wait(60) == 128 + signal.SIGTERM
    assert holders(ledger) == []


def test_what_the_program_started_gets_the_signal_too(start, ledger):
    shell = f"{sys.executable} -c '{WAITS}'; true"
    child = start("VCPU=1", "--", "sh", "-c", shell)
    inner = int(child.stdout.readline())
    child.terminate()
    child.wait(60)
    until(lambda: not is_there(inner))
    assert holders(ledger) == []


def test_after_sigkill_the_program_ends_and_the_lease_ends_the_claim(start, ledger, lab):
    child = start("PGPU=2", "--name", "job-1", "--lease", "1s", *python(WAITS))
    program = int(child.stdout.readline())
    child.kill()
    until(lambda: not is_there(program))
    assert holders(ledger) == ["job-1"]
    until(lambda: [item.consumer for item in ledger.expired()] == ["job-1"])
    after = start("PGPU=2", *python("print('mine')"))
    assert after.communicate(timeout=60)[0] == "mine\n"
    assert holders(ledger) == []


def test_the_lease_is_renewed_while_the_program_runs(start, ledger):
    child = start("VCPU=1", "--name", "job-1", "--lease", "1s", *python(WAITS))
    child.stdout.readline()
    first = ledger.get_claim("job-1").expires_at
    until(lambda: ledger.get_claim("job-1").expires_at > first + datetime.timedelta(seconds=2))
    child.terminate()
    assert child.wait(60) == 128 + signal.SIGTERM


def test_a_lost_lease_is_told_while_the_program_runs(start, ledger):
    child = start("VCPU=1", "--name", "job-1", "--lease", "1s", *python(WAITS))
    program = int(child.stdout.readline())
    ledger.release("job-1")
    again = ledger.claim("job-1", {"other": "VCPU=1"})
    assert "the claim is lost, others may take what the program uses" in child.stderr.readline()
    assert is_there(program)
    child.terminate()
    assert child.wait(60) == 128 + signal.SIGTERM
    assert ledger.get_claim("job-1").id == again.id  # it is not this one's to release


def test_a_lost_lease_ends_the_program_if_that_is_said(start, ledger):
    child = start("VCPU=1", "--name", "job-1", "--lease", "1s", "--end-when-lost", *python(WAITS))
    child.stdout.readline()
    ledger.release("job-1")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGTERM
    assert "the claim is lost, the program is ended: job-1 has no allocations" in err


def test_nothing_runs_that_got_nothing(start, ledger, tmp_path):
    ledger.claim("big", {HERE: "VCPU=8"})
    created = tmp_path / "made"
    child = start("VCPU=1", "--", "touch", str(created))
    _, err = child.communicate(timeout=60)
    assert child.returncode == 75
    assert "big holds 8" in err
    assert start("VCPU=9", "--", "touch", str(created)).wait(60) == 1
    assert not created.exists()
    assert holders(ledger) == ["big"]


def test_nothing_runs_whose_devices_cannot_be_told(start, ledger, tmp_path):
    ledger.sync(ro.Provider("counted", "PGPU=4"))
    created = tmp_path / "made"
    child = start("PGPU=3", "--at", "counted", "--", "touch", str(created))
    _, err = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "GPU is not determined" in err
    assert not created.exists()
    assert holders(ledger) == []


def test_a_run_waits(start, ledger):
    ledger.claim("big", {HERE: "VCPU=8"})
    child = start("VCPU=1", "--wait", "1m", *python("print('mine')"))
    until(lambda: next(ledger.queue(), None))
    ledger.release("big")
    assert child.communicate(timeout=60)[0] == "mine\n"


def test_it_runs_here_or_where_it_is_told(start, ledger):
    child = start("VCPU=1", "--at", "other", "--", "printenv", "RESOURCE_OBJECTS_HOST")
    assert child.communicate(timeout=60)[0] == "other\n"
    ledger.remove(HERE)
    child = start("VCPU=1", "--", "true")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 2
    assert err == (
        f"resource-objects: this machine, {HERE}, is not in the ledger; use --at PROVIDER\n"
    )


@pytest.mark.parametrize("argv", [["VCPU=1"], ["VCPU=1", "--"], ["VCPU=1", "true"]])
def test_a_run_without_a_program_is_a_mistake(lab, ledger, argv):
    done = lab("run", *argv)
    assert (done.status, done.out) == (2, "")
    assert holders(ledger) == []


# --- at a terminal ---


@contextlib.contextmanager
def at_terminal(url: str, *argv: str) -> Iterator[tuple[int, int]]:
    """Start ``run`` at a terminal of its own; yield its process and the other end of that."""
    process, terminal = pty.fork()
    if process == 0:  # pragma: no cover
        os.environ.update(PYTHONPATH=str(ROOT), RESOURCE_OBJECTS_DATABASE=url)
        command = [sys.executable, "-m", "resource_objects", "run", *argv]
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            os.execv(sys.executable, command)
        finally:
            os._exit(99)
    try:
        yield process, terminal
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)
        os.close(terminal)


def read_until(terminal: int, word: str) -> str:
    text = b""
    while word.encode() not in text:
        text += os.read(terminal, 1000)
    return text.decode()


def test_ctrl_c_reaches_the_program_once(url, ledger):
    code = (
        "import signal, time\n"
        "got = []\n"
        "signal.signal(signal.SIGINT, lambda *_: got.append(1))\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.5); print('got', len(got), flush=True)"
    )
    with at_terminal(url, "VCPU=1", *python(code)) as (process, terminal):
        read_until(terminal, "ready")
        os.write(terminal, b"\x03")
        assert "got 1" in read_until(terminal, "got 1\r\n")
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert holders(ledger) == []


def test_ctrl_z_stops_both_and_both_go_on(url, ledger):
    code = "print('ready', flush=True); print('read', input(), flush=True)"
    with at_terminal(url, "VCPU=1", *python(code)) as (process, terminal):
        read_until(terminal, "ready")
        os.write(terminal, b"\x1a")
        _, status = os.waitpid(process, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        os.kill(process, signal.SIGCONT)
        os.write(terminal, b"on\n")
        read_until(terminal, "read on")
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert holders(ledger) == []
