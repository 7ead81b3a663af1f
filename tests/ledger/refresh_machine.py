"""Random writes to a ledger, and a snapshot that is kept fresh: it is as one that is read anew."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import resource_objects as ro
from resource_objects.providers.provider import Share
from resource_objects.search import Snapshot
from tests.ledger.device_hosts import card, gpu, host_of
from tests.ledger.fleet_pictures import picture_of

#: Hosts, in no order of their making.
HOSTS = ("m", "b", "z", "a0", "a")
CONSUMERS = ("job-1", "job-2", "job-3")
TRAITS = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")
AGGREGATES = ("rack0", "rack1")

#: Of what a name is changed, or made.
RENAMED = ("class", "trait", "aggregate", "new")
#: Who is meant of those that are there.
_which = st.integers(0, 30)
_hosts = st.sampled_from(HOSTS)
_traits = st.sets(st.sampled_from(TRAITS), max_size=2)
_aggregates = st.sets(st.sampled_from(AGGREGATES), max_size=2)


def _flat(name: str, number: int) -> ro.Provider:
    return ro.Provider(name, f"VCPU={8 + number},MEMORY_MB=64", traits=TRAITS[: number % 3])


def _with_gpus(name: str, number: int) -> ro.Provider:
    host = ro.Provider(name, "VCPU=8,CUSTOM_X=4")
    for place in range(1 + number % 2):
        host.add(f"{name}/gpu{place}", "PGPU=1", traits=["CUSTOM_A"])
    return host


def _with_shares(name: str, number: int) -> ro.Provider:
    host = ro.Provider(name, "VCPU=8,MEMORY_MB=64")
    for place in range(2):
        shares = [Share(resource_class="VCPU", of=name, of_class="VCPU", factor=1 + number % 2)]
        host.add(f"{name}/gpu{place}", "VCPU=4,PGPU=2", shares=shares)
    return host


def _with_devices(name: str, number: int) -> ro.Provider:
    return host_of([gpu(1, 0), *card(2, 2, node=1)], name, cells=2 * (number % 2))


Shape = Callable[[str, int], ro.Provider]
SHAPES: tuple[Shape, ...] = (*(_flat, _with_gpus, _with_shares, _with_devices),)
#: Devices of these hosts, and one that none has.
UNITS = (gpu(1, 0).address, *(one.address for one in card(2, 2)), "0000:09:00.0")
USES = (
    ("claim",) * 5
    + ("replace",) * 3
    + ("adjust", "adjust", "swap", "confirm", "release", "release")
)


Use = tuple[str, str, int, int]
_uses: st.SearchStrategy[list[Use]] = st.lists(
    st.tuples(st.sampled_from(USES), st.sampled_from(CONSUMERS), _which, _which),
    min_size=1,
    max_size=6,
)


class RefreshMachine(RuleBasedStateMachine):
    """Writes by two ledgers of one backend; now and then each takes a snapshot."""

    opened: ClassVar[Callable[[], tuple[ro.Ledger, ro.Ledger]]]

    @initialize(shapes=st.lists(st.sampled_from(SHAPES), min_size=2, max_size=5))
    def begin(self, shapes: list[Shape]) -> None:
        self.ledger, self.other = type(self).opened()
        self.kept: list[tuple[Snapshot, dict[str, Any]]] = []
        self.ways: set[str] = set()
        for number, (name, shape) in enumerate(zip(HOSTS, shapes, strict=False)):
            self.ledger.sync(shape(name, number))
        self.look()

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.look()
            for snapshot, picture in self.kept:
                assert picture_of(snapshot) == picture, "an old snapshot keeps its picture"
            self.ledger.close()
            self.other.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[ro.Ledger]:
        """Lend the ledger that writes; what it refuses is no matter here."""
        with contextlib.suppress(ro.exceptions.ResourceObjectsError):
            yield self.other

    def _name(self, which: int, roots: bool = False) -> str:
        """Return the name of one of those that are there."""
        columns = self.other.backend.read(allocations=False)
        rows = zip(columns.providers.name, columns.providers.parent_id, strict=True)
        names = sorted(name for name, parent in rows if parent is None or not roots)
        return names[which % len(names)] if names else "nobody"

    # --- definitions ---

    @rule(name=_hosts, shape=st.sampled_from(SHAPES), number=st.integers(0, 3))
    def sync(self, name: str, shape: Shape, number: int) -> None:
        with self._writing() as ledger:
            ledger.sync(shape(name, number))

    @rule(which=_which, shape=st.sampled_from(SHAPES), what=st.sampled_from(["go", "go", "again"]))
    def remove(self, which: int, shape: Shape, what: str) -> None:
        """Remove a provider, or make a host again with the uuid and the generation it had."""
        name = self._name(which, roots=what == "again")
        with self._writing() as ledger:
            kept = ledger.provider(name)
            ledger.remove(name)
            if what == "again":
                again = shape(name, which)
                again.update(uuid=kept.uuid)
                ledger.sync(again)

    @rule(which=_which, to=st.sampled_from([*HOSTS, "c", "zz", "a/gpu0", "z/gpu1"]))
    def rename(self, which: int, to: str) -> None:
        with self._writing() as ledger:
            ledger.change(self._name(which), name=to)

    @rule(which=_which, parent=_which, top=st.sampled_from([False, False, True]))
    def reparent(self, which: int, parent: int, top: bool) -> None:
        with self._writing() as ledger:
            ledger.change(self._name(which), parent=None if top else self._name(parent))

    @rule(which=_which, traits=_traits)
    def set_traits(self, which: int, traits: set[str]) -> None:
        with self._writing() as ledger:
            ledger.change(self._name(which), traits=traits)

    @rule(which=_which, aggregates=_aggregates)
    def set_aggregates(self, which: int, aggregates: set[str]) -> None:
        with self._writing() as ledger:
            ledger.change(self._name(which), aggregates=aggregates)

    @rule(which=_which, total=st.integers(1, 9))
    def set_inventories(self, which: int, total: int) -> None:
        with self._writing() as ledger:
            ledger.change(self._name(which), inventories=f"VCPU={total},PGPU=1,CUSTOM_X={total}")

    @rule(pool=_which, host=_which, aggregate=st.sampled_from(AGGREGATES))
    def share(self, pool: int, host: int, aggregate: str) -> None:
        """Make a pool of a class that nobody else has, and link a host to it."""
        with self._writing() as ledger:
            name = self._name(pool, roots=True)
            ledger.change(name, inventories="CUSTOM_POOLED=100")
            ledger.pools.share(name, hosts=[self._name(host, roots=True)], aggregate=aggregate)

    @rule(which=_which)
    def report(self, which: int) -> None:
        with self._writing() as ledger:
            ledger.pools.report(self._name(which), "CUSTOM_POOLED=90")

    @rule(which=_which, reason=st.sampled_from(["fan", "disk", None]))
    def disable_or_enable(self, which: int, reason: str | None) -> None:
        with self._writing() as ledger:
            if reason is None:
                ledger.enable(self._name(which))
            else:
                ledger.disable(self._name(which), reason=reason)

    @rule(what=st.sampled_from(RENAMED), name=st.sampled_from(TRAITS))
    def rename_something(self, what: str, name: str) -> None:
        with self._writing() as ledger:
            if what == "class":
                old, new = (
                    ("CUSTOM_X", "CUSTOM_Y") if name == "CUSTOM_A" else ("CUSTOM_Y", "CUSTOM_X")
                )
                ledger.names.classes.rename(old, new)
            elif what == "trait":
                ledger.names.traits.rename(name, TRAITS[TRAITS.index(name) - 1])
            elif what == "aggregate":
                ledger.names.aggregates.rename(AGGREGATES[0], AGGREGATES[1])
            else:
                ledger.names.traits.ensure(name)

    # --- use ---

    @rule(uses=_uses)
    def use_and_look(self, uses: list[Use]) -> None:
        for one in uses:
            self.use([one])
            self.look()

    @rule(uses=_uses)
    def use(self, uses: list[Use]) -> None:
        for what, name, one, two in uses:
            with self._writing() as ledger:
                if what == "swap":
                    ledger.swap(name, CONSUMERS[one % len(CONSUMERS)])
                elif what in ("confirm", "release"):
                    getattr(ledger, what)(name)
                else:
                    getattr(ledger, what)(name, {**self._some(one), **self._some(two)})

    def _some(self, which: int) -> dict[str, Any]:
        """Return a little of what somebody has; of devices, what the host has."""
        name = self._name(which)
        kept = self.other.provider(name)
        kinds = sorted(key.name for key in kept.inventories if not key.is_placed)
        if not kinds or any(key.is_placed for key in kept.inventories):
            root = next(self.other.trees(name))
            return {root.name: "DEVICES=" + ("PGPU" if which % 2 else "SRIOV_NET_VF")}
        return {name: f"{kinds[which % len(kinds)]}=1"}

    # --- looking ---

    @rule()
    def look(self) -> None:
        """Take a snapshot: it is as one that is read anew."""
        for ledger in (self.ledger, self.other):
            fresh = ledger.snapshot()
            read = Snapshot(ledger.backend.read())
            picture = picture_of(fresh)
            assert picture == picture_of(read)
            assert fresh.cursor == read.cursor
            assert ledger.snapshot() is fresh
            self.ways.add(fresh.refreshed.way)
            if not self.kept or self.kept[-1][0] is not fresh:
                self.kept.append((fresh, picture))


def refresh_machine(opened: Callable[[], tuple[ro.Ledger, ro.Ledger]]) -> type[RefreshMachine]:
    """Return a state machine whose ledgers are two of one backend.

    :param opened: opens both on an empty ledger, once per example; the machine closes them
    """
    return type("Machine", (RefreshMachine,), {"opened": staticmethod(opened)})
