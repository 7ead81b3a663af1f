"""The column ``pci_stats``: kept as it came (``_compute_kept``), or the devices as they are now.

Nova's record counts: pools say how many devices of each kind are free, not which. So a column that
was read is pools; where somebody said which devices there are, they are kept beside it, and the
column says what they come to. It is written in the form and the version that was read, if that can
say it, else in the newest. Nova has no words for the class code of a device, nor for facts of ours:
they are left out of the column. If it would say the same in other words, it stays as it came.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from resource_objects import exceptions, fields
from resource_objects.host._compute_kept import KeptColumn, KeptValue, Versions, document, refuse
from resource_objects.host._compute_kept import versions_in as objects_in
from resource_objects.interop.nova.pci_pools import dump_pci_pools, load_pci_pools
from resource_objects.resources.pci import (
    PCI_DEVICES,
    Device,
    DevicePool,
    DeviceUse,
    PCIInventory,
)

#: The resource of the devices.
PCI = PCI_DEVICES.name
COLUMN = "pci_stats"

_LEFT_OUT = ("class_code", "facts")
#: Instead of versions: the list of dicts from before there were any.
_PLAIN: Versions = {}


class DeviceContent(NamedTuple):
    """Devices and what is taken of them; or pools, where nobody said which devices there are."""

    devices: tuple[Device, ...] = ()
    usage: tuple[DeviceUse, ...] = ()
    pools: tuple[DevicePool, ...] = ()

    @classmethod
    def of(cls, inventory: PCIInventory) -> Self:
        """Return what an inventory says."""
        return cls(inventory.devices, inventory.usage, inventory.pools)

    @classmethod
    def stated(cls, inventory: PCIInventory) -> Self:
        """Return what an inventory of somebody else says: the same in whatever order it says it."""
        devices = sorted(inventory.devices, key=lambda device: device.address)
        return cls(tuple(devices), inventory.usage, inventory.pools)

    def inventory(self) -> PCIInventory:
        """Return the inventory of it."""
        return PCIInventory(self.devices, usage=self.usage, pools=self.pools, resource_class=PCI)


NO_DEVICES = DeviceContent()


class HostDevices(KeptColumn[DeviceContent]):
    """What the column says: as it came, or the devices with what is taken of them now.

    ``of_ledger`` is whether these are a ledger's.
    """

    def __init__(
        self,
        origin: Any = None,
        now: DeviceContent | None = None,
        versions: Versions | None = None,
        *,
        of_ledger: bool = False,
    ) -> None:
        super().__init__(origin, now, versions)
        self.of_ledger = of_ledger

    @classmethod
    def of(cls, inventory: PCIInventory) -> Self:
        """Return what the column says of an inventory."""
        return cls(now=DeviceContent.stated(inventory))

    def become(self, now: DeviceContent, *, of_ledger: bool | None = None) -> HostDevices:
        """Return what is like this now, to be written in the form of this one."""
        kept = self.of_ledger if of_ledger is None else of_ledger
        return HostDevices(self._origin, now, vars(self).get("versions"), of_ledger=kept)

    @property
    def known(self) -> DeviceContent | None:
        """Devices or pools, None if there are none.

        :raises InvalidRow: if the column cannot be read
        """
        return None if self.content in (None, NO_DEVICES) else self.content

    @functools.cached_property
    def versions(self) -> Versions | None:
        """The versions that the column was read in, None for the newest, none at all for a list."""
        if isinstance(document(self._origin), list):
            return _PLAIN
        return None if self._origin is None else objects_in(self._origin)

    def _read(self, raw: Any) -> DeviceContent | None:
        pools = read_pools(raw)
        return DeviceContent(pools=pools) if pools else None

    def _written(self, now: DeviceContent) -> str:
        text = written(now.inventory().as_pools(apart=True), self.versions)
        origin = self._origin.decode() if isinstance(self._origin, bytes) else self._origin
        return str(origin) if self._says(text) else text

    def _says(self, text: str) -> bool:
        """Return whether the column as it came says the same."""
        if not self._origin:
            return False
        try:
            return written(read_pools(self._origin), self.versions) == text
        except exceptions.InvalidRow:
            return False

    def to_primitive(self) -> Any:
        """Return what goes to a wire instead of the column, None where the column does."""
        if self.now is None:
            return None
        return {
            "devices": self.now.inventory().obj_to_primitive(),
            "versions": None if self.versions is None else dict(self.versions),
            "of_ledger": self.of_ledger,
        }

    @classmethod
    def from_primitive(cls, primitive: Mapping[str, Any]) -> Self:
        """Return the devices of their wire form."""
        inventory = PCIInventory.obj_from_primitive(primitive["devices"])
        of_ledger = primitive["of_ledger"]
        if type(of_ledger) is not bool:
            raise ValueError(of_ledger)
        now, versions = DeviceContent.stated(inventory), primitive["versions"]
        return cls(None, now, versions, of_ledger=of_ledger)


class DevicesColumn(KeptValue):
    """The column: whatever a row holds, or an inventory of the devices."""

    KIND = HostDevices
    WORD = "devices"

    def coerce(self, obj: Any, attr: str, value: Any) -> HostDevices:
        if isinstance(value, HostDevices):
            return value
        if isinstance(value, PCIInventory):
            return HostDevices.of(value)
        return HostDevices(super().coerce(obj, attr, value))

    def describe(self) -> str:
        return f"a PCIInventory, {super().describe()}"


class DevicesColumnField(fields.Field[Any]):
    """The column ``pci_stats``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(DevicesColumn(), nullable=True, **kwargs)


# --- reading and writing the column -------------------------------------------------------------


def read_pools(raw: Any) -> tuple[DevicePool, ...]:
    """Return the pools that a column says.

    Cost: nothing for a text that was read before.

    :raises InvalidRow: if it cannot be read
    """
    if raw is None or (isinstance(raw, str | bytes) and not raw):
        return ()
    try:
        return _read(raw)
    except exceptions.InvalidInput as error:
        refuse(COLUMN, error)


@functools.lru_cache(maxsize=256)
def _read(raw: Any) -> tuple[DevicePool, ...]:
    return load_pci_pools(raw)


def written(pools: Iterable[DevicePool], versions: Versions | None) -> str:
    """Return the text of pools, in some form if that can say them, else in the newest.

    :raises CannotDowngrade: if the newest cannot say them either
    """
    if versions is not None:
        try:
            return dump_pci_pools(pools, versions or None, plain=not versions, leave_out=_LEFT_OUT)
        except exceptions.CannotDowngrade:
            pass  # such as the NUMA node, in a version from before there was one
    return dump_pci_pools(pools, leave_out=_LEFT_OUT)


def for_nova(text: Any) -> Any:
    """Return the primitive of Nova's own object for what a column says.

    :raises InvalidRow: if it cannot be read
    """
    form = objects_in(text)
    return document(text if form else written(read_pools(text), None))
