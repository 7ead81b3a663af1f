"""What a site adds to its hosts: configured, discovered, abstract, and broken."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from resource_objects.host.tracker.extending import HostResource


class OneDatabase(HostResource):
    """At most one consumer of a type on each host: one of it, which each takes."""

    resource_classes = ("CUSTOM_ONE_DATABASE",)

    def inventories(self, host: str) -> str:
        return "CUSTOM_ONE_DATABASE=1"


class Entitlement(HostResource):
    """CPU entitlement in hundredths of a core, sold more than once."""

    resource_classes = ("CUSTOM_CPU_ENTITLEMENT",)

    def inventories(self, host: str) -> str:
        return "CUSTOM_CPU_ENTITLEMENT=800:step_size=10:allocation_ratio=1.5"


class Bandwidth(HostResource):
    """Network bandwidth in Mbit/s, as a file says it for each host."""

    resource_classes = ("CUSTOM_NET_MBIT",)

    def inventories(self, host: str) -> Any:
        total = json.loads(Path(os.environ["SITE_BANDWIDTH"]).read_text())[host]
        return {"CUSTOM_NET_MBIT": total}


class Broken(HostResource):
    """One that cannot be made."""

    def __init__(self) -> None:
        raise OSError("no licence server")

    def inventories(self, host: str) -> str:
        return ""
