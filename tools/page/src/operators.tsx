// Views of operators: hosts, services, actions under way, the audit log, users, projects, flavors.
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { call, list, send } from "./api";
import { called, naming } from "./called";
import type { AuditEvent, Body, Daemon, Flavor, Hypervisor, Server, ServerAction } from "./compute.types";
import type { Assignment, Project, User } from "./identity.types";
import { late } from "./late";
import type { Kind } from "./listing";
import { counted, t } from "./messages";
import type { Versions } from "./page.types";
import {
  drainSteps,
  evacuateSteps,
  isMaintained,
  maintenanceReason,
  Plan,
  Remains,
  returnSteps,
  type Step,
} from "./plan";
import { hostOf, statusOf, taskOf } from "./servers";
import { latestShare, Sparkline } from "./sparks";
import { has, link, may, useData, useParameter } from "./state";
import { type Pair, Pairs, PROPERTY, ProjectList, pairsOf } from "./storage";
import { Table } from "./table";
import {
  type Action,
  Command,
  command,
  Empty,
  Failure,
  Head,
  Name,
  Share,
  Status,
  size,
  Time,
  toneOf,
  type Values,
  Waiting,
  words,
} from "./ui";

// Memory, CPUs and disk are in the view of a hypervisor until 2.87.
const HYPERVISORS = { version: "compute 2.87" };

/** A host: its daemon, its hypervisor, and its version. */
export interface Host extends Daemon {
  name: string;
  load: Hypervisor | null;
  version: string | null | undefined;
}

export async function loadHosts(): Promise<Host[]> {
  const [services, hypervisors, known] = await Promise.all([
    list("compute", "/os-services?binary=nova-compute", "services"),
    list("compute", "/os-hypervisors/detail", "hypervisors", HYPERVISORS),
    send<Versions>("GET", "daemons"),
  ]);
  const versions = new Map(known.daemons.map((row) => [row.id, row.version]));
  const byHost = new Map(hypervisors.map((row) => [row.service.host, row]));
  return services.map((service) => ({
    ...service,
    name: service.host,
    load: byHost.get(service.host) ?? null,
    version: versions.get(service.id),
  }));
}
const stateOf = (row: Daemon): string =>
  row.forced_down ? "forced down" : row.state === "down" ? "down" : row.status === "disabled" ? "disabled" : "up";
const update = (row: Daemon, values: Body<`/os-services/${string}`, "PUT">) =>
  call("compute", "PUT", `/os-services/${row.id}`, values);

const hostActions = (): Action<Host>[] => [
  {
    name: "enable",
    label: t("Enable"),
    rule: "os_compute_api:os-services:update",
    when: (row) => row.status === "disabled" && !isMaintained(row),
    confirm: t("The host gets new servers again."),
    run: (row) => update(row, { status: "enabled" }),
    command: (row) => command("openstack compute service set --enable", row.host, "nova-compute"),
  },
  {
    name: "disable",
    label: t("Disable"),
    rule: "os_compute_api:os-services:update",
    when: (row) => row.status === "enabled",
    confirm: t("The host gets no new servers. Those that it has go on."),
    fields: [{ name: "reason", label: t("Reason"), required: true }],
    run: (row, values) => update(row, { status: "disabled", disabled_reason: values.reason }),
    command: (row, values) =>
      command(
        "openstack compute service set --disable --disable-reason",
        values.reason || "REASON",
        row.host,
        "nova-compute",
      ),
  },
  {
    name: "drain",
    label: t("Drain"),
    rule: [
      "os_compute_api:os-services:update",
      "os_compute_api:os-migrate-server:migrate_live",
      "os_compute_api:os-migrate-server:migrate",
    ],
    single: true,
    when: (row) => row.state === "up",
    confirm: t("The host is disabled, and gives its servers to others as the plan says."),
    above: (row) => <Plan host={row.host} steps={drainSteps} />,
    fields: [
      { name: "back", label: t("A maintenance: its servers come back afterwards"), kind: "checkbox", initial: true },
      { name: "reason", label: t("Reason"), required: true, when: (values) => !values.back },
    ],
    run: async (row, values, progress) => {
      await update(row, {
        status: "disabled",
        disabled_reason: values.back ? await maintenanceReason(row) : values.reason,
      });
      return begin(await drainSteps(row.host), progress, (step) => move(step, null));
    },
    command: (row, values) => command("nova-lite-manage host", values.back ? "maintenance" : "drain", row.host),
    result: refusals,
  },
  {
    name: "back",
    label: t("End the maintenance"),
    rule: [
      "os_compute_api:os-services:update",
      "os_compute_api:os-migrations:index",
      "os_compute_api:os-migrate-server:migrate_live",
      "os_compute_api:os-migrate-server:migrate",
    ],
    single: true,
    when: (row) => row.state === "up" && isMaintained(row),
    confirm: t("The host is enabled, and the servers come back that have left it for the maintenance."),
    above: (row) => <Plan host={row.host} steps={returnSteps} />,
    run: async (row, _, progress) => {
      const steps = await returnSteps(row.host);
      await update(row, { status: "enabled" });
      return begin(steps, progress, (step) => move(step, row.host));
    },
    command: (row) => command("nova-lite-manage host maintenance", row.host, "--end"),
    result: refusals,
  },
  {
    name: "evacuate",
    label: t("Evacuate"),
    rule: "os_compute_api:os-evacuate",
    danger: true,
    single: true,
    when: (row) => row.forced_down,
    confirm: t(
      "The servers are built again on other hosts, and are off at the end: start them. Do this only if the host is really off.",
    ),
    above: (row) => <Plan host={row.host} steps={evacuateSteps} />,
    run: async (row, _, progress) => begin(await evacuateSteps(row.host), progress, () => ({ evacuate: {} })),
    command: (row) => command("nova host-evacuate", row.host),
    result: refusals,
  },
  {
    name: "down",
    label: t("Declare it down"),
    rule: "os_compute_api:os-services:update",
    danger: true,
    single: true,
    when: (row) => !row.forced_down,
    confirm: t(
      "Do this only if the host is really off: its servers can then be evacuated, and would run twice otherwise.",
    ),
    run: (row) => update(row, { forced_down: true }),
    command: (row) =>
      command("openstack --os-compute-api-version 2.11 compute service set --down", row.host, "nova-compute"),
  },
  {
    name: "undown",
    label: t("Take the declaration back"),
    rule: "os_compute_api:os-services:update",
    when: (row) => row.forced_down,
    run: (row) => update(row, { forced_down: false }),
    command: (row) =>
      command("openstack --os-compute-api-version 2.11 compute service set --up", row.host, "nova-compute"),
  },
  {
    name: "retire",
    label: t("Remove from the cloud"),
    rule: "os_compute_api:os-services:delete",
    danger: true,
    single: true,
    when: (row) => row.status === "disabled" || row.state === "down",
    confirm: t("Stop its daemon first, or it comes back. The API refuses while something of the host is in the cloud."),
    above: (row) => <Remains host={row} />,
    run: (row) => call("compute", "DELETE", `/os-services/${row.id}`),
    command: (row) => command("openstack compute service delete", row.id),
    after: () => {
      location.hash = link("hosts");
    },
  },
];

const move = (step: Step, host: string | null): ServerAction =>
  step.way === "live" ? { "os-migrateLive": { host, block_migration: "auto" } } : { migrate: host ? { host } : null };

/** Begin the steps of a plan, and return the servers that stay with the reason of each. */
async function begin(
  steps: Step[],
  progress: (text: string) => void,
  act: (step: Step) => ServerAction,
): Promise<Refused[]> {
  const refused: Refused[] = [];
  let count = 0;
  for (const step of steps) {
    if (step.way === "stay") refused.push({ name: step.server.name, reason: step.note });
    else
      try {
        await call("compute", "POST", `/servers/${step.server.id}/action`, act(step));
      } catch (error) {
        refused.push({ name: step.server.name, reason: (error as Error).message });
      }
    progress(`${++count} / ${steps.length}`);
  }
  return refused;
}

interface Refused {
  name: string;
  reason: string;
}
const refusals = (refused: Refused[]): VNode | null =>
  refused.length ? (
    <>
      <p>{t("These servers stay where they are")}:</p>
      <ul class="notes">
        {refused.map((item) => (
          <li key={item.name}>
            <b>{item.name}</b>: {item.reason}
          </li>
        ))}
      </ul>
    </>
  ) : null;

export const hosts = (): Kind<Host> => ({
  path: "hosts",
  title: t("Hosts"),
  one: t("host"),
  rule: "os_compute_api:os-hypervisors:list-detail",
  load: loadHosts,
  idOf: (row) => row.host,
  empty: t("No host has joined this cloud yet. nova-lite-setup compute makes a machine one."),
  command: "openstack hypervisor list --long",
  bulk: ["enable", "disable"],
  filters: [{ name: "state", title: t("State"), of: stateOf }],
  above: (rows) => (rows.length < 2 ? null : <CloudMap hosts={rows} />),
  status: stateOf,
  below: ({ load }) => (load ? `${t("Memory")} ${ofWhole(load, "memory_mb", size)}` : ""),
  columns: [
    {
      name: "host",
      title: t("Host"),
      narrow: true,
      text: (row) => row.host,
      cell: (row) => <Name to={["hosts", row.host]}>{row.host}</Name>,
    },
    {
      name: "state",
      title: t("State"),
      narrow: true,
      text: stateOf,
      cell: (row) => (
        <>
          <Status value={stateOf(row)} />
          {row.disabled_reason && (
            <small class="reason" title={row.disabled_reason}>
              {row.disabled_reason}
            </small>
          )}
        </>
      ),
    },
    { name: "guests", title: t("Guests"), number: true, text: (row) => row.load?.running_vms ?? 0 },
    ...(may("os_compute_api:os-usage-history:hypervisor")
      ? [
          {
            name: "use",
            title: t("CPU load"),
            text: (row: Host) => (row.load && latestShare(row.load.id)) ?? "",
            cell: (row: Host) =>
              row.load && stateOf(row) === "up" && <Sparkline id={row.load.id} load={historyOf(row.load.id, "hour")} />,
          },
        ]
      : []),
    {
      name: "cpus",
      title: "vCPUs",
      text: (row) => share(row.load, "vcpus"),
      cell: (row) => taken(row.load, "vcpus", String),
    },
    {
      name: "memory",
      title: t("Memory"),
      text: (row) => share(row.load, "memory_mb"),
      cell: (row) => taken(row.load, "memory_mb", size),
    },
    {
      name: "disk",
      title: t("Disk"),
      text: (row) => share(row.load, "local_gb"),
      cell: (row) => taken(row.load, "local_gb", (gigabytes) => size(gigabytes * 1024)),
    },
    {
      name: "seen",
      title: t("Heartbeat"),
      text: (row) => row.updated_at ?? "",
      cell: (row) => <Time at={row.updated_at} />,
    },
  ],
  actions: hostActions(),
  facts: (row) => [
    [t("Reason"), row.disabled_reason],
    [t("Guests"), row.load?.running_vms ?? 0],
    [t("vCPUs of guests"), taken(row.load, "vcpus", String)],
    [t("Memory of guests"), taken(row.load, "memory_mb", size)],
    [t("Disks of guests"), taken(row.load, "local_gb", (gigabytes) => size(gigabytes * 1024))],
    [t("Address"), row.load?.host_ip],
    [t("Hypervisor"), row.load && `${row.load.hypervisor_type} ${versionOf(row.load.hypervisor_version)}`],
    ["CPU", row.load?.cpu_info?.model],
    [t("Version"), row.version],
    [t("Zone"), row.zone],
    [t("Heartbeat"), <Time at={row.updated_at} />],
  ],
  more: (row) => (
    <>
      {row.load && may("os_compute_api:os-usage-history:hypervisor") && <Use id={row.load.id} />}
      <Guests host={row.host} />
    </>
  ),
});

const share = (load: Hypervisor | null, name: Measured): number =>
  load?.[name] ? load[`${name}_used`] / load[name] : 0;
type Measured = "vcpus" | "memory_mb" | "local_gb";
const ofWhole = (load: Hypervisor, name: Measured, show: (value: number) => string): string =>
  `${show(load[`${name}_used`])} / ${show(load[name])}`;
const taken = (load: Hypervisor | null, name: Measured, show: (value: number) => string): VNode | null =>
  load && <Share used={load[`${name}_used`]} total={load[name]} label={ofWhole(load, name, show)} />;
const versionOf = (value: number): string =>
  value >= 1000 ? `${Math.floor(value / 1000000)}.${Math.floor(value / 1000) % 1000}.${value % 1000}` : String(value);

const Graphs = late(async () => (await import("./graphs")).Graphs);

/** The look of a field by its share. The accent becomes stronger until a meter of this share would warn. */
const filled = (share: number): { class: string; style: Record<string, string> } => ({
  class: `field ${toneOf(share)}`,
  style: { "--full": `${share > 0 ? Math.round(12 + share * 48) : 0}%` },
});

/** Every host as a field, so that a hundred fit on one screen. Its colour is the larger share of CPUs and memory. */
export function CloudMap({ hosts }: { hosts: Host[] }): VNode {
  const up = hosts.filter((row) => stateOf(row) === "up");
  const sum = (name: "running_vms" | "memory_mb_used" | "memory_mb" | "vcpus_used" | "vcpus") =>
    hosts.reduce((total, row) => total + (row.load?.[name] ?? 0), 0);
  return (
    <section class="map" aria-label={t("Map of the cloud")}>
      <p>
        <b>
          {up.length} / {hosts.length}
        </b>{" "}
        {t("hosts up")} · {counted(sum("running_vms"), "{n} guest", "{n} guests")} · {t("memory")}{" "}
        <b>{size(sum("memory_mb_used"))}</b> / {size(sum("memory_mb"))} · {t("CPUs")} <b>{sum("vcpus_used")}</b> /{" "}
        {sum("vcpus")}
      </p>
      <ul>
        {hosts.map((row) => {
          const full = Math.max(share(row.load, "memory_mb"), share(row.load, "vcpus"));
          const state = stateOf(row);
          return (
            <li key={row.id}>
              <a
                href={link("hosts", row.host)}
                {...(state === "up" ? filled(full) : { class: `field ${state.replace(" ", "-")}` })}
                title={`${row.host}: ${t(words(state))}, ${Math.round(full * 100)} %`}
              >
                <span>{row.host}</span>
                <small>{state === "up" ? `${Math.round(full * 100)} %` : words(state)}</small>
              </a>
            </li>
          );
        })}
      </ul>
      <p class="scale" aria-hidden="true">
        <small>{t("Most of vCPUs or memory")}:</small>
        <small>0 %</small>
        {[...Array(8).keys()].map((level) => (
          <i key={level} {...filled(level / 10)} />
        ))}
        <small>80 %</small>
        <i {...filled(0.8)} />
        <small>95 %</small>
        <i {...filled(1)} />
        <small>100 %</small>
        <i class="field disabled" />
        <small>{t("Disabled")}</small>
        <i class="field down" />
        <small>{t("Down")}</small>
      </p>
    </section>
  );
}

const historyOf = (id: string, span: "hour" | "day" | "week") => async () =>
  (await call("compute", "GET", `/os-hypervisors/${id}/os-usage-history?span=${span}`)).usage_history;

function Use({ id }: { id: string }): VNode {
  return (
    <>
      <h2>{t("Use over time")}</h2>
      <Graphs name={id} ofHost load={(span) => historyOf(id, span)()} />
    </>
  );
}

function Guests({ host }: { host: string }): VNode {
  const { data, error, reload } = useData(
    () =>
      naming(
        list("compute", `/servers/detail?all_tenants=1&limit=1000&host=${encodeURIComponent(host)}`, "servers"),
        "projects",
      ),
    ["guests", host],
    5,
  );
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return (
    <>
      <h2>{t("Servers on this host")}</h2>
      <Table
        scope="guest-"
        label={t("Servers on this host")}
        rows={data}
        columns={guestColumns()}
        idOf={(row) => row.id}
        nameOf={(row) => row.name}
        empty={<p>{t("No servers are on this host.")}</p>}
      />
    </>
  );
}

const guestColumns = () => [
  {
    name: "name",
    title: t("Name"),
    narrow: true,
    text: (row: Server) => row.name,
    cell: (row: Server) => <Name to={["servers", row.id]}>{row.name}</Name>,
  },
  { name: "status", title: t("Status"), narrow: true, text: (row: Server) => row.status, cell: statusOf },
  { name: "flavor", title: t("Flavor"), text: (row: Server) => row.flavor.original_name },
  {
    name: "project",
    title: t("Project"),
    text: (row: Server) => called(row.tenant_id),
    cell: (row: Server) => <a href={link("projects", row.tenant_id)}>{called(row.tenant_id)}</a>,
  },
];

// --- actions under way, and failures

export function Actions(): VNode {
  const [only, setOnly] = useParameter("only");
  const { data, error, reload } = useData(
    async () => {
      const [building, failed, migrations] = await Promise.all([
        list("compute", "/servers/detail?all_tenants=1&limit=1000&sort_key=updated_at", "servers"),
        list("compute", "/servers/detail?all_tenants=1&status=ERROR&limit=200", "servers"),
        may("os_compute_api:os-migrations:index")
          ? naming(list("compute", "/os-migrations?limit=100", "migrations"), "servers")
          : [],
      ]);
      return { running: building.filter(taskOf), failed, migrations };
    },
    ["actions"],
    3,
  );
  if (!data)
    return error ? (
      <>
        <Head title={t("Actions")} />
        <Failure error={error} retry={reload} />
      </>
    ) : (
      <Waiting />
    );
  const seconds = (row: Server) => (Date.now() - Date.parse(row.updated)) / 1000;
  return (
    <>
      <Head title={t("Actions")} note={t("What runs now, what takes long, and what failed.")} />
      <div class="tabs" role="navigation" aria-label={t("Parts of the actions")}>
        {[
          ["", `${t("Running")} (${data.running.length})`],
          ["failed", `${t("Failed")} (${data.failed.length})`],
          ["moves", `${t("Moves")} (${data.migrations.length})`],
        ].map(([name, label]) => (
          <button key={name} type="button" aria-pressed={only === name} onClick={() => setOnly(name!)}>
            {label}
          </button>
        ))}
      </div>
      {only === "" && (
        <Table
          scope="run-"
          label={t("Running")}
          rows={data.running}
          idOf={(row) => row.id}
          nameOf={(row) => row.name}
          empty={<p>{t("Nothing is under way.")}</p>}
          columns={[
            ...guestColumns().slice(0, 2),
            { name: "host", title: t("Host"), text: hostOf },
            {
              name: "since",
              title: t("Last step"),
              narrow: true,
              text: (row) => row.updated,
              cell: (row) => (
                <>
                  <Time at={row.updated} />
                  {seconds(row) > 300 && <small class="reason">{t("takes long")}</small>}
                </>
              ),
            },
            {
              name: "why",
              title: t("Steps"),
              text: () => "",
              cell: (row) => <a href={link("servers", row.id, "timeline")}>{t("Timeline")}</a>,
            },
          ]}
        />
      )}
      {only === "failed" && (
        <Table
          scope="fail-"
          label={t("Failed")}
          rows={data.failed}
          idOf={(row) => row.id}
          nameOf={(row) => row.name}
          empty={<p>{t("No server is in error.")}</p>}
          columns={[
            guestColumns()[0]!,
            { name: "why", title: t("Why"), narrow: true, text: (row) => row.fault?.message ?? "" },
            {
              name: "when",
              title: t("When"),
              text: (row) => row.fault?.created ?? row.updated,
              cell: (row) => <Time at={row.fault?.created ?? row.updated} />,
            },
            { name: "host", title: t("Host"), text: hostOf },
          ]}
        />
      )}
      {only === "moves" && (
        <Table
          scope="move-"
          label={t("Moves")}
          rows={data.migrations}
          idOf={(row) => String(row.id)}
          nameOf={(row) => row.instance_uuid}
          empty={<p>{t("No server has moved lately.")}</p>}
          columns={[
            {
              name: "server",
              title: t("Server"),
              narrow: true,
              text: (row) => called(row.instance_uuid),
              cell: (row) => <a href={link("servers", row.instance_uuid)}>{called(row.instance_uuid)}</a>,
            },
            {
              name: "status",
              title: t("Status"),
              narrow: true,
              text: (row) => row.status,
              cell: (row) => <Status value={row.status} />,
            },
            { name: "type", title: t("Kind"), text: (row) => words(row.migration_type ?? "").replaceAll("-", " ") },
            { name: "from", title: t("From"), text: (row) => row.source_compute ?? "" },
            { name: "to", title: t("To"), narrow: true, text: (row) => row.dest_compute ?? "" },
            {
              name: "created",
              title: t("Began"),
              text: (row) => row.created_at,
              cell: (row) => <Time at={row.created_at} />,
            },
          ]}
        />
      )}
    </>
  );
}

// --- services

export const services = (): Kind<Daemon> => ({
  path: "services",
  title: t("Daemons"),
  one: t("daemon"),
  rule: "os_compute_api:os-services:list",
  load: () => list("compute", "/os-services", "services"),
  nameOf: (row) => `${row.binary} ${row.host}`,
  empty: t("No daemon reports."),
  command: "openstack compute service list",
  filters: [{ name: "state", title: t("State"), of: (row) => row.state }],
  columns: [
    { name: "binary", title: t("Daemon"), narrow: true, text: (row) => row.binary },
    { name: "host", title: t("Machine"), narrow: true, text: (row) => row.host },
    { name: "state", title: t("State"), narrow: true, text: stateOf, cell: (row) => <Status value={stateOf(row)} /> },
    { name: "zone", title: t("Zone"), text: (row) => row.zone },
    {
      name: "seen",
      title: t("Heartbeat"),
      text: (row) => row.updated_at ?? "",
      cell: (row) => <Time at={row.updated_at} />,
    },
  ],
  actions: [],
});

// --- audit log

export function Audit(): VNode {
  const [filters, set] = useState<Record<string, string>>({ action: "", outcome: "", user_id: "", target_id: "" });
  const [older, setOlder] = useState<AuditEvent[]>([]);
  const query = Object.entries(filters)
    .filter(([, value]) => value)
    .map(([name, value]) => `&${name}=${encodeURIComponent(value)}`)
    .join("");
  const { data, error, reload } = useData(
    () => naming(list("compute", `/os-audit-events?limit=100${query}`, "audit_events"), "servers"),
    ["audit", query],
    10,
  );
  const users = useData(
    async () =>
      may("identity:list_users")
        ? new Map((await list("identity", "/users", "users")).map((row) => [row.id, row.name]))
        : new Map<string, string>(),
    ["users"],
  );
  const rows = [...(data ?? []), ...older.filter((row) => !data?.some((item) => item.id === row.id))];
  const more = async () =>
    setOlder([
      ...older,
      ...(await list(
        "compute",
        `/os-audit-events?limit=100&marker=${rows[rows.length - 1]!.id}${query}`,
        "audit_events",
      )),
    ]);
  const field = (name: string, label: string) => (
    <label key={name}>
      {label}{" "}
      <input
        value={filters[name]!}
        onChange={(event) => {
          set({ ...filters, [name]: event.currentTarget.value.trim() });
          setOlder([]);
        }}
      />
    </label>
  );
  return (
    <>
      <Head title={t("Audit log")} note={t("Changes, log-ins, and denied requests of all APIs.")} />
      <div class="tools">
        <select
          aria-label={t("Outcome")}
          value={filters.outcome!}
          onChange={(event) => {
            set({ ...filters, outcome: event.currentTarget.value });
            setOlder([]);
          }}
        >
          <option value="">
            {t("Outcome")}: {t("all")}
          </option>
          <option value="success">{t("Success")}</option>
          <option value="failure">{t("Failure")}</option>
        </select>
        {field("action", t("Action"))}
        {field("user_id", t("Id of the user"))}
        {field("target_id", t("Id of the target"))}
      </div>
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {data && (
        <Table
          label={t("Audit log")}
          rows={rows}
          idOf={(row) => row.id}
          nameOf={(row) => row.id}
          empty={<p>{t("The log has no such event. [audit] enabled turns it on.")}</p>}
          columns={[
            {
              name: "time",
              title: t("When"),
              narrow: true,
              text: (row) => row.eventTime,
              cell: (row) => <Time at={row.eventTime} />,
            },
            { name: "action", title: t("Action"), narrow: true, text: (row) => row.action },
            {
              name: "outcome",
              title: t("Outcome"),
              narrow: true,
              text: (row) => row.outcome,
              cell: (row) => (
                <>
                  <Status value={row.outcome} /> <small>{row.reason.reasonCode}</small>
                </>
              ),
            },
            {
              name: "target",
              title: t("Target"),
              text: (row) => `${row.target.typeURI.replace("service/", "")} ${row.target.id}`,
              cell: (row) => (
                <>
                  {row.target.typeURI.replace("service/", "")}{" "}
                  {row.target.typeURI.endsWith("/servers") && row.target.id !== "unknown" ? (
                    <a href={link("servers", row.target.id)}>{called(row.target.id)}</a>
                  ) : (
                    <code>{row.target.id.slice(0, 12)}</code>
                  )}
                </>
              ),
            },
            { name: "user", title: t("User"), text: (row) => users.data?.get(row.initiator.id) ?? row.initiator.id },
            { name: "address", title: t("From"), text: (row) => row.initiator.host.address ?? "" },
          ]}
        />
      )}
      {rows.length >= 100 && (
        <button type="button" onClick={more}>
          {t("Show older ones")}
        </button>
      )}
      <Command text="nova-lite-manage audit list" />
    </>
  );
}

// --- users, projects, flavors

const yesNo = (row: User | Project): string => (row.enabled ? "enabled" : "disabled");
const toggles = (kind: string, one: string, rule: string): Action<User | Project>[] => [
  {
    name: "enable",
    label: t("Enable"),
    rule,
    when: (row) => !row.enabled,
    run: (row) => call("identity", "PATCH", `/${kind}/${row.id}`, { [one]: { enabled: true } }),
    command: (row) => command(`openstack ${one} set --enable`, row.id),
  },
  {
    name: "disable",
    label: t("Disable"),
    rule,
    when: (row) => row.enabled,
    confirm: t("Nobody can log in with it until it is enabled again."),
    run: (row) => call("identity", "PATCH", `/${kind}/${row.id}`, { [one]: { enabled: false } }),
    command: (row) => command(`openstack ${one} set --disable`, row.id),
  },
];
const choicesOf = (kind: "projects" | "roles" | "users") => async () =>
  (await list("identity", `/${kind}`, kind)).map((row) => ({ value: row.id, label: row.name }));

export const users = (): Kind<User> => ({
  path: "users",
  services: ["identity"],
  title: t("Users"),
  one: t("user"),
  rule: "identity:list_users",
  load: () => list("identity", "/users", "users"),
  empty: t("There are no users."),
  command: "openstack user list",
  every: 15,
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: (row) => row.name,
      cell: (row) => <Name to={["users", row.id]}>{row.name}</Name>,
    },
    { name: "state", title: t("State"), narrow: true, text: yesNo, cell: (row) => <Status value={yesNo(row)} /> },
    { name: "domain", title: t("Domain"), text: (row) => row.domain_id },
    { name: "id", title: "ID", text: (row) => row.id, cell: (row) => <code>{row.id}</code> },
  ],
  facts: (row) => [
    [t("State"), <Status value={yesNo(row)} />],
    [t("Domain"), row.domain_id],
    [t("Password expires"), row.password_expires_at],
  ],
  more: (row) => <Roles query={`user.id=${row.id}`} />,
  create: [
    {
      name: "create",
      label: t("Create a user"),
      rule: "identity:create_user",
      fields: [
        { name: "name", label: t("Name"), required: true },
        { name: "password", label: t("Password"), kind: "password", required: true },
        { name: "project", label: t("Project"), kind: "select", choices: choicesOf("projects") },
        {
          name: "role",
          label: t("Role"),
          kind: "select",
          first: true,
          choices: async () => (await choicesOf("roles")()).sort((left) => (left.label === "member" ? -1 : 1)),
        },
      ],
      run: async (_, values) => {
        const { user } = await call("identity", "POST", "/users", {
          user: {
            name: values.name,
            password: values.password,
            ...(values.project ? { default_project_id: values.project } : {}),
          },
        });
        if (values.project && values.role)
          await call("identity", "PUT", `/projects/${values.project}/users/${user.id}/roles/${values.role}`);
      },
      command: (_, values) =>
        command(
          "openstack user create --password-prompt",
          values.project && ["--project", values.project],
          values.name || "NAME",
        ),
    },
  ],
  actions: [
    {
      name: "role",
      label: t("Give a role"),
      rule: "identity:create_grant",
      fields: [
        { name: "project", label: t("Project"), kind: "select", required: true, choices: choicesOf("projects") },
        { name: "role", label: t("Role"), kind: "select", required: true, choices: choicesOf("roles") },
      ],
      run: (row, values) => call("identity", "PUT", `/projects/${values.project}/users/${row.id}/roles/${values.role}`),
      command: (row, values) =>
        command("openstack role add --user", row.id, ["--project", values.project || "PROJECT"], values.role || "ROLE"),
    },
    {
      name: "password",
      label: t("Set the password"),
      rule: "identity:update_user",
      single: true,
      fields: [{ name: "password", label: t("New password"), kind: "password", required: true }],
      run: (row, values) => call("identity", "PATCH", `/users/${row.id}`, { user: { password: values.password } }),
      command: (row) => command("openstack user set --password-prompt", row.id),
    },
    ...toggles("users", "user", "identity:update_user"),
    {
      name: "delete",
      label: t("Delete"),
      rule: "identity:delete_user",
      danger: true,
      confirm: t("What the user has made stays in its project."),
      run: (row) => call("identity", "DELETE", `/users/${row.id}`),
      command: (row) => command("openstack user delete", row.id),
    },
  ],
});

function Roles({ query }: { query: string }): VNode {
  const { data, error, reload } = useData(
    () => list("identity", `/role_assignments?include_names=true&${query}`, "role_assignments"),
    ["roles", query],
    10,
  );
  const target = (row: Assignment): [string, string] =>
    row.scope.project
      ? [row.scope.project.name, row.scope.project.id]
      : [
          row.scope.domain ? `${t("domain")} ${row.scope.domain.name ?? row.scope.domain.id}` : t("the whole cloud"),
          "",
        ];
  const holder = (row: Assignment): string =>
    row.user ? row.user.name : `${t("group")} ${row.group?.name ?? row.group?.id}`;
  const remove: Action<Assignment> = {
    name: "remove",
    label: t("Take the role"),
    rule: "identity:revoke_grant",
    danger: true,
    when: (row) => !!row.scope.project && !!row.user,
    run: (row) =>
      call("identity", "DELETE", `/projects/${row.scope.project!.id}/users/${row.user!.id}/roles/${row.role.id}`),
    command: (row) =>
      command("openstack role remove --user", row.user!.id, ["--project", row.scope.project!.id], row.role.name),
  };
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return (
    <>
      <h2>{t("Roles")}</h2>
      <Table
        scope="role-"
        label={t("Roles")}
        rows={data}
        idOf={(row) => row.links.assignment}
        nameOf={(row) => `${row.role.name} ${holder(row)}`}
        actions={[remove]}
        done={reload}
        empty={<p>{t("There are no roles here.")}</p>}
        columns={[
          { name: "role", title: t("Role"), narrow: true, text: (row) => row.role.name },
          { name: "who", title: t("Holder"), narrow: true, text: holder },
          { name: "where", title: t("In"), narrow: true, text: (row) => target(row)[0] },
        ]}
      />
    </>
  );
}

export const projects = (): Kind<Project> => ({
  path: "projects",
  services: ["identity"],
  title: t("Projects"),
  one: t("project"),
  rule: "identity:list_projects",
  load: () => list("identity", "/projects", "projects"),
  empty: t("There are no projects."),
  command: "openstack project list",
  every: 15,
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: (row) => row.name,
      cell: (row) => <Name to={["projects", row.id]}>{row.name}</Name>,
    },
    { name: "state", title: t("State"), narrow: true, text: yesNo, cell: (row) => <Status value={yesNo(row)} /> },
    { name: "description", title: t("Description"), text: (row) => row.description ?? "" },
    { name: "id", title: "ID", text: (row) => row.id, cell: (row) => <code>{row.id}</code> },
  ],
  facts: (row) => [
    [t("State"), <Status value={yesNo(row)} />],
    [t("Description"), row.description],
  ],
  more: (row) => (
    <>
      <ProjectQuota project={row.id} />
      <Roles query={`scope.project.id=${row.id}`} />
    </>
  ),
  create: [
    {
      name: "create",
      label: t("Create a project"),
      rule: "identity:create_project",
      fields: [
        { name: "name", label: t("Name"), required: true },
        { name: "description", label: t("Description") },
      ],
      run: (_, values) =>
        call("identity", "POST", "/projects", { project: { name: values.name, description: values.description } }),
      command: (_, values) =>
        command(
          "openstack project create",
          values.description && ["--description", values.description],
          values.name || "NAME",
        ),
    },
  ],
  actions: [
    {
      name: "quota",
      label: t("Change the quota"),
      rule: "os_compute_api:os-quota-sets:update",
      fields: limits().map(([name, , label]) => ({
        name,
        label,
        kind: "number",
        min: -1,
        ...(name === "instances" ? { help: t("Empty: as it is. -1: without limit.") } : {}),
      })),
      run: async (row, values) => {
        const quota_set = given("compute", values);
        if (Object.keys(quota_set).length) await call("compute", "PUT", `/os-quota-sets/${row.id}`, { quota_set });
        const volume = given("volume", values);
        if (Object.keys(volume).length) await call("volume", "PUT", `/os-quota-sets/${row.id}`, { quota_set: volume });
        const network = given("network", values);
        if (Object.keys(network).length) await call("network", "PUT", `/quotas/${row.id}`, { quota: network });
      },
      command: (row, values) =>
        command(
          "openstack quota set",
          ...limits().map(([name, , , option]) => values[name] !== "" && [`--${option}`, values[name]]),
          row.id,
        ),
    },
    ...toggles("projects", "project", "identity:update_project"),
    {
      name: "delete",
      label: t("Delete"),
      rule: "identity:delete_project",
      danger: true,
      confirm: t("Delete its servers, volumes and networks first: nobody reaches them afterwards."),
      run: (row) => call("identity", "DELETE", `/projects/${row.id}`),
      command: (row) => command("openstack project delete", row.id),
    },
  ],
});

type Limit =
  | ("instances" | "cores" | "ram" | "server_groups")
  | ("volumes" | "gigabytes" | "snapshots")
  | ("network" | "subnet" | "port" | "router" | "floatingip" | "security_group" | "security_group_rule");
/** Limits that the caller may change: name and service of each, its words, and the option of the command. */
const limits = (): [Limit, "compute" | "volume" | "network", string, string][] =>
  (
    [
      ["instances", "compute", t("Servers"), "instances"],
      ["cores", "compute", t("CPUs"), "cores"],
      ["ram", "compute", t("Memory in MB"), "ram"],
      ["server_groups", "compute", t("Server groups"), "server-groups"],
      ["volumes", "volume", t("Volumes"), "volumes"],
      ["gigabytes", "volume", t("Volume storage in GB"), "gigabytes"],
      ["snapshots", "volume", t("Volume snapshots"), "snapshots"],
      ["network", "network", t("Networks"), "networks"],
      ["subnet", "network", t("Address ranges"), "subnets"],
      ["port", "network", t("Interfaces"), "ports"],
      ["router", "network", t("Routers"), "routers"],
      ["floatingip", "network", t("Floating addresses"), "floating-ips"],
      ["security_group", "network", t("Security groups"), "secgroups"],
      ["security_group_rule", "network", t("Rules of security groups"), "secgroup-rules"],
    ] as [Limit, "compute" | "volume" | "network", string, string][]
  ).filter(([, service]) => has(service) && may(CHANGES[service]));
const CHANGES = {
  compute: "os_compute_api:os-quota-sets:update",
  volume: "volume_extension:quotas:update",
  network: "update_quota",
};
/** The limits of a service that have been entered. */
export const given = (of: string, values: Values): Partial<Record<Limit, number>> =>
  Object.fromEntries(
    limits()
      .filter(([name, service]) => service === of && values[name])
      .map(([name]) => [name, Number(values[name])]),
  );

function ProjectQuota({ project }: { project: string }): VNode | null {
  const { data } = useData(
    async () => (await call("compute", "GET", `/os-quota-sets/${project}/detail`)).quota_set,
    ["quota", project],
    10,
  );
  if (!data) return null;
  const rows: ["instances" | "cores" | "ram", string, (value: number) => string][] = [
    ["instances", t("Servers"), String],
    ["cores", t("CPUs"), String],
    ["ram", t("Memory"), size],
  ];
  return (
    <>
      <h2>{t("Quota")}</h2>
      <div class="quotas">
        {rows.map(([name, label, show]) => (
          <div key={name} class="quota">
            <span>{label}</span>
            <Share
              used={data[name].in_use}
              total={data[name].limit}
              label={
                data[name].limit < 0
                  ? show(data[name].in_use)
                  : `${show(data[name].in_use)} / ${show(data[name].limit)}`
              }
            />
          </div>
        ))}
      </div>
    </>
  );
}

export const flavors = (): Kind<Flavor> => ({
  path: "flavors",
  services: ["compute"],
  title: t("Flavors"),
  one: t("flavor"),
  rule: "os_compute_api:flavors:detail",
  load: () =>
    list(
      "compute",
      `/flavors/detail?sort_key=memory_mb${may("os_compute_api:os-flavor-manage:create") ? "&is_public=none" : ""}`,
      "flavors",
    ),
  empty: t("There are no flavors. A flavor is a size of servers."),
  command: "openstack flavor list",
  every: 15,
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: (row) => row.name,
      cell: (row) => <Name to={["flavors", row.id]}>{row.name}</Name>,
    },
    { name: "cpus", title: t("CPUs"), narrow: true, number: true, text: (row) => row.vcpus },
    {
      name: "memory",
      title: t("Memory"),
      narrow: true,
      number: true,
      text: (row) => row.ram,
      cell: (row) => size(row.ram),
    },
    { name: "disk", title: t("Disk"), number: true, text: (row) => row.disk, cell: (row) => `${row.disk} GB` },
    {
      name: "public",
      title: t("For"),
      text: (row) => (row["os-flavor-access:is_public"] ? t("all projects") : t("some projects")),
    },
  ],
  facts: (row) => [
    [t("CPUs"), row.vcpus],
    [t("Memory"), size(row.ram)],
    [t("Disk"), `${row.disk} GB`],
    [t("Ephemeral"), row["OS-FLV-EXT-DATA:ephemeral"] ? `${row["OS-FLV-EXT-DATA:ephemeral"]} GB` : ""],
    [t("For"), row["os-flavor-access:is_public"] ? t("all projects") : t("some projects")],
  ],
  more: (row, reload) => (
    <>
      <Specs flavor={row} reload={reload} />
      {!row["os-flavor-access:is_public"] && may("os_compute_api:os-flavor-access") && <Access flavor={row} />}
    </>
  ),
  create: [
    {
      name: "create",
      label: t("Create a flavor"),
      rule: "os_compute_api:os-flavor-manage:create",
      fields: [
        { name: "name", label: t("Name"), required: true },
        { name: "vcpus", label: t("CPUs"), kind: "number", required: true, min: 1, initial: "1" },
        { name: "ram", label: t("Memory in MB"), kind: "number", required: true, min: 1, initial: "2048" },
        { name: "disk", label: t("Disk in GB"), kind: "number", required: true, min: 0, initial: "20" },
        { name: "public", label: t("For all projects"), kind: "checkbox", initial: true },
      ],
      run: (_, values) =>
        call("compute", "POST", "/flavors", {
          flavor: {
            name: values.name,
            vcpus: Number(values.vcpus),
            ram: Number(values.ram),
            disk: Number(values.disk),
            "os-flavor-access:is_public": values.public,
          },
        }),
      command: (_, values) =>
        command(
          "openstack flavor create",
          ["--vcpus", values.vcpus, "--ram", values.ram, "--disk", values.disk],
          !values.public && "--private",
          values.name || "NAME",
        ),
    },
  ],
  actions: [
    {
      name: "spec",
      label: t("Set an extra spec"),
      rule: "os_compute_api:os-flavor-extra-specs:create",
      single: true,
      fields: PROPERTY(),
      run: (row, values) =>
        call("compute", "POST", `/flavors/${row.id}/os-extra_specs`, { extra_specs: { [values.key]: values.value } }),
      command: (row, values) =>
        command("openstack flavor set", ["--property", `${values.key || "KEY"}=${values.value}`], row.id),
    },
    {
      name: "access",
      label: t("Let a project use it"),
      rule: "os_compute_api:os-flavor-access:add_tenant_access",
      single: true,
      when: (row) => !row["os-flavor-access:is_public"],
      fields: [
        { name: "project", label: t("Project"), kind: "select", required: true, choices: choicesOf("projects") },
      ],
      run: (row, values) =>
        call("compute", "POST", `/flavors/${row.id}/action`, { addTenantAccess: { tenant: values.project } }),
      command: (row, values) => command("openstack flavor set --project", values.project || "PROJECT", row.id),
    },
    {
      name: "delete",
      label: t("Delete"),
      rule: "os_compute_api:os-flavor-manage:delete",
      danger: true,
      confirm: t("Servers that have it keep it."),
      run: (row) => call("compute", "DELETE", `/flavors/${row.id}`),
      command: (row) => command("openstack flavor delete", row.id),
    },
  ],
});

function Specs({ flavor, reload }: { flavor: Flavor; reload: () => void }): VNode {
  const remove: Action<Pair> = {
    name: "remove",
    label: t("Remove"),
    rule: "os_compute_api:os-flavor-extra-specs:delete",
    danger: true,
    run: ({ key }) => call("compute", "DELETE", `/flavors/${flavor.id}/os-extra_specs/${encodeURIComponent(key)}`),
    command: ({ key }) => command("openstack flavor unset", ["--property", key], flavor.id),
  };
  const pairs = pairsOf(flavor.extra_specs);
  return <Pairs label={t("Extra specs")} pairs={pairs} remove={remove} done={reload} />;
}

function Access({ flavor }: { flavor: Flavor }): VNode {
  const { data, error, reload } = useData(
    () => naming(list("compute", `/flavors/${flavor.id}/os-flavor-access`, "flavor_access"), "projects"),
    ["access", flavor.id],
    10,
    ["compute"],
  );
  const remove: Action<{ id: string }> = {
    name: "remove",
    label: t("Remove"),
    rule: "os_compute_api:os-flavor-access:remove_tenant_access",
    danger: true,
    run: ({ id: tenant }) =>
      call("compute", "POST", `/flavors/${flavor.id}/action`, { removeTenantAccess: { tenant } }),
    command: ({ id: tenant }) => command("openstack flavor unset --project", tenant, flavor.id),
  };
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return <ProjectList rows={data.map((row) => ({ id: row.tenant_id }))} remove={remove} done={reload} />;
}

export const nothing = (
  <Empty>
    <p>{t("There is nothing to show.")}</p>
  </Empty>
);
