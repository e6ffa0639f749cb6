import type { ReactNode } from "react";
import { Link } from "../router";

export type Tab = { key: string; label: string; to: string; count?: number | null };

/** The tabs of a page, each with its own URL. */
export function Tabs({
  tabs,
  current,
  label = "Tabs",
}: {
  tabs: readonly Tab[];
  current: string;
  label?: string;
}): ReactNode {
  return (
    <nav className="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <Link key={tab.key} to={tab.to} aria-current={tab.key === current ? "page" : undefined}>
          {tab.label}
          {tab.count ? <span className="tab-count">{tab.count}</span> : null}
        </Link>
      ))}
    </nav>
  );
}
