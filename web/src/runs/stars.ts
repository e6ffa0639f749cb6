// The runs that the user has starred.

import { useCallback, useMemo, useState } from "react";
import { apiPath, asApiError, del, put, type RunRow, refresh, useResource } from "../api";
import { notify } from "../ui";

/** The stars, and a function that adds or removes one. A change is shown before the server has it. */
export function useStars(): { stars: ReadonlySet<string>; toggle: (run: RunRow) => void } {
  const { data } = useResource<{ runs: string[] }>("/stars");
  const [changes, setChanges] = useState<ReadonlyMap<string, boolean>>(new Map());
  const stars = useMemo(() => {
    const found = new Set(data?.runs);
    for (const [id, starred] of changes) starred ? found.add(id) : found.delete(id);
    return found;
  }, [data, changes]);
  const toggle = useCallback(
    (run: RunRow): void => {
      const starred = !stars.has(run.id);
      const change = (to: boolean): void => setChanges((now) => new Map(now).set(run.id, to));
      change(starred);
      const path = apiPath`/runs/${run.id}/star`;
      (starred ? put(path) : del(path)).then(
        () => refresh("/stars"),
        (error: unknown) => {
          change(!starred);
          notify(asApiError(error).message, { bad: true });
        },
      );
    },
    [stars],
  );
  return { stars, toggle };
}
