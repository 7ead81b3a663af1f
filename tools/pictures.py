"""Look for text that leaves its place in the pictures of the documentation.

    python tools/pictures.py

Texts are measured in DejaVu Sans, the widest of the fonts that readers commonly have in place of
Helvetica; what fits its box in it fits in the others. The widths are those of the font's characters
from the space to the tilde, in thousandths of the size.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PICTURES = Path(__file__).resolve().parent.parent / "doc" / "source" / "_static"
_PLAIN = (
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636,
    636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632,
    575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685,
    611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579,
    278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
)  # fmt: skip
_BOLD = (
    348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365, 696, 696, 696,
    696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 580, 1000, 774, 762, 734, 830, 683,
    683, 821, 837, 372, 372, 775, 637, 995, 837, 850, 733, 850, 770, 720, 682, 812, 774, 1103, 771,
    724, 725, 457, 365, 457, 838, 500, 500, 675, 716, 593, 716, 678, 435, 716, 712, 343, 343, 665,
    343, 1042, 712, 687, 716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712, 365, 712, 838,
)  # fmt: skip
_FIXED = 602
#: Of a character that the tables lack.
_OTHER = 600
#: How near to the edge of its box a text may come.
_MARGIN = 2.0


class Place(NamedTuple):
    """A text, or a box, with its edges."""

    name: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Place) -> bool:
        """Return whether both cover something, by more than a hair."""
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > 1 and down > 2


def text_width(text: str, size: float, *, bold: bool = False, fixed: bool = False) -> float:
    """Return how wide a text is.

    >>> text_width("host0", 10), text_width("host0", 10, fixed=True)
    (27.95, 30.1)
    """
    if fixed:
        return len(text) * _FIXED * size / 1000
    widths = _BOLD if bold else _PLAIN
    codes = (ord(one) - 32 for one in text)
    return sum(widths[one] if 0 <= one < len(widths) else _OTHER for one in codes) * size / 1000


def faults(svg: str) -> list[str]:
    """Return what is wrong in a picture: text that leaves its box, or lies on another."""
    root = ET.fromstring(svg)
    _, _, wide, high = map(float, root.attrib["viewBox"].split())
    boxes = [one for one in _boxes(root) if one.right - one.left > _MARGIN * 4]
    texts = [place for _, place, _ in _texts(root)]
    found = []
    for number, one in enumerate(texts):
        middle = (one.top + one.bottom) / 2
        around = [
            box
            for box in boxes
            if box.left <= one.left + 1 <= box.right and box.top <= middle <= box.bottom
        ]
        box = min(around, key=lambda box: box.right - box.left, default=Place("", 0, 0, wide, high))
        if one.right > box.right - _MARGIN + 1 or one.left < box.left or one.right > wide:
            found.append(f"{one.name!r} ends at {one.right:.0f}, its box at {box.right:.0f}")
        found += [
            f"{one.name!r} crosses the edge of a box at {box.left:.0f}"
            for box in boxes
            if one.left < box.left - 1
            and one.right > box.left - 1
            and box.top <= middle <= box.bottom
        ]
        found += [f"{one.name!r} lies on {other.name!r}" for other in texts[number + 1 :]
                  if one.overlaps(other)]  # fmt: skip
    return found


def _texts(root: ET.Element) -> Iterator[tuple[ET.Element, Place, float]]:
    for one, said in _walk(root, {}):
        if not one.tag.endswith("text") or not (one.text or ""):
            continue
        size = float(said.get("font-size", "16"))
        bold = said.get("font-weight") == "bold"
        fixed = "monospace" in said.get("font-family", "")
        width = text_width(one.text or "", size, bold=bold, fixed=fixed)
        x, y = float(said["x"]), float(said["y"])
        left = x - {"middle": width / 2, "end": width}.get(said.get("text-anchor", ""), 0)
        if "transform" in one.attrib:  # it is turned, and judged by eye
            yield one, Place(one.text or "", x, y, x, y), width
            continue
        place = Place(one.text or "", left, y - 0.72 * size, left + width, y + 0.2 * size)
        yield one, place, width


def _boxes(root: ET.Element) -> Iterator[Place]:
    for one, said in _walk(root, {}):
        if one.tag.endswith("rect"):
            x, y = float(said.get("x", 0)), float(said.get("y", 0))
            yield Place("", x, y, x + float(one.attrib["width"]), y + float(one.attrib["height"]))


def _walk(one: ET.Element, above: dict[str, str]) -> Iterator[tuple[ET.Element, dict[str, str]]]:
    said = {**above, **one.attrib}
    if one.tag.endswith("g"):
        said = {name: value for name, value in said.items() if name not in ("x", "y")}
    yield one, said
    for child in one:
        yield from _walk(child, said)


def main() -> int:
    """Print what is wrong, and return 1 if anything is."""
    count = 0
    for path in sorted(PICTURES.glob("*.svg")):
        for fault in faults(path.read_text(encoding="utf-8")):
            print(f"{path.name}: {fault}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
