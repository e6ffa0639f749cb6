import { type ReactNode, useState } from "react";
import { Icon } from "./icons";

/** Copies a text to the clipboard. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }): ReactNode {
  const [done, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    if (!(await writeClipboard(text))) return;
    setDone(true);
    setTimeout(() => setDone(false), 1200);
  };
  return (
    <button
      type="button"
      className="button plain icon small"
      title={done ? "Copied" : label}
      aria-label={label}
      onClick={copy}
    >
      <Icon name={done ? "check" : "copy"} size={14} />
    </button>
  );
}

/** The clipboard API needs a secure context (HTTPS or localhost); elsewhere the deprecated command still works. */
async function writeClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    return isCopied;
  }
}
