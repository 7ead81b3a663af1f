"""The table of differences between nova's NUMA decisions and ours, for the documentation.

``python -m tests.peers.nova.numa_differences`` rewrites
``doc/source/explanation/numa_differences.txt``. A test holds the file to this, and this to the
tests that reproduce each difference beside the real nova.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE.parents[2] / "doc" / "source" / "explanation" / "numa_differences.txt"

_PAIRS, _SEARCH = "test_numa_pairs.py", "test_numa_search.py"
_SMALLEST = "test_a_difference_in_its_smallest_case"


class Difference(NamedTuple):
    """What nova does, what we do, and the test that shows both."""

    nova: str
    ours: str
    file: str
    test: str
    case: str = ""  #: of a test with several
    met: str = ""  #: how often random cases meet it


SEARCH = (
    Difference(
        "Host cells of 4 CPUs, guest cells of 1, 1 and 5 vCPUs: fits. The result of a pair is "
        "stored under the id of the guest cell, and the search overwrites that id",
        "Refused: 5 vCPUs do not fit 4 CPUs",
        _SEARCH,
        "test_five_vcpus_do_not_fit_four_cpus",
    ),
    Difference(
        "The same with dedicated vCPUs: one guest cell is returned without any pinned CPU",
        "Refused",
        _SEARCH,
        "test_five_dedicated_vcpus_are_not_left_without_a_cpu",
    ),
    Difference(
        "Host cells of 1, 2, 1 and 1 CPUs, guest cells of 1, 1 and 2 vCPUs: a guest cell is "
        "pinned to a CPU of another host cell, and counting the usage raises",
        "CPUs are those of the assigned host cell",
        _SEARCH,
        "test_cpus_are_of_the_host_cell_that_is_taken",
    ),
    Difference(
        "Host cells of 1, 2 and 1 CPUs, guest cells of 1 and 2 vCPUs: refused, although they fit",
        "Fits: a placement is found if there is one",
        _SEARCH,
        "test_what_fits_is_not_missed_for_unequal_guest_cells",
    ),
    Difference(
        "``large`` uses the page size that was tried first on all later host cells: the order "
        "of the guest cells decides whether a request is refused",
        "The page size is chosen for each host cell",
        _SEARCH,
        "test_large_pages_are_of_a_size_for_each_host_cell",
    ),
)

PAIR = (
    Difference(
        "``isolate`` fits no host with SMT that has separate sets of shared and dedicated CPUs "
        "(bug 1889633)",
        "One core for each vCPU; its other threads are allocated and idle",
        _PAIRS,
        _SMALLEST,
        "isolate_with_smt",
    ),
    Difference(
        "``isolate`` ignores cores that have fewer threads than the largest core of the cell",
        "A core is free if all its threads are free, also in hybrid processors",
        _PAIRS,
        _SMALLEST,
        "isolate_hybrid",
    ),
    Difference(
        "Next to isolated vCPUs the CPU of the emulator may be on a partly used core",
        "It is on a completely free core, because its siblings are allocated too",
        _PAIRS,
        _SMALLEST,
        "emulator_on_half_a_core",
    ),
    Difference(
        "A dedicated CPU in no sibling set is never allocated; a cell without sibling sets "
        "raises ``ValueError``",
        "Such a CPU is a core of its own",
        _PAIRS,
        _SMALLEST,
        "cpus_without_core",
    ),
    Difference(
        "In a mixed request, a guest cell without dedicated vCPUs is refused by ``isolate``, by "
        "``require`` without free threads, and by an emulator with a CPU of its own",
        "Thread policies apply to dedicated vCPUs; the emulator has its CPU in guest cell 0",
        _PAIRS,
        _SMALLEST,
        "no_vcpu_needs_threads",
    ),
    Difference(
        "The RAM ratio is ignored for dedicated vCPUs, also one below 1",
        "A ratio below 1 applies to all; above 1 it does not extend the memory of dedicated vCPUs",
        _PAIRS,
        _SMALLEST,
        "ratio_skipped",
    ),
    Difference(
        "The RAM ratio applies to memory in pages of all sizes together: memory reserved as "
        "huge pages is allocated to requests without huge pages, and used huge pages reduce "
        "ordinary memory",
        "The ratio applies to ordinary memory; huge pages are counted separately",
        _PAIRS,
        _SMALLEST,
        "ratio_of_all",
    ),
    Difference(
        "Pages reserved for the host are available to shared vCPUs",
        "Reserved pages are not allocated",
        _PAIRS,
        _SMALLEST,
        "reserved_serves",
    ),
    Difference(
        "Ratios are floats: 15 and 100 MiB are more than 100 MiB times 1.15",
        "Ratios are decimals",
        _PAIRS,
        _SMALLEST,
        "ratio_is_float",
    ),
    Difference(
        "If a CPU is both shared and dedicated (one set for both), shared vCPUs are counted on "
        "pinned CPUs",
        "A pinned CPU has no other use, and CPUs that shared vCPUs need are not pinned",
        _PAIRS,
        _SMALLEST,
        "either_way",
    ),
    Difference(
        "A guest cell without memory needs pages of the requested size, and free memory by the "
        "ratio",
        "Without memory it needs no pages",
        _PAIRS,
        _SMALLEST,
        "nothing_needs_pages",
    ),
    Difference(
        "Without limits, used shared CPUs and memory are not counted",
        "Used amounts always count; limits only reduce the free amount",
        _PAIRS,
        "test_use_of_shared_cpus_counts_without_limits_too",
    ),
)

COUNTING = (
    Difference(
        "``isolate`` with an emulator that has its own CPU: fits on a partly used core, and "
        "counting the usage raises ``CPUPinningInvalid``",
        "Each amount that fits can be allocated and released",
        _PAIRS,
        "test_what_fits_can_be_counted_with_an_isolated_emulator",
    ),
    Difference(
        "A cell without pages: fits, and counting the usage raises ``IndexError``",
        "Without page sizes all memory is ordinary",
        _PAIRS,
        "test_what_fits_can_be_counted_on_a_cell_without_pages",
    ),
    Difference(
        "A topology from before Liberty: fit and counting raise ``NotImplementedError``",
        "Read as a host whose CPUs are both shared and dedicated",
        _PAIRS,
        "test_a_topology_from_before_liberty_can_be_asked",
    ),
    Difference(
        "A release of more than the used amount: counts become 0, without an error",
        "Refused; nothing changes",
        _PAIRS,
        "test_giving_back_what_is_not_taken_is_an_error",
    ),
)

SECTIONS = {
    "Searching a host": SEARCH,
    "One guest cell on one host cell": PAIR,
    "Counting the usage": COUNTING,
}


def text() -> str:
    """Return a table per section, as reStructuredText."""
    return tables(SECTIONS)


def tables(sections: Mapping[str, Sequence[Difference]]) -> str:
    """Return a table per section, as reStructuredText."""
    return "\n".join(line for name, rows in sections.items() for line in _table(name, rows)) + "\n"


def _table(name: str, rows: Sequence[Difference]) -> Iterator[str]:
    yield f".. list-table:: {name}"
    yield "   :header-rows: 1"
    yield "   :widths: 40 30 30"
    yield ""
    yield from _line("Nova 34", "here", "shown by")
    for found in rows:
        case = f"[{found.case}]" if found.case else ""
        met = f"; {found.met}" if found.met else ""
        shown = f"``{found.file}``: ``{found.test}{case}``{met}"
        yield from _line(found.nova, found.ours, shown)
    yield ""


def _line(*cells: str) -> Iterator[str]:
    for place, cell in enumerate(cells):
        yield f"   {'* -' if place == 0 else '  -'} {cell}"


if __name__ == "__main__":
    TABLE.write_text(text())
    print(f"written to {TABLE}")
