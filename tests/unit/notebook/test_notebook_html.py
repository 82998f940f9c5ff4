"""The page is one file that runs nothing, fetches nothing and hides nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import html5lib
import nbformat
import pytest

from k3lib.errors import SpecError
from k3lib.notebook.clean import TEXT_LIMIT, clean_html, clean_text
from k3lib.notebook.html import render_html
from k3lib.spec.vocabulary import Provenance

BANNER = "REHEARSAL — a model of an engine, not an engine"
HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\n10%\r\x00\x9b\n"
    "<script>alert(1)</script> </pre><img src=http://evil.example/a.png> \u202egnp.exe"
)
HOSTILE_HTML = (
    "<style>@import url(http://evil.example/a.css);</style><script src=http://evil.example/a.js>alert(2)</script>"
    "<img src=http://evil.example/b.png onerror=alert(3)><iframe src=http://evil.example></iframe>"
    '<p style="background:url(http://evil.example/c.png);color:red" onclick=alert(4)>kept</p>'
    "<a href='javascript:alert(5)'>x</a><a href='data:text/html,<script>alert(6)</script>'>y</a>"
    "<form action=http://evil.example><input></form><object data=http://evil.example></object>"
    "<svg viewBox='0 0 9 9'><image href='http://evil.example/d.png'/><use href='http://evil.example/e'/>"
    "<rect width='4' height='9' fill='#029e73'/></svg><table><tr><td class='n'>12.5</td></tr></table><b>open"
)


def page(build: Any, outputs: list[Any], **options: Any) -> str:
    """The page of a notebook whose first own cell has these outputs."""
    path: Path = build("print('hello')")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[2].outputs = outputs
    notebook.cells.insert(3, nbformat.v4.new_markdown_cell("## Does it stop?", id="question"))
    sources = f"## Sources\n\n[recipe](https://example.org/x) {HOSTILE_HTML}"
    notebook.cells.insert(4, nbformat.v4.new_markdown_cell(sources, id="s"))
    nbformat.write(notebook, path)
    html = path.with_name("out.html")
    render_html(path, html, **{"title": "T <1>", "banner": BANNER, "provenance": Provenance.REHEARSAL, **options})
    return html.read_text("utf-8")


def output(kind: str, **values: Any) -> Any:
    """An output of a cell."""
    return nbformat.v4.new_output(kind, **values)


HOSTILE_OUTPUTS = [
    output("stream", name="stdout", text=HOSTILE),
    output("error", ename="E", evalue="", traceback=[f"\x1b[0;31mE\x1b[0m: {HOSTILE}"]),
    output("display_data", data={"text/html": HOSTILE_HTML, "text/plain": "x"}),
    output("display_data", data={"text/markdown": HOSTILE_HTML}),
    output("display_data", data={"text/plain": HOSTILE}),
    output("display_data", data={"application/javascript": "alert(7)", "text/plain": "<a script>"}),
    output(
        "display_data",
        data={"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(8)</script></svg>"},
    ),
]


def test_hostile_outputs_run_nothing_and_fetch_nothing(build) -> None:
    """The page parses strictly; no script, handler, frame or form; every picture is inside; only links lead out."""
    text = page(build, HOSTILE_OUTPUTS)
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    elements = list(tree.iter())
    names = {element.tag for element in elements if isinstance(element.tag, str)}
    assert set() == names & {"script", "iframe", "object", "embed", "form", "input", "image", "use", "link", "base"}
    attributes = [(e.tag, name, value) for e in elements for name, value in e.attrib.items() if isinstance(name, str)]
    assert [] == [entry for entry in attributes if entry[1].startswith("on")]
    sources = [value for _, name, value in attributes if name in ("src", "srcset", "data", "action", "poster")]
    assert {"data:image/svg+xml"} == {value.split(";")[0] for value in sources}
    leaves = {value for _, name, value in attributes if name.endswith("href") and not value.startswith("#")}
    assert {"https://example.org/x"} == leaves
    assert "evil.example" not in "".join(value for _, _, value in attributes)
    assert "evil.example" not in "".join(element.text or "" for element in elements if element.tag == "style")
    assert [] == re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert policy in [value for _, name, value in attributes if name == "content"]


def test_harmless_parts_of_outputs_stay(build) -> None:
    """Colours, tables, text and drawings are shown; escaped text is readable as it was printed."""
    text = page(build, HOSTILE_OUTPUTS)
    assert '<span class="ansi-red-fg">red</span>' in text
    assert '<td class="n">12.5</td>' in text
    assert re.search(r"<svg viewbox=.0 0 9 9.>\s*<rect fill=.#029e73. height=.9. width=.4.", text, re.I)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "&lt;U+202E&gt;gnp.exe" in text


def test_the_banner_and_the_parameters_stand_on_top(build) -> None:
    """In this order: banner, title, parameters with their meaning and this run's value, contents, the first section."""
    text = page(build, [])
    marks = [f'class="banner rehearsal" role="note">{BANNER}', "<h1", '<section class="facts">', "fresh starts, a = b",
             '<a href="#Does-it-stop?">Does it stop?</a>', '<h2 id="Does-it-stop?">']  # fmt: skip
    places = [text.find(mark) for mark in marks]
    assert -1 not in places
    assert sorted(places) == places
    assert 1 == text.count("<h1")
    assert "<title>T &lt;1&gt;</title>" in text
    assert '@top-center { content: "REHEARSAL \\2014  a model' in text


def test_a_widget_shows_its_text(build) -> None:
    """Without scripts a widget cannot be drawn; what stands beside it in the bundle is shown."""
    view = "application/vnd.jupyter.widget-view+json"
    data = {view: {"model_id": "a"}, "text/html": "<p>3 of 5</p>", "text/plain": "W"}
    shown = page(build, [output("display_data", data=data)])
    assert "<p>3 of 5</p>" in shown
    assert "model_id" not in shown


def test_a_page_speaks_french_and_refuses_what_it_does_not_speak(build) -> None:
    """The page's own words change with the language; an unknown one is an error."""
    text = page(build, [], language="fr")
    assert '<html lang="fr">' in text
    assert "Paramètres" in text
    assert "Ce carnet n'a pas été exécuté." in text
    with pytest.raises(SpecError, match="no page can be written in de"):
        page(build, [], language="de")


def test_a_huge_output_is_shown_from_both_ends(build) -> None:
    """A page stays small; the count of what is left out is said."""
    text = page(build, [output("stream", name="stdout", text="first" + "x" * 3_000_000 + "last")] * 3)
    assert len(text) < 300_000
    assert text.count("first") == text.count("last") == 3
    assert 3 == text.count(f"[… {3_000_009 - TEXT_LIMIT:,} characters are left out here; notebook.ipynb holds them …]")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("10%\r 50%\r100%\nnext\r\n", "100%\nnext\n"),
        ("\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[1;31mred\x1b[0m\x1b[K\x1b[?25l", "\x1b[1;31mred\x1b[0m"),
        ("a\x1bPq#0;2;0\x1b\\b\x1b(Bc\x1b7d", "abcd"),
        ("cut \x1b]0;never ends", "cut "),
    ],
)
def test_terminal_codes_go_and_colours_stay(raw: str, expected: str) -> None:
    """Redrawn lines show once; titles, links, cursor moves and images are gone, also when they are cut off."""
    assert expected == clean_text(raw)


def test_html_that_was_cut_off_cannot_swallow_the_page() -> None:
    """Open elements are closed, an unfinished script goes with its content."""
    assert "<table><tbody><tr><td><b>x</b></td></tr></tbody></table>" == clean_html("<table><tbody><tr><td><b>x")
    assert "a" == clean_html("a<script>b")
