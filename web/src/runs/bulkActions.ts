// What is done to many runs at once.

import { ApiError, at, del, patch, post, type RunRow } from "../api";
import { many, title } from "../format";
import { notify } from "../ui";

const AT_ONCE = 4;

export type Deed = "stop" | "restart" | "delete";

export const DEEDS: Record<Deed, { verb: string; done: string; may: (run: RunRow, isDone: boolean) => boolean }> = {
  stop: { verb: "Stop", done: "asked to stop", may: (_, isDone) => !isDone },
  restart: { verb: "Restart", done: "started again", may: () => true },
  delete: { verb: "Delete", done: "deleted", may: (_, isDone) => isDone },
};

const does = (deed: Deed, run: RunRow): Promise<unknown> =>
  deed === "delete" ? del(at`/runs/${run.id}`) : post(at`/runs/${run.id}/${deed}`);

/** Do something with each, a few at a time. Gives those that it could not be done with. */
export async function each<T>(things: readonly T[], act: (thing: T) => Promise<unknown>): Promise<[T, unknown][]> {
  const left = [...things];
  const failed: [T, unknown][] = [];
  const work = async (): Promise<void> => {
    for (let thing = left.shift(); thing !== undefined; thing = left.shift()) {
      try {
        await act(thing);
      } catch (fault) {
        failed.push([thing, fault]);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return failed;
}

/** Do it, and say in the corner how it went. */
export async function act(deed: Deed, runs: readonly RunRow[]): Promise<void> {
  tell(await each(runs, (run) => does(deed, run)), runs.length, DEEDS[deed].done);
}

export async function tag(runs: readonly RunRow[], word: string): Promise<void> {
  const change = (run: RunRow): Promise<unknown> =>
    patch(at`/runs/${run.id}`, { tags: [...new Set([...run.tags, word])] });
  tell(await each(runs, change), runs.length, `tagged ${word}`);
}

function tell(failed: [RunRow, unknown][], all: number, done: string): void {
  const fine = all - failed.length;
  if (fine) notify(`${many(fine, "run")} ${done}`);
  const [first] = failed;
  if (!first) return;
  const [run, fault] = first;
  const message = fault instanceof ApiError ? fault.message : String(fault);
  notify(`${title(run)}: ${message}${failed.length > 1 ? ` (and ${failed.length - 1} more)` : ""}`, { bad: true });
}
