"""Tests of use over time: the reported use is the integral of the allocations.

The reference records the allocations after each write, with the time of its entry in the change
feed, and sums amounts times the microseconds in between.
"""

from __future__ import annotations

import datetime
import itertools
import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from resource_objects.providers import Backend
from resource_objects.providers.capabilities import Capability
from resource_objects.providers.feed import Cursor
from resource_objects.providers.orders import ConsumerOrder, NameAction, NameChange, Use
from resource_objects.providers.use_over_time import UseBy, UseFilter, UseReport
from resource_objects.testing.conformance.requirements import requires
from resource_objects.testing.conformance.suite import (
    CLASS,
    Kit,
    change_names,
    claim,
    define,
    deltas,
    host,
    later_moment,
    law,
    ledger_state,
    order,
    release,
    rename,
)
from resource_objects.testing.refusals import raises_code

LONG = datetime.timedelta(days=400)
_MICROSECOND = datetime.timedelta(microseconds=1)
EVERY_BY = (UseBy.CONSUMER, UseBy.USER, UseBy.PROJECT)


class Whose(NamedTuple):
    """The consumer, project, user and class of an amount."""

    consumer: str
    user: str | None
    project: str | None
    resource_class: str


#: The allocations at a moment, summed over providers.
Held = Mapping[Whose, int]


class Timeline:
    """A list of times, each with the allocations from then on."""

    def __init__(self) -> None:
        self._notes: list[tuple[datetime.datetime, Held]] = []

    def note(self, at: datetime.datetime, uses: Held) -> None:
        """Add the allocations from a moment on."""
        self._notes.append((at, dict(uses)))

    @property
    def began(self) -> datetime.datetime:
        """The moment of the first entry."""
        return self._notes[0][0]

    def used(self, since: datetime.datetime, upto: datetime.datetime) -> dict[Whose, int]:
        """Return the amounts times the microseconds between two moments."""
        result: dict[Whose, int] = defaultdict(int)
        ends = [*(at for at, _ in self._notes[1:]), upto]
        for (at, uses), end in zip(self._notes, ends, strict=True):
            length = max(0, microseconds(min(end, upto) - max(at, since)))
            for owners, amount in uses.items():
                result[owners] += amount * length
        return {owners: total for owners, total in result.items() if total}


def summed_by(used: Mapping[Whose, int], by: Collection[UseBy]) -> dict[Whose, int]:
    """Return the use by groups; fields that are not grouped by are None or empty."""
    result: dict[Whose, int] = defaultdict(int)
    for owners, total in used.items():
        group = {item.value: getattr(owners, item.value) for item in by}
        key = Whose(group.get("consumer", ""), group.get("user"), group.get("project"), owners[3])
        result[key] += total
    return dict(result)


def reported_use(report: UseReport) -> dict[Whose, int]:
    """Return the rows of a report in the form of the reference."""
    result = {
        Whose(item.consumer or "", item.user, item.project, item.resource_class): item.microseconds
        for item in report
    }
    assert len(result) == len(report), "each group and class once"
    return result


def held_now(backend: Backend) -> dict[Whose, int]:
    """Return the current allocations by consumer and class."""
    consumers = {consumer for consumer, _, _ in ledger_state(backend).allocations}
    result: dict[Whose, int] = defaultdict(int)
    for record in backend.held_by(consumers).values():
        for use in record.held:
            owners = record.consumer, record.user, record.project, use.resource_class
            result[Whose(*owners)] += use.amount
    return dict(result)


def microseconds(span: datetime.timedelta) -> int:
    """Return the length of a span."""
    return span // _MICROSECOND


def check_open(backend: Backend) -> None:
    """Check the report of an interval without writes against the current allocations."""
    since = backend.now()
    uses = held_now(backend)
    report = backend.use_between(since, None, UseFilter(), EVERY_BY)
    length = microseconds(report.until - since)
    assert reported_use(report) == {
        owners: amount * length for owners, amount in uses.items() if length
    }


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
    claim(backend, "a", {host: "CUSTOM_X=1"})
    later_moment()
    release(backend, "a")


@requires(Capability.USE_OVER_TIME)
class UseOverTimeRules(Kit):
    """Reports of use between two moments."""

    @pytest.fixture
    def here(self, backend: Backend) -> str:
        """Define a host; return its uuid."""
        return define(backend, host("host0", "VCPU=999,MEMORY_MB=99999,CUSTOM_X=99"))["host0"]

    # --- amounts ---

    @law(1, 7)
    @pytest.mark.parametrize("seed", [1, 2])
    def test_use_is_the_integral_of_the_allocations(self, backend: Backend, seed: int) -> None:
        chance = random.Random(seed)
        names = define(backend, host("host0", "VCPU=99,MEMORY_MB=999"), host("host1", "VCPU=99"))
        cursor = backend.cursor()
        claim(backend, "early", {names["host0"]: "VCPU=3"}, user="ann")
        began, timeline = time_of_last(backend, cursor), Timeline()
        timeline.note(began, held_now(backend))
        moments = [began - datetime.timedelta(hours=1), began]
        for step in range(25):
            cursor = backend.cursor()
            consumers = chance.sample(["early", "a", "b", "c"], chance.choice([1, 1, 2]))
            hosts = list(names.values())
            order(backend, *(_an_order(backend, name, hosts, chance) for name in consumers))
            timeline.note(time_of_last(backend, cursor), held_now(backend))
            if step % 6 == 0:
                moments.append(backend.now())
        for since, until in [*itertools.pairwise(moments), (moments[0], None)]:
            for by in ((), (UseBy.USER,), (UseBy.PROJECT, UseBy.USER), EVERY_BY):
                report = backend.use_between(since, until, UseFilter(), by)
                used = timeline.used(since, report.until)
                assert reported_use(report) == summed_by(used, by)
                assert until is None or report.until == until
        check_open(backend)

    def test_use_counts_for_the_last_user_and_project(self, backend: Backend, here: str) -> None:
        since = backend.now()
        changes: list[dict[str, Any]] = [{"user": "ann"}, {"user": "bob"}, {"project": "p"}]
        for change in changes:
            order(backend, ConsumerOrder.replace("job", deltas({here: "VCPU=2"}), **change))
            later_moment()
        [row] = backend.use_between(since, None, UseFilter(), EVERY_BY)
        record = backend.held("job")
        assert record is not None
        assert (row.user, row.project) == (record.user, record.project) != (None, None)
        release(backend, "job")  # another consumer of the name has its own user
        claim(backend, "job", {here: "VCPU=1"}, user="cem")
        later_moment()
        report = backend.use_between(since, None, UseFilter(), (UseBy.USER,))
        assert {item.user for item in report} == {record.user, "cem"}

    # --- groups and filters ---

    def test_reports_are_filtered_and_grouped(self, backend: Backend, here: str) -> None:
        since = backend.now()
        claim(backend, "a", {here: "VCPU=1,MEMORY_MB=5"}, user="ann", project="p")
        claim(backend, "b", {here: "VCPU=2"}, user="bob", project="p")
        claim(backend, "c", {here: "VCPU=4"})
        later_moment()

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
        claim(backend, "a", {here: "CUSTOM_X=1"})
        release(backend, "a")
        claim(backend, "b", {here: "CUSTOM_X=2"})
        began = time_of_last(backend, cursor)
        later_moment()
        change_names(backend, rename(CLASS, "CUSTOM_X", "CUSTOM_Y"))
        renamed = time_of_last(backend, cursor)
        later_moment()
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
        release(backend, "b")
        check_open(backend)

    def test_use_of_a_removed_class_and_provider_stays_in_the_report(
        self, backend: Backend, here: str
    ) -> None:
        since = backend.now()
        use_for_a_moment(backend, here)
        define(backend, host("host0", "VCPU=8"))
        change_names(backend, NameChange(CLASS, NameAction.DELETE, "CUSTOM_X"))
        change_names(backend, NameChange(CLASS, NameAction.ENSURE, "CUSTOM_OTHER"))
        expected = UseFilter(classes=frozenset(["CUSTOM_X"]))
        for request in (expected, UseFilter()):
            [row] = backend.use_between(since, None, request, (UseBy.CONSUMER,))
            assert (row.consumer, row.resource_class) == ("a", "CUSTOM_X")

    @law(7)
    def test_sums_are_exact_beyond_64_bits(self, backend: Backend) -> None:
        uuid, most = define(backend, host("host0"))["host0"], 2**62
        cursor = backend.cursor()
        adopted = Use(uuid, "MEMORY_MB", most)
        order(backend, ConsumerOrder.claim("job", (adopted,), adopts=True))
        began = time_of_last(backend, cursor)
        while backend.now() - began < datetime.timedelta(milliseconds=6):
            pass
        check_use(backend, began, most)
        assert most * microseconds(backend.now() - began) > 2**63

    # --- retention ---

    def test_use_before_the_retention_is_not_counted(self, backend: Backend, here: str) -> None:
        since = backend.now()
        claim(backend, "job", {here: "VCPU=2"}, user="ann")
        use_for_a_moment(backend, here)
        assert backend.use_between(since, None, UseFilter(), ()).is_complete
        pruned = later_moment()
        backend.prune(pruned)
        later_moment()
        report = backend.use_between(since, None, UseFilter(), EVERY_BY)
        assert not report.is_complete and report.complete_since == pruned
        [row] = report
        assert row.consumer == "job"
        assert row.microseconds == 2 * microseconds(report.until - pruned)
        assert backend.use_between(pruned, None, UseFilter(), ()).is_complete
        check_open(backend)

    def test_a_longer_retention_does_not_restore_pruned_use(
        self, backend: Backend, here: str
    ) -> None:
        since = backend.now()
        backend.retain(datetime.timedelta(seconds=0))
        forgotten = later_moment()
        backend.retain(LONG)
        later_moment()
        report = backend.use_between(since, None, UseFilter(), ())
        assert report.complete_since >= forgotten and not report.is_complete
        assert backend.use_between(report.complete_since, None, UseFilter(), ()).is_complete

    def test_a_class_that_does_not_exist_is_refused(self, backend: Backend, here: str) -> None:
        since = backend.now()
        change_names(backend, NameChange(CLASS, NameAction.ENSURE, "CUSTOM_UNUSED"))
        expected = UseFilter(classes=frozenset(["CUSTOM_UNUSED"]))
        assert not backend.use_between(since, None, expected, ())
        change_names(backend, NameChange(CLASS, NameAction.DELETE, "CUSTOM_UNUSED"))
        with raises_code("ClassNotFound", match="CUSTOM_UNUSED"):
            backend.use_between(since, None, expected, ())

    # --- invalid requests ---

    def test_a_report_on_the_future_is_refused(self, backend: Backend, here: str) -> None:
        later = backend.now() + datetime.timedelta(hours=1)
        with raises_code("InvalidField", match="since"):
            backend.use_between(later, None, UseFilter(), ())
        later_moment()
        report = backend.use_between(later - 2 * (later - backend.now()), later, UseFilter(), ())
        assert report.until <= backend.now()


def _an_order(
    backend: Backend, consumer: str, uuids: Sequence[str], chance: random.Random
) -> ConsumerOrder:
    record = backend.held(consumer)
    here = chance.choice(uuids)
    options: dict[str, Any] = {
        "user": chance.choice([None, "ann", "bob"]),
        "project": chance.choice([None, None, "p", "q"]),
    }
    amount = chance.randint(1, 5)
    if record is None:
        return ConsumerOrder.claim(consumer, deltas({here: f"VCPU={amount}"}), **options)
    owner: dict[str, Any] = {"user": record.user, "project": record.project}
    change = chance.choice(["release", "replace", "add", "add", "move", "renew"])
    if change == "release":
        return ConsumerOrder.release(consumer)
    if change == "renew":
        return ConsumerOrder.renew(consumer)
    if change == "add":
        added = {uuids[0]: f"VCPU={amount},MEMORY_MB={amount}"}
        return ConsumerOrder.adjust(consumer, deltas(added))
    if change == "replace":
        return ConsumerOrder.replace(consumer, deltas({here: f"VCPU={amount}"}), **owner)
    total = sum(use.amount for use in record.held if use.resource_class == "VCPU")
    return ConsumerOrder.replace(consumer, deltas({here: f"VCPU={total}"}), **owner)
