"""Load: wrk and h2load, and the scripts that say what wrk requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .client import HOST
from .errors import BenchError
from .processes import run

CONNECTIONS = 64
H2_CONNECTIONS = 16
H2_STREAMS = 16
# Requests under way when wrk stops are waited for; no response may take longer.
TIMEOUT_SECONDS = 15

# A sequence that no server can predict, the same one for each server in the same round.
LUA_HEAD = """
local number, pages, seed = 0, {pages}, {seed}
local head, tail = "GET {prefix}", " HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n"
math.randomseed(seed)
"""
LUA = {
    "new": """
function request()
  number = number + 1
  return head .. number .. tail
end
""",
    "uniform": """
function request()
  return head .. math.random(0, pages - 1) .. tail
end
""",
    # The page of a rank is anywhere among the pages in the order of their creation.
    "zipf": """
local sums, total = {{}}, 0
for rank = 1, pages do
  total = total + rank ^ -{exponent}
  sums[rank] = total
end
function request()
  local point, low, high = math.random() * total, 1, pages
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sums[middle] < point then low = middle + 1 else high = middle end
  end
  return head .. (low * 7919) % pages .. tail
end
""",
}
ZIPF_EXPONENT = 0.9


@dataclass(frozen=True)
class Load:
    """The requests of a row."""

    path: str = "/page"
    headers: tuple[tuple[str, str], ...] = ()
    # None: the same path each time. "new", "uniform" and "zipf" put a number after the path.
    sequence: str | None = None
    pages: int = 0
    http2: bool = False
    threads: int = 1
    connections: int = CONNECTIONS
    # The ETag of the page is sent in If-None-Match.
    conditional: bool = False


@dataclass(frozen=True)
class Measured:
    """The result of one round, as the client sees it. Times in milliseconds."""

    requests: int
    rate: float
    p50_ms: float
    p99_ms: float


def apply(load: Load, url: str, seconds: int, number: int, cores: frozenset[int], directory: Path) -> Measured:
    """Sends requests to a server for some seconds. `number` chooses random numbers and new URLs."""
    headers = [word for name, value in load.headers for word in ("-H", f"{name}: {value}")]
    if load.http2:
        return _h2load(load, url, seconds, headers, cores, directory)
    words: list[str | Path] = ["wrk", f"-t{load.threads}", f"-c{load.connections}", f"-d{seconds}s", "--latency"]
    words += ["--timeout", f"{TIMEOUT_SECONDS}s", "-H", f"Host: {HOST}", *headers]
    path = load.path
    if load.sequence is not None:
        prefix = f"{path}{number}/" if load.sequence == "new" else path
        words += ["-s", _script(load, prefix, number, directory)]
        path = "/"
    output = run([*words, url + path], cores, seconds + TIMEOUT_SECONDS + 30)
    return parse_wrk(output)


def parse_wrk(output: str) -> Measured:
    """Reads what wrk prints."""
    problem = re.search(r"^ *(Non-2xx.*|Socket errors.*)$", output, re.MULTILINE)
    if problem:
        raise BenchError(f"wrk reports errors: {problem[1]}")
    requests = re.search(r"^ *(\d+) requests in", output, re.MULTILINE)
    rate = re.search(r"^Requests/sec: *([\d.]+)", output, re.MULTILINE)
    percentiles = dict(re.findall(r"^ *(50|99)% +([\d.]+(?:us|ms|s|m))$", output, re.MULTILINE))
    if not requests or not rate or percentiles.keys() != {"50", "99"} or requests[1] == "0":
        raise BenchError(f"wrk got no responses, or its output is not understood: {output.strip()[-400:]}")
    return Measured(
        int(requests[1]), float(rate[1]), _milliseconds(percentiles["50"]), _milliseconds(percentiles["99"])
    )


def parse_h2load(output: str, log: str) -> Measured:
    """Reads what h2load prints, and the times of its log."""
    total = re.search(
        r"^requests: .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", output, re.MULTILINE
    )
    statuses = re.search(r"^status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output, re.MULTILINE)
    rate = re.search(r"^finished in .*?, ([\d.]+) req/s", output, re.MULTILINE)
    if not total or not statuses or not rate or total[1] == "0":
        raise BenchError(f"h2load got no responses, or its output is not understood: {output.strip()[-400:]}")
    if total[3] != "0" or total[4] != "0" or statuses[3] != "0" or statuses[4] != "0":
        raise BenchError(f"h2load reports errors: {total[0]}; {statuses[0]}")
    times = sorted(int(line.split("\t")[2]) for line in log.splitlines())
    return Measured(len(times), float(rate[1]), percentile(times, 50) / 1000, percentile(times, 99) / 1000)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Returns the smallest of these sorted values that this percentage of them does not exceed."""
    if not ordered:
        raise BenchError("there are no times to take a percentile of")
    return ordered[min(len(ordered) - 1, max(0, -int(-len(ordered) * percent // 100) - 1))]


def _h2load(load: Load, url: str, seconds: int, headers: list[str], cores: frozenset[int], directory: Path) -> Measured:
    log = directory / "h2load.log"
    log.unlink(missing_ok=True)
    words: list[str | Path] = ["h2load", "-t1", f"-c{H2_CONNECTIONS}", f"-m{H2_STREAMS}", f"-D{seconds}"]
    words += ["-H", f":authority: {HOST}", *headers, f"--log-file={log}", url + load.path]
    output = run(words, cores, seconds + 60)
    return parse_h2load(output, log.read_text())


def _script(load: Load, prefix: str, seed: int, directory: Path) -> Path:
    assert load.sequence is not None
    script = directory / "requests.lua"
    text = (LUA_HEAD + LUA[load.sequence]).format(
        pages=load.pages, seed=seed, prefix=prefix, host=HOST, exponent=ZIPF_EXPONENT
    )
    script.write_text(text)
    return script


def _milliseconds(text: str) -> float:
    for unit, factor in (("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 6e4)):
        if text.endswith(unit):
            return float(text[: -len(unit)]) * factor
    raise BenchError(f"wrk printed a time without a known unit: {text}")
