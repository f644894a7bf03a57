"""Runs the rows, reports, and cleans up."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from . import chart, check, report, tools
from .errors import BenchError
from .machine import Machine
from .measure import Options
from .options import Arguments, parse
from .pages import FilledPages
from .processes import Processes
from .results import RowResult
from .rows import ROWS, Entry

ROOT = Path(__file__).resolve().parents[2]
RATIOS = ROOT / "scripts" / "bench-http.ratios"
# Above it, other programs take a noticeable part of a core.
QUIET_LOAD = 0.3


def main(words: list[str]) -> int:
    arguments = parse(words)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        return run(arguments)
    except BenchError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def run(arguments: Arguments) -> int:
    began = time.monotonic()
    lines = check.read(RATIOS) if arguments.check or arguments.store else []
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("two cores are required: one for the server, one for the load")
    _raise_file_limit()
    tools.ensure_installed(say)
    peer = tools.build_peer(ROOT)
    gateway = arguments.binary or tools.build_gateway(ROOT)
    _warn_if_busy()
    # On a disk, not in /tmp, which may be memory: a miss is durable.
    parent = arguments.directory or ROOT / "target"
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    processes = Processes(directory / "output")
    try:
        machine = Machine(
            gateway, peer, arguments.baseline, directory, processes, frozenset(cores[:1]), frozenset(cores[1:2])
        )
        results = _measure(machine, arguments)
    finally:
        processes.stop_all()
        shutil.rmtree(directory, ignore_errors=True)
    return _report(results, arguments, lines, time.monotonic() - began)


def _measure(machine: Machine, arguments: Arguments) -> list[RowResult]:
    options = Options(
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        pages=arguments.pages,
        idle_connections=arguments.idle_connections,
        has_baseline=arguments.baseline is not None,
        say=say,
    )
    pages = FilledPages(machine, arguments.pages, say)
    results = []
    for entry in ROWS:
        if entry.name not in arguments.rows:
            continue
        began = time.monotonic()
        result = _run(entry, machine, options, pages)
        ended = machine.ensure_origin()
        if ended is not None:
            say(f"{entry.name}  once more, because the {ended}")
            result = _run(entry, machine, options, pages)
        result.seconds = time.monotonic() - began
        results.append(result)
    return results


def _run(entry: Entry, machine: Machine, options: Options, pages: FilledPages) -> RowResult:
    """Measures a row. If it fails, the other rows may still be fine."""
    try:
        return entry.run(machine, options, pages)
    except BenchError as error:
        say(f"{entry.name}  FAILED: {error}")
        return RowResult(entry.name, entry.title, error=str(error))


def _report(results: list[RowResult], arguments: Arguments, lines: list[check.Line], seconds: float) -> int:
    say(report.table(results))
    say(f"\n{report.machine()}; {arguments.rounds} rounds of {arguments.seconds} s; {seconds / 60:.1f} minutes")
    if arguments.json:
        settings = {"rounds": arguments.rounds, "seconds": arguments.seconds, "pages": arguments.pages}
        report.write_json(results, arguments.json, settings)
    if arguments.svg:
        rounds = f"{arguments.rounds} round{'s' if arguments.rounds > 1 else ''} of {arguments.seconds} s"
        footer = [
            "A miss and its lease are durable in FaceTheory; nginx and Varnish do not sync to disk.",
            f"{report.machine()}; the server on one core; medians of {rounds}; scripts/bench-http.",
        ]
        arguments.svg.write_text(chart.draw(results, footer))
    fine = not any(result.error for result in results)
    measured = check.figures(results)
    if arguments.check:
        text, held = check.check(lines, measured, set(arguments.rows))
        say(f"\n{text}")
        fine = fine and held
    if arguments.store:
        check.store(RATIOS, measured)
    return 0 if fine else 1


def say(text: str) -> None:
    print(text, flush=True)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """Ends the run as Ctrl-C does, with all its servers."""
    raise KeyboardInterrupt


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _warn_if_busy() -> None:
    load = os.getloadavg()[0]
    if load > QUIET_LOAD:
        say(f"the machine is busy (load average {load:.1f}): the figures are noise; stop other programs first")
