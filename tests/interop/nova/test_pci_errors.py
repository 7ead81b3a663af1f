"""The errors of Nova's words about devices: one type per rule."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest

from resource_objects.exceptions import InvalidInput
from resource_objects.interop import nova
from resource_objects.interop.nova import errors, pci_errors

TYPES = sorted(
    (value for value in vars(pci_errors).values() if inspect.isclass(value)),
    key=lambda kind: kind.__name__,
)
PACKAGE = Path(inspect.getfile(nova)).parent
TESTS = Path(__file__).parent

each_type = pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)


@each_type
def test_an_error_is_one_of_bad_words_and_the_same_after_a_pickle(
    kind: type[errors.InvalidWords],
) -> None:
    error = kind("alias", "x" * 200, "a name")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, errors.InvalidWords)
    assert isinstance(again, InvalidInput)
    assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))
    assert kind.__doc__


@each_type
def test_an_error_is_raised_somewhere_and_tested_by_its_name(
    kind: type[errors.InvalidWords],
) -> None:
    if kind is errors.InvalidWords:
        return
    code = "".join(path.read_text() for path in PACKAGE.glob("*.py") if path.stem != "pci_errors")
    tests = "".join(path.read_text() for path in TESTS.glob("test_pci_*.py"))
    assert re.search(rf"pci_errors\.{kind.__name__}\(", code)
    assert f"pci_errors.{kind.__name__}" in tests


def test_novas_own_name_is_on_it_where_nova_has_one() -> None:
    assert pci_errors.UnknownAlias.nova_name == "PciRequestAliasNotDefined"
    assert pci_errors.InvalidAliasCount.nova_name == ""
