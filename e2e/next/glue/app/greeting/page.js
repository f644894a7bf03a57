// Glue: the template has no form. A server action stores a name in a cookie, and the page contains it.
import { cookies } from "next/headers";

async function remember(form) {
  "use server";
  (await cookies()).set("name", String(form.get("name")), { httpOnly: true });
}

export default async function Greeting() {
  const name = (await cookies()).get("name")?.value ?? "stranger";
  return (
    <main>
      <p>{`Hello, ${name}!`}</p>
      <form action={remember}>
        <input name="name" />
        <button>Remember me</button>
      </form>
    </main>
  );
}
