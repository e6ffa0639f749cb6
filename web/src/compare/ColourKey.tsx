/** The legend of the colours of a plot. */

import "./ColourKey.css";
import { usePalette } from "../charts";
import { seriesColor } from "../charts/palette";
import { useEffectiveTheme } from "../theme";
import { gradient } from "./colours";
import { fieldTitle } from "./fields";
import { type Scale, shortNumber } from "./scales";

const PARTS = 24;

// Circle, square, triangle and diamond: categories also differ in shape.
const SHAPES = [
  "M5.5 0a5.5 5.5 0 1 1-11 0a5.5 5.5 0 1 1 11 0z",
  "M-5-5h10v10h-10z",
  "M0-6.5L6 5H-6z",
  "M0-7L7 0L0 7L-7 0z",
];

export const shapePath = (index: number): string => SHAPES[index % SHAPES.length] as string;

export function ColourKey({ field, scale }: { field: string; scale: Scale }) {
  const palette = usePalette();
  const theme = useEffectiveTheme();
  if (scale.kind === "category") {
    return (
      <ul className="colour-key" aria-label={`Colours: ${fieldTitle(field)}`}>
        {scale.categories.slice(0, 12).map((name, index) => (
          <li key={name}>
            <svg width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true">
              <path d={shapePath(index)} fill={seriesColor(palette, index)} />
            </svg>{" "}
            {name}
          </li>
        ))}
      </ul>
    );
  }
  const parts = Array.from({ length: PARTS }, (_, index) => gradient(index / (PARTS - 1), theme));
  return (
    <div className="colour-key">
      <span>{fieldTitle(field)}</span>
      <span className="number">{shortNumber(scale.lowest)}</span>
      <svg width="120" height="10" aria-hidden="true">
        {parts.map((fill, index) => (
          <rect key={fill} x={(index * 120) / PARTS} width={120 / PARTS + 0.5} height="10" fill={fill} />
        ))}
      </svg>
      <span className="number">{shortNumber(scale.highest)}</span>
    </div>
  );
}
