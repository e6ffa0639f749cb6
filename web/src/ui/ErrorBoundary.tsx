import { Component, type ReactNode } from "react";
import { ErrorMessage } from "./placeholders";

/** Shows an error in place of the part of the page that threw it. */
export class ErrorBoundary extends Component<{ children: ReactNode }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: Error): { error: Error } {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (!error) return this.props.children;
    // After an upgrade of the server, the chunks of the old page no longer exist.
    const isOutdated = /dynamically imported module|module script|preload CSS/i.test(error.message);
    return (
      <div className="page">
        <ErrorMessage
          error={isOutdated ? "The server was upgraded. Reload the page." : error}
          what={isOutdated ? "" : "This part of the page crashed"}
          retry={() => (isOutdated ? location.reload() : this.setState({ error: null }))}
        />
      </div>
    );
  }
}
