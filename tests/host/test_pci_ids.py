"""Names of PCI devices: a file of them, and damaged files."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import DiscoveryError, InvalidInput
from resource_objects.host import pci_ids
from resource_objects.host.pci_ids import PCINames, system_names

TEXT = """\
#
#\tList of PCI IDs
#

# Vendors, devices and subsystems. Please keep sorted.

# Syntax:
# vendor  vendor_name

0010  Allied Telesis, Inc (Wrong ID)
# This is a relabelled RTL-8139
\t8139  AT-2500TX V3 Ethernet
10de  NVIDIA Corporation
\t2330  GH100 [H100 SXM5 80GB]
\t\t10de 16c1  HGX H100
# a remark in the middle

\t2331  GH100 [H100 PCIe]
8086  Intel Corporation
\t154c  Ethernet Virtual Function 700 Series
ffff  Illegal Vendor ID

# List of known device classes, subclasses and programming interfaces

C 02  Network controller
\t00  Ethernet controller
C 03  Display controller
\t00  VGA compatible controller
\t\t00  VGA controller
\t02  3D controller
C ff  Unassigned class
"""


@pytest.fixture
def names(tmp_path) -> PCINames:
    return written(tmp_path, TEXT)


def written(folder: pathlib.Path, text: str) -> PCINames:
    file = folder / "pci.ids"
    file.write_text(text, encoding="utf-8")
    return PCINames(file)


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "name"),
    [
        (("10de", "2330"), "NVIDIA Corporation GH100 [H100 SXM5 80GB]"),
        (("10de", "2331"), "NVIDIA Corporation GH100 [H100 PCIe]"),  # after a remark
        (("10de", "16c1"), "NVIDIA Corporation 16c1"),  # a subsystem is no product
        (("10de", "154c"), "NVIDIA Corporation 154c"),  # of another vendor
        (("8086", "154c"), "Intel Corporation Ethernet Virtual Function 700 Series"),
        (("ffff", "0000"), "Illegal Vendor ID 0000"),
        (("0010", "8139"), "Allied Telesis, Inc (Wrong ID) AT-2500TX V3 Ethernet"),
        (("1af4", "1041"), None),
        (("8139", "8139"), None),  # a product is no vendor
    ],
)
def test_a_device_has_the_name_of_its_vendor_and_its_product(names, ids, name):
    assert names.describe(*ids) == name


def test_ids_of_vendors_and_classes_are_not_mixed_up(names):
    assert names.vendor("02") is None
    assert names.describe("10de", "0000") == "NVIDIA Corporation 0000"


def test_a_file_without_an_end_of_line_or_with_those_of_windows_is_read(tmp_path):
    assert (
        written(tmp_path, "10de  NVIDIA\r\n\t2330  H100").describe("10de", "2330") == "NVIDIA H100"
    )


@given(
    st.dictionaries(st.integers(0, 0xFFFF), st.text("abc []", min_size=1, max_size=8), max_size=8)
)
def test_every_name_that_is_in_a_file_is_found_and_no_other(tmp_path_factory, vendors):
    available = {f"{id_:04x}": f"v{name.strip()}" for id_, name in vendors.items()}
    lines = [f"{id_}  {name}\n\t{id_}  p{name}\n" for id_, name in available.items()]
    names = written(tmp_path_factory.mktemp("ids"), "".join(lines))
    assert {id_: names.vendor(id_) for id_ in available} == available
    assert all(names.describe(id_, id_) == f"{name} p{name}" for id_, name in available.items())
    assert names.vendor("zzzz") is None


# --- which file ---------------------------------------------------------------------------------


def test_the_first_file_that_is_there_is_taken(tmp_path, names):
    result = system_names([tmp_path / "none", names.path, tmp_path])
    assert result is not None and result.vendor("10de") == "NVIDIA Corporation"


def test_without_a_file_nothing_has_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(pci_ids, "PATHS", (tmp_path / "pci.ids",))
    assert system_names() is None


def test_a_file_is_read_when_a_name_is_requested_and_only_once(tmp_path):
    names = PCINames(tmp_path / "later")
    (tmp_path / "later").write_text("10de  NVIDIA\n")
    assert names.vendor("10de") == "NVIDIA"
    (tmp_path / "later").unlink()
    assert names.vendor("10de") == "NVIDIA"


def test_what_is_no_path_is_refused():
    with pytest.raises(InvalidInput, match="file of PCI names: got 5, expected a path"):
        PCINames(5)


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("nonsense", 1),
        ("10de", 1),
        ("10de NVIDIA\n10dg  NVIDIA", 2),
        ("10DE  NVIDIA", 1),
        ("\t2330  a product of nobody", 1),
        ("10de  NVIDIA\n\t\t10de 16c1  a subsystem of nothing", 2),
        ("10de  NVIDIA\n\t2330  H100\n\t\t10de  half a subsystem", 3),
        ("10de  NVIDIA\n  2330  blanks for a tab", 2),
        ("C 3  half a class", 1),
        ("C 03  Display\n\t2330  a product of a class", 2),
        ("<!DOCTYPE html>", 1),
        ("10de  NVIDIA\n\n# well\n\x00\x00\x00", 4),
    ],
)
def test_the_first_line_that_is_wrong_is_named(tmp_path, line, number):
    names = written(tmp_path, f"{line}\n8086  Intel\n")
    with pytest.raises(DiscoveryError, match="expected an id, spaces and a name") as refused:
        names.vendor("8086")
    assert refused.value.name == f"{names.path}:{number}"


def test_a_file_that_is_cut_in_the_middle_of_a_line_is_damaged(tmp_path):
    with pytest.raises(DiscoveryError, match="got '10d'"):
        written(tmp_path, "0010  Allied\n10d").vendor("0010")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "pci.ids").write_bytes(b"10de  NVIDIA\n\xff\xfe")
    with pytest.raises(DiscoveryError, match="expected text in UTF-8"):
        PCINames(tmp_path / "pci.ids").vendor("10de")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DiscoveryError, match="expected a list of PCI ids") as refused:
        PCINames(tmp_path).vendor("10de")
    assert refused.value.name == str(tmp_path)


def test_a_file_that_is_far_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pci_ids, "_MAX_BYTES", 10)
    with pytest.raises(DiscoveryError, match="at most 10 characters"):
        written(tmp_path, TEXT).vendor("10de")


@given(st.text(max_size=60) | st.text("0123456789abcdefC# \t\nxyz", max_size=60))
def test_any_text_is_such_a_file_or_refused(tmp_path_factory, text):
    try:
        names = written(tmp_path_factory.mktemp("ids"), text.encode("utf-8", "replace").decode())
        names.describe("10de", "2330")
    except DiscoveryError as error:
        assert "expected" in error.detail
