"""The table of differences between Nova's scheduler filters and ours, for the documentation.

``python -m tests.peers.nova.filter_differences`` rewrites
``doc/source/explanation/filter_differences.txt``. A test holds the file to this, and this to the
tests that reproduce each difference beside the real Nova.
"""

from __future__ import annotations

from typing import Final

from tests.peers.nova.numa_differences import HERE, Difference, tables

TABLE: Final = HERE.parents[2] / "doc" / "source" / "explanation" / "filter_differences.txt"

__all__ = ["HERE", "SECTIONS", "TABLE", "text"]

#: How many fleets each filter is asked about.
FLEETS: Final = 300
#: Of as many hosts with cells, and with devices, how many the filters judge otherwise.
CELLS: Final = 3
DEVICES: Final = 34

_FILE = "test_filters.py"


def _row(nova: str, ours: str, test: str, case: str = "", met: str = "") -> Difference:
    return Difference(nova, ours, _FILE, test, case, met)


def _word(nova: str, ours: str, case: str) -> Difference:
    return _row(nova, ours, "test_a_word_that_is_read_otherwise", case)


WORDS: Final = (
    _word(
        "A number in a condition (``>= 5``) and a value that is not a number (``big``): "
        "``ValueError``, and the whole request fails",
        "Not satisfied; the refusal names the value",
        "value",
    ),
    _word(
        "A condition with a word in place of a number (``>= five``): the same, once a host "
        "reports a value",
        "Refused when the condition is parsed",
        "number",
    ),
    _word(
        "An operator without a value (``>=``): satisfied by no host; after ``<or>``: "
        "``IndexError``",
        "Refused",
        "nothing",
    ),
    _word(
        "An unknown operator (``< 5``): a text, satisfied by the value ``< 5``",
        "Refused, with the list of operators",
        "operator",
    ),
    _word(
        "Words without an operator between alternatives (``<or> a b c``): every second word is "
        "ignored",
        "Each word is an alternative",
        "alternatives",
    ),
    _word(
        "Numbers are floats: 9007199254740993 ``==`` 9007199254740992",
        "Exact",
        "float",
    ),
    _word("``nan`` and ``inf`` are numbers", "They are not numbers", "infinite"),
)

FILTERS: Final = (
    _row(
        "ComputeCapabilitiesFilter: an unscoped key is any attribute of the host state: "
        "``host``, ``limits``, ``uuid``",
        "A statistic, or one of the listed figures",
        "test_no_attribute_is_a_capability",
    ),
    _row(
        "ComputeCapabilitiesFilter: ``vcpus_total`` and ``free_ram_mb`` are figures of the "
        "machine: they include reserved amounts and exclude the ratio",
        "Capacity: without reserved amounts, times the ratio",
        "test_figures_are_what_may_be_given",
    ),
    _row(
        "ComputeCapabilitiesFilter: ``hw:maxphysaddr_bits`` is compared with ``cpu_info``",
        "Not read; use a trait, or ``capabilities:cpu_info:maxphysaddr:bits``",
        "test_an_address_width_is_asked_by_its_own_name",
    ),
    _row(
        "AggregateInstanceExtraSpecsFilter: a comma in metadata separates values",
        "A text with a comma is one value; several aggregates have several values",
        "test_a_comma_in_metadata_is_a_comma",
    ),
    _row(
        "AggregateImagePropertiesIsolation: hosts of an aggregate for ``os_distro=windows`` "
        "accept images without ``os_distro``",
        "``isolated``: hosts reserved for a trait accept only requests that require the trait",
        "test_hosts_kept_for_an_image_take_no_other",
    ),
    _row(
        "AggregateImagePropertiesIsolation: a host of two aggregates accepts the images of either",
        "``isolated``: it accepts requests that require the traits of both",
        "test_hosts_kept_for_two_images_take_neither_alone",
    ),
    _row(
        "A zone without an aggregate (``map_az_to_placement_aggregate``): every host is accepted",
        "``zones``: no host is in it",
        "test_a_zone_that_there_is_not_has_no_host",
    ),
    _row(
        "SameHostFilter: if none of the servers has a host, no host is accepted",
        "A group with ``affinity`` without placed members accepts any host",
        "test_the_first_of_a_group_goes_anywhere",
    ),
    _row(
        "ServerGroupAffinityFilter: the request contains the hosts of the members, as they were "
        "when it was created",
        "Read from the snapshot that is searched",
        "test_where_a_group_is_is_read_when_it_is_searched",
    ),
    _row(
        "ServerGroupAntiAffinityFilter: the current host of a server is accepted although other "
        "members are on it",
        "The server counts as a member there; a move names the allocations that it leaves",
        "test_a_server_is_a_member_of_its_group_where_it_is",
    ),
    _row(
        "IoOpsFilter, NumInstancesFilter: an option for all hosts, compared by ``<``; a host "
        "without a report counts as 0",
        "``statistics``: ``<=`` one less; a setting decides about hosts without a report",
        "test_a_host_that_tells_nothing_passes_if_that_is_said",
    ),
    _row(
        "NUMATopologyFilter: the result of Nova's search, with its bugs (:doc:`numa`)",
        "Each possible placement is found",
        "test_cells",
        met=f"{CELLS} of {FLEETS} hosts, of those on which both say the same of each pair of cells",
    ),
    _row(
        "PciPassthroughFilter: the counts of Nova's pools, with their bugs (:doc:`devices`)",
        "Each possible placement is found",
        "test_devices",
        met=f"{DEVICES} of {FLEETS} hosts",
    ),
    _row(
        "PciPassthroughFilter: is called without guest cells, so it accepts hosts with distant "
        "devices (NUMATopologyFilter checks again, if it is enabled)",
        "Cells and devices are decided together",
        "test_devices_are_near_the_cells_or_refused",
    ),
    _row(
        "NUMATopologyFilter and PciPassthroughFilter are optional",
        "Capacity is not a filter, and is always checked",
        "test_room_is_no_filter",
    ),
    _row(
        "SimpleCIDRAffinityFilter, AggregateIoOpsFilter, AggregateNumInstancesFilter, JsonFilter",
        "Not available",
        "test_filters_that_there_are_not",
    ),
)

SECTIONS: Final = {
    "Conditions in extra specs": WORDS,
    "Filters": FILTERS,
}


def text() -> str:
    """Return a table per section, as reStructuredText."""
    return tables(SECTIONS)


if __name__ == "__main__":
    TABLE.write_text(text())
    print(f"written to {TABLE}")
