"""Tests of use over time: groups, filters, classes and the retention of reports."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from resource_objects.providers import Backend
from resource_objects.providers.backend import Capability
from resource_objects.providers.feed import Cursor
from resource_objects.providers.orders import ConsumerOrder, NameAction, NameChange, Use
from resource_objects.providers.use_over_time import UseBy, UseFilter
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.requirements import requires
from resource_objects.testing.refusals import raises_code

LONG = datetime.timedelta(days=400)
_MICROSECOND = datetime.timedelta(microseconds=1)
EVERY_BY = (UseBy.CONSUMER, UseBy.USER, UseBy.PROJECT)


def microseconds(span: datetime.timedelta) -> int:
    """Return the length of a span."""
    return span // _MICROSECOND


def check_use(backend: Backend, since: datetime.datetime, amount: int) -> None:
    """Check that all consumers together used an amount from a moment until now."""
    report = backend.use_between(since, None, UseFilter(), ())
    [row] = report
    assert row.microseconds == amount * microseconds(report.until - since)


def time_of_last(backend: Backend, cursor: Cursor) -> datetime.datetime:
    """Return the time of the last entry after a cursor."""
    return max(change.at for change in backend.changes(cursor, 100))


def use_for_a_moment(backend: Backend, host: str) -> None:
    """Claim one CUSTOM_X of a host for consumer ``a``, and release it."""
    kit.claim(backend, "a", {host: "CUSTOM_X=1"})
    kit.later_moment()
    kit.release(backend, "a")


@requires(Capability.USE_OVER_TIME)
class UseOverTimeRules(kit.Kit):
    """Reports of use between two moments."""

    @pytest.fixture
    def here(self, backend: Backend) -> str:
        """Define a host; return its uuid."""
        return kit.define(backend, kit.host("host0", "VCPU=999,MEMORY_MB=99999,CUSTOM_X=99"))[
            "host0"
        ]

    # --- amounts ---

    @kit.law(1, 7)
    def test_use_is_the_amount_times_its_duration(self, backend: Backend, here: str) -> None:
        since, cursor = backend.now(), backend.cursor()
        kit.claim(backend, "job", {here: "VCPU=3"}, user="ann", project="p")
        began = time_of_last(backend, cursor)
        kit.later_moment()
        kit.order(backend, ConsumerOrder.replace("job", kit.deltas({here: "VCPU=5"})))
        changed = time_of_last(backend, cursor)
        kit.later_moment()
        kit.release(backend, "job")
        ended = time_of_last(backend, cursor)
        [row] = backend.use_between(since, None, UseFilter(), EVERY_BY)
        assert (row.consumer, row.user, row.project) == ("job", "ann", "p")
        amounts = 3 * microseconds(changed - began), 5 * microseconds(ended - changed)
        assert row.microseconds == sum(amounts)

    def test_use_counts_for_the_last_user_and_project(self, backend: Backend, here: str) -> None:
        since = backend.now()
        changes: list[dict[str, Any]] = [{"user": "ann"}, {"user": "bob"}, {"project": "p"}]
        for change in changes:
            kit.order(backend, ConsumerOrder.replace("job", kit.deltas({here: "VCPU=2"}), **change))
            kit.later_moment()
        [row] = backend.use_between(since, None, UseFilter(), EVERY_BY)
        record = backend.consumer("job")
        assert record is not None
        assert (row.user, row.project) == (record.user, record.project) != (None, None)
        kit.release(backend, "job")  # another consumer of the name has its own user
        kit.claim(backend, "job", {here: "VCPU=1"}, user="cem")
        kit.later_moment()
        report = backend.use_between(since, None, UseFilter(), (UseBy.USER,))
        assert {item.user for item in report} == {record.user, "cem"}

    # --- groups and filters ---

    def test_reports_are_filtered_and_grouped(self, backend: Backend, here: str) -> None:
        since = backend.now()
        kit.claim(backend, "a", {here: "VCPU=1,MEMORY_MB=5"}, user="ann", project="p")
        kit.claim(backend, "b", {here: "VCPU=2"}, user="bob", project="p")
        kit.claim(backend, "c", {here: "VCPU=4"})
        kit.later_moment()

        def groups(expected: UseFilter, *by: UseBy) -> list[tuple[Any, ...]]:
            result = backend.use_between(since, None, expected, by)
            return [(*row.group(by), row.resource_class) for row in result]

        user, project, consumer = UseBy.USER, UseBy.PROJECT, UseBy.CONSUMER
        ann = [("ann", "VCPU"), ("ann", "MEMORY_MB")]
        of_p = [("p", "VCPU"), ("p", "MEMORY_MB")]
        everybody = UseFilter()
        assert groups(everybody) == [("VCPU",), ("MEMORY_MB",)]
        assert groups(everybody, user) == [*ann, ("bob", "VCPU"), (None, "VCPU")]
        last = [("p", "bob", "VCPU"), (None, None, "VCPU")]
        assert groups(everybody, project, user)[-2:] == last
        assert groups(UseFilter(users=frozenset(["bob"])), consumer) == [("b", "VCPU")]
        assert groups(UseFilter(users=frozenset([None])), consumer) == [("c", "VCPU")]
        in_any = UseFilter(projects=frozenset(["p", None]))
        assert groups(in_any, project) == [*of_p, (None, "VCPU")]
        assert groups(UseFilter(consumers=frozenset(["a"])), user) == ann
        assert groups(UseFilter(classes=frozenset(["MEMORY_MB"]))) == [("MEMORY_MB",)]
        assert groups(UseFilter(users=frozenset())) == []
        with raises_code("ClassNotFound", match="CUSTOM_NONE"):
            groups(UseFilter(classes=frozenset(["VCPU", "CUSTOM_NONE"])))

    def test_a_class_counts_under_its_name_at_the_time(self, backend: Backend, here: str) -> None:
        since, cursor = backend.now(), backend.cursor()
        kit.claim(backend, "a", {here: "CUSTOM_X=1"})
        kit.release(backend, "a")
        kit.claim(backend, "b", {here: "CUSTOM_X=2"})
        began = time_of_last(backend, cursor)
        kit.later_moment()
        kit.change_names(backend, kit.rename(kit.CLASS, "CUSTOM_X", "CUSTOM_Y"))
        renamed = time_of_last(backend, cursor)
        kit.later_moment()
        of_b = UseFilter(consumers=frozenset(["b"]))
        report = backend.use_between(since, None, of_b, ())
        assert {row.resource_class: row.microseconds for row in report} == {
            "CUSTOM_X": 2 * microseconds(renamed - began),
            "CUSTOM_Y": 2 * microseconds(report.until - renamed),
        }
        [before] = backend.use_between(since, renamed, of_b, ())
        assert before.microseconds == 2 * microseconds(renamed - began)
        for name, count in (("CUSTOM_Y", 1), ("CUSTOM_X", 2)):
            of_class = UseFilter(classes=frozenset([name]))
            assert len(backend.use_between(since, None, of_class, (UseBy.CONSUMER,))) == count
        kit.release(backend, "b")

    def test_use_of_a_removed_class_and_provider_stays_in_the_report(
        self, backend: Backend, here: str
    ) -> None:
        since = backend.now()
        use_for_a_moment(backend, here)
        kit.define(backend, kit.host("host0", "VCPU=8"))
        kit.change_names(backend, NameChange(kit.CLASS, NameAction.DELETE, "CUSTOM_X"))
        kit.change_names(backend, NameChange(kit.CLASS, NameAction.ENSURE, "CUSTOM_OTHER"))
        expected = UseFilter(classes=frozenset(["CUSTOM_X"]))
        for request in (expected, UseFilter()):
            [row] = backend.use_between(since, None, request, (UseBy.CONSUMER,))
            assert (row.consumer, row.resource_class) == ("a", "CUSTOM_X")

    @kit.law(7)
    def test_sums_are_exact_beyond_64_bits(self, backend: Backend) -> None:
        uuid, most = kit.define(backend, kit.host("host0"))["host0"], 2**62
        cursor = backend.cursor()
        adopted = Use(uuid, "MEMORY_MB", most)
        kit.order(backend, ConsumerOrder.claim("job", (adopted,), adopts=True))
        began = time_of_last(backend, cursor)
        while backend.now() - began < datetime.timedelta(milliseconds=6):
            pass
        check_use(backend, began, most)
        assert most * microseconds(backend.now() - began) > 2**63

    # --- retention ---

    def test_use_before_the_retention_is_not_counted(self, backend: Backend, here: str) -> None:
        since = backend.now()
        kit.claim(backend, "job", {here: "VCPU=2"}, user="ann")
        use_for_a_moment(backend, here)
        assert backend.use_between(since, None, UseFilter(), ()).is_complete
        pruned = kit.later_moment()
        backend.prune(pruned)
        kit.later_moment()
        report = backend.use_between(since, None, UseFilter(), EVERY_BY)
        assert not report.is_complete and report.complete_since == pruned
        [row] = report
        assert row.consumer == "job"
        assert row.microseconds == 2 * microseconds(report.until - pruned)
        assert backend.use_between(pruned, None, UseFilter(), ()).is_complete
        check_use(backend, pruned, 2)

    def test_a_longer_retention_does_not_restore_pruned_use(
        self, backend: Backend, here: str
    ) -> None:
        since = backend.now()
        backend.retain(datetime.timedelta(seconds=0))
        forgotten = kit.later_moment()
        backend.retain(LONG)
        kit.later_moment()
        report = backend.use_between(since, None, UseFilter(), ())
        assert report.complete_since >= forgotten and not report.is_complete
        assert backend.use_between(report.complete_since, None, UseFilter(), ()).is_complete

    # --- invalid requests ---

    def test_a_report_on_the_future_is_refused(self, backend: Backend, here: str) -> None:
        later = backend.now() + datetime.timedelta(hours=1)
        with raises_code("InvalidField", match="since"):
            backend.use_between(later, None, UseFilter(), ())
        kit.later_moment()
        report = backend.use_between(later - 2 * (later - backend.now()), later, UseFilter(), ())
        assert report.until <= backend.now()
