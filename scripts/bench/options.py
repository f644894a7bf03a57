"""The command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from .rows import ROWS

DESCRIPTION = """\
Measures the CPU time per request of the gateway and of other servers, row by row.

The server runs on one core; the load (wrk, h2load) and the origin run on another.
The rounds of all servers are interleaved, so that noise of the machine affects all
of them. The table has medians: CPU time of all processes of a server per request,
requests per second, latencies as the client sees them, and resident memory.
"""

ROWS_HELP = """\
Rows (--rows), in their order:
  memory-8k       a page of 8 KiB in memory, 64 keep-alive connections
  tls-h1          over TLS 1.3, HTTP/1.1
  tls-h2          over TLS 1.3, HTTP/2, 16 connections with 16 streams
  memory-64k      a page of 64 KiB
  not-modified    304 to If-None-Match
  origin-headers  a hit that follows the origin's headers, with the headers and
                  cookies of a browser; beside the same hit by a rule, and a plain
                  hit by a rule
  access-log      a hit with the access log, beside one without it
  pass            pass-through
  miss            a new URL each time
  disk            uniform requests for more pages than memory (16 MiB), which are in
                  the page cache of the system
  zipf            the same pages with 128 MiB of memory, zipf 0.9, warm
  mixed           p99 of a hit beside 500 misses/s, 100 invalidations/s and gc,
                  relative to a quiet gateway
  two-cores       how much more two cores do than one
  stampede        200 clients request a cold page from an origin that takes 300 ms;
                  one gateway, and two on one store
  idle            memory with one page, and of 1,000 idle connections
  scale           only if it is named, since it takes 10 minutes and 20 GB on disk: p99
                  of hits of 100,000 pages in memory of 1,000,000 on disk, relative to
                  that of 100 pages
A start with 1,000,000 pages: cargo bench -p facetheory-cli --bench startup
"""

PEERS_HELP = """\
Servers. Each takes part in the rows that it can do, without access log:
  facetheory  facetheory serve, embedded store, defaults; the limit of new pages per
              second is lifted
  hyper       scripts/peer: hyper that sends a constant page; also the origin
  nginx       one worker; sendfile; tcp_nopush, but not for 64 KiB, where it makes
              responses wait for delayed ACKs; proxy_cache with use_temp_path=off and
              proxy_cache_lock; to the origin HTTP/1.1 with 256 idle connections; an
              access log is buffered (64k)
  varnish     malloc storage of 1 GiB, one thread pool, every record of its log switched
              off, requests with cookies are looked up
  haproxy     one thread; its cache of 64 MB, or as a proxy with http-reuse always; not
              in the row not-modified, because wrk does not understand its 304
nginx does not sync to disk, Varnish and HAProxy store nothing there; a miss of the
gateway is durable.

Examples:
  scripts/bench-http                                   everything, about 12 minutes
  scripts/bench-http --quick                           does everything work? 3 minutes
  scripts/bench-http --rows pass,miss --rounds 7
  scripts/bench-http --rows memory-8k --baseline /tmp/facetheory-before
  scripts/bench-http --check                           compare with stored ratios and goals
  scripts/bench-http --json run.json --svg docs/images/bench.svg

Exit codes: 0; 1 if a row failed or --check found a worse ratio or a missed goal; 2 for
wrong options; 130 after Ctrl-C.

Requires two cores, wrk, h2load, nginx, varnishd, haproxy and openssl. Missing ones are
installed from Debian packages if possible. A full run needs 5 GB on disk, most of it in
the page cache. Stop everything else on the machine first.
"""


@dataclass(frozen=True)
class Arguments:
    """The command line, checked."""

    rows: tuple[str, ...]
    rounds: int
    seconds: int
    pages: int
    idle_connections: int
    binary: Path | None
    baseline: Path | None
    directory: Path | None
    json: Path | None
    svg: Path | None
    check: bool
    store: bool


def parse(words: list[str]) -> Arguments:
    parser = argparse.ArgumentParser(
        prog="scripts/bench-http",
        description=DESCRIPTION,
        epilog=f"{ROWS_HELP}\n{PEERS_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--rows", type=_rows, metavar="NAME[,NAME]", help="only these rows")
    parser.add_argument("--rounds", type=_positive, metavar="N", help="rounds per server (default: 3)")
    parser.add_argument("--seconds", type=_positive, metavar="N", help="seconds per round (default: 3)")
    parser.add_argument("--pages", type=_positive, metavar="N", help="pages of disk, zipf and scale (default: 100000)")
    parser.add_argument("--quick", action="store_true", help="1 round of 1 s, 4,000 pages; its figures are noise")
    parser.add_argument("--binary", type=_binary, metavar="BINARY", help="this gateway instead of a new build")
    parser.add_argument("--baseline", type=_binary, metavar="BINARY", help="also measure this gateway")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="where stores are created (default: target)")
    parser.add_argument("--json", type=_writable, metavar="FILE", help="write all samples to this file")
    parser.add_argument("--svg", type=_writable, metavar="FILE", help="draw the CPU time per request to this file")
    parser.add_argument("--check", action="store_true", help="fail if a ratio in scripts/bench-http.ratios is missed")
    parser.add_argument("--store", action="store_true", help="write the ratios to scripts/bench-http.ratios")
    given = parser.parse_args(words)
    return Arguments(
        rows=given.rows or tuple(entry.name for entry in ROWS if not entry.by_name_only),
        rounds=given.rounds or (1 if given.quick else 3),
        seconds=given.seconds or (1 if given.quick else 3),
        pages=given.pages or (4_000 if given.quick else 100_000),
        idle_connections=200 if given.quick else 1_000,
        binary=given.binary,
        baseline=given.baseline,
        directory=given.directory,
        json=given.json,
        svg=given.svg,
        check=given.check,
        store=given.store,
    )


def _rows(text: str) -> tuple[str, ...]:
    known = [entry.name for entry in ROWS]
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"there is no row {', '.join(unknown) or text!r}; rows are {', '.join(known)}")
    return tuple(name for name in known if name in names)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _binary(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return path.resolve()


def _writable(text: str) -> Path:
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {str(path.parent)!r}")
    return path.resolve()
