"""Measures a row: starts its servers, checks that they do its work, and runs interleaved rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from . import client, load
from .errors import BenchError
from .load import Load
from .machine import Machine, Server, Setup
from .results import RowResult, Sample
from .servers import start

MEGABYTE = 1e6
# At most this share of the requests of a row of hits reaches the origin, and in a row that forwards all but this share.
STRAY_SHARE = 0.002


@dataclass(frozen=True)
class Options:
    """How long and how often to measure."""

    rounds: int
    seconds: int
    # Pages of the rows that need more pages than memory.
    pages: int
    # Connections of the row of idle connections.
    idle_connections: int
    has_baseline: bool
    say: Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """A server of a row, under a label, with its work and its load."""

    label: str
    program: str
    setup: Setup
    load: Load


@dataclass(frozen=True)
class Row:
    """A row whose servers all have the same load."""

    name: str
    title: str
    cases: tuple[Case, ...]
    # Whether every request reaches the origin, or none.
    forwards: bool = False
    warm_up_seconds: int = 1


Starter = Callable[[Machine, str, Setup], Server]


def with_baseline(cases: tuple[Case, ...], options: Options) -> list[Case]:
    """Puts the binary to compare with after each gateway."""
    found = []
    for case in cases:
        found.append(case)
        if options.has_baseline and case.program == "facetheory":
            found.append(replace(case, label=case.label.replace("facetheory", "baseline"), program="baseline"))
    return found


def measure(machine: Machine, row: Row, options: Options, starter: Starter = start) -> RowResult:
    """Measures a row. Its servers are stopped afterwards."""
    result = RowResult(row.name, row.title)
    running: list[tuple[Case, Server]] = []
    try:
        for case in with_baseline(row.cases, options):
            server = starter(machine, case.program, case.setup)
            running.append((case, server))
            running[-1] = (prepared(case, server), server)
        warm_up = min(row.warm_up_seconds, max(1, options.seconds * 3))
        for number, (case, server) in enumerate(running):
            sample_round(machine, row, case, server, warm_up, -1 - number)
        for number in range(1, options.rounds + 1):
            for case, server in running:
                sample = sample_round(machine, row, case, server, options.seconds, number)
                result.samples.setdefault(case.label, []).append(sample)
                options.say(
                    f"{row.name}  round {number}/{options.rounds}  {case.label:<26} {sample.cpu_us:8.1f} us"
                    f"  {sample.rate:9,.0f}/s  p99 {sample.p99_ms:.2f} ms"
                )
    finally:
        for _, server in running:
            if not server.shared:
                machine.processes.stop(server.process)
    result.add_ratios()
    return result


def prepared(case: Case, server: Server) -> Case:
    """Lets a server cache its page, and checks that it sends it as the row wants it."""
    if case.load.sequence is not None:
        return case
    headers = dict(case.load.headers)
    try:
        client.get(server.port, case.load.path, headers, server.tls)
        page = client.get(server.port, case.load.path, headers, server.tls)
        if page.status != 200 or "content-encoding" in page.headers:
            raise BenchError(f"status {page.status}, headers {page.headers}")
        if not case.load.conditional:
            return case
        if "etag" not in page.headers:
            raise BenchError("its page has no ETag")
        headers["If-None-Match"] = page.headers["etag"]
        status = client.get(server.port, case.load.path, headers, server.tls).status
        if status != 304:
            raise BenchError(f"status {status} instead of 304")
    except BenchError as error:
        raise BenchError(f"{case.label} does not serve {case.load.path} as this row needs it: {error}") from None
    return replace(case, load=replace(case.load, headers=tuple(headers.items())))


def sample_round(machine: Machine, row: Row, case: Case, server: Server, seconds: int, number: int) -> Sample:
    """Runs one round of one server."""
    cores = machine.load_core if case.setup.workers == 1 else machine.both_cores
    forwarded = machine.origin_requests()
    used = server.process.cpu_seconds()
    try:
        # Numbers of warm-ups are negative, and no two rounds of a server share one.
        seen = load.apply(case.load, server.url, seconds, number, cores, machine.directory)
    except BenchError as error:
        raise BenchError(f"{case.label}: {error}\n{server.process.tail()}") from None
    used = server.process.cpu_seconds() - used
    forwarded = machine.origin_requests() - forwarded
    if case.program != "hyper" and number > 0:
        share = forwarded / seen.requests
        if row.forwards and share < 1 - STRAY_SHARE:
            raise BenchError(f"{case.label} forwarded only {share:.1%} of the requests; this row needs all of them")
        if not row.forwards and share > STRAY_SHARE:
            raise BenchError(f"{case.label} forwarded {share:.1%} of the requests; this row needs hits")
    return Sample(
        cpu_us=used / seen.requests * 1e6,
        rate=seen.rate,
        p50_ms=seen.p50_ms,
        p99_ms=seen.p99_ms,
        rss_mb=server.process.rss_bytes() / MEGABYTE,
    )


def median_of(samples: list[Sample], value: Callable[[Sample], float]) -> float:
    return median(value(sample) for sample in samples)
