"""The devices of a compute node, live: a genuine inventory that the columns of the node follow.

As in ``_compute_live``: what is copied, pickled or sent is a plain inventory and belongs to nobody.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol, TypeVar

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.host._compute_pci import PCI, DeviceContent
from resource_objects.host._compute_placed import with_devices
from resource_objects.resources import Amount
from resource_objects.resources.pci import Device, PCIAmount, PCIInventory
from resource_objects.resources.pci.amount import given
from resource_objects.resources.pci.renewal import Renewed
from resource_objects.resources.together import Cells

_T = TypeVar("_T")
#: What of a live inventory is to be stated: the rest follows the node.
_STATED = ("devices", "usage", "pools")


class DeviceOwner(Protocol):
    """Whose devices they are."""

    pending_devices: tuple[PCIAmount, ...]

    def _place_devices(self, pending: tuple[PCIAmount, ...], live: PCIInventory) -> None:
        """Write devices of which something was taken, or given back, into the columns."""

    def _follow_devices(self, live: PCIInventory) -> None:
        """Write the states of devices that somebody has into the columns."""

    def _state_devices(self, live: PCIInventory) -> None:
        """Write devices, and what somebody states is taken of them, into the columns."""

    def _cells_beside(self) -> tuple[Cells, frozenset[int]] | None:
        """Return the host cells, and those of whom asks now; None if there are none."""


class LiveDevices(PCIInventory):
    """The devices of a compute node: the node's columns follow them.

    Asked alone, they are near the host cells of the same consumer, if the view is one's with a
    name. Else nobody knows whose cells are whose, and any device will do: what is to be near is
    asked for together, through the node's :class:`~resource_objects.resources.Inventories`.
    """

    _owner: DeviceOwner | None = None
    #: What was pending before something was taken, to undo that.
    _pending: tuple[PCIAmount, ...] = ()

    @classmethod
    def obj_name(cls) -> str:
        """Return the wire name of a plain inventory."""
        return PCIInventory.obj_name()

    @classmethod
    def made(cls, content: DeviceContent, owner: DeviceOwner) -> LiveDevices:
        """Return the live inventory of a node's devices."""
        live = cls(content.devices, usage=content.usage, pools=content.pools, resource_class=PCI)
        live.obj_reset_changes()
        live._owner = owner
        return live

    def mirror(self, content: DeviceContent) -> None:
        """Take over the devices of the node, which knows them already."""
        if DeviceContent.of(self) != content:
            super().update(**content._asdict())
        self.obj_reset_changes()

    def leave(self) -> None:
        """Belong to nobody: the node does not have devices any more, nothing fits."""
        self._owner = None

    # --- asking and taking ---

    def fit(
        self,
        amount: Amount,
        limit: Amount | None = None,
        *,
        cells: Cells | None = None,
        chosen: Collection[int] | None = None,
        within: Collection[str] | None = None,
    ) -> PCIAmount:
        """Return which devices it would be; see :meth:`PCIInventory.fit`."""
        beside = None if cells is not None or self._owner is None else self._owner._cells_beside()
        if beside is not None:
            cells, chosen = beside
        assigned = super().fit(amount, limit, cells=cells, chosen=chosen, within=within)
        if self._owner is None:
            raise exceptions.CapacityException(
                [Reason(Rule.NO_INVENTORY, assigned.count, 0, 0, PCI)]
            )
        return assigned

    def _take(self, assigned: Amount) -> None:
        pending = () if self._owner is None else self._owner.pending_devices
        change = super()._take
        self._changing(
            lambda: change(assigned),
            lambda owner: owner._place_devices(with_devices(pending, given(assigned)), self),
        )
        self._pending = pending

    def _untake(self, assigned: Amount) -> None:
        """Undo :meth:`_take` of a moment ago, as if it had never been."""
        change, pending = super()._untake, self._pending
        self._changing(lambda: change(assigned), lambda owner: owner._place_devices(pending, self))

    def allocate(self, assigned: Amount) -> None:
        """Say that claimed devices are in use now; see :meth:`PCIInventory.allocate`."""
        change = super().allocate
        self._changing(lambda: change(assigned), lambda owner: owner._follow_devices(self))

    # --- stating ---

    def rediscover(self, devices: Iterable[Device]) -> Renewed:
        """Take over how devices are now; see :meth:`PCIInventory.rediscover`.

        :raises InvalidInventory: if they are a ledger's
        """
        change = super().rediscover
        return self._stating(lambda: change(devices))

    def remove(self, address: str) -> None:
        """Remove a device that nobody holds.

        :raises InvalidInventory: if it is a ledger's
        """
        change = super().remove
        self._stating(lambda: change(address))

    def reset(self, address: str) -> None:
        """Make a spent device available again.

        :raises InvalidInventory: if it is a ledger's
        """
        change = super().reset
        self._stating(lambda: change(address))

    def update(self, **values: Any) -> bool:
        """State other devices, what is taken of them, or pools; return whether anything changed.

        :raises FrozenValue: for anything else, which is the node's
        :raises InvalidInventory: if they contradict each other, or the node cannot have them
        """
        for name in values:
            if name not in _STATED:
                raise exceptions.FrozenValue(f"{PCI} {name} follows the compute node")
        change = super().update
        return self._stating(lambda: change(**values))

    def _stating(self, change: Callable[[], _T]) -> _T:
        return self._changing(change, lambda owner: owner._state_devices(self))

    def _changing(self, change: Callable[[], _T], follow: Callable[[DeviceOwner], None]) -> _T:
        """Change this and let the node follow, or neither."""
        before, noted = DeviceContent.of(self), set(self._changed_fields)
        try:
            done = change()
            if self._owner is not None:
                follow(self._owner)
        except BaseException:
            self._restore(before)
            self._changed_fields = noted
            raise
        return done

    def _restore(self, content: DeviceContent) -> None:
        for name, value in content._asdict().items():
            self._store(name, value)
        self._after_copy()

    # --- being one that is plain to others ---

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PCIInventory):
            return NotImplemented
        return self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __deepcopy__(self, memo: dict[int, Any]) -> PCIInventory:  # type: ignore[override]
        twin = PCIInventory(**dict(self._set_fields()))
        twin._reset_to(set(self._changed_fields))
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copy.copy, (copy.deepcopy(self),)

    def __repr__(self) -> str:
        return repr(copy.deepcopy(self))


__all__ = ["DeviceOwner", "LiveDevices"]
