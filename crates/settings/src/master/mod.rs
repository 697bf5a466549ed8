//! The master's settings: the union of the flags and file keys of the peer's masters 0.3.13 and 0.3.14 with the
//! defaults of 0.3.13, and our own.
//!
//! Names, types and defaults: `mooncake_master --help` of both releases.

mod network;
mod objects;
mod tiers;

use crate::security::{SECURITY, SECURITY_TITLE};
use crate::setting::Table;

/// Every setting of the master.
pub static MASTER: Table = Table {
    program: "mooncake_master",
    groups: &[
        ("RPC and HTTP", network::NETWORK),
        (SECURITY_TITLE, SECURITY),
        ("Limits", network::LIMITS),
        ("Logging", network::LOGGING),
        ("Objects, eviction, placement", objects::OBJECTS),
        ("Clients and nodes", objects::CLIENTS),
        ("Storage tiers", tiers::TIERS),
        ("Tenants and tasks", tiers::TENANTS),
        ("Events", tiers::EVENTS),
        ("High availability and snapshots", tiers::AVAILABILITY),
    ],
};

/// Title of the generated page.
pub const DOCS_TITLE: &str = "Settings of the master";

/// First words of the generated page `docs/settings-master.md`.
pub const DOCS_INTRO: &str = "\
This page is generated from the table in `crates/settings/src/master/`; a test compares the two \
(`YB_BLESS=1 cargo test -p yb-settings` writes it anew).

Every setting is a flag (`--name=value`, `-name value`, `--noname`; dashes and underscores mean the same) and a key of \
the YAML or JSON file named by `--config_path`. A flag wins over the file, the file over the environment. \
A name that is not listed is refused, and the nearest known one is shown. A setting marked *not built* belongs to a \
feature of the peer that this build has not: at its default it is accepted, otherwise the start is refused. \
A *live* setting takes effect at a reload (SIGHUP, or `POST /api/v1/config/reload`), the others at the next start; \
`yuebing config explain NAME` tells value, source and meaning. \
Durations are milliseconds, or a number with `ms`, `s`, `m` or `h`; sizes are bytes, or a number with `KiB`, `MiB`, `GiB` or `TiB`.";
