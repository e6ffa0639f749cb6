import { ApiError } from "../api";
import { notify } from "./toasts";

/** Shows an error and its hint as a toast. */
export function notifyError(error: unknown): void {
  const hint = error instanceof ApiError && error.hint ? ` (${error.hint})` : "";
  notify(`${error instanceof Error ? error.message : String(error)}${hint}`, { bad: true });
}
