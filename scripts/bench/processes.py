"""Processes: started on chosen cores, measured, and stopped by their own id."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .errors import BenchError

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
START_SECONDS = 20.0
STOP_SECONDS = 10.0
# <linux/prctl.h>: the signal that a process gets when the one that started it has died.
PR_SET_PDEATHSIG = 1


class Process:
    """A running program. Its standard output and standard error go to files."""

    def __init__(self, name: str, command: Sequence[str | Path], cores: frozenset[int], directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.output = directory / f"{name}.out"
        self.errors = directory / f"{name}.err"
        with open(self.output, "wb") as output, open(self.errors, "wb") as errors:
            self._child = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                preexec_fn=_placed_on(cores),
                # Ctrl-C reaches the benchmark alone, which then stops its servers in order.
                start_new_session=True,
            )

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Waits until the program is ready. If it ends or takes too long, stops it and fails."""
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if self._child.poll() is not None:
                raise BenchError(f"{self.name} did not start: {self.tail()}")
            if time.monotonic() > deadline:
                self.stop()
                raise BenchError(f"{self.name} was not ready after {START_SECONDS:.0f} s: {self.tail()}")
            time.sleep(0.02)

    def require_running(self) -> None:
        """Fails if the program has ended."""
        code = self._child.poll()
        if code is not None:
            how = f"by signal {-code}" if code < 0 else f"with code {code}"
            raise BenchError(f"{self.name} has ended {how}: {self.tail()}")

    def wait_until_ended(self) -> None:
        """Waits until the program has ended by itself; fails if it failed or takes too long."""
        try:
            code = self._child.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self.name} did not end: {self.tail()}") from None
        if code != 0:
            raise BenchError(f"{self.name} failed ({code}): {self.tail()}")

    def tail(self) -> str:
        """Returns the end of what the program printed."""
        text = self.errors.read_text(errors="replace") or self.output.read_text(errors="replace")
        return text.strip()[-600:] or "it printed nothing"

    def cpu_seconds(self) -> float:
        """Returns the CPU time of all its processes so far, including threads that have ended."""
        return sum(sum(_stat(pid)[11:15]) for pid in self._tree()) / TICKS_PER_SECOND

    def thread_seconds(self) -> dict[int, float]:
        """Returns the CPU time so far of each thread of all its processes."""
        seconds = {}
        for pid in self._tree():
            for thread in _ids(Path(f"/proc/{pid}/task")):
                fields = _stat(pid, thread)
                seconds[thread] = sum(fields[11:13]) / TICKS_PER_SECOND
        return seconds

    def rss_bytes(self) -> int:
        """Returns the resident memory of its processes. Pages that they share count once."""
        sizes = [_memory(pid) for pid in self._tree()]
        if not sizes:
            return 0
        largest = max(sizes)
        return largest[0] + sum(private for _, private in sizes) - largest[1]

    def stop(self) -> None:
        """Ends the program: SIGTERM, and SIGKILL if it does not follow."""
        if self._child.poll() is not None:
            return
        family = self._tree()
        self._child.terminate()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            for pid in family:
                _kill(pid)
            self._child.wait()

    def _tree(self) -> list[int]:
        """Returns the ids of the process and of all processes below it."""
        found = [self._child.pid]
        for pid in found:
            for thread in _ids(Path(f"/proc/{pid}/task")):
                found.extend(int(child) for child in _read(Path(f"/proc/{pid}/task/{thread}/children")).split())
        return found


class Processes:
    """All processes of a run, so that none is left over."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: list[Process] = []
        self._started = 0

    def start(self, name: str, command: Sequence[str | Path], cores: frozenset[int]) -> Process:
        self._started += 1
        process = Process(name, command, cores, self._directory / f"{self._started:03}")
        self._running.append(process)
        return process

    def stop(self, process: Process) -> None:
        process.stop()
        if process in self._running:
            self._running.remove(process)

    def stop_all(self) -> None:
        while self._running:
            self._running[-1].stop()
            self._running.pop()


def run(command: Sequence[str | Path], cores: frozenset[int], seconds: float) -> str:
    """Runs a program to its end and returns its standard output."""
    name = Path(str(command[0])).name
    with subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_placed_on(cores),
    ) as child:
        try:
            output, errors = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{name} did not end after {seconds:.0f} s") from None
        finally:
            child.kill()
    if child.returncode != 0:
        raise BenchError(f"{name} failed ({child.returncode}): {(errors or output).strip()[-600:]}")
    return output


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Whether something listens on this port."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def _placed_on(cores: frozenset[int]) -> Callable[[], None]:
    library = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        os.sched_setaffinity(0, cores)
        library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    return prepare


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _ids(directory: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(directory)]
    except FileNotFoundError:
        return []


def _read(path: Path) -> str:
    """Returns the text of a file of /proc; nothing if its process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _stat(pid: int, thread: int | None = None) -> list[int]:
    """Returns the fields of `stat` after the name; the first one, a letter, as 0."""
    path = Path(f"/proc/{pid}/stat" if thread is None else f"/proc/{pid}/task/{thread}/stat")
    # The name in parentheses may contain spaces and parentheses.
    fields = _read(path).rpartition(") ")[2].split()
    return [0, *(int(field) for field in fields[1:])] if fields else [0] * 50


def _memory(pid: int) -> tuple[int, int]:
    """Returns the resident and the private resident memory of a process in bytes."""
    resident = private = 0
    for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
        name, _, rest = line.partition(":")
        if name == "Rss":
            resident = int(rest.split()[0]) * 1024
        elif name in ("Private_Clean", "Private_Dirty"):
            private += int(rest.split()[0]) * 1024
    return resident, private
