"""A lease: renewed while it is entered, on each kind of database, by the database's clock."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.ledger.lease import Lease
from resource_objects.testing.refusals import is_one_of
from tests import databases
from tests.support.patience import until

SHORT = datetime.timedelta(seconds=0.3)


@pytest.fixture
def kept(prepared_database: Callable[[databases.Prepare], str]) -> Iterator[ro.Ledger]:
    """A ledger in which ``job`` holds something for a short time."""
    url = prepared_database(SQLBackend.upgrade_database)
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=4"))
        ledger.claim("job", {"host0": "VCPU=1"}, expires_in=SHORT)
        yield ledger


@pytest.mark.law(6)
def test_a_lease_is_renewed_until_it_is_left_and_tells_when_it_is_lost(kept: ro.Ledger) -> None:
    told: list[Exception] = []
    first = kept.get_claim("job")
    assert first.expires_at is not None
    with Lease(kept, first, expires_in=SHORT, lost=told.append) as lease:
        later = first.expires_at + SHORT
        until(lambda: (kept.get_claim("job").expires_at or later) > later)
        assert not lease.is_lost
        kept.release("job")
        again = kept.claim("job", {"host0": "VCPU=2"})  # a later claim is not its
        until(lambda: lease.is_lost)
    [error] = told
    assert is_one_of(error, "StaleConsumer", "ConsumerNotFound")
    assert kept.get_claim("job").expires_at is None
    assert kept.get_claim("job").id == again.id
    kept.release("job")
    claim = kept.claim("job", {"host0": "VCPU=1"}, expires_in=SHORT)
    with Lease(kept, claim, expires_in=SHORT):
        pass
    until(lambda: [one.consumer for one in kept.expired()] == ["job"])
