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
        "A value that is no number, asked by a number (``>= 5`` of ``big``): ``ValueError``, which "
        "fails the whole request",
        "Not met; the refusal names the value",
        "value",
    ),
    _word(
        "A condition by a word that is no number (``>= five``): the same, once a host tells it",
        "Refused as soon as it is read, whoever tells it",
        "number",
    ),
    _word(
        "Nothing after an operator (``>=``): not met by anybody; after ``<or>``: ``IndexError``",
        "Refused",
        "nothing",
    ),
    _word(
        "An operator that there is not (``< 5``): a text, met by the value ``< 5``",
        "Refused, with the operators that there are",
        "operator",
    ),
    _word(
        "Words between alternatives (``<or> a b c``): every second one is left out",
        "Each is one of them",
        "alternatives",
    ),
    _word(
        "Numbers are floats: 9007199254740993 ``==`` 9007199254740992",
        "Exact",
        "float",
    ),
    _word("``nan`` and ``inf`` are numbers", "They are none", "infinite"),
)

FILTERS: Final = (
    _row(
        "ComputeCapabilitiesFilter: an unscoped key is any attribute of its own object: ``host``, "
        "``limits``, ``uuid``",
        "A statistic, or one of the figures that are named",
        "test_no_attribute_is_a_capability",
    ),
    _row(
        "ComputeCapabilitiesFilter: ``vcpus_total`` and ``free_ram_mb`` are what the machine has, "
        "with what is reserved, and before any ratio",
        "What may be given: without what is reserved, times the ratio",
        "test_figures_are_what_may_be_given",
    ),
    _row(
        "ComputeCapabilitiesFilter: ``hw:maxphysaddr_bits`` asks for ``cpu_info``",
        "Not read; a trait, or ``capabilities:cpu_info:maxphysaddr:bits``, says it",
        "test_an_address_width_is_asked_by_its_own_name",
    ),
    _row(
        "AggregateInstanceExtraSpecsFilter: a comma in metadata separates values",
        "A text with a comma is one value; several are said by several aggregates",
        "test_a_comma_in_metadata_is_a_comma",
    ),
    _row(
        "AggregateImagePropertiesIsolation: hosts of an aggregate for ``os_distro=windows`` take "
        "images that say no ``os_distro``",
        "``isolated``: who is kept for a trait takes only who asks for it",
        "test_hosts_kept_for_an_image_take_no_other",
    ),
    _row(
        "AggregateImagePropertiesIsolation: a host of two aggregates takes the images of either",
        "``isolated``: it takes who asks for the traits of both",
        "test_hosts_kept_for_two_images_take_neither_alone",
    ),
    _row(
        "A zone that no aggregate has (``map_az_to_placement_aggregate``): every host will do",
        "``zones``: no host is in it",
        "test_a_zone_that_there_is_not_has_no_host",
    ),
    _row(
        "SameHostFilter: of servers that are nowhere no host is the same",
        "A group with ``affinity`` of which nobody is placed begins anywhere",
        "test_the_first_of_a_group_goes_anywhere",
    ),
    _row(
        "ServerGroupAffinityFilter: where the members are is told by the request, as it was when "
        "that was made",
        "Read of the picture that is searched",
        "test_where_a_group_is_is_read_when_it_is_searched",
    ),
    _row(
        "ServerGroupAntiAffinityFilter: the host where the server is passes, though others of its "
        "group are there",
        "Counted with them; a move says what the server leaves",
        "test_a_server_is_a_member_of_its_group_where_it_is",
    ),
    _row(
        "IoOpsFilter, NumInstancesFilter: an option for all hosts, ``<`` it; a host that tells "
        "nothing has 0",
        "``statistics``: ``<=`` one less; whether who tells nothing passes is a setting",
        "test_a_host_that_tells_nothing_passes_if_that_is_said",
    ),
    _row(
        "NUMATopologyFilter: what Nova's search finds, with its faults (:doc:`numa`)",
        "Whatever fits is found",
        "test_cells",
        met=f"{CELLS} of {FLEETS} hosts, of those on which both say the same of each pair of cells",
    ),
    _row(
        "PciPassthroughFilter: what Nova's pools count, with their faults (:doc:`devices`)",
        "Whatever fits is found",
        "test_devices",
        met=f"{DEVICES} of {FLEETS} hosts",
    ),
    _row(
        "PciPassthroughFilter: asked without the guest's cells, so devices far from these pass it "
        "(NUMATopologyFilter asks again, where it is on)",
        "Cells and devices are decided together",
        "test_devices_are_near_the_cells_or_refused",
    ),
    _row(
        "NUMATopologyFilter and PciPassthroughFilter are asked where somebody turned them on",
        "What there is room for is no filter, and cannot be left out",
        "test_room_is_no_filter",
    ),
    _row(
        "SimpleCIDRAffinityFilter, AggregateIoOpsFilter, AggregateNumInstancesFilter, JsonFilter",
        "There are none",
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
