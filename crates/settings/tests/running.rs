//! Settings of a process that runs: what they are, and what a reload makes of them.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use yb_settings::master::MASTER;
use yb_settings::{Arguments, SettingsError, Source, Values, explain, parse_arguments, reload};

fn values(arguments: &[&str]) -> Values {
    let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
    let Arguments::Run(given) = parse_arguments(&MASTER, &arguments, &|_| None).unwrap() else { panic!() };
    MASTER.resolve(given, &|name| (name == "YUEBING_ADMIN_TOKEN").then(|| "hush".to_owned())).unwrap()
}

fn set(values: &Values, name: &str, text: &str) -> Result<Values, SettingsError> {
    values.with(&MASTER, &[(name.to_owned(), text.to_owned())])
}

#[test]
fn a_setting_explains_itself() {
    let values = values(&["--client_ttl=60", "--eviction_ratio=0.1"]);
    let one = &explain(&MASTER, &values, Some("client-live-ttl-sec")).unwrap()[0];
    assert_eq!((one.shown().as_str(), one.source), ("60", Source::Argument));
    let json = one.json();
    for (part, said) in [("name", "client_ttl"), ("source", "flag"), ("default", "10"), ("class", "honoured")] {
        assert_eq!(json[part].as_str(), Some(said), "{json}");
    }
    assert!(one.peer().contains("--client_live_ttl_sec") && json["live"] == true, "{json}");
    let json = explain(&MASTER, &values, Some("memory_allocator")).unwrap()[0].json();
    assert_eq!((json["source"].as_str(), json["live"].as_bool()), (Some("default"), Some(false)));
    assert_eq!(explain(&MASTER, &values, None).unwrap().len(), MASTER.settings().count());
    assert!(explain(&MASTER, &values, Some("eviction")).unwrap().len() > 2, "a part of names finds all of them");
    let error = explain(&MASTER, &values, Some("evicton_rati")).unwrap_err();
    assert!(error.to_string().contains("did you mean eviction_ratio?"), "{error}");
}

#[test]
fn a_secret_is_shown_nowhere() {
    let values = values(&[]);
    let token = &explain(&MASTER, &values, Some("admin_token")).unwrap()[0];
    assert_eq!((token.shown().as_str(), token.source), ("(secret)", Source::Environment));
    assert_eq!(values.changed(&MASTER), "admin_token=\"(secret)\"");
    assert_eq!(values.text("admin_token"), "hush");
}

#[test]
fn a_reload_takes_what_is_live_and_names_the_rest() {
    let old = values(&["--eviction_ratio=0.1", "--rpc_port=5"]);
    let wanted = values(&["--eviction_ratio=0.2", "--rpc_port=6"]);
    let change = reload(&MASTER, &old, &wanted);
    let names = |changes: &[yb_settings::Change]| changes.iter().map(|c| c.name).collect::<Vec<_>>();
    assert_eq!((names(&change.applied), names(&change.refused)), (vec!["eviction_ratio"], vec!["rpc_port"]));
    assert_eq!((change.applied[0].old.as_str(), change.applied[0].new.as_str()), ("0.1", "0.2"));
    assert_eq!((change.values.double("eviction_ratio"), change.values.number("rpc_port")), (0.2, 5));
    assert!(reload(&MASTER, &change.values, &change.values).applied.is_empty());
}

#[test]
fn single_settings_change_by_name() {
    let old = values(&[]);
    let new = set(&old, "default-kv-lease-ttl", "5s").unwrap();
    assert_eq!((new.number("default_kv_lease_ttl"), new.source("default_kv_lease_ttl")), (5000, Source::Running));
    assert!(set(&old, "eviction_ratio", "2").unwrap_err().to_string().contains("between 0 and 1"));
    assert!(set(&old, "eviction_rato", "0.2").unwrap_err().to_string().contains("did you mean eviction_ratio?"));
    assert!(matches!(set(&old, "enable_ha", "true"), Err(SettingsError::NotBuilt { .. })));
}
