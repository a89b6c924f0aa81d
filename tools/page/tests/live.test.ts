// The stream of changes: which views it concerns, and how its events are read.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Change, follow, isLive, tellsRequests, watch, watchRequests } from "../src/live";

let send: (text: string) => void = () => undefined;
let end: () => void = () => undefined;
beforeEach(() => {
  vi.stubGlobal("document", {
    hidden: false,
    addEventListener: () => undefined,
    removeEventListener: () => undefined,
  });
  vi.stubGlobal("window", globalThis);
  vi.stubGlobal("fetch", async () => {
    const body = new ReadableStream({
      start(stream) {
        send = (text) => stream.enqueue(new TextEncoder().encode(text));
        end = () => stream.close();
      },
    });
    return new Response(body);
  });
});
afterEach(() => {
  vi.unstubAllGlobals();
});

const settled = () => new Promise((done) => setTimeout(done, 20));

test("stream tells of servers, and of the APIs by which requests have changed other things", async () => {
  const servers: (Change | null)[] = [];
  const services: (string[] | null)[] = [];
  const stops = [watch((change) => servers.push(change)), watchRequests((found) => services.push(found)), follow()];
  await settled();
  send('event: begin\ndata: ["requests"]\n\nevent: serv');
  await settled();
  expect([isLive(), tellsRequests()]).toEqual([true, true]);
  send('ers\ndata: ["a"]\n\n:\n\nevent: requests\ndata: ["network", "volume"]\n\n');
  await settled();
  expect(servers).toEqual([null, { own: true, ids: ["a"] }]);
  expect(services).toEqual([null, ["network", "volume"]]);
  end();
  await settled();
  expect([isLive(), tellsRequests()]).toEqual([false, false]);
  expect(services.at(-1)).toBe(null);
  for (const stop of stops) stop();
});

test("stream of a cloud without an audit log leaves other things than servers to polling", async () => {
  const stop = follow();
  await settled();
  send("event: begin\ndata: []\n\n");
  await settled();
  expect([isLive(), tellsRequests()]).toEqual([true, false]);
  end();
  stop();
  await settled();
});
