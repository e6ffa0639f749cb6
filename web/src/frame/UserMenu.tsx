import { type ReactNode, useState } from "react";
import { visible } from "../format";
import { signOut, useSession } from "../session";
import { Icon, Menu, notify } from "../ui";
import { TokenDialog } from "./TokenDialog";

/** The signed-in user, their roles, and sign-out. */
export function UserMenu(): ReactNode {
  const { data } = useSession();
  const roles = Object.entries(data?.roles ?? {}).filter(([project]) => project !== "*");
  const leave = (): void => {
    signOut().catch((error: Error) => notify(error.message, { bad: true }));
  };
  const [isMaking, setMaking] = useState(false);
  const menu = (
    <Menu
      label={<Icon name="user" />}
      name={data ? `Signed in as ${data.name}` : "Account"}
      className="button plain icon"
      alignRight
    >
      {(close) => (
        <>
          <div className="frame-who">
            <b className="cut">{visible(data?.name ?? "…")}</b>
            <span className="faint">{data?.role ? `${data.role} on all projects` : data?.kind}</span>
            {roles.slice(0, 6).map(([project, role]) => (
              <span key={project} className="faint cut">
                {role} on {visible(project)}
              </span>
            ))}
          </div>
          <hr />
          <button
            type="button"
            className="menu-item"
            onClick={() => {
              close();
              setMaking(true);
            }}
          >
            Create token
          </button>
          <button
            type="button"
            className="menu-item"
            onClick={() => {
              close();
              leave();
            }}
          >
            Sign out
          </button>
        </>
      )}
    </Menu>
  );
  return (
    <>
      {menu}
      {isMaking && <TokenDialog onClose={() => setMaking(false)} />}
    </>
  );
}
