// Glue: releases the page that waits under this name.
import { release } from "../../release";

export async function POST(request, { params }) {
  release((await params).name);
  return new Response(null, { status: 204 });
}
