// What the box for any name finds first, what can be done with it, and what the box asks the API for.
import { keep, kept, link } from "./state";
import { type Action, allowed } from "./ui";

export interface Hit {
  label: string;
  note: string;
  href: string; // a place, or what else the hit is known by
  run?(): void; // instead of a way to the place
}

/** Something of the cloud, and its actions. */
export interface Thing extends Hit {
  row: object;
  actions: Action<object>[];
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

/** Whether a word begins one of the words of a label. */
const begins = (label: string, word: string): boolean => ` ${label.toLowerCase()}`.includes(` ${word}`);

/**
 * Actions that a text asks for, such as “stop web-1”: first those on things that it names, then those that have the whole
 * text themselves. `choose` begins one.
 */
export function doings(
  things: Thing[],
  text: string,
  choose: (action: Action<object>, thing: Thing) => void,
): [Hit[], Hit[]] {
  const parts = text.trim().toLowerCase().split(/\s+/);
  const named: Hit[] = [];
  const vague: Hit[] = [];
  if (!parts[0]) return [named, vague];
  for (const thing of things) {
    const about = `${thing.label} ${thing.note}`.toLowerCase();
    for (const action of thing.actions) {
      const rest = parts.filter((part) => !begins(action.label, part));
      if (rest.length === parts.length || !rest.every((part) => about.includes(part))) continue;
      if (!allowed(action) || (action.when && !action.when(thing.row))) continue;
      const isNamed = rest.length > 0 || (parts.length > 1 && parts.some((part) => about.includes(part)));
      (isNamed ? named : vague).push({
        label: `${action.label} ${thing.label}`,
        note: thing.note,
        href: `${action.name} ${thing.href}`,
        run: () => choose(action, thing),
      });
    }
  }
  return [named, vague];
}

/** Things whose pages a user has opened last: how many are kept. */
const RECENT = 6;

const recent = (): string[] => {
  try {
    return JSON.parse(kept("recent") || "[]");
  } catch {
    return [];
  }
};

/** Note that the user is on the page of a thing. */
export function visited(path: string[]): void {
  const [view, id] = path;
  if (!view || !id || id === "new" || view === "api") return;
  const href = link(view, id);
  keep("recent", JSON.stringify([href, ...recent().filter((other) => other !== href)].slice(0, RECENT)));
}

/** The things that were opened last and are still there, the last one first. */
export const lately = (things: Hit[]): Hit[] =>
  recent()
    .map((href) => things.find((thing) => thing.href === href))
    .filter((hit) => hit !== undefined);
