/** Changes of a group, for editors: pause and resume, how many trials run, more trials, a point of one's own. */

import { type FormEvent, type ReactNode, useId, useState } from "react";
import { apiPath, type GroupDetails, isDone, type Json, post } from "../api";
import { short } from "../format";
import type { Dimension } from "../types";
import { Confirm, Dialog, Icon, notify } from "../ui";
import { notifyError } from "../ui/notifyError";

type Props = { group: GroupDetails; reload: () => void };
type Asked = "point" | "extend" | "finish" | null;

export function Edits({ group, reload }: Props): ReactNode {
  const [asked, setAsked] = useState<Asked>(null);
  const [isBusy, setBusy] = useState(false);
  const isOver = isDone(group.status);
  const change = async (verb: string, body: Json, done: string): Promise<void> => {
    setBusy(true);
    try {
      const answer = await post<{ taken: boolean }>(`${apiPath`/groups/${group.id}`}/${verb}`, body);
      notify(answer.taken ? done : "Requested. Waiting for the scheduler to apply it.");
      setAsked(null);
    } catch (error) {
      notifyError(error);
    }
    setBusy(false);
    reload();
  };
  return (
    <div className="group-edits">
      {!isOver && (
        <>
          {group.paused === null ? (
            <button
              type="button"
              className="button small"
              disabled={isBusy}
              onClick={() => void change("pause", {}, "Paused. No new trials will start.")}
            >
              Pause
            </button>
          ) : (
            <button
              type="button"
              className="button small main"
              disabled={isBusy}
              onClick={() => void change("resume", {}, "Resumed.")}
            >
              Resume
            </button>
          )}
          <Concurrency key={group.concurrency} now={group.concurrency} isBusy={isBusy} change={change} />
        </>
      )}
      <button type="button" className="button small" onClick={() => setAsked("point")}>
        <Icon name="plus" size={13} /> Add a point
      </button>
      {group.algorithm !== "pbt" && (
        <button type="button" className="button small" onClick={() => setAsked("extend")}>
          {isOver ? "More trials" : "Number of trials"}
        </button>
      )}
      {!isOver && (
        <button type="button" className="button small" onClick={() => setAsked("finish")}>
          Finish
        </button>
      )}
      {asked === "point" && <PointDialog group={group} isBusy={isBusy} change={change} close={() => setAsked(null)} />}
      {asked === "extend" && (
        <ExtendDialog group={group} isBusy={isBusy} change={change} close={() => setAsked(null)} />
      )}
      {asked === "finish" && (
        <Confirm
          title="Stop starting new trials?"
          verb="Finish"
          busy={isBusy}
          onYes={() => void change("finish", {}, "No new trials will start.")}
          onNo={() => setAsked(null)}
        >
          The group finishes when its running trials finish.
        </Confirm>
      )}
    </div>
  );
}

type Change = (verb: string, body: Json, done: string) => Promise<void>;

function Concurrency({ now, isBusy, change }: { now: number; isBusy: boolean; change: Change }): ReactNode {
  const [text, setText] = useState(String(now));
  const n = Number(text);
  const isNew = Number.isInteger(n) && n >= 1 && n !== now;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (isNew) void change("concurrency", { n }, `Concurrency set to ${n}.`);
  };
  return (
    <form className="row" onSubmit={submit}>
      <label className="row">
        <span className="soft">Concurrency</span>
        <input
          className="field small-field group-count"
          type="number"
          min={1}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      {isNew && (
        <button type="submit" className="button small main" disabled={isBusy}>
          Set
        </button>
      )}
    </form>
  );
}

type DialogProps = { group: GroupDetails; isBusy: boolean; change: Change; close: () => void };

function ExtendDialog({ group, isBusy, change, close }: DialogProps): ReactNode {
  const known = group.total ?? Object.values(group.trials).reduce((sum, count) => sum + count, 0);
  const [text, setText] = useState(String(known));
  const n = Number(text);
  return (
    <Dialog
      title="Total number of trials"
      onClose={close}
      foot={
        <button
          type="button"
          className="button main"
          disabled={isBusy || !Number.isInteger(n) || n < 1}
          onClick={() => void change("extend", { n }, `Total number of trials set to ${n}.`)}
        >
          Set
        </button>
      }
    >
      <label className="labelled">
        Trials
        <input className="field" type="number" min={1} value={text} onChange={(event) => setText(event.target.value)} />
      </label>
      <p className="soft group-hint">
        Not counting points added by users.
        {isDone(group.status) && " The group continues if this is more than it already ran."}
      </p>
    </Dialog>
  );
}

function PointDialog({ group, isBusy, change, close }: DialogProps): ReactNode {
  const [texts, setTexts] = useState<Record<string, string>>({});
  const { dimensions } = group.settings;
  const params: Record<string, Json> = {};
  let wrong = "";
  for (const dimension of dimensions) {
    const text = texts[dimension.name] ?? "";
    if (text === "") continue;
    const value = parsed(dimension, text);
    if (value === undefined) wrong = `${dimension.name} must be a number.`;
    else params[dimension.name] = value;
  }
  return (
    <Dialog
      title="Add a point"
      onClose={close}
      foot={
        <button
          type="button"
          className="button main"
          disabled={isBusy || wrong !== "" || Object.keys(params).length === 0}
          onClick={() => void change("points", { params }, "Point added.")}
        >
          Add
        </button>
      }
    >
      <p className="soft group-hint">
        The point runs in addition to the search. Params left empty are sampled at random.
      </p>
      <div className="group-fields">
        {dimensions.map((dimension) => (
          <PointField
            key={dimension.name}
            dimension={dimension}
            text={texts[dimension.name] ?? ""}
            onText={(text) => setTexts({ ...texts, [dimension.name]: text })}
          />
        ))}
      </div>
      {wrong && <p className="group-wrong">{wrong}</p>}
    </Dialog>
  );
}

type FieldProps = { dimension: Dimension; text: string; onText: (text: string) => void };

function PointField({ dimension, text, onText }: FieldProps): ReactNode {
  const { name, values } = dimension;
  const id = useId();
  return (
    <div className="labelled">
      <label htmlFor={id}>{name}</label>
      {values ? (
        <select id={id} className="field" value={text} onChange={(event) => onText(event.target.value)}>
          <option value="">random</option>
          {values.map((value) => (
            <option key={JSON.stringify(value)} value={JSON.stringify(value)}>
              {short(value)}
            </option>
          ))}
        </select>
      ) : (
        <input
          id={id}
          className="field"
          inputMode="decimal"
          placeholder={rangeText(dimension)}
          value={text}
          onChange={(event) => onText(event.target.value)}
        />
      )}
    </div>
  );
}

/** The value of a field; undefined if it is no number, but has to be one. */
function parsed(dimension: Dimension, text: string): Json | undefined {
  if (dimension.values) return JSON.parse(text) as Json;
  const found = Number(text);
  return Number.isFinite(found) ? found : undefined;
}

/** `0.0001 – 0.37`: where the search draws a param from. */
function rangeText({ kind, arguments: { low, high, loc, scale } }: Dimension): string {
  const value = (end: number): string => short(Number((kind.includes("log") ? Math.exp(end) : end).toPrecision(3)));
  if (low !== undefined && high !== undefined) return `${value(low)} – ${value(high)}`;
  if (loc !== undefined && scale !== undefined) return `around ${value(loc)}`;
  return "a number";
}
