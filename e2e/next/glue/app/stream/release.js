// Glue: pages that wait for their release, by name. A page and a route handler are bundled separately, but share the
// global object.
const MAX_WAIT = 30_000;

function promiseOf(name) {
  globalThis.released ??= new Map();
  if (!globalThis.released.has(name)) globalThis.released.set(name, withResolvers());
  return globalThis.released.get(name);
}

function withResolvers() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

export function release(name) {
  promiseOf(name).resolve(true);
}

export function waitFor(name) {
  const timeout = new Promise((done) => setTimeout(done, MAX_WAIT, false));
  return Promise.race([promiseOf(name).promise, timeout]);
}
