"""Laws of the ledger for integers, as properties over random trees, claims and reads."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

import resource_objects as ro
from tests.support.lengths import examples

CLASSES = ("VCPU", "MEMORY_MB", "CUSTOM_SEAT")

_amounts = st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 9), min_size=1)
_inventories = st.dictionaries(
    st.sampled_from(CLASSES),
    st.builds(
        ro.IntegerInventory,
        st.integers(1, 20),
        allocation_ratio=st.sampled_from(["0.5", "1", "1.15", "16"]),
        step_size=st.integers(1, 2),
    ),
)
_hosts = st.lists(st.tuples(_inventories, _inventories), min_size=1, max_size=3)
_claims = st.lists(
    st.dictionaries(st.sampled_from(["host0", "host1", "host0/part"]), _amounts, min_size=1),
    max_size=6,
)


def _fill(ledger: ro.Ledger, hosts: list[tuple[dict[str, ro.IntegerInventory], ...]]) -> None:
    for number, (own, below) in enumerate(hosts):
        host = ro.Provider(f"host{number}", own)
        host.add(f"host{number}/part", below)
        ledger.sync(host)


def _claim_all(ledger: ro.Ledger, claims: list[dict[str, dict[str, int]]]) -> list[str]:
    """Claim what fits; return who holds something."""
    for number, asked in enumerate(claims):
        with contextlib.suppress(ro.ResourceObjectsError):
            ledger.claim(f"job-{number}", asked)
    return list(ledger.usage().consumers)


@pytest.mark.law(1, 2)
@pytest.mark.backend("memory")
@hypothesis.given(_hosts, _claims)
def test_used_is_the_sum_of_what_claims_hold(hosts, claims) -> None:  # type: ignore[no-untyped-def]
    with ro.connect() as ledger:
        _fill(ledger, hosts)
        for number, asked in enumerate(claims):
            before = ledger.usage()
            try:
                claim = ledger.claim(f"job-{number}", asked)
            except ro.ResourceObjectsError:
                assert ledger.usage() == before
            else:
                assert claim.by_provider() == {name: ro.Amounts(a) for name, a in asked.items()}
        for use in ledger.usage():
            assert use.used == sum(amount for _, amount in use.holders) <= use.capacity


@pytest.mark.law(3)
@pytest.mark.backend("memory")
@hypothesis.given(_hosts, _claims)
def test_claim_then_release_restores_the_ledger(hosts, claims) -> None:  # type: ignore[no-untyped-def]
    with ro.connect() as ledger:
        _fill(ledger, hosts)
        empty = ledger.usage()
        for consumer in _claim_all(ledger, claims):
            ledger.release(consumer)
        assert ledger.usage() == empty


def _read_everything(ledger: ro.Ledger) -> None:
    ledger.usage()
    for root in ledger.trees():
        ledger.usage(root.name)
        node = ro.ComputeNode.load(ledger, root.name)
        assert node.changes() == {}
        found = ledger.snapshot(root.name).candidates(ro.Request("VCPU=3"))
        assert str(found.explain())
    for consumer in ledger.usage().consumers:
        ledger.get_claim(consumer)


@contextlib.contextmanager
def _file() -> Iterator[tuple[str, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        yield f"sqlite:///{path}", path


@pytest.mark.law(5, 11)
@pytest.mark.backend("sqlite")
@hypothesis.settings(max_examples=examples(15))
@hypothesis.given(_hosts, _claims)
def test_reading_and_searching_never_write(hosts, claims) -> None:  # type: ignore[no-untyped-def]
    with _file() as (url, path):
        with ro.connect(url) as ledger:
            _fill(ledger, hosts)
            _claim_all(ledger, claims)
        before = hashlib.sha256(path.read_bytes()).digest()
        with ro.connect(url) as ledger:
            _read_everything(ledger)
        assert hashlib.sha256(path.read_bytes()).digest() == before
        assert not path.with_name("ledger.db-wal").exists()


@pytest.mark.law(11)
@pytest.mark.backend("memory")
@hypothesis.given(_hosts, _claims)
def test_reading_leaves_the_ledger_as_it_is(hosts, claims) -> None:  # type: ignore[no-untyped-def]
    with ro.connect() as ledger:
        _fill(ledger, hosts)
        _claim_all(ledger, claims)
        before = ledger.backend.read()
        _read_everything(ledger)
        assert ledger.backend.read() == before
