"""Page sizes, locked memory and persistent memory."""

from __future__ import annotations

import pytest

from resource_objects.interop.nova.rules import NovaRule
from tests.interop.nova.said import amount, asked, refused


def size(flavor: str, image: str = "") -> str:
    return amount({"hw:mem_page_size": flavor}, {"hw_mem_page_size": image}).page_size


# --- hw:mem_page_size, hw_mem_page_size ---


@pytest.mark.parametrize("word", ["small", "large", "any"])
def test_a_page_size_is_a_kind(word: str) -> None:
    assert size(word) == word


@pytest.mark.parametrize(
    ("said", "kib"),
    [
        ("4", "4"),
        ("2048", "2048"),
        ("2MB", "2048"),
        ("2MiB", "2048"),
        ("1GB", "1048576"),
        ("2048KB", "2048"),
        ("2048kB", "2048"),
        ("2M", "2048"),
        ("1G", "1048576"),
    ],
)
def test_or_a_number_of_kib_or_with_a_unit(said: str, kib: str) -> None:
    assert size(said) == kib
    assert size("any", said) == kib


@pytest.mark.parametrize("flavor", ["large", "any"])
@pytest.mark.parametrize("image", ["small", "large", "any", "2048"])
def test_an_image_chooses_under_large_and_any(flavor: str, image: str) -> None:
    assert size(flavor, image) == image


@pytest.mark.parametrize("flavor", ["", "small", "2048", "2MB"])
@pytest.mark.parametrize("image", ["small", "2048", "nonsense"])
def test_an_image_does_not_choose_under_anything_else(flavor: str, image: str) -> None:
    refused(NovaRule.PAGE_SIZE_CONFLICT, {"hw:mem_page_size": flavor}, {"hw_mem_page_size": image})


@pytest.mark.parametrize(
    "value",
    [
        "huge",
        "Large",
        "2 MB",
        "2mb",
        "0",
        "-1",
        "3000",
        "3MB",
        "16Mb",
        "2048B",
        "2Mi",
        "0.5MB",
        "9PB",
        "٣",
        "2" * 40,
        "MB",
    ],
)
def test_what_no_page_size_is_refused(value: str) -> None:
    assert "hw:mem_page_size" in refused(NovaRule.INVALID_PAGE_SIZE, {"hw:mem_page_size": value})
    assert "hw_mem_page_size" in refused(
        NovaRule.INVALID_PAGE_SIZE, {"hw:mem_page_size": "any"}, {"hw_mem_page_size": value}
    )


# --- hw:locked_memory, hw_locked_memory ---


@pytest.mark.parametrize(
    ("flavor", "image", "locked"),
    [
        ("", "", False),
        ("true", "", True),
        ("", "true", True),
        ("true", "yes", True),
        ("no", "", False),
        ("", "no", False),
        ("no", "false", False),
    ],
)
def test_memory_is_locked_if_either_says_so(flavor: str, image: str, locked: bool) -> None:
    words = {"hw:mem_page_size": "small", "hw:locked_memory": flavor}
    assert asked(words, {"hw_locked_memory": image}).locked_memory is locked


@pytest.mark.parametrize(("flavor", "image"), [("true", "false"), ("no", "yes")])
def test_flavor_and_image_agree_on_locked_memory(flavor: str, image: str) -> None:
    words = {"hw:mem_page_size": "small", "hw:locked_memory": flavor}
    refused(NovaRule.LOCKED_MEMORY_CONFLICT, words, {"hw_locked_memory": image})


def test_locked_memory_needs_a_page_size() -> None:
    refused(NovaRule.LOCKED_MEMORY_WITHOUT_PAGE_SIZE, {"hw:locked_memory": "true"})
    refused(
        NovaRule.LOCKED_MEMORY_WITHOUT_PAGE_SIZE,
        {"hw:numa_nodes": "1"},
        {"hw_locked_memory": "yes"},
    )
    assert not asked({"hw:locked_memory": "no"}).locked_memory


def test_locked_memory_is_yes_or_no() -> None:
    refused(NovaRule.INVALID_FLAG, {"hw:mem_page_size": "small", "hw:locked_memory": "perhaps"})
    refused(NovaRule.INVALID_FLAG, {"hw:mem_page_size": "small"}, {"hw_locked_memory": "perhaps"})


# --- hw:pmem ---


def test_persistent_memory_makes_a_topology_of_one_cell() -> None:
    found = asked({"hw:pmem": "6GB"})
    assert found.amount is not None
    assert len(found.amount.cells) == 1
    assert found.pmem == {"CUSTOM_PMEM_NAMESPACE_6GB": 1}


def test_each_label_is_one_of_a_class_of_its_own() -> None:
    found = asked({"hw:pmem": " 6GB,16GB_FAST,, 6GB "})
    assert found.pmem == {"CUSTOM_PMEM_NAMESPACE_6GB": 2, "CUSTOM_PMEM_NAMESPACE_16GB_FAST": 1}


def test_the_case_of_a_label_does_not_count() -> None:
    assert asked({"hw:pmem": "6gb,6GB"}).pmem == {"CUSTOM_PMEM_NAMESPACE_6GB": 2}


@pytest.mark.parametrize(
    "label", ["é", "ж", "ß", "\u017f", "٣", "16GB-FAST", "a b", "a__b", "_a", "-"]
)
def test_a_label_that_shares_its_class_with_others_is_refused(label: str) -> None:
    message = refused(NovaRule.INVALID_PMEM_LABEL, {"hw:pmem": f"6GB,{label}"})
    assert message.startswith(f"hw:pmem: got {label!r}, expected")


def test_no_label_asks_for_nothing() -> None:
    assert asked({"hw:pmem": " , "}).amount is None
    assert asked({}, {"hw_pmem": "6GB"}).amount is None


def test_a_label_makes_a_resource_class() -> None:
    refused(NovaRule.INVALID_PMEM_LABEL, {"hw:pmem": "x" * 300})
