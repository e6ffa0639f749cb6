import { describe, expect, it } from "vitest";
import { edgePath, layersOf, layoutOf, NODE } from "./layout";

const edge = (source: string, target: string) => ({ source, target });

/** No two ops overlap, and every op is right of all that it waits for. */
function expectValid(names: string[], edges: { source: string; target: string }[]) {
  const { nodes, width, height, edges: drawn } = layoutOf(names, edges);
  const places = names.map((name) => nodes.get(name) as { x: number; y: number });
  places.forEach((one, at) => {
    expect(one.x).toBeGreaterThanOrEqual(0);
    expect(one.y).toBeGreaterThanOrEqual(0);
    expect(one.x + NODE.width).toBeLessThanOrEqual(width);
    expect(one.y + NODE.height).toBeLessThanOrEqual(height + 0.001);
    const overlaps = places.slice(at + 1).filter(({ x, y }) => one.x === x && Math.abs(one.y - y) < NODE.height);
    expect(overlaps).toEqual([]);
  });
  for (const { source, target } of edges) {
    expect(nodes.get(source)?.x).toBeLessThan(nodes.get(target)?.x as number);
  }
  expect(drawn).toHaveLength(edges.length);
  return nodes;
}

describe("the layout of a pipeline", () => {
  it("puts each op right of all that it waits for", () => {
    const names = ["report", "train-a", "train-b", "prepare"];
    const edges = [
      edge("prepare", "train-a"),
      edge("prepare", "train-b"),
      edge("train-a", "report"),
      edge("train-b", "report"),
      edge("prepare", "report"),
    ];
    const nodes = expectValid(names, edges);
    expect([...layersOf(names, edges).entries()]).toEqual([
      ["report", 2],
      ["train-a", 1],
      ["train-b", 1],
      ["prepare", 0],
    ]);
    // The ops that follow one op are placed around it.
    const middle = ((nodes.get("train-a")?.y ?? 0) + (nodes.get("train-b")?.y ?? 0)) / 2;
    expect(Math.abs((nodes.get("prepare")?.y ?? 0) - middle)).toBeLessThan(NODE.height);
  });

  it("has no crossings where none are needed", () => {
    const edges = [edge("a", "z"), edge("b", "y"), edge("c", "x")];
    const { nodes } = layoutOf(["a", "b", "c", "x", "y", "z"], edges);
    const order = (names: string[]) =>
      names.sort((one, other) => (nodes.get(one)?.y ?? 0) - (nodes.get(other)?.y ?? 0));
    expect(order(["x", "y", "z"])).toEqual(["z", "y", "x"]);
  });

  it("survives circles, unknown names, no ops and hundreds of them", () => {
    expect(layoutOf([], []).nodes.size).toBe(0);
    expect(layoutOf(["a", "b"], [edge("a", "b"), edge("b", "a"), edge("a", "a"), edge("a", "gone")]).nodes.size).toBe(
      2,
    );
    const names = Array.from({ length: 600 }, (_, at) => `op-${at}`);
    const edges = names.slice(20).map((name, at) => edge(names[Math.floor((at * 7) % (at + 20))] as string, name));
    expectValid(names, edges);
  });

  it("draws lines from left to right", () => {
    expect(edgePath([])).toBe("");
    expect(
      edgePath([
        { x: 0, y: 0 },
        { x: 10, y: 0 },
        { x: 20, y: 5 },
      ]),
    ).toBe("M0 0L10 0C15 0 15 5 20 5");
  });
});
