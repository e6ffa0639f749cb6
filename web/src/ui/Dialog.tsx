import { type ReactNode, useEffect, useRef } from "react";
import { Icon } from "./icons";

type Props = { title: string; onClose: () => void; children: ReactNode; foot?: ReactNode; wide?: boolean };

/** A window over the page: Escape and a click beside it close it. Shown while it is drawn. */
export function Dialog({ title, onClose, children, foot, wide = false }: Props): ReactNode {
  const place = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = place.current;
    dialog?.showModal();
    // Browsers would choose the button that closes it.
    (dialog?.querySelector<HTMLElement>("[data-first], .dialog-body :is(input, select, textarea)") ?? dialog)?.focus();
    return () => dialog?.close();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape does the same
    <dialog
      ref={place}
      className={wide ? "dialog wide" : "dialog"}
      aria-label={title}
      tabIndex={-1}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === place.current && onClose()}
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

/** Asks before something is done that cannot be undone. */
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
