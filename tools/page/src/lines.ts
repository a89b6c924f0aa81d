// Lines of graphs.
import type { Series } from "./compute.types";

/** The line of values as a path, in a field as wide as there are values, and 100 high. A gap has no line. */
export function linePath(values: Series, top: number): string {
  let path = "";
  values.forEach((value, at) => {
    if (value === null) return;
    const y = Math.round((100 - (Math.min(value, top) / top) * 100) * 100) / 100;
    const isJoined = at > 0 && values[at - 1] !== null;
    path += `${isJoined ? "L" : "M"}${at + 0.5} ${y}${isJoined || values[at + 1] != null ? "" : "h0.01"}`;
  });
  return path;
}

/** The same with the area below. */
export function areaPath(values: Series, top: number): string {
  return linePath(values, top).replace(/M([\d.]+) ([\d.]+)((?:L[\d.]+ [\d.]+)*)/g, (all, x, _y, rest: string) => {
    const last = /L([\d.]+) [\d.]+$/.exec(rest)?.[1];
    return last ? `${all}L${last} 100L${x} 100Z` : all;
  });
}
