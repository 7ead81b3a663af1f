"""The tests of `run` and of its lease on each kind of database."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import resource_objects as ro
from resource_objects.backends.sql.backend import SQLBackend
from tests import databases
from tests.cli import test_job
from tests.cli.test_job import lab, ledger, machines, start

__all__ = ["lab", "ledger", "start"]


@pytest.fixture(params=[kind for kind in databases.KINDS if kind != "sqlite"])
def database_kind(request: pytest.FixtureRequest) -> str:
    from tests.conftest import require_server

    kind: str = request.param
    require_server(kind)
    return kind


@pytest.fixture
def url(prepared_database: Callable[[databases.Prepare], str]) -> str:
    url = prepared_database(SQLBackend.upgrade_database)
    with ro.connect(url) as ledger:
        machines(ledger)
    return url


def test_a_lost_lease_is_told(start, ledger) -> None:
    test_job.test_a_lost_lease_is_told_while_the_program_runs(start, ledger)


@pytest.mark.long
def test_a_run_waits(start, ledger) -> None:
    test_job.test_a_run_waits(start, ledger)


@pytest.mark.long
def test_the_lease_ends_the_claim(start, ledger, lab) -> None:
    test_job.test_after_sigkill_the_program_ends_and_the_lease_ends_the_claim(start, ledger, lab)
