"""Lists of CPUs, both ways."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import format_cpu_spec, parse_cpu_spec
from resource_objects.interop.nova.rules import NovaRule
from tests.interop.nova.refusals import breaks


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("3", (3,)),
        ("0-3", (0, 1, 2, 3)),
        ("1-4,^3,6", (1, 2, 4, 6)),
        ("^3,1-4", (1, 2, 4)),
        ("0-7,^2-5", (0, 1, 6, 7)),
        ("4,4,3-4", (3, 4)),
        (" 0 , 2 - 3 , ^ 3 ", (0, 2)),
    ],
)
def test_ranges_single_cpus_and_exclusions_in_any_order(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpu_spec(text) == cpus


@pytest.mark.parametrize("text", ["1,,2", ",1,2,", " ,1-2"])
def test_empty_items_are_skipped(text: str) -> None:
    assert parse_cpu_spec(text) == (1, 2)


def test_exclusions_always_win() -> None:
    assert parse_cpu_spec("^1,1,1-2") == (2,)


@pytest.mark.parametrize("text", ["", " ", ",", "^1", "1,^1", "^0-9,2-3"])
def test_nothing_may_be_left(text: str) -> None:
    assert parse_cpu_spec(text) == ()


@pytest.mark.parametrize(
    "text",
    ["a", "1-", "-1", "3-1", "^", "^^1", "1-^2", "1 2", "+1", "1_0", "٣", "0x1", "1-2-3", "1.0"],
)
def test_anything_else_is_refused(text: str) -> None:
    with breaks(NovaRule.INVALID_CPU_LIST, match="cpu_shared_set: got"):
        parse_cpu_spec(text, "cpu_shared_set")
    with breaks(NovaRule.INVALID_CPU_LIST):
        parse_cpu_spec(f"0-3,{text}")


def test_a_list_that_would_fill_the_memory_is_refused() -> None:
    with breaks(NovaRule.INVALID_CPU_LIST):
        parse_cpu_spec("0-9999999")
    with breaks(NovaRule.INVALID_CPU_LIST):
        parse_cpu_spec("0-3,^0-9999999")


@pytest.mark.parametrize("value", [None, 3, b"0-3", ["0"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with breaks(NovaRule.INVALID_CPU_LIST):
        parse_cpu_spec(value)  # type: ignore[arg-type]


@given(st.sets(st.integers(0, 2000)))
def test_what_is_written_is_read_back(cpus: set[int]) -> None:
    assert parse_cpu_spec(format_cpu_spec(cpus)) == tuple(sorted(cpus))


@given(st.text(max_size=30) | st.text("0123456789,^- ", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        result = parse_cpu_spec(text)
    except InvalidInput as error:
        assert error.rule is NovaRule.INVALID_CPU_LIST
    else:
        assert parse_cpu_spec(format_cpu_spec(result)) == result


@pytest.mark.parametrize("text", ["0-65535," * 2000, "^0-65535," * 2000 + "0"])
def test_a_list_costs_by_the_cpus_it_names_not_by_how_often(text: str) -> None:
    """16 kB of a tenant's mask took 15 s; CPU time, for the machine may be busy."""
    begun = time.process_time()
    assert len(parse_cpu_spec(text)) in (0, 65536)
    assert time.process_time() - begun < 3


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 90), st.integers(0, 20)), max_size=8))
def test_a_list_is_what_it_chooses_without_what_it_excludes(
    items: list[tuple[bool, int, int]],
) -> None:
    text = ",".join(f"{'^' * no}{low}-{low + more}" for no, low, more in items)
    sets: list[set[int]] = [set(), set()]
    for is_excluded, low, more in items:
        sets[is_excluded].update(range(low, low + more + 1))
    assert parse_cpu_spec(text) == tuple(sorted(sets[0] - sets[1]))
