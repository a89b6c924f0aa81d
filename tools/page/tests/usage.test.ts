// Usage: periods, and projects whose servers are on several pages of the API. Rules of QoS policies in words.
import { expect, test } from "vitest";
import type { ProjectUsage } from "../src/compute.types";
import { ruleWords } from "../src/qos";
import { added, periodOf, priced, pricesOf } from "../src/usage";

test.each([
  ["", "2030-01-01T00:00:00", "2030-01-15T12:00:00"],
  ["last", "2029-12-01T00:00:00", "2030-01-01T00:00:00"],
  ["week", "2030-01-08T12:00:00", "2030-01-15T12:00:00"],
  ["days", "2029-12-16T12:00:00", "2030-01-15T12:00:00"],
  ["nonsense", "2030-01-01T00:00:00", "2030-01-15T12:00:00"],
])("period %s is from %s to %s", (name, begin, end) => {
  expect(periodOf(name, new Date("2030-01-15T12:00:00Z"))).toEqual([begin, end]);
});

test("usage of a project on two pages is added", () => {
  const page = (hours: number): ProjectUsage => ({
    tenant_id: "p",
    total_hours: hours,
    total_vcpus_usage: 2 * hours,
    total_memory_mb_usage: 512 * hours,
    total_local_gb_usage: 20 * hours,
  });
  expect(added(page(1), page(2))).toEqual(page(3));
});

test.each([
  [{ type: "bandwidth_limit", max_kbps: 100000, direction: "egress" }, "From the guest at most 100 Mbit/s"],
  [{ type: "bandwidth_limit", max_kbps: 500, direction: "ingress" }, "To the guest at most 500 kbit/s"],
  [{ type: "dscp_marking", dscp_mark: 46 }, "Marks packets with DSCP 46"],
])("ruleWords of %o is %s", (rule, words) => {
  expect(ruleWords({ id: "r", ...rule })).toBe(words);
});

test.each([
  ["", [0, 0, 0]],
  ["0.02 0.005 0.0001", [0.02, 0.005, 0.0001]],
  ["x -1 2", [0, 0, 2]],
])("prices of %o are %o", (text, prices) => {
  expect(pricesOf(text)).toEqual(prices);
});

test("cost is the sum of each measure by its price, and there is none without prices", () => {
  const measures = [7, 2, 3, 4].map((value, at): [string, string, (row: number) => number] => [
    String(at),
    "",
    (row) => row * value,
  ]);
  expect(priced(measures, [0, 0, 0])).toBe(measures);
  const [name, , cost] = priced(measures, [1, 10, 100])[4]!;
  expect([name, cost(2)]).toEqual(["cost", 2 * (2 + 30 + 400)]);
});
