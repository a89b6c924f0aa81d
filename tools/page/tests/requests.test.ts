// Requests: APIs that are late, or never answer, and the names that replies have.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { call, connection, known } from "../src/api";
import { called, naming } from "../src/called";
import { shared } from "../src/state";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  known.clear();
});

test("an API that does not answer is named after 5 seconds, and its request ends after 60", async () => {
  vi.stubGlobal(
    "fetch",
    (_: string, { signal }: { signal: AbortSignal }) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted")))),
  );
  const found = Promise.all([
    expect(call("volume", "GET", "/limits")).rejects.toThrow("The API has not answered for 60 seconds."),
    expect(call("volume", "POST", "/volumes", {})).rejects.toThrow("It may still do what you have asked for"),
  ]);
  await vi.advanceTimersByTimeAsync(4900);
  expect(connection.late).toEqual([]);
  await vi.advanceTimersByTimeAsync(200);
  expect(connection.late).toEqual(["volume", "volume"]);
  await vi.advanceTimersByTimeAsync(55000);
  await found;
  expect(connection).toMatchObject({ late: [], lost: false });
});

test("an API that answers late is no longer named", async () => {
  vi.stubGlobal(
    "fetch",
    () => new Promise((resolve) => setTimeout(() => resolve(new Response('{"volumes": []}')), 7000)),
  );
  const found = call("volume", "GET", "/volumes/detail");
  await vi.advanceTimersByTimeAsync(6000);
  expect(connection.late).toEqual(["volume"]);
  await vi.advanceTimersByTimeAsync(2000);
  expect(await found).toEqual({ volumes: [] });
  expect(connection.late).toEqual([]);
});

test("things have their names where an API says their ids", async () => {
  vi.useRealTimers();
  shared.session = { services: new Set(["compute", "image"]) } as typeof shared.session;
  shared.rules = new Set(["os_compute_api:servers:index"]);
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (url: string) => {
    asked.push(url);
    return new Response(JSON.stringify({ servers: [{ id: "11111111-2", name: "web" }] }));
  });
  expect(called("11111111-2")).toBe("11111111");
  for (const _ of [1, 2]) expect(await naming(Promise.resolve("data"), "servers", "images")).toBe("data");
  expect(asked).toEqual(["api/compute/v2.1/servers?limit=1000"]);
  expect(called("11111111-2")).toBe("web");
});
