import { type ReactNode, useEffect, useId, useState } from "react";
import type { TopologyReplica } from "../api";
import { useParam } from "../router";

const MAX_OFFERED = 300;

/** An input for replicas: names, roles, ranks or ranges of ranks. The server resolves them, as for `phalanx logs`. */
export function ReplicaField({ replicas }: { replicas: readonly TopologyReplica[] }): ReactNode {
  const [now, setNow] = useParam("replica");
  const [draft, setDraft] = useState(now);
  const id = useId();
  useEffect(() => setDraft(now), [now]);
  const roles = [...new Set(replicas.map((one) => one.role))];
  const offered = [...(roles.length > 1 ? roles : []), ...replicas.slice(0, MAX_OFFERED).map((one) => one.name)];
  const example = replicas[Math.min(3, replicas.length - 1)]?.name ?? "worker-0";
  return (
    <>
      <input
        className="field ranks-field"
        list={id}
        placeholder={`Replicas: ${example}, 0-3`}
        aria-label="Replicas"
        title="Names, roles, ranks or ranges of ranks, separated by commas"
        value={draft}
        onChange={(event) => {
          setDraft(event.target.value);
          if (event.target.value === "" || offered.includes(event.target.value)) setNow(event.target.value);
        }}
        onBlur={() => setNow(draft.trim())}
        onKeyDown={(event) => event.key === "Enter" && setNow(draft.trim())}
      />
      <datalist id={id}>
        {offered.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </>
  );
}
