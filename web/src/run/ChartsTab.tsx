/** All metrics of a run as charts: pinned ones first, then in sections by prefix. Each loads when it scrolls into view. */

import "./chartGrid.css";
import "./ChartsTab.css";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { LazyMount } from "../charts";
import { MultiSelect } from "../compare/MultiSelect";
import { seconds } from "../format";
import { setParams, useParamList, useRoute } from "../router";
import { Dialog, EmptyState, Icon } from "../ui";
import { ChartBar, ChartSettings } from "./ChartBar";
import { stepValues, xChoice } from "./chartLines";
import { type ChartSource, useChart, useChartSource } from "./chartSource";
import {
  hasPanel,
  movedPanel,
  type Panel,
  type PinnedCharts,
  panelKey,
  panelOf,
  panelTitle,
  toggledPanel,
  usePinnedCharts,
} from "./layout";
import { grouped, matcher, naturalOrder, PINNED } from "./metricSections";
import { PanelChart, type View } from "./PanelChart";
import { parseRanks } from "./ranks";
import type { RunContext } from "./runContext";

const SLOT = 204; // a chart with its header
const FRESH_MS = 2000;
const MAX_METRICS = 20; // of one chart

type Section = { name: string; panels: Panel[] };

export default function ChartsTab({ context }: { context: RunContext }): ReactNode {
  const { run, updates, isLive, reload } = context;
  const names = useMemo(() => naturalOrder(Object.keys(run.summaries)), [run.summaries]);
  const { params } = useRoute();
  const pins = usePins(context);
  const [closed, setClosed] = useParamList("closed");
  const [big, setBig] = useParamList("big");
  const replicas = useReplicas(context, params.get("ranks") ?? "");
  const mode = params.get("mode") === "ranks" || replicas.length ? "ranks" : "mean";
  const [first, last] = pair(params.get("steps"));
  const source = useChartSource({ id: run.id, mode, replicas, first, last });
  const version = useVersion(updates.points, isLive);
  const view = useView(context, source, params, version);
  const isEmpty = names.length === 0;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the first points add names to the run
  useEffect(() => {
    if (isEmpty && isLive) reload();
  }, [updates.points, isEmpty, isLive]);
  if (isEmpty) {
    return (
      <EmptyState title={isLive ? "No metrics yet" : "No metrics"}>
        Charts appear once a replica logs its first point.
      </EmptyState>
    );
  }
  const sections = sectionsOf(names, pins.panels, params.get("filter") ?? "");
  const enlarged = big.filter((name) => names.includes(name)).slice(0, MAX_METRICS);
  const drawing = { source, view, version };
  return (
    <div className="charts">
      <ChartBar
        context={context}
        mode={mode}
        names={names}
        count={sections.reduce((sum, section) => sum + section.panels.length, 0)}
      />
      {sections.length === 0 && (
        <EmptyState title="No matching metrics">
          A name must contain every word of the filter; * matches anything.
        </EmptyState>
      )}
      {sections.map((section) => (
        <ChartSection
          key={section.name}
          section={section}
          isClosed={closed.includes(section.name || UNNAMED)}
          onFold={() => setClosed(toggled(closed, section.name || UNNAMED))}
          pins={pins}
          {...drawing}
        />
      ))}
      {enlarged.length > 0 && (
        <Dialog title={enlarged.join(", ")} wide onClose={() => setBig([])}>
          <div className="chart-dialog-bar">
            <MultiSelect
              title="Metrics"
              names={names}
              chosen={enlarged}
              max={MAX_METRICS}
              onChange={(chosen) => setBig(chosen.length ? chosen : enlarged.slice(0, 1))}
            />
            <ChartSettings context={context} mode={mode} names={names} />
            <PinButton panel={panelOf(enlarged)} pins={pins} hasText />
          </div>
          <PanelChart panel={panelOf(enlarged)} {...drawing} height={Math.min(460, innerHeight * 0.5)} isBig />
        </Dialog>
      )}
    </div>
  );
}

const UNNAMED = "-"; // in the URL, the section of metrics without a prefix

const toggled = (list: string[], name: string): string[] =>
  list.includes(name) ? list.filter((one) => one !== name) : [...list, name];

/** The pinned charts, and a section for each prefix. A metric with a chart of its own at the top is not repeated. */
function sectionsOf(names: readonly string[], pinned: readonly Panel[], filter: string): Section[] {
  const isMatching = matcher(filter);
  const top = pinned
    .map((panel) => ({ ...panel, metrics: panel.metrics.filter((name) => names.includes(name)) }))
    .filter((panel) => panel.metrics.some(isMatching));
  const alone = top.flatMap((panel) => (panel.metrics.length === 1 ? panel.metrics : []));
  const rest = grouped(names, alone, filter).filter(({ name }) => name !== PINNED);
  return [
    ...(top.length ? [{ name: PINNED, panels: top }] : []),
    ...rest.map(({ name, metrics }) => ({ name, panels: metrics.map((metric) => panelOf([metric])) })),
  ];
}

type Pins = PinnedCharts & { isShared: boolean; project: string };

/** Editors pin for the project; others in the URL, where single metrics may be pinned in addition. */
function usePins({ run, mayEdit }: RunContext): Pins {
  const shared = usePinnedCharts(run.project);
  const [own, setOwn] = useParamList("pin");
  const extra = own.map((name) => panelOf([name])).filter((panel) => !hasPanel(shared.panels, panel));
  const changeOwn: PinnedCharts["change"] = (edit) =>
    setOwn(edit(extra).flatMap(({ metrics }) => (metrics.length === 1 ? metrics : [])));
  return {
    panels: [...shared.panels, ...extra],
    change: mayEdit ? shared.change : changeOwn,
    isShared: mayEdit,
    project: run.project,
  };
}

type SectionProps = { section: Section; isClosed: boolean; onFold: () => void; pins: Pins } & Drawing;
type Drawing = { source: ChartSource; view: View; version: number };

function ChartSection({ section, isClosed, onFold, pins, ...drawing }: SectionProps): ReactNode {
  const title = section.name || "metrics";
  return (
    <section className="chart-group" aria-label={title}>
      <button type="button" className="chart-group-head" aria-expanded={!isClosed} onClick={onFold}>
        <Icon name={isClosed ? "right" : "down"} size={14} />
        {title} <span className="faint">{section.panels.length}</span>
      </button>
      {!isClosed && (
        <div className="chart-grid">
          {section.panels.map((panel) => (
            <div key={panelKey(panel)} className="chart-slot">
              <LazyMount height={SLOT}>
                {() => (
                  <PanelChart panel={panel} {...drawing}>
                    {section.name === PINNED && pins.isShared && pins.panels.length > 1 && (
                      <>
                        <MoveButton panel={panel} pins={pins} by={-1} />
                        <MoveButton panel={panel} pins={pins} by={1} />
                      </>
                    )}
                    <button
                      type="button"
                      className="button plain icon small"
                      aria-label={`Enlarge ${panelTitle(panel)}`}
                      title="Enlarge"
                      onClick={() => setParams({ big: panel.metrics })}
                    >
                      <Icon name="plus" size={13} />
                    </button>
                    <PinButton panel={panel} pins={pins} />
                  </PanelChart>
                )}
              </LazyMount>
            </div>
          ))}
        </div>
      )}
    </section>
  );
}

function PinButton({ panel, pins, hasText = false }: { panel: Panel; pins: Pins; hasText?: boolean }): ReactNode {
  const isPinned = hasPanel(pins.panels, panel);
  if (!pins.isShared && panel.metrics.length > 1) return null; // the URL holds the enlarged chart
  const where = pins.isShared ? ` for everyone in ${pins.project}` : "";
  return (
    <button
      type="button"
      className={hasText ? "button small" : "button plain icon small chart-pin"}
      aria-pressed={isPinned}
      aria-label={`Pin ${panelTitle(panel)}`}
      title={isPinned ? `Unpin${where}` : `Pin to the top${where}`}
      onClick={() => pins.change((panels) => toggledPanel(panels, panel))}
    >
      {isPinned ? "★" : "☆"}
      {hasText && (isPinned ? " Pinned" : " Pin")}
    </button>
  );
}

function MoveButton({ panel, pins, by }: { panel: Panel; pins: Pins; by: -1 | 1 }): ReactNode {
  const where = by < 0 ? "left" : "right";
  return (
    <button
      type="button"
      className="button plain icon small"
      aria-label={`Move ${panelTitle(panel)} ${where}`}
      title={`Move ${where}`}
      onClick={() => pins.change((panels) => movedPanel(panels, panel, by))}
    >
      <Icon name={where} size={13} />
    </button>
  );
}

function pair(text: string | null): [number, number] | [null, null] {
  const [from, to] = (text ?? "").split("..").map((part) => (part === "" ? Number.NaN : Number(part)));
  return from !== undefined && to !== undefined && from < to ? [from, to] : [null, null];
}

function useReplicas({ topology }: RunContext, text: string): string[] {
  return useMemo(() => {
    const ranks = parseRanks(text);
    if (!ranks) return [];
    return (topology?.replicas ?? [])
      .filter((one) => ranks.includes(one.rank))
      .map((one) => one.name)
      .slice(0, 64);
  }, [topology, text]);
}

/** Grows when new points arrive, at most every FRESH_MS. */
function useVersion(points: number, isLive: boolean): number {
  const [version, setVersion] = useState(0);
  const last = useRef({ points, at: 0 });
  useEffect(() => {
    if (last.current.points === points) return;
    const wait = isLive ? Math.max(0, last.current.at + FRESH_MS - Date.now()) : 0;
    const timer = setTimeout(() => {
      last.current = { points, at: Date.now() };
      setVersion((now) => now + 1);
    }, wait);
    return () => clearTimeout(timer);
  }, [points, isLive]);
  return version;
}

function useView(context: RunContext, source: ChartSource, params: URLSearchParams, version: number): View {
  const { x, name } = xChoice(params.get("x"));
  const chart = useChart(source, x === "metric" ? name : null, version).chart;
  const values = useMemo(() => stepValues(chart), [chart]);
  const startedAt = seconds(context.run.started_at ?? context.run.created_at);
  const [from, to] = pair(params.get("zoom"));
  const [logX, logY] = [params.has("logx"), params.has("logy")];
  const smoothing = Math.min(0.99, Math.max(0, Number(params.get("smooth") ?? 0) || 0));
  return useMemo(
    () => ({
      axis: x === "metric" && !values ? { x: "step", startedAt } : { x, name, startedAt, values },
      logX,
      logY,
      smoothing,
      range: from === null ? null : [from, to],
    }),
    [x, name, values, startedAt, logX, logY, smoothing, from, to],
  );
}
