// Sparklines: what a server or a host has used of its CPUs in the last hour, in a row of a list.
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { UsageHistory } from "./compute.types";
import { areaPath, linePath } from "./lines";
import { t } from "./messages";

/** Requests at a time. A list has many rows, and what the user asks for comes first. */
const AT_ONCE = 3;
/** Milliseconds for which a line stays as it is. */
const FRESH = 60000;
/** Known values from which on there is a line. */
const LEAST = 3;
/** Lines that are kept. */
const MOST = 500;

interface Spark {
  at: number;
  history: UsageHistory | null; // none: its host has no answer
}

const kept = new Map<string, Spark>();
type Load = () => Promise<UsageHistory>;
const waiting = new Map<string, { load: Load; done: () => void }>();
let running = 0;

function next(): void {
  const first = waiting.entries().next().value;
  if (!first || running >= AT_ONCE) return;
  const [id, { load, done }] = first;
  waiting.delete(id);
  running += 1;
  const keep = (history: UsageHistory | null) => {
    kept.delete(id);
    kept.set(id, { at: Date.now(), history });
    if (kept.size > MOST) kept.delete(kept.keys().next().value!);
    running -= 1;
    done();
    next();
  };
  // A host that does not answer has a state of its own in the list.
  void load().then(keep, () => keep(null));
}

/** Load the line of a row, and call `done` when it is kept. */
export function want(id: string, load: Load, done: () => void): void {
  waiting.set(id, { load, done });
  next();
}

/** Ask no more, as its row is out of sight. */
export function leave(id: string, done: () => void): void {
  if (waiting.get(id)?.done === done) waiting.delete(id);
}

/** The newest known share of its CPUs, in percent. */
export function latestShare(id: string): number | null {
  const history = kept.get(id)?.history;
  const values = history?.series.cpu.filter((value) => value !== null) ?? [];
  return values.length ? Math.round((values.at(-1)! / history!.vcpus) * 100) : null;
}

/** `id`: of a server or a hypervisor. Its use is asked for once a minute while it is in sight. */
export function Sparkline({ id, load }: { id: string; load: Load }): VNode | null {
  const [, again] = useState(0);
  const latest = useRef(load);
  useEffect(() => {
    let timer = 0;
    const turn = () => {
      const left = (kept.get(id)?.at ?? 0) + FRESH - Date.now();
      if (left <= 0 && !document.hidden) want(id, latest.current, drawn);
      else timer = window.setTimeout(turn, Math.max(left, 1000));
    };
    const drawn = () => {
      again((count) => count + 1);
      turn();
    };
    turn();
    return () => {
      clearTimeout(timer);
      leave(id, drawn);
    };
  }, [id]);
  const history = kept.get(id)?.history;
  const share = latestShare(id);
  if (!history || share === null) return null;
  const known = history.series.cpu.filter((value) => value !== null);
  const top = Math.max(history.vcpus, ...known);
  if (known.length < LEAST) return <span class="spark">{share} %</span>;
  return (
    <span class="spark">
      <svg
        viewBox={`0 0 ${history.series.cpu.length} 100`}
        preserveAspectRatio="none"
        role="img"
        aria-label={t("CPU in the last hour")}
      >
        <path class="area" d={areaPath(history.series.cpu, top)} />
        <path class="stroke" d={linePath(history.series.cpu, top)} />
      </svg>
      <span>{share} %</span>
    </span>
  );
}
