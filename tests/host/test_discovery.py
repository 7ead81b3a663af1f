"""The plug-in point of discovery: drivers that are there, missing, broken or rude."""

from __future__ import annotations

import importlib
import sys

import pytest
import stevedore
from stevedore import _cache

from resource_objects import plugins
from resource_objects.exceptions import DiscoveryError, InvalidInput, PluginError
from resource_objects.host import discovery
from resource_objects.host.linux import read_machine
from resource_objects.host.machine import Core, Machine


@pytest.fixture
def declare(monkeypatch):
    """Declare a built-in driver by ``module:object``."""

    def declare(name: str, path: str) -> None:
        monkeypatch.setitem(plugins.BUILT_IN[discovery.NAMESPACE], name, path)

    return declare


def test_the_linux_driver_reads_a_tree(trees, tmp_path):
    shape = trees.Shape()
    trees.write(tmp_path, shape)
    assert discovery.discover(root=tmp_path) == read_machine(tmp_path) == trees.expected(shape)


def test_options_reach_the_driver(tmp_path):
    with pytest.raises(DiscoveryError, match="nowhere"):
        discovery.discover("linux", root=tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="colour"):
        discovery.discover("linux", colour="red")


def test_an_unknown_driver_names_the_known_ones():
    with pytest.raises(PluginError) as caught:
        discovery.discover("solaris")
    assert (caught.value.namespace, caught.value.name) == (discovery.NAMESPACE, "solaris")
    assert all(name in caught.value.reason for name in discovery.drivers())
    assert "linux" in caught.value.reason


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no_such_module:read", "no_such_module"),
        ("json:no_such_object", "no_such_object"),
        ("sys:maxsize", "not callable"),
        ("builtins:dict", "returned a dict, no Machine"),
    ],
)
def test_a_driver_that_cannot_be_used_is_named_with_its_reason(path, reason, declare):
    declare("broken", path)
    with pytest.raises(PluginError, match=reason) as caught:
        discovery.discover("broken")
    assert caught.value.name == "broken"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution that declares a driver, for this process only."""
    (tmp_path / "lab_hosts.py").write_text(
        "from resource_objects.host.machine import Core, Machine\n"
        "def read(cpus):\n"
        "    cores = tuple(Core(None, None, (cpu,)) for cpu in range(cpus))\n"
        "    return Machine(cpus=tuple(range(cpus)), cores=cores, memory_bytes=0)\n"
    )
    info = tmp_path / "lab_hosts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-hosts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{discovery.NAMESPACE}]\nlab = lab_hosts:read\nbroken = lab_hosts:missing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    # stevedore caches its results in the home folder of the user: not those of this test
    stored = _cache.Cache(cache_dir=str(tmp_path / "cache"))
    monkeypatch.setattr(_cache, "get_group_all", stored.get_group_all)
    monkeypatch.setattr(stevedore.ExtensionManager, "ENTRY_POINT_CACHE", {})
    importlib.invalidate_caches()
    plugins.forget()
    yield
    plugins.forget()
    sys.modules.pop("lab_hosts", None)


@pytest.mark.usefixtures("installed")
def test_an_installed_driver_is_found_by_its_entry_point():
    assert {"lab", "linux"} <= set(discovery.drivers())
    cores = (Core(None, None, (0,)), Core(None, None, (1,)))
    assert discovery.discover("lab", cpus=2) == Machine(cpus=(0, 1), cores=cores, memory_bytes=0)


@pytest.mark.usefixtures("installed")
def test_an_installed_driver_that_does_not_load_does_not_vanish():
    assert "broken" in discovery.drivers()
    with pytest.raises(PluginError, match="missing"):
        discovery.discover("broken")
