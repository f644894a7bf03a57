"""The programs of a run: installed from Debian packages, or built."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from .errors import BenchError

PACKAGES = {
    "wrk": "wrk",
    "h2load": "nghttp2-client",
    "nginx": "nginx-light",
    "varnishd": "varnish",
    "haproxy": "haproxy",
    "openssl": "openssl",
}


def ensure_installed(say: Callable[[str], None]) -> None:
    """Installs the programs that are missing."""
    # Servers are often outside of the search path of a user.
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    missing = [PACKAGES[tool] for tool in PACKAGES if shutil.which(tool) is None]
    if not missing:
        return
    command = f"sudo apt-get install {' '.join(missing)}"
    if shutil.which("apt-get") is None:
        raise BenchError(f"these packages are missing; on Debian: {command}")
    say(f"installing the Debian packages {' '.join(missing)}")
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    for words in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        done = subprocess.run([*root, *environment, "apt-get", "-qq", *words], stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise BenchError(f"packages could not be installed; run: {command}")


def build_gateway(root: Path) -> Path:
    _cargo(root, "-p", "facetheory-cli", "--bin", "facetheory")
    return _target(root) / "release" / "facetheory"


def build_peer(root: Path) -> Path:
    target = _target(root) / "peer"
    _cargo(root, "--manifest-path", "scripts/peer/Cargo.toml", "--target-dir", str(target))
    return target / "release" / "peer"


def _target(root: Path) -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", root / "target")).resolve()


def _cargo(root: Path, *words: str) -> None:
    if subprocess.run(["cargo", "build", "--release", "--locked", *words], cwd=root, check=False).returncode != 0:
        raise BenchError("the build failed")
