"""Shows an executed notebook as one HTML file: no script, no request, readable on paper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from k3lib.errors import SpecError
from k3lib.notebook.document import INJECTED_TAG, read_notebook, tags_of, text_of
from k3lib.notebook.parameters import Parameter, parse_parameters
from k3lib.notebook.stack import quick_imports
from k3lib.record.files import write_atomic
from k3lib.spec.vocabulary import Provenance

LABELS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "parameters": "Parameters", "name": "name", "value": "value", "meaning": "meaning", "contents": "Contents",
        "code": "code", "pending": "not run", "running": "cut while running", "failed": "failed", "aborted": "stopped",
        "run": "Run {start}, {duration:.1f} s.", "not_run": "This notebook was not run.",
    },
    "fr": {
        "parameters": "Paramètres", "name": "nom", "value": "valeur", "meaning": "sens", "contents": "Sommaire",
        "code": "code", "pending": "non exécutée", "running": "coupée en cours", "failed": "en échec",
        "aborted": "interrompue", "run": "Exécuté le {start}, {duration:.1f} s.",
        "not_run": "Ce carnet n'a pas été exécuté.",
    },
}  # fmt: skip
"""The few words that the page adds, by language."""

_HERE: Final = Path(__file__).parent
_SHOWN: Final = ["text/html", "image/svg+xml", "image/png", "image/jpeg", "text/markdown", "text/plain"]
_ANCHOR_LINK: Final = re.compile(r'<a class="anchor-link"[^>]*>¶</a>')
_SECTION: Final = re.compile(r'<h2 id="([^"]+)"[^>]*>(.*?)</h2>', re.S)


def render_html(
    notebook: Path,
    html: Path,
    *,
    title: str,
    banner: str | None,
    language: str = "en",
    provenance: Provenance | None = None,
    findings: Sequence[tuple[str, str]] = (),
) -> None:
    """
    Write an executed notebook as one self-contained page.

    Parameters and the banner stand on top, code is folded, a widget shows its text. The page holds
    no script and asks the network for nothing; its content security policy forbids both.

    Args:
        notebook: The executed notebook, ended early or not.
        html: Where to write; replaced in one step.
        title: Title of the page, for the browser's tab; also its heading if the notebook has none.
        banner: Where the evidence comes from, one sentence; None for no banner.
        language: `en` or `fr`: of the page's own few words.
        provenance: Chooses the banner's colours; a rehearsal is striped.
        findings: Outcome and sentence of what decides, shown right below the heading.

    Raises:
        RecordError: The notebook cannot be read, or the page cannot be written.
        SpecError: A language that has no words here.
    """
    if language not in LABELS:
        raise SpecError(
            f"no page can be written in {language}",
            expected=f"one of {', '.join(LABELS)}",
            evidence=f"language = {language}",
            next="choose one of these",
        )
    document = read_notebook(notebook)
    page = _page(document, title, language) | {
        "banner": banner,
        "provenance": provenance.value if provenance else "",
        "findings": list(findings),
    }
    write_atomic(html, _with_contents(_export(document, page), LABELS[language]["contents"]))


def _page(document: dict[str, Any], title: str, language: str) -> dict[str, Any]:
    """What the template needs beside the cells."""
    label = LABELS[language]
    first = next((c for c in document["cells"] if text_of(c["source"]).startswith("# ")), None)
    run = document["metadata"].get("papermill", {})
    ran = run.get("start_time") and run.get("duration") is not None
    when = label["not_run"]
    if ran:
        start = run["start_time"][:16].replace("T", " ") + " UTC"
        when = label["run"].format(start=start, duration=run["duration"])
    return {
        "title": title,
        "language": language,
        "label": label,
        "title_cell": first.get("id") if first else None,
        "run": when,
        "parameters": _parameters(document["cells"]),
    }


def _parameters(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parameters with the values of this run; a value that differs from the notebook's own is marked."""
    defaults, given = _assigned(cells, "parameters"), {p.name: p.default for p in _assigned(cells, INJECTED_TAG)}
    return [
        {
            "name": parameter.name,
            "value": _shown(given.get(parameter.name, parameter.default)),
            "given": given.get(parameter.name, parameter.default) != parameter.default,
            "help": parameter.help,
        }
        for parameter in defaults
    ]


def _shown(value: object) -> str:
    """A value for a reader: text without quotes, nothing as a dash."""
    return (value if isinstance(value, str) else repr(value)) if value not in ("", {}, []) else "—"


def _assigned(cells: list[dict[str, Any]], tag: str) -> list[Parameter]:
    for cell in cells:
        if tag in tags_of(cell):
            return parse_parameters(text_of(cell["source"]), where=f"the cell tagged `{tag}`")
    return []


def _export(document: dict[str, Any], page: dict[str, Any]) -> str:
    with quick_imports():
        from nbconvert.exporters.html import HTMLExporter
        from nbformat.v4 import to_notebook_json
        from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
        from traitlets.config import Config

        from k3lib.notebook.clean import clean_html, clean_text

    style = (_HERE / "templates" / "page.css").read_text("utf-8")
    page["css"] = f"{style}{_on_paper(page['banner'])}\n{HtmlFormatter(style='friendly').get_style_defs('.highlight')}"
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        config=Config({"NbConvertBase": {"display_data_priority": _SHOWN}}),
        template_name="templates",
        extra_template_basedirs=[str(_HERE)],
        filters={"k3_clean": clean_html, "k3_text": clean_text},
    )
    node = to_notebook_json(document)  # type: ignore[no-untyped-call]
    text, _ = exporter.from_notebook_node(node, resources={"k3": page})
    return _ANCHOR_LINK.sub("", str(text))


def _on_paper(banner: str | None) -> str:
    """The banner on top of every printed page, as a CSS string that can neither end itself nor the style element."""
    text = "".join(c if c.isalnum() or c in " .,:-" else f"\\{ord(c):x} " for c in banner or "")
    return f'@media print {{ @page {{ @top-center {{ content: "{text}"; }} }} }}' if text else ""


def _with_contents(text: str, label: str) -> str:
    """A list of the sections where the template left room for it; a page of one section needs none."""
    sections = _SECTION.findall(text)
    if len(sections) < 2:
        return text.replace("<!--contents-->", "")
    items = "".join(f'<li><a href="#{anchor}">{heading}</a></li>' for anchor, heading in sections)
    return text.replace("<!--contents-->", f'<nav aria-label="{escape(label)}"><ul class="contents">{items}</ul></nav>')
