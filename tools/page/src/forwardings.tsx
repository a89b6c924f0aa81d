// Port forwardings of a floating address: one address leads to several servers.
import type { VNode } from "preact";
import { call, list } from "./api";
import { called } from "./called";
import { ofServers, serverAddresses } from "./choices";
import { t } from "./messages";
import type { FloatingIp, PortForwarding } from "./network.types";
import { useData } from "./state";
import { Table } from "./table";
import { type Action, command, Failure, type Values, Waiting } from "./ui";

/** A forwarding with the name of its server. */
type Shown = PortForwarding & { server: string };

/** The port and the fixed address that a choice names. */
const endOf = (values: Values): [string, string] => {
  const [port = "", address = ""] = values.server.split(" ");
  return [port, address];
};

/** An action that lets a port of a floating address lead to a server. An address of a server has no other ports. */
export const forward = (): Action<FloatingIp> => ({
  name: "forward",
  label: t("Forward a port"),
  rule: "create_floatingip_port_forwarding",
  single: true,
  when: (row) => !row.port_id,
  fields: [
    {
      name: "server",
      label: t("Address of a server"),
      kind: "select",
      required: true,
      choices: async () =>
        (await serverAddresses("IPv4")).map((item) => ({ value: `${item.port} ${item.address}`, label: item.label })),
    },
    {
      name: "protocol",
      label: t("Protocol"),
      kind: "select",
      required: true,
      choices: [
        { value: "tcp", label: "TCP" },
        { value: "udp", label: "UDP" },
      ],
    },
    { name: "external", label: t("Port outside"), kind: "number", min: 1, max: 65535, required: true },
    { name: "internal", label: t("Port of the server"), kind: "number", min: 1, max: 65535, required: true },
    { name: "description", label: t("Description") },
  ],
  run: (row, values) => {
    const [port, address] = endOf(values);
    return call("network", "POST", `/floatingips/${row.id}/port_forwardings`, {
      port_forwarding: {
        internal_port_id: port,
        internal_ip_address: address,
        internal_port: Number(values.internal),
        external_port: Number(values.external),
        protocol: values.protocol,
        description: values.description,
      },
    });
  },
  command: (row, values) => {
    const [port, address] = endOf(values);
    return command(
      "openstack floating ip port forwarding create",
      ["--internal-ip-address", address || "ADDRESS", "--port", port || "PORT"],
      ["--internal-protocol-port", values.internal || "PORT", "--external-protocol-port", values.external || "PORT"],
      ["--protocol", values.protocol || "tcp"],
      values.description && ["--description", values.description],
      row.id,
    );
  },
});

export function Forwardings({ row }: { row: FloatingIp }): VNode {
  const { data, error, reload } = useData(
    async () => {
      const [forwardings, ports] = await Promise.all([
        list("network", `/floatingips/${row.id}/port_forwardings`, "port_forwardings"),
        ofServers(list("network", "/ports", "ports")),
      ]);
      const devices = new Map(ports.map((port) => [port.id, port.device_id]));
      return forwardings.map((item) => ({ ...item, server: called(devices.get(item.internal_port_id) ?? "") }));
    },
    ["forwardings", row.id, row.port_forwardings.length],
    10,
    ["network"],
  );
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  const remove: Action<Shown> = {
    name: "remove",
    label: t("Remove"),
    rule: "delete_floatingip_port_forwarding",
    danger: true,
    confirm: t("Open connections through it end."),
    run: (item) => call("network", "DELETE", `/floatingips/${row.id}/port_forwardings/${item.id}`),
    command: (item) => command("openstack floating ip port forwarding delete", row.id, item.id),
  };
  return (
    <>
      <h2>{t("Port forwardings")}</h2>
      <Table
        scope="forwarding-"
        label={t("Port forwardings")}
        rows={data}
        idOf={(item) => item.id}
        nameOf={(item) => `${item.protocol} ${item.external_port_range}`}
        actions={[remove]}
        bulk={[remove]}
        done={reload}
        empty={<p>{t("No port of this address leads to a server.")}</p>}
        columns={[
          {
            name: "outside",
            title: t("Port outside"),
            narrow: true,
            text: (item) => `${item.protocol.toUpperCase()} ${portsOf(item.external_port_range)}`,
          },
          {
            name: "inside",
            title: t("Leads to"),
            narrow: true,
            text: (item) => `${item.server} ${item.internal_ip_address}, ${portsOf(item.internal_port_range)}`,
          },
          { name: "description", title: t("Description"), text: (item) => item.description },
        ]}
      />
    </>
  );
}

/** A range of ports, or its only one. */
function portsOf(range: string): string {
  const [low = "", high] = range.split(":");
  return high && high !== low ? `${low}–${high}` : low;
}
