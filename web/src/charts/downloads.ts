/** Files that the page makes: CSV, SVG and PNG. */

import type { Line } from "./types";

export function download(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = fileName(name);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Without what file systems or shells dislike. */
export function fileName(name: string): string {
  const cut = name.lastIndexOf(".");
  const clean = (text: string) => text.replace(/[^\p{L}\p{N}._ -]+/gu, "_").replace(/^[. ]+/, "");
  return `${clean(name.slice(0, cut)).slice(0, 120) || "chart"}.${clean(name.slice(cut + 1))}`;
}

/** A cell of a CSV file. Text that a spreadsheet would run as a formula gets an apostrophe; numbers stay as they are. */
export function csvCell(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = String(value);
  const safe = /^[\s]*[=+\-@]/.test(text) || /^[\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csvText(head: readonly string[], rows: Iterable<readonly unknown[]>): string {
  const lines = [head.map(csvCell).join(",")];
  for (const row of rows) lines.push(row.map(csvCell).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

/** The points of lines as they are drawn. */
export function linesCsv(lines: readonly Line[], x: string): string {
  const rows = lines.flatMap((line) =>
    line.x.map((place, at) => [
      line.label,
      place,
      line.y[at],
      line.low?.[at],
      line.high?.[at],
      line.ranks?.[at] ?? line.of,
    ]),
  );
  return csvText(["line", x, "value", "low", "high", "ranks"], rows);
}

/** Twice as large, for print and sharp screens. */
export async function pngOf(svg: string, width: number, height: number, factor = 2): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width * factor, height * factor];
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser cannot draw images.");
  context.scale(factor, factor);
  context.drawImage(image, 0, 0, width, height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((found) => (found ? resolve(found) : reject(new Error("The image is too large."))), "image/png"),
  );
}
