"""Shares pages with FaceTheory through DynamoDB and S3, with boto3 alone.

Reads commands from standard input, one JSON object per line, runs them concurrently, and prints one JSON object for each:

    {"id": 1, "op": "visit", "key": "default::/news/{slug}?slug=a", "render": "http://127.0.0.1:3000/news/a", "recipe": "A"}
    {"id": 2, "op": "request", "key": …, "render": …, "recipe": "B", "idempotency_key": "order-7"}

`visit` serves a page: from the store if it is fresh, else it renders it under the lease and publishes it by recipe A (in place)
or B (a version and a pointer). `request` does so once for an idempotency key. The README describes the environment.
"""

import hashlib
import json
import os
import re
import secrets
import sys
import threading
import time
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

TABLE = os.environ["FACETHEORY_CACHE_TABLE_NAME"]
BUCKET = os.environ["FACETHEORY_ISR_BUCKET"]
PREFIX = os.environ.get("FACETHEORY_ISR_PREFIX", "isr").strip("/") + "/"
PK_PREFIX = os.environ.get("FACETHEORY_KEY_PREFIX", "CACHE#")
HASHED = os.environ.get("FACETHEORY_KEYS", "raw") == "hashed"
RELATIVE = os.environ.get("FACETHEORY_POINTERS", "absolute") == "relative"

LEASE_SECONDS = 30
REVALIDATE_SECONDS = 600
RETENTION_SECONDS = 30 * 86_400
LEASE_TTL_BUFFER_SECONDS = 3_600
REQUEST_TTL_SECONDS = 86_400
RENDER_TIMEOUT_SECONDS = 20
WAIT_SECONDS = 100
POLL_SECONDS = 0.1
WORKERS = 16
MAX_ATTEMPTS = 8
CONFLICTS = ("TransactionConflictException", "TransactionInProgressException")

# An operation that DynamoDB may have applied is not repeated blindly: a second conditional put would be refused by the first.
_ONCE = Config(retries={"total_max_attempts": 1}, max_pool_connections=WORKERS)
_db = boto3.client("dynamodb", config=_ONCE)
_s3 = boto3.client("s3", config=Config(max_pool_connections=WORKERS, s3={"addressing_style": "path"}))


def now():
    return int(time.time())


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def partition(key):
    """The partition of the rows of a page. A hash does not show the tenant, so it is in front."""
    tenant = key.split("::")[0]
    owner = f"TENANT#{tenant}#" if HASHED and tenant != "default" else ""
    return owner + PK_PREFIX + (sha256(key) if HASHED else key)


def request_sk(key):
    """The sort key of a request. A key that is not plain is hashed, so that it cannot name another row."""
    return "REQ#" + (key if re.fullmatch("[A-Za-z0-9_.:-]{0,128}", key) else "sha256=" + sha256(key))


def item(**attributes):
    """A row in the JSON of DynamoDB: text as S, whole numbers as N; absent values are left out."""
    kind = lambda value: {"N": str(value)} if isinstance(value, int) else {"S": value}
    return {name: kind(value) for name, value in attributes.items() if value is not None}


def plain(row):
    return {name: int(value["N"]) if "N" in value else value.get("S") for name, value in row.items()}


def get(pk, sk):
    row = _db.get_item(TableName=TABLE, Key=item(pk=pk, sk=sk), ConsistentRead=True).get("Item")
    return plain(row) if row else None


def current(pk):
    """The current render: META, or the version that it points at."""
    meta = get(pk, "META") or {}
    sk = meta.get("current_sk") or ""
    version = (get(pk, sk) if sk.startswith("VER#") else None) or meta
    found = {**meta, **version}
    if meta.get("s3_key", found.get("s3_key")) == found.get("s3_key") and "revalidate_seconds" in meta:
        found["revalidate_seconds"] = meta["revalidate_seconds"]  # an invalidation of this render sets it to 0
    return found if "s3_key" in found else None


def is_fresh(page):
    return page is not None and now() < page["generated_at"] + page.get("revalidate_seconds", REVALIDATE_SECONDS)


def lock(pk, token):
    expires = now() + LEASE_SECONDS
    row = item(pk=pk, sk="LOCK", lease_token=token, lease_expires_at=expires, ttl=expires + LEASE_TTL_BUFFER_SECONDS)
    return {
        "TableName": TABLE,
        "Item": row,
        "ConditionExpression": "attribute_not_exists(pk) OR lease_expires_at <= :now",
        "ExpressionAttributeValues": {":now": {"N": str(now())}},
    }


def unlock(pk, token, live):
    """The deletion of the lease: in a publish (`live`) only while it has not expired."""
    condition, values = "lease_token = :token", {":token": {"S": token}}
    if live:
        condition, values = condition + " AND lease_expires_at > :now", {**values, ":now": {"N": str(now())}}
    key = {"TableName": TABLE, "Key": item(pk=pk, sk="LOCK")}
    return {**key, "ConditionExpression": condition, "ExpressionAttributeValues": values}


class Refused(Exception):
    """A condition of a write did not hold."""


def write(operation, **request):
    """Sends a conditional write. A transaction of others on the same rows is a conflict, and the write is sent again."""
    for attempt in range(MAX_ATTEMPTS):
        try:
            return operation(**request)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            reasons = [reason.get("Code") for reason in error.response.get("CancellationReasons", [])]
            if code == "ConditionalCheckFailedException" or "ConditionalCheckFailed" in reasons:
                raise Refused from error
            if not ("TransactionConflict" in reasons or code in CONFLICTS) or attempt + 1 == MAX_ATTEMPTS:
                raise
        time.sleep(0.02 * 2**attempt)


def acquire(pk):
    """Takes the lease of a page; returns its token, or None if another service holds it."""
    token = str(uuid.uuid4())
    try:
        write(_db.put_item, **lock(pk, token))
        return token
    except Refused:
        return None


def release(pk, token):
    try:
        write(_db.delete_item, **unlock(pk, token, live=False))
    except Refused:
        pass  # it has been published, or another service has taken it over


def object_key(s3_key):
    """The key in the bucket: pointers are written in one form and read in all."""
    if s3_key.startswith("s3://"):
        return s3_key.split("/", 3)[3]
    return s3_key if s3_key.startswith(PREFIX) else PREFIX + s3_key


def read_body(page):
    return _s3.get_object(Bucket=BUCKET, Key=object_key(page["s3_key"]))["Body"].read().decode()


def store_body(key, body, content_type, started_ms):
    """Stores a body under a new key, and returns the pointer to it."""
    directory = sha256(key)[:24]
    pointer = f"{directory}/{started_ms}-{uuid.uuid4()}.html"
    metadata = {"facetheory-status": "200", "facetheory-content-type": content_type}
    _s3.put_object(Bucket=BUCKET, Key=PREFIX + pointer, Body=body, ContentType=content_type, Metadata=metadata)
    return pointer if RELATIVE else PREFIX + pointer


def version_id(ms):
    """A ULID: ids sort by age."""
    digits, number = "0123456789ABCDEFGHJKMNPQRSTVWXYZ", (ms << 80) | secrets.randbits(80)
    return "".join(digits[(number >> shift) & 31] for shift in range(125, -1, -5))


def publish(pk, token, recipe, pointer, etag, started_ms, request=None):
    """Publishes a render and deletes the lease, in one transaction that fails if the lease was lost."""
    started = started_ms // 1000
    content = {"s3_key": pointer, "generated_at": started, "revalidate_seconds": REVALIDATE_SECONDS, "etag": etag}
    ttl = started + RETENTION_SECONDS
    if recipe == "A":
        writes = [{"Put": {"TableName": TABLE, "Item": item(pk=pk, sk="META", ttl=ttl, **content)}}]
    else:
        sk = "VER#" + version_id(started_ms)
        version = {"TableName": TABLE, "Item": item(pk=pk, sk=sk, ttl=ttl, **content)}
        # META repeats the version, for readers that know only recipe A.
        copy = item(current_sk=sk, ttl=ttl, **content)
        pointer_update = {
            "TableName": TABLE,
            "Key": item(pk=pk, sk="META"),
            "UpdateExpression": "SET " + ", ".join(f"#{name} = :{name}" for name in copy) + " ADD version :one",
            "ExpressionAttributeNames": {f"#{name}": name for name in copy},
            "ExpressionAttributeValues": {":one": {"N": "1"}, **{f":{name}": value for name, value in copy.items()}},
        }
        writes = [{"Put": {**version, "ConditionExpression": "attribute_not_exists(pk)"}}, {"Update": pointer_update}]
    if request:
        writes.append({"Update": completed(pk, request, pointer)})
    writes.append({"Delete": unlock(pk, token, live=True)})
    write(_db.transact_write_items, TransactItems=writes, ClientRequestToken=str(uuid.uuid4()))


def completed(pk, request, pointer):
    return {
        "TableName": TABLE,
        "Key": item(pk=pk, sk=request_sk(request["key"])),
        "UpdateExpression": "SET #status = :completed, result_s3_key = :pointer",
        "ConditionExpression": "#status = :started AND request_hash = :hash",
        "ExpressionAttributeNames": {"#status": "status"},
        "ExpressionAttributeValues": {
            ":completed": {"S": "COMPLETED"},
            ":started": {"S": "STARTED"},
            ":pointer": {"S": pointer},
            ":hash": {"S": request["hash"]},
        },
    }


def render(command, pk, token, request=None):
    started_ms = int(time.time() * 1000)
    with urllib.request.urlopen(command["render"], timeout=RENDER_TIMEOUT_SECONDS) as response:
        body, content_type = response.read(), response.headers["content-type"]
    pointer = store_body(command["key"], body, content_type, started_ms)
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    publish(pk, token, command["recipe"], pointer, etag, started_ms, request)
    return {"body": body.decode(), "s3_key": pointer}


def visit(command):
    """Serves a page; renders it if it is not fresh and no other service does."""
    pk, waited, deadline = partition(command["key"]), False, time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        page = current(pk)
        if is_fresh(page):
            return {"state": "wait-hit" if waited else "hit", "body": read_body(page), "s3_key": page["s3_key"]}
        token = acquire(pk)
        if token is None:
            waited = True
            time.sleep(POLL_SECONDS)
            continue
        if is_fresh(current(pk)):  # it was published just before the lease was taken
            release(pk, token)
            continue
        try:
            return {"state": "miss", **render(command, pk, token)}
        except Refused:
            continue  # the lease was lost while rendering
        finally:
            release(pk, token)
    raise TimeoutError(f"{command['key']} was not rendered within {WAIT_SECONDS} s")


def request_hash(key, deployment="", policy_version=""):
    """Identifies the content of a request, alike in all languages."""
    escape = lambda part: part.replace("%", "%25").replace("|", "%7C")
    return sha256(f"{key}|{escape(deployment)}|{escape(policy_version)}")


def once(command):
    """Renders a page once for an idempotency key, whatever its freshness."""
    pk, token = partition(command["key"]), str(uuid.uuid4())
    hashed = request_hash(command["key"], command.get("deployment", ""))
    request = {"key": command.get("idempotency_key", hashed), "hash": hashed}
    sk = request_sk(request["key"])
    ttl = now() + REQUEST_TTL_SECONDS
    row = item(pk=pk, sk=sk, request_hash=hashed, status="STARTED", ttl=ttl)
    begin = {"TableName": TABLE, "Item": row, "ConditionExpression": "attribute_not_exists(pk)"}
    try:
        writes = [{"Put": begin}, {"Put": lock(pk, token)}]
        write(_db.transact_write_items, TransactItems=writes, ClientRequestToken=str(uuid.uuid4()))
    except Refused:
        found = get(pk, sk)
        if found is None:
            return {"state": "held"}
        if found["request_hash"] != hashed:
            return {"state": "mismatch"}
        return {"state": found["status"].lower(), "s3_key": found.get("result_s3_key")}
    try:
        return {"state": "done", **render(command, pk, token, request)}
    finally:
        release(pk, token)


def run(command):
    try:
        return {"id": command["id"], **{"visit": visit, "request": once}[command["op"]](command)}
    except Exception as error:  # the caller decides what a failed command means
        return {"id": command.get("id"), "error": f"{type(error).__name__}: {error}"}


def main():
    printing = threading.Lock()

    def work(line):
        result = json.dumps(run(json.loads(line)))
        with printing:
            print(result, flush=True)

    with ThreadPoolExecutor(WORKERS) as pool:
        for line in sys.stdin:
            pool.submit(work, line)


if __name__ == "__main__":
    main()
