"""Pages and totals of a ledger in memory: filters, their order, and what comes and goes between."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from resource_objects.backends.memory import URL, MemoryBackend
from resource_objects.providers import Provider
from resource_objects.providers.definition import DefinitionChanges, ProviderRemoval
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    ProviderFilter,
    Total,
    sorted_totals,
)
from resource_objects.providers.orders import NameKind, Operation, Write
from resource_objects.providers.provider import Share
from resource_objects.testing.conformance.suite import (
    change_names,
    claim,
    define,
    release,
    rename,
    stored_tree,
)

VCPU = "VCPU"


@pytest.fixture
def backend() -> Iterator[MemoryBackend]:
    """Two hosts and a tree, with a few consumers."""
    backend = MemoryBackend.open(URL)
    tree = Provider("tree", "VCPU=8", traits=["CUSTOM_FAST"], aggregates=["rack-1"])
    for name in ("tree/a", "tree/b"):
        share = Share(resource_class=VCPU, of="tree", of_class=VCPU, factor=2)
        tree.add(name, "VCPU=4:max_unit=3", traits=["CUSTOM_CELL"], shares=[share])
    small = Provider("small", "VCPU=1", traits=["CUSTOM_FAST", "CUSTOM_OLD"], aggregates=["rack-2"])
    define(backend, tree, small, Provider("plain", "MEMORY_MB=100", aggregates=["rack-1", "room"]))
    yield backend
    backend.close()


def listed(backend: MemoryBackend, limit: int = 100, **wanted: Any) -> list[str]:
    return [one.name for one in backend.list_providers(ProviderFilter(**wanted), limit)]


def some(*names: str) -> frozenset[str]:
    return frozenset(names)


ALL = ["tree", "tree/a", "tree/b", "small", "plain"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ALL),
        ({"names": some("plain", "tree", "nobody")}, ["tree", "plain"]),
        ({"names": some()}, []),
        ({"uuids": some()}, []),
        ({"uuids": some("nobody")}, []),
        ({"trees": some("tree/b")}, ["tree", "tree/a", "tree/b"]),
        ({"trees": some("tree/b", "small", "nobody")}, ["tree", "tree/a", "tree/b", "small"]),
        ({"trees": some("nobody")}, []),
        ({"trees": some("tree"), "names": some("tree/a", "small")}, ["tree/a"]),
        ({"aggregates": (some("rack-1"),)}, ["tree", "plain"]),
        ({"aggregates": (some("rack-1", "rack-2"), some("room", "none"))}, ["plain"]),
        ({"aggregates": (some("none"),)}, []),
        ({"aggregates": (some(),)}, []),
        ({"forbidden_aggregates": some("rack-1", "none")}, ["tree/a", "tree/b", "small"]),
        ({"required": some("CUSTOM_FAST")}, ["tree", "small"]),
        ({"required": some("CUSTOM_FAST", "CUSTOM_OLD")}, ["small"]),
        ({"forbidden": some("CUSTOM_FAST", "CUSTOM_CELL")}, ["plain"]),
        ({"any_of": (some("CUSTOM_OLD", "CUSTOM_CELL"),)}, ["tree/a", "tree/b", "small"]),
        ({"any_of": (some("CUSTOM_OLD", "CUSTOM_CELL"), some("CUSTOM_FAST"))}, ["small"]),
        ({"roots_only": True}, ["tree", "small", "plain"]),
        ({"roots_only": True, "required": some("CUSTOM_FAST")}, ["tree", "small"]),
        ({"over_capacity": True}, []),
        ({"reported_before": datetime.datetime.max.replace(tzinfo=datetime.UTC)}, []),
        ({"room": ((VCPU, 1),)}, ["tree", "tree/a", "tree/b", "small"]),
        ({"room": ((VCPU, 2),)}, ["tree", "tree/a", "tree/b"]),
        ({"room": ((VCPU, 4),)}, ["tree"]),  # max_unit of the cells
        ({"room": ((VCPU, 1), ("MEMORY_MB", 1))}, []),
        ({"room": (("DISK_GB", 1),)}, []),
    ],
)
def test_a_filter_wants_all_its_conditions(
    backend: MemoryBackend, wanted: dict[str, Any], found: list[str]
) -> None:
    assert listed(backend, **wanted) == found


def test_who_has_a_trait_is_known_whatever_becomes_of_it(backend: MemoryBackend) -> None:
    fast, quick = some("CUSTOM_FAST"), some("CUSTOM_QUICK")
    change_names(backend, rename(NameKind.TRAIT, "CUSTOM_FAST", "CUSTOM_QUICK"))
    assert (listed(backend, required=fast), listed(backend, required=quick)) == (
        [],
        ["tree", "small"],
    )
    small = stored_tree(backend, "small")
    small.update(traits=["CUSTOM_OLD"])
    define(backend, small, Provider("other", "VCPU=1", traits=["CUSTOM_FAST"]))
    assert (listed(backend, required=fast), listed(backend, required=quick)) == (
        ["other"],
        ["tree"],
    )
    gone = stored_tree(backend, "other")
    removal = ProviderRemoval(gone.uuid or "", gone.name, gone.generation or 0)
    backend.define(Operation(), DefinitionChanges("other", removals=(removal,)))
    assert listed(backend, required=fast) == []
    many = [Provider(f"many-{n:03}", "VCPU=1", traits=["CUSTOM_FAST"]) for n in range(300)]
    define(backend, *many)
    assert listed(backend, 1000, required=fast) == [one.name for one in many]


def test_room_is_also_what_is_left_where_it_shares(backend: MemoryBackend) -> None:
    names = backend.uuids(ALL)
    claim(backend, "job", {names["tree"]: "VCPU=3"})
    assert listed(backend, room=((VCPU, 3),)) == ["tree"]
    assert listed(backend, room=((VCPU, 2),)) == ["tree", "tree/a", "tree/b"]


def test_over_capacity_lists_what_was_shrunk_below_its_use(backend: MemoryBackend) -> None:
    names = backend.uuids(ALL)
    claim(backend, "job", {names["tree/a"]: "VCPU=2"})
    tree = stored_tree(backend, "tree")
    tree.update(inventories=type(tree.inventories)("VCPU=3"))
    define(backend, tree)
    assert listed(backend, over_capacity=True) == ["tree"]
    [row] = backend.list_providers(ProviderFilter(over_capacity=True), 10)
    assert (row.records[0].used, row.records[0].capacity) == (4, 3)


def test_a_report_is_found_by_its_age(backend: MemoryBackend) -> None:
    uuid = backend.uuids(["small"])["small"]
    [before] = backend.list_providers(ProviderFilter(names=some("small")), 1)
    backend.commit(Write(Operation(), "report", "small", reported=(uuid,)))
    [row] = backend.list_providers(ProviderFilter(names=some("small")), 1)
    assert row.reported_at is not None and row.generation == before.generation
    later = row.reported_at + datetime.timedelta(microseconds=1)
    assert listed(backend, reported_before=later) == ["small"]
    assert listed(backend, reported_before=row.reported_at) == []


def test_a_listed_provider_tells_where_it_stands(backend: MemoryBackend) -> None:
    names = backend.uuids(ALL)
    [row] = backend.list_providers(ProviderFilter(names=some("tree/a")), 10)
    assert (row.uuid, row.parent, row.parent_uuid) == (names["tree/a"], "tree", names["tree"])
    assert (row.root, row.root_uuid) == ("tree", names["tree"])
    [root] = backend.list_providers(ProviderFilter(names=some("tree")), 10)
    assert (root.parent, root.parent_uuid, root.root) == (None, None, "tree")
    assert (root.traits, root.aggregates) == (some("CUSTOM_FAST"), some("rack-1"))


def test_pages_of_providers_go_on_by_number_whatever_comes_and_goes(
    backend: MemoryBackend,
) -> None:
    first = backend.list_providers(ProviderFilter(), 2)
    define(backend, Provider("new", "VCPU=1"))
    tree = stored_tree(backend, "tree")
    tree.update(children=[child for child in tree.children if child.name != "tree/b"])
    define(backend, tree)
    second = backend.list_providers(ProviderFilter(), 2, first[-1].number)
    third = backend.list_providers(ProviderFilter(), 2, second[-1].number)
    assert [one.name for one in (*first, *second, *third)] == [
        *("tree", "tree/a"),
        *("small", "plain"),
        "new",
    ]
    assert not backend.list_providers(ProviderFilter(), 2, third[-1].number)
    wanted = ProviderFilter(names=some("small", "tree"))
    assert [o.name for o in backend.list_providers(wanted, 9, first[0].number)] == ["small"]


def test_long_pages_are_filled_across_many_providers() -> None:
    backend = MemoryBackend.open(URL)
    for number in range(600):
        define(backend, Provider(f"host{number}", f"VCPU={1 + number % 3}"))
    found = listed(backend, limit=150, room=((VCPU, 3),))
    assert found == [f"host{number}" for number in range(2, 452, 3)]


# --- consumers ---


def consumers(
    backend: MemoryBackend, limit: int = 100, after: str | None = None, **wanted: Any
) -> list[str]:
    return [one.consumer for one in backend.list_consumers(ConsumerFilter(**wanted), limit, after)]


@pytest.fixture
def claimed(backend: MemoryBackend) -> MemoryBackend:
    """The ledger with consumers of some projects, users and types."""
    names = backend.uuids(ALL)
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    claim(backend, "b", {names["tree/a"]: "VCPU=1"}, project="p", user="u", expires_at=soon)
    claim(backend, "a", {names["tree"]: "VCPU=1"}, project="p", user="v", consumer_type="VM")
    claim(backend, "Z", {names["small"]: "VCPU=1"}, project="q")
    claim(backend, "ä", {names["plain"]: "MEMORY_MB=7", names["tree/a"]: "VCPU=1"})
    return backend


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["Z", "a", "b", "ä"]),
        ({"names": some("b", "Z", "nobody")}, ["Z", "b"]),
        ({"names": some()}, []),
        ({"projects": some("p")}, ["a", "b"]),
        ({"projects": frozenset(["q", None])}, ["Z", "ä"]),
        ({"projects": some()}, []),
        ({"projects": some("p"), "users": some("u")}, ["b"]),
        ({"types": some("VM")}, ["a"]),
        ({"types": frozenset([None])}, ["Z", "b", "ä"]),
        ({"states": some("held")}, ["Z", "a", "b", "ä"]),
        ({"states": some("confirmed")}, []),
        ({"tree": "tree/b"}, ["a", "b", "ä"]),
        ({"tree": "nobody"}, []),
        ({"provider": "tree/a"}, ["b", "ä"]),
        ({"provider": "nobody"}, []),
        ({"provider": "plain", "tree": "tree"}, ["ä"]),
        ({"provider": "tree/a", "projects": some("p")}, ["b"]),
        ({"names": some("a", "b"), "provider": "tree/a"}, ["b"]),
        ({"expires_before": datetime.datetime.max.replace(tzinfo=datetime.UTC)}, ["b"]),
    ],
)
def test_a_filter_of_consumers_wants_all_its_conditions(
    claimed: MemoryBackend, wanted: dict[str, Any], found: list[str]
) -> None:
    assert consumers(claimed, **wanted) == found


def test_consumers_are_found_by_uuid_of_a_provider_and_by_age(claimed: MemoryBackend) -> None:
    uuid = claimed.uuids(["tree/a"])["tree/a"]
    assert consumers(claimed, provider=uuid) == ["b", "ä"]
    assert consumers(claimed, tree=uuid) == ["a", "b", "ä"]
    [first] = claimed.list_consumers(ConsumerFilter(names=some("b")), 1)
    assert consumers(claimed, created_before=first.created_at) == []
    assert "b" not in consumers(claimed, created_after=first.created_at)


def test_pages_of_consumers_go_on_by_name_whatever_comes_and_goes(
    claimed: MemoryBackend,
) -> None:
    assert consumers(claimed, 2) == ["Z", "a"]
    release(claimed, "b")
    release(claimed, "a")
    claim(claimed, "c", {claimed.uuids(["plain"])["plain"]: "MEMORY_MB=1"})
    assert consumers(claimed, 2, "a") == ["c", "ä"]
    assert consumers(claimed, 2, "ä") == []
    assert consumers(claimed, 9, "Z", names=some("Z", "c")) == ["c"]


def test_a_listed_consumer_tells_all_that_it_holds_by_todays_names(
    claimed: MemoryBackend,
) -> None:
    tree = stored_tree(claimed, "tree")
    tree.find("tree/a").update(name="cell")
    define(claimed, tree)
    [record] = claimed.list_consumers(ConsumerFilter(provider="plain"), 9)
    assert {(h.provider, h.amount) for h in record.held} == {("plain", 7), ("cell", 1)}
    assert claimed.held("ä") == record
    assert consumers(claimed, provider="cell") == ["b", "ä"]
    assert consumers(claimed, provider="tree/a") == []


# --- totals ---


@pytest.mark.parametrize(
    ("by", "wanted", "found"),
    [
        (By.RESOURCE_CLASS, {}, [(None, "MEMORY_MB", 7, 1), (None, VCPU, 4, 4)]),
        (
            By.PROVIDER,
            {},
            [
                ("plain", "MEMORY_MB", 7, 1),
                ("small", VCPU, 1, 1),
                ("tree", VCPU, 1, 1),
                ("tree/a", VCPU, 2, 2),
            ],
        ),
        (
            By.PROJECT,
            {},
            [
                (None, "MEMORY_MB", 7, 1),
                (None, VCPU, 1, 1),
                ("p", VCPU, 2, 2),
                ("q", VCPU, 1, 1),
            ],
        ),
        (By.USER, {"projects": some("p")}, [("u", VCPU, 1, 1), ("v", VCPU, 1, 1)]),
        (By.CONSUMER_TYPE, {"tree": "tree"}, [(None, VCPU, 2, 2), ("VM", VCPU, 1, 1)]),
        (By.RESOURCE_CLASS, {"provider": "tree/a"}, [(None, VCPU, 2, 2)]),
        (By.RESOURCE_CLASS, {"provider": "nobody"}, []),
    ],
)
def test_totals_are_by_group_and_class(
    claimed: MemoryBackend, by: By, wanted: dict[str, Any], found: list[tuple[Any, ...]]
) -> None:
    wants = sorted_totals([Total(*one) for one in found])
    assert claimed.totals(ConsumerFilter(**wanted), by) == wants


# --- names ---


def test_names_are_listed_by_page(backend: MemoryBackend) -> None:
    aggregates = backend.list_names(NameKind.AGGREGATE, 2)
    assert [one.name for one in aggregates] == ["rack-1", "rack-2"]
    assert [one.name for one in backend.list_names(NameKind.AGGREGATE, 2, "rack-2")] == ["room"]
    assert backend.list_names(NameKind.AGGREGATE, 2, "room") == ()
