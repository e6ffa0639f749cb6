// Actions on many runs at once.

import { apiPath, asApiError, del, isDone, post, type RunRow } from "../api";
import { plural, runTitle } from "../format";
import { notify } from "../ui";

const CONCURRENCY = 4;

export type BulkAction = "stop" | "restart" | "archive" | "unarchive" | "delete";

export const BULK_ACTIONS: Record<BulkAction, { verb: string; done: string; appliesTo: (run: RunRow) => boolean }> = {
  stop: { verb: "Stop", done: "stopping", appliesTo: (run) => !isDone(run.status) },
  restart: { verb: "Restart", done: "restarted", appliesTo: () => true },
  archive: { verb: "Archive", done: "archived", appliesTo: (run) => isDone(run.status) && !run.archived },
  unarchive: { verb: "Unarchive", done: "unarchived", appliesTo: (run) => run.archived },
  delete: { verb: "Delete", done: "deleted", appliesTo: (run) => isDone(run.status) },
};

const send = (action: BulkAction, run: RunRow): Promise<unknown> =>
  action === "delete" ? del(apiPath`/runs/${run.id}`) : post(apiPath`/runs/${run.id}/${action}`);

/** Calls `act` for each item, a few at a time. Returns the items that failed, with their errors. */
async function forEachConcurrently<T>(
  items: readonly T[],
  act: (item: T) => Promise<unknown>,
): Promise<[T, unknown][]> {
  const left = [...items];
  const failed: [T, unknown][] = [];
  const work = async (): Promise<void> => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) {
      try {
        await act(item);
      } catch (error) {
        failed.push([item, error]);
      }
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
  return failed;
}

/** Performs the action and reports the result as a toast. */
export async function performBulk(action: BulkAction, runs: readonly RunRow[]): Promise<void> {
  report(await forEachConcurrently(runs, (run) => send(action, run)), runs.length, BULK_ACTIONS[action].done);
}

export type TagChange = { add: string[]; remove: string[] };

export async function tagRuns(runs: readonly RunRow[], change: TagChange): Promise<void> {
  const send = (run: RunRow): Promise<unknown> => post(apiPath`/runs/${run.id}/tags`, change);
  const [tag] = change.add;
  const done = tag !== undefined && change.add.length === 1 && !change.remove.length ? `tagged ${tag}` : "changed";
  report(await forEachConcurrently(runs, send), runs.length, done);
}

function report(failed: [RunRow, unknown][], all: number, done: string): void {
  const succeeded = all - failed.length;
  if (succeeded) notify(`${plural(succeeded, "run")} ${done}`);
  const [first] = failed;
  if (!first) return;
  const [run, error] = first;
  notify(
    `${runTitle(run)}: ${asApiError(error).message}${failed.length > 1 ? ` (and ${failed.length - 1} more)` : ""}`,
    { bad: true },
  );
}
