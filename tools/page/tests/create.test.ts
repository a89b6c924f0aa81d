// A new server with what it needs beside it: groups for what it lets in, a new key, a floating address.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Flavor, Server } from "../src/compute.types";
import { bodyOf, commandOf, installsOn, isClosed, portOf, presets } from "../src/create";
import { EMPTY, loadDraft, NEW } from "../src/draft";
import { finish } from "../src/install";
import type { SecurityGroup, SecurityRule } from "../src/network.types";
import { groupCommands, groupFor, groupOf, nameFor, openings } from "../src/openings";
import { shared } from "../src/state";
import type { Values } from "../src/ui";
import { refusals } from "./client.mjs";

const ME = "203.0.113.5";
const rule = (change: Partial<SecurityRule> = {}): SecurityRule => ({
  ...{ id: "r", direction: "ingress", ethertype: "IPv4", protocol: "tcp", port_range_min: 22, port_range_max: 22 },
  ...{ remote_ip_prefix: `${ME}/32`, remote_group_id: null, description: null },
  ...change,
});
const group = (name: string, ...rules: SecurityRule[]): SecurityGroup => ({
  ...{ id: `id-${name}`, name, description: "" },
  security_group_rules: [rule({ direction: "egress", port_range_min: null, port_range_max: null }), ...rules],
});
const [ssh, web] = openings(ME);

beforeEach(() => {
  shared.session = {
    ...{ user: { id: "u", name: "alice" }, project: { id: "p", name: "p" }, services: new Set(["network"]) },
  } as typeof shared.session;
  shared.rules = new Set(["create_security_group", "create_security_group_rule"]);
  shared.address = ME;
});
afterEach(() => vi.unstubAllGlobals());

test("openings let in the browser's address, or everybody where it is not known", () => {
  expect(openings(ME)[0]).toMatchObject({ label: `SSH from my address (${ME})`, group: `ssh-${ME}` });
  expect(openings(ME)[0]!.rules).toEqual([{ ethertype: "IPv4", port_range_min: 22, remote_ip_prefix: `${ME}/32` }]);
  expect(openings("2001:db8::5")[2]!.rules).toEqual([
    { ethertype: "IPv6", port_range_min: 3389, remote_ip_prefix: "2001:db8::5/128" },
  ]);
  expect(openings(null)[0]).toMatchObject({ label: "SSH from everywhere", group: "ssh" });
  expect(openings(null)[0]!.rules.map((item) => item.remote_ip_prefix)).toEqual(["0.0.0.0/0", "::/0"]);
  expect(openings(ME)[1]!.rules).toHaveLength(4);
});

test.each([
  ["has this rule alone", [rule()], true],
  ["has no rule", [], false],
  ["lets in more", [rule(), rule({ port_range_min: 23, port_range_max: 23 })], false],
  ["lets in more ports", [rule({ port_range_max: 23 })], false],
  ["lets in another address", [rule({ remote_ip_prefix: null })], false],
  ["lets in servers", [rule({ remote_ip_prefix: null, remote_group_id: "g" })], false],
] as const)("a group that %s is the opening's: %s", (_, rules, isIt) => {
  expect(groupOf(ssh!, [group("g", ...rules)])?.id).toBe(isIt ? "id-g" : undefined);
});

test("everywhere is no range in one API, the whole range in another, and no group of servers", () => {
  const of = (remote_group_id: string | null) =>
    web!.rules.map((item) =>
      rule({ ...item, port_range_max: item.port_range_min, remote_ip_prefix: null, remote_group_id }),
    );
  expect(groupOf(web!, [group("own", ...of("id-own")), group("g", ...of(null))])?.id).toBe("id-g");
});

/** Answer requests by their method and the last part of their path, and note them. */
function answering(answers: Record<string, () => object>): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (url: string, init: RequestInit) => {
    const name = `${init.method} ${url.split("/").at(-1)}`;
    asked.push(name);
    const body = answers[name]?.();
    return new Response(JSON.stringify(body ?? { message: "No." }), { status: body ? 200 : 409 });
  });
  return asked;
}

test("the group of an opening is found, or made with all of its rules", async () => {
  let asked = answering({ "GET security-groups?project_id=p": () => ({ security_groups: [group("g", rule())] }) });
  expect(await groupFor(ssh!)).toBe("id-g");
  expect(asked).toHaveLength(1);
  const made = {
    "GET security-groups?project_id=p": () => ({ security_groups: [] }),
    "POST security-groups": () => ({ security_group: group("new") }),
  };
  asked = answering({ ...made, "POST security-group-rules": () => ({}) });
  expect(await groupFor(web!)).toBe("id-new");
  expect(asked.filter((name) => name === "POST security-group-rules")).toHaveLength(4);
});

test("a group that gets not all of its rules is deleted again", async () => {
  const asked = answering({
    "GET security-groups?project_id=p": () => ({ security_groups: [] }),
    "POST security-groups": () => ({ security_group: group("new") }),
    "DELETE id-new": () => ({}),
  });
  await expect(groupFor(ssh!)).rejects.toThrow("No.");
  expect(asked.at(-1)).toBe("DELETE id-new");
});

test("a group gets a name that is free", () => {
  expect(nameFor(web!, [group("web")])).toBe("web-2");
});

test("the port of a new server is awaited, unless the server fails", async () => {
  const ports = [[], [{ id: "p", fixed_ips: [] }], [{ id: "p", fixed_ips: [{ ip_address: "10.0.0.5" }] }]];
  const server = { status: "BUILD" };
  const answers = { "GET ports?device_id=s": () => ({ ports: ports.shift() ?? [] }), "GET s": () => ({ server }) };
  answering(answers);
  expect((await portOf("s", 0)).id).toBe("p");
  await expect(portOf("s", 0)).rejects.toThrow("The server has got no port.");
  server.status = "ERROR";
  await expect(portOf("s", 0)).rejects.toThrow("The server has failed before it had a port.");
});

const DRAFT = { ...EMPTY, name: "web", image: "i", flavor: "f", key: NEW, lets: ["ssh"], outside: "o" };
const DATA = { keys: [{ name: "alice" }], outside: [{ id: "o", name: "public" }], groups: [] as SecurityGroup[] };

test("the commands of a form make what it makes, and their clients take them", async () => {
  const lines = commandOf(DRAFT, undefined, undefined, DATA).split("\n");
  expect(lines).toEqual([
    "openstack keypair create --private-key alice-2.key alice-2",
    ...groupCommands(ssh!, `ssh-${ME}`),
    `openstack server create --image i --flavor f --network auto --key-name alice-2 --security-group default --security-group ssh-${ME} web`,
    "openstack floating ip create public",
    "openstack server add floating ip web ADDRESS",
  ]);
  expect(await refusals([...lines, ...groupCommands(web!, "web")])).toEqual([]);
}, 240000);

test("a command has the group that is there, and nothing that the server cannot have", () => {
  const known = commandOf({ ...DRAFT, groups: ["own"] }, undefined, undefined, {
    ...DATA,
    groups: [group("g", rule())],
  });
  expect(known).toContain("--security-group own --security-group id-g web");
  expect(known).not.toContain("group create");
  const alone = commandOf({ ...DRAFT, network: "none", key: "k" }, undefined, undefined, DATA);
  expect(alone).toBe("openstack server create --image i --flavor f --network none --key-name k web");
  expect(commandOf({ ...DRAFT, count: 2 }, undefined, undefined, DATA)).not.toContain("floating");
});

const ISO = { name: "debian.iso", min_disk: 0, disk_format: "iso" };
const BLANK = { boot_index: 1, source_type: "blank", destination_type: "volume", delete_on_termination: false };

test.each([
  ["as large as the flavor's", null, 40, 40],
  ["of the usual size", null, 0, 20],
  ["of the chosen size", 8, 40, 8],
  ["that is not wanted", 0, 40, 0],
])(
  "an ISO image installs on a volume %s",
  async (_, install, disk, expected) => {
    shared.session!.services.add("volume");
    const [draft, flavor] = [
      { ...EMPTY, name: "web", image: "i", install, volume: true },
      { name: "m1", disk } as Flavor,
    ];
    expect(installsOn(draft, flavor, ISO)).toBe(expected);
    expect(installsOn(draft, flavor, { ...ISO, disk_format: "qcow2" })).toBe(0);
    const line = commandOf(draft, flavor, ISO);
    expect(line.includes(`--block-device source_type=blank,`)).toBe(expected > 0);
    expect(line).not.toContain("--boot-from-volume");
    expect(await refusals([line])).toEqual([]);
  },
  240000,
);

test("a server that installs boots from its image and has an empty volume that stays", () => {
  const body = bodyOf({ ...EMPTY, name: "web", image: "i" }, 20, 30);
  expect(body).toMatchObject({ imageRef: "i", block_device_mapping_v2: [{ ...BLANK, volume_size: 30 }] });
});

test("an installation ends with the server's deletion and a form that boots from its volume", async () => {
  const volumes = ["in-use", "available"];
  vi.stubGlobal("location", { hash: "" });
  const asked = answering({
    "POST action": () => ({}),
    "DELETE s": () => ({}),
    "GET v": () => ({ volume: { status: volumes.shift() } }),
  });
  const server = {
    id: "s",
    name: "web",
    image: { id: "i" },
    flavor: { original_name: "m1" },
    addresses: {},
    metadata: {},
  };
  await finish("v", 0).run!(server as Server, {} as Values, () => undefined);
  expect(asked).toEqual(["POST action", "DELETE s", "GET v", "GET v"]);
  expect(location.hash).toBe("#/servers/new");
  expect(loadDraft()).toMatchObject({ name: "web", image: "volume:v", flavor: "m1" });
});

const CHOICES = {
  ...{ sources: [], networks: [], outside: [], together: [], keys: [] as { name: string }[], makes: true },
  images: [
    { id: "i", name: "debian", min_disk: 0, min_ram: 0 },
    { id: "w", name: "2025", os_type: "windows", min_disk: 0, min_ram: 0 },
  ],
  flavors: [
    { id: "small", name: "s", disk: 80, ram: 2048 },
    { id: "narrow", name: "n", disk: 20, ram: 8192 },
    { id: "large", name: "l", disk: 40, ram: 4096 },
  ],
};
const preset = (label: string, draft = EMPTY, data = CHOICES) =>
  presets()
    .find((item) => item.label === label)!
    .of(draft, data);

test("presets choose what is there, and replace nothing that the user has written", () => {
  expect(preset("Linux with SSH")).toEqual({ key: NEW, lets: ["ssh"] });
  expect(preset("Linux with SSH", EMPTY, { ...CHOICES, keys: [{ name: "k" }] }).key).toBe("k");
  expect(preset("Linux with SSH", EMPTY, { ...CHOICES, makes: false }).key).toBe("");
  expect(preset("Web server", { ...EMPTY, lets: ["ssh"] }).lets).toEqual(["ssh", "web"]);
  expect(preset("Web server").data).toContain("- nginx");
  expect(preset("Web server", { ...EMPTY, data: "#!own" }).data).toBe("#!own");
  expect(preset("Windows")).toEqual({ key: "", lets: ["rdp"], image: "w", flavor: "large" });
  expect(preset("Windows", EMPTY, { ...CHOICES, images: [], flavors: [] })).toEqual({ key: "", lets: ["rdp"] });
  shared.rules = new Set();
  expect(preset("Linux with SSH").lets).toEqual([]);
});

test.each([
  [{}, true],
  [{ key: "alice" }, false],
  [{ key: NEW }, false],
  [{ data: "#!/bin/sh" }, false],
  [{ lets: ["rdp"] }, false],
  [{ lets: ["ssh"] }, true],
])("server with %o is closed to everybody: %s", (change, closed) => {
  expect(isClosed({ ...EMPTY, ...change })).toBe(closed);
});
