// Views whose programs are loaded when a user opens them, so that the first view is there soon.
import { h, type VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { t } from "./messages";
import { Failure, Waiting } from "./ui";

type View = (props: object) => VNode | null;
/** A program: not loaded at first. */
interface Program {
  view: View | null;
  load: () => Promise<View>;
}

/** A view that waits for its program. */
export function late<P extends object>(load: () => Promise<(props: P) => VNode | null>): (props: P) => VNode {
  const program: Program = { view: null, load: load as () => Promise<View> };
  return (props) => h(Late, { program, given: props }) as VNode;
}

/** After an upgrade, the files of an older page are gone: the user loads the new one. */
function Late({ program, given }: { program: Program; given: object }): VNode {
  const [failed, setFailed] = useState(false);
  const [, again] = useState(0);
  useEffect(() => {
    let live = true;
    const keep = (view: View) => {
      program.view = view;
      if (live) again(1);
    };
    if (!program.view) void program.load().then(keep, () => live && setFailed(true));
    return () => {
      live = false;
    };
  }, [program]);
  if (program.view) return h(program.view, given);
  if (!failed) return <Waiting />;
  const error = new Error(t("This part of the page could not be loaded. Load the page again."));
  return <Failure error={error} retry={() => location.reload()} />;
}
