// Markdown as React elements. The parser is loaded when the first text is shown; until then the text itself is.

import "./markdown.css";
import { Component, Fragment, lazy, type ReactNode, Suspense } from "react";

/** Where a relative link or image of the text leads: a path of this server, or the http(s) URL of a link; null if
 * nowhere. `%20` and the like are decoded in `address`. */
export type Resolve = (address: string) => string | null;

export type MarkdownProps = {
  text: string;
  /** Without it, relative links are plain text. */
  resolveLink?: Resolve | undefined;
  /** Without it, images are links. Images of other servers are never loaded: they would learn who reads. */
  resolveImage?: Resolve | undefined;
};

const LONGEST = 100_000; // characters

const MarkdownView = lazy(() => import("./MarkdownView").catch(() => ({ default: PlainText })));

export function Markdown({ text, ...resolvers }: MarkdownProps): ReactNode {
  const cut = text.slice(0, LONGEST);
  const plain = <PlainText text={cut} />;
  return (
    <div className="markdown">
      <PlainOnError key={cut} plain={plain}>
        <Suspense fallback={plain}>
          <MarkdownView text={cut} {...resolvers} />
        </Suspense>
      </PlainOnError>
    </div>
  );
}

function PlainText({ text }: { text: string }): ReactNode {
  return <p className="markdown-plain">{text}</p>;
}

/** A text that is nested too deeply for the parser's recursion is shown as it is. */
class PlainOnError extends Component<{ plain: ReactNode; children: ReactNode }, { hasFailed: boolean }> {
  override state = { hasFailed: false };

  static getDerivedStateFromError(): { hasFailed: boolean } {
    return { hasFailed: true };
  }

  override render(): ReactNode {
    return this.state.hasFailed ? this.props.plain : this.props.children;
  }
}

/** A line of text whose `quoted` parts are code. */
export function InlineCode({ text }: { text: string }): ReactNode {
  return text.split(/`([^`]+)`/).map((part, index) => {
    const Part = index % 2 ? "code" : Fragment;
    // biome-ignore lint/suspicious/noArrayIndexKey: parts have no other key
    return <Part key={index}>{part}</Part>;
  });
}
