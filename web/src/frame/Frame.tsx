import "./frame.css";
import { lazy, type ReactNode, Suspense, useEffect, useState } from "react";
import mark from "../mark.svg";
import { Link, navigate, type Route, useRoute } from "../router";
import { type Shortcuts, useShortcuts } from "../shortcuts";
import { setTheme, type Theme, useTheme } from "../theme";
import { Icon, type IconName, Menu } from "../ui";
import { ProjectMenu } from "./ProjectMenu";
import { UserMenu } from "./UserMenu";

const Jump = lazy(() => import("./QuickJump"));
const Help = lazy(() => import("../help/Help"));

const PLACES: readonly [path: string, label: string, key: string][] = [
  ["/runs", "Runs", "r"],
  ["/compare", "Compare", "c"],
  ["/queue", "Queue", "q"],
  ["/models", "Models", "m"],
  ["/projects", "Projects", "p"],
];

/** What a link of the bar keeps of the present address: the project. */
function kept(path: string, { params }: Route): string {
  const project = params.get("project");
  return project && path === "/runs" ? `${path}?project=${encodeURIComponent(project)}` : path;
}

/** The bar above every page, and what is the same on all of them. */
export function Frame({ children }: { children: ReactNode }): ReactNode {
  const route = useRoute();
  const [over, setOver] = useState<"help" | "jump" | null>(null);
  const isRuns = route.path === "/" || route.path === "/runs";
  const keys: Shortcuts = {
    "?": { label: "This help", run: () => setOver("help") },
    "mod+k": { label: "Go to a run, project or page", run: () => setOver("jump"), always: true },
    ...(isRuns ? {} : { "/": { label: "Find a run", run: () => setOver("jump") } }),
    ...Object.fromEntries(
      PLACES.map(([path, label, key]) => [
        `g ${key}`,
        { label: `Go to ${label.toLowerCase()}`, run: () => navigate(path) },
      ]),
    ),
  };
  useShortcuts("Everywhere", keys, true, true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: whatever is open is closed when one goes elsewhere
  useEffect(() => setOver(null), [route.path]);
  const now = isRuns ? "/runs" : `/${route.path.split("/")[1]}`;
  return (
    <>
      <a className="skip" href="#main">
        To the content
      </a>
      <header className="frame-bar">
        <Link to={kept("/runs", route)} className="frame-mark" aria-label="Phalanx: all runs">
          <img src={mark} width="22" height="22" alt="" />
        </Link>
        <nav className="frame-places" aria-label="Pages">
          {PLACES.map(([path, label]) => (
            <Link key={path} to={kept(path, route)} aria-current={path === now ? "page" : undefined}>
              {label}
            </Link>
          ))}
        </nav>
        <div className="frame-menu">
          <Menu label={<Icon name="menu" />} name="Pages" className="button plain icon">
            {(close) =>
              PLACES.map(([path, label]) => (
                <Link key={path} to={kept(path, route)} className="menu-item" onClick={close}>
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
        {over === "jump" && <Jump close={() => setOver(null)} />}
      </Suspense>
    </>
  );
}

const THEMES: readonly [Theme, string, IconName][] = [
  ["system", "As the system", "screen"],
  ["light", "Light", "sun"],
  ["dark", "Dark", "moon"],
];

function ThemeMenu(): ReactNode {
  const theme = useTheme();
  const [, , icon] = THEMES.find(([one]) => one === theme) ?? (["", "", "screen"] as const);
  return (
    <Menu label={<Icon name={icon} />} name="Light or dark" className="button plain icon" alignRight>
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
