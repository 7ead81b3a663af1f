"""Nova's own tests of its claims, on claims that our resource tracker decides.

They are those of the installed nova (``nova/tests/unit/compute/test_claims.py``), run as they are;
what they call ``claims.Claim`` is :mod:`~tests.peers.nova.claim_sides`.
"""

from __future__ import annotations

import contextlib
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from resource_objects.exceptions import InvalidInput
from resource_objects.resources.pci import Device, PCIInventory
from tests.peers.nova import claim_sides, tracker_differences
from tests.peers.nova.numa_sides import CONF, objects

with (
    warnings.catch_warnings(),
    # their tests would forbid eventlet, which others in this process have imported
    mock.patch("nova.monkey_patch.patch"),
):
    warnings.simplefilter("ignore")  # other libraries' own, at import
    from nova.compute import claims
    from nova.tests.unit.compute import test_claims as theirs

pytestmark = pytest.mark.filterwarnings("ignore")

CLASSES = (theirs.ClaimTestCase, theirs.MoveClaimTestCase, theirs.LiveMigrationClaimTestCase)
TESTS = [
    (case, name) for case in CLASSES for name in unittest.defaultTestLoader.getTestCaseNames(case)
]
IDS = [f"{case.__name__}.{name}" for case, name in TESTS]

#: Those that claim 4096 MiB of a node with 2048: that is refused here (``Drift.COUNTS_UNSEEN``).
DIFFERENT = {f"{case.__name__}.test_abort" for case in CLASSES}


@pytest.fixture(scope="module", autouse=True)
def ready() -> Iterator[None]:
    """Let their tests configure nova themselves, whatever others in this process have read."""
    CONF.reset()
    yield
    CONF.reset()
    CONF([], project="nova", default_config_files=[])


Case = type[unittest.TestCase]
#: How a test of theirs is run.
Run = Callable[[Case, str], unittest.TestResult]


def run(case: Case, name: str) -> unittest.TestResult:
    """Run a test of theirs as it is."""
    result = unittest.TestResult()
    case(name).run(result)
    assert result.testsRun == 1 and not result.skipped
    return result


@contextlib.contextmanager
def ours() -> Iterator[list[claim_sides.Claim]]:
    """Put our claims in place of Nova's; yield those that are made."""
    claim_sides.Claim.decided.clear()
    with (
        mock.patch.object(claims, "Claim", claim_sides.Claim),
        mock.patch.object(claims, "MoveClaim", claim_sides.MoveClaim),
    ):
        yield claim_sides.Claim.decided


def told(result: unittest.TestResult) -> str:
    """Return what failed, empty if nothing did."""
    return "\n".join(text for _, text in (*result.errors, *result.failures))


@pytest.mark.parametrize(("case", "name"), TESTS, ids=IDS)
def test_a_test_of_nova_passes_on_our_claims(case: Case, name: str) -> None:
    with ours() as made:
        result = run(case, name)
    assert made, "it decided nothing"
    if f"{case.__name__}.{name}" not in DIFFERENT:
        assert result.wasSuccessful(), told(result)
    else:
        assert "MEMORY_MB requested 4096, free 2048" in told(result)


def test_so_many_of_novas_tests_run_and_so_many_differ() -> None:
    assert (len(TESTS), len(DIFFERENT)) == tracker_differences.OWN_TESTS
    assert set(IDS) >= DIFFERENT


@pytest.mark.parametrize(("case", "name"), TESTS, ids=IDS)
def test_it_passes_on_novas_own_claims(case: Case, name: str) -> None:
    """What fails on ours would tell nothing else."""
    result = run(case, name)
    assert result.wasSuccessful(), told(result)


@pytest.mark.parametrize("case", CLASSES, ids=lambda case: case.__name__)
def test_an_abort_where_there_is_room_gives_all_back(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests that differ, on a node that has the memory they ask for."""
    small = theirs.ClaimTestCase._fake_compute_node

    def large(self: Any, values: Any = None) -> Any:
        return small(self, {"memory_mb": 8192, **(values or {})})

    monkeypatch.setattr(theirs.ClaimTestCase, "_fake_compute_node", large)
    with ours() as made:
        result = run(case, "test_abort")
    assert result.wasSuccessful(), told(result)
    [claim] = made
    uses = {key: used for key, used in claim.used().items() if used}
    is_move = isinstance(claim, claim_sides.MoveClaim)
    assert uses == ({(claim_sides.SOURCE, "VCPU"): 1} if is_move else {})


class _SaysOtherwise(claim_sides.Claim):
    def _take(self, tracker: Any) -> Any:
        self.asked = {"VCPU": 1} | {k: self.asked[k] for k in self.asked if k == "DISK_GB"}
        return super()._take(tracker)


def test_they_notice_cells_and_devices_that_are_not_looked_at() -> None:
    """A claim that looks at counts alone fails the tests that are about the rest."""
    with mock.patch.object(claims, "Claim", _SaysOtherwise):
        failed = {name for case, name in TESTS if case is CLASSES[0] and told(run(case, name))}
    assert failed == {
        "test_pci_fail",
        "test_numa_topology_fails",
        "test_numa_topology_with_pci_fail",
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda: Device("a", "00aa", "00bb"),
        lambda: Device("0000:00:01.0", "v", "p"),
        lambda: PCIInventory([Device("0000:00:01.0", "00aa", "00bb", numa_node=n) for n in (1, 2)]),
    ],
    ids=["address", "vendor", "address twice"],
)
def test_devices_that_no_host_has_are_refused(make: Callable[[], object]) -> None:
    """Those of their tests are these; the claims here are given others in their place."""
    with pytest.raises(InvalidInput):
        make()


def test_what_was_claimed_goes_where_nova_puts_it() -> None:
    case: Any = theirs.ClaimTestCase("test_numa_topology_passes")
    case.setUp()
    asked = objects.InstanceNUMATopology(
        cells=[objects.InstanceNUMACell(id=1, cpuset={1, 2}, pcpuset=set(), memory=512)]
    )
    limits = objects.NUMATopologyLimits(cpu_allocation_ratio=1, ram_allocation_ratio=1)
    try:
        nova = case._claim(limits={"numa_topology": limits}, numa_topology=asked)
        with ours():
            mine = case._claim(limits={"numa_topology": limits}, numa_topology=asked)
    finally:
        case.doCleanups()
    assert [cell.id for cell in nova.claimed_numa_topology.cells] == [1]
    assert [cell.cell for cell in mine.claimed_numa_topology.placed] == [1]
