"""The errors of Nova's words: one type per rule, and what a caller can do with them."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest

from resource_objects.exceptions import InvalidInput
from resource_objects.interop import nova
from resource_objects.interop.nova import errors

TYPES = sorted(
    (
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.InvalidWords)
    ),
    key=lambda kind: kind.__name__,
)
PACKAGE = Path(inspect.getfile(nova)).parent
TESTS = Path(__file__).parent

each_type = pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)


@each_type
def test_an_error_is_one_of_bad_input_and_the_same_after_a_pickle(
    kind: type[errors.InvalidWords],
) -> None:
    error = kind("hw:numa_nodes", "x" * 200, "a number")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, InvalidInput)
    assert isinstance(again, ValueError)
    assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))
    assert kind.__doc__


@each_type
def test_an_error_is_raised_somewhere_and_tested_by_its_name(
    kind: type[errors.InvalidWords],
) -> None:
    if kind is errors.InvalidWords:
        return
    code = "".join(path.read_text() for path in PACKAGE.glob("*.py") if path.stem != "errors")
    tests = "".join(path.read_text() for path in TESTS.glob("test_*.py"))
    assert re.search(rf"errors\.{kind.__name__}\(", code)
    assert f"errors.{kind.__name__}" in tests


def test_novas_own_name_is_on_it_where_nova_has_one() -> None:
    assert errors.CellsUneven.nova_name == "ImageNUMATopologyAsymmetric"
    assert errors.InvalidCellMemory.nova_name == ""


def test_every_public_name_is_found_and_unknown_ones_are_not() -> None:
    for name in nova.__all__:
        assert getattr(nova, name) is getattr(nova, name)
        assert name in dir(nova)
    with pytest.raises(AttributeError, match="has no attribute 'flavour_topology'"):
        nova.flavour_topology  # noqa: B018
