//! Our structures against those that a C compiler finds in the library's header; skipped where there is none.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use yb_verbs::abi::*;

/// A C expression and the number that it must have.
type Fact = (String, usize);

macro_rules! facts {
    ($($type:ident { $($field:ident $(as $c:literal)?),* $(,)? }),* $(,)?) => {{
        let mut facts: Vec<Fact> = Vec::new();
        $(
            facts.push((format!("sizeof({})", c_type(stringify!($type))), size_of::<$type>()));
            $(
                let field = [$($c,)? stringify!($field)][0];
                let fact = format!("offsetof({}, {field})", c_type(stringify!($type)));
                facts.push((fact, offset_of!($type, $field)));
            )*
        )*
        facts
    }};
}

fn c_type(name: &str) -> String {
    if name == "ibv_gid" { format!("union {name}") } else { format!("struct {name}") }
}

fn constants() -> Vec<Fact> {
    [
        ("IBV_QPS_ERR", IBV_QPS_ERR),
        ("IBV_QPS_RTS", IBV_QPS_RTS),
        ("IBV_QPT_RC", IBV_QPT_RC),
        ("IBV_PORT_ACTIVE", IBV_PORT_ACTIVE),
        ("IBV_QP_DEST_QPN", IBV_QP_DEST_QPN),
        ("IBV_QP_MAX_QP_RD_ATOMIC", IBV_QP_MAX_QP_RD_ATOMIC),
        ("IBV_QP_MAX_DEST_RD_ATOMIC", IBV_QP_MAX_DEST_RD_ATOMIC),
        ("IBV_QP_MIN_RNR_TIMER", IBV_QP_MIN_RNR_TIMER),
        ("IBV_QP_SQ_PSN", IBV_QP_SQ_PSN),
        ("IBV_QP_RQ_PSN", IBV_QP_RQ_PSN),
        ("IBV_QP_AV", IBV_QP_AV),
        ("IBV_QP_PATH_MTU", IBV_QP_PATH_MTU),
        ("IBV_ACCESS_REMOTE_READ", IBV_ACCESS_REMOTE_READ),
        ("IBV_ACCESS_RELAXED_ORDERING", IBV_ACCESS_RELAXED_ORDERING),
        ("IBV_WR_RDMA_READ", IBV_WR_RDMA_READ),
        ("IBV_WR_SEND", IBV_WR_SEND),
        ("IBV_WC_RECV", 128),
        ("IBV_WC_RETRY_EXC_ERR", 12),
        ("IBV_WC_REM_ACCESS_ERR", 10),
        ("IBV_EVENT_PORT_ERR", 10),
        ("IBV_EVENT_GID_CHANGE", 18),
        ("IBV_EVENT_DEVICE_FATAL", 8),
    ]
    .map(|(name, number)| (name.to_owned(), number as usize))
    .to_vec()
}

#[test]
fn structures_lie_as_in_the_header() {
    if !std::path::Path::new("/usr/include/infiniband/verbs.h").exists() {
        eprintln!("skipped: no infiniband/verbs.h (package libibverbs-dev)");
        return;
    }
    let mut facts = facts! {
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat },
        ibv_context_ops { poll_cq, req_notify_cq, post_send, post_recv },
        ibv_device_attr { max_mr_size, max_qp, max_qp_wr, max_sge, max_cqe, max_qp_init_rd_atom, phys_port_cnt },
        ibv_port_attr { active_mtu, gid_tbl_len, max_msg_sz, lid, active_width, active_speed, link_layer, flags },
        ibv_gid {},
        ibv_comp_channel { fd },
        ibv_mr { addr, length, lkey, rkey },
        ibv_cq { channel, cqe, mutex, comp_events_completed },
        ibv_qp { qp_num, state, mutex, events_completed },
        ibv_qp_init_attr { send_cq, cap, qp_type, sq_sig_all },
        ibv_qp_attr { path_mtu, rq_psn, dest_qp_num, qp_access_flags, cap, ah_attr, pkey_index, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, rate_limit },
        ibv_ah_attr { grh, dlid, sl, is_global, port_num },
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class },
        ibv_sge { addr, length, lkey },
        ibv_send_wr { next, sg_list, num_sge, opcode, send_flags, imm_data, wr },
        ibv_recv_wr { next, sg_list, num_sge },
        ibv_wc { status, opcode, vendor_err, byte_len, qp_num, wc_flags, dlid_path_bits },
        ibv_async_event { event_type },
    };
    facts.push(("offsetof(struct ibv_send_wr, wr.rdma.rkey)".to_owned(), offset_of!(ibv_send_wr, wr) + 8));
    facts.extend(constants());
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("facts.c"), folder.path().join("facts"));
    let mut text =
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void){\n".to_owned();
    for (expression, _) in &facts {
        writeln!(text, "printf(\"%lu\\n\", (unsigned long)({expression}));").unwrap();
    }
    text.push_str("return 0;}\n");
    std::fs::write(&source, text).unwrap();
    let built = Command::new("cc").arg("-o").args([&program, &source]).status();
    if built.is_err() {
        eprintln!("skipped: no C compiler");
        return;
    }
    assert!(built.unwrap().success());
    let output = Command::new(&program).output().unwrap();
    let numbers: Vec<usize> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers.len(), facts.len());
    let wrong: Vec<_> = facts.iter().zip(&numbers).filter(|((_, ours), theirs)| ours != *theirs).collect();
    assert!(wrong.is_empty(), "expression, ours, the header's: {wrong:?}");
}

#[test]
fn a_missing_library_is_one_clear_error() {
    let error = yb_verbs::Verbs::load_from("libibverbs-that-is-not-there.so.1").unwrap_err().to_string();
    assert!(error.contains("RDMA is not available") && error.contains("libibverbs1"), "{error}");
}
