"""Claims, resizes and deletions: nova's resource tracker and ours, side by side.

Random lives of two hosts go on until nova says something that we do not: that is one of
:class:`~tests.peers.nova.tracker_sides.Drift`, each of which has its smallest case here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro
from resource_objects.exceptions import CapacityException
from resource_objects.host.tracker import MigrationKind
from resource_objects.testing.refusals import raises_code
from tests.peers.nova import tracker_differences
from tests.peers.nova.pci_sides import CONF, exception
from tests.peers.nova.tracker_differences import LIVES, STEPS
from tests.peers.nova.tracker_lives import Life
from tests.peers.nova.tracker_sides import (
    ALIASES,
    CPUS,
    DISK_GB,
    VCPUS,
    WHOLE,
    Drift,
    Site,
    Size,
    opened,
)

pytestmark = pytest.mark.filterwarnings("ignore")

PLAIN = Size(2, 16, 10)
PINNED = Size(2, 512, 10, cells=1, devices=(("gpu", 1),))
SPREAD = Size(2, 1024, 10, cells=2)
LARGER = Size(4, 1024, 20, cells=2, devices=(("gpu", 1),))


@pytest.fixture(scope="module", autouse=True)
def ready() -> Iterator[None]:
    """Let nova read no configuration file, and not say what it does."""
    CONF([], project="nova", default_config_files=[])
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def site() -> Iterator[Site]:
    with opened() as found:
        yield found


def test_lives_are_the_same_but_for_drifts_that_have_names() -> None:
    counts: Counter[str] = Counter()
    for number in range(LIVES):
        with opened() as site:
            life = Life(number)
            drifts = (life.step(site) for _ in range(STEPS))
            first = next((drift for drift in drifts if drift is not None), None)
            if first is Drift.FORGOTTEN:
                assert site.look() is None
        counts["" if first is None else first.name] += 1
    del counts[""]
    assert counts == tracker_differences.DRIFTS


# --- the smallest case of each drift --------------------------------------------------------------


def nova_uses(site: Site, what: str) -> object:
    """Return what nova says of the first host."""
    return site.agents["box-0"].used()[what]


def more_cpus_than_there_are(site: Site) -> Drift | None:
    drift = site.claim("a", "box-0", Size(VCPUS + 1, 16, DISK_GB + 1))
    assert nova_uses(site, "vcpus") == VCPUS + 1
    assert nova_uses(site, "local_gb") == DISK_GB + 1
    with pytest.raises(CapacityException):
        site.tracker.claim("a", "box-0", Size(VCPUS + 1, 16, 1).amounts(ALIASES))
    assert not list(site.ledger.consumers())
    return drift


def a_function_and_its_part(site: Site) -> Drift | None:
    drift = site.claim("a", "box-0", Size(1, 16, 1, devices=(("pf", 1), ("vf", 1))))
    agent = site.agents["box-0"]
    states, free = agent.devices(), agent.free_devices()
    lost = {one for one, state in states.items() if state == "available"} - free
    assert lost
    parts = Size(1, 16, 1, devices=(("vf", 3),)).amounts(ALIASES)
    assert site.tracker.claim("b", "box-0", parts).amounts["CUSTOM_VF"] == ro.IntegerAmount(3)
    return drift


def swap_of_half_a_gigabyte(site: Site) -> Drift | None:
    assert site.claim("a", "box-0", PLAIN) is None
    drift = site.claim("b", "box-0", Size(1, 16, 10, swap_mb=512), aborts=True)
    assert nova_uses(site, "local_gb") == 9
    assert site.tracker.inventories("box-0")["DISK_GB"].used == 10
    assert site.look() is None
    return drift


def one_that_was_resized_is_deleted(site: Site) -> Drift | None:
    assert site.claim("a", "box-0", PINNED) is None
    assert site.resize("a", "box-0", LARGER) is None
    assert site.confirm("a") is None
    drift = site.delete("a")
    agent = site.agents["box-0"]
    assert agent.used() == {"vcpus": 4, "memory_mb": 1024, "local_gb": 20}
    assert len(agent.pinned()) == 4
    assert site.tracker.inventories("box-0")["PCPU"].used == 0
    assert site.look() is None
    return drift


def one_with_a_device_is_copied(site: Site) -> Drift | None:
    assert site.claim("a", "box-0", PINNED) is None
    drift = site.live_migrate("a", "box-1")
    assert "allocated" not in site.agents["box-1"].devices().values()
    taken = site.ledger.get_claim("a").amounts
    assert taken["PGPU"] == ro.IntegerAmount(1)
    everything = Size(1, 16, 1, devices=(("gpu", 4),))
    agent = site.agents["box-1"]
    agent.claim(agent.instance("b", everything))  # nova gives them to somebody else
    with pytest.raises(CapacityException, match="a holds 1"):
        site.tracker.claim("b", "box-1", everything.amounts(ALIASES))
    return drift


SMALLEST: dict[Drift, Callable[[Site], Drift | None]] = {
    Drift.COUNTS_UNSEEN: more_cpus_than_there_are,
    Drift.SEEN_AND_NOT_TAKEN: a_function_and_its_part,
    Drift.SWAP: swap_of_half_a_gigabyte,
    Drift.FORGOTTEN: one_that_was_resized_is_deleted,
    Drift.LIVE_DEVICES: one_with_a_device_is_copied,
}


@pytest.mark.parametrize("drift", Drift, ids=lambda drift: drift.name.lower())
def test_a_drift_in_its_smallest_case(drift: Drift, site: Site) -> None:
    assert SMALLEST[drift](site) is drift


def test_one_that_went_back_after_a_periodic_task_is_forgotten_too(site: Site) -> None:
    assert site.claim("a", "box-0", PINNED) is None
    assert site.resize("a", "box-1", LARGER) is None
    assert site.look() is None
    assert site.revert("a") is None
    assert site.delete("a") is Drift.FORGOTTEN
    assert site.look() is None


@pytest.mark.parametrize("away", ["live_migrate", "evacuate"])
@pytest.mark.parametrize("end", ["delete", "shelve"])
def test_one_that_came_from_another_host_is_forgotten_too(site: Site, away: str, end: str) -> None:
    assert site.claim("a", "box-0", SPREAD) is None
    assert getattr(site, away)("a", "box-1") is None
    assert site.confirm("a") is None
    assert getattr(site, end)("a") is Drift.FORGOTTEN
    assert site.look() is None


def test_what_was_evacuated_is_held_until_somebody_knows_that_it_is_gone(site: Site) -> None:
    assert site.claim("a", "box-0", PINNED) is None
    assert site.evacuate("a", "box-1") is None
    held = site.held["a"]
    site.agents["box-1"].finish_evacuation(held.instance, held.migration)
    site.agents["box-0"].update()  # it is back, and its guest may still run
    assert nova_uses(site, "vcpus") == 0
    assert site.ledger.get_claim("a/migration").by_provider()["box-0"]
    assert site.tracker.inventories("box-0")["PCPU"].used == 2


def test_a_rebuild_looks_at_what_it_asks(site: Site) -> None:
    """Nova's claims nothing, whatever it is for; the API has to refuse what needs more."""
    assert site.claim("a", "box-0", SPREAD) is None
    site.agents["box-0"].rebuild(site.held["a"].instance)
    with pytest.raises(CapacityException):
        more = Size(VCPUS + 1, 16, 1).amounts(ALIASES)
        site.tracker.move("a", "box-0", more, kind=MigrationKind.REBUILD)
    assert site.drift() is None


def test_limits_bound_a_claim(site: Site) -> None:
    """Nova's claim is told them by the scheduler, and looks at those of a topology alone."""
    agent = site.agents["box-0"]
    agent.claim(agent.instance("a", PLAIN), {"vcpu": 1, "memory_mb": 1, "disk_gb": 1})
    assert nova_uses(site, "vcpus") == 2
    with pytest.raises(CapacityException):
        site.tracker.claim("a", "box-0", PLAIN.amounts(ALIASES), limits="VCPU=1")


def test_a_host_that_is_not_there_is_named(site: Site) -> None:
    assert site.claim("a", "box-0", PLAIN) is None
    agent, instance = site.agents["box-0"], site.held["a"].instance
    with pytest.raises(exception.ComputeResourcesUnavailable, match="unknown node nodename"):
        agent.tracker.resize_claim(agent.context, instance, instance.flavor, "box-9", None, {})
    with raises_code("ProviderNotFound", match="box-9"):
        site.tracker.move("a", "box-9", PLAIN.amounts(ALIASES))


# --- the same on both sides -----------------------------------------------------------------------


def test_a_claim_takes_all_and_an_abort_gives_it_back(site: Site) -> None:
    assert site.claim("a", "box-0", PINNED) is None
    assert nova_uses(site, "vcpus") == 2 and len(site.agents["box-0"].pinned()) == 2
    assert site.claim("b", "box-0", LARGER, aborts=True) is None
    assert nova_uses(site, "vcpus") == 2


def test_what_does_not_fit_a_cell_is_refused_and_leaves_nothing(site: Site) -> None:
    assert site.claim("a", "box-0", Size(CPUS + 1, 512, 1, cells=1)) is None
    assert not site.held and nova_uses(site, "vcpus") == 0
    assert site.claim("b", "box-0", Size(1, 16, 1, devices=(("gpu", 5),))) is None
    assert not site.held


def test_a_function_goes_or_its_parts_do(site: Site) -> None:
    assert site.claim("a", "box-0", Size(1, 16, 1, devices=(("vf", 1),))) is None
    assert site.claim("b", "box-0", Size(1, 16, 1, devices=(("pf", 1),))) is None
    assert list(site.held) == ["a"]
    assert site.delete("a") is None
    assert site.claim("b", "box-0", Size(1, 16, 1, devices=(("pf", 1),))) is None
    assert site.agents["box-0"].devices()[WHOLE] == "allocated"
    assert site.claim("c", "box-0", Size(1, 16, 1, devices=(("vf", 1),))) is None
    assert list(site.held) == ["b"]


@pytest.mark.parametrize("host", ["box-0", "box-1"])
@pytest.mark.parametrize("is_confirmed", [True, False], ids=["confirmed", "reverted"])
@pytest.mark.parametrize("looks", [True, False], ids=["counted anew", "as it is"])
def test_a_resize_holds_both_until_it_is_decided(
    site: Site, host: str, is_confirmed: bool, looks: bool
) -> None:
    assert site.claim("a", "box-0", PINNED) is None
    assert site.resize("a", host, LARGER) is None
    both = sum(agent.used()["vcpus"] for agent in site.agents.values())
    assert both == PINNED.vcpus + LARGER.vcpus
    assert not looks or site.look() is None
    assert (site.confirm if is_confirmed else site.revert)("a") is None
    left = sum(agent.used()["vcpus"] for agent in site.agents.values())
    assert left == (LARGER if is_confirmed else PINNED).vcpus
    assert site.look() is None


@pytest.mark.parametrize("away", ["live_migrate", "evacuate"])
@pytest.mark.parametrize("is_confirmed", [True, False], ids=["confirmed", "reverted"])
@pytest.mark.parametrize("looks", [True, False], ids=["counted anew", "as it is"])
def test_who_goes_away_holds_both_until_it_is_decided(
    site: Site, away: str, is_confirmed: bool, looks: bool
) -> None:
    size = SPREAD if away == "live_migrate" else PINNED
    assert site.claim("a", "box-0", size) is None
    assert getattr(site, away)("a", "box-1") is None
    assert [agent.used()["vcpus"] for agent in site.agents.values()] == [size.vcpus, size.vcpus]
    assert not looks or site.look() is None
    assert (site.confirm if is_confirmed else site.revert)("a") is None
    left = [agent.used()["vcpus"] for agent in site.agents.values()]
    assert left == ([0, size.vcpus] if is_confirmed else [size.vcpus, 0])
    assert site.look() is None


@pytest.mark.parametrize("away", ["live_migrate", "evacuate"])
def test_who_cannot_go_away_stays(site: Site, away: str) -> None:
    assert site.claim("a", "box-0", SPREAD) is None
    assert site.claim("b", "box-1", Size(2 * CPUS, 1024, 1, cells=2)) is None
    assert getattr(site, away)("a", "box-1") is None
    assert site.held["a"].host == "box-0" and site.held["a"].migration is None


def test_a_rebuild_of_the_same_changes_nothing(site: Site) -> None:
    assert site.claim("a", "box-0", PINNED) is None
    assert site.rebuild("a") is None
    assert site.look() is None


@pytest.mark.parametrize("size", [PLAIN, PINNED, LARGER], ids=["plain", "pinned", "larger"])
@pytest.mark.parametrize("aborts", [True, False], ids=["aborted", "built"])
def test_who_is_shelved_gives_back_all_and_comes_back_anywhere(
    site: Site, size: Size, aborts: bool
) -> None:
    assert site.claim("a", "box-0", size) is None
    assert site.shelve("a") is None
    assert site.look() is None
    assert nova_uses(site, "vcpus") == 0
    assert site.unshelve("a", "box-1", aborts=aborts) is None
    assert site.look() is None
    assert site.agents["box-1"].used()["vcpus"] == (0 if aborts else size.vcpus)
    if aborts:
        assert site.unshelve("a", "box-0") is None
        assert nova_uses(site, "vcpus") == size.vcpus


def test_a_resize_that_does_not_fit_leaves_the_source(site: Site) -> None:
    assert site.claim("a", "box-0", PINNED) is None
    assert site.claim("b", "box-1", Size(2 * CPUS, 1024, 1, cells=2)) is None
    assert site.resize("a", "box-1", LARGER) is None
    assert site.held["a"].host == "box-0" and site.held["a"].migration is None


def test_every_drift_is_in_the_table_of_the_documentation() -> None:
    rows = [row for section in tracker_differences.SECTIONS.values() for row in section]
    assert {row.case.upper() for row in rows} - {""} == {drift.name for drift in Drift}
