"""The errors of Nova's words about resources and traits: one type per rule."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest

from resource_objects.exceptions import InvalidInput
from resource_objects.interop import nova
from resource_objects.interop.nova import errors, request_errors

TYPES = sorted(
    (value for value in vars(request_errors).values() if inspect.isclass(value)),
    key=lambda kind: kind.__name__,
)
PACKAGE = Path(inspect.getfile(nova)).parent
TESTS = Path(__file__).parent

each_type = pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)


@each_type
def test_an_error_is_one_of_bad_words_and_the_same_after_a_pickle(
    kind: type[errors.InvalidWords],
) -> None:
    error = kind("resources:VCPU", "x" * 200, "a number")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, errors.InvalidWords)
    assert isinstance(again, InvalidInput)
    assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))
    assert kind.__doc__
    assert kind.nova_name == ""


@each_type
def test_an_error_is_raised_somewhere_and_tested_by_its_name(
    kind: type[errors.InvalidWords],
) -> None:
    if kind is errors.InvalidWords:
        return
    code = "".join(path.read_text() for path in PACKAGE.glob("*.py"))
    tests = "".join(path.read_text() for path in TESTS.glob("test_extra_specs*.py"))
    assert re.search(rf"request_errors\.{kind.__name__}\(", code)
    assert f"request_errors.{kind.__name__}" in tests
