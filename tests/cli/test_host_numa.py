"""The NUMA cells of a host: drawn, listed, kept; of this machine and of any host that is kept."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil

import pytest

import resource_objects as ro
from resource_objects.host.machine import MIB, Core, Machine, NUMACell, Pages
from resource_objects.resources.numa import numa


@pytest.fixture
def machine() -> Machine:
    """Two cells of two cores with two threads and 4 GiB each, half of it in huge pages; 1 GiB."""
    pages = (Pages(4096, 524288), Pages(2 * MIB, 1024, 1000))
    return Machine(
        hostname="box",
        cpus=tuple(range(8)),
        cores=tuple(Core(core // 2, core % 2, (core, core + 4)) for core in range(4)),
        memory_bytes=9216 * MIB,
        huge_pages=(Pages(2 * MIB, 2048, 2000),),
        cells=(
            NUMACell(0, (0, 1, 4, 5), 4096 * MIB, pages, 0, (10, 21, 14)),
            NUMACell(1, (2, 3, 6, 7), 4096 * MIB, pages, 1, (21, 10, 24)),
            NUMACell(2, (), 1024 * MIB, (), None, (14, 24, 10), initiators=(0,)),
        ),
    )


@pytest.fixture(autouse=True)
def _on_machine(begun, on_machine):
    """Every test here sees the machine of the fixture, unless it asks another process."""


SYNC = ("host", "sync", "--numa", "--shared", "0,4", "--dedicated", "1-3,5-7")


def inside(lines: list[str]) -> list[str]:
    return [line[2:-2].rstrip() for line in lines if line[:1] in ("|", "│")]


# --- drawn --------------------------------------------------------------------------------------


def test_the_cells_of_this_machine_are_facts_where_nothing_is_kept(run, home):
    shutil.rmtree(home / ".local")
    done = run("host", "show", "--numa")
    assert (done.status, done.err) == (0, "")
    assert done.lines == [
        "box: 3 NUMA cells in 2 sockets, 8 CPUs on 4 cores, 9216 MiB",
        "",
        "┌─ cell 0, socket 0 ───────────────────────────────────────────────────────────┐",
        "│ CPUs       0 4  1 5                                                          │",
        "│            s s  s s                                                          │",
        "│ shared     ░░░░░░░░░░░░░░░░  0 of 4 vCPUs                                    │",
        "│ memory     ░░░░░░░░░░░░░░░░  0 of 2048 MiB                                   │",
        "│ 2 MiB      ░░░░░░░░░░░░░░░░  0 of 1024 pages                                 │",
        "│ distance   14 to 2, 21 to 1                                                  │",
        "└──────────────────────────────────────────────────────────────────────────────┘",
        "┌─ cell 1, socket 1 ───────────────────────────────────────────────────────────┐",
        "│ CPUs       2 6  3 7                                                          │",
        "│            s s  s s                                                          │",
        "│ shared     ░░░░░░░░░░░░░░░░  0 of 4 vCPUs                                    │",
        "│ memory     ░░░░░░░░░░░░░░░░  0 of 2048 MiB                                   │",
        "│ 2 MiB      ░░░░░░░░░░░░░░░░  0 of 1024 pages                                 │",
        "│ distance   21 to 0, 24 to 2                                                  │",
        "└──────────────────────────────────────────────────────────────────────────────┘",
        "┌─ cell 2, socket 0 ───────────────────────────────────────────────────────────┐",
        "│ CPUs       none                                                              │",
        "│ memory     ░░░░░░░░░░░░░░░░  0 of 1024 MiB                                   │",
        "│ distance   14 to 0, 24 to 1                                                  │",
        "└──────────────────────────────────────────────────────────────────────────────┘",
        "",
        "s  shared",
        "",
        "These are facts; host sync --numa adds them.",
    ]
    assert list(home.iterdir()) == []  # looking does not make a ledger


def test_the_cells_of_this_machine_are_drawn_with_who_uses_them_where_it_is_kept(run):
    run(*SYNC)
    run("claim", "job-1", "NUMA_TOPOLOGY=2:dedicated=2:memory=1024:thread_policy=isolate")
    run("claim", "job-2", "NUMA_TOPOLOGY=1:shared=1:memory=1024:page_size=2MB")
    run("claim", "job-3", "VCPU=1,MEMORY_MB=100")
    lines = run("host", "show", "--numa").lines
    assert inside(lines) == [
        "CPUs       0 4  1 5",
        "           s s  A -",
        "shared     ████████░░░░░░░░  1 of 2 vCPUs  B 1",
        "dedicated  ████████████████  2 of 2 CPUs  A 2",
        "memory     ████░░░░░░░░░░░░  512 of 2048 MiB  A 512",
        "2 MiB      ████████░░░░░░░░  512 of 1024 pages  B 512",
        "distance   14 to 2, 21 to 1",
        "CPUs       2 6  3 7",
        "           A -  . .",
        "dedicated  ████████░░░░░░░░  2 of 4 CPUs  A 2",
        "memory     ████░░░░░░░░░░░░  512 of 2048 MiB  A 512",
        "2 MiB      ░░░░░░░░░░░░░░░░  0 of 1024 pages",
        "distance   21 to 0, 24 to 2",
        "CPUs       none",
        "memory     ░░░░░░░░░░░░░░░░  0 of 1024 MiB",
        "distance   14 to 0, 24 to 1",
    ]
    assert lines[lines.index("") + 1 :][-6:] == [
        "A  job-1: CPUs 1-2; 5-6 left empty; 1024 MiB",
        "B  job-2: 1 shared vCPU; 512 pages of 2 MiB",
        "C  job-3: of the host, in no cell: VCPU 1, MEMORY_MB 100",
        ".  dedicated, free",
        "s  shared",
        "-  left empty on purpose",
    ]
    assert run("host", "show", "--numa", "box").lines == lines


def test_any_host_that_is_kept_is_drawn_by_its_name(run, tmp_path):
    url = f"sqlite:///{tmp_path}/lab.db"
    run(*SYNC, "--name", "rack1/box", "--database", url)
    done = run("host", "show", "--numa", "rack1/box", "--database", url)
    assert done.lines[0] == "rack1/box: 3 NUMA cells in 2 sockets, 8 CPUs on 4 cores, 9216 MiB"
    assert run("host", "show", "--numa", "rack1/box/numa1", "--database", url).out == done.out
    # this machine is kept under another name there: what is known of it are facts
    facts = run("host", "show", "--numa", "--database", url)
    assert facts.lines[-1] == "These are facts; host sync --numa adds them."


def test_a_host_that_is_kept_without_cells_says_so(run):
    run("host", "sync")
    done = run("host", "show", "--numa", "box")
    assert (done.status, done.out) == (1, "")
    assert done.err == (
        "resource-objects: box has no NUMA cells in the ledger:\n  host sync --numa adds them\n"
    )
    assert run("host", "show", "--numa").lines[-1] == (
        "These are facts; the ledger does not have them: host sync --numa adds them."
    )


def test_a_host_that_is_not_kept_is_one_line(run):
    done = run("host", "show", "--numa", "nobody")
    assert (done.status, done.out) == (1, "")
    assert done.err == "resource-objects: nobody is not a provider of this ledger\n"


def test_what_sync_would_keep_can_be_seen_before(run):
    run(*SYNC)
    done = run("host", "show", "--numa", "--dedicated", "2-7", "--reserved-pages", "1:2MB=24")
    assert [line for line in inside(done.lines) if line[:4] in ("CPUs", "    ", "2 Mi")] == [
        "CPUs       0 4  1 5",
        "           h .  h .",
        "2 MiB      ░░░░░░░░░░░░░░░░  0 of 1024 pages",
        "CPUs       2 6  3 7",
        "           . .  . .",
        "2 MiB      ░░░░░░░░░░░░░░░░  0 of 1000 pages (24 kept)",
        "CPUs       none",
    ]
    assert done.lines[-1] == "host sync --numa would store this."


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--numa", "--dedicated", "8"], "dedicated CPUs: got '8', expected CPUs that are online"),
        (["--numa", "--reserved-pages", "0:1GB=1"], "reserved pages: size: got '1 GiB'"),
        (["--numa", "box", "--shared", "1"], "--shared: got '1', expected nothing, for box is"),
        (["--numa", "box", "--reserved-pages", "0:2MB=1"], "--reserved-pages: got '0:2MB=1'"),
        (["--reserved-pages", "0:2MB=1"], "reserved_pages: got {0: {2048: 1}}, expected nothing"),
        (["--shared", "0-3", "--dedicated", "3"], "dedicated CPUs: got '3'"),
    ],
)
def test_arguments_that_cannot_be_are_one_line(run, argv, line):
    done = run("host", "show", *argv)
    assert (done.status, done.out) == (1, "")
    assert line in done.err
    assert len(done.err.splitlines()) == 1


def test_cells_and_devices_are_not_shown_at_once(run):
    assert run("host", "show", "--numa", "--pci").status == 2


def test_a_machine_without_cells_says_so(run, machine, on_machine):
    on_machine(dataclasses.replace(machine, cells=()))
    assert run("host", "show", "--numa").lines[0] == "no NUMA cells"
    assert run("host", "show", "--numa", "-f", "json").out == "[]\n"


def test_a_captured_machine_is_drawn_without_looking_into_the_ledger(run, tmp_path):
    run(*SYNC)
    run("claim", "job-1", "NUMA_TOPOLOGY=1:shared=1")
    done = run("host", "show", "--numa", "--root", str(tmp_path))
    assert "job-1" not in done.out
    assert done.lines[-1] == "These are facts."


@pytest.mark.parametrize("columns", ["60", "80", "100", "200"])
def test_a_drawing_is_as_wide_as_the_terminal_but_not_too_wide(run, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    widest = max(map(len, run("host", "show", "--numa").lines[:-2]))
    assert widest == min(int(columns), 120)


def test_where_the_output_takes_only_ascii_it_is_drawn_with_ascii(shell):
    done = shell("host", "show", "--numa", PYTHONIOENCODING="ascii")
    assert (done.status, done.err) == (0, "")
    assert done.out.isascii()
    assert done.lines[2].startswith("+- cell ")
    assert shell("host", "show", "--numa", PYTHONIOENCODING="utf-8").lines[2].startswith("┌─ cell ")


# --- listed -------------------------------------------------------------------------------------


def test_the_cells_are_listed_for_programs(run):
    run(*SYNC, "--ratio", "VCPU=4", "--reserved-pages", "0:2MB=24,1:2MB=24")
    run("claim", "job-1", "NUMA_TOPOLOGY=1:dedicated=1:memory=512:thread_policy=isolate")
    rows = json.loads(run("host", "show", "--numa", "-f", "json").out)
    assert [row["cell"] for row in rows] == [0, 1, 2]
    (at,) = [row for row in rows if row["holders"]]
    assert at == {
        "cell": 1,
        "socket": 1,
        "cpus": [2, 3, 6, 7],
        "cores": [[2, 6], [3, 7]],
        "shared": [],
        "shared_used": 0,
        "shared_capacity": 0,
        "dedicated": [2, 3, 6, 7],
        "dedicated_used": 2,
        "memory_mb": 4096,
        "memory_used_mb": 512,
        "memory_capacity_mb": 2048,
        "huge_pages": [{"size_kib": 2048, "total": 1024, "reserved": 24, "used": 0}],
        "distances": [21, 10, 24],
        "physnets": [],
        "tunneled": False,
        "holders": [
            {
                "consumer": "job-1",
                "vcpus": 0,
                "cpus": [2],
                "idle": [6],
                "loose": 0,
                "memory_mb": 512,
                "pages": {},
            }
        ],
    }
    run("claim", "job-2", "NUMA_TOPOLOGY=1:shared=2:memory=1024:page_size=2MB")
    (first, *_) = json.loads(run("host", "show", "--numa", "-f", "json").out)
    assert (first["shared_used"], first["shared_capacity"]) == (2, 8)
    assert first["huge_pages"] == [{"size_kib": 2048, "total": 1024, "reserved": 24, "used": 512}]


def test_what_is_held_in_no_cell_is_a_row_of_no_cell(run):
    run(*SYNC)
    run("claim", "job-1", "VCPU=1,MEMORY_MB=100,PCPU=3")
    *cells, of_host = json.loads(run("host", "show", "--numa", "-f", "json").out)
    assert not any(row["holders"] for row in cells)
    assert {name: value for name, value in of_host.items() if value not in (None, [])} == {
        "holders": [
            {
                "consumer": "job-1",
                "vcpus": 1,
                "cpus": [],
                "idle": [],
                "loose": 3,
                "memory_mb": 100,
                "pages": {},
            }
        ]
    }
    assert of_host.keys() == cells[0].keys() and of_host["cell"] is None
    lines = run("host", "show", "--numa", "-c", "cell", "-c", "holders").lines
    assert "|      | job-1: 3 dedicated CPUs; 1 shared vCPU; 100 MiB |" in lines


def test_the_cells_are_listed_as_a_table_where_one_is_asked_for(run):
    argv = ["-c", "cell", "-c", "cores", "-c", "huge_pages", "-c", "socket", "-c", "distances"]
    done = run("host", "show", "--numa", *argv)
    assert done.lines == [
        "+------+--------+----------+---------------------+------------+",
        "| cell | socket | cores    | huge_pages          | distances  |",
        "+------+--------+----------+---------------------+------------+",
        "|    0 | 0      | 0+4, 1+5 | 1024 pages of 2 MiB | 10, 21, 14 |",
        "|    1 | 1      | 2+6, 3+7 | 1024 pages of 2 MiB | 21, 10, 24 |",
        "|    2 | 0      |          |                     | 14, 24, 10 |",
        "+------+--------+----------+---------------------+------------+",
    ]
    assert "holders" in run("host", "show", "--numa", "-f", "table").lines[1]
    run(*SYNC, "--reserved-pages", "0:2MB=24")
    done = run("host", "show", "--numa", "-c", "huge_pages")
    assert "| 1024 pages of 2 MiB: 24 reserved |" in done.lines


def test_who_holds_what_is_a_line_each_for_people(run):
    run(*SYNC)
    run("claim", "job-1", "NUMA_TOPOLOGY=1:dedicated=2:memory=512:page_size=2MB")
    run("claim", "job-2", "NUMA_TOPOLOGY=1:shared=1")
    lines = run("host", "show", "--numa", "-c", "holders").lines
    assert "| job-2: 1 shared vCPU                 |" in lines
    assert "| job-1: CPUs 2, 6; 256 pages of 2 MiB |" in lines


# --- kept ---------------------------------------------------------------------------------------


def test_sync_keeps_the_cells_below_the_host(run):
    assert run(*SYNC).lines == ["+ box", "+ box/numa0", "+ box/numa1", "+ box/numa2"]
    assert run(*SYNC).out == "nothing changed\n"
    assert run("provider", "tree").lines == [
        "box  VCPU=2,MEMORY_MB=9216:reserved=4096,PCPU=6  HW_CPU_HYPERTHREADING",
        "├─ box/numa0  NUMA_TOPOLOGY=cell 0: 2 shared CPUs 2 dedicated CPUs 4096 MiB",
        "├─ box/numa1  NUMA_TOPOLOGY=cell 1: 4 dedicated CPUs 4096 MiB",
        "└─ box/numa2  NUMA_TOPOLOGY=cell 2: 1024 MiB",
    ]


def test_what_is_taken_of_a_cell_does_not_show_in_what_it_is(run):
    run(*SYNC)
    before = run("provider", "tree").out
    run("claim", "job-1", "NUMA_TOPOLOGY=1:dedicated=2:memory=512")
    assert run("provider", "tree").out == before
    assert run("provider", "list").status == run("provider", "show", "box/numa0").status == 0


def test_sync_keeps_dedicated_cpus_without_cells_too(run):
    run("host", "sync", "--dedicated", "1-7")
    (host,) = json.loads(run("provider", "list", "-f", "json").out)
    assert host["inventories"] == "MEMORY_MB=9216:reserved=4096,PCPU=7"


def test_sync_without_cells_takes_them_away_unless_they_are_held(run):
    run(*SYNC)
    run("claim", "job-1", "NUMA_TOPOLOGY=1:dedicated=1")
    done = run("host", "sync", "--shared", "0,4", "--dedicated", "1-3,5-7")
    assert (done.status, done.out) == (1, "")
    assert "has allocations and cannot be removed" in done.err
    assert "  job-1 holds PCPU=1 of box/numa" in done.err
    run("release", "job-1")
    assert run("host", "sync", "--shared", "0,4", "--dedicated", "1-3,5-7").status == 0
    assert run("host", "show", "--numa", "box").status == 1


def test_what_is_held_and_would_go_is_said_with_its_holder(run):
    run(*SYNC)
    run("claim", "job-1", "NUMA_TOPOLOGY=1:dedicated=1")
    run("claim", "job-2", "NUMA_TOPOLOGY=1:shared=1:memory=64")
    before = run("provider", "tree").out
    done = run("host", "sync", "--numa", "--shared", "0-1,4-5")
    assert (done.status, done.out) == (1, "")
    (first, *remaining) = done.err.splitlines()
    assert first.endswith("has allocations and its inventory cannot be removed: PCPU:")
    assert len(remaining) == 1 and remaining[0].startswith("  job-1 holds PCPU=1 of box")
    assert run("provider", "tree").out == before


def test_a_class_that_is_held_of_the_host_is_said_with_its_holder(run):
    run("host", "sync", "--shared", "0,4", "--dedicated", "1-3,5-7")
    run("claim", "job-1", "PCPU=2")
    done = run("host", "sync")
    assert done.err.splitlines() == [
        "resource-objects: box has allocations and its inventory cannot be removed: PCPU:",
        "  job-1 holds PCPU=2 of box",
    ]


def test_pages_are_kept_for_the_host(run):
    run(*SYNC, "--reserved-pages", "0:2MB=24,0:4=25600")
    lines = inside(run("host", "show", "--numa").lines)
    assert "memory     ░░░░░░░░░░░░░░░░  0 of 1948 MiB" in lines
    assert "2 MiB      ░░░░░░░░░░░░░░░░  0 of 1000 pages (24 kept)" in lines


def test_the_drawing_tells_what_another_program_keeps(run, tmp_path):
    url = f"sqlite:///{tmp_path}/lab.db"
    with ro.connect(url) as ledger:
        host = ro.Provider("farm-1", "PCPU=2,MEMORY_MB=64")
        cell = ro.HostCell(4, dedicated=[8, 9], siblings=[(8, 9)], memory_mb=64)

        host.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory([cell]))
        ledger.sync(host)
        request = ro.Request({"NUMA_TOPOLOGY": numa(dedicated=2, memory_mb=64)})
        ledger.claim("job-1", ledger.snapshot().candidates(request))
    done = run("host", "show", "--numa", "farm-1", "--database", url)
    assert inside(done.lines) == [
        "CPUs       8 9",
        "           A A",
        "dedicated  ████████████████  2 of 2 CPUs  A 2",
        "memory     ████████████████  64 of 64 MiB  A 64",
    ]


@pytest.mark.long
def test_this_machine_is_kept_and_drawn(shell):
    if not pathlib.Path("/sys/devices/system/cpu").is_dir():
        pytest.skip("this machine does not show its CPUs in /sys")
    assert shell("host", "sync", "--numa").status == 0
    done = shell("host", "show", "--numa")
    assert (done.status, done.err) == (0, "")
    assert not done.lines[-1].startswith("These are facts")
