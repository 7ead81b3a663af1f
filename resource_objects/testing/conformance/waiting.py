"""Tests of the queue of waiters, in the order of arrival."""

from __future__ import annotations

import dataclasses
import datetime
import time
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from resource_objects.providers import Backend
from resource_objects.providers.backend import Capability
from resource_objects.providers.waiting import Awaited, Waiter, WaiterFilter, WaitOrder
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.races import together
from resource_objects.testing.conformance.requirements import requires
from resource_objects.testing.refusals import raises_code

_HERE, _THERE = str(uuid.uuid4()), str(uuid.uuid4())
#: a lease longer than any test, and one that expires at once
_LONG, _SHORT = datetime.timedelta(hours=1), datetime.timedelta(microseconds=1)


def enter(
    backend: Backend,
    consumer: str,
    *awaits: Awaited,
    lease: datetime.timedelta = _LONG,
    actor: str | None = None,
) -> WaitOrder:
    """Add a consumer to the queue; return the order, which renews and removes it."""
    order = WaitOrder(consumer, awaits or (Awaited("PGPU", 1),), lease, actor)
    backend.wait(order)
    return order


def renew(backend: Backend, order: WaitOrder) -> Waiter:
    """Renew the lease of a waiter."""
    return backend.wait(dataclasses.replace(order, renews=True))


def queue(backend: Backend, *awaits: Awaited) -> list[str]:
    """Return the consumers in the queue, or those that wait for some resources."""
    expected = WaiterFilter(awaits=awaits or None)
    return [list_waiter.consumer for list_waiter in backend.list_waiters(expected, 1000)]


def until_over(backend: Backend, waiter: Waiter) -> None:
    """Wait until a lease has expired by the clock of the ledger."""
    while backend.now() <= waiter.lease_until:
        time.sleep(0.001)


@requires(Capability.WAITING)
class WaitingRules(kit.Kit):
    """Numbers, leases and filters of waiters."""

    def test_a_listed_waiter_has_every_field(self, backend: Backend) -> None:
        awaits = Awaited("VCPU", 4), Awaited("PGPU", 2, _HERE)
        before = backend.now()
        order = enter(backend, "job", *awaits, actor="ann")
        [result] = backend.list_waiters(WaiterFilter(), 10)
        assert (result.consumer, result.awaits, result.actor) == ("job", awaits, "ann")
        assert before <= result.since <= backend.now()
        assert result.lease_until - result.since == order.lease
        assert str(result.amounts) == "VCPU=4,PGPU=2"

    def test_pages_of_waiters_continue_after_a_number(self, backend: Backend) -> None:
        for number in range(5):
            enter(backend, f"job-{number}")
        first = backend.list_waiters(WaiterFilter(), 2)
        remainder = backend.list_waiters(WaiterFilter(), 10, first[-1].number)
        assert [item.consumer for item in first] == ["job-0", "job-1"]
        assert [item.consumer for item in remainder] == ["job-2", "job-3", "job-4"]
        upto = backend.list_waiters(WaiterFilter(upto=remainder[0].number), 10)
        assert [item.consumer for item in upto] == ["job-0", "job-1", "job-2"]

    def test_a_filter_of_waiters_can_name_thousands_of_trees(self, backend: Backend) -> None:
        enter(backend, "a", Awaited("PGPU", 1, _HERE))
        enter(backend, "b", Awaited("PGPU", 1, _THERE))
        trees = [Awaited("PGPU", 1, str(uuid.UUID(int=number))) for number in range(3000)]
        assert queue(backend, *trees) == []
        assert queue(backend, *trees, Awaited("PGPU", 1, _THERE)) == ["b"]
        assert queue(backend, *trees, Awaited("PGPU", 1)) == ["a", "b"]
        assert queue(backend, Awaited("PGPU", 1), *trees) == ["a", "b"]

    def test_a_waiter_that_enters_again_keeps_its_number(self, backend: Backend) -> None:
        first = enter(backend, "a")
        enter(backend, "b")
        again = enter(backend, "a")
        assert queue(backend) == ["a", "b"]
        renew(backend, first)
        backend.leave(first.entry)  # a call that was repeated since does not take it out
        assert queue(backend) == ["a", "b"]
        backend.leave(again.entry)
        assert queue(backend) == ["b"]

    def test_a_waiter_with_an_expired_lease_is_removed(self, backend: Backend) -> None:
        short = enter(backend, "a", lease=_SHORT)
        enter(backend, "b")
        until_over(backend, Waiter(1, "a", (), backend.now(), backend.now() + _SHORT))
        assert queue(backend) == ["b"]
        renewed = renew(backend, short)
        assert renewed.number > backend.list_waiters(WaiterFilter(), 1)[0].number
        enter(backend, "c")
        until_over(backend, renewed)
        assert queue(backend) == ["b", "c"]

    def test_a_renewed_waiter_keeps_its_number(self, backend: Backend) -> None:
        order = enter(backend, "a")
        enter(backend, "b")
        [before, _] = backend.list_waiters(WaiterFilter(), 10)
        after = renew(backend, order)
        assert after == dataclasses.replace(before, lease_until=after.lease_until)
        assert after.lease_until >= before.lease_until
        assert backend.list_waiters(WaiterFilter(), 10)[0] == after

    def test_the_queue_is_no_part_of_the_feed(self, backend: Backend) -> None:
        before = backend.cursor()
        backend.leave(enter(backend, "a").entry)
        assert backend.cursor() == before

    def test_threads_that_enter_at_once_get_different_numbers(self, backend: Backend) -> None:
        result = together(
            lambda worker: backend.wait(
                WaitOrder(f"job-{worker % 3}", (Awaited("PGPU", 1),), _LONG)
            ),
            workers=6,
        )
        assert len({row.number for row in result if isinstance(row, Waiter)}) == 3, result
        assert len(queue(backend)) == 3

    def test_an_invalid_wait_is_refused(self, backend: Backend) -> None:
        with raises_code("InvalidField", match="something to wait for"):
            WaitOrder("job", ())
        with raises_code("InvalidField", match="above 0"):
            WaitOrder("job", (Awaited("PGPU", 1),), datetime.timedelta(0))
        with raises_code("InvalidName"):
            WaitOrder("", (Awaited("PGPU", 1),))
        assert queue(backend) == []

    def test_the_queue_agrees_with_a_list(self, backend: Backend) -> None:
        @settings(max_examples=10, deadline=None)
        @given(data=st.data())
        def check(data: st.DataObject) -> None:
            for list_waiter in backend.list_waiters(WaiterFilter(), 100):
                backend.leave(enter(backend, list_waiter.consumer, *list_waiter.awaits).entry)
            classes = st.sampled_from(["VCPU", "PGPU", "DISK_GB"])
            roots = st.sampled_from([None, _HERE, _THERE])
            awaited = st.builds(Awaited, classes, st.integers(1, 2), roots)
            several = st.lists(awaited, min_size=1, max_size=2, unique=True).map(tuple)
            model: dict[str, WaitOrder] = {}
            for _ in range(data.draw(st.integers(1, 8))):
                name = data.draw(st.sampled_from("abcd"))
                if data.draw(st.booleans()) or name not in model:
                    order = enter(backend, name, *data.draw(several))
                    if name in model and model[name].awaits != order.awaits:
                        del model[name]  # comes last
                    model[name] = order
                else:
                    backend.leave(model.pop(name).entry)
                mine = data.draw(several)
                expected = [
                    name
                    for name, order in model.items()
                    if any(item.meets(other) for item in mine for other in order.awaits)
                ]
                assert queue(backend) == list(model)
                assert queue(backend, *mine) == expected

        check()
