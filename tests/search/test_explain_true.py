"""Every sentence of an explanation is true, by a checker that knows only the rows."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect

import pytest

from resource_objects.providers import Provider
from resource_objects.providers.columns import Columns
from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.search import Snapshot
from resource_objects.search.answer import Outlook
from tests.search import worlds
from tests.search.worlds import World
from tests.support.columns import columns_of
from tests.support.enumerator import candidates
from tests.support.lengths import some
from tests.support.told import Rows, faults
from tests.support.told_line import Line, nearest_faults, stage_faults

#: Of each sort of worlds how many are tried at once, so that it takes about a second.
_AT_ONCE = {
    "counts": 100,
    "shares": 100,
    "out of service": 80,
    "limits": 80,
    "near": 80,
    "server groups": 80,
    "cells": 40,
    "devices": 25,
    "full cells": 5,
    "full devices": 3,
    "broken cells and devices": 12,
    "limited cells and devices": 12,
}
#: Worlds of which something untrue was told once, or true sentences were not believed.
_FOUND = [
    *(("limited cells and devices", 481), ("devices", 1386), ("cells", 53)),
    *(("limits", 228), ("counts", 1446), ("out of service", 278)),
]
#: Cases of each sort: some thousand worlds, of those that take long some hundred.
CASES = [pytest.param(sort, seed, 1) for sort, seed in _FOUND] + [
    pytest.param(sort, start, count, marks=() if not start else pytest.mark.long)
    for sort, count in _AT_ONCE.items()
    for start in range(0, min(3_000, 60 * count), count)
]


@pytest.mark.law(6)
@pytest.mark.parametrize(("sort", "start", "count"), CASES)
def test_every_sentence_is_true(sort: str, start: int, count: int) -> None:
    """Each figure and each holder of each reason, each stage, the nearest, and the answer."""
    told, rules = 0, set[Rule]()
    for seed in range(start, start + count):
        world = worlds.SORTS[sort](seed)
        explained = world.explained()
        by_host = dict(explained.by_host())
        assert faults(world.judged, world.request, by_host.items(), world.group) == [], seed
        assert list(stage_faults(explained.stages, explained.answer)) == [], seed
        near = explained.nearest(9) if by_host else ()
        assert list(nearest_faults(near, by_host)) == [], seed
        if by_host and not world.found():
            assert list(line_faults(world, explained)) == [], seed
        told += len(by_host)
        rules.update(reason.rule for reasons in by_host.values() for reason in reasons)
    assert told and rules


def line_faults(world: World, explained: object) -> list[str]:
    """Return what is wrong with the answer to what nobody can hold."""
    rows = Rows(world.judged, world.request)
    lines = dict(worlds.lines_of(explained))
    line = Line(rows, list(lines), lines)
    could = worlds.could(world) & lines.keys()
    is_exact = world.request.compatibility is None  # else who only has pools is found but once
    return list(line.faults(explained.answer, could, is_exact=is_exact))  # type: ignore[attr-defined]


@pytest.mark.law(6, 9)
@pytest.mark.parametrize("start", some(range(0, 3_000, 12)))
def test_what_could_never_be_cannot_be_if_nobody_holds_anything(start: int) -> None:
    """The enumerator tries everything on the same trees, of which nothing is used."""
    seen = set()
    for seed in range(start, start + 12):
        world = worlds.counts(seed)
        outlooks = world.explained().outlooks
        if not outlooks:
            continue
        could = {one.host for one in candidates(worlds.unheld(world.columns), world.request)}
        if world.request.compatibility is None:  # else who gives nothing itself is found once
            for host, outlook in outlooks.items():
                right = Outlook.NOT_NOW if host in could else Outlook.NEVER
                assert outlook == right, (seed, host)
        else:
            never = {host for host, one in outlooks.items() if one is Outlook.NEVER}
            assert not never & could, seed
        seen.update(outlooks.values())
    assert seen


@pytest.mark.law(6, 9)
@pytest.mark.parametrize("sort", ["full cells", "full devices", "limited cells and devices"])
@pytest.mark.parametrize("start", some(range(0, 300, 3)))
def test_so_it_is_where_cells_and_devices_are_asked_for(sort: str, start: int) -> None:
    """The same search, of a picture in which nobody holds anything."""
    for seed in range(start, start + 3):
        world = worlds.SORTS[sort](seed)
        could = worlds.could(world)
        for host, outlook in world.explained().outlooks.items():
            assert outlook == (Outlook.NOT_NOW if host in could else Outlook.NEVER), (seed, host)


# --- the checker itself ---------------------------------------------------------------------------


def test_the_checker_knows_only_the_rows() -> None:
    """Of the search it imports by whose rules a request is read, and no more."""
    seen: set[str] = set()
    left = ["tests.support.told", "tests.support.told_line"]
    of_search: set[tuple[str, str]] = set()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        tree = ast.parse(inspect.getsource(importlib.import_module(name)))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                if node.module.startswith("tests."):
                    names = [f"{node.module}.{one.name}" for one in node.names]
                    left += [node.module] if node.module.count(".") > 1 else names
                if node.module.startswith("resource_objects.search"):
                    of_search |= {(node.module, one.name) for one in node.names}
    rules = "resource_objects.search.eligibility"
    given = ("resource_objects.search.candidate", "Candidate")  # in the enumerator: a value
    assert of_search <= {(rules, "Reach"), (rules, "Semantics"), (rules, "semantics_of"), given}


@pytest.mark.parametrize(
    "change",
    [
        {"bound": 9},
        {"used": 1},
        {"requested": 3},
        {"holders": ()},
        {"holders": (("job-1", 5),)},
        {"holders": (("job-1", 6), ("job-2", 1))},
        {"resource": "MEMORY_MB"},
        {"rule": Rule.NO_INVENTORY},
        {"where": "nobody"},
    ],
    ids=str,
)
def test_the_checker_finds_what_is_wrong(change: dict[str, object]) -> None:
    """host0  VCPU 8 used 6 by job-1, MEMORY_MB 4"""
    columns = columns_of([Provider("host0", "VCPU=8,MEMORY_MB=4")], [("job-1", "host0", "VCPU", 6)])
    right = Reason(Rule.CAPACITY, 4, 8, 6, "VCPU", "host0", (("job-1", 6),))
    request = Request("VCPU=4")
    assert faults(columns, request, [("host0", [right])]) == []
    wrong = dataclasses.replace(right, **change)  # type: ignore[arg-type]
    assert faults(columns, request, [("host0", [wrong])])


def _gpus() -> Columns:
    """host0   gpu0 (CUSTOM_A) held by job-1, gpu1 held by job-2, gpu2 (CUSTOM_A)"""
    host = Provider("host0", "VCPU=4")
    for number, traits in enumerate((["CUSTOM_A"], [], ["CUSTOM_A"])):
        host.add(f"host0/gpu{number}", "PGPU=1", traits=traits)
    held = [(f"job-{number + 1}", f"host0/gpu{number}", "PGPU", 1) for number in (0, 1)]
    return columns_of([host], held)


@pytest.mark.parametrize(
    ("groups", "policy", "wrong"),
    [
        (1, None, Reason(Rule.TRAIT_MISSING, 1, 0, 0, "PGPU", "host0", trait="CUSTOM_A")),
        (1, None, Reason(Rule.CAPACITY, 1, 1, 1, "PGPU", "host0/gpu0", (("job-1", 1),))),
        (2, "isolate", Reason(Rule.ISOLATED, 2, 1, 0, where="host0")),
        (2, "isolate", Reason(Rule.ISOLATED, 2, 1, 0, where="host0", holders=(("job-2", 1),))),
        (2, "isolate", Reason(Rule.ISOLATED, 2, 0, 0, where="host0", holders=(("job-1", 1),))),
        (2, None, Reason(Rule.GROUPS, 2, 0, 0, where="host0", holders=())),
    ],
    ids=str,
)
def test_the_checker_finds_what_is_wrong_of_groups(
    groups: int, policy: str | None, wrong: Reason
) -> None:
    suffixes = ["_A", "_B"][:groups]
    asked = [RequestGroup("PGPU=1", suffix=one, required=["CUSTOM_A"]) for one in suffixes]
    request = Request("VCPU=1", groups=asked, group_policy=policy)
    told = [("host0", [dataclasses.replace(wrong, group=", ".join(suffixes))])]
    assert faults(_gpus(), request, told)
    found = Snapshot(_gpus()).candidates(request).explain()
    assert faults(_gpus(), request, found.by_host()) == []


@pytest.mark.parametrize(
    "line",
    [
        "no host has VCPU=4 free, the most is 3 of host0; it could if nobody held anything",
        "no host has VCPU=4 free, the most is 2 of host1; it could if nobody held anything",
        "no host has VCPU=5 free, the most is 2 of host0; it could if nobody held anything",
        "no host has any VCPU free, requested 4; it could if nobody held anything",
        "no host has any VCPU; it could if nobody held anything",
        "no host has VCPU=4 free, the most is 2 of host0; none could, even if nobody held anything",
        "no host has VCPU=4 free, the most is 2 of host0 (1 other fails before)",
        "no host is happy",
    ],
)
def test_the_checker_finds_what_is_wrong_of_an_answer(line: str) -> None:
    """host0  VCPU 8 used 6 by job-1"""
    columns = columns_of([Provider("host0", "VCPU=8")], [("job-1", "host0", "VCPU", 6)])
    checker = Line(Rows(columns, Request("VCPU=4")), ["host0"], {})
    right = "no host has VCPU=4 free, the most is 2 of host0; it could if nobody held anything"
    assert list(checker.faults(right, {"host0"})) == []
    assert list(checker.faults(line, {"host0"}))
