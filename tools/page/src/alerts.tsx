// What needs an operator, by what the APIs say. Names are those of the alert rules in etc/prometheus/rules.yml.
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, list, send } from "./api";
import { unmarked } from "./called";
import type { PolicyStatus } from "./compute.types";
import { t } from "./messages";
import type { Configuration as Checked, Version, Versions } from "./page.types";
import { taskOf } from "./servers";
import { link, may, useData } from "./state";
import { Table } from "./table";
import { Command, Empty, Failure, Head, Status, Time, Waiting } from "./ui";

export const sees = (): boolean =>
  may("os_compute_api:os-services:list", "os_compute_api:servers:detail:get_all_tenants");

export interface Alert {
  level: "critical" | "warning" | "note";
  rule: string; // of Prometheus, if one has the same cause
  what: string;
  why: string;
  to: string; // a place of the page
  command: string;
}

/** Seconds after which an action that has made no step takes long. */
export const LONG = 300;
const DAY = 86400;
const POLICIES = 50;
const age = (at: string): number => (Date.now() - Date.parse(/Z|[+-]\d\d:?\d\d$/.test(at) ? at : `${at}Z`)) / 1000;
const count = <T,>(rows: T[], of: (row: T) => string): [string, number][] =>
  [
    ...rows.reduce(
      (found: Map<string, number>, row) => found.set(of(row), (found.get(of(row)) ?? 0) + 1),
      new Map<string, number>(),
    ),
  ].sort((left, right) => right[1] - left[1]);

async function unmet(): Promise<PolicyStatus[]> {
  if (!may("os_compute_api:os-backup-policies:index", "os_compute_api:os-backup-policies:status")) return [];
  const enabled = (await list("compute", "/os-backup-policies", "backup_policies"))
    .filter((row) => row.enabled)
    .slice(0, POLICIES);
  const states = await Promise.all(
    enabled.map(
      async (row) => (await call("compute", "GET", `/os-backup-policies/${row.id}/status`)).backup_policy_status,
    ),
  );
  return states.filter((state) => !state.met);
}

async function findAlerts(): Promise<Alert[]> {
  const [services, under, failed, moves, policies] = await Promise.all([
    list("compute", "/os-services", "services"),
    list("compute", "/servers/detail?all_tenants=1&limit=1000&sort_key=updated_at", "servers"),
    list("compute", "/servers/detail?all_tenants=1&status=ERROR&limit=1000", "servers"),
    may("os_compute_api:os-migrations:index") ? list("compute", "/os-migrations?limit=200", "migrations") : [],
    unmet(),
  ]);
  const found: Alert[] = [];
  const add = (level: Alert["level"], rule: string, what: string, why: string, to: string, command: string) =>
    found.push({ level, rule, what, why, to, command });
  for (const row of services) {
    const isHost = row.binary === "nova-compute";
    if (row.forced_down)
      add(
        "warning",
        "NovaLiteHostDown",
        `${t("Host")} ${row.host}: ${t("declared down")}`,
        t("Evacuate its servers. Take the declaration back when it works again."),
        link("hosts", row.host),
        `openstack server list --all-projects --host ${row.host}`,
      );
    else if (row.state === "down")
      add(
        "critical",
        isHost ? "NovaLiteHostDown" : "NovaLiteDaemonUnreachable",
        `${isHost ? t("Host") : row.binary} ${row.host}: ${t("sends no heartbeats")}`,
        isHost
          ? t("Its servers may be lost, or only cut off. Look at the machine; declare it down only if it is off.")
          : t("The daemon or its machine is down. Look at its log."),
        isHost ? link("hosts", row.host) : link("services"),
        `openstack compute service list --host ${row.host}`,
      );
    else if (row.status === "disabled")
      add(
        "note",
        "",
        `${row.host}: ${t("gets no new servers")}`,
        row.disabled_reason ?? "",
        link("hosts", row.host),
        `openstack compute service set --enable ${row.host} ${row.binary}`,
      );
  }
  for (const binary of ["nova-conductor", "nova-scheduler", "nova-compute"])
    if (!services.some((row) => row.binary === binary && row.state === "up"))
      add(
        "critical",
        binary === "nova-conductor" ? "NovaLiteNoConductor" : "",
        `${t("None is up")}: ${binary}`,
        t("No server can be created or changed."),
        link("services"),
        `openstack compute service list --service ${binary}`,
      );
  for (const server of under.filter((row) => taskOf(row) && age(row.updated) > LONG))
    add(
      "critical",
      "NovaLiteServerStuck",
      `${t("Server")} ${server.name}: ${t("an action takes long")}`,
      t(taskOf(server)!.replaceAll("_", " ")),
      link("servers", server.id, "timeline"),
      `openstack server event list --long ${server.id}`,
    );
  for (const [reason, amount] of count(failed, (row) => row.fault?.message ?? t("no reason is known")).slice(0, 5))
    add(
      "warning",
      "NovaLiteBuildsFail",
      `${t("Servers in error")}: ${amount}`,
      reason,
      `${link("actions")}?only=failed`,
      "openstack server list --all-projects --status ERROR",
    );
  const broken = moves.filter(
    (row) => ["error", "failed"].includes(row.status) && age(row.updated_at ?? row.created_at) < DAY,
  );
  if (broken.length)
    add(
      "warning",
      "",
      `${t("Moves that failed within a day")}: ${broken.length}`,
      "",
      `${link("actions")}?only=moves`,
      "openstack server migration list",
    );
  for (const state of policies)
    add(
      "warning",
      "NovaLiteBackupPolicyUnmet",
      `${t("Backup policy")} ${unmarked(state.name)}: ${t("not met")}`,
      `${t("Servers without a backup that is new enough")}: ${state.servers.filter((row) => !row.met).length}`,
      link("backup-policies", state.id),
      "nova-lite-manage backup-policy status POLICY",
    );
  return found.sort((left, right) => LEVELS.indexOf(left.level) - LEVELS.indexOf(right.level));
}
const LEVELS = ["critical", "warning", "note"];

let running: Promise<Alert[]> | null = null;
const counters = new Set<(found: Alert[]) => void>();

/** Load the alerts, once for all views that ask at the same time. */
export async function loadAlerts(): Promise<Alert[]> {
  running ??= findAlerts().finally(() => {
    running = null;
  });
  const found = await running;
  for (const count of counters) count(found);
  return found;
}

/** Seconds between two counts for the menu. Views that show alerts load them more often. */
const COUNTED = 300;

/** How many alerts need an operator, for the menu. Notes do not count. */
export function AlertCount(): VNode | null {
  const [alerts, set] = useState<Alert[]>([]);
  useEffect(() => {
    counters.add(set);
    return () => void counters.delete(set);
  }, []);
  useData(loadAlerts, ["alert-count"], COUNTED);
  const found = alerts.filter((alert) => alert.level !== "note");
  if (!found.length) return null;
  return <b class={`badge ${found[0]!.level}`}>{found.length}</b>;
}

export function Alerts(): VNode {
  const { data, error, reload } = useData(loadAlerts, ["alerts"], 10);
  return (
    <>
      <Head
        title={t("Alerts")}
        note={t("What needs you now, by what the APIs say. Prometheus has more rules, and sends messages.")}
      />
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {data &&
        (data.length === 0 ? (
          <Empty>
            <p>{t("Nothing needs you.")}</p>
          </Empty>
        ) : (
          <ul class="alerts">
            {data.map((alert) => (
              <li key={`${alert.what} ${alert.why}`} class={alert.level}>
                <div class="what">
                  <Status value={alert.level} />
                  <a href={alert.to}>{alert.what}</a>
                  {alert.rule && <small>{alert.rule}</small>}
                </div>
                {alert.why && <p>{alert.why}</p>}
                <code tabIndex={0}>{alert.command}</code>
              </li>
            ))}
          </ul>
        ))}
      <Upgrade />
    </>
  );
}

/** Versions of the daemons in the order of an upgrade, and the checks that run on each machine. */
function Upgrade(): VNode {
  const { data, error, reload } = useData(
    async () => {
      const [services, known] = await Promise.all([
        list("compute", "/os-services", "services"),
        send<Versions>("GET", "daemons"),
      ]);
      const byId = new Map(known.daemons.map((row): [string, Version] => [row.id, row]));
      return { own: known.version, rows: services.map((row) => ({ ...row, ...byId.get(row.id) })) };
    },
    ["daemons"],
    15,
  );
  const versions = count(data?.rows ?? [], (row) => row.version || t("unknown"));
  return (
    <>
      <h2>{t("Upgrade state")}</h2>
      <Failure error={error} retry={reload} />
      {data && (
        <p>
          {versions.length > 1
            ? `${t("An upgrade is under way, or has stopped")}: ${versions.map(([name, amount]) => `${name} (${amount})`).join(", ")}.`
            : `${t("All daemons have the version")} ${versions[0]?.[0] ?? data.own}.`}{" "}
          {t("API daemon")}: {data.own}.
        </p>
      )}
      {data && (
        <Table
          scope="daemon-"
          label={t("Upgrade state")}
          rows={data.rows}
          idOf={(row) => row.id}
          nameOf={(row) => row.host}
          empty={<p>{t("No daemon reports.")}</p>}
          columns={[
            { name: "binary", title: t("Daemon"), narrow: true, text: (row) => row.binary },
            { name: "host", title: t("Machine"), narrow: true, text: (row) => row.host },
            {
              name: "version",
              title: t("Version"),
              narrow: true,
              text: (row) => row.version ?? "",
              cell: (row): ComponentChildren =>
                row.version && row.version !== data.own ? (
                  <code class="other">{row.version}</code>
                ) : (
                  <code>{row.version}</code>
                ),
            },
            {
              name: "since",
              title: t("Since"),
              text: (row) => row.since ?? "",
              cell: (row) => <Time at={row.since} />,
            },
          ]}
        />
      )}
      {may("os_compute_api:os-services:update") && <Configuration />}
      <h2>{t("Checks on other machines")}</h2>
      <p>
        {t("The files of the other daemons, the database and the keys are on their machines, and are checked there.")}
      </p>
      <Command
        label={t("Commands")}
        text={"nova-lite-manage config check\nnova-lite-status upgrade check\nnova-lite-manage upgrade status"}
      />
    </>
  );
}

/** What is wrong with the configuration files of the API daemon that serves this page, in its own words. */
function Configuration(): VNode {
  const { data, error, reload } = useData(() => send<Checked>("GET", "configuration"), ["configuration"], 60);
  return (
    <>
      <h2>{t("Configuration of the API daemon")}</h2>
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {data && (
        <>
          {data.problems === null ? (
            <p>{t("The files could not be checked. The log of the API daemon has the reason.")}</p>
          ) : data.problems.length === 0 ? (
            <p>{t("Nothing is wrong with the API's configuration.")}</p>
          ) : (
            <ul class="alerts">
              {data.problems.map((text) => (
                <li key={text} class="warning">
                  {text}
                </li>
              ))}
            </ul>
          )}
          <p class="note">
            {t("Files that were checked")}: {data.files.join(", ") || t("None")}. <Time at={data.at} />
          </p>
        </>
      )}
    </>
  );
}
