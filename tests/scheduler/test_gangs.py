"""Gangs placed on a ledger: alternatives, races, and what is left behind."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers import ServerGroup
from resource_objects.requests import Gang, Member
from resource_objects.scheduler import HostState, HostStates, RequestSpec, Scheduler
from resource_objects.scheduler.gangs import PlacedGang, levels_of, place_gang
from resource_objects.testing.refusals import raises_code


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, sqlite_url: Callable[[str], str]) -> str:
    return "memory://" if request.param == "memory" else sqlite_url("gangs.db")


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    """Two racks of two hosts, four CPUs each."""
    with ro.connect(url) as opened:
        for rack in ("r0", "r1"):
            opened.names.aggregates.ensure(rack, level="rack")
            for number in range(2):
                opened.sync(ro.Provider(f"{rack}-{number}", "VCPU=4", aggregates=[rack]))
        opened.names.aggregates.ensure("everything")
        yield opened


def workers(count: int, cpus: int = 2, **places: str) -> Gang:
    return Gang([Member("worker", f"VCPU={cpus}", count)], **places)


def test_levels_are_read_from_the_ledger(ledger: ro.Ledger) -> None:
    assert levels_of(ledger) == {"rack": ["r0", "r1"]}


def test_a_gang_is_claimed_in_one_place(ledger: ro.Ledger) -> None:
    placed = place_gang(ledger, workers(4, together="rack"), "job", user="ann")
    assert list(placed.claims) == [f"worker-{n}" for n in range(4)]
    held = {one.name: one.user for one in ledger.consumers()}
    assert held == {f"job/worker-{n}": "ann" for n in range(4)}
    hosts = {one.provider for claim in placed.claims.values() for one in claim.allocations}
    assert hosts == {"r0-0", "r0-1"}
    with raises_code("ConsumerExists"):
        place_gang(ledger, workers(2), "job")


def test_the_first_alternative_that_fits_is_taken(ledger: ro.Ledger) -> None:
    wanted = [workers(5, together="rack"), workers(5), workers(1)]
    placed = place_gang(ledger, wanted, "job")
    assert (placed.alternative, len(placed.claims)) == (1, 5)


def test_a_dry_run_claims_nothing(ledger: ro.Ledger) -> None:
    placed = place_gang(ledger, workers(2))
    assert not placed.claims
    assert set(placed.fit.candidates) == {"worker-0", "worker-1"}
    assert not list(ledger.consumers())


def test_what_each_alternative_lacks_is_told(ledger: ro.Ledger) -> None:
    with pytest.raises(exceptions.NoCandidates) as refused:
        place_gang(ledger, [workers(9), workers(5, together="rack")], "job")
    assert str(refused.value).splitlines()[1:] == [
        "worker requested 9, fits 8 (VCPU requested 18, free 16)",
        "rack r0: worker requested 5, fits 4 (VCPU requested 10, free 8)",
    ]
    with raises_code("InvalidRequest", match="at least one gang"):
        place_gang(ledger, [], "job")
    with raises_code("InvalidRequest", match="'row'"):
        place_gang(ledger, workers(1, together="row"), "job")


def test_who_was_faster_leads_to_another_place(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_all, seen = ledger.claim_all, []

    def faster(*args: object, **said: object) -> object:
        if not seen:
            seen.append(1)
            ledger.claim("faster", {"r0-0": "VCPU=3"})
        return claim_all(*args, **said)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "claim_all", faster)
    placed = place_gang(ledger, workers(4, together="rack"), "job")
    hosts = {one.provider for claim in placed.claims.values() for one in claim.allocations}
    assert hosts == {"r1-0", "r1-1"}


def test_gangs_at_once_are_whole_or_not_there(ledger: ro.Ledger) -> None:
    """Four threads want half of the fleet each: two get it, nobody gets a part."""
    refused: list[str] = []

    def place(name: str) -> None:
        try:
            place_gang(ledger, workers(4, together="rack"), name)
        except exceptions.CapacityException:
            refused.append(name)

    threads = [threading.Thread(target=place, args=(f"job-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 2
    assert len(list(ledger.consumers())) == 8
    assert all(one.free == 0 for one in ledger.usage())


def test_a_scheduler_places_a_gang_by_its_filters(ledger: ro.Ledger) -> None:
    scheduler = Scheduler(ledger, order="spread")
    placed = scheduler.place_gang(
        workers(2, together="rack"), "job", ignored=["r0-0", "r0-1"], project="p"
    )
    hosts = {one.provider for claim in placed.claims.values() for one in claim.allocations}
    assert hosts <= {"r1-0", "r1-1"}
    assert {one.project for one in ledger.consumers()} == {"p"}
    with pytest.raises(exceptions.NoCandidates):
        scheduler.place_gang(workers(5), "other", only=["r0-0", "r0-1"])
    with raises_code("InvalidRequest", match="at least one gang"):
        scheduler.place_gang([])


# --- by a scheduler, for each member ------------------------------------------------------------


def hosts_of(placed: PlacedGang) -> dict[str, str]:
    return {name: one.host for name, one in placed.fit.candidates.items()}


class Small:
    """Refuses whoever asks for more than 2 CPUs on hosts of rack r0."""

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        cpus = max(int(amount) for _, amount in spec.resources.by_name())
        return "is for small ones" if cpus > 2 and host.name.startswith("r0") else None


class Alone:
    """Refuses hosts on which somebody is."""

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        return f"{len(host.consumers)} are there" if host.consumers else None


class Half:
    """Lets half of the CPUs of each host be used."""

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        return None

    def limits(self, hosts: HostStates, spec: RequestSpec) -> dict[str, Any]:
        return {"VCPU": hosts.capacity("VCPU") // 2}


class Broken:
    """Fails on every host."""

    def refuses(self, host: HostState, spec: RequestSpec) -> str | None:
        raise RuntimeError("no file")


def test_each_member_is_filtered_by_what_it_asks(ledger: ro.Ledger) -> None:
    members = [Member("small", "VCPU=2"), Member("big", "VCPU=3", count=2)]
    placed = Scheduler(ledger, filters=[Small()]).place_gang(Gang(members), "job")
    found = hosts_of(placed)
    assert found["small"][:2] == "r0"
    assert {found["big-0"], found["big-1"]} == {"r1-0", "r1-1"}


def test_filters_see_the_members_before(ledger: ro.Ledger) -> None:
    scheduler = Scheduler(ledger, filters=[Alone()])
    placed = scheduler.place_gang(workers(4, cpus=1), "job")
    assert sorted(hosts_of(placed).values()) == ["r0-0", "r0-1", "r1-0", "r1-1"]
    with pytest.raises(exceptions.NoCandidates) as refused:
        scheduler.place_gang(workers(1, cpus=1), "other")
    assert str(refused.value) == (
        "no place for the gang:\nworker requested 1, fits 0 (filter Alone: 4 -> 0 hosts)"
    )
    assert {(one.where, one.filter, one.unit) for one in refused.value.reasons} == {
        (f"r{rack}-{number}", "Alone", "1 are there") for rack in (0, 1) for number in (0, 1)
    }
    for name in hosts_of(placed):
        ledger.release(f"job/{name}")
    with pytest.raises(exceptions.NoCandidates, match="worker requested 5, fits 4"):
        scheduler.place_gang(workers(5, cpus=1), "job")


def test_a_gang_is_claimed_under_the_limits_of_filters(ledger: ro.Ledger) -> None:
    scheduler = Scheduler(ledger, filters=[Half()])
    placed = scheduler.place_gang(workers(4), "job")
    assert sorted(hosts_of(placed).values()) == ["r0-0", "r0-1", "r1-0", "r1-1"]
    with pytest.raises(exceptions.NoCandidates, match="worker requested 1, fits 0"):
        scheduler.place_gang(workers(1, cpus=1), "other")


def test_a_group_of_members_is_kept(ledger: ro.Ledger) -> None:
    scheduler = Scheduler(ledger)
    ledger.claim("db-1", {"r0-1": "VCPU=1"})
    apart = ServerGroup("db", "anti-affinity", ["db-1"])
    placed = scheduler.place_gang(workers(3, cpus=1), "apart", group=apart)
    assert sorted(hosts_of(placed).values()) == ["r0-0", "r1-0", "r1-1"]
    with pytest.raises(exceptions.NoCandidates, match="fits 0"):
        members = ["db-1", *(f"apart/worker-{n}" for n in range(3))]
        scheduler.place_gang(
            workers(1, cpus=1), "more", group=ServerGroup("db", "anti-affinity", members)
        )
    two = ServerGroup("db", "anti-affinity", ["db-1"], max_per_host=2)
    spread = scheduler.place_gang(workers(7, cpus=1), group=two)
    counts = Counter(hosts_of(spread).values())
    assert counts == {"r0-0": 2, "r0-1": 1, "r1-0": 2, "r1-1": 2}
    beside = ServerGroup("db", "affinity", ["db-1"])
    placed = scheduler.place_gang(workers(3, cpus=1), "beside", group=beside)
    assert set(hosts_of(placed).values()) == {"r0-1"}
    with pytest.raises(exceptions.NoCandidates):
        scheduler.place_gang(workers(1, cpus=1), "too-many", group=beside)
    new = ServerGroup("web", "affinity")
    placed = scheduler.place_gang(workers(3, cpus=1, together="rack"), "web", group=new)
    assert len(set(hosts_of(placed).values())) == 1


def test_who_joins_the_group_before_the_picture_is_taken_is_in_it(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.groups.ensure("db", "anti-affinity")
    snapshot, seen = ledger.snapshot, []

    def later(*given: Any) -> Any:
        if not seen:
            seen.append(ledger.claim("other", {"r0-0": "VCPU=1"}, group="db"))
        return snapshot(*given)

    monkeypatch.setattr(ledger, "snapshot", later)
    placed = Scheduler(ledger).place_gang(workers(2, cpus=1), "job", group="db")
    assert sorted(hosts_of(placed).values()) == ["r0-1", "r1-0"]


@pytest.mark.parametrize("consumers", [None, "job"])
def test_each_alternative_is_asked_for_all_of_its_own_members(consumers: str | None) -> None:
    one, many = Member("x", "VCPU=1"), [Member("x", "VCPU=1", count) for count in (4, 3)]
    alternatives = [Gang([one, Member("y", "VCPU=1000")]), *(Gang([each]) for each in many)]
    with ro.connect() as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=100"))
        ledger.groups.ensure("db", "anti-affinity", max_per_host=4)
        ledger.claim("e0", {"host0": "VCPU=1"}, group="db")
        placed = Scheduler(ledger).place_gang(alternatives, consumers, group="db")
        assert placed.alternative == 2
        assert hosts_of(placed) == {f"x-{number}": "host0" for number in range(3)}


def test_where_no_alternative_fits_the_filters_of_each_are_told(ledger: ro.Ledger) -> None:
    scheduler = Scheduler(ledger, filters=[Small(), Alone()])
    alternatives = [Gang([Member("big", "VCPU=3", 3)]), Gang([Member("small", "VCPU=1", 5)])]
    with pytest.raises(exceptions.NoCandidates) as refused:
        scheduler.place_gang(alternatives, "job")
    assert "big requested 3, fits 2" in str(refused.value)
    assert "small requested 5, fits 4" in str(refused.value)
    assert ("r0-0", "is for small ones") in {
        (reason.where, reason.unit) for reason in refused.value.reasons
    }


def test_the_traits_of_an_image_are_asked_of_every_member(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("fast", "VCPU=4", traits=["CUSTOM_FAST"]))
    scheduler = Scheduler(ledger)
    placed = scheduler.place_gang(workers(2), "job", image_traits=["CUSTOM_FAST"])
    assert set(hosts_of(placed).values()) == {"fast"}
    with pytest.raises(exceptions.NoCandidates, match="fits 0"):
        scheduler.place_gang(workers(1), "other", image_traits=["CUSTOM_FAST"])


def test_a_filter_that_fails_is_told_of(ledger: ro.Ledger) -> None:
    skipping = Scheduler(ledger, filters=[Broken()], on_error="skip")
    placed = skipping.place_gang(workers(2), "job")
    assert list(placed.skipped) == ["Broken"]
    assert "no file" in placed.skipped["Broken"]
    with pytest.raises(exceptions.FilterFailed):
        Scheduler(ledger, filters=[Broken()]).place_gang(workers(2), "other")


def test_a_gang_by_product_is_refused_by_how_many_there_are(ledger: ro.Ledger) -> None:
    for name in ("lab-0", "lab-1"):
        made = ro.Provider(name, "VCPU=4")
        cards = [
            ro.Device(f"0000:0{bus}:00.0", "10de", product, resource_class="PGPU")
            for bus, product in enumerate(("aaaa", "bbbb"))
        ]
        made.add_parts("DEVICES", ro.PCIInventory(cards))
        ledger.sync(made)
    wanted = ro.Request({"DEVICES": ro.devices("10de:bbbb")})
    three, two = (Gang([Member("m", wanted, count)]) for count in (3, 2))
    with pytest.raises(exceptions.NoCandidates, match="m requested 3, fits 2"):
        Scheduler(ledger).place_gang(three, "job")
    placed = Scheduler(ledger).place_gang([three, two], "job")
    assert placed.alternative == 1
    assert hosts_of(placed) == {"m-0": "lab-0", "m-1": "lab-1"}
