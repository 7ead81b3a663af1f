"""Names: checked by shape at the door, kept as plain interned text."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import os_resource_classes
import os_traits
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import exceptions, names
from resource_objects.testing.refusals import raises_code
from tests.support import strategies

CHECKS: dict[str, tuple[Callable[[object], str], str]] = {
    "resource class": (names.resource_class_name, "InvalidResourceClass"),
    "trait": (names.trait_name, "InvalidTrait"),
    "provider": (names.provider_name, "InvalidName"),
    "consumer": (names.consumer_name, "InvalidName"),
    "uuid": (names.uuid_text, "InvalidName"),
}
each_check = pytest.mark.parametrize(("check", "error"), CHECKS.values(), ids=CHECKS)


@each_check
@given(st.text() | st.from_type(type).flatmap(st.from_type))
def test_whatever_is_given_is_a_name_or_refused(
    check: Callable[[object], str], error: str, anything: Any
) -> None:
    try:
        name = check(anything)
    except exceptions.InvalidInput as refusal:
        assert refusal.code == error
        assert refusal.value is anything
        assert refusal.expected
        assert str(refusal)
    else:
        assert type(name) is str
        assert check(name) == name


@given(strategies.resource_class_names(), strategies.trait_names())
def test_symbols_are_taken_and_interned(resource_class: str, trait: str) -> None:
    assert names.resource_class_name(resource_class) == resource_class
    assert names.trait_name(trait) is names.trait_name("".join(trait))


@given(strategies.provider_names(), strategies.consumer_names())
def test_printable_names_are_taken(provider: str, consumer: str) -> None:
    assert names.provider_name(provider) == provider
    assert names.consumer_name(consumer) == consumer


def test_every_standard_name_is_taken() -> None:
    for name in os_resource_classes.STANDARDS:
        assert names.resource_class_name(name) == name
    for name in os_traits.get_traits():
        assert names.trait_name(name) == name


@given(st.uuids(), st.booleans(), st.booleans())
def test_a_uuid_is_one_text_however_it_was_written(
    value: uuid.UUID, upper: bool, bare: bool
) -> None:
    text = value.hex if bare else str(value)
    assert names.uuid_text(text.upper() if upper else text) == str(value)
    assert names.uuid_text(value) == str(value)


def test_the_order_of_classes_is_standard_first_then_by_name() -> None:
    shuffled = ["CUSTOM_B", "PGPU", "CUSTOM_A", "VCPU", "DISK_GB"]
    ordered = sorted(shuffled, key=names.resource_class_order)
    assert ordered == ["VCPU", "DISK_GB", "PGPU", "CUSTOM_A", "CUSTOM_B"]


@pytest.mark.parametrize(
    ("check", "longest"), [(names.provider_name, 200), (names.consumer_name, 255)]
)
def test_the_longest_name_is_that_of_the_field(
    check: Callable[[object], str], longest: int
) -> None:
    assert check("x" * longest) == "x" * longest
    with raises_code("InvalidName", match=f"1 to {longest} printable"):
        check("x" * (longest + 1))


@given(st.sets(st.from_regex(r"\A[a0-2-]{1,24}\Z"), max_size=40))
def test_sorted_names_are_read_in_natural_order_a_few_at_a_time(found: set[str]) -> None:
    given_names = sorted(found)
    ordered = [given_names[at] for at in names.in_natural_order(given_names)]
    assert ordered == sorted(found, key=names.natural_order)


def test_the_first_of_many_names_need_few_sort_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[str] = []
    natural_order = names.natural_order
    monkeypatch.setattr(
        names, "natural_order", lambda name: (keys.append(name), natural_order(name))[1]
    )
    many = sorted(f"rack{number % 9}-host{number}" for number in range(5000))
    first = [many[at] for at, _ in zip(names.in_natural_order(many), range(20), strict=False)]
    assert first[:3] == ["rack0-host0", "rack0-host9", "rack0-host18"]
    assert len(keys) < 1000
