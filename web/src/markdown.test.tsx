import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import { inline, Markdown, parseMarkdown, safeHref } from "./markdown";

const html = (text: string) =>
  renderToStaticMarkup(<Markdown text={text} />).replace(/^<div class="markdown">|<\/div>$/g, "");

describe("blocks", () => {
  it("are headings, paragraphs, rules and quotes", () => {
    expect(html("# One\n\ntwo\nthree\n\n---\n> four")).toBe(
      "<h3>One</h3><p>two\nthree</p><hr/><blockquote><p>four</p></blockquote>",
    );
  });

  it("are nested lists and tasks", () => {
    expect(html("- a\n  - b\n- [x] c")).toContain("<li><p>a</p><ul><li>b</li></ul></li>");
    expect(html("- [x] c")).toContain('type="checkbox"');
    expect(html("3. a\n4. b")).toBe('<ol start="3"><li>a</li><li>b</li></ol>');
  });

  it("are verbatim code, even if it is never closed", () => {
    expect(html("```py\na *b* <c>\n```\nafter")).toBe("<pre><code>a *b* &lt;c&gt;</code></pre><p>after</p>");
    expect(html("```\nopen")).toBe("<pre><code>open</code></pre>");
  });

  it("are tables", () => {
    const [table] = parseMarkdown("| a | b |\n|---|--:|\n| 1 | x\\|y |\n| 2 |");
    expect(table).toMatchObject({ kind: "table", align: [null, "right"] });
    expect(html("| a | b |\n|---|--:|\n| 1 | x\\|y |")).toContain('<td class="align-right">x|y</td>');
  });
});

describe("inline text", () => {
  it("is emphasised", () => {
    expect(html("**a** *b* ~~c~~ `d*e*`")).toBe("<p><strong>a</strong> <em>b</em> <del>c</del> <code>d*e*</code></p>");
    expect(html("**a *b* c**")).toBe("<p><strong>a <em>b</em> c</strong></p>");
  });

  it("is not emphasised in names or formulas", () => {
    expect(html("snake_case_name 2 * 3 * 4")).toBe("<p>snake_case_name 2 * 3 * 4</p>");
    expect(html("\\*not\\*")).toBe("<p>*not*</p>");
  });

  it("links only to http and https", () => {
    expect(html("[a](https://example.org/x)")).toContain('href="https://example.org/x"');
    expect(html("see https://example.org/a, or")).toContain(">https://example.org/a</a>, or");
    for (const address of [
      "javascript:alert(1)",
      "JaVaScRiPt:alert(1)",
      "data:text/html,x",
      "//evil.example",
      "/runs",
      " javascript:x",
    ]) {
      expect(html(`[a](${address})`)).not.toContain("<a ");
    }
    expect(safeHref("java\nscript:alert(1)")).toBeNull();
  });

  it("never becomes HTML", () => {
    const found = html(
      '<script>alert(1)</script> <img src=x onerror=alert(1)> [x](https://a.b/"onmouseover="alert(1))',
    );
    expect(found).not.toMatch(/<(?:script|img)/);
    expect(found).not.toMatch(/" ?onmouseover/);
  });
});

describe("adversarial input", () => {
  it("is parsed quickly", () => {
    const start = performance.now();
    for (const text of [
      "*".repeat(5000),
      "[".repeat(5000),
      "> ".repeat(3000),
      "`".repeat(4000),
      "- ".repeat(2000),
      "**a".repeat(2000),
      "_a".repeat(3000),
      "|".repeat(5000),
    ]) {
      parseMarkdown(text);
    }
    expect(performance.now() - start).toBeLessThan(3000);
  });

  it("is bounded in depth", () => {
    expect(JSON.stringify(inline(`${"**_".repeat(50)}x${"_**".repeat(50)}`)).length).toBeGreaterThan(0);
  });
});
