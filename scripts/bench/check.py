"""Compares the figures of a run with stored ones and with the goals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .errors import BenchError
from .results import RowResult

COLUMNS = "figure, stored, tolerance, goal"


@dataclass(frozen=True)
class Line:
    """A line of the file of ratios."""

    figure: str
    stored: float | None
    tolerance: float
    # "<=" or ">=", and the value; no goal if the value is None.
    direction: str
    goal: float | None

    def verdict(self, measured: float) -> str:
        """Returns "ok", or how this figure fails."""
        less_is_better = self.direction == "<="
        # The comparison uses the rounded value, so that it agrees with the printed one.
        measured = round(measured, 2)
        failed = []
        if self.goal is not None and (measured > self.goal if less_is_better else measured < self.goal):
            failed.append("MISSED")
        if self.stored is not None:
            limit = self.stored * (1 + self.tolerance if less_is_better else 1 - self.tolerance)
            if measured > limit if less_is_better else measured < limit:
                failed.append("WORSE")
        return " ".join(failed) or "ok"


def read(path: Path) -> list[Line]:
    """Reads the file of ratios."""
    try:
        text = path.read_text()
    except OSError as error:
        raise BenchError(f"the file of ratios cannot be read: {error}") from None
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            figure, stored, tolerance, direction, goal = words
            if direction not in ("<=", ">=") or not tolerance.endswith("%"):
                raise ValueError
            lines.append(Line(figure, _number(stored), float(tolerance[:-1]) / 100, direction, _number(goal)))
        except ValueError:
            raise BenchError(f"{path}:{number}: expected {COLUMNS}, such as: disk.nginx 1.20 15% <= 1.3") from None
    return lines


def figures(results: list[RowResult]) -> dict[str, float]:
    """Returns all figures of a run by their full name, such as `disk.nginx`."""
    return {
        f"{result.name}.{name.replace(', ', '-').replace(' ', '-')}": value
        for result in results
        for name, value in result.figures.items()
    }


def check(lines: list[Line], measured: dict[str, float], rows: set[str]) -> tuple[str, bool]:
    """Returns a table of the lines that belong to these rows, and whether all of them are fine."""
    text = [f"  {'figure':<38}{'measured':>9}{'stored':>9}{'tolerance':>10}   goal"]
    fine = True
    for line in lines:
        if line.figure.partition(".")[0] not in rows:
            continue
        value = measured.get(line.figure)
        verdict = "MISSING" if value is None else line.verdict(value)
        fine = fine and verdict == "ok"
        goal = "-" if line.goal is None else f"{line.direction} {line.goal:g}"
        stored = "-" if line.stored is None else f"{line.stored:.2f}"
        shown = "-" if value is None else f"{value:.2f}"
        text.append(f"  {line.figure:<38}{shown:>9}{stored:>9}{line.tolerance:>9.0%}    {goal:<9}{verdict}")
    return "\n".join(text), fine


def store(path: Path, measured: dict[str, float]) -> None:
    """Replaces the stored values of all measured figures. Comments, tolerances and goals stay."""
    lines = []
    for line in path.read_text().splitlines():
        words = line.split()
        if words and not words[0].startswith("#") and words[0] in measured:
            figure, _, tolerance, direction, goal = words[:5]
            line = f"{figure:<34} {measured[figure]:>7.2f} {tolerance:>5}  {direction} {goal}"
        lines.append(line)
    path.write_text("\n".join(lines) + "\n")


def _number(word: str) -> float | None:
    return None if word == "-" else float(word)
