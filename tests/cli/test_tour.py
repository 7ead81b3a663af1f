"""The tour of this machine."""

from __future__ import annotations

import dataclasses
import re

import pytest

import resource_objects as ro
from resource_objects.host.machine import MIB, Core, Disk


@pytest.fixture(autouse=True)
def _on_machine(on_machine):
    """Every tour in this process is one of the machine of the fixture."""


STORY = """\
A tour of resource_objects on this machine. It changes nothing.

1. See what there is.
     >>> machine = discover()
   box has 4 CPUs, 8192 MiB of memory and 100 GiB of disk.

2. Keep it in a ledger: in memory, in a file, or in a database for many machines.
     >>> ledger = connect("memory://")
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


def test_the_tour_prints_the_whole_story_and_stores_nothing(run, home):
    done = run("tour")
    assert (done.status, done.err, done.out) == (0, "", STORY)
    assert list(home.iterdir()) == []


def test_a_named_ledger_is_neither_read_nor_created(run, tmp_path):
    path = tmp_path / "lab.db"
    assert run("tour", "--database", f"sqlite:///{path}").out == STORY
    assert not path.exists()


@pytest.mark.long
def test_the_story_can_be_printed_without_unicode(shell):
    done = shell("tour", PYTHONIOENCODING="ascii")
    assert (done.status, done.err) == (0, "")
    assert done.out.isascii()
    assert re.search(r"\n   (\|-|`-) [A-Z_]+ +#{15,20}\.* ", done.out)


def test_the_printed_calls_work(run):
    """The lines after >>> are run, as they stand."""
    from resource_objects.host.discovery import discover
    from resource_objects.host.tree import provider_tree

    namespace = {
        "discover": discover,
        "provider_tree": provider_tree,
        "connect": ro.connect,
        "Request": ro.Request,
        "print": print,
    }
    calls = [line.strip().removeprefix(">>> ") for line in run("tour").lines if ">>>" in line]
    assert len(calls) == 8
    for call in calls:
        exec(call, namespace)
    assert namespace["ledger"].usage().consumers == {}


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
    done = run("tour")
    assert (done.status, done.err) == (0, "")
    assert "requested" in done.out


def test_a_machine_that_is_too_small_to_be_shared_is_one_line(run, machine, on_machine):
    small = {"cpus": (0,), "cores": cores(1), "memory_bytes": 3 * MIB, "disk": None}
    on_machine(dataclasses.replace(machine, cells=(), huge_pages=(), devices=(), **small))
    done = run("tour")
    assert (done.status, done.err) == (1, "resource-objects: box is too small to be shared\n")


def test_a_machine_with_one_cpu_says_so_in_the_singular(run, machine, on_machine):
    on_machine(
        dataclasses.replace(machine, cpus=(0,), cores=cores(1), cells=(), disk=None, devices=())
    )
    done = run("tour")
    assert "   box has 1 CPU and 8192 MiB of memory.\n" in done.out
    assert '>>> half = Request("MEMORY_MB=3584")' in done.out


@pytest.mark.long
def test_this_machine_can_be_toured(shell):
    done = shell("tour")
    assert (done.status, done.err) == (0, "")
    assert " requested " in done.out
