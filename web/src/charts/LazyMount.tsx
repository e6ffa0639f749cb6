/** Mounts its children when they come near the viewport, and unmounts them when they are far from it. */

import { type ReactNode, useEffect, useRef, useState } from "react";

export function LazyMount({ height, children }: { height: number; children: () => ReactNode }) {
  const box = useRef<HTMLDivElement>(null);
  const [isNear, setNear] = useState(false);
  const [lastHeight, setLastHeight] = useState(height);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new IntersectionObserver(
      (entries) => {
        const entry = entries.at(-1); // a busy page gets several at once; the last one is current
        if (!entry) return;
        if (!entry.isIntersecting && entry.boundingClientRect.height > 0)
          setLastHeight(entry.boundingClientRect.height);
        setNear(entry.isIntersecting);
      },
      { rootMargin: "300px 0px" },
    );
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return (
    <div ref={box} style={isNear ? { minHeight: height } : { height: lastHeight }}>
      {isNear ? children() : null}
    </div>
  );
}
