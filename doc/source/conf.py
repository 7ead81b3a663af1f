"""Sphinx settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from resource_objects import __version__

if TYPE_CHECKING:  # the tests collect this file in environments without Sphinx
    from sphinx.application import Sphinx

project = "resource_objects"
author = "the resource_objects authors"
copyright = f"2026, {author}"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "cliff.sphinxext",
]
intersphinx_mapping: dict[str, tuple[str, str | None]] = {}  # a build needs no network
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}

html_theme = "furo"
html_title = f"resource_objects {version}"
html_static_path = ["_static"]
html_css_files = ["code.css"]
exclude_patterns: list[str] = []
# `type` is a built-in and a field of every Resource; a reference to either is clear enough
suppress_warnings = ["ref.python"]


def _list_codes(_: Sphinx, what: str, __: str, kind: Any, ___: object, lines: list[str]) -> None:
    cases = vars(kind).get("CASES") or vars(kind).get("CODES") if what == "exception" else None
    for subject, case in (cases or {}).items():
        code = case if isinstance(case, str) else case[0]
        lines.append(f"* ``code`` of the subject ``{subject}``: ``{code}``")
    lines.append("")


def _show_scenarios(_: Sphinx, page: str, source: list[str]) -> None:
    if page == "explanation/scenarios":
        source[0] = re.sub(r"^\* (\w+)$", _scenario_section, source[0], flags=re.MULTILINE)


def _scenario_section(item: re.Match[str]) -> str:
    name = item[1]
    title = name.replace("_", " ").capitalize()
    return f"""
.. _scenario-{name}:

{title}
{"-" * len(title)}

.. literalinclude:: ../../../tests/scenarios/{name}.txt
   :language: text
"""


def setup(app: Sphinx) -> None:
    """Generate error codes and scenarios, and find the commands in the table of the program."""
    import cliff.sphinxext

    from resource_objects.cli.main import Commands

    cliff.sphinxext.commandmanager.CommandManager = Commands  # cliff searches entry points
    app.connect("autodoc-process-docstring", _list_codes)
    app.connect("source-read", _show_scenarios)
