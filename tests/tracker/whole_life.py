"""The whole life of a tracker: looks and claims with moves, adoption and reshapes among them.

The account of :class:`~tests.tracker.life.Life` goes on: what a migration holds of the source is
held like anything else, by a name of its own, and so is what a record says beyond who is known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import initialize, rule

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.tracker import FindingKind, HostReport, ResourceTracker
from resource_objects.host.tracker.adopting import RecordedConsumer
from resource_objects.host.tracker.moves import migration_of
from resource_objects.providers import Provider
from resource_objects.providers.holders import unattributed
from resource_objects.providers.reshape import Move, Part
from tests.tracker.life import HOSTS, Kept, Life, Scripted, Seen, Word, consumers, few, hosts, words

FPGA = "CUSTOM_FPGA"
_LEAVING = migration_of("vm").removeprefix("vm")
_REMOVERS = ("another", "agent", "agent, which claims")
_ENDS = ("confirm", "revert", "leave", "raise")


def _fpga(host: str) -> str:
    return f"{host}/fpga"


class Reshaping(Scripted):
    """Counts FPGAs at the hosts, or at a child of those that are split; says who runs there."""

    def __init__(self) -> None:
        super().__init__()
        self.split: set[str] = set()
        self.running: dict[str, dict[str, None]] = {}

    def get_available_resource(self, host: str) -> Any:
        return super().get_available_resource(host), host in self.split

    def update_provider_tree(self, tree: Provider, available: Any) -> Iterable[Move]:
        word, is_split = available
        name, kept = _fpga(tree.name), {child.name: child for child in tree.children}
        child = kept.pop(name, Provider(name))
        tree.update(children=kept.values())
        super().update_provider_tree(tree, word)
        counts = dict(word.counts)
        if not counts.get(FPGA):
            return []
        if not is_split:
            return [Move(name, FPGA, (Part(tree.name),))]
        child.update(inventories=ro.Inventories({FPGA: counts.pop(FPGA)}))
        tree.update(inventories=ro.Inventories(counts), children=[*tree.children, child])
        return [Move(tree.name, FPGA, (Part(name),))]

    def consumers(self, host: str) -> Mapping[str, Any] | None:
        return self.running.get(host)


class Records:
    """Old records of some hosts, and who is known to run there."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.known: dict[str, RecordedConsumer] = {}

    def read(self, host: str) -> Any:
        return self.rows.get(host)

    def consumers(self, host: str) -> Iterable[RecordedConsumer]:
        return [self.known[host]] if host in self.known else []

    def write(self, host: str, columns: Mapping[str, Any]) -> None:
        self.rows[host].update(columns)


class WholeLife(Life):
    """A tracker of hosts of which some have old records and some are reshaped now and then."""

    @initialize(
        words=st.lists(words, max_size=3),
        used=st.dictionaries(hosts, st.tuples(st.integers(1, 6), few, st.booleans())),
    )
    def begin(self, words: list[Word], used: dict[str, tuple[int, int, bool]]) -> None:
        """Begin with old records: CPUs, how many are used, and whether it is known by whom."""
        self.used_before = used
        self.records = Records()
        self.adopted: set[str] = set()
        self.moves = 0
        super().begin(words)

    def driver_of(self) -> Scripted:
        for short, (cpus, taken, is_known) in self.used_before.items():
            host = self.name(short)
            self.records.rows[host] = {
                "hypervisor_hostname": host,
                "vcpus": cpus,
                "vcpus_used": taken,
                "cpu_allocation_ratio": 1.0,
            }
            if is_known:
                self.records.known[host] = RecordedConsumer(f"{host}-old", "VCPU=1")
        self.reshaping = Reshaping()
        return self.reshaping

    def tracker_of(self, told: Callable[[HostReport], object]) -> ResourceTracker:
        return ResourceTracker(self.ledger, self.driver, on_change=told, records=self.records)

    def place_of(self, host: str, resource_class: str) -> str:
        return _fpga(host) if resource_class == FPGA and host in self.reshaping.split else host

    def holders(self) -> list[str]:
        every = super().holders()
        for host in map(self.name, HOSTS):
            every += [f"{host}-old", unattributed(host)]
        return [*every, *map(migration_of, every)]

    def removed(self, host: str) -> None:
        self.adopted.discard(host)
        self.reshaping.split.discard(host)

    # --- adoption ---

    def write_first(self, host: str) -> None:
        """Account for the first write to a host: all that its record says is used is held."""
        row = self.records.rows.get(host)
        if row is None or host in self.adopted:
            return
        self.adopted.add(host)
        if host not in self.kept:
            self.kept[host] = Kept({"VCPU": row["vcpus"]}, is_of_record=True)
        known = self.records.known.get(host)
        if known is not None and known.consumer not in self.held:
            self.held[known.consumer] = (host, {"VCPU": 1}, frozenset())
        rest = row["vcpus_used"] - self._used(host).get("VCPU", 0)
        if rest > 0:
            self.held[unattributed(host)] = (host, {"VCPU": rest}, frozenset())

    @rule()
    def records_say_what_the_ledger_says(self) -> None:
        self.look()
        for host in self.adopted & self.driver.words.keys() & self.kept.keys():
            row, kept = self.records.rows[host], self.kept[host]
            assert row["vcpus_used"] == self._used(host).get("VCPU", 0)
            assert row["vcpus"] == kept.counts["VCPU"]
            assert self.ledger.provider(host).adopted_at is not None

    @rule(host=hosts, used=few, is_known=st.booleans(), by=st.sampled_from(_REMOVERS))
    def adopt_again(self, host: str, used: int, is_known: bool, by: str) -> None:
        """Empty an adopted host and remove it; an old program uses it, then it is written again."""
        name = self.name(host)
        row, here = (
            self.records.rows.get(name),
            [n for n, one in self.held.items() if one[0] == name],
        )
        if row is None or name not in self.adopted or name not in self.kept:
            return
        if any(one.endswith(_LEAVING) or self.is_moving(one) for one in here):
            return
        for consumer in here:
            self.ledger.release(consumer)
            del self.held[consumer]
        if by == "another":
            self.other.remove(name)
            self._touched(host)
        else:
            self.tracker.remove(name)
            self.seen.pop(name, None)
        del self.kept[name]
        self.removed(name)
        row["vcpus_used"] = min(used, row["vcpus"])
        self.records.known.pop(name, None)
        if is_known:
            self.records.known[name] = RecordedConsumer(f"{name}-old", "VCPU=1")
        if by == "agent, which claims":
            self.claim_next(host, 1, 0)
        self.records_say_what_the_ledger_says()

    @rule(host=hosts)
    def forget_who_was_there_before(self, host: str) -> None:
        host = self.name(host)
        for consumer in (f"{host}-old", unattributed(host)):
            if self.held.pop(consumer, None) is not None:
                self.ledger.release(consumer)

    # --- moves ---

    def is_moving(self, consumer: str) -> bool:
        return migration_of(consumer) in self.held

    @rule(
        consumer=consumers,
        host=hosts,
        cpus=st.integers(0, 3),
        fpgas=st.integers(0, 1),
        gpus=st.integers(0, 1),
        end=st.sampled_from(_ENDS),
    )
    def move(self, consumer: str, host: str, cpus: int, fpgas: int, gpus: int, end: str) -> None:
        """Move to a host, with another size; then end it, leave it so, or fail meanwhile."""
        consumer, host = self.name(consumer), self.name(host)
        asked, wanted = self.asked(cpus, fpgas, gpus)
        before = self.held.get(consumer)
        if not wanted or before is None:
            return
        self.write_first(host)
        can = not self.is_moving(consumer) and host in self.kept
        can = can and self._fits(host, asked, gpus)
        self.moves += 1
        number = f"m-{self.moves}"
        try:
            moved = self.tracker.move(consumer, host, wanted, migration=number)
        except exceptions.ResourceObjectsError:
            assert not can
            return
        assert can
        again = self.tracker.move(consumer, host, wanted, migration=number)
        assert again == moved == self.tracker.get_move(consumer)
        self.held[migration_of(consumer)] = before
        self.held[consumer] = (host, asked, self.gpus_of(consumer))
        if end == "raise":
            with contextlib.suppress(OSError), moved:
                raise OSError("the guest does not start")
            end = "reverted"
        if end != "leave":
            self.ended(consumer, end)

    def ended(self, consumer: str, end: str) -> None:
        """Account for a move that ends; the tracker ends it, unless that happened already."""
        if end != "reverted":
            found = self.tracker.get_move(consumer)
            ended = getattr(self.tracker, f"{end}_move")(consumer, found.id)
            assert getattr(self.tracker, f"{end}_move")(consumer, found.id) == ended
        source = self.held.pop(migration_of(consumer))
        if end != "confirm":
            self.held[consumer] = source

    @rule(consumer=consumers, end=st.sampled_from(["confirm", "revert"]))
    def end(self, consumer: str, end: str) -> None:
        """End a move, whichever tracker began it."""
        if self.is_moving(self.name(consumer)):
            self.ended(self.name(consumer), end)

    @rule(consumer=consumers, host=hosts, cpus=st.integers(1, 2), gpus=st.integers(0, 1))
    def abort(self, consumer: str, host: str, cpus: int, gpus: int) -> None:
        """Claim, and fail before it is confirmed: nothing is left of it."""
        consumer, host = self.name(consumer), self.name(host)
        asked, wanted = self.asked(cpus, 0, gpus)
        if consumer in self.held:
            return
        self.write_first(host)
        can = host in self.kept and self._fits(host, asked, gpus)
        try:
            with self.tracker.claim(consumer, host, wanted):
                raise OSError("the guest does not start")
        except OSError:
            assert can
        except exceptions.ResourceObjectsError:
            assert not can

    @rule(consumer=consumers)
    def release(self, consumer: str) -> None:
        consumer = self.name(consumer)
        if self.held.pop(consumer, None) is not None:
            self.tracker.release(consumer)
            self.held.pop(migration_of(consumer), None)

    # --- reshapes ---

    @rule(host=hosts)
    def reshape(self, host: str) -> None:
        """Count FPGAs elsewhere from now on: whatever is held of them goes along."""
        self.look()
        host = self.name(host)
        word, kept, seen = self.driver.words.get(host), self.kept.get(host), self.seen.get(host)
        is_right = host not in self.driver.broken and kept is not None and seen is not None
        if not is_right or word is None or seen is None or kept is None or seen.word != word:
            return
        if kept.counts != dict(word.counts) or seen.contested:
            return
        self.reshaping.split ^= {host}
        if FPGA in kept.counts:
            report = self.tracker.update_available_resource(host)
            assert report.changed == (host,)
            assert not {FindingKind.RESHAPE_FAILED} & {one.kind for one in report.findings}
        else:
            self.tracker.update_available_resource(host)
        self.seen[host] = Seen(word)

    # --- who runs there ---

    @rule()
    def nobody_has_drifted(self) -> None:
        """Who moves runs at the source or at the destination, and nobody is an orphan."""
        for host in self.kept:
            at = (name for name, (where, _, _) in self.held.items() if where == host)
            running = {name.removesuffix(_LEAVING) for name in at}
            self.reshaping.running[host] = dict.fromkeys(running - {unattributed(host)})
        assert not self.tracker.drift(*self.kept).findings
