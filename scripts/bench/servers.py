"""Starts the servers, each tuned for the same work."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from . import client
from .errors import BenchError
from .processes import Process, Processes, accepts, free_port

# The versions of a certificate that servers and clients of a run share.
CERTIFICATE_DAYS = "2"


@dataclass(frozen=True)
class Setup:
    """The work that a row wants of a server."""

    # "rule": every page is fresh for an hour. "origin": as the origin's headers say. "pass": nothing is cached.
    policy: str = "rule"
    tls: bool = False
    access_log: bool = False
    # Cores that the server runs on, and its worker processes or threads.
    workers: int = 1
    # For the gateway: [store] memory, further lines of the configuration, the admin listener.
    memory: str = "128MiB"
    rules: str = ""
    settings: str = ""
    admin: bool = False
    # The server runs on the cache that `pages.py` has filled.
    filled: bool = False


@dataclass
class Server:
    """A running server."""

    name: str
    process: Process
    port: int
    tls: bool = False
    admin_port: int = 0
    # It is stopped by the one who started it, after more than one row.
    shared: bool = False

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"


@dataclass
class Machine:
    """What all rows of a run share: programs, cores, the origin and a directory."""

    gateway: Path
    peer: Path
    baseline: Path | None
    directory: Path
    processes: Processes
    server_core: frozenset[int]
    load_core: frozenset[int]
    origin: Server = field(init=False)
    _started: int = 0

    def __post_init__(self) -> None:
        # Beside the load, so that a server that forwards requests has its core to itself.
        self.origin = _printing(self, "origin", [self.peer], self.load_core)

    @property
    def both_cores(self) -> frozenset[int]:
        return self.server_core | self.load_core

    def origin_requests(self) -> int:
        """Returns how many pages were requested from the origin so far."""
        connection = client.Connection(self.origin.port)
        try:
            connection.send("/-/requests")
            while connection.read() is None:
                pass
            return int(connection.text())
        finally:
            connection.close()

    def new_directory(self, name: str) -> Path:
        """Creates a directory for one start of a server."""
        self._started += 1
        directory = self.directory / f"{self._started:03}-{name}"
        directory.mkdir()
        return directory


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
        certificate, key = _certificate(machine.directory)
        command += ["--certificate", certificate, "--key", key]
    return _printing(machine, name, command, cores, admin=setup.admin)


def _facetheory(machine: Machine, setup: Setup, cores: frozenset[int]) -> Server:
    return start_gateway(machine, setup, cores)


def _baseline(machine: Machine, setup: Setup, cores: frozenset[int]) -> Server:
    return start_gateway(machine, setup, cores, baseline=True)


def _hyper(machine: Machine, setup: Setup, cores: frozenset[int]) -> Server:
    return _printing(machine, "hyper", [machine.peer], cores)


def _nginx(machine: Machine, setup: Setup, cores: frozenset[int]) -> Server:
    directory, port = machine.new_directory("nginx"), free_port()
    listen = f"127.0.0.1:{port}"
    # Without it, all connections may end up in one worker.
    listen += " reuseport" if setup.workers > 1 else ""
    tls = ""
    if setup.tls:
        certificate, key = _certificate(machine.directory)
        listen += " ssl http2"
        tls = f"ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;"
    cache = "" if setup.policy == "pass" else "proxy_cache pages; proxy_cache_lock on;"
    if setup.policy == "rule":
        cache += " proxy_cache_valid 200 1h;"
    log = f"{directory}/access.log combined buffer=64k flush=1s" if setup.access_log else "off"
    # The loader reads the cache of an earlier start a minute after the start. In one step it disturbs one round at most.
    (directory / "nginx.conf").write_text(f"""
{"user root;" if os.geteuid() == 0 else ""}
worker_processes {setup.workers};
worker_rlimit_nofile 16384;
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 8192; }}
http {{
  access_log {log};
  sendfile on;
  tcp_nopush on;
  keepalive_timeout 300s;
  keepalive_requests 1000000000;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  proxy_cache_path {directory}/cache levels=1:2 keys_zone=pages:64m max_size=20g inactive=1d use_temp_path=off
    loader_files=1000000 loader_threshold=60s;
  upstream origin {{
    server 127.0.0.1:{machine.origin.port};
    keepalive 256;
    keepalive_requests 1000000000;
  }}
  server {{
    listen {listen};
    {tls}
    location / {{
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      {cache}
    }}
  }}
}}
""")
    command: list[str | Path] = [
        "nginx",
        "-c",
        directory / "nginx.conf",
        "-e",
        directory / "error.log",
        "-p",
        directory,
    ]
    return _accepting(machine, "nginx", command, cores, port, setup.tls)


def _varnish(machine: Machine, setup: Setup, cores: frozenset[int]) -> Server:
    directory, port = machine.new_directory("varnish"), free_port()
    # Without `hash`, the built-in code passes requests with cookies through.
    receive = "pass" if setup.policy == "pass" else "hash"
    (directory / "site.vcl").write_text(f"""
vcl 4.1;
backend origin {{ .host = "127.0.0.1"; .port = "{machine.origin.port}"; }}
sub vcl_recv {{ return ({receive}); }}
""")
    command: list[str | Path] = [
        "varnishd",
        "-F",
        "-f",
        directory / "site.vcl",
        "-a",
        f"127.0.0.1:{port}",
        "-s",
        "malloc,1g",
    ]
    command += ["-n", directory / "work", "-j", "none", "-p", "thread_pools=1"]
    command += ["-p", "timeout_idle=300", "-p", f"vsl_mask={_varnish_log_mask()}"]
    return _accepting(machine, "varnish", command, cores, port, tls=False)


def _haproxy(machine: Machine, setup: Setup, cores: frozenset[int]) -> Server:
    directory, port = machine.new_directory("haproxy"), free_port()
    bind, cache = f"127.0.0.1:{port}", ""
    if setup.tls:
        certificate, key = _certificate(machine.directory)
        both = directory / "certificate.pem"
        both.write_text(certificate.read_text() + key.read_text())
        bind += f" ssl crt {both} alpn h2,http/1.1 ssl-min-ver TLSv1.3"
    if setup.policy != "pass":
        cache = "http-request cache-use pages\n  http-response cache-store pages"
    (directory / "haproxy.cfg").write_text(f"""
global
  nbthread {setup.workers}
  maxconn 8192
cache pages
  total-max-size 64
  max-object-size 1000000
  max-age 3600
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 60s
  http-reuse always
frontend clients
  bind {bind}
  {cache}
  default_backend origin
backend origin
  server origin 127.0.0.1:{machine.origin.port}
""")
    return _accepting(machine, "haproxy", ["haproxy", "-db", "-f", directory / "haproxy.cfg"], cores, port, setup.tls)


PROGRAMS: dict[str, Callable[[Machine, Setup, frozenset[int]], Server]] = {
    "facetheory": _facetheory,
    "baseline": _baseline,
    "hyper": _hyper,
    "nginx": _nginx,
    "varnish": _varnish,
    "haproxy": _haproxy,
}


def _printing(
    machine: Machine, name: str, command: list[str | Path], cores: frozenset[int], admin: bool = False
) -> Server:
    """Starts a program that chooses free ports and prints them."""
    process = machine.processes.start(name, command, cores)
    addresses: list[tuple[str, str]] = []

    def ready() -> bool:
        addresses[:] = re.findall(r"(https?)://127\.0\.0\.1:(\d+)/\n", process.output.read_text())
        return len(addresses) > admin

    process.wait_until(ready)
    admin_port = int(addresses[1][1]) if admin else 0
    return Server(name, process, int(addresses[0][1]), addresses[0][0] == "https", admin_port)


def _accepting(
    machine: Machine, name: str, command: list[str | Path], cores: frozenset[int], port: int, tls: bool
) -> Server:
    """Starts a program that listens on a port it was given."""
    process = machine.processes.start(name, command, cores)
    process.wait_until(lambda: accepts(port))
    return Server(name, process, port, tls)


@lru_cache
def _varnish_log_mask() -> str:
    """Returns the value of `vsl_mask` that switches every record of Varnish's log off."""
    text = subprocess.run(["varnishd", "-x", "vsl"], capture_output=True, text=True, check=False)
    tags = re.findall(r"^(\w+)\n-+$", text.stdout + text.stderr, re.MULTILINE)
    if not tags:
        raise BenchError("varnishd -x vsl does not list the records of its log")
    return ",".join(f"-{tag}" for tag in tags)


@lru_cache
def _certificate(directory: Path) -> tuple[Path, Path]:
    """Creates a certificate for the run; returns the files of certificate and key."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", CERTIFICATE_DAYS]
    command += ["-subj", f"/CN={client.HOST}", "-addext", f"subjectAltName=DNS:{client.HOST}"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise BenchError(f"openssl could not create a certificate: {made.stderr.strip()[-300:]}")
    return certificate, key
