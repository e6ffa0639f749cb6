import { type CSSProperties, type ReactNode, type RefObject, useLayoutEffect, useRef, useState } from "react";
import { type Window, windowOf } from "./virtualRows";

type Props = {
  count: number;
  /** The height of every row, in pixels. */
  row: number;
  children: (place: number) => ReactNode;
  className?: string;
  style?: CSSProperties;
  /** Stands above the rows and stays when they scroll. */
  head?: ReactNode;
  label?: string;
  role?: string;
  /** How far it is scrolled at first. */
  begin?: number;
  onWindow?: (window: Window) => void;
  /** Whoever wants to scroll it. */
  place?: RefObject<HTMLDivElement | null>;
};

/** A list of which only what is in view is drawn. It scrolls by itself: give it a height. */
export function VirtualList({
  count,
  row,
  children,
  className = "",
  style,
  head,
  label,
  role,
  begin = 0,
  onWindow,
  place,
}: Props): ReactNode {
  const own = useRef<HTMLDivElement>(null);
  const scroller = place ?? own;
  const start = useRef(begin);
  const [seen, setSeen] = useState({ scroll: begin, view: 800 });
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    if (start.current) element.scrollTop = start.current;
    start.current = 0;
    const look = (): void => {
      const [scroll, view] = [element.scrollTop, element.clientHeight];
      setSeen((before) => (before.scroll === scroll && before.view === view ? before : { scroll, view }));
    };
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, [scroller]);
  const window = windowOf(count, row, seen.scroll, seen.view);
  const { first, last, top, height } = window;
  // biome-ignore lint/correctness/useExhaustiveDependencies: told when the window moves, whoever is told
  useLayoutEffect(() => onWindow?.(window), [first, last]);
  const rows: ReactNode[] = [];
  for (let at = first; at < last; at += 1) rows.push(children(at));
  return (
    <section
      ref={scroller}
      className={`virtual ${className}`}
      style={style}
      role={role}
      aria-label={label}
      tabIndex={head ? undefined : 0}
    >
      {head}
      <div className="virtual-body" role={role ? "rowgroup" : undefined} style={{ height, position: "relative" }}>
        <div role={role ? "presentation" : undefined} style={{ transform: `translateY(${top}px)` }}>
          {rows}
        </div>
      </div>
    </section>
  );
}
