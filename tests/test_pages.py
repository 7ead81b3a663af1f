"""The pages of the documentation: code stays in its box."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "doc" / "source"
#: So many columns are in a box beside both menus, at 1280 pixels, by ``_static/code.css``.
COLUMNS = 94
DRAWN = re.compile(r" {3,}(?! |>>>|\.\.\.|\$)(\+[-=]|\|.*\|$|.*[─│├└┌])")


def test_a_line_that_is_longer_than_its_box_goes_on_below() -> None:
    settings = runpy.run_path(str(SOURCE / "conf.py"))
    (name,) = settings["html_css_files"]
    (folder,) = settings["html_static_path"]
    style = (SOURCE / folder / name).read_text(encoding="utf-8")
    assert re.search(r"div\.highlight pre \{[^}]*white-space: pre-wrap;", style)
    assert f"its {COLUMNS} columns" in style


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.rst")), ids=lambda path: path.stem)
def test_what_is_drawn_fits_its_box(path: Path) -> None:
    """A table or a tree of which lines go on below cannot be read."""
    lines = path.read_text(encoding="utf-8").splitlines()
    drawn = {
        number: len(line.rstrip()) - 4
        for number, line in enumerate(lines, 1)
        if DRAWN.match(line.rstrip())
    }
    assert {number: width for number, width in drawn.items() if width > COLUMNS} == {}
