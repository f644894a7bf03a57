// Glue: who waits for a word, by name. A page and a route handler are bundled apart, but share the global object.
const LONGEST_WAIT = 30_000;

function promiseOf(name) {
  globalThis.told ??= new Map();
  if (!globalThis.told.has(name)) globalThis.told.set(name, withResolvers());
  return globalThis.told.get(name);
}

function withResolvers() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

export function tell(name) {
  promiseOf(name).resolve(true);
}

export function waitFor(name) {
  const tired = new Promise((done) => setTimeout(done, LONGEST_WAIT, false));
  return Promise.race([promiseOf(name).promise, tired]);
}
