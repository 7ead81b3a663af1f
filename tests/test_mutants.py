"""A mutant is tried on a copy: a test that notices is named, one that nothing notices survives."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import mutants

RULES = """
def fits(asked: int, free: int) -> bool:
    return asked <= free
"""
HELD = """
from resource_objects.ratio import fits

def test_a_little_fits() -> None:
    assert fits(1, 2)

def test_nothing_else() -> None:
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name, text in {
        "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['.']\n",
        "resource_objects/__init__.py": "",
        "resource_objects/ratio.py": RULES,
        "resource_objects/clock.py": "NOW = 1\n",
        "tests/resources/test_ratio.py": HELD,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_sample_is_of_rules_alone_and_the_same_for_a_seed(checkout: Path) -> None:
    every = mutants.sample(1, 100, checkout)
    assert {(one.path, one.new) for one in every} == {
        ("ratio.py", "(asked < free)"),
        ("ratio.py", "return None"),
    }
    assert mutants.sample(1, 100, checkout) == every
    assert len(mutants.sample(1, 1, checkout)) == 1


@pytest.mark.long
def test_a_mutant_is_killed_by_a_test_that_comes_by_or_is_left(
    checkout: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    scratch = mutants.Scratch(checkout, folder, [sys.executable, "-m", "pytest"], servers=False)
    left = dict(enumerate(mutants.sample(1, 100, checkout)))
    (moved,) = (number for number, one in left.items() if one.new == "(asked < free)")
    told: list[str] = []
    passed = list(mutants.tried(scratch, "tests", left, told.append))
    assert sorted(passed) == [0, 1]
    assert list(left) == [moved]
    test = "tests/resources/test_ratio.py::test_a_little_fits"
    assert sorted(line.split("\n")[1].strip() for line in told) == [
        f"killed by {test}",
        "not noticed by 1 tests of tests",
    ]
    for root in (checkout, folder):
        assert (root / "resource_objects/ratio.py").read_text() == RULES


@pytest.mark.parametrize("name", ["__repr__", "describe"])
def test_words_for_people_and_types_stay(name: str) -> None:
    text = f"""
class Example:
    size: dict[str, 1] = None

    def {name}(self) -> str:
        return f"{{1 + 1}}"

    def check(self, names: list[int]) -> None:
        '''Raise if 1 < 2.'''
        assert not self, 1 + 1
"""
    assert mutants.mutants_of("example.py", text) == []


def test_conditions_of_loops_and_comprehensions_are_forced() -> None:
    text = "while True:\n    found = [one for one in many if one.free]\n"
    assert {one.new for one in mutants.mutants_of("example.py", text)} >= {"(True)", "(False)"}


def test_what_a_module_says_when_it_is_imported_is_every_test_s_affair() -> None:
    text = "MOST = 1\ndef least(a: int = 2) -> int:\n    return max(a, MOST + 3)\n"
    imported = {one.new for one in mutants.mutants_of("example.py", text) if one.is_imported}
    within = {one.new for one in mutants.mutants_of("example.py", text) if not one.is_imported}
    assert imported == {"(2)", "(3)"}
    assert within == {"return None", "(MOST - 3)", "(4)"}
