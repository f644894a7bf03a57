"""The rows of the table, in its order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import idle, mixed, scale, stampede, two_cores
from .load import Load
from .machine import Machine, Setup
from .measure import Case, Options, Row, measure
from .pages import PAGE_PATH, FilledPages
from .results import RowResult

# The headers that a current browser sends with a navigation, and cookies of an analytics script and a session.
BROWSER_HEADERS = (
    (
        "User-Agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36",
    ),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Accept-Language", "de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7"),
    ("Sec-Ch-Ua", '"Chromium";v="130", "Google Chrome";v="130", "Not?A_Brand";v="99"'),
    ("Sec-Ch-Ua-Mobile", "?0"),
    ("Sec-Ch-Ua-Platform", '"Linux"'),
    ("Sec-Fetch-Dest", "document"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Sec-Fetch-Site", "same-origin"),
    ("Sec-Fetch-User", "?1"),
    ("Upgrade-Insecure-Requests", "1"),
    ("Referer", "https://bench.test/blog/"),
    (
        "Cookie",
        "_ga=GA1.1.1234567890.1700000000; _ga_ABCDEF=GS1.1.1700000000.1.1.1700000100.0.0.0; session=0123456789abcdef",
    ),
)
# No compression makes this page smaller, so every server sends the same bytes to a browser.
BROWSER_PAGE = Load("/noise=1/page", BROWSER_HEADERS)
DISK_MEMORY = "16MiB"
# Some seconds of requests fill the memory with the pages that are requested most.
ZIPF_WARM_UP_SECONDS = 8


@dataclass(frozen=True)
class Entry:
    """A row by its name; `run` measures it."""

    name: str
    title: str
    run: Callable[[Machine, Options, FilledPages], RowResult]
    # Whether it is measured only if it is named: it takes minutes.
    by_name_only: bool = False


def _cases(programs: str, setup: Setup, load: Load) -> tuple[Case, ...]:
    return tuple(Case(program, program, setup, load) for program in programs.split())


def _plain(row: Row) -> Entry:
    return Entry(row.name, row.title, lambda machine, options, _: measure(machine, row, options))


def _on_filled_pages(name: str, title: str, sequence: str, memory: str, warm_up_seconds: int) -> Entry:
    def run(machine: Machine, options: Options, pages: FilledPages) -> RowResult:
        load = Load(PAGE_PATH, sequence=sequence, pages=options.pages)
        cases = _cases("facetheory nginx", Setup(memory=memory), load)
        row = Row(name, title, cases, warm_up_seconds=warm_up_seconds)
        return measure(machine, row, options, pages.start)

    return Entry(name, title, run)


RULE, ORIGIN, PASS, TLS = Setup(), Setup("origin"), Setup("pass"), Setup(tls=True)
LOGGED = Setup(access_log=True)


def _access_log(machine: Machine, options: Options, _pages: FilledPages) -> RowResult:
    cases = (
        Case("facetheory", "facetheory", LOGGED, Load()),
        Case("facetheory, no log", "facetheory", RULE, Load()),
        Case("nginx", "nginx", LOGGED, Load()),
        Case("nginx, no log", "nginx", RULE, Load()),
    )
    result = measure(machine, Row("access-log", "Hit with the access log", cases), options)
    for label in ("facetheory", "nginx", "baseline"):
        if result.samples.get(label):
            added = result.cpu_us(label) - result.cpu_us(f"{label}, no log")
            result.notes.append(f"the access log adds {added:.1f} us to a hit of {label}")
            if label == "facetheory":
                result.figures["added-us"] = added
    return result


ROWS: tuple[Entry, ...] = (
    _plain(Row("memory-8k", "Hit in memory, 8 KiB", _cases("facetheory hyper nginx varnish haproxy", RULE, Load()))),
    _plain(Row("tls-h1", "Hit over TLS, HTTP/1.1", _cases("facetheory nginx haproxy", TLS, Load()))),
    _plain(Row("tls-h2", "Hit over TLS, HTTP/2", _cases("facetheory nginx haproxy", TLS, Load(http2=True)))),
    _plain(
        Row(
            "memory-64k",
            "Hit in memory, 64 KiB",
            _cases("facetheory hyper nginx varnish haproxy", Setup(long_pages=True), Load("/size=65536/page")),
        )
    ),
    _plain(
        Row(
            "not-modified",
            "304 to If-None-Match",
            # HAProxy's 304 has a Content-Length, and wrk waits for that many bytes.
            _cases("facetheory nginx varnish", RULE, Load("/etag=1/page", conditional=True)),
        )
    ),
    _plain(
        Row(
            "origin-headers",
            "Hit by the origin's headers, from a browser",
            (
                Case("facetheory", "facetheory", ORIGIN, BROWSER_PAGE),
                Case("facetheory, by rule", "facetheory", RULE, BROWSER_PAGE),
                Case("facetheory, by rule, plain", "facetheory", RULE, Load("/noise=1/page")),
                *_cases("nginx varnish haproxy", ORIGIN, BROWSER_PAGE),
            ),
        )
    ),
    Entry("access-log", "Hit with the access log", _access_log),
    _plain(
        Row(
            "pass",
            "Pass-through",
            _cases("facetheory nginx haproxy varnish", PASS, Load()),
            forwards=True,
        )
    ),
    _plain(
        Row(
            "miss",
            "Miss, a new URL each time",
            _cases("facetheory nginx varnish", RULE, Load("/own=1/miss/", sequence="new")),
            forwards=True,
        )
    ),
    _on_filled_pages("disk", "Hit not in memory", "uniform", DISK_MEMORY, 2),
    _on_filled_pages("zipf", "Zipf, 128 MiB of memory", "zipf", "128MiB", ZIPF_WARM_UP_SECONDS),
    Entry(mixed.NAME, mixed.TITLE, mixed.run),
    Entry(two_cores.NAME, two_cores.TITLE, two_cores.run),
    Entry(stampede.NAME, stampede.TITLE, stampede.run),
    Entry(idle.NAME, idle.TITLE, idle.run),
    Entry(scale.NAME, scale.TITLE, scale.run, by_name_only=True),
)
