// What needs attention, and states of servers.
import { expect, test } from "vitest";
import type { Server } from "../src/compute.types";
import type { Quota } from "../src/kinds";
import { needsOf, states } from "../src/overview";

const server = (name: string, status: string, more: Partial<Server> = {}) =>
  ({ id: name, name, status, ...more }) as Server;
const quota = (used: number, total: number): Quota => ["CPUs", used, total, String];

test("failed servers, lost hosts and waiting resizes need attention", () => {
  const fault = { message: "no room", created: "" };
  const found = needsOf(
    [
      server("a", "ERROR", { fault }),
      server("b", "ACTIVE", { host_status: "DOWN" }),
      server("c", "VERIFY_RESIZE"),
      server("d", "ACTIVE", { host_status: "UP" }),
    ],
    [],
  );
  expect(found.map((need) => [need.tone, need.what, need.to])).toEqual([
    ["bad", "Server a", "#/servers/a"],
    ["bad", "Server b", "#/servers/b"],
    ["warn", "Server c", "#/servers/c"],
  ]);
  expect(found[0]!.why).toBe("no room");
});

test("quota needs attention once nine tenths are used", () => {
  const tones = (used: number, total: number) => needsOf([], [quota(used, total)]).map((need) => need.tone);
  expect([tones(17, 20), tones(18, 20), tones(20, 20), tones(99, -1)]).toEqual([[], ["warn"], ["bad"], []]);
});

test("states of servers are counted, the most frequent first", () => {
  const found = states([server("a", "ERROR"), server("b", "ACTIVE"), server("c", "ACTIVE")]);
  expect(found).toEqual([
    ["ACTIVE", 2],
    ["ERROR", 1],
  ]);
});
