"""What a write to a SQL database may say, and how it is tried again."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.backends.sql import chunks, classes, operations, standing
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.backends.sql.chunks import check_size
from resource_objects.backends.sql.figures import Figures
from resource_objects.backends.sql.providers import Providers
from resource_objects.backends.sql.retry import Retries
from resource_objects.providers import Provider
from resource_objects.providers.definition import DefinitionChanges, diff
from resource_objects.providers.orders import (
    ClaimOrder,
    Delta,
    NameAction,
    NameChange,
    NameKind,
    Operation,
    Release,
    Replacement,
    Write,
)
from resource_objects.testing.conformance.base import define, host, kept, order, picture

# --- outcomes and the feed ---


def test_a_gang_says_each_request_once(ledger: SQLBackend) -> None:
    [here] = define(ledger, host("host0", "VCPU=999")).values()
    request = json.dumps({"request": "x" * 1000})
    gang = [
        ClaimOrder(f"job-{n}", (Delta(here, "VCPU", 1),), request=(request, None, "{}")[n % 3])
        for n in range(30)
    ]
    write = Write(Operation(), "orders", "gang", orders=tuple(gang))
    claims = ledger.commit(write)
    assert [claim.request for claim in claims[:3]] == [request, None, "{}"]
    found = ledger.outcome(write.operation)
    assert found is not None and found.claims == claims == ledger.commit(write)
    text = operations.to_text(claims)
    assert text is not None and text.count("x" * 1000) == 1


def test_a_gang_whose_requests_alone_are_too_long_for_a_server_is_done(ledger: SQLBackend) -> None:
    [here] = define(ledger, host("host0", "VCPU=9999")).values()
    request = json.dumps({"request": "x" * 20_000})
    gang = [ClaimOrder(f"job-{n}", (Delta(here, "VCPU", 1),), request=request) for n in range(1000)]
    claims = order(ledger, *gang)
    assert len(claims) == 1000
    assert ledger.held("job-999") == claims[-1]
    other = request * 2
    order(ledger, *(Replacement(one.consumer, one.deltas, request=other) for one in gang))
    held = ledger.held("job-999")
    assert held is not None and held.request == other
    order(ledger, *(Release(one.consumer) for one in gang))
    assert picture(ledger).used("host0", "VCPU") == 0


def test_an_outcome_that_no_server_takes_is_refused(
    ledger: SQLBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    [here] = define(ledger, host("host0", "VCPU=99")).values()
    gang = [ClaimOrder(f"job-{n}", (Delta(here, "VCPU", 1),)) for n in range(40)]
    before, cursor = picture(ledger), ledger.cursor()
    monkeypatch.setattr(chunks, "MOST_TEXT", 5000)
    with pytest.raises(exceptions.InvalidField, match=r"write: got \d+, expected at most 5000"):
        order(ledger, *gang)
    assert (picture(ledger), ledger.cursor()) == (before, cursor)
    order(ledger, *gang[:10])


def test_a_change_that_no_server_takes_is_refused(
    ledger: SQLBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [host(f"host{n}") for n in range(100)]
    monkeypatch.setattr(chunks, "MOST_TEXT", 3000)
    changes = [diff(None, root).creates[0] for root in roots]
    with pytest.raises(exceptions.InvalidField, match="do it in parts"):
        ledger.define(Operation(), DefinitionChanges("hosts", tuple(changes)))
    assert picture(ledger).providers == {}
    ledger.define(Operation(), DefinitionChanges("hosts", tuple(changes[:50])))


def test_what_a_driver_adds_counts() -> None:
    check_size(["x" * chunks.MOST_TEXT])
    with pytest.raises(exceptions.InvalidField):
        check_size(["x" * chunks.MOST_TEXT, "x"])
    with pytest.raises(exceptions.InvalidField):
        check_size(['"x' * (chunks.MOST_TEXT // 2)])


# --- names that go while they are looked up ---


@pytest.mark.parametrize("looked", [1, 2])
def test_a_name_that_goes_while_it_is_looked_up_is_made_again(
    ledger: SQLBackend, monkeypatch: pytest.MonkeyPatch, looked: int
) -> None:
    look = classes.Names._look
    looks: list[Any] = []

    def once_blind(self: Any, connection: Any, names: Any) -> dict[str, int]:
        found = look(self, connection, names)
        if "CUSTOM_A" in names:
            looks.append(names)
            if len(looks) <= looked:
                found.pop("CUSTOM_A", None)
        return found

    monkeypatch.setattr(classes.Names, "_look", once_blind)
    names = define(ledger, Provider("host0", {"CUSTOM_A": 1}))
    assert picture(ledger).providers["host0"].uuid == names["host0"]
    assert len(looks) >= 2 + (looked == 2)


# --- locks ---


def test_a_reshape_locks_providers_and_inventories_once(
    ledger: SQLBackend, database_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database_kind == "sqlite":
        pytest.skip("a writer is alone there")
    names = define(ledger, *(host(f"host{n}", "VCPU=8") for n in range(3)))
    order(ledger, ClaimOrder("job", (Delta(names["host0"], "VCPU", 1),)))
    tree = kept(ledger, "host1")
    tree.update(inventories=Provider("x", "VCPU=9").inventories)
    changes = diff(kept(ledger, "host1"), tree)
    move = Replacement("job", (Delta(names["host2"], "VCPU", 1),))
    providers, inventories = [], []
    lock_providers, lock_inventories = Providers.lock, Figures.lock

    def providers_locked(self: Any, uuids: Any) -> None:
        providers.append(set(uuids))
        lock_providers(self, uuids)

    def inventories_locked(self: Any, others: Any, made: Any, numbers: Any) -> None:
        lock_inventories(self, others, made, numbers)
        inventories.append(set(self._used))

    monkeypatch.setattr(Providers, "lock", providers_locked)
    monkeypatch.setattr(Figures, "lock", inventories_locked)
    monkeypatch.delattr(standing, "_locked")
    demands: dict[str, Any] = {"unchanged": ((names["host0"], 0),), "reported": (names["host2"],)}
    ledger.commit(Write(Operation(), "reshape", "host1", changes, (move,), **demands))
    assert providers == [set(names.values())]
    assert [len(numbers) for numbers in inventories] == [3]
    assert picture(ledger).used("host2", "VCPU") == 1


def test_reshapes_and_claims_of_the_same_places_get_through(ledger: SQLBackend) -> None:
    names = define(ledger, *(host(f"host{n}", "VCPU=999") for n in range(3)))
    uuids = list(names.values())
    order(ledger, ClaimOrder("job", (Delta(uuids[0], "VCPU", 1),)))
    raised: list[Exception] = []

    def reshape(number: int) -> None:
        for turn in range(6):
            try:
                _reshape(ledger, number, turn, uuids)
            except exceptions.StaleDefinition:
                pass
            except Exception as error:
                raised.append(error)

    threads = [threading.Thread(target=reshape, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == []
    assert picture(ledger).used("host0", "VCPU") >= 0  # which checks the sums


def _reshape(ledger: SQLBackend, number: int, turn: int, uuids: list[str]) -> None:
    """Change a host, and hold something of all of them, in one write."""
    tree = kept(ledger, f"host{number % 3}")
    wanted = Provider("x", f"VCPU={900 + turn + number}")
    before = kept(ledger, f"host{number % 3}")
    tree.update(inventories=wanted.inventories)
    deltas = tuple(Delta(uuid, "VCPU", 1 + turn) for uuid in uuids)
    moves = (Replacement(f"job-{number}", deltas if number % 2 else deltas[::-1]),)
    changes = diff(before, tree)
    if changes:
        ledger.commit(Write(Operation(), "reshape", tree.name, changes, moves))


def test_a_rename_and_the_removal_of_a_name_meet_definitions(ledger: SQLBackend) -> None:
    ensure = NameChange(NameKind.RESOURCE_CLASS, NameAction.ENSURE, "CUSTOM_A")
    delete = NameChange(NameKind.RESOURCE_CLASS, NameAction.DELETE, "CUSTOM_A")
    raised: list[Exception] = []

    def turn_over(change: NameChange) -> None:
        for _ in range(20):
            try:
                ledger.commit(Write(Operation(), "names", "CUSTOM_A", names=(change,)))
            except (exceptions.ClassNotFound, exceptions.ClassInUse):
                pass
            except Exception as error:
                raised.append(error)

    threads = [threading.Thread(target=turn_over, args=(one,)) for one in (ensure, delete) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == []


# --- retries ---


@pytest.mark.parametrize("tries", [0, -1, 1.5, True, "3"])
def test_a_transaction_is_tried_at_least_once(tries: Any) -> None:
    with pytest.raises(exceptions.InvalidField, match="tries"):
        Retries(tries=tries)


@pytest.mark.parametrize("name", ["seconds", "first_sleep", "longest_sleep"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), "1"])
def test_no_time_of_a_retry_is_negative(name: str, value: Any) -> None:
    with pytest.raises(exceptions.InvalidField, match=name):
        Retries(**{name: value})
    zero: dict[str, Any] = {name: 0}
    Retries(tries=1, **zero)
