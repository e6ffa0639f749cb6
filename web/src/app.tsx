// The routes of the page. Each page is loaded when it is first opened.

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
const ReportsPage = lazy(() => import("./reports/ReportsPage"));
const HelpPage = lazy(() => import("./help/HelpPage"));

/** Pages read the rest of the URL with `useRoute`. */
const PAGES: readonly [pattern: string, page: ComponentType][] = [
  ["/", RunsPage],
  ["/runs", RunsPage],
  ["/runs/:id/*", RunPage],
  ["/compare", ComparePage],
  ["/queue", QueuePage],
  ["/models/*", ModelsPage],
  ["/projects", ProjectsPage],
  ["/reports/*", ReportsPage],
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
  const [pattern, Page] = PAGES.find(([candidate]) => match(candidate, path)) ?? ["", NotFoundPage];
  const key = pattern.includes(":id") ? `${pattern}${match(pattern, path)?.id}` : pattern;
  return (
    <Frame>
      <ErrorBoundary key={key}>
        <Suspense fallback={<Spinner />}>
          <Page />
        </Suspense>
      </ErrorBoundary>
      <Toasts />
    </Frame>
  );
}

function NotFoundPage(): ReactNode {
  return (
    <EmptyState
      title="Page not found"
      actions={
        <Link className="button" to="/runs">
          All runs
        </Link>
      }
    >
      The URL may be incomplete.
    </EmptyState>
  );
}
