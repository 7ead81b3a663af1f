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
        "Host cells of 4 CPUs, guest cells of 1, 1 and 5 vCPUs: fits. What was found for a pair is "
        "kept under the id of the guest cell, and the search overwrites that id",
        "Refused: 5 vCPUs do not go on 4 CPUs",
        _SEARCH,
        "test_five_vcpus_do_not_fit_four_cpus",
    ),
    Difference(
        "The same with dedicated vCPUs: the guest cell comes back with nothing pinned",
        "Refused",
        _SEARCH,
        "test_five_dedicated_vcpus_are_not_left_without_a_cpu",
    ),
    Difference(
        "Host cells of 1, 2, 1 and 1 CPUs, guest cells of 1, 1 and 2 vCPUs: a guest cell is pinned "
        "to a CPU of another host cell, and counting it raises",
        "CPUs are of the host cell that is taken",
        _SEARCH,
        "test_cpus_are_of_the_host_cell_that_is_taken",
    ),
    Difference(
        "Host cells of 1, 2 and 1 CPUs, guest cells of 1 and 2 vCPUs: refused, though they fit",
        "Fits: a placement is found whenever there is one",
        _SEARCH,
        "test_what_fits_is_not_missed_for_unequal_guest_cells",
    ),
    Difference(
        "``large`` means the size that was tried first, on every host cell after it: what fits is "
        "refused, or not, by the order of the guest cells",
        "A page size is found for each host cell anew",
        _SEARCH,
        "test_large_pages_are_of_a_size_for_each_host_cell",
    ),
)

PAIR = (
    Difference(
        "``isolate`` fits no host with SMT whose shared and dedicated CPUs are separate sets (bug "
        "1889633)",
        "A core for each vCPU; the other threads are taken and left empty",
        _PAIRS,
        _SMALLEST,
        "isolate_with_smt",
    ),
    Difference(
        "``isolate`` passes by cores that have fewer threads than the largest of the cell",
        "A core is wholly free if all threads it has are: hybrid processors too",
        _PAIRS,
        _SMALLEST,
        "isolate_hybrid",
    ),
    Difference(
        "Beside isolated vCPUs the emulator's CPU may be on a core that is half used",
        "It is on a core that is free as a whole, for its siblings are taken too",
        _PAIRS,
        _SMALLEST,
        "emulator_on_half_a_core",
    ),
    Difference(
        "A dedicated CPU that no sibling set names is never given; a cell without sibling sets "
        "raises ``ValueError``",
        "Such a CPU is a core by itself",
        _PAIRS,
        _SMALLEST,
        "cpus_without_core",
    ),
    Difference(
        "In a mixed request, a guest cell without dedicated vCPUs is refused by ``isolate``, by "
        "``require`` where no threads are free, and by an emulator with a CPU of its own",
        "Thread policies are about dedicated vCPUs; the emulator has its CPU beside guest cell 0",
        _PAIRS,
        _SMALLEST,
        "no_vcpu_needs_threads",
    ),
    Difference(
        "The RAM ratio is skipped for dedicated vCPUs, also one below 1",
        "A ratio below 1 bounds everybody; above 1 it gives dedicated vCPUs nothing",
        _PAIRS,
        _SMALLEST,
        "ratio_skipped",
    ),
    Difference(
        "The RAM ratio bounds memory in pages of all sizes together: memory set aside in huge "
        "pages serves who asked for none, and huge pages in use keep others out",
        "Ordinary memory has the ratio; huge pages are counted by themselves",
        _PAIRS,
        _SMALLEST,
        "ratio_of_all",
    ),
    Difference(
        "Pages reserved for the host count for shared vCPUs",
        "What is reserved is the host's",
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
        "Where a CPU serves either way (one set for both), shared vCPUs count on pinned CPUs",
        "A pinned CPU serves nobody else, and what shared vCPUs need is not pinned",
        _PAIRS,
        _SMALLEST,
        "either_way",
    ),
    Difference(
        "A guest cell without memory needs pages of the size that is asked for, and a ratio's room",
        "No memory needs no pages",
        _PAIRS,
        _SMALLEST,
        "nothing_needs_pages",
    ),
    Difference(
        "Without limits handed in, what is used of shared CPUs and memory does not count",
        "What is used counts always; limits only narrow",
        _PAIRS,
        "test_use_of_shared_cpus_counts_without_limits_too",
    ),
)

COUNTING = (
    Difference(
        "``isolate`` with an emulator that has its own CPU: fits on a core that is half used, and "
        "counting it raises ``CPUPinningInvalid``",
        "What fits can be taken, and given back",
        _PAIRS,
        "test_what_fits_can_be_counted_with_an_isolated_emulator",
    ),
    Difference(
        "A cell that lists no pages: fits, and counting it raises ``IndexError``",
        "Without page sizes all memory is ordinary",
        _PAIRS,
        "test_what_fits_can_be_counted_on_a_cell_without_pages",
    ),
    Difference(
        "A topology from before Liberty: fit and counting raise ``NotImplementedError``",
        "Read as a host whose CPUs serve either way",
        _PAIRS,
        "test_a_topology_from_before_liberty_can_be_asked",
    ),
    Difference(
        "Giving back more than is used: counts stop at 0, silently",
        "Refused; nothing changes",
        _PAIRS,
        "test_giving_back_what_is_not_taken_is_an_error",
    ),
)

SECTIONS = {
    "Searching a host": SEARCH,
    "One guest cell on one host cell": PAIR,
    "Counting what is used": COUNTING,
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
