//! The docs page of the functions is that of the table.

use std::path::Path;

#[test]
fn the_page_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire-rpcs.md");
    let rendered = yb_wire::schema::render_docs();
    if std::env::var_os("YB_BLESS").is_some() {
        std::fs::write(&path, &rendered).expect("docs/wire-rpcs.md can be written");
    }
    let found = std::fs::read_to_string(&path).expect("docs/wire-rpcs.md can be read");
    assert!(found == rendered, "docs/wire-rpcs.md is old: YB_BLESS=1 cargo test -p yb-wire --test docs");
}
