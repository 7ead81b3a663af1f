"""Requirements of the conformance kit beyond the contract: each has a name and a test."""

from __future__ import annotations

import inspect

import pytest

from resource_objects.providers.backend import Capability
from resource_objects.testing.conformance import BackendConformance, Requirement
from resource_objects.testing.conformance.requirements import lacking, required_by

RULES = dict(inspect.getmembers(BackendConformance, inspect.isfunction))


def _skipped(*lacks: Requirement | Capability) -> set[str]:
    """Return the names of the rules that a backend does not have to keep."""
    return {name for name, rule in RULES.items() if lacking(rule, lacks)}


@pytest.mark.parametrize("requirement", Requirement)
def test_every_requirement_is_required_by_a_rule(requirement: Requirement) -> None:
    assert [name for name, rule in RULES.items() if requirement in required_by(rule)]


def test_a_backend_that_lacks_nothing_keeps_every_rule() -> None:
    assert not _skipped()


def test_who_lacks_what_another_requirement_is_built_on_lacks_both() -> None:
    outlives, elsewhere = "test_a_ledger_outlives_its_backend", "test_one_of_many_first_processes"
    for lacks in (Requirement.PERSISTENCE, Requirement.SHARING, Requirement.PROCESSES):
        assert any(name.startswith(elsewhere) for name in _skipped(lacks))
        assert (outlives in _skipped(lacks)) == (lacks is Requirement.PERSISTENCE)


def test_an_unsupported_queue_is_not_tested() -> None:
    skipped = _skipped(Capability.WAITING)
    assert "test_pages_of_waiters_continue_after_a_number" in skipped
    assert "test_a_ledger_outlives_its_backend" not in skipped


def test_the_reason_names_the_requirement(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from resource_objects.backends.memory import MemoryBackend
        from resource_objects.testing.conformance import Requirement
        from resource_objects.testing.conformance.definitions import DefinitionRules

        class TestMine(DefinitionRules):
            backend_class = MemoryBackend
            backend_name = "mine"
            lacks = frozenset({Requirement.SHARING})

            @pytest.fixture
            def url(self):
                pytest.fail("opened before it is known whether the rule is kept")
        """
    )
    ran = pytester.runpytest_subprocess("-rs", "-k", "test_two_backends_of_one_ledger_agree")
    ran.assert_outcomes(skipped=1)
    ran.stdout.fnmatch_lines(["SKIPPED*: mine lacks sharing: a URL can be open several times*"])
