//! Every dependency carries a licence from the list.

use yb_tidy::metadata;

const ALLOWED: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "BSL-1.0",
    "Unicode-3.0",
    "CDLA-Permissive-2.0",
    "0BSD",
    "CC0-1.0",
    "Unlicense",
];

/// True when the SPDX expression can be met with allowed licences only. `/` is the old form of OR.
fn allowed(expression: &str) -> bool {
    let flat = expression.replace(['(', ')'], " ").replace('/', " OR ");
    // AND binds tighter than OR; in `(A OR B) AND C` every AND part must hold, which the split below asks too strictly
    // (A OR (B AND C)), never too loosely, unless C is not allowed: so every AND part is checked on its own as well.
    if expression.contains('(') {
        return flat.split(" AND ").all(|part| part.split(" OR ").any(|l| ALLOWED.contains(&l.trim())));
    }
    flat.split(" OR ").any(|choice| choice.split(" AND ").all(|l| ALLOWED.contains(&l.trim())))
}

#[test]
fn expressions() {
    assert!(allowed("MIT OR Apache-2.0"));
    assert!(allowed("GPL-3.0 OR MIT"));
    assert!(allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(!allowed("(MIT OR Apache-2.0) AND GPL-3.0"));
    assert!(!allowed("MIT AND GPL-3.0"));
    assert!(!allowed("GPL-3.0"));
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let metadata = metadata().expect("cargo metadata");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 20, "cargo metadata lists the dependencies");
    let refused: Vec<String> = packages
        .iter()
        .filter(|p| !p["license"].as_str().is_some_and(allowed))
        .map(|p| format!("{} {}: {}", p["name"], p["version"], p["license"]))
        .collect();
    assert!(refused.is_empty(), "licences not on the list:\n{}", refused.join("\n"));
}
