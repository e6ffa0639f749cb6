/** HTML of others as React elements: only the elements below, without attributes but the spans of cells. Scripts, styles,
 * images and links of the HTML never reach the page; the parser runs none of them. */

import { createElement, Fragment, type ReactNode, useMemo } from "react";

const KEPT = new Set(
  "table thead tbody tfoot tr th td caption p div span b strong i em u s code pre ul ol li dl dt dd br hr small sub sup h1 h2 h3 h4 h5 h6 blockquote".split(
    " ",
  ),
);
const VOID = new Set(["br", "hr"]);
const DROPPED = new Set("script style iframe object embed svg math template noscript head title".split(" "));
const MAX_NODES = 20_000;
const MAX_DEPTH = 60;

export function SafeHtml({ html, fallback }: { html: string; fallback: string }): ReactNode {
  const found = useMemo(() => safeElements(html), [html]);
  return found.hasText ? (
    <div className="safe-html">{found.nodes}</div>
  ) : (
    <pre className="notebook-text">{fallback}</pre>
  );
}

/** The parser would report styles that the page's policy forbids. They are left out anyway. */
const withoutStyles = (html: string): string =>
  html
    .replace(/<(style|script)\b[\s\S]*?(?:<\/\1\s*>|$)/gi, "")
    .replace(/\sstyle\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]*)/gi, " ");

export function safeElements(html: string): { nodes: ReactNode[]; hasText: boolean } {
  const body = new DOMParser().parseFromString(withoutStyles(html), "text/html").body;
  let left = MAX_NODES;
  let hasText = false;
  const convert = (node: Node, key: number, depth: number): ReactNode => {
    left -= 1;
    if (left < 0) return null;
    if (node.nodeType === Node.TEXT_NODE) {
      hasText ||= Boolean(node.textContent?.trim());
      return node.textContent;
    }
    if (!(node instanceof Element)) return null;
    const tag = node.localName;
    if (DROPPED.has(tag) || depth > MAX_DEPTH) return null;
    if (VOID.has(tag)) return createElement(tag, { key });
    const inTable = ["table", "thead", "tbody", "tfoot", "tr"].includes(tag); // no texts between rows
    const children = [...node.childNodes]
      .filter((child) => !inTable || child.nodeType !== Node.TEXT_NODE)
      .map((child, index) => convert(child, index, depth + 1));
    if (!KEPT.has(tag)) return <Fragment key={key}>{children}</Fragment>;
    return createElement(tag, { key, ...spans(node, tag) }, ...(children.length ? [children] : []));
  };
  const nodes = [...body.childNodes].map((node, index) => convert(node, index, 0));
  return { nodes, hasText };
}

function spans(node: Element, tag: string): Record<string, number> {
  if (tag !== "td" && tag !== "th") return {};
  const amount = (name: string) => Math.min(1000, Math.max(1, Number(node.getAttribute(name)) || 1));
  return { colSpan: amount("colspan"), rowSpan: amount("rowspan") };
}
