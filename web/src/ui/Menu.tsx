import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";

type Props = {
  /** The content of the button. */
  label: ReactNode;
  /** The accessible name of the button, if its label has no text. */
  name?: string;
  className?: string;
  alignRight?: boolean;
  /** The content of the menu. */
  children: (close: () => void) => ReactNode;
};

/** A button that opens a menu. Arrow keys move through it; Escape and a click outside close it. */
export function Menu({ label, name, className = "button", alignRight = false, children }: Props): ReactNode {
  const [open, setOpen] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  useEffect(() => {
    if (!open) return;
    const away = (event: PointerEvent): void => {
      if (!place.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", away);
    place.current?.querySelector<HTMLElement>(".menu input, .menu .menu-item")?.focus();
    return () => document.removeEventListener("pointerdown", away);
  }, [open]);
  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };
  const press = (event: KeyboardEvent): void => {
    if (!open) return;
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      step(place.current, event.key === "ArrowDown" ? 1 : -1);
    }
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it only handles keys of its children
    <div className="menu-place" ref={place} onKeyDown={press}>
      <button
        ref={button}
        type="button"
        className={className}
        aria-label={name}
        title={name}
        aria-haspopup="true"
        aria-expanded={open}
        aria-controls={id}
        onClick={() => setOpen(!open)}
      >
        {label}
      </button>
      {open && (
        <div className={alignRight ? "menu align-right" : "menu"} id={id}>
          {children(close)}
        </div>
      )}
    </div>
  );
}

function step(place: HTMLElement | null, by: number): void {
  const items = [...(place?.querySelectorAll<HTMLElement>(".menu input, .menu .menu-item:not(:disabled)") ?? [])];
  const now = items.indexOf(document.activeElement as HTMLElement);
  items[(now + by + items.length) % items.length]?.focus();
}
