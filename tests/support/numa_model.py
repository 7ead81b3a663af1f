"""A ledger's view of NUMA cells against an inventory in memory that consumes the same amounts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from resource_objects import exceptions
from resource_objects.ledger import Ledger
from resource_objects.reasons import Reason
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    numa,
)
from resource_objects.testing.conformance.suite import TOPOLOGY, host_of
from tests.support.located_model import Held, LocatedMachine, decision
from tests.support.numa_strategies import numa_amounts, question_of

_OF_HOST = ("VCPU", "PCPU", "MEMORY_MB")

_counts = st.integers(0, 3)
_policies = st.sampled_from([None, None, "require", "isolate"])


@st.composite
def _asked(draw: st.DrawFn) -> Callable[[NUMATopologyInventory], NUMATopologyAmount]:
    """Draw an amount, or one that has a chance on the host it is asked of."""
    if draw(st.sampled_from([False, False, True])):
        amount = draw(numa_amounts(max_cells=2))
        return lambda host: amount
    cells, shared, dedicated, policy = draw(_counts), draw(_counts), draw(_counts), draw(_policies)
    memory, size = draw(st.sampled_from([0, 64, 2, 1000])), draw(st.sampled_from(["", "", "any"]))

    def request(host: NUMATopologyInventory) -> NUMATopologyAmount:
        guests = min(max(1, cells), len(host.cells))
        cpus = min(dedicated, max(len(cell.dedicated) for cell in host.cells))
        vcpus = min(shared, max(len(cell.shared) for cell in host.cells))
        megabytes = min(memory, max(cell.ordinary_mb for cell in host.cells))
        return numa(
            guests,
            shared=guests * vcpus,
            dedicated=guests * cpus,
            memory_mb=guests * (megabytes if cpus or vcpus else megabytes or 64),
            page_size=size,
            thread_policy=policy if cpus else None,
        )

    return request


def _host_of(seed: int) -> NUMATopologyInventory:
    """Return a host of any kind, the same for a seed; none of its CPUs serves either way."""
    for number in itertools.count(seed):
        host = question_of(number, max_cells=3).inventory
        if not any(set(cell.shared).intersection(cell.dedicated) for cell in host.cells):
            return host
    raise AssertionError("there are such hosts")


# --- what becomes of CPUs that nobody has ---


def _free(host: NUMATopologyInventory, cell: HostCell) -> list[int]:
    """Return CPUs of which one may go: dedicated, on cores that nobody has any of, not the last."""
    [used] = [used for used in host.usage if used.cell == cell.id]
    near = {cpu for core in cell.siblings if set(core).intersection(used.pinned) for cpu in core}
    remaining = len(cell.dedicated) - len(used.pinned) - used.loose
    may = remaining > 0 and len(cell.dedicated) > 1 and (host.room or {}).get("PCPU", 0) > 0
    return sorted(set(cell.dedicated).difference(used.pinned, near)) if may else []


def _changed(
    cell: HostCell, lost: int, dedicated: Iterable[int], shared: Iterable[int]
) -> HostCell:
    """Return a cell with other CPUs, of which one has lost its core."""
    cores = [[cpu for cpu in core if cpu != lost] for core in cell.siblings]
    return cell.replace(
        dedicated=sorted(dedicated),
        shared=sorted(shared),
        siblings=[core for core in cores if len(core) > 1],
    )


def _shared_now(host: NUMATopologyInventory, place: int) -> list[HostCell]:
    """Return the cells when a dedicated CPU is a shared one, of a cell that has some."""
    return _one_less(host, place, lambda cell, cpu: [*cell.shared, cpu] if cell.shared else None)


def _offline(host: NUMATopologyInventory, place: int) -> list[HostCell]:
    """Return the cells when a dedicated CPU is offline."""
    return _one_less(host, place, lambda cell, cpu: cell.shared)


def _one_less(
    host: NUMATopologyInventory,
    place: int,
    shared: Callable[[HostCell, int], Iterable[int] | None],
) -> list[HostCell]:
    cells = list(host.cells)
    able = [number for number, cell in enumerate(cells) if _free(host, cell)]
    place = able[place % len(able)] if able else 0
    cell = cells[place]
    for cpu in _free(host, cell)[:1]:
        now = shared(cell, cpu)
        if now is not None:
            remaining = [item for item in cell.dedicated if item != cpu]
            cells[place] = _changed(cell, cpu, remaining, now)
            return cells
    return []


def _exchanged(host: NUMATopologyInventory, place: int) -> list[HostCell]:
    """Return the cells when one CPU of each of two is the other's."""
    cells = list(host.cells)
    first, second = place % len(cells), (place + 1) % len(cells)
    items, other_items = _free(host, cells[first])[:1], _free(host, cells[second])[:1]
    if first == second or not items or not other_items:
        return []
    for here, lost, got in ((first, items, other_items), (second, other_items, items)):
        cell = cells[here]
        cpus = {*cell.dedicated}.difference(lost).union(got)
        cells[here] = _changed(cell, lost[0], cpus, cell.shared)
    return cells


_CHANGES = (_shared_now, _offline, _exchanged)


class TopologyMachine(LocatedMachine):
    """Random claims and releases of one host; after each, the view is what the model is.

    The model is the inventory of the same cells: what the ledger gives out it consumes, and what
    is taken of the host as a whole, by number, its ``room`` loses.
    """

    kind = TOPOLOGY
    asked = _asked()

    @initialize(like=st.integers(0, 2**20).map(_host_of))
    def _open(self, like: NUMATopologyInventory) -> None:
        self.open()
        has_shared = any(cell.shared for cell in like.cells)
        has_memory = any(cell.memory_mb for cell in like.cells)
        self.model = NUMATopologyInventory(  # a ratio of nothing is not kept
            like.cells,
            cpu_ratio=like.cpu_ratio if has_shared else 1,
            memory_ratio=like.memory_ratio if has_memory else 1,
        )
        tree = host_of(self.host, self.model)
        self.ledger.sync(tree)
        room = {
            name: tree.inventories[name].to_records()[0].capacity
            for name in _OF_HOST
            if name in tree.inventories
            and any(share.resource_class == name for p in tree.walk() for share in p.shares)
        }
        self.model.update(room=room, resource_class=TOPOLOGY)

    def without(self, allocated: Held) -> None:
        if allocated.kind == TOPOLOGY:
            super().without(allocated)
        elif allocated.where == self.host:
            room = dict(self.model.room or {})
            self.model.update(
                room={**room, allocated.kind: room[allocated.kind] + allocated.amount}
            )
        else:
            self._change_loose(int(allocated.where.rpartition("numa")[2]), -1)

    def plain(self, reason: Reason) -> Reason:
        if reason.cell is None:  # the model knows what the host has left, no more
            reason = dataclasses.replace(reason, bound=reason.free, used=0)
        return super().plain(reason)

    # --- while the machine changes ---

    @rule(request=_asked(), place=st.integers(0, 9), how=st.sampled_from(_CHANGES))
    def _claim_what_was_seen_before(
        self,
        request: Callable[[NUMATopologyInventory], NUMATopologyAmount],
        place: int,
        how: Callable[[NUMATopologyInventory, int], list[HostCell]],
    ) -> None:
        """CPUs that nobody has change between the picture and the claim: it is taken or refused."""
        amount, changed = request(self.model), how(self.model, place)
        if not (name := self.new()) or not changed:
            return
        amount = amount if _fits(self.model, amount) else numa(dedicated=1)
        if not _fits(self.model, amount):
            return
        seen = self.model.fit(amount)
        self._declare(changed)
        result = _outcome(lambda: self.taken(name, seen))
        if isinstance(result, NUMATopologyAmount):
            assert result == seen and self.model.can_provide(seen)
            self.note(name, result)
            return
        assert not _fits(self.model, seen)
        self.claim(amount)

    def _declare(self, cells: list[HostCell]) -> None:
        """Sync the host with other cells, and let the model have them, and who holds something."""
        before, self.model = self.model, self.model.obj_clone()
        self.model.update(cells=cells)
        after = host_of(self.host, self.model)
        inventories = host_of(self.host, before).inventories
        self.ledger.sync(after)
        more = {
            name: after.inventories[name].to_records()[0].capacity
            - inventories[name].to_records()[0].capacity
            for name in before.room or {}
        }
        room = {name: remaining + more[name] for name, remaining in (before.room or {}).items()}
        self.model.update(room=room)
        # who shares CPUs runs on those that are shared now
        shared = {cell.id: cell.shared for cell in cells}
        for name, allocated in self.held.items():
            if allocated.kind == self.kind:
                placed = [
                    item.replace(shared=shared[item.cell]) if item.shared else item
                    for item in allocated.amount.placed
                ]
                self.held[name] = allocated._replace(amount=allocated.amount.replace(placed=placed))

    # --- without a topology ---

    @rule(kind=st.sampled_from(_OF_HOST), count=st.integers(1, 4), much=st.booleans())
    def _float(self, kind: str, count: int, much: bool) -> None:
        """Take something of the host as a whole, wherever it is."""
        name, room = self.new(), dict(self.model.room or {})
        if not name or kind not in room:
            return
        taken = count * (256 if much else 1)
        result = decision(lambda: self.ledger.claim(name, {self.host: {kind: taken}}))
        assert isinstance(result, tuple) == (taken > room[kind])
        if taken <= room[kind]:
            self.model.update(room={**room, kind: room[kind] - taken})
            self.held[name] = Held(self.host, kind, taken)

    @rule(place=st.integers(0, 9))
    def _loosen(self, place: int) -> None:
        """Take a dedicated CPU of a cell, whichever it is."""
        name, used = self.new(), self.model.usage[place % len(self.model.cells)]
        if not name:
            return
        dedicated = self.model.cell(used.cell).dedicated
        location = f"{self.host}/numa{used.cell}"
        room = (self.model.room or {}).get("PCPU", 0)
        fits = len(used.pinned) + used.loose < len(dedicated) and room > 0
        result = decision(lambda: self.ledger.claim(name, {location: "PCPU=1"}))
        assert isinstance(result, tuple) != fits
        if fits:
            self._change_loose(used.cell, 1)
            self.held[name] = Held(location, "PCPU", 1)

    def _change_loose(self, cell_id: int, more: int) -> None:
        usage = [
            used.replace(loose=used.loose + more) if used.cell == cell_id else used
            for used in self.model.usage
        ]
        room = dict(self.model.room or {})
        self.model.update(usage=usage, room={**room, "PCPU": room["PCPU"] - more})


def _outcome(decide: Callable[[], Any]) -> Any:
    """Return what is decided; None if it is refused, or is on what is not there any more."""
    try:
        return decide()
    except (exceptions.CapacityException, exceptions.ForeignAmount):
        return None


def _fits(host: NUMATopologyInventory, amount: NUMATopologyAmount) -> bool:
    return _outcome(lambda: host.fit(amount)) is not None


def topology_machine(fresh: Callable[[], Ledger]) -> type[TopologyMachine]:
    """Return a Hypothesis state machine that compares ledgers with inventories in memory.

    :param fresh: opens a ledger, once per example; the machine clears and closes it
    """
    return type("Machine", (TopologyMachine,), {"fresh": staticmethod(fresh)})
