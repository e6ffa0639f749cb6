/** Metrics in sections: by the part of their names before the first slash. */

export const PINNED = "pinned";

export type Group = { name: string; metrics: string[] };

/** Metrics by the prefix before their first slash: pinned ones first, then those without a prefix. */
export function grouped(names: readonly string[], pins: readonly string[], filter: string): Group[] {
  const matching = names.filter(matcher(filter));
  const groups = new Map<string, string[]>();
  const add = (group: string, name: string) => {
    const others = groups.get(group);
    if (others) others.push(name);
    else groups.set(group, [name]);
  };
  for (const name of matching) if (pins.includes(name)) add(PINNED, name);
  for (const name of matching) if (!pins.includes(name) && !name.includes("/")) add("", name);
  for (const name of matching)
    if (!pins.includes(name) && name.includes("/")) add(name.slice(0, name.indexOf("/")), name);
  const found = [...groups].map(([name, metrics]) => ({ name, metrics }));
  const place = ({ name }: Group) =>
    name === PINNED ? 0 : name === "" ? 1 : name === "sys" || name === "system" ? 3 : 2;
  return found.sort((one, other) => place(one) - place(other) || (one.name < other.name ? -1 : 1));
}

/** Metrics by the same prefix, in the order in which they and their sections come first. */
export function inSections(names: readonly string[]): Group[] {
  const found = new Map<string, string[]>();
  for (const name of names) {
    const prefix = name.includes("/") ? name.slice(0, name.indexOf("/")) : "";
    found.set(prefix, [...(found.get(prefix) ?? []), name]);
  }
  return [...found].map(([name, metrics]) => ({ name, metrics }));
}

const collator = new Intl.Collator("en", { numeric: true });

/** `layer 2` before `layer 10`. */
export const naturalOrder = (names: string[]): string[] => [...names].sort(collator.compare);

/** Matches names that contain every word of the filter; `*` matches anything. */
export function matcher(filter: string): (name: string) => boolean {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = words.map((word) => {
    if (!word.includes("*")) return (name: string) => name.includes(word);
    const parts = word.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
    const pattern = new RegExp(parts.join(".*"));
    return (name: string) => pattern.test(name);
  });
  return (name) => {
    const low = name.toLowerCase();
    return tests.every((test) => test(low));
  };
}
