"""Random lives of instances on two hosts, a number each."""

from __future__ import annotations

import random

from resource_objects.host.tracker import MigrationKind
from tests.peers.nova.tracker_sides import HOSTS, Drift, Site, Size


class Life:
    """Random steps, a number each."""

    def __init__(self, number: int) -> None:
        self._chance = random.Random(number)
        self._has_swap = self._chance.random() < 0.1
        self._count = 0

    def step(self, site: Site) -> Drift | None:
        """Do something on both sides, and return what nova says otherwise then."""
        shelved = sorted(name for name, held in site.held.items() if not held.host)
        alive = [host for host in HOSTS if host not in site.dead]
        still = sorted(n for n, h in site.held.items() if h.migration is None and h.host in alive)
        moving = sorted(
            name
            for name, held in site.held.items()
            if held.migration is not None
            and (held.kind is MigrationKind.EVACUATION or {held.host, held.source} <= {*alive})
        )
        steps = ["claim", "claim", "claim", "abort", "look"]
        steps += ["resize", "resize", "delete", "away", "rebuild", "shelve"] if still else []
        steps += ["confirm", "revert"] if moving else []
        steps += ["unshelve", "unshelve"] if shelved else []
        what = self._chance.choice(steps)
        host = self._chance.choice(alive)
        if what in ("claim", "abort"):
            self._count += 1
            name = f"vm-{self._count}"
            return site.claim(name, host, self._size(), aborts=what == "abort")
        if what == "resize":
            return site.resize(self._chance.choice(still), host, self._size())
        if what == "away":
            return self._away(site, self._chance.choice(still))
        if what == "rebuild":
            return site.rebuild(self._chance.choice(still))
        if what == "shelve":
            return site.shelve(self._chance.choice(still))
        if what == "unshelve":
            aborts = self._chance.random() < 0.3
            return site.unshelve(self._chance.choice(shelved), host, aborts=aborts)
        if what == "delete":
            return site.delete(self._chance.choice(still))
        if what == "confirm":
            return site.confirm(self._chance.choice(moving))
        if what == "revert":
            return site.revert(self._chance.choice(moving))
        return site.look()

    def _away(self, site: Site, name: str) -> Drift | None:
        """Move to the other host, live unless it has devices (mostly), or as the host is dead."""
        held = site.held[name]
        [other] = set(HOSTS) - {held.host}
        if other in site.dead:
            return None
        if self._chance.random() < (0.97 if held.size.devices else 0.4):
            return site.evacuate(name, other)
        return site.live_migrate(name, other)

    def _size(self) -> Size:
        chance = self._chance
        cells = chance.choice((0, 1, 1, 2))
        cpus = chance.randint(1, 2) * max(cells, 1)
        return Size(
            cpus,
            chance.choice((512, 1024)) * cells or 16,
            chance.randint(1, 20),
            swap_mb=chance.choice((512, 1024)) if self._has_swap else 0,
            cells=cells,
            devices=chance.choice(
                ((), (), (("gpu", 1),), (("gpu", 2),), (("pf", 1),), (("vf", 1),))
                if chance.random() < 0.985
                else ((("pf", 1), ("vf", 1)),)
            ),
        )
