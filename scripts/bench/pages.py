"""Caches filled with many pages, for the rows that need more pages than memory. They are filled once for all rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from . import client
from .errors import BenchError
from .machine import Machine, Server, Setup
from .servers import start, start_gateway

PAGE_PATH = "/own=1/page/"
CONNECTIONS = 64
PROGRESS_SECONDS = 5.0
# A minute after its start, nginx reads its whole cache. Rounds begin later, unless there is little to read.
LOADER_SECONDS = 63.0
LOADER_PAGES = 20_000


class FilledPages:
    """Starts servers on caches that hold all pages."""

    def __init__(self, machine: Machine, pages: int, say: Callable[[str], None]) -> None:
        self._machine, self._pages, self._say = machine, pages, say
        self._stores: dict[str, Path] = {}
        self._nginx: Server | None = None
        self._nginx_started = 0.0

    def start(self, machine: Machine, program: str, setup: Setup) -> Server:
        if program == "nginx":
            return self._start_nginx(setup)
        baseline = program == "baseline"
        if program not in self._stores:
            self._start_nginx(setup)
            self._stores[program] = filled_store(machine, setup, self._pages, self._say, baseline)
        self._wait_for_nginx()
        return start_gateway(machine, setup, machine.server_core, self._stores[program], baseline)

    def _start_nginx(self, setup: Setup) -> Server:
        """Starts nginx once for all rows: after a restart it would read its cache again."""
        if self._nginx is None:
            self._nginx_started = time.monotonic()
            server = start(self._machine, "nginx", setup)
            fill(self._machine, server, self._pages, self._say)
            server.shared = True
            self._nginx = server
        return self._nginx

    def _wait_for_nginx(self) -> None:
        remaining = self._nginx_started + LOADER_SECONDS - time.monotonic()
        if self._pages >= LOADER_PAGES and remaining > 0:
            self._say(f"waiting {remaining:.0f} s until nginx has read its cache")
            time.sleep(remaining)


def fill(machine: Machine, server: Server, pages: int, say: Callable[[str], None]) -> None:
    """Lets a server cache these pages. A server that cannot be filled is stopped."""
    began = last = time.monotonic()

    def done(count: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_SECONDS:
            last = now
            rate = count / (now - began)
            say(
                f"filling {server.name}: {count:,} of {pages:,} pages, {rate:,.0f}/s,"
                f" {(pages - count) / rate:.0f} s to go"
            )

    try:
        client.fetch_all(server.port, (f"{PAGE_PATH}{number}" for number in range(pages)), CONNECTIONS, done)
    except BenchError as error:
        machine.processes.stop(server.process)
        raise BenchError(f"{server.name} could not be filled: {error}\n{server.process.tail()}") from None
    took = time.monotonic() - began
    say(f"filled {server.name} with {pages:,} pages in {took:.0f} s ({pages / took:,.0f}/s)")


def filled_store(
    machine: Machine, setup: Setup, pages: int, say: Callable[[str], None], baseline: bool = False
) -> Path:
    """Returns a store on disk that a gateway has filled with these pages."""
    data = machine.new_directory("baseline-pages" if baseline else "facetheory-pages")
    # On both cores: this part is not measured.
    server = start_gateway(machine, setup, machine.both_cores, data, baseline)
    fill(machine, server, pages, say)
    # At shutdown everything is on disk.
    machine.processes.stop(server.process)
    os.sync()
    return data
