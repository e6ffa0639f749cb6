/** The spec of a run, its plan, the recorded machine and packages, and uncommitted code changes. */

import "./SpecTab.css";
import type { ReactNode } from "react";
import { ApiError, apiPath, type Json, useResource } from "../api";
import { useParam } from "../router";
import { CopyButton, EmptyState, ErrorMessage, Spinner } from "../ui";
import { CodeView, type Language } from "./CodeView";
import type { RunContext } from "./runContext";

type Part = { key: string; label: string; path: string; language: Language; none: string };

const PARTS: Part[] = [
  {
    key: "spec",
    label: "Spec",
    path: "spec",
    language: "yaml",
    none: "This run was tracked but not started by Phalanx.",
  },
  {
    key: "plan",
    label: "Plan",
    path: "plan",
    language: "json",
    none: "This run was tracked but not started by Phalanx.",
  },
  {
    key: "records",
    label: "Machine and packages",
    path: "records",
    language: "json",
    none: "Machine and packages were not recorded.",
  },
  {
    key: "diff",
    label: "Code changes",
    path: "code-diff",
    language: "diff",
    none: "No uncommitted changes, or the code is not in a Git repository.",
  },
];

export default function SpecTab({ context }: { context: RunContext }): ReactNode {
  const [show, setShow] = useParam("show", "spec");
  const part = PARTS.find((one) => one.key === show) ?? (PARTS[0] as Part);
  const response = useResource<Json>(`${apiPath`/runs/${context.run.id}`}/${part.path}`);
  const text = response.data === undefined || response.data === null ? "" : asText(response.data);
  return (
    <div className="spec">
      <div className="spec-bar">
        <div className="segments" role="group" aria-label="Document">
          {PARTS.map((one) => (
            <button key={one.key} type="button" aria-pressed={one === part} onClick={() => setShow(one.key)}>
              {one.label}
            </button>
          ))}
        </div>
        <span className="grow" />
        {text && <CopyButton text={text} label={`Copy ${part.label.toLowerCase()}`} />}
      </div>
      <PartContent part={part} text={text} response={response} />
    </div>
  );
}

function PartContent({
  part,
  text,
  response,
}: {
  part: Part;
  text: string;
  response: ReturnType<typeof useResource<Json>>;
}): ReactNode {
  if (response.error && response.data === undefined) {
    const isNone = response.error instanceof ApiError && response.error.status === 404;
    return isNone ? (
      <EmptyState title={`No ${part.label.toLowerCase()}`}>{part.none}</EmptyState>
    ) : (
      <ErrorMessage error={response.error} retry={response.reload} />
    );
  }
  if (response.data === undefined) return <Spinner />;
  if (!text.trim()) return <EmptyState title={`No ${part.label.toLowerCase()}`}>{part.none}</EmptyState>;
  return <CodeView text={text} language={part.language} label={part.label} />;
}

export function asText(found: Json): string {
  return typeof found === "string" ? found : JSON.stringify(found, null, 2);
}
