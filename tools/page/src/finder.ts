// What the box for any name finds first, and what it asks the API for.

export interface Hit {
  label: string;
  note: string;
  href: string;
}

/** Hits that have all words, in order: those with this name, that begin with it, with a word that does, and the rest. */
export function ranked(hits: Hit[], text: string): Hit[] {
  const wanted = text.trim().toLowerCase();
  const parts = wanted.split(/\s+/);
  const rank = ({ label, note }: Hit): number => {
    const name = label.toLowerCase();
    const words = `${name} ${note.toLowerCase()}`;
    if (name === wanted || words.split(" ").includes(wanted)) return name === wanted ? 0 : 1;
    if (name.startsWith(wanted)) return 2;
    return words.split(/[^\p{L}\p{N}]+/u).some((word) => word.startsWith(wanted)) ? 3 : 4;
  };
  const seen = new Set<string>();
  return hits
    .filter((hit) => parts.every((part) => `${hit.label} ${hit.note}`.toLowerCase().includes(part)))
    .filter((hit) => !seen.has(hit.href) && seen.add(hit.href))
    .map((hit, at) => ({ hit, at, rank: wanted ? rank(hit) : 0 }))
    .sort((left, right) => left.rank - right.rank || left.at - right.at)
    .map(({ hit }) => hit);
}

/** The questions about servers that a text may mean. The API reads names and addresses as regular expressions. */
export function queries(text: string): string[] {
  const wanted = text.trim();
  const pattern = encodeURIComponent(wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (/^[\da-f]{8}-[\da-f-]{27}$/i.test(wanted)) return [`&uuid=${wanted}`];
  if (/^[\d.]+$/.test(wanted) && wanted.includes(".")) return [`&ip=${pattern}`, `&name=${pattern}`];
  return [`&name=${pattern}`];
}
