"""The page of a campaign: its sessions, what each changed and found, with links."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment, StrictUndefined

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{ campaign }} · K3 Workbook</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.4rem .8rem .4rem 0;border-bottom:1px solid #d8d8d8}
th{border-bottom:2px solid #888}.banner{border-left:.5rem solid #7a4b00;padding:.4rem .8rem;font-weight:600}
.PASS{color:#17693a}.WARN{color:#8a5a00}.FAIL,.ERROR,.failed,.killed{color:#a3211b}.outcome{font-weight:700}
@media print{body{margin:0;font-size:11pt}a{color:inherit}}
</style></head><body>
<h1>{{ campaign }}</h1>
{% for banner in banners %}<p class="banner">{{ banner }}</p>{% endfor %}
<table><thead><tr><th scope="col">session</th><th scope="col">outcome</th><th scope="col">changed</th>
<th scope="col">finding</th></tr></thead><tbody>
{% for row in rows %}<tr>
<td>{% if row.link %}<a href="{{ row.link }}">{{ row.name }}</a>{% else %}{{ row.name }}{% endif %}</td>
<td class="outcome {{ row.outcome }}">{{ row.outcome }}</td><td>{{ row.changed }}</td><td>{{ row.finding }}</td></tr>
{% endfor %}</tbody></table>
</body></html>
"""


@dataclass(frozen=True)
class IndexRow:
    """One session in the index."""

    name: str
    stage: str
    outcome: str
    changed: str
    finding: str
    link: str | None


def render_index(campaign: str, banners: list[str], rows: list[IndexRow]) -> str:
    """
    The page as HTML, self-contained, everything escaped.

    Args:
        campaign: The campaign's name.
        banners: Where the evidence comes from.
        rows: Sessions, oldest first.
    """
    environment = Environment(undefined=StrictUndefined, autoescape=True)
    return environment.from_string(_PAGE).render(campaign=campaign, banners=banners, rows=rows)
