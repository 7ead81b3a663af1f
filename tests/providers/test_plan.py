"""Plans: printable, kept as a file and read back, refused where they contradict themselves."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers import DefinitionChanges, Provider, Share, diff
from resource_objects.providers.definition import ProviderDefinition, StoredDefinition
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.orders import ConsumerOrder, Operation, StoredRequest, Use
from resource_objects.providers.plan import Plan
from resource_objects.providers.serialization import from_plain
from resource_objects.testing.refusals import raises_code
from tests.support.strategies import consumer_names, inventories, resource_class_names, uuids

HOST = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
OTHER = "2fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
UNTIL = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


def changes() -> DefinitionChanges:
    """Return changes of every kind: a child and a share made, an update, a removal."""
    kept = Provider("host0", "VCPU=8,PGPU=2", uuid=HOST, generation=3, traits=["CUSTOM_OLD"])
    kept.update(
        children=[Provider("host0/old", "FPGA=1", uuid=OTHER, generation=1, aggregates=["r1"])]
    )
    wanted = Provider("host0", "VCPU=16:reserved=2", traits=["CUSTOM_NEW"], aggregates=["r7"])
    wanted.add(
        "host0/cell0",
        "VCPU=8:allocation_ratio=1.5",
        traits=["CUSTOM_CELL"],
        shares=[Share(resource_class="VCPU", of="host0", of_class="VCPU")],
    )
    return diff(kept, wanted)


def orders() -> tuple[Any, ...]:
    return (
        ConsumerOrder.claim(
            "job-1",
            (Use(HOST, "VCPU", 2),),
            project="p",
            user="u",
            consumer_type="vm",
            expires_at=UNTIL,
            request=StoredRequest(ro.Request("VCPU=2")),
        ),
        ConsumerOrder.adjust(
            "job-2", (Use(HOST, "VCPU", -1, ("cpu1",)),), aggregate=True, generation=7
        ),
        ConsumerOrder.replace("job-3", (Use(OTHER, "FPGA", 1, ("a", "b")),), generation=9),
        ConsumerOrder.release("job-4", 2),
    )


def plan() -> Plan:
    out = DisableOrder(HOST, "fan", UNTIL), DisableOrder(OTHER)
    return Plan(changes(), orders(), {HOST: "host0", OTHER: "host0/old"}, out)


@pytest.mark.law(10)
def test_a_plan_is_the_same_after_json() -> None:
    made = plan()
    again = Plan.from_json(made.to_json())
    assert again == made
    assert hash(again) == hash(made)
    assert again.to_json() == made.to_json()
    assert Plan.from_json(made.to_json(indent=None).encode()) == made
    assert json.loads(made.to_json())["version"] == 2


@pytest.mark.law(10)
def test_a_plan_of_version_1_is_read() -> None:
    made = plan()
    data = json.loads(made.to_json())
    [update] = data["definitions"]["updates"]
    before = update.pop("before")
    update.update(removed=["PGPU"], traits_added=["CUSTOM_NEW"], shares_changed=True)
    update.update(changed=update["definition"]["inventories"], only_children=False, used=[])
    again = Plan.from_dict({**data, "version": 1})
    assert again.orders == made.orders and again.definitions is not None
    [read] = again.definitions.updates
    assert not read.before.uuid and read.definition.name == "host0"
    stored = StoredDefinition(from_plain(ProviderDefinition, before, "before", {}), 3, HOST)
    assert again.compared_with({HOST: stored}) == made


_deltas = st.builds(
    Use,
    uuids(),
    resource_class_names(),
    st.integers(1, 2**63 - 1),
    st.lists(consumer_names(), max_size=3, unique=True).map(tuple),
)
_some = st.lists(_deltas, min_size=1, max_size=3, unique_by=lambda delta: delta.key).map(tuple)
_orders = (
    st.builds(
        ConsumerOrder.claim,
        consumer_names(),
        _some,
        project=st.none() | consumer_names(),
        expires_at=st.none() | st.datetimes(timezones=st.just(datetime.UTC)),
    )
    | st.builds(ConsumerOrder.adjust, consumer_names(), _some, generation=st.none())
    | st.builds(ConsumerOrder.release, consumer_names(), st.none() | st.integers(0, 2**63 - 1))
)


@pytest.mark.law(10)
@hypothesis.given(st.lists(_orders, max_size=4, unique_by=lambda order: order.consumer))
def test_orders_of_any_shape_are_the_same_after_json(made: list[Any]) -> None:
    written = Plan(None, tuple(made))
    assert Plan.from_json(written.to_json()) == written


@pytest.mark.law(10)
@hypothesis.given(inventories(max_total=2**20), st.booleans())
def test_definitions_of_any_shape_are_the_same_after_json(
    had: ro.Inventories, is_new: bool
) -> None:
    kept = Provider("host0", "VCPU=1", uuid=HOST, generation=0)
    written = Plan(diff(None if is_new else kept, Provider("host0", had)))
    assert Plan.from_json(written.to_json()) == written


def test_a_plan_says_what_it_changes_in_a_line_each() -> None:
    assert str(plan()).splitlines() == [
        "+ host0/cell0 below host0: VCPU=8:allocation_ratio=1.5 CUSTOM_CELL "
        "VCPU uses 1 VCPU of host0",
        "~ host0: VCPU=16:reserved=2 -PGPU +CUSTOM_NEW -CUSTOM_OLD +aggregate r7",
        "+ job-1 allocates VCPU=2 of host0",
        "~ job-2 changes by VCPU=-1 (cpu1) of host0",
        "~ job-3 is allocated FPGA=1 (a b) of host0/old",
        "- job-4 releases everything",
        "~ host0: disabled until 2030-01-01 00:00: fan",
        "~ host0/old: enabled",
        "- host0/old",
    ]


def test_a_plan_of_nothing_is_false_and_says_so() -> None:
    assert not Plan()
    assert str(Plan()) == "nothing changed"
    assert plan()
    assert Plan.from_json('{"version": 1}') == Plan()


def test_a_plan_knows_whom_it_is_about() -> None:
    made = plan()
    assert made.consumers == ("job-1", "job-2", "job-3", "job-4")
    assert {HOST, OTHER} < set(made.places)
    assert made.subject == Plan.from_json(made.to_json()).subject != Plan().subject
    write = made.write(Operation())
    assert (write.orders, write.definitions) == (made.orders, made.definitions)


def _broken(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(plan().to_json())
    change(data)
    return data


def _definition(data: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = data["definitions"]["creates"][0]
    return found


@pytest.mark.law(8)
@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda d: d.pop("version"), "InvalidField", '"version": 2'),
        (lambda d: d.update(version=True), "InvalidField", '"version": 2'),
        (lambda d: d.update(version=3), exceptions.UnsupportedVersion, "version 3, .*1 to 2"),
        (lambda d: d.update(order=[]), "UnknownField", "'order'"),
        (lambda d: d.update(orders={}), "InvalidField", "plan.orders: got {}"),
        (lambda d: d.update(names=[]), "InvalidField", "plan.names"),
        (lambda d: d.update(names={"x": "host0"}), "InvalidName", "uuid"),
        (lambda d: d["orders"][0].pop("order"), "InvalidField", r"orders\[0\].order"),
        (lambda d: d["orders"][0].update(order="take"), "InvalidField", "claim, adjust"),
        (lambda d: d["orders"][0].update(colour=1), "UnknownField", "'colour'"),
        (lambda d: d["orders"][1].pop("consumer"), "InvalidField", r"\[1\].consumer"),
        (lambda d: d["orders"][1].update(consumer=""), "InvalidField", r"\[1\].consumer"),
        (lambda d: d["orders"][1].update(consumer="job-1"), "DuplicateKey", "job-1"),
        (lambda d: d["orders"][1].update(generation="7"), "InvalidField", "an integer"),
        (lambda d: d["orders"][1].update(generation=-1), "InvalidField", "from 0 to"),
        (lambda d: d["orders"][1].update(generation=True), "InvalidField", "an integer"),
        (lambda d: d["orders"][3].update(generation=2**63), "InvalidField", "from 0 to"),
        (
            lambda d: d["definitions"]["updates"][0].update(generation=-1),
            "InvalidField",
            r"updates\[0\].generation: got -1",
        ),
        (
            lambda d: d["definitions"]["removals"][0].update(generation=1.0),
            "InvalidField",
            r"removals\[0\].generation: got 1.0",
        ),
        (
            lambda d: d["orders"][0].update(expires_at="9999-12-31T23:00:00-05:00"),
            "InvalidField",
            r"orders\[0\].expires_at: .*9999",
        ),
        (
            lambda d: d["orders"][0].update(expires_at="0001-01-01T00:00:00+05:00"),
            "InvalidField",
            r"orders\[0\].expires_at",
        ),
        (lambda d: d["orders"][1].update(aggregate=1), "InvalidField", "true or false"),
        (lambda d: d["orders"][0].update(expires_at="soon"), "InvalidField", "date"),
        (
            lambda d: d["orders"][0].update(expires_at="2030-01-01T00:00:00"),
            "InvalidField",
            "offset",
        ),
        (lambda d: d["orders"][0].update(request="{}"), "InvalidField", "request"),
        (lambda d: d["orders"][0].update(uses=[]), "InvalidAmount", "at least one"),
        (lambda d: d["orders"][0].update(uses={}), "InvalidField", "a list"),
        (
            lambda d: d["orders"][0]["uses"][0].update(amount=1.5),
            "InvalidField",
            r"orders\[0\].uses\[0\].amount: got 1.5, expected an integer",
        ),
        (
            lambda d: d["orders"][0]["uses"][0].update(amount=-1),
            "InvalidAmount",
            "an integer from 1",
        ),
        (
            lambda d: d["orders"][0]["uses"][0].update(provider_uuid="host0"),
            "InvalidField",
            "a uuid",
        ),
        (lambda d: d.update(definitions=[]), "InvalidField", "plan.definitions"),
        (
            lambda d: d.update(adopted=[HOST, HOST.upper()]),
            "DuplicateKey",
            "plan.adopted.*each provider once",
        ),
        (lambda d: _definition(d).update(name=" x"), "InvalidField", "name"),
        (lambda d: _definition(d).update(name=HOST), "InvalidName", "no uuid but its own"),
        (lambda d: _definition(d).update(traits=["HW_NO"]), "UnknownTrait", "HW_NO"),
        (
            lambda d: _definition(d)["shares"][0].update(factor=0),
            "InvalidField",
            "share factor of host0/cell0: got 0",
        ),
        (
            lambda d: _definition(d)["shares"][0].update(factor=2**31),
            "InvalidField",
            "share factor",
        ),
        (lambda d: _definition(d).update(traits=["x"]), "InvalidField", "traits"),
        (
            lambda d: _definition(d).update(traits=["CUSTOM_A", "CUSTOM_A"]),
            "DuplicateKey",
            "each once",
        ),
        (
            lambda d: _definition(d)["inventories"][0].update(capacity=99),
            exceptions.InvalidInventory,
            "capacity=12",
        ),
        (
            lambda d: _definition(d)["inventories"][0].update(reserved=99),
            exceptions.InvalidInventory,
            "reserved",
        ),
        (
            lambda d: d["definitions"]["updates"][0].update(removed=["VCPU"]),
            "UnknownField",
            "'removed'",
        ),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    change: Callable[[dict[str, Any]], Any], error: type[Exception] | str, said: str
) -> None:
    with raises_code(error, match=said):
        Plan.from_dict(_broken(change))


@pytest.mark.parametrize("text", ["", "{", "[1", "nul", b"\xff", None, 7])
def test_what_is_no_json_is_refused(text: Any) -> None:
    with raises_code("InvalidText", match="plan"):
        Plan.from_json(text)


def test_a_key_that_comes_twice_is_refused() -> None:
    with raises_code("DuplicateKey", match="each key once"):
        Plan.from_json('{"version": 1, "orders": [], "orders": []}')


@pytest.mark.law(8)
@pytest.mark.parametrize("parts", [("changes", ()), (None, ("order",)), (None, (ConsumerOrder,))])
def test_a_plan_is_made_of_changes_and_orders(parts: Any) -> None:
    with raises_code("InvalidField"):
        Plan(*parts)


@pytest.mark.parametrize(
    "until",
    [
        "2030-01-01T00:00:00Z",
        0,
        datetime.datetime(2030, 1, 1),
        datetime.datetime(2030, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    ],
)
def test_an_expiry_that_is_no_moment_in_utc_is_no_order(until: Any) -> None:
    with raises_code("InvalidField", match="expires_at: got"):
        ConsumerOrder.claim("job", (), expires_at=until)
