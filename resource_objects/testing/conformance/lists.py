"""Tests of lists: filters agree with simple loops, and pages contain each row once.

The loops run over all stored rows. They share no code with a backend: they read
:class:`LedgerState`, and implement each condition of a filter again.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import uuid as uuids
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resource_objects.providers import Backend, Provider
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.columns import TIMES
from resource_objects.providers.definition import DefinitionChanges, ProviderDefinition
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    Description,
    ProviderFilter,
    Total,
    sorted_totals,
)
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Operation, Use
from resource_objects.testing.conformance import suite as kit
from resource_objects.testing.conformance.scenarios import run

#: The stored providers, by name.
States = Mapping[str, kit.ProviderState]


def expected_providers(providers: States, criteria: ProviderFilter) -> set[str]:
    """Return the names of the providers that match a filter."""
    return {name for name in providers if all(_provider_conditions(providers, name, criteria))}


def _provider_conditions(providers: States, name: str, criteria: ProviderFilter) -> Iterator[bool]:
    provider = providers[name]
    if criteria.names is not None:
        yield name in criteria.names
    if criteria.uuids is not None:
        yield provider.uuid in criteria.uuids
    if criteria.trees is not None:
        yield any(_is_in_tree(providers, name, tree) for tree in criteria.trees)
    yield all(item not in provider.aggregates for item in criteria.forbidden_aggregates)
    yield all(any(item in provider.aggregates for item in group) for group in criteria.aggregates)
    yield all(trait in provider.traits for trait in criteria.required)
    yield all(trait not in provider.traits for trait in criteria.forbidden)
    yield all(any(trait in provider.traits for trait in group) for group in criteria.any_of)
    for resource_class, amount in criteria.room:
        yield _has_room(providers, name, resource_class, amount)
    if criteria.over_capacity:
        yield any(record.used > record.capacity for record in provider.inventories.values())
    if criteria.roots_only:
        yield provider.parent is None
    if criteria.reported_before is not None:
        yield provider.reported_at is not None and provider.reported_at < criteria.reported_before


def _is_in_tree(providers: States, name: str, tree: str) -> bool:
    root = providers[name].root
    return any(tree in (n, item.uuid) for n, item in providers.items() if item.root == root)


def _has_room(providers: States, name: str, resource_class: str, amount: int) -> bool:
    record = providers[name].inventories.get(resource_class)
    if record is None:
        return False
    targets = [
        (providers[of].inventories[of_class], factor)
        for (shared, of, of_class), factor in providers[name].shares.items()
        if shared == resource_class
    ]
    most = min(record.max_unit or amount, record.capacity - record.used)
    fits = record.min_unit <= amount <= most and amount % record.step_size == 0
    return (fits or amount == 0) and all(
        target.used + amount * factor <= target.capacity for target, factor in targets
    )


def stored_consumers(backend: Backend) -> list[ConsumerRecord]:
    """Return the records of all consumers by name, read individually."""
    names = sorted(set(backend.read().allocations.consumer))
    records = (backend.consumer(name) for name in names)
    return [record for record in records if record is not None]


def expected_consumers(
    providers: States, records: list[ConsumerRecord], criteria: ConsumerFilter
) -> list[ConsumerRecord]:
    """Return the consumers that match a filter, in order."""
    return [record for record in records if all(_consumer_conditions(providers, record, criteria))]


def _consumer_conditions(
    providers: States, record: ConsumerRecord, criteria: ConsumerFilter
) -> Iterator[bool]:
    for members, value in (
        (criteria.names, record.consumer),
        (criteria.projects, record.project),
        (criteria.users, record.user),
        (criteria.types, record.consumer_type),
        (criteria.groups, record.group),
        (criteria.states, record.state),
    ):
        if members is not None:
            yield value in members
    places = {use.provider for use in record.held}
    yield any(_is_at(providers, place, ConsumerFilter(tree=criteria.tree)) for place in places)
    at_provider = ConsumerFilter(provider=criteria.provider)
    yield any(_is_at(providers, place, at_provider) for place in places)
    if criteria.created_before is not None:
        yield record.created_at < criteria.created_before
    if criteria.created_after is not None:
        yield record.created_at > criteria.created_after
    if criteria.expires_before is not None:
        yield record.expires_at is not None and record.expires_at < criteria.expires_before


def _is_at(providers: States, place: str, criteria: ConsumerFilter) -> bool:
    return criteria.provider in (None, place, providers[place].uuid) and (
        criteria.tree is None or _is_in_tree(providers, place, criteria.tree)
    )


def expected_totals(
    providers: States, records: list[ConsumerRecord], criteria: ConsumerFilter, by: By
) -> set[Total]:
    """Return the totals of the consumers of a filter, by group and class."""
    amounts: dict[tuple[str | None, str], list[tuple[str, int]]] = defaultdict(list)
    for record in expected_consumers(providers, records, criteria):
        for use in record.held:
            if _is_at(providers, use.provider, criteria):
                group = getattr(record, by.value, None)  # a record has no class
                if by is By.PROVIDER:
                    group = use.provider
                amounts[group, use.resource_class].append((record.consumer, use.amount))
    return {
        Total(*key, sum(amount for _, amount in pairs), len({name for name, _ in pairs}))
        for key, pairs in amounts.items()
    }


# --- the rules ---


_TRAITS = ["CUSTOM_A", "CUSTOM_B", "HW_CPU_X86_AVX2"]
_AGGREGATES = ["rack-1", "rack-2", "room"]
_CLASSES = ["VCPU", "MEMORY_MB", "CUSTOM_X"]
_PEOPLE = [None, "a", "b", "B"]
_PROVIDERS = ["p0", "p0/0", "p0/1", "p1", "p1/0", "p1/0/0", "p2", "P2", "p3"]
_CONSUMERS = ["a", "A", "ä", "aa", "a b", "b", "B", "b1", "C"]

#: Every kind of record that filters distinguish. P2 shrinks below its use.
_LEDGER = """
write
  define p0: VCPU=9,MEMORY_MB=20:min_unit=2:step_size=2; traits CUSTOM_A; aggregates room
    p0/0: VCPU=4,CUSTOM_X=9:reserved=2:max_unit=3:allocation_ratio=1.5; shares VCPU of p0 times 2
    p0/1: VCPU=5,MEMORY_MB=20; traits CUSTOM_B; aggregates rack-1; shares VCPU of p0 times 2
  define p1: VCPU=6; aggregates rack-1 rack-2
    p1/0: VCPU=4,MEMORY_MB=20:min_unit=2:step_size=2; traits CUSTOM_A CUSTOM_B
      p1/0/0: VCPU=4,CUSTOM_X=9:max_unit=3; shares VCPU of p1 times 2
  define p2: VCPU=7,MEMORY_MB=20; traits CUSTOM_B; aggregates room rack-2
  define P2: VCPU=8,MEMORY_MB=20,CUSTOM_X=4; traits HW_CPU_X86_AVX2
  define p3:
reported p0 p1/0 p3
claim a: p0 VCPU=1,MEMORY_MB=2; p0/0 VCPU=1 [project=a, user=a, expires_at=2040-01-01T00:00Z]
claim A: p0/1 VCPU=1,MEMORY_MB=2; P2 VCPU=1 [project=A, user=b, consumer_type=a]
claim ä: p1 VCPU=1; p1/0/0 VCPU=1,CUSTOM_X=1 [project=a, consumer_type=b]
claim aa: p2 VCPU=1,MEMORY_MB=2 [project=b, user=B, consumer_type=B]
claim a b: p1/0 VCPU=2; p2 VCPU=1 [expires_at=2040-01-06T00:00Z]
claim b: P2 VCPU=2,CUSTOM_X=2 [project=B, user=a, consumer_type=a]
claim B: p0/0 CUSTOM_X=3; p1 VCPU=1 [user=b]
claim b1: p1/0 VCPU=1,MEMORY_MB=4; P2 VCPU=1 [project=b, consumer_type=b]
claim C: p0 VCPU=1 [project=a, user=a, consumer_type=a]
write
  renew a [state=confirmed, expires_at=2040-01-01T00:00Z]
  renew b [state=confirmed]
define P2: VCPU=1,MEMORY_MB=20,CUSTOM_X=3; traits CUSTOM_A
"""


def _moment(days: int) -> datetime.datetime:
    return datetime.datetime(2040, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(days=days)


def _subsets(values: list[Any]) -> st.SearchStrategy[frozenset[Any]]:
    return st.frozensets(st.sampled_from(values), max_size=3)


def _several(values: list[Any]) -> st.SearchStrategy[tuple[frozenset[Any], ...]]:
    return st.lists(_subsets(values), max_size=2).map(tuple)


_listed_handles = [*_PROVIDERS, "nobody"]
_amounts = st.dictionaries(st.sampled_from([*_CLASSES, "DISK_GB"]), st.integers(0, 6), max_size=2)
_of_providers: dict[str, st.SearchStrategy[Any]] = {
    "names": _subsets(_listed_handles),
    "trees": _subsets(_listed_handles),
    "aggregates": _several([*_AGGREGATES, "none"]),
    "forbidden_aggregates": _subsets(_AGGREGATES),
    "required": _subsets([*_TRAITS, "CUSTOM_NONE"]),
    "forbidden": _subsets(_TRAITS),
    "any_of": _several(_TRAITS),
    "room": _amounts.map(lambda amounts: tuple(amounts.items())),
    "over_capacity": st.booleans(),
    "roots_only": st.booleans(),
}
_of_consumers: dict[str, st.SearchStrategy[Any]] = {
    "names": _subsets([*_CONSUMERS, "nobody"]),
    "projects": _subsets(_PEOPLE),
    "users": _subsets(_PEOPLE),
    "types": _subsets(_PEOPLE),
    "states": _subsets([HELD, CONFIRMED]),
    "tree": st.sampled_from(_listed_handles),
    "provider": st.sampled_from(_listed_handles),
    "expires_before": st.sampled_from([_moment(0), _moment(1), _moment(9)]),
}


def _few(
    conditions: dict[str, st.SearchStrategy[Any]], most: int
) -> st.SearchStrategy[dict[str, Any]]:
    """Choose few conditions at a time, so that filters match some rows."""
    names = st.frozensets(st.sampled_from(sorted(conditions)), max_size=most)
    return names.flatmap(
        lambda names: st.fixed_dictionaries({name: conditions[name] for name in sorted(names)})
    )


_provider_filters = _few(_of_providers, 3).map(lambda fields: ProviderFilter(**fields))
_consumer_filters = _few(_of_consumers, 2).map(lambda fields: ConsumerFilter(**fields))
_rarely = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # tests only read
        HealthCheck.differing_executors,  # every backend inherits this test
        HealthCheck.too_slow,
    ],
)


def check_pages(
    listed: Callable[[int, Any], tuple[Any, ...]], key: Callable[[Any], Any], limit: int, first: Any
) -> None:
    """Check that pages contain each row of a list once.

    :param listed: ``listed(limit, after)`` returns a page
    :param key: returns the key of a row
    :param first: the key before all rows
    """
    complete = listed(1000, first)
    pages: list[Any] = []
    while page := listed(limit, key(pages[-1]) if pages else first):
        assert len(page) <= limit
        pages += page
        assert len(pages) <= len(complete), "a row is listed again"
    assert tuple(pages) == complete
    assert len({key(row) for row in pages}) == len(pages)


class ListRules(kit.Kit):
    """Lists, totals and their pages."""

    @pytest.fixture
    def filled(self, backend: Backend) -> Backend:
        """Return the backend with a filled ledger."""
        run(backend, _LEDGER)
        return backend

    @pytest.fixture
    def providers(self, filled: Backend) -> States:
        """Return the providers of the filled ledger."""
        return kit.ledger_state(filled).providers

    @pytest.fixture
    def records(self, filled: Backend) -> list[ConsumerRecord]:
        """Return the consumers of the filled ledger."""
        return stored_consumers(filled)

    # --- providers ---

    @_rarely
    @given(criteria=_provider_filters)
    def test_providers_are_filtered_as_by_loops(
        self, filled: Backend, providers: States, criteria: ProviderFilter
    ) -> None:
        listed = filled.list_providers(criteria, 1000)
        assert {row.name for row in listed} == expected_providers(providers, criteria)
        assert [row.number for row in listed] == sorted({row.number for row in listed})

    def test_the_filled_ledger_has_every_kind_of_record(
        self, filled: Backend, providers: States, records: list[ConsumerRecord]
    ) -> None:
        for criteria in (
            ProviderFilter(over_capacity=True),
            ProviderFilter(reported_before=kit.now()),
            ProviderFilter(required=frozenset({"CUSTOM_A"})),
            ProviderFilter(aggregates=(frozenset({"room"}),)),
            ProviderFilter(room=(("CUSTOM_X", 3),)),
        ):
            result = {row.name for row in filled.list_providers(criteria, 100)}
            assert result == expected_providers(providers, criteria)
            assert 0 < len(result) < len(providers)
        assert any(provider.shares for provider in providers.values())
        assert len(records) > 5
        assert {record.state for record in records} == {HELD, CONFIRMED}

    def test_a_listed_provider_has_every_field(self, filled: Backend, providers: States) -> None:
        listed = filled.list_providers(ProviderFilter(), 1000)
        assert {row.name for row in listed} == set(providers)
        for row in listed:
            stored = providers[row.name]
            for field in ("uuid", "generation", "parent", "root", "traits", "aggregates", *TIMES):
                assert getattr(row, field) == getattr(stored, field)
            assert row.root_uuid == providers[stored.root].uuid
            assert row.parent_uuid == (providers[stored.parent].uuid if stored.parent else None)
            assert {record.resource_class: record for record in row.records} == stored.inventories

    def test_handles_may_be_uuids(self, filled: Backend, providers: States) -> None:
        requested = frozenset({providers["p0"].uuid, providers["p1/0"].uuid, str(uuids.uuid4())})
        listed = filled.list_providers(ProviderFilter(uuids=requested), 10)
        assert {row.name for row in listed} == {"p0", "p1/0"}
        for field in ("tree", "provider"):
            by_name = ConsumerFilter(**{field: "p1"})  # type: ignore[arg-type]
            by_uuid = ConsumerFilter(**{field: providers["p1"].uuid})  # type: ignore[arg-type]
            assert filled.list_consumers(by_uuid, 99) == filled.list_consumers(by_name, 99)
            assert filled.totals(by_uuid, By.USER) == filled.totals(by_name, By.USER) != ()
        trees = frozenset({providers["p1/0/0"].uuid})
        listed = filled.list_providers(ProviderFilter(trees=trees), 10)
        assert {row.name for row in listed} == {"p1", "p1/0", "p1/0/0"}

    def test_an_empty_set_matches_no_row(self, filled: Backend) -> None:
        empty: Any = frozenset()
        of_empty: Any = (empty,)
        for field in ("names", "uuids", "trees"):
            assert filled.list_providers(ProviderFilter(**{field: empty}), 10) == ()
        for field in ("aggregates", "any_of"):
            assert filled.list_providers(ProviderFilter(**{field: of_empty}), 10) == ()
        for field in ("names", "projects", "users", "types", "states"):
            assert filled.list_consumers(ConsumerFilter(**{field: empty}), 10) == ()

    def test_pages_continue_while_rows_are_added_and_removed(self, backend: Backend) -> None:
        kit.define(backend, *(kit.host(f"host{n}") for n in range(6)))
        first = backend.list_providers(ProviderFilter(), 3)
        assert len(first) == 3
        kit.define(backend, kit.host("later"))
        listed = backend.list_providers(ProviderFilter(), 100, first[-1].number)
        assert [row.name for row in (*first, *listed)] == [*(f"host{n}" for n in range(6)), "later"]

    def test_a_parent_that_is_younger_than_its_child_is_listed_later(
        self, backend: Backend
    ) -> None:
        kit.define(backend, Provider("child"))
        root = ProviderDefinition(str(uuids.uuid4()), "root", None, (), frozenset())
        update = kit.updated(backend, "child", parent_uuid=root.uuid)
        backend.define(Operation(), DefinitionChanges("root", creates=(root,), updates=(update,)))
        listed = backend.list_providers(ProviderFilter(), 10)
        assert [(row.name, row.root) for row in listed] == [("child", "root"), ("root", "root")]

    # --- consumers ---

    @_rarely
    @given(
        criteria=_consumer_filters,
        by=st.sampled_from(By),
        of=st.sampled_from(get_args(Description)),
    )
    def test_consumers_are_listed_counted_and_summed_as_by_loops(
        self,
        filled: Backend,
        providers: States,
        records: list[ConsumerRecord],
        criteria: ConsumerFilter,
        by: By,
        of: Description,
    ) -> None:
        listed = filled.list_consumers(criteria, 1000)
        expected = expected_consumers(providers, records, criteria)
        assert list(map(kit.sorted_record, listed)) == list(map(kit.sorted_record, expected))
        assert filled.count_consumers(criteria, of) == Counter(
            getattr(record, of.value) for record in expected
        )
        if criteria.provider is not None:
            criteria = dataclasses.replace(criteria, tree=None)
        totals = filled.totals(criteria, by)
        assert set(totals) == expected_totals(providers, records, criteria, by)
        assert totals == sorted_totals(totals)

    def test_consumers_are_listed_by_age(self, backend: Backend) -> None:
        [here] = kit.define(backend, kit.host()).values()
        moments = []
        for name in ("b", "c", "a"):
            moments.append(kit.claim(backend, name, {here: "VCPU=1"}).created_at)
            while kit.now() <= moments[-1]:
                pass

        def listed(**fields: Any) -> list[str]:
            records = backend.list_consumers(ConsumerFilter(**fields), 10)
            return [record.consumer for record in records]

        assert listed(created_before=moments[1]) == ["b"]
        assert listed(created_after=moments[1]) == ["a"]
        assert listed(created_before=moments[2], created_after=moments[0]) == ["c"]

    @pytest.mark.parametrize("limit", [1, 2, 4, 1000])
    def test_pages_cover_each_row_once(self, filled: Backend, limit: int) -> None:
        names = frozenset({"p0", "p1", "p1/0", "p1/0/0", "nobody"})
        roots = ProviderFilter(roots_only=True)
        for by_number in (ProviderFilter(), roots, ProviderFilter(names=names)):
            listed: Any = functools.partial(filled.list_providers, by_number)
            check_pages(listed, attrgetter("number"), limit, 0)
        of_states = ConsumerFilter(states=frozenset({HELD}))
        for by_name in (ConsumerFilter(), ConsumerFilter(tree="p0"), of_states):
            listed = functools.partial(filled.list_consumers, by_name)
            check_pages(listed, attrgetter("consumer"), limit, None)

    def test_names_are_ordered_by_their_code_points(self, backend: Backend) -> None:
        [here] = kit.define(backend, kit.host("host0", "VCPU=99")).values()
        names = ["b", "B", "a", "ä", "Z", "大", "_", "~", "aa", "a b", "🖥"]
        for name in names:
            kit.claim(backend, name, {here: "VCPU=1"})
        listed = backend.list_consumers(ConsumerFilter(), 100)
        assert [record.consumer for record in listed] == sorted(names)

    def test_many_rows_are_listed_in_pages(self, backend: Backend) -> None:
        names = kit.define(backend, *(kit.host(f"host{n:03}", "VCPU=9") for n in range(120)))
        claims = (
            ConsumerOrder.claim(f"job-{number:03}", (Use(uuid, "VCPU", 2),), project="p")
            for number, uuid in enumerate(names.values())
        )
        kit.order(backend, *claims)
        assert len(backend.list_providers(ProviderFilter(names=frozenset(names)), 500)) == 120
        page = backend.list_consumers(ConsumerFilter(projects=frozenset({"p"})), 50, "job-099")
        assert [listed.consumer for listed in page] == [f"job-{n}" for n in range(100, 120)]
        [total] = backend.totals(ConsumerFilter(), By.PROJECT)
        assert (total.group, total.used, total.consumers) == ("p", 240, 120)
