// The first view: what needs the user, what the project has and uses, and what happened last; for operators also the cloud.
import type { ComponentChildren, VNode } from "preact";
import { type Alert, loadAlerts, sees as seesAlerts } from "./alerts";
import { list, send } from "./api";
import { called, naming } from "./called";
import type { InstanceAction, Server } from "./compute.types";
import { Icon } from "./icons";
import { type Quota, quotas } from "./kinds";
import { t } from "./messages";
import { CloudMap, loadHosts } from "./operators";
import type { Versions } from "./page.types";
import { statusOf, taskOf } from "./servers";
import { has, link, may, shared, useData } from "./state";
import { Failure, Head, Status, Time, Waiting, words } from "./ui";

/** Servers that are counted, and servers whose last actions are shown. */
const COUNTED = 1000;
const RECENT = 5;
/** Quotas that are shown: the fullest. */
const RINGS = 8;
/** Share of a quota from which it needs attention. */
const NEARLY = 0.9;
/** States of moves that have ended. */
const ENDED = ["completed", "done", "confirmed", "reverted", "error", "failed", "cancelled", "finished"];

function Card({
  title,
  icon,
  to,
  wide,
  children,
}: {
  title: string;
  icon: string;
  to?: string;
  wide?: boolean;
  children: ComponentChildren;
}): VNode {
  return (
    <section class={`card ${wide ? "wide" : ""}`} aria-label={title}>
      <h2>
        <Icon name={icon} />
        {to ? <a href={to}>{title}</a> : title}
      </h2>
      {children}
    </section>
  );
}

const Fine = ({ children }: { children: string }): VNode => (
  <p class="fine">
    <Icon name="fine" />
    {children}
  </p>
);

export function Overview(): VNode {
  const name = shared.session!.project?.name ?? "";
  const isOperator = seesAlerts();
  const { data, error, reload } = useData(loadProject, ["overview"], 15, (change) => change.own);
  const recent = [...(data?.actions.values() ?? [])]
    .flat()
    .sort((left, right) => right.action.start_time.localeCompare(left.action.start_time))
    .slice(0, SHOWN);
  return (
    <>
      <Head title={t("Overview")} note={`${t("Project")} ${name}`}>
        {may("os_compute_api:servers:create") && (
          <a class="button primary" href={link("servers", "new")}>
            {t("Create a server")}
          </a>
        )}
      </Head>
      {isOperator && <Cloud />}
      {isOperator && (
        <h2>
          {t("Project")} {name}
        </h2>
      )}
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {data && (
        <div class="overview">
          <Needs needs={data.needs} />
          <Card title={t("Servers")} icon="servers" to={link("servers")}>
            {data.servers.length ? <States servers={data.servers} /> : <First />}
            {recent.length > 0 && (
              <>
                <h3>{t("Last actions")}</h3>
                <Recent actions={recent} />
              </>
            )}
          </Card>
          <Card title={t("Quotas")} icon="quotas" to={link("quotas")}>
            <ul class="rings">
              {data.quotas.map(([label, used, total, show]) => (
                <Ring key={label} label={label} used={used} total={total} show={show} />
              ))}
            </ul>
          </Card>
        </div>
      )}
    </>
  );
}

// --- a project

interface Need {
  tone: "bad" | "warn";
  what: string;
  why: string;
  to: string;
}
interface Done {
  action: InstanceAction;
  server: Server;
  isLast: boolean;
}
interface Project {
  servers: Server[];
  quotas: Quota[];
  needs: Need[];
  /** Actions of the servers that changed last, by server and state. */
  actions: Map<string, Done[]>;
}

async function actionsOf(server: Server): Promise<Done[]> {
  const path = `/servers/${server.id}/os-instance-actions?limit=${RECENT}` as const;
  const found = await list("compute", path, "instanceActions");
  return found.map((action, at) => ({ action, server, isLast: at === 0 }));
}

async function loadProject(previous: Project | null): Promise<Project> {
  const [servers, limits, volumes] = await Promise.all([
    list("compute", `/servers/detail?limit=${COUNTED}&sort_key=updated_at&sort_dir=desc`, "servers"),
    quotas(),
    has("volume") ? list("volume", "/volumes/detail?limit=1000", "volumes") : [],
  ]);
  const needs = needsOf(servers, limits);
  for (const volume of volumes.filter((row) => row.status.startsWith("error")))
    needs.push({
      tone: "bad",
      what: `${t("Volume")} ${volume.name || volume.id.slice(0, 8)}`,
      why: t(words(volume.status)),
      to: link("volumes", volume.id),
    });
  const latest = await Promise.all(
    servers.slice(0, RECENT).map(async (server): Promise<[string, Done[]]> => {
      const key = `${server.id} ${server.updated} ${taskOf(server)}`;
      return [key, previous?.actions.get(key) ?? (await actionsOf(server))];
    }),
  );
  const share = ([, used, total]: Quota) => (total > 0 ? used / total : 0);
  const fullest = [...limits].sort((left, right) => share(right) - share(left)).slice(0, RINGS);
  return { servers, quotas: limits.filter((row) => fullest.includes(row)), needs, actions: new Map(latest) };
}

/** What of a project needs its users. */
export function needsOf(servers: Server[], limits: Quota[]): Need[] {
  const found: Need[] = [];
  for (const server of servers) {
    const add = (tone: Need["tone"], why: string) =>
      found.push({ tone, what: `${t("Server")} ${server.name}`, why, to: link("servers", server.id) });
    if (server.status === "ERROR") add("bad", server.fault?.message ?? t("The last action failed."));
    else if (["DOWN", "UNKNOWN"].includes(server.host_status ?? "")) add("bad", t("Its host does not answer."));
    else if (server.status === "VERIFY_RESIZE")
      add("warn", t("The resize is done. Confirm it to release the old place, or revert it."));
  }
  for (const [label, used, total, show] of limits)
    if (total > 0 && used >= total * NEARLY)
      found.push({
        tone: used >= total ? "bad" : "warn",
        what: `${t("Quota")}: ${label}`,
        why: `${show(used)} / ${show(total)}`,
        to: link("quotas"),
      });
  return found;
}

const SHOWN = 6;

function Needs({ needs }: { needs: Need[] }): VNode {
  if (needs.length === 0) return <Fine>{t("Nothing needs you.")}</Fine>;
  return (
    <Card title={t("Needs attention")} icon="alerts" wide>
      <ul class="needs">
        {needs.slice(0, SHOWN).map((need) => (
          <li key={`${need.what} ${need.why}`} class={need.tone}>
            <Icon name={need.tone === "bad" ? "wrong" : "warning"} />
            <a href={need.to}>{need.what}</a> <span>{need.why}</span>
          </li>
        ))}
        {needs.length > SHOWN && (
          <li>
            {needs.length - SHOWN} {t("more")}
          </li>
        )}
      </ul>
    </Card>
  );
}

/** Servers of each state, the most frequent first. */
export function states(servers: Server[]): [string, number][] {
  const found = new Map<string, number>();
  for (const server of servers) found.set(server.status, (found.get(server.status) ?? 0) + 1);
  return [...found].sort((left, right) => right[1] - left[1]);
}

const TONES: Record<string, string> = { ACTIVE: "good", ERROR: "bad", BUILD: "busy", VERIFY_RESIZE: "warn" };

function States({ servers }: { servers: Server[] }): VNode {
  const found = states(servers);
  return (
    <>
      <p class="total">{servers.length === COUNTED ? `${COUNTED}+` : servers.length}</p>
      <div class="bar" aria-hidden="true">
        {found.map(([status, count]) => (
          <i key={status} class={TONES[status] ?? ""} style={{ flexGrow: count }} />
        ))}
      </div>
      <ul class="states">
        {found.map(([status, count]) => (
          <li key={status}>
            <i class={TONES[status] ?? ""} aria-hidden="true" />
            <a href={`${link("servers")}?status=${status}`}>{words(status)}</a> <b>{count}</b>
          </li>
        ))}
      </ul>
    </>
  );
}

function First(): VNode {
  return (
    <>
      <p>{t("There are no servers in this project yet.")}</p>
      {may("os_compute_api:servers:create") && (
        <a class="button" href={link("servers", "new")}>
          {t("Create the first server")}
        </a>
      )}
    </>
  );
}

function Ring({
  label,
  used,
  total,
  show,
}: {
  label: string;
  used: number;
  total: number;
  show: (value: number) => string;
}): VNode {
  const share = total > 0 ? Math.min(1, used / total) : 0;
  const tone = share >= 1 ? "bad" : share >= NEARLY ? "warn" : "";
  return (
    <li class={tone}>
      <svg viewBox="0 0 36 36" aria-hidden="true">
        <circle cx="18" cy="18" r="15.5" />
        {share > 0 && (
          <circle class="used" cx="18" cy="18" r="15.5" pathLength="100" stroke-dasharray={`${share * 100} 100`} />
        )}
        <text x="18" y="18">
          {total < 0 ? "∞" : `${Math.round(share * 100)}%`}
        </text>
      </svg>
      <span>
        <b>{label}</b>
        <small>{total < 0 ? `${show(used)} (${t("without limit")})` : `${show(used)} / ${show(total)}`}</small>
      </span>
    </li>
  );
}

function Recent({ actions }: { actions: Done[] }): VNode {
  return (
    <ul class="recent">
      {actions.map(({ action, server, isLast }) => (
        <li key={action.request_id + server.id}>
          <a href={link("servers", server.id, "timeline")}>{server.name}</a>
          <span>{words(action.action.replaceAll("-", "_"))}</span>
          {action.message === "Error" && <Status value="failed" />}
          {isLast && taskOf(server) && statusOf(server)}
          <Time at={action.start_time} />
        </li>
      ))}
    </ul>
  );
}

// --- the cloud, for operators

function Cloud(): VNode {
  const { data, error, reload } = useData(
    async () => {
      const [alerts, hosts, moves, versions] = await Promise.all([
        loadAlerts(),
        may("os_compute_api:os-hypervisors:list-detail") ? loadHosts() : [],
        may("os_compute_api:os-migrations:index")
          ? naming(list("compute", "/os-migrations?limit=100", "migrations"), "servers")
          : [],
        send<Versions>("GET", "daemons"),
      ]);
      return { alerts, hosts, versions, moves: moves.filter((row) => !ENDED.includes(row.status)) };
    },
    ["cloud"],
    15,
  );
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  const names = [
    ...new Set([data.versions.version, ...data.versions.daemons.map((row) => row.version ?? t("unknown"))]),
  ];
  const shown: Alert[] = data.alerts.slice(0, SHOWN);
  return (
    <div class="overview">
      <Failure error={error} retry={reload} />
      <Card title={`${t("Alerts")} (${data.alerts.length})`} icon="alerts" to={link("alerts")}>
        {shown.length === 0 ? (
          <Fine>{t("Nothing needs you.")}</Fine>
        ) : (
          <ul class="needs">
            {shown.map((alert) => (
              <li
                key={`${alert.what} ${alert.why}`}
                class={{ critical: "bad", warning: "warn", note: "" }[alert.level]}
              >
                <Icon name={alert.level === "critical" ? "wrong" : "warning"} />
                <a href={alert.to}>{alert.what}</a> <span>{alert.why}</span>
              </li>
            ))}
          </ul>
        )}
      </Card>
      <Card title={`${t("Running moves")} (${data.moves.length})`} icon="actions" to={`${link("actions")}?only=moves`}>
        {data.moves.length === 0 ? (
          <Fine>{t("No server moves now.")}</Fine>
        ) : (
          <ul class="recent">
            {data.moves.slice(0, SHOWN).map((row) => (
              <li key={row.id}>
                <a href={link("servers", row.instance_uuid)}>{called(row.instance_uuid)}</a>
                <span>
                  {row.source_compute} → {row.dest_compute ?? "…"}
                </span>
                <Status value={row.status} />
                <Time at={row.created_at} />
              </li>
            ))}
          </ul>
        )}
        <h3>{t("Versions")}</h3>
        {names.length > 1 ? (
          <p>{`${t("Daemons have several versions")}: ${names.join(", ")}`}</p>
        ) : (
          <Fine>{`${t("All daemons have the version")} ${names[0]}.`}</Fine>
        )}
      </Card>
      {data.hosts.length > 0 && (
        <Card title={t("Hosts")} icon="hosts" to={link("hosts")} wide>
          <CloudMap hosts={data.hosts} />
        </Card>
      )}
    </div>
  );
}
