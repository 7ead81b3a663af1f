"""Provider configuration files: what they may say, what is made of it, what goes again."""

from __future__ import annotations

import contextlib
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.settings import HostSettings
from resource_objects.host.tracker import (
    Driver,
    FindingKind,
    ProviderConfiguration,
    Report,
    ResourceTracker,
)
from resource_objects.host.tracker.configuration import COMPUTE_NODE, ProviderEntry
from resource_objects.testing.refusals import raises_code
from tests.tracker.test_drivers import BOX, MachineDriver, Reading

UUID = "5213b75d-9260-42a6-b236-f39b0fd10561"
#: The example of Nova's *Managing Resource Providers Using Config Files*.
OF_NOVA = """
meta:
  schema_version: '1.0'
providers:
  - identification:
      name: 'EXAMPLE_RESOURCE_PROVIDER'
      # Additional valid identification examples:
      # uuid: '$COMPUTE_NODE'
      # uuid: '5213b75d-9260-42a6-b236-f39b0fd10561'
    inventories:
      additional:
        - CUSTOM_EXAMPLE_RESOURCE_CLASS:
            total: 100
            reserved: 0
            min_unit: 1
            max_unit: 10
            step_size: 1
            allocation_ratio: 1.0
    traits:
      additional:
        - 'CUSTOM_EXAMPLE_TRAIT'
"""
#: The example of its specification, *provider-config-file*, with what its schema also takes.
OF_SPECIFICATION = """
meta:
  # Version ($Major, $minor) of the schema must successfully parse documents conforming to it
  schema_version: "1.7"
  generator: something else
providers:
  - identification:
      uuid: $COMPUTE_NODE
    inventories:
      additional:
        - CUSTOM_MAGIC_POOL: {total: 5, allocation_ratio: 2}
          CUSTOM_OTHER_POOL: {total: 7}
        - CUSTOM_THIRD: {total: 1}
      later: [whatever]
    owner: {name: the lab}
  - identification: {uuid: 5213B75D-9260-42A6-B236-F39B0FD10561}
    traits: {additional: [CUSTOM_TRAIT1, CUSTOM_TRAIT2], removed: []}
  - identification: {name: nothing.example}
"""

PROVIDER = "meta: {schema_version: '1.0'}\nproviders:\n- "
NAMED = PROVIDER + "identification: {name: box}\n  "


class Lab(Driver):
    """Hosts by name, with what they have; one that is an exception is raised."""

    def __init__(self, **has: str | Exception) -> None:
        self.has = has

    def hosts(self) -> list[str]:
        return list(self.has)

    def get_available_resource(self, host: str) -> str:
        found = self.has[host]
        if isinstance(found, Exception):
            raise found
        return found


def said(*entries: tuple[str, str, str, str]) -> ProviderConfiguration:
    """Return a configuration of entries: by what, which, inventories, traits."""
    return ProviderConfiguration(
        tuple(
            ProviderEntry(by, value, inventories, tuple(traits.split()), f"f.yaml, line {line}")
            for line, (by, value, inventories, traits) in enumerate(entries, 1)
        )
    )


def kept(ledger: ro.Ledger, name: str = "box") -> str:
    found = ledger.provider(name)
    return " ".join([str(found), *sorted(found.traits)])


# --- what a file may say ---


def test_the_example_of_novas_documentation_is_read() -> None:
    (entry,) = ProviderConfiguration.parse(OF_NOVA).entries
    assert (entry.key, entry.value) == ("name", "EXAMPLE_RESOURCE_PROVIDER")
    assert entry.inventories == "CUSTOM_EXAMPLE_RESOURCE_CLASS=100:max_unit=10"
    assert entry.traits == ("CUSTOM_EXAMPLE_TRAIT",)


def test_later_minor_versions_and_unknown_keys_are_read_and_what_adds_nothing_is_ignored() -> None:
    found = ProviderConfiguration.parse(OF_SPECIFICATION, file="spec.yaml")
    assert [str(entry) for entry in found.entries] == [
        "uuid $COMPUTE_NODE: CUSTOM_MAGIC_POOL=5:allocation_ratio=2,CUSTOM_OTHER_POOL=7,"
        "CUSTOM_THIRD=1",
        f"uuid {UUID}: CUSTOM_TRAIT1, CUSTOM_TRAIT2",
    ]
    assert found.ignored == ("spec.yaml, line 18: name nothing.example adds nothing",)


@pytest.mark.parametrize("text", [OF_NOVA, OF_SPECIFICATION, "meta: {schema_version: '1.0'}"])
def test_what_is_written_is_what_was_read(text: str) -> None:
    found = ProviderConfiguration.parse(text)
    assert ProviderConfiguration.parse(str(found)) == found


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ("total: 5, max_unit: 2147483647", "5"),
        ("total: 5, max_unit: 5", "5"),
        ("total: 5, max_unit: 4", "5:max_unit=4"),
        (
            "total: 5, max_unit: 9, reserved: 1, allocation_ratio: 2",
            "5:reserved=1:allocation_ratio=2",
        ),
    ],
)
def test_a_most_that_nobody_can_come_to_is_none(figures: str, found: str) -> None:
    text = NAMED + f"inventories: {{additional: [CUSTOM_A: {{{figures}}}]}}"
    assert ProviderConfiguration.parse(text).entries[0].inventories == f"CUSTOM_A={found}"


@pytest.mark.parametrize(
    ("additional", "found"),
    [
        ("[CUSTOM_A: {total: 4.0, reserved: 1.0}]", "CUSTOM_A=4:reserved=1"),
        ("[CUSTOM_A: {total: 0x10, allocation_ratio: 1.0e+1}]", "CUSTOM_A=16:allocation_ratio=10"),
        ("[CUSTOM_A: {total: 1_000}]", "CUSTOM_A=1000"),
        ("[CUSTOM_A: {total: 0}, CUSTOM_B: {total: 2}]", "CUSTOM_B=2"),
        ("[CUSTOM_A: {total: 0, max_unit: 2}, CUSTOM_B: {total: 2}]", "CUSTOM_B=2"),
        ("[CUSTOM_A: {total: 4}, CUSTOM_A: {total: 5}]", "CUSTOM_A=5"),
        ("[CUSTOM_A: {total: 4}, CUSTOM_B: {total: 2}, CUSTOM_A: {total: 0}]", "CUSTOM_B=2"),
    ],
)
def test_figures_that_nova_reads_are_read_as_there(additional: str, found: str) -> None:
    text = NAMED + f"inventories: {{additional: {additional}}}"
    (entry,) = ProviderConfiguration.parse(text).entries
    assert entry.inventories == found


def test_a_trait_may_be_listed_twice() -> None:
    text = NAMED + "traits: {additional: [CUSTOM_B, CUSTOM_A, CUSTOM_B]}"
    assert ProviderConfiguration.parse(text).entries[0].traits == ("CUSTOM_A", "CUSTOM_B")


def test_an_entry_of_classes_that_are_not_there_adds_nothing() -> None:
    text = NAMED + "inventories: {additional: [CUSTOM_A: {total: 0}]}"
    found = ProviderConfiguration.parse(text)
    assert not found.entries
    assert found.ignored == ("provider.yaml, line 3: name box adds nothing",)


FIGURES = st.fixed_dictionaries(
    {"total": st.integers(100, 2**31 - 1)},
    optional={"max_unit": st.integers(1, 100), "allocation_ratio": st.sampled_from(["1.5", "16"])},
)
CLASSES = st.dictionaries(st.sampled_from(["CUSTOM_A", "CUSTOM_B2", "CUSTOM_C_C"]), FIGURES)


@given(
    entries=st.lists(
        st.tuples(
            st.one_of(
                st.tuples(st.just("uuid"), st.uuids().map(str)),
                st.tuples(st.just("uuid"), st.just(COMPUTE_NODE)),
                st.tuples(st.just("name"), st.text("aü:'\"#{}[],&*!|>%@- .-/0", min_size=1)),
            ),
            CLASSES,
            st.sets(st.sampled_from(["CUSTOM_X", "CUSTOM_Y"])),
        ),
        unique_by=lambda entry: entry[0],
        max_size=4,
    )
)
def test_any_configuration_is_written_and_read_back(entries: list[Any]) -> None:
    found = []
    for (by, value), classes, traits in entries:
        texts = [
            ":".join([str(figures.pop("total")), *(f"{k}={v}" for k, v in figures.items())])
            for figures in classes.values()
        ]
        pairs = (f"{name}={text}" for name, text in zip(classes, texts, strict=True))
        inventories = str(ro.Inventories(",".join(sorted(pairs)))) if texts else ""
        if value.strip() == value and (inventories or traits):
            found.append(ProviderEntry(by, value, inventories, tuple(sorted(traits))))
    configuration = ProviderConfiguration(tuple(found))
    assert ProviderConfiguration.parse(str(configuration)) == configuration


WRONG = {
    "nothing": ("", "line 1, keys: got 'nothing', expected meta among them"),
    "no mapping": ("- a", "line 1, value: got 'a list', expected a mapping, meta and providers"),
    "no YAML": ("meta: [", "line 1: got"),
    "bytes that are no text": (b"\xff", "line 1: got b'\\xff', expected UTF-8"),
    "a tag": ("meta: !!python/object:os.system {}", "line 1: got 'tag:yaml.org"),
    "a reference": ("meta: &a {}\nproviders: *a", "line 1: got 'an alias', expected no anchor"),
    "no version": ("meta: {}", "line 1, keys: got 'nothing', expected schema_version among them"),
    "another major version": ("meta: {schema_version: '2.0'}", "schema_version: got '2.0'"),
    "no minor version": ("meta: {schema_version: '1'}", "schema_version: got '1'"),
    "a version with noughts": ("meta: {schema_version: '1.01'}", "schema_version: got '1.01'"),
    "a reserved key": ("meta: {schema_version: '1.0'}\n__source_file: x", "line 2, key: got"),
    "a key twice": ("meta: {schema_version: '1.0'}\nmeta: {}", "line 2, key: got 'meta'"),
    "providers that are no list": (
        "meta: {schema_version: '1.0'}\nproviders: {a: b}",
        "line 2, providers",
    ),
    "no identification": (PROVIDER + "traits: {}", "line 3, keys: got 'traits'"),
    "two identifications": (
        PROVIDER + f"identification: {{name: a, uuid: {UUID}}}",
        "line 3, identification: got 'name, uuid', expected either uuid or name",
    ),
    "another identification": (PROVIDER + "identification: {host: a}", "got 'host'"),
    "an empty identification": (PROVIDER + "identification: {}", "line 3, identification"),
    "a uuid that is none": (PROVIDER + "identification: {uuid: box}", "line 3, uuid: got 'box'"),
    "an empty name": (PROVIDER + "identification: {name: ''}", "line 3, name, provider name: got"),
    "a long name": (PROVIDER + f"identification: {{name: {'x' * 201}}}", "line 3, name"),
    "a class of the driver": (
        NAMED + "inventories: {additional: [VCPU: {total: 4}]}",
        "line 4, resource class: got 'VCPU', expected one of CUSTOM_",
    ),
    "a class that is none": (
        NAMED + "inventories: {additional: [CUSTOM_a: {total: 4}]}",
        "line 4, resource class: got 'CUSTOM_a'",
    ),
    "a class twice in one mapping": (
        NAMED + "inventories: {additional: [{CUSTOM_A: {total: 4}, CUSTOM_A: {total: 5}}]}",
        "line 4, key: got 'CUSTOM_A', expected each once",
    ),
    "a name of nothing": (PROVIDER + "identification: {name: null}", "name: got 'null', expected"),
    "a name left out": (PROVIDER + "identification: {name: }", "name: got None, expected text"),
    "a uuid of nothing": (PROVIDER + "identification: {uuid: ~}", "line 3, uuid: got '~'"),
    "a broken number": (
        NAMED + "inventories: {additional: [CUSTOM_A: {total: 4.5}]}",
        "line 4, total of CUSTOM_A: got '4.5'",
    ),
    "a number that is endless": (
        NAMED + "inventories: {additional: [CUSTOM_A: {total: .inf}]}",
        "line 4, total of CUSTOM_A: got '.inf'",
    ),
    "reserved of nothing": (
        NAMED + "inventories: {additional: [CUSTOM_A: {total: 0, reserved: 1}]}",
        "line 4, CUSTOM_A reserved: got 1, expected at most the total of 0",
    ),
    "no total": (NAMED + "inventories: {additional: [CUSTOM_A: {reserved: 4}]}", "a total"),
    "figures as text": (NAMED + "inventories: {additional: [CUSTOM_A: 4]}", "line 4, inventory"),
    "a figure that there is not": (
        NAMED + "inventories: {additional: [CUSTOM_A: {total: 4, used: 1}]}",
        "line 4, figure: got 'used'",
    ),
    "a figure that cannot be": (
        NAMED + "inventories: {additional: [CUSTOM_A: {total: -4}]}",
        "line 4, ",
    ),
    "a figure that is none": (
        NAMED + "inventories: {additional: [CUSTOM_A: {total: many}]}",
        "line 4, ",
    ),
    "a most between total and capacity": (
        NAMED
        + "inventories: {additional: [CUSTOM_A: {total: 5, max_unit: 6, allocation_ratio: 2}]}",
        "line 4, CUSTOM_A max_unit: got 6",
    ),
    "too precise a ratio": (
        NAMED + "inventories: {additional: [CUSTOM_A: {total: 4, allocation_ratio: 1.0000001}]}",
        "line 4, ",
    ),
    "inventories that are no list": (
        NAMED + "inventories: {additional: {CUSTOM_A: {total: 4}}}",
        "line 4, additional",
    ),
    "a trait of the driver": (
        NAMED + "traits: {additional: [HW_CPU_X86_AVX]}",
        "line 4, traits, trait: got 'HW_CPU_X86_AVX', expected one of CUSTOM_",
    ),
    "a trait that is none": (NAMED + "traits: {additional: [CUSTOM_a]}", "line 4, traits"),
    "traits that are no list": (NAMED + "traits: {additional: CUSTOM_A}", "a list, such as"),
    "a provider twice": (
        NAMED + "traits: {additional: [CUSTOM_A]}\n"
        "- identification: {name: box}\n  traits: {additional: [CUSTOM_B]}",
        "line 5, name: got 'box', expected each provider once: f.yaml, line 3 has it",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_with_a_fault_is_refused_naming_its_line(case: str) -> None:
    text, expected = WRONG[case]
    with raises_code("InvalidConfiguration") as raised:
        ProviderConfiguration.parse(text, file="f.yaml")
    assert str(raised.value).startswith("f.yaml, ")
    assert expected in str(raised.value)


@given(
    text=st.sampled_from([OF_NOVA, OF_SPECIFICATION]),
    changes=st.lists(
        st.tuples(
            st.integers(0, 2000),
            st.integers(0, 20),
            st.sampled_from(
                ["", ":", "- ", "{", "]", "\n", "\0", "'", "9" * 30, "é", "\ud800", "~"]
            ),
        )
    ),
)
def test_damaged_text_is_a_configuration_or_one_error(
    text: str, changes: list[tuple[int, int, str]]
) -> None:
    for place, length, bit in changes:
        at = place % (len(text) + 1)
        text = text[:at] + bit + text[at + length :]
    with contextlib.suppress(exceptions.InvalidInput):
        found = ProviderConfiguration.parse(text)
        assert ProviderConfiguration.parse(str(found)) == found


def written(folder: pathlib.Path, **files: str) -> pathlib.Path:
    for name, text in files.items():
        (folder / name.replace("_yaml", ".yaml")).write_text(text)
    return folder


def test_the_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: pathlib.Path) -> None:
    other = NAMED.replace("box", "crate") + "traits: {additional: [CUSTOM_A]}"
    written(tmp_path, b_yaml=OF_NOVA, a_yaml=other, c="no file of this", readme_yml="neither")
    (tmp_path / ".hidden.yaml").write_text("neither")
    found = ProviderConfiguration.load(tmp_path)
    assert [(one.value, one.location) for one in found.entries] == [
        ("crate", "a.yaml, line 3"),
        ("EXAMPLE_RESOURCE_PROVIDER", "b.yaml, line 6"),
    ]


def test_a_provider_of_two_files_is_refused_naming_both(tmp_path: pathlib.Path) -> None:
    with raises_code("InvalidConfiguration", match=r"^b.yaml, line 6, name: .* a.yaml, line 6"):
        ProviderConfiguration.load(written(tmp_path, a_yaml=OF_NOVA, b_yaml=OF_NOVA))


def test_a_folder_without_files_says_nothing_and_none_at_all_is_refused(
    tmp_path: pathlib.Path,
) -> None:
    assert ProviderConfiguration.load(tmp_path) == ProviderConfiguration()
    with raises_code("InvalidConfiguration", match=r"provider configuration .*/away: got 'No such"):
        ProviderConfiguration.load(tmp_path / "away")
    (tmp_path / "folder.yaml").mkdir()
    with raises_code("InvalidConfiguration", match=r"folder\.yaml: got 'Is a directory'"):
        ProviderConfiguration.load(tmp_path)


# --- what is made of it ---


def look(ledger: ro.Ledger, driver: Driver, *entries: tuple[str, str, str, str]) -> Report:
    tracker = ResourceTracker(ledger, driver, configuration=said(*entries))
    return tracker.update_available_resource()


def test_what_files_add_is_there_beside_what_the_driver_says(ledger: ro.Ledger) -> None:
    entry = ("name", "box", "CUSTOM_A=4:max_unit=2", "CUSTOM_X")
    driver = Lab(box="VCPU=8", other="VCPU=4")
    assert not look(ledger, driver, entry).findings
    assert kept(ledger) == "box: VCPU=8,CUSTOM_A=4:max_unit=2 CUSTOM_X"
    assert kept(ledger, "other") == "other: VCPU=4"
    assert not look(ledger, driver, entry)


def test_an_entry_of_all_hosts_is_about_those_that_no_other_names(ledger: ro.Ledger) -> None:
    driver = Lab(box="VCPU=8", crate="VCPU=8", other="VCPU=4")
    ledger.sync(ro.Provider("crate", "VCPU=8", uuid=UUID))
    look(
        ledger,
        driver,
        ("uuid", COMPUTE_NODE, "CUSTOM_A=4", "CUSTOM_X"),
        ("name", "box", "", "CUSTOM_Y"),
        ("uuid", UUID, "CUSTOM_B=1", ""),
    )
    assert kept(ledger) == "box: VCPU=8 CUSTOM_Y"
    assert kept(ledger, "crate") == "crate: VCPU=8,CUSTOM_B=1"
    assert kept(ledger, "other") == "other: VCPU=4,CUSTOM_A=4 CUSTOM_X"


def test_a_provider_below_a_host_is_found_by_its_name_and_roots_are_not_it(
    ledger: ro.Ledger,
) -> None:
    driver = MachineDriver(lambda: BOX, HostSettings(device_rules=["10de:*=PGPU+CUSTOM_H100"]))
    device = ("name", "box/0000:3b:00.0", "CUSTOM_LINKS=4", "CUSTOM_H100 CUSTOM_NVLINK")
    everywhere = ("uuid", COMPUTE_NODE, "", "CUSTOM_X")
    for _ in range(2):
        assert not look(ledger, driver, device, everywhere).findings
        gpu = ledger.provider("box").find("box/0000:3b:00.0")
        assert str(gpu.inventories) == "CUSTOM_LINKS=4,DEVICES=1*PGPU"
        assert gpu.traits == {"CUSTOM_H100", "CUSTOM_NVLINK"}
    look(ledger, driver)
    gpu = ledger.provider("box").find("box/0000:3b:00.0")
    assert str(gpu.inventories) == "DEVICES=1*PGPU"


def test_a_class_that_the_driver_says_is_a_finding_and_the_rest_is_done(ledger: ro.Ledger) -> None:
    report = look(
        ledger,
        Lab(box="VCPU=8,CUSTOM_A=1"),
        ("name", "box", "CUSTOM_A=4,CUSTOM_B=2", "CUSTOM_X"),
    )
    assert [(one.subject, one.kind) for one in report.findings] == [
        ("box", FindingKind.CONFIGURATION)
    ]
    assert str(report.findings[0].error) == (
        "f.yaml, line 1, inventory of box: got 'CUSTOM_A', expected a class that the host's "
        "driver does not report"
    )
    assert kept(ledger) == "box: VCPU=8,CUSTOM_A=1,CUSTOM_B=2 CUSTOM_X"


def test_a_provider_that_is_named_twice_is_as_the_first_says(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("box", "VCPU=8", uuid=UUID))
    entries = (("name", "box", "CUSTOM_A=4", ""), ("uuid", UUID, "CUSTOM_B=4", ""))
    report = look(ledger, Lab(box="VCPU=8"), *entries)
    assert str(report.findings[0].error) == (
        f"f.yaml, line 2, uuid: got '{UUID}', expected one entry about box: f.yaml, line 1 is "
        "about it too"
    )
    assert kept(ledger) == "box: VCPU=8,CUSTOM_A=4"


def test_a_provider_that_is_nowhere_is_told_once_until_it_was_there_again(
    ledger: ro.Ledger,
) -> None:
    driver = Lab(box="VCPU=8", other="VCPU=8")
    entries = (("name", "box/nic", "CUSTOM_A=4", ""), ("name", "box", "", "CUSTOM_X"))
    tracker = ResourceTracker(ledger, driver, configuration=said(*entries))
    report = tracker.update_available_resource()
    assert [str(one) for one in report.findings] == [
        "box/nic: configuration: f.yaml, line 1, name: got 'box/nic', expected a provider of a "
        "host of this agent"
    ]
    assert not tracker.update_available_resource()
    tree = ledger.provider("box")
    tree.add("box/nic", "NET_BW_EGR_KILOBIT_PER_SEC=1")
    ledger.sync(tree)
    assert not tracker.update_available_resource().findings
    assert "CUSTOM_A=4" in str(ledger.provider("box").find("box/nic"))
    ledger.remove("box/nic")
    assert len(tracker.update_available_resource().findings) == 1
    assert not tracker.update_available_resource()


def test_nothing_is_told_to_be_nowhere_while_a_host_could_have_it(ledger: ro.Ledger) -> None:
    driver = Lab(box="VCPU=8", other=ValueError("broken"))
    entries = (("name", "other", "CUSTOM_A=4", ""),)
    tracker = ResourceTracker(ledger, driver, configuration=said(*entries))
    kinds = [one.kind for one in tracker.update_available_resource().findings]
    assert kinds == [FindingKind.DRIVER_FAILED]
    assert not tracker.update_available_resource("box").findings
    driver.has["other"] = "VCPU=2"
    assert not tracker.update_available_resource().findings
    assert kept(ledger, "other") == "other: VCPU=2,CUSTOM_A=4"


# --- what goes again ---


def test_what_the_files_do_not_say_any_more_goes_and_what_others_said_stays(
    everywhere: ro.Ledger,
) -> None:
    tracker = ResourceTracker(
        everywhere,
        Lab(box="VCPU=8", other="VCPU=8"),
        configuration=said(("uuid", COMPUTE_NODE, "CUSTOM_A=4,CUSTOM_B=1", "CUSTOM_X CUSTOM_Y")),
    )
    tracker.update_available_resource()
    tree = everywhere.provider("box")
    tree.update(traits={*tree.traits, "CUSTOM_MINE"})
    everywhere.sync(tree)
    tracker.configure(said(("name", "box", "CUSTOM_B=2", "CUSTOM_Y")))
    assert not tracker.update_available_resource().findings
    assert kept(everywhere) == "box: VCPU=8,CUSTOM_B=2 CUSTOM_MINE CUSTOM_Y"
    assert kept(everywhere, "other") == "other: VCPU=8"
    # what somebody else says later is not taken for a rest of the files
    tree = everywhere.provider("box")
    tree.update(traits={*tree.traits, "CUSTOM_X"})
    everywhere.sync(tree)
    tracker.update_available_resource()
    assert kept(everywhere) == "box: VCPU=8,CUSTOM_B=2 CUSTOM_MINE CUSTOM_X CUSTOM_Y"


def test_what_goes_goes_also_from_a_host_that_was_wrong_meanwhile(ledger: ro.Ledger) -> None:
    driver = Lab(box="VCPU=8")
    tracker = ResourceTracker(
        ledger, driver, configuration=said(("name", "box", "CUSTOM_A=4", "CUSTOM_X"))
    )
    tracker.update_available_resource()
    driver.has["box"] = ValueError("broken")
    for entries in ((("name", "box", "", "CUSTOM_Y"),), ()):
        tracker.configure(said(*entries))
        assert tracker.update_available_resource().findings
    driver.has["box"] = "VCPU=8"
    tracker.update_available_resource()
    assert kept(ledger) == "box: VCPU=8"


def test_after_a_restart_goes_what_the_agent_had_written_down(ledger: ro.Ledger) -> None:
    driver = Lab(box="VCPU=8")
    before = said(("name", "box", "CUSTOM_A=4", "CUSTOM_X"), ("name", "away", "", "CUSTOM_X"))
    ResourceTracker(ledger, driver, configuration=before).update_available_resource()
    written_down = str(before)
    now = ProviderConfiguration().replacing(ProviderConfiguration.parse(written_down))
    ResourceTracker(ledger, driver, configuration=now).update_available_resource()
    assert kept(ledger) == "box: VCPU=8"


def test_a_provider_of_another_loses_what_the_files_gave_it(ledger: ro.Ledger) -> None:
    tracker = ResourceTracker(
        ledger,
        MachineDriver(Reading(BOX)),
        configuration=said(("name", "box/nic", "CUSTOM_A=4", "CUSTOM_X")),
    )
    tracker.update_available_resource()
    tree = ledger.provider("box")
    tree.add("box/nic", "FPGA=1")
    ledger.sync(tree)
    for total in (4, 5):
        tracker.configure(said(("name", "box/nic", f"CUSTOM_A={total}", "CUSTOM_X")))
        assert not tracker.update_available_resource().findings
        nic = ledger.provider("box").find("box/nic")
        assert str(nic.inventories) == f"FPGA=1,CUSTOM_A={total}"
    tracker.configure(said())
    assert not tracker.update_available_resource().findings
    nic = ledger.provider("box").find("box/nic")
    assert (str(nic.inventories), nic.traits) == ("FPGA=1", frozenset())


def test_a_class_that_somebody_holds_stays_until_it_is_given_back(ledger: ro.Ledger) -> None:
    tracker = ResourceTracker(
        ledger, Lab(box="VCPU=8"), configuration=said(("name", "box", "CUSTOM_A=4", ""))
    )
    tracker.update_available_resource()
    ledger.claim("job", {"box": "CUSTOM_A=1"})
    tracker.configure(said())
    assert [one.kind for one in tracker.update_available_resource().findings] == [
        FindingKind.IN_USE
    ]
    assert kept(ledger) == "box: VCPU=8,CUSTOM_A=4:reserved=4:used=1"
    ledger.release("job")
    assert not tracker.update_available_resource().findings
    assert kept(ledger) == "box: VCPU=8"


def test_a_class_of_a_child_that_is_in_use_is_removed_when_it_is_released(
    ledger: ro.Ledger,
) -> None:
    entry = ("name", "box/nic", "CUSTOM_A=4", "")
    tracker = ResourceTracker(ledger, MachineDriver(Reading(BOX)), configuration=said(entry))
    tracker.update_available_resource()
    tree = ledger.provider("box")
    tree.add("box/nic", "FPGA=1")
    ledger.sync(tree)
    tracker.update_available_resource()
    ledger.claim("job", {"box/nic": "CUSTOM_A=1"})
    tracker.configure(said())
    for _ in range(2):
        [finding] = tracker.update_available_resource().findings
        assert finding.kind is FindingKind.IN_USE
        own = ledger.provider("box").find("box/nic").inventories
        assert str(own) == "FPGA=1,CUSTOM_A=4:reserved=4:used=1"
    ledger.release("job")
    assert not tracker.update_available_resource().findings
    assert str(ledger.provider("box").find("box/nic").inventories) == "FPGA=1"
