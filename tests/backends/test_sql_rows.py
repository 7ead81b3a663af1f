"""Many rows in one statement, on every kind of database."""

from __future__ import annotations

import pytest
import sqlalchemy

from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Provider
from resource_objects.testing.conformance.suite import define
from tests.backends.conftest import ask

COUNT = 1_203  # more than one statement of each database takes
NAMES = [f"é'\"%s \\ {number} \N{GRINNING FACE}" for number in range(COUNT)]


def kept(url: str) -> dict[str, str | None]:
    return dict(ask(url, "SELECT name, level FROM aggregates"))


def test_rows_are_inserted_changed_and_deleted(ledger: SQLBackend, ledger_url: str) -> None:
    made = [(name, None if n % 2 else f"level {n}") for n, name in enumerate(NAMES)]
    insert = statements.Insert(tables.aggregates, "name", "level")
    ledger._writing(lambda connection: insert.many(connection, made))
    assert kept(ledger_url) == dict(made)
    numbers = dict(ask(ledger_url, "SELECT name, id FROM aggregates"))
    changed = [
        {"id": numbers[name], "name": f"{name}!", "level": f"{n}" if n % 3 == 1 else None}
        for n, name in enumerate(NAMES[:-1])
    ]

    def change(connection: sqlalchemy.Connection) -> int:
        return statements.update(connection, tables.aggregates, ["id"], changed)

    assert ledger._writing(change) == COUNT - 1
    wanted = {row["name"]: row["level"] for row in changed}
    assert kept(ledger_url) == {**wanted, NAMES[-1]: made[-1][1]}
    assert ledger._writing(change) == COUNT - 1  # found, though nothing is different

    def delete(connection: sqlalchemy.Connection) -> int:
        gone = [(row["id"], row["name"]) for row in changed[5:]]
        return statements.delete(connection, tables.aggregates, ["id", "name"], gone)

    assert ledger._writing(delete) == COUNT - 6
    assert ledger._writing(delete) == 0
    assert len(kept(ledger_url)) == 6


def test_no_rows_are_no_statement(ledger: SQLBackend) -> None:
    def work(connection: sqlalchemy.Connection) -> int:
        statements.Insert(tables.aggregates, "name").many(connection, [])
        deleted = statements.delete(connection, tables.aggregates, ["id"], [])
        return deleted + statements.update(connection, tables.aggregates, ["id"], [])

    assert ledger._writing(work) == 0


@pytest.mark.parametrize("figure", [None, 1, 2**31 - 1])
def test_figures_and_nothing_may_be_mixed(
    ledger: SQLBackend, ledger_url: str, figure: int | None
) -> None:
    most = 2**31 - 1
    define(ledger, Provider("host0", f"VCPU={most},MEMORY_MB={most}:allocation_ratio=4000"))
    numbers = [row[0] for row in ask(ledger_url, "SELECT id FROM inventories ORDER BY id")]
    changed = [
        {"id": number, "max_unit": one, "used": used}
        for number, one, used in zip(numbers, (None, figure), (2**63 - 1, 0), strict=True)
    ]
    for order in (changed, changed[::-1]):
        assert ledger._writing(statements.update, tables.inventories, ["id"], order) == 2
        found = ask(ledger_url, "SELECT id, max_unit, used FROM inventories ORDER BY id")
        assert [dict(zip(changed[0], row, strict=True)) for row in found] == changed
