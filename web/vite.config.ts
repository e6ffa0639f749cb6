import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// Where a `phalanx serve` listens that the page asks while one works on it.
const server = process.env.PHALANX_SERVER ?? "http://127.0.0.1:8000";
const token = process.env.PHALANX_TOKEN;
const bearer = token ? { authorization: `Bearer ${token}` } : {};
const proxy = Object.fromEntries(
  ["/api", "/healthz"].map((path) => [
    path,
    { target: server, changeOrigin: true, headers: { origin: server, ...bearer } },
  ]),
);

// Before the code runs there is nothing to see, and the chosen theme is not known yet: nothing is painted until then.
const painting = {
  name: "paint-when-ready",
  transformIndexHtml: {
    order: "post" as const,
    handler: (html: string) => html.replace('<script type="module"', '<script type="module" blocking="render"'),
  },
};

export default defineConfig({
  plugins: [react(), painting],
  build: {
    outDir: "../src/phalanx/server/page",
    emptyOutDir: true,
    assetsDir: "assets",
    assetsInlineLimit: 0, // the page's policy allows no data: addresses but for images
    cssCodeSplit: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // the first with light-dark()
    modulePreload: { polyfill: false }, // it would be inline code
    reportCompressedSize: true,
  },
  server: { proxy },
  preview: { proxy },
  test: { include: ["src/**/*.test.{ts,tsx}"] },
});
