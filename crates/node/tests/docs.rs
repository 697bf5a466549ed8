//! The page of the node's settings comes from their table.
#![allow(clippy::unwrap_used, reason = "a test may")]

use yb_settings::docs_page;

const INTRO: &str = "\
This page is generated from the table in `crates/node/src/settings.rs`; a test compares the two \
(`YB_BLESS=1 cargo test -p yb-node --test docs` writes it anew).

Every setting is a flag (`--name=value`, `-name value`, `--noname`; dashes and underscores mean the same). A name that is not \
listed is refused, and the nearest known one is shown. A setting marked *not built* belongs to a feature of the peer's \
daemon that a node has not: at its default it is accepted, otherwise the start is refused. Sizes are bytes, or a number \
with `KiB`, `MiB`, `GiB` or `TiB`.";

#[test]
fn the_page_is_what_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings-node.md");
    let page = docs_page(&yb_node::NODE, "Settings of a node", INTRO);
    if std::env::var_os("YB_BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap() == page, "docs/settings-node.md is not what the table says");
}
