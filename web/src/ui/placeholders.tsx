// What is shown in place of content: empty states, errors and loading indicators.

import type { ReactNode } from "react";
import { ApiError } from "../api";
import { CopyButton } from "./CopyButton";
import { Icon } from "./icons";

type EmptyStateProps = {
  title: string;
  children?: ReactNode;
  /** A command that creates the first item. */
  command?: string;
  actions?: ReactNode;
};

export function EmptyState({ title, children, command, actions }: EmptyStateProps): ReactNode {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children && <div>{children}</div>}
      {command && <CommandBox text={command} />}
      {actions && <div className="actions">{actions}</div>}
    </div>
  );
}

/** A command with a copy button. */
export function CommandBox({ text }: { text: string }): ReactNode {
  return (
    <div className="typed">
      <code>{text}</code>
      <CopyButton text={text} />
    </div>
  );
}

/** Text whose parts between backticks are code. */
export function CodeText({ text }: { text: string }): ReactNode {
  return text.split(/`([^`]+)`/).map((part, index) =>
    // biome-ignore lint/suspicious/noArrayIndexKey: parts of a text have no other key
    index % 2 ? <code key={index}>{part}</code> : part,
  );
}

type ErrorMessageProps = {
  error: unknown;
  retry?: (() => void) | undefined;
  /** What failed, shown before the message. */
  what?: string;
};

/** An error with its hint and a retry button. */
export function ErrorMessage({ error, retry, what }: ErrorMessageProps): ReactNode {
  const message = error instanceof Error ? error.message : String(error);
  const hint = error instanceof ApiError ? error.hint : null;
  return (
    <div className="failure" role="alert">
      <Icon name="warning" />
      <div className="message">
        <b>
          {what ? `${what}: ` : ""}
          <CodeText text={message} />
        </b>
        {hint && (
          <p>
            <CodeText text={hint} />
          </p>
        )}
      </div>
      {retry && (
        <button type="button" className="button small" onClick={retry}>
          Retry
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
