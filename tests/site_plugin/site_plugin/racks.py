"""What the hosts of a rack share: the power that it may draw."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from resource_objects.host.tracker.extending import PooledResource
from site_plugin.plain import POWER


class Power(PooledResource):
    """A budget of watts for each rack, as a file of the operator configures it."""

    resource_classes = (POWER.name,)

    def pools(self) -> dict[str, Any]:
        return {
            name: {POWER: POWER.make_inventory(rack["watts"], reserved=rack["reserved"])}
            for name, rack in _racks().items()
        }

    def pool_of(self, host: str) -> str | None:
        return next((name for name, rack in _racks().items() if host in rack["hosts"]), None)


def _racks() -> dict[str, Any]:
    racks: dict[str, Any] = json.loads(Path(os.environ["SITE_CONFIG"]).read_text())["racks"]
    return racks
