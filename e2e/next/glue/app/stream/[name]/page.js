// Glue: the template has no streaming page. This one sends its second part when it is released, so that a test can
// check that the first part has arrived before.
import { Suspense } from "react";
import { connection } from "next/server";
import { waitFor } from "../release";

async function Later({ name }) {
  await connection();
  return (await waitFor(name)) ? <p>the second part</p> : <p>timed out</p>;
}

export default async function Stream({ params }) {
  const { name } = await params;
  return (
    <main>
      <p>the first part</p>
      <Suspense fallback={<p>wait</p>}>
        <Later name={name} />
      </Suspense>
    </main>
  );
}
