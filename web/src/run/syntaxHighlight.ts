/** Splits YAML, JSON and diff lines into pieces to colour. It is not a parser. */

export type Piece = { kind: "key" | "text" | "number" | "word" | "comment" | "mark" | "plain"; text: string };

const KEY = /^(\s*(?:- +)*)((?:"[^"]*"|'[^']*'|[^\s#:'"{}[\],&*!|>%@`-][^#:{}[\],]*|-[^\s#:][^#:]*))(\s*:)(?=\s|$)/;
const SCALAR = /"(?:[^"\\]|\\.)*"?|'(?:[^']|'')*'?|[^\s,[\]{}"']+|[,[\]{}]|\s+/g;
const NUMBER = /^[-+]?(?:0x[\da-f]+|\d[\d_]*(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+|\.inf|\.nan)$/i;
const WORD = /^(?:true|false|null|yes|no|on|off|~)$/i;

export function yamlLine(line: string): Piece[] {
  const found: Piece[] = [];
  let rest = line;
  const key = KEY.exec(rest);
  if (key) {
    push(found, "mark", key[1] as string);
    push(found, "key", key[2] as string);
    push(found, "mark", key[3] as string);
    rest = rest.slice(key[0].length);
  } else {
    const dash = /^\s*(?:- +|-$)+/.exec(rest);
    if (dash) {
      push(found, "mark", dash[0]);
      rest = rest.slice(dash[0].length);
    }
  }
  const [value, comment] = splitComment(rest, found.length === 0);
  for (const part of value.match(SCALAR) ?? []) push(found, kindOf(part), part);
  push(found, "comment", comment);
  return found;
}

function push(pieces: Piece[], kind: Piece["kind"], text: string): void {
  if (text) pieces.push({ kind, text });
}

/** A hash starts a comment at the start of the line or after a space, outside quotes. */
function splitComment(text: string, isStart: boolean): [string, string] {
  let quote = "";
  for (let index = 0; index < text.length; index++) {
    const letter = text[index] as string;
    if (quote) {
      if (letter === "\\" && quote === '"') index += 1;
      else if (letter === quote) quote = "";
    } else if ((letter === '"' || letter === "'") && (index === 0 || /[\s[{,:]/.test(text[index - 1] as string))) {
      quote = letter;
    } else if (letter === "#" && (index === 0 ? isStart : /\s/.test(text[index - 1] as string))) {
      return [text.slice(0, index), text.slice(index)];
    }
  }
  return [text, ""];
}

function kindOf(part: string): Piece["kind"] {
  if (/^["']/.test(part)) return "text";
  if (/^[,[\]{}|>]/.test(part) && part.length <= 2) return "mark";
  if (NUMBER.test(part)) return "number";
  return WORD.test(part) ? "word" : "plain";
}

const JSON_PARTS = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|(true|false|null)|([{}[\],:]+)|(\s+|.)/g;

export function jsonLine(line: string): Piece[] {
  const found: Piece[] = [];
  for (const [all, text, colon, digits, word, mark] of line.matchAll(JSON_PARTS)) {
    if (text !== undefined) {
      push(found, colon ? "key" : "text", text);
      push(found, "mark", colon ?? "");
    } else {
      push(found, digits ? "number" : word ? "word" : mark ? "mark" : "plain", all);
    }
  }
  return found;
}

/** Colours a diff line by its first characters. */
export function diffLine(line: string): Piece[] {
  if (/^(?:\+\+\+|---|diff |index )/.test(line)) return [{ kind: "key", text: line }];
  if (line.startsWith("@@")) return [{ kind: "comment", text: line }];
  if (line.startsWith("+")) return [{ kind: "number", text: line }];
  return [{ kind: line.startsWith("-") ? "word" : "plain", text: line }];
}
