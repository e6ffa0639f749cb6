import "./models.css";
import type { ReactNode } from "react";
import type { ModelCandidate } from "../api";
import { ago, bytes, timestamp } from "../format";
import { Link } from "../router";
import { CopyButton } from "../ui";

/** Outputs of runs that look like models and are not registered, each with the command that registers it. */
export function Candidates({ found, hasRun }: { found: ModelCandidate[]; hasRun?: boolean }): ReactNode {
  if (!found.length) return null;
  return (
    <section className="card models-list models-candidates" aria-label="Candidates">
      <h2>Candidates</h2>
      <p className="soft">Files that look like models but are not registered.</p>
      <table className="plain-table">
        <tbody>
          {found.map((one) => (
            <tr key={`${one.run_id} ${one.path}`}>
              {hasRun && (
                <td>
                  <Link to={`/runs/${one.run_id}`}>{one.run_name ?? one.run_id}</Link>
                </td>
              )}
              <td className="mono">{one.path}</td>
              <td className="right number">{bytes(one.size)}</td>
              <td className="right soft" title={timestamp(one.at)}>
                {ago(one.at)}
              </td>
              <td className="right">
                <CopyButton text={registerCommand(one)} label="Copy the register command" />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

const registerCommand = (one: ModelCandidate): string =>
  `phalanx models register ${one.run_id} '${one.path.replaceAll("'", "'\\''")}' --name NAME`;
