//! Fuzz targets of what reads settings; `cargo test` runs them as property tests, `cargo bolero test` fuzzes them.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use bolero::check;
use yb_settings::master::MASTER;
use yb_settings::{Arguments, explain, parse_arguments};

/// Longest error that may come of a short input.
const LONGEST: usize = 4096;

/// Parses arguments, and a file where they name one; whatever comes of it, it comes, and a value that is taken is shown.
fn resolve(arguments: &[String]) {
    let parsed = parse_arguments(&MASTER, arguments, &|_| None);
    let values = match parsed {
        Ok(Arguments::Run(given)) => MASTER.resolve(given, &|_| None),
        Ok(_) => return,
        Err(error) => Err(error),
    };
    match values {
        Ok(values) => assert!(explain(&MASTER, &values, None).is_ok_and(|all| !all.is_empty())),
        Err(error) => assert!(error.to_string().len() < LONGEST, "{error}"),
    }
}

#[test]
fn arguments() {
    let names: Vec<&str> = MASTER.settings().map(|setting| setting.name).collect();
    check!().with_iterations(5_000).for_each(|input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        let words: Vec<String> = text.split(['\n', '\0']).map(str::to_owned).collect();
        // A flag that would read a file of this machine is no part of this.
        if words.iter().any(|word| word.contains("file") || word.contains("path")) {
            return;
        }
        resolve(&words);
        let name = names[usize::from(input.first().copied().unwrap_or(0)) % names.len()];
        if name != "config_path" {
            resolve(&[format!("--{name}={text}")]);
            resolve(&[format!("--{name}"), text.into_owned()]);
        }
    });
}

#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    check!().with_iterations(1_000).for_each(|input: &[u8]| {
        for (end, bytes) in [
            ("yaml", input.to_vec()),
            ("json", input.to_vec()),
            ("yaml", [b"eviction_ratio: ", input].concat()),
            ("json", [b"{\"eviction_ratio\":", input, b"}"].concat()),
        ] {
            let path = folder.path().join(format!("settings.{end}"));
            std::fs::write(&path, bytes).unwrap();
            resolve(&[format!("--config_path={}", path.display())]);
        }
    });
}

#[test]
fn files_that_are_small_and_grow() {
    let folder = tempfile::tempdir().unwrap();
    let laughs = (1..20).fold("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
        let of = format!("*a{}", n - 1);
        text + &format!("a{n}: &a{n} [{of},{of},{of},{of},{of},{of},{of},{of},{of},{of}]\n")
    });
    for (end, text) in [("yaml", laughs), ("yaml", "[".repeat(100_000)), ("json", "[".repeat(100_000))] {
        let path = folder.path().join(format!("settings.{end}"));
        std::fs::write(&path, text).unwrap();
        let arguments = [format!("--config_path={}", path.display())];
        let Ok(Arguments::Run(given)) = parse_arguments(&MASTER, &arguments, &|_| None) else { continue };
        assert!(MASTER.resolve(given, &|_| None).is_err(), "{end}");
    }
}
