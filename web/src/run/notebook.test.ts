import { describe, expect, it } from "vitest";
import { MAX_CELLS, readNotebook } from "./notebook";
import { resolvedPath, resolvers } from "./outputs";

const code = (outputs: unknown[]) => ({ cell_type: "code", source: ["a\n", "b"], execution_count: 3, outputs });
const read = (cells: unknown[]) =>
  readNotebook(JSON.stringify({ cells, metadata: { language_info: { name: "python" } } }));

describe("a notebook", () => {
  it("has cells with texts, images and HTML", () => {
    const { cells, language } = read([
      { cell_type: "markdown", source: "# Title" },
      code([
        { output_type: "stream", name: "stderr", text: ["x\n"] },
        { output_type: "display_data", data: { "image/png": "aGk=\n", "text/plain": "<Figure>" } },
        { output_type: "execute_result", data: { "text/html": ["<b>", "x</b>"], "text/plain": "x" } },
        { output_type: "error", ename: "E", evalue: "bad", traceback: ["\u001b[31mE\u001b[0m: bad"] },
      ]),
    ]);
    expect(language).toBe("python");
    expect(cells[0]).toEqual({ kind: "markdown", source: "# Title" });
    expect(cells[1]).toEqual({
      kind: "code",
      source: "a\nb",
      count: 3,
      isCut: false,
      outputs: [
        { kind: "text", text: "x\n", isError: true },
        { kind: "image", src: "data:image/png;base64,aGk=" },
        { kind: "html", html: "<b>x</b>", text: "x" },
        { kind: "text", text: "\u001b[31mE\u001b[0m: bad", isError: true },
      ],
    });
  });

  it("is bounded, and wrong ones are refused", () => {
    expect(read(Array(MAX_CELLS + 5).fill(code([]))).leftOut).toBe(5);
    expect(
      read([code([{ output_type: "display_data", data: { "image/png": "javascript:alert(1)" } }])]).cells[0],
    ).toMatchObject({ outputs: [] });
    expect(read([null, 3, code([null, 3]), { cell_type: "code" }]).cells).toHaveLength(2);
    expect(() => readNotebook("{}")).toThrow("not a notebook");
    expect(() => readNotebook("{")).toThrow();
  });
});

describe("addresses in texts of a run", () => {
  it("lead to its files and never out of its folder", () => {
    expect(resolvedPath("outputs/docs", "../plots/a.png?x#y")).toBe("outputs/plots/a.png");
    expect(resolvedPath("outputs", "./a/./b.md")).toBe("outputs/a/b.md");
    expect(resolvedPath("outputs", "../../../etc/passwd")).toBeNull();
    expect(resolvedPath("outputs", "#part")).toBe("outputs");
    const notes = resolvers("r 1", null);
    expect(notes.resolveImage("loss.png")).toBe("/api/v1/runs/r%201/view/outputs/loss.png");
    expect(notes.resolveImage("artifacts/a b.png")).toBe("/api/v1/runs/r%201/view/artifacts/a%20b.png");
    expect(notes.resolveLink("report.md")).toBe("/runs/r%201/outputs?path=outputs%2Freport.md");
    expect(notes.resolveLink("/runs/abc")).toBe("/runs/abc");
    expect(notes.resolveLink("/api/v1/runs/abc/view/outputs/x.html")).not.toContain("/api/");
  });
});
