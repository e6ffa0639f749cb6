/** What the run was asked to be: the file, the plan made of it, what was recorded at its start, and changes of the code. */

import "./SpecTab.css";
import type { ReactNode } from "react";
import { ApiError, apiPath, type Json, useResource } from "../api";
import { useParam } from "../router";
import { CopyButton, EmptyState, ErrorMessage, Spinner } from "../ui";
import { Code, type Language } from "./CodeView";
import type { Known } from "./runContext";

type Part = { key: string; label: string; path: string; language: Language; none: string };

const PARTS: Part[] = [
  {
    key: "spec",
    label: "Spec",
    path: "spec",
    language: "yaml",
    none: "This run came without a file: it was tracked, not started.",
  },
  {
    key: "plan",
    label: "Plan",
    path: "plan",
    language: "json",
    none: "There is no plan: it was tracked, not started.",
  },
  {
    key: "records",
    label: "Machine and packages",
    path: "records",
    language: "json",
    none: "Nothing was recorded of machine and packages.",
  },
  {
    key: "diff",
    label: "Code changes",
    path: "code-diff",
    language: "diff",
    none: "The code had no changes that were not committed, or is not in Git.",
  },
];

export default function SpecTab({ known }: { known: Known }): ReactNode {
  const [show, setShow] = useParam("show", "spec");
  const part = PARTS.find((one) => one.key === show) ?? (PARTS[0] as Part);
  const answer = useResource<Json>(`${apiPath`/runs/${known.run.id}`}/${part.path}`);
  const text = answer.data === undefined || answer.data === null ? "" : asText(answer.data);
  return (
    <div className="spec">
      <div className="spec-bar">
        <div className="segments" role="group" aria-label="What is shown">
          {PARTS.map((one) => (
            <button key={one.key} type="button" aria-pressed={one === part} onClick={() => setShow(one.key)}>
              {one.label}
            </button>
          ))}
        </div>
        <span className="grow" />
        {text && <CopyButton text={text} label={`Copy ${part.label.toLowerCase()}`} />}
      </div>
      <Shown part={part} text={text} answer={answer} />
    </div>
  );
}

function Shown({
  part,
  text,
  answer,
}: {
  part: Part;
  text: string;
  answer: ReturnType<typeof useResource<Json>>;
}): ReactNode {
  if (answer.error && answer.data === undefined) {
    const isNone = answer.error instanceof ApiError && answer.error.status === 404;
    return isNone ? (
      <EmptyState title="There is none">{part.none}</EmptyState>
    ) : (
      <ErrorMessage error={answer.error} retry={answer.reload} />
    );
  }
  if (answer.data === undefined) return <Spinner />;
  if (!text.trim()) return <EmptyState title="There is none">{part.none}</EmptyState>;
  return <Code text={text} language={part.language} label={part.label} />;
}

export function asText(found: Json): string {
  return typeof found === "string" ? found : JSON.stringify(found, null, 2);
}
