// What a user has begun to write of a new server, and what other views let the form begin with.
import type { Server } from "./compute.types";
import { t } from "./messages";
import { keep, kept, link } from "./state";
import type { Action } from "./ui";

export interface Draft {
  name: string;
  count: number;
  image: string; // or volume:ID, or snapshot:ID
  flavor: string;
  network: string;
  key: string | null; // null: nobody has chosen; "": none
  groups: string[];
  lets: string[]; // names of openings
  outside: string; // the external network of its floating address
  data: string;
  volume: boolean;
  install: number | null; // GB of the new volume that an ISO installs a system on; 0: none; null: nobody has chosen
  zone: string;
  metadata: string;
  group: string;
}
export const EMPTY: Draft = {
  name: "",
  count: 1,
  image: "",
  flavor: "",
  network: "auto",
  key: null,
  groups: [],
  lets: [],
  outside: "",
  data: "",
  volume: false,
  install: null,
  zone: "",
  metadata: "",
  group: "",
};

/** In place of a key's name: one that the browser makes. No key can have this name. */
export const NEW = ":new";

/** What this page has sent, by the server's id, and what the next form begins with. */
export const sent = new Map<string, Draft>();
let next: Draft | null = null;

/**
 * Begin the next form with what a server was made of, or with another boot source. What the API no longer says, as user
 * data, is known to this page alone.
 */
export function createAgain(server: Server, source = ""): void {
  const groups = [...new Set((server.security_groups ?? []).map((group) => group.name))];
  next = sent.get(server.id) ?? {
    ...EMPTY,
    name: server.name,
    image: server.image ? server.image.id : "",
    flavor: server.flavor.original_name,
    network: Object.keys(server.addresses)[0] ?? "auto",
    key: server.key_name ?? "",
    groups: groups.filter((name) => name !== "default"),
    metadata: Object.entries(server.metadata)
      .map(([name, value]) => `${name}=${value}`)
      .join("\n"),
  };
  if (source) next = { ...next, image: source };
}

/** The action that begins a new server of an image, a volume or a snapshot. */
export const createOf = <T>(source: (row: T) => string, when: (row: T) => boolean): Action<T> => ({
  name: "server",
  label: t("Create a server"),
  rule: "os_compute_api:servers:create",
  single: true,
  when,
  go: (row) => {
    next = { ...EMPTY, image: source(row) };
    location.hash = link("servers", "new");
  },
});

/** User data of the draft. They may have secrets, so they are in the memory of this document alone. */
let userData = "";

export function keepDraft(draft: Draft | null): void {
  userData = draft?.data ?? "";
  keep("draft", draft ? JSON.stringify({ ...draft, data: "" }) : "");
}

/** The draft stays in this tab until it is sent or the session ends, so a reload does not lose it. */
export function loadDraft(): Draft {
  const given = next;
  next = null;
  if (given) return given;
  try {
    return { ...EMPTY, ...JSON.parse(kept("draft") || "{}"), data: userData };
  } catch {
    return { ...EMPTY, data: userData };
  }
}
