"""The table of differences between nova's decisions about devices and ours, for the documentation.

``python -m tests.peers.nova.pci_differences`` rewrites
``doc/source/explanation/pci_differences.txt``. A test holds the file to this, and this to the tests
that reproduce each difference beside the real nova. How often random hosts meet each is counted by
these tests too, always on the same ones.
"""

from __future__ import annotations

from typing import Final

from tests.peers.nova.numa_differences import HERE, Difference, tables

TABLE: Final = HERE.parents[2] / "doc" / "source" / "explanation" / "pci_differences.txt"

__all__ = ["HERE", "SECTIONS", "TABLE", "text"]

#: How many random hosts and requests, the same with host cells, and lives of hosts.
CASES: Final = 4000
JOINTS: Final = 1500
LIVES: Final = 600

#: How often nova's scheduler, its host, and its search of host cells say otherwise, and why.
SCHEDULER: Final = {
    "CLASS_OPENS_NOTHING": 14,
    "CLASS_UNSEEN": 32,
    "EXCLUSION_UNKNOWN": 269,
    "IN_ORDER": 64,
    "LISTS_ARE_TEXT": 29,
    "NEAR_ALONE": 27,
    "NEAR_TOO_EARLY": 19,
    "ONE_POOL": 122,
    "PROVIDER_SHORT": 2,
    "TYPES_FOR_ALL": 2,
}
HOST: Final = {
    "CLASS_OPENS_NOTHING": 12,
    "CLASS_UNSEEN": 47,
    "EXCLUDED_COUNT": 269,
    "IN_ORDER": 266,
    "LEAKED": 701,
    "LISTS_ARE_TEXT": 30,
    "NEAR_ALONE": 30,
    "NEAR_TOO_EARLY": 16,
    "ONE_POOL": 11,
    "PROVIDER_SHORT": 5,
    "TYPES_FOR_ALL": 8,
}
TOGETHER: Final = {
    "CLASS_OPENS_NOTHING": 6,
    "CLASS_UNSEEN": 11,
    "EXCLUSION_UNKNOWN": 78,
    "IN_ORDER": 9,
    "LISTS_ARE_TEXT": 6,
    "NEAR_ALONE": 12,
    "NEAR_TOO_EARLY": 5,
    "ONE_POOL": 38,
    "PROVIDER_SHORT": 3,
    "TYPES_FOR_ALL": 1,
}
#: How often what is refused stays half applied.
HALVES: Final = 962
#: Which drift of nova's tracker ends how many lives.
DRIFTS: Final = {
    "CAME_BACK": 24,
    "GONE_PART_COUNTS": 17,
    "NOTHING_CLAIMED": 53,
    "PARTS_GONE": 50,
    "POOL_STAYS": 77,
    "RELATIVES_LOST": 40,
    "RELATIVE_FOUND": 88,
    "WHOLE_STAYS_UNAVAILABLE": 50,
    "WHOLE_UNTIED": 0,
}

_STATS, _TRACKER = "test_pci_stats.py", "test_pci_tracker.py"
_TOGETHER = "test_pci_together.py"


def _deviation(name: str, nova: str, ours: str) -> Difference:
    figures = (SCHEDULER, CASES, "pools"), (HOST, CASES, "hosts"), (TOGETHER, JOINTS, "with cells")
    met = [f"{has[name]} of {count:,} {what}" for has, count, what in figures if name in has]
    test = "test_a_difference_in_its_smallest_case"
    return Difference(nova, ours, _STATS, test, name.lower(), ", ".join(met))


def _drift(name: str, nova: str, ours: str) -> Difference:
    met = f"{DRIFTS[name]} of {LIVES} lives"
    return Difference(nova, ours, _TRACKER, "test_a_drift_in_its_smallest_case", name.lower(), met)


DECISION = (
    _deviation(
        "IN_ORDER",
        "Requests are met one after another: the first takes the only device that the second could "
        "use, and the second is refused",
        "Requests are met at once, in any order, whenever they can be",
    ),
    _deviation(
        "EXCLUSION_UNKNOWN",
        "The scheduler counts a physical function and its parts side by side, and accepts both; "
        "the host refuses",
        "A function and its parts exclude each other: one answer everywhere",
    ),
    _deviation(
        "EXCLUDED_COUNT",
        "One request that a function and its parts would do for counts on all of them, and taking "
        "them raises ``IndexError``; what was taken by then is in no pool",
        "Those that exclude each other are not given to one request either",
    ),
    _deviation(
        "NEAR_ALONE",
        "Where near devices suffice for a request it may have no others, also if another request "
        "can only have near ones",
        "Near ones come first; others are used if that lets all be met",
    ),
    _deviation(
        "NEAR_TOO_EARLY",
        "How many devices are near is counted before those are left out that the request may not "
        "have (physical functions, other providers): enough seem near, and it is refused",
        "Only devices that would do count",
    ),
    Difference(
        "Where near devices do not suffice, near and far ones are taken in the order of the pools",
        "Near ones first, device by device",
        _STATS,
        "test_far_devices_are_taken_where_near_ones_do_not_suffice",
    ),
    _deviation(
        "TYPES_FOR_ALL",
        "An alternative that asks for physical functions, vDPA or remote-managed devices opens "
        "these for the others too, which do not ask for them",
        "Each alternative opens what it asks for. Requests read from Nova's words keep Nova's way",
    ),
    _deviation(
        "CLASS_UNSEEN",
        "Resource class and traits are left to Placement; without it they are not looked at",
        "They have to hold",
    ),
    _deviation(
        "CLASS_OPENS_NOTHING",
        "Who names the resource class of a physical function gets none without naming its type",
        "A class that is offered is asked for by its name alone",
    ),
    _deviation(
        "LISTS_ARE_TEXT",
        "A tag that is a list has to be the same text: Nova compares lists, but its requests can "
        "only say text",
        "A list has to contain what is asked for",
    ),
    _deviation(
        "PROVIDER_SHORT",
        "Of two providers that were chosen, one that is short is left out if the other has enough "
        "for both; one device too few is given, and nothing is said",
        "Each provider gives what was chosen of it, or it is refused",
    ),
    _deviation(
        "ONE_POOL",
        "A provider whose devices are of two pools (other tags, or a function beside its parts) is "
        "refused, by the scheduler also if nobody asks for it",
        "Providers give what they have",
    ),
)

TAKING = (
    Difference(
        "A refusal puts back what was taken, not what that excluded: parts of a function are in no "
        "pool, though they are available",
        "A refusal changes nothing",
        _STATS,
        "test_parts_do_not_leak_when_their_function_is_put_back",
        met=f"devices leak in {HOST['LEAKED']} of {CASES:,}",
    ),
    Difference(
        "``apply_requests`` raises, and what came before stays applied",
        "All or nothing",
        _STATS,
        "test_a_refusal_leaves_no_half_of_itself",
        met=f"{HALVES} of {CASES:,}",
    ),
    Difference(
        "A device for one use is free again at the host; that Placement reserves it nobody undoes",
        "It is spent, until it is reset",
        _TRACKER,
        "test_a_device_for_one_use_is_not_given_out_again",
    ),
)

WORDS = (
    Difference(
        "Regular expressions in ``[pci] device_spec`` match beginnings: bus ``1`` is 1f too",
        "They match whole fields",
        _STATS,
        "test_a_regular_expression_matches_a_whole_field",
    ),
)

LIFE = (
    _drift(
        "RELATIVE_FOUND",
        "A part that is found while its function is held is available (and a function while parts "
        "are); it is taken from its pool, claiming it fails, and then it is in no pool",
        "It waits until that is released",
    ),
    _drift(
        "PARTS_GONE",
        "A part that is gone while its function is held is forgotten",
        "It stays with the function, and is removed after the release",
    ),
    _drift(
        "POOL_STAYS",
        "A free device that is another now (its node, its product) stays in the pool of what it "
        "was. When it goes, ``PciDevicePoolEmpty`` ends the look at all devices",
        "Pools are of the devices as they are",
    ),
    _drift(
        "NOTHING_CLAIMED",
        "On a host without devices any claim of devices succeeds, with none",
        "Refused",
    ),
    _drift(
        "RELATIVES_LOST",
        "A device that is gone is freed: what it excluded is available, but in no pool",
        "What is free can be had",
    ),
    _drift(
        "WHOLE_STAYS_UNAVAILABLE",
        "An allocated part is freed while another is only claimed: their function stays "
        "``unavailable``",
        "A state follows from what is held: ``unclaimable``",
    ),
    _drift(
        "CAME_BACK",
        "A device that went and came back while it was held is removed when it is freed",
        "It is there, so it stays",
    ),
    _drift(
        "GONE_PART_COUNTS",
        "A part that was gone when it was freed keeps its function from becoming available, for "
        "ever",
        "What is gone excludes nothing",
    ),
    _drift(
        "WHOLE_UNTIED",
        "A function that is not split any more keeps the state that its held parts gave it",
        "It stays split until its parts are released",
    ),
)

TOGETHER_ROWS = (
    Difference(
        "Host cells next to the most devices of any kind come first",
        "Those next to the most devices that would do",
        _TOGETHER,
        "test_devices_that_would_not_do_draw_nobody",
    ),
    Difference(
        "A condition of devices that never holds is tried on every permutation of host cells, each "
        "time on a deep copy",
        "It narrows the host cells before they are searched; the refusal says how many are near",
        _TOGETHER,
        "test_a_refusal_says_that_it_is_for_the_distance",
    ),
)

SECTIONS: Final = {
    "Which devices": DECISION,
    "Taking devices": TAKING,
    "Devices that come, go and change": LIFE,
    "Host cells and devices together": TOGETHER_ROWS,
    "Words": WORDS,
}


def text() -> str:
    """Return a table per section, as reStructuredText."""
    return tables(SECTIONS)


if __name__ == "__main__":
    TABLE.write_text(text())
    print(f"written to {TABLE}")
