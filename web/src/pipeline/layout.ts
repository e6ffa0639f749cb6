/** Places the ops of a pipeline in layers: each op right of all that it waits for, with few crossings of lines. */

export type GraphEdge = { source: string; target: string };
export type Point = { x: number; y: number };
export type PlacedEdge<E> = { edge: E; points: Point[] };
export type Layout<E> = { width: number; height: number; nodes: Map<string, Point>; edges: PlacedEdge<E>[] };

export const NODE = { width: 190, height: 54 };
const GAP = { x: 64, y: 18 };
const LANE = 14; // the height of a line that passes a layer
const SWEEPS = 8;

/** A place in a layer: an op, or a line that passes the layer. */
type Slot = { key: string; isNode: boolean; layer: number; order: number; y: number };

/** The points of nodes are their upper left corners. */
export function layoutOf<E extends GraphEdge>(names: readonly string[], edges: readonly E[]): Layout<E> {
  const known = new Set(names);
  const drawn = edges.filter(({ source, target }) => known.has(source) && known.has(target) && source !== target);
  const layers = layersOf(names, drawn);
  const slots = new Map<string, Slot>();
  for (const name of names) addSlot(slots, name, layers.get(name) ?? 0, true);
  const chains = drawn.map((edge, number) => chainOf(edge, number, layers, slots));
  const columns = columnsOf(slots);
  const links = linksOf(chains);
  for (let sweep = 0; sweep < SWEEPS; sweep++) order(columns, links, sweep % 2 === 0);
  spread(columns, links);
  return placed(columns, slots, drawn, chains, names);
}

/** The length of the longest way to each op. Ops of a circle, which no valid file has, stay in the layer they have. */
export function layersOf(names: readonly string[], edges: readonly GraphEdge[]): Map<string, number> {
  const layers = new Map(names.map((name) => [name, 0]));
  const waiting = new Map(names.map((name) => [name, 0]));
  const after = new Map<string, string[]>();
  for (const { source, target } of edges) {
    waiting.set(target, (waiting.get(target) ?? 0) + 1);
    after.set(source, [...(after.get(source) ?? []), target]);
  }
  const ready = names.filter((name) => waiting.get(name) === 0);
  for (let name = ready.shift(); name !== undefined; name = ready.shift()) {
    for (const next of after.get(name) ?? []) {
      layers.set(next, Math.max(layers.get(next) ?? 0, (layers.get(name) ?? 0) + 1));
      const left = (waiting.get(next) ?? 0) - 1;
      waiting.set(next, left);
      if (left === 0) ready.push(next);
    }
  }
  return layers;
}

function addSlot(slots: Map<string, Slot>, key: string, layer: number, isNode: boolean): void {
  slots.set(key, { key, isNode, layer, order: slots.size, y: 0 });
}

/** The slots of an edge from its source to its target, one in each layer. */
function chainOf(edge: GraphEdge, number: number, layers: Map<string, number>, slots: Map<string, Slot>): string[] {
  const [from = 0, to = 0] = [layers.get(edge.source), layers.get(edge.target)];
  const between: string[] = [];
  for (let layer = from + 1; layer < to; layer++) {
    const key = `\0${number} ${layer}`; // no op is named like that
    addSlot(slots, key, layer, false);
    between.push(key);
  }
  return [edge.source, ...between, edge.target];
}

function columnsOf(slots: Map<string, Slot>): Slot[][] {
  const columns: Slot[][] = [];
  for (const slot of slots.values()) {
    const column = columns[slot.layer] ?? [];
    columns[slot.layer] = column;
    column.push(slot);
  }
  const found = columns.filter(Boolean);
  for (const column of found) {
    for (const [at, slot] of column.entries()) slot.order = at;
  }
  return found;
}

type Links = { before: Map<string, string[]>; after: Map<string, string[]> };

function linksOf(chains: readonly string[][]): Links {
  const [before, after] = [new Map<string, string[]>(), new Map<string, string[]>()];
  const add = (map: Map<string, string[]>, key: string, value: string) => {
    const found = map.get(key);
    if (found) found.push(value);
    else map.set(key, [value]);
  };
  for (const chain of chains) {
    for (let at = 1; at < chain.length; at++) {
      add(before, chain[at] as string, chain[at - 1] as string);
      add(after, chain[at - 1] as string, chain[at] as string);
    }
  }
  return { before, after };
}

/** Sorts each layer by the mean place of its neighbours in the layer before, or after. */
function order(columns: Slot[][], { before, after }: Links, isForward: boolean): void {
  const places = new Map(columns.flatMap((column) => column.map((slot) => [slot.key, slot.order] as const)));
  const neighbours = isForward ? before : after;
  for (const column of isForward ? columns : [...columns].reverse()) {
    const wanted = new Map(
      column.map((slot) => {
        const found = (neighbours.get(slot.key) ?? []).map((key) => places.get(key) ?? 0);
        return [slot.key, found.length ? found.reduce((sum, one) => sum + one, 0) / found.length : slot.order];
      }),
    );
    column.sort((a, b) => (wanted.get(a.key) ?? 0) - (wanted.get(b.key) ?? 0) || a.order - b.order);
    column.forEach((slot, at) => {
      slot.order = at;
      places.set(slot.key, at);
    });
  }
}

const heightOf = (slot: Slot): number => (slot.isNode ? NODE.height : LANE);

/** Places slots near the middle of their neighbours, without overlaps. */
function spread(columns: Slot[][], { before, after }: Links): void {
  const slots = new Map(columns.flatMap((column) => column.map((slot) => [slot.key, slot] as const)));
  for (const column of columns) stack(column, new Map());
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const isForward = sweep % 2 === 0;
    for (const column of isForward ? columns : [...columns].reverse()) {
      const wanted = new Map<string, number>();
      for (const slot of column) {
        const near = ((isForward ? before : after).get(slot.key) ?? []).flatMap((key) => slots.get(key) ?? []);
        if (!near.length) continue;
        const middle = near.reduce((sum, one) => sum + one.y + heightOf(one) / 2, 0) / near.length;
        wanted.set(slot.key, middle - heightOf(slot) / 2);
      }
      stack(column, wanted);
    }
  }
}

/** Moves the slots of a layer to their wanted places, as far as their order and the gaps allow. */
function stack(column: readonly Slot[], wanted: ReadonlyMap<string, number>): void {
  // Slots that would overlap form a block, whose place is the mean of what its slots want.
  type Block = { slots: Slot[]; top: number; height: number };
  const blocks: Block[] = [];
  for (const slot of column) {
    let block: Block = { slots: [slot], top: wanted.get(slot.key) ?? slot.y, height: heightOf(slot) };
    for (let last = blocks.at(-1); last && last.top + last.height + GAP.y > block.top; last = blocks.at(-1)) {
      blocks.pop();
      const [many, few] = [last.slots.length, block.slots.length];
      const shifted = block.top - last.height - GAP.y;
      block = {
        slots: [...last.slots, ...block.slots],
        top: (last.top * many + shifted * few) / (many + few),
        height: last.height + GAP.y + block.height,
      };
    }
    blocks.push(block);
  }
  for (const block of blocks) {
    let y = block.top;
    for (const slot of block.slots) {
      slot.y = y;
      y += heightOf(slot) + GAP.y;
    }
  }
}

function placed<E extends GraphEdge>(
  columns: Slot[][],
  slots: Map<string, Slot>,
  edges: readonly E[],
  chains: readonly string[][],
  names: readonly string[],
): Layout<E> {
  const all = columns.flat();
  const shift = -all.reduce((least, slot) => Math.min(least, slot.y), Number.POSITIVE_INFINITY);
  const left = (slot: Slot): number => slot.layer * (NODE.width + GAP.x);
  const nodes = new Map<string, Point>();
  for (const name of names) {
    const slot = slots.get(name) as Slot;
    nodes.set(name, { x: left(slot), y: slot.y + shift });
  }
  const pointsOf = (chain: readonly string[]): Point[] =>
    chain.flatMap((key, at) => {
      const slot = slots.get(key) as Slot;
      const y = slot.y + shift + heightOf(slot) / 2;
      const [start, end] = [left(slot), left(slot) + NODE.width];
      if (at === 0) return [{ x: end, y }];
      return at === chain.length - 1
        ? [{ x: start, y }]
        : [
            { x: start, y },
            { x: end, y },
          ];
    });
  const height = all.reduce((found, slot) => Math.max(found, slot.y + shift + heightOf(slot)), 0);
  const width = columns.length * (NODE.width + GAP.x) - GAP.x;
  return {
    width: Math.max(0, width),
    height,
    nodes,
    edges: edges.map((edge, at) => ({ edge, points: pointsOf(chains[at] as string[]) })),
  };
}

/** A smooth line through the points of an edge, which go from left to right. */
export function edgePath(points: readonly Point[]): string {
  const [first, ...others] = points;
  if (!first) return "";
  let path = `M${first.x} ${first.y}`;
  let last = first;
  for (const point of others) {
    const middle = (last.x + point.x) / 2;
    path +=
      last.y === point.y ? `L${point.x} ${point.y}` : `C${middle} ${last.y} ${middle} ${point.y} ${point.x} ${point.y}`;
    last = point;
  }
  return path;
}
