// The parser behind `Markdown`, in a chunk of its own. Its tokens become React elements and never HTML: only the elements
// and attributes below exist, and HTML in the text is shown as text.

import MarkdownIt, { type Token } from "markdown-it";
import { createElement, Fragment, type ReactNode } from "react";
import type { MarkdownProps, Resolve } from "./markdown";
import { Picture } from "./ui/Picture";

export const parser = new MarkdownIt({ html: false, linkify: true, maxNesting: 30 });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
parser.validateLink = () => true; // `linkTarget` and `imageSource` decide
parser.normalizeLink = (address) => address;

// The page uses the top heading levels itself.
const TAGS: Record<string, string> = { h1: "h3", h2: "h4", h3: "h5", h4: "h6", h5: "h6", h6: "h6", s: "del" };
for (const tag of ["p", "ul", "ol", "li", "blockquote", "em", "strong", "thead", "tbody", "tr", "th", "td"])
  TAGS[tag] = tag;

/** The URL if it is http or https, else null. */
export function webAddress(address: string): string | null {
  try {
    const url = new URL(address);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

const hasScheme = (address: string): boolean => /^[a-z][a-z0-9+.-]*:/i.test(address) || /^[\\/]{2}/.test(address);

/** A path of this server. `//host` would be another one. */
const isOwnPath = (address: string): boolean => /^\/(?![\\/])/.test(address);

/** A relative address as text; null if it hides control characters, as only hostile texts do. */
function decoded(address: string): string | null {
  let text = address;
  try {
    text = decodeURIComponent(address);
  } catch {
    // keeps its percent signs
  }
  return /\p{Cc}/u.test(text) ? null : text;
}

function resolved(address: string, resolve: Resolve | undefined): string {
  const text = decoded(address);
  return (text !== null && resolve?.(text)) || "";
}

export function linkTarget(address: string, resolve: Resolve | undefined): string | null {
  const web = webAddress(address);
  if (web || hasScheme(address)) return web;
  const found = resolved(address, resolve);
  return isOwnPath(found) ? found : webAddress(found);
}

export function imageSource(address: string, resolve: Resolve | undefined): string | null {
  const found = hasScheme(address) ? "" : resolved(address, resolve);
  return isOwnPath(found) ? found : null;
}

export default function MarkdownView({ text, resolveLink, resolveImage }: MarkdownProps): ReactNode {
  return <>{new Renderer(resolveLink, resolveImage).elements(parser.parse(text, {}))}</>;
}

type Open = { token: Token; children: ReactNode[]; isTask?: boolean };

const TASK = /^\[([ xX])\] /;

class Renderer {
  constructor(
    private readonly resolveLink: Resolve | undefined,
    private readonly resolveImage: Resolve | undefined,
  ) {}

  /** Tokens are flat: each element is opened and closed. */
  elements(tokens: Token[]): ReactNode[] {
    const top: ReactNode[] = [];
    const open: Open[] = [];
    const add = (node: ReactNode): void => {
      (open[open.length - 1]?.children ?? top).push(node);
    };
    tokens.forEach((token, key) => {
      if (token.nesting > 0) open.push({ token, children: [] });
      else if (token.nesting < 0) {
        const closed = open.pop();
        if (closed) add(this.element(closed, key));
      } else {
        const item = tokens[key - 2]?.type === "list_item_open" ? open[open.length - 2] : undefined;
        const task = item && token.type === "inline" ? TASK.exec(token.content) : null;
        if (item && task) {
          item.isTask = true;
          add(<Checkbox key="task" isDone={task[1] !== " "} />);
          const [first] = token.children ?? [];
          if (first) first.content = first.content.replace(TASK, " ");
        }
        add(this.leaf(token, key));
      }
    });
    return top;
  }

  private element({ token, children, isTask }: Open, key: number): ReactNode {
    if (token.type === "paragraph_open" && token.hidden) return <Fragment key={key}>{children}</Fragment>;
    if (token.tag === "a") return this.link(token, children, key);
    if (token.tag === "table") {
      return (
        <div key={key} className="markdown-table">
          <table>{children}</table>
        </div>
      );
    }
    const tag = TAGS[token.tag];
    if (!tag) return <Fragment key={key}>{children}</Fragment>;
    const task = isTask ? { className: "markdown-task" } : {};
    return createElement(tag, { key, ...attributes(token), ...task }, children);
  }

  private link(token: Token, children: ReactNode[], key: number): ReactNode {
    const href = linkTarget(attribute(token, "href") ?? "", this.resolveLink);
    if (href === null) return <Fragment key={key}>{children}</Fragment>;
    const outside = isOwnPath(href) ? {} : { target: "_blank", rel: "noopener noreferrer nofollow" };
    return (
      <a key={key} href={href} title={attribute(token, "title")} {...outside}>
        {children}
      </a>
    );
  }

  private leaf(token: Token, key: number): ReactNode {
    switch (token.type) {
      case "inline":
        return <Fragment key={key}>{this.elements(token.children ?? [])}</Fragment>;
      case "code_inline":
        return <code key={key}>{token.content}</code>;
      case "code_block":
      case "fence":
        return (
          <pre key={key}>
            <code>{token.content.replace(/\n$/, "")}</code>
          </pre>
        );
      case "image":
        return this.image(token, key);
      case "hardbreak":
        return <br key={key} />;
      case "hr":
        return <hr key={key} />;
      case "softbreak":
        return "\n";
      default:
        return token.content;
    }
  }

  private image(token: Token, key: number): ReactNode {
    const src = imageSource(attribute(token, "src") ?? "", this.resolveImage);
    if (src === null) {
      return (
        <span key={key} className="markdown-image">
          {token.content}
        </span>
      );
    }
    return <Picture key={key} src={src} alt={token.content} title={attribute(token, "title")} />;
  }
}

function Checkbox({ isDone }: { isDone: boolean }): ReactNode {
  return <input type="checkbox" checked={isDone} disabled aria-label={isDone ? "done" : "to do"} />;
}

function attribute(token: Token, name: string): string | undefined {
  return token.attrGet(name)?.toString();
}

function attributes(token: Token): Record<string, unknown> {
  if (token.tag === "ol") return { start: Number(attribute(token, "start") ?? 1) };
  const align = /text-align:(left|right|center)/.exec(attribute(token, "style") ?? "")?.[1];
  return align ? { className: `align-${align}` } : {};
}
