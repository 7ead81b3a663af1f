"""Resource classes, traits and aggregates by themselves: made, renamed, removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import os_resource_classes
import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import new_operation
from resource_objects.providers import Aggregate
from resource_objects.resources.traits import standard_traits
from resource_objects.testing.refusals import raises_code
from tests.ledger.conftest import paged


def custom(found: Any) -> list[str]:
    return [one.name for one in found if one.is_custom]


def test_the_standard_names_are_there_from_the_start(ledger: ro.Ledger) -> None:
    classes = [one.name for one in ledger.names.classes.list()]
    assert set(os_resource_classes.STANDARDS) <= set(classes)
    assert classes == sorted(classes)
    assert standard_traits() <= {one.name for one in ledger.names.traits.list()}
    assert custom(ledger.names.classes.list()) == custom(ledger.names.traits.list()) == []
    assert list(ledger.names.aggregates.list()) == []


def test_pages_give_everything_once_in_order(ledger: ro.Ledger) -> None:
    for page in (1, 7, 10_000):
        assert list(paged(ledger, page).names.classes.list()) == list(ledger.names.classes.list())
    for name in ("b", "a", "ä", "B"):
        ledger.names.aggregates.ensure(name)
    assert [one.name for one in paged(ledger, 2).names.aggregates.list()] == ["B", "a", "b", "ä"]
    for wrong in (0, -1, "5", True):
        with raises_code("InvalidField", match="limit"):
            ledger.names.traits.list(limit=wrong)  # type: ignore[arg-type]


def test_a_definition_makes_the_names_it_mentions(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "CUSTOM_FPGA=2", traits=["CUSTOM_SSD"], aggregates=["rack 7"]))
    assert list(ledger.names.aggregates.list()) == [Aggregate(name="rack 7")]
    assert custom(ledger.names.classes.list()) == ["CUSTOM_FPGA"]
    assert custom(ledger.names.traits.list()) == ["CUSTOM_SSD"]


def test_a_name_is_ensured_as_often_as_one_likes(ledger: ro.Ledger) -> None:
    for _ in range(2):
        ledger.names.classes.ensure("CUSTOM_A")
        ledger.names.classes.ensure("VCPU")
        ledger.names.traits.ensure("CUSTOM_B")
        ledger.names.traits.ensure("HW_CPU_X86_AVX2")
        ledger.names.aggregates.ensure("r1", "rack")
    assert custom(ledger.names.classes.list()) == ["CUSTOM_A"]
    assert custom(ledger.names.traits.list()) == ["CUSTOM_B"]
    assert list(ledger.names.aggregates.list()) == [Aggregate(name="r1", level="rack")]


def test_a_level_stays_until_another_is_given(ledger: ro.Ledger) -> None:
    ledger.names.aggregates.ensure("r1")
    assert list(ledger.names.aggregates.list()) == [Aggregate(name="r1", level=None)]
    ledger.names.aggregates.ensure("r1", level="rack")
    ledger.names.aggregates.ensure("r1")
    assert list(ledger.names.aggregates.list()) == [Aggregate(name="r1", level="rack")]
    ledger.names.aggregates.ensure("r1", level="room")
    ledger.names.aggregates.rename("r1", "r2")
    assert list(ledger.names.aggregates.list()) == [Aggregate(name="r2", level="room")]


def test_a_name_that_changes_changes_everywhere(ledger: ro.Ledger) -> None:
    ledger.sync(
        ro.Provider(
            "host0", "CUSTOM_A=4", traits=["CUSTOM_A", "HW_CPU_X86_AVX2"], aggregates=["a", "b"]
        ),
        ro.Provider("host1", "CUSTOM_A=1", traits=["CUSTOM_A"], aggregates=["a"]),
    )
    ledger.claim("job", {"host0": "CUSTOM_A=3"})
    ledger.names.classes.rename("CUSTOM_A", "CUSTOM_B")
    ledger.names.traits.rename("CUSTOM_A", "CUSTOM_T")
    ledger.names.aggregates.rename("a", "A")
    first, second = ledger.trees()
    assert (str(first.inventories), str(second.inventories)) == ("CUSTOM_B=4:used=3", "CUSTOM_B=1")
    assert (first.traits, second.traits) == ({"CUSTOM_T", "HW_CPU_X86_AVX2"}, {"CUSTOM_T"})
    assert (first.aggregates, second.aggregates) == ({"A", "b"}, {"A"})
    assert str(ledger.get_claim("job")) == "job holds CUSTOM_B=3 of host0"
    assert custom(ledger.names.classes.list()) == ["CUSTOM_B"]
    ledger.names.classes.ensure("CUSTOM_A")
    ledger.release("job")


def test_what_nobody_uses_can_be_forgotten(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "CUSTOM_A=4", traits=["CUSTOM_A"], aggregates=["a"]))
    ledger.sync(ro.Provider("host0", "VCPU=1", aggregates=[]))
    ledger.names.classes.remove("CUSTOM_A")
    ledger.names.traits.remove("CUSTOM_A")
    ledger.names.aggregates.remove("a")
    assert (
        custom(ledger.names.classes.list())
        == custom(ledger.names.traits.list())
        == list(ledger.names.aggregates.list())
        == []
    )


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda ledger: ledger.names.classes.remove("CUSTOM_A"), "ClassInUse"),
        (lambda ledger: ledger.names.traits.remove("CUSTOM_A"), "TraitInUse"),
        (lambda ledger: ledger.names.aggregates.remove("a"), "AggregateInUse"),
        (lambda ledger: ledger.names.classes.remove("CUSTOM_X"), "ClassNotFound"),
        (lambda ledger: ledger.names.traits.remove("CUSTOM_X"), "TraitNotFound"),
        (lambda ledger: ledger.names.aggregates.remove("x"), "AggregateNotFound"),
        (
            lambda ledger: ledger.names.classes.rename("CUSTOM_X", "CUSTOM_Y"),
            "ClassNotFound",
        ),
        (
            lambda ledger: ledger.names.traits.rename("CUSTOM_X", "CUSTOM_Y"),
            "TraitNotFound",
        ),
        (lambda ledger: ledger.names.aggregates.rename("x", "y"), "AggregateNotFound"),
        (lambda ledger: ledger.names.classes.rename("CUSTOM_A", "CUSTOM_B"), "NameExists"),
        (lambda ledger: ledger.names.classes.rename("CUSTOM_A", "VCPU"), "NameExists"),
        (lambda ledger: ledger.names.traits.rename("CUSTOM_A", "CUSTOM_B"), "NameExists"),
        (lambda ledger: ledger.names.aggregates.rename("a", "b"), "NameExists"),
        (lambda ledger: ledger.names.classes.rename("VCPU", "CUSTOM_Y"), "StandardName"),
        (lambda ledger: ledger.names.classes.remove("VCPU"), "StandardName"),
        (
            lambda ledger: ledger.names.traits.rename("HW_CPU_X86_AVX", "CUSTOM_Y"),
            "StandardName",
        ),
        (lambda ledger: ledger.names.traits.remove("HW_CPU_X86_AVX"), "StandardName"),
        (lambda ledger: ledger.names.classes.ensure("CPUS"), "UnknownResourceClass"),
        (
            lambda ledger: ledger.names.classes.rename("CUSTOM_A", "CPU"),
            "UnknownResourceClass",
        ),
        (lambda ledger: ledger.names.traits.ensure("AVX9"), "UnknownTrait"),
        (lambda ledger: ledger.names.traits.rename("CUSTOM_A", "AVX9"), "UnknownTrait"),
        (lambda ledger: ledger.names.classes.ensure("custom_a"), exceptions.InvalidInput),
        (lambda ledger: ledger.names.traits.ensure(""), "InvalidTrait"),
        (lambda ledger: ledger.names.aggregates.ensure(""), exceptions.InvalidInput),
        (lambda ledger: ledger.names.aggregates.ensure("a", ""), exceptions.InvalidInput),
        (lambda ledger: ledger.names.aggregates.rename("a", None), "InvalidName"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(
    ledger: ro.Ledger, change: Callable[[ro.Ledger], Any], error: type[Exception]
) -> None:
    ledger.names.classes.ensure("CUSTOM_B")
    ledger.names.traits.ensure("CUSTOM_B")
    ledger.names.aggregates.ensure("b")
    ledger.sync(ro.Provider("host0", "CUSTOM_A=4", traits=["CUSTOM_A"], aggregates=["a"]))

    def everything() -> list[Any]:
        names = [
            *ledger.names.classes.list(),
            *ledger.names.traits.list(),
            *ledger.names.aggregates.list(),
        ]
        return [names, list(ledger.trees())]

    before = everything()
    with raises_code(error):
        change(ledger)
    assert everything() == before


def test_a_repeated_change_happens_once(ledger: ro.Ledger) -> None:
    operation = new_operation()
    ledger.names.aggregates.ensure("a")
    ledger.names.aggregates.rename("a", "b", operation=operation)
    ledger.names.aggregates.ensure("a")
    ledger.names.aggregates.rename("a", "b", operation=operation)
    assert [one.name for one in ledger.names.aggregates.list()] == ["a", "b"]
    with raises_code("OperationConflict", match="rename_aggregate of a"):
        ledger.names.aggregates.remove("a", operation=operation)
