"""select_destinations: what is searched, filtered, weighed and claimed, once and whole."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import RetryPolicy
from resource_objects.providers import ServerGroup
from resource_objects.scheduler import Pipeline, RequestSpec, Scheduler
from resource_objects.testing.refusals import raises_code

WEIGHERS = {"free": {"VCPU": 1}}


@pytest.fixture
def lab():
    with ro.connect("memory://") as ledger:
        ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8,MEMORY_MB=64") for n in range(3)))
        yield ledger


def hosts(selection):
    return [one.host for one in selection]


def test_a_dry_run_tells_where_it_would_go_and_takes_nothing(lab):
    found = Scheduler(lab, weighers=WEIGHERS).select_destinations("VCPU=6", 2, alternates=1)
    assert [(one.consumer, one.host) for one in found] == [("1", "host0"), ("2", "host1")]
    assert [one.alternates[0].host for one in found] == ["host1", "host2"]
    assert [one.claim for one in found] == [None, None]
    assert lab.snapshot().used("VCPU") == 0


def test_what_is_selected_for_consumers_is_claimed(lab):
    found = Scheduler(lab).select_destinations("VCPU=6", consumers=["a", "b"])
    assert hosts(found) == ["host0", "host1"]
    assert {one.consumer: lab.get_claim(one.consumer).allocations for one in found} == {
        one.consumer: one.allocations for one in found
    }


def test_spread_and_pack_are_the_same_weigher_upwards_and_downwards(lab):
    lab.claim("first", {"host1": "VCPU=2"})
    spread = Scheduler(lab, weighers={"free": {"VCPU": 1}})
    pack = Scheduler(lab, weighers={"free": {"VCPU": 1, "multiplier": -1}})
    assert hosts(spread.select_destinations("VCPU=1", 3)) == ["host0", "host2", "host0"]
    assert hosts(pack.select_destinations("VCPU=1", 3)) == ["host1", "host1", "host1"]


@pytest.mark.law(2)
def test_all_are_placed_or_none_and_every_reason_is_told(lab):
    with pytest.raises(exceptions.NoCandidates) as refused:
        Scheduler(lab).select_destinations("VCPU=5", consumers=["a", "b", "c", "d"])
    assert "no host for d, 3 of 4 could be placed" in str(refused.value)
    assert [reason.free for reason in refused.value.reasons] == [3, 3, 3]
    assert lab.snapshot().used("VCPU") == 0


def test_as_many_as_possible_says_who_is_missing_and_why(lab):
    found = Scheduler(lab).select_destinations(
        "VCPU=5", consumers=["a", "b", "c", "d", "e"], at_least=2
    )
    assert (hosts(found), found.missing) == (["host0", "host1", "host2"], ("d", "e"))
    assert "VCPU requested 5, free 3 of 8 (a holds 5)" in str(found.explanation)
    with pytest.raises(exceptions.NoCandidates):
        Scheduler(lab).select_destinations("VCPU=3", consumers=["f", "g", "h", "i"], at_least=4)
    with pytest.raises(exceptions.NoCandidates):
        Scheduler(lab).select_destinations("VCPU=3", consumers=["f", "g", "h", "i"], at_least=4)
    assert lab.snapshot().used("VCPU") == 15


@pytest.mark.law(9)
def test_the_same_seed_gives_the_same_answer_and_others_give_others(lab):
    scheduler = Scheduler(lab, order=ro.Order("spread", among=3))
    answers = [hosts(scheduler.select_destinations("VCPU=1", 6, seed=7)) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    every = {tuple(hosts(scheduler.select_destinations("VCPU=1", 2, seed=n))) for n in range(9)}
    assert len(every) > 1


@pytest.mark.law(5)
@pytest.mark.parametrize("settings", [{"VCPU": 1}, {"VCPU": 1, "multiplier": -2}])
def test_a_multi_create_equals_one_at_a_time(settings):
    answers = []
    for at_once in (True, False):
        with ro.connect("memory://") as ledger:
            ledger.sync(*(ro.Provider(f"host{n}", {"VCPU": 4 + 3 * n}) for n in range(4)))
            scheduler = Scheduler(ledger, weighers={"free": settings})
            names = [f"job-{n}" for n in range(9)]
            groups = [names] if at_once else [[one] for one in names]
            answers.append(
                [
                    one.host
                    for some in groups
                    for one in scheduler.select_destinations("VCPU=2", consumers=some)
                ]
            )
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"count": 0}, "count"),
        ({"count": True}, "count"),
        ({"count": 2, "consumers": ["a"]}, "count"),
        ({"consumers": "abc"}, "consumers"),
        ({"consumers": ["a", "a"]}, "consumers"),
        ({"alternates": -1}, "alternates"),
        ({"count": 2, "at_least": 3}, "at_least"),
        ({"seed": "x"}, "seed"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(lab, arguments, named):
    with pytest.raises(exceptions.InvalidInput, match=named):
        Scheduler(lab).select_destinations("VCPU=1", **arguments)
    assert lab.snapshot().used("VCPU") == 0


def test_who_holds_something_already_is_not_placed_again(lab):
    lab.claim("a", {"host0": "VCPU=1"})
    for consumers in (["a"], ["b", "a"]):
        with raises_code("ConsumerExists"):
            Scheduler(lab).select_destinations("VCPU=1", consumers=consumers)
    assert lab.snapshot().used("VCPU") == 1


# --- races, and hosts that refuse -----------------------------------------------------------------


@pytest.mark.law(4)
@pytest.mark.parametrize("consumers", [["a"], ["a", "b"]])
def test_a_lost_race_is_tried_again_with_the_same_filters(lab, consumers):
    scheduler = Scheduler(lab)
    spec = RequestSpec("VCPU=6", ignored=["host1"])
    snapshot = lab.snapshot()
    raced = []

    def stale(at=None):
        if not raced:  # somebody is faster, between the picture and the claim
            raced.append(lab.claim("fast", {"host0": "VCPU=6"}))
            return snapshot
        return type(lab).snapshot(lab, at)

    lab.snapshot = stale
    if len(consumers) == 1:
        assert hosts(scheduler.select_destinations(spec, consumers=consumers)) == ["host2"]
    else:
        with pytest.raises(exceptions.NoCandidates) as refused:
            scheduler.select_destinations(spec, consumers=consumers)
        assert "host1: is to be ignored (hosts)" in str(refused.value)


@pytest.mark.law(4)
@pytest.mark.parametrize("consumers", [["a"], ["a", "b"]])
def test_who_joins_the_group_before_the_picture_is_taken_is_in_it(lab, monkeypatch, consumers):
    lab.groups.ensure("db", "anti-affinity")
    snapshot, seen = lab.snapshot, []

    def later(*given):
        if not seen:
            seen.append(lab.claim("other", {"host0": "VCPU=1"}, group="db"))
        return snapshot(*given)

    monkeypatch.setattr(lab, "snapshot", later)
    spec = RequestSpec("VCPU=1", group="db")
    found = Scheduler(lab).select_destinations(spec, consumers=consumers)
    assert hosts(found) == ["host1", "host2"][: len(consumers)]


def test_schedulers_at_once_take_nothing_twice():
    with ro.connect("memory://", retries=RetryPolicy(seconds=60)) as ledger:
        ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8") for n in range(8)))
        scheduler, errors = Scheduler(ledger, weighers={"free": {"VCPU": -1}}), []

        def place(number):
            try:
                names = [f"job-{number}-{one}" for one in range(8)]
                scheduler.select_destinations("VCPU=1", consumers=names[:4])
                for name in names[4:]:
                    scheduler.select_destinations("VCPU=1", consumers=[name])
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=place, args=(n,)) for n in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert errors == []
        assert (ledger.snapshot().used("VCPU"), ledger.snapshot().free("VCPU")) == (64, 0)


def test_a_host_has_the_last_word_and_another_is_taken(lab):
    asked = []

    def confirm(destination):
        asked.append(destination.host)
        if destination.host == "host0":
            raise exceptions.HostRefused("host0", destination.consumer, "no firmware")

    found = Scheduler(lab).select_destinations("VCPU=5", consumers=["a", "b"], confirm=confirm)
    assert sorted(hosts(found)) == ["host1", "host2"]
    assert found.refused == {"host0": "host0 refuses a: no firmware"}
    assert asked == ["host0", "host2", "host1"]
    assert lab.snapshot().used("VCPU") == 10


def test_where_every_host_refuses_nothing_is_held_and_all_said_why(lab):
    def confirm(destination):
        raise exceptions.HostRefused(destination.host, destination.consumer, "no firmware")

    for consumers in (["a"], ["a", "b"]):
        with pytest.raises(exceptions.NoCandidates) as refused:
            Scheduler(lab).select_destinations("VCPU=5", consumers=consumers, confirm=confirm)
        told = "refused it already: host0 refuses a: no firmware"
        assert told in [reason.unit for reason in refused.value.reasons]
        assert lab.snapshot().used("VCPU") == 0


@pytest.mark.law(2)
@pytest.mark.parametrize("at_least", [None, 1])
def test_where_asking_a_host_fails_nothing_is_held(lab, at_least):
    def confirm(destination):
        if destination.consumer == "b":
            raise ConnectionError("no answer")

    with pytest.raises(ConnectionError):
        Scheduler(lab).select_destinations(
            "VCPU=5", consumers=["a", "b"], at_least=at_least, confirm=confirm
        )
    assert lab.snapshot().used("VCPU") == 0


# --- filters --------------------------------------------------------------------------------------


class Picky:
    """Refuses one host; only asked host by host."""

    def __init__(self, name):
        self.name = name

    def refuses(self, host, spec):
        return f"asks for {spec.resources}" if host.name == self.name else None


class Broken:
    def refuses(self, host, spec):
        raise ValueError("no such figure")


class Wrong:
    def refuses(self, host, spec):
        return False


class WrongArray(Picky):
    def passing(self, hosts, spec):
        return [True, True, True]


@pytest.mark.law(6)
def test_a_rejection_stands_in_the_explanation_with_its_reason_and_its_filter(lab):
    with pytest.raises(exceptions.NoCandidates) as refused:
        Scheduler(lab, filters=[Picky("host1")]).select_destinations(
            RequestSpec("VCPU=9", ignored=["host2"])
        )
    assert str(refused.value).splitlines() == [
        "no host for 1: host0: VCPU requested 9, free 8 of 8",
        "host1: asks for VCPU=9 (Picky)",
        "host2: is to be ignored (hosts)",
    ]
    by_filter = [(one.rule.value, one.filter, one.where) for one in refused.value.reasons]
    assert by_filter == [
        ("capacity", None, "host0"),
        ("filter", "Picky", "host1"),
        ("filter", "hosts", "host2"),
    ]


def test_stages_tell_what_each_filter_leaves(lab):
    found = Scheduler(lab, filters=[Picky("host1")]).select_destinations("VCPU=3", 9, at_least=0)
    told = [str(one) for one in found.explanation.stages]
    assert "filter hosts: 3 -> 3 hosts" in told
    assert "filter Picky: 3 -> 2 hosts" in told


@pytest.mark.parametrize("filter_", [Broken(), Wrong(), WrongArray("host0")])
def test_a_filter_that_fails_is_named_and_fails_the_request_or_is_skipped_aloud(lab, filter_):
    name = type(filter_).__name__
    with pytest.raises(exceptions.FilterFailed, match=f"^{name} failed on"):
        Scheduler(lab, filters=[filter_]).select_destinations("VCPU=1", consumers=["a"])
    assert lab.snapshot().used("VCPU") == 0
    found = Scheduler(lab, filters=[filter_], on_error="skip").select_destinations("VCPU=1")
    assert list(found.skipped) == [name]


class BrokenOn(Picky):
    """Refuses the first host, and fails on the others."""

    def refuses(self, host, spec):
        if host.name != self.name:
            raise ValueError("no such figure")
        return "is the first"


def test_of_a_filter_that_is_skipped_no_refusal_stands(lab):
    """It failed after it had refused a host, which it would have been left out of then."""
    scheduler = Scheduler(lab, filters=[BrokenOn("host0")], on_error="skip")
    found = scheduler.select_destinations("VCPU=5", 3, consumers=["a", "b", "c"])
    assert hosts(found) == ["host0", "host1", "host2"]
    assert found.skipped == {"BrokenOn": "BrokenOn failed on host1: ValueError: no such figure"}
    with pytest.raises(exceptions.NoCandidates) as refused:
        scheduler.select_destinations("VCPU=9")
    assert str(refused.value).splitlines() == [
        "no host for 1 (skipped: BrokenOn): host0: VCPU requested 9, free 3 of 8 (a holds 5)",
        "host1: VCPU requested 9, free 3 of 8 (b holds 5)",
        "host2: VCPU requested 9, free 3 of 8 (c holds 5)",
    ]


class Wordless(Picky):
    """Refuses a host where all are asked at once, and fails where it is to say why."""

    def refuses(self, host, spec):
        raise ValueError("no words")

    def passing(self, hosts, spec):
        return np.array([host.name != self.name for host in hosts.values()])


def test_a_filter_that_fails_to_say_why_it_refused_at_once_says_that(lab):
    spec = RequestSpec("VCPU=5", only=["host1"])
    failure = "Wordless failed on host1: ValueError: no words"
    with pytest.raises(exceptions.NoCandidates, match=f"^no host for 1: {failure}$") as refused:
        Scheduler(lab, filters=[Wordless("host1")]).select_destinations(spec)
    with pytest.raises(exceptions.FilterFailed, match=failure):
        assert refused.value.reasons
    scheduler = Scheduler(lab, filters=[Wordless("host1")], on_error="skip")
    with pytest.raises(exceptions.NoCandidates) as refused:
        scheduler.select_destinations(spec)
    assert "host1: is refused, and it failed to say why (Wordless)" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "set_"),
    [
        ("tenants", {"tenants": {"r0": ["p"]}}),
        ("isolated", {"traits": {"r0": ["HW_CPU_X86_AVX2"]}}),
        ("aggregate_ratios", {"ratios": {"r0": {"VCPU": "0.5"}}}),
        ("statistics", {"conditions": {"load": "<= 3"}}),
    ],
)
def test_a_filter_that_is_named_and_asks_nothing_is_told(lab, name, set_):
    found = Scheduler(lab, filters=[name]).select_destinations("VCPU=1")
    assert found.skipped == {name: "asks nothing as it is set"}
    with pytest.raises(exceptions.NoCandidates, match=rf"^no host for 1 \(skipped: {name}\): "):
        Scheduler(lab, filters=[name]).select_destinations("VCPU=9")
    assert not Pipeline.of({name: set_}).idle


@pytest.mark.parametrize(
    ("name", "set_"),
    [
        ("free", {"VCPU": 1}),
        ("statistics", {"weights": {"load": 1}}),
        ("traits", {"HW_CPU_X86_AVX2": 1}),
    ],
)
def test_a_weigher_that_is_named_and_weighs_all_alike_is_told(lab, name, set_):
    found = Scheduler(lab, weighers=[name]).select_destinations("VCPU=1")
    assert found.skipped == {name: "weighs all hosts alike as it is set"}
    assert not Pipeline.of((), {name: set_}).idle


def test_what_is_always_asked_and_what_asks_nothing_by_the_request_is_not_told(lab):
    assert Scheduler(lab).select_destinations("VCPU=1").skipped == {}


def test_who_forces_hosts_is_asked_by_no_other_filter_but_has_to_fit(lab):
    scheduler = Scheduler(lab, filters=[Picky("host1")])
    assert hosts(scheduler.select_destinations(RequestSpec("VCPU=1", forced=["host1"]))) == [
        "host1"
    ]
    with pytest.raises(exceptions.NoCandidates, match="is not the host that it is forced to"):
        scheduler.select_destinations(RequestSpec("VCPU=9", forced=["host1"]))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"filters": ["nobody"]}, "no such plug-in; installed: "),
        ({"filters": {"hosts": {"size": 3}}}, "options of filter hosts"),
        ({"filters": {"hosts": 3}}, "settings of hosts"),
        ({"filters": "hosts"}, "a list of names"),
        ({"filters": [Picky]}, "refuses"),
        ({"weighers": ["nobody"]}, "no such plug-in; installed: devices, "),
        ({"weighers": {"free": {"VCPU": "much"}}}, "weight of VCPU"),
        ({"weighers": {"free": {"multiplier": "much"}}}, "multiplier of free"),
        ({"weighers": [Picky("host0")]}, "weigh"),
        ({"on_error": "ignore"}, "on_error"),
    ],
)
def test_a_pipeline_that_cannot_be_is_refused_by_name(lab, arguments, named):
    with pytest.raises(exceptions.ResourceObjectsError, match=named):
        Scheduler(lab, **arguments)


class Steep:
    def weigh(self, host, spec):
        return {"host0": 1, "host1": float("nan"), "host2": 3}[host.name]


def test_a_weigher_that_fails_is_named(lab):
    with pytest.raises(exceptions.FilterFailed, match="Steep failed on host1: weight"):
        Scheduler(lab, weighers=[Steep()]).select_destinations("VCPU=1")


def test_traits_of_an_image_are_asked_of_the_host(lab):
    lab.change("host2", traits=["HW_CPU_X86_AVX2"])
    spec = RequestSpec("VCPU=1", image_traits=["HW_CPU_X86_AVX2"])
    assert hosts(Scheduler(lab).select_destinations(spec)) == ["host2"]


def test_a_group_and_a_specification_that_cannot_be():
    for wrong in (
        lambda: ServerGroup("db", "apart"),
        lambda: ServerGroup("db", "affinity", "db-1"),
        lambda: ServerGroup("db", "affinity", max_per_host=0),
        lambda: RequestSpec("VCPU=1", group=3),
        lambda: RequestSpec("VCPU=1", only="host0"),
        lambda: RequestSpec("VCPU=1", extra_specs={"a": 1}),
    ):
        with pytest.raises(exceptions.InvalidInput):
            wrong()


def test_whose_it_is_goes_to_the_claim():
    with ro.connect() as ledger:
        ledger.sync(ro.Provider("h0", "VCPU=8"))
        spec = RequestSpec("VCPU=1", project="lab", user="ann")
        Scheduler(ledger).select_destinations(spec, consumers=["one"])
        Scheduler(ledger).select_destinations(spec, consumers=["two", "three"])
        assert {(one.project, one.user) for one in ledger.consumers()} == {("lab", "ann")}


def test_members_that_have_to_be_apart_are_so_after_a_lost_race(monkeypatch):
    with ro.connect() as ledger:
        ledger.sync(
            ro.Provider("h0", "VCPU=4"), ro.Provider("h1", "VCPU=8"), ro.Provider("h2", "VCPU=8")
        )
        claim_all, seen = ledger.claim_all, []

        def faster(*args, **said):
            if not seen:
                seen.append(ledger.claim("faster", {"h0": "VCPU=4"}))
            return claim_all(*args, **said)

        monkeypatch.setattr(ledger, "claim_all", faster)
        spec = RequestSpec("VCPU=4", group=ServerGroup("g", "anti-affinity"))
        found = Scheduler(ledger).select_destinations(spec, consumers=["a", "b"])
        assert sorted(one.host for one in found) == ["h1", "h2"]


@pytest.fixture
def uneven():
    """Hosts of which the fullest has no room for two more."""
    with ro.connect() as ledger:
        ledger.sync(*(ro.Provider(f"h{n}", f"VCPU={cpus}") for n, cpus in enumerate((4, 8, 16))))
        ledger.claim("others", {"h0": "VCPU=2", "h1": "VCPU=3"})
        yield ledger


@pytest.mark.parametrize("consumers", [[], ["a", "b", "c"]])
def test_members_of_a_strict_group_go_where_all_have_room(uneven, consumers):
    """The best host for the first has no room for the others."""
    scheduler = Scheduler(uneven, order="pack")
    spec = RequestSpec("VCPU=2", group=ServerGroup("g", "affinity"))
    assert hosts(scheduler.select_destinations("VCPU=2")) == ["h0"]
    assert hosts(scheduler.select_destinations(spec, 2, consumers=consumers[:2])) == ["h1", "h1"]
    three = RequestSpec("VCPU=4", group=ServerGroup("h", "affinity"))
    named = [f"new-{one}" for one in consumers]
    assert hosts(scheduler.select_destinations(three, 3, consumers=named)) == ["h2"] * 3
    with pytest.raises(exceptions.NoCandidates, match="could be placed"):
        spec = RequestSpec("VCPU=9", group=ServerGroup("i", "affinity"))
        scheduler.select_destinations(spec, 2, consumers=[f"last-{n}" for n in consumers[:2]])


def test_as_many_of_a_strict_group_as_one_host_holds(uneven):
    scheduler = Scheduler(uneven, order="pack")
    spec = RequestSpec("VCPU=5", group=ServerGroup("g", "affinity"))
    found = scheduler.select_destinations(spec, consumers=["a", "b", "c", "d"], at_least=2)
    assert hosts(found) == ["h2"] * 3
    assert found.missing == ("d",)


@pytest.fixture
def pair():
    """Two hosts with room for two each, and a strict group."""
    with ro.connect() as ledger:
        ledger.sync(*(ro.Provider(f"host{n}", "VCPU=2") for n in range(2)))
        ledger.groups.ensure("g", "affinity")
        yield ledger


def told(selection):
    return {(reason.where, reason.unit) for reason in selection.explanation.reasons}


def test_a_strict_group_whose_host_refuses_goes_to_another(pair):
    asked = []

    def confirm(destination):
        asked.append((destination.consumer, destination.host))
        if destination.host == "host0":
            raise exceptions.HostRefused("host0", destination.consumer, "no firmware")

    spec = RequestSpec("VCPU=1", group="g")
    found = Scheduler(pair).select_destinations(
        spec, consumers=["a", "b", "c"], at_least=1, confirm=confirm
    )
    assert hosts(found) == ["host1", "host1"]
    assert found.missing == ("c",)
    assert found.refused == {"host0": "host0 refuses a: no firmware"}
    assert asked == [("a", "host0"), ("a", "host1"), ("b", "host1")]
    assert ("host0", "refused it already: host0 refuses a: no firmware") in told(found)


@pytest.mark.law(4)
@pytest.mark.parametrize("kept", [True, False])
def test_a_strict_group_whose_host_is_lost_goes_where_most_have_room(monkeypatch, pair, kept):
    pair.sync(ro.Provider("host1", "VCPU=1"), ro.Provider("host2", "VCPU=2"))
    claim, claim_all, seen = pair.claim, pair.claim_all, []

    def raced(write):
        def faster(*given, **said):
            if not seen:
                seen.append(claim("thief", {"host0": "VCPU=2"}))
            return write(*given, **said)

        return faster

    monkeypatch.setattr(pair, "claim", raced(claim))
    monkeypatch.setattr(pair, "claim_all", raced(claim_all))
    spec = RequestSpec("VCPU=1", group="g" if kept else ServerGroup("own", "affinity"))
    found = Scheduler(pair).select_destinations(spec, consumers=["a", "b", "c"], at_least=1)
    assert hosts(found) == ["host2", "host2"]
    assert found.missing == ("c",)
    assert ("host1", "is not one of the hosts that it asks for") not in told(found)


@pytest.mark.parametrize("consumers", [[], ["a", "b", "c"]])
def test_of_a_strict_group_no_reason_is_told_that_nobody_gave(pair, consumers):
    spec = RequestSpec("VCPU=1", group="g")
    found = Scheduler(pair).select_destinations(spec, 3, consumers=consumers, at_least=1)
    assert hosts(found) == ["host0", "host0"]
    assert told(found) == {("host0", None), ("host1", "the others of group g are elsewhere")}


def test_two_filters_of_one_name_are_refused():
    class Quiet:
        def refuses(self, host, spec):
            return None

    with raises_code("DuplicateKey", match="Quiet"):
        Pipeline.of([Quiet(), Quiet()])
