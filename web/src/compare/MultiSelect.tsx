/** A dropdown with checkboxes and a search field. */

import "./MultiSelect.css";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";

interface Props {
  title: string;
  names: string[];
  chosen: string[];
  onChange: (chosen: string[]) => void;
  /** The label of a name; the name itself by default. */
  label?: (name: string) => string;
  /** The text when nothing is selected. */
  none?: string;
  max?: number;
}

export function MultiSelect({ title, names, chosen, onChange, label = (name) => name, none = "none", max }: Props) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const id = useId();
  useClickOutside(box, isOpen, () => setOpen(false));
  const short =
    chosen.length === 0 ? none : chosen.length <= 2 ? chosen.map(label).join(", ") : `${chosen.length} selected`;
  const close = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !isOpen) return;
    event.stopPropagation();
    setOpen(false);
    box.current?.querySelector("button")?.focus();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it only handles Escape of its children
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
        <OptionList id={id} title={title} names={names} chosen={chosen} onChange={onChange} label={label} max={max} />
      )}
    </div>
  );
}

type OptionListProps = Required<Pick<Props, "title" | "names" | "chosen" | "onChange" | "label">> & {
  id: string;
  max: number | undefined;
};

function OptionList({ id, title, names, chosen, onChange, label, max }: OptionListProps) {
  const [find, setFind] = useState("");
  const search = find.trim().toLowerCase();
  const shown = names.filter((name) => label(name).toLowerCase().includes(search)).slice(0, 300);
  const isFull = max !== undefined && chosen.length >= max;
  const toggle = (name: string) =>
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
          // biome-ignore lint/a11y/noAutofocus: the user opened it to type
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
              onChange={() => toggle(name)}
            />
            <span>{label(name)}</span>
          </label>
        ))}
        {shown.length === 0 && <p className="soft">No matches.</p>}
      </div>
      {chosen.length > 0 && (
        <button type="button" className="button small" onClick={() => onChange([])}>
          Clear
        </button>
      )}
    </fieldset>
  );
}

/** Calls `onOutside` when the user clicks or focuses outside the box. */
function useClickOutside(box: React.RefObject<HTMLElement | null>, isEnabled: boolean, onOutside: () => void): void {
  const latest = useRef(onOutside);
  latest.current = onOutside;
  useEffect(() => {
    if (!isEnabled) return;
    const check = (event: Event) => {
      if (event.target instanceof Node && !box.current?.contains(event.target)) latest.current();
    };
    document.addEventListener("pointerdown", check);
    document.addEventListener("focusin", check);
    return () => {
      document.removeEventListener("pointerdown", check);
      document.removeEventListener("focusin", check);
    };
  }, [box, isEnabled]);
}
