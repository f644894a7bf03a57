"""The row "scale": hits of a gateway with many pages in memory and ten times as many on disk, beside one with few pages."""

from __future__ import annotations

from .load import Load
from .machine import Machine, Server, Setup
from .measure import Case, Options, Row, measure, median_of
from .pages import PAGE_PATH, FilledPages, fill, filled_store
from .results import RowResult
from .servers import start_gateway

NAME = "scale"
TITLE = "Hits among 1,000,000 pages"
# Pages on disk for each page in memory.
ON_DISK = 10
FEW_PAGES = 100
FEW = Setup()
# All pages that are requested fit.
MANY = Setup(memory="2GiB")


def run(machine: Machine, options: Options, _pages: FilledPages) -> RowResult:
    """Requests pages in memory alone: `options.pages` of one gateway, and a few of the other one."""

    def started(machine: Machine, program: str, setup: Setup) -> Server:
        baseline = program == "baseline"
        data, pages = None, FEW_PAGES
        if setup is MANY:
            data, pages = filled_store(machine, setup, options.pages * ON_DISK, options.say, baseline), options.pages
        server = start_gateway(machine, setup, machine.server_core, data, baseline)
        fill(machine, server, pages, options.say)
        return server

    cases = (
        Case("facetheory", "facetheory", MANY, Load(PAGE_PATH, sequence="uniform", pages=options.pages)),
        Case("facetheory, few pages", "facetheory", FEW, Load(PAGE_PATH, sequence="uniform", pages=FEW_PAGES)),
    )
    result = measure(machine, Row(NAME, TITLE, cases), options, started)
    for label in [label for label in result.samples if f"{label}, few pages" in result.samples]:
        many, few = (median_of(result.samples[name], lambda s: s.p99_ms) for name in (label, f"{label}, few pages"))
        result.notes.append(
            f"{label}: p99 of a hit {many:.2f} ms with {options.pages * ON_DISK:,} pages, {options.pages:,} of them in"
            f" memory: {many / few:.2f} times the {few:.2f} ms with {FEW_PAGES} pages"
        )
        if label == "facetheory":
            result.figures["p99"] = many / few
    return result
