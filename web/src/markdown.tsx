/** Renders Markdown as React elements: headings, lists, code, quotes, tables, emphasis and links. User text never becomes
 * HTML, and links are limited to http and https. */

import "./markdown.css";
import { Fragment, type ReactNode } from "react";

export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "strong" | "em" | "del"; children: Inline[] }
  | { kind: "link"; href: string; children: Inline[] }
  | { kind: "break" };

export type Item = { children: Block[]; done?: boolean };

export type Block =
  | { kind: "heading"; level: number; children: Inline[] }
  | { kind: "paragraph"; children: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "quote"; children: Block[] }
  | { kind: "list"; ordered: boolean; start: number; items: Item[] }
  | { kind: "table"; head: Inline[][]; align: ("left" | "right" | "center" | null)[]; rows: Inline[][][] }
  | { kind: "rule" };

const DEEPEST = 8;
const LONGEST = 100_000;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?\s*#*\s*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const BULLET = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*)|$)/;
const QUOTE = /^ {0,3}> ?/;
const DIVIDER = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

export function parseMarkdown(text: string): Block[] {
  return blocks(text.slice(0, LONGEST).replace(/\r\n?/g, "\n").replaceAll("\t", "    ").split("\n"), 0);
}

function blocks(lines: string[], depth: number): Block[] {
  const found: Block[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at] as string;
    const step = line.trim() === "" ? { next: at + 1 } : block(lines, at, depth);
    if ("block" in step && step.block) found.push(step.block);
    at = step.next;
  }
  return found;
}

type Step = { block?: Block; next: number };

function block(lines: string[], at: number, depth: number): Step {
  const line = lines[at] as string;
  const heading = HEADING.exec(line);
  if (heading) {
    const level = (heading[1] as string).length;
    return { block: { kind: "heading", level, children: inline(heading[2] ?? "") }, next: at + 1 };
  }
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence[1] as string, fence[2] ?? "");
  if (RULE.test(line)) return { block: { kind: "rule" }, next: at + 1 };
  if (QUOTE.test(line) && depth < DEEPEST) return quote(lines, at, depth);
  if (BULLET.test(line) && depth < DEEPEST) return list(lines, at, depth);
  if (line.includes("|") && DIVIDER.test(lines[at + 1] ?? "") && (lines[at + 1] ?? "").includes("-")) {
    return table(lines, at);
  }
  return paragraph(lines, at);
}

function fenced(lines: string[], at: number, fence: string, language: string): Step {
  const end = new RegExp(`^ {0,3}${fence[0] === "~" ? "~" : "`"}{${fence.length},}\\s*$`);
  let next = at + 1;
  while (next < lines.length && !end.test(lines[next] as string)) next += 1;
  return { block: { kind: "code", language, text: lines.slice(at + 1, next).join("\n") }, next: next + 1 };
}

function quote(lines: string[], at: number, depth: number): Step {
  let next = at;
  while (next < lines.length && QUOTE.test(lines[next] as string)) next += 1;
  const inside = lines.slice(at, next).map((line) => line.replace(QUOTE, ""));
  return { block: { kind: "quote", children: blocks(inside, depth + 1) }, next };
}

function list(lines: string[], at: number, depth: number): Step {
  const first = BULLET.exec(lines[at] as string) as RegExpExecArray;
  const isOrdered = /\d/.test(first[2] as string);
  const items: Item[] = [];
  let next = at;
  while (next < lines.length) {
    const bullet = BULLET.exec(lines[next] as string);
    if (!bullet || /\d/.test(bullet[2] as string) !== isOrdered || RULE.test(lines[next] as string)) break;
    const width = (bullet[1] as string).length + (bullet[2] as string).length + Math.min((bullet[3] ?? " ").length, 4);
    const inside = [bullet[4] ?? ""];
    next += 1;
    while (next < lines.length && belongs(lines, next, width)) {
      inside.push((lines[next] as string).slice(indent(lines[next] as string) >= width ? width : 0));
      next += 1;
    }
    items.push(item(inside, depth));
    while (next < lines.length && (lines[next] as string).trim() === "") next += 1;
  }
  const start = isOrdered ? Number.parseInt(first[2] as string, 10) : 1;
  return { block: { kind: "list", ordered: isOrdered, start, items }, next };
}

function indent(line: string): number {
  return line.length - line.trimStart().length;
}

/** A line belongs to the item if it is indented or continues its paragraph. */
function belongs(lines: string[], at: number, width: number): boolean {
  const line = lines[at] as string;
  if (line.trim() === "") {
    const after = lines.slice(at + 1).find((one) => one.trim() !== "");
    return after !== undefined && indent(after) >= width;
  }
  if (indent(line) >= width) return true;
  return (lines[at - 1] as string).trim() !== "" && !startsBlock(line);
}

function startsBlock(line: string): boolean {
  return HEADING.test(line) || FENCE.test(line) || RULE.test(line) || QUOTE.test(line) || BULLET.test(line);
}

function item(inside: string[], depth: number): Item {
  const task = /^\[([ xX])\]\s+(.*)$/.exec(inside[0] ?? "");
  if (!task) return { children: blocks(inside, depth + 1) };
  return { children: blocks([task[2] as string, ...inside.slice(1)], depth + 1), done: task[1] !== " " };
}

function table(lines: string[], at: number): Step {
  const head = cells(lines[at] as string);
  const align = cells(lines[at + 1] as string).map((cell) => {
    const [left, right] = [cell.startsWith(":"), cell.endsWith(":")];
    return left && right ? "center" : right ? "right" : left ? "left" : null;
  });
  let next = at + 2;
  const rows: Inline[][][] = [];
  while (next < lines.length && (lines[next] as string).includes("|") && (lines[next] as string).trim() !== "") {
    const row = cells(lines[next] as string);
    rows.push(head.map((_, index) => inline(row[index] ?? "")));
    next += 1;
  }
  return {
    block: { kind: "table", head: head.map(inline), align: head.map((_, index) => align[index] ?? null), rows },
    next,
  };
}

function cells(line: string): string[] {
  const bare = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "");
  return bare.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function paragraph(lines: string[], at: number): Step {
  let next = at + 1;
  while (next < lines.length && (lines[next] as string).trim() !== "" && !startsBlock(lines[next] as string)) next += 1;
  const text = lines
    .slice(at, next)
    .map((line) => line.trimStart())
    .join("\n");
  return { block: { kind: "paragraph", children: inline(text) }, next };
}

// Inline elements ---------------------------------------------------------------------------------------------------

const SPECIAL = /[\\`*_~[<h\n]/;

export function inline(text: string, depth = 0): Inline[] {
  const found: Inline[] = [];
  const say = (more: string) => {
    const last = found[found.length - 1];
    if (last?.kind === "text") last.text += more;
    else if (more) found.push({ kind: "text", text: more });
  };
  let at = 0;
  while (at < text.length) {
    const ahead = text.slice(at).search(SPECIAL);
    if (ahead < 0) {
      say(text.slice(at));
      break;
    }
    say(text.slice(at, at + ahead));
    at += ahead;
    const step = special(text, at, depth);
    if (step) {
      found.push(step.node);
      at = step.next;
    } else if (text[at] === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      say(text[at + 1] as string);
      at += 2;
    } else {
      say(text[at] as string);
      at += 1;
    }
  }
  return found;
}

type Found = { node: Inline; next: number } | null;

function special(text: string, at: number, depth: number): Found {
  const letter = text[at];
  if (letter === "`") return codeSpan(text, at);
  if (letter === "\n") return lineEnd(text, at);
  if (depth >= DEEPEST) return null;
  if (letter === "[") return link(text, at, depth);
  if (letter === "<" || letter === "h") return bareLink(text, at);
  if (letter === "*" || letter === "_" || letter === "~") return emphasis(text, at, depth);
  return null;
}

function codeSpan(text: string, at: number): Found {
  const ticks = (/^`+/.exec(text.slice(at)) as RegExpExecArray)[0];
  const end = text.slice(at + ticks.length).search(new RegExp(`(?<!\`)${ticks}(?!\`)`));
  if (end < 0) return null;
  const inside = text.slice(at + ticks.length, at + ticks.length + end).replaceAll("\n", " ");
  const bare = /^ .* $/.test(inside) && inside.trim() ? inside.slice(1, -1) : inside;
  return { node: { kind: "code", text: bare }, next: at + ticks.length * 2 + end };
}

function lineEnd(text: string, at: number): Found {
  const isHard = /(?: {2}|\\)$/.test(text.slice(Math.max(0, at - 2), at));
  return { node: isHard ? { kind: "break" } : { kind: "text", text: "\n" }, next: at + 1 };
}

function link(text: string, at: number, depth: number): Found {
  const match =
    /^\[((?:[^[\]\\]|\\.|\[[^\]]*\])*)\]\(\s*<?([^\s<>()]*(?:\([^\s()]*\)[^\s<>()]*)*)>?(?:\s+"[^"]*")?\s*\)/.exec(
      text.slice(at, at + 4000),
    );
  if (!match) return null;
  const href = safeHref(match[2] as string);
  const children = inline(match[1] as string, depth + 1);
  const next = at + match[0].length;
  // A link with another scheme stays plain text, so that its target is visible.
  return { node: href ? { kind: "link", href, children } : { kind: "text", text: match[0] }, next };
}

function bareLink(text: string, at: number): Found {
  const before = text[at - 1];
  const angled = /^<(https?:\/\/[^\s<>]+)>/.exec(text.slice(at, at + 2000));
  const bare =
    angled ??
    (before && /\w/.test(before) ? null : /^(https?:\/\/[^\s<>"'`]*[\w/#=&%~+-])/.exec(text.slice(at, at + 2000)));
  const href = bare && safeHref(bare[1] as string);
  if (!bare || !href) return null;
  return {
    node: { kind: "link", href, children: [{ kind: "text", text: bare[1] as string }] },
    next: at + bare[0].length,
  };
}

function emphasis(text: string, at: number, depth: number): Found {
  const letter = text[at] as string;
  const isDouble = text[at + 1] === letter;
  if (letter === "~" && !isDouble) return null;
  const mark = isDouble ? letter + letter : letter;
  const start = at + mark.length;
  if (!text[start] || /\s/.test(text[start] as string)) return null;
  if (letter === "_" && /\w/.test(text[at - 1] ?? "")) return null; // snake_case is a name
  let end = text.indexOf(mark, start + 1);
  while (end > 0 && !closes(text, end, mark)) end = text.indexOf(mark, end + 1);
  if (end < 0) return null;
  const kind = letter === "~" ? "del" : isDouble ? "strong" : "em";
  return { node: { kind, children: inline(text.slice(start, end), depth + 1) }, next: end + mark.length };
}

function closes(text: string, end: number, mark: string): boolean {
  const after = text[end + mark.length] ?? "";
  if (/\s/.test(text[end - 1] as string) || text[end - 1] === "\\") return false;
  if (mark.length === 1 && (after === mark || text[end - 1] === mark)) return false;
  return mark[0] !== "_" || !/\w/.test(after);
}

/** The URL if it is http or https, else null. */
export function safeHref(address: string): string | null {
  try {
    const url = new URL(address);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

// React elements ----------------------------------------------------------------------------------------------------------

export function Markdown({ text }: { text: string }) {
  return <div className="markdown">{parseMarkdown(text).map(drawBlock)}</div>;
}

/** A line of text with inline code and emphasis. */
export function InlineMarkdown({ text }: { text: string }) {
  return <>{inline(text).map(drawInline)}</>;
}

function drawBlock(block: Block, key: number): ReactNode {
  switch (block.kind) {
    case "heading": {
      // The page uses the top heading levels itself.
      const Tag = `h${Math.min(6, block.level + 2)}` as "h3";
      return <Tag key={key}>{block.children.map(drawInline)}</Tag>;
    }
    case "paragraph":
      return <p key={key}>{block.children.map(drawInline)}</p>;
    case "code":
      return (
        <pre key={key}>
          <code>{block.text}</code>
        </pre>
      );
    case "quote":
      return <blockquote key={key}>{block.children.map(drawBlock)}</blockquote>;
    case "list": {
      const items = block.items.map(drawItem);
      return block.ordered ? (
        <ol key={key} start={block.start}>
          {items}
        </ol>
      ) : (
        <ul key={key}>{items}</ul>
      );
    }
    case "table":
      return <MarkdownTable key={key} block={block} />;
    case "rule":
      return <hr key={key} />;
  }
}

function drawItem(item: Item, key: number): ReactNode {
  const [only] = item.children;
  const content =
    item.children.length === 1 && only?.kind === "paragraph"
      ? only.children.map(drawInline)
      : item.children.map(drawBlock);
  if (item.done === undefined) return <li key={key}>{content}</li>;
  return (
    <li key={key} className="markdown-task">
      <input type="checkbox" checked={item.done} disabled aria-label={item.done ? "done" : "to do"} /> {content}
    </li>
  );
}

function MarkdownTable({ block }: { block: Extract<Block, { kind: "table" }> }) {
  const place = (index: number) => (block.align[index] ? `align-${block.align[index]}` : undefined);
  return (
    <div className="markdown-table">
      <table>
        <thead>
          <tr>
            {block.head.map((cell, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: cells have no other key
              <th key={index} className={place(index)}>
                {cell.map(drawInline)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {block.rows.map((row, number) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: rows have no other key
            <tr key={number}>
              {row.map((cell, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: cells have no other key
                <td key={index} className={place(index)}>
                  {cell.map(drawInline)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function drawInline(node: Inline, key: number): ReactNode {
  switch (node.kind) {
    case "text":
      return <Fragment key={key}>{node.text}</Fragment>;
    case "code":
      return <code key={key}>{node.text}</code>;
    case "strong":
      return <strong key={key}>{node.children.map(drawInline)}</strong>;
    case "em":
      return <em key={key}>{node.children.map(drawInline)}</em>;
    case "del":
      return <del key={key}>{node.children.map(drawInline)}</del>;
    case "link":
      return (
        <a key={key} href={node.href} target="_blank" rel="noopener noreferrer nofollow">
          {node.children.map(drawInline)}
        </a>
      );
    case "break":
      return <br key={key} />;
  }
}
