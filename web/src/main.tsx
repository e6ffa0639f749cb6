import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/ui.css";
import { createRoot } from "react-dom/client";
import { onSignedOut } from "./api";
import { App } from "./app";
import { here } from "./router";
import { askEarly } from "./runs/pagedRuns";
import { wantedOf } from "./runs/urlState";
import { begin, leave } from "./session";
import { showTheme } from "./theme";

showTheme();
onSignedOut(() => leave());
begin();
window.addEventListener("hashchange", begin); // a link with a token, opened where the page is open already
// The first request is under way before anything is drawn.
if (["/", "/runs"].includes(here().path)) askEarly(wantedOf(here()));
const place = document.getElementById("page");
if (place) createRoot(place).render(<App />);
