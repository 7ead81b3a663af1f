"""The compute node's laws, as properties: of any row, of any order of events."""

from __future__ import annotations

import contextlib
import datetime
import json
import random
import string
import tempfile
from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.columns import CARRIED, COUNTS, DERIVED, DISK_REPORT
from resource_objects.host.compute_node import ComputeNode
from resource_objects.resources import Limits
from tests.support.lengths import examples
from tests.support.strategies import ratios

CLASSES = list(COUNTS)
COLUMNS = (*(n for c in COUNTS.values() for n in c.names), *CARRIED, DISK_REPORT)

plain_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.datetimes(timezones=st.none() | st.just(datetime.UTC))
    | st.dates()
)
names_of_columns = st.sampled_from([*COLUMNS, *DERIVED]) | st.text(
    string.ascii_lowercase + "_", min_size=1
)
texts = st.none() | st.text(string.printable)
#: Values of a healthy Nova; cells and devices have tests of their own.
VALUES = {
    **dict.fromkeys(("uuid", "host", "hypervisor_hostname"), texts),
    "numa_topology": st.sampled_from([None, "", '{"cells": []}']),
    "pci_stats": st.sampled_from([None, "", "[]"]),
}


@st.composite
def stored_ratios(draw: st.DrawFn) -> float | int | Decimal | None:
    exact = draw(ratios())
    return draw(st.sampled_from([None, 0.0, 0, float(exact), exact]))


@st.composite
def rows(draw: st.DrawFn, max_figure: int = 2**31 - 1) -> dict[str, object]:
    """Return rows that a healthy Nova could have written, also in part."""
    row: dict[str, object] = {}
    for kind in COUNTS.values():
        row[kind.total] = draw(st.just(0) | st.integers(0, max_figure))
        row[kind.used] = draw(st.integers(0, 2 * max_figure))
        row[kind.ratio] = draw(stored_ratios())
    row["disk_available_least"] = draw(st.none() | st.integers(-max_figure, max_figure))
    for column in draw(st.sets(st.sampled_from(CARRIED))):
        row[column] = draw(VALUES.get(column, plain_values))
    other_items = st.text(string.ascii_lowercase, min_size=1).map("x_{}".format)
    row |= draw(st.dictionaries(other_items, plain_values, max_size=3))
    for column in draw(st.sets(st.sampled_from(sorted(row)), max_size=4)):
        del row[column]
    for column, name in DERIVED.items():
        kind = COUNTS[name]
        if kind.total in row and kind.used in row:
            row[column] = row[kind.total] - row[kind.used]  # type: ignore[operator]
    return row


def same(item: dict, other: dict) -> bool:
    """Return whether two rows say the same in the same types."""
    return item == other and all(type(item[column]) is type(other[column]) for column in item)


def there_and_back(node: ComputeNode) -> ComputeNode:
    return ComputeNode.obj_from_primitive(json.loads(json.dumps(node.obj_to_primitive())))


@given(rows())
def test_row_to_node_to_row_is_the_identity(row):
    before = dict(row)
    node = ComputeNode.from_row(row)
    assert same(node.to_row(), before) and same(row, before)
    assert node.changes() == {}
    target = dict(row)
    node.write_to(target)
    assert same(target, before)
    assert same(there_and_back(node).to_row(), before)


@given(
    st.dictionaries(
        names_of_columns,
        plain_values
        | st.floats()
        | st.decimals()
        | st.text()
        | st.lists(st.integers())
        | st.builds(object)
        | st.complex_numbers(),
    ),
    st.sampled_from([None, "VCPU=1", "VCPU=1,MEMORY_MB=512,DISK_GB=3"]),
)
def test_any_row_is_a_valid_node_or_a_named_refusal(row, reserved):
    try:
        node = ComputeNode.from_row(row, reserved=reserved)
        inventories = node.inventories  # cells and devices are read here
    except exceptions.InvalidInput as refusal:
        if not refusal.is_about("row"):
            raise
        assert refusal.what in row and refusal.expected
        return
    for name, inventory in inventories.by_name():
        assert inventory.used >= 0 and inventory.total >= inventory.reserved
        assert inventory.capacity >= 0 and name in CLASSES
    assert node.changes() == {}
    assert {column: node.to_row()[column] for column in row if column not in DERIVED}.keys() == {
        column for column in row if column not in DERIVED
    }


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    )
)
def test_anything_at_all_is_read_or_refused(source):
    for read in (ComputeNode.read, ComputeNode.from_row, ComputeNode.from_nova):
        with contextlib.suppress(exceptions.ResourceObjectsError):
            read(source)


amounts_in_row = st.dictionaries(st.sampled_from(CLASSES), st.integers(-50, 50), max_size=3)


@given(rows(max_figure=60), st.lists(amounts_in_row, max_size=8))
def test_a_node_decides_like_its_inventories_and_its_columns_follow(row, request):
    assume(all(column in row for kind in COUNTS.values() for column in (kind.total, kind.used)))
    node = ComputeNode.from_row(row)
    model = ro.Inventories(node.get_inventories())
    limits = Limits(dict(node.limits))
    for amounts in request:
        outcomes = []
        for inventories, bounds in ((node.inventories, None), (model, limits)):
            try:
                outcomes.append(str(inventories.consume(amounts, bounds)))
            except exceptions.CapacityException as refusal:
                outcomes.append(refusal.reasons)
        assert outcomes[0] == outcomes[1]
        assert node.inventories == model
    for name, kind in COUNTS.items():
        if name in model:
            assert getattr(node, kind.used) == model[name].used
    assert node.free_ram_mb == node.memory_mb - node.memory_mb_used
    assert node.free_disk_gb == node.local_gb - node.local_gb_used


@given(rows(max_figure=60), st.lists(amounts_in_row, max_size=8))
def test_there_and_back_is_no_change(row, request):
    node = ComputeNode.from_row(row)
    taken = []
    for amounts in request:
        try:
            taken.append(node.inventories.consume(amounts))
        except exceptions.CapacityException:
            continue
    stored = {name: -units for name, units in sum(taken, ro.Amounts()).items()}
    back = there_and_back(node)
    assert back == node and back.pending == sum(taken, ro.Amounts())
    node.update_inventories(
        {
            name: ro.IntegerInventory(
                **{
                    **{
                        figure: getattr(inventory, figure)
                        for figure in ("total", "reserved", "allocation_ratio")
                    },
                    "used": inventory.used + int(stored.get(name, ro.IntegerAmount(0))),
                }
            )
            for name, inventory in node.get_inventories().items()
        }
    )
    assert node.changes() == {} and not node.pending
    assert same(node.to_row(), ComputeNode.from_row(row).to_row())


@given(rows(max_figure=60), st.dictionaries(st.sampled_from(CLASSES), st.integers(0, 60)))
def test_reserved_only_moves_what_is_used(row, reserved):
    try:
        node = ComputeNode.from_row(row, reserved=reserved)
    except exceptions.InvalidInput as error:
        if not error.is_about("row"):
            raise
        return
    plain = ComputeNode.from_row(row)
    for name, inventory in node.inventories.by_name():
        without = plain.inventories[name]
        assert inventory.reserved == reserved.get(name, 0)
        assert inventory.used == without.used - inventory.reserved
        assert inventory.total == without.total
    assert same(node.to_row(), plain.to_row())


# --- several views of one host ------------------------------------------------------------------

units = st.integers(-6, 9)


class Views(RuleBasedStateMachine):
    """Views of one host and plain claims, in any order: the ledger has the sum of all changes."""

    url = "memory://"
    views = Bundle("views")

    @initialize(total=st.integers(1, 20), ratio=st.sampled_from(["1", "1.5", "2"]))
    def start(self, total: int, ratio: str) -> None:
        self.ledger = ro.connect(self.url)
        self.ledger.sync(ro.Provider("host0", f"VCPU={total}:allocation_ratio={ratio},DISK_GB=30"))
        self.expected: dict[str, ro.Amounts] = {}
        self.definition = {"VCPU": total, "DISK_GB": 30}
        self.count = 0

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()

    @rule(target=views, consumer=st.sampled_from([None, "a", "b"]))
    def load(self, consumer: str | None) -> ComputeNode:
        return ComputeNode.load(self.ledger, "host0", consumer)

    @rule(view=views, cpus=units, disk=units)
    def consume(self, view: ComputeNode, cpus: int, disk: int) -> None:
        before = view.pending, view.to_row()
        try:
            taken = view.inventories.consume({"VCPU": cpus, "DISK_GB": disk})
        except exceptions.CapacityException:
            assert (view.pending, view.to_row()) == before
        else:
            assert view.pending == before[0] + taken

    @rule(view=views)
    def save(self, view: ComputeNode) -> None:
        before = view.to_row(), view.pending, self.ledger.provider("host0")
        pending = view.pending
        try:
            result = view.save()
        except exceptions.CapacityException:
            assert (view.to_row(), view.pending, self.ledger.provider("host0")) == before
            return
        assert bool(result) is bool(pending)
        assert not view.pending
        self.expect(view.consumer, pending)
        if pending:
            assert view.to_row() == ComputeNode.load(self.ledger, "host0").to_row()

    @rule(view=views)
    def reload(self, view: ComputeNode) -> None:
        view.reload()
        assert not view.pending
        assert view.inventories == ComputeNode.load(self.ledger, "host0").inventories

    @rule(amount=st.integers(1, 9))
    def claim(self, amount: int) -> None:
        self.count += 1
        name = f"job-{self.count}"
        try:
            self.ledger.claim(name, {"host0": {"VCPU": amount}})
        except exceptions.CapacityException:
            return
        self.expect(name, ro.Amounts(VCPU=amount))

    @rule(view=views, total=st.integers(1, 20), kind=st.sampled_from(["VCPU", "DISK_GB"]))
    def define(self, view: ComputeNode, total: int, kind: str) -> None:
        pending, seen = view.pending, view.inventories[kind].total
        view.inventories[kind].total = total
        assert view.pending == pending
        try:
            view.save()
        except exceptions.Stale as error:
            if not error.is_about("provider"):
                raise
            assert self.definition[kind] not in (seen, total)
            view.reload()
        except exceptions.CapacityException:
            assert pending
            view.reload()
        else:
            self.expect(view.consumer, pending)
            if total != seen:
                self.definition[kind] = total

    def expect(self, consumer: str, amounts: ro.Amounts) -> None:
        total = self.expected.get(consumer, ro.Amounts()) + amounts
        self.expected = {**self.expected, consumer: total}

    @invariant()
    def the_ledger_is_the_sum_of_what_was_done(self) -> None:
        if not hasattr(self, "ledger"):
            return
        usage = self.ledger.usage()
        result = {name: ro.Amounts(allocated) for name, allocated in usage.consumers.items()}
        assert result == {name: allocated for name, allocated in self.expected.items() if allocated}
        for use in usage:
            assert use.used == sum(amount for _, amount in use.holders)
            assert use.total == self.definition[use.resource_class]


class ViewsOnSQLite(Views):
    """The same on a database."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.url = f"sqlite:///{self.folder.name}/lab.db"

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


TestViewsInMemory = Views.TestCase
TestViewsOnSQLite = ViewsOnSQLite.TestCase
TestViewsOnSQLite.settings = settings(max_examples=examples(10), stateful_step_count=25)


@pytest.mark.parametrize("seed", range(3))
def test_views_and_claims_never_take_more_than_there_is(seed):
    """Without changes of the definition, use never exceeds the capacity."""
    chance = random.Random(seed)
    with ro.connect("memory://") as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=10"))
        views = [ComputeNode.load(ledger, "host0", name) for name in (None, "a", "b", None)]
        for _ in range(400):
            view = chance.choice(views)
            amount = ro.IntegerAmount(chance.randint(-4, 5))
            try:
                view.inventories["VCPU"].consume(amount)
                if chance.random() < 0.7:
                    view.save()
            except exceptions.CapacityException:
                if chance.random() < 0.5:
                    view.reload()
            assert 0 <= ledger.usage()["host0", "VCPU"].used <= 10
