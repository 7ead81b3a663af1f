"""The memory backend keeps the contract."""

from __future__ import annotations

import hypothesis
import hypothesis.stateful
import pytest

from resource_objects.backends.memory import MemoryBackend
from resource_objects.testing.conformance import BackendConformance, Requirement, state_machine
from tests.support.lengths import examples


class TestMemoryBackend(BackendConformance):
    """The conformance kit."""

    backend_class = MemoryBackend
    backend_name = "memory"
    lacks = frozenset({Requirement.PERSISTENCE, Requirement.SHARING})

    @pytest.fixture
    def url(self) -> str:
        return "memory://"

    @pytest.fixture
    def another_url(self) -> str:
        return "memory://"


def test_the_kit_draws_as_the_profile_of_the_run_says() -> None:
    """It is imported after that is loaded: settings stay what they were when they were made."""
    of_kit = TestMemoryBackend.test_any_valid_name_is_stored._hypothesis_internal_use_settings  # type: ignore[attr-defined]
    assert (of_kit.max_examples, of_kit.deadline) == (25, None)
    assert of_kit.derandomize is hypothesis.settings().derandomize


@pytest.mark.drawn
def test_random_steps_agree_with_the_model() -> None:
    machine = state_machine(lambda: MemoryBackend.open("memory://"))
    settings = hypothesis.settings(
        max_examples=examples(50),
        stateful_step_count=30,
        deadline=None,
        # a write is drawn in many parts, which a busy machine takes for slow
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.stateful.run_state_machine_as_test(machine, settings=settings)
