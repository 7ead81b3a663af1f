"""PostgreSQL keeps the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import sqlalchemy

from resource_objects.backends.sql import statements
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.testing.conformance import BackendConformance
from tests import conftest, databases
from tests.support.checker import problems


class TestPostgreSQLBackend(BackendConformance):
    """The conformance kit."""

    backend_class = SQLBackend
    backend_name = "postgresql"

    @pytest.fixture
    def database_kind(self) -> str:
        conftest.require_server("postgresql")
        return "postgresql"

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


ARRAYS: tuple[tuple[str, list[object]], ...] = (
    ("text", ["VCPU", "NULL", "null", "", " ", "a,b", "{c}", "é \N{GRINNING FACE}", "it's", "%s"]),
    ("text", ['say "no"', "\\", '"', "\\\\", 'a","b', "plain"]),
    ("text", ["one", None, 'two"']),
    ("text", [None, None]),
    ("bigint", [1, -5, 2**63 - 1, 0]),
    ("bigint", [None, 3, None]),
    ("bigint", [None]),
    ("uuid", ["fe115dd3-7b41-4c82-9b67-99839a15c332"] * 2),
)


class TestArrays:
    """Many values as one parameter."""

    @pytest.fixture
    def database_kind(self) -> str:
        conftest.require_server("postgresql")
        return "postgresql"

    @pytest.mark.parametrize(("kind", "values"), ARRAYS, ids=repr)
    def test_an_array_is_read_as_it_was_given(
        self,
        prepared_database: Callable[[databases.Prepare], str],
        kind: str,
        values: list[object],
    ) -> None:
        def work(connection: sqlalchemy.Connection) -> object:
            text = f"SELECT CAST(%s AS {kind}[])"
            return connection.exec_driver_sql(text, (statements.array(values),)).scalar()

        backend = SQLBackend.open(prepared_database(SQLBackend.upgrade_database))
        assert backend._writing(work) == values
        backend.close()
