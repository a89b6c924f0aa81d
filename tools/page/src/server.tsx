// One server: what it is, why it is so, and what happened to it.
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { ApiError, all, call, list } from "./api";
import { backups } from "./backups";
import { called, naming } from "./called";
import { freeAddresses } from "./choices";
import type {
  Attachment,
  Server as Instance,
  InstanceAction,
  Interface,
  Measures,
  SecurityGroupOfServer,
} from "./compute.types";
import { ConsoleView, consoleUrl, isReached, type Kind, Thumbnail } from "./consoles";
import { createAgain, createOf } from "./draft";
import { Graphs, rateWords } from "./graphs";
import { withNames } from "./hints";
import { Icon } from "./icons";
import type { Image } from "./image.types";
import { Installation } from "./install";
import type { Change } from "./live";
import { counted, t } from "./messages";
import type { FloatingIp } from "./network.types";
import { save } from "./notices";
import { hostOf, isBootable, names, serverActions, statusOf, taskOf } from "./servers";
import { accepts, has, link, may, useData } from "./state";
import { Table } from "./table";
import {
  type Action,
  ActionButtons,
  Command,
  Copy,
  command,
  duration,
  Empty,
  Facts,
  Failure,
  Head,
  Meter,
  Name,
  Status,
  size,
  Time,
  Waiting,
  words,
} from "./ui";
import type { Volume } from "./volume.types";

const TABS = ["timeline", "network", "disks", "snapshots", "console", "metadata", "diagnostics"] as const;

/** Whether a change is one of this server. */
const of =
  (id: string) =>
  (change: Change): boolean =>
    change.ids.length === 0 || change.ids.includes(id);

/** The state of a server in words. */
export function meaning(server: Instance): string {
  const task = taskOf(server);
  if (task) return `${t("An action is under way")}: ${t(task.replaceAll("_", " "))}.`;
  const meanings: Record<string, string> = {
    ACTIVE: t("The guest runs."),
    SHUTOFF: t("The guest is off. Its disks and addresses stay."),
    PAUSED: t("The guest is frozen in its host's memory."),
    SUSPENDED: t("The guest's memory is stored on its host's disk."),
    VERIFY_RESIZE: t("The resize is done. Confirm it to release the old place, or revert it."),
    SHELVED: t("The server is stored as an image."),
    SHELVED_OFFLOADED: t("The server is stored as an image and is on no host. Unshelve it to use it."),
    RESCUE: t("The guest runs its rescue system."),
    ERROR: t("The last action failed."),
    BUILD: t("The server is being built."),
    DELETED: t("The server is deleted."),
    SOFT_DELETED: t("The server is deleted, and can still be restored."),
  };
  return meanings[server.status] ?? "";
}

/** A server that the API no longer has. What is known of it is of before its deletion. */
export const asDeleted = (server: Instance): Instance => ({
  ...server,
  status: "DELETED",
  "OS-EXT-STS:task_state": null,
});

export function Server({ id, tab }: { id: string; tab: string | undefined }): VNode {
  const { data, error, reload } = useData(
    async () => (await naming(call("compute", "GET", `/servers/${encodeURIComponent(id)}`), "groups")).server,
    ["server", id],
    (found) => (taskOf(found) ? 1 : 4),
    of(id),
  );
  if (!data)
    return error ? (
      <>
        <Head title={t("Server")} />
        <Failure error={error} retry={reload} />
      </>
    ) : (
      <Waiting />
    );
  const used = may("os_compute_api:os-usage-history:server");
  const diagnosed = may("os_compute_api:os-server-diagnostics");
  const tabs = TABS.filter((name) => name !== "diagnostics" || used || diagnosed);
  const current = tabs.find((name) => name === tab) ?? "timeline";
  const gone = error instanceof ApiError && error.status === 404;
  const server = gone ? asDeleted(data) : data;
  return (
    <>
      <nav class="path" aria-label={t("Path")}>
        <a href={link("servers")}>{t("Servers")}</a> / {server.name}
      </nav>
      <Head
        title={server.name}
        note={
          <>
            {statusOf(server)} {meaning(server)}
          </>
        }
      >
        {!gone && (
          <ActionButtons actions={ordered(server)} row={server} nameOf={(row) => row.name} done={reload} main={3} />
        )}
      </Head>
      {gone ? (
        <div class="failure" role="alert">
          <strong>{t("This server is deleted. Its timeline is still here.")}</strong>
        </div>
      ) : (
        <Failure error={error} />
      )}
      {server.fault && (
        <div class="reason-box" role="note">
          <b>{t("Why")}</b>
          <p>{withNames(server.fault.message)}</p>
          <Advice text={server.fault.message} />
          <Funnel text={server.fault.details ?? ""} />
          {server.status === "ERROR" && may("os_compute_api:servers:create") && (
            <a class="button" href={link("servers", "new")} onClick={() => createAgain(server)}>
              {t("Create it again, with changes")}
            </a>
          )}
        </div>
      )}
      {!gone && <Installation server={server} />}
      {!gone && <Access server={server} />}
      <div class="cockpit">
        <Facts
          items={[
            [
              t("Flavor"),
              `${server.flavor.original_name} – ${server.flavor.vcpus} CPU, ${size(server.flavor.ram)}, ${t("disk")} ${server.flavor.disk} GB`,
            ],
            [t("Image"), server.image ? <ImageName id={server.image.id} /> : t("boots from a volume")],
            [t("Key"), server.key_name],
            [t("Host"), hostOf(server) && <a href={link("hosts", hostOf(server))}>{hostOf(server)}</a>],
            [t("Zone"), server["OS-EXT-AZ:availability_zone"]],
            [t("Created"), <Time at={server.created} />],
            [
              t("Server group"),
              !!server.server_groups?.length &&
                server.server_groups.map((id) => (
                  <a key={id} href={link("server-groups", id)}>
                    {called(id)}
                  </a>
                )),
            ],
            [t("Locked"), server.locked && (server.locked_reason || t("yes"))],
            [t("Description"), server.description],
            [t("Tags"), server.tags?.join(", ")],
            ["ID", <code>{server.id}</code>],
          ]}
        />
        <div class="parts">
          <div class="tabs" role="navigation" aria-label={t("Parts of the server")}>
            {tabs.map((name) => (
              <a key={name} href={link("servers", id, name)} aria-current={name === current ? "page" : undefined}>
                {TAB_TITLES()[name]}
              </a>
            ))}
          </div>
          {current === "timeline" && <Timeline server={server} />}
          {current === "network" && <Interfaces server={server} />}
          {current === "disks" && <Disks server={server} />}
          {current === "snapshots" && <Snapshots server={server} />}
          {current === "console" && <Consoles server={server} />}
          {current === "metadata" && <Metadata server={server} reload={reload} />}
          {current === "diagnostics" && used && <Use server={server} />}
          {current === "diagnostics" && diagnosed && <Diagnostics server={server} />}
        </div>
      </div>
    </>
  );
}

const TAB_TITLES = (): Record<string, string> => ({
  timeline: t("Timeline"),
  network: t("Network"),
  disks: t("Disks"),
  snapshots: t("Snapshots"),
  console: t("Console"),
  metadata: t("Metadata"),
  diagnostics: t("Metrics"),
});

/** A server in error is mostly deleted. */
function ordered(server: Instance): Action<Instance>[] {
  const actions = serverActions();
  return server.status === "ERROR"
    ? [...actions].sort((left, right) => Number(right.name === "delete") - Number(left.name === "delete"))
    : actions;
}

/** What a user can do about a common failure. */
function Advice({ text }: { text: string }): VNode | null {
  const lower = text.toLowerCase();
  if (lower.includes("no valid host"))
    return (
      <p class="advice">
        {t(
          "No host has room for this, or the filters exclude all hosts. Choose a smaller flavor, or another zone; an operator sees the reason of each host in the events.",
        )}
      </p>
    );
  if (lower.includes("maximum number of retries"))
    return (
      <p class="advice">
        {t(
          "Several hosts tried, and each of them failed. An operator sees the reason of each try in the timeline. Delete this server and create it again once the cause is gone.",
        )}
      </p>
    );
  return null;
}

interface Stage {
  filter: string;
  out: number;
  of: number;
  hosts: string[];
}

/** The scheduler's words about each filter, as "RamFilter took out 2 of 3 hosts: host1 (…), host2 (…)." */
export function stages(text: string): Stage[] {
  return [...text.matchAll(/(\w+) took out (\d+) of (\d+) [^:.]*: ([\s\S]*?)\.(?=\s|$)/g)].map((match) => ({
    filter: match[1]!,
    out: Number(match[2]),
    of: Number(match[3]),
    hosts: match[4]!.split(/, (?=[\w.-]+ \()/),
  }));
}

/** Why there was no room: how many hosts each filter left, and what it had against the others. */
function Funnel({ text }: { text: string }): VNode | null {
  const found = stages(text);
  if (found.length === 0)
    return text ? (
      <details>
        <summary>{t("For developers")}</summary>
        <pre tabIndex={0}>{text}</pre>
      </details>
    ) : null;
  return (
    <ol class="funnel" aria-label={t("Hosts that each filter left")}>
      <li>
        <span>{t("Hosts at first")}</span>
        <Meter used={found[0]!.of} total={found[0]!.of} label={t("Hosts at first")} even />
        <b>{found[0]!.of}</b>
      </li>
      {found.map((stage) => (
        <li key={stage.filter}>
          <span>{stage.filter}</span>
          <Meter used={stage.of - stage.out} total={found[0]!.of} label={stage.filter} even />
          <b>{stage.of - stage.out}</b>
          <ul>
            {stage.hosts.map((host) => (
              <li key={host}>{host}</li>
            ))}
          </ul>
        </li>
      ))}
    </ol>
  );
}

const Copied = ({ label, text }: { label: string; text: string }): VNode => (
  <div>
    <small>{label}</small>
    <span>
      <code>{text}</code>
      <Copy text={text} what={text} />
    </span>
  </div>
);

/** How to reach a server: its addresses, the command that logs in, and its console. */
function Access({ server }: { server: Instance }): VNode | null {
  const found = Object.values(server.addresses).flat();
  const runs = server.status === "ACTIVE";
  if (!found.length && !runs) return null;
  return (
    <section class="access" aria-label={t("Access")}>
      {found.map(({ addr, "OS-EXT-IPS:type": type }) => (
        <Copied key={addr} label={type === "floating" ? t("Floating address") : t("Address")} text={addr} />
      ))}
      {server.key_name && runs && found.length > 0 && <LogIn server={server} />}
      {runs && (
        <a class="button" href={link("servers", server.id, "console")}>
          <Icon name="terminal" />
          {t("Console")}
        </a>
      )}
      {runs && may("os_compute_api:os-remote-consoles") && <Thumbnail server={server} />}
    </section>
  );
}

/** The command that logs in: at the floating address if there is one, as the administrator that the image names. */
function LogIn({ server }: { server: Instance }): VNode | null {
  const image = server.image ? server.image.id : "";
  const { data } = useData(
    async () => (image ? (await call("image", "GET", `/images/${image}`)).os_admin_user : undefined) ?? "",
    ["image", image],
  );
  if (data === null) return null;
  const found = Object.values(server.addresses).flat();
  const { addr } = found.find((item) => item["OS-EXT-IPS:type"] === "floating") ?? found[0]!;
  const user = /^[a-z_][\w.-]*$/i.test(data) ? data : "root";
  return <Copied label={t("Log in")} text={`ssh ${user}@${addr}`} />;
}

function ImageName({ id }: { id: string }): VNode {
  const { data } = useData(() => call("image", "GET", `/images/${id}`), ["image", id]);
  return <a href={link("images", id)}>{data?.name ?? id.slice(0, 8)}</a>;
}

// --- timeline

const EVENTS = (): Record<string, string> => ({
  conductor_schedule_and_build_instances: t("Choose a host and take its room"),
  compute__do_build_and_run_instance: t("Build the guest on its host"),
  compute_terminate_instance: t("Remove the guest and its disks"),
  compute_soft_delete_instance: t("Turn the guest off"),
  compute_stop_instance: t("Turn the guest off"),
  compute_start_instance: t("Turn the guest on"),
  compute_reboot_instance: t("Reboot the guest"),
  compute_rebuild_instance: t("Replace the disk"),
  compute_pause_instance: t("Pause the guest"),
  compute_unpause_instance: t("Let the guest go on"),
  compute_suspend_instance: t("Store the guest's memory"),
  compute_resume_instance: t("Load the guest's memory"),
  compute_snapshot_instance: t("Copy the disk into an image"),
  compute_resize_instance: t("Move the disk to the new host"),
  compute_finish_resize: t("Start the guest with its new flavor"),
  compute_confirm_resize: t("Release the old place"),
  compute_revert_resize: t("Release the new place"),
  compute_finish_revert_resize: t("Start the guest at its old place"),
  compute_shelve_offload_instance: t("Release the host"),
  compute_unshelve_instance: t("Build the guest from its image"),
  compute_attach_volume: t("Attach the volume"),
  compute_detach_volume: t("Detach the volume"),
  compute_attach_interface: t("Attach the interface"),
  compute_detach_interface: t("Detach the interface"),
  compute_live_migration: t("Move the running guest"),
  conductor_live_migrate_instance: t("Choose a host for the move"),
  conductor_migrate_server: t("Choose a host for the move"),
  conductor_unshelve_instance: t("Choose a host and take its room"),
});
const eventWords = (name: string): string => EVENTS()[name] ?? words(name.replace(/^(compute|conductor)_+/, ""));

function Timeline({ server }: { server: Instance }): VNode {
  const [shown, show] = useState(10);
  const base = `/servers/${server.id}/os-instance-actions` as const;
  const { data, error, reload } = useData<InstanceAction[]>(
    async (previous) => {
      const actions = (await list("compute", base, "instanceActions")).slice(0, shown);
      const known = new Map((previous ?? []).map((action) => [action.request_id, action]));
      return Promise.all(
        actions.map(async (action) => {
          const old = known.get(action.request_id);
          const isOver =
            old &&
            old.updated_at === action.updated_at &&
            Date.now() - new Date(`${action.updated_at}Z`).getTime() > 60000;
          return isOver ? old : (await call("compute", "GET", `${base}/${action.request_id}`)).instanceAction;
        }),
      );
    },
    ["actions", server.id, shown, taskOf(server), server.updated],
    taskOf(server) ? 1 : 10,
    of(server.id),
  );
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return (
    <>
      <ol class="timeline">
        {data.map((action, at) => (
          <Entry key={action.request_id} action={action} server={server} latest={at === 0} />
        ))}
      </ol>
      {data.length === shown && (
        <button type="button" onClick={() => show(shown + 20)}>
          {t("Show older ones")}
        </button>
      )}
      <Command text={command("openstack server event list --long", server.id)} />
    </>
  );
}

/** How an action ended, and why: the last failed step has the reason, or the fault of the server. */
export function outcome(
  action: InstanceAction,
  server: Instance,
  latest: boolean,
): { state: "failed" | "running" | "done"; reason: string } {
  const events = action.events ?? [];
  const failed = action.message === "Error" || (!!action.message && events.some((event) => event.result === "Error"));
  if (!failed)
    return {
      state: latest && (taskOf(server) || events.some((event) => !event.finish_time)) ? "running" : "done",
      reason: "",
    };
  const details = events.filter((event) => event.result === "Error" && event.details).map((event) => event.details);
  return {
    state: "failed",
    reason: details[details.length - 1] ?? (latest && server.fault ? server.fault.message : (action.message ?? "")),
  };
}

const CLASSES = { failed: "bad", running: "busy", done: "good" };

function Entry({ action, server, latest }: { action: InstanceAction; server: Instance; latest: boolean }): VNode {
  const events = action.events ?? [];
  const { state, reason } = outcome(action, server, latest);
  const above = reason === server.fault?.message ? "" : reason; // the page has the server's fault above all actions
  return (
    <li class={CLASSES[state]}>
      <div class="what">
        <b>{words(action.action.replaceAll("-", "_"))}</b>
        <Status value={state} />
        <Time at={action.start_time} />
        <small>
          {state !== "running" && action.updated_at
            ? `${t("took")} ${duration(action.start_time, action.updated_at)}`
            : ""}
        </small>
      </div>
      {above && <p class="reason">{above}</p>}
      {events.length > 0 && (
        <ul>
          {events.map((event) => (
            <li
              key={`${event.event} ${event.host} ${event.start_time}`}
              class={event.result === "Error" ? "bad" : event.finish_time ? "good" : "busy"}
            >
              <span>
                {eventWords(event.event)}
                {event.host ? (
                  <>
                    {" "}
                    ·{" "}
                    {event.event.startsWith("compute") ? (
                      <a href={link("hosts", event.host)}>{event.host}</a>
                    ) : (
                      event.host
                    )}
                  </>
                ) : null}
              </span>
              <small>
                {event.finish_time
                  ? `${event.result === "Error" ? `${t("failed after")} ` : ""}${duration(event.start_time, event.finish_time)}`
                  : t("running")}
              </small>
              {event.result === "Error" && event.details && event.details !== above && (
                <p class="reason">{event.details}</p>
              )}
              {event.traceback && (
                <details>
                  <summary>{t("For developers")}</summary>
                  <pre tabIndex={0}>{event.traceback}</pre>
                </details>
              )}
            </li>
          ))}
        </ul>
      )}
      <small class="request">{action.request_id}</small>
    </li>
  );
}

// --- network

function Interfaces({ server }: { server: Instance }): VNode {
  const { data, error, reload } = useData<{
    interfaces: Interface[];
    networks: Map<string, string>;
    groups: SecurityGroupOfServer[];
    floating: FloatingIp[];
  }>(
    async () => {
      const [interfaces, networks, groups, floating] = await Promise.all([
        list("compute", `/servers/${server.id}/os-interface`, "interfaceAttachments"),
        has("network") ? list("network", "/networks", "networks") : [],
        list("compute", `/servers/${server.id}/os-security-groups`, "security_groups"),
        has("network") ? list("network", "/floatingips", "floatingips") : [],
      ]);
      return { interfaces, networks: new Map(networks.map((network) => [network.id, network.name])), groups, floating };
    },
    ["interfaces", server.id, server.updated],
    10,
    of(server.id),
  );
  const attach: Action<Instance> = {
    name: "attach",
    label: t("Attach an interface"),
    rule: "os_compute_api:os-attach-interfaces:create",
    fields: [{ name: "network", label: t("Network"), kind: "select", required: true, choices: names.networks }],
    run: (_, values) =>
      call("compute", "POST", `/servers/${server.id}/os-interface`, {
        interfaceAttachment: { net_id: values.network },
      }),
    command: (_, values) => command("openstack server add network", server.id, values.network || "NETWORK"),
  };
  const group: Action<Instance> = {
    name: "group",
    label: t("Add a security group"),
    rule: "os_compute_api:os-security-groups:add",
    fields: [{ name: "group", label: t("Security group"), kind: "select", required: true, choices: names.groups }],
    run: (_, values) =>
      call("compute", "POST", `/servers/${server.id}/action`, { addSecurityGroup: { name: values.group } }),
    command: (_, values) => command("openstack server add security group", server.id, values.group || "GROUP"),
  };
  const floatingIp: Action<Instance> = {
    name: "floating",
    label: t("Associate a floating address"),
    rule: "create_floatingip",
    when: () => (data?.interfaces.length ?? 0) > 0,
    fields: [
      {
        name: "address",
        label: t("Floating address"),
        kind: "select",
        required: true,
        choices: async () => freeAddresses(data?.floating ?? []),
      },
    ],
    run: async (_, values) => {
      const port = data!.interfaces[0]!.port_id;
      if (values.address.startsWith("new:"))
        return call("network", "POST", "/floatingips", {
          floatingip: { floating_network_id: values.address.slice(4), port_id: port },
        });
      return call("network", "PUT", `/floatingips/${values.address}`, { floatingip: { port_id: port } });
    },
    command: (_, values) =>
      values.address.startsWith("new:")
        ? command("openstack floating ip create --port", data!.interfaces[0]!.port_id, values.address.slice(4))
        : command("openstack server add floating ip", server.id, values.address || "ADDRESS"),
  };
  const detach: Action<Interface> = {
    name: "detach",
    label: t("Detach"),
    rule: "os_compute_api:os-attach-interfaces:delete",
    danger: true,
    confirm: t("The guest loses this interface and its address."),
    run: (row) => call("compute", "DELETE", `/servers/${server.id}/os-interface/${row.port_id}`),
    command: (row) => command("openstack server remove port", server.id, row.port_id),
  };
  const leave: Action<SecurityGroupOfServer> = {
    name: "leave",
    label: t("Remove"),
    rule: "os_compute_api:os-security-groups:remove",
    run: (row) => call("compute", "POST", `/servers/${server.id}/action`, { removeSecurityGroup: { name: row.name } }),
    command: (row) => command("openstack server remove security group", server.id, row.name),
  };
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return (
    <>
      <ActionButtons actions={[attach, floatingIp, group]} row={server} nameOf={(row) => row.name} done={reload} />
      <Table
        label={t("Interfaces")}
        rows={data.interfaces}
        idOf={(row) => row.port_id}
        nameOf={(row) => row.fixed_ips?.[0]?.ip_address ?? row.port_id}
        actions={[detach]}
        done={reload}
        empty={<p>{t("This server has no interfaces.")}</p>}
        columns={[
          {
            name: "network",
            title: t("Network"),
            narrow: true,
            text: (row) => data.networks.get(row.net_id) ?? row.net_id,
            cell: (row) => <a href={link("networks", row.net_id)}>{data.networks.get(row.net_id) ?? row.net_id}</a>,
          },
          {
            name: "address",
            title: t("Address"),
            narrow: true,
            text: (row) => row.fixed_ips.map((ip) => ip.ip_address).join(", "),
          },
          {
            name: "floating",
            title: t("Floating address"),
            text: (row) =>
              data.floating
                .filter((ip) => ip.port_id === row.port_id)
                .map((ip) => ip.floating_ip_address)
                .join(", "),
          },
          { name: "mac", title: "MAC", text: (row) => row.mac_addr },
          {
            name: "state",
            title: t("State"),
            text: (row) => row.port_state,
            cell: (row) => <Status value={row.port_state} />,
          },
        ]}
      />
      <h2>{t("Security groups")}</h2>
      <Table
        scope="group-"
        label={t("Security groups")}
        rows={data.groups}
        idOf={(row) => row.id}
        nameOf={(row) => row.name}
        actions={[leave]}
        done={reload}
        empty={<p>{t("This server is in no security group.")}</p>}
        columns={[
          {
            name: "name",
            title: t("Name"),
            narrow: true,
            text: (row) => row.name,
            cell: (row) => <Name to={["security-groups", row.id]}>{row.name}</Name>,
          },
          { name: "rules", title: t("Rules"), number: true, text: (row) => row.rules.length },
        ]}
      />
    </>
  );
}

// --- disks

type Attached = Attachment & { volume: Volume | null };

function Disks({ server }: { server: Instance }): VNode {
  const { data, error, reload } = useData<Attached[]>(
    async () => {
      const attached = await list("compute", `/servers/${server.id}/os-volume_attachments`, "volumeAttachments");
      return Promise.all(
        attached.map(async (item) => ({
          ...item,
          volume: await call("volume", "GET", `/volumes/${item.volumeId}`)
            .then((found) => found.volume)
            .catch(() => null),
        })),
      );
    },
    ["disks", server.id, server.updated, taskOf(server)],
    10,
    of(server.id),
  );
  const attach: Action<Instance> = {
    name: "attach",
    label: t("Attach a volume"),
    rule: "os_compute_api:os-volumes-attachments:create",
    fields: [{ name: "volume", label: t("Volume"), kind: "select", required: true, choices: names.volumes }],
    run: (_, values) =>
      call("compute", "POST", `/servers/${server.id}/os-volume_attachments`, {
        volumeAttachment: { volumeId: values.volume },
      }),
    command: (_, values) => command("openstack server add volume", server.id, values.volume || "VOLUME"),
  };
  const detach: Action<Attached> = {
    name: "detach",
    label: t("Detach"),
    rule: "os_compute_api:os-volumes-attachments:delete",
    confirm: t("Unmount the volume in the guest first."),
    run: (row) => call("compute", "DELETE", `/servers/${server.id}/os-volume_attachments/${row.volumeId}`),
    command: (row) => command("openstack server remove volume", server.id, row.volumeId),
  };
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return (
    <>
      <Facts
        items={[
          [t("Own disk"), server.image ? `${server.flavor.disk} GB` : t("none: it boots from a volume")],
          [t("Ephemeral"), server.flavor.ephemeral ? `${server.flavor.ephemeral} GB` : ""],
          [t("Swap"), server.flavor.swap ? `${server.flavor.swap} MB` : ""],
        ]}
      />
      <ActionButtons actions={[attach]} row={server} nameOf={(row) => row.name} done={reload} />
      <Table
        label={t("Volumes")}
        rows={data}
        idOf={(row) => row.volumeId}
        nameOf={(row) => row.volume?.name || row.volumeId}
        actions={[detach]}
        done={reload}
        empty={<p>{t("No volumes are attached.")}</p>}
        columns={[
          {
            name: "name",
            title: t("Volume"),
            narrow: true,
            text: (row) => row.volume?.name || row.volumeId,
            cell: (row) => <Name to={["volumes", row.volumeId]}>{row.volume?.name || row.volumeId}</Name>,
          },
          {
            name: "size",
            title: t("Size"),
            narrow: true,
            number: true,
            text: (row) => row.volume?.size ?? 0,
            cell: (row) => (row.volume ? `${row.volume.size} GB` : ""),
          },
          { name: "device", title: t("Device"), text: (row) => row.device ?? "" },
          {
            name: "gone",
            title: t("Deleted with the server"),
            text: (row) => (row.delete_on_termination ? t("yes") : t("no")),
          },
        ]}
      />
    </>
  );
}

// --- snapshots

/** Images that were made of this server, by its users and by backup policies. */
function Snapshots({ server }: { server: Instance }): VNode {
  const { data, error, reload } = useData(
    () => all("image", `/images?instance_uuid=${server.id}`, "images"),
    ["snapshots", server.id, taskOf(server)],
    10,
    of(server.id),
  );
  const make = serverActions().filter((action) => action.name === "snapshot");
  const rebuild: Action<Image> = {
    name: "rebuild",
    label: t("Go back to it"),
    rule: "os_compute_api:servers:rebuild",
    danger: true,
    when: (row) => row.status === "active" && accepts("rebuild", server),
    confirm: t("The disk is replaced by a new one from the image. What is on it is lost."),
    run: (row) => call("compute", "POST", `/servers/${server.id}/action`, { rebuild: { imageRef: row.id } }),
    command: (row) => command("openstack server rebuild --image", row.id, server.id),
  };
  const remove: Action<Image> = {
    name: "delete",
    label: t("Delete"),
    rule: "image:delete_image",
    danger: true,
    run: (row) => call("image", "DELETE", `/images/${row.id}`),
    command: (row) => command("openstack image delete", row.id),
  };
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return (
    <>
      <ActionButtons actions={make} row={server} nameOf={(row) => row.name} done={reload} />
      <Table
        label={t("Snapshots")}
        rows={data}
        idOf={(row) => row.id}
        nameOf={(row) => row.name || row.id}
        actions={[createOf((row) => row.id, isBootable), rebuild, remove]}
        done={reload}
        empty={<p>{t("This server has no snapshots. One is an image of its disk.")}</p>}
        columns={[
          {
            name: "name",
            title: t("Name"),
            narrow: true,
            text: (row) => row.name || row.id,
            cell: (row) => <Name to={["images", row.id]}>{row.name || row.id}</Name>,
          },
          {
            name: "status",
            title: t("Status"),
            narrow: true,
            text: (row) => row.status,
            cell: (row) => <Status value={row.status} />,
          },
          {
            name: "size",
            title: t("Size"),
            number: true,
            text: (row) => row.size ?? 0,
            cell: (row) => (row.size ? size(row.size / 1048576) : ""),
          },
          {
            name: "created",
            title: t("Created"),
            text: (row) => row.created_at,
            cell: (row) => <Time at={row.created_at} />,
          },
        ]}
      />
      <Command text={command("openstack image list --property", `instance_uuid=${server.id}`)} />
      {may("os_compute_api:os-server-backups:index") && <Backups server={server} />}
    </>
  );
}

/** Backups of this server, with what can be restored of them. */
function Backups({ server }: { server: Instance }): VNode {
  const kind = backups();
  const { data, error, reload } = useData(
    () => list("compute", `/os-server-backups?server_id=${server.id}`, "server_backups"),
    ["backups", server.id],
    10,
  );
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return (
    <>
      <h2>{kind.title}</h2>
      <Table
        scope="backup-"
        label={kind.title}
        rows={data}
        columns={kind.columns}
        idOf={(row) => row.id}
        nameOf={kind.nameOf!}
        actions={kind.actions}
        done={reload}
        empty={<p>{kind.empty}</p>}
      />
    </>
  );
}

// --- consoles

function Consoles({ server }: { server: Instance }): VNode {
  const [lines, setLines] = useState(100);
  const { data, error, reload } = useData<string>(
    async () =>
      (await call("compute", "POST", `/servers/${server.id}/action`, { "os-getConsoleOutput": { length: lines } }))
        .output,
    ["log", server.id, lines, server.updated],
    5,
  );
  const [failure, setFailure] = useState<Error | null>(null);
  const [serial, setSerial] = useState("");
  const [opened, setOpened] = useState<{ kind: Kind; url: string } | null>(null);
  const open = async (kind: Kind) => {
    setFailure(null);
    setSerial("");
    setOpened(null);
    try {
      const url = await consoleUrl(server.id, kind);
      if (isReached(url)) setOpened({ kind, url });
      else if (kind === "serial") setSerial(url);
      else window.open(url, "_blank", "noopener,noreferrer");
    } catch (error) {
      setFailure(error as Error);
    }
  };
  const download = () => save({ name: `${server.id}.log`, text: data ?? "" });
  const active = server.status === "ACTIVE" || server.status === "RESCUE";
  return (
    <>
      <div class="buttons">
        {may("os_compute_api:os-remote-consoles") && active && (
          <>
            <button type="button" class="primary" onClick={() => void open("screen")}>
              {t("Open the screen")}
            </button>
            <button type="button" onClick={() => void open("serial")}>
              {t("Open the serial port")}
            </button>
          </>
        )}
        {!active && <p>{t("A console needs a guest that runs.")}</p>}
      </div>
      <Failure error={failure} />
      {opened && (
        <ConsoleView
          key={opened.url}
          server={server}
          kind={opened.kind}
          url={opened.url}
          close={() => setOpened(null)}
        />
      )}
      {serial && (
        <div class="command">
          <span>{t("For a terminal that speaks WebSocket; it is valid for minutes")}</span>
          <code tabIndex={0}>{serial}</code>
        </div>
      )}
      <div class="tools">
        <h2>{t("Console log")}</h2>
        <select
          aria-label={t("Lines")}
          value={String(lines)}
          onChange={(event) => setLines(Number(event.currentTarget.value))}
        >
          {[100, 1000, 10000].map((count) => (
            <option key={count} value={count}>
              {counted(count, "{n} line", "{n} lines")}
            </option>
          ))}
        </select>
        <button type="button" onClick={reload}>
          {t("Reload")}
        </button>
        {data && (
          <button type="button" onClick={download}>
            {t("Download")}
          </button>
        )}
      </div>
      <Failure error={error} />
      {data !== null &&
        (data ? (
          <pre class="log" tabIndex={0} role="region" aria-label={t("Console log")}>
            {data}
          </pre>
        ) : (
          <Empty>
            <p>{t("The guest has written nothing yet.")}</p>
          </Empty>
        ))}
      <Command text={command("openstack console url show", server.id)} />
      <Command text={command("openstack console log show", server.id)} />
    </>
  );
}

// --- metadata

function Metadata({ server, reload }: { server: Instance; reload: () => void }): VNode {
  const rows = Object.entries(server.metadata as Record<string, string>).map(([key, value]) => ({ key, value }));
  const set: Action<Instance> = {
    name: "set",
    label: t("Set a value"),
    rule: "os_compute_api:server-metadata:create",
    fields: [
      { name: "key", label: t("Key"), required: true },
      { name: "value", label: t("Value") },
    ],
    run: (_, values) =>
      call("compute", "POST", `/servers/${server.id}/metadata`, { metadata: { [values.key]: values.value } }),
    command: (_, values) =>
      command("openstack server set --property", `${values.key || "KEY"}=${values.value}`, server.id),
  };
  const change: Action<{ key: string; value: string }> = {
    name: "change",
    label: t("Change"),
    rule: "os_compute_api:server-metadata:update",
    fieldsOf: (row) => [{ name: "value", label: t("Value"), initial: row.value }],
    run: (row, values) =>
      call("compute", "POST", `/servers/${server.id}/metadata`, { metadata: { [row.key]: values.value } }),
    command: (row, values) => command("openstack server set --property", `${row.key}=${values.value}`, server.id),
  };
  const remove: Action<{ key: string; value: string }> = {
    name: "remove",
    label: t("Remove"),
    rule: "os_compute_api:server-metadata:delete",
    danger: true,
    run: (row) => call("compute", "DELETE", `/servers/${server.id}/metadata/${encodeURIComponent(row.key)}`),
    command: (row) => command("openstack server unset --property", row.key, server.id),
  };
  return (
    <>
      <ActionButtons actions={[set]} row={server} nameOf={() => server.name} done={reload} />
      <Table
        label={t("Metadata")}
        rows={rows}
        idOf={(row) => row.key}
        nameOf={(row) => row.key}
        actions={[change, remove]}
        done={reload}
        empty={<p>{t("This server has no metadata. Programs in the guest read it from the metadata service.")}</p>}
        columns={[
          { name: "key", title: t("Key"), narrow: true, text: (row) => row.key },
          { name: "value", title: t("Value"), narrow: true, text: (row) => row.value },
        ]}
      />
    </>
  );
}

// --- metrics

function Use({ server }: { server: Instance }): VNode {
  const { data } = useData<InstanceAction[]>(
    () => list("compute", `/servers/${server.id}/os-instance-actions`, "instanceActions"),
    ["actions", server.id, server.updated],
    0,
    of(server.id),
  );
  const marks = (data ?? []).map((action) => ({
    at: action.start_time,
    label: words(action.action.replaceAll("-", "_")),
    failed: action.message === "Error",
  }));
  return (
    <Graphs
      name={server.id}
      marks={marks}
      load={async (span) =>
        (await call("compute", "GET", `/servers/${server.id}/os-usage-history?span=${span}`)).usage_history
      }
    />
  );
}

function Diagnostics({ server }: { server: Instance }): VNode {
  const { data, error, reload } = useData<{ now: Measures; before: Measures | null; seconds: number; at: number }>(
    async (previous) => {
      const now = await call("compute", "GET", `/servers/${server.id}/diagnostics`);
      const at = performance.now();
      return { now, before: previous?.now ?? null, seconds: previous ? (at - previous.at) / 1000 : 0, at };
    },
    ["diagnostics", server.id, server.updated],
    3,
  );
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  const { now, before, seconds } = data;
  /** The sum of a counter of all devices, for each second between the two samples. */
  const change = (counters: (sample: Measures) => (number | null)[]): number | null => {
    const sum = (sample: Measures) => counters(sample).reduce<number>((total, counter) => total + (counter ?? 0), 0);
    return before && seconds ? (sum(now) - sum(before)) / seconds : null;
  };
  const rate = (counters: (sample: Measures) => (number | null)[]): string => {
    const bytes = change(counters);
    if (bytes === null) return "…";
    return rateWords(bytes);
  };
  const nanoseconds = change((sample) => sample.cpu_details.map((cpu) => cpu.time));
  return (
    <Facts
      items={[
        [t("State"), words(now.state ?? "")],
        [
          t("Uptime"),
          now.uptime != null ? `${Math.floor(now.uptime / 3600)} h ${Math.floor((now.uptime % 3600) / 60)} min` : "",
        ],
        ["CPU", nanoseconds === null ? "…" : `${Math.round(nanoseconds / 1e7)} %`],
        [
          t("Memory"),
          now.memory_details?.maximum != null
            ? `${now.memory_details.used ?? "?"} / ${size(now.memory_details.maximum)}`
            : "",
        ],
        [t("Received"), rate((sample) => sample.nic_details.map((nic) => nic.rx_octets))],
        [t("Sent"), rate((sample) => sample.nic_details.map((nic) => nic.tx_octets))],
        [t("Disk reads"), rate((sample) => sample.disk_details.map((disk) => disk.read_bytes))],
        [t("Disk writes"), rate((sample) => sample.disk_details.map((disk) => disk.write_bytes))],
        [t("Driver"), now.driver],
        [t("CPUs"), now.num_cpus],
        [t("Disks"), now.num_disks],
        [t("Interfaces"), now.num_nics],
      ]}
    />
  );
}
