"""The error of Nova's words: which rule is broken, as data, and what a caller can do with it."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest

from resource_objects.exceptions import InvalidInput
from resource_objects.interop import nova
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule

PACKAGE = Path(inspect.getfile(nova)).parent

each_rule = pytest.mark.parametrize("rule", NovaRule, ids=lambda rule: rule.name)


@each_rule
def test_an_error_is_one_of_bad_input_and_the_same_after_a_pickle(rule: NovaRule) -> None:
    error = InvalidNovaInput(rule, "hw:numa_nodes", "x" * 200, "a number")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, InvalidInput)
    assert isinstance(again, ValueError)
    assert (type(again), str(again), vars(again)) == (InvalidNovaInput, str(error), vars(error))
    assert again.rule is rule
    assert again.code == "NovaWordsError"
    assert rule.sentence.endswith(".")


@each_rule
def test_a_rule_is_raised_by_the_package(rule: NovaRule) -> None:
    code = "".join(path.read_text() for path in PACKAGE.glob("*.py") if path.stem != "rules")
    assert re.search(rf"\bNovaRule\.{rule.name}\b", code)


def test_novas_own_name_is_on_it_where_nova_has_one() -> None:
    assert NovaRule.CELLS_UNEVEN.nova_name == "ImageNUMATopologyAsymmetric"
    assert NovaRule.UNKNOWN_ALIAS.nova_name == "PciRequestAliasNotDefined"
    assert NovaRule.INVALID_CELL_MEMORY.nova_name == ""
    assert NovaRule.INVALID_ALIAS_COUNT.nova_name == ""


def test_every_public_name_is_found_and_unknown_ones_are_not() -> None:
    for name in nova.__all__:
        assert getattr(nova, name) is getattr(nova, name)
        assert name in dir(nova)
    with pytest.raises(AttributeError, match="has no attribute 'flavour_topology'"):
        nova.flavour_topology  # noqa: B018
