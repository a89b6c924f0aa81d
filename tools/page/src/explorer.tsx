// The API explorer: each operation of this cloud's APIs, by the APIs' own descriptions, to be tried at once.
import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { ApiError, callAt, type Reply, type Service, send } from "./api";
import { t } from "./messages";
import { has, link, may, useData } from "./state";
import { Table } from "./table";
import { Command, command, Facts, Failure, Head, Name, Status, Waiting } from "./ui";

/** The part of a JSON Schema that an example is made of. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  enum?: unknown[];
  oneOf?: Schema[];
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  minItems?: number;
  minimum?: number;
}

/** The part of the document that the explorer reads. */
interface Described {
  operationId: string;
  tags?: string[];
  responses: Record<string, unknown>;
  parameters: { name: string; in: string; schema: Schema }[];
  requestBody?: { content: { "application/json"?: { schema: Schema } } };
  "x-openstack": { policy?: string | null; actions?: Record<string, { policy: string | null }> };
}
interface Document {
  paths: Record<string, Record<string, Described>>;
  components: { schemas: Record<string, Schema> };
}

/** Path of each API below its name. */
const MOUNTS: Record<Service, string> = {
  compute: "/v2.1",
  identity: "",
  image: "/v2",
  network: "/v2.0",
  volume: "/v3",
  placement: "",
  load_balancer: "/v2",
};

interface Operation {
  id: string;
  api: Service;
  method: string;
  path: string;
  about: string;
  rule: string | null;
  version: string;
  query: string[];
  body: Schema | undefined;
}

/** Operations of all APIs that the rules allow the caller. */
async function load(): Promise<Operation[]> {
  const found = await Promise.all((Object.keys(MOUNTS) as Service[]).filter(has).map(operationsOf));
  return found.flat().filter((operation) => operation.rule === null || may(operation.rule));
}

/** The document of an API, or null if this cloud does not serve the API. */
async function documentOf(api: Service): Promise<Document | null> {
  try {
    return await send<Document>("GET", `api/${api}/openapi.json`);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

/** The schema to which a schema refers, or the schema itself. */
const referred = (schema: Schema | undefined, document: Document): Schema | undefined =>
  schema?.$ref ? document.components.schemas[schema.$ref.split("/").pop()!] : schema;

/** A body's schema, in which a single object under a key is written out. */
function whole(schema: Schema | undefined, document: Document): Schema | undefined {
  const own = referred(schema, document);
  if (!own?.properties) return own;
  const properties = Object.entries(own.properties).map(([name, part]) => [name, referred(part, document)]);
  return { ...own, properties: Object.fromEntries(properties) };
}

/** Operations of one API. Each action on a server is one of its own. */
async function operationsOf(api: Service): Promise<Operation[]> {
  const document = await documentOf(api);
  const found: Operation[] = [];
  if (!document) return found;
  const prefix = api === "compute" ? "" : `${api}.`;
  for (const [path, methods] of Object.entries(document.paths))
    for (const [method, item] of Object.entries(methods)) {
      if (!Object.keys(item.responses).some((code) => code.startsWith("2"))) continue; // what Nova has removed, or this cloud has not
      const about = item.tags?.[0] ?? "";
      const version = String(item.parameters.find((parameter) => parameter.in === "header")?.schema.enum?.[0] ?? "");
      const query = item.parameters.filter((parameter) => parameter.in === "query").map((parameter) => parameter.name);
      const schema = whole(item.requestBody?.content?.["application/json"]?.schema, document);
      const { actions, policy: rule = null } = item["x-openstack"];
      const bodies = schema?.oneOf ?? [];
      for (const [name, { policy }] of Object.entries(actions ?? {})) {
        const body = bodies.find((one) => one.required?.[0] === name);
        if (body)
          found.push({
            id: `${prefix}${item.operationId}.${name}`,
            api,
            method: method.toUpperCase(),
            path,
            about: name,
            rule: policy,
            version,
            query,
            body,
          });
      }
      if (!actions)
        found.push({
          id: prefix + item.operationId,
          api,
          method: method.toUpperCase(),
          path,
          about,
          rule,
          version,
          query,
          body: schema,
        });
    }
  return found;
}

/** A value that fits a schema, to begin with. Of an object, what it requires. */
export function example(schema: Schema | undefined, depth = 0): unknown {
  if (!schema || depth > 6) return null;
  if (schema.enum) return schema.enum[0];
  const one = schema.oneOf ?? schema.anyOf;
  if (one) return example(one[one.length - 1], depth + 1);
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "object" || schema.properties)
    return Object.fromEntries(
      (schema.required ?? []).map((name) => [name, example(schema.properties?.[name], depth + 1)]),
    );
  if (type === "array") return schema.minItems ? [example(schema.items, depth + 1)] : [];
  if (type === "integer" || type === "number") return schema.minimum ?? 0;
  if (type === "boolean") return false;
  return type === "string" ? "" : null;
}

export function Explorer({ id }: { id: string | undefined }): VNode {
  const { data, error, reload } = useData(load, ["openapi"]);
  const operation = data?.find((item) => item.id === id);
  if (!data)
    return (
      <>
        <Head title={t("API explorer")} />
        <Failure error={error} retry={reload} />
        {!error && <Waiting />}
      </>
    );
  if (operation) return <Try key={operation.id} operation={operation} />;
  return (
    <>
      <Head
        title={t("API explorer")}
        note={t("Each request of this cloud's APIs that your roles allow. Programs send the same ones.")}
      />
      <Table
        label={t("API explorer")}
        rows={data}
        idOf={(row) => row.id}
        nameOf={(row) => row.id}
        filters={[{ name: "api", title: t("API"), of: (row) => row.api }]}
        empty={<p>{t("There is nothing to show.")}</p>}
        columns={[
          {
            name: "path",
            title: t("Request"),
            narrow: true,
            text: (row) => `${row.method} ${row.path}`,
            cell: (row) => (
              <>
                <Name to={["api", row.id]}>{`${row.method} ${row.path}`}</Name>
              </>
            ),
          },
          { name: "about", title: t("About"), narrow: true, text: (row) => row.about },
          {
            name: "rule",
            title: t("Rule"),
            text: (row) => row.rule ?? "",
            cell: (row) => <code>{row.rule ?? ""}</code>,
          },
        ]}
      />
      <Command text='curl "$COMPUTE_URL/../openapi.json"' />
    </>
  );
}

function Try({ operation }: { operation: Operation }): VNode {
  const names = [...operation.path.matchAll(/{(\w+)}/g)].map((match) => match[1]!);
  const [values, set] = useState<Record<string, string>>({});
  const [query, setQuery] = useState("");
  const [body, setBody] = useState(() => (operation.body ? JSON.stringify(example(operation.body), null, 2) : ""));
  const [reply, setReply] = useState<(Reply & { ms: number }) | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const path = operation.path.replace(/{(\w+)}/g, (whole, name: string) =>
    values[name] ? encodeURIComponent(values[name]) : whole,
  );
  const target = path + (query.trim() ? `?${query.trim().replace(/^\?/, "")}` : "");
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    setReply(null);
    const begun = performance.now();
    try {
      if (Object.values(values).some((value) => /^\.{1,2}$/.test(value)))
        throw new Error("A browser takes . and .. for other paths.");
      if (body.trim()) JSON.parse(body);
      const url = `api/${operation.api}${MOUNTS[operation.api]}${target}`;
      const found = await callAt(operation.method, url, body.trim() || undefined, operation.version);
      setReply({ ...found, ms: Math.round(performance.now() - begun) });
    } catch (problem) {
      setError(problem as Error);
    }
    setBusy(false);
  };
  const isRead = operation.method === "GET";
  const text = command(
    "curl -X",
    operation.method,
    ["-H", "X-Auth-Token: $TOKEN"],
    operation.version && ["-H", `OpenStack-API-Version: ${operation.version}`],
    body.trim() && ["-H", "Content-Type: application/json", "-d", body.trim()],
  ).replace("'X-Auth-Token: $TOKEN'", '"X-Auth-Token: $TOKEN"');
  return (
    <>
      <nav class="path" aria-label={t("Path")}>
        <a href={link("api")}>{t("API explorer")}</a> / {operation.id}
      </nav>
      <Head title={`${operation.method} ${operation.path}`} note={operation.about} />
      <Facts
        items={[
          [t("Rule"), operation.rule && <code>{operation.rule}</code>],
          [t("API"), operation.api],
          [t("Version"), operation.version],
          [t("Parameters"), operation.query.join(", ")],
        ]}
      />
      <form class="try" onSubmit={submit}>
        {names.map((name) => (
          <div key={name} class="field">
            <label for={`try-${name}`}>{name}</label>
            <input
              id={`try-${name}`}
              required
              autocomplete="off"
              spellcheck={false}
              value={values[name] ?? ""}
              onInput={(event) => set({ ...values, [name]: event.currentTarget.value.trim() })}
            />
          </div>
        ))}
        {operation.query.length > 0 && (
          <div class="field">
            <label for="try-query">
              {t("Parameters")} <i>{t("optional")}</i>
            </label>
            <input
              id="try-query"
              autocomplete="off"
              spellcheck={false}
              value={query}
              onInput={(event) => setQuery(event.currentTarget.value)}
            />
            <small>{t("As NAME=VALUE&NAME=VALUE.")}</small>
          </div>
        )}
        {operation.body && (
          <div class="field">
            <label for="try-body">{t("Body")}</label>
            <textarea
              id="try-body"
              rows={10}
              spellcheck={false}
              value={body}
              onInput={(event) => setBody(event.currentTarget.value)}
            />
          </div>
        )}
        {!isRead && <p class="note">{t("The request is real: it changes your cloud.")}</p>}
        <button type="submit" class={operation.method === "DELETE" ? "danger" : "primary"} disabled={busy}>
          {busy ? t("Working…") : t("Send the request")}
        </button>
      </form>
      <Failure error={error} />
      <div role="status">
        {reply && (
          <>
            <h2>{t("Reply")}</h2>
            <p>
              <Status value={reply.ok ? "success" : "failure"} /> <b>{reply.status}</b>{" "}
              <small>
                {reply.ms} ms · {reply.request}
              </small>
            </p>
          </>
        )}
      </div>
      {reply && (
        <pre tabIndex={0} role="region" aria-label={t("Reply")}>
          {pretty(reply.text)}
        </pre>
      )}
      {operation.body && (
        <details class="raw">
          <summary>{t("Schema of the body")}</summary>
          <pre tabIndex={0}>{JSON.stringify(operation.body, null, 2)}</pre>
        </details>
      )}
      <Command text={`${text} "$${operation.api.toUpperCase()}_URL${target}"`} />
    </>
  );
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
