"""What users of OpenStack Placement suffer from, shown on the real one, in this process.

The number of each test is that of a fault in the list of known faults (7: known pain points, 8:
defects found); a letter counts where one number holds several. After Placement has shown a fault,
the test of the same number in ``tests/ledger/test_faults.py`` is run on a ledger in a file: it says
what happens there instead. That file runs by itself on every kind of database, without Placement.

Where Placement cannot do something at all, its routes say so.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import threading
import types
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import resource_objects as ro
from benchmarks import servers, statements
from benchmarks.peer import PROJECT, USER, Placement, Refused, claim_body
from tests.conftest import require_server
from tests.ledger import test_faults as ledger_faults

# other libraries' own, at import and at the first request
pytestmark = pytest.mark.filterwarnings("ignore")

_numbers = itertools.count()


def _number(name: str) -> str:
    """Return the number of the fault in the name of a test: ``test_7_6a_...`` is of 7_6a."""
    return "_".join(name.split("_")[1:3])


def _tests(module: types.ModuleType) -> dict[str, Any]:
    return {_number(name): found for name, found in vars(module).items() if name[:5] == "test_"}


OURS = _tests(ledger_faults)


@pytest.fixture(autouse=True)
def _and_ours_does_not(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Run the test of the same number on a ledger after Placement has shown the fault."""
    yield
    number = _number(request.function.__name__)
    if number in OURS:
        with ro.connect(f"sqlite:///{tmp_path}/ledger.db") as ledger:
            OURS[number](ledger)


def test_every_fault_has_a_test_on_either_side() -> None:
    here = {_number(name) for name in globals() if name[:6] in ("test_7", "test_8")}
    assert here == set(OURS)
    for number, test in OURS.items():
        assert list(inspect.signature(test).parameters) == ["ledger"], number


# --- words ---


def _new(word: str = "host") -> str:
    return f"{word}-{next(_numbers)}-{uuid.uuid4()}"


def _host(placement: Placement, **resources: int) -> str:
    return placement.create(_new(), resources)


def _figures(placement: Placement, host: str, kind: str, **figures: Any) -> tuple[int, Any]:
    """Replace what a provider has by one inventory."""
    return placement.answer(
        "PUT",
        f"/resource_providers/{host}/inventories",
        {
            "resource_provider_generation": placement.generation(host),
            "inventories": {kind: figures},
        },
    )


def _claim(
    placement: Placement,
    host: str,
    resources: dict[str, int],
    consumer: str | None = None,
    generation: int | None = None,
) -> tuple[int, Any]:
    body = {**claim_body(host, resources), "consumer_generation": generation}
    return placement.answer("PUT", f"/allocations/{consumer or uuid.uuid4()}", body)


def _code(answer: tuple[int, Any]) -> tuple[int, str]:
    status, body = answer
    return status, body["errors"][0]["code"]


def _consumer_generation(placement: Placement, consumer: str) -> int | None:
    found = placement.ask("GET", f"/allocations/{consumer}")
    return found.get("consumer_generation")


def _statements(placement: Placement, count: statements.Count, *args: Any) -> int:
    """Return the number of statements of one request."""
    count.reset()
    placement.ask(*args)
    return count.statements


@pytest.fixture
def count(placement: Placement) -> Iterator[statements.Count]:
    """Count the statements of the connections that Placement opens from now on."""
    with statements.counted() as found:
        yield found


def _known_routes() -> set[str]:
    from placement import handler

    return set(handler.ROUTE_DECLARATIONS)


# --- 7.6: refusals are too coarse ---


def test_7_6a_every_refusal_of_a_claim_has_one_code(placement: Placement) -> None:
    host = _host(placement, VCPU=4)
    assert _figures(placement, host, "VCPU", total=4, step_size=2)[0] == 200
    over = _claim(placement, host, {"VCPU": 6})
    odd = _claim(placement, host, {"VCPU": 3})
    none = _claim(placement, host, {"MEMORY_MB": 1})
    coarse = (409, "placement.undefined_code")
    assert [_code(answer) for answer in (over, odd, none)] == [coarse] * 3


def test_7_6b_a_stale_consumer_and_a_stale_provider_have_one_code(placement: Placement) -> None:
    host, consumer = _host(placement, VCPU=4), str(uuid.uuid4())
    assert _claim(placement, host, {"VCPU": 1}, consumer)[0] == 204
    of_consumer = _claim(placement, host, {"VCPU": 2}, consumer, generation=77)
    of_provider = placement.answer(
        "PUT",
        f"/resource_providers/{host}/inventories",
        {"resource_provider_generation": 77, "inventories": {}},
    )
    assert _code(of_consumer) == _code(of_provider) == (409, "placement.concurrent_update")


def test_7_6c_an_inventory_in_use_says_try_again(placement: Placement) -> None:
    host = _host(placement, VCPU=4)
    assert _claim(placement, host, {"VCPU": 1})[0] == 204
    for _ in range(3):  # for ever
        answer = placement.answer("DELETE", f"/resource_providers/{host}/inventories/VCPU")
        assert _code(answer) == (409, "placement.concurrent_update")


# --- 7.7: hot providers ---


def test_7_7a_every_claim_makes_what_was_read_of_a_provider_stale(placement: Placement) -> None:
    host = _host(placement, VCPU=4)
    read = placement.generation(host)
    assert _claim(placement, host, {"VCPU": 1})[0] == 204
    body = {"resource_provider_generation": read, "inventories": {"VCPU": {"total": 8}}}
    answer = placement.answer("PUT", f"/resource_providers/{host}/inventories", body)
    assert _code(answer) == (409, "placement.concurrent_update")


def test_7_7b_writers_at_the_same_time_are_server_errors(placement: Placement) -> None:
    host = _host(placement, VCPU=1000)
    found: Counter[int] = Counter()
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        for _ in range(5):
            found[_claim(placement, host, {"VCPU": 1})[0]] += 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[500] > 0
    assert found.total() == 40


# --- 7.8: over capacity ---


def test_7_8a_shrinking_below_use_is_silent_and_cannot_be_found(placement: Placement) -> None:
    host = _host(placement, VCPU=4)
    assert _claim(placement, host, {"VCPU": 4})[0] == 204
    status, body = _figures(placement, host, "VCPU", total=1)
    assert status == 200
    assert set(body) == {"resource_provider_generation", "inventories"}
    for word in ("over_capacity", "overcommitted", "exceeded"):
        assert placement.answer("GET", f"/resource_providers?{word}=true")[0] == 400
    assert not [path for path in _known_routes() if "capacity" in path]


def test_7_8b_unit_rules_stand_against_giving_back(placement: Placement) -> None:
    host, consumer = _host(placement, VCPU=8), str(uuid.uuid4())
    assert _claim(placement, host, {"VCPU": 6}, consumer)[0] == 204
    assert _figures(placement, host, "VCPU", total=4, min_unit=4)[0] == 200
    answer = _claim(placement, host, {"VCPU": 2}, consumer, generation=1)
    assert _code(answer) == (409, "placement.undefined_code")


# --- 7.9: slow writes ---


def test_7_9a_a_claim_is_many_statements(placement: Placement, count: statements.Count) -> None:
    host = _host(placement, VCPU=8, MEMORY_MB=8, DISK_GB=8)
    body = claim_body(host, {"VCPU": 1, "MEMORY_MB": 1, "DISK_GB": 1})
    placement.ask("PUT", f"/allocations/{uuid.uuid4()}", body)
    assert _statements(placement, count, "PUT", f"/allocations/{uuid.uuid4()}", body) >= 17


def test_7_9b_a_reshape_is_more_statements_for_each_consumer(
    placement: Placement, count: statements.Count
) -> None:
    found = {}
    for consumers in (5, 10):
        ends = [_host(placement, VCPU=100), _host(placement)]
        moved = placement.claim_many(ends[0], {"VCPU": 1}, consumers)
        body = placement.reshape_body(*ends, {"VCPU": 100}, moved, {"VCPU": 1}, generation=1)
        found[consumers] = _statements(placement, count, "POST", "/reshaper", body)
    assert found[10] - found[5] >= 5 * 5


def test_7_9c_providers_are_looked_up_one_by_one(
    placement: Placement, count: statements.Count
) -> None:
    found = {}
    for providers in (2, 6):
        hosts = [_host(placement, VCPU=4) for _ in range(providers)]
        body = claim_body(hosts[0], {"VCPU": 1})
        body["allocations"] = {host: {"resources": {"VCPU": 1}} for host in hosts}
        found[providers] = _statements(
            placement, count, "PUT", f"/allocations/{uuid.uuid4()}", body
        )
    assert found[6] - found[2] >= 4


def test_7_9d_a_refused_claim_leaves_rows_behind(placement: Placement) -> None:
    host, project = _host(placement, VCPU=1), _new("project")
    body = {**claim_body(host, {"VCPU": 2}), "project_id": project}
    assert placement.answer("PUT", f"/allocations/{uuid.uuid4()}", body)[0] == 409
    assert (project,) in placement.rows("SELECT external_id FROM projects")


# --- 7.10: holes between writers ---


def test_7_10a_a_rename_takes_no_generation(placement: Placement) -> None:
    host = _host(placement)
    read = placement.generation(host)
    for _ in range(2):
        placement.ask("PUT", f"/resource_providers/{host}", {"name": _new()})
    assert placement.generation(host) == read
    body = {"name": _new(), "resource_provider_generation": read}
    assert placement.answer("PUT", f"/resource_providers/{host}", body)[0] == 400


def test_7_10b_a_change_of_the_parent_takes_no_generation(placement: Placement) -> None:
    host, one, other = (_host(placement) for _ in range(3))
    read = placement.generation(host)
    for parent in (one, other, None):
        name = _new()
        body = {"name": name, "parent_provider_uuid": parent}
        placement.ask("PUT", f"/resource_providers/{host}", body)
    assert placement.generation(host) == read


def test_7_10c_adding_an_inventory_ignores_the_generation(placement: Placement) -> None:
    host = _host(placement, VCPU=1)
    body = {"resource_provider_generation": 77, "resource_class": "DISK_GB", "total": 1}
    path = f"/resource_providers/{host}/inventories"
    assert placement.answer("POST", path, body)[0] == 201


def test_7_10d_a_release_bypasses_the_consumers_generation(placement: Placement) -> None:
    host, consumer = _host(placement, VCPU=4), str(uuid.uuid4())
    assert _claim(placement, host, {"VCPU": 1}, consumer)[0] == 204
    read = _consumer_generation(placement, consumer)
    assert _claim(placement, host, {"VCPU": 2}, consumer, generation=read)[0] == 204
    body = {"consumer_generation": read}  # there is no place to say it, and it is not looked at
    assert placement.answer("DELETE", f"/allocations/{consumer}", body)[0] == 204


def test_7_10e_a_consumers_generation_starts_again(placement: Placement) -> None:
    host, consumer = _host(placement, VCPU=4), str(uuid.uuid4())
    assert _claim(placement, host, {"VCPU": 1}, consumer)[0] == 204
    read = _consumer_generation(placement, consumer)
    placement.ask("DELETE", f"/allocations/{consumer}")
    assert _claim(placement, host, {"VCPU": 3}, consumer)[0] == 204  # another life
    assert _claim(placement, host, {"VCPU": 2}, consumer, generation=read)[0] == 204


def test_7_10f_holding_nothing_makes_a_consumer_that_can_hold_nothing(placement: Placement) -> None:
    host, consumer = _host(placement, VCPU=4), str(uuid.uuid4())
    nothing = {**claim_body(host, {}), "allocations": {}}
    assert placement.answer("PUT", f"/allocations/{consumer}", nothing)[0] == 204
    assert placement.ask("GET", f"/allocations/{consumer}") == {"allocations": {}}
    assert _code(_claim(placement, host, {"VCPU": 1}, consumer)) == (
        409,
        "placement.concurrent_update",
    )


def test_7_10g_two_who_set_traits_at_the_same_time_are_a_server_error(
    placement: Placement,
) -> None:
    from placement.objects import trait

    host = _host(placement, VCPU=1)
    read = placement.generation(host)
    look_up = trait.get_all

    def meanwhile(*args: Any, **options: Any) -> Any:
        found = look_up(*args, **options)
        with mock.patch.object(trait, "get_all", look_up):
            _figures(placement, host, "VCPU", total=2)
        return found

    body = {"resource_provider_generation": read, "traits": ["HW_CPU_X86_AVX2"]}
    with mock.patch.object(trait, "get_all", meanwhile):
        status, _ = placement.answer("PUT", f"/resource_providers/{host}/traits", body)
    assert status == 500


# --- 7.13: lists ---


def test_7_13a_the_list_of_providers_has_no_pages(placement: Placement) -> None:
    for _ in range(3):
        _host(placement)
    for parameter in ("limit", "page", "marker"):
        assert placement.answer("GET", f"/resource_providers?{parameter}=1")[0] == 400
    found = placement.ask("GET", "/resource_providers")["resource_providers"]
    assert len(found) == placement.rows("SELECT COUNT(*) FROM resource_providers")[0][0]


def test_7_13b_the_allocations_of_a_provider_have_no_pages(placement: Placement) -> None:
    host = _host(placement, VCPU=100)
    placement.claim_many(host, {"VCPU": 1}, 30)
    path = f"/resource_providers/{host}/allocations"
    assert len(placement.ask("GET", f"{path}?limit=1")["allocations"]) == 30


def test_7_13c_providers_are_made_one_by_one_in_four_requests(
    placement: Placement, count: statements.Count
) -> None:
    body = [{"name": _new()}, {"name": _new()}]
    assert placement.answer("POST", "/resource_providers", body)[0] == 400
    whole = {"name": _new(), "inventories": {}, "traits": [], "aggregates": []}
    assert placement.answer("POST", "/resource_providers", whole)[0] == 400
    count.reset()
    placement.create(_new(), {"VCPU": 1}, ["HW_CPU_X86_AVX2"], [str(uuid.uuid4())])
    assert count.statements >= 15  # for one


def test_7_13d_nobody_is_told_of_changes(placement: Placement) -> None:
    words = ("change", "event", "watch", "history")
    assert not [path for path in _known_routes() if any(word in path for word in words)]
    tables = {name for (name,) in placement.rows("SELECT name FROM sqlite_master")}
    assert not [name for name in tables if any(word in name for word in words)]


def test_7_13e_who_has_an_inventory_is_told_only_of_those_with_room(placement: Placement) -> None:
    placement.ask("PUT", "/resource_classes/CUSTOM_ROOM_7_13")
    full, empty = _host(placement, CUSTOM_ROOM_7_13=1), _host(placement, CUSTOM_ROOM_7_13=1)
    assert _claim(placement, full, {"CUSTOM_ROOM_7_13": 1})[0] == 204
    query = "/resource_providers?resources=CUSTOM_ROOM_7_13"
    found = placement.ask("GET", f"{query}:1")["resource_providers"]
    assert [one["uuid"] for one in found] == [empty]
    assert placement.answer("GET", f"{query}:0")[0] == 400


def test_7_13f_consumers_cannot_be_listed(placement: Placement) -> None:
    assert not [path for path in _known_routes() if "consumer" in path.split("{")[0]]
    assert placement.answer("GET", "/allocations")[0] == 405


# --- 7.14: garbage ---


def test_7_14a_aggregates_stay_for_ever(placement: Placement) -> None:
    aggregate = str(uuid.uuid4())
    host = placement.create(_new(), {"VCPU": 1}, ["HW_CPU_X86_AVX2"], [aggregate])
    placement.ask("DELETE", f"/resource_providers/{host}")
    assert (aggregate,) in placement.rows("SELECT uuid FROM placement_aggregates")
    assert not [path for path in _known_routes() if path.startswith("/aggregates")]


def test_7_14b_projects_users_and_types_stay_for_ever(placement: Placement) -> None:
    host, consumer = _host(placement, VCPU=1), str(uuid.uuid4())
    said = {"project_id": _new("p"), "user_id": _new("u"), "consumer_type": f"T{uuid.uuid4().hex}"}
    said["consumer_type"] = said["consumer_type"].upper()
    body = {**claim_body(host, {"VCPU": 1}), **said}
    placement.ask("PUT", f"/allocations/{consumer}", body)
    placement.ask("DELETE", f"/allocations/{consumer}")
    assert (said["project_id"],) in placement.rows("SELECT external_id FROM projects")
    assert (said["user_id"],) in placement.rows("SELECT external_id FROM users")
    assert (said["consumer_type"],) in placement.rows("SELECT name FROM consumer_types")


def test_7_14c_the_database_takes_orphans_and_repetitions(placement: Placement) -> None:
    from placement.db.sqlalchemy import models

    for table in (models.Allocation.__table__, models.Inventory.__table__):
        assert not table.foreign_keys
    unique = [one for one in models.Allocation.__table__.indexes if one.unique]
    assert not unique
    kept = placement.rows("SELECT sql FROM sqlite_master WHERE name = 'allocations'")[0][0]
    assert "UNIQUE" not in kept
    assert "REFERENCES" not in kept


# --- 8: defects ---


def test_8_1_candidates_that_differ_have_one_hash() -> None:
    from placement.objects.allocation_candidate import AllocationRequest

    found = [
        AllocationRequest(mappings={f"_{number}": [uuid] for number, uuid in enumerate(order)})
        for order in itertools.permutations(["one", "two", "three", "four"])
    ]
    assert len({hash(one) for one in found}) == 1
    assert len(set(found)) == len(found) == 24


def test_8_2_a_candidate_may_exceed_what_is_free(placement: Placement) -> None:
    host = _host(placement, PGPU=4)
    assert _claim(placement, host, {"PGPU": 2})[0] == 204
    query = f"in_tree1={host}&resources1=PGPU:2&in_tree2={host}&resources2=PGPU:2&group_policy=none"
    group = "workarounds"
    placement.config.set_override("optimize_for_wide_provider_trees", True, group=group)
    try:
        found = placement.ask("GET", f"/allocation_candidates?{query}")["allocation_requests"]
    finally:
        placement.config.clear_override("optimize_for_wide_provider_trees", group=group)
    asked = [one["allocations"] for one in found]
    assert asked == [{host: {"resources": {"PGPU": 4}}}]
    assert _claim(placement, host, {"PGPU": 4})[0] == 409


def test_8_3_a_race_of_traits_is_a_server_error(placement: Placement) -> None:
    test_7_10g_two_who_set_traits_at_the_same_time_are_a_server_error(placement)


def test_8_4_holding_nothing_leaves_a_consumer_of_generation_0(placement: Placement) -> None:
    host, consumer = _host(placement, VCPU=4), str(uuid.uuid4())
    nothing = {**claim_body(host, {}), "allocations": {}}
    assert placement.answer("PUT", f"/allocations/{consumer}", nothing)[0] == 204
    query = f"SELECT generation FROM consumers WHERE uuid = '{consumer}'"
    assert placement.rows(query) == [(0,)]


def test_8_5a_inventories_that_cannot_be_are_taken(placement: Placement) -> None:
    host = _host(placement, VCPU=1)
    for figures in (
        {"total": 1, "reserved": 2, "allocation_ratio": 0.5},
        {"total": 1, "reserved": 2, "allocation_ratio": -1.0},
        {"total": 1, "allocation_ratio": 0.0},
        {"total": 1, "min_unit": 5, "max_unit": 2},
    ):
        assert _figures(placement, host, "VCPU", **figures)[0] == 200, figures


def test_8_5b_a_reshape_checks_no_inventory(placement: Placement) -> None:
    host = _host(placement, VCPU=1)
    has = {"VCPU": {"total": 1, "reserved": 5}}
    assert _figures(placement, host, "VCPU", **has["VCPU"])[0] == 400
    generation = placement.generation(host)
    body = {"resource_provider_generation": generation, "inventories": has}
    placement.ask("POST", "/reshaper", {"inventories": {host: body}, "allocations": {}})


def test_8_6_candidates_are_written_out_for_a_log_nobody_keeps(placement: Placement) -> None:
    from placement.objects import allocation_candidate

    host = _host(placement, PGPU=4)
    said = []
    stock = allocation_candidate.AllocationRequest.__repr__

    def counted(self: Any) -> str:
        said.append(self)
        return stock(self)

    logger = logging.getLogger("placement.objects.allocation_candidate")
    level = logger.level
    logger.setLevel(logging.WARNING)
    query = f"in_tree1={host}&resources1=PGPU:2&in_tree2={host}&resources2=PGPU:2"
    try:
        with mock.patch.object(allocation_candidate.AllocationRequest, "__repr__", counted):
            placement.ask("GET", f"/allocation_candidates?{query}&group_policy=isolate")
    finally:
        logger.setLevel(level)
    assert said


def test_8_7_usages_by_type_of_consumer_are_a_server_error_on_postgresql() -> None:
    require_server("postgresql")
    with servers.database("postgresql") as url:
        [(status, said)] = servers.in_a_process(_usages_by_type, url)
    assert status == 500
    assert "GROUP BY" in said


def _usages_by_type(url: str) -> Iterator[tuple[int, str]]:
    """Yield the answer; in a process of its own, because one holds one Placement."""
    import tempfile

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        placement = Placement(url, Path(folder))
        host = _host(placement, VCPU=2)
        assert _claim(placement, host, {"VCPU": 1}) == (204, None)
        status, body = placement.answer("GET", f"/usages?project_id={PROJECT}&user_id={USER}")
        yield status, str(body)


def test_8_9_who_meets_others_is_given_what_is_not_left_on_postgresql() -> None:
    """It tries again within the transaction that it has begun.

    What it wrote the first time is still there, and counts as what was used before: so the second
    time more than there is makes nothing worse, and is taken.
    """
    require_server("postgresql")
    with servers.database("postgresql") as url:
        [(answers, used)] = servers.in_a_process(_meeting, url)
    assert answers == [204, 204]
    assert used == 6  # of 4


def _meeting(url: str) -> Iterator[tuple[list[int], int]]:
    """Yield the answers to two who ask for 3 of 4, the second between two steps of the first."""
    import tempfile

    from placement.objects.resource_provider import ResourceProvider

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        placement = Placement(url, Path(folder))
        host = _host(placement, VCPU=4)
        answers: list[int] = []
        count = ResourceProvider.increment_generation

        def claim() -> None:
            answers.append(_claim(placement, host, {"VCPU": 3})[0])

        def met(self: Any) -> None:
            with mock.patch.object(ResourceProvider, "increment_generation", count):
                other = threading.Thread(target=claim)
                other.start()
                other.join()
            ResourceProvider.increment_generation = count
            count(self)

        with mock.patch.object(ResourceProvider, "increment_generation", met):
            claim()
        [(used,)] = placement.rows("SELECT SUM(used) FROM allocations")
        placement.reconnect()
        yield answers, int(used)


def test_8_8_deleting_an_inventory_in_use_says_concurrent_update(placement: Placement) -> None:
    host = _host(placement, VCPU=4)
    assert _claim(placement, host, {"VCPU": 1})[0] == 204
    with pytest.raises(Refused, match=r"placement\.concurrent_update"):
        placement.ask("DELETE", f"/resource_providers/{host}/inventories/VCPU")
