import { type ReactNode, useState } from "react";
import { post } from "../api";
import { timestamp } from "../format";
import { CommandBox, CopyButton, Dialog, ErrorMessage } from "../ui";

type Made = { name: string; token: string; expires: number };

/** Creates a token for the signed-in user, for the command line and other programs. It is shown once. */
export function TokenDialog({ onClose }: { onClose: () => void }): ReactNode {
  const [role, setRole] = useState("viewer");
  const [days, setDays] = useState("30");
  const [made, setMade] = useState<Made | null>(null);
  const [error, setError] = useState<unknown>(null);
  const create = async (): Promise<void> => {
    setError(null);
    try {
      setMade(await post<Made>("/session/tokens", { role, days: Number(days) }));
    } catch (failure) {
      setError(failure);
    }
  };
  const foot = made ? (
    <button type="button" className="button main" onClick={onClose}>
      Done
    </button>
  ) : (
    <button type="button" className="button main" onClick={() => void create()}>
      Create
    </button>
  );
  return (
    <Dialog title="Create token" onClose={onClose} foot={foot}>
      <div className="frame-token">
        {made ? (
          <>
            <p>Copy the token now: it is not shown again. It expires on {timestamp(made.expires)}.</p>
            <p className="row">
              <code className="mono cut" data-testid="token">
                {made.token}
              </code>
              <CopyButton text={made.token} label="Copy token" />
            </p>
            <p>The command line asks for it:</p>
            <CommandBox text={`phalanx login ${location.origin}`} />
          </>
        ) : (
          <>
            <p>A token for the command line and other programs. It never allows more than you may do yourself.</p>
            <label className="labelled">
              Role
              <select className="field" value={role} onChange={(event) => setRole(event.target.value)}>
                <option value="viewer">viewer: read only</option>
                <option value="editor">editor: also track, submit and stop runs</option>
              </select>
            </label>
            <label className="labelled">
              Valid for
              <select className="field" value={days} onChange={(event) => setDays(event.target.value)}>
                {[1, 7, 30, 90].map((one) => (
                  <option key={one} value={one}>
                    {one} {one === 1 ? "day" : "days"}
                  </option>
                ))}
              </select>
            </label>
          </>
        )}
        {Boolean(error) && <ErrorMessage error={error} />}
      </div>
    </Dialog>
  );
}
