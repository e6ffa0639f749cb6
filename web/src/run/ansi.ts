/** Colours of terminals (SGR escape sequences) as styled pieces of text. */

export type AnsiPiece = { text: string; className: string; color: string | null };

type State = { bold: boolean; dim: boolean; italic: boolean; underline: boolean; fg: string | null };

const RESET: State = { bold: false, dim: false, italic: false, underline: false, fg: null };
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it matches
const SGR = /\u001b\[([0-9;:]*)m/g;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/** Pieces of a line. Background colours are left out: few combinations are readable in both themes. */
export function ansiPieces(text: string): AnsiPiece[] {
  const pieces: AnsiPiece[] = [];
  let state = RESET;
  let at = 0;
  const add = (end: number) => {
    if (end > at) pieces.push({ text: text.slice(at, end), ...lookOf(state) });
  };
  for (const match of text.matchAll(SGR)) {
    add(match.index);
    at = match.index + match[0].length;
    state = applied(state, match[1] ?? "");
  }
  add(text.length);
  return pieces;
}

function lookOf({ bold, dim, italic, underline, fg }: State): Omit<AnsiPiece, "text"> {
  const isNamed = fg !== null && !fg.startsWith("rgb");
  const classes = [bold && "is-bold", dim && "is-dim", italic && "is-italic", underline && "is-underlined"];
  if (isNamed) classes.push(`ansi-${fg}`);
  return { className: classes.filter(Boolean).join(" "), color: isNamed ? null : fg };
}

function applied(before: State, codes: string): State {
  const numbers = codes.split(/[;:]/).map(Number);
  let state = before;
  for (let index = 0; index < numbers.length; index += 1) {
    const code = numbers[index] ?? 0;
    if (code === 38 || code === 48) {
      const isRgb = numbers[index + 1] === 2;
      const values = numbers.slice(index + 2, index + (isRgb ? 5 : 3));
      if (code === 38) state = { ...state, fg: isRgb ? rgb(values) : paletteColor(values[0] ?? 0) };
      index += isRgb ? 4 : 2;
    } else state = withCode(state, code);
  }
  return state;
}

function withCode(state: State, code: number): State {
  if (code === 0) return RESET;
  if (code === 1) return { ...state, bold: true };
  if (code === 2) return { ...state, dim: true };
  if (code === 3) return { ...state, italic: true };
  if (code === 4) return { ...state, underline: true };
  if (code === 22) return { ...state, bold: false, dim: false };
  if (code === 23) return { ...state, italic: false };
  if (code === 24) return { ...state, underline: false };
  if (code === 39) return { ...state, fg: null };
  if (code >= 30 && code <= 37) return { ...state, fg: NAMES[code - 30] ?? null };
  if (code >= 90 && code <= 97) return { ...state, fg: NAMES[code - 90] ?? null };
  return state;
}

const rgb = (values: number[]): string => `rgb(${[0, 1, 2].map((at) => Math.min(255, values[at] || 0)).join(" ")})`;

/** A colour of the 256: 16 named ones, a cube of 6 by 6 by 6, and greys. */
function paletteColor(index: number): string | null {
  if (index < 16) return NAMES[index % 8] ?? null;
  if (index >= 232) return rgb(Array(3).fill(8 + 10 * (index - 232)));
  const level = (place: number) => (place === 0 ? 0 : 55 + 40 * place);
  const cube = index - 16;
  return rgb([level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)]);
}
