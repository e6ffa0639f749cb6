/** One plot per param: its values against those of the metric. Later trials are violet. */

import { type ReactNode, useCallback, useMemo } from "react";
import { LazyMount } from "../charts/LazyMount";
import { gradient } from "../compare/colours";
import { useEffectiveTheme } from "../theme";
import type { Dimension } from "../types";
import { type Area, crossInk, Plot, paintAxes, paintCross, paintDot, toX, toY } from "./Plot";
import { type PlotData, paramScale, placeOn } from "./plotData";

const HEIGHT = 200;

export function Slices({ data }: { data: PlotData }): ReactNode {
  return (
    <div className="group-grid">
      {data.dimensions.map((dimension) => (
        <figure key={dimension.name} className="group-slice">
          <figcaption className="cut" title={dimension.kind}>
            {dimension.name}
          </figcaption>
          <LazyMount height={HEIGHT}>{() => <Slice data={data} dimension={dimension} />}</LazyMount>
        </figure>
      ))}
    </div>
  );
}

function Slice({ data, dimension }: { data: PlotData; dimension: Dimension }): ReactNode {
  const theme = useEffectiveTheme();
  const scale = useMemo(() => paramScale(dimension, data.points), [dimension, data.points]);
  const draw = useCallback(
    (width: number) => {
      const area: Area = { left: 52, top: 4, right: width - 6, bottom: HEIGHT - 32 };
      const last = Math.max(1, data.points.length - 1);
      const marks = data.points.flatMap(({ row, value, look }) => {
        const x = placeOn(scale, dimension, row);
        const y = look === "value" ? data.scale.place(value) : null;
        if (x === null || look === null || (look === "value" && y === null)) return [];
        return [{ x: toX(area, x), y: y === null ? area.bottom + 24 : toY(area, y), row, look }];
      });
      return {
        marks,
        paint: (g: CanvasRenderingContext2D, ink) => {
          paintAxes(g, ink, area, scale, data.scale);
          g.globalAlpha = marks.length > 2000 ? 0.5 : 0.8;
          for (const { x, y, row, look } of marks) {
            if (look === "value") {
              g.fillStyle = gradient(1 - row.trial / last, theme);
              paintDot(g, x, y, marks.length > 2000 ? 1.5 : 2.8);
            } else {
              g.strokeStyle = crossInk(ink, look);
              paintCross(g, x, y, 3);
            }
          }
        },
      } satisfies ReturnType<Parameters<typeof Plot>[0]["draw"]>;
    },
    [data, dimension, scale, theme],
  );
  const label = `${data.metric} against ${dimension.name}`;
  return <Plot label={label} height={HEIGHT} draw={draw} describe={data.describe} />;
}
