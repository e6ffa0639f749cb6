/** Downloads a chart as PNG, SVG or CSV. */

import type { ReactNode } from "react";
import { Icon, Menu, notify } from "../ui";
import { type ChartPicture, chartSvg } from "./chartSvg";
import { download, pngOf } from "./downloads";

const SIZE = { width: 900, height: 450 };

type Props = {
  name: string;
  picture: () => ChartPicture;
  /** The text of the CSV file. */
  csv: () => Promise<string>;
};

export function ExportMenu({ name, picture, csv }: Props): ReactNode {
  const save = async (kind: "png" | "svg" | "csv"): Promise<void> => {
    try {
      if (kind === "csv") return download(`${name}.csv`, new Blob([await csv()], { type: "text/csv;charset=utf-8" }));
      const text = chartSvg({ ...picture(), ...SIZE });
      const blob =
        kind === "svg" ? new Blob([text], { type: "image/svg+xml" }) : await pngOf(text, SIZE.width, SIZE.height);
      download(`${name}.${kind}`, blob);
    } catch (error) {
      notify(error instanceof Error ? error.message : String(error), { bad: true });
    }
  };
  return (
    <Menu
      label={<Icon name="download" size={13} />}
      name={`Export ${name}`}
      className="button plain icon small"
      alignRight
    >
      {(close) =>
        (["png", "svg", "csv"] as const).map((kind) => (
          <button
            key={kind}
            type="button"
            className="menu-item"
            onClick={() => {
              close();
              void save(kind);
            }}
          >
            {kind.toUpperCase()}
          </button>
        ))
      }
    </Menu>
  );
}
