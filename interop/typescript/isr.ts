// Shares pages with FaceTheory through DynamoDB and S3, with the AWS SDK alone. The commands, results and environment are those
// of ../python/isr.py; the README describes them.

import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type AttributeValue,
  DeleteItemCommand,
  DynamoDBClient,
  GetItemCommand,
  PutItemCommand,
  TransactionCanceledException,
  type TransactWriteItem,
  TransactWriteItemsCommand,
} from '@aws-sdk/client-dynamodb';
import { GetObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';

const setting = (name: string, fallback?: string): string => {
  const value = process.env[name] ?? fallback;
  if (value === undefined) throw new Error(`set ${name}`);
  return value;
};
const TableName = setting('FACETHEORY_CACHE_TABLE_NAME');
const Bucket = setting('FACETHEORY_ISR_BUCKET');
const PREFIX = `${setting('FACETHEORY_ISR_PREFIX', 'isr').replace(/^\/+|\/+$/g, '')}/`;
const PK_PREFIX = setting('FACETHEORY_KEY_PREFIX', 'CACHE#');
const HASHED = setting('FACETHEORY_KEYS', 'raw') === 'hashed';
const RELATIVE = setting('FACETHEORY_POINTERS', 'absolute') === 'relative';

const LEASE_SECONDS = 30;
const REVALIDATE_SECONDS = 600;
const RETENTION_SECONDS = 30 * 86_400;
const LEASE_TTL_BUFFER_SECONDS = 3_600;
const REQUEST_TTL_SECONDS = 86_400;
const RENDER_TIMEOUT_MS = 20_000;
const WAIT_MS = 100_000;
const POLL_MS = 100;
const MAX_ATTEMPTS = 8;
const CONFLICTS = ['TransactionConflict', 'TransactionConflictException', 'TransactionInProgressException'];

// An operation that DynamoDB may have applied is not repeated blindly: a second conditional put would be refused by the first.
const db = new DynamoDBClient({ maxAttempts: 1 });
const s3 = new S3Client({ forcePathStyle: true });

type Row = Record<string, string | number>;
type Item = Record<string, AttributeValue>;
type Command = {
  id: number;
  op: string;
  key: string;
  render: string;
  recipe: 'A' | 'B';
  idempotency_key?: string;
  deployment?: string;
};
type Request = { key: string; hash: string };
type Result = { state: string; body?: string; s3_key?: string };

const now = (): number => Math.floor(Date.now() / 1000);
const sha256 = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex');

/** The partition of the rows of a page. A hash does not show the tenant, so it is in front. */
const partition = (key: string): string => {
  const [tenant] = key.split('::');
  const owner = HASHED && tenant !== 'default' ? `TENANT#${tenant}#` : '';
  return owner + PK_PREFIX + (HASHED ? sha256(key) : key);
};

/** The sort key of a request. A key that is not plain is hashed, so that it cannot name another row. */
const requestSk = (key: string): string => `REQ#${/^[\w.:-]{0,128}$/.test(key) ? key : `sha256=${sha256(key)}`}`;

/** A row in the JSON of DynamoDB: text as S, whole numbers as N. */
const item = (row: Row): Item =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => [name, typeof value === 'number' ? { N: String(value) } : { S: value }]),
  );

async function get(pk: string, sk: string): Promise<Row | undefined> {
  const { Item: found } = await db.send(new GetItemCommand({ TableName, Key: item({ pk, sk }), ConsistentRead: true }));
  if (!found) return undefined;
  const entries = Object.entries(found).flatMap(([name, { S, N }]): [string, string | number][] =>
    N !== undefined ? [[name, Number(N)]] : S !== undefined ? [[name, S]] : [],
  );
  return Object.fromEntries(entries);
}

/** The current render: META, or the version that it points at. */
async function current(pk: string): Promise<Row | undefined> {
  const meta = (await get(pk, 'META')) ?? {};
  const sk = String(meta['current_sk'] ?? '');
  const version = sk.startsWith('VER#') ? await get(pk, sk) : undefined;
  const found: Row = { ...meta, ...version };
  const { s3_key: copied = found['s3_key'], revalidate_seconds: interval } = meta;
  // An invalidation of this render sets the interval of META to 0.
  if (copied === found['s3_key'] && interval !== undefined) found['revalidate_seconds'] = interval;
  return found['s3_key'] === undefined ? undefined : found;
}

const isFresh = (page: Row | undefined): page is Row =>
  page !== undefined && now() < Number(page['generated_at']) + Number(page['revalidate_seconds'] ?? REVALIDATE_SECONDS);

const lock = (pk: string, token: string) => {
  const expires = now() + LEASE_SECONDS;
  const row = { pk, sk: 'LOCK', lease_token: token, lease_expires_at: expires, ttl: expires + LEASE_TTL_BUFFER_SECONDS };
  return {
    TableName,
    Item: item(row),
    ConditionExpression: 'attribute_not_exists(pk) OR lease_expires_at <= :now',
    ExpressionAttributeValues: item({ ':now': now() }),
  };
};

/** The deletion of the lease: in a publish (`live`) only while it has not expired. */
const unlock = (pk: string, token: string, live: boolean) => ({
  TableName,
  Key: item({ pk, sk: 'LOCK' }),
  ConditionExpression: live ? 'lease_token = :token AND lease_expires_at > :now' : 'lease_token = :token',
  ExpressionAttributeValues: item(live ? { ':token': token, ':now': now() } : { ':token': token }),
});

/** A condition of a write did not hold. */
class Refused extends Error {}

/** Sends a conditional write. A transaction of others on the same rows is a conflict, and the write is sent again. */
async function write(send: () => Promise<unknown>): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await send();
      return;
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      const reasons = error instanceof TransactionCanceledException ? (error.CancellationReasons ?? []) : [];
      const codes = [error.name, ...reasons.map(({ Code }) => Code)];
      if (codes.includes('ConditionalCheckFailedException') || codes.includes('ConditionalCheckFailed')) throw new Refused();
      if (!codes.some((code) => CONFLICTS.includes(code ?? '')) || attempt === MAX_ATTEMPTS) throw error;
    }
    await sleep(10 * 2 ** attempt);
  }
}

/** Takes the lease of a page; returns its token, or nothing if another service holds it. */
async function acquire(pk: string): Promise<string | undefined> {
  const token = randomUUID();
  try {
    await write(() => db.send(new PutItemCommand(lock(pk, token))));
    return token;
  } catch (error) {
    if (error instanceof Refused) return undefined;
    throw error;
  }
}

async function release(pk: string, token: string): Promise<void> {
  try {
    await write(() => db.send(new DeleteItemCommand(unlock(pk, token, false))));
  } catch (error) {
    // It has been published, or another service has taken it over.
    if (!(error instanceof Refused)) throw error;
  }
}

/** The key in the bucket: pointers are written in one form and read in all. */
function objectKey(pointer: string): string {
  if (pointer.startsWith('s3://')) return pointer.split('/').slice(3).join('/');
  return pointer.startsWith(PREFIX) ? pointer : PREFIX + pointer;
}

async function readBody(page: Row): Promise<string> {
  const { Body } = await s3.send(new GetObjectCommand({ Bucket, Key: objectKey(String(page['s3_key'])) }));
  return (await Body?.transformToString()) ?? '';
}

/** Stores a body under a new key, and returns the pointer to it. */
async function storeBody(key: string, body: Uint8Array, type: string, startedMs: number): Promise<string> {
  const pointer = `${sha256(key).slice(0, 24)}/${startedMs}-${randomUUID()}.html`;
  const Metadata = { 'facetheory-status': '200', 'facetheory-content-type': type };
  await s3.send(new PutObjectCommand({ Bucket, Key: PREFIX + pointer, Body: body, ContentType: type, Metadata }));
  return RELATIVE ? pointer : PREFIX + pointer;
}

/** A ULID: ids sort by age. */
function versionId(ms: number): string {
  const number = (BigInt(ms) << 80n) | BigInt(`0x${randomBytes(10).toString('hex')}`);
  const digit = (place: number): string =>
    '0123456789ABCDEFGHJKMNPQRSTVWXYZ'.charAt(Number((number >> BigInt(5 * (25 - place))) & 31n));
  return Array.from({ length: 26 }, (_, place) => digit(place)).join('');
}

/** Publishes a render and deletes the lease, in one transaction that fails if the lease was lost. */
async function publish(
  pk: string,
  token: string,
  command: Command,
  pointer: string,
  etag: string,
  startedMs: number,
  request?: Request,
): Promise<void> {
  const started = Math.floor(startedMs / 1000);
  const ttl = started + RETENTION_SECONDS;
  const content = { s3_key: pointer, generated_at: started, revalidate_seconds: REVALIDATE_SECONDS, etag, ttl };
  const sk = `VER#${versionId(startedMs)}`;
  // META repeats the version, for readers that know only recipe A.
  const copy = { current_sk: sk, ...content };
  const inPlace: TransactWriteItem[] = [{ Put: { TableName, Item: item({ pk, sk: 'META', ...content }) } }];
  const versioned: TransactWriteItem[] = [
    { Put: { TableName, Item: item({ pk, sk, ...content }), ConditionExpression: 'attribute_not_exists(pk)' } },
    {
      Update: {
        TableName,
        Key: item({ pk, sk: 'META' }),
        UpdateExpression: `SET ${Object.keys(copy).map((name) => `#${name} = :${name}`).join(', ')} ADD version :one`,
        ExpressionAttributeNames: Object.fromEntries(Object.keys(copy).map((name) => [`#${name}`, name])),
        ExpressionAttributeValues: item({
          ':one': 1,
          ...Object.fromEntries(Object.entries(copy).map(([name, value]) => [`:${name}`, value])),
        }),
      },
    },
  ];
  const completed = ({ key, hash }: Request): TransactWriteItem => ({
    Update: {
      TableName,
      Key: item({ pk, sk: requestSk(key) }),
      UpdateExpression: 'SET #status = :completed, result_s3_key = :pointer',
      ConditionExpression: '#status = :started AND request_hash = :hash',
      ExpressionAttributeNames: { '#status': 'status' },
      ExpressionAttributeValues: item({
        ':completed': 'COMPLETED',
        ':started': 'STARTED',
        ':pointer': pointer,
        ':hash': hash,
      }),
    },
  });
  const TransactItems = [
    ...(command.recipe === 'A' ? inPlace : versioned),
    ...(request ? [completed(request)] : []),
    { Delete: unlock(pk, token, true) },
  ];
  const transaction = new TransactWriteItemsCommand({ TransactItems, ClientRequestToken: randomUUID() });
  await write(() => db.send(transaction));
}

async function render(command: Command, pk: string, token: string, request?: Request): Promise<Result> {
  const startedMs = Date.now();
  const response = await fetch(command.render, { signal: AbortSignal.timeout(RENDER_TIMEOUT_MS) });
  if (!response.ok) throw new Error(`the origin responded ${response.status}`);
  const body = new Uint8Array(await response.arrayBuffer());
  const type = response.headers.get('content-type') ?? 'text/html; charset=utf-8';
  const pointer = await storeBody(command.key, body, type, startedMs);
  await publish(pk, token, command, pointer, `"${sha256(body).slice(0, 32)}"`, startedMs, request);
  return { state: '', body: new TextDecoder().decode(body), s3_key: pointer };
}

/** Serves a page; renders it if it is not fresh and no other service does. */
async function visit(command: Command): Promise<Result> {
  const pk = partition(command.key);
  const deadline = performance.now() + WAIT_MS;
  for (let waited = false; performance.now() < deadline; ) {
    const page = await current(pk);
    if (isFresh(page)) {
      return { state: waited ? 'wait-hit' : 'hit', body: await readBody(page), s3_key: String(page['s3_key']) };
    }
    const token = await acquire(pk);
    if (token === undefined) {
      waited = true;
      await sleep(POLL_MS);
      continue;
    }
    try {
      // It may have been published just before the lease was taken.
      if (isFresh(await current(pk))) continue;
      return { ...(await render(command, pk, token)), state: 'miss' };
    } catch (error) {
      // The lease was lost while rendering.
      if (!(error instanceof Refused)) throw error;
    } finally {
      await release(pk, token);
    }
  }
  throw new Error(`${command.key} was not rendered within ${WAIT_MS} ms`);
}

/** Identifies the content of a request, alike in all languages. */
function requestHash(key: string, deployment = '', policyVersion = ''): string {
  const escape = (part: string): string => part.replaceAll('%', '%25').replaceAll('|', '%7C');
  return sha256(`${key}|${escape(deployment)}|${escape(policyVersion)}`);
}

/** Renders a page once for an idempotency key, whatever its freshness. */
async function once(command: Command): Promise<Result> {
  const pk = partition(command.key);
  const token = randomUUID();
  const hash = requestHash(command.key, command.deployment);
  const request = { key: command.idempotency_key ?? hash, hash };
  const sk = requestSk(request.key);
  const row = { pk, sk, request_hash: hash, status: 'STARTED', ttl: now() + REQUEST_TTL_SECONDS };
  const begin = { TableName, Item: item(row), ConditionExpression: 'attribute_not_exists(pk)' };
  try {
    const TransactItems = [{ Put: begin }, { Put: lock(pk, token) }];
    const transaction = new TransactWriteItemsCommand({ TransactItems, ClientRequestToken: randomUUID() });
    await write(() => db.send(transaction));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    const found = await get(pk, sk);
    if (!found) return { state: 'held' };
    if (found['request_hash'] !== hash) return { state: 'mismatch' };
    return { state: String(found['status']).toLowerCase(), s3_key: String(found['result_s3_key'] ?? '') };
  }
  try {
    return { ...(await render(command, pk, token, request)), state: 'done' };
  } finally {
    await release(pk, token);
  }
}

async function run(line: string): Promise<void> {
  const command = JSON.parse(line) as Command;
  const result = await (command.op === 'request' ? once : visit)(command).catch((error: unknown) => ({ error: String(error) }));
  console.log(JSON.stringify({ id: command.id, ...result }));
}

for await (const line of createInterface({ input: process.stdin })) void run(line);
