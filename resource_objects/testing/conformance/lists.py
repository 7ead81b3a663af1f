"""Rules of lists: every filter answers what naive loops answer, and pages cover everything once.

The loops go over everything that is kept. Nothing in them is shared with a backend: they read
:class:`Columns`, and say each condition of a filter in their own words.
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
    now,
    order,
    picture,
    told,
    updated,
)


@dataclasses.dataclass
class NamedProvider:
    """One provider, by its names only."""

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
        own: None if above is None else name[above]
        for own, above in zip(table.name, table.parent_id, strict=True)
    }
    found = {}
    for number, own, uuid in zip(table.provider_id, table.name, table.uuid, strict=True):
        top = own
        while (above := parent[top]) is not None:
            top = above
        found[own] = NamedProvider(
            own,
            uuid,
            parent[own],
            top,
            table.reported_at[list(table.name).index(own)],
            table.adopted_at[list(table.name).index(own)],
            {
                values[0]: dict(zip(_FIGURES, values[1:], strict=True))
                for of, *values in zip(*columns.inventories, strict=True)
                if of == number
            },
            {trait for of, trait in zip(*columns.traits, strict=True) if of == number},
            {one for of, one in zip(*columns.aggregates, strict=True) if of == number},
            [
                (kind, name[target], target_kind, factor)
                for of, kind, target, target_kind, factor in zip(*columns.shares, strict=True)
                if of == number
            ],
        )
    return found


def wanted_providers(rows: dict[str, NamedProvider], wanted: ProviderFilter) -> set[str]:
    """Return the names of the providers that a filter wants."""
    return {name for name, row in rows.items() if all(_conditions(rows, row, wanted))}


def _conditions(
    rows: dict[str, NamedProvider], row: NamedProvider, wanted: ProviderFilter
) -> Iterator[bool]:
    if wanted.names is not None:
        yield row.name in wanted.names
    if wanted.uuids is not None:
        yield row.uuid in wanted.uuids
    if wanted.trees is not None:
        tree = [other for other in rows.values() if other.root == row.root]
        yield any(other.name in wanted.trees or other.uuid in wanted.trees for other in tree)
    yield all(aggregate not in row.aggregates for aggregate in wanted.forbidden_aggregates)
    yield all(any(one in row.aggregates for one in some) for some in wanted.aggregates)
    yield all(trait in row.traits for trait in wanted.required)
    yield all(trait not in row.traits for trait in wanted.forbidden)
    yield all(any(trait in row.traits for trait in some) for some in wanted.any_of)
    for kind, amount in wanted.room:
        yield _has_room(rows, row, kind, amount)
    if wanted.over_capacity:
        yield any(figures["used"] > _capacity(figures) for figures in row.inventories.values())
    if wanted.roots_only:
        yield row.parent is None
    if wanted.reported_before is not None:
        yield row.reported_at is not None and row.reported_at < wanted.reported_before


def _capacity(figures: dict[str, Any]) -> int:
    ratio = Fraction(figures["ratio_millionths"], 1_000_000)
    left: int = figures["total"] - figures["reserved"]
    return math.floor(left * ratio)


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
    for own, target, target_kind, factor in row.shares:
        there = rows[target].inventories[target_kind]
        if own == kind and there["used"] + amount * factor > _capacity(there):
            return False
    return True


def everybody(backend: Backend) -> list[ConsumerRecord]:
    """Return all who hold something, as one by one they are read."""
    names = sorted(set(backend.read().allocations.consumer))
    found = (backend.held(name) for name in names)
    return [record for record in found if record is not None]


def wanted_consumers(
    rows: dict[str, NamedProvider], records: list[ConsumerRecord], wanted: ConsumerFilter
) -> list[str]:
    """Return the names of the consumers that a filter wants, in their order."""
    return sorted(one.consumer for one in records if all(_asked(rows, one, wanted)))


def _asked(
    rows: dict[str, NamedProvider], record: ConsumerRecord, wanted: ConsumerFilter
) -> Iterator[bool]:
    for allowed, value in (
        (wanted.names, record.consumer),
        (wanted.projects, record.project),
        (wanted.users, record.user),
        (wanted.types, record.consumer_type),
        (wanted.groups, record.group),
        (wanted.states, record.state),
    ):
        if allowed is not None:
            yield value in allowed
    if wanted.provider is not None:
        yield any(wanted.provider in _handles(rows, held.provider) for held in record.held)
    if wanted.tree is not None:
        yield any(_in_tree(rows, held.provider, wanted.tree) for held in record.held)
    if wanted.created_before is not None:
        yield record.created_at < wanted.created_before
    if wanted.created_after is not None:
        yield record.created_at > wanted.created_after
    if wanted.expires_before is not None:
        yield record.expires_at is not None and record.expires_at < wanted.expires_before


def _handles(rows: dict[str, NamedProvider], name: str) -> tuple[str, str]:
    return name, rows[name].uuid


def _in_tree(rows: dict[str, NamedProvider], name: str, tree: str) -> bool:
    return any(
        tree in (other.name, other.uuid) for other in rows.values() if other.root == rows[name].root
    )


def wanted_totals(
    rows: dict[str, NamedProvider], records: list[ConsumerRecord], wanted: ConsumerFilter, by: By
) -> set[Total]:
    """Return what the consumers of a filter use, by group and class."""
    asked = set(wanted_consumers(rows, records, wanted))
    uses: dict[tuple[str | None, str], list[tuple[str, int]]] = {}
    for record in records:
        for held in record.held:
            if record.consumer not in asked:
                continue
            if wanted.provider not in (None, *_handles(rows, held.provider)):
                continue
            if wanted.tree is not None and not _in_tree(rows, held.provider, wanted.tree):
                continue
            group = {
                By.RESOURCE_CLASS: None,
                By.PROVIDER: held.provider,
                By.PROJECT: record.project,
                By.USER: record.user,
                By.CONSUMER_TYPE: record.consumer_type,
                By.GROUP: record.group,
            }[by]
            use = record.consumer, held.amount
            uses.setdefault((group, held.resource_class), []).append(use)
    return {
        Total(group, kind, sum(amount for _, amount in found), len({name for name, _ in found}))
        for (group, kind), found in uses.items()
    }


# --- the rules ---


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
            order(backend, ConsumerOrder.renew(consumer, expires_at, CONFIRMED))
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
#: Few conditions at a time, or hardly anything is ever wanted.
_rarely = settings(
    max_examples=60,
    deadline=None,
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
    def rows(self, filled: Backend) -> dict[str, NamedProvider]:
        """Its providers, for the oracle."""
        return rows_of(filled.read())

    @pytest.fixture
    def records(self, filled: Backend) -> list[ConsumerRecord]:
        """Its consumers, for the oracle."""
        return everybody(filled)

    # --- providers ---

    @_rarely
    @given(wanted=_provider_filters, conditions=_provider_conditions)
    def test_providers_are_filtered_as_loops_would(
        self,
        filled: Backend,
        rows: dict[str, NamedProvider],
        wanted: ProviderFilter,
        conditions: frozenset[str],
    ) -> None:
        thinned = ProviderFilter(**{name: getattr(wanted, name) for name in conditions})
        found = filled.list_providers(thinned, 1000)
        assert {row.name for row in found} == wanted_providers(rows, thinned)
        assert [row.number for row in found] == sorted({row.number for row in found})

    def test_the_filled_ledger_has_a_bit_of_everything(
        self, filled: Backend, rows: dict[str, NamedProvider], records: list[ConsumerRecord]
    ) -> None:
        for wanted in (
            ProviderFilter(over_capacity=True),
            ProviderFilter(reported_before=now()),
            ProviderFilter(required=frozenset({"CUSTOM_A"})),
            ProviderFilter(aggregates=(frozenset({"room"}),)),
            ProviderFilter(room=(("CUSTOM_X", 3),)),
        ):
            found = {row.name for row in filled.list_providers(wanted, 100)}
            assert found == wanted_providers(rows, wanted)
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
            assert (row.reported_at, row.adopted_at) == (kept.reported_at, kept.adopted_at)

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
        names = frozenset({"p0", "p1", "p1/0", "p1/0/0", "nobody"})
        for wanted in (
            ProviderFilter(),
            ProviderFilter(roots_only=True),
            ProviderFilter(names=names),
        ):
            whole = filled.list_providers(wanted, 1000)
            paged: list[ListedProvider] = []
            while page := filled.list_providers(wanted, limit, paged[-1].number if paged else 0):
                assert len(page) <= limit
                paged += page
                assert len(paged) <= len(whole), "a row is listed again"
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
        define(backend, Provider("child"))
        root = ProviderDefinition(str(uuids.uuid4()), "root", None, (), frozenset())
        update = updated(backend, "child", parent_uuid=root.uuid)
        backend.define(Operation(), DefinitionChanges("root", creates=(root,), updates=(update,)))
        listed = backend.list_providers(ProviderFilter(), 10)
        assert [(row.name, row.root) for row in listed] == [("child", "root"), ("root", "root")]

    # --- consumers ---

    @_rarely
    @given(wanted=_consumer_filters, conditions=_consumer_conditions)
    def test_consumers_are_filtered_as_loops_would(
        self,
        filled: Backend,
        rows: dict[str, NamedProvider],
        records: list[ConsumerRecord],
        wanted: ConsumerFilter,
        conditions: frozenset[str],
    ) -> None:
        thinned = ConsumerFilter(**{name: getattr(wanted, name) for name in conditions})
        found = filled.list_consumers(thinned, 1000)
        assert [one.consumer for one in found] == wanted_consumers(rows, records, thinned)
        by_name = {record.consumer: told(record) for record in records}
        assert [told(one) for one in found] == [by_name[one.consumer] for one in found]

    @_rarely
    @given(wanted=_consumer_filters, conditions=_consumer_conditions, by=st.sampled_from(By))
    def test_totals_are_what_loops_would_sum(
        self,
        filled: Backend,
        rows: dict[str, NamedProvider],
        records: list[ConsumerRecord],
        wanted: ConsumerFilter,
        conditions: frozenset[str],
        by: By,
    ) -> None:
        if {"tree", "provider"} <= conditions:
            conditions -= {"tree"}
        thinned = ConsumerFilter(**{name: getattr(wanted, name) for name in conditions})
        found = filled.totals(thinned, by)
        assert set(found) == wanted_totals(rows, records, thinned, by)
        assert found == sorted_totals(found)

    @_rarely
    @given(
        wanted=_consumer_filters,
        conditions=_consumer_conditions,
        by=st.sampled_from(get_args(Description)),
    )
    def test_consumers_are_counted_as_loops_would(
        self,
        filled: Backend,
        rows: dict[str, NamedProvider],
        records: list[ConsumerRecord],
        wanted: ConsumerFilter,
        conditions: frozenset[str],
        by: Description,
    ) -> None:
        thinned = ConsumerFilter(**{name: getattr(wanted, name) for name in conditions})
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
            ConsumerFilter(names=frozenset([*_CONSUMERS, "nobody"])),
        ):
            whole = filled.list_consumers(wanted, 1000)
            paged: list[ConsumerRecord] = []
            while page := filled.list_consumers(
                wanted, limit, paged[-1].consumer if paged else None
            ):
                assert len(page) <= limit
                paged += page
                assert len(paged) <= len(whole), "a row is listed again"
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
                ConsumerOrder.claim(f"job-{number:03}", deltas({uuid: "VCPU=2"}), project="p")
                for number, uuid in enumerate(names.values())
            ),
        )
        assert len(backend.list_providers(ProviderFilter(names=frozenset(names)), 500)) == 120
        page = backend.list_consumers(ConsumerFilter(projects=frozenset({"p"})), 50, "job-099")
        assert [one.consumer for one in page] == [f"job-{n}" for n in range(100, 120)]
        [total] = backend.totals(ConsumerFilter(), By.PROJECT)
        assert (total.group, total.used, total.consumers) == ("p", 240, 120)
