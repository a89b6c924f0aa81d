// "Can A reach B?": what the form asks the network API, and the forms of load balancers and forwardings.
import { expect, test, vi } from "vitest";
import { balancers } from "../src/balancers";
import { forward } from "../src/forwardings";
import type { FloatingIp } from "../src/network.types";
import { queryOf, questionOf, traceCommand } from "../src/reach";
import type { Values } from "../src/ui";

const asked = (values: Partial<Values>) => questionOf(values as Values);

test.each([
  [{ from: "p", to: "q 10.0.0.5", protocol: "icmp", port: "22" }, "destination=q&protocol=icmp"],
  [{ from: "p", to: "q 10.0.0.5", protocol: "tcp", port: "443" }, "destination=q&protocol=tcp&port=443"],
  [{ from: "p", to: "q fd00::5", protocol: "udp", port: "53" }, "destination=q&protocol=udp&port=53&ip_version=6"],
  [{ from: "p", to: "other", address: " 192.0.2.1 ", protocol: "icmp" }, "destination=192.0.2.1&protocol=icmp"],
])("question of %o is a query", (values, query) => {
  expect(queryOf(asked(values))).toBe(query);
});

test("address that a user writes does not leave its parameter or its command", () => {
  const question = asked({ from: "p", to: "other", address: '1.2.3.4&port=1"; rm $HOME', protocol: "icmp" });
  expect(queryOf(question)).toBe("destination=1.2.3.4%26port%3D1%22%3B+rm+%24HOME&protocol=icmp");
  expect(traceCommand(question, true)).toBe(
    "nova-lite-manage network trace p '1.2.3.4&port=1\"; rm $HOME' --protocol icmp",
  );
  expect(traceCommand(question, false)).toContain("/ports/p/trace?destination=1.2.3.4%26port%3D1%22%3B+rm+%24HOME");
});

async function sent(run: () => Promise<unknown> | undefined): Promise<[string, unknown]> {
  let found: [string, unknown] = ["", null];
  vi.stubGlobal("fetch", async (url: string, { body }: { body: string }) => {
    found = [url, JSON.parse(body)];
    return new Response("{}");
  });
  await run();
  vi.unstubAllGlobals();
  return found;
}

test("load balancer is made in one request with its listener, pool, members and health monitor", async () => {
  const values = { name: "web", subnet: "s", protocol: "HTTP", port: "80", internal: "8080", algorithm: "ROUND_ROBIN" };
  const given = { ...values, monitor: "HTTP", path: "/health", servers: ["10.0.0.5", "10.0.0.6"] };
  const [create] = balancers().create!;
  const [url, body] = await sent(() => create!.run!({}, given as unknown as Values, () => undefined));
  expect(url).toBe("api/load_balancer/v2/lbaas/loadbalancers");
  expect(body).toEqual({
    loadbalancer: {
      name: "web",
      vip_subnet_id: "s",
      listeners: [
        {
          name: "web",
          protocol: "HTTP",
          protocol_port: 80,
          default_pool: {
            name: "web",
            protocol: "HTTP",
            lb_algorithm: "ROUND_ROBIN",
            members: [
              { address: "10.0.0.5", protocol_port: 8080 },
              { address: "10.0.0.6", protocol_port: 8080 },
            ],
            healthmonitor: { type: "HTTP", delay: 5, timeout: 3, max_retries: 3, url_path: "/health" },
          },
        },
      ],
    },
  });
});

test("port of a floating address is forwarded to the chosen address of a port", async () => {
  const values = { server: "p 10.0.0.5", protocol: "tcp", external: "2222", internal: "22", description: "" };
  const row = { id: "F" } as FloatingIp;
  const [url, body] = await sent(() => forward().run!(row, values as Values, () => undefined));
  expect(url).toBe("api/network/v2.0/floatingips/F/port_forwardings");
  expect(body).toMatchObject({
    port_forwarding: { internal_port_id: "p", internal_ip_address: "10.0.0.5", internal_port: 22, external_port: 2222 },
  });
});
