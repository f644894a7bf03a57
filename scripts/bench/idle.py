"""The row "idle": memory of a server with one page, and of its idle connections."""

from __future__ import annotations

import time

from .client import Connection
from .errors import BenchError
from .machine import Machine, Setup
from .measure import MEGABYTE, Options
from .pages import FilledPages
from .results import RowResult
from .servers import start

NAME = "idle"
TITLE = "Idle memory"
# Long enough for a server to release what it used to start.
SETTLE_SECONDS = 1.0


def run(machine: Machine, options: Options, _pages: FilledPages) -> RowResult:
    result = RowResult(NAME, TITLE)
    programs = ["facetheory", "hyper", "nginx", "varnish", "haproxy"]
    if options.has_baseline:
        programs.insert(1, "baseline")
    for program in programs:
        server = start(machine, program, Setup())
        connections: list[Connection] = []
        try:
            # A first connection: the memory of the page and of the path that serves it is not the connection's.
            first = Connection(server.port)
            connections.append(first)
            for _ in range(2):
                if (status := first.get("/page").status) != 200:
                    raise BenchError(f"{program} responds with status {status}")
            time.sleep(SETTLE_SECONDS)
            idle = server.process.rss_bytes()
            for _ in range(options.idle_connections):
                connections.append(Connection(server.port))
                connections[-1].get("/page")
            time.sleep(SETTLE_SECONDS)
            each = (server.process.rss_bytes() - idle) / options.idle_connections
        finally:
            for connection in connections:
                connection.close()
            machine.processes.stop(server.process)
        note = f"{program}: {idle / MEGABYTE:.1f} MB with one page, and {each / 1000:.1f} kB per idle connection"
        result.notes.append(f"{note} ({options.idle_connections} of them)")
        options.say(f"{NAME}  {note}")
        if program == "facetheory":
            result.figures["rss-mb"] = idle / MEGABYTE
            result.figures["connection-kb"] = each / 1000
    return result
