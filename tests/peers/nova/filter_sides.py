"""Random fleets and requests that are said to Nova's scheduler filters and to ours alike.

Nova's filters are asked with its own ``HostState`` and ``RequestSpec``; what differs by design is
not said here (:mod:`tests.peers.nova.filter_differences` has the smallest case of each), so that
on everything that is said both answer the same.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import random
import uuid
from collections.abc import Mapping
from typing import Any

import resource_objects as ro
from resource_objects import plugins
from resource_objects.providers import ServerGroup
from resource_objects.providers.statistics import Statistic
from resource_objects.scheduler import HostStates, RequestSpec
from resource_objects.scheduler.pipeline import FILTERS
from resource_objects.scheduler.states import Reports
from tests.peers.nova.numa_sides import objects

PROJECTS = ("red", "green", "blue")
DISTROS = ("windows", "ubuntu")
ZONES = ("north", "south")
MEMBERS = tuple(f"00000000-0000-0000-0000-{n:012}" for n in range(8))
#: The server that is asked for; it is nowhere yet.
NEW = str(uuid.UUID(int=1 << 96))

NUMBERS = ("build", "heat")
TEXTS = ("model", "cpu_info:vendor", "cpu_info:topology:cores")
OPERATIONS, SERVERS = "io_workload", "num_instances"


@dataclasses.dataclass(frozen=True)
class Box:
    """A host: how much there is, what its agent tells, its aggregates and who is there."""

    name: str
    vcpus: int = 16
    memory_mb: int = 4096
    disk_gb: int = 100
    told: Mapping[str, str] = dataclasses.field(default_factory=dict)
    aggregates: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    server_mb: int = 64  #: what each server takes, besides a CPU

    def of_nova(self, metadata: Mapping[str, Mapping[str, str]]) -> Any:
        """Return Nova's state of it."""
        from nova.scheduler import host_manager

        found = host_manager.HostState(self.name, self.name, None)
        found.vcpus_total, found.vcpus_used = self.vcpus, len(self.servers)
        found.total_usable_ram_mb = self.memory_mb
        found.free_ram_mb = self.memory_mb - self.server_mb * len(self.servers)
        found.total_usable_disk_gb = self.disk_gb
        found.stats = {name: value for name, value in self.told.items() if ":" not in name}
        if nested := _nested(self.told):
            found.cpu_info = json.dumps(nested)
        found.num_io_ops = int(self.told.get(OPERATIONS, 0))
        found.num_instances = int(self.told.get(SERVERS, 0))
        found.instances = dict.fromkeys(self.servers)
        found.aggregates = [aggregate(name, metadata[name]) for name in self.aggregates]
        found.allocation_candidates = [{"mappings": {}}]
        return found


def aggregate(name: str, metadata: Mapping[str, str]) -> Any:
    """Return Nova's aggregate."""
    key = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    return objects.Aggregate(id=1, uuid=key, name=name, metadata=dict(metadata))


def _nested(told: Mapping[str, str]) -> dict[str, Any]:
    """Return what libvirt's driver says as JSON: ``cpu_info:topology:cores`` is in two mappings."""
    found: dict[str, Any] = {}
    for name, value in told.items():
        _first, *path = name.split(":")
        at = found
        for word in path[:-1]:
            at = at.setdefault(word, {})
        if path:
            at[path[-1]] = value
    return found


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Hosts, and what their aggregates say."""

    boxes: tuple[Box, ...]
    metadata: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)

    def of_nova(self) -> dict[str, Any]:
        """Return Nova's states, by name."""
        return {one.name: one.of_nova(self.metadata) for one in self.boxes}

    @functools.cached_property
    def states(self) -> HostStates:
        """Ours, as a scheduler sees them."""
        ledger = ro.connect("memory://")
        ledger.sync(
            *(
                ro.Provider(
                    one.name,
                    f"VCPU={one.vcpus},MEMORY_MB={one.memory_mb},DISK_GB={one.disk_gb}",
                    aggregates=one.aggregates,
                )
                for one in self.boxes
            )
        )
        for one in self.boxes:
            for server in one.servers:
                ledger.claim(server, {one.name: f"VCPU=1,MEMORY_MB={one.server_mb}"})
        told = {
            one.name: [Statistic(name, value) for name, value in one.told.items()]
            for one in self.boxes
        }
        ledger.statistics.put(told)
        return HostStates(ledger.snapshot().fleet, Reports(ledger))

    # --- what each answers ---

    def nova(self, kind: Any, spec: Any) -> dict[str, bool]:
        """Return which hosts a filter of Nova passes."""
        made = kind()
        return {name: bool(made.host_passes(one, spec)) for name, one in self.of_nova().items()}

    def ours(self, name: str, spec: RequestSpec, **settings: Any) -> dict[str, bool]:
        """Return which hosts a filter of ours passes: each alone, and all at once."""
        made, states = plugins.load(FILTERS, name)(**settings), self.states
        found = {host: made.refuses(state, spec) is None for host, state in states.items()}
        together = made.passing(states, spec)
        assert found == dict(zip(states.hosts, together.tolist(), strict=True))
        return found

    def values(self, key: str) -> dict[str, list[str]]:
        """Return what the aggregates say by a key, as Nova reads it: separated by commas."""
        return {
            name: [one.strip() for one in said[key].split(",")]
            for name, said in self.metadata.items()
            if key in said
        }


def nova_spec(
    extra_specs: Mapping[str, str] | None = None,
    *,
    project: str | None = None,
    zone: str | None = None,
    group: ServerGroup | None = None,
    hosts: tuple[str, ...] = (),
    hints: Mapping[str, list[str]] | None = None,
    properties: Mapping[str, str] | None = None,
    **more: Any,
) -> Any:
    """Return Nova's request; of a group it has to be said where its members are."""
    flavor = objects.Flavor(
        name="flavor", vcpus=1, memory_mb=64, extra_specs=dict(extra_specs or {})
    )
    theirs = None
    if group is not None:
        rules = {"max_server_per_host": group.max_per_host} if group.is_apart else {}
        theirs = objects.InstanceGroup(
            uuid=NEW,
            policy=group.policy,
            policies=[group.policy],
            members=sorted(group.members),
            hosts=list(hosts),
            _rules={name: str(value) for name, value in rules.items()},
        )
    return objects.RequestSpec(
        **{
            "instance_uuid": NEW,
            "project_id": project,
            "availability_zone": zone,
            "flavor": flavor,
            "instance_group": theirs,
            "scheduler_hints": dict(hints or {}),
            "image": objects.ImageMeta(properties=objects.ImageMetaProps(**(properties or {}))),
            "numa_topology": None,
            "pci_requests": None,
            **more,
        }
    )


# --- random ones ----------------------------------------------------------------------------------


@functools.cache
def fleet(number: int) -> Fleet:
    """Return some hosts: numbers are told as numbers, no metadata has a comma but of projects."""
    chance = random.Random(number)
    names = [f"rack{n}" for n in range(4)]
    metadata = {name: _metadata(chance, place) for place, name in enumerate(names)}
    waiting = list(MEMBERS)
    chance.shuffle(waiting)
    boxes = []
    for n in range(chance.randint(2, 6)):
        count = chance.choice((0, 0, 1, 1, 2))
        servers, waiting = tuple(waiting[:count]), waiting[count:]
        boxes.append(
            Box(
                f"box{n}",
                vcpus=chance.choice((4, 16)),
                memory_mb=chance.choice((1024, 4096)),
                disk_gb=chance.choice((10, 100)),
                told=_told(chance),
                aggregates=tuple(sorted(chance.sample(names, chance.choice((0, 1, 1, 2))))),
                servers=servers,
            )
        )
    return Fleet(tuple(boxes), metadata)


def _told(chance: random.Random) -> dict[str, str]:
    found = {
        **{name: str(chance.choice((0, 3, 7, "2.5"))) for name in NUMBERS},
        "model": chance.choice(("big", "small", "big and small")),
        "cpu_info:vendor": chance.choice(("Intel", "AMD")),
        "cpu_info:topology:cores": chance.choice(("4", "16")),
        OPERATIONS: str(chance.randint(6, 9)),
        SERVERS: str(chance.randint(48, 52)),
    }
    return dict(chance.sample(list(found.items()), chance.randint(0, len(found))))


def _metadata(chance: random.Random, place: int) -> dict[str, str]:
    said = {
        "ssd": chance.choice(("true", "false")),
        "size": chance.choice(("3", "5", "10")),
        "filter_tenant_id": chance.choice((*PROJECTS, "red,green", "blue, red")),
    }
    found = dict(chance.sample(list(said.items()), chance.randint(0, len(said))))
    if place < 2:
        found["availability_zone"] = ZONES[place]
    return found


_NUMBER_CONDITIONS = ("= 3", "== 3", "!= 3", ">= 3", "<= 3", "<= 2.6", "3", "<or> 3 <or> 7")
_TEXT_CONDITIONS = (
    *("big", "s== big", "s!= big", "s< big", "s<= big", "s> big", "s>= big", "<in> big"),
    *("<all-in> big small", "<or> big <or> AMD", "s== Intel", "<in> A", ""),
)
_FIGURES = ("vcpus_total", "vcpus_used", "total_usable_ram_mb", "free_ram_mb")


def capabilities(number: int) -> dict[str, str]:
    """Return extra specs about what hosts tell, and some that are about something else."""
    chance = random.Random(f"specs {number}")
    found = {"hw:cpu_policy": "dedicated", "nobody_tells_it": "3"}
    for name in chance.sample((*NUMBERS, *TEXTS, *_FIGURES), chance.randint(0, 3)):
        is_number = name not in ("model", "cpu_info:vendor")
        condition = chance.choice(_NUMBER_CONDITIONS if is_number else _TEXT_CONDITIONS)
        if name.startswith(("total_", "free_")):
            condition = chance.choice((">= 1024", "<= 4000", "== 4096", "4096"))
        is_scoped = ":" in name or chance.random() < 0.6
        found[f"capabilities:{name}" if is_scoped else name] = condition
    return found


def of_aggregates(number: int) -> dict[str, str]:
    """Return extra specs about what aggregates say."""
    chance = random.Random(f"specs {number}")
    asked = {
        "ssd": chance.choice(("true", "<or> true <or> false", "s!= true")),
        "size": chance.choice((">= 5", "== 3", "<= 5", "<or> 3 <or> 10", "5")),
        "nobody_says_it": "1",
    }
    found = {"capabilities:model": "big", "hw:cpu_policy": "shared"}
    for name in chance.sample(list(asked), chance.choice((0, 1, 1, 2))):
        scope = "aggregate_instance_extra_specs:" if chance.random() < 0.7 else ""
        found[scope + name] = asked[name]
    return found
