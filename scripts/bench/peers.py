"""Starts the servers that the gateway is compared with, each tuned for the same work."""

from __future__ import annotations

import os
import re
import subprocess
from functools import lru_cache
from pathlib import Path

from .errors import BenchError
from .machine import Machine, Server, Setup, accepting, certificate, printing
from .processes import free_port


def hyper(machine: Machine, _setup: Setup, cores: frozenset[int]) -> Server:
    """Starts the bare hyper server, which has no cache."""
    return printing(machine, "hyper", [machine.peer], cores)


def nginx(machine: Machine, setup: Setup, cores: frozenset[int]) -> Server:
    """Starts nginx with proxy_cache, or as a proxy."""
    directory, port = machine.new_directory("nginx"), free_port()
    listen = f"127.0.0.1:{port}"
    # Without it, all connections may end up in one worker.
    listen += " reuseport" if setup.workers > 1 else ""
    tls = ""
    if setup.tls:
        chain, key = certificate(machine.directory)
        listen += " ssl http2"
        tls = f"ssl_certificate {chain}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;"
    cache = "" if setup.policy == "pass" else "proxy_cache pages; proxy_cache_lock on;"
    if setup.policy == "rule":
        cache += " proxy_cache_valid 200 1h;"
    log = f"{directory}/access.log combined buffer=64k flush=1s" if setup.access_log else "off"
    # It saves a packet, but the end of a page that is longer than a segment waits 40 ms for the client's delayed ACK.
    nopush = "off" if setup.long_pages else "on"
    # A minute after its start, nginx reads the whole cache. In one step that disturbs one round at most.
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
  tcp_nopush {nopush};
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
    return accepting(machine, "nginx", command, cores, port, setup.tls)


def varnish(machine: Machine, setup: Setup, cores: frozenset[int]) -> Server:
    """Starts Varnish, with its cache in memory."""
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
    return accepting(machine, "varnish", command, cores, port, tls=False)


def haproxy(machine: Machine, setup: Setup, cores: frozenset[int]) -> Server:
    """Starts HAProxy with its cache, or as a proxy."""
    directory, port = machine.new_directory("haproxy"), free_port()
    bind, cache = f"127.0.0.1:{port}", ""
    if setup.tls:
        chain, key = certificate(machine.directory)
        both = directory / "certificate.pem"
        both.write_text(chain.read_text() + key.read_text())
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
    return accepting(machine, "haproxy", ["haproxy", "-db", "-f", directory / "haproxy.cfg"], cores, port, setup.tls)


@lru_cache
def _varnish_log_mask() -> str:
    """Returns the value of `vsl_mask` that switches every record of Varnish's log off."""
    text = subprocess.run(["varnishd", "-x", "vsl"], capture_output=True, text=True, check=False)
    tags = re.findall(r"^(\w+)\n-+$", text.stdout + text.stderr, re.MULTILINE)
    if not tags:
        raise BenchError("varnishd -x vsl does not list the records of its log")
    return ",".join(f"-{tag}" for tag in tags)
