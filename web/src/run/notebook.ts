/** Reads a Jupyter notebook (nbformat 4), within bounds. */

export type NotebookOutput =
  | { kind: "text"; text: string; isError: boolean }
  | { kind: "image"; src: string }
  | { kind: "html"; html: string; text: string };

export type NotebookCell =
  | { kind: "markdown"; source: string }
  | { kind: "code"; source: string; count: number | null; outputs: NotebookOutput[]; isCut: boolean };

export type NotebookFile = { language: string; cells: NotebookCell[]; leftOut: number };

export const MAX_CELLS = 400;
const MAX_OUTPUTS = 40; // of a cell
const MAX_TEXT = 50_000; // characters of an output
const MAX_HTML = 500_000;
const MAX_IMAGE = 12_000_000;
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

type Raw = Record<string, unknown>;

const isRaw = (found: unknown): found is Raw => typeof found === "object" && found !== null && !Array.isArray(found);

/** Texts are strings or lists of lines. */
function textOf(found: unknown, most = MAX_TEXT): string {
  const text = Array.isArray(found) ? found.filter((line) => typeof line === "string").join("") : found;
  if (typeof text !== "string") return "";
  return text.length > most ? `${text.slice(0, most)}\n…` : text;
}

/** Throws an error with a reason for a file that is not a notebook. */
export function readNotebook(text: string): NotebookFile {
  const data: unknown = JSON.parse(text);
  if (!isRaw(data) || !Array.isArray(data.cells)) throw new Error("This file is not a notebook of nbformat 4.");
  const metadata = isRaw(data.metadata) ? data.metadata : {};
  const kernel = isRaw(metadata.language_info) ? metadata.language_info.name : "";
  const cells = data.cells.filter(isRaw);
  return {
    language: typeof kernel === "string" ? kernel : "",
    cells: cells.slice(0, MAX_CELLS).map(cellOf),
    leftOut: Math.max(0, cells.length - MAX_CELLS),
  };
}

function cellOf(cell: Raw): NotebookCell {
  const source = textOf(cell.source);
  if (cell.cell_type !== "code") return { kind: "markdown", source };
  const outputs = Array.isArray(cell.outputs) ? cell.outputs.filter(isRaw) : [];
  return {
    kind: "code",
    source,
    count: typeof cell.execution_count === "number" ? cell.execution_count : null,
    outputs: outputs.slice(0, MAX_OUTPUTS).flatMap(outputOf),
    isCut: outputs.length > MAX_OUTPUTS,
  };
}

function outputOf(output: Raw): NotebookOutput[] {
  if (output.output_type === "stream") {
    return [{ kind: "text", text: textOf(output.text), isError: output.name === "stderr" }];
  }
  if (output.output_type === "error") {
    const trace = Array.isArray(output.traceback) ? output.traceback.filter((line) => typeof line === "string") : [];
    const said = trace.length ? trace.join("\n") : `${String(output.ename)}: ${String(output.evalue)}`;
    return [{ kind: "text", text: textOf(said), isError: true }];
  }
  const data = isRaw(output.data) ? output.data : {};
  for (const type of IMAGES) {
    const encoded = textOf(data[type], MAX_IMAGE).replace(/\s+/g, "");
    if (/^[A-Za-z0-9+/]+=*$/.test(encoded)) return [{ kind: "image", src: `data:${type};base64,${encoded}` }];
  }
  const plain = textOf(data["text/plain"]);
  const html = textOf(data["text/html"], MAX_HTML);
  if (html) return [{ kind: "html", html, text: plain }];
  return plain ? [{ kind: "text", text: plain, isError: false }] : [];
}
