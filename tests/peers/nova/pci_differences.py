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
        "Requests are decided one after another: the first gets the only device that the second "
        "could use, and the second is refused",
        "Requests are decided together, in any order",
    ),
    _deviation(
        "EXCLUSION_UNKNOWN",
        "The scheduler counts a physical function and its virtual functions separately, and "
        "accepts both; the host refuses",
        "A function and its virtual functions exclude each other in each decision",
    ),
    _deviation(
        "EXCLUDED_COUNT",
        "A request that both a function and its virtual functions match counts all of them, and "
        "their allocation raises ``IndexError``; devices allocated before the error are in no "
        "pool",
        "Devices that exclude each other are not allocated to one request either",
    ),
    _deviation(
        "NEAR_ALONE",
        "If near devices are sufficient for a request it may use no others, even if another "
        "request can only use near ones",
        "Near devices are preferred; others are used if all requests can be satisfied that way",
    ),
    _deviation(
        "NEAR_TOO_EARLY",
        "Near devices are counted before devices that do not match are removed (physical "
        "functions, other providers): enough seem to be near, and the request is refused",
        "Only matching devices are counted",
    ),
    Difference(
        "If near devices are not sufficient, near and distant devices are used in the order of "
        "the pools",
        "Near devices first, device by device",
        _STATS,
        "test_far_devices_are_taken_where_near_ones_do_not_suffice",
    ),
    _deviation(
        "TYPES_FOR_ALL",
        "An alternative that requests physical functions, vDPA or remote-managed devices allows "
        "these for the other alternatives too",
        "Each alternative allows the types that it requests. Requests in Nova's format follow Nova",
    ),
    _deviation(
        "CLASS_UNSEEN",
        "Resource class and traits are left to Placement, and ignored without it",
        "They are conditions",
    ),
    _deviation(
        "CLASS_OPENS_NOTHING",
        "A request by the resource class of a physical function matches no device unless it "
        "names the type",
        "A request by resource class needs no type",
    ),
    _deviation(
        "LISTS_ARE_TEXT",
        "A tag that is a list must equal a text: Nova compares lists, but its requests contain "
        "only texts",
        "A list must contain the requested text",
    ),
    _deviation(
        "PROVIDER_SHORT",
        "If one of two selected providers has too few devices, it is left out if the other has "
        "enough for both; one device too few is allocated, without an error",
        "Each provider provides its part, or the request is refused",
    ),
    _deviation(
        "ONE_POOL",
        "A provider whose devices are in two pools (different tags, or a function and its "
        "virtual functions) is refused, by the scheduler also if no request names it",
        "Providers may have devices in several pools",
    ),
)

TAKING = (
    Difference(
        "A refusal returns allocated devices to their pools, but not the devices that they "
        "excluded: virtual functions of a function are in no pool, although they are available",
        "A refusal changes nothing",
        _STATS,
        "test_parts_do_not_leak_when_their_function_is_put_back",
        met=f"devices leak in {HOST['LEAKED']} of {CASES:,}",
    ),
    Difference(
        "``apply_requests`` raises, and earlier changes remain",
        "All or nothing",
        _STATS,
        "test_a_refusal_leaves_no_half_of_itself",
        met=f"{HALVES} of {CASES:,}",
    ),
    Difference(
        "A device for one use is free again at the host; Placement keeps it reserved for ever",
        "It is spent, until it is reset",
        _TRACKER,
        "test_a_device_for_one_use_is_not_given_out_again",
    ),
)

WORDS = (
    Difference(
        "Regular expressions in ``[pci] device_spec`` match prefixes: bus ``1`` matches 1f too",
        "They match whole fields",
        _STATS,
        "test_a_regular_expression_matches_a_whole_field",
    ),
)

LIFE = (
    _drift(
        "RELATIVE_FOUND",
        "A virtual function that is discovered while its function is allocated is available "
        "(and a function while virtual functions are); it is removed from its pool, its claim "
        "fails, and afterwards it is in no pool",
        "It is unavailable until the other is released",
    ),
    _drift(
        "PARTS_GONE",
        "A virtual function that disappears while its function is allocated is forgotten",
        "It stays with the function, and is removed after the release",
    ),
    _drift(
        "POOL_STAYS",
        "A free device with changed properties (node, product) stays in its former pool. When "
        "it is removed, ``PciDevicePoolEmpty`` ends the update of all devices",
        "Pools follow from the current properties",
    ),
    _drift(
        "NOTHING_CLAIMED",
        "On a host without devices each claim of devices succeeds, without devices",
        "Refused",
    ),
    _drift(
        "RELATIVES_LOST",
        "A removed device is released: devices that it excluded are available, but in no pool",
        "Each free device can be allocated",
    ),
    _drift(
        "WHOLE_STAYS_UNAVAILABLE",
        "An allocated virtual function is released while another is only claimed: their "
        "function stays ``unavailable``",
        "The state follows from the allocations: ``unclaimable``",
    ),
    _drift(
        "CAME_BACK",
        "A device that disappeared and returned while it was allocated is removed when it is "
        "released",
        "It exists, so it stays",
    ),
    _drift(
        "GONE_PART_COUNTS",
        "A virtual function that did not exist at its release keeps its function unavailable "
        "for ever",
        "A removed device excludes nothing",
    ),
    _drift(
        "WHOLE_UNTIED",
        "A function that is no longer split keeps the state that its allocated virtual "
        "functions caused",
        "It stays split until its virtual functions are released",
    ),
)

TOGETHER_ROWS = (
    Difference(
        "Host cells next to the most devices of any kind are tried first",
        "Those next to the most matching devices",
        _TOGETHER,
        "test_devices_that_would_not_do_draw_nobody",
    ),
    Difference(
        "A device constraint that can never be satisfied is tried on every permutation of host "
        "cells, each time on a deep copy",
        "It restricts the host cells before the search; the refusal has the number of near devices",
        _TOGETHER,
        "test_a_refusal_says_that_it_is_for_the_distance",
    ),
)

SECTIONS: Final = {
    "Selection of devices": DECISION,
    "Allocation of devices": TAKING,
    "Devices that appear, disappear and change": LIFE,
    "Host cells and devices together": TOGETHER_ROWS,
    "Device specifications": WORDS,
}


def text() -> str:
    """Return a table per section, as reStructuredText."""
    return tables(SECTIONS)


if __name__ == "__main__":
    TABLE.write_text(text())
    print(f"written to {TABLE}")
