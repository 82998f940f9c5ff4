"""Tables that read well in a notebook, in a terminal and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

_MARKS = {"PASS": "pass", "WARN": "warn", "FAIL": "fail", "SKIP": "skip", "ERROR": "fail", "NOT_APPLICABLE": "skip"}
_STYLE = (
    "<style>.k3{border-collapse:collapse;font-size:.92em;font-variant-numeric:tabular-nums;margin:.4em 0}"
    ".k3 caption{text-align:left;font-weight:600;padding:.2em 0}"
    ".k3 th,.k3 td{text-align:left;vertical-align:top;padding:.25em .9em .25em 0;border-bottom:1px solid #d8d8d8}"
    ".k3 td.n{text-align:right;padding-right:1.2em}.k3 th{border-bottom:2px solid #888}"
    ".k3 .pass{color:#17693a}.k3 .warn{color:#8a5a00}.k3 .fail{color:#a3211b}.k3 .skip{color:#555}"
    ".k3 .mark{font-weight:700;white-space:nowrap}</style>"
)


@dataclass(frozen=True)
class Table:
    """
    Columns, rows and a caption.

    Args:
        columns: Headings, with their unit where a number stands below.
        rows: Cells; numbers stay numbers so that `frame` can compute, None shows as an em dash.
        caption: One line above.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""

    @property
    def frame(self) -> pandas.DataFrame:
        """The same as a data frame, for one's own questions."""
        import pandas  # slow to import, and seldom asked for

        return pandas.DataFrame([list(row) for row in self.rows], columns=list(self.columns))

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in self.columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        return f'{_STYLE}<table class="k3">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'

    def __str__(self) -> str:
        cells = [[str(name) for name in self.columns], *[[_text(value) for value in row] for row in self.rows]]
        widths = [min(60, max(len(row[i]) for row in cells)) for i in range(len(self.columns))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
        rule = "  ".join("─" * width for width in widths)
        return "\n".join([*([self.caption] if self.caption else []), lines[0], rule, *lines[1:]])

    def __repr__(self) -> str:
        return str(self)


def _text(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)


def _cell(value: Any) -> str:
    text = escape(_text(value))
    if isinstance(value, str) and value in _MARKS:
        return f'<td class="mark {_MARKS[value]}">{text}</td>'
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="n">{text}</td>'
    return f"<td>{text}</td>"
