// Axes, lines and rates of graphs.
import { expect, test } from "vitest";
import { placeOf, placeOfMark, rateWords, roundBytes, roundNumber, roundShare, ticks } from "../src/graphs";
import { areaPath, linePath } from "../src/lines";

const history = (step: number, count: number, start = "2030-01-02T00:10:00Z") => {
  const none = Array<null>(count).fill(null);
  const series = {
    cpu: none,
    memory_mb: none,
    disk_read_rate: none,
    disk_write_rate: none,
    rx_rate: none,
    tx_rate: none,
  };
  return { start, step, vcpus: 1, memory_mb: 512, series };
};

test.each([
  [0, 1],
  [3, 5],
  [1000, 1024],
  [1025, 2048],
  [600 * 1024, 1048576],
  [3 * 1024 ** 3, 5 * 1024 ** 3],
])("axis of %d bytes ends at %d", (peak, top) => {
  expect(roundBytes(peak)).toBe(top);
});

test("axes of CPUs and shares end at round numbers above the peak", () => {
  expect([0, 1.2, 7, 11, 64].map(roundNumber)).toEqual([1, 2, 10, 20, 100]);
  expect([0, 11, 99, 140].map(roundShare)).toEqual([10, 25, 100, 200]);
});

test.each([
  [12, "12 B/s"],
  [2048, "2 KB/s"],
  [3.14 * 1048576, "3.1 MB/s"],
  [1.5 * 1024 ** 3, "1.5 GB/s"],
])("rate of %d bytes is %s", (bytes, text) => {
  expect(rateWords(bytes)).toBe(text);
});

test("line has gaps where nothing was measured, and a dot for a value alone", () => {
  expect(linePath([0, 5, null, 10, null], 10)).toBe("M0.5 100L1.5 50M3.5 0h0.01");
  expect(linePath([20], 10)).toBe("M0.5 0h0.01");
  expect(linePath([null, null], 10)).toBe("");
});

test("area ends at the bottom below each part of the line", () => {
  expect(areaPath([0, 5, null, 10], 10)).toBe("M0.5 100L1.5 50L1.5 100L0.5 100ZM3.5 0h0.01");
});

test("action has a place on the axis only within the span", () => {
  const found = history(30, 120);
  expect(placeOf(Date.parse("2030-01-02T00:40:00Z"), found)).toBe(50);
  expect(placeOf(Date.parse("2030-01-02T00:09:59Z"), found)).toBeNull();
  expect(placeOf(Date.parse("2030-01-02T01:10:01Z"), found)).toBeNull();
});

test("action of just now is at the end of the axis, and one before the span is nowhere", () => {
  const place = (at: string) => placeOfMark({ at, label: "", failed: false }, history(30, 120));
  expect(place("2030-01-02T00:40:00.000000")).toBe(50);
  expect(place("2030-01-02T01:10:20")).toBe(100);
  expect(place("2030-01-02T00:09:00")).toBeNull();
});

test("ticks are at round times", () => {
  const minutes = ticks("hour", history(30, 120)).map((tick) => new Date(tick.at).getMinutes());
  expect(minutes).toEqual([15, 30, 45, 0]);
  const hours = ticks("day", history(600, 144)).map((tick) => new Date(tick.at).getHours());
  expect(hours.length).toBe(4);
  expect(hours.every((hour) => hour % 6 === 0)).toBe(true);
});
