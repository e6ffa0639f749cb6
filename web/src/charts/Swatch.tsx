/** A short piece of a line as the chart draws it, for legends. */

import type { ReactNode } from "react";
import { dashOf, seriesColor, usePalette } from "./palette";

export function Swatch({ color, width = 22 }: { color: number; width?: number }): ReactNode {
  const stroke = seriesColor(usePalette(), color);
  return (
    <svg className="swatch" width={width} height="8" aria-hidden="true">
      <line
        x1="0"
        x2={width}
        y1="4"
        y2="4"
        stroke={stroke}
        strokeWidth="2.5"
        strokeDasharray={dashOf({ color }).join(" ")}
      />
    </svg>
  );
}
