// Glue: the template has no form. A server action keeps a name in a cookie, and the page greets whoever has it.
import { cookies } from "next/headers";

async function remember(form) {
  "use server";
  (await cookies()).set("visitor", String(form.get("visitor")), { httpOnly: true });
}

export default async function Greeting() {
  const visitor = (await cookies()).get("visitor")?.value ?? "stranger";
  return (
    <main>
      <p>{`Hello, ${visitor}!`}</p>
      <form action={remember}>
        <input name="visitor" />
        <button>Remember me</button>
      </form>
    </main>
  );
}
