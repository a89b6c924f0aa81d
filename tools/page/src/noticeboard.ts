// What came of something that a user has begun, and how to take it back, until it is read. Any view may add to it.

export interface Notice {
  words: string;
  file?: { name: string; text: string };
  error?: Error;
  view?: string; // where the user goes on
  undo?: () => Promise<unknown>; // a notice that can be taken back leaves after a while
}

export const notices: Notice[] = [];
const listeners = new Set<() => void>();
const tell = (): void => listeners.forEach((listener) => void listener());

export function notify(notice: Notice): void {
  notices.push(notice);
  tell();
}

export function drop(notice: Notice): void {
  const at = notices.indexOf(notice);
  if (at >= 0) notices.splice(at, 1);
  tell();
}

/** Call a function at each change. Return how to stop. */
export function watchNotices(changed: () => void): () => void {
  listeners.add(changed);
  return () => void listeners.delete(changed);
}
