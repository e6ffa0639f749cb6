/** Mounts its children when they come near the viewport, and unmounts them when they are far from it. */

import { type ReactNode, useEffect, useRef, useState } from "react";

export function LazyMount({ height, children }: { height: number; children: () => ReactNode }) {
  const place = useRef<HTMLDivElement>(null);
  const [isNear, setNear] = useState(false);
  const [kept, setKept] = useState(height);
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const seen = new IntersectionObserver(
      (entries) => {
        const entry = entries.at(-1); // a busy page gets several at once; the last one is current
        if (!entry) return;
        if (!entry.isIntersecting && entry.boundingClientRect.height > 0) setKept(entry.boundingClientRect.height);
        setNear(entry.isIntersecting);
      },
      { rootMargin: "300px 0px" },
    );
    seen.observe(element);
    return () => seen.disconnect();
  }, []);
  return (
    <div ref={place} style={isNear ? { minHeight: height } : { height: kept }}>
      {isNear ? children() : null}
    </div>
  );
}
