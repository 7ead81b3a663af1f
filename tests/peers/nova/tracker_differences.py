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
        "A claim looks at cells and devices alone: CPUs, memory and disk beyond what the host has "
        "are claimed, for Placement is trusted to have refused",
        "All is decided together, and refused with the reason",
    ),
    Difference(
        "Limits of CPUs, memory and disk are sent along and not looked at",
        "A limit bounds the claim",
        _FILE,
        "test_limits_bound_a_claim",
    ),
    _drift(
        "SEEN_AND_NOT_TAKEN",
        "A function and a part of it at once pass the test, and taking them raises when the "
        "instance is already of that host; parts are in no pool after that",
        "Refused; nothing changes",
    ),
    _drift(
        "LIVE_DEVICES",
        "A claim for a live migration looks whether there are devices and takes none, so that "
        "somebody else may have them before it arrives (those of ports are claimed elsewhere)",
        "All that was asked is taken when the move begins",
    ),
    Difference(
        "A rebuild claims nothing, whatever it asks: what needs more is for the API to refuse",
        "Decided like anything else, and taken in place of what it had",
        _FILE,
        "test_a_rebuild_looks_at_what_it_asks",
    ),
    Difference(
        "A move to a node that is not there is refused with the words ``unknown node nodename``",
        "The host is named",
        _FILE,
        "test_a_host_that_is_not_there_is_named",
    ),
)

USE: Final = (
    _drift(
        "SWAP",
        "Swap of 512 MiB is added to whole GB, each sum is cut: a claim that is given back leaves "
        "9 GB used of 10. The periodic task mends it",
        "Swap takes whole GB, as Nova itself tells Placement, and gives back the same",
    ),
    _drift(
        "FORGOTTEN",
        "Who was resized on its host and confirmed, came live or by evacuation, or went back where "
        "it came from after a periodic task, is not tracked: deleting or shelving it gives back "
        "neither counts nor CPUs nor devices until the next one",
        "What is used is what somebody holds; deleting gives it back at once",
    ),
    Difference(
        "What was evacuated counts no more as soon as its host counts anew, although the guest may "
        "still run there",
        "Held by the migration until the host, or whoever knows, confirms",
        _FILE,
        "test_what_was_evacuated_is_held_until_somebody_knows_that_it_is_gone",
    ),
)

_OWN_RUN, _OWN_DIFFER = OWN_TESTS
OWN: Final = (
    Difference(
        "``test_abort`` (of a claim, a move and a live migration) claims 4096 MiB of a node that "
        "has 2048, and aborts",
        "Refused with the reason. On a node that has the memory it passes, and all is given back",
        "test_claims.py",
        "test_an_abort_where_there_is_room_gives_all_back",
        met=f"{_OWN_DIFFER} of {_OWN_RUN} tests; the others pass as they are",
    ),
    Difference(
        "Devices of its tests have the address ``a``, the vendor ``v``, and one address twice",
        "Refused; the tests run with addresses and ids that can be",
        "test_claims.py",
        "test_devices_that_no_host_has_are_refused",
    ),
)

SECTIONS: Final = {
    "Claims of a host": CLAIMS,
    "What is used of a host": USE,
    "Nova's own tests of its claims, run on these": OWN,
}


def text() -> str:
    """Return a table per section, as reStructuredText."""
    return tables(SECTIONS)


if __name__ == "__main__":
    TABLE.write_text(text())
    print(f"written to {TABLE}")
