"""The results as text and as JSON."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .measure import median_of
from .results import RowResult

HEAD = ("", "CPU us", "(range)", "requests/s", "p50 ms", "p99 ms", "RSS MB", "ours / it")


def table(results: list[RowResult]) -> str:
    """Returns the medians of all rows, and the notes below them."""
    lines = []
    for result in results:
        lines += ["", f"{result.title} [{result.name}], {result.seconds:.0f} s"]
        if result.samples:
            lines.append(_line(HEAD))
        for label, samples in result.samples.items():
            cpu = [sample.cpu_us for sample in samples]
            ratio = result.figures.get(label)
            cells = (
                label,
                f"{median_of(samples, lambda s: s.cpu_us):.1f}",
                f"{min(cpu):.1f}-{max(cpu):.1f}",
                f"{median_of(samples, lambda s: s.rate):,.0f}",
                f"{median_of(samples, lambda s: s.p50_ms):.2f}",
                f"{median_of(samples, lambda s: s.p99_ms):.2f}",
                f"{median_of(samples, lambda s: s.rss_mb):.0f}",
                "" if ratio is None else f"{ratio:.2f}",
            )
            lines.append(_line(cells))
        lines += [f"  {note}" for note in result.notes]
        if result.error:
            lines.append(f"  FAILED: {result.error}")
    return "\n".join(lines)


def write_json(results: list[RowResult], path: Path, settings: dict[str, Any]) -> None:
    """Writes every sample, the medians' figures, and what they were measured with."""
    document = {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "settings": settings,
        "rows": [asdict(result) for result in results],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def machine() -> str:
    """Returns a line about this machine."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{os.cpu_count()} cores, {model}, Linux {platform.release()}"


def _line(cells: tuple[str, ...]) -> str:
    label, cpu, spread, rate, p50, p99, rss, ratio = cells
    return f"  {label:<28}{cpu:>9} {spread:>17}{rate:>12}{p50:>9}{p99:>9}{rss:>8}{ratio:>11}".rstrip()
