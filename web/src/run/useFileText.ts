import { useEffect, useState } from "react";
import { apiPath, asApiError, get } from "../api";
import { pathPart } from "./outputs";

export type FileText = { text: string | null; error: Error | null };

/** The text of an output file. */
export function useFileText(id: string, path: string): FileText {
  const [found, setFound] = useState<FileText>({ text: null, error: null });
  useEffect(() => {
    const pending = new AbortController();
    setFound({ text: null, error: null });
    get<unknown>(`${apiPath`/runs/${id}/outputs`}/${pathPart(path)}`, { signal: pending.signal }).then(
      (text) => setFound({ text: typeof text === "string" ? text : JSON.stringify(text), error: null }),
      (error: unknown) => pending.signal.aborted || setFound({ text: null, error: asApiError(error) }),
    );
    return () => pending.abort();
  }, [id, path]);
  return found;
}
