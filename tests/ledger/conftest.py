"""A ledger in memory and on a SQLite file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import pytest

import resource_objects as ro
from resource_objects.providers.columns import Columns
from resource_objects.testing.conformance.suite import host_of
from tests.ledger.numa_hosts import cells


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, sqlite_url: Callable[[str], str]) -> str:
    return "memory://" if request.param == "memory" else sqlite_url("ledger.db")


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    with ro.connect(url) as opened:
        yield opened


@pytest.fixture
def ledger_with(
    url: str, sqlite_url: Callable[..., str]
) -> Iterator[Callable[[Callable[[ro.Ledger], object]], ro.Ledger]]:
    """A function ``build -> ledger`` of that URL, as ``build(ledger)`` leaves one."""
    with contextlib.ExitStack() as opened:

        def made(build: Callable[[ro.Ledger], object]) -> ro.Ledger:
            if url != "memory://":
                sqlite_url("ledger.db", build)
            ledger = opened.enter_context(ro.connect(url))
            if url == "memory://":
                build(ledger)
            return ledger

        yield made


@pytest.fixture
def numa_ledger(ledger_with: Callable[[Callable[[ro.Ledger], object]], ro.Ledger]) -> ro.Ledger:
    """A ledger with host0 and host1, each of two cells."""
    return ledger_with(_numa_hosts)


def _numa_hosts(ledger: ro.Ledger) -> None:
    for name in ("host0", "host1"):
        ledger.sync(host_of(name, cells(), DISK_GB=100))


def around_reads(
    monkeypatch: pytest.MonkeyPatch,
    ledger: ro.Ledger,
    wrap: Callable[[Callable[..., Columns]], Callable[..., Columns]],
) -> None:
    """Wrap the methods that read trees, for the first time and again."""
    for name in ("read", "read_again"):
        monkeypatch.setattr(ledger.backend, name, wrap(getattr(ledger.backend, name)))


def by_consumer(claims: Iterable[ro.Claim]) -> dict[str, ro.Claim]:
    """Return claims by the names of their consumers, in the same order."""
    return {claim.consumer: claim for claim in claims}


def paged(ledger: ro.Ledger, page: int) -> ro.Ledger:
    """Return a ledger that reads so few rows, or trees, at once."""
    ledger._context.page = ledger._context.tree_page = page
    return ledger
