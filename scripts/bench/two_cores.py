"""The row "two cores": how much more a server does on two cores than on one."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from .load import Load
from .machine import Machine, Server, Setup
from .measure import Case, Options, Row, prepared, sample_round, with_baseline
from .pages import FilledPages
from .results import RowResult
from .servers import start

NAME = "two-cores"
TITLE = "Two cores against one"
CASES = tuple(Case(program, program, Setup(), Load()) for program in ("facetheory", "nginx"))


def run(machine: Machine, options: Options, _pages: FilledPages) -> RowResult:
    """Compares what a server could do with all the time of its cores.

    The load runs on the same two cores, so the server never gets all of their time. Its capacity is what it does in a
    second of CPU time, times the number of cores that its threads can fill: if one of two threads does two thirds of
    the work, the other one is idle for half of the time, and 1.5 cores are filled.
    """
    row = Row(NAME, TITLE, ())
    result = RowResult(NAME, TITLE)
    capacities: dict[str, list[float]] = {}
    running: list[tuple[Case, Server]] = []
    try:
        for case in with_baseline(CASES, options):
            one = replace(case, label=f"{case.label}, one core")
            two = replace(
                case, label=f"{case.label}, two cores", setup=Setup(workers=2), load=replace(case.load, threads=2)
            )
            for variant in (one, two):
                server = start(machine, variant.program, variant.setup)
                running.append((variant, server))
                prepared(variant, server)
                sample_round(machine, row, variant, server, 1, -1)
        for number in range(1, options.rounds + 1):
            for case, server in running:
                before = server.process.thread_seconds()
                sample = sample_round(machine, row, case, server, options.seconds, number)
                after = server.process.thread_seconds()
                used = [seconds - before.get(thread, 0.0) for thread, seconds in after.items()]
                filled = min(sum(used) / max(*used, 1e-9), case.setup.workers)
                result.samples.setdefault(case.label, []).append(sample)
                capacities.setdefault(case.label, []).append(filled / sample.cpu_us)
                options.say(
                    f"{NAME}  round {number}/{options.rounds}  {case.label:<26} {sample.cpu_us:8.1f} us"
                    f"  {sample.rate:9,.0f}/s  fills {filled:.2f} cores"
                )
    finally:
        for _, server in running:
            machine.processes.stop(server.process)
    for program in dict.fromkeys(case.program for case, _ in running):
        scale = median(capacities[f"{program}, two cores"]) / median(capacities[f"{program}, one core"])
        result.figures[program] = scale
        result.notes.append(f"{program}: two cores do {scale:.2f} times as much as one")
    return result
