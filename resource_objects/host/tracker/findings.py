"""What one look at the hosts found: what changed, what is wrong and where."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from resource_objects.providers import DefinitionChanges


class FindingKind(enum.StrEnum):
    """What is wrong with a host; nothing of that host was changed in the ledger."""

    DRIVER_FAILED = "driver failed"
    REFUSED = "refused"
    REPLACED = "replaced"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a host; ``error`` is what was raised.

    >>> print(Finding("box", FindingKind.DRIVER_FAILED, ValueError("no such node")))
    box: driver failed: ValueError: no such node
    """

    host: str
    kind: FindingKind
    error: Exception

    def __str__(self) -> str:
        known = type(self.error).__module__.startswith("resource_objects.")
        said = str(self.error) if known else f"{type(self.error).__name__}: {self.error}"
        return f"{self.host}: {self.kind}: {said}"


@dataclasses.dataclass(frozen=True, slots=True)
class HostReport:
    """What a look at one host did: what it changed in the ledger, and what is wrong."""

    host: str
    changes: DefinitionChanges | None = None
    findings: tuple[Finding, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.findings)

    def __str__(self) -> str:
        lines = [str(self.changes)] if self.changes else []
        return "\n".join((*lines, *map(str, self.findings)))


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What a look at all hosts did: the hosts with something to say. True if there are any.

    >>> print(Report())
    nothing changed
    """

    hosts: tuple[HostReport, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.hosts)

    def __str__(self) -> str:
        return "\n".join(map(str, self.hosts)) or "nothing changed"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, by host."""
        return tuple(self._findings())

    def _findings(self) -> Iterator[Finding]:
        for host in self.hosts:
            yield from host.findings
