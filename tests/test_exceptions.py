"""Errors: a type for each reaction, a code for each case, the same after a pickle."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import base, exceptions
from resource_objects.exceptions import CapacityException, ResourceObjectsError
from resource_objects.reasons import Reason, Rule

REASON = Reason(Rule.CAPACITY, 3, 4, 3, "PGPU", "host0", (("job-1", 2), ("job-2", 1)))


TYPES: list[type[ResourceObjectsError]] = [
    kind
    for kind in (*vars(exceptions).values(), base.IncompatibleVersion, base.ReadOnlyField)
    if inspect.isclass(kind) and issubclass(kind, ResourceObjectsError)
]
_OWN_SIGNATURE = (exceptions.InvalidPlan, exceptions.DiscoveryError)
_VALUE = ("total", -1, "an integer from 1 to 9")
_PROVIDER = ("host0", "generation 3, read at 2")

#: Errors of the types that take other arguments than the most.
_EXAMPLES: dict[type[Any], list[Any]] = {
    exceptions.InvalidInput: [
        exceptions.InvalidInput(subject, *_VALUE) for subject in exceptions.InvalidInput.CODES
    ],
    exceptions.NoCandidates: [
        exceptions.NoCandidates("no candidate for job-1", "host0: is full", [REASON])
    ],
    CapacityException: [CapacityException([dataclasses.replace(REASON, rule=r)]) for r in Rule],
    base.IncompatibleVersion: [
        base.IncompatibleVersion(objname="A", objver="2.0", supported="1.0")
    ],
    exceptions.PluginError: [
        exceptions.PluginError("a", "b", "c"),
        exceptions.PluginError("a", "b", "c", is_installed=False),
    ],
    exceptions.CannotDowngrade: [exceptions.CannotDowngrade("a", "b", "c")],
    exceptions.FilterFailed: [exceptions.FilterFailed("a", "b", "c")],
    exceptions.SearchLimitReached: [exceptions.SearchLimitReached(100, 3)],
}


def examples(cls: type[Any]) -> list[Any]:
    """Return errors of a type, one of each code that it can have."""
    if cls in _EXAMPLES:
        return _EXAMPLES[cls]
    if issubclass(cls, exceptions.InvalidInput):
        return [cls(*_VALUE)]
    if issubclass(cls, CapacityException):
        return [cls([REASON])]
    if not issubclass(cls, exceptions.LedgerError):
        return [cls("what happened")]
    if cls in _OWN_SIGNATURE:
        return [cls(*_PROVIDER)]
    return [cls(subject, *_PROVIDER) for subject in cls.CASES]


each_error = pytest.mark.parametrize(
    "error",
    [error for cls in TYPES for error in examples(cls)],
    ids=lambda error: f"{type(error).__name__}-{error.code}",
)


@each_error
def test_an_error_is_the_same_after_a_pickle(error: Any) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is type(error)
        assert (str(again), again.code) == (str(error), error.code)
        assert vars(again) == vars(error)


@each_error
def test_an_error_has_a_message_a_code_and_an_explanation(error: Any) -> None:
    assert str(error) and error.code and type(error).__doc__
    assert error.matches(type(error)) and error.matches(error.code)
    assert not error.matches("Nothing", KeyError)


def test_a_code_is_that_of_one_type() -> None:
    kinds: dict[str, set[type[Any]]] = {}
    for cls in TYPES:
        for error in examples(cls):
            kinds.setdefault(error.code, set()).add(cls)
    assert {code: found for code, found in kinds.items() if len(found) > 1} == {}


def _subjects(name: str) -> set[str] | None:
    """Return the subjects that the first argument of a type may be; None if it has none."""
    kind = getattr(exceptions, name, None)
    if kind is exceptions.InvalidInput:
        return set(kind.CODES)
    if not inspect.isclass(kind) or not issubclass(kind, exceptions.LedgerError):
        return None
    return None if kind in _OWN_SIGNATURE else set(kind.CASES)


def test_every_error_that_the_library_raises_has_a_listed_subject() -> None:
    used: dict[str, set[str]] = {}
    for path in Path(exceptions.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            function, arguments = node.func, node.args
            if ast.unparse(function) == "functools.partial" and len(arguments) > 1:
                function, arguments = arguments[0], arguments[1:]
            name = ast.unparse(function).rpartition(".")[2]
            subject, subjects = arguments[0], _subjects(name)
            if subjects is None or not isinstance(subject, ast.Constant):
                continue
            assert subject.value in subjects, f"{path}:{node.lineno}: {ast.unparse(node)}"
            used.setdefault(name, set()).add(subject.value)
    passed_on = {"resource class", "trait", "aggregate"}  # by `NameRule.subject`
    passed_on |= {"full", "damaged", "read-only", "replaced", "lost", "site file"}
    passed_on |= {"provider configuration", "confirmed move", "reverted move"}
    for name, subjects in used.items():
        assert (_subjects(name) or set()) - subjects <= passed_on, name


def test_every_rule_is_the_reason_of_a_refusal() -> None:
    used: set[str] = set()
    for path in Path(exceptions.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and path.name != "reasons.py":
                used.add(node.attr)
    assert {rule.name for rule in Rule} <= used


def test_bad_input_is_a_value_error_and_a_refusal_is_none() -> None:
    assert issubclass(exceptions.InvalidInput, ValueError)
    assert not issubclass(CapacityException, ValueError)
    assert not issubclass(exceptions.LedgerError, ValueError)


def test_bad_input_names_what_it_was_for_the_value_and_what_was_expected() -> None:
    error = exceptions.InvalidInput("field", "total", "x" * 1000, "an integer")
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
        assert "repr fails" in str(exceptions.InvalidInput("amount", "amount", value, "an integer"))
    while nested:
        nested = nested[0]  # else the interpreter would take it apart recursively


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ([Rule.CAPACITY], "CapacityException"),
        ([Rule.LIMIT], "CapacityException"),
        ([Rule.STEP_SIZE], "UnitRuleViolated"),
        ([Rule.MIN_UNIT, Rule.MAX_UNIT], "UnitRuleViolated"),
        ([Rule.MIN_UNIT, Rule.CAPACITY], "CapacityException"),
        ([Rule.NO_INVENTORY], "InventoryNotFound"),
        ([Rule.NO_INVENTORY, Rule.NO_INVENTORY], "InventoryNotFound"),
        ([Rule.NO_INVENTORY, Rule.STEP_SIZE], "CapacityException"),
        ([], "CapacityException"),
    ],
)
def test_the_code_of_a_refusal_follows_from_its_reasons(rules: list[Rule], code: str) -> None:
    refusal = CapacityException(Reason(rule, 1, 1, 0) for rule in rules)
    assert refusal.code == code
    assert [reason.rule for reason in refusal.reasons] == rules


def test_a_refusal_of_what_is_disabled_says_so_whatever_else_is_lacking() -> None:
    refusal = CapacityException([REASON], is_disabled=True)
    for error in (refusal, pickle.loads(pickle.dumps(refusal))):
        assert error.code == "ProviderDisabled" and error.reasons == (REASON,)


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
    assert str(REASON) == "host0: PGPU requested 3, free 1 of 4 (job-1 holds 2, job-2 holds 1)"
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
    error = exceptions.InvalidInput("URL", "ledger URL", url, "another")
    told = f"{error} {error!r} {error.args} {vars(error)}"
    assert "secret" not in told and "cret@" not in told
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.args) == (str(error), error.args)


@pytest.mark.parametrize("url", ["memory://x", "sqlite://", "sqlite:///", "lab.db", ""])
def test_a_url_that_can_hold_no_secret_is_shown(url: str) -> None:
    assert exceptions.InvalidInput("URL", "ledger URL", url, "another").value == url
