// Usage of projects in a period: hours of servers, CPUs, memory and disk, also as CSV.
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { call } from "./api";
import { called, naming } from "./called";
import type { ProjectUsage, ServerUsage } from "./compute.types";
import { t } from "./messages";
import { link, may, remember, remembered, shared, useData, useParameter } from "./state";
import { type Column, Table } from "./table";
import { type Action, ActionDialog, Failure, Head, Waiting } from "./ui";

const ALL = "os_compute_api:os-simple-tenant-usage:list";
const DAY = 86400000;

/** Begin and end of a period, in the form of the API: UTC. */
export function periodOf(name: string, now: Date): [string, string] {
  const first = (months: number): Date => new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + months, 1));
  const ends: Record<string, [Date, Date]> = {
    "": [first(0), now],
    last: [first(-1), first(0)],
    week: [new Date(now.getTime() - 7 * DAY), now],
    days: [new Date(now.getTime() - 30 * DAY), now],
  };
  const [begin, end] = ends[name] ?? ends[""]!;
  return [begin.toISOString().slice(0, 19), end.toISOString().slice(0, 19)];
}

const PERIODS = (): [string, string][] => [
  ["", t("This month")],
  ["last", t("Last month")],
  ["week", t("Last 7 days")],
  ["days", t("Last 30 days")],
];

const next = (links: { rel: string; href: string }[] | undefined): string => {
  const found = links?.find((item) => item.rel === "next");
  return found ? (new URL(found.href).searchParams.get("marker") ?? "") : "";
};

/** Usage of the caller's project, with its servers. A page of the API has a part of them. */
async function ownUsage(start: string, end: string): Promise<ServerUsage[]> {
  const rows: ServerUsage[] = [];
  for (let marker = ""; ; ) {
    const query = `start=${start}&end=${end}&limit=1000${marker && `&marker=${marker}`}`;
    const found = await call(
      "compute",
      "GET",
      `/os-simple-tenant-usage/${shared.session!.project!.id}?${query}` as `/os-simple-tenant-usage/${string}`,
    );
    rows.push(...(found.tenant_usage.server_usages ?? []));
    marker = next(found.tenant_usage_links);
    if (!marker) return rows;
  }
}

/** Usage of all projects. The next page may go on with the same one. */
async function allUsage(start: string, end: string): Promise<ProjectUsage[]> {
  const rows = new Map<string, ProjectUsage>();
  for (let marker = ""; ; ) {
    const query = `start=${start}&end=${end}&limit=1000${marker && `&marker=${marker}`}`;
    const found = await call("compute", "GET", `/os-simple-tenant-usage?${query}`);
    for (const row of found.tenant_usages) {
      const old = rows.get(row.tenant_id);
      rows.set(row.tenant_id, old ? added(old, row) : row);
    }
    marker = next(found.tenant_usages_links);
    if (!marker) return [...rows.values()];
  }
}

export const added = (one: ProjectUsage, other: ProjectUsage): ProjectUsage => ({
  ...one,
  total_hours: one.total_hours + other.total_hours,
  total_vcpus_usage: one.total_vcpus_usage + other.total_vcpus_usage,
  total_memory_mb_usage: one.total_memory_mb_usage + other.total_memory_mb_usage,
  total_local_gb_usage: one.total_local_gb_usage + other.total_local_gb_usage,
});

const rounded = (value: number): number => Math.round(value * 100) / 100;
/** A value that is used a little is not shown as none. */
export const shown = (value: number): string => (value > 0 && value < 0.005 ? "< 0.01" : String(rounded(value)));
type Measure<T> = [string, string, (row: T) => number];
const numbers = <T,>(measures: Measure<T>[]): Column<T>[] =>
  measures.map(([name, title, of]) => ({
    name,
    title,
    number: true,
    narrow: name === "cpus",
    text: (row) => rounded(of(row)),
    cell: (row) => shown(of(row)),
  }));

/** Prices of an hour of a vCPU, of a GiB of memory, and of a GiB of disk. */
export type Prices = [number, number, number];

/** Prices as the browser keeps them. A text that is none means no price. */
export function pricesOf(text: string): Prices {
  const [cpu, memory, disk] = text.split(" ").map((part) => Math.max(0, Number(part)) || 0);
  return [cpu ?? 0, memory ?? 0, disk ?? 0];
}
const PRICE = "\\d{1,9}([.,]\\d{1,9})?";

/** The measures with their cost, once the user has entered prices. */
export const priced = <T,>(measures: Measure<T>[], prices: Prices): Measure<T>[] => {
  const costs = measures.slice(1).map(
    ([, , of], at) =>
      (row: T) =>
        of(row) * prices[at]!,
  );
  const cost = (row: T): number => costs.reduce((sum, of) => sum + of(row), 0);
  return prices.some(Boolean) ? [...measures, ["cost", t("Cost"), cost]] : measures;
};

/** The dialog of the user's own prices. */
const pricing = (prices: Prices, done: (prices: Prices) => void): Action<object> => {
  const names = ["cores", "ram", "disk"] as const;
  const labels = [
    t("Price of a vCPU hour"),
    t("Price of a GiB of memory, for an hour"),
    t("Price of a GiB of disk, for an hour"),
  ];
  return {
    name: "prices",
    label: t("Prices"),
    confirm: t("Your own prices, which this browser keeps. The cloud does not know them."),
    fields: names.map((name, at) => ({ name, label: labels[at]!, pattern: PRICE, initial: String(prices[at] || "") })),
    run: async (_, values) => {
      const text = names.map((name) => values[name].replace(",", ".") || "0").join(" ");
      remember("prices", text);
      done(pricesOf(text));
    },
  };
};

/** The sums of all rows, over their table. */
function Totals<T>({ rows, measures }: { rows: T[]; measures: Measure<T>[] }): VNode | null {
  if (rows.length < 2) return null;
  return (
    <dl class="totals">
      {measures.map(([name, title, of]) => (
        <div key={name}>
          <dt>{title}</dt>
          <dd>{shown(rows.reduce((sum, row) => sum + of(row), 0))}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Usage(): VNode {
  const [period, setPeriod] = useParameter("period");
  const [start, end] = periodOf(period, new Date());
  const isAll = may(ALL);
  const [prices, setPrices] = useState(() => pricesOf(remembered("prices")));
  const [isPricing, setPricing] = useState(false);
  const { data, error, reload } = useData(
    async () => {
      const [own, every] = await Promise.all([
        ownUsage(start, end),
        isAll ? naming(allUsage(start, end), "projects") : null,
      ]);
      return { own, every };
    },
    ["usage", period],
    60,
  );
  return (
    <>
      <Head title={t("Usage")} note={`${start.replace("T", " ")} – ${end.replace("T", " ")} UTC`}>
        <select aria-label={t("Period")} value={period} onChange={(event) => setPeriod(event.currentTarget.value)}>
          {PERIODS().map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
        <button type="button" onClick={() => setPricing(true)}>
          {t("Prices")}
        </button>
      </Head>
      {isPricing && (
        <ActionDialog
          action={pricing(prices, setPrices)}
          rows={[{}]}
          nameOf={() => ""}
          close={() => setPricing(false)}
          done={() => undefined}
        />
      )}
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {data?.every && <AllProjects rows={data.every} prices={prices} />}
      {data && <OwnServers rows={data.own} prices={prices} />}
    </>
  );
}

function AllProjects({ rows, prices }: { rows: ProjectUsage[]; prices: Prices }): VNode {
  const used: Measure<ProjectUsage>[] = [
    ["hours", t("Server hours"), (row) => row.total_hours],
    ["cpus", t("CPU hours"), (row) => row.total_vcpus_usage],
    ["memory", t("Memory, GB hours"), (row) => row.total_memory_mb_usage / 1024],
    ["disk", t("Disk, GB hours"), (row) => row.total_local_gb_usage],
  ];
  const measures = priced(used, prices);
  return (
    <>
      <h2>{t("All projects")}</h2>
      <Totals rows={rows} measures={measures} />
      <Table
        scope="project-"
        label={t("All projects")}
        rows={rows}
        idOf={(row) => row.tenant_id}
        nameOf={(row) => called(row.tenant_id)}
        chooser="usage-of-projects"
        saved
        empty={<p>{t("Nothing was used.")}</p>}
        columns={[
          {
            name: "project",
            title: t("Project"),
            narrow: true,
            text: (row) => called(row.tenant_id),
            cell: (row) => <a href={link("projects", row.tenant_id)}>{called(row.tenant_id)}</a>,
          },
          { name: "id", title: "ID", text: (row) => row.tenant_id, cell: (row) => <code>{row.tenant_id}</code> },
          ...numbers(measures),
        ]}
      />
    </>
  );
}

function OwnServers({ rows, prices }: { rows: ServerUsage[]; prices: Prices }): VNode {
  const used: Measure<ServerUsage>[] = [
    ["hours", t("Hours"), (row) => row.hours],
    ["cpus", t("CPU hours"), (row) => row.hours * row.vcpus],
    ["memory", t("Memory, GB hours"), (row) => (row.hours * row.memory_mb) / 1024],
    ["disk", t("Disk, GB hours"), (row) => row.hours * row.local_gb],
  ];
  const measures = priced(used, prices);
  return (
    <>
      <h2>{t("Servers of this project")}</h2>
      <Totals rows={rows} measures={measures} />
      <Table
        label={t("Servers of this project")}
        rows={rows}
        idOf={(row) => row.instance_id}
        nameOf={(row) => row.name}
        chooser="usage"
        saved
        empty={<p>{t("Nothing was used.")}</p>}
        columns={[
          {
            name: "name",
            title: t("Server"),
            narrow: true,
            text: (row) => row.name,
            cell: (row) => (row.ended_at ? row.name : <a href={link("servers", row.instance_id)}>{row.name}</a>),
          },
          { name: "flavor", title: t("Flavor"), text: (row) => row.flavor },
          ...numbers(measures),
          {
            name: "id",
            title: "ID",
            extra: true,
            text: (row) => row.instance_id,
            cell: (row) => <code>{row.instance_id}</code>,
          },
        ]}
      />
    </>
  );
}
