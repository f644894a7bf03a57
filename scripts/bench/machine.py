"""Resources that all rows of a run share: programs, cores, the origin, and how servers are started and found."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from . import client
from .errors import BenchError
from .processes import Process, Processes, accepts

CERTIFICATE_DAYS = "2"


@dataclass(frozen=True)
class Setup:
    """The work that a row wants of a server."""

    # "rule": every page is fresh for an hour. "origin": as the origin's headers say. "pass": nothing is cached.
    policy: str = "rule"
    tls: bool = False
    access_log: bool = False
    # A page with its head is longer than a segment of the loopback interface (64 KiB).
    long_pages: bool = False
    # Worker processes or threads, each with a core.
    workers: int = 1
    # For the gateway: [store] memory, further lines of the configuration, the admin listener.
    memory: str = "128MiB"
    rules: str = ""
    settings: str = ""
    admin: bool = False


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
    """Resources that all rows of a run share: programs, cores, the origin and a directory."""

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
        self.origin = printing(self, "origin", [self.peer], self.load_core)

    def ensure_origin(self) -> str | None:
        """Starts the origin again on its port if it has ended; returns how it ended."""
        try:
            self.origin.process.require_running()
        except BenchError as error:
            address = f"127.0.0.1:{self.origin.port}"
            self.processes.stop(self.origin.process)
            self.origin = printing(self, "origin", [self.peer, address], self.load_core)
            return str(error)
        return None

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


def printing(
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


def accepting(
    machine: Machine, name: str, command: list[str | Path], cores: frozenset[int], port: int, tls: bool
) -> Server:
    """Starts a program that listens on a port it was given."""
    process = machine.processes.start(name, command, cores)
    process.wait_until(lambda: accepts(port))
    return Server(name, process, port, tls)


@lru_cache
def certificate(directory: Path) -> tuple[Path, Path]:
    """Creates a certificate for the run; returns the files of certificate and key."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", CERTIFICATE_DAYS]
    command += ["-subj", f"/CN={client.HOST}", "-addext", f"subjectAltName=DNS:{client.HOST}"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise BenchError(f"openssl could not create a certificate: {made.stderr.strip()[-300:]}")
    return certificate, key
