// Glue: the template has no page of the older router, which requests /_next/data/… instead of HTML.
export async function getServerSideProps({ params, res }) {
  res.setHeader("Cache-Control", "public, s-maxage=60");
  return { props: { name: params.name, rendered: process.hrtime.bigint().toString() } };
}

export default function Dated({ name, rendered }) {
  return <p>{`${name} was rendered at ${rendered}`}</p>;
}
