"""Tests of lists: filters agree with simple loops, and pages contain each row once.

The loops run over all stored rows. They share no code with a backend: they read
:class:`Columns`, and implement each condition of a filter again.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import random
import uuid as uuids
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
)
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    Description,
    ListedProvider,
    ProviderFilter,
    Total,
    sorted_totals,
)
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Operation, Write
from resource_objects.providers.provider import Share
from resource_objects.testing.conformance.suite import (
    Kit,
    claim,
    define,
    deltas,
    host,
    ledger_state,
    now,
    order,
    sorted_record,
    updated,
)


@dataclasses.dataclass
class NamedProvider:
    """A provider, described by names only."""

    name: str
    uuid: str
    parent: str | None
    root: str
    reported_at: datetime.datetime | None
    adopted_at: datetime.datetime | None
    inventories: dict[str, dict[str, Any]]
    traits: set[str]
    aggregates: set[str]
    shares: list[tuple[str, str, str, int]]  #: class, of provider, of class, factor


_FIGURES = (
    "total",
    "reserved",
    "min_unit",
    "max_unit",
    "step_size",
    "ratio_millionths",
    "capacity",
    "used",
)


def rows_of(columns: Columns) -> dict[str, NamedProvider]:
    """Return the providers of columns, by name."""
    table = columns.providers
    name = columns.index.names
    parent = {
        totals: None if above is None else name[above]
        for totals, above in zip(table.name, table.parent_id, strict=True)
    }
    result = {}
    for number, totals, uuid in zip(table.provider_id, table.name, table.uuid, strict=True):
        top = totals
        while (above := parent[top]) is not None:
            top = above
        result[totals] = NamedProvider(
            totals,
            uuid,
            parent[totals],
            top,
            table.reported_at[list(table.name).index(totals)],
            table.adopted_at[list(table.name).index(totals)],
            {
                values[0]: dict(zip(_FIGURES, values[1:], strict=True))
                for of, *values in zip(*columns.inventories, strict=True)
                if of == number
            },
            {trait for of, trait in zip(*columns.traits, strict=True) if of == number},
            {item for of, item in zip(*columns.aggregates, strict=True) if of == number},
            [
                (kind, name[target], target_kind, factor)
                for of, kind, target, target_kind, factor in zip(*columns.shares, strict=True)
                if of == number
            ],
        )
    return result


def wanted_providers(rows: dict[str, NamedProvider], requested: ProviderFilter) -> set[str]:
    """Return the names of the providers that match a filter."""
    return {name for name, row in rows.items() if all(_conditions(rows, row, requested))}


def _conditions(
    rows: dict[str, NamedProvider], row: NamedProvider, requested: ProviderFilter
) -> Iterator[bool]:
    if requested.names is not None:
        yield row.name in requested.names
    if requested.uuids is not None:
        yield row.uuid in requested.uuids
    if requested.trees is not None:
        tree = [other for other in rows.values() if other.root == row.root]
        yield any(other.name in requested.trees or other.uuid in requested.trees for other in tree)
    yield all(aggregate not in row.aggregates for aggregate in requested.forbidden_aggregates)
    yield all(any(item in row.aggregates for item in sample) for sample in requested.aggregates)
    yield all(trait in row.traits for trait in requested.required)
    yield all(trait not in row.traits for trait in requested.forbidden)
    yield all(any(trait in row.traits for trait in sample) for sample in requested.any_of)
    for kind, amount in requested.room:
        yield _has_room(rows, row, kind, amount)
    if requested.over_capacity:
        yield any(figures["used"] > _capacity(figures) for figures in row.inventories.values())
    if requested.roots_only:
        yield row.parent is None
    if requested.reported_before is not None:
        yield row.reported_at is not None and row.reported_at < requested.reported_before


def _capacity(figures: dict[str, Any]) -> int:
    ratio = Fraction(figures["ratio_millionths"], 1_000_000)
    remaining: int = figures["total"] - figures["reserved"]
    return math.floor(remaining * ratio)


def _has_room(rows: dict[str, NamedProvider], row: NamedProvider, kind: str, amount: int) -> bool:
    if kind not in row.inventories:
        return False
    figures = row.inventories[kind]
    most = figures["total"] if figures["max_unit"] is None else figures["max_unit"]
    if amount < figures["min_unit"] or amount % figures["step_size"]:
        return False
    if figures["max_unit"] is not None and amount > most:
        return False
    if figures["used"] + amount > _capacity(figures):
        return False
    for totals, target, target_kind, factor in row.shares:
        destination = rows[target].inventories[target_kind]
        if totals == kind and destination["used"] + amount * factor > _capacity(destination):
            return False
    return True


def everybody(backend: Backend) -> list[ConsumerRecord]:
    """Return the records of all consumers, read individually."""
    names = sorted(set(backend.read().allocations.consumer))
    result = (backend.held(name) for name in names)
    return [record for record in result if record is not None]


def wanted_consumers(
    rows: dict[str, NamedProvider], records: list[ConsumerRecord], requested: ConsumerFilter
) -> list[str]:
    """Return the names of the consumers that match a filter, in order."""
    return sorted(record.consumer for record in records if all(_asked(rows, record, requested)))


def _asked(
    rows: dict[str, NamedProvider], record: ConsumerRecord, requested: ConsumerFilter
) -> Iterator[bool]:
    for allowed, value in (
        (requested.names, record.consumer),
        (requested.projects, record.project),
        (requested.users, record.user),
        (requested.types, record.consumer_type),
        (requested.groups, record.group),
        (requested.states, record.state),
    ):
        if allowed is not None:
            yield value in allowed
    if requested.provider is not None:
        yield any(requested.provider in _handles(rows, use.provider) for use in record.held)
    if requested.tree is not None:
        yield any(_in_tree(rows, use.provider, requested.tree) for use in record.held)
    if requested.created_before is not None:
        yield record.created_at < requested.created_before
    if requested.created_after is not None:
        yield record.created_at > requested.created_after
    if requested.expires_before is not None:
        yield record.expires_at is not None and record.expires_at < requested.expires_before


def _handles(rows: dict[str, NamedProvider], name: str) -> tuple[str, str]:
    return name, rows[name].uuid


def _in_tree(rows: dict[str, NamedProvider], name: str, tree: str) -> bool:
    return any(
        tree in (other.name, other.uuid) for other in rows.values() if other.root == rows[name].root
    )


def wanted_totals(
    rows: dict[str, NamedProvider], records: list[ConsumerRecord], requested: ConsumerFilter, by: By
) -> set[Total]:
    """Return the totals of the consumers of a filter, by group and class."""
    consumers = set(wanted_consumers(rows, records, requested))
    amounts: dict[tuple[str | None, str], list[tuple[str, int]]] = {}
    for record in records:
        for use in record.held:
            if record.consumer not in consumers:
                continue
            if requested.provider not in (None, *_handles(rows, use.provider)):
                continue
            if requested.tree is not None and not _in_tree(rows, use.provider, requested.tree):
                continue
            group = {
                By.RESOURCE_CLASS: None,
                By.PROVIDER: use.provider,
                By.PROJECT: record.project,
                By.USER: record.user,
                By.CONSUMER_TYPE: record.consumer_type,
                By.GROUP: record.group,
            }[by]
            amounts.setdefault((group, use.resource_class), []).append(
                (record.consumer, use.amount)
            )
    return {
        Total(group, kind, sum(amount for _, amount in pairs), len({name for name, _ in pairs}))
        for (group, kind), pairs in amounts.items()
    }


# --- the rules ---


_TRAITS = ["CUSTOM_A", "CUSTOM_B", "HW_CPU_X86_AVX2"]
_AGGREGATES = ["rack-1", "rack-2", "room"]
_CLASSES = ["VCPU", "MEMORY_MB", "CUSTOM_X"]
_PEOPLE = [None, "a", "b", "B"]
_PROVIDERS = ["p0", "p0/0", "p0/1", "p1", "p1/0", "p1/0/0", "p2", "P2", "p3"]
_CONSUMERS = [f"{letter}{n}" for letter in "aAäb" for n in range(4)]


def fill(backend: Backend, seed: int = 7) -> None:
    """Fill a ledger with every kind of record that filters distinguish."""
    chance = random.Random(seed)
    names = define(backend, *_forest(chance))
    for name in ("p0", "p1/0", "p3"):
        backend.commit(Write(Operation(), "report", name, reported=(names[name],)))
    for consumer in _CONSUMERS:
        requested = {names[place]: "VCPU=1,MEMORY_MB=2" for place in chance.sample(_PROVIDERS, 2)}
        expires_at = chance.choice([None, _moment(0), _moment(5)])
        try:
            claim(
                backend,
                consumer,
                requested,
                project=chance.choice(_PEOPLE),
                user=chance.choice(_PEOPLE),
                consumer_type=chance.choice(_PEOPLE),
                expires_at=expires_at,
            )
        except exceptions.CapacityException:
            continue
        if chance.random() < 0.3:
            order(backend, ConsumerOrder.renew(consumer, expires_at, CONFIRMED))
    shrunk = Provider("P2", "VCPU=1,MEMORY_MB=20,CUSTOM_X=1", traits=["CUSTOM_A"])
    define(backend, shrunk)


def _forest(chance: random.Random) -> list[Provider]:
    created: dict[str, Provider] = {}
    for name in _PROVIDERS:
        figures = f"VCPU={chance.randint(4, 9)},MEMORY_MB=20:min_unit=2:step_size=2"
        if chance.random() < 0.5 or name == "P2":
            figures += ",CUSTOM_X=9:reserved=2:max_unit=3:allocation_ratio=1.5"
        above, _, _ = name.rpartition("/")
        shares = []
        if above and chance.random() < 0.7:
            root = name.partition("/")[0]
            shares = [Share(resource_class="VCPU", of=root, of_class="VCPU", factor=2)]
        created[name] = Provider(
            name,
            figures,
            traits=chance.sample(_TRAITS, chance.randint(0, 2)),
            aggregates=chance.sample(_AGGREGATES, chance.randint(0, 2)),
            shares=shares,
        )
        if above:
            created[above].update(children=(*created[above].children, created[name]))
    return [provider for name, provider in created.items() if "/" not in name]


def _moment(days: int) -> datetime.datetime:
    return datetime.datetime(2040, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(days=days)


def _some(values: list[str]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(values), max_size=3)


def _maybe(strategy: st.SearchStrategy[frozenset[str]]) -> st.SearchStrategy[frozenset[str] | None]:
    return st.none() | strategy


_listed_handles = [*_PROVIDERS, "nobody"]
_provider_filters = st.builds(
    ProviderFilter,
    names=_maybe(_some(_listed_handles)),
    trees=_maybe(_some(_listed_handles)),
    aggregates=st.lists(_some([*_AGGREGATES, "none"]), max_size=2).map(tuple),
    forbidden_aggregates=_some(_AGGREGATES),
    required=_some([*_TRAITS, "CUSTOM_NONE"]),
    forbidden=_some(_TRAITS),
    any_of=st.lists(_some(_TRAITS), max_size=2).map(tuple),
    room=st.dictionaries(
        st.sampled_from([*_CLASSES, "DISK_GB"]), st.integers(1, 6), max_size=2
    ).map(lambda found: tuple(found.items())),
    over_capacity=st.booleans(),
    roots_only=st.booleans(),
)
_people = st.none() | st.frozensets(st.sampled_from(_PEOPLE), max_size=3)
_consumer_filters = st.builds(
    ConsumerFilter,
    names=_maybe(_some([*_CONSUMERS, "nobody"])),
    projects=_people,
    users=_people,
    types=_people,
    states=_maybe(_some([HELD, CONFIRMED])),
    tree=st.none() | st.sampled_from(_listed_handles),
    provider=st.none() | st.sampled_from(_listed_handles),
    expires_before=st.sampled_from([None, _moment(0), _moment(1), _moment(9)]),
)
#: Choose few conditions at a time, so that filters match some rows.
_rarely = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # tests only read
        HealthCheck.differing_executors,  # every backend inherits this test
        HealthCheck.too_slow,
    ],
)


_provider_conditions = st.frozensets(
    st.sampled_from(
        [
            "names",
            "trees",
            "aggregates",
            "forbidden_aggregates",
            "required",
            "forbidden",
            "any_of",
            "room",
            "over_capacity",
            "roots_only",
        ]
    ),
    max_size=3,
)
_consumer_conditions = st.frozensets(
    st.sampled_from(
        ["names", "projects", "users", "types", "states", "tree", "provider", "expires_before"]
    ),
    max_size=2,
)


class ListRules(Kit):
    """What lists and totals answer."""

    @pytest.fixture
    def filled(self, backend: Backend) -> Backend:
        """Return the backend with a filled ledger."""
        fill(backend)
        return backend

    @pytest.fixture
    def rows(self, filled: Backend) -> dict[str, NamedProvider]:
        """Its providers, for the oracle."""
        return rows_of(filled.read())

    @pytest.fixture
    def records(self, filled: Backend) -> list[ConsumerRecord]:
        """Its consumers, for the oracle."""
        return everybody(filled)

    # --- providers ---

    @_rarely
    @given(requested=_provider_filters, conditions=_provider_conditions)
    def test_providers_are_filtered_as_by_loops(
        self,
        filled: Backend,
        rows: dict[str, NamedProvider],
        requested: ProviderFilter,
        conditions: frozenset[str],
    ) -> None:
        thinned = ProviderFilter(**{name: getattr(requested, name) for name in conditions})
        listed = filled.list_providers(thinned, 1000)
        assert {row.name for row in listed} == wanted_providers(rows, thinned)
        assert [row.number for row in listed] == sorted({row.number for row in listed})

    def test_the_filled_ledger_has_every_kind_of_record(
        self, filled: Backend, rows: dict[str, NamedProvider], records: list[ConsumerRecord]
    ) -> None:
        for requested in (
            ProviderFilter(over_capacity=True),
            ProviderFilter(reported_before=now()),
            ProviderFilter(required=frozenset({"CUSTOM_A"})),
            ProviderFilter(aggregates=(frozenset({"room"}),)),
            ProviderFilter(room=(("CUSTOM_X", 3),)),
        ):
            result = {row.name for row in filled.list_providers(requested, 100)}
            assert result == wanted_providers(rows, requested)
            assert 0 < len(result) < len(rows)
        assert any(row.shares for row in rows.values())
        assert len(records) > 5
        assert {record.state for record in records} == {HELD, CONFIRMED}

    def test_a_listed_provider_has_every_field(self, filled: Backend) -> None:
        providers = ledger_state(filled).providers
        listed = filled.list_providers(ProviderFilter(), 1000)
        assert {row.name for row in listed} == set(providers)
        for row in listed:
            stored = providers[row.name]
            assert (row.uuid, row.generation, row.parent) == (
                stored.uuid,
                stored.generation,
                stored.parent,
            )
            assert (row.root, row.root_uuid) == (stored.root, providers[stored.root].uuid)
            assert row.parent_uuid == (providers[stored.parent].uuid if stored.parent else None)
            assert {record.resource_class: record for record in row.records} == stored.inventories
            assert (row.traits, row.aggregates) == (stored.traits, stored.aggregates)
            assert (row.reported_at, row.adopted_at) == (stored.reported_at, stored.adopted_at)

    def test_providers_are_found_by_uuid(self, filled: Backend) -> None:
        providers = ledger_state(filled).providers
        requested = frozenset({providers["p0"].uuid, providers["p1/0"].uuid, str(uuids.uuid4())})
        listed = filled.list_providers(ProviderFilter(uuids=requested), 10)
        assert {row.name for row in listed} == {"p0", "p1/0"}
        trees = frozenset({providers["p1/0/0"].uuid})
        listed = filled.list_providers(ProviderFilter(trees=trees), 10)
        assert {row.name for row in listed} == {"p1", "p1/0", "p1/0/0"}

    def test_an_empty_set_matches_no_row(self, filled: Backend) -> None:
        no_names = frozenset[str]()
        for requested in (
            ProviderFilter(names=no_names),
            ProviderFilter(uuids=no_names),
            ProviderFilter(trees=no_names),
            ProviderFilter(aggregates=(no_names,)),
            ProviderFilter(any_of=(no_names,)),
        ):
            assert filled.list_providers(requested, 10) == ()
        for request in ("names", "projects", "users", "types", "states"):
            assert filled.list_consumers(ConsumerFilter(**{request: no_names}), 10) == ()  # type: ignore[arg-type]

    @pytest.mark.parametrize("limit", [1, 2, 4, 1000])
    def test_pages_of_providers_cover_each_once(self, filled: Backend, limit: int) -> None:
        names = frozenset({"p0", "p1", "p1/0", "p1/0/0", "nobody"})
        for requested in (
            ProviderFilter(),
            ProviderFilter(roots_only=True),
            ProviderFilter(names=names),
        ):
            listed = filled.list_providers(requested, 1000)
            paged: list[ListedProvider] = []
            while page := filled.list_providers(requested, limit, paged[-1].number if paged else 0):
                assert len(page) <= limit
                paged += page
                assert len(paged) <= len(listed), "a row is listed again"
            assert tuple(paged) == listed

    def test_pages_continue_while_rows_are_added_and_removed(self, backend: Backend) -> None:
        define(backend, *(host(f"host{n}") for n in range(6)))
        first = backend.list_providers(ProviderFilter(), 3)
        assert len(first) == 3
        define(backend, host("later"))
        listed = backend.list_providers(ProviderFilter(), 100, first[-1].number)
        assert [row.name for row in (*first, *listed)] == [*(f"host{n}" for n in range(6)), "later"]

    def test_a_parent_that_is_younger_than_its_child_is_listed_later(
        self, backend: Backend
    ) -> None:
        define(backend, Provider("child"))
        root = ProviderDefinition(str(uuids.uuid4()), "root", None, (), frozenset())
        update = updated(backend, "child", parent_uuid=root.uuid)
        backend.define(Operation(), DefinitionChanges("root", creates=(root,), updates=(update,)))
        listed = backend.list_providers(ProviderFilter(), 10)
        assert [(row.name, row.root) for row in listed] == [("child", "root"), ("root", "root")]

    # --- consumers ---

    @_rarely
    @given(requested=_consumer_filters, conditions=_consumer_conditions)
    def test_consumers_are_filtered_as_by_loops(
        self,
        filled: Backend,
        rows: dict[str, NamedProvider],
        records: list[ConsumerRecord],
        requested: ConsumerFilter,
        conditions: frozenset[str],
    ) -> None:
        thinned = ConsumerFilter(**{name: getattr(requested, name) for name in conditions})
        listed = filled.list_consumers(thinned, 1000)
        assert [row.consumer for row in listed] == wanted_consumers(rows, records, thinned)
        by_name = {record.consumer: sorted_record(record) for record in records}
        assert [sorted_record(row) for row in listed] == [by_name[row.consumer] for row in listed]

    @_rarely
    @given(requested=_consumer_filters, conditions=_consumer_conditions, by=st.sampled_from(By))
    def test_totals_are_summed_as_by_loops(
        self,
        filled: Backend,
        rows: dict[str, NamedProvider],
        records: list[ConsumerRecord],
        requested: ConsumerFilter,
        conditions: frozenset[str],
        by: By,
    ) -> None:
        if {"tree", "provider"} <= conditions:
            conditions -= {"tree"}
        thinned = ConsumerFilter(**{name: getattr(requested, name) for name in conditions})
        result = filled.totals(thinned, by)
        assert set(result) == wanted_totals(rows, records, thinned, by)
        assert result == sorted_totals(result)

    @_rarely
    @given(
        requested=_consumer_filters,
        conditions=_consumer_conditions,
        by=st.sampled_from(get_args(Description)),
    )
    def test_consumers_are_counted_as_by_loops(
        self,
        filled: Backend,
        rows: dict[str, NamedProvider],
        records: list[ConsumerRecord],
        requested: ConsumerFilter,
        conditions: frozenset[str],
        by: Description,
    ) -> None:
        thinned = ConsumerFilter(**{name: getattr(requested, name) for name in conditions})
        named = wanted_consumers(rows, records, thinned)
        counted: dict[str | None, int] = {}
        for record in records:
            if record.consumer in named:
                described = {
                    By.PROJECT: record.project,
                    By.USER: record.user,
                    By.CONSUMER_TYPE: record.consumer_type,
                    By.GROUP: record.group,
                }[by]
                counted[described] = counted.get(described, 0) + 1
        assert filled.count_consumers(thinned, by) == counted

    def test_handles_may_be_uuids(self, filled: Backend) -> None:
        providers = ledger_state(filled).providers
        for request in ("tree", "provider"):
            by_name = ConsumerFilter(**{request: "p1"})  # type: ignore[arg-type]
            by_uuid = ConsumerFilter(**{request: providers["p1"].uuid})  # type: ignore[arg-type]
            assert filled.list_consumers(by_uuid, 99) == filled.list_consumers(by_name, 99)
            assert filled.totals(by_uuid, By.USER) == filled.totals(by_name, By.USER) != ()

    def test_consumers_are_listed_by_age(self, backend: Backend) -> None:
        [here] = define(backend, host()).values()
        moments = []
        for name in ("b", "c", "a"):
            moments.append(claim(backend, name, {here: "VCPU=1"}).created_at)
            while now() <= moments[-1]:
                pass

        def listed(**request: Any) -> list[str]:
            return [
                listed.consumer for listed in backend.list_consumers(ConsumerFilter(**request), 10)
            ]

        assert listed(created_before=moments[1]) == ["b"]
        assert listed(created_after=moments[1]) == ["a"]
        assert listed(created_before=moments[2], created_after=moments[0]) == ["c"]

    @pytest.mark.parametrize("limit", [1, 3, 1000])
    def test_pages_of_consumers_cover_each_once(self, filled: Backend, limit: int) -> None:
        for requested in (
            ConsumerFilter(),
            ConsumerFilter(tree="p0"),
            ConsumerFilter(states=frozenset({HELD})),
            ConsumerFilter(names=frozenset([*_CONSUMERS, "nobody"])),
        ):
            listed = filled.list_consumers(requested, 1000)
            paged: list[ConsumerRecord] = []
            while page := filled.list_consumers(
                requested, limit, paged[-1].consumer if paged else None
            ):
                assert len(page) <= limit
                paged += page
                assert len(paged) <= len(listed), "a row is listed again"
            assert tuple(paged) == listed and len(paged) == len({item.consumer for item in paged})

    def test_names_are_ordered_by_their_code_points(self, backend: Backend) -> None:
        [here] = define(backend, host("host0", "VCPU=99")).values()
        names = ["b", "B", "a", "ä", "Z", "大", "_", "~", "aa", "a b", "🖥"]
        for name in names:
            claim(backend, name, {here: "VCPU=1"})
        listed = [listed.consumer for listed in backend.list_consumers(ConsumerFilter(), 100)]
        assert listed == sorted(names)

    def test_many_rows_are_listed_in_pages(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n:03}", "VCPU=9") for n in range(120)))
        order(
            backend,
            *(
                ConsumerOrder.claim(f"job-{number:03}", deltas({uuid: "VCPU=2"}), project="p")
                for number, uuid in enumerate(names.values())
            ),
        )
        assert len(backend.list_providers(ProviderFilter(names=frozenset(names)), 500)) == 120
        page = backend.list_consumers(ConsumerFilter(projects=frozenset({"p"})), 50, "job-099")
        assert [listed.consumer for listed in page] == [f"job-{n}" for n in range(100, 120)]
        [total] = backend.totals(ConsumerFilter(), By.PROJECT)
        assert (total.group, total.used, total.consumers) == ("p", 240, 120)
