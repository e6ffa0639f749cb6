import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { PAGE, RunList } from "./pagedRuns";

/** A server with so many runs, the newest first: `r999`, `r998`… */
class Server {
  asked: string[] = [];
  constructor(public count: number) {}

  answer = async (address: string): Promise<Response> => {
    this.asked.push(address.replace("/api/v1", ""));
    const params = new URL(address, "http://x").searchParams;
    const offset = Number(params.get("offset") ?? 0);
    const limit = Math.min(Number(params.get("limit")), Math.max(0, this.count - offset));
    const runs = Array.from({ length: limit }, (_, place) => ({ id: `r${this.count - 1 - offset - place}` }));
    return Response.json({ count: this.count, runs });
  };
}

let server: Server;
const usual = { q: "", sort: "-created_at", project: "" };
const settle = (): Promise<void> => vi.advanceTimersByTimeAsync(200).then(() => undefined);

beforeEach(() => {
  vi.useFakeTimers();
  server = new Server(1000);
  vi.stubGlobal("fetch", (address: string) => server.answer(address));
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("asks for what is looked at, and nothing else", async () => {
  const list = new RunList(usual);
  list.show(0, 40);
  await settle();
  expect(list.seen.count).toBe(1000);
  expect(list.row(0)?.id).toBe("r999");
  for (let place = 0; place < 900; place += 10) list.show(place, place + 40);
  list.show(530, 570);
  await settle();
  expect(server.asked).toEqual([`/runs?limit=${PAGE}`, `/runs?limit=${PAGE}&offset=500`]);
  expect(list.row(530)?.id).toBe("r469");
  expect(list.row(300)).toBeNull();
});

it("puts new runs in at the top when one is there", async () => {
  const list = new RunList(usual);
  list.show(0, 40);
  await settle();
  server.count = 1002;
  await list.changed(true);
  await settle();
  expect([list.row(0)?.id, list.seen.count, list.seen.fresh]).toEqual(["r1001", 1002, 0]);
});

it("announces new runs to whoever reads further down, and moves nothing", async () => {
  const list = new RunList(usual);
  list.show(200, 240);
  await settle();
  const before = list.row(200)?.id;
  server.count = 1003;
  await list.changed(false);
  await settle();
  expect([list.row(200)?.id, list.seen.fresh, list.seen.count]).toEqual([before, 3, 1000]);
  list.takeFresh();
  list.show(0, 40);
  await settle();
  expect([list.row(0)?.id, list.seen.fresh, list.seen.count]).toEqual(["r1002", 0, 1003]);
});

it("keeps a row that did not change as it is, so that it is not drawn again", async () => {
  const list = new RunList(usual);
  list.show(0, 40);
  await settle();
  const before = list.row(5);
  list.again();
  await settle();
  expect(server.asked.length).toBe(2);
  expect(list.row(5)).toBe(before);
});

it("asks once more when something changed while an answer was on its way", async () => {
  const list = new RunList(usual);
  list.show(0, 40);
  await settle();
  list.again();
  server.count = 1001;
  list.again();
  await settle();
  expect(list.row(0)?.id).toBe("r1000");
});

it("keeps what it has when the server fails, and says so", async () => {
  const list = new RunList(usual);
  list.show(0, 40);
  await settle();
  vi.stubGlobal("fetch", async () => Response.json({ error: { message: "no database" } }, { status: 503 }));
  list.again();
  await settle();
  expect([list.seen.error?.message, list.row(0)?.id]).toEqual(["no database", "r999"]);
});
