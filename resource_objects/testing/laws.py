"""A pytest plug-in that reports which invariants were tested on which backends.

Mark a test with ``@pytest.mark.law(4)``: the number of an invariant of the documentation, or
several. If the test runs on a backend, mark it or its class with
``@pytest.mark.backend("sqlite")``, or set ``backend_name`` of its class. ``pytest
--laws-table=FILE`` then writes a table of invariants by backend: the number of tests that passed,
or ``FAILED`` if one failed.

Load it with ``pytest_plugins = ["resource_objects.testing.laws"]``.
"""

from __future__ import annotations

import collections
import pathlib
from typing import Any

import pytest

#: The titles of the invariants in the documentation, by number.
LAWS = {
    1: "One ledger",
    2: "All or nothing",
    3: "Inverse operations",
    4: "Never over capacity",
    5: "One decision",
    6: "Every candidate can be claimed",
    7: "Exact numbers",
    8: "Validated objects",
    9: "Bounded and repeatable",
    10: "Versioned",
    11: "Read-only reads",
}

#: Column of tests that need no backend.
PURE = "pure"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--laws-table``."""
    parser.addoption("--laws-table", metavar="FILE", help="write a table of invariants by backend")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers and, if a table is requested, collect for it."""
    config.addinivalue_line("markers", "law(*numbers): the invariants that a test protects")
    config.addinivalue_line("markers", "backend(name): the backend a test runs on")
    path = config.getoption("--laws-table")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(pathlib.Path(path)), "laws-table")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the invariants and the backend of each test to its report."""
    for item in items:
        laws = [number for marker in item.iter_markers("law") for number in marker.args]
        if laws:
            item.user_properties.append(("laws", laws))
            item.user_properties.append(("backend", _backend_of(item)))


def _backend_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("backend")
    if marker is not None:
        return str(marker.args[0])
    return str(getattr(getattr(item, "cls", None), "backend_name", None) or PURE)


class _Collector:
    """Counts outcomes by law and backend; works under pytest-xdist, in the controlling process."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.passed: collections.Counter[tuple[int, str]] = collections.Counter()
        self.failed: set[tuple[int, str]] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: dict[str, Any] = dict(report.user_properties)
        if "laws" not in properties:
            return
        for law in properties["laws"]:
            key = (law, properties["backend"])
            if report.failed:
                self.failed.add(key)
            elif report.when == "call" and report.passed:
                self.passed[key] += 1

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(self.table())

    def table(self) -> str:
        """Return the table as reStructuredText."""
        seen = {backend for _, backend in (*self.passed, *self.failed)}
        backends = sorted(seen, key=lambda name: (name != PURE, name))
        rows = [["Invariant", *backends]]
        for number, title in LAWS.items():
            cells = [self._cell((number, backend)) for backend in backends]
            rows.append([f"{number}. {title}", *cells])
        lines = [".. list-table::", "   :header-rows: 1", ""]
        for row in rows:
            lines += [f"   {'* -' if i == 0 else '  -'} {cell}" for i, cell in enumerate(row)]
        return "\n".join(lines) + "\n"

    def _cell(self, key: tuple[int, str]) -> str:
        if key in self.failed:
            return "FAILED"
        return f"{self.passed[key]} tests" if self.passed[key] else "none"
