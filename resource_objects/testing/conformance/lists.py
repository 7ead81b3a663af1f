"""Rules of lists: every filter answers what naive loops answer, and pages cover everything once."""

from __future__ import annotations

import datetime
import random
import uuid as uuids
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    ListedProvider,
    ProviderFilter,
    sorted_totals,
)
from resource_objects.providers.orders import ClaimOrder, ClaimRecord, Operation, Renewal, Write
from resource_objects.providers.provider import Share
from resource_objects.testing.conformance import oracle
from resource_objects.testing.conformance.base import (
    Kit,
    claim,
    define,
    deltas,
    host,
    now,
    order,
    picture,
    told,
)

_TRAITS = ["CUSTOM_A", "CUSTOM_B", "HW_CPU_X86_AVX2"]
_AGGREGATES = ["rack-1", "rack-2", "room"]
_CLASSES = ["VCPU", "MEMORY_MB", "CUSTOM_X"]
_PEOPLE = [None, "a", "b", "B"]
_PROVIDERS = ["p0", "p0/0", "p0/1", "p1", "p1/0", "p1/0/0", "p2", "P2", "p3"]
_CONSUMERS = [f"{letter}{n}" for letter in "aAäb" for n in range(4)]


def fill(backend: Backend, seed: int = 7) -> None:
    """Fill a ledger with a bit of everything that lists can ask for."""
    chance = random.Random(seed)
    names = define(backend, *_forest(chance))
    for name in ("p0", "p1/0", "p3"):
        backend.commit(Write(Operation(), "report", name, reported=(names[name],)))
    for consumer in _CONSUMERS:
        wanted = {names[place]: "VCPU=1,MEMORY_MB=2" for place in chance.sample(_PROVIDERS, 2)}
        expires_at = chance.choice([None, _moment(0), _moment(5)])
        try:
            claim(
                backend,
                consumer,
                wanted,
                project=chance.choice(_PEOPLE),
                user=chance.choice(_PEOPLE),
                consumer_type=chance.choice(_PEOPLE),
                expires_at=expires_at,
            )
        except exceptions.CapacityException:
            continue
        if chance.random() < 0.3:
            order(backend, Renewal(consumer, expires_at, CONFIRMED))
    shrunk = Provider("P2", "VCPU=1,MEMORY_MB=20,CUSTOM_X=1", traits=["CUSTOM_A"])
    define(backend, shrunk)


def _forest(chance: random.Random) -> list[Provider]:
    made: dict[str, Provider] = {}
    for name in _PROVIDERS:
        figures = f"VCPU={chance.randint(4, 9)},MEMORY_MB=20:min_unit=2:step_size=2"
        if chance.random() < 0.5 or name == "P2":
            figures += ",CUSTOM_X=9:reserved=2:max_unit=3:allocation_ratio=1.5"
        above, _, _ = name.rpartition("/")
        shares = []
        if above and chance.random() < 0.7:
            root = name.partition("/")[0]
            shares = [Share(resource_class="VCPU", of=root, of_class="VCPU", factor=2)]
        made[name] = Provider(
            name,
            figures,
            traits=chance.sample(_TRAITS, chance.randint(0, 2)),
            aggregates=chance.sample(_AGGREGATES, chance.randint(0, 2)),
            shares=shares,
        )
        if above:
            made[above].update(children=(*made[above].children, made[name]))
    return [provider for name, provider in made.items() if "/" not in name]


def _moment(days: int) -> datetime.datetime:
    return datetime.datetime(2040, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(days=days)


def _some(values: list[str]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(values), max_size=3)


def _maybe(strategy: st.SearchStrategy[frozenset[str]]) -> st.SearchStrategy[frozenset[str] | None]:
    return st.none() | strategy


_handles = [*_PROVIDERS, "nobody"]
_provider_filters = st.builds(
    ProviderFilter,
    names=_maybe(_some(_handles)),
    trees=_maybe(_some(_handles)),
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
    tree=st.none() | st.sampled_from(_handles),
    provider=st.none() | st.sampled_from(_handles),
    expires_before=st.sampled_from([None, _moment(0), _moment(1), _moment(9)]),
)
#: Few conditions at a time, or hardly anything is ever wanted.
_rarely = settings(
    max_examples=60,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # nothing is written
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
        """The backend, with a bit of everything in it."""
        fill(backend)
        return backend

    @pytest.fixture
    def rows(self, filled: Backend) -> dict[str, oracle.Row]:
        """Its providers, for the oracle."""
        return oracle.rows_of(filled.read())

    @pytest.fixture
    def records(self, filled: Backend) -> list[ClaimRecord]:
        """Its consumers, for the oracle."""
        return oracle.everybody(filled)

    # --- providers ---

    @_rarely
    @given(wanted=_provider_filters, conditions=_provider_conditions)
    def test_providers_are_filtered_as_loops_would(
        self,
        filled: Backend,
        rows: dict[str, oracle.Row],
        wanted: ProviderFilter,
        conditions: frozenset[str],
    ) -> None:
        thinned = ProviderFilter(**{name: getattr(wanted, name) for name in conditions})
        found = filled.list_providers(thinned, 1000)
        assert {row.name for row in found} == oracle.wanted_providers(rows, thinned)
        assert [row.number for row in found] == sorted({row.number for row in found})

    def test_the_filled_ledger_has_a_bit_of_everything(
        self, filled: Backend, rows: dict[str, oracle.Row], records: list[ClaimRecord]
    ) -> None:
        for wanted in (
            ProviderFilter(over_capacity=True),
            ProviderFilter(reported_before=now()),
            ProviderFilter(required=frozenset({"CUSTOM_A"})),
            ProviderFilter(aggregates=(frozenset({"room"}),)),
            ProviderFilter(room=(("CUSTOM_X", 3),)),
        ):
            found = {row.name for row in filled.list_providers(wanted, 100)}
            assert found == oracle.wanted_providers(rows, wanted)
            assert 0 < len(found) < len(rows)
        assert any(row.shares for row in rows.values())
        assert len(records) > 5
        assert {record.state for record in records} == {HELD, CONFIRMED}

    def test_a_listed_provider_is_told_in_full(self, filled: Backend) -> None:
        found = picture(filled).providers
        listed = filled.list_providers(ProviderFilter(), 1000)
        assert {row.name for row in listed} == set(found)
        for row in listed:
            kept = found[row.name]
            assert (row.uuid, row.generation, row.parent) == (
                kept.uuid,
                kept.generation,
                kept.parent,
            )
            assert (row.root, row.root_uuid) == (kept.root, found[kept.root].uuid)
            assert row.parent_uuid == (found[kept.parent].uuid if kept.parent else None)
            assert {one.resource_class: one for one in row.records} == kept.inventories
            assert (row.traits, row.aggregates) == (kept.traits, kept.aggregates)
            assert row.reported_at == kept.reported_at

    def test_providers_are_found_by_uuid(self, filled: Backend) -> None:
        found = picture(filled).providers
        wanted = frozenset({found["p0"].uuid, found["p1/0"].uuid, str(uuids.uuid4())})
        listed = filled.list_providers(ProviderFilter(uuids=wanted), 10)
        assert {row.name for row in listed} == {"p0", "p1/0"}
        trees = frozenset({found["p1/0/0"].uuid})
        listed = filled.list_providers(ProviderFilter(trees=trees), 10)
        assert {row.name for row in listed} == {"p1", "p1/0", "p1/0/0"}

    def test_an_empty_set_matches_nobody(self, filled: Backend) -> None:
        nobody = frozenset[str]()
        for wanted in (
            ProviderFilter(names=nobody),
            ProviderFilter(uuids=nobody),
            ProviderFilter(trees=nobody),
            ProviderFilter(aggregates=(nobody,)),
            ProviderFilter(any_of=(nobody,)),
        ):
            assert filled.list_providers(wanted, 10) == ()
        for asked in ("names", "projects", "users", "types", "states"):
            assert filled.list_consumers(ConsumerFilter(**{asked: nobody}), 10) == ()  # type: ignore[arg-type]

    @pytest.mark.parametrize("limit", [1, 2, 4, 1000])
    def test_pages_of_providers_cover_each_once(self, filled: Backend, limit: int) -> None:
        for wanted in (ProviderFilter(), ProviderFilter(roots_only=True)):
            whole = filled.list_providers(wanted, 1000)
            paged: list[ListedProvider] = []
            while page := filled.list_providers(wanted, limit, paged[-1].number if paged else 0):
                assert len(page) <= limit
                paged += page
            assert tuple(paged) == whole

    def test_pages_go_on_where_they_were_when_others_come_and_go(self, backend: Backend) -> None:
        define(backend, *(host(f"host{n}") for n in range(6)))
        first = backend.list_providers(ProviderFilter(), 3)
        assert len(first) == 3
        define(backend, host("later"))
        rest = backend.list_providers(ProviderFilter(), 100, first[-1].number)
        assert [row.name for row in (*first, *rest)] == [*(f"host{n}" for n in range(6)), "later"]

    def test_a_parent_that_is_younger_than_its_child_is_listed_later(
        self, backend: Backend
    ) -> None:
        child = define(backend, Provider("child"))["child"]
        nothing = frozenset[str]()
        root = ProviderDefinition(str(uuids.uuid4()), "root", None, (), nothing)
        below = ProviderDefinition(child, "child", root.uuid, (), nothing)
        generation = picture(backend).providers["child"].generation
        update = ProviderUpdate(below, generation, (), (), nothing, nothing)
        backend.define(Operation(), DefinitionChanges("root", creates=(root,), updates=(update,)))
        listed = backend.list_providers(ProviderFilter(), 10)
        assert [(row.name, row.root) for row in listed] == [("child", "root"), ("root", "root")]

    # --- consumers ---

    @_rarely
    @given(wanted=_consumer_filters, conditions=_consumer_conditions)
    def test_consumers_are_filtered_as_loops_would(
        self,
        filled: Backend,
        rows: dict[str, oracle.Row],
        records: list[ClaimRecord],
        wanted: ConsumerFilter,
        conditions: frozenset[str],
    ) -> None:
        thinned = ConsumerFilter(**{name: getattr(wanted, name) for name in conditions})
        found = filled.list_consumers(thinned, 1000)
        assert [one.consumer for one in found] == oracle.wanted_consumers(rows, records, thinned)
        by_name = {record.consumer: told(record) for record in records}
        assert [told(one) for one in found] == [by_name[one.consumer] for one in found]

    @_rarely
    @given(wanted=_consumer_filters, conditions=_consumer_conditions, by=st.sampled_from(By))
    def test_totals_are_what_loops_would_sum(
        self,
        filled: Backend,
        rows: dict[str, oracle.Row],
        records: list[ClaimRecord],
        wanted: ConsumerFilter,
        conditions: frozenset[str],
        by: By,
    ) -> None:
        if {"tree", "provider"} <= conditions:
            conditions -= {"tree"}
        thinned = ConsumerFilter(**{name: getattr(wanted, name) for name in conditions})
        found = filled.totals(thinned, by)
        assert set(found) == oracle.wanted_totals(rows, records, thinned, by)
        assert found == sorted_totals(found)

    def test_handles_may_be_uuids(self, filled: Backend) -> None:
        found = picture(filled).providers
        for asked in ("tree", "provider"):
            by_name = ConsumerFilter(**{asked: "p1"})  # type: ignore[arg-type]
            by_uuid = ConsumerFilter(**{asked: found["p1"].uuid})  # type: ignore[arg-type]
            assert filled.list_consumers(by_uuid, 99) == filled.list_consumers(by_name, 99)
            assert filled.totals(by_uuid, By.USER) == filled.totals(by_name, By.USER) != ()

    def test_consumers_are_listed_by_age(self, backend: Backend) -> None:
        [here] = define(backend, host()).values()
        moments = []
        for name in ("b", "c", "a"):
            moments.append(claim(backend, name, {here: "VCPU=1"}).created_at)
            while now() <= moments[-1]:
                pass

        def listed(**asked: Any) -> list[str]:
            return [one.consumer for one in backend.list_consumers(ConsumerFilter(**asked), 10)]

        assert listed(created_before=moments[1]) == ["b"]
        assert listed(created_after=moments[1]) == ["a"]
        assert listed(created_before=moments[2], created_after=moments[0]) == ["c"]

    @pytest.mark.parametrize("limit", [1, 3, 1000])
    def test_pages_of_consumers_cover_each_once(self, filled: Backend, limit: int) -> None:
        for wanted in (
            ConsumerFilter(),
            ConsumerFilter(tree="p0"),
            ConsumerFilter(states=frozenset({HELD})),
        ):
            whole = filled.list_consumers(wanted, 1000)
            paged: list[ClaimRecord] = []
            while page := filled.list_consumers(
                wanted, limit, paged[-1].consumer if paged else None
            ):
                assert len(page) <= limit
                paged += page
            assert tuple(paged) == whole and len(paged) == len({one.consumer for one in paged})

    def test_names_are_ordered_by_their_code_points(self, backend: Backend) -> None:
        [here] = define(backend, host("host0", "VCPU=99")).values()
        names = ["b", "B", "a", "ä", "Z", "大", "_", "~", "aa", "a b", "🖥"]
        for name in names:
            claim(backend, name, {here: "VCPU=1"})
        listed = [one.consumer for one in backend.list_consumers(ConsumerFilter(), 100)]
        assert listed == sorted(names)

    def test_many_rows_are_listed_in_pages(self, backend: Backend) -> None:
        names = define(backend, *(host(f"host{n:03}", "VCPU=9") for n in range(120)))
        order(
            backend,
            *(
                ClaimOrder(f"job-{number:03}", deltas({uuid: "VCPU=2"}), project="p")
                for number, uuid in enumerate(names.values())
            ),
        )
        assert len(backend.list_providers(ProviderFilter(names=frozenset(names)), 500)) == 120
        page = backend.list_consumers(ConsumerFilter(projects=frozenset({"p"})), 50, "job-099")
        assert [one.consumer for one in page] == [f"job-{n}" for n in range(100, 120)]
        [total] = backend.totals(ConsumerFilter(), By.PROJECT)
        assert (total.group, total.used, total.consumers) == ("p", 240, 120)
