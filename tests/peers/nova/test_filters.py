"""Nova's scheduler filters and ours, asked of the same fleets.

On random fleets, which say nothing that is read otherwise by design, every filter passes the same
hosts. What is read otherwise has its smallest case here, and a row in the documentation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

import resource_objects as ro
from resource_objects import exceptions, plugins
from resource_objects.providers import ServerGroup
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
from resource_objects.resources.pci import Device, DeviceRequest, DeviceSpec, PCIInventory
from resource_objects.scheduler import RequestSpec, Scheduler
from resource_objects.scheduler.filters.operators import ValueCondition
from resource_objects.scheduler.pipeline import FILTERS
from resource_objects.testing.refusals import raises_code
from tests.peers.nova import filter_differences, numa_sides, pci_chances, pci_sides
from tests.peers.nova import filter_sides as sides
from tests.peers.nova.filter_sides import Box, Fleet, nova_spec
from tests.peers.nova.numa_sides import CONF, objects
from tests.peers.nova.pci_deviations import SCHEDULER
from tests.peers.nova.pci_rules import told_by
from tests.peers.nova.test_numa_search import has_placement, question

pytestmark = pytest.mark.filterwarnings("ignore")

from nova.scheduler import request_filter  # noqa: E402
from nova.scheduler.filters import (  # noqa: E402
    affinity_filter,
    aggregate_image_properties_isolation,
    aggregate_instance_extra_specs,
    aggregate_multitenancy_isolation,
    compute_capabilities_filter,
    extra_specs_ops,
    io_ops_filter,
    num_instances_filter,
    numa_topology_filter,
    pci_passthrough_filter,
)

Capabilities = compute_capabilities_filter.ComputeCapabilitiesFilter
ExtraSpecs = aggregate_instance_extra_specs.AggregateInstanceExtraSpecsFilter
Tenancy = aggregate_multitenancy_isolation.AggregateMultiTenancyIsolation
Images = aggregate_image_properties_isolation.AggregateImagePropertiesIsolation
NUMA = numa_topology_filter.NUMATopologyFilter
PCI = pci_passthrough_filter.PciPassthroughFilter

ANY = "VCPU=1"
NUMBERS = range(filter_differences.FLEETS)


@pytest.fixture(scope="module", autouse=True)
def ready() -> Iterator[None]:
    """Let nova read no configuration file, and not say what it does."""
    CONF([], project="nova", default_config_files=[])
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@contextlib.contextmanager
def configured(**options: Any) -> Iterator[None]:
    """Set options of Nova's scheduler."""
    groups = {name: "filter_scheduler" if "per_host" in name else "scheduler" for name in options}
    for name, value in options.items():
        CONF.set_override(name, value, group=groups[name])
    try:
        yield
    finally:
        for name, group in groups.items():
            CONF.clear_override(name, group=group)


class Tally:
    """How often both passed a host, and refused it: a comparison of nothing is none."""

    def __init__(self) -> None:
        self.passed = self.refused = 0

    def add(self, nova: dict[str, bool], ours: dict[str, bool], told: object) -> None:
        assert nova == ours, told
        self.passed += sum(ours.values())
        self.refused += len(ours) - sum(ours.values())

    def check(self) -> None:
        assert min(self.passed, self.refused) > 50, (self.passed, self.refused)


# --- the words of conditions ----------------------------------------------------------------------

VALUES = ("5", "5.0", "10", "-1", "1e1", "0", "big", "big small", "<or> 5", ">= 5", "A", "a", "+5")
OPERATORS = ("=", "==", "!=", ">=", "<=", "s==", "s!=", "s<", "s<=", "s>", "s>=", "<in>")
WORDS = ("5", "10", "-1", "5.00", "0.5", "big", "i", "small big", "a")
CONDITIONS = (
    *(f"{name} {words}" for name in (*OPERATORS, "<all-in>") for words in WORDS),
    *("<or> 5", "<or> 5 <or> big", "<or> a <or> 10 <or> A", "<or> 5 <or>", *WORDS, "", " 5", "5 "),
)


def nova_says(value: str, condition: str) -> bool | str:
    """Return whether Nova finds it met; or what it raises."""
    try:
        return bool(extra_specs_ops.match(value, condition))
    except (ValueError, IndexError) as error:
        return type(error).__name__


def we_say(value: str, condition: str) -> bool | str:
    """Return whether we do."""
    try:
        return ValueCondition.parse(condition).is_met(value)
    except exceptions.InvalidInput as error:
        if not error.is_about("text"):
            raise
        return error.code


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_value_meets_a_condition_on_both_sides_or_on_none(condition: str) -> None:
    name, *words = condition.split() or [""]
    by_number = name in ("=", "==", "!=", ">=", "<=")
    for value in VALUES:
        nova, ours = nova_says(value, condition), we_say(value, condition)
        if by_number and not is_number(words[0]):
            assert (nova, ours) == ("ValueError", "InvalidText")
        elif by_number and not is_number(value):
            assert (nova, ours) == ("ValueError", False)
        else:
            assert nova == ours, value


@pytest.mark.parametrize(
    ("value", "condition", "nova", "ours"),
    [
        pytest.param("big", ">= 5", "ValueError", False, id="value"),
        pytest.param("5", ">= five", "ValueError", "InvalidText", id="number"),
        pytest.param("5", ">=", False, "InvalidText", id="nothing"),
        pytest.param("5", "<or>", "IndexError", "InvalidText", id="nothing of several"),
        pytest.param("< 5", "< 5", True, "InvalidText", id="operator"),
        pytest.param("b", "<or> a b c", False, True, id="alternatives"),
        pytest.param("9007199254740993", "== 9007199254740992", True, False, id="float"),
        pytest.param("inf", ">= 5", True, False, id="infinite"),
        pytest.param("5", "<= inf", True, "InvalidText", id="infinite bound"),
        pytest.param("nan", "!= 5", True, False, id="no number"),
    ],
)
def test_a_word_that_is_read_otherwise(
    value: str, condition: str, nova: bool | str, ours: bool | str
) -> None:
    assert (nova_says(value, condition), we_say(value, condition)) == (nova, ours)


# --- random fleets --------------------------------------------------------------------------------


def test_capabilities() -> None:
    tally = Tally()
    for number in NUMBERS:
        fleet, asked = sides.fleet(number), sides.capabilities(number)
        nova = fleet.nova(Capabilities, nova_spec(asked))
        ours = fleet.ours("capabilities", RequestSpec(ANY, extra_specs=asked))
        tally.add(nova, ours, (number, asked))
    tally.check()


def test_what_aggregates_say() -> None:
    tally = Tally()
    for number in NUMBERS:
        fleet, asked = sides.fleet(number), sides.of_aggregates(number)
        nova = fleet.nova(ExtraSpecs, nova_spec(asked))
        spec = RequestSpec(ANY, extra_specs=asked)
        tally.add(nova, fleet.ours("aggregate_metadata", spec, metadata=fleet.metadata), number)
    tally.check()


def test_tenants() -> None:
    tally = Tally()
    for number, project in zip(NUMBERS, itertools.cycle((*sides.PROJECTS, "nobody"))):
        fleet = sides.fleet(number)
        nova = fleet.nova(Tenancy, nova_spec(project=project))
        spec = RequestSpec(ANY, project=project)
        tally.add(
            nova, fleet.ours("tenants", spec, tenants=fleet.values("filter_tenant_id")), number
        )
    tally.check()


@contextlib.contextmanager
def stored(fleet: Fleet) -> Iterator[None]:
    """Let Nova's query find the aggregates of a fleet, as its database does: by the whole value."""

    def found(context: Any, key: str | None = None, value: str | None = None) -> list[Any]:
        return [
            sides.aggregate(name, said)
            for name, said in fleet.metadata.items()
            if any(key in (None, k) and value in (None, v) for k, v in said.items())
        ]

    with mock.patch.object(objects.AggregateList, "get_by_metadata", found):
        yield


def in_wanted(fleet: Fleet, spec: Any) -> dict[str, bool]:
    """Return which hosts are in the aggregates that a pre-filter of Nova requires."""
    where = spec.requested_destination if "requested_destination" in spec else None
    wanted = (where and where.aggregates) or []
    return {
        name: all({a.uuid for a in one.aggregates} & {*some.split(",")} for some in wanted)
        for name, one in fleet.of_nova().items()
    }


def test_zones() -> None:
    tally = Tally()
    for number, zone in zip(NUMBERS, itertools.cycle((*sides.ZONES, None))):
        fleet, asked = sides.fleet(number), nova_spec(zone=zone)
        with stored(fleet):
            request_filter.map_az_to_placement_aggregate(None, asked)
        zones: dict[str, list[str]] = {}
        for name, [said] in fleet.values("availability_zone").items():
            zones.setdefault(said, []).append(name)
        ours = fleet.ours("zones", RequestSpec(ANY, zone=zone), zones=zones)
        tally.add(in_wanted(fleet, asked), ours, number)
    tally.check()


def test_tenants_that_go_nowhere_else() -> None:
    """Nova's pre-filter beside its filter: one setting here."""
    tally = Tally()
    for number, project in zip(NUMBERS, itertools.cycle((*sides.PROJECTS, "nobody"))):
        fleet = sides.fleet(number)
        metadata = {  # its pre-filter knows no commas
            name: {**said, "filter_tenant_id": said["filter_tenant_id"].split(",")[0]}
            if "filter_tenant_id" in said
            else said
            for name, said in fleet.metadata.items()
        }
        fleet = dataclasses.replace(fleet, metadata=metadata)
        asked = nova_spec(project=project)
        with stored(fleet), configured(limit_tenants_to_placement_aggregate=True):
            request_filter.require_tenant_aggregate(None, asked)
        passed, wanted = fleet.nova(Tenancy, asked), in_wanted(fleet, asked)
        spec, tenants = RequestSpec(ANY, project=project), fleet.values("filter_tenant_id")
        ours = fleet.ours("tenants", spec, tenants=tenants, confined=True)
        tally.add({name: passed[name] and wanted[name] for name in passed}, ours, number)
    tally.check()


def _distro(name: str) -> str:
    return f"CUSTOM_OS_{name.upper()}"


def test_hosts_kept_for_images() -> None:
    """Each host in one aggregate at most, and images that say what they are."""
    tally = Tally()
    for number, distro in zip(NUMBERS, itertools.cycle(sides.DISTROS)):
        found = sides.fleet(number)
        boxes = [dataclasses.replace(one, aggregates=one.aggregates[:1]) for one in found.boxes]
        kept = {"rack0": "windows", "rack1": "ubuntu"}
        metadata = {
            name: {"os_distro": kept[name]} if name in kept else {} for name in found.metadata
        }
        fleet = Fleet(tuple(boxes), metadata)
        nova = fleet.nova(Images, nova_spec(properties={"os_distro": distro}))
        traits = {name: [_distro(one)] for name, one in kept.items()}
        spec = RequestSpec(ANY, image_traits=[_distro(distro)])
        tally.add(nova, fleet.ours("isolated", spec, traits=traits), number)
    tally.check()


@pytest.mark.parametrize("policy", ["affinity", "anti-affinity"])
@pytest.mark.parametrize("most", [1, 2])
def test_groups(policy: str, most: int) -> None:
    kind = {
        "affinity": affinity_filter.ServerGroupAffinityFilter,
        "anti-affinity": affinity_filter.ServerGroupAntiAffinityFilter,
    }[policy]
    tally = Tally()
    for number in NUMBERS:
        fleet = sides.fleet(number)
        bound = most if policy == "anti-affinity" else 1
        group = ServerGroup("db", policy, sides.MEMBERS[: number % 6], bound)
        hosts = tuple(one.name for one in fleet.boxes if group.members & {*one.servers})
        nova = fleet.nova(kind, nova_spec(group=group, hosts=hosts))
        tally.add(nova, fleet.ours("affinity", RequestSpec(ANY, group=group)), number)
    assert tally.passed > 50 and (tally.refused > 50 or most == 2)


@pytest.mark.parametrize("hint", ["same_host", "different_host"])
def test_hosts_of_other_servers(hint: str) -> None:
    """A hint is a group of those that it names, of which somebody is placed."""
    kind, policy = {
        "same_host": (affinity_filter.SameHostFilter, "affinity"),
        "different_host": (affinity_filter.DifferentHostFilter, "anti-affinity"),
    }[hint]
    tally = Tally()
    for number in NUMBERS:
        fleet = sides.fleet(number)
        members = sides.MEMBERS[: 1 + number % 4]
        if hint == "same_host" and not any({*members} & {*one.servers} for one in fleet.boxes):
            continue
        nova = fleet.nova(kind, nova_spec(hints={hint: list(members)}))
        group = ServerGroup(hint, policy, members)
        tally.add(nova, fleet.ours("affinity", RequestSpec(ANY, group=group)), number)
    tally.check()


@pytest.mark.parametrize(
    ("kind", "option", "name", "most"),
    [
        (io_ops_filter.IoOpsFilter, "max_io_ops_per_host", sides.OPERATIONS, 8),
        (num_instances_filter.NumInstancesFilter, "max_instances_per_host", sides.SERVERS, 50),
    ],
    ids=["operations", "servers"],
)
def test_figures_that_are_bounded(kind: Any, option: str, name: str, most: int) -> None:
    tally = Tally()
    for number in NUMBERS:
        fleet = sides.fleet(number)
        with configured(**{option: most}):
            nova = fleet.nova(kind, nova_spec())
        conditions = {name: f"<= {most - 1}"}
        spec = RequestSpec(ANY)
        tally.add(
            nova, fleet.ours("statistics", spec, conditions=conditions, unknown="pass"), number
        )
    tally.check()


# --- cells and devices: the search itself ---------------------------------------------------------


def numa_filter(case: numa_sides.Case) -> bool:
    """Return whether Nova's filter passes a host."""
    state = Box("box").of_nova({})
    state.numa_topology = case.nova_host()
    state.cpu_allocation_ratio = float(case.cpu_ratio)
    state.ram_allocation_ratio = float(case.memory_ratio)
    more = {}
    limits = case.nova_limits()
    if case.physnets:
        more["network_metadata"] = limits.network_metadata
    return bool(NUMA().host_passes(state, nova_spec(numa_topology=case.nova_request(), **more)))


def places(parts: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Return whether our search finds a place on a host with some parts."""
    host = ro.Provider("box", "DISK_GB=1")
    for kind, inventory in parts.items():
        host.add_parts(kind, inventory)
    with ro.connect("memory://") as ledger:
        ledger.sync(host)
        return bool(ledger.snapshot().candidates(asked))


def test_cells() -> None:
    """The filter answers as Nova's search does, ours as whoever tries everything."""
    differ, tally = 0, Tally()
    for number in NUMBERS:
        case = question(number)
        hosts = tuple(
            dataclasses.replace(
                host,
                pinned=frozenset(),
                used_mb=0,
                pools=tuple(dataclasses.replace(pool, used=0) for pool in host.pools),
            )
            for host in case.hosts
        )
        case = dataclasses.replace(case, hosts=hosts)
        pairs = itertools.product(range(len(case.guests)), range(len(hosts)))
        if not all(numa_sides_agree(case, guest, host) for guest, host in pairs):
            continue
        nova = numa_filter(case)
        ours = places({"NUMA_TOPOLOGY": case.inventory()}, {"NUMA_TOPOLOGY": case.amount()})
        assert ours == has_placement(case)
        assert nova == (case.nova_search() is not None)
        if nova == ours:
            tally.add({"box": nova}, {"box": ours}, number)
        differ += nova != ours
    assert min(tally.passed, tally.refused) > 20
    assert differ == filter_differences.CELLS


def numa_sides_agree(case: numa_sides.Case, guest: int, host: int) -> bool:
    """Whether both say the same of one guest cell on one host cell."""
    one = dataclasses.replace(
        case,
        hosts=(case.hosts[host],),
        guests=(case.guests[guest],),
        has_emulator=case.has_emulator and guest == 0,
        physnets=frozenset(),
    )
    nova = one.nova_pair()
    return not isinstance(nova, ValueError) and (nova is not None) == (one.ours() is not None)


def test_devices() -> None:
    """The filter answers as Nova's pools do at the scheduler, ours as whoever tries everything."""
    differ, tally = 0, Tally()
    for number in NUMBERS:
        case = dataclasses.replace(pci_chances.case(number), chosen=None)
        state = Box("box").of_nova({})
        state.pci_stats = case.nova_scheduler()
        state.allocation_candidates = [{"mappings": pci_sides.nova_mapping(case.requests)}]
        asked = objects.InstancePCIRequests(requests=case.nova_requests())
        nova = bool(PCI().host_passes(state, nova_spec(pci_requests=asked)))
        assert nova == (case.nova_supports(case.nova_scheduler()) == pci_sides.YES)
        ours = case.ours() == pci_sides.YES
        if ours != nova:
            assert told_by(case, SCHEDULER), "without a name"
            differ += 1
            continue
        tally.add({"box": nova}, {"box": ours}, number)
    assert min(tally.passed, tally.refused) > 20
    assert differ == filter_differences.DEVICES


# --- what differs, in its smallest case -----------------------------------------------------------

BOX = Fleet((Box("box"),))


def test_no_attribute_is_a_capability() -> None:
    asked = {"host": "another", "uuid": "x"}
    assert BOX.nova(Capabilities, nova_spec(asked)) == {"box": False}
    assert BOX.ours("capabilities", RequestSpec(ANY, extra_specs=asked)) == {"box": True}


def test_figures_are_what_may_be_given() -> None:
    with ro.connect("memory://") as ledger:
        ledger.sync(ro.Provider("box", "VCPU=16:allocation_ratio=2:reserved=4"))
        [one] = Scheduler(ledger, filters=["capabilities"]).select_destinations(
            RequestSpec(ANY, extra_specs={"capabilities:vcpus_total": "== 24"})
        )
    assert one.host == "box"
    assert BOX.nova(Capabilities, nova_spec({"capabilities:vcpus_total": "== 16"})) == {"box": True}


def test_an_address_width_is_asked_by_its_own_name() -> None:
    wide = "capabilities:cpu_info:maxphysaddr:bits"
    asked, same = {"hw:maxphysaddr_bits": "42"}, {wide: ">= 42"}
    for specs in (asked, same):
        assert BOX.nova(Capabilities, nova_spec(specs)) == {"box": False}
    assert BOX.ours("capabilities", RequestSpec(ANY, extra_specs=asked)) == {"box": True}
    assert BOX.ours("capabilities", RequestSpec(ANY, extra_specs=same)) == {"box": False}


def test_a_comma_in_metadata_is_a_comma() -> None:
    fleet = Fleet((Box("box", aggregates=("rack",)),), {"rack": {"size": "3, 5"}})
    for value, nova, ours in (("5", True, False), ("3, 5", False, True)):
        asked = {"size": value}
        assert fleet.nova(ExtraSpecs, nova_spec(asked)) == {"box": nova}
        spec = RequestSpec(ANY, extra_specs=asked)
        assert fleet.ours("aggregate_metadata", spec, metadata=fleet.metadata) == {"box": ours}


KEPT = Fleet(
    (Box("box", aggregates=("rack0", "rack1")),),
    {"rack0": {"os_distro": "windows"}, "rack1": {"os_distro": "ubuntu"}},
)
KEPT_FOR = {"rack0": ["CUSTOM_OS_WINDOWS"], "rack1": ["CUSTOM_OS_UBUNTU"]}


def test_hosts_kept_for_an_image_take_no_other() -> None:
    one = dataclasses.replace(KEPT, boxes=(Box("box", aggregates=("rack0",)),))
    assert one.nova(Images, nova_spec()) == {"box": True}
    assert one.ours("isolated", RequestSpec(ANY), traits=KEPT_FOR) == {"box": False}


def test_hosts_kept_for_two_images_take_neither_alone() -> None:
    for distro in sides.DISTROS:
        assert KEPT.nova(Images, nova_spec(properties={"os_distro": distro})) == {"box": True}
        spec = RequestSpec(ANY, image_traits=[_distro(distro)])
        assert KEPT.ours("isolated", spec, traits=KEPT_FOR) == {"box": False}
    both = RequestSpec(ANY, image_traits=map(_distro, sides.DISTROS))
    assert KEPT.ours("isolated", both, traits=KEPT_FOR) == {"box": True}


def test_a_zone_that_there_is_not_has_no_host() -> None:
    asked = nova_spec(zone="west")
    with stored(BOX):
        request_filter.map_az_to_placement_aggregate(None, asked)
    assert in_wanted(BOX, asked) == {"box": True}
    assert BOX.ours("zones", RequestSpec(ANY, zone="west"), zones={"north": ["rack"]}) == {
        "box": False
    }


def test_the_first_of_a_group_goes_anywhere() -> None:
    members = [sides.MEMBERS[0]]
    same = affinity_filter.SameHostFilter
    assert BOX.nova(same, nova_spec(hints={"same_host": members})) == {"box": False}
    group = ServerGroup("db", "affinity", members)
    assert BOX.ours("affinity", RequestSpec(ANY, group=group)) == {"box": True}


def test_where_a_group_is_is_read_when_it_is_searched() -> None:
    fleet = Fleet((Box("box", servers=(sides.MEMBERS[0],)), Box("other")))
    group = ServerGroup("db", "affinity", [sides.MEMBERS[0]])
    kind = affinity_filter.ServerGroupAffinityFilter
    before = nova_spec(group=group, hosts=("other",))  # it moved since
    assert fleet.nova(kind, before) == {"box": False, "other": True}
    assert fleet.ours("affinity", RequestSpec(ANY, group=group)) == {"box": True, "other": False}


def test_a_server_is_a_member_of_its_group_where_it_is() -> None:
    fleet = Fleet((Box("box", servers=(sides.NEW, sides.MEMBERS[0])),))
    group = ServerGroup("db", "anti-affinity", [sides.NEW, sides.MEMBERS[0]])
    kind = affinity_filter.ServerGroupAntiAffinityFilter
    assert fleet.nova(kind, nova_spec(group=group)) == {"box": True}
    assert fleet.ours("affinity", RequestSpec(ANY, group=group)) == {"box": False}


def test_a_host_that_tells_nothing_passes_if_that_is_said() -> None:
    fleet = Fleet((Box("box"), Box("loaded", told={sides.OPERATIONS: "7"})))
    assert fleet.nova(io_ops_filter.IoOpsFilter, nova_spec()) == {"box": True, "loaded": True}
    conditions = {sides.OPERATIONS: "<= 7"}
    for unknown, passes in (("pass", True), ("refuse", False)):
        settings = {"conditions": conditions, "unknown": unknown}
        ours = fleet.ours("statistics", RequestSpec(ANY), **settings)
        assert ours == {"box": passes, "loaded": True}
    assert BOX.ours("statistics", RequestSpec(ANY), conditions=conditions, unknown="pass") == {
        "box": True
    }
    # with "refuse", a statistic that no host reports is a misspelled name
    with raises_code("InvalidField", match="expected one that a host reports: none"):
        BOX.ours("statistics", RequestSpec(ANY), conditions=conditions)


FAR = Device("0000:01:00.0", "10de", "2330", resource_class="PGPU", numa_node=1)


def test_devices_are_near_the_cells_or_refused() -> None:
    """Two cells, of which one has the CPUs and the other the device."""
    spec = DeviceSpec(vendor_id="10de", product_id="2330")
    asked = DeviceRequest([spec], affinity="required")
    case = pci_sides.Case((FAR,), (asked,), None, {0: 0, 1: 0})
    state = Box("box").of_nova({})
    state.pci_stats = case.nova_scheduler()
    requests = objects.InstancePCIRequests(requests=case.nova_requests())
    cells = numa_sides.Case(
        (
            numa_sides.Host(0, dedicated=frozenset({0, 1}), siblings=numa_sides.cores([0, 1], 1)),
            numa_sides.Host(1, dedicated=frozenset({2}), siblings=numa_sides.cores([2], 1)),
        ),
        (numa_sides.Guest(dedicated=2),),
    )
    theirs = nova_spec(pci_requests=requests)
    assert PCI().host_passes(state, theirs)
    made = NUMATopologyInventory([HostCell(0, dedicated=[0, 1]), HostCell(1, dedicated=[2])])
    parts = {"NUMA_TOPOLOGY": made, "DEVICES": PCIInventory([FAR])}
    devices = case.amount()
    assert not places(parts, {"NUMA_TOPOLOGY": numa(dedicated=2), "DEVICES": devices})
    assert places(parts, {"NUMA_TOPOLOGY": numa(dedicated=1), "DEVICES": devices})
    assert numa_filter(cells), "each alone would do"


def test_room_is_no_filter() -> None:
    assert not {"NUMATopologyFilter", "PciPassthroughFilter"} & {
        *CONF.filter_scheduler.enabled_filters
    }
    with ro.connect("memory://") as ledger:
        ledger.sync(ro.Provider("box", "VCPU=4"))
        with pytest.raises(ro.NoCandidates, match="DEVICES"):
            Scheduler(ledger, filters=()).select_destinations("VCPU=1,DEVICES=PGPU")


def test_filters_that_there_are_not() -> None:
    for name in ("cidr", "json"):
        with pytest.raises(exceptions.PluginError):
            plugins.load(FILTERS, name)
    assert affinity_filter.SimpleCIDRAffinityFilter and io_ops_filter.AggregateIoOpsFilter
    assert num_instances_filter.AggregateNumInstancesFilter


def test_every_word_that_is_read_otherwise_is_in_the_table() -> None:
    [mark] = test_a_word_that_is_read_otherwise.pytestmark  # type: ignore[attr-defined]
    ids = {one.id for one in mark.args[1]}
    assert {row.case for row in filter_differences.WORDS} <= ids
