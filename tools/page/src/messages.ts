// The words of the page. English texts are their own keys. Other languages are files, loaded when a user chooses them.
import { remember, remembered } from "./state";

export const LANGUAGES: Record<string, string> = { en: "English", zh: "中文" };
const FILES: Record<string, string> = { zh: "./chinese.js" };

/** One text for each category of a language's plurals. */
type Plurals = Partial<Record<Intl.LDMLPluralRule, string>>;
/** Words by the English ones. Texts with a number, by their English plural, may have one for each category. */
export type Catalogue = Record<string, string | Plurals>;

let current = "en";
let catalogue: Catalogue = {};

/** The language that the user has chosen here, or the browser's. */
export function language(): string {
  const wanted = remembered("language") || navigator.language.slice(0, 2);
  return wanted in LANGUAGES ? wanted : "en";
}

/** Load a language, and use it from now on. Raises the browser's error if its file does not arrive. */
export async function setLanguage(code: string, keep = true): Promise<void> {
  const file = FILES[code];
  const words = file ? ((await import(file)) as { WORDS: Catalogue }).WORDS : {};
  if (keep) remember("language", code);
  use(code, words);
}

export function use(code: string, words: Catalogue): void {
  current = code;
  catalogue = words;
  document.documentElement.lang = code;
}

export function t(text: string): string {
  const found = catalogue[text];
  return typeof found === "string" ? found : text;
}

/** A number with its noun, as the language's plurals want it. `{n}` in the texts is the number. */
export function counted(count: number, one: string, other: string): string {
  const category = new Intl.PluralRules(current).select(count);
  const found = catalogue[other] ?? { one, other };
  const text = typeof found === "string" ? found : (found[category] ?? found.other ?? other);
  return text.replace("{n}", new Intl.NumberFormat(current).format(count));
}
