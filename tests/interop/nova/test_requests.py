"""A flavor and its image as one request: nothing that they say vanishes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.interop import nova
from resource_objects.interop.nova import Flavor
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources import Amounts
from tests.interop.nova.refusals import breaks

ALIASES = nova.parse_alias({"name": "gpu", "vendor_id": "10de", "product_id": "2330"})
TWO_CELLS = {
    "hw:numa_nodes": "2",
    **{f"hw:numa_cpus.{n}": str(n) for n in range(2)},
    **{f"hw:numa_mem.{n}": "512" for n in range(2)},
}


def read(specs: dict[str, Any], image: dict[str, Any] | None = None, **values: Any) -> Any:
    """Return the request of a flavor of 2 vCPUs and 1 GiB."""
    return nova.request(Flavor(2, 1024, extra_specs=specs), image or {}, **values)


def amounts(specs: dict[str, Any], image: dict[str, Any] | None = None, **values: Any) -> Amounts:
    """Return all its amounts, as counts where there are some."""
    result: Amounts = read(specs, image, **values).request.resources
    return result


def test_dedicated_cpus_are_requested_as_such() -> None:
    result = amounts({"hw:cpu_policy": "dedicated"})
    parsed = Amounts.parse("MEMORY_MB=1024,PCPU=2,NUMA_TOPOLOGY=1:dedicated=2:memory=1024")
    assert result == parsed.with_implied_counts()


def test_a_plain_flavor_requests_its_counts() -> None:
    result = nova.request(Flavor(4, 2048, 20, 1, 512))
    assert result.request.resources == Amounts.parse("VCPU=4,MEMORY_MB=2048,DISK_GB=22")
    assert (result.ignored_keys, result.topology.amount) == ((), None)


def test_all_of_it_is_one_request() -> None:
    result = nova.request(
        Flavor(
            2,
            1024,
            10,
            extra_specs={
                "hw:cpu_policy": "dedicated",
                "hw:mem_page_size": "large",
                "pci_passthrough:alias": "gpu:1",
                "trait:HW_CPU_X86_AVX2": "required",
                "resources_FPGA:CUSTOM_FPGA": "1",
            },
        ),
        {"hw_mem_page_size": "2MB", "trait:CUSTOM_A": "required", "os_distro": "debian"},
        aliases=ALIASES,
    )
    unnamed, fpga = result.request.groups
    names = {kind.name for kind in result.request.resources}
    assert names == {
        "PCPU",  # and no MEMORY_MB: huge pages are not of it
        "DISK_GB",
        "NUMA_TOPOLOGY",
        "CUSTOM_FPGA",
        *(name for name in names if name.endswith("DEVICES")),
    }
    assert len(names) == 5
    assert unnamed.required == {"HW_CPU_X86_AVX2", "CUSTOM_A"}
    assert fpga.resources == Amounts.parse("CUSTOM_FPGA=1")
    assert result.topology.amount is not None
    assert result.topology.amount.page_size == "2048"


@pytest.mark.parametrize(
    "key",
    [
        "hw:tpm_version",
        "hw:mem_encryption",
        "hw:cpu_polcy",
        "hw:",
        "capabilities:cpu_info:arch",
        "aggregate_instance_extra_specs:ssd",
        "ssd",
        "os:secure_boot",
        "accel:device_profile",
        "traits",
    ],
)
def test_a_key_without_a_meaning_is_refused_or_named(key: str) -> None:
    with breaks(NovaRule.UNREAD_KEY, match=r"flavor and image: got \["):
        read({key: "1"})
    result = read({key: "1"}, refuse_ignored=False)
    assert result.ignored_keys == (key,)
    assert result.request == read({}).request


@pytest.mark.parametrize("key", ["hw_tpm_version", "hw_vm_mode", "architecture", "os_secure_boot"])
def test_a_property_that_chooses_a_host_is_refused_or_named(key: str) -> None:
    with breaks(NovaRule.UNREAD_KEY):
        read({}, {key: "1"})
    assert read({}, {key: "1"}, refuse_ignored=False).ignored_keys == (f"{key} of the image",)


def test_the_configuration_of_a_guest_requests_nothing() -> None:
    of_flavor = ("quota:cpu_shares", "hw_rng:allowed", "hw_video:ram_max_mb", "hw:cpu_sockets")
    of_image = ("hw_disk_bus", "os_distro", "img_config_drive", "hw_vif_model", "owner")
    result = read(dict.fromkeys(of_flavor, "1"), dict.fromkeys(of_image, "1"))
    assert result == read({})


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_key_that_says_nothing_is_no_matter(nothing: Any) -> None:
    assert read({"hw:tpm_version": nothing}, {"hw_vm_mode": nothing}).ignored_keys == ()


def test_what_is_specified_of_cells_that_there_are_not_is_named() -> None:
    assert read(TWO_CELLS).ignored_keys == ()
    after_a_gap = TWO_CELLS | {"hw:numa_cpus.3": "0", "hw:numa_mem.3": "1"}
    assert read(after_a_gap, refuse_ignored=False).ignored_keys == (
        "hw:numa_cpus.3",
        "hw:numa_mem.3",
    )
    without = {"hw:numa_cpus.0": "0-1", "hw:numa_mem.0": "1024"}
    assert read(without, refuse_ignored=False).ignored_keys == (
        "hw:numa_cpus.0",
        "hw:numa_mem.0",
    )
    gap = {"hw:numa_nodes": "2", "hw:numa_cpus.1": "1"}
    assert read(gap, refuse_ignored=False).ignored_keys == ("hw:numa_cpus.1",)


def test_a_real_time_mask_of_a_guest_that_is_not_real_time_is_named() -> None:
    mask = {"hw:cpu_policy": "dedicated", "hw:cpu_realtime_mask": "^0"}
    assert read(mask, refuse_ignored=False).ignored_keys == ("hw:cpu_realtime_mask",)
    assert read(mask | {"hw:cpu_realtime": "yes"}).ignored_keys == ()
    image = {"hw_cpu_realtime_mask": "^0"}
    assert read({}, image, refuse_ignored=False).ignored_keys == (
        "hw_cpu_realtime_mask of the image",
    )


@pytest.mark.parametrize("policy", ["required", "socket"])
def test_an_affinity_without_a_topology_is_named(policy: str) -> None:
    """Nova ignores it: there are no cells to be near to."""
    specs = {"pci_passthrough:alias": "gpu:2", "hw:pci_numa_affinity_policy": policy}
    with breaks(NovaRule.UNREAD_KEY, match="pci_numa_affinity_policy"):
        read(specs, aliases=ALIASES)
    result = read(specs, aliases=ALIASES, refuse_ignored=False)
    assert result.ignored_keys == ("hw:pci_numa_affinity_policy",)
    near = read(specs | {"hw:cpu_policy": "dedicated"}, aliases=ALIASES)
    assert near.ignored_keys == ()
    image = {"hw_pci_numa_affinity_policy": policy}
    result = read({"pci_passthrough:alias": "gpu:2"}, image, aliases=ALIASES, refuse_ignored=False)
    assert result.ignored_keys == ("hw_pci_numa_affinity_policy of the image",)


def test_an_affinity_of_an_alias_is_no_mistake_of_a_flavor_without_a_topology() -> None:
    """One alias serves all flavors."""
    near = nova.parse_alias(
        {"name": "gpu", "vendor_id": "10de", "product_id": "2330", "numa_policy": "required"}
    )
    assert read({"pci_passthrough:alias": "gpu:1"}, aliases=near).ignored_keys == ()


def test_a_preference_without_a_topology_is_met() -> None:
    specs = {"pci_passthrough:alias": "gpu:2", "hw:pci_numa_affinity_policy": "preferred"}
    assert read(specs, aliases=ALIASES).ignored_keys == ()


def test_an_alias_that_there_is_not_is_refused() -> None:
    with breaks(NovaRule.UNKNOWN_ALIAS):
        read({"pci_passthrough:alias": "gpu:1"})


def test_only_a_flavor_is_read() -> None:
    with breaks(NovaRule.NOT_WORDS):
        nova.request({"vcpus": 2})  # type: ignore[arg-type]


@given(
    st.dictionaries(
        st.sampled_from(["hw:", "hw_", "trait", "resources", "quota:", ""]).flatmap(
            lambda prefix: st.text("abc_:.1", max_size=8).map(lambda rest: prefix + rest)
        ),
        st.sampled_from(["1", "", "required", "maybe"]),
        max_size=3,
    )
)
def test_every_key_has_a_meaning_or_is_named(specs: dict[str, str]) -> None:
    """Ignored keys can be omitted without another change of the answer."""
    try:
        result = read(specs, refuse_ignored=False)
    except InvalidNovaInput:
        return
    assert read({key: specs[key] for key in specs if key not in result.ignored_keys}).request == (
        result.request
    )
