"""Claiming NUMA topologies on the command line, and who has which CPUs."""

from __future__ import annotations

import json

import pytest

import resource_objects as ro
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.testing.conformance.suite import host_of


@pytest.fixture
def url(sqlite_url) -> str:
    """A ledger of two hosts, each of two cells of two shared and four dedicated CPUs."""
    url = sqlite_url("lab.db")
    cells = [
        HostCell(
            n,
            shared=[6 * n, 6 * n + 1],
            dedicated=range(6 * n + 2, 6 * n + 6),
            memory_mb=1024,
        )
        for n in (0, 1)
    ]
    with ro.connect(url) as ledger:
        for name in ("host0", "host1"):
            ledger.sync(host_of(name, NUMATopologyInventory(cells), DISK_GB=10))
    return url


@pytest.fixture
def lab(run, url):
    """Run a command on that ledger."""
    return lambda *argv: run(*argv, "--database", url)


ASKED = "DISK_GB=5,NUMA_TOPOLOGY=2:dedicated=4:memory=64:thread_policy=prefer"


def test_claim_takes_a_topology_where_it_fits(lab):
    done = lab("claim", "job", ASKED, "-f", "value")
    assert (done.status, done.err) == (0, "")
    assert sorted(done.lines) == [
        "job host0 DISK_GB 5 []",
        "job host0/numa0 MEMORY_MB 32 []",
        "job host0/numa0 PCPU 2 ['cpu2', 'cpu3']",
        "job host0/numa1 MEMORY_MB 32 []",
        "job host0/numa1 PCPU 2 ['cpu8', 'cpu9']",
    ]
    refused = lab("claim", "other", "NUMA_TOPOLOGY=2:dedicated=10")
    assert (refused.status, refused.out) == (1, "")
    assert "  host1: each of cells 0, 1: PCPU requested 5, free 4 of 4" in refused.err


def test_claim_and_release_tell_the_cpus(lab):
    argument = json.loads(lab("claim", "job", ASKED, "-f", "json").out)
    shown = json.loads(lab("allocation", "show", "job", "-f", "json").out)
    assert shown == [{**row, "group": None} for row in argument]
    assert ["cpu2", "cpu3"] in [row["units"] for row in argument]
    assert argument == json.loads(lab("release", "job", "-f", "json").out)


def test_allocation_show_tells_the_cpus(lab):
    lab("claim", "job", ASKED)
    shown = json.loads(lab("allocation", "show", "job", "-f", "json").out)
    assert {row["provider"]: row["units"] for row in shown if row["resource_class"] == "PCPU"} == {
        "host0/numa0": ["cpu2", "cpu3"],
        "host0/numa1": ["cpu8", "cpu9"],
    }
    assert " cpu8, cpu9 " in lab("allocation", "show", "job").out


def test_consumer_show_tells_where_it_is(lab):
    lab("claim", "job", ASKED)
    done = lab("consumer", "show", "job")
    assert (done.status, done.err) == (0, "")
    assert "host0/numa1 PCPU 2 cpu8, cpu9 " in done.out
    shown = json.loads(lab("consumer", "show", "job", "-f", "json").out)
    assert shown["assigned"] == [
        {
            "host": "host0",
            "resource_class": "NUMA_TOPOLOGY",
            "amount": "2:dedicated=4:memory=64:thread_policy=prefer:on=0+1:cpus=2-3+8-9",
        }
    ]
    assert {
        "provider": "host0/numa0",
        "resource_class": "PCPU",
        "amount": 2,
        "units": ["cpu2", "cpu3"],
    } in shown["allocations"]


def test_a_topology_is_set_at_a_host(lab):
    done = lab("allocation", "set", "job", "--allocation", f"rp=host1,{ASKED}", "-f", "value")
    assert (done.status, done.err) == (0, "")
    located = "NUMA_TOPOLOGY=1:dedicated=2"
    done = lab("allocation", "set", "job", "--allocation", f"host1,PCPU=2,{located}")
    assert (done.status, done.err) == (0, "")
    assert "1:dedicated=2:on=0:cpus=2-3" in lab("consumer", "show", "job").out
    wrong = lab("allocation", "set", "job", "--allocation", f"host1,PCPU=3,{located}")
    assert (wrong.status, wrong.out) == (1, "")
    assert wrong.err.startswith("resource-objects: PCPU: got ")
    assigned = lab("claim", "new", "NUMA_TOPOLOGY=1:dedicated=1:on=1:cpus=10")
    assert (assigned.status, assigned.out) == (2, "")


def test_what_is_moved_stays_a_topology(lab):
    lab("claim", "job", ASKED)
    done = lab("allocation", "move", "job", "--to", "host1", "--leaving", "old", "-f", "value")
    assert (done.status, done.err) == (0, "")
    assert "on=0+1:cpus=2-3+8-9" in lab("consumer", "show", "job").out
    assert "host1/numa1 PCPU 2 cpu8, cpu9" in lab("consumer", "show", "job").out
    assert "host0/numa1 PCPU 2 cpu8, cpu9" in lab("consumer", "show", "old").out
    lab("claim", "pinned", "NUMA_TOPOLOGY=1:dedicated=1", "--at", "host0/numa1")
    done = lab("allocation", "move", "pinned", "--to", "host1", "-f", "value")
    assert (done.status, done.err) == (0, "")
    assert done.lines == ["pinned host1/numa0 PCPU 1 ['cpu4']"]  # wherever it fits there


# --- what a cell is, changed by hand --------------------------------------------------------------


def test_counts_beside_a_cell_are_set_and_the_cell_stays(lab):
    for argv in (["set", "host0/numa0", "DISK_GB=1"], ["set", "host0/numa0", "FPGA=1", "--amend"]):
        done = lab("provider", "inventory", *argv)
        assert (done.status, done.err) == (0, "")
    listed = lab("provider", "inventory", "list", "host0/numa0", "-f", "value").out
    assert "PCPU" in listed and "DISK_GB" in listed and "FPGA" in listed
    done = lab("provider", "inventory", "delete", "host0/numa0", "--resource-class", "DISK_GB")
    assert (done.status, done.err) == (0, "")


@pytest.mark.parametrize("argv", [["PCPU=9", "--amend"], ["PCPU=9"]])
def test_a_class_that_is_part_of_a_topology_is_not_set_alone(lab, argv):
    done = lab("provider", "inventory", "set", "host0/numa0", *argv)
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        "resource-objects: PCPU of host0/numa0: got '9', expected nothing: it is within "
        "NUMA_TOPOLOGY of host0/numa0; cells are changed by host sync --numa, devices by host "
        "sync, others by Ledger.sync of their tree\n"
    )


def test_a_cell_has_no_text_form(lab):
    done = lab("provider", "inventory", "set", "host0/numa0", "NUMA_TOPOLOGY=0;shared=0-5")
    assert (done.status, done.out) == (1, "")
    assert "it has no text form" in done.err


def test_a_cell_does_not_go_by_its_inventory(lab):
    done = lab("provider", "inventory", "delete", "host0/numa0")
    assert (done.status, done.out) == (1, "")
    assert "NUMA_TOPOLOGY of host0/numa0: got None, expected one, for it is a part" in done.err


def test_what_is_beside_a_topology_does_not_unpin_what_is_moved(lab, url):
    lab("claim", "job", "NUMA_TOPOLOGY=1:dedicated=2")
    with ro.connect(url) as ledger:
        ledger.adjust("job", {"host0/numa1": "MEMORY_MB=8"})
    done = lab("allocation", "move", "job", "--to", "host1", "-f", "value")
    assert (done.status, done.err) == (0, "")
    assert "job host1/numa0 PCPU 2 ['cpu2', 'cpu3']" in done.lines


def test_units_that_cannot_be_asked_for_again_are_not_moved(lab, url):
    """One CPU more, whichever it is: which of them the topology has nobody knows."""
    lab("claim", "job", "NUMA_TOPOLOGY=1:dedicated=2")
    with ro.connect(url) as ledger:
        ledger.adjust("job", {"host0/numa0": "PCPU=1"})
        before = ledger.get_claim("job")
        done = lab("allocation", "move", "job", "--to", "host1")
        assert (done.status, done.out) == (1, "")
        assert "host0/numa0: PCPU cpu2" in done.err
        assert ledger.get_claim("job") == before
