"""Ledgers for the tests of backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy

from resource_objects.backends.sql.backend import SQLBackend
from tests import databases

#: ``prepare`` of the databases that the tests of this room share.
upgrade = SQLBackend.upgrade_database


@pytest.fixture
def ledger_url(
    database_kind: str,
    sqlite_url: Callable[[str], str],
    request: pytest.FixtureRequest,
) -> str:
    """The URL of an empty ledger, once for each kind of database."""
    if database_kind == "sqlite":
        return sqlite_url("ledger.db")
    prepared: Callable[[databases.Prepare], str] = request.getfixturevalue("prepared_database")
    return prepared(upgrade)


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[SQLBackend]:
    """An open empty ledger, once for each kind of database."""
    backend = SQLBackend.open(ledger_url)
    yield backend
    backend.close()


def ask_all(url: str, *statements: str) -> list[list[Any]]:
    """Run statements on a connection of the test's own; return the rows of each."""
    with databases.connect(sqlalchemy.make_url(url)) as connection:
        return [_rows(connection.exec_driver_sql(statement)) for statement in statements]


def _rows(result: sqlalchemy.CursorResult[Any]) -> list[Any]:
    return list(result) if result.returns_rows else []


def ask(url: str, statement: str) -> list[Any]:
    """Run one statement on a connection of the test's own; return its rows, if it has some."""
    return ask_all(url, statement)[0]
