// The rows of the REST API, as described in docs/reference/rest-api.md.

/** A number. JSON has no NaN and infinity, so they are strings; `num()` in format.ts converts them. */
export type Num = number | "NaN" | "Infinity" | "-Infinity";
export type Scalar = string | number | boolean | null;
export type Json = Scalar | Json[] | { [name: string]: Json };

export const STATUSES = [
  "created",
  "resuming",
  "building",
  "scheduled",
  "starting",
  "running",
  "warning",
  "unknown",
  "succeeded",
  "failed",
  "stopped",
  "skipped",
  "upstream_failed",
] as const;
export type Status = (typeof STATUSES)[number];
export type Role = "viewer" | "editor" | "admin";

export type RunRow = {
  id: string;
  project: string;
  kind: string;
  name: string | null;
  description: string | null;
  framework: string | null;
  backend: string;
  user: string;
  status: Status;
  reason: string;
  attempt: number;
  priority: number;
  created_at: string;
  updated_at: string;
  started_at: string | null;
  finished_at: string | null;
  original: string | null;
  cloning: string | null;
  group: string | null;
  commit: string | null;
  tags: string[];
  params: Record<string, Json>;
  summary: Record<string, Num | null>;
  /** The smallest and largest finite value of each metric. */
  best: Record<string, { min: Num | null; max: Num | null }>;
  archived: boolean;
  replica_count: number | null;
  /** Requested by all replicas together; null if unknown or none. */
  cpus: number | null;
  memory_mib: number | null;
  gpus: number | null;
  waits_for?: string | null;
  /** Of a run of kind `group`. */
  search?: SearchFact | null;
  /** Of a run of kind `pipeline`. */
  pipeline?: PipelineFact | null;
};

/** Kinds of rows that consist of other runs, whose `group` is their id: trials, ops, and the pipelines of a schedule. */
export const PARTS: Record<string, string> = { group: "trial", pipeline: "op", schedule: "run" };

export type OpStatus = Status | "waiting";
/** What lists show of a pipeline. */
export type PipelineFact = { ops: Partial<Record<OpStatus, number>>; total: number; concurrency: number | null };
export type OpRow = {
  name: string;
  kind: string | null;
  status: OpStatus;
  run_id: string | null;
  runs: string[];
  retries: number;
  max_retries: number;
  trigger: string;
  dependencies: string[];
  reason: string;
  started_at: string | null;
  ended_at: string | null;
  params: Record<string, Json>;
  outputs: Record<string, Json>;
  missing: Record<string, string>;
  is_reused: boolean;
};
export type PipelineDetails = {
  id: string;
  kind: "pipeline" | "schedule";
  status: Status;
  concurrency: number | null;
  timeout_s: number | null;
  scheduled_by: string | null;
  next_tick: string | null;
  ticks: { at: string; run_id: string; status: Status | null }[];
  counts: Partial<Record<OpStatus, number>>;
  ops: OpRow[];
  edges: { source: string; target: string; kind: "dependency" | "output" | "condition" }[];
};

/** One parameter of a group's matrix: listed values, or a distribution. */
export type Dimension = {
  name: string;
  kind: string;
  values: Json[] | null;
  arguments: Record<string, number>;
};
export type GroupRung = {
  bracket: number;
  rung: number;
  resource: number | null;
  trials: number;
  ended: number;
  promoted: number;
  best: { trial: number; value: Num } | null;
};
/** The bounds of a 95 % interval. */
export type Interval = [number, number];
/** What lists show of a group. */
export type SearchFact = {
  algorithm: string;
  metric: { name: string; maximize: boolean } | null;
  trials: Partial<Record<TrialState, number>>;
  total: number | null;
  concurrency: number;
  paused: string | null;
  best: { trial: number; run: string; value: Num; interval?: Interval | null } | null;
};
export type GroupDetails = SearchFact & {
  id: string;
  status: Status;
  started_at: string | null;
  finished_at: string | null;
  rungs: GroupRung[];
  seq: number;
  settings: { dimensions: Dimension[]; options: Record<string, Json>; [name: string]: unknown };
};
export type TrialState = "running" | "reported" | "failed" | "invalid" | "stopped";
export type AttemptTimes = {
  attempt: number;
  rung: number;
  queued_at: string;
  started_at: string | null;
  finished_at: string | null;
};
export type TrialRow = {
  trial: number;
  run: string;
  state: TrialState;
  status: Status | null;
  bracket: number;
  rung: number;
  resource: number | null;
  value: Num | null;
  /** Of the mean of repeated runs. */
  interval?: Interval | null;
  values: { rung: number; resource: number | null; value: Num | null }[];
  params: Record<string, Json>;
  why: string;
  decision: string;
  added: boolean;
  attempts: AttemptTimes[];
};
export type TrialsPage = { count: number; seq: number; trials: TrialRow[] };
export type ParamImportance = {
  params: { name: string; share: number }[];
  trials: number;
  best: number;
  resource: number | null;
};

export type Summary = { last: Num | null; [name: string]: Json | undefined };
export type StatusRow = { run_id: string; number: number; attempt: number; status: Status; reason: string; at: string };
export type ReplicaRow = {
  run_id: string;
  attempt: number;
  role: string;
  index: number;
  rank: number;
  name: string;
  status: string;
  reason: string;
  host: string | null;
  pid: number | null;
  cause: string | null;
  code: number | null;
  signal: number | null;
  started_at: string | null;
  finished_at: string | null;
  peak: Record<string, Num>;
  local: number;
};
export type ArtifactRow = {
  run_id: string;
  path: string;
  type: string;
  name: string;
  size: number;
  digest: string | null;
  at: string;
};
export type RunDetails = RunRow & {
  /** Its `group` is the id of a search. */
  is_trial: boolean;
  /** Whether its group is a pipeline or a schedule. */
  is_op?: boolean;
  labels: Record<string, string>;
  facts: Record<string, Json>;
  summaries: Record<string, Summary>;
  statuses: StatusRow[];
  replicas: ReplicaRow[];
  artifacts: ArtifactRow[];
};
/** `archived`: how many matching runs are left out because they are archived. */
export type RunsPage = { count: number; runs: RunRow[]; archived: number };
export type MetricSpread = { runs: number; mean: Num | null; min: Num | null; max: Num | null };
export type GroupedRunsRow = {
  values: Json[];
  /** Selects the runs of the group, in addition to the query of the list. */
  query: string;
  runs: number;
  statuses: { succeeded: number; failed: number; stopped: number; active: number };
  first_at: string;
  last_at: string;
  metrics: Record<string, MetricSpread>;
};
export type GroupedRuns = { count: number; by: string[]; groups: GroupedRunsRow[] };
export type SavedView = {
  id: string;
  name: string;
  project: string | null;
  user: string;
  shared: boolean;
  q: string;
  sort: string;
  columns: string;
  by: string;
  updated_at: string;
};
export type Columns = { params: { name: string; runs: number }[]; metrics: { name: string; runs: number }[] };
export type ProjectRow = {
  name: string;
  runs: number;
  statuses?: Partial<Record<Status, number>>;
  updated_at?: string | null;
};

/** From none to far behind. The server decides: see `topology` in docs/reference/rest-api.md. */
export type Lag = 0 | 1 | 2 | 3;
export type TopologyReplica = {
  name: string;
  role: string;
  index: number;
  rank: number;
  host: string | null;
  status: string;
  reason: string;
  cause: string | null;
  code: number | null;
  signal: number | null;
  started_at: string | null;
  finished_at: string | null;
  step: number | null;
  step_at: number | null;
  behind: number | null;
  lag: Lag | null;
};
export type FirstFailure = {
  replica: string;
  rank: number | null;
  host: string | null;
  why: string;
  advice: string | null;
  lines: string[];
  at: string | number | null;
};
export type Topology = {
  attempt: number;
  attempts: number[];
  front: number | null;
  straggler: string | null;
  first_failure: FirstFailure | null;
  replicas: TopologyReplica[];
};

export type ResourceUseRow = {
  resource: string;
  unit: string;
  requested: number | null;
  limit: number | null;
  mean: number | null;
  p95: number | null;
  peak: number | null;
  advice: string | null;
};
export type ResourceUse = {
  roles: { role: string; names: string; count: number; resources: ResourceUseRow[] }[];
  sentences: string[];
};
export type ReplicaUsage = {
  times: number[];
  cpu: (number | null)[];
  memory_mib: (number | null)[];
  gpus: { name: string; util: (number | null)[]; memory_mib: (number | null)[] }[];
};
export type Environment = { argv: string[]; variables: Record<string, string>; folder: string | null };

export type ResourceRequest = { cpu?: number | null; memory_mib?: number | null; gpus?: number | null };
export type QueueRow = RunRow & { place: number | null; asked?: ResourceRequest | null };
export type Queue = { runs: QueueRow[]; schedules: boolean };
export type Machine = {
  host: string;
  cpus: number;
  memory_mib: number;
  gpus: Json[];
  free: { cpu?: number; cpus?: number; memory_mib?: number; gpus?: number | Json[] };
  disk: { total_bytes?: number; free_bytes?: number; total_mib?: number; free_mib?: number; path?: string };
  version: string;
  home?: string | null;
};

export type LogLine = {
  at: number | null;
  replica: string;
  replicas?: string[];
  rank: number | null;
  text: string;
  cursor: string;
};
export type LogPage = {
  lines: LogLine[];
  first: string | null;
  last: string | null;
  at_start: boolean;
  at_end: boolean;
};
export type LogMatches = {
  /** `span`: where in the text the match is, in characters. */
  found: (LogLine & { span: [number, number] })[];
  next: string | null;
  searched_bytes: number;
};

export type ChartLine = {
  replica: string | null;
  rank: number | null;
  steps: number[];
  times: number[];
  low: (Num | null)[];
  high: (Num | null)[];
  mean: (Num | null)[];
  last: (Num | null)[];
  /** How many values were NaN or infinite; absent if none was. */
  odd?: number[];
  /** Of a mean: how many replicas there are, and how many each value is of; absent if each is of all. */
  of?: number;
  ranks?: number[];
};
export type Chart = {
  name: string;
  mode: "ranks" | "mean";
  lines: ChartLine[];
  of: number;
  /** Of a mean: the replicas that are not as far as the leading one, the slowest first. */
  behind?: { count: number; replicas: { replica: string; rank: number | null; step: number }[] };
  overwritten?: { replica: string; attempt: number; steps: number[]; times: number[]; last: (Num | null)[] }[];
  attempts?: { attempt: number; first_step: number }[];
};
export type Charts = { charts: Chart[] };
export type RunsCharts = { charts: { name: string; runs: ({ run: string } & ChartLine)[] }[] };

export type OutputRow = { path: string; size: number | null; [name: string]: Json | undefined };
export type Preview = {
  kind: string;
  title?: string;
  lines: string[];
  table?: { columns: string[]; rows: Scalar[][] };
  is_cut: boolean;
  size: number;
  view: string | null;
};
export type CompareGroup = "params" | "metrics" | "spec" | "code" | "environment";
export type Comparison = {
  runs: RunRow[];
  rows: { group: CompareGroup; name: string; values: Json[]; differs: boolean }[];
};

export type ModelRow = {
  name: string;
  description: string;
  labels: Record<string, string>;
  created_at: string;
  updated_at: string;
  latest: number | null;
  versions: number;
  aliases: Record<string, number>;
};
export type VersionRow = {
  model: string;
  number: number;
  run_id: string | null;
  source: string;
  user: string;
  digest: string | null;
  size: number | null;
  files: number | null;
  created_at: string;
  updated_at: string;
  metrics: Record<string, Num>;
  lineage: Record<string, Json>;
  labels: Record<string, string>;
  description: string;
  aliases: string[];
};
export type ModelEventRow = {
  number: number;
  at: string;
  user: string;
  kind: string;
  model: string;
  version: number | null;
  reason: string;
  data: Record<string, Json>;
};
export type ModelDetails = Omit<ModelRow, "versions"> & { versions: VersionRow[]; events: ModelEventRow[] };

/** An output of a run that looks like a model and is not registered. */
export type ModelCandidate = {
  run_id: string;
  run_name: string | null;
  project: string;
  path: string;
  size: number;
  at: string;
};

export type Session = { name: string; kind: string; role: Role | null; roles: Record<string, Role> };

const DONE: readonly string[] = ["succeeded", "failed", "upstream_failed", "stopped", "skipped"];
export const isDone = (status: string): boolean => DONE.includes(status);
