"""Hosts as they are used: one of old records becomes one of the ledger when it is written."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.host.compute_node import ComputeNode
from resource_objects.host.tracker import FindingKind, ResourceTracker
from resource_objects.host.tracker.adopting import Adopter, RecordedConsumer, adoption_plan
from resource_objects.providers.plan import Plan
from resource_objects.testing.refusals import raises_code
from tests import conftest, databases
from tests.host.used_hosts import USED, cells, placed_row, row
from tests.host.views import held
from tests.tracker.agents import Agent

NOBODY = "host1/unattributed"
VM = RecordedConsumer("vm-1", "VCPU=3,MEMORY_MB=4096,DISK_GB=10", project="p", user="u")


class Rows:
    """Old records in a dictionary."""

    def __init__(self, known: Iterable[RecordedConsumer] = (), **rows: Any) -> None:
        self.rows = {name: dict(ComputeNode.read(one).to_row()) for name, one in rows.items()}
        self.known = tuple(known)
        self.writes: list[Mapping[str, Any]] = []

    def read(self, host: str) -> Any:
        return self.rows.get(host)

    def consumers(self, host: str) -> Iterable[RecordedConsumer]:
        return self.known

    def write(self, host: str, columns: Mapping[str, Any]) -> None:
        self.rows[host].update(columns)
        self.writes.append(columns)


@pytest.fixture(params=["memory", *databases.KINDS])
def connect(
    request: pytest.FixtureRequest, scratch: databases.Scratch
) -> Iterator[Callable[[], ro.Ledger]]:
    """A function that opens one ledger, of a database each time anew."""
    kind = request.param
    if kind not in ("memory", "sqlite"):
        conftest.require_server(kind)
    with contextlib.ExitStack() as lent:
        if kind == "memory":
            one = lent.enter_context(ro.connect("memory://"))
            yield lambda: one
        else:
            url = lent.enter_context(scratch.prepared(kind, SQLBackend.upgrade_database))
            yield lambda: lent.enter_context(ro.connect(url))


@pytest.mark.law(11)
def test_reading_a_host_builds_a_view_of_its_record_and_writes_nothing(ledger: ro.Ledger) -> None:
    records = Rows(host1=row())
    cursor = ledger.feed.cursor()
    view = Adopter(ledger, records).view("host1")
    assert view.vcpus_used == 8 and not view.inventories["VCPU"].can_provide(ro.IntegerAmount(1))
    assert ledger.feed.cursor() == cursor and not records.writes
    with raises_code("ProviderNotFound", match="host2"):
        Adopter(ledger, records).view("host2")
    assert Adopter(ledger, records).adopt("host2") == ()


@pytest.mark.law(1)
def test_the_first_write_adopts_a_host_with_all_its_consumers(
    connect: Callable[[], ro.Ledger],
) -> None:
    ledger = connect()
    adopter = Adopter(ledger, Rows([VM], host1=row()))
    claims = adopter.adopt("host1")
    assert {one.consumer for one in claims} == {"vm-1", NOBODY}
    assert held(ledger, "vm-1") == "VCPU=3,MEMORY_MB=4096,DISK_GB=10"
    assert held(ledger, NOBODY) == "VCPU=5,MEMORY_MB=8192,DISK_GB=20"
    (known,) = ledger.consumers(user="u")
    assert (known.name, known.project) == ("vm-1", "p")
    assert ledger.provider("host1").adopted_at is not None
    assert (
        adopter.adopt("host1") == () and Adopter(connect(), Rows(host1=row())).adopt("host1") == ()
    )
    assert held(ledger, NOBODY) == "VCPU=5,MEMORY_MB=8192,DISK_GB=20"
    ledger.attribute("host1", "vm-2", {"host1": "VCPU=5"})
    assert held(ledger, NOBODY) == "MEMORY_MB=8192,DISK_GB=20"


def topology(host_cells: ro.NUMATopologyInventory) -> ro.Amount:
    """Return what somebody has of host cells, by name."""
    return host_cells.fit(ro.numa(cells=2, dedicated=4, memory_mb=1024))


@pytest.mark.law(1)
def test_cpus_by_name_go_to_whom_they_are_known_to_belong_and_count_once(
    connect: Callable[[], ro.Ledger],
) -> None:
    ledger = connect()
    known = RecordedConsumer("vm-1", {"PCPU": 4, "NUMA_TOPOLOGY": topology(cells())})
    record, records = placed_row(), Rows([known])
    records.rows["host1"] = record  # with its devices, of which columns keep pools only
    Adopter(ledger, records).adopt("host1")
    units = {unit for one in ledger.get_claim("vm-1").allocations for unit in one.units}
    said = {cpu for one in record.inventories["NUMA_TOPOLOGY"].usage for cpu in one.pinned}
    assert units == {f"cpu{cpu}" for cpu in said}
    others = ledger.get_claim(NOBODY)
    assert {unit for one in others.allocations for unit in one.units} == {"0000:3b:00.0"}
    # four of the five vCPUs that the record counts are those of vm-1
    assert dict(others.amounts)[ro.VCPU] == ro.IntegerAmount(1)
    view = ComputeNode.load(ledger, "host1")
    assert view.inventories["NUMA_TOPOLOGY"].usage == record.inventories["NUMA_TOPOLOGY"].usage
    ledger.release("vm-1")
    assert not ledger.audit().findings


def test_a_topology_that_nobody_says_where_is_put_where_there_is_room(ledger: ro.Ledger) -> None:
    first = RecordedConsumer("vm-1", {"NUMA_TOPOLOGY": topology(cells())})
    second = RecordedConsumer("vm-2", {"NUMA_TOPOLOGY": ro.numa(dedicated=3)})
    Adopter(ledger, Rows([first, second], host1=placed_row())).adopt("host1")
    one, two = (ledger.get_claim(name).allocations for name in ("vm-1", "vm-2"))
    assert not {unit for a in one for unit in a.units} & {unit for a in two for unit in a.units}


def test_what_is_known_counts_even_if_the_record_says_less(ledger: ro.Ledger) -> None:
    known = RecordedConsumer("vm-1", "VCPU=12,MEMORY_MB=20000")
    Adopter(ledger, Rows([known], host1=row(vcpus_used=2))).adopt("host1")
    assert held(ledger, "vm-1") == "VCPU=12,MEMORY_MB=20000"
    assert held(ledger, NOBODY) == "DISK_GB=30"
    over = ledger.usage(over_capacity=True)
    assert sorted(use.resource_class for use in over) == ["MEMORY_MB", "VCPU"]


def test_a_host_that_the_ledger_knows_already_is_adopted_beside_those_who_hold_of_it(
    connect: Callable[[], ro.Ledger],
) -> None:
    ledger = connect()
    ledger.sync(ro.Provider("host1", "VCPU=8,MEMORY_MB=16384,DISK_GB=100"))
    ledger.claim("job", {"host1": "VCPU=1"})
    ledger.claim("vm-1", {"host1": "VCPU=2"})  # known, and in the ledger already: it keeps that
    new = RecordedConsumer("vm-2", "VCPU=1,MEMORY_MB=1024")
    before = ledger.provider("host1").generation
    Adopter(ledger, Rows([VM, new], host1=row())).adopt("host1")
    assert [held(ledger, name) for name in ("job", "vm-1", "vm-2")] == [
        *("VCPU=1", "VCPU=2", "VCPU=1,MEMORY_MB=1024")
    ]
    assert held(ledger, NOBODY) == "VCPU=4,MEMORY_MB=11264,DISK_GB=30"
    assert ledger.provider("host1").generation == before


@pytest.mark.law(2)
def test_two_who_have_the_same_cpu_are_refused_and_nothing_is_written(ledger: ro.Ledger) -> None:
    twice = [
        RecordedConsumer(name, {"NUMA_TOPOLOGY": topology(cells())}) for name in ("vm-1", "vm-2")
    ]
    cursor = ledger.feed.cursor()
    with raises_code("UnitTaken", match="vm-1"):
        Adopter(ledger, Rows(twice, host1=placed_row())).adopt("host1")
    assert ledger.feed.cursor() == cursor


@pytest.mark.parametrize(
    ("known", "record", "error", "said"),
    [
        ([VM, VM], USED, "DuplicateKey", "vm-1"),
        ([RecordedConsumer("a", "FPGA=1")], USED, "InventoryNotFound", "FPGA"),
        (
            [RecordedConsumer("a", {"NUMA_TOPOLOGY": topology(cells())})],
            USED,
            "InventoryNotFound",
            "NUMA_TOPOLOGY",
        ),
        (
            [RecordedConsumer("a", {"NUMA_TOPOLOGY": ro.numa(dedicated=99)})],
            placed_row().to_row(),
            exceptions.CapacityException,
            "99",
        ),
        ([], {**USED, "vcpus": -1}, "InvalidRow", "vcpus"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    ledger: ro.Ledger, known: Any, record: Any, error: type[Exception] | str, said: str
) -> None:
    cursor = ledger.feed.cursor()
    with raises_code(error, match=said):
        adoption_plan(ledger, "host1", record, known)
    assert ledger.feed.cursor() == cursor


def test_a_host_with_another_uuid_is_another_machine(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host1", "VCPU=8"))
    uuid = "6f1c9e0e-7f5e-4f0e-9e2c-0f3b1f3a0001"
    with raises_code("ProviderExists", match=uuid):
        Adopter(ledger, Rows(host1=row(uuid=uuid))).adopt("host1")


@pytest.mark.law(4)
def test_of_agents_that_adopt_at_once_one_does(connect: Callable[[], ro.Ledger]) -> None:
    ledgers = [connect() for _ in range(4)]
    adopters = [Adopter(one, Rows([VM], host1=row())) for one in ledgers]
    errors: list[Exception] = []

    def adopt(adopter: Adopter) -> None:
        try:
            adopter.adopt("host1")
        except Exception as error:  # told to the test
            errors.append(error)

    threads = [threading.Thread(target=adopt, args=(one,)) for one in adopters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert held(ledgers[0], "vm-1") == "VCPU=3,MEMORY_MB=4096,DISK_GB=10"
    assert held(ledgers[0], NOBODY) == "VCPU=5,MEMORY_MB=8192,DISK_GB=20"


def test_the_record_is_kept_right_for_those_who_still_read_it(ledger: ro.Ledger) -> None:
    records = Rows([VM], host1=row())
    adopter = Adopter(ledger, records)
    assert adopter.write_back("host1") == {}  # not adopted: it is the truth itself
    adopter.adopt("host1")
    assert adopter.write_back("host1") == {} and not records.writes
    ledger.release("vm-1")
    ledger.claim("vm-9", {"host1": "VCPU=1"})
    changed = adopter.write_back("host1")
    used = {"vcpus_used": 6, "memory_mb_used": 8192, "local_gb_used": 20}
    assert changed == {**used, "free_ram_mb": 8192, "free_disk_gb": 80}
    assert ComputeNode.read(records.read("host1")).vcpus_used == 6
    assert adopter.write_back("host1") == {}


# --- by a tracker ---------------------------------------------------------------------------------


class Broken(Rows):
    """Old records of which one cannot be read."""

    def read(self, host: str) -> Any:
        if host == "host2":
            raise OSError("no such table")
        return super().read(host)


def test_a_tracker_reads_records_and_adopts_hosts_before_it_writes_them(ledger: ro.Ledger) -> None:
    records = Rows([VM], host1=row())
    driver = Agent(host1="VCPU=8,MEMORY_MB=16384,DISK_GB=100")
    tracker = ResourceTracker(ledger, driver, records=records)
    assert tracker.compute_node("host1").vcpus_used == 8
    assert tracker.inventories("host1")["VCPU"].used == 8
    assert not list(ledger.providers())
    with pytest.raises(ro.CapacityException, match="vm-1"):
        tracker.claim("vm-9", "host1", "VCPU=1")
    assert held(ledger, "vm-1") == "VCPU=3,MEMORY_MB=4096,DISK_GB=10"  # adopted all the same
    tracker.release("vm-1")
    with tracker.claim("vm-9", "host1", "VCPU=2"):
        assert records.rows["host1"]["vcpus_used"] == 7
    ledger.release("vm-9")  # by somebody else: the next look tells the record
    tracker.update_available_resource()
    assert records.rows["host1"]["vcpus_used"] == 5


def test_what_cannot_be_adopted_is_a_finding_and_stops_no_other_host(ledger: ro.Ledger) -> None:
    records = Broken(host1=row(), host3=row(hypervisor_hostname="host3"))
    records.rows["host1"]["vcpus"] = -1
    has = "VCPU=8,MEMORY_MB=16384,DISK_GB=100"
    driver = Agent(host1=has, host2=has, host3=has, host4=has)
    report = ResourceTracker(ledger, driver, records=records).update_available_resource()
    assert [(one.subject, one.kind) for one in report.findings] == [
        ("host1", FindingKind.NOT_ADOPTED),
        ("host2", FindingKind.NOT_ADOPTED),
    ]
    assert "vcpus" in str(report.findings[0]) and "no such table" in str(report.findings[1])
    assert [one.name for one in ledger.providers()] == ["host3", "host4"]
    assert held(ledger, "host3/unattributed").startswith("VCPU=8")


@pytest.mark.law(1)
@hypothesis.given(
    st.integers(0, 20),
    st.lists(st.integers(1, 6), max_size=4),
    st.lists(st.integers(1, 3), max_size=3),
)
def test_a_host_is_never_freer_than_its_record_or_its_consumers_say(
    used: int, known: list[int], there: list[int]
) -> None:
    with ro.connect("memory://") as ledger:
        if there:
            ledger.sync(ro.Provider("host1", "VCPU=32"))
            for number, count in enumerate(there):
                ledger.claim(f"job-{number}", {"host1": f"VCPU={count}"})
        record = {"hypervisor_hostname": "host1", "vcpus": 32, "vcpus_used": used}
        consumers = [RecordedConsumer(f"vm-{n}", f"VCPU={count}") for n, count in enumerate(known)]
        plan = adoption_plan(ledger, "host1", record, consumers)
        assert Plan.from_json(plan.to_json()) == plan
        ledger.apply(plan)
        assert ledger.inventories("host1")["VCPU"].used == max(used, sum(known) + sum(there))
        for number, count in enumerate(known):
            assert held(ledger, f"vm-{number}") == f"VCPU={count}"
        assert not adoption_plan(ledger, "host1", record, consumers)
        assert json.loads(plan.to_json())["adopted"]


class Unwritable(Rows):
    """Old records that cannot be written."""

    def write(self, host: str, columns: Mapping[str, Any]) -> None:
        raise OSError("read-only")


def test_a_record_that_cannot_be_written_undoes_nothing_and_is_told(ledger: ro.Ledger) -> None:
    has = "VCPU=8,MEMORY_MB=16384,DISK_GB=100"
    records = Unwritable(host1=row(vcpus_used=2), host2=row(hypervisor_hostname="host2"))
    tracker = ResourceTracker(ledger, Agent(host1=has, host2=has, host3="VCPU=2"), records=records)
    tracker.update_available_resource()
    with tracker.claim("vm-1", "host1", "VCPU=1") as claim:
        assert claim.claim is not None
    assert held(ledger, "vm-1") == "VCPU=1"
    [finding] = tracker.update_available_resource().findings
    assert (finding.subject, finding.kind) == ("host1", FindingKind.RECORDS)
    assert "read-only" in str(finding)


@pytest.mark.law(1)
def test_a_host_that_was_removed_and_comes_back_is_adopted_again(ledger: ro.Ledger) -> None:
    records = Rows(host1=row(vcpus_used=2))
    driver = Agent(host1="VCPU=8,MEMORY_MB=16384,DISK_GB=100")
    tracker = ResourceTracker(ledger, driver, records=records)
    tracker.update_available_resource()
    for remove in (tracker.remove, ledger.remove):  # itself, or somebody else
        ledger.release(NOBODY)
        tracker.update_available_resource()
        assert records.rows["host1"]["vcpus_used"] == 0
        remove("host1")
        records.rows["host1"]["vcpus_used"] = 3
        assert tracker.update_available_resource().changed == ("host1",)
        assert held(ledger, NOBODY) == "VCPU=3"
        assert ledger.provider("host1").adopted_at is not None


class Slow(Rows):
    """Old records that tell how many write or adopt one at a time."""

    def __init__(self, *args: Any, **rows: Any) -> None:
        super().__init__(*args, **rows)
        self.inside = self.most = self.reads = 0
        self.met = threading.Barrier(2)

    def read(self, host: str) -> Any:
        self.reads += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        with contextlib.suppress(threading.BrokenBarrierError):
            self.met.wait(0.05)  # whoever else gets here does
        self.inside -= 1
        return dict(super().read(host))


@pytest.mark.law(1)
def test_threads_that_claim_at_once_leave_the_record_as_the_ledger_is(ledger: ro.Ledger) -> None:
    records = Slow(host1=row(vcpus_used=0, memory_mb_used=0, local_gb_used=0))
    tracker = ResourceTracker(ledger, Agent(host1="VCPU=8"), records=records)
    threads = [
        threading.Thread(target=tracker.claim, args=(f"vm-{n}", "host1", "VCPU=1"))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert records.most == 1, "a record is read and written by one thread at a time"
    assert records.reads == 5, "and adopted once"
    assert records.rows["host1"]["vcpus_used"] == 4


HAS = "VCPU=8,MEMORY_MB=16384,DISK_GB=100"


def _records_of_two() -> Rows:
    return Rows(host1=row(vcpus_used=3), host2=row(hypervisor_hostname="host2", vcpus_used=2))


def _right(ledger: ro.Ledger, records: Rows) -> bool:
    """Return whether the records say what the ledger says."""
    used = {host: int(ledger.inventories(host)["VCPU"].used) for host in records.rows}
    return used == {host: int(one["vcpus_used"]) for host, one in records.rows.items()}


@pytest.mark.law(1)
@pytest.mark.parametrize("end", ["confirm", "revert"])
def test_records_are_right_after_each_step(connect: Callable[[], ro.Ledger], end: str) -> None:
    ledger, records = connect(), _records_of_two()

    def tracker() -> ResourceTracker:  # of a process that has just begun
        return ResourceTracker(ledger, Agent(host1=HAS, host2=HAS), records=records)

    tracker().update_available_resource()
    tracker().claim("stays", "host2", "VCPU=1")
    ledger.release("host2/unattributed")  # nobody told the record
    tracker().claim("vm", "host1", "VCPU=1").confirm()
    steps: list[Callable[[], object]] = [
        lambda: getattr(tracker().move("vm", "host2", "VCPU=2", migration="m"), end)(),
        lambda: tracker().get_claim("stays").revert(),
        lambda: tracker().release("vm"),
    ]
    for step in steps:
        step()
        assert _right(ledger, records)


def test_a_move_adopts_the_host_that_it_leaves(ledger: ro.Ledger) -> None:
    records = _records_of_two()
    ledger.sync(ro.Provider("host1", HAS), ro.Provider("host2", HAS))
    ledger.claim("vm-1", {"host1": "VCPU=3"})  # by a scheduler that knows of no records
    tracker = ResourceTracker(ledger, Agent(host1=HAS, host2=HAS), records=records)
    with tracker.move("vm-1", "host2", "VCPU=1"):
        assert _right(ledger, records)
    assert int(records.rows["host1"]["vcpus_used"]) == 3
    assert ledger.provider("host1").adopted_at is not None


def test_what_is_given_back_is_adopted_before(ledger: ro.Ledger) -> None:
    records = _records_of_two()
    records.known = (RecordedConsumer("vm-1", "VCPU=3"),)
    ledger.sync(ro.Provider("host1", HAS))
    ledger.claim("vm-1", {"host1": "VCPU=3"})
    ResourceTracker(ledger, Agent(host1=HAS), records=records).release("vm-1")
    assert int(records.rows["host1"]["vcpus_used"]) == 0
    assert "VCPU" not in held(ledger, "host1/unattributed")


@pytest.mark.law(11)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_plan_of_a_host_that_only_its_record_knows_reads_and_the_take_adopts(
    connect: Callable[[], ro.Ledger], is_there: bool
) -> None:
    ledger, records = connect(), Rows(host1=placed_row())
    has = "PCPU=12,MEMORY_MB=16384,DISK_GB=100"
    if is_there:  # in the ledger, but nobody has adopted it yet
        records = Rows([VM], host1=row(vcpus_used=5))
        ledger.sync(ro.Provider("host1", HAS))
    tracker = ResourceTracker(ledger, Agent(host1=has), records=records)
    cursor = ledger.feed.cursor()
    asked = "VCPU=2" if is_there else "DISK_GB=1,NUMA_TOPOLOGY=1:dedicated=2"
    planned = tracker.plan("vm-9", "host1", asked)
    with pytest.raises(exceptions.NoCandidates, match=r"CPU requested [47]"):
        tracker.plan("vm-9", "host1", "VCPU=4" if is_there else "NUMA_TOPOLOGY=1:dedicated=7")
    assert ledger.feed.cursor() == cursor and not records.writes
    planned.allocate(project="p")
    assert ledger.provider("host1").adopted_at is not None
    if is_there:
        assert _right(ledger, records)
        assert int(records.rows["host1"]["vcpus_used"]) == 7
    taken = ledger.get_claim("vm-9")
    assert planned.candidate is not None and taken.project == "p"
    assert [(a.provider, a.units) for a in taken.allocations] == [
        (a.provider, a.units) for a in planned.candidate.allocations
    ]


def test_a_plan_of_a_host_that_nobody_knows_says_so(ledger: ro.Ledger) -> None:
    tracker = ResourceTracker(ledger, Agent(host1=HAS), records=Rows())
    with raises_code("ProviderNotFound", match="host1"):
        tracker.plan("vm", "host1", "VCPU=1")


def test_the_record_has_the_totals_of_the_ledger_too(ledger: ro.Ledger) -> None:
    """A host that its driver says to be larger than its record did is so for old readers too."""
    records = Rows(host1=row(vcpus_used=2))
    driver = Agent(host1="VCPU=16,MEMORY_MB=32768,DISK_GB=50")
    ResourceTracker(ledger, driver, records=records).update_available_resource()
    now = records.rows["host1"]
    assert (now["vcpus"], now["memory_mb"], now["local_gb"]) == (16, 32768, 50)
    assert (now["vcpus_used"], now["memory_mb_used"], now["free_ram_mb"]) == (2, 12288, 20480)
    records.writes.clear()
    ResourceTracker(ledger, driver, records=records).update_available_resource()
    assert not records.writes
