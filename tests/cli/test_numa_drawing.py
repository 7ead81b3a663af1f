"""The drawing of NUMA cells: every CPU once with its mark, bars, letters, within its columns."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resource_objects.cli.drawing import FREE, IDLE, OWN, SHARED, TAKEN, numa_drawing
from resource_objects.cli.render import ASCII, UNICODE
from resource_objects.host.holdings import CellUser, HostCells
from resource_objects.resources.numa import CellUsage, HostCell, NUMATopologyInventory, PagePool
from tests.support.lengths import examples
from tests.support.numa_strategies import numa_inventories


def host(*cells: HostCell, holders=None, usage=(), elsewhere=(), **ratios) -> HostCells:
    inventory = NUMATopologyInventory(cells, usage=usage, **ratios)
    return HostCells("box", inventory, holders or tuple(() for _ in cells), elsewhere)


def inside(drawing: str) -> list[str]:
    """The content of the boxes, without the ends of lines."""
    return [line[2:-2].rstrip() for line in drawing.splitlines() if line[:1] in ("|", "│")]


def cpu_rows(drawing: str) -> list[tuple[int, str]]:
    """Every CPU that is drawn, with its mark, in order: numbers stand above marks."""
    lines = inside(drawing)
    result = []
    while lines:
        line = lines.pop(0)
        if line.startswith("CPUs") and "none" not in line:
            while line[:4] in ("CPUs", "    "):
                result.append((line.removeprefix("CPUs"), lines.pop(0)))
                line = lines.pop(0)
    return [
        (int(cpu), mark)
        for numbers, marks in result
        for cpu, mark in zip(numbers.split(), marks.split(), strict=True)
    ]


FULL = host(
    HostCell(
        0,
        shared=[1, 9],
        dedicated=[2, 3, 10, 11],
        siblings=[(n, n + 8) for n in range(4)],
        memory_mb=8192,
        pages=[
            PagePool(size_kib=4, total=1572864),
            PagePool(size_kib=2048, total=1024, reserved=4),
        ],
        socket=0,
        distances={0: 10, 1: 21},
        physnets=["physnet0"],
    ),
    HostCell(1, memory_mb=4096, socket=0, distances={0: 21, 1: 10}, tunneled=True),
    usage=[
        CellUsage(0, shared=6, pinned=[2, 3, 10], loose=1, memory_mb=1024, pages={2048: 510}),
        CellUsage(1, memory_mb=4096),
    ],
    holders=(
        (
            CellUser("job-1", cpus=(2,), idle=(10,), memory_mb=512),
            CellUser("job-2", vcpus=6, memory_mb=512),
            CellUser("job-3", cpus=(3,), pages=((2048, 510),)),
            CellUser("job-4", loose=1),
        ),
        (CellUser("job-1", memory_mb=4096),),
    ),
    elsewhere=(("job-5", {"VCPU": 2, "MEMORY_MB": 100}),),
    cpu_ratio=4,
)


def test_a_drawing_with_everything():
    assert numa_drawing(FULL).splitlines() == [
        "box: 2 NUMA cells in 1 socket, 8 CPUs on 4 cores, 12288 MiB",
        "",
        "┌─ cell 0, socket 0 ───────────────────────────────────────────────────────────┐",
        "│ CPUs        0  8   1  9   2 10   3 11                                        │",
        "│             h  h   s  s   A  -   B  .                                        │",
        "│ shared     ████████████░░░░  6 of 8 vCPUs  C 6                               │",
        "│ dedicated  ████████████████  4 of 4 CPUs  A 2, B 1, D 1                      │",
        "│ memory     ██░░░░░░░░░░░░░░  1024 of 6144 MiB  A 512, C 512                  │",
        "│ 2 MiB      ████████░░░░░░░░  510 of 1020 pages (4 kept)  B 510               │",
        "│ distance   21 to 1                                                           │",
        "│ networks   physnet0                                                          │",
        "└──────────────────────────────────────────────────────────────────────────────┘",
        "┌─ cell 1, socket 0 ───────────────────────────────────────────────────────────┐",
        "│ CPUs       none                                                              │",
        "│ memory     ████████████████  4096 of 4096 MiB  A 4096                        │",
        "│ distance   21 to 0                                                           │",
        "│ networks   tunnels                                                           │",
        "└──────────────────────────────────────────────────────────────────────────────┘",
        "",
        "A  job-1: CPU 2; 10 left empty; 4608 MiB",
        "B  job-3: CPU 3; 510 pages of 2 MiB",
        "C  job-2: 6 shared vCPUs; 512 MiB",
        "D  job-4: 1 dedicated CPU",
        "E  job-5: of the host, in no cell: VCPU 2, MEMORY_MB 100",
        ".  dedicated, free",
        "s  shared",
        "-  left empty on purpose",
        "h  the host's own",
    ]


def test_without_unicode_it_says_the_same():
    drawn, plain = numa_drawing(FULL, UNICODE), numa_drawing(FULL, ASCII)
    plain.encode("ascii")
    swapped = str.maketrans("┌┐└┘─│█░", "++++-|#.")
    assert drawn.translate(swapped) == plain


def test_who_has_little_room_is_counted():
    narrow = numa_drawing(FULL, width=60)
    assert "│ memory     ██░░░░░░░░░░░░░░  1024 of 6144 MiB  2 more    │" in narrow.splitlines()
    assert "A 2, B 1, D 1" in narrow


def test_a_cpu_that_serves_nothing_is_the_hosts_own_and_the_others_say_what_they_are():
    drawn = host(HostCell(0, shared=[1], dedicated=[2], siblings=[(0,), (3, 4)]))
    assert cpu_rows(numa_drawing(drawn)) == [(0, OWN), (1, SHARED), (2, FREE), (3, OWN), (4, OWN)]


def test_a_cpu_that_is_taken_by_nobody_known_says_so():
    drawn = numa_drawing(host(HostCell(0, dedicated=[0]), usage=[CellUsage(0, pinned=[0])]))
    assert cpu_rows(drawn) == [(0, TAKEN)]
    assert "?  taken, by whom is not known" in drawn


def test_a_host_without_cpus_and_memory_is_drawn():
    assert inside(numa_drawing(host(HostCell(3)))) == ["CPUs       none", "memory     none"]


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_cores_stand_apart_with_their_threads_side_by_side(threads):
    cores = [tuple(range(first, 3 * threads, 3)) for first in range(3)]
    drawn = numa_drawing(host(HostCell(0, dedicated=range(3 * threads), siblings=cores)))
    wide = len(str(3 * threads - 1))
    between = "  " if threads > 1 else " "
    texts = (" ".join(str(cpu).rjust(wide) for cpu in core) for core in cores)
    assert inside(drawn)[0] == f"CPUs       {between.join(texts)}"


def test_cores_of_different_numbers_of_threads_stand_side_by_side():
    drawn = host(HostCell(0, dedicated=range(4), siblings=[(0, 1)]))
    assert inside(numa_drawing(drawn))[0] == "CPUs       0 1  2  3"


@pytest.mark.parametrize(("count", "lengths"), [(7, [7]), (12, [6, 6]), (64, [7] * 9 + [1])])
def test_many_cores_take_rows_of_equal_length(count, lengths):
    cores = [(n, n + 100) for n in range(count)]
    cell = HostCell(0, dedicated=[cpu for core in cores for cpu in core], siblings=cores)
    drawn = numa_drawing(host(cell), ASCII)
    numbers = [line for line in inside(drawn) if line.split()[-1].isdigit()]
    assert [len(line.removeprefix("CPUs").split()) // 2 for line in numbers] == lengths
    assert sorted(cpu for cpu, _ in cpu_rows(drawn)) == list(cell.cpus)


def test_there_are_letters_for_any_number_of_consumers():
    holders = tuple(CellUser(f"job-{n:03}", cpus=(n,)) for n in range(60))
    drawn = numa_drawing(
        host(
            HostCell(0, dedicated=range(60)),
            usage=[CellUsage(0, pinned=range(60))],
            holders=(holders,),
        )
    )
    marks = [mark for _, mark in cpu_rows(drawn)]
    assert marks[:3] == ["A", "B", "C"]
    assert marks[25:28] == ["Z", "AA", "AB"]
    assert len(set(marks)) == 60


def test_cells_that_are_equally_far_are_named_together():
    far = {0: 10, 1: 17, 2: 17, 3: 17, 4: 20, 5: 14, 7: 20}
    cells = [HostCell(0, memory_mb=1, distances=far)]
    assert inside(numa_drawing(host(*cells)))[-1] == "distance   14 to 5, 17 to 1-3, 20 to 4,7"


def test_distances_to_many_cells_take_several_lines():
    cells = [
        HostCell(n, memory_mb=1, distances={m: 10 if m == n else 20 + m for m in range(17)})
        for n in range(17)
    ]
    lines = inside(numa_drawing(host(*cells), width=60))
    at = next(number for number, line in enumerate(lines) if line.startswith("distance"))
    text = " ".join(line.removeprefix("distance").strip() for line in lines[at : at + 4])
    assert text.startswith("21 to 1, 22 to 2")
    assert "36 to 16" in text


def test_a_long_name_of_a_host_stays_whole():
    named = HostCells.unused("node-" * 12, NUMATopologyInventory([HostCell(0, memory_mb=1)]))
    lines = numa_drawing(named).splitlines()
    assert lines[:2] == [f"{'node-' * 12}: 1 NUMA cell, 0", "   CPUs on 0 cores, 1 MiB"]


def test_a_long_list_of_what_a_consumer_holds_goes_on_below_it():
    cpus = tuple(range(0, 60, 2))
    drawn = host(
        HostCell(0, dedicated=range(60)),
        usage=[CellUsage(0, pinned=cpus)],
        holders=((CellUser("a job with a name", cpus=cpus, memory_mb=1),),),
    )
    lines = numa_drawing(drawn, width=60).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("A  a job"))
    text = lines[first : first + 3]
    assert max(map(len, text)) <= 60
    assert [line[:3] for line in text] == ["A  ", "   ", "   "]
    listed = ", ".join(map(str, cpus))
    assert " ".join(map(str.strip, text)) == f"A  a job with a name: CPUs {listed}; 1 MiB"


@settings(max_examples=examples(60), deadline=None)
@given(
    inventory=numa_inventories(serves_either_way=False),
    width=st.integers(60, 120),
    glyphs=st.sampled_from([ASCII, UNICODE]),
    named=st.booleans(),
)
def test_every_cpu_is_drawn_once_with_what_it_is_and_nothing_is_too_wide(
    inventory, width, glyphs, named
):
    holders = tuple(
        (CellUser("job-1", vcpus=used.shared, cpus=used.pinned[1:], idle=used.pinned[:1]),)
        if named and used.pinned
        else ()
        for used in inventory.usage
    )
    drawn = numa_drawing(HostCells("box", inventory, holders), glyphs, width)
    assert max(map(len, drawn.splitlines())) <= width
    expected = {}
    for cell, used in zip(inventory.cells, inventory.usage, strict=True):
        expected |= dict.fromkeys(cell.cpus, OWN) | dict.fromkeys(cell.shared, SHARED)
        expected |= dict.fromkeys(cell.dedicated, FREE)
        expected |= dict.fromkeys(used.pinned, "A" if named else TAKEN)
        expected |= dict.fromkeys(used.pinned[:1] if named else (), IDLE)
    assert dict(cpu_rows(drawn)) == expected
    assert len(cpu_rows(drawn)) == len(expected)
    boxes = [line for line in drawn.splitlines() if line[:1] in "┌│└|+"]
    assert {len(line) for line in boxes if line} == {width}


def test_marks_cannot_be_taken_for_letters():
    marks = (FREE, SHARED, IDLE, OWN, TAKEN)
    assert not any(mark.isupper() for mark in marks)
    assert all(item != other for item, other in itertools.combinations(marks, 2))
