"""The small backend of the documentation passes the scenarios of the conformance kit."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects.ledger import Ledger
from resource_objects.testing.conformance import Requirement
from resource_objects.testing.conformance.scenarios import ScenarioRules
from tests.backends.dict_backend import URL, DictBackend


class TestDictBackend(ScenarioRules):
    """The scenarios of the conformance kit."""

    backend_class = DictBackend
    backend_name = "dict"
    lacks = frozenset({Requirement.PERSISTENCE, Requirement.SHARING})

    @pytest.fixture
    def url(self) -> str:
        return URL

    @pytest.fixture
    def another_url(self) -> str:
        return URL


def test_a_ledger_claims_and_releases() -> None:
    ledger = Ledger(DictBackend.open(URL))
    ledger.sync(ro.Provider("host0", "VCPU=8"))
    ledger.claim("job", {"host0": "VCPU=6"})
    with pytest.raises(ro.exceptions.CapacityException, match="VCPU"):
        ledger.claim("other", ledger.snapshot().candidates("VCPU=4"))
    ledger.release("job")
    assert [use.used for use in ledger.usage()] == [0]
