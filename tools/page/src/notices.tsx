// What came of something that a user has begun, wherever the user is now. Each notice stays until it is closed.
import type { VNode } from "preact";
import { useEffect, useReducer } from "preact/hooks";
import { t } from "./messages";
import { link } from "./state";
import { Failure } from "./ui";

interface Notice {
  words: string;
  file?: { name: string; text: string };
  error?: Error;
  view?: string; // where the user goes on
}

const notices: Notice[] = [];
const listeners = new Set<() => void>();
const tell = (): void => listeners.forEach((listener) => void listener());

export function notify(notice: Notice): void {
  notices.push(notice);
  tell();
}

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
  useEffect(() => {
    const changed = () => again(undefined as never);
    listeners.add(changed);
    return () => void listeners.delete(changed);
  }, []);
  return (
    <div role="status">
      {notices.map((notice) => (
        <div key={notice} class="lost notice">
          <span>{notice.words}</span>
          <Failure error={notice.error} />
          {notice.file && (
            <button type="button" onClick={() => save(notice.file!)}>
              {t("Save")} {notice.file.name}
            </button>
          )}
          {notice.view && <a href={link(notice.view)}>{t("Look there")}</a>}
          <button
            type="button"
            onClick={() => {
              notices.splice(notices.indexOf(notice), 1);
              tell();
            }}
          >
            {t("Close the notice")}
          </button>
        </div>
      ))}
    </div>
  );
}
