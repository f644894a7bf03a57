"""The row "mixed": how much misses, gc and invalidations disturb the hits beside them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

from .errors import BenchError
from .load import Load
from .machine import Machine, Server, Setup
from .measure import Case, Options, Row, prepared, sample_round
from .pages import FilledPages
from .processes import Process
from .results import RowResult
from .servers import start

NAME = "mixed"
TITLE = "Hits beside misses, gc and invalidations"
MISSES_PER_SECOND = 500
INVALIDATIONS_PER_SECOND = 100
# A slower side load would make the row easier.
LEAST_SHARE = 0.9
RULES = '"/own=1/**" = { isr = "1h", tags = ["side"] }\n'
QUIET = Setup(rules=RULES, settings="[gc]\ninterval = false\n", admin=True)
BUSY = replace(QUIET, settings='[gc]\ninterval = "1s"\n')
# The generator of the side load starts and opens its connections.
LEAD_SECONDS = 0.5


def run(machine: Machine, options: Options, _pages: FilledPages) -> RowResult:
    """Compares two gateways: one serves hits alone, the other one also the side load.

    The same side load is generated beside the quiet gateway and goes to the origin alone, so what its generator takes
    from the core of the load disturbs both.
    """
    row = Row(NAME, TITLE, ())
    result = RowResult(NAME, TITLE)
    running: list[tuple[Case, Server]] = []
    try:
        for program in ["facetheory", *(["baseline"] if options.has_baseline else [])]:
            for label, setup in ((f"{program}, quiet", QUIET), (program, BUSY)):
                case = Case(label, program, setup, Load())
                server = start(machine, program, setup)
                running.append((case, server))
                prepared(case, server)
                # The misses of the side load are not those of the hits that are measured.
                sample_round(machine, row, case, server, 1, -1)
        for number in range(1, options.rounds + 1):
            for case, server in running:
                quiet = case.setup is QUIET
                target = machine.origin if quiet else server
                side = _start_side_load(machine, target, options.seconds + LEAD_SECONDS, number)
                try:
                    # A negative number: the check that all requests are hits does not apply beside misses.
                    sample = sample_round(machine, row, case, server, options.seconds, -1 - number)
                    side.wait_until_ended()
                    done = json.loads(side.output.read_text() or "{}")
                finally:
                    machine.processes.stop(side)
                _check(case.label, done, options.seconds + LEAD_SECONDS)
                result.samples.setdefault(case.label, []).append(sample)
                options.say(
                    f"{NAME}  round {number}/{options.rounds}  {case.label:<26} p50 {sample.p50_ms:.2f} ms,"
                    f" p99 {sample.p99_ms:.2f} ms, {sample.rate:,.0f} hits/s"
                )
    finally:
        for _, server in running:
            machine.processes.stop(server.process)
    for label in [label for label in result.samples if f"{label}, quiet" in result.samples]:
        busy, quiet_p99 = (median(s.p99_ms for s in result.samples[name]) for name in (label, f"{label}, quiet"))
        ratio = busy / quiet_p99
        result.notes.append(f"{label}: p99 of a hit {busy:.2f} ms, {ratio:.2f} times the quiet {quiet_p99:.2f} ms")
        if label == "facetheory":
            result.figures["p99"] = ratio
    return result


def _start_side_load(machine: Machine, target: Server, seconds: float, number: int) -> Process:
    script = Path(__file__).with_name("side_load.py")
    command: list[str | Path] = [sys.executable, script, "--port", str(target.port), "--seconds", str(seconds)]
    command += ["--admin-port", str(target.admin_port or target.port), "--prefix", f"/own=1/side/{number}/"]
    command += ["--misses", str(MISSES_PER_SECOND), "--invalidations", str(INVALIDATIONS_PER_SECOND)]
    side = machine.processes.start("side-load", command, machine.load_core)
    side.wait_until(lambda: side.errors.read_text().startswith("started"))
    return side


def _check(label: str, done: dict[str, int], seconds: float) -> None:
    for name, rate in (("misses", MISSES_PER_SECOND), ("invalidations", INVALIDATIONS_PER_SECOND)):
        if done.get("failed"):
            raise BenchError(f"{label}: {done['failed']} requests of the side load failed: {done.get('reason')}")
        if done.get(name, 0) < rate * seconds * LEAST_SHARE:
            raise BenchError(f"{label}: only {done.get(name, 0) / seconds:.0f} of {rate} {name} per second were done")
