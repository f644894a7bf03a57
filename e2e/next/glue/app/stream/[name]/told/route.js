// Glue: tells the page that waits under this name.
import { tell } from "../../told";

export async function POST(request, { params }) {
  tell((await params).name);
  return new Response(null, { status: 204 });
}
