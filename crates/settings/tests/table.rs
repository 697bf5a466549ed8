//! The master's table against the peer's help, the docs page, and the parser's rules.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;

use yb_settings::master::{DOCS_INTRO, DOCS_TITLE, MASTER};
use yb_settings::{
    Arguments, HelpStyle, SettingsError, Source, Values, docs_page, help_gflags, help_plain, parse_arguments,
};

fn values(arguments: &[&str]) -> Result<Values, SettingsError> {
    let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
    match parse_arguments(&MASTER, &arguments, &|_| None)? {
        Arguments::Run(given) => MASTER.resolve(given, &|_| None),
        other => panic!("{other:?}"),
    }
}

fn file(extension: &str, text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(extension).tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn every_flag_of_both_peer_releases_is_known_with_the_old_default() {
    for line in include_str!("peer-flags.txt").lines().filter(|l| !l.starts_with('#')) {
        let [name, kind, old, new] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let setting = MASTER.find(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(setting.kind.gflags_name(), kind, "{name}");
        let default = if old == "-" { new } else { old };
        if name == "allocation_strategy" {
            assert_eq!(setting.default, "balanced", "fills pools more evenly than the peer's, see docs/placement.md");
            continue;
        }
        // The longer soft pin of 0.3.14 refuses nobody.
        let default = if name == "max_kv_soft_pin_ttl" { new } else { default };
        let default = if default == "''" { "" } else { default };
        assert_eq!(setting.parse(setting.default).unwrap(), setting.parse(default).unwrap(), "{name}");
    }
}

#[test]
fn names_are_unique_and_defaults_legal() {
    let mut seen = BTreeSet::new();
    for setting in MASTER.settings() {
        setting.parse(setting.default).unwrap();
        assert!(!setting.doc.is_empty());
        for name in std::iter::once(&setting.name).chain(setting.aliases) {
            assert!(seen.insert(*name), "{name} twice");
        }
    }
    assert!(values(&[]).is_ok());
}

#[test]
fn gflags_forms() {
    let v = values(&["-rpc_port", "7", "--default-kv-lease-ttl=5s", "--noenable_metric_reporting", "--v=0x1"]).unwrap();
    assert_eq!((v.number("rpc_port"), v.number("default_kv_lease_ttl")), (7, 5000));
    assert!(!v.flag("enable_metric_reporting"));
    assert_eq!(v.source("rpc_port"), Source::Argument);
    let v = values(&["--compat_listen=0.3.12:1", "--compat_listen=0.3.11:2,0.3.10:3"]).unwrap();
    assert_eq!(v.list("compat_listen"), ["0.3.12:1", "0.3.11:2", "0.3.10:3"]);
    assert!(values(&["--undefok=whatever", "--whatever=1"]).is_ok());
}

#[test]
fn refusals_name_the_remedy() {
    let text = |arguments: &[&str]| values(arguments).unwrap_err().to_string();
    assert!(text(&["--rpc_prot=1"]).contains("did you mean --rpc_port?"));
    assert!(text(&["--enable_ha=true"]).contains("high availability"));
    assert!(text(&["--memory_allocator=cachelib"]).contains("cachelib allocator"));
    assert!(text(&["--rpc_port=70000"]).contains("between 0 and 65535"));
    assert!(text(&["--eviction_ratio=NaN"]).contains("finite"));
    assert!(text(&["--allocation_strategy=best"]).contains("free_ratio_first"));
    assert!(text(&["--rpc_port"]).contains("needs a value"));
    assert!(text(&["start"]).contains("unexpected argument"));
}

#[test]
fn files_in_both_formats_and_flags_win() {
    let yaml = file(".yaml", "rpc_port: 81\nclient_live_ttl_sec: 60\nenable_metric_reporting: no\n");
    let v = values(&[&format!("--config_path={}", yaml.path().display()), "--rpc_port=82"]).unwrap();
    assert_eq!((v.number("rpc_port"), v.number("client_ttl")), (82, 60));
    assert_eq!(v.source("client_ttl"), Source::File);
    assert!(!v.flag("enable_metric_reporting"));
    let json = file(".json", r#"{"eviction_ratio": 0.25, "compat_listen": ["0.3.12:5"]}"#);
    let v = values(&["--config_path", &json.path().display().to_string()]).unwrap();
    assert_eq!(v.double("eviction_ratio"), 0.25);
    assert_eq!(v.list("compat_listen"), ["0.3.12:5"]);
}

#[test]
fn bad_files_are_refused_with_their_path() {
    for (extension, text, needle) in [
        (".yaml", "rpc_prot: 1\n", "did you mean rpc_port?"),
        (".yaml", "a:\n  b: 1\n", "\"a.b\""),
        (".yaml", "- 1\n", "must be a map"),
        (".json", "{", "cannot read"),
        (".ini", "", "must end in"),
    ] {
        let file = file(extension, text);
        let error = values(&[&format!("--config_path={}", file.path().display())]).unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
    }
    assert!(values(&["--config_path=/nonexistent.yaml"]).is_err());
}

#[test]
fn flag_files_and_environment() {
    let flags = file(".flags", "# comment\n--rpc_port=5\n\n-v=1\n");
    let v = values(&[&format!("--flagfile={}", flags.path().display())]).unwrap();
    assert_eq!((v.number("rpc_port"), v.number("v")), (5, 1));
    let environment = |name: &str| (name == "FLAGS_rpc_port").then(|| "9".to_owned());
    let Arguments::Run(given) = parse_arguments(&MASTER, &["--fromenv=rpc_port".to_owned()], &environment).unwrap()
    else {
        panic!()
    };
    assert_eq!(given.get("rpc_port"), Some("9"));
    assert!(values(&["--fromenv=rpc_port"]).is_err());
    assert!(values(&["--tryfromenv=rpc_port"]).is_ok());
}

#[test]
fn help_in_both_styles_names_everything() {
    for help in [help_gflags(&MASTER, &HelpStyle::All), help_plain(&MASTER, "yuebing master", &HelpStyle::All)] {
        for setting in MASTER.settings() {
            assert!(help.contains(&format!("-{}", setting.name)), "{}", setting.name);
        }
        assert!(help.contains("0.3.10.post2"), "legal generations are named");
    }
    let plain = help_plain(&MASTER, "yuebing master", &HelpStyle::All);
    assert!(plain.starts_with("Usage: yuebing master [--NAME=VALUE]...\n") && plain.contains("--helpmatch"), "{plain}");
    for short in ["-h", "--help"] {
        let asked = parse_arguments(&MASTER, &[short.to_owned()], &|_| None).unwrap();
        assert!(matches!(asked, Arguments::Help(HelpStyle::All)), "{short}");
    }
    let help = help_gflags(&MASTER, &HelpStyle::Matching("lease".to_owned()));
    assert!(help.contains("-default_kv_lease_ttl") && !help.contains("-rpc_port"));
}

#[test]
fn a_number_out_of_place_is_refused_with_its_unit() {
    for (flag, words) in [
        ("--client_ttl=10s", "must be a whole number (seconds, without a unit)"),
        ("--client_ttl=0", "must be between 1 and 31536000 (seconds, without a unit)"),
        ("--journal_max_age=300", "must be between 1000 and 86400000 ms"),
    ] {
        let error = values(&[flag]).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn docs_page_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings-master.md");
    let page = docs_page(&MASTER, DOCS_TITLE, DOCS_INTRO);
    if std::env::var_os("YB_BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "docs/settings-master.md is stale: YB_BLESS=1 cargo test -p yb-settings");
}

proptest::proptest! {
    #[test]
    fn parser_never_panics(arguments in proptest::collection::vec("[-=a-z_0-9,.]{0,20}", 0..6)) {
        if !arguments.iter().any(|a| a.contains("file") || a.contains("config")) {
            let _ = parse_arguments(&MASTER, &arguments, &|_| None).map(|a| match a {
                Arguments::Run(given) => MASTER.resolve(given, &|_| None).map(|_| ()),
                _ => Ok(()),
            });
        }
    }
}
