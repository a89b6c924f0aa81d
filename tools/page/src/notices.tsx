// Notices in a corner of the page, wherever the user is now. A notice stays until it is closed, or while it can be undone.
import type { VNode } from "preact";
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { Icon } from "./icons";
import { t } from "./messages";
import { drop, type Notice, notices, watchNotices } from "./noticeboard";
import { link } from "./state";
import { Failure } from "./ui";

/** Seconds in which a user may undo an action here. Afterwards the opposite action does the same. */
const UNDONE = 20;

/** Offer a text as a file. */
export function save({ name, text }: { name: string; text: string }): void {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  anchor.download = name;
  anchor.click();
  URL.revokeObjectURL(anchor.href);
}

export function Notices(): VNode {
  const [, again] = useReducer((count: number) => count + 1, 0);
  useEffect(() => watchNotices(() => again(undefined as never)), []);
  return (
    <div class="notices" role="status">
      {notices.map((notice) => (
        <Toast key={notice} notice={notice} />
      ))}
    </div>
  );
}

function Toast({ notice }: { notice: Notice }): VNode {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(notice.error ?? null);
  const element = useRef<HTMLDivElement>(null);
  const isKept = !notice.undo || busy || !!error;
  // The time stands still while the user is at the notice.
  useEffect(() => {
    if (isKept) return;
    let left = UNDONE;
    const timer = setInterval(() => {
      if (!element.current?.matches(":hover, :focus-within") && --left <= 0) drop(notice);
    }, 1000);
    return () => clearInterval(timer);
  }, [notice, isKept]);
  const undo = async () => {
    setBusy(true);
    setError(null);
    try {
      await notice.undo!();
      drop(notice);
    } catch (problem) {
      setError(problem as Error);
    }
    setBusy(false);
  };
  return (
    <div class="toast" ref={element}>
      <span>{notice.words}</span>
      <Failure error={error} />
      {notice.file && (
        <button type="button" onClick={() => save(notice.file!)}>
          <Icon name="download" />
          {t("Save")} {notice.file.name}
        </button>
      )}
      {notice.view && <a href={link(notice.view)}>{t("Look there")}</a>}
      {notice.undo && (
        <button type="button" disabled={busy} onClick={() => void undo()}>
          <Icon name="undo" />
          {busy ? t("Working…") : t("Undo")}
        </button>
      )}
      <button type="button" class="plain" aria-label={t("Close the notice")} onClick={() => drop(notice)}>
        <Icon name="remove" />
      </button>
    </div>
  );
}
