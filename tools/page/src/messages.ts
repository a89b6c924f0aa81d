// The words of the page. English texts are their own keys; `chinese.ts` has the second language.
import { CHINESE } from "./chinese";
import { remember, remembered } from "./state";

export const LANGUAGES: Record<string, string> = { en: "English", zh: "中文" };
let current = "en";

/** The language that the user has chosen here, or the browser's. */
export function language(): string {
  const wanted = remembered("language") || navigator.language.slice(0, 2);
  return wanted in LANGUAGES ? wanted : "en";
}

export function setLanguage(code: string, keep = true): void {
  if (keep) remember("language", code);
  current = code;
  document.documentElement.lang = code;
}

export const t = (text: string): string => (current === "zh" ? (CHINESE[text] ?? text) : text);
