// Tables: search, order, filters, chosen columns, actions on one row or several, and rows that are drawn near the view.
import type { ComponentChildren, RefObject, VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Icon } from "./icons";
import { t } from "./messages";
import { save } from "./notices";
import { decode, remember, remembered, useParameters } from "./state";
import {
  type Action,
  ActionDialog,
  allowed,
  chosenWords,
  Described,
  Drop,
  Empty,
  Menu,
  TOP,
  usable,
  words,
} from "./ui";

export interface Column<T> {
  name: string;
  title: string;
  text(row: T): string | number;
  cell?(row: T): ComponentChildren;
  narrow?: boolean; // also shown on a phone
  number?: boolean;
  extra?: boolean; // not shown until the user chooses it
}

/** What a table can be reduced to: rows with one of some values. */
export interface Filter<T> {
  name: string; // in the address
  title: string;
  of(row: T): string | string[];
  words?(value: string): string;
}

/** Rows that one sees at a glance: only longer tables have a search. */
const SEARCHED = 7;
/** Values that a filter offers: the most frequent ones. */
const OFFERED = 100;

interface TableProps<T> {
  rows: T[];
  columns: Column<T>[];
  idOf: (row: T) => string;
  nameOf: (row: T) => string;
  actions?: Action<T>[];
  bulk?: Action<T>[];
  done?: () => void;
  empty: ComponentChildren;
  label: string;
  below?: ((row: T) => string) | undefined; // below the first column on a phone, which lacks most others
  filters?: Filter<T>[];
  more?: boolean;
  scope?: string; // tells the tables of one view apart in the address
  icon?: string; // of the things, for a table without any
  chooser?: string; // the name by which the browser keeps the chosen columns
  saved?: boolean; // a short list is offered as a file, too
}

/** A test whether a text in lower case has all words of a search. */
export function fitting(search: string): (text: string) => boolean {
  const parts = search.toLowerCase().split(/\s+/);
  return (text) => parts.every((part) => text.includes(part));
}

/** Rows in the order of a column, which has the sign - if it is descending. Without a column they stay as they are. */
export function sorted<T>(rows: T[], columns: Column<T>[], sort: string): T[] {
  const column = columns.find((item) => item.name === sort.replace(/^-/, ""));
  if (!column) return rows;
  const sign = sort.startsWith("-") ? -1 : 1;
  const keys = rows.map((row) => ({ row, key: column.text(row) }));
  return keys.sort((left, right) => sign * compare(left.key, right.key)).map(({ row }) => row);
}

/** Values of a filter with their numbers of rows, in their order. */
export function offeredBy<T>(filter: Filter<T>, rows: T[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const row of rows) for (const value of [filter.of(row)].flat()) counts.set(value, (counts.get(value) ?? 0) + 1);
  counts.delete("");
  return [...counts]
    .sort((left, right) => right[1] - left[1])
    .slice(0, OFFERED)
    .sort((left, right) => compare(left[0], right[0]));
}

/** Values of a filter in the address, and back. */
const split = (text: string): string[] => (text ? text.split(",").map(decode) : []);
const join = (values: string[]): string => values.map(encodeURIComponent).join(",");

/** A spreadsheet takes a text that begins with one of these signs for a formula. */
const FORMULA = /^[=+\-@\t\r]/;
const quoted = (value: string | number): string => {
  const text = typeof value === "string" && FORMULA.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/** Rows as a file for spreadsheets (RFC 4180). */
export const csvOf = <T,>(columns: Column<T>[], rows: T[]): string =>
  [columns.map((column) => column.title), ...rows.map((row) => columns.map((column) => column.text(row)))]
    .map((line) => `${line.map(quoted).join(",")}\r\n`)
    .join("");

// --- rows near the view: a long table draws parts of its rows, and leaves room for the others

/** Rows of a table that is drawn as a whole. */
export const WHOLE = 50;
const PART = 20;
/** Height of a row in pixels, until one is drawn. */
const ROW = 40;
/** Pixels beyond the view that are drawn. */
const BEYOND = 300;

const sum = (sizes: number[]): number => sizes.reduce((total, size) => total + size, 0);

/** The parts, by their heights, that lie between two heights. There is at least one. */
export function partsWithin(sizes: number[], top: number, bottom: number): { from: number; to: number } {
  let from = 0;
  let end = 0;
  while (from < sizes.length - 1 && end + sizes[from]! <= top) end += sizes[from++]!;
  let to = from;
  while (to === from || (to < sizes.length && end < bottom)) end += sizes[to++] ?? 0;
  return { from, to };
}

interface Near {
  body: RefObject<HTMLTableSectionElement | null>;
  from: number; // the first row that is drawn
  to: number;
  above: number; // pixels of the rows before it
  below: number;
}

function useNear(count: number): Near {
  const body = useRef<HTMLTableSectionElement>(null);
  const known = useRef<number[]>([]); // heights of parts that were drawn
  const [drawn, draw] = useState({ from: 0, to: 2, row: ROW });
  const parts = Math.ceil(count / PART);
  const from = count > WHOLE ? Math.min(drawn.from, parts - 1) : 0;
  const to = count > WHOLE ? Math.min(drawn.to, parts) : parts;
  const sizeOf = (part: number) => known.current[part] ?? Math.min(PART, count - part * PART) * drawn.row;
  const sizes = Array.from({ length: parts }, (_, part) => sizeOf(part));
  const above = sum(sizes.slice(0, from));
  const place = () => {
    const { rows } = body.current ?? {};
    if (!rows?.length || count <= WHOLE) return;
    const last = rows[rows.length - 1]!;
    const edge = (at: number) => rows[at]?.offsetTop ?? last.offsetTop + last.offsetHeight;
    for (let part = from; part < to; part++)
      known.current[part] = edge((part - from + 1) * PART) - edge((part - from) * PART);
    const row = drawn.row === ROW ? known.current[from]! / Math.min(PART, rows.length) : drawn.row;
    const top = body.current!.getBoundingClientRect().top - above;
    const next = partsWithin(
      sizes.map((_, part) => sizeOf(part)),
      -top - BEYOND,
      innerHeight - top + BEYOND,
    );
    if (next.from !== drawn.from || next.to !== drawn.to || row !== drawn.row) draw({ ...next, row });
  };
  const latest = useRef(place);
  latest.current = place;
  useLayoutEffect(place);
  useEffect(() => {
    const moved = () => latest.current();
    for (const name of ["scroll", "resize"]) addEventListener(name, moved, { passive: true });
    return () => {
      for (const name of ["scroll", "resize"]) removeEventListener(name, moved);
    };
  }, []);
  return { body, from: from * PART, to: Math.min(count, to * PART), above, below: sum(sizes.slice(to)) };
}

/** Room for rows that are not drawn. */
const Room = ({ height, columns }: { height: number; columns: number }): VNode | null =>
  height ? (
    <tbody class="room" aria-hidden="true">
      <tr>
        <td colSpan={columns} style={{ height: `${height}px` }} />
      </tr>
    </tbody>
  ) : null;

// --- what a user chooses

function useColumns<T>(columns: Column<T>[], chooser: string): [Column<T>[], (name: string) => void] {
  const [text, set] = useState(() => (chooser ? remembered(`columns.${chooser}`) : ""));
  const namesOf = (kept: string) =>
    kept ? kept.split(",") : columns.filter((column) => !column.extra).map((column) => column.name);
  const isShown = (column: Column<T>) => column === columns[0] || namesOf(text).includes(column.name);
  const toggle = (name: string) =>
    set((old) => {
      const names = namesOf(old);
      const next = names.includes(name) ? names.filter((item) => item !== name) : [...names, name];
      remember(`columns.${chooser}`, next.join(","));
      return next.join(",");
    });
  return [columns.filter(isShown), toggle];
}

/** A table with search, order, filters, chosen columns, and actions on one row or several. Its state is in the address. */
export function Table<T>({
  rows,
  columns,
  idOf,
  nameOf,
  actions = [],
  bulk = [],
  done,
  empty,
  label,
  below,
  filters = [],
  more,
  scope = "",
  icon,
  chooser = "",
  saved = false,
}: TableProps<T>): VNode {
  const [query, setQuery] = useParameters(["q", "sort", ...filters.map((filter) => filter.name)], scope);
  const [search = "", sort = "", ...only] = query;
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [open, setOpen] = useState<{ action: Action<T>; rows: T[]; outside: number } | null>(null);
  const [shownColumns, toggleColumn] = useColumns(columns, chooser);
  const ticked = useRef<T | null>(null);
  // What is searched in each row is made once, as a list that grows has most of its rows already.
  // biome-ignore lint/correctness/useExhaustiveDependencies: ids do not change.
  const textOf = useMemo(() => {
    const known = new WeakMap<object, string>();
    return (row: T & object): string => {
      const text = known.get(row) ?? [...columns.map((column) => column.text(row)), idOf(row)].join("\n").toLowerCase();
      known.set(row, text);
      return text;
    };
  }, [columns]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: filters are the same while the rows are.
  const offers = useMemo(() => filters.map((filter) => offeredBy(filter, rows)), [rows]);
  const ordered = useMemo(() => sorted(rows, columns, sort), [rows, columns, sort]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: as above.
  const shown = useMemo(() => {
    const wanted = filters
      .map((filter, at) => ({ filter, values: split(only[at]!) }))
      .filter(({ values }) => values.length);
    const isFound = fitting(search);
    return ordered.filter(
      (row) =>
        wanted.every(({ filter, values }) => [filter.of(row)].flat().some((value) => values.includes(value))) &&
        isFound(textOf(row as T & object)),
    );
  }, [ordered, textOf, search, only.join("&")]);
  const near = useNear(shown.length);
  const { body, from, to } = near;
  const visible = shown.slice(from, to);
  const offered = bulk.filter(allowed);
  const selected = chosen.size ? rows.filter((row) => chosen.has(idOf(row))) : [];
  const within = selected.length ? new Set(shown) : null;
  const beyond = (of: T[]) => of.filter((row) => within && !within.has(row)).length;
  const outside = beyond(selected);
  const inside = selected.length - outside;
  const begin = (action: Action<T>, of: T[]) =>
    action.go ? action.go(of[0]!) : setOpen({ action, rows: of, outside: beyond(of) });
  const toggle = (of: T[], on: boolean) => {
    const next = new Set(chosen);
    for (const row of of)
      if (on) next.add(idOf(row));
      else next.delete(idOf(row));
    setChosen(next);
  };
  /** Choose a row; with the shift key, all rows from the one that was chosen before. */
  const tick = (row: T, event: { currentTarget: HTMLInputElement; shiftKey: boolean }) => {
    const ends = [shown.indexOf(row), event.shiftKey && ticked.current ? shown.indexOf(ticked.current) : -1];
    const [first, last] = ends[1]! < 0 ? [ends[0]!, ends[0]!] : [Math.min(...ends), Math.max(...ends)];
    toggle(shown.slice(first, last + 1), event.currentTarget.checked);
    ticked.current = row;
  };
  /** The rows that the user sees: of a short table all. */
  const inSight = (): T[] =>
    shown.length <= WHOLE
      ? shown
      : visible.filter((_, at) => {
          const place = body.current!.rows[at]?.getBoundingClientRect();
          return place && place.bottom > 2 * TOP && place.top < innerHeight;
        });
  const wordsOf = (filter: Filter<T>, value: string): string => (filter.words ?? words)(value);
  const set = (at: number, values: string[]) => setQuery(at + 2, join(values));
  const usableBulk = offered.filter((action) => selected.some((row) => !action.when || action.when(row)));
  const hasActions = actions.some(allowed);
  const isFiltered = only.some(Boolean);
  const isLong = rows.length > SEARCHED || !!search;
  const hasFilter = filters.length > 0 && (offers.some((values) => values.length > 1) || isFiltered);
  const width = shownColumns.length + Number(offered.length > 0) + Number(hasActions);
  return (
    <div class="table">
      {(isLong || (rows.length > 0 && (saved || hasFilter || offered.length > 0))) && (
        <div class="tools">
          {isLong && (
            <input
              type="search"
              placeholder={t("Search")}
              aria-label={t("Search in this list")}
              value={search}
              onInput={(event) => setQuery(0, event.currentTarget.value)}
            />
          )}
          {hasFilter && (
            <select
              aria-label={t("Filter")}
              value=""
              onChange={(event) => {
                const [at = "", value = ""] = event.currentTarget.value.split(/:(.*)/s);
                set(Number(at), [...split(only[Number(at)]!), value]);
              }}
            >
              <option value="">{t("Filter")}</option>
              {filters.map((filter, at) => (
                <optgroup key={filter.name} label={filter.title}>
                  {offers[at]!.filter(([value]) => !split(only[at]!).includes(value)).map(([value, count]) => (
                    <option key={value} value={`${at}:${value}`}>
                      {wordsOf(filter, value)} ({count})
                    </option>
                  ))}
                </optgroup>
              ))}
            </select>
          )}
          {filters.flatMap((filter, at) =>
            split(only[at]!).map((value, _, values) => (
              <button
                key={`${filter.name} ${value}`}
                type="button"
                class="chip"
                aria-label={`${t("Remove this filter")}: ${filter.title}: ${wordsOf(filter, value)}`}
                onClick={() =>
                  set(
                    at,
                    values.filter((item) => item !== value),
                  )
                }
              >
                {filter.title}: {wordsOf(filter, value)} <Icon name="remove" />
              </button>
            )),
          )}
          {selected.length > 0 && (
            <div class="bulk" role="group" aria-label={t("Actions on the chosen rows")}>
              <span>{chosenWords(selected.length, outside)}</span>
              {inside < shown.length && (
                <button type="button" onClick={() => toggle(shown, true)}>
                  {`${t("Choose all")} (${shown.length})`}
                </button>
              )}
              {usableBulk.map((action) => (
                <button
                  key={action.name}
                  type="button"
                  class={action.danger ? "danger quiet" : ""}
                  onClick={() =>
                    begin(
                      action,
                      selected.filter((row) => !action.when || action.when(row)),
                    )
                  }
                >
                  {action.label}
                </button>
              ))}
              <button type="button" class="plain" onClick={() => setChosen(new Set())}>
                {t("Choose none")}
              </button>
            </div>
          )}
          <span class="count" role="status">
            {shown.length === rows.length ? rows.length : `${shown.length} / ${rows.length}`}
            {more ? " …" : ""}
          </span>
          {chooser && (
            <Drop label={t("Columns")}>
              {columns.slice(1).map((column) => (
                <label key={column.name} class="check">
                  <input
                    type="checkbox"
                    checked={shownColumns.includes(column)}
                    onChange={() => toggleColumn(column.name)}
                  />{" "}
                  {column.title}
                </label>
              ))}
            </Drop>
          )}
          {chooser && (
            <button
              type="button"
              disabled={!shown.length}
              aria-label={t("Save as CSV")}
              title={t("Save as CSV")}
              onClick={() => save({ name: `${chooser}.csv`, text: `\ufeff${csvOf(shownColumns, shown)}` })}
            >
              <Icon name="download" />
              CSV
            </button>
          )}
        </div>
      )}
      {rows.length === 0 ? (
        <Empty {...(icon ? { icon } : {})}>{empty}</Empty>
      ) : shown.length === 0 ? (
        <Empty icon="search">
          <p>{t("Nothing fits this search.")}</p>
          <button
            type="button"
            onClick={() => {
              setQuery(0, "");
              for (const at of filters.keys()) set(at, []);
            }}
          >
            {t("Show all")}
          </button>
        </Empty>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label={label}>
          <table aria-rowcount={shown.length > WHOLE ? shown.length + 1 : undefined}>
            <thead>
              <tr>
                {offered.length > 0 && (
                  <th class="tick">
                    <input
                      type="checkbox"
                      aria-label={t("Choose the rows in sight")}
                      checked={inside > 0}
                      indeterminate={inside > 0 && inside < shown.length}
                      onChange={() => (inside ? toggle(shown, false) : toggle(inSight(), true))}
                    />
                  </th>
                )}
                {shownColumns.map((column) => (
                  <th
                    key={column.name}
                    class={classes(column)}
                    aria-sort={sort === column.name ? "ascending" : sort === `-${column.name}` ? "descending" : "none"}
                  >
                    <button
                      type="button"
                      class="sort"
                      onClick={() =>
                        setQuery(
                          1,
                          sort === column.name ? `-${column.name}` : sort === `-${column.name}` ? "" : column.name,
                        )
                      }
                    >
                      {column.title}
                      {sort.replace(/^-/, "") === column.name && <Icon name={sort === column.name ? "up" : "down"} />}
                    </button>
                  </th>
                ))}
                {hasActions && (
                  <th class="end">
                    <span class="hidden">{t("Actions")}</span>
                  </th>
                )}
              </tr>
            </thead>
            <Room height={near.above} columns={width} />
            <tbody ref={body}>
              {visible.map((row, at) => {
                const id = idOf(row);
                const found = hasActions ? usable(actions, row) : [];
                return (
                  <tr
                    key={id}
                    class={chosen.has(id) ? "chosen" : ""}
                    aria-rowindex={shown.length > WHOLE ? from + at + 2 : undefined}
                  >
                    {offered.length > 0 && (
                      <td class="tick">
                        <input
                          type="checkbox"
                          aria-label={`${t("Choose")} ${nameOf(row)}`}
                          checked={chosen.has(id)}
                          onClick={(event) => tick(row, event)}
                        />
                      </td>
                    )}
                    {shownColumns.map((column, place) => (
                      <td key={column.name} class={classes(column)}>
                        {column.cell ? column.cell(row) : <Described text={String(column.text(row))} />}
                        {place === 0 && below && <small class="below">{below(row)}</small>}
                      </td>
                    ))}
                    {hasActions && (
                      <td class="end">
                        {found.length > 0 && (
                          <Menu small label={t("Actions")} actions={found} choose={(action) => begin(action, [row])} />
                        )}
                      </td>
                    )}
                  </tr>
                );
              })}
            </tbody>
            <Room height={near.below} columns={width} />
          </table>
        </div>
      )}
      {open && (
        <ActionDialog
          key={open.action.name}
          action={open.action}
          rows={open.rows}
          nameOf={nameOf}
          outside={open.rows.length > 1 ? open.outside : 0}
          close={() => setOpen(null)}
          done={() => done?.()}
        />
      )}
    </div>
  );
}

const classes = <T,>(column: Column<T>): string =>
  [column.narrow ? "" : "wide-only", column.number ? "number" : ""].join(" ");
const collator = new Intl.Collator(undefined, { numeric: true });
/** Compare texts and numbers as a user expects: host9 before host10. */
export const compare = (left: string | number, right: string | number): number =>
  typeof left === "number" && typeof right === "number" ? left - right : collator.compare(String(left), String(right));
