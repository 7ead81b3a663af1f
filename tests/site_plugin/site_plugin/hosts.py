"""What a site adds to each of its hosts: abstract, configured, discovered, and broken."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from resource_objects.host.tracker.extending import HostResource
from site_plugin.plain import BANDWIDTH, ENTITLEMENT
from site_plugin.slot import DATABASE_SLOT


class OneDatabase(HostResource):
    """At most one database on each host: one slot, which each database takes."""

    resource_classes = (DATABASE_SLOT.name,)

    def inventories(self, host: str) -> Any:
        return {DATABASE_SLOT: DATABASE_SLOT.make_inventory(1, max_unit=1)}


class Entitlement(HostResource):
    """CPU entitlement, as a file of the operator configures it: total and ratio."""

    resource_classes = (ENTITLEMENT.name,)

    def inventories(self, host: str) -> Any:
        said = json.loads(Path(os.environ["SITE_CONFIG"]).read_text())["entitlement"]
        inventory = ENTITLEMENT.make_inventory(
            said["total"], step_size=10, allocation_ratio=said["ratio"]
        )
        return {ENTITLEMENT: inventory}


class Bandwidth(HostResource):
    """Network bandwidth, discovered: the sum of the speeds of a host's network cards."""

    resource_classes = (BANDWIDTH.name,)

    def inventories(self, host: str) -> Any:
        cards = sorted(Path(os.environ["SITE_HOSTS"], host, "class", "net").iterdir())
        return {BANDWIDTH: sum(int((card / "speed").read_text()) for card in cards)}


class Broken(HostResource):
    """One that cannot be made."""

    def __init__(self) -> None:
        raise OSError("no licence server")

    def inventories(self, host: str) -> str:
        return ""
