import "./login.css";
import { type FormEvent, type ReactNode, useState } from "react";
import { useResource } from "../api";
import mark from "../mark.svg";
import { useRoute, useTitle } from "../router";
import { type Credentials, returnPath, signIn, signOnPath } from "../session";
import { ErrorMessage } from "../ui";

/** Sign-in through the identity provider, with a token, or with user name and password. */
export default function LoginPage(): ReactNode {
  useTitle("Sign in");
  const { params } = useRoute();
  const [method, setMethod] = useState<"token" | "user">("token");
  const [token, setToken] = useState("");
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<unknown>(params.get("why"));
  const [busy, setBusy] = useState(false);
  const { data: signOn } = useResource<{ oidc: string | null }>("/sign-on");
  const credentials: Credentials = method === "token" ? { token: token.trim() } : { user: user.trim(), password };
  const isReady = method === "token" ? token.trim() !== "" : user.trim() !== "" && password !== "";
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await signIn(credentials);
      location.replace(returnPath(params)); // a full page load clears the cache of the previous user
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  const choice = (one: "token" | "user", label: string): ReactNode => (
    <button
      type="button"
      className="button plain small"
      aria-pressed={method === one}
      onClick={() => {
        setMethod(one);
        setError(null);
      }}
    >
      {label}
    </button>
  );
  return (
    <main className="login">
      <form onSubmit={(event) => void submit(event)}>
        <div className="login-head">
          <img src={mark} width="30" height="30" alt="" />
          <h1>Phalanx</h1>
        </div>
        {signOn?.oidc && (
          <a className="button main" href={signOnPath(params)}>
            Sign in with {signOn.oidc}
          </a>
        )}
        <div className="row">
          {choice("token", "Token")}
          {choice("user", "Password")}
        </div>
        {method === "token" ? (
          <label className="labelled">
            Token
            <input
              className="field mono"
              type="password"
              name="token"
              autoComplete="current-password"
              value={token}
              onChange={(event) => setToken(event.target.value)}
            />
          </label>
        ) : (
          <>
            <label className="labelled">
              User name
              <input
                className="field"
                name="user"
                autoComplete="username"
                value={user}
                onChange={(event) => setUser(event.target.value)}
              />
            </label>
            <label className="labelled">
              Password
              <input
                className="field"
                type="password"
                name="password"
                autoComplete="current-password"
                value={password}
                onChange={(event) => setPassword(event.target.value)}
              />
            </label>
          </>
        )}
        {Boolean(error) && <ErrorMessage error={error} />}
        <button type="submit" className={signOn?.oidc ? "button" : "button main"} disabled={!isReady || busy}>
          {busy ? "Signing in…" : "Sign in"}
        </button>
        <p className="faint">
          On the server's machine, <code>phalanx ui</code> opens this page signed in. Otherwise ask an administrator for
          a token: <code>phalanx token create NAME</code>.
        </p>
      </form>
    </main>
  );
}
