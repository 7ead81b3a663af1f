"""Reshapes by the tracker: a driver's tree changes shape, and what is held goes along."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.tracker import Driver, FindingKind, HostReport, ResourceTracker
from resource_objects.providers import Provider
from resource_objects.providers.dry_run import trees_after
from resource_objects.providers.orders import Write
from resource_objects.providers.reshape import Move, Part
from resource_objects.resources.pci import DEVICES, Device, PCIInventory
from tests import databases
from tests.support.killing import all_or_nothing
from tests.support.lengths import examples


class GPUs(Driver):
    """Hosts with so many VGPUs on each GPU: counted by the host, or each by its GPU.

    It knows which guest runs on which GPU, as who runs the guests does: ``owners[host]`` is
    ``{guest: (number of the GPU, how many)}``. It goes on saying so for ever.
    """

    def __init__(self, *hosts: str, gpus: Sequence[int] = (4, 4)) -> None:
        self.names = hosts
        self.gpus = gpus
        self.nested: set[str] = set()
        self.owners: dict[str, dict[str, tuple[int, int]]] = {host: {} for host in hosts}

    def hosts(self) -> Iterable[str]:
        return self.names

    def get_available_resource(self, host: str) -> Any:
        return host in self.nested, tuple(sorted(self.owners[host].items()))

    def update_provider_tree(self, tree: Provider, available: Any) -> Iterable[Move] | None:
        is_nested, owners = available
        ours = {f"{tree.name}/gpu{n}": total for n, total in enumerate(self.gpus)}
        kept = {child.name: child for child in tree.children}
        children = [child for name, child in kept.items() if name not in ours]
        if not is_nested:
            had = ro.Inventories({"VCPU": 16, "VGPU": sum(self.gpus)})
            tree.update(inventories=had, children=children)
            return [Move(name, "VGPU", (Part(tree.name),)) for name in ours]
        children += [kept.get(name) or Provider(name, {"VGPU": n}) for name, n in ours.items()]
        tree.update(inventories=ro.Inventories("VCPU=16"), children=children)
        return [
            Move(
                tree.name,
                "VGPU",
                (
                    Part(
                        name,
                        consumers={guest: amount for guest, (at, amount) in owners if at == n},
                    ),
                ),
            )
            for n, name in enumerate(ours)
        ]


def held(ledger: ro.Ledger) -> dict[tuple[str, str, str], int]:
    return {
        (who, use.provider, use.resource_class): amount
        for use in ledger.usage()
        for who, amount in use.holders
    }


def four_guests(ledger: ro.Ledger) -> tuple[GPUs, ResourceTracker]:
    """
    box   VCPU=16 VGPU=8      vm-0 .. vm-3 hold VCPU=2 and VGPU=1, vm-0 also of a shared pool
    """
    driver = GPUs("box")
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    ledger.sync(Provider("nfs", "DISK_GB=100"))
    for n in range(4):
        also = {"nfs": "DISK_GB=5"} if n == 0 else {}
        ledger.claim(f"vm-{n}", {"box": "VCPU=2,VGPU=1", **also})
        driver.owners["box"][f"vm-{n}"] = (n % 2, 1)
    return driver, tracker


# --- by example ---


@pytest.mark.law(1, 2)
def test_a_host_changes_its_shape_at_any_look(ledger: ro.Ledger) -> None:
    driver, tracker = four_guests(ledger)
    told: list[HostReport] = []
    tracker = ResourceTracker(ledger, driver, on_change=told.append)
    assert not tracker.update_available_resource()
    driver.nested.add("box")
    cursor = ledger.feed.cursor()
    report = tracker.update_available_resource()
    assert str(report).splitlines() == [
        "+ box/gpu0",
        "+ box/gpu1",
        "~ box: -VGPU",
        "allocations of 4 moved",
    ]
    assert [one.reshaped for one in told] == [("vm-0", "vm-1", "vm-2", "vm-3")]
    assert [one.kind for one in ledger.feed.changes(cursor)] == ["reshape"]
    assert held(ledger) == {
        **{(f"vm-{n}", "box", "VCPU"): 2 for n in range(4)},
        **{(f"vm-{n}", f"box/gpu{n % 2}", "VGPU"): 1 for n in range(4)},
        ("vm-0", "nfs", "DISK_GB"): 5,
    }
    assert not ledger.audit()


def test_it_is_said_for_ever_and_happens_once(ledger: ro.Ledger) -> None:
    driver, tracker = four_guests(ledger)
    driver.nested.add("box")
    tracker.update_available_resource()
    cursor, before = ledger.feed.cursor(), held(ledger)
    assert not tracker.update_available_resource()
    assert not ResourceTracker(ledger, driver).update_available_resource()  # a new process
    ledger.release("vm-2")  # and the driver, which still names it, is asked anew
    ledger.change("box", traits=["CUSTOM_RACK"])
    driver.owners["box"]["vm-9"] = (0, 1)
    assert not tracker.update_available_resource()
    assert held(ledger).items() < before.items()
    assert [one.kind for one in ledger.feed.changes(cursor)] == ["release", "define"]


@pytest.mark.law(3)
def test_there_and_back_and_there(ledger: ro.Ledger) -> None:
    driver, tracker = four_guests(ledger)
    flat = held(ledger)
    driver.nested.add("box")
    tracker.update_available_resource()
    nested = held(ledger)
    for wanted in (flat, nested, flat):
        driver.nested ^= {"box"}
        assert tracker.update_available_resource().changed == ("box",)
        assert held(ledger) == wanted
    assert not ledger.audit()


def test_what_others_added_to_the_tree_survives(ledger: ro.Ledger) -> None:
    driver, tracker = four_guests(ledger)
    tree = ledger.provider("box")
    tree.add("box/foreign", "CUSTOM_SEAT=3", traits=["CUSTOM_THEIRS"])
    tree.update(traits=["CUSTOM_A"], aggregates=["rack-1"])
    ledger.sync(tree)
    driver.nested.add("box")
    tracker.update_available_resource()
    kept = ledger.provider("box")
    assert (kept.traits, kept.aggregates) == ({"CUSTOM_A"}, {"rack-1"})
    assert sorted(one.name for one in kept.children) == ["box/foreign", "box/gpu0", "box/gpu1"]


class Pools(Driver):
    """A host whose card is counted by the host, or by its address, with the functions by name."""

    CARD = "0000:81:00.0"

    def __init__(self) -> None:
        self.by_address = False
        self.functions: dict[str, str] = {}

    def hosts(self) -> Iterable[str]:
        return ["box"]

    def get_available_resource(self, host: str) -> Any:
        return None

    def update_provider_tree(self, tree: Provider, available: Any) -> Iterable[Move] | None:
        where, kind = f"box/{self.CARD}", "CUSTOM_VF"
        if not self.by_address:
            tree.update(inventories=ro.Inventories({"VCPU": 8, kind: 4}), children=[])
            return [Move(where, kind, (Part("box"),))]
        card = Device(self.CARD, "8086", "1572", resource_class="CUSTOM_PF", type="type-PF")
        functions = [
            Device(
                f"0000:81:02.{n}",
                "8086",
                "154c",
                resource_class=kind,
                type="type-VF",
                parent=self.CARD,
            )
            for n in range(4)
        ]
        tree.update(inventories=ro.Inventories("VCPU=8"), children=[])
        tree.add_parts(DEVICES, PCIInventory([card, *functions]))
        owned = {guest: (address,) for guest, address in self.functions.items()}
        return [Move("box", kind, (Part(where, owned=owned),))]


def test_pools_become_devices_that_guests_own_and_pools_again(ledger: ro.Ledger) -> None:
    driver = Pools()
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    for n, address in enumerate(("0000:81:02.3", "0000:81:02.1")):
        ledger.claim(f"vm-{n}", {"box": {"VCPU": 1, "CUSTOM_VF": 1}})
        driver.functions[f"vm-{n}"] = address
    before = held(ledger)
    driver.by_address = True
    assert not tracker.update_available_resource().findings
    owned = {
        one.consumer: [part.units for part in one.allocations if part.units]
        for one in map(ledger.get_claim, driver.functions)
    }
    assert owned == {"vm-0": [("0000:81:02.3",)], "vm-1": [("0000:81:02.1",)]}
    assert not tracker.update_available_resource()
    assert not ledger.audit()
    driver.by_address = False
    assert not tracker.update_available_resource().findings
    assert held(ledger) == before
    assert not ledger.audit()


def test_a_dry_run_says_what_would_go_along_and_writes_nothing(ledger: ro.Ledger) -> None:
    driver, tracker = four_guests(ledger)
    assert not tracker.dry_run("box")
    driver.nested.add("box")
    before = ledger.feed.cursor()
    plan = tracker.dry_run("box")
    assert str(plan).splitlines() == [
        "+ box/gpu0 below box: VGPU=4",
        "+ box/gpu1 below box: VGPU=4",
        "~ box: -VGPU",
        "~ vm-0 is allocated VCPU=2 of box, DISK_GB=5 of nfs, VGPU=1 of box/gpu0",
        "~ vm-1 is allocated VCPU=2 of box, VGPU=1 of box/gpu1",
        "~ vm-2 is allocated VCPU=2 of box, VGPU=1 of box/gpu0",
        "~ vm-3 is allocated VCPU=2 of box, VGPU=1 of box/gpu1",
    ]
    [box] = trees_after([ledger.provider("box")], plan.definitions)
    assert [str(one) for one in box.walk()] == [
        "box: VCPU=16",
        "box/gpu0: VGPU=4",
        "box/gpu1: VGPU=4",
    ]
    assert ledger.feed.cursor() == before
    assert tracker.update_available_resource().hosts[0].reshaped == plan.consumers
    assert trees_after([ledger.provider("box")], None)[0].children[0].name == "box/gpu0"


def test_a_dry_run_that_would_lose_something_is_refused(ledger: ro.Ledger) -> None:
    driver, tracker = four_guests(ledger)
    driver.nested.add("box")
    driver.owners["box"] = {}
    with pytest.raises(exceptions.InvalidPlan):
        tracker.dry_run("box")
    driver.owners["box"] = {f"vm-{n}": (0, 1) for n in range(4)}
    driver.gpus = (3, 5)
    with pytest.raises(exceptions.CapacityException):
        tracker.dry_run("box")


# --- what is wrong is a finding ---


def test_who_is_forgotten_is_noticed_and_nothing_is_changed(ledger: ro.Ledger) -> None:
    driver, tracker = four_guests(ledger)
    del driver.owners["box"]["vm-3"]
    driver.nested.add("box")
    before, kept = ledger.usage(), ledger.provider("box")
    for _ in range(2):
        [finding] = tracker.update_available_resource().findings
        assert finding.kind is FindingKind.RESHAPE_FAILED
        assert "1 VGPU of box allocated to vm-3 is not specified" in str(finding)
        assert isinstance(finding.error, exceptions.InvalidPlan)
        assert finding.error.consumers == ("vm-3",)
    assert (ledger.usage(), ledger.provider("box")) == (before, kept)
    driver.owners["box"]["vm-3"] = (1, 1)
    assert not tracker.update_available_resource().findings


@pytest.mark.parametrize(
    ("owners", "said"),
    [
        ({"vm-0": (0, 2)}, "vm-0, VGPU of box: 1 are allocated, not 2"),
        ({"stranger": (0, 1)}, "stranger has no VGPU of box allocated"),
        ({f"vm-{n}": (0, 1) for n in range(4)}, "box/gpu0: VGPU requested 4, free 3 of 3"),
    ],
)
def test_what_does_not_add_up_is_a_finding(
    ledger: ro.Ledger, owners: Mapping[str, tuple[int, int]], said: str
) -> None:
    driver, tracker = four_guests(ledger)
    driver.gpus = (3, 5)
    driver.owners["box"].update(owners)
    driver.nested.add("box")
    before = held(ledger)
    [finding] = tracker.update_available_resource().findings
    assert finding.kind is FindingKind.RESHAPE_FAILED
    assert said in str(finding)
    assert held(ledger) == before


def test_what_a_migration_holds_goes_along_under_its_name(ledger: ro.Ledger) -> None:
    driver, tracker = four_guests(ledger)
    ledger.sync(Provider("away", "VCPU=16,VGPU=8"))
    ledger.move("vm-1", {"away": "VCPU=2,VGPU=1"}, source_consumer="migration-7")
    driver.nested.add("box")
    [finding] = tracker.update_available_resource().findings
    assert isinstance(finding.error, exceptions.InvalidPlan)
    assert set(finding.error.consumers) == {"vm-1", "migration-7"}
    driver.owners["box"]["migration-7"] = driver.owners["box"].pop("vm-1")
    assert not tracker.update_available_resource().findings
    assert held(ledger)["migration-7", "box/gpu1", "VGPU"] == 1
    assert held(ledger)["vm-1", "away", "VGPU"] == 1


class Odd(GPUs):
    """It returns something else than moves."""

    said: Any = None

    def update_provider_tree(self, tree: Provider, available: Any) -> Any:
        super().update_provider_tree(tree, available)
        return self.said


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (3, FindingKind.INVALID),
        ("VGPU", FindingKind.INVALID),
        ([("box", "VGPU", "box/gpu0")], FindingKind.INVALID),
        ([Move("box", "VGPU", (Part("box/nowhere"),))], FindingKind.REFUSED),
        (None, FindingKind.IN_USE),
    ],
)
def test_what_is_no_move_is_a_finding(ledger: ro.Ledger, said: Any, kind: FindingKind) -> None:
    four_guests(ledger)
    driver = Odd("box")
    driver.nested.add("box")
    driver.said = said
    before = held(ledger)
    [finding] = ResourceTracker(ledger, driver).update_available_resource().findings
    assert finding.kind is kind
    assert held(ledger) == before


def test_one_host_that_cannot_stops_no_other(ledger: ro.Ledger) -> None:
    driver = GPUs("a", "b", "c")
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    for host in driver.names:
        ledger.claim(f"vm-{host}", {host: "VGPU=1"})
        driver.owners[host] = {} if host == "b" else {f"vm-{host}": (1, 1)}
    driver.nested.update("abc")
    report = tracker.update_available_resource()
    assert [one.subject for one in report.findings] == ["b"]
    assert held(ledger) == {
        ("vm-a", "a/gpu1", "VGPU"): 1,
        ("vm-b", "b", "VGPU"): 1,
        ("vm-c", "c/gpu1", "VGPU"): 1,
    }


def test_a_consumer_of_two_hosts_goes_along_on_both(ledger: ro.Ledger) -> None:
    driver = GPUs("a", "b")
    tracker = ResourceTracker(ledger, driver)
    tracker.update_available_resource()
    ledger.claim("wide", {"a": "VGPU=1", "b": "VGPU=2"})
    driver.owners = {"a": {"wide": (0, 1)}, "b": {"wide": (1, 2)}}
    driver.nested.update("ab")
    assert not tracker.update_available_resource().findings
    assert held(ledger) == {("wide", "a/gpu0", "VGPU"): 1, ("wide", "b/gpu1", "VGPU"): 2}


# --- others at the same moment ---


@pytest.mark.law(2)
def test_who_comes_in_between_is_seen(ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody claims, changes its claim, or edits the tree between the reading and the write."""
    driver, tracker = four_guests(ledger)
    driver.nested.add("box")

    def start() -> None:
        driver.owners["box"]["late"] = (1, 1)
        ledger.claim("late", {"box": "VGPU=1"})

    coming: list[Callable[[], Any]] = [
        start,
        lambda: ledger.adjust("vm-0", {"box": "VCPU=1"}),
        lambda: ledger.change("box", traits=["CUSTOM_A"]),
    ]
    commit = ledger.backend.commit

    def late(write: Write) -> Any:
        if write.kind == "reshape" and coming:
            coming.pop(0)()
        return commit(write)

    monkeypatch.setattr(ledger.backend, "commit", late)
    first = tracker.update_available_resource()
    # the driver said what it knew before: that one more runs there, it says the next time
    assert [one.kind for one in first.findings] == [FindingKind.RESHAPE_FAILED]
    assert not tracker.update_available_resource().findings
    assert not coming
    assert held(ledger)["late", "box/gpu1", "VGPU"] == 1
    assert held(ledger)["vm-0", "box", "VCPU"] == 3
    assert ledger.provider("box").traits == {"CUSTOM_A"}
    assert not ledger.audit()


def test_two_trackers_reshape_a_host_once(ledger: ro.Ledger) -> None:
    driver, tracker = four_guests(ledger)
    driver.nested.add("box")
    other = ResourceTracker(ledger, driver)
    assert tracker.update_available_resource().hosts[0].reshaped
    assert not other.update_available_resource()


# --- a life of it, against a naive account ---


class Life(RuleBasedStateMachine):
    """Guests come and go, the host changes its shape: the account is kept by hand."""

    ledger: ro.Ledger

    def __init__(self) -> None:
        super().__init__()
        self.host = f"host{next(_NUMBER)}"
        self.driver = GPUs(self.host, gpus=(3, 2, 1))
        self.tracker = ResourceTracker(self.ledger, self.driver)
        self.tracker.update_available_resource()
        self.account: dict[str, tuple[int, int]] = {}
        self.nested = False

    def _free(self, gpu: int) -> int:
        return self.driver.gpus[gpu] - sum(n for at, n in self.account.values() if at == gpu)

    @rule(name=st.sampled_from("abcdef"), gpu=st.integers(0, 2), amount=st.integers(1, 3))
    def start(self, name: str, gpu: int, amount: int) -> None:
        """A guest that finds no room on its GPU is not started by who knows that."""
        guest = f"{name}-{self.host}"
        if guest in self.account or amount > self._free(gpu):
            return
        where = f"{self.host}/gpu{gpu}" if self.nested else self.host
        self.ledger.claim(
            guest,
            {where: {"VGPU": amount}, self.host: {"VCPU": 1}}
            if self.nested
            else {where: {"VGPU": amount, "VCPU": 1}},
        )
        self.account[guest] = gpu, amount
        self.driver.owners[self.host][guest] = gpu, amount

    @rule(name=st.sampled_from("abcdef"), is_told=st.booleans())
    def stop(self, name: str, is_told: bool) -> None:
        guest = f"{name}-{self.host}"
        if self.account.pop(guest, None) is not None:
            self.ledger.release(guest)
        if is_told or not self.nested:
            self.driver.owners[self.host].pop(guest, None)

    @rule()
    def change_shape(self) -> None:
        self.nested = not self.nested
        self.driver.nested ^= {self.host}
        self.driver.owners[self.host] = dict(self.account)
        assert not self.tracker.update_available_resource().findings

    @rule()
    def forget_one(self) -> None:
        """The driver does not know of one guest: nothing is changed."""
        if self.nested or not self.account:
            return
        forgotten, *_ = sorted(self.account)
        owners = {one: own for one, own in self.account.items() if one != forgotten}
        self.driver.owners[self.host] = owners
        self.driver.nested.add(self.host)
        [finding] = self.tracker.update_available_resource().findings
        assert finding.kind is FindingKind.RESHAPE_FAILED
        self.driver.nested.discard(self.host)
        assert not self.tracker.update_available_resource().findings

    @rule()
    def restart(self) -> None:
        self.tracker = ResourceTracker(self.ledger, self.driver)
        assert not self.tracker.update_available_resource()

    @invariant()
    def everybody_holds_what_the_account_says(self) -> None:
        wanted = {(guest, self.host, "VCPU"): 1 for guest in self.account}
        for guest, (gpu, amount) in self.account.items():
            where = f"{self.host}/gpu{gpu}" if self.nested else self.host
            wanted[guest, where, "VGPU"] = amount
        found = held(self.ledger).items()
        assert {key: n for key, n in found if key[0].endswith(f"-{self.host}")} == wanted

    def teardown(self) -> None:
        for guest in self.account:
            self.ledger.release(guest)
        self.tracker.remove(self.host)


_NUMBER = itertools.count()


@pytest.mark.law(1, 2, 3)
@pytest.mark.drawn
def test_the_life_of_a_host_that_changes_its_shape(everywhere: ro.Ledger) -> None:
    run_state_machine_as_test(
        type("Life", (Life,), {"ledger": everywhere}),
        settings=hypothesis.settings(max_examples=examples(60), stateful_step_count=15),
    )


# --- killed in between ---


def _look(ledger: ro.Ledger) -> None:
    driver = GPUs("box")
    driver.owners["box"] = {f"vm-{n}": (n % 2, 1) for n in range(4)}
    driver.nested.add("box")
    assert not ResourceTracker(ledger, driver).update_available_resource().findings


@pytest.mark.parametrize("everywhere_kind", databases.KINDS, indirect=True)
@pytest.mark.law(2, 4)
def test_an_agent_that_is_killed_while_it_reshapes_starts_again(everywhere_url: str) -> None:
    with ro.connect(everywhere_url) as ledger:
        four_guests(ledger)
        before = held(ledger)
    after = {
        (who, f"box/gpu{int(who[-1]) % 2}" if kind == "VGPU" else place, kind): amount
        for (who, place, kind), amount in before.items()
    }
    every = 3 if examples(100) == 100 else 5
    all_or_nothing(everywhere_url, _look, held, after, every)
