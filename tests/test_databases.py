"""The scratch databases are what their users rely on: empty, their own, put back, and gone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import make_url

from tests import conftest, databases

_VERSION = {
    "sqlite": ("SELECT sqlite_version()", r"^3\."),
    "postgresql": ("SELECT version()", "^PostgreSQL"),
    "mysql": ("SELECT version()", r"MariaDB|^[89]\."),
}


def _run(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Run statements one by one and return the rows of the last."""
    with databases.connect(make_url(url)) as connection:
        for statement in statements[:-1]:
            connection.exec_driver_sql(statement)
        last = connection.exec_driver_sql(statements[-1])
        return [tuple(row) for row in last] if last.returns_rows else []


def _tables(url: str) -> list[str]:
    with databases.connect(make_url(url)) as connection:
        return sqlalchemy.inspect(connection).get_table_names()


# --- database_url ---


def test_the_database_is_of_its_kind(database_kind: str, database_url: str) -> None:
    query, expected = _VERSION[database_kind]
    ((version,),) = _run(database_url, query)
    assert re.search(expected, str(version))


def test_the_database_is_empty_and_keeps_what_is_written(database_url: str) -> None:
    assert _tables(database_url) == []
    text = "Größe 大小 🖥"
    _run(
        database_url,
        "CREATE TABLE kept (id INTEGER PRIMARY KEY, said VARCHAR(40))",
        f"INSERT INTO kept VALUES (1, '{text}')",
    )
    assert _tables(database_url) == ["kept"]
    assert _run(database_url, "SELECT * FROM kept") == [(1, text)]


def test_each_test_has_its_own(
    database_kind: str, database_url: str, scratch: databases.Scratch
) -> None:
    other = scratch.create(database_kind)
    try:
        assert other != database_url
        _run(database_url, "CREATE TABLE mine (id INTEGER)")
        assert _tables(other) == []
    finally:
        scratch.drop(other)


def test_a_dropped_database_is_gone_even_while_somebody_uses_it(
    database_kind: str, scratch: databases.Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "PATIENCE", 2)
    url = scratch.create(database_kind)
    _run(url, "CREATE TABLE held (id INTEGER)")
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as user:
        user.exec_driver_sql("INSERT INTO held VALUES (1)")  # an open transaction
        scratch.drop(url)
        user.invalidate()
    engine.dispose()
    assert not _exists(url)


def _exists(url: str) -> bool:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return Path(str(parsed.database)).exists()
    try:
        _run(url, "SELECT 1")
    except sqlalchemy.exc.OperationalError:
        return False
    return True


# --- prepared_database ---


@pytest.fixture
def own_scratch(tmp_path: Path) -> Iterator[databases.Scratch]:
    made = databases.Scratch(tmp_path)
    yield made
    made.close()


_SCHEMA = (
    "CREATE TABLE version (number VARCHAR(12) PRIMARY KEY)",
    "CREATE TABLE parent (id INTEGER PRIMARY KEY, above INTEGER REFERENCES parent (id))",
    "CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER, twice INTEGER "
    "GENERATED ALWAYS AS (parent * 2) STORED, FOREIGN KEY (parent) REFERENCES parent (id))",
    "INSERT INTO version VALUES ('head')",
)

_prepared_urls: list[str] = []


def _prepare(url: str) -> None:
    _prepared_urls.append(url)
    _run(url, *_SCHEMA)


def _fill(url: str) -> None:
    _run(
        url,
        "INSERT INTO parent VALUES (2, NULL)",
        "INSERT INTO parent VALUES (1, 2)",
        "INSERT INTO child (id, parent) VALUES (1, 1)",
        "UPDATE version SET number = 'changed'",
    )


@pytest.mark.parametrize("turn", [1, 2])
def test_a_prepared_database_is_put_back(
    turn: int, prepared_database: Callable[[databases.Prepare], str]
) -> None:
    url = prepared_database(_prepare)
    assert _run(url, "SELECT number FROM version") == [("head",)]
    assert _run(url, "SELECT * FROM parent") == _run(url, "SELECT * FROM child") == []
    _fill(url)
    assert _run(url, "SELECT twice FROM child") == [(2,)]


def test_it_is_prepared_once_and_dropped_at_the_end(
    database_kind: str, own_scratch: databases.Scratch
) -> None:
    prepared: list[str] = []

    def prepare(url: str) -> None:
        prepared.append(url)
        _prepare(url)

    with own_scratch.prepared(database_kind, prepare) as first:
        _fill(first)
    with own_scratch.prepared(database_kind, prepare) as second:
        assert _run(second, "SELECT count(*) FROM parent") == [(0,)]
    assert [first, second] == prepared * 2
    own_scratch.close()
    assert not _exists(first)


def test_what_cannot_be_put_back_is_the_borrowers_error_and_nobody_elses(
    database_kind: str, own_scratch: databases.Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "PATIENCE", 1)
    lent = own_scratch.prepared(database_kind, _prepare)
    url = lent.__enter__()
    engine = sqlalchemy.create_engine(url)
    _run(url, "INSERT INTO parent VALUES (1, NULL)")
    with engine.connect() as leaked:
        leaked.exec_driver_sql("UPDATE parent SET above = 1")
        with pytest.raises(sqlalchemy.exc.OperationalError, match=r"(?i)lock"):
            lent.__exit__(None, None, None)
        leaked.invalidate()
    engine.dispose()
    with own_scratch.prepared(database_kind, _prepare) as other:
        assert other != url
        assert _run(other, "SELECT number FROM version") == [("head",)]


# --- servers that are not there ---


@pytest.fixture
def nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a server that does not answer."""
    monkeypatch.setenv("RO_TEST_POSTGRESQL", "postgresql+psycopg://nobody:secret@127.0.0.1:1/none")
    for name in ("CI", "RO_TEST_REQUIRE_DATABASES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nobody_there")
def test_a_missing_server_is_a_skip_that_says_what_was_tried() -> None:
    with pytest.raises(pytest.skip.Exception) as told:
        conftest.require_server("postgresql")
    assert "RO_TEST_POSTGRESQL" in str(told.value)
    assert "nobody:***@127.0.0.1:1/none" in str(told.value)
    assert "refused" in str(told.value)


@pytest.mark.usefixtures("nobody_there")
@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("RO_TEST_REQUIRE_DATABASES", "1")])
def test_a_missing_server_is_a_failure_where_databases_are_required(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(pytest.fail.Exception, match="no postgresql server"):
        conftest.require_server("postgresql")


def test_without_a_name_a_local_server_is_tried_over_tcp_and_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOGNAME", "me")
    for kind in ("postgresql", "mysql"):
        tcp, socket = databases._local_servers(kind)
        assert tcp.host == "127.0.0.1" and tcp.password is None
        assert socket.username == "me" and not socket.host
