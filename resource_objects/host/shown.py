"""A machine as text: told where it stands, kept where the ledger can be reached.

``resource-objects host show -f json`` tells what the machine is in a last row, with how it is to be
shared out, and ``host sync --from`` reads that. What the ledger then keeps is what a sync of the
machine itself would.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from resource_objects.exceptions import InvalidInput
from resource_objects.host.facts import Machine
from resource_objects.providers import serialization

__all__ = ["ShownMachine"]

#: Version of the text.
VERSION = 1
#: The name of its row.
KIND = "machine"


@dataclasses.dataclass(frozen=True, slots=True)
class ShownMachine:
    """What a machine is, which of its devices can be taken, and which CPUs are for whom.

    ``rules``, ``shared`` and ``dedicated`` are text, as the commands take them.

    >>> from resource_objects.host.facts import Core
    >>> box = Machine(hostname="box", cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=2**30)
    >>> shown = ShownMachine(box, rules=("10de:*=PGPU",))
    >>> ShownMachine.from_dict(shown.to_dict()) == shown
    True
    >>> ShownMachine.from_dict({"version": 2})
    Traceback (most recent call last):
    resource_objects.exceptions.UnsupportedVersion: a shown machine is of version 2, this ...
    """

    machine: Machine
    rules: tuple[str, ...] = ()
    shared: str | None = None
    dedicated: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; what is at its default is left out."""
        return {"version": VERSION, **serialization.to_plain(self)}

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the machine that plain data says.

        :raises InvalidInput: naming the value, for what is no machine
        :raises UnsupportedVersion: if another version of the library showed it
        """
        return serialization.from_plain(
            cls, serialization.versioned(data, "a shown machine", VERSION), KIND, {}
        )

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """Return the machine of what ``host show -f json`` printed.

        :raises InvalidInput: naming the value, for what is no JSON, is cut off, or is no machine
        :raises UnsupportedVersion: if another version of the library showed it

        >>> ShownMachine.parse("[]")
        Traceback (most recent call last):
        resource_objects.exceptions.InvalidInput: shown machine: got [], expected what `host ...
        """
        rows = serialization.from_json(text, "shown machine")
        every = rows if isinstance(rows, list) else ()
        found = [row for row in every if isinstance(row, Mapping) and row.get("kind") == KIND]
        if len(found) != 1 or "details" not in found[0]:
            raise InvalidInput(
                "value", "shown machine", rows, "what `host show -f json` prints, all of it"
            )
        return cls.from_dict(found[0]["details"])
