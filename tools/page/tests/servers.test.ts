// Servers: what happened to one, what a form sends, how hosts are drained, and when backups run.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { aimed, backups, guarded, kept, makeImage, bodyOf as policyBody, timing } from "../src/backups";
import type { Backup, Flavor, Server } from "../src/compute.types";
import { bodyOf, commandOf, corrected, metadataOf, problems } from "../src/create";
import { EMPTY, keepDraft, loadDraft, NEW } from "../src/draft";
import { example } from "../src/explorer";
import type { Image } from "../src/image.types";
import { type BootSnapshot, images, snapshots, volumes } from "../src/kinds";
import { given } from "../src/operators";
import { planned } from "../src/plan";
import { asDeleted, outcome, stages } from "../src/server";
import { accepts, sessionOf, shared } from "../src/state";
import { usable, type Values } from "../src/ui";
import type { Volume } from "../src/volume.types";

const FLAVOR = { id: "f", name: "m1", vcpus: 2, ram: 2048, disk: 20 } as Flavor;
const IMAGE = { id: "i", name: "debian", min_disk: 0, min_ram: 0 } as Image;
const LIMITS = {
  maxTotalInstances: 10,
  totalInstancesUsed: 9,
  maxTotalCores: -1,
  totalCoresUsed: 500,
  maxTotalRAMSize: 8192,
  totalRAMUsed: 4096,
  maxServerGroups: 1,
  totalServerGroupsUsed: 0,
};
const server = (id: string, ram: number, change: Partial<Server> = {}): Server =>
  ({
    id,
    name: id,
    image: null,
    flavor: { original_name: "m1", vcpus: 1, ram, disk: 20 },
    "OS-EXT-STS:vm_state": "active",
    "OS-EXT-STS:task_state": null,
    ...change,
  }) as Server;

beforeEach(() => {
  shared.operations = {};
});
afterEach(() => vi.unstubAllGlobals());

test("stages reads what each filter took out", () => {
  const text =
    "Hosts: 3. RamFilter took out 2 of 3 hosts: h1 (has 5 MB, needs 9), h2 (full). DiskFilter took out 1 of 1 host: h3 (1.5 GB).";
  expect(stages(text)).toEqual([
    { filter: "RamFilter", out: 2, of: 3, hosts: ["h1 (has 5 MB, needs 9)", "h2 (full)"] },
    { filter: "DiskFilter", out: 1, of: 1, hosts: ["h3 (1.5 GB)"] },
  ]);
  expect(stages("No reason.")).toEqual([]);
});

const BEGUN = { event: "compute_stop_instance", start_time: "2030-01-01T00:00:00", finish_time: null, result: null };
const FAILED = { ...BEGUN, finish_time: "2030-01-01T00:00:01", result: "Error", details: "The disk is full." };
const ACTION = { action: "stop", request_id: "r", message: null, start_time: "", updated_at: null };

test.each([
  [
    "the last failed step has the reason",
    { message: "Error", events: [{ ...FAILED, details: "first" }, FAILED] },
    true,
    "failed",
    "The disk is full.",
  ],
  ["the latest failure without one has the fault's", { message: "Error", events: [] }, true, "failed", "No host."],
  ["an older failure has its message", { message: "Error", events: [] }, false, "failed", "Error"],
  ["a message of an action that did not fail is none", { message: "Note", events: [BEGUN] }, false, "done", ""],
  ["a step of the latest action has not ended", { events: [BEGUN] }, true, "running", ""],
  ["a step of an older action says nothing", { events: [BEGUN] }, false, "done", ""],
] as const)("outcome: %s", (_, action, latest, state, reason) => {
  const failed = server("s", 1, { fault: { message: "No host.", created: "" } });
  expect(outcome({ ...ACTION, ...action, events: [...action.events] }, failed, latest)).toEqual({ state, reason });
});

test("accepts compares state and task with the cloud's table", () => {
  shared.operations = {
    stop: { action: null, rule: null, allowed: ["active"], during: [] },
    delete: { action: null, rule: null, allowed: null, during: null },
  };
  expect(accepts("stop", server("s", 1))).toBe(true);
  expect(accepts("stop", server("s", 1, { "OS-EXT-STS:vm_state": "stopped" }))).toBe(false);
  expect(accepts("stop", server("s", 1, { "OS-EXT-STS:task_state": "rebooting" }))).toBe(false);
  expect(accepts("delete", server("s", 1, { "OS-EXT-STS:task_state": "rebooting" }))).toBe(true);
});

test("planned moves the largest server first, and counts it for the next ones", () => {
  const room = [
    { host: "small", free: { VCPU: 9, MEMORY_MB: 2000 } },
    { host: "large", free: { VCPU: 9, MEMORY_MB: 3000 } },
  ];
  const servers = [server("a", 1500), server("b", 1900), server("c", 1200), server("d", 1)];
  const steps = planned(servers, (item) => (item.id === "d" ? ["stay", "locked"] : ["live", ""]), room);
  expect(steps.map(({ server, way, to, note }) => [server.id, way, to, note])).toEqual([
    ["b", "live", "large", ""],
    ["a", "live", "small", ""],
    ["c", "live", "", "No host has room for it now."],
    ["d", "stay", "", "locked"],
  ]);
});

test("a server that is gone is deleted, whatever it was", () => {
  const gone = asDeleted(server("s", 1, { status: "ACTIVE", "OS-EXT-STS:task_state": "deleting" }));
  expect([gone.status, gone["OS-EXT-STS:task_state"]]).toEqual(["DELETED", null]);
});

test.each([
  [true, { finished_at: "" }, "yes"],
  [true, null, "not yet"],
  [false, null, "no"],
  [false, { finished_at: "" }, "no"],
])("a policy that is met (%s), with the last backup %o, guards: %s", (met, last_backup, expected) => {
  expect(guarded({ met, last_backup })).toBe(expected);
});

const DRAFT = { ...EMPTY, name: "web", image: "i", flavor: "f", network: "n" };

test("bodyOf a form has what is chosen, and nothing else", () => {
  expect(bodyOf(DRAFT, 20)).toEqual({ name: "web", flavorRef: "f", networks: [{ uuid: "n" }], imageRef: "i" });
  const body = bodyOf({ ...DRAFT, network: "auto", volume: true, count: 3, key: "k", groups: ["g"] }, 0);
  expect(body).toMatchObject({
    networks: "auto",
    key_name: "k",
    min_count: 3,
    max_count: 3,
    security_groups: [{ name: "g" }],
  });
  expect(body).not.toHaveProperty("imageRef");
  expect(body.block_device_mapping_v2).toMatchObject([{ uuid: "i", source_type: "image", volume_size: 1 }]);
});

test.each([
  [{}, FLAVOR, IMAGE, []],
  [{ count: 2 }, FLAVOR, IMAGE, ["This is more than the project's quota has left."]],
  [{}, { ...FLAVOR, ram: 4097 }, IMAGE, ["This is more than the project's quota has left."]],
  [{}, FLAVOR, { ...IMAGE, min_disk: 21 }, ["The image needs a larger disk: 21 GB."]],
  [{ volume: true }, FLAVOR, { ...IMAGE, min_disk: 21 }, []],
  [{}, FLAVOR, { ...IMAGE, min_ram: 4096 }, ["The image needs more memory: 4096 MB."]],
  [
    { data: "echo" },
    FLAVOR,
    IMAGE,
    ["The user data start with nothing that cloud-init knows: #!, #cloud-config, or a MIME header."],
  ],
  [{ data: "#cloud-config\n\ta: 1" }, FLAVOR, IMAGE, ["Line 2: YAML does not allow tabs at the start of a line."]],
  [{ data: `#!${"é".repeat(24574)}` }, FLAVOR, IMAGE, ["The user data are longer than 48 KiB."]],
  [
    { count: 2, outside: "o" },
    FLAVOR,
    { ...IMAGE },
    ["This is more than the project's quota has left.", "Several servers get no floating address."],
  ],
  [{ network: "none" }, FLAVOR, IMAGE, ["Without a network nobody reaches the server."]],
])("problems of %o", (change, flavor, image, notes) => {
  expect(problems({ ...DRAFT, ...change }, flavor, image, LIMITS)).toEqual(notes);
});

test("a draft keeps its user data on the way through the page, and stores none", () => {
  const stored = new Map<string, string>();
  vi.stubGlobal("sessionStorage", {
    getItem: (name: string) => stored.get(name) ?? null,
    setItem: (name: string, value: string) => stored.set(name, value),
    removeItem: (name: string) => stored.delete(name),
  });
  keepDraft({ ...DRAFT, data: "#!secret" });
  expect([...stored.values()].join()).toContain('"name":"web"');
  expect([...stored.values()].join()).not.toContain("secret");
  expect(loadDraft()).toEqual({ ...DRAFT, data: "#!secret" });
  keepDraft(null);
  expect(loadDraft()).toEqual(EMPTY);
  expect(stored.size).toBe(0);
});

test("metadataOf splits lines at their first sign of equality", () => {
  expect(metadataOf(" a = b=c \n\nd\n")).toEqual({ a: "b=c", d: "" });
});

test("example has what a schema requires", () => {
  expect(
    example({
      type: "object",
      required: ["name", "count", "kind", "tags", "size"],
      properties: {
        name: { type: ["string", "null"] },
        count: { type: "integer", minimum: 1 },
        kind: { enum: ["x", "y"] },
        tags: { type: "array", minItems: 1, items: { type: "boolean" } },
        size: { oneOf: [{ type: "string" }, { type: "number" }] },
        other: { type: "string" },
      },
    }),
  ).toEqual({ name: "", count: 1, kind: "x", tags: [false], size: 0 });
  const endless: Parameters<typeof example>[0] = { type: "object", required: ["a"], properties: {} };
  endless.properties!.a = endless;
  expect(JSON.stringify(example(endless))).toContain("null");
});

test("sessionOf knows a service by each of its types", () => {
  const user = { id: "u", name: "alice" };
  const catalog = [{ type: "volumev3" }, { type: "compute" }];
  const session = sessionOf({ token: { user, roles: [{ id: "r", name: "member" }], expires_at: "", catalog } });
  expect(session).toEqual({
    user,
    project: null,
    roles: ["member"],
    expires: "",
    services: new Set(["volume", "compute"]),
  });
});

test.each([
  [{ every: "hour", minute: 5 }, "each hour, at minute 05"],
  [{ every: "day", hour: 2, minute: 30 }, "Each day, 02:30 UTC"],
  [{ every: "week", weekday: "sunday", hour: 0, minute: 0 }, "Sunday, 00:00 UTC"],
])("timing of %o is %s", (schedule, text) => {
  expect(timing(schedule)).toBe(text);
});

test("a policy in words", () => {
  expect(kept({ hourly: 0, daily: 7, weekly: 4 })).toBe("7 days, 4 weeks");
  expect(kept({})).toBe("none");
  expect(aimed({ servers: ["a"], tags: ["x", "y"], all: false })).toBe("1 chosen server; servers with a tag of x, y");
  expect(aimed({ servers: [], tags: [], all: true })).toBe("all servers");
});

test("the body of a policy has the parts of its schedule", () => {
  const values = {
    ...{ name: "nightly", every: "day", minute: "30", hour: "2", weekday: "sunday", hourly: "0", daily: "7" },
    ...{ weekly: "", after: "", before: "06:00", all: false, tags: "a, b  c", servers: ["s"] },
  } as Values;
  expect(policyBody(values)).toEqual({
    backup_policy: {
      name: "nightly",
      schedule: { every: "day", minute: 30, hour: 2 },
      retention: { hourly: 0, daily: 7, weekly: 0 },
      window: { not_after: "06:00" },
      targets: { tags: ["a", "b", "c"], servers: ["s"] },
    },
  });
  expect(policyBody({ ...values, every: "hour", all: true }).backup_policy).toMatchObject({
    schedule: { every: "hour", minute: 30 },
    targets: { all: true },
  });
  expect(policyBody({ ...values, every: "week" }).backup_policy.schedule).toHaveProperty("weekday", "sunday");
});

test("each service gets the limits of its own that were entered", () => {
  shared.session = { services: new Set(["compute", "volume", "network"]) } as typeof shared.session;
  const rules = ["os_compute_api:os-quota-sets:update", "volume_extension:quotas:update", "update_quota"];
  shared.rules = new Set(rules);
  const values = { instances: "0", server_groups: "-1", cores: "", snapshots: "5", security_group_rule: "7" } as Values;
  expect(given("compute", values)).toEqual({ instances: 0, server_groups: -1 });
  expect(given("volume", values)).toEqual({ snapshots: 5 });
  expect(given("network", values)).toEqual({ security_group_rule: 7 });
  shared.rules = new Set(rules.slice(0, 2));
  expect(given("network", values)).toEqual({});
});

const BACKUP = { id: "b", server_id: "s", server_name: "web", status: "complete", image_id: null } as Backup;
const actionsOf = (rule: string, change: Partial<Backup>): string[] => {
  shared.rules = new Set(rule.split(" ").map((name) => `os_compute_api:${name}`));
  return usable(backups().actions, { ...BACKUP, ...change }).map((action) => action.name);
};

test("a complete backup is restored in place, and as a new server", () => {
  const all = "os-server-backups:restore os-server-backups:create_server servers:rebuild servers:create";
  expect(actionsOf(all, {})).toEqual(["restore", "new"]);
  expect(actionsOf(all, { status: "running" })).toEqual([]);
  expect(actionsOf("os-server-backups:create_server servers:create", {})).toEqual(["new"]);
});

test("a backup in a repository waits for its image before it is restored", async () => {
  const asked: string[] = [];
  const states = [{ image_id: null }, { image_id: null }, { image_id: "i" }];
  vi.stubGlobal("fetch", async (url: string, init: RequestInit) => {
    asked.push(`${init.method} ${url}`);
    return new Response(JSON.stringify({ server_backup: { ...BACKUP, ...states.shift() } }));
  });
  await makeImage(BACKUP, () => undefined, 0);
  const path = "api/compute/v2.1/os-server-backups/b";
  expect(asked).toEqual([`POST ${path}/image`, `GET ${path}`, `GET ${path}`]);
  await makeImage({ ...BACKUP, image_id: "i" }, () => undefined, 0);
  expect(asked).toHaveLength(3);
});

test("a backup whose image fails says why", async () => {
  const failed = { ...BACKUP, restore_status: "failed", restore_reason: "The repository is away." };
  vi.stubGlobal("fetch", async () => new Response(JSON.stringify({ server_backup: failed })));
  await expect(makeImage(BACKUP, () => undefined, 0)).rejects.toThrow("The repository is away.");
});

test("images, bootable volumes and their snapshots begin a server", () => {
  shared.rules = new Set(["os_compute_api:servers:create"]);
  vi.stubGlobal("location", { hash: "" });
  const first = (actions: { name: string }[]) => actions.map((action) => action.name);
  const image = { ...IMAGE, status: "active" } as Image;
  expect(first(usable(images().actions, image))).toEqual(["server"]);
  expect(first(usable(images().actions, { ...image, disk_format: "aki" }))).toEqual([]);
  const volume = { id: "v", bootable: "true", status: "available" } as Volume;
  expect(first(usable(volumes().actions, volume))).toEqual(["server"]);
  expect(first(usable(volumes().actions, { ...volume, bootable: "false" }))).toEqual([]);
  const snapshot = { id: "n", boots: true, status: "available" } as BootSnapshot;
  expect(first(usable(snapshots().actions, { ...snapshot, boots: false }))).toEqual([]);
  usable(snapshots().actions, snapshot)[0]!.go!(snapshot);
  expect(location.hash).toBe("#/servers/new");
  expect(loadDraft()).toEqual({ ...EMPTY, image: "snapshot:n" });
});

test.each(["volume", "snapshot"] as const)("a server boots from a %s", (kind) => {
  const draft = { ...DRAFT, image: `${kind}:x` };
  expect(bodyOf(draft, 20)).not.toHaveProperty("imageRef");
  expect(bodyOf(draft, 20).block_device_mapping_v2).toEqual([
    { boot_index: 0, uuid: "x", source_type: kind, destination_type: "volume", delete_on_termination: false },
  ]);
  expect(commandOf(draft, FLAVOR, { name: "volume disk – 10 GB" })).toContain(`--${kind} x --flavor m1`);
});

test("a draft keeps what was entered, and gets what it lacks", () => {
  const data = {
    images: [
      { id: "s", image_type: "snapshot", min_disk: 0 },
      { id: "i", min_disk: 2 },
    ] as never[],
    sources: [{ id: "i", name: "i", min_disk: 2, min_ram: 0 }],
    flavors: [
      { id: "small", name: "s", disk: 1, ram: 1024 },
      { id: "large", name: "l", disk: 4, ram: 1024 },
    ],
    networks: [{ id: "n", name: "net" }],
    outside: [{ id: "o", name: "public" }],
    keys: [{ name: "k" }],
    makes: false,
    together: [],
  };
  const entered = { ...EMPTY, name: "silent", data: "#cloud-config", network: "net", group: "gone" };
  expect(corrected(entered, data)).toEqual({
    ...entered,
    image: "i",
    flavor: "large",
    key: "k",
    network: "n",
    group: "",
  });
  expect(corrected({ ...entered, flavor: "s", image: "i" }, data).flavor).toBe("small");
  expect(corrected({ ...entered, key: NEW, outside: "o" }, { ...data, makes: true })).toMatchObject({
    key: NEW,
    outside: "o",
  });
  expect(corrected({ ...entered, key: NEW, outside: "gone" }, data)).toMatchObject({ key: "k", outside: "" });
  expect(corrected({ ...entered, key: "" }, data).key).toBe("");
  expect(corrected(entered, { ...data, keys: [] }).key).toBe(null);
});
