/** How much each param decided whether a trial is among the best. */

import type { ReactNode } from "react";
import { number, plural } from "../format";
import type { ParamImportance } from "../types";

const FEW = 5; // of the best trials: below this, shares are a hint only

export function Importance({ found, resource }: { found: ParamImportance; resource: string }): ReactNode {
  if (found.params.length === 0) return <p className="card-empty">Not enough trials with different values yet.</p>;
  const top = found.params[0]?.share || 1;
  return (
    <>
      <ul className="importance">
        {found.params.map(({ name, share }) => (
          <li key={name}>
            <span className="cut" title={name}>
              {name}
            </span>
            <span className="meter" aria-hidden="true">
              <i style={{ width: `${(share / top) * 100}%` }} />
            </span>
            <span className="number">{(share * 100).toFixed(share < 0.1 ? 1 : 0)} %</span>
          </li>
        ))}
      </ul>
      <p className="group-note">
        Share of each param in what separates the best {found.best} of {plural(found.trials, "trial")} from the rest
        {found.resource !== null && `, all with ${resource} ${number(found.resource)}`} (PED-ANOVA).
        {found.best < FEW && " With so few trials, this is only a hint."}
      </p>
    </>
  );
}
