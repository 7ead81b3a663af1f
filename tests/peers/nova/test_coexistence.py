"""Nova's objects and ours live in one process without disturbing each other.

oslo.versionedobjects keeps one registry per process, by bare class name, and the last class to
register a name silently wins. Nova registers ``ComputeNode``, ``Resource`` and more names that we
use too. So a process that loads one library alone, and processes that load both, in either order,
write down what each library's objects look like and who answers to which name; the tests compare.

This file is also the program of those processes: ``python test_coexistence.py nova ours``.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from typing import Any

import pytest

UUID = "7f5c3b7e-3a4b-4c59-9d0e-0d6f1a2b3c4d"


# --- the program of the processes: load, go there and back, write down --------------------------


def load_nova() -> dict[str, Any]:
    """Register nova's objects and return a sample of those we share a word with."""
    from nova import objects

    objects.register_all()
    cell = objects.NUMACell(
        id=0,
        cpuset={0, 1},
        pcpuset={2, 3},
        memory=4096,
        pinned_cpus={2},
        siblings=[{0, 1}, {2, 3}],
        mempages=[objects.NUMAPagesTopology(size_kb=4, total=1048576, used=0)],
        network_metadata=objects.NetworkMetadata(physnets={"net"}, tunneled=False),
        socket=0,
    )
    device = objects.LibvirtVPMEMDevice(
        label="4GB", name="ns_0", size=4294967296, devpath="/dev/dax0.0", align=2097152
    )
    resource = objects.Resource(
        provider_uuid=UUID,
        resource_class="CUSTOM_PMEM_NAMESPACE_4GB",
        identifier="ns_0",
        metadata=device,
    )
    pool = objects.PciDevicePool(
        product_id="10c9", vendor_id="8086", numa_node=0, tags={"dev_type": "type-VF"}, count=2
    )
    return {
        "ComputeNode": objects.ComputeNode(
            id=1,
            uuid=UUID,
            host="host0",
            vcpus=4,
            memory_mb=4096,
            numa_topology=objects.NUMATopology(cells=[cell])._to_json(),
            pci_device_pools=objects.PciDevicePoolList(objects=[pool]),
            cpu_allocation_ratio=16.0,
        ),
        "NUMATopology": objects.NUMATopology(cells=[cell]),
        "PciDevice": objects.PciDevice(
            id=1,
            uuid=UUID,
            compute_node_id=1,
            address="0000:81:00.1",
            vendor_id="8086",
            product_id="10c9",
            dev_type="type-VF",
            status="available",
            numa_node=0,
            parent_addr="0000:81:00.0",
        ),
        "Resource": resource,
        "ResourceList": objects.ResourceList(objects=[resource]),
    }


def load_ours() -> dict[str, Any]:
    """Import every module of ours and return a sample of each basic object."""
    import resource_objects as ro

    for module in pkgutil.walk_packages(ro.__path__, "resource_objects."):
        if not module.name.endswith(("__main__", ".env")):  # alembic's runs in its command alone
            importlib.import_module(module.name)
    return {
        "Amounts": ro.Amounts("VCPU=2,MEMORY_MB=4096"),
        "IntegerAmount": ro.IntegerAmount(3),
        "IntegerInventory": ro.IntegerInventory(total=8, allocation_ratio="1.5", used=3),
        "IntegerResource": ro.IntegerResource("CUSTOM_LICENCE", units="seats"),
        "Inventories": ro.Inventories("VCPU=8,MEMORY_MB=16384"),
        "Limits": ro.Limits("VCPU=16,DISK_GB=0"),
    }


def there_and_back(thing: Any) -> dict[str, Any]:
    """Return the wire form of an object, having checked that it reads back as the same."""
    thing.obj_reset_changes(recursive=True)
    primitive: dict[str, Any] = thing.obj_to_primitive()
    back = type(thing).obj_from_primitive(json.loads(json.dumps(primitive)))
    assert type(back) is type(thing), (type(back), type(thing))
    assert back.obj_to_primitive() == primitive
    return primitive


def refuses(cls: Any, primitive: dict[str, Any]) -> str:
    """Return the name of the error with which a class refuses a wire form."""
    try:
        return f"took it: {cls.obj_from_primitive(primitive)!r}"
    except Exception as error:  # which one is what we want to know
        return type(error).__name__


def across(samples: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Hand each library's wire forms to the other's base class and return what it says.

    Also said in the other's words (the keys of its wire form), and, to ours, passed off as ours by
    the namespace: then only the name is left to tell nova's class from ours.
    """
    from nova.objects.base import NovaObject

    from resource_objects.base import ResourceObject

    found: dict[str, str] = {}
    for name, sample in samples["ours"].items():
        primitive = sample.obj_to_primitive()
        found[f"ours {name}"] = refuses(NovaObject, primitive)
        said = json.dumps(primitive).replace('"versioned_object.', '"nova_object.')
        found[f"ours {name}, in nova's words"] = refuses(NovaObject, json.loads(said))
    for name, sample in samples["nova"].items():
        primitive = sample.obj_to_primitive()
        found[f"nova {name}"] = refuses(ResourceObject, primitive)
        said = json.dumps(primitive).replace('"nova_object.', '"versioned_object.')
        found[f"nova {name}, in our words"] = refuses(ResourceObject, json.loads(said))
        forged = said.replace('namespace": "nova"', 'namespace": "resource_objects"')
        found[f"nova {name}, forged"] = refuses(ResourceObject, json.loads(forged))
    return found


def registry() -> dict[str, list[str]]:
    """Return which classes answer to each name of the one registry."""
    from oslo_versionedobjects import base

    classes = base.VersionedObjectRegistry.obj_classes()
    return {
        name: [f"{cls.__module__}.{cls.__qualname__} {cls.VERSION}" for cls in classes[name]]
        for name in sorted(classes)
    }


def names_in_nova() -> dict[str, str]:
    """Return what each attribute of ``nova.objects`` is: its hook sets them at registration."""
    from nova import objects

    return {
        name: f"{value.__module__}.{value.__qualname__}"
        for name, value in sorted(vars(objects).items())
        if isinstance(value, type)
    }


def main(order: list[str]) -> None:
    load = {"nova": load_nova, "ours": load_ours}
    samples = {name: load[name]() for name in order}
    told: dict[str, Any] = {
        name: {key: there_and_back(thing) for key, thing in samples[name].items()} for name in order
    }
    told["registry"] = registry()
    if "nova" in order:
        told["names in nova"] = names_in_nova()
    if len(order) == 2:
        told["across"] = across(samples)
    json.dump(told, sys.stdout)


# --- the tests ----------------------------------------------------------------------------------

BOTH = (("nova", "ours"), ("ours", "nova"))


@functools.cache
def told_by(*order: str) -> Any:
    """Return what a process told that loaded the libraries in this order."""
    environ = {
        **os.environ,
        "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true",
        "PYTHONHASHSEED": "0",  # lists made from sets come out the same in every process
        "PYTHONWARNINGS": "ignore",  # other libraries' own, at import
    }
    process = subprocess.run(
        [sys.executable, __file__, *order], env=environ, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_the_names_really_meet() -> None:
    """Without qualified names this test would have nothing to find."""
    ours = {name.rpartition(".")[2] for name in told_by("ours")["registry"]}
    assert {"Resource"} <= ours & set(told_by("nova")["registry"])


@pytest.mark.parametrize("order", BOTH, ids=" then ".join)
@pytest.mark.parametrize("whose", ["nova", "ours"])
def test_objects_look_as_if_the_other_library_were_not_there(
    whose: str, order: tuple[str, str]
) -> None:
    alone = told_by(whose)[whose]
    assert alone and told_by(*order)[whose] == alone


@pytest.mark.parametrize("order", BOTH, ids=" then ".join)
def test_every_name_belongs_to_whom_it_belonged_to(order: tuple[str, str]) -> None:
    nova, ours = told_by("nova")["registry"], told_by("ours")["registry"]
    assert len(nova) > 100 and not set(nova) & set(ours)
    assert told_by(*order)["registry"] == nova | ours


@pytest.mark.parametrize("order", BOTH, ids=" then ".join)
def test_nova_s_own_shortcuts_stay_nova_s(order: tuple[str, str]) -> None:
    told = told_by(*order)["names in nova"]
    assert told == told_by("nova")["names in nova"]
    assert all(home.startswith("nova.") for home in told.values())


@pytest.mark.parametrize("order", BOTH, ids=" then ".join)
def test_neither_takes_the_other_s_objects_for_its_own(order: tuple[str, str]) -> None:
    told = told_by(*order)["across"]
    assert told
    assert {name: said for name, said in told.items() if said.startswith("took it")} == {}


if __name__ == "__main__":
    main(sys.argv[1:])
