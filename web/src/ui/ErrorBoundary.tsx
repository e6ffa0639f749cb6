import { Component, type ReactNode } from "react";
import { Failure } from "./placeholders";

/** Keeps a fault of one part from taking the rest of the page with it. */
export class Boundary extends Component<{ children: ReactNode }, { fault: Error | null }> {
  override state: { fault: Error | null } = { fault: null };

  static getDerivedStateFromError(fault: Error): { fault: Error } {
    return { fault };
  }

  override render(): ReactNode {
    const { fault } = this.state;
    if (!fault) return this.props.children;
    // After an upgrade of the server, the parts that an old page asks for are gone: it is loaded anew.
    const isOld = /dynamically imported module|module script|preload CSS/i.test(fault.message);
    return (
      <div className="page">
        <Failure
          error={isOld ? "The server has a newer page than this one." : fault}
          what={isOld ? "" : "This part of the page failed"}
          again={() => (isOld ? location.reload() : this.setState({ fault: null }))}
        />
      </div>
    );
  }
}
