// Short messages in the corner of the page.

import { type ReactNode, useSyncExternalStore } from "react";
import { Icon } from "./icons";

export type Toast = {
  id: number;
  text: string;
  bad: boolean;
  action?: { label: string; run: () => void } | undefined;
};

let toasts: readonly Toast[] = [];
let last = 0;
const listeners = new Set<() => void>();

function setToasts(next: readonly Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

const dismiss = (id: number): void => setToasts(toasts.filter((toast) => toast.id !== id));

/** Shows a message in the corner of the page. */
export function notify(text: string, { bad = false, action }: Partial<Pick<Toast, "bad" | "action">> = {}): void {
  last += 1;
  const id = last;
  setToasts([...toasts.slice(-3), { id, text, bad, action }]);
  setTimeout(() => dismiss(id), bad ? 10_000 : 4000);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function Toasts(): ReactNode {
  const shown = useSyncExternalStore(subscribe, () => toasts);
  return (
    <div className="toasts" aria-live="polite">
      {shown.map(({ id, text, bad, action }) => (
        <div key={id} className={bad ? "toast is-bad" : "toast"}>
          <span className="grow">{text}</span>
          {action && (
            <button type="button" className="button small" onClick={action.run}>
              {action.label}
            </button>
          )}
          <button type="button" className="button plain icon small" aria-label="Close" onClick={() => dismiss(id)}>
            <Icon name="close" size={14} />
          </button>
        </div>
      ))}
    </div>
  );
}
