import type { ReactNode } from "react";
import { memo } from "react";
import { statusText } from "./statusText";

type ChartConfig = { tone: string; shape: ReactNode };

const ring = <circle cx="7" cy="7" r="5.25" fill="none" stroke="currentColor" strokeWidth="1.5" />;
const disc = <circle cx="7" cy="7" r="6" fill="currentColor" />;
const line = { fill: "none", strokeWidth: 1.6, strokeLinecap: "round", strokeLinejoin: "round" } as const;
const onDisc = { ...line, stroke: "var(--bg)" } as const;
const own = { ...line, stroke: "currentColor" } as const;

// Each status has its own shape, because many people cannot tell the colours apart.
const LOOKS: Record<string, ChartConfig> = {
  created: {
    tone: "mute",
    shape: <circle cx="7" cy="7" r="5.25" {...own} strokeWidth={1.5} strokeDasharray="2 2.1" />,
  },
  waiting: {
    tone: "mute",
    shape: <circle cx="7" cy="7" r="5.25" {...own} strokeWidth={1.5} strokeDasharray="2 2.1" />,
  },
  resuming: { tone: "wait", shape: <path d="M11.8 7A4.8 4.8 0 1 1 9.6 3M9.4 1v2.6h-2.60" {...own} /> },
  building: {
    tone: "wait",
    shape: <path d="M2.50 11.50 7 7m-1-3.50a3 3 0 0 1 4.50-.5L8.50 5v1h1l2-2a3 3 0 0 1-.5 4.20" {...own} />,
  },
  scheduled: {
    tone: "wait",
    shape: (
      <>
        {ring}
        <path d="M7 4.20V7l1.80 1.30" {...own} strokeWidth={1.4} />
      </>
    ),
  },
  starting: {
    tone: "live",
    shape: (
      <>
        {ring}
        <path d="M7 1.80a5.20 5.20 0 0 1 0 10.40z" fill="currentColor" />
      </>
    ),
  },
  running: {
    tone: "live",
    shape: (
      <>
        <circle cx="7" cy="7" r="5.25" {...own} strokeWidth={1.6} opacity=".28" />
        <path className="turning" d="M7 1.75A5.25 5.25 0 0 1 12.25 7" {...own} strokeWidth={1.8} />
        <circle cx="7" cy="7" r="2" fill="currentColor" />
      </>
    ),
  },
  warning: { tone: "warn", shape: <path d="M7 1.60 13 12H1zM7 5.60v3M7 10.30v.1" {...own} strokeWidth={1.5} /> },
  unknown: {
    tone: "warn",
    shape: (
      <>
        {ring}
        <path d="M5.60 5.60a1.40 1.40 0 1 1 2 1.30c-.4.2-.6.4-.6.9M7 9.90V10" {...own} strokeWidth={1.3} />
      </>
    ),
  },
  succeeded: {
    tone: "ok",
    shape: (
      <>
        {disc}
        <path d="m4.30 7.20 1.90 1.90 3.50-3.90" {...onDisc} />
      </>
    ),
  },
  failed: {
    tone: "bad",
    shape: (
      <>
        {disc}
        <path d="m4.90 4.90 4.20 4.20m0-4.20L4.90 9.10" {...onDisc} />
      </>
    ),
  },
  stopped: { tone: "mute", shape: <rect x="2" y="2" width="10" height="10" rx="2.50" fill="currentColor" /> },
  skipped: { tone: "mute", shape: <path d="m2.50 3.50 3.50 3.50-3.50 3.50M7.50 3.50 11 7l-3.50 3.50" {...own} /> },
  upstream_failed: {
    tone: "bad",
    shape: (
      <path d="m7 1.30 5.70 5.70L7 12.70 1.30 7zM5.40 5.40l3.20 3.20m0-3.20L5.40 8.60" {...own} strokeWidth={1.4} />
    ),
  },
};
const OTHER: ChartConfig = { tone: "mute", shape: ring };

type Props = {
  status: string;
  /** Show only the icon; screen readers still read the status. */
  bare?: boolean;
  reason?: string | null;
  /** The text; that of the status by default. */
  label?: string;
};

/** The status of a run or replica: an icon that differs in shape and colour, and the text. */
export const StatusMark = memo(function StatusMark({ status, bare = false, reason, label }: Props): ReactNode {
  const { tone, shape } = LOOKS[status] ?? OTHER;
  const text = label ?? statusText(status);
  return (
    <span className={`status is-${tone}`} title={reason ? `${text}: ${reason}` : bare ? text : undefined}>
      <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">
        {shape}
      </svg>
      <span className={bare ? "hidden-text" : undefined}>{text}</span>
    </span>
  );
});

/** The colour variable of a status: `ok`, `bad`, `warn`, `live`, `wait` or `mute`. */
export const toneOf = (status: string): string => (LOOKS[status] ?? OTHER).tone;
