"""Errors: one type per reason, its data on it, the same after a pickle."""

from __future__ import annotations

import ast
import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import base, exceptions
from resource_objects.exceptions import CapacityException, Reason, Rule

REASON = Reason(Rule.CAPACITY, 3, 4, 3, "PGPU", "host0", (("job-1", 2), ("job-2", 1)))


def every_type() -> list[type[exceptions.ResourceObjectsError]]:
    found = [base.IncompatibleVersion, base.ReadOnlyField]
    for value in vars(exceptions).values():
        if inspect.isclass(value) and issubclass(value, exceptions.ResourceObjectsError):
            found.append(value)
    return found


def example(cls: type[Any]) -> Any:
    """Return an error of the type with data of the shape it takes."""
    if issubclass(cls, exceptions.InvalidInput):
        return cls("total", -1, "an integer from 1 to 9")
    if cls is exceptions.NoCandidates:
        return cls("no candidate for job-1", "host0: is full", [REASON])
    if issubclass(cls, CapacityException):
        return cls([REASON])
    if issubclass(cls, exceptions.LedgerError):
        return cls("host0", "generation 3, read at 2")
    if cls is base.IncompatibleVersion:
        return cls(objname="A", objver="2.0", supported="1.0")
    if cls in (exceptions.CannotDowngrade, exceptions.FilterFailed) or issubclass(
        cls, exceptions.PluginError
    ):
        return cls("a", "b", "c")
    if cls is exceptions.SearchLimitReached:
        return cls(100, 3)
    return cls("what happened")


each_type = pytest.mark.parametrize("cls", every_type(), ids=lambda cls: cls.__name__)


@each_type
def test_an_error_is_the_same_after_a_pickle(cls: type[Any]) -> None:
    error = example(cls)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is cls
        assert str(again) == str(error)
        assert vars(again) == vars(error)


@each_type
def test_an_error_says_something_and_explains_its_type(cls: type[Any]) -> None:
    assert str(example(cls))
    assert cls.__doc__
    assert issubclass(cls, exceptions.ResourceObjectsError)


def test_every_public_name_exists_and_no_error_is_left_out() -> None:
    defined = {
        name
        for name, value in vars(exceptions).items()
        if inspect.isclass(value) and issubclass(value, exceptions.ResourceObjectsError)
    }
    assert defined | {"Reason", "Rule"} == set(exceptions.__all__)


FAMILIES = {"ResourceObjectsError", "LedgerError"}


def test_every_reason_is_one_that_the_library_gives() -> None:
    """Each type, and each rule of a refusal, is used by more than what is derived from it."""
    used: set[str] = set()
    for path in Path(exceptions.__file__).parent.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        bases = {id(base) for one in classes for base in one.bases}
        for node in nodes:
            if isinstance(node, ast.Name) and id(node) not in bases:
                used.add(node.id)
            elif isinstance(node, ast.Attribute) and path.name != "exceptions.py":
                used.add(node.attr)
    assert {one.__name__ for one in every_type()} - used <= FAMILIES
    assert {rule.name for rule in Rule} <= used


def test_bad_input_is_a_value_error_and_a_refusal_is_none() -> None:
    assert issubclass(exceptions.InvalidInput, ValueError)
    assert not issubclass(CapacityException, ValueError)
    assert not issubclass(exceptions.LedgerError, ValueError)


def test_bad_input_names_what_it_was_for_the_value_and_what_was_expected() -> None:
    error = exceptions.InvalidField("total", "x" * 1000, "an integer")
    assert (error.what, error.value, error.expected) == ("total", "x" * 1000, "an integer")
    assert str(error).startswith("total: got 'xxx")
    assert len(str(error)) < 150


@given(st.text() | st.integers() | st.lists(st.integers()))
def test_what_is_shown_of_a_value_is_short(value: Any) -> None:
    shown = exceptions.show(value)
    assert len(shown) <= 80
    assert shown == repr(value) or "..." in shown


def test_a_value_that_cannot_be_shown_does_not_hide_the_error() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError

    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (Hostile(), 10**5000, nested):
        assert "repr fails" in str(exceptions.InvalidAmount("amount", value, "an integer"))
    while nested:
        nested = nested[0]  # else the interpreter would take it apart recursively


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ([Rule.CAPACITY], CapacityException),
        ([Rule.LIMIT], CapacityException),
        ([Rule.STEP_SIZE], exceptions.UnitRuleViolated),
        ([Rule.MIN_UNIT, Rule.MAX_UNIT], exceptions.UnitRuleViolated),
        ([Rule.MIN_UNIT, Rule.CAPACITY], CapacityException),
        ([Rule.NO_INVENTORY], exceptions.InventoryNotFound),
        ([Rule.NO_INVENTORY, Rule.NO_INVENTORY], exceptions.InventoryNotFound),
        ([Rule.NO_INVENTORY, Rule.STEP_SIZE], CapacityException),
        ([], CapacityException),
    ],
)
def test_the_type_of_a_refusal_is_the_most_telling_one(
    rules: list[Rule], error: type[CapacityException]
) -> None:
    refusal = CapacityException.of(Reason(rule, 1, 1, 0) for rule in rules)
    assert type(refusal) is error
    assert [reason.rule for reason in refusal.reasons] == rules


@pytest.mark.parametrize("rule", Rule)
def test_every_rule_has_words_with_its_figures(rule: Rule) -> None:
    asked = -7 if rule is Rule.USED_BELOW_ZERO else 7
    own = Rule.FILTER, Rule.SERVER_GROUP  # which find their own words
    words = "7 builds failed" if rule in own else None
    reason = Reason(rule, asked, 5, 3, "VCPU", trait="CUSTOM_T", unit=words)
    assert str(reason).startswith("VCPU ")
    of_host = rule in (Rule.ROOT_TRAIT_MISSING, Rule.ROOT_TRAIT_FORBIDDEN)
    assert ("CUSTOM_T" if of_host else "7") in str(reason)
    plain = reason.to_dict()
    assert json.loads(json.dumps(plain))["rule"] == rule.value
    assert plain["text"] == str(reason)


def test_a_reason_names_the_place_and_who_holds_it() -> None:
    assert str(REASON) == "host0: PGPU asked 3, free 1 of 4 (job-1 holds 2, job-2 holds 1)"
    assert REASON.free == 1


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:/me:secret@db/lab",
        "postgresql:me:secret@db/lab",
        "postgresql//me:secret@db/lab",
        "me:secret@db/lab",
        "memory://me:secret@x",
        "://me:secret@db/lab",
        "mysql://:secret",
        "mysql://me:secret",
        "mysql://me:se/cret@db/lab?password=secret#secret",
    ],
)
def test_a_url_that_is_refused_shows_no_secret(url: str) -> None:
    error = exceptions.InvalidURL("ledger URL", url, "another")
    told = f"{error} {error!r} {error.args} {vars(error)}"
    assert "secret" not in told and "cret@" not in told
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.args) == (str(error), error.args)


@pytest.mark.parametrize("url", ["memory://x", "sqlite://", "sqlite:///", "lab.db", ""])
def test_a_url_that_can_hold_no_secret_is_shown(url: str) -> None:
    assert exceptions.InvalidURL("ledger URL", url, "another").value == url
