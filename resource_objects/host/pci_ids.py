"""Names of PCI vendors and products, from the ``pci.ids`` file of the system.

Most distributions have one (packages ``pci.ids`` or ``hwdata``); ``lspci`` reads the same file.
Without it, devices have ids and no names: nothing is downloaded.

The file is read when a name is first requested. One pass of one regular expression then checks the
whole text, so that the first bad line of a damaged file is reported. Names are searched in the text
itself: a machine has few devices, and a mapping of the forty thousand names would cost more than
all searches.

Sources: the head of the file itself, and ``lib/names-parse.c`` of pciutils.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable

from resource_objects.exceptions import DiscoveryError, InvalidInput, show

__all__ = ["PATHS", "PCINames", "system_names"]

#: The places of distributions: Debian; Red Hat and Arch; others.
PATHS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/usr/share/pci.ids")
#: Far above the size of the file, today 1.5 MB.
_MAX_BYTES = 1 << 26

_SKIP = r"[ \t]*(?:#[^\n]*)?\n"
_NAME = r" ++[^\n]++\n"
_SUBSYSTEM = rf"\t\t[0-9a-f]{{4}} [0-9a-f]{{4}}{_NAME}"
_PRODUCT = rf"\t[0-9a-f]{{4}}{_NAME}(?:{_SUBSYSTEM}|{_SKIP})*+"
_VENDOR = rf"[0-9a-f]{{4}}{_NAME}(?:{_PRODUCT}|{_SKIP})*+"
_INTERFACE = rf"\t\t[0-9a-f]{{2}}{_NAME}"
_SUBCLASS = rf"\t[0-9a-f]{{2}}{_NAME}(?:{_INTERFACE}|{_SKIP})*+"
_CLASS = rf"C [0-9a-f]{{2}}{_NAME}(?:{_SUBCLASS}|{_SKIP})*+"
_FILE = re.compile(rf"(?:{_VENDOR}|{_CLASS}|{_SKIP})*+")
_NEXT_SECTION = re.compile(r"\n(?=[0-9a-fC])")


class PCINames:
    """The names in one ``pci.ids`` file.

    Ids are lower-case hexadecimal digits, as ``lspci -n`` prints them. Cost: the first request
    reads and checks the file (about 10 ms), others search in its text.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".ids") as file:
    ...     _ = file.write("10de  NVIDIA Corporation\\n\\t2330  GH100 [H100]\\nC 03  Display\\n")
    ...     file.flush()
    ...     names = PCINames(file.name)
    ...     names.describe("10de", "2330")
    'NVIDIA Corporation GH100 [H100]'
    >>> names.vendor("10de"), names.vendor("8086")
    ('NVIDIA Corporation', None)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise InvalidInput("value", "file of PCI names", path, "a path")
        self.path = os.fsdecode(path)

    def vendor(self, vendor_id: str) -> str | None:
        """Return the name of a vendor, None if the file does not contain it.

        :raises DiscoveryError: if the file cannot be read or a line is malformed; ``subject`` is
            the file and the line
        """
        section = self._section(vendor_id)
        return section.partition("\n")[0].strip() or None

    def describe(self, vendor_id: str, product_id: str) -> str | None:
        """Return the names of vendor and product; a product without a name is its id.

        None if the file does not contain the vendor.

        :raises DiscoveryError: as :meth:`vendor`
        """
        vendor, section = self.vendor(vendor_id), self._section(vendor_id)
        _, _, line = section.partition(f"\n\t{product_id} ")
        return vendor and f"{vendor} {line.partition(chr(10))[0].strip() or product_id}"

    def _section(self, vendor_id: str) -> str:
        """Return the lines of a vendor without its id, or "" if there are none."""
        start = self._text.find(f"\n{vendor_id} ")
        if start < 0:
            return ""
        start += 1 + len(vendor_id)
        end = _NEXT_SECTION.search(self._text, start)
        return self._text[start : end.end() if end else None]

    @functools.cached_property
    def _text(self) -> str:
        try:
            with open(self.path, encoding="utf-8") as file:
                text = f"\n{file.read(_MAX_BYTES + 1)}\n"
        except OSError as error:
            reason = error.strerror or str(error)
            raise DiscoveryError(self.path, f"{reason}; expected a list of PCI ids") from error
        except UnicodeDecodeError as error:
            raise DiscoveryError(self.path, f"{error.reason}; expected text in UTF-8") from error
        if len(text) > _MAX_BYTES + 2:
            raise DiscoveryError(self.path, f"expected at most {_MAX_BYTES} characters")
        match = _FILE.match(text)
        end = match.end() if match else 0
        if end != len(text):
            line = text[end : text.find("\n", end)]
            detail = f"got {show(line)}, expected an id, spaces and a name, in order"
            raise DiscoveryError(f"{self.path}:{text.count(chr(10), 0, end)}", detail)
        return text


def system_names(paths: Iterable[str | os.PathLike[str]] | None = None) -> PCINames | None:
    """Return the names in the first existing file of ``paths`` (of PATHS), None if none exists.

    >>> system_names(["/nowhere/pci.ids"]) is None
    True
    """
    files = PATHS if paths is None else paths
    return next((PCINames(path) for path in files if os.path.isfile(path)), None)
