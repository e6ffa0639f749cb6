/** The content of a report: Markdown with live charts and tables. */

import "../run/chartGrid.css";
import "./reports.css";
import { type ReactNode, useCallback, useMemo, useRef } from "react";
import { Markdown } from "../markdown";
import { type Part, partsOf } from "./blocks";
import { staticHtml } from "./htmlFile";
import { ReportChart } from "./ReportChart";
import { ReportTable } from "./ReportTable";

/** Draws each part without scripts; null while something is loading. */
export type StaticParts = () => string[] | null;

const PAGES = /^\/(runs|compare|models|reports|projects)([/?#]|$)/;
const resolveLink = (address: string): string | null => (PAGES.test(address) ? address : null);

type Props = { text: string; project: string; drawing?: { current: StaticParts | null } };

export function ReportBody({ text, project, drawing }: Props): ReactNode {
  const parts = useMemo(() => partsOf(text), [text]);
  const drawn = useRef(new Map<number, () => string>());
  const box = useRef<HTMLDivElement>(null);
  const ready = useCallback((place: number, draw: (() => string) | null) => {
    if (draw) drawn.current.set(place, draw);
    else drawn.current.delete(place);
  }, []);
  if (drawing) {
    drawing.current = () => {
      const found = parts.map((part, place) => {
        const element = box.current?.children[place];
        if (part.kind === "markdown" || part.faults.length)
          return staticHtml(element?.innerHTML ?? "", location.origin);
        const draw = drawn.current.get(place);
        return part.kind === "table" && draw ? staticHtml(draw(), location.origin) : draw?.();
      });
      return found.includes(undefined) ? null : (found as string[]);
    };
  }
  return (
    <div ref={box} className="report-body">
      {parts.map((part, place) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: parts have no other key
        <div key={`${place} ${part.kind}`} className="report-part">
          <PartView part={part} place={place} project={project} onReady={ready} />
        </div>
      ))}
    </div>
  );
}

type PartProps = {
  part: Part;
  place: number;
  project: string;
  onReady: (place: number, draw: (() => string) | null) => void;
};

function PartView({ part, place, project, onReady }: PartProps): ReactNode {
  const ready = useCallback((draw: (() => string) | null) => onReady(place, draw), [place, onReady]);
  if (part.kind === "markdown") return <Markdown text={part.text} resolveLink={resolveLink} />;
  if (part.faults.length) {
    return (
      <div className="report-faults" role="alert">
        <b>This {part.kind} cannot be drawn.</b>
        <ul>
          {part.faults.map((fault) => (
            <li key={fault}>{fault}</li>
          ))}
        </ul>
      </div>
    );
  }
  if (part.kind === "chart") return <ReportChart block={part.block} project={project} onReady={ready} />;
  return <ReportTable block={part.block} project={project} onReady={ready} />;
}
