"""Claims on a host: planned, taken, repeated, accepted or refused by the host, given back."""

from __future__ import annotations

import contextlib
import datetime
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.tracker import ClaimState, MigrationKind
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.numa import NUMATopologyAmount
from resource_objects.testing.refusals import raises_code
from tests.tracker.labs import WHOLE, declare, holdings, tracker, used

HALF_HOUR = datetime.timedelta(minutes=30)


# --- planned ---


@pytest.mark.law(5)
def test_a_plan_is_a_decision_and_writes_nothing(lab: ro.Ledger) -> None:
    cursor = lab.feed.cursor()
    planned = tracker(lab).plan("vm", "box-0", WHOLE)
    assert (planned.state, planned.host, planned.claim) == (ClaimState.PLANNED, "box-0", None)
    assert str(planned) == ("vm on box-0: planned, MEMORY_MB=512,DISK_GB=10,PCPU=2,PGPU=1")
    assert not used(lab)
    assert lab.feed.cursor() == cursor


@pytest.mark.law(6)
def test_what_was_planned_can_be_taken_just_so(lab: ro.Ledger) -> None:
    planned = tracker(lab).plan("vm", "box-1", WHOLE)
    assert planned.candidate is not None
    planned.allocate(project="p")
    planned.allocate()  # once is enough
    assert planned.state is ClaimState.HELD
    assert planned.claim is not None and planned.claim.project == "p"
    taken = {(one.provider, one.resource_class): one.units for one in planned.claim.allocations}
    assert taken == {
        (one.provider, one.resource_class): one.units for one in planned.candidate.allocations
    }


def test_a_plan_that_was_overtaken_is_refused_with_who_has_it(lab: ro.Ledger) -> None:
    planned = tracker(lab).plan("vm", "box-0", "VCPU=3")
    tracker(lab).claim("faster", "box-0", "VCPU=2")
    with pytest.raises(exceptions.CapacityException, match="faster"):
        planned.allocate()
    assert planned.state is ClaimState.PLANNED


@pytest.mark.law(6)
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("VCPU=5", "VCPU requested 5, free 4 of 4"),
        (ro.Request("VCPU=1", required=["CUSTOM_NONE"]), "CUSTOM_NONE"),
        ("NUMA_TOPOLOGY=3:dedicated=3", "requested 3 host cells"),
        ("DEVICES=3*PGPU", "PGPU"),
        ("CUSTOM_NEVER=1", "CUSTOM_NEVER"),
    ],
)
def test_a_plan_and_a_claim_say_no_for_the_same_reasons(
    lab: ro.Ledger, asked: Any, told: str
) -> None:
    said: list[tuple[Reason, ...]] = []
    for decide in (tracker(lab).plan, tracker(lab).claim):
        with pytest.raises(exceptions.NoCandidates, match=told) as refusal:
            decide("vm", "box-0", asked)
        said.append(refusal.value.reasons)
    assert said[0] == said[1] != ()
    assert not used(lab)


# --- taken ---


@pytest.mark.law(2)
@pytest.mark.parametrize(
    "asked",
    [
        WHOLE,
        ro.Amounts(WHOLE),
        ro.Request(WHOLE),
        ro.Request(WHOLE, root_forbidden=["CUSTOM_BAD"]),
    ],
    ids=["text", "amounts", "request", "conditions"],
)
def test_all_resources_are_taken_together(lab: ro.Ledger, asked: Any) -> None:
    claim = tracker(lab).claim("vm", "box-0", asked)
    assert str(claim) == "vm on box-0: held, MEMORY_MB=512,DISK_GB=10,PCPU=2,PGPU=1"
    [cell] = {at for at, kind in used(lab) if kind == "PCPU" and at != "box-0"}
    [gpu] = {at for at, kind in used(lab) if kind == "PGPU"}
    assert gpu == {"box-0/numa0": "box-0/0000:10:00.0", "box-0/numa1": "box-0/0000:20:00.0"}[cell]


@pytest.mark.law(2)
def test_what_a_child_gives_is_found_below_the_host(lab: ro.Ledger) -> None:
    tracker(lab).claim("vm", "box-0", "VCPU=1,CUSTOM_FPGA=2")
    assert used(lab) == {("box-0", "VCPU"): 1, ("box-0/fpga", "CUSTOM_FPGA"): 2}
    group = ro.Request("VCPU=1").with_group("f", "CUSTOM_FPGA=1", required=["CUSTOM_FAST"])
    tracker(lab).claim("vm-2", "box-1", group)
    assert used(lab)["box-1/fpga", "CUSTOM_FPGA"] == 1
    with pytest.raises(exceptions.NoCandidates, match="vm holds 2"):
        tracker(lab).claim("vm-3", "box-0", "VCPU=1,CUSTOM_FPGA=1")
    assert used(lab)["box-0", "VCPU"] == 1


@pytest.mark.law(3)
def test_claimed_and_given_back_leaves_nothing(lab: ro.Ledger) -> None:
    claim = tracker(lab).claim("vm", "box-0", WHOLE)
    claim.revert()
    claim.revert()
    assert claim.state is ClaimState.REVERTED
    assert not used(lab) and not holdings(lab)


@pytest.mark.law(2)
def test_a_block_that_raises_gives_back(lab: ro.Ledger) -> None:
    with pytest.raises(ZeroDivisionError), tracker(lab).claim("vm", "box-0", WHOLE):
        1 / 0  # noqa: B018
    assert not used(lab)


def test_a_block_that_ends_keeps_the_claim(lab: ro.Ledger) -> None:
    with tracker(lab).claim("vm", "box-0", WHOLE, expires_in=HALF_HOUR) as claim:
        claim.confirm()
        claim.confirm()
    assert tracker(lab).get_claim("vm").state is ClaimState.CONFIRMED
    assert lab.get_claim("vm").expires_at is None


def test_an_old_claim_gives_back_nothing_of_a_new_one(lab: ro.Ledger) -> None:
    old = tracker(lab).claim("vm", "box-0", "VCPU=1")
    lab.release("vm")
    tracker(lab).claim("vm", "box-1", "VCPU=1")
    old.revert()
    assert used(lab) == {("box-1", "VCPU"): 1}
    stale = tracker(lab).get_claim("vm")
    lab.release("vm")
    tracker(lab).claim("vm", "box-0", "VCPU=1")
    with raises_code("StaleConsumer"):
        stale.confirm()


def test_an_old_claim_does_not_end_the_move_of_a_new_one(lab: ro.Ledger) -> None:
    old = tracker(lab).claim("vm", "box-0", "VCPU=1")
    lab.release("vm")
    tracker(lab).claim("vm", "box-0", "VCPU=2")
    move = tracker(lab).move("vm", "box-1", "VCPU=2")
    old.revert()
    assert str(tracker(lab).get_move("vm")) == str(move) == "vm: box-0 -> box-1, moving"


def test_what_was_not_taken_or_was_given_back_confirms_nothing(lab: ro.Ledger) -> None:
    planned = tracker(lab).plan("vm", "box-0", "VCPU=1")
    given_back = tracker(lab).claim("vm", "box-0", "VCPU=1")
    given_back.revert()
    tracker(lab).claim("vm", "box-1", "VCPU=1")
    for one in (planned, given_back):
        with raises_code("ConsumerNotFound", match="vm"):
            one.confirm()
    assert tracker(lab).get_claim("vm").state is ClaimState.HELD


def test_a_candidate_of_another_host_is_refused(lab: ro.Ledger) -> None:
    planned = tracker(lab).plan("vm", "box-1", "VCPU=1")
    with raises_code("InvalidAmount", match="one of box-0"):
        tracker(lab).claim("vm", "box-0", planned.candidate)
    assert not used(lab)


def test_a_claim_expires_as_it_was_told_to(lab: ro.Ledger) -> None:
    claim = tracker(lab).claim(
        "vm", "box-0", "VCPU=1", user="ann", consumer_type="INSTANCE", expires_in=HALF_HOUR
    )
    assert claim.claim is not None and claim.claim.expires_at is not None
    assert (claim.claim.user, claim.claim.consumer_type) == ("ann", "INSTANCE")
    [released] = lab.release_expired(lab.now() + 2 * HALF_HOUR)
    assert released.consumer == "vm"


# --- repeated, in another process or after a crash ---


@pytest.mark.law(4)
@pytest.mark.parametrize("asked", ["VCPU=2", WHOLE, "VCPU=1,CUSTOM_FPGA=1"])
def test_the_same_again_is_the_same_claim(lab: ro.Ledger, asked: str) -> None:
    first = tracker(lab).claim("vm", "box-0", asked)
    before = holdings(lab)
    for again in (asked, ro.Amounts(asked), ro.Request(asked), first.claim):
        second = tracker(lab).claim("vm", "box-0", again)
        assert second.claim == first.claim
    assert tracker(lab).get_claim("vm").claim == first.claim
    assert holdings(lab) == before


@pytest.mark.law(4)
def test_the_same_again_is_the_same_claim_on_a_full_host(lab: ro.Ledger) -> None:
    for overhead, asked in (
        ("", "VCPU=4"),
        ("VCPU=1", "VCPU=3"),
        ("VCPU=1", "VCPU=3,CUSTOM_FPGA=1"),
    ):
        mine = tracker(lab, overhead=overhead)
        found = mine.plan("vm", "box-0", asked).candidate
        with contextlib.suppress(exceptions.NotFound):
            lab.release("vm")
        claim = mine.claim("vm", "box-0", asked)
        for again in (asked, found):
            assert mine.claim("vm", "box-0", again).claim == claim.claim
        lab.release("vm")


@pytest.mark.parametrize(
    ("host", "asked"),
    [("box-0", "VCPU=2"), ("box-1", "VCPU=1"), ("box-0", "VCPU=1,DISK_GB=1"), ("box-0", WHOLE)],
)
def test_something_else_for_who_holds_something_is_refused(
    lab: ro.Ledger, host: str, asked: str
) -> None:
    tracker(lab).claim("vm", "box-0", "VCPU=1")
    before = holdings(lab)
    with raises_code("ConsumerExists", match=f"VCPU=1 of box-0, not .* of {host}"):
        tracker(lab).claim("vm", host, asked)
    assert holdings(lab) == before


def test_another_trait_is_something_else(lab: ro.Ledger) -> None:
    fast = ro.Request("CUSTOM_FPGA=1", required=["CUSTOM_FAST"])
    tracker(lab).claim("vm", "box-0", fast)
    tracker(lab).claim("vm", "box-0", fast)
    tracker(lab).claim("vm", "box-0", "CUSTOM_FPGA=1")  # says nothing of traits
    with raises_code("ConsumerExists"):
        tracker(lab).claim("vm", "box-0", ro.Request("CUSTOM_FPGA=1", forbidden=["CUSTOM_X"]))


def test_nobody_claims_of_what_is_not_there(lab: ro.Ledger) -> None:
    with raises_code("ProviderNotFound", match="box-9"):
        tracker(lab).claim("vm", "box-9", "VCPU=1")
    with raises_code("ConsumerNotFound", match="vm"):
        tracker(lab).get_claim("vm")
    with raises_code("ConsumerNotFound", match="vm"):
        tracker(lab).release("vm")
    for nothing in ("", "VCPU=-1", "VCPU=x", None, 7):
        with pytest.raises(exceptions.InvalidInput):
            tracker(lab).claim("vm", "box-0", nothing)
    assert not used(lab)


# --- after a move ---


def _moved(lab: ro.Ledger, host: str = "box-1", asked: str = "VCPU=2", end: str = "") -> Any:
    """Return the handle of a claim of box-0, of a consumer that moves, or moved."""
    old = tracker(lab).claim("vm", "box-0", "VCPU=1")
    move = tracker(lab).move("vm", host, asked)
    if end:
        getattr(move, end)()
    return old


def test_the_claim_of_a_source_gives_back_nothing_of_the_destination(lab: ro.Ledger) -> None:
    old = _moved(lab, end="confirm")
    before = holdings(lab)
    with raises_code("StaleConsumer"):
        old.confirm()
    old.revert()
    assert old.state is ClaimState.REVERTED  # that place was given back by the move
    assert holdings(lab) == before == {"vm": "VCPU=2 of box-1"}
    assert tracker(lab).get_claim("vm").state is ClaimState.HELD


@pytest.mark.parametrize("host", ["box-0", "box-1"])
def test_what_a_move_holds_is_decided_by_the_move(lab: ro.Ledger, host: str) -> None:
    old = _moved(lab, host)
    before = holdings(lab)
    with raises_code("MoveInProgress"):
        old.revert()
    with raises_code("StaleConsumer"):
        old.confirm()
    assert old.state is ClaimState.HELD
    assert holdings(lab) == before
    tracker(lab).get_move("vm").revert()  # it holds its source again
    old.revert()
    assert old.state is ClaimState.REVERTED
    assert not holdings(lab)


def test_the_claim_of_a_destination_says_reverted_and_the_source_is_held(lab: ro.Ledger) -> None:
    old = _moved(lab, "box-1")
    there = tracker(lab).get_claim("vm")
    there.revert()
    assert there.state is ClaimState.REVERTED
    assert holdings(lab) == {"vm": "VCPU=1 of box-0"}
    there.revert()  # once is enough: the source is no claim of its
    assert tracker(lab).get_claim("vm").claim is not None
    old.confirm()
    assert tracker(lab).get_claim("vm").state is ClaimState.CONFIRMED


def test_of_another_size_in_place_an_old_claim_gives_back_nothing(lab: ro.Ledger) -> None:
    old = _moved(lab, "box-0", end="confirm")
    for what in (old.revert, old.confirm):
        with raises_code("StaleConsumer", match="it has VCPU=2 now"):
            what()
    assert (old.state, holdings(lab)) == (ClaimState.HELD, {"vm": "VCPU=2 of box-0"})


def test_what_somebody_else_confirmed_runs_and_stays(lab: ro.Ledger) -> None:
    one, other = (tracker(lab).claim("vm", "box-0", "VCPU=1") for _ in range(2))
    other.confirm()
    with raises_code("StaleConsumer", match="another process confirmed it"):
        one.revert()
    assert (one.state, holdings(lab)) == (ClaimState.HELD, {"vm": "VCPU=1 of box-0"})
    other.revert()  # who confirmed it may give it back
    assert not holdings(lab)


def test_a_confirmation_whose_answer_is_lost_may_be_given_back(
    lab: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm = ro.Ledger.confirm

    def lost(self: ro.Ledger, *args: Any, **how: Any) -> None:
        confirm(self, *args, **how)
        raise exceptions.DatabaseError("unavailable", "the answer is lost")

    with raises_code("DatabaseUnavailable"):  # noqa: SIM117
        with tracker(lab).claim("vm", "box-0", "VCPU=1") as claim:
            monkeypatch.setattr(ro.Ledger, "confirm", lost)
            claim.confirm()
    assert not holdings(lab)


def test_a_claim_with_other_units_or_a_later_end_is_the_same(lab: ro.Ledger) -> None:
    asked = "DISK_GB=10,NUMA_TOPOLOGY=1:dedicated=2"
    old = tracker(lab).claim("vm", "box-0", asked, expires_in=HALF_HOUR)
    tracker(lab, accept=_to_other_cell).claim("vm", "box-0", asked)
    lab.renew("vm", expires_in=2 * HALF_HOUR)
    old.confirm()
    old.revert()
    assert not holdings(lab)


# --- what a scheduler claimed, and the host that has the last word ---


def test_what_a_scheduler_claimed_is_the_claim_of_the_host(lab: ro.Ledger) -> None:
    request = ro.Request(WHOLE)
    found = lab.snapshot().candidates(request, limit=1)
    claimed = lab.claim("vm", found)
    for asked in (request, WHOLE, claimed, found[0]):
        assert tracker(lab).claim("vm", "box-0", asked).claim == claimed


def test_a_candidate_of_a_scheduler_is_taken_as_it_is(lab: ro.Ledger) -> None:
    [found] = [one for one in lab.snapshot().candidates(WHOLE) if one.host == "box-1"]
    tracker(lab).claim("vm", "box-1", found)
    assert set(used(lab)) >= {(one.provider, one.resource_class) for one in found.allocations}


def test_a_host_refuses_with_reasons_that_a_scheduler_can_read(lab: ro.Ledger) -> None:
    reason = Reason(Rule.TRAIT_MISSING, 1, bound=0, used=0, where="box-0", trait="CUSTOM_UEFI")

    def accept(host: str, consumer: str, held: Mapping[str, ro.Amounts]) -> None:
        raise exceptions.HostRefused(host, consumer, "no firmware", [reason])

    lab.claim("vm", {"box-0": "VCPU=1"})
    with pytest.raises(exceptions.HostRefused, match="box-0 refuses vm: no firmware") as refusal:
        tracker(lab, accept=accept).claim("vm", "box-0", "VCPU=1")
    assert pickle.loads(pickle.dumps(refusal.value)).reasons == (reason,)
    assert used(lab) == {("box-0", "VCPU"): 1}  # the scheduler took it and gives it back
    with pytest.raises(exceptions.HostRefused):
        tracker(lab, accept=accept).claim("own", "box-0", "VCPU=1")
    assert list(holdings(lab)) == ["vm"]


def _to_other_cell(host: str, consumer: str, held: Mapping[str, ro.Amounts]) -> Any:
    """Have the CPUs 4 and 6 instead of two of the first cell."""
    amount = held[host]["NUMA_TOPOLOGY"]
    assert isinstance(amount, NUMATopologyAmount) and amount.host_cells == {0}
    placed = [one.replace(cell=1, pins={0: 4, 1: 6}) for one in amount.placed]
    instead = {**dict(held[host].by_name()), "NUMA_TOPOLOGY": amount.replace(placed=placed)}
    return {host: instead}


@pytest.mark.law(2)
def test_a_host_has_other_units_of_the_same(lab: ro.Ledger) -> None:
    asked = "DISK_GB=10,NUMA_TOPOLOGY=1:dedicated=2"
    claimed = lab.claim("vm", {"box-0": asked})
    refitted = tracker(lab, accept=_to_other_cell).claim("vm", "box-0", asked)
    assert refitted.claim is not None and refitted.claim.id == claimed.id
    assert lab.assigned_amounts("vm")["box-0"]["NUMA_TOPOLOGY"].cpuset == "4,6"  # type: ignore[attr-defined]
    assert tracker(lab).claim("vm", "box-0", asked).claim == refitted.claim


@pytest.mark.law(2)
def test_other_units_that_are_taken_are_a_refusal(lab: ro.Ledger) -> None:
    asked = "DISK_GB=10,NUMA_TOPOLOGY=1:dedicated=2"
    lab.claim("vm", {"box-0": asked})
    lab.claim("big", {"box-0": "NUMA_TOPOLOGY=1:dedicated=4"})
    before = holdings(lab)
    with pytest.raises(exceptions.HostRefused, match="big"):
        tracker(lab, accept=_to_other_cell).claim("vm", "box-0", asked)
    assert holdings(lab) == before


@pytest.mark.parametrize(
    "instead", [{"box-0": "VCPU=1"}, {"box-0": "VCPU=2,DISK_GB=1"}, {"box-0": "DISK_GB=2"}]
)
def test_other_units_are_as_many(lab: ro.Ledger, instead: Mapping[str, str]) -> None:
    lab.claim("vm", {"box-0": "VCPU=2"})
    with raises_code("InvalidAmount", match="other units of VCPU=2 of box-0"):
        tracker(lab, accept=lambda *_: instead).claim("vm", "box-0", "VCPU=2")
    assert used(lab) == {("box-0", "VCPU"): 2}


# --- overheads ---


@pytest.mark.parametrize("asked", ["VCPU=1,MEMORY_MB=512", WHOLE])
def test_what_a_host_takes_besides_is_claimed_and_given_back_with_it(
    lab: ro.Ledger, asked: str
) -> None:
    mine = tracker(lab, overhead="MEMORY_MB=64")
    claim = mine.claim("vm", "box-0", asked)
    assert int(claim.amounts["MEMORY_MB"]) == 512 + 64  # type: ignore[call-overload]
    assert used(lab)["box-0", "MEMORY_MB"] == 512 + 64
    assert mine.claim("vm", "box-0", asked).claim == claim.claim
    claim.revert()
    assert not used(lab)


@pytest.mark.parametrize("asked", ["VCPU=1,MEMORY_MB=512", WHOLE, "DISK_GB=1"])
def test_what_a_scheduler_did_not_know_of_is_added_to_its_claim(lab: ro.Ledger, asked: str) -> None:
    claimed = lab.claim("vm", lab.snapshot(at="box-0").candidates(asked))
    before = used(lab)
    mine = tracker(lab, overhead="MEMORY_MB=64")
    for _ in range(2):
        claim = mine.claim("vm", "box-0", asked)
        assert claim.claim is not None and claim.claim.id == claimed.id
        more = before.get(("box-0", "MEMORY_MB"), 0) + 64
        assert used(lab) == before | {("box-0", "MEMORY_MB"): more}


EACH_FOUND = pytest.mark.parametrize(
    "asked", ["VCPU=1,MEMORY_MB=512", "DISK_GB=1", WHOLE, "VCPU=1,CUSTOM_FPGA=1"]
)


@pytest.mark.law(5)
@EACH_FOUND
def test_what_a_host_takes_besides_is_taken_with_the_candidate_of_a_scheduler(
    lab: ro.Ledger, asked: str
) -> None:
    mine = tracker(lab, overhead="MEMORY_MB=64")
    found = lab.snapshot(at="box-0").candidates(asked)[0]
    before = dict(ro.Amounts(found.amounts).by_name())
    for again in (found, found, asked):
        claim = mine.claim("vm", "box-0", again)
        assert claim.amounts == found.amounts + ro.Amounts("MEMORY_MB=64"), before
    lab.release("vm")
    with pytest.raises(exceptions.CapacityException, match="MEMORY_MB"):  # and decided with it
        tracker(lab, overhead="MEMORY_MB=5000").claim("vm", "box-0", found)
    assert not used(lab)


@pytest.mark.law(5)
@EACH_FOUND
@pytest.mark.parametrize(
    "overhead",
    [
        "MEMORY_MB=64",
        lambda amounts: {"DISK_GB": 1 + int(dict(amounts.by_name()).get("DISK_GB", 0)) // 10},
    ],
    ids=["constant", "growing"],
)
def test_what_a_host_takes_besides_is_taken_with_a_plan_once(
    lab: ro.Ledger, asked: str, overhead: Any
) -> None:
    mine = tracker(lab, overhead=overhead)
    planned = mine.plan("vm", "box-0", asked)
    assert planned.candidate is not None
    told = planned.amounts
    planned.allocate()
    for again in (asked, planned.claim, planned.candidate):
        assert mine.claim("vm", "box-0", again).amounts == told
    planned.revert()
    for _ in range(2):
        assert mine.claim("vm", "box-0", planned.candidate).amounts == told
    assert mine.claim("vm", "box-0", asked).amounts == told
    move = mine.move("vm", "box-1", kind=MigrationKind.COLD_MIGRATION)
    assert move.destination is not None and move.destination.amounts == told


def test_a_candidate_with_another_overhead_is_refused(lab: ro.Ledger) -> None:
    planned = tracker(lab, overhead="MEMORY_MB=64").plan("vm", "box-0", "MEMORY_MB=8")
    with pytest.raises(exceptions.InvalidInput):
        tracker(lab, overhead="MEMORY_MB=128").claim("vm", "box-0", planned.candidate)
    assert not used(lab)


def test_what_a_host_takes_besides_may_not_be_there(lab: ro.Ledger) -> None:
    lab.claim("vm", {"box-0": "VCPU=1"})
    with pytest.raises(exceptions.CapacityException, match="MEMORY_MB"):
        tracker(lab, overhead="MEMORY_MB=5000").claim("vm", "box-0", "VCPU=1")
    with pytest.raises(exceptions.CapacityException, match="MEMORY_MB"):
        tracker(lab, overhead="MEMORY_MB=5000").claim("vm-2", "box-0", "VCPU=1")
    assert used(lab) == {("box-0", "VCPU"): 1}


# --- limits ---


@pytest.mark.law(4)
def test_a_limit_binds_one_claim_and_is_named(lab: ro.Ledger) -> None:
    mine = tracker(lab)
    mine.claim("vm", "box-0", "VCPU=2", limits="VCPU=3")
    with pytest.raises(exceptions.CapacityException, match="limit") as refusal:
        mine.claim("vm-2", "box-0", "VCPU=2", limits="VCPU=3")
    assert Rule.LIMIT in {reason.rule for reason in refusal.value.reasons}
    with pytest.raises(exceptions.CapacityException, match="limit"):
        mine.claim("vm-2", "box-0", "VCPU=2,CUSTOM_FPGA=1", limits="VCPU=3")
    mine.claim("vm-2", "box-0", "VCPU=2")  # who sends none has none
    with pytest.raises(exceptions.CapacityException, match="limit"):
        mine.move("vm", "box-1", "VCPU=2", limits="VCPU=1")
    assert used(lab) == {("box-0", "VCPU"): 4}


def test_a_plan_is_taken_under_the_limits_that_a_claim_has(lab: ro.Ledger) -> None:
    planned = tracker(lab).plan("vm", "box-0", "VCPU=2")
    with pytest.raises(exceptions.CapacityException, match="limit"):
        planned.allocate(limits="VCPU=1")
    planned.allocate(limits="VCPU=2", expires_in=HALF_HOUR)
    assert planned.claim is not None and planned.claim.expires_at is not None


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("overhead", ["", "MEMORY_MB=64"])
@pytest.mark.parametrize(
    ("asked", "limits", "told"),
    [
        ("VCPU=2", "VCPU=3", "VCPU requested 2, free 1 under the limit of 3"),
        ("VCPU=2,CUSTOM_FPGA=1", "VCPU=3", "VCPU requested 2, free 1 under the limit of 3"),
        (
            ro.Request("VCPU=2").with_group("f", "CUSTOM_FPGA=1", required=["CUSTOM_FAST"]),
            {"VCPU": 3},
            "VCPU requested 2, free 1 under the limit of 3",
        ),
        (WHOLE, "PCPU=1", "PCPU requested 2, free 1 under the limit of 1"),
        (WHOLE, "DISK_GB=5", "DISK_GB requested 10, free 5 under the limit of 5"),
    ],
    ids=["counts", "child", "conditions", "cpus", "beside"],
)
def test_a_plan_is_decided_under_limits_as_a_claim_is(
    lab: ro.Ledger, asked: Any, limits: Any, told: str, overhead: str
) -> None:
    mine = tracker(lab, overhead=overhead)
    mine.claim("other", "box-0", "VCPU=2")
    before, refusals = lab.feed.cursor(), []
    for verb in (mine.plan, mine.claim):
        with pytest.raises(exceptions.NoCandidates, match=told) as refused:
            verb("vm", "box-0", asked, limits=limits)
        refusals.append(refused.value.reasons)
    assert refusals[0] == refusals[1] and Rule.LIMIT in {one.rule for one in refusals[0]}
    assert lab.feed.cursor() == before
    planned = mine.plan("vm", "box-0", asked, limits="VCPU=4,PCPU=2,DISK_GB=10,MEMORY_MB=640")
    planned.allocate()
    assert planned.state is ClaimState.HELD and lab.get_claim("vm") == planned.claim


@pytest.mark.law(4)
def test_what_was_planned_under_limits_is_taken_under_them(lab: ro.Ledger) -> None:
    mine = tracker(lab)
    planned = mine.plan("vm", "box-0", "VCPU=2", limits="VCPU=3")
    mine.claim("faster", "box-0", "VCPU=2")
    for said in ({}, {"limits": "VCPU=4"}, {"limits": "DISK_GB=5"}):
        with pytest.raises(exceptions.CapacityException, match="free 1 under the limit of 3"):
            planned.allocate(**said)  # type: ignore[typeddict-item]
    assert used(lab) == {("box-0", "VCPU"): 2}
    mine.release("faster")
    with pytest.raises(exceptions.CapacityException, match="free 1 under the limit of 1"):
        planned.allocate(limits="VCPU=1")
    planned.allocate()
    assert used(lab) == {("box-0", "VCPU"): 2}


def test_a_move_is_placed_within_its_limits_where_there_is_a_place(lab: ro.Ledger) -> None:
    """Of the host itself; what a child gives is not bounded by them."""
    mine = tracker(lab)
    mine.claim("vm", "box-0", "VCPU=1")
    for kind, to in ((MigrationKind.RESIZE, "box-1"), (MigrationKind.REBUILD, "box-0")):
        with pytest.raises(exceptions.NoCandidates, match="free 1 under the limit of 1"):
            mine.move("vm", to, "VCPU=2,CUSTOM_FPGA=1", kind=kind, limits="VCPU=1")
    mine.move("vm", "box-1", "VCPU=1,CUSTOM_FPGA=2", limits="VCPU=1,CUSTOM_FPGA=0")
    assert used(lab)["box-1/fpga", "CUSTOM_FPGA"] == 2


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ("VCPU=-1", "NegativeAmount"),
        ("VCPU=x", "InvalidText"),
        ("SPOONS=1", "UnknownResourceClass"),
        (5, "InvalidField"),
    ],
)
def test_limits_that_are_none_are_refused_by_a_plan_and_a_claim(
    lab: ro.Ledger, limits: Any, error: type[Exception]
) -> None:
    mine = tracker(lab)
    for verb in (mine.plan, mine.claim):
        with raises_code(error):
            verb("vm", "box-0", "VCPU=1", limits=limits)
    assert not used(lab)


# --- out of service ---


@pytest.mark.parametrize(
    "asked",
    [
        "VCPU=1",
        WHOLE,
        "VCPU=1,CUSTOM_FPGA=1",
        ro.Request("VCPU=1").with_group("f", "CUSTOM_FPGA=1", required=["CUSTOM_FAST"]),
    ],
    ids=["counts", "located", "child", "conditions"],
)
@pytest.mark.parametrize("overhead", ["", "MEMORY_MB=64"])
def test_who_overrides_takes_also_of_what_is_out_of_service(
    everywhere_url: str, lab: ro.Ledger, asked: Any, overhead: str
) -> None:
    with contextlib.ExitStack() as opened:
        ledger = lab
        if everywhere_url != "memory://":
            ledger = opened.enter_context(ro.connect(everywhere_url, actor="admin"))
        elif lab.actor is None:
            ledger = opened.enter_context(ro.connect("memory://", actor="admin"))
            declare(ledger)
        mine = tracker(ledger, overhead=overhead)
        ledger.disable("box-0", reason="repaired")
        for verb in (mine.plan, mine.claim):
            with pytest.raises(exceptions.CapacityException, match="repaired"):
                verb("vm", "box-0", asked)
        claim = mine.claim("vm", "box-0", asked, ignore_maintenance=True)
        assert mine.claim("vm", "box-0", asked).claim == claim.claim
        claim.revert()
        planned = mine.plan("vm", "box-0", asked, ignore_maintenance=True)
        with pytest.raises(exceptions.CapacityException, match="repaired"):
            planned.allocate()
        planned.allocate(ignore_maintenance=True)
        assert planned.claim is not None and planned.amounts == claim.amounts
        with pytest.raises(exceptions.NoCandidates, match="requested 500"):
            mine.plan("vm", "box-0", "VCPU=500", ignore_maintenance=True)
        mine.move("vm", "box-0", asked, migration="m", ignore_maintenance=True)
