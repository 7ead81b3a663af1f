"""A filter and a weigher of a distribution of its own, found by their names."""

from __future__ import annotations

from tests.plugin_site import Run

PREAMBLE = """
import json, sys
import resource_objects as ro
from resource_objects import exceptions
from resource_objects.scheduler import Scheduler
ledger = ro.connect("memory://")
ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8") for n in (10, 9, 2)))
for number in range(4):
    ledger.claim(f"job-{number}", {"host2": "VCPU=1"})
"""


def test_a_filter_and_a_weigher_of_a_plug_in_are_named_like_ours(run_with_plugins: Run) -> None:
    said = run_with_plugins(
        PREAMBLE
        + """
scheduler = Scheduler(ledger, filters={"site_quiet": {"most": 3}}, weighers=["site_oldest"])
(found,) = scheduler.select_destinations("VCPU=1", alternates=3)
hosts = [found.host, *(one.host for one in found.alternates)]
try:
    scheduler.select_destinations("VCPU=9")
except exceptions.NoCandidates as refusal:
    told = str(refusal).splitlines()
json.dump([hosts, told], sys.stdout)
"""
    )
    assert said == [
        ["host9", "host10"],
        [
            "no host for 1: host2: has 4 consumers, at most 3 (site_quiet)",
            "host9: VCPU requested 9, free 8 of 8",
            "host10: VCPU requested 9, free 8 of 8",
        ],
    ]


def test_what_cannot_be_used_is_named_with_its_reason_and_stops_no_other(
    run_with_plugins: Run,
) -> None:
    said = run_with_plugins(
        PREAMBLE
        + """
def refusal(**given):
    try:
        Scheduler(ledger, **given)
    except exceptions.PluginError as error:
        return error.reason

json.dump([refusal(filters=["site_broken"]), refusal(weighers=["site_nothing"])], sys.stdout)
"""
    )
    assert said == [
        "ModuleNotFoundError: No module named 'a_library_that_is_not_installed'",
        "it is a IntegerResource, not callable",
    ]


def test_the_command_lists_what_is_installed_and_why_one_is_not(run_with_plugins: Run) -> None:
    said = run_with_plugins(
        """
import contextlib, io, json, sys
from resource_objects.cli.main import main
told = {}
for command in ("filters", "weighers"):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([command, "-f", "json"]) == 0
    told[command] = {one["name"]: one for one in json.loads(out.getvalue())}
json.dump(told, sys.stdout)
"""
    )
    assert said["filters"]["hosts"]["asked"] == "always"
    assert said["filters"]["capabilities"]["asked"] == "default"
    quiet = said["filters"]["site_quiet"]
    assert quiet["description"] == "Passes hosts with at most so many consumers."
    assert quiet["problem"] == ""
    broken = "No module named 'a_library_that_is_not_installed'"
    assert broken in said["filters"]["site_broken"]["problem"]
    assert "site_oldest" in said["weighers"]
    without = {
        (command, one["name"]): one["without_settings"]
        for command, some in said.items()
        for one in some.values()
        if one["without_settings"]
    }
    assert without == {
        **{
            ("filters", name): "asks nothing as it is set"
            for name in ("aggregate_ratios", "isolated", "statistics", "tenants")
        },
        **{
            ("weighers", name): "weighs all hosts alike as it is set"
            for name in ("free", "statistics", "traits")
        },
        ("weighers", "fragmentation"): "cannot be made",
    }
    assert said["weighers"]["site_nothing"]["problem"] == "it is a IntegerResource, not callable"
