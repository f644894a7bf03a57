"""Starts a server by the name of its program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import peers
from .errors import BenchError
from .machine import Machine, Server, Setup, certificate, printing


def start(machine: Machine, program: str, setup: Setup, cores: frozenset[int] | None = None) -> Server:
    """Starts a server on its core, or on other ones."""
    if cores is None:
        cores = machine.server_core if setup.workers == 1 else machine.both_cores
    return PROGRAMS[program](machine, setup, cores)


def start_gateway(
    machine: Machine, setup: Setup, cores: frozenset[int], data: Path | None = None, baseline: bool = False
) -> Server:
    """Starts a gateway, on a new store unless `data` names one."""
    name = "baseline" if baseline else "facetheory"
    binary = machine.baseline if baseline else machine.gateway
    if binary is None:
        raise BenchError("there is no binary to compare with; give --baseline")
    directory = machine.new_directory(name)
    rule = {"rule": '"/**" = { isr = "1h" }\n', "pass": '"/**" = false\n', "origin": ""}[setup.policy]
    config = directory / "facetheory.toml"
    config.write_text(
        f'[store]\nmemory = "{setup.memory}"\n'
        "[limits]\nnew_pages_per_second = 1000000\nconnections_per_address = 10000\n"
        f"{setup.settings}[routes]\n{rule}{setup.rules}"
    )
    command: list[str | Path] = [binary, "serve", "--origin", machine.origin.url, "--listen", "127.0.0.1:0"]
    command += ["--config", config, "--data", data or directory / "data", "--log", "json"]
    command += ["--admin", "127.0.0.1:0" if setup.admin else "off"]
    if not setup.access_log:
        command.append("--no-access-log")
    if setup.tls:
        chain, key = certificate(machine.directory)
        command += ["--certificate", chain, "--key", key]
    return printing(machine, name, command, cores, admin=setup.admin)


def _facetheory(machine: Machine, setup: Setup, cores: frozenset[int]) -> Server:
    return start_gateway(machine, setup, cores)


def _baseline(machine: Machine, setup: Setup, cores: frozenset[int]) -> Server:
    return start_gateway(machine, setup, cores, baseline=True)


PROGRAMS: dict[str, Callable[[Machine, Setup, frozenset[int]], Server]] = {
    "facetheory": _facetheory,
    "baseline": _baseline,
    "hyper": peers.hyper,
    "nginx": peers.nginx,
    "varnish": peers.varnish,
    "haproxy": peers.haproxy,
}
