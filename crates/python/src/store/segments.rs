//! Lending memory to the pool, and taking it back.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use yb_client::SegmentOptions;
use yb_types::{SegmentId, Uuid};

use super::Store;
use crate::convert::{Text, Unsigned};
use crate::last_error::{Failures, NO_KEY};
use crate::live::Live;

/// What these calls answer to whatever cannot work.
const FAILED: i64 = -1;
/// Sizes of segments are rounded up to this.
const STEP: u64 = 16 << 20;

/// A segment that was asked for.
struct Wish {
    protocol: String,
    location: String,
}

impl Wish {
    /// The memory for it; refuses what cannot be had.
    fn memory(&self, usual: SegmentOptions) -> Result<SegmentOptions, String> {
        if self.protocol != "tcp" {
            return Err(format!("protocol {:?} is not in this build, use \"tcp\"", self.protocol));
        }
        let node = match self.location.as_str() {
            "" | "*" => usual.numa_node,
            named => {
                let node = named.strip_prefix("cpu:").and_then(|node| node.parse().ok());
                Some(node.ok_or_else(|| format!("location {named:?} is neither \"cpu:\" and a NUMA node nor \"*\""))?)
            }
        };
        Ok(SegmentOptions { numa_node: node, ..usual })
    }
}

/// `{"ret": …, "segment_ids": […]}`.
fn mounted(py: Python<'_>, id: Option<SegmentId>) -> PyResult<Bound<'_, PyDict>> {
    let answer = PyDict::new(py);
    answer.set_item("ret", if id.is_some() { 0 } else { FAILED })?;
    answer.set_item("segment_ids", id.iter().map(ToString::to_string).collect::<Vec<String>>())?;
    Ok(answer)
}

/// Takes the segments back; 0, or -1.
fn unmount(live: &Live, last: &Failures, ids: &[Text], grace: Duration) -> i64 {
    let mut known = Vec::with_capacity(ids.len());
    let mut answer = 0;
    for id in ids {
        match Uuid::from_str(&id.0) {
            Ok(id) => known.push(SegmentId(id)),
            Err(_) => {
                last.set(format!("{:?} is no segment id", id.0));
                answer = FAILED;
            }
        }
    }
    let left = last.number(NO_KEY, live.client().unmount_segments(&known, grace), |()| 0);
    if left == 0 { answer } else { FAILED }
}

#[pymethods]
impl Store {
    /// Lends `size` bytes of a file (or of a device that can be mapped) from `offset` on, a multiple of the page size:
    /// `{"ret": 0, "segment_ids": ["first-second"]}`, or ret -1 and no ids. The file must not be made shorter while it is
    /// lent. `location`: "cpu:N" is accepted, the pages are where the file has them.
    #[pyo3(signature = (path, size, offset=Unsigned(0), protocol=Text::from("tcp"), location=Text::default()), text_signature = "($self, path, size, offset=0, protocol='tcp', location='')")]
    fn mount_segment<'py>(
        &self,
        py: Python<'py>,
        path: Text,
        size: Unsigned,
        offset: Unsigned,
        protocol: Text,
        location: Text,
    ) -> PyResult<Bound<'py, PyDict>> {
        let wish = Wish { protocol: protocol.0, location: location.0 };
        let id = self.with(py, None, |live, last| match wish.memory(SegmentOptions::default()) {
            Ok(_) => last.note(NO_KEY, live.client().mount_file(Path::new(&path.0), offset.0, size.0)),
            Err(text) => {
                last.set(text);
                None
            }
        });
        mounted(py, id)
    }

    /// Makes memory and lends it: as `mount_segment`, and `"allocated_size"`, which is `size` rounded up to 16 MiB, or 0.
    /// `location`: "cpu:N" places it on NUMA node N while that has room.
    #[pyo3(signature = (size, protocol=Text::from("tcp"), location=Text::default()), text_signature = "($self, size, protocol='tcp', location='')")]
    fn allocate_and_mount_segment<'py>(
        &self,
        py: Python<'py>,
        size: Unsigned,
        protocol: Text,
        location: Text,
    ) -> PyResult<Bound<'py, PyDict>> {
        let wish = Wish { protocol: protocol.0, location: location.0 };
        let rounded = size.0.max(1).checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
        let id = self.with(py, None, |live, last| match wish.memory(live.client().config().segment_memory) {
            Ok(memory) => last.note(NO_KEY, live.client().mount_segment(rounded, memory)),
            Err(text) => {
                last.set(text);
                None
            }
        });
        let answer = mounted(py, id)?;
        answer.set_item("allocated_size", if id.is_some() { rounded } else { 0 })?;
        Ok(answer)
    }

    /// Takes segments out of the pool, with the objects that are only there: 0, or -1 when one is not lent by this store
    /// (the others leave all the same). With a grace period their objects can be read that long, and nothing new is put
    /// there; the call does not wait for its end.
    #[pyo3(signature = (segment_ids, grace_period_seconds=Unsigned(0)), text_signature = "($self, segment_ids, grace_period_seconds=0)")]
    fn unmount_segment(&self, py: Python<'_>, segment_ids: Vec<Text>, grace_period_seconds: Unsigned) -> i64 {
        let grace = Duration::from_secs(grace_period_seconds.0);
        self.with(py, FAILED, |live, last| unmount(live, last, &segment_ids, grace))
    }

    /// Same as `unmount_segment`: memory that this store made is given back to the system in both.
    #[pyo3(signature = (segment_ids, grace_period_seconds=Unsigned(0)), text_signature = "($self, segment_ids, grace_period_seconds=0)")]
    fn unmount_and_free_segment(&self, py: Python<'_>, segment_ids: Vec<Text>, grace_period_seconds: Unsigned) -> i64 {
        self.unmount_segment(py, segment_ids, grace_period_seconds)
    }

    /// Takes the disk of this store out of the pool: 0, as it has none; -1 when not set up.
    #[pyo3(signature = (grace_period_seconds=Unsigned(0)), text_signature = "($self, grace_period_seconds=0)")]
    fn unmount_local_disk_segment(&self, grace_period_seconds: Unsigned) -> i64 {
        let _ = grace_period_seconds;
        if self.live().is_some() { 0 } else { FAILED }
    }
}
