import "./frame.css";
import { lazy, type ReactNode, Suspense, useEffect, useState } from "react";
import mark from "../mark.svg";
import { Link, navigate, type Route, useRoute } from "../router";
import { type Shortcuts, useShortcuts } from "../shortcuts";
import { setTheme, type Theme, useTheme } from "../theme";
import { Icon, type IconName, Menu } from "../ui";
import { ProjectMenu } from "./ProjectMenu";
import { UserMenu } from "./UserMenu";

const QuickJump = lazy(() => import("./QuickJump"));
const Help = lazy(() => import("../help/Help"));

const NAV_ITEMS: readonly [path: string, label: string, key: string][] = [
  ["/runs", "Runs", "r"],
  ["/compare", "Compare", "c"],
  ["/queue", "Queue", "q"],
  ["/models", "Models", "m"],
  ["/reports", "Reports", "e"],
  ["/projects", "Projects", "p"],
];

/** Adds the current project to a link in the bar. */
function withProject(path: string, { params }: Route): string {
  const project = params.get("project");
  return project && path === "/runs" ? `${path}?project=${encodeURIComponent(project)}` : path;
}

/** The navigation bar and global dialogs around every page. */
export function Frame({ children }: { children: ReactNode }): ReactNode {
  const route = useRoute();
  const [over, setOver] = useState<"help" | "jump" | null>(null);
  const isRuns = route.path === "/" || route.path === "/runs";
  const keys: Shortcuts = {
    "?": { label: "Help", run: () => setOver("help") },
    "mod+k": { label: "Go to a run, project or page", run: () => setOver("jump"), always: true },
    ...(isRuns ? {} : { "/": { label: "Find run", run: () => setOver("jump") } }),
    ...Object.fromEntries(
      NAV_ITEMS.map(([path, label, key]) => [
        `g ${key}`,
        { label: `Go to ${label.toLowerCase()}`, run: () => navigate(path) },
      ]),
    ),
  };
  useShortcuts("Everywhere", keys, true, true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: dialogs close on navigation
  useEffect(() => setOver(null), [route.path]);
  const now = isRuns ? "/runs" : `/${route.path.split("/")[1]}`;
  return (
    <>
      <a className="skip" href="#main">
        Skip to content
      </a>
      <header className="frame-bar">
        <Link to={withProject("/runs", route)} className="frame-mark" aria-label="Phalanx: all runs">
          <img src={mark} width="22" height="22" alt="" />
        </Link>
        <nav className="frame-places" aria-label="Pages">
          {NAV_ITEMS.map(([path, label]) => (
            <Link key={path} to={withProject(path, route)} aria-current={path === now ? "page" : undefined}>
              {label}
            </Link>
          ))}
        </nav>
        <div className="frame-menu">
          <Menu label={<Icon name="menu" />} name="Pages" className="button plain icon">
            {(close) =>
              NAV_ITEMS.map(([path, label]) => (
                <Link key={path} to={withProject(path, route)} className="menu-item" onClick={close}>
                  {label}
                </Link>
              ))
            }
          </Menu>
        </div>
        <ProjectMenu />
        <span className="grow" />
        <button type="button" className="frame-search" onClick={() => setOver("jump")}>
          <Icon name="search" size={14} />
          <span className="grow">Go to…</span>
          <kbd>{navigator.platform.startsWith("Mac") ? "⌘" : "Ctrl"} K</kbd>
        </button>
        <button
          type="button"
          className="button plain icon"
          aria-label="Help"
          title="Help (?)"
          onClick={() => setOver("help")}
        >
          <Icon name="help" />
        </button>
        <ThemeMenu />
        <UserMenu />
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <Suspense>
        {over === "help" && <Help close={() => setOver(null)} />}
        {over === "jump" && <QuickJump close={() => setOver(null)} />}
      </Suspense>
    </>
  );
}

const THEMES: readonly [Theme, string, IconName][] = [
  ["system", "System", "screen"],
  ["light", "Light", "sun"],
  ["dark", "Dark", "moon"],
];

function ThemeMenu(): ReactNode {
  const theme = useTheme();
  const [, , icon] = THEMES.find(([one]) => one === theme) ?? (["", "", "screen"] as const);
  return (
    <Menu label={<Icon name={icon} />} name="Theme" className="button plain icon" alignRight>
      {(close) =>
        THEMES.map(([one, label, sign]) => (
          <button
            key={one}
            type="button"
            className="menu-item"
            aria-pressed={one === theme}
            onClick={() => {
              setTheme(one);
              close();
            }}
          >
            <Icon name={sign} size={14} />
            <span className="grow">{label}</span>
            {one === theme && <Icon name="check" size={14} />}
          </button>
        ))
      }
    </Menu>
  );
}
