"""The life of a tracker: reports, claims, devices that come and go, errors, restarts, and others.

A naive account is kept beside it: what each host has, as the driver said it when it was last
looked at, and who holds what. After each step the ledger says the same. Rules of more (moves,
adoption) are added by subclassing: what they hold goes into :attr:`Life.held`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import resource_objects as ro
from resource_objects.host.tracker import Driver, FindingKind, HostReport, ResourceTracker
from resource_objects.providers import Provider
from resource_objects.providers.reshape import Move
from resource_objects.resources.pci import DEVICES, devices

HOSTS = ("a", "b")
CONSUMERS = ("vm-1", "vm-2", "vm-3", "vm-4")
K = FindingKind

hosts = st.sampled_from(HOSTS)
consumers = st.sampled_from(CONSUMERS)
few = st.integers(0, 3)


@dataclasses.dataclass(frozen=True)
class Word:
    """What a driver says of a host: counts by class, and the places of GPUs."""

    counts: tuple[tuple[str, int], ...]
    gpus: frozenset[int] = frozenset()


def _word(cpus: int, fpgas: int, gpus: set[int]) -> Word:
    counts = {"VCPU": cpus, **({"CUSTOM_FPGA": fpgas} if fpgas else {})}
    return Word(tuple(counts.items()), frozenset(gpus))


words = st.builds(_word, cpus=st.integers(1, 6), fpgas=few, gpus=st.sets(few))


class Scripted(Driver):
    """Says words, or raises."""

    def __init__(self) -> None:
        self.words: dict[str, Word] = {}
        self.broken: set[str] = set()

    def hosts(self) -> Iterable[str]:
        return list(self.words)

    def get_available_resource(self, host: str) -> Word:
        if host in self.broken:
            raise OSError(f"{host} does not answer")
        return self.words[host]

    def update_provider_tree(self, tree: Provider, available: Any) -> Iterable[Move] | None:
        others = [child for child in tree.children if DEVICES not in child.inventories]
        tree.update(inventories=ro.Inventories(dict(available.counts)), children=others)
        found = [_gpu(place) for place in sorted(available.gpus)]
        if found:
            tree.add_parts(DEVICES, ro.PCIInventory(found))
        return None


def _gpu(place: int) -> ro.Device:
    return ro.Device(f"0000:{place:02x}:00.0", "10de", "2330", resource_class="PGPU")


#: Who holds something: ``(host, {class: amount}, places of GPUs)``.
Held: TypeAlias = tuple[str, dict[str, int], frozenset[int]]


@dataclasses.dataclass
class Kept:
    """The account of a host: what the ledger has of it. A GPU is True if it is there no more."""

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    gpus: dict[int, bool] = dataclasses.field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    is_of_record: bool = False  #: adopted, and not looked at since


@dataclasses.dataclass
class Seen:
    """The account of what a tracker remembers of a host."""

    word: Word
    foreign: bool = False
    restored: frozenset[Any] | None = None
    contested: bool = False


class Life(RuleBasedStateMachine):
    """A tracker, its driver, and somebody else who writes to the same ledger."""

    opened: ClassVar[Callable[[], tuple[ro.Ledger, ro.Ledger, str]]]

    @initialize(words=st.lists(words, max_size=3))
    def begin(self, words: list[Word]) -> None:
        self.ledger, self.other, self.prefix = type(self).opened()
        self.told: list[str] = []
        self.kept: dict[str, Kept] = {}
        self.held: dict[str, Held] = {}
        self.driver = self.driver_of()
        self.restart()
        self.driver.words = dict(zip(map(self.name, HOSTS), words, strict=False))
        self.look()

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.look()
            self.ledger.close()
            self.other.close()

    def name(self, short: str) -> str:
        return f"{self.prefix}{short}"

    # --- what a life of more has otherwise ---

    def driver_of(self) -> Scripted:
        return Scripted()

    def tracker_of(self, told: Callable[[HostReport], object]) -> ResourceTracker:
        return ResourceTracker(self.ledger, self.driver, on_change=told)

    def write_first(self, host: str) -> None:
        """Account for what comes before a host is looked at or claimed of."""

    def removed(self, host: str) -> None:
        """Account for a host that is gone, beside that."""

    def place_of(self, host: str, resource_class: str) -> str:
        """Return the provider at which a host counts a class."""
        return host

    def holders(self) -> list[str]:
        """Return the names of all who may hold something."""
        return list(map(self.name, CONSUMERS))

    # --- what the driver says ---

    @rule(host=hosts, word=words)
    def say(self, host: str, word: Word) -> None:
        self.driver.words[self.name(host)] = word

    @rule(host=hosts, change=st.sampled_from([-3, -2, -1, 1]), fpgas=st.integers(0, 1))
    def say_less_or_more(self, host: str, change: int, fpgas: int) -> None:
        word = self.driver.words.get(self.name(host))
        if word is not None:
            cpus = max(1, dict(word.counts)["VCPU"] + change)
            self.say(host, _word(cpus, fpgas, set(word.gpus)))

    @rule(host=hosts, how=st.sampled_from(["raises", "negative", "not named"]))
    def go_wrong(self, host: str, how: str) -> None:
        name = self.name(host)
        if how == "raises":
            self.driver.broken ^= {name}
        elif how == "negative":
            self.driver.words[name] = Word((("VCPU", -1),))
        else:
            self.driver.words.pop(name, None)

    @rule(host=hosts, place=few)
    def plug(self, host: str, place: int) -> None:
        word = self.driver.words.get(self.name(host))
        if word is not None:
            gpus = word.gpus ^ {place}
            self.driver.words[self.name(host)] = dataclasses.replace(word, gpus=gpus)

    # --- what the tracker does ---

    @rule()
    def restart(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.tracker = self.tracker_of(lambda report: self.told.append(report.host))

    @rule()
    def look(self) -> None:
        expected: dict[str, set[FindingKind]] = {}
        changed = set()
        self.seen = {host: seen for host, seen in self.seen.items() if host in self.driver.words}
        for host, word in self.driver.words.items():
            self.write_first(host)
            before = str(self.kept.get(host))
            expected[host] = self._look_at(host, word)
            if str(self.kept.get(host)) != before:
                changed.add(host)
        self.told.clear()
        report = self.tracker.update_available_resource()
        found: dict[str, set[FindingKind]] = {host: set() for host in expected}
        for finding in report.findings:
            found[finding.subject].add(finding.kind)
        assert found == expected
        assert set(report.changed) == set(self.told) == changed
        again = self.tracker.update_available_resource()
        assert again.changed == ()
        assert [str(one) for one in again.findings] == [str(one) for one in report.findings]

    @rule(host=hosts, cpus=few, gpus=st.integers(0, 2))
    def claim_next(self, host: str, cpus: int, gpus: int) -> None:
        """Claim for the first who holds nothing."""
        free = [consumer for consumer in CONSUMERS if self.name(consumer) not in self.held]
        for consumer in free[:1]:
            self.claim(host, consumer, cpus, 0, gpus)

    @rule(host=hosts, consumer=consumers, cpus=few, fpgas=st.integers(0, 1), gpus=few)
    def claim(self, host: str, consumer: str, cpus: int, fpgas: int, gpus: int) -> None:
        host, consumer = self.name(host), self.name(consumer)
        asked, wanted = self.asked(cpus, fpgas, gpus)
        if not wanted:
            return
        self.write_first(host)
        held = self.held.get(consumer)
        if held is None:
            can = host in self.kept and self._fits(host, asked, gpus)
        else:  # the same again is the same claim
            can = held[:2] == (host, asked) and len(held[2]) == gpus
        try:
            self.tracker.claim(consumer, host, wanted)
        except ro.exceptions.ResourceObjectsError:
            assert not can
            return
        assert can
        self.held[consumer] = (host, asked, self.gpus_of(consumer))

    def asked(self, cpus: int, fpgas: int, gpus: int) -> tuple[dict[str, int], dict[str, Any]]:
        """Return what is asked as counts alone, and with devices."""
        counts = {"VCPU": cpus, "CUSTOM_FPGA": fpgas}
        asked = {name: amount for name, amount in counts.items() if amount}
        return asked, {**asked, **({"DEVICES": devices("PGPU", gpus)} if gpus else {})}

    def gpus_of(self, consumer: str) -> frozenset[int]:
        """Return the places of the GPUs that a consumer holds, as the ledger says."""
        units = (unit for one in self.ledger.get_claim(consumer).allocations for unit in one.units)
        return frozenset(int(unit[5:7], 16) for unit in units)

    @rule(consumer=consumers)
    def release(self, consumer: str) -> None:
        consumer = self.name(consumer)
        if self.held.pop(consumer, None) is None:
            return
        self.ledger.release(consumer)

    @rule(host=hosts)
    def remove(self, host: str) -> None:
        host = self.name(host)
        is_held = any(where == host for where, _, _ in self.held.values())
        self.seen.pop(host, None)
        if host not in self.kept or is_held:
            try:
                self.tracker.remove(host)
            except (ro.exceptions.NotFound, ro.exceptions.InUse):
                return
            raise AssertionError(f"{host} was removed")
        self.tracker.remove(host)
        del self.kept[host]
        self.removed(host)

    # --- what somebody else does ---

    @rule(host=hosts, traits=st.sets(st.sampled_from(["CUSTOM_A", "CUSTOM_B"])))
    def set_traits(self, host: str, traits: set[str]) -> None:
        kept = self.kept.get(self.name(host))
        if kept is not None and kept.traits != traits:
            self.other.change(self.name(host), traits=traits)
            kept.traits = frozenset(traits)
            self._touched(host)

    @rule(host=hosts)
    def undo(self, host: str) -> None:
        """Do what a second tracker does: undo what the first one said, whenever it did."""
        for _ in range(2):
            self.set_by_hand(host, 7)
            self.look()

    @rule(host=hosts, cpus=st.integers(1, 2))
    def set_by_hand(self, host: str, cpus: int) -> None:
        kept = self.kept.get(self.name(host))
        if kept is not None and kept.counts["VCPU"] != cpus:
            kept.counts["VCPU"] = cpus
            at = self.name(host)
            own = dict(self.ledger.provider(at).inventories.by_name())
            own["VCPU"] = ro.IntegerInventory(cpus)
            self.other.change(at, inventories=own)
            self._touched(host)

    def _touched(self, host: str) -> None:
        seen = self.seen.get(self.name(host))
        if seen is not None:
            seen.foreign = True
            seen.contested = False

    # --- the account ---

    def _used(self, host: str) -> dict[str, int]:
        used: dict[str, int] = {}
        for where, amounts, _ in self.held.values():
            for name, amount in amounts.items() if where == host else ():
                used[name] = used.get(name, 0) + amount
        return used

    def _taken(self, host: str) -> set[int]:
        return {place for where, _, gpus in self.held.values() if where == host for place in gpus}

    def _fits(self, host: str, asked: dict[str, int], gpus: int) -> bool:
        kept, used = self.kept[host], self._used(host)
        free = {place for place, is_gone in kept.gpus.items() if not is_gone} - self._taken(host)
        return gpus <= len(free) and all(
            used.get(name, 0) + amount <= kept.counts.get(name, 0) for name, amount in asked.items()
        )

    def _look_at(self, host: str, word: Word) -> set[FindingKind]:
        """Account for a look at a host; return what it finds."""
        if host in self.driver.broken:
            return {K.DRIVER_FAILED}
        seen, kept, used = self.seen.get(host), self.kept.get(host), self._used(host)
        same = seen is not None and seen.word == word
        if same and seen is not None and seen.contested:
            return {K.CONTESTED}
        counts = dict(word.counts)
        if any(total < 0 for total in counts.values()):
            return {K.INVALID}
        gone = used.keys() - counts.keys()
        counts |= dict.fromkeys(gone, 0)  # they stay, all of it reserved
        taken = self._taken(host)
        gpus = {place: place not in word.gpus for place in word.gpus | taken}
        changes = _changes(kept, counts, gpus)
        restored = seen.restored if same and seen is not None else None
        if same and seen is not None and seen.foreign and changes:
            if changes == restored:
                seen.contested = True
                return {K.CONTESTED}
            restored = changes
        self.kept[host] = Kept(counts, gpus, frozenset() if kept is None else kept.traits)
        self.seen[host] = Seen(word, restored=restored)
        findings = {K.DEVICE_RETAINED} if any(gpus.values()) else set()
        if gone:
            findings.add(K.IN_USE)
        if any(amount > counts[name] for name, amount in used.items() if name not in gone):
            findings.add(K.OVER_CAPACITY)
        return findings

    @invariant()
    def the_ledger_says_the_same(self) -> None:
        if not hasattr(self, "ledger"):
            return
        there = self.ledger.providers(name=list(map(self.name, HOSTS)))
        assert {one.name for one in there} == self.kept.keys()
        for tree in self.ledger.trees(*self.kept) if self.kept else ():
            name = tree.name
            kept, used, taken = self.kept[name], self._used(name), self._taken(name)
            usage = self.ledger.usage(name)
            own = [one for one in usage if one.provider == self.place_of(name, one.resource_class)]
            gpus = {int(one.provider[-7:-5], 16): one for one in usage if one not in own}
            assert {one.resource_class: one.total for one in own} == kept.counts
            assert {one.resource_class: one.used for one in own if one.used} == used
            assert {place: bool(one.reserved) for place, one in gpus.items()} == kept.gpus
            assert {place for place, one in gpus.items() if one.used} == taken
            assert tree.traits == kept.traits
        holding = self.ledger.consumers(name=self.holders())
        assert {one.name for one in holding} == self.held.keys()


def _changes(
    kept: Kept | None, counts: dict[str, int], gpus: dict[int, bool]
) -> frozenset[tuple[Any, Any]]:
    """Return what differs between a host as it is kept, and as it is to be."""
    before: dict[Any, Any] = {} if kept is None else {**kept.counts, **kept.gpus}
    after: dict[Any, Any] = {**counts, **gpus}
    names = before.keys() | after.keys()
    return frozenset(
        (name, after.get(name)) for name in names if before.get(name) != after.get(name)
    )


def life(
    opened: Callable[[], tuple[ro.Ledger, ro.Ledger, str]], machine: type[Life] = Life
) -> type[Life]:
    """Return the machine on a backend.

    :param opened: gives two ledgers, and what names begin with
    """
    return type(machine.__name__, (machine,), {"opened": staticmethod(opened)})
