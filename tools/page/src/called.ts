// Names of things, where an API says nothing but their ids.
import { all, known, list } from "./api";
import { has, may } from "./state";

/** Milliseconds that a list of names is used. */
const FRESH = 30000;

const everyone = (): string => (may("os_compute_api:servers:index:get_all_tenants") ? "&all_tenants=1" : "");
/** Each list of names, with its service and its rule. */
const LISTS = {
  groups: [
    "compute",
    "os_compute_api:os-server-groups:index",
    () => list("compute", "/os-server-groups", "server_groups"),
  ],
  images: ["image", "image:get_images", () => all("image", "/images", "images")],
  networks: ["network", "get_network", () => list("network", "/networks", "networks")],
  policies: [
    "compute",
    "os_compute_api:os-backup-policies:index",
    () => list("compute", "/os-backup-policies", "backup_policies"),
  ],
  projects: ["identity", "identity:list_projects", () => list("identity", "/projects", "projects")],
  servers: [
    "compute",
    "os_compute_api:servers:index",
    () => list("compute", `/servers?limit=1000${everyone()}`, "servers"),
  ],
} as const;
const asked = new Map<string, { at: number; answer: Promise<unknown> }>();

function ask(name: keyof typeof LISTS): Promise<unknown> {
  const [service, rule, load] = LISTS[name];
  const last = asked.get(name);
  if (last && Date.now() - last.at < FRESH) return last.answer;
  // Without the names, the ids are shown.
  const answer = has(service) && may(rule) ? (load() as Promise<unknown>).catch(() => null) : Promise.resolve(null);
  asked.set(name, { at: Date.now(), answer });
  return answer;
}

/** Wait for data, and for the names that they are shown with. */
export async function naming<T>(data: Promise<T>, ...lists: (keyof typeof LISTS)[]): Promise<T> {
  const [found] = await Promise.all([data, ...lists.map(ask)]);
  return found;
}

/** Wait for the names of these ids. A list that lacks one, as of a new server, is read again. */
export async function namesOf(name: keyof typeof LISTS, ids: string[]): Promise<void> {
  await ask(name);
  if (ids.every((id) => known.has(id))) return;
  asked.delete(name);
  await ask(name);
}

/** The mark that `nova-lite apply` puts at the end of a description, or of a name. */
const MARK = /(?:^|\s)\[nova-lite-apply:([a-z0-9-]+\/[\w. -]+)(?:#[0-9a-f]{12})?\]$/;
export const unmarked = (text: string): string => text.replace(MARK, "");
/** The mark of a text, which is put back after what a user writes; "" without one. */
export const markOf = (text: string): string => text.slice(unmarked(text).length).trim();
/** The file's cloud and the thing's name in it, if a file has made the thing. */
export const madeBy = (text: string): string | undefined => MARK.exec(text)?.[1];

/** The name of a thing, or the beginning of its id. */
export const called = (id: string): string => unmarked(known.get(id) ?? "") || id.slice(0, 8);
