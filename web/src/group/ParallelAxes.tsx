/** An axis per param and one for the metric, a line per trial. The best are drawn last and strongest. */

import { type ReactNode, useCallback, useMemo } from "react";
import { gradient } from "../compare/colours";
import { count } from "../format";
import { useEffectiveTheme } from "../theme";
import { type Drawing, type Mark, Plot } from "./Plot";
import { type PlotData, paramScale, placeOn } from "./plotData";
import { sampled } from "./trials";

const HEIGHT = 330;
const TOP = 30;
const BOTTOM = 16;
const SIDE = 52;
const AXIS_WIDTH = 92;
const MOST_LINES = 1500;
const MOST_AXES = 16;

export function ParallelAxes({ data }: { data: PlotData }): ReactNode {
  const theme = useEffectiveTheme();
  const shown = useMemo(() => {
    const found = sampled(data.measured, data.maximize, MOST_LINES);
    return [...found].sort((a, b) => a.good - b.good);
  }, [data]);
  const axes = useMemo(
    () => [
      ...data.dimensions.slice(0, MOST_AXES).map((dimension) => {
        const scale = paramScale(dimension, data.points);
        return {
          name: dimension.name,
          scale,
          place: (one: (typeof shown)[number]) => placeOn(scale, dimension, one.row),
        };
      }),
      { name: data.metric, scale: data.scale, place: (one: (typeof shown)[number]) => data.scale.place(one.value) },
    ],
    [data],
  );
  const draw = useCallback(
    (width: number): Drawing => {
      const toAxis = (index: number): number => SIDE + (index * (width - 2 * SIDE)) / Math.max(1, axes.length - 1);
      const toUp = (at: number): number => TOP + (1 - at) * (HEIGHT - TOP - BOTTOM);
      const lines = shown.map((one) => axes.map((axis) => axis.place(one)));
      const marks: Mark[] = [];
      for (const [index, one] of shown.entries()) {
        for (const [axis, at] of (lines[index] as (number | null)[]).entries()) {
          if (at !== null) marks.push({ x: toAxis(axis), y: toUp(at), row: one.row });
        }
      }
      return {
        marks: marks.reverse(), // the best first, if several are equally near
        paint: (g, ink) => {
          for (const [index, one] of shown.entries()) {
            g.strokeStyle = gradient(one.good, theme);
            g.globalAlpha = 0.12 + 0.75 * one.good ** 3;
            g.lineWidth = one.good > 0.95 ? 1.8 : 1;
            g.beginPath();
            let isDown = false;
            for (const [axis, at] of (lines[index] as (number | null)[]).entries()) {
              if (at === null) {
                isDown = false;
                continue;
              }
              if (isDown) g.lineTo(toAxis(axis), toUp(at));
              else g.moveTo(toAxis(axis), toUp(at));
              isDown = true;
            }
            g.stroke();
          }
          g.globalAlpha = 1;
          for (const [index, axis] of axes.entries()) {
            const x = Math.round(toAxis(index)) + 0.5;
            g.strokeStyle = ink.soft;
            g.lineWidth = 1;
            g.beginPath();
            g.moveTo(x, TOP);
            g.lineTo(x, HEIGHT - BOTTOM);
            g.stroke();
            g.textAlign = "center";
            g.font = "600 12px system-ui, sans-serif";
            g.fillStyle = ink.text;
            g.fillText(axis.name.length > 13 ? `${axis.name.slice(0, 12)}…` : axis.name, x, 14);
            g.font = "11px system-ui, sans-serif";
            g.textAlign = "left";
            for (const tick of axis.scale.ticks) {
              const text = tick.label.length > 11 ? `${tick.label.slice(0, 10)}…` : tick.label;
              g.lineWidth = 3;
              g.strokeStyle = ink.ground;
              g.strokeText(text, x + 5, toUp(tick.at) + 4);
              g.fillText(text, x + 5, toUp(tick.at) + 4);
            }
          }
        },
      };
    },
    [axes, shown, theme],
  );
  const hidden = data.dimensions.length - MOST_AXES;
  return (
    <>
      <Plot
        label={`Parallel axes of ${shown.length} trials`}
        height={HEIGHT}
        minWidth={axes.length * AXIS_WIDTH}
        draw={draw}
        describe={data.describe}
      />
      <p className="group-note">
        {shown.length < data.measured.length &&
          `Showing ${count(shown.length)} of ${count(data.measured.length)} trials: the best ones and a sample of the rest. `}
        {hidden > 0 && `Showing the first ${MOST_AXES} params. `}
        Better trials are brighter and drawn on top.
      </p>
    </>
  );
}
