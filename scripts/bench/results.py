"""The results of a run: samples by server, and the figures that are compared with goals."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Sample:
    """One round of one server."""

    cpu_us: float
    rate: float
    p50_ms: float
    p99_ms: float
    rss_mb: float


@dataclass
class RowResult:
    """A row of the table."""

    name: str
    title: str
    # By the label of a server, in the order of the table.
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    # Named numbers, such as "nginx": CPU time of the gateway relative to nginx.
    figures: dict[str, float] = field(default_factory=dict)
    # Further lines of the report.
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    seconds: float = 0.0

    def cpu_us(self, label: str) -> float:
        return median(sample.cpu_us for sample in self.samples[label])

    def add_ratios(self, ours: str = "facetheory") -> None:
        """Adds the CPU time per request of the gateway relative to each other server."""
        if not self.samples.get(ours):
            return
        for label in self.samples:
            if label != ours and self.samples[label]:
                self.figures[label] = self.cpu_us(ours) / self.cpu_us(label)
