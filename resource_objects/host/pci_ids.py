"""Names of PCI vendors, products and classes, from the ``pci.ids`` file of the system.

Most distributions have one (packages ``pci.ids`` or ``hwdata``); ``lspci`` reads the same. Where
there is none, devices have numbers and no names: nothing is downloaded.

The file is read when a name is first asked for. One pass of one regular expression then checks the
whole of it, so that a damaged file is refused by the first line that is wrong instead of giving
names to some devices only. Names are searched in the text as it is: a machine has few devices, and
making mappings of the forty thousand that the file names would cost more than all its searches.

Source of the form: the head of the file itself, and ``lib/names-parse.c`` of pciutils.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable

from resource_objects.exceptions import DiscoveryError, InvalidInput, show

__all__ = ["PATHS", "PCINames", "system_names"]

#: Where distributions put it: Debian, Red Hat and Arch, others.
PATHS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/usr/share/pci.ids")
#: Far more than there will be in it for long.
_MAX_BYTES = 1 << 26

_SKIP = r"[ \t]*(?:#[^\n]*)?\n"
_NAMED = r" ++[^\n]++\n"
_SUBSYSTEM = rf"\t\t[0-9a-f]{{4}} [0-9a-f]{{4}}{_NAMED}"
_PRODUCT = rf"\t[0-9a-f]{{4}}{_NAMED}(?:{_SUBSYSTEM}|{_SKIP})*+"
_VENDOR = rf"[0-9a-f]{{4}}{_NAMED}(?:{_PRODUCT}|{_SKIP})*+"
_INTERFACE = rf"\t\t[0-9a-f]{{2}}{_NAMED}"
_SUBCLASS = rf"\t[0-9a-f]{{2}}{_NAMED}(?:{_INTERFACE}|{_SKIP})*+"
_CLASS = rf"C [0-9a-f]{{2}}{_NAMED}(?:{_SUBCLASS}|{_SKIP})*+"
_FILE = re.compile(rf"(?:{_VENDOR}|{_CLASS}|{_SKIP})*+")
_END = re.compile(r"\n(?=[0-9a-fC])")  # before the next section


class PCINames:
    """The names in one ``pci.ids`` file.

    Asking: :meth:`vendor`, :meth:`product`, :meth:`describe` for both, :meth:`class_name`. Ids are
    lower-case hexadecimal digits, as ``lspci -n`` prints them; what the file does not name is None.
    Cost: a first question reads and checks the file (some 10 ms for the 1.5 MB of today's), others
    search in it.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".ids") as file:
    ...     _ = file.write("10de  NVIDIA Corporation\\n\\t2330  GH100 [H100]\\nC 03  Display\\n")
    ...     file.flush()
    ...     names = PCINames(file.name)
    ...     names.describe("10de", "2330")
    'NVIDIA Corporation GH100 [H100]'
    >>> names.class_name("030200"), names.vendor("8086")
    ('Display', None)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise InvalidInput("value", "file of PCI names", path, "a path")
        self.path = os.fsdecode(path)

    def vendor(self, vendor_id: str) -> str | None:
        """Return the name of a vendor.

        :raises DiscoveryError: here and in the methods below, if the file cannot be read, or a line
            of it says something else than such a file does; ``subject`` is the file and the line
        """
        return self._name(self._section(vendor_id), "")

    def product(self, vendor_id: str, product_id: str) -> str | None:
        """Return the name of a product, without that of its vendor."""
        return self._name(self._section(vendor_id), f"\t{product_id}")

    def class_name(self, class_id: str) -> str | None:
        """Return the name of a class by its code: of the subclass, or else of the class."""
        section = self._section(f"C {class_id[:2]}")
        return self._name(section, f"\t{class_id[2:4]}") or self._name(section, "")

    def describe(self, vendor_id: str, product_id: str) -> str | None:
        """Return vendor and product by name, by its id a product that has none."""
        vendor = self.vendor(vendor_id)
        return vendor and f"{vendor} {self.product(vendor_id, product_id) or product_id}"

    # --- how it is searched ---

    def _section(self, key: str) -> str:
        """Return the lines of a vendor or class, without its key; nothing if it is not there."""
        start = self._text.find(f"\n{key} ")
        if start < 0:
            return ""
        start += 1 + len(key)
        end = _END.search(self._text, start)
        return self._text[start : end.end() if end else None]

    def _name(self, section: str, key: str) -> str | None:
        """Return the name on the line of a section that begins with a key."""
        start = section.find(f"\n{key} ") + 1 if key else 0
        if not section or (key and not start):
            return None
        line = section[start + len(key) : section.find("\n", start)]
        return line.strip()

    @functools.cached_property
    def _text(self) -> str:
        text = f"\n{_read(self.path)}\n"
        found = _FILE.match(text)
        end = found.end() if found else 0
        if end != len(text):
            raise self._damaged(text, end)
        return text

    def _damaged(self, text: str, start: int) -> DiscoveryError:
        line = text[start : text.find("\n", start)]
        where = f"{self.path}:{text.count(chr(10), 0, start)}"
        return DiscoveryError(
            where, f"got {show(line)}, expected an id, spaces and a name, in order"
        )


def system_names(paths: Iterable[str | os.PathLike[str]] | None = None) -> PCINames | None:
    """Return the names in the first of several files that is there (of PATHS), None if none is.

    >>> system_names(["/nowhere/pci.ids"]) is None
    True
    """
    places = PATHS if paths is None else paths
    return next((PCINames(path) for path in places if os.path.isfile(path)), None)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DiscoveryError(path, f"{reason}; expected a list of PCI ids") from error
    except UnicodeDecodeError as error:
        raise DiscoveryError(path, f"{error.reason}; expected text in UTF-8") from error
    if len(text) > _MAX_BYTES:
        raise DiscoveryError(path, f"expected at most {_MAX_BYTES} characters")
    return text
