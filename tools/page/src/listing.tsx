// The view of one kind of thing, from its description: a list, a page for each, and their actions.
import type { ComponentChildren, VNode } from "preact";
import { useState } from "preact/hooks";
import type { Service } from "./api";
import { unmarked } from "./called";
import { t } from "./messages";
import { link, may, useData } from "./state";
import { type Column, type Filter, Table } from "./table";
import {
  type Action,
  ActionButtons,
  ActionDialog,
  Command,
  Facts,
  Failure,
  Head,
  Status,
  Time,
  usable,
  Waiting,
} from "./ui";

/** One kind of thing. Members are methods, so that a list of kinds can have things of different types. */
export interface Kind<T = object> {
  path: string;
  title: string;
  one: string;
  rule?: string;
  load(all: boolean): Promise<T[]>;
  show?(id: string): Promise<T>;
  idOf?(row: T): string;
  nameOf?(row: T): string;
  columns: Column<T>[];
  below?(row: T): string; // on a phone, below the name
  status?(row: T): string; // in place of the API's own
  create?: Action<object>[];
  actions: Action<T>[];
  bulk?: string[];
  empty: string;
  instead?: () => VNode; // where an empty list leads, in place of a command
  command: string;
  every?: number;
  services?: Service[]; // the APIs whose requests change it; without them, it is loaded again and again
  everyone?: string; // the rule that shows all projects
  filters?: Filter<T>[];
  facts?(row: T): [string, ComponentChildren][];
  more?(row: T, reload: () => void): VNode | null;
  above?(rows: T[]): VNode | null;
}

interface Thing {
  id: string;
  name?: string | null;
  status?: string;
}
export const nameOf = (kind: Kind, row: object): string =>
  kind.nameOf ? kind.nameOf(row) : unmarked((row as Thing).name ?? "");
export const idOf = (kind: Kind, row: object): string => (kind.idOf ? kind.idOf(row) : (row as Thing).id);

/** Seconds between two loads of things that change by themselves, and what their states look like. */
const MOVING = 3;
const isMoving = (row: object): boolean => /ing$|^pending|^build|^saving/i.test((row as Thing).status ?? "");

export function Listing({ kind }: { kind: Kind }): VNode {
  const [open, setOpen] = useState<Action<object> | null>(null);
  const { data, error, reload } = useData(
    () => kind.load(false),
    [kind.path],
    (rows) => (rows.some(isMoving) ? MOVING : (kind.every ?? 5)),
    kind.services,
  );
  const create = usable(kind.create ?? [], {});
  const buttons = create.map((action, at) => (
    <button key={action.name} type="button" class={at === 0 ? "primary" : ""} onClick={() => setOpen(action)}>
      {action.label}
    </button>
  ));
  return (
    <>
      <Head title={kind.title}>{buttons}</Head>
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {data && kind.above?.(data)}
      {data && (
        <Table
          label={kind.title}
          rows={data}
          columns={kind.columns}
          below={kind.below}
          idOf={(row) => idOf(kind, row)}
          nameOf={(row) => nameOf(kind, row)}
          actions={kind.actions}
          bulk={kind.actions.filter((action) => (kind.bulk ?? ["delete"]).includes(action.name))}
          done={reload}
          filters={kind.filters ?? []}
          chooser={kind.path}
          icon={kind.path}
          empty={
            <>
              <p>{kind.empty}</p>
              {buttons.slice(0, 1)}
              {kind.instead ? kind.instead() : <Command text={kind.command} />}
            </>
          }
        />
      )}
      {open && (
        <ActionDialog
          key={open.name}
          action={open}
          rows={[{}]}
          nameOf={() => ""}
          close={() => setOpen(null)}
          done={reload}
        />
      )}
    </>
  );
}

export function Details({ kind, id }: { kind: Kind; id: string }): VNode {
  const { data, error, reload } = useData<object>(
    async () => {
      if (kind.show) return kind.show(id);
      const row = (await kind.load(true)).find((item) => idOf(kind, item) === id);
      if (!row) throw new Error(t("There is none of this id."));
      return row;
    },
    [kind.path, id],
    (row) => (isMoving(row) ? MOVING : (kind.every ?? 5)),
    kind.services,
  );
  const name = data ? nameOf(kind, data) || id : id;
  const status = data && (kind.status ? kind.status(data) : (data as Thing).status);
  const known: [string, ComponentChildren][] = data && kind.facts ? kind.facts(data) : [];
  return (
    <>
      <nav class="path" aria-label={t("Path")}>
        <a href={link(kind.path)}>{kind.title}</a> / {name}
      </nav>
      <Head title={name} note={status && <Status value={status} />}>
        {data && <ActionButtons actions={kind.actions} row={data} nameOf={(row) => nameOf(kind, row)} done={reload} />}
      </Head>
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {data && (
        <div class="cockpit">
          <Facts items={[...known, ["ID", <code>{id}</code>]]} />
          <div class="parts">
            {kind.more?.(data, reload)}
            <details class="raw">
              <summary>{t("Everything that the API says")}</summary>
              <pre tabIndex={0}>{JSON.stringify(data, null, 2)}</pre>
            </details>
          </div>
        </div>
      )}
    </>
  );
}

export const visible = (kind: Kind): boolean => kind.rule === undefined || may(kind.rule);
export const when = (at: string | null | undefined): VNode => <Time at={at} />;
