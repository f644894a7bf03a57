"""Tests of what the benchmark reads, decides and draws: cd scripts && python3 -m unittest bench.tests"""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

from . import chart, check, load
from .errors import BenchError
from .main import RATIOS
from .options import parse
from .results import RowResult, Sample
from .rows import ROWS

WRK = """Running 3s test @ http://127.0.0.1:1/page
  1 threads and 64 connections
  Latency Distribution
     50%  612.00us
     75%    0.90ms
     90%    1.00ms
     99%    1.20s
  300000 requests in 3.00s, 2.40GB read
Requests/sec:  99876.54
"""
H2LOAD = """finished in 3.00s, 24000.50 req/s, 190.00MB/s
requests: 3 total, 3 started, 3 done, 3 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 3 2xx, 0 3xx, 0 4xx, 0 5xx
"""


def result(name: str, **cpu_us: list[float]) -> RowResult:
    samples = {label: [Sample(value, 1.0, 1.0, 1.0, 1.0) for value in values] for label, values in cpu_us.items()}
    row = RowResult(name, name, samples)
    row.add_ratios()
    return row


class LoadTests(unittest.TestCase):
    def test_output_of_wrk_is_read(self) -> None:
        seen = load.parse_wrk(WRK)
        self.assertEqual((seen.requests, seen.rate, seen.p50_ms, seen.p99_ms), (300_000, 99_876.54, 0.612, 1200.0))

    def test_errors_of_wrk_are_reported(self) -> None:
        for line in ("  Non-2xx or 3xx responses: 5", "  Socket errors: connect 0, read 0, write 0, timeout 3"):
            with self.assertRaisesRegex(BenchError, line.strip()):
                load.parse_wrk(f"{WRK}{line}\n")
        with self.assertRaisesRegex(BenchError, "no responses"):
            load.parse_wrk(WRK.replace("300000", "0"))

    def test_output_of_h2load_is_read_and_its_errors_are_reported(self) -> None:
        seen = load.parse_h2load(H2LOAD, "1\t200\t100\n2\t200\t300\n3\t200\t200\n")
        self.assertEqual((seen.requests, seen.p50_ms, seen.p99_ms), (3, 0.2, 0.3))
        with self.assertRaisesRegex(BenchError, "errors"):
            load.parse_h2load(H2LOAD.replace("0 5xx", "1 5xx"), "")

    def test_a_percentile_is_one_of_the_values(self) -> None:
        self.assertEqual(load.percentile(range(1, 201), 99), 198)
        self.assertEqual(load.percentile([7], 99), 7)


class CheckTests(unittest.TestCase):
    def test_ratios_are_of_medians(self) -> None:
        row = result("pass", facetheory=[10.0, 12.0, 50.0], nginx=[6.0, 6.0, 7.0])
        self.assertEqual(check.figures([row]), {"pass.nginx": 2.0})

    def test_a_figure_fails_if_it_is_worse_or_misses_its_goal(self) -> None:
        line = check.Line("pass.nginx", 1.0, 0.15, "<=", 1.3)
        self.assertEqual([line.verdict(value) for value in (1.15, 1.16, 1.31)], ["ok", "WORSE", "MISSED WORSE"])
        line = check.Line("two-cores.facetheory", 1.9, 0.1, ">=", 1.7)
        self.assertEqual([line.verdict(value) for value in (1.71, 1.70, 1.6)], ["ok", "WORSE", "MISSED WORSE"])

    def test_the_file_of_ratios_is_read_and_names_rows(self) -> None:
        rows = {entry.name for entry in ROWS}
        lines = check.read(RATIOS)
        self.assertEqual({line.figure.partition(".")[0] for line in lines} - rows, set())
        self.assertEqual(rows - {line.figure.partition(".")[0] for line in lines}, set())

    def test_stored_values_are_replaced_and_read_again(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "ratios"
            path.write_text(RATIOS.read_text())
            check.store(path, {"pass.nginx": 1.234})
            before, after = check.read(RATIOS), check.read(path)
        self.assertEqual([line.goal for line in before], [line.goal for line in after])
        self.assertEqual([line.stored for line in after if line.figure == "pass.nginx"], [1.23])

    def test_a_row_that_was_measured_without_a_figure_fails(self) -> None:
        text, fine = check.check(check.read(RATIOS), {}, {"pass"})
        self.assertIn("MISSING", text)
        self.assertFalse(fine)
        self.assertTrue(check.check(check.read(RATIOS), {}, set())[1])


class ChartTests(unittest.TestCase):
    def test_the_chart_is_an_svg_of_the_rows_with_peers(self) -> None:
        rows = [result("a <row>", facetheory=[1.0], nginx=[2.0]), result("alone", facetheory=[1.0])]
        text = chart.draw(rows, ["one & two"])
        bars = [part for part in ElementTree.fromstring(text).iter() if part.get("class") in ("ours", "peer")]
        self.assertEqual(len(bars), 2)
        self.assertNotIn("alone", text)


class OptionTests(unittest.TestCase):
    def test_rows_are_measured_in_the_order_of_the_table(self) -> None:
        self.assertEqual(parse(["--rows", "pass,memory-8k"]).rows, ("memory-8k", "pass"))

    def test_a_row_that_takes_minutes_is_measured_only_by_name(self) -> None:
        self.assertNotIn("scale", parse([]).rows)
        self.assertEqual(parse(["--rows", "scale"]).rows, ("scale",))

    def test_quick_gives_way_to_other_options(self) -> None:
        given = parse(["--quick", "--rounds", "2"])
        self.assertEqual((given.rounds, given.seconds, given.pages), (2, 1, 4_000))


if __name__ == "__main__":
    unittest.main()
