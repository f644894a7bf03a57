"""Draws the CPU time per request as an SVG: a group of bars for each row, with a scale of its own."""

from __future__ import annotations

from html import escape

from .results import RowResult

WIDTH, COLUMNS, MARGIN, GAP = 860, 2, 24, 32
TITLE_HEIGHT, BAR_STEP, BAR_HEIGHT, GROUP_GAP = 24, 20, 13, 22
LABEL_WIDTH, VALUE_WIDTH = 92, 62
HEADER_HEIGHT, FOOTER_HEIGHT, LINE_HEIGHT = 70, 30, 18

# A background of its own makes it readable wherever it is shown, also where only the page around it is dark.
STYLE = """
svg { color-scheme: light dark }
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.back { fill: #ffffff; stroke: #d1d9e0 } .head { font-size: 17px; font-weight: 600 } .title { font-weight: 600 }
.note { fill: #59636e } .ours { fill: #0b6bcb } .peer { fill: #a8b1ba } .strong { font-weight: 600 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .back { fill: #0d1117; stroke: #3d444d } .note { fill: #9198a1 }
.ours { fill: #4493f8 } .peer { fill: #59626d }
}
"""
SHOWN = ("facetheory", "hyper", "nginx", "varnish", "haproxy")
NAMES = {"facetheory": "FaceTheory", "hyper": "bare hyper", "varnish": "Varnish", "haproxy": "HAProxy"}


def draw(results: list[RowResult], footer: list[str]) -> str:
    """Returns the chart of all rows in which the gateway has a peer, with some lines below it."""
    groups = [(result.title, bars) for result in results if len(bars := _bars(result)) > 1]
    column_width = (WIDTH - 2 * MARGIN - GAP) // COLUMNS
    heights = [float(HEADER_HEIGHT)] * COLUMNS
    shapes = []
    half = sum(_height(bars) for _, bars in groups) / COLUMNS
    column = 0
    for title, bars in groups:
        # From top to bottom, then the next column, so that rows are read in their order.
        if column < COLUMNS - 1 and heights[column] - HEADER_HEIGHT + _height(bars) / 2 > half:
            column += 1
        shapes.append(_group(title, bars, MARGIN + column * (column_width + GAP), heights[column], column_width))
        heights[column] += _height(bars)
    bottom = max(heights) - GROUP_GAP + FOOTER_HEIGHT
    height = bottom + LINE_HEIGHT * len(footer)
    notes = "".join(
        f'<text class="note" x="{MARGIN}" y="{bottom + LINE_HEIGHT * number:.0f}">{escape(line)}</text>\n'
        for number, line in enumerate(footer)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" \
viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="CPU time per request of FaceTheory and other servers">
<style>{STYLE}</style>
<rect class="back" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8"/>
<text class="head" x="{MARGIN}" y="34">CPU time of the server per request, in microseconds</text>
<text class="note" x="{MARGIN}" y="53">Shorter is better. Each group has a scale of its own.</text>
{"".join(shapes)}{notes}</svg>
"""


def _bars(result: RowResult) -> list[tuple[str, float]]:
    return [(label, result.cpu_us(label)) for label in SHOWN if result.samples.get(label)]


def _height(bars: list[tuple[str, float]]) -> float:
    return TITLE_HEIGHT + len(bars) * BAR_STEP + GROUP_GAP


def _group(title: str, bars: list[tuple[str, float]], left: float, top: float, width: float) -> str:
    shapes = [f'<text class="title" x="{left}" y="{top + 13:.0f}">{escape(title)}</text>\n']
    scale = (width - LABEL_WIDTH - VALUE_WIDTH) / max(value for _, value in bars)
    for number, (label, value) in enumerate(bars):
        y, ours = top + TITLE_HEIGHT + number * BAR_STEP, label == "facetheory"
        strong, start, length = " class='strong'" if ours else "", left + LABEL_WIDTH, max(1.0, value * scale)
        shown = f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
        shapes.append(
            f'<text{strong} x="{start - 8}" y="{y + 11:.0f}" text-anchor="end">{NAMES.get(label, label)}</text>'
            f'<rect class="{"ours" if ours else "peer"}" x="{start}" y="{y:.0f}" width="{length:.1f}"'
            f' height="{BAR_HEIGHT}" rx="2"/>'
            f'<text{strong} x="{start + length + 6:.1f}" y="{y + 11:.0f}">{shown}</text>\n'
        )
    return "".join(shapes)
