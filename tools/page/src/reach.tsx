// "Can A reach B?": the way of a packet between two servers, hop by hop, and what stops it.
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { call, list } from "./api";
import { called, naming } from "./called";
import { ofServers } from "./choices";
import { withNames } from "./hints";
import { t } from "./messages";
import type { Port, SecurityGroup, Trace } from "./network.types";
import { link, may, shared, useData } from "./state";
import { Command, command, Failure, type Field, Fields, initials, type Values, words } from "./ui";

/** Stands for an address that the user writes. */
const OTHER = "other";

interface Ends {
  ports: Port[];
  groups: SecurityGroup[];
}

async function loadEnds(): Promise<Ends> {
  const [ports, groups] = await Promise.all([
    naming(ofServers(list("network", "/ports", "ports")), "networks"),
    list("network", "/security-groups", "security_groups"),
  ]);
  return { ports, groups };
}

const nameOf = (port: Port): string => called(port.device_id);

function fieldsOf(ports: Port[]): Field[] {
  const own = ports.map((port) => ({
    value: port.id,
    label: `${nameOf(port)} (${port.fixed_ips.map((ip) => ip.ip_address).join(", ")})`,
  }));
  const all = ports.flatMap((port) =>
    port.fixed_ips.map((ip) => ({
      value: `${port.id} ${ip.ip_address}`,
      label: `${nameOf(port)} ${ip.ip_address}`,
    })),
  );
  return [
    { name: "from", label: t("From"), kind: "select", required: true, choices: [...EMPTY(), ...own] },
    {
      name: "to",
      label: t("To"),
      kind: "select",
      required: true,
      choices: [...EMPTY(), ...all, { value: OTHER, label: t("another address") }],
    },
    {
      name: "address",
      label: t("Address"),
      required: true,
      when: (values) => values.to === OTHER,
      help: t("An address outside of the cloud, a floating one, or any other."),
    },
    {
      name: "protocol",
      label: t("Protocol"),
      kind: "select",
      required: true,
      choices: [
        { value: "icmp", label: t("Ping (ICMP)") },
        { value: "tcp", label: "TCP" },
        { value: "udp", label: "UDP" },
      ],
    },
    {
      name: "port",
      label: t("Port"),
      kind: "number",
      required: true,
      min: 1,
      max: 65535,
      initial: "22",
      when: (values) => values.protocol === "tcp" || values.protocol === "udp",
    },
  ];
}
const EMPTY = () => [{ value: "", label: t("Choose…") }];

/** A question of a form. `destination`: a port, or an address. */
export interface Question {
  source: string;
  destination: string;
  protocol: string;
  port: string;
  isIpv6: boolean;
}

export function questionOf(values: Values): Question {
  const [port = "", address = ""] = values.to === OTHER ? [] : values.to.split(" ");
  return {
    source: values.from,
    destination: values.to === OTHER ? values.address.trim() : port,
    protocol: values.protocol || "icmp",
    port: values.protocol === "tcp" || values.protocol === "udp" ? values.port : "",
    isIpv6: address.includes(":"),
  };
}

export function queryOf({ destination, protocol, port, isIpv6 }: Question): string {
  const query = new URLSearchParams({ destination, protocol });
  if (port) query.set("port", port);
  if (isIpv6) query.set("ip_version", "6");
  return query.toString();
}

/** The command of an operator, or of a project, whose client has none. */
export function traceCommand(question: Question, isOperator: boolean): string {
  const { source, destination, protocol, port, isIpv6 } = question;
  if (!isOperator)
    return `curl -s -H "X-Auth-Token: $TOKEN" "$NETWORK_URL/v2.0/ports/${source || "PORT"}/trace?${queryOf(question)}"`;
  return command(
    "nova-lite-manage network trace",
    source || "FROM",
    destination || "TO",
    ["--protocol", protocol],
    port && ["--port", port],
    isIpv6 && "--ipv6",
  );
}

export function Reach(): VNode | null {
  const [open, setOpen] = useState(false);
  if (!may("get_port_trace")) return null;
  return (
    <details class="reach" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("Can A reach B?")}</summary>
      {open && <Asking />}
    </details>
  );
}

function Asking(): VNode | null {
  const { data, error, reload } = useData(loadEnds, ["ends"]);
  if (!data) return <Failure error={error} retry={reload} />;
  if (!data.ports.length) return <p>{t("No server has an address yet.")}</p>;
  return <Form ends={data} />;
}

function Form({ ends }: { ends: Ends }): VNode {
  const [fields] = useState(() => fieldsOf(ends.ports));
  const [values, setValues] = useState<Values>(() => ({ ...initials(fields), protocol: "icmp" }));
  const [found, setFound] = useState<{ trace: Trace; of: string } | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const question = questionOf(values);
  const asked = `${question.source}?${queryOf(question)}`;
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    setFound(null);
    try {
      const { trace } = await call("network", "GET", `/ports/${question.source}/trace?${queryOf(question)}`);
      setFound({ trace, of: asked });
    } catch (problem) {
      setError(problem as Error);
    }
    setBusy(false);
  };
  return (
    <form onSubmit={submit}>
      <div class="row">
        <Fields fields={fields} values={values} change={setValues} />
        <button type="submit" class="primary" disabled={busy}>
          {t("Follow the packet")}
        </button>
      </div>
      <Failure error={error} />
      {found?.of === asked && <Way trace={found.trace} ends={ends} />}
      <Command text={traceCommand(question, shared.session!.roles.includes("admin"))} />
    </form>
  );
}

/** A text with the names of servers in place of their ports. */
function withPorts(text: string, ports: Port[]): string {
  let said = text;
  for (const port of ports) said = said.replaceAll(port.id, `${t("of")} ${nameOf(port)}`);
  return withNames(said);
}

function Way({ trace, ends }: { trace: Trace; ends: Ends }): VNode {
  const verdict = trace.arrives
    ? t("It arrives.")
    : trace.arrives === null
      ? t("The rules of another project decide.")
      : t("It does not arrive.");
  return (
    <>
      <p role="status">
        <strong>{verdict}</strong> <small>{trace.packet}</small>
      </p>
      <ol class="way">
        {trace.parts.map((part) => (
          <li
            key={`${part.kind} ${part.id} ${part.text}`}
            class={part.passes === false ? "bad" : part.passes ? "good" : ""}
          >
            <b>{part.kind === "nat" ? "NAT" : words(part.kind)}</b>
            <span>
              {withPorts(part.text, ends.ports)}
              {part.passes === false && <Remedy kind={part.kind} port={part.id} ends={ends} />}
            </span>
          </li>
        ))}
      </ol>
    </>
  );
}

/** Links to what a user changes, so that the packet passes. */
function Remedy({ kind, port, ends }: { kind: string; port: string | null; ends: Ends }): VNode | null {
  if (kind === "router") return <a href={link("routers")}>{t("Routers")}</a>;
  const stops = kind === "rule" ? ends.ports.find((item) => item.id === port) : undefined;
  const groups = ends.groups.filter((group) => stops?.security_groups.includes(group.id));
  return (
    <>
      {groups.map((group) => (
        <a key={group.id} href={link("security-groups", group.id)}>
          {t("Security group")} {group.name}
        </a>
      ))}
    </>
  );
}
