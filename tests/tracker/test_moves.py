"""Moves: source and destination held at once, confirmed or reverted, whoever calls, how often."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.tracker import ClaimState, Migration, MigrationKind, MigrationState
from resource_objects.host.tracker.moves import migration_id, migration_of
from resource_objects.providers.orders import ConsumerOrder, Use
from resource_objects.providers.plan import Plan
from resource_objects.providers.pools import SHARES
from resource_objects.resources.numa import NUMATopologyAmount
from resource_objects.testing.refusals import is_one_of, raises_code
from tests.tracker.labs import WHOLE, box, holdings, tracker, used

SMALL, LARGE = "VCPU=1,DISK_GB=10", "VCPU=3,DISK_GB=20"

#: Moves of a consumer that holds SMALL of box-0, that leave something behind.
LEAVING: list[tuple[MigrationKind, str, str | None]] = [
    (MigrationKind.RESIZE, "box-1", LARGE),
    (MigrationKind.RESIZE, "box-0", LARGE),
    (MigrationKind.COLD_MIGRATION, "box-1", None),
    (MigrationKind.LIVE_MIGRATION, "box-1", None),
    (MigrationKind.EVACUATION, "box-1", None),
    (MigrationKind.EVACUATION, "box-1", SMALL),
]
each_leaving = pytest.mark.parametrize(("kind", "host", "request_"), LEAVING)


def vm(lab: ro.Ledger, host: str = "box-0", asked: str = SMALL) -> None:
    """Let vm run on a host."""
    said = {"project": "p", "user": "ann", "consumer_type": "INSTANCE"}
    tracker(lab).claim("vm", host, asked, **said).confirm()


# --- both places are held ---


@pytest.mark.law(2)
@each_leaving
def test_source_and_destination_are_held_at_once(
    lab: ro.Ledger, kind: MigrationKind, host: str, request_: str | None
) -> None:
    vm(lab)
    move = tracker(lab).move("vm", host, request_, kind=kind, migration="m")
    assert (move.state, move.from_host, move.to_host) == (MigrationState.MOVING, "box-0", host)
    assert str(move) == f"vm: box-0 -> {host}, moving"
    wanted = ro.Amounts(request_ or SMALL)
    assert lab.get_claim("vm").by_provider() == {host: wanted}
    left = lab.get_claim(migration_of("vm"))
    assert left.by_provider() == {"box-0": ro.Amounts(SMALL)}
    assert (left.id, left.consumer_type) == (migration_id("vm", "m"), kind.name)
    assert (left.project, left.user) == ("p", "ann")


@pytest.mark.law(3)
@each_leaving
def test_confirmed_the_source_is_given_back(
    lab: ro.Ledger, kind: MigrationKind, host: str, request_: str | None
) -> None:
    vm(lab)
    tracker(lab).move("vm", host, request_, kind=kind, migration="m")
    for _ in range(2):  # the second confirmation is harmless
        assert tracker(lab).confirm_move("vm", "m").state is MigrationState.CONFIRMED
        assert used(lab) == {(host, k): int(v) for k, v in _counts(request_ or SMALL).items()}
    assert lab.get_claim("vm").consumer_type == "INSTANCE"
    assert tracker(lab).get_claim("vm").state is ClaimState.CONFIRMED


@pytest.mark.law(3)
@each_leaving
def test_reverted_all_is_as_before(
    lab: ro.Ledger, kind: MigrationKind, host: str, request_: str | None
) -> None:
    vm(lab)
    before, claim = used(lab), lab.get_claim("vm")
    tracker(lab).move("vm", host, request_, kind=kind, migration="m")
    for _ in range(2):
        assert tracker(lab).revert_move("vm", "m").state is MigrationState.REVERTED
        assert used(lab) == before
    after = lab.get_claim("vm")
    assert after == claim.replace(generation=after.generation)
    assert list(holdings(lab)) == ["vm"]


def _counts(asked: str) -> Mapping[str, Any]:
    return dict(ro.Amounts(asked).by_name())


@pytest.mark.law(2)
def test_a_resize_within_a_host_needs_room_for_both(lab: ro.Ledger) -> None:
    vm(lab, asked="VCPU=2")
    with pytest.raises(exceptions.NoCandidates, match="free 2 of 4"):
        tracker(lab).move("vm", "box-0", "VCPU=3", migration="m")
    assert holdings(lab) == {"vm": "VCPU=2 of box-0"}
    tracker(lab).move("vm", "box-0", "VCPU=2,DISK_GB=1", migration="m")
    with pytest.raises(exceptions.NoCandidates):
        tracker(lab).claim("other", "box-0", "VCPU=1")
    tracker(lab).confirm_move("vm", "m")
    tracker(lab).claim("other", "box-0", "VCPU=2")


@pytest.mark.law(2)
def test_cpus_and_devices_of_both_sizes_are_others(lab: ro.Ledger) -> None:
    vm(lab, asked=WHOLE)
    before = lab.assigned_amounts("vm")
    tracker(lab).move("vm", "box-0", WHOLE.replace("dedicated=2", "dedicated=4"), migration="m")
    taken = [
        unit
        for name in ("vm", "vm/migration")
        for one in lab.get_claim(name).allocations
        for unit in one.units
    ]
    assert len(taken) == len(set(taken)) == 2 + 4 + 2
    tracker(lab).revert_move("vm", "m")
    assert lab.assigned_amounts("vm") == before


@pytest.mark.law(2)
def test_what_does_not_fit_moves_nothing(lab: ro.Ledger) -> None:
    vm(lab)
    tracker(lab).claim("other", "box-1", "VCPU=4")
    before = holdings(lab)
    for kind in (
        MigrationKind.COLD_MIGRATION,
        MigrationKind.LIVE_MIGRATION,
        MigrationKind.EVACUATION,
    ):
        with pytest.raises(exceptions.NoCandidates, match="other holds 4"):
            tracker(lab).move("vm", "box-1", kind=kind, migration="m")
    with raises_code("ProviderNotFound"):
        tracker(lab).move("vm", "box-9", LARGE)
    assert holdings(lab) == before
    assert not tracker(lab).moves()


def test_a_block_that_raises_reverts(lab: ro.Ledger) -> None:
    vm(lab)
    with pytest.raises(ZeroDivisionError), tracker(lab).move("vm", "box-1", LARGE):
        1 / 0  # noqa: B018
    assert holdings(lab) == {"vm": "VCPU=1 of box-0, DISK_GB=10 of box-0"}


def test_a_dead_host_is_left_though_it_is_out_of_service(lab: ro.Ledger) -> None:
    vm(lab)
    lab.disable("box-0", reason="dead")
    tracker(lab).move("vm", "box-1", kind=MigrationKind.EVACUATION, migration="m")
    tracker(lab).revert_move("vm", "m")  # it could not be started there
    tracker(lab).move("vm", "box-1", kind=MigrationKind.EVACUATION, migration="n")
    tracker(lab).confirm_move("vm", "n")
    assert lab.get_claim("vm").by_provider() == {"box-1": ro.Amounts(SMALL)}


# --- one side: rebuild, shelve, unshelve ---


def test_a_rebuild_is_done_in_place_and_at_once(lab: ro.Ledger) -> None:
    vm(lab, asked="VCPU=3")
    move = tracker(lab).move("vm", "box-0", "VCPU=4", kind=MigrationKind.REBUILD, migration="m")
    assert move.state is MigrationState.CONFIRMED
    assert used(lab) == {("box-0", "VCPU"): 4}
    for _ in range(2):
        again = tracker(lab).move(
            "vm", "box-0", "VCPU=4", kind=MigrationKind.REBUILD, migration="m"
        )
        assert again.state is tracker(lab).confirm_move("vm", "m").state is MigrationState.CONFIRMED
    with raises_code("MoveConfirmed"):
        tracker(lab).revert_move("vm", "m")
    with pytest.raises(exceptions.NoCandidates):
        tracker(lab).move("vm", "box-0", "VCPU=5", kind=MigrationKind.REBUILD)
    assert used(lab) == {("box-0", "VCPU"): 4}


@pytest.mark.law(2)
def test_a_rebuild_has_room_where_the_old_one_was(lab: ro.Ledger) -> None:
    vm(lab, asked="VCPU=3,CUSTOM_FPGA=2")  # of a child: that is searched
    tracker(lab).move("vm", "box-0", "VCPU=4,CUSTOM_FPGA=2", kind=MigrationKind.REBUILD)
    assert used(lab) == {("box-0", "VCPU"): 4, ("box-0/fpga", "CUSTOM_FPGA"): 2}


def test_a_rebuild_keeps_the_cpus_that_it_can(lab: ro.Ledger) -> None:
    vm(lab, asked="NUMA_TOPOLOGY=1:dedicated=2")
    tracker(lab).claim("other", "box-0", "NUMA_TOPOLOGY=1:dedicated=3")
    cell = lab.assigned_amounts("vm")["box-0"]["NUMA_TOPOLOGY"]
    same = "DISK_GB=5,NUMA_TOPOLOGY=1:dedicated=2"
    tracker(lab).move("vm", "box-0", same, kind=MigrationKind.REBUILD)
    assert lab.assigned_amounts("vm")["box-0"]["NUMA_TOPOLOGY"] == cell


def test_a_rebuild_keeps_the_devices_that_it_can(lab: ro.Ledger) -> None:
    host = ro.Provider("box-9", "VCPU=4")
    for number in range(3):
        host.add(f"fpga-{number}", "CUSTOM_FPGA=1")
    lab.sync(host)
    for name in ("first", "vm"):
        tracker(lab).claim(name, "box-9", "VCPU=1,CUSTOM_FPGA=1")
    lab.release("first")
    for count, kept in ((1, {"fpga-1"}), (2, {"fpga-0", "fpga-1"})):
        request = f"VCPU=3,CUSTOM_FPGA={count}"
        tracker(lab).move("vm", "box-9", request, kind=MigrationKind.REBUILD)
        assert set(lab.get_claim("vm").by_provider()) == {"box-9", *kept}


def test_who_is_shelved_holds_nothing_and_comes_back_anywhere(lab: ro.Ledger) -> None:
    vm(lab)
    for _ in range(2):
        shelved = tracker(lab).move("vm", None, kind=MigrationKind.SHELVE, migration="s")
        assert shelved.state is MigrationState.CONFIRMED
        assert not used(lab)
    assert tracker(lab).confirm_move("vm", "s").state is MigrationState.CONFIRMED
    with raises_code("MoveConfirmed"):
        tracker(lab).revert_move("vm", "s")
    for _ in range(2):
        move = tracker(lab).move("vm", "box-1", SMALL, kind=MigrationKind.UNSHELVE, migration="u")
        assert (move.state, move.from_host, move.to_host) == (MigrationState.MOVING, None, "box-1")
    for _ in range(2):
        assert tracker(lab).confirm_move("vm", "u").state is MigrationState.CONFIRMED
    assert tracker(lab).get_claim("vm").state is ClaimState.CONFIRMED
    with raises_code("MoveConfirmed"):
        tracker(lab).revert_move("vm", "u")


def test_an_unshelving_that_fails_is_reverted(lab: ro.Ledger) -> None:
    tracker(lab).move("vm", "box-1", SMALL, kind=MigrationKind.UNSHELVE, migration="u")
    for _ in range(2):
        assert tracker(lab).revert_move("vm", "u").state is MigrationState.REVERTED
        assert not used(lab)
    with raises_code("MoveReverted"):
        tracker(lab).confirm_move("vm", "u")
    tracker(lab).move("vm", "box-0", SMALL, kind=MigrationKind.UNSHELVE, migration="again")
    assert tracker(lab).revert_move("vm", "u").state is MigrationState.REVERTED
    assert used(lab)  # by the other one


# --- what stays the same on the way ---


def _pages(lab: ro.Ledger, consumer: str, host: str) -> set[int | None]:
    amount = lab.assigned_amounts(consumer)[host]["NUMA_TOPOLOGY"]
    assert isinstance(amount, NUMATopologyAmount)
    return {one.page_size_kib for one in amount.placed}


PAGES = "NUMA_TOPOLOGY=1:dedicated=1:memory=512:page_size=large"


def test_a_live_migration_keeps_the_size_of_its_pages(lab: ro.Ledger) -> None:
    vm(lab, asked=PAGES)
    assert _pages(lab, "vm", "box-0") == {2048}
    tracker(lab).move("vm", "box-1", kind=MigrationKind.LIVE_MIGRATION, migration="m")
    assert _pages(lab, "vm", "box-1") == {2048}
    # the agent at the destination asks for what the flavor says
    assert tracker(lab).claim("vm", "box-1", PAGES).claim == lab.get_claim("vm")
    tracker(lab).confirm_move("vm", "m")


def test_a_live_migration_has_no_other_pages(lab: ro.Ledger) -> None:
    lab.sync(box("box-2", pages=0))
    vm(lab, asked=PAGES)
    before = holdings(lab)
    with pytest.raises(exceptions.NoCandidates, match="2 cells without CUSTOM_HUGEPAGES_2048KB"):
        tracker(lab).move("vm", "box-2", kind=MigrationKind.LIVE_MIGRATION)
    for other in (
        "NUMA_TOPOLOGY=1:dedicated=1:memory=512",
        "NUMA_TOPOLOGY=1:dedicated=1:memory=512:page_size=1GB",
    ):
        with raises_code("InvalidMove", match="pages of 2048 KiB, as the consumer has"):
            tracker(lab).move("vm", "box-1", other, kind=MigrationKind.LIVE_MIGRATION)
    assert holdings(lab) == before
    plain = "NUMA_TOPOLOGY=1:dedicated=1:memory=512"
    tracker(lab).move("vm", "box-2", plain, kind=MigrationKind.RESIZE)  # copied while it is off


def test_what_the_source_takes_besides_stays_there(lab: ro.Ledger) -> None:
    there, here = tracker(lab, overhead="MEMORY_MB=64"), tracker(lab, overhead="MEMORY_MB=8")
    there.claim("vm", "box-0", "VCPU=1,MEMORY_MB=100")
    here.move("vm", "box-1", kind=MigrationKind.COLD_MIGRATION, migration="m")
    here.confirm_move("vm", "m")
    assert used(lab) == {("box-1", "VCPU"): 1, ("box-1", "MEMORY_MB"): 108}


def test_conditions_go_along(lab: ro.Ledger) -> None:
    fast = ro.Request("VCPU=1").with_group("f", "CUSTOM_FPGA=1", required=["CUSTOM_FAST"])
    tracker(lab).claim("vm", "box-0", fast)
    lab.change("box-1/fpga", traits=[])
    with pytest.raises(exceptions.NoCandidates, match="CUSTOM_FAST"):
        tracker(lab).move("vm", "box-1", kind=MigrationKind.COLD_MIGRATION)


# --- at the destination ---


def test_the_destination_refits_and_the_move_goes_on(lab: ro.Ledger) -> None:
    asked = "NUMA_TOPOLOGY=1:dedicated=2"
    vm(lab, asked=asked)
    tracker(lab).move("vm", "box-1", kind=MigrationKind.LIVE_MIGRATION, migration="m")

    def accept(host: str, consumer: str, held: Mapping[str, ro.Amounts]) -> Any:
        amount = held[host]["NUMA_TOPOLOGY"]
        assert isinstance(amount, NUMATopologyAmount)
        placed = [one.replace(cell=1, pins={0: 5, 1: 7}) for one in amount.placed]
        return {host: {"NUMA_TOPOLOGY": amount.replace(placed=placed)}}

    tracker(lab, accept=accept).claim("vm", "box-1", asked)
    assert tracker(lab).get_move("vm").id == migration_id("vm", "m")
    tracker(lab).confirm_move("vm", "m")
    amount = lab.assigned_amounts("vm")["box-1"]["NUMA_TOPOLOGY"]
    assert isinstance(amount, NUMATopologyAmount) and amount.cpuset == "5,7"


def test_the_destination_refuses_and_the_move_is_reverted(lab: ro.Ledger) -> None:
    def accept(host: str, consumer: str, held: Mapping[str, ro.Amounts]) -> Any:
        raise exceptions.HostRefused(host, consumer, "no firmware")

    vm(lab)
    before = holdings(lab)
    there = tracker(lab, accept=accept)
    with pytest.raises(exceptions.HostRefused), tracker(lab).move("vm", "box-1", SMALL):
        there.claim("vm", "box-1", SMALL)
    assert holdings(lab) == before


def test_a_claim_at_the_destination_that_fails_reverts_the_move(lab: ro.Ledger) -> None:
    vm(lab)
    before = holdings(lab)
    tracker(lab).move("vm", "box-1", LARGE, migration="m")
    with pytest.raises(ZeroDivisionError), tracker(lab).claim("vm", "box-1", LARGE):
        1 / 0  # noqa: B018
    assert holdings(lab) == before
    with raises_code("MoveReverted"):
        tracker(lab).confirm_move("vm", "m")


def test_who_is_deleted_on_the_way_leaves_nothing(lab: ro.Ledger) -> None:
    vm(lab)
    tracker(lab).move("vm", "box-1", LARGE, migration="m")
    assert tracker(lab).release("vm").by_provider() == {"box-1": ro.Amounts(LARGE)}
    assert not holdings(lab)
    assert tracker(lab).revert_move("vm", "m").state is MigrationState.REVERTED
    with raises_code("MoveReverted"):
        tracker(lab).confirm_move("vm", "m")


def test_what_was_released_alone_can_be_confirmed_away(lab: ro.Ledger) -> None:
    vm(lab)
    tracker(lab).move("vm", "box-1", LARGE, migration="m")
    lab.release("vm")
    [move] = tracker(lab).moves("box-0")
    assert (move.from_host, move.to_host) == ("box-0", None)
    with raises_code("ConsumerNotFound"):
        move.revert()
    move.confirm()
    assert not holdings(lab)


# --- by whom, how often, and in which order ---


@pytest.mark.law(4)
@each_leaving
def test_a_move_that_is_begun_again_is_the_same_move(
    lab: ro.Ledger, kind: MigrationKind, host: str, request_: str | None
) -> None:
    vm(lab)
    first = tracker(lab).move("vm", host, request_, kind=kind, migration="m")
    before = holdings(lab)
    again = tracker(lab).move("vm", host, request_, kind=kind, migration="m")
    assert (again.destination, again.state) == (first.destination, first.state)
    assert holdings(lab) == before
    tracker(lab).confirm_move("vm", "m")
    before = holdings(lab)
    again = tracker(lab).move("vm", host, request_, kind=kind, migration="m")
    assert again.state is MigrationState.CONFIRMED
    assert holdings(lab) == before


@pytest.mark.law(6)
@pytest.mark.parametrize("asked", [SMALL, WHOLE], ids=["counts", "located"])
@pytest.mark.parametrize(
    ("kind", "host", "request_"),
    [
        (MigrationKind.RESIZE, "box-1", LARGE),
        (MigrationKind.RESIZE, "box-0", LARGE),
        (MigrationKind.LIVE_MIGRATION, "box-1", None),
        (MigrationKind.REBUILD, "box-0", LARGE),
        (MigrationKind.SHELVE, None, None),
        (MigrationKind.UNSHELVE, "box-1", LARGE),
    ],
)
def test_whoever_begins_ends_or_repeats_a_move_gets_what_is_equal(
    lab: ro.Ledger, asked: str, kind: MigrationKind, host: str | None, request_: str | None
) -> None:
    def begun(number: str) -> Migration:
        return tracker(lab).move("vm", host, request_, kind=kind, migration=number)

    for number, verb in (("m", "confirm_move"), ("n", "revert_move")):
        if kind is not MigrationKind.UNSHELVE:
            vm(lab, asked=asked)
        is_over = kind in (MigrationKind.REBUILD, MigrationKind.SHELVE)
        move = begun(number)
        assert begun(number) == move
        if is_over:
            assert tracker(lab).confirm_move("vm", number) == move
        else:
            if kind is not MigrationKind.UNSHELVE:
                assert tracker(lab).get_move("vm") == move and tracker(lab).moves() == (move,)
                assert move.source == lab.get_claim(migration_of("vm"))
            ended = getattr(tracker(lab), verb)("vm", number)
            assert getattr(tracker(lab), verb)("vm", number) == ended == begun(number)
            assert ended != move and (ended.from_host, ended.to_host) == (
                move.from_host,
                move.to_host,
            )
        for consumer in holdings(lab):
            lab.release(consumer)


@pytest.mark.law(6)
@pytest.mark.parametrize("asked", [SMALL, "VCPU=1"])
@pytest.mark.parametrize("verb", ["confirm_move", "revert_move", "release"])
def test_a_move_that_took_nothing_more_is_known_by_where_it_went(
    lab: ro.Ledger, asked: str, verb: str
) -> None:
    def begun(host: str) -> Migration:
        return tracker(lab).move("vm", host, asked, kind=MigrationKind.RESIZE, migration="m")

    vm(lab)
    assert begun("box-0").to_host == "box-0"
    if verb == "release":
        tracker(lab).release("vm")
    else:
        getattr(tracker(lab), verb)("vm", "m")
        lab.renew("vm", expires_at=datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC))
    ended = begun("box-0")
    wanted = MigrationState.CONFIRMED if verb == "confirm_move" else MigrationState.REVERTED
    assert (ended.state, ended.from_host, ended.to_host) == (wanted, "box-0", "box-0")
    kept = None if verb == "release" else lab.get_claim("vm")
    assert (ended.source or ended.destination) == kept
    with raises_code("InvalidMove", match="box-0, its destination"):
        begun("box-1")


def test_an_agent_that_starts_again_finds_its_moves(lab: ro.Ledger) -> None:
    vm(lab)
    for name in ("stays", "web-2"):
        tracker(lab).claim(name, "box-1", "VCPU=1")
    move = tracker(lab).move("vm", "box-1", SMALL, migration="m")
    same = tracker(lab).move("web-2", "box-1", "DISK_GB=1", migration="n")
    for host, found in (("box-0", [move]), ("box-1", [move, same]), (None, [move, same])):
        moves = tracker(lab).moves(host)
        assert [str(one) for one in moves] == [str(one) for one in found]
        assert [one.id for one in moves] == [one.id for one in found]
    tracker(lab).moves("box-0")[0].confirm()
    tracker(lab).moves("box-1")[0].revert()
    assert not tracker(lab).moves()


def test_a_uuid_is_the_id_of_a_migration(lab: ro.Ledger) -> None:
    vm(lab)
    uuid = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"
    assert tracker(lab).move("vm", "box-1", SMALL, migration=uuid.upper()).id == uuid
    tracker(lab).claim("web", "box-0", "VCPU=1")
    with raises_code("OperationConflict"):
        tracker(lab).move("web", "box-1", "VCPU=1", migration=uuid)  # somebody else's
    assert tracker(lab).confirm_move("vm", uuid).state is MigrationState.CONFIRMED


# --- begun by several, and repeated when it is over ---


def _between(monkeypatch: pytest.MonkeyPatch, where: type, look: str, do: Any) -> None:
    """Do something once, after the first look."""
    looks, done = getattr(where, look), []

    def looked(self: Any, *args: Any, **how: Any) -> Any:
        found = looks(self, *args, **how)
        found = list(found) if look == "consumers" else found
        if not done:
            done.append(True)
            do()
        return found

    monkeypatch.setattr(where, look, looked)


BEGUN: list[tuple[MigrationKind, str | None, str | None]] = [
    *LEAVING,
    (MigrationKind.REBUILD, "box-0", LARGE),
    (MigrationKind.SHELVE, None, None),
    (MigrationKind.UNSHELVE, "box-1", LARGE),
]


@pytest.mark.law(4)
@pytest.mark.parametrize(("kind", "host", "request_"), BEGUN)
@pytest.mark.parametrize("look", ["consumers", "outcome"])
def test_of_two_that_begin_one_move_both_get_it(
    lab: ro.Ledger,
    monkeypatch: pytest.MonkeyPatch,
    kind: MigrationKind,
    host: str | None,
    request_: str | None,
    look: str,
) -> None:
    if kind is not MigrationKind.UNSHELVE:
        vm(lab)
    first: list[Any] = []

    def begin() -> Any:
        return tracker(lab).move("vm", host, request_, kind=kind, migration="m")

    where = ro.Ledger if look == "consumers" else type(lab.backend)
    _between(monkeypatch, where, look, lambda: first.append(begin()))
    second = begin()
    assert (second.id, second.state) == (first[0].id, first[0].state)
    assert (second.from_host, second.to_host) == (first[0].from_host, first[0].to_host)


@pytest.mark.law(4)
def test_of_two_that_begin_one_move_to_a_host_it_fills_both_get_it(
    lab: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "VCPU=3,CUSTOM_FPGA=2"  # of a child: that is searched
    vm(lab, asked=asked)

    def begin() -> Any:
        return tracker(lab).move("vm", "box-1", kind=MigrationKind.COLD_MIGRATION, migration="m")

    _between(monkeypatch, ro.Ledger, "consumers", begin)
    assert begin().state is MigrationState.MOVING


def test_a_repeat_of_a_move_that_went_elsewhere_is_refused(lab: ro.Ledger) -> None:
    for end in ("confirm_move", "revert_move"):
        vm(lab, asked=SMALL)
        tracker(lab).move("vm", "box-1", LARGE, migration=end)
        for is_over in (False, True):
            if is_over:
                getattr(tracker(lab), end)("vm", end)
            for kind, host, asked in (
                (MigrationKind.RESIZE, "box-0", LARGE),
                (MigrationKind.EVACUATION, "box-1", LARGE),
                (MigrationKind.SHELVE, None, None),
            ):
                with raises_code("InvalidMove"):
                    tracker(lab).move("vm", host, asked, kind=kind, migration=end)
            if end == "confirm_move" or not is_over:
                with raises_code("InvalidMove"):
                    tracker(lab).move("vm", "box-1", "VCPU=2", migration=end)
            assert tracker(lab).move("vm", "box-1", LARGE, migration=end).id
        lab.release("vm")


def test_a_move_that_ended_tells_where_it_went_whatever_came_later(lab: ro.Ledger) -> None:
    vm(lab)
    tracker(lab).move("vm", "box-1", LARGE, migration="m")
    tracker(lab).confirm_move("vm", "m")
    tracker(lab).move("vm", "box-0", SMALL, migration="n")
    again = tracker(lab).move("vm", "box-1", LARGE, migration="m")
    assert str(again) == "vm: box-0 -> box-1, confirmed"
    assert again.destination is None  # it is elsewhere by now


def test_who_was_unshelved_and_released_did_not_arrive(lab: ro.Ledger) -> None:
    tracker(lab).move("vm", "box-1", SMALL, kind=MigrationKind.UNSHELVE, migration="u")
    tracker(lab).release("vm")
    with raises_code("MoveReverted"):
        tracker(lab).confirm_move("vm", "u")
    assert tracker(lab).revert_move("vm", "u").state is MigrationState.REVERTED
    tracker(lab).claim("vm", "box-1", SMALL)  # of another life
    with raises_code("MoveReverted"):
        tracker(lab).confirm_move("vm", "u")


# --- of which kind ---


@pytest.mark.parametrize(("kind", "host", "request_"), BEGUN)
def test_the_kind_of_a_move_is_kept(
    lab: ro.Ledger, kind: MigrationKind, host: str | None, request_: str | None
) -> None:
    if kind is not MigrationKind.UNSHELVE:
        vm(lab)
    assert tracker(lab).move("vm", host, request_, kind=kind, migration="m").kind is kind
    if kind in (one for one, *_ in LEAVING):
        [found] = tracker(lab).moves()
        assert found.kind is tracker(lab).get_move("vm").kind is kind
    assert tracker(lab).confirm_move("vm", "m").kind is kind
    assert tracker(lab).move("vm", host, request_, kind=kind, migration="m").kind is kind


def test_a_move_that_no_tracker_began_is_ended_like_any_other(lab: ro.Ledger) -> None:
    vm(lab)
    said = {"source_consumer": migration_of("vm"), "source_consumer_id": migration_id("vm", "m")}
    lab.move("vm", {"box-1": SMALL}, source_consumer_type="MIGRATION", **said)
    move = tracker(lab).get_move("vm")
    assert (move.kind, move.from_host, move.to_host) == (None, "box-0", "box-1")
    assert tracker(lab).revert_move("vm", "m").state is MigrationState.REVERTED


# --- wrong states ---


def _nothing(lab: ro.Ledger) -> None:
    pass


def _moving(lab: ro.Ledger) -> None:
    tracker(lab).move("vm", "box-1", LARGE, migration="m")


def _confirmed(lab: ro.Ledger) -> None:
    _moving(lab)
    tracker(lab).confirm_move("vm", "m")


def _reverted(lab: ro.Ledger) -> None:
    _moving(lab)
    tracker(lab).revert_move("vm", "m")


KIND = MigrationKind
WRONG: list[tuple[Any, str, tuple[Any, ...], dict[str, Any], type[Exception]]] = [
    (_nothing, "confirm_move", ("vm", "m"), {}, "MoveNotFound"),
    (_nothing, "revert_move", ("vm", "m"), {}, "MoveNotFound"),
    (_nothing, "get_move", ("vm",), {}, "MoveNotFound"),
    (_moving, "confirm_move", ("vm", "other"), {}, "MoveNotFound"),
    (_moving, "revert_move", ("vm", "other"), {}, "MoveNotFound"),
    (_moving, "confirm_move", ("nobody", "m"), {}, "MoveNotFound"),
    (_confirmed, "revert_move", ("vm", "m"), {}, "MoveConfirmed"),
    (_confirmed, "get_move", ("vm",), {}, "MoveNotFound"),
    (_reverted, "confirm_move", ("vm", "m"), {}, "MoveReverted"),
    (_moving, "move", ("vm", "box-0", SMALL), {}, "MoveInProgress"),
    (_moving, "move", ("vm", "box-0", SMALL), {"migration": "m"}, "InvalidMove"),
    (_moving, "move", ("vm", "box-1", SMALL), {"migration": "m"}, "InvalidMove"),
    (_moving, "move", ("vm", None), {"kind": KIND.SHELVE}, "MoveInProgress"),
    (_moving, "move", ("vm", "box-1", SMALL), {"kind": KIND.REBUILD}, "MoveInProgress"),
    (_nothing, "move", ("nobody", "box-1", SMALL), {}, "ConsumerNotFound"),
    (_nothing, "move", ("nobody", None), {"kind": KIND.SHELVE}, "ConsumerNotFound"),
    (_nothing, "move", ("vm", "box-1", SMALL), {"kind": KIND.UNSHELVE}, "ConsumerExists"),
    (_nothing, "move", ("vm", "box-1"), {}, "InvalidMove"),
    (_nothing, "move", ("vm", None, SMALL), {}, "InvalidMove"),
    (_nothing, "move", ("vm", "box-0"), {"kind": KIND.COLD_MIGRATION}, "InvalidMove"),
    (_nothing, "move", ("vm", "box-0"), {"kind": KIND.LIVE_MIGRATION}, "InvalidMove"),
    (_nothing, "move", ("vm", "box-0"), {"kind": KIND.EVACUATION}, "InvalidMove"),
    (_nothing, "move", ("vm", "box-1", SMALL), {"kind": KIND.REBUILD}, "InvalidMove"),
    (_nothing, "move", ("vm", "box-0"), {"kind": KIND.REBUILD}, "InvalidMove"),
    (_nothing, "move", ("vm", "box-0"), {"kind": KIND.SHELVE}, "InvalidMove"),
    (_nothing, "move", ("vm", None, SMALL), {"kind": KIND.SHELVE}, "InvalidMove"),
    (_nothing, "move", ("vm", "box-1"), {"kind": KIND.UNSHELVE}, "InvalidMove"),
    (_nothing, "move", ("vm", "box-1", SMALL), {"kind": "resize"}, "InvalidMove"),
    (_nothing, "move", ("vm", "box-1", SMALL), {"migration": ""}, "InvalidName"),
    (_nothing, "move", ("", "box-1", SMALL), {}, "InvalidName"),
    (_nothing, "move", ("vm", "", SMALL), {}, "InvalidName"),
    (_nothing, "move", ("v" * 250, "box-1", SMALL), {}, "InvalidName"),
]


def test_refusals_name_a_migration_as_its_caller_does(lab: ro.Ledger) -> None:
    vm(lab)
    _moving(lab)
    with raises_code("MoveInProgress", match=r"by migration m; confirm or revert it first$"):
        tracker(lab).move("vm", "box-0", SMALL, migration="other")
    with raises_code(
        "MoveNotFound", match=r"migration other is not recorded; it is moving by migration m$"
    ):
        tracker(lab).confirm_move("vm", "other")
    tracker(lab).confirm_move("vm", "m")
    with raises_code("MoveConfirmed", match=r"migration m$"):
        tracker(lab).revert_move("vm", "m")
    made = migration_id("vm", None)
    tracker(lab).move("vm", "box-0", SMALL, migration=made)
    with raises_code("MoveInProgress", match=f"by migration {made}; confirm"):
        tracker(lab).move("vm", "box-1", SMALL)


@pytest.mark.law(2)
@pytest.mark.parametrize(("before", "what", "given", "named", "error"), WRONG)
def test_a_wrong_state_is_one_clear_error_and_changes_nothing(
    lab: ro.Ledger,
    before: Any,
    what: str,
    given: tuple[Any, ...],
    named: dict[str, Any],
    error: type[Exception] | str,
) -> None:
    vm(lab)
    before(lab)
    held = holdings(lab)
    with raises_code(error) as refusal:
        getattr(tracker(lab), what)(*given, **named)
    assert is_one_of(refusal.value, error)
    assert holdings(lab) == held


def test_who_holds_something_of_two_hosts_says_what_it_wants(lab: ro.Ledger) -> None:
    lab.claim("vm", {"box-0": "VCPU=1", "box-1": "VCPU=1"})
    with raises_code("InvalidMove", match="has allocations of box-0, box-1"):
        tracker(lab).move("vm", "box-1", kind=MigrationKind.COLD_MIGRATION)


# --- hosts that shrank below their use ---

#: Figures of a host of which a consumer uses VCPU=3, each against a unit rule or below the use.
SHRUNK = [
    "VCPU=4:max_unit=2",
    "VCPU=4:min_unit=4",
    "VCPU=4:step_size=2",
    "VCPU=2:max_unit=2:allocation_ratio=2.0",
    "VCPU=2:max_unit=2",
    "VCPU=4:reserved=2:max_unit=2",
]


def shrink(ledger: ro.Ledger, host: str, figures: str) -> None:
    """Change the VCPU inventory of a host."""
    tree = ledger.provider(host)
    now = {**dict(tree.inventories.by_name()), **dict(ro.Inventories(figures).by_name())}
    tree.update(inventories=ro.Inventories(now))
    ledger.sync(tree)


@pytest.mark.law(3)
@each_leaving
@pytest.mark.parametrize("figures", SHRUNK)
def test_a_host_that_shrank_below_its_use_can_be_left_and_restored(
    lab: ro.Ledger, figures: str, kind: MigrationKind, host: str, request_: str | None
) -> None:
    if host == "box-0":
        host, request_ = "box-1", "VCPU=2,DISK_GB=20"
    vm(lab, asked=LARGE)
    before = holdings(lab)
    shrink(lab, "box-0", figures)
    for end in ("revert_move", "confirm_move"):
        tracker(lab).move("vm", host, request_, kind=kind, migration=end)
        assert ro.Amounts(lab.get_claim("vm/migration").amounts) == ro.Amounts(LARGE)
        getattr(tracker(lab), end)("vm", end)
        if end == "revert_move":
            assert holdings(lab) == before
    assert lab.get_claim("vm").by_provider() == {host: ro.Amounts(request_ or LARGE)}


@pytest.mark.parametrize("end", ["confirm_move", "revert_move"])
def test_a_host_that_shrank_while_a_consumer_moved_within_it(lab: ro.Ledger, end: str) -> None:
    vm(lab, asked="VCPU=2,DISK_GB=10")
    tracker(lab).move("vm", "box-0", "VCPU=1,DISK_GB=20", migration="m")
    shrink(lab, "box-0", "VCPU=1:max_unit=1")
    getattr(tracker(lab), end)("vm", "m")
    kept = "VCPU=1,DISK_GB=20" if end == "confirm_move" else "VCPU=2,DISK_GB=10"
    assert lab.get_claim("vm").by_provider() == {"box-0": ro.Amounts(kept)}


@pytest.mark.law(3)
def test_a_resize_within_a_host_that_shrank_keeps_what_was_used(lab: ro.Ledger) -> None:
    vm(lab, asked="VCPU=2,DISK_GB=10")
    shrink(lab, "box-0", "VCPU=4:max_unit=1")
    tracker(lab).move("vm", "box-0", "VCPU=1,DISK_GB=20", migration="m")
    assert used(lab)["box-0", "VCPU"] == 3
    tracker(lab).revert_move("vm", "m")
    assert lab.get_claim("vm").by_provider() == {"box-0": ro.Amounts("VCPU=2,DISK_GB=10")}


def test_a_rebuild_is_judged_by_the_unit_rules_of_what_changes(lab: ro.Ledger) -> None:
    vm(lab, asked="VCPU=3,DISK_GB=10")
    shrink(lab, "box-0", "VCPU=4:max_unit=2,DISK_GB=100:max_unit=20")
    for asked in ("VCPU=4,DISK_GB=10", "VCPU=3,DISK_GB=21"):
        with pytest.raises(exceptions.CapacityException, match="one claim allocates at most"):
            tracker(lab).move("vm", "box-0", asked, kind=MigrationKind.REBUILD)
    tracker(lab).move("vm", "box-0", "VCPU=3,DISK_GB=20", kind=MigrationKind.REBUILD)
    assert lab.get_claim("vm").by_provider() == {"box-0": ro.Amounts("VCPU=3,DISK_GB=20")}
    tracker(lab).move("vm", None, kind=MigrationKind.SHELVE)
    with pytest.raises(exceptions.CapacityException, match="one claim allocates at most 2"):
        tracker(lab).claim("vm", "box-0", "VCPU=3")


@pytest.mark.law(3)
def test_topology_and_device_are_left_whatever_the_unit_rules(lab: ro.Ledger) -> None:
    vm(lab, asked=WHOLE + ",VCPU=3")
    before = holdings(lab)
    shrink(lab, "box-0", "VCPU=2:max_unit=2")
    tracker(lab).move("vm", "box-1", kind=MigrationKind.LIVE_MIGRATION, migration="m")
    tracker(lab).revert_move("vm", "m")
    assert holdings(lab) == before
    bigger = WHOLE.replace("DISK_GB=10", "DISK_GB=20") + ",VCPU=3"
    tracker(lab).move("vm", "box-0", bigger, kind=MigrationKind.REBUILD)
    assert lab.get_claim("vm").amounts["DISK_GB"] == ro.Amounts("DISK_GB=20")["DISK_GB"]


@pytest.mark.law(5)
def test_unit_rules_bind_what_no_consumer_of_the_write_had(lab: ro.Ledger) -> None:
    lab.claim("vm", {"box-0": "VCPU=3"})
    shrink(lab, "box-0", "VCPU=4:max_unit=2:allocation_ratio=4.0")
    at = lab.provider("box-0").uuid or ""

    def use(amount: int) -> tuple[Use, ...]:
        return (Use(at, "VCPU", amount),)

    gone = ConsumerOrder.release("vm")
    for orders in (
        [gone, ConsumerOrder.claim("left", use(4))],
        [gone, ConsumerOrder.claim("left", use(3)), ConsumerOrder.claim("other", use(3))],
    ):
        with raises_code("UnitRuleViolated", match="one claim allocates at most 2"):
            lab.apply(Plan(orders=tuple(orders)))
    lab.move("vm", {"box-1": "VCPU=1"}, source_consumer="left")
    lab.claim("other", {"box-1": "VCPU=1"})
    lab.swap("left", "other")
    assert holdings(lab)["other"] == "VCPU=3 of box-0"


# --- next to a pool ---


@each_leaving
@pytest.mark.parametrize("is_reverted", [False, True])
def test_a_move_next_to_a_pool_needs_no_second_share_of_it(
    lab: ro.Ledger, kind: MigrationKind, host: str, request_: str | None, is_reverted: bool
) -> None:
    lab.sync(*(ro.Provider(name, "VCPU=4", aggregates=["row"]) for name in ("box-0", "box-1")))
    lab.sync(ro.Provider("ceph", "DISK_GB=20", aggregates=["row"], traits=[SHARES]))
    vm(lab)
    before = lab.get_claim("vm")
    sizes = 10, 20 if request_ == LARGE else 10  # all of the pool, or half of it
    lab.sync(ro.Provider("ceph", f"DISK_GB={sizes[1]}", aggregates=["row"], traits=[SHARES]))
    move = tracker(lab).move("vm", host, request_, kind=kind, migration="m")
    assert lab.snapshot().used("DISK_GB") == sizes[1]
    assert tracker(lab).move("vm", host, request_, kind=kind, migration="m") == move
    if is_reverted:
        tracker(lab).revert_move("vm", "m")
        assert lab.get_claim("vm").by_provider() == before.by_provider()
        assert lab.get_claim("vm").request == before.request
    else:
        tracker(lab).confirm_move("vm", "m")
        assert lab.get_claim("vm").by_provider()["ceph"] == ro.Amounts(f"DISK_GB={sizes[1]}")
    assert lab.snapshot().used("DISK_GB") == sizes[0 if is_reverted else 1]


@each_leaving
def test_a_pool_that_shrank_below_its_use_is_no_obstacle_to_a_move(
    lab: ro.Ledger, kind: MigrationKind, host: str, request_: str | None
) -> None:
    lab.sync(*(ro.Provider(name, "VCPU=4", aggregates=["row"]) for name in ("box-0", "box-1")))
    lab.sync(ro.Provider("ceph", "DISK_GB=20", aggregates=["row"], traits=[SHARES]))
    vm(lab)
    lab.sync(ro.Provider("ceph", "DISK_GB=8:max_unit=4", aggregates=["row"], traits=[SHARES]))
    request_ = request_ and request_.replace("DISK_GB=20", "DISK_GB=10")
    for end in ("revert_move", "confirm_move"):
        tracker(lab).move("vm", host, request_, kind=kind, migration=end)
        getattr(tracker(lab), end)("vm", end)
        assert lab.get_claim("vm").by_provider()["ceph"] == ro.Amounts("DISK_GB=10")
    assert lab.snapshot().used("DISK_GB") == 10


@pytest.mark.parametrize("figures", SHRUNK)
def test_a_change_in_place_that_is_searched_keeps_what_a_host_shrank_below(
    lab: ro.Ledger, figures: str
) -> None:
    """Classes of a child are searched: the one that grows is judged, the others are not."""
    vm(lab, asked="VCPU=3,CUSTOM_FPGA=1")
    shrink(lab, "box-0", figures)
    with pytest.raises(exceptions.NoCandidates, match="CUSTOM_FPGA"):
        tracker(lab).move("vm", "box-0", "VCPU=3,CUSTOM_FPGA=3", kind=MigrationKind.REBUILD)
    with pytest.raises(exceptions.CapacityException, match="VCPU"):
        tracker(lab).move("vm", "box-0", "VCPU=5,CUSTOM_FPGA=2", kind=MigrationKind.REBUILD)
    tracker(lab).move("vm", "box-0", "VCPU=3,CUSTOM_FPGA=2", kind=MigrationKind.REBUILD)
    assert lab.get_claim("vm").by_provider() == {
        "box-0": ro.Amounts("VCPU=3"),
        "box-0/fpga": ro.Amounts("CUSTOM_FPGA=2"),
    }
