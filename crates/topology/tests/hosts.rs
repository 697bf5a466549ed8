//! Topologies of hosts as sysfs shows them.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::{Host, NicSpec};
use yb_topology::{Choice, GidKind, LinkReport, LinkSpeed, LocalNic, Matrix, Origin, Topology};

/// Two sockets, four PCIe switches each, a NIC and a GPU behind every switch.
fn big() -> Host {
    let host = Host::new();
    host.node(0, "10 21");
    host.node(1, "21 10");
    for at in 0..8 {
        let (socket, switch) = (at / 4, at % 4);
        let root = if socket == 0 { "pci0000:00" } else { "pci0000:80" };
        let domain = if socket == 0 { 0x00 } else { 0x80 };
        let switch =
            format!("{root}/0000:{domain:02x}:0{}.0/0000:{:02x}:00.0", switch + 1, domain + 0x10 * (switch + 1));
        let base = domain + 0x10 * (at % 4 + 1);
        host.nic(&NicSpec::new(
            &format!("mlx5_{at}"),
            &format!("{switch}/0000:{:02x}:00.0/0000:{:02x}:00.0", base + 1, base + 2),
            socket,
        ));
        host.gpu(&format!("{switch}/0000:{:02x}:01.0/0000:{:02x}:00.0", base + 1, base + 3), socket);
    }
    host
}

#[test]
fn a_big_host_pairs_every_gpu_with_the_nic_behind_its_switch() {
    let topology = Topology::from_sysfs(&big().sys());
    assert_eq!((topology.nodes().len(), topology.nics().len(), topology.gpus().len()), (2, 8, 8));
    let matrix = topology.matrix();
    assert_eq!(matrix.of("cpu:0").preferred, ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]);
    assert_eq!(matrix.of("cpu:0").others, ["mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"]);
    for at in 0..8 {
        let row = matrix.of(&format!("cuda:{at}"));
        assert_eq!(row.preferred, [format!("mlx5_{at}")]);
        assert_eq!(row.others.len(), 7);
    }
    let distances = ["mlx5_3", "mlx5_2", "mlx5_4"].map(|nic| topology.distance("cuda:3", nic).unwrap());
    assert_eq!(distances, [4, 8, 21]);
    assert_eq!(["mlx5_0", "mlx5_7"].map(|nic| topology.distance("cpu:0", nic).unwrap()), [10, 21]);
    assert_eq!((topology.distance("cpu:7", "mlx5_0"), topology.distance("cpu:0", "no")), (None, None));
}

#[test]
fn what_a_nic_is_is_read_from_its_ports() {
    let host = big();
    let topology = Topology::from_sysfs(&host.sys());
    let nic = topology.nic("mlx5_4").unwrap();
    assert_eq!(
        (nic.numa, nic.speed(), nic.netdevs.as_slice()),
        (Some(1), LinkSpeed(200), &["net_mlx5_4".to_owned()][..])
    );
    let port = nic.active_port().unwrap();
    assert_eq!(port.gids.iter().map(|gid| gid.index).collect::<Vec<_>>(), [0, 1], "an empty place is no address");
    assert_eq!((port.gids[1].kind, port.gids[1].netdev.as_deref()), (Some(GidKind::V2), Some("net_mlx5_4")));
    assert_eq!(Topology::from_sysfs(&host.sys()), topology, "the same tree reads the same");
}

#[test]
fn a_host_without_nics_reads_as_the_peer_reads_it() {
    let host = Host::new();
    host.node(0, "10");
    let topology = Topology::from_sysfs(&host.sys());
    // The peer's dump on such a host, recorded.
    let recorded = "{\n\t\"cpu:0\" : \n\t[\n\t\t[],\n\t\t[]\n\t]\n}\n";
    assert_eq!(topology.matrix().to_text(), recorded);
    assert!(topology.gpus().is_empty());
}

#[test]
fn a_kernel_without_numa_has_one_node_and_software_nics_belong_to_none() {
    let host = Host::new();
    host.nic(&NicSpec { rate: "2.5 Gb/sec (1X SDR)", ..NicSpec::new("rxe0", "", -1) });
    host.put("sys/devices/virtual/infiniband/rxe0/parent", "eth0\n");
    let topology = Topology::from_sysfs(&host.sys());
    let nic = topology.nic("rxe0").unwrap();
    assert_eq!(
        (nic.numa, nic.pci.as_ref(), nic.netdevs.as_slice()),
        (None, None, &["eth0".to_owned(), "net_rxe0".to_owned()][..])
    );
    assert_eq!(topology.matrix(), Matrix::parse(r#"{"cpu:0":[[],["rxe0"]]}"#).unwrap(), "as recorded with the peer");
    assert_eq!(topology.distance("cpu:0", "rxe0"), Some(20));
}

#[test]
fn nics_that_are_down_or_out_of_reach_serve_nothing() {
    let host = Host::new();
    host.node(0, "10");
    host.nic(&NicSpec { state: "1: DOWN", ..NicSpec::new("mlx5_0", "pci0000:00/0000:00:01.0", 0) });
    host.nic(&NicSpec::new("mlx5_2", "pci0000:00/0000:00:02.0", 0));
    host.nic(&NicSpec::new("mlx5_10", "pci0000:00/0000:00:03.0", 0));
    std::fs::remove_file(host.sys().parent().unwrap().join("dev/infiniband/uverbs1")).unwrap();
    let topology = Topology::from_sysfs(&host.sys());
    assert_eq!(
        topology.nics().iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>(),
        ["mlx5_0", "mlx5_2", "mlx5_10"]
    );
    assert_eq!(topology.matrix().nics(), ["mlx5_10"]);
}

#[test]
fn a_gpu_without_a_nic_on_its_node_takes_the_nearest_of_all() {
    let host = Host::new();
    host.node(0, "10 21");
    host.node(1, "21 10");
    host.nic(&NicSpec::new("mlx5_0", "pci0000:00/0000:00:01.0/0000:01:00.0", 0));
    host.nic(&NicSpec::new("mlx5_1", "pci0000:00/0000:00:01.0/0000:01:01.0/0000:02:00.0", 0));
    host.gpu("pci0000:80/0000:80:01.0/0000:81:00.0", 1);
    host.gpu("pci0000:80/0000:80:02.0/0000:82:00.0", -1);
    let mut topology = Topology::from_sysfs(&host.sys());
    assert_eq!(topology.matrix().of("cuda:0").preferred, ["mlx5_0"]);
    assert_eq!(topology.distance("cuda:1", "mlx5_0"), Some(20));
    topology.order_gpus(&["0000:82:00.0"]);
    assert_eq!((topology.gpus().len(), topology.gpus()[0].pci.address()), (1, "0000:82:00.0"));
}

#[test]
fn an_operator_may_choose() {
    let host = big();
    let topology = Topology::from_sysfs(&host.sys());
    host.put("matrix.json", r#"{"cpu:0":[["mlx5_7","mlx5_1"],["x"]]}"#);
    let path = host.sys().parent().unwrap().join("matrix.json");
    let text = path.to_str().unwrap().to_owned();
    let choice = Choice::from_env(|name| match name {
        "MC_CUSTOM_TOPO_JSON" => Some(text.clone()),
        "MC_TE_FILTERS" => Some(" mlx5_1, ,x".to_owned()),
        _ => None,
    });
    let (matrix, origin) = choice.matrix(&topology).unwrap();
    assert_eq!(matrix, Matrix::parse(r#"{"cpu:0":[["mlx5_1"],["x"]]}"#).unwrap());
    assert_eq!(origin, Origin::Custom(path.clone()));
    std::fs::write(&path, "{").unwrap();
    assert!(choice.matrix(&topology).is_err());
    std::fs::remove_file(&path).unwrap();
    let (matrix, origin) = choice.matrix(&topology).unwrap();
    assert_eq!((matrix.nics(), origin), (vec!["mlx5_1"], Origin::Discovered));
}

#[test]
fn links_are_reported_with_the_peers_names() {
    let host = Host::new();
    host.node(0, "10");
    host.nic(&NicSpec::new("mlx5_0", "pci0000:00/0000:00:01.0", 0));
    let topology = Topology::from_sysfs(&host.sys());
    let nics = topology.nics().iter().map(LocalNic::known).collect();
    let report = LinkReport { nics, matrix: topology.matrix() };
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "local_nics": [{"device": "mlx5_0", "gid": "", "gid_index": -1, "numa": 0, "port": 1, "source": "topology",
                            "speed_gbps": 200}],
            "topology": {"cpu:0": [["mlx5_0"], []]},
        })
    );
    assert!(report.to_json().starts_with("{\n  \"local_nics\": [\n"));
    let text = "Local NICs\n  mlx5_0: numa 0, port 1, 200 Gb/s, not in use\nTopology (NIC Selection)\n  cpu:0: mlx5_0; then none\n";
    assert_eq!(report.to_text(), text);
}
