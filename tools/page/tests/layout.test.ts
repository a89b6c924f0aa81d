// The drawing of the networks: where its boxes are, and which part of it a user sees.
import { expect, test } from "vitest";
import { CLOSE, fitting, layoutOf, panned, read, showing, smallest, type View, written, zoomed } from "../src/layout";
import type { Network, Port, Router } from "../src/network.types";

const network = (id: string, isOutside = false) => ({ id, name: id, "router:external": isOutside }) as Network;
const port = (network_id: string, device_id: string, device_owner = "compute:nova") =>
  ({ id: `${network_id}${device_id}`, network_id, device_id, device_owner }) as Port;
const SIZE = { width: 980, height: 480 };

/** Networks with servers each, and a router that they share. */
function cloud(networks: number, servers: number) {
  const names = Array.from({ length: networks }, (_, at) => `net${at}`);
  const ports = names.flatMap((name) => [
    port(name, "router", "network:router_interface"),
    ...Array.from({ length: servers }, (_, at) => port(name, `${name}-${at}`)),
  ]);
  const router = { id: "router", external_gateway_info: { network_id: "out" } } as Router;
  return layoutOf([network("out", true), ...names.map((name) => network(name))], [router], ports);
}
const whole = (layout: ReturnType<typeof cloud>) => ({ x: 0, y: 0, width: layout.width, height: layout.height });

test.each([
  [1, 1],
  [3, 0],
  [20, 10],
  [2, 99],
])("boxes of %i networks with %i servers each do not overlap", (networks, servers) => {
  const { boxes, width, height } = cloud(networks, servers);
  expect(boxes.filter((box) => box.kind === "server")).toHaveLength(networks * servers);
  for (const [at, one] of boxes.entries()) {
    expect(one.x + one.width <= width && one.y + one.height <= height && one.x >= 0 && one.y >= 0).toBe(true);
    for (const other of boxes.slice(at + 1)) {
      const isApart =
        one.x + one.width <= other.x ||
        other.x + other.width <= one.x ||
        one.y + one.height <= other.y ||
        other.y + other.height <= one.y;
      expect(isApart, `${one.id} ${other.id}`).toBe(true);
    }
  }
});

test("lines connect the outside, the router, each network, and the servers of each", () => {
  const ends = cloud(2, 1).lines.map((line) => line.id);
  expect(ends.sort()).toEqual(["net0 servers", "net1 servers", "out router", "router net0", "router net1"]);
});

test("network with many servers draws a part of them and a link to all", () => {
  const { boxes, frames } = cloud(1, 250);
  expect(boxes.filter((box) => box.kind === "server")).toHaveLength(100);
  expect(boxes.filter((box) => box.kind === "more")).toHaveLength(1);
  expect(frames.get("net0")?.servers).toBe(250);
});

test("server with two ports in a network is drawn once", () => {
  const { boxes } = layoutOf([network("a")], [], [port("a", "s"), { ...port("a", "s"), id: "other" }]);
  expect(boxes.map((box) => box.id)).toEqual(["a", "s"]);
});

test("whole of 200 servers on 20 networks fits, with rows that are readable", () => {
  const layout = cloud(20, 10);
  const { scale } = fitting(whole(layout), layout, SIZE);
  expect(scale * layout.height).toBeLessThanOrEqual(SIZE.height);
  expect(scale * layout.width).toBeLessThanOrEqual(SIZE.width);
  expect(scale).toBeGreaterThanOrEqual(smallest(layout));
});

test("drawing that would be too small to read begins at the left and the top", () => {
  const layout = cloud(300, 1);
  const view = fitting(whole(layout), layout, SIZE);
  expect(view.scale).toBe(smallest(layout));
  expect(view.y - SIZE.height / 2 / view.scale).toBeLessThanOrEqual(0);
});

test("small drawing is not enlarged", () => {
  const layout = cloud(1, 1);
  expect(fitting(whole(layout), layout, SIZE).scale).toBe(1);
});

test("zoom keeps the point below the pointer", () => {
  const layout = cloud(20, 10);
  const view = { scale: 1, x: 500, y: 400 };
  const at = { x: 150, y: -90 };
  const next = zoomed(view, 1.5, layout, at);
  expect(next.scale).toBe(1.5);
  expect(next.x + at.x / next.scale).toBeCloseTo(view.x + at.x / view.scale);
  expect(next.y + at.y / next.scale).toBeCloseTo(view.y + at.y / view.scale);
});

test.each([
  [100, 3],
  [0.001, "smallest"],
])("zoom by %d ends at a scale that is readable", (factor, end) => {
  const layout = cloud(20, 10);
  const wanted = end === "smallest" ? smallest(layout) : end;
  expect(zoomed({ scale: 1, x: 0, y: 0 }, factor, layout).scale).toBe(wanted);
});

test("drag moves by its pixels, and stays within the drawing", () => {
  const layout = cloud(20, 10);
  expect(panned({ scale: 0.5, x: 300, y: 300 }, 10, -20, layout)).toEqual({ scale: 0.5, x: 280, y: 340 });
  expect(panned({ scale: 1, x: 300, y: 300 }, 9999, 9999, layout)).toMatchObject({ x: 0, y: 0 });
});

test("view moves to a box out of sight, and no farther", () => {
  const layout = cloud(20, 10);
  const view: View = { scale: 1, x: 600, y: 270 };
  const [far] = layout.boxes.slice(-1);
  const moved = showing(view, far!, layout, SIZE);
  expect(Math.abs(far!.y + far!.height - moved.y)).toBeLessThanOrEqual(SIZE.height / 2);
  expect(far!.x + far!.width - moved.x).toBeLessThanOrEqual(SIZE.width / 2);
  expect(showing(moved, far!, layout, SIZE)).toEqual(moved);
});

test.each(["1,20,30", "0.4,0,1200"])("view %s is read as it is written", (text) => {
  expect(written(read(text)!)).toBe(text);
});

test.each(["", "1", "0,1,1", "-1,2,3", "a,b,c", "1,2", "NaN,1,1"])("view %j of an address is none", (text) => {
  expect(read(text)).toBeNull();
});

test("view of a network's servers is close enough to draw them, also on a phone", () => {
  const layout = cloud(20, 10);
  const { area } = layout.frames.get("net3")!;
  expect(fitting(area, layout, { width: 350, height: 480 }, CLOSE)).toMatchObject({ scale: CLOSE });
});
