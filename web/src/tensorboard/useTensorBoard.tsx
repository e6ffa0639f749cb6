import { type ReactNode, useState } from "react";
import { openTensorBoard } from "../api";
import { CommandBox, Dialog } from "../ui";
import { notifyError } from "../ui/notifyError";

/** The server starts a TensorBoard only for browsers on its own machine. */
const isHere = (): boolean => ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);

/** `open` shows runs in TensorBoard, in a new tab; `dialog` has the command to type if the server cannot. */
export function useTensorBoard(): {
  open: (ids: readonly string[]) => Promise<void>;
  isBusy: boolean;
  dialog: ReactNode;
} {
  const [command, setCommand] = useState("");
  const [isBusy, setBusy] = useState(false);
  const open = async (ids: readonly string[]): Promise<void> => {
    // Opened within the click: later, browsers block it.
    const tab = isHere() ? window.open("", "_blank") : null;
    if (tab) tab.opener = null;
    setBusy(true);
    try {
      const board = await openTensorBoard(ids);
      if (board.url && tab) tab.location.href = board.url;
      else {
        tab?.close();
        setCommand(board.command);
      }
    } catch (error) {
      tab?.close();
      notifyError(error);
    }
    setBusy(false);
  };
  const dialog = command && (
    <Dialog title="Open in TensorBoard" onClose={() => setCommand("")}>
      <p className="soft">Run this command on your machine. It shows these runs in TensorBoard:</p>
      <CommandBox text={command} />
    </Dialog>
  );
  return { open, isBusy, dialog };
}
