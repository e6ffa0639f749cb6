/** The charts that are pinned in a project, for all its runs and users. */

import { useCallback, useEffect, useRef, useState } from "react";
import { ApiError, queryString, requestTagged, type Tagged } from "../api";
import { notify } from "../ui";

/** One chart with one or several metrics. An empty `x` is that of the page. */
export type Panel = { title: string; metrics: string[]; x: string; log_y: boolean };

export const panelOf = (metrics: string[]): Panel => ({ title: "", metrics, x: "", log_y: false });

export const panelTitle = ({ title, metrics }: Panel): string => title || metrics.join(", ");

/** Equal for panels that show the same. */
export const panelKey = ({ metrics, x }: Panel): string => JSON.stringify([metrics, x]);

export const hasPanel = (panels: readonly Panel[], panel: Panel): boolean =>
  panels.some((one) => panelKey(one) === panelKey(panel));

export const toggledPanel = (panels: readonly Panel[], panel: Panel): Panel[] =>
  hasPanel(panels, panel) ? panels.filter((one) => panelKey(one) !== panelKey(panel)) : [...panels, panel];

/** Moves a panel by one place. */
export function movedPanel(panels: readonly Panel[], panel: Panel, by: -1 | 1): Panel[] {
  const from = panels.findIndex((one) => panelKey(one) === panelKey(panel));
  const to = from + by;
  if (from < 0 || to < 0 || to >= panels.length) return [...panels];
  const found = [...panels];
  [found[from], found[to]] = [found[to] as Panel, found[from] as Panel];
  return found;
}

type Layout = { charts: Panel[] };
export type PinnedCharts = { panels: Panel[]; change: (edit: (panels: readonly Panel[]) => Panel[]) => void };

export function usePinnedCharts(project: string): PinnedCharts {
  const path = `/layout${queryString({ project })}`;
  const known = useRef<Tagged<Layout> | null>(null);
  const [panels, setPanels] = useState<Panel[]>([]);
  const load = useCallback(async () => {
    known.current = await requestTagged<Layout>("GET", path);
    setPanels(known.current.data.charts);
  }, [path]);
  useEffect(() => {
    load().catch(() => setPanels([])); // the charts themselves report that the server is away
  }, [load]);
  const change = useCallback(
    (edit: (panels: readonly Panel[]) => Panel[]) => {
      const save = async () => {
        const charts = edit(known.current?.data.charts ?? []);
        setPanels(charts);
        const headers = { "If-Match": known.current?.tag ?? "" };
        known.current = await requestTagged<Layout>("PUT", path, { charts }, { headers });
      };
      const again = async (error: unknown) => {
        if (!(error instanceof ApiError) || error.status !== 412) throw error;
        await load(); // someone else changed it: the edit is made on theirs
        await save();
      };
      save()
        .catch(again)
        .catch((error: unknown) => {
          notify(`Cannot pin: ${error instanceof Error ? error.message : error}`, { bad: true });
          void load();
        });
    },
    [path, load],
  );
  return { panels, change };
}
