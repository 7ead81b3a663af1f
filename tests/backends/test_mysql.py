"""MySQL keeps the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.testing.conformance import BackendConformance
from tests import conftest, databases
from tests.support.checker import problems


class TestMySQLBackend(BackendConformance):
    """The conformance kit."""

    backend_class = SQLBackend
    backend_name = "mysql"

    @pytest.fixture
    def database_kind(self) -> str:
        conftest.require_server("mysql")
        return "mysql"

    @pytest.fixture
    def url(self, prepared_database: Callable[[databases.Prepare], str]) -> Iterator[str]:
        url = prepared_database(SQLBackend.upgrade_database)
        yield url
        assert problems(url, shrunk=True) == []

    @pytest.fixture
    def another_url(self, database_kind: str, scratch: databases.Scratch) -> Iterator[str]:
        url = scratch.create(database_kind)
        SQLBackend.upgrade_database(url)
        yield url
        scratch.drop(url)
