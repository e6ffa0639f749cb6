// Which page an address shows, each loaded when it is first looked at.

import { type ComponentType, lazy, type ReactNode, Suspense } from "react";
import { Frame } from "./frame/Frame";
import { Link, match, useRoute } from "./router";
import RunsPage from "./runs/RunsPage";
import { EmptyState, Spinner, Toasts } from "./ui";
import { ErrorBoundary } from "./ui/ErrorBoundary";

const LoginPage = lazy(() => import("./login/LoginPage"));
const RunPage = lazy(() => import("./run/RunPage"));
const ComparePage = lazy(() => import("./compare/ComparePage"));
const QueuePage = lazy(() => import("./queue/QueuePage"));
const ModelsPage = lazy(() => import("./models/ModelsPage"));
const ProjectsPage = lazy(() => import("./projects/ProjectsPage"));
const HelpPage = lazy(() => import("./help/HelpPage"));

/** Pages read the rest of the address themselves, by `useRoute`. */
const PAGES: readonly [pattern: string, page: ComponentType][] = [
  ["/", RunsPage],
  ["/runs", RunsPage],
  ["/runs/:id/*", RunPage],
  ["/compare", ComparePage],
  ["/queue", QueuePage],
  ["/models/*", ModelsPage],
  ["/projects", ProjectsPage],
  ["/help", HelpPage],
];

export function App(): ReactNode {
  const { path } = useRoute();
  if (path === "/login") {
    return (
      <Suspense fallback={<Spinner />}>
        <LoginPage />
      </Suspense>
    );
  }
  const [pattern, Page] = PAGES.find(([wanted]) => match(wanted, path)) ?? ["", NoPage];
  const room = pattern.includes(":id") ? `${pattern}${match(pattern, path)?.id}` : pattern;
  return (
    <Frame>
      <ErrorBoundary key={room}>
        <Suspense fallback={<Spinner />}>
          <Page />
        </Suspense>
      </ErrorBoundary>
      <Toasts />
    </Frame>
  );
}

function NoPage(): ReactNode {
  return (
    <EmptyState
      title="There is nothing at this address"
      actions={
        <Link className="button" to="/runs">
          All runs
        </Link>
      }
    >
      Perhaps it was cut off when it was copied.
    </EmptyState>
  );
}
