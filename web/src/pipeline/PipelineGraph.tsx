/** The ops of a pipeline as a graph, from left to right. */

import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import type { OpRow, PipelineDetails } from "../api";
import { visible } from "../format";
import { Link } from "../router";
import { StatusMark, statusText } from "../ui";
import { useNow } from "../ui/hooks";
import { toneOf } from "../ui/StatusMark";
import { edgePath, layoutOf, NODE } from "./layout";
import { opNote, opUrl } from "./ops";

const EDGE = 14; // room around the graph
const SMALLEST = 0.6;

export function PipelineGraph({ pipeline, isLive }: { pipeline: PipelineDetails; isLive: boolean }): ReactNode {
  const now = useNow(isLive ? 1000 : null);
  const shape = JSON.stringify([pipeline.ops.map(({ name }) => name), pipeline.edges]);
  const layout = useMemo(() => {
    const [names, edges] = JSON.parse(shape) as [string[], PipelineDetails["edges"]];
    return layoutOf(names, edges);
  }, [shape]);
  const [width, height] = [layout.width + 2 * EDGE, layout.height + 2 * EDGE];
  const [box, scale] = useScale(width);
  const states = new Map(pipeline.ops.map((op) => [op.name, op]));
  const hasConditions = pipeline.edges.some(({ kind }) => kind === "condition");
  return (
    <>
      <div ref={box} className="pipeline-scroll">
        <div className="pipeline-graph" style={{ width: width * scale, height: height * scale }}>
          <div style={{ width, height, transform: `scale(${scale})` }}>
            <svg width={width} height={height} aria-hidden="true">
              <defs>
                <marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto">
                  <path d="M0 0.5 8 4 0 7.5z" fill="context-stroke" />
                </marker>
              </defs>
              <g transform={`translate(${EDGE} ${EDGE})`}>
                {layout.edges.map(({ edge, points }) => (
                  <path
                    key={`${edge.source} ${edge.target} ${edge.kind}`}
                    className={`pipeline-edge is-${edge.kind}${states.get(edge.source)?.ended_at ? " is-past" : ""}`}
                    d={edgePath(points)}
                    markerEnd="url(#arrow)"
                  />
                ))}
              </g>
            </svg>
            <ol aria-label="Ops and what they wait for">
              {pipeline.ops.map((op) => {
                const at = layout.nodes.get(op.name);
                const style = at && { left: at.x + EDGE, top: at.y + EDGE, width: NODE.width, height: NODE.height };
                return (
                  <li key={op.name} style={style}>
                    <Op op={op} now={now} />
                  </li>
                );
              })}
            </ol>
          </div>
        </div>
      </div>
      {hasConditions && (
        <p className="faint pipeline-note">A dashed line leads to an op whose condition uses the other.</p>
      )}
    </>
  );
}

/** Fits a wide graph into the page, as far as it stays readable. */
function useScale(width: number) {
  const box = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setRoom(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [box, room ? Math.max(SMALLEST, Math.min(1, room / width)) : 1] as const;
}

function Op({ op, now }: { op: OpRow; now: number }): ReactNode {
  const note = opNote(op, now);
  const content = (
    <>
      <StatusMark status={op.status} bare />
      <span className="pipeline-text">
        <b className="cut">{visible(op.name)}</b>
        <span className="cut">{note}</span>
      </span>
      {op.is_reused && <span className="tag">reused</span>}
    </>
  );
  const className = `pipeline-op is-${toneOf(op.status)}`;
  const waits = op.dependencies.length ? `; after ${op.dependencies.join(", ")}` : "";
  const label = `${op.name}: ${statusText(op.status)}${note ? `, ${note}` : ""}${waits}`;
  const title = op.reason ? `${statusText(op.status)}: ${op.reason}` : statusText(op.status);
  const to = opUrl(op);
  return to ? (
    <Link className={className} to={to} title={title} aria-label={label}>
      {content}
    </Link>
  ) : (
    <span className={className} title={title}>
      {content}
    </span>
  );
}
