// Glue: the template has no page that streams. This one sends its second part when it is told to, so that a test can
// see that the first has arrived by then.
import { Suspense } from "react";
import { connection } from "next/server";
import { waitFor } from "../told";

async function Later({ name }) {
  await connection();
  return (await waitFor(name)) ? <p>the second part</p> : <p>nobody told me</p>;
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
