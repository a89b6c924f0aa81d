// A drawing of who is connected with whom: the outside, routers, networks, servers. It is zoomed and moved.
import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { all, list } from "./api";
import { called, naming } from "./called";
import {
  type Area,
  bounded,
  CLOSE,
  fitting,
  type Layout,
  layoutOf,
  panned,
  read,
  type Size,
  showing,
  type View,
  written,
  zoomed,
} from "./layout";
import { counted, t } from "./messages";
import { link, useData, useParameter } from "./state";

/** Factor of a button or a key, and pixels of an arrow key. */
const STEP = 1.25,
  MOVE = 60,
  /** Pixels after which a press is a drag. */
  DRAG = 4,
  /** Pixels of the head with the names of the columns. */
  HEAD = 28,
  /** Milliseconds of rest before the address has a view: browsers limit how often it changes. */
  REST = 250;

interface Point {
  x: number;
  y: number;
}

/** A line from the right end of an area to the left end of another one, which leaves and arrives level. */
function curve(from: Area, to: Area, scale: number): string {
  const [x1, y1] = [(from.x + from.width) * scale, (from.y + from.height / 2) * scale];
  const [x2, y2] = [to.x * scale, (to.y + to.height / 2) * scale];
  const middle = (x1 + x2) / 2;
  return `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}

export function Topology(): VNode | null {
  const { data } = useData(
    async () => {
      const [networks, routers, ports] = await Promise.all([
        list("network", "/networks", "networks"),
        list("network", "/routers", "routers").catch(() => []),
        naming(all("network", "/ports", "ports"), "servers"),
      ]);
      const names = new Map([...networks, ...routers].map((row) => [row.id, row.name || row.id]));
      return { layout: layoutOf(networks, routers, ports), names };
    },
    ["topology"],
    10,
    ["network", "compute"],
  );
  return data && <Drawing layout={data.layout} names={data.names} />;
}

/** The address without its parameters. A link that is followed changes it before the drawing is gone. */
const here = (): string => location.hash.split("?")[0]!;

/** The view of the address, or the one that shows all. Changes reach the address when they rest. */
function useView(layout: Layout, size: Size): [View, (change: ((old: View) => View) | null) => void] {
  const [kept, keep] = useParameter("drawing");
  const [view, set] = useState(() => read(kept));
  const [home] = useState(here);
  // biome-ignore lint/correctness/useExhaustiveDependencies: an address that is followed, or goes back, has its own view.
  useEffect(() => {
    if (kept !== (view ? written(view) : "")) set(read(kept));
  }, [kept]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the address changes after the view.
  useEffect(() => {
    const next = view ? written(view) : "";
    if (next === kept) return;
    const timer = setTimeout(() => here() === home && keep(next), REST);
    return () => clearTimeout(timer);
  }, [view]);
  const usual = () => fitting({ x: 0, y: 0, width: layout.width, height: layout.height }, layout, size);
  const current = (own: View | null) => (own ? bounded(own, layout) : usual());
  return [current(view), (change) => set((old) => change?.(current(old)) ?? null)];
}

function useSize(element: { current: HTMLElement | null }): Size {
  const [size, set] = useState<Size>({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const measure = () => set({ width: element.current!.clientWidth, height: element.current!.clientHeight - HEAD });
    const observer = new ResizeObserver(measure);
    observer.observe(element.current!);
    measure();
    return () => observer.disconnect();
  }, [element]);
  return size;
}

function Drawing({ layout, names }: { layout: Layout; names: Map<string, string> }): VNode {
  const frame = useRef<HTMLElement>(null);
  const size = useSize(frame);
  const [view, set] = useView(layout, size);
  const { scale } = view;
  useGestures(frame, layout, set);
  const left = size.width / 2 - view.x * scale;
  const top = size.height / 2 - view.y * scale + HEAD;
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [MOVE, 0],
      ArrowRight: [-MOVE, 0],
      ArrowUp: [0, MOVE],
      ArrowDown: [0, -MOVE],
    };
    const move = moves[event.key];
    if (move) set((old) => panned(old, ...move, layout));
    else if (event.key === "+" || event.key === "=") set((old) => zoomed(old, STEP, layout));
    else if (event.key === "-") set((old) => zoomed(old, 1 / STEP, layout));
    else if (event.key === "0") set(null);
    else return;
    event.preventDefault();
  };
  const at = (area: Area) => ({
    left: `${area.x * scale}px`,
    top: `${area.y * scale}px`,
    width: `${area.width * scale}px`,
    height: `${area.height * scale}px`,
    lineHeight: `${area.height * scale - 2}px`,
  });
  /** What gets the focus comes into view. The browser scrolls nothing. */
  const show = (area: Area) => () => {
    const next = showing(view, area, layout, size);
    if (next.x !== view.x || next.y !== view.y) set(() => next);
  };
  const close = scale >= CLOSE;
  const links = { outside: "networks", network: "networks", router: "routers", server: "servers", more: "servers" };
  return (
    <details class="topology" open>
      <summary>{t("Drawing")}</summary>
      <div class="buttons zoom" role="group" aria-label={t("View of the drawing")}>
        <button type="button" aria-label={t("Zoom out")} onClick={() => set((old) => zoomed(old, 1 / STEP, layout))}>
          −
        </button>
        <output aria-label={t("Scale")}>{Math.round(scale * 100)} %</output>
        <button type="button" aria-label={t("Zoom in")} onClick={() => set((old) => zoomed(old, STEP, layout))}>
          +
        </button>
        <button type="button" onClick={() => set(null)}>
          {t("Fit")}
        </button>
        <small>{t("Drag or arrow keys move it. Ctrl and the wheel, two fingers, or + and - zoom it.")}</small>
      </div>
      <section
        ref={frame}
        class="frame"
        tabIndex={0}
        aria-label={t("Drawing of the networks")}
        style={{ height: `${layout.height + HEAD + 32}px` }}
        onKeyDown={onKey}
        onScroll={(event) => event.currentTarget.scrollTo(0, 0)}
      >
        <div class="sheet" style={{ transform: `translate(${left}px, ${top}px)`, fontSize: `${textSize(scale)}px` }}>
          <svg aria-hidden="true">
            {layout.lines.map(({ id, from, to }) => (
              <path key={id} d={curve(from, to, scale)} />
            ))}
          </svg>
          {layout.boxes.map((box) => {
            if (!close && (box.kind === "server" || box.kind === "more")) return null;
            const name = box.kind === "more" ? t("all servers") : (names.get(box.id) ?? called(box.id));
            return (
              <a
                key={`${box.x} ${box.y}`}
                class={box.kind}
                href={box.kind === "more" ? link("servers") : link(links[box.kind], box.id)}
                title={name}
                draggable={false}
                style={at(box)}
                onFocus={show(box)}
              >
                {name}
              </a>
            );
          })}
          {!close &&
            [...layout.frames].map(([id, { area, servers }]) => (
              <button
                key={id}
                type="button"
                class="server"
                aria-label={`${names.get(id)}: ${counted(servers, "{n} server", "{n} servers")}`}
                style={at(area)}
                onFocus={show(area)}
                onClick={() => set(() => fitting(area, layout, size, CLOSE))}
              >
                {counted(servers, "{n} server", "{n} servers")}
              </button>
            ))}
        </div>
        <div class="head" aria-hidden="true">
          {[t("Outside"), t("Routers"), t("Networks"), t("Servers")].map((name, column) => (
            <span key={name} style={{ left: `${left + layout.columns[column]! * scale}px` }}>
              {name}
            </span>
          ))}
        </div>
      </section>
    </details>
  );
}

/** Pixels of a name: no smaller than is read with ease. */
const textSize = (scale: number): number => Math.max(12, Math.min(20, 14 * scale));

/** Zoom by the wheel with Ctrl and by two fingers, and move by a drag. A drag follows no link. */
function useGestures(
  frame: { current: HTMLElement | null },
  layout: Layout,
  set: (change: (old: View) => View) => void,
): void {
  const latest = useRef({ layout, set });
  latest.current = { layout, set };
  useEffect(() => {
    const element = frame.current!;
    const pointers = new Map<number, Point>();
    let dragged = 0;
    const fromMiddle = ({ x, y }: Point): Point => {
      const box = element.getBoundingClientRect();
      return { x: x - box.x - box.width / 2, y: y - box.y - (box.height + HEAD) / 2 };
    };
    const zoom = (factor: number, at: Point) =>
      latest.current.set((old) => zoomed(old, factor, latest.current.layout, fromMiddle(at)));
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      zoom(Math.exp(Math.max(-0.5, Math.min(0.5, (-event.deltaY * lines) / 300))), { x: event.x, y: event.y });
    };
    const down = (event: PointerEvent) => {
      if (event.button !== 0) return;
      if (!pointers.size) dragged = 0;
      pointers.set(event.pointerId, { x: event.x, y: event.y });
    };
    const move = (event: PointerEvent) => {
      const last = pointers.get(event.pointerId);
      if (!last) return;
      const now = { x: event.x, y: event.y };
      const [x, y] = [now.x - last.x, now.y - last.y];
      dragged += Math.hypot(x, y);
      if (dragged < DRAG) return;
      element.setPointerCapture(event.pointerId);
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
      pointers.set(event.pointerId, now);
      if (!other) latest.current.set((old) => panned(old, x, y, latest.current.layout));
      else {
        const distance = (point: Point) => Math.max(1, Math.hypot(point.x - other.x, point.y - other.y));
        zoom(distance(now) / distance(last), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
      }
    };
    const up = (event: PointerEvent) => void pointers.delete(event.pointerId);
    const click = (event: Event) => {
      if (dragged >= DRAG && (event as MouseEvent).detail) event.preventDefault();
    };
    const listeners: [string, (event: never) => void][] = [
      ["wheel", wheel],
      ["pointerdown", down],
      ["pointermove", move],
      ["pointerup", up],
      ["pointercancel", up],
      ["click", click],
    ];
    for (const [name, listener] of listeners)
      element.addEventListener(name, listener as EventListener, { capture: true, passive: false });
    return () => {
      for (const [name, listener] of listeners)
        element.removeEventListener(name, listener as EventListener, { capture: true });
    };
  }, [frame]);
}
