/** The value of each trial in order, and the best so far. Trials without a value are marked at the lower edge. */

import { type ReactNode, useCallback, useMemo } from "react";
import { makeScale } from "../compare/scales";
import { type Area, crossInk, Plot, paintAxes, paintCross, paintDot, toX, toY } from "./Plot";
import { intervalScale, type PlotData } from "./plotData";
import { runningBest } from "./trials";

const HEIGHT = 270;

export function HistoryPlot({ data }: { data: PlotData }): ReactNode {
  const scale = useMemo(() => intervalScale(data), [data]);
  const draw = useCallback(
    (width: number) => {
      const area: Area = { left: 56, top: 8, right: width - 8, bottom: HEIGHT - 34 };
      const across = makeScale([0, Math.max(1, data.points.length - 1)], "linear");
      const place = (index: number): number => toX(area, across.place(index) ?? 0);
      const marks = data.points.flatMap(({ row, value, look }, index) => {
        const at = look === "value" ? scale.place(value) : null;
        if (look === null || (look === "value" && at === null)) return [];
        const ends = look === "value" && row.value === value ? (row.interval ?? []) : [];
        const bar = ends.map((end) => scale.place(end)).filter((end) => end !== null);
        const y = at === null ? area.bottom + 24 : toY(area, at);
        return [{ x: place(index), y, row, look, bar: bar.map((end) => toY(area, end)) }];
      });
      const best = runningBest(data.points, data.maximize);
      const radius = data.points.length > 2000 ? 1.5 : data.points.length > 300 ? 2.2 : 3.2;
      const paint: ReturnType<Parameters<typeof Plot>[0]["draw"]>["paint"] = (g, ink) => {
        paintAxes(g, ink, area, across, scale);
        g.globalAlpha = data.points.length > 2000 ? 0.55 : 0.85;
        for (const { x, y, look, bar } of marks) {
          if (look === "value") {
            if (bar.length === 2) paintBar(g, x, bar, ink.series);
            g.fillStyle = ink.series;
            paintDot(g, x, y, radius);
          } else {
            g.strokeStyle = crossInk(ink, look);
            paintCross(g, x, y);
          }
        }
        g.globalAlpha = 1;
        g.strokeStyle = ink.best;
        g.lineWidth = 2;
        g.beginPath();
        let before: number | null = null;
        best.forEach((value, index) => {
          const at = value === null ? null : scale.place(value);
          if (at === null) return;
          const [x, y] = [place(index), toY(area, at)];
          if (before === null) g.moveTo(x, y);
          else {
            g.lineTo(x, before);
            g.lineTo(x, y);
          }
          before = y;
        });
        g.stroke();
      };
      return { paint, marks };
    },
    [data, scale],
  );
  const isRepeated = data.points.some(({ row }) => row.interval);
  const label = `${data.metric} of ${data.points.length} trials in order, with the best so far`;
  return (
    <>
      <Plot label={label} height={HEIGHT} draw={draw} describe={data.describe} />
      <ul className="plot-key">
        <li className="is-series">{isRepeated ? `${data.metric}: mean and its 95 % interval` : data.metric}</li>
        <li className="is-best">best so far</li>
        <li className="is-bad">failed or invalid</li>
        <li className="is-warn">not a number</li>
      </ul>
    </>
  );
}

/** The interval of a mean. */
function paintBar(g: CanvasRenderingContext2D, x: number, ends: number[], colour: string): void {
  g.strokeStyle = colour;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(x, ends[0] as number);
  g.lineTo(x, ends[1] as number);
  g.stroke();
}
