/** The rungs of a search as a ladder: how many trials reached each, and how many went on. */

import type { ReactNode } from "react";
import { num, number, plural } from "../format";
import type { GroupDetails, GroupRung } from "../types";

const OUTSIDE = -1; // the bracket of points that users added

export function Rungs({ group }: { group: GroupDetails }): ReactNode {
  const resource = resourceName(group);
  const brackets = new Map<number, GroupRung[]>();
  for (const rung of group.rungs) {
    if (rung.bracket !== OUTSIDE) brackets.set(rung.bracket, [...(brackets.get(rung.bracket) ?? []), rung]);
  }
  const most = Math.max(...group.rungs.map((rung) => rung.trials), 1);
  return (
    <div className="ladder">
      {[...brackets].map(([bracket, rungs]) => (
        <div key={bracket} className="ladder-bracket">
          {brackets.size > 1 && <h3 className="soft">Bracket {bracket}</h3>}
          {[...rungs].reverse().map((rung) => (
            <Step key={rung.rung} rung={rung} most={most} resource={resource} isTop={rung === rungs.at(-1)} />
          ))}
        </div>
      ))}
    </div>
  );
}

type StepProps = { rung: GroupRung; most: number; resource: string; isTop: boolean };

function Step({ rung, most, resource, isTop }: StepProps): ReactNode {
  const share = (count: number): string => `${(count / most) * 100}%`;
  const running = rung.trials - rung.ended;
  const best = num(rung.best?.value);
  const parts = [
    plural(rung.trials, "trial"),
    running > 0 && `${running} running`,
    !isTop && `${rung.promoted} promoted`,
    best !== null && `best ${number(best)}`,
  ].filter(Boolean);
  return (
    <div className="ladder-step">
      <span className="ladder-name number">
        {rung.resource === null ? `rung ${rung.rung}` : `${number(rung.resource)} ${resource}`}
      </span>
      <span className="ladder-bar" aria-hidden="true">
        <i style={{ width: share(rung.trials) }}>
          <b style={{ width: rung.trials ? `${(rung.promoted / rung.trials) * 100}%` : 0 }} />
        </i>
      </span>
      <span className="ladder-text soft number">{parts.join(", ")}</span>
    </div>
  );
}

/** The name of the param that holds the amount: `epochs`. */
export function resourceName(group: GroupDetails): string {
  const resource = group.settings.options.resource as { name?: string } | undefined;
  return resource?.name ?? "";
}
