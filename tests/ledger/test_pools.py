"""Pools: made in one call, told by their owner, and nothing of theirs counted twice."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import new_operation
from resource_objects.providers import Aggregate, Share
from resource_objects.providers.pools import SHARES, Pool
from resource_objects.testing.refusals import raises_code
from tests.ledger.test_declare import meddled

DAY = datetime.timedelta(days=1)


@pytest.fixture
def site(ledger: ro.Ledger) -> ro.Ledger:
    """Two hosts with a disk of their own, and what is to be a pool."""
    ledger.sync(
        ro.Provider("host0", "VCPU=8,DISK_GB=10"),
        ro.Provider("host1", "VCPU=8,DISK_GB=10", aggregates=["r1"]),
        ro.Provider("host2", "VCPU=8,DISK_GB=10"),
        ro.Provider("nfs", "DISK_GB=1000", traits=["CUSTOM_SLOW"]),
    )
    return ledger


def pool(ledger: ro.Ledger, name: str = "nfs") -> Pool:
    (found,) = (one for one in ledger.pools.list() if one.name == name)
    return found


def has(ledger: ro.Ledger, name: str) -> str:
    return str(ledger.provider(name).inventories)


# --- share ---


def test_a_pool_is_made_in_one_write(site: ro.Ledger) -> None:
    meddler: Any = meddled(site, lambda: None, 0)
    done = meddler.pools.share("nfs", hosts=["host0", "host1"])
    assert (done.created, done.updated, done.removed) == (0, 3, 0)
    assert len(meddler.backend.writes) == 1
    kept = site.provider("nfs")
    assert (kept.traits, kept.aggregates) == ({SHARES, "CUSTOM_SLOW"}, {"nfs"})
    assert site.provider("host0").aggregates == {"nfs"}
    assert site.provider("host1").aggregates == {"nfs", "r1"}
    assert site.provider("host2").aggregates == frozenset()
    assert [has(site, name) for name in ("host0", "host1", "host2")] == [
        "VCPU=8",
        "VCPU=8",
        "VCPU=8,DISK_GB=10",
    ]
    assert pool(site).members == ("host0", "host1")
    assert not site.pools.share("nfs", hosts=["host1", "host0"])


def test_hosts_are_added_later_and_providers_go_by_uuid(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0"], aggregate="storage 1")
    assert pool(site).members == ("host0",)
    uuids = [site.provider(name).uuid or "" for name in ("nfs", "host2")]
    site.pools.share(uuids[0], hosts=[uuids[1], "host2"], aggregate="storage 1")
    assert (pool(site).members, pool(site).aggregates) == (("host0", "host2"), {"storage 1"})


def test_a_host_of_two_pools_has_the_resources_of_both(site: ro.Ledger) -> None:
    site.sync(ro.Provider("addresses", "IPV4_ADDRESS=100"))
    site.pools.share("nfs", hosts=["host0"])
    site.pools.share("addresses", hosts=["host0", "host1"])
    assert {one.name: one.members for one in site.pools.list()} == {
        "nfs": ("host0",),
        "addresses": ("host0", "host1"),
    }


def test_what_is_used_at_a_host_is_not_taken_away(site: ro.Ledger) -> None:
    site.claim("job", {"host1": "DISK_GB=3"})
    before = list(site.trees())
    with raises_code("InventoryInUse", match="host1"):
        site.pools.share("nfs", hosts=["host0", "host1"])
    assert list(site.trees()) == before
    assert list(site.names.aggregates.list()) == [Aggregate(name="r1")]


def test_a_pool_and_its_hosts_must_be_there(site: ro.Ledger) -> None:
    for pool, hosts in (("nobody", ["host0"]), ("nfs", ["host0", "nobody"])):
        with raises_code("ProviderNotFound", match="nobody"):
            site.pools.share(pool, hosts=hosts)
        with raises_code("ProviderNotFound", match="nobody"):
            site.pools.unshare(pool, hosts=hosts)
    with pytest.raises(exceptions.InvalidTree, match="hosts other than the pool"):
        site.pools.share("nfs", hosts=["host0", "nfs"])
    for wrong in ("host0", None, 7, [], ()):
        with raises_code("InvalidField", match="hosts"):
            site.pools.share("nfs", hosts=wrong)  # type: ignore[arg-type]
    assert list(site.pools.list()) == []


def test_sharing_again_after_a_lost_answer_does_it_once(site: ro.Ledger) -> None:
    operation = new_operation()
    assert site.pools.share("nfs", hosts=["host0"], operation=operation)
    site.pools.unshare("nfs")
    assert not site.pools.share("nfs", hosts=["host0"], operation=operation)
    assert list(site.pools.list()) == []


def test_a_host_that_changes_meanwhile_is_looked_at_again(site: ro.Ledger) -> None:
    meddler = meddled(site, lambda: site.change("host0", inventories="VCPU=1,DISK_GB=99"))
    meddler.pools.share("nfs", hosts=["host0"])
    assert has(site, "host0") == "VCPU=1"


# --- counted once ---


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger.change("host0", inventories="VCPU=8,DISK_GB=1"),
        lambda ledger: ledger.sync(ro.Provider("host0", "VCPU=8,DISK_GB=1")),
        lambda ledger: ledger.sync(
            ro.Provider("host9", "VCPU=1"), ro.Provider("host0", "DISK_GB=1")
        ),
        lambda ledger: ledger.sync(ro.Provider("host9", "DISK_GB=1", aggregates=["nfs", "r1"])),
        lambda ledger: ledger.change("host2", aggregates=["r1", "nfs"]),
        lambda ledger: ledger.pools.report("nfs", "DISK_GB=1,VCPU=1"),
        lambda ledger: ledger.change("nfs", inventories="DISK_GB=1,VCPU=1"),
        lambda ledger: ledger.change("nfs", aggregates=["nfs", "r2"]),
        lambda ledger: ledger.change("spare", traits=[SHARES]),
        lambda ledger: ledger.pools.share("spare", hosts=["host1"], aggregate="r2"),
    ],
)
@pytest.mark.law(1)
def test_a_class_is_not_counted_at_a_host_and_at_its_pool(
    site: ro.Ledger, change: Callable[[ro.Ledger], Any]
) -> None:
    site.sync(
        ro.Provider("spare", "DISK_GB=5", aggregates=["r2"]),
        ro.Provider("other", "DISK_GB=5", aggregates=["r2"]),
    )
    site.pools.share("nfs", hosts=["host0", "host1"])
    before = list(site.trees())
    with raises_code(
        "CountedTwice",
        match=r"(DISK_GB|VCPU) is provided by a pool and would be counted twice: "
        r"at (host\d|other|spare), which has it from (nfs|spare)",
    ):
        change(site)
    assert list(site.trees()) == before


def test_the_error_names_host_class_and_pool(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0"])
    with raises_code("CountedTwice") as caught:
        site.change("host0", inventories="DISK_GB=1")
    assert (caught.value.name, caught.value.detail) == (
        "DISK_GB",
        "at host0, which has it from nfs",
    )


def test_what_is_no_double_count_is_allowed(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0"])
    site.sync(ro.Provider("nfs2", "DISK_GB=9", traits=[SHARES], aggregates=["nfs"]))
    assert [one.members for one in site.pools.list()] == [("host0",), ("host0",)]
    site.change("host0", inventories="VCPU=9,MEMORY_MB=5")
    site.change("nfs", inventories="DISK_GB=1,IPV4_ADDRESS=9")
    site.change("host1", aggregates=["r1", "r2"])
    site.pools.unshare("nfs", hosts=["host0"])
    site.change("host0", inventories="DISK_GB=10")


def test_a_pool_that_is_none_any_more_counts_as_a_host(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0"])
    site.sync(ro.Provider("nfs2", "DISK_GB=9", traits=[SHARES], aggregates=["nfs"]))
    with raises_code("CountedTwice", match="at nfs2, which has it from nfs"):
        site.change("nfs2", traits=[])


def test_a_pool_that_is_made_meanwhile_is_seen(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host1"])
    meddler = meddled(site, lambda: site.pools.share("nfs", hosts=["host0"]))
    with raises_code("CountedTwice", match="at host0, which has it from nfs"):
        meddler.change("host0", inventories="DISK_GB=11")


def test_a_pool_that_begins_to_give_a_class_meanwhile_is_seen(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0"])
    meddler = meddled(site, lambda: site.pools.report("nfs", "DISK_GB=1,MEMORY_MB=1"))
    with raises_code("CountedTwice", match=r"MEMORY_MB.*at host0, which has it from nfs"):
        meddler.change("host0", inventories="VCPU=8,MEMORY_MB=11")
    assert has(site, "host0") == "VCPU=8"


def test_a_host_that_begins_to_count_a_class_meanwhile_is_seen(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0"])
    meddler = meddled(site, lambda: site.change("host0", inventories="VCPU=8,MEMORY_MB=11"))
    with raises_code("CountedTwice", match=r"MEMORY_MB.*at host0, which has it from nfs"):
        meddler.pools.report("nfs", "DISK_GB=1,MEMORY_MB=1")
    assert has(site, "nfs") == "DISK_GB=1000"


def test_nothing_more_is_asked_where_nobody_gains(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0", "host1"])

    def refuse(*given: Any) -> Any:
        raise AssertionError(given)

    meddler: Any = meddled(site, lambda: None, 0)
    meddler.backend.list_providers = refuse
    meddler.change("host0", inventories="VCPU=99:reserved=2")
    meddler.change("host1", traits=["CUSTOM_A"])
    meddler.pools.report("nfs", "DISK_GB=900")
    meddler.sync(ro.Provider("host7", "VCPU=1"), ro.Provider("host0", "VCPU=7"))


# --- a tree is one host ---


@pytest.fixture
def rack(site: ro.Ledger) -> ro.Ledger:
    """Two blades in a rack that counts no disk itself."""
    tree = ro.Provider("rack", "MEMORY_MB=64")
    for number in range(2):
        blade = tree.add(f"blade{number}", "VCPU=4")
        disk = blade.add(f"blade{number}/disk", "DISK_GB=3")
        share = Share(resource_class="DISK_GB", of=disk.name, of_class="DISK_GB")
        blade.add(f"blade{number}/part", "DISK_GB=2,FPGA=1", shares=[share])
    site.sync(tree)
    return site


def test_sharing_takes_a_class_away_from_all_below_the_hosts(rack: ro.Ledger) -> None:
    rack.pools.share("nfs", hosts=["rack"])
    assert {one.name: str(one) for one in rack.provider("rack").walk()} == {
        "rack": "rack: MEMORY_MB=64",
        "blade0": "blade0: VCPU=4",
        "blade0/disk": "blade0/disk: ",
        "blade0/part": "blade0/part: FPGA=1",
        "blade1": "blade1: VCPU=4",
        "blade1/disk": "blade1/disk: ",
        "blade1/part": "blade1/part: FPGA=1",
    }
    assert not any(one.shares for one in rack.provider("rack").walk())
    assert pool(rack).members == ("rack",)
    assert rack.provider("blade0").aggregates == frozenset()
    assert not rack.audit()


def test_what_is_used_below_a_host_is_not_taken_away(rack: ro.Ledger) -> None:
    rack.claim("job", {"blade1/part": "DISK_GB=1"})
    before = list(rack.trees())
    with raises_code("InventoryInUse", match="blade1/"):
        rack.pools.share("nfs", hosts=["rack"])
    assert list(rack.trees()) == before


def test_what_is_beside_or_above_a_host_is_not_taken_away_but_refused(rack: ro.Ledger) -> None:
    before = list(rack.trees())
    with raises_code("CountedTwice", match="at blade1/disk, which has it from nfs"):
        rack.pools.share("nfs", hosts=["blade0"])
    rack.sync(ro.Provider("above", "DISK_GB=7", children=[ro.Provider("below", "VCPU=1")]))
    with raises_code("CountedTwice", match="at above, which has it from nfs"):
        rack.pools.share("nfs", hosts=["below"])
    rack.remove("above")
    assert list(rack.trees()) == before


@pytest.mark.law(1)
@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda ledger: ledger.change("blade1", inventories="VCPU=4,DISK_GB=1"), "blade1"),
        (lambda ledger: ledger.change("rack", inventories="DISK_GB=1"), "rack"),
        (lambda ledger: ledger.change("spare", parent="blade0"), "spare"),
        (lambda ledger: ledger.change("blade0", parent="spare"), "spare"),
        (lambda ledger: ledger.pools.report("nfs", "DISK_GB=1,MEMORY_MB=1"), "rack"),
        (lambda ledger: ledger.change("other", aggregates=["nfs"]), "other/disk"),
        (lambda ledger: ledger.change("more", traits=[SHARES]), "host2"),
    ],
)
def test_a_class_is_not_counted_anywhere_in_a_tree_that_has_it_from_a_pool(
    rack: ro.Ledger, change: Callable[[ro.Ledger], Any], where: str
) -> None:
    rack.pools.share("nfs", hosts=["rack"])
    rack.change("blade0", aggregates=["nfs"])
    rack.change("rack", aggregates=[])
    other = ro.Provider("other", "VCPU=1", children=[ro.Provider("other/disk", "DISK_GB=3")])
    host2 = rack.provider("host2")
    host2.add("host2/cell", "VCPU=1", aggregates=["r9"])
    more = ro.Provider("more", "DISK_GB=5", aggregates=["r9"])
    rack.sync(other, host2, more, ro.Provider("spare", "DISK_GB=3"))
    before = list(rack.trees())
    with raises_code("CountedTwice", match=f"at {where}, which has it from (nfs|more)"):
        change(rack)
    assert list(rack.trees()) == before


def test_a_pool_in_a_tree_counts_for_itself(site: ro.Ledger) -> None:
    tree = ro.Provider("site", children=[ro.Provider("site/nfs", "DISK_GB=9", traits=[SHARES])])
    tree.add("site/host", "VCPU=1")
    site.sync(tree)
    site.pools.share("site/nfs", hosts=["site"])
    assert has(site, "site/nfs") == "DISK_GB=9"
    with raises_code("CountedTwice", match="at site/host"):
        site.change("site/host", inventories="DISK_GB=1")
    site.sync(
        ro.Provider("store", "IPV4_ADDRESS=9", children=[ro.Provider("store/a", "IPV4_ADDRESS=5")])
    )
    site.pools.share("store", hosts=["site/host"])  # what is below a pool is no host of it
    assert not site.audit()


def test_a_tree_that_leaves_a_host_behind_may_count_again(rack: ro.Ledger) -> None:
    rack.pools.share("nfs", hosts=["rack"])
    rack.change("blade0", parent=None)
    rack.change("blade0", inventories="VCPU=4,DISK_GB=1")
    with raises_code("CountedTwice", match="at blade0"):
        rack.change("blade0", parent="rack")


def test_what_begins_to_be_counted_below_a_host_meanwhile_is_seen(rack: ro.Ledger) -> None:
    rack.pools.share("nfs", hosts=["rack"])
    meddler = meddled(rack, lambda: rack.change("blade0", inventories="VCPU=4,FPGA=11"))
    with raises_code("CountedTwice", match=r"FPGA.*at blade0"):
        meddler.pools.report("nfs", "DISK_GB=1,FPGA=1")


def test_the_audit_lists_what_two_writes_at_once_may_do(site: ro.Ledger) -> None:
    """A pool gives more, or a tree counts more, while a host joins: neither sees the other."""
    site.pools.share("nfs", hosts=["host0"])
    site.change("host1", inventories="MEMORY_MB=8")
    meddled(site, lambda: site.change("host1", aggregates=["nfs"])).pools.report(
        "nfs", "DISK_GB=1,MEMORY_MB=1"
    )
    site.sync(ro.Provider("host3", "VCPU=1", children=[ro.Provider("host3/ssd", "VCPU=1")]))
    meddled(site, lambda: site.change("host3", aggregates=["nfs"])).change(
        "host3/ssd", inventories="DISK_GB=1"
    )
    assert str(site.audit()).splitlines() == [
        "host1: MEMORY_MB is counted here and at the pool nfs",
        "host3/ssd: DISK_GB is counted here and at the pool nfs",
    ]


# --- report ---


def test_a_report_says_when_and_keeps_the_rest(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0"])
    assert pool(site).reported_at is None
    assert pool(site).age is None
    started = datetime.datetime.now(datetime.UTC)
    done = site.pools.report("nfs", "DISK_GB=900:reserved=100")
    assert str(done) == "~ nfs: DISK_GB=900:reserved=100"
    found, kept = pool(site), site.provider("nfs")
    assert found.reported_at == kept.reported_at
    assert found.reported_at is not None
    assert abs(found.reported_at - started) < datetime.timedelta(minutes=1)
    assert found.age is not None
    assert found.age < datetime.timedelta(minutes=1)
    assert str(found.inventories) == str(kept.inventories) == "DISK_GB=900:reserved=100"
    assert (kept.traits, kept.aggregates) == ({SHARES, "CUSTOM_SLOW"}, {"nfs"})


def test_a_report_that_changes_nothing_is_a_report(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0"])
    assert not site.pools.report("nfs", "DISK_GB=1000")
    first = pool(site)
    assert not site.pools.report("nfs", "DISK_GB=1000")
    again = pool(site)
    assert first.reported_at is not None
    assert again.reported_at is not None
    assert again.reported_at >= first.reported_at
    assert again.generation == first.generation


def test_what_a_pool_has_may_shrink_below_use(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0"])
    site.claim("job", {"host0": "VCPU=1", "nfs": "DISK_GB=50"})
    site.pools.report("nfs", "DISK_GB=20")
    assert [(use.provider, use.free) for use in site.usage(over_capacity=True)] == [("nfs", -30)]
    with raises_code("InventoryInUse", match="nfs"):
        site.pools.report("nfs", "MEMORY_MB=1")


def test_a_report_is_of_somebody(ledger: ro.Ledger) -> None:
    with raises_code("ProviderNotFound", match="nfs"):
        ledger.pools.report("nfs", "DISK_GB=1")


def test_stale_pools_are_listed(site: ro.Ledger) -> None:
    site.sync(ro.Provider("silent", "DISK_GB=1", traits=[SHARES]))
    site.pools.share("nfs", hosts=["host0"])
    site.pools.report("nfs", "DISK_GB=1")
    assert [one.name for one in site.pools.list()] == ["nfs", "silent"]
    assert [one.name for one in site.pools.list(older_than=DAY)] == ["silent"]
    assert [one.name for one in site.pools.list(older_than=0 * DAY)] == ["nfs", "silent"]
    for wrong in (5, -DAY, "1d"):
        with raises_code("InvalidField", match="older_than"):
            site.pools.list(older_than=wrong)  # type: ignore[arg-type]


def test_a_pool_says_itself_as_plain_data(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host1", "host0"])
    told = pool(site).to_dict()
    assert told | {"uuid": None} == {
        "name": "nfs",
        "uuid": None,
        "generation": site.provider("nfs").generation,
        "inventories": "DISK_GB=1000",
        "aggregates": ["nfs"],
        "members": ["host0", "host1"],
        "reported_at": None,
        "age": None,
    }
    assert str(pool(site)) == "nfs: DISK_GB=1000 for host0, host1"
    site.pools.report("nfs", "DISK_GB=1")
    assert pool(site).to_dict()["age"] >= 0


# --- unshare ---


def test_a_host_leaves_a_pool_also_while_it_is_used(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0", "host1"])
    site.claim("job", {"host1": "VCPU=1", "nfs": "DISK_GB=5"})
    assert site.pools.unshare("nfs", hosts=["host1"]).updated == 1
    assert pool(site).members == ("host0",)
    assert site.provider("host1").aggregates == {"r1"}
    assert str(site.get_claim("job")) == "job holds VCPU=1 of host1, DISK_GB=5 of nfs"
    assert not site.pools.unshare("nfs", hosts=["host1"])


def test_a_pool_is_no_pool_any_more(site: ro.Ledger) -> None:
    site.pools.share("nfs", hosts=["host0", "host1"])
    site.pools.share("nfs", hosts=["host2"], aggregate="more")
    assert pool(site).members == ("host0", "host1", "host2")
    assert site.pools.unshare("nfs").updated == 4
    assert list(site.pools.list()) == []
    kept = site.provider("nfs")
    assert (kept.traits, kept.aggregates) == ({"CUSTOM_SLOW"}, frozenset())
    assert [site.provider(f"host{n}").aggregates for n in range(3)] == [set(), {"r1"}, set()]
    site.names.aggregates.remove("nfs")
    assert not site.pools.unshare("nfs")


def test_what_another_pool_gives_stays(site: ro.Ledger) -> None:
    site.sync(ro.Provider("addresses", "IPV4_ADDRESS=100"))
    site.pools.share("nfs", hosts=["host0", "host1"], aggregate="room")
    site.pools.share("addresses", hosts=["host0"], aggregate="room")
    site.pools.unshare("nfs")
    assert pool(site, "addresses").members == ("host0", "host1")
    assert site.provider("nfs").aggregates == frozenset()


def test_hosts_below_a_root_and_pools_with_shares_keep_their_trees(site: ro.Ledger) -> None:
    """Whole trees are compared, so what is not meant stays as it is."""
    tree = ro.Provider("rack", "VCPU=8")
    tree.add(
        "rack/blade",
        "VCPU=4,DISK_GB=3",
        shares=[Share(resource_class="VCPU", of="rack", of_class="VCPU")],
    )
    site.sync(tree)
    before = site.provider("rack")
    site.pools.share("nfs", hosts=["rack/blade"])
    kept = site.provider("rack")
    assert kept.children[0].shares == tree.children[0].shares
    assert (has(site, "rack"), has(site, "rack/blade")) == ("VCPU=8", "VCPU=4")
    assert kept.generation == before.generation
    blades = before.children[0].generation, kept.children[0].generation
    assert None not in blades and blades[0] != blades[1]


# --- moves next to a pool ---


def _with_pool(ledger: ro.Ledger, disk: str = "DISK_GB=100") -> None:
    """Let ``vm`` use 2 CPUs of ``a`` and 60 GB of ``ceph``, which serves ``a`` and ``b``."""
    for name in ("a", "b"):
        ledger.sync(ro.Provider(name, "VCPU=4", aggregates=["row"]))
    ledger.sync(ro.Provider("ceph", disk, aggregates=["row"], traits=[SHARES]))
    ledger.claim("vm", {"a": "VCPU=2", "ceph": "DISK_GB=60"})


def _held(ledger: ro.Ledger) -> dict[str, dict[str, str]]:
    held = {}
    for consumer in ledger.consumers():
        claim = consumer.claim
        assert claim is not None
        held[consumer.name] = {name: str(one) for name, one in claim.by_provider().items()}
    return held


@pytest.mark.parametrize("size", [60, 80, 40])
@pytest.mark.parametrize("is_reverted", [False, True])
@pytest.mark.parametrize("target", ["b", "a"])
def test_a_move_counts_what_both_places_use_of_a_pool_once(
    ledger: ro.Ledger, target: str, is_reverted: bool, size: int
) -> None:
    _with_pool(ledger)
    there = {target: "VCPU=2", "ceph": f"DISK_GB={size}"}
    ledger.move("vm", there, source_consumer="left")
    before, after = {"a": "VCPU=2", "ceph": "DISK_GB=60"}, there
    rest = max(0, 60 - size)
    left = {"a": "VCPU=2", **({"ceph": f"DISK_GB={rest}"} if rest else {})}
    assert _held(ledger) == {"vm": after, "left": left}
    assert ledger.snapshot().used("DISK_GB") == max(60, size)
    assert not list(ledger.audit())
    if is_reverted:
        ledger.swap("vm", "left")
        assert _held(ledger)["vm"] == before
        assert ledger.snapshot().used("DISK_GB") == max(60, size)
        assert ledger.get_claim("vm").request is None
        ledger.swap("vm", "left")
        assert _held(ledger) == {"vm": after, "left": left}
        ledger.swap("vm", "left")
    ledger.release("left")
    assert _held(ledger) == {"vm": before if is_reverted else after}


@pytest.mark.parametrize("is_reverted", [False, True])
@pytest.mark.parametrize("then", [("f0",), ("f0", "f1"), ("f1", "f2"), ("f2",), ("f0", "f1", "f2")])
def test_a_unit_of_a_pool_stays_with_the_consumer_that_moves(
    ledger: ro.Ledger, then: tuple[str, ...], is_reverted: bool
) -> None:
    """``left`` keeps the units that the move gives up, until it is confirmed."""
    for name in ("a", "b"):
        ledger.sync(ro.Provider(name, "VCPU=4", aggregates=["row"]))
    ledger.sync(ro.Provider("fpgas", "CUSTOM_FPGA=3", aggregates=["row"], traits=[SHARES]))

    def claimed(host: str, *units: str) -> list[ro.Allocation]:
        cpus = ro.Allocation(provider=host, resource_class="VCPU", amount=ro.IntegerAmount(2))
        count = ro.IntegerAmount(len(units))
        return [cpus, cpus.replace(**_FPGA, amount=count, units=units)]

    ledger.claim("vm", claimed("a", "f0", "f1"))
    ledger.move("vm", claimed("b", *then), source_consumer="left")
    left = tuple(unit for unit in ("f0", "f1") if unit not in then)
    assert (_units(ledger, "vm"), _units(ledger, "left")) == (then, left)
    assert ledger.snapshot().used("CUSTOM_FPGA") == len({"f0", "f1", *then})
    if is_reverted:
        ledger.swap("vm", "left")
        assert set(ledger.get_claim("vm").by_provider()) == {"a", "fpgas"}
        assert _units(ledger, "vm") == ("f0", "f1")
    ledger.release("left")
    assert _units(ledger, "vm") == (("f0", "f1") if is_reverted else then)
    assert not list(ledger.audit())


_FPGA = {"provider": "fpgas", "resource_class": "CUSTOM_FPGA"}


def _units(ledger: ro.Ledger, consumer: str) -> tuple[str, ...]:
    return tuple(
        sorted(unit for one in ledger.get_claim(consumer).allocations for unit in one.units)
    )


def test_a_search_for_a_move_does_not_count_the_pool_twice(ledger: ro.Ledger) -> None:
    _with_pool(ledger)
    found = ledger.snapshot("b").candidates("VCPU=2,DISK_GB=60")
    assert not found
    ledger.move("vm", found, source_consumer="left")
    assert _held(ledger) == {
        "vm": {"b": "VCPU=2", "ceph": "DISK_GB=60"},
        "left": {"a": "VCPU=2"},
    }
    assert str(ledger.get_claim("vm").request) == "VCPU=2,DISK_GB=60"


def test_a_named_group_that_a_pool_provides_needs_no_second_share(ledger: ro.Ledger) -> None:
    """In a move, and where a scenario disables the host."""
    _with_pool(ledger)
    ledger.release("vm")
    request = ro.Request("VCPU=2", groups=[ro.RequestGroup("DISK_GB=60", suffix="_D")])
    ledger.claim("vm", ledger.snapshot("a").candidates(request))
    ledger.disable("a", reason="fire")
    after = {"b": "VCPU=2", "ceph": "DISK_GB=60"}
    drained = ledger.snapshot().fork().drain("a")
    assert {one.provider: str(one) for one in drained["vm"]} == {
        "b": "VCPU=2 of b",
        "ceph": "DISK_GB=60 of ceph",
    }
    ledger.move("vm", ledger.snapshot("b").candidates(request), source_consumer="left")
    assert _held(ledger) == {"vm": after, "left": {"a": "VCPU=2"}}
    assert ledger.get_claim("vm").request == request


def test_another_pool_and_more_than_there_is_are_judged_as_ever(ledger: ro.Ledger) -> None:
    _with_pool(ledger)
    ledger.sync(
        ro.Provider("c", "VCPU=4", aggregates=["other"]),
        ro.Provider("nfs", "DISK_GB=50", aggregates=["other"], traits=[SHARES]),
    )
    for there in ({"c": "VCPU=2", "nfs": "DISK_GB=60"}, {"b": "VCPU=2", "ceph": "DISK_GB=101"}):
        with pytest.raises(exceptions.CapacityException):
            ledger.move("vm", there, source_consumer="left")
    ledger.move("vm", {"c": "VCPU=2", "nfs": "DISK_GB=50"}, source_consumer="left")
    assert _held(ledger)["left"] == {"a": "VCPU=2", "ceph": "DISK_GB=60"}


def test_two_pools_are_counted_once_each_and_hosts_twice(ledger: ro.Ledger) -> None:
    _with_pool(ledger)
    ledger.sync(ro.Provider("net", "IPV4_ADDRESS=1", aggregates=["row"], traits=[SHARES]))
    ledger.adjust("vm", {"net": "IPV4_ADDRESS=1"})
    there = {"a": "VCPU=2", "ceph": "DISK_GB=60", "net": "IPV4_ADDRESS=1"}
    ledger.move("vm", there, source_consumer="left")
    assert _held(ledger)["left"] == {"a": "VCPU=2"}
    assert ledger.snapshot().used("VCPU") == 4
    with pytest.raises(exceptions.CapacityException):
        ledger.move("vm", {**there, "a": "VCPU=1"}, source_consumer="again")


def test_a_swap_of_two_other_consumers_exchanges_the_pool_too(ledger: ro.Ledger) -> None:
    _with_pool(ledger)
    ledger.claim("other", {"b": "VCPU=1"})
    ledger.swap("vm", "other")
    assert _held(ledger) == {
        "vm": {"b": "VCPU=1"},
        "other": {"a": "VCPU=2", "ceph": "DISK_GB=60"},
    }
