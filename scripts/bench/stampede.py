"""The row "stampede": 200 clients request a page at once that is not cached, from a slow origin."""

from __future__ import annotations

import gc
import os
from statistics import median

from .client import Connection, Response, at_once
from .errors import BenchError
from .load import percentile
from .machine import Machine, Server, Setup
from .measure import Options
from .pages import FilledPages
from .results import RowResult
from .servers import start, start_gateway

NAME = "stampede"
TITLE = "Stampede of 200 clients on a cold page"
CLIENTS = 200
DELAY_MS = 300


def run(machine: Machine, options: Options, _pages: FilledPages) -> RowResult:
    result = RowResult(NAME, TITLE)
    running: dict[str, list[Server]] = {}
    try:
        for program in ["facetheory", *(["baseline"] if options.has_baseline else [])]:
            running[f"{program}, one gateway"] = [start(machine, program, Setup())]
            store, baseline = machine.new_directory("shared-store"), program == "baseline"
            running[f"{program}, two gateways"] = [
                start_gateway(machine, Setup(), machine.server_core, store, baseline) for _ in range(2)
            ]
        for program in ("nginx", "varnish"):
            running[program] = [start(machine, program, Setup())]
        times: dict[str, list[float]] = {label: [] for label in running}
        requests: dict[str, list[int]] = {label: [] for label in running}
        # Connections, compiled code and prepared statements as in a gateway that has been running.
        for number in range(options.rounds + 1):
            for label, servers in running.items():
                responses, forwarded = _stampede(machine, servers, number)
                if number == 0:
                    continue
                p99_ms = percentile(sorted(response.seconds for response in responses), 99) * 1000
                times[label].append(p99_ms)
                requests[label].append(forwarded)
                options.say(
                    f"{NAME}  round {number}/{options.rounds}  {label:<26} p99 {p99_ms:.0f} ms,"
                    f" {forwarded} request{'s' if forwarded != 1 else ''} to the origin"
                )
    finally:
        for servers in running.values():
            for server in servers:
                machine.processes.stop(server.process)
    for label in running:
        p99_ms, most = median(times[label]), max(requests[label])
        result.notes.append(f"{label}: p99 {p99_ms:.0f} ms, at most {most} request(s) to an origin of {DELAY_MS} ms")
        if label.startswith("facetheory"):
            count = "one" if label.endswith("one gateway") else "two"
            result.figures[f"{count}-p99-ms"] = p99_ms
            result.figures[f"{count}-origin-requests"] = float(most)
    return result


def _stampede(machine: Machine, servers: list[Server], number: int) -> tuple[list[Response], int]:
    """Requests a new page over open connections; returns the responses and the number of requests to the origin."""
    path = f"/delay={DELAY_MS}/own=1/stampede/{number}"
    cores = os.sched_getaffinity(0)
    connections: list[Connection] = []
    gc.disable()
    try:
        os.sched_setaffinity(0, machine.load_core)
        for client in range(CLIENTS):
            connections.append(Connection(servers[client % len(servers)].port))
            connections[-1].get("/page")
        before = machine.origin_requests()
        responses = at_once(connections, path)
        forwarded = machine.origin_requests() - before
    finally:
        gc.enable()
        os.sched_setaffinity(0, cores)
        for connection in connections:
            connection.close()
    failed = [response.status for response in responses if response.status != 200]
    if failed:
        raise BenchError(f"{servers[0].name}: {len(failed)} clients got {sorted(set(failed))} instead of the page")
    return responses, forwarded
