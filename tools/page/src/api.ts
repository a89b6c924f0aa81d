// Requests to the cloud's APIs. The session's cookie carries the token, so nothing here knows it.

import type { BalancerReply } from "./balancer.types";
import type { Body, ComputeReply, Documented } from "./compute.types";
import type { IdentityReply } from "./identity.types";
import type { ImageReply } from "./image.types";
import type { NetworkReply } from "./network.types";
import type { PlacementReply } from "./page.types";
import type { VolumeReply } from "./volume.types";

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly request: string = "",
  ) {
    super(message);
  }
}

/** What each service answers. */
export interface Replies {
  compute: ComputeReply;
  identity: IdentityReply;
  image: ImageReply;
  network: NetworkReply;
  volume: VolumeReply;
  placement: PlacementReply;
  load_balancer: BalancerReply;
}
export type Service = keyof Replies;
type Lists<S extends Service> = {
  [K in keyof Replies[S]]: Replies[S][K] extends unknown[] ? K : never;
}[keyof Replies[S]];
type Row<S extends Service, K extends Lists<S>> = Replies[S][K] extends (infer T)[] ? T : never;
/** A path of the compute API is one of its document. The check is at the service, as the path would lose its text. */
type Served<S extends Service, P extends string> = S extends "compute"
  ? [Documented<P>] extends [never]
    ? "the document has no such path"
    : S
  : S;
/** The body of a request to the compute API is the one that its document describes. */
type Sent<S extends Service, M extends string, P extends string> = S extends "compute" ? Body<P, M> : unknown;

const ROOTS: Record<Service, string> = {
  compute: "api/compute/v2.1",
  identity: "api/identity/v3",
  image: "api/image/v2",
  network: "api/network/v2.0",
  volume: "api/volume/v3",
  placement: "api/placement",
  load_balancer: "api/load_balancer/v2",
};
const VERSIONS = "compute 2.96, volume 3.60, placement 1.30";
const MARK = { "X-Nova-Lite-Page": "1" };
const SESSION = "X-Nova-Lite-Session";

export interface Options {
  version?: string;
  headers?: Record<string, string>;
  quiet?: boolean; // a 401 fails instead of asking for the password
  session?: string; // the session that the request is for, if it began earlier
}

// The user and the project of this tab. Each request names them, since all tabs of a browser share one session.
let shown = "";
export function show(user: string, project: string): void {
  shown = `${encodeURIComponent(user)}/${encodeURIComponent(project)}`;
}
/** Headers of each request: a mark, and the session. */
export const named = (session = shown): Record<string, string> => ({ ...MARK, [SESSION]: session });

type Listener = () => void;
// Set by the shell: shows the log-in over the page, and resolves once the session is good again.
let renew: (() => Promise<void>) | null = null;
export function onExpired(handler: () => Promise<void>): void {
  renew = handler;
}
// Set by the shell: says that the browser's session is another one, and resolves once it is this tab's again.
let back: () => Promise<void> = () => Promise.resolve();
export function onOther(handler: () => Promise<void>): void {
  back = handler;
}

/** What the shell says of the APIs. `late`: those that have not answered for some seconds. */
export const connection = { lost: false, late: [] as string[], listeners: new Set<Listener>() };
const tell = (): void => connection.listeners.forEach((listener) => void listener());
function setLost(lost: boolean): void {
  if (connection.lost === lost) return;
  connection.lost = lost;
  tell();
}

/** Milliseconds after which an API that does not answer is named, and after which a request ends. */
const LATE = 5000;
const LAST = 60000;

/** Fetch a URL with its text. The API is named when it is late. */
async function fetched(url: string, init: RequestInit): Promise<[Response, string]> {
  const ending = new AbortController();
  const name = /^api\/(\w+)/.exec(url)?.[1] ?? "page";
  let isLate = false;
  const late = setTimeout(() => {
    isLate = true;
    connection.late.push(name);
    tell();
  }, LATE);
  const last = setTimeout(() => ending.abort(), LAST);
  try {
    const response = await fetch(url, { ...init, signal: ending.signal });
    const text = await response.text();
    setLost(false);
    return [response, text];
  } catch {
    if (!ending.signal.aborted) {
      setLost(true);
      throw new ApiError("The cloud does not answer. Nothing that you have entered is lost: try again.", 0);
    }
    const request = `${init.method} ${url}`;
    if (init.method === "GET") throw new ApiError("The API has not answered for 60 seconds.", 0, request);
    throw new ApiError(
      "The API has not answered for 60 seconds. It may still do what you have asked for: look before you try again.",
      0,
      request,
    );
  } finally {
    clearTimeout(late);
    clearTimeout(last);
    if (isLate) {
      connection.late.splice(connection.late.indexOf(name), 1);
      tell();
    }
  }
}

/** Names of things by their ids, as the APIs have answered them. */
export const known = new Map<string, string>();

/** Note the names in a reply: of its things, and of the things in its lists. */
export function learn(reply: unknown): void {
  if (!reply || typeof reply !== "object") return;
  for (const value of Object.values(reply))
    for (const row of Array.isArray(value) ? value : [value])
      if (row && typeof row.id === "string" && typeof row.name === "string") known.set(row.id, row.name);
}

export function call<S extends Service, M extends string, P extends string>(
  service: S & Served<S, P>,
  method: M,
  path: P,
  body?: Sent<S, M, P>,
  options: Options = {},
): Promise<Replies[S]> {
  return send(method, ROOTS[service] + path, body, options);
}

/** Send a request, and return its reply. The caller says what the path answers. */
export async function send<T>(method: string, url: string, body?: unknown, options: Options = {}): Promise<T> {
  const { ok, status, request, text } = await exchange(method, url, body, options);
  if (!ok) throw new ApiError(reasonOf(text, status), status, request);
  const reply = text ? parse(text) : null;
  learn(reply);
  return reply as T;
}

export interface Reply {
  ok: boolean;
  status: number;
  request: string;
  text: string;
}

/** Call an API, and return its reply whatever it is. */
export const callAt = (method: string, url: string, body: string | undefined, version: string): Promise<Reply> =>
  exchange(method, url, body, version ? { version } : {});

async function exchange(method: string, url: string, body: unknown, options: Options): Promise<Reply> {
  const session = options.session ?? shown;
  const headers: Record<string, string> = {
    ...named(session),
    "OpenStack-API-Version": options.version ?? VERSIONS,
    Accept: "application/json",
  };
  const init: RequestInit = { method, credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  init.headers = { ...headers, ...options.headers };
  const [response, text] = await fetched(url, init);
  if (response.status === 401 && !options.quiet && renew) {
    await renew();
    return exchange(method, url, body, { ...options, session, quiet: true });
  }
  if (response.headers.has(SESSION) && !options.quiet) {
    await back();
    return exchange(method, url, body, { ...options, session });
  }
  return {
    ok: response.ok,
    status: response.status,
    request: response.headers.get("X-OpenStack-Request-Id") ?? "",
    text,
  };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Return the API's own words: each service puts them elsewhere. */
export function reasonOf(text: string, status: number): string {
  const found = messageIn(parse(text));
  if (found) return found;
  return text && text.length < 400 && !text.trimStart().startsWith("<")
    ? text
    : `The API answers ${status} and gives no reason.`;
}

function messageIn(value: unknown): string {
  if (!value || typeof value !== "object") return "";
  for (const key of ["message", "detail"]) {
    const found = (value as Record<string, unknown>)[key];
    if (typeof found === "string" && found) return found;
  }
  for (const inner of Object.values(value)) {
    const found = messageIn(inner);
    if (found) return found;
  }
  return "";
}

/** Yield the pages of a list, so that the first one can be shown at once. */
export async function* pages<S extends Service, K extends Lists<S>, P extends string>(
  service: S & Served<S, P>,
  path: P,
  key: K,
  first = 100,
): AsyncGenerator<Row<S, K>[]> {
  let marker = "";
  let limit = first;
  for (;;) {
    const mark = marker ? `&marker=${encodeURIComponent(marker)}` : "";
    const url = `${ROOTS[service]}${path}${path.includes("?") ? "&" : "?"}limit=${limit}${mark}`;
    const found = (await send<Replies[S]>("GET", url))[key] as Row<S, K>[];
    yield found;
    if (found.length < limit) return;
    marker = (found[found.length - 1] as { id: string }).id;
    limit = 1000;
  }
}

export async function all<S extends Service, K extends Lists<S>, P extends string>(
  service: S & Served<S, P>,
  path: P,
  key: K,
): Promise<Row<S, K>[]> {
  const rows: Row<S, K>[] = [];
  for await (const page of pages<S, K, P>(service, path, key, 1000)) rows.push(...page);
  return rows;
}

export async function list<S extends Service, K extends Lists<S>, P extends string>(
  service: S & Served<S, P>,
  path: P,
  key: K,
  options: Options = {},
): Promise<Row<S, K>[]> {
  return (await send<Replies[S]>("GET", ROOTS[service] + path, undefined, options))[key] as Row<S, K>[];
}

/** Bytes that are sent at once: what a lost connection costs at most. */
const PIECE = 8 * 1048576;
/** Attempts at one piece; the wait between them grows to ten seconds. */
const ATTEMPTS = 40;

/**
 * Send a file in pieces, and import it. After a lost connection it goes on with the piece that broke. `begun`: data may be
 * there already. `progress`: share of the file, and whether the connection is lost.
 */
export async function upload(
  image: string,
  file: Blob,
  begun: boolean,
  progress: (share: number, lost: boolean) => void,
): Promise<void> {
  let first = 0;
  const session = shown;
  for (let attempt = 0; first < file.size; ) {
    const end = Math.min(file.size, first + PIECE);
    const { status, text, arrived, other } = await put(
      session,
      `${ROOTS.image}/images/${image}/stage`,
      file.slice(first, end),
      `bytes ${first}-${end - 1}/${file.size}`,
      (sent) => progress((first + sent) / file.size, false),
    );
    if (status === 401 && renew) await renew();
    else if (other) await back();
    else if (status === 416 && arrived !== null) first = arrived;
    else if (status > 0 && status < 300) {
      first = end;
      attempt = 0;
    } else if ([0, 502, 503, 504].includes(status) || (status === 409 && (begun || attempt > 0))) {
      // The API may not have noticed yet that the last attempt has ended.
      if (++attempt > ATTEMPTS && status === 0) throw new ApiError("The connection was lost during the upload.", 0);
      if (attempt > ATTEMPTS) throw new ApiError(reasonOf(text, status), status);
      progress(first / file.size, true);
      await new Promise((done) => setTimeout(done, Math.min(10, attempt) * 1000));
    } else throw new ApiError(reasonOf(text, status), status);
  }
  await call("image", "POST", `/images/${image}/import`, { method: { name: "glance-direct" } }, { session });
}

interface Put {
  status: number;
  text: string;
  arrived: number | null;
  other: boolean;
}

function put(session: string, url: string, data: Blob, range: string, sent: (count: number) => void): Promise<Put> {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    request.open("PUT", url);
    for (const [name, value] of Object.entries(named(session))) request.setRequestHeader(name, value);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("Content-Range", range);
    request.upload.onprogress = (event) => sent(event.loaded);
    request.onloadend = () => {
      const found = /^bytes \*\/(\d+)$/.exec(request.getResponseHeader("Content-Range") ?? "");
      resolve({
        status: request.status,
        text: request.responseText,
        arrived: found ? Number(found[1]) : null,
        other: request.getResponseHeader(SESSION) !== null,
      });
    };
    request.send(data);
  });
}
