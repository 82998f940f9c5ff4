"""
Makes text and HTML from a notebook safe and quiet: no script runs, nothing is fetched, no terminal code acts.

Outputs hold what an engine or a log printed, so they are taken as hostile. HTML goes through an allow-list;
text loses terminal codes other than colours, which nbconvert then turns into HTML.
"""

from __future__ import annotations

import re
from typing import Final

import bleach  # type: ignore[import-untyped]
from bleach.css_sanitizer import ALLOWED_CSS_PROPERTIES, CSSSanitizer  # type: ignore[import-untyped]

TEXT_LIMIT: Final = 40_000
"""Longest text output that a page shows, characters; the notebook keeps all of it."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TAGS: Final = _words(
    """
    a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure h1 h2 h3 h4 h5 h6
    hr i img kbd li mark ol p pre q s section small span strong sub summary sup table tbody td tfoot th thead tr u ul
    var wbr svg g path rect circle ellipse line polyline polygon text tspan title desc defs pattern clippath
    """
)
_PLAIN: Final = _words("class id title lang dir align alt width height colspan rowspan scope style open start role")
_DRAWING: Final = _words(
    """
    viewbox xmlns x y x1 y1 x2 y2 cx cy r rx ry d points transform fill fill-opacity stroke stroke-width
    stroke-dasharray stroke-opacity opacity font-size font-weight font-family text-anchor dominant-baseline
    patternunits preserveaspectratio aria-label aria-hidden
    """
)
_CSS: Final = CSSSanitizer(
    allowed_css_properties=[
        *ALLOWED_CSS_PROPERTIES,
        *_words(
            """
            border border-left border-right border-top border-bottom border-radius border-collapse display font-family
            font-variant-numeric gap grid-template-columns margin margin-left margin-right margin-top margin-bottom
            max-width min-width opacity padding padding-left padding-right padding-top padding-bottom white-space
            """
        ),
    ],
    allowed_svg_properties=[],
)
# A style or script element goes with its content; the page has its own style sheet for tables.
_WHOLE_ELEMENTS: Final = re.compile(r"<(style|script|template|noscript)\b.*?(</\1\s*>|\Z)", re.I | re.S)
# Colours (CSI … m) stay. Other CSI, OSC/DCS/PM/APC strings (titles, links, clipboard), and two-byte codes go.
_TERMINAL_CODES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-ln-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\Z)|\x1b[ -/]*[0-OQ-WYZ\\`-~]|\x1b\Z", re.S
)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_EMPTY_PICTURE: Final = re.compile(r"<img(?![^>]*\ssrc=)[^>]*>")
_BIDI: Final = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f]")


def clean_html(source: str | list[str]) -> str:
    """
    HTML with only what a page may hold; links stay, pictures only if they are inside the page.

    Args:
        source: Any HTML, also broken or hostile.

    >>> clean_html('<b onclick="x()">3.1 s</b><script>x()</script><img src="//host/p.png">')
    '<b>3.1 s</b>'
    """
    text = source if isinstance(source, str) else "".join(source)
    cleaned = bleach.clean(
        _CONTROLS.sub("\ufffd", _WHOLE_ELEMENTS.sub("", text).replace("\x1b", "\ufffd").replace("\r", "")),
        tags=_TAGS,
        attributes=_may_stay,
        protocols={"http", "https", "mailto", "data"},
        css_sanitizer=_CSS,
        strip=True,
    )
    return _EMPTY_PICTURE.sub("", cleaned)


def clean_text(source: str | list[str]) -> str:
    """
    Text as a terminal would have left it: redrawn lines once, colours kept, every other code gone.

    Args:
        source: What a program printed.

    Returns:
        At most TEXT_LIMIT characters, from both ends. Marks that turn the direction of text show as `<U+202E>`.

    >>> clean_text("10%\\r100%\\n\\x1b]0;title\\x07\\x1b[31mred\\x1b[0m")
    '100%\\n\\x1b[31mred\\x1b[0m'
    """
    text = source if isinstance(source, str) else "".join(source)
    lines = _TERMINAL_CODES.sub("", text).split("\n")
    text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines)
    text = _CONTROLS.sub("\ufffd", text)
    text = _BIDI.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2
    left_out = f"[… {len(text) - 2 * half:,} characters are left out here; notebook.ipynb holds them …]"
    return f"{text[:half]}\n\n{left_out}\n\n{text[-half:]}"


def _may_stay(tag: str, name: str, value: str) -> bool:
    name = name.lower()
    if tag == "a" and name == "href":
        return not value.strip().lower().startswith("data:")
    if tag == "img" and name == "src":
        return value.strip().lower().startswith("data:image/")
    return name in _PLAIN or name in _DRAWING
