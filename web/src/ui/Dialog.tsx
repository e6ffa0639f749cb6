import { type ReactNode, useEffect, useRef } from "react";
import { Icon } from "./icons";

type Props = { title: string; onClose: () => void; children: ReactNode; foot?: ReactNode; wide?: boolean };

/** A modal dialog, open while mounted. Escape and a click outside close it. */
export function Dialog({ title, onClose, children, foot, wide = false }: Props): ReactNode {
  const dialogRef = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = dialogRef.current;
    dialog?.showModal();
    // By default, browsers focus the close button.
    (dialog?.querySelector<HTMLElement>("[data-first], .dialog-body :is(input, select, textarea)") ?? dialog)?.focus();
    return () => dialog?.close();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape does the same
    <dialog
      ref={dialogRef}
      className={wide ? "dialog wide" : "dialog"}
      aria-label={title}
      tabIndex={-1}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === dialogRef.current && onClose()}
    >
      <div className="dialog-head">
        <h2>{title}</h2>
        <button type="button" className="button plain icon small" aria-label="Close" onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      <div className="dialog-body">{children}</div>
      {foot && <div className="dialog-foot">{foot}</div>}
    </dialog>
  );
}

type ConfirmProps = {
  title: string;
  children: ReactNode;
  verb: string;
  danger?: boolean;
  busy?: boolean;
  onYes: () => void;
  onNo: () => void;
};

/** Asks for confirmation before an action. */
export function Confirm({ title, children, verb, danger = false, busy = false, onYes, onNo }: ConfirmProps): ReactNode {
  const foot = (
    <>
      <button type="button" className="button" onClick={onNo}>
        Cancel
      </button>
      <button
        data-first
        type="button"
        className={danger ? "button main danger" : "button main"}
        disabled={busy}
        onClick={onYes}
      >
        {verb}
      </button>
    </>
  );
  return (
    <Dialog title={title} onClose={onNo} foot={foot}>
      {children}
    </Dialog>
  );
}
