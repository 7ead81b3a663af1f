"""Resource classes, traits and aggregates by themselves: made, renamed, removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import os_resource_classes
import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import new_operation
from resource_objects.resources.traits import standard_traits


def custom(found: Any) -> list[str]:
    return [one.name for one in found if one.is_custom]


def test_the_standard_names_are_there_from_the_start(ledger: ro.Ledger) -> None:
    classes = [one.name for one in ledger.classes()]
    assert set(os_resource_classes.STANDARDS) <= set(classes)
    assert classes == sorted(classes)
    assert standard_traits() <= {one.name for one in ledger.traits()}
    assert custom(ledger.classes()) == custom(ledger.traits()) == []
    assert list(ledger.aggregates()) == []


def test_pages_give_everything_once_in_order(ledger: ro.Ledger) -> None:
    for page in (1, 7, 10_000):
        assert list(ledger.classes(page=page)) == list(ledger.classes())
    for name in ("b", "a", "ä", "B"):
        ledger.ensure_aggregate(name)
    assert [one.name for one in ledger.aggregates(page=2)] == ["B", "a", "b", "ä"]
    for wrong in (0, -1, 10_001, "5", True):
        with pytest.raises(exceptions.InvalidField, match="limit"):
            ledger.traits(page=wrong)  # type: ignore[arg-type]


def test_a_definition_makes_the_names_it_mentions(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "CUSTOM_FPGA=2", traits=["CUSTOM_SSD"], aggregates=["rack 7"]))
    assert list(ledger.aggregates()) == [ro.Aggregate(name="rack 7")]
    assert custom(ledger.classes()) == ["CUSTOM_FPGA"]
    assert custom(ledger.traits()) == ["CUSTOM_SSD"]


def test_a_name_is_ensured_as_often_as_one_likes(ledger: ro.Ledger) -> None:
    for _ in range(2):
        ledger.ensure_class("CUSTOM_A")
        ledger.ensure_class("VCPU")
        ledger.ensure_trait("CUSTOM_B")
        ledger.ensure_trait("HW_CPU_X86_AVX2")
        ledger.ensure_aggregate("r1", "rack")
    assert custom(ledger.classes()) == ["CUSTOM_A"]
    assert custom(ledger.traits()) == ["CUSTOM_B"]
    assert list(ledger.aggregates()) == [ro.Aggregate(name="r1", level="rack")]


def test_a_level_stays_until_another_is_given(ledger: ro.Ledger) -> None:
    ledger.ensure_aggregate("r1")
    assert list(ledger.aggregates()) == [ro.Aggregate(name="r1", level=None)]
    ledger.ensure_aggregate("r1", level="rack")
    ledger.ensure_aggregate("r1")
    assert list(ledger.aggregates()) == [ro.Aggregate(name="r1", level="rack")]
    ledger.ensure_aggregate("r1", level="room")
    ledger.rename_aggregate("r1", "r2")
    assert list(ledger.aggregates()) == [ro.Aggregate(name="r2", level="room")]


def test_a_name_that_changes_changes_everywhere(ledger: ro.Ledger) -> None:
    ledger.sync(
        ro.Provider(
            "host0", "CUSTOM_A=4", traits=["CUSTOM_A", "HW_CPU_X86_AVX2"], aggregates=["a", "b"]
        ),
        ro.Provider("host1", "CUSTOM_A=1", traits=["CUSTOM_A"], aggregates=["a"]),
    )
    ledger.claim("job", {"host0": "CUSTOM_A=3"})
    ledger.rename_class("CUSTOM_A", "CUSTOM_B")
    ledger.rename_trait("CUSTOM_A", "CUSTOM_T")
    ledger.rename_aggregate("a", "A")
    first, second = ledger.trees()
    assert (str(first.inventories), str(second.inventories)) == ("CUSTOM_B=4:used=3", "CUSTOM_B=1")
    assert (first.traits, second.traits) == ({"CUSTOM_T", "HW_CPU_X86_AVX2"}, {"CUSTOM_T"})
    assert (first.aggregates, second.aggregates) == ({"A", "b"}, {"A"})
    assert str(ledger.held("job")) == "job holds CUSTOM_B=3 of host0"
    assert custom(ledger.classes()) == ["CUSTOM_B"]
    ledger.ensure_class("CUSTOM_A")
    ledger.release("job")


def test_what_nobody_uses_can_be_forgotten(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "CUSTOM_A=4", traits=["CUSTOM_A"], aggregates=["a"]))
    ledger.sync(ro.Provider("host0", "VCPU=1", aggregates=[]))
    ledger.remove_class("CUSTOM_A")
    ledger.remove_trait("CUSTOM_A")
    ledger.remove_aggregate("a")
    assert custom(ledger.classes()) == custom(ledger.traits()) == list(ledger.aggregates()) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda ledger: ledger.remove_class("CUSTOM_A"), exceptions.ClassInUse),
        (lambda ledger: ledger.remove_trait("CUSTOM_A"), exceptions.TraitInUse),
        (lambda ledger: ledger.remove_aggregate("a"), exceptions.AggregateInUse),
        (lambda ledger: ledger.remove_class("CUSTOM_X"), exceptions.ClassNotFound),
        (lambda ledger: ledger.remove_trait("CUSTOM_X"), exceptions.TraitNotFound),
        (lambda ledger: ledger.remove_aggregate("x"), exceptions.AggregateNotFound),
        (lambda ledger: ledger.rename_class("CUSTOM_X", "CUSTOM_Y"), exceptions.ClassNotFound),
        (lambda ledger: ledger.rename_trait("CUSTOM_X", "CUSTOM_Y"), exceptions.TraitNotFound),
        (lambda ledger: ledger.rename_aggregate("x", "y"), exceptions.AggregateNotFound),
        (lambda ledger: ledger.rename_class("CUSTOM_A", "CUSTOM_B"), exceptions.NameExists),
        (lambda ledger: ledger.rename_class("CUSTOM_A", "VCPU"), exceptions.NameExists),
        (lambda ledger: ledger.rename_trait("CUSTOM_A", "CUSTOM_B"), exceptions.NameExists),
        (lambda ledger: ledger.rename_aggregate("a", "b"), exceptions.NameExists),
        (lambda ledger: ledger.rename_class("VCPU", "CUSTOM_Y"), exceptions.StandardName),
        (lambda ledger: ledger.remove_class("VCPU"), exceptions.StandardName),
        (lambda ledger: ledger.rename_trait("HW_CPU_X86_AVX", "CUSTOM_Y"), exceptions.StandardName),
        (lambda ledger: ledger.remove_trait("HW_CPU_X86_AVX"), exceptions.StandardName),
        (lambda ledger: ledger.ensure_class("CPUS"), exceptions.UnknownResourceClass),
        (lambda ledger: ledger.rename_class("CUSTOM_A", "CPU"), exceptions.UnknownResourceClass),
        (lambda ledger: ledger.ensure_trait("AVX9"), exceptions.UnknownTrait),
        (lambda ledger: ledger.rename_trait("CUSTOM_A", "AVX9"), exceptions.UnknownTrait),
        (lambda ledger: ledger.ensure_class("custom_a"), exceptions.InvalidInput),
        (lambda ledger: ledger.ensure_trait(""), exceptions.InvalidTrait),
        (lambda ledger: ledger.ensure_aggregate(""), exceptions.InvalidInput),
        (lambda ledger: ledger.ensure_aggregate("a", ""), exceptions.InvalidInput),
        (lambda ledger: ledger.rename_aggregate("a", None), exceptions.InvalidName),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(
    ledger: ro.Ledger, change: Callable[[ro.Ledger], Any], error: type[Exception]
) -> None:
    ledger.ensure_class("CUSTOM_B")
    ledger.ensure_trait("CUSTOM_B")
    ledger.ensure_aggregate("b")
    ledger.sync(ro.Provider("host0", "CUSTOM_A=4", traits=["CUSTOM_A"], aggregates=["a"]))

    def everything() -> list[Any]:
        names = [*ledger.classes(), *ledger.traits(), *ledger.aggregates()]
        return [names, list(ledger.trees())]

    before = everything()
    with pytest.raises(error):
        change(ledger)
    assert everything() == before


def test_a_repeated_change_happens_once(ledger: ro.Ledger) -> None:
    operation = new_operation()
    ledger.ensure_aggregate("a")
    ledger.rename_aggregate("a", "b", operation=operation)
    ledger.ensure_aggregate("a")
    ledger.rename_aggregate("a", "b", operation=operation)
    assert [one.name for one in ledger.aggregates()] == ["a", "b"]
    with pytest.raises(exceptions.OperationConflict, match="rename_aggregate of a"):
        ledger.remove_aggregate("a", operation=operation)
