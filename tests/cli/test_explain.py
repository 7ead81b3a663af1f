"""Why there is no candidate, on the command line: the answer, nearest, drawing, data."""

from __future__ import annotations

import json

import pytest

import resource_objects as ro
from resource_objects.resources.numa import HostCell, NUMATopologyInventory

DEVICES = ("explain", "PGPU=2", "--required", "CUSTOM_H100")


def build(ledger: ro.Ledger) -> None:
    """Keep the machines of the page: two with two GPUs each, one with cells."""
    for number, allocated in enumerate((1, 2)):
        host = ro.Provider(f"host{number}", "VCPU=16")
        for gpu in range(2):
            host.add(f"host{number}/gpu{gpu}", "PGPU=1", traits=["CUSTOM_H100"])
        ledger.sync(host)
        for gpu in range(allocated):
            ledger.claim(f"job-{number}{gpu}", {f"host{number}/gpu{gpu}": "PGPU=1"})
    cells = [HostCell(n, dedicated=[2 * n, 2 * n + 1], memory_mb=1024) for n in range(2)]
    host = ro.Provider("numa", "PCPU=4")
    host.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory(cells))
    ledger.sync(host)
    ledger.claim("vm", ledger.snapshot().candidates("NUMA_TOPOLOGY=1:dedicated=1"))


@pytest.fixture
def lab(run, sqlite_url):
    """Run a command on a ledger of them."""
    url = sqlite_url("lab.db", build)
    return lambda *argv: run(*argv, "--database", url)


def test_the_answer_comes_first(lab):
    done = lab(*DEVICES)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0] == (
        "none of the 2 hosts that are left has PGPU=2 free, the most is 1 of host0 "
        "(1 other fails before); 2 of 3 hosts could if nobody held anything"
    )
    assert "  host0: PGPU requested 2, free 1 of 2 (job-00 holds 1) [not now]" in lines
    assert lines.index("nearest:") > lines.index("conditions that exclude hosts:")


def test_the_places_that_fail_are_marked_in_the_tree(lab):
    done = lab(*DEVICES, "--tree", "--nearest", "1")
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[2] == "host0  <- not now"
    (marked,) = [line for line in lines[3:] if "<-" in line]
    assert marked.endswith("1 of 1  job-00 1  <- requested 2, free 1 of 2")
    assert marked.startswith(("├─", "│"))


def test_the_cell_that_fails_is_marked(lab):
    done = lab("explain", "NUMA_TOPOLOGY=1:dedicated=3", "--tree", "--nearest", "1")
    assert done.status == 0
    assert "numa  <- not now" in done.out or "numa  <- never" in done.out
    assert done.out.count("<-") >= 2


def test_each_reason_is_a_row_for_programs(lab):
    rows = json.loads(lab(*DEVICES, "-f", "json").out)
    assert [(item["host"], item["outlook"], item["rule"]) for item in rows] == [
        ("host0", "not_now", "capacity"),
        ("host1", "not_now", "capacity"),
        ("numa", "never", "no_inventory"),
    ]
    assert rows[1]["holders"] == {"job-10": 1, "job-11": 1}
    assert (rows[1]["asked"], rows[1]["bound"], rows[1]["used"]) == (2, 2, 2)


def test_the_document_has_all_of_it(lab):
    answer = json.loads(lab(*DEVICES, "--json").out)
    assert answer["answer"].startswith("none of the 2 hosts")
    assert [item["host"] for item in answer["nearest"]] == ["host0", "host1", "numa"]
    assert answer["outlooks"] == {"host0": "not_now", "host1": "not_now", "numa": "never"}
    assert set(answer["refused"]) == {"host0", "host1", "numa"}
    assert answer["stages"][0]["before"] == 3


def test_who_can_is_told_too(lab):
    done = lab("explain", "PGPU=1")
    assert done.status == 0
    assert done.out.splitlines()[0] == "1 of 3 hosts can hold it; 2 cannot"


def test_a_budget_that_ends_is_neither_yes_nor_no(lab):
    done = lab("explain", "NUMA_TOPOLOGY=1:dedicated=2", "--budget", "1")
    assert done.status == 3
    assert "not known: the budget of 1 steps ran out" in done.err


@pytest.mark.parametrize(
    ("argv", "output"),
    [
        (["PGUP=1"], "PGUP"),
        (["PGPU=1", "--nearest", "0"], "nearest: got 0, expected an integer of 1 or more"),
        (["PGPU=1", "--at", "nowhere"], "nowhere is not a provider"),
        ([], "no request: expected AMOUNTS such as VCPU=2"),
    ],
)
def test_bad_words_are_refused_by_name(lab, argv, output):
    done = lab("explain", *argv)
    assert done.status != 0
    assert output in done.err
