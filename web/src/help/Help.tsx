import "./help.css";
import { Fragment, type ReactNode, useState } from "react";
import { activeShortcuts } from "../shortcuts";
import { Dialog } from "../ui";
import { QueryHelp } from "./QueryHelp";

/** The help dialog: active shortcuts and the query language. */
export default function Help({ close }: { close: () => void }): ReactNode {
  const [groups] = useState(activeShortcuts);
  return (
    <Dialog title="Help" onClose={close} wide>
      <div className="help">
        <section>
          {groups.map(({ title, keys }) => (
            <Fragment key={title}>
              <h3>{title}</h3>
              <dl className="help-keys">
                {keys.map(({ key, label }) => (
                  <Fragment key={key}>
                    <dt>
                      <KeyLabel name={key} />
                    </dt>
                    <dd>{label}</dd>
                  </Fragment>
                ))}
              </dl>
            </Fragment>
          ))}
        </section>
        <section>
          <h3>Filtering runs</h3>
          <QueryHelp />
        </section>
      </div>
    </Dialog>
  );
}

const KEY_LABELS: Record<string, string> = {
  Escape: "Esc",
  ArrowDown: "↓",
  ArrowUp: "↑",
  ArrowLeft: "←",
  ArrowRight: "→",
  shift: "⇧",
  mod: "Ctrl",
};

export function KeyLabel({ name }: { name: string }): ReactNode {
  return name.split(" ").map((part, place) => (
    <Fragment key={part}>
      {place > 0 && " "}
      {(part === "+" ? ["+"] : part.split("+")).map((key) => (
        <kbd key={key}>{KEY_LABELS[key] ?? key}</kbd>
      ))}
    </Fragment>
  ));
}
