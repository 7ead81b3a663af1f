"""The comparison with an older revision, and the experiment of policies that pack GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import resource_objects as ro
from benchmarks import against, packing
from benchmarks.packing import POLICIES, pack, random_jobs
from resource_objects.scheduler.replay import Trace, put_hosts
from resource_objects.testing.refusals import raises_code


def figures(**sides: dict[str, tuple[str, list[float]]]) -> against.Figures:
    """Return the figures ``side={row: (unit, figures)}``, all of one part."""
    result = against.Figures()
    for side, rows in sides.items():
        for name, (unit, values) in rows.items():
            for value in values:
                result.add(side, "part", {name: (unit, value)})
    return result


def test_a_ratio_is_that_of_the_medians_and_above_one_if_this_checkout_is_better() -> None:
    result = figures(
        ours={
            "claim": ("per second", [10, 300, 200]),
            "import": ("ms", [50, 1, 90]),
            "disk: one flush": ("ms", [1]),
            "installed": ("", [3]),
        },
        theirs={
            "claim": ("per second", [100, 1, 1000]),
            "import": ("ms", [25, 26, 24]),
            "disk: one flush": ("ms", [2]),
            "installed": ("", [6]),
        },
    )
    ratios = {pair.name: pair.ratio for pair in result.pairs()}
    assert ratios == {"claim": 2, "import": 0.5, "disk: one flush": None, "installed": None}
    assert [pair.name for pair in result.pairs() if pair.is_worse(1.5)] == ["import"]
    assert [pair.name for pair in result.pairs() if pair.is_worse(2)] == []


def test_a_row_that_waits_for_the_disk_never_fails() -> None:
    name = "SQLite, synchronous=FULL (a flush per commit): claim"
    result = figures(ours={name: ("per second", [1])}, theirs={name: ("per second", [10])})
    (pair,) = result.pairs()
    assert (pair.ratio, pair.is_worse(1.5)) == (0.1, False)


def test_rows_of_one_version_or_in_another_unit_are_listed() -> None:
    result = figures(
        ours={"new": ("ms", [1]), "both": ("ms", [1]), "other": ("us", [1])},
        theirs={"old": ("ms", [1]), "both": ("ms", [1]), "other": ("ms", [1])},
    )
    assert [pair.name for pair in result.pairs()] == ["both"]
    assert result.unpaired("ours") == ["new", "other"]
    assert result.unpaired("theirs") == ["old", "other"]


def test_an_unknown_revision_is_an_error() -> None:
    with pytest.raises(against.Failed, match="rev-parse"), against.installed("no-such-revision"):
        pass


# --- packing ------------------------------------------------------------------------------------

_DATA = Path(__file__).resolve().parents[2] / "shared/data/alibaba-gpu-v2023"
#: Means over ten seeds that were published for the trace, in percent of all GPUs.
PUBLISHED = {"random": 87.47, "best-fit": 93.08, "fgd": 95.39}


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
def test_the_published_packing_is_repeated_within_a_point(policy: str) -> None:
    if not _DATA.exists():
        pytest.skip(f"no trace at {_DATA}")
    trace = Trace.read(_DATA / "openb_node_list_gpu_node.csv", _DATA / "openb_pod_list_default.csv")
    allocated = [pack(trace, policy, seed=seed).allocated[-1] for seed in range(10)]
    assert abs(100 * np.mean(allocated) - PUBLISHED[policy]) < 1


def test_the_order_of_the_policies_is_that_of_the_paper() -> None:
    """On a generated trace as on the published one: random is worst, fragmentation is best."""
    trace = Trace.generated(hosts=60, jobs=1500, seed=2)
    mean = {
        policy: np.mean([pack(trace, policy, seed=seed).allocated[-1] for seed in range(3)])
        for policy in POLICIES
    }
    assert mean["random"] + 0.01 < mean["best-fit"] <= mean["fgd"] + 0.002
    assert mean["fgd"] > 0.95


@pytest.mark.parametrize("policy", POLICIES)
def test_a_packing_can_be_repeated_and_adds_up(policy: str) -> None:
    trace = Trace.generated(hosts=10, jobs=200, seed=3)
    packing = pack(trace, policy, seed=5)
    assert np.array_equal(packing.allocated, pack(trace, policy, seed=5).allocated)
    assert packing.arrived[-1] >= 1.3
    assert (packing.allocated <= np.minimum(packing.arrived, 1) + 1e-12).all()
    assert (np.diff(packing.allocated) >= 0).all()
    assert (packing.fragmented >= 0).all()
    assert (packing.fragmented + packing.allocated <= 1 + 1e-9).all()
    assert 0 < packing.placed < len(packing.arrived)


def test_a_packing_refuses_only_what_a_ledger_refuses_too() -> None:
    """The same jobs in a ledger use about as many GPUs as in the arrays."""
    trace = Trace.generated(hosts=3, jobs=60, seed=4)
    packing = pack(trace, "best-fit", seed=1)
    with ro.connect("memory://") as ledger:
        put_hosts(ledger, trace)
        allocated = 0
        for number, job in enumerate(random_jobs(trace, 1.3, 1)):
            candidates = ledger.snapshot().candidates(job.request(), limit=1, order="pack")
            if candidates:
                ledger.claim(f"{job.name}-{number}", candidates)
                allocated += job.gpu_parts
        assert abs(allocated / trace.gpu_parts - packing.allocated[-1]) < 0.1


def test_invalid_arguments_of_a_packing_are_refused() -> None:
    trace = Trace.generated(hosts=1, jobs=9)
    with raises_code("InvalidField", match="one of random, best-fit, fgd"):
        pack(trace, "worst")
    for load in (0, -1, float("nan"), float("inf"), "1"):
        with raises_code("InvalidField", match="load"):
            pack(trace, load=load)
    with raises_code("InvalidField", match="seed"):
        pack(trace, seed=-1)
    with raises_code("InvalidTrace", match="no GPUs"):
        pack(Trace((), ()))


def test_the_program_prints_a_line_for_each_run(capsys: pytest.CaptureFixture[str]) -> None:
    packing.main(["--generate", "10,200", "--policy", "fgd", "--policy", "random", "--runs", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["fgd", "fgd", "random", "random"]
    with pytest.raises(SystemExit):
        packing.main([])
