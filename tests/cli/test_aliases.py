"""The words of osc-placement are understood."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resource_objects.cli.main import ALIASES, BUILT_IN
from tests.cli.conftest import Result

Run = Callable[..., Result]

#: Commands of osc-placement 4.9.1 that take the same arguments here, less their first words.
SAME = [
    "resource provider list",
    "resource provider show",
    "resource provider delete",
    "resource provider inventory list",
    "resource provider inventory delete",
    "resource provider usage show",
    "resource provider aggregate list",
    "resource provider trait list",
    "resource provider allocation set",
    "resource provider allocation show",
    "resource provider allocation delete",
    "resource class list",
    "resource class create",
    "resource class delete",
    "trait list",
    "trait create",
    "trait delete",
    "allocation candidate list",
]


@pytest.mark.parametrize("words", SAME)
def test_a_command_of_osc_placement_has_help(words: str, run: Run) -> None:
    done = run(*words.split(), "--help")
    assert done.status == 0
    assert done.out.startswith("usage: resource-objects ")


def test_a_morning_in_the_words_of_osc_placement(run: Run) -> None:
    run("resource", "class", "create", "CUSTOM_LICENCE")
    run("resource", "provider", "create", "host0", "VCPU=8,CUSTOM_LICENCE=2")
    run("resource", "provider", "allocation", "set", "job-1", "--project", "demo",
        "--allocation", "rp=host0,VCPU=2")  # fmt: skip
    shown = run("resource", "provider", "usage", "show", "host0", "-f", "csv").out
    assert shown == run("provider", "usage", "show", "host0", "-f", "csv").out
    assert "VCPU" in shown
    total = run("resource", "usage", "show", "demo", "-f", "csv")
    assert total.out == run("usage", "total", "--project", "demo", "-f", "csv").out
    assert "VCPU" in total.out
    run("resource", "provider", "allocation", "delete", "job-1")
    assert run("resource", "provider", "allocation", "show", "job-1").status == 1


def test_what_is_no_command_is_told_in_the_words_that_were_given(run: Run) -> None:
    done = run("resource", "provider", "lits")
    assert done.status == 2
    assert "'resource provider lits' is no command" in done.err


def test_a_project_is_missed_by_name(run: Run) -> None:
    done = run("resource", "usage", "show")
    assert done.status == 2
    assert "--project" in done.err


def test_an_alias_is_no_command_of_ours() -> None:
    assert not {" ".join(theirs) for theirs in ALIASES} & BUILT_IN.keys()
