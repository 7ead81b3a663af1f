"""Server groups of a ledger: named by claims, kept by moves, judged with each write."""

from __future__ import annotations

import datetime

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import Ledger, new_operation
from resource_objects.providers import Claim, Consumer, ServerGroup
from resource_objects.providers.orders import ConsumerOrder, Operation, Use, Write
from resource_objects.requests import Gang, Member
from resource_objects.scheduler import RequestSpec, Scheduler
from resource_objects.testing.refusals import raises_code

pytestmark = pytest.mark.law(4)


@pytest.fixture
def lab(everywhere):
    everywhere.sync(*(ro.Provider(f"h{n}", "VCPU=8,MEMORY_MB=64") for n in range(3)))
    everywhere.groups.ensure("db", "anti-affinity")
    everywhere.groups.ensure("web", "affinity")
    return everywhere


def where(ledger, consumer):
    """Return the hosts of which a consumer holds something."""
    return sorted({one.provider for one in ledger.get_claim(consumer).allocations})


def test_a_group_is_named_by_a_claim_and_told_with_it(lab):
    claim = lab.claim("db-1", {"h0": "VCPU=1"}, group="db", project="p")
    assert (claim.group, lab.get_claim("db-1").group) == ("db", "db")
    lab.claim_all({"web-1": {"h1": "VCPU=1"}, "web-2": {"h1": "VCPU=2"}}, group="web")
    assert {one.name: one.group for one in lab.consumers()} == {
        "db-1": "db",
        "web-1": "web",
        "web-2": "web",
    }
    assert [one.name for one in lab.consumers(group="web")] == ["web-1", "web-2"]
    assert [(one.group, one.used) for one in lab.totals("group")] == [("db", 1), ("web", 3)]
    assert [one.used for one in lab.totals(group=["db", None])] == [1]
    found = list(lab.groups.list())
    assert [(one.name, sorted(one.members)) for one in found] == [
        ("db", ["db-1"]),
        ("web", ["web-1", "web-2"]),
    ]
    assert [one.name for one in lab.groups.list(after="db")] == ["web"]
    assert [one.name for one in lab.groups.list(limit=1)] == ["db"]
    assert found[0].to_dict()["members"] == ["db-1"]


def test_a_claim_and_a_consumer_say_their_group_on_the_wire(lab):
    lab.claim("db-1", {"h0": "VCPU=1"}, group="db")
    claim, [consumer] = lab.get_claim("db-1"), lab.consumers(name="db-1")
    assert Claim.obj_from_primitive(claim.obj_to_primitive()).group == "db"
    assert Consumer.obj_from_primitive(consumer.obj_to_primitive()).group == "db"


def test_the_feed_tells_when_a_group_is_made_and_removed(lab):
    after = lab.feed.cursor()
    lab.groups.ensure("new", "soft-affinity")
    lab.groups.remove("new")
    told = [(one.kind, one.subject) for one in lab.feed.changes(after)]
    assert sorted(told) == [("delete_group", "new"), ("ensure_group", "new")]


def test_a_repetition_makes_and_removes_once(lab):
    made, gone = (new_operation() for _ in range(2))
    first = lab.groups.ensure("new", "affinity", operation=made)
    assert lab.groups.ensure("new", "affinity", operation=made) == first
    lab.groups.remove("new", operation=gone)
    lab.groups.remove("new", operation=gone)
    with raises_code("OperationConflict"):
        lab.groups.ensure("new", "affinity", operation=gone)


def test_what_a_group_asks_is_kept_wherever_its_members_go(lab):
    lab.claim("db-1", {"h0": "VCPU=1"}, group="db")
    lab.claim("db-2", {"h1": "VCPU=1"}, group="db")
    for work in (
        lambda: lab.move("db-1", {"h1": "VCPU=1"}),
        lambda: lab.replace("db-1", {"h1": "VCPU=1"}),
        lambda: lab.adjust("db-1", {"h1": "VCPU=1"}),
        lambda: lab.claim("db-3", {"h1": "VCPU=1"}, group="db"),
    ):
        with raises_code(
            "ServerGroupViolated", match=r"^h1: group db: at most 1 of it on a host, db-2"
        ):
            work()
    lab.swap("db-1", "db-2")
    assert (where(lab, "db-1"), where(lab, "db-2")) == (["h1"], ["h0"])
    lab.move("db-1", {"h2": "VCPU=1"})
    assert lab.get_claim("db-1").group == "db"
    assert where(lab, "db-1") == ["h2"]


def test_who_holds_the_old_place_of_a_move_is_no_member(lab):
    lab.claim("web-1", {"h0": "VCPU=1"}, group="web")
    lab.claim("web-2", {"h1": "VCPU=1"})
    assert lab.move("web-1", {"h1": "VCPU=1"}, source_consumer="web-1/old").group == "web"
    assert lab.get_claim("web-1/old").group is None
    assert lab.groups.get("web").members == {"web-1"}
    lab.replace("web-2", {"h1": "VCPU=1"}, group="web")
    with raises_code("ServerGroupViolated", match="web-2 is on h1"):
        lab.swap("web-1", "web-1/old")  # back to where the other one is not
    lab.release("web-2")
    lab.swap("web-1", "web-1/old")
    assert where(lab, "web-1") == ["h0"]


def test_candidates_are_taken_in_turn_and_searched_again_until_one_may_be(lab):
    lab.claim("db-1", {"h0": "VCPU=1"}, group="db")
    found = lab.snapshot().candidates("VCPU=1", limit=3)
    assert found[0].host == "h0"
    lab.claim("db-2", found, group="db")
    assert where(lab, "db-2") == ["h1"]
    lab.claim("db-3", lab.snapshot().candidates("VCPU=1", limit=3), group="db")
    with raises_code("ServerGroupViolated"):
        lab.claim("db-4", lab.snapshot().candidates("VCPU=1", limit=3), group="db")
    assert lab.groups.get("db").members == {"db-1", "db-2", "db-3"}


def test_all_or_none_goes_elsewhere_where_the_group_refuses(lab):
    wide = lab.snapshot().candidates("VCPU=1", limit=3)
    lab.claim_all(dict.fromkeys(["db-1", "db-2", "db-3"], wide), group="db")
    assert sorted(where(lab, f"db-{n}")[0] for n in (1, 2, 3)) == ["h0", "h1", "h2"]
    with pytest.raises(exceptions.CapacityException):
        lab.claim_all({"db-4": wide, "x": wide}, group="db")


def test_expired_members_are_released_where_they_are_in_the_way(lab):
    over = lab.now() - datetime.timedelta(seconds=1)
    lab.claim("db-1", {"h0": "VCPU=1"}, group="db", expires_at=over)
    with raises_code("ServerGroupViolated"):
        lab.claim("db-2", {"h0": "VCPU=1"}, group="db")
    lab.release_expired(tree="h0")
    lab.claim("db-2", {"h0": "VCPU=1"}, group="db")
    assert lab.groups.get("db").members == {"db-2"}


@pytest.mark.parametrize(
    "work",
    [
        lambda ledger: ledger.groups.ensure("", "affinity"),
        lambda ledger: ledger.groups.ensure("x", "apart"),
        lambda ledger: ledger.groups.ensure("x", "affinity", 2),
        lambda ledger: ledger.groups.ensure("x", "anti-affinity", 0),
        lambda ledger: ledger.groups.ensure("x", "anti-affinity", True),
        lambda ledger: ledger.groups.get(3),
        lambda ledger: ledger.groups.list(limit=0),
        lambda ledger: ledger.claim("a", {"h0": "VCPU=1"}, group=""),
        lambda ledger: ServerGroup("x", "affinity", "db-1"),
    ],
)
def test_what_cannot_be_is_refused(lab, work):
    with pytest.raises(exceptions.InvalidInput):
        work(lab)


def test_a_group_that_is_not_there_is_told(lab):
    for work in (
        lambda: lab.groups.get("no"),
        lambda: lab.groups.remove("no"),
        lambda: lab.claim("a", {"h0": "VCPU=1"}, group="no"),
        lambda: Scheduler(lab).select_destinations(RequestSpec("VCPU=1", group="no")),
        lambda: Scheduler(lab).candidates(RequestSpec("VCPU=1", group="no")),
    ):
        with raises_code("ServerGroupNotFound", match=r"^no is not a server group"):
            work()


def test_who_says_what_is_in_use_already_joins_a_group_that_there_is_whatever_it_asks(lab):
    lab.claim("db-1", {"h0": "VCPU=1"}, group="db")
    [host] = lab.providers(name="h0")

    def adopted(consumer, group):
        uses = (Use(host.uuid, "VCPU", 1),)
        order = ConsumerOrder.claim(consumer, uses, adopts=True, group=group)
        return lab.backend.commit(Write(Operation(), "adopt", consumer, orders=(order,)))

    with raises_code("ServerGroupNotFound", match=r"^no is not a server group"):
        adopted("db-2", "no")
    adopted("db-2", "db")
    assert lab.groups.get("db").members == {"db-1", "db-2"}


def test_a_group_that_is_kept_otherwise_says_how(lab):
    with raises_code("ServerGroupExists") as refused:
        lab.groups.ensure("db", "anti-affinity", 2)
    assert str(refused.value) == (
        "db is a server group that is stored differently: "
        "requested max_per_host=2, anti-affinity; stored max_per_host=1, anti-affinity"
    )


# --- scheduled ---


def test_a_scheduler_needs_the_name_alone(lab):
    scheduler = Scheduler(lab)
    spec = RequestSpec("VCPU=1", group="db", project="p")
    found = scheduler.select_destinations(spec, consumers=["db-1", "db-2"])
    assert [one.host for one in found] == ["h0", "h1"]
    assert {one.claim.group for one in found} == {"db"}
    assert [one.host for one in scheduler.candidates(spec)] == ["h2"]
    (third,) = scheduler.select_destinations(spec, consumers=["db-3"])
    assert (third.host, third.claim.project) == ("h2", "p")
    with pytest.raises(exceptions.NoCandidates) as refused:
        scheduler.select_destinations(spec)
    assert "h2: db-3 of group db is there already (affinity)" in str(refused.value)
    web = RequestSpec("VCPU=1", group="web")
    lab.claim("web-1", {"h1": "VCPU=1"}, group="web")
    assert [one.host for one in scheduler.select_destinations(web, 3)] == ["h1"] * 3


def test_soft_groups_are_weighed_by_the_members_that_the_ledger_keeps(lab):
    for policy, hosts in (("soft-affinity", ["h1", "h1"]), ("soft-anti-affinity", ["h0", "h2"])):
        lab.groups.ensure(policy, policy)
        lab.claim(f"{policy}-0", {"h1": "VCPU=1"}, group=policy)
        spec = RequestSpec("VCPU=1", group=policy)
        found = Scheduler(lab).select_destinations(spec, 2)
        assert [one.host for one in found] == hosts


@pytest.mark.parametrize("count", [1, 2])
def test_who_was_faster_with_a_member_is_seen_and_another_host_taken(lab, monkeypatch, count):
    """The claim is refused, and the search is done again with the members of then."""
    names = [f"db-{n}" for n in range(count)]
    verb = "claim" if count == 1 else "claim_all"
    take, seen = getattr(lab, verb), []

    def faster(*args, **said):
        if not seen:
            other = Ledger(lab.backend)
            seen.append(other.claim("faster", {"h0": "VCPU=1"}, group="db"))
        return take(*args, **said)

    monkeypatch.setattr(lab, verb, faster)
    found = Scheduler(lab).select_destinations(RequestSpec("VCPU=1", group="db"), consumers=names)
    assert [one.host for one in found] == ["h1", "h2"][:count]
    assert lab.groups.get("db").members == {"faster", *names}


def test_the_group_is_read_once_for_a_request(lab, monkeypatch):
    asked = []
    read = type(lab.backend).list_server_groups

    def counted(self, *args, **said):
        asked.append(said)
        return read(self, *args, **said)

    monkeypatch.setattr(type(lab.backend), "list_server_groups", counted)
    Scheduler(lab).select_destinations(RequestSpec("VCPU=1", group="db"), consumers=["a", "b", "c"])
    assert asked == [{"names": ["db"]}]


@pytest.mark.parametrize(("group", "hosts"), [("db", ["h1", "h2"]), ("web", ["h1", "h1"])])
def test_a_gang_is_of_a_group_and_goes_elsewhere_after_a_lost_race(lab, monkeypatch, group, hosts):
    """Who was faster is in the group by then: apart from it, or where it is."""
    take, seen = lab.claim_all, []

    def faster(*args, **said):
        if not seen:
            place = "h0" if group == "db" else "h1"
            seen.append(Ledger(lab.backend).claim("faster", {place: "VCPU=1"}, group=group))
        return take(*args, **said)

    monkeypatch.setattr(lab, "claim_all", faster)
    gang = Gang([Member("worker", "VCPU=1", count=2)])
    Scheduler(lab).place_gang(gang, "job", group=group)
    names = ["job/worker-0", "job/worker-1"]
    assert [host for name in names for host in where(lab, name)] == hosts
    assert lab.groups.get(group).members == {"faster", *names}
