"""What the library logs: a logger per room, and nothing that nobody asked for."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects.backends.retries import RetryPolicy, Transient
from resource_objects.exceptions import DatabaseError


def said(caplog: pytest.LogCaptureFixture, name: str, level: int) -> list[str]:
    """Return the lines of a logger at a level."""
    return [one.getMessage() for one in caplog.records if (one.name, one.levelno) == (name, level)]


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "resource_objects")


def test_a_refused_claim_is_logged_with_its_reasons(caplog: pytest.LogCaptureFixture) -> None:
    with ro.connect("memory://") as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=1"))
        ledger.claim("job-1", {"host0": "VCPU=1"})
        assert not caplog.records
        with pytest.raises(ro.CapacityException):
            ledger.claim("job-2", {"host0": "VCPU=1"})
    (line,) = said(caplog, "resource_objects.ledger", logging.INFO)
    assert line == "refused: host0: VCPU requested 1, free 0 of 1 (job-1 holds 1)"


def test_a_lost_race_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with ro.connect("memory://") as ledger:
        for name in ("host0", "host1"):
            ledger.sync(ro.Provider(name, "VCPU=1"))
        found = ledger.snapshot().candidates(ro.Request("VCPU=1"))
        ledger.claim("job-1", found)
        ledger.claim("job-2", found)
    (line,) = said(caplog, "resource_objects.ledger", logging.DEBUG)
    assert line.startswith(
        "claim of job-2: tried again after: host0: VCPU requested 1, free 0 of 1"
    )


def test_a_search_that_finds_nothing_is_a_refusal_when_it_is_claimed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ro.connect("memory://") as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=1"))
        with pytest.raises(ro.NoCandidates):
            ledger.claim("job-1", ledger.snapshot().candidates(ro.Request("VCPU=2")))
    (line,) = said(caplog, "resource_objects.ledger", logging.INFO)
    assert "no candidate for job-1" in line
    assert "VCPU requested 2" in line


def test_an_upgrade_is_logged_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    for _ in range(2):
        with ro.connect(f"sqlite:///{tmp_path}/lab.db") as ledger:
            ledger.sync(ro.Provider("host0", "VCPU=1"))
    lines = said(caplog, "resource_objects.backends", logging.INFO)
    assert lines
    assert all("lab.db: upgraded by 0" in line for line in lines)
    assert len(lines) == len(set(lines))


def test_a_transaction_that_is_tried_again_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    left = [Transient(DatabaseError("busy", "lab.db", "it is locked"))] * 2

    def attempt() -> str:
        if left:
            raise left.pop()
        return "done"

    assert RetryPolicy(sleep=lambda seconds: None).run(attempt) == "done"
    lines = said(caplog, "resource_objects.backends", logging.DEBUG)
    assert [line.partition(":")[0] for line in lines] == ["try 1", "try 2"]
    assert all("locked" in line for line in lines)
