"""The figures of the house are those of what is written, tried on a small house."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import house
from tools.lowest import lowest

WRITTEN = {
    "__init__.py": "",
    "ground.py": "class Base: ...\n",
    "one/__init__.py": "",
    "one/a.py": "from resource_objects.one import b\nclass A(b.B): ...\n",
    "one/b.py": """
from resource_objects.ground import Base
class B(Base):
    def late(self):
        from resource_objects.one.a import A
        return A
""",
    "two/__init__.py": "",
    "two/c.py": """
from resource_objects.one.a import A
from ..ground import _hidden
class A: ...
def f(): ...
""",
    "two/d.py": "def f(): ...\n",
}


def test_a_small_house(tmp_path: Path) -> None:
    for name, text in WRITTEN.items():
        path = tmp_path / "resource_objects" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = house.House(tmp_path)
    assert len(found.core) == len(WRITTEN)
    assert found.circles() == [["resource_objects.one.a", "resource_objects.one.b"]]
    assert found.deepest()[0] == (3, "A")
    assert found.defined_twice() == {
        "A": ["resource_objects.one.a", "resource_objects.two.c"],
        "f": ["resource_objects.two.c", "resource_objects.two.d"],
    }
    assert found.imported_once() == ["resource_objects.one.b"]
    assert (found.private_imports(), found.hidden_imports()) == (0, 1)
    assert found.room("resource_objects.two.c") == "two/"


def test_a_package_beyond_its_budget_fails_the_check(tmp_path: Path) -> None:
    package = tmp_path / "resource_objects" / "one"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Return what."""\n')
    budget = tmp_path / house.BUDGET
    budget.parent.mkdir()
    budget.write_text("# Ceilings.\n")
    assert not house.check(tmp_path)  # a new package has no budget
    house.lower(tmp_path)
    assert budget.read_text().startswith("# Ceilings.\n")
    assert house.check(tmp_path)
    (package / "__init__.py").write_text('"""Return what."""\nkept = 1\n')
    assert not house.check(tmp_path)
    house.lower(tmp_path)  # which raises no budget
    assert not house.check(tmp_path)


@pytest.mark.long
def test_it_runs_on_this_checkout() -> None:
    ran = subprocess.run(
        [sys.executable, house.__file__, "--static"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "library without testing/" in ran.stdout


def test_a_walk_counts_the_calls_of_the_package_alone() -> None:
    import resource_objects as ro

    once = house.walk(lambda: ro.IntegerAmount(1))
    assert once.calls >= once.functions >= 1 and once.depth >= 1
    assert house.walk(lambda: sorted([2, 1])) == house.Walk(0, 0, 0, 0, 0)


def test_everything_that_is_required_has_a_lowest_version() -> None:
    text = (Path(house.__file__).parents[1] / "setup.cfg").read_text()
    found = dict(line.split("==") for line in lowest(text))
    assert found["cliff"] == "4.9" and found["psycopg[binary]"] == "3.2.1"
    required = text.partition("install_requires =")[2].partition("[options")[0].split()
    assert len(required) > 5 and {line.partition(">=")[0] for line in required} <= found.keys()
