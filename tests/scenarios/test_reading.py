"""What a scenario's text says, and what happens when it is not so."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.testing.refusals import raises_code
from tests.support.drawn_cases import Ask, Claim, DrawnCase, Release

LAB = """
host0          VCPU 8
└── /gpu[0-1]  PGPU 1

Why: devices add up,
  whichever they are.
Known from: nobody
Difference: splits_devices, per_host

request: PGPU=2
options: limit=3
ours:
  host0: PGPU=1 of host0/gpu1, PGPU=1 of host0/gpu0
missing: no host was left out
placement: none
claim: job-1
claim: job-2 PGPU=1 of host0/gpu0
  refused: CapacityException: free 0 of 1
release: job-1
query: resources=VCPU:1
  &limit=1
candidates:
  host0: VCPU=1 of host0
"""


def run(text: str) -> list[str]:
    """Return what fails in a scenario."""
    with ro.connect("memory://") as ledger:
        return [str(failure) for failure in DrawnCase.parse(text).failures(ledger)]


def test_what_it_says_is_read() -> None:
    scenario = DrawnCase.parse(LAB, source="lab.txt")
    assert scenario.why == "devices add up, whichever they are."
    assert scenario.known_from == "nobody"
    assert scenario.differences == ("splits_devices", "per_host")
    assert [type(step) for step in scenario.steps] == [Ask, Claim, Claim, Release, Ask]
    ask = scenario.steps[0]
    assert isinstance(ask, Ask)
    assert ask.where == "lab.txt, line 10"
    assert ask.options == "limit=3"
    assert [answer.columns for answer in ask.answers] == [("ours",), ("placement",)]
    assert len(scenario.drawing.roots) == 1


def test_what_is_as_it_says_fails_nowhere() -> None:
    assert run(LAB) == []
    DrawnCase.parse(LAB).run()


def test_a_line_that_is_deeper_goes_on_with_the_one_above() -> None:
    text = LAB.replace("PGPU=1 of host0/gpu1, ", "PGPU=1 of host0/gpu1,\n    ")
    assert text != LAB
    (ask, *_), (same, *_) = DrawnCase.parse(text).steps, DrawnCase.parse(LAB).steps
    assert isinstance(ask, Ask) and isinstance(same, Ask)
    assert ask.answers[0] == same.answers[0]


@pytest.mark.parametrize(
    ("wrong", "right", "where"),
    [
        ("PGPU=1 of host0/gpu1, ", "", "line 12, ours"),
        ("no host was left out", "host1: there is none", "line 12, ours, missing"),
        ("placement: none", "placement: InvalidRequest", "line 15, placement"),
        ("placement: none", "placement:\n  host0: PGPU=2 of host0/gpu0", "line 15, placement"),
        ("free 0 of 1", "free 1 of 1", "line 17"),
        ("PGPU=1 of host0/gpu0\n  refused", "VCPU=1 of host0\n  refused", "line 17"),
        ("release: job-1", "release: job-9", "line 19"),
        ("claim: job-1", "claim: job-1\n  refused: NoCandidates", "line 16"),
        ("VCPU:1\n", "CPU:1\n", "line 22, ours"),
    ],
)
def test_what_is_not_as_it_says_is_told(wrong: str, right: str, where: str) -> None:
    told = run(LAB.replace(wrong, right, 1))
    assert told
    assert where in told[0].splitlines()[0]
    assert "expected:" in told[0]
    assert "found:" in told[0]


def test_a_failed_run_raises_with_all_that_failed() -> None:
    with (
        ro.connect("memory://") as ledger,
        pytest.raises(AssertionError, match=r"(?s)line 15.*expected:.*a claim"),
    ):
        DrawnCase.parse(
            LAB.replace("placement: none", "placement: InvalidRequest").replace(
                "  refused: CapacityException: free 0 of 1\n", ""
            )
        ).run(ledger)


WRONG = {
    "a drawing": ("a\n    b\n\nWhy: x\nrequest: VCPU=1\nours: none", "line 2"),
    "a word": ("a\n\nWhy: x\nWhat: y", "one of why"),
    "a word after the steps": ("a\n\nWhy: x\nclaim: a\nWhy: y", "in this order"),
    "no word": ("a\n\nnothing", "a word with a colon"),
    "no reason": ("a\n\nrequest: VCPU=1\nours: none", "a Why:"),
    "no steps": ("a\n\nWhy: x", "at least one step"),
    "no answer": ("a\n\nWhy: x\nrequest: VCPU=1", "candidates:, ours: or placement:"),
    "no request": ("a\n\nWhy: x\nrequest:\nours: none", "something behind it"),
    "two answers": ("a\n\nWhy: x\nrequest: VCPU=1\nours: none\ncandidates: none", "one answer"),
    "half an answer": ("a\n\nWhy: x\nrequest: VCPU=1\nours:", "none, an error"),
    "an answer and a half": ("a\n\nWhy: x\nrequest: VCPU=1\nours: none\n  b: c", "none, an error"),
    "no candidate": ("a\n\nWhy: x\nrequest: VCPU=1\nours:\n  a", "host: AMOUNTS of PROVIDER"),
    "no taking": ("a\n\nWhy: x\nrequest: VCPU=1\nours:\n  a: b", "AMOUNTS of PROVIDER (GROUP)"),
    "options": ("a\n\nWhy: x\nrequest: VCPU=1\noptions: most=1\nours: none", "limit, per_host"),
    "no Python": ("a\n\nWhy: x\nrequest: VCPU=1\noptions: limit=\nours: none", "what Python reads"),
    "a claim of a group": ("a\n\nWhy: x\nclaim: b VCPU=1 of a (G)", "without groups"),
    "a claim and more": ("a\n\nWhy: x\nclaim: b\n  or: c", "refused: and an error"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_scenario_says_where_and_what_was_expected(what: str) -> None:
    text, expected = WRONG[what]
    with raises_code("InvalidText", match=r"lab\.txt, line [0-9]+: got ") as caught:
        DrawnCase.parse(text, source="lab.txt")
    assert expected in str(caught.value)


def test_nothing_of_a_request_is_executed() -> None:
    text = "a\n\nWhy: x\nrequest: Request(exit())\nours: InvalidText: exit()"
    assert run(text) == []
    text = "a\n\nWhy: x\nrequest: VCPU=1\noptions: limit=exit()\nours: InvalidText: exit()"
    assert run(text) == []


@pytest.mark.parametrize("count", [300, 900, 3000, 50000])
@pytest.mark.parametrize("sign", ["-", "not ", "("])
def test_signs_within_signs_are_refused(sign: str, count: int) -> None:
    value = f"{sign * count}1"
    text = f"a\n\nWhy: x\nrequest: VCPU=1\noptions: limit={value}\nours: InvalidText: got"
    try:
        failed = run(text)
    except exceptions.InvalidInput as error:  # where not even Python reads it
        if not error.is_about("text"):
            raise
        return
    assert failed == []
