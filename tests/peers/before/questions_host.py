"""Questions about hosts: rows of compute nodes, saves, adoption, and machines that are read.

The first questions of ``discovery`` are the captured machines: the one in ``tests/host``, and those
in the folder ``shared`` next to the checkout where there is one. The others are generated.
"""

from __future__ import annotations

import atexit
import functools
import os
import pathlib
import random
import shutil
import tarfile
import tempfile
from typing import Any

import resource_objects as ro
from resource_objects.exceptions import CannotDowngrade
from resource_objects.host.linux import read_machine
from resource_objects.interop import nova
from tests.host import libvirt_xml, trees, used_hosts
from tests.peers.before.questions import Case, damaged, wire
from tests.support import numa_strategies

_TESTS = pathlib.Path(__file__).resolve().parents[2]
_SHARED = _TESTS.parents[1] / "shared" / "data"
_RULES = ["10de:*=PGPU+CUSTOM_H100", "8086:*=CUSTOM_CARD", "*:*/02=CUSTOM_NIC"]


# --- compute nodes ---


def _row(chance: random.Random, *, is_used: bool) -> dict[str, Any]:
    """Return a row of ``compute_nodes``, often with cells or devices."""
    used = (lambda most: chance.choice([0, 0, 1, most])) if is_used else (lambda most: 0)
    row: dict[str, Any] = {"hypervisor_hostname": "host0", "host": "host0"}
    row |= {"vcpus": 8, "vcpus_used": used(8), "memory_mb": 16384, "memory_mb_used": used(12288)}
    row |= {"local_gb": 100, "local_gb_used": used(30)}
    if chance.random() < 0.4:
        row["cpu_allocation_ratio"] = chance.choice([1.0, 1.5, 2.0, 16.0, 0.0])
    if chance.random() < 0.3:
        row["disk_available_least"] = chance.choice([50, 0, -3])
    return row | _placed_columns(chance, is_used=is_used)


def _placed_columns(chance: random.Random, *, is_used: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if chance.random() < 0.4:
        found["numa_topology"] = _topology(chance, is_used=is_used)
    if chance.random() < 0.3:
        inventory = used_hosts.gpus(chance.choice([1, 2]))
        if is_used and chance.random() < 0.5:
            inventory.consume(ro.DEVICES.make_amount("PGPU"))
        node = ro.ComputeNode.from_row({"vcpus": 1, "vcpus_used": 0})
        node.update_inventories({"DEVICES": inventory})
        found["pci_stats"] = node.to_row().get("pci_stats")
    return {key: value for key, value in found.items() if value is not None}


def _topology(chance: random.Random, *, is_used: bool) -> str:
    inventory: Any = used_hosts.cells()
    if chance.random() < 0.4:
        inventory = numa_strategies.question_of(chance.randrange(2**32)).inventory
        if not is_used:
            inventory = ro.NUMATopologyInventory(inventory.cells)
    elif is_used and chance.random() < 0.7:
        inventory.consume(ro.numa(cells=2, dedicated=4, memory_mb=1024))
    try:
        return nova.dump_host_numa_topology(inventory, leave_out={"distances"})
    except CannotDowngrade:
        return nova.dump_host_numa_topology(used_hosts.cells())


_BAD = ["8", None, True, -1, 2**31, 10.5, "x", float("nan"), {}]


def rows(chance: random.Random, seed: int) -> Case:
    """A row, one in three with a value that cannot be, and amounts to take of it."""
    row = _row(chance, is_used=True)
    for _ in range(chance.choice([0, 0, 1])):
        key = chance.choice(sorted(row))
        bad = chance.choice(_BAD[:-2])
        row[key] = damaged(chance, row[key]) if isinstance(row[key], str) else bad
    if chance.random() < 0.2:
        del row[chance.choice(sorted(row))]
    amounts = ro.Amounts(chance.choice(_AMOUNTS))
    settings: dict[str, Any] = {}
    if chance.random() < 0.3:
        settings["reserved"] = chance.choice(["MEMORY_MB=512", "VCPU=1,DISK_GB=3", "VCPU=9"])
    if chance.random() < 0.2:
        settings[chance.choice(["ratios", "initial_ratios"])] = chance.choice(["VCPU=4", "VCPU=x"])
    return {
        "row": row,
        "amounts": {key.name: wire(amount) for key, amount in amounts.items()},
        "settings": settings,
    }


_AMOUNTS = ["VCPU=2", "VCPU=2,MEMORY_MB=512,DISK_GB=5", "VCPU=9", "MEMORY_MB=99999"]


def _tree(chance: random.Random) -> list[ro.Provider]:
    if chance.random() < 0.3:
        return []
    ratio = chance.choice(["", ":allocation_ratio=2"])
    host = ro.Provider("host0", f"VCPU=8{ratio},MEMORY_MB=16384,DISK_GB=100,CUSTOM_SEATS=3")
    if chance.random() < 0.5:
        host.add("host0/gpu0", "PGPU=1")
    return [host]


_VERBS = ["consume", "consume", "consume", "give_back", "save", "save", "save"]
_VERBS += ["reload", "check_save", "update", "claim", "release"]


def _node_step(chance: random.Random) -> Case:
    do = chance.choice(_VERBS)
    if do in ("consume", "give_back"):
        key = chance.choice(["VCPU", "VCPU", "MEMORY_MB", "DISK_GB", "NUMA_TOPOLOGY", "DEVICES"])
        amounts = {
            "NUMA_TOPOLOGY": ro.numa(cells=1, dedicated=2, memory_mb=64),
            "DEVICES": ro.devices("PGPU"),
        }
        amount = amounts.get(key) or ro.Amounts({key: chance.choice([1, 2, 4, 9])})[key]
        return {"do": do, "key": key, "amount": wire(amount), "fits": key in amounts}
    if do == "update":
        total = chance.choice([4, 8, 16])
        return {"do": do, "inventories": wire({"VCPU": ro.Inventories({"VCPU": total})["VCPU"]})}
    if do == "claim":
        what = {"host0": {"VCPU": chance.choice([1, 2, 8])}}
        return {"do": do, "consumer": chance.choice("ab"), "what": what}
    return {"do": do, "consumer": chance.choice("ab")} if do == "release" else {"do": do}


def _saves(chance: random.Random, *, is_used: bool) -> Case:
    roots = _tree(chance)
    held = {}
    if roots and chance.random() < 0.6:
        held["a"] = {"host0": {"VCPU": chance.choice([1, 2]), "MEMORY_MB": 1024}}
    steps = [_node_step(chance) for _ in range(chance.randint(2, 7))] + [{"do": "save"}]
    row = _row(chance, is_used=is_used)
    return {"trees": wire(roots), "held": held, "row": row, "steps": steps}


def saves(chance: random.Random, seed: int) -> Case:
    """A node that is bound to a ledger, changed and saved; nothing of it is used before."""
    return _saves(chance, is_used=False)


def adoption(chance: random.Random, seed: int) -> Case:
    """A record whose host is in use, and a ledger that knows some consumers of it, or none."""
    return _saves(chance, is_used=True)


# --- machines ---


@functools.cache
def _folder() -> pathlib.Path:
    folder = tempfile.mkdtemp(prefix="machines-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pathlib.Path(folder)


@functools.cache
def archives() -> tuple[pathlib.Path, ...]:
    """Return the captured machines that are here."""
    own = (_TESTS / "host" / "captured_vm.tar.gz",)
    return own + tuple(sorted(_SHARED.glob("*/*.tar.*")))


@functools.cache
def _unpacked(archive: pathlib.Path) -> pathlib.Path:
    target = _folder() / archive.name.partition(".tar")[0]
    with tarfile.open(archive) as tar:
        for member in tar:
            path = target / member.name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            file = tar.extractfile(member) if member.isfile() else None
            if member.issym():
                os.symlink(member.linkname, path)
            elif file is not None:
                path.write_bytes(file.read())
    below = [one for one in target.iterdir() if one.name not in ("proc", "sys", "etc")]
    return below[0] if len(below) == 1 and not (target / "sys").exists() else target


def discovery(chance: random.Random, seed: int) -> Case:
    """A machine: captured, generated, described by libvirt, or with files that are damaged."""
    options: Case = {
        "rules": chance.choice([[], _RULES, _RULES[:1], [*_RULES, "x"]]),
        "strict": chance.random() < 0.2,
        "tree": {"numa": chance.random() < 0.7, **_settings(chance)},
    }
    if seed < len(archives()):
        return {"root": str(_unpacked(archives()[seed])), **options, "strict": False}
    root = _folder() / f"generated-{seed}"
    shutil.rmtree(root, ignore_errors=True)
    trees.write(root, _shape(chance))
    if chance.random() < 0.3:
        machine = libvirt_xml.told(read_machine(root))
        text = libvirt_xml.capabilities(machine)
        text = damaged(chance, text) if chance.random() < 0.5 else text
        return {"capabilities": text, "devices": list(libvirt_xml.devices(machine)), **options}
    if chance.random() < 0.4:
        _damage(chance, root)
    return {"root": str(root), **options}


def _settings(chance: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if chance.random() < 0.3:
        found["reserved"] = chance.choice(["MEMORY_MB=64", "VCPU=1", "DISK_GB=1"])
    if chance.random() < 0.3:
        found["ratios"] = chance.choice(["VCPU=16", "VCPU=1.5", "PGPU=2"])
    if chance.random() < 0.3:
        found["dedicated"] = chance.choice(["0", "0-1", "99"])
    return found


def _shape(chance: random.Random) -> trees.Shape:
    packages, per_package = chance.choice([1, 1, 2]), chance.choice([1, 1, 2])
    cores, threads, memory_only = (
        chance.choice([1, 2]),
        chance.choice([1, 2]),
        chance.choice([0, 0, 1]),
    )
    nodes = packages * per_package + memory_only
    cpus = packages * per_package * cores * threads
    functions = [
        trees.Function(
            bus=bus,
            node=chance.choice([None, 0, 1]),
            vendor=chance.choice(["8086", "10de"]),
            class_id=chance.choice(["020000", "030200"]),
            totalvfs=8,
            vfs=chance.choice([0, 0, 2]),
        )
        for bus in range(1, chance.choice([1, 2, 3]))
    ]
    return trees.Shape(
        packages=packages,
        nodes_per_package=per_package,
        cores_per_node=cores,
        threads=threads,
        node_ids=tuple(chance.sample(range(12), nodes)),
        memory_kib=tuple(chance.choice([1, 1 << 20, 1 << 22]) for _ in range(nodes)),
        huge=tuple({2048: chance.choice([0, 0, 16])} for _ in range(nodes)),
        interleaved=chance.random() < 0.5,
        offline=frozenset(chance.sample(range(cpus), chance.choice([0, 0, 1]) if cpus > 1 else 0)),
        numa=chance.random() < 0.8,
        old=chance.random() < 0.3,
        initiators=((0,),) * memory_only,
        functions=tuple(functions),
        absolute_links=chance.random() < 0.2,
        hostname=chance.choice([None, "gen"]),
    )


def _damage(chance: random.Random, root: pathlib.Path) -> None:
    """Remove or overwrite some files of a generated machine, most of them those that matter."""
    files = sorted(one for one in root.rglob("*") if one.is_file() and not one.is_symlink())
    named = [
        one for one in files if one.name in ("meminfo", "online", "cpulist", "vendor", "class")
    ]
    for path in chance.sample(files, min(2, len(files))) + chance.sample(named, min(2, len(named))):
        if chance.random() < 0.6:
            path.unlink(missing_ok=True)
        else:
            path.write_text(chance.choice(["", "x\n", "99999999\n", "-1\n"]))
