import { type ReactNode, useState } from "react";
import { Icon } from "./icons";

/** Puts a text on the clipboard, and says so. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }): ReactNode {
  const [done, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    if (!(await copied(text))) return;
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

/** Browsers give the clipboard to safe addresses only; elsewhere the older way still works. */
async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const worked = document.execCommand("copy");
    area.remove();
    return worked;
  }
}
