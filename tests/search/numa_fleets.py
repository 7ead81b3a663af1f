"""Small fleets with topologies made from a seed, and requests: with little room, much is refused.

They are kept by a ledger in memory, so that what is found can be claimed; who uses something
already has a topology, or has not, or takes of a cell by number.
"""

from __future__ import annotations

import random

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers import diff
from resource_objects.providers.composite import LocatedViews
from resource_objects.providers.provider import Share
from resource_objects.requests import Request
from resource_objects.resources import IntegerInventory
from resource_objects.resources.numa import (
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
)

TRAITS = ["CUSTOM_A", "CUSTOM_B"]
PAGES = "CUSTOM_HUGEPAGES_2048KB"
TOPOLOGY = "NUMA_TOPOLOGY"


def fleet(seed):
    """Return a ledger with one or two hosts, on which something is used, and a request."""
    chance = random.Random(seed)
    ledger = ro.connect("memory://")
    for number in range(chance.choice([1, 1, 2])):
        ledger.sync(_host(chance, f"host{number}"))
    if chance.random() < 0.1:
        pool = ro.Provider("pool", "DISK_GB=9", traits=["MISC_SHARES_VIA_AGGREGATE"])
        pool.update(aggregates=["rack"])
        ledger.sync(pool)
    for number in range(chance.choice([0, 0, 1, 2, 4])):
        _use(chance, ledger, f"job-{number}")
    return ledger, _request(chance)


def _once_in(chance, times):
    return chance.randrange(times) == 0


def _host(chance, name):
    cells = [] if _once_in(chance, 12) else _cells(chance)
    inventory = None
    if cells:
        inventory = NUMATopologyInventory(cells, cpu_ratio=chance.choice([1, 1, 2]))
    host = ro.Provider(name, _own(chance, inventory), traits=_traits(chance, 4))
    parts = host.add_parts(TOPOLOGY, inventory) if inventory else ()
    for part in parts:
        part.update(traits=_traits(chance, 3))
    if "DISK_GB" not in host.inventories and _once_in(chance, 2):
        host.update(aggregates=["rack"])
    for number in range(chance.choice([0, 0, 1, 2])):
        _device(chance, host, parts, number)
    diff(None, host)
    return host


def _cells(chance):
    found = []
    for cell in range(chance.choice([1, 2, 2, 3])):
        cpus = list(range(6 * cell, 6 * cell + chance.choice([2, 4, 4, 6])))
        shared = chance.choice([[], cpus[:1], cpus[:2]])
        cores = zip(cpus[::2], cpus[1::2], strict=True) if _once_in(chance, 2) else ()
        huge = chance.choice([0, 0, 1, 2, 4])
        pages = [PagePool(size_kib=4, total=64 * 256)]
        pages += [PagePool(size_kib=2048, total=huge)] if huge else []
        found.append(
            HostCell(
                cell,
                shared=shared,
                dedicated=[cpu for cpu in cpus if cpu not in shared],
                siblings=list(cores),
                memory_mb=chance.choice([0, 64]) + 2 * huge or 32,
                pages=pages,
                socket=chance.choice([0, 0, 1, None]),
                physnets=["red"] if _once_in(chance, 4) else [],
            )
        )
    return found


def _own(chance, inventory):
    """Return what a host has itself: mostly what its cells have, seldom less, or nothing of it."""
    own = {"DISK_GB": IntegerInventory(chance.choice([4, 9]))} if _once_in(chance, 2) else {}
    if inventory is None:
        return own or {"VCPU": IntegerInventory(4)}
    cells = inventory.cells
    totals = {
        "VCPU": int(sum(len(cell.shared) for cell in cells) * inventory.cpu_ratio),
        "PCPU": sum(len(cell.dedicated) for cell in cells),
        "MEMORY_MB": sum(cell.ordinary_mb for cell in cells),
    }
    for name, total in totals.items():
        total -= chance.choice([0, 0, 0, 1, 2])
        if total > 0 and not _once_in(chance, 10):
            most = chance.choice([None, None, None, 1])
            own[name] = IntegerInventory(total, max_unit=most)
    return own


def _device(chance, host, parts, number):
    """Add a device that draws on the memory of its host, or on what only a cell has."""
    shares = []
    if "MEMORY_MB" in host.inventories and _once_in(chance, 2):
        shares.append(("FPGA", host.name, "MEMORY_MB"))
    for part in parts:
        kept = {record.resource_class for record in part.inventories[TOPOLOGY].to_records()}
        shared = {share.resource_class for share in part.shares}
        for name in sorted(kept - shared):
            if _once_in(chance, 3):
                shares.append(("FPGA", part.name, name))
    host.add(
        f"{host.name}/card{number}",
        {"FPGA": IntegerInventory(chance.choice([1, 3]))},
        shares=[
            Share(resource_class=name, of=of, of_class=of_class, factor=chance.choice([1, 2]))
            for name, of, of_class in shares
        ],
        traits=_traits(chance, 3),
    )


def _traits(chance, times):
    return [trait for trait in TRAITS if _once_in(chance, times)]


def _use(chance, ledger, consumer):
    """Let somebody take something: of a host, of a cell by number, or a topology."""
    columns = ledger.backend.read()
    rows = list(zip(*columns.inventories, strict=True))
    names = dict(zip(columns.providers.provider_id, columns.providers.name, strict=True))
    pid, name, *_ = chance.choice(rows)
    try:
        if _once_in(chance, 2):
            ledger.claim(consumer, {names[pid]: {name: chance.choice([1, 1, 2, 32])}})
        else:
            views = LocatedViews(columns)
            root = chance.choice(views.trees(TOPOLOGY) or [0])
            view = views.of_tree(root, TOPOLOGY)
            if view is not None:
                ledger.claim(
                    consumer, list(view.allocations(view.inventory.fit(_topology(chance))))
                )
    except (exceptions.CapacityException, exceptions.SearchLimitReached):
        pass  # there is no room for it, then


def _topology(chance):
    policy = chance.choice(["dedicated", "dedicated", "shared", "mixed"])
    following = iter(range(99))
    cells = []
    for _ in range(chance.choice([1, 1, 1, 2, 2, 3])):
        shared = chance.choice([1, 2]) if policy == "shared" else int(policy == "mixed")
        dedicated = 0 if policy == "shared" else chance.choice([1, 1, 1, 2, 2, 4])
        cells.append(
            GuestCell(
                shared=[next(following) for _ in range(shared)],
                dedicated=[next(following) for _ in range(dedicated)],
                memory_mb=chance.choice([0, 2, 2, 4, 32]),
            )
        )
    dedicates = policy != "shared"
    return NUMATopologyAmount(
        cells,
        page_size=chance.choice(["", "", "2048", "large", "any", "small"]),
        thread_policy=chance.choice([None, None, "isolate", "require"]) if dedicates else None,
        emulator_policy="isolate" if dedicates and _once_in(chance, 5) else None,
        physnets=["red"] if _once_in(chance, 6) else [],
        one_socket=_once_in(chance, 8),
    )


def _request(chance):
    topology = None if _once_in(chance, 5) else _topology(chance)
    asked = {} if topology is None else {TOPOLOGY: topology}
    located = {} if topology is None else topology.placed_counts
    for name, most in [("VCPU", 2), ("PCPU", 3), ("MEMORY_MB", 64), ("DISK_GB", 5)]:
        if _once_in(chance, 5):
            asked[name] = located.get(name) or chance.randint(1, most)
    for name, most in [(PAGES, 2), ("FPGA", 2)]:
        if _once_in(chance, 4):
            asked[name] = chance.randint(1, most)
    required = [trait for trait in TRAITS if _once_in(chance, 5)]
    forbidden = [trait for trait in TRAITS if _once_in(chance, 7) and trait not in required]
    return Request(asked or {"VCPU": 1}, required=required, forbidden=forbidden)
