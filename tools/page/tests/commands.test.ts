// Commands that the page shows: each one is read by its own client, with values in all fields. Nothing is sent.
import type { ComponentChild } from "preact";
import { expect, test, vi } from "vitest";
import { backups, policies } from "../src/backups";
import { balancers } from "../src/balancers";
import { aggregates, serverGroups } from "../src/groups";
import * as kinds from "../src/kinds";
import type { Kind } from "../src/listing";
import * as operators from "../src/operators";
import { qosPolicies } from "../src/qos";
import { questionOf, traceCommand } from "../src/reach";
import { add, remove } from "../src/secondfactor";
import { Server } from "../src/server";
import { Servers } from "../src/servers";
import { shared } from "../src/state";
import { volumeTypes } from "../src/storage";
import { Table } from "../src/table";
import { type Action, ActionButtons, Command, Copy, type Field, initials, type Values } from "../src/ui";
import { refusals } from "./client.mjs";

/** A thing with the fields of all kinds of things. */
const ROW = {
  ...{ id: "ID", name: "web", key: "k", value: "v", status: "ACTIVE", server_id: "ID", volumeId: "V", port_id: "P" },
  ...{
    binary: "nova-compute",
    host: "h1",
    state: "up",
    username: "u",
    description: "d",
    visibility: "private",
    size: 1,
  },
  ...{ disk_format: "raw", created: "", updated: "2030-01-01T00:00:00Z", created_at: "2030-01-01T00:00:00Z" },
  ...{ fixed_ips: [], security_group_rules: [], ranges: [], members: [], rules: [], external_gateway_info: null },
  ...{
    image: { id: "IMG" },
    flavor: { original_name: "m1", ram: 1 },
    addresses: {},
    metadata: { a: "b" },
    hosts: ["h1"],
  },
  ...{ attachments: [{ server_id: "ID" }], role: { name: "member" }, user: { id: "U", name: "u" } },
  ...{
    scope: { project: { id: "PR", name: "p" } },
    links: { assignment: "a" },
    device_owner: "network:router_interface",
  },
  ...{ schedule: { every: "day" }, retention: {}, targets: { servers: [], tags: [], all: true }, window: {} },
  ...{ provisioning_status: "ACTIVE", operating_status: "ONLINE", vip_port_id: "VP", vip_network_id: "N" },
  ...{ port_forwardings: [], external_port_range: "80:80", internal_port_range: "80:80", protocol: "tcp" },
  ...{
    "OS-EXT-STS:task_state": null,
    "OS-EXT-STS:vm_state": "active",
    project_id: "PR",
    router: "R",
    pool: { id: "POOL" },
    load: null,
  },
};
const LISTS: Record<string, unknown> = {
  balancer: { listeners: [ROW], pools: [ROW], members: [{ ...ROW, pool: ROW }], monitors: [ROW], connections: 0 },
  server: ROW,
  interfaces: { interfaces: [ROW], networks: new Map(), groups: [ROW], floating: [ROW] },
  servers: { servers: new Map([["ID", ROW]]), complete: true, asked: "" },
  "project-names": new Map(),
  groups: new Map(),
  log: "",
  actions: [],
};

// Views are called as functions, with data that are there at once.
vi.mock("preact/hooks", async (original) => ({
  ...(await original<typeof import("preact/hooks")>()),
  useState: (first: unknown) => [typeof first === "function" ? first() : first, () => undefined],
  useEffect: () => undefined,
  useRef: (current: unknown) => ({ current }),
  useMemo: (make: () => unknown) => make(),
}));
vi.mock("../src/state", async (original) => ({
  ...(await original<typeof import("../src/state")>()),
  may: () => true,
  has: () => true,
  accepts: () => true,
  useParameter: () => ["", () => undefined],
  useData: (_: unknown, [name]: [string]) => ({ data: LISTS[name] ?? [ROW], error: null, reload: () => undefined }),
}));

const firstOf = (field: Field): string => (Array.isArray(field.choices) ? field.choices[0]!.value : "");
function valueFor(field: Field): unknown {
  if (field.kind === "select") return firstOf(field) || "THING";
  if (field.kind === "many") return ["10.0.0.9"];
  return field.kind === "number" ? "3" : field.kind === undefined ? field.initial || "text" : undefined;
}

/** Parts without commands that need a browser. */
const SKIPPED = ["Copy", "Topology", "CloudMap", "ProjectQuota", "Dialog", "Menu"];
const found = new Set<string>();
function collect(actions: Action<object>[], row: object): void {
  for (const action of actions) {
    const fields = action.fields ?? action.fieldsOf?.(row) ?? [];
    const empty = initials(
      fields.map((field) => (field.kind === "select" ? { initial: firstOf(field), ...field } : field)),
    );
    const given = fields.map((field) => [field.name, valueFor(field) ?? empty[field.name]]);
    for (const values of [empty, Object.fromEntries(given) as Values])
      for (const line of action.command?.(row, values).split("\n") ?? []) found.add(line);
  }
}

interface Props {
  actions?: Action<object>[];
  bulk?: Action<object>[];
  text?: string;
  children?: ComponentChild;
}

/** Collect the commands of a view: those of its tables, its buttons, and its own. */
function walk(node: unknown): void {
  if (Array.isArray(node)) for (const item of node) walk(item);
  if (!node || typeof node !== "object" || Array.isArray(node)) return;
  const { type, props } = node as { type: unknown; props: Props };
  if (type === Command || (type === Copy && props.text!.startsWith("openstack "))) found.add(props.text!);
  else if (type === Table || type === ActionButtons) collect([...(props.actions ?? []), ...(props.bulk ?? [])], ROW);
  else if (typeof type === "function" && /^function|=>/.test(String(type)) && !SKIPPED.includes(type.name))
    walk((type as (props: Props) => unknown)(props));
  else walk(props.children);
}

test("each command is one that its client takes", async () => {
  shared.session = { user: { id: "U", name: "u" }, project: { id: "PR" }, roles: ["admin"] } as typeof shared.session;
  vi.stubGlobal("document", { documentElement: { lang: "en" } });
  const { images, volumes, snapshots, networks, routers, floating, securityGroups, keys, credentials } = kinds;
  const { hosts, services, users, projects, flavors } = operators;
  const own = [images, volumes, snapshots, networks, routers, floating, securityGroups, keys, credentials];
  const others = [
    balancers,
    volumeTypes,
    qosPolicies,
    backups,
    policies,
    aggregates,
    serverGroups,
    hosts,
    services,
    users,
    projects,
    flavors,
  ];
  for (const make of [...own, ...others] as (() => Kind)[]) {
    const kind = make();
    found.add(kind.command);
    collect((kind.create ?? []) as Action<object>[], {});
    collect(kind.actions as Action<object>[], ROW);
    walk(kind.more?.(ROW, () => undefined));
  }
  collect([kinds.ownPassword(), add("KEY"), remove([{ id: "ID", type: "totp" }])], {});
  walk(Servers());
  for (const tab of ["timeline", "network", "disks", "snapshots", "console", "metadata"])
    walk(Server({ id: "ID", tab }));
  for (const protocol of ["icmp", "tcp"]) {
    const values = { from: "P", to: "Q fd00::1", protocol, port: "22" } as Values;
    found.add(traceCommand(questionOf(values), true));
  }
  const lines = [...found].filter((line) => !line.startsWith("curl "));
  expect(lines.length).toBeGreaterThan(120);
  expect(await refusals(lines)).toEqual([]);
}, 240000);
