import {
  type KeyboardEvent,
  type ReactNode,
  type RefObject,
  useEffect,
  useId,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import type { ApiError } from "../api";
import { CodeText, Icon } from "../ui";
import {
  accept,
  errorPosition,
  isComplete,
  type KnownValues,
  normalizeQuery,
  type Suggestion,
  suggest,
} from "./querySuggestions";

const PAUSE_MS = 450;

type Props = {
  q: string;
  apply: (q: string) => void;
  known: () => KnownValues;
  onFocus: () => void;
  error: ApiError | null;
  input: RefObject<HTMLInputElement | null>;
};

/** The query input, with suggestions and the position of errors. */
export function QueryBox({ q, apply, known, onFocus, error, input }: Props): ReactNode {
  const [text, setText] = useState(q);
  const [caret, setCaret] = useState(q.length);
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState<number | null>(null);
  const applied = useRef(q);
  const id = useId();
  useEffect(() => {
    if (q !== applied.current) setText(q);
    applied.current = q;
  }, [q]);

  // After a suggestion is accepted, the caret is placed behind it.
  const target = useRef<number | null>(null);
  useLayoutEffect(() => {
    if (target.current === null) return;
    input.current?.focus();
    input.current?.setSelectionRange(target.current, target.current);
    target.current = null;
  });

  const found = open ? suggest(text, caret, known()) : null;
  const typed = found ? text.slice(found.from, found.to) : "";
  const items = (found?.items ?? []).filter((item) => item.text !== typed);
  const isPrefix = typed !== "" && items[0]?.text.startsWith(typed);
  const active = chosen ?? (isPrefix ? 0 : -1);

  const submitQuery = (query: string): void => {
    applied.current = query;
    apply(query);
  };
  const pause = useRef(0);
  const write = (now: string, at: number): void => {
    setText(now);
    setCaret(at);
    setChosen(null);
    setOpen(true);
    clearTimeout(pause.current);
    if (isComplete(now)) pause.current = window.setTimeout(() => submitQuery(now.trim()), PAUSE_MS);
  };
  const take = (suggestion: Suggestion): void => {
    if (!found) return;
    const [now, at] = accept(text, found, suggestion);
    write(now, at);
    if (isComplete(now)) setOpen(false);
    target.current = at;
  };
  const submit = (): void => {
    clearTimeout(pause.current);
    const query = normalizeQuery(text.trim());
    setText(query);
    setOpen(false);
    submitQuery(query);
  };
  const press = (event: KeyboardEvent<HTMLInputElement>): void => {
    const { key } = event;
    if ((key === "ArrowDown" || key === "ArrowUp") && items.length) {
      event.preventDefault();
      const by = key === "ArrowDown" ? 1 : -1;
      setChosen(active < 0 ? (by > 0 ? 0 : items.length - 1) : (active + by + items.length) % items.length);
    } else if ((key === "Enter" || key === "Tab") && items[active] && !event.shiftKey) {
      event.preventDefault();
      take(items[active]);
    } else if (key === "Enter") {
      submit();
    } else if (key === "Escape") {
      event.preventDefault();
      if (open) setOpen(false);
      else event.currentTarget.blur();
    } else if (key === " " && event.ctrlKey) {
      event.preventDefault();
      setOpen(true);
    }
  };
  const moved = (): void => setCaret(input.current?.selectionStart ?? text.length);
  const position = error?.status === 400 ? errorPosition(error.message) : null;
  return (
    <div className="query">
      <div className={error ? "query-field is-wrong" : "query-field"}>
        <Icon name="search" size={14} />
        <input
          ref={input}
          role="combobox"
          aria-label="Filter runs"
          aria-expanded={items.length > 0}
          aria-controls={id}
          aria-activedescendant={active >= 0 ? `${id}-${active}` : undefined}
          aria-autocomplete="list"
          aria-invalid={error !== null}
          placeholder="Filter: status:running, metric.loss:<0.1"
          spellCheck={false}
          autoComplete="off"
          autoCapitalize="off"
          value={text}
          onChange={(event) => write(event.target.value, event.target.selectionStart ?? event.target.value.length)}
          onKeyDown={press}
          onSelect={moved}
          onFocus={() => {
            onFocus();
            setOpen(true);
          }}
          onBlur={() => {
            setOpen(false);
            if (text.trim() !== applied.current && (isComplete(text) || text.trim() === "")) submitQuery(text.trim());
          }}
        />
        {text ? (
          <button
            type="button"
            className="button plain icon small"
            aria-label="Clear filter"
            onClick={() => {
              write("", 0);
              setOpen(false);
              submitQuery("");
            }}
          >
            <Icon name="close" size={12} />
          </button>
        ) : (
          <kbd title="Press / to focus">/</kbd>
        )}
      </div>
      {items.length > 0 && <SuggestionList items={items} active={active} id={id} take={take} />}
      {error && !open && <QueryError q={q} error={error} position={position} />}
    </div>
  );
}

type SuggestionListProps = { items: Suggestion[]; active: number; id: string; take: (suggestion: Suggestion) => void };

function SuggestionList({ items, active, id, take }: SuggestionListProps): ReactNode {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (active >= 0) place.current?.children[active]?.scrollIntoView({ block: "nearest" });
  }, [active]);
  return (
    <div className="menu query-choices" role="listbox" id={id} ref={place} aria-label="Suggestions">
      {items.map((item, number) => (
        <div
          key={item.text}
          id={`${id}-${number}`}
          role="option"
          tabIndex={-1}
          aria-selected={number === active}
          className="menu-item"
          onPointerDown={(event) => {
            event.preventDefault();
            take(item);
          }}
        >
          <code className="grow cut">{item.text}</code>
          <span className="faint">{item.about}</span>
        </div>
      ))}
    </div>
  );
}

type QueryErrorProps = { q: string; error: ApiError; position: ReturnType<typeof errorPosition> };

/** The server's error message, with the position marked in the query. */
function QueryError({ q, error, position }: QueryErrorProps): ReactNode {
  if (!position) {
    return (
      <div className="query-error" role="alert">
        <p>
          <CodeText text={error.message} />
        </p>
        {error.hint && <p className="soft">{error.hint}</p>}
      </div>
    );
  }
  const [advice, fields] = position.message.split(/ The fields are /);
  return (
    <div className="query-error" role="alert">
      <code>
        {q.slice(0, position.start)}
        <mark>{q.slice(position.start, position.start + position.length) || " "}</mark>
        {q.slice(position.start + position.length)}
      </code>
      <p>
        <b>At character {position.start + 1}:</b> <CodeText text={advice ?? ""} />
      </p>
      {fields && <p className="soft">Fields: {fields}</p>}
    </div>
  );
}
