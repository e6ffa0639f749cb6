import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { PAGE, PagedRuns } from "./pagedRuns";

/** A server with `count` runs, newest first: `r999`, `r998`… */
class Server {
  requests: string[] = [];
  constructor(public count: number) {}

  answer = async (address: string): Promise<Response> => {
    this.requests.push(address.replace("/api/v1", ""));
    const params = new URL(address, "http://x").searchParams;
    const offset = Number(params.get("offset") ?? 0);
    const limit = Math.min(Number(params.get("limit")), Math.max(0, this.count - offset));
    const runs = Array.from({ length: limit }, (_, index) => ({ id: `r${this.count - 1 - offset - index}` }));
    return Response.json({ count: this.count, runs });
  };
}

let server: Server;
const query = { q: "", sort: "-created_at", project: "" };
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

it("requests only the pages in view", async () => {
  const list = new PagedRuns(query);
  list.setVisible(0, 40);
  await settle();
  expect(list.state.count).toBe(1000);
  expect(list.row(0)?.id).toBe("r999");
  for (let index = 0; index < 900; index += 10) list.setVisible(index, index + 40);
  list.setVisible(530, 570);
  await settle();
  expect(server.requests).toEqual([`/runs?limit=${PAGE}&fold=1`, `/runs?limit=${PAGE}&offset=500&fold=1`]);
  expect(list.row(530)?.id).toBe("r469");
  expect(list.row(300)).toBeNull();
});

it("shows new runs when scrolled to the top", async () => {
  const list = new PagedRuns(query);
  list.setVisible(0, 40);
  await settle();
  server.count = 1002;
  await list.refresh(true);
  await settle();
  expect([list.row(0)?.id, list.state.count, list.state.newRuns]).toEqual(["r1001", 1002, 0]);
});

it("counts new runs without moving rows when scrolled down", async () => {
  const list = new PagedRuns(query);
  list.setVisible(200, 240);
  await settle();
  const before = list.row(200)?.id;
  server.count = 1003;
  await list.refresh(false);
  await settle();
  expect([list.row(200)?.id, list.state.newRuns, list.state.count]).toEqual([before, 3, 1000]);
  list.showNewRuns();
  list.setVisible(0, 40);
  await settle();
  expect([list.row(0)?.id, list.state.newRuns, list.state.count]).toEqual(["r1002", 0, 1003]);
});

it("keeps the identity of unchanged rows", async () => {
  const list = new PagedRuns(query);
  list.setVisible(0, 40);
  await settle();
  const before = list.row(5);
  list.reload();
  await settle();
  expect(server.requests.length).toBe(2);
  expect(list.row(5)).toBe(before);
});

it("reloads when a change arrives during a request", async () => {
  const list = new PagedRuns(query);
  list.setVisible(0, 40);
  await settle();
  list.reload();
  server.count = 1001;
  list.reload();
  await settle();
  expect(list.row(0)?.id).toBe("r1000");
});

it("keeps its rows and reports the error when the server fails", async () => {
  const list = new PagedRuns(query);
  list.setVisible(0, 40);
  await settle();
  vi.stubGlobal("fetch", async () => Response.json({ error: { message: "no database" } }, { status: 503 }));
  list.reload();
  await settle();
  expect([list.state.error?.message, list.row(0)?.id]).toEqual(["no database", "r999"]);
});
