// What the whole page shares: session, rights, address, and preferences of this browser.
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { call, connection, type Service, send, show } from "./api";
import type { Server } from "./compute.types";
import type { Named, TokenReply } from "./identity.types";
import { type Change, isLive, RESTING, tellsRequests, watch, watchRequests } from "./live";
import type { OperationView, Rights } from "./page.types";

export interface Session {
  user: { id: string; name: string };
  project: { id: string; name: string } | null;
  roles: string[];
  expires: string;
  services: Set<string>;
}

interface Shared {
  session: Session | null;
  rules: Set<string>;
  operations: Record<string, OperationView>;
  consoles: Set<string>; // origins of console proxies that the page may reach
  address: string | null; // the browser's, as other machines see it
}

export const shared: Shared = {
  session: null,
  rules: new Set(),
  operations: {},
  consoles: new Set(),
  address: null,
};

/** The API's answer whether its rules allow the caller something. */
export const may = (...rules: string[]): boolean => rules.every((rule) => shared.rules.has(rule));
export const has = (service: string): boolean => shared.session?.services.has(service) ?? false;

/** Whether a server in its state accepts an operation, by the cloud's own table. */
export function accepts(kind: string, server: Server): boolean {
  const operation = shared.operations[kind];
  if (!operation) return true;
  const vm = server["OS-EXT-STS:vm_state"];
  const task = server["OS-EXT-STS:task_state"];
  const fitsTask = !task || operation.during === null || operation.during.includes(task);
  return fitsTask && (operation.allowed === null || operation.allowed.includes(vm));
}

const SERVICE_TYPES: Record<string, string> = {
  volumev3: "volume",
  "block-storage": "volume",
  "load-balancer": "load_balancer",
};

export function sessionOf(body: TokenReply): Session {
  const token = body.token;
  return {
    user: token.user,
    project: token.project ?? null,
    roles: (token.roles ?? []).map((role) => role.name),
    expires: token.expires_at,
    services: new Set((token.catalog ?? []).map((entry) => SERVICE_TYPES[entry.type] ?? entry.type)),
  };
}

/** The project that the address names. */
export const addressed = (): string => new URLSearchParams(location.search).get("project") ?? "";

/** The page in a project, at a view. Another project is another document, in which nothing of the first one is left. */
export const inProject = (project: string, ...path: string[]): string =>
  `${location.pathname}?project=${encodeURIComponent(project)}${link(...path)}`;

/** The project of the address is none of the user's. `session`: the one that the user has. */
export class ForeignProjectError extends Error {
  constructor(
    message: string,
    readonly session: Session,
  ) {
    super(message);
  }
}

/** Take a session: in the project of the address, or in the session's own, or in the first one. */
export async function enter(body: TokenReply): Promise<void> {
  let session = sessionOf(body);
  show(session.user.id, session.project?.id ?? "");
  const wanted = addressed();
  if (!session.project || (wanted && wanted !== session.project.id)) {
    const projects: Named[] = (await call("identity", "GET", "/auth/projects", undefined, { quiet: true })).projects;
    const found = wanted ? projects.find((project) => project.id === wanted) : projects[0];
    if (!found && session.project)
      throw new ForeignProjectError("You have no role in the project of this address, or there is none.", session);
    if (!found) throw new Error("This user has no role in any project. An administrator can add one.");
    session = sessionOf(await scope(found.id));
    show(session.user.id, found.id);
  }
  const rights = await send<Rights>("GET", "rights", undefined, { quiet: true });
  shared.session = session;
  shared.rules = new Set(rights.rules);
  shared.operations = rights.operations;
  shared.consoles = new Set(rights.consoles ?? []);
  shared.address = rights.address;
  forget(`${PREFIX}${session.user.id}.`);
  history.replaceState(
    history.state,
    "",
    `${location.pathname}?project=${encodeURIComponent(session.project!.id)}${location.hash}`,
  );
}

/** Whether a description of the browser's session is of the user and the project of this tab. */
export const isShown = (session: Session): boolean =>
  session.user.id === shared.session?.user.id && session.project?.id === shared.session.project?.id;

export const scope = (project: string): Promise<TokenReply> =>
  send(
    "POST",
    "session",
    { auth: { identity: { methods: ["token"] }, scope: { project: { id: project } } } },
    { quiet: true },
  );

// --- preferences: of the browser, and known to all of its users

export function remembered(name: string): string {
  try {
    return localStorage.getItem(`nova_lite.${name}`) ?? "";
  } catch {
    return "";
  }
}

export function remember(name: string, value: string): void {
  try {
    localStorage.setItem(`nova_lite.${name}`, value);
  } catch {
    // A browser without storage forgets.
  }
}

// --- what a user has begun: it is of the user and the project, in this tab, and ends with the session

const PREFIX = "nova_lite.";
const keyOf = (name: string): string => `${PREFIX}${shared.session?.user.id}.${shared.session?.project?.id}.${name}`;

export function kept(name: string): string {
  try {
    return sessionStorage.getItem(keyOf(name)) ?? "";
  } catch {
    return "";
  }
}

export function keep(name: string, value: string): void {
  try {
    if (value) sessionStorage.setItem(keyOf(name), value);
    else sessionStorage.removeItem(keyOf(name));
  } catch {
    // A browser without storage forgets.
  }
}

/** Forget what was begun, but not what has a prefix. Earlier versions kept drafts, names and uploads of users longer. */
export function forget(except = ""): void {
  try {
    for (const name of Object.keys(sessionStorage))
      if (name.startsWith(PREFIX) && !(except && name.startsWith(except))) sessionStorage.removeItem(name);
    for (const name of Object.keys(localStorage))
      if (name.startsWith(PREFIX) && !/^(theme|language|prices|columns\..*)$/.test(name.slice(PREFIX.length)))
        localStorage.removeItem(name);
  } catch {
    // A browser without storage has nothing.
  }
}

// --- the address: ?project=ID#/servers/ID/tab?q=web

export interface Place {
  path: string[];
  query: URLSearchParams;
}

export function place(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

export function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const link = (...path: string[]): string => `#/${path.map(encodeURIComponent).join("/")}`;

export function usePlace(): Place {
  const [current, set] = useState(place);
  useEffect(() => {
    const changed = () => set(place());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return current;
}

/** Parameters of the address, whose names begin with a scope. Changing one adds no step to the browser's history. */
export function useParameters(names: string[], scope = ""): [string[], (at: number, value: string) => void] {
  const read = () => names.map((name) => place().query.get(scope + name) ?? "");
  const [values, set] = useState(read);
  const identity = names.join("&");
  // biome-ignore lint/correctness/useExhaustiveDependencies: the names in one text.
  useEffect(() => {
    const changed = () => set(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, [identity, scope]);
  const change = (at: number, next: string) => {
    set((old) => old.map((value, other) => (other === at ? next : value)));
    const { path, query } = place();
    if (next) query.set(scope + names[at], next);
    else query.delete(scope + names[at]);
    history.replaceState(history.state, "", link(...path) + (query.size ? `?${query}` : ""));
  };
  return [values, change];
}

export function useParameter(name: string): [string, (value: string) => void] {
  const [[value = ""], change] = useParameters([name]);
  return [value, (next) => change(0, next)];
}

// --- the way back leads to where the user was: each step of the history has its own position

const positions = new Map<number, number>();
let step = 0;
let steps = 0;

/** Keep the position of each step from now on. */
export function keepPositions(): void {
  addEventListener("scroll", () => positions.set(step, scrollY));
  addEventListener("hashchange", () => {
    const known = (history.state as { step?: number } | null)?.step;
    step = known ?? ++steps;
    if (known === undefined) history.replaceState({ step }, "");
  });
  step = steps = Date.now(); // steps of an earlier document of this tab have other numbers
  history.replaceState({ step }, "");
}

/** Seconds that a view has for its data, until it is as long as it was. */
const PATIENCE = 5;

/** Scroll to the position of this step, also once the view has become long enough. Return how to stop. */
export function scrollBack(): () => void {
  const wanted = positions.get(step) ?? 0;
  scrollTo(0, wanted);
  if (!wanted) return () => undefined;
  const observer = new ResizeObserver(() => {
    scrollTo(0, wanted);
    if (scrollY >= wanted - 1) stop();
  });
  const stop = () => {
    observer.disconnect();
    for (const name of ["wheel", "touchstart", "keydown"]) removeEventListener(name, stop);
  };
  for (const name of ["wheel", "touchstart", "keydown"]) addEventListener(name, stop);
  setTimeout(stop, PATIENCE * 1000);
  observer.observe(document.body);
  return stop;
}

// --- data that stays current

/** Views that load again after so many seconds show nothing that is under way. */
const SLOW = 4;
/** Seconds between two loads that requests of others cause. */
const GAP = 3;

export interface Loaded<T> {
  data: T | null;
  error: Error | null;
  reload: () => void;
}

/**
 * Load data now, when `keys` change, and every `seconds` while the page is visible. `concerns`: whether a change of servers
 * is one of these data, or the APIs whose requests change them. With it, data at rest are loaded when they change, and
 * seldom besides.
 */
export function useData<T>(
  load: (previous: T | null) => Promise<T>,
  keys: unknown[],
  seconds: number | ((data: T) => number) = 0,
  concerns?: ((change: Change) => boolean) | Service[],
): Loaded<T> {
  const [state, set] = useState<{ data: T | null; error: Error | null }>({ data: null, error: null });
  const [turn, again] = useReducer((count: number) => count + 1, 0);
  const latest = useRef<T | null>(null);
  const seen = useRef<string>("");
  const identity = JSON.stringify(keys);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the keys say when data are others, and a reload counts the turns.
  useEffect(() => {
    if (seen.current !== identity) {
      seen.current = identity;
      latest.current = null;
      set({ data: null, error: null });
    }
    let live = true;
    let timer = 0;
    let runs = false;
    let stale = false;
    let loaded = 0;
    const run = async () => {
      clearTimeout(timer);
      stale = runs;
      if (runs) return;
      runs = true;
      let wait = typeof seconds === "number" ? seconds : 5;
      if (!document.hidden || latest.current === null) {
        try {
          const data = await load(latest.current);
          if (!live) return;
          latest.current = data;
          set({ data, error: null });
          if (typeof seconds === "function") wait = seconds(data);
          loaded = Date.now();
          const isTold = Array.isArray(concerns) ? tellsRequests() : concerns && isLive();
          if (isTold && wait >= SLOW) wait = RESTING;
        } catch (error) {
          if (!live) return;
          set((old) => ({ data: old.data, error: error as Error }));
          wait = Math.max(wait, 5);
        }
      }
      runs = false;
      if (live && wait) timer = window.setTimeout(run, stale ? 0 : wait * 1000);
    };
    void run();
    const soon = () => {
      clearTimeout(timer);
      timer = window.setTimeout(run, Math.max(0, loaded + GAP * 1000 - Date.now()));
    };
    const stops = Array.isArray(concerns)
      ? [
          watchRequests((found) => (found === null || concerns.some((api) => found.includes(api))) && soon()),
          watch((change) => change?.own && concerns.includes("compute") && soon()),
        ]
      : concerns
        ? [watch((change) => (change === null || concerns(change)) && void run())]
        : [];
    return () => {
      live = false;
      clearTimeout(timer);
      for (const stop of stops) stop();
    };
  }, [identity, turn]);
  return { ...state, reload: () => again(undefined as never) };
}

const connected = () => ({ lost: connection.lost, late: [...new Set(connection.late)].join(", ") });

/** Whether the connection is lost, and which APIs are late. */
export function useConnection(): { lost: boolean; late: string } {
  const [found, set] = useState(connected);
  useEffect(() => {
    const changed = () => set(connected());
    connection.listeners.add(changed);
    return () => void connection.listeners.delete(changed);
  }, []);
  return found;
}
