import { type FormEvent, type ReactNode, useState } from "react";
import { apiPath, asApiError, del, post, queryString, refresh, type SavedView, useResource } from "../api";
import { visible } from "../format";
import { currentRoute, navigate, readableParams } from "../router";
import { canEdit, useSession } from "../session";
import { Dialog, Icon, Menu, notify } from "../ui";

type Views = { count: number; views: SavedView[] };

/** The address of a view. A view of all projects stays in the current project. */
export function viewPath(view: Pick<SavedView, "q" | "sort" | "columns" | "by" | "project">, project: string): string {
  const params = new URLSearchParams();
  const fields = { project: view.project ?? project, q: view.q, sort: view.sort, columns: view.columns, by: view.by };
  for (const [name, value] of Object.entries(fields)) if (value) params.set(name, value);
  const text = readableParams(params);
  return `/runs${text ? `?${text}` : ""}`;
}

/** Saved queries, columns, sort orders and groups: the user's own and shared ones. */
export function ViewsMenu({ project }: { project: string }): ReactNode {
  const [saving, setSaving] = useState(false);
  const label = (
    <>
      <Icon name="bookmark" size={14} />
      <span className="wide-only">Views</span>
    </>
  );
  return (
    <>
      <Menu label={label} name="Saved views" alignRight>
        {(close) => (
          <ViewList
            project={project}
            close={close}
            save={() => {
              close();
              setSaving(true);
            }}
          />
        )}
      </Menu>
      {saving && <SaveDialog project={project} close={() => setSaving(false)} />}
    </>
  );
}

type ListProps = { project: string; close: () => void; save: () => void };

function ViewList({ project, close, save }: ListProps): ReactNode {
  const { data, error } = useResource<Views>(`/views${queryString({ project })}`);
  const { data: session } = useSession();
  const remove = (view: SavedView): void => {
    del(apiPath`/views/${view.id}`).then(
      () => refresh("/views"),
      (fault: unknown) => notify(asApiError(fault).message, { bad: true }),
    );
  };
  const sections: [string, SavedView[]][] = [
    ["Shared views", data?.views.filter((view) => view.shared) ?? []],
    ["Your views", data?.views.filter((view) => !view.shared) ?? []],
  ];
  const isEmpty = data && !data.views.length;
  return (
    <div className="views-menu">
      {error && <div className="menu-title">{error.message}</div>}
      {isEmpty && (
        <div className="menu-title">No saved views yet. A view has the filter, columns, order and groups.</div>
      )}
      {sections.map(([title, views]) =>
        views.length ? (
          <section key={title} aria-label={title}>
            <div className="menu-title">{title}</div>
            {views.map((view) => (
              <div key={view.id} className="views-row">
                <button
                  type="button"
                  className="menu-item"
                  title={view.shared ? `Saved by ${view.user}` : undefined}
                  onClick={() => {
                    close();
                    navigate(viewPath(view, project));
                  }}
                >
                  <span className="grow cut">{visible(view.name)}</span>
                  {view.shared && <span className="faint cut">{visible(view.user)}</span>}
                </button>
                {view.user === session?.name && (
                  <button
                    type="button"
                    className="button plain icon small"
                    aria-label={`Delete view ${visible(view.name)}`}
                    title="Delete view"
                    onClick={() => remove(view)}
                  >
                    <Icon name="trash" size={13} />
                  </button>
                )}
              </div>
            ))}
          </section>
        ) : null,
      )}
      <hr />
      <button type="button" className="menu-item" onClick={save}>
        <Icon name="plus" size={13} /> Save this view
      </button>
    </div>
  );
}

function SaveDialog({ project, close }: { project: string; close: () => void }): ReactNode {
  const [name, setName] = useState("");
  const [shared, setShared] = useState(false);
  const [busy, setBusy] = useState(false);
  const { data: session } = useSession();
  const mayShare = canEdit(session, project || "*");
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const { params } = currentRoute();
    const settings = Object.fromEntries(["q", "sort", "columns", "by"].map((key) => [key, params.get(key) ?? ""]));
    setBusy(true);
    post<SavedView>("/views", { name: name.trim(), project: project || null, shared, ...settings }).then(
      (view) => {
        refresh("/views");
        notify(`View ${visible(view.name)} saved`);
        close();
      },
      (error: unknown) => {
        setBusy(false);
        notify(asApiError(error).message, { bad: true });
      },
    );
  };
  return (
    <Dialog title="Save view" onClose={close}>
      <form className="runs-tagging" onSubmit={submit}>
        <input
          className="field"
          aria-label="Name of the view"
          placeholder="Best runs by learning rate"
          maxLength={100}
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
        {mayShare && (
          <label className="row">
            <input type="checkbox" checked={shared} onChange={(event) => setShared(event.target.checked)} />
            Share with everyone who can see {visible(project) || "these projects"}
          </label>
        )}
        <p className="soft">It keeps the filter, columns, order and groups. A view of the same name is replaced.</p>
        <button type="submit" className="button main" disabled={busy || !name.trim()}>
          Save
        </button>
      </form>
    </Dialog>
  );
}
