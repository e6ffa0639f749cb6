/** A report as one HTML file: no scripts, nothing to load, to be sent by mail. */

import { escaped } from "../charts/chartSvg";

export type HtmlReport = { title: string; about: string; address: string; parts: readonly string[] };

const STYLE = `
body { max-width: 900px; margin: 32px auto; padding: 0 16px; color: #1c2128; background: #fff;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { margin-bottom: 4px; }
.about { margin-top: 0; color: #5c6470; }
section { margin: 20px 0; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 14px; }
caption { padding: 4px 0; text-align: left; font-weight: 600; }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid #e3e6ea; text-align: left; }
.right { text-align: right; font-variant-numeric: tabular-nums; }
pre { padding: 10px 12px; overflow-x: auto; background: #f4f5f7; border-radius: 6px; }
blockquote { margin-left: 0; padding-left: 12px; border-left: 3px solid #d5d9df; color: #5c6470; }
a { color: #2b5bd7; }
`;

/** The policy lets the file run and load nothing, whatever a part contains. */
export function htmlFile({ title, about, address, parts }: HtmlReport): string {
  const policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
  return [
    "<!doctype html>",
    '<html lang="en">',
    "<head>",
    '<meta charset="utf-8">',
    `<meta http-equiv="Content-Security-Policy" content="${policy}">`,
    '<meta name="viewport" content="width=device-width">',
    `<title>${escaped(title)}</title>`,
    `<style>${STYLE}</style>`,
    "</head>",
    "<body>",
    `<h1>${escaped(title)}</h1>`,
    `<p class="about">${escaped(about)} · <a href="${escaped(address)}">${escaped(address)}</a></p>`,
    ...parts.map((part) => `<section>${part}</section>`),
    "</body>",
    "</html>",
    "",
  ].join("\n");
}

/** The content of an element as static HTML: without controls, and with links that work elsewhere. */
export function staticHtml(html: string, origin: string): string {
  const box = new DOMParser().parseFromString(html, "text/html").body;
  for (const part of box.querySelectorAll("script, style, iframe, object, embed, form, button, svg")) part.remove();
  for (const element of box.querySelectorAll("*")) {
    for (const { name } of [...element.attributes]) {
      if (!["href", "class", "title", "colspan", "rowspan", "start", "type", "checked", "disabled"].includes(name))
        element.removeAttribute(name);
    }
    const href = element.getAttribute("href");
    if (href === null) continue;
    const target = href.startsWith("/") && !href.startsWith("//") ? origin + href : href;
    if (/^https?:\/\//i.test(target)) element.setAttribute("href", target);
    else element.removeAttribute("href");
  }
  return box.innerHTML;
}
