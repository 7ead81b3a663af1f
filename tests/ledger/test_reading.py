"""Reading: trees as a stream, lists by filters in pages, what is used and over-full."""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import new_operation
from resource_objects.providers import Consumer
from resource_objects.providers.listing import By, Total
from resource_objects.providers.orders import ConsumerOrder, Operation, Use
from resource_objects.providers.pools import SHARES
from resource_objects.providers.provider import Share
from resource_objects.testing.refusals import raises_code
from tests.ledger.conftest import paged

HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def fleet(ledger_with: Callable[[Callable[[ro.Ledger], object]], ro.Ledger]) -> ro.Ledger:
    """Four hosts in two racks, one of them with a device, one with cells."""
    return ledger_with(four_hosts)


def four_hosts(ledger: ro.Ledger) -> None:
    first = ro.Provider("host0", "VCPU=8,MEMORY_MB=100", aggregates=["rack0", "ssd"])
    first.add("host0/gpu", "PGPU=1", traits=["CUSTOM_H100"], aggregates=["gpus"])
    last = ro.Provider("host3", "VCPU=8")
    last.add(
        "host3/cell",
        "VCPU=8",
        shares=[Share(resource_class="VCPU", of="host3", of_class="VCPU")],
    )
    ledger.sync(
        first,
        ro.Provider("host1", "VCPU=8:max_unit=2", traits=["CUSTOM_A"], aggregates=["rack0"]),
        ro.Provider("host2", "VCPU=8", traits=["CUSTOM_A", "CUSTOM_B"], aggregates=["rack1"]),
        last,
    )


def named(found: Iterator[Any]) -> list[str]:
    return [one.name for one in found]


class Counted:
    """A backend that counts what is asked of it."""

    def __init__(self, ledger: ro.Ledger) -> None:
        self._backend = ledger.backend
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._backend, name)


def counted(ledger: ro.Ledger) -> tuple[ro.Ledger, list[str]]:
    backend: Any = Counted(ledger)
    return ro.Ledger(backend), backend.asked


# --- trees ---


def test_trees_come_in_the_order_they_were_made(ledger: ro.Ledger) -> None:
    for name in ("b", "c", "a"):
        ledger.sync(ro.Provider(name, "VCPU=1"))
    assert named(ledger.trees()) == ["b", "c", "a"]
    for page in (1, 2, 3, 4):
        assert list(paged(ledger, page).trees()) == list(ledger.trees())


def test_trees_are_read_in_pages(ledger: ro.Ledger) -> None:
    ledger.sync(*(ro.Provider(f"host{n}", "VCPU=1") for n in range(10)))
    counting, asked = counted(ledger)
    stream = paged(counting, 4).trees()
    assert asked == []
    next(stream)
    assert asked == ["list_providers", "read"]
    assert len(list(stream)) == 9
    assert asked == ["list_providers", "read"] * 3


def test_trees_come_whole_with_what_is_used(fleet: ro.Ledger) -> None:
    fleet.claim("job", {"host0/gpu": "PGPU=1", "host3/cell": "VCPU=3"})
    found = {root.name: root for root in fleet.trees()}
    assert list(found) == ["host0", "host1", "host2", "host3"]
    (gpu,), (cell,) = found["host0"].children, found["host3"].children
    assert (gpu.inventories["PGPU"].used, cell.inventories["VCPU"].used) == (1, 3)
    assert found["host3"].inventories["VCPU"].used == 3
    assert gpu.traits == {"CUSTOM_H100"}
    assert gpu.aggregates == {"gpus"}
    assert all(one.obj_context is fleet for one in found["host0"].walk())
    assert not fleet.sync(*found.values())


def test_some_trees_are_read_by_any_of_their_providers(fleet: ro.Ledger) -> None:
    uuid = fleet.provider("host2").uuid or ""
    given = ("host3/cell", uuid, "host0", "host0/gpu", "host2")
    for page in (1, 2, 100):
        assert named(paged(fleet, page).trees(*given)) == ["host3", "host2", "host0"]
    with raises_code("ProviderNotFound", match="nobody"):
        list(fleet.trees("host0", "nobody"))


def test_a_tree_that_goes_below_another_meanwhile_comes_with_that_one(fleet: ro.Ledger) -> None:
    stream = paged(fleet, 2).trees()
    assert next(stream).name == "host0"
    fleet.change("host3", parent="host2")
    fleet.remove("host1")
    assert named(stream) == ["host1", "host2"]  # the first page was read before


def test_a_provider_is_read_by_name_and_uuid_with_what_is_below(fleet: ro.Ledger) -> None:
    found = fleet.provider("host0")
    assert [one.name for one in found.walk()] == ["host0", "host0/gpu"]
    assert fleet.provider(found.uuid or "") == found
    assert [one.name for one in fleet.provider("host0/gpu").walk()] == ["host0/gpu"]
    with raises_code("ProviderNotFound", match="nobody"):
        fleet.provider("nobody")


def test_a_snapshot_is_of_everything_or_of_a_part(fleet: ro.Ledger) -> None:
    assert fleet.snapshot().hosts == ("host0", "host1", "host2", "host3")
    assert fleet.snapshot("host0").hosts == ("host0",)
    with raises_code("ProviderNotFound", match="nobody"):
        fleet.snapshot("nobody")


# --- providers by filters ---


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "host0 host0/gpu host1 host2 host3 host3/cell"),
        ({"name": "host1"}, "host1"),
        ({"name": ["host2", "host0", "nobody"]}, "host0 host2"),
        ({"name": []}, ""),
        ({"tree": "host0/gpu"}, "host0 host0/gpu"),
        ({"tree": ["host0", "host2"]}, "host0 host0/gpu host2"),
        ({"tree": "nobody"}, ""),
        ({"aggregates": ["rack0"]}, "host0 host1"),
        ({"aggregates": ["rack0", "ssd"]}, "host0"),
        ({"aggregates": [["rack0", "rack1"]]}, "host0 host1 host2"),
        ({"aggregates": [{"rack0", "rack1"}, "ssd"]}, "host0"),
        ({"aggregates": [[]]}, ""),
        ({"forbidden_aggregates": ["rack0", "gpus"]}, "host2 host3 host3/cell"),
        ({"aggregates": ["rack0"], "forbidden_aggregates": ["ssd"]}, "host1"),
        ({"required": ["CUSTOM_A"]}, "host1 host2"),
        ({"required": ["CUSTOM_A", "CUSTOM_B"]}, "host2"),
        ({"required": ["CUSTOM_A"], "forbidden": ["CUSTOM_B"]}, "host1"),
        ({"forbidden": ["CUSTOM_A", "CUSTOM_H100"]}, "host0 host3 host3/cell"),
        ({"any_of": [["CUSTOM_B", "CUSTOM_H100"]]}, "host0/gpu host2"),
        ({"any_of": [["CUSTOM_A"], ["CUSTOM_B", "CUSTOM_H100"]]}, "host2"),
        ({"room": "VCPU=3"}, "host0 host2 host3 host3/cell"),
        ({"room": {"VCPU": 2, "MEMORY_MB": 50}}, "host0"),
        ({"room": ro.Amounts("PGPU=1")}, "host0/gpu"),
        ({"room": "VCPU=9"}, ""),
        ({"over_capacity": True}, ""),
        ({"tree": "host0", "required": ["CUSTOM_A"]}, ""),
    ],
)
def test_providers_are_listed_by_what_they_are(
    fleet: ro.Ledger, asked: dict[str, Any], expected: str
) -> None:
    for page in (1, 2, 500):
        # those that one call made are in no order
        assert sorted(named(paged(fleet, page).providers(**asked))) == expected.split()


def test_a_listed_provider_tells_of_itself(fleet: ro.Ledger) -> None:
    fleet.claim("job", {"host0/gpu": "PGPU=1"})
    (found,) = fleet.providers(name="host0/gpu")
    root = fleet.provider("host0")
    assert (found.name, found.uuid) == ("host0/gpu", root.children[0].uuid)
    assert (found.parent, found.parent_uuid) == ("host0", root.uuid)
    assert (found.root, found.root_uuid) == ("host0", root.uuid)
    assert found.generation == root.children[0].generation
    assert str(found.inventories) == "PGPU=1:used=1"
    assert (found.traits, found.aggregates) == ({"CUSTOM_H100"}, {"gpus"})
    assert (found.reported_at, found.allocation_writes) == (None, 1)
    assert named(fleet.providers(uuid=found.uuid.upper())) == ["host0/gpu"]
    assert named(fleet.providers(uuid=[found.uuid, new_operation()])) == ["host0/gpu"]


def test_room_is_what_is_free_there_and_where_it_is_shared(fleet: ro.Ledger) -> None:
    fleet.claim("job", {"host3": "VCPU=6", "host0": "VCPU=1"})
    assert named(fleet.providers(room="VCPU=3")) == ["host0", "host2"]
    assert sorted(named(fleet.providers(room="VCPU=2"))) == [
        "host0",
        "host1",
        "host2",
        "host3",
        "host3/cell",
    ]


@pytest.mark.parametrize(
    "asked",
    [
        {"name": 7},
        {"name": ""},
        {"uuid": "host0"},
        {"aggregates": "rack0"},
        {"aggregates": [""]},
        {"aggregates": [7]},
        {"forbidden_aggregates": "rack0"},
        {"required": "CUSTOM_A"},
        {"required": ["AVX9"]},
        {"any_of": "CUSTOM_A"},
        {"any_of": ["CUSTOM_A"]},
        {"room": "VCPU=x"},
        {"room": "NOPE=1"},
        {"limit": 0},
        {"limit": "5"},
        {"after": ""},
    ],
)
def test_a_filter_that_cannot_be_is_refused_when_it_is_asked(
    fleet: ro.Ledger, asked: dict[str, Any]
) -> None:
    with pytest.raises(exceptions.InvalidInput):
        fleet.providers(**asked)


# --- consumers ---


@pytest.fixture
def busy(fleet: ro.Ledger) -> ro.Ledger:
    """Four consumers, three of them of somebody."""
    uuids = fleet.backend.uuids(["host0", "host0/gpu", "host1", "host2"])
    for name, place, kind, amount, project, user, consumer_type in (
        ("a", "host0", "VCPU", 1, "p1", "u1", "INSTANCE"),
        ("b", "host0/gpu", "PGPU", 1, "p1", "u2", None),
        ("c", "host1", "VCPU", 2, "p2", "u1", "INSTANCE"),
        ("d", "host2", "VCPU", 3, None, None, None),
    ):
        order = ConsumerOrder.claim(
            name,
            (Use(uuids[place], kind, amount),),
            project=project,
            user=user,
            consumer_type=consumer_type,
        )
        fleet.backend.claim(Operation(), order)
    return fleet


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "a b c d"),
        ({"name": "b"}, "b"),
        ({"name": ["d", "a", "nobody"]}, "a d"),
        ({"project": "p1"}, "a b"),
        ({"project": ["p2", None]}, "c d"),
        ({"project": [None]}, "d"),
        ({"project": []}, ""),
        ({"user": "u1"}, "a c"),
        ({"user": "u1", "project": "p1"}, "a"),
        ({"consumer_type": "INSTANCE"}, "a c"),
        ({"consumer_type": [None]}, "b d"),
        ({"tree": "host0"}, "a b"),
        ({"tree": "host0/gpu"}, "a b"),
        ({"provider": "host0"}, "a"),
        ({"provider": "nobody"}, ""),
        ({"state": "held"}, "a b c d"),
        ({"state": "confirmed"}, ""),
        ({"older_than": HOUR}, ""),
        ({"younger_than": HOUR}, "a b c d"),
        ({"older_than": 0 * HOUR}, "a b c d"),
    ],
)
def test_consumers_are_listed_by_whose_they_are_and_where(
    busy: ro.Ledger, asked: dict[str, Any], expected: str
) -> None:
    for page in (1, 3, 500):
        assert named(paged(busy, page).consumers(**asked)) == expected.split()


def test_a_consumer_tells_what_it_holds(busy: ro.Ledger) -> None:
    (found,) = busy.consumers(name="c")
    assert isinstance(found, Consumer)
    assert (found.project, found.user, found.consumer_type) == ("p2", "u1", "INSTANCE")
    assert found.claim == busy.get_claim("c")
    assert (found.uuid, found.generation) == (found.claim.consumer_uuid, found.claim.generation)
    assert str(found) == "c holds VCPU=2 of host1"
    assert Consumer.obj_from_primitive(found.obj_to_primitive()) == found


def test_a_consumer_keeps_the_request_it_was_made_for(fleet: ro.Ledger) -> None:
    asked = ro.Request("VCPU=2", required=["CUSTOM_B"])
    fleet.claim("job", fleet.snapshot().candidates(asked))
    (found,) = fleet.consumers()
    assert found.request == asked


@pytest.mark.parametrize(
    "asked",
    [
        {"name": ""},
        {"project": 7},
        {"project": [""]},
        {"state": "gone"},
        {"older_than": 7},
        {"older_than": -HOUR},
        {"younger_than": datetime.datetime.now(datetime.UTC)},
        {"tree": ""},
        {"provider": 7},
        {"limit": "5"},
        {"after": ""},
    ],
)
def test_consumers_that_cannot_be_asked_for_are_refused(
    ledger: ro.Ledger, asked: dict[str, Any]
) -> None:
    with pytest.raises(exceptions.InvalidInput):
        ledger.consumers(**asked)


# --- what is used ---


def rows(found: Any) -> list[tuple[Any, ...]]:
    return [(one.group, one.resource_class, one.used, one.consumers) for one in found]


def test_totals_are_summed_by_whatever_one_likes(busy: ro.Ledger) -> None:
    assert rows(busy.totals()) == [(None, "VCPU", 6, 3), (None, "PGPU", 1, 1)]
    assert rows(busy.totals("project")) == [
        ("p1", "VCPU", 1, 1),
        ("p1", "PGPU", 1, 1),
        ("p2", "VCPU", 2, 1),
        (None, "VCPU", 3, 1),
    ]
    assert rows(busy.totals("user", project="p1")) == [("u1", "VCPU", 1, 1), ("u2", "PGPU", 1, 1)]
    assert rows(busy.totals("consumer_type", provider="host1")) == [("INSTANCE", "VCPU", 2, 1)]
    assert rows(busy.totals(by="provider", tree="host0")) == [
        ("host0", "VCPU", 1, 1),
        ("host0/gpu", "PGPU", 1, 1),
    ]
    assert list(busy.totals(project="nobody")) == []
    for wrong in ("", "rack", None, 7):
        with raises_code("InvalidField", match="totals by"):
            busy.totals(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("by", list(By))
@pytest.mark.parametrize("limit", [1, 2, 9])
def test_totals_are_read_on_group_by_group(busy: ro.Ledger, by: By, limit: int) -> None:
    whole = list(busy.totals(by))
    paged: list[Total] = []
    after: str | None = None
    while page := list(busy.totals(by, limit=limit, after=after)):
        groups = {one.resource_class if by is By.RESOURCE_CLASS else one.group for one in page}
        assert len(groups) <= limit and len(paged) < len(whole)
        paged += page
        last = page[-1]
        after = last.resource_class if by is By.RESOURCE_CLASS else last.group
        if after is None:
            break
    assert paged == whole
    assert list(busy.totals("project", after="p1", limit=1)) == whole_of(busy, "p2")
    for wrong in ({"limit": 0}, {"limit": "1"}, {"after": 7}):
        with pytest.raises(exceptions.InvalidInput):
            busy.totals(by, **wrong)  # type: ignore[arg-type]


def whole_of(ledger: ro.Ledger, project: str) -> list[Total]:
    return [one for one in ledger.totals("project") if one.group == project]


def test_a_listed_provider_says_the_same_as_the_provider(busy: ro.Ledger) -> None:
    for listed in busy.providers():
        one = busy.provider(listed.uuid)
        for name in ("uuid", "name", "generation", "inventories", "traits", "aggregates"):
            assert getattr(listed, name) == getattr(one, name), name


def test_what_is_used_by_shares_is_summed_once(fleet: ro.Ledger) -> None:
    fleet.claim("job", {"host3/cell": "VCPU=3"})
    assert rows(fleet.totals()) == [(None, "VCPU", 3, 1)]
    assert fleet.usage("host3")["host3", "VCPU"].used == 3
    assert fleet.usage("host3").consumers == {"job": {"VCPU": 3}}


def test_what_is_over_full_is_listed_with_who_holds_it(busy: ro.Ledger) -> None:
    assert list(busy.usage(over_capacity=True)) == []
    busy.change("host2", inventories="VCPU=2")
    busy.change("host0", inventories="VCPU=1:reserved=1,MEMORY_MB=7")
    found = [
        (use.provider, use.resource_class, use.free, use.holders)
        for use in busy.usage(over_capacity=True)
    ]
    assert found == [
        ("host0", "VCPU", -1, (("a", 1),)),
        ("host2", "VCPU", -1, (("d", 3),)),
    ]
    assert named(busy.providers(over_capacity=True)) == ["host0", "host2"]
    busy.release("a")
    assert [use.provider for use in busy.usage(over_capacity=True)] == ["host2"]


def test_reading_the_usage_of_what_is_not_there_says_so(ledger: ro.Ledger) -> None:
    assert list(ledger.usage()) == []
    with raises_code("ProviderNotFound", match="nobody"):
        ledger.usage("nobody")
    with raises_code("ConsumerNotFound", match="nobody"):
        ledger.get_claim("nobody")


@pytest.mark.law(11)
def test_reading_writes_nothing(busy: ro.Ledger) -> None:
    before = busy.feed.cursor()
    list(busy.trees())
    list(busy.providers(room="VCPU=1"))
    list(busy.consumers())
    list(busy.pools.list())
    list(busy.names.classes.list())
    list(busy.usage(over_capacity=True))
    busy.totals("project")
    busy.usage()
    busy.get_claim("a")
    busy.snapshot()
    assert busy.feed.cursor() == before


# --- limit and after, in all lists ---


@pytest.fixture
def many(ledger_with: Callable[[Callable[[ro.Ledger], object]], ro.Ledger]) -> ro.Ledger:
    """A ledger with seven of everything that is listed, read two at a time."""
    return paged(ledger_with(seven_of_each), 2)


def seven_of_each(ledger: ro.Ledger) -> None:
    for number in range(7):
        ledger.sync(
            ro.Provider(f"host{number}", "VCPU=8"), ro.Provider(f"nfs{number}", "DISK_GB=9")
        )
        ledger.pools.share(f"nfs{number}", hosts=[f"host{number}"])
        ledger.names.classes.ensure(f"CUSTOM_C{number}")
        ledger.names.traits.ensure(f"CUSTOM_T{number}")
        ledger.claim(f"job-{number}", {f"host{number}": "VCPU=1"}, expires_at=EARLY)


EARLY = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)

LISTS: dict[str, tuple[Callable[..., Iterator[Any]], str]] = {
    "providers": (lambda ledger, **more: ledger.providers(**more), "name"),
    "hosts": (lambda ledger, **more: ledger.providers(forbidden=[SHARES], **more), "name"),
    "trees": (lambda ledger, **more: ledger.trees(**more), "name"),
    "consumers": (lambda ledger, **more: ledger.consumers(**more), "name"),
    "expired": (lambda ledger, **more: ledger.expired(**more), "consumer"),
    "classes": (lambda ledger, **more: ledger.names.classes.list(**more), "name"),
    "traits": (lambda ledger, **more: ledger.names.traits.list(**more), "name"),
    "aggregates": (lambda ledger, **more: ledger.names.aggregates.list(**more), "name"),
    "pools": (lambda ledger, **more: ledger.pools.list(**more), "name"),
}


@pytest.mark.parametrize("listed", LISTS)
def test_every_list_may_be_bounded_and_gone_on_with(many: ro.Ledger, listed: str) -> None:
    ask, key = LISTS[listed]
    every = [getattr(one, key) for one in ask(many)]
    assert len(set(every)) == len(every) >= 7
    for limit in (1, 2, 3, 10_000):
        assert [getattr(one, key) for one in ask(many, limit=limit)] == every[:limit]
    seen: list[str] = []
    while some := [getattr(o, key) for o in ask(many, limit=3, after=seen[-1] if seen else None)]:
        seen += some
    assert seen == every


@pytest.mark.parametrize("listed", ["providers", "trees", "pools"])
def test_a_list_goes_on_after_a_provider_that_is_there(many: ro.Ledger, listed: str) -> None:
    ask, _ = LISTS[listed]
    uuid = many.provider("nfs3").uuid
    assert named(ask(many, after=uuid)) == named(ask(many, after="nfs3"))
    with raises_code("ProviderNotFound", match="nobody"):
        list(ask(many, after="nobody"))


@pytest.mark.parametrize("listed", LISTS)
def test_a_limit_is_a_count_from_one(many: ro.Ledger, listed: str) -> None:
    wrong: Any
    for wrong in (0, -1, True, "3", 1.0):
        with raises_code("InvalidField", match="limit"):
            LISTS[listed][0](many, limit=wrong)


def test_expired_claims_are_released_as_many_as_one_likes(many: ro.Ledger) -> None:
    assert [one.consumer for one in many.release_expired(limit=3)] == ["job-0", "job-1", "job-2"]
    assert len(many.release_expired()) == 4


def test_trees_that_are_named_are_not_bounded_as_well(many: ro.Ledger) -> None:
    with raises_code("InvalidField", match="trees"):
        list(many.trees("host0", limit=1))


def test_what_is_over_full_is_told_of_one_tree_too(busy: ro.Ledger) -> None:
    busy.change("host0", inventories="VCPU=1:reserved=1,MEMORY_MB=7")
    everywhere = list(busy.usage(over_capacity=True))
    assert list(busy.usage("host0", over_capacity=True)) == everywhere
    assert set(busy.usage(over_capacity=True).consumers) <= {"a", "b", "c", "d"}


# --- rows that another program wrote ---


@pytest.mark.law(8)
@pytest.mark.parametrize(
    ("damage", "said"), [("state = 'odd'", "Claim.state.*'odd'"), ("uuid = 'odd'", "'odd'")]
)
def test_a_row_that_is_no_claim_is_refused_where_it_is_read(
    sqlite_url: Callable[[str], str], tmp_path: Path, damage: str, said: str
) -> None:
    with ro.connect(sqlite_url("ledger.db")) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=8"))
        ledger.claim("job", {"host0": "VCPU=1"})
        with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as rows, rows:
            rows.execute(f"UPDATE consumers SET {damage}")
        for read in (lambda: ledger.get_claim("job"), lambda: list(ledger.consumers())):
            with pytest.raises(exceptions.InvalidInput, match=said):
                read()


@pytest.mark.law(2)
def test_a_release_that_is_done_is_told_whatever_the_rows_said(
    sqlite_url: Callable[[str], str], tmp_path: Path
) -> None:
    with ro.connect(sqlite_url("ledger.db")) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=8"))
        ledger.claim("job", {"host0": "VCPU=1"})
        with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as rows, rows:
            rows.execute("UPDATE consumers SET uuid = 'odd'")
        released = ledger.release("job")
        assert (released.consumer, released.state) == ("job", "released")
        assert ledger.snapshot().used("VCPU") == 0
