// The view of one kind of thing, from its description: a list, a page for each, and their actions.
import type { ComponentChildren, VNode } from "preact";
import { useState } from "preact/hooks";
import { type Json } from "./api";
import { t } from "./messages";
import { link, may, useData } from "./state";
import { type Action, ActionButtons, ActionDialog, type Column, Command, Facts, Failure, Head, Status, Table, Time, Waiting, allowed } from "./ui";

export interface Kind {
  path: string;
  title: string;
  one: string;
  rule?: string;
  load: (all: boolean) => Promise<Json[]>;
  show?: (id: string) => Promise<Json>;
  idOf?: (row: Json) => string;
  nameOf?: (row: Json) => string;
  columns: Column[];
  create?: Action[];
  actions: Action[];
  bulk?: string[];
  empty: string;
  command: string;
  every?: number;
  everyone?: string; // the rule that shows all projects
  filter?: { name: string; title: string; of: (row: Json) => string };
  facts?: (row: Json) => [string, ComponentChildren][];
  more?: (row: Json, reload: () => void) => VNode | null;
  above?: (rows: Json[]) => VNode | null;
}

const nameOf = (row: Json): string => row.name ?? "";
const idOf = (row: Json): string => row.id;

export function Listing({ kind }: { kind: Kind }): VNode {
  const [open, setOpen] = useState<Action | null>(null);
  const { data, error, reload } = useData(() => kind.load(false), [kind.path], kind.every ?? 5);
  const create = (kind.create ?? []).filter(allowed);
  const buttons = create.map((action, at) => <button key={action.name} type="button" class={at === 0 ? "primary" : ""} onClick={() => setOpen(action)}>{action.label}</button>);
  return (
    <>
      <Head title={kind.title}>{buttons}</Head>
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {data && kind.above?.(data)}
      {data && (
        <Table
          label={kind.title} rows={data} columns={kind.columns} idOf={kind.idOf ?? idOf} nameOf={kind.nameOf ?? nameOf} actions={kind.actions} bulk={kind.actions.filter((action) => (kind.bulk ?? ["delete"]).includes(action.name))} done={reload}
          {...(kind.filter ? { filter: kind.filter } : {})}
          empty={<><p>{kind.empty}</p>{buttons.slice(0, 1)}<Command text={kind.command} /></>}
        />
      )}
      {open && <ActionDialog key={open.name} action={open} rows={[{}]} nameOf={() => ""} close={() => setOpen(null)} done={reload} />}
    </>
  );
}

export function Details({ kind, id }: { kind: Kind; id: string }): VNode {
  const { data, error, reload } = useData<Json>(
    async () => {
      if (kind.show) return kind.show(id);
      const row = (await kind.load(true)).find((item) => (kind.idOf ?? idOf)(item) === id);
      if (!row) throw new Error(t("There is none of this id."));
      return row;
    },
    [kind.path, id], kind.every ?? 5);
  const name = data ? (kind.nameOf ?? nameOf)(data) || id : id;
  const known: [string, ComponentChildren][] = data && kind.facts ? kind.facts(data) : [];
  return (
    <>
      <nav class="path" aria-label={t("Path")}><a href={link(kind.path)}>{kind.title}</a> / {name}</nav>
      <Head title={name} note={data?.status && typeof data.status === "string" ? <Status value={data.status} /> : undefined}>
        {data && <ActionButtons actions={kind.actions} row={data} nameOf={kind.nameOf ?? nameOf} done={reload} />}
      </Head>
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {data && <Facts items={[...known, ["ID", <code>{id}</code>]]} />}
      {data && kind.more?.(data, reload)}
      {data && <details class="raw"><summary>{t("Everything that the API says")}</summary><pre tabIndex={0}>{JSON.stringify(data, null, 2)}</pre></details>}
    </>
  );
}

export const visible = (kind: Kind): boolean => kind.rule === undefined || may(kind.rule);
export const when = (at: string | null | undefined): VNode => <Time at={at} />;
