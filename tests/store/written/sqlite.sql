CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE runs (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    started_at BIGINT,
    finished_at BIGINT,
    attempt BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT,
    framework TEXT,
    backend TEXT NOT NULL,
    "user" TEXT NOT NULL,
    original TEXT,
    cloning TEXT,
    "group" TEXT,
    "commit" TEXT,
    reason TEXT NOT NULL,
    description TEXT
);
CREATE INDEX runs_created ON runs (created_at, key);
CREATE INDEX runs_updated ON runs (updated_at, key);
CREATE INDEX runs_project ON runs (project, created_at, key);
CREATE INDEX runs_status ON runs (status, created_at, key);
CREATE INDEX runs_group ON runs ("group", created_at, key);
CREATE INDEX runs_name ON runs (name);
CREATE INDEX runs_active ON runs (priority, created_at, key)
    WHERE status NOT IN ('succeeded', 'failed', 'upstream_failed', 'stopped', 'skipped');
CREATE TABLE statuses (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    status TEXT NOT NULL,
    at BIGINT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (run_key, number)
) WITHOUT ROWID;
CREATE TABLE replicas (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    role TEXT NOT NULL,
    number BIGINT NOT NULL,
    rank BIGINT NOT NULL,
    status TEXT NOT NULL,
    host TEXT,
    pid BIGINT,
    cause TEXT,
    code BIGINT,
    signal BIGINT,
    started_at BIGINT,
    finished_at BIGINT,
    peak TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (run_key, attempt, role, number)
) WITHOUT ROWID;
CREATE TABLE tags (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    tag TEXT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (run_key, tag)
) WITHOUT ROWID;
CREATE INDEX tags_tag ON tags (tag, run_key);
CREATE TABLE params (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    name TEXT NOT NULL,
    number DOUBLE PRECISION,
    is_json BIGINT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (run_key, name)
) WITHOUT ROWID;
CREATE INDEX params_number ON params (name, number, run_key);
CREATE TABLE summaries (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    metric TEXT NOT NULL,
    value DOUBLE PRECISION,
    PRIMARY KEY (run_key, metric)
) WITHOUT ROWID;
CREATE INDEX summaries_value ON summaries (metric, value, run_key);
INSERT INTO alembic_version (version_num) VALUES ('0001');
ALTER TABLE summaries ADD COLUMN "min" DOUBLE PRECISION;
ALTER TABLE summaries ADD COLUMN "max" DOUBLE PRECISION;
ALTER TABLE summaries ADD COLUMN "count" BIGINT;
ALTER TABLE summaries ADD COLUMN step BIGINT;
ALTER TABLE summaries ADD COLUMN at DOUBLE PRECISION;
CREATE TABLE labels (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (run_key, name)
) WITHOUT ROWID;
CREATE INDEX labels_name ON labels (name, run_key);
CREATE TABLE facts (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (run_key, name)
) WITHOUT ROWID;
CREATE TABLE artifacts (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    path TEXT NOT NULL,
    type TEXT NOT NULL,
    name TEXT NOT NULL,
    size BIGINT NOT NULL,
    digest TEXT,
    at BIGINT NOT NULL,
    PRIMARY KEY (run_key, path)
) WITHOUT ROWID;
CREATE INDEX artifacts_digest ON artifacts (digest);
CREATE TABLE models (
    name TEXT NOT NULL PRIMARY KEY,
    description TEXT NOT NULL,
    labels TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT
) WITHOUT ROWID;
CREATE TABLE versions (
    model TEXT NOT NULL REFERENCES models (name) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    run_id TEXT,
    source TEXT NOT NULL,
    "user" TEXT NOT NULL,
    digest TEXT,
    size BIGINT,
    files BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT,
    metrics TEXT NOT NULL,
    lineage TEXT NOT NULL,
    labels TEXT NOT NULL,
    description TEXT NOT NULL,
    PRIMARY KEY (model, number)
) WITHOUT ROWID;
CREATE INDEX versions_run ON versions (run_id);
CREATE TABLE aliases (
    model TEXT NOT NULL,
    alias TEXT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (model, alias),
    FOREIGN KEY (model, number) REFERENCES versions (model, number) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE model_events (
    number BIGINT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    "user" TEXT NOT NULL,
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    version BIGINT,
    journal_end BIGINT NOT NULL,
    reason TEXT NOT NULL,
    text TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX model_events_model ON model_events (model, number);
UPDATE alembic_version SET version_num='0002' WHERE alembic_version.version_num = '0001';
ALTER TABLE replicas RENAME TO replicas_before;
CREATE TABLE replicas (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    role TEXT NOT NULL,
    number BIGINT NOT NULL,
    local BIGINT NOT NULL,
    rank BIGINT NOT NULL,
    status TEXT NOT NULL,
    host TEXT,
    pid BIGINT,
    cause TEXT,
    code BIGINT,
    signal BIGINT,
    started_at BIGINT,
    finished_at BIGINT,
    peak TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (run_key, attempt, role, number, local)
) WITHOUT ROWID;
INSERT INTO replicas (run_key, attempt, role, number, rank, status, host, pid, cause, code, signal, started_at, finished_at, peak, reason, local) SELECT run_key, attempt, role, number, rank, status, host, pid, cause, code, signal, started_at, finished_at, peak, reason, 0 FROM replicas_before;
DROP TABLE replicas_before;
UPDATE alembic_version SET version_num='0003' WHERE alembic_version.version_num = '0002';
