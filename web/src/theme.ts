// Light, dark, or as the system has it: remembered in this browser.

import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const PLACE = "phalanx-theme";
const listeners = new Set<() => void>();
const system = typeof matchMedia === "undefined" ? null : matchMedia("(prefers-color-scheme: dark)");
let chosen = remembered();

function remembered(): Theme {
  try {
    const found = localStorage.getItem(PLACE);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system";
  }
}

/** What is shown: the choice, or what the system says. */
export const shade = (): "light" | "dark" => (chosen === "system" ? (system?.matches ? "dark" : "light") : chosen);

export function showTheme(): void {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  for (const listener of listeners) listener();
}

export function chooseTheme(theme: Theme): void {
  chosen = theme;
  try {
    if (theme === "system") localStorage.removeItem(PLACE);
    else localStorage.setItem(PLACE, theme);
  } catch {
    // A browser that keeps nothing: it holds until the page is closed.
  }
  showTheme();
}

system?.addEventListener("change", showTheme);

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const useTheme = (): Theme => useSyncExternalStore(subscribe, () => chosen);

/** For what draws by itself (charts): draw again when this changes. */
export const useShade = (): "light" | "dark" => useSyncExternalStore(subscribe, shade);
