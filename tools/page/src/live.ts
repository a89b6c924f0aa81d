// The stream of changes: which servers have changed, and by which APIs other things have, so that views read them again.
// Without it, views poll.
import { useEffect, useState } from "preact/hooks";
import { named } from "./api";

/** Changed servers. `own`: of the session's project. Empty `ids`: more than can be named. */
export interface Change {
  own: boolean;
  ids: string[];
}

/** Seconds of polling at rest, once the stream tells of changes. */
export const RESTING = 60;
const FIRST_WAIT = 2;
const LAST_WAIT = 60;

const watchers = new Set<(change: Change | null) => void>();
const askers = new Set<(services: string[] | null) => void>();
let open = false;
let requests = false;
let current: AbortController | null = null;
let again = 0;

export const isLive = (): boolean => open;
/** Whether the stream tells of requests to all APIs: it needs the cloud's audit log. */
export const tellsRequests = (): boolean => open && requests;

/** Call `changed` with the APIs by which requests have changed something, and with null at the stream's begin and end. */
export function watchRequests(changed: (services: string[] | null) => void): () => void {
  askers.add(changed);
  return () => void askers.delete(changed);
}

const tellAskers = (services: string[] | null): void => {
  for (const changed of [...askers]) changed(services);
};

/** Call `changed` with each change, and with null when the stream begins or ends. Return how to stop. */
export function watch(changed: (change: Change | null) => void): () => void {
  watchers.add(changed);
  return () => void watchers.delete(changed);
}

const tell = (change: Change | null): void => {
  for (const changed of [...watchers]) changed(change);
};

function set(next: boolean): void {
  if (open === next) return;
  open = next;
  tell(null);
  tellAskers(null);
}

function take(block: string): void {
  let name = "";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (name === "begin") {
    requests = (JSON.parse(data) as string[]).includes("requests");
    set(true);
  } else if (name === "requests") tellAskers(JSON.parse(data) as string[]);
  else if (name === "servers" || name === "others")
    tell({ own: name === "servers", ids: JSON.parse(data) as string[] });
}

async function read(signal: AbortSignal): Promise<number> {
  const response = await fetch("events", {
    headers: { ...named(), Accept: "text/event-stream" },
    credentials: "same-origin",
    cache: "no-store",
    signal,
  });
  if (!response.ok || !response.body) return response.status;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return 200;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      take(text.slice(0, end));
      text = text.slice(end + 2);
    }
  }
}

/** Follow the stream while the page is visible. Return how to stop. */
export function follow(): () => void {
  let wanted = true;
  let wait = FIRST_WAIT;
  const run = async () => {
    clearTimeout(again);
    if (!wanted || current || document.hidden) return;
    const own = new AbortController();
    current = own;
    let status = 0;
    try {
      status = await read(own.signal);
    } catch {
      // The connection is lost, or the page has ended it.
    }
    if (current === own) current = null;
    wait = status === 200 || open ? FIRST_WAIT : Math.min(LAST_WAIT, 2 * wait);
    set(false);
    // A session that has ended is renewed by the views, which poll now.
    if (wanted) again = window.setTimeout(() => void run(), 1000 * wait * (1 + Math.random() / 2));
  };
  const shown = () => {
    if (document.hidden) current?.abort();
    else void run();
  };
  document.addEventListener("visibilitychange", shown);
  void run();
  return () => {
    wanted = false;
    clearTimeout(again);
    document.removeEventListener("visibilitychange", shown);
    current?.abort();
    current = null;
  };
}

export function useLive(): boolean {
  const [live, setLive] = useState(open);
  useEffect(() => watch(() => setLive(open)), []);
  return live;
}
