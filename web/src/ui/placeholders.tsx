// What is shown instead of what one came for: nothing there, a fault, or not yet.

import type { ReactNode } from "react";
import { ApiError } from "../api";
import { Copy } from "./CopyButton";
import { Icon } from "./icons";

type EmptyProps = {
  title: string;
  children?: ReactNode /** What to type to have something here. */;
  type?: string;
  actions?: ReactNode;
};

export function Empty({ title, children, type, actions }: EmptyProps): ReactNode {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children && <div>{children}</div>}
      {type && <Typed text={type} />}
      {actions && <div className="actions">{actions}</div>}
    </div>
  );
}

/** A command to copy. */
export function Typed({ text }: { text: string }): ReactNode {
  return (
    <div className="typed">
      <code>{text}</code>
      <Copy text={text} />
    </div>
  );
}

/** What the server says: what it put between backticks was written by somebody. */
export function Told({ text }: { text: string }): ReactNode {
  return text.split(/`([^`]+)`/).map((part, place) =>
    // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a text have no other name
    place % 2 ? <code key={place}>{part}</code> : part,
  );
}

type FailureProps = { error: unknown; again?: (() => void) | undefined /** What could not be done. */; what?: string };

/** What went wrong, what to do, and a way to try again. */
export function Failure({ error, again, what }: FailureProps): ReactNode {
  const told = error instanceof Error ? error.message : String(error);
  const hint = error instanceof ApiError ? error.hint : null;
  return (
    <div className="failure" role="alert">
      <Icon name="warning" />
      <div className="told">
        <b>
          {what ? `${what}: ` : ""}
          <Told text={told} />
        </b>
        {hint && (
          <p>
            <Told text={hint} />
          </p>
        )}
      </div>
      {again && (
        <button type="button" className="button small" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Spinner({ label = "Loading" }: { label?: string }): ReactNode {
  return (
    <output className="loading" aria-live="polite">
      <span className="spinner" />
      <span>{label}…</span>
    </output>
  );
}
