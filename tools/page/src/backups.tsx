// Backup policies, and the backups of servers that they make.
import type { VNode } from "preact";
import { call, list } from "./api";
import { called, naming } from "./called";
import { names, Secret } from "./choices";
import type { Backup, BackupPolicy, ComputeReply, NewPolicy, ServerProtection } from "./compute.types";
import type { Kind } from "./listing";
import { counted, t } from "./messages";
import { link, useData } from "./state";
import { Table } from "./table";
import {
  type Choice,
  command,
  Failure,
  type Field,
  Name,
  resulting,
  Status,
  size,
  Time,
  type Values,
  Waiting,
  words,
} from "./ui";

const DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
const choices = (values: string[]): Choice[] => values.map((value) => ({ value, label: words(value) }));
const two = (value: unknown): string => String(value ?? 0).padStart(2, "0");

/** When a policy runs, in words. All times are UTC. */
export function timing({ every, hour, minute, weekday }: BackupPolicy["schedule"]): string {
  if (every === "hour") return `${t("each hour, at minute")} ${two(minute)}`;
  return `${every === "week" ? words(weekday ?? "") : t("Each day")}, ${two(hour)}:${two(minute)} UTC`;
}
export const kept = ({ hourly, daily, weekly }: BackupPolicy["retention"]): string =>
  [
    hourly && counted(hourly, "{n} hour", "{n} hours"),
    daily && counted(daily, "{n} day", "{n} days"),
    weekly && counted(weekly, "{n} week", "{n} weeks"),
  ]
    .filter(Boolean)
    .join(", ") || t("none");
export const aimed = ({ servers, tags, all }: BackupPolicy["targets"]): string =>
  all
    ? t("all servers")
    : [
        servers.length && counted(servers.length, "{n} chosen server", "{n} chosen servers"),
        tags.length && `${t("servers with a tag of")} ${tags.join(", ")}`,
      ]
        .filter(Boolean)
        .join("; ") || t("none");

function fields(
  row: Pick<BackupPolicy, "schedule" | "retention" | "targets" | "window"> & { name?: string } = {
    schedule: { every: "day", hour: 2, minute: 30 },
    retention: { daily: 7, weekly: 4 },
    targets: { servers: [], tags: [], all: true },
    window: {},
  },
): Field[] {
  const { schedule, retention, targets, window } = row;
  return [
    { name: "name", label: t("Name"), required: true, initial: row.name ?? "" },
    {
      name: "every",
      label: t("How often"),
      kind: "select",
      required: true,
      initial: schedule.every,
      choices: [
        { value: "hour", label: t("Each hour") },
        { value: "day", label: t("Each day") },
        { value: "week", label: t("Each week") },
      ],
    },
    {
      name: "weekday",
      label: t("Weekday"),
      kind: "select",
      required: true,
      initial: schedule.weekday ?? "sunday",
      choices: choices(DAYS),
      when: (values) => values.every === "week",
    },
    {
      name: "hour",
      label: t("Hour (UTC)"),
      kind: "number",
      min: 0,
      max: 23,
      required: true,
      initial: String(schedule.hour ?? 2),
      when: (values) => values.every !== "hour",
    },
    {
      name: "minute",
      label: t("Minute"),
      kind: "number",
      min: 0,
      max: 59,
      required: true,
      initial: String(schedule.minute ?? 0),
    },
    {
      name: "hourly",
      label: t("Hourly copies"),
      kind: "number",
      min: 0,
      max: 1000,
      required: true,
      initial: String(retention.hourly ?? 0),
    },
    {
      name: "daily",
      label: t("Daily copies"),
      kind: "number",
      min: 0,
      max: 1000,
      required: true,
      initial: String(retention.daily ?? 0),
    },
    {
      name: "weekly",
      label: t("Weekly copies"),
      kind: "number",
      min: 0,
      max: 1000,
      required: true,
      initial: String(retention.weekly ?? 0),
    },
    {
      name: "after",
      label: t("Begin not before (UTC)"),
      pattern: "([01][0-9]|2[0-3]):[0-5][0-9]",
      initial: window.not_before ?? "",
      help: t("As 01:00. Empty: at any time."),
    },
    {
      name: "before",
      label: t("Begin not after (UTC)"),
      pattern: "([01][0-9]|2[0-3]):[0-5][0-9]",
      initial: window.not_after ?? "",
    },
    { name: "all", label: t("All servers of the project, also later ones"), kind: "checkbox", initial: targets.all },
    {
      name: "tags",
      label: t("Servers with one of these tags"),
      initial: targets.tags.join(", "),
      when: (values) => !values.all,
    },
    {
      name: "servers",
      label: t("Servers"),
      kind: "many",
      choices: names.servers,
      initial: targets.servers,
      when: (values) => !values.all,
    },
  ];
}

export function bodyOf(values: Values): NewPolicy {
  const schedule = {
    every: values.every,
    minute: Number(values.minute),
    ...(values.every === "hour" ? {} : { hour: Number(values.hour) }),
    ...(values.every === "week" ? { weekday: values.weekday } : {}),
  };
  return {
    backup_policy: {
      name: values.name,
      schedule: schedule as NewPolicy["backup_policy"]["schedule"], // both lists of choices are the API's
      retention: { hourly: Number(values.hourly), daily: Number(values.daily), weekly: Number(values.weekly) },
      window: {
        ...(values.after ? { not_before: values.after } : {}),
        ...(values.before ? { not_after: values.before } : {}),
      },
      targets: values.all
        ? { all: true }
        : { tags: values.tags.split(/[\s,]+/).filter(Boolean), servers: values.servers },
    },
  };
}

const request = (method: string, path: string, body?: unknown): string => {
  const sent = body !== undefined && ["-H", "Content-Type: application/json", "-d", JSON.stringify(body)];
  const quoted = command("curl -X", method, ["-H", "X-Auth-Token: $TOKEN"], sent);
  return `${quoted.replace("'X-Auth-Token: $TOKEN'", '"X-Auth-Token: $TOKEN"')} "$COMPUTE_URL${path}"`;
};

export const policies = (): Kind<BackupPolicy> => ({
  path: "backup-policies",
  services: ["compute"],
  title: t("Backup policies"),
  one: t("backup policy"),
  rule: "os_compute_api:os-backup-policies:index",
  load: () => list("compute", "/os-backup-policies", "backup_policies"),
  show: async (id) => (await call("compute", "GET", `/os-backup-policies/${id}`)).backup_policy,
  empty: t("There are no backup policies. One backs servers up by a schedule."),
  command: request("GET", "/os-backup-policies"),
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: (row) => row.name,
      cell: (row) => <Name to={["backup-policies", row.id]}>{row.name}</Name>,
    },
    {
      name: "state",
      title: t("State"),
      narrow: true,
      text: (row) => (row.enabled ? "enabled" : "disabled"),
      cell: (row) => <Status value={row.enabled ? "enabled" : "disabled"} />,
    },
    { name: "when", title: t("When"), text: (row) => timing(row.schedule) },
    { name: "kept", title: t("Kept"), text: (row) => kept(row.retention) },
    { name: "what", title: t("Servers"), text: (row) => aimed(row.targets) },
  ],
  facts: (row) => [
    [t("State"), <Status value={row.enabled ? "enabled" : "disabled"} />],
    [t("When"), timing(row.schedule)],
    [
      t("Window"),
      row.window.not_before || row.window.not_after
        ? `${row.window.not_before ?? "00:00"}–${row.window.not_after ?? "24:00"} UTC`
        : t("any time"),
    ],
    [t("Kept"), kept(row.retention)],
    [t("Servers"), aimed(row.targets)],
    [t("Next run"), row.next_run_at && new Date(row.next_run_at).toLocaleString(document.documentElement.lang)],
  ],
  more: (row) => <Protection policy={row.id} />,
  create: [
    {
      name: "create",
      label: t("Create a backup policy"),
      rule: "os_compute_api:os-backup-policies:create",
      fields: fields(),
      run: (_, values) => call("compute", "POST", "/os-backup-policies", bodyOf(values)),
      command: (_, values) => request("POST", "/os-backup-policies", bodyOf(values)),
    },
  ],
  actions: [
    {
      name: "run",
      label: t("Back up now"),
      rule: "os_compute_api:os-backup-policies:run",
      confirm: t("All servers of the policy are backed up within an hour."),
      run: (row) => call("compute", "POST", `/os-backup-policies/${row.id}/run`),
      command: (row) => request("POST", `/os-backup-policies/${row.id}/run`),
    },
    {
      name: "change",
      label: t("Change"),
      rule: "os_compute_api:os-backup-policies:update",
      single: true,
      fieldsOf: fields,
      run: (row, values) => call("compute", "PUT", `/os-backup-policies/${row.id}`, bodyOf(values)),
      command: (row, values) => request("PUT", `/os-backup-policies/${row.id}`, bodyOf(values)),
    },
    {
      name: "enable",
      label: t("Enable"),
      rule: "os_compute_api:os-backup-policies:update",
      when: (row) => !row.enabled,
      run: (row) => call("compute", "PUT", `/os-backup-policies/${row.id}`, { backup_policy: { enabled: true } }),
      command: (row) => request("PUT", `/os-backup-policies/${row.id}`, { backup_policy: { enabled: true } }),
    },
    {
      name: "disable",
      label: t("Disable"),
      rule: "os_compute_api:os-backup-policies:update",
      when: (row) => row.enabled,
      confirm: t("Nothing is backed up by it until it is enabled again."),
      run: (row) => call("compute", "PUT", `/os-backup-policies/${row.id}`, { backup_policy: { enabled: false } }),
      command: (row) => request("PUT", `/os-backup-policies/${row.id}`, { backup_policy: { enabled: false } }),
    },
    {
      name: "delete",
      label: t("Delete"),
      rule: "os_compute_api:os-backup-policies:delete",
      danger: true,
      confirm: t("Its backups stay until somebody deletes them."),
      run: (row) => call("compute", "DELETE", `/os-backup-policies/${row.id}`),
      command: (row) => request("DELETE", `/os-backup-policies/${row.id}`),
    },
  ],
});

/** Whether a server is protected. A policy is met before its first run, and protects nothing until then. */
export const guarded = (row: Pick<ServerProtection, "met" | "last_backup">): string =>
  row.met ? (row.last_backup ? "yes" : "not yet") : "no";

/** Which servers a policy protects, and what kept it from the others. */
function Protection({ policy }: { policy: string }): VNode {
  const { data, error, reload } = useData(
    async () => (await call("compute", "GET", `/os-backup-policies/${policy}/status`)).backup_policy_status,
    ["protection", policy],
    10,
  );
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return (
    <>
      <h2>{t("Protection")}</h2>
      <p>
        {data.met
          ? data.servers.every((row) => guarded(row) === "yes")
            ? t("The policy is met.")
            : t("Some servers have no backup yet.")
          : t("The policy is not met: some servers have no backup that is new enough.")}
      </p>
      <Table
        scope="server-"
        label={t("Protection")}
        rows={data.servers}
        idOf={(row) => row.server_id}
        nameOf={(row) => row.name}
        empty={<p>{t("The policy has no servers.")}</p>}
        columns={[
          {
            name: "name",
            title: t("Server"),
            narrow: true,
            text: (row) => row.name,
            cell: (row) => <Name to={["servers", row.server_id]}>{row.name}</Name>,
          },
          {
            name: "met",
            title: t("Protected"),
            narrow: true,
            text: guarded,
            cell: (row) => <Status value={guarded(row)} />,
          },
          {
            name: "last",
            title: t("Newest backup"),
            text: (row) => row.last_backup?.finished_at ?? "",
            cell: (row) => (row.last_backup ? <Time at={row.last_backup.finished_at} /> : t("none")),
          },
          {
            name: "failure",
            title: t("Last failure"),
            text: (row) => row.last_failure?.reason ?? "",
            cell: (row) => row.last_failure && <span class="reason">{row.last_failure.reason}</span>,
          },
        ]}
      />
    </>
  );
}

const isComplete = (row: Backup): boolean => row.status === "complete";
const IMAGE = { image: {} };
/** The request that a backup in a repository needs before its restoration. */
const imageRequest = (row: Backup): string =>
  row.image_id ? "" : `${request("POST", `/os-server-backups/${row.id}/image`, IMAGE)}\n`;
const serverOf = (values: Values) => ({
  server: { name: values.name, ...(values.key ? { key_name: values.key } : {}) },
});

/** Make the image of a backup in a repository, and wait for it. A backup that is an image has one. */
export async function makeImage(row: Backup, progress: (text: string) => void, wait = 2000): Promise<void> {
  if (row.image_id) return;
  let found = (await call("compute", "POST", `/os-server-backups/${row.id}/image`, IMAGE)).server_backup;
  while (!found.image_id) {
    if (found.restore_status === "failed") throw new Error(found.restore_reason ?? t("The image could not be made."));
    progress(t("The image of the backup is being made…"));
    await new Promise((done) => setTimeout(done, wait));
    found = (await call("compute", "GET", `/os-server-backups/${row.id}`)).server_backup;
  }
}

const restored = ({ server }: ComputeReply): VNode => (
  <>
    <p>
      <a href={link("servers", server.id)}>{t("Look at the server")}</a>
    </p>
    <Secret label={t("Password of the server")} value={server.adminPass} />
  </>
);

export const backups = (): Kind<Backup> => ({
  path: "backups",
  title: t("Backups"),
  one: t("backup"),
  rule: "os_compute_api:os-server-backups:index",
  load: () => naming(list("compute", "/os-server-backups", "server_backups"), "images"),
  show: async (id) =>
    (await naming(call("compute", "GET", `/os-server-backups/${id}`), "images", "policies")).server_backup,
  nameOf: (row) => row.server_name || row.server_id,
  empty: t("There are no backups. A backup policy makes them. A backup that you make by hand is an image."),
  instead: () => (
    <>
      <a class="button" href={link("backup-policies")}>
        {t("Backup policies")}
      </a>{" "}
      <a class="button" href={link("images")}>
        {t("Images")}
      </a>
    </>
  ),
  command: request("GET", "/os-server-backups"),
  filters: [{ name: "status", title: t("Status"), of: (row) => row.status }],
  columns: [
    {
      name: "server",
      title: t("Server"),
      narrow: true,
      text: (row) => row.server_name || row.server_id,
      cell: (row) => <Name to={["backups", row.id]}>{row.server_name || row.server_id}</Name>,
    },
    {
      name: "status",
      title: t("Status"),
      narrow: true,
      text: (row) => row.status,
      cell: (row) => (
        <>
          <Status value={row.status} />
          {row.reason && <small class="reason">{row.reason}</small>}
        </>
      ),
    },
    {
      name: "size",
      title: t("Size"),
      number: true,
      text: (row) => row.size ?? 0,
      cell: (row) => (row.size ? size(row.size / 1048576) : ""),
    },
    {
      name: "finished",
      title: t("Finished"),
      text: (row) => row.finished_at ?? "",
      cell: (row) => <Time at={row.finished_at} />,
    },
    {
      name: "image",
      title: t("Image"),
      text: (row) => (row.image_id ? called(row.image_id) : ""),
      cell: (row) => row.image_id && <a href={link("images", row.image_id)}>{called(row.image_id)}</a>,
    },
  ],
  facts: (row) => [
    [t("Server"), <a href={link("servers", row.server_id)}>{row.server_name || row.server_id}</a>],
    [t("Policy"), row.policy_id && <a href={link("backup-policies", row.policy_id)}>{called(row.policy_id)}</a>],
    [t("Reason"), row.reason],
    [t("Image"), row.image_id && <a href={link("images", row.image_id)}>{called(row.image_id)}</a>],
    [t("Size"), row.size ? size(row.size / 1048576) : ""],
    [t("Finished"), <Time at={row.finished_at} />],
  ],
  actions: [
    resulting<Backup, ComputeReply>({
      name: "restore",
      label: t("Restore in place"),
      rule: ["os_compute_api:os-server-backups:restore", "os_compute_api:servers:rebuild"],
      danger: true,
      single: true,
      when: isComplete,
      confirm: t(
        "The server goes back to this backup, and loses what was written to its root disk since. If the server is gone, restore it as a new server.",
      ),
      run: async (row, _, progress) => {
        await makeImage(row, progress);
        return call("compute", "POST", `/os-server-backups/${row.id}/restore`, { restore: {} });
      },
      command: (row) =>
        `${imageRequest(row)}${request("POST", `/os-server-backups/${row.id}/restore`, { restore: {} })}`,
      result: restored,
    }),
    resulting<Backup, ComputeReply>({
      name: "new",
      label: t("Restore as a new server"),
      rule: ["os_compute_api:os-server-backups:create_server", "os_compute_api:servers:create"],
      single: true,
      when: isComplete,
      confirm: t("A new server gets what the backup has, with new volumes. It needs room in the quota."),
      fieldsOf: (row) => [
        { name: "name", label: t("Name"), required: true, initial: row.server_name ?? "" },
        { name: "key", label: t("Key"), kind: "select", choices: names.keys },
      ],
      run: async (row, values, progress) => {
        await makeImage(row, progress);
        return call("compute", "POST", `/os-server-backups/${row.id}/servers`, serverOf(values));
      },
      command: (row, values) =>
        `${imageRequest(row)}${request("POST", `/os-server-backups/${row.id}/servers`, serverOf(values))}`,
      result: restored,
    }),
    {
      name: "delete",
      label: t("Delete"),
      rule: "os_compute_api:os-server-backups:delete",
      danger: true,
      confirm: t("The backup and its image are deleted."),
      run: (row) => call("compute", "DELETE", `/os-server-backups/${row.id}`),
      command: (row) => request("DELETE", `/os-server-backups/${row.id}`),
    },
  ],
});
