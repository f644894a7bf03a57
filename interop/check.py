"""Checks that the gateway, the Python program and the TypeScript program share pages, leases and requests.

Started by scripts/test-interop, which installs the programs and names them in the environment. Each check counts the renders
of its pages at one origin that all three use.
"""

import hashlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import boto3

BUCKET = os.environ["FACETHEORY_TEST_S3_BUCKET"]
GATEWAY = os.environ["FACETHEORY_GATEWAY"]
PROGRAMS = {
    "python": [sys.executable, str(Path(__file__).parent / "python" / "isr.py")],
    "typescript": ["node", os.environ["FACETHEORY_INTEROP_TYPESCRIPT"]],
}

# The pointers and the partition keys of each run.
RUNS = (("absolute", "raw"), ("relative", "raw"), ("absolute", "hashed"))
RENDER_SECONDS = 0.3
# Limits for a process that never responds; a busy machine takes long.
READY_SECONDS = 120
READY_POLL_SECONDS = 0.5
RESULT_SECONDS = 120
# A generation counts as later than an invalidation if it is more than two seconds later.
SKEW_SECONDS = 3
# Longer than the gateway uses the metadata in its memory: `metadata_max_age` is one second.
METADATA_SECONDS = 1.5
LEASE_SECONDS = 600
# Longer than the interval of every route.
STALE_SECONDS = 3_600
CONTENDED_PAGES = 6
ROUNDS = 3
CLIENTS = 6

db = boto3.client("dynamodb")
s3 = boto3.client("s3")


class Origin:
    """Renders slowly, and counts the renders of each path."""

    def __init__(self):
        self.renders, counting = {}, threading.Lock()
        origin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                with counting:
                    number = origin.renders[self.path] = origin.renders.get(self.path, 0) + 1
                time.sleep(RENDER_SECONDS)
                body = f"<p>{self.path}, render {number}</p>".encode()
                self.send_response(200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Process:
    """A process whose lines of standard output are read in the background."""

    def __init__(self, command, environment, on_line):
        # Standard error is inherited: it explains a failure.
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

        def read():
            for line in self.process.stdout:
                on_line(line)

        threading.Thread(target=read, daemon=True).start()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Program:
    """A program in another language, which executes commands concurrently."""

    def __init__(self, language, environment):
        self.results, self.number, self.writing = {}, 0, threading.Lock()
        self.process = Process(PROGRAMS[language], environment, self._on_line)

    def _on_line(self, line):
        result = json.loads(line)
        self.results[result["id"]].set_result(result)

    def start(self, op, page, **command):
        with self.writing:
            self.number += 1
            future = self.results[self.number] = Future()
            line = {"id": self.number, "op": op, "key": page.key, "render": page.origin_url, **command}
            self.process.process.stdin.write(json.dumps(line) + "\n")
            self.process.process.stdin.flush()
        return future

    def run(self, op, page, **command):
        result = self.start(op, page, **command).result(RESULT_SECONDS)
        assert "error" not in result, result
        return result


class Gateway:
    """`facetheory serve` with the keys of TypeScript services."""

    def __init__(self, directory, origin, table, prefix, pointers, keys):
        config = Path(directory) / "facetheory.toml"
        config.write_text(
            f"""
            origin = "{origin.url}"
            listen = "127.0.0.1:0"
            site = "www.example.com"
            # The checks name tenants in a header, as a proxy does.
            trusted_proxies = ["127.0.0.1"]
            log = "off"
            [admin]
            listen = "127.0.0.1:0"
            [store]
            table = "dynamodb:{table}"
            bodies = "s3://{BUCKET}/{prefix}"
            keys = "{keys}"
            key_form = "facetheory-ts"
            pointers = "{pointers}"
            # A busy machine may be slow; no check waits for these.
            [timeouts]
            table = "20s"
            bodies = "1m"
            publish = "2m"
            [routes]
            "/news/{{slug}}" = {{ isr = "10m", wait_timeout = "100s" }}
            "/docs/{{page+}}" = {{ isr = "10m", wait_timeout = "100s", versions = 3 }}
            "/shop/{{slug}}" = {{ isr = "10m", wait_timeout = "100s", tenant = {{ header = "x-tenant-id" }} }}
            """
        )
        self.lines = queue.Queue()
        self.process = Process([GATEWAY, "serve", "--config", str(config)], dict(os.environ), self.lines.put)

    def wait_until_ready(self):
        """Reads the two addresses that the gateway prints."""
        found, deadline = [], time.monotonic() + READY_SECONDS
        while len(found) < 2:
            assert time.monotonic() < deadline, f"the gateway did not print its addresses within {READY_SECONDS} s"
            # Before the lines are read, so that the last lines of a process that has exited count.
            status = self.process.process.poll()
            try:
                line = self.lines.get(timeout=READY_POLL_SECONDS)
            except queue.Empty:
                assert status is None, f"the gateway exited with {status}; its messages are above"
                continue
            found += [word.strip(".,)/") for word in line.split() if word.startswith("http://127.0.0.1:")]
        self.url, self.admin = found[:2]

    def get(self, page):
        request = urllib.request.Request(self.url + page.target, headers=page.headers)
        with urllib.request.urlopen(request, timeout=RESULT_SECONDS) as response:
            return response.read().decode(), response.headers["x-facetheory-isr"]

    def post(self, endpoint, page, fields=None, **headers):
        selected = {"url": "http://www.example.com" + page.target, "headers": page.headers}
        body = json.dumps({**selected, **(fields or {})}).encode()
        headers = {"content-type": "application/json", **headers}
        request = urllib.request.Request(f"{self.admin}/api/v1/{endpoint}", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=RESULT_SECONDS) as response:
                return response.status, response.headers, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, error.headers, json.load(error)

    def show(self, endpoint, page):
        url = quote("http://www.example.com" + page.target, safe="")
        with urllib.request.urlopen(f"{self.admin}/api/v1/{endpoint}?url={url}", timeout=RESULT_SECONDS) as response:
            return json.load(response)

    def regenerate(self, page, key=None):
        """Sends a request to regenerate a page; returns the status and whether an earlier result was replayed."""
        headers = {} if key is None else {"idempotency-key": key}
        status, headers, _ = self.post("regenerate", page, **headers)
        return status, headers["idempotency-replayed"] == "true"


# The pattern of each route, and its parameter. The pages of `shop` belong to a tenant.
ROUTES = {"news": ("/news/{slug}", "slug"), "docs": ("/docs/{page+}", "page"), "shop": ("/shop/{slug}", "slug")}
TENANT = "acme"


class Page:
    """A page that no other check uses, unless it has the same name."""

    def __init__(self, origin, keys, name, route, tenant):
        self.origin, self.name, self.headers = origin, name, {}
        pattern, parameter = ROUTES[route]
        if tenant is not None:
            self.headers = {"x-tenant-id": tenant}
        self.target = f"/{route}/{name}%20w?B=1&a=x+y&q"
        # The path is encoded once more; the query is decoded, sorted and encoded again.
        query = "a=x%20y&B=1&q="
        self.key = f"{tenant or 'default'}::{pattern}?{parameter}={quote(name, safe='')}%2520w&{query}"
        self.origin_path = f"/{route}/{name}%20w?{query}"
        self.origin_url = origin.url + self.origin_path
        owner = "" if keys == "raw" or tenant is None else f"TENANT#{tenant}#"
        self.pk = f"{owner}CACHE#" + (sha256(self.key) if keys == "hashed" else self.key)

    @property
    def renders(self):
        return self.origin.renders.get(self.origin_path, 0)

    def row(self, table, sk="META"):
        key = {"pk": {"S": self.pk}, "sk": {"S": sk}}
        return db.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")

    def put(self, table, sk, **attributes):
        """Writes a row as another service does: texts, and whole numbers."""
        kind = lambda value: {"N": str(value)} if isinstance(value, int) else {"S": value}
        row = {name: kind(value) for name, value in {"pk": self.pk, "sk": sk, **attributes}.items()}
        db.put_item(TableName=table, Item=row)


class Site:
    """One table with all three services."""

    def __init__(self, directory, origin, pointers, keys):
        self.origin, self.pointers, self.keys, self.directory = origin, pointers, keys, directory
        self.programs, self.gateway = {}, None
        self.table, self.prefix = f"interop-{uuid.uuid4().hex[:12]}", f"interop-{uuid.uuid4().hex[:12]}"

    def start(self):
        db.create_table(
            TableName=self.table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        )
        db.update_time_to_live(
            TableName=self.table, TimeToLiveSpecification={"Enabled": True, "AttributeName": "ttl"}
        )
        environment = {
            **os.environ,
            "FACETHEORY_CACHE_TABLE_NAME": self.table,
            "FACETHEORY_ISR_BUCKET": BUCKET,
            "FACETHEORY_ISR_PREFIX": self.prefix,
            "FACETHEORY_KEYS": self.keys,
            "FACETHEORY_POINTERS": self.pointers,
        }
        for language in PROGRAMS:
            self.programs[language] = Program(language, environment)
        self.gateway = Gateway(self.directory, self.origin, self.table, self.prefix, self.pointers, self.keys)
        self.gateway.wait_until_ready()

    def stop(self):
        """Stops everything that was started, also if `start` failed."""
        for service in [self.gateway, *self.programs.values()]:
            if service is not None:
                service.process.stop()
        try:
            db.delete_table(TableName=self.table)
        except db.exceptions.ResourceNotFoundException:
            pass

    def page(self, name, route="news"):
        tenant = TENANT if route == "shop" else None
        return Page(self.origin, self.keys, f"{name}-{uuid.uuid4().hex[:8]}", route, tenant)

    def of_other_tenant(self, page):
        return Page(self.origin, self.keys, page.name, "shop", "other")


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def expect(actual, expected, what):
    assert actual == expected, f"{what}: {actual!r}, expected {expected!r}"


def a_page_of_a_program_is_served_by_the_gateway_and_by_the_other_program(site):
    for language, program in site.programs.items():
        for recipe in "AB":
            for route in ROUTES:
                what, page = f"{language}, recipe {recipe}, {route}", site.page(language, route)
                rendered = program.run("visit", page, recipe=recipe)
                expect(rendered["state"], "miss", what)
                expect(site.gateway.get(page), (rendered["body"], "hit"), what)
                for other in site.programs.values():
                    found = other.run("visit", page, recipe=recipe)
                    expect((found["state"], found["body"]), ("hit", rendered["body"]), what)
                expect(page.renders, 1, f"renders of {what}")


def a_page_of_the_gateway_is_served_by_the_programs(site):
    for route in ROUTES:
        page = site.page("gateway", route)
        body, state = site.gateway.get(page)
        expect(state, "miss", route)
        pointer = page.row(site.table)["s3_key"]["S"]
        expect(pointer.startswith(site.prefix), site.pointers == "absolute", f"the pointer {pointer} has the prefix")
        for language, program in site.programs.items():
            found = program.run("visit", page, recipe="A")
            expect((found["state"], found["body"]), ("hit", body), language)
        expect(page.renders, 1, "renders")


def a_pointer_without_a_copy_is_followed(site):
    """Recipe B with nothing but `current_sk` and `version` in META."""
    page = site.page("bare")
    rendered = site.programs["python"].run("visit", page, recipe="A")
    pk = {"S": page.pk}
    version = {name: value for name, value in page.row(site.table).items() if name not in ("pk", "sk", "revalidate_seconds")}
    version = {**version, "pk": pk, "sk": {"S": "VER#01"}}
    meta = {"pk": pk, "sk": {"S": "META"}, "current_sk": {"S": "VER#01"}, "version": {"N": "1"}}
    for row in (version, meta):
        db.put_item(TableName=site.table, Item=row)
    expect(site.gateway.get(page), (rendered["body"], "hit"), "the gateway")
    for language, program in site.programs.items():
        expect(program.run("visit", page, recipe="B")["body"], rendered["body"], language)
    expect(page.renders, 1, "renders")


def a_page_of_a_tenant_is_not_served_to_another_tenant(site):
    page = site.page("owned", "shop")
    other = site.of_other_tenant(page)
    expect((site.gateway.get(page)[1], page.renders), ("miss", 1), "the page of the tenant")
    for language, program in site.programs.items():
        expect(program.run("visit", page, recipe="A")["state"], "hit", language)
    expect(site.programs["python"].run("visit", other, recipe="A")["state"], "miss", "a program, for another tenant")
    for language, program in site.programs.items():
        expect(program.run("visit", other, recipe="A")["state"], "hit", language)
    expect((site.gateway.get(other)[1], page.renders), ("hit", 2), "the gateway, for another tenant")


def a_publish_by_the_gateway_to_a_pointer_without_a_copy_keeps_other_attributes(site):
    """META with `current_sk`, `version` and an attribute of another service, which points at a version that is stale."""
    for route in ROUTES:
        page = site.page("bare-publish", route)
        rendered = site.programs["python"].run("visit", page, recipe="A")
        row = page.row(site.table)
        generated_at = int(row["generated_at"]["N"]) - STALE_SECONDS
        page.put(site.table, "VER#01", s3_key=row["s3_key"]["S"], generated_at=generated_at, etag=row["etag"]["S"])
        page.put(site.table, "META", current_sk="VER#01", version=1, owner="another service")
        expect(site.gateway.regenerate(page, uuid.uuid4().hex), (200, False), route)
        meta = page.row(site.table)
        expect((meta["owner"]["S"], meta["version"]["N"]), ("another service", "2"), f"META of {route}")
        current = meta["current_sk"]["S"]
        assert current.startswith("VER#") and current != "VER#01", f"{route}: the pointer is {current}"
        expect(page.row(site.table, current)["s3_key"], meta["s3_key"], f"the version of {route}")
        body = f"<p>{page.origin_path}, render 2</p>"
        assert body != rendered["body"]
        expect(site.gateway.get(page)[0], body, f"the gateway, {route}")
        for language, program in site.programs.items():
            found = program.run("visit", page, recipe="B")
            expect((found["state"], found["body"]), ("hit", body), f"{language}, {route}")
        expect(page.renders, 2, f"renders of {route}")


def an_invalidation_by_the_gateway_is_seen_by_the_programs_and_their_render_by_the_gateway(site):
    for language, program in site.programs.items():
        for recipe in "AB":
            what, page = f"{language}, recipe {recipe}", site.page("invalidated")
            site.gateway.get(page)
            expect(site.gateway.post("invalidate", page)[2], {"outcome": "stale"}, what)
            rendered = program.run("visit", page, recipe=recipe)
            expect((rendered["state"], page.renders), ("miss", 2), what)
            # The gateway reads the table again after `metadata_max_age`, one second.
            deadline = time.monotonic() + RESULT_SECONDS
            while site.gateway.get(page)[0] != rendered["body"]:
                assert time.monotonic() < deadline, f"{what}: the gateway does not serve the new render"
                time.sleep(0.1)
            expect(page.renders, 2, f"renders of {what}")


def services_in_all_languages_render_a_contended_page_once(site):
    """In the first round the pages are missing. Before each further one they are invalidated, so that they are stale."""
    pages = [site.page("contended", route) for route in ROUTES for _ in range(CONTENDED_PAGES // len(ROUTES))]
    for number in range(1, ROUNDS + 1):
        # The gateway serves a stale page while it, or a program, renders the next one. Programs wait for it.
        new = {page: f"<p>{page.origin_path}, render {number}</p>" for page in pages}
        stale = {page: f"<p>{page.origin_path}, render {number - 1}</p>" for page in pages}
        with ThreadPoolExecutor(len(pages) * CLIENTS) as clients:
            responses = [(page, clients.submit(site.gateway.get, page)) for page in pages for _ in range(CLIENTS)]
            recipes = {"python": "A", "typescript": "B"}
            results = [
                (page, program.start("visit", page, recipe=recipes[language]))
                for _ in range(CLIENTS)
                for page in pages
                for language, program in site.programs.items()
            ]
            for page, response in responses:
                body, state = response.result(RESULT_SECONDS)
                expect(body, stale[page] if state == "stale" else new[page], f"round {number}, {state}")
            for page, result in results:
                expect(result.result(RESULT_SECONDS).get("body"), new[page], f"round {number}, a program")
        for page in pages:
            deadline = time.monotonic() + RESULT_SECONDS
            while site.gateway.get(page)[0] != new[page]:
                assert time.monotonic() < deadline, f"round {number}: the gateway does not serve the new render"
                time.sleep(0.1)
        expect([page.renders for page in pages], [number] * len(pages), f"renders after round {number}")
        for page in pages:
            expect(site.gateway.post("invalidate", page)[2], {"outcome": "stale"}, f"round {number}")


def a_request_is_executed_once_across_languages(site):
    for language, program in site.programs.items():
        for recipe in "AB":
            what, page = f"{language}, recipe {recipe}", site.page("request")
            identity = {"idempotency_key": uuid.uuid4().hex, "recipe": recipe}
            first = program.run("request", page, **identity)
            expect(first["state"], "done", what)
            for other in site.programs.values():
                again = other.run("request", page, **identity)
                expect((again["state"], again["s3_key"]), ("completed", first["s3_key"]), what)
                conflict = other.run("request", page, deployment="another", **identity)
                expect(conflict["state"], "mismatch", what)
            site.gateway.post("invalidate", page)
            replayed = site.gateway.regenerate(page, identity["idempotency_key"])
            expect(replayed, (200, True), f"the gateway replays the request of {what}")
            expect(page.renders, 1, f"renders of {what}")


def a_request_of_the_gateway_is_respected_by_the_programs(site):
    page, key = site.page("gateway-request"), uuid.uuid4().hex
    expect((site.gateway.regenerate(page, key), page.renders), ((200, False), 1), "the gateway")
    for language, program in site.programs.items():
        again = program.run("request", page, idempotency_key=key, recipe="A")
        expect((again["state"], again["s3_key"]), ("completed", page.row(site.table)["s3_key"]["S"]), language)
    expect(page.renders, 1, "renders")


def a_request_whose_key_is_not_plain_is_found_by_all(site):
    """Such a key is hashed: `REQ#sha256=<hex>`."""
    for key in ("order=7/a+b", "x" * 129, "plain_key.7:a-b" + "x" * 113):
        for language, program in site.programs.items():
            what, page = f"{language}, key {key[:12]}", site.page("odd-key")
            unique = key[: len(key) - 8] + uuid.uuid4().hex[:8]
            first = program.run("request", page, idempotency_key=unique, recipe="A")
            expect(first["state"], "done", what)
            site.gateway.post("invalidate", page)
            expect(site.gateway.regenerate(page, unique), (200, True), f"the gateway replays the request of {what}")
            page, other = site.page("odd-key-of-the-gateway"), unique + "=" if "=" in unique else unique[::-1]
            expect(site.gateway.regenerate(page, other), (200, False), "the gateway")
            again = program.run("request", page, idempotency_key=other, recipe="A")
            expect((again["state"], page.renders), ("completed", 1), f"{what}, request of the gateway")


def a_request_without_a_key_has_the_same_derived_key_in_all(site):
    for language, program in site.programs.items():
        page = site.page("derived")
        first = program.run("request", page, recipe="A")
        expect(first["state"], "done", language)
        site.gateway.post("invalidate", page)
        expect(site.gateway.regenerate(page), (200, True), f"the gateway replays the request of {language}")
        page = site.page("derived-by-the-gateway")
        expect(site.gateway.regenerate(page), (200, False), "the gateway")
        again = program.run("request", page, recipe="A")
        expect((again["state"], page.renders), ("completed", 1), f"{language}, request of the gateway")


def a_request_that_another_service_has_started_is_in_progress_while_its_lease_is_held(site):
    page, key, now = site.page("started"), uuid.uuid4().hex, int(time.time())
    identity = {"request_hash": sha256(f"{page.key}||"), "status": "STARTED"}
    page.put(site.table, f"REQ#{key}", **identity)
    page.put(site.table, "LOCK", lease_token="theirs", lease_expires_at=now + LEASE_SECONDS)
    expect((site.gateway.regenerate(page, key)[0], page.renders), (409, 0), "while the lease is held")
    page.put(site.table, "LOCK", lease_token="theirs", lease_expires_at=now - LEASE_SECONDS)
    expect((site.gateway.regenerate(page, key), page.renders), ((200, False), 1), "after the lease")
    expect(page.row(site.table, f"REQ#{key}")["status"], {"S": "COMPLETED"}, "the request")


def a_pointer_with_the_bucket_is_read(site):
    page = site.page("bucket")
    rendered = site.programs["python"].run("visit", page, recipe="A")
    key = rendered["s3_key"] if site.pointers == "absolute" else f"{site.prefix}/{rendered['s3_key']}"
    meta = page.row(site.table)
    meta["s3_key"] = {"S": f"s3://{BUCKET}/{key}"}
    db.put_item(TableName=site.table, Item=meta)
    expect(site.gateway.get(page), (rendered["body"], "hit"), "the gateway")
    expect(page.renders, 1, "renders")


def a_publish_by_a_program_ends_a_hard_invalidation(site):
    for recipe in "AB":
        for route in ("news", "docs"):
            pages = {language: site.page("hard", route) for language in site.programs}
            for page in pages.values():
                # Recipe B updates META, and leaves the attributes of the gateway in it.
                site.programs["python"].run("visit", page, recipe=recipe)
                site.gateway.get(page)
                outcome = site.gateway.post("invalidate", page, {"hard": True})[2]
                expect(outcome, {"outcome": "stale"}, "the invalidation")
                expect(site.gateway.show("entry", page)["state"], "must-not-serve", "the entry")
            time.sleep(SKEW_SECONDS)
            for language, page in pages.items():
                what = f"{language}, recipe {recipe}, {route}"
                rendered = site.programs[language].run("visit", page, recipe=recipe)
                expect((rendered["state"], page.renders), ("miss", 2), what)
            time.sleep(METADATA_SECONDS)
            for language, page in pages.items():
                what = f"{language}, recipe {recipe}, {route}"
                expect(site.gateway.show("entry", page)["state"], "fresh", what)
                expect(site.gateway.get(page)[0], f"<p>{page.origin_path}, render 2</p>", what)
                expect(page.renders, 2, f"renders of {what}")


def a_publish_by_a_program_ends_a_pin(site):
    for recipe in "AB":
        for language, program in site.programs.items():
            what, page = f"{language}, recipe {recipe}", site.page("pin", "docs")
            site.gateway.get(page)
            site.gateway.post("invalidate", page)
            expect(site.gateway.regenerate(page, uuid.uuid4().hex), (200, False), what)
            version = site.gateway.show("history", page)["versions"][-1]["version"]
            expect(site.gateway.post("rollback", page, {"version": version})[0], 200, what)
            expect(site.gateway.show("entry", page)["pinned"], True, what)
            expect(site.gateway.post("invalidate", page)[2], {"outcome": "pinned"}, what)
            rendered = program.run("request", page, idempotency_key=uuid.uuid4().hex, recipe=recipe)
            expect(rendered["state"], "done", what)
            expect(site.gateway.show("entry", page)["pinned"], False, what)
            time.sleep(METADATA_SECONDS)
            expect(site.gateway.get(page), (rendered["body"], "hit"), what)
            expect(site.gateway.post("invalidate", page)[2], {"outcome": "stale"}, what)
            expect(site.gateway.show("entry", page)["state"], "stale", what)


CHECKS = [
    a_page_of_a_program_is_served_by_the_gateway_and_by_the_other_program,
    a_page_of_the_gateway_is_served_by_the_programs,
    a_pointer_without_a_copy_is_followed,
    a_page_of_a_tenant_is_not_served_to_another_tenant,
    a_publish_by_the_gateway_to_a_pointer_without_a_copy_keeps_other_attributes,
    an_invalidation_by_the_gateway_is_seen_by_the_programs_and_their_render_by_the_gateway,
    services_in_all_languages_render_a_contended_page_once,
    a_request_is_executed_once_across_languages,
    a_request_of_the_gateway_is_respected_by_the_programs,
    a_request_whose_key_is_not_plain_is_found_by_all,
    a_request_without_a_key_has_the_same_derived_key_in_all,
    a_request_that_another_service_has_started_is_in_progress_while_its_lease_is_held,
    a_pointer_with_the_bucket_is_read,
    a_publish_by_a_program_ends_a_hard_invalidation,
    a_publish_by_a_program_ends_a_pin,
]


def main():
    origin, failed = Origin(), 0
    for pointers, keys in RUNS:
        with tempfile.TemporaryDirectory() as directory:
            site = Site(directory, origin, pointers, keys)
            try:
                site.start()
                for check in CHECKS:
                    name, began = check.__name__.replace("_", " "), time.monotonic()
                    try:
                        check(site)
                        print(f"ok      {pointers} pointers, {keys} keys: {name} ({time.monotonic() - began:.1f} s)", flush=True)
                    except Exception as error:  # the other checks still run
                        failed += 1
                        print(f"FAILED  {pointers} pointers, {keys} keys: {name}: {type(error).__name__}: {error}", flush=True)
            finally:
                site.stop()
    sys.exit(f"{failed} checks failed" if failed else 0)


if __name__ == "__main__":
    main()
