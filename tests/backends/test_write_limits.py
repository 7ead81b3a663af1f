"""What a write to a SQL database may say, and how it is tried again."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from resource_objects import exceptions
from resource_objects.backends.retries import RetryPolicy
from resource_objects.backends.sql import names, rows
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.backends.sql.rows import TreeRows
from resource_objects.providers import Provider
from resource_objects.providers.definition import diff
from resource_objects.providers.orders import (
    ConsumerOrder,
    NameAction,
    NameChange,
    NameKind,
    Operation,
    StoredRequest,
    Use,
    Write,
)
from resource_objects.testing.conformance.suite import (
    define,
    host,
    ledger_state,
    order,
    stored_tree,
)
from resource_objects.testing.refusals import raises_code

# --- outcomes and the feed ---


def test_a_gang_whose_requests_alone_are_too_long_for_a_server_is_done(ledger: SQLBackend) -> None:
    [here] = define(ledger, host("host0", "VCPU=9999")).values()
    request = StoredRequest(json.dumps({"request": "x" * 20_000}))
    gang = [
        ConsumerOrder.claim(f"job-{n}", (Use(here, "VCPU", 1),), request=request)
        for n in range(1000)
    ]
    claims = order(ledger, *gang)
    assert len(claims) == 1000
    assert ledger.consumer("job-999") == claims[-1]
    other = StoredRequest(json.dumps({"request": "y" * 40_000}))
    order(ledger, *(ConsumerOrder.replace(one.consumer, one.uses, request=other) for one in gang))
    held = ledger.consumer("job-999")
    assert held is not None and held.request == other
    order(ledger, *(ConsumerOrder.release(one.consumer) for one in gang))
    assert ledger_state(ledger).used("host0", "VCPU") == 0


# --- names that go while they are looked up ---


@pytest.mark.parametrize("looked", [1, 2])
def test_a_name_that_goes_while_it_is_looked_up_is_made_again(
    ledger: SQLBackend, monkeypatch: pytest.MonkeyPatch, looked: int
) -> None:
    look = names.NameNumbers._look
    looks: list[Any] = []

    def once_blind(self: Any, connection: Any, asked: Any) -> dict[str, int]:
        found = look(self, connection, asked)
        if "CUSTOM_A" in asked:
            looks.append(asked)
            if len(looks) <= looked:
                found.pop("CUSTOM_A", None)
        return found

    monkeypatch.setattr(names.NameNumbers, "_look", once_blind)
    uuids = define(ledger, Provider("host0", {"CUSTOM_A": 1}))
    assert ledger_state(ledger).providers["host0"].uuid == uuids["host0"]
    assert len(looks) >= 2 + (looked == 2)


# --- locks ---


def test_a_reshape_locks_providers_and_inventories_once(
    ledger: SQLBackend, database_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database_kind == "sqlite":
        pytest.skip("a writer is alone there")
    names = define(ledger, *(host(f"host{n}", "VCPU=8") for n in range(3)))
    order(ledger, ConsumerOrder.claim("job", (Use(names["host0"], "VCPU", 1),)))
    tree = stored_tree(ledger, "host1")
    tree.update(inventories=Provider("x", "VCPU=9").inventories)
    changes = diff(stored_tree(ledger, "host1"), tree)
    move = ConsumerOrder.replace("job", (Use(names["host2"], "VCPU", 1),))
    providers, inventories = [], []
    lock_providers, lock_inventories = TreeRows.lock, TreeRows._lock_inventories

    def providers_locked(self: Any) -> None:
        lock_providers(self)
        providers.append(set(self._numbers))

    def inventories_locked(self: Any, keys: Any, others: Any = ()) -> None:
        keys = set(keys)
        lock_inventories(self, keys, others)
        inventories.append({*others, *(self._inventories[key] for key in keys)})

    monkeypatch.setattr(TreeRows, "lock", providers_locked)
    monkeypatch.setattr(TreeRows, "_lock_inventories", inventories_locked)
    monkeypatch.delattr(rows, "lock_providers")
    unchanged = ((names["host0"], stored_tree(ledger, "host0").generation),)
    demands: dict[str, Any] = {"unchanged": unchanged, "reported": (names["host2"],)}
    ledger.commit(Write(Operation(), "reshape", "host1", changes, (move,), **demands))
    assert providers == [set(names.values())]
    assert [len(numbers) for numbers in inventories if numbers] == [3]
    assert ledger_state(ledger).used("host2", "VCPU") == 1


def test_reshapes_and_claims_of_the_same_places_get_through(ledger: SQLBackend) -> None:
    names = define(ledger, *(host(f"host{n}", "VCPU=999") for n in range(3)))
    uuids = list(names.values())
    order(ledger, ConsumerOrder.claim("job", (Use(uuids[0], "VCPU", 1),)))
    raised: list[Exception] = []

    def reshape(number: int) -> None:
        for turn in range(6):
            try:
                _reshape(ledger, number, turn, uuids)
            except exceptions.Stale as error:
                if not error.is_about("provider"):
                    raise
            except Exception as error:
                raised.append(error)

    threads = [threading.Thread(target=reshape, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == []
    assert ledger_state(ledger).used("host0", "VCPU") >= 0  # which checks the sums


def _reshape(ledger: SQLBackend, number: int, turn: int, uuids: list[str]) -> None:
    """Change a host, and hold something of all of them, in one write."""
    tree = stored_tree(ledger, f"host{number % 3}")
    wanted = Provider("x", f"VCPU={900 + turn + number}")
    before = stored_tree(ledger, f"host{number % 3}")
    tree.update(inventories=wanted.inventories)
    deltas = tuple(Use(uuid, "VCPU", 1 + turn) for uuid in uuids)
    moves = (ConsumerOrder.replace(f"job-{number}", deltas if number % 2 else deltas[::-1]),)
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
            except (exceptions.NotFound, exceptions.InUse):
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
    with raises_code("InvalidField", match="tries"):
        RetryPolicy(tries=tries)


@pytest.mark.parametrize("name", ["seconds", "first_sleep", "longest_sleep"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), "1"])
def test_no_time_of_a_retry_is_negative(name: str, value: Any) -> None:
    with raises_code("InvalidField", match=name):
        RetryPolicy(**{name: value})
    zero: dict[str, Any] = {name: 0}
    RetryPolicy(tries=1, **zero)
