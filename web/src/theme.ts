// The colour theme: light, dark, or the system setting. The choice is stored in the browser.

import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";
export type EffectiveTheme = "light" | "dark";

const STORAGE_KEY = "phalanx-theme";
const listeners = new Set<() => void>();
const system = typeof matchMedia === "undefined" ? null : matchMedia("(prefers-color-scheme: dark)");
let theme = storedTheme();

function storedTheme(): Theme {
  try {
    const stored = localStorage.getItem(STORAGE_KEY);
    return stored === "light" || stored === "dark" ? stored : "system";
  } catch {
    return "system";
  }
}

const effectiveTheme = (): EffectiveTheme => (theme === "system" ? (system?.matches ? "dark" : "light") : theme);

export function applyTheme(): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  for (const listener of listeners) listener();
}

export function setTheme(chosen: Theme): void {
  theme = chosen;
  try {
    if (chosen === "system") localStorage.removeItem(STORAGE_KEY);
    else localStorage.setItem(STORAGE_KEY, chosen);
  } catch {
    // Storage is disabled: the choice lasts until the page is closed.
  }
  applyTheme();
}

system?.addEventListener("change", applyTheme);

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const useTheme = (): Theme => useSyncExternalStore(subscribe, () => theme);

/** The theme on screen. Components that draw on a canvas redraw when it changes. */
export const useEffectiveTheme = (): EffectiveTheme => useSyncExternalStore(subscribe, effectiveTheme);
