"""What a fresh snapshot sends to a SQL database: it goes by what was written, not by the fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro
from benchmarks.statements import Count, counted
from tests.ledger.device_hosts import CARD, card, host_of

HOSTS = 30
#: Where the feed is; what it tells since, at one moment: where it is, and its rows.
UNCHANGED, USED = 1, 3
#: As many again, and the trees that were touched: their roots, and a statement for each table.
READ = USED + 9


@pytest.fixture
def count() -> Iterator[Count]:
    with counted() as found:
        yield found


@pytest.fixture
def both(count: Count, ledger_url: str, nobody_forgets: None) -> Iterator[list[ro.Ledger]]:
    """A ledger with a snapshot, and that of another process."""
    with ro.connect(ledger_url) as ledger, ro.connect(ledger_url) as other:
        ledger.sync(*(ro.Provider(f"plain{n}", "VCPU=64,MEMORY_MB=64") for n in range(HOSTS)))
        ledger.sync(*(host_of(card(0x10), f"host{n}") for n in range(3)))
        ledger.sync(ro.Provider("licences", "CUSTOM_LICENCE=9"))
        ledger.snapshot()
        yield [ledger, other]


def every_host(ledger: ro.Ledger, number: int) -> None:
    ledger.claim_all({f"job-{number}-{n}": {f"plain{n}": "VCPU=1"} for n in range(HOSTS)})


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        pytest.param(lambda ledger, n: None, UNCHANGED, id="nothing"),
        pytest.param(
            lambda ledger, n: ledger.claim(f"job-{n}", {"plain3": "VCPU=2"}), USED, id="a claim"
        ),
        pytest.param(every_host, USED, id="a claim on every host"),
        pytest.param(
            lambda ledger, n: ledger.claim(f"job-{n}", {f"host{n}": f"DEVICES=1*{CARD}"}),
            USED,
            id="a claim of a device",
        ),
        pytest.param(
            lambda ledger, n: ledger.claim(f"job-{n}", {"licences": "CUSTOM_LICENCE=1"}),
            USED,
            id="a claim of what is counted under a name of its own",
        ),
        pytest.param(
            lambda ledger, n: ledger.sync(ro.Provider("plain3", f"VCPU={n + 70}")),
            READ,
            id="a host defined anew",
        ),
        pytest.param(
            lambda ledger, n: ledger.sync(ro.Provider(f"new{n}", "VCPU=9")), READ, id="a new host"
        ),
    ],
)
def test_statements_of_a_snapshot_after_somebody_else_wrote(
    count: Count,
    both: list[ro.Ledger],
    act: Callable[[ro.Ledger, int], object],
    expected: int,
) -> None:
    ledger, other = both
    act(other, 0)
    ledger.snapshot()  # which learns new names, once
    act(other, 1)
    count.reset()
    picture = ledger.snapshot()
    assert count.statements == expected, count.texts
    assert ledger.feed.is_fresh(picture)
