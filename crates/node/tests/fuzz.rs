//! Fuzz targets of what reads the settings of a node; `cargo test` runs them as property tests.

use bolero::check;
use yb_node::NODE;
use yb_settings::{Arguments, explain, parse_arguments};

/// Longest error that may come of a short input.
const LONGEST: usize = 4096;

/// Parses arguments; whatever comes of it, it comes, and a value that is taken is shown.
fn resolve(arguments: &[String]) {
    let values = match parse_arguments(&NODE, arguments, &|_| None) {
        Ok(Arguments::Run(given)) => NODE.resolve(given, &|_| None),
        Ok(_) => return,
        Err(error) => Err(error),
    };
    match values {
        Ok(values) => assert!(explain(&NODE, &values, None).is_ok_and(|all| !all.is_empty())),
        Err(error) => assert!(error.to_string().len() < LONGEST, "{error}"),
    }
}

#[test]
fn flags_of_a_node() {
    let names: Vec<&str> = NODE.settings().map(|setting| setting.name).collect();
    check!().with_iterations(5_000).for_each(|input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        let name = names[usize::from(input.first().copied().unwrap_or(0)) % names.len()];
        resolve(&[format!("--{name}={text}")]);
        resolve(&[format!("--{name}"), text.into_owned()]);
        resolve(
            &input.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>(),
        );
    });
}
