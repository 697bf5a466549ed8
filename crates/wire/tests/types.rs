//! Ids, literals and type codes of every function in every generation equal those of the peer.

mod common;

use common::{find, hex, lines, text};
use yb_wire::{Rpc, Service, WireTable, WireVersion};

const TYPES: &str = include_str!("fixtures/store-rpc-types.jsonl");

fn number(text: &str) -> u32 {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hex number")
}

#[test]
fn functions_of_every_generation() {
    let mut checked = 0;
    for row in lines(TYPES).iter().filter(|row| row["kind"] == "rpc") {
        let name = text(row, "rpc");
        let service = if row["service"] == "client" { Service::Client } else { Service::Master };
        for wheel in row["wheels"].as_array().expect("a list") {
            let version: WireVersion = wheel.as_str().expect("a text").parse().expect("a generation");
            let table = WireTable::of(version);
            let label = format!("{name} in {version}");
            // Clients declared it, no master ever served it.
            if name == "CalcCacheStats" {
                assert_eq!(table.lookup(number(text(row, "function_id"))), None);
                continue;
            }
            let rpc = find(table, service, name).unwrap_or_else(|| panic!("{label} is not in the table"));
            assert_eq!(rpc.qualified_name(), text(row, "qualified_name"));
            let signature = table.signature(rpc).expect("found above");
            assert_eq!(signature.function_id, number(text(row, "function_id")), "{label}");
            assert_eq!(table.lookup(signature.function_id), Some(rpc), "{label}");
            assert_eq!(signature.args.literal(), hex(text(row, "arg_literal")), "arguments of {label}");
            assert_eq!(signature.reply.literal(), hex(text(row, "ret_literal")), "result of {label}");
            if !signature.args.is_absent() {
                assert_eq!(signature.args.code(), number(text(row, "arg_code")), "arguments of {label}");
            }
            assert_eq!(signature.reply.code(), number(text(row, "ret_code")), "result of {label}");
            check_levels(row, "arg_compatible_versions", signature.args.levels(), &label);
            check_levels(row, "ret_compatible_versions", signature.reply.levels(), &label);
            checked += 1;
        }
    }
    assert!(checked > 700, "only {checked} functions were checked");
}

fn check_levels(row: &serde_json::Value, key: &str, levels: yb_pack::Levels, label: &str) {
    let expected: Vec<u64> =
        row[key].as_array().map(|list| list.iter().filter_map(|n| n.as_u64()).collect()).unwrap_or_default();
    let found: Vec<u64> = levels.iter().map(u64::from).collect();
    assert_eq!(found, expected, "{key} of {label}");
}

#[test]
fn no_function_more_than_the_peer_has() {
    for version in WireVersion::ALL {
        let rows = lines(TYPES);
        let known = |rpc: &Rpc| {
            rows.iter().any(|row| {
                row["kind"] == "rpc"
                    && text(row, "qualified_name") == rpc.qualified_name()
                    && row["wheels"].as_array().is_some_and(|wheels| {
                        wheels.iter().any(|w| w.as_str().is_some_and(|w| w.parse() == Ok(*version)))
                    })
            })
        };
        for rpc in Rpc::ALL.iter().filter(|rpc| rpc.service() != Service::Yuebing && rpc.since() <= *version) {
            assert!(known(rpc), "{} is not in {version}", rpc.name());
        }
    }
}

#[test]
fn masters_serve_as_many_functions_as_the_peer() {
    let count = |version| {
        let table = WireTable::of(version);
        Rpc::ALL.iter().filter(|rpc| rpc.service() == Service::Master && table.signature(**rpc).is_ok()).count()
    };
    assert_eq!(count(WireVersion::V0_3_14), 81);
    assert_eq!(count(WireVersion::V0_3_13), 64);
    assert_eq!(count(WireVersion::V0_3_12_POST1), 60);
    assert_eq!(count(WireVersion::V0_3_12), 59);
    assert_eq!(count(WireVersion::V0_3_11), 59);
    assert_eq!(count(WireVersion::V0_3_10_POST2), 46);
    assert_eq!(count(WireVersion::V0_3_10_POST1), 40);
    assert_eq!(count(WireVersion::V0_3_10), 38);
    assert_eq!(count(WireVersion::V0_3_9), 37);
}
