import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import MarkdownView, { imageSource, linkTarget, parser, webAddress } from "./MarkdownView";
import { InlineCode, type MarkdownProps } from "./markdown";

const html = (text: string, resolvers: Omit<MarkdownProps, "text"> = {}) =>
  renderToStaticMarkup(<MarkdownView text={text} {...resolvers} />).replaceAll("\n", "");

describe("blocks", () => {
  it("are headings below those of the page, paragraphs, rules and quotes", () => {
    expect(html("# One\n\ntwo\nthree\n\n---\n> four")).toBe(
      "<h3>One</h3><p>twothree</p><hr/><blockquote><p>four</p></blockquote>",
    );
  });

  it("are nested lists and tasks", () => {
    expect(html("- a\n  - b")).toBe("<ul><li>a<ul><li>b</li></ul></li></ul>");
    expect(html("- [x] c")).toContain(
      '<li class="markdown-task"><input type="checkbox" disabled="" aria-label="done" checked=""/> c</li>',
    );
    expect(html("3. a\n4. b")).toBe('<ol start="3"><li>a</li><li>b</li></ol>');
  });

  it("are verbatim code, even if it is never closed", () => {
    expect(html("```py\na *b* <c>\n```\nafter")).toContain("a *b* &lt;c&gt;</code></pre><p>after</p>");
    expect(html("```\nopen")).toBe("<pre><code>open</code></pre>");
  });

  it("are tables", () => {
    expect(html("| a | b |\n|---|--:|\n| 1 | x\\|y |")).toContain('<td class="align-right">x|y</td>');
  });
});

describe("inline text", () => {
  it("is emphasised, but not in names and formulas", () => {
    expect(html("**a** *b* ~~c~~ `d*e*`")).toBe("<p><strong>a</strong> <em>b</em> <del>c</del> <code>d*e*</code></p>");
    expect(html("snake_case_name 2 * 3 * 4")).toBe("<p>snake_case_name 2 * 3 * 4</p>");
    expect(renderToStaticMarkup(<InlineCode text="set `a_b` to `*`" />)).toBe("set <code>a_b</code> to <code>*</code>");
    expect(renderToStaticMarkup(<InlineCode text="a ` b <i>" />)).toBe("a ` b &lt;i&gt;");
  });

  it("links to other sites in a window of its own", () => {
    expect(html("[a](https://example.org/x)")).toBe(
      '<p><a href="https://example.org/x" target="_blank" rel="noopener noreferrer nofollow">a</a></p>',
    );
    expect(html("see https://example.org/a, or")).toContain(">https://example.org/a</a>, or");
  });
});

describe("relative addresses", () => {
  const resolvers = {
    resolveLink: (address: string) => (address.startsWith("x") ? `/runs/1/${address}` : null),
    resolveImage: (address: string) => `/api/v1/runs/1/view/outputs/${address}`,
  };

  it("lead where the page says, and nowhere by default", () => {
    expect(html("[a](x.md) [b](y.md)", resolvers)).toBe('<p><a href="/runs/1/x.md">a</a> b</p>');
    expect(html("![a](x.png)", resolvers)).toContain('<img src="/api/v1/runs/1/view/outputs/x.png" alt="a"');
    expect(html("[a](x%20y.md) [b](<x y.md>)", { resolveLink: (one) => `/${encodeURI(one)}` })).toBe(
      '<p><a href="/x%20y.md">a</a> <a href="/x%20y.md">b</a></p>',
    );
    expect(html("[a](x.md) ![b](x.png)")).toBe('<p>a <span class="markdown-image">b</span></p>');
  });

  it("never lead out of the page by what a resolver returns", () => {
    for (const found of ["javascript:alert(1)", "//evil.example", "/\\evil.example", "data:text/html,x", "x"]) {
      expect(linkTarget("a", () => found)).toBeNull();
      expect(imageSource("a", () => found)).toBeNull();
    }
    expect(imageSource("a", () => "https://tracker.example/x.png")).toBeNull();
    expect(linkTarget("a", () => "https://example.org/")).toBe("https://example.org/");
  });
});

describe("hostile text", () => {
  const addresses = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "javascript&colon;alert(1)",
    "java&#10;script:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "blob:https://a.b/c",
    "//evil.example",
    "/\\evil.example",
    "/runs",
    " javascript:x",
    "\u0001javascript:alert(1)",
  ];

  it("links only to http and https", () => {
    for (const address of addresses) {
      for (const text of [`[a](<${address}>)`, `![a](<${address}>)`, `[a]: <${address}>\n\n[a]`, `<${address}>`]) {
        expect(html(text), text).not.toMatch(/<(?:a|img) /);
      }
    }
    expect(webAddress("java\nscript:alert(1)")).toBeNull();
    expect(html("![a](https://tracker.example/x.png)", { resolveImage: (one) => one })).not.toContain("<img");
  });

  it("never becomes HTML", () => {
    const found = html(
      [
        "<script>alert(1)</script> <img src=x onerror=alert(1)> <svg onload=alert(1)>",
        '[x](https://a.b/"onmouseover="alert(1)) ![x](a "t" onerror=alert(1))',
        '<a href="javascript:alert(1)">x</a> <iframe srcdoc="<script>1</script>"></iframe><style>*{}</style>',
        "<!-- --><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
      ].join("\n\n"),
    );
    expect(found).not.toMatch(/<(?:script|img|svg|iframe|style|form|math)/);
    expect(found).not.toMatch(/<[^>]*\son\w+=/);
  });

  it("has no class or style of its own, so that it cannot look like a part of the page", () => {
    expect(html('```toast" style="position:fixed\nx\n```')).not.toMatch(/style=|position:fixed"/);
  });

  it("is parsed quickly", () => {
    const start = performance.now();
    for (const part of [
      "*",
      "[",
      "> ",
      "`",
      "- ",
      "**a",
      "_a",
      "|",
      "![",
      "<",
      "a**b",
      "[a](",
      "~~",
      "- a\n",
      "&amp;",
    ]) {
      parser.parse(part.repeat(20_000 / part.length), {});
    }
    expect(performance.now() - start).toBeLessThan(5000);
    expect(html("> ".repeat(3000)).length).toBeLessThan(20_000);
  });
});
