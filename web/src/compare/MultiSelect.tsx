/** Several of many names: a button that opens a list with boxes to tick, and a field to find among them. */

import "./MultiSelect.css";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";

interface Props {
  title: string;
  names: string[];
  chosen: string[];
  onChange: (chosen: string[]) => void;
  /** What a name is called, where that is not the name. */
  label?: (name: string) => string;
  /** What it says when nothing is chosen. */
  none?: string;
  most?: number;
}

export function Picker({ title, names, chosen, onChange, label = (name) => name, none = "none", most }: Props) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const id = useId();
  useAway(box, isOpen, () => setOpen(false));
  const short =
    chosen.length === 0 ? none : chosen.length <= 2 ? chosen.map(label).join(", ") : `${chosen.length} chosen`;
  const close = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !isOpen) return;
    event.stopPropagation();
    setOpen(false);
    box.current?.querySelector("button")?.focus();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it only hears the Escape of what is inside
    <div className="picker" ref={box} onKeyDown={close}>
      <button
        type="button"
        className="button small"
        aria-expanded={isOpen}
        aria-controls={id}
        onClick={() => setOpen(!isOpen)}
      >
        <span className="soft">{title}</span> <span className="picker-chosen">{short}</span> ▾
      </button>
      {isOpen && (
        <Choosing id={id} title={title} names={names} chosen={chosen} onChange={onChange} label={label} most={most} />
      )}
    </div>
  );
}

type ChoosingProps = Required<Pick<Props, "title" | "names" | "chosen" | "onChange" | "label">> & {
  id: string;
  most: number | undefined;
};

function Choosing({ id, title, names, chosen, onChange, label, most }: ChoosingProps) {
  const [find, setFind] = useState("");
  const wanted = find.trim().toLowerCase();
  const shown = names.filter((name) => label(name).toLowerCase().includes(wanted)).slice(0, 300);
  const isFull = most !== undefined && chosen.length >= most;
  const tick = (name: string) =>
    onChange(chosen.includes(name) ? chosen.filter((other) => other !== name) : [...chosen, name]);
  return (
    <fieldset className="picker-list" id={id}>
      <legend className="hidden-text">{title}</legend>
      {names.length > 8 && (
        <input
          className="field"
          type="search"
          placeholder="Find…"
          aria-label={`Find in ${title}`}
          value={find}
          onChange={(event) => setFind(event.target.value)}
          // biome-ignore lint/a11y/noAutofocus: it was opened to be typed into
          autoFocus
        />
      )}
      <div className="picker-names">
        {shown.map((name) => (
          <label key={name} className="picker-name">
            <input
              type="checkbox"
              checked={chosen.includes(name)}
              disabled={isFull && !chosen.includes(name)}
              onChange={() => tick(name)}
            />
            <span>{label(name)}</span>
          </label>
        ))}
        {shown.length === 0 && <p className="soft">Nothing is called so.</p>}
      </div>
      {chosen.length > 0 && (
        <button type="button" className="button small" onClick={() => onChange([])}>
          Clear
        </button>
      )}
    </fieldset>
  );
}

/** Calls when somebody points or tabs elsewhere. */
function useAway(box: React.RefObject<HTMLElement | null>, when: boolean, away: () => void): void {
  const latest = useRef(away);
  latest.current = away;
  useEffect(() => {
    if (!when) return;
    const left = (event: Event) => {
      if (event.target instanceof Node && !box.current?.contains(event.target)) latest.current();
    };
    document.addEventListener("pointerdown", left);
    document.addEventListener("focusin", left);
    return () => {
      document.removeEventListener("pointerdown", left);
      document.removeEventListener("focusin", left);
    };
  }, [box, when]);
}
