"""The environment of a job: which part of a host is its own, as variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.cli.environment import export_lines, job_environment, read_environment
from resource_objects.host import partitions, provider_tree, sync_host
from resource_objects.host.machine import MIB, Core, Machine, NUMACell, PCIDevice
from resource_objects.host.settings import HostSettings
from resource_objects.site import Site, apply_site
from resource_objects.testing.refusals import raises_code

NVIDIA, AMD = ("10de", "2330", "030200"), ("1002", "74a1", "120000")
UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
MIG = "MIG-3b4c6aab-ea1e-5f3f-8a5c-0c0a4ed3a1a{}"


@pytest.fixture
def ledger() -> Iterator[ro.Ledger]:
    with ro.connect("memory://") as ledger:
        yield ledger


@pytest.fixture
def claimed(ledger: ro.Ledger) -> Callable[..., dict[str, str]]:
    """Claim for ``job`` and return its environment."""

    def claim(expected: Any) -> dict[str, str]:
        if not isinstance(expected, dict):
            expected = ledger.snapshot().candidates(expected)
        return read_environment(ledger, ledger.claim("job", expected))

    return claim


def machine(*devices: PCIDevice) -> Machine:
    """Return a machine of two cells with four CPUs each."""
    cells = (
        NUMACell(0, (0, 1, 2, 3), 4000 * MIB, (), 0, (10, 21)),
        NUMACell(1, (4, 5, 6, 7), 4000 * MIB, (), 0, (21, 10)),
    )
    cores = tuple(Core(cpu // 4, cpu // 2, (cpu, cpu + 1)) for cpu in range(0, 8, 2))
    return Machine(
        hostname="box",
        cpus=tuple(range(8)),
        cores=cores,
        memory_bytes=8192 * MIB,
        cells=cells,
        devices=devices,
    )


def gpus(kind: tuple[str, str, str], *buses: str) -> tuple[PCIDevice, ...]:
    return tuple(PCIDevice(f"0000:{bus}:00.0", *kind, numa_node=0) for bus in buses)


def plain(*names: str, **options: Any) -> ro.Provider:
    """Return a host with GPUs of these names."""
    host = ro.Provider("lab-0", "VCPU=64,MEMORY_MB=4096")
    for name in names:
        host.add(f"lab-0/{name}", "PGPU=1", **options)
    return host


# --- which GPU ---


def test_a_job_that_holds_no_gpu_is_told_so_by_empty_variables(ledger, claimed):
    ledger.sync(plain("gpu0"))
    result = claimed("VCPU=4")
    assert {name: result[name] for name in result if "CUDA" in name or "ROCR" in name} == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "",
        "ROCR_VISIBLE_DEVICES": "",
        "RESOURCE_OBJECTS_CUDA_PARTS": "",
        "RESOURCE_OBJECTS_ROCR_PARTS": "",
    }
    assert result["RESOURCE_OBJECTS_AMOUNTS"] == "VCPU=4"
    assert (result["RESOURCE_OBJECTS_CONSUMER"], result["RESOURCE_OBJECTS_HOST"]) == (
        "job",
        "lab-0",
    )
    assert result["RESOURCE_OBJECTS_CLAIM"] == ledger.get_claim("job").id


def test_devices_are_numbered_by_address_whatever_order_they_were_given_in(ledger, claimed):
    network = PCIDevice("0000:01:00.0", "10de", "a2d6", "020000")
    result = machine(*gpus(NVIDIA, "c1", "3b", "86", "41"), network)
    sync_host(
        ledger,
        provider_tree(result, HostSettings(device_rules=["10de:*/02=CUSTOM_NIC", "10de:*=PGPU"])),
    )
    ledger.claim("other", {"box/0000:3b:00.0": "PGPU=1"})
    expected = {"box/0000:c1:00.0": "PGPU=1", "box/0000:41:00.0": "PGPU=1"}
    variables = claimed(expected)
    assert variables["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert variables["RESOURCE_OBJECTS_DEVICES"] == "0000:41:00.0,0000:c1:00.0"


def test_devices_that_a_request_for_devices_takes(ledger, claimed):
    sync_host(
        ledger,
        provider_tree(
            machine(*gpus(NVIDIA, "3b", "86")), HostSettings(device_rules=["10de:*=PGPU"])
        ),
    )
    ledger.claim("other", {"box/0000:3b:00.0": "PGPU=1"})
    variables = claimed("DEVICES=PGPU")
    assert variables["CUDA_VISIBLE_DEVICES"] == "1"
    assert variables["RESOURCE_OBJECTS_UNITS"] == "0000:86:00.0"


def test_vendors_are_numbered_apart(ledger, claimed):
    result = machine(*gpus(NVIDIA, "3b", "86"), *gpus(AMD, "03", "c1"))
    sync_host(
        ledger, provider_tree(result, HostSettings(device_rules=["10de:*=PGPU", "1002:*=PGPU"]))
    )
    variables = claimed({"box/0000:c1:00.0": "PGPU=1", "box/0000:86:00.0": "PGPU=1"})
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["ROCR_VISIBLE_DEVICES"]) == ("1", "1")


def test_a_device_is_called_by_its_uuid_where_that_is_known(ledger, claimed):
    host = ro.Provider("box", "VCPU=4")
    environment = ro.Device(
        "0000:3b:00.0", *NVIDIA[:2], resource_class="PGPU", facts={"uuid": UUID}
    )
    other = ro.Device("0000:86:00.0", *NVIDIA[:2], resource_class="PGPU")
    host.add_parts("DEVICES", ro.PCIInventory([environment, other]))
    ledger.sync(host)
    assert claimed("DEVICES=PGPU")["CUDA_VISIBLE_DEVICES"] == UUID
    ledger.release("job")
    assert claimed("PGPU=2")["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_gpus_that_discovery_found_are_called_by_their_uuids(ledger, claimed):
    result = [
        dataclasses.replace(item, uuid=UUID[:-1] + str(n))
        for n, item in enumerate(gpus(NVIDIA, "3b", "86"))
    ]
    sync_host(ledger, provider_tree(machine(*result), HostSettings(device_rules=["10de:*=PGPU"])))
    variables = claimed({"box/0000:86:00.0": "PGPU=1"})
    assert variables["CUDA_VISIBLE_DEVICES"] == UUID[:-1] + "1"
    unknown = [dataclasses.replace(item, uuid=None, driver="vfio-pci") for item in result]
    sync_host(ledger, provider_tree(machine(*unknown), HostSettings(device_rules=["10de:*=PGPU"])))
    assert job_environment(ledger.get_claim("job"), ledger.provider("box")) == variables


def test_plain_gpus_are_numbered_by_the_numbers_of_their_names(ledger, claimed):
    ledger.sync(plain(*(f"gpu{n}" for n in (10, 2, 0, 1))))
    variables = claimed({"lab-0/gpu2": "PGPU=1", "lab-0/gpu10": "PGPU=1"})
    assert variables["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_plain_gpus_are_numbered_by_the_addresses_of_their_names(ledger, claimed):
    ledger.sync(plain("b-0000:03:00.0", "a-0000:C1:00.0"))
    assert claimed({"lab-0/a-0000:C1:00.0": "PGPU=1"})["CUDA_VISIBLE_DEVICES"] == "1"


def test_plain_gpus_have_the_uuids_of_their_names(ledger, claimed):
    ledger.sync(plain(UUID))
    assert claimed("PGPU=1")["CUDA_VISIBLE_DEVICES"] == UUID


@pytest.mark.parametrize("trait", ["CUSTOM_AMD_MI300X", "CUSTOM_ROCM"])
def test_a_trait_says_that_plain_gpus_are_amds(ledger, claimed, trait):
    ledger.sync(plain("gpu0", "gpu1", traits=[trait]))
    variables = claimed({"lab-0/gpu1": "PGPU=1"})
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["ROCR_VISIBLE_DEVICES"]) == ("", "1")


def test_gpus_that_are_counted_at_their_host_have_no_numbers_unless_all_are_held(ledger, claimed):
    ledger.sync(ro.Provider("lab-0", "VCPU=64,PGPU=4"))
    with raises_code("DeviceUnknown", match=r"job .*PGPU=3 of lab-0, of 4"):
        claimed("PGPU=3")
    ledger.release("job")
    assert claimed("PGPU=4")["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"


def test_gpus_of_which_some_have_addresses_cannot_be_numbered(ledger, claimed):
    ledger.sync(plain("0000:03:00.0", "gpu1"))
    with raises_code("DeviceUnknown", match="lab-0/gpu1: no address"):
        claimed({"lab-0/0000:03:00.0": "PGPU=1"})


# --- parts of one ---


def test_a_half_is_visible_and_told_in_a_variable_of_its_own(ledger, claimed):
    rules = ["10de:*=PGPU;halves"]
    sync_host(
        ledger, provider_tree(machine(*gpus(NVIDIA, "3b", "86")), HostSettings(device_rules=rules))
    )
    half = {"box/0000:86:00.0": "CUSTOM_PGPU_HALF=1"}
    variables = claimed({**half, "box/0000:3b:00.0": "PGPU=1"})
    assert variables["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert variables["RESOURCE_OBJECTS_CUDA_PARTS"] == "1:1/2"
    assert variables["RESOURCE_OBJECTS_DEVICES"] == "0000:3b:00.0,0000:86:00.0"


def test_a_fraction_of_a_plain_gpu(ledger, claimed):
    host = plain("gpu0", "gpu1")
    for child in host.children:
        partitions.thousandths(child)
    ledger.sync(host)
    variables = claimed({"lab-0/gpu1": "CUSTOM_PGPU_THOUSANDTHS=250"})
    assert variables["CUDA_VISIBLE_DEVICES"] == "1"
    assert variables["RESOURCE_OBJECTS_CUDA_PARTS"] == "1:1/4"


def test_both_halves_are_the_whole(ledger, claimed):
    host = plain("gpu0")
    partitions.thousandths(host.children[0])
    ledger.sync(host)
    variables = claimed("CUSTOM_PGPU_THOUSANDTHS=1000")
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["RESOURCE_OBJECTS_CUDA_PARTS"]) == (
        "0",
        "",
    )


def test_of_slices_that_differ_what_leaves_least_counts(ledger, claimed):
    host = plain("gpu0")
    uses = {"CUSTOM_GPU_SLICE": 3, "CUSTOM_GPU_MEMORY_SLICE": 4}
    slices = {"CUSTOM_GPU_SLICE": 7, "CUSTOM_GPU_MEMORY_SLICE": 8}
    partitions.split(host.children[0], "PGPU", slices, {"CUSTOM_PART": uses})
    ledger.sync(host)
    assert claimed("CUSTOM_PART=1")["RESOURCE_OBJECTS_CUDA_PARTS"] == "0:1/2"


def test_a_gpu_that_nobody_may_have_whole_counts_among_the_others(ledger, claimed):
    host = plain("gpu1")
    partitions.split(host.add("lab-0/gpu0"), None, {"CUSTOM_GPU_SLICE": 4}, {})
    ledger.sync(host)
    variables = claimed({"lab-0/gpu1": "PGPU=1"})
    assert variables["CUDA_VISIBLE_DEVICES"] == "1"


def test_a_mig_instance_is_visible_by_its_uuid(ledger, claimed):
    host = plain("gpu0")
    gpu = partitions.split(host.children[0], "PGPU", {"CUSTOM_GPU_SLICE": 7})
    for number in range(2):
        name = f"lab-0/gpu0/{MIG.format(number)}"
        partitions.add_partition(gpu, name, "CUSTOM_MIG_3G", {"CUSTOM_GPU_SLICE": 3})
    ledger.sync(host)
    variables = claimed({f"lab-0/gpu0/{MIG.format(1)}": "CUSTOM_MIG_3G=1"})
    assert variables["CUDA_VISIBLE_DEVICES"] == MIG.format(1)


def test_a_mig_instance_without_a_uuid_is_described_and_no_gpu_is_visible(ledger, claimed):
    host = plain("gpu0", "gpu1")
    slices = {"CUSTOM_GPU_SLICE": 7}
    partitions.split(host.children[1], "PGPU", slices, {"CUSTOM_MIG_1G": {"CUSTOM_GPU_SLICE": 1}})
    ledger.sync(host)
    variables = claimed("CUSTOM_MIG_1G=2")
    assert variables["RESOURCE_OBJECTS_MIG"] == "1:CUSTOM_MIG_1G,1:CUSTOM_MIG_1G"
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["RESOURCE_OBJECTS_CUDA_PARTS"]) == ("", "")


def test_a_mig_placement_is_described_as_nvidia_smi_takes_it(ledger, claimed):
    site = """machines:
      lab-0:
        children:
          /gpu0: {inventories: PGPU=1}
          /gpu[1-2]: {inventories: PGPU=1, split: mig-h100-80gb}"""
    apply_site(ledger, Site.parse(site))
    variables = claimed(
        {
            "lab-0/gpu1/1g.10gb+me-at-4": "CUSTOM_MIG_1G_10GB_ME=1",
            "lab-0/gpu2/3g.40gb-at-0": "CUSTOM_MIG_3G_40GB=1",
        }
    )
    assert variables["RESOURCE_OBJECTS_MIG"] == "1:1g.10gb+me:4,2:3g.40gb:0"
    assert variables["CUDA_VISIBLE_DEVICES"] == ""
    ledger.release("job")
    both = claimed("PGPU=1,CUSTOM_MIG_7G_80GB=1")
    assert both["CUDA_VISIBLE_DEVICES"] == "0"
    assert both["RESOURCE_OBJECTS_MIG"] == "1:7g.80gb:0"


def test_a_mig_instance_names_its_gpu_by_uuid_where_that_is_known(ledger, claimed):
    gpu = {"inventories": "PGPU=1", "split": "mig-h100-80gb"}
    apply_site(ledger, Site.from_dict({"machines": {"lab-0": {"children": {f"/{UUID}": gpu}}}}))
    assert claimed("CUSTOM_MIG_4G_40GB=1")["RESOURCE_OBJECTS_MIG"] == f"{UUID}:4g.40gb:0"


def test_a_mig_instance_of_one_of_several_gpus_is_refused_by_name(ledger, claimed):
    host = ro.Provider("lab-0", "VCPU=8")
    host.add("lab-0/gpus", "PGPU=2,CUSTOM_MIG_1G=14")
    ledger.sync(host)
    with raises_code("DeviceUnknown", match="CUSTOM_MIG_1G=1 of lab-0/gpus: no UUID"):
        claimed("CUSTOM_MIG_1G=1")


def test_a_mig_instance_beside_a_gpu_without_uuid_is_refused(ledger, claimed):
    host = plain("gpu0", "gpu1")
    gpu = partitions.split(host.children[0], "PGPU", {"CUSTOM_GPU_SLICE": 7})
    name = f"lab-0/gpu0/{MIG.format(0)}"
    partitions.add_partition(gpu, name, "CUSTOM_MIG_3G", {"CUSTOM_GPU_SLICE": 3})
    ledger.sync(host)
    with raises_code("DeviceUnknown", match="lab-0/gpu1: no UUID"):
        claimed({name: "CUSTOM_MIG_3G=1", "lab-0/gpu1": "PGPU=1"})


# --- CPUs and cells ---


def numa_host(ledger: ro.Ledger) -> None:
    tree = provider_tree(machine(), HostSettings(shared="0-1", dedicated="2-7"), numa=True)
    sync_host(ledger, tree)


def test_dedicated_cpus_and_their_cells(ledger, claimed):
    numa_host(ledger)
    variables = claimed(ro.Request({"NUMA_TOPOLOGY": ro.numa(dedicated=4, memory_mb=512)}))
    assert variables["RESOURCE_OBJECTS_CPUS"] == "4-7"
    assert variables["RESOURCE_OBJECTS_CELLS"] == "1"
    assert variables["RESOURCE_OBJECTS_UNITS"] == "cpu4,cpu5,cpu6,cpu7"


def test_cpus_left_empty_on_purpose_are_not_to_run_on(ledger, claimed):
    numa_host(ledger)
    variables = claimed(
        ro.Request({"NUMA_TOPOLOGY": ro.numa(dedicated=2, thread_policy="isolate", memory_mb=64)})
    )
    assert variables["RESOURCE_OBJECTS_CPUS"] in {"4,6", "5,7", "4,7", "5-6"}
    assert len(variables["RESOURCE_OBJECTS_UNITS"].split(",")) == 4


def test_shared_vcpus_run_on_the_shared_cpus_of_their_cell(ledger, claimed):
    numa_host(ledger)
    variables = claimed(ro.Request({"NUMA_TOPOLOGY": ro.numa(shared=2, memory_mb=64)}))
    assert (variables["RESOURCE_OBJECTS_CPUS"], variables["RESOURCE_OBJECTS_CELLS"]) == ("0-1", "0")


# --- which host ---


def test_what_is_held_of_another_host_is_not_in_it(ledger):
    other = ro.Provider("lab-1", "VCPU=4")
    other.add("lab-1/gpu0", "PGPU=1")
    ledger.sync(plain("gpu0"), other)
    ledger.claim("job", {"lab-0/gpu0": "PGPU=1", "lab-1": "VCPU=1"})
    with pytest.raises(exceptions.InvalidInput, match="one of lab-0, lab-1"):
        read_environment(ledger, "job")
    variables = read_environment(ledger, "job", host="lab-1")
    assert variables["CUDA_VISIBLE_DEVICES"] == ""
    assert variables["RESOURCE_OBJECTS_AMOUNTS"] == "VCPU=1"


def test_a_pool_of_disks_is_no_host(ledger):
    ledger.sync(plain("gpu0"), ro.Provider("disks", "DISK_GB=100"))
    ledger.claim("job", {"disks": "DISK_GB=10", "lab-0/gpu0": "PGPU=1"})
    assert read_environment(ledger, "job")["RESOURCE_OBJECTS_HOST"] == "lab-0"


def test_who_holds_nothing_has_no_environment(ledger):
    with raises_code("ConsumerNotFound"):
        read_environment(ledger, "job")


@pytest.mark.parametrize("argument", [None, "job", {}])
def test_what_is_no_claim_or_no_host_is_refused(ledger, argument):
    host = plain("gpu0")
    ledger.sync(host)
    with pytest.raises(exceptions.InvalidInput, match="expected a Claim"):
        job_environment(argument, host)
    with pytest.raises(exceptions.InvalidInput, match="expected a Provider"):
        job_environment(ledger.claim("job", {"lab-0": "VCPU=1"}), argument)


def test_lines_for_a_shell_are_quoted():
    assert export_lines({"A": "it's $HOME; `rm`", "B": ""}) == (
        "export A='it'\"'\"'s $HOME; `rm`'\nexport B=''"
    )
