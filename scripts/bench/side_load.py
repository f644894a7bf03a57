"""A program that sends misses and invalidations at a steady rate beside another load.

It prints "started" on standard error, and at its end one JSON object with what was done.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys

HOST = "bench.test"
CONNECTIONS = 32
TIMEOUT_SECONDS = 10.0
# It shares a core with the load whose latency is measured, and lets that one go first.
NICENESS = 19


class SideLoad:
    """Counts what was done, over a pool of connections."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.done = {"misses": 0, "invalidations": 0, "failed": 0}
        self.reason = ""
        self.queue: asyncio.Queue[int | None] = asyncio.Queue()

    async def run(self) -> None:
        workers = [asyncio.create_task(self.work()) for _ in range(CONNECTIONS)]
        sys.stderr.write("started\n")
        sys.stderr.flush()
        await self.send_at_a_steady_rate()
        for _ in workers:
            self.queue.put_nowait(None)
        await asyncio.gather(*workers)

    async def send_at_a_steady_rate(self) -> None:
        loop = asyncio.get_running_loop()
        rate = self.arguments.misses + self.arguments.invalidations
        began = loop.time()
        for number in range(int(rate * self.arguments.seconds)):
            delay = began + number / rate - loop.time()
            if delay > 0:
                await asyncio.sleep(delay)
            self.queue.put_nowait(number)

    async def work(self) -> None:
        pages = admin = None
        share = (self.arguments.misses + self.arguments.invalidations) // max(1, self.arguments.invalidations)
        page = 0
        while (number := await self.queue.get()) is not None:
            try:
                if self.arguments.invalidations and number % share == share - 1:
                    admin = admin or await asyncio.open_connection("127.0.0.1", self.arguments.admin_port)
                    # A page that was cached a moment ago, or the tag of all of them.
                    url = f"http://{HOST}{self.arguments.prefix}{max(0, page - share)}"
                    scope = {"url": url} if number // share % 2 else {"tag": "side"}
                    await self.exchange(admin, "POST", "/api/v1/invalidate", "localhost", json.dumps(scope))
                    self.done["invalidations"] += 1
                else:
                    pages = pages or await asyncio.open_connection("127.0.0.1", self.arguments.port)
                    page = number
                    await self.exchange(pages, "GET", f"{self.arguments.prefix}{number}", HOST, "")
                    self.done["misses"] += 1
            except (OSError, ValueError, asyncio.IncompleteReadError) as error:
                pages = admin = None
                self.done["failed"] += 1
                self.reason = self.reason or str(error) or type(error).__name__

    async def exchange(
        self,
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        method: str,
        path: str,
        host: str,
        body: str,
    ) -> None:
        reader, writer = connection
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}\r\n{body}".encode())
        received = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_SECONDS)
        lines = received.decode("latin-1").lower().split("\r\n")
        lengths = [int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")]
        if lengths:
            content = await asyncio.wait_for(reader.readexactly(lengths[0]), TIMEOUT_SECONDS)
        else:
            content = await asyncio.wait_for(reader.readuntil(b"\r\n0\r\n\r\n"), TIMEOUT_SECONDS)
        if not lines[0].split()[1].startswith("2"):
            raise ValueError(f"{method} {path}: {lines[0]} {content[:200]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Send misses and invalidations at a steady rate.")
    parser.add_argument("--port", type=int, required=True, help="port of the pages")
    parser.add_argument("--admin-port", type=int, required=True, help="port of the invalidations")
    parser.add_argument("--seconds", type=float, required=True, help="duration")
    parser.add_argument("--prefix", required=True, help="path before the number of a page")
    parser.add_argument("--misses", type=int, required=True, help="misses per second")
    parser.add_argument("--invalidations", type=int, required=True, help="invalidations per second")
    os.nice(NICENESS)
    side_load = SideLoad(parser.parse_args())
    asyncio.run(side_load.run())
    sys.stdout.write(json.dumps(side_load.done | {"reason": side_load.reason}) + "\n")


if __name__ == "__main__":
    main()
