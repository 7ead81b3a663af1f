"""What the commands about devices have in common: columns, names, the order of a list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn

from resource_objects.exceptions import DiscoveryError
from resource_objects.host.pci_ids import PCINames, system_names

if TYPE_CHECKING:
    from resource_objects.cli.base import Command


class Nested(FormattableColumn[Any]):
    """The name of a device: as it is for programs; for people, parts stand below their whole."""

    def human_readable(self) -> str:
        """Return the name, to the right if it stands below another."""
        name, is_below = self._value
        return f"  {name}" if is_below else name

    def machine_readable(self) -> str:
        """Return the name."""
        return str(self._value[0])


class State(FormattableColumn[Any]):
    """The state of a device, for people with the word that it is gone."""

    def human_readable(self) -> str:
        """Return the state, and whether it is gone."""
        state, is_gone = self._value
        return f"{state}, gone" if is_gone else state

    def machine_readable(self) -> str:
        """Return the state."""
        return str(self._value[0])


def family_order(address: str, parent: str | None) -> tuple[Any, ...]:
    """Return a sort key: by address, what is split off a device after it.

    A longer domain is a larger one.

    >>> sorted([("0000:60:02.1", "0000:60:00.0"), ("0000:60:01.0", None), ("0000:60:00.0", None)],
    ...        key=lambda device: family_order(*device))[1]
    ('0000:60:02.1', '0000:60:00.0')
    """
    first = parent or address
    return len(first), first, parent is not None, len(address), address


class Names:
    """Names of devices from the system's pci.ids; none where there is no such file.

    A damaged file is told once, and then nothing has a name: it keeps nobody from working.
    """

    def __init__(self, command: Command) -> None:
        self._command = command
        self._names: PCINames | None = system_names()

    def of(self, vendor_id: str, product_id: str) -> str | None:
        """Return vendor and product by name, None if they have none."""
        try:
            return None if self._names is None else self._names.describe(vendor_id, product_id)
        except DiscoveryError as error:
            self._names = None
            self._command.app.stderr.write(f"resource-objects: names of devices: {error}\n")
            return None


def chosen(
    rows: Iterable[Sequence[Any]], columns: Sequence[str], wanted: Sequence[str]
) -> list[Sequence[Any]]:
    """Return rows with only some of their columns.

    >>> chosen([(1, 2, 3)], ("a", "b", "c"), ("c", "a"))
    [(3, 1)]
    """
    places = [columns.index(name) for name in wanted]
    return [tuple(row[place] for place in places) for row in rows]
