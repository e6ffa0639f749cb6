import { type CSSProperties, type ReactNode, type RefObject, useLayoutEffect, useRef, useState } from "react";
import { visibleWindow, type Window } from "./virtualRows";

type Props = {
  count: number;
  /** The height of every row in pixels. */
  rowHeight: number;
  children: (index: number) => ReactNode;
  className?: string;
  style?: CSSProperties;
  /** A sticky header. */
  head?: ReactNode;
  label?: string;
  role?: string;
  /** The initial scroll position. */
  initialScroll?: number;
  onWindow?: (window: Window) => void;
  /** Gives the parent access to the scrolling element. */
  scrollerRef?: RefObject<HTMLDivElement | null>;
};

/** A scrolling list that renders only the rows in view. It needs a fixed height. */
export function VirtualList({
  count,
  rowHeight,
  children,
  className = "",
  style,
  head,
  label,
  role,
  initialScroll = 0,
  onWindow,
  scrollerRef,
}: Props): ReactNode {
  const own = useRef<HTMLDivElement>(null);
  const scroller = scrollerRef ?? own;
  const start = useRef(initialScroll);
  const [seen, setSeen] = useState({ scroll: initialScroll, view: 800 });
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    if (start.current) element.scrollTop = start.current;
    start.current = 0;
    const measure = (): void => {
      const [scroll, view] = [element.scrollTop, element.clientHeight];
      setSeen((before) => (before.scroll === scroll && before.view === view ? before : { scroll, view }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, [scroller]);
  const window = visibleWindow(count, rowHeight, seen.scroll, seen.view);
  const { first, last, top, height } = window;
  // biome-ignore lint/correctness/useExhaustiveDependencies: called only when the window moves
  useLayoutEffect(() => onWindow?.(window), [first, last]);
  const rows: ReactNode[] = [];
  for (let index = first; index < last; index += 1) rows.push(children(index));
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
