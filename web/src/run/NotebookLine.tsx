/** How to reach a running notebook: the page has neither its token nor a connection to it. */

import type { ReactNode } from "react";
import { CommandBox } from "../ui";
import type { RunContext } from "./runContext";

export function NotebookLine({ context: { run } }: { context: RunContext }): ReactNode {
  if (run.kind !== "notebook" || run.status !== "running") return null;
  return (
    <section aria-label="Notebook">
      <p>To open this notebook, run on the machine of this server, as its user:</p>
      <CommandBox text={`phalanx notebook --url ${run.id}`} />
    </section>
  );
}
