"""The tables, on every kind of database: as the models say, guarded, and of which version."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import alembic.config
import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.pool import NullPool

from resource_objects.backends.sql import migrations, tables
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers.statistics import Statistic, StatisticsOrder
from resource_objects.testing.conformance.races import together
from resource_objects.testing.conformance.suite import claim, define, host, ledger_state
from resource_objects.testing.refusals import raises_code
from tests.backends.conftest import ask, ask_all


@pytest.fixture
def made(database_url: str) -> Iterator[sqlalchemy.Engine]:
    """An engine of the test's own on a database just upgraded."""
    SQLBackend.upgrade_database(database_url)
    engine = sqlalchemy.create_engine(database_url, poolclass=NullPool)
    yield engine
    engine.dispose()


def _run(url: str, *statements: str) -> None:
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


# --- migrations and models ---


def test_migrations_make_what_the_models_say(made: sqlalchemy.Engine) -> None:
    _check_tables(made)


def _check_tables(made: sqlalchemy.Engine) -> None:
    with made.connect() as connection:
        options = {"version_table": migrations.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, tables.metadata) == []
    inspector = sqlalchemy.inspect(made)
    assert set(inspector.get_table_names()) == {*tables.metadata.tables, migrations.VERSION_TABLE}
    for table in tables.metadata.sorted_tables:  # Alembic does not look at CHECKs
        wanted = {
            constraint.name
            for constraint in table.constraints
            if isinstance(constraint, sqlalchemy.CheckConstraint)
        }
        assert {found["name"] for found in inspector.get_check_constraints(table.name)} == wanted


def test_who_says_nothing_of_itself_is_in_no_index_of_that(made: sqlalchemy.Engine) -> None:
    found = {
        index["column_names"][0]: list(index.get("dialect_options", {}).values())
        for index in sqlalchemy.inspect(made).get_indexes("consumers")
    }
    for column in ("project_id", "user_id", "consumer_type", "expires_at"):
        said = " ".join(map(str, found[column]))
        # MariaDB and MySQL have no such indexes
        assert (f"{column} IS NOT NULL" in said) is (made.dialect.name != "mysql")


_GOOD = {
    "total": 8,
    "reserved": 1,
    "min_unit": 1,
    "max_unit": None,
    "step_size": 1,
    "ratio_millionths": 1_500_000,
    "capacity": 10,
    "used": 0,
}


_WRONG: list[dict[str, Any]] = [
    {"total": 0, "reserved": 0, "capacity": 0},
    {"reserved": -1, "capacity": 13},
    {"reserved": 9, "capacity": -2},
    {"min_unit": 0},
    {"max_unit": 0},
    {"max_unit": 9},
    {"min_unit": 3, "max_unit": 2},
    {"step_size": 0},
    {"ratio_millionths": 0, "capacity": 0},
    {"ratio_millionths": 4_000_000_001, "capacity": 28_000_000_007},
    {"capacity": 11},
    {"capacity": 9},
    {"capacity": 2**62},
    {"used": -1},
]


@pytest.mark.law(7, 8)
def test_the_database_refuses_figures_that_cannot_be(ledger: SQLBackend, ledger_url: str) -> None:
    define(ledger, host("host0", "VCPU=1"), host("host1", {}))
    provider, resource_class = tables.resource_providers.c, tables.resource_classes.c
    insert = sqlalchemy.insert(tables.inventories)
    engine = sqlalchemy.create_engine(ledger_url, poolclass=NullPool)
    with engine.connect() as connection:
        numbers = {
            "provider_id": connection.scalar(
                sqlalchemy.select(provider.id).where(provider.name == "host1")
            ),
            "class_id": connection.scalar(sqlalchemy.select(resource_class.id)),
        }
        for wrong in _WRONG:
            with pytest.raises(sqlalchemy.exc.DBAPIError):
                connection.execute(insert, {**numbers, **_GOOD, **wrong})
            connection.rollback()
        connection.execute(insert, {**numbers, **_GOOD})
        connection.rollback()


@pytest.mark.law(1, 8)
def test_the_database_refuses_shares_and_units_that_cannot_be(
    ledger: SQLBackend, ledger_url: str
) -> None:
    names = define(ledger, host("host0", "VCPU=8"), host("host1", "VCPU=8"))
    claim(ledger, "a", {names["host0"]: "VCPU=1"})
    claim(ledger, "b", {names["host0"]: "VCPU=1", names["host1"]: "VCPU=1"})
    [(one, class_), (other, _)] = ask(
        ledger_url, "SELECT provider_id, class_id FROM inventories ORDER BY id"
    )
    query = "SELECT id FROM consumers ORDER BY name"
    [first, second] = [row[0] for row in ask(ledger_url, query)]
    good = f"INSERT INTO shares VALUES ({one}, {class_}, {other}, {class_}, 1)"
    unit = f"INSERT INTO allocation_units VALUES ({one}, 'cpu0', {first}, {class_})"
    ask_all(ledger_url, good, unit)
    for wrong in (
        good,
        good.replace(", 1)", ", 0)"),
        f"INSERT INTO shares VALUES ({other}, {class_}, {one}, {class_}, 0)",
        f"INSERT INTO shares VALUES ({other}, {class_}, {one}, {class_ + 1}, 1)",
        f"INSERT INTO shares VALUES ({other}, {class_}, {one + 99}, {class_}, 1)",
        f"DELETE FROM inventories WHERE provider_id = {other}",
        unit,
        f"INSERT INTO allocation_units VALUES ({one}, 'cpu0', {second}, {class_})",
        f"INSERT INTO allocation_units VALUES ({one}, 'cpu1', {second + 99}, {class_})",
    ):
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            _run(ledger_url, *_STRICT.get(ledger._database.dialect, ()), wrong)
    _run(
        ledger_url,
        *_STRICT.get(ledger._database.dialect, ()),
        f"DELETE FROM allocations WHERE consumer_id = {first}",
    )
    assert ask(ledger_url, "SELECT unit FROM allocation_units") == []


@pytest.mark.law(8)
def test_the_database_refuses_statistics_that_cannot_be(
    ledger: SQLBackend, ledger_url: str
) -> None:
    names = define(ledger, host("host0", "VCPU=1"))
    up = functools.partial(Statistic, "is_up")
    ledger.put_statistics(StatisticsOrder({names["host0"]: (up(True),)}))
    [(provider,)] = ask(ledger_url, "SELECT provider_id FROM statistics")
    ask(ledger_url, "DELETE FROM statistics")
    good = f"({provider}, 'is_up', 'true', '2026-11-22 12:00:00', 'agent')"
    columns = "(provider_id, name, value, since, source)"
    strict = _STRICT.get(ledger._database.dialect, ())
    for wrong in (
        good.replace("'true'", "NULL"),
        good.replace(f"({provider},", f"({provider + 99},"),
        good.replace("'agent'", "NULL"),
        f"{good}, {good}",
    ):
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            _run(ledger_url, *strict, f"INSERT INTO statistics {columns} VALUES {wrong}")
    _run(ledger_url, *strict, f"INSERT INTO statistics {columns} VALUES {good}")
    unlink = "UPDATE resource_providers SET root_id = NULL"
    gone = "DELETE FROM inventories", unlink, "DELETE FROM resource_providers"
    _run(ledger_url, *strict, *gone)
    assert ask(ledger_url, "SELECT since FROM statistics") == []


#: What makes a database check what it is told to (the library says so on each connection).
_STRICT = {"sqlite": ["PRAGMA foreign_keys = ON"]}


# --- versions ---


def test_upgrading_says_what_it_did_and_does_it_once(database_url: str) -> None:
    steps_run = SQLBackend.upgrade_database(database_url)
    assert [step.split()[0] for step in steps_run] == ["0001"]
    assert SQLBackend.upgrade_database(database_url) == []


def test_many_upgrades_at_once_run_each_step_once(database_url: str) -> None:
    outcomes = together(lambda _: SQLBackend.upgrade_database(database_url), workers=4)
    assert sorted(map(len, outcomes)) == [0, 0, 0, 1], outcomes


def test_an_upgrade_that_was_cut_short_goes_on(
    database_kind: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    monkeypatch.setattr(sqlalchemy.Index, "create", die)
    with pytest.raises(RuntimeError, match="killed"):
        SQLBackend.upgrade_database(database_url)
    monkeypatch.undo()
    engine = sqlalchemy.create_engine(database_url, poolclass=NullPool)
    left = set(sqlalchemy.inspect(engine).get_table_names())
    # MySQL commits each table as it is made
    assert ("resource_providers" in left) == (database_kind == "mysql")
    assert len(SQLBackend.upgrade_database(database_url)) == 1
    _check_tables(engine)


def _description() -> Iterator[str]:
    """Yield a line for each table, column, constraint and index, with the types per database."""
    dialects = [load() for load in (sqlite.dialect, postgresql.dialect, mysql.dialect)]
    for table in tables.metadata.sorted_tables:
        yield f"{table.name} {sorted(table.dialect_kwargs.items())}"
        for column in table.columns:
            types = [column.type.compile(dialect=dialect) for dialect in dialects]
            default = column.server_default and str(column.server_default.arg)  # type: ignore[attr-defined]
            yield f"{column.name} {types} {column.nullable} {column.autoincrement} {default}"
        for constraint in sorted(table.constraints, key=lambda one: str(one.name)):
            names = list(constraint.columns.keys()) if hasattr(constraint, "columns") else []
            rule = str(getattr(constraint, "sqltext", ""))
            keys = [
                (key.target_fullname, key.ondelete) for key in getattr(constraint, "elements", ())
            ]
            yield f"{type(constraint).__name__} {constraint.name} {names} {rule} {keys}"
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            where = index.dialect_options["sqlite"]["where"]
            yield f"{index.name} {index.columns.keys()} {index.unique} {where}"


def test_the_fingerprint_is_that_of_the_tables() -> None:
    # until 0.1.0 is tagged: put the fingerprint that the failure shows into ``migrations``
    text = "\n".join(_description())
    assert hashlib.sha256(text.encode()).hexdigest()[:32] == migrations.FINGERPRINT


def test_tables_of_an_unreleased_version_are_refused_by_name(database_url: str) -> None:
    SQLBackend.upgrade_database(database_url)
    _run(database_url, "UPDATE ledger_schema SET fingerprint = 'another'")
    _check_refused_as_unreleased(database_url)


def _check_refused_as_unreleased(url: str) -> None:
    for use in (SQLBackend.open, SQLBackend.upgrade_database):
        with raises_code("DatabaseUnavailable", match="unreleased version"):
            use(url)
    assert "unreleased version" in SQLBackend.database_status(url)["status"]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE consumers DROP COLUMN writes",
        "ALTER TABLE resource_providers ADD COLUMN another INTEGER",
        "DROP TABLE server_groups",
    ],
)
def test_tables_without_a_fingerprint_are_compared(database_url: str, change: str) -> None:
    SQLBackend.upgrade_database(database_url)
    _run(database_url, "DROP TABLE ledger_schema", change)
    _check_refused_as_unreleased(database_url)


def test_the_same_tables_without_a_fingerprint_are_upgraded(
    database_kind: str, database_url: str
) -> None:
    SQLBackend.upgrade_database(database_url)
    _run(database_url, "DROP TABLE ledger_schema")
    assert "lacks tables" in SQLBackend.database_status(database_url)["status"]
    if database_kind == "sqlite":  # which opening does
        SQLBackend.open(database_url).close()
    else:
        with raises_code("SchemaTooOld", match="db upgrade"):
            SQLBackend.open(database_url)
        assert len(SQLBackend.upgrade_database(database_url)) == 1
    assert SQLBackend.upgrade_database(database_url) == []
    assert ask(database_url, "SELECT fingerprint FROM ledger_schema") == [(migrations.FINGERPRINT,)]


def test_a_newer_database_that_admits_this_library_is_used(database_url: str) -> None:
    SQLBackend.upgrade_database(database_url)
    _run(database_url, f"UPDATE {migrations.VERSION_TABLE} SET version_num = '0007'")
    assert SQLBackend.upgrade_database(database_url) == []
    backend = SQLBackend.open(database_url)
    names = define(backend, host())
    claim(backend, "job", {names["host0"]: "VCPU=1"})
    assert len(ledger_state(backend).allocations) == 1
    backend.close()


def test_a_newer_database_that_shuts_it_out_is_left_alone(database_url: str) -> None:
    SQLBackend.upgrade_database(database_url)
    _run(database_url, "UPDATE ledger_info SET oldest_library = 3")
    for version in ("0007", "a17be"):
        _run(database_url, f"UPDATE {migrations.VERSION_TABLE} SET version_num = '{version}'")
        for use in (SQLBackend.open, SQLBackend.upgrade_database):
            with raises_code("SchemaTooNew"):
                use(database_url)


def test_an_older_database_needs_an_upgrade(database_kind: str, database_url: str) -> None:
    SQLBackend.upgrade_database(database_url)
    _run(database_url, f"DELETE FROM {migrations.VERSION_TABLE}")
    if database_kind == "sqlite":  # which opening does
        SQLBackend.open(database_url).close()
    else:
        with raises_code("SchemaTooOld", match="db upgrade"):
            SQLBackend.open(database_url)
        assert len(SQLBackend.upgrade_database(database_url)) == 1
    assert SQLBackend.upgrade_database(database_url) == []


def test_a_database_of_before_is_refused_by_name(database_url: str) -> None:
    _run(database_url, "CREATE TABLE schema_info (id INTEGER, oldest_library INTEGER)")
    _run(database_url, f"CREATE TABLE {migrations.VERSION_TABLE} (version_num VARCHAR(32))")
    _run(database_url, f"INSERT INTO {migrations.VERSION_TABLE} VALUES ('0002')")
    for use in (SQLBackend.open, SQLBackend.upgrade_database):
        with raises_code("DatabaseUnavailable", match=r"before 0\.1\.0"):
            use(database_url)


def test_the_alembic_command_makes_what_the_library_makes(
    database_url: str, made: sqlalchemy.Engine, tmp_path: Path
) -> None:
    ini = tmp_path / "alembic.ini"
    ini.write_text(f"[alembic]\nscript_location = {Path(migrations.__file__).parent}\n")
    _run(database_url, f"DELETE FROM {migrations.VERSION_TABLE}")
    for order in (["stamp", "head"], ["current"], ["check"], ["upgrade", "head"]):
        alembic.config.main(["-c", str(ini), "-x", f"url={database_url}", *order], prog="alembic")
    _check_tables(made)


def test_tables_of_another_program_are_left_alone(database_url: str) -> None:
    _run(database_url, "CREATE TABLE resource_providers (id INTEGER, name VARCHAR(10))")
    for use in (SQLBackend.open, SQLBackend.upgrade_database):
        with raises_code("DatabaseUnavailable", match="not those of a ledger"):
            use(database_url)
    _run(database_url, "INSERT INTO resource_providers VALUES (1, 'mine')")
