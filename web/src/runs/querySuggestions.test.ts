import { describe, expect, it } from "vitest";
import {
  accept,
  errorPosition,
  isComplete,
  type KnownValues,
  normalizeQuery,
  quoted,
  suggest,
  termsOf,
  termValue,
  withTerm,
} from "./querySuggestions";

const known: KnownValues = {
  params: ["lr", "batch_size", "a:b"],
  metrics: ["loss", "val/loss"],
  values: { project: ["vision", "language"], tags: ["nightly", "two words", "a,b"], "params.lr": ["0.1", "0.01"] },
};
const now = new Date("2026-03-31T12:00:00Z");
const texts = (text: string, caret = text.length): string[] =>
  suggest(text, caret, known, now).items.map((item) => item.text);

/** The query after accepting the suggestion that starts with `wanted`. */
function accepted(text: string, wanted: string, caret = text.length): [string, number] {
  const found = suggest(text, caret, known, now);
  const item = found.items.find((one) => one.text.startsWith(wanted));
  if (!item) throw new Error(`${wanted} is not among ${found.items.map((one) => one.text)}`);
  return accept(text, found, item);
}

describe("a query", () => {
  it("is split at commas, colons and bars outside quotes", () => {
    const [first, second] = termsOf('name:"a,b:c|d", status:running|failed');
    expect(first?.value?.text).toBe('"a,b:c|d"');
    expect(second?.field.text).toBe("status");
    expect(second?.alternatives.map((piece) => piece.text)).toEqual(["running", "failed"]);
  });

  it("is complete when every term has a known field and a value", () => {
    for (const text of [
      "",
      "status:running",
      "metric.loss:<0.1, params.lr:0.1",
      "min.val/loss:<0.1",
      'name:"a, b"',
      "status:~failed",
      "status:a,",
    ]) {
      expect([text, isComplete(text)]).toEqual([text, true]);
    }
    for (const text of [
      "sta",
      "status:",
      "metric.loss:<",
      "stats:x",
      'name:"a',
      "status:running|",
      "metric.:1",
      "name:%",
    ]) {
      expect([text, isComplete(text)]).toEqual([text, false]);
    }
  });

  it("of a bare word searches in names", () => {
    expect(normalizeQuery("resnet")).toBe("name:%resnet%");
    expect(normalizeQuery("resnet, status:failed")).toBe("name:%resnet%, status:failed");
    expect(normalizeQuery("status:failed")).toBe("status:failed");
  });

  it("replaces the term of a field", () => {
    expect(withTerm("status:failed, name:a", "status", "running")).toBe("name:a, status:running");
    expect(withTerm("status:failed, name:a", "status", null)).toBe("name:a");
    expect(termValue("name:a, status:x|y", "status")).toBe("x|y");
    expect(termValue("name:a", "status")).toBeNull();
  });
});

describe("suggestions", () => {
  it("start with the fields", () => {
    expect(texts("")[0]).toBe("status:");
    expect(texts("status:failed, ")[0]).toBe("status:");
  });

  it("match fields, metrics and params, and search the word in names", () => {
    expect(texts("sta")).toEqual(["status:", "started_at:", "starred:", "name:%sta%"]);
    expect(texts("los")).toEqual(["metric.loss:", "metric.val/loss:", "name:%los%"]);
    expect(texts("metric.")).toEqual(["metric.loss:", "metric.val/loss:"]);
    expect(texts("min.")).toEqual(["min.loss:", "min.val/loss:"]);
  });

  it("quote names with special characters", () => {
    expect(texts("params.")).toContain('params."a:b":');
    expect([quoted("a,b"), quoted('say "x"'), quoted("plain"), quoted("")]).toEqual([
      '"a,b"',
      '"say ""x"""',
      "plain",
      '""',
    ]);
  });

  it("list the values of a field", () => {
    expect(texts("status:ru")).toEqual(["running"]);
    expect(texts("project:")).toEqual(["vision", "language"]);
    expect(texts("tags:a")).toContain('"a,b"');
    expect(texts("project:vis|lang")).toEqual(["language", "%lang%"]);
    expect(texts("params.lr:")).toEqual(["0.1", "0.01", "<", "<=", ">", ">="]);
  });

  it("offer operators for numbers and days for times", () => {
    expect(texts("metric.loss:")).toEqual(["<", "<=", ">", ">="]);
    expect(texts("max.loss:")).toEqual(["<", "<=", ">", ">="]);
    expect(texts("created_at:").slice(0, 5)).toEqual([">1h", ">24h", ">7d", "<30d", "2026-03-31"]);
    expect(texts("archived:")).toEqual(["true", "false"]);
    expect(texts("gpus:")).toEqual(["<", "<=", ">", ">="]);
  });

  it("replace the typed text at the caret", () => {
    expect(accepted("sta", "status")).toEqual(["status:", 7]);
    expect(accepted("name:a, los", "metric.loss")).toEqual(["name:a, metric.loss:", 20]);
    expect(accepted("status:running|fa", "failed")).toEqual(["status:running|failed", 21]);
    expect(accepted("status:~fa", "failed")).toEqual(["status:~failed", 14]);
    expect(accepted("sta, name:a", "status", 3)).toEqual(["status:, name:a", 7]);
    expect(accepted("stat:failed", "status", 4)).toEqual(["status:failed", 7]);
  });
});

describe("an error message of the server", () => {
  it("gives the position in the query", () => {
    const message =
      "the query `a:1, stats:x` is wrong at character 6, `stats`: there is no such field; did you mean `status`?";
    expect(errorPosition(message)).toEqual({
      start: 5,
      length: 5,
      message: "there is no such field; did you mean `status`?",
    });
    expect(errorPosition("something else")).toBeNull();
  });
});
