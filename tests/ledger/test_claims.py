"""Taking, giving back, moving, expiring: what consumers hold, and what is demanded of it."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host import partitions
from resource_objects.ledger import RetryPolicy, new_operation
from resource_objects.ledger.feed import snapshot_in_place, unused_snapshot
from resource_objects.providers import Allocation, Claim, Provider
from resource_objects.providers.orders import Write
from resource_objects.testing.refusals import raises_code
from tests.ledger.conftest import by_consumer, paged

HOUR = datetime.timedelta(hours=1)
NOW = datetime.datetime.now(datetime.UTC)


def taken(provider: str, kind: str, amount: int, *units: str) -> Allocation:
    return Allocation(
        provider=provider, resource_class=kind, amount=ro.IntegerAmount(amount), units=units
    )


def hosts(ledger: ro.Ledger, count: int = 2, inventories: str = "VCPU=4") -> None:
    ledger.sync(*(Provider(f"host{number}", inventories) for number in range(count)))


def found(ledger: ro.Ledger, request: str = "VCPU=2") -> Any:
    return ledger.snapshot().candidates(ro.Request(request))


def places(claim: Claim) -> list[str]:
    return list(claim.by_provider())


def committing(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch, kind: str, *before: Callable[[], object]
) -> list[Write]:
    """Let each of some calls happen before a write of a kind; return the writes of that kind."""
    commit, waiting, seen = ledger.backend.commit, list(before), []

    def late(write: Write) -> Any:
        if write.kind == kind:
            seen.append(write)
            if waiting:
                waiting.pop(0)()
        return commit(write)

    monkeypatch.setattr(ledger.backend, "commit", late)
    return seen


# --- what a claim says ---


def test_a_claim_keeps_who_and_until_when(ledger: ro.Ledger) -> None:
    hosts(ledger)
    claim = ledger.claim(
        "job", found(ledger), project="p", user="u", consumer_type="vm", expires_in=HOUR
    )
    assert (claim.project, claim.user, claim.consumer_type) == ("p", "u", "vm")
    assert claim.expires_at is not None
    assert HOUR - datetime.timedelta(minutes=1) < claim.expires_at - NOW < 2 * HOUR
    assert claim.generation is not None
    assert ledger.get_claim("job") == claim


def test_a_moment_is_kept_in_utc(ledger: ro.Ledger) -> None:
    hosts(ledger)
    at = datetime.datetime(2030, 1, 1, 2, tzinfo=datetime.timezone(2 * HOUR))
    claim = ledger.claim("job", {"host0": "VCPU=1"}, expires_at=at)
    assert claim.expires_at == at
    assert str(claim.expires_at) == "2030-01-01 00:00:00+00:00"


@pytest.mark.law(8)
@pytest.mark.parametrize(
    "bad",
    [
        {"expires_at": datetime.datetime(2030, 1, 1)},
        {"expires_at": "2030-01-01"},
        {"expires_in": datetime.timedelta(0)},
        {"expires_in": datetime.timedelta.max},
        {"expires_in": 60},
        {"expires_in": HOUR, "expires_at": NOW},
        {"project": ""},
        {"user": 7},
        {"consumer_type": " x"},
        {"if_generation": 1},
        {"if_generation": {"host0": "1"}},
        {"if_generation": True},  # nobody says which definitions: nothing was searched
    ],
)
def test_what_cannot_be_said_of_a_claim_is_refused(ledger: ro.Ledger, bad: Any) -> None:
    hosts(ledger)
    with pytest.raises(exceptions.InvalidInput):
        ledger.claim("job", {"host0": "VCPU=1"}, **bad)
    with raises_code("ConsumerNotFound"):
        ledger.get_claim("job")


def test_allocations_are_taken_with_their_units(ledger: ro.Ledger) -> None:
    hosts(ledger, 1, "PGPU=2,VCPU=4")
    ledger.claim("job", [taken("host0", "PGPU", 1, "gpu1"), taken("host0", "VCPU", 2)])
    assert [one.units for one in ledger.get_claim("job").allocations] == [("gpu1",), ()]
    with raises_code("UnitTaken", match="gpu1, which is allocated"):
        ledger.claim("other", [taken("host0", "PGPU", 1, "gpu1")])
    ledger.release("job")
    assert ledger.claim("other", [taken("host0", "PGPU", 1, "gpu1")])


def test_what_one_holds_another_can_be_given(ledger: ro.Ledger) -> None:
    hosts(ledger, 1, "PGPU=2")
    first = ledger.claim("job", [taken("host0", "PGPU", 1, "gpu1")])
    ledger.release("job")
    assert ledger.claim("other", first).allocations == first.allocations


@pytest.mark.parametrize("bad", [[], [taken("host0", "VCPU", -1)], [7], "host0", {"host0": {}}])
def test_what_is_no_claim_is_refused(ledger: ro.Ledger, bad: Any) -> None:
    hosts(ledger)
    for take in (ledger.claim, ledger.replace):
        with pytest.raises(exceptions.InvalidInput):
            take("job", bad)


# --- unchanged definitions ---


def test_a_candidate_may_demand_the_definitions_it_was_found_at(ledger: ro.Ledger) -> None:
    hosts(ledger)
    old = found(ledger)
    ledger.change("host0", traits=["CUSTOM_BROKEN"])
    assert places(ledger.claim("calm", old[0])) == ["host0"]
    ledger.release("calm")
    with raises_code("StaleDefinition"):
        ledger.claim("job", old[0], if_generation=True)
    # of several, the next one; of a search, one that is found afresh
    assert places(ledger.claim("job", old, if_generation=True)) == ["host1"]
    again = ledger.claim("more", found(ledger), if_generation=True)
    assert places(again) == ["host0"]


def test_traits_of_who_is_above_count_too(ledger: ro.Ledger) -> None:
    host = Provider("host0", traits=["CUSTOM_A"])
    host.add("host0/gpu", "PGPU=1")
    ledger.sync(host)
    old = ledger.snapshot().candidates(ro.Request("PGPU=1", required=["CUSTOM_A"]))
    ledger.change("host0", traits=[])
    with raises_code("StaleDefinition", match="host0"):
        ledger.claim("job", old[0], if_generation=True)


def test_whoever_decides_elsewhere_says_which_definitions(ledger: ro.Ledger) -> None:
    hosts(ledger)
    host = ledger.provider("host0")
    assert ledger.claim("job", {"host0": "VCPU=1"}, if_generation={"host0": host.generation or 0})
    ledger.change("host0", traits=["CUSTOM_A"])
    for key in ("host0", host.uuid):
        with raises_code("StaleDefinition"):
            ledger.claim("x", {"host1": "VCPU=1"}, if_generation={key: host.generation or 0})  # type: ignore[dict-item]
    with raises_code("ProviderNotFound"):
        ledger.claim("x", {"host1": "VCPU=1"}, if_generation={"host9": 0})


# --- several at once ---


@pytest.mark.law(2, 6)
def test_several_take_at_once_each_where_there_is_room(ledger: ro.Ledger) -> None:
    hosts(ledger, 3)
    claims = by_consumer(
        ledger.claim_all(
            {f"job-{n}": found(ledger) for n in range(6)}, project="gang", expires_in=HOUR
        )
    )
    assert {name: places(claim) for name, claim in claims.items()} == {
        f"job-{n}": [f"host{n // 2}"] for n in range(6)
    }
    assert {claim.project for claim in claims.values()} == {"gang"}
    assert claims["job-5"] == ledger.get_claim("job-5")
    assert all(use.free == 0 for use in ledger.usage())


def test_a_gang_of_candidates_is_placed_in_few_writes(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts(ledger, 5)
    searched = found(ledger)
    seen = committing(ledger, monkeypatch, "claim")
    ledger.claim_all({f"job-{n}": searched for n in range(10)})
    assert len(seen) <= 5


@pytest.mark.law(2)
def test_several_take_together_or_none_does(ledger: ro.Ledger) -> None:
    hosts(ledger)
    before = ledger.usage()
    with pytest.raises(exceptions.CapacityException):
        ledger.claim_all({f"job-{n}": found(ledger) for n in range(5)})
    with pytest.raises(exceptions.CapacityException):
        ledger.claim_all({"a": {"host0": "VCPU=3"}, "b": {"host0": "VCPU=2"}})
    ledger.claim("job-1", {"host1": "VCPU=1"})
    with raises_code("ConsumerExists", match="job-1"):
        ledger.claim_all({"job-0": found(ledger), "job-1": found(ledger)})
    ledger.release("job-1")
    assert ledger.usage() == before


def test_a_gang_goes_around_who_is_gone_or_changed(ledger: ro.Ledger) -> None:
    hosts(ledger, 3)
    old = found(ledger, "VCPU=4")
    ledger.remove("host0")
    ledger.change("host1", traits=["CUSTOM_A"])
    claims = by_consumer(ledger.claim_all({"a": old}, if_generation=True))
    assert places(claims["a"]) == ["host2"]
    with raises_code("StaleDefinition", "ProviderNotFound"):
        ledger.claim_all({"b": old[:2]}, if_generation=True)


def test_a_gang_shares_what_is_above_it(ledger: ro.Ledger) -> None:
    """A refusal that names the host a cell shares with leads to the next candidate."""
    for number in range(3):
        host = Provider(f"host{number}", "VCPU=2")
        share = ro.Share(resource_class="VCPU", of=f"host{number}", of_class="VCPU")
        host.add(f"host{number}/cell", "VCPU=4", shares=[share])
        ledger.sync(host)
    ways = [
        ro.Candidate(host=f"host{n}", allocations=(taken(f"host{n}/cell", "VCPU", 2),))
        for n in range(3)
    ]
    claims = by_consumer(ledger.claim_all(dict.fromkeys(["a", "b", "c"], ways)))
    assert sorted(places(claim)[0] for claim in claims.values()) == [
        "host0/cell",
        "host1/cell",
        "host2/cell",
    ]


def cells(ledger: ro.Ledger, hosts: int, factor: int = 1) -> None:
    """Make hosts of 2, each with a cell of 4 that uses it."""
    for number in range(hosts):
        host = Provider(f"host{number}", "VCPU=2")
        share = ro.Share(resource_class="VCPU", of=f"host{number}", of_class="VCPU", factor=factor)
        host.add(f"host{number}/cell", "VCPU=4", shares=[share])
        ledger.sync(host)


def ways(*wanted: tuple[str, int, str]) -> list[ro.Candidate]:
    """Return a candidate for each (provider, amount, unit); no unit if that is empty."""
    return [
        ro.Candidate(
            host=provider.partition("/")[0],
            allocations=(taken(provider, "VCPU", amount, *([unit] if unit else [])),),
        )
        for provider, amount, unit in wanted
    ]


def test_a_gang_learns_what_is_free_through_shares_at_once(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells(ledger, 12)
    both = ways(*((f"host{n}/cell", 1, "") for n in range(12)))
    seen = committing(ledger, monkeypatch, "claim")
    claims = by_consumer(ledger.claim_all({f"job-{n}": both for n in range(24)}))
    assert len(seen) == 2
    assert [use.free for use in ledger.usage() if "/" not in use.provider] == [0] * 12
    assert places(claims["job-0"]) == places(claims["job-1"]) == ["host0/cell"]


def test_a_gang_counts_what_is_taken_beside_a_share(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells(ledger, 2, factor=2)
    seen = committing(ledger, monkeypatch, "claim")
    claims = by_consumer(
        ledger.claim_all(
            {
                "a": ways(("host0", 1, "")),
                "b": ways(("host0/cell", 1, ""), ("host1/cell", 1, "")),
                "c": ways(("host0/cell", 1, ""), ("host0", 1, "")),
            }
        )
    )
    assert [places(claims[name])[0] for name in "abc"] == ["host0", "host1/cell", "host0"]
    assert len(seen) == 2


def test_a_gang_learns_from_who_is_faster(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts(ledger, 3)
    ledger.claim("old", {"host0": "VCPU=4"})
    all_of_them = found(ledger, "VCPU=2")
    every = ways(*((f"host{n}", 2, "") for n in range(3)))

    def faster() -> None:
        ledger.adjust("old", {"host1": "VCPU=3"})

    seen = committing(ledger, monkeypatch, "claim", lambda: None, faster)
    claims = by_consumer(ledger.claim_all({"a": every, "b": all_of_them}))
    assert [places(claims[name]) for name in "ab"] == [["host2"], ["host2"]]
    assert len(seen) == 3


def test_units_of_a_gang_are_its_own(ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts(ledger, 1, "VCPU=4")
    ledger.claim("old", [taken("host0", "VCPU", 1, "cpu0")])
    every = ways(*(("host0", 1, f"cpu{n}") for n in range(4)))
    seen = committing(ledger, monkeypatch, "claim")
    claims = by_consumer(ledger.claim_all(dict.fromkeys("abc", every)))
    assert [claims[name].allocations[0].units for name in "abc"] == [
        ("cpu1",),
        ("cpu2",),
        ("cpu3",),
    ]
    assert len(seen) <= 4
    with raises_code("UnitTaken"):
        ledger.release_all(["a", "b"])
        ledger.claim_all(dict.fromkeys("ab", ways(("host0", 1, "cpu1"))))


def test_amounts_that_no_rule_allows_are_gone_around(ledger: ro.Ledger) -> None:
    ledger.sync(Provider("host0", "VCPU=9:max_unit=2"), Provider("host1", "VCPU=9"))
    every = ways(("host0", 3, ""), ("host1", 3, ""))
    claims = by_consumer(ledger.claim_all(dict.fromkeys("ab", every)))
    assert [places(claims[name]) for name in "ab"] == [["host1"], ["host1"]]


def test_who_decides_elsewhere_leaves_room_for_a_gang(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Providers are known by name or uuid, whichever way they are said."""
    hosts(ledger, 2)
    uuid = ledger.provider("host0").uuid or ""
    seen = committing(ledger, monkeypatch, "claim")
    claims = by_consumer(
        ledger.claim_all(
            {"a": {uuid: "VCPU=3"}, "b": {"host0": "VCPU=1"}, "c": found(ledger, "VCPU=2")}
        )
    )
    assert [places(claims[name]) for name in "abc"] == [["host0"], ["host0"], ["host1"]]
    assert len(seen) == 2
    with pytest.raises(exceptions.CapacityException, match="host0"):
        ledger.claim_all({"d": {uuid: "VCPU=1"}, "e": found(ledger, "VCPU=1")})


@pytest.mark.parametrize("take", ["claim", "replace", "claim_all", "move"])
def test_a_generation_that_is_demanded_is_not_asked_for_again(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch, take: str
) -> None:
    """It never comes back, so that another way cannot help."""
    hosts(ledger, 3)
    ledger.claim("held", {"host2": "VCPU=1"})
    ledger.change("host2", traits=["CUSTOM_A"])
    seen = committing(ledger, monkeypatch, "claim" if take == "claim_all" else take)
    given: Any = ("held", found(ledger)) if take == "move" else ("job", found(ledger))
    with raises_code("StaleDefinition", match="host2"):
        if take == "claim_all":
            ledger.claim_all({"job": found(ledger)}, if_generation={"host2": 0})
        else:
            getattr(ledger, take)(*given, if_generation={"host2": 0})
    assert len(seen) == 1


def test_a_gang_that_is_none_is_refused(ledger: ro.Ledger) -> None:
    hosts(ledger)
    for bad in ({}, [found(ledger)], None):
        with raises_code("InvalidAmount"):
            ledger.claim_all(bad)  # type: ignore[arg-type]
    with pytest.raises(exceptions.NoCandidates, match="big"):
        ledger.claim_all({"small": found(ledger), "big": found(ledger, "VCPU=9")})


def test_a_repeated_gang_takes_once(ledger: ro.Ledger) -> None:
    hosts(ledger)
    operation = new_operation()
    first = by_consumer(
        ledger.claim_all({"a": found(ledger), "b": found(ledger)}, operation=operation)
    )
    # in another order, and found afresh: the same consumers
    again = by_consumer(
        ledger.claim_all({"b": found(ledger), "a": found(ledger)}, operation=operation)
    )
    assert again == first
    with raises_code("OperationConflict"):
        ledger.claim_all({"a": found(ledger)}, operation=operation)


# --- adjust and replace ---


def test_a_change_may_demand_the_consumer_it_was_made_for(ledger: ro.Ledger) -> None:
    hosts(ledger)
    old = ledger.claim("job", {"host0": "VCPU=1"})
    ledger.adjust("job", {"host0": "VCPU=1"}, generation=old.generation)
    for change in (ledger.adjust, ledger.replace):
        with raises_code("StaleConsumer", match="read at generation"):
            change("job", {"host0": "VCPU=1"}, generation=old.generation)
    assert str(ledger.get_claim("job")) == "job holds VCPU=2 of host0"


def test_a_later_life_is_not_the_one_that_was_read(ledger: ro.Ledger) -> None:
    hosts(ledger)
    old = ledger.claim("job", {"host0": "VCPU=1"})
    ledger.release("job")
    ledger.claim("job", {"host0": "VCPU=1"})
    with raises_code("StaleConsumer"):
        ledger.replace("job", {"host1": "VCPU=1"}, generation=old.generation)


def test_units_are_given_back_by_name(ledger: ro.Ledger) -> None:
    hosts(ledger, 1, "PGPU=3")
    ledger.claim("job", [taken("host0", "PGPU", 2, "a", "b")])
    ledger.adjust("job", [taken("host0", "PGPU", -1, "a")])
    assert ledger.get_claim("job").allocations[0].units == ("b",)
    with raises_code("UnitNotHeld", match="a is not a unit"):
        ledger.adjust("job", [taken("host0", "PGPU", -1, "a")])


def test_a_replacement_is_all_that_is_held(ledger: ro.Ledger) -> None:
    hosts(ledger)
    claim = ledger.claim("job", {"host0": "VCPU=4"}, project="p", expires_in=HOUR)
    now = ledger.replace("job", {"host1": "VCPU=2"}, user="u")
    assert str(now) == "job holds VCPU=2 of host1"
    assert (now.id, now.project, now.user, now.expires_at) == (
        claim.id,
        "p",
        "u",
        claim.expires_at,
    )
    assert str(ledger.replace("new", found(ledger), project="q")) == "new holds VCPU=2 of host0"
    assert ledger.get_claim("new").project == "q"
    assert ledger.get_claim("new").request == ro.Request("VCPU=2")


def _gpus(ledger: ro.Ledger) -> None:
    """Let ``job`` use 2 CPUs and the second of three GPUs of a host."""
    host = ro.Provider("lab", "VCPU=8", aggregates=["row"])
    for number in range(3):
        partitions.thousandths(host.add(f"gpu{number}", "PGPU=1"))
    pools = (
        ro.Provider(name, "DISK_GB=100", aggregates=["row"], traits=["MISC_SHARES_VIA_AGGREGATE"])
        for name in ("pool0", "pool1")
    )
    ledger.sync(host, *pools)
    ledger.claim("job", {"lab": "VCPU=2", "gpu1": "PGPU=1"})


_TWO_GROUPS = ro.Request(
    "VCPU=1", groups=[ro.RequestGroup("PGPU=1", suffix=suffix) for suffix in ("_A", "_B")]
)


@pytest.mark.parametrize("is_counted", [True, False])
@pytest.mark.parametrize(
    ("held", "request_", "kept"),
    [
        ({"gpu1": "PGPU=1"}, "VCPU=4,PGPU=1", {"gpu1": "PGPU=1"}),
        ({"gpu1": "PGPU=1"}, "VCPU=4,PGPU=2", {"gpu0": "PGPU=1", "gpu1": "PGPU=1"}),
        ({"gpu1": "PGPU=1"}, _TWO_GROUPS, {"gpu0": "PGPU=1", "gpu1": "PGPU=1"}),
        ({"gpu1": "PGPU=1", "gpu2": "PGPU=1"}, "VCPU=4,PGPU=1", {"gpu1": "PGPU=1"}),
        (
            {"gpu1": "CUSTOM_PGPU_THOUSANDTHS=500"},
            "VCPU=4,CUSTOM_PGPU_THOUSANDTHS=600",
            {"gpu1": "CUSTOM_PGPU_THOUSANDTHS=600"},
        ),
        ({"pool1": "DISK_GB=60"}, "VCPU=4,DISK_GB=90", {"pool1": "DISK_GB=90"}),
    ],
)
def test_a_change_in_place_keeps_its_devices_and_pools(
    ledger: ro.Ledger, held: Any, request_: Any, kept: Any, is_counted: bool
) -> None:
    _gpus(ledger)
    ledger.replace("job", {"lab": "VCPU=2", **held})
    snapshot = ledger.snapshot() if is_counted else unused_snapshot(ledger.backend)
    candidates = snapshot.candidates(request_)
    scenario = ledger.snapshot().fork()
    moved = scenario.move("job", candidates)
    ledger.replace("job", candidates)
    now = ledger.get_claim("job").by_provider()
    assert {name: str(one) for name, one in now.items() if name != "lab"} == kept
    assert {(one.provider, str(one.amount)) for one in moved} == {
        (one.provider, str(one.amount)) for one in ledger.get_claim("job").allocations
    }
    assert ledger.get_claim("job").request == ro.Request.of(request_)


#: VCPU of a host that gave 4 CPUs to a consumer before it shrank.
_SHRUNK = [
    "VCPU=8:max_unit=2",
    "VCPU=8:min_unit=5",
    "VCPU=8:step_size=3",
    "VCPU=2",
    "VCPU=8:reserved=6:max_unit=2",
]


def _shrunk(ledger: ro.Ledger, figures: str) -> None:
    """Let ``job`` use 4 CPUs of a host, the second of its GPUs and a pool; the host shrinks."""
    _gpus(ledger)
    ledger.replace("job", {"lab": "VCPU=4", "gpu1": "PGPU=1", "pool1": "DISK_GB=60"})
    lab = ledger.provider("lab")
    lab.update(inventories=ro.Inventories(figures))
    ledger.sync(lab)


@pytest.mark.parametrize("figures", _SHRUNK)
@pytest.mark.parametrize(
    ("request_", "kept"),
    [
        ("VCPU=4,PGPU=1", {"gpu1"}),
        ("VCPU=4,PGPU=2", {"gpu0", "gpu1"}),
        ("VCPU=4,PGPU=1,DISK_GB=90", {"gpu1", "pool1"}),
    ],
)
def test_on_a_host_that_shrank_a_change_in_place_keeps_its_devices_and_pools(
    ledger: ro.Ledger, figures: str, request_: str, kept: set[str]
) -> None:
    """What the host gives less of stays as it is, in a ledger and in a scenario of it."""
    _shrunk(ledger, figures)
    candidates = snapshot_in_place(ledger.backend, "job").candidates(request_)
    moved = ledger.snapshot().fork().move("job", candidates)
    ledger.replace("job", candidates)
    assert {one.provider for one in moved} == {"lab", *kept}
    assert set(ledger.get_claim("job").by_provider()) == {"lab", *kept}
    assert ledger.get_claim("job").by_provider()["lab"] == ro.Amounts("VCPU=4")


def _verdict(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except exceptions.CapacityException as refusal:
        return f"{refusal.code}: {refusal}"
    return "done"


@pytest.mark.parametrize("figures", _SHRUNK)
@pytest.mark.parametrize("amount", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("is_searched", [True, False])
def test_on_a_host_that_shrank_a_scenario_decides_as_the_ledger(
    ledger: ro.Ledger, figures: str, amount: int, is_searched: bool
) -> None:
    _shrunk(ledger, figures)
    found: Any = snapshot_in_place(ledger.backend, "job").candidates(f"VCPU={amount},PGPU=1")
    if not is_searched:
        uuids = {name: ledger.provider(name).uuid for name in ("lab", "gpu1")}
        found = [
            taken("lab", "VCPU", amount).replace(provider_uuid=uuids["lab"]),
            taken("gpu1", "PGPU", 1).replace(provider_uuid=uuids["gpu1"]),
        ]
    scenario = ledger.snapshot().fork()
    tried = _verdict(lambda: scenario.move("job", found))
    assert tried == _verdict(lambda: ledger.replace("job", found))
    if not is_searched:
        grows = {"VCPU=8:min_unit=5": (5, 6), "VCPU=8:step_size=3": (6,)}
        assert (tried == "done") is (amount <= 4 or amount in grows.get(figures, ()))


@pytest.mark.parametrize("figures", _SHRUNK)
def test_a_replacement_that_is_searched_again_keeps_what_a_host_shrank_below(
    ledger: ro.Ledger, figures: str
) -> None:
    """The candidates were found before somebody was faster; the consumer's use does not count."""
    _shrunk(ledger, figures)
    candidates = snapshot_in_place(ledger.backend, "job").candidates("VCPU=4,PGPU=2", limit=1)
    for one in candidates[0].allocations:
        if one.provider not in ("lab", "gpu1"):
            ledger.claim("other", {one.provider: "PGPU=1"})
    ledger.replace("job", candidates)
    assert ledger.get_claim("job").by_provider()["lab"] == ro.Amounts("VCPU=4")
    assert set(ledger.get_claim("job").by_provider()) == {"lab", "gpu1", "gpu2"}


@pytest.mark.parametrize("figures", _SHRUNK)
def test_a_host_that_shrank_can_be_left_in_a_scenario(ledger: ro.Ledger, figures: str) -> None:
    _shrunk(ledger, figures)
    ledger.sync(ro.Provider("other", "VCPU=8,PGPU=1"))
    scenario = ledger.snapshot().fork()
    held = scenario.held("job").held
    elsewhere = scenario.snapshot.candidates("VCPU=4,PGPU=1")
    assert {one.provider for one in scenario.move("job", elsewhere)} == {"other"}
    ledger.apply(scenario.diff())
    assert set(ledger.get_claim("job").by_provider()) == {"other"}
    scenario.undo()
    assert scenario.held("job").held == held


def test_a_device_that_does_not_match_any_more_is_not_kept(ledger: ro.Ledger) -> None:
    host = ro.Provider("lab", "VCPU=8")
    for number, trait in enumerate(("CUSTOM_A", "CUSTOM_B", "CUSTOM_A")):
        host.add(f"gpu{number}", "PGPU=1", traits=[trait])
    ledger.sync(host)
    request = ro.Request(
        "VCPU=1", groups=[ro.RequestGroup("PGPU=1", suffix="_A", required=["CUSTOM_A"])]
    )
    for before, after in (("gpu1", "gpu0"), ("gpu2", "gpu2")):
        ledger.replace("job", {"lab": "VCPU=2", before: "PGPU=1"})
        ledger.replace("job", ledger.snapshot().candidates(request))
        assert set(ledger.get_claim("job").by_provider()) == {"lab", after}


def test_a_change_in_place_keeps_a_device_that_was_disabled_since(ledger: ro.Ledger) -> None:
    _gpus(ledger)
    ledger.disable("gpu1", reason="ecc")
    ledger.replace("job", ledger.snapshot().candidates("VCPU=4,PGPU=1"))
    assert set(ledger.get_claim("job").by_provider()) == {"lab", "gpu1"}
    ledger.release("job")
    ledger.claim("job", ledger.snapshot().candidates("VCPU=4,PGPU=2"))
    assert set(ledger.get_claim("job").by_provider()) == {"lab", "gpu0", "gpu2"}


def test_a_claim_takes_the_first_device_as_ever(ledger: ro.Ledger) -> None:
    _gpus(ledger)
    ledger.claim("new", ledger.snapshot().candidates("VCPU=1,PGPU=1"))
    ledger.release("job")
    ledger.replace("other", ledger.snapshot().candidates("VCPU=1,PGPU=1"))
    assert set(ledger.get_claim("new").by_provider()) == {"lab", "gpu0"}
    assert set(ledger.get_claim("other").by_provider()) == {"lab", "gpu1"}


@pytest.mark.parametrize(
    ("wanted", "is_accepted"),
    [
        ({"h/c": "PCPU=6"}, True),
        ({"h/c": "PCPU=5", "h": "VCPU=1"}, True),
        ({"h/c": "PCPU=2", "h": "VCPU=4"}, True),
        ({"h/c": "PCPU=7"}, False),
        ({"h/c": "PCPU=6", "h": "VCPU=1"}, False),
        ({"h/c": "PCPU=1", "h": "VCPU=5"}, False),
    ],
)
@pytest.mark.parametrize("held", [{"h/c": "PCPU=6"}, {"h/c": "PCPU=4", "h": "VCPU=2"}])
def test_a_change_in_place_keeps_what_shares_used_before_a_host_shrank(
    ledger: ro.Ledger, held: Any, wanted: Any, is_accepted: bool
) -> None:
    """A search for a change in place and a replacement by provider decide the same."""
    share = ro.Share(resource_class="PCPU", of="h", of_class="VCPU")
    host = ro.Provider("h", "VCPU=8")
    host.add("h/c", "PCPU=8", shares=[share])
    ledger.sync(host)
    ledger.claim("a", held)
    ledger.claim("b", {"h": "VCPU=1"})
    ledger.change("h", inventories="VCPU=4:max_unit=4")
    request = ",".join(wanted.values())
    candidates = snapshot_in_place(ledger.backend, "a", "h").candidates(request)
    assert bool(candidates) is is_accepted
    if is_accepted:
        ledger.replace("a", wanted)
        ledger.replace("a", held)
        ledger.replace("a", candidates)
        assert ledger.get_claim("a").by_provider() == {
            n: ro.Amounts(one) for n, one in wanted.items()
        }
    else:
        with pytest.raises(exceptions.CapacityException):
            ledger.replace("a", wanted)


@pytest.mark.law(2)
def test_a_replacement_that_does_not_fit_changes_nothing(ledger: ro.Ledger) -> None:
    hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=4"})
    ledger.claim("other", {"host1": "VCPU=3"})
    with pytest.raises(exceptions.CapacityException, match="other holds 3"):
        ledger.replace("job", {"host1": "VCPU=2"})
    assert str(ledger.get_claim("job")) == "job holds VCPU=4 of host0"


def test_a_repeated_replacement_happens_once(ledger: ro.Ledger) -> None:
    hosts(ledger)
    operation = new_operation()
    first = ledger.replace("job", {"host0": "VCPU=2"}, operation=operation)
    ledger.adjust("job", {"host0": "VCPU=1"})
    assert ledger.replace("job", {"host0": "VCPU=2"}, operation=operation) == first
    assert str(ledger.get_claim("job")) == "job holds VCPU=3 of host0"


# --- move and swap ---


@pytest.mark.law(2)
def test_a_move_is_all_or_nothing(ledger: ro.Ledger) -> None:
    hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=3"}, project="p")
    ledger.claim("other", {"host1": "VCPU=2"})
    before = ledger.usage()
    for leaving in (None, "migration"):
        with pytest.raises(exceptions.CapacityException):
            ledger.move("job", {"host1": "VCPU=3"}, source_consumer=leaving)
        assert ledger.usage() == before
    assert str(ledger.move("job", {"host1": "VCPU=2"})) == "job holds VCPU=2 of host1"
    assert ledger.usage()["host0", "VCPU"].used == 0


def test_a_migration_holds_both_places_until_it_is_done(ledger: ro.Ledger) -> None:
    hosts(ledger)
    ledger.claim("job", found(ledger), project="p", user="u", consumer_type="vm")
    claim = ledger.move("job", {"host1": "VCPU=3"}, source_consumer="migration")
    left = ledger.get_claim("migration")
    assert (str(claim), str(left)) == (
        "job holds VCPU=3 of host1",
        "migration holds VCPU=2 of host0",
    )
    assert (left.project, left.user, left.consumer_type) == ("p", "u", "vm")
    assert left.request == ro.Request("VCPU=2")
    ledger.release("migration")  # confirmed
    assert ledger.usage()["host0", "VCPU"].used == 0
    assert ledger.get_claim("job").project == "p"


def test_a_migration_is_taken_back_by_a_swap(ledger: ro.Ledger) -> None:
    hosts(ledger)
    before = ledger.claim("job", [taken("host0", "VCPU", 2, "cpu0", "cpu1")])
    ledger.move("job", {"host1": "VCPU=3"}, source_consumer="migration")
    ledger.swap("job", "migration")
    ledger.release("migration")
    assert ledger.get_claim("job").allocations == before.allocations
    assert ledger.usage()["host1", "VCPU"].used == 0


def test_a_move_searches_again_like_a_claim(ledger: ro.Ledger) -> None:
    hosts(ledger, 3)
    ledger.claim("job", {"host0": "VCPU=4"})
    searched = ledger.snapshot().candidates(ro.Request("VCPU=4"), limit=1)
    ledger.claim("faster", {"host1": "VCPU=1"})
    moved = ledger.move("job", searched, source_consumer="migration")
    assert str(moved) == "job holds VCPU=4 of host2"


def test_a_move_within_a_host_needs_only_what_is_more(ledger: ro.Ledger) -> None:
    hosts(ledger, 1)
    ledger.claim("job", {"host0": "VCPU=3"})
    assert str(ledger.move("job", {"host0": "VCPU=4"})) == "job holds VCPU=4 of host0"


def test_who_holds_nothing_cannot_move(ledger: ro.Ledger) -> None:
    hosts(ledger)
    with raises_code("ConsumerNotFound", match="job"):
        ledger.move("job", {"host0": "VCPU=1"})
    ledger.claim("job", {"host0": "VCPU=1"})
    ledger.claim("other", {"host0": "VCPU=1"})
    with raises_code("ConsumerExists", match="other"):
        ledger.move("job", {"host1": "VCPU=1"}, source_consumer="other")
    with raises_code("DuplicateKey"):
        ledger.move("job", {"host1": "VCPU=1"}, source_consumer="job")


def test_a_repeated_move_moves_once(ledger: ro.Ledger) -> None:
    hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=1"})
    operation = new_operation()
    first = ledger.move(
        "job", {"host1": "VCPU=1"}, source_consumer="migration", operation=operation
    )
    ledger.release("migration")
    again = ledger.move(
        "job", {"host1": "VCPU=1"}, source_consumer="migration", operation=operation
    )
    assert again == first
    with raises_code("ConsumerNotFound"):
        ledger.get_claim("migration")


def test_a_move_reads_again_what_somebody_changed(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=1"})
    committing(ledger, monkeypatch, "move", lambda: ledger.adjust("job", {"host0": "VCPU=1"}))
    ledger.move("job", {"host1": "VCPU=1"}, source_consumer="migration")
    assert str(ledger.get_claim("migration")) == "migration holds VCPU=2 of host0"


@pytest.mark.law(2, 4)
def test_full_hosts_can_swap(ledger: ro.Ledger) -> None:
    hosts(ledger, 2, "VCPU=4,PGPU=1")
    ledger.claim("a", [taken("host0", "VCPU", 4), taken("host0", "PGPU", 1, "gpu0")], project="p")
    ledger.claim("b", [taken("host1", "VCPU", 4), taken("host1", "PGPU", 1, "gpu0")])
    was = ledger.get_claim("a").allocations, ledger.get_claim("b").allocations
    a, b = ledger.swap("a", "b")
    assert (b.allocations, a.allocations) == was
    assert (a.project, b.project) == ("p", None)
    assert (ledger.get_claim("a"), ledger.get_claim("b")) == (a, b)
    ledger.swap("a", "b")
    assert (ledger.get_claim("a").allocations, ledger.get_claim("b").allocations) == was


def test_units_of_one_host_can_be_swapped(ledger: ro.Ledger) -> None:
    hosts(ledger, 1, "PGPU=2")
    ledger.claim("a", [taken("host0", "PGPU", 1, "gpu0")])
    ledger.claim("b", [taken("host0", "PGPU", 1, "gpu1")])
    ledger.swap("a", "b")
    assert ledger.get_claim("a").allocations[0].units == ("gpu1",)


def test_a_swap_reads_again_what_somebody_changed(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts(ledger)
    ledger.claim("a", {"host0": "VCPU=1"})
    ledger.claim("b", {"host1": "VCPU=2"})
    committing(ledger, monkeypatch, "swap", lambda: ledger.adjust("a", {"host0": "VCPU=1"}))
    a, b = ledger.swap("a", "b")
    assert (str(a), str(b)) == ("a holds VCPU=2 of host1", "b holds VCPU=2 of host0")


def test_a_swap_is_of_two_that_hold_something(ledger: ro.Ledger) -> None:
    hosts(ledger)
    ledger.claim("a", {"host0": "VCPU=1"})
    with raises_code("ConsumerNotFound", match="b has no allocations"):
        ledger.swap("a", "b")
    with raises_code("DuplicateKey"):
        ledger.swap("a", "a")


def test_a_repeated_swap_swaps_once(ledger: ro.Ledger) -> None:
    hosts(ledger)
    ledger.claim("a", {"host0": "VCPU=1"})
    ledger.claim("b", {"host1": "VCPU=2"})
    operation = new_operation()
    first = ledger.swap("a", "b", operation=operation)
    assert ledger.swap("a", "b", operation=operation) == first
    assert ledger.swap("b", "a", operation=operation) == first[::-1]
    assert str(ledger.get_claim("a")) == "a holds VCPU=2 of host1"


def test_it_is_not_read_again_for_ever(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ro.connect(url, retries=RetryPolicy(definitions=1)) as ledger:
        hosts(ledger)
        ledger.claim("a", {"host0": "VCPU=1"})
        ledger.claim("b", {"host1": "VCPU=1"})

        def change() -> None:
            ledger.adjust("a", {"host0": "VCPU=1"})

        seen = committing(ledger, monkeypatch, "swap", change, change, change)
        with raises_code("StaleConsumer"):
            ledger.swap("a", "b")
        assert len(seen) == 2


# --- confirm, renew, expire ---


def test_a_confirmed_claim_expires_no_more(ledger: ro.Ledger) -> None:
    hosts(ledger)
    claim = ledger.claim("job", {"host0": "VCPU=1"}, expires_in=HOUR)
    done = ledger.confirm("job", claim=claim.id)
    assert (done.state, done.expires_at, done.allocations) == (
        "confirmed",
        None,
        claim.allocations,
    )
    assert not list(ledger.expired(NOW + 2 * HOUR))
    assert ledger.confirm("job").state == "confirmed"


def test_a_claim_is_renewed_and_keeps_its_state(ledger: ro.Ledger) -> None:
    hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=1"}, expires_in=HOUR)
    assert ledger.renew("job", expires_at=NOW + 5 * HOUR).expires_at == NOW + 5 * HOUR
    assert ledger.renew("job", expires_in=HOUR).state == "held"
    ledger.confirm("job")
    renewed = ledger.renew("job", expires_at=NOW + HOUR)
    assert (renewed.state, renewed.expires_at) == ("confirmed", NOW + HOUR)


def test_another_life_of_the_name_is_not_confirmed_or_renewed(ledger: ro.Ledger) -> None:
    hosts(ledger)
    mine = ledger.claim("job", {"host0": "VCPU=1"}, expires_in=HOUR)
    ledger.release("job")
    for late in (ledger.confirm, lambda name, claim: ledger.renew(name, expires_in=HOUR)):
        with raises_code("ConsumerNotFound"):
            late("job", claim=mine.id)
    theirs = ledger.claim("job", {"host0": "VCPU=1"})
    with raises_code("StaleConsumer", match="its claim is"):
        ledger.confirm("job", claim=mine.id)
    with raises_code("StaleConsumer", match="its claim is"):
        ledger.renew("job", expires_in=HOUR, claim=mine.id)
    assert ledger.get_claim("job") == theirs


def test_a_renewal_says_until_when(ledger: ro.Ledger) -> None:
    hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=1"})
    for bad in (
        {},
        {"expires_in": HOUR, "expires_at": NOW},
        {"expires_at": NOW.replace(tzinfo=None)},
    ):
        with raises_code("InvalidField"):
            ledger.renew("job", **bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("write", ["confirm", "renew", "release"])
def test_a_repeated_write_happens_once(ledger: ro.Ledger, write: str) -> None:
    hosts(ledger)
    ledger.claim("job", {"host0": "VCPU=1"}, expires_in=HOUR)
    said: dict[str, Any] = {"expires_in": 3 * HOUR} if write == "renew" else {}
    operation = new_operation()
    first = getattr(ledger, write)("job", operation=operation, **said)
    assert getattr(ledger, write)("job", operation=operation, **said) == first


def test_whose_time_is_over_is_told_and_released(ledger: ro.Ledger) -> None:
    hosts(ledger, 1, "VCPU=20")
    for number in range(9):
        until = NOW + number * HOUR if number % 2 else None
        ledger.claim(f"job-{number}", {"host0": "VCPU=1"}, expires_at=until)
    late = NOW + 6 * HOUR
    assert [claim.consumer for claim in ledger.expired(late)] == ["job-1", "job-3", "job-5"]
    assert [claim.consumer for claim in paged(ledger, 2).expired(late)] == [
        "job-1",
        "job-3",
        "job-5",
    ]
    assert not list(ledger.expired(NOW - HOUR))
    assert {finding.consumer for finding in ledger.audit(now=late).of("expired")} == {
        "job-1",
        "job-3",
        "job-5",
    }
    released = paged(ledger, 2).release_expired(late)
    assert [(claim.consumer, claim.state) for claim in released] == [
        ("job-1", "released"),
        ("job-3", "released"),
        ("job-5", "released"),
    ]
    assert ledger.usage()["host0", "VCPU"].used == 6
    assert ledger.release_expired(late) == ()


def test_the_expired_claims_of_a_refusal_are_named(ledger: ro.Ledger) -> None:
    hosts(ledger, 2, "VCPU=200")
    over = ledger.now() - HOUR
    ledger.claim("apart", {"host1": "VCPU=1"}, expires_at=over)
    for number in range(120):  # more than a reason names
        ledger.claim(f"big-{number:03}", {"host0": "VCPU=1"}, expires_at=over + 2 * HOUR)
    ledger.claim("late", {"host0": "VCPU=1"}, expires_at=over)
    ledger.claim("other", {"host0": "VCPU=1"}, expires_at=over)
    with pytest.raises(exceptions.CapacityException) as refused:
        ledger.claim("new", {"host0": "VCPU=100"})
    reasons = refused.value.reasons
    named = [claim.consumer for claim in paged(ledger, 1).expired(reasons=reasons)]
    assert named == ["late", "other"]
    assert [claim.consumer for claim in ledger.expired(reasons=reasons, limit=1)] == ["late"]
    assert [claim.consumer for claim in ledger.expired(reasons=reasons, after="late")] == ["other"]
    assert not list(ledger.expired(over - HOUR, reasons=reasons))
    assert not list(ledger.expired(reasons=()))
    assert [claim.consumer for claim in ledger.expired()] == ["apart", "late", "other"]


def test_who_renews_or_goes_in_time_is_not_released(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts(ledger, 1, "VCPU=20")
    for number in range(4):
        ledger.claim(f"job-{number}", {"host0": "VCPU=1"}, expires_at=NOW)

    def meanwhile() -> None:
        ledger.renew("job-1", expires_at=NOW + 9 * HOUR)
        ledger.confirm("job-2")
        ledger.adjust("job-3", {"host0": "VCPU=-1"})

    seen = committing(ledger, monkeypatch, "release", meanwhile)
    released = ledger.release_expired(NOW + HOUR)
    assert [claim.consumer for claim in released] == ["job-0"]
    assert len(seen) == 4
    assert set(ledger.usage().consumers) == {"job-1", "job-2"}


def test_what_was_released_is_told_though_a_later_page_fails(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts(ledger, 1, "VCPU=20")
    for number in range(5):
        ledger.claim(f"job-{number}", {"host0": "VCPU=1"}, expires_at=NOW)

    def busy() -> None:
        raise exceptions.DatabaseError("busy", "ledger")

    committing(ledger, monkeypatch, "release", lambda: None, busy, busy)
    released = paged(ledger, 2).release_expired(NOW + HOUR)
    assert [claim.consumer for claim in released] == ["job-0", "job-1"]
    with raises_code("DatabaseBusy"):
        paged(ledger, 2).release_expired(NOW + HOUR)
    assert len(paged(ledger, 2).release_expired(NOW + HOUR)) == 3
    assert ledger.release_expired(NOW + HOUR) == ()


EAST = datetime.timezone(5 * HOUR)
WEST = datetime.timezone(-5 * HOUR)


def test_a_moment_that_utc_does_not_have_is_refused(ledger: ro.Ledger) -> None:
    hosts(ledger)
    late, early = datetime.datetime.max.replace(tzinfo=WEST), datetime.datetime.min
    early = early.replace(tzinfo=EAST)
    for given in (late, early):
        for ask in (ledger.expired, ledger.release_expired, lambda at: ledger.audit(now=at)):
            with raises_code("InvalidField", match=r"now: got .*year 9999"):
                ask(given)
        with raises_code("InvalidField", match="expires_at"):
            ledger.claim("job", {"host0": "VCPU=1"}, expires_at=given)
        with raises_code("InvalidField", match="expires_at"):
            ledger.renew("job", expires_at=given)


@pytest.mark.parametrize("bad", [datetime.datetime(2030, 1, 1), "now", 7])
def test_a_moment_has_a_time_zone(ledger: ro.Ledger, bad: Any) -> None:
    for ask in (ledger.expired, ledger.release_expired):
        with raises_code("InvalidField", match="time zone"):
            ask(bad)


# --- release ---


@pytest.mark.law(2)
def test_several_give_back_together_or_none_does(ledger: ro.Ledger) -> None:
    hosts(ledger)
    ledger.claim_all({"a": found(ledger), "b": found(ledger)})
    with raises_code("ConsumerNotFound", match="c has no allocations"):
        ledger.release_all(["a", "b", "c"])
    assert ledger.get_claim("a")
    claims = ledger.release_all(["a", "b"])
    assert [(claim.consumer, claim.state) for claim in claims] == [
        ("a", "released"),
        ("b", "released"),
    ]
    assert not ledger.usage().consumers


def test_one_gives_back_and_its_claim_is_told(ledger: ro.Ledger) -> None:
    hosts(ledger)
    ledger.claim("a", {"host0": "VCPU=1"})
    assert str(ledger.release("a")) == "a released VCPU=1 of host0"
    for bad in ([], ["a", "a"], [""]):
        with pytest.raises(exceptions.InvalidInput):
            ledger.release_all(bad)


# --- together ---


@pytest.mark.law(1, 4)
def test_movers_and_swappers_at_once_lose_nothing(ledger: ro.Ledger) -> None:
    hosts(ledger, 3)
    for n in range(3):
        ledger.claim(f"job-{n}", {f"host{n}": "VCPU=3"})
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        for n in range(20):
            one, other = f"job-{(seed + n) % 3}", f"job-{(seed + n + 1) % 3}"
            try:
                if n % 2:
                    ledger.swap(one, other)
                else:
                    ledger.move(one, {f"host{n % 3}": "VCPU=3"})
            except (exceptions.CapacityException, exceptions.Stale):
                pass
            except BaseException as error:
                problems.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not problems
    assert not ledger.audit()
    assert [sum(held.values()) for held in ledger.usage().consumers.values()] == [3, 3, 3]


def test_several_release_together_or_not_at_all(ledger: ro.Ledger) -> None:
    hosts(ledger)
    for name in ("a", "b"):
        ledger.claim(name, {"host0": "VCPU=1"})
    with raises_code("ConsumerNotFound", match="nobody"):
        ledger.release_all(["a", "nobody"])
    assert set(ledger.usage().consumers) == {"a", "b"}
    assert [one.consumer for one in ledger.release_all(iter(["b", "a"]))] == ["b", "a"]
    assert not ledger.usage().consumers
    for wrong in ("a", None, 7):
        with raises_code("InvalidField", match="consumers"):
            ledger.release_all(wrong)  # type: ignore[arg-type]
