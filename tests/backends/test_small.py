"""The small backend of the page "Writing a backend" keeps the contract."""

from __future__ import annotations

import itertools
from pathlib import Path

import hypothesis
import hypothesis.stateful
import pytest

from resource_objects.testing.conformance import BackendConformance, state_machine
from tests.backends.small_backend import SmallBackend


class TestSmallBackend(BackendConformance):
    """The conformance kit."""

    backend_class = SmallBackend
    backend_name = "small"

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"small://{tmp_path}/ledger"

    @pytest.fixture
    def another_url(self, tmp_path: Path) -> str:
        return f"small://{tmp_path}/another"


def test_random_steps_agree_with_the_model(tmp_path: Path) -> None:
    numbers = itertools.count()
    machine = state_machine(lambda: SmallBackend.open(f"small://{tmp_path}/{next(numbers)}"))
    settings = hypothesis.settings(max_examples=5, stateful_step_count=20)
    hypothesis.stateful.run_state_machine_as_test(machine, settings=settings)
