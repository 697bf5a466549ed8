//! Which entry of a port's table of GIDs is used (pure).

use std::fmt;
use std::net::Ipv4Addr;

pub use yb_verbs::{GidEntry, GidKind};

/// How good an entry is, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GidRank {
    /// An address that is routed, on a network device.
    Routable,
    /// The same without a network device.
    RoutableNoDevice,
    /// An address of a private network, on a network device.
    Private,
    /// An address of an overlay or of the link only, on a network device.
    Degraded,
    /// An address of a private network without a network device.
    PrivateNoDevice,
    /// An address of an overlay or of the link only, without a network device.
    DegradedNoDevice,
    /// RoCE version 1 or anything else: the last resort.
    OtherKind,
}

impl fmt::Display for GidRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GidRank::Routable => "a routable address on a network device",
            GidRank::RoutableNoDevice => "a routable address without a network device",
            GidRank::Private => "a private address on a network device",
            GidRank::Degraded => "an overlay's or link-local address on a network device",
            GidRank::PrivateNoDevice => "a private address without a network device",
            GidRank::DegradedNoDevice => "an overlay's or link-local address without a network device",
            GidRank::OtherKind => "the first entry of any kind",
        })
    }
}

/// The chosen entry, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidChoice {
    /// The entry.
    pub entry: GidEntry,
    /// How good it is; `None` when it was set by hand.
    pub rank: Option<GidRank>,
    /// One sentence for logs and for `yuebing doctor`.
    pub reason: String,
}

/// Text of a GID: 16 hex bytes joined by colons.
pub fn gid_text(gid: &[u8; 16]) -> String {
    gid.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Reads what [`gid_text`] writes.
pub fn parse_gid(text: &str) -> Option<[u8; 16]> {
    let mut gid = [0; 16];
    let mut parts = text.split(':');
    for byte in &mut gid {
        *byte = parts.next().filter(|part| part.len() == 2).and_then(|part| u8::from_str_radix(part, 16).ok())?;
    }
    parts.next().is_none().then_some(gid)
}

fn mapped_ipv4(gid: &[u8; 16]) -> Option<Ipv4Addr> {
    match gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some(Ipv4Addr::new(*a, *b, *c, *d)),
        _ => None,
    }
}

/// 192.168/16 counts as routable: it is what many clusters use for their fabric.
fn is_private(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    a == 10 || (a == 172 && (16..32).contains(&b)) || (a == 100 && (64..128).contains(&b))
}

fn is_overlay(device: &str) -> bool {
    device == "tunl0" || ["flannel", "cni", "calico", "vxlan", "docker"].iter().any(|name| device.starts_with(name))
}

/// How good an entry is.
pub fn rank(entry: &GidEntry) -> GidRank {
    if entry.kind == GidKind::RoceV1 {
        return GidRank::OtherKind;
    }
    let device = entry.device.as_deref();
    // InfiniBand's own prefix is link-local too, and says nothing about routes there.
    let link_local = entry.kind == GidKind::RoceV2 && entry.gid.starts_with(&[0xfe, 0x80]);
    let degraded = link_local || device.is_some_and(is_overlay);
    let private = mapped_ipv4(&entry.gid).is_some_and(is_private);
    match (degraded, private, device.is_some()) {
        (true, _, true) => GidRank::Degraded,
        (true, _, false) => GidRank::DegradedNoDevice,
        (false, true, true) => GidRank::Private,
        (false, true, false) => GidRank::PrivateNoDevice,
        (false, false, true) => GidRank::Routable,
        (false, false, false) => GidRank::RoutableNoDevice,
    }
}

fn describe(entry: &GidEntry) -> String {
    let address = mapped_ipv4(&entry.gid).map_or_else(|| gid_text(&entry.gid), |address| address.to_string());
    match &entry.device {
        Some(device) => format!("{:?} {address} on {device}", entry.kind),
        None => format!("{:?} {address}", entry.kind),
    }
}

/// The entries in the order in which they are tried: best rank first, equal ones in the table's order. A number set by
/// hand allows only that entry. Empty when the table has nothing of use.
pub fn candidates(table: &[GidEntry], wanted: Option<u8>) -> Vec<GidChoice> {
    if let Some(index) = wanted {
        let set = table.iter().find(|entry| entry.index == index);
        return set
            .map(|entry| {
                let reason = format!("GID {index} ({}), set by hand", describe(entry));
                GidChoice { entry: entry.clone(), rank: None, reason }
            })
            .into_iter()
            .collect();
    }
    let mut ranked: Vec<(GidRank, &GidEntry)> = table.iter().map(|entry| (rank(entry), entry)).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let count = ranked.len();
    let choice = |(rank, entry): (GidRank, &GidEntry)| GidChoice {
        entry: entry.clone(),
        rank: Some(rank),
        reason: format!("GID {} ({}): {rank}, of {count} in the table", entry.index, describe(entry)),
    };
    ranked.into_iter().map(choice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u8, gid: &str, kind: GidKind, device: &str) -> GidEntry {
        let device = (!device.is_empty()).then(|| device.to_owned());
        GidEntry { index, gid: parse_gid(gid).unwrap(), kind, device }
    }

    fn v4(index: u8, address: [u8; 4], device: &str) -> GidEntry {
        let [a, b, c, d] = address.map(|byte| format!("{byte:02x}"));
        entry(index, &format!("00:00:00:00:00:00:00:00:00:00:ff:ff:{a}:{b}:{c}:{d}"), GidKind::RoceV2, device)
    }

    const LINK: &str = "fe:80:00:00:00:00:00:00:12:34:56:ff:fe:78:9a:bc";

    fn first(table: &[GidEntry]) -> (u8, Option<GidRank>) {
        let choice = candidates(table, None).remove(0);
        (choice.entry.index, choice.rank)
    }

    /// As soft-RoCE fills it: version 1 and 2 of the link-local address, then of the IPv4 address.
    #[test]
    fn a_soft_roce_table() {
        let table = [entry(0, LINK, GidKind::RoceV2, "r0"), v4(1, [10, 77, 0, 1], "r0")];
        assert_eq!(first(&table), (1, Some(GidRank::Private)));
        assert!(candidates(&table, None)[0].reason.contains("GID 1 (RoceV2 10.77.0.1 on r0): a private address"));
    }

    /// As a ConnectX in a container host fills it: link-local v1/v2, the fabric's address v1/v2, an overlay's.
    #[test]
    fn a_table_with_an_overlay() {
        let mut fabric_v1 = v4(2, [192, 168, 5, 1], "eth2");
        fabric_v1.kind = GidKind::RoceV1;
        let table = [
            entry(0, LINK, GidKind::RoceV1, "eth2"),
            entry(1, LINK, GidKind::RoceV2, "eth2"),
            fabric_v1,
            v4(3, [192, 168, 5, 1], "eth2"),
            v4(4, [172, 17, 0, 1], "docker0"),
            v4(5, [100, 64, 0, 9], "eth2"),
        ];
        let order: Vec<u8> = candidates(&table, None).iter().map(|choice| choice.entry.index).collect();
        assert_eq!(order, [3, 5, 1, 4, 0, 2]);
    }

    #[test]
    fn every_rank_has_its_place() {
        let table = [
            entry(0, LINK, GidKind::RoceV1, "eth0"),
            entry(1, LINK, GidKind::RoceV2, ""),
            v4(2, [172, 16, 0, 1], ""),
            v4(3, [8, 8, 8, 8], "tunl0"),
            v4(4, [172, 31, 0, 1], "eth0"),
            v4(5, [172, 32, 0, 1], ""),
            entry(6, "20:01:0d:b8:00:00:00:00:00:00:00:00:00:00:00:01", GidKind::RoceV2, "eth0"),
        ];
        let order: Vec<u8> = candidates(&table, None).iter().map(|choice| choice.entry.index).collect();
        assert_eq!(order, [6, 5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn equal_entries_keep_their_order_and_a_number_set_by_hand_wins() {
        let table = [v4(4, [8, 0, 0, 1], "eth0"), v4(7, [8, 0, 0, 2], "eth1"), entry(9, LINK, GidKind::RoceV1, "")];
        assert_eq!(first(&table), (4, Some(GidRank::Routable)));
        let set = candidates(&table, Some(9));
        assert_eq!((set.len(), set[0].entry.index, set[0].rank), (1, 9, None));
        assert!(candidates(&table, Some(1)).is_empty());
        assert!(candidates(&[], None).is_empty());
    }

    #[test]
    fn infiniband_needs_no_network_device() {
        let table = [entry(0, LINK, GidKind::Infiniband, "")];
        assert_eq!(first(&table), (0, Some(GidRank::RoutableNoDevice)));
    }

    #[test]
    fn texts_come_back() {
        let text = "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02";
        assert_eq!(gid_text(&parse_gid(text).unwrap()), text);
        for bad in ["", "zz", &text[3..], &format!("{text}:00"), &text.replace("0a", "a")] {
            assert_eq!(parse_gid(bad), None, "{bad}");
        }
    }
}
