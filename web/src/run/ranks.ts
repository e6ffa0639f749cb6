/** Lists of ranks as short text: `0-3,7`. */

export function rankText(ranks: readonly number[]): string {
  const all = [...new Set(ranks)].sort((one, other) => one - other);
  const parts: string[] = [];
  for (let at = 0; at < all.length; ) {
    let end = at;
    while (end + 1 < all.length && all[end + 1] === (all[end] as number) + 1) end += 1;
    parts.push(end - at > 0 ? `${all[at]}${end - at > 1 ? "-" : ","}${all[end]}` : String(all[at]));
    at = end + 1;
  }
  return parts.join(",");
}

/** The ranks of such a text; null if it is invalid or empty. */
export function parseRanks(text: string, most = 100_000): number[] | null {
  const found = new Set<number>();
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const match = /^(\d{1,6})(?:(?:-|\.\.|–)(\d{1,6}))?$/.exec(part);
    if (!match) return null;
    const from = Number(match[1]);
    const to = match[2] === undefined ? from : Number(match[2]);
    if (to < from || to - from > most) return null;
    for (let rank = from; rank <= to; rank++) found.add(rank);
  }
  return found.size ? [...found].sort((one, other) => one - other) : null;
}
