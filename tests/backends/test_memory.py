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
