// Short words in the corner: something was done, or could not be.

import { type ReactNode, useSyncExternalStore } from "react";
import { Icon } from "./icons";

export type Notice = {
  id: number;
  text: string;
  bad: boolean;
  action?: { label: string; run: () => void } | undefined;
};

let notices: readonly Notice[] = [];
let last = 0;
const listeners = new Set<() => void>();

function become(now: readonly Notice[]): void {
  notices = now;
  for (const listener of listeners) listener();
}

const drop = (id: number): void => become(notices.filter((notice) => notice.id !== id));

/** Say something in the corner of the page. */
export function notify(text: string, { bad = false, action }: Partial<Pick<Notice, "bad" | "action">> = {}): void {
  last += 1;
  const id = last;
  become([...notices.slice(-3), { id, text, bad, action }]);
  setTimeout(() => drop(id), bad ? 10_000 : 4000);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function Notices(): ReactNode {
  const now = useSyncExternalStore(subscribe, () => notices);
  return (
    <div className="notices" aria-live="polite">
      {now.map(({ id, text, bad, action }) => (
        <div key={id} className={bad ? "notice is-bad" : "notice"}>
          <span className="grow">{text}</span>
          {action && (
            <button type="button" className="button small" onClick={action.run}>
              {action.label}
            </button>
          )}
          <button type="button" className="button plain icon small" aria-label="Close" onClick={() => drop(id)}>
            <Icon name="close" size={14} />
          </button>
        </div>
      ))}
    </div>
  );
}
