import "./help.css";
import { Fragment, type ReactNode } from "react";
import { useTitle } from "../router";
import { CommandBox } from "../ui";
import { QueryHelp } from "./QueryHelp";

const COMMANDS: readonly [about: string, text: string][] = [
  ["Create a commented example file", "phalanx init"],
  ["Show the plan without running it", "phalanx plan -f polyaxonfile.yml"],
  ["Run it with a different param", "phalanx run -f polyaxonfile.yml -P lr=0.01"],
  ["List runs in a terminal", "phalanx ps -q 'status:running'"],
  ["Follow the logs of the replicas", "phalanx logs ID --follow"],
  ["Track metrics from any script", 'python -c "from phalanx import tracking; tracking.log(loss=0.1)"'],
];

export default function HelpPage(): ReactNode {
  useTitle("Help");
  return (
    <div className="page">
      <h1>Help</h1>
      <div className="help-commands">
        {COMMANDS.map(([about, text]) => (
          <Fragment key={text}>
            <div>
              <p className="soft">{about}</p>
              <CommandBox text={text} />
            </div>
          </Fragment>
        ))}
      </div>
      <h2>Filtering runs</h2>
      <QueryHelp />
      <p className="soft">
        Press <kbd>?</kbd> on any page to see its keyboard shortcuts.
      </p>
    </div>
  );
}
