"""A finding: an irregularity that a reader or a check reports without failing."""

from __future__ import annotations

import dataclasses

from resource_objects.exceptions import InvalidInput

__all__ = ["Finding"]


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A report about one subject: a fact that cannot be read, a device that is left out.

    ``subject`` is the name of a file, device, row, provider or host. ``kind`` is the kind of the
    finding, empty where the reader has only one; ``detail`` is the explanation; ``error`` is the
    exception that was caught, if there was one.

    >>> print(Finding("/sys/bus/pci/devices/0000:3b:00.0/vendor", detail="missing"))
    /sys/bus/pci/devices/0000:3b:00.0/vendor: missing
    >>> print(Finding("10000:01:00.0", "skipped", "its domain has more than 16 bits"))
    10000:01:00.0: skipped: its domain has more than 16 bits
    """

    subject: str
    kind: str = ""
    detail: str = ""
    error: Exception | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.subject, str) or not self.subject:
            raise InvalidInput("value", "Finding.subject", self.subject, "text, not empty")
        for name in ("kind", "detail"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InvalidInput("value", f"Finding.{name}", value, "text")

    def __str__(self) -> str:
        detail = self.detail or ("" if self.error is None else str(self.error))
        return ": ".join(filter(None, (self.subject, self.kind, detail)))
