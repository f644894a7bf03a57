// Writes keys.json: partition keys, cache keys, sort keys of requests, and ids of versions. `node keys.mjs > keys.json`
import { createHash } from 'node:crypto';

const sha256 = (text) => createHash('sha256').update(text).digest('hex');
const byLocale = (one, other) => one.localeCompare(other);
const encode = (name, value) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`;

/** The parameters of a path that matches the pattern, not decoded. */
function parameters(pattern, path) {
  const found = Object.create(null);
  const segments = path.split('/').slice(1);
  for (const [index, part] of pattern.split('/').slice(1).entries()) {
    const [, name, rest] = part.match(/^\{([^+*]+)([+*]?)\}$/) ?? [];
    const value = rest ? segments.slice(index).join('/') : segments[index];
    if (name && value) found[name] = value;
  }
  return found;
}

/** Values by name, in the order in which the names first occur. */
function group(pairs) {
  const values = Object.create(null);
  for (const [name, value] of pairs) (values[name] ??= []).push(value);
  return values;
}

/** The listed cookies: without quotation marks, decoded. */
function cookies(line, listed) {
  return line.split(';').flatMap((pair) => {
    const [, name, value] = pair.trim().match(/^([^=]+)=(.*)$/) ?? [];
    if (!name || !listed.includes(name.trim())) return [];
    const inner = value.trim().replace(/^"(.*)"$/, '$1');
    try { return [[name.trim(), decodeURIComponent(inner)]]; } catch { return [[name.trim(), inner]]; }
  });
}

/** The names and values that a service sees of a request, in its order, decoded as the key needs them. */
const seen = ({ pattern, path, query = '', headers = {}, listed = [], cookie = '' }) => ({
  params: Object.entries(parameters(pattern, path)),
  query: [...new URLSearchParams(query.replace(/^\?/, ''))],
  auth: Object.entries(headers).flatMap(([name, values]) => values.map((value) => [name, value])),
  cookies: cookies(cookie, listed),
});

const digest = (label, lines) => (lines.length ? [`${label}=${sha256(lines.join('\n')).slice(0, 24)}`] : []);

/** The key of what a service sees. The last cookie of a name counts. */
function cacheKey({ tenant = 'default', pattern }, seen) {
  const [params, query, auth, jar] = [seen.params, seen.query, seen.auth, seen.cookies].map(group);
  const encoded = (values) =>
    Object.keys(values).sort(byLocale).flatMap((name) => values[name].map((value) => encode(name, value)));
  const pairs = [...encoded(params), ...encoded(query)];
  const variants = [
    ...digest('auth', Object.keys(auth).sort(byLocale).map((name) => `${name}=${auth[name].join('\0')}`)),
    ...digest('cookies', Object.keys(jar).sort(byLocale).map((name) => `${name}=${jar[name].at(-1)}`)),
  ];
  return `${tenant}::${pattern}?${pairs.join('&')}${variants.length ? `#${variants.join('&')}` : ''}`;
}

const partition = [
  { name: 'hashed', scheme: 'hashed', cache_key: 'default::/about?' },
  { name: 'hashed, with a tenant', scheme: 'hashed', tenant: 'acme', cache_key: 'acme::/about?' },
  { name: 'hashed, any text', scheme: 'hashed', cache_key: '/' },
  { name: 'raw', scheme: 'raw', prefix: 'CACHE#', cache_key: 'default::/news/{slug}?slug=hello' },
  { name: 'raw, with a tenant', scheme: 'raw', prefix: 'CACHE#', tenant: 'acme', cache_key: 'acme::/news/{slug}?slug=hello' },
  { name: 'raw, another prefix', scheme: 'raw', prefix: 'PAGE#', cache_key: 'default::/about?' },
  { name: 'raw, another prefix and a tenant', scheme: 'raw', prefix: 'page:', tenant: 'acme', cache_key: 'acme::/about?' },
  { name: 'raw, with a digest', scheme: 'raw', prefix: 'CACHE#', cache_key: 'default::/?#auth=0123456789abcdef01234567' },
].map((vector) => {
  const { scheme, prefix, tenant, cache_key: key } = vector;
  const hashed = `${tenant ? `TENANT#${tenant}#` : ''}CACHE#${sha256(key)}`;
  return { ...vector, pk: scheme === 'raw' ? prefix + key : hashed };
});

const news = { pattern: '/news/{slug}', path: '/news/a' };
const requests = [
  { name: 'no parameter', pattern: '/', path: '/' },
  { name: 'a tenant', tenant: 'acme', ...news },
  { name: 'a path parameter', ...news },
  { name: 'an escape in the path is encoded once more', pattern: '/news/{slug}', path: '/news/hello%20w' },
  { name: 'other characters in the path', pattern: '/news/{slug}', path: "/news/a&b=c;d@e:f,g+h$i!~*'()" },
  { name: 'path parameters are sorted', pattern: '/{b}/{A}/{a}/{B}', path: '/1/2/3/4' },
  { name: 'names with punctuation', pattern: '/{a-b}/{a_b}/{ab}/{a1}', path: '/1/2/3/4' },
  { name: 'the rest of a path', pattern: '/docs/{page+}', path: '/docs/a/b' },
  { name: 'the rest of a path with an empty segment', pattern: '/docs/{page+}', path: '/docs//b/' },
  { name: 'an optional rest', pattern: '/docs/{page*}', path: '/docs/a/b' },
  { name: 'an optional rest that is missing', pattern: '/docs/{page*}', path: '/docs' },
  { name: 'an optional rest of the root', pattern: '/{page*}', path: '/' },
  { name: 'path parameters come before the query', ...news, query: 'a=1&slug=2' },
  { name: 'lower case before upper case of one letter', ...news, query: 'B=1&a=2' },
  { name: 'case decides last', ...news, query: 'A=1&b=2&a=3&B=4&ab=5&Ab=6&AA=7' },
  { name: 'punctuation before digits before letters', ...news, query: 'z=1&1=2&_=3&-=4&a=5&$=6&.=7&~=8&10=9&2=10&!=11&(=12' },
  { name: 'a prefix comes first', ...news, query: 'ab=1&a-b=2&a=3&a_b=4&a.b=5&a%20b=6' },
  { name: 'a plus sign is a space', ...news, query: 'q=a+b&r=a%2Bb&s=a%20b' },
  { name: 'a name without a value', ...news, query: 'q' },
  { name: 'an empty value', ...news, query: 'q=&r' },
  { name: 'an empty name', ...news, query: '=x&a=1&=' },
  { name: 'empty pairs', ...news, query: '&&a=1&&b=2&' },
  { name: 'an empty query', ...news, query: '' },
  { name: 'only separators', ...news, query: '&&' },
  { name: 'a second question mark', ...news, query: '?a=1' },
  { name: 'a third question mark', ...news, query: '??a=1' },
  { name: 'repeated parameters stay in order', ...news, query: 'b=2&a=z&b=1&a=y' },
  { name: 'equals signs in a value', ...news, query: 'a=b=c' },
  { name: 'the case of escapes', ...news, query: 'a=%c3%a9&b=%C3%A9' },
  { name: 'needless escapes', ...news, query: '%61=%62' },
  { name: 'malformed escapes', ...news, query: 'a=%&b=%z1&c=%4' },
  { name: 'bytes that are not UTF-8', ...news, query: 'a=%ff&b=%c3&c=%e2%82x' },
  { name: 'a byte order mark', ...news, query: 'a=%EF%BB%BFx' },
  { name: 'Unicode in a value', ...news, query: 'a=%E2%82%AC%F0%9F%98%80&b=%E6%97%A5' },
  { name: 'accents in names', ...news, query: '%C3%A9=1&f=2&e=3&E=4&%C3%89=5&z=6&%C3%A4=7&a=8' },
  { name: 'two spellings of one accent', ...news, query: 'e%CC%81=1&%C3%A9=2&e%CC%81=3' },
  { name: 'two spellings of one accent, the other way round', ...news, query: '%C3%A9=2&e%CC%81=1&%C3%A9=3' },
  { name: 'names that differ by an ignored character', ...news, query: 'a%00=1&a=2&1%00=3&1=4' },
  { name: 'names in several scripts', ...news, query: '%E6%97%A5=1&%D0%B1=2&%CE%B1=3&z=4&%ED%95%9C=5&%E3%81%82=6&%D7%90=7&%F0%9F%98%80=8&%C3%9F=9&st=10&ss=11&%C3%A6=12&af=13&ad=14' },
  { name: 'a name of JavaScript objects', ...news, query: 'toString=1&a=2&constructor=3' },
  { name: 'authorization', ...news, headers: { authorization: ['Bearer x'] } },
  { name: 'an empty authorization', ...news, headers: { authorization: [''] } },
  { name: 'several credentials', ...news, headers: { 'x-api-key': ['k'], authorization: ['Bearer x'], 'x-amz-security-token': ['t'] } },
  { name: 'several lines of one header', ...news, headers: { authorization: ['one', 'two'] } },
  { name: 'a cookie', ...news, listed: ['theme'], cookie: 'other=1; theme=dark' },
  { name: 'listed cookies that are missing', ...news, listed: ['theme'], cookie: 'other=1' },
  { name: 'cookies are sorted', ...news, listed: ['b', 'A', 'a', 'B'], cookie: 'B=1; b=2; A=3; a=4' },
  { name: 'the last cookie of a name counts', ...news, listed: ['a'], cookie: 'a=1; a=2' },
  { name: 'a cookie in quotation marks', ...news, listed: ['a'], cookie: 'a="dark mode"' },
  { name: 'an encoded cookie', ...news, listed: ['a'], cookie: 'a=%E2%82%AC%20x' },
  { name: 'a malformed cookie', ...news, listed: ['a'], cookie: 'a=%E2%82' },
  { name: 'credentials and cookies', tenant: 'acme', ...news, query: 'b=1&a=2', headers: { authorization: ['Bearer x'] }, listed: ['theme'], cookie: 'theme=dark' },
].map((vector) => ({ ...vector, seen: seen(vector), cache_key: cacheKey(vector, seen(vector)) }));

/** A parameter of a path in a default cache key: in the form of `encodeURIComponent` unchanged, any other byte marked. */
const part = (value) =>
  value.replace(/%2F|\/|[^%\w.!~*'()-]/gu, (text) => {
    if (text === '/') return '%2F';
    if (text === '%2F') return '%%2F';
    return [...Buffer.from(text)].map((byte) => `%%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('');
  });

const byBytes = (one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other));

/** The part of a query that a rule lists; without a list all of it. */
function listedPart(query, only) {
  if (!only) return query;
  const pairs = query.split('&').map((pair) => [pair.split('=')[0], pair]).filter(([name]) => only.includes(name));
  return pairs.sort(([one], [other]) => byBytes(one, other)).map(([, pair]) => pair).join('&');
}

/** The cookies that a rule lists, as they are, in order: several may have one name. */
function plainCookies(line, listed) {
  const found = Object.create(null);
  for (const pair of line.split(';')) {
    const [, name, value] = pair.match(/^([^=]*)=(.*)$/) ?? [];
    if (name !== undefined && listed.includes(name.trim())) (found[name.trim()] ??= []).push(value.trim());
  }
  return found;
}

const valueLines = (values) => Object.keys(values).sort(byBytes).map((name) => `${name}=${values[name].join('\0')}`);

function defaultKey({ tenant = 'default', https, host = '', pattern, path, query = '', only, headers = {}, listed = [], cookie = '' }) {
  const params = parameters(pattern.replace(/\{\*(\w+)\}/, '{$1+}'), path);
  const pairs = Object.keys(params).sort(byBytes).map((name) => `${name}=${part(params[name])}`);
  const rest = listedPart(query, only);
  const variants = [...digest('auth', valueLines(headers)), ...digest('cookies', valueLines(plainCookies(cookie, listed)))];
  const place = `${https ? 'https://' : ''}${host.toLowerCase()}${pattern}`;
  const distinct = [...pairs, ...(rest ? [rest] : [])].join('&');
  return `${tenant}::${place}?${distinct}${variants.length ? `#${variants.join('&')}` : ''}`;
}

const example = { host: 'example.com', pattern: '/news/{slug}', path: '/news/a' };
const defaults = [
  { name: 'no parameter', host: 'example.com', pattern: '/', path: '/' },
  { name: 'a host in upper case, with a port', host: 'Example.COM:8080', pattern: '/', path: '/' },
  { name: 'over HTTPS', https: true, ...example },
  { name: 'one site under every host', pattern: '/news/{slug}', path: '/news/a' },
  { name: 'a tenant', tenant: 'acme', ...example },
  { name: 'an escape in the path', ...example, path: '/news/a%20b' },
  { name: 'an escape in the path in lower case', ...example, path: '/news/a%c3%a9' },
  { name: 'characters in the path that encodeURIComponent would encode', ...example, path: "/news/a&b=c;d@e:f,g+h$i!~*'()" },
  { name: 'an encoded slash', ...example, path: '/news/a%2Fb' },
  { name: 'the rest of a path', ...example, pattern: '/docs/{*page}', path: '/docs/a/b' },
  { name: 'path parameters are sorted', ...example, pattern: '/{b}/{A}/{a}', path: '/1/2/3' },
  { name: 'the query is not sorted, decoded or encoded', ...example, query: 'b=2&a=1&B=%c3%a9+x&&a=%31&q' },
  { name: 'an empty query', ...example, query: '' },
  { name: 'a listed query is sorted by name', ...example, query: 'page=3&utm=x&a=4&page=1&%61=5', only: ['page', 'a'] },
  { name: 'a listed query that is missing', ...example, query: 'utm=x', only: ['page'] },
  { name: 'headers', ...example, headers: { 'x-kind': ['k'], 'accept-language': ['de', 'en'] } },
  { name: 'cookies', ...example, listed: ['theme', 'lang'], cookie: 'theme="dark"; x=1; lang=%64e; theme=light' },
  { name: 'everything', tenant: 'acme', https: true, ...example, query: 'x=1', headers: { authorization: ['Bearer x'] }, listed: ['a'], cookie: 'a=1' },
].map((vector) => ({ ...vector, cache_key: defaultKey(vector) }));

/** The sort key of a request in the partition of its page, and the partition of the row that binds the key to one request. */
const requestKeys = ['order-7', 'a.b:c_d', 'x'.repeat(128), 'x'.repeat(129), 'order 7', 'order=7', 'a/b', '../META', 'é'].map((key) => ({
  idempotency_key: key,
  sk: `REQ#${/^[\w.:-]{0,128}$/.test(key) ? key : `sha256=${sha256(key)}`}`,
  bound_pk: `CACHE#${sha256(`idempotency-key:${key}`)}`,
}));

/** A ULID whose random bits are the first 80 of the SHA-256 of the S3 key. */
function versionId(ms, s3Key) {
  const number = (BigInt(ms) << 80n) | BigInt(`0x${sha256(s3Key).slice(0, 20)}`);
  const digits = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
  return Array.from({ length: 26 }, (_, place) => digits[Number((number >> BigInt(5 * (25 - place))) & 31n)]).join('');
}
const versions = [
  { ms: 1700000000000, s3_key: 'isr/0/1-a.html' },
  { ms: 1700000000001, s3_key: 'isr/0/1-a.html' },
  { ms: 0, s3_key: 'isr/8a5edab282632443219e051e/1700000000123-6f1f7a3e-6c0e-4a57-9d83-0d5c2f1f9d10.html' },
  { ms: 2 ** 48 - 1, s3_key: '8a5edab282632443219e051e/1700000000123-6f1f7a3e-6c0e-4a57-9d83-0d5c2f1f9d10.html' },
].map((vector) => ({ ...vector, id: versionId(vector.ms, vector.s3_key) }));

const lines = (vectors) => vectors.map((vector) => `    ${JSON.stringify(vector)}`).join(',\n');
const sections = { partition_keys: partition, facetheory_ts: requests, default: defaults, request_keys: requestKeys, version_ids: versions };
const texts = Object.entries(sections).map(([name, vectors]) => `  "${name}": [\n${lines(vectors)}\n  ]`);
console.log(`{\n${texts.join(',\n')}\n}`);
