"""A client with many connections in one thread: fills caches, measures stampedes, holds idle connections."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from .errors import BenchError

# Every server sees this host: it is a part of the cache key, and ports differ between starts.
HOST = "bench.test"
READ_BYTES = 256 * 1024
# No response takes longer than this, not even behind a busy store.
TIMEOUT_SECONDS = 30.0


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body_bytes: int
    seconds: float


@dataclass
class Connection:
    """A connection with at most one request under way."""

    port: int
    tls: bool = False
    socket: socket.socket = field(init=False)
    _received: bytearray = field(default_factory=bytearray)
    _began: float = 0.0

    def __post_init__(self) -> None:
        try:
            self.socket = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_SECONDS)
        except OSError as error:
            raise BenchError(f"no connection to port {self.port}: {error}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            # The certificate is self-signed and created for this run, so no authority can verify it.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)

    def send(self, path: str, headers: dict[str, str] | None = None) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._received.clear()
        self._began = time.perf_counter()
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n".encode())

    def read(self) -> Response | None:
        """Reads what has arrived; returns the response once it is complete."""
        received = self.socket.recv(READ_BYTES)
        if not received:
            raise BenchError(f"port {self.port} closed a connection before its response was complete")
        self._received += received
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = bytes(self._received[:end]).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status, body_bytes = int(first.split()[1]), len(self._received) - end - 4
        if status in (204, 304):
            complete = True
        elif "content-length" in headers:
            complete = body_bytes >= int(headers["content-length"])
        else:
            complete = self._received.endswith(b"0\r\n\r\n")
        seconds = time.perf_counter() - self._began
        return Response(status, headers, body_bytes, seconds) if complete else None

    def get(self, path: str, headers: dict[str, str] | None = None) -> Response:
        """Sends one request and waits for its response."""
        self.send(path, headers)
        response = None
        while response is None:
            try:
                response = self.read()
            except TimeoutError:
                raise BenchError(f"{path} got no response in {TIMEOUT_SECONDS:.0f} s") from None
        return response

    def text(self) -> str:
        """Returns the body of the last response."""
        return self._received.partition(b"\r\n\r\n")[2].decode()

    def close(self) -> None:
        self.socket.close()


def get(port: int, path: str, headers: dict[str, str] | None = None, tls: bool = False) -> Response:
    """Sends one request over a connection of its own."""
    connection = Connection(port, tls)
    try:
        return connection.get(path, headers)
    finally:
        connection.close()


def at_once(connections: Iterable[Connection], path: str) -> list[Response]:
    """Sends the same request over all connections before any response is read."""
    return list(_exchange(list(connections), iter([]), path))


def fetch_all(port: int, paths: Iterable[str], connections: int, done: Callable[[int], None]) -> None:
    """Requests all paths over this many connections; each response must be a 200. Reports the number of responses."""
    clients = [Connection(port) for _ in range(connections)]
    try:
        for count, response in enumerate(_exchange(clients, iter(paths), None), 1):
            if response.status != 200:
                raise BenchError(f"a page got status {response.status} while the cache was filled")
            if count % 256 == 0:
                done(count)
    finally:
        for client in clients:
            client.close()


def _exchange(clients: list[Connection], paths: Iterator[str], first: str | None) -> Iterator[Response]:
    """Sends a first request over each connection, then the next path over each one that becomes free."""
    poll = select.epoll()
    by_number = {client.socket.fileno(): client for client in clients}
    open_requests = 0
    try:
        for number, client in by_number.items():
            path = first if first is not None else next(paths, None)
            if path is None:
                break
            poll.register(number, select.EPOLLIN)
            client.send(path)
            open_requests += 1
        while open_requests:
            events = poll.poll(TIMEOUT_SECONDS)
            if not events:
                raise BenchError(f"{open_requests} requests got no response in {TIMEOUT_SECONDS:.0f} s")
            for number, _ in events:
                response = by_number[number].read()
                if response is None:
                    continue
                yield response
                path = next(paths, None)
                if path is None:
                    open_requests -= 1
                else:
                    by_number[number].send(path)
    finally:
        poll.close()
