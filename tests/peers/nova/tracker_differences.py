"""The table of differences between nova's resource tracker and ours, for the documentation.

``python -m tests.peers.nova.tracker_differences`` rewrites
``doc/source/explanation/tracker_differences.txt``. A test holds the file to this, and this to the
tests that reproduce each difference beside the real nova. How often random lives end in each is
counted by these tests too, always on the same ones.
"""

from __future__ import annotations

from typing import Final

from tests.peers.nova.numa_differences import HERE, Difference, tables

TABLE: Final = HERE.parents[2] / "doc" / "source" / "explanation" / "tracker_differences.txt"

__all__ = ["HERE", "SECTIONS", "TABLE", "text"]

#: How many lives of two hosts, and steps of each unless it ends before.
LIVES: Final = 60
STEPS: Final = 30
#: Of its own tests of claims, how many run on ours, and how many of these differ.
OWN_TESTS: Final = (35, 3)
#: Which drift of nova's tracker ends how many lives.
DRIFTS: Final = {
    "FORGOTTEN": 12,
    "LIVE_DEVICES": 1,
    "SEEN_AND_NOT_TAKEN": 2,
    "SWAP": 6,
}

_FILE, _SMALLEST = "test_tracker.py", "test_a_drift_in_its_smallest_case"


def _drift(name: str, nova: str, ours: str) -> Difference:
    met = f"{DRIFTS[name]} of {LIVES} lives" if name in DRIFTS else ""
    return Difference(nova, ours, _FILE, _SMALLEST, name.lower(), met)


CLAIMS: Final = (
    _drift(
        "COUNTS_UNSEEN",
        "A claim checks cells and devices only: CPUs, memory and disk above the capacity of the "
        "host are claimed, because Placement is expected to have refused them",
        "All amounts are decided together, and refused with the reason",
    ),
    Difference(
        "Limits of CPUs, memory and disk are passed along and not checked",
        "A limit bounds the claim",
        _FILE,
        "test_limits_bound_a_claim",
    ),
    _drift(
        "SEEN_AND_NOT_TAKEN",
        "A function and one of its virtual functions pass the test together; allocating them "
        "raises after the instance was assigned to the host, and afterwards the virtual "
        "functions are in no pool",
        "Refused; nothing changes",
    ),
    _drift(
        "LIVE_DEVICES",
        "A claim for a live migration checks whether there are devices and allocates none, so "
        "another instance may get them before the migration ends (devices of ports are claimed "
        "elsewhere)",
        "All requested amounts are allocated when the move begins",
    ),
    Difference(
        "A rebuild claims nothing, whatever it requests: the API has to refuse larger requests",
        "Decided like any claim, and allocated in place of the former amounts",
        _FILE,
        "test_a_rebuild_looks_at_what_it_asks",
    ),
    Difference(
        "A move to a node that does not exist is refused with the message ``unknown node "
        "nodename``",
        "The error names the host",
        _FILE,
        "test_a_host_that_is_not_there_is_named",
    ),
)

USE: Final = (
    _drift(
        "SWAP",
        "Swap of 512 MiB is added to whole GB, and each sum is rounded down: after a claim is "
        "released 9 GB of 10 remain used, until the periodic task",
        "Swap is counted in whole GB, as Nova reports it to Placement, and a release has the "
        "same amount",
    ),
    _drift(
        "FORGOTTEN",
        "An instance that was resized on its host and confirmed, that arrived by live migration "
        "or evacuation, or that returned to its source after a periodic task, is not tracked: "
        "its removal or shelving releases neither counts nor CPUs nor devices until the next "
        "task",
        "The used amounts are the sum of all allocations; a removal releases them at once",
    ),
    Difference(
        "An evacuated instance is not counted after the next periodic task of its host, "
        "although the guest may still run there",
        "Allocated to the migration until the host, or an operator, confirms",
        _FILE,
        "test_what_was_evacuated_is_held_until_somebody_knows_that_it_is_gone",
    ),
)

_OWN_RUN, _OWN_DIFFER = OWN_TESTS
OWN: Final = (
    Difference(
        "``test_abort`` (of a claim, a move and a live migration) claims 4096 MiB of a node "
        "that has 2048, and aborts",
        "Refused with the reason. On a node with enough memory the test passes, and all amounts "
        "are released",
        "test_claims.py",
        "test_an_abort_where_there_is_room_gives_all_back",
        met=f"{_OWN_DIFFER} of {_OWN_RUN} tests; the others pass as they are",
    ),
    Difference(
        "Devices of its tests have the address ``a`` and the vendor ``v``, and two have the "
        "same address",
        "Refused; the tests run with valid addresses and ids",
        "test_claims.py",
        "test_devices_that_no_host_has_are_refused",
    ),
)

SECTIONS: Final = {
    "Claims of a host": CLAIMS,
    "Usage of a host": USE,
    "Nova's own tests of its claims, run on this library": OWN,
}


def text() -> str:
    """Return a table per section, as reStructuredText."""
    return tables(SECTIONS)


if __name__ == "__main__":
    TABLE.write_text(text())
    print(f"written to {TABLE}")
