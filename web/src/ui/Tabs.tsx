import type { ReactNode } from "react";
import { Link } from "../router";

export type Tab = { key: string; label: string; to: string; count?: number | null };

/** Parts of a page, each with an address of its own. */
export function Tabs({
  tabs,
  now,
  label = "Parts of this page",
}: {
  tabs: readonly Tab[];
  now: string;
  label?: string;
}): ReactNode {
  return (
    <nav className="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <Link key={tab.key} to={tab.to} aria-current={tab.key === now ? "page" : undefined}>
          {tab.label}
          {tab.count ? <span className="tab-count">{tab.count}</span> : null}
        </Link>
      ))}
    </nav>
  );
}
