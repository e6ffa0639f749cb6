/** Which trial ran in which slot, and when. What is empty was idle. */

import { type ReactNode, useCallback, useMemo } from "react";
import { usePalette } from "../charts/palette";
import { clock, durationText, plural } from "../format";
import type { GroupDetails, TrialRow } from "../types";
import { useNow } from "../ui/hooks";
import { type Drawing, type Mark, Plot } from "./Plot";
import { type Slots, slotsOf } from "./trials";

const LEFT = 34;
const RIGHT = 10;
const AXIS = 22;
const MOST_HEIGHT = 640;

/** With tenths of a second, for groups of a few seconds. */
const exactClock = (at: number): string => `${clock(at)}.${Math.floor((at * 10) % 10)}`;

type Props = { rows: TrialRow[]; group: GroupDetails; isLive: boolean };

export function Timeline({ rows, group, isLive }: Props): ReactNode {
  const now = useNow(isLive ? 2000 : null);
  const slots = useMemo(() => slotsOf(rows, group.concurrency, now), [rows, group.concurrency, now]);
  if (!slots) return <p className="card-empty">No trial has started yet.</p>;
  const percent = (share: number): string => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
  return (
    <>
      <p className="group-note">
        {plural(slots.slots.length, "slot")} for {durationText(slots.last - slots.first)}: running{" "}
        {percent(slots.running)}, waiting to start {percent(slots.waiting)}, idle {percent(slots.idle)}.
      </p>
      <SlotPlot slots={slots} rungs={Math.max(...rows.map((row) => row.rung), 0) + 1} />
    </>
  );
}

function SlotPlot({ slots, rungs }: { slots: Slots; rungs: number }): ReactNode {
  const palette = usePalette();
  const row = Math.max(3, Math.min(26, Math.floor((MOST_HEIGHT - AXIS) / slots.slots.length)));
  const height = row * slots.slots.length + AXIS;
  const draw = useCallback(
    (width: number): Drawing => {
      const span = slots.last - slots.first;
      const toX = (at: number): number => LEFT + ((at - slots.first) / span) * (width - LEFT - RIGHT);
      const gap = row > 8 ? 2 : row > 4 ? 1 : 0;
      const marks: Mark[] = slots.slots.flatMap((slot, index) =>
        slot.map((stay) => ({ x: toX((stay.queued + stay.finished) / 2), y: (index + 0.5) * row, row: stay.row })),
      );
      return {
        marks,
        paint: (g, ink) => {
          for (const [index, slot] of slots.slots.entries()) {
            const top = index * row;
            g.fillStyle = ink.wait;
            g.globalAlpha = 0.4;
            g.fillRect(LEFT, top + gap / 2, width - LEFT - RIGHT, row - gap);
            for (const stay of slot) {
              const [from, start, to] = [toX(stay.queued), toX(stay.started), toX(stay.finished)];
              g.globalAlpha = 1;
              g.fillStyle = ink.soft;
              g.fillRect(from, top + row / 2 - 1, Math.max(0, start - from), 2);
              g.fillStyle = stay.isBad ? ink.bad : (palette.series[stay.rung % palette.series.length] as string);
              g.globalAlpha = stay.isOn ? 0.6 : 1;
              g.fillRect(start, top + gap / 2, Math.max(0.6, to - start - (to - start > 3 ? 0.7 : 0)), row - gap);
              if (to - start > 26 && row > 12) {
                g.globalAlpha = 1;
                g.fillStyle = ink.ground;
                g.textAlign = "center";
                g.fillText(String(stay.row.trial), (start + to) / 2, top + row / 2 + 4);
              }
            }
            g.globalAlpha = 1;
            if (row > 10) {
              g.fillStyle = ink.text;
              g.textAlign = "right";
              g.fillText(String(index + 1), LEFT - 6, top + row / 2 + 4);
            }
          }
          g.fillStyle = ink.text;
          g.textAlign = "center";
          const ticks = Math.max(1, Math.min(8, Math.floor(width / 110)));
          for (let tick = 0; tick <= ticks; tick += 1) {
            const at = slots.first + (span * tick) / ticks;
            g.textAlign = tick === 0 ? "left" : tick === ticks ? "right" : "center";
            g.fillText(span / ticks < 2 ? exactClock(at) : clock(at), toX(at), height - 6);
          }
        },
      };
    },
    [slots, row, height, palette],
  );
  const describe = useCallback(
    (found: TrialRow) => {
      const lines = found.attempts.map((one) => {
        const took = (Date.parse(one.finished_at ?? "") - Date.parse(one.started_at ?? "")) / 1000;
        return `attempt ${one.attempt}${rungs > 1 ? `, rung ${one.rung}` : ""}: ${Number.isFinite(took) ? durationText(took) : "running"}`;
      });
      return [`trial ${found.trial}: ${found.state}`, ...lines].join("\n");
    },
    [rungs],
  );
  return (
    <>
      <Plot
        label={`${plural(slots.slots.length, "slot")} over time`}
        height={height}
        draw={draw}
        describe={describe}
        reach={60}
      />
      <ul className="plot-key">
        {rungs > 1 ? (
          Array.from({ length: Math.min(rungs, 8) }, (_, rung) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: a rung is its number
            <li key={rung} className={`is-rung-${rung}`}>
              rung {rung}
            </li>
          ))
        ) : (
          <li className="is-rung-0">running</li>
        )}
        <li className="is-line">waiting to start</li>
        <li className="is-bad">failed</li>
        <li className="is-idle">idle</li>
      </ul>
    </>
  );
}
