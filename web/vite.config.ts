import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The `phalanx serve` that the development server forwards API requests to.
const server = process.env.PHALANX_SERVER ?? "http://127.0.0.1:8000";
const token = process.env.PHALANX_TOKEN;
const bearer = token ? { authorization: `Bearer ${token}` } : {};
const proxy = Object.fromEntries(
  ["/api", "/healthz"].map((path) => [
    path,
    { target: server, changeOrigin: true, headers: { origin: server, ...bearer } },
  ]),
);

// Until the code runs, the page is empty and the theme unknown: block rendering to avoid a flash.
const blockRendering = {
  name: "block-rendering",
  transformIndexHtml: {
    order: "post" as const,
    handler: (html: string) => html.replace('<script type="module"', '<script type="module" blocking="render"'),
  },
};

export default defineConfig({
  plugins: [react(), blockRendering],
  build: {
    outDir: "../src/phalanx/server/page",
    emptyOutDir: true,
    assetsDir: "assets",
    assetsInlineLimit: 0, // the content security policy allows data: URLs only for images
    cssCodeSplit: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // the first with light-dark()
    modulePreload: { polyfill: false }, // the polyfill would be inline code
    reportCompressedSize: true,
  },
  server: { proxy },
  preview: { proxy },
  test: { include: ["src/**/*.test.{ts,tsx}"] },
});
