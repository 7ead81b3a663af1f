"""What users of the field's placement service suffer from is not so here.

The number of each test is that of a fault in the list of known faults (7: known pain points, 8:
defects found); a letter counts where one number holds several. The tests of the same numbers in
``tests/peers/placement/test_faults.py`` show each fault on the real service, which needs it
installed; these run by themselves, in memory and on every kind of database.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import sqlalchemy

import resource_objects as ro
from benchmarks import statements
from resource_objects import exceptions
from resource_objects.ledger import backend_for
from resource_objects.ledger.feed import Changes
from resource_objects.providers.orders import ConsumerOrder
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Move, Part, Reshape
from resource_objects.reasons import Rule
from resource_objects.testing.refusals import is_one_of, raises_code
from tests import databases
from tests.conftest import require_server
from tests.ledger.conftest import paged

pytestmark = pytest.mark.usefixtures("nobody_forgets")  # some count statements

_KINDS = ("memory", *databases.KINDS)


def upgrade(url: str) -> None:
    """``prepare`` of the databases that these tests share."""
    backend_for(url).upgrade_database(url)


@pytest.fixture(params=_KINDS)
def ledger(request: pytest.FixtureRequest, scratch: databases.Scratch) -> Iterator[ro.Ledger]:
    """An empty ledger, in memory and on each kind of database."""
    kind: str = request.param
    if kind == "memory":
        with ro.connect("memory://") as opened:
            yield opened
        return
    if kind != "sqlite":
        require_server(kind)
    with scratch.prepared(kind, upgrade) as url, ro.connect(url) as opened:
        yield opened


def _url(ledger: ro.Ledger) -> str | None:
    """Return where a ledger is kept, None for memory."""
    database = getattr(ledger.backend, "_database", None)
    return None if database is None else str(database._engine.url.render_as_string(False))


def _host(ledger: ro.Ledger, inventories: str = "VCPU=4", name: str = "host") -> None:
    ledger.sync(ro.Provider(name, inventories))


def _generation(ledger: ro.Ledger, name: str = "host") -> int:
    found = ledger.provider(name).generation
    assert found is not None
    return found


def _said(refused: Callable[[], object], error: type[ro.CapacityException]) -> set[Rule]:
    """Return the rules that a refusal of exactly this type names."""
    with raises_code(error) as raised:
        refused()
    assert is_one_of(raised.value, error)
    return {reason.rule for reason in raised.value.reasons}


def _count(ledger: ro.Ledger, once: Callable[[ro.Ledger], object]) -> int:
    """Return how many statements something sends; in memory there are none."""
    url = _url(ledger)
    if url is None:
        once(ledger)
        return 0
    with statements.counted() as count, ro.connect(url) as counted:
        count.reset()
        once(counted)
        return count.statements


# --- 7.6: refusals ---


def test_7_6a_each_rule_refuses_with_a_reason_of_its_own(ledger: ro.Ledger) -> None:
    _host(ledger, "VCPU=4:step_size=2")
    asked = {amounts: {"host": amounts} for amounts in ("VCPU=6", "VCPU=3", "MEMORY_MB=1")}
    over = _said(lambda: ledger.claim("job", asked["VCPU=6"]), ro.CapacityException)
    odd = _said(lambda: ledger.claim("job", asked["VCPU=3"]), "UnitRuleViolated")
    none = _said(lambda: ledger.claim("job", asked["MEMORY_MB=1"]), "InventoryNotFound")
    assert (over, odd, none) == ({Rule.CAPACITY}, {Rule.STEP_SIZE}, {Rule.NO_INVENTORY})


def test_7_6b_a_stale_consumer_and_a_stale_provider_are_told_apart(ledger: ro.Ledger) -> None:
    _host(ledger)
    ledger.claim("job", {"host": "VCPU=1"})
    with raises_code("StaleConsumer") as of_consumer:
        ledger.replace("job", {"host": "VCPU=2"}, generation=77_000)
    with raises_code("StaleDefinition") as of_provider:
        ledger.change("host", inventories="VCPU=5", generation=77_000)
    assert (of_consumer.value.name, of_provider.value.name) == ("job", "host")


def test_7_6c_an_inventory_in_use_says_so(ledger: ro.Ledger) -> None:
    _host(ledger, "VCPU=4,DISK_GB=1")
    ledger.claim("job", {"host": "VCPU=1"})
    with raises_code("InventoryInUse"):
        ledger.change("host", inventories="DISK_GB=1")


# --- 7.7: hot providers ---


def test_7_7a_a_claim_leaves_what_was_read_of_a_provider_fresh(ledger: ro.Ledger) -> None:
    _host(ledger)
    read = _generation(ledger)
    ledger.claim("job", {"host": "VCPU=1"})
    ledger.change("host", inventories="VCPU=8", generation=read)
    assert ledger.provider("host").inventories["VCPU"].total == 8


def test_7_7b_writers_at_the_same_time_are_all_served(ledger: ro.Ledger) -> None:
    _host(ledger, "VCPU=1000")
    url = _url(ledger)
    barrier = threading.Barrier(8)
    errors: list[Exception] = []

    def work(number: int) -> None:
        with contextlib.ExitStack() as stack:
            own = ledger if url is None else stack.enter_context(ro.connect(url))
            try:
                barrier.wait()
                for count in range(5):
                    own.claim(f"job-{number}-{count}", {"host": "VCPU=1"})
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert ledger.provider("host").inventories["VCPU"].used == 40


# --- 7.8: over capacity ---


def test_7_8a_who_is_over_capacity_is_told(ledger: ro.Ledger) -> None:
    _host(ledger)
    _host(ledger, name="other")
    ledger.claim("job", {"host": "VCPU=4"})
    ledger.change("host", inventories="VCPU=1")
    (found,) = ledger.providers(over_capacity=True)
    assert found.name == "host"
    assert found.inventories["VCPU"].free == -3
    assert "host" in str(list(ledger.usage(over_capacity=True)))


def test_7_8b_giving_back_is_always_possible(ledger: ro.Ledger) -> None:
    _host(ledger, "VCPU=8")
    ledger.claim("job", {"host": "VCPU=6"})
    ledger.change("host", inventories="VCPU=4:min_unit=4")
    ledger.replace("job", {"host": "VCPU=5"})  # still above the capacity
    ledger.replace("job", {"host": "VCPU=2"})  # below the least that may be asked
    ledger.adjust("job", {"host": "VCPU=-1"})
    assert ledger.get_claim("job").by_provider() == {"host": ro.Amounts("VCPU=1")}


# --- 7.9: slow writes ---


def test_7_9a_a_claim_is_few_statements(ledger: ro.Ledger) -> None:
    _host(ledger, "VCPU=8,MEMORY_MB=8,DISK_GB=8")
    asked = {"host": "VCPU=1,MEMORY_MB=1,DISK_GB=1"}
    owner = {"project": "p", "user": "u", "consumer_type": "VM"}

    def claim(counted: ro.Ledger) -> None:
        counted.claim("job", asked, **owner)

    ledger.claim("first", asked, **owner)
    assert _count(ledger, claim) <= 12


def test_7_9b_a_reshape_is_as_many_statements_for_many_consumers(ledger: ro.Ledger) -> None:
    found = set()
    for consumers in (5, 30):
        top = ro.Provider(f"top-{consumers}", f"VCPU={consumers}")
        top.add(f"part-{consumers}")
        ledger.sync(top)
        ledger.claim_all(
            {f"job-{consumers}-{n}": {f"top-{consumers}": "VCPU=1"} for n in range(consumers)}
        )
        found.add(_count(ledger, _down(f"top-{consumers}", f"part-{consumers}")))
        used = ledger.provider(f"part-{consumers}").inventories["VCPU"].used
        assert used == consumers
    assert len(found) == 1


def _down(top: str, part: str) -> Callable[[ro.Ledger], object]:
    """Return what moves an inventory, and all that is held of it, from a provider to its child."""
    plan = Reshape(moves=(Move(top, "VCPU", (Part(part),), fill=True),))
    return lambda ledger: ledger.reshape(plan)


def test_7_9c_providers_are_looked_up_together(ledger: ro.Ledger) -> None:
    found = set()
    for hosts in (2, 6):
        names = [f"host-{hosts}-{number}" for number in range(hosts)]
        ledger.sync(*(ro.Provider(name, "VCPU=4") for name in names))

        def claim(counted: ro.Ledger, names: list[str] = names) -> None:
            counted.claim(f"job-{len(names)}", dict.fromkeys(names, "VCPU=1"))

        found.add(_count(ledger, claim))
    assert len(found) == 1


def test_7_9d_a_refused_claim_leaves_nothing_behind(ledger: ro.Ledger) -> None:
    _host(ledger, "VCPU=1")
    before = ledger.feed.cursor()
    with pytest.raises(ro.CapacityException):
        ledger.claim("job", {"host": "VCPU=2"}, project="new", user="new", consumer_type="NEW")
    assert ledger.feed.cursor() == before
    assert list(ledger.consumers()) == []
    assert list(ledger.totals("project")) == []


# --- 7.10: holes between writers ---


def test_7_10a_a_rename_takes_a_generation(ledger: ro.Ledger) -> None:
    _host(ledger)
    read = _generation(ledger)
    ledger.change("host", name="other", generation=read)
    assert _generation(ledger, "other") > read
    with raises_code("StaleDefinition"):
        ledger.change("other", name="third", generation=read)


def test_7_10b_a_change_of_the_parent_takes_a_generation(ledger: ro.Ledger) -> None:
    for name in ("host", "one", "other"):
        _host(ledger, name=name)
    read = _generation(ledger)
    ledger.change("host", parent="one", generation=read)
    assert _generation(ledger) > read
    with raises_code("StaleDefinition"):
        ledger.change("host", parent="other", generation=read)


def test_7_10c_every_change_of_inventories_takes_a_generation(ledger: ro.Ledger) -> None:
    _host(ledger)
    read = _generation(ledger)
    ledger.change("host", inventories="VCPU=4,DISK_GB=1", generation=read)
    with raises_code("StaleDefinition"):
        ledger.change("host", inventories="VCPU=4,MEMORY_MB=1", generation=read)


def test_7_10d_a_release_may_demand_the_consumers_generation(ledger: ro.Ledger) -> None:
    _host(ledger)
    read = ledger.claim("job", {"host": "VCPU=1"}).generation
    ledger.replace("job", {"host": "VCPU=2"}, generation=read)
    with raises_code("StaleConsumer"):
        ledger.apply(Plan(orders=(ConsumerOrder.release("job", generation=read),)))
    assert ledger.get_claim("job").by_provider() == {"host": ro.Amounts("VCPU=2")}


def test_7_10e_no_later_life_of_a_consumer_has_its_generation(ledger: ro.Ledger) -> None:
    _host(ledger)
    read = ledger.claim("job", {"host": "VCPU=1"}).generation
    ledger.release("job")
    ledger.claim("job", {"host": "VCPU=3"})  # another life
    with raises_code("StaleConsumer"):
        ledger.replace("job", {"host": "VCPU=2"}, generation=read)


def test_7_10f_nothing_is_kept_of_who_holds_nothing(ledger: ro.Ledger) -> None:
    _host(ledger)
    with raises_code("InvalidAmount"):
        ledger.claim("job", {"host": ""})
    ledger.claim("job", {"host": "VCPU=1"})
    ledger.adjust("job", {"host": "VCPU=-1"})
    assert list(ledger.consumers()) == []
    assert ledger.claim("job", {"host": "VCPU=1"}).state == "held"


def test_7_10g_two_who_set_traits_at_the_same_time_are_told(ledger: ro.Ledger) -> None:
    _host(ledger)
    read = _generation(ledger)
    commit = ledger.backend.commit

    def later(write: object) -> object:
        with mock.patch.object(ledger.backend, "commit", commit):
            ledger.change("host", inventories="VCPU=5")
        return commit(write)  # type: ignore[arg-type]

    with (
        mock.patch.object(ledger.backend, "commit", later),
        raises_code("StaleDefinition"),
    ):
        ledger.change("host", traits=["CUSTOM_SSD"], generation=read)
    assert ledger.provider("host").traits == frozenset()


# --- 7.13: lists ---


def test_7_13a_the_list_of_providers_has_pages(ledger: ro.Ledger) -> None:
    ledger.sync(*(ro.Provider(f"host{number}", "VCPU=4") for number in range(7)))
    pages = []
    stock = ledger.backend.list_providers

    def page(*args: object) -> object:
        found = stock(*args)  # type: ignore[arg-type]
        pages.append(len(found))
        return found

    with mock.patch.object(ledger.backend, "list_providers", page):
        listed = paged(ledger, 3).providers()
        assert next(listed).name == "host0"
        assert pages == [3]  # the rest is not read yet
        assert [one.name for one in listed] == [f"host{number}" for number in range(1, 7)]
    assert pages == [3, 3, 1]


def test_7_13b_the_allocations_of_a_provider_have_pages(ledger: ro.Ledger) -> None:
    _host(ledger, "VCPU=100")
    ledger.claim_all({f"job-{number}": {"host": "VCPU=1"} for number in range(7)})
    pages = []
    stock = ledger.backend.list_consumers

    def page(*args: object) -> object:
        found = stock(*args)  # type: ignore[arg-type]
        pages.append(len(found))
        return found

    with mock.patch.object(ledger.backend, "list_consumers", page):
        listed = paged(ledger, 3).consumers(provider="host")
        assert [one.name for one in listed] == [f"job-{number}" for number in range(7)]
    assert pages == [3, 3, 1]


def test_7_13c_many_providers_are_made_by_one_call(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("first"))  # the first write creates the file
    found = set()
    for count in (20, 60):
        hosts = [
            ro.Provider(
                f"host-{count}-{number}",
                "VCPU=4,MEMORY_MB=4,DISK_GB=4",
                traits=["HW_CPU_X86_AVX2", "COMPUTE_NODE"],
                aggregates=[f"rack{count}"],
            )
            for number in range(count)
        ]

        def sync(counted: ro.Ledger, hosts: list[ro.Provider] = hosts) -> None:
            assert counted.sync(*hosts).created == len(hosts)

        found.add(_count(ledger, sync))
    assert len(found) == 1
    assert found.pop() <= 30


def test_7_13d_whoever_asks_is_told_of_changes(ledger: ro.Ledger) -> None:
    before = ledger.feed.cursor()
    _host(ledger)
    ledger.claim("job", {"host": "VCPU=1"})
    ledger.release("job")
    found = ledger.feed.changes(before)
    after = found.cursor
    assert [(one.kind, one.subject) for one in found] == [
        ("define", "host"),
        ("claim", "job"),
        ("release", "job"),
    ]
    assert ledger.feed.changes(after) == Changes((), after)


def test_7_13e_who_has_an_inventory_is_told_with_its_use(ledger: ro.Ledger) -> None:
    _host(ledger, "CUSTOM_ROOM=1", "full")
    _host(ledger, "CUSTOM_ROOM=1", "empty")
    _host(ledger, "VCPU=1", "other")
    ledger.claim("job", {"full": "CUSTOM_ROOM=1"})
    having = {
        one.name: one.inventories["CUSTOM_ROOM"].free
        for one in ledger.providers()
        if "CUSTOM_ROOM" in one.inventories
    }
    assert having == {"full": 0, "empty": 1}
    assert [one.name for one in ledger.providers(room="CUSTOM_ROOM=1")] == ["empty"]


def test_7_13f_consumers_are_listed(ledger: ro.Ledger) -> None:
    _host(ledger)
    ledger.claim("job-1", {"host": "VCPU=1"}, project="one")
    ledger.claim("job-2", {"host": "VCPU=1"}, project="two")
    assert [one.name for one in ledger.consumers()] == ["job-1", "job-2"]
    assert [one.name for one in ledger.consumers(project="two")] == ["job-2"]


# --- 7.14: garbage ---


def test_7_14a_an_aggregate_goes_when_it_is_not_wanted(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host", "VCPU=1", aggregates=["rack"]))
    with raises_code("AggregateInUse"):
        ledger.names.aggregates.remove("rack")
    ledger.remove("host")
    ledger.names.aggregates.remove("rack")
    assert list(ledger.names.aggregates.list()) == []


def test_7_14b_projects_users_and_types_go_with_their_consumers(ledger: ro.Ledger) -> None:
    _host(ledger)
    ledger.claim("job", {"host": "VCPU=1"}, project="p", user="u", consumer_type="VM")
    ledger.release("job")
    for by in ("project", "user", "consumer_type"):
        assert list(ledger.totals(by)) == []
    url = _url(ledger)
    if url is not None:
        with databases.connect(sqlalchemy.make_url(url)) as connection:
            assert (
                connection.exec_driver_sql("SELECT COUNT(*) FROM consumers WHERE gone = 0").scalar()
                == 0
            )
            tables = sqlalchemy.inspect(connection).get_table_names()
        assert not {"projects", "users", "consumer_types"} & set(tables)


def test_7_14c_the_database_refuses_orphans_and_repetitions(ledger: ro.Ledger) -> None:
    _host(ledger)
    ledger.claim("job", {"host": "VCPU=1"})
    url = _url(ledger)
    if url is None:  # objects in a process, which nobody else writes to
        return
    again = (
        "INSERT INTO allocations (consumer_id, provider_id, class_id, position, used) "
        "SELECT consumer_id, provider_id, class_id, position, 1 FROM allocations"
    )
    orphan = again.replace("SELECT consumer_id", "SELECT consumer_id + 1000")
    elsewhere = again.replace(
        "provider_id, class_id, position, 1", "provider_id + 1000, class_id, position, 1"
    )
    with databases.connect(sqlalchemy.make_url(url)) as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        for statement in (again, orphan, elsewhere):
            with pytest.raises(sqlalchemy.exc.IntegrityError):
                connection.exec_driver_sql(statement)


# --- 8: defects ---


def test_8_1_candidates_that_differ_have_hashes_that_differ(ledger: ro.Ledger) -> None:
    for number in range(40):
        _host(ledger, name=f"host{number}")
    found = ledger.snapshot().candidates(ro.Request("VCPU=1"), limit=40)
    assert len({hash(one) for one in found}) == len(found) == 40


def test_8_2_every_candidate_can_be_claimed(ledger: ro.Ledger) -> None:
    host = ro.Provider("host")
    for number in range(2):
        host.add(f"host/gpu{number}", "PGPU=4")
    ledger.sync(host)
    ledger.claim("first", {"host/gpu0": "PGPU=2", "host/gpu1": "PGPU=3"})
    assert not ledger.snapshot().candidates(ro.Request("PGPU=4"))
    found = ledger.snapshot().candidates(ro.Request("PGPU=3"), limit=10)
    assert found
    for number, candidate in enumerate(found):
        ledger.claim(f"job-{number}", candidate)
        ledger.release(f"job-{number}")


def test_8_3_a_race_of_traits_is_told(ledger: ro.Ledger) -> None:
    test_7_10g_two_who_set_traits_at_the_same_time_are_told(ledger)


def test_8_4_nothing_is_kept_of_who_holds_nothing(ledger: ro.Ledger) -> None:
    test_7_10f_nothing_is_kept_of_who_holds_nothing(ledger)


def test_8_5a_inventories_that_cannot_be_are_refused(ledger: ro.Ledger) -> None:
    for figures in (
        {"total": 1, "reserved": 2, "allocation_ratio": "0.5"},
        {"total": 1, "reserved": 2, "allocation_ratio": "-1"},
        {"total": 1, "allocation_ratio": "0"},
        {"total": 1, "min_unit": 5, "max_unit": 2},
    ):
        with pytest.raises(exceptions.InvalidInput):
            ro.IntegerInventory(**figures)  # type: ignore[arg-type]


def test_8_5b_a_plan_with_an_inventory_that_cannot_be_is_refused(ledger: ro.Ledger) -> None:
    plan = ledger.diff(ro.Provider("host", "VCPU=1")).to_dict()
    (created,) = plan["definitions"]["creates"]
    (record,) = created["inventories"]
    record["reserved"] = 5
    with pytest.raises(exceptions.InvalidInput):
        ledger.apply(Plan.from_dict(plan))
    assert list(ledger.providers()) == []


def test_8_6_nothing_is_written_out_that_nobody_asked_for(ledger: ro.Ledger) -> None:
    from resource_objects.search import candidates

    for number in range(5):
        _host(ledger, name=f"host{number}")

    def never(self: object) -> str:
        raise AssertionError("a candidate was written out")

    with (
        mock.patch.object(candidates.Candidate, "__repr__", never),
        mock.patch.object(candidates.Candidate, "__str__", never),
    ):
        assert len(ledger.snapshot().candidates(ro.Request("VCPU=1"), limit=5)) == 5


def test_8_9_of_two_who_meet_one_is_given_what_is_there(ledger: ro.Ledger) -> None:
    _host(ledger)
    start = threading.Barrier(2)
    outcomes: list[bool] = []

    def claim(name: str) -> None:
        start.wait()
        try:
            ledger.claim(name, {"host": "VCPU=3"})
        except exceptions.CapacityException:
            outcomes.append(False)
        else:
            outcomes.append(True)

    threads = [threading.Thread(target=claim, args=(f"job-{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, True]
    assert ledger.usage()["host", "VCPU"].used == 3


def test_8_7_totals_are_told_by_type_of_consumer(ledger: ro.Ledger) -> None:
    _host(ledger, "VCPU=4,DISK_GB=4")
    ledger.claim("job-1", {"host": "VCPU=1,DISK_GB=2"}, project="p", consumer_type="VM")
    ledger.claim("job-2", {"host": "VCPU=2"}, project="p", consumer_type="VM")
    ledger.claim("job-3", {"host": "VCPU=1"}, project="p")
    told = [
        (one.group, one.resource_class, one.used, one.consumers)
        for one in ledger.totals("consumer_type", project="p")
    ]
    assert told == [("VM", "VCPU", 3, 2), ("VM", "DISK_GB", 2, 1), (None, "VCPU", 1, 1)]


def test_8_8_an_inventory_in_use_says_so(ledger: ro.Ledger) -> None:
    test_7_6c_an_inventory_in_use_says_so(ledger)
