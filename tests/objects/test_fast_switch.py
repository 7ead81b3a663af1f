"""What makes objects fast changes nothing else, and can be switched off.

``RESOURCE_OBJECTS_FAST=0`` is read when the library is imported, so a process of its own runs the
tests of the algebra without it, and compares what both kinds of process say.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from resource_objects import _fast

ROOT = Path(__file__).parents[2]

#: The tests that run without: all of the algebra, but for those that only start processes.
TESTS = ["tests/objects", "tests/resources"]
LEFT_OUT = ["test_fast_switch.py", "test_plugins.py"]

PROGRAM = """
import copy, json, pickle, sys
from resource_objects import _fast, base, exceptions
import resource_objects as ro
from resource_objects.resources import SlotResource

amount = ro.IntegerAmount(3)
inventory = ro.IntegerInventory(8, reserved=1, allocation_ratio="1.5", used=2)
inventory.obj_reset_changes()
inventory.consume(amount)
inventories = ro.Inventories("VCPU=8:allocation_ratio=1.15,CUSTOM_A=2:max_unit=1")
inventories.consume("VCPU=2")
made = [amount, inventory, inventories, ro.Amounts("VCPU=2,DISK_GB=1"), ro.Limits("VCPU=0"),
        ro.resource("VCPU"), SlotResource("CUSTOM_SLOT"), copy.deepcopy(inventory)]
said = {"fast": _fast.ENABLED, "primitives": [], "older": [], "again": [], "errors": []}
for one in made:
    primitive = one.obj_to_primitive()
    said["primitives"].append(primitive)
    said["older"].append(one.obj_to_primitive("1.0", {"resource_objects.IntegerAmount": "1.0"}))
    read = base.ResourceObject.obj_from_primitive(primitive)
    assert read == one and type(read) is type(one)
    assert pickle.loads(pickle.dumps(one)) == one
    said["again"].append([repr(read), str(read), read.obj_to_primitive(),
                          sorted(read.obj_what_changed())])
for bad in ({"total": 0}, {"total": 8, "colour": 1}, {}, {"total": 8, "reserved": 9},
            {"total": 8, "max_unit": 0}, {"total": 8, "used": None},
            {"total": 8, "allocation_ratio": "x"}):
    primitive = {**inventory.obj_to_primitive(), "versioned_object.data": bad}
    try:
        said["errors"].append(repr(base.ResourceObject.obj_from_primitive(primitive)))
    except exceptions.ResourceObjectsError as error:
        said["errors"].append([error.code, str(error)])
    try:
        said["errors"].append(repr(inventory.replace(**bad)))
    except AttributeError as error:
        said["errors"].append(str(error))
json.dump(said, sys.stdout)
"""


#: A pytest plug-in: what is tried with many examples with it is tried with a few without it.
FEW_EXAMPLES = """
import hypothesis
hypothesis.settings.register_profile("few", deadline=None, max_examples=15, stateful_step_count=15)
"""


def run(*arguments: str, fast: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"RESOURCE_OBJECTS_FAST": fast, "PYTHONPATH": str(path)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True
    )


def said(fast: str) -> dict[str, Any]:
    ran = run("-c", PROGRAM, fast=fast)
    assert ran.returncode == 0, ran.stderr
    result: dict[str, Any] = json.loads(ran.stdout)
    return result


def test_the_switch_is_read_from_the_environment() -> None:
    assert [said(fast)["fast"] for fast in ("1", "0")] == [True, False]


def test_what_is_sent_read_and_refused_is_the_same_with_and_without() -> None:
    with_it, without = said("1"), said("0")
    assert with_it.pop("fast") is not without.pop("fast")
    assert with_it == without


def test_it_stays_small_enough_to_read() -> None:
    assert len(Path(_fast.__file__).read_text(encoding="utf-8").splitlines()) < 400


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """A value as ``dataclasses`` makes it."""

    name: str
    amount: int = 1
    doubled: int = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(self.amount)
        object.__setattr__(self, "doubled", 2 * self.amount)


@_fast.set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class Direct(Plain):
    """The same, made by its slots."""


def test_a_value_that_sets_its_slots_is_made_as_it_was() -> None:
    assert inspect.signature(Direct) == inspect.signature(Plain)
    assert Direct.__init__.__doc__ == Plain.__init__.__doc__
    made = Direct("a", amount=2)
    assert (made.name, made.amount, made.doubled) == ("a", 2, 4)
    assert made == Direct("a", 2)
    assert made != Direct("a")
    assert hash(made) == hash(Direct("a", 2))
    assert dataclasses.replace(made, amount=3).doubled == 6
    assert pickle.loads(pickle.dumps(made)) == made  # our own
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.amount = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"Direct\.__init__\(\) missing 1 required .*'name'"):
        Direct()  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="-1"):
        Direct("a", -1)


@pytest.mark.long
@pytest.mark.skipif(not _fast.ENABLED, reason="this is the run without it")
def test_the_algebra_holds_without_it(tmp_path: Path) -> None:
    (tmp_path / "few_examples.py").write_text(FEW_EXAMPLES, encoding="utf-8")
    ran = run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "few_examples",
        "--hypothesis-profile=few",
        *TESTS,
        *(f"--ignore-glob=*/{name}" for name in LEFT_OUT),
        "resource_objects/resources",
        "resource_objects/base.py",
        fast="0",
        path=tmp_path,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr
    assert " passed" in ran.stdout
