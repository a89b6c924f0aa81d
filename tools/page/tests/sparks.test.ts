// Sparklines of lists: which requests they send, and which they do not.
import { expect, test, vi } from "vitest";
import type { UsageHistory } from "../src/compute.types";
import { latestShare, leave, want } from "../src/sparks";

const asked: { id: string; answer: (history: UsageHistory) => void; fail: (error: Error) => void }[] = [];
const request = (id: string) => () =>
  new Promise<UsageHistory>((answer, fail) => {
    asked.push({ id, answer, fail });
  });

const none: UsageHistory["series"]["cpu"] = [];
const history = (...cpu: UsageHistory["series"]["cpu"]): UsageHistory => ({
  start: "2030-01-02T00:10:00Z",
  step: 15,
  vcpus: 2,
  memory_mb: 512,
  series: { cpu, memory_mb: none, disk_read_rate: none, disk_write_rate: none, rx_rate: none, tx_rate: none },
});
const settled = () => new Promise((next) => setTimeout(next));

test("rows ask three at a time, and those out of sight not at all", async () => {
  const done = vi.fn();
  for (const id of ["a", "b", "c", "d", "e"]) want(id, request(id), done);
  expect(asked.map((item) => item.id)).toEqual(["a", "b", "c"]);
  leave("d", done);
  leave("e", () => {});
  asked[0]!.answer(history(0.2, 1, null));
  await settled();
  expect(done).toHaveBeenCalledTimes(1);
  expect(latestShare("a")).toBe(50);
  expect(asked.map((item) => item.id)).toEqual(["a", "b", "c", "e"]);
});

test("a host without an answer has no line", async () => {
  asked[1]!.fail(new Error("Compute host host1 is unavailable."));
  asked[2]!.answer(history(null, null));
  await settled();
  expect(latestShare("b")).toBeNull();
  expect(latestShare("c")).toBeNull();
});
