"""A matplotlib figure as SVG for a page: text as text, colours from the page's style sheet."""

from __future__ import annotations

import re
from io import StringIO
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from sfbench.analyze.parts import PARTS

# matplotlib wants real colours. Each stands for a variable of the style sheet, which then serves
# light and dark alike; these shades are used for nothing else.
COLOURS = {
    "ink": "#010001",
    "muted": "#010002",
    "line": "#010003",
    "accent": "#010004",
    "bad": "#010005",
    "ground": "#010006",
    **{part.id: f"#0101{place:02x}" for place, part in enumerate(PARTS)},
}

STYLE: dict[str, object] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sfbench",
    "font.size": 9.0,
    "axes.edgecolor": COLOURS["line"],
    "axes.labelcolor": COLOURS["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": COLOURS["line"],
    "grid.linewidth": 0.6,
    "text.color": COLOURS["ink"],
    "xtick.color": COLOURS["line"],
    "ytick.color": COLOURS["line"],
    "xtick.labelcolor": COLOURS["muted"],
    "ytick.labelcolor": COLOURS["muted"],
    "legend.frameon": False,
    "legend.labelcolor": COLOURS["ink"],
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}

HOVER = "hover: "
"""What the ``gid`` of something drawn begins with if the rest is to be shown under the pointer."""

_REFERENCE = re.compile(r"#([\w-]+)")
_LONG = re.compile(r"-?\d+\.\d{3,}")
_GEOMETRY = ("d", "transform", "x", "y", "width", "height", "points", "viewBox")
_LINKS = ("href", "clip-path", "fill", "stroke", "style")


def to_svg(figure: Figure, *, key: str, title: str, description: str) -> Markup:
    """Inline SVG with ``title`` and ``description`` for those who do not see it.

    ``key`` is unique on the page: identifiers in the SVG begin with it.
    """
    file = StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context(STYLE):  # type: ignore[arg-type]
        figure.savefig(file, format="svg", metadata=metadata, transparent=True)
    root = ElementTree.fromstring(file.getvalue())
    _drop_namespaces(root)
    for name in ("metadata", "style"):
        _drop(root, name)
    _hover(root)
    _own_identifiers(root, key)
    _shorten(root)
    _name(root, key, title, description)
    text = ElementTree.tostring(root, encoding="unicode")
    for variable, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{variable})")
    return Markup(text)  # made of parsed XML: everything in it is escaped


def _hover(root: ElementTree.Element) -> None:
    """What was drawn with ``HOVER`` in its name gets a title: shown under the pointer."""
    for element in root.iter():
        if element.attrib.get("id", "").startswith(HOVER):
            title = ElementTree.Element("title")
            title.text = element.attrib.pop("id").removeprefix(HOVER)
            element.insert(0, title)


def _drop_namespaces(root: ElementTree.Element) -> None:
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for name in list(element.attrib):
            if "}" in name:
                element.attrib[name.rpartition("}")[2]] = element.attrib.pop(name)


def _drop(root: ElementTree.Element, tag: str) -> None:
    for parent in root.iter():
        for child in parent.findall(tag):
            parent.remove(child)


def _shorten(root: ElementTree.Element) -> None:
    """Hundredths of a point are finer than any screen."""
    for element in root.iter():
        for name in _GEOMETRY:
            if name in element.attrib:
                element.attrib[name] = _LONG.sub(
                    _hundredths, " ".join(element.attrib[name].split())
                )


def _hundredths(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def _own_identifiers(root: ElementTree.Element, key: str) -> None:
    """Keep only the identifiers that are referred to, and make them the page's own."""
    known = {e.attrib["id"] for e in root.iter() if "id" in e.attrib}
    used: set[str] = set()
    for element in root.iter():
        for name in _LINKS:
            value = element.attrib.get(name, "")
            used |= known & set(_REFERENCE.findall(value))
            element.attrib.update({name: _renamed(value, known, key)} if value else {})
    for element in root.iter():
        name = element.attrib.pop("id", "")
        if name in used:
            element.attrib["id"] = f"{key}-{name}"


def _renamed(value: str, known: set[str], key: str) -> str:
    return _REFERENCE.sub(lambda m: f"#{key}-{m[1]}" if m[1] in known else m[0], value)


def _name(root: ElementTree.Element, key: str, title: str, description: str) -> None:
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-labelledby": f"{key}-title {key}-desc"}
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(tag, {"id": f"{key}-{tag}"})
        element.text = text
        root.insert(place, element)
