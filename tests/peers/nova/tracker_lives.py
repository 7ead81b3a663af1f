"""Random lives of instances on two hosts, a number each."""

from __future__ import annotations

import random

from tests.peers.nova.tracker_sides import HOSTS, Drift, Site, Size


class Life:
    """Random steps, a number each."""

    def __init__(self, number: int) -> None:
        self._chance = random.Random(number)
        self._has_swap = self._chance.random() < 0.1
        self._count = 0

    def step(self, site: Site) -> Drift | None:
        """Do something on both sides, and return what nova says otherwise then."""
        still = sorted(name for name, held in site.held.items() if held.migration is None)
        moving = sorted(name for name, held in site.held.items() if held.migration is not None)
        steps = ["claim", "claim", "claim", "abort", "look"]
        steps += ["resize", "resize", "delete"] if still else []
        steps += ["confirm", "revert"] if moving else []
        what = self._chance.choice(steps)
        host = self._chance.choice(HOSTS)
        if what in ("claim", "abort"):
            self._count += 1
            name = f"vm-{self._count}"
            return site.claim(name, host, self._size(), aborts=what == "abort")
        if what == "resize":
            return site.resize(self._chance.choice(still), host, self._size())
        if what == "delete":
            return site.delete(self._chance.choice(still))
        if what == "confirm":
            return site.confirm(self._chance.choice(moving))
        if what == "revert":
            return site.revert(self._chance.choice(moving))
        return site.look()

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
