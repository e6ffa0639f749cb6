/** Two params against each other: how good the trials around each point are. */

import { type ReactNode, useCallback, useMemo } from "react";
import { gradient } from "../compare/colours";
import type { Scale } from "../compare/scales";
import { useParam } from "../router";
import { useEffectiveTheme } from "../theme";
import type { Dimension } from "../types";
import {
  type Area,
  crossInk,
  type Drawing,
  type Mark,
  PADDING,
  Plot,
  paintAxes,
  paintCross,
  paintDot,
  toX,
  toY,
} from "./Plot";
import { type PlotData, paramScale, placeOn } from "./plotData";
import { surface } from "./trials";

const HEIGHT = 380;
const BANDS = 10;

export function Contour({ data, order }: { data: PlotData; order: string[] }): ReactNode {
  const [first = "", second = ""] = order;
  const [nameX, setX] = useParam("x", first);
  const [nameY, setY] = useParam("y", second);
  const named = (name: string): Dimension | undefined => data.dimensions.find((one) => one.name === name);
  const [x, y] = [named(nameX) ?? named(first), named(nameY) ?? named(second)];
  if (!x || !y) return null;
  return (
    <>
      <div className="group-controls">
        <ParamChoice label="X axis" value={x.name} data={data} onChange={setX} />
        <ParamChoice label="Y axis" value={y.name} data={data} onChange={setY} />
      </div>
      {x === y ? <p className="card-empty">Choose two different params.</p> : <Surface data={data} x={x} y={y} />}
    </>
  );
}

type ChoiceProps = { label: string; value: string; data: PlotData; onChange: (name: string) => void };

function ParamChoice({ label, value, data, onChange }: ChoiceProps): ReactNode {
  return (
    <label className="row">
      <span className="soft">{label}</span>
      <select className="field small-field" value={value} onChange={(event) => onChange(event.target.value)}>
        {data.dimensions.map(({ name }) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

/** How far a trial is seen, as a share of the axis. */
const blur = (scale: Scale): number => (scale.kind === "category" ? 0.3 / Math.max(1, scale.categories.length) : 0.07);

function Surface({ data, x, y }: { data: PlotData; x: Dimension; y: Dimension }): ReactNode {
  const theme = useEffectiveTheme();
  const [scaleX, scaleY] = useMemo(() => [paramScale(x, data.points), paramScale(y, data.points)], [x, y, data.points]);
  const draw = useCallback(
    (width: number): Drawing => {
      const area: Area = { left: 62, top: 8, right: width - 8, bottom: HEIGHT - 22 };
      const spots = data.measured.flatMap((one) => {
        const [atX, atY] = [placeOn(scaleX, x, one.row), placeOn(scaleY, y, one.row)];
        return atX === null || atY === null ? [] : [{ x: atX, y: atY, good: one.good, row: one.row }];
      });
      const failed = data.points.flatMap(({ row, look }) => {
        if (look === null || look === "value") return [];
        const [atX, atY] = [placeOn(scaleX, x, row), placeOn(scaleY, y, row)];
        return atX === null || atY === null ? [] : [{ x: toX(area, atX), y: toY(area, atY), row, look }];
      });
      const marks: Mark[] = [
        ...spots.map((one) => ({ x: toX(area, one.x), y: toY(area, one.y), row: one.row })),
        ...failed,
      ];
      const inner = (at: number): number => PADDING + at * (1 - 2 * PADDING);
      const padded = spots.map((one) => ({ ...one, x: inner(one.x), y: inner(one.y) }));
      const cells = surface(padded, blur(scaleX), blur(scaleY));
      return {
        marks,
        paint: (g, ink) => {
          // Cells end at whole pixels: they neither overlap nor leave gaps.
          const edge = (from: number, to: number, place: number): number =>
            Math.round(from + ((to - from) * place) / cells.length);
          for (const [row, values] of cells.entries()) {
            for (const [column, value] of values.entries()) {
              if (Number.isNaN(value)) continue;
              g.fillStyle = gradient(Math.min(BANDS - 1, Math.floor(value * BANDS)) / (BANDS - 1), theme);
              g.globalAlpha = 0.55;
              const [left, right] = [column, column + 1].map((place) => edge(area.left, area.right, place));
              const [bottom, top] = [row, row + 1].map((place) => edge(area.bottom, area.top, place));
              g.fillRect(
                left as number,
                top as number,
                (right as number) - (left as number),
                (bottom as number) - (top as number),
              );
            }
          }
          g.globalAlpha = 1;
          paintAxes(g, ink, area, scaleX, scaleY);
          for (const mark of marks.slice(0, spots.length)) {
            g.fillStyle = ink.ground;
            paintDot(g, mark.x, mark.y, spots.length > 1000 ? 1.3 : 2.9);
            g.fillStyle = ink.text;
            paintDot(g, mark.x, mark.y, spots.length > 1000 ? 0.9 : 1.9);
          }
          g.lineWidth = 1.4;
          for (const mark of failed) {
            g.strokeStyle = crossInk(ink, mark.look);
            paintCross(g, mark.x, mark.y, 3);
          }
        },
      };
    },
    [data, x, y, scaleX, scaleY, theme],
  );
  const parts = Array.from({ length: BANDS }, (_, index) => gradient(index / (BANDS - 1), theme));
  return (
    <>
      <Plot
        label={`${data.metric} over ${x.name} and ${y.name}`}
        height={HEIGHT}
        draw={draw}
        describe={data.describe}
      />
      <p className="group-note row">
        worst
        <svg width="110" height="10" aria-hidden="true">
          {parts.map((fill, index) => (
            <rect key={fill} x={index * 11} width="11.5" height="10" fill={fill} />
          ))}
        </svg>
        best (by rank)
      </p>
    </>
  );
}
