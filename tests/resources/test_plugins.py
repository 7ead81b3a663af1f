"""Plug-ins: a distribution of its own, installed by pip, found without naming it anywhere.

``tests/site_plugin`` is built and installed into a directory of this test run; processes that have
the directory on their path see its resources, this one does not.
"""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import pytest

from resource_objects import exceptions, plugins
from resource_objects.resources import Inventories, catalog, resource
from resource_objects.testing.refusals import raises_code
from tests.plugin_site import Run

NAMESPACE = catalog.PLUGIN_NAMESPACE

PREAMBLE = """
import json, sys
import resource_objects as ro
from resource_objects import base, exceptions, plugins
from resource_objects.resources import catalog

def refusal(action, *arguments):
    try:
        return repr(action(*arguments))
    except exceptions.ResourceObjectsError as error:
        return [error.code, str(error)]

def loaded():
    return sorted(name for name in sys.modules if name.startswith("site_plugin."))
"""


@pytest.fixture
def run(run_with_plugins: Run) -> Run:
    """A function that runs a program next to the plug-in and returns its JSON."""
    return lambda program, **how: run_with_plugins(PREAMBLE + textwrap.dedent(program), **how)


def test_plug_ins_are_listed_without_being_imported(run: Run) -> None:
    program = f'json.dump([plugins.names("{NAMESPACE}"), loaded()], sys.stdout)'
    names, modules = run(program, anew=True)
    assert names == [
        "CUSTOM_SITE_BROKEN",
        "CUSTOM_SITE_CPU_ENTITLEMENT",
        "CUSTOM_SITE_DATABASE_SLOT",
        "CUSTOM_SITE_LICENCE",
        "CUSTOM_SITE_MISNAMED",
        "CUSTOM_SITE_NET_MBIT",
        "CUSTOM_SITE_NO_RESOURCE",
        "CUSTOM_SITE_PORTS",
        "CUSTOM_SITE_WATT",
        "DEVICES",
        "NUMA_TOPOLOGY",
        "SITE_WIDGET",
    ]
    assert modules == []


def test_a_plug_in_is_imported_when_its_name_is_looked_up_and_no_other_is(run: Run) -> None:
    values = run("""
        found = ro.resource("CUSTOM_SITE_LICENCE")
        widget = ro.Amounts("SITE_WIDGET=2")
        json.dump([found.type, found.units, found.description, str(widget), loaded()], sys.stdout)
    """)
    assert values == [
        "software",
        "seats",
        "Seats of the site licence",
        "SITE_WIDGET=2",
        ["site_plugin.plain"],
    ]


def test_at_most_one_consumer_of_a_type_per_host(run: Run) -> None:
    values = run("""
        slot = ro.resource("CUSTOM_SITE_DATABASE_SLOT")
        host = ro.Inventories({slot: slot.make_inventory(1, max_unit=1), "VCPU": 8})
        database = ro.Amounts({slot: slot.make_amount(1), "VCPU": 2})
        first = host.consume(database)
        second = refusal(host.consume, database)
        host.consume(-first)
        json.dump([str(first), second, host.can_provide(database)], sys.stdout)
    """)
    assert values == [
        "VCPU=2,CUSTOM_SITE_DATABASE_SLOT=1",
        ["CapacityException", "CUSTOM_SITE_DATABASE_SLOT requested 1, free 0 of 1"],
        True,
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "CUSTOM_SITE_BROKEN",
            "ModuleNotFoundError: No module named 'a_library_that_is_not_installed'",
        ),
        (
            "CUSTOM_SITE_MISNAMED",
            "it offers CUSTOM_SITE_LICENCE, not the resource CUSTOM_SITE_MISNAMED",
        ),
        (
            "CUSTOM_SITE_NO_RESOURCE",
            "it offers 'Counted resources: a plug-in that only describes.', "
            "not the resource CUSTOM_SITE_NO_RESOURCE",
        ),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_named_with_its_reason_and_stops_no_other(
    run: Run, name: str, reason: str
) -> None:
    values = run(f"""
        ways = [(ro.resource, "{name}"), (ro.Amounts, "{name}=1"), (ro.Inventories, "{name}=1")]
        json.dump([refusal(*way) for way in ways] + [str(ro.Amounts("CUSTOM_SITE_LICENCE=1"))],
                  sys.stdout)
    """)
    expected = f"plug-in '{name}' of {NAMESPACE} cannot be used: {reason}"
    assert values == [["PluginError", expected]] * 3 + ["CUSTOM_SITE_LICENCE=1"]


def test_a_kind_of_its_own_assigns_consumes_and_releases(run: Run) -> None:
    values = run("""
        host = ro.Inventories("VCPU=8,CUSTOM_SITE_PORTS=8000-8003")
        before = str(host), host["CUSTOM_SITE_PORTS"].taken
        asked = ro.Amounts("VCPU=1,CUSTOM_SITE_PORTS=3")
        fits = host.fit(asked)["CUSTOM_SITE_PORTS"].ports
        first = host.consume(asked)
        taken = host["CUSTOM_SITE_PORTS"].taken
        refused = refusal(host.consume, asked), refusal(host.consume, -asked)
        limited = refusal(host.consume, "CUSTOM_SITE_PORTS=1", "CUSTOM_SITE_PORTS=3")
        host.consume(-first)
        assert (str(host), host["CUSTOM_SITE_PORTS"].taken) == before
        json.dump([fits, taken, refused, limited], sys.stdout)
    """)
    ports = [8000, 8001, 8002]
    assert values == [
        ports,
        ports,
        [
            ["CapacityException", "CUSTOM_SITE_PORTS requested 3, free 1 of 4"],
            ["CapacityException", "CUSTOM_SITE_PORTS releases 3, only 3 used"],
        ],
        ["CapacityException", "CUSTOM_SITE_PORTS requested 1, free 0 under the limit of 3"],
    ]


@pytest.mark.law(10)
def test_a_kind_of_its_own_goes_over_the_wire_to_a_process_that_never_named_it(run: Run) -> None:
    sent = run("""
        host = ro.Inventories("VCPU=8,CUSTOM_SITE_PORTS=8000-8003")
        amounts = host.consume("VCPU=1,CUSTOM_SITE_PORTS=2")
        json.dump([host.obj_to_primitive(), amounts.obj_to_primitive()], sys.stdout)
    """)
    by_class = sent[0]["versioned_object.data"]["by_class"]
    assert by_class["CUSTOM_SITE_PORTS"]["versioned_object.name"] == "site_plugin.PortsInventory"
    values = run(f"""
        assert loaded() == []
        sent = json.loads({json.dumps(json.dumps(sent))})
        host, amounts = base.ResourceObjectSerializer().deserialize_entity(None, sent)
        assert [host.obj_to_primitive(), amounts.obj_to_primitive()] == sent
        host.consume(-amounts)
        json.dump([host["CUSTOM_SITE_PORTS"].taken, str(amounts), loaded(),
                   [name for name in base._known_versions() if "Ports" in name],
                   [name for name in base.object_classes() if "Ports" in name]], sys.stdout)
    """)
    assert values == [
        [],
        "VCPU=1,CUSTOM_SITE_PORTS=2",
        ["site_plugin.ports"],
        [
            "site_plugin.PortsAmount",
            "site_plugin.PortsInventory",
            "site_plugin.PortsResource",
        ],
        [],
    ]
    with raises_code("InvalidPrimitive", match=r"site_plugin\.PortsInventory"):
        Inventories.obj_from_primitive(sent[0])  # it is not installed here


def test_kinds_do_not_mix(run: Run) -> None:
    values = run("""
        ports = ro.resource("CUSTOM_SITE_PORTS")
        host = ro.Inventories("VCPU=8,CUSTOM_SITE_PORTS=8000-8003")
        json.dump([
            refusal(ro.Amounts, {ports: ro.IntegerAmount(1)}),
            refusal(ro.Amounts, {"VCPU": ports.make_amount(1)}),
            refusal(ro.Inventories, {ports: ro.IntegerInventory(1)}),
            refusal(host["VCPU"].consume, ports.make_amount(1)),
            refusal(host["CUSTOM_SITE_PORTS"].can_provide, ro.IntegerAmount(1)),
        ], sys.stdout)
    """)
    assert [kind for kind, _message in values] == [
        "WrongAmountKind",
        "WrongAmountKind",
        "InvalidInventory",
        "WrongAmountKind",
        "WrongAmountKind",
    ]


def test_a_name_that_several_distributions_declare_is_refused(run: Run, plugin_site: Path) -> None:
    other = plugin_site / "other_plugin-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other-plugin\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text(
        f"[{NAMESPACE}]\nCUSTOM_SITE_LICENCE = json:dumps\n", encoding="utf-8"
    )
    try:
        error, message = run("""
            json.dump(refusal(ro.resource, "CUSTOM_SITE_LICENCE"), sys.stdout)
        """)
    finally:
        shutil.rmtree(other)
    assert error == "PluginError"
    assert "declared by several: json:dumps, site_plugin.plain:LICENCE" in message


# --- in this process, where it is not installed ---


def test_a_custom_class_is_there_without_its_plug_in() -> None:
    assert resource("CUSTOM_SITE_LICENCE").description == "A resource class of this site"


def test_a_plug_in_that_is_not_installed_names_those_that_are() -> None:
    with pytest.raises(exceptions.PluginError, match=r"no such plug-in; installed: .*memory"):
        plugins.load("resource_objects.backends", "nothing")
    with pytest.raises(exceptions.PluginError, match="no such plug-in; installed: none"):
        plugins.load("resource_objects.nothing", "nothing")


def test_what_the_library_ships_is_there_in_a_checkout_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_entry_points", lambda _namespace: {})
    assert "memory" in plugins.names("resource_objects.backends")
    monkeypatch.setitem(plugins.BUILT_IN, "resource_objects.tried", {"a": "json:dumps"})
    assert plugins.load("resource_objects.tried", "a") is json.dumps
    monkeypatch.setitem(plugins.BUILT_IN, "resource_objects.tried", {"a": "json:nothing.at.all"})
    with pytest.raises(exceptions.PluginError, match="AttributeError"):
        plugins.load("resource_objects.tried", "a")


def test_forgetting_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.forget()
    seen = plugins.names(NAMESPACE)
    catalog.forget()
    assert plugins.names(NAMESPACE) == seen
