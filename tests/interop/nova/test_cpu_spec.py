"""Lists of CPUs, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import errors, format_cpu_spec, parse_cpu_spec


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
    with pytest.raises(errors.InvalidCPUList, match="cpu_shared_set: got"):
        parse_cpu_spec(text, "cpu_shared_set")
    with pytest.raises(errors.InvalidCPUList):
        parse_cpu_spec(f"0-3,{text}")


def test_a_list_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(errors.InvalidCPUList):
        parse_cpu_spec("0-9999999")
    with pytest.raises(errors.InvalidCPUList):
        parse_cpu_spec("0-3,^0-9999999")


@pytest.mark.parametrize("given", [None, 3, b"0-3", ["0"]])
def test_what_is_no_text_is_refused(given: object) -> None:
    with pytest.raises(errors.InvalidCPUList):
        parse_cpu_spec(given)  # type: ignore[arg-type]


@given(st.sets(st.integers(0, 2000)))
def test_what_is_written_is_read_back(cpus: set[int]) -> None:
    assert parse_cpu_spec(format_cpu_spec(cpus)) == tuple(sorted(cpus))


@given(st.text(max_size=30) | st.text("0123456789,^- ", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_cpu_spec(text)
    except InvalidInput as error:
        assert type(error) is errors.InvalidCPUList
    else:
        assert parse_cpu_spec(format_cpu_spec(found)) == found
