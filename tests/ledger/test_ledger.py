"""The front door, in memory and on a SQLite file: claims, retries, operations, closing."""

from __future__ import annotations

import datetime
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import RetryPolicy, new_operation
from resource_objects.providers.reshape import Reshape
from resource_objects.testing.refusals import raises_code


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, sqlite_url: Callable[[str], str]) -> str:
    return "memory://" if request.param == "memory" else sqlite_url("ledger.db")


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    with ro.connect(url) as opened:
        yield opened


def _hosts(ledger: ro.Ledger, count: int = 2) -> None:
    for number in range(count):
        ledger.sync(ro.Provider(f"host{number}", "VCPU=4,MEMORY_MB=1024"))


# --- claiming ---


def test_the_first_candidate_is_taken(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    claim = ledger.claim("job", ledger.snapshot().candidates(ro.Request("VCPU=3")))
    assert str(claim) == "job holds VCPU=3 of host0"
    assert ledger.get_claim("job") == claim


def test_a_lost_race_takes_the_next_candidate(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    found = ledger.snapshot().candidates(ro.Request("VCPU=3"))
    ledger.claim("faster", {"host0": "VCPU=3"})
    assert ledger.claim("job", found).by_provider() == {"host1": ro.Amounts("VCPU=3")}


def test_when_all_candidates_are_gone_it_searches_again(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    found = ledger.snapshot().candidates(ro.Request("VCPU=3"))
    ledger.claim("faster", {"host0": "VCPU=3"})
    ledger.sync(ro.Provider("host9", "VCPU=4"))
    assert ledger.claim("job", found).by_provider() == {"host9": ro.Amounts("VCPU=3")}


def test_the_policy_bounds_how_often_it_searches_again(url: str) -> None:
    with ro.connect(url, retries=RetryPolicy(searches=0)) as ledger:
        _hosts(ledger, 1)
        found = ledger.snapshot().candidates(ro.Request("VCPU=3"))
        ledger.claim("faster", {"host0": "VCPU=3"})
        ledger.sync(ro.Provider("host9", "VCPU=4"))
        with pytest.raises(ro.CapacityException, match="host0: VCPU requested 3, free 1 of 4"):
            ledger.claim("job", found)
        with raises_code("ConsumerNotFound"):
            ledger.get_claim("job")


def test_a_search_that_found_nothing_cannot_be_claimed(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    found = ledger.snapshot().candidates(ro.Request("VCPU=5"))
    with pytest.raises(
        ro.NoCandidates, match="no candidate for job: host0: VCPU requested 5, free 4"
    ):
        ledger.claim("job", found)


def test_a_lost_race_is_refused_as_anything_that_does_not_fit(ledger: ro.Ledger) -> None:
    """Whoever handles one refusal handles all of them, and has the reasons as data."""
    _hosts(ledger)
    found = ledger.snapshot().candidates(ro.Request("VCPU=3"), limit=1)
    for number in range(2):
        ledger.claim(f"faster-{number}", {f"host{number}": "VCPU=3"})
    with pytest.raises(ro.CapacityException) as refusal:
        ledger.claim("job", found)
    assert isinstance(refusal.value, ro.NoCandidates)
    assert [(one.where, one.requested, one.free) for one in refusal.value.reasons] == [
        ("host0", 3, 1),
        ("host1", 3, 1),
    ]
    copied = pickle.loads(pickle.dumps(refusal.value))
    assert (str(copied), copied.reasons) == (str(refusal.value), refusal.value.reasons)


def test_one_candidate_may_be_claimed_by_itself(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    found = ledger.snapshot().candidates(ro.Request("VCPU=3"))
    assert ledger.claim("job", found[1]).by_provider() == {"host1": ro.Amounts("VCPU=3")}


@pytest.mark.law(2)
def test_a_claim_over_several_providers_is_all_or_nothing(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    before = ledger.usage()
    with pytest.raises(ro.CapacityException, match="host1: MEMORY_MB requested 2048"):
        ledger.claim("job", {"host0": "VCPU=1", "host1": "MEMORY_MB=2048"})
    assert ledger.usage() == before


def test_who_holds_something_does_not_claim_again(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=1"})
    with raises_code("ConsumerExists", match="job has allocations already"):
        ledger.claim("job", {"host0": "VCPU=1"})


@pytest.mark.law(3)
def test_releasing_restores_the_ledger(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    before = ledger.usage()
    ledger.claim("job", {"host0": "VCPU=1,MEMORY_MB=24", "host1": "VCPU=4"})
    released = ledger.release("job")
    assert released.state == "released"
    assert ledger.usage() == before
    with raises_code("ConsumerNotFound"):
        ledger.release("job")


# --- adjusting ---


def test_an_adjustment_changes_what_one_consumer_holds(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    ledger.adjust("job", {"host0": "VCPU=3"})
    held = ledger.adjust("job", {"host0": {"VCPU": -2}, "host1": "MEMORY_MB=64"})
    assert held.by_provider() == {
        "host0": ro.Amounts("VCPU=1"),
        "host1": ro.Amounts("MEMORY_MB=64"),
    }


def test_nobody_gives_back_what_another_holds(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=3"})
    with pytest.raises(ro.CapacityException, match="releases 1, only 0 used"):
        ledger.adjust("thief", {"host0": {"VCPU": -1}})
    assert ledger.usage()["host0", "VCPU"].used == 3


def test_a_consumer_that_holds_nothing_is_forgotten(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    ledger.adjust("job", {"host0": "VCPU=3"})
    ledger.adjust("job", {"host0": {"VCPU": -3}})
    with raises_code("ConsumerNotFound"):
        ledger.get_claim("job")


# --- operations ---


def test_a_repeated_write_happens_once(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    operation = new_operation()
    found = ledger.snapshot().candidates(ro.Request("VCPU=3"))
    first = ledger.claim("job", found, operation=operation)
    assert ledger.claim("job", found, operation=operation) == first
    assert ledger.usage()["host0", "VCPU"].used == 3
    again = new_operation()
    assert ledger.release("job", operation=again) == ledger.release("job", operation=again)


def test_an_operation_id_is_of_one_operation(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    operation = new_operation()
    ledger.claim("job", {"host0": "VCPU=1"}, operation=operation)
    with raises_code("OperationConflict", match=operation):
        ledger.claim("other", {"host0": "VCPU=1"}, operation=operation)
    with raises_code("OperationConflict"):
        ledger.release("job", operation=operation)
    assert ledger.usage()["host0", "VCPU"].used == 1


def test_an_operation_id_is_of_one_request(ledger: ro.Ledger) -> None:
    """As long as it is known: an operation keeps none, its consumer does until others write it."""
    _hosts(ledger)
    search = lambda asked: ledger.snapshot().candidates(asked)  # noqa: E731
    operation = new_operation()
    first = ledger.claim("job", search("VCPU=3"), operation=operation)
    for asked in (
        search("VCPU=2"),
        {"host0": "VCPU=2"},
        [*search("VCPU=2")],
        next(iter(search("VCPU=1"))),
    ):
        with raises_code("OperationConflict", match="claim of job, VCPU=3") as refused:
            ledger.claim("job", asked, operation=operation)
        assert refused.value.name == operation
        with raises_code("OperationConflict"):
            ledger.claim("job", asked, operation=operation, wait=datetime.timedelta(seconds=1))
    # the same, wherever it is
    for asked in (search("VCPU=3"), {"host1": "VCPU=3"}, [*search("VCPU=3")], []):
        assert ledger.claim("job", asked, operation=operation) == first
    ledger.renew("job", expires_in=datetime.timedelta(hours=1))
    assert ledger.claim("job", search("VCPU=2"), operation=operation).id == first.id
    ledger.release("job")
    assert ledger.claim("job", search("VCPU=2"), operation=operation).id == first.id


def test_an_operation_id_is_of_one_replacement_and_of_one_gang(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    one, other = new_operation(), new_operation()
    gang = {"a": {"host0": "VCPU=1"}, "b": {"host1": "VCPU=1"}}
    first = ledger.claim_all(gang, operation=one)
    assert ledger.claim_all(gang, operation=one) == first
    with raises_code("OperationConflict", match="claim of b, VCPU=1"):
        ledger.claim_all({**gang, "b": {"host1": "VCPU=2"}}, operation=one)
    done = ledger.replace("a", {"host0": "VCPU=2"}, operation=other)
    assert ledger.replace("a", {"host0": "VCPU=2"}, operation=other) == done
    with raises_code("OperationConflict", match="replace of a, VCPU=2"):
        ledger.replace("a", {"host0": "VCPU=1"}, operation=other)
    assert ledger.claim_all(gang, operation=one)[0].id == first[0].id


def test_a_repeated_claim_needs_no_candidates_any_more(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    operation, request = new_operation(), ro.Request("VCPU=4")
    first = ledger.claim("job", ledger.snapshot().candidates(request), operation=operation)
    # the acknowledgement was lost; who asks again finds the host full, by its own claim
    assert ledger.claim("job", ledger.snapshot().candidates(request), operation=operation) == first


def test_a_repeated_claim_is_known_by_its_id_and_not_by_names(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    operation = new_operation()
    ledger.claim("job", {"host0": "VCPU=1"}, operation=operation)
    uuid = ledger.provider("host0").uuid
    ledger.sync(ro.Provider("renamed", "VCPU=4,MEMORY_MB=1024", uuid=uuid))
    assert ledger.claim("job", {"host0": "VCPU=1"}, operation=operation).state == "held"
    assert ledger.usage()["renamed", "VCPU"].used == 1


def test_a_repeated_sync_or_removal_does_nothing_and_says_so(ledger: ro.Ledger) -> None:
    first, second = new_operation(), new_operation()
    assert ledger.sync(ro.Provider("host0", "VCPU=4"), operation=first)
    ledger.sync(ro.Provider("host0", "VCPU=8"))
    assert not ledger.sync(ro.Provider("host0", "VCPU=4"), operation=first)
    assert ledger.usage()["host0", "VCPU"].total == 8
    assert ledger.remove("host0", operation=second)
    assert not ledger.remove("host0", operation=second)
    assert not ledger.sync(ro.Provider("host0", "VCPU=4"), operation=first)
    with raises_code("InvalidName"):
        ledger.sync(ro.Provider("host1", "VCPU=4"), operation="5")


def test_a_claim_keeps_the_request_it_was_made_for(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    request = ro.Request("VCPU=1")
    claim = ledger.claim("job", ledger.snapshot().candidates(request))
    assert claim.request == ledger.get_claim("job").request == request
    assert ledger.release("job").request == request


# --- choosing ---


def test_candidates_may_be_chosen_by_the_caller(ledger: ro.Ledger) -> None:
    _hosts(ledger, 3)
    found = ledger.snapshot().candidates(ro.Request("VCPU=3"))
    ledger.claim("faster", {"host1": "VCPU=3"})
    assert "host2" in ledger.claim("job", found[1:]).by_provider()
    with pytest.raises(ro.CapacityException, match="host1"):
        ledger.claim("late", [one for one in found if one.host == "host1"])
    with pytest.raises(exceptions.InvalidInput):
        ledger.claim("late", [7])  # type: ignore[list-item]


def test_a_candidate_made_by_hand_names_its_provider(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    take = ro.Allocation(provider="host0", resource_class="VCPU", amount=ro.IntegerAmount(2))
    made = ro.Candidate(host="host0", allocations=(take,))
    assert ledger.claim("job", made).by_provider() == {"host0": ro.Amounts("VCPU=2")}
    elsewhere = ro.Candidate(host="gone", allocations=(take.replace(provider="gone"),))
    with raises_code("ProviderNotFound", match="gone"):
        ledger.claim("other", elsewhere)


def test_a_search_at_a_provider_stays_there_after_a_lost_race(ledger: ro.Ledger) -> None:
    _hosts(ledger)
    found = ledger.snapshot("host0").candidates(ro.Request("VCPU=3"))
    ledger.claim("faster", {"host0": "VCPU=3"})
    with pytest.raises(exceptions.NoCandidates, match="host0: VCPU requested 3, free 1 of 4"):
        ledger.claim("job", found)


def test_a_provider_is_found_by_its_uuid_however_it_is_spelt(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    uuid = ledger.provider("host0").uuid
    assert uuid is not None
    for spelt in (uuid, uuid.upper(), uuid.replace("-", "")):
        assert ledger.provider(spelt).name == "host0"
        assert ledger.usage(spelt)["host0", "VCPU"].total == 4
    assert str(ledger.claim("job", {uuid: "VCPU=1"})) == "job holds VCPU=1 of host0"


def test_a_uuid_is_no_name_of_another(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    uuid = ledger.provider("host0").uuid
    assert uuid is not None
    with raises_code("InvalidName"):
        ro.Provider(uuid, "VCPU=1")
    node = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"
    ledger.sync(ro.Provider(node, "VCPU=1", uuid=node))  # a name of its own uuid is clear
    assert ledger.provider(node).name == node


def test_unit_rules_bind_all_that_a_consumer_will_hold(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=8:min_unit=2:max_unit=4:step_size=2"))
    ledger.adjust("job", {"host0": "VCPU=4"})
    with raises_code("UnitRuleViolated", match="requested 6, one claim allocates at most 4"):
        ledger.adjust("job", {"host0": "VCPU=2"})
    ledger.adjust("job", {"host0": {"VCPU": -3}})  # giving back is bound by none
    ledger.adjust("job", {"host0": "VCPU=1"})
    with pytest.raises(ro.CapacityException, match="requested 7"):
        ledger.adjust("more", {"host0": "VCPU=7"})


# --- declaring ---


def test_unit_rules_do_not_bind_who_stands_for_many(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=4:max_unit=4:allocation_ratio=4"))
    for _ in range(4):
        ledger.adjust("everybody", {"host0": "VCPU=4"}, aggregate=True)
    with pytest.raises(ro.CapacityException, match="requested 1, free 0 of 16"):
        ledger.adjust("everybody", {"host0": "VCPU=1"}, aggregate=True)


def test_many_agents_that_make_the_same_host_all_succeed(ledger: ro.Ledger) -> None:
    failed: list[BaseException] = []

    def agent() -> None:
        try:
            ledger.sync(ro.Provider("host0", "VCPU=4"))
        except exceptions.ResourceObjectsError as error:
            failed.append(error)

    threads = [threading.Thread(target=agent) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert [root.name for root in ledger.trees()] == ["host0"]


@pytest.mark.law(1)
def test_who_read_a_tree_does_not_undo_what_came_since(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    read = ledger.provider("host0")
    grown = ledger.provider("host0")
    grown.add("host0/gpu", "PGPU=1")
    assert ledger.sync(grown).created == 1
    read.inventories["VCPU"].total = 8
    with raises_code("StaleDefinition", match="host0"):
        ledger.sync(read)
    assert ledger.provider("host0/gpu").name == "host0/gpu"


def test_who_read_a_tree_does_not_bring_back_what_was_removed(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    read = ledger.provider("host0")
    ledger.remove("host0")
    with raises_code("StaleDefinition", match="it was removed since it was read"):
        ledger.sync(read)


def test_a_new_provider_may_take_the_name_that_a_kept_one_gives_up(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0", "VCPU=4")
    host.add("host0/gpu", "PGPU=1")
    ledger.sync(host)
    read = ledger.provider("host0")
    read.find("host0/gpu").name = "host0/old"
    read.add("host0/gpu", "PGPU=2")
    assert ledger.sync(read).created == 1
    assert [one.name for one in ledger.provider("host0").walk()] == [
        "host0",
        "host0/gpu",
        "host0/old",
    ]


def test_what_is_used_does_not_go(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0", "VCPU=4")
    host.add("host0/gpu", "PGPU=1")
    ledger.sync(host)
    ledger.claim("job", {"host0/gpu": "PGPU=1"})
    with raises_code("ProviderInUse", match="host0/gpu"):
        ledger.sync(ro.Provider("host0", "VCPU=4"))
    with raises_code("ProviderInUse", match="host0/gpu"):
        ledger.remove("host0")
    with raises_code("InventoryInUse", match="PGPU"):
        changed = ro.Provider("host0", "VCPU=4")
        changed.add("host0/gpu", {})
        ledger.sync(changed)
    assert ledger.usage()["host0/gpu", "PGPU"].used == 1


def test_a_shrink_below_use_is_allowed_and_visible(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=4"))
    ledger.claim("job", {"host0": "VCPU=3"})
    ledger.sync(ro.Provider("host0", "VCPU=2"))
    usage = ledger.usage()
    assert [(use.provider, use.free) for use in usage.over_capacity] == [("host0", -1)]
    assert usage.consumers == {"job": {"VCPU": 3}}
    with pytest.raises(ro.CapacityException, match="VCPU requested 1, free -1 of 2"):
        ledger.claim("more", {"host0": "VCPU=1"})


def test_a_refusal_to_remove_names_the_consumers(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0", "VCPU=8,DISK_GB=10")
    host.add("host0/gpu", "PGPU=8")
    ledger.sync(host)
    for number in range(5):
        ledger.claim(f"job-{number}", {"host0/gpu": "PGPU=1"})
    ledger.claim("disk", {"host0": "DISK_GB=1"})
    ledger.claim("cpus", {"host0": "VCPU=1"})
    bare = ro.Provider("host0", "VCPU=8,DISK_GB=10")
    jobs = tuple(f"job-{number}" for number in range(5))
    for act in (
        lambda: ledger.remove("host0/gpu"),
        lambda: ledger.sync(bare),
        lambda: ledger.apply(ledger.diff(bare)),
        lambda: ledger.apply(ledger.diff(bare), dry_run=True),
        lambda: ledger.reshape(Reshape(remove=("host0/gpu",))),
        lambda: ledger.reshape(Reshape(remove=("host0/gpu",)), dry_run=True),
        lambda: ledger.snapshot().fork().remove("host0/gpu"),
    ):
        with raises_code("ProviderInUse") as refused:
            act()
        assert (refused.value.name, refused.value.consumers) == ("host0/gpu", jobs)
        assert str(refused.value).endswith("used by: job-0, job-1, job-2 and 2 more")
        copy = pickle.loads(pickle.dumps(refused.value))
        assert (str(copy), copy.consumers) == (str(refused.value), jobs)
    for change in (ledger.change, ledger.snapshot().fork().change):
        with raises_code("InventoryInUse") as kept:
            change("host0", inventories="VCPU=8")
        assert (kept.value.detail, kept.value.consumers) == ("DISK_GB", ("disk",))


def test_a_refusal_to_release_names_all_consumers_that_hold_nothing(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=8"))
    ledger.claim("job", {"host0": "VCPU=1"})
    with raises_code("ConsumerNotFound") as refused:
        ledger.release_all(["a", "job", "b", "c"])
    assert str(refused.value) == "a has no allocations in this ledger: neither does b nor c"
    assert ledger.get_claim("job")
    with raises_code("ConsumerNotFound", match=r"^a has no allocations in this ledger$"):
        ledger.release("a")


def test_inventories_without_a_class_that_parts_are_counted_in_are_refused_by_its_name(
    ledger: ro.Ledger,
) -> None:
    host = ro.Provider("host0", "VCPU=4,MEMORY_MB=1024,DISK_GB=10")
    cells = [ro.HostCell(n, shared=[2 * n, 2 * n + 1], memory_mb=512) for n in (0, 1)]
    host.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))
    ledger.sync(host)
    for wanted, missing in (("VCPU=4", "MEMORY_MB"), ("DISK_GB=5", "MEMORY_MB, VCPU")):
        with pytest.raises(exceptions.InvalidTree) as refused:
            ledger.change("host0", inventories=wanted)
        assert str(refused.value) == (
            f"inventories of host0: got '{wanted}', expected {missing} as well, "
            "since parts such as host0/numa0 are counted in it"
        )
    assert ledger.change("host0", inventories="VCPU=4,MEMORY_MB=1024")


def test_removing_takes_all_below_along(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0", "VCPU=4")
    host.add("host0/gpu", "PGPU=1")
    ledger.sync(host, ro.Provider("host1", "VCPU=4"))
    assert ledger.remove("host0").removed == 2
    assert [root.name for root in ledger.trees()] == ["host1"]
    with raises_code("ProviderNotFound"):
        ledger.remove("host0")


def test_a_name_of_another_tree_is_refused(ledger: ro.Ledger) -> None:
    host = ro.Provider("host0", "VCPU=4")
    host.add("shared", "PGPU=1")
    ledger.sync(host)
    other = ro.Provider("host1", "VCPU=4")
    other.add("shared", "PGPU=1")
    with raises_code("ProviderExists", match="shared"):
        ledger.sync(other)
    with raises_code("ProviderExists", match="in the tree of host0"):
        ledger.sync(ro.Provider("shared", "PGPU=1"))
    assert [root.name for root in ledger.trees()] == ["host0"]


def test_entities_carry_their_ledger(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    assert ledger.provider("host0").obj_context is ledger


@pytest.mark.law(4)
def test_threads_that_share_a_ledger_never_go_over(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "VCPU=10"))
    taken: list[str] = []

    def take(worker: int) -> None:
        for number in range(8):
            name = f"job-{worker}-{number}"
            try:
                ledger.claim(name, {"host0": "VCPU=1"})
            except ro.CapacityException:
                continue
            taken.append(name)

    threads = [threading.Thread(target=take, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 10
    assert sorted(ledger.usage().consumers) == sorted(taken)


# --- opening, closing, bad input ---


def test_two_ledgers_never_mix(tmp_path: Path) -> None:
    urls = ["memory://", "memory://", f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"]
    ledgers = [ro.connect(url) for url in urls]
    for number, ledger in enumerate(ledgers):
        ledger.sync(ro.Provider(f"host{number}", "VCPU=1"))
    for number, ledger in enumerate(ledgers):
        assert [root.name for root in ledger.trees()] == [f"host{number}"]
        ledger.close()


def test_a_closed_ledger_says_so(ledger: ro.Ledger) -> None:
    ledger.close()
    ledger.close()
    with raises_code("LedgerClosed"):
        ledger.snapshot()
    with raises_code("LedgerClosed"):
        ledger.claim("job", {"host0": "VCPU=1"})


@pytest.mark.parametrize(
    "bad", ["", "lab.db", "memory://x", None, 7, "sqlite://", "sqlite:///", "sqlite:///\0a"]
)
def test_what_is_no_url_is_refused(bad: object) -> None:
    with raises_code("InvalidURL"):
        ro.connect(bad)  # type: ignore[arg-type]


def test_an_unknown_backend_names_the_known_ones() -> None:
    with raises_code("BackendNotFound", match=r"oracle .*: installed: .*sqlite"):
        ro.connect("oracle://db/lab")


@pytest.mark.parametrize("tree", ["host0", None, 7, [ro.Provider("host0")]])
def test_what_is_no_tree_is_not_synced(ledger: ro.Ledger, tree: object) -> None:
    with pytest.raises(exceptions.InvalidTree):
        ledger.sync(tree)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [[], {}, 7, None, "", " x"])
def test_what_is_no_key_finds_nothing(ledger: ro.Ledger, key: object) -> None:
    with raises_code("InvalidName"):
        ledger.provider(key)  # type: ignore[arg-type]
    with raises_code("InvalidName"):
        ledger.remove(key)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["host0", ("host0", "DISK_GB"), ("host9", "VCPU"), None])
def test_what_is_not_used_here_is_named(ledger: ro.Ledger, key: object) -> None:
    _hosts(ledger, 1)
    with raises_code("InvalidName", match="usage: got"):
        ledger.usage()[key]  # type: ignore[index]


@pytest.mark.parametrize("policy", [(-1, 5), ("x", 5), (3, True), (3, 1.0)])
def test_a_policy_has_counts(policy: tuple[int, int]) -> None:
    with raises_code("InvalidField"):
        RetryPolicy(*policy)
    with raises_code("InvalidField"):
        ro.connect(retries=policy)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "found",
    [None, 7, "VCPU=1", [], {}, {"host0": ""}, {"host0": "VCPU=0"}, {"host0": {"VCPU": -1}}],
)
def test_what_cannot_be_claimed_is_refused(ledger: ro.Ledger, found: object) -> None:
    _hosts(ledger, 1)
    before = ledger.usage()
    with pytest.raises(exceptions.InvalidInput):
        ledger.claim("job", found)  # type: ignore[arg-type]
    assert ledger.usage() == before


@pytest.mark.parametrize("name", ["", " x", "x\n", None, 7, "x" * 256])
def test_a_consumer_has_a_name(ledger: ro.Ledger, name: object) -> None:
    _hosts(ledger, 1)
    with raises_code("InvalidName"):
        ledger.claim(name, {"host0": "VCPU=1"})  # type: ignore[arg-type]
    with raises_code("InvalidName"):
        ledger.release(name)  # type: ignore[arg-type]


def test_an_unknown_provider_or_class_is_named(ledger: ro.Ledger) -> None:
    _hosts(ledger, 1)
    with raises_code("ProviderNotFound", match="host9"):
        ledger.claim("job", {"host9": "VCPU=1"})
    with raises_code("InventoryNotFound", match="host0: FPGA requested 1, there is none"):
        ledger.claim("job", {"host0": "FPGA=1"})
    with raises_code("UnknownResourceClass", match="CPU"):
        ledger.claim("job", {"host0": "CPU=1"})
    with raises_code("ProviderNotFound"):
        ledger.usage("host9")
