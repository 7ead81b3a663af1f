"""An interrupted write leaves nothing behind, on every kind of database."""

from __future__ import annotations

from typing import Any

import pytest

from resource_objects.backends.sql import backend, feed, orders
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers.orders import ConsumerOrder, Operation
from resource_objects.testing.conformance.suite import claim, define, deltas, host, ledger_state
from tests.support.checker import problems


@pytest.mark.law(2)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(
    ("module", "step"),
    [
        (backend, "decide"),
        (orders, "record_operation"),
        (orders, "change_used"),
        (orders, "make_consumers"),
        (orders, "write_consumers"),
        (orders, "write_allocations"),
        (feed, "append_entries"),
    ],
    ids=["decide", "record", "change", "make", "put", "take", "feed"],
)
def test_an_interrupt_at_any_step_changes_nothing(
    ledger: SQLBackend,
    ledger_url: str,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    step: str,
    kind: type[BaseException],
) -> None:
    names = define(ledger, host())
    claim(ledger, "other", {names["host0"]: "VCPU=1"})
    before = ledger_state(ledger)

    def interrupt(*_: Any, **__: Any) -> None:
        raise kind

    monkeypatch.setattr(module, step, interrupt)
    operation = Operation()
    order = ConsumerOrder.claim("job", deltas({names["host0"]: "VCPU=1,MEMORY_MB=1"}))
    with pytest.raises(kind):
        ledger.claim(operation, order)
    monkeypatch.undo()
    assert ledger_state(ledger) == before
    assert ledger.claim(operation, order) == ledger.consumer("job")
    assert problems(ledger_url) == []
