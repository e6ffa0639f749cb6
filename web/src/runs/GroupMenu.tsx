import { type ReactNode, useState } from "react";
import { type Columns, queryString, useResource } from "../api";
import { count, visible } from "../format";
import { Icon, Menu } from "../ui";

export const MAX_GROUP_FIELDS = 3;

/** The fields of runs that they can be grouped by, besides params. */
const RUN_FIELDS: readonly [field: string, title: string][] = [
  ["tags", "Tag"],
  ["status", "Status"],
  ["user", "User"],
  ["project", "Project"],
  ["framework", "Framework"],
  ["backend", "Backend"],
  ["group", "Group"],
  ["name", "Name"],
  ["commit", "Commit"],
  ["gpus", "GPUs"],
  ["replicas", "Replicas"],
];

export const groupTitle = (field: string): string =>
  visible(field.startsWith("params.") ? field.slice(7) : (RUN_FIELDS.find(([key]) => key === field)?.[1] ?? field));

type Props = { project: string; by: readonly string[]; choose: (fields: string[]) => void };

/** Selects the fields that runs are grouped by. */
export function GroupMenu(props: Props): ReactNode {
  const label = (
    <>
      <Icon name="rows" size={14} />
      <span className="wide-only">{props.by.length ? `By ${props.by.map(groupTitle).join(", ")}` : "Group"}</span>
    </>
  );
  return (
    <Menu label={label} name="Group runs" className={props.by.length ? "button is-on" : "button"} alignRight>
      {() => <Fields {...props} />}
    </Menu>
  );
}

function Fields({ project, by, choose }: Props): ReactNode {
  const [text, setText] = useState("");
  const { data } = useResource<Columns>(`/runs/columns${queryString({ project })}`);
  const params = data?.params.map(({ name, runs }): [string, string, number | null] => [`params.${name}`, name, runs]);
  const groups: [string, [string, string, number | null][]][] = [
    ["Params", params ?? []],
    ["Run", RUN_FIELDS.map(([field, title]) => [field, title, null])],
  ];
  const toggle = (field: string): void =>
    choose(by.includes(field) ? by.filter((one) => one !== field) : [...by, field].slice(-MAX_GROUP_FIELDS));
  return (
    <div className="columns-menu">
      <input
        className="field"
        placeholder="Find param"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      {groups.map(([title, all]) => {
        const found = all.filter(([, name]) => name.toLowerCase().includes(text.toLowerCase()));
        if (!found.length) return null;
        return (
          <fieldset key={title}>
            <legend className="menu-title">{title}</legend>
            {found.slice(0, 60).map(([field, name, runs]) => (
              <label key={field} className="menu-item">
                <input type="checkbox" checked={by.includes(field)} onChange={() => toggle(field)} />
                <span className="grow cut" title={name}>
                  {visible(name)}
                </span>
                {runs !== null && <span className="faint number">{count(runs)}</span>}
              </label>
            ))}
          </fieldset>
        );
      })}
      <hr />
      <button type="button" className="menu-item" disabled={!by.length} onClick={() => choose([])}>
        No groups
      </button>
    </div>
  );
}
