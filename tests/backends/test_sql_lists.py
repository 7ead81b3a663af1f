"""Lists of SQL databases: large numbers, many names, and the order of names."""

from __future__ import annotations

import pytest
import sqlalchemy

from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers import Provider, Share
from resource_objects.providers.listing import ConsumerFilter, ProviderFilter
from resource_objects.providers.orders import NameAction, NameChange, NameKind, Operation, Write
from resource_objects.testing.conformance.suite import claim, define
from resource_objects.testing.refusals import raises_code
from tests import databases
from tests.backends.conftest import ask


@pytest.mark.parametrize("amount", [2**43, 2**63 - 1])
def test_no_provider_has_more_free_than_an_integer_counts(ledger: SQLBackend, amount: int) -> None:
    most = 2**31 - 1
    root = Provider("host0", f"VCPU={most}:allocation_ratio=4000")
    shared = Share(resource_class="VCPU", of="host0", of_class="VCPU", factor=most)
    root.add("cell", f"VCPU={most}:allocation_ratio=4000", shares=[shared])
    define(ledger, root)

    def having(room: int) -> list[str]:
        wanted = ProviderFilter(room=(("VCPU", room),))
        return [one.name for one in ledger.list_providers(wanted, 10)]

    assert having(1) == ["host0", "cell"]
    assert having(4000) == ["host0", "cell"]
    assert having(4001) == ["host0"]
    assert having(most) == ["host0"]
    assert having(amount) == []


def test_more_names_than_a_statement_takes_are_refused(ledger: SQLBackend) -> None:
    many = frozenset(map(str, range(40_000)))
    with raises_code("InvalidField", match="30000"):
        ledger.list_providers(ProviderFilter(names=many), 10)
    fewer = frozenset([*sorted(many)[:20_000], "host0"])
    define(ledger, Provider("host0", "VCPU=1"))
    assert len(ledger.list_providers(ProviderFilter(names=fewer, uuids=None), 10)) == 1


# --- the order of names, where the database has one of its own ---


def test_consumers_come_by_code_points_whatever_the_database_sorts_by(
    database_kind: str, scratch: databases.Scratch
) -> None:
    url = scratch.create(database_kind)
    if database_kind == "postgresql":
        url = _sorting_as_english(url)
    SQLBackend.upgrade_database(url)
    backend = SQLBackend.open(url)
    try:
        names = define(backend, Provider("host0", "VCPU=100"))
        wanted = ["b", "A", "a", "B", "_", "é", "e", "z", "-", "a b", "a-b", "ab", "Ab"]
        for name in wanted:
            claim(backend, name, {names["host0"]: "VCPU=1"})
            change = NameChange(NameKind.AGGREGATE, NameAction.ENSURE, name)
            backend.commit(Write(Operation(), "name", name, names=(change,)))
        found: list[str] = []
        while page := backend.list_consumers(ConsumerFilter(), 2, found[-1] if found else None):
            found += [record.consumer for record in page]
        assert found == sorted(wanted)
        listed = backend.list_names(NameKind.AGGREGATE, 100)
        assert [one.name for one in listed] == sorted(wanted)
        for kind in (NameKind.RESOURCE_CLASS, NameKind.TRAIT):
            listed = backend.list_names(kind, 1000)
            assert list(listed) == sorted(listed, key=lambda row: row.name)
    finally:
        backend.close()
        scratch.drop(url)


def _sorting_as_english(url: str) -> str:
    """Make a database anew that sorts as people do, if the server knows how."""
    parsed = sqlalchemy.make_url(url)
    server = databases.find_server("postgresql")
    server.drop(parsed)
    how = "TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
    try:
        ask(str(server.admin), f"CREATE DATABASE {parsed.database} {how}")
    except sqlalchemy.exc.DBAPIError:
        pytest.skip("this PostgreSQL knows no ICU")
    assert ask(url, "SELECT 'a' < 'B'")[0][0]
    return url
