"""The conformance tests for backends of the library and of other projects.

Subclass :class:`BackendConformance`, name the backend, and override two fixtures::

    from resource_objects.testing.conformance import BackendConformance

    class TestMine(BackendConformance):
        backend_class = MyBackend
        backend_name = "mine"

        @pytest.fixture
        def url(self, tmp_path):
            return f"mine://{tmp_path}/ledger"

        @pytest.fixture
        def another_url(self, tmp_path):
            return f"mine://{tmp_path}/another"

Both name empty ledgers that no other test uses. The optional abilities that a backend does not
have are in ``lacks``, a set of
:class:`~resource_objects.testing.conformance.requirements.Requirement`; tests that require them
are skipped. Tests are marked with the numbers of the invariants that they check: load the plug-in
that declares the mark, ``pytest_plugins = ["resource_objects.testing.laws"]``.

One file per subject: ``requirements`` (optional abilities), ``suite`` (fixtures and helpers),
``scenarios`` (tests as text, and their reader), ``definitions``, ``names``, ``claims``,
``located`` (NUMA cells and devices), ``disabled`` (disabled providers), ``use_over_time``,
``lists``, ``feed``, ``races``, ``waiting`` (the queue), ``statistics``, ``server_groups``. Further,
:func:`state_machine` of ``model`` compares a backend with a simple model of dicts, by Hypothesis.

Needs the extra ``resource_objects[test]``.
"""

from __future__ import annotations

import pkgutil

import pytest

_MODULES = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
pytest.register_assert_rewrite(*_MODULES)

# ruff: noqa: E402
from resource_objects.testing.conformance.claims import ClaimRules
from resource_objects.testing.conformance.definitions import DefinitionRules, DescriptionRules
from resource_objects.testing.conformance.disabled import DisabledRules
from resource_objects.testing.conformance.feed import FeedRules, FreshnessRules
from resource_objects.testing.conformance.lists import ListRules
from resource_objects.testing.conformance.located import AgainRules, PlacedRules
from resource_objects.testing.conformance.model import state_machine
from resource_objects.testing.conformance.names import CatalogueRules, NameRules
from resource_objects.testing.conformance.races import ConcurrencyRules
from resource_objects.testing.conformance.requirements import Requirement
from resource_objects.testing.conformance.scenarios import ScenarioRules
from resource_objects.testing.conformance.server_groups import ServerGroupRules
from resource_objects.testing.conformance.statistics import StatisticRules
from resource_objects.testing.conformance.use_over_time import UseOverTimeRules
from resource_objects.testing.conformance.waiting import WaitingRules

__all__ = ["BackendConformance", "Requirement", "state_machine"]


class BackendConformance(
    ScenarioRules,
    DefinitionRules,
    DescriptionRules,
    CatalogueRules,
    ClaimRules,
    PlacedRules,
    AgainRules,
    DisabledRules,
    UseOverTimeRules,
    ListRules,
    FeedRules,
    FreshnessRules,
    NameRules,
    ConcurrencyRules,
    WaitingRules,
    StatisticRules,
    ServerGroupRules,
):
    """All conformance tests; subclass it as the module describes."""
