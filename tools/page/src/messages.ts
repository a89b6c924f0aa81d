// The words of the page. English texts are their own keys; the catalogue has each of them once.
import { remember, remembered } from "./state";

export const LANGUAGES: Record<string, string> = { en: "English" };
export const language = (): string => { const wanted = remembered("language"); return wanted in LANGUAGES ? wanted : "en"; };
export function setLanguage(code: string): void {
  remember("language", code);
  document.documentElement.lang = code;
}
export const t = (text: string): string => text;
