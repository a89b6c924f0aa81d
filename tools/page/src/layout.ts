// Where the drawing of the networks has its boxes, and which part of it is in view. Lengths are those at 100 %.
import type { Network, Port, Router } from "./network.types";

/** A box, or the frame around a network's servers. */
export interface Area {
  x: number;
  y: number;
  width: number;
  height: number;
}
export interface Box extends Area {
  id: string;
  kind: "outside" | "router" | "network" | "server" | "more";
}
export interface Layout {
  width: number;
  height: number;
  columns: number[]; // left ends of: the outside, routers, networks, servers
  boxes: Box[];
  frames: Map<string, { area: Area; servers: number }>; // by network
  lines: { id: string; from: Area; to: Area }[];
  pitch: number; // the distance of the rows that are closest
}

const ROW = 40,
  BOX = 35,
  WIDTH = 184, // of a box, but that of a network, whose name is read from far
  NETWORK = 260,
  GAP = 40,
  COLUMN = WIDTH + 8,
  /** Servers that are drawn of one network. The list has all. */
  SERVERS = 100,
  /** The shape that a drawing has if it can: that of the view on a desktop. It does not depend on the view, as an address is of all. */
  SHAPE = 2;

export function layoutOf(networks: Network[], routers: Router[], ports: Port[]): Layout {
  const outside = networks.filter((row) => row["router:external"]);
  const inside = networks.filter((row) => !row["router:external"]);
  const servers = new Map(inside.map((row) => [row.id, new Set<string>()]));
  for (const port of ports)
    if (port.device_owner.startsWith("compute:")) servers.get(port.network_id)?.add(port.device_id);
  const drawn = inside.map((row) => Math.min(SERVERS + 1, servers.get(row.id)!.size));
  const rowsOf = (count: number, across: number) => Math.max(1, Math.ceil(count / across));
  const heightOf = (across: number) =>
    Math.max(
      1,
      outside.length,
      routers.length,
      drawn.reduce((sum, count) => sum + rowsOf(count, across), 0),
    ) * ROW;
  const columns = [0, WIDTH + GAP, 2 * (WIDTH + GAP), 2 * (WIDTH + GAP) + NETWORK + GAP];
  const widthOf = (across: number) => columns[3]! + across * COLUMN;
  let across = 1;
  while (across < 12 && widthOf(across + 1) <= heightOf(across) * SHAPE) across++;
  const height = heightOf(across);

  const boxes: Box[] = [];
  const frames: Layout["frames"] = new Map();
  const places = new Map<string, Area>();
  const put = (kind: Box["kind"], id: string, area: Area) => {
    boxes.push({ kind, id, ...area });
    if (kind !== "server" && kind !== "more") places.set(id, area);
  };
  for (const [column, kind, rows] of [
    [0, "outside", outside],
    [1, "router", routers],
  ] as const)
    for (const [at, row] of rows.entries())
      put(kind, row.id, {
        x: columns[column]!,
        y: ((at + 0.5) * height) / rows.length - BOX / 2,
        width: WIDTH,
        height: BOX,
      });
  let y = 0;
  for (const [at, network] of inside.entries()) {
    const own = [...servers.get(network.id)!];
    const tall = rowsOf(drawn[at]!, across) * ROW;
    put("network", network.id, { x: columns[2]!, y, width: NETWORK, height: tall - ROW + BOX });
    const cells = [...own.slice(0, SERVERS), ...(own.length > SERVERS ? [`${network.id}+`] : [])];
    for (const [cell, id] of cells.entries())
      put(cell < SERVERS ? "server" : "more", id, {
        x: columns[3]! + (cell % across) * COLUMN,
        y: y + Math.floor(cell / across) * ROW,
        width: WIDTH,
        height: BOX,
      });
    if (own.length)
      frames.set(network.id, {
        area: { x: columns[3]!, y, width: Math.min(across, cells.length) * COLUMN - 8, height: tall - ROW + BOX },
        servers: own.length,
      });
    y += tall;
  }

  const lines: Layout["lines"] = [];
  const connect = (from: string, to: string) => {
    const [start, end] = [places.get(from), places.get(to)];
    if (start && end) lines.push({ id: `${from} ${to}`, from: start, to: end });
  };
  for (const router of routers) connect(router.external_gateway_info?.network_id ?? "", router.id);
  const linked = new Set(ports.map((port) => `${port.device_id} ${port.network_id}`));
  for (const router of routers)
    for (const network of inside) if (linked.has(`${router.id} ${network.id}`)) connect(router.id, network.id);
  for (const [id, { area }] of frames) lines.push({ id: `${id} servers`, from: places.get(id)!, to: area });
  const pitch = Math.min(ROW, height / Math.max(1, outside.length, routers.length));
  return { width: widthOf(across), height, columns, boxes, frames, lines, pitch };
}

// --- the view

/** What is in the middle of the view, and its scale. */
export interface View {
  scale: number;
  x: number;
  y: number;
}
export interface Size {
  width: number;
  height: number;
}

/** Pixels between two rows whose names are readable, those of the narrowest box, and the largest scale. */
const READABLE = 14,
  NARROW = 60,
  LARGEST = 3,
  MARGIN = 16;

/** The smallest scale at which the names of the networks and the routers are readable. */
export const smallest = ({ pitch }: Layout): number => Math.max(READABLE / pitch, NARROW / WIDTH);

/** The scale from which servers are drawn, and not their number alone: names that are cut after some letters say little. */
export const CLOSE = (1.5 * NARROW) / WIDTH;

/** Keep a view within the drawing and within the scales. */
export function bounded(view: View, layout: Layout): View {
  const within = (value: number, end: number) => Math.max(0, Math.min(end, value));
  return {
    scale: Math.max(smallest(layout), Math.min(LARGEST, view.scale)),
    x: within(view.x, layout.width),
    y: within(view.y, layout.height),
  };
}

/** The view of an area, between a scale and 100 %. What is too large for it begins at the left and the top. */
export function fitting(area: Area, layout: Layout, size: Size, least = smallest(layout)): View {
  const wide = Math.max(1, size.width - 2 * MARGIN);
  const high = Math.max(1, size.height - 2 * MARGIN);
  const scale = Math.max(least, Math.min(1, wide / area.width, high / area.height));
  return {
    scale,
    x: area.x + Math.min(area.width, wide / scale) / 2,
    y: area.y + Math.min(area.height, high / scale) / 2,
  };
}

/** Change the scale. What is at a point, in pixels from the middle of the view, stays there. */
export function zoomed(view: View, factor: number, layout: Layout, at = { x: 0, y: 0 }): View {
  const { scale } = bounded({ ...view, scale: view.scale * factor }, layout);
  const moved = 1 / view.scale - 1 / scale;
  return bounded({ scale, x: view.x + at.x * moved, y: view.y + at.y * moved }, layout);
}

/** Move what is in view by pixels. */
export const panned = (view: View, x: number, y: number, layout: Layout): View =>
  bounded({ ...view, x: view.x - x / view.scale, y: view.y - y / view.scale }, layout);

/** Move the view as little as shows an area, which gets the focus. */
export function showing(view: View, area: Area, layout: Layout, size: Size): View {
  const moved = (middle: number, begin: number, length: number, pixels: number) => {
    const half = Math.max(0, pixels / 2 - MARGIN) / view.scale;
    return length > 2 * half ? begin + half : Math.min(Math.max(middle, begin + length - half), begin + half);
  };
  return bounded(
    {
      scale: view.scale,
      x: moved(view.x, area.x, area.width, size.width),
      y: moved(view.y, area.y, area.height, size.height),
    },
    layout,
  );
}

/** A view in the address, as `0.5,120,40`. */
export const written = ({ scale, x, y }: View): string => `${+scale.toFixed(3)},${Math.round(x)},${Math.round(y)}`;

export function read(text: string): View | null {
  const [scale, x, y] = text.split(",").map(Number);
  const isWhole = [scale, x, y].every((value) => Number.isFinite(value)) && scale! > 0;
  return isWhole ? { scale: scale!, x: x!, y: y! } : null;
}
