// Graphs of what a server or a host has used, with actions on their axis of time.
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import type { Series, UsageHistory } from "./compute.types";
import { areaPath, linePath } from "./lines";
import { t } from "./messages";
import { useData, useParameter } from "./state";
import { Empty, Failure, parseTime, size, Waiting } from "./ui";

export interface Mark {
  at: string;
  label: string;
  failed: boolean;
}

interface Line {
  label: string;
  values: Series;
}

interface Chart {
  title: string;
  lines: Line[];
  words: (value: number) => string;
  /** Round to a value that the axis may end with. */
  top: (peak: number) => number;
  /** Where the axis ends if nothing is used. */
  whole?: number;
}

const SPANS = ["hour", "day", "week"] as const;
/** Milliseconds between two ticks of the axis, by span. */
const TICKS: Record<string, number> = { hour: 900000, day: 21600000, week: 86400000 };
/** Marks that are listed. */
const MOST = 40;
/** Values from which on a graph has a line. */
const LEAST = 3;

// --- values

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1024];

/** The next round number of bytes, or of megabytes. */
export function roundBytes(peak: number): number {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(1, peak)) / Math.log(1024)));
  return STEPS.find((step) => step * unit >= peak)! * unit;
}

/** The next round number, from 1 on. */
export function roundNumber(peak: number): number {
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(1, peak))));
  return [1, 2, 5, 10].find((step) => step * unit >= peak)! * unit;
}

/** The next of some shares of 100; above it, as a guest may use more than its own CPUs, a round number. */
export const roundShare = (peak: number): number => [10, 25, 50, 100].find((top) => top >= peak) ?? roundNumber(peak);

export function rateWords(bytes: number): string {
  const unit = [1073741824, 1048576, 1024].find((size) => bytes >= size) ?? 1;
  const letter = { 1: "", 1024: "K", 1048576: "M", 1073741824: "G" }[unit];
  return `${unit === 1 ? Math.round(bytes) : +(bytes / unit).toFixed(1)} ${letter}B/s`;
}

/** Where a time is on the axis, in percent. Outside of it, it is none. */
export function placeOf(at: number, history: UsageHistory): number | null {
  const place = ((at - Date.parse(history.start)) / (history.step * 1000 * history.series.cpu.length)) * 100;
  return place >= 0 && place <= 100 ? place : null;
}

/** Where an action is on the axis. One that is later than the last value is at its end; an earlier one is nowhere. */
export const placeOfMark = (mark: Mark, history: UsageHistory): number | null => {
  const at = parseTime(mark.at).getTime();
  return at < Date.parse(history.start) ? null : (placeOf(at, history) ?? 100);
};

/** Ticks at round local times. */
export function ticks(span: string, history: UsageHistory): { at: number; place: number }[] {
  const length = TICKS[span]!;
  const start = Date.parse(history.start);
  const offset = new Date(start).getTimezoneOffset() * 60000;
  const found = [];
  for (let at = Math.ceil((start - offset) / length) * length + offset; ; at += length) {
    const place = placeOf(at, history);
    if (place === null) return found;
    found.push({ at, place });
  }
}

const known = (values: Series): number[] => values.filter((value): value is number => value !== null);
const mean = (values: number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

function charts(history: UsageHistory, ofHost: boolean): Chart[] {
  const { series, vcpus } = history;
  const shares = series.cpu.map((value) => (value === null ? null : (value / vcpus) * 100));
  const cpu: Omit<Chart, "title"> = ofHost
    ? {
        lines: [{ label: t("in use"), values: series.cpu }],
        words: (value) => `${+value.toFixed(2)}`,
        top: roundNumber,
        whole: vcpus,
      }
    : {
        lines: [{ label: t("in use"), values: shares }],
        words: (value) => `${+value.toFixed(1)} %`,
        top: roundShare,
        whole: 100,
      };
  return [
    { title: ofHost ? `CPU (${t("of")} ${vcpus})` : "CPU", ...cpu },
    {
      title: `${t("Memory")} (${t("of")} ${size(history.memory_mb)})`,
      lines: [{ label: t("in use"), values: series.memory_mb }],
      words: size,
      top: roundBytes,
      whole: history.memory_mb,
    },
    {
      title: t("Disk"),
      lines: [
        { label: t("Read"), values: series.disk_read_rate },
        { label: t("Written"), values: series.disk_write_rate },
      ],
      words: rateWords,
      top: roundBytes,
    },
    {
      title: t("Network"),
      lines: [
        { label: t("Received"), values: series.rx_rate },
        { label: t("Sent"), values: series.tx_rate },
      ],
      words: rateWords,
      top: roundBytes,
    },
  ];
}

// --- views

/** `load`: returns the history of a span. `name`: of whom it is. `marks`: what was done meanwhile. */
export function Graphs({
  name,
  load,
  marks = [],
  ofHost = false,
}: {
  name: string;
  load: (span: (typeof SPANS)[number]) => Promise<UsageHistory>;
  marks?: Mark[];
  ofHost?: boolean;
}): VNode {
  const [chosen, choose] = useParameter("span");
  const span = SPANS.find((item) => item === chosen) ?? "hour";
  const { data, error, reload } = useData(() => load(span), ["usage", name, span], span === "hour" ? 15 : 60);
  const [at, setAt] = useState<number | null>(null);
  const [open, setOpen] = useState(false);
  const titles = { hour: t("Hour"), day: t("Day"), week: t("Week") };
  const within = data ? marks.filter((mark) => placeOfMark(mark, data) !== null).slice(0, MOST) : [];
  within.sort((left, right) => left.at.localeCompare(right.at));
  const isEmpty = data && Object.values(data.series).every((values) => known(values).length === 0);
  return (
    <section class="graphs" aria-label={t("Use over time")}>
      <div class="tools">
        <div class="choice" role="group" aria-label={t("Span")}>
          {SPANS.map((item) => (
            <button
              key={item}
              type="button"
              aria-pressed={item === span}
              onClick={() => {
                choose(item === "hour" ? "" : item);
                setAt(null);
              }}
            >
              {titles[item]}
            </button>
          ))}
        </div>
        {data && !isEmpty && (
          <span class="when">
            {at === null && `${t("Latest values")}: `}
            {timeOf(data, at ?? latestOf(data), span)}
          </span>
        )}
      </div>
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {isEmpty && (
        <Empty>
          <p>
            {ofHost
              ? t("Nothing was measured in this time. Values come within a minute while the compute daemon runs.")
              : t("Nothing was measured in this time. Values come within a minute while the guest runs.")}
          </p>
        </Empty>
      )}
      {data && !isEmpty && (
        <>
          <div class="grid">
            {charts(data, ofHost).map((chart) => (
              <Graph key={chart.title} {...{ chart, history: data, span, marks: within, at, setAt }} />
            ))}
          </div>
          {within.length > 0 && (
            <ol class="marks" aria-label={t("Actions in this time")}>
              {within.map((mark) => (
                <li key={`${mark.at} ${mark.label}`} class={mark.failed ? "bad" : ""}>
                  {mark.label}
                  {mark.failed && ` – ${t("Failed")}`}{" "}
                  <time dateTime={parseTime(mark.at).toISOString()}>{clock(parseTime(mark.at).getTime(), span)}</time>
                </li>
              ))}
            </ol>
          )}
          <Values charts={charts(data, ofHost)} history={data} {...{ span, open, setOpen }} />
        </>
      )}
    </section>
  );
}

/** The place of the newest values. */
const latestOf = ({ series: { cpu } }: UsageHistory): number =>
  Math.max(
    0,
    cpu.findLastIndex((value) => value !== null),
  );

function clock(at: number, span: string): string {
  const options: Intl.DateTimeFormatOptions =
    span === "week"
      ? { weekday: "short", hour: "2-digit", minute: "2-digit" }
      : { hour: "2-digit", minute: "2-digit", ...(span === "hour" && { second: "2-digit" }) };
  return new Intl.DateTimeFormat(document.documentElement.lang, { hourCycle: "h23", ...options }).format(at);
}
const timeOf = (history: UsageHistory, at: number, span: string): string =>
  clock(Date.parse(history.start) + at * history.step * 1000, span);

function tickWords(at: number, span: string): string {
  const options: Intl.DateTimeFormatOptions =
    span === "week" ? { weekday: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit" };
  return new Intl.DateTimeFormat(document.documentElement.lang, { hourCycle: "h23", ...options }).format(at);
}

function Graph({
  chart,
  history,
  span,
  marks,
  at,
  setAt,
}: {
  chart: Chart;
  history: UsageHistory;
  span: string;
  marks: Mark[];
  at: number | null;
  setAt: (at: number | null) => void;
}): VNode {
  const count = history.series.cpu.length;
  const peak = Math.max(0, ...chart.lines.flatMap((line) => known(line.values)));
  const top = peak || chart.whole === undefined ? chart.top(peak) : chart.whole;
  const value = (line: Line, index: number): string => {
    const found = line.values[index];
    return found == null ? "–" : chart.words(found);
  };
  const summary = chart.lines
    .map((line) => {
      const values = known(line.values);
      if (!values.length) return `${line.label}: ${t("not measured")}`;
      return `${line.label}: ${t("latest")} ${value(line, latestOf(history))}, ${t("mean")} ${chart.words(mean(values))}, ${t("highest")} ${chart.words(Math.max(...values))}`;
    })
    .join("; ");
  const point = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const found = Math.floor(((event.clientX - box.left) / box.width) * count);
    setAt(Math.max(0, Math.min(count - 1, found)));
  };
  const caption = (
    <figcaption>
      <b>{chart.title}</b>
      {chart.lines.map((line, index) => (
        <span key={line.label} class={`line${index}`}>
          <i /> {line.label} <b>{value(line, at ?? latestOf(history))}</b>
        </span>
      ))}
    </figcaption>
  );
  if (chart.lines.every((line) => known(line.values).length < LEAST))
    return (
      <figure class="graph">
        {caption}
        <p class="few">{t("Values are being collected. The line begins with the third one.")}</p>
      </figure>
    );
  return (
    <figure class="graph">
      {caption}
      <div class="plot" onPointerMove={point} onPointerDown={point} onPointerLeave={() => setAt(null)}>
        <svg
          viewBox={`0 0 ${count} 100`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${chart.title}. ${summary}`}
        >
          <path class="scale" d={`M0 0H${count}M0 50H${count}M0 100H${count}`} />
          {ticks(span, history).map((tick) => (
            <path key={tick.at} class="scale" d={`M${(tick.place / 100) * count} 0V100`} />
          ))}
          {chart.lines.map((line, index) => (
            <g key={line.label} class={`line${index}`}>
              {index === 0 && <path class="area" d={areaPath(line.values, top)} />}
              <path class="stroke" d={linePath(line.values, top)} />
            </g>
          ))}
          {marks.map((mark) => {
            const place = placeOfMark(mark, history)!;
            const x = (place / 100) * count;
            return (
              <path key={`${mark.at} ${mark.label}`} class={`mark ${mark.failed ? "bad" : ""}`} d={`M${x} 0V100`} />
            );
          })}
          {at !== null && <path class="at" d={`M${at + 0.5} 0V100`} />}
        </svg>
        <small class="top">{chart.words(top)}</small>
        {marks.map((mark, index) => (
          <small
            key={`${mark.at} ${mark.label}`}
            class="number"
            aria-hidden="true"
            title={mark.label}
            style={{ left: `${placeOfMark(mark, history)}%` }}
          >
            {index + 1}
          </small>
        ))}
      </div>
      <div class="axis" aria-hidden="true">
        {ticks(span, history).map(
          ({ at, place }) =>
            place > 3 &&
            place < 97 && (
              <small key={at} style={{ left: `${place}%` }}>
                {tickWords(at, span)}
              </small>
            ),
        )}
      </div>
    </figure>
  );
}

/** The values as a table, for those who do not see the graphs, or want the numbers. */
function Values({
  charts,
  history,
  span,
  open,
  setOpen,
}: {
  charts: Chart[];
  history: UsageHistory;
  span: string;
  open: boolean;
  setOpen: (open: boolean) => void;
}): VNode {
  const lines = charts.flatMap((chart) => chart.lines.map((line) => ({ chart, line })));
  const rows = history.series.cpu.map((_, at) => at).reverse();
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("Values as a table")}</summary>
      {open && (
        <div class="scroll" tabIndex={0} role="region" aria-label={t("Values as a table")}>
          <table>
            <thead>
              <tr>
                <th scope="col">{t("Time")}</th>
                {lines.map(({ chart, line }) => (
                  <th key={`${chart.title} ${line.label}`} scope="col" class="number">
                    {chart.title}: {line.label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((at) => (
                <tr key={at}>
                  <th scope="row">{timeOf(history, at, span)}</th>
                  {lines.map(({ chart, line }) => (
                    <td key={`${chart.title} ${line.label}`} class="number">
                      {line.values[at] == null ? "–" : chart.words(line.values[at]!)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}
