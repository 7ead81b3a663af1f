"""Use over time in a database: the limits of a filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers.use_over_time import UseFilter
from resource_objects.testing.conformance.suite import claim, define, host, later_moment
from resource_objects.testing.refusals import raises_code


@pytest.fixture
def sqlite(sqlite_url: Callable[[str], str]) -> Iterator[SQLBackend]:
    backend = SQLBackend.open(sqlite_url("ledger.db"))
    yield backend
    backend.close()


def test_a_filter_of_too_many_names_is_refused(sqlite: SQLBackend) -> None:
    here = define(sqlite, host("host0"))["host0"]
    since = sqlite.now()
    claim(sqlite, "job-1", {here: "VCPU=1"})
    later_moment()
    many = [f"job-{number}" for number in range(30_000)]
    assert len(sqlite.use_between(since, None, UseFilter(consumers=frozenset(many)), ())) == 1
    wanted = UseFilter(consumers=frozenset([*many, "another"]))
    with raises_code("InvalidField", match="got 30001, expected at most 30000 names"):
        sqlite.use_between(since, None, wanted, ())
    classes = frozenset(f"CUSTOM_{number}" for number in range(30_000))
    with raises_code("ClassNotFound"):
        sqlite.use_between(since, None, UseFilter(classes=classes), ())
