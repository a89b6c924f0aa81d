// The box for any name: what it finds first, and what it asks the API for. What errors say, and where they lead.
import { afterEach, expect, test, vi } from "vitest";
import { known } from "../src/api";
import { doings, lately, queries, ranked, type Thing, visited } from "../src/finder";
import { hintOf, withNames } from "../src/hints";
import { shared } from "../src/state";

afterEach(() => {
  known.clear();
  vi.unstubAllGlobals();
});

const hits = ["my-web", "cobweb", "web-1", "web", "web"].map((label, at) => ({
  label,
  note: "server",
  href: `#${at}`,
}));
const labels = (text: string) => ranked(hits, text).map((hit) => hit.label);

test("ranked puts the name itself first, then its beginning, then words, then the rest", () => {
  expect(labels("WEB")).toEqual(["web", "web", "web-1", "my-web", "cobweb"]);
  expect(labels("web server")).toHaveLength(5);
  expect(labels("1 web")).toEqual(["web-1"]);
  expect(labels("")).toEqual(hits.map((hit) => hit.label));
});

test("ranked takes a whole id or address for more than the beginning of a name", () => {
  const named = [
    { label: "10.0.0.5-gateway", note: "server · a · 10.0.0.9", href: "#1" },
    { label: "web", note: "server · b · 10.0.0.5", href: "#2" },
  ];
  expect(ranked(named, "10.0.0.5").map((hit) => hit.href)).toEqual(["#2", "#1"]);
});

test("ranked names each thing once", () => {
  expect(ranked([...hits, ...hits], "web")).toHaveLength(5);
});

test.each([
  ["web", ["&name=web"]],
  [" a.b+c ", ["&name=a%5C.b%5C%2Bc"]],
  ["10.0.0", ["&ip=10%5C.0%5C.0", "&name=10%5C.0%5C.0"]],
  ["0bd4c8de-1f0f-4a6c-8a1e-3c1ad0e7b1a2", ["&uuid=0bd4c8de-1f0f-4a6c-8a1e-3c1ad0e7b1a2"]],
])("queries of %s", (text, expected) => {
  expect(queries(text)).toEqual(expected);
});

const thing = (label: string, isOn = true): Thing => ({
  ...{ label, note: "server · 1f", href: `#/servers/${label}`, row: { isOn } },
  actions: [
    { name: "stop", label: "Stop", when: (row) => (row as { isOn: boolean }).isOn },
    { name: "confirm", label: "Confirm the resize" },
    { name: "secret", label: "Stop for ever", rule: "nobody" },
  ],
});
const asked = (text: string, ...things: Thing[]) => {
  shared.rules = new Set();
  const done: string[] = [];
  const [named, vague] = doings(things, text, (action, { label }) => done.push(`${action.name} ${label}`));
  for (const hit of named) hit.run!();
  return [named.map((hit) => hit.label), vague.map((hit) => hit.label), done];
};

test.each([
  ["stop web-1", ["Stop web-1"], []],
  ["WEB-1 st", ["Stop web-1"], []],
  ["confirm resize web", ["Confirm the resize web-1", "Confirm the resize web-2"], []],
  ["stop", [], ["Stop web-1"]],
  ["web-1", [], []],
  ["stop db", [], []],
  ["top web-1", [], []],
  ["", [], []],
])("doings of %s", (text, named, vague) => {
  const [own, others, done] = asked(text, thing("web-1"), thing("web-2", false));
  expect([own, others]).toEqual([named, vague]);
  expect(done).toHaveLength(named.length);
});

test("doings of a thing that is called as an action", () => {
  expect(asked("stop stop-it", thing("stop-it"))[0]).toEqual(["Stop stop-it"]);
});

test("lately has the things that were opened last, each once, and none that is gone", () => {
  const stored = new Map<string, string>();
  vi.stubGlobal("sessionStorage", {
    getItem: (name: string) => stored.get(name) ?? null,
    setItem: (name: string, value: string) => stored.set(name, value),
  });
  for (const id of ["gone", "a", "b", "a", "new"]) visited(["servers", id]);
  visited(["servers"]);
  visited(["api", "post_servers"]);
  expect(lately([thing("a"), thing("b"), thing("c"), thing("new")]).map((hit) => hit.label)).toEqual(["a", "b"]);
  for (const id of ["1", "2", "3", "4", "5", "6"]) visited(["servers", id]);
  expect(lately([thing("a"), thing("b")])).toEqual([]);
});

const ID = "0bd4c8de-1f0f-4a6c-8a1e-3c1ad0e7b1a2";

test("withNames puts the names that are known in place of ids", () => {
  known.set(ID, "public");
  expect(withNames(`External network ${ID} is away from ${ID.replace("0", "1")}.`)).toBe(
    `External network public (0bd4c8de) is away from ${ID.replace("0", "1")}.`,
  );
});

test.each([
  [`External network ${ID} is not reachable from subnet ${ID}. Therefore, cannot associate Port`, "routers"],
  ["Quota exceeded for instances: Requested 1, but already used 10 of 10 instances", "quotas"],
  ["Invalid key_name provided.", "keys"],
  [`Network ${ID} requires a subnet in order to boot instances on.`, "networks"],
  ["Quota limit 1 for cores must be greater than or equal to already used 2.", undefined],
])("hintOf %s leads to %s", (text, view) => {
  expect(hintOf(text)?.view).toBe(view);
});
