"""The door of ``resource_objects.host``: what it offers, and that looking costs nothing."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import pytest

from resource_objects import host


@pytest.mark.parametrize("name", host.__all__)
def test_every_name_resolves_to_the_one_of_its_module(name):
    result = getattr(host, name)
    assert getattr(host, name) is result and name in dir(host)
    assert getattr(sys.modules[result.__module__], name) is result


def test_what_is_no_name_of_it_is_reported():
    with pytest.raises(AttributeError, match=r"'resource_objects\.host' has no attribute 'Host'"):
        host.Host  # noqa: B018


def test_importing_it_loads_nothing():
    program = "import sys, resource_objects.host as h; dir(h); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    ours = {name for name in ran.stdout.split() if name.startswith("resource_objects")}
    own_part = {"_lazy", "_version", "host"}
    assert ours == {"resource_objects", *(f"resource_objects.{name}" for name in own_part)}
    assert "oslo_versionedobjects" not in ran.stdout


def test_a_type_checker_sees_the_same_names():
    tree = ast.parse(pathlib.Path(host.__file__).read_text("utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    values = {alias.asname for node in checked.body for alias in node.names}
    assert values == set(host.__all__)
