import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/ui.css";
import { createRoot } from "react-dom/client";
import { onUnauthorized } from "./api";
import { App } from "./app";
import { currentRoute } from "./router";
import { prefetchFirstPage } from "./runs/pagedRuns";
import { runQueryOf } from "./runs/urlState";
import { goToLogin, signInFromUrl } from "./session";
import { applyTheme } from "./theme";

applyTheme();
onUnauthorized(() => goToLogin());
signInFromUrl();
window.addEventListener("hashchange", signInFromUrl); // a link with a token was opened in this tab
// Start the first request before React renders.
if (["/", "/runs"].includes(currentRoute().path)) prefetchFirstPage(runQueryOf(currentRoute()));
const root = document.getElementById("page");
if (root) createRoot(root).render(<App />);
