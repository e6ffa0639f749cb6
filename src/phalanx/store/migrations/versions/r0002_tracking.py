"""What training code tracks besides metrics: labels, facts, artifacts; and the model registry.

A summary has more than the last value. NULL means unknown: an older Phalanx wrote the summary.
"""

from __future__ import annotations

from phalanx.store.migrations.revision import Revision

REVISION = Revision(
    "0002",
    """
ALTER TABLE summaries ADD COLUMN "min" DOUBLE PRECISION;
ALTER TABLE summaries ADD COLUMN "max" DOUBLE PRECISION;
ALTER TABLE summaries ADD COLUMN "count" BIGINT;
ALTER TABLE summaries ADD COLUMN step BIGINT;
ALTER TABLE summaries ADD COLUMN at DOUBLE PRECISION;

CREATE TABLE labels (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    name {text} NOT NULL,
    text {text} NOT NULL,
    PRIMARY KEY (run_key, name)
) {table_end};
CREATE INDEX labels_name ON labels (name, run_key);

CREATE TABLE facts (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    name {text} NOT NULL,
    text {text} NOT NULL,
    PRIMARY KEY (run_key, name)
) {table_end};

CREATE TABLE artifacts (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    path {text} NOT NULL,
    type {text} NOT NULL,
    name {text} NOT NULL,
    size BIGINT NOT NULL,
    digest {text},
    at BIGINT NOT NULL,
    PRIMARY KEY (run_key, path)
) {table_end};
CREATE INDEX artifacts_digest ON artifacts (digest);

CREATE TABLE models (
    name {text} NOT NULL PRIMARY KEY,
    description {text} NOT NULL,
    labels {text} NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT
) {table_end};

CREATE TABLE versions (
    model {text} NOT NULL REFERENCES models (name) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    run_id {text},
    source {text} NOT NULL,
    "user" {text} NOT NULL,
    digest {text},
    size BIGINT,
    files BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT,
    metrics {text} NOT NULL,
    lineage {text} NOT NULL,
    labels {text} NOT NULL,
    description {text} NOT NULL,
    PRIMARY KEY (model, number)
) {table_end};
CREATE INDEX versions_run ON versions (run_id);

CREATE TABLE aliases (
    model {text} NOT NULL,
    alias {text} NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (model, alias),
    FOREIGN KEY (model, number) REFERENCES versions (model, number) ON DELETE CASCADE
) {table_end};

CREATE TABLE model_events (
    number BIGINT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    "user" {text} NOT NULL,
    kind {text} NOT NULL,
    model {text} NOT NULL,
    version BIGINT,
    journal_end BIGINT NOT NULL,
    reason {text} NOT NULL,
    text {text} NOT NULL
) {table_end};
CREATE INDEX model_events_model ON model_events (model, number);
""",
)
